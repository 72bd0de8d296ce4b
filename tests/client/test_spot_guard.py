"""The guard of a training loop: what makes it leave, and what it does then."""

from __future__ import annotations

import http.server
import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.client import Run
from exporter.client.sender import Sender
from exporter.client.spot import Guard, _boot, _ending_in, _Watch

ROOT = Path(__file__).parent.parent.parent
NOW = 1.8e9


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No daemon of this machine has a say."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "FLOPWATCH_TOKEN", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLOPWATCH_URL", f"unix://{tmp_path}/nobody.sock")
    monkeypatch.setenv("FLOPWATCH_NOTICES", str(tmp_path / "notices.json"))


class Saver:
    """A checkpoint function that remembers with what it was called."""

    def __init__(self) -> None:
        self.calls: list[float | None] = []

    def __call__(self, left: float | None) -> None:
        self.calls.append(left)


@pytest.fixture
def save() -> Saver:
    return Saver()


@pytest.fixture
def guard(save: Saver) -> Iterator[Callable[..., Guard]]:
    made: list[Guard] = []

    def make(**more: Any) -> Guard:
        made.append(Guard(save, every=0.02, **more))
        return made[-1]

    yield make
    for one in reversed(made):
        one.close()
    assert signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, signal.default_int_handler)


def document(*notices: dict[str, Any], boot: str | None = None, **more: Any) -> str:
    return json.dumps({"boot": _boot() if boot is None else boot, "notices": notices, **more})


def interruption(seconds: float | None = 120.0) -> dict[str, Any]:
    deadline = None if seconds is None else time.time() + seconds
    return {"kind": "interruption", "action": "terminate", "deadline": deadline,
            "seen": time.time()}  # fmt: skip


def wait_until(true: Callable[[], bool]) -> bool:
    until = time.monotonic() + 10
    while time.monotonic() < until and not true():
        time.sleep(0.01)
    return true()


def test_nothing_announced_is_nothing_done(guard: Callable[..., Guard], save: Saver) -> None:
    one = guard()
    for step in range(5):
        one.check(step)
        time.sleep(0.02)
    assert (one.due, one.seconds_left, save.calls) == (False, None, [])


def test_sigterm_saves_once_and_ends_with_the_code(
    guard: Callable[..., Guard], save: Saver
) -> None:
    """In the loop, not in the handler; a second signal and a second check save nothing again."""
    one = guard(grace=30.0, margin=5.0)
    os.kill(os.getpid(), signal.SIGTERM)
    assert wait_until(lambda: one.due)
    assert save.calls == []
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(2):
        with pytest.raises(SystemExit) as end:
            one.check(7)
        assert end.value.code == 143
    assert save.calls == [pytest.approx(25, abs=1)]


def test_a_notice_in_the_file_gives_the_time_that_is_left(
    guard: Callable[..., Guard], save: Saver, tmp_path: Path
) -> None:
    one = guard(margin=10.0)
    (tmp_path / "notices.json").write_text(document(interruption(120.0)))
    assert wait_until(lambda: one.due)
    with pytest.raises(SystemExit):
        one.check(3)
    assert save.calls == [pytest.approx(110, abs=1)]
    assert one.notice is not None
    assert one.notice.reason == "interruption: terminate"


def test_a_signal_after_a_notice_leaves_the_shorter_time(
    guard: Callable[..., Guard], tmp_path: Path
) -> None:
    one = guard(grace=30.0, margin=0.0)
    (tmp_path / "notices.json").write_text(document(interruption(120.0)))
    assert wait_until(lambda: one.due)
    os.kill(os.getpid(), signal.SIGTERM)
    assert wait_until(lambda: (one.seconds_left or 99) < 31)
    assert one.notice is not None
    assert one.notice.reason == "interruption: terminate"


def test_google_gives_no_time_so_the_usual_one_counts(
    guard: Callable[..., Guard], tmp_path: Path
) -> None:
    one = guard(margin=0.0)
    (tmp_path / "notices.json").write_text(
        document(interruption(None), usual_lead_seconds=30.0)
    )  # fmt: skip
    assert wait_until(lambda: one.due)
    assert one.seconds_left == pytest.approx(30, abs=1)


def test_too_little_time_begins_no_checkpoint(
    guard: Callable[..., Guard], save: Saver, tmp_path: Path
) -> None:
    """Half of one, written over the last good one, would cost all."""
    one = guard(needs=60.0)
    (tmp_path / "notices.json").write_text(document(interruption(30.0)))
    assert wait_until(lambda: one.due)
    with pytest.raises(SystemExit):
        one.check()
    assert save.calls == []


def test_all_ranks_leave_at_the_same_step(guard: Callable[..., Guard], save: Saver) -> None:
    """The rank without a notice asks the others; what they agree on counts."""
    asked: list[bool] = []

    def agree(mine: bool) -> bool:
        asked.append(mine)
        return len(asked) == 3

    one = guard(agree=agree)
    one.check(1)
    one.check(2)
    with pytest.raises(SystemExit):
        one.check(3)
    assert asked == [False, False, False]
    assert save.calls == [None]


def test_no_rank_begins_a_checkpoint_that_another_has_no_time_for(
    guard: Callable[..., Guard], save: Saver, tmp_path: Path
) -> None:
    """Ranks at other machines know of no end, and would wait for this one until they are killed."""
    votes: list[list[bool]] = [[], []]

    def agree(mine: bool, *, at: int, other: list[bool]) -> bool:
        votes[at].append(mine)
        return mine or other[len(votes[at]) - 1]

    far = guard(needs=60.0, agree=lambda mine: agree(mine, at=1, other=[True, True]), file="/none")
    (tmp_path / "notices.json").write_text(document(interruption(30.0)))
    near = guard(needs=60.0, agree=lambda mine: agree(mine, at=0, other=[False, False]))
    assert wait_until(lambda: near.due)
    for one in (near, far):
        with pytest.raises(SystemExit):
            one.check(3)
    assert save.calls == []
    assert votes == [[True, True], [False, False]]


def test_a_save_that_takes_no_time_is_refused_at_the_start() -> None:
    """Not when the machine is taken away."""
    with pytest.raises(TypeError, match="seconds that are left"):
        Guard(lambda: None)  # type: ignore[arg-type,misc]


def test_a_checkpoint_that_fails_is_the_script_s_to_see(guard: Callable[..., Guard]) -> None:
    def broken(_: float | None) -> None:
        raise OSError("disk full")

    one = Guard(broken, every=0.02)
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: one.due)
        with pytest.raises(OSError, match="disk full"):
            one.check(1)
        with pytest.raises(SystemExit):
            one.check(1)
    finally:
        one.close()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"notices": 7}', '{"notices": [7, null, {}]}', "\x00" * 100,
     '{"notices": [{"kind": "interruption"}], "boot": "another"}',
     '{"notices": [{"kind": "rebalance", "action": "replace"}]}', "[" * 100_000],
)  # fmt: skip
def test_a_file_that_announces_nothing_for_us_is_no_notice(
    guard: Callable[..., Guard], tmp_path: Path, text: str
) -> None:
    (tmp_path / "notices.json").write_text(text)
    one = guard()
    time.sleep(0.15)
    assert not one.due


@pytest.mark.parametrize(
    "text",
    ['{"notices": [{"kind": "maintenance", "action": []}]}',
     '{"usual_lead_seconds": 1' + "0" * 400 + ', "notices": []}', '{"written": NaN}'],
)  # fmt: skip
def test_a_damaged_file_does_not_end_the_watch(
    guard: Callable[..., Guard], tmp_path: Path, text: str
) -> None:
    """The next one may hold a notice."""
    path = tmp_path / "notices.json"
    path.write_text(text)
    one = guard()
    time.sleep(0.1)
    assert not one.due
    path.write_text(document(interruption()))
    assert wait_until(lambda: one.due)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, 10**400])
def test_a_time_that_is_none_is_not_known(seconds: float) -> None:
    one = {"kind": "interruption", "action": "terminate", "deadline": seconds, "seen": NOW}
    found = _ending_in({"notices": [one]}, NOW)
    assert found is not None
    assert found.deadline is None


@pytest.mark.parametrize(
    ("action", "past", "holds"),
    [("interruption", 600.0, True), ("reboot", 600.0, False), ("reboot", -100.0, True)],
)
def test_a_file_that_is_no_longer_written_keeps_no_job_from_starting(
    guard: Callable[..., Guard], tmp_path: Path, action: str, past: float, holds: bool
) -> None:
    """Work that was called off after the daemon had gone would end each job at its first step."""
    now = time.time()
    kind = "maintenance" if action == "reboot" else "interruption"
    work = {"kind": kind, "action": action, "seen": now - 9000, "deadline": now - past}
    (tmp_path / "notices.json").write_text(document(work, written=now - 3600))
    one = guard()
    time.sleep(0.15)
    assert one.due is holds


@pytest.mark.parametrize(("age", "asks"), [(5.0, False), (3600.0, True)])
def test_a_daemon_that_does_not_write_its_file_any_more_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, age: float, asks: bool
) -> None:
    """It may have been started anew without one, or its disk is full."""
    (tmp_path / "notices.json").write_text(document(written=time.time() - age))
    watch = _Watch(None, None)
    told = {"provider": "aws", "notices": [interruption()]}
    monkeypatch.setattr(watch, "_from_daemon", lambda: told)
    assert (watch.look() is not None) is asks


@pytest.mark.parametrize(("age", "holds"), [(5.0, True), (3600.0, False)])
def test_in_a_container_with_a_kernel_of_its_own_a_file_just_written_counts(
    guard: Callable[..., Guard], tmp_path: Path, age: float, holds: bool
) -> None:
    """Its boot id is another one than the node's; an old file is one of the machine's last life."""
    (tmp_path / "notices.json").write_text(
        document(interruption(), boot="another", written=time.time() - age)
    )
    one = guard()
    time.sleep(0.15)
    assert one.due is holds


@pytest.mark.parametrize(
    ("action", "seconds", "leaves"),
    [("terminate", None, True), ("reboot", 100.0, True), ("reboot", 86_400.0, False),
     ("freeze", 100.0, False), ("migrate", 100.0, False)],
)  # fmt: skip
def test_work_on_the_host_ends_a_job_shortly_before_it(
    action: str, seconds: float | None, leaves: bool
) -> None:
    """It may be announced days ahead, and a machine that moves or freezes keeps its processes."""
    deadline = None if seconds is None else NOW + seconds
    one = {"kind": "maintenance", "action": action, "deadline": deadline, "seen": NOW}
    assert (_ending_in({"notices": [one]}, NOW) is not None) is leaves


def test_without_a_file_the_daemon_is_asked(
    guard: Callable[..., Guard], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = document(interruption(60.0)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        one = guard(url=f"http://127.0.0.1:{server.server_address[1]}/daemon")
        assert wait_until(lambda: one.due)
    finally:
        server.shutdown()
        server.server_close()
    assert set(asked) == {"/daemon/spot"}


def test_a_worker_that_was_forked_ends_as_ever(tmp_path: Path) -> None:
    """A loader's worker inherits the handler: SIGTERM ends it, and saves nothing."""
    script = textwrap.dedent("""
        import os, signal, sys, time
        from exporter.client.spot import Guard
        guard = Guard(lambda left: print("saved", flush=True), every=0.05)
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
        time.sleep(0.3)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        print(os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGTERM, guard.due)
    """)
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    assert result.stdout == "True False\n"


def test_a_worker_that_computes_ends_at_once(tmp_path: Path) -> None:
    """A handler in Python would wait for the end of that, and who joins the worker with it."""
    script = textwrap.dedent("""
        import hashlib, os, signal, time
        from exporter.client.spot import Guard
        guard = Guard(lambda left: None, every=0.05)
        child = os.fork()
        if child == 0:
            hashlib.pbkdf2_hmac("sha256", b"", b"", 1 << 30)
        time.sleep(0.5)
        os.kill(child, signal.SIGTERM)
        print(os.WTERMSIG(os.waitpid(child, 0)[1]), guard.due)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
        print(guard.due)
    """)
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    assert result.stdout == "15 False\nTrue\n"


def test_closing_in_another_thread_is_no_error(guard: Callable[..., Guard]) -> None:
    """Signals belong to the main thread: there they can be let go later."""
    one, failed = guard(), list[BaseException]()
    former = threading.excepthook
    threading.excepthook = lambda told: failed.append(told.exc_value or SystemExit())
    try:
        thread = threading.Thread(target=one.close)
        thread.start()
        thread.join()
    finally:
        threading.excepthook = former
    assert failed == []


# ---------------------------------------------------------------- what is told of it


_TOLD: dict[int, list[dict[str, Any]]] = {}


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what a run tells; its thread takes it from the queue at once."""
    _TOLD.clear()
    tell = Sender.tell

    def keep(self: Sender, moment: dict[str, Any]) -> None:
        _TOLD.setdefault(id(self), []).append(moment)
        tell(self, moment)

    monkeypatch.setattr(Sender, "tell", keep)


def told(run: Run) -> list[dict[str, Any]]:
    """Return the moments that a run has told."""
    return _TOLD.get(id(run._sender), [])


def test_an_interruption_is_told_and_marked_and_the_next_start_tells_it_again(
    guard: Callable[..., Guard], tmp_path: Path
) -> None:
    """To the letter, so that a daemon that knows it counts it once; then it is forgotten."""
    marker = tmp_path / "interrupted.json"
    run = Run("spot-run")
    one = guard(run=run, marker=marker)
    os.kill(os.getpid(), signal.SIGTERM)
    wait_until(lambda: one.due)
    with pytest.raises(SystemExit), run:
        one.check(41)
    kinds = [moment["moment"] for moment in told(run)]
    assert kinds == ["started", "interrupted", "checkpoint_saved"]
    interrupted = told(run)[1]
    assert (interrupted["step"], interrupted["detail"]) == (41, "signal SIGTERM")
    one.close()

    other = Run("spot-run")
    again = guard(run=other, marker=marker)
    again.resumed(41)
    moments = told(other)
    assert [moment["moment"] for moment in moments] == [
        "started", "interrupted", "checkpoint_loaded"
    ]  # fmt: skip
    assert moments[1] == interrupted
    again.check(42)
    assert not marker.exists()


def test_a_start_that_comes_to_no_step_leaves_the_marker_to_the_next_one(
    guard: Callable[..., Guard], tmp_path: Path
) -> None:
    """A launcher starts the run again on the machine that is about to go; then it goes on."""
    marker = tmp_path / "interrupted.json"
    with pytest.raises(SystemExit):
        guard(run=Run("spot-run"), marker=marker).leave()
    first = marker.read_text()
    for again in (guard(run=Run("spot-run"), marker=marker) for _ in range(2)):
        again.resumed(41)
        assert marker.read_text() == first
    with pytest.raises(SystemExit):
        again.leave()
    assert marker.read_text() == first


def test_only_the_rank_that_speaks_for_the_run_tells_and_marks(
    guard: Callable[..., Guard], tmp_path: Path
) -> None:
    marker = tmp_path / "interrupted.json"
    run = Run("spot-run", rank=3, world_size=8)
    one = guard(run=run, marker=marker)
    with pytest.raises(SystemExit), run:
        one.leave()
    assert told(run) == []
    assert not marker.exists()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"flopwatch_interrupted": 7}', "\x80"])
def test_a_marker_that_makes_no_sense_keeps_nobody_from_training(
    guard: Callable[..., Guard], tmp_path: Path, text: str
) -> None:
    marker = tmp_path / "interrupted.json"
    marker.write_bytes(text.encode("latin-1"))
    run = Run("spot-run")
    guard(run=run, marker=marker).resumed(5)
    assert [moment["moment"] for moment in told(run)] == ["started", "checkpoint_loaded"]


def test_the_elastic_agent_of_this_node_is_ended_where_that_is_wanted(tmp_path: Path) -> None:
    """Else it would start the job again on a machine that is about to go."""
    script = textwrap.dedent("""
        import sys
        from exporter.client.spot import Guard
        Guard(lambda left: None, stop_agent=True, every=0.05).leave()
    """)
    agent = textwrap.dedent(f"""
        import signal, subprocess, sys
        heard = []
        signal.signal(signal.SIGTERM, lambda *_: heard.append(1))
        code = subprocess.run([sys.executable, "-c", {script!r}]).returncode
        print(code, len(heard))
    """)
    for name, expected in (("TORCHELASTIC_RUN_ID", "143 1\n"), ("OTHER", "143 0\n")):
        result = subprocess.run(
            [sys.executable, "-c", agent], cwd=ROOT, capture_output=True, text=True, timeout=60,
            env={**os.environ, name: "job-1"}, check=True,
        )  # fmt: skip
        assert result.stdout == expected


def test_a_run_that_tells_nothing_goes_on_after_an_interruption(
    guard: Callable[..., Guard], tmp_path: Path
) -> None:
    """A marker that another start has left is no reason to fail."""
    marker = tmp_path / "interrupted.json"
    marker.write_text('{"flopwatch_interrupted": {"moment": "interrupted"}}')
    guard(run=Run(enabled=False), marker=marker).resumed(5)
    assert marker.exists()
