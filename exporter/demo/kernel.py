"""What the kernel of the made-up node shows of its GPUs: processes, whose they are, and its log.

The log stands in a regular file in the format of `/dev/kmsg`, below the same root as the network's
part of `/sys` (`sysfs`). Its clock starts when the node was born, which `/proc/stat` says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from exporter.demo.gpus import HELPERS, OFF_THE_BUS, Process, Xid
from exporter.demo.node import Node
from exporter.demo.pods import DemoPod, owner_of, pods_of

_ERROR, _NOTICE, _INFO = 3, 5, 6
_LOADED = (
    (_NOTICE, 4.731204, "nvidia: loading out-of-tree module taints kernel."),
    (_INFO, 5.104377, "nvidia-nvlink: Nvlink Core is being initialized, major device number 510"),
    (_INFO, 5.377915, "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  590.48.01"),
)  # fmt: skip


class KernelFiles:
    """The files below `root`. `log` is the kernel log."""

    def __init__(self, root: Path) -> None:
        self.log = root / "dev/kmsg"
        self._root = root
        self._records = 0
        self._told = 0

    def write(self, node: Node) -> None:
        """Bring the files to where the node is. Raises `OSError`."""
        if not self._records:
            self._begin(node)
        for xid in tuple(node.gpus.xids):
            if xid.number > self._told:
                self._told = xid.number
                self._say(_ERROR, xid.at, _line(node.gpus.all[xid.gpu].address, xid))

    def _begin(self, node: Node) -> None:
        # The kernel's own: without it these would be the processes of a container.
        self._put("proc/2/comm", "kthreadd")
        pods = pods_of(node)
        for pod in pods:
            self._log(pod)
        for process in _processes(node):
            self._put(f"proc/{process.pid}/comm", process.name)
            self._put(f"proc/{process.pid}/cgroup", f"0::{owner_of(process, pods).cgroup}")
            # Behind the name: state, parent, and as the twentieth the start in ticks of the boot.
            about = f"{process.pid} ({process.name}) S 1{' 0' * 17} 9"
            self._put(f"proc/{process.pid}/stat", about)
        self._put("proc/stat", f"btime {int(node.born)}")
        self.log.parent.mkdir()
        self.log.touch()
        for level, at, text in _LOADED:
            self._say(level, at, text)

    def _log(self, pod: DemoPod) -> None:
        """Keep logs of a pod, as the kubelet does; there is nothing in them."""
        self._put(f"{pod.log_folder}/0.log", "")
        link = self._root / pod.log_link
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(self._root / pod.log_folder / "0.log")

    def _put(self, file: str, text: str) -> None:
        path = self._root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="ascii")

    def _say(self, level: int, at: float, text: str) -> None:
        """Append a record in one call. The file must be there: it may be being removed."""
        self._records += 1
        record = f"{level},{1000 + self._records},{round(at * 1e6)},-;{text}\n"
        descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, record.encode())
        finally:
            os.close(descriptor)


def _processes(node: Node) -> Iterator[Process]:
    for gpu in node.gpus.all:
        yield from gpu.processes
    yield from HELPERS


def _line(address: str, xid: Xid) -> str:
    device = address.partition(".")[0]
    if xid.code == OFF_THE_BUS:
        return (
            f"NVRM: Xid (PCI:{device}): {xid.code}, pid='<unknown>', name=<unknown>,"
            " GPU has fallen off the bus."
        )
    return (
        f"NVRM: Xid (PCI:{device}): {xid.code}, pid={xid.pid}, name={xid.process},"
        " Contained: SM (0x1). RST: No, D-RST: No"
    )
