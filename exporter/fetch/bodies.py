"""Bodies of answers: read to their end, unpacked, quoted."""

from __future__ import annotations

import http.client
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from exporter.fetch.wire import Budget
from exporter.samples import Malformed

MAX_SIDE_BODY = 64 << 10
"""Cap of a body that is no page, in bytes."""

_PIECE = 256 << 10
_PACKED = 64 << 10
_MAX_MEMBERS = 8


class Answer(NamedTuple):
    """An answer of any status, body as it came."""

    status: int
    content_type: str
    encoding: str
    location: str
    body: bytes
    etag: str = ""


def read_answer(response: http.client.HTTPResponse, limit: int) -> Answer:
    """Read a body to its end. Raises `Malformed` if it is too large, `ConnectionError` if short."""
    announced = response.length
    if announced is not None and announced > limit:
        raise Malformed(f"the body is larger than {limit} bytes")
    body = bytearray()
    while piece := response.read(_PIECE):
        body += piece
        if len(body) > limit:
            raise Malformed(f"the body is larger than {limit} bytes")
    if announced is not None and len(body) < announced:
        raise ConnectionError(f"the answer broke off after {len(body)} of {announced} bytes")
    response.close()
    header = response.headers.get
    return Answer(
        response.status,
        header("Content-Type", ""),
        header("Content-Encoding", "").strip().lower(),
        header("Location", ""),
        bytes(body),
        header("ETag", ""),
    )


def decoded(answer: Answer, limit: int, budget: Budget) -> bytes:
    """Return the plain body.

    Raises `Malformed` if it is not sound or becomes too large, `TimeoutError` at the deadline.
    """
    match answer.encoding:
        case "" | "identity":
            return answer.body
        case "gzip" | "x-gzip":
            return unzipped(answer.body, limit, budget)
        case _:
            raise Malformed("the body has an encoding that was not asked for")


def unzipped(data: bytes, limit: int, budget: Budget) -> bytes:
    """Return what a few gzip members hold; a body of thousands of empty ones is an attack."""
    plain = bytearray()
    view, at = memoryview(data), 0
    for _ in range(_MAX_MEMBERS):
        if at == len(data):
            break
        member = zlib.decompressobj(wbits=31)
        while at < len(data) and not member.eof:
            budget.remaining()
            # In pieces, because a member hands back, copied, what it was given beyond its end.
            piece = view[at : at + _PACKED]
            try:
                plain += member.decompress(piece, limit + 1 - len(plain))
            except zlib.error as error:
                raise Malformed(f"the body is not gzip: {error}") from None
            if len(plain) > limit:
                raise Malformed(f"the body is larger than {limit} bytes when unpacked")
            at += len(piece) - len(member.unused_data)
        if not member.eof:
            raise Malformed("the gzip body is cut off")
    if at < len(data):
        raise Malformed(f"the gzip body has more than {_MAX_MEMBERS} parts")
    return bytes(plain)


def excerpt(answer: Answer, budget: Budget, secrets: Mapping[str, str]) -> str:
    """Return the beginning of a refusal's body, without what we sent."""
    try:
        text = decoded(answer, MAX_SIDE_BODY, budget).decode("utf-8", "replace")
    except Malformed:
        return ""
    for secret in secrets.values():
        for form in (secret, secret.removeprefix("Bearer ")):
            text = text.replace(form, "…") if form else text
    text = " ".join("".join(ch if ch.isprintable() else " " for ch in text).split())
    return f" ({text[:160]})" if text else ""
