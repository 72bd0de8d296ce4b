"""The made-up node's kubelet: which pods have its GPUs."""

from __future__ import annotations

import re

from exporter.demo.node import SERVING, Node
from exporter.formats.podresources import Container, Device
from exporter.kubelet import Answer

RESOURCE = "nvidia.com/gpu"


class DemoKubelet:
    """Says that the servers' GPUs are one pod's, and those of the training job another one's."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def ask(self) -> Answer:
        """Return what a kubelet would say now."""
        uuids = [gpu.uuid for gpu in self._node.gpus.all]
        training = [uuids[at] for at in self._node.job.scenario.gpus]
        run = re.sub(r"[^a-z0-9]+", "-", self._node.job.stage.run.lower()).strip("-")
        pods = [_pod("training", f"{run}-worker-0", "trainer", training)]
        if self._node.serves:
            pods.append(_pod("serving", "llama-70b-0", "vllm", uuids[:SERVING]))
        return Answer(tuple(pods), _devices(uuids))


def _pod(namespace: str, name: str, container: str, uuids: list[str]) -> Container:
    return Container(namespace, name, container, _devices(uuids))


def _devices(uuids: list[str]) -> tuple[Device, ...]:
    return tuple(Device(RESOURCE, uuid) for uuid in uuids)
