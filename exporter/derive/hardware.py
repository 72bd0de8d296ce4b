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

    gpu_peak_flops{gpu="0",uuid="GPU-5a1c...",precision="bf16"} 989400000000000
    gpu_peak_memory_bandwidth_bytes_per_second{gpu="0",uuid="GPU-5a1c..."} 3350000000000
    gpu_peak_confidence_ratio{gpu="0",uuid="GPU-5a1c..."} 1.0
    gpu_hbm_bandwidth_bytes_per_second{gpu="0",uuid="GPU-5a1c..."} 2144000000000.0
    gpu_estimated_flops_per_second{gpu="0",uuid="GPU-5a1c...",precision="bf16"} 5.21e+14
    gpu_estimated_flops_total{gpu="0",uuid="GPU-5a1c...",precision="bf16"} 1.4e+18
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from exporter import catalogue as c
from exporter.derive.derivation import Derivation, Reading, readings
from exporter.derive.memory import Memory
from exporter.reference.accelerators import (
    PRECISIONS,
    Accelerator,
    Accelerators,
    Observed,
    confidence,
)
from exporter.samples import Metric, Sample, View

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

_Key = tuple[str, str]


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
        inputs=(
            c.GPU_INFO,
            c.GPU_MEMORY_TOTAL_BYTES,
            c.GPU_CLOCK_MAX_HERTZ,
            c.GPU_POWER_LIMIT_WATTS,
            c.GPU_DRAM_ACTIVE_RATIO,
            c.GPU_TENSOR_ACTIVE_RATIO,
            c.GPU_PIPE_ACTIVE_RATIO,
            c.GPU_CLOCK_HERTZ,
        ),
        outputs=(
            c.GPU_PEAK_CONFIDENCE_RATIO,
            c.GPU_PEAK_FLOPS,
            c.GPU_PEAK_MEMORY_BANDWIDTH_BYTES_PER_SECOND,
            c.GPU_HBM_BANDWIDTH_BYTES_PER_SECOND,
            c.GPU_ESTIMATED_FLOPS_PER_SECOND,
            c.GPU_ESTIMATED_FLOPS_TOTAL,
        ),
        function=_Hardware(accelerators, precision_hint, precisions, longest_gap),
        steady=True,
    )


@dataclass(frozen=True, slots=True)
class _Hardware:
    accelerators: Accelerators
    hint: str
    precisions: tuple[str, ...]
    longest_gap: float

    def __call__(self, view: View, memory: Memory, now: float) -> Iterator[Sample]:
        board = _Board(view, now)
        for key, info in board.info.items():
            match = self.accelerators.resolve(
                info["name"],
                # A virtual GPU has the id of the board that it is a part of.
                "" if info["virtualization"] == "vgpu" else info["pci_device_id"],
            )
            sure = confidence(match, board.observed(key))
            yield c.GPU_PEAK_CONFIDENCE_RATIO(sure, *key)
            if match is None or sure < LEAST_CONFIDENCE:
                continue
            yield from self._peaks(key, match.accelerator)
            yield from _memory_traffic(key, match.accelerator, board)
            yield from self._estimate(key, match.accelerator, board, memory)

    def _peaks(self, key: _Key, product: Accelerator) -> Iterator[Sample]:
        for precision in dict.fromkeys(_held(product, p) for p in self.precisions):
            if precision in product.peaks:
                yield c.GPU_PEAK_FLOPS(product.peaks[precision], *key, precision)

    def _estimate(
        self, key: _Key, product: Accelerator, board: _Board, memory: Memory
    ) -> Iterator[Sample]:
        precision = _held(product, self.hint)
        peak, reference = product.peaks.get(precision), product.tensor_clock
        activity = board.activity(key, TENSOR_PIPES[precision])
        clock = board.clock.get(key)
        if peak is None or reference is None or activity is None or clock is None:
            return
        rate = activity.value * clock.value / reference * peak
        if rate < 0:
            return
        yield c.GPU_ESTIMATED_FLOPS_PER_SECOND(rate, *key, precision)
        counter = memory.integral(*key, precision, longest_gap=self.longest_gap)
        yield c.GPU_ESTIMATED_FLOPS_TOTAL(counter.add(activity.taken, rate), *key, precision)


class _Board:
    """What the board says of each GPU at one moment; of a reading that is there twice, the first.

    A GPU that is split into instances has no activity of its own, and so gets no estimate.
    """

    def __init__(self, view: View, now: float) -> None:
        self._view = view
        self._now = now
        names = c.GPU_INFO.labels
        self.info: dict[_Key, Mapping[str, str]] = {}
        for reading in readings(view, c.GPU_INFO, now):
            gpu, uuid = reading.labels[:2]
            self.info.setdefault((gpu, uuid), dict(zip(names, reading.labels, strict=True)))
        self.clock = self._of(c.GPU_CLOCK_HERTZ, "sm")
        self.dram_active = self._of(c.GPU_DRAM_ACTIVE_RATIO)
        self._memory = self._of(c.GPU_MEMORY_TOTAL_BYTES)
        self._max_clock = self._of(c.GPU_CLOCK_MAX_HERTZ, "sm")
        self._power = self._of(c.GPU_POWER_LIMIT_WATTS, "default")
        self._active = {"": self._of(c.GPU_TENSOR_ACTIVE_RATIO)}

    def observed(self, key: _Key) -> Observed:
        """Return the facts that tell whether a GPU is the product that it is called."""
        cores = self.info[key]["cuda_cores"]
        return Observed(
            memory=_value(self._memory.get(key)),
            max_clock=_value(self._max_clock.get(key)),
            power=_value(self._power.get(key)),
            cuda_cores=int(cores) if cores.isdecimal() else None,
        )

    def activity(self, key: _Key, pipe: str) -> Reading | None:
        """Return the activity of one tensor pipe, or of all of them where it is not told apart."""
        if pipe not in self._active:
            self._active[pipe] = self._of(c.GPU_PIPE_ACTIVE_RATIO, pipe)
        return self._active[pipe].get(key, self._active[""].get(key))

    def _of(self, metric: Metric, *rest: str) -> dict[_Key, Reading]:
        """Return the reading of each GPU whose labels after the first two are `rest`."""
        found: dict[_Key, Reading] = {}
        for reading in readings(self._view, metric, self._now):
            gpu, uuid, *others = reading.labels
            if tuple(others) == rest:
                found.setdefault((gpu, uuid), reading)
        return found


def _memory_traffic(key: _Key, product: Accelerator, board: _Board) -> Iterator[Sample]:
    if product.bandwidth is None:
        return
    yield c.GPU_PEAK_MEMORY_BANDWIDTH_BYTES_PER_SECOND(product.bandwidth, *key)
    active = board.dram_active.get(key)
    if active is not None and active.value >= 0:
        yield c.GPU_HBM_BANDWIDTH_BYTES_PER_SECOND(active.value * product.bandwidth, *key)


def _held(product: Accelerator, precision: str) -> str:
    """Return a precision, or the one that stands in for it if the product does not have it."""
    return precision if precision in product.peaks else WITHOUT.get(precision, precision)


def _value(reading: Reading | None) -> float | None:
    return None if reading is None else reading.value
