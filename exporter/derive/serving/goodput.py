"""Goodput: requests that met all latency objectives of an SLA at once, between two bounds.

Engines tell how many requests were fast to their first token and how many were fast in each token
after it, not which. So what is known of the requests that met all of it is an interval (Frechet's
bounds): at least all less the bad ones of each kind, at most all less the worst kind. A product of
the shares would need them to be independent, which they are not under load: it lies somewhere
between, and is never used.

A request that failed by our doing is bad, whatever its latency. Those whose clients went away, or
asked for what there is not, count nowhere. Gaps between tokens (`itl`) are no requests, so an
objective on them has no part in this. Where several objectives are about one signal (p50, p95,
p99), the one with the largest share counts: no promise says that all requests are faster than the
median may be.

This is not the goodput of benchmarks (the largest load that keeps the objectives): it is what was
delivered.

    sla_goodput_lower_ratio{sla="inference_sla",tier="",model_name="",server="",window="5m"} 0.91
    sla_goodput_upper_requests_per_second{sla="inference_sla",...} 11.4
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from exporter import catalogue as c
from exporter.derive.serving.book import WINDOWS, Book, Entity
from exporter.derive.serving.increase import Increase
from exporter.derive.serving.quantiles import Share, within
from exporter.derive.serving.tally import SIGNALS as METRICS
from exporter.derive.serving.tally import Census, Requests, Scope
from exporter.objectives import Objective
from exporter.samples import Sample, View

SIGNALS = ("ttft", "tpot", "e2e", "queue")
"""The latencies of which each request has one."""

OUTPUTS = (
    c.SLA_GOODPUT_LOWER_RATIO,
    c.SLA_GOODPUT_UPPER_RATIO,
    c.SLA_GOODPUT_LOWER_REQUESTS_PER_SECOND,
    c.SLA_GOODPUT_UPPER_REQUESTS_PER_SECOND,
)


class Goodput:
    """The part that says how many requests can have met all latency objectives of an SLA."""

    def __init__(self, objectives: Iterable[Objective]) -> None:
        groups: dict[tuple[str, str], list[Objective]] = {}
        for objective in objectives:
            if objective.kind == "latency" and objective.signal in SIGNALS:
                groups.setdefault((objective.sla, objective.tier), []).append(objective)
        self._groups = {key: _group(found) for key, found in groups.items()}

    def __call__(self, book: Book, view: View, now: float) -> Iterator[Sample]:  # noqa: ARG002
        """Yield the bounds for each SLA, tier, and window that its objectives name."""
        for (sla, tier), group in self._groups.items():
            for window in group.windows:
                for (model, server), pool in _pools(book, group, window).items():
                    if pool.offered >= group.minimum:
                        yield from _told(pool, (sla, tier, model, server, window))


class _Group(NamedTuple):
    """The latency objectives of one SLA and tier. `ends` stands for the requests themselves."""

    objectives: tuple[Objective, ...]
    ends: Objective
    windows: tuple[str, ...]
    minimum: int
    scopes: frozenset[str]


def _group(objectives: Sequence[Objective]) -> _Group:
    asked = {window for one in objectives for window in one.windows}
    return _Group(
        objectives=tuple(objectives),
        ends=replace(objectives[0], kind="error_rate"),
        windows=tuple(window for window in WINDOWS if window in asked),
        minimum=max(1, *(one.minimum_events for one in objectives)),
        scopes=frozenset(one.per for one in objectives),
    )


@dataclass(slots=True)
class _Pool:
    """Requests that are looked at together: numbers, and rates over each server's own time."""

    offered: float = 0.0
    least: float = 0.0
    most: float = 0.0
    least_rate: float = 0.0
    most_rate: float = 0.0

    def add(self, offered: float, good: tuple[float, float], seconds: float) -> None:
        """Add a server's requests, and how many were good, at least and at most."""
        least, most = good
        self.offered += offered
        self.least += least
        self.most += most
        self.least_rate += least / seconds
        self.most_rate += most / seconds


def _told(pool: _Pool, labels: tuple[str, ...]) -> Iterator[Sample]:
    yield c.SLA_GOODPUT_LOWER_RATIO(pool.least / pool.offered, *labels)
    yield c.SLA_GOODPUT_UPPER_RATIO(pool.most / pool.offered, *labels)
    yield c.SLA_GOODPUT_LOWER_REQUESTS_PER_SECOND(pool.least_rate, *labels)
    yield c.SLA_GOODPUT_UPPER_REQUESTS_PER_SECOND(pool.most_rate, *labels)


def _pools(book: Book, group: _Group, window: str) -> dict[tuple[str, str], _Pool]:
    """Return the requests of each model, server, or all, as the objectives are stated."""
    pools: dict[tuple[str, str], _Pool] = {}
    entities, census = book.entities(), Census(book, {})
    for entity in entities:
        asked = strictest(
            o for o in group.objectives if o.selects(entity.model_name, entity.server)
        )
        shares = {one.signal: _share(book, entity, window, one) for one in asked}
        measured = [share.n for share in shares.values() if share is not None]
        seconds = book.seconds(entity.server, window)
        if not measured or seconds <= 0:
            continue
        # HTTP codes are a server's: with several models on it nobody knows whose they are.
        alone = sum(other.server == entity.server for other in entities) == 1
        ends = census.count(group.ends, Scope(entity.server, (entity,), alone), window)
        requests = Requests() if ends is None else ends.requests
        finished = book.histogram(c.LLM_E2E_SECONDS, entity, window)
        served = _served(requests, finished, max(measured))
        model = entity.model_name if "model" in group.scopes else ""
        server = entity.server if "server" in group.scopes else ""
        pool = pools.setdefault((model, server), _Pool())
        pool.add(served + max(requests.failed, requests.broken), joint(served, shares), seconds)
    return pools


def _served(requests: Requests, finished: Increase | None, seen: float) -> float:
    """Return how many were served: by outcome, by status, by what finished, or by what was seen."""
    if requests.told:
        return requests.served
    return requests.answered or (finished.n if finished is not None else 0.0) or seen


def _share(book: Book, entity: Entity, window: str, objective: Objective) -> Share | None:
    seen = book.histogram(METRICS[objective.signal], entity, window)
    return None if seen is None else within(seen, objective.threshold or 0.0)


def strictest(objectives: Iterable[Objective]) -> list[Objective]:
    """Return one objective for each signal: that of the largest share, then the least threshold."""
    found: dict[str, Objective] = {}
    for one in objectives:
        known = found.get(one.signal)
        if known is None or _rank(one) > _rank(known):
            found[one.signal] = one
    return list(found.values())


def _rank(objective: Objective) -> tuple[float, float]:
    return objective.target, -(objective.threshold or 0.0)


def joint(served: float, shares: Mapping[str, Share | None]) -> tuple[float, float]:
    """Return how many of `served` requests were good in all signals: at least, and at most.

    A latency may have been observed of more requests than were served in the window (they are not
    finished, they failed late, or their clients went away): its bad ones may be among those. Of
    fewer: what was not observed may have been bad, but for the time per token, which a single token
    does not have. None is a signal that was not observed at all.
    """
    least = most = served
    for signal, share in shares.items():
        if share is None:
            least = 0.0
            continue
        unseen = 0.0 if signal == "tpot" else max(0.0, served - share.n)
        others = max(0.0, share.n - served)
        least -= share.n - share.lower + unseen
        most = min(most, served - max(0.0, share.n - share.upper - others))
    most = max(0.0, most)
    return min(max(0.0, least), most), most
