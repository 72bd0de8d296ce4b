"""Captures for the tests: pages that our own exposition writes, of a run that is made up."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

from exporter import catalogue as c
from exporter.exposition import Exposition
from exporter.samples import Batch, Gate, Health, Sample, SourceView, View
from exporter.training import Step, TrainingLedger
from tests.fakes import FakeClock

GIB = 2**30


def page(samples: Iterable[Sample], *, openmetrics: bool = False) -> bytes:
    """Return the page of ours that holds such samples."""
    batch, drops = Gate(100_000).admit(list(samples))
    assert not drops
    view = View((SourceView("any", "training", "up", Health(), batch=batch, age=0.0),), ((),))
    assert isinstance(batch, Batch)
    groups = frozenset(sample.metric.group for sample in batch)
    return Exposition(lambda: view, list, FakeClock()).page((groups, openmetrics, False))


class Job:
    """A run whose steps take a known time, with a known spread; what is `None` is not told."""

    def __init__(
        self,
        run: str = "llama-7b",
        *,
        mean: float = 8.0,
        spread: float = 0.1,
        loss: float | None = 2.0,
        loss_spread: float = 0.0,
        memory: float | None = 60.0,
        tokens: float | None = 1e6,
        first: int = 1,
        seed: int = 1,
    ) -> None:
        self.run = run
        self._mean, self._spread, self._loss, self._memory = mean, spread, loss, memory
        self._loss_spread, self._tokens = loss_spread, tokens
        self._dice = random.Random(seed)
        self._ledger = TrainingLedger()
        self._step = first - 1
        self.steps(1)

    def steps(self, number: int) -> None:
        for _ in range(number):
            self._step += 1
            seconds = max(0.001, self._dice.gauss(self._mean, self._spread))
            one = Step(run=self.run, step=self._step, seconds=seconds, tokens=self._tokens)
            self._ledger.tell("push", [one], float(self._step))

    def samples(self) -> list[Sample]:
        (run,) = self._ledger.runs(float(self._step))
        (track,) = run.tracks.values()
        found = [
            c.TRAIN_STEP_SECONDS(track.histogram, self.run),
            c.TRAIN_STEP(self._step, self.run),
        ]
        if self._loss is not None:
            loss = self._loss + self._dice.gauss(0, self._loss_spread)
            found.append(c.TRAIN_LOSS(loss, self.run))
        if self._memory is not None:
            found += [
                c.TRAIN_MEMORY_PEAK_BYTES(self._memory * GIB, self.run, "0"),
                c.TRAIN_MEMORY_PEAK_BYTES(self._memory * GIB * 0.9, self.run, "1"),
            ]
        if self._tokens is not None:
            found.append(c.TRAIN_TOKENS_TOTAL(track.tokens, self.run))
        return found


def capture(
    path: Path, *jobs: Job, pages: int = 13, each: int = 10, openmetrics: bool = False
) -> Path:
    """Write a capture of jobs, with so many steps from page to page."""
    with path.open("wb") as file:
        for at in range(pages):
            for job in jobs:
                job.steps(each if at else 0)
            told = (sample for job in jobs for sample in job.samples())
            file.write(page(told, openmetrics=openmetrics))
    return path
