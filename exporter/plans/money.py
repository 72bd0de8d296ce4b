"""Plans for what GPUs cost, and for the notices of the cloud that lends them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from exporter import catalogue as c
from exporter.config import ConfigError, Settings, load_document
from exporter.config.money import CostSettings, OpenCostSettings, zone_of
from exporter.derive.money.cost import cost
from exporter.derive.money.energy import Energy
from exporter.derive.money.pricing import (
    Hours,
    Listed,
    Owned,
    Pricing,
    Schedule,
    seconds_of,
)
from exporter.derive.money.tco import read_tco
from exporter.fetch import HttpFetcher
from exporter.plans.estate import Estate, Plan, remembering
from exporter.plans.gpus import reads_gpus
from exporter.plans.spot import interruption_plans, spot_plans
from exporter.plans.spread import node_name, shared
from exporter.reference import prices
from exporter.runner import Schedule as Beat
from exporter.sources.derived import DerivedSource
from exporter.sources.opencost import OpenCostSource


def money_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield who looks for notices and prices, and what is derived of them.

    Raises `ConfigError`.
    """
    yield from spot_plans(settings, estate)
    yield from _opencost_plans(settings, estate)
    yield from _cost_plans(settings, estate)


# ---------------------------------------------------------------- prices


def _opencost_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield the reader of OpenCost's page, where that is asked for."""
    told = settings.sources.opencost
    if not told.enabled:
        return
    node = told.node or node_name()
    beat = Beat(told.interval, told.timeout + 0.5, told.max_series)
    yield Plan(
        OpenCostSource.name, c.COST,
        shared(beat, OpenCostSource.name, jitter=settings.start_jitter),
        f"{told!r} {node}", lambda: OpenCostSource(_fetcher(told, estate), node),
    )  # fmt: skip


def _fetcher(told: OpenCostSettings, estate: Estate) -> HttpFetcher:
    return HttpFetcher(
        told.url,
        timeout=told.timeout,
        token_file=None if told.token_file is None else Path(told.token_file),
        ca_file=None if told.ca_file is None else Path(told.ca_file),
        insecure_skip_verify=told.insecure_skip_verify,
        clock=estate.clock,
    )


def _cost_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield the derivation of dollars, where there are GPUs. Raises `ConfigError`."""
    told, clock = settings.cost, estate.clock
    if not (reads_gpus(settings, estate) if told.enabled == "auto" else told.enabled):
        return
    pricing = _pricing(told)
    kept = remembering(settings, estate)
    nvml = settings.sources.nvml
    gap = told.interval + Beat(nvml.interval, nvml.deadline).max_age

    def wall(now: float) -> float:
        return clock.time() - clock.monotonic() + now

    def make() -> DerivedSource:
        derivation = cost(
            pricing, wall, estate.life, energy=Energy(**told.energy.model_dump()),
            quotas=told.quotas, newest=_newest(), longest_gap=gap,
        )  # fmt: skip
        return DerivedSource(derivation, estate.board.view, clock, last_round=True, **kept)

    yield Plan(
        "derive:cost", c.COST, Beat(told.interval, told.deadline, told.max_series),
        f"{told!r} {pricing.owned!r} {gap} {settings.state_directory} {settings.state_interval}",
        make,
    )  # fmt: skip
    yield from interruption_plans(settings, estate)


def _pricing(told: CostSettings) -> Pricing:
    """Return who is asked for prices. Raises `ConfigError` for a file that cannot be used."""
    schedule = told.schedule
    hours = tuple(
        Hours(
            one.begin, one.end, frozenset(one.days),
            1.0 if one.factor is None else one.factor, one.price,
        )
        for one in schedule.hours
    )  # fmt: skip
    return Pricing(
        stated=tuple(told.gpu_hour.items()),
        pricing=told.pricing or "",
        as_of=told.as_of,
        owned=_owned(told),
        instance_type=told.instance_type,
        table=_listed,
        schedule=Schedule(hours, zone_of(schedule.time_zone or "UTC")),
    )


def _owned(told: CostSettings) -> Owned | None:
    """Return the cost of an owned hour by the TCO model. Raises `ConfigError`."""
    if told.tco is None:
        return None
    path = Path(told.tco.file)
    if path.is_fifo() or path.is_char_device():  # the daemon would wait for ever
        raise ConfigError(f"cost.tco.file: {path}: no plain file")
    try:
        plan = read_tco(load_document(path))
    except ConfigError as error:
        raise ConfigError(f"cost.tco.file: {error}") from None
    except ValueError as error:
        raise ConfigError(f"cost.tco.file: {path}: {error}") from None
    dollars = plan.cost_per_owned_gpu_hour(told.tco.years)
    if dollars is None:
        raise ConfigError(f"cost.tco.file: {path}: it does not say how many GPUs there are")
    return Owned(dollars)


def _listed(instance_type: str, pricing: str) -> Listed | None:
    found = prices.listed(instance_type, pricing)
    return None if found is None else Listed(found.dollars_per_gpu_hour, found.as_of)


def _newest() -> float | None:
    """Return when the newest row of the table of list prices is of, in Unix seconds."""
    day = prices.load().as_of
    return None if day is None else seconds_of(day)
