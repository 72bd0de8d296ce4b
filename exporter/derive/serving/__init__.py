"""Inference servers over time: percentiles with bounds, rates, promises kept and broken.

One derivation, since all of it rests on the same book of increases: `book` keeps that, the parts
ask it. A part is called once each round with the book, the board and the time, and yields samples;
they are called in order, so that a later one may ask an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from exporter import catalogue as c
from exporter.derive.derivation import Derivation
from exporter.derive.memory import Memory
from exporter.derive.serving import (
    book,
    causes,
    efficiency,
    goodput,
    node,
    sla,
    stalls,
    windows,
)
from exporter.derive.serving.book import Book
from exporter.derive.serving.paced import Paced
from exporter.objectives import Objective
from exporter.reference.models import Models, ModelShape
from exporter.samples import Sample, View

NAME = "serving"


class Part(Protocol):
    """One thing that is derived from the book."""

    def __call__(self, book: Book, view: View, now: float, /) -> Iterable[Sample]:
        """Return the samples of this round."""


_MODULES = (windows, efficiency, stalls, sla, goodput, causes)
"""The parts, in the order in which they are called."""


def serving(
    published: Sequence[str] = ("5m", "1h"),
    objectives: Sequence[Objective] = (),
    tell: Callable[[str], None] = lambda _: None,
    models: Models = Models(()),  # noqa: B008 - it does not change
    shapes: Mapping[str, ModelShape] | None = None,
) -> Derivation:
    """Return the derivation; `published` are the windows of percentiles, rates and utilization.

    `objectives` are what was promised; `tell` gets a line where buckets do not fit them. `models`
    are those whose shape is known by name, `shapes` those that were given for a server.
    """
    outputs = [metric for module in _MODULES for metric in module.OUTPUTS]
    return Derivation(
        name=NAME,
        group=c.SERVING,
        inputs=tuple(dict.fromkeys((*book.INPUTS, *sla.INPUTS, *node.INPUTS))),
        outputs=tuple(dict.fromkeys(outputs)),
        function=_Serving(Book(), _parts(published, objectives, tell, models, shapes)),
    )


def _parts(
    published: Sequence[str],
    objectives: Sequence[Objective],
    tell: Callable[[str], None],
    models: Models,
    shapes: Mapping[str, ModelShape] | None,
) -> tuple[Part, ...]:
    hardware, stalled, judge = node.Node(), stalls.Stalls(published), sla.Sla(objectives, tell)
    return (
        windows.Windows(published),
        Paced(efficiency.Efficiency(hardware, models, shapes, published)),
        Paced(stalled),
        judge,
        Paced(goodput.Goodput(objectives)),
        Paced(
            causes.Causes(judge.violated, stalled, hardware),
            lambda kept: (kept.entities(), judge.violated(), stalled.stalled()),
        ),
    )


class _Serving:
    """Runs the parts over one book."""

    def __init__(self, kept: Book, parts: Sequence[Part]) -> None:
        self._book = kept
        self._parts = parts

    def __call__(self, view: View, _memory: Memory, now: float) -> Iterator[Sample]:
        self._book.observe(view, now)
        for part in self._parts:
            yield from part(self._book, view, now)


__all__ = ["NAME", "Book", "Part", "serving"]
