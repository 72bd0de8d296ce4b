"""What interruptions cost: the time until a run went on, on all its GPUs, at the price of these.

Whatever is not paid meanwhile (a machine that is gone costs nothing) is not known here, so this is
what the time would have cost: an upper bound where part of the run was gone, exact where all its
GPUs waited. Steps that had to be done again are no part of it: `train_lost_seconds_total`.

    cost_interruption_dollars_total{run="llama-7b"} 26.4
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from exporter import catalogue as c
from exporter.derive.derivation import Derivation, readings
from exporter.derive.memory import Memory
from exporter.samples import Sample, View

NAME = "interruptions"

_HOUR = 3600.0
_FORGOTTEN = 3600.0
"""Seconds after which a run that nobody tells of is dropped."""


class _Run:
    """One run: the counter as it was, seconds that have no price yet, dollars."""

    def __init__(self, seconds: float, now: float) -> None:
        self.seen = now
        self._seconds = seconds
        self._unpaid = 0.0
        self.dollars = 0.0

    def count(self, seconds: float, now: float) -> None:
        """Take the counter; one that fell began anew."""
        self._unpaid += seconds - self._seconds if seconds >= self._seconds else seconds
        self._seconds, self.seen = seconds, now

    def pay(self, dollars_per_second: float) -> None:
        """Pay what is unpaid."""
        self.dollars += self._unpaid * dollars_per_second
        self._unpaid = 0.0


def interruptions() -> Derivation:
    """Return the derivation; it says nothing of runs whose size or price is not known."""
    return Derivation(
        name=NAME,
        group=c.SPOT,
        inputs=(
            c.TRAIN_INTERRUPTION_SECONDS_TOTAL, c.TRAIN_WORLD_SIZE, c.COST_GPU_HOUR_DOLLARS,
        ),
        outputs=(c.COST_INTERRUPTION_DOLLARS_TOTAL,),
        function=_Interruptions(),
    )  # fmt: skip


class _Interruptions:
    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        self._began = False

    def __call__(self, view: View, _memory: Memory, now: float) -> Iterator[Sample]:
        prices = [one.value for one in readings(view, c.COST_GPU_HOUR_DOLLARS, now)]
        sizes = {one.labels[0]: one.value for one in readings(view, c.TRAIN_WORLD_SIZE, now)}
        for one in readings(view, c.TRAIN_INTERRUPTION_SECONDS_TOTAL, now):
            (name,) = one.labels
            if (run := self._runs.get(name)) is None:
                # What was counted before our time is not ours. A run that comes later may have
                # gone on from another machine before it was first looked at here.
                run = self._runs[name] = _Run(0.0 if self._began else one.value, now)
            run.count(one.value, now)
            if prices and name in sizes:
                run.pay(math.fsum(prices) / len(prices) / _HOUR * sizes[name])
                yield c.COST_INTERRUPTION_DOLLARS_TOTAL(run.dollars, name)
        self._began = True
        for name in [name for name, run in self._runs.items() if now - run.seen > _FORGOTTEN]:
            del self._runs[name]
