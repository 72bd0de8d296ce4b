"""Whose the processes on GPUs are, and how owners split a GPU: pods, containers, jobs, users."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from exporter.attribution.owners import Owners
from exporter.attribution.pods import LogFolders, PodBoard, first_of
from exporter.attribution.users import Named, Users, as_number, nobody
from exporter.discovery import Machine
from exporter.formats.podlist import Container, Pod
from exporter.sources.jobs import JobsSource
from tests.job_node import CONTAINER, POD, Node, told

IN_POD = "v2-containerd-systemd-burstable"
IN_JOB = "v2-slurm-step0"
INFO = "gpu_process_info"
GONE = "7f6a1b7c-1111-2222-3333-444455556666"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def source(
    node: Node, *, board: PodBoard | None = None, user: Named = nobody, **options: bool
) -> JobsSource:
    machine = Machine(node.root)
    names = first_of(board or PodBoard(), LogFolders(node.root, node.clock))
    owners = Owners(machine, names, user, node.clock)
    return JobsSource(machine, owners, node.board.view, node.clock, **options)


def test_a_process_is_followed_to_its_pod_and_container(node: Node) -> None:
    """Number, cgroup, uid, and from the folders of logs the names."""
    node.process(10, IN_POD)
    node.uses(1, 10, memory=7 << 30)
    node.logs("team", "train-0", POD, main=CONTAINER)
    samples, faults = node.read(source(node))
    assert faults == []
    labels = ("gpu", "uuid", "pid", "namespace", "pod", "container", "pod_uid", "container_id")
    assert told(samples, INFO, *labels) == {
        ("1", "GPU-1", "10", "team", "train-0", "main", POD, CONTAINER[:12]): 1
    }
    assert told(samples, "gpu_allocation_memory_used_bytes", "gpu", "namespace", "pod") == {
        ("1", "team", "train-0"): 7 << 30
    }


def test_a_shared_gpu_is_split_by_process(node: Node) -> None:
    """dcgm-exporter 307, 582, 587: each pod showed the whole GPU. Memory and time, by pod."""
    node.process(10, IN_POD)
    node.process(11, IN_POD)
    node.process(12, "v2-crio-systemd-burstable")
    node.process(13, IN_JOB)
    node.logs("a", "one", POD)
    node.logs("b", "two", "69349abe-d645-11ea-9c4c-08002709c05c")
    node.uses(0, 10, memory=4, share=0.25)
    node.uses(0, 11, memory=2, share=0.25)
    node.uses(0, 12, memory=1, share=0.3)
    node.uses(0, 13, memory=8)
    jobs = source(node)
    node.read(jobs)
    for _ in range(4):
        node.clock.advance(1)
        samples, _ = node.read(jobs)
    by = ("pod", "cluster_job")
    assert told(samples, "gpu_allocation_processes", *by) == {
        ("one", ""): 2, ("two", ""): 1, ("", "840392"): 1
    }  # fmt: skip
    assert told(samples, "gpu_allocation_memory_used_bytes", *by) == {
        ("one", ""): 6, ("two", ""): 1, ("", "840392"): 8
    }  # fmt: skip
    assert told(samples, "gpu_allocation_sm_ratio", *by) == {
        ("one", ""): 0.5, ("two", ""): 0.3, ("", "840392"): 0.0
    }  # fmt: skip
    seconds = told(samples, "gpu_allocation_sm_seconds_total", *by)
    assert seconds == pytest.approx({("one", ""): 2.0, ("two", ""): 1.2, ("", "840392"): 0.0})


def test_clients_of_mps_are_on_the_gpu_that_the_driver_names(node: Node) -> None:
    """dcgm-exporter 568: shown on a wrong GPU. The server of MPS is nobody's, its clients are."""
    node.process(9, "v2-bare-service")
    node.process(10, IN_POD)
    node.process(11, "v2-crio-systemd-burstable")
    node.logs("a", "one", POD)
    node.logs("b", "two", "69349abe-d645-11ea-9c4c-08002709c05c")
    for pid in (9, 10, 11):
        node.uses(1, pid, command="nvidia-cuda-mps" if pid == 9 else "python3")
    samples, _ = node.read(source(node))
    assert told(samples, "gpu_allocation_processes", "gpu", "pod") == {
        ("1", "one"): 1, ("1", "two"): 1, ("1", ""): 1
    }  # fmt: skip


def test_a_driver_that_tells_no_shares_gives_no_shares(node: Node) -> None:
    """MIG: the memory is split, and a time that nobody knows is not 0."""
    node.process(10, IN_POD)
    node.uses(0, 10, mig="3")
    samples, _ = node.read(source(node))
    assert told(samples, INFO, "mig") == {("3",): 1}
    assert told(samples, "gpu_allocation_memory_used_bytes", "gpu") == {("0",): 100}
    assert not told(samples, "gpu_allocation_sm_ratio", "gpu")
    assert not told(samples, "gpu_allocation_sm_seconds_total", "gpu")


def test_once_a_gpu_is_split_its_time_is_not_known_to_be_none(node: Node) -> None:
    """A layout of MIG that was made while we watched: time was 0 for all, for ever."""
    node.process(10, IN_POD)
    node.uses(0, 10, share=0.5)
    jobs = source(node)
    samples, _ = node.read(jobs)
    assert told(samples, "gpu_allocation_sm_ratio", "gpu") == {("0",): 0.5}
    node.driver.clear()
    node.uses(0, 10, mig="3")
    samples, _ = node.read(jobs)
    assert not told(samples, "gpu_allocation_sm_ratio", "gpu")
    assert told(samples, "gpu_allocation_memory_used_bytes", "gpu") == {("0",): 100}


def test_one_process_on_two_gpus_and_two_instances_is_told_of_each(node: Node) -> None:
    """No series twice, none lost."""
    node.process(10, IN_POD)
    for gpu, mig in ((0, "1"), (0, "2"), (1, "")):
        node.uses(gpu, 10, mig=mig)
    samples, _ = node.read(source(node))
    assert set(told(samples, INFO, "gpu", "mig")) == {("0", "1"), ("0", "2"), ("1", "")}
    assert told(samples, "gpu_allocation_processes", "gpu") == {("0",): 1, ("1",): 1}


def test_a_pod_whose_name_nobody_knows_has_its_uid(node: Node) -> None:
    """And its name as soon as it is known: the folder of its logs comes after its process."""
    node.process(10, IN_POD)
    node.uses(0, 10)
    jobs = source(node)
    samples, faults = node.read(jobs)
    assert told(samples, INFO, "namespace", "pod", "container", "pod_uid") == {("", "", "", POD): 1}
    assert faults == []
    node.logs("team", "train-0", POD)
    node.clock.advance(6)
    samples, _ = node.read(jobs)
    assert told(samples, INFO, "namespace", "pod", "container") == {("team", "train-0", ""): 1}


def test_names_are_not_looked_for_again_and_again(node: Node) -> None:
    """dcgm-exporter 599: ten cores burned looking up what is not there."""
    looks: list[float] = []

    class Counted(LogFolders):
        def _look(self) -> None:
            looks.append(node.clock.monotonic())
            super()._look()

    folders = Counted(node.root, node.clock)
    for _ in range(100):
        folders(GONE, "")
        node.clock.advance(0.1)
    assert len(looks) == 2


def test_who_watches_pods_is_asked_first(node: Node) -> None:
    """A static pod has two uids: the cgroup's, and the one that the API gave its mirror."""
    node.process(10, "v2-crio-systemd-static-pod")
    node.uses(0, 10)
    board = PodBoard()
    crio = "192f5a90b165665d969bb0137b8573f2214c8f75b728ecc58dbbc7fccd64af28"
    uids = (GONE, "e4e6004e827fdf45941cf777618f60ce")
    board.publish([Pod(uids, "kube-system", "dcgm-node1", containers=(Container("dcgm", crio),))])
    samples, _ = node.read(source(node, board=board))
    assert told(samples, INFO, "namespace", "pod", "container") == {
        ("kube-system", "dcgm-node1", "dcgm"): 1
    }


def test_the_containers_name_is_taken_from_whoever_knows_it(node: Node) -> None:
    """The watch has seen the pod before its container began."""
    node.process(10, IN_POD)
    node.uses(0, 10)
    board = PodBoard()
    board.publish([Pod((POD,), "team", "train-0", containers=(Container("main"),))])
    node.logs("team", "train-0", POD, main=CONTAINER)
    samples, _ = node.read(source(node, board=board))
    assert told(samples, INFO, "pod", "container") == {("train-0", "main"): 1}


def test_a_container_cannot_take_another_pods_name(node: Node) -> None:
    """Whoever may make groups in a container can call one like another pod's container."""
    line = f"0::/kubepods/pod{GONE}/{'a' * 64}/crio-{CONTAINER}.scope"
    node.process(10, line)
    node.uses(0, 10)
    node.logs("victim", "theirs", POD, main=CONTAINER)
    node.logs("mine", "own", GONE)
    samples, _ = node.read(source(node))
    assert told(samples, INFO, "namespace", "pod", "container") == {("mine", "own", ""): 1}


def test_a_container_without_a_pod_has_the_beginning_of_its_id(node: Node) -> None:
    """Docker on a machine of one's own."""
    node.process(10, "v2-docker-systemd")
    node.uses(0, 10)
    samples, _ = node.read(source(node))
    assert told(samples, INFO, "container", "pod_uid") == {("9bca8d63d5fa", ""): 1}


def test_a_slurm_job_has_its_step(node: Node) -> None:
    """By the cgroup alone, in both versions."""
    node.process(10, IN_JOB)
    node.process(11, "v1-slurm-uid")
    node.uses(0, 10)
    node.uses(0, 11)
    samples, _ = node.read(source(node))
    assert set(told(samples, INFO, "cluster_job", "step")) == {("840392", "0"), ("99", "0")}


def test_users_and_plain_processes_are_told_only_when_asked_for(node: Node) -> None:
    """Privacy: who runs what on a shared machine is nobody's business by default."""
    node.process(10, "v2-bare-session")
    node.process(11, IN_JOB)
    node.uses(0, 10)
    node.uses(0, 11)
    samples, _ = node.read(source(node))
    assert told(samples, INFO, "cluster_job", "user", "unit") == {("840392", "", ""): 1}
    assert told(samples, "gpu_allocation_processes", "cluster_job") == {("",): 1, ("840392",): 1}
    samples, _ = node.read(source(node, plain=True, user=as_number))
    me = str(os.getuid())
    assert set(told(samples, INFO, "cluster_job", "user", "unit")) == {
        ("840392", me, ""), ("", me, "session-3.scope")
    }  # fmt: skip


def test_users_have_the_names_of_their_machine(node: Node) -> None:
    """By the list below root; a number without a name stays one, and is not asked for elsewhere."""
    (node.root / "etc").mkdir()
    (node.root / "etc" / "passwd").write_text("a:x:7:7::/:/bin/sh\nb:x:7:7\n:x:8:8:\nbroken\n")
    users = Users(node.root, node.clock)
    assert [users(uid) for uid in ("7", "8", "0", "99999999999999999999")] == [
        "a", "8", "0", "99999999999999999999"
    ]  # fmt: skip
    assert Users(Path("/"), node.clock)(str(os.getuid())) != ""


def test_a_process_that_ends_between_two_calls_is_left_out(node: Node) -> None:
    """The driver's list is older than our look."""
    node.process(10, IN_POD)
    node.uses(0, 10)
    node.uses(0, 11)
    samples, faults = node.read(source(node))
    assert set(told(samples, INFO, "pid")) == {("10",)}
    node.end(10)
    samples, faults = node.read(source(node))
    assert samples == faults == []


def test_a_number_that_is_used_again_is_another_process(node: Node) -> None:
    """Its start tells: what was known of the former is not said of it."""
    node.process(10, IN_JOB)
    node.uses(0, 10)
    jobs = source(node)
    node.read(jobs)
    node.process(10, "v2-slurm-batch", start=99)
    samples, _ = node.read(jobs)
    assert set(told(samples, INFO, "cluster_job")) == {("1076414",)}


def test_a_process_that_is_moved_is_seen_to_be(node: Node) -> None:
    """A launcher begins in its own group and goes into the job's afterwards."""
    node.process(10, "v2-bare-service")
    node.uses(0, 10)
    jobs = source(node)
    node.read(jobs)
    node.process(10, IN_JOB)
    node.clock.advance(31)
    samples, _ = node.read(jobs)
    assert set(told(samples, INFO, "cluster_job")) == {("840392",)}


def test_without_the_hosts_processes_it_says_so(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """A number of the host's is another process's in a container: nothing is told of it."""
    (node.root / "proc" / "2" / "comm").write_text("bash\n")
    node.process(10, IN_POD)
    quiet = source(node)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert node.read(quiet) == ([], [])
    assert [one.message for one in caplog.records if "hostPID" in one.message] != []
    assert len(caplog.records) == 1
    _, (fault,) = node.read(source(node, wanted=True))
    assert (fault.part, fault.reason) == ("processes", "unavailable")
    assert "hostPID" in fault.detail
    node.uses(0, 10)
    samples, (fault,) = node.read(quiet)
    assert samples == []
    assert "hostPID" in fault.detail


def test_processes_that_are_hidden_are_told_of(node: Node) -> None:
    """The driver lists them, and /proc has none of them."""
    node.uses(0, 10, command="")
    node.uses(1, 11, command="")
    samples, (fault,) = node.read(source(node))
    assert samples == []
    assert fault.reason == "denied"
    assert "none of the 2 processes" in fault.detail


def test_our_own_machines_processes_can_be_looked_up(node: Node) -> None:
    """The real /proc, this very process: whatever its cgroup is, it has a user and is found."""
    real = Machine(Path("/"))
    owners = Owners(real, PodBoard(), as_number, node.clock)
    whose = owners(os.getpid())
    assert whose is not None
    assert whose.user == str(os.getuid())
    assert owners(1 << 22) is None


def test_an_owner_that_goes_keeps_its_seconds_for_a_while(node: Node) -> None:
    """Prometheus looks once a minute; after that the series ends, and what is kept is bounded."""
    node.process(10, IN_JOB)
    node.uses(0, 10, share=0.5)
    jobs = source(node)
    node.read(jobs)
    node.clock.advance(2)
    node.read(jobs)
    node.driver.clear()
    node.clock.advance(100)
    samples, _ = node.read(jobs)
    seconds = "gpu_allocation_sm_seconds_total"
    assert told(samples, seconds, "cluster_job") == {("840392",): 1.0}
    assert not told(samples, "gpu_allocation_sm_ratio", "gpu")
    node.clock.advance(301)
    samples, _ = node.read(jobs)
    assert not told(samples, seconds, "cluster_job")


def test_time_in_which_nobody_looked_is_nobodys(node: Node) -> None:
    """A machine that was suspended: the last share does not hold for an hour."""
    node.process(10, IN_JOB)
    node.uses(0, 10, share=1.0)
    jobs = source(node)
    node.read(jobs)
    node.clock.advance(3600)
    samples, _ = node.read(jobs)
    assert told(samples, "gpu_allocation_sm_seconds_total", "gpu") == {("0",): 0.0}
