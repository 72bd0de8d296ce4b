"""Which bottleneck each run has, from what the board tells: the tree, with patience.

`tree` holds the rows, `signals` what is known, `advice` what to do. An answer counts once it has
stood for a while (`hold`), so that a step that is slow once does not turn the state; where an input
is missing there is none. GPUs that belong to no run and to no inference server are judged together
under `run=""`, while they have something to do.

    diagnosis_bottleneck{run="llama-7b",bottleneck="communication_bound"} 1
    diagnosis_confirmed{run="llama-7b"} 1
    diagnosis_cause{run="llama-7b",cause="exposed_communication"} 1
    diagnosis_signal_ratio{run="llama-7b",signal="communication"} 0.34
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from exporter import catalogue as c
from exporter.derive.derivation import Derivation
from exporter.derive.diagnosis import signals as known
from exporter.derive.diagnosis.signals import Subject, Window
from exporter.derive.diagnosis.tree import (
    BOTTLENECKS,
    CAUSES,
    SIGNALS,
    Signals,
    Thresholds,
    borne_out,
    decide,
    seen,
)
from exporter.derive.memory import Memory
from exporter.samples import Sample, View

NAME = "diagnosis"

_T = TypeVar("_T")


def diagnosis(
    thresholds: Thresholds = Thresholds(),  # noqa: B008 - it does not change
    window: float = 60.0,
    hold: float = 30.0,
) -> Derivation:
    """Return the derivation. `window` is what signals are taken over, in seconds.

    An answer counts once it has stood for `hold` seconds.
    """
    return Derivation(
        name=NAME,
        group=c.DIAGNOSIS,
        inputs=known.INPUTS,
        outputs=(
            c.DIAGNOSIS_BOTTLENECK, c.DIAGNOSIS_CONFIRMED, c.DIAGNOSIS_CAUSE,
            c.DIAGNOSIS_SIGNAL_RATIO, c.DIAGNOSIS_SIGNAL_PER_SECOND,
            c.DIAGNOSIS_THRESHOLD_RATIO, c.DIAGNOSIS_THRESHOLD_PER_SECOND,
        ),
        function=_Diagnosis(thresholds, window, hold),
    )  # fmt: skip


class Held(Generic[_T]):
    """An answer that turns only when another one has stood for `hold` seconds.

    While there is none, none is told; if the former one comes back soon, it goes on.
    """

    __slots__ = ("_hold", "_new", "_now", "_seen", "_since")

    def __init__(self, hold: float) -> None:
        self._hold = hold
        self._now: _T | None = None
        self._new: _T | None = None
        self._since = 0.0
        self._seen = 0.0

    def tell(self, answer: _T | None, now: float) -> _T | None:
        """Take this round's answer; return the one that counts."""
        if answer is None:
            return None
        if now - self._seen > self._hold:
            self._now = self._new = None
        self._seen = now
        if answer != self._new:
            self._new, self._since = answer, now
        if now - self._since >= self._hold:
            self._now = answer
        return self._now


class _Diagnosis:
    def __init__(self, thresholds: Thresholds, window: float, hold: float) -> None:
        self._thresholds = thresholds
        self._window = window
        self._hold = hold
        self._rows: dict[str, Held[str]] = {}
        self._causes: dict[tuple[str, str], Held[bool]] = {}

    def __call__(self, view: View, memory: Memory, now: float) -> Iterator[Sample]:
        subjects = self._subjects(view, now)
        told = known.gather(view, subjects, Window(memory, self._window, now))
        judged = self._known(told)
        for run in judged:
            yield from self._judged(run, told[run], now)
        if judged:
            yield from _limits(self._thresholds)

    def _subjects(self, view: View, now: float) -> list[Subject]:
        """Return the runs, and the GPUs that nobody is known to use."""
        gpus, runs = known.gpus_of_runs(view, now), known.runs_present(view, now)
        taken = frozenset[str]().union(*gpus.values()) | known.gpus_of_servers(view, now)
        rest = known.gpus_present(view, now) - taken
        found = [Subject(run, gpus.get(run, frozenset())) for run in sorted(runs)]
        # A run of which nobody knows the GPUs may be on any of those that are left.
        if rest and all(one.gpus for one in found):
            found.append(Subject("", rest))
        return found

    def _known(self, told: Mapping[str, Signals]) -> list[str]:
        """Return who is judged; forget what was held of others."""
        self._rows = {run: one for run, one in self._rows.items() if run in told}
        self._causes = {key: one for key, one in self._causes.items() if key[0] in told}
        idle = self._thresholds.idle_utilization
        return [run for run in told if run or told[run].get("gpu_utilization", 0.0) > idle]

    def _judged(self, run: str, signals: Signals, now: float) -> Iterator[Sample]:
        for name in SIGNALS:
            if name in signals:
                yield _family(name)(signals[name], run, name)
        causes: dict[str, bool] = {}
        for name, so in seen(signals, self._thresholds).items():
            held = self._causes.setdefault((run, name), Held(self._hold)).tell(so, now)
            if held is not None:
                causes[name] = held
                yield c.DIAGNOSIS_CAUSE(int(held), run, name)
        verdict = decide(signals, self._thresholds)
        answer = None if verdict is None else verdict.row.bottleneck
        held_row = self._rows.setdefault(run, Held(self._hold)).tell(answer, now)
        if held_row is None:
            return
        for bottleneck in BOTTLENECKS:
            yield c.DIAGNOSIS_BOTTLENECK(int(bottleneck == held_row), run, bottleneck)
        sure = borne_out(BOTTLENECKS[held_row], causes)
        if sure is not None:
            yield c.DIAGNOSIS_CONFIRMED(int(sure), run)


def _family(signal: str) -> Callable[..., Sample]:
    if signal.endswith("_rate"):
        return c.DIAGNOSIS_SIGNAL_PER_SECOND
    return c.DIAGNOSIS_SIGNAL_RATIO


def _limits(thresholds: Thresholds) -> Iterator[Sample]:
    """Yield what the conditions are held against."""
    for name, value in thresholds._asdict().items():
        family = c.DIAGNOSIS_THRESHOLD_RATIO
        if name.endswith("_rate"):
            family = c.DIAGNOSIS_THRESHOLD_PER_SECOND
        yield family(value, name)


__all__ = ["CAUSES", "NAME", "Held", "Thresholds", "diagnosis"]
