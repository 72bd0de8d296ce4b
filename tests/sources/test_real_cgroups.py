"""Whose a process is, by the kernel's own words: real cgroups, made and removed by the test."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.attribution.owners import Owners
from exporter.attribution.pods import PodBoard
from exporter.attribution.slurm import live_jobs
from exporter.attribution.users import nobody
from exporter.discovery import Machine
from tests.fakes import FakeClock
from tests.job_node import CONTAINER, POD

TOP = Path("/sys/fs/cgroup")


@pytest.fixture
def hierarchy() -> Path:
    """Return a hierarchy in which groups may be made."""
    for place in (TOP, TOP / "pids", TOP / "unified"):
        probe = place / "flopwatch-test"
        if (place / "cgroup.procs").exists():
            with contextlib.suppress(OSError):
                probe.mkdir()
                probe.rmdir()
                return place
    pytest.skip("cgroups may not be made on this machine")


@contextlib.contextmanager
def process_in(hierarchy: Path, path: str) -> Iterator[int]:
    """Let a process be in a group; what was made is removed afterwards."""
    made = [folder for folder in reversed([hierarchy / path, *(hierarchy / path).parents])
            if folder.is_relative_to(hierarchy) and not folder.exists()]  # fmt: skip
    with contextlib.ExitStack() as undo:
        for folder in made:
            folder.mkdir()
            undo.callback(removed, folder)
        program = [sys.executable, "-c", "input()"]
        process = subprocess.Popen(program, stdin=subprocess.PIPE)
        undo.callback(process.communicate)
        (hierarchy / path / "cgroup.procs").write_text(str(process.pid))
        yield process.pid


def removed(folder: Path) -> None:
    """Remove a group; the kernel takes a moment to let go of its last process."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        threading.Event().wait(0.05)
    folder.rmdir()


def test_a_job_of_slurms_lives_as_long_as_its_group(hierarchy: Path) -> None:
    """By the process, and by the folder: as slurmstepd makes it in either version."""
    job = f"{int(time.time()) % 10**9}"
    owners = Owners(Machine(Path("/")), PodBoard(), nobody, FakeClock())
    path = f"slurm/uid_1000/job_{job}/step_0/task_0"
    if hierarchy == TOP:
        path = f"system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0"
    with process_in(hierarchy, path) as pid:
        whose = owners(pid)
        assert whose is not None
        assert (whose.owner.job, whose.step, whose.plain) == (job, "0", False)
        live = live_jobs(Path("/"))
        assert live is not None
        assert job in live
    assert owners(pid) is None
    assert job not in (live_jobs(Path("/")) or ())


def test_a_container_of_a_pod_is_one(hierarchy: Path) -> None:
    """As the kubelet makes it with the cgroupfs driver."""
    owners = Owners(Machine(Path("/")), PodBoard(), nobody, FakeClock())
    with process_in(hierarchy, f"kubepods/burstable/pod{POD}/{CONTAINER}") as pid:
        whose = owners(pid)
        assert whose is not None
        assert (whose.owner.pod_uid, whose.container_id) == (POD, CONTAINER)
