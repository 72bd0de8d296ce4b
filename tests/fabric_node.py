"""A node whose `/sys`, drivers, jobs and dumps are written by a test, second by second.

What reads them are the real sources as the daemon plans them, what looks at the readings are its
real derivations; only the clock is moved by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from exporter import catalogue as c
from exporter.config import parse
from exporter.formats import pushes
from exporter.plans import Estate, plan
from exporter.runner import Runner, Schedule
from exporter.samples import Metric, Sample, Source
from exporter.sources.ethtool import EthtoolSource
from tests.ethtool_lab import Card, Drivers, show
from tests.fakes import FakeClock

RUN = "llama"
STEP = 5
"""Seconds of a step of the job."""
_FACTS: dict[str, Any] = {
    "kind": "facts", "run": RUN, "world_size": 8, "framework": "test",
    "local_ranks": {str(rank): rank for rank in range(8)},
}  # fmt: skip
PORT = {
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "rate": "400 Gb/sec (4X NDR)",
    "link_layer": "InfiniBand",
    "counters/port_rcv_data": 0,
    "counters/port_xmit_data": 0,
    "counters/port_rcv_packets": 0,
    "counters/port_xmit_packets": 0,
    "counters/symbol_error": 0,
    "counters/link_error_recovery": 0,
    "counters/link_downed": 0,
    "counters/port_rcv_errors": 0,
    "counters/local_link_integrity_errors": 0,
    "counters/port_xmit_wait": 0,
    "hw_counters/local_ack_timeout_err": 0,
    "hw_counters/packet_seq_err": 0,
}
"""A port that is well, as the kernel shows it."""


class Gpus:
    """The GPUs of the node by their addresses: what the driver's library would tell of each."""

    name, group = "nvml", c.GPU

    def __init__(self) -> None:
        self.addresses: list[str] = []

    def read(self) -> Iterator[Sample]:
        for at, address in enumerate(self.addresses):
            key = (str(at), f"GPU-{at}")
            said = {"gpu": key[0], "uuid": key[1], "name": "NVIDIA H100 80GB HBM3",
                    "pci_bus_id": address}  # fmt: skip
            yield c.GPU_INFO(1, *(said.get(label, "") for label in c.GPU_INFO.labels))
            yield c.GPU_UTILIZATION_RATIO(0.9, *key)

    def close(self) -> None:
        pass


class Node:
    """The node. `sources` is text for that section of the configuration; `wanted` who is read.

    `facts` are what its job tells of itself beside the usual.

    A training job of eight ranks steps each five seconds and tells it as a push; `work` is the
    seconds of each rank's own work, the rest it waits for the slowest.
    """

    def __init__(
        self, root: Path, wanted: tuple[str, ...], text: str = "",
        *, facts: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.root = root
        self.gpus = Gpus()
        self._told = facts
        self.clock = FakeClock()
        self.estate = Estate(self.clock, gpus=True)
        self.drivers = Drivers({})
        self.work = [3.0] * 8
        self._ending = ExitStack()
        self._runners: list[tuple[Runner, float]] = []
        self._second = 0
        settings = parse(f"root: {root}\n{text}", "test")
        plans = {one.name: one for one in plan(settings, self.estate)}
        self._enroll(self.gpus, Schedule(1.0, 2.0))
        for name in sorted(wanted, key=lambda name: name.startswith("derive")):
            one = plans[name]
            source = EthtoolSource(root, self.drivers) if name == "ethtool" else one.make()
            self._ending.enter_context(closing(source))
            self._enroll(source, one.schedule)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def port(self, device: str, **files: object) -> None:
        """Write files of an RDMA port; underscores of a name stand for themselves."""
        base = self.root / "sys/class/infiniband" / device / "ports/1"
        for name, value in {**({} if base.exists() else PORT), **files}.items():
            path = base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")

    def card(self, interface: str, **statistics: int) -> None:
        """Have an interface's driver answer with these statistics."""
        if interface not in self.drivers.cards:
            show(self.root, interface)
        self.drivers.cards[interface] = Card(dict(statistics))

    def pass_time(self, seconds: int, act: Callable[[int], None] = lambda second: None) -> None:
        """Let time pass; `act` is called before each second with the number of those passed."""
        for at in range(seconds):
            act(at)
            if self._second % STEP == 0:
                self._step()
            self._second += 1
            for runner, interval in self._runners:
                if self._second % max(1, round(interval)) == 0:
                    runner.step()
            self.clock.advance(1)

    def told(self, metric: Metric, *labels: str) -> float | None:
        """Return what the board says of a series; None if it says nothing."""
        found = [
            one.value
            for one in self.estate.board.view(self.clock.now).samples(metric)
            if one.labels == labels
        ]
        assert len(found) <= 1
        return found[0] if found else None  # type: ignore[return-value]

    def samples(self, metric: Metric) -> list[Sample]:
        """Return all series of a family."""
        return self.estate.board.view(self.clock.now).samples(metric)

    def faults(self) -> list[tuple[str, object]]:
        """Return what went wrong in any source."""
        view = self.estate.board.view(self.clock.now)
        return [(one.name, fault) for one in view.sources for fault in one.faults]

    def _enroll(self, source: Source, pace: Schedule) -> None:
        board = self.estate.board
        slot = board.enroll(source.name, source.group, pace.deadline, pace.max_age, self.clock.now)
        self._runners.append((Runner(source, pace, slot, self.clock), pace.interval))

    def _step(self) -> None:
        """Let the job's ranks push a step."""
        number = self._second // STEP + 1
        longest = max(self.work) + 0.5
        records: list[dict[str, Any]] = [{**_FACTS, **self._told}] if number == 1 else []
        for rank, work in enumerate(self.work):
            phases = {
                "forward": work / 3,
                "backward": work * 2 / 3,
                "communication": longest - work,
            }
            records.append(
                {
                    "run": RUN, "step": number, "rank": rank, "scope": "rank", "attempt": "a",
                    "seconds": longest, "tokens": 8192, "phases": phases,
                }
            )  # fmt: skip
        found = pushes.read(json.dumps(records).encode(), 1000)
        assert not found.refused
        self.estate.reception.take(
            self.estate.training, "push", found.records, found.refused, self.clock.now
        )
