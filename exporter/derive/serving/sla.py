"""Whether what was promised is kept: compliance, state, error budget and burn rates.

Each objective is judged for all that it selects together, or for each model or server. A share of
events is compared with the target, never a percentile with a threshold: where the threshold lies
between two bounds of the engine's buckets the share has bounds, and the state may be undetermined.
What counts is told in `tally`, for throughput in `demand`.

    sla_compliance_ratio{sla="chat",objective="ttft_p95",tier="",model_name="",...} 0.981
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from exporter import catalogue as c
from exporter.derive import promise
from exporter.derive.promise import BURNS, LIVE, NO_VERDICT, Verdict, state_of
from exporter.derive.serving import hints
from exporter.derive.serving.book import STEP, WINDOWS, Book, Entity
from exporter.derive.serving.ledger import Ledger, Reading
from exporter.derive.serving.paced import EVERY, due
from exporter.derive.serving.quantiles import estimate
from exporter.derive.serving.tally import (
    NO_COUNTS,
    Census,
    Counts,
    Scope,
    is_bound,
    judge,
)
from exporter.objectives import Objective
from exporter.samples import Metric, Sample, View

INPUTS: tuple[Metric, ...] = (
    c.LLM_TTFT_SECONDS, c.LLM_TPOT_SECONDS, c.LLM_ITL_SECONDS, c.LLM_E2E_SECONDS,
    c.LLM_QUEUE_SECONDS, c.LLM_TOKENS_TOTAL, c.LLM_ACTIVE_REQUESTS, c.LLM_WAITING_REQUESTS,
    c.LLM_REQUESTS_TOTAL, c.LLM_HTTP_RESPONSES_TOTAL, c.LLM_RETRIES_TOTAL, c.LLM_PROBES_TOTAL,
)  # fmt: skip
"""What is read, through the book or from the board."""

OUTPUTS: tuple[Metric, ...] = (
    *promise.ABOUT, *promise.SAID, c.SLA_THRESHOLD_ALIGNED, c.SLA_MEASURED_SECONDS,
    c.SLA_MEASURED_RATIO, c.SLA_MEASURED_TOKENS_PER_SECOND, c.SLA_DELIVERED_TOKENS_PER_SECOND,
    c.SLA_EXCLUDED_EVENTS_TOTAL, c.SLA_WINDOW_FILLED_RATIO,
)  # fmt: skip
"""What comes of it."""

LONGEST_ROUND = 600.0
"""Seconds that one round can stand for; a daemon that was stopped for longer knows no more."""

HINTS = 3
"""Kinds of buckets of one engine that are told of for one objective; a page may make ever new."""

GONE = 120.0
"""Seconds after which a server that is not on the board any more is not judged for itself."""

PATIENCE = 120.0
"""Seconds after a start for which a server that has not been seen again keeps its counters."""


class _Group(NamedTuple):
    """Servers that an objective judges together; empty labels: all models, all servers."""

    model_name: str
    server: str
    scopes: tuple[Scope, ...]


class _Round(NamedTuple):
    """One round: the book and what is counted from it, when it is, seconds since the last one.

    `fresh` are those of whom there is a page now, `present` those on their server's last page.
    Servers that are `awaited` have not been read since we began. What came before a `late` round
    may have been told by a daemon that was killed.
    """

    book: Book
    census: Census
    now: float
    passed: float
    fresh: frozenset[Entity]
    present: frozenset[Entity]
    awaited: frozenset[str]
    late: bool


class _Case(NamedTuple):
    """One objective for one group in one round, and what was counted before."""

    objective: Objective
    group: _Group
    ledger: Ledger
    round: _Round

    @property
    def labels(self) -> tuple[str, str, str, str, str]:
        one, group = self.objective, self.group
        return one.sla, one.name, one.tier, group.model_name, group.server

    @property
    def windows(self) -> list[str]:
        """The windows that anything is said of."""
        one = self.objective
        asked = {*one.windows, one.window, LIVE, *(BURNS if one.burn_alerts else ())}
        return [window for window in WINDOWS if window in asked]


class Violation(NamedTuple):
    """An objective that is violated, for which model and server; empty where it is for all."""

    objective: Objective
    model_name: str
    server: str


_Key = tuple[int, str, str]  # number of the objective, model name, server
_Part = tuple[str, str, tuple[Entity, ...]]  # model name, server, who that is


class Sla:
    """The part of serving that judges objectives; called once a round, after the book.

    `tell` gets a line for each objective and kind of buckets that have no bound at the threshold,
    three for an engine, with what to do about it; it names one of the servers that have them.
    For `every` seconds nothing is judged anew, unless a server comes, goes or is restarted.
    Counters begin at 0 with the daemon unless `restore` brings them back.
    """

    def __init__(
        self,
        objectives: Iterable[Objective],
        tell: Callable[[str], None] = lambda _: None,
        *,
        every: float = EVERY,
    ) -> None:
        self._objectives = tuple(objectives)
        self._every = every
        self._tell = tell
        self._told: dict[tuple[str, ...], set[tuple[float, ...]]] = {}
        self._ledgers: dict[_Key, Ledger] = {}
        self._states: dict[_Key, str] = {}
        self._probed: dict[str, dict[str, float]] = {}
        self._probes: dict[str, str] = {}
        self._homes: dict[str, tuple[Entity, ...]] = {}
        self._present: frozenset[Entity] = frozenset()
        self._listed: dict[str, float] = {}
        self._subject: object = None
        self._said: tuple[Sample, ...] = ()
        self._now: float | None = None
        self._patient_until = -math.inf
        self._awaited: set[str] = set()
        self._late = False

    def __call__(self, book: Book, view: View, now: float) -> Iterable[Sample]:
        """Return all samples of one round; `now` is the view's moment in monotonic seconds."""
        subject = book.entities(), dict(book.resets)
        if subject != self._subject or due(now, self._now, self._every):
            self._subject = subject
            self._said = tuple(self._round(book, view, now))
            book.turn()
        return self._said

    def _round(self, book: Book, view: View, now: float) -> Iterator[Sample]:
        passed = 0.0 if self._now is None else min(max(0.0, now - self._now), LONGEST_ROUND)
        self._now = now
        self._awaited.difference_update(book.servers())
        self._look_around(book, view, now)
        census = Census(book, self._probed)
        fresh = frozenset(book.entities())
        awaited, late, self._late = frozenset(self._awaited), self._late, False
        moment = _Round(book, census, now, passed, fresh, self._present, awaited, late)
        judged: dict[_Key, str] = {}
        for number, objective in enumerate(self._objectives):
            yield from promise.about(objective)
            for group in self._groups(objective):
                key = (number, group.model_name, group.server)
                ledger = self._ledgers.setdefault(key, Ledger())
                judged[key], said = self._judged(_Case(objective, group, ledger, moment))
                yield from said
        self._states = judged
        if now >= self._patient_until:
            self._ledgers = {key: self._ledgers[key] for key in judged}
        self._settle_doubts(now)

    def violated(self) -> list[Violation]:
        """Return what was violated in the last round."""
        return [
            Violation(self._objectives[number], model_name, server)
            for (number, model_name, server), state in self._states.items()
            if state == "violated"
        ]

    # ------------------------------------------------------------ who is judged

    def _look_around(self, book: Book, view: View, now: float) -> None:
        """Note which models are where, or were, and which servers are probed how."""
        self._present = frozenset(book.known())
        homes: dict[str, list[Entity]] = {}
        for entity in (*book.known(), *book.former()):
            homes.setdefault(entity.server, []).append(entity)
        for source in view.sources:
            for at in source.batch.shape.families.get(c.LLM_PROBES_TOTAL, ()):
                server, kind, _ = source.batch.shape.labels[at]
                self._probed.setdefault(server, {})[kind] = now
                self._probes[server] = source.name
        for server, kinds in list(self._probed.items()):
            if now - max(kinds.values()) > WINDOWS[LIVE]:
                del self._probed[server], self._probes[server]
        # Whose page is gone for an hour is still judged by its probes.
        former, self._homes = self._homes, {server: tuple(of) for server, of in homes.items()}
        for server in self._probed:
            self._homes.setdefault(server, former.get(server, ()))
        self._look_at_board(book, view, now)

    def _look_at_board(self, book: Book, view: View, now: float) -> None:
        """Note when each server was on the board last; one that fails is."""
        names = {source.name for source in view.sources}
        listed = book.listed(view) | {one for one, name in self._probes.items() if name in names}
        self._listed = {
            server: now if server in listed else self._listed.get(server, now)
            for server in self._homes
        }

    def _groups(self, objective: Objective) -> list[_Group]:
        """Return who is judged together; where all are, always one group.

        What was done within the last hour counts, by whomever: a server that is gone, or serves
        another model now. For itself a server is judged only as long as it is on the board.
        """
        parts = [part for server in sorted(self._homes) for part in self._parts(objective, server)]
        match objective.per:
            case "all":
                return [_Group("", "", self._scopes(parts))]
            case "model":
                names = dict.fromkeys(name for name, _, _ in parts)
                return [
                    _Group(name, "", self._scopes(part for part in parts if part[0] == name))
                    for name in names
                ]
            case "server":
                return [
                    _Group("", one.server, (one,))
                    for one in self._scopes(parts)
                    if self._now is None or self._now - self._listed[one.server] <= GONE
                ]

    def _parts(self, objective: Objective, server: str) -> Iterator[_Part]:
        """Yield the selected models of a server; of a server that is only probed, none is known."""
        entities = self._homes[server]
        if objective.kind == "availability":
            if server not in self._probed:
                return
            # Probes are of the server as it is: none is of a model that it served before.
            entities = tuple(filter(self._present.__contains__, entities)) or entities
        if not entities and objective.selects("", server):
            yield "", server, ()
        for name in dict.fromkeys(entity.model_name for entity in entities):
            if objective.selects(name, server):
                yield name, server, tuple(one for one in entities if one.model_name == name)

    def _scopes(self, parts: Iterable[_Part]) -> tuple[Scope, ...]:
        """Return one scope for each server, of all its models that are among the parts."""
        found: dict[str, tuple[Entity, ...]] = {}
        for _, server, entities in parts:
            found[server] = (*found.get(server, ()), *entities)
        return tuple(
            Scope(server, entities, whole=len(entities) == len(self._homes[server]))
            for server, entities in found.items()
        )

    # ------------------------------------------------------------ one group

    def _judged(self, case: _Case) -> tuple[str, list[Sample]]:
        """Return the state of one group, and what is to be said of it."""
        _advance(case)
        verdicts = {
            window: verdict
            for window in case.windows
            if (verdict := _verdict(case, window)) is not None
        }
        state = state_of(case.objective, verdicts.get(case.objective.window, NO_VERDICT))
        case.ledger.breach += case.round.passed if state == "violated" else 0.0
        said = [*promise.states(state, case.labels), *self._alignment(case)]
        for window, verdict in verdicts.items():
            if verdict.total > 0:
                said += _of_window(case, window, verdict)
        said += _delivered(case)
        if case.group.scopes:
            said += (
                c.SLA_WINDOW_FILLED_RATIO(_filled(case, window), *case.labels, window)
                for window in case.windows
            )
        if case.ledger.since is not None and self._awaited.isdisjoint(case.ledger.servers):
            said += _counters(case)
        return state, said

    def _alignment(self, case: _Case) -> Iterator[Sample]:
        """Yield whether the threshold is a bound at all servers; tell of those where it is not."""
        objective, census = case.objective, case.round.census
        if objective.kind != "latency":
            return
        found = [
            (scope, one)
            for scope in case.group.scopes
            for one in census.histograms(objective.signal, scope, LIVE)
        ]
        threshold = objective.threshold or 0.0
        odd = [(scope, one) for scope, one in found if not is_bound(threshold, one.bounds)]
        for scope, one in odd:
            self._hint(objective, scope, one.bounds)
        if found:
            yield c.SLA_THRESHOLD_ALIGNED(0 if odd else 1, *case.labels)

    def _hint(self, objective: Objective, scope: Scope, bounds: Sequence[float]) -> None:
        """Tell once that a threshold is no bound of the buckets that a server, and others, have."""
        engine = scope.entities[0].engine
        told = self._told.setdefault((objective.sla, objective.tier, objective.name, engine), set())
        if len(told) < HINTS and tuple(bounds) not in told:
            told.add(tuple(bounds))
            self._tell(hints.unaligned(objective, scope.server, engine, bounds))

    # ------------------------------------------------------------ beyond our own end

    def memory(self) -> list[dict[str, Any]]:
        """Return what has been counted as plain values, for `restore`."""
        now = self._now or 0.0
        return [
            {
                "objective": _identity(self._objectives[number]),
                "model_name": model_name,
                "server": server,
                "ledger": ledger.memory(now),
            }
            for (number, model_name, server), ledger in self._ledgers.items()
        ]

    def restore(self, memory: Sequence[Mapping[str, Any]], now: float, age: float) -> None:
        """Take over what another one had counted `age` seconds ago, before the first round.

        Objectives that have changed since begin anew. Raises `KeyError`, `TypeError` or
        `ValueError` if it is not what `memory` returns.
        """
        numbers = {_identity(objective): at for at, objective in enumerate(self._objectives)}
        found: dict[_Key, Ledger] = {}
        for entry in memory:
            number = numbers.get(entry["objective"])
            if number is not None:
                key = (number, str(entry["model_name"]), str(entry["server"]))
                found[key] = Ledger.restored(entry["ledger"], now - age)
        self._ledgers = found
        self._patient_until = now + PATIENCE

    def doubt(self) -> None:
        """Take what was restored for older than what was told last: a daemon was killed.

        A counter that falls back a little counts twice in Prometheus, with all its past. So what
        was counted here alone begins at zero, and what servers count is told once they have been
        read again: then it is more than before, or begins at zero where that is not certain.
        """
        self._late = True
        for (number, _, _), ledger in self._ledgers.items():
            ledger.doubt()
            if self._objectives[number].kind in {"availability", "throughput"}:
                ledger.begin_anew()
            self._awaited |= ledger.servers

    def _settle_doubts(self, now: float) -> None:
        """Give up waiting for servers that do not come back, and the counts that rest on them."""
        if now >= self._patient_until:
            for ledger in self._ledgers.values():
                if not self._awaited.isdisjoint(ledger.doubted & ledger.servers):
                    ledger.begin_anew()
            self._awaited.clear()
        if not self._awaited:
            for ledger in self._ledgers.values():
                ledger.doubted.clear()


def _identity(objective: Objective) -> str:
    """Return what makes an objective the same one after a restart: all of it."""
    return repr(objective)


# ---------------------------------------------------------------- what is counted


def _verdict(case: _Case, window: str) -> Verdict | None:
    """Return the verdict on a window; None if nothing is known of it."""
    if case.objective.kind == "throughput":
        asked, kept, _ = case.ledger.spell.over(window, case.round.now)
        return Verdict(asked, kept, kept, kept)
    census = case.round.census
    found = [
        judge(case.objective, counts, _carried(case, scope, counts, window))
        for scope in case.group.scopes
        if (counts := census.count(case.objective, scope, window)) is not None
    ]
    return sum(found, NO_VERDICT) if found else None


def _carried(case: _Case, scope: Scope, counts: Counts, window: str) -> float:
    """Return how many were under way when a window began, where that makes a difference."""
    failures = counts.requests.failed or counts.requests.broken
    if case.objective.signal != "ttft" or not failures:
        return math.inf
    return case.round.census.carried(scope, window)


def _advance(case: _Case) -> None:
    """Add what has come since the round before to what was counted."""
    if case.objective.kind == "throughput":
        _advance_time(case)
        return
    ledger, census = case.ledger, case.round.census
    for scope in case.group.scopes:
        new = census.count(case.objective, scope, STEP)
        if new is not None:
            if case.round.late and case.objective.kind == "availability":
                new = NO_COUNTS
            ledger.begin(case.round.now)
            restarts = case.round.book.resets.get(scope.server, 0)
            read = scope.server not in case.round.awaited
            reading = Reading(case.round.now, census.working(scope), restarts, read)
            ledger.add(case.objective, scope.server, new, reading)
        elif (missed := census.unmeasured(case.objective, scope, STEP)) is not None:
            ledger.begin(case.round.now)
            ledger.leave_out(scope.server, missed, case.round.now)
    ledger.settle(scope.server for scope in case.group.scopes)


def _advance_time(case: _Case) -> None:
    """Add the rounds that are known by now to the time with demand, if there was any."""
    ledger, moment = case.ledger, case.round
    who = {
        one: one in moment.fresh
        for scope in case.group.scopes
        for one in scope.entities
        if one in moment.present
    }
    ledger.paces.step(case.objective, moment.book, who, (moment.now, moment.passed))
    if ledger.paces.known:
        ledger.begin(moment.now)
    for at, seconds, rate in ledger.paces.judged():
        new = ledger.spell.add(at, seconds, rate, case.objective.threshold or 0.0)
        ledger.add_time(new.asked, new.kept)


def _filled(case: _Case, window: str) -> float:
    """Return for which share of a window there are readings, on average over the servers."""
    scopes, since = case.group.scopes, case.ledger.since
    if case.objective.kind == "availability":
        seconds = 0.0 if since is None else case.round.now - since
        return min(1.0, seconds / WINDOWS[window])
    return sum(case.round.book.filled(scope.server, window) for scope in scopes) / len(scopes)


# ---------------------------------------------------------------- what is said


def _of_window(case: _Case, window: str, verdict: Verdict) -> Iterator[Sample]:
    """Yield what a window with events says."""
    objective = case.objective
    if window in objective.windows:
        yield from promise.compliance(objective, case.labels, window, verdict)
        yield from _measured(case, window, verdict)
    yield from promise.budget(objective, case.labels, window, verdict)


def _measured(case: _Case, window: str, verdict: Verdict) -> Iterator[Sample]:
    """Yield the value that the objective's own words speak of."""
    labels = (*case.labels, window)
    match case.objective.kind:
        case "latency":
            seconds = _quantile(case, window)
            if seconds is not None:
                yield c.SLA_MEASURED_SECONDS(seconds, *labels)
        case "throughput":
            asked, _, tokens = case.ledger.spell.over(window, case.round.now)
            yield c.SLA_MEASURED_TOKENS_PER_SECOND(tokens / asked, *labels)
        case "error_rate":
            bad = verdict.total - verdict.likely
            yield c.SLA_MEASURED_RATIO(bad / verdict.total, *labels)
        case _:
            yield c.SLA_MEASURED_RATIO(verdict.likely / verdict.total, *labels)


def _quantile(case: _Case, window: str) -> float | None:
    objective, census = case.objective, case.round.census
    pooled = census.pool(objective.signal, case.group.scopes, window)
    found = None if pooled is None else estimate(pooled, objective.target)
    return None if found is None else found.point


def _delivered(case: _Case) -> Iterator[Sample]:
    """Yield the tokens that a group makes, demand or none: what can be added up over nodes."""
    if case.objective.kind != "throughput":
        return
    book, direction = case.round.book, case.objective.signal.removesuffix("_tokens")
    rates = [
        tokens / seconds
        for scope in case.group.scopes
        for entity in scope.entities
        if (seconds := book.seconds(scope.server, "5m"))
        and (tokens := book.increase(c.LLM_TOKENS_TOTAL, entity, "5m", direction=direction))
        is not None
    ]
    if rates:
        yield c.SLA_DELIVERED_TOKENS_PER_SECOND(sum(rates), *case.labels)


def _counters(case: _Case) -> Iterator[Sample]:
    ledger, labels = case.ledger, case.labels
    yield from promise.counters(labels, ledger.verdict, ledger.breach)
    if case.objective.kind not in {"latency", "error_rate"}:
        return
    for reason, number in ledger.excluded._asdict().items():
        if reason != "not_measured" or case.objective.kind == "latency":
            yield c.SLA_EXCLUDED_EVENTS_TOTAL(number, *labels, reason)
