"""Makes the functions that read a number or a histogram from the values of a page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import add, itemgetter

from exporter.engines.engine import Origin, Zeros
from exporter.engines.names import Labels, Names, near
from exporter.samples import Histogram, Value

Read = Callable[[Sequence[float]], Value | None]
Number = Callable[[Sequence[float]], float | None]

_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Rank:
    """One histogram of the page: positions of its buckets by bound, of sum, count and zeros."""

    buckets: Mapping[float, int]
    sum: int
    count: int | None
    zeros: int | None

    @property
    def positions(self) -> Iterator[int]:
        """All positions that are read."""
        yield from self.buckets.values()
        yield from (p for p in (self.sum, self.count, self.zeros) if p is not None)


def rank_of(
    names: Names, family: str, key: Labels, buckets: Mapping[float, int], zeros: Zeros | None
) -> Rank | None:
    """Return a histogram of the page, or nothing if it is not complete."""
    total = names.at(f"{family}_sum", key)
    if math.inf not in buckets or total is None:
        return None
    below = None
    if zeros is not None:
        other = names.find(zeros.name, "histogram")
        below = names.bucket(other, key, zeros.le) if other is not None else None
        if below is None:
            return None
    return Rank(buckets, total, names.at(f"{family}_count", key), below)


def scalar(
    origin: Origin, positions: Sequence[int], weights: tuple[float, ...] | None, *, counter: bool
) -> Number:
    """Return a function from a page's values to one number, or to nothing if it is unknown."""
    to_unit, first, single = _scaling(origin.scale), positions[0], len(positions) == 1
    combine = _mean(weights) if origin.combine == "mean" else _COMBINE[origin.combine]
    zero_is_off = origin.zero_is_off

    def read(values: Sequence[float]) -> float | None:
        parts = [values[first]] if single else [values[position] for position in positions]
        for part in parts:
            if not part >= 0:
                # NaN, or a gauge below zero: "not measured".
                if counter and part < 0:
                    raise ValueError("a counter is negative")
                return None
        value = to_unit(parts[0] if single else combine(parts))
        if zero_is_off and value == 0:
            return None
        if not counter:
            return value
        # int() refuses infinity, as it should.
        whole = int(value)
        return whole if whole == value else value

    return read


def calculated(
    read: Number, *, over: Number | None, times: Number | None, less: Number | None
) -> Number:
    """Return `(read - less) * times / over`; nothing if a part is unknown or divides by zero.

    What is taken away may be newer than what it is taken from: a difference is not below zero.
    """

    def number(values: Sequence[float]) -> float | None:
        value = read(values)
        minus = less(values) if less is not None else 0.0
        factor = times(values) if times is not None else 1.0
        divisor = over(values) if over is not None else 1.0
        if value is None or minus is None or factor is None or not divisor:
            return None
        return max(value - minus, 0.0) * factor / divisor

    return number


def share(read: Read) -> Read:
    """Return what reads a share, 0 to 1, and raises `ValueError` for more: that is percent.

    A little more than 1 is the rounding of a sum.
    """

    def number(values: Sequence[float]) -> Value | None:
        value = read(values)
        if not isinstance(value, int | float) or value <= 1:
            return value
        if value > 1 + _ROUNDING:
            raise ValueError("a share is above 1")
        return 1.0

    return number


def _scaling(scale: float) -> Callable[[float], float]:
    """Return what puts a number into our unit. 300 / 1000 is 0.3, 300 * 0.001 is not quite."""
    if scale == 1.0:
        return float
    divisor = round(1 / scale)
    if divisor and 1 / divisor == scale:
        return lambda number: number / divisor
    return lambda number: number * scale


Combination = Callable[[list[float]], float]
_COMBINE: Mapping[str, Combination] = {"sum": math.fsum, "max": max}


def _mean(weights: tuple[float, ...] | None) -> Combination:
    """Return a mean, weighted if the weights are known."""

    def weighted(parts: list[float]) -> float:
        shares = weights if weights is not None else (1.0,) * len(parts)
        products = [part * share for part, share in zip(parts, shares, strict=True)]
        return math.fsum(products) / math.fsum(shares)

    return weighted


def histogram(ranks: Sequence[Rank], scale: float) -> Read:
    """Return a function from a page's values to a histogram, all ranks added up."""
    order, pickers = _common(ranks)
    to_unit = _scaling(scale)
    bounds = tuple(map(to_unit, order[:-1]))

    def read(values: Sequence[float]) -> Histogram | None:
        counts: tuple[float, ...] = ()
        total = 0.0
        for pick, where, count, zeros in pickers:
            floats = pick(values)
            # Ints are cheaper to write and exact; int() refuses NaN and infinity.
            part: tuple[float, ...] = tuple(map(int, floats))
            if part != floats:
                part = floats
            if count is not None and values[count] != part[-1]:
                raise ValueError("the buckets and the count disagree")
            if zeros is not None and (less := int(values[zeros])):
                part = tuple([n - less for n in part])
                if part[0] < 0:
                    raise ValueError("more zeros than the first bucket holds")
            counts = tuple(map(add, counts, part)) if counts else part
            total += values[where]
        if math.isnan(total) or (total == 0 and counts[-1] > 0):
            return None
        return Histogram(bounds, counts, to_unit(total))

    return read


_Picker = Callable[[Sequence[float]], tuple[float, ...]]


def _common(
    ranks: Sequence[Rank],
) -> tuple[list[float], list[tuple[_Picker, int, int | None, int | None]]]:
    """Return the bounds that all ranks have, and for each rank what picks its counts there."""
    ascending = [sorted(rank.buckets) for rank in ranks]
    order = [b for b in ascending[0] if all(near(b, other) is not None for other in ascending)]
    pickers = []
    for rank, bounds in zip(ranks, ascending, strict=True):
        found = [near(bound, bounds) for bound in order]
        positions = [rank.buckets[bound] for bound in found if bound is not None]
        pickers.append((_picker(positions), rank.sum, rank.count, rank.zeros))
    return order, pickers


def _picker(positions: Sequence[int]) -> _Picker:
    if len(positions) > 1:
        return itemgetter(*positions)
    (only,) = positions
    return lambda values: (values[only],)
