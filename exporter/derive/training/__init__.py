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
from exporter.derive.training import (
    boards,
    efficiency,
    goodput,
    lifecycle,
    progress,
    promises,
    stragglers,
)
from exporter.derive.training.boards import Boards
from exporter.derive.training.counts import Counts
from exporter.derive.training.efficiency import Counter, Efficiency
from exporter.derive.training.goodput import Goodput
from exporter.derive.training.lifecycle import Lifecycle
from exporter.derive.training.progress import Progress
from exporter.derive.training.promises import Promises
from exporter.derive.training.run import Run
from exporter.derive.training.stated import Baseline, Stated, stated_of
from exporter.objectives import Objective
from exporter.reference.accelerators import Accelerators
from exporter.samples import Malformed, Sample, View
from exporter.training import TrackedRun, TrainingLedger
from exporter.training.ledger import FORGOTTEN

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
class Follows(Protocol):
    """A part that is to know of each run, also of one of which nothing is said any more."""

    def follow(self, run: Run, now: float) -> None:
        """Look at a run; called before any part is asked."""


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


@runtime_checkable
class Doubts(Protocol):
    """A part whose counters may not be told as they were restored."""

    def doubt(self) -> None:
        """Take what was restored for older than what was told last: let counters begin at 0."""


class OnNews:
    """A part that is asked again only when something new was told of a run, or after `AGAIN`."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._said: dict[str, tuple[TrackedRun, str, float, list[Sample]]] = {}

    def __call__(self, run: Run, view: View, now: float) -> Iterable[Sample]:
        """Return what the part says, or said."""
        said = self._said.get(run.name)
        if said is not None:
            tracked, status, asked, samples = said
            if tracked is run.tracked and status == run.status and now - asked < AGAIN:
                return samples
        samples = list(self._part(run, view, now))
        self._said[run.name] = run.tracked, run.status, now, samples
        return samples

    def forget(self, run: str) -> None:
        """Drop what was said of a run."""
        self._said.pop(run, None)


_MODULES = (progress, efficiency, goodput, stragglers, lifecycle, promises)
"""Where parts are."""


def training(
    ledger: TrainingLedger,
    wall: Callable[[float], float],
    count: Counter,
    *,
    statements: Sequence[Stated] = (),
    products: Accelerators = Accelerators(()),  # noqa: B008 - it does not change
    own: Sequence[str] = (),
    objectives: Sequence[Objective] = (),
) -> Derivation:
    """Return the derivation over what the ledger keeps.

    `wall` turns a monotonic moment into Unix seconds; `count` counts the work of a run. What is
    stated of runs is the operator's, and so are those of the `products` that are named in `own`.
    `objectives` are what was promised.
    """
    lives = Lifecycle(wall)
    parts: tuple[Part, ...] = (
        lives,
        Promises(objectives, lives.happened),
        *_parts(count, products, own),
    )
    run = _Training(ledger, wall, statements, parts)
    return Derivation(
        name=NAME,
        group=c.TRAINING,
        inputs=boards.INPUTS,
        outputs=(
            *(metric for module in _MODULES for metric in module.OUTPUTS),
            c.TRAIN_RECORDS_REFUSED_TOTAL,
        ),
        function=run,
        memory=run.memory,
        restore=run.restore,
    )


def _parts(count: Counter, products: Accelerators, own: Sequence[str]) -> tuple[Part, ...]:
    """Return the parts in the order in which they are told: where there is a cap, the last go."""
    return (
        Progress(), Efficiency(Boards(products), count, products, own), Goodput(),
        OnNews(stragglers.of_run),
    )  # fmt: skip


_NO_MEMORY = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What is raised by those who are handed something else than their memory."""


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
        self._pending: dict[str, Any] = {}
        self._pending_until = 0.0
        self._final = True

    def __call__(self, view: View, _memory: Memory, now: float) -> list[Sample]:
        self._look(now)
        for tracked in self._tracked:
            self._runs[tracked.name].observe(tracked, now)
        for part in self._parts:
            if isinstance(part, Follows):
                for run in self._runs.values():
                    part.follow(run, now)
        runs = [run for run in self._runs.values() if not run.gone(now)]
        going = [run for run in runs if run.goes_on]
        told: list[Sample] = []
        for part in self._parts:
            for run in runs:
                run.is_alone = len(going) == 1
                told.extend(part(run, view, now))
            if isinstance(part, Sums):
                told.extend(part.totals(now))
        told.extend(
            c.TRAIN_RECORDS_REFUSED_TOTAL(number, reader, reason)
            for (reader, reason), number in self._ledger.refused().items()
        )
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
                if (piece := self._pending.pop(tracked.name, None)) is not None:
                    self._runs[tracked.name].restore(piece, final=self._final)
        for name in [name for name in self._runs if name not in names]:
            del self._runs[name]
            self._forget(name)
        if self._pending and now > self._pending_until:
            for name in self._pending:
                self._forget(name)
            self._pending = {}

    def _forget(self, run: str) -> None:
        for part in self._parts:
            if isinstance(part, Forgets):
                part.forget(run)

    def memory(self) -> dict[str, object]:
        """Return what runs and parts remember, parts by the name of their class."""
        runs = {**self._pending, **{name: run.memory() for name, run in self._runs.items()}}
        return {"runs": runs, **{name: one.memory() for name, one in self._remembering()}}

    def restore(self, memory: object, now: float, age: float, final: bool) -> None:  # noqa: FBT001
        """Hand each its piece. Raises `Malformed` for those that refuse theirs."""
        pieces = memory if isinstance(memory, Mapping) else {}
        refused = [] if pieces else ["no memory of training"]
        if age <= FORGOTTEN:
            self._pending_until, self._final = now + FORGOTTEN, final
            self._take_over(pieces.get("runs"), refused, final=final)
        for name, one in self._remembering():
            try:
                if name in pieces:
                    one.restore(pieces[name], now, age)
            except _NO_MEMORY as error:
                refused.append(f"{name}: {type(error).__name__}: {error}")
            if not final and isinstance(one, Doubts):
                one.doubt()
        if refused:
            raise Malformed(f"not taken over: {'; '.join(refused)}")

    def _take_over(self, runs: object, refused: list[str], *, final: bool) -> None:
        """Keep what is remembered of runs until they are heard of; what is nonsense is refused."""
        for name, piece in runs.items() if isinstance(runs, Mapping) else ():
            try:
                Counts().restore(piece, final=final)
                self._pending[str(name)] = piece
            except _NO_MEMORY as error:
                refused.append(f"run {name}: {type(error).__name__}: {error}")

    def _remembering(self) -> Iterator[tuple[str, Remembers]]:
        for one in self._parts:
            if isinstance(one, Remembers):
                yield type(one).__name__, one


__all__ = ["NAME", "Baseline", "OnNews", "Part", "Run", "Stated", "training"]
