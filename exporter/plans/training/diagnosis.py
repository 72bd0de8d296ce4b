"""The plan of what says which bottleneck each run has."""

from __future__ import annotations

from collections.abc import Iterator

from exporter import catalogue as c
from exporter.config import Settings
from exporter.derive.diagnosis import Thresholds, diagnosis
from exporter.plans.estate import AFTER_READING, Estate, Plan
from exporter.plans.gpus import reads_gpus
from exporter.runner import Schedule
from exporter.sources.derived import DerivedSource


def diagnosis_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield the derivation where there are GPUs, or where it is asked for."""
    wanted = settings.diagnosis
    gpus = reads_gpus(settings, estate)
    if not (gpus if wanted.enabled == "auto" else wanted.enabled):
        return
    thresholds = Thresholds(**wanted.thresholds.model_dump())
    schedule = Schedule(wanted.interval, wanted.deadline, wanted.max_series, AFTER_READING)
    yield Plan(
        "derive:diagnosis", c.DIAGNOSIS, schedule, repr(wanted),
        lambda: DerivedSource(
            diagnosis(thresholds, wanted.window, wanted.hold),
            estate.board.view, estate.clock,
        ),
    )  # fmt: skip
