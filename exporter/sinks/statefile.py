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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

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
"""Seconds after which a file is worth nothing: no window is longer."""

_SET_BACK = 5.0
"""Seconds by which a file may come from the future: clocks are corrected."""


class StateFile:
    """A sink that writes what `memories` returns, whenever that has changed, and at its end.

    What cannot be written as JSON is left out and told. A disk that is full and a directory that
    may not be written to are failures like those of any source: told once, counted, tried again.
    """

    name = "state"
    group = c.EXPORTER

    def __init__(
        self, directory: Path, memories: Callable[[], Mapping[str, Remembered]], clock: Clock
    ) -> None:
        self._directory = directory
        self._memories = memories
        self._clock = clock
        self._written: dict[str, float] = {}
        self._size = 0
        self._saved = 0.0

    def read(self) -> Iterator[Sample | Fault]:
        """Write if there is news. Raises `OSError`, and `SourceError` for what is too large."""
        yield from self._save()
        if self._size:
            yield c.FLOPWATCH_STATE_BYTES(self._size)
            yield c.FLOPWATCH_STATE_SAVED_TIMESTAMP_SECONDS(self._saved)

    def close(self) -> None:
        """Write what there is at the end. Raises as `read` does."""
        self._save()

    def _save(self) -> list[Fault]:
        memories = self._memories()
        taken = {name: one.taken for name, one in memories.items()}
        if taken == self._written:
            return []
        wall = self._clock.time()
        body, faults = _body(memories, self._clock.monotonic())
        head = {
            "flopwatch_state": VERSION,
            "saved": wall,
            "bytes": len(body),
            "sha256": hashlib.sha256(body).hexdigest(),
        }
        data = json.dumps(head).encode("ascii") + b"\n" + body
        if len(data) > LARGEST:
            raise SourceError("io", f"{len(data)} bytes of state: more than {LARGEST}, not written")
        _replace(self._directory, data)
        self._written, self._size, self._saved = taken, len(data), wall
        return faults


def _body(memories: Mapping[str, Remembered], now: float) -> tuple[bytes, list[Fault]]:
    """Return all memories as JSON, and who has one that JSON cannot hold."""
    entries, faults = [], []
    for name, one in memories.items():
        entry = {"age": now - one.taken, "memory": one.plain}
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


def load(directory: Path, clock: Clock) -> dict[str, Remembered]:
    """Return what a former daemon has written; nothing if there is no file.

    Raises, naming the file and the reason, `OSError` if it cannot be read, `Malformed` if it is
    damaged or none of ours, and `SourceError` if it may not be trusted, is too old, or is of
    another version.
    """
    path = directory / NAME
    try:
        data = _trusted(path)
    except FileNotFoundError:
        return {}
    head, _, body = data.partition(b"\n")
    saved = _checked(path, head, body)
    passed = clock.time() - saved
    if passed < -_SET_BACK:
        raise SourceError("unavailable", f"{path}: not used: written {-passed:.0f} s from now")
    if passed > OLDEST:
        raise SourceError("unavailable", f"{path}: not used: {passed / 3600:.1f} hours old")
    then = clock.monotonic() - max(0.0, passed)
    try:
        return {
            name: Remembered(entry["memory"], then - float(entry["age"]))
            for name, entry in json.loads(body).items()
        }
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise Malformed(f"{path}: damaged: {type(error).__name__}: {error}") from None


def _trusted(path: Path) -> bytes:
    """Return a file's content if nobody else can have written it."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
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
        return file.read(LARGEST + 1)


def _checked(path: Path, head: bytes, body: bytes) -> float:
    """Return when a file was written, in Unix seconds, if it is one of ours and whole."""
    try:
        told: Any = json.loads(head)
        version, saved = told["flopwatch_state"], float(told["saved"])
    except (LookupError, TypeError, ValueError, RecursionError):
        raise Malformed(f"{path}: no state of flopwatch") from None
    if version != VERSION:
        raise SourceError("unavailable", f"{path}: not used: version {version!r}, not {VERSION}")
    if told.get("sha256") != hashlib.sha256(body).hexdigest() or not math.isfinite(saved):
        raise Malformed(f"{path}: damaged: {len(body)} bytes of {told.get('bytes')}")
    return saved
