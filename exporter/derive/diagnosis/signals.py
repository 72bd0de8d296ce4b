"""What the board knows of a run, or of GPUs without one, as the signals that the tree asks for.

Gauges of GPUs are averaged over the window, counters become rates over it; what is derived of a run
is taken as it is told, since it covers a minute already. Nothing is guessed: what the board does
not hold is no signal.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from exporter import catalogue as c
from exporter.derive.derivation import Reading, readings
from exporter.derive.fabric.environment import SERIOUS
from exporter.derive.memory import Memory
from exporter.samples import Metric, View

HELD_DOWN = ("sw_thermal", "hw_thermal", "thermal", "power_brake", "reliability")
"""Reasons that hold clocks down though nobody wants it. A power cap is not among them: cards run
into it whenever they are busy, and what it costs shows in the clock."""

LINK_ERRORS = (
    "symbol", "link_recovery", "link_downed", "remote_physical", "link_integrity", "crc", "icrc",
)  # fmt: skip
"""Causes of NIC errors that come from optics, cables and connectors."""

CHECKPOINTS = 3600.0
"""Seconds over which checkpoints count: they come every so often. A sixth of it is enough."""

EVIDENCE = ("measured", "profiled", "counters", "estimated")
"""How well a share of the step time is known, best first."""

GPU_INPUTS: tuple[Metric, ...] = (
    c.GPU_BUSY_SECONDS_TOTAL, c.GPU_UTILIZATION_RATIO, c.GPU_MEMORY_USED_BYTES,
    c.GPU_MEMORY_TOTAL_BYTES, c.GPU_DRAM_ACTIVE_RATIO, c.GPU_TENSOR_ACTIVE_RATIO,
    c.GPU_THROTTLED_SECONDS_TOTAL, c.GPU_PCIE_REPLAYS_TOTAL, c.GPU_PCIE_LINK_LANES,
    c.GPU_PCIE_LINK_LANES_MAX, c.TOPOLOGY_GPU_NIC_OK,
)  # fmt: skip
NODE_INPUTS: tuple[Metric, ...] = (
    c.HOST_PRESSURE_STALLED_SECONDS_TOTAL, c.NIC_ERRORS_TOTAL, c.NIC_CONGESTION_NOTICES_TOTAL,
    c.NIC_ECN_MARKED_PACKETS_TOTAL, c.NIC_RAIL_IMBALANCE_RATIO,
    c.NIC_RECEIVE_PAUSE_SECONDS_TOTAL,
    c.NIC_TRANSMIT_PAUSE_SECONDS_TOTAL, c.NIC_RECEIVE_PAUSE_FRAMES_TOTAL,
    c.NIC_TRANSMIT_PAUSE_FRAMES_TOTAL, c.NIC_PAUSE_STORM_EVENTS_TOTAL,
)  # fmt: skip
RUN_INPUTS: tuple[Metric, ...] = (
    c.TRAIN_RUN_GPU, c.TRAIN_RANK_STEP_SECONDS, c.TRAIN_COMMUNICATION_RATIO,
    c.TRAIN_DATA_LOADING_RATIO, c.TRAIN_PIPELINE_BUBBLE_RATIO, c.TRAIN_MFU_LOSS_RATIO,
    c.TRAIN_STEP_SKEW_RATIO, c.TRAIN_HBM_BANDWIDTH_UTILIZATION_RATIO,
    c.TRAIN_CHECKPOINT_SECONDS_TOTAL, c.TRAIN_STALLED, c.NCCL_SMALL_MESSAGE_RATIO,
    c.NCCL_BUS_BANDWIDTH_RATIO, c.NCCL_WAIT_SECONDS_TOTAL, c.NCCL_TRANSFER_SECONDS_TOTAL,
    c.NCCL_ENVIRONMENT_PROBLEM,
)  # fmt: skip
INPUTS = (*GPU_INPUTS, *NODE_INPUTS, *RUN_INPUTS, c.LLM_SERVER_GPU)
"""All that is read from the board."""


class Window(NamedTuple):
    """Where a signal's readings are kept, and over how many seconds they are taken together."""

    memory: Memory
    seconds: float
    now: float

    def mean(self, name: tuple[str, ...], reading: Reading) -> float:
        """Add a reading of a gauge; return the mean of those of the window."""
        ring = self.memory.window(*name, seconds=self.seconds)
        ring.add(reading.taken, reading.value)
        told = [value for _, value in ring.since(self.now)]
        return sum(told) / len(told) if told else reading.value

    def rate(self, name: tuple[str, ...], reading: Reading, *, least: float = 0.0) -> float | None:
        """Add a reading of a counter; return its increase in a second, None if it is not known.

        It needs readings over at least `least` seconds. A counter that has fallen was set back:
        what came before is left out.
        """
        ring = self.memory.window(*name, seconds=self.seconds)
        ring.add(reading.taken, reading.value)
        told = ring.since(self.now)
        for at in range(len(told) - 1, 0, -1):
            if told[at][1] < told[at - 1][1]:
                told = told[at:]
                break
        if len(told) < 2:
            return None
        (began, first), (ended, last) = told[0], told[-1]
        return (last - first) / (ended - began) if ended - began >= least else None


class Subject(NamedTuple):
    """A run, or "" for GPUs that belong to none, and the indices of its GPUs on this node."""

    run: str
    gpus: frozenset[str]


def gather(view: View, subjects: Iterable[Subject], window: Window) -> dict[str, dict[str, float]]:
    """Return the signals of each subject, by run."""
    gpus, node = _gpus(view, window), dict(_node(view, window))
    of_runs = _runs(view, window)
    return {
        one.run: {
            **node,
            **_together([gpus.get(gpu, {}) for gpu in sorted(one.gpus)]),
            **(of_runs.get(one.run, {}) if one.run else {}),
        }
        for one in subjects
    }


def gpus_of_servers(view: View, now: float) -> frozenset[str]:
    """Return the GPUs on which inference servers work, as far as that is known."""
    at = c.LLM_SERVER_GPU.labels.index("gpu")
    return frozenset(one.labels[at] for one in readings(view, c.LLM_SERVER_GPU, now))


def gpus_present(view: View, now: float) -> frozenset[str]:
    """Return the GPUs that tell how busy they are."""
    families = (c.GPU_BUSY_SECONDS_TOTAL, c.GPU_UTILIZATION_RATIO)
    return frozenset(one.labels[0] for family in families for one in readings(view, family, now))


def runs_present(view: View, now: float) -> frozenset[str]:
    """Return the runs that are on the board and get on; one that hangs has no bottleneck."""
    stalled = {one.labels[0]: bool(one.value) for one in readings(view, c.TRAIN_STALLED, now)}
    # A node that does not speak for the run tells of its ranks and GPUs, and only while it steps.
    families = (c.TRAIN_RUN_GPU, c.TRAIN_RANK_STEP_SECONDS)
    here = {one.labels[0] for family in families for one in readings(view, family, now)}
    return frozenset(run for run in here | stalled.keys() if not stalled.get(run))


def gpus_of_runs(view: View, now: float) -> dict[str, frozenset[str]]:
    """Return the indices of the GPUs of each run, as far as they are known."""
    found: dict[str, set[str]] = {}
    for one in readings(view, c.TRAIN_RUN_GPU, now):
        found.setdefault(one.labels[0], set()).add(one.labels[1])
    return {run: frozenset(gpus) for run, gpus in found.items()}


# ---------------------------------------------------------------- GPUs


def _gpus(view: View, window: Window) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}

    def put(gpu: str, name: str, value: float | None) -> None:
        if value is not None:
            found.setdefault(gpu, {})[name] = value

    for name, metric, how in _OF_GPUS:
        for one in readings(view, metric, window.now):
            put(one.labels[0], name, how(window, (name, *one.labels), one))
    held: dict[tuple[str, ...], float] = {}
    for one in readings(view, c.GPU_THROTTLED_SECONDS_TOTAL, window.now):
        if one.labels[-1] in HELD_DOWN:
            rate = window.rate(("throttled", *one.labels), one)
            if rate is not None:
                held[one.labels[:1]] = max(rate, held.get(one.labels[:1], 0.0))
    for (gpu,), rate in held.items():
        put(gpu, "throttled", min(1.0, rate))
    return found


def _mean(window: Window, name: tuple[str, ...], one: Reading) -> float | None:
    return window.mean(name, one)


def _rate(window: Window, name: tuple[str, ...], one: Reading) -> float | None:
    return window.rate(name, one)


def _now(_window: Window, _name: tuple[str, ...], one: Reading) -> float | None:
    return one.value


_OF_GPUS: tuple[
    tuple[str, Metric, Callable[[Window, tuple[str, ...], Reading], float | None]], ...
] = (
    ("gauge_utilization", c.GPU_UTILIZATION_RATIO, _mean),
    ("busy", c.GPU_BUSY_SECONDS_TOTAL, _rate),
    ("used", c.GPU_MEMORY_USED_BYTES, _now),
    ("total", c.GPU_MEMORY_TOTAL_BYTES, _now),
    ("dram_active", c.GPU_DRAM_ACTIVE_RATIO, _mean),
    ("tensor_active", c.GPU_TENSOR_ACTIVE_RATIO, _mean),
    ("pcie_error_rate", c.GPU_PCIE_REPLAYS_TOTAL, _rate),
    ("lanes", c.GPU_PCIE_LINK_LANES, _now),
    ("lanes_max", c.GPU_PCIE_LINK_LANES_MAX, _now),
    ("near_nic", c.TOPOLOGY_GPU_NIC_OK, _now),
)


def _together(gpus: list[dict[str, float]]) -> dict[str, float]:
    """Return the signals of several GPUs: means of activity, the worst of what goes wrong.

    Of how many the NIC is too far is a share of all: it must be known of each.
    """
    told = {
        "gpu_utilization": _average(
            gpu.get("busy", gpu.get("gauge_utilization", math.nan)) for gpu in gpus
        ),
        "memory_used": _worst(max, (_share(gpu, "used", "total") for gpu in gpus)),
        "memory_bandwidth": _average(gpu.get("dram_active", math.nan) for gpu in gpus),
        "tensor_active": _average(gpu.get("tensor_active", math.nan) for gpu in gpus),
        "throttled": _worst(max, (gpu.get("throttled", math.nan) for gpu in gpus)),
        "pcie_error_rate": _worst(max, (gpu.get("pcie_error_rate", math.nan) for gpu in gpus)),
        "far_nics": _average(1 - gpu.get("near_nic", math.nan) for gpu in gpus),
        "pcie_width": _worst(min, (_share(gpu, "lanes", "lanes_max") for gpu in gpus)),
    }
    shares = {name: value for name, value in told.items() if value is not None}
    if "gpu_utilization" in shares:  # the driver's samples and our readings are not of one clock
        shares["gpu_utilization"] = min(1.0, shares["gpu_utilization"])
    return shares


def _share(gpu: Mapping[str, float], part: str, whole: str) -> float:
    if part not in gpu or not gpu.get(whole):
        return math.nan
    return gpu[part] / gpu[whole]


def _average(values: Iterable[float]) -> float | None:
    """Return the mean; None where one of them is not known: a mean of some is none of all."""
    told = list(values)
    mean = sum(told) / len(told) if told else math.nan
    return None if math.isnan(mean) else mean


def _worst(pick: Callable[[list[float]], float], values: Iterable[float]) -> float | None:
    told = [value for value in values if not math.isnan(value)]
    return pick(told) if told else None


# ---------------------------------------------------------------- the node


def _node(view: View, window: Window) -> Iterator[tuple[str, float]]:
    """Yield what is the same for all runs of the node."""
    full = [
        window.rate(("pressure", *one.labels), one)
        for one in readings(view, c.HOST_PRESSURE_STALLED_SECONDS_TOTAL, window.now)
        if one.labels == ("memory", "some")
    ]
    if (stalled := _sum(full)) is not None:
        yield "memory_stalled", min(1.0, stalled)
    errors = [
        window.rate(("nic_errors", *one.labels), one)
        for one in readings(view, c.NIC_ERRORS_TOTAL, window.now)
        if one.labels[-1] in LINK_ERRORS
    ]
    if (rate := _sum(errors)) is not None:
        yield "link_error_rate", rate
    notices = [
        window.rate((metric.name, *one.labels), one)
        for metric in (c.NIC_CONGESTION_NOTICES_TOTAL, c.NIC_ECN_MARKED_PACKETS_TOTAL)
        for one in readings(view, metric, window.now)
    ]
    if (rate := _sum(notices)) is not None:
        yield "congestion_rate", rate
    for one in readings(view, c.NIC_RAIL_IMBALANCE_RATIO, window.now):
        yield "rail_imbalance", window.mean(("rail_imbalance",), one)
    yield from _pauses(view, window)


def _pauses(view: View, window: Window) -> Iterator[tuple[str, float]]:
    """Yield how long the worst port was paused, or paused others; by frames where only those tell.

    A frame may stop a port for a moment or for long, so where durations are known they count alone.
    """
    for name, seconds, frames in (
        ("paused", c.NIC_RECEIVE_PAUSE_SECONDS_TOTAL, c.NIC_RECEIVE_PAUSE_FRAMES_TOTAL),
        ("pausing", c.NIC_TRANSMIT_PAUSE_SECONDS_TOTAL, c.NIC_TRANSMIT_PAUSE_FRAMES_TOTAL),
    ):
        timed = list(readings(view, seconds, window.now))
        shares = [window.rate((name, *one.labels), one) for one in timed]
        if told := [rate for rate in shares if rate is not None]:
            yield name, min(1.0, max(told))
        known = {one.labels for one in timed}
        counted = [
            window.rate((f"{name}_frames", *one.labels), one)
            for one in readings(view, frames, window.now)
            if one.labels not in known
        ]
        if (rate := _sum(counted)) is not None:
            yield f"{name}_frame_rate", rate
    storms = [
        window.rate(("storm", *one.labels), one)
        for one in readings(view, c.NIC_PAUSE_STORM_EVENTS_TOTAL, window.now)
        if one.labels[-1] == "error"
    ]
    if (rate := _sum(storms)) is not None:
        yield "pause_storm_rate", rate


def _sum(rates: Iterable[float | None]) -> float | None:
    told = [rate for rate in rates if rate is not None]
    return sum(told) if told else None


# ---------------------------------------------------------------- runs


def _runs(view: View, window: Window) -> dict[str, dict[str, float]]:
    """Return what is derived of each run."""
    found: dict[str, dict[str, float]] = {}
    for name, value, run in _of_runs(view, window):
        found.setdefault(run, {}).setdefault(name, value)
    for signals in found.values():
        # The tree asks for all of the communication; where only what nothing hid is known, that.
        total = signals.pop("total_communication", signals.get("exposed_communication"))
        if total is not None:
            signals["communication"] = total
    return found


def _of_runs(view: View, window: Window) -> Iterator[tuple[str, float, str]]:
    """Yield name, value and run of each signal, the best evidence first."""
    now, long = window.now, window._replace(seconds=CHECKPOINTS)
    shares = sorted(
        readings(view, c.TRAIN_COMMUNICATION_RATIO, now), key=lambda one: _rank(one.labels[2])
    )
    for one in shares:
        yield f"{one.labels[1]}_communication", one.value, one.labels[0]
    for one in readings(view, c.TRAIN_DATA_LOADING_RATIO, now):
        yield "data_loading", one.value, one.labels[0]
    bubbles = readings(view, c.TRAIN_PIPELINE_BUBBLE_RATIO, now)
    for one in sorted(bubbles, key=lambda one: one.labels[1] != "measured"):
        yield "bubble", one.value, one.labels[0]
    losses: dict[tuple[str, str], float] = {}  # a cause may be known in parts, each its own way
    for one in readings(view, c.TRAIN_MFU_LOSS_RATIO, now):
        run, cause, _ = one.labels
        losses[run, cause] = losses.get((run, cause), 0.0) + one.value
    for (run, cause), share in losses.items():
        if cause in {"clock", "framework"}:
            yield {"clock": "clock_loss"}.get(cause, cause), share, run
    small: dict[str, list[float]] = {}
    for one in readings(view, c.NCCL_SMALL_MESSAGE_RATIO, now):
        small.setdefault(one.labels[0], []).append(one.value)
    for run, shares_of_ranks in small.items():
        yield "small_messages", sum(shares_of_ranks) / len(shares_of_ranks), run
    yield from _collectives(view, window)
    for one in readings(view, c.TRAIN_STEP_SKEW_RATIO, now):
        yield "skew", one.value, one.labels[0]
    for one in readings(view, c.TRAIN_HBM_BANDWIDTH_UTILIZATION_RATIO, now):
        yield "memory_bandwidth", one.value, one.labels[0]
    for one in readings(view, c.TRAIN_CHECKPOINT_SECONDS_TOTAL, now):
        rate = long.rate(("checkpoint", *one.labels), one, least=CHECKPOINTS / 6)
        if rate is not None:
            yield "checkpoint", min(1.0, rate), one.labels[0]


def _collectives(view: View, window: Window) -> Iterator[tuple[str, float, str]]:
    """Yield what collectives tell of each run: their bandwidth, their waiting, their settings."""
    ratios: dict[str, list[float]] = {}
    for one in readings(view, c.NCCL_BUS_BANDWIDTH_RATIO, window.now):
        ratios.setdefault(one.labels[0], []).append(one.value)
    for run, told in ratios.items():
        yield "bus_bandwidth", statistics.median(told), run
    for run, (waited, moved) in _waited(view, window).items():
        if waited + moved > 0:
            yield "collective_waiting", waited / (waited + moved), run
    for one in readings(view, c.NCCL_ENVIRONMENT_PROBLEM, window.now):
        if one.labels[1] == "sharp_unused":
            yield "sharp_unused", one.value, one.labels[0]
    mistakes: dict[str, list[float]] = {}
    for one in readings(view, c.NCCL_ENVIRONMENT_PROBLEM, window.now):
        if one.labels[1] in SERIOUS:
            mistakes.setdefault(one.labels[0], []).append(one.value)
    for run, told in mistakes.items():
        yield "nccl_settings", max(told), run


def _waited(view: View, window: Window) -> dict[str, tuple[float, float]]:
    """Return what the ranks of each run spend in a second, waiting and with all there."""
    found: dict[str, tuple[float, float]] = {}
    for at, metric in enumerate((c.NCCL_WAIT_SECONDS_TOTAL, c.NCCL_TRANSFER_SECONDS_TOTAL)):
        for one in readings(view, metric, window.now):
            rate = window.rate((metric.name, *one.labels), one)
            if rate is not None:
                waited, moved = found.get(one.labels[0], (0.0, 0.0))
                found[one.labels[0]] = (waited + rate * (1 - at), moved + rate * at)
    return found


def _rank(evidence: str) -> int:
    return EVIDENCE.index(evidence) if evidence in EVIDENCE else len(EVIDENCE)
