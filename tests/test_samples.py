"""What a well-formed sample is, and what the gate does with the others."""

from __future__ import annotations

import math

import pytest

from exporter import catalogue as c
from exporter.samples import (
    EMPTY_SHAPE,
    Batch,
    Gate,
    Histogram,
    Malformed,
    Sample,
    SourceError,
    in_columns,
    reason_of,
)

GOOD = c.HOST_LOAD_AVERAGE(0.5, "1m")


def test_the_same_series_again_keep_their_shape_object() -> None:
    """Consumers may compare shapes by identity while a source yields the same series."""
    gate = Gate(10)

    first, _ = gate.admit([GOOD, c.HOST_CPUS(4)])
    second, _ = gate.admit([c.HOST_LOAD_AVERAGE(0.7, "1m"), c.HOST_CPUS(8)])
    third, _ = gate.admit([GOOD])

    assert first.shape is second.shape
    assert second.values == (0.7, 8)
    assert third.shape is not first.shape


@pytest.mark.parametrize(
    ("sample", "reason"),
    [
        (c.HOST_LOAD_AVERAGE(0.5), "labels"),
        (c.HOST_LOAD_AVERAGE(0.5, "1m", "x"), "labels"),
        (Sample(c.HOST_LOAD_AVERAGE, (None,), 1.0), "labels"),  # type: ignore[arg-type]
        (Sample(c.HOST_CPUS, (), "4"), "value"),  # type: ignore[arg-type]
        (c.HOST_CPUS(True), "value"),
        (c.HOST_CPUS(10**400), "value"),
        (c.HOST_CPU_SECONDS_TOTAL(-1, "user"), "value"),
        (c.HOST_CPU_SECONDS_TOTAL(math.nan, "user"), "value"),
        (c.HOST_CPU_SECONDS_TOTAL(math.inf, "user"), "value"),
        (c.LLM_TTFT_SECONDS(1.0, "m", "", "e", "s"), "value"),
        (c.HOST_CPUS(Histogram((1.0,), (1, 2), 1.0)), "value"),
        (c.LLM_TTFT_SECONDS(Histogram((1.0, 0.5), (1, 1, 2), 1.0), "m", "", "e", "s"), "value"),
        (c.LLM_TTFT_SECONDS(Histogram((1.0,), (3, 2), 1.0), "m", "", "e", "s"), "value"),
        (c.LLM_TTFT_SECONDS(Histogram((1.0,), (3,), 1.0), "m", "", "e", "s"), "value"),
        (c.LLM_TTFT_SECONDS(Histogram((), (), 1.0), "m", "", "e", "s"), "value"),
    ],
)  # fmt: skip
def test_one_bad_sample_never_costs_the_others(sample: Sample, reason: str) -> None:
    """It is dropped and counted, on the first read and when a known series goes bad."""
    gate = Gate(100)
    batch, drops = gate.admit([GOOD, sample])
    assert list(batch) == [GOOD]
    assert drops == {reason: 1}

    again, drops = gate.admit([GOOD, sample])

    assert list(again) == [GOOD]
    assert drops == {reason: 1}


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, 10**400, "4", True, None])
def test_a_known_series_that_goes_bad_is_dropped(bad: object) -> None:
    """The cheap look at a known shape misses nothing."""
    gate = Gate(100)
    gate.admit([GOOD, c.HOST_CPU_SECONDS_TOTAL(5, "user")])

    batch, drops = gate.admit([GOOD, Sample(c.HOST_CPU_SECONDS_TOTAL, ("user",), bad)])  # type: ignore[arg-type]

    assert list(batch) == [GOOD]
    assert drops == {"value": 1}


def test_samples_in_columns_are_let_through_as_they_are() -> None:
    """A batch is looked at like samples; a good one stays the same object, with its own shape."""
    gate = Gate(100)
    first = in_columns([GOOD, c.HOST_CPU_SECONDS_TOTAL(5, "user")], EMPTY_SHAPE)
    second = in_columns([GOOD, c.HOST_CPU_SECONDS_TOTAL(6, "user")], first.shape)
    assert second.shape is first.shape

    assert gate.admit(first) == (first, {})
    assert gate.admit(second)[0] is second
    assert gate.admit(second)[0] is second


@pytest.mark.parametrize("bad", [-1, math.nan, math.inf, 10**400, "4", True, None])
def test_columns_with_a_bad_value_lose_it_alone(bad: object) -> None:
    """On the first read and on a later one; afterwards the whole shape is let through again."""
    gate = Gate(100)
    good = in_columns([GOOD, c.HOST_CPU_SECONDS_TOTAL(5, "user")], EMPTY_SHAPE)
    poor = Batch(good.shape, (0.5, bad))  # type: ignore[arg-type]
    short = Batch(good.shape, (0.5,))

    for batch in (poor, good, poor, good):
        kept, drops = gate.admit(batch)
        expected = ([GOOD], {"value": 1}) if batch is poor else (list(good), {})
        assert (list(kept), drops) == expected
    assert len(gate.admit(short)[0].shape) == 1, "shape and values are of one length"


def test_a_gauge_may_be_infinite_or_not_a_number() -> None:
    """Only counters must be finite."""
    gate = Gate(100)
    for value in (math.nan, math.inf, -math.inf, 1.0):
        batch, drops = gate.admit([c.HOST_LOAD_AVERAGE(value, "1m")])
        assert len(batch) == 1
        assert drops == {}


def test_of_twins_the_first_wins() -> None:
    """The same series twice would fail a whole scrape."""
    batch, drops = Gate(100).admit([GOOD, c.HOST_LOAD_AVERAGE(0.9, "1m")])

    assert list(batch) == [GOOD]
    assert drops == {"duplicate": 1}


def test_the_cap_counts_the_lines_of_a_histogram() -> None:
    """A histogram of two bounds is five series: three buckets, sum, count."""
    histogram = Histogram((0.1, 1.0), (1, 2, 3), 2.5)
    samples = [GOOD, c.LLM_TTFT_SECONDS(histogram, "m", "", "e", "s"), c.HOST_CPUS(4)]

    kept, drops = Gate(6).admit(samples)
    fewer, more = Gate(5).admit(samples)

    assert len(kept) == 2
    assert drops == {"cap": 1}
    assert [sample.metric for sample in fewer] == [c.HOST_LOAD_AVERAGE, c.HOST_CPUS]
    assert more == {"cap": 1}


def test_each_error_has_one_reason() -> None:
    """The closed set that metrics, alerts and the status page share."""
    reasons = {
        TimeoutError(): "timeout",
        PermissionError(): "denied",
        FileNotFoundError(): "unavailable",
        ConnectionRefusedError(): "unavailable",
        ModuleNotFoundError(): "unavailable",
        Malformed(): "malformed",
        UnicodeDecodeError("utf-8", b"", 0, 1, ""): "malformed",
        OSError(): "io",
        KeyError(): "bug",
        SourceError("denied", ""): "denied",
    }

    assert {error: reason_of(error) for error in reasons} == reasons
