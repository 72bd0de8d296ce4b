"""Which events an objective counts at one server, and how many of them were good.

The denominator is what was *offered*: requests that were served, and those that the server refused,
broke off or failed. A histogram holds only what was measured, so failures are added to it as bad.
What is the client's doing (it went away, it asked for nonsense) is left out and counted by itself.

How failures and a histogram go together differs, and what is not known makes an interval:

- `failures` are told by outcome, by HTTP status, or by both. A failure mostly shows in both, so the
  larger number counts: no failure is invented, some may be missed.
- Refused requests were never measured. Of the other failures, F, some k were: a request that fails
  after its first token is in the histogram of first tokens. With n measured and w of them in time
  the events are n + F - k. Compliance is at most that where the measured failures were late ones,
  and at least that where all of them were in time.
- Histograms that are fed at the end of a request (e2e, queue) hold n - served failures: k is known.
  Of tpot only the least is (requests of one token have no tpot).
- Of ttft the most is, where each request that ended has a first token: of n first tokens as many as
  were served are of served requests, but for those whose first token came before the window. They
  were under way then, so no more of them are than were ever under way at once.
- itl counts gaps between tokens. A failed request is no gap: it is not added.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import add
from typing import NamedTuple

from exporter import catalogue as c
from exporter.derive.promise import Verdict
from exporter.derive.serving.book import Book, Entity
from exporter.derive.serving.increase import Increase
from exporter.derive.serving.quantiles import merge, within
from exporter.objectives import Objective
from exporter.samples import Metric

SIGNALS: dict[str, Metric] = {
    "ttft": c.LLM_TTFT_SECONDS,
    "tpot": c.LLM_TPOT_SECONDS,
    "itl": c.LLM_ITL_SECONDS,
    "e2e": c.LLM_E2E_SECONDS,
    "queue": c.LLM_QUEUE_SECONDS,
}
"""The histogram of each latency."""

REFUSED = ("reject*", "overload*", "rate_limit*", "too_many*")
"""Outcomes of requests that were turned away, hence never measured."""

TURNED_AWAY = "429"
"""The status of requests that were turned away because there were too many."""

FAILED = (
    "abort*", "error*", "fail*", "timeout*", "*_timeout", "internal*", "unavailable*",
    "dropped*", "incomplete*", "backend*", "generation*", "other", "cancel*", "client_abort*",
)  # fmt: skip
"""Outcomes of requests that were asked well and not served. What is in no list was served."""

CLIENT_ERRORS = (
    "invalid*", "client_error*", "validation*", "template*", "not_found*", "bad_request*",
)  # fmt: skip
"""Outcomes of requests that no server could have served."""


class Requests(NamedTuple):
    """Requests of one server over a window, or since it was first seen.

    By outcome: `served`, `failed` (`refused` ones among them), `gone` clients, `nonsense` asked.
    By HTTP status: `answered`, `broken` (`turned` away ones too), `faulty`. `first` tokens and
    `finished` requests are of its histograms. `told` is above 0 where outcomes tell what was
    served.
    """

    served: float = 0.0
    told: float = 0.0
    failed: float = 0.0
    refused: float = 0.0
    gone: float = 0.0
    nonsense: float = 0.0
    answered: float = 0.0
    broken: float = 0.0
    faulty: float = 0.0
    first: float = 0.0
    finished: float = 0.0
    turned: float = 0.0


class Counts(NamedTuple):
    """What one server counted: observations, of them at least, probably and at most in time."""

    measured: float = 0.0
    least: float = 0.0
    likely: float = 0.0
    most: float = 0.0
    requests: Requests = Requests()

    def __add__(self, other: object) -> Counts:
        """Return the counts of both."""
        if not isinstance(other, Counts):
            return NotImplemented
        measured, least, likely, most = map(add, self[:4], other[:4])
        requests = Requests(*map(add, self.requests, other.requests))
        return Counts(measured, least, likely, most, requests)


class Excluded(NamedTuple):
    """Events that were left out, by reason."""

    client_abort: float = 0.0
    client_error: float = 0.0
    not_measured: float = 0.0
    restart: float = 0.0

    def __add__(self, other: object) -> Excluded:
        """Return what was left out of both."""
        if not isinstance(other, Excluded):
            return NotImplemented
        return Excluded(*map(add, self, other))


NO_COUNTS, NONE_LEFT_OUT = Counts(), Excluded()


class Scope(NamedTuple):
    """The part of a server that an objective is about: some models on it, or all (`whole`)."""

    server: str
    entities: tuple[Entity, ...]
    whole: bool


# ---------------------------------------------------------------- counting

_OF_OUTCOME = (
    ("nonsense", CLIENT_ERRORS),
    ("refused", REFUSED),
    ("failed", FAILED),
    ("served", ("*",)),
)


class Census:
    """Counts for the objectives of one round; what several of them ask for is counted once."""

    def __init__(self, book: Book, probed: Mapping[str, Iterable[str]]) -> None:
        self._book = book
        self._probed = probed
        self._histograms: dict[tuple[str, Scope, str], list[Increase]] = {}
        self._pools: dict[tuple[str, tuple[Scope, ...], str], Increase | None] = {}
        self._working: dict[Scope, float | None] = {}
        self._carried: dict[tuple[Scope, str], float] = {}
        self._requests: dict[tuple[object, ...], Requests | None] = {}

    def count(self, objective: Objective, scope: Scope, window: str) -> Counts | None:
        """Return what a server counted over a window; None if it told nothing of the kind."""
        if objective.kind == "availability":
            return self._probes(objective, scope.server, window)
        if objective.kind == "retry_success":
            return self._retries(scope, window)
        requests = self._of_clients(objective, scope, window)
        if objective.kind != "latency":
            return None if requests is None else Counts(requests=requests)
        found = self.histograms(objective.signal, scope, window)
        if not found:
            return None
        threshold = objective.threshold or 0.0
        measured = least = likely = most = 0.0
        for one in found:
            share = within(one, threshold)
            measured += share.n
            least += share.lower
            likely += share.point
            most += share.upper
        return Counts(measured, least, likely, most, requests or self._ends(scope, window, {}))

    def histograms(self, signal: str, scope: Scope, window: str) -> list[Increase]:
        """Return what the histograms of a latency gained over a window, one for each model."""
        key = (signal, scope, window)
        found = self._histograms.get(key)
        if found is None:
            metric = SIGNALS[signal]
            some = (self._book.histogram(metric, entity, window) for entity in scope.entities)
            found = self._histograms[key] = [one for one in some if one is not None]
        return found

    def pool(self, signal: str, scopes: tuple[Scope, ...], window: str) -> Increase | None:
        """Return what the histograms of several servers gained, as one."""
        key = (signal, scopes, window)
        if key not in self._pools:
            found = [one for scope in scopes for one in self.histograms(signal, scope, window)]
            self._pools[key] = merge(found)
        return self._pools[key]

    def unmeasured(self, objective: Objective, scope: Scope, window: str) -> float | None:
        """Return the requests of a server that has no such histogram; None if there are none."""
        if objective.kind != "latency" or self.histograms(objective.signal, scope, window):
            return None
        requests = self._of_clients(objective, scope, window)
        return None if requests is None else requests.served + requests.failed

    def working(self, scope: Scope) -> float | None:
        """Return how many requests are under way; None if that is not told."""
        if scope not in self._working:
            told = [
                value
                for entity in scope.entities
                for family in (c.LLM_ACTIVE_REQUESTS, c.LLM_WAITING_REQUESTS)
                if (value := self._book.latest(family, entity)) is not None
            ]
            self._working[scope] = sum(told) if told else None
        return self._working[scope]

    def carried(self, scope: Scope, window: str) -> float:
        """Return the most requests that were ever under way in a window; inf if it is not told."""
        key = scope, window
        found = self._carried.get(key)
        if found is None:
            found = self._carried[key] = sum(self._most(one, window) for one in scope.entities)
        return found

    def _most(self, entity: Entity, window: str) -> float:
        active = self._book.gauge(c.LLM_ACTIVE_REQUESTS, entity, window)
        waiting = self._book.gauge(c.LLM_WAITING_REQUESTS, entity, window)
        if active is None:
            return math.inf
        return active.maximum + (waiting.maximum if waiting is not None else 0.0)

    def _of_clients(self, objective: Objective, scope: Scope, window: str) -> Requests | None:
        """Return the requests by outcome and by status; None if neither is told."""
        outcomes, codes = objective.excluded_outcomes, objective.excluded_codes
        key = (scope, window, outcomes, codes)
        if key not in self._requests:
            found: dict[str, float] = {}
            for entity in scope.entities:
                ends = self._book.by(c.LLM_REQUESTS_TOTAL, entity, "outcome", window)
                for outcome, number in ends.items():
                    name = _of_outcome(outcome, outcomes)
                    found[name] = found.get(name, 0.0) + number
            # By engine, once: of a server that was restarted with another one there are two.
            for entity in {one.engine: one for one in scope.entities if scope.whole}.values():
                answers = self._book.by(c.LLM_HTTP_RESPONSES_TOTAL, entity, "code", window)
                for code, number in answers.items():
                    name = _of_code(code, codes)
                    found[name] = found.get(name, 0.0) + number
            self._requests[key] = self._ends(scope, window, found) if found else None
        return self._requests[key]

    def _ends(self, scope: Scope, window: str, found: dict[str, float]) -> Requests:
        """Return requests with how many began and finished, where both are told."""
        first = self.histograms("ttft", scope, window)
        finished = self.histograms("e2e", scope, window)
        refused = found.get("refused", 0.0)
        if turned := found.get("turned", 0.0):
            found["broken"] = found.get("broken", 0.0) + turned
        if first and len(first) == len(finished):
            found["first"] = sum(one.n for one in first)
            found["finished"] = sum(one.n for one in finished)
        return Requests(**{**found, "failed": found.get("failed", 0.0) + refused},
                        told=float("served" in found))  # fmt: skip

    def _retries(self, scope: Scope, window: str) -> Counts | None:
        found = [
            (outcome == "success", number)
            for entity in scope.entities
            for outcome, number in self._book.by(
                c.LLM_RETRIES_TOTAL, entity, "outcome", window
            ).items()
        ]
        return _succeeded(found) if found else None

    def _probes(self, objective: Objective, server: str, window: str) -> Counts | None:
        """Return the probes that count: of the kind that is asked for, or the best there is."""
        wanted = probe_kind(objective, self._probed.get(server, ()))
        entity = Entity("", "", "", server)
        found = [
            (outcome == "success", number)
            for outcome in ("success", "failure")
            if (number := self._book.increase(
                c.LLM_PROBES_TOTAL, entity, window, kind=wanted, outcome=outcome
            )) is not None
        ]  # fmt: skip
        return _succeeded(found) if found else None


@lru_cache(maxsize=1024)
def is_bound(threshold: float, bounds: tuple[float, ...]) -> bool:
    """Tell whether a threshold is one of the bounds, so that nothing is left open."""
    return within(Increase(bounds, (0.0,) * (len(bounds) + 1), 0.0), threshold).aligned


def _succeeded(found: Iterable[tuple[bool, float]]) -> Counts:
    good = bad = 0.0
    for success, number in found:
        good, bad = (good + number, bad) if success else (good, bad + number)
    return Counts(requests=Requests(served=good, told=1.0, failed=bad))


@lru_cache(maxsize=1024)
def _of_outcome(outcome: str, excluded: tuple[str, ...]) -> str:
    """Return which field of `Requests` an outcome is counted in."""
    if _any(outcome, excluded):
        return "gone"
    return next(name for name, patterns in _OF_OUTCOME if _any(outcome, patterns))


def is_served(outcome: str) -> bool:
    """Tell whether a request that ended so was served to its end."""
    return _of_outcome(outcome, ()) == "served"


def is_failure(word: str, objective: Objective) -> bool:
    """Tell whether an outcome, or an HTTP status, is a failure to an objective; a refusal is."""
    if word[:1].isdigit():
        return _of_code(word, objective.excluded_codes) in {"broken", "turned"}
    return _of_outcome(word, objective.excluded_outcomes) in {"refused", "failed"}


def probe_kind(objective: Objective, kinds: Iterable[str]) -> str:
    """Return the kind of probe that counts, of those that there are: the one asked for, or best."""
    if objective.probe != "auto":
        return objective.probe
    return "completion" if "completion" in kinds else "health"


@lru_cache(maxsize=1024)
def _of_code(code: str, excluded: tuple[str, ...]) -> str:
    """Return which field of `Requests` a status code, or a class of codes, is counted in.

    429 is our refusal unless it is named itself. Of a class of which only some codes are excluded
    nobody knows how many they were: all are left out, for no failure is to be invented.
    """
    if code == TURNED_AWAY:
        return "faulty" if code in excluded else "turned"
    if _any(code, excluded) or (code[1:] == "xx" and any(one[0] == code[0] for one in excluded)):
        return "faulty"
    return "broken" if code[:1] in {"4", "5"} else "answered"


def _any(word: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(word, pattern) for pattern in patterns)


# ---------------------------------------------------------------- judging


def judge(objective: Objective, counts: Counts, carried: float = math.inf) -> Verdict:
    """Return how many events there were and how many were good.

    At most `carried` requests were under way when what is counted began.
    """
    requests = counts.requests
    failures = max(requests.failed, requests.broken)
    if objective.kind != "latency":
        served = requests.served if requests.told else requests.answered
        return Verdict(served + failures, served, served, served)
    if objective.signal == "itl":
        return Verdict(counts.measured, counts.least, counts.likely, counts.most)
    lowest, highest = _measured_failures(objective.signal, counts, failures, carried)
    late = counts.measured - counts.most
    shared = min(max(late, lowest), highest)
    least = max(0.0, counts.least - highest)
    most = max(0.0, counts.most - max(0.0, shared - late))
    total = counts.measured + failures - shared
    return Verdict(total, least, min(max(counts.likely, least), most), most)


def is_certain(objective: Objective, counts: Counts) -> bool:
    """Tell whether a latency's verdict leaves nothing open, however these have come together."""
    requests = counts.requests
    failed = objective.signal != "itl" and max(requests.failed, requests.broken) > 0
    return not failed and counts.least == counts.most


def _measured_failures(
    signal: str, counts: Counts, failures: float, carried: float
) -> tuple[float, float]:
    """Return how many failures are in the histogram: at least, and at most."""
    requests = counts.requests
    refused = max(requests.refused, requests.turned)
    highest = min(max(0.0, failures - refused), counts.measured)
    if not requests.told:
        return 0.0, highest
    others = counts.measured - requests.served
    if signal == "ttft":
        # Some engines time the first tokens of streams only.
        each = requests.first + carried >= requests.finished > 0
        return 0.0, min(highest, max(0.0, others + carried)) if each else highest
    lowest = min(max(0.0, others), highest)
    return (lowest, highest) if signal == "tpot" else (lowest, lowest)


def exclude(
    objective: Objective, counts: Counts, working: float, begun: float, lost: float
) -> Excluded:
    """Return what was left out since a server was first seen.

    `working` requests are under way now, `begun` were when it was first seen, `lost` when it was
    restarted. Some engines hide requests whose client went away (vllm#31503): they have a first
    token, no end, and are not under way.
    """
    if objective.kind not in {"latency", "error_rate"}:
        return Excluded()
    requests = counts.requests
    failures = max(requests.failed, requests.broken)
    ended = max(0.0, requests.finished - requests.served) if requests.told else 0.0
    failed = max(0.0, failures - max(requests.refused, requests.turned) - ended)
    hidden = max(0.0, requests.first - requests.finished - failed - working - lost)
    gone = requests.gone if objective.signal == "ttft" else max(requests.gone, hidden)
    missing = 0.0
    if objective.signal == "itl":
        missing = failures
    elif objective.kind == "latency":
        missing = max(0.0, requests.served - counts.measured - begun)
    return Excluded(gone, max(requests.nonsense, requests.faulty), missing, lost)
