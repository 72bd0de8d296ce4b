"""Passwords: what is remembered, what waits, what is told by the time it takes."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from exporter.websecurity import passwords
from exporter.websecurity.passwords import BusyError, Credentials, Passwords, check, parse

DAVE = "$2y$10$2UXri9cIDdgeKjBo4Rlpx.U3ZLDV8X1IxKmsfOvhcM5oXQt/mLmXq"
USERS = {"dave": DAVE, "eve": "$2y$10$qRTBuFoULoYNA7AQ/F3ck.trZBPyjV64.oA4ZsSBCIWvXuvQlQTuu"}


class Counted:
    """Counts comparisons; while `hold` is not set they wait."""

    def __init__(self) -> None:
        self.hashes: list[str] = []
        self.hold = threading.Event()
        self.hold.set()

    def __call__(self, hashed: str, password: bytes) -> bool:
        self.hold.wait(10)
        self.hashes.append(hashed)
        return hashed == DAVE and password == b"dave123"


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def offered(text: str) -> Credentials:
    user, _, password = text.partition(":")
    return Credentials(user, password.encode())


def run(
    executor: ThreadPoolExecutor, counted: Counted, steps: Callable[[Passwords], Awaitable[None]]
) -> None:
    async def main() -> None:
        await steps(Passwords(executor, counted))

    asyncio.run(main())


def test_a_result_is_remembered_right_or_wrong(
    counted: Counted, executor: ThreadPoolExecutor
) -> None:
    async def steps(known: Passwords) -> None:
        for _ in range(5):
            assert await known.know(USERS, offered("dave:dave123"), "a")
            assert not await known.know(USERS, offered("dave:dave12"), "a")
            assert not await known.know(USERS, offered("mallory:dave123"), "a")

    run(executor, counted, steps)
    assert len(counted.hashes) == 3


def test_another_hash_is_compared_anew(counted: Counted, executor: ThreadPoolExecutor) -> None:
    """A password that was changed is refused at once."""

    async def steps(known: Passwords) -> None:
        assert await known.know(USERS, offered("dave:dave123"), "a")
        changed = {"dave": USERS["eve"]}
        assert not await known.know(changed, offered("dave:dave123"), "a")

    run(executor, counted, steps)


def test_a_name_that_nobody_has_costs_a_comparison(
    counted: Counted, executor: ThreadPoolExecutor
) -> None:
    """With the hash of a user, and of the same one each time, so that costs tell nothing."""

    async def steps(known: Passwords) -> None:
        for number in range(3):
            assert not await known.know(USERS, offered(f"mallory:{number}"), "a")

    run(executor, counted, steps)
    assert len(counted.hashes) == 3
    assert len(set(counted.hashes)) == 1
    assert set(counted.hashes) <= set(USERS.values())


def test_a_flood_of_wrong_passwords_forgets_nobody(
    counted: Counted, executor: ThreadPoolExecutor
) -> None:
    async def steps(known: Passwords) -> None:
        assert await known.know(USERS, offered("dave:dave123"), "a")
        for number in range(passwords.MOST_REMEMBERED + 10):
            assert not await known.know(USERS, offered(f"dave:{number}"), "a")
        before = len(counted.hashes)
        assert await known.know(USERS, offered("dave:dave123"), "a")
        assert len(counted.hashes) == before

    run(executor, counted, steps)


def test_the_same_question_at_once_is_compared_once(
    counted: Counted, executor: ThreadPoolExecutor
) -> None:
    async def steps(known: Passwords) -> None:
        asked = [known.know(USERS, offered("dave:dave123"), "a") for _ in range(50)]
        assert all(await asyncio.gather(*asked))

    run(executor, counted, steps)
    assert len(counted.hashes) == 1


def test_one_address_has_few_places_and_all_have_a_limit(
    counted: Counted, executor: ThreadPoolExecutor
) -> None:
    """Whoever floods is told to come again; whoever comes from elsewhere is not."""
    counted.hold.clear()

    async def steps(known: Passwords) -> None:
        asked = [
            asyncio.ensure_future(known.know(USERS, offered(f"dave:{n}"), "flood"))
            for n in range(1000)
        ]
        await asyncio.sleep(0.01)
        refused = [one for one in asked if one.done() and isinstance(one.exception(), BusyError)]
        assert len(refused) == 1000 - passwords.MOST_WAITING_EACH
        other = asyncio.ensure_future(known.know(USERS, offered("dave:dave123"), "prometheus"))
        await asyncio.sleep(0.01)
        counted.hold.set()
        assert await other
        await asyncio.gather(*asked, return_exceptions=True)
        assert not await known.know(USERS, offered("dave:later"), "flood")

    run(executor, counted, steps)


def test_whoever_hangs_up_frees_its_place_only_when_the_work_is_done(
    counted: Counted, executor: ThreadPoolExecutor
) -> None:
    counted.hold.clear()

    async def steps(known: Passwords) -> None:
        for number in range(passwords.MOST_WAITING_EACH):
            asked = asyncio.ensure_future(known.know(USERS, offered(f"dave:{number}"), "a"))
            await asyncio.sleep(0)
            asked.cancel()
        with pytest.raises(BusyError):
            await known.know(USERS, offered("dave:next"), "a")
        counted.hold.set()

    run(executor, counted, steps)


def basic(content: bytes) -> str:
    return "Basic " + base64.b64encode(content).decode()


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (basic(b"dave:a:b"), Credentials("dave", b"a:b")),
        (basic(b":"), Credentials("", b"")),
        (basic("jörg:ß".encode()), Credentials("jörg", "ß".encode())),
        (basic(b"dave").replace("Basic", "bAsIc"), None),
        ("Basic !!!!", None),
        ("Bearer abcdefgh", None),
        (basic(b"\xff:x"), None),
        (basic(b"a:" + b"x" * 5000), None),
        ("", None),
    ],
)
def test_what_is_offered_is_understood_or_nothing(header: str, found: Credentials | None) -> None:
    assert parse(header) == found


def test_bcrypt_agrees_with_gos() -> None:
    """Hashes of the toolkit's samples; only 72 bytes count; a NUL is no crash."""
    import bcrypt

    assert check(DAVE, b"dave123")
    assert not check(DAVE, b"dave124")
    assert not check(DAVE, b"dave\x00123")
    hashed = bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode()
    assert check(hashed, b"x" * 100)
