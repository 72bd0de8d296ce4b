"""Whether what was promised of training jobs is kept: `training_sla`.

Events are few, so the window is an hour, and a single one is judged: a job that was submitted and
did its first step (`job_start_latency`), a job that ended, well or by failing (`job_failure_rate`),
a job that went on after a failure (`checkpoint_recovery_time`). Longer windows are the rules' in
`alerts/sla.yaml`, which add up the counters of all nodes.

    sla_compliance_ratio{sla="training_sla",objective="job_start_latency_p95",...,window="1h"} 1
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from exporter import catalogue as c
from exporter.derive import promise
from exporter.derive.promise import NO_VERDICT, Labels, Verdict
from exporter.derive.training.lifecycle import Happened
from exporter.derive.training.run import Run
from exporter.objectives import Objective
from exporter.samples import Metric, Sample, View

OUTPUTS: tuple[Metric, ...] = (
    *promise.ABOUT, *promise.SAID, c.SLA_MEASURED_SECONDS, c.SLA_MEASURED_RATIO,
    c.SLA_WINDOW_FILLED_RATIO,
)  # fmt: skip
"""What comes of it."""

WINDOWS = {"1m": 60.0, "5m": 300.0, "30m": 1800.0, "1h": 3600.0}

MOST = 10_000
"""Events of an objective that are remembered for its windows; there are a few in an hour."""

LONGEST_ROUND = 600.0
"""Seconds that one round can stand for."""

_EVENTS = {
    "job_start_latency": ("first_step",),
    "job_failure_rate": ("failed", "ended"),
    "checkpoint_recovery_time": ("recovered",),
}


class Promises:
    """The part that judges; `happened` gives what has counted since it was asked last."""

    def __init__(
        self, objectives: Iterable[Objective], happened: Callable[[], Sequence[Happened]]
    ) -> None:
        self._kept = [_Kept(one) for one in objectives if one.kind == "training"]
        self._happened = happened

    def __call__(self, _run: Run, _view: View, _now: float) -> Iterable[Sample]:
        """Nothing is promised of one run."""
        return ()

    def totals(self, now: float) -> Iterator[Sample]:
        """Yield what is to be said of each objective."""
        happened = self._happened()
        for kept in self._kept:
            kept.take(happened, now)
            yield from kept.say(now)

    def memory(self) -> list[list[Any]]:
        """Return what was counted, for `restore`."""
        return [kept.memory() for kept in self._kept]

    def restore(self, memory: Any, now: float, age: float) -> None:
        """Take over what another one had counted `age` seconds ago. Raises what a wrong one does.

        Objectives that have changed since begin anew.
        """
        found = {str(entry[0]): entry for entry in memory}
        for kept in self._kept:
            if (entry := found.get(repr(kept.objective))) is not None:
                kept.restore(entry, now - age)


class _Kept:
    """One objective, its events of the last hour, and how many there ever were."""

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self._events: deque[tuple[float, bool, float | None]] = deque(maxlen=MOST)
        self._all = NO_VERDICT
        self._breach = 0.0
        self._violated = False
        self._since: float | None = None
        self._now: float | None = None

    @property
    def labels(self) -> Labels:
        return self.objective.sla, self.objective.name, self.objective.tier, "", ""

    def take(self, happened: Iterable[Happened], now: float) -> None:
        """Count what has happened; `now` is monotonic seconds."""
        passed = 0.0 if self._now is None else min(max(0.0, now - self._now), LONGEST_ROUND)
        self._breach += passed if self._violated else 0.0
        self._now = now
        self._since = now if self._since is None else self._since
        for one in happened:
            if one.kind in _EVENTS[self.objective.signal]:
                good = self._is_good(one)
                self._events.append((now, good, one.seconds))
                self._all += _one(good=good)
        while self._events and now - self._events[0][0] > max(WINDOWS.values()):
            self._events.popleft()

    def _is_good(self, one: Happened) -> bool:
        if self.objective.threshold is None:
            return one.kind != "failed"
        return one.seconds is not None and one.seconds <= self.objective.threshold

    def say(self, now: float) -> Iterator[Sample]:
        """Yield all samples of the objective."""
        objective, labels = self.objective, self.labels
        yield from promise.about(objective)
        state = promise.state_of(objective, self._verdict(objective.window, now))
        self._violated = state == "violated"
        yield from promise.states(state, labels)
        for window in dict.fromkeys((*objective.windows, objective.window, promise.LIVE)):
            verdict = self._verdict(window, now)
            if verdict.total > 0:
                if window in objective.windows:
                    yield from promise.compliance(objective, labels, window, verdict)
                    yield from self._measured(window, verdict, now)
                yield from promise.budget(objective, labels, window, verdict)
            filled = min(1.0, (now - (self._since or now)) / WINDOWS[window])
            yield c.SLA_WINDOW_FILLED_RATIO(filled, *labels, window)
        yield from promise.counters(labels, self._all, self._breach)

    def _within(self, window: str, now: float) -> list[tuple[bool, float | None]]:
        begin = now - WINDOWS[window]
        return [(good, seconds) for taken, good, seconds in self._events if taken > begin]

    def _verdict(self, window: str, now: float) -> Verdict:
        return sum((_one(good=good) for good, _ in self._within(window, now)), NO_VERDICT)

    def _measured(self, window: str, verdict: Verdict, now: float) -> Iterator[Sample]:
        """Yield the value that the objective's own words speak of."""
        if self.objective.threshold is None:
            bad = verdict.total - verdict.likely
            yield c.SLA_MEASURED_RATIO(bad / verdict.total, *self.labels, window)
            return
        times = sorted(s for _, s in self._within(window, now) if s is not None)
        if times:  # the least time that so large a share of the events keeps
            at = max(0, math.ceil(self.objective.target * len(times) - 1e-9) - 1)
            yield c.SLA_MEASURED_SECONDS(times[at], *self.labels, window)

    def memory(self) -> list[Any]:
        """Return all of it as JSON can hold it; times are ages."""
        now = self._now or 0.0
        events = [[now - taken, good, seconds] for taken, good, seconds in self._events]
        since = None if self._since is None else now - self._since
        return [repr(self.objective), list(self._all), self._breach, since, events]

    def restore(self, memory: Sequence[Any], then: float) -> None:
        """Take over what `memory` told at `then`; raises if that makes no sense."""
        _, counted, breach, since, events = memory
        total, least, likely, most = map(float, counted)
        verdict = Verdict(total, least, likely, most)
        if not all(0 <= number < math.inf for number in (*verdict, float(breach))):
            raise ValueError("a counter is no number, or negative")
        found = [
            (then - float(age), bool(good), None if seconds is None else float(seconds))
            for age, good, seconds in events
        ]
        self._all, self._breach = verdict, float(breach)
        self._since = None if since is None else then - float(since)
        self._events = deque(found, maxlen=MOST)


def _one(*, good: bool) -> Verdict:
    share = float(good)
    return Verdict(1.0, share, share, share)
