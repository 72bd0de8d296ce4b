"""Labels of a pod on the series of its GPU, for those who have dashboards that want them there.

The rule of the house is the other one: names of pods stand once, on `gpu_allocation_info`. Here a
series of a GPU, or of an instance, gets `namespace`, `pod` and `container` if one container has it
alone; other series stay as they are. It is done where the page is written: a pod that comes or goes
costs the text before the values, nothing is read or derived anew.

    gpu_power_watts{container="main",gpu="0",namespace="ml",pod="train-0",uuid="GPU-5a1c..."} 612
"""

from __future__ import annotations

from collections.abc import Mapping

from exporter import catalogue as c
from exporter.samples import Metric, View

_GROUPS = frozenset((c.GPU, c.XID, "compat"))
LABELS = ("namespace", "pod", "container")

Pairs = tuple[tuple[str, str], ...]
Owned = Mapping[tuple[str, str], Pairs]
"""The labels of whoever has a GPU alone, by UUID and instance; that is empty for a whole GPU."""

_NAMES = (("uuid", "mig"), ("UUID", "GPU_I_ID"))
"""How families call a GPU and an instance: ours, and dcgm-exporter's."""


def sole_owners(view: View) -> Owned:
    """Return who has which GPU or instance alone, as far as the board tells."""
    parts: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    split: set[str] = set()
    for sample in view.samples(c.GPU_ALLOCATION_PART_INFO):
        _, uuid, mig, replica, *who = sample.labels
        split.add(uuid)
        # A replica is had beside others, whether they are handed out now or not.
        parts.setdefault((uuid, mig), []).extend([tuple(who)] * (2 if replica else 1))
    # Of who has a part and nobody knows which, the whole GPU is not.
    whole = {one.labels for one in view.samples(c.GPU_ALLOCATION_SHARE_RATIO) if one.value == 1}
    for sample in view.samples(c.GPU_ALLOCATION_INFO):
        _, uuid, *who = sample.labels
        if uuid not in split and any(who) and sample.labels in whole:
            parts.setdefault((uuid, ""), []).append(tuple(who))
    return {
        part: tuple(zip(LABELS, who[0], strict=True))
        for part, who in parts.items()
        if len(who) == 1
    }


def labels_of(metric: Metric, labels: tuple[str, ...], owned: Owned) -> Pairs:
    """Return the labels to add to a series: none, unless it is one of a GPU that has an owner."""
    if not owned or metric.group not in _GROUPS or LABELS[1] in metric.labels:
        return ()
    for uuid, mig in _NAMES:
        if uuid in metric.labels:
            instance = labels[metric.labels.index(mig)] if mig in metric.labels else ""
            return owned.get((labels[metric.labels.index(uuid)], instance), ())
    return ()
