"""Percentiles and shares of a window, with bounds that hold whatever the observations were.

Buckets tell between which bounds an observation lies; nothing tells where. A percentile by
interpolation alone is a guess that can be a hundred times too high (vllm#48175: all waits in the
first bucket of 300 ms) and never exceeds the last bound (vllm#15167). Here each value comes with an
interval that contains the true one, from the buckets and the sum of the observations together.

What is assumed: observations are not negative, and the buckets and the sum speak of the same
observations. Increases that have a `flaw` keep neither promise; `book` leaves them out.

The bounds, for a window of n observations with sum S. Let bucket i hold n_i of them in (l_i, u_i];
L, the sum of l_i n_i, and U, the sum of u_i n_i, are the least and the greatest sum that these
buckets allow. Take the observation x at rank r, in bucket b = (l, u]:

- k observations of b have rank r or more. None of them is below x, all others are at least at their
  lower bounds: L + k (x - l) <= S, so x <= l + (S - L) / k.
- m observations of b have rank r or less. None of them is above x, all others are at most at their
  upper bounds: U - m (u - x) >= S, so x >= u - (U - S) / m.

Nothing sharper can be said. Put the k observations at that x and all others at their lower bounds:
the sum is S, so this case is one of those that look the same from outside. Where the bucket's own
bound u is reached first, the case exists too, since U >= S leaves room for the rest. The same,
upside down, for the lower bound. With observations beyond the last bound U is infinite and only the
first inequality is left; it makes the interval finite there too.

The same two inequalities, read for a fixed x = T, say how many observations of the bucket that
holds T can be above it (each takes more than T - l of S - L), and how many can be within it (each
takes at least u - T of U - S).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from operator import mul
from typing import Literal, NamedTuple

from exporter.derive.serving.increase import Increase

TOLERANCE = 1e-6
"""By how much of itself a sum may be off: it is the difference of two counters that were rounded.
Intervals are that much wider, and a sum that contradicts the buckets by no more is believed."""

SAME_BOUND = 1e-9
"""Bounds that differ by less than this share of themselves are one: `le` carries float noise."""

_ROUNDING = 1e-14  # Of our own sum over a few dozen buckets, which may be far above the observed.
_ENOUGH = 1 - 1e-9  # 10 * (1 - 0.9) is a little less than 1.
_EXACT = 1 - 2.0**-50  # q * n of a q like 0.9 can lie two roundings above the whole number meant.


class Estimate(NamedTuple):
    """A percentile in seconds.

    The true value lies in [`lower`, `upper`]; `upper` is infinite only where observations beyond
    the last bound come without a usable sum. `point` is what `histogram_quantile` of Prometheus
    says, moved into the interval; None beyond the last bound, where nothing can be interpolated.
    """

    point: float | None
    lower: float
    upper: float


class Share(NamedTuple):
    """How many of `n` events were within a threshold.

    At least `lower`, at most `upper`; `point` is in between, by interpolation. `aligned`: the
    threshold is a bucket's bound, so all three are one.
    """

    lower: float
    point: float
    upper: float
    aligned: bool
    n: float


class _Evidence(NamedTuple):
    """What an increase says before a question is asked; infinite where it says nothing.

    `upto` counts the observations up to each bound and beyond all; `spare` is S - L and `lack` is
    U - S of the module's docstring, each as large as rounding may have hidden.
    """

    upto: list[float]
    spare: float
    lack: float


def estimate(increase: Increase, q: float) -> Estimate | None:
    """Return the q-quantile of an increase: the observation at rank ceil(q n), the smallest first.

    None with fewer than 1 / (1 - q) observations, where it would be the largest one. A sum that the
    buckets contradict is left out of account. For several quantiles `estimates` is cheaper.
    """
    return _estimate(increase, _weigh(increase), q)


def estimates(increase: Increase, qs: Iterable[float]) -> list[Estimate | None]:
    """Return `estimate` for each of several quantiles."""
    evidence = _weigh(increase)
    return [_estimate(increase, evidence, q) for q in qs]


def rank(n: float, q: float) -> int:
    """Return which of n observations, counted from 1 at the smallest, is their q-quantile.

    The nearest-rank definition: the smallest value that a share q of the observations is within.
    """
    return max(1, math.ceil(q * n * _EXACT))


def within(increase: Increase, threshold: float) -> Share:
    """Return how many observations are not above a threshold in seconds.

    Beyond the last bound there is nothing to interpolate with: `point` is what is certain.
    """
    bounds, counts = increase.bounds, increase.counts
    upto = list(accumulate(counts))
    n = upto[-1]
    if (at := _position(bounds, threshold)) is not None:
        return Share(upto[at], upto[at], upto[at], aligned=True, n=n)
    if threshold < 0 or threshold == math.inf:
        known = n if threshold > 0 else 0.0
        return Share(known, known, known, aligned=False, n=n)
    b = bisect_left(bounds, threshold)
    low, before = (bounds[b - 1], upto[b - 1]) if b else (0.0, 0.0)
    held = counts[b]
    evidence = _weigh(increase)
    above = _most(held, evidence.spare, threshold - low)
    certain = before + held - above
    if b == len(bounds):
        excluded = held > 0 and _exceeds(increase, threshold)
        return Share(certain, certain, n - excluded, aligned=False, n=n)
    high = bounds[b]
    possible = before + _most(held, evidence.lack, high - threshold)
    point = before + held * (threshold - low) / (high - low)
    return Share(certain, min(max(point, certain), possible), possible, aligned=False, n=n)


def merge(increases: Iterable[Increase]) -> Increase | None:
    """Return the observations of several increases as one; None of none.

    Where the bounds differ only those that all have are kept; there may be none.
    """
    found = list(increases)
    if not found:
        return None
    bounds = found[0].bounds
    if any(one.bounds != bounds for one in found):
        bounds = tuple(
            bound
            for bound in bounds
            if all(_position(one.bounds, bound) is not None for one in found)
        )
        found = [_coarsened(one, bounds) for one in found]
    counts = tuple(map(sum, zip(*(one.counts for one in found), strict=True)))
    total = sum(one.total for one in found)
    return Increase(bounds, counts, total, sum(one.slack for one in found))


def flaw(
    bounds: Sequence[float], increments: Sequence[float], total: float, slack: float = 0.0
) -> Literal["buckets", "sum"] | None:
    """Return what is wrong with what a histogram gained, None if nothing.

    "buckets": a bucket lost observations, or has no number. "sum": the buckets do not allow this
    sum, or it is no number; the buckets may then still be used. Arguments as of `Increase`.
    """
    increase = Increase(tuple(bounds), tuple(increments), total, slack)
    if len(increments) != len(bounds) + 1 or not math.isfinite(increase.n) or min(increments) < 0:
        return "buckets"
    return "sum" if _weigh(increase).spare == math.inf else None


def _estimate(increase: Increase, evidence: _Evidence, q: float) -> Estimate | None:
    upto, spare, lack = evidence
    n = upto[-1]
    if n * (1 - q) < _ENOUGH:
        return None
    r = rank(n, q)
    bounds = increase.bounds
    b = bisect_left(upto, r)
    low, before = (bounds[b - 1], upto[b - 1]) if b else (0.0, 0.0)
    upper = low + spare / (upto[b] - r + 1)
    if b == len(bounds):  # Rank n, of which more could be said here, is never asked for.
        return Estimate(None, low, upper)
    high = bounds[b]
    lower, upper = max(low, high - lack / (r - before)), min(high, upper)
    point = low + (high - low) * (q * n - before) / (upto[b] - before)
    return Estimate(min(max(point, lower), upper), lower, upper)


def _weigh(increase: Increase) -> _Evidence:
    bounds, counts, total, slack = increase
    least = sum(map(mul, bounds, counts[1:]))
    greatest = math.inf if counts[-1] else sum(map(mul, bounds, counts))
    doubt = TOLERANCE * abs(total) + slack
    spare = total - least + doubt
    lack = greatest - total + doubt + _ROUNDING * greatest
    if not (0 <= spare < math.inf and lack >= 0):
        spare = lack = math.inf
    return _Evidence(list(accumulate(counts)), spare, lack)


def _most(held: float, available: float, each: float) -> float:
    """Return how many of `held` observations can take `each` out of `available`."""
    return held if available >= held * each else math.floor(available / each)


def _exceeds(increase: Increase, threshold: float) -> bool:
    """Whether the sum needs an observation above a threshold that is above all bounds."""
    bounds, counts, total, slack = increase
    greatest: float = sum(map(mul, bounds, counts)) + counts[-1] * threshold
    return total - TOLERANCE * abs(total) - slack > greatest


def _position(bounds: Sequence[float], bound: float) -> int | None:
    """Return where in `bounds` one is, float noise aside."""
    b = bisect_left(bounds, bound)
    for at in (b, b - 1):
        if 0 <= at < len(bounds) and math.isclose(bounds[at], bound, rel_tol=SAME_BOUND):
            return at
    return None


def _coarsened(increase: Increase, bounds: tuple[float, ...]) -> Increase:
    """Return an increase with some of its bounds."""
    upto = list(accumulate(increase.counts))
    kept = [at for bound in bounds if (at := _position(increase.bounds, bound)) is not None]
    marks = (0.0, *(upto[at] for at in kept), upto[-1])
    counts = tuple(after - before for before, after in pairwise(marks))
    return Increase(bounds, counts, increase.total, increase.slack)
