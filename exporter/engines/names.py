"""Finds an engine's names, which carry a prefix and perhaps a suffix, on one page."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from exporter.engines.engine import Engine, Weight
from exporter.engines.page import ShapeLike, only_declared

Labels = tuple[tuple[str, str], ...]


class Names:
    """The names of one page, as one engine spells them."""

    def __init__(self, engine: Engine, shape: ShapeLike) -> None:
        self.index = shape.index
        self._shape = shape
        self._labels = [dict(series.labels) for series in shape.series]
        self._bare = engine.bare
        self._copies = engine.copy_labels
        self._by_key: dict[str, dict[Labels, int]] = {}
        self._by_rank: dict[str, dict[Labels, dict[float, int]]] = {}
        # One prefix for all: a page that passes on the same family under two must not be mixed.
        self._prefix = next(
            (
                p
                for p in engine.prefixes
                if any(n.startswith(p) for n in (*self.index, *shape.types))
            ),
            engine.prefixes[0],
        )

    def spellings(self, name: str) -> tuple[str, str]:
        """Return what a name may be on the page: with its prefix, with and without `_total`."""
        full = name if name in self._bare else self._prefix + name
        bare = full.removesuffix("_total")
        return (full, bare if bare != full else f"{full}_total")

    def find(self, name: str, kind: str = "") -> str | None:
        """Return the name as the page spells it; for a histogram the family's."""
        tail = "_bucket" if kind == "histogram" else ""
        return next((s for s in self.spellings(name) if s + tail in self.index), None)

    def knows(self, name: str) -> bool:
        """Tell whether there is any sample of this name, as a scalar or as a histogram."""
        return self.find(name) is not None or self.find(name, "histogram") is not None

    def declares(self, name: str) -> bool:
        """Tell whether the page declares the family without having a series of it yet."""
        return any(only_declared(self._shape, s) for s in self.spellings(name))

    def labels(self, position: int) -> Mapping[str, str]:
        """Return the labels of a series."""
        return self._labels[position]

    @property
    def all_labels(self) -> Sequence[Mapping[str, str]]:
        """The labels of all series, in the order of the values."""
        return self._labels

    def without_copies(self, positions: Sequence[int]) -> list[int]:
        """Return one of several series that differ in a label of copies only: the lowest rank's."""
        if not self._copies:
            return list(positions)
        lowest: dict[Labels, tuple[tuple[tuple[int, str], ...], int]] = {}
        for position in positions:
            labels = dict(self.labels(position))
            rank = tuple(_in_order(labels.pop(label, "")) for label in self._copies)
            one = rank, position
            lowest[key_of(labels)] = min(lowest.get(key_of(labels), one), one)
        return [position for _, position in lowest.values()]

    def by_rank(self, positions: Iterable[int]) -> dict[Labels, dict[float, int]]:
        """Return bucket positions by bound, for each set of labels other than `le`."""
        ranks: dict[Labels, dict[float, int]] = {}
        for position in positions:
            labels = dict(self.labels(position))
            bound = bound_of(labels.pop("le", ""))
            if bound is not None:
                ranks.setdefault(key_of(labels), {})[bound] = position
        return ranks

    def at(self, sample: str, key: Labels) -> int | None:
        """Return the position of the series with exactly these labels."""
        if sample not in self._by_key:
            positions = self.index.get(sample, ())
            self._by_key[sample] = {key_of(self.labels(p)): p for p in positions}
        return self._by_key[sample].get(key)

    def bucket(self, family: str, key: Labels, le: float) -> int | None:
        """Return the position of a histogram's bucket, the histogram having these labels."""
        if family not in self._by_rank:
            self._by_rank[family] = self.by_rank(self.index[f"{family}_bucket"])
        buckets = self._by_rank[family].get(key, {})
        bound = near(le, sorted(buckets))
        return None if bound is None else buckets[bound]

    def weights(
        self, weight: Weight | None, positions: Sequence[int]
    ) -> tuple[tuple[float, ...] | None, tuple[int, ...]]:
        """Return one weight for each position and where it stands; nothing if one is unknown."""
        name = self.find(weight.name) if weight is not None else None
        if weight is None or name is None:
            return None, ()
        known: dict[str, tuple[float, int]] = {}
        for place in self.index[name]:
            labels = self.labels(place)
            number = positive(labels.get(weight.label, ""))
            if number is not None:
                known[labels.get(weight.by, "")] = number, place
        found = [known.get(self.labels(p).get(weight.by, "")) for p in positions]
        weights = [one for one in found if one is not None]
        if len(weights) < len(found):
            return None, ()
        return tuple(number for number, _ in weights), tuple(place for _, place in weights)


def key_of(labels: Mapping[str, str]) -> Labels:
    """Return what is the same for the same labels, in whatever order they stand."""
    return tuple(sorted(labels.items()))


def bound_of(text: str) -> float | None:
    """Return a bound, written `1`, `1.0`, `1e+00` or `+Inf`; nothing if it is no number."""
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def positive(text: str) -> float | None:
    """Return a number that stands in a label and counts something; nothing for other text."""
    number = bound_of(text)
    return number if number is not None and 0 < number < math.inf else None


def near(bound: float, ascending: Sequence[float]) -> float | None:
    """Return the one of `ascending` that is this bound but for the noise of its making.

    TGI and SGLang make bounds by multiplying, and print 0.00015000000000000001.
    """
    at = bisect_left(ascending, bound)
    for one in ascending[max(at - 1, 0) : at + 1]:
        if one == bound or math.isclose(one, bound, rel_tol=1e-9):
            return one
    return None


def _in_order(rank: str) -> tuple[int, str]:
    """Return what sorts rank 2 before rank 10."""
    return (int(rank), rank) if rank.isdecimal() else (-1, rank)
