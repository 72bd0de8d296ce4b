"""Small kernel files, read again and again through kept descriptors.

Opening costs many times what reading does, so a file in `/sys` or `/proc` is opened once and then
read with `pread`. What the text means is left to `formats`, what a failure means to the source.
Standard library only.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

PAGE = 4096
LARGEST = 4 << 20
_GONE = frozenset((errno.ENODEV, errno.ESTALE, errno.ENOENT))


class Files:
    """Reads small files by path and keeps their descriptors, at most `limit` of them.

    Files beyond the limit are opened for each read. All text comes from one `pread` at offset 0,
    so it is consistent: a sysfs attribute fits in a page, and the files in `/proc` that are read
    here are single records. Not for use by two threads at once. `pread` is the system call.
    """

    def __init__(
        self, limit: int = 512, *, pread: Callable[[int, int, int], bytes] = os.pread
    ) -> None:
        self._limit = limit
        self._pread = pread
        self._kept: dict[str, tuple[int, int]] = {}

    def __len__(self) -> int:
        """Return how many descriptors are kept."""
        return len(self._kept)

    def read(self, path: str) -> bytes:
        """Return the file's content now; raise `OSError` as the kernel does.

        A descriptor whose file went away (ENODEV, ESTALE, ENOENT: the device was removed, perhaps
        to come back under the same name) is given up and the path is opened anew, once.
        """
        kept = self._kept.get(path)
        if kept is None:
            return self._open(path)
        fd, size = kept
        try:
            data = self._pread(fd, size, 0)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            self.forget(path)
            return self._open(path)
        return data if len(data) < size else self._grow(path, fd, size)

    def glance(self, path: str) -> bytes:
        """Return the file's content without keeping a descriptor: for what is read rarely."""
        fd = os.open(path, os.O_RDONLY)
        try:
            return self._whole(fd, path, PAGE)[0]
        finally:
            os.close(fd)

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder; raise `OSError` if it cannot be listed."""
        return sorted(os.listdir(path))  # noqa: PTH208 - names are wanted, not paths

    def target(self, path: str) -> str:
        """Return the last name of where a link leads, "" if there is no such link."""
        try:
            return os.readlink(path).rstrip("/").rpartition("/")[2]  # noqa: PTH115
        except OSError:
            return ""

    def identity(self, path: str) -> int:
        """Return what tells a file or folder from a later one of the same name; 0 if there is none.

        The kernel numbers what it shows in `/sys` anew when a device is made anew.
        """
        try:
            return os.stat(path).st_ino  # noqa: PTH116
        except OSError:
            return 0

    def sweep(self) -> None:
        """Give up descriptors whose path now leads to another file or to none.

        The kernel says ENODEV for its own files; a regular file that was replaced would go on
        being read in its old state. Costs two system calls for each descriptor: call it rarely.
        """
        for path, (fd, _) in tuple(self._kept.items()):
            try:
                same = os.path.samestat(os.fstat(fd), os.stat(path))  # noqa: PTH116
            except OSError:
                same = False
            if not same:
                self.forget(path)

    def keep(self, limit: int) -> None:
        """Keep so many descriptors at most from now on."""
        self._limit = limit
        for path in tuple(self._kept)[limit:]:
            self.forget(path)

    def forget(self, path: str) -> None:
        """Close the descriptor of one path, if it is kept."""
        kept = self._kept.pop(path, None)
        if kept is not None:
            os.close(kept[0])

    def close(self) -> None:
        """Close all descriptors. A later read opens again."""
        for path in tuple(self._kept):
            self.forget(path)

    def _open(self, path: str) -> bytes:
        fd = os.open(path, os.O_RDONLY)
        keep = len(self._kept) < self._limit
        try:
            data, size = self._whole(fd, path, PAGE)
        except OSError as error:
            # a file that says EINVAL may work later; one whose device is gone will not
            keep = keep and error.errno not in _GONE
            size = PAGE
            raise
        finally:
            if keep:
                self._kept[path] = (fd, size)
            else:
                os.close(fd)
        return data

    def _grow(self, path: str, fd: int, size: int) -> bytes:
        data, size = self._whole(fd, path, size * 2)
        self._kept[path] = (fd, size)
        return data

    def _whole(self, fd: int, path: str, size: int) -> tuple[bytes, int]:
        """Return all of a file from one read, and the buffer size that was enough for it."""
        while True:
            data = self._pread(fd, size, 0)
            if len(data) < size:
                return data, size
            if size >= LARGEST:
                raise OSError(errno.EFBIG, f"larger than {LARGEST} bytes", path)
            size *= 2
