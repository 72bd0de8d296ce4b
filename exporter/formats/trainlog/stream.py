"""Finds the lines that matter in the bytes of a log, as they come, and has them parsed.

Nearly all lines of a log matter to nobody here. So a piece of it is not taken apart: it is searched
for the words that a line must hold (`bytes.find` passes over gigabytes a second), and only lines
with one of them are decoded. A line ends with a line feed or, in plain files, with a carriage
return (progress bars). Kubernetes' files (CRI) put `TIME stdout F ` before each line; a line of
more than 16 KiB comes in several, of which all but the last have a P in the place of the F.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from exporter.formats.trainlog.lines import READERS
from exporter.formats.trainlog.parser import LogParser
from exporter.training.records import Record

LONGEST = 1 << 20
"""Bytes of a line beyond which it is passed over to its end."""

_CRI = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d))"
                  rb" (stdout|stderr) ([FP])(?::[^ ]{0,64})?(?: |$)")  # fmt: skip
_PARTIAL = (b" stdout P", b" stderr P")
_READ = 64 << 10
"""Bytes of a line that are looked into: none that tells something is longer."""

_AFTER = 4
"""How many lines after one are looked at for what belongs to it (Transformers' progress bar)."""


class Flaw(NamedTuple):
    """Something in a log that could not be taken: where it begins in the file, and what it is."""

    offset: int
    reason: str
    detail: str
    number: int = 1


class LogStream:
    """The bytes of one log, in order, to records. `offset` is where in the file they begin.

    `aligned`: that is where a line begins; else what stands before the next line is passed over.
    """

    def __init__(
        self,
        parser: LogParser,
        *,
        family: str = "auto",
        longest: int = LONGEST,
        offset: int = 0,
        aligned: bool = True,
        skipping: bool = False,
    ) -> None:
        self.parser = parser
        self.flaws: list[Flaw] = []
        self._words = words(family)
        self._longest = longest
        self._offset = offset
        self._carry = b""
        self._skipping = skipping or not aligned
        self._cri: bool | None = None
        self._parts: dict[bytes, bytearray] = {}
        self._after = 0

    @property
    def position(self) -> int:
        """Where the first line begins that has not been taken yet."""
        return self._offset - len(self._carry)

    @property
    def skipping(self) -> bool:
        """Whether what comes next is the rest of a line that was too long."""
        return self._skipping

    def feed(self, data: bytes) -> list[Record]:
        """Return what the next bytes of the file complete."""
        self._offset += len(data)
        piece = self._carry + data
        if self._skipping:
            piece = self._resume(piece)
        end = self._last_end(piece)
        self._carry = piece[end:]
        if len(self._carry) > self._longest:
            self._pass_over()
        piece = piece[:end]
        if not piece:
            return []
        start = self._offset - len(self._carry) - len(piece)
        if self._cri is None:
            self._cri = _CRI.match(piece) is not None
            # Bars go to standard error, and come when 16 KiB of them are there.
            self.parser.bars = self.parser.bars and not self._cri
        records: list[Record] = []
        for at, line in self._lines(piece):
            records += self._line(line)
            self._blame(start + at)
        return records

    def rest(self) -> list[Record]:
        """Return what waited for more; to be called when the file has been silent for a while."""
        records = self.parser.rest()
        self._blame(self.position)
        return records

    def restart(self, offset: int = 0, *, aligned: bool = True) -> None:
        """Go on in another file, or at another place of this one."""
        self._offset, self._carry = offset, b""
        self._skipping = not aligned
        self._cri = None
        self._parts.clear()
        self._after = 0
        if offset:
            self.parser.interrupt()

    # ------------------------------------------------------------ lines

    def _resume(self, piece: bytes) -> bytes:
        """Return what stands after the end of a line that is passed over; b"" if there is none."""
        end = self._first_end(piece)
        if end < 0:
            return b""
        self._skipping = False
        return piece[end + 1 :]

    def _first_end(self, piece: bytes) -> int:
        feed = piece.find(b"\n")
        back = -1 if self._cri else piece.find(b"\r", 0, feed if feed >= 0 else len(piece))
        return back if back >= 0 else feed

    def _last_end(self, piece: bytes) -> int:
        """Return where the last whole line ends: what is after it waits for its end."""
        feed = piece.rfind(b"\n")
        return (feed if self._cri else max(feed, piece.rfind(b"\r", feed + 1))) + 1

    def _pass_over(self) -> None:
        self.flaws.append(Flaw(
            self.position, "line", f"a line of more than {self._longest} bytes: passed over"
        ))  # fmt: skip
        self._carry, self._skipping = b"", True

    def _lines(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of a piece that may matter, each with where it begins."""
        if self._cri and (self._parts or any(mark in piece for mark in _PARTIAL)):
            yield from self._all(piece)
            return
        last = 0
        for begin in self._hits(piece):
            if begin < last:
                continue
            yield begin, piece[begin : (last := self._end(piece, begin))]
            self._after = _AFTER
            while self._after and self.parser.wants_next and last < len(piece):
                begin = last + 1  # noqa: PLW2901
                if begin >= len(piece):
                    break
                line = piece[begin : (last := self._end(piece, begin))]
                self._after -= bool(line.strip())
                yield begin, line

    def _hits(self, piece: bytes) -> list[int]:
        """Return where lines begin that hold one of the words, in order."""
        begins: set[int] = set()
        if self.parser.wants_next:
            begins.add(0)
        for word in self._words:
            at = piece.find(word)
            while at >= 0:
                begins.add(self._begin(piece, at))
                at = piece.find(word, self._end(piece, at))
        return sorted(begins)

    def _begin(self, piece: bytes, at: int) -> int:
        feed = piece.rfind(b"\n", 0, at)
        return (feed if self._cri else max(feed, piece.rfind(b"\r", feed + 1, at))) + 1

    def _end(self, piece: bytes, at: int) -> int:
        feed = piece.find(b"\n", at)
        end = len(piece) if feed < 0 else feed
        back = -1 if self._cri else piece.find(b"\r", at, end)
        return back if back >= 0 else end

    def _all(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        at = 0
        for line in piece.split(b"\n"):
            yield at, line
            at += len(line) + 1

    def _line(self, line: bytes) -> list[Record]:
        """Have one line parsed; in a CRI file without what the container runtime put before it."""
        wall = None
        if self._cri:
            if (match := _CRI.match(line)) is None:
                return []
            stamp, stream, mark = match.groups()
            line = self._joined(stream, line[match.end() :], partial=mark == b"P")
            wall = _wall(stamp)
        records: list[Record] = []
        for part in line.split(b"\r") if b"\r" in line else (line,):
            if part:
                records += self.parser.feed(part[:_READ].decode("utf-8", "replace"), wall)
        return records

    def _joined(self, stream: bytes, text: bytes, *, partial: bool) -> bytes:
        """Return what is complete of a line that comes in parts: all, or up to a carriage return.

        The beginning of one that is too long is forgotten.
        """
        parts = self._parts.setdefault(stream, bytearray()) if partial else self._parts.get(stream)
        if parts is None:
            return text
        if len(parts) + len(text) > self._longest:
            if not self.flaws or self.flaws[-1].reason != "line":
                self.flaws.append(Flaw(
                    self.position, "line",
                    f"a line of more than {self._longest} bytes: its beginning is passed over",
                ))  # fmt: skip
            parts.clear()
        parts += text
        if not partial:
            del self._parts[stream]
            return bytes(parts)
        end = parts.rfind(b"\r") + 1
        complete = bytes(parts[:end])
        del parts[:end]
        return complete

    def _blame(self, offset: int) -> None:
        nonsense, unnumbered = self.parser.take_flaws()
        self.flaws += [Flaw(offset, "nonsense", said) for said in nonsense]
        if unnumbered:
            said = "a step without a number: state logging_steps"
            self.flaws.append(Flaw(offset, "unnumbered", said, unnumbered))


def words(family: str) -> tuple[bytes, ...]:
    """Return the words of which a line must hold one to be looked at."""
    wanted = (one for one in READERS if family == "auto" or one.family in ("", family))
    return tuple(dict.fromkeys(word.encode() for one in wanted for word in one.words))


def _wall(text: bytes) -> float | None:
    """Return Unix seconds of a stamp such as `2026-11-29T12:00:00.123456789Z`."""
    try:
        head, _, tail = text.decode("ascii").partition(".")
        if not tail:
            return datetime.fromisoformat(head).timestamp()
        digits = tail[:9].rstrip("Z+-:")
        digits = re.match(r"\d*", digits)[0]  # type: ignore[index]
        zone = tail[len(digits) :]
        return datetime.fromisoformat(head + zone).timestamp() + float(f"0.{digits or 0}")
    except (ValueError, OverflowError):
        return None
