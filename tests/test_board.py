"""What consumers see of a source: states, ages, and when a page must be written anew."""

from __future__ import annotations

from exporter import catalogue as c
from exporter.board import Board, Slot
from exporter.samples import Batch, Fault, Gate, Snapshot, SourceView


def batch() -> Batch:
    return Gate(10).admit([c.HOST_CPUS(4)])[0]


def enrolled(board: Board) -> Slot:
    return board.enroll("host", "host", deadline=2.0, max_age=12.0, now=100.0)


def publish(slot: Slot, taken: float, *faults: Fault) -> None:
    slot.begin(taken)
    slot.publish(Snapshot("host", "host", taken, 1e9, 0.1, batch(), faults), {})


def seen(board: Board, now: float) -> SourceView:
    (view,) = board.view(now).sources
    return view


def test_the_states_of_a_source() -> None:
    """waiting, up, degraded, failed, stuck and stale, each from what happened."""
    board = Board()
    slot = enrolled(board)
    assert seen(board, 100).state == "waiting"

    publish(slot, 101)
    assert seen(board, 102).state == "up"

    publish(slot, 103, Fault("eth0", "io", ""))
    assert seen(board, 104).state == "degraded"

    slot.fail(Snapshot("host", "host", 105, 1e9, 0.1, faults=(Fault("", "timeout", ""),)))
    assert seen(board, 106).state == "failed"
    assert len(seen(board, 106).batch) == 0

    publish(slot, 110)
    slot.begin(115)
    assert seen(board, 116).state == "up"
    assert seen(board, 117.5).state == "stuck"
    assert len(seen(board, 117.5).batch) == 1, "still fresh"


def test_a_hung_source_leaves_the_page_by_itself() -> None:
    """Past the age limit there are no samples, although nothing was published since."""
    board = Board()
    slot = enrolled(board)
    publish(slot, 101)
    slot.begin(106)

    before, after = seen(board, 113), seen(board, 113.1)

    assert len(before.batch) == 1
    assert len(after.batch) == 0
    assert after.state == "stuck"
    assert after.busy is not None
    assert round(after.busy, 6) == 7.1


def test_a_source_that_is_not_read_any_more_is_stale() -> None:
    """Without a read under way an old snapshot is `stale`, not `stuck`."""
    board = Board()
    publish(enrolled(board), 101)

    assert seen(board, 200).state == "stale"


def test_the_token_changes_when_the_page_would() -> None:
    """Equal while nothing happens; different after a publish, ageing out, or a stuck second."""
    board = Board()
    slot = enrolled(board)
    publish(slot, 101)

    assert board.view(102).token == board.view(103).token
    before = board.view(103).token
    publish(slot, 104)
    published = board.view(104).token
    assert published != before
    assert board.view(117).token != published, "aged out"
    slot.begin(118)
    assert board.view(121).token != board.view(122).token, "stuck: its busy time moves"


def test_counts_carry_on_when_a_source_is_replaced() -> None:
    """Failures are counters: a reload must not set them back."""
    board = Board()
    slot = enrolled(board)
    slot.begin(101)
    slot.fail(Snapshot("host", "host", 101, 1e9, 0.1, faults=(Fault("", "io", ""),)))

    enrolled(board)

    assert seen(board, 102).health.failures == {"io": 1}
    assert seen(board, 102).state == "waiting"


def test_the_late_reply_of_a_replaced_source_goes_nowhere() -> None:
    """Its slot accepts the write; the view shows the new slot's."""
    board = Board()
    old = enrolled(board)
    new = enrolled(board)
    publish(new, 102)

    publish(old, 103, Fault("late", "io", ""))

    assert seen(board, 104).faults == ()


def test_ready_when_all_have_produced_or_passed_their_deadline() -> None:
    """A source that hangs from the start does not keep the daemon from being ready."""
    board = Board()
    slot = enrolled(board)
    board.enroll("hung", "host", deadline=2.0, max_age=12.0, now=100.0).begin(100)
    assert not board.settled(101)

    publish(slot, 101)

    assert not board.settled(101.5)
    assert board.settled(102.5)


def test_retiring_removes_everything() -> None:
    """No series of a removed source stays behind."""
    board = Board()
    publish(enrolled(board), 101)

    board.retire("host")

    assert board.view(102).sources == ()


def test_a_source_that_comes_back_is_not_taken_for_its_former_self() -> None:
    """Removed and added again between two scrapes: the token differs, the page is written anew."""
    board = Board()
    publish(enrolled(board), 101)
    before = board.view(102).token

    board.retire("host")
    publish(enrolled(board), 101)

    assert board.view(102).token != before


def test_a_new_configuration_does_not_hide_a_hang() -> None:
    """The device is stuck, whatever is configured for it: busy time and state carry on."""
    board = Board()
    enrolled(board).begin(101)

    replaced = enrolled(board)
    assert seen(board, 110).state == "stuck"
    board.retire("host")
    board.enroll("host", "host", deadline=2.0, max_age=12.0, now=111.0, former=replaced)

    assert seen(board, 112).state == "stuck"
    assert seen(board, 112).busy == 11
