"""What is said of a promise, whatever its events are: state, compliance, budget, burn, counters.

Whoever counts events (requests of servers, jobs that start) makes a `Verdict` of each window and of
all time, and says it in these families.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import add
from typing import NamedTuple

from exporter import catalogue as c
from exporter.objectives import Objective
from exporter.samples import Metric, Sample

LIVE = "1h"
"""The window of the error budget."""

BURNS = ("5m", "30m", "1h")
"""The windows of burn rates."""

STATES = ("met", "violated", "undetermined")

ABOUT: tuple[Metric, ...] = (
    c.SLA_OBJECTIVE_INFO, c.SLA_TARGET_RATIO, c.SLA_MINIMUM_EVENTS, c.SLA_THRESHOLD_SECONDS,
    c.SLA_THRESHOLD_TOKENS_PER_SECOND,
)  # fmt: skip
SAID: tuple[Metric, ...] = (
    c.SLA_STATE, c.SLA_COMPLIANCE_RATIO, c.SLA_COMPLIANCE_LOWER_RATIO,
    c.SLA_COMPLIANCE_UPPER_RATIO, c.SLA_COMPLIANT, c.SLA_ERROR_BUDGET_REMAINING_RATIO,
    c.SLA_BURN_RATE, c.SLA_BURN_RATE_UPPER, c.SLA_EVENTS_TOTAL, c.SLA_GOOD_EVENTS_TOTAL,
    c.SLA_POSSIBLY_GOOD_EVENTS_TOTAL, c.SLA_BREACH_SECONDS_TOTAL,
)  # fmt: skip
"""The families that are said here."""

Labels = tuple[str, str, str, str, str]
"""Of an objective for one group: sla, objective, tier, model name, server."""

_SLACK = 1e-9  # of the events: what a target such as 0.999 may be off in binary


class Verdict(NamedTuple):
    """How many events there were, and how many were good: at least, probably, at most."""

    total: float = 0.0
    least: float = 0.0
    likely: float = 0.0
    most: float = 0.0

    def __add__(self, other: object) -> Verdict:
        """Return the verdict on both."""
        if not isinstance(other, Verdict):
            return NotImplemented
        return Verdict(*map(add, self, other))


NO_VERDICT = Verdict()


def state_of(objective: Objective, verdict: Verdict) -> str:
    """Return met, violated, or undetermined: too few events, or buckets that do not tell."""
    if verdict.total < max(objective.minimum_events, 1):
        return "undetermined"
    wanted = objective.target * verdict.total
    slack = _SLACK * verdict.total
    if verdict.least >= wanted - slack:
        return "met"
    return "violated" if verdict.most < wanted - slack else "undetermined"


def budget_of(objective: Objective, verdict: Verdict) -> float:
    """Return what is left of the bad events that the target allows: 1 all, below 0 overdrawn."""
    return 1 - (verdict.total - verdict.most) / _allowed(objective, verdict)


def burns_of(objective: Objective, verdict: Verdict) -> tuple[float, float]:
    """Return how fast the budget goes, by the certainly bad events and by all possibly bad."""
    allowed = _allowed(objective, verdict)
    return (verdict.total - verdict.most) / allowed, (verdict.total - verdict.least) / allowed


def _allowed(objective: Objective, verdict: Verdict) -> float:
    return (1 - objective.target) * verdict.total


def about(objective: Objective) -> Iterator[Sample]:
    """Yield what an objective is, whether or not there is anything to judge."""
    labels = (objective.sla, objective.name, objective.tier)
    yield c.SLA_OBJECTIVE_INFO(1, *labels, objective.signal, objective.statement)
    yield c.SLA_TARGET_RATIO(objective.target, *labels)
    yield c.SLA_MINIMUM_EVENTS(objective.minimum_events, *labels)
    if objective.threshold is not None:
        family = c.SLA_THRESHOLD_SECONDS
        if objective.kind == "throughput":
            family = c.SLA_THRESHOLD_TOKENS_PER_SECOND
        yield family(objective.threshold, *labels)


def states(state: str, labels: Labels) -> Iterator[Sample]:
    """Yield which state an objective is in, and in which it is not."""
    for one in STATES:
        yield c.SLA_STATE(int(one == state), *labels, one)


def compliance(
    objective: Objective, labels: Labels, window: str, verdict: Verdict
) -> Iterator[Sample]:
    """Yield which share of a window's events was good; there must be some."""
    yield c.SLA_COMPLIANCE_RATIO(verdict.likely / verdict.total, *labels, window)
    yield c.SLA_COMPLIANCE_LOWER_RATIO(verdict.least / verdict.total, *labels, window)
    yield c.SLA_COMPLIANCE_UPPER_RATIO(verdict.most / verdict.total, *labels, window)
    state = state_of(objective, verdict)
    if state != "undetermined":
        yield c.SLA_COMPLIANT(int(state == "met"), *labels, window)


def budget(objective: Objective, labels: Labels, window: str, verdict: Verdict) -> Iterator[Sample]:
    """Yield what is left of the budget and how fast it goes, where there are events enough."""
    if verdict.total < objective.minimum_events:
        return
    if window == LIVE:
        yield c.SLA_ERROR_BUDGET_REMAINING_RATIO(budget_of(objective, verdict), *labels, window)
    if window in BURNS and objective.burn_alerts:
        certain, possible = burns_of(objective, verdict)
        yield c.SLA_BURN_RATE(certain, *labels, window)
        yield c.SLA_BURN_RATE_UPPER(possible, *labels, window)


def counters(labels: Labels, verdict: Verdict, breach: float) -> Iterator[Sample]:
    """Yield all events since the beginning, and for how long the promise was broken, in seconds."""
    yield c.SLA_EVENTS_TOTAL(verdict.total, *labels)
    yield c.SLA_GOOD_EVENTS_TOTAL(verdict.least, *labels)
    yield c.SLA_POSSIBLY_GOOD_EVENTS_TOTAL(verdict.most, *labels)
    yield c.SLA_BREACH_SECONDS_TOTAL(breach, *labels)
