"""What the daemon remembers, in a file that the next daemon reads.

A window of an hour, and an error budget, should not begin anew because of an update. The file has a
line that says what it is and a line of JSON. It replaces the former one whole or not at all. Whose
memory it is and what it means is left to those who remember: here it is plain values.

    flopwatch_state_bytes 493268
    flopwatch_state_saved_timestamp_seconds 1796000000.0
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import stat
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.samples import Fault, Malformed, Remembered, Sample, SourceError

NAME = "state.json"
"""The file, in the state directory."""

VERSION = 1
"""Of the file's form. One that is not ours is not read."""

LARGEST = 64 << 20
"""Bytes that are written, or read, at most."""

OLDEST = 3600.0
"""Seconds after which a memory is worth nothing: no window is longer."""

_SET_BACK = 5.0
"""Seconds by which a file may come from the future: clocks are corrected."""

_READABLE = (OSError, SourceError, Malformed)
"""What is raised for a file that cannot be used."""


def this_boot() -> str:
    """Return what tells this run of the machine from others; "" where the kernel does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, UnicodeError):
        return ""


class StateFile:
    """A sink that writes `memories`, at most each `every` seconds and at its end.

    Before it writes anything it puts there what a former daemon has left, unless something newer is
    there already, and sets `recalled`. A file that cannot be used is told of until it is replaced;
    it costs nothing but what was in it. A disk that is full and a directory that may not be written
    to are failures like those of any source: told once, counted, tried again. `boot` names this run
    of the machine: within it ages do not depend on what people do to the wall clock.
    """

    name = "state"
    group = c.EXPORTER

    def __init__(
        self,
        directory: Path,
        memories: MutableMapping[str, Any],
        recalled: threading.Event,
        clock: Clock,
        *,
        every: float = 60.0,
        boot: str = "",
    ) -> None:
        self._directory = directory
        self._memories = memories
        self._recalled = recalled
        self._clock = clock
        self._every = every
        self._boot = boot
        self._began = False
        self._faults: list[Fault] = []
        self._written: dict[str, float] = {}
        self._size = 0
        self._saved = 0.0

    def read(self) -> Iterator[Sample | Fault]:
        """Write if there is news. Raises `OSError`, and `SourceError` for what is too large."""
        self._begin()
        self._save(self._every, final=False)
        yield from self._faults
        if self._size:
            yield c.FLOPWATCH_STATE_BYTES(self._size)
            yield c.FLOPWATCH_STATE_SAVED_TIMESTAMP_SECONDS(self._saved)

    def close(self) -> None:
        """Write what there is at the end. Raises as `read` does."""
        self._begin()
        self._save(0.0, final=True)

    def _begin(self) -> None:
        """Bring what a former daemon has left, once: nothing is written before that."""
        if self._began:
            return
        self._began = True
        try:
            for name, one in load(self._directory, self._clock, self._boot).items():
                self._memories.setdefault(name, one)
                if not one.final:  # else it is written again: from now on more will be told
                    self._written[name] = one.taken
        except _READABLE as error:
            self._faults = [Fault.of(NAME, error)]
        finally:
            self._recalled.set()

    def _save(self, every: float, *, final: bool) -> None:
        """Write if a memory is newer by more than `every` seconds than what is in the file.

        Unless this is the `final` time, more may be told before the next one.
        """
        now = self._clock.monotonic()
        memories = {
            name: one._replace(final=final and one.final)
            for name, one in list(self._memories.items())
            if isinstance(one, Remembered) and now - one.taken <= OLDEST
        }
        news = (
            name not in self._written
            or one.taken - self._written[name] > (0.0 if one.urgent else every)
            or one.final
            for name, one in memories.items()
        )
        if not any(news):
            return
        wall = self._clock.time()
        body, faults = _body(memories, now)
        head = {
            "flopwatch_state": VERSION, "saved": wall, "boot": self._boot, "monotonic": now,
            "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest(),
        }  # fmt: skip
        data = json.dumps(head).encode("ascii") + b"\n" + body
        if len(data) > LARGEST:
            raise SourceError("io", f"{len(data)} bytes of state: more than {LARGEST}, not written")
        _replace(self._directory, data)
        self._written = {name: one.taken for name, one in memories.items()}
        self._size, self._saved, self._faults = len(data), wall, faults


def _body(memories: Mapping[str, Remembered], now: float) -> tuple[bytes, list[Fault]]:
    """Return all memories as JSON, and who has one that JSON cannot hold."""
    entries, faults = [], []
    for name, one in memories.items():
        entry = {"age": now - one.taken, "final": one.final, "memory": one.plain}
        try:
            text = json.dumps(entry, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as error:
            faults.append(Fault.of(name, error))
        else:
            entries.append(f"{json.dumps(name)}:{text}")
    return ("{" + ",".join(entries) + "}\n").encode("ascii"), faults


def _replace(directory: Path, data: bytes) -> None:
    """Put a file in place of the former one, so that a loss of power leaves one of them whole."""
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    new = directory / f"{NAME}.new"
    new.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(new, flags, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(directory / NAME)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)  # half of it would fill a full disk
        raise
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


# ---------------------------------------------------------------- reading it again


class _Head(NamedTuple):
    """What the first line of a file says: when and in which run of the machine it was written."""

    saved: float
    boot: str
    monotonic: float


def load(directory: Path, clock: Clock, boot: str = "") -> dict[str, Remembered]:
    """Return what a former daemon has written; nothing if there is no file.

    Raises, naming the file and the reason, `OSError` if it cannot be read, `Malformed` if it is
    damaged or none of ours, and `SourceError` if it may not be trusted, is too old, or is of
    another version.
    """
    path = directory / NAME
    try:
        data = _trusted(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}  # what is wrong with the directory is told by writing
    line, _, body = data.partition(b"\n")
    passed = _passed(path, _checked(path, line, body), clock, boot)
    then = clock.monotonic() - passed
    try:
        found = {
            str(name): Remembered(
                entry["memory"], then - _age(entry["age"]), entry["final"] is True
            )
            for name, entry in json.loads(body).items()
        }
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise Malformed(f"{path}: damaged: {type(error).__name__}: {error}") from None
    oldest = clock.monotonic() - OLDEST
    return {name: one for name, one in found.items() if one.taken >= oldest}


def _trusted(path: Path) -> bytes:
    """Return a file's content if nobody else can have written it."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(fd)
        flaws = {
            "no plain file": not stat.S_ISREG(about.st_mode),
            f"user {about.st_uid} owns it": about.st_uid not in (os.geteuid(), 0),
            "others may write to it": about.st_mode & 0o022 != 0,
            f"larger than {LARGEST} bytes": about.st_size > LARGEST,
        }
        for flaw, found in flaws.items():
            if found:
                raise SourceError("denied", f"{path}: not used: {flaw}")
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(LARGEST + 1)
    finally:
        os.close(fd)


def _checked(path: Path, line: bytes, body: bytes) -> _Head:
    """Return what a file says of itself, if it is one of ours and whole."""
    try:
        told: Any = json.loads(line)
        version = told["flopwatch_state"]
        head = _Head(float(told["saved"]), str(told["boot"]), float(told["monotonic"]))
    except (LookupError, TypeError, ValueError, RecursionError):
        version, head = None, _Head(math.nan, "", math.nan)
    if version is None:
        raise Malformed(f"{path}: not used: no state of flopwatch")
    if version != VERSION:
        raise SourceError("unavailable", f"{path}: not used: version {version!r}, not {VERSION}")
    if told.get("sha256") != hashlib.sha256(body).hexdigest() or not all(
        map(math.isfinite, (head.saved, head.monotonic))
    ):
        raise Malformed(f"{path}: damaged: {len(body)} bytes of {told.get('bytes')}")
    return head


def _passed(path: Path, head: _Head, clock: Clock, boot: str) -> float:
    """Return the seconds since a file was written.

    By the monotonic clock where the machine has not been started anew: the wall clock may have been
    set meanwhile.
    """
    passed = clock.monotonic() - head.monotonic
    if not boot or head.boot != boot or passed < 0:
        passed = clock.time() - head.saved
    if passed < -_SET_BACK:
        raise SourceError("unavailable", f"{path}: not used: written {-passed:.0f} s from now")
    if passed > OLDEST:
        raise SourceError("unavailable", f"{path}: not used: {passed / 3600:.1f} hours old")
    return max(0.0, passed)


def _age(value: Any) -> float:
    age = float(value)
    if not 0 <= age < math.inf:
        raise ValueError(f"an age of {age}")
    return age
