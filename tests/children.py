"""Sources for the isolation tests; run in a real child process as `python -m tests.children`."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterable

from exporter import catalogue as c
from exporter.isolate import main
from exporter.samples import Drop, Event, Fault, Histogram, Malformed, Sample, Spent


class Good:
    """Yields a scalar that grows, a histogram, a fault and a drop, and prints as drivers do."""

    name = "good"
    group = "host"

    def __init__(self, cpus: int) -> None:
        self._cpus = cpus
        print("driver banner on standard output")
        os.write(1, b"and one from C\n")

    def read(self) -> Iterable[Sample | Fault | Drop]:
        self._cpus += 1
        yield c.HOST_CPUS(self._cpus)
        yield c.HOST_LOAD_AVERAGE(0.5, "1m")
        yield c.LLM_TTFT_SECONDS(Histogram((0.1, 1.0), (1, 2, 3), 2.5), "m", "", "vllm", "s")
        yield Fault("gpu3", "io", "lost")
        yield Drop("malformed", 2)

    def close(self) -> None:
        pass


class Hangs(Good):
    """Answers twice, then never again until the file in `gate` exists."""

    def __init__(self, gate: str) -> None:
        super().__init__(0)
        self._gate = gate

    def read(self) -> Iterable[Sample | Fault | Drop]:
        pause = threading.Event()
        while self._cpus == 2 and not os.path.exists(self._gate):
            pause.wait(0.01)
        return super().read()


class Crashes(Good):
    """Dereferences a null pointer at each second read, as a broken driver would."""

    def __init__(self) -> None:
        super().__init__(0)

    def read(self) -> Iterable[Sample | Fault | Drop]:
        if self._cpus >= 1:
            ctypes.string_at(0)
        return super().read()


class Raises(Good):
    """Raises at each read."""

    def __init__(self, kind: str) -> None:
        super().__init__(0)
        self._kind = kind

    def read(self) -> Iterable[Sample | Fault | Drop]:
        raise {"denied": PermissionError("no rights"), "bug": KeyError("surprise")}[self._kind]


class Unmakeable(Good):
    """Cannot be built: its driver library is not there."""

    def __init__(self) -> None:
        raise FileNotFoundError("libdriver.so.1 not found")


class Mute(Good):
    """Closes its end of the pipe at the first read and lives on, as a confused library might."""

    def __init__(self) -> None:
        super().__init__(0)

    def read(self) -> Iterable[Sample | Fault | Drop]:
        os.closerange(3, 64)
        threading.Event().wait()
        return super().read()


class Remembers:
    """Counts its reads, beginning where a former process of it left off.

    `size` makes what it remembers larger; while the file `fail` exists, its reads fail; `closed` is
    a file that is there once it has been closed.
    """

    name = "remembers"
    group = "host"

    def __init__(
        self, memory: object = None, *, size: int = 0, fail: str = "", closed: str = ""
    ) -> None:
        count, self._burden = memory if isinstance(memory, list) else (0, "x" * size)
        self._count = int(count)
        self._fail = fail
        self._closed = closed

    def read(self) -> Iterable[Sample]:
        self._count += 1
        if os.path.exists(self._fail):
            raise PermissionError("no rights")
        yield c.HOST_CPUS(self._count)

    def memory(self) -> object:
        return [self._count, self._burden]

    def close(self) -> None:
        if self._closed:
            with open(self._closed, "w", encoding="ascii"):
                pass


class Grows(Remembers):
    """From its third read on it remembers more than can be handed over."""

    def memory(self) -> object:
        return [self._count, "x" * 60_000 if self._count > 2 else ""]


class Tells(Hangs):
    """Tells of something that happened, at each read; hangs like its parent."""

    def read(self) -> Iterable[Sample | Fault | Drop | Event]:  # type: ignore[override]
        yield from super().read()
        yield Event("xid", "0000:1a:00.0", self._cpus, 1.5)


class Wears(Remembers):
    """Its second read is its last: the library that it has loaded belongs to another driver."""

    def __init__(self, memory: object = None, *, closed: str = "") -> None:
        super().__init__(memory, closed=closed)
        self._reads = 0

    def read(self) -> Iterable[Sample]:
        self._reads += 1
        if self._reads > 1:
            raise Spent("unavailable", "the driver was replaced")
        return super().read()


TABLE = {
    "remembers": Remembers,
    "grows": Grows,
    "tells": Tells,
    "wears": Wears,
    "mute": Mute,
    "good": Good,
    "hangs": Hangs,
    "crashes": Crashes,
    "raises": Raises,
    "unmakeable": Unmakeable,
}


def _echo(**options: object) -> object:
    print("a library prints this")
    return {"given": options, "nice": os.nice(0), "policy": os.sched_getscheduler(0)}


def _greedy() -> object:
    return len(bytearray(1 << 30))


def _fails(reason: str) -> object:
    raise {"io": OSError, "malformed": Malformed, "bug": RuntimeError}[reason](f"it was {reason}")


def _kills_itself() -> object:
    os.kill(os.getpid(), 9)
    return None


def _sleeps() -> object:
    threading.Event().wait(600)
    return None


def _spins() -> object:
    while True:
        pass


def _talks(size: int) -> object:
    return "x" * size


ERRANDS = {
    "echo": _echo, "greedy": _greedy, "fails": _fails, "kills_itself": _kills_itself,
    "sleeps": _sleeps, "spins": _spins, "talks": _talks,
}  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:], TABLE, ERRANDS)
