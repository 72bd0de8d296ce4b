"""The state file: what is remembered goes on, and no file, however bad, stops or misleads us."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter import catalogue as c
from exporter.board import Board
from exporter.runner import Runner, Schedule
from exporter.samples import Fault, Remembered, SourceError
from exporter.sinks import statefile
from exporter.sinks.statefile import NAME, StateFile, load, this_boot
from tests.fakes import FakeClock

ROOT = os.geteuid() == 0


def sink(
    directory: Path,
    memories: dict[str, Any],
    clock: FakeClock,
    *,
    every: float = 60,
    boot: str = "",
) -> StateFile:
    return StateFile(directory, memories, threading.Event(), clock, every=every, boot=boot)


def saved(directory: Path, clock: FakeClock, plain: object = ("a", 1.5), boot: str = "") -> Path:
    """Write a file of one memory that was two seconds old; return where it is."""
    sink(directory, {"x": Remembered(plain, clock.now - 2)}, clock, boot=boot).close()
    return directory / NAME


def test_what_one_daemon_writes_the_next_one_reads(tmp_path: Path) -> None:
    """The values and their age; the file is for nobody else's eyes; the page tells of it."""
    clock = FakeClock(5000.0)
    memories: dict[str, Any] = {"x": Remembered({"n": [1, 2.5, None]}, 4990.0), "driver": object()}
    source = sink(tmp_path / "state", memories, clock)
    samples = list(source.read())

    path = tmp_path / "state" / NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert samples == [
        c.FLOPWATCH_STATE_BYTES(path.stat().st_size),
        c.FLOPWATCH_STATE_SAVED_TIMESTAMP_SECONDS(clock.time()),
    ]
    # the machine was started anew: another monotonic clock, 30 s later by the wall clock
    later = FakeClock(7.0, wall=clock.time() + 30)
    assert load(tmp_path / "state", later) == {"x": Remembered({"n": [1, 2.5, None]}, 7 - 40.0)}
    assert list(path.parent.iterdir()) == [path]


def test_no_file_is_a_first_start(tmp_path: Path) -> None:
    """Nothing is remembered, nothing is wrong, and whoever waits may begin."""
    recalled = threading.Event()
    source = StateFile(tmp_path / "none", {}, recalled, FakeClock())
    assert list(source.read()) == []
    assert recalled.is_set()
    assert not (tmp_path / "none").exists()


def test_nothing_is_written_before_the_former_file_was_read(tmp_path: Path) -> None:
    """A quick source has news before the sink's first look: the slow one's memory is not lost."""
    clock = FakeClock()
    saved(tmp_path, clock, "former")
    memories: dict[str, Any] = {"y": Remembered("new", clock.now)}
    sink(tmp_path, memories, clock).close()
    assert {name: one.plain for name, one in memories.items()} == {"x": "former", "y": "new"}
    assert {name: one.plain for name, one in load(tmp_path, clock).items()} == {
        "x": "former", "y": "new",
    }  # fmt: skip


def test_what_is_urgent_is_written_at_once_and_once(tmp_path: Path) -> None:
    """A daemon that is killed a minute after a notice has not forgotten it."""
    clock = FakeClock()
    memories: dict[str, Any] = {"x": Remembered("quiet", clock.now)}
    source = sink(tmp_path, memories, clock)
    list(source.read())
    clock.advance(5)
    memories["x"] = Remembered("notice", clock.now, urgent=True)
    list(source.read())
    assert load(tmp_path, clock)["x"].plain == "notice"
    inode = (tmp_path / NAME).stat().st_ino
    clock.advance(5)
    list(source.read())
    assert (tmp_path / NAME).stat().st_ino == inode


def test_after_a_reload_what_is_known_here_is_newer(tmp_path: Path) -> None:
    """A file never replaces what this daemon has learnt since."""
    clock = FakeClock()
    saved(tmp_path, clock, "file")
    memories: dict[str, Any] = {"x": Remembered("here", clock.now)}
    list(sink(tmp_path, memories, clock).read())
    assert memories["x"].plain == "here"


def test_it_is_written_at_its_interval_and_at_the_end(tmp_path: Path) -> None:
    """News that comes each second is written once a minute; at the end at once."""
    clock, memories, written = FakeClock(), dict[str, Any](), []
    source = sink(tmp_path, memories, clock, every=60)
    for second in range(181):
        memories["x"] = Remembered(second, clock.now)
        list(source.read())
        written.append(next(iter(load(tmp_path, clock).values())).plain)
        clock.advance(1)
    assert sorted(set(written)) == [0, 61, 122]
    source.close()
    assert load(tmp_path, clock)["x"].plain == 180


def test_a_memory_of_someone_who_is_gone_is_not_kept_for_ever(tmp_path: Path) -> None:
    """An hour later it is worth nothing: the file does not grow with servers that came and went."""
    clock = FakeClock()
    memories: dict[str, Any] = {"gone": Remembered(1, clock.now)}
    source = sink(tmp_path, memories, clock)
    list(source.read())
    clock.advance(3601)
    memories["x"] = Remembered(2, clock.now)
    list(source.read())
    assert list(load(tmp_path, clock)) == ["x"]


# ---------------------------------------------------------------- clocks


def test_a_wall_clock_that_is_set_moves_no_window(tmp_path: Path) -> None:
    """In the same run of the machine the age is that of the monotonic clock."""
    saved(tmp_path, FakeClock(1000.0, wall=1.8e9), boot="b")
    for wall in (1.8e9 - 86400, 1.8e9 + 10, 1.8e9 + 86400):
        later = FakeClock(1010.0, wall=wall)
        assert load(tmp_path, later, "b")["x"].taken == pytest.approx(998.0)


def test_a_file_of_another_run_of_the_machine_goes_by_the_wall_clock(tmp_path: Path) -> None:
    """The monotonic clock began anew: what it says means nothing."""
    saved(tmp_path, FakeClock(1000.0, wall=1.8e9), boot="b")
    for now in (30.0, 1010.0, 90_000.0):
        assert load(tmp_path, FakeClock(now, wall=1.8e9 + 60), "c")["x"].taken == now - 62
    # a container with a monotonic clock of its own
    assert load(tmp_path, FakeClock(3.0, wall=1.8e9 + 60), "b")["x"].taken == 3.0 - 62


def test_this_run_of_the_machine_has_a_name() -> None:
    """The kernel tells it, the same each time."""
    assert len(this_boot()) == 36
    assert this_boot() == this_boot()


# ---------------------------------------------------------------- files that cannot be used


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def rewrite(**changes: object) -> Callable[[Path], None]:
    def act(path: Path) -> None:
        line, _, body = path.read_bytes().partition(b"\n")
        path.write_bytes(json.dumps(json.loads(line) | changes).encode() + b"\n" + body)

    return act


def body(text: str) -> Callable[[Path], None]:
    """Return what gives a file another body, with the right sum."""

    def act(path: Path) -> None:
        import hashlib

        line = json.loads(path.read_bytes().partition(b"\n")[0])
        line["sha256"] = hashlib.sha256(text.encode()).hexdigest()
        path.write_bytes(json.dumps(line).encode() + b"\n" + text.encode())

    return act


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


BAD = [
    ("cut off", cut, "malformed", "damaged"),
    ("empty", lambda p: p.write_bytes(b""), "malformed", "no state of flopwatch"),
    ("zeros", lambda p: p.write_bytes(bytes(4096)), "malformed", "no state of flopwatch"),
    ("foreign", lambda p: p.write_text("[1]\n{}"), "malformed", "no state of flopwatch"),
    ("deep", lambda p: p.write_text("[" * 100_000), "malformed", "no state of flopwatch"),
    ("other version", rewrite(flopwatch_state=2), "unavailable", "version 2, not 1"),
    ("from the future", rewrite(saved=1.8e9 + 60), "unavailable", "written 60 s from now"),
    ("too old", rewrite(saved=1.8e9 - 7200), "unavailable", "2.0 hours old"),
    ("no time", rewrite(saved=float("nan")), "malformed", "damaged"),
    ("odd age", body('{"x":{"age":-5,"memory":1}}'), "malformed", "an age of -5"),
    ("no memory", body('{"x":{"age":1}}'), "malformed", "KeyError"),
    ("a list", body("[]"), "malformed", "damaged"),
    ("anybody's", lambda p: p.chmod(0o666), "denied", "others may write to it"),
    ("a directory", lambda p: (p.unlink(), p.mkdir()), "denied", "no plain file"),
    ("a pipe", lambda p: (p.unlink(), os.mkfifo(p)), "denied", "no plain file"),
    ("a link", linked, "io", "state.json"),
]


@pytest.mark.parametrize(("damage", "reason", "said"), [row[1:] for row in BAD],
                         ids=[row[0] for row in BAD])  # fmt: skip
def test_a_file_that_cannot_be_used_is_told_once_and_replaced(
    damage: Callable[[Path], object], reason: str, said: str, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """One line with file and reason, an empty memory, and a good file with the next news."""
    clock = FakeClock(wall=1.8e9)
    path = saved(tmp_path, clock)
    damage(path)
    memories: dict[str, Any] = {}
    source = sink(tmp_path, memories, clock)
    slot = Board().enroll("state", c.EXPORTER, 5, 15, clock.now)
    runner = Runner(source, Schedule(5, 5), slot, clock)
    for _ in range(3):
        runner.step()

    assert memories == {}
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"reason={reason}" in line
    assert str(path) in line
    assert said in line

    if path.is_dir() and not path.is_symlink():
        path.rmdir()  # a directory is not ours to replace
    memories["x"] = Remembered("new", clock.now)
    assert not [item for item in source.read() if isinstance(item, Fault)]
    assert load(tmp_path, clock)["x"].plain == "new"


@pytest.mark.skipif(not ROOT, reason="only root may give files away")
def test_a_file_that_somebody_else_has_put_there_is_not_believed(tmp_path: Path) -> None:
    """Whoever may write to a shared directory must not make up our counters."""
    clock = FakeClock()
    path = saved(tmp_path, clock)
    os.chown(path, 4242, 4242)
    with pytest.raises(SourceError, match="user 4242 owns it"):
        load(tmp_path, clock)


# ---------------------------------------------------------------- places that cannot be written


def test_a_directory_that_is_none_is_told_and_tried_again(tmp_path: Path) -> None:
    """A file stands where the directory should be: an error with its name, until it is gone."""
    place = tmp_path / "state"
    place.write_text("")
    clock = FakeClock()
    source = sink(place, {"x": Remembered(1, clock.now)}, clock)
    for _ in range(2):
        with pytest.raises(OSError, match="state"):
            list(source.read())
    place.unlink()
    list(source.read())
    assert load(place, clock)["x"].plain == 1


def test_a_full_disk_leaves_the_former_file_and_no_half_one(tmp_path: Path) -> None:
    """The limit on a file's size stands in for the disk: the kernel refuses half-way."""
    import resource
    import signal

    clock = FakeClock()
    path = saved(tmp_path, clock, "former")
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, former[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            sink(tmp_path, {"x": Remembered("new" * 5000, clock.now)}, clock).close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == [path]
    assert load(tmp_path, clock)["x"].plain == "former"


def test_a_half_written_file_of_a_daemon_that_was_killed_is_in_nobodys_way(tmp_path: Path) -> None:
    """kill -9 in the middle of writing: the former file is whole, and the next one is written."""
    clock = FakeClock()
    saved(tmp_path, clock, "former")
    (tmp_path / f"{NAME}.new").write_bytes(b'{"flopwatch_st')
    assert load(tmp_path, clock)["x"].plain == "former"
    saved(tmp_path, clock, "later")
    assert load(tmp_path, clock)["x"].plain == "former"  # news of the same moment is no news
    sink(tmp_path, {"x": Remembered("later", clock.now)}, clock).close()
    assert load(tmp_path, clock)["x"].plain == "later"
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_too_much_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is told; the former file stays."""
    clock = FakeClock()
    saved(tmp_path, clock, "former")
    monkeypatch.setattr(statefile, "LARGEST", 2000)
    with pytest.raises(SourceError, match="more than 2000, not written"):
        sink(tmp_path, {"x": Remembered("x" * 3000, clock.now)}, clock).close()
    assert load(tmp_path, clock)["x"].plain == "former"


def test_what_json_cannot_hold_is_left_out_and_told(tmp_path: Path) -> None:
    """A not-a-number in one memory costs that one."""
    clock = FakeClock()
    memories = {"bad": Remembered(float("nan"), clock.now), "good": Remembered(1, clock.now)}
    faults = [item for item in sink(tmp_path, memories, clock).read() if isinstance(item, Fault)]
    assert [fault.part for fault in faults] == ["bad"]
    assert list(load(tmp_path, clock)) == ["good"]
