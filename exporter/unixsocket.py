"""A listening unix socket at a path: made so that nothing of others is lost, and taken away again.

Only a socket of our own user that nobody listens on is replaced. Bind never overwrites, so whatever
appears at the path meanwhile stays, and is an error.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

MODE = 0o660
_LONGEST = 107


@contextlib.contextmanager
def listening(path: Path, group: str | int | None = None) -> Iterator[socket.socket]:
    """Lend a socket that listens at `path`, for its owner and a group; remove it at the end.

    Raises `OSError` with the reason for people.
    """
    if len(os.fsencode(path)) > _LONGEST:
        raise OSError(
            errno.ENAMETOOLONG, f"longer than the {_LONGEST} bytes that a socket may have"
        )
    gid = _number_of(group)
    _make_room(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
        bound.bind(os.fspath(path))
        # Nobody can connect before it listens.
        ours = _identity(path)
        try:
            if gid is not None:
                os.chown(path, -1, gid, follow_symlinks=False)
            path.chmod(MODE)
            bound.listen(128)
            yield bound
        finally:
            with contextlib.suppress(OSError):
                if _identity(path) == ours:
                    path.unlink()


def _make_room(path: Path) -> None:
    """Remove a socket of ours that is left over. Raises `OSError` for anything else there."""
    parent = path.parent.stat()
    if parent.st_mode & stat.S_IWOTH and not parent.st_mode & stat.S_ISVTX:
        raise OSError(errno.EPERM, f"anybody may replace files in {path.parent}")
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError(errno.EEXIST, "there is something that is not a socket; it is left alone")
    if found.st_uid != os.geteuid():
        raise OSError(errno.EPERM, f"the socket there belongs to user {found.st_uid}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            pass
    raise OSError(errno.EADDRINUSE, "another process listens there")


def _identity(path: Path) -> tuple[int, int]:
    about = path.lstat()
    return about.st_dev, about.st_ino


def _number_of(group: str | int | None) -> int | None:
    if group is None or isinstance(group, int):
        return group
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise OSError(errno.EINVAL, f"there is no group {group!r}") from None
