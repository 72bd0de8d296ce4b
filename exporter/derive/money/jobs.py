"""Whose GPU time it was where a scheduler gives GPUs to jobs: by job, and its user if told.

Several jobs on a GPU pay even parts of it, whatever instances (MIG) they have of it. A job's
counters go a little after the job; what a user is billed is the increase of all of their jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from exporter import catalogue as c
from exporter.derive.money.accounts import Booked
from exporter.derive.money.owners import parts
from exporter.derive.money.tenants import LINGERS, Sum, cut, times
from exporter.samples import Metric, Sample, View

INPUTS: tuple[Metric, ...] = (c.GPU_JOB_INFO,)
OUTPUTS: tuple[Metric, ...] = (
    c.COST_JOB_GPU_SECONDS_TOTAL,
    c.COST_JOB_UNUSED_GPU_SECONDS_TOTAL,
    c.COST_JOB_DOLLARS_TOTAL,
)

_TIMES = (c.COST_JOB_GPU_SECONDS_TOTAL, c.COST_JOB_UNUSED_GPU_SECONDS_TOTAL)

Job = tuple[str, str]
"""A job's id and its user."""


def jobs_of(view: View) -> dict[str, tuple[Job, ...]]:
    """Return the jobs that have each GPU, by UUID: none where nobody has it, absent: not known."""
    found: dict[str, set[Job]] = {}
    for sample in view.samples(c.GPU_JOB_INFO):
        _, uuid, _, job, user = sample.labels
        jobs = found.setdefault(uuid, set())
        if job:
            jobs.add((job, user))
    return {uuid: tuple(sorted(jobs)) for uuid, jobs in found.items()}


class Jobs:
    """All jobs that have, or had, GPUs of this node."""

    def __init__(self) -> None:
        self._has: dict[str, tuple[Job, ...]] = {}
        self._sums: dict[tuple[str, str, str], Sum] = {}

    def begin(
        self, has: Mapping[str, tuple[Job, ...]], contracts: Iterable[tuple[str, str]], now: float
    ) -> None:
        """Note which jobs have which GPUs at present, and the contract of each GPU by UUID.

        Counters begin at 0: what a series shows first is no increase to Prometheus.
        """
        self._has = dict(has)
        for uuid, contract in contracts:
            for job in has.get(uuid, ()):
                self._sums.setdefault((*job, contract), Sum(now)).seen = now

    def book(self, uuid: str, contract: str, booked: Booked, now: float) -> None:
        """Divide what was booked of a GPU among the jobs that had it."""
        jobs = self._has.get(uuid, ())
        shares = tuple(1 / len(jobs) for _ in jobs)
        divided = parts(booked.nanoseconds, shares), parts(booked.idle, shares)
        for job, nanoseconds, idle in zip(jobs, *divided, strict=True):
            dollars = None if booked.dollars is None else booked.dollars / len(jobs)
            one = self._sums.setdefault((*job, contract), Sum(now))
            one.add(nanoseconds, min(idle, nanoseconds), dollars, now)

    def samples(self, now: float) -> Iterator[Sample]:
        """Yield all counters."""
        for key in [key for key, one in self._sums.items() if now - one.seen > LINGERS]:
            del self._sums[key]
        cut(self._sums)
        for key, one in self._sums.items():
            yield from times(_TIMES, one, key)
            if one.paid:
                yield c.COST_JOB_DOLLARS_TOTAL(one.dollars, *key)

    def memory(self) -> list[Any]:
        """Return it as plain values."""
        return [[*key, one.memory()] for key, one in self._sums.items()]

    def restore(self, memory: Iterable[Any], now: float, *, keep: bool) -> None:
        """Go on where another one was, with its sums if they are to be kept.

        Raises for what is no such memory.
        """
        for job, user, contract, one in memory:
            key = str(job), str(user), str(contract)
            self._sums[key] = Sum.restored(one, now, keep=keep)
