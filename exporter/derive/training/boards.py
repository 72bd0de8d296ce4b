"""The GPUs of this node that runs work on: peaks, clocks, activity, energy, over a while.

Counters are followed, so that a mean over a window is exact; of clocks only readings are known, and
each stands for its moment. A GPU that is split into instances has no peak here: which part of it a
run has is not known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

from exporter import catalogue as c
from exporter.derive.derivation import readings
from exporter.derive.serving.node import Meter
from exporter.reference.accelerators import Accelerators
from exporter.samples import Metric, View

Gpu = tuple[str, str]
"""Index and UUID."""

COUNTERS = (
    c.GPU_BUSY_SECONDS_TOTAL,
    c.GPU_DRAM_ACTIVE_SECONDS_TOTAL,
    c.GPU_ENERGY_JOULES_TOTAL,
    c.GPU_SM_ACTIVE_SECONDS_TOTAL,
    c.GPU_TENSOR_ACTIVE_SECONDS_TOTAL,
)

INPUTS: tuple[Metric, ...] = (
    c.GPU_INFO,
    c.GPU_CLOCK_HERTZ,
    c.GPU_MIG_MODE,
    c.GPU_PEAK_FLOPS,
    *COUNTERS,
)


class Activity(NamedTuple):
    """What the GPUs of a run did over a window, as means; `None` where it is not known of all.

    `busy` is the share of time in which kernels ran, `sms` that of SMs with work, `tensor` that of
    cycles in which the tensor cores worked, `clock` the SM clock over the one of the peak.
    """

    busy: float | None = None
    sms: float | None = None
    tensor: float | None = None
    dram: float | None = None
    clock: float | None = None
    watts: float | None = None


class Boards:
    """All GPUs of the node."""

    def __init__(self, products: Accelerators) -> None:
        self._products = products
        self._meters: dict[tuple[str, Gpu], Meter] = {}
        self._clocks: dict[Gpu, deque[tuple[float, float]]] = {}
        self._references: dict[Gpu, float | None] = {}
        self._peaks: dict[Gpu, dict[str, float]] = {}
        self._split: frozenset[Gpu] = frozenset()
        self._now = 0.0
        self._asked: dict[tuple[tuple[Gpu, ...], float], Activity] = {}
        self.all: tuple[Gpu, ...] = ()

    def observe(self, view: View, now: float) -> None:
        """Look at the board."""
        self._now = now
        self._asked = {}
        gpus: dict[Gpu, None] = {}
        at = [c.GPU_INFO.labels.index(label) for label in ("name", "pci_device_id")]
        for sample in view.samples(c.GPU_INFO):
            gpu = (sample.labels[0], sample.labels[1])
            gpus[gpu] = None
            if gpu not in self._references:
                match = self._products.resolve(*[sample.labels[i] for i in at])
                clock = None if match is None else match.accelerator.tensor_clock
                self._references[gpu] = clock
        self._peaks = {}
        for reading in readings(view, c.GPU_PEAK_FLOPS, now):
            gpu = (reading.labels[0], reading.labels[1])
            gpus[gpu] = None
            self._peaks.setdefault(gpu, {})[reading.labels[2]] = reading.value
        modes = readings(view, c.GPU_MIG_MODE, now)
        self._split = frozenset((r.labels[0], r.labels[1]) for r in modes if r.value)
        self.all = tuple(gpus)
        self._references = {gpu: self._references[gpu] for gpu in gpus if gpu in self._references}
        self._follow(view, now)

    def _follow(self, view: View, now: float) -> None:
        for metric in COUNTERS:
            for reading in readings(view, metric, now):
                key = metric.name, (reading.labels[0], reading.labels[1])
                meter = self._meters.get(key)
                if meter is None:
                    self._meters[key] = Meter(reading.taken, reading.value)
                else:
                    meter.add(reading.taken, reading.value)
        for reading in readings(view, c.GPU_CLOCK_HERTZ, now):
            gpu, uuid, domain = reading.labels
            if domain == "sm":
                ring = self._clocks.setdefault((gpu, uuid), deque(maxlen=720))
                if not ring or reading.taken > ring[-1][0]:
                    ring.append((reading.taken, reading.value))
        known = set(self.all)
        self._meters = {key: meter for key, meter in self._meters.items() if key[1] in known}
        self._clocks = {gpu: ring for gpu, ring in self._clocks.items() if gpu in known}

    def at(self, indices: Iterable[int]) -> tuple[Gpu, ...] | None:
        """Return the GPUs with these indices; None if one of them is not there."""
        wanted = {str(index) for index in indices}
        found = tuple(gpu for gpu in self.all if gpu[0] in wanted)
        return found if len(found) == len(wanted) else None

    def peaks(self, gpus: Iterable[Gpu]) -> list[dict[str, float]]:
        """Return the peaks of GPUs by precision; without any for one whose product is unknown."""
        return [{} if gpu in self._split else self._peaks.get(gpu, {}) for gpu in gpus]

    def activity(self, gpus: tuple[Gpu, ...], seconds: float) -> Activity:
        """Return what GPUs did in the last so many seconds."""
        found = self._asked.get((gpus, seconds))
        if found is None:
            found = self._asked[gpus, seconds] = self._activity(gpus, seconds)
        return found

    def _activity(self, gpus: Sequence[Gpu], seconds: float) -> Activity:
        return Activity(
            busy=self._mean(gpus, c.GPU_BUSY_SECONDS_TOTAL, seconds),
            sms=self._mean(gpus, c.GPU_SM_ACTIVE_SECONDS_TOTAL, seconds),
            tensor=self._mean(gpus, c.GPU_TENSOR_ACTIVE_SECONDS_TOTAL, seconds),
            dram=self._mean(gpus, c.GPU_DRAM_ACTIVE_SECONDS_TOTAL, seconds),
            clock=_mean([self._clock(gpu, seconds) for gpu in gpus]),
            watts=self._mean(gpus, c.GPU_ENERGY_JOULES_TOTAL, seconds),
        )

    def _mean(self, gpus: Sequence[Gpu], metric: Metric, seconds: float) -> float | None:
        meters = [self._meters.get((metric.name, gpu)) for gpu in gpus]
        return _mean([None if one is None else one.rate(self._now, seconds) for one in meters])

    def _clock(self, gpu: Gpu, seconds: float) -> float | None:
        reference = self._references.get(gpu)
        ring = self._clocks.get(gpu)
        if not reference or not ring:
            return None
        since = self._now - seconds
        recent = [value for _, value in takewhile(lambda one: one[0] >= since, reversed(ring))]
        return sum(recent) / len(recent) / reference if recent else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
