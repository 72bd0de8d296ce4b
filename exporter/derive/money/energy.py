"""What the energy of GPUs costs, in dollars and in carbon.

The driver counts joules since it was loaded; what it counted before the first look, and while no
daemon ran, is not ours to tell. Only the GPUs' own energy is known here: PUE adds the building.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from exporter import catalogue as c
from exporter.derive.derivation import Reading
from exporter.derive.money.accounts import amount
from exporter.samples import Sample

_JOULES_OF_KWH = 3.6e6

INPUTS = (c.GPU_ENERGY_JOULES_TOTAL,)
OUTPUTS = (c.COST_ENERGY_DOLLARS_TOTAL, c.COST_CARBON_GRAMS_TOTAL)


@dataclass(frozen=True, slots=True)
class Energy:
    """What a kilowatt-hour costs, and emits (grams of CO2 equivalent); None: not known.

    `pue` is the energy of the building over that of its machines.
    """

    dollars_per_kwh: float | None = None
    grams_per_kwh: float | None = None
    pue: float = 1.0


class Meters:
    """The energy of all GPUs, from reading to reading."""

    def __init__(self, energy: Energy) -> None:
        self._energy = energy
        self._last: dict[tuple[str, str], Reading] = {}
        self._sums: dict[tuple[str, str], list[float]] = {}

    def look(self, readings: Iterable[Reading]) -> None:
        """Take the counters of GPUs. One that falls began anew: it is a new baseline."""
        seen: set[tuple[str, str]] = set()
        for reading in readings:
            gpu = (reading.labels[0], reading.labels[1])
            if gpu in seen:
                continue
            seen.add(gpu)
            before = self._last.get(gpu)
            if before is not None and reading.taken <= before.taken:
                continue
            self._last[gpu] = reading
            sums = self._sums.setdefault(gpu, [0.0, 0.0])
            if before is not None and reading.value > before.value:
                drawn = (reading.value - before.value) / _JOULES_OF_KWH * self._energy.pue
                sums[0] += drawn * (self._energy.dollars_per_kwh or 0.0)
                sums[1] += drawn * (self._energy.grams_per_kwh or 0.0)

    def samples(self) -> Iterator[Sample]:
        """Yield what is known of each GPU."""
        for gpu, (dollars, grams) in self._sums.items():
            if self._energy.dollars_per_kwh is not None:
                yield c.COST_ENERGY_DOLLARS_TOTAL(dollars, *gpu)
            if self._energy.grams_per_kwh is not None:
                yield c.COST_CARBON_GRAMS_TOTAL(grams, *gpu)

    def forget(self, present: Iterable[tuple[str, str]]) -> None:
        """Drop GPUs that are no more."""
        here = set(present)
        self._sums = {gpu: sums for gpu, sums in self._sums.items() if gpu in here}
        self._last = {gpu: last for gpu, last in self._last.items() if gpu in here}

    def memory(self) -> list[Any]:
        """Return it as plain values; moments are of the monotonic clock."""
        return [
            [*gpu, *sums, self._last[gpu].value, self._last[gpu].taken]
            for gpu, sums in self._sums.items()
            if gpu in self._last
        ]

    def restore(self, memory: Iterable[Any], *, same: bool, final: bool) -> None:
        """Go on where another one was: with its sums if they are `final`, and where it is of the
        `same` process with its baselines. Raises for what is no such memory."""
        for gpu, uuid, dollars, grams, joules, taken in memory:
            key = str(gpu), str(uuid)
            sums = [amount(dollars), amount(grams)]
            self._sums[key] = sums if same or final else [0.0, 0.0]
            if same:
                self._last[key] = Reading(key, amount(joules), float(taken))
