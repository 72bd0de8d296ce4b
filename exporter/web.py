"""The web room answers HTTP. It knows requests and responses, not where samples come from.

One bare ASGI callable answers `/metrics` and the health checks from bytes; every other path goes
to a FastAPI application, which is imported at the first such request (it is 20 MiB that a node
whose page only Prometheus reads need not spend). Long pages are rendered off the event loop.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from exporter.requests import (
    PLAIN,
    Answer,
    Receive,
    Scope,
    Send,
    came_by_socket,
    headers_of,
    is_authenticated,
    is_from_browser,
    is_local,
    is_trusted,
)

PageKey = tuple[frozenset[str] | None, bool, bool]

PUSHES = frozenset(("/api/v1/training/steps", "/v1/metrics"))
"""Where jobs push what they have to tell."""

INSIDE = "/-/debug"
"""Where the daemon tells of its inside."""

TEXT = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPINGS = frozenset(("allow-utf-8", "underscores", "dots", "values"))


@dataclass(frozen=True, slots=True)
class Services:
    """What the web room is given to answer with.

    `at_once` returns a page if that takes no time, `page` always (any thread may call it);
    `status` and `notices` (what the cloud has announced) take whether the caller may see details;
    `history` takes the number of the point after which it is wanted;
    `reload` returns the problems that kept the
    old configuration in force, and is `None` where it is not offered over HTTP; `release` lets go
    of the drivers for so many seconds, and says which are closed; `remote_control` tells whether
    authenticated callers elsewhere may ask for both; `push` answers what jobs send to
    one of `PUSHES`; `inside` is what the daemon tells of itself to callers on this machine.
    `reload` and `release` run in `chores` and
    `releases`, everything else in `executor`.
    """

    groups: tuple[str, ...]
    at_once: Callable[[PageKey], bytes | None]
    page: Callable[[PageKey], bytes]
    healthy: Callable[[], bool]
    ready: Callable[[], bool]
    status: Callable[[bool], Mapping[str, Any]]
    history: Callable[[int | None], Mapping[str, Any]]
    notices: Callable[[bool], Mapping[str, Any]]
    reload: Callable[[], tuple[str, ...]] | None
    release: Callable[[float | None], Mapping[str, bool]]
    remote_control: Callable[[], bool]
    scraped: Callable[[], None]
    push: Callable[[Scope, Receive], Awaitable[Answer]]
    inside: Callable[[], Mapping[str, Any]]
    executor: Executor
    chores: Executor
    releases: Executor


class Format(NamedTuple):
    """How a page is written: its content type, and whether that is OpenMetrics."""

    content_type: str
    openmetrics: bool


def create_app(services: Services) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """Return the ASGI application."""
    return _Front(services)


class _Front:
    """Answers what must be fast or must always work; hands the rest to the API."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._api: Callable[[Scope, Receive, Send], Awaitable[None]] | None = None
        self._routes: Mapping[str, Callable[[Scope], Awaitable[Answer]]] = {
            "/metrics": self._metrics,
            "/-/healthy": self._healthy,
            "/-/ready": self._ready,
            "/spot": self._spot,
            "/": _to_status,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if scope["path"] in PUSHES:
            answer = await self._services.push(scope, receive)
            await answer.send(send, body=scope["method"] != "HEAD")
            return
        if scope["path"] == INSIDE:
            await self._inside(scope).send(send, body=True)
            return
        route = self._routes.get(scope["path"])
        if route is None:
            await (await self._lazy_api())(scope, receive, send)
            return
        if scope["method"] not in {"GET", "HEAD"}:
            answer = Answer(405, PLAIN, b"only GET and HEAD\n", ((b"allow", b"GET, HEAD"),))
        else:
            answer = await route(scope)
        await answer.send(send, body=scope["method"] != "HEAD")

    async def _lazy_api(self) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
        if self._api is None:
            loop = asyncio.get_running_loop()
            services = self._services
            self._api = await loop.run_in_executor(services.executor, _build_api, services)
        return self._api

    async def _metrics(self, scope: Scope) -> Answer:
        headers = headers_of(scope)
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        asked = [value for name, value in query if name in {"group", "collect[]"}]
        unknown = sorted(set(asked).difference(self._services.groups))
        if unknown:
            known = ", ".join(self._services.groups)
            return Answer(400, PLAIN, f"no group {unknown[0][:64]!r}; there are {known}\n".encode())
        wanted = [value for name, value in query if name == "format"]
        if wanted and wanted[-1] not in _FORMATS:
            return Answer(400, PLAIN, b"format is text or openmetrics\n")
        fmt = _FORMATS[wanted[-1]] if wanted else negotiate(headers.get("accept", ""))
        gzipped = accepts_gzip(headers.get("accept-encoding", ""))
        key = (frozenset(asked) if asked else None, fmt.openmetrics, gzipped)
        body = self._services.at_once(key)
        if body is None:
            loop = asyncio.get_running_loop()
            body = await loop.run_in_executor(self._services.executor, self._services.page, key)
        self._services.scraped()
        extra = [(b"vary", b"Accept, Accept-Encoding"), (b"cache-control", b"no-store")]
        if gzipped:
            extra.append((b"content-encoding", b"gzip"))
        return Answer(200, fmt.content_type, body, tuple(extra))

    def _inside(self, scope: Scope) -> Answer:
        """Answer at once, on the event loop: it is asked when threads hang."""
        if scope["method"] != "POST":
            return Answer(405, PLAIN, b"only POST\n", ((b"allow", b"POST"),))
        here = is_local(scope) or came_by_socket(scope)
        if not here or is_from_browser(headers_of(scope)):
            return Answer(403, PLAIN, b"only from this machine\n")
        body = json.dumps(self._services.inside(), default=str).encode()
        return Answer(200, "application/json", body, ((b"cache-control", b"no-store"),))

    async def _healthy(self, _: Scope) -> Answer:
        if self._services.healthy():
            return Answer(200, PLAIN, b"healthy\n")
        return Answer(503, PLAIN, b"the daemon's own heartbeat has stopped\n")

    async def _spot(self, scope: Scope) -> Answer:
        """Answer jobs, which ask each second: without FastAPI, from what is in memory."""
        document = self._services.notices(is_trusted(scope))
        body = json.dumps(document, allow_nan=False, separators=(",", ":")).encode()
        guard = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
        return Answer(200, "application/json", body, guard)

    async def _ready(self, _: Scope) -> Answer:
        if self._services.ready():
            return Answer(200, PLAIN, b"ready\n")
        return Answer(503, PLAIN, b"sources have not been read yet\n")


async def _to_status(_: Scope) -> Answer:
    return Answer(307, PLAIN, b"", ((b"location", b"/status"),))


_FORMATS: Mapping[str, Format] = {
    "text": Format(TEXT, openmetrics=False),
    "openmetrics": Format(
        "application/openmetrics-text; version=1.0.0; charset=utf-8", openmetrics=True
    ),
}


@functools.lru_cache(maxsize=16)
def negotiate(accept: str) -> Format:
    """Return the format that an Accept header likes best, of those that we write.

    OpenMetrics 1.0.0 and 0.0.1, text 0.0.4 and 1.0.0; the same quality: the first one. Prometheus
    3 adds `escaping=`: all our names are plain, so that every scheme leaves them as they are, and
    the answer repeats the scheme that was asked for. What we cannot serve is answered with text
    0.0.4, as Prometheus' own libraries do.
    """
    best, best_quality = _FORMATS["text"], 0.0
    for part in accept.split(","):
        media, *rest = (piece.strip() for piece in part.split(";"))
        options = dict(_option(piece) for piece in rest)
        quality = _quality(options.get("q", "1"))
        fmt = _offer(media.lower(), options)
        if fmt is not None and quality > best_quality:
            best, best_quality = fmt, quality
    return best


def _offer(media: str, options: Mapping[str, str]) -> Format | None:
    version = options.get("version", "")
    escaping = options.get("escaping", "")
    suffix = f"; escaping={escaping}" if escaping in _ESCAPINGS else ""
    if media == "application/openmetrics-text" and version in {"", "1.0.0", "0.0.1"}:
        said = version or "1.0.0"
        return Format(
            f"application/openmetrics-text; version={said}; charset=utf-8{suffix}",
            openmetrics=True,
        )
    if media == "text/plain" and version in {"", "0.0.4", "1.0.0"}:
        said = version or "0.0.4"
        return Format(f"text/plain; version={said}; charset=utf-8{suffix}", openmetrics=False)
    return _FORMATS["text"] if media in {"text/*", "*/*"} else None


@functools.lru_cache(maxsize=16)
def accepts_gzip(header: str) -> bool:
    """Tell whether an Accept-Encoding header allows gzip."""
    for part in header.split(","):
        coding, *rest = (piece.strip() for piece in part.split(";"))
        if coding.lower() == "gzip":
            return _quality(dict(_option(piece) for piece in rest).get("q", "1")) > 0
    return False


def _option(piece: str) -> tuple[str, str]:
    name, _, value = piece.partition("=")
    return name.strip().lower(), value.strip().strip('"').lower()


def _quality(text: str) -> float:
    try:
        quality = float(text)
    except ValueError:
        return 0.0
    return quality if 0 <= quality <= 1 else 0.0


def _seconds(text: str | None) -> float | None:
    """Return the seconds of a query, `None` if there are none. Raises `ValueError`."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 1 <= seconds <= 86400:
        raise ValueError("seconds is a number from 1 to 86400")
    return seconds


_INDEX = "index.html"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}


def _page_files() -> Mapping[str, tuple[str, bytes]]:
    """Return the content type and the bytes of each file of the status page, by name."""
    files = Path(__file__).with_name("page").iterdir()
    return {f.name: (_TYPES[f.suffix], f.read_bytes()) for f in files if f.suffix in _TYPES}


async def _in_thread(services: Services, work: Callable[..., bytes], *words: Any) -> bytes:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(services.executor, work, *words)


def _status_text(services: Services, local: bool) -> bytes:  # noqa: FBT001 - handed on by position
    return _json(services.status(local))


def _history_text(services: Services, since: int | None) -> bytes:
    """Write series by series: one call of the encoder would hold the interpreter for an hour's."""
    document = dict(services.history(since))
    series = b",".join([_json(one) for one in document.pop("series")])
    return _json(document)[:-1] + b',"series":[' + series + b"]}"


def _json(document: object) -> bytes:
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def _build_api(services: Services) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """Import FastAPI and return the application for everything that is not urgent."""
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse, Response

    api = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    pages = _page_files()
    guard = {
        "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self';"
        " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
    }

    async def status_page(request: Request) -> Response:
        found = pages.get(request.path_params.get("name", _INDEX))
        if found is None:
            return Response("no such file\n", 404, guard, "text/plain")
        return Response(found[1], headers=guard, media_type=found[0])

    async def status(request: Request) -> Response:
        body = await _in_thread(services, _status_text, services, is_trusted(request.scope))
        return Response(body, media_type="application/json", headers=guard)

    async def history(request: Request) -> Response:
        since = request.query_params.get("since", "")
        if since and re.fullmatch("[0-9]{1,15}", since) is None:
            return JSONResponse({"error": "since is the number of a point"}, 400)
        body = await _in_thread(services, _history_text, services, int(since) if since else None)
        return Response(body, media_type="application/json", headers=guard)

    def foreign(request: Request) -> Response | None:
        # A browser names the page that sends a POST: no page on the web has a say in this.
        local = is_local(request.scope)
        allowed = local or (services.remote_control() and is_authenticated(request.scope))
        if allowed and not is_from_browser(headers_of(request.scope)):
            return None
        return JSONResponse({"error": "only from this machine"}, 403)

    async def release(request: Request) -> Response:
        if (refusal := foreign(request)) is not None:
            return refusal
        try:
            seconds = _seconds(request.query_params.get("seconds"))
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        loop = asyncio.get_running_loop()
        released = await loop.run_in_executor(services.releases, services.release, seconds)
        # 503: a call hangs in the driver, and what it holds cannot be taken from it.
        return JSONResponse({"released": released}, 200 if all(released.values()) else 503)

    async def reload(request: Request) -> Response:
        if services.reload is None:
            return JSONResponse({"error": "switched off (reload.http)"}, 403)
        if (refusal := foreign(request)) is not None:
            return refusal
        loop = asyncio.get_running_loop()
        problems = await loop.run_in_executor(services.chores, services.reload)
        return JSONResponse({"problems": problems}, 500 if problems else 200)

    api.add_route("/status", status_page, methods=["GET"])
    api.add_route("/status/{name}", status_page, methods=["GET"])
    api.add_route("/api/v1/status", status, methods=["GET"])
    api.add_route("/api/v1/history", history, methods=["GET"])
    api.add_route("/-/reload", reload, methods=["POST"])
    api.add_route("/-/release", release, methods=["POST"])
    return api
