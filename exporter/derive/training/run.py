"""One training run over time: whom to believe, what holds of it, whether it lives.

The ledger keeps what each reader told; a `Run` makes one truth of it. Parts ask it, and never ask
the readers' records which reader to believe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from exporter.derive.training.stated import Stated, merged
from exporter.samples import View
from exporter.training import READERS, TrackedRun
from exporter.training.records import Facts

Status = Literal["starting", "live", "stalled", "ended"]


class Run:
    """What is known of a run at the present round.

    `tracked` is what readers told, `facts` what is believed of it; `status` tells whether it goes
    on. `wall` turns a monotonic moment into Unix seconds.
    """

    def __init__(self, tracked: TrackedRun, stated: Stated, wall: Callable[[float], float]) -> None:
        self.name = tracked.name
        self.tracked = tracked
        self.stated = stated
        self.wall = wall
        self.facts = Facts(run=tracked.name)
        self.status: Status = "starting"

    def observe(self, tracked: TrackedRun, view: View, now: float) -> None:  # noqa: ARG002
        """Take what the ledger knows now."""
        self.tracked = tracked
        told = tracked.facts
        order = [*READERS, *sorted(told.keys() - set(READERS))]
        self.facts = merged(
            self.name, [self.stated.facts, *(told[one] for one in order if one in told)]
        )
