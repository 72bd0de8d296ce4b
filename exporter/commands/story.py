"""The chapters of the demo's story as they begin, for the terminal in which it runs."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_WIDTH = 96


def lines(story: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is printed of the chapter that is on: `story` of the status document."""
    yield ""
    left = max(10, 10 * round(story["seconds_left"] / 10))
    length = f"{left // 60} min {left % 60:02} s" if left >= 60 else f"{left} s"
    yield f"chapter {story['number']} of {story['chapters']}: {story['title']} ({length})"
    yield from textwrap.wrap(
        story["told"], _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
    for look in story["looks"]:
        yield f"    {look['place']:<9} {look['where']}: {look['sees']}"
    yield f"  next: {story['next']}"


class Narrator:
    """Says each chapter when it begins, the first one not before `begin`.

    `say` prints lines; it is called by whoever turns the pages.
    """

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._begun = False
        self._waiting: Mapping[str, Any] | None = None

    def narrate(self, story: Mapping[str, Any]) -> None:
        """Take a chapter that has begun."""
        with self._lock:
            if self._begun:
                self._say(*lines(story))
            else:
                self._waiting = story

    def begin(self) -> None:
        """Say what has waited, and from now on each chapter as it comes."""
        with self._lock:
            self._begun = True
            if self._waiting is not None:
                self._say(*lines(self._waiting))
