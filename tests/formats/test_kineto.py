"""Traces as they come: cut off, too long, too deep, not JSON, and as PyTorch writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.formats import kineto
from exporter.formats.kineto import Event, Trace, read_event
from exporter.samples import Malformed

KERNEL = {
    "ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10.5, "dur": 2,
    "args": {"device": 1, "correlation": 33},
}  # fmt: skip
RECORDED = Path(__file__).parent.parent / "data" / "kineto" / "cpu-rank0-excerpt.pt.trace.json"


def events(text: str | bytes) -> list[Event]:
    data = text.encode() if isinstance(text, str) else text
    return list(Trace(data[at : at + 100] for at in range(0, len(data), 100)).events())


def test_an_event_is_read_with_its_times_in_nanoseconds() -> None:
    """Microseconds with three decimals lose nothing, even far from the base."""
    assert events(json.dumps({"traceEvents": [KERNEL]})) == [
        Event("kernel", "gemm", 10_500, 12_500, device=1, link=33)
    ]
    far = KERNEL | {"ts": 5115739636469.489}
    assert events(json.dumps([far]))[0].start == 5115739636469489


def test_a_recorded_trace_of_a_cpu_holds_steps_and_no_kernels() -> None:
    """As PyTorch 2.13 wrote it."""
    trace = Trace(iter([RECORDED.read_bytes()]))
    found = list(trace.events())
    assert {event.kind for event in found} == {"step"}
    assert (trace.rank, trace.world_size, trace.base) == (0, 2, 1790857026000000000)
    assert trace.number == len(json.loads(RECORDED.read_bytes())["traceEvents"])


def test_where_the_rest_of_the_document_stands_makes_no_difference() -> None:
    """Tools that write traces anew may put the ranks behind the events."""
    trace = Trace(
        iter([json.dumps({"traceEvents": [KERNEL], "distributedInfo": {"rank": 3}}).encode()])
    )
    assert len(list(trace.events())) == 1
    assert trace.rank == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a trace"),
        ("hello", "not a trace"),
        ("12", "not a trace"),
        ("{}", "without events"),
        ('{"a": 1}', "no list of events"),
        ('{"a": 1', "ends in the middle"),
        ('{"traceEvents": [', "ends in the middle"),
        ('{"traceEvents": [{"ph": "X"}', "ends in the middle"),
        ('{"traceEvents": [{"ph": "X"', "ends in the middle"),
        ('{"traceEvents": [1]}', "an event is wanted"),
        ('{"traceEvents": []} x', "follows after the end"),
        ('{"traceEvents": [], "traceEvents": []}', "one list of events"),
        ('{"traceEvents": 3}', "one list of events"),
        ('{"traceEvents": [{"ph": "X"} {"ph": "X"}]}', "',' or ']' is wanted"),
        ("{1: 2}", "a key is wanted"),
        ("[" + "[" * 100_000, "no JSON"),
        ('{"a": ' + '{"a": ' * 100_000, "no JSON"),
        ('{"a": 1' + "0" * 5000 + ', "traceEvents": []}', "no JSON"),
        (b'{"traceEvents": [\xff\xfe]}', "no JSON"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_said_to_be_none(text: str | bytes, said: str) -> None:
    """A half is no trace either: figures of a part would be wrong."""
    with pytest.raises(Malformed, match=said):
        events(text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ts": None}, "has no time"), ({"ts": "soon"}, "has no time"), ({"dur": -1}, "lasts"),
        ({"ts": 1e300}, "is at"), ({"dur": float("nan")}, "is at"), ({"ts": True}, "has no time"),
    ],
)  # fmt: skip
def test_an_event_at_no_time_is_an_error(change: dict[str, object], said: str) -> None:
    """It cannot be left out: the union would be another."""
    with pytest.raises(Malformed, match=said):
        read_event(KERNEL | change)


@pytest.mark.parametrize(
    "change",
    [{"cat": "cpu_op"}, {"cat": "kernel2"}, {"name": 3}, {"ph": "i"}, {"cat": None}],
)
def test_what_is_of_no_interest_is_left_out(change: dict[str, object]) -> None:
    """Operators, marks, names that are none."""
    assert read_event(KERNEL | change) is None


def test_arguments_that_are_none_are_unknown() -> None:
    """A device or a link of another type is 0: unknown, not an error."""
    for args in (None, [], "x", {"device": -1, "correlation": "x"}, {"device": 1e99}):
        event = read_event(KERNEL | {"args": args})
        assert event is not None
        assert (event.device, event.link) == (0, 0)


def test_a_list_as_category_is_no_category() -> None:
    """What cannot be looked up is not looked up."""
    assert read_event(KERNEL | {"cat": ["kernel"]}) is None


def test_a_long_text_is_refused_before_it_fills_the_memory() -> None:
    """An event without an end: at most a few times its greatest length is kept."""
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        yield b'{"traceEvents": [{"ph": "X", "name": "'
        while True:
            taken += 1 << 20
            yield b"x" * (1 << 20)

    with pytest.raises(Malformed, match=f"more than {kineto.LONGEST_EVENT}"):
        list(Trace(endless()).events())
    assert taken < 4 * kineto.LONGEST_EVENT


def test_names_with_brackets_and_quotes_do_not_end_an_event() -> None:
    """Texts are free: what looks like the end of an event may stand in one."""
    odd = {"ph": "X", "cat": "cpu_op", "name": 'a "}\n  },\n  {" b', "ts": 1, "dur": 1}
    text = json.dumps({"traceEvents": [odd, KERNEL, odd, KERNEL]}, indent=2)
    assert len(events(text)) == 2
