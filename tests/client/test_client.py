"""The client as a training script has it: what it tells, and what it does not do to the script."""

from __future__ import annotations

import ast
import contextlib
import http.server
import json
import logging
import os
import pickle
import shutil
import socket
import socketserver
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.client import Run
from exporter.client import environment as env
from exporter.client.address import Place, places
from exporter.client.run import FACTS, NUMBERS, PHASES
from exporter.formats.pushes import _FACTS, _STEP, read
from exporter.training import PHASES as KNOWN_PHASES
from exporter.training import Facts, Moment, Step

ROOT = Path(__file__).parent.parent.parent
CLIENT = ROOT / "exporter/client"
LAUNCHERS = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
    "OMPI_COMM_WORLD_RANK", "PMI_RANK", "CUDA_VISIBLE_DEVICES", "FLOPWATCH_URL",
    "FLOPWATCH_TOKEN", "FLOPWATCH_TOKEN_FILE", "FLOPWATCH_RUN", "FLOPWATCH_SUBMITTED",
)  # fmt: skip


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No launcher's environment, and the hook for exceptions as it was."""
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    return


class Hand:
    """The hand of a clock that a test moves: neighbours on the machine have no say in it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Hand:
    made = Hand()
    monkeypatch.setattr("exporter.client.run._clock", made)
    return made


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass  # clients that have gone


class Listener:
    """A stand-in for the daemon on a unix socket that keeps what it is sent, and reads it as it.

    `answers` are statuses to be given first; -1 breaks the connection after the body was read.
    """

    def __init__(self, path: Path, *answers: int) -> None:
        self.path = path
        self.url = f"unix://{path}"
        self.records: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.requests = 0
        self.peers: list[socket.socket] = []
        listener, pending = self, list(answers)

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                listener.peers.append(self.request)
                super().setup()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                listener.requests += 1
                listener.headers.append(dict(self.headers))
                status = pending.pop(0) if pending else 200
                if status in {200, -1}:
                    found = read(body, 1000)
                    assert found.refused == ()
                    assert found.ignored == ()
                    listener.records += [record for _, record in found.records]
                if status == -1:
                    self.close_connection = True
                    return
                answer = b'{"new":1,"known":0,"refused":[]}' if status == 200 else b'{"error":"no"}'
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def address_string(self) -> str:
                return "unix"

            def log_message(self, *_: object) -> None:
                pass

        self._server = _Server(str(path), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        for peer in self.peers:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
        self._thread.join()
        self.path.unlink(missing_ok=True)

    def of(self, kind: type) -> list[Any]:
        return [record for record in self.records if isinstance(record, kind)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def listener(folder: Path) -> Iterator[Listener]:
    made = Listener(folder / "s")
    yield made
    made.stop()


def eventually(holds: Callable[[], object], seconds: float = 10) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        threading.Event().wait(0.01)


def finish(run: Run) -> None:
    """End a run and wait until all of it is sent."""
    run.end()
    assert run._sender is not None
    run._sender.flush(10)


# ---------------------------------------------------------------- what is told


def test_all_names_are_those_of_the_records() -> None:
    """A field that is added to a record can be told; the two lists are kept apart on purpose."""
    own = {"run", "step", "rank", "attempt", "steps", "scope", "wall", "seconds", "phases"}
    assert set(_STEP) - own == NUMBERS
    own = {"run", "world_size", "local_ranks", "submitted", "nccl", "nccl_ranks"}
    assert set(_FACTS) - own == FACTS
    assert set(KNOWN_PHASES) == PHASES


def test_a_loop_is_told_step_by_step(listener: Listener, hand: Hand) -> None:
    """Steps with times and numbers, facts, and the moments of a run."""
    run = Run("a", world_size=2, rank=0, gpu=5, url=listener.url, sequence_length=128, submitted=9)
    for _ in run.data([1, 2, 3]):
        with run.step(tokens=100) as step:
            step.note(loss=0.5)
            hand.spend(0.01)
    with run.checkpoint():
        hand.spend(0.02)
    finish(run)

    steps = listener.of(Step)
    assert [(one.step, one.rank, one.tokens, one.loss) for one in steps] == [
        (n, 0, 100, 0.5) for n in (1, 2, 3)
    ]
    assert all(
        one.seconds == pytest.approx(0.01) and abs(one.wall - time.time()) < 60 for one in steps
    )
    (facts,) = listener.of(Facts)
    assert (facts.world_size, facts.sequence_length, facts.submitted) == (2, 128, 9)
    assert facts.local_ranks == {0: 5}
    moments = {one.kind: one for one in listener.of(Moment)}
    assert set(moments) == {"submitted", "started", "first_step", "checkpoint_saved", "ended"}
    assert moments["first_step"].step == 1
    assert moments["checkpoint_saved"].seconds == pytest.approx(0.02)
    assert len({one.attempt for one in (*steps, *moments.values())}) == 1


def test_phases_count_what_no_inner_one_has(listener: Listener, hand: Hand) -> None:
    """A wait within the backward pass is communication, and not both."""
    run = Run("a", url=listener.url)
    with run.step() as step:
        with step.phase("backward"):
            hand.spend(0.02)
            with step.phase("communication"):
                hand.spend(0.05)
            hand.spend(0.02)
        with step.phase("dreaming"):
            hand.spend(0.01)
        hand.spend(0.02)
    finish(run)

    (told,) = listener.of(Step)
    assert told.phases["backward"] == pytest.approx(0.04)
    assert told.phases["communication"] == pytest.approx(0.05)
    assert told.phases["other"] == pytest.approx(0.01)
    assert told.seconds == pytest.approx(0.12)


def test_waiting_for_data_is_part_of_the_step_that_follows(listener: Listener, hand: Hand) -> None:
    """The loop is held up by it, though it lies before the step's context."""

    def slow() -> Iterator[int]:
        for n in range(2):
            hand.spend(0.03)
            yield n

    run = Run("a", url=listener.url)
    for _ in run.data(slow()):
        with run.step():
            hand.spend(0.01)
    finish(run)

    for told in listener.of(Step):
        assert told.phases["data"] == pytest.approx(0.03)
        assert told.seconds == pytest.approx(0.04)


def test_a_checkpoint_within_a_step_is_a_phase_of_it(listener: Listener, hand: Hand) -> None:
    """And a moment all the same."""
    run = Run("a", url=listener.url)
    with run.step(), run.checkpoint():
        hand.spend(0.02)
    finish(run)
    (told,) = listener.of(Step)
    assert told.phases["checkpoint"] == pytest.approx(0.02)
    assert "checkpoint_saved" in {one.kind for one in listener.of(Moment)}


def test_plain_steps_are_timed_from_call_to_call(listener: Listener, hand: Hand) -> None:
    """The first one's time is not known; one that is given is taken."""
    run = Run("a", url=listener.url)
    run.log_step(10, tokens=5)
    hand.spend(0.04)
    run.log_step(12, steps=2, loss=0.1)
    run.log_step(seconds=7.0)
    finish(run)
    first, second, third = listener.of(Step)
    assert first.seconds is None
    assert second.seconds == pytest.approx(0.02)
    assert (second.steps, third.step, third.seconds) == (2, 13, 7.0)


def test_only_rank_0_tells_what_is_the_runs(listener: Listener) -> None:
    """Every rank tells its own times; a sum over ranks counts no token twice."""
    run = Run("a", rank=1, world_size=2, url=listener.url)
    with run.step(tokens=100, loss=0.5, memory_bytes=7):
        pass
    with run.checkpoint():
        pass
    finish(run)
    (told,) = listener.of(Step)
    assert (told.tokens, told.loss, told.memory_bytes) == (None, None, 7)
    assert told.seconds is not None
    assert listener.of(Moment) == []


def test_with_the_scope_of_a_rank_each_tells_its_tokens(listener: Listener) -> None:
    """As a data-parallel script knows them."""
    run = Run("a", rank=1, world_size=2, scope="rank", url=listener.url)
    with run.step(tokens=50, loss=0.5):
        pass
    finish(run)
    (told,) = listener.of(Step)
    assert (told.scope, told.tokens, told.loss) == ("rank", 50, None)


def test_any_rank_may_tell_a_failure(listener: Listener) -> None:
    """Rank 0 may hang in a collective while another has died."""
    run = Run("a", rank=1, world_size=2, url=listener.url)
    run.fail("ECC error")
    run.end()
    run.fail("again")
    assert run._sender is not None
    run._sender.flush(10)
    (moment,) = listener.of(Moment)
    assert (moment.kind, moment.rank, moment.detail) == ("failed", 1, "ECC error")


def test_a_run_goes_on_from_a_checkpoint(listener: Listener) -> None:
    """Its steps are numbered on."""
    run = Run("a", url=listener.url)
    run.resume(500, seconds=3.0)
    with run.step():
        pass
    finish(run)
    assert [one.step for one in listener.of(Step)] == [501]
    loaded = next(one for one in listener.of(Moment) if one.kind == "checkpoint_loaded")
    assert (loaded.step, loaded.seconds) == (500, 3.0)


class Tensor:
    """What a tensor has that may not be touched: asking for its value waits for the GPU."""

    def touched(self, *_: object) -> Any:
        raise AssertionError("a tensor was asked for its value")

    __float__ = __int__ = __index__ = __bool__ = __len__ = __format__ = item = tolist = touched
    __repr__ = __str__ = touched


def test_nothing_is_asked_of_a_tensor(listener: Listener, caplog: Any) -> None:
    """It is left out, told once, and not kept alive."""
    import weakref

    run, tensor = Run("a", url=listener.url), Tensor()
    gone = weakref.ref(tensor)
    with caplog.at_level(logging.DEBUG, "flopwatch"):
        for _ in range(3):
            with run.step(loss=tensor, tokens=5):
                pass
        run.log_step(loss=tensor)
    del tensor
    assert gone() is None
    finish(run)
    assert [one.tokens for one in listener.of(Step)] == [5, 5, 5, None]
    assert [one.loss for one in listener.of(Step)] == [None] * 4
    assert [one.getMessage() for one in caplog.records] == [
        "flopwatch: loss is a Tensor and is not told: give a plain number"
    ]


def test_what_counts_as_a_number_is_one(listener: Listener) -> None:
    """numpy registers its scalars so; True is no number, and NaN is news."""
    from fractions import Fraction

    run = Run("a", url=listener.url)
    with run.step(loss=Fraction(1, 2), tokens=True, gradient_norm=float("nan")):
        pass
    finish(run)
    (told,) = listener.of(Step)
    assert (told.loss, told.tokens) == (0.5, None)
    assert told.gradient_norm != told.gradient_norm


def test_of_a_configuration_what_json_cannot_hold_is_left_out(listener: Listener) -> None:
    """Types, and tables of a thousand labels."""
    config = {"hidden_size": 64, "dtype": object(), "id2label": {str(n): "x" for n in range(9999)}}
    run = Run("a", url=listener.url, config=config, wrong=1)
    finish(run)
    (facts,) = listener.of(Facts)
    assert facts.config == {"hidden_size": 64}


# ---------------------------------------------------------------- where and who


class _Group:
    """As `torch.distributed` looks in a process that `torch.multiprocessing.spawn` has made."""

    def __init__(self, *, ready: bool) -> None:
        self.ready = ready

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return self.ready

    def get_rank(self) -> int:
        return 3

    def get_world_size(self) -> int:
        return 8


def test_ranks_that_a_script_has_spawned_itself_do_not_each_speak_for_the_run(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is in their environment; eight of them counted each step eight times."""
    monkeypatch.setitem(sys.modules, "torch.distributed", _Group(ready=True))  # type: ignore[arg-type]
    run = Run("llama", url=listener.url)
    with run.step(tokens=100):
        pass
    finish(run)
    (step,) = listener.of(Step)
    assert (step.rank, step.tokens) == (3, None)
    assert listener.of(Facts)[0].world_size == 8


@pytest.mark.parametrize("group", [None, object(), _Group(ready=False)])
def test_without_a_process_group_no_rank_is_made_up(
    group: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be of another version, or not be set up yet."""
    monkeypatch.setitem(sys.modules, "torch.distributed", group)  # type: ignore[arg-type]
    assert env.find_group(sys.modules) == env.Place()


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, (3, 8, 1)),
        ({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"}, (3, 8, 1)),
        # torchrun below srun: one task of Slurm on each node
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "RANK": "9", "WORLD_SIZE": "16"},
         (9, 16, None)),
        # a batch script's own process
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, (None, None, None)),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, (0, 2, None)),
        ({"RANK": "8", "WORLD_SIZE": "8"}, (None, None, None)),
        ({"RANK": "x", "WORLD_SIZE": ""}, (None, None, None)),
        ({}, (None, None, None)),
    ],
)  # fmt: skip
def test_the_place_comes_from_the_launcher(
    environment: dict[str, str], place: tuple[int | None, ...]
) -> None:
    """Rank, size and local rank of one launcher, never mixed."""
    assert env.find_place(environment) == place


@pytest.mark.parametrize(
    ("visible", "local", "gpu"),
    [
        (None, 3, 3), (None, None, None), ("4,5,6,7", 1, 5), ("6", 3, 6),
        ("GPU-aa,GPU-bb", 1, None), ("0,1", 5, None), ("", 0, None),
    ],
)  # fmt: skip
def test_the_gpu_is_the_one_of_the_local_rank(
    visible: str | None, local: int | None, gpu: int | None
) -> None:
    """By custom; where it cannot be known it is not told."""
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert env.find_gpu(environment, local) == gpu


def test_addresses() -> None:
    """A unix socket or a node; without one the socket of this node, then its loopback."""
    assert places("unix:///run/x.sock") == [Place(socket="/run/x.sock")]
    assert places("http://node:9810/flopwatch/") == [Place("", "http", "node", 9810, "/flopwatch")]
    assert places("http://[::1]:1") == [Place("", "http", "::1", 1)]
    assert places("") == [
        Place(socket="/run/flopwatch/push.sock"), Place("", "http", "127.0.0.1", 9810),
    ]  # fmt: skip
    for wrong in ("node:9810", "ftp://x", "unix://", "unix://x", "http://"):
        with pytest.raises(ValueError, match="unix:///path"):
            places(wrong)


def test_a_token_is_sent_and_its_file_read_anew(listener: Listener, folder: Path) -> None:
    """At each connection."""
    (folder / "token").write_text("first-token-of-the-job\n")
    run = Run("a", url=listener.url, token_file=str(folder / "token"))
    finish(run)
    assert listener.headers[0]["Authorization"] == "Bearer first-token-of-the-job"


def test_a_token_is_sent_only_where_it_was_given_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever listens on this node's port without being asked gets none."""
    from exporter.client.address import Line, Secrets

    assert Line("", Secrets("secret-token"), 1)._token() == ""
    assert Line("http://node:1", Secrets("secret-token"), 1)._token() == "secret-token"


# ---------------------------------------------------------------- what it does not do


def test_a_lost_answer_is_sent_again(folder: Path) -> None:
    """And the daemon, which has all of it, counts it once."""
    listener = Listener(folder / "s", -1)
    run = Run("a", url=listener.url)
    run.log_step(1)
    eventually(lambda: len(listener.of(Step)) >= 2)
    run.end()
    listener.stop()
    assert {one.step for one in listener.of(Step)} == {1}


def test_a_daemon_that_restarts_gets_what_was_told_meanwhile(folder: Path) -> None:
    """And the facts once more, which it has forgotten."""
    listener = Listener(folder / "s")
    run = Run("a", url=listener.url, world_size=4)
    run.log_step(1)
    eventually(lambda: listener.of(Step))
    listener.stop()
    run.log_step(2)
    time.sleep(1.5)
    again = Listener(folder / "s")
    run.log_step(3)
    eventually(lambda: len(again.of(Step)) == 2, 20)
    run.end()
    again.stop()
    assert [one.step for one in again.of(Step)] == [2, 3]
    assert [one.world_size for one in again.of(Facts)] == [4]


def test_a_daemon_that_is_busy_is_asked_again(folder: Path) -> None:
    """429 and 503 lose nothing."""
    listener = Listener(folder / "s", 429, 503)
    run = Run("a", url=listener.url)
    run.log_step(1)
    eventually(lambda: listener.of(Step), 20)
    run.end()
    listener.stop()


def test_while_nobody_listens_the_oldest_are_lost_and_counted(folder: Path, caplog: Any) -> None:
    """Memory has a limit, and the log one line."""
    run = Run("a", url=f"unix://{folder}/nobody")
    with caplog.at_level(logging.DEBUG, "flopwatch"):
        for n in range(5000):
            with run.step(tokens=n):
                pass
        eventually(lambda: len(caplog.records) == 1)
        run.end()
        assert run._sender is not None
        run._sender.flush(5)
    assert run.dropped >= 5000 - 4096 - 200
    assert len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.DEBUG


def test_a_run_that_has_ended_is_told_again_if_need_be(folder: Path) -> None:
    """The script goes on with something else, and the daemon was busy just then."""
    listener = Listener(folder / "s", 503)
    run = Run("a", url=listener.url)
    run.log_step(1)
    run.end()
    eventually(lambda: listener.of(Step))
    listener.stop()


def test_refused_records_are_told_once(folder: Path, caplog: Any) -> None:
    """The script's author should know; its log should stay readable."""
    listener = Listener(folder / "s", 400, 400)
    run = Run("a", url=listener.url)
    with caplog.at_level(logging.DEBUG, "flopwatch"):
        run.log_step(1)
        eventually(lambda: listener.requests == 1)
        run.log_step(2)
        eventually(lambda: listener.requests == 2)
        run.end()
    listener.stop()
    assert [one.getMessage() for one in caplog.records] == [
        'flopwatch refuses records: {"error":"no"}'
    ]


@pytest.mark.parametrize(
    "misuse",
    [
        lambda run: run.log_step("seven", seconds="long", phases=5),
        lambda run: run.log_step(steps=0),
        lambda run: run.step([]).phase(7).__enter__(),
        lambda run: run.step().__exit__(None, None, None),
        lambda run: run.step().phase("data").__exit__(None, None, None),
        lambda run: run.know(config=5),
        lambda run: run.know(config={"x": 1 << 70000}),
        lambda run: run.resume("x"),
        lambda run: run.fail(5),
        lambda run: run.log_step(tokens=1 << 70000),
        lambda run: Run(7, rank="x", world_size=[], url="nonsense", submitted="soon").log_step(1),
        lambda run: Run("a", url="http://\n", token="a\nb").log_step(1),
        lambda run: Run(url=Path("/run/x"), token=5, step="x").step(tokens=1).__enter__(),
        lambda run: Run("a", token_file="/nowhere").log_step(1),
    ],
)
def test_misuse_raises_nothing(misuse: Callable[[Run], object], listener: Listener) -> None:
    """And what is told afterwards still arrives."""
    run = Run("a", url=listener.url)
    misuse(run)
    run._over = False
    other = Run("b", url=listener.url)
    other.log_step(3)
    finish(other)
    assert [one.step for one in listener.of(Step) if one.run == "b"] == [3]


def test_an_exception_passes_through(listener: Listener) -> None:
    """The step is not told, for the script may try again; the run's context tells the end."""
    run = Run("a", url=listener.url)
    with pytest.raises(ZeroDivisionError), run, run.step() as step, step.phase("forward"):
        _ = 1 / 0
    assert run._sender is not None
    run._sender.flush(10)
    assert listener.of(Step) == []
    assert [(one.kind, one.detail) for one in listener.of(Moment)] == [
        ("started", ""), ("failed", "ZeroDivisionError"),
    ]  # fmt: skip


def test_a_run_that_is_pickled_into_a_worker_is_silent_there() -> None:
    """Data sets that hold on to a run can go to the workers of a loader."""
    run = Run("a", url="unix:///nowhere")
    copy = pickle.loads(pickle.dumps(run))
    with copy.step() as step, step.phase("data"):
        pass
    copy.log_step(1)
    copy.end()
    assert copy._sender is None
    run.end()


def test_many_runs_leave_no_threads(listener: Listener) -> None:
    """A search over settings makes a thousand runs in one process."""
    before = set(threading.enumerate())
    for n in range(20):
        Run(f"r{n}", url=listener.url).end()
    ours = [t for t in threading.enumerate() if t.name == "flopwatch" and t not in before]
    eventually(lambda: not any(t.is_alive() for t in ours))
    assert len({one.run for one in listener.of(Moment)}) == 20


# ---------------------------------------------------------------- as a process

JOB = """
import logging, os, sys, threading, time
logging.basicConfig(level="DEBUG")
from flopwatch_client import Run
run = Run("job", url=sys.argv[1], world_size=1)
"""


def start(folder: Path, script: str, url: str, python: str = sys.executable) -> Any:
    """Run a script in a process that has nothing but the client's folder under another name."""
    shutil.copytree(
        CLIENT, folder / "flopwatch_client", dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("__pycache__"),
    )  # fmt: skip
    (folder / "job.py").write_text(JOB + textwrap.dedent(script))
    began = time.monotonic()
    ended = subprocess.run(
        [python, "-S", "-E", str(folder / "job.py"), url],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return ended, time.monotonic() - began


def test_a_script_that_just_ends_has_told_everything(listener: Listener, folder: Path) -> None:
    """The last second of a job is not lost, and its end is told."""
    ended, _ = start(folder, "for n in range(3):\n    with run.step(): pass\n", listener.url)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [one.step for one in listener.of(Step)] == [1, 2, 3]
    assert [one.kind for one in listener.of(Moment)][-1] == "ended"


def test_a_script_that_dies_of_an_exception_has_failed(listener: Listener, folder: Path) -> None:
    """Its traceback and exit code are as they were."""
    ended, _ = start(folder, "with run.step(): pass\nraise MemoryError('x')\n", listener.url)
    assert ended.returncode == 1
    assert ended.stderr.endswith("MemoryError: x\n")
    last = listener.of(Moment)[-1]
    assert (last.kind, last.detail, last.step) == ("failed", "MemoryError", 1)


def test_leaving_the_context_by_an_exit_code_is_a_failure(listener: Listener, folder: Path) -> None:
    """`sys.exit(0)` is none."""
    for code, kind in ((3, "failed"), (0, "ended")):
        ended, _ = start(folder, f"with run:\n    sys.exit({code})\n", listener.url)
        assert ended.returncode == code
        assert listener.of(Moment)[-1].kind == kind


@contextlib.contextmanager
def hanging(folder: Path, how: str) -> Iterator[str]:
    """Whoever does not answer: accepts and is silent, or does not even accept."""
    with socket.socket(socket.AF_UNIX) as server, contextlib.ExitStack() as stack:
        server.bind(str(folder / "h"))
        server.listen(0 if how == "full" else 9)
        if how == "full":
            for _ in range(2):
                one = stack.enter_context(socket.socket(socket.AF_UNIX))
                one.setblocking(False)
                one.connect_ex(str(folder / "h"))
        yield f"unix://{folder}/h"


@pytest.mark.parametrize("how", ["silent", "full", "down", "nonsense"])
def test_a_script_ends_in_time_whatever_the_daemon_does(folder: Path, how: str) -> None:
    """Down: at once. Hung: a second later. And with at most one line in its log."""
    script = "for n in range(3000):\n    with run.step(tokens=n): pass\nprint('done')\n"
    with contextlib.ExitStack() as stack:
        if how in {"silent", "full"}:
            url = stack.enter_context(hanging(folder, how))
        else:
            url = f"unix://{folder}/nobody" if how == "down" else "http://"
        ended, seconds = start(folder, script, url)
    assert (ended.returncode, ended.stdout) == (0, "done\n")
    assert len(ended.stderr.splitlines()) <= 1, ended.stderr
    assert seconds < (6 if how in {"silent", "full"} else 5)


def test_a_fork_neither_hangs_nor_tells_for_its_parent(listener: Listener, folder: Path) -> None:
    """Workers of a loader are forks; what waits in the parent's queue is the parent's to send."""
    script = """
    for n in range(50):
        with run.step(tokens=n): pass
    for _ in range(20):
        child = os.fork()
        if child == 0:
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with run.step(): pass
    """
    ended, _ = start(folder, script, listener.url)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [one.step for one in listener.of(Step)] == list(range(1, 71))
    kinds = [one.kind for one in listener.of(Moment)]
    assert kinds.count("ended") == kinds.count("started") == 1


def test_a_fork_that_tells_steps_itself_may(listener: Listener, folder: Path) -> None:
    """It has a thread of its own then."""
    script = """
    child = os.fork()
    if child == 0:
        run.log_step(77)
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    """
    ended, _ = start(folder, script, listener.url)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [one.step for one in listener.of(Step)] == [77]


# ---------------------------------------------------------------- old Pythons


@pytest.mark.parametrize("path", sorted(CLIENT.glob("*.py")), ids=lambda path: path.name)
def test_it_is_written_in_python_39(path: Path) -> None:
    """Jobs run old Pythons: by its grammar, and without names that came later."""
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "typing":
            later = {"Self", "TypeAlias", "ParamSpec", "assert_never", "override", "NotRequired"}
            assert not {one.name for one in node.names} & later
        if isinstance(node, ast.Call):
            assert not {one.arg for one in node.keywords} & {"slots", "kw_only"}
            strict = [one for one in node.keywords if one.arg == "strict"]
            assert not (strict and isinstance(node.func, ast.Name) and node.func.id == "zip")


def test_it_runs_on_the_oldest_python_there_is(listener: Listener, folder: Path) -> None:
    """3.9 where this machine has it, else the oldest one."""
    found = (_python(f"3.{minor}") for minor in range(9, sys.version_info.minor))
    python = next(filter(None, found), sys.executable)
    script = """
    with run.step(tokens=5) as step, step.phase("data"): pass
    with run.checkpoint(): pass
    """
    ended, _ = start(folder, script, listener.url, python)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [one.tokens for one in listener.of(Step)] == [5]


def _python(version: str) -> str | None:
    name = shutil.which(f"python{version}")
    for path in (name, *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))):
        if path is not None:
            asked = subprocess.run([path, "--version"], capture_output=True, check=False)
            if asked.returncode == 0:
                return path
    return None


def test_json_is_what_is_sent(listener: Listener) -> None:
    """Text that any HTTP client could have written."""
    run = Run("a", url=listener.url)
    finish(run)
    assert listener.headers[0]["Content-Type"] == "application/json"
    assert json.dumps(listener.headers[0]).count("Authorization") == 0
    assert os.getpid() == run._pid
