"""Takes apart the answer to a Kubernetes watch as it arrives: HTTP, its pieces, a document a line.

An answer of hours cannot be waited for. What has arrived is fed in, and documents come out; nothing
is waited for here. What is longer than it may be is passed over and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from exporter.formats.podlist import version_of
from exporter.samples import Malformed

LONGEST = 4 << 20
"""Bytes of one document: etcd takes no object of more than one and a half million."""

_OK = 200
_LONGEST_HEAD = 64 << 10
_LONGEST_SIZE = 1024
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [^\r\n]*)?")
_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?")


class Event(NamedTuple):
    """One change: a pod's document, a bookmark, or why the watch is over."""

    kind: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    document: Any

    @property
    def version(self) -> str:
        """The version of the cluster after this change."""
        return version_of(self.document.get("metadata"))

    @property
    def code(self) -> int:
        """The status of an error, 0 if it has none."""
        code = self.document.get("code")
        return code if isinstance(code, int) else 0


class WatchStream:
    """The answer to one watch. `status` is known once its head has arrived; `ended`: it is over.

    `skipped` counts documents that were too long.
    """

    def __init__(self) -> None:
        self.status: int | None = None
        self.ended = False
        self.skipped = 0
        self._raw = bytearray()
        self._line = bytearray()
        self._too_long = False
        self._chunked = False
        self._left: int | None = None
        self._length: int | None = None

    def feed(self, data: bytes) -> Iterator[Event]:
        """Take what has arrived; yield the changes that are complete. Raises `Malformed`."""
        self._raw += data
        if self.status is None and not self._head():
            return
        for piece in self._body():
            if self.status == _OK:
                yield from self._documents(piece)

    def _head(self) -> bool:
        """Read the status and the headers, if they are there."""
        end = self._raw.find(b"\r\n\r\n")
        if end < 0:
            if len(self._raw) > _LONGEST_HEAD:
                raise Malformed("not an HTTP answer (no end of its headers)")
            return False
        first, *lines = bytes(self._raw[:end]).split(b"\r\n")
        del self._raw[: end + 4]
        match = _STATUS.fullmatch(first)
        if match is None:
            raise Malformed("not an HTTP answer")
        fields = {
            name.strip().lower(): value.strip().lower()
            for name, _, value in (line.partition(b":") for line in lines)
        }
        if int(match[1]) < 200:
            return self._head()
        self.status = int(match[1])
        self._chunked = fields.get(b"transfer-encoding") == b"chunked"
        length = fields.get(b"content-length", b"")
        if length.isdigit() and not self._chunked:
            self._length = int(length)
        return True

    def _body(self) -> Iterator[bytes]:
        while self._raw and not self.ended:
            if not self._chunked:
                piece = bytes(self._raw[: self._length])
                self._raw.clear()
                if self._length is not None:
                    self._length -= len(piece)
                    self.ended = self._length == 0
                yield piece
            elif self._left is None:
                if not self._next_size():
                    return
            else:
                piece = bytes(self._raw[: self._left])
                del self._raw[: len(piece)]
                self._left -= len(piece)
                if self._left == 0:
                    self._left = None
                yield piece

    def _next_size(self) -> bool:
        """Read the size of the next piece, if it is there; the last one has none."""
        # Behind each piece stands an empty line, which is read with the size that follows.
        begin = 2 if self._raw.startswith(b"\r\n") else 0
        end = self._raw.find(b"\r\n", begin)
        if end < 0:
            if len(self._raw) > _LONGEST_SIZE:
                raise Malformed("not an HTTP answer (the size of a chunk is no number)")
            return False
        match = _SIZE.fullmatch(bytes(self._raw[begin:end]))
        if match is None:
            raise Malformed("not an HTTP answer (the size of a chunk is no number)")
        del self._raw[: end + 2]
        self._left = int(match[1], 16)
        self.ended = self._left == 0
        return True

    def _documents(self, piece: bytes) -> Iterator[Event]:
        *whole, rest = piece.split(b"\n")
        for part in whole:
            self._add(part)
            line, too_long = bytes(self._line), self._too_long
            self._line.clear()
            self._too_long = False
            if too_long:
                self.skipped += 1
            elif line.strip():
                yield _event(line)
        self._add(rest)

    def _add(self, part: bytes) -> None:
        if self._too_long or len(self._line) + len(part) > LONGEST:
            self._line.clear()
            self._too_long = True
        else:
            self._line += part


def _event(line: bytes) -> Event:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"a change that is no JSON ({type(error).__name__})") from None
    match document:
        case {
            "type": ("ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" | "ERROR") as kind,
            "object": dict() as about,
        }:
            return Event(kind, about)
    raise Malformed("a change of a kind that is not known")
