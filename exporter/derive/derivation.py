"""What a derivation is, and how it reads the board.

A derivation turns samples into other samples: peaks from a product's name, a rate into a counter.
It is a function of what is on the board, of what it remembers, and of the time it is told; it does
no I/O, knows no clock and starts nothing. A missing input means a missing output, never a guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from exporter.derive.memory import Memory
from exporter.samples import Histogram, Metric, Sample, View


class Derivation(NamedTuple):
    """One derivation: its name, the group of its samples, what it reads and makes, and how.

    `function` gets the view of one moment, its own memory, and that moment in monotonic seconds.
    It reads no family but `inputs` and yields none but `outputs`. The same object returned again
    says that nothing has changed. One that is `steady` says the same as long as its inputs are the
    same readings, whatever the time.

    One that knows more than the board can tell again has a `memory`, which returns it as JSON can
    hold it, as of the last round. `restore` takes such a memory before the first round, with the
    time, the memory's age in seconds, and whether nothing was told after it; it raises `Malformed`
    if it cannot take all of it.
    """

    name: str
    group: str
    inputs: tuple[Metric, ...]
    outputs: tuple[Metric, ...]
    function: Callable[[View, Memory, float], Iterable[Sample]]
    steady: bool = False
    memory: Callable[[], object] | None = None
    restore: Callable[[object, float, float, bool], None] | None = None


class Reading(NamedTuple):
    """A sample of the board with the time at which its source took it, in monotonic seconds."""

    labels: tuple[str, ...]
    value: float
    taken: float


def readings(view: View, metric: Metric, now: float) -> Iterator[Reading]:
    """Yield the fresh readings of a family that are finite numbers; `now` is the view's moment."""
    for source in view.sources:
        batch = source.batch
        places = batch.shape.families.get(metric)
        if places is None:
            continue
        taken = now - (0.0 if source.age is None else source.age)
        for i in places:
            value = batch.values[i]
            if not isinstance(value, Histogram) and math.isfinite(value):
                yield Reading(batch.shape.labels[i], value, taken)
