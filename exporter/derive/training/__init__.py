"""Training runs over time: progress, efficiency, where the FLOPs go, what is lost.

One derivation, since all of it rests on one truth about each run. `Run` is that truth: which reader
is believed, merged facts, whether it lives. Parts are asked once each round for every run, and
yield samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from exporter import catalogue as c
from exporter.derive.derivation import Derivation
from exporter.derive.memory import Memory
from exporter.derive.training.run import Run
from exporter.derive.training.stated import Accelerator, Baseline, Stated, stated_of
from exporter.samples import Malformed, Metric, Sample, View
from exporter.training import TrackedRun, TrainingLedger

NAME = "training"

AGAIN = 60.0
"""Seconds after which the ledger is asked even though nothing was told: it forgets old runs."""


class Part(Protocol):
    """One thing that is derived of each run."""

    def __call__(self, run: Run, view: View, now: float, /) -> Iterable[Sample]:
        """Return the samples of one run for this round, whatever its status."""


@runtime_checkable
class Sums(Protocol):
    """A part that has something to say of all runs together."""

    def totals(self, now: float) -> Iterable[Sample]:
        """Return that, after the part was called for each run."""


@runtime_checkable
class Forgets(Protocol):
    """A part that keeps something of each run."""

    def forget(self, run: str) -> None:
        """Drop it: the run is gone."""


@runtime_checkable
class Remembers(Protocol):
    """A part that knows what readers cannot tell again."""

    def memory(self) -> object:
        """Return it, as of the last round, as JSON can hold it."""

    def restore(self, memory: Any, now: float, age: float) -> None:
        """Take over what another one remembered `age` seconds ago, before the first round.

        Raises some kind of `ValueError`, `TypeError` or `LookupError` if that is something else.
        """


def training(
    ledger: TrainingLedger,
    wall: Callable[[float], float],
    statements: Sequence[Stated] = (),
) -> Derivation:
    """Return the derivation over what the ledger keeps.

    `wall` turns a monotonic moment into Unix seconds; `statements` are the operator's.
    """
    parts: tuple[Part, ...] = ()
    run = _Training(ledger, wall, statements, parts)
    return Derivation(
        name=NAME,
        group=c.TRAINING,
        inputs=INPUTS,
        outputs=OUTPUTS,
        function=run,
        memory=run.memory,
        restore=run.restore,
    )


INPUTS: tuple[Metric, ...] = ()
OUTPUTS: tuple[Metric, ...] = ()


class _Training:
    """Runs the parts over the runs of the ledger."""

    def __init__(
        self,
        ledger: TrainingLedger,
        wall: Callable[[float], float],
        statements: Sequence[Stated],
        parts: Sequence[Part],
    ) -> None:
        self._ledger = ledger
        self._wall = wall
        self._statements = tuple(statements)
        self._parts = tuple(parts)
        self._runs: dict[str, Run] = {}
        self._tracked: list[TrackedRun] = []
        self._version = -1
        self._asked = 0.0

    def __call__(self, view: View, _memory: Memory, now: float) -> list[Sample]:
        self._look(now)
        for tracked in self._tracked:
            self._runs[tracked.name].observe(tracked, view, now)
        told: list[Sample] = []
        for part in self._parts:
            for run in self._runs.values():
                told.extend(part(run, view, now))
            if isinstance(part, Sums):
                told.extend(part.totals(now))
        return told

    def _look(self, now: float) -> None:
        version = self._ledger.version
        if version == self._version and now - self._asked < AGAIN:
            return
        self._version, self._asked = version, now
        self._tracked = self._ledger.runs(now)
        names = {tracked.name for tracked in self._tracked}
        for tracked in self._tracked:
            if tracked.name not in self._runs:
                stated = stated_of(tracked.name, self._statements)
                self._runs[tracked.name] = Run(tracked, stated, self._wall)
        for name in [name for name in self._runs if name not in names]:
            del self._runs[name]
            for part in self._parts:
                if isinstance(part, Forgets):
                    part.forget(name)

    def memory(self) -> dict[str, object]:
        """Return what the parts remember, each by the name of its class."""
        return {name: one.memory() for name, one in self._remembering()}

    def restore(self, memory: object, now: float, age: float, _final: bool) -> None:  # noqa: FBT001
        """Hand each its piece. Raises `Malformed` for those that refuse theirs."""
        pieces = memory if isinstance(memory, Mapping) else {}
        refused = [] if pieces else ["no memory of training"]
        for name, one in self._remembering():
            try:
                if name in pieces:
                    one.restore(pieces[name], now, age)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                refused.append(f"{name}: {type(error).__name__}: {error}")
        if refused:
            raise Malformed(f"not taken over: {'; '.join(refused)}")

    def _remembering(self) -> Iterator[tuple[str, Remembers]]:
        for one in self._parts:
            if isinstance(one, Remembers):
                yield type(one).__name__, one


__all__ = ["NAME", "Accelerator", "Baseline", "Part", "Run", "Stated", "training"]
