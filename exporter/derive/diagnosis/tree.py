"""The decision tree: which bottleneck a job has, by rows that are asked in order.

`ROWS` is the tree of the specification (section 16.3.1, `diagnose_bottleneck`) in its order, with
its thresholds; `CAUSES` are what can be seen directly. The tree classes by two or three coarse
numbers: 95 % utilization says that kernels ran, not that they did anything, and memory is full in
every job with a caching allocator. So each row names the causes that would bear it out; where one
of them is measured, the row is confirmed or contradicted, and the causes stand beside the class.

A condition whose signal is not known is neither kept nor broken: if that leaves open which row it
is, there is no answer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

Signals = Mapping[str, float]
"""What is known, by name: shares of 1, or events in a second where the name ends in `_rate`."""


class Thresholds(NamedTuple):
    """Where the conditions divide: shares of 1, and events in a second (`_rate`).

    The first five are the specification's. The others say from where on a share of the step time,
    of the clock or of the bandwidth is worth looking at.
    """

    low_utilization: float = 0.70
    high_utilization: float = 0.95
    full_memory: float = 0.90
    high_communication: float = 0.30
    low_communication: float = 0.10
    idle_utilization: float = 0.05
    data_loading: float = 0.10
    exposed_communication: float = 0.15
    bubble: float = 0.15
    checkpoint: float = 0.05
    clock_loss: float = 0.10
    throttled: float = 0.10
    skew: float = 0.10
    memory_bandwidth: float = 0.60
    tensor_active: float = 0.50
    memory_stalled: float = 0.05
    framework: float = 0.15
    small_messages: float = 0.50
    bus_bandwidth: float = 0.50
    collective_waiting: float = 0.30
    sharp_unused: float = 0.50
    nccl_settings: float = 0.50
    rail_imbalance: float = 0.30
    pcie_width: float = 0.99
    paused: float = 0.05
    pausing: float = 0.01
    far_nics: float = 0.01
    link_error_rate: float = 0.01
    congestion_rate: float = 100.0
    pause_frame_rate: float = 500.0
    pause_storm_rate: float = 0.001
    pcie_error_rate: float = 0.1


Side = Literal["<", ">"]
_SIDES: Mapping[str, Callable[[float, float], bool]] = {"<": operator.lt, ">": operator.gt}


class Condition(NamedTuple):
    """A signal on one side of a threshold."""

    signal: str
    side: Side
    threshold: str

    def holds(self, signals: Signals, thresholds: Thresholds) -> bool | None:
        """Tell whether it is kept; None if the signal is not known."""
        value = signals.get(self.signal)
        if value is None:
            return None
        return _SIDES[self.side](value, float(getattr(thresholds, self.threshold)))


class Row(NamedTuple):
    """One answer of the tree: all its conditions hold, and those of no row before it.

    `words` are the specification's; `borne_out` are causes that confirm it when they are measured.
    """

    bottleneck: str
    words: str
    conditions: tuple[Condition, ...]
    borne_out: tuple[str, ...] = ()

    def holds(self, signals: Signals, thresholds: Thresholds) -> bool | None:
        """Tell whether all conditions are kept; None if that depends on what is not known."""
        found = [one.holds(signals, thresholds) for one in self.conditions]
        if False in found:
            return False
        return None if None in found else True


_IDLE = Condition("gpu_utilization", "<", "low_utilization")
_BUSY = Condition("gpu_utilization", ">", "high_utilization")

ROWS: tuple[Row, ...] = (
    Row(
        "memory_bound_severe", "Memory-bound (severe)",
        (_IDLE, Condition("memory_used", ">", "full_memory")),
        ("memory_stalled",),
    ),
    Row(
        "software_overhead", "Software overhead / data loading", (_IDLE,),
        ("data_loading", "framework", "checkpoint", "bubble"),
    ),
    Row(
        "communication_bound", "Communication-bound",
        (_BUSY, Condition("communication", ">", "high_communication")),
        ("exposed_communication",),
    ),
    Row(
        "memory_bandwidth_bound", "Memory-bandwidth-bound",
        (_BUSY, Condition("communication", "<", "low_communication")),
        ("memory_bandwidth",),
    ),
    Row("efficient", "Efficient (near peak)", (_BUSY,), ("tensor_active",)),
    Row("mixed", "Mixed bottleneck (needs detailed profile)", ()),
)  # fmt: skip
"""The tree, in the specification's order. `mixed` is what is left."""

BOTTLENECKS: Mapping[str, Row] = {row.bottleneck: row for row in ROWS}


class Cause(NamedTuple):
    """Something that can be seen directly: one of its conditions holds."""

    name: str
    conditions: tuple[Condition, ...]

    def holds(self, signals: Signals, thresholds: Thresholds) -> bool | None:
        """Tell whether it is so; None if nothing is known of it."""
        found = {one.holds(signals, thresholds) for one in self.conditions} - {None}
        return True in found if found else None

    def evidence(self, signals: Signals, thresholds: Thresholds) -> Condition | None:
        """Return the condition that says so, or one that denies it; None if nothing is known."""
        told = [one for one in self.conditions if one.signal in signals]
        kept = [one for one in told if one.holds(signals, thresholds)]
        return next(iter((*kept, *told)), None)


def _above(signal: str, *others: str) -> Cause:
    return Cause(signal, tuple(Condition(one, ">", one) for one in (signal, *others)))


CAUSES: tuple[Cause, ...] = (
    _above("data_loading"),
    _above("exposed_communication"),
    _above("bubble"),
    _above("checkpoint"),
    _above("framework"),
    Cause("clock", (Condition("throttled", ">", "throttled"),
                    Condition("clock_loss", ">", "clock_loss"))),
    Cause("straggler", (Condition("skew", ">", "skew"),)),
    _above("memory_bandwidth"),
    _above("memory_stalled"),
    _above("tensor_active"),
    Cause("link_errors", (Condition("link_error_rate", ">", "link_error_rate"),)),
    Cause("congestion", (Condition("congestion_rate", ">", "congestion_rate"),)),
    Cause("paused", (Condition("paused", ">", "paused"),
                     Condition("paused_frame_rate", ">", "pause_frame_rate"))),
    Cause("pausing", (Condition("pausing", ">", "pausing"),
                      Condition("pausing_frame_rate", ">", "pause_frame_rate"),
                      Condition("pause_storm_rate", ">", "pause_storm_rate"))),
    Cause("pcie_errors", (Condition("pcie_error_rate", ">", "pcie_error_rate"),)),
    Cause("pcie_width", (Condition("pcie_width", "<", "pcie_width"),)),
    Cause("nic_distance", (Condition("far_nics", ">", "far_nics"),)),
    _above("small_messages"),
    Cause("slow_collectives", (Condition("bus_bandwidth", "<", "bus_bandwidth"),)),
    Cause("late_ranks", (Condition("collective_waiting", ">", "collective_waiting"),)),
    _above("sharp_unused"),
    _above("nccl_settings"),
    _above("rail_imbalance"),
)  # fmt: skip
"""What can be seen directly, in the order in which it is told. `tensor_active` is none that costs
time: it says that the tensor cores are at work."""

SIGNALS: tuple[str, ...] = tuple(
    dict.fromkeys(
        condition.signal
        for conditions in (*(row.conditions for row in ROWS), *(one.conditions for one in CAUSES))
        for condition in conditions
    )
)
"""The names of all signals."""


class Verdict(NamedTuple):
    """What the tree says: the row, and the conditions that were asked on the way to it."""

    row: Row
    asked: tuple[Condition, ...]


def decide(signals: Signals, thresholds: Thresholds, rows: Sequence[Row] = ROWS) -> Verdict | None:
    """Return the first row that holds; None if an earlier one may, or nothing is known at all."""
    if not any(condition.signal in signals for row in rows for condition in row.conditions):
        return None
    asked: dict[Condition, None] = {}
    for row in rows:
        asked.update(dict.fromkeys(row.conditions))
        match row.holds(signals, thresholds):
            case None:
                return None
            case True:
                return Verdict(row, tuple(one for one in asked if one.signal in signals))
    return None


def seen(signals: Signals, thresholds: Thresholds) -> Mapping[str, bool]:
    """Return which causes are so, and which are not; those of which nothing is known are absent."""
    found = {cause.name: cause.holds(signals, thresholds) for cause in CAUSES}
    return {name: so for name, so in found.items() if so is not None}


def borne_out(row: Row, causes: Mapping[str, bool]) -> bool | None:
    """Tell whether what is seen confirms a row; None if nothing was measured that could."""
    found = [causes[name] for name in row.borne_out if name in causes]
    return any(found) if found else None
