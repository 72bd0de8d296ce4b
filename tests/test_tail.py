"""A file that others write: nothing is lost, and nothing read twice, whatever they do to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter.tail import Mark, Tail


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "job.log"
    path.write_bytes(b"one\n")
    return path


def opened(path: Path) -> Tail:
    tail = Tail(str(path))
    tail.open()
    return tail


def drained(tail: Tail) -> bytes:
    data = b""
    while piece := tail.read(3):
        data += piece
    return data


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_what_is_appended_is_read_once(log: Path) -> None:
    tail = opened(log)
    assert drained(tail) == b"one\n"
    assert tail.read(100) == b""
    append(log, b"two\n")
    assert (tail.read(100), tail.turned) == (b"two\n", False)
    assert tail.behind == 0


def test_a_renamed_file_is_read_to_its_end_before_the_new_one(log: Path) -> None:
    tail = opened(log)
    tail.read(100)
    log.rename(log.with_suffix(".1"))
    append(log.with_suffix(".1"), b"late\n")
    log.write_bytes(b"")  # the rotator makes it, the job does not write to it yet
    assert (tail.read(100), tail.turned) == (b"late\n", False)
    append(log.with_suffix(".1"), b"later\n")
    assert (tail.read(100), tail.turned) == (b"later\n", False)
    append(log, b"new\n")
    assert (tail.read(100), tail.turned) == (b"new\n", True)


def test_a_file_that_was_cut_is_read_from_its_beginning(log: Path) -> None:
    """As logrotate's copytruncate does it."""
    tail = opened(log)
    tail.read(100)
    os.truncate(log, 0)
    assert tail.read(100) == b""
    append(log, b"a\n")
    assert tail.read(100) == b"a\n"
    assert tail.offset == 2


def test_a_file_that_was_cut_and_has_grown_beyond_is_recognised_by_how_it_begins(
    log: Path,
) -> None:
    tail = opened(log)
    tail.read(100)
    os.truncate(log, 0)
    append(log, b"other\nlines\n")
    assert (tail.read(100), tail.turned) == (b"other\nlines\n", True)


def test_a_place_is_found_again(log: Path) -> None:
    tail = opened(log)
    tail.read(100)
    mark = tail.mark(tail.offset)
    assert mark is not None
    tail.close()
    append(log, b"while nobody looked\n")
    again = opened(log)
    assert again.resume(mark)
    assert again.read(100) == b"while nobody looked\n"


def test_a_place_in_a_file_whose_inode_is_used_again_is_not_believed(log: Path) -> None:
    tail = opened(log)
    tail.read(100)
    mark = tail.mark(tail.offset)
    assert mark is not None
    log.write_bytes(b"new\nfile\n")  # the same inode
    again = opened(log)
    assert not again.resume(mark)
    assert again.read(100) == b"new\nfile\n"


@pytest.mark.parametrize(
    "change", [{"inode": 1}, {"offset": 99}, {"offset": -1}, {"length": -1}, {"length": 9999}]
)
def test_a_place_that_makes_no_sense_is_not_believed(log: Path, change: dict[str, int]) -> None:
    tail = opened(log)
    mark = tail.mark(4)
    assert isinstance(mark, Mark)
    assert not tail.resume(mark._replace(**change))


def test_a_closed_tail_goes_on(log: Path) -> None:
    tail = opened(log)
    tail.read(100)
    tail.close()
    assert tail.read(100) == b""
    append(log, b"two\n")
    assert (tail.read(100), tail.turned) == (b"two\n", False)
    tail.close()
    log.write_bytes(b"quite another\n")
    assert (tail.read(100), tail.turned) == (b"quite another\n", True)


def test_a_vanished_file_is_read_to_its_end(log: Path) -> None:
    tail = opened(log)
    append(log, b"two\n")
    log.unlink()
    assert drained(tail) == b"one\ntwo\n"
    tail.close()
    with pytest.raises(FileNotFoundError):
        tail.read(100)


def test_absolute_links_lead_below_the_root(tmp_path: Path) -> None:
    """In a container the machine's /var/log/pods is /host/var/log/pods."""
    (tmp_path / "pods").mkdir()
    (tmp_path / "pods/0.log").write_bytes(b"there\n")
    (tmp_path / "relative.log").symlink_to("pods/0.log")
    (tmp_path / "link.log").symlink_to("/relative.log")
    tail = Tail(str(tmp_path / "link.log"), str(tmp_path))
    tail.open()
    assert tail.read(100) == b"there\n"


def test_a_fifo_is_no_log(tmp_path: Path) -> None:
    """Opening one would wait for a writer."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="no regular file"):
        opened(tmp_path / "fifo")
