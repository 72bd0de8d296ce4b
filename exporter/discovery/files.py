"""Servers that files list, in the format of Prometheus' file-based discovery."""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from exporter.discovery.target import Look, Target, name_of
from exporter.formats import filesd
from exporter.samples import Fault, Malformed

MAX_BYTES = 1 << 20
"""Of a larger file nothing is read."""

_MOST_FILES = 1000


_PATIENCE = 3
"""Looks at which a file may change each time; the content of the last one counts all the same."""

_NOT_READ = b"not read"
_GONE = b"gone"


@dataclass
class _Known:
    """What a file held when it was last sound; the content taken up, and that of the last look."""

    targets: tuple[Target, ...] = ()
    digest: bytes = b""
    seen: bytes = b""
    changes: int = 0
    problem: Exception | None = None


class FileFinder:
    """Looks at the files that `patterns` mean; `engines` are the names that a file may use.

    A file is read again at each look, and taken up when its content differs: a ConfigMap swaps a
    link. But for the first look it must have been the same at two of them: the first half of a
    YAML list is a list too, and port 80 is the first half of 8000. One that is broken, or cannot
    be read, keeps the targets that it had; one that is gone has none.
    """

    origin = "file"

    def __init__(self, patterns: Collection[str], engines: Collection[str]) -> None:
        self._patterns = tuple(patterns)
        self._engines = frozenset(engines)
        self._known: dict[str, _Known] = {}
        self._first = True

    def look(self) -> Look:
        """Return the targets of all files, and a fault for each file that is not sound."""
        faults: list[Fault] = []
        paths = list(dict.fromkeys(self._paths()))
        known = {path: self._known.get(path, _Known()) for path in paths[:_MOST_FILES]}
        self._known = known
        for path, file in known.items():
            self._read(path, file)
            if file.problem is not None:
                faults.append(Fault.of(path, file.problem))
        if len(paths) > _MOST_FILES:
            many = Malformed(f"{len(paths)} files; only {_MOST_FILES} are read")
            faults.append(Fault.of("files", many))
        self._first = False
        return Look(tuple(t for file in known.values() for t in file.targets), tuple(faults))

    def _paths(self) -> Iterator[str]:
        """Yield the files in a steady order; a path without wildcards is one, there or not.

        One that is gone is looked at once more: somebody may just be replacing it.
        """
        lately = [path for path, file in self._known.items() if file.seen != _GONE]
        for pattern in self._patterns:
            if glob.has_magic(pattern):
                found = glob.glob(pattern)  # noqa: PTH207 - a pattern has no root
                yield from sorted({*found, *fnmatch.filter(lately, pattern)})
            else:
                yield pattern

    def _read(self, path: str, file: _Known) -> None:
        """Take up what is in a file if that is news, and no longer changes."""
        data, digest = b"", _NOT_READ
        problem: Exception | None = None
        try:
            data = _content(path)
            digest = hashlib.sha256(data).digest()
        except FileNotFoundError as error:
            digest, problem = _GONE, error
        except (OSError, Malformed) as error:
            problem = error
        file.changes = 0 if self._first or digest == file.seen else file.changes + 1
        file.seen = digest
        if 0 < file.changes < _PATIENCE or (digest == file.digest and problem is None):
            return
        file.digest, file.changes = digest, 0
        if digest == _GONE:
            file.targets = ()
        file.problem = problem or self._taken_up(path, file, data)

    def _taken_up(self, path: str, file: _Known, data: bytes) -> Exception | None:
        """Keep the targets of a sound file; return what is wrong with any other."""
        try:
            file.targets = self._parsed(path, data.decode("utf-8"))
        except UnicodeDecodeError as error:
            return Malformed(f"not UTF-8 text (byte {error.start})")
        except Malformed as error:
            return error
        return None

    def _parsed(self, path: str, text: str) -> tuple[Target, ...]:
        found: dict[str, Target] = {}
        for one in filesd.targets(text, is_json=Path(path).suffix == ".json"):
            if one.engine != "auto" and one.engine not in self._engines:
                known = ", ".join(sorted(self._engines))
                raise Malformed(
                    f"line {one.line}: engine {one.engine!r} is not known; there are auto, {known}"
                )
            found[one.url] = Target(
                one.name or name_of(one.host, one.port, one.path),
                one.url, self.origin, one.engine, one.model_name, one.gpus,
                one.allow_destructive_read,
            )  # fmt: skip
        return tuple(found.values())


def _content(path: str) -> bytes:
    """Return what is in a file. Raises `Malformed` if that is too much, or it is no plain file."""
    # A pipe that somebody put there must not hold us up.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Malformed("not a plain file")
        data = bytearray()
        while len(data) <= MAX_BYTES and (piece := os.read(descriptor, MAX_BYTES)):
            data += piece
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        raise Malformed(f"larger than {MAX_BYTES} bytes")
    return bytes(data)
