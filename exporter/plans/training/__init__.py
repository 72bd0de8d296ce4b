"""Plans for those who tell of training runs, and for what is derived from that."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.config import Settings
from exporter.plans.estate import Estate, Plan
from exporter.plans.training.files import files_plans, page_plans
from exporter.plans.training.logs import log_plans
from exporter.plans.training.push import push_plans


def training_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield what reads training runs, best known first. Raises `ConfigError`."""
    yield from push_plans(settings, estate)
    yield from log_plans(settings, estate)
    yield from files_plans(settings, estate)
    yield from page_plans(settings, estate)
