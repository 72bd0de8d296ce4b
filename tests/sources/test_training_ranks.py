"""Ranks on this machine: real processes with a launcher's environment, and made-up rare ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.board import Board
from exporter.discovery import Machine
from exporter.samples import Fault, Metric, Sample, View
from exporter.sources.training_ranks import TrainingRanksSource
from exporter.training import TrainingLedger
from exporter.training.records import Facts
from tests.fakes import FakeClock

Launch = Callable[..., int]


@pytest.fixture
def launch() -> Iterator[Launch]:
    """Return what starts a process with an environment, and returns its number once it runs."""
    started: list[subprocess.Popen[bytes]] = []

    def run(**variables: str) -> int:
        one = subprocess.Popen(
            [sys.executable, "-S", "-c", "print(flush=True); import sys; sys.stdin.read()"],
            env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert one.stdout is not None
        one.stdout.readline()
        started.append(one)
        return one.pid

    yield run
    for one in started:
        one.communicate(timeout=10)


class Cards:
    """A board on which the driver says which process works on which GPU."""

    def __init__(self, *used: tuple[int, str]) -> None:
        self._used = used

    def __call__(self, now: float) -> View:
        empty = Board().view(now)

        class Seen(View):
            def samples(inner, metric: Metric) -> list[Sample]:  # noqa: N805
                if metric is not c.GPU_PROCESS_MEMORY_BYTES:
                    return []
                values = {"gpu": "", "uuid": "u", "pid": "", "command": "python"}
                return [
                    metric(1, *({**values, "gpu": gpu, "pid": str(pid)}.get(label, "")
                                for label in metric.labels))
                    for pid, gpu in self._used
                ]  # fmt: skip

        return Seen(empty.sources, empty.token)


def facts(
    ledger: TrainingLedger, machine: Machine, view: Callable[[float], View] | None = None,
    **options: dict[str, str],
) -> dict[str, Facts]:  # fmt: skip
    source = TrainingRanksSource(ledger, machine, view or Board().view, FakeClock(), **options)
    list(source.read())
    return {run.name: run.facts["environment"] for run in ledger.runs(1000.0)}


def torch(rank: int, run: str = "mine", size: int = 2) -> dict[str, str]:
    return {
        "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "FLOPWATCH_RUN": run,
    }  # fmt: skip


def test_the_ranks_of_a_run_are_found(launch: Launch) -> None:
    launch(**torch(0), CUDA_VISIBLE_DEVICES="4,5")
    launch(**torch(1), CUDA_VISIBLE_DEVICES="4,5")
    found = facts(TrainingLedger(), Machine(Path("/")))
    assert found["mine"] == Facts(run="mine", world_size=2, local_ranks={0: 4, 1: 5})


def test_without_gpus_only_the_size_is_told(launch: Launch) -> None:
    launch(**torch(0))
    found = facts(TrainingLedger(), Machine(Path("/")))
    assert found["mine"] == Facts(run="mine", world_size=2)


def test_the_driver_knows_best_which_gpu_a_rank_has(launch: Launch) -> None:
    """In a container CUDA_VISIBLE_DEVICES counts from 0 on every node."""
    pids = [launch(**torch(rank), CUDA_VISIBLE_DEVICES="0,1") for rank in (0, 1)]
    view = Cards((pids[0], "6"), (pids[1], "7"))
    found = facts(TrainingLedger(), Machine(Path("/")), view)
    assert found["mine"].local_ranks == {0: 6, 1: 7}


def test_names_of_runs_can_be_stated(tmp_path: Path) -> None:
    both = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    process(tmp_path, 10, 100, {**both, "WANDB_NAME": "sweep-7"})
    process(tmp_path, 11, 100, both)
    found = facts(TrainingLedger(), Machine(tmp_path), names={"sweep-*": "sweep"})
    assert found.keys() == {"sweep"}
    found = facts(TrainingLedger(), Machine(tmp_path), names={"sweep-*": "sweep", "*": "other"})
    assert found.keys() == {"sweep", "other"}


def test_a_launcher_under_srun_is_no_rank(launch: Launch) -> None:
    slurm = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "4711"}
    launch(**slurm, CUDA_VISIBLE_DEVICES="0,1")
    launch(**slurm, RANK="3", WORLD_SIZE="16", LOCAL_RANK="3")
    found = facts(TrainingLedger(), Machine(Path("/")))
    assert found["slurm-4711"].world_size == 16


def test_a_job_without_gpus_is_none_of_ours(launch: Launch) -> None:
    """Slurm and MPI start much else than training."""
    launch(SLURM_PROCID="0", SLURM_NTASKS="2", SLURM_JOB_ID="4712")
    assert "slurm-4712" not in facts(TrainingLedger(), Machine(Path("/")))


def test_ranks_that_contradict_each_other_are_a_fault(launch: Launch) -> None:
    launch(**torch(0, size=2))
    launch(**torch(1, size=4))
    ledger = TrainingLedger()
    source = TrainingRanksSource(ledger, Machine(Path("/")), Board().view, FakeClock())
    assert Fault("mine", "malformed", "its ranks do not agree on their number") in [*source.read()]


def test_ranks_come_and_go(launch: Launch, tmp_path: Path) -> None:
    """A made-up /proc: a process ends, and its number is another one's at once."""
    process(tmp_path, 10, 100, torch(0))
    ledger = TrainingLedger()
    source = TrainingRanksSource(ledger, Machine(tmp_path), Board().view, FakeClock())
    assert c.TRAIN_LOCAL_RANKS(1, "mine") in [*source.read()]
    process(tmp_path, 11, 100, torch(1))
    assert c.TRAIN_LOCAL_RANKS(2, "mine") in [*source.read()]
    process(tmp_path, 10, 200, torch(0, run="next"))
    assert c.TRAIN_LOCAL_RANKS(1, "mine") in [*source.read()]
    for _ in range(12):
        items = [*source.read()]
    assert c.TRAIN_LOCAL_RANKS(1, "next") in items


def process(root: Path, pid: int, start: int, variables: dict[str, str]) -> None:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "environ").write_bytes(
        b"".join(f"{name}={value}\0".encode() for name, value in variables.items())
    )
    (folder / "stat").write_text(f"{pid} (python) S 1 {'0 ' * 17}{start} 0 0\n")


def test_what_may_not_be_read_is_passed_over(tmp_path: Path) -> None:
    process(tmp_path, 10, 100, torch(0))
    (tmp_path / "proc/10/environ").unlink()
    (tmp_path / "proc/10/environ").mkdir()  # any error will do; root may read all files
    assert facts(TrainingLedger(), Machine(tmp_path)) == {}
    assert Machine(tmp_path).environment(10) == b""
    assert os.path.exists(tmp_path)
