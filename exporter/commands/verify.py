"""`flopwatch verify BEFORE AFTER`: whether an optimization holds, by two captured intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

from exporter.commands.pages import Page, read_file
from exporter.config import ConfigError
from exporter.derive.comparison import (
    CONFIDENCE,
    Comparison,
    Interval,
    Slice,
    Times,
    compare,
    times_of,
)

STEPS = "train_step_seconds"

PEAKS = ("train_memory_peak_bytes", "gpu_memory_used_bytes")
"""What tells of memory, best first: the framework of its ranks, the driver of the node's GPUs."""


class Wanted(NamedTuple):
    """What is asked: a run by name ("" for the only one), limits, what need not be known."""

    run: str = ""
    tolerance: float = 0.01
    growth: float = 0.20
    without: frozenset[str] = frozenset()
    beyond_noise: bool = False


class Verified(NamedTuple):
    """What was found, in words and as JSON can hold it, and whether it is good."""

    lines: tuple[str, ...]
    plain: dict[str, Any]
    passed: bool


def verify(before: Path, after: Path, wanted: Wanted) -> Verified:
    """Compare two captures.

    Raises `ConfigError` naming the file and what it lacks, all of it at once.
    """
    problems: list[str] = []
    intervals: list[Interval] = []
    for path in (before, after):
        try:
            intervals.append(_interval(path, wanted))
        except ConfigError as error:
            problems += error.problems
    if not problems and "memory" not in wanted.without:
        problems += _same_memory(intervals)
    if problems:
        raise ConfigError(*problems)
    old, new = intervals
    found = compare(old, new, tolerance=wanted.tolerance, growth=wanted.growth)
    passed = found.passed and (found.beyond_noise or not wanted.beyond_noise)
    return Verified(tuple(_lines(old, new, found, passed=passed)),
                    _plain(old, new, found, passed=passed), passed)  # fmt: skip


def _same_memory(intervals: Sequence[Interval]) -> list[str]:
    old, new = intervals
    if old.peak_of != new.peak_of:
        return [f"{old.name} has {old.peak_of} and {new.name} {new.peak_of}: not to be compared"]
    return []


# ---------------------------------------------------------------- reading an interval


def _interval(path: Path, wanted: Wanted) -> Interval:
    pages = read_file(path)
    if len(pages) < 2:
        raise ConfigError(
            f"{path}: holds one page, and an interval needs two or more: flopwatch capture writes"
            " them; or append a second page to the file some steps later"
        )
    run = wanted.run or _only_run(path, pages[-1])
    if pages[-1].value(f"{STEPS}_count", run=run) is None:
        raise ConfigError(f"{path}: has no {STEPS} of run {run!r}{_others(pages[-1])}")
    times = _times(path, pages, run)
    tokens = _increase(path, pages, "train_tokens_total", run)
    losses = list(_losses(pages, run))
    peak_of, peak = _peak(pages, run)
    interval = Interval(
        name=str(path),
        run=run,
        times=times,
        step=pages[-1].value("train_step", run=run),
        tokens=None if tokens is None else tokens / times.steps,
        loss=fmean(losses) if losses else None,
        losses=len(losses),
        loss_error=stdev(losses) / math.sqrt(len(losses)) if _finite(losses) else None,
        peak=peak,
        peak_of=peak_of,
    )
    missing = [
        f"{path}: has no {family} of run {run!r} (--without {name} does not ask for it)"
        for name, family, value in (
            ("loss", "train_loss", interval.loss), ("memory", PEAKS[0], interval.peak),
        )
        if value is None and name not in wanted.without
    ]  # fmt: skip
    if missing:
        raise ConfigError(*missing)
    return _left_out(interval, wanted)


def _left_out(interval: Interval, wanted: Wanted) -> Interval:
    import dataclasses

    changes: dict[str, Any] = {}
    if "loss" in wanted.without:
        changes["loss"] = None
    if "memory" in wanted.without:
        changes["peak"] = None
    return dataclasses.replace(interval, **changes)


def _only_run(path: Path, page: Page) -> str:
    runs = page.values_of(f"{STEPS}_count", "run")
    if not runs:
        raise ConfigError(f"{path}: tells of no training run: there is no {STEPS}")
    if len(runs) > 1:
        raise ConfigError(f"{path}: tells of {len(runs)} runs: name one{_others(page)}")
    return runs[0]


def _others(page: Page) -> str:
    runs = page.values_of(f"{STEPS}_count", "run")
    return f"; there are {', '.join(f'--run {run}' for run in runs[:10])}" if runs else ""


def _finite(losses: Sequence[float]) -> bool:
    return len(losses) > 2 and all(map(math.isfinite, losses))


def _times(path: Path, pages: Sequence[Page], run: str) -> Times:
    slices = []
    for one, other in pairwise(pages):
        steps = _more(path, one, other, f"{STEPS}_count", run)
        slices.append(Slice(steps, _more(path, one, other, f"{STEPS}_sum", run)))
    first, last = (_buckets(page, run) for page in (pages[0], pages[-1]))
    bounds = [bound for bound in last if bound != math.inf]
    counts = [last[bound] - first.get(bound, 0.0) for bound in (*bounds, math.inf)]
    try:
        return times_of(slices, bounds, counts)
    except ValueError:
        raise ConfigError(f"{path}: no step of run {run!r} ended between its pages") from None


def _buckets(page: Page, run: str) -> dict[float, float]:
    return {float(one.labels["le"]): one.value for one in page.all(f"{STEPS}_bucket", run=run)}


def _more(path: Path, one: Page, other: Page, name: str, run: str) -> float:
    """Return by how much a counter grew from page to page; a run that was not there had 0."""
    begin, end = one.value(name, run=run) or 0.0, other.value(name, run=run)
    if end is None or end < begin:
        raise ConfigError(
            f"{path}: {name} of run {run!r} fell from page to page: the daemon was restarted"
        )
    return end - begin


def _increase(path: Path, pages: Sequence[Page], name: str, run: str) -> float | None:
    if pages[0].value(name, run=run) is None or pages[-1].value(name, run=run) is None:
        return None
    return sum(_more(path, one, other, name, run) for one, other in pairwise(pages))


def _losses(pages: Sequence[Page], run: str) -> Iterator[float]:
    """Yield the loss of each page that tells of another step."""
    steps: set[float | None] = set()
    for page in pages:
        loss, step = page.value("train_loss", run=run), page.value("train_step", run=run)
        if loss is not None and (step is None or step not in steps):
            steps.add(step)
            yield loss


def _peak(pages: Sequence[Page], run: str) -> tuple[str, float | None]:
    for family in PEAKS:
        labels = {"run": run} if family == PEAKS[0] else {}
        told = [one.value for page in pages for one in page.all(family, **labels)]
        if told:
            return family, max(told)
    return "", None


# ---------------------------------------------------------------- saying it


def _lines(
    before: Interval, after: Interval, found: Comparison, *, passed: bool
) -> Iterator[str]:  # fmt: skip
    for word, one in (("before", before), ("after", after)):
        error = CONFIDENCE * one.times.error / one.times.mean
        yield (
            f"{word:<7} {one.name}: {one.run or 'the run'}, {one.times.steps:,.0f} steps,"
            f" {one.times.mean:.4g} s ±{error:.1%} each"
        )
    for check in found.checks:
        yield f"{'passed' if check.passed else 'FAILED':<7} {check.name:<7} {check.said}"
    for note in found.notes:
        yield f"note    {note}"
    failed: list[str] = [check.name for check in found.checks if not check.passed]
    if not failed and not passed:
        failed = ["speed within the noise"]
    yield "the optimization holds" if passed else f"it does not hold: {', '.join(failed)}"


def _plain(
    before: Interval, after: Interval, found: Comparison, *, passed: bool
) -> dict[str, Any]:  # fmt: skip
    return {
        "passed": passed,
        "speedup": found.checks[0].figure,
        "noise_ratio": found.noise,
        "beyond_noise": found.beyond_noise,
        "checks": {
            check.name: {
                "passed": check.passed,
                "value": check.figure if math.isfinite(check.figure) else None,
                "limit": check.limit,
                "text": check.said,
            }
            for check in found.checks
        },
        "before": _plain_interval(before),
        "after": _plain_interval(after),
        "notes": list(found.notes),
    }


def _plain_interval(one: Interval) -> dict[str, Any]:
    loss = None if one.loss is None or not math.isfinite(one.loss) else one.loss
    return {
        "file": one.name,
        "run": one.run,
        "steps": one.times.steps,
        "step_seconds": one.times.mean,
        "standard_error_seconds": one.times.error,
        "noise_from": one.times.noise,
        "last_step": one.step,
        "tokens_per_step": one.tokens,
        "loss": loss,
        "peak_memory_bytes": one.peak,
        "peak_memory_from": one.peak_of,
    }
