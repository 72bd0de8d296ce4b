"""One connection: what it may send, how far it may run ahead, how long it may take."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from exporter import connection
from exporter.connection import Connection, Crowd
from exporter.requests import PLAIN, Answer, Receive, Scope, Send

Application = Callable[[Scope, Receive, Send], Awaitable[None]]
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
PATIENCE = 10.0


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **options: Any) -> None:
        asyncio.run(test(*args, **options))

    return run


async def hello(_: Scope, __: Receive, send: Send) -> None:
    await Answer(200, PLAIN, b"hello\n").send(send, body=True)


async def much(_: Scope, __: Receive, send: Send) -> None:
    await Answer(200, PLAIN, bytes(8 << 20)).send(send, body=True)


@asynccontextmanager
async def client(application: Application, crowd: Crowd) -> AsyncIterator[socket.socket]:
    """Lend a client whose connection the application serves."""
    loop = asyncio.get_running_loop()
    config = uvicorn.Config(application, ws="none", lifespan="off", log_config=None)
    config.load()
    make = functools.partial(
        Connection, config=config, server_state=ServerState(), app_state={}, crowd=crowd
    )
    server = await loop.create_server(make, "127.0.0.1", 0)
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.setblocking(False)
        await loop.sock_connect(one, server.sockets[0].getsockname())
        yield one
    server.close()


async def ended(crowd: Crowd) -> bool:
    """Tell whether the daemon ends the connection by itself."""
    try:
        async with asyncio.timeout(PATIENCE):
            while crowd.open:
                await asyncio.sleep(0.01)
    except TimeoutError:
        return False
    return True


async def is_ended_after(application: Application, *sent: bytes) -> bool:
    crowd = Crowd()
    async with client(application, crowd) as one:
        for data in sent:
            try:
                await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(one, data), PATIENCE)
            except ConnectionError:
                break
        return await ended(crowd)


@pytest.mark.parametrize(
    "bomb",
    [b"A: " + b"x" * (1 << 20), b"A: b\r\n" * (1 << 17)],
    ids=["one", "many"],
)
@in_a_loop
async def test_trailers_without_end_take_no_memory(bomb: bytes) -> None:
    """What follows a body has the limit of a head; it cost quadratic time and all memory."""
    assert await is_ended_after(hello, CHUNKED + b"0\r\n", bomb)


@in_a_loop
async def test_a_chunk_with_a_name_without_end_is_not_read() -> None:
    """What frames chunks is as little endless."""
    assert await is_ended_after(hello, CHUNKED + b"1;", b"x" * (1 << 20))


@in_a_loop
async def test_a_body_in_small_chunks_is_read() -> None:
    """What frames a body may be as long as the body is, and a head more."""
    told: list[int] = []

    async def count(_: Scope, receive: Receive, send: Send) -> None:
        length, more = 0, True
        while more:
            message = await receive()
            length, more = length + len(message["body"]), message["more_body"]
        told.append(length)
        await hello(_, receive, send)

    crowd = Crowd()
    async with client(count, crowd) as one:
        loop = asyncio.get_running_loop()
        body = b"10\r\n0123456789abcdef\r\n" * 20_000 + b"0\r\n\r\n"
        await loop.sock_sendall(one, CHUNKED + body)
        answer = await asyncio.wait_for(loop.sock_recv(one, 100), PATIENCE)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert told == [320_000]


@in_a_loop
async def test_ten_thousand_requests_at_once_take_no_memory() -> None:
    """Each that waits took 2 KB; 60 connections from one address ended a daemon of 256 MiB."""
    made = 0

    async def count(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal made
        made += 1
        await much(scope, receive, send)

    assert await is_ended_after(count, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 10_000)
    assert made <= connection.MOST_AHEAD


@in_a_loop
async def test_a_few_requests_at_once_are_answered() -> None:
    crowd = Crowd()
    async with client(hello, crowd) as one:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(one, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * connection.MOST_AHEAD)
        got = b""
        while got.count(b"hello") < connection.MOST_AHEAD:
            got += await asyncio.wait_for(loop.sock_recv(one, 4096), PATIENCE)
        assert crowd.open == 1


@in_a_loop
async def test_who_does_not_take_its_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer was held for as long as the client liked, beyond the limit of keeping alive."""
    monkeypatch.setattr(connection, "SECONDS_TO_ANSWER", 0.2)
    assert await is_ended_after(much, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")


@in_a_loop
async def test_a_body_that_nobody_wants_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer has been given, and the body trickles on."""
    monkeypatch.setattr(connection, "SECONDS_TO_ANSWER", 0.2)
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
    assert await is_ended_after(hello, head, b"x")


@in_a_loop
async def test_a_connection_is_kept_for_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of the answer is none of the time between requests."""
    monkeypatch.setattr(connection, "SECONDS_TO_ANSWER", 0.1)
    crowd = Crowd()
    async with client(hello, crowd) as one:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            await loop.sock_sendall(one, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await asyncio.wait_for(loop.sock_recv(one, 4096), PATIENCE)
            await asyncio.sleep(0.3)
        assert crowd.open == 1
