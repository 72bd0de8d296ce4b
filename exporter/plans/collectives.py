"""Plans for what is known of collectives: how the fabric is used, and what it could do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from exporter import catalogue as c
from exporter.config import Settings
from exporter.derive.fabric.expected import Limits, expected
from exporter.derive.fabric.use import use
from exporter.derive.memory import HOUR
from exporter.plans.estate import Estate, Plan
from exporter.plans.gpus import reads_gpus
from exporter.reference.accelerators import load as load_accelerators
from exporter.runner import Schedule
from exporter.sources.derived import DerivedSource
from exporter.sources.nccl_environment import NcclEnvironmentSource

_READINGS = 3


def comm_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield them where there are GPUs, or where they are asked for."""
    wanted = settings.fabric
    if _wanted(wanted.enabled, settings, estate):
        # Two readings make a rate, and a third may be late.
        window = max(wanted.window, min(_READINGS * settings.sources.network.interval, HOUR))
        schedule = Schedule(wanted.interval, wanted.deadline, wanted.max_series)
        yield Plan(
            "derive:fabric", c.FABRIC, schedule, f"{wanted!r} {window}",
            lambda: DerivedSource(
                use(load_accelerators(), window=window, floor=wanted.rail_floor),
                estate.board.view, estate.clock,
            ),
        )  # fmt: skip
        limits = Limits(wanted.efficiency, wanted.reference_bandwidth, wanted.least_ratio)
        yield Plan(
            "derive:collectives", c.FABRIC, schedule, repr(wanted),
            lambda: DerivedSource(expected(limits), estate.board.view, estate.clock),
        )  # fmt: skip
    yield from _environment_plans(settings, estate)


def _environment_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    wanted, names = settings.sources.nccl_environment, settings.sources.ranks.names
    if _wanted(wanted.enabled, settings, estate):
        yield Plan(
            "nccl_environment", c.FABRIC,
            Schedule(wanted.interval, wanted.deadline, wanted.max_series),
            f"{settings.root} {wanted!r} {names!r}",
            lambda: NcclEnvironmentSource(
                Path(settings.root), estate.training, estate.board.view, estate.clock, names=names
            ),
        )  # fmt: skip


def _wanted(enabled: object, settings: Settings, estate: Estate) -> bool:
    return reads_gpus(settings, estate) if enabled == "auto" else bool(enabled)
