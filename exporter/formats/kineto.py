"""A Kineto trace (Chrome's trace format), read as it comes: events one by one, never all of it.

Traces of real runs have up to some gigabytes. An event is parsed by itself; of those that say
nothing about the GPU (operators, Python frames: nine tenths of a file) only the end is looked for,
where the file is laid out as Kineto writes it. Files that others have written anew are parsed
event by event. What is kept in memory is one piece of the file and the longest event.

`ts` and `dur` are microseconds; `baseTimeNanoseconds` is what `ts` counts from, Unix time where a
file has none (pytorch/kineto, libkineto/src/output_json.cpp).
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from exporter.samples import Malformed

_OPERATORS = ("cpu_op", "user_annotation")
LONGEST_EVENT = 8 << 20
"""The most characters that an event, or a value beside the events, may have."""

_LONGEST_NAME = 2048
_EVENTS = "traceEvents"
_KEPT = frozenset({"distributedInfo", "deviceProperties", "baseTimeNanoseconds"})
_SPACE = re.compile(r"[ \t\r\n]*")
# In this order, Kineto writes the phase, the category and the name. Escapes make no difference.
_DULL = re.compile(
    r'\{\s*"ph": "X",\s*"cat": "(?:cpu_op|python_function|fwdbwd|ac2g|async_cpu_to_gpu'
    r'|user_annotation|gpu_user_annotation|overhead)",\s*'
    r'"name": "(?!ProfilerStep#)'
)
_NEXT = "\n  },\n  {"


class Truncated(Malformed):
    """The text ends before the trace does: it is cut off, or still being written."""


class Event(NamedTuple):
    """An interval on the GPU or of the host, in nanoseconds since the file's own beginning.

    `kind` is kernel, copy, call (of the GPU's library), step, or memory: what an allocator did on
    `device` (-1: the host). It took (or returned) `change` bytes; after it `size` are allocated in
    all, and `reserved` held. `link` joins a call with what it launched. An `operator` is what
    PyTorch or the job calls a stretch of work; `thread` did it.
    """

    kind: str
    name: str
    start: int
    end: int
    device: int = 0
    link: int = 0
    size: int = 0
    reserved: int = 0
    change: int = 0
    thread: str = ""


HOST = -1
_KINDS = {
    "kernel": "kernel", "Kernel": "kernel", "gpu_memcpy": "copy", "Memcpy": "copy",
    "gpu_memset": "copy", "Memset": "copy", "cuda_runtime": "call", "cuda_driver": "call",
    "Runtime": "call", "hip_runtime": "call", "user_annotation": "step", "cpu_op": "step",
    "cpu_instant_event": "memory",
}  # fmt: skip
"""What a category means; those with a capital are of PyTorch before 1.13."""


class Trace:
    """Reads a trace from pieces of its text. After `events` has ended, the rest is known.

    With `operators`, only those are yielded; else all but those, which is quicker.

    `rank` and `world_size` are of `distributedInfo`, `device` the GPU's name, `base` the Unix time
    in nanoseconds from which times count (0: they are Unix time themselves). `number` is how many
    events there were of all kinds.
    """

    def __init__(self, pieces: Iterable[bytes], *, operators: bool = False) -> None:
        self._read_event = read_operator if operators else read_event
        self._dull = None if operators else _DULL
        self.rank: int | None = None
        self.world_size: int | None = None
        self.device: str | None = None
        self.base = 0
        self.number = 0
        self._pieces = iter(pieces)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._scan = json.JSONDecoder(strict=False).raw_decode
        self._text = ""
        self._at = 0
        self._over = False

    def events(self) -> Iterator[Event]:
        """Yield what is of interest, in the order of the file.

        Raises `Truncated` where the text ends in the middle, `Malformed` where it is no trace, or
        holds an event that is longer than any should be.
        """
        opening = self._peek()
        if opening == "[":  # events alone; Chrome's format allows that
            yield from self._array()
        elif opening == "{":
            yield from self._document()
        else:
            raise Malformed(f"not a trace: begins with {opening!r}")
        if self._peek() != "":
            raise Malformed("something follows after the end of the trace")

    def _document(self) -> Iterator[Event]:
        seen = False
        self._at += 1
        if self._peek() == "}":
            raise Malformed("a trace without events")
        while True:
            key = self._value()
            if not isinstance(key, str) or self._peek() != ":":
                raise Malformed(f"a key is wanted, not {str(key)[:40]!r}")
            self._at += 1
            if key == _EVENTS:
                if seen or self._peek() != "[":
                    raise Malformed("one list of events is wanted")
                seen = True
                yield from self._array()
            else:
                value = self._value()
                if key in _KEPT:
                    self._heed(key, value)
            if not self._goes_on("}"):
                break
        if not seen:
            raise Malformed("not a trace: no list of events")

    def _goes_on(self, closing: str) -> bool:
        """Tell whether another member follows; step over the comma or the end."""
        char = self._peek()
        if char == "":
            raise Truncated("ends in the middle")
        if char not in (",", closing):
            raise Malformed(f"',' or {closing!r} is wanted, not {char!r}")
        self._at += 1
        return char == ","

    def _array(self) -> Iterator[Event]:
        self._at += 1
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            self._skip()
            # Some writers leave a comma before the end.
            if self._peek() == "]":
                self._at += 1
                return
            self.number += 1
            event = self._value()
            if not isinstance(event, dict):
                raise Malformed("an event is wanted")
            if (found := self._read_event(event)) is not None:
                yield found
            if not self._goes_on("]"):
                return

    def _skip(self) -> None:
        """Step over events that say nothing, with their commas, if laid out as Kineto does.

        A line's end cannot stand within a text, so that an event's end is found without parsing.
        """
        if self._dull is None:
            return
        text, at = self._text, self._at
        dull, find = self._dull.match, text.find
        if text[at : at + 4] == "\n  {":
            at += 3
        elif text[max(0, at - 3) : at] != "\n  ":
            return
        while dull(text, at) is not None:
            end = find(_NEXT, at)
            if end < 0:  # the piece ends here, or this is the last one: the long way
                break
            at = end + len(_NEXT) - 1
            self.number += 1
        self._at = at

    def _peek(self) -> str:
        """Return the next character that is no space, and go there; "" at the end."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None  # noqa: S101 - it matches nothing at all, too
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _value(self) -> Any:
        """Return the JSON value that is next."""
        self._peek()
        while True:
            try:
                value, end = self._scan(self._text, self._at)
                if end < len(self._text) or self._over:
                    self._at = end
                    return value
                problem = ""
            except json.JSONDecodeError as error:
                problem = error.msg
            except (RecursionError, ValueError) as error:
                raise Malformed(f"no JSON that can be read: {error}") from None
            left = len(self._text) - self._at
            if left > LONGEST_EVENT:
                raise Malformed(
                    f"no JSON, or a value of more than {LONGEST_EVENT} characters: {problem}"
                )
            # As much again: what is long is not parsed over and over.
            if not self._more(left) and problem:
                raise Truncated(f"no JSON, or it ends in the middle: {problem}")

    def _more(self, least: int = 1) -> bool:
        """Take the next pieces, of so many characters at least; False if there are none."""
        if self._over:
            return False
        taken, size = [self._text[max(0, self._at - 3) :]], 0
        self._at = min(self._at, 3)
        while size < max(1, least) and not self._over:
            piece = next(self._pieces, None)
            self._over = piece is None
            taken.append(self._decode(piece or b"", final=self._over))
            size += len(taken[-1])
        self._text = "".join(taken)
        return size > 0

    def _heed(self, key: str, value: Any) -> None:
        if key == "baseTimeNanoseconds":
            self.base = whole(value) or 0
        elif key == "distributedInfo" and isinstance(value, dict):
            self.rank, self.world_size = whole(value.get("rank")), whole(value.get("world_size"))
        elif key == "deviceProperties" and isinstance(value, list) and value:
            name = value[0].get("name") if isinstance(value[0], dict) else None
            self.device = name[:128] if isinstance(name, str) else None


def whole(value: object) -> int | None:
    """Return a number that is not below zero, as PyTorch writes it: plain or as text."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 62:
        return None
    return int(value)


def read_event(event: dict[str, Any]) -> Event | None:
    """Return what an event says, or `None` if it is of no interest here.

    Raises `Malformed` for a time that is none.
    """
    category, name = event.get("cat"), event.get("name")
    if not isinstance(category, str) or not isinstance(name, str):
        return None
    kind = _KINDS.get(category)
    if kind is None:
        return None
    name = name[:_LONGEST_NAME]
    args = event.get("args")
    known: dict[str, Any] = args if isinstance(args, dict) else {}
    if kind == "memory":
        return _memory(event, name, known)
    if event.get("ph") != "X" or (kind == "step" and not name.startswith("ProfilerStep#")):
        return None
    start = nanoseconds(event.get("ts"), name)
    duration = nanoseconds(event.get("dur", 0), name)
    if duration < 0:
        raise Malformed(f"{name[:80]!r} lasts {duration} ns")
    return Event(
        kind, name, start, start + duration,
        device=whole(known.get("device")) or 0,
        link=whole(known.get("correlation")) or 0,
        size=whole(known.get("bytes")) or 0,
    )  # fmt: skip


def _memory(event: dict[str, Any], name: str, args: dict[str, Any]) -> Event | None:
    """Return what an allocator did, on the host (device type 0) or the GPU (1)."""
    kind, change = args.get("Device Type"), args.get("Bytes")
    if name != "[memory]" or kind not in (0, 1) or not isinstance(change, int):
        return None
    return Event(
        "memory", name, nanoseconds(event.get("ts"), name), 0,
        device=HOST if kind == 0 else whole(args.get("Device Id")) or 0,
        size=whole(args.get("Total Allocated")) or 0,
        reserved=whole(args.get("Total Reserved")) or 0,
        change=max(-(1 << 60), min(change, 1 << 60)), thread=_thread(event),
    )  # fmt: skip


def read_operator(event: dict[str, Any]) -> Event | None:
    """Return an operator, or `None` for any other event. Raises `Malformed`."""
    name = event.get("name")
    if event.get("cat") not in _OPERATORS or not isinstance(name, str) or event.get("ph") != "X":
        return None
    start = nanoseconds(event.get("ts"), name)
    end = start + nanoseconds(event.get("dur", 0), name)
    return Event("operator", name[:_LONGEST_NAME], start, end, thread=_thread(event))


def _thread(event: dict[str, Any]) -> str:
    return str(event.get("tid"))[:32]


def nanoseconds(value: object, name: str) -> int:
    """Return microseconds as whole nanoseconds. Raises `Malformed`."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(f"{name[:80]!r} has no time")
    if not math.isfinite(value) or abs(value) > 4e15:
        raise Malformed(f"{name[:80]!r} is at {value} microseconds")
    return value * 1000 if isinstance(value, int) else round(value * 1000)
