"""What jobs of the cluster's scheduler cost: by job and user, over restarts, and GPUs of nobody."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.samples import Sample
from tests.derive.cost_lab import Daemon, Driver, gpu
from tests.derive.test_cost import daemon, run
from tests.fakes import FakeClock


def jobs(*rows: tuple[int, str, str, str]) -> Iterable[Sample]:
    """Return who has which GPU: index, instance, job, user."""
    return [c.GPU_JOB_INFO(1, *gpu(at), *who) for at, *who in rows]


def by_job(one: Daemon, name: str) -> dict[tuple[str, str], float]:
    family = c.FAMILIES[name]
    return {s.labels[:2]: s.value for s in one.samples(family)}  # type: ignore[misc]


def test_the_time_of_jobs_adds_up_to_that_of_the_gpus(tmp_path: Path) -> None:
    """Three jobs share a GPU, one of them has another one too: to the nanosecond."""
    clock = FakeClock(now=1000.123456789)
    driver = Driver(clock, {0: 0.5, 1: 0.0, 2: 0.0})
    driver.extra = lambda _: jobs(
        (0, "", "7", "ann"), (0, "", "8", "bob"), (0, "", "9", ""), (1, "", "9", ""),
        (2, "", "", ""),
    )  # fmt: skip
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 3600)
    times = by_job(one, "cost_job_gpu_seconds_total")
    assert sum(round(v * 1e9) for v in times.values()) == 2 * 3600 * 10**9
    assert times == pytest.approx({("7", "ann"): 1200, ("8", "bob"): 1200, ("9", ""): 4800})
    unused = by_job(one, "cost_job_unused_gpu_seconds_total")
    assert unused == pytest.approx({("7", "ann"): 600, ("8", "bob"): 600, ("9", ""): 4200}, abs=0.1)
    dollars = by_job(one, "cost_job_dollars_total")
    assert sum(dollars.values()) == pytest.approx(4.0)
    assert dollars["9", ""] == pytest.approx(4.0 * 4 / 6)
    states = {s.labels[2]: s.value for s in one.samples(c.COST_DOLLARS_TOTAL) if s.labels[0] == "2"}
    assert states["unallocated"] == pytest.approx(2.0), "the scheduler says that nobody has it"


def test_instances_of_a_job_are_one_job(tmp_path: Path) -> None:
    """MIG: two instances of one job and one of another are even parts, by job."""
    clock = FakeClock()
    driver = Driver(clock, {0: 1.0})
    driver.extra = lambda _: jobs((0, "1", "7", ""), (0, "2", "7", ""), (0, "3", "8", ""))
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 1000)
    assert by_job(one, "cost_job_gpu_seconds_total") == pytest.approx(
        {("7", ""): 500, ("8", ""): 500}
    )


def test_a_job_leaves_a_little_after_its_end_and_a_restart_forgets_none(tmp_path: Path) -> None:
    """Prometheus sees the last figure; a daemon that is restarted goes on from there."""
    clock = FakeClock()
    driver = Driver(clock, {0: 1.0})
    driver.extra = lambda _: jobs((0, "", "7", ""))
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 600)
    before = by_job(one, "cost_job_gpu_seconds_total")
    one.end()
    two = daemon(tmp_path, clock, driver, life="two")
    two.step()
    assert by_job(two, "cost_job_gpu_seconds_total") == pytest.approx(before, abs=25)
    driver.extra = lambda _: ()
    run(two, 200)
    assert by_job(two, "cost_job_gpu_seconds_total").keys() == {("7", "")}
    run(two, 400)
    assert by_job(two, "cost_job_gpu_seconds_total") == {}


def test_where_pods_are_known_the_scheduler_frees_no_gpu(tmp_path: Path) -> None:
    """Slurm in pods (soperator): idle to Slurm is not idle to the cluster."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.0})
    driver.extra = lambda _: [
        c.GPU_ALLOCATION_INFO(1, *gpu(0), "slurm", "worker-0", "slurmd"),
        *jobs((0, "", "", "")),
    ]
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 1000)
    states = {s.labels[2]: s.value for s in one.samples(c.COST_DOLLARS_TOTAL)}
    assert states["unallocated"] == 0
    assert states["idle"] > 0
