"""A file that others write, read on from where one was: through rotation, truncation and restarts.

A file is known by device and inode, and by a fingerprint of its first bytes: inodes are used
again, and a file may be cut and written anew in place. The names under which it lies may change: it
is read to its end through the open descriptor before what took its name is begun. Standard library
only.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from typing import NamedTuple

_FINGERPRINT = 1024
_LINKS = 8
_GONE_QUIETLY = (errno.ENOENT, errno.ENOTDIR)


class Mark(NamedTuple):
    """Which file it was, and a place in it: what is kept over a restart."""

    device: int
    inode: int
    length: int
    digest: str
    offset: int


class Tail:
    """Reads one path. `root` is where absolute links lead from: the machine's files in a container.

    `offset` is where reading goes on. `turned` says that the last `read` found another file, or the
    same one cut: what it returned begins at its beginning.
    """

    def __init__(self, path: str, root: str = "/") -> None:
        self.path = path
        self.offset = 0
        self.size = 0
        self.written = 0.0
        self.turned = False
        self._root = root.rstrip("/")
        self._fd: int | None = None
        self._identity: tuple[int, int] | None = None
        self._first = b""
        self._seen: tuple[int, int] = (-1, -1)

    # ------------------------------------------------------------ beginning

    def open(self) -> None:
        """Open the file at its beginning. Raises `OSError`."""
        self.close()
        fd = os.open(self._real(), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "no regular file", self.path)
        self._fd, self._identity = fd, (about.st_dev, about.st_ino)
        self.offset, self._first, self._seen = 0, b"", (-1, -1)
        self.size, self.written = about.st_size, about.st_mtime
        self._learn()

    def resume(self, mark: Mark) -> bool:
        """Go on at a mark if the open file is still the one that it was made of."""
        if (mark.device, mark.inode) != self._identity or not 0 <= mark.offset <= self.size:
            return False
        if self._fd is None or not 0 <= mark.length <= _FINGERPRINT:
            return False
        first = os.pread(self._fd, mark.length, 0)
        if len(first) != mark.length or _digest(first) != mark.digest:
            return False
        self.offset = mark.offset
        return True

    def begins_line(self) -> bool:
        """Tell whether a line begins at `offset`. Raises `OSError`."""
        if self.offset == 0 or self._fd is None:
            return True
        return os.pread(self._fd, 1, self.offset - 1) == b"\n"

    def head(self, limit: int) -> bytes:
        """Return the first bytes of the file. Raises `OSError`."""
        return b"" if self._fd is None else os.pread(self._fd, limit, 0)

    def mark(self, offset: int) -> Mark | None:
        """Return a mark at a place in the file, `None` if none has been opened."""
        if self._identity is None:
            return None
        return Mark(*self._identity, len(self._first), _digest(self._first), offset)

    # ------------------------------------------------------------ reading

    def read(self, limit: int) -> bytes:
        """Return the next bytes, at most `limit`, b"" if there are none. Raises `OSError`."""
        self.turned = False
        if self._fd is None and not self._reopen():
            return b""
        data = self._next(limit)
        if data or not self._replaced():
            return data
        # Something may have been written between the last read and the change of names.
        if data := self._next(limit):
            return data
        self.open()
        self.turned = True
        return self._next(limit)

    @property
    def behind(self) -> int:
        """Bytes that were there at the last look and have not been read."""
        return max(0, self.size - self.offset)

    def close(self) -> None:
        """Close the file. A later read goes on where this one was."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None

    def _reopen(self) -> bool:
        """Open the file again if anything has happened to it; tell whether it is open."""
        about = os.stat(self._real())  # noqa: PTH116
        if (about.st_dev, about.st_ino) == self._identity and about.st_size == self.offset:
            return False
        mark = self.mark(self.offset)
        self.open()
        if mark is not None and not self.resume(mark):
            self.turned = True
        return True

    def _next(self, limit: int) -> bytes:
        assert self._fd is not None  # noqa: S101 - for the type checker
        about = os.fstat(self._fd)
        self.size, self.written = about.st_size, about.st_mtime
        seen = (about.st_size, about.st_mtime_ns)
        if seen == self._seen and self.offset == about.st_size:
            return b""
        if self.offset > about.st_size or not self._same():
            self.offset, self._first = 0, b""
            self.turned = True
        self._learn()
        data = os.pread(self._fd, limit, self.offset)
        self.offset += len(data)
        if not data:
            self._seen = seen
        return data

    def _same(self) -> bool:
        """Tell whether the file still begins as it did."""
        if not self._first or self._fd is None:
            return True
        return os.pread(self._fd, len(self._first), 0) == self._first

    def _learn(self) -> None:
        if self._fd is not None and len(self._first) < _FINGERPRINT:
            self._first = os.pread(self._fd, _FINGERPRINT, 0)

    def _replaced(self) -> bool:
        """Tell whether another file has the name, and something has been written to it."""
        try:
            about = os.stat(self._real())  # noqa: PTH116
        except OSError as error:
            if error.errno not in _GONE_QUIETLY:
                raise
            return False
        return (about.st_dev, about.st_ino) != self._identity and about.st_size > 0

    def _real(self) -> str:
        """Return the path with absolute links followed below the root."""
        path = self.path
        if not self._root:
            return path
        for _ in range(_LINKS):
            try:
                target = os.readlink(path)  # noqa: PTH115
            except OSError:
                break
            if target.startswith("/"):
                path = self._root + target
            else:
                path = os.path.join(os.path.dirname(path), target)  # noqa: PTH118, PTH120
        return path


def _digest(first: bytes) -> str:
    return hashlib.sha256(first).hexdigest()
