"""Plans for what the cloud announces: who asks, and who is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from exporter import catalogue as c
from exporter.clouds import CLOUDS, ENDPOINTS, Cloud, Service, find_provider
from exporter.clouds.aws import Aws
from exporter.clouds.azure import Azure
from exporter.config import ConfigError, Settings
from exporter.config.money import SpotSettings
from exporter.plans.estate import Estate, Plan, remembering
from exporter.runner import Schedule
from exporter.sinks.statefile import this_boot
from exporter.sources.spot import SpotSource


def spot_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield who asks the cloud, where there is one. Raises `ConfigError`."""
    spot = settings.sources.spot
    if spot.enabled is False or (provider := _provider(settings)) is None:
        return

    def make() -> SpotSource:
        return SpotSource(
            _cloud(provider, spot, estate), estate.notices, estate.clock, boot=this_boot(),
            **remembering(settings, estate),
        )  # fmt: skip

    yield Plan(
        "spot", c.SPOT, Schedule(spot.interval, spot.deadline, spot.max_series),
        f"{provider} {spot!r} {settings.state_directory} {settings.state_interval}",
        make,
        turn=1,
    )  # fmt: skip


def _provider(settings: Settings) -> str | None:
    """Return the cloud to ask; without one in the settings, that which the firmware names."""
    spot = settings.sources.spot
    if spot.provider != "auto":
        return spot.provider
    found = find_provider(Path(settings.root))
    if found is None and spot.enabled is True:
        raise ConfigError(
            "sources.spot.provider: the firmware names no cloud that is known: name it, or set"
            " enabled: auto"
        )
    return found


def _cloud(provider: str, spot: SpotSettings, estate: Estate) -> Cloud:
    service = Service(spot.endpoint or ENDPOINTS[provider], estate.clock, timeout=spot.timeout)
    if provider == "aws":
        return Aws(service, tokenless=spot.tokenless)
    if provider == "azure":
        return Azure(service, acknowledge_after=spot.acknowledge_after)
    return CLOUDS[provider](service)
