"""What is published about a real vLLM, against what its clients saw, in every window.

`FLOPWATCH_VLLM_PYTHON=/path/to/python make test-truth`, some nine minutes; docs/verification.md
says how that Python is prepared. Each test prints its figures.

What differs between server and client by nature is allowed for, and nothing else: the client's TTFT
and E2E include HTTP in both directions (`TRANSPORT`, `HICCUP`), and near the edges of a window it
is not known which observations are in it (`truth.py` bounds those both ways).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.real.load import Record
from tests.real.pages import Page, windows
from tests.real.scenario import Run, run
from tests.real.truth import (
    SIGNALS,
    Gap,
    bucket,
    members,
    observations,
    outside,
    quantile,
    within,
)

pytestmark = pytest.mark.real

TRANSPORT = 0.010
"""Seconds that a request and its tokens may spend between client and engine."""

HICCUP = 0.05
"""Seconds by which a single token may be late on its way. It moves one gap of thousands: what is
said of some dozens (after a start), or to the request, may rest on it. No percentile of the rest
may."""

PAGING_BURN = 6.0
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
NATIVE = {
    "ttft": "time_to_first_token", "itl": "inter_token_latency", "e2e": "e2e_request_latency",
}  # fmt: skip


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("truth"))


@pytest.fixture(scope="module")
def judged(seen: Run) -> list[Verdict]:
    """Every percentile of every window of the steady part."""
    return list(verdicts(seen.steady.pages, seen.steady.records, []))


class Verdict(NamedTuple):
    """One published percentile beside the client's: seconds, but for the number `n`."""

    signal: str
    percentile: str
    window: str
    n: int
    client: tuple[float, float]
    lower: float
    upper: float
    bounds: tuple[float, ...]

    @property
    def outside(self) -> float:
        return outside(self.client, self.lower, self.upper)

    @property
    def held(self) -> bool:
        """Whether the client's value is inside whichever of the doubtful observations count."""
        return self.lower <= self.client[0] and self.client[1] <= self.upper


def verdicts(pages: list[Page], records: list[Record], gaps: list[Gap]) -> Iterator[Verdict]:
    """Judge every percentile of every window that these pages publish."""
    known = {signal: observations(records, signal) for signal in SIGNALS}
    for window in windows(pages):
        first, last, page = window.first, window.last, window.page
        for signal in SIGNALS:
            have = {"signal": signal, "window": window.name, "server": page.server}
            n = page.value("llm_latency_observations", **have)
            if not n:
                continue
            found = members(known[signal], first, last, gaps)
            bounds = tuple(sorted(page.buckets(signal)))[:-1]
            for name, q in PERCENTILES.items():
                lower, upper = (
                    page.value(f"llm_latency_quantile_{side}_seconds", percentile=name, **have)
                    for side in ("lower", "upper")
                )
                assert (lower is None) == (upper is None)
                if lower is None or upper is None:
                    continue
                client = quantile(found, int(n), q)
                assert client is not None, (
                    f"{window.name} {signal}: {n:g} counted, the client saw"
                    f" {len(found.certain)} to {len(found.certain) + len(found.maybe)}"
                )
                yield Verdict(signal, name, window.name, int(n), client, lower, upper, bounds)


def off(judged: list[Verdict], allowed: float = TRANSPORT) -> list[Verdict]:
    """Return the percentiles that are wrong by more than is allowed, in seconds."""
    return [one for one in judged if one.outside > allowed]


def tell(judged: list[Verdict]) -> None:
    """Print the figures: how many were inside, and of each last window what was said and seen."""
    print("\n| signal | window | judged | inside | farthest outside | width of p50 / bucket |")
    print("|---|---|---|---|---|---|")
    for (signal, window), mine in sorted(_parts(judged)):
        medians = [one for one in mine if one.percentile == "p50"]
        width = statistics.median(map(_width, medians)) if medians else math.nan
        inside, farthest = sum(one.outside == 0 for one in mine), max(one.outside for one in mine)
        print(
            f"| {signal} | {window} | {len(mine)} | {inside} | {1e3 * farthest:.1f} ms"
            f" | {width:.2f} |"
        )
    print(
        "\n| signal | window | n | p50: client, published | p95 | p99 |\n|---|---|---|---|---|---|"
    )
    for (signal, window), mine in sorted(_parts(judged)):
        last = {one.percentile: one for one in mine}
        cells = (_cell(last[name]) if name in last else "" for name in ("p50", "p95", "p99"))
        print(f"| {signal} | {window} | {mine[-1].n} | {' | '.join(cells)} |")


def _parts(judged: list[Verdict]) -> list[tuple[tuple[str, str], list[Verdict]]]:
    found: dict[tuple[str, str], list[Verdict]] = {}
    for one in judged:
        found.setdefault((one.signal, one.window), []).append(one)
    return list(found.items())


def _width(median: Verdict) -> float:
    """Return the width of an interval as a share of the bucket it lies in."""
    low, high = bucket(median.bounds, (median.lower + median.upper) / 2)
    return (median.upper - median.lower) / (high - low)


def _cell(one: Verdict) -> str:
    """Return what the client saw and what was published, in milliseconds, and who is right."""
    low, high = (f"{1e3 * value:.1f}" for value in one.client)
    seen = low if low == high else f"{low} to {high}"
    inside = "yes" if one.outside == 0 else f"no, by {1e3 * one.outside:.1f}"
    return f"{seen} in {1e3 * one.lower:.1f} to {1e3 * one.upper:.1f}: {inside}"


def test_percentiles_of_every_window_hold_the_clients(judged: list[Verdict]) -> None:
    """The client's p50, p90, p95 and p99 of TTFT, ITL, TPOT and E2E are inside the interval."""
    tell(judged)

    assert {(v.signal, v.percentile) for v in judged} == {
        (signal, name) for signal in SIGNALS for name in PERCENTILES
    }
    assert len(judged) > 800
    assert off(judged) == []
    # What is doubtful must not be so much that nothing could be outside.
    assert sum(one.held for one in judged) > 0.8 * len(judged)


def test_an_interval_of_twice_the_time_would_be_found_wrong(judged: list[Verdict]) -> None:
    """The same check fails for most windows if what is published is twice or half the truth."""
    for factor in (0.5, 2.0):
        wrong = [
            outside(one.client, factor * one.lower, factor * one.upper) > TRANSPORT
            for one in judged
            if one.lower > TRANSPORT
        ]
        print(f"\ntimes {factor}: {sum(wrong)} of {len(wrong)} found wrong")
        assert sum(wrong) > 0.5 * len(wrong)


def test_the_medians_interval_is_no_wider_than_its_bucket(judged: list[Verdict]) -> None:
    """The sum narrows the bucket, and never leaves it."""
    medians = [one for one in judged if one.percentile == "p50"]
    assert len(medians) > 200
    for one in medians:
        low, high = bucket(one.bounds, (one.lower + one.upper) / 2)
        assert low <= one.lower <= one.upper <= high, one


def test_counts_are_equal_at_the_end(seen: Run) -> None:
    """Observations, tokens, requests, responses: ours, the server's own, and the client's."""
    part = seen.steady
    page = part.pages[-1]
    outcomes = Counter(record.outcome for record in part.records)
    aborts = outcomes["aborted"]
    print(f"\n{len(part.records)} requests: {dict(outcomes)}")
    assert outcomes.keys() == {"finished", "aborted", "rejected"}
    assert page.cut is not None

    for signal in SIGNALS:
        client = [one for one in observations(part.records, signal) if not one.doubtful]
        ours = page.buckets(signal)[float("inf")]
        print(f"{signal}: ours {ours:g}, client {len(client)}")
        # After the client has left the server makes a few more tokens.
        unseen = 4 * aborts if signal == "itl" else 0
        assert len(client) <= ours <= len(client) + unseen
        if signal in NATIVE:
            assert page.buckets(signal) == _native(part.native, NATIVE[signal])
    answered = [r for r in part.records if r.status == 200]
    output = page.total("llm_tokens_total", direction="output")
    made = sum(record.tokens for record in answered)
    read = sum(record.prompt_tokens for record in answered)
    print(f"output tokens: ours {output:g}, client {made}; aborted requests {aborts}")
    assert made <= output <= made + 4 * aborts
    assert page.total("llm_tokens_total", direction="input") == read
    assert page.total("llm_requests_total") == outcomes["finished"]
    assert page.total("llm_http_responses_total", code="2xx") == len(answered)
    assert page.total("llm_http_responses_total", code="4xx") == outcomes["rejected"] > 0


def test_counts_at_every_bucket_edge_are_the_clients(seen: Run) -> None:
    """At each bound of the engine's buckets as many requests are within as the client counted."""
    part = seen.steady
    page = part.pages[-1]
    equal = close = 0
    for signal in SIGNALS:
        client = [one for one in observations(part.records, signal) if not one.doubtful]
        for bound, ours in page.buckets(signal).items():
            least = sum(one.high <= bound for one in client)
            most = sum(one.low <= bound + TRANSPORT for one in client)
            unseen = page.buckets(signal)[float("inf")] - len(client)
            if signal in ("itl", "tpot"):  # these may also be longer for the server
                least = sum(one.high <= bound - TRANSPORT for one in client)
            equal += (
                sum(one.high <= bound for one in client)
                <= ours
                <= sum(one.low <= bound for one in client)
            )
            close += 1
            assert least <= ours <= most + unseen, (signal, bound)
    print(f"\n{close} bounds: {equal} equal, the others within {1e3 * TRANSPORT:g} ms of it")


class Compliance(NamedTuple):
    """What is published of an objective over a window, and what the client counted."""

    objective: str
    window: str
    aligned: bool
    n: int
    lower: float
    upper: float
    least: int
    most: int


def compliances(pages: list[Page], records: list[Record], gaps: list[Gap]) -> Iterator[Compliance]:
    known = {signal: observations(records, signal) for signal in SIGNALS}
    for window in windows(pages):
        first, last, page = window.first, window.last, window.page
        for have, threshold in page.all("sla_threshold_seconds", sla="truth"):
            if f"truth/{have['objective']}" not in page.renewed:
                continue
            told = {"sla": "truth", "objective": have["objective"], "window": window.name}
            lower = page.value("sla_compliance_lower_ratio", **told)
            upper = page.value("sla_compliance_upper_ratio", **told)
            if lower is None or upper is None:
                continue
            signal = have["objective"].split("_")[0]
            n = page.value("llm_latency_observations", signal=signal, window=window.name)
            assert n
            found = members(known[signal], first, last, gaps)
            early = TRANSPORT if signal in {"tpot", "itl"} else 0.0
            least, most = within(found, int(n), threshold, HICCUP, early)
            aligned = page.value("sla_threshold_aligned", sla="truth", objective=have["objective"])
            yield Compliance(
                have["objective"], window.name, aligned == 1, int(n), lower, upper, least, most
            )


def test_compliance_is_the_clients_share(seen: Run) -> None:
    """At bucket edges it is one number, the client's; between two its bounds hold the client's."""
    part = seen.steady
    judged = list(compliances(part.pages, part.records, []))
    aligned = [one for one in judged if one.aligned]
    assert 50 < len(aligned) < len(judged)
    for one in judged:
        if one.aligned:
            assert one.lower == one.upper
        assert one.lower * one.n <= one.most + 1e-6, one
        assert one.upper * one.n >= one.least - 1e-6, one
    exact = [one for one in aligned if one.least == one.most]
    print(
        f"\n{len(judged)} compliances, {len(aligned)} at bucket edges; of these the client knows"
        f" {len(exact)} to the request: all equal"
    )


def test_sla_events_are_the_clients(seen: Run) -> None:
    """Each observation is one event, good ones as many as the client counts."""
    part = seen.steady
    page = part.pages[-1]
    for have, threshold in page.all("sla_threshold_seconds", sla="truth"):
        name = have["objective"]
        signal = name.split("_")[0]
        client = observations(part.records, signal)
        sure = [one for one in client if not one.doubtful]
        events, good, possible = (
            page.value(family, sla="truth", objective=name)
            for family in (
                "sla_events_total", "sla_good_events_total", "sla_possibly_good_events_total",
            )
        )  # fmt: skip
        print(f"{name}: events {events}, client {len(sure)}; good {good} to {possible}")
        assert events is not None and good is not None and possible is not None
        assert events == page.buckets(signal)[float("inf")]
        assert len(sure) <= events <= len(client)
        assert good <= sum(one.low <= threshold + TRANSPORT for one in client)
        assert possible >= sum(one.high <= threshold - TRANSPORT for one in sure)


def both(seen: Run) -> tuple[list[Page], list[Record], list[Gap]]:
    """Return all of the first daemon's time: the calm part and that with the killed server."""
    part = seen.killed
    return part.pages, [*seen.steady.records, *part.records], part.gaps()


def test_a_killed_engine_loses_no_event_beyond_the_scrape_gap(seen: Run) -> None:
    """What was read before and what came after is counted once; nothing is negative or falls."""
    pages, records, gaps = both(seen)
    outcomes = Counter(record.outcome for record in seen.killed.records)
    print(f"\n{dict(outcomes)}; away for {seen.killed.back - seen.killed.killed:.0f} s")
    assert outcomes["broken"] > 0 or outcomes["unreachable"] > 0
    first, last = pages[0], pages[-1]
    assert first.cut is not None and last.cut is not None

    for have, _ in last.all("sla_threshold_seconds", sla="truth"):
        name = have["objective"]
        found = members(observations(records, name.split("_")[0]), first.cut, last.cut, gaps)
        events = last.value("sla_events_total", sla="truth", objective=name)
        counted = len(found.certain), len(found.certain) + len(found.maybe)
        print(f"{name}: events {events}, client {counted[0]} to {counted[1]}")
        assert events is not None
        assert counted[0] <= events <= counted[1]
    assert last.value("llm_resets_total", server=last.server) == 1
    assert rising(pages, "sla_events_total")
    assert rising(pages, "sla_good_events_total")


def test_windows_go_on_after_an_engine_was_killed(seen: Run) -> None:
    """Percentiles hold the client's in windows that the restart is in."""
    pages, records, gaps = both(seen)
    again = next(page.at for page in pages if page.cut and page.cut.earliest > seen.killed.back)
    after = [page for page in pages if page.at > again + 3]
    assert len(after) > 30
    for page in after:
        assert page.value("llm_requests_per_second", server=page.server, window="1m") is not None
    judged = list(verdicts(pages, records, gaps))
    tell(judged)
    assert off(judged) == []


def rising(pages: list[Page], name: str) -> bool:
    """Tell whether no series of a counter ever falls from page to page."""
    last: dict[tuple[tuple[str, str], ...], float] = {}
    for page in pages:
        for have, value in page.all(name):
            key = tuple(sorted(have.items()))
            if value < last.get(key, 0.0):
                return False
            last[key] = value
    return bool(last)


@pytest.mark.parametrize("part", ["steady", "killed", "restarted"])
def test_nothing_is_ever_negative(seen: Run, part: str) -> None:
    """Rates, counts, shares and times; only a budget may be overdrawn."""
    pages = getattr(seen, part).pages
    assert len(pages) > 30
    for page in pages:
        for name, values in page.series.items():
            if name.startswith(("llm_", "sla_")) and "budget" not in name:
                assert all(value >= 0 for _, value in values), name


def test_a_restarted_daemon_says_how_filled_its_windows_are(seen: Run) -> None:
    """Windows begin empty and fill; nothing that the server counted before is taken for new."""
    part = seen.restarted
    for window in ("5m", "1h"):
        filled = [
            page.value("llm_window_filled_ratio", server=page.server, window=window)
            for page in part.pages
        ]
        told = [ratio for ratio in filled if ratio is not None]
        print(f"\n{window}: filled {told[0]:.3f} to {told[-1]:.3f}")
        assert told[0] < 0.05
        assert told == sorted(told)
        assert told[-1] < 0.5
    judged = list(verdicts(part.pages, part.records, []))
    tell(judged)
    assert judged
    assert off(judged, HICCUP) == []


def test_a_restarted_daemon_pages_nobody(seen: Run) -> None:
    """Burn rates stay below what pages, and a budget says over how much of its window it is."""
    part = seen.restarted
    burns = [
        (have["objective"], have["window"], value)
        for page in part.pages
        for have, value in page.all("sla_burn_rate", sla="inference_sla")
    ]
    print(f"\n{len(burns)} burn rates, highest {max((b for *_, b in burns), default=0)}")
    assert [one for one in burns if one[2] >= PAGING_BURN] == []
    violated = {
        have["objective"]
        for page in part.pages
        for have, value in page.all("sla_state", sla="inference_sla", state="violated")
        if value
    }
    assert violated == set()
    told = [
        value
        for page in part.pages
        for _, value in page.all("sla_window_filled_ratio", sla="inference_sla")
    ]
    assert told
    assert max(told) < 0.5
    for page in part.pages:
        budgets = {h["objective"] for h, _ in page.all("sla_error_budget_remaining_ratio")}
        assert budgets <= {h["objective"] for h, _ in page.all("sla_window_filled_ratio")}
    last = part.pages[-1]
    for signal, name in (("ttft", "ttft_p99"), ("tpot", "tpot_p95")):
        events = last.value("sla_events_total", sla="inference_sla", objective=name)
        client = observations(part.records, signal)
        print(f"{name}: events {events}, client {len(client)}")
        assert events == len(client)


def _native(page: str, name: str) -> dict[float, float]:
    """Return the cumulative buckets of the server's own page."""
    found: dict[float, float] = {}
    for line in page.splitlines():
        if line.startswith(f"vllm:{name}_seconds_bucket{{"):
            bound = line.split('le="')[1].split('"')[0].replace("Inf", "inf")
            found[float(bound)] = float(line.rsplit(" ", 1)[1])
    return found
