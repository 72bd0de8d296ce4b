"""Which GPUs a server works on: by hand, or by its processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.board import Board
from exporter.discovery import Machine
from exporter.runner import Runner, Schedule
from exporter.samples import Fault, Sample
from exporter.sources.placement import Placed, PlacementSource
from tests.fakes import FakeClock, FakeSource


def info(gpu: int) -> Sample:
    labels = dict.fromkeys(c.GPU_INFO.labels, "") | {"gpu": str(gpu), "uuid": f"GPU-{gpu}"}
    return c.GPU_INFO(1, *labels.values())


def memory(gpu: int, pid: int, command: str = "python3") -> Sample:
    return c.GPU_PROCESS_MEMORY_BYTES(5, str(gpu), f"GPU-{gpu}", "", str(pid), command)


def board(*items: Sample) -> Board:
    """Put samples on a board as the GPUs' source would."""
    made, clock = Board(), FakeClock()
    slot = made.enroll("nvml", c.GPU, 1, 1e9, clock.monotonic())
    Runner(FakeSource("nvml", c.GPU, items), Schedule(1, 1), slot, clock).step()
    return made


def read(
    servers: Iterable[Placed], *items: Sample, root: Path = Path("/")
) -> tuple[list[tuple[str, ...]], list[Fault]]:
    source = PlacementSource(tuple(servers), Machine(root), board(*items).view, FakeClock())
    out = list(source.read())
    assert out == list(source.read()), "what is remembered changes nothing"
    placed = [i.labels for i in out if isinstance(i, Sample) and i.metric is c.LLM_SERVER_GPU]
    return placed, [i for i in out if isinstance(i, Fault)]


def test_the_children_of_a_listening_process_work_for_it() -> None:
    """A real parent with a real child, which the driver would list as the GPU's user."""
    program = (
        "import socket, subprocess, sys\n"
        "s = socket.create_server(('127.0.0.1', 0))\n"
        "c = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "print(s.getsockname()[1], c.pid, flush=True)\n"
        "input(); c.kill(); c.wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        port, child = map(int, parent.stdout.readline().split())
        servers = [Placed("a", port), Placed("b", port + 1), Placed("far", None)]
        users = [memory(0, child), memory(1, child), memory(2, parent.pid)]
        placed, faults = read(servers, *map(info, range(3)), *users)
        unseen, _ = read(servers, info(0), memory(0, child, command=""))
        parent.communicate("\n")
    assert placed == [("a", "0", "GPU-0"), ("a", "1", "GPU-1"), ("a", "2", "GPU-2")]
    assert faults == []
    assert unseen == [], "a process in another namespace: its number may be another's here"


def test_configured_gpus_win() -> None:
    """Whatever the driver lists; a GPU that is not there is told."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        placed, faults = read(
            [Placed("a", port, (1, 9)), Placed("b", port, ())],
            info(0), info(1), memory(0, os.getpid()),
        )  # fmt: skip
    assert placed == [("a", "1", "GPU-1")]
    (fault,) = faults
    assert (fault.part, fault.reason) == ("a", "unavailable")
    assert fault.detail == "gpus: there is no GPU 9; there are 0, 1"


def test_before_the_gpus_are_read_there_is_nothing_to_say() -> None:
    """Neither a line with half of its labels nor a complaint."""
    assert read([Placed("a", 8000, (0,))]) == ([], [])


def test_a_process_belongs_to_the_nearest_server_above_it(tmp_path: Path) -> None:
    """A proxy that starts an engine does not own its GPUs."""
    made = tmp_path / "proc"
    (made / "net").mkdir(parents=True)
    rows = [f" 0: 0100007F:{port:04X} 0:0 0A 0:0 0:0 0 0 0 {port} 1" for port in (4000, 8000)]
    (made / "net/tcp").write_text("\n".join(["head", *rows, ""]))
    for pid, parent, inode in ((10, 1, 4000), (11, 10, 8000), (12, 11, 0), (13, 1, 0)):
        (made / f"{pid}/fd").mkdir(parents=True)
        (made / f"{pid}/fd/3").symlink_to(f"socket:[{inode}]")
        (made / f"{pid}/stat").write_text(f"{pid} (x) S {parent}" + " 0" * 17 + " 5 0")
        (made / f"{pid}/cmdline").write_text("x\0")
    placed, _ = read(
        [Placed("proxy", 4000), Placed("engine", 8000)],
        info(0), info(1), memory(0, 12), memory(1, 13), memory(1, 99),
        root=tmp_path,
    )  # fmt: skip
    assert placed == [("engine", "0", "GPU-0")]


@pytest.mark.parametrize("table", ["", "head\n"])
def test_a_server_whose_socket_is_gone_has_no_gpus(tmp_path: Path, table: str) -> None:
    """Nor has any if the sockets cannot be seen."""
    if table:
        (tmp_path / "proc/net").mkdir(parents=True)
        (tmp_path / "proc/net/tcp").write_text(table)
    assert read([Placed("a", 8000)], info(0), memory(0, 12), root=tmp_path) == ([], [])


def test_a_server_in_a_pod_has_the_gpus_of_its_pod() -> None:
    """Those that its processes use, of all that it was given where nobody sees the processes."""

    def used(gpu: int, pod: str) -> Sample:
        labels = dict.fromkeys(c.GPU_PROCESS_INFO.labels, "")
        labels |= {"gpu": str(gpu), "uuid": f"GPU-{gpu}", "pid": "1", "namespace": "n", "pod": pod}
        return c.GPU_PROCESS_INFO(1, *labels.values())

    def given(gpu: int, pod: str) -> Sample:
        return c.GPU_ALLOCATION_INFO(1, str(gpu), f"GPU-{gpu}", "n", pod, "main")

    servers = [
        Placed("n:a", None, None, ("n", "a")), Placed("n:b", None, None, ("n", "b")),
        Placed("n:c", None, None, ("n", "c")), Placed("n:d", None, (3,), ("n", "a")),
        Placed("m:a", None, None, ("m", "a")),
    ]  # fmt: skip
    placed, faults = read(
        servers, *map(info, range(4)), used(0, "a"), given(0, "a"), given(1, "a"), given(2, "b")
    )
    assert placed == [("n:d", "3", "GPU-3"), ("n:a", "0", "GPU-0"), ("n:b", "2", "GPU-2")]
    assert faults == []
