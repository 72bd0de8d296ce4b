"""Time, as a collaborator that can be replaced.

Ages, durations and deadlines use the monotonic clock; wall time is for people and for Prometheus.
`time` is imported here and nowhere else in the package.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What the daemon knows of time."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""

    def time(self) -> float:
        """Return Unix seconds."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until `event` is set or `seconds` have passed; return whether it was set."""


class SystemClock:
    """The machine's own clock."""

    # The functions themselves: a driver's calls ask for the time twice each.
    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until `event` is set or `seconds` have passed; return whether it was set."""
        return event.wait(seconds)
