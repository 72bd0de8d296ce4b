"""The roofline: whether an operation is held up by arithmetic or by memory.

An operation's arithmetic intensity is its FLOPs over the bytes that it moves between device memory
and chip: each operand read once, each result written once. A card's ridge point is its peak FLOP/s
over its bandwidth. Left of it memory is the roof, right of it arithmetic (Williams et al. 2009).
What a cache keeps between two operations is not known here; a fused kernel is an operation of its
own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from exporter.reference.accelerators import Accelerator

WIDTHS = {
    "fp64": 8.0, "fp64_tensor": 8.0, "fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0,
    "fp8": 1.0, "int8": 1.0, "fp4": 0.5,
}  # fmt: skip
"""Bytes of an element by precision, without scales of groups."""

LEAST_USE = 0.1
"""Below this share of both roofs neither holds a card up: it is idle, or waits for others."""

Verdict = Literal["compute_bound", "memory_bound", "idle"]
LIMITS: tuple[Verdict, ...] = ("compute_bound", "memory_bound")
"""The verdicts but idle, which is neither."""


class Operation(NamedTuple):
    """A kernel: what it computes, and the bytes that it reads and writes."""

    name: str
    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        """Arithmetic intensity in FLOP per byte."""
        return self.flops / self.bytes


class Roof(NamedTuple):
    """What a card can do at most: FLOP/s and bytes per second."""

    peak: float
    bandwidth: float

    @property
    def ridge(self) -> float:
        """The intensity in FLOP per byte from which on arithmetic is the roof."""
        return self.peak / self.bandwidth

    def attainable(self, operation: Operation) -> float:
        """Return the FLOP/s that an operation can reach."""
        return min(self.peak, operation.intensity * self.bandwidth)

    def seconds(self, operation: Operation) -> float:
        """Return the least time that an operation can take."""
        return max(operation.flops / self.peak, operation.bytes / self.bandwidth)

    def bound(self, operation: Operation) -> Verdict:
        """Return which roof an operation meets first."""
        return "compute_bound" if operation.intensity >= self.ridge else "memory_bound"

    def verdict(self, flops: float, moved: float, seconds: float) -> Verdict:
        """Return what holds up a card that has done so many FLOPs and moved so many bytes."""
        use = max(flops / self.peak, moved / self.bandwidth) / seconds
        if use < LEAST_USE:
            return "idle"
        return "compute_bound" if flops >= moved * self.ridge else "memory_bound"


def roof_of(product: Accelerator, precision: str) -> Roof:
    """Return a product's roof. Raises `ValueError` if its peak or its bandwidth is not known."""
    peak, bandwidth = product.peaks.get(precision), product.bandwidth
    if peak is None:
        known = ", ".join(product.peaks) or "none"
        raise ValueError(f"{product.title}: no {precision} peak is known, only {known}")
    if bandwidth is None:
        raise ValueError(f"{product.title}: its memory bandwidth is not known")
    return Roof(float(peak), float(bandwidth))


def gemm(name: str, m: int, n: int, k: int, *, width: float = 2.0, batch: int = 1) -> Operation:
    """Return products of matrices: m x k times k x n, `batch` of them, elements `width` bytes."""
    return Operation(name, 2.0 * batch * m * n * k, width * batch * (m * k + k * n + m * n))


def elementwise(
    name: str, elements: float, flops: float, reads: int, writes: int, *, width: float = 2.0
) -> Operation:
    """Return work on each element by itself: FLOPs for each, and how often each is moved."""
    return Operation(name, flops * elements, width * elements * (reads + writes))


def fused_attention(
    name: str, batch: int, heads: int, length: int, size: int, *, width: float = 2.0
) -> Operation:
    """Return attention in one kernel, full: queries, keys, values read, the output written."""
    rows = float(batch * heads * length)
    return Operation(name, 4 * rows * length * size, 4 * width * rows * size)


def layer(
    batch: int, length: int, hidden: int, heads: int, *, width: float = 2.0
) -> tuple[Operation, ...]:
    """Return the operations of the seed's table 16-9: those of a transformer layer, unfused.

    Raises `ValueError` if the heads do not divide the width.
    """
    if hidden % heads:
        raise ValueError(f"{heads} heads do not divide {hidden}")
    tokens, size = batch * length, hidden // heads
    scores = float(batch * heads) * length * length
    every = float(tokens) * hidden

    def each(name: str, elements: float, flops: float, reads: int = 1) -> Operation:
        return elementwise(name, elements, flops, reads, 1, width=width)

    def square(name: str) -> Operation:
        return gemm(name, tokens, hidden, hidden, width=width)

    return (
        square("Q, K or V projection"),
        gemm("Q x K^T", length, length, size, width=width, batch=batch * heads),
        each("softmax", scores, 5),
        gemm("attention x V", length, size, length, width=width, batch=batch * heads),
        fused_attention("attention, fused", batch, heads, length, size, width=width),
        square("output projection"),
        each("layer norm", every, 5),
        each("GELU", every, 6),
        each("dropout", every, 0),
        each("residual add", every, 1, 2),
    )


class Pass(NamedTuple):
    """One kernel of attention that is not fused: how many matrices it reads and writes."""

    name: str
    reads: int
    writes: int


ATTENTION_PASSES = (
    Pass("Q x K^T", 1, 1), Pass("scale", 1, 1), Pass("row maximum", 1, 1), Pass("subtract", 1, 1),
    Pass("exponentiate", 1, 1), Pass("row sum", 1, 1), Pass("divide", 2, 1),
    Pass("attention x V", 2, 1),
)  # fmt: skip
"""Attention as the seed's section 16.5.3 takes it apart; operands that lie together count once."""


def passes(kernels: Iterable[Pass] = ATTENTION_PASSES) -> tuple[int, int]:
    """Return how often matrices are read and written in all."""
    told = tuple(kernels)
    return sum(one.reads for one in told), sum(one.writes for one in told)


def tensor_bytes(*sizes: int, width: float) -> float:
    """Return the bytes of a tensor of such sizes."""
    total = width
    for size in sizes:
        total *= size
    return total


def report(
    product: str, precision: str, roof: Roof, operations: Iterable[Operation]
) -> dict[str, Any]:
    """Return a roofline for programs, in base units."""
    return {
        "accelerator": product,
        "precision": precision,
        "peak_flops": roof.peak,
        "memory_bandwidth_bytes_per_second": roof.bandwidth,
        "ridge_point_flops_per_byte": roof.ridge,
        "operations": [
            {
                "operation": one.name,
                "flops": one.flops,
                "bytes": one.bytes,
                "flops_per_byte": one.intensity,
                "verdict": roof.bound(one),
                "attainable_flops": roof.attainable(one),
                "least_seconds": roof.seconds(one),
            }
            for one in operations
        ],
    }


def table(
    product: str, precision: str, roof: Roof, operations: Sequence[Operation]
) -> Iterator[str]:
    """Yield a roofline for people, line by line."""
    yield (
        f"{product}, {precision}: {roof.peak / 1e12:,.1f} TFLOP/s, {roof.bandwidth / 1e12:,.3f}"
        f" TB/s, ridge point {roof.ridge:,.1f} FLOP/byte"
    )
    yield ""
    yield (
        f"{'operation':<22}{'GFLOP':>12}{'MB':>12}{'FLOP/byte':>12}  {'limit':<8}"
        f"{'TFLOP/s':>10}{'least us':>12}"
    )
    for one in operations:
        limit = "compute" if roof.bound(one) == "compute_bound" else "memory"
        yield (
            f"{one.name:<22}{one.flops / 1e9:>12,.3f}{one.bytes / 1e6:>12,.2f}"
            f"{one.intensity:>12,.2f}  {limit:<8}{roof.attainable(one) / 1e12:>10,.1f}"
            f"{roof.seconds(one) * 1e6:>12,.1f}"
        )
