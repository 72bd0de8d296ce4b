"""Looks through a directory, within limits, and reads pieces of the files in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from exporter.samples import Fault, Malformed

PIECE = 1 << 18
"""Bytes that are read at once: a third of a second's work, where they hold small records."""

OLD = 3600.0
"""Seconds after which a file that nobody writes to belongs to a run that has ended."""


_PART = "directory"


class Found(NamedTuple):
    """A regular file: its path below the root, and what the system says of it.

    `modified` is Unix seconds; `identity` tells the file from another one of the same name.
    """

    path: str
    size: int
    modified: float
    identity: tuple[int, int]

    @property
    def directory(self) -> str:
        """The path of its folder below the root, "" for the root itself."""
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Limits:
    """How deep is looked, at how many names, and how much is read in one round, for how long.

    `seconds` is when no further piece is begun.
    """

    depth: int = 8
    names: int = 20_000
    bytes: int = 32 << 20
    seconds: float = 1.0


class Budget:
    """Bytes that may still be read in this round; none once its time is `over`."""

    def __init__(self, most: int, over: Callable[[], bool] = bool) -> None:
        self._left = most
        self.over = over

    def take(self, wanted: int) -> int:
        """Return how many bytes may be read, at most `wanted`, and count them."""
        if self.over():
            return 0
        granted = min(wanted, self._left)
        self._left -= granted
        return granted


def look(
    root: Path, limits: Limits, faults: list[Fault], wanted: Callable[[str], bool] = bool
) -> Iterator[Found]:
    """Yield the regular files below a directory whose path is `wanted`, what lies higher first.

    No link is followed: whoever may write here could have us read, and quote, what only we may
    read. Hidden folders are not looked at. Folders that cannot be listed are told as faults, and so
    are too many names. Raises `OSError` if the root itself cannot be listed.
    """
    names = 0
    level = [""]
    for _ in range(limits.depth + 1):
        deeper: list[str] = []
        for folder in level:
            try:
                entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
            except OSError as error:
                if not folder:
                    raise
                faults.append(Fault.of(_PART, error))
                continue
            for entry in entries:
                names += 1
                if names > limits.names:
                    detail = f"more than {limits.names} names: the rest is not looked at"
                    faults.append(Fault.of(_PART, Malformed(detail)))
                    return
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith("."):
                        deeper.append(path)
                elif wanted(path) and (one := _regular(entry, path)) is not None:
                    yield one
        level = deeper


def _regular(entry: os.DirEntry[str], path: str) -> Found | None:
    """Return a file whose name can be read as text, None for what is none or has just gone."""
    if not path.isprintable():
        return None
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return Found(path, status.st_size, status.st_mtime, (status.st_dev, status.st_ino))


def piece(root: Path, path: str, offset: int, most: int) -> bytes:
    """Return up to `most` bytes of a file from a place on. Raises `OSError`."""
    # What was a file a moment ago may be a link now, or a FIFO, which would hold us up.
    fd = os.open(root / path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.pread(fd, most, offset)
    finally:
        os.close(fd)
