"""The pods of the made-up node, and whose its processes on GPUs are.

One serves the large model, one trains; a third computes embeddings on a GPU that it shares with the
first. The node's own files say so: cgroups, and the folders that the kubelet keeps logs in.
"""

from __future__ import annotations

from typing import NamedTuple

from exporter.demo.gpus import FAULTY, HELPERS, Process
from exporter.demo.node import SERVING, Node


class DemoPod(NamedTuple):
    """A pod with one container, and the indices of the GPUs that it may use."""

    namespace: str
    name: str
    uid: str
    container: str
    container_id: str
    gpus: tuple[int, ...]

    @property
    def cgroup(self) -> str:
        """Its container's cgroup, as containerd names it under systemd."""
        uid = self.uid.replace("-", "_")
        return f"/kubepods.slice/kubepods-pod{uid}.slice/cri-containerd-{self.container_id}.scope"

    @property
    def log_folder(self) -> str:
        """Where the kubelet keeps its logs."""
        return f"var/log/pods/{self.namespace}_{self.name}_{self.uid}/{self.container}"

    @property
    def log_link(self) -> str:
        """The link to its container's log."""
        return (
            f"var/log/containers/{self.name}_{self.namespace}_{self.container}"
            f"-{self.container_id}.log"
        )


def pods_of(node: Node) -> tuple[DemoPod, ...]:
    """Return the pods of a node."""
    trained = tuple(range(SERVING if node.serves else 0, len(node.gpus.all)))
    embeddings = DemoPod(
        "serving", "embeddings-7c9d8b6f5d-m2wzt", "5e0a6a3c-3c57-4d0e-9a55-0d7f4c1b2a91", "server",
        "3c" * 32, (FAULTY,),
    )  # fmt: skip
    trainer = DemoPod(
        "research", f"{node.job.stage.run}-worker-0", "b7b1f0de-55a1-4b7e-8f0e-1f4e2f6c8d23",
        "trainer", "7e" * 32, trained,
    )  # fmt: skip
    if not node.serves:
        return embeddings, trainer
    server = DemoPod(
        "serving", "llama-70b-6d5f7c9b4-x8kq2", "0d9c2f54-9a63-4c1c-8a3b-6b1d5f0e7c42", "vllm",
        "a1" * 32, tuple(range(SERVING)),
    )  # fmt: skip
    return embeddings, trainer, server


def owner_of(process: Process, pods: tuple[DemoPod, ...]) -> DemoPod:
    """Return the pod that a process on a GPU belongs to."""
    embeddings, trainer, *server = pods
    if process in HELPERS:
        return embeddings
    return server[0] if server and process.name.startswith("VLLM") else trainer
