"""GPM: what the hardware's performance counters say, without privilege, on Hopper and newer.

Two samples make a window, and the driver averages over it; so a missed read makes a longer window
and loses nothing. Each ratio is integrated over its window: the counters are exact however the
reads are spaced. All calls come from one job, for all GPUs: calling for several at once has
crashed drivers (gpud, `gpm.go`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from exporter.clock import Clock
from exporter.nvml import readings as r
from exporter.nvml.device import converted
from exporter.nvml.driver import UNSUPPORTED, Driver, Handle, NvmlError
from exporter.nvml.totals import Totals
from exporter.samples import Metric, Sample

SHORTEST, LONGEST = 0.5, 600.0
"""Seconds. In less the counters say little; after more the window is begun anew, unseen."""


@dataclass(frozen=True, slots=True)
class Target:
    """What to measure: a GPU, or an instance of it.

    `key` tells targets apart and must change when an instance's number is given to another one;
    `labels` begin its series; `counted` are families of bytes that need no integral from here.
    """

    key: Hashable
    handle: Handle
    labels: tuple[str, ...]
    instance: int | None = None
    counted: frozenset[Metric] = frozenset()


class Gpm:
    """The windows of all targets."""

    def __init__(self, driver: Driver, totals: Totals, clock: Clock, *, detail: bool) -> None:
        self._driver = driver
        self._totals = totals
        self._clock = clock
        self._metrics = (*r.GPM, *(r.GPM_DETAILS if detail else ()))
        self._windows: dict[Hashable, _Window] = {}

    def read(self, target: Target) -> list[Sample]:
        """Return the averages since the last read of this target, and the integrals.

        The first read only begins a window. Raises `NvmlError`.
        """
        window = self._windows.get(target.key)
        if window is None:
            window = self._windows[target.key] = _Window(self._wanted(target))
        if window.refused:
            return []
        now = self._clock.monotonic()
        if window.earlier is not None and now - window.taken < SHORTEST:
            return window.samples
        try:
            later = window.spare or self._driver.gpm_sample()
            window.spare = later
            self._driver.gpm_take(target.handle, later, target.instance)
            now = self._clock.monotonic()
            earlier, seconds = window.earlier, now - window.taken
            window.samples = []
            if earlier is not None and seconds <= LONGEST and window.wanted:
                answers = self._driver.gpm_metrics(earlier, later, list(window.wanted))
                window.samples = list(self._samples(window, answers, seconds))
        except NvmlError as error:
            # What was measured until now belongs to no window any more.
            self._free(window)
            window.refused = error.code in UNSUPPORTED
            raise
        window.earlier, window.spare, window.taken = later, earlier, now
        return window.samples

    def _wanted(self, target: Target) -> dict[int, _Use]:
        labels = target.labels
        if target.instance is not None:
            return {
                m.number: _Use(m.unit, m.mig, labels, m.mig_total) for m in self._metrics if m.mig
            }
        wanted = {
            m.number: _Use(m.unit, m.metric, labels + m.labels, m.total) for m in self._metrics
        }
        for number, metric in r.GPM_BYTES:
            if metric not in target.counted:
                wanted[number] = _Use(r.GPM_MEBIBYTES_PER_SECOND, None, labels, metric)
        return wanted

    def _samples(self, window: _Window, answers: Any, seconds: float) -> Iterator[Sample]:
        for (number, use), (code, raw) in zip(tuple(window.wanted.items()), answers, strict=True):
            if code in UNSUPPORTED:
                del window.wanted[number]
                continue
            value = None if code else converted(raw, use.unit)
            if value is None:
                continue
            if use.metric is not None:
                yield Sample(use.metric, use.labels, value)
            if use.total is not None:
                total = self._totals.add(use.total, use.labels, value * seconds)
                yield Sample(use.total, use.labels, total)

    def forget(self, keep: Mapping[Hashable, Any] | frozenset[Hashable]) -> None:
        """Free the windows of all targets but those in `keep`."""
        for key in self._windows.keys() - set(keep):
            self._free(self._windows.pop(key))

    def _free(self, window: _Window) -> None:
        for sample in (window.earlier, window.spare):
            if sample is not None:
                # A library that is over has nothing left that could be given back.
                with suppress(NvmlError):
                    self._driver.gpm_free(sample)
        window.earlier = window.spare = None
        window.samples = []


@dataclass(frozen=True, slots=True)
class _Use:
    """What becomes of a metric: a family for the ratio, one for its integral."""

    unit: r.Unit
    metric: Metric | None
    labels: tuple[str, ...]
    total: Metric | None


class _Window:
    """Two samples of one target, and what the last window said."""

    def __init__(self, wanted: dict[int, _Use]) -> None:
        self.wanted = wanted
        self.earlier: Any = None
        self.spare: Any = None
        self.taken = 0.0
        self.samples: list[Sample] = []
        self.refused = False
