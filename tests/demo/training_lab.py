"""The demo's training job as the daemon sees it, in seconds of a test's clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import NamedTuple

from exporter import catalogue as c
from exporter.config import parse
from exporter.plans import Estate
from exporter.plans.demo import demo_plans
from exporter.runner import Runner
from exporter.samples import Histogram, Metric, View
from tests.fakes import FakeClock

ELSEWHERE = (
    "inference:",
    "probe:",
    "placement",
    "derive:serving",
    "discovery",
    "host",
    "network",
    "ethtool",
)
"""Sources that have nothing to do with training, and cost time."""


class Seen(NamedTuple):
    """What was on the board after so many seconds."""

    at: float
    view: View

    def values(self, metric: Metric, *labels: str, **wanted: str) -> dict[tuple[str, ...], float]:
        """Return the values of a gauge by these labels, of series with those that are wanted."""
        found: dict[tuple[str, ...], float] = {}
        for sample in self.view.samples(metric):
            assert not isinstance(sample.value, Histogram)
            named = dict(zip(metric.labels, sample.labels, strict=True))
            if wanted.items() <= named.items():
                key = tuple(named[label] for label in labels)
                assert key not in found, f"{metric.name} {key} twice"
                found[key] = sample.value
        return found

    def value(self, metric: Metric, **wanted: str) -> float | None:
        """Return the one value of a gauge with these labels; None if it is not there."""
        found = self.values(metric, *metric.labels, **wanted)
        assert len(found) <= 1, f"{metric.name}: {sorted(found)}"
        return next(iter(found.values()), None)

    def losses(self) -> dict[str, float]:
        """Return the share of the peak that is lost to each cause, whatever the evidence."""
        found: dict[str, float] = {}
        for (cause, _), share in self.values(c.TRAIN_MFU_LOSS_RATIO, "cause", "evidence").items():
            found[cause] = found.get(cause, 0.0) + share
        return found


def watch(
    scenario: str,
    seconds: int,
    text: str = "",
    *,
    every: int = 1,
    wanted: Callable[[str], bool] = lambda name: not name.startswith(ELSEWHERE),
) -> Iterator[Seen]:
    """Run the demo, and yield what is seen each so many seconds."""
    clock = FakeClock(wall=time.time())  # as the demo's own: its files are of now
    estate = Estate(clock)
    with demo_plans(scenario) as plans, ExitStack() as ending:
        runners: list[tuple[Runner, float]] = []
        # The model moves first; whoever reads it comes after, and then what derives from that.
        found = [one for one in plans(parse(text, "test"), estate) if wanted(one.name)]
        for one in sorted(found, key=lambda one: _order(one.name)):
            source, pace = one.make(), one.schedule
            ending.enter_context(closing(source))
            slot = estate.board.enroll(one.name, one.group, pace.deadline, pace.max_age, clock.now)
            runners.append((Runner(source, pace, slot, clock), pace.interval))
        for second in range(1, seconds + 1):
            for runner, interval in runners:
                if second % max(1, round(interval)) == 0:
                    runner.step()
            if second % every == 0:
                yield Seen(second, estate.board.view(clock.now))
            clock.advance(1)


def last(seen: Sequence[Seen] | Iterator[Seen]) -> Seen:
    """Return what was seen last."""
    *_, end = seen
    return end


def _order(name: str) -> int:
    return 0 if name == "demo" else 2 if name.startswith("derive") else 1
