"""A node whose GPUs work as a known function of time, and a daemon that counts their dollars.

All of the daemon is real but its clock and its driver: the runner, the board, the derivation as a
source, the state file. `Scraper` adds up what it sees as Prometheus does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

from exporter import catalogue as c
from exporter.board import Board
from exporter.derive.money.cost import cost
from exporter.derive.money.pricing import Pricing
from exporter.runner import Runner, Schedule
from exporter.samples import Fault, Metric, Sample, Source, SourceError
from exporter.sinks.statefile import StateFile
from exporter.sources.derived import DerivedSource
from tests.fakes import FakeClock

STEP = 20.0
BEAT = Schedule(interval=STEP, deadline=2.0)

Extra = Callable[[float], Iterable[Sample]]


def gpu(number: int) -> tuple[str, str]:
    return str(number), f"GPU-{number}"


def info(number: int, name: str = "NVIDIA H100 80GB HBM3") -> Sample:
    labels = {"gpu": str(number), "uuid": f"GPU-{number}", "name": name}
    return c.GPU_INFO(1, *(labels.get(label, "") for label in c.GPU_INFO.labels))


class Driver:
    """GPUs that are busy for a share of the time: `shares`, by index. They may hang."""

    name = "nvml"
    group = c.GPU

    def __init__(self, clock: FakeClock, shares: dict[int, float]) -> None:
        self.shares = shares
        self.hangs = False
        self.extra: Extra = lambda _: ()
        self._clock = clock
        self._then = clock.now
        self._active = dict.fromkeys(shares, 0.0)
        self._joules = 0.0

    def read(self) -> Iterator[Sample | Fault]:
        passed, self._then = self._clock.now - self._then, self._clock.now
        for number, share in self.shares.items():
            self._active[number] += passed * share
        self._joules += passed * 700.0
        if self.hangs:
            raise SourceError("timeout", "the driver hangs")
        for number, active in self._active.items():
            yield info(number)
            yield c.GPU_SM_ACTIVE_SECONDS_TOTAL(active, *gpu(number))
            yield c.GPU_BUSY_SECONDS_TOTAL(active, *gpu(number))
            yield c.GPU_ENERGY_JOULES_TOTAL(self._joules, *gpu(number))
        yield from self.extra(self._clock.now)

    def close(self) -> None:
        """Hold nothing."""


class Daemon:
    """One life of the daemon; `step` is one round of all."""

    def __init__(
        self,
        clock: FakeClock,
        driver: Driver,
        directory: Path,
        *,
        life: str,
        pricing: Pricing,
        **more: Any,
    ) -> None:
        self.clock = clock
        self.board = Board()
        self.life = life
        self._memories: MutableMapping[str, Any] = {}
        self._more = more
        recalled = threading.Event()
        self._state = self._runner(StateFile(directory, self._memories, recalled, clock))
        self._driver = self._runner(driver)
        self._state.step()
        self._cost = self._derivation(pricing)

    def _runner(self, source: Source) -> Runner:
        slot = self.board.enroll(
            source.name, source.group, BEAT.deadline, BEAT.max_age, self.clock.now
        )
        return Runner(source, BEAT, slot, self.clock)

    def _derivation(self, pricing: Pricing) -> Runner:
        offset = self.clock.time() - self.clock.monotonic()
        one = cost(pricing, lambda now: now + offset, self.life, **self._more)
        return self._runner(
            DerivedSource(
                one, self.board.view, self.clock,
                memories=self._memories, keep_every=60.0, last_round=True,
            )
        )  # fmt: skip

    def step(self) -> None:
        for runner in (self._driver, self._cost, self._state):
            runner.step()

    def reload(self, pricing: Pricing) -> None:
        """Have a successor with other prices go on."""
        self._cost.source.close()
        self._cost = self._derivation(pricing)
        self._cost.step()

    def end(self) -> None:
        """End in order. A daemon that is killed does nothing."""
        self._cost.source.close()
        self._state.source.close()

    def samples(self, metric: Metric) -> list[Sample]:
        return self.board.view(self.clock.now).samples(metric)

    def value(self, metric: Metric, *labels: str) -> float | None:
        found = [s.value for s in self.samples(metric) if s.labels == labels]
        assert all(isinstance(value, int | float) for value in found)
        return found[0] if found else None  # type: ignore[return-value]


class Scraper:
    """Adds up counters as `increase` does: one that falls began again at 0.

    What a series shows first is no increase: nobody knows since when it is.
    """

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._last: dict[tuple[str, ...], float] = {}
        self.increase: dict[tuple[str, ...], float] = {}

    def scrape(self, daemon: Daemon) -> None:
        for _, labels, value in daemon.samples(self._metric):
            assert isinstance(value, int | float)
            last = self._last.get(labels, value)
            more = value - last if value >= last else value
            self.increase[labels] = self.increase.get(labels, 0.0) + more
            self._last[labels] = value

    def of(self, at: int, label: str) -> float:
        """Return the sum over series with a label, by its place."""
        return sum(value for labels, value in self.increase.items() if labels[at] == label)
