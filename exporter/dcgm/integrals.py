"""Counters from rates: each rate times the time since the one before, by DCGM's own clock.

DCGM says with each value when it was measured, in microseconds, so how late a value is read does
not matter, nor how often. It is also why a value that is read twice counts once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

LONGEST_GAP = 10.0
"""Seconds. What happened in a longer gap is not known, and is not counted."""


class Integrals:
    """Totals by name. They only grow, and go on from `memory`, which another `memory()` returned.

    A memory that makes no sense is no memory: counters then start at zero, as after a restart.
    """

    def __init__(self, memory: object = None) -> None:
        self._totals: dict[str, tuple[float, int]] = {}
        if isinstance(memory, Mapping):
            self._totals = {
                str(name): (float(pair[0]), int(pair[1]))
                for name, pair in memory.items()
                if _sound(pair)
            }

    def add(self, name: str, rate: float, micros: int) -> float:
        """Count `rate` for the time up to `micros` (Unix microseconds); return the total.

        The first rate only sets the beginning. So does one after a clock that was put back.
        """
        total, before = self._totals.get(name, (0.0, micros))
        seconds = (micros - before) / 1e6
        if 0 < seconds <= LONGEST_GAP:
            total += rate * seconds
        if micros != before or name not in self._totals:
            self._totals[name] = (total, micros)
        return total

    def memory(self) -> dict[str, list[float]]:
        """Return what a successor goes on from, as JSON can hold it."""
        return {name: [total, micros] for name, (total, micros) in self._totals.items()}


def _sound(pair: object) -> bool:
    return (
        isinstance(pair, list | tuple)
        and len(pair) == 2
        and all(isinstance(number, int | float) and 0 <= number < math.inf for number in pair)
    )
