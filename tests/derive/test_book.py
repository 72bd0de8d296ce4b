"""What the servers counted over windows: resets, restarts, gaps, and nothing that is not so."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.board import Board as RealBoard
from exporter.derive.memory import Memory
from exporter.derive.serving import serving
from exporter.derive.serving.book import INPUTS, STEP, WINDOWS, Anomaly, Book, Entity, Stats
from exporter.derive.serving.increase import Increase
from exporter.engines import Translator, load_engines
from exporter.formats.exposition import Reader
from exporter.samples import (
    Drop,
    Fault,
    Gate,
    Health,
    Histogram,
    Sample,
    Snapshot,
    SourceView,
    View,
)

PAGES = Path(__file__).parents[1] / "data/engines"
CHAT = Entity("m", "", "vllm", "a")
BOUNDS = (0.1, 0.5, 1.0)
FINE = tuple(range(1, 40))
WALL = 1000.0
"""Unix seconds at 0 of the tests' time."""


class Board:
    """A board on which one server, or several, tell something; time is told by the test.

    `stepped` is by how much the machine's wall clock has been set forward.
    """

    def __init__(self, book: Book | None = None) -> None:
        self.stepped = 0.0
        self.view = View((), ())
        self.book = Book() if book is None else book
        self._gates: dict[str, Gate] = {}
        self._sources: dict[str, SourceView] = {}
        self._taken: dict[str, float] = {}

    def tell(
        self, now: float, samples: Sequence[Sample], name: str = "inference:a",
        faults: Iterable[Fault] = (), *, turn: bool = True,
    ) -> Book:  # fmt: skip
        """Put a reading of a server on the board, and let the book look at it."""
        gate = self._gates.setdefault(name, Gate(30_000))
        batch, dropped = gate.admit(samples)
        assert not dropped
        last = Snapshot(name, "serving", now, WALL + self.stepped + now, 0.01, batch)
        self._sources[name] = SourceView(
            name, "serving", "up", Health(), tuple(faults), batch=batch, age=0.0, last=last
        )
        self._taken[name] = now
        return self.look(now, turn=turn)

    def silence(self, name: str = "inference:a") -> None:
        """Take a server's reading from the board."""
        del self._sources[name]

    def look(self, now: float, *, turn: bool = True) -> Book:
        """Let the book look at the board as it is; a step is from one look to the next."""
        from dataclasses import replace

        sources = (
            replace(source, age=now - self._taken[name]) for name, source in self._sources.items()
        )
        if turn:
            self.book.turn()
        self.view = View(tuple(sources), ())
        self.book.observe(self.view, now)
        return self.book


def page(
    output: float = 0, counts: Sequence[float] = (0, 0, 0, 0), total: float = 0.0, *,
    start: float | None = None, ranks: float | None = None, moves: float | None = None,
    running: float | None = None,
    bounds: tuple[float, ...] = BOUNDS, stop: float | None = None, server: str = "a",
    model: str = "m",
) -> list[Sample]:  # fmt: skip
    """Return what a server tells."""
    of = (model, "", "vllm", server)
    samples = [
        c.LLM_SERVER_INFO(1, "vllm", server, ""),
        c.LLM_TOKENS_TOTAL(output, model, "", "output", "vllm", server),
        c.LLM_TTFT_SECONDS(Histogram(bounds, tuple(counts), total), *of),
    ]
    if start is not None:
        samples.append(c.LLM_SERVER_START_TIME_SECONDS(start, "vllm", server))
    if ranks is not None:
        samples.append(c.LLM_SERVER_RANKS(ranks, "vllm", server))
    if moves is not None:
        samples.append(c.LLM_RANK_CHANGES_TOTAL(moves, "vllm", server))
    if running is not None:
        samples.append(c.LLM_ACTIVE_REQUESTS(running, *of))
    if stop is not None:
        samples.append(c.LLM_REQUESTS_TOTAL(stop, model, "", "stop", "vllm", server))
    return samples


def preempted(times: float) -> Sample:
    return c.LLM_PREEMPTIONS_TOTAL(times, *CHAT)


def ttft_of(book: Book, window: str = "5m") -> Increase:
    found = book.histogram(c.LLM_TTFT_SECONDS, CHAT, window)
    assert found is not None
    return found


def output(book: Book, window: str = "5m", entity: Entity = CHAT) -> float | None:
    return book.increase(c.LLM_TOKENS_TOTAL, entity, window, direction="output")


# ---------------------------------------------------------------- the plain case


def test_the_last_reading_before_a_server_died_is_counted() -> None:
    """It was read, and the next read had failed before a round looked at it (vLLM, killed)."""
    board, book, gate = RealBoard(), Book(), Gate(5000)
    slot = board.enroll("inference:a", "serving", 2.0, 12.0, 0.0)

    def read(now: float, tokens: float, start: float) -> None:
        batch = gate.admit(page(tokens, start=start))[0]
        slot.publish(Snapshot("inference:a", "serving", now, 1e9 + now, 0.01, batch), {})

    def fail(now: float) -> None:
        fault = Fault("", "refused", "")
        slot.fail(Snapshot("inference:a", "serving", now, 1e9 + now, 0.01, faults=(fault,)))

    read(1.0, 100, start=1e9)
    book.observe(board.view(1.9), 1.9)
    read(2.0, 110, start=1e9)
    fail(3.0)
    fail(4.0)
    book.observe(board.view(4.9), 4.9)
    assert output(book) == 10
    assert book.servers() == []
    assert book.seconds("a", "5m") == 1.0
    read(8.0, 4, start=1e9 + 7)
    book.observe(board.view(8.9), 8.9)
    assert output(book) == 14
    assert book.resets == {"a": 1}


def test_the_first_sight_of_a_server_is_a_baseline() -> None:
    """A server that has run for a week has not made its tokens within the last minute."""
    board = Board()
    book = board.tell(0, page(1_000_000, (5, 6, 7, 8), 4.0))
    assert output(book) is None
    assert book.histogram(c.LLM_TTFT_SECONDS, CHAT, "5m") is None
    book = board.tell(5, page(1_000_010, (5, 8, 9, 10), 4.7))
    assert output(book) == 10
    ttft = book.histogram(c.LLM_TTFT_SECONDS, CHAT, "5m")
    assert ttft is not None
    assert ttft.bounds == BOUNDS
    assert ttft.counts == (0, 2, 0, 0)
    assert ttft.total == pytest.approx(0.7)


def test_windows_are_as_long_as_they_say() -> None:
    """One token a second, read each second: a window of n seconds brought n tokens."""
    board = Board()
    for second in range(2 * 3600):
        board.tell(second, page(100 + second))
    for window, length in WINDOWS.items():
        span = board.book.seconds("a", window)
        assert length <= span <= length + 30
        assert output(board.book, window) == span
        assert board.book.filled("a", window) == 1
    assert output(board.book, STEP) == 1


def test_a_window_tells_how_much_of_it_is_filled() -> None:
    """After a start there is no hour to speak of yet."""
    board = Board()
    for second in range(0, 61, 5):
        board.tell(second, page(second))
    assert board.book.seconds("a", "1m") == 60
    assert board.book.filled("a", "1m") == 1
    assert board.book.filled("a", "1h") == pytest.approx(60 / 3600)
    assert output(board.book, "1h") == 60


def test_an_idle_server_has_increases_of_zero() -> None:
    """Zero is known: nothing has come."""
    board = Board()
    board.tell(0, page(7, (1, 1, 1, 1), 0.05))
    book = board.tell(5, page(7, (1, 1, 1, 1), 0.05))
    assert output(book) == 0
    ttft = book.histogram(c.LLM_TTFT_SECONDS, CHAT, "1m")
    assert ttft is not None
    assert ttft.n == 0


def test_a_round_without_a_new_reading_has_no_step() -> None:
    """What was counted once is not counted in the next round again."""
    board = Board()
    board.tell(0, page(0))
    board.tell(5, page(9))
    assert output(board.book, STEP) == 9
    board.look(6)
    assert output(board.book, STEP) is None
    assert output(board.book, "1m") == 9


def test_what_an_engine_does_not_tell_is_not_known() -> None:
    """No counter, no increase; no histogram, no observations; no gauge, no value."""
    board = Board()
    board.tell(0, page())
    book = board.tell(5, page())
    assert book.increase(c.LLM_PREEMPTIONS_TOTAL, CHAT, "5m") is None
    assert book.histogram(c.LLM_ITL_SECONDS, CHAT, "5m") is None
    assert book.gauge(c.LLM_WAITING_REQUESTS, CHAT, "5m") is None
    assert book.latest(c.LLM_WAITING_REQUESTS, CHAT) is None
    assert book.by(c.LLM_REQUESTS_TOTAL, CHAT, "outcome", "5m") == {}


def test_a_series_that_comes_into_being_counts_from_zero() -> None:
    """SGLang makes a series at its first use: the first request is not lost."""
    board = Board()
    board.tell(0, page())
    book = board.tell(5, page(stop=3))
    assert book.by(c.LLM_REQUESTS_TOTAL, CHAT, "outcome", "5m") == {"stop": 3}


def test_a_model_that_is_seen_for_the_first_time_is_a_baseline() -> None:
    """It may have been in `other`, or behind a gateway, for a week."""
    board, new = Board(), Entity("x", "", "vllm", "a")
    board.tell(0, page(5))
    book = board.tell(5, [*page(6), *page(70_000, (9, 9, 9, 9), 0.3, model="x")[1:]])
    assert (output(book), output(book, entity=new)) == (1, 0)
    book = board.tell(10, [*page(6), *page(70_002, (9, 9, 9, 9), 0.3, model="x", stop=1)[1:]])
    assert output(book, entity=new) == 2
    assert book.by(c.LLM_REQUESTS_TOTAL, new, "outcome", "5m") == {"stop": 1}


def test_a_server_that_is_restarted_with_another_model_counts_from_zero() -> None:
    """Its start time tells that the model has no past."""
    board, new = Board(), Entity("x", "", "vllm", "a")
    board.tell(0, page(5, start=10.0))
    assert output(board.tell(5, page(9, model="x", start=1003.0)), entity=new) == 9


def test_a_series_that_was_missing_from_a_damaged_page_does_not_come_into_being() -> None:
    """Half a page, then a whole one: what was there all along is no increase."""
    board = Board()
    board.tell(0, page(), faults=[Fault("page", "malformed", "it ends in the middle of a line")])
    board.tell(5, page(stop=1000))
    book = board.tell(10, page(stop=1002))
    assert book.by(c.LLM_REQUESTS_TOTAL, CHAT, "outcome", "5m") == {"stop": 2}


def test_a_series_that_was_away_goes_on_where_it_was() -> None:
    """A page that lost a family for once."""
    board = Board()
    board.tell(0, page(stop=1000))
    board.tell(5, page())
    book = board.tell(10, page(stop=1002))
    assert book.by(c.LLM_REQUESTS_TOTAL, CHAT, "outcome", "5m") == {"stop": 2}


# ---------------------------------------------------------------- restarts and other trouble


def test_a_restart_is_known_by_the_start_time() -> None:
    """Even if all counters are higher than before: what the new process told is the increase."""
    board = Board()
    board.tell(0, page(100, (1, 1, 1, 1), 0.05, start=1000.0))
    board.tell(5, page(110, (1, 1, 1, 1), 0.05, start=1000.0))
    book = board.tell(30, page(150, (0, 2, 2, 2), 0.6, start=1020.0))
    assert output(book) == 160
    ttft = book.histogram(c.LLM_TTFT_SECONDS, CHAT, "5m")
    assert ttft is not None
    assert ttft.counts == (0, 2, 0, 0)
    assert book.resets == {"a": 1}
    assert not book.anomalies


def test_a_restart_counts_from_zero_even_where_nothing_fell() -> None:
    """A young process was outdone by its successor between two readings."""
    board = Board()
    board.tell(0, page(1, (0, 1, 1, 1), 0.3, start=1000.0))
    book = board.tell(30, page(7, (2, 4, 4, 4), 1.0, start=1020.0))
    assert output(book) == 7
    assert ttft_of(book).n == 4
    assert book.resets == {"a": 1}


def test_an_idle_server_that_is_restarted_is_restarted() -> None:
    """All counters are zero before and after: the start time alone tells."""
    board = Board()
    board.tell(0, page(start=10.0))
    board.tell(30, page(start=1020.0))
    assert board.book.resets == {"a": 1}
    assert not board.book.anomalies


def test_a_start_time_that_moves_while_counters_go_on_brings_no_history() -> None:
    """100,000 old requests had been counted as new: the start time of another process (max)."""
    board = Board()
    board.tell(0, page(100_000, start=200.0))
    for start in (900.0, 950.0, 2e9, 1004.0):
        now = board.book._now + 5
        book = board.tell(now, page(100_000 + now, start=start))
    assert output(book) == 0
    assert book.resets == {}
    assert book.anomalies == {Anomaly("a", "start"): 4}
    assert output(board.tell(25, page(100_025, start=1004.0))) == 5


def test_a_wall_clock_that_is_set_is_no_restart() -> None:
    """A start time counted from now, or from the boot, moves with the clock: by an hour here."""
    board = Board()
    board.tell(0, page(100_000, start=200.0))
    board.stepped = 3600.0
    book = board.tell(5, page(100_005, start=3800.0))
    assert output(book) == 0
    assert book.anomalies == {Anomaly("a", "start"): 1}
    assert output(board.tell(10, page(100_010, start=3800.0))) == 5


@pytest.mark.parametrize("younger", [500.0, 999.0])
def test_two_servers_behind_one_address_give_no_increases(younger: float) -> None:
    """Each answers in turn: its start time says that it is another, not that it began now."""
    board = Board()
    for step in range(1, 41):
        old = step % 2 == 0
        count = (100_000 if old else 30_000) + step
        book = board.tell(step * 5, page(count, start=100.0 if old else younger))
    assert output(book) == 0
    assert book.resets == {}
    assert book.anomalies == {Anomaly("a", "start"): 39}


def test_a_replica_that_joins_behind_an_address_is_counted_once() -> None:
    """It is younger than the last reading, as after a restart: that is believed once."""
    board = Board()
    board.tell(0, page(100_000, start=100.0))
    board.tell(1, page(2, start=1000.5))
    board.tell(2, page(100_001, start=100.0))
    book = board.tell(3, page(5, start=1000.5))
    assert output(book) == 2
    assert book.resets == {"a": 1}
    assert book.anomalies == {Anomaly("a", "start"): 2}


def test_a_server_whose_clock_is_a_little_off_is_restarted() -> None:
    """Its start lies some seconds before the last reading of the process before."""
    board = Board()
    board.tell(0, page(1000, start=10.0))
    board.tell(19, page(1000, start=10.0))
    assert output(board.tell(20, page(3, start=1015.5))) == 3


def test_without_a_start_time_a_page_on_which_nearly_all_fell_is_restarted() -> None:
    """Two API servers of vLLM have no process_start_time_seconds."""
    board = Board()
    board.tell(0, page(1000, (10, 10, 10, 10), 0.5, stop=10))
    book = board.tell(30, page(40, (2, 2, 2, 2), 0.1, stop=2))
    assert output(book) == 40
    assert book.by(c.LLM_REQUESTS_TOTAL, CHAT, "outcome", "5m") == {"stop": 2}
    assert ttft_of(book).n == 2
    assert book.resets == {"a": 1}


def test_without_a_start_time_one_counter_that_falls_by_one_is_no_restart() -> None:
    """100,000 old requests had been counted as new since preemptions went from 10 to 9."""
    board = Board()
    board.tell(0, [*page(100_000, (9, 9, 9, 9), 0.3, stop=9), preempted(10)])
    book = board.tell(5, [*page(100_005, (9, 9, 9, 9), 0.3, stop=10), preempted(9)])
    assert output(book) == 5
    assert book.by(c.LLM_REQUESTS_TOTAL, CHAT, "outcome", "5m") == {"stop": 1}
    assert book.increase(c.LLM_PREEMPTIONS_TOTAL, CHAT, "5m") == 0
    assert book.resets == {}
    assert book.anomalies == {Anomaly("a", "decrease"): 1}


def test_of_two_models_on_a_page_one_begins_anew_alone() -> None:
    """Triton loads a model again: the other's 100,000 requests are no news."""
    board, other = Board(), Entity("x", "", "vllm", "a")
    board.tell(0, [*page(100_000, (9, 9, 9, 9), 0.3), *page(700, (7, 7, 7, 7), 0.3, model="x")[1:]])
    book = board.tell(
        5, [*page(100_005, (9, 9, 9, 9), 0.3), *page(3, (1, 1, 1, 1), 0.05, model="x")[1:]]
    )
    assert (output(book), output(book, entity=other)) == (5, 3)
    assert book.resets == {"a": 1}
    assert not book.anomalies


def test_a_worker_that_is_replaced_brings_no_history() -> None:
    """Ray: of two workers one is another now. What the one that stays counted is no news."""
    board = Board()
    board.tell(0, page(100_000, (4, 4, 4, 4), 0.2, ranks=2, moves=0))
    book = board.tell(5, page(40_000, (1, 1, 1, 1), 0.05, ranks=2, moves=1))
    assert output(book) == 0
    assert book.resets == {}
    assert book.anomalies == {Anomaly("a", "ranks"): 1}
    assert output(board.tell(10, page(40_010, (1, 1, 1, 1), 0.05, ranks=2, moves=1))) == 10


def test_a_counter_that_falls_without_a_restart_is_no_restart() -> None:
    """vllm#10430: negative increments. The start time stands: leave it out, and count that."""
    board = Board()
    board.tell(0, page(1000, stop=5, start=1.0))
    book = board.tell(5, page(900, stop=6, start=1.0))
    assert output(book) == 0
    assert book.by(c.LLM_REQUESTS_TOTAL, CHAT, "outcome", "5m") == {"stop": 1}
    assert book.anomalies == {Anomaly("a", "decrease"): 1}
    assert book.resets == {}
    assert output(board.tell(10, page(903, stop=6, start=1.0))) == 3


def test_a_rank_that_goes_is_no_restart_and_one_that_comes_brings_no_past() -> None:
    """The sum over ranks falls by what the rank had, and jumps when it is back."""
    board = Board()
    board.tell(0, page(2000, ranks=2))
    board.tell(5, page(1010, ranks=1))
    board.tell(10, page(1020, ranks=1))
    board.tell(15, page(2040, ranks=2))
    book = board.tell(20, page(2050, ranks=2))
    assert output(book) == 20
    assert book.anomalies == {Anomaly("a", "ranks"): 2}
    assert book.resets == {}


@pytest.mark.parametrize(
    ("counts", "total", "kind"),
    [((5, 5, 9, 12), 6.0, "buckets"), ((5, 6, 9, 12), -6.0, "sum"), ((5, 6, 9, 12), 1e9, "")],
)
def test_buckets_that_shrink_and_sums_that_cannot_be_give_no_percentile(
    counts: tuple[float, ...], total: float, kind: str
) -> None:
    """A clock that is set back makes the sum fall; a sum beyond the last bound may be anything."""
    board = Board()
    board.tell(0, page(0, (5, 6, 7, 8), 4.0, start=1.0))
    book = board.tell(5, page(0, counts, total, start=1.0))
    ttft = book.histogram(c.LLM_TTFT_SECONDS, CHAT, "5m")
    assert ttft is not None
    assert ttft.n == (0 if kind else 4)
    assert book.anomalies == ({Anomaly("a", kind): 1} if kind else {})
    first, *others = counts
    book = board.tell(10, page(0, (first, *[n + 1 for n in others]), total + 0.3, start=1.0))
    ttft = book.histogram(c.LLM_TTFT_SECONDS, CHAT, "5m")
    assert ttft is not None
    assert ttft.n == (1 if kind else 5)


def test_a_page_written_between_sum_and_bucket_loses_no_request() -> None:
    """prometheus_client adds to the sum first; a page of that moment is off by one observation."""
    board = Board()
    board.tell(0, page(0, (5, 6, 7, 8), 4.0, start=1.0))
    board.tell(5, page(0, (5, 6, 7, 8), 4.05, start=1.0))
    book = board.tell(10, page(0, (6, 7, 8, 9), 4.05, start=1.0))
    ttft = book.histogram(c.LLM_TTFT_SECONDS, CHAT, "5m")
    assert ttft is not None
    assert (ttft.n, ttft.total) == (1, pytest.approx(0.05))
    assert book.anomalies == {Anomaly("a", "sum"): 1}


def test_other_bucket_bounds_begin_anew() -> None:
    """vLLM since 0.32 can be restarted with other buckets; the old ones mean nothing for them."""
    board = Board()
    board.tell(0, page(0, (5, 6, 7, 8), 4.0))
    book = board.tell(5, page(0, (5, 7, 9), 4.6, bounds=(0.2, 0.6)))
    assert book.anomalies == {Anomaly("a", "layout"): 1}
    book = board.tell(10, page(0, (6, 8, 10), 4.7, bounds=(0.2, 0.6)))
    ttft = book.histogram(c.LLM_TTFT_SECONDS, CHAT, "5m")
    assert ttft is not None
    assert (ttft.bounds, ttft.counts) == ((0.2, 0.6), (1, 0, 0))


def test_nothing_is_ever_negative() -> None:
    """Whatever a page does: ten thousand steps of a page gone mad."""
    random.seed(3)
    board = Board()
    for step in range(2000):
        counts = sorted(random.randrange(50) for _ in range(4))
        book = board.tell(
            step * 5, page(
                random.randrange(100), counts, random.uniform(-5, 100),
                start=random.choice((None, 1.0, 2.0, 3.0)), ranks=random.choice((None, 1, 2)),
            ),
        )  # fmt: skip
        for window in (*WINDOWS, STEP):
            grown = output(book, window)
            assert grown is None or grown >= 0
            ttft = book.histogram(c.LLM_TTFT_SECONDS, CHAT, window)
            assert ttft is None or min(ttft.counts) >= 0


def test_a_server_that_is_silent_moves_out_of_the_windows() -> None:
    """Its last hour stays known for an hour, then it is forgotten."""
    board = Board()
    for second in range(0, 121, 5):
        board.tell(second, page(second))
    board.silence()
    assert board.look(150).entities() == []
    assert board.book.known() == [CHAT]
    assert output(board.book, "5m") == 120
    board.look(300)
    assert output(board.book, "1m") == 0
    assert board.book.latest(c.LLM_ACTIVE_REQUESTS, CHAT) is None
    board.look(3600 * 2)
    assert board.book.known() == []
    assert output(board.book, "1h") is None


def test_a_gap_is_bridged_by_what_is_not_much_shorter() -> None:
    """Ten minutes without a page: what the counters gained meanwhile did happen, if not just now.

    Whoever counts steps loses nothing of it; a minute cannot tell what was its own.
    """
    board = Board()
    board.tell(0, page(0))
    board.tell(5, page(5))
    book = board.tell(595, page(595))
    assert output(book, STEP) == 590
    assert output(book, "5m") == output(book, "30m") == book.seconds("a", "30m") == 595
    assert output(book, "1m") is None
    for second in (600, 610):
        board.tell(second, page(second))
    assert output(book, "1m") == book.seconds("a", "1m") == 15
    assert book.filled("a", "1m") == 15 / 60


def test_a_window_is_not_filled_by_a_gap() -> None:
    """The page was away for 20 minutes: a window that claims to be full is believed."""
    board = Board()
    for second in [*range(0, 3601, 5), *range(4800, 4831, 5)]:
        board.tell(second, page(second))
    book = board.book
    assert output(book, "5m") == 30
    assert [book.filled("a", w) for w in ("1m", "5m")] == [30 / 60, 30 / 300]
    assert book.filled("a", "30m") == pytest.approx(600 / 1800, abs=0.02)
    assert book.filled("a", "1h") == pytest.approx(2400 / 3600, abs=0.02)
    assert output(book, "1h") == book.seconds("a", "1h") == pytest.approx(3600, abs=30)


@pytest.mark.parametrize("every", [1, 10, 90])
def test_readings_far_apart_are_no_gaps_if_all_are(every: int) -> None:
    """A server may be read each 90 seconds; one page that is missing is no gap either."""
    board = Board()
    for second in range(0, 7200, every):
        if second % 1800:
            board.tell(second, page(second))
    assert board.book.filled("a", "1h") == 1


def test_a_gap_of_the_daemon_does_not_fill_a_window() -> None:
    """It was away for 20 minutes: the state file bridges the hour, and no minute."""
    board = Board()
    for second in range(0, 3601, 5):
        board.tell(second, page(second))
    book = Book()
    book.restore(json.loads(json.dumps(board.book.memory())), 10_000.0, 1200.0)
    successor = Board(book)
    successor.tell(10_000, page(4800))
    assert (output(book, "1m"), output(book, "5m")) == (None, None)
    assert output(book, STEP) == 1200
    assert book.filled("a", "1h") == pytest.approx(2400 / 3600, abs=0.02)


# ---------------------------------------------------------------- gauges


def test_a_gauge_has_a_mean_over_time_and_a_maximum() -> None:
    """Reads come unevenly: 4 for ten seconds and 8 for one are not 6 on average."""
    board = Board()
    for second, running in ((0, 4), (10, 4), (11, 8), (12, 8), (22, 4)):
        board.tell(second, page(running=running))
    stats = board.book.gauge(c.LLM_ACTIVE_REQUESTS, CHAT, "1m")
    assert stats == Stats(pytest.approx((40 + 6 + 8 + 60) / 22), 8)
    assert board.book.latest(c.LLM_ACTIVE_REQUESTS, CHAT) == 4


def test_a_maximum_leaves_its_window() -> None:
    """A peak of an hour and a half ago is in no window; one of ten minutes ago in two."""
    board = Board()
    for second in range(0, 7200, 5):
        board.tell(second, page(running=99 if second == 1800 else 50 if second == 6600 else 1))
    peaks = {w: board.book.gauge(c.LLM_ACTIVE_REQUESTS, CHAT, w) for w in WINDOWS}
    assert {w: p.maximum for w, p in peaks.items() if p} == {"1m": 1, "5m": 1, "30m": 50, "1h": 50}


# ---------------------------------------------------------------- several servers


def test_servers_and_models_are_kept_apart() -> None:
    """Two servers of one model, and one with two models."""
    board = Board()
    for now, n in ((0, 0), (5, 7)):
        board.tell(now, page(n))
        board.tell(now, page(2 * n, server="b"), "inference:b")
        board.tell(now, [*page(3 * n, server="d"), *page(4 * n, server="d", model="x")[1:]], "d")
    book = board.book
    assert sorted(book.servers()) == ["a", "b", "d"]
    assert len(book.entities()) == 4
    found = [output(book, "1m", entity) for entity in sorted(book.entities())]
    assert found == [7, 14, 21, 28]


def test_what_is_told_of_a_server_elsewhere_is_found_by_its_name() -> None:
    """Probes come from another source than the server's page."""
    board = Board()
    for now, good in ((0, 0), (15, 1), (30, 2)):
        board.tell(now, page())
        board.tell(
            now,
            [
                c.LLM_PROBES_TOTAL(good, "a", "health", "success"),
                c.LLM_PROBES_TOTAL(1, "a", "health", "failure"),
                c.LLM_PROBES_TOTAL(good, "b", "health", "success"),
            ],
            "probe",
        )
    found = board.book.by(c.LLM_PROBES_TOTAL, CHAT, "outcome", "5m", kind="health")
    assert found == {"success": 2, "failure": 0}


def test_models_that_come_and_go_do_not_cost_the_others_their_history() -> None:
    """At 20,000 places everything had begun anew, silently."""
    board = Board()
    for n in range(900):
        gone = [s for i in range(5) for s in page(7, model=f"m{n}-{i}")[1:]]
        board.tell(n * 5, [*page(n, (n, n, n, n), 0.05 * n, running=n % 9), *gone])
        assert output(board.book, "1h") == (min(n, n and output(board.book, "1h")) or None)
    assert output(board.book, "1h") == pytest.approx(720, abs=6)
    assert ttft_of(board.book, "1h").n == output(board.book, "1h")
    stats = board.book.gauge(c.LLM_ACTIVE_REQUESTS, CHAT, "1h")
    assert stats is not None
    assert stats.mean == pytest.approx(4, abs=0.1)
    assert stats.maximum == 8
    assert not board.book.anomalies
    assert output(told(board), "1h") == output(board.book, "1h")


def test_models_gone_for_an_hour_are_forgotten() -> None:
    """Their places are; what has stayed keeps its hour. Back again they are seen anew."""
    board = Board()
    board.tell(0, [*page(), *(s for i in range(60) for s in page(9, model=f"m{i}")[1:])])
    for second in range(5, 7500, 5):
        board.tell(second, page(second))
    board.tell(7500, page(7500, running=1))
    assert len(board.book.memory()["tracks"]["inference:a"]["series"]) == 3
    assert output(board.book, "1h") == pytest.approx(3600, abs=30)
    board.tell(7505, [*page(7505, running=1), *page(9000, model="m1")[1:]])
    assert output(board.book, entity=Entity("m1", "", "vllm", "a")) == 0


def test_a_storm_of_models_forgets_the_first_of_them() -> None:
    """A page that names a new model each time must not fill the memory."""
    board = Board()
    for n in range(60):
        samples = [s for i in range(60) for s in page(n, model=f"m{n}-{i}")[1:]]
        board.tell(n, [*page(n), *samples])
    assert len(board.book.memory()["tracks"]["inference:a"]["series"]) < 8000
    assert output(board.book) == 59


def test_a_page_of_more_series_than_are_kept_is_told() -> None:
    """Everything begins anew then, again and again: nobody would know why."""
    board = Board()
    for n in range(3):
        samples = [page(n, (0,) * 40, bounds=FINE, model=f"m{i}")[2] for i in range(520)]
        board.tell(n, [page()[0], *samples])
    assert board.book.anomalies == {Anomaly("a", "crowd"): 2}


# ---------------------------------------------------------------- real pages


def test_recorded_pages_of_vllm_become_increases() -> None:
    """From vLLM under load to the same vLLM at rest: the differences by hand."""
    vllm = next(engine for engine in load_engines() if engine.name == "vllm")
    translator, reader = Translator(vllm, "a"), Reader(vllm.wanted)
    board = Board()
    for now, name in ((0, "vllm-0.32.0-cpu-cold.prom"), (60, "vllm-0.32.0-cpu.prom")):
        read = translator.translate(reader.read((PAGES / name).read_bytes()))
        board.tell(now, [item for item in read if not isinstance(item, Drop)])
    (entity,) = [e for e in board.book.entities() if e.model_name]
    assert output(board.book, "5m", entity) == 14939
    ttft = board.book.histogram(c.LLM_TTFT_SECONDS, entity, "5m")
    itl = board.book.histogram(c.LLM_ITL_SECONDS, entity, "5m")
    assert ttft is not None
    assert itl is not None
    assert (ttft.n, itl.n) == (225, 14714)


# ---------------------------------------------------------------- beyond our own end


def told(board: Board) -> Book:
    """Return a book that took over what the board's book remembers, by way of a file, later."""
    text = json.dumps(board.book.memory())
    book = Book()
    book.restore(json.loads(text), 50.0, 20.0)
    return book


def test_a_book_goes_on_where_another_one_ended() -> None:
    """A restart of the daemon: windows stay as they were."""
    board = Board()
    for second in range(0, 4001, 5):
        board.tell(second, page(second, (0, second, second, second), second * 0.3, running=3))
    successor = Board(told(board))
    assert output(successor.book, "1h") == pytest.approx(3600, abs=60)
    before = board.book.gauge(c.LLM_ACTIVE_REQUESTS, CHAT, "1h")
    after = successor.book.gauge(c.LLM_ACTIVE_REQUESTS, CHAT, "1h")
    assert before is not None
    assert after is not None
    assert after.maximum == before.maximum == 3


def test_counters_do_not_go_back_after_a_kill() -> None:
    """What was restored is a minute old: 2 restarts had become 1 again, and 3 for Prometheus."""
    board = Board()
    board.tell(0, page(100, stop=5, start=10.0))
    board.tell(5, page(3, stop=4, start=1003.0))
    board.tell(10, page(2, stop=5, start=1003.0))
    successor = Board(told(board))
    assert (successor.book.told, successor.book.resets) == ({"a": 1}, {"a": 1})
    successor.book.doubt()
    assert successor.book.told == {}
    assert successor.book.anomalies == {}
    successor.tell(60, page(0, stop=1, start=1055.0))
    assert successor.book.told == {"a": 1}
    assert successor.book.resets == {"a": 2}, "a ledger compares with what it knew"


@pytest.mark.parametrize("final", [True, False])
def test_restarts_are_told_from_zero_after_a_kill(final: bool) -> None:
    """And go on after a clean stop."""
    board, first, second = Board(), serving(), serving()
    for now, tokens, start in ((0, 100, 10.0), (5, 3, 1003.0)):
        board.tell(now, page(tokens, start=start))
        told = list(first.function(board.view, Memory(), now))
    assert [s.value for s in told if s.metric is c.LLM_RESETS_TOTAL] == [1]
    assert first.memory is not None
    assert second.restore is not None
    second.restore(json.loads(json.dumps(first.memory())), 100.0, 95.0, final)
    board.tell(100, page(9, start=1003.0))
    told = list(second.function(board.view, Memory(), 100.0))
    assert [s.value for s in told if s.metric is c.LLM_RESETS_TOTAL] == [1 if final else 0]


def test_a_step_lasts_until_the_page_is_turned() -> None:
    """Whoever counts steps need not look at each reading."""
    board = Board()
    board.tell(0, page(0))
    for second in range(1, 5):
        board.tell(second, page(second), turn=False)
    assert output(board.book, STEP) == 4
    assert output(told(board), STEP) == 4
    board.book.turn()
    assert output(board.book, STEP) is None
    assert output(board.tell(5, page(7), turn=False), STEP) == 3


def test_a_book_that_is_handed_on_each_minute_remembers_an_hour_and_no_more() -> None:
    """What it remembers after two hours is as large as after three, and windows stay whole."""
    sizes: list[int] = []
    board = Board()
    for second in range(0, 3 * 3600, 10):
        if second % 60 == 0 and second:
            memory = json.loads(json.dumps(board.book.memory()))
            board = Board(Book())
            board.book.restore(memory, second, 10.0)
            sizes.append(sum(len(track["ages"]) for track in memory["tracks"].values()))
        board.tell(second, page(second, (0, second, second, second), second * 0.3, running=3))
    assert output(board.book, "1h") == pytest.approx(3600, abs=60)
    assert max(sizes[120:]) <= max(sizes[60:120]) <= 3960 / 29.5 + 2


def test_what_came_while_nobody_looked_is_counted() -> None:
    """The counters went on while the daemon was away."""
    board = Board()
    for second in range(0, 101, 5):
        board.tell(second, page(second, start=1.0))
    successor = Board(told(board))
    assert output(successor.tell(51, page(121, start=1.0)), STEP) == 21
    assert successor.book.seconds("a", "5m") == pytest.approx(121, abs=35)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(rows="AAAA"),
        lambda m: m.update(rows="no base64"),
        lambda m: m.update(ages=[]),
        lambda m: m.update(series=[["llm_unheard_of", "m"]]),
        lambda m: m.update(series=[["llm_tokens_total"]] * len(m["series"])),
        lambda m: m.pop("last"),
        lambda m: m.update(age="soon"),
        lambda m: m["spots"].__setitem__(0, [10_000, []]),
        lambda m: m["spots"].__setitem__(0, None),
    ],
)
def test_a_memory_that_makes_no_sense_is_refused_whole(change: object) -> None:
    """A file may hold anything; a book keeps what it had."""
    board = Board()
    for second in range(0, 101, 5):
        board.tell(second, page(second))
    memory = json.loads(json.dumps(board.book.memory()))
    change(memory["tracks"]["inference:a"])  # type: ignore[operator]
    book = Book()
    with pytest.raises((KeyError, TypeError, ValueError)):
        book.restore(memory, 50.0, 20.0)
    assert book.known() == []
    assert book.memory()["tracks"] == {}


def test_all_that_is_read_can_be_declared() -> None:
    """The inputs are families of servers, each once."""
    assert len(set(INPUTS)) == len(INPUTS)
    assert all("server" in metric.labels for metric in INPUTS)
