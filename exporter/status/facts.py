"""A view of the board by family: what the parts of the status document look things up in."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from exporter.samples import Batch, Metric, View


class Fact(NamedTuple):
    """One finite number of a family, with its labels by name."""

    labels: dict[str, str]
    value: float


class Facts:
    """The fresh, finite numbers of a view. Histograms are left to whoever scrapes them."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._found: dict[Metric, tuple[Fact, ...]] = {}
        # Where a family is: a page asks for some hundred families of some dozen sources.
        self._places: dict[Metric, list[tuple[Batch, tuple[int, ...]]]] = {}
        for source in view.sources:
            for metric, places in source.batch.shape.families.items():
                self._places.setdefault(metric, []).append((source.batch, places))

    def all(self, metric: Metric, **where: str) -> list[Fact]:
        """Return the series of a family that have these labels, in the order of the page."""
        found = self._found.get(metric)
        if found is None:
            found = self._found[metric] = tuple(self._look(metric))
        wanted = where.items()
        return [fact for fact in found if wanted <= fact.labels.items()] if where else list(found)

    def one(self, metric: Metric, **where: str) -> float | None:
        """Return the value of the first series that has these labels."""
        return next((fact.value for fact in self.all(metric, **where)), None)

    def by(self, metric: Metric, label: str, **where: str) -> dict[str, float]:
        """Return the values by one label; of several with the same one the first."""
        values: dict[str, float] = {}
        for labels, value in self.all(metric, **where):
            values.setdefault(labels[label], value)
        return values

    def _look(self, metric: Metric) -> Iterator[Fact]:
        names = metric.labels
        for batch, places in self._places.get(metric, ()):
            labels, values = batch.shape.labels, batch.values
            for at in places:
                value = values[at]
                if isinstance(value, int | float) and math.isfinite(value):
                    yield Fact(dict(zip(names, labels[at], strict=True)), value)
