"""The answer to a watch, in whatever pieces it arrives."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.formats.watchstream import LONGEST, Event, WatchStream
from exporter.samples import Malformed

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: Chunked\r\n\r\n"


def line(kind: str, **document: Any) -> bytes:
    return json.dumps({"type": kind, "object": document}).encode() + b"\n"


def chunk(data: bytes) -> bytes:
    return b"%X;x=y\r\n%s\r\n" % (len(data), data)


def fed(*pieces: bytes) -> tuple[WatchStream, list[Event]]:
    stream = WatchStream()
    return stream, [event for piece in pieces for event in stream.feed(piece)]


BODY = line("ADDED", metadata={"resourceVersion": "7"}, n=1) + line("BOOKMARK") + line("DELETED")
WHOLE = CHUNKED + chunk(BODY[:30]) + chunk(BODY[30:31]) + chunk(BODY[31:]) + b"0\r\n\r\n"


@given(st.lists(st.integers(0, len(WHOLE)), max_size=12))
def test_however_it_is_cut_the_changes_are_the_same(cuts: list[int]) -> None:
    """Pieces of the network, of HTTP and lines have nothing to do with each other."""
    at = sorted({0, *cuts, len(WHOLE)})
    stream, events = fed(*(WHOLE[a:b] for a, b in itertools.pairwise(at)))
    assert [one.kind for one in events] == ["ADDED", "BOOKMARK", "DELETED"]
    assert [one.version for one in events] == ["7", "", ""]
    assert (stream.status, stream.ended, stream.skipped) == (200, True, 0)


def test_an_answer_without_chunks_is_read_to_its_length_or_end() -> None:
    """A proxy of HTTP/1.0."""
    stream, events = fed(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY), BODY + b"beyond")
    assert (len(events), stream.ended) == (3, True)
    stream, events = fed(HEAD + b"\r\n" + BODY)
    assert (len(events), stream.ended) == (3, False)


def test_an_interim_answer_is_passed_over() -> None:
    stream, events = fed(b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE)
    assert (stream.status, len(events)) == (200, 3)


def test_an_error_has_its_status() -> None:
    """410: the version is gone."""
    _, (event,) = fed(CHUNKED + chunk(line("ERROR", code=410)))
    assert (event.kind, event.code) == ("ERROR", 410)


def test_the_body_of_a_refusal_is_no_change() -> None:
    """Whatever a proxy says there."""
    refusal = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 9\r\n\r\n<html>\n\n\n"
    stream, events = fed(refusal)
    assert (stream.status, stream.ended, events) == (503, True, [])


def test_a_document_that_is_too_long_costs_itself_only() -> None:
    """And no memory: what is passed over is not kept."""
    giant = b'{"type": "ADDED", "object": {"x": "' + b"x" * LONGEST + b'"}}\n'
    pieces = [giant[at : at + 65_536] for at in range(0, len(giant), 65_536)]
    stream, events = fed(HEAD + b"\r\n", line("ADDED"), *pieces, line("DELETED"))
    assert [one.kind for one in events] == ["ADDED", "DELETED"]
    assert stream.skipped == 1
    assert len(stream._line) == 0


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"x" * 70_000,
        CHUNKED + b"-1\r\n",
        CHUNKED + b"zz\r\n",
        CHUNKED + b"1" * 2000,
        HEAD + b"\r\nnot json\n",
        HEAD + b"\r\n[]\n",
        HEAD + b'\r\n{"type": "OTHER", "object": {}}\n',
        HEAD + b'\r\n{"type": "ADDED", "object": 7}\n',
        HEAD + b"\r\n" + b"[" * 100_000 + b"\n",
    ],
    ids=["ssh", "http2", "endless-head", "negative", "no-size", "endless-size", "text", "list",
         "kind", "object", "deep"],
)  # fmt: skip
def test_nonsense_is_told(data: bytes) -> None:
    with pytest.raises(Malformed):
        fed(data)


@given(st.lists(st.binary(max_size=60), max_size=6))
def test_any_bytes_are_changes_or_malformed(pieces: list[bytes]) -> None:
    with contextlib.suppress(Malformed):
        fed(CHUNKED, *pieces)
