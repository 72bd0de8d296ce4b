"""What a daemon tells of its inside: where its threads are, its last lines of log, its settings.

Nothing here reads a device or waits for a lock: it must answer while something hangs.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from exporter import __version__
from exporter.redaction import redacted_document

MOST_LINES = 500
LONGEST_LINE = 4000
_MOST_FRAMES = 40


class LogTail(logging.Handler):
    """Keeps the last lines of the log."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._lines: deque[str] = deque(maxlen=MOST_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self._lines.append(self.format(record)[:LONGEST_LINE])

    def lines(self) -> list[str]:
        """Return what is kept, oldest first."""
        return list(self._lines)


def document(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inside of this process; `settings` are those in force, as plain values."""
    told = {
        "version": __version__,
        "python": platform.python_version(),
        "pid": os.getpid(),
        "threads": dict(_threads()),
        "log": [line for tail in _tails() for line in tail.lines()],
        "settings": settings,
    }
    return dict(redacted_document(told))


def _tails() -> Iterator[LogTail]:
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogTail):
            yield handler


def _threads() -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each thread and where it is, innermost call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for number, frame in sys._current_frames().items():  # noqa: SLF001 - the documented way
        calls = traceback.extract_stack(frame, _MOST_FRAMES)
        where = [f"{call.filename}:{call.lineno} {call.name}" for call in calls]
        yield f"{names.get(number, '?')} ({number})", where
