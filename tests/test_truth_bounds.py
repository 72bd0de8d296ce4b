"""What judges the real servers is judged here: bounds of the client's truth, and its load."""

from __future__ import annotations

import asyncio
import io
import json
import random
import socket

import pytest

from tests.real.load import Client, Order, Phase, Record, lines, orders
from tests.real.pages import Page, lengths, windows
from tests.real.truth import (
    LATE,
    Cut,
    Gap,
    Members,
    Observation,
    bucket,
    members,
    observations,
    outside,
    quantile,
    within,
)
from tests.servers import chunked, serving


def answer(outcome: str, *arrivals: tuple[float, int], sent: float = 100.0) -> Record:
    made = Record(1, "", "answer", sent, 10, 10, status=200)
    made.arrivals, made.ended = list(arrivals), arrivals[-1][0] if arrivals else sent
    made.outcome = outcome  # type: ignore[assignment]
    return made


def values(records: list[Record], signal: str) -> list[tuple[float, float]]:
    return [(one.low, one.high) for one in observations(records, signal) if not one.doubtful]


def test_a_request_is_observed_as_the_engine_observes_it() -> None:
    """TTFT at the first token, ITL for each gap, E2E at the end; no TPOT of single tokens."""
    whole = answer("finished", (100.5, 1), (101.0, 1), (102.5, 1))
    single = answer("finished", (100.25, 1))
    left = answer("aborted", (100.5, 1), (100.75, 1))
    refused = answer("rejected")
    everything = [whole, single, left, refused]

    assert sorted(values(everything, "ttft")) == [(0.25, 0.25), (0.5, 0.5), (0.5, 0.5)]
    assert sorted(values(everything, "itl")) == [(0.25, 0.25), (0.5, 0.5), (1.5, 1.5)]
    assert values(everything, "tpot") == [(1.0, 1.0)]
    assert sorted(values(everything, "e2e")) == [(0.25, 0.25), (2.5, 2.5)]
    assert sum(one.doubtful for one in observations(everything, "itl")) == 4


def test_tokens_in_one_piece_have_bounds() -> None:
    """Of two tokens that came together only the sum of their gaps is known."""
    record = answer("finished", (100.5, 1), (101.5, 2))
    assert values([record], "itl") == [(0.0, 1.0), (0.0, 1.0)]
    assert values([record], "tpot") == [(0.5, 0.5)]
    early = answer("finished", (100.5, 2), (101.5, 1))
    assert values([early], "tpot") == [(0.5, 0.75)]


def test_only_the_edges_of_a_window_are_doubtful() -> None:
    """What came while the page was read, or just after, may be on either side."""
    seen = [Observation(at, 1.0, 1.0) for at in (9.9, 10.005, 10.1, 15.0, 19.99, 20.005, 20.2)]
    found = members(seen, Cut(10.0, 10.01), Cut(20.0, 20.01))
    assert [one.at for one in found.certain] == [10.1, 15.0, 19.99]
    assert [one.at for one in found.maybe] == [10.005, 20.005]


def test_what_was_counted_just_before_a_kill_is_in_no_window() -> None:
    """Between the last reading and the kill; near either moment it is doubtful."""
    seen = [Observation(at, 1.0, 1.0) for at in (14.0, 15.005, 15.5, 15.999, 30.0)]
    gap = Gap(Cut(15.0, 15.01), 16.0)
    found = members(seen, Cut(10.0, 10.01), Cut(40.0, 40.01), [gap])
    assert [one.at for one in found.certain] == [14.0, 30.0]
    assert [one.at for one in found.maybe] == [15.005]


@pytest.mark.parametrize("seed", range(30))
def test_the_true_quantile_is_within_the_bounds(seed: int) -> None:
    """Whichever doubtful observations were counted."""
    dice = random.Random(seed)
    certain = [
        Observation(1.0, v, v + dice.random() / 10) for v in (dice.random() for _ in "1234567")
    ]
    maybe = [Observation(1.0, v, v) for v in (dice.random() for _ in range(6))]
    taken = dice.sample(maybe, dice.randint(0, 6))
    for q in (0.5, 0.9, 0.95):
        truth = sorted(dice.uniform(one.low, one.high) for one in (*certain, *taken))
        n = len(truth)
        got = quantile(Members(certain, maybe), n, q)
        assert got is not None
        assert got[0] <= truth[-(-n * round(100 * q) // 100) - 1] <= got[1]
        good = sum(value <= 0.5 for value in truth)
        least, most = within(Members(certain, maybe), n, 0.5, 0.0)
        assert least <= good <= most


def test_a_count_that_cannot_be_is_told() -> None:
    """Fewer than are certain, or more than there were."""
    found = Members([Observation(1.0, 1.0, 1.0)] * 3, [Observation(1.0, 2.0, 2.0)])
    assert quantile(found, 2, 0.5) is None
    assert quantile(found, 5, 0.5) is None
    assert quantile(found, 4, 0.5) == (1.0, 1.0)


def test_a_value_outside_of_an_interval_is_found() -> None:
    assert outside((0.30, 0.32), 0.1, 0.25) == pytest.approx(0.05)
    assert outside((0.05, 0.06), 0.1, 0.25) == pytest.approx(0.04)
    assert outside((0.24, 0.32), 0.1, 0.25) == 0.0
    assert bucket((0.1, 0.25), 0.25) == (0.1, 0.25)
    assert bucket((0.1, 0.25), 0.3) == (0.25, float("inf"))


def page(read: float, derived: float, seconds: float, took: float = 0.01) -> Page:
    success = "flopwatch_source_last_success_timestamp_seconds"
    body = (
        f'llm_scrape_duration_seconds{{server="s"}} {took}\n'
        f'llm_window_seconds{{server="s",window="1m"}} {seconds}\n'
        f'{success}{{source="inference:s"}} {read}\n'
        f'{success}{{source="derive:serving"}} {derived}\n'
        f'flopwatch_source_read_duration_seconds{{source="inference:s"}} {took}\n'
    )
    return Page(read, body, "s", {"1m"})


def found(*pages: Page) -> list[tuple[float, float]]:
    return [(one.first.earliest, one.last.earliest) for one in windows(pages)]


def test_a_window_begins_with_the_reading_that_its_length_says() -> None:
    """And is left out when that reading is not among those that were seen."""
    pages = page(100.0, 100.5, 0.0), page(101.02, 101.5, 1.02), page(102.0, 102.5, 10.0)
    assert found(*pages) == [(100.0, 100.0), (100.0, 101.02)]


def test_a_window_ends_with_the_reading_that_its_round_saw() -> None:
    """A round that began while a page was read saw the one before; if that is doubtful, none."""
    first, second = page(100.0, 100.5, 0.0), page(101.0, 101.5, 1.0)
    assert found(first, second, page(102.0, 101.9, 1.0))[2:] == [(100.0, 101.0)]
    assert found(first, second, page(102.0, 102.015, 2.0))[2:] == [(100.0, 102.0)]
    assert found(first, second, page(102.0, 102.005, 1.0))[2:] == []
    assert found(first, second, page(102.004, 102.005, 1.0))[2:] == [(100.0, 101.0)]
    assert found(first, second, page(102.004, 102.005, 1.004))[2:] == [(101.0, 102.004)]


def test_a_window_that_was_not_worked_out_anew_is_not_judged() -> None:
    pages = page(100.0, 100.5, 0.0), page(101.0, 101.5, 1.0)
    for one in pages:
        one.renewed = frozenset({"5m"})
    assert found(*pages) == []


def test_what_was_worked_out_tells_by_its_length() -> None:
    """Windows, and objectives by how full their hour is."""
    told = (
        'llm_window_seconds{server="s",window="5m"} 17.25\n'
        'sla_window_filled_ratio{model_name="",objective="b",server="",sla="a",window="1h"} 0.5\n'
        'sla_window_filled_ratio{model_name="",objective="b",server="",sla="a",window="5m"} 1\n'
    )
    assert lengths(told) == {"5m": "17.25", "a/b": "0.5"}


def test_the_same_seed_orders_the_same_load() -> None:
    """Poisson arrivals and bursts within each phase; who leaves does so in the middle."""
    phases = [
        Phase("a", 200.0, 2.0, aborts=0.5, too_long=0.1, bad_model=0.1),
        Phase("b", 50.0, 0.0, burst=5, burst_every=10.0),
    ]
    made = list(orders(phases, 7))
    assert made == list(orders(phases, 7))
    assert made != list(orders(phases, 8))
    first = [order for order in made if order.phase == "a"]
    assert 330 < len(first) < 470
    assert len(made) - len(first) == 25
    assert {order.wanted for order in first} == {"answer", "too_long", "bad_model"}
    leaving = [order for order in made if order.leave_after]
    assert leaving
    assert all(order.max_tokens - order.leave_after >= 50 for order in leaving)


def ask(reply: bytes, leave_after: int = 0) -> Record:
    """Ask a server that answers so, and leaves."""

    def script(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(reply)

    out = io.StringIO()
    with serving(script) as server:
        client = Client(server.port, "vllm", "m", 1000, out)
        asyncio.run(client.run([Order(0.0, "p", "answer", 5, 8, leave_after)], 1))
    return Record(**json.loads(out.getvalue()))


def event(tokens: int, reason: str | None = None) -> bytes:
    told = {"choices": [{"finish_reason": reason}], "usage": {"completion_tokens": tokens}}
    return b"data: " + json.dumps(told).encode() + b"\n\n"


def test_each_piece_of_a_stream_is_dated_and_counted() -> None:
    """Tokens that came in one event are told apart from those that came alone."""
    record = ask(chunked(event(1), event(3), event(4, "length"), b"data: [DONE]\n\n", b""))
    assert (record.status, record.outcome, record.tokens) == (200, "finished", 4)
    assert [number for _, number in record.arrivals] == [1, 2, 1]
    times = [at for at, _ in record.arrivals]
    assert record.sent < times[0] <= times[1] <= times[2] <= record.ended


def test_a_stream_that_breaks_off_is_no_answer() -> None:
    assert ask(chunked(event(1), event(2))).outcome == "broken"
    assert ask(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").outcome == "rejected"


def test_a_client_that_leaves_counts_what_it_got() -> None:
    record = ask(chunked(event(1), event(2), event(3)), leave_after=2)
    assert record.outcome == "aborted"
    assert record.tokens >= 2
    assert record.error == ""


def test_a_line_has_the_time_at_which_it_was_whole() -> None:
    pieces = [(1.0, b"data: {"), (2.0, b"}\n\nda"), (3.0, b"ta: [DONE]\r\n")]
    got = [(at, line) for at, line in lines(pieces) if line]
    assert got == [(2.0, b"data: {}"), (3.0, b"data: [DONE]")]
    assert LATE > 0
