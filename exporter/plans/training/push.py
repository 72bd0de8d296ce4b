"""The plan of what jobs tell the daemon themselves."""

from __future__ import annotations

from collections.abc import Iterator

from exporter import catalogue as c
from exporter.config import Settings
from exporter.plans.estate import Estate, Plan
from exporter.runner import Schedule
from exporter.sources.push import PushSource


def push_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield the source that shows how pushing goes."""
    if settings.push.enabled:
        yield Plan(
            "push", c.EXPORTER, Schedule(5.0, 2.0), "",
            lambda: PushSource(estate.reception, estate.clock),
        )  # fmt: skip
