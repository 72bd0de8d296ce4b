"""Inference servers over time: percentiles with bounds, rates, promises kept and broken.

One derivation, since all of it rests on the same book of increases: `book` keeps that, the parts
ask it. A part is called once each round with the book, the board and the time, and yields samples;
they are called in order, so that a later one may ask an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import is_not
from typing import Any, Protocol, runtime_checkable

from exporter import catalogue as c
from exporter.derive.derivation import Derivation
from exporter.derive.memory import Memory
from exporter.derive.serving import (
    book,
    causes,
    costs,
    efficiency,
    goodput,
    node,
    sla,
    stalls,
    windows,
)
from exporter.derive.serving.book import Book
from exporter.derive.serving.paced import EVERY, Paced
from exporter.objectives import Objective
from exporter.reference.models import Models, ModelShape
from exporter.samples import Malformed, Sample, View

NAME = "serving"


class Part(Protocol):
    """One thing that is derived from the book."""

    def __call__(self, book: Book, view: View, now: float, /) -> Iterable[Sample]:
        """Return the samples of this round; the same object again if they have not changed."""


@runtime_checkable
class Remembers(Protocol):
    """A part, or the book, that knows what the pages cannot tell again."""

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
        """Take what was restored for older than what was told last."""


_MODULES = (windows, costs, efficiency, stalls, sla, goodput, causes)
"""The parts, in the order in which they are called."""


def serving(
    published: Sequence[str] = ("5m", "1h"),
    objectives: Sequence[Objective] = (),
    tell: Callable[[str], None] = lambda _: None,
    models: Models = Models(()),  # noqa: B008 - it does not change
    shapes: Mapping[str, ModelShape] | None = None,
    *,
    policy: costs.Policy = costs.Policy(),  # noqa: B008 - it does not change
    every: float = EVERY,
) -> Derivation:
    """Return the derivation; `published` are the windows of percentiles, rates and utilization.

    `objectives` are what was promised; `tell` gets a line where buckets do not fit them. `models`
    are those whose shape is known by name, `shapes` those that were given for a server. `policy`
    is how dollars are laid on tokens. All is worked out anew each `every` seconds, a window of a
    minute more often.
    """
    outputs = [metric for module in _MODULES for metric in module.OUTPUTS]
    run = _Serving(
        Book(), _parts(published, objectives, tell, models, shapes, policy=policy, every=every)
    )
    return Derivation(
        name=NAME,
        group=c.SERVING,
        inputs=tuple(
            dict.fromkeys(
                (*book.INPUTS, *costs.INPUTS, *efficiency.INPUTS, *sla.INPUTS, *node.INPUTS)
            )
        ),
        outputs=tuple(dict.fromkeys(outputs)),
        function=run,
        memory=run.memory,
        restore=run.restore,
    )


def _parts(
    published: Sequence[str],
    objectives: Sequence[Objective],
    tell: Callable[[str], None],
    models: Models,
    shapes: Mapping[str, ModelShape] | None,
    *,
    policy: costs.Policy,
    every: float,
) -> tuple[Part, ...]:
    hardware, stalled, judge = (
        node.Node(),
        stalls.Stalls(published),
        sla.Sla(objectives, tell, every=every),
    )
    return (
        windows.Windows(published, every=every),
        Paced(costs.Costs(hardware, policy, published), every=every),
        Paced(efficiency.Efficiency(hardware, models, shapes, published), every=every),
        Paced(stalled, every=every),
        judge,
        Paced(goodput.Goodput(objectives), every=every),
        Paced(
            causes.Causes(judge.violated, stalled, hardware),
            lambda kept: (kept.entities(), judge.violated(), stalled.stalled()),
            every=every,
        ),
    )


class _Serving:
    """Runs the parts over one book.

    What they say is told in reverse: where there is more than the cap allows, percentiles go first
    and what was promised stays. Most rounds change nothing, and then the same tuple is returned.
    """

    def __init__(self, kept: Book, parts: Sequence[Part]) -> None:
        self._book = kept
        self._parts = parts
        self._pieces: list[Iterable[Sample]] = []
        self._said: tuple[Sample, ...] = ()

    def __call__(self, view: View, _memory: Memory, now: float) -> tuple[Sample, ...]:
        self._book.observe(view, now)
        former, pieces = self._pieces, [part(self._book, view, now) for part in self._parts]
        if len(pieces) != len(former) or any(map(is_not, pieces, former)):
            self._pieces = pieces
            self._said = tuple(chain.from_iterable(reversed(pieces)))
        return self._said

    def memory(self) -> dict[str, object]:
        """Return what book and parts remember, each by the name of its class."""
        return {name: one.memory() for name, one in self._remembering()}

    def restore(self, memory: object, now: float, age: float, final: bool) -> None:  # noqa: FBT001
        """Hand each its piece. Raises `Malformed` for those that refuse theirs."""
        pieces = memory if isinstance(memory, Mapping) else {}
        refused = [] if pieces else ["no memory of serving"]
        for name, one in self._remembering():
            try:
                if name in pieces:
                    one.restore(pieces[name], now, age)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                refused.append(f"{name}: {type(error).__name__}: {error}")
            if not final and isinstance(one, Doubts):
                one.doubt()
        if refused:
            raise Malformed(f"not taken over: {'; '.join(refused)}")

    def _remembering(self) -> Iterator[tuple[str, Remembers]]:
        for one in (self._book, *self._parts):
            if isinstance(one, Remembers):
                yield type(one).__name__, one


__all__ = ["NAME", "Book", "Part", "serving"]
