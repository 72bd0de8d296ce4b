"""Percentiles and shares of a window: recorded pages, tightness, and requests that are known."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, pairwise, product
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporter.derive.serving import quantiles
from exporter.derive.serving.increase import Increase, rounding
from exporter.derive.serving.quantiles import (
    Estimate,
    Share,
    estimate,
    estimates,
    flaw,
    merge,
    rank,
    within,
)
from exporter.formats.exposition import Reader
from tests.derive.synthetic import (
    DISTRIBUTIONS,
    LAYOUTS,
    QUANTILES,
    REQUESTS,
    interpolated,
    quantile,
    seen,
    windows,
)

PAGES = Path(__file__).parent.parent / "data" / "engines"
CPU = "vllm-0.32.0-cpu.prom"
DP2 = "vllm-0.32.0-cpu-dp2.prom"
TTFT = "vllm:time_to_first_token_seconds"
ITL = "vllm:inter_token_latency_seconds"
QUEUE = "vllm:request_queue_time_seconds"
PREFILL = "vllm:request_prefill_time_seconds"


def recorded(page: str, family: str) -> Increase:
    """Return a histogram of a recorded page, summed over engines, as if gained from nothing."""
    read = Reader().read((PAGES / page).read_bytes())
    at = read.shape.index
    upto: dict[float, float] = {}
    for place in at[f"{family}_bucket"]:
        bound = float(dict(read.shape.series[place].labels)["le"])
        upto[bound] = upto.get(bound, 0.0) + read.values[place]
    bounds = sorted(upto)
    marks = (0.0, *(upto[bound] for bound in bounds))
    counts = tuple(after - before for before, after in pairwise(marks))
    total = sum(read.values[place] for place in at[f"{family}_sum"])
    return Increase(tuple(bounds[:-1]), counts, total)


def observed(bounds: Sequence[float], values: Sequence[float]) -> Increase:
    """Return what a histogram with these bounds gains from these observations."""
    upto = [sum(value <= bound for value in values) for bound in bounds]
    marks = (0, *upto, len(values))
    counts = tuple(float(after - before) for before, after in pairwise(marks))
    return Increase(tuple(bounds), counts, sum(values))


def estimated(increase: Increase, q: float) -> Estimate:
    found = estimate(increase, q)
    assert found is not None
    return found


# ---------------------------------------------------------------- recorded pages


class Known(NamedTuple):
    """What was worked out by hand from a recorded page."""

    page: str
    family: str
    q: float
    n: float
    plain: float
    expected: Estimate


@pytest.mark.parametrize(
    "known",
    [
        Known(DP2, QUEUE, 0.99, 109, 0.297, Estimate(0.0036, 0.0, 0.0036)),
        Known(DP2, PREFILL, 0.5, 109, 0.150, Estimate(0.0745, 0.0, 0.0745)),
        Known(DP2, TTFT, 0.99, 109, 0.217, Estimate(0.217, 0.1, 0.25)),
        Known(CPU, TTFT, 0.95, 225, 12.97, Estimate(12.97, 10.0, 18.2)),
        Known(CPU, ITL, 0.99, 14714, 0.411, Estimate(0.411, 0.4, 0.5)),
    ],
)
def test_recorded_pages_give_what_was_worked_out_by_hand(known: Known) -> None:
    """The sum moves the 297 ms of a queue that nobody waited in to at most 3.6 ms."""
    increase = recorded(known.page, known.family)
    assert increase.n == known.n
    assert interpolated(increase, known.q) == pytest.approx(known.plain, rel=0.005)
    assert estimated(increase, known.q) == pytest.approx(known.expected, rel=0.01)


def test_a_threshold_between_two_bounds_is_answered_with_two_counts() -> None:
    """200 ms to the first token: between 31 and 126 of 225."""
    found = within(recorded(CPU, TTFT), 0.2)
    assert (found.lower, found.upper, found.n, found.aligned) == (31, 126, 225, False)
    assert found.point == pytest.approx(31 + 95 * (0.2 - 0.1) / 0.15)


def test_a_threshold_on_a_bound_is_answered_exactly() -> None:
    """250 ms to the first token: 126 of 225."""
    found = within(recorded(CPU, TTFT), 0.25)
    assert found == Share(126, 126, 126, aligned=True, n=225)


def test_no_recorded_histogram_has_a_flaw() -> None:
    """Every latency of the two recorded runs passes the check that the book makes."""
    for page in (CPU, DP2):
        for family in (TTFT, ITL, QUEUE, PREFILL):
            increase = recorded(page, family)
            assert flaw(increase.bounds, increase.counts, increase.total) is None


# ---------------------------------------------------------------- hand-made


@pytest.mark.parametrize(
    ("n", "q", "first"),
    [
        (20, 0.95, 19), (100, 0.99, 99), (10, 0.9, 9), (2, 0.5, 1), (3, 0.5, 2), (1000, 0.999, 999),
        (100, 0.07, 7), (100, 0.55, 55),  # In floats these two products are above the whole number.
    ],
)  # fmt: skip
def test_the_rank_is_the_smallest_that_holds_the_share(n: int, q: float, first: int) -> None:
    assert rank(n, q) == first


@given(st.integers(1, 10**9), st.integers(1, 999))
def test_the_rank_is_not_moved_by_rounding(n: int, mille: int) -> None:
    """Every q with three digits gives the rank of exact arithmetic."""
    assert rank(n, mille / 1000) == -(-n * mille // 1000)


@pytest.mark.parametrize(("q", "least"), [(0.5, 2), (0.9, 10), (0.95, 20), (0.99, 100)])
def test_too_few_observations_have_no_percentile(q: float, least: int) -> None:
    """A percentile needs 1 / (1 - q) observations, and no more."""
    bounds = (0.1, 1.0)
    assert estimate(Increase(bounds, (least - 1.0, 0.0, 0.0), 0.1), q) is None
    assert estimate(Increase(bounds, (float(least), 0.0, 0.0), 0.1), q) is not None


def test_nothing_has_no_percentile() -> None:
    nothing = Increase((0.1,), (0.0, 0.0), 0.0)
    assert estimates(nothing, QUANTILES) == [None] * len(QUANTILES)
    assert within(nothing, 0.05) == Share(0, 0, 0, aligned=False, n=0)


def test_beyond_the_last_bound_the_sum_is_the_limit() -> None:
    """Four of ten took longer than the last bound: no point, but a finite interval."""
    found = estimated(Increase((10.0,), (6.0, 4.0), 100.0), 0.9)
    assert found.point is None
    assert found.lower == 10.0
    # 60 s are left above the four lower bounds; two observations are at least at rank 9.
    assert found.upper == pytest.approx(10 + 60 / 2, rel=1e-5)


def test_only_one_bucket_still_has_an_interval() -> None:
    """A histogram without finite bounds: x <= S / k."""
    found = estimated(Increase((), (10.0,), 5.0), 0.9)
    assert found == (None, 0.0, pytest.approx(2.5, rel=1e-5))


@pytest.mark.parametrize("total", [math.nan, math.inf, -math.inf, -1.0, 1e9, 0.5])
def test_a_sum_that_cannot_be_leaves_the_buckets_alone(total: float) -> None:
    """Ten observations in (0.1, 0.2] cannot add up to that: the bucket is what is known."""
    increase = Increase((0.1, 0.2), (0.0, 10.0, 0.0), total)
    assert estimated(increase, 0.5) == Estimate(pytest.approx(0.15), 0.1, 0.2)
    assert within(increase, 0.15) == Share(0, pytest.approx(5), 10, aligned=False, n=10)
    assert flaw(increase.bounds, increase.counts, total) == "sum"


def test_beyond_the_last_bound_without_a_sum_there_is_no_upper_end() -> None:
    found = estimated(Increase((0.1,), (0.0, 10.0), math.nan), 0.5)
    assert found == Estimate(None, 0.1, math.inf)
    assert within(Increase((0.1,), (0.0, 10.0), math.nan), 1.0) == Share(0, 0, 10, False, 10)


def test_thresholds_beyond_the_last_bound() -> None:
    """Of four beyond 10 s with 60 s to share, at most three took more than 15 s more than that."""
    increase = Increase((10.0,), (6.0, 4.0), 100.0)
    assert within(increase, 30.0) == Share(7, 7, 10, aligned=False, n=10)
    assert within(increase, 71.0) == Share(10, 10, 10, aligned=False, n=10)
    assert within(increase, math.inf) == Share(10, 10, 10, aligned=False, n=10)
    unknown = Increase((10.0,), (6.0, 0.0), math.nan)
    assert within(unknown, math.inf) == Share(6, 6, 6, aligned=False, n=6)


def test_a_sum_that_needs_one_above_the_threshold() -> None:
    """Ten within 11 s would add up to 104 s at most; it was 300 s, so one was above."""
    assert within(Increase((10.0,), (6.0, 4.0), 300.0), 11.0).upper == 9


def test_a_sum_that_cannot_be_puts_nobody_above_the_threshold() -> None:
    """Nothing was beyond 0.1 s, whatever the sum says."""
    assert within(Increase((0.1,), (5.0, 0.0), 1e9), 1.0) == Share(5, 5, 5, aligned=False, n=5)


def test_negative_thresholds_hold_nothing() -> None:
    assert within(Increase((0.1,), (5.0, 0.0), 0.1), -1.0) == Share(0, 0, 0, aligned=False, n=5)


def test_a_threshold_of_zero() -> None:
    """SGLang's queue has a bound at 0: exact there; without it a sum says that not all are 0."""
    assert within(Increase((0.0, 1.0), (3.0, 2.0, 0.0), 0.1), 0.0) == Share(3, 3, 3, True, 5)
    assert within(Increase((1.0,), (5.0, 0.0), 0.1), 0.0) == Share(0, 0, 4, False, 5)


@pytest.mark.parametrize("noise", [1 - 5e-10, 1 - 1e-16, 1 + 2e-16, 1 + 5e-10])
def test_float_noise_in_a_bound_is_no_other_threshold(noise: float) -> None:
    increase = Increase((0.1, 0.2 * noise, 0.3), (1.0, 2.0, 3.0, 4.0), 5.0)
    assert within(increase, 0.2) == Share(3, 3, 3, aligned=True, n=10)


def test_a_threshold_that_differs_is_another() -> None:
    increase = Increase((0.1, 0.2, 0.3), (1.0, 2.0, 3.0, 0.0), 1.2)
    assert not within(increase, 0.2 * (1 + 1e-8)).aligned


# ---------------------------------------------------------------- nothing sharper can be said

SMALL = (2, 5, 6)
PATTERNS = [counts for counts in product(range(4), repeat=3) if 1 <= sum(counts) <= 4]


def arrangements(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all ways in which whole numbers can lie in these closed buckets, ascending."""
    ranges = [range(low, high + 1) for low, high in pairwise((0, *SMALL))]
    inside = (
        combinations_with_replacement(values, held)
        for values, held in zip(ranges, counts, strict=True)
    )
    for parts in product(*inside):
        yield tuple(sum(parts, ()))


@pytest.mark.parametrize("counts", PATTERNS)
def test_no_interval_is_wider_than_all_cases_together(
    counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all whole numbers with these counts and sum, the extremes at each rank are our bounds.

    Our bounds are for all numbers: rounded inwards to whole ones they are met.
    """
    monkeypatch.setattr(quantiles, "TOLERANCE", 1e-9)
    n = sum(counts)
    found: dict[int, list[tuple[int, ...]]] = {}
    for values in arrangements(counts):
        found.setdefault(sum(values), []).append(values)
    for total, cases in found.items():
        increase = Increase(tuple(map(float, SMALL)), (*map(float, counts), 0.0), float(total))
        for r in range(1, n):  # rank n is never asked for
            estimate = estimated(increase, (r - 0.5) / n)
            at_rank = [values[r - 1] for values in cases]
            assert math.ceil(estimate.lower - 1e-6) == min(at_rank)
            assert math.floor(estimate.upper + 1e-6) == max(at_rank)


@pytest.mark.parametrize("counts", PATTERNS)
@pytest.mark.parametrize("threshold", [0.5, 1.5, 2.5, 3.5, 4.5, 5.5])
def test_no_share_is_wider_than_all_cases_together(
    counts: tuple[int, ...], threshold: float
) -> None:
    """What whole numbers show is within our bounds, and what single ranges allow is all of them."""
    found: dict[int, list[int]] = {}
    for values in arrangements(counts):
        found.setdefault(sum(values), []).append(bisect_right(values, threshold))
    for total, numbers in found.items():
        increase = Increase(tuple(map(float, SMALL)), (*map(float, counts), 0.0), float(total))
        share = within(increase, threshold)
        assert share.lower <= min(numbers) <= max(numbers) <= share.upper
        assert (share.lower, share.upper) == possible(increase, threshold)


def spread(increase: Increase) -> list[tuple[float, float]]:
    """Return between what each single observation lies, ascending."""
    edges = pairwise((0.0, *increase.bounds, math.inf))
    return [
        edge for edge, held in zip(edges, increase.counts, strict=True) for _ in range(int(held))
    ]


def possible(increase: Increase, threshold: float) -> tuple[int, int]:
    """Return the least and the greatest number within a threshold that allow this sum.

    Each observation has its own range, and for each number within the threshold the sums that can
    be had are all between the sum of the lower ends and the sum of the upper ends. A sum that needs
    one exactly at the threshold counts both ways: rounding hides on which side it is.
    """
    ranges = spread(increase)
    allowed = []
    for number in range(len(ranges) + 1):
        cut = [
            (low, min(high, threshold)) if i < number else (max(low, threshold), high)
            for i, (low, high) in enumerate(ranges)
        ]
        if all(low <= high for low, high in cut):
            least, greatest = (sum(ends) for ends in zip(*cut, strict=True))
            if least <= increase.total <= greatest:
                allowed.append(number)
    return min(allowed), max(allowed)


def bisected(increase: Increase, r: int, *, upwards: bool) -> float:
    """Return the extreme value at a rank by search: can all observations be put around it?"""
    ranges = spread(increase)

    def allowed(x: float) -> bool:
        cut = [
            (low, min(high, x)) if i < r - 1 else (max(low, x), high)
            for i, (low, high) in enumerate(ranges)
        ]
        cut[r - 1] = (x, x)
        least, greatest = (math.fsum(ends) for ends in zip(*cut, strict=True))
        return least <= increase.total <= greatest

    low, high = ranges[r - 1]
    high = min(high, increase.total)
    inside = next((x for i in range(4001) if allowed(x := low + (high - low) * i / 4000)), None)
    assert inside is not None
    outside = high if upwards else low
    if allowed(outside):
        return outside
    for _ in range(60):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if allowed(middle) else (inside, middle)
    return inside


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from([0.0, 0.1, 0.3, 0.7, 1.0, 2.0, 2.5, 4.0, 9.0]), min_size=4, max_size=12
    ),
    st.sampled_from([(0.5, 1.0, 3.0), (0.2, 5.0), (1.0,), (0.0, 1.0, 10.0)]),
    st.sampled_from([0.3, 0.5, 0.7]),
)
def test_search_finds_the_same_bounds(
    values: list[float], bounds: tuple[float, ...], q: float
) -> None:
    """A search over what each single observation may be ends at the closed form."""
    increase = observed(bounds, values)
    found = estimated(increase, q)
    r = rank(len(values), q)
    for end, upwards in ((found.upper, True), (found.lower, False)):
        assert end == pytest.approx(bisected(increase, r, upwards=upwards), rel=1e-4, abs=1e-4)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=12),
    st.sampled_from([(2, 4, 12), (1, 20), (4,), (0, 4, 40), ()]),
    st.integers(0, 60),
)
def test_search_finds_the_same_shares(
    quarters: list[int], bounds: tuple[int, ...], threshold: int
) -> None:
    """So it does for shares, with observations beyond the last bound too; times are quarters."""
    increase = observed([b / 4 for b in bounds], [q / 4 for q in quarters])
    share = within(increase, threshold / 4 + 1 / 8)
    assert (share.lower, share.upper) == possible(increase, threshold / 4 + 1 / 8)


# ---------------------------------------------------------------- random samples

BOUNDS = st.lists(
    st.floats(0, 1e4, allow_subnormal=False), min_size=0, max_size=8, unique=True
).map(sorted)


@st.composite
def samples(draw: st.DrawFn) -> tuple[tuple[float, ...], list[float]]:
    """Return bounds and observations: at bounds, at zero, equal, in between, beyond all."""
    bounds = draw(BOUNDS)
    single = [*bounds, 0.0, 1e5]
    value = st.one_of(
        st.sampled_from(single), st.floats(0, 2e4, allow_subnormal=False), st.floats(0, 1e-3)
    )
    groups = draw(st.lists(st.tuples(value, st.integers(1, 60)), min_size=1, max_size=20))
    return tuple(bounds), sorted(value for value, times in groups for _ in range(times))


@settings(max_examples=300, deadline=None)
@given(samples(), st.sampled_from([0.01, 0.25, *QUANTILES]))
def test_the_true_percentile_is_in_the_interval(
    sample: tuple[tuple[float, ...], list[float]], q: float
) -> None:
    bounds, values = sample
    increase = observed(bounds, values)
    found = estimate(increase, q)
    assert (found is None) == (len(values) * (100 - round(q * 100)) < 100)
    if found is not None:
        assert found.lower <= quantile(values, q) <= found.upper < math.inf
        assert found.point is None or found.lower <= found.point <= found.upper


@settings(max_examples=300, deadline=None)
@given(samples(), st.one_of(st.floats(0, 1e5), st.integers(0, 10_000)))
@example(((1.0,), [0.0] * 5), 0.0)
def test_the_true_share_is_in_the_interval(
    sample: tuple[tuple[float, ...], list[float]], threshold: float
) -> None:
    """Thresholds anywhere, and (the whole numbers) exactly at one of the observations."""
    bounds, values = sample
    if isinstance(threshold, int):
        threshold = values[threshold % len(values)]
    found = within(observed(bounds, values), threshold)
    noise = threshold * 1.1e-9 if found.aligned else 0.0
    least, most = (bisect_right(values, threshold + shift) for shift in (-noise, noise))
    assert found.lower <= most
    assert least <= found.upper
    assert found.lower <= found.point <= found.upper <= found.n == len(values)


@given(samples())
def test_what_was_observed_has_no_flaw(sample: tuple[tuple[float, ...], list[float]]) -> None:
    increase = observed(*sample)
    assert flaw(increase.bounds, increase.counts, increase.total) is None


# ---------------------------------------------------------------- rounding


def test_short_waits_on_top_of_years_of_overload_stay_inside() -> None:
    """A counter of 5e8 s loses a part of each wait of 10 us; the slack says how much at most."""
    wait = 1.02e-5
    before = counter = 5e8
    for _ in range(1000):
        counter += wait
    gained = Increase((0.3, 0.5), (1000.0, 0.0, 0.0), counter - before)
    assert estimated(gained, 0.001).upper < wait
    found = estimated(gained._replace(slack=rounding(counter, 1000)), 0.001)
    assert wait <= found.upper < 1.02 * wait


@pytest.mark.parametrize("n", range(10**15, 10**15 + 10))
def test_our_own_rounding_excludes_nobody(n: int) -> None:
    """All but one were at 0, one at the bound: the greatest sum of so many is itself rounded."""
    assert within(Increase((0.7,), (float(n), 0.0), 0.7), 0.0).upper >= n - 1


@given(st.floats(1, 1e12), st.lists(st.floats(0, 10), min_size=1, max_size=50))
def test_a_counter_is_off_by_no_more_than_its_slack(before: float, added: list[float]) -> None:
    counter = before
    for value in added:
        counter += value
    gained = counter - before
    assert abs(gained - math.fsum(added)) <= rounding(counter, len(added))


# ---------------------------------------------------------------- flaws


@pytest.mark.parametrize(
    ("counts", "total", "said"),
    [
        ((1.0, 2.0, 0.0), 0.3, None),
        ((0.0, 0.0, 0.0), 0.0, None),
        ((1.0, -1.0, 5.0), 0.3, "buckets"),
        ((1.0, math.nan, 5.0), 0.3, "buckets"),
        ((1.0, math.inf, 5.0), 0.3, "buckets"),
        ((1.0, 2.0), 0.3, "buckets"),
        ((1.0, 2.0, 0.0), 0.1, "sum"),
        ((1.0, 2.0, 0.0), 0.6, "sum"),
        ((1.0, 2.0, 0.0), 0.5 * (1 + 5e-7), None),
        ((1.0, 2.0, 0.0), 0.2 * (1 - 5e-7), None),
        ((1.0, 2.0, 9.0), 1e9, None),
        ((1.0, 2.0, 9.0), 1.9, "sum"),
        ((0.0, 0.0, 0.0), 0.1, "sum"),
        ((1.0, 0.0, 0.0), -0.01, "sum"),
        ((1.0, 0.0, 0.0), math.nan, "sum"),
    ],
)
def test_flaws_are_told(counts: tuple[float, ...], total: float, said: str | None) -> None:
    """Buckets 0.1 and 0.2: increments that shrink, sums that the buckets do not allow."""
    assert flaw((0.1, 0.2), counts, total) == said


def test_a_stated_slack_is_no_flaw() -> None:
    assert flaw((0.1,), (0.0, 0.0), 1e-9) == "sum"
    assert flaw((0.1,), (0.0, 0.0), 1e-9, slack=1e-8) is None


# ---------------------------------------------------------------- several together


def test_increases_with_the_same_bounds_add_up() -> None:
    one = Increase((0.1, 0.2), (1.0, 2.0, 3.0), 4.0, 1e-9)
    assert merge([one, one]) == Increase((0.1, 0.2), (2.0, 4.0, 6.0), 8.0, 2e-9)
    assert merge([one]) == one


def test_increases_with_other_bounds_keep_what_is_common() -> None:
    """vLLM before and after its long tail, with float noise in one of them."""
    old = Increase((0.1, 0.3, 1.0), (1.0, 2.0, 3.0, 4.0), 50.0)
    new = Increase((0.1 + 1e-17, 0.2, 1.0, 9.0), (10.0, 20.0, 30.0, 40.0, 50.0), 900.0)
    assert merge([old, new]) == Increase((0.1, 1.0), (11.0, 55.0, 94.0), 950.0)


def test_increases_without_a_common_bound_are_one_bucket() -> None:
    one = Increase((0.1,), (1.0, 2.0), 3.0)
    other = Increase((0.2,), (3.0, 4.0), 5.0)
    assert merge([one, other]) == Increase((), (10.0,), 8.0)


def test_nothing_merges_to_nothing() -> None:
    assert merge([]) is None


@settings(max_examples=100, deadline=None)
@given(st.lists(samples(), min_size=1, max_size=3), st.sampled_from(QUANTILES))
def test_the_true_percentile_of_a_fleet_is_in_the_interval(
    fleet: list[tuple[tuple[float, ...], list[float]]], q: float
) -> None:
    """Servers with other buckets: all observations together lie where the merged ones say."""
    increase = merge(observed(*one) for one in fleet)
    assert increase is not None
    values = sorted(value for _, found in fleet for value in found)
    found = estimate(increase, q)
    if found is not None:
        true = quantile(values, q)
        assert found.lower * (1 - 1e-9) <= true <= found.upper * (1 + 1e-9)


# ---------------------------------------------------------------- a million known requests


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_a_million_known_requests_lie_within_the_bounds(distribution: str) -> None:
    """Through every engine's buckets: each percentile, and each share within a threshold."""
    dice = Random(7)
    requests = 0
    checked = dict.fromkeys(QUANTILES, 0)
    wrong = []
    for window in windows(distribution):
        requests += len(window.ordered)
        thresholds = (0.2, 2.0, dice.choice(window.ordered), 10 ** dice.uniform(-4, 4))
        truths = [(t, bisect_right(window.ordered, t)) for t in thresholds]
        true = {q: quantile(window.ordered, q) for q in QUANTILES}
        for layout, bounds in LAYOUTS.items():
            increase = seen(window, bounds)
            assert flaw(*increase) is None, (layout, increase)
            for q, found in zip(QUANTILES, estimates(increase, QUANTILES), strict=True):
                if found is not None:
                    checked[q] += 1
                    if not found.lower <= true[q] <= found.upper < math.inf:
                        wrong.append((layout, q, true[q], found, increase))
            for threshold, number in truths:
                share = within(increase, threshold)
                if not share.lower <= number <= share.upper:
                    wrong.append((layout, threshold, number, share, increase))
    assert requests == REQUESTS
    assert min(checked.values()) > 100 * len(LAYOUTS)
    assert not wrong, (len(wrong), wrong[:3])
