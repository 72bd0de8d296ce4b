"""A node with processes on its GPUs, for tests of whose they are: a folder of files, and a board.

The files are what `/proc`, `/sys/fs/cgroup` and `/var/log` hold; lines of cgroups are the recorded
ones of `tests/data/cgroups`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from exporter import catalogue as c
from exporter.board import Board, Slot
from exporter.runner import Runner, Schedule
from exporter.samples import Fault, Sample, Source
from tests.fakes import FakeClock, FakeSource

SAMPLES = Path(__file__).parent / "data" / "cgroups"

POD = "2d5133c0-65f3-40b2-b375-c04866d418e1"
CONTAINER = "e01a26336924e2fb8089bcf4cf943954fd9ea616cc5678f38f65928307979459"
"""Of the sample `v2-containerd-systemd-burstable`."""


class Node:
    """Processes by number, and what the driver says of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = FakeClock()
        self.board = Board()
        self._slots: dict[str, Slot] = {}
        (root / "proc" / "2").mkdir(parents=True)
        (root / "proc" / "2" / "comm").write_text("kthreadd\n")
        self.gpus = [gpu(0), gpu(1)]
        self.driver: list[Sample] = []

    def process(self, pid: int, sample: str, *, start: int = 5) -> None:
        """Let a process run whose cgroup is a recorded one, or these lines."""
        folder = self.root / "proc" / str(pid)
        folder.mkdir(exist_ok=True)
        file = SAMPLES / f"{sample}.txt"
        (folder / "cgroup").write_text(file.read_text() if file.exists() else sample)
        (folder / "stat").write_text(f"{pid} (a b) c) S 1 {' '.join(['0'] * 17)} {start} 0\n")

    def end(self, pid: int) -> None:
        """Let a process end."""
        shutil.rmtree(self.root / "proc" / str(pid))

    def uses(
        self, at: int, pid: int, *, memory: int | None = 100, share: float | None = None,
        mig: str = "", command: str = "python3",
    ) -> None:  # fmt: skip
        """Let the driver list a process on a GPU."""
        labels = (str(at), f"GPU-{at}")
        if memory is not None:
            self.driver.append(c.GPU_PROCESS_MEMORY_BYTES(memory, *labels, mig, str(pid), command))
        if share is not None:
            self.driver.append(c.GPU_PROCESS_SM_RATIO(share, *labels, str(pid), command))

    def logs(self, namespace: str, pod: str, uid: str, **containers: str) -> None:
        """Let the kubelet keep logs of a pod; `containers` are ids by name."""
        folder = self.root / "var" / "log"
        (folder / "pods" / f"{namespace}_{pod}_{uid}").mkdir(parents=True, exist_ok=True)
        (folder / "containers").mkdir(exist_ok=True)
        for name, number in containers.items():
            link = folder / "containers" / f"{pod}_{namespace}_{name}-{number}.log"
            link.symlink_to("/nowhere")

    def cgroup(self, path: str) -> Path:
        """Make a cgroup's directory."""
        folder = self.root / "sys" / "fs" / "cgroup" / path
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def see(self) -> None:
        """Let the readers of GPUs put on the board what the driver says."""
        self.publish(FakeSource("nvml", c.GPU, [*self.gpus, *self.driver]))

    def publish(self, source: Source) -> None:
        """Read a source onto the board."""
        if source.name not in self._slots:
            self._slots[source.name] = self.board.enroll(
                source.name, source.group, 1, 1e9, self.clock.monotonic()
            )
        slot = self._slots[source.name]
        Runner(source, Schedule(1, 1), slot, self.clock).step()

    def read(self, source: Source) -> tuple[list[Sample], list[Fault]]:
        """Read a source after the driver; what it brought lies on the board too."""
        self.see()
        out = list(source.read())
        samples = [one for one in out if isinstance(one, Sample)]
        assert len({one[:2] for one in samples}) == len(samples), "a series twice"
        self.publish(FakeSource(source.name, source.group, out))
        return samples, [one for one in out if isinstance(one, Fault)]


def gpu(at: int) -> Sample:
    """Return that a GPU is there."""
    labels = dict.fromkeys(c.GPU_INFO.labels, "") | {"gpu": str(at), "uuid": f"GPU-{at}"}
    return c.GPU_INFO(1, *labels.values())


def instance(at: int, mig: str, uuid: str) -> Sample:
    """Return that a MIG device is there."""
    return c.GPU_MIG_INFO(1, str(at), f"GPU-{at}", mig, "0", uuid, "1g.10gb")


def told(samples: list[Sample], name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Return the values of a family by these labels."""
    at = [c.FAMILIES[name].labels.index(label) for label in labels]
    found: dict[tuple[str, ...], float] = {}
    for one in samples:
        if one.metric.name == name:
            assert isinstance(one.value, int | float)
            key = tuple(one.labels[i] for i in at)
            found[key] = found.get(key, 0) + one.value
    return found
