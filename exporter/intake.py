"""Answers what jobs push: who may, how much, and what became of it.

A push is taken from a unix socket, from this machine, and from elsewhere with a token. Bodies are
read piece by piece on the event loop and understood in a thread beside it; how much of them is held
at once has a limit, and what is beyond is asked to come again later. No framework is needed for two
paths, so the daemon need not load one when a job pushes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import json
import os
import re
import stat
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from exporter.formats import pushes
from exporter.requests import (
    Answer,
    Receive,
    Scope,
    came_by_socket,
    headers_of,
    is_from_browser,
    is_local,
)
from exporter.samples import Malformed
from exporter.training.ledger import TrainingLedger
from exporter.training.reception import Receipt, Reception, Trouble
from exporter.training.records import Record

STEPS = "/api/v1/training/steps"
METRICS = "/v1/metrics"

MOST_HELD = 8 * 1024 * 1024
"""Bytes of bodies that are held at once, over all connections."""
MOST_WAITING = 32
"""Pushes that are being read or understood at once."""
SHORTEST_TOKEN = 16
_MOST_TOKENS = 64 * 1024
_JSON = "application/json"
_PROTOBUF = "application/x-protobuf"

Decode = Callable[[bytes], Sequence[Record]]


class Rules(Protocol):
    """What the settings say of pushes."""

    @property
    def enabled(self) -> bool:
        """Whether anything is taken at all."""

    @property
    def loopback(self) -> bool:
        """Whether whoever can reach 127.0.0.1 may push without a token."""

    @property
    def token_file(self) -> str | None:
        """A file with a token in each line."""

    @property
    def max_body(self) -> int:
        """The largest body, before and after it is unpacked, in bytes."""

    @property
    def max_records(self) -> int:
        """The most records in one push."""


class _RefusedError(Exception):
    """The push is not taken; the text is for whoever sent it."""

    def __init__(self, status: int, reason: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = headers


class Tokens:
    """The tokens in a file, read again when it changes. Each line holds one, so that they rotate.

    A file that cannot be used allows nobody, and is noted as trouble of the part `token_file`.
    """

    def __init__(self, reception: Reception, now: Callable[[], float]) -> None:
        self._reception = reception
        self._now = now
        self._seen: object = None
        self._tokens: tuple[bytes, ...] = ()

    def know(self, path: Path, offered: bytes) -> bool:
        """Tell whether a token is one of those in the file. May wait for a disk."""
        try:
            self._look(path)
        except (OSError, ValueError) as error:
            self._seen, self._tokens = None, ()
            reason = getattr(error, "strerror", None) or str(error)
            trouble = Trouble(self._now(), "denied", f"push.token_file: {path}: {reason}")
            self._reception.note("token_file", trouble)
        # All are compared, each in constant time: how long it takes tells nothing.
        return sum(hmac.compare_digest(offered, token) for token in self._tokens) > 0

    def _look(self, path: Path) -> None:
        # A named pipe would keep us waiting.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            about = os.fstat(file.fileno())
            seen = (path, about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)
            if seen == self._seen:
                return
            if not stat.S_ISREG(about.st_mode):
                raise ValueError("not a file")
            self._tokens = _tokens_in(file.read(_MOST_TOKENS))
        self._seen = seen
        self._reception.note("token_file", None)


def _tokens_in(content: bytes) -> tuple[bytes, ...]:
    tokens = tuple(line.strip() for line in content.splitlines() if line.strip())
    if not tokens:
        raise ValueError("holds no token")
    for number, token in enumerate(tokens, 1):
        if len(token) < SHORTEST_TOKEN or re.fullmatch(rb"[\x21-\x7e]+", token) is None:
            raise ValueError(
                f"token {number} is not one of {SHORTEST_TOKEN} or more printable characters"
            )
    return tokens


class Intake:
    """Answers requests to `STEPS` and `METRICS`.

    `rules` are asked at each request; `now` returns monotonic seconds; `executor` has one thread,
    in which bodies are understood; `decoders` read OTLP, by content type.
    """

    def __init__(
        self,
        *,
        ledger: TrainingLedger,
        reception: Reception,
        rules: Callable[[], Rules],
        now: Callable[[], float],
        executor: Executor,
        decoders: Mapping[str, Decode],
    ) -> None:
        self._ledger = ledger
        self._reception = reception
        self._rules = rules
        self._now = now
        self._executor = executor
        self._decoders = decoders
        self._tokens = Tokens(reception, now)
        self._held = 0
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive) -> Answer:
        """Return the answer to a request."""
        reply = _Reply(scope["path"] == METRICS, _media(headers_of(scope)))
        try:
            answer = await self._answer(scope, receive, reply)
        except _RefusedError as error:
            answer = reply.error(error)
        self._reception.answered(answer.status)
        return answer

    async def _answer(self, scope: Scope, receive: Receive, reply: _Reply) -> Answer:
        rules, headers = self._rules(), headers_of(scope)
        if not rules.enabled:
            raise _RefusedError(403, "pushes are switched off (push.enabled)")
        if scope["method"] != "POST":
            raise _RefusedError(405, "only POST", (b"allow", b"POST"))
        if self._waiting >= MOST_WAITING:
            raise _busy()
        self._waiting += 1
        try:
            await self._admit(scope, headers, rules)
            packed = _expect_form(headers, reply, self._decoders)
            body = await self._read(headers, receive, rules.max_body)
            try:
                return await asyncio.get_running_loop().run_in_executor(
                    self._executor, self._understand, body, packed, rules, reply
                )
            finally:
                self._held -= len(body)
        finally:
            self._waiting -= 1

    async def _admit(self, scope: Scope, headers: Mapping[str, str], rules: Rules) -> None:
        """Raise `_RefusedError` if whoever sends this may not push."""
        if is_from_browser(headers):
            raise _RefusedError(403, "pages in browsers may not push")
        if came_by_socket(scope):
            return
        if rules.loopback and is_local(scope):
            return
        if rules.token_file is None:
            raise _RefusedError(403, "only from this machine: there is no push.token_file")
        scheme, _, offered = headers.get("authorization", "").partition(" ")
        known = scheme.lower() == "bearer" and await asyncio.get_running_loop().run_in_executor(
            self._executor, self._tokens.know, Path(rules.token_file), offered.strip().encode()
        )
        if not known:
            raise _RefusedError(
                401, "a valid token is wanted: Authorization: Bearer ...",
                (b"www-authenticate", b'Bearer realm="flopwatch"'),
            )  # fmt: skip

    async def _read(self, headers: Mapping[str, str], receive: Receive, most: int) -> bytes:
        """Return the body; its bytes stay counted as held until the caller gives them back."""
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > most:
            raise _too_large(most)
        body, whole = bytearray(), False
        try:
            while not whole:
                message = await receive()
                piece: bytes = message.get("body", b"")
                self._expect_room(message, len(body) + len(piece), most)
                body += piece
                self._held += len(piece)
                whole = not message.get("more_body", False)
            return bytes(body)
        finally:
            if not whole:
                self._held -= len(body)

    def _expect_room(self, message: Mapping[str, Any], size: int, most: int) -> None:
        if message["type"] == "http.disconnect":
            raise _RefusedError(400, "the connection ended within the body")
        if size > most:
            raise _too_large(most)
        if self._held + len(message.get("body", b"")) > MOST_HELD:
            raise _busy()

    def _understand(self, body: bytes, packed: bool, rules: Rules, reply: _Reply) -> Answer:  # noqa: FBT001 - called by position
        if packed:
            body = _unpacked(body, rules.max_body)
        try:
            if reply.otlp:
                records = self._decoders[reply.media](body)
                receipt = self._reception.take(
                    self._ledger, "otlp", enumerate(records), (), self._now()
                )
                return reply.metrics(receipt)
            found = pushes.read(body, rules.max_records)
        except pushes.TooMuch as error:
            raise _RefusedError(413, str(error)) from None
        except Malformed as error:
            raise _RefusedError(400, str(error)) from None
        except RecursionError:
            raise _RefusedError(400, "nested too deep") from None
        receipt = self._reception.take(
            self._ledger, "push", found.records, found.refused, self._now()
        )
        return reply.steps(receipt, found.ignored)


def _media(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _expect_form(headers: Mapping[str, str], reply: _Reply, decoders: Mapping[str, Decode]) -> bool:
    """Return whether the body is packed. Raises `_RefusedError` for what cannot be read."""
    readable = tuple(decoders) if reply.otlp else (_JSON,)
    if reply.media not in readable:
        raise _RefusedError(415, f"Content-Type: {' or '.join(readable)} is wanted")
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding not in {"", "identity", "gzip"}:
        raise _RefusedError(
            415, "Content-Encoding: gzip, or none, is wanted", (b"accept-encoding", b"gzip")
        )
    return coding == "gzip"


def _unpacked(body: bytes, most: int) -> bytes:
    """Return an unpacked body; not a byte more is unpacked than is allowed."""
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        content = unpacker.decompress(body, most + 1)
    except zlib.error:
        raise _RefusedError(400, "the body is not gzip") from None
    if len(content) > most:
        raise _too_large(most)
    if not unpacker.eof or unpacker.unused_data:
        raise _RefusedError(400, "the body is not one whole gzip stream")
    return content


def _too_large(most: int) -> _RefusedError:
    return _RefusedError(413, f"more than {most} bytes (push.max_body)", (b"connection", b"close"))


def _busy() -> _RefusedError:
    later = (b"retry-after", b"1")
    return _RefusedError(429, "too many pushes at once", later, (b"connection", b"close"))


class _Reply(NamedTuple):
    """How answers are written: OTLP has forms of its own, in the encoding of the question."""

    otlp: bool
    media: str

    def steps(self, receipt: Receipt, ignored: Sequence[str]) -> Answer:
        """Return the answer to records: how many were new, known, and which were refused."""
        document: dict[str, Any] = {
            "new": receipt.new,
            "known": receipt.known,
            "refused": [dataclasses.asdict(one) for one in receipt.reasons],
        }
        if receipt.refused > len(receipt.reasons):
            document["refused_in_all"] = receipt.refused
        if ignored:
            document["ignored_fields"] = list(ignored)
        nothing = receipt.refused > 0 and receipt.new + receipt.known == 0
        return Answer(400 if nothing else 200, _JSON, _text(document))

    def metrics(self, receipt: Receipt) -> Answer:
        """Return the answer to OTLP metrics (ExportMetricsServiceResponse)."""
        message = ""
        if receipt.reasons:
            first = receipt.reasons[0]
            message = f"{first.field}: {first.reason}" if first.field else first.reason
        if self.media == _PROTOBUF:
            partial = _varint_field(1, receipt.refused) + _text_field(2, message)
            return Answer(200, _PROTOBUF, _bytes_field(1, partial) if receipt.refused else b"")
        told = {"rejectedDataPoints": str(receipt.refused), "errorMessage": message}
        return Answer(200, _JSON, _text({"partialSuccess": told} if receipt.refused else {}))

    def error(self, error: _RefusedError) -> Answer:
        """Return the answer to a push that was not taken; for OTLP it is a google.rpc.Status."""
        code = _CODES.get(error.status, 3)
        if self.otlp and self.media == _PROTOBUF:
            body = _varint_field(1, code) + _text_field(2, str(error))
            return Answer(error.status, _PROTOBUF, body, error.headers)
        document = {"code": code, "message": str(error)} if self.otlp else {"error": str(error)}
        return Answer(error.status, _JSON, _text(document), error.headers)


_CODES = {401: 16, 403: 7, 413: 8, 429: 14}
"""Codes of google.rpc.Status; all others are INVALID_ARGUMENT."""


def _text(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _varint_field(number: int, value: int) -> bytes:
    return bytes((number << 3,)) + _varint(value)


def _text_field(number: int, text: str) -> bytes:
    return _bytes_field(number, text.encode("utf-8", "replace"))


def _bytes_field(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
