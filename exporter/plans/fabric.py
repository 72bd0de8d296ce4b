"""Plans for what is told of the node's fabric beside the counters of its ports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from exporter import catalogue as c
from exporter.config import Settings
from exporter.config.fabric import TopologySettings
from exporter.derive.fabric.gpus import Gpu, gpus_of
from exporter.derive.fabric.rails import Chosen
from exporter.plans.collectives import comm_plans
from exporter.plans.estate import Estate, Plan
from exporter.plans.ethtool import ethtool_plans
from exporter.plans.gpus import reads_gpus
from exporter.runner import Schedule
from exporter.sources.topology import Choice, Scanner, TopologySource


def fabric_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield what reads drivers' own counters and the topology, and what is derived of them.

    Raises `ConfigError`.
    """
    yield from ethtool_plans(settings)
    yield from _topology(settings, estate)
    yield from comm_plans(settings, estate)


def _topology(settings: Settings, estate: Estate) -> Iterator[Plan]:
    wanted = settings.sources.topology
    if not (reads_gpus(settings, estate) if wanted.enabled == "auto" else wanted.enabled):
        return

    def gpus() -> Sequence[Gpu]:
        now = estate.clock.monotonic()
        # A copy: another thread may meet a new GPU meanwhile.
        return gpus_of(dict(estate.roster()), estate.board.view(now), now)

    yield Plan(
        "topology", c.TOPOLOGY, Schedule(wanted.interval, wanted.deadline, wanted.max_series),
        f"{settings.root} {wanted!r}",
        lambda: TopologySource(
            Scanner(Path(settings.root)), gpus, estate.clock,
            choice=_choice(wanted, Path(settings.root)), rescan=wanted.rescan,
        ),
    )  # fmt: skip


def _choice(wanted: TopologySettings, root: Path) -> Choice:
    compute, storage = (
        None if pattern is None else re.compile(pattern)
        for pattern in (wanted.compute_nics, wanted.storage_nics)
    )
    file = None if wanted.file is None else root / wanted.file.lstrip("/")
    return Choice(Chosen(compute, storage), wanted.worst_distance, wanted.max_pairs, file)
