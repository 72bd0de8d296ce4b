"""The plan of what finds the ranks of training jobs on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from exporter import catalogue as c
from exporter.config import Settings
from exporter.discovery import Machine
from exporter.plans.estate import Estate, Plan
from exporter.plans.gpus import reads_gpus
from exporter.runner import Schedule
from exporter.sources.training_ranks import TrainingRanksSource


def rank_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield the look-out for ranks: where there are GPUs, or logs of jobs are read."""
    ranks, logs = settings.sources.ranks, settings.sources.logs
    wanted = reads_gpus(settings, estate) or bool(logs.enabled and logs.files)
    if ranks.enabled is True or (ranks.enabled == "auto" and wanted):
        yield Plan(
            "ranks", c.TRAINING, Schedule(ranks.interval, ranks.deadline, ranks.max_series),
            f"{settings.root} {ranks!r}",
            lambda: TrainingRanksSource(
                estate.training, Machine(Path(settings.root)), estate.board.view, estate.clock,
                names=ranks.names,
            ),
        )  # fmt: skip
