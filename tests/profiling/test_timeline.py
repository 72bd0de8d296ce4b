"""Traces with known truth: what is told of them is within one percent, on all quantities."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.formats.kineto import Trace
from exporter.profiling.reading import fill
from exporter.profiling.timeline import Crowded, Gpu, Summary, Timeline
from tests.trace_truth import (
    ADD,
    COPY,
    FLASH,
    GEMM,
    NCCL,
    NORM,
    ODD,
    Interval,
    Truth,
    events_of,
    scenario,
    text_of,
    truth_of,
)


def summary_of(text: str, piece: int = 1 << 16) -> Summary:
    data = text.encode()
    timeline = Timeline()
    pieces = (data[at : at + piece] for at in range(0, len(data), piece))
    fill(timeline, Trace(pieces).events())
    summary = timeline.summary()
    assert summary is not None
    return summary


def compare(summary: Summary, truth: Truth) -> None:
    told = {
        "span": summary.seconds, "matmul": summary.matmul, "memory_bound": summary.memory_bound,
        "exposed": summary.exposed, "copies": summary.copies, "idle": summary.idle,
        "communication": summary.communication, "computing": summary.computing,
        "starved": summary.starved,
    }  # fmt: skip
    wanted = {name: getattr(truth, name) / 1e6 for name in told}
    assert told == pytest.approx(wanted, rel=0.001)
    assert summary.kernels == truth.kernels
    assert summary.overlap == pytest.approx(1 - truth.exposed / truth.communication, rel=0.001)
    classes = {name: (one.number, one.seconds) for name, one in summary.classes.items()}
    for name, (number, micros) in truth.classes.items():
        assert classes[name] == (number, pytest.approx(micros / 1e6))
    parts = summary.matmul + summary.memory_bound + summary.exposed + summary.copies + summary.idle
    assert parts == pytest.approx(summary.seconds)


@pytest.mark.parametrize("seed", range(12))
def test_the_time_is_split_as_it_was_spent(seed: int) -> None:
    """Kernels, copies and communication on five streams, nested, overlapping, not in order."""
    found = scenario(seed)
    compare(summary_of(text_of(events_of(found, seed=seed, cpu=50))), truth_of(found))


def test_idle_time_at_the_edges_of_the_steps_counts() -> None:
    """A step begins before its first kernel, and ends after its last: the span holds that."""
    found = scenario(3)
    steps = [(1, 20_000), (20_000, 55_000)]
    text = text_of(events_of(found, steps))
    compare(summary_of(text), truth_of(found, (1, 55_000)))


ANY = st.builds(
    lambda name, start, length, ahead: Interval(name, start, start + length, 7, start - ahead),
    st.sampled_from((GEMM, FLASH, NORM, ADD, ODD, NCCL, COPY)),
    st.integers(50, 300), st.integers(1, 60), st.integers(0, 40),
)  # fmt: skip


@given(st.lists(ANY, min_size=1, max_size=30))
def test_any_intervals_give_the_truth(found: list[Interval]) -> None:
    """Equal ones, touching ones, all at once."""
    truth = truth_of(found)
    if not truth.kernels:
        return
    summary = summary_of(json.dumps(events_of(found)))
    names = ("matmul", "memory_bound", "exposed", "copies", "idle", "communication", "starved")
    told = {name: round(getattr(summary, name) * 1e6, 3) for name in names}
    assert told == {name: getattr(truth, name) for name in names}


def test_times_far_from_their_base_lose_nothing() -> None:
    """Months after the base, with three decimals: as PyTorch writes them."""
    found = scenario(2)
    text = text_of(events_of(found))
    for event in (document := json.loads(text))["traceEvents"]:
        event["ts"] = round(event["ts"] + 5115739636469.489, 3)
    assert summary_of(json.dumps(document)) == dataclasses.replace(
        summary_of(text),
        begin=5115739636469489 + min(one.start for one in found) * 1000,
        end=5115739636469489 + max(one.end for one in found) * 1000,
    )


@pytest.mark.parametrize("piece", [1, 7, 100, 4096])
def test_where_pieces_end_makes_no_difference(piece: int) -> None:
    """Texts cut anywhere give the same figures."""
    text = text_of(events_of(scenario(5, 4000, 2), cpu=20))
    assert summary_of(text, piece) == summary_of(text)


def test_a_trace_that_was_written_anew_is_read_as_well() -> None:
    """Compact JSON, keys in another order, events as a bare list: the same figures."""
    text = text_of(events_of(scenario(6), cpu=20))
    document = json.loads(text)
    wanted = summary_of(text)
    assert summary_of(json.dumps(document)) == wanted
    assert summary_of(json.dumps(document, indent=2, sort_keys=True)) == wanted
    assert summary_of(json.dumps(document["traceEvents"])) == wanted


def test_more_than_there_is_room_for_gives_no_figures() -> None:
    """A part of a timeline would be wrong: the limit is an error."""
    timeline = Timeline(room=100)
    for at in range(100):
        timeline.kernel(Gpu(0, 0), at * 10, at * 10 + 5, "k", at + 1)
    with pytest.raises(Crowded, match="more than 100 kernels"):
        timeline.kernel(Gpu(0, 0), 5000, 5001, "k", 0)


def test_intervals_beyond_one_sorted_run_are_merged() -> None:
    """150000 kernels told backwards, each 6 us in 10: 60 percent busy."""
    timeline = Timeline()
    for at in reversed(range(150_000)):
        timeline.kernel(Gpu(0, 0), at * 10_000, at * 10_000 + 6_000, "gemm", 0)
    summary = timeline.summary()
    assert summary is not None
    assert summary.matmul == pytest.approx(0.9)
    assert summary.idle == pytest.approx(149_999 * 4e-6)
    assert summary.gaps == 149_999
    assert summary.starved is None


def test_two_gpus_in_one_trace_are_told_as_their_mean() -> None:
    """One GPU is busy all the time, the other half of it; kernels are of both together."""
    timeline = Timeline()
    timeline.kernel(Gpu(0, 0), 0, 1000, "gemm", 0)
    timeline.kernel(Gpu(0, 1), 0, 500, "gemm", 0)
    summary = timeline.summary()
    assert summary is not None
    assert (summary.matmul, summary.idle) == pytest.approx((0.75e-6, 0.25e-6))
    assert (summary.devices, summary.kernels) == (2, 2)


def test_without_kernels_there_is_no_summary() -> None:
    """A trace of a CPU alone has steps, and no GPU."""
    timeline = Timeline()
    timeline.cover(0, 1000)
    assert timeline.summary() is None
