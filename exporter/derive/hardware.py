"""What the hardware could do and what it does: peaks, memory traffic, and an estimate of FLOP/s.

Peaks come from the table of products, and only while it is sure enough that the board is the
product (`LEAST_CONFIDENCE`): then `gpu_dram_active_ratio` becomes bytes per second, and tensor
activity becomes operations per second. The latter is what NVIDIA's authors call OFU (arXiv
2605.20799) times the peak:

    tensor activity x SM clock / SM clock that the peak belongs to x dense peak of the precision

It is an estimate. Activity counts cycles, whatever precision they worked in: one active cycle of
FP8 is twice the operations of BF16, and no counter tells which it was. So the precision is a hint
that the operator gives, and stands on the series as a label. The clock is that of the moment of the
reading, the activity an average over the interval before it. Recomputation and padding count: it
compares to HFU rather than MFU. It may exceed the peak, since boards run above the peak's clock.

Both together are a GPU's place under its roofline (`derive/roofline.py`): the arithmetic intensity
of what it did in the last minute, and which roof that is below.

    gpu_peak_flops{gpu="0",uuid="GPU-5a1c...",precision="bf16"} 989400000000000
    gpu_peak_memory_bandwidth_bytes_per_second{gpu="0",uuid="GPU-5a1c..."} 3350000000000
    gpu_peak_confidence_ratio{gpu="0",uuid="GPU-5a1c..."} 1.0
    gpu_hbm_bandwidth_bytes_per_second{gpu="0",uuid="GPU-5a1c..."} 2144000000000.0
    gpu_estimated_flops_per_second{gpu="0",uuid="GPU-5a1c...",precision="bf16"} 5.21e+14
    gpu_estimated_flops_total{gpu="0",uuid="GPU-5a1c...",precision="bf16"} 1.4e+18
    gpu_arithmetic_intensity_flops_per_byte{gpu="0",uuid="GPU-5a1c...",precision="bf16"} 243.1
    gpu_roofline_verdict{gpu="0",uuid="GPU-5a1c...",precision="bf16",verdict="memory_bound"} 1
"""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from exporter import catalogue as c
from exporter.derive.derivation import Derivation
from exporter.derive.memory import Memory
from exporter.derive.roofline import LIMITS, Roof
from exporter.reference.accelerators import (
    PRECISIONS,
    Accelerator,
    Accelerators,
    Observed,
    confidence,
)
from exporter.samples import Metric, Sample, Shape, Value, View

NAME = "hardware"

LEAST_CONFIDENCE = 0.5
"""Below this there are no peaks, and nothing that needs one. A name in the table may so differ in
one fact; a PCI device id alone in none."""

EXPORTED_PRECISIONS = ("fp32", "tf32", "bf16", "fp8", "fp4")
"""The peaks that are exported unless the operator chooses: each is the denominator of a training or
serving job. FP64 is not, FP16 equals BF16 wherever both exist, INT8 equals FP8 or is cut down; that
keeps 8 GPUs at 32 to 40 series."""

WITHOUT = {"bf16": "fp16"}
"""What stands in for a precision that a board does not have: Volta and Turing know no BF16."""

ROOFLINE_SECONDS = 60.0
"""Over how long a GPU's place under its roofline is told: single readings jump."""

ROOFLINE_READINGS = 120
"""How many readings of that time are kept at most; with more the time is shorter."""

TENSOR_PIPES = {
    "tf32": "tensor_half",
    "bf16": "tensor_half",
    "fp16": "tensor_half",
    "fp8": "",
    "fp4": "",
    "int8": "tensor_integer",
    "fp64_tensor": "",
}
"""Whose activity the estimate uses for each precision that can be hinted; "" is all tensor pipes
together. It is not told which of them FP8 and FP4 count for (NVIDIA/DCGM 86, 251), and the driver
has two for FP64."""

_INPUTS = (
    c.GPU_INFO,
    c.GPU_MEMORY_TOTAL_BYTES,
    c.GPU_CLOCK_MAX_HERTZ,
    c.GPU_POWER_LIMIT_WATTS,
    c.GPU_DRAM_ACTIVE_RATIO,
    c.GPU_TENSOR_ACTIVE_RATIO,
    c.GPU_PIPE_ACTIVE_RATIO,
    c.GPU_CLOCK_HERTZ,
)
_Key = tuple[str, str]
_Where = Mapping[tuple[Metric, "_Key", tuple[str, ...]], Sequence["_Place"]]


def hardware(
    accelerators: Accelerators,
    *,
    precision_hint: str = "bf16",
    precisions: tuple[str, ...] = EXPORTED_PRECISIONS,
    longest_gap: float = 10.0,
) -> Derivation:
    """Return the derivation over a table of products.

    `precision_hint` is what the jobs of this node multiply in, a key of `TENSOR_PIPES`; with
    `bf16` the FLOP/s of an FP8 job come out at half at most. `precisions` are the peaks to export.
    A time of more than `longest_gap` seconds between readings is left out of the counter; it
    should be the age up to which a reading of the GPU counts as fresh. Raises `ValueError` for a
    precision that there is none of.
    """
    if precision_hint not in TENSOR_PIPES:
        raise ValueError(f"{precision_hint!r} is none of {', '.join(TENSOR_PIPES)}")
    for precision in precisions:
        if precision not in PRECISIONS:
            raise ValueError(f"{precision!r} is none of {', '.join(PRECISIONS)}")
    return Derivation(
        name=NAME,
        group=c.GPU,
        inputs=_INPUTS,
        outputs=(
            c.GPU_PEAK_CONFIDENCE_RATIO,
            c.GPU_PEAK_FLOPS,
            c.GPU_PEAK_MEMORY_BANDWIDTH_BYTES_PER_SECOND,
            c.GPU_HBM_BANDWIDTH_BYTES_PER_SECOND,
            c.GPU_ESTIMATED_FLOPS_PER_SECOND,
            c.GPU_ESTIMATED_FLOPS_TOTAL,
            c.GPU_ARITHMETIC_INTENSITY_FLOPS_PER_BYTE,
            c.GPU_ROOFLINE_VERDICT,
        ),
        function=_Hardware(accelerators, precision_hint, precisions, longest_gap),
        steady=True,
    )


_Place = tuple[int, int]
"""Which source of the view, and which of its series."""

_FACTS = {
    "memory": (c.GPU_MEMORY_TOTAL_BYTES, ()),
    "max_clock": (c.GPU_CLOCK_MAX_HERTZ, ("sm",)),
    "power": (c.GPU_POWER_LIMIT_WATTS, ("default",)),
}
"""What tells whether a board is the product that it is called: families, and labels after uuid."""


class _Hardware:
    def __init__(
        self,
        accelerators: Accelerators,
        hint: str,
        precisions: tuple[str, ...],
        longest_gap: float,
    ) -> None:
        self._accelerators = accelerators
        self._hint = hint
        self._precisions = precisions
        self._longest_gap = longest_gap
        self._shapes: Sequence[Shape] = ()
        self._gpus: Sequence[_Gpu] = ()
        self._courses: dict[tuple[str, str, str], _Course] = {}

    def __call__(self, view: View, memory: Memory, now: float) -> Iterator[Sample]:
        shapes = [source.batch.shape for source in view.sources]
        if len(shapes) != len(self._shapes) or any(map(operator.is_not, shapes, self._shapes)):
            self._shapes, self._gpus = shapes, _gpus(shapes, TENSOR_PIPES[self._hint])
            here = {gpu.key for gpu in self._gpus}
            self._courses = {k: one for k, one in self._courses.items() if k[:2] in here}
        board = _Board(
            [source.batch.values for source in view.sources],
            [now - (source.age or 0.0) for source in view.sources],
        )
        for gpu in self._gpus:
            facts = gpu.facts(board)
            if facts != gpu.judged:
                gpu.judged, (gpu.product, gpu.steady) = facts, self._judge(gpu.key, facts)
            yield from gpu.steady
            if gpu.product is None:
                continue
            yield from _memory_traffic(gpu, gpu.product, board)
            yield from self._estimate(gpu, gpu.product, board, memory)

    def _judge(
        self, key: _Key, facts: tuple[Any, ...]
    ) -> tuple[Accelerator | None, Sequence[Sample]]:
        """Return which product a board is, if that is sure enough, and what follows from it."""
        info, memory, max_clock, power = facts
        if info is None:
            return None, ()
        said = dict(zip(c.GPU_INFO.labels, info, strict=True))
        # A virtual GPU has the id of the board that it is a part of.
        device = "" if said["virtualization"] == "vgpu" else said["pci_device_id"]
        match = self._accelerators.resolve(said["name"], device)
        cores = said["cuda_cores"]
        cuda_cores = int(cores) if cores.isdecimal() else None
        sure = confidence(match, Observed(memory, max_clock, power, cuda_cores))
        told = [c.GPU_PEAK_CONFIDENCE_RATIO(sure, *key)]
        if match is None or sure < LEAST_CONFIDENCE:
            return None, told
        product = match.accelerator
        told += [
            c.GPU_PEAK_FLOPS(product.peaks[precision], *key, precision)
            for precision in dict.fromkeys(_held(product, p) for p in self._precisions)
            if precision in product.peaks
        ]
        if (bandwidth := product.bandwidth) is not None:
            told.append(c.GPU_PEAK_MEMORY_BANDWIDTH_BYTES_PER_SECOND(bandwidth, *key))
        return product, told

    def _estimate(
        self, gpu: _Gpu, product: Accelerator, board: _Board, memory: Memory
    ) -> Iterator[Sample]:
        precision = _held(product, self._hint)
        peak, reference = product.peaks.get(precision), product.tensor_clock
        at, clock = board.first(gpu.activity), board.value(gpu.clock)
        if peak is None or reference is None or at is None or clock is None:
            return
        rate = board.at(at) * clock / reference * peak
        if rate < 0:
            return
        yield c.GPU_ESTIMATED_FLOPS_PER_SECOND(rate, *gpu.key, precision)
        counter = memory.integral(*gpu.key, precision, longest_gap=self._longest_gap)
        taken = board.taken[at[0]]
        yield c.GPU_ESTIMATED_FLOPS_TOTAL(counter.add(taken, rate), *gpu.key, precision)
        active, bandwidth = board.value(gpu.dram), product.bandwidth
        if bandwidth is not None and active is not None and active >= 0:
            roof = Roof(peak, bandwidth)
            key = (*gpu.key, precision)
            course = self._courses.get(key)
            if course is None:
                course = self._courses[key] = _Course(self._longest_gap)
            course.add(taken, rate, active * bandwidth)
            yield from course.under(roof, key)


class _Course:
    """What a GPU did in the last minute: sums of FLOPs, of bytes, and of the time they took.

    As with an integral, a reading stands for the time since the one before it; where readings were
    missing for long, that time is in none of the three.
    """

    __slots__ = ("_longest_gap", "_ring")

    def __init__(self, longest_gap: float) -> None:
        self._longest_gap = longest_gap
        self._ring: deque[tuple[float, float, float, float]] = deque(maxlen=ROOFLINE_READINGS)

    def add(self, taken: float, flops: float, traffic: float) -> None:
        """Take a reading of both rates; one that is no newer than the last is ignored."""
        if not self._ring:
            self._ring.append((taken, 0.0, 0.0, 0.0))
            return
        last, done, moved, seconds = self._ring[-1]
        span = taken - last
        if span <= 0:
            return
        if span > self._longest_gap:
            span = 0.0
        self._ring.append((taken, done + flops * span, moved + traffic * span, seconds + span))
        while self._ring[0][0] < taken - ROOFLINE_SECONDS:
            self._ring.popleft()

    def under(self, roof: Roof, key: tuple[str, str, str]) -> Iterator[Sample]:
        """Yield where the GPU stood under its roof."""
        (_, *first), (_, *last) = self._ring[0], self._ring[-1]
        done, moved, seconds = map(operator.sub, last, first)
        if seconds <= 0:
            return
        if moved > 0:
            yield c.GPU_ARITHMETIC_INTENSITY_FLOPS_PER_BYTE(done / moved, *key)
        found = roof.verdict(done, moved, seconds)
        for verdict in LIMITS:
            yield c.GPU_ROOFLINE_VERDICT(int(verdict == found), *key, verdict)


class _Board(NamedTuple):
    """What the board holds at one moment: each source's values, and when they were taken."""

    columns: Sequence[Sequence[Value]]
    taken: Sequence[float]

    def at(self, place: _Place) -> float:
        """Return the value in a place; no family that is read here has histograms."""
        return cast("float", self.columns[place[0]][place[1]])

    def first(self, places: Sequence[_Place]) -> _Place | None:
        """Return the first of some places where there is a finite number."""
        for place in places:
            if math.isfinite(self.at(place)):
                return place
        return None

    def value(self, places: Sequence[_Place]) -> float | None:
        """Return the first finite number in some places."""
        at = self.first(places)
        return None if at is None else self.at(at)


class _Gpu:
    """Where a GPU's readings are on the board, and what its facts have been judged to mean.

    A reading may be there twice: the first one that is a number counts. A GPU that is split into
    instances has no activity of its own, and so gets no estimate.
    """

    def __init__(self, key: _Key, shapes: Sequence[Shape], where: _Where, pipe: str) -> None:
        self.key = key
        self._info = where.get((c.GPU_INFO, key, ()), ())
        self._labels = [shapes[at].labels[i] for at, i in self._info]
        self._facts = [where.get((metric, key, rest), ()) for metric, rest in _FACTS.values()]
        self.clock = where.get((c.GPU_CLOCK_HERTZ, key, ("sm",)), ())
        self.dram = where.get((c.GPU_DRAM_ACTIVE_RATIO, key, ()), ())
        self.activity = [
            *where.get((c.GPU_PIPE_ACTIVE_RATIO, key, (pipe,)), ()),
            *where.get((c.GPU_TENSOR_ACTIVE_RATIO, key, ()), ()),
        ]
        self.judged: tuple[object, ...] = ()
        self.product: Accelerator | None = None
        self.steady: Sequence[Sample] = ()

    def facts(self, board: _Board) -> tuple[Any, ...]:
        """Return who the GPU says it is, and what tells whether that is so."""
        at = board.first(self._info)
        info = None if at is None else self._labels[self._info.index(at)]
        return (info, *[board.value(places) for places in self._facts])


def _gpus(shapes: Sequence[Shape], pipe: str) -> Sequence[_Gpu]:
    """Return the GPUs that tell who they are, and where their readings are."""
    where: dict[tuple[Metric, _Key, tuple[str, ...]], list[_Place]] = {}
    keys: dict[_Key, None] = {}
    for at, shape in enumerate(shapes):
        for metric in _INPUTS:
            for i in shape.families.get(metric, ()):
                gpu, uuid, *rest = shape.labels[i]
                if metric is c.GPU_INFO:
                    keys[gpu, uuid], rest = None, []
                where.setdefault((metric, (gpu, uuid), tuple(rest)), []).append((at, i))
    return [_Gpu(key, shapes, where, pipe) for key in keys]


def _memory_traffic(gpu: _Gpu, product: Accelerator, board: _Board) -> Iterator[Sample]:
    active = board.value(gpu.dram)
    if product.bandwidth is not None and active is not None and active >= 0:
        yield c.GPU_HBM_BANDWIDTH_BYTES_PER_SECOND(active * product.bandwidth, *gpu.key)


def _held(product: Accelerator, precision: str) -> str:
    """Return a precision, or the one that stands in for it if the product does not have it."""
    return precision if precision in product.peaks else WITHOUT.get(precision, precision)
