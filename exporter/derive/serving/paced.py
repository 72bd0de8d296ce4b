"""A part that need not be asked each second: what it says of minutes is the same a second later."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from exporter.derive.serving.book import Book
from exporter.samples import Sample, View

EVERY = 10.0
"""Seconds: less than Prometheus usually lets pass between two looks."""

_EARLY = 0.5  # of rounds that come a little before their time


def due(now: float, last: float | None, every: float) -> bool:
    """Tell whether a part that was asked last at `last` should be asked again.

    All parts come in the same round, so that the rounds between them change nothing.
    """
    if last is None or now - last >= every - _EARLY:
        return True
    return now // every != last // every


class Paced:
    """Asks a part each `every` seconds, and says the same in between.

    It asks at once when what `about` returns has changed: nothing is said of a server that is not
    there, nor of a breach that has ended.
    """

    def __init__(
        self,
        part: Callable[[Book, View, float], Iterable[Sample]],
        about: Callable[[Book], object] = Book.entities,
        *,
        every: float = EVERY,
    ) -> None:
        self._part = part
        self._about = about
        self._every = every
        self._asked: float | None = None
        self._subject: object = None
        self._said: tuple[Sample, ...] = ()

    def __call__(self, book: Book, view: View, now: float) -> Iterable[Sample]:
        """Return what the part says, or said when it was last asked."""
        subject = self._about(book)
        if subject != self._subject or due(now, self._asked, self._every):
            self._asked, self._subject = now, subject
            self._said = tuple(self._part(book, view, now))
        return self._said
