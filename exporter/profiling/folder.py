"""Directories into which people drop files: which of them are new, and finished.

A file counts as finished when size and time of writing have stayed the same from one look to the
next. Symbolic links are not followed, but for the directory itself; what is no regular file is not
looked at. The number of entries looked at is limited: a directory of millions costs no more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

_DEPTH = 4
_LONGEST = 128
MAX_ENTRIES = 20_000


def clean(text: str) -> str:
    """Return a name as it can be written into any page: bytes that are no text become `_`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "_" for c in text)


class State(NamedTuple):
    """What tells one content of a file from another."""

    size: int
    written: int


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory that is watched.

    `run` is what its files belong to; where it is empty, the folder that a file lies in. Files
    whose name, or path below the directory, fits a pattern of `ignore` are left alone.
    """

    path: Path
    run: str = ""
    ignore: tuple[str, ...] = ()


class Found(NamedTuple):
    """A file: its path, the directory it was found in, the run, and its state."""

    path: str
    inside: str
    run: str
    state: State

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.path.rpartition("/")[2]


class Folder:
    """Looks through directories; remembers the look before.

    `crowded` tells whether there was more than is looked at.
    """

    def __init__(self, directories: Iterable[Directory], *, most: int = MAX_ENTRIES) -> None:
        self._directories = tuple(directories)
        self._most = most
        self._former: dict[str, State] = {}
        self.crowded = False
        self.problems: dict[str, OSError] = {}

    def look(self) -> list[tuple[Found, bool]]:
        """Return all files, the latest first, and whether each has stayed as it was.

        A directory that cannot be read is told in `problems`.
        """
        self.crowded, self.problems = False, {}
        found: list[tuple[Found, bool]] = []
        states: dict[str, State] = {}
        for directory in self._directories:
            for one in self._files(directory, self._most - len(states)):
                if one.path not in states:
                    states[one.path] = one.state
                    found.append((one, self._former.get(one.path) == one.state))
        self._former = states
        return sorted(found, key=lambda one: (-one[0].state.written, one[0].path))

    def _files(self, directory: Directory, room: int) -> Iterator[Found]:
        waiting = [(str(directory.path), 0)]
        while waiting:
            folder, depth = waiting.pop()
            try:
                entries = os.scandir(folder)
            except OSError as error:
                self.problems[folder] = error
                continue
            with entries:
                for entry in entries:
                    room -= 1
                    if room < 0:
                        self.crowded = True
                        return
                    if self._ignored(directory, entry):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if depth < _DEPTH:
                            waiting.append((entry.path, depth + 1))
                    elif entry.is_file(follow_symlinks=False):
                        yield from _found(directory, folder, entry)

    @staticmethod
    def _ignored(directory: Directory, entry: os.DirEntry[str]) -> bool:
        below = os.path.relpath(entry.path, directory.path) if directory.ignore else ""
        return entry.name.startswith(".") or any(
            fnmatchcase(entry.name, pattern) or fnmatchcase(below, pattern)
            for pattern in directory.ignore
        )


def _found(directory: Directory, folder: str, entry: os.DirEntry[str]) -> Iterator[Found]:
    try:
        about = entry.stat(follow_symlinks=False)
    except OSError:  # it has gone
        return
    run = directory.run or clean(folder.rstrip("/").rpartition("/")[2])[:_LONGEST] or "/"
    state = State(about.st_size, about.st_mtime_ns)
    yield Found(entry.path, str(directory.path), run, state)
