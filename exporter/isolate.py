"""A source in a child process of its own, for readers that may hang or crash.

A call that hangs in a driver cannot be cancelled, and a crash in it takes its process along. So
`Isolated` is a source whose reading happens in `python -m exporter.isolate NAME`: one byte asks
for a read, a length-prefixed reply answers it. Replies hold plain values and no classes, and come
from our own child only. After a deadline the parent reports `timeout` and asks nothing more until
the late reply arrives; it never starts a second child beside a stuck one. A child that died is
started again at the next read; the runner's backoff sets the pace. What a child remembers (its own
counters) comes with each reply and is handed to its successor, after a reload too.

`Errand` is the second form, for one piece of work that may be large and ends by itself, such as
reading a trace: a child with limits of its own on memory and time, that runs only when nobody else
wants the processor. It is polled, never waited for, and may be killed at any time.

Closing lasts as long as the child does. So the thread of a source that a reload has replaced or
taken away lives while its child does, and whoever comes after it waits: it is the one rule that
covers hung threads and hung children alike.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import math
import operator
import os
import pickle
import resource
import select
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NoReturn, Protocol, runtime_checkable

from exporter import catalogue
from exporter.clock import Clock
from exporter.samples import (
    EMPTY_SHAPE,
    Batch,
    Brought,
    Drop,
    Event,
    Fault,
    Histogram,
    Malformed,
    Metric,
    Reason,
    Released,
    Sample,
    Shape,
    Source,
    SourceError,
    Spent,
    Value,
)

_LENGTH = struct.Struct("<I")
_LARGEST_REPLY = 64 * 1024 * 1024
_LARGEST_MEMORY = 48_000
_PIPE = 64 * 1024
_LARGEST_ANSWER = 1 << 20
_ERRAND = "--errand"
_PR_SET_PDEATHSIG = 1
_GRACE = 0.5
_PARTING = 3.0
_LOOK = 0.2
"""Seconds between looks whether a child that was asked to end has done so."""
_Labels = tuple[tuple[str, ...], ...]
_METRIC, _LABELS, _VALUE = (operator.itemgetter(at) for at in range(3))

log = logging.getLogger(__name__)


class Isolated:
    """A source that is read in a child process.

    `name` is a row of the source table and `options` (JSON values) its arguments. `deadline` is
    seconds per read. A child that stays silent for `end_after` seconds is ended once, with
    SIGKILL; `None` means never (ending a process that holds a DCGM profiling session froze the
    GPU: NVIDIA/dcgm-exporter 84). `events` is handed what happened, as it is told. `memories` keeps
    what a child remembers, by name: whoever shares it goes on where this one leaves off. `ending`
    is set when the daemon ends: until then `close` waits for the child; without it, for a moment.

    `release` may be called from any thread, all else from one.
    """

    def __init__(
        self,
        name: str,
        group: str,
        options: Mapping[str, Any],
        *,
        deadline: float,
        clock: Clock,
        end_after: float | None = None,
        events: Callable[[Event], None] | None = None,
        memories: MutableMapping[str, Any] | None = None,
        ending: threading.Event | None = None,
        module: str = "exporter.isolate",
    ) -> None:
        self.name = name
        self.group = group
        self._options = options
        self._deadline = deadline
        self._clock = clock
        self._end_after = end_after
        self._events = events
        self._module = module
        self._turn = threading.Lock()
        self._released_until = 0.0
        self._memories = {} if memories is None else memories
        self._ending = ending
        self._child: subprocess.Popen[bytes] | None = None
        self._inbox = bytearray()
        self._shape = EMPTY_SHAPE
        self._asked: float | None = None
        self._ended = False

    @property
    def pid(self) -> int | None:
        """The child's process number, while there is one."""
        return None if self._child is None else self._child.pid

    def read(self) -> Brought:
        """Ask the child to read once.

        Raises `TimeoutError` when it does not answer in time or does not let go, `SourceError` with
        the child's own reason when its read failed, `Released` while its handles are released, and
        `ConnectionError` when it died.
        """
        with self._turn:
            left = self._released_until - self._clock.monotonic()
            if left > 0:
                self._refuse(left)
            return self._read()

    def _refuse(self, left: float) -> NoReturn:
        """Say that the driver has been let go, if that is true."""
        if (child := self._child) is not None:
            self._end_if_overdue(self._asked)
            if not self._has_ended(child, 0.0):
                raise TimeoutError(f"child process {child.pid} was asked to let go, does not end")
        raise Released(left)

    def release(self, seconds: float) -> bool:
        """End the child, and with it all handles of its driver; read nothing for so long.

        Returns whether it has ended: a call that hangs in the driver keeps it and its handles.
        Waits for a read under way.
        """
        with self._turn:
            self._released_until = self._clock.monotonic() + seconds
            return self._child is None or self._part(self._child)

    def _part(self, child: subprocess.Popen[bytes]) -> bool:
        """Ask a child to end. One that is silent stays ours, to be read from when it comes back."""
        child.stdin.close()  # type: ignore[union-attr]
        return self._has_ended(child, _PARTING)

    def _has_ended(self, child: subprocess.Popen[bytes], seconds: float) -> bool:
        """Wait for a child at most so long; take leave of it if it has ended."""
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        if self._child is child:
            self._child = self._asked = None
        child.stdin.close()  # type: ignore[union-attr]
        child.stdout.close()  # type: ignore[union-attr]
        return True

    def _end_if_overdue(self, since: float | None) -> None:
        """Kill the child, once, if it has been silent for too long."""
        if since is None or self._end_after is None or self._ended or self._child is None:
            return
        if self._clock.monotonic() - since > self._end_after:
            self._ended = True
            self._child.kill()

    def _read(self) -> Brought:
        if self._asked is not None:
            self._drain()
        child = self._child or self._start()
        self._asked = self._clock.monotonic()
        try:
            os.write(child.stdin.fileno(), b"r")  # type: ignore[union-attr]
        except (BrokenPipeError, ValueError):  # closed by us when it was released while it hung
            self._bury()
        return self._unpack(self._receive(self._deadline))

    def close(self) -> None:
        """Let the child end, and return when it has.

        One that is stuck is waited for, however long, and killed after `end_after`; at the end of
        the daemon it is killed at once if that is allowed, else left behind.
        """
        with self._turn:
            child = self._child
            if child is None:
                return
            child.stdin.close()  # type: ignore[union-attr]
            if self._has_ended(child, _GRACE):
                return
            since = self._clock.monotonic() if self._asked is None else self._asked
        while self._ending is not None and not self._clock.wait(self._ending, _LOOK):
            with self._turn:
                if self._has_ended(child, 0.0):
                    return
                self._end_if_overdue(since)
        if self._end_after is not None:
            child.kill()
            self._has_ended(child, _LOOK)

    def _start(self) -> subprocess.Popen[bytes]:
        self._inbox.clear()
        self._ended = False
        options = dict(self._options)
        if (memory := self._memories.get(self.name)) is not None:
            options["memory"] = _load(memory)
        told = json.dumps(options).encode() + b"\n"
        self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and our own module
            [sys.executable, "-m", self._module, self.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        os.set_blocking(self._child.stdout.fileno(), False)  # type: ignore[union-attr]
        # An empty pipe holds 64 KiB, so that this never waits for the child.
        os.write(self._child.stdin.fileno(), told)  # type: ignore[union-attr]
        return self._child

    def _drain(self) -> None:
        """Throw away a late reply; raise `TimeoutError` while it has still not come."""
        self._end_if_overdue(self._asked)
        try:
            # A late reply may carry a new set of series: it is read, and only its values dropped.
            self._unpack(self._receive(0.0))
        except SourceError:
            return

    def _receive(self, seconds: float) -> bytes:
        """Return one reply of the child, waiting at most `seconds` for all of it."""
        child = self._child
        assert child is not None  # noqa: S101
        assert child.stdout is not None  # noqa: S101
        until = self._clock.monotonic() + seconds
        while (reply := self._whole()) is None:
            left = max(0.0, until - self._clock.monotonic())
            # Not select(), which knows no descriptor above 1023.
            poll = select.poll()
            poll.register(child.stdout, select.POLLIN)
            if not poll.poll(math.ceil(left * 1000)):
                raise TimeoutError(f"no answer from child process {child.pid} in {seconds:g} s")
            chunk = os.read(child.stdout.fileno(), _PIPE)
            if not chunk:
                self._bury()
            self._inbox += chunk
        self._asked = None
        return reply

    def _whole(self) -> bytes | None:
        if len(self._inbox) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._inbox)
        if length > _LARGEST_REPLY:
            self._child.kill()  # type: ignore[union-attr]
            self._bury()
        end = _LENGTH.size + length
        if len(self._inbox) < end:
            return None
        reply = bytes(self._inbox[_LENGTH.size : end])
        del self._inbox[:end]
        return reply

    def _bury(self) -> NoReturn:
        """Take leave of a dead child and say how it died.

        One that closed its pipe and lives on is treated as silent: no second child beside it.
        """
        child = self._child
        assert child is not None  # noqa: S101
        if not self._has_ended(child, _GRACE):
            raise TimeoutError(f"child process {child.pid} closed its pipe and lives on")
        code = child.returncode
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        raise ConnectionError(f"child process {child.pid} ended: {how}")

    def _unpack(self, reply: bytes) -> Brought:
        failure, series, values, faults, drops, events, memory = _load(reply)
        if failure is not None:
            self._fail(*failure)
        if series is not None:
            names, labels = series
            self._shape = Shape(tuple([catalogue.FAMILIES[name] for name in names]), labels)
        if memory is not None:
            self._memories[self.name] = memory
        if self._events is not None:
            for event in events:
                self._events(Event(*event))
        if tuple in set(map(type, values)):
            values = tuple(map(_revive, values))
        if len(values) != len(self._shape):
            raise Malformed(f"{len(values)} values for {len(self._shape)} series")
        others: list[Fault | Drop] = [Fault(*fault) for fault in faults]
        others += [Drop(*drop) for drop in drops]
        return Brought(Batch(self._shape, values), others)

    def _fail(self, reason: Reason, detail: str, spent: bool) -> NoReturn:  # noqa: FBT001
        """Say why the child could not read; one that can never read again is let go."""
        if spent and self._child is not None:
            self._part(self._child)
        raise SourceError(reason, detail)


@dataclass(frozen=True, slots=True)
class Limits:
    """What an errand may use: bytes of address space, and seconds until it is ended."""

    memory: int
    seconds: float


class Errand:
    """One piece of work in a child process, begun at once: a row of the table of errands.

    `options` are its arguments; both they and its answer are what JSON can hold. The child dies
    with the thread that began it. Used from that thread alone.
    """

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any],
        limits: Limits,
        *,
        clock: Clock,
        module: str = "exporter.isolate",
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._until = clock.monotonic() + limits.seconds
        self._inbox = bytearray()
        told = {"options": options, "memory": limits.memory, "seconds": limits.seconds}
        self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and our own module
            [sys.executable, "-m", module, _ERRAND, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._child.stdin is not None  # noqa: S101
        assert self._child.stdout is not None  # noqa: S101
        os.set_blocking(self._child.stdout.fileno(), False)
        # An empty pipe holds 64 KiB, so that this never waits for the child. If that has ended
        # already, polling will tell.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._child.stdin.fileno(), json.dumps(told).encode() + b"\n")

    @property
    def pid(self) -> int:
        """The child's process number."""
        return self._child.pid

    def poll(self) -> Any | None:
        """Return the answer, `None` while there is none. After an answer or an error it is over.

        Raises `SourceError` with the child's own reason, `TimeoutError` when its time is up,
        `ConnectionError` when it died, `Malformed` when what it said makes no sense.
        """
        try:
            answer = self._receive()
        except BaseException:
            self.end()
            raise
        if answer is not None:
            self.end()
        return answer

    def end(self) -> None:
        """Kill the child if it lives. It holds nothing that could suffer from it."""
        child = self._child
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def _receive(self) -> Any | None:
        out = self._child.stdout
        assert out is not None  # noqa: S101
        while True:
            try:
                chunk = os.read(out.fileno(), _PIPE)
            except BlockingIOError:
                self._check_time()
                return None
            if not chunk:
                return self._told()
            self._inbox += chunk
            if len(self._inbox) > _LARGEST_ANSWER:
                raise Malformed(f"the child's answer has more than {_LARGEST_ANSWER} bytes")

    def _check_time(self) -> None:
        if self._clock.monotonic() >= self._until:
            raise TimeoutError(f"not done within {self._limits.seconds:g} s")

    def _told(self) -> Any:
        """Return what the child said before it closed its pipe."""
        try:
            failure, answer = json.loads(self._inbox)
        except (ValueError, TypeError):
            # So humble a process may take a while to end where others want the processor.
            if (code := self._child.poll()) is None:
                self._check_time()
                return None
            how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            raise ConnectionError(f"the child ended without an answer: {how}") from None
        if failure is not None:
            raise SourceError(*failure)
        if answer is None:
            raise Malformed("the child has nothing to say")
        return answer


class _PlainUnpickler(pickle.Unpickler):
    """Reads numbers, text and tuples; knows no classes and no functions."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"a reply may not hold {module}.{name}")


def _load(reply: bytes) -> Any:
    try:
        return _PlainUnpickler(io.BytesIO(reply)).load()
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError) as error:
        raise Malformed(f"the child's reply makes no sense: {error}") from None


def _revive(value: Any) -> Value:
    return Histogram(*value) if type(value) is tuple else value


@runtime_checkable
class Remembers(Protocol):
    """A source that can tell a later process of itself what it knows."""

    def memory(self) -> object:
        """Return it as JSON can hold it; the successor gets it as its option `memory`."""


class _Answerer:
    """The child's side: reads its source when asked, and says what came of it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._memory = source.memory if isinstance(source, Remembers) else None
        self._complained = False
        self._metrics: tuple[Metric, ...] | None = None
        self._labels: _Labels = ()

    def answer(self) -> bytes:
        """Read once and return the reply; the set of series is only told when it changed."""
        items = list(self._source.read())
        samples = [item for item in items if type(item) is Sample]
        others = [item for item in items if type(item) is not Sample]
        values = tuple(map(_VALUE, samples))
        if Histogram in set(map(type, values)):
            values = tuple([tuple(v) if type(v) is Histogram else v for v in values])
        return pickle.dumps((
            None,
            self._news(samples),
            values,
            tuple(tuple(item) for item in others if isinstance(item, Fault)),
            tuple(tuple(item) for item in others if isinstance(item, Drop)),
            tuple(tuple(item) for item in others if isinstance(item, Event)),
            self._remembered(),
        ))  # fmt: skip

    def _news(self, samples: list[Sample]) -> tuple[tuple[str, ...], _Labels] | None:
        """Return names and labels of the series, unless they are those of the last time."""
        # In columns: nearly all are the same objects as before, and are compared as such.
        metrics, labels = tuple(map(_METRIC, samples)), tuple(map(_LABELS, samples))
        if metrics == self._metrics and labels == self._labels:
            return None
        self._metrics, self._labels = metrics, labels
        return tuple([metric.name for metric in metrics]), labels

    def close(self) -> None:
        """Let the source give back what it holds."""
        self._source.close()

    def _remembered(self) -> bytes | None:
        """Return what the source wants its successor to know, if it is small enough to be told.

        Packed once more: the parent only keeps it. What is too large leaves it with the former.
        """
        if self._memory is None:
            return None
        memory = pickle.dumps(self._memory())
        if len(memory) <= _LARGEST_MEMORY:
            return memory
        if not self._complained:
            self._complained = True
            log.warning(
                "%d bytes are too much to be remembered (at most %d): after a crash or a reload"
                " counters go on from an older state",
                len(memory), _LARGEST_MEMORY,
            )  # fmt: skip
        return None


def serve(requests: BinaryIO, replies: BinaryIO, make: Callable[[], Source]) -> None:
    """Answer each byte of `requests` with a reply, until the parent closes it.

    The runner's arm in this process: like the runner, it catches whatever a source raises.
    """
    answerer: _Answerer | None = None
    spent = False
    while requests.read(1):
        try:
            answerer = answerer or _Answerer(make())
            reply = answerer.answer()
        except Exception as error:  # noqa: BLE001
            _, reason, detail = Fault.of("", error)
            if reason == "bug":
                detail += "\n" + traceback.format_exc()
            spent = isinstance(error, Spent)
            reply = pickle.dumps(((reason, detail, spent), None, (), (), (), (), None))
        replies.write(_LENGTH.pack(len(reply)) + reply)
        replies.flush()
        if spent:
            break
    if answerer is not None:
        answerer.close()


def private_output() -> BinaryIO:
    """Return the pipe to the parent, and point standard output at standard error.

    Called before any driver is imported: drivers print, and what they print is no reply.
    """
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return pipe


def run_errand(
    name: str, table: Mapping[str, Callable[..., Any]], requests: BinaryIO, answers: BinaryIO
) -> None:
    """Do one errand: limits and arguments come first on the input, the answer goes out once.

    Whatever it raises is the answer, too.
    """
    told = json.loads(requests.readline())
    failure, answer = None, None
    try:
        be_humble(told["memory"], told["seconds"])
        answer = table[name](**told["options"])
    except MemoryError:
        failure = ("unavailable", f"needs more than {told['memory'] >> 20} MiB of memory")
    except Exception as error:
        _, reason, detail = Fault.of("", error)
        if reason == "bug":
            log.exception("errand %s", name)
        failure = (reason, detail)
    answers.write(json.dumps([failure, answer]).encode())
    answers.flush()


def be_humble(memory: int, seconds: float) -> None:
    """Let this process run only when nobody else wants to, within limits, and die with its parent.

    Where the kernel is short of memory it shall take this process, not the daemon.
    """
    _die_with_parent()
    for limit, value in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, math.ceil(seconds) + 1),
        (resource.RLIMIT_CORE, 0),
    ):
        _, most = resource.getrlimit(limit)
        least = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(limit, (least, least))
    os.nice(19)
    import psutil

    # A sandbox may know none of these; being less humble is no reason to fail.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(OSError, psutil.Error):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _die_with_parent() -> None:
    import ctypes

    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def main(
    arguments: list[str],
    table: Mapping[str, Callable[..., Source]],
    errands: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
) -> None:
    """Run the child: `arguments` name a row of a table; its options come first on the input."""
    replies = private_output()
    # The parent decides when we end, by closing the pipe; Ctrl-C and the like go to the parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(
        level=logging.INFO, format=f"%(levelname)s child={arguments[-1]} %(message)s"
    )
    name = arguments[0]
    requests = os.fdopen(0, "rb", buffering=0)
    if name == _ERRAND:
        run_errand(arguments[1], errands, requests, replies)
        return
    options = json.loads(requests.readline())
    serve(requests, replies, lambda: table[name](**options))


if __name__ == "__main__":
    from exporter.sources import ERRANDS, ISOLATED

    main(sys.argv[1:], ISOLATED, ERRANDS)
