"""Counters that we make ourselves, because the driver only tells of the moment.

They outlive the process that counts: what `export` returns is handed to the next one, so that a
crash of the driver does not set them back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from exporter.samples import Metric, Sample

Key = tuple[str, tuple[str, ...]]


class Totals:
    """Sums by family and labels, but for the GPU's index: that may become another one's.

    Each sum is added to by one job.
    """

    def __init__(self) -> None:
        self._sums: dict[Key, float] = {}
        self.marks: dict[str, int] = {}
        """The date of the driver's newest sample that has been counted, by the GPU's UUID."""

    def add(self, metric: Metric, labels: tuple[str, ...], amount: float) -> float:
        """Add to a sum and return it; the first time it starts at zero."""
        key = (metric.name, labels[1:])
        total = self._sums[key] = self._sums.get(key, 0.0) + amount
        return total

    def sample(self, metric: Metric, labels: tuple[str, ...]) -> Iterator[Sample]:
        """Yield the sum, if there is one."""
        total = self._sums.get((metric.name, labels[1:]))
        if total is not None:
            yield Sample(metric, labels, total)

    def export(self) -> list[list[object]]:
        """Return everything as JSON can hold it."""
        return [[name, list(labels), total] for (name, labels), total in tuple(self._sums.items())]

    def load(self, exported: object, families: Mapping[str, Metric]) -> None:
        """Take over what another process exported; what makes no sense is left out."""
        for row in exported if isinstance(exported, list) else ():
            match row:
                case [str(name), [*labels], float(total)] if (
                    name in families
                    and total >= 0
                    and all(isinstance(label, str) for label in labels)
                ):
                    self._sums[name, tuple(labels)] = total
