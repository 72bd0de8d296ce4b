"""Counters made of rates: jitter, gaps, clocks that jump, and restarts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from exporter.dcgm.integrals import LONGEST_GAP, Integrals

T0 = 1_790_000_000_000_000


def test_the_first_rate_only_sets_the_beginning() -> None:
    """Nothing is counted until there is a time between two measurements."""
    assert Integrals().add("a", 0.5, T0) == 0


def test_jitter_does_not_change_the_total() -> None:
    """Measurements 0.7 to 1.3 s apart add up to the rate times the whole time."""
    integrals = Integrals()
    times = [0.0, 1.3, 2.0, 2.7, 4.0]
    totals = [integrals.add("a", 0.5, T0 + round(t * 1e6)) for t in times]
    assert totals[-1] == pytest.approx(0.5 * 4.0)


def test_each_rate_counts_for_the_time_before_it() -> None:
    """1 s at a quarter and 2 s at all are 2.25 s."""
    integrals = Integrals()
    integrals.add("a", 1.0, T0)
    integrals.add("a", 0.25, T0 + 1_000_000)
    assert integrals.add("a", 1.0, T0 + 3_000_000) == 2.25


def test_the_same_measurement_counts_once() -> None:
    """A value that is read again before DCGM has measured again adds nothing."""
    integrals = Integrals()
    integrals.add("a", 1.0, T0)
    integrals.add("a", 1.0, T0 + 1_000_000)
    assert integrals.add("a", 1.0, T0 + 1_000_000) == 1.0


def test_what_happened_in_a_long_gap_is_not_counted() -> None:
    """After a gap the counter goes on from where it was; a gap of 10 s is still counted."""
    integrals = Integrals()
    integrals.add("a", 1.0, T0)
    gap = round(LONGEST_GAP * 1e6)
    assert integrals.add("a", 1.0, T0 + gap) == 10.0
    assert integrals.add("a", 1.0, T0 + 2 * gap + 1) == 10.0
    assert integrals.add("a", 1.0, T0 + 2 * gap + 1_000_001) == 11.0


def test_a_clock_that_is_put_back_lowers_no_counter() -> None:
    """The host's clock jumped back an hour: counting begins anew from there."""
    integrals = Integrals()
    integrals.add("a", 1.0, T0)
    integrals.add("a", 1.0, T0 + 2_000_000)
    assert integrals.add("a", 1.0, T0 - 3_600_000_000) == 2.0
    assert integrals.add("a", 1.0, T0 - 3_599_000_000) == 3.0


def test_counters_go_on_in_a_successor() -> None:
    """What memory() returns survives JSON, and the successor counts on without a seam."""
    integrals = Integrals()
    integrals.add("a", 1.0, T0)
    integrals.add("a", 1.0, T0 + 2_000_000)
    successor = Integrals(json.loads(json.dumps(integrals.memory())))
    assert successor.add("a", 0.5, T0 + 4_000_000) == 3.0


@pytest.mark.parametrize(
    "memory",
    [None, 3, "a", [], {"a": 1}, {"a": [1]}, {"a": ["x", 2]}, {"a": [-1.0, T0]},
     {"a": [float("nan"), T0]}, {"a": [float("inf"), T0]}],
)  # fmt: skip
def test_a_memory_that_makes_no_sense_is_none(memory: Any) -> None:
    """A successor of another release, or a damaged memory: counters start at zero."""
    integrals = Integrals(memory)
    integrals.add("a", 1.0, T0)
    assert integrals.add("a", 1.0, T0 + 1_000_000) == 1.0
