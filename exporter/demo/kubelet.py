"""The made-up node's kubelet: which of its pods has which GPUs."""

from __future__ import annotations

from collections import Counter

from exporter.demo.node import Node
from exporter.demo.pods import pods_of
from exporter.formats.podresources import Container, Device
from exporter.kubelet import Answer

RESOURCE = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
"""What a GPU that pods take turns on is called by NVIDIA's plugin."""


class DemoKubelet:
    """Hands out GPUs, and those that several pods have in as many replicas."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def ask(self) -> Answer:
        """Return what a kubelet would say now."""
        pods = pods_of(self._node)
        takers = Counter(gpu for pod in pods for gpu in pod.gpus)
        replicas = {
            gpu.index: self._replicas(gpu.uuid, takers[gpu.index]) for gpu in self._node.gpus.all
        }
        left = {gpu: list(some) for gpu, some in replicas.items()}
        held = tuple(
            Container(
                pod.namespace, pod.name, pod.container, tuple(left[gpu].pop(0) for gpu in pod.gpus)
            )
            for pod in pods
        )
        return Answer(held, tuple(one for some in replicas.values() for one in some))

    def _replicas(self, uuid: str, takers: int) -> tuple[Device, ...]:
        if takers < 2:
            return (Device(RESOURCE, uuid),)
        return tuple(Device(SHARED, f"{uuid}::{n}") for n in range(takers))
