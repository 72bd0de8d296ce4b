"""What the settings ask for, as plans: each says how a source is made, and how often it is read.

The composition root: the only room that knows all the others. `app` runs what is planned here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exporter import catalogue as c
from exporter.config import ConfigError, Settings
from exporter.history import INTERVAL
from exporter.plans.cluster import cluster_plans
from exporter.plans.estate import STATE_DEADLINE, Estate, Plan, Planner, Roster, remembering
from exporter.plans.fabric import fabric_plans
from exporter.plans.gpus import gpu_plans
from exporter.plans.money import money_plans
from exporter.plans.serving import expects_servers, inference_plans, serving_plan
from exporter.plans.training import training_plans
from exporter.runner import Schedule
from exporter.samples import Remembered, Source
from exporter.sinks.history import HistorySink
from exporter.sinks.statefile import OLDEST, StateFile, this_boot
from exporter.sources.host import HostSource
from exporter.sources.network import NetworkSource
from exporter.sources.process import ProcessSource
from exporter.workers import Crew

__all__ = ["Estate", "Plan", "Planner", "Roster", "build", "plan"]

_STATE_LOOK = 5.0
"""How often it is looked whether there is news to write, in seconds."""

_LOOK_AGAIN, _ASK_AGAIN = 60.0, 3600.0
"""Seconds after which ports are looked for again, and refused counters are asked for again."""

_HISTORY_DEADLINE = 2.0
"""How long noting what is on the board should take at most, in seconds."""

_AFTER_ALL = 0.2
"""How long after readings and what is derived of them the history has its beat, in seconds."""

_OF_DEADLINE = 0.8
"""The part of a deadline after which a device that hangs is left behind."""


def plan(settings: Settings, estate: Estate) -> list[Plan]:
    """Return what the settings ask for; touches no device.

    Raises `ConfigError`.
    """
    return list(_plans(settings, estate))


def _plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    _forget(estate)
    sources, root = settings.sources, Path(settings.root)
    shared = settings.root
    if settings.state_directory is not None:
        yield _state_plan(settings, Path(settings.state_directory), estate)
    yield from gpu_plans(settings, estate)
    if (host := sources.host).enabled:
        yield Plan(
            "host", c.HOST, Schedule(host.interval, host.deadline, host.max_series),
            f"{shared} {host!r}", lambda: HostSource(root),
        )  # fmt: skip
    if sources.network.enabled:
        yield _network_plan(settings, estate)
    if (process := sources.process).enabled:
        yield Plan(
            "process", c.EXPORTER,
            Schedule(process.interval, process.deadline, process.max_series),
            repr(process), ProcessSource,
        )  # fmt: skip
    if sources.inference.enabled:
        yield from inference_plans(settings, estate)
    if sources.serving.enabled and (
        settings.serving_objectives or expects_servers(sources.inference)
    ):
        yield serving_plan(settings, estate)
    yield from training_plans(settings, estate)
    yield from fabric_plans(settings, estate)
    yield from cluster_plans(settings, estate)
    yield from money_plans(settings, estate)
    if settings.history:
        yield _history_plan(estate)


def _network_plan(settings: Settings, estate: Estate) -> Plan:
    network = settings.sources.network
    extra: dict[str, Any] = remembering(settings, estate)
    extra.pop("keep_every", None)
    if network.exclude_interfaces is not None:
        extra["exclude"] = re.compile(network.exclude_interfaces)
    if network.exclude_devices is not None:
        extra["exclude_devices"] = re.compile(network.exclude_devices)
    return Plan(
        "network", c.NIC, Schedule(network.interval, network.deadline, network.max_series),
        f"{settings.root} {network!r}",
        lambda: NetworkSource(
            Path(settings.root), raw=network.raw, expected=network.expected_ports,
            crew=Crew(estate.clock), seconds=network.deadline * _OF_DEADLINE,
            relist=max(2, round(_LOOK_AGAIN / network.interval)),
            backoff=max(2, round(_ASK_AGAIN / network.interval)),
            boot=this_boot(), clock=estate.clock, **extra,
        ),
    )  # fmt: skip


def _forget(estate: Estate) -> None:
    """Drop what servers that have gone for good have left."""
    oldest = estate.clock.monotonic() - OLDEST
    for name, one in list(estate.memories.items()):
        if isinstance(one, Remembered) and one.taken < oldest:
            estate.memories.pop(name, None)


def _state_plan(settings: Settings, directory: Path, estate: Estate) -> Plan:
    every = settings.state_interval
    return Plan(
        StateFile.name, c.EXPORTER, Schedule(min(every, _STATE_LOOK), STATE_DEADLINE),
        f"{directory} {every}",
        lambda: StateFile(
            directory, estate.memories, estate.recalled, estate.clock,
            # A little less: what is remembered comes on its own beat.
            every=every * 0.9, boot=this_boot(),
        ),
        turn=2,
    )  # fmt: skip


def _history_plan(estate: Estate) -> Plan:
    return Plan(
        HistorySink.name, c.EXPORTER, Schedule(INTERVAL, _HISTORY_DEADLINE, after=_AFTER_ALL), "",
        lambda: HistorySink(
            estate.history, estate.board.view, estate.clock, also=estate.watch.note,
        ),
    )  # fmt: skip


def build(one: Plan) -> Source:
    """Return the source of a plan, not yet read. Raises `ConfigError`."""
    try:
        return one.make()
    except (OSError, ValueError) as error:
        raise ConfigError(f"source {one.name}: {error}") from None
