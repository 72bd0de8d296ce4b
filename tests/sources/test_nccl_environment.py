"""Settings of real processes and of jobs that tell theirs, on a node with made-up ports."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.board import Board
from exporter.demo import Demo
from exporter.derive.fabric.environment import KINDS
from exporter.formats import pushes
from exporter.samples import Sample, View
from exporter.sources.nccl_environment import NcclEnvironmentSource
from exporter.training import TrainingLedger
from exporter.training.records import Facts, Moment
from tests.derive.fabric_lab import board, rails
from tests.fakes import FakeClock
from tests.test_daemon import Start, start  # noqa: F401 - a fixture

Launch = Callable[..., int]
RANK = {"RANK": "0", "WORLD_SIZE": "16", "LOCAL_RANK": "0", "FLOPWATCH_RUN": "llama"}
SECRET = "hunter2"


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


def ports() -> Iterator[Sample]:
    for at in range(8):
        said = {"device": f"mlx5_{at}", "port": "1", "link_layer": "InfiniBand", "virtual": "false"}
        yield c.NIC_INFO(1, *(said.get(label, "") for label in c.NIC_INFO.labels))
        yield c.NIC_UP(1, f"mlx5_{at}", "1")
    yield from rails()


def on_gpu(*pids: int) -> Iterator[Sample]:
    for pid in pids:
        said = {"gpu": "0", "uuid": "u", "pid": str(pid), "command": "python"}
        metric = c.GPU_PROCESS_MEMORY_BYTES
        yield metric(1, *(said.get(label, "") for label in metric.labels))


def told(
    *samples: Iterable[Sample], ledger: TrainingLedger | None = None, root: Path = Path("/"),
    names: dict[str, str] | None = None,
) -> dict[str, dict[str, bool]]:  # fmt: skip
    """Return the mistakes by run, and where they are known from as a mistake `=origin`."""
    view: View = board([one for some in samples for one in some])
    source = NcclEnvironmentSource(
        root, ledger or TrainingLedger(), lambda _: view, FakeClock(), names=names
    )
    found: dict[str, dict[str, bool]] = {}
    for sample in source.read():
        run, what = sample.labels
        if sample.metric is c.NCCL_ENVIRONMENT_INFO:
            what = f"={what}"
        found.setdefault(run, {})[what] = bool(sample.value)
    return found


# ---------------------------------------------------------------- processes


def test_a_job_that_switches_ib_off_on_a_node_with_ib_is_told(launch: Launch) -> None:
    pid = launch(**RANK, NCCL_IB_DISABLE="1")
    found = told(ports(), on_gpu(pid))["llama"]
    assert found["ib_disabled"] is True
    assert found["=process"] is True
    assert found["hca_incomplete"] is False


def test_an_hca_as_socket_interface_is_told_of_the_specification_s_own_script(
    launch: Launch,
) -> None:
    """And that no such interface exists, in the process's own network namespace."""
    found = told(ports(), on_gpu(launch(**RANK, NCCL_SOCKET_IFNAME="mlx5_0")))["llama"]
    assert found["socket_interface_rdma"] is True
    assert found["socket_interface_missing"] is True
    found = told(ports(), on_gpu(launch(**RANK, NCCL_SOCKET_IFNAME="lo")))["llama"]
    assert found["socket_interface_missing"] is False
    assert found["socket_interface_local"] is True  # 16 ranks, one of them here


def test_a_list_of_hcas_is_held_against_the_rails(launch: Launch) -> None:
    found = told(ports(), on_gpu(launch(**RANK, NCCL_IB_HCA="=mlx5_0,mlx5_1")))["llama"]
    assert (found["hca_incomplete"], found["hca_missing"]) == (True, False)


def test_a_process_without_a_gpu_is_not_looked_at(launch: Launch) -> None:
    launch(**RANK, NCCL_IB_DISABLE="1")
    assert told(ports()) == {}


def test_a_process_that_holds_a_gpu_open_is_found_without_the_driver(tmp_path: Path) -> None:
    """On a tree, for this machine has no GPU: its descriptor 7 leads to /dev/nvidia3."""
    for pid, device in ((41, "/dev/nvidia3"), (42, "/dev/nvidiactl"), (43, "/dev/null")):
        folder = tmp_path / "proc" / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "fd" / "0").symlink_to("/dev/null")
        (folder / "fd" / "7").symlink_to(device)
        (folder / "environ").write_bytes(f"FLOPWATCH_RUN=of-{pid}\0RANK=0\0WORLD_SIZE=1\0"
                                         "LOCAL_RANK=0\0NCCL_P2P_DISABLE=1\0".encode())  # fmt: skip
    found = told(ports(), root=tmp_path)
    assert set(found) == {"of-41"}
    assert found["of-41"]["p2p_disabled"] is True


def test_the_machine_s_file_counts_where_the_environment_says_nothing(tmp_path: Path) -> None:
    """As the process sees it: below its own root."""
    folder = tmp_path / "proc" / "41"
    (folder / "root" / "etc").mkdir(parents=True)
    (folder / "root" / "etc" / "nccl.conf").write_text("export NCCL_NET=IB\nNCCL_IB_DISABLE=1\n"
                                                       "NCCL_SHM_DISABLE=1\n")  # fmt: skip
    (folder / "environ").write_bytes(b"FLOPWATCH_RUN=a\0RANK=0\0WORLD_SIZE=1\0LOCAL_RANK=0\0"
                                     b"NCCL_SHM_DISABLE=0\0")  # fmt: skip
    found = told(ports(), on_gpu(41), root=tmp_path)["a"]
    assert (found["ib_disabled"], found["shm_disabled"], found["odd_file"]) == (True, False, True)


def test_a_fifo_in_a_container_s_etc_holds_nobody_up(tmp_path: Path) -> None:
    folder = tmp_path / "proc" / "41"
    (folder / "root" / "etc").mkdir(parents=True)
    os.mkfifo(folder / "root" / "etc" / "nccl.conf")
    (folder / "environ").write_bytes(b"NCCL_IB_DISABLE=1\0")
    began = time.monotonic()
    assert told(ports(), on_gpu(41), root=tmp_path)[""]["ib_disabled"] is True
    assert time.monotonic() - began < 5


def test_a_link_in_a_container_s_etc_is_not_followed_to_a_file_of_the_host(tmp_path: Path) -> None:
    secret = tmp_path / "shadow"
    secret.write_text("NCCL_IB_DISABLE=1\n")
    folder = tmp_path / "proc" / "41"
    (folder / "root" / "etc").mkdir(parents=True)
    (folder / "root" / "etc" / "nccl.conf").symlink_to(secret)
    (folder / "environ").write_bytes(b"NCCL_DEBUG=WARN\0")
    found = told(ports(), on_gpu(41), root=tmp_path)[""]
    assert found["ib_disabled"] is False
    assert "odd_file" not in found


def test_an_etc_that_is_a_link_is_not_followed_to_a_folder_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "of-the-host").mkdir()
    (tmp_path / "of-the-host" / "nccl.conf").write_text("NCCL_IB_DISABLE=1\n")
    folder = tmp_path / "proc" / "41"
    (folder / "root").mkdir(parents=True)
    (folder / "root" / "etc").symlink_to(tmp_path / "of-the-host")
    (folder / "environ").write_bytes(b"NCCL_DEBUG=WARN\0")
    found = told(ports(), on_gpu(41), root=tmp_path)[""]
    assert found["ib_disabled"] is False
    assert "odd_file" not in found


def test_a_setting_behind_a_megabyte_of_other_variables_is_seen(launch: Launch) -> None:
    many = {f"V{at}": "x" * 100_000 for at in range(12)}
    pid = launch(**RANK, **many, NCCL_IB_DISABLE="1")
    assert told(ports(), on_gpu(pid))["llama"]["ib_disabled"] is True


def test_a_port_whose_state_cannot_be_read_is_not_told_to_be_missing(launch: Launch) -> None:
    known = [one for one in ports() if one.metric is not c.NIC_UP or one.labels[0] != "mlx5_3"]
    found = told(known, on_gpu(launch(**RANK, NCCL_IB_HCA="=mlx5_3,mlx5_4")))["llama"]
    assert "hca_missing" not in found


def test_a_process_that_may_not_be_looked_at_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "proc" / "41").mkdir(parents=True)
    assert told(ports(), on_gpu(41, 4_000_000), root=tmp_path) == {}


def test_runs_are_named_as_the_source_of_ranks_names_them(launch: Launch) -> None:
    variables = {**RANK, "WANDB_NAME": "exp-7"}
    del variables["FLOPWATCH_RUN"]
    pid = launch(**variables)
    assert set(told(on_gpu(pid))) == {"exp-7"}
    assert set(told(on_gpu(pid), names={"exp-*": "mine"})) == {"mine"}


def test_ranks_that_differ_are_told(launch: Launch) -> None:
    pids = [
        launch(**{**RANK, "RANK": str(rank)}, NCCL_ALGO=algorithm)
        for rank, algorithm in enumerate(("Ring", "Tree"))
    ]
    assert told(on_gpu(*pids))["llama"]["ranks_differ"] is True


def test_jobs_that_nobody_can_name_are_not_held_against_each_other(launch: Launch) -> None:
    """Two servers on one node, or two torchruns: what differs may well be meant to."""
    pids = launch(NCCL_ALGO="Ring"), launch(NCCL_P2P_DISABLE="1")
    found = told(on_gpu(*pids))[""]
    assert found["p2p_disabled"] is True
    assert "ranks_differ" not in found


def test_no_secret_leaves_the_source(launch: Launch, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever variable it stands in: not on the page, not in a fault, not in the log."""
    caplog.set_level(logging.DEBUG)
    pid = launch(
        **RANK, AWS_SECRET_ACCESS_KEY=SECRET, NCCL_TOKEN=SECRET, NCCL_IB_HCA=f"{SECRET} {SECRET}",
        NCCL_SOCKET_IFNAME=SECRET, NCCL_NET=SECRET,
    )  # fmt: skip
    view = board([*ports(), *on_gpu(pid)])
    source = NcclEnvironmentSource(Path("/"), TrainingLedger(), lambda _: view, FakeClock())
    items = list(source.read())
    assert {one.labels[1] for one in items} <= {*KINDS, "process"}
    assert SECRET not in repr(items) + caplog.text
    assert SECRET not in repr(vars(source))


# ---------------------------------------------------------------- jobs that tell


def ledger(**settings: str) -> TrainingLedger:
    made = TrainingLedger()
    variables = {f"NCCL_{name}": value for name, value in settings.items()}
    made.tell("push", [Facts(run="llama", world_size=16, nccl=variables)], 1000.0)
    return made


def test_what_a_job_tells_of_itself_is_judged() -> None:
    found = told(ports(), ledger=ledger(IB_DISABLE="1"))["llama"]
    assert (found["ib_disabled"], found["=client"]) == (True, True)
    assert "socket_interface_missing" in found  # nothing of that kind is set
    found = told(ports(), ledger=ledger(SOCKET_IFNAME="eth9"))["llama"]
    assert "socket_interface_missing" not in found  # its interfaces are not known


def test_a_job_s_own_word_goes_before_the_environment_that_it_began_with(launch: Launch) -> None:
    """A script has put it right since."""
    pid = launch(**RANK, NCCL_IB_DISABLE="1", NCCL_SOCKET_IFNAME="nonesuch0")
    found = told(ports(), on_gpu(pid), ledger=ledger(SOCKET_IFNAME="lo"))["llama"]
    assert found["ib_disabled"] is False
    assert found["socket_interface_missing"] is False


def test_a_job_that_has_ended_has_no_settings_any_more() -> None:
    made = ledger(IB_DISABLE="1")
    made.tell("push", [Moment(run="llama", kind="ended")], 1000.0)
    assert told(ports(), ledger=made) == {}


def test_without_a_word_of_nccl_nothing_is_told() -> None:
    made = TrainingLedger()
    made.tell("push", [Facts(run="llama", world_size=16)], 1000.0)
    assert told(ports(), ledger=made) == {}


def test_sharp_that_a_job_asked_for_is_held_against_what_was_seen() -> None:
    asked = ledger(COLLNET_ENABLE="1")
    for seen, said in ((0, True), (1, False)):
        found = told(ports(), [c.NCCL_COLLNET_ACTIVE(seen, "llama")], ledger=asked)["llama"]
        assert found["sharp_unused"] is said
    other = told(ports(), [c.NCCL_COLLNET_ACTIVE(0, "other")], ledger=asked)["llama"]
    assert "sharp_unused" not in other


def test_an_empty_board_is_no_trouble() -> None:
    source = NcclEnvironmentSource(Path("/nowhere"), TrainingLedger(), Board().view, FakeClock())
    assert list(source.read()) == []


def test_the_demo_s_job_tells_its_settings(tmp_path: Path) -> None:
    """It takes a prefix for a list, and believes in a variable that is none."""
    made = TrainingLedger()
    demo = Demo(tmp_path)
    try:
        demo.step(30.0)
        for body in demo.pushes():
            records = [record for _, record in pushes.read(body, 1000).records]
            made.tell("push", records, 1000.0)
    finally:
        demo.close()
    bond = {"device": "mlx5_bond_0", "port": "1", "link_layer": "Ethernet"}
    samples = [
        c.NIC_INFO(1, *(bond.get(label, "") for label in c.NIC_INFO.labels)),
        c.NIC_UP(1, "mlx5_bond_0", "1"),
    ]
    (found,) = told(ports(), samples, ledger=made).values()
    assert {kind for kind, so in found.items() if so} == {
        "=client", "hca_beyond_rails", "variable_without_effect",
    }  # fmt: skip


# ---------------------------------------------------------------- all of it

CONFIG = """
push: {socket: null}
sources:
  host: {enabled: false}
  inference: {enabled: false}
  nccl_environment: {enabled: true, interval: 1s}
"""
SCRIPT = """
import os, sys
os.environ["NCCL_P2P_DISABLE"] = "1"      # set by the script itself
from exporter.client import Run
run = Run("llama", url="http://127.0.0.1:" + sys.argv[1])
with run.step():
    pass
sys.stdin.read()
"""


def test_a_real_job_tells_a_real_daemon_how_it_has_set_nccl(
    start: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    """What the script has set counts too; secrets among its variables are on no page."""
    file = tmp_path / "flopwatch.yaml"
    file.write_text(CONFIG)
    daemon = start("--config", str(file))
    daemon.wait_for("/-/ready", lambda status, _: status == 200)
    job = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(daemon.port)], stdin=subprocess.PIPE,
        env={**os.environ, "NCCL_DEBUG": "TRACE", "NCCL_NET": f"{SECRET} {SECRET}",
             "NCCL_SECRET": SECRET},
    )  # fmt: skip
    try:
        wanted = '\nnccl_environment_problem{kind="debug_left_on",run="llama"} 1\n'
        page = daemon.wait_for("/metrics", lambda _, text: wanted in text)
        for kind, value in (("p2p_disabled", 1), ("strange_value", 1), ("shm_disabled", 0)):
            assert f'nccl_environment_problem{{kind="{kind}",run="llama"}} {value}\n' in page
        assert 'nccl_environment_info{origin="client",run="llama"} 1\n' in page
        assert SECRET not in page + daemon.get("/status.json")[1]
    finally:
        job.communicate(timeout=20)
    daemon.stop()
    assert SECRET not in "".join(daemon.process.communicate())


def test_a_job_that_has_taken_its_settings_back_is_believed(launch: Launch) -> None:
    pid = launch(**RANK, NCCL_IB_DISABLE="1")
    assert told(ports(), on_gpu(pid), ledger=ledger())["llama"]["ib_disabled"] is False


RANKS = """
import os, sys
from exporter.client import Run
run = Run("llama", url="http://127.0.0.1:" + sys.argv[1])
with run.step():
    pass
sys.stdin.read()
"""


def test_ranks_that_tell_different_settings_are_told_and_a_new_start_takes_them_back(
    start: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    """The last rank that told had the word for all; and settings of a former start stayed."""
    file = tmp_path / "flopwatch.yaml"
    file.write_text(CONFIG)
    daemon = start("--config", str(file))
    daemon.wait_for("/-/ready", lambda status, _: status == 200)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("NCCL_")}

    def ranks(*settings: dict[str, str]) -> list[subprocess.Popen[bytes]]:
        return [
            subprocess.Popen(
                [sys.executable, "-c", RANKS, str(daemon.port)], stdin=subprocess.PIPE,
                env={**plain, "RANK": str(at), "WORLD_SIZE": "2", "LOCAL_RANK": str(at), **own},
            )
            for at, own in enumerate(settings)
        ]  # fmt: skip

    def both(value: int) -> None:
        kinds = ("p2p_disabled", "ranks_differ")
        lines = [f'nccl_environment_problem{{kind="{k}",run="llama"}} {value}\n' for k in kinds]
        daemon.wait_for("/metrics", lambda _, text: all(line in text for line in lines))

    for settings, value in (({"NCCL_P2P_DISABLE": "1"}, 1), ({}, 0)):
        jobs = ranks(settings, {})
        try:
            both(value)
        finally:
            for job in jobs:
                job.communicate(timeout=20)
