"""Plans for what GPUs cost, and for the notices of the cloud that lends them."""

from __future__ import annotations

from collections.abc import Iterator

from exporter.config import Settings
from exporter.plans.estate import Estate, Plan
from exporter.plans.spot import spot_plans


def money_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield who looks for notices and prices, and what is derived of them.

    Raises `ConfigError`.
    """
    yield from spot_plans(settings, estate)
