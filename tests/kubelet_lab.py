"""A kubelet for tests: a real gRPC server on a unix socket that speaks the official messages."""

from __future__ import annotations

import functools
import importlib
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

PROTO = Path(__file__).parent / "data/podresources/podresources.proto"

Devices = Mapping[str, Iterable[str]]
"""Ids by resource."""


@functools.cache
def messages() -> Any:
    """Return the official messages, as Google's compiler makes them."""
    from grpc_tools import protoc

    folder = tempfile.mkdtemp(prefix="podresources-")
    made = protoc.main(["protoc", f"-I{PROTO.parent}", f"--python_out={folder}", str(PROTO)])
    assert made == 0
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("podresources_pb2")
    finally:
        sys.path.remove(folder)


def devices(some: Devices) -> list[Any]:
    """Return `ContainerDevices`, of each resource one for each NUMA node, as the kubelet does."""
    pb = messages()
    told = []
    for resource, ids in some.items():
        for node, id_ in enumerate(ids):
            topology = pb.TopologyInfo(nodes=[pb.NUMANode(ID=node)])
            told.append(
                pb.ContainerDevices(resource_name=resource, device_ids=[id_], topology=topology)
            )
    return told


def pod(
    name: str,
    some: Devices | None = None,
    *,
    namespace: str = "ml",
    container: str = "main",
    claims: Iterable[tuple[str, str, str]] = (),
) -> Any:
    """Return `PodResources` of a pod with one container; `claims` are driver, pool, device."""
    pb = messages()
    dynamic = [
        pb.DynamicResource(
            claim_name=f"{name}-claim",
            claim_namespace=namespace,
            claim_resources=[
                pb.ClaimResource(
                    cdi_devices=[pb.CDIDevice(name=f"k8s.{driver}/device={device}")],
                    driver_name=driver,
                    pool_name=pool,
                    device_name=device,
                )
            ],
        )
        for driver, pool, device in claims
    ]
    return pb.PodResources(
        name=name,
        namespace=namespace,
        containers=[
            pb.ContainerResources(name="sidecar", cpu_ids=[2, 3, 70]),
            pb.ContainerResources(
                name=container,
                devices=devices(some or {}),
                cpu_ids=[1, 2**40],
                memory=[pb.ContainerMemory(memory_type="hugepages-2Mi", size=2**33)],
                dynamic_resources=dynamic,
            ),
        ],
    )


class FakeKubelet:
    """Serves `pods` and `allocatable` (None: an old kubelet) at the socket in a directory.

    `wait` is called in each List; `asked` counts them; `raw` is sent in place of an answer.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pods: list[Any] = []
        self.allocatable: Devices | None = {}
        self.wait: Callable[[Any], None] = lambda context: None
        self.raw: bytes | None = None
        self.asked = 0
        self.authority = ""
        self._server: grpc.Server | None = None

    @property
    def socket(self) -> Path:
        return self.directory / "kubelet.sock"

    def start(self) -> FakeKubelet:
        """Serve, at a socket that is made anew."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        pool = futures.ThreadPoolExecutor(2)
        server = grpc.server(pool, options=[("grpc.max_send_message_length", -1)])
        handlers = {
            "List": grpc.unary_unary_rpc_method_handler(self._list),
            "GetAllocatableResources": grpc.unary_unary_rpc_method_handler(self._allocatable),
        }
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers),)
        )
        assert server.add_insecure_port(f"unix:{self.socket}")
        server.start()
        self._server, self._pool = server, pool
        return self

    def stop(self) -> None:
        """End it; its socket is gone."""
        if self._server is not None:
            self._server.stop(0).wait(5)
            self._pool.shutdown()
            self._server = None
        self.socket.unlink(missing_ok=True)

    def _list(self, request: bytes, context: Any) -> bytes:
        messages().ListPodResourcesRequest.FromString(request)
        self.asked += 1
        self.authority = context._rpc_event.call_details.host.decode()
        self.wait(context)
        if self.raw is not None:
            return self.raw
        return messages().ListPodResourcesResponse(pod_resources=self.pods).SerializeToString()

    def _allocatable(self, request: bytes, context: Any) -> bytes:
        if self.allocatable is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method")
        told = messages().AllocatableResourcesResponse(devices=devices(self.allocatable or {}))
        return told.SerializeToString()


def hang(until: threading.Event) -> Callable[[Any], None]:
    """Return what makes a kubelet slow: it waits for the event, at most ten seconds."""
    return lambda context: (until.wait(10), None)[1]
