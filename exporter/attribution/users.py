"""Names of users by their numbers, looked up when they are asked for, and only then."""

from __future__ import annotations

import pwd
from collections.abc import Callable
from pathlib import Path

from exporter.clock import Clock

_KEPT = 600.0
_MOST = 4096
_LARGEST = 4 << 20


class Users:
    """Looks up users in `root`'s list of them, and asks the system where `root` is its own.

    The system may ask a directory service for that, which may take its time; what it said,
    nothing included, holds for ten minutes.
    """

    def __init__(self, root: Path, clock: Clock) -> None:
        self._file = root / "etc" / "passwd"
        self._system = root == Path("/")
        self._clock = clock
        self._known: dict[str, str] = {}
        self._due = 0.0

    def __call__(self, uid: str) -> str:
        """Return the name of a user, their number if there is no name."""
        now = self._clock.monotonic()
        if now >= self._due or len(self._known) > _MOST:
            self._known, self._due = _listed(self._file), now + _KEPT
        if uid not in self._known:
            self._known[uid] = self._asked(uid) or uid
        return self._known[uid]

    def _asked(self, uid: str) -> str:
        if not self._system:
            return ""
        try:
            return pwd.getpwuid(int(uid)).pw_name
        except (KeyError, OverflowError, ValueError, OSError):
            return ""


def _listed(file: Path) -> dict[str, str]:
    """Return the names in a file of users; the first of several for one number."""
    try:
        with file.open("rb") as opened:
            text = opened.read(_LARGEST).decode("utf-8", "replace")
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in text.splitlines():
        fields = line.split(":", 3)
        if len(fields) == 4 and fields[0] and len(found) < _MOST:
            found.setdefault(fields[2], fields[0])
    return found


Named = Callable[[str], str]
"""Turns a user's number into what is shown of them."""


def nobody(_uid: str) -> str:
    """Show nothing of users."""
    return ""


def as_number(uid: str) -> str:
    """Show users by their numbers."""
    return uid
