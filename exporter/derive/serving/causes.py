"""Why an objective is violated: the top contributor that can be seen from here.

What is checked, in which order and from which number on, stands in `CHECKS` and in docs/serving.md.
A cause is a place to look at first, no proof. Hard facts (a stall, heat, a broken link) come
before shares of time, and what makes a queue before the queue. The evidence is a label, so its
numbers move in coarse steps.

    sla_breach_cause{sla="inference_sla",objective="ttft_p95",tier="",model_name="",server="",
        cause="queue",evidence="60 %+ of the time is waiting"} 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from exporter import catalogue as c
from exporter.derive.serving.book import WINDOWS, Book
from exporter.derive.serving.node import Node
from exporter.derive.serving.stalls import Stalls
from exporter.derive.serving.tally import FAILED, SIGNALS, TURNED_AWAY
from exporter.objectives import Objective
from exporter.samples import Metric, Sample, View

FULL = 0.95
"""Usage of the KV cache above which it counts as full."""

WAITING_SHARE = 0.4
"""Share of the latency that waiting, or computing prompts, must have to be a cause."""

THROTTLED_SHARE = 0.2
"""Share of the window with clocks held down by heat or a power brake that makes a cause."""

CAPPED_SHARE = 0.5
"""The same for the power limit, which a busy GPU meets all the time: only where nothing else is."""

PREEMPTED_SHARE = 0.01
ERROR_SHARE = 0.001
"""Share of failed requests that explains an error rate, or failed probes."""

FAILING_SHARE = 0.2
"""The same for a throughput that is too low: requests that fail are not served."""

PORT_ERRORS = 10.0
"""Errors on the node's network ports within the window; the least for NVLink is 1."""

STEPS = (0.8, 0.6, 0.4, 0.2, 0.05, 0.01, 0.001)
"""What shares are rounded down to in the evidence."""

_SLACK = 1e-9  # what a share such as 0.01 may be off in binary

OUTPUTS = (c.SLA_BREACH_CAUSE,)


class Violation(Protocol):
    """An objective that is violated, for which model and server; empty where it is for all.

    The judge of objectives gives these (`sla.Sla.violated`); any other may.
    """

    @property
    def objective(self) -> Objective: ...  # noqa: D102
    @property
    def model_name(self) -> str: ...  # noqa: D102
    @property
    def server(self) -> str: ...  # noqa: D102


class Causes:
    """The part that names a cause for each objective that `violated` returns.

    It comes after the parts that it asks: `violated` and `stalls` tell what they found this round.
    """

    def __init__(
        self, violated: Callable[[], Iterable[Violation]], stalls: Stalls, node: Node
    ) -> None:
        self._violated = violated
        self._stalls = stalls
        self._node = node

    def __call__(self, book: Book, view: View, now: float) -> Iterator[Sample]:
        """Yield a cause for each violated objective."""
        self._node.observe(view, now)
        for violation in self._violated():
            objective = violation.objective
            about = violation.model_name, violation.server
            cause, evidence = find(_Scene(book, self._node, self._stalls, violation))
            labels = objective.sla, objective.name, objective.tier, *about
            yield c.SLA_BREACH_CAUSE(1.0, *labels, cause, evidence)


class _Scene:
    """What can be seen of the servers that an objective is about, over its window."""

    def __init__(self, book: Book, node: Node, stalls: Stalls, violation: Violation) -> None:
        objective = self.objective = violation.objective
        self.window = objective.window
        self.entities = [
            entity
            for entity in book.entities()
            if objective.selects(entity.model_name, entity.server)
            and violation.model_name in ("", entity.model_name)
            and violation.server in ("", entity.server)
        ]
        self.servers = list(dict.fromkeys(entity.server for entity in self.entities))
        self.stalled = not stalls.stalled().isdisjoint(self.entities)
        self._book = book
        self._node = node

    def rise(self, metric: Metric) -> float:
        """Return by how much a counter rose, over all that are meant; what is unknown adds 0."""
        rises = (self._book.increase(metric, e, self.window) for e in self.entities)
        return sum(rise or 0.0 for rise in rises)

    def mean(self, metric: Metric) -> float | None:
        """Return the mean of a latency over all that are meant."""
        found = [self._book.histogram(metric, e, self.window) for e in self.entities]
        number = sum(one.n for one in found if one is not None)
        return sum(one.total for one in found if one is not None) / number if number else None

    def ended(self) -> float:
        """Return the requests that ended, over all that are meant."""
        found = [self._book.histogram(c.LLM_E2E_SECONDS, e, self.window) for e in self.entities]
        return sum(one.n for one in found if one is not None)

    def highest(self, metric: Metric) -> float:
        """Return the most that a gauge was at any of those that are meant."""
        found = [self._book.gauge(metric, e, self.window) for e in self.entities]
        return max((one.maximum for one in found if one is not None), default=0.0)

    def seconds(self) -> float:
        """Return the time that the window covers, summed over servers."""
        return sum(self._book.seconds(server, self.window) for server in self.servers)

    def ends(self) -> dict[str, float]:
        """Return requests by how they ended, in words of the engine or as HTTP status."""
        found: dict[str, float] = {}
        for entity in self.entities:
            told = self._book.by(c.LLM_REQUESTS_TOTAL, entity, "outcome", self.window)
            for outcome, number in told.items():
                found[outcome] = found.get(outcome, 0.0) + number
        return found

    def codes(self) -> dict[str, float]:
        """Return HTTP responses by status, over the servers that are meant."""
        found: dict[str, float] = {}
        for server in self.servers:
            entity = next(e for e in self.entities if e.server == server)
            told = self._book.by(c.LLM_HTTP_RESPONSES_TOTAL, entity, "code", self.window)
            for code, number in told.items():
                found[code] = found.get(code, 0.0) + number
        return found

    def throttled(self, *, power: bool) -> float:
        """Return the largest share of the window with clocks held down, by power limit or else."""
        window = WINDOWS[self.window]
        shares = [self._node.throttled(s, window, power=power) for s in self.servers]
        return max((share for share in shares if share is not None), default=0.0)

    def nvlink_errors(self) -> float:
        """Return the errors on NVLinks of the servers' GPUs."""
        return sum(self._node.nvlink_errors(s, WINDOWS[self.window]) for s in self.servers)

    def port_errors(self) -> float:
        """Return the errors on links of the node's network ports."""
        return self._node.port_errors(WINDOWS[self.window]) if self.servers else 0.0


@dataclass(frozen=True, slots=True)
class Check:
    """One look at a scene: the cause it finds, for which kinds or signals, and the evidence.

    `look` returns the evidence in words, or nothing.
    """

    cause: str
    about: tuple[str, ...]
    look: Callable[[_Scene], str]


def find(scene: _Scene) -> tuple[str, str]:
    """Return the first cause that there is evidence for, and the evidence."""
    objective = scene.objective
    about = objective.signal if objective.kind == "latency" else objective.kind
    for check in CHECKS:
        if about in check.about and (evidence := check.look(scene)):
            return check.cause, evidence
    return "unknown", ""


def step(share: float) -> str:
    """Return a share in words, rounded down to one of `STEPS`."""
    found = next((one for one in STEPS if share >= one - _SLACK), 0.0)
    return f"{found * 100:g} %+"


def _stall(scene: _Scene) -> str:
    return "requests wait, no progress for a minute" if scene.stalled else ""


def _errors(scene: _Scene) -> str:
    return _failures(scene, ERROR_SHARE)


def _failing(scene: _Scene) -> str:
    return _failures(scene, FAILING_SHARE)


def _failures(scene: _Scene, least: float) -> str:
    """Name the largest kind of failure, if failures are so large a share."""
    for told in (scene.ends(), scene.codes()):
        failures = {word: number for word, number in told.items() if _is_failure(word)}
        if failures and sum(failures.values()) >= least * sum(told.values()) > 0:
            word = max(failures, key=lambda one: failures[one])
            return f"{word}: {step(failures[word] / sum(told.values()))} of requests"
    return ""


def _is_failure(word: str) -> bool:
    return (
        word.startswith("5")
        or word == TURNED_AWAY
        or any(fnmatchcase(word, pattern) for pattern in FAILED)
    )


def _heat(scene: _Scene) -> str:
    share = scene.throttled(power=False)
    return f"heat or brake {step(share)} of the time" if share >= THROTTLED_SHARE else ""


def _power(scene: _Scene) -> str:
    share = scene.throttled(power=True)
    return f"power limit {step(share)} of the time" if share >= CAPPED_SHARE else ""


def _links(scene: _Scene) -> str:
    if scene.nvlink_errors() >= 1:
        return "errors on NVLink"
    return "errors on network ports" if scene.port_errors() >= PORT_ERRORS else ""


def _full(scene: _Scene) -> str:
    if scene.highest(c.LLM_KV_CACHE_USAGE_RATIO) <= FULL:
        return ""
    pressed = scene.highest(c.LLM_WAITING_REQUESTS) > 0 or scene.rise(c.LLM_PREEMPTIONS_TOTAL) > 0
    return f"above {FULL * 100:g} % while requests wait" if pressed else ""


def _preempted(scene: _Scene) -> str:
    number, ended = scene.rise(c.LLM_PREEMPTIONS_TOTAL), scene.ended()
    if not ended or number < PREEMPTED_SHARE * ended:
        return ""
    return f"{step(number / ended)} of requests"


def _waiting(scene: _Scene) -> str:
    queue, prefill = _shares(scene)
    if queue < WAITING_SHARE or queue < prefill:
        return ""
    return f"{step(queue)} of the time is waiting"


def _prompts(scene: _Scene) -> str:
    _, prefill = _shares(scene)
    return f"{step(prefill)} of the time is prompts" if prefill >= WAITING_SHARE else ""


def _shares(scene: _Scene) -> tuple[float, float]:
    """Return the shares of a latency that are waiting, and prompts; 0 where it is not told."""
    signal = "e2e" if scene.objective.signal == "queue" else scene.objective.signal
    whole, waited = scene.mean(SIGNALS[signal]), scene.mean(c.LLM_QUEUE_SECONDS)
    if scene.objective.signal == "queue":
        return (1.0 if waited else 0.0), 0.0
    if not whole:
        return 0.0, 0.0
    ended = scene.ended()
    prompts = scene.rise(c.LLM_PREFILL_SECONDS_TOTAL) / ended if ended else 0.0
    return min(1.0, (waited or 0.0) / whole), min(1.0, prompts / whole)


def _interrupted(scene: _Scene) -> str:
    """Tell whether prompts take so much of the engine's time that tokens come late."""
    seconds = scene.seconds()
    share = min(1.0, scene.rise(c.LLM_PREFILL_SECONDS_TOTAL) / seconds) if seconds else 0.0
    return f"prompts {step(share)} of the time" if share >= WAITING_SHARE else ""


_FIRST = ("ttft", "queue", "e2e")
_TOKENS = ("tpot", "itl", "throughput")
_TIMES = (*_FIRST, *_TOKENS)
_ANSWERS = ("error_rate", "availability", "retry_success")

CHECKS: Sequence[Check] = (
    Check("stall", (*_TIMES, *_ANSWERS), _stall),
    Check("errors", _ANSWERS, _errors),
    Check("gpu_throttled", _TIMES, _heat),
    Check("link_errors", _TIMES, _links),
    Check("preemption", ("tpot", "itl"), _preempted),
    Check("kv_cache_full", (*_FIRST, "throughput"), _full),
    Check("preemption", ("e2e", "throughput"), _preempted),
    Check("queue", _FIRST, _waiting),
    Check("prefill", ("ttft", "e2e"), _prompts),
    Check("prefill", _TOKENS, _interrupted),
    Check("errors", ("throughput",), _failing),
    Check("gpu_throttled", _TIMES, _power),
)
"""What is looked at, in this order; the first that finds evidence names the cause."""
