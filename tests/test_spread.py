"""Two hundred nodes that start together do not ask a shared service at once."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from exporter.board import Board
from exporter.config import Settings
from exporter.plans import Estate, plan
from exporter.plans.spread import share, shared
from exporter.runner import Runner, Schedule
from exporter.samples import SourceError
from tests.fakes import FakeClock, FakeSource

NODES = [f"gpu-node-{number:03}" for number in range(200)]


class Reads:
    """A source that stops its runner after so many reads, and notes when they were."""

    def __init__(self, node: str, schedule: Schedule, most: int, *, fail: int = 0) -> None:
        self.clock = FakeClock(now=1000.0)
        self.at: list[float] = []
        self._most = most
        self._fail = fail
        source = FakeSource(act=self._read)
        schedule = shared(schedule, source.name, jitter=10.0, node=node)
        slot = Board().enroll(source.name, source.group, 1.0, schedule.max_age, self.clock.now)
        self._runner = Runner(source, schedule, slot, self.clock)
        self._ended = source.closed
        self._runner.start()
        assert self._ended.wait(10)

    def _read(self) -> list[object]:  # type: ignore[override]
        self.at.append(self.clock.now - 1000.0)
        if len(self.at) >= self._most:
            self._runner.stop()
        if len(self.at) <= self._fail:
            raise SourceError("unavailable", "down for all nodes at once")
        return []


def crowd(moments: list[float], width: float) -> int:
    """Return how many of the moments at most fall into one window of such a width."""
    return max(Counter(int(moment / width) for moment in moments).values())


def test_first_reads_are_spread_evenly_over_ten_seconds() -> None:
    """Twenty a second on average, and never a third of the fleet; the same ones each time."""
    first = [Reads(node, Schedule(60.0, 2.0), 1).at[0] for node in NODES]

    assert crowd(first, 1.0) <= 40
    assert min(first) < 1.0
    assert 9.0 < max(first) < 10.0
    assert first[:5] == [Reads(node, Schedule(60.0, 2.0), 1).at[0] for node in NODES[:5]]


def test_later_reads_keep_their_distance_and_do_not_drift() -> None:
    for node in NODES[:20]:
        at = Reads(node, Schedule(5.0, 1.0), 5).at
        assert [b - a for a, b in itertools.pairwise(at[1:])] == pytest.approx([5.0] * 3)
        assert at[0] == pytest.approx(share(node, "fake") * 5.0)


def test_what_fails_for_all_is_tried_again_apart() -> None:
    """A service that comes back must not be run over."""
    again = [Reads(node, Schedule(10.0, 2.0), 3, fail=3).at[2] for node in NODES]

    assert crowd(again, 1.0) <= 40


def test_an_interval_is_the_most_and_nothing_is_nothing() -> None:
    assert shared(Schedule(1.0, 1.0), "spot", jitter=10.0, node="n").first < 1.0
    assert shared(Schedule(60.0, 1.0), "spot", jitter=0.0, node="n") == Schedule(60.0, 1.0)


def test_only_what_asks_a_shared_service_waits() -> None:
    document = {
        "sources": {
            "spot": {"enabled": True, "provider": "aws"},
            "opencost": {"enabled": True},
            "kubernetes": {"enabled": True},
            "inference": {"kubernetes": {"enabled": True, "api_url": "https://10.0.0.1"}},
        },
        "cost": {"enabled": True},
    }
    settings = Settings.model_validate(document)

    plans = plan(settings, Estate(FakeClock(), gpus=True))

    late = {one.name for one in plans if one.schedule.first > 0}
    assert late == {"spot", "opencost", "kubernetes", "pods"}
