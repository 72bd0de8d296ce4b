"""Feeds the history from the board on a beat. What it keeps is told by the status page alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.history import History
from exporter.samples import Drop, View


class HistorySink:
    """A sink that notes a point of each series. `view` returns the board at a moment.

    `also` is shown the same board, with the moment in monotonic and in Unix seconds. Series that
    find no room are dropped, reason `history`.
    """

    name = "history"
    group = c.EXPORTER

    def __init__(
        self,
        history: History,
        view: Callable[[float], View],
        clock: Clock,
        *,
        also: Callable[[View, float, float], None] = lambda *_: None,
    ) -> None:
        self._history = history
        self._view = view
        self._clock = clock
        self._also = also

    def read(self) -> Iterator[Drop]:
        """Note what the board holds now."""
        now = self._clock.monotonic()
        view = self._view(now)
        self._history.note(view, now)
        self._also(view, now, self._clock.time())
        if self._history.refused:
            yield Drop("history", self._history.refused)

    def close(self) -> None:
        """Leave the history to a successor."""
