"""The plan of who asks drivers of network cards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from exporter import catalogue as c
from exporter.config import Settings
from exporter.plans.estate import Plan
from exporter.runner import Schedule
from exporter.sources.ethtool import DEFAULT_COUNTERS, Door, EthtoolSource


def ethtool_plans(settings: Settings) -> Iterator[Plan]:
    """Yield the source of drivers' own statistics, unless it is switched off."""
    ethtool = settings.sources.ethtool
    if ethtool.enabled is False:
        return
    yield Plan(
        "ethtool", c.NIC, Schedule(ethtool.interval, ethtool.deadline, ethtool.max_series),
        f"{settings.root} {ethtool!r}", lambda: ethtool_source(settings),
    )  # fmt: skip


def ethtool_source(settings: Settings, door: Door | None = None) -> EthtoolSource:
    """Return the source that asks drivers; without a door those of this machine."""
    ethtool = settings.sources.ethtool
    return EthtoolSource(
        Path(settings.root), door,
        exclude=ethtool.exclude_interfaces or "",
        counters=DEFAULT_COUNTERS if ethtool.counters is None else ethtool.counters,
        without=ethtool.exclude_counters, rings=ethtool.rings, most=ethtool.max_counters,
        optics=None if ethtool.optics == "auto" else ethtool.optics,
        required=ethtool.enabled is True,
    )  # fmt: skip
