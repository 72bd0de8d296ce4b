"""What interruptions of runs cost."""

from __future__ import annotations

import pytest

from exporter import catalogue as c
from exporter.derive.memory import Memory
from exporter.derive.money.interruptions import interruptions
from exporter.samples import (
    EMPTY_SHAPE,
    Health,
    SourceView,
    View,
    in_columns,
)


class Lab:
    def __init__(self) -> None:
        self.derive = interruptions().function
        self.now = 0.0

    def round(
        self, seconds: dict[str, float], sizes: dict[str, float], prices: list[float]
    ) -> dict[str, float]:
        """Return dollars by run."""
        samples = [
            *(c.TRAIN_INTERRUPTION_SECONDS_TOTAL(value, run) for run, value in seconds.items()),
            *(c.TRAIN_WORLD_SIZE(value, run) for run, value in sizes.items()),
            *(c.COST_GPU_HOUR_DOLLARS(price, str(n), f"GPU-{n}") for n, price in enumerate(prices)),
        ]
        self.now += 5
        batch = in_columns(samples, EMPTY_SHAPE)
        view = View((SourceView("s", "g", "up", Health(), batch=batch, age=0.0),), ())
        told = list(self.derive(view, Memory(), self.now))
        assert {one.metric for one in told} <= {c.COST_INTERRUPTION_DOLLARS_TOTAL}
        return {one.labels[0]: one.value for one in told}  # type: ignore[misc]


def test_the_time_until_a_run_went_on_costs_all_its_gpus() -> None:
    """96 s of 1024 GPUs at 2.50 dollars an hour are 68.27 dollars; later prices change nothing."""
    lab = Lab()
    assert lab.round({"a": 0.0}, {"a": 1024}, [2.0, 3.0]) == {"a": 0}
    found = lab.round({"a": 96.0}, {"a": 1024}, [2.0, 3.0])
    assert found == {"a": pytest.approx(68.2667, abs=1e-4)}
    assert lab.round({"a": 96.0}, {"a": 1024}, [100.0]) == found
    twice = lab.round({"a": 132.0}, {"a": 1024}, [1.0])
    assert twice["a"] == pytest.approx(found["a"] + 36 * 1024 / 3600)


def test_what_has_no_price_or_size_is_told_when_it_has() -> None:
    """Not as 0, and nothing of it is lost."""
    lab = Lab()
    assert lab.round({"a": 0.0, "b": 0.0}, {"b": 8}, []) == {}
    assert lab.round({"a": 60.0, "b": 60.0}, {"b": 8}, []) == {}
    assert lab.round({"a": 60.0, "b": 60.0}, {"b": 8}, [3.0]) == {"b": pytest.approx(0.4)}
    assert lab.round({"a": 60.0, "b": 60.0}, {"a": 16, "b": 8}, [3.0])["a"] == pytest.approx(0.8)


def test_a_counter_that_began_anew_costs_what_it_has_counted_since() -> None:
    lab = Lab()
    lab.round({"a": 0.0}, {"a": 8}, [3.6])
    assert lab.round({"a": 100.0}, {"a": 8}, [3.6])["a"] == pytest.approx(0.8)
    assert lab.round({"a": 50.0}, {"a": 8}, [3.6])["a"] == pytest.approx(1.2)


def test_what_was_counted_before_our_time_is_not_ours() -> None:
    lab = Lab()
    assert lab.round({"a": 500.0}, {"a": 8}, [3.6]) == {"a": 0}


def test_a_run_that_has_gone_on_here_before_it_was_looked_at_has_cost_something() -> None:
    """Where its first step follows the start at once, its counter is never seen at 0."""
    lab = Lab()
    lab.round({}, {}, [3.6])
    assert lab.round({"a": 100.0}, {"a": 8}, [3.6])["a"] == pytest.approx(0.8)
    assert lab.round({"a": 100.0}, {"a": 8}, [3.6])["a"] == pytest.approx(0.8)
