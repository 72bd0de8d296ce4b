"""A made-up GPU node for people without one: `flopwatch demo`.

Fakes stand below the real readers. The daemon reads a fake `/sys` and kernel log, asks a fake
driver library and scrapes fake inference servers over HTTP; all are driven by one small physical
model. Nothing here knows the daemon, and nothing here has a thread: whoever runs a `Demo` calls
`step` from time to time and gives each of `page_servers` a thread for its `serve_forever`.

The node also trains: the job writes a log below the root, and its pushes are to be taken
with `Demo.pushes`. `SCENARIOS` says what else than the usual can be shown.

`Demo.root` is for the sources of network, GPUs and kernel log; the host source keeps the real root.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from exporter.clock import Clock, SystemClock
from exporter.demo.collectives import Dumps
from exporter.demo.drivers import DemoDrivers
from exporter.demo.engines import (
    LLAMACPP_TYPE,
    VLLM_TYPE,
    PageServer,
    llamacpp_page,
    vllm_page,
)
from exporter.demo.faults import Faults
from exporter.demo.kernel import KernelFiles
from exporter.demo.kubelet import DemoKubelet
from exporter.demo.metadata import MetadataServer, announced
from exporter.demo.node import SERVING, Node
from exporter.demo.nvml import DemoNvml
from exporter.demo.sysfs import SysfsTree
from exporter.demo.training import SCENARIOS
from exporter.demo.trainlog import Teller

__all__ = ["PROMISE", "SCENARIOS", "TRAINING_LOG", "Demo", "DemoServer", "Faults"]

PROMISE: Mapping[str, Mapping[str, str]] = {
    "latency": {
        "ttft_p50": "< 200ms",
        "ttft_p95": "< 500ms",
        "ttft_p99": "< 1000ms",
        "tpot_p95": "< 50ms",
    },
    "throughput": {"min_tps": "> 10,000 tokens/s"},
    "availability": {
        "uptime": "> 99.9%",
        "error_rate": "< 0.1%",
        "retry_success_rate": "> 99%",
    },
}
"""What the node's operator has promised: an `inference_sla` as a configuration states it."""

TRAINING_LOG = "/var/log/training/train.log"

_WARM_UP = 30.0
_LONGEST_STEP = 60.0


class DemoServer(NamedTuple):
    """An inference server: its engine, the URL of its page, the indices of its GPUs."""

    engine: str
    url: str
    gpus: tuple[int, ...]


class Demo:
    """The node, its files below `directory`, and its servers.

    `root` is what to hand to sources as the machine's root, `kernel_log` the log below it,
    `run` is the training job's name, `TRAINING_LOG` what it prints below the root, `dumps` where
    NCCL Inspector writes down its collectives; `servers` is each inference server by name;
    `page_servers` must be served until `close`, and so must `metadata`, the service in which the
    cloud tells of the machine. The node has been running for half a minute when this returns, so
    that there is something to see.

    Raises `OSError` if `directory` cannot be written or already holds a demo, `KeyError` for a
    `scenario` that is not one of `SCENARIOS`.
    """

    def __init__(
        self,
        directory: Path,
        seed: int = 0,
        *,
        clock: Clock | None = None,
        scenario: str = "default",
    ) -> None:
        now = (clock or SystemClock()).time()
        self._node = Node(seed, now - _WARM_UP, SCENARIOS[scenario])
        self._node.advance(_WARM_UP)
        # A page may be asked for while the node moves on.
        self._lock = threading.Lock()
        self.root = directory / "root"
        with ExitStack() as undo:
            self.root.mkdir()
            undo.callback(shutil.rmtree, self.root)
            self._tree = SysfsTree(self.root)
            self._kernel = KernelFiles(self.root)
            log = self.root / TRAINING_LOG.lstrip("/")
            log.parent.mkdir(parents=True)
            self._teller = Teller(log, SCENARIOS[scenario], self._node.born)
            self.dumps = self.root / "var/log/nccl"
            self.dumps.mkdir(parents=True)
            self._collectives = Dumps(self.dumps, self._node.born)
            self.run = self._node.job.stage.run
            self._write()
            llamacpp = PageServer(self._locked(llamacpp_page), LLAMACPP_TYPE)
            undo.callback(llamacpp.shutdown)
            self.metadata = MetadataServer(self._announced)
            undo.callback(self.metadata.shutdown)
            servers = {"llama-3b": DemoServer("llamacpp", llamacpp.url, ())}
            self.page_servers: tuple[PageServer, ...] = (llamacpp,)
            if self._node.serves:
                vllm = PageServer(self._locked(vllm_page), VLLM_TYPE)
                undo.callback(vllm.shutdown)
                large = DemoServer("vllm", vllm.url, tuple(range(SERVING)))
                servers = {"llama-70b": large, **servers}
                self.page_servers = (vllm, llamacpp)
            self._undo = undo.pop_all()
        self.kernel_log = self._kernel.log
        self.servers: Mapping[str, DemoServer] = servers

    def step(self, seconds: float) -> None:
        """Let time pass and bring the files up to date.

        After a long pause (a suspended machine) only the last minute is made up for.
        """
        with self._lock:
            self._node.advance(min(seconds, _LONGEST_STEP))
        self._write()

    def pushes(self) -> list[bytes]:
        """Return what the training job has pushed since the last call: bodies of requests."""
        with self._lock:
            return self._teller.pushes()

    def inject(self, faults: Faults) -> None:
        """Let the node have other faults, the training job from its next step on."""
        with self._lock:
            self._node.inject(faults)

    def story(self) -> Mapping[str, Any] | None:
        """Return which chapter is on, as JSON values; None where nothing is on a timetable."""
        with self._lock:
            return self._node.story.document(self._node.now)

    def boot(self) -> str:
        """Return what names this run of the machine."""
        return f"demo-{self._node.born:.0f}-{self._node.boots}"

    def gpu_driver(self) -> DemoNvml:
        """Return NVIDIA's library as this node has it, for one source."""
        return DemoNvml(self._node, self._lock)

    def drivers(self) -> DemoDrivers:
        """Return the drivers of this node's network cards, for one source."""
        return DemoDrivers(self._node, self._lock)

    def kubelet(self) -> DemoKubelet:
        """Return what says which pods have this node's GPUs."""
        return DemoKubelet(self._node)

    def close(self) -> None:
        """Stop the servers and remove the files; no harm in calling it twice."""
        self._undo.close()

    def _write(self) -> None:
        self._tree.write(self._node)
        self._kernel.write(self._node)
        with self._lock:
            laps = self._node.job.take()
            self._teller.tell(laps)
        self._collectives.tell(laps)

    def _announced(self) -> Mapping[str, str]:
        with self._lock:
            return announced(self._node)

    def _locked(self, page: Callable[[Node], bytes]) -> Callable[[], bytes]:
        def locked() -> bytes:
            with self._lock:
                return page(self._node)

        return locked
