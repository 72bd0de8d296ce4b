"""The plan for what is derived of training runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from exporter import catalogue as c
from exporter.config import ConfigError, Settings, TrainingRunSettings
from exporter.derive.flops import count
from exporter.derive.training import Baseline, Stated, training
from exporter.plans.estate import AFTER_READING, Estate, Plan, remembering
from exporter.plans.gpus import accelerators
from exporter.reference.models import Models, read_document
from exporter.reference.models import load as load_models
from exporter.runner import Schedule
from exporter.sources.derived import DerivedSource
from exporter.training.records import Facts


def runs_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield the derivation; without a run it has nothing to do."""
    told, clock = settings.training, estate.clock
    if not told.enabled:
        return
    statements = tuple(_stated(at, one) for at, one in enumerate(told.runs))
    schedule = Schedule(told.interval, told.deadline, told.max_series, AFTER_READING)
    kept = remembering(settings, estate)

    def wall(now: float) -> float:
        return clock.time() - clock.monotonic() + now

    def make() -> DerivedSource:
        models = load_models()
        derivation = training(
            estate.training, wall, lambda facts: count(facts, models), statements=statements,
            products=accelerators(settings), own=[one.name for one in settings.accelerators],
            objectives=settings.training_sla,
        )  # fmt: skip
        return DerivedSource(derivation, estate.board.view, clock, last_round=True, **kept)

    yield Plan(
        "derive:training", c.TRAINING, schedule,
        f"{told!r} {statements!r} {settings.accelerators!r} {settings.training_sla!r}"
        f" {settings.state_directory} {settings.state_interval}",
        make,
        turn=1,
    )  # fmt: skip


def _stated(at: int, one: TrainingRunSettings) -> Stated:
    """Return what a section states. Raises `ConfigError` for a model that cannot be counted."""
    config = None
    if one.model_file is not None:
        try:
            config = read_document(Path(one.model_file))
        except ValueError as error:
            raise ConfigError(f"training.runs.{at}.model_config: {error}") from None
    facts = Facts(
        run=one.name, world_size=one.world_size, sequence_length=one.sequence_length,
        global_batch=one.global_batch, micro_batches=one.micro_batches,
        pipeline_parallel=one.pipeline_parallel, virtual_stages=one.virtual_stages,
        precision=one.precision, recompute=one.recompute, model=one.model, config=config,
        flops_per_token=one.flops_per_token,
    )  # fmt: skip
    if config is not None:
        try:
            count(facts, Models(()))
        except ValueError as error:
            where = f"training.runs.{at}.model_config: {one.model_file}"
            raise ConfigError(f"{where}: {error}") from None
    base = one.baseline
    return Stated(
        pattern=one.name,
        facts=facts,
        baseline=None
        if base is None
        else Baseline(base.tokens_per_second_per_gpu, base.gpus, base.kind),
        reporter=None if one.reporter == "auto" else one.reporter,
        gpus=one.gpus,
        accelerator=one.accelerator,
    )
