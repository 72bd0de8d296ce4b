"""Inference servers over time: percentiles with bounds, rates, promises kept and broken.

One derivation, since all of it rests on the same book of increases: `book` keeps that, the parts
ask it. A part is called once each round with the book, the board and the time, and yields samples;
they are called in order, so that a later one may ask an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from exporter import catalogue as c
from exporter.derive.derivation import Derivation
from exporter.derive.memory import Memory
from exporter.derive.serving.book import INPUTS, Book
from exporter.derive.serving.sla import OUTPUTS as SLA_OUTPUTS
from exporter.derive.serving.sla import Sla
from exporter.derive.serving.windows import OUTPUTS, Windows
from exporter.objectives import Objective
from exporter.samples import Sample, View

NAME = "serving"


class Part(Protocol):
    """One thing that is derived from the book."""

    def __call__(self, book: Book, view: View, now: float, /) -> Iterable[Sample]:
        """Return the samples of this round."""


def serving(
    windows: Sequence[str] = ("5m", "1h"),
    objectives: Sequence[Objective] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> Derivation:
    """Return the derivation; `windows` are those whose percentiles and rates are published.

    `objectives` are what was promised; `tell` gets a line where buckets do not fit them.
    """
    parts: tuple[Part, ...] = (Windows(windows), Sla(objectives, tell))
    return Derivation(
        name=NAME,
        group=c.SERVING,
        inputs=(*INPUTS, c.LLM_SERVER_GPU),
        outputs=(*OUTPUTS, *SLA_OUTPUTS),
        function=_Serving(Book(), parts),
    )


class _Serving:
    """Runs the parts over one book."""

    def __init__(self, book: Book, parts: Sequence[Part]) -> None:
        self._book = book
        self._parts = parts

    def __call__(self, view: View, _memory: Memory, now: float) -> Iterator[Sample]:
        self._book.observe(view, now)
        for part in self._parts:
            yield from part(self._book, view, now)


__all__ = ["NAME", "Book", "Part", "serving"]
