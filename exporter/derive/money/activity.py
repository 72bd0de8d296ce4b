"""For how long each GPU has been active, by the counters on the board.

Of a GPU that is split into instances only the instances tell. Each is a known part of the SMs, by
its profile, so their sum is that of the GPU; what no instance has is idle.
"""

from __future__ import annotations

from collections.abc import Mapping

from exporter import catalogue as c
from exporter.derive.derivation import readings
from exporter.derive.money.accounts import Activity
from exporter.derive.slices import of_instance, wholes
from exporter.samples import Metric, View

INPUTS: tuple[Metric, ...] = (
    c.GPU_INFO,
    c.GPU_BUSY_SECONDS_TOTAL,
    c.GPU_SM_ACTIVE_SECONDS_TOTAL,
    c.GPU_MIG_INFO,
    c.GPU_MIG_SM_ACTIVE_SECONDS_TOTAL,
)


def activities(view: View, now: float) -> dict[str, Activity]:
    """Return the counters of activity of each GPU, by UUID. Two readers do not count twice."""
    found: dict[str, Activity] = {}
    for reading in readings(view, c.GPU_BUSY_SECONDS_TOTAL, now):
        found.setdefault(reading.labels[1], Activity(reading.taken, None, reading.value))
    sms: dict[str, Activity] = {}
    for reading in readings(view, c.GPU_SM_ACTIVE_SECONDS_TOTAL, now):
        uuid = reading.labels[1]
        other = found.get(uuid)
        kernels = other.kernels if other is not None and other.taken == reading.taken else None
        sms.setdefault(uuid, Activity(reading.taken, reading.value, kernels))
    return {**_split(view, now), **found, **sms}


def _split(view: View, now: float) -> dict[str, Activity]:
    """Return the activity of GPUs that are split, as far as all of their instances tell."""
    at = c.GPU_MIG_INFO.labels.index("profile")
    parts: dict[str, dict[str, int]] = {}
    for sample in view.samples(c.GPU_MIG_INFO):
        _, uuid, mig = sample.labels[:3]
        parts.setdefault(uuid, {})[mig] = of_instance(sample.labels[at])
    if not parts:
        return {}
    whole = wholes(view)
    seconds: dict[str, dict[str, float]] = {}
    taken: dict[str, float] = {}
    for reading in readings(view, c.GPU_MIG_SM_ACTIVE_SECONDS_TOTAL, now):
        _, uuid, mig = reading.labels
        seconds.setdefault(uuid, {}).setdefault(mig, reading.value)
        taken[uuid] = reading.taken
    return {
        uuid: Activity(taken[uuid], _sum(slices, seconds[uuid]) / whole[uuid], None)
        for uuid, slices in parts.items()
        if uuid in whole and all(slices.values()) and seconds.get(uuid, {}).keys() == slices.keys()
    }


def _sum(slices: Mapping[str, int], seconds: Mapping[str, float]) -> float:
    return sum(seconds[mig] * part for mig, part in slices.items())
