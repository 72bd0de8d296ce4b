"""Which job has which GPU: by the directory of the scheduler's prolog, and by processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.attribution.owners import Owners
from exporter.attribution.pods import PodBoard
from exporter.attribution.users import as_number, nobody
from exporter.board import Board
from exporter.discovery import Machine
from exporter.runner import Runner, Schedule
from exporter.samples import Fault, Sample
from exporter.sources.jobs import JobsSource
from exporter.sources.slurm import SlurmSource
from tests.job_node import Node, instance, told

MIG = "MIG-265a219d-a49f-578a-825d-222c72699c16"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def folder(node: Node) -> Path:
    made = node.root / "run" / "jobs"
    made.mkdir(parents=True)
    return made


def source(node: Node, *folders: Path, **options: bool) -> SlurmSource:
    return SlurmSource(folders, node.root, node.board.view, node.clock, named=as_number, **options)


def jobs(samples: list[Sample]) -> set[tuple[str, ...]]:
    return set(told(samples, "gpu_job_info", "gpu", "mig", "cluster_job"))


def put(file: Path, text: str, written: float) -> None:
    file.write_text(text)
    os.utime(file, (written, written))


def look(node: Node, slurm: SlurmSource) -> tuple[list[Sample], list[Fault]]:
    """Look whose processes are, then which jobs have GPUs."""
    owners = Owners(Machine(node.root), PodBoard(), nobody, node.clock)
    node.read(JobsSource(Machine(node.root), owners, node.board.view, node.clock))
    return node.read(slurm)


def test_a_file_for_each_gpu_says_which_job_has_it(node: Node, folder: Path) -> None:
    """As dcgm-exporter reads it: the file's name is the index, each line a job."""
    (folder / "0").write_text("840392\n")
    (folder / "1").write_text("840392\n17_3\n")
    samples, faults = node.read(source(node, folder))
    assert faults == []
    assert told(samples, "gpu_job_info", "gpu", "uuid", "mig", "cluster_job") == {
        ("0", "GPU-0", "", "840392"): 1,
        ("1", "GPU-1", "", "840392"): 1,
        ("1", "GPU-1", "", "17_3"): 1,
    }


def test_an_empty_file_is_an_idle_gpu_and_costs_no_series(node: Node, folder: Path) -> None:
    """dcgm-exporter 533: the GPU's metrics vanished. Here they are another source's anyway."""
    (folder / "0").write_text("")
    (folder / "1").write_text("5\n")
    samples, faults = node.read(source(node, folder))
    assert (jobs(samples), faults) == ({("0", "", ""), ("1", "", "5")}, [])
    gpus = node.board.view(node.clock.monotonic()).samples(c.GPU_INFO)
    assert [one.labels[0] for one in gpus] == ["0", "1"]


def test_a_gpu_without_a_file_is_not_known_to_be_idle(node: Node, folder: Path) -> None:
    """Nobody has said anything of it."""
    (folder / "0").write_text("")
    samples, _ = node.read(source(node, folder))
    assert jobs(samples) == {("0", "", "")}


def test_instances_have_files_of_their_own(node: Node, folder: Path) -> None:
    """dcgm-exporter 369: index and instance, or the UUID of the MIG device."""
    node.gpus += [instance(0, "3", MIG), instance(0, "5", "MIG-b")]
    (folder / "0.5").write_text("51\n")
    (folder / MIG).write_text("45916256 262563\n")
    samples, faults = node.read(source(node, folder))
    assert faults == []
    assert told(samples, "gpu_job_info", "uuid", "mig", "cluster_job", "user") == {
        ("GPU-0", "3", "45916256", "262563"): 1,
        ("GPU-0", "5", "51", ""): 1,
    }


def test_a_missing_directory_is_told_once(
    node: Node, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """dcgm-exporter 548: a line at each scrape. And what processes tell goes on."""
    node.process(10, "v2-slurm-step0")
    node.uses(0, 10)
    slurm = source(node, tmp_path / "none")
    samples, (fault,) = look(node, slurm)
    assert (fault.part, fault.reason) == ("job_mapping_directory", "unavailable")
    assert jobs(samples) == {("0", "", "840392")}
    slot = Board().enroll("slurm", c.ALLOCATION, 1, 9, node.clock.monotonic())
    runner = Runner(slurm, Schedule(5, 2), slot, node.clock)
    caplog.clear()
    for _ in range(50):
        node.clock.advance(runner.step())
    assert len(caplog.records) == 1
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "1").write_text("7")
    samples, faults = node.read(slurm)
    assert (jobs(samples), faults) == ({("0", "", "840392"), ("1", "", "7")}, [])


def test_the_directory_is_looked_for_below_root_first(node: Node, tmp_path: Path) -> None:
    """In a container it is mounted where it is, or with all the rest below root."""
    below, mounted = node.root / "host" / "jobs", tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "0").write_text("1")
    slurm = source(node, below, mounted)
    assert jobs(node.read(slurm)[0]) == {("0", "", "1")}
    below.mkdir(parents=True)
    (below / "0").write_text("2")
    assert jobs(node.read(slurm)[0]) == {("0", "", "2")}


def test_a_sick_file_costs_no_other(node: Node, folder: Path) -> None:
    """Garbage, a file of gigabytes, a pipe, a directory, a link to nowhere, a GPU that is not."""
    (folder / "0").write_text("1\n")
    (folder / "1").write_bytes(b"\xff\xfe")
    with (folder / "2").open("wb") as file:
        file.truncate(1 << 33)
    os.mkfifo(folder / "3")
    (folder / "4").mkdir()
    (folder / "5").symlink_to("nowhere")
    (folder / "9").write_text("1\n")
    (folder / "README").write_text("what is this?")
    samples, faults = node.read(source(node, folder))
    assert jobs(samples) == {("0", "", "1")}
    assert [(one.part, one.reason) for one in faults] == [
        ("file 1", "malformed"), ("file 2", "malformed"), ("file 9", "unavailable"),
    ]  # fmt: skip


def test_before_the_gpus_are_known_nothing_is_missing(node: Node, folder: Path) -> None:
    """The driver's first reading takes seconds; a GPU that was lost later keeps its job."""
    (folder / "0").write_text("1\n")
    gpus, node.gpus = node.gpus, []
    slurm = source(node, folder)
    samples, faults = node.read(slurm)
    assert (jobs(samples), faults) == (set(), [])
    node.gpus = gpus
    node.read(slurm)
    node.gpus = []
    assert jobs(node.read(slurm)[0]) == {("0", "", "1")}


# ---- jobs that live no more ------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "system.slice/slurmstepd.scope/job_{}",
        "system.slice/node1_slurmstepd.scope/job_{}",
        "cpuset/slurm/uid_1000/job_{}",
        "memory/slurm_node1/uid_1000/job_{}",
    ],
    ids=["v2", "v2-named", "v1", "v1-named"],
)
def test_a_job_without_a_cgroup_is_left_over_from_a_crash(
    node: Node, folder: Path, path: str
) -> None:
    """Nobody ran the epilog: the GPU is idle, and the entry is counted."""
    node.cgroup(path.format(5))
    long_ago = node.clock.time() - 3600
    put(folder / "0", "5\n", long_ago)
    put(folder / "1", "4\n", long_ago)
    samples, _ = node.read(source(node, folder))
    assert jobs(samples) == {("0", "", "5"), ("1", "", "")}
    assert told(samples, "gpu_job_stale_entries") == {(): 1}
    samples, _ = node.read(source(node, folder, check=False))
    assert jobs(samples) == {("0", "", "5"), ("1", "", "4")}


def test_a_job_whose_prolog_still_runs_is_believed(node: Node, folder: Path) -> None:
    """The prolog writes the file before slurmstepd makes the job's cgroup."""
    node.cgroup("system.slice/slurmstepd.scope")
    put(folder / "0", "5\n", node.clock.time() - 10)
    assert jobs(node.read(source(node, folder))[0]) == {("0", "", "5")}
    node.clock.advance(200)
    assert jobs(node.read(source(node, folder))[0]) == {("0", "", "")}


def test_a_file_of_a_time_to_come_is_not_believed_for_ever(node: Node, folder: Path) -> None:
    """Written before the node had the right time: the job of a crash stayed for years."""
    node.cgroup("system.slice/slurmstepd.scope")
    put(folder / "0", "5\n", node.clock.time() + 3e8)
    assert jobs(node.read(source(node, folder))[0]) == {("0", "", "")}


def test_where_slurm_shows_nothing_the_directory_is_believed(node: Node, folder: Path) -> None:
    """Another scheduler, cgroups that are not mounted here, an id that is no number."""
    put(folder / "0", "5\n", node.clock.time() - 3600)
    assert jobs(node.read(source(node, folder))[0]) == {("0", "", "5")}
    node.cgroup("system.slice/slurmstepd.scope/job_1")
    put(folder / "0", "12.server\n", node.clock.time() - 3600)
    assert jobs(node.read(source(node, folder))[0]) == {("0", "", "12.server")}


def test_what_was_written_before_the_boot_is_over(node: Node, folder: Path) -> None:
    """After a crash Slurm has no cgroup at all until the first job."""
    boot = node.clock.time() - 7200
    (node.root / "proc" / "stat").write_text(f"cpu 1 2 3\nbtime {boot:.0f}\n")
    put(folder / "0", "5\n", boot - 600)
    put(folder / "1", "6\n", boot + 600)
    samples, _ = node.read(source(node, folder))
    assert jobs(samples) == {("0", "", ""), ("1", "", "6")}


# ---- by processes ----------------------------------------------------------------------------


def test_without_a_prolog_processes_tell(node: Node) -> None:
    """No directory: what cgroups say; of a GPU without processes nobody knows whose it is."""
    node.process(10, "v2-slurm-step0")
    node.process(11, "v2-slurm-batch")
    node.uses(0, 10)
    node.uses(0, 11)
    samples, faults = look(node, source(node))
    assert faults == []
    assert jobs(samples) == {("0", "", "840392"), ("0", "", "1076414")}
    assert not told(samples, "gpu_job_stale_entries")


def test_two_jobs_on_a_node_give_no_series_twice(node: Node, folder: Path) -> None:
    """omnistat 2. One GPU for both, told by both doors; `Node.read` looks for duplicates."""
    node.process(10, "v2-slurm-step0")
    node.process(11, "v2-slurm-batch")
    for gpu in (0, 1):
        node.uses(gpu, 10)
        node.uses(gpu, 11)
        (folder / str(gpu)).write_text("840392\n1076414\n840392\n")
    samples, faults = look(node, source(node, folder))
    assert faults == []
    assert jobs(samples) == {(gpu, "", job) for gpu in ("0", "1") for job in ("840392", "1076414")}


def test_a_job_that_works_on_another_gpu_than_the_directory_says_is_told(
    node: Node, folder: Path
) -> None:
    """Slurm's order of GPUs need not be the driver's; a file named by UUID cannot err."""
    node.process(10, "v2-slurm-step0")
    node.uses(1, 10)
    (folder / "0").write_text("840392\n")
    samples, (fault,) = look(node, source(node, folder))
    assert (fault.part, fault.reason) == ("gpu1", "malformed")
    assert "job 840392 works here" in fault.detail
    assert jobs(samples) == {("0", "", "840392"), ("1", "", "840392")}
    (folder / "0").unlink()
    (folder / "GPU-1").write_text("840392\n")
    samples, faults = look(node, source(node, folder))
    assert (jobs(samples), faults) == ({("1", "", "840392")}, [])
