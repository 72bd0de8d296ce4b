"""Plans for the logs of training jobs."""

from __future__ import annotations

from collections.abc import Iterator

from exporter import catalogue as c
from exporter.config import Settings
from exporter.plans.estate import Estate, Plan, remembering
from exporter.runner import Schedule
from exporter.sources.training_logs import TrainingLogsSource, Watched


def log_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield the reader of jobs' logs, where there are any to read."""
    logs = settings.sources.logs
    if not logs.enabled or not logs.files:
        return
    watched = tuple(
        Watched(
            one.path, one.run, one.framework, one.rank, one.logging_steps, one.tokens_per_second
        )
        for one in logs.files
    )
    kept = remembering(settings, estate)
    yield Plan(
        "logs", c.TRAINING, Schedule(logs.interval, logs.deadline, logs.max_series),
        f"{settings.root} {logs!r} {settings.state_directory} {settings.state_interval}",
        lambda: TrainingLogsSource(
            watched, estate.training, estate.clock, settings.root, max_files=logs.max_files, **kept
        ),
    )  # fmt: skip
