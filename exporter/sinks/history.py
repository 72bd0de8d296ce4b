"""Feeds the history from the board on a beat. What it keeps is told by the status page alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.history import History
from exporter.samples import Drop, View


class HistorySink:
    """A sink that notes a point of each series. `view` returns the board at a moment.

    Series that find no room are dropped, reason `history`.
    """

    name = "history"
    group = c.EXPORTER

    def __init__(self, history: History, view: Callable[[float], View], clock: Clock) -> None:
        self._history = history
        self._view = view
        self._clock = clock

    def read(self) -> Iterator[Drop]:
        """Note what the board holds now."""
        now = self._clock.monotonic()
        self._history.note(self._view(now), now)
        if self._history.refused:
            yield Drop("history", self._history.refused)

    def close(self) -> None:
        """Leave the history to a successor."""
