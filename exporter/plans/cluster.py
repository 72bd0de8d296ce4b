"""Plans for who has which GPU: pods, jobs, processes."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.config import Settings
from exporter.plans.estate import Estate, Plan


def cluster_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield what tells to whom GPUs were given. One line for each kind of owner."""
    yield from _kubernetes_plans(settings, estate)


def _kubernetes_plans(_settings: Settings, _estate: Estate) -> Iterator[Plan]:
    """Yield the reader of the kubelet, where this node has one."""
    yield from ()
