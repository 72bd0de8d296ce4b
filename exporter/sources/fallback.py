"""A source that fills the gaps of a better one, where two can read the same thing.

NVML and DCGM know the same GPUs. What the preferred source has given once for a GPU is left to it
for good: a counter that went back and forth between two readers would jump.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from exporter.clock import Clock
from exporter.samples import EMPTY_SHAPE, Item, Metric, Releasable, Sample, Source, View

_SETTLED = 3
"""Reads after which the preferred source has shown what it has: windows need two."""


class Fallback:
    """`source` without what the source named `better` gives. `view` is the board at a moment."""

    def __init__(
        self, source: Source, better: str, view: Callable[[float], View], clock: Clock
    ) -> None:
        self.name = source.name
        self.group = source.group
        self._source = source
        self._better = better
        self._view = view
        self._clock = clock
        self._shape = EMPTY_SHAPE
        self._given: set[tuple[Metric, tuple[str, ...]]] = set()

    def read(self) -> Iterator[Item]:
        """Read the source; nothing of it is told before the better one has settled."""
        items = self._source.read()
        settled = self._look()
        for item in items:
            if not isinstance(item, Sample) or (settled and self._is_gap(item)):
                yield item

    def _is_gap(self, sample: Sample) -> bool:
        return _key(sample.metric, sample.labels) not in self._given

    def close(self) -> None:
        """Close the source."""
        self._source.close()

    def release(self, seconds: float) -> bool:
        """Let the source go of its driver, if it has one."""
        source = self._source
        return source.release(seconds) if isinstance(source, Releasable) else True

    def _look(self) -> bool:
        """Note what the better source gives now; tell whether it has had time to show it."""
        now = self._clock.monotonic()
        seen = next((s for s in self._view(now).sources if s.name == self._better), None)
        if seen is None:
            return True
        if seen.batch.shape is not self._shape:
            self._shape = seen.batch.shape
            self._given |= set(map(_key, self._shape.metrics, self._shape.labels))
        return seen.health.attempts > _SETTLED


def _key(metric: Metric, labels: tuple[str, ...]) -> tuple[Metric, tuple[str, ...]]:
    """Return what tells a series of a GPU apart: its UUID does, its index may differ."""
    return metric, labels[1:] if metric.labels[:2] == ("gpu", "uuid") else labels
