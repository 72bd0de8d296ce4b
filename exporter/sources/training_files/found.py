"""Looks through a directory, within limits, and reads pieces of the files in it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from exporter.samples import Fault, Malformed

PIECE = 1 << 20
"""Bytes that are read at once."""

OLD = 3600.0
"""Seconds after which a file that nobody writes to belongs to a run that has ended."""


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
    """How deep is looked, at how many names, and how much is read in one round."""

    depth: int = 8
    names: int = 20_000
    bytes: int = 32 << 20


class Budget:
    """Bytes that may still be read in this round."""

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, wanted: int) -> int:
        """Return how many bytes may be read, at most `wanted`, and count them."""
        granted = min(wanted, self.left)
        self.left -= granted
        return granted


def look(root: Path, limits: Limits, faults: list[Fault]) -> Iterator[Found]:
    """Yield the regular files below a directory, what lies higher first.

    Links to files are followed, links to folders are not: they may lead in a circle. Folders that
    cannot be listed are told as faults, and so is a limit that was met. Raises `OSError` if the
    root itself cannot be listed.
    """
    names = 0
    level = [""]
    for depth in range(limits.depth + 1):
        deeper: list[str] = []
        for folder in level:
            try:
                entries = sorted(os.scandir(root / folder), key=lambda entry: entry.name)
            except OSError as error:
                if not folder:
                    raise
                faults.append(Fault.of(folder, error))
                continue
            for entry in entries:
                names += 1
                if names > limits.names:
                    detail = f"more than {limits.names} names: the rest is not looked at"
                    faults.append(Fault.of("", Malformed(detail)))
                    return
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    deeper.append(path)
                elif (one := _regular(entry, path)) is not None:
                    yield one
        if deeper and depth == limits.depth:
            detail = f"folders deeper than {limits.depth}: {deeper[0]} and such"
            faults.append(Fault.of("", Malformed(detail)))
        level = deeper


def _regular(entry: os.DirEntry[str], path: str) -> Found | None:
    """Return a file whose name can be read as text, None for what is none or has just gone."""
    if not path.isprintable():
        return None
    try:
        status = entry.stat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return Found(path, status.st_size, status.st_mtime, (status.st_dev, status.st_ino))


def piece(root: Path, path: str, offset: int, most: int) -> bytes:
    """Return up to `most` bytes of a file from a place on. Raises `OSError`."""
    # What was a file a moment ago may be a FIFO now, which would hold us up.
    fd = os.open(root / path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.pread(fd, most, offset)
    finally:
        os.close(fd)
