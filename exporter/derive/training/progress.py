"""How far a run has come: who it is, what it has done, its loss, how long it still takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from exporter import catalogue as c
from exporter.derive.training.run import Run
from exporter.samples import Metric, Sample, View
from exporter.training.records import PHASES

OUTPUTS: tuple[Metric, ...] = (
    c.TRAIN_RUN_INFO,
    c.TRAIN_READER_CHOSEN,
    c.TRAIN_WORLD_SIZE,
    c.TRAIN_PARALLEL_SIZE,
    c.TRAIN_STEP,
    c.TRAIN_LAST_STEP_TIMESTAMP_SECONDS,
    c.TRAIN_STALLED,
    c.TRAIN_STEPS_TOTAL,
    c.TRAIN_TOKENS_TOTAL,
    c.TRAIN_SAMPLES_TOTAL,
    c.TRAIN_SKIPPED_STEPS_TOTAL,
    c.TRAIN_REPEATED_STEPS_TOTAL,
    c.TRAIN_STEP_SECONDS,
    c.TRAIN_PHASE_SECONDS_TOTAL,
    c.TRAIN_LOSS,
    c.TRAIN_GRADIENT_NORM,
    c.TRAIN_LEARNING_RATE,
    c.TRAIN_MEMORY_PEAK_BYTES,
    c.TRAIN_UPDATE_INTERVAL_SECONDS,
    c.TRAIN_REMAINING_SECONDS,
)

_MOST_RANKS = 64
"""Ranks of which rows of their own are told."""


class Progress:
    """Tells how far runs have come."""

    def __call__(self, run: Run, view: View, now: float) -> Iterable[Sample]:  # noqa: ARG002
        """Yield the samples of one run."""
        yield from _identity(run)
        yield from _of_ranks(run)
        if run.reports:
            yield from _counters(run)
            yield from _gauges(run, now)


def _identity(run: Run) -> Iterator[Sample]:
    facts, world = run.facts, run.world_size
    about = (
        facts.framework or "", facts.model or "", run.precision or facts.precision or "",
        facts.schedule or "", "" if world is None else str(world), run.scope,
    )  # fmt: skip
    ranks = [str(rank) for rank in sorted(run.local_ranks)[:_MOST_RANKS]] or [""]
    for rank in ranks:
        yield c.TRAIN_RUN_INFO(1, run.name, rank, *about)
    for reader, believed in run.readers().items():
        yield c.TRAIN_READER_CHOSEN(int(believed), run.name, reader)


def _of_ranks(run: Run) -> Iterator[Sample]:
    for rank, phases in list(run.counts.phases.items())[:_MOST_RANKS]:
        if rank is None and not run.reports:
            continue
        name = "" if rank is None else str(rank)
        for phase in PHASES:
            if phase in phases.seconds:
                yield c.TRAIN_PHASE_SECONDS_TOTAL(phases.seconds[phase], run.name, name, phase)
    told: set[int | None] = set()
    if not run.goes_on:
        return
    for teller in run.tellers:
        peak = teller.latest.step.memory_bytes
        if not teller.is_alive:
            continue  # a rank that was lost, or is another node's since a restart
        if peak is not None and teller.rank not in told and len(told) < _MOST_RANKS:
            told.add(teller.rank)
            rank_name = "" if teller.rank is None else str(teller.rank)
            yield c.TRAIN_MEMORY_PEAK_BYTES(peak, run.name, rank_name)


def _counters(run: Run) -> Iterator[Sample]:
    counts = run.counts
    if counts.steps.last is not None:
        yield c.TRAIN_STEPS_TOTAL(counts.steps.total, run.name)
        yield c.TRAIN_SKIPPED_STEPS_TOTAL(counts.steps.skipped, run.name)
        yield c.TRAIN_REPEATED_STEPS_TOTAL(counts.steps.repeated, run.name)
    if counts.tokens.last is not None:
        yield c.TRAIN_TOKENS_TOTAL(counts.tokens.total, run.name)
    if counts.samples.last is not None:
        yield c.TRAIN_SAMPLES_TOTAL(counts.samples.total, run.name)
    if (times := counts.times.histogram) is not None:
        yield c.TRAIN_STEP_SECONDS(times, run.name)


def _gauges(run: Run, now: float) -> Iterator[Sample]:
    facts = run.facts
    if run.world_size is not None:
        yield c.TRAIN_WORLD_SIZE(run.world_size, run.name)
    for dimension in ("data", "tensor", "pipeline", "context", "expert"):
        if (size := getattr(facts, f"{dimension}_parallel")) is not None:
            yield c.TRAIN_PARALLEL_SIZE(size, run.name, dimension)
    last = run.counts.steps.last
    if last is None or run.age is None:
        return
    yield c.TRAIN_STEP(last, run.name)
    yield c.TRAIN_LAST_STEP_TIMESTAMP_SECONDS(run.wall(now) - run.age, run.name)
    if run.status != "ended":
        yield c.TRAIN_STALLED(int(run.status == "stalled"), run.name)
    if run.goes_on:
        yield from _now(run, last)


def _now(run: Run, last: int) -> Iterator[Sample]:
    """Yield what holds of the last steps, and only while there are new ones."""
    for metric, name in (
        (c.TRAIN_LOSS, "loss"),
        (c.TRAIN_GRADIENT_NORM, "gradient_norm"),
        (c.TRAIN_LEARNING_RATE, "learning_rate"),
    ):
        if (known := run.last(name)) is not None:
            yield metric(getattr(known.step, name), run.name)
    interval = update_interval(run)
    if interval is None:
        return
    yield c.TRAIN_UPDATE_INTERVAL_SECONDS(interval, run.name)
    if run.facts.last_step is not None and run.facts.last_step >= last:
        yield c.TRAIN_REMAINING_SECONDS((run.facts.last_step - last) * interval, run.name)


def update_interval(run: Run) -> float | None:
    """Return the mean time from the end of a step to that of the next, over the last minute.

    By the job's own stamps where it has them, else by when it told of them.
    """
    ends = run.ends()
    if ends is None:
        return None
    first, last = ends
    steps = last.step.step - first.step.step
    if steps <= 0:
        return None
    if first.step.wall is not None and last.step.wall is not None:
        between = last.step.wall - first.step.wall
    else:
        between = last.taken - first.taken
    return between / steps if between > 0 else None
