"""Two readers of one thing: what the better one gives is never told twice."""

from __future__ import annotations

from collections.abc import Iterable

from exporter import catalogue as c
from exporter.board import Board
from exporter.runner import Runner, Schedule
from exporter.samples import Fault, Item, Sample
from exporter.sources.fallback import Fallback
from tests.fakes import FakeClock, FakeSource

SCHEDULE = Schedule(1.0, 1.0)


class Node:
    """A board with a better source on it, and a fallback beside it."""

    def __init__(self, better: Iterable[Sample], other: Iterable[Item]) -> None:
        self.clock, self.board = FakeClock(), Board()
        self.better = FakeSource("nvml", "gpu", list(better))
        now = self.clock.monotonic()
        slot = self.board.enroll("nvml", "gpu", 1.0, SCHEDULE.max_age, now)
        self.runner = Runner(self.better, SCHEDULE, slot, self.clock)
        other_source = FakeSource("dcgm", "gpu", list(other))  # type: ignore[arg-type]
        self.other = Fallback(other_source, "nvml", self.board.view, self.clock)

    def read(self, times: int = 4) -> list[Item]:
        """Let the better source be read so often, then the other one."""
        for _ in range(times):
            self.runner.step()
        return list(self.other.read())


def test_what_the_better_source_gives_is_left_out() -> None:
    """The same family of the same GPU is left to NVML; another GPU and another family are not."""
    node = Node(
        [c.GPU_SM_ACTIVE_RATIO(0.5, "0", "GPU-a")],
        [
            c.GPU_SM_ACTIVE_RATIO(0.4, "0", "GPU-a"),
            c.GPU_SM_ACTIVE_RATIO(0.4, "1", "GPU-b"),
            c.GPU_DRAM_ACTIVE_RATIO(0.4, "0", "GPU-a"),
        ],
    )
    assert node.read() == [
        c.GPU_SM_ACTIVE_RATIO(0.4, "1", "GPU-b"),
        c.GPU_DRAM_ACTIVE_RATIO(0.4, "0", "GPU-a"),
    ]


def test_another_index_for_the_same_board_is_no_other_series() -> None:
    """DCGM and NVML may count GPUs differently: the UUID tells which board is meant."""
    node = Node(
        [c.GPU_SM_ACTIVE_RATIO(0.5, "0", "GPU-a")], [c.GPU_SM_ACTIVE_RATIO(0.4, "3", "GPU-a")]
    )
    assert node.read() == []


def test_a_series_once_given_is_left_to_the_better_source_for_good() -> None:
    """NVML fails later: its counter is a gap, not suddenly DCGM's count."""
    total = c.GPU_SM_ACTIVE_SECONDS_TOTAL
    node = Node([total(500.0, "0", "GPU-a")], [total(7.0, "0", "GPU-a")])
    assert node.read() == []
    node.better.items = []
    node.clock.advance(60)
    assert node.read() == []


def test_nothing_is_told_before_the_better_source_has_settled() -> None:
    """NVML's first reads lack what needs a window; DCGM must not fill in for a second."""
    node = Node([], [c.GPU_SM_ACTIVE_RATIO(0.4, "0", "GPU-a"), Fault("gpu1", "io", "x")])
    assert node.read(times=1) == [Fault("gpu1", "io", "x")]
    assert node.read(times=3) == [
        c.GPU_SM_ACTIVE_RATIO(0.4, "0", "GPU-a"),
        Fault("gpu1", "io", "x"),
    ]


def test_without_the_better_source_everything_is_told() -> None:
    """NVML is switched off: DCGM is all there is."""
    clock, board = FakeClock(), Board()
    sample = c.GPU_SM_ACTIVE_RATIO(0.4, "0", "GPU-a")
    source = Fallback(FakeSource("dcgm", "gpu", [sample]), "nvml", board.view, clock)
    assert list(source.read()) == [sample]


def test_release_is_handed_on() -> None:
    """A source with a driver behind a fallback lets go of it; one without has nothing to let go."""

    class Driver(FakeSource):
        def release(self, seconds: float) -> bool:
            return seconds < 10

    def behind(source: FakeSource) -> Fallback:
        return Fallback(source, "nvml", Board().view, FakeClock())

    assert behind(FakeSource()).release(5)
    assert behind(Driver()).release(5)
    assert not behind(Driver()).release(50)
