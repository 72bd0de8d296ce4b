"""A part that need not be asked each second: what it says of minutes is the same a second later."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from exporter.derive.serving.book import Book, Entity
from exporter.samples import Sample, View

EVERY = 5.0
"""Seconds: as long as a slot of the book."""

_EARLY = 0.5  # of rounds that come a little before their time


class Paced:
    """Asks a part each `every` seconds, and says the same in between.

    It asks at once when servers or models have come or gone: nothing is said of who is not there.
    """

    def __init__(
        self, part: Callable[[Book, View, float], Iterable[Sample]], every: float = EVERY
    ) -> None:
        self._part = part
        self._every = every
        self._asked: float | None = None
        self._who: list[Entity] = []
        self._said: tuple[Sample, ...] = ()

    def __call__(self, book: Book, view: View, now: float) -> Iterable[Sample]:
        """Return what the part says, or said when it was last asked."""
        who = book.entities()
        if self._asked is None or who != self._who or now - self._asked >= self._every - _EARLY:
            self._asked, self._who = now, who
            self._said = tuple(self._part(book, view, now))
        return self._said
