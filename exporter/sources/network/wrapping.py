"""Counters of 32 bits that begin again at 0, made to go on.

To Prometheus a wrap is a reset, and what was counted up to the top is lost. A step back of more
than half a lap is a reset indeed, and so is any step back of a device that was made anew, by a
reload of its driver: who reads says which instance of the device a value is from.
"""

from __future__ import annotations

from collections.abc import Mapping

_LAP = 1 << 32


class Laps:
    """Knows the last value of each counter and the laps before it. Keys are paths of files."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._before: dict[str, int] = {}

    def unwrap(self, key: str, value: int) -> int:
        """Return a counter's value with the laps that it has run through."""
        last = self._last.get(key, 0)
        self._last[key] = value
        if value < last:
            # A value beyond a lap shows that this counter is a wide one, whatever its kind.
            if last < _LAP and value + _LAP - last < _LAP // 2:
                self._before[key] = self._before.get(key, 0) + _LAP
            else:
                self._before.pop(key, None)
        return value + self._before.get(key, 0) if self._before else value

    def forget(self, folder: str) -> None:
        """Forget what is below a folder: the device has been made anew."""
        for known in (self._last, self._before):
            for key in [key for key in known if key.startswith(f"{folder}/")]:
                del known[key]

    def memory(self) -> dict[str, list[int]]:
        """Return, as JSON can hold it, what a successor has to know: who has run through a lap, and
        who may before it comes.
        """
        known = {key: [last, 0] for key, last in self._last.items() if last > _LAP // 2}
        return known | {key: [self._last[key], laps] for key, laps in self._before.items()}

    def restore(self, plain: Mapping[object, object]) -> None:
        """Go on where a predecessor was; a value that has moved back since may have wrapped."""
        for key, one in plain.items():
            match key, one:
                case str(), [int(last), int(before)]:
                    self._last[key] = last
                    if before:
                        self._before[key] = before
