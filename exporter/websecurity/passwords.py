"""Basic authentication: passwords against bcrypt hashes, and no storm of work by wrong ones.

A comparison costs a tenth of a second of processor time by intention. So results are remembered,
under a key that only this process knows; comparisons run in threads that the caller lends, few at
once; each address has a few places in the queue; and a name that nobody has costs the same time.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import NamedTuple

MOST_REMEMBERED = 512
MOST_WAITING = 64
MOST_WAITING_EACH = 4
"""Comparisons that one address may have waiting."""
_LONGEST = 1024
"""Bytes of name and password together."""
_COMPARED = 72
"""bcrypt looks at so many bytes of a password, and Go's at no more."""


class Credentials(NamedTuple):
    """What a caller says of itself."""

    user: str
    password: bytes


class BusyError(Exception):
    """Too many passwords are being compared."""


def parse(header: str) -> Credentials | None:
    """Return what an `Authorization` header offers; None if that is not a name and a password."""
    scheme, _, value = header.partition(" ")
    if scheme.lower() != "basic" or len(value) > 2 * _LONGEST:
        return None
    try:
        decoded = base64.b64decode(value.strip(), validate=True)
        user, colon, password = decoded.partition(b":")
        return Credentials(user.decode(), password) if colon else None
    except (binascii.Error, ValueError):
        return None


def check(hashed: str, password: bytes) -> bool:
    """Compare a password with a hash. Takes long."""
    import bcrypt

    try:
        return bcrypt.checkpw(password[:_COMPARED], hashed.encode())
    except ValueError:  # a NUL within, or a salt that bcrypt does not take
        return False


def is_available() -> bool:
    """Tell whether the extra `web` is installed."""
    try:
        import bcrypt  # noqa: F401
    except ImportError:
        return False
    return True


class Passwords:
    """Knows who has given the right password; `executor` lends the threads for comparing.

    What is remembered holds for a name, a hash and a password, so that a changed file needs no
    forgetting. Right ones are kept apart from wrong ones: a flood of these pushes nobody out.
    """

    def __init__(self, executor: Executor, compare: Callable[[str, bytes], bool] = check) -> None:
        self._executor = executor
        self._compare_with = compare
        self._key = os.urandom(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._waiting: dict[bytes, asyncio.Future[bool]] = {}
        self._each: Counter[str] = Counter()

    async def know(self, users: Mapping[str, str], offered: Credentials, address: str) -> bool:
        """Tell whether a name and a password are those of a user. Raises `BusyError`."""
        known = offered.user in users
        hashed = users[offered.user] if known else self._decoy(users, offered.user)
        mark = self._mark(offered, hashed)
        if mark in self._right:
            self._right.move_to_end(mark)
            return known
        if mark in self._wrong:
            return False
        return await self._compare(mark, hashed, offered.password, address) and known

    def _decoy(self, users: Mapping[str, str], user: str) -> str:
        """Return the hash of somebody, always the same one for a name."""
        hashes = sorted(users.values())
        return hashes[int.from_bytes(self._digest(user.encode())[:8], "big") % len(hashes)]

    def _mark(self, offered: Credentials, hashed: str) -> bytes:
        parts = (offered.user.encode(), hashed.encode(), offered.password)
        return self._digest(b"".join(len(part).to_bytes(4, "big") + part for part in parts))

    def _digest(self, content: bytes) -> bytes:
        return hmac.new(self._key, content, hashlib.sha256).digest()

    async def _compare(self, mark: bytes, hashed: str, password: bytes, address: str) -> bool:
        if (under_way := self._waiting.get(mark)) is not None:
            return await asyncio.shield(under_way)
        if len(self._waiting) >= MOST_WAITING or self._each[address] >= MOST_WAITING_EACH:
            raise BusyError
        future = asyncio.ensure_future(self._work(mark, hashed, password))
        self._waiting[mark] = future
        self._each[address] += 1
        future.add_done_callback(lambda _: self._leave(mark, address))
        # Whoever hangs up leaves a comparison behind that counts until it has ended.
        return await asyncio.shield(future)

    def _leave(self, mark: bytes, address: str) -> None:
        del self._waiting[mark]
        self._each[address] -= 1
        if not self._each[address]:
            del self._each[address]

    async def _work(self, mark: bytes, hashed: str, password: bytes) -> bool:
        loop = asyncio.get_running_loop()
        right = await loop.run_in_executor(self._executor, self._compare_with, hashed, password)
        remembered = self._right if right else self._wrong
        remembered[mark] = None
        while len(remembered) > MOST_REMEMBERED:
            remembered.popitem(last=False)
        return right
