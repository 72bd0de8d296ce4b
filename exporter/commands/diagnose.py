"""`flopwatch diagnose`: observation, hypothesis, and what to measure next, for each run.

The five steps of the specification's loop (16.3.1). What is observed and concluded stands on the
page; what it means, which command measures it and what helps is looked up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from exporter.commands.pages import Page
from exporter.config import ConfigError
from exporter.derive.diagnosis.advice import ADVICE, PROBLEMS
from exporter.derive.diagnosis.tree import (
    BOTTLENECKS,
    CAUSES,
    ROWS,
    Condition,
    Row,
    Signals,
    Thresholds,
    decide,
)

SIGNALS = ("diagnosis_signal_ratio", "diagnosis_signal_per_second")
LIMITS = ("diagnosis_threshold_ratio", "diagnosis_threshold_per_second")
COMMUNICATION = frozenset({"communication_bound", "exposed_communication"})
"""Findings for which the table of common problems is shown."""


class Diagnosis(NamedTuple):
    """What a page says of one run. `row` is None while no answer counts."""

    run: str
    signals: Signals
    thresholds: Thresholds
    row: Row | None
    confirmed: bool | None
    causes: dict[str, bool]

    @property
    def found(self) -> list[str]:
        """The bottleneck, then the causes that are seen."""
        return [*([self.row.bottleneck] if self.row else ()), *self.seen]

    @property
    def seen(self) -> list[str]:
        """The causes that are seen; tensor cores at work are none."""
        return [name for name, so in self.causes.items() if so and name != "tensor_active"]


def diagnoses(page: Page, run: str | None) -> list[Diagnosis]:
    """Return what a page says of each run, or of one. Raises `ConfigError` if that is nothing."""
    runs = list(dict.fromkeys(name for family in SIGNALS for name in page.values_of(family, "run")))
    if not runs:
        raise ConfigError(
            f"{page.name}: has no diagnosis_signal_ratio: nothing is diagnosed there (no run and no"
            " busy GPU, diagnosis.enabled is false, or the daemon has only begun)"
        )
    if run is not None and run not in runs:
        there = ", ".join(repr(one) for one in runs[:10])
        raise ConfigError(f"{page.name}: nothing is said of run {run!r}; there are {there}")
    return [_of_run(page, one) for one in runs if run is None or one == run]


def _of_run(page: Page, run: str) -> Diagnosis:
    limits = {
        one.labels["threshold"]: one.value for family in LIMITS for one in page.all(family)
        if one.labels.get("threshold") in Thresholds._fields
    }  # fmt: skip
    told = page.all("diagnosis_bottleneck", run=run)
    answer = next((one.labels["bottleneck"] for one in told if one.value == 1), "")
    sure = page.value("diagnosis_confirmed", run=run)
    causes = {one.labels["cause"]: one.value == 1 for one in page.all("diagnosis_cause", run=run)}
    return Diagnosis(
        run=run,
        signals=dict(_signals(page, run)),
        thresholds=Thresholds()._replace(**limits),
        row=BOTTLENECKS.get(answer),
        confirmed=None if sure is None else sure == 1,
        causes={cause.name: causes[cause.name] for cause in CAUSES if cause.name in causes},
    )  # fmt: skip


def _signals(page: Page, run: str) -> Iterator[tuple[str, float]]:
    for family in SIGNALS:
        for one in page.all(family, run=run):
            yield one.labels["signal"], one.value


# ---------------------------------------------------------------- in words


def lines(one: Diagnosis) -> Iterator[str]:
    """Yield the five steps for one run."""
    yield f"{one.run or 'GPUs without a run'}"
    yield "1. Observe"
    yield from (f"   {name:<22} {_figure(name, value)}" for name, value in one.signals.items())
    yield f"2. Hypothesize: {_answer(one)}"
    yield from (f"   {line}" for line in _reasons(one))
    yield "3. Measure next"
    yield from (f"   {command}" for command in _commands(one))
    yield "4. Optimize"
    yield from (f"   {name}: {ADVICE[name].helps}" for name in one.found)
    if COMMUNICATION.intersection(one.found):
        yield "   common problems of communication:"
        yield from (f"   {line}" for line in _problems(one))
    yield "5. Verify"
    yield "   flopwatch capture before.prom; change one thing; flopwatch capture after.prom"
    yield "   flopwatch verify before.prom after.prom"


def _answer(one: Diagnosis) -> str:
    if one.row is None:
        return "open"
    sure = {True: "; what is measured bears it out", False: "; what is measured contradicts it",
            None: "; nothing is measured that would prove it"}[one.confirmed]  # fmt: skip
    return f"{one.row.words}{sure}"


def _reasons(one: Diagnosis) -> Iterator[str]:
    if one.row is None:
        yield from _why_open(one)
    else:
        yield ADVICE[one.row.bottleneck].means
        verdict = decide(one.signals, one.thresholds)
        if verdict is not None and verdict.row is one.row:
            yield from (_compared(condition, one) for condition in verdict.asked)
        elif verdict is not None:
            yield f"just now the signals say {verdict.row.words}; that has not stood long enough"
    evidence = {cause.name: cause.evidence(one.signals, one.thresholds) for cause in CAUSES}
    for name, condition in evidence.items():
        if condition is not None and one.causes.get(name):
            yield f"seen: {name} ({_compared(condition, one)})"
    unseen = ", ".join(
        f"{name} ({_figure(condition.signal, one.signals[condition.signal])})"
        for name, condition in evidence.items()
        if condition is not None and not one.causes.get(name)
    )
    unknown = ", ".join(name for name, condition in evidence.items() if condition is None)
    yield from (f"{word}: {names}" for word, names in (("not seen", unseen), ("not known", unknown))
                if names)  # fmt: skip


def _why_open(one: Diagnosis) -> Iterator[str]:
    """Yield which signal is missing, of the first row that it leaves open."""
    for row in ROWS:
        if row.holds(one.signals, one.thresholds) is None:
            missing = [each.signal for each in row.conditions if each.signal not in one.signals]
            yield f"{', '.join(missing)} is not known, so that it may be {row.words}"
            return
    yield "no answer has stood long enough (diagnosis.hold)"


def _compared(condition: Condition, one: Diagnosis) -> str:
    name, value = condition.signal, one.signals[condition.signal]
    limit = float(getattr(one.thresholds, condition.threshold))
    kept = condition.holds(one.signals, one.thresholds)
    side = condition.side if kept else f"not {condition.side}"
    return f"{name} {_figure(name, value)} is {side} {_figure(name, limit)} ({condition.threshold})"


def _figure(name: str, value: float) -> str:
    return f"{value:.3g}/s" if name.endswith("_rate") else f"{value:.1%}"


def _commands(one: Diagnosis) -> Iterator[str]:
    """Yield what to run, each once."""
    run = one.run or "node"
    found = one.found or ["mixed"]
    wanted = dict.fromkeys(command for name in found for command in ADVICE[name].measure)
    yield from (command.replace("{run}", run) for command in wanted)


def _problems(one: Diagnosis) -> Iterator[str]:
    for problem in PROBLEMS:
        told = [one.causes[name] for name in problem.causes if name in one.causes]
        word = "seen" if any(told) else "not seen" if told else "not known"
        yield f"- {problem.problem} ({word}): {problem.symptom}; see {problem.diagnosis};"
        yield f"  {problem.fix}"


def plain(one: Diagnosis) -> dict[str, Any]:
    """Return all of it as JSON can hold it."""
    return {
        "run": one.run,
        "signals": dict(one.signals),
        "thresholds": one.thresholds._asdict(),
        "bottleneck": None if one.row is None else one.row.bottleneck,
        "words": None if one.row is None else one.row.words,
        "confirmed": one.confirmed,
        "causes": one.causes,
        "why": list(_reasons(one)),
        "measure": list(_commands(one)),
        "optimize": {name: ADVICE[name].helps for name in one.found},
        "problems": [
            {**problem._asdict(), "causes": {n: one.causes.get(n) for n in problem.causes}}
            for problem in PROBLEMS
        ],
    }
