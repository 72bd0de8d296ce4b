"""Plans for what is told of the node's fabric beside the counters of its ports."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.config import Settings
from exporter.plans.collectives import comm_plans
from exporter.plans.estate import Estate, Plan
from exporter.plans.ethtool import ethtool_plans


def fabric_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield what reads drivers' own counters and the topology, and what is derived of them.

    Raises `ConfigError`.
    """
    yield from ethtool_plans(settings)
    yield from comm_plans(settings, estate)
