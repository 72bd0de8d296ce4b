"""A client for services whose statuses have a meaning: any of them is an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from exporter.clock import Clock
from exporter.fetch.bodies import MAX_SIDE_BODY, read_answer
from exporter.fetch.failures import Unreached, explained
from exporter.fetch.target import Target
from exporter.fetch.wire import Budget, Connection


class Reply(NamedTuple):
    """An answer of any status; headers that were not sent are ""."""

    status: int
    content_type: str
    etag: str
    body: bytes


class Caller:
    """Asks one server for paths, with method and headers of one's own; any status is an answer.

    For services whose statuses have a meaning, and which are asked seldom: each request has a
    connection of its own. No redirect is followed and no proxy used; `allowed` tells which numeric
    addresses may be connected to. Raises `ValueError` for a URL that cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        clock: Clock,
        max_bytes: int = MAX_SIDE_BODY,
        allowed: Callable[[str], bool] | None = None,
    ) -> None:
        self._target = Target(url)
        self._timeout = timeout
        self._clock = clock
        self._max_bytes = max_bytes
        self._allowed = allowed

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        body: bytes | None = None,
        more_time: float = 0.0,
    ) -> Reply:
        """Return the answer to one request; `more_time` is added to the timeout, in seconds.

        Raises `Unreached` if nobody accepts the connection in time, `TimeoutError` if no whole
        answer comes, `ConnectionError` if the server is not there, leaves too early or is not
        allowed, `Malformed` if what it sends is too large or not HTTP.
        """
        seconds = self._timeout + more_time
        target = self._target
        connection = Connection(target, None)
        connection.allowed = self._allowed
        connection.budget = Budget(self._clock, seconds, self._max_bytes)
        shown = f"{target.scheme}://{target.netloc}{path.partition('?')[0]}"
        with explained(shown, seconds):
            try:
                self._connect(connection, shown)
                sent = {"Host": target.netloc, "User-Agent": "flopwatch", "Connection": "close"}
                connection.request(method, path, body, {**sent, **headers})
                answer = read_answer(connection.getresponse(), self._max_bytes)
            finally:
                connection.close()
        return Reply(answer.status, answer.content_type, answer.etag, answer.body)

    def _connect(self, connection: Connection, shown: str) -> None:
        try:
            connection.connect()
        except TimeoutError:
            raise Unreached(f"{shown}: no connection within {self._timeout:g} s") from None
