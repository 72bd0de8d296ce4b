"""Plans for a made-up node: real readers over a fake fabric, fake GPUs and fake servers."""

from __future__ import annotations

import contextlib
import datetime as dt
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.config import (
    ConfigError,
    LogSettings,
    ServerSettings,
    Settings,
)
from exporter.config.money import CostSettings
from exporter.config.serving import PodsSettings
from exporter.config.training import DirectorySettings
from exporter.formats import pushes
from exporter.isolate import Remembers
from exporter.objectives import read_inference
from exporter.plans import plan
from exporter.plans.cluster import kubernetes_source
from exporter.plans.estate import Estate, Plan, Planner
from exporter.plans.ethtool import ethtool_source
from exporter.runner import Schedule
from exporter.samples import Item, Released, Sample, Source

if TYPE_CHECKING:
    from exporter.demo import Demo


_MOST_PUSHED = 1_000

_PRICED = CostSettings.model_validate(
    {
        "gpu_hour": 2.5,
        "pricing": "reserved",
        "as_of": dt.date(2026, 11, 1),
        "schedule": {
            "time_zone": "UTC",
            "hours": [
                {"from": "08:00", "to": "22:00", "factor": 1.2},
                {"from": "22:00", "to": "08:00", "factor": 0.6},
            ],
        },
        "energy": {"dollars_per_kwh": 0.08, "grams_per_kwh": 380.0, "pue": 1.25},
        "quotas": {"research": 64, "serving": 8},
    }
)
"""What the made-up node costs: a contract, dearer by day, and electricity. No real price."""


class _DemoDriver:
    """Moves the demo's model along with time: a source that brings no samples.

    What its training job pushes is taken as from a request, but for HTTP: the demo does not know
    where the daemon listens.
    """

    name = "demo"
    group = c.EXPORTER

    def __init__(self, demo: Demo, estate: Estate, turned: Callable[[], object]) -> None:
        self._demo = demo
        self._estate = estate
        self._turned = turned
        self._last = estate.clock.monotonic()

    def read(self) -> Iterable[Sample]:
        now = self._estate.clock.monotonic()
        self._demo.step(now - self._last)
        self._last = now
        self._turned()
        for body in self._demo.pushes():
            found = pushes.read(body, _MOST_PUSHED)
            ledger = self._estate.training
            self._estate.reception.take(ledger, "push", found.records, found.refused, now)
        return ()

    def close(self) -> None:
        pass


class Lent:
    """A source in this process that can let go of its driver, as one in a child can.

    `make` takes what a predecessor remembered; `memories` keeps that by name. `release` may be
    called from any thread.
    """

    def __init__(
        self,
        name: str,
        group: str,
        make: Callable[[object], Source],
        clock: Clock,
        memories: MutableMapping[str, Any],
    ) -> None:
        self.name = name
        self.group = group
        self._make = make
        self._clock = clock
        self._memories = memories
        self._turn = threading.Lock()
        self._source: Source | None = None
        self._released_until = 0.0

    def read(self) -> Iterable[Item]:
        """Read the source, making it if need be. Raises `Released`, and what the source raises."""
        with self._turn:
            left = self._released_until - self._clock.monotonic()
            if left > 0:
                raise Released(left)
            if self._source is None:
                self._source = self._make(self._memories.get(self.name))
            return list(self._source.read())

    def release(self, seconds: float) -> bool:
        """Close the source, and read nothing for so long; another one goes on where it was."""
        with self._turn:
            self._released_until = self._clock.monotonic() + seconds
            self._close()
        return True

    def close(self) -> None:
        """Close the source."""
        with self._turn:
            self._close()

    def _close(self) -> None:
        source, self._source = self._source, None
        if source is None:
            return
        if isinstance(source, Remembers):
            self._memories[self.name] = source.memory()
        source.close()


class Reborn:
    """A source of a machine that starts again: it is made anew with each boot."""

    def __init__(self, name: str, group: str, make: Callable[[], Source], boot: Callable[[], str]):
        self.name = name
        self.group = group
        self._make = make
        self._boot = boot
        self._made: tuple[str, Source] | None = None

    def read(self) -> Iterable[Item]:
        """Read the source of this boot. Raises what it raises."""
        boot = self._boot()
        if self._made is None or self._made[0] != boot:
            self.close()
            self._made = boot, self._make()
        return self._made[1].read()

    def close(self) -> None:
        """Close the source."""
        if self._made is not None:
            self._made[1].close()
            self._made = None


def _on_fake_driver(one: Plan, settings: Settings, demo: Demo, estate: Estate) -> Plan:
    """Let sources ask the demo's drivers, in this process: no library, no child."""
    if one.name == "spot":
        return replace(one, make=lambda: Reborn(one.name, one.group, one.make, demo.boot))
    if one.name == "kubernetes":
        return replace(
            one, make=lambda: kubernetes_source(settings, estate, kubelet=demo.kubelet())
        )
    if one.name == "ethtool":
        source = ethtool_source(settings, demo.drivers())
        return replace(one, make=lambda: source)
    if one.name != "nvml":
        return one
    nvml = settings.sources.nvml

    def make(memory: object) -> Source:
        from exporter.sources.nvml import NvmlSource

        return NvmlSource(
            budget=nvml.deadline, expected=nvml.expected,
            detail=nvml.detail or bool(settings.compat), links=nvml.links,
            processes=nvml.processes, root=settings.root, memory=memory,
            driver=demo.gpu_driver(), clock=estate.clock,
        )  # fmt: skip

    return replace(one, make=lambda: Lent("nvml", c.GPU, make, estate.clock, estate.memories))


def _turner(
    demo: Demo, narrate: Callable[[Mapping[str, Any]], object] | None
) -> Callable[[], None]:
    """Return what narrates a chapter that has begun, at the first look at it."""
    seen: tuple[object, ...] = ()

    def turned() -> None:
        nonlocal seen
        story = demo.story() if narrate is not None else None
        if narrate is None or story is None:
            return
        if seen != (seen := (story["lap"], story["number"])):
            narrate(story)

    return turned


@contextlib.contextmanager
def demo_plans(
    scenario: str = "default",
    tell: Callable[[Demo], object] | None = None,
    narrate: Callable[[Mapping[str, Any]], object] | None = None,
) -> Iterator[Planner]:
    """Give plans for a made-up node: real readers over a fake fabric and fake servers.

    `scenario` is one of `exporter.demo.SCENARIOS`; `tell` is told the node, to inject faults;
    `narrate` is told each chapter of a story when it begins.

    The host is the real one; GPUs, network and inference servers are made up, and so is what was
    promised, unless the settings have an objective.
    """
    from exporter.demo import PROMISE, TRAINING_LOG, Demo

    with tempfile.TemporaryDirectory(prefix="flopwatch-demo-") as folder:
        demo = Demo(Path(folder), scenario=scenario)
        if tell is not None:
            tell(demo)
        for server in (*demo.page_servers, demo.metadata):
            threading.Thread(target=server.serve_forever, name="demo", daemon=True).start()
        servers = tuple(
            ServerSettings(
                name=name,
                url=one.url,
                engine=one.engine,
                gpus=one.gpus,
                allow_destructive_read=one.engine == "llamacpp",
            )
            for name, one in demo.servers.items()
        )
        promised = read_inference(PROMISE)

        def plans(settings: Settings, estate: Estate) -> list[Plan]:
            inference = settings.sources.inference
            if taken := demo.servers.keys() & {server.name for server in inference.servers}:
                raise ConfigError(f"sources.inference.servers: the demo has a {min(taken)!r} too")
            inference = inference.model_copy(
                # Whatever real server runs on this machine is not the made-up node's.
                update={
                    "servers": (*inference.servers, *servers),
                    "local": False,
                    "kubernetes": PodsSettings(enabled=False),
                }
            )
            log = LogSettings(path=TRAINING_LOG, run=demo.run, framework="megatron")
            logs = settings.sources.logs.model_copy(update={"files": (log,)})
            spot = settings.sources.spot.model_copy(
                update={"enabled": True, "provider": "aws", "endpoint": demo.metadata.url}
            )
            nccl = settings.sources.nccl
            dumps = DirectorySettings(path=str(demo.dumps), run=demo.run)
            nccl = nccl.model_copy(update={"directories": (*nccl.directories, dumps)})
            pods = settings.sources.kubernetes
            pods = pods.model_copy(update={"enabled": pods.enabled is not False})
            sources = settings.sources.model_copy(
                update={
                    "inference": inference, "logs": logs, "nccl": nccl, "spot": spot,
                    "kubernetes": pods,
                }
            )  # fmt: skip
            made = settings.model_copy(
                update={
                    "root": str(demo.root), "sources": sources,
                    # A real node's state is not the demo's to overwrite.
                    "state_directory": None,
                    # Nor are its jobs, and who is on call, to hear of what is made up.
                    "notify": settings.notify.model_copy(
                        update={"file": False, "alertmanagers": (), "webhooks": ()}
                    ),
                    "inference_sla": settings.inference_sla if settings.objectives else promised,
                    "cost": settings.cost if settings.cost.gpu_hour else _PRICED,
                }
            )  # fmt: skip
            estate.story.tell = demo.story
            real = [one for one in plan(settings, estate) if one.name == "host"]
            there = replace(estate, gpus=True, boot=demo.boot)
            fake = [one for one in plan(made, there) if one.name != "host"]
            driver = Plan(
                "demo", c.EXPORTER, Schedule(1.0, 2.0), "demo",
                lambda: _DemoDriver(demo, estate, _turner(demo, narrate)),
            )  # fmt: skip
            return [*real, *(_on_fake_driver(one, made, demo, estate) for one in fake), driver]

        try:
            yield plans
        finally:
            demo.close()
