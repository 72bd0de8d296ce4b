"""One HTTP GET after the other from one server, within a time and a size that are kept.

Metrics pages come from processes that may be overloaded, hung, half started or hostile. So the
whole exchange has one deadline, a body has a cap (also after decompression), a redirect does not
lead to another server, and what a status means for an operator is said in words. Retries, backoff
and the meaning of the page are left to others. `http.client` on a kept connection costs a fifth of
what the larger clients do; proxies of the environment are not used: a node's own servers are meant.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urljoin

from exporter.clock import Clock
from exporter.fetch.bodies import MAX_SIDE_BODY, Answer, decoded, excerpt, read_answer
from exporter.fetch.caller import Caller, Reply
from exporter.fetch.failures import Unreached, explained
from exporter.fetch.target import Target
from exporter.fetch.trust import bearer, tls
from exporter.fetch.wire import Budget, Connection, Stale, TlsSocket
from exporter.samples import Reason, SourceError

__all__ = [
    "ACCEPT", "MAX_BYTES", "Caller", "Follow", "HttpFetcher", "Refused", "Reply", "Response",
    "Unreached",
]  # fmt: skip

MAX_BYTES = 16 << 20
"""Default cap of a body, in bytes."""

ACCEPT = "text/plain;version=0.0.4, application/openmetrics-text;version=1.0.0;q=0.5, */*;q=0.1"

_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 3

Follow = Literal["same-host", "none", "any"]


class Response(NamedTuple):
    """An answer with status 200 to 299.

    `content_type` is as sent, "" if missing; `body` is decompressed.
    """

    status: int
    content_type: str
    body: bytes


class Refused(SourceError):  # noqa: N818 - said of the answer
    """An answer came, and its status is not a success."""

    def __init__(self, status: int, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.status = status


class HttpFetcher:
    """Gets one URL again and again over a kept connection.

    `timeout` is seconds for the whole exchange, redirects included (a look-up of the host's name
    cannot be cut short). `token_file` holds a bearer token and is read each time, so that it may
    rotate. `follow_redirects`: to the same scheme, host and port only (`same-host`), never, or
    anywhere; what is secret goes to the same host only. Raises `ValueError` for a URL that
    cannot be used. Errors and `repr` hold neither the token nor the query of the URL.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        clock: Clock,
        max_bytes: int = MAX_BYTES,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        insecure_skip_verify: bool = False,
        follow_redirects: Follow = "same-host",
    ) -> None:
        self._target = Target(url)
        self._timeout = timeout
        self._clock = clock
        self._max_bytes = max_bytes
        self._token_file = token_file
        self._ca_file = ca_file
        self._insecure = insecure_skip_verify
        self._follow = follow_redirects
        self._kept: Connection | None = None
        self._body: bytes | None = None

    def __repr__(self) -> str:
        return f"HttpFetcher({self._target.shown!r})"

    def get(self) -> Response:
        """Fetch the URL.

        Raises `Refused` for a status that is not a success, `SourceError` for a redirect that is
        not followed and for files that cannot be read, `TimeoutError` at the deadline,
        `ConnectionError` if the server is not there, leaves too early or is not trusted,
        `Malformed` if what it sends is too large or not HTTP.
        """
        return self._fetch()

    def post(self, body: bytes) -> Response:
        """Send JSON, once: on a connection of its own, and no redirect is followed.

        Raises what `get` does.
        """
        self.close()
        self._body = body
        try:
            return self._fetch()
        finally:
            self._body = None
            self.close()

    def _fetch(self) -> Response:
        budget = Budget(self._clock, self._timeout, self._max_bytes)
        secrets = self._secrets()
        with explained(self._target.shown, self._timeout):
            target = self._target
            for _ in range(_MAX_REDIRECTS + 1):
                answer = self._exchange(
                    target, budget, secrets if target.same(self._target) else {}
                )
                if answer.status not in _REDIRECTS:
                    return self._judged(answer, budget, secrets)
                target = self._redirected(target, answer)
        raise SourceError("unavailable", f"{self._target.shown}: too many redirects")

    def close(self) -> None:
        """Close the kept connection."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _secrets(self) -> dict[str, str]:
        """Return the headers that only the configured server may see."""
        return bearer(self._token_file)

    def _exchange(self, target: Target, budget: Budget, secrets: Mapping[str, str]) -> Answer:
        """Ask on the kept connection; where that was closed meanwhile, once more on a new one."""
        if not target.same(self._target):
            connection = self._connection(target)
            try:
                return self._ask(connection, target, budget, secrets)
            finally:
                connection.close()
        if self._kept is not None and self._kept.sock is not None:
            try:
                return self._ask(self._kept, target, budget, secrets)
            except Stale:
                pass
        self.close()
        self._kept = self._connection(target)
        return self._ask(self._kept, target, budget, secrets)

    def _connection(self, target: Target) -> Connection:
        return Connection(target, self._context if target.scheme == "https" else None)

    def _context(self) -> ssl.SSLContext:
        context = tls(self._ca_file, insecure=self._insecure)
        context.sslsocket_class = TlsSocket
        return context

    def _ask(
        self, connection: Connection, target: Target, budget: Budget, secrets: Mapping[str, str]
    ) -> Answer:
        """Make one exchange. A connection that is in an unclear state afterwards is closed."""
        reused = connection.sock is not None
        done = False
        try:
            connection.budget = budget
            response = self._answered(connection, target, secrets, reused=reused)
            limit = self._max_bytes if 200 <= response.status < 300 else MAX_SIDE_BODY
            answer = read_answer(response, limit)
            done = True
            return answer
        finally:
            if not done:
                connection.close()

    def _answered(
        self,
        connection: Connection,
        target: Target,
        secrets: Mapping[str, str],
        *,
        reused: bool,
    ) -> http.client.HTTPResponse:
        headers = {
            "Host": target.netloc,
            "Accept": ACCEPT,
            "Accept-Encoding": "identity" if target.loopback else "gzip",
            "User-Agent": "flopwatch",
        }
        try:
            if self._body is None:
                connection.request("GET", target.path, headers={**headers, **secrets})
            else:
                headers |= {"Content-Type": "application/json", **secrets}
                connection.request("POST", target.path, self._body, headers)
            return connection.getresponse()
        except (ConnectionError, ssl.SSLError, http.client.BadStatusLine) as error:
            if reused:
                raise Stale from error
            raise

    def _redirected(self, target: Target, answer: Answer) -> Target:
        try:
            wanted = Target(urljoin(target.url, answer.location))
        except ValueError:
            raise SourceError(
                "unavailable", f"{target.shown}: redirects to no usable URL"
            ) from None
        if (
            self._follow == "none"
            or self._body is not None
            or (self._follow == "same-host" and not wanted.same(target))
        ):
            raise SourceError(
                "unavailable",
                f"{target.shown}: redirects to {wanted.shown}, which is not followed; configure"
                " that address if it is meant",
            )
        return wanted

    def _judged(self, answer: Answer, budget: Budget, secrets: Mapping[str, str]) -> Response:
        """Return a success; raise what any other status means."""
        status = answer.status
        if not 200 <= status < 300:
            reason, hint = _meaning(status)
            said = "" if reason == "denied" else excerpt(answer, budget, secrets)
            text = f"{self._target.shown}: HTTP {status}: {hint}{said}"
            raise Refused(status, reason, text)
        body = decoded(answer, self._max_bytes, budget)
        return Response(status, answer.content_type, body)


def _meaning(status: int) -> tuple[Reason, str]:
    """Return what a status means where a metrics page is expected."""
    match status:
        case 400:
            return "unavailable", (
                "bad request; a llama.cpp router wants to know the model (?model=NAME in the URL)"
            )
        case 401 | 403:
            return "denied", "wants a valid token (token_file)"
        case 404:
            return "unavailable", "metrics are switched off, or the path is another one"
        case 501:
            return "unavailable", "metrics are switched off (llama.cpp: start it with --metrics)"
        case 503:
            return "unavailable", "not ready, perhaps it is still loading the model"
        case _ if status >= 500:
            return "unavailable", "the server has a fault of its own"
        case _:
            return "unavailable", "not what a metrics page answers"
