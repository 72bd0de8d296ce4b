"""What a derivation is.

A derivation turns samples into other samples: peaks from a product's name, a rate into a counter.
It is a function of what is on the board, of what it remembers, and of the time it is told; it does
no I/O, knows no clock and starts nothing. A missing input means a missing output, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from exporter.derive.memory import Memory
from exporter.samples import Metric, Sample, View


class Derivation(NamedTuple):
    """One derivation: its name, the group of its samples, what it reads and makes, and how.

    `function` gets the view of one moment, its own memory, and that moment in monotonic seconds.
    It reads no family but `inputs` and yields none but `outputs`. One that is `steady` says the
    same as long as its inputs are the same readings, whatever the time.
    """

    name: str
    group: str
    inputs: tuple[Metric, ...]
    outputs: tuple[Metric, ...]
    function: Callable[[View, Memory, float], Iterable[Sample]]
    steady: bool = False
