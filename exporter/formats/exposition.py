"""Reads the metrics pages of others: Prometheus text 0.0.4 and 1.0.0, OpenMetrics 1.0.

A server is asked again and again and mostly answers with the same series, so a `Reader` remembers
the last page. Lines that did not change are recognised by comparison and cost nothing more; of a
line that did change only the value is read. Whenever a page does not fit what is remembered, all of
it is read anew, with the labels of known series taken from memory. Both ways give the same answer.

What the names mean is left to `engines`; a type is handed on as printed. The formats are at
prometheus.io/docs/instrumenting/exposition_formats and prometheus.io/docs/specs/om.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from operator import itemgetter, ne
from typing import NamedTuple, TypeVar

from exporter.samples import Malformed

_T = TypeVar("_T")


class Series(NamedTuple):
    """What one line is about: the sample name and the labels as printed, unescaped."""

    name: str
    labels: tuple[tuple[str, str], ...]


class PageShape:
    """Which series a page has. Shapes compare by identity.

    `series` are in page order (that of the first page that had just these) and without
    duplicates. `types` says the type of each family by the name in its TYPE line, also of families
    that are not wanted. `index` says where in `series` a sample name is.
    """

    __slots__ = ("index", "series", "types")

    def __init__(self, series: tuple[Series, ...], types: Mapping[str, str]) -> None:
        self.series = series
        self.types = types
        index: dict[str, list[int]] = {}
        for position, one in enumerate(series):
            index.setdefault(one.name, []).append(position)
        self.index: Mapping[str, tuple[int, ...]] = {n: tuple(ps) for n, ps in index.items()}


class Page(NamedTuple):
    """A page that was read.

    `shape` is the same object as the last time while the set of series (and their types) is
    unchanged; `values` has one number for each of its series. `dropped` counts by reason the lines
    that were left out: `malformed`, `duplicate` (the series comes again later: the last one wins),
    `labels` (a label value that is too long, or too many labels), `cap` (beyond the limits).
    `partial`: the page broke off in the middle of a line, which was ignored.
    """

    shape: PageShape
    values: Sequence[float]
    dropped: Mapping[str, int]
    partial: bool

    @property
    def damaged(self) -> bool:
        """Whether series may be missing that the server meant to show."""
        return self.partial or not _LOSSES.isdisjoint(self.dropped)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a page is looked at.

    Lines beyond the first `max_series` (comments count too) and longer ones than `max_line_bytes`
    are dropped as `cap`; a series with a label value of more than `max_label_bytes` as `labels`:
    one label of 7 MB has been seen (vllm#44691). So is one with more than `max_labels` labels.
    """

    max_line_bytes: int = 1 << 20
    max_series: int = 50_000
    max_label_bytes: int = 1024
    max_labels: int = 64


class Reader:
    """Reads the pages of one server, one after the other.

    `wanted` are beginnings of sample names, such as `vllm:`; `None` means all. Lines of other
    families are skipped unread: nobody learns whether they are well-formed.
    """

    def __init__(self, wanted: Iterable[str] | None = None, limits: Limits | None = None) -> None:
        self._wanted = ("",) if wanted is None else tuple(wanted)
        self._limits = limits if limits is not None else Limits()
        self._memory = _Memory(PageShape((), {}), (), {}, {})

    def read(self, body: bytes) -> Page:
        """Return what the page says. An empty body is an empty page.

        Raises `Malformed` if it is none: a web page, JSON, binary, or nothing but malformed lines.
        """
        if b"\r" in body:
            body = body.replace(b"\r\n", b"\n")
        lines = body.split(b"\n", self._limits.max_series)
        rest = lines.pop()  # of the last line what there is of it, and what is beyond the limit
        torn = rest[rest.rfind(b"\n") + 1 :]
        memory = self._memory
        # A page without series is always studied: whether it is one may hang on its torn line.
        if not (memory.values and memory.follow(lines, self._limits.max_line_bytes)):
            study = _Study(memory, self._wanted, self._limits)
            study.read(lines)
            _expect_exposition([*lines, torn], found=bool(study.found))
            self._memory = memory = study.memory(lines)
        dropped = dict(memory.dropped)
        capped = rest.count(b"\n")
        if capped:
            dropped["cap"] = dropped.get("cap", 0) + capped
        partial = torn.strip(_BLANK) not in (b"", _EOF)
        return Page(memory.shape, memory.values, dropped, partial)


class _Memory:
    """What the last page said, and how to read one that says nearly the same.

    The lines are of two kinds. `rows` are those whose series is known and whose value may change:
    a line that begins with the row's `start` tells of the same series, the one at `slot`. The
    `others` may change only if they begin with their `start` still, which is the name of a family
    that is not wanted, or `_NEVER`: comments, malformed lines, what a later duplicate overrides.
    `keys` are the series as printed, `ids` as text with their labels sorted; both lead to slots.
    """

    def __init__(
        self,
        shape: PageShape,
        values: tuple[float, ...],
        dropped: Mapping[str, int],
        ids: Mapping[str, int],
    ) -> None:
        self.shape = shape
        self.values = values
        self.dropped = dropped
        self.ids = ids
        self.keep([], [], [])

    def keep(self, lines: list[bytes], starts: list[bytes], slots: list[int]) -> None:
        """Remember the lines, what each begins with, and the slot of its value or -1."""
        is_row = [
            slot >= 0 and start is not _NEVER for slot, start in zip(slots, starts, strict=True)
        ]
        self._number = len(lines)
        self._get_rows = _getter([i for i, row in enumerate(is_row) if row])
        self._get_others = _getter([i for i, row in enumerate(is_row) if not row])
        self._rows, self._others = self._get_rows(lines), self._get_others(lines)
        self._starts, self._other_starts = self._get_rows(starts), self._get_others(starts)
        self._slots = self._get_rows(slots)
        self.keys = dict(zip(self._starts, self._slots, strict=True))
        self._longest = max(map(len, self._starts), default=0)

    def follow(self, lines: list[bytes], max_line_bytes: int) -> bool:
        """Take over the values if the lines differ from the last ones in well-formed values only.

        `False` says that it is not so, or not clearly so; then nothing has changed. Right because
        a line that begins with its predecessor's start is taken apart at the same place by a study
        as well, and because all characters of all new values are looked at.
        """
        if len(lines) != self._number:
            return False
        others = self._get_others(lines)
        if others != self._others:
            changed = list(map(ne, others, self._others))
            if not all(_begin(compress(others, changed), compress(self._other_starts, changed))):
                return False
        rows = self._get_rows(lines)
        changed = list(map(ne, rows, self._rows))
        new, starts = list(compress(rows, changed)), list(compress(self._starts, changed))
        if not all(_begin(new, starts)):
            return False
        tails = list(map(bytes.removeprefix, new, starts))
        numbers = _values(tails, max_line_bytes - self._longest)
        if numbers is None:
            return False
        values = list(self.values)
        for slot, number in zip(compress(self._slots, changed), numbers, strict=True):
            values[slot] = number
        self.values, self._rows, self._others = tuple(values), rows, others
        return True


class _Study:
    """One thorough reading of a page, with what is known from the last one.

    `found` has the value of each series by its slot. Slots are those of the old memory, and new
    ones behind them; a new memory counts afresh, and so forgets what is gone.
    """

    def __init__(self, old: _Memory, wanted: tuple[str, ...], limits: Limits) -> None:
        self.found: dict[int, float] = {}
        self._old = old
        self._wanted = wanted
        self._verdicts: dict[str, bool] = {}
        self._limits = limits
        self._dropped: dict[str, int] = {}
        self._types: dict[str, str] = {}
        self._series = list(old.shape.series)
        self._new_ids: dict[str, int] = {}
        self._starts: list[bytes] = []
        self._slots: list[int] = []

    def read(self, lines: list[bytes]) -> None:
        """Read all lines; those after the end mark of OpenMetrics are malformed."""
        end = lines.index(_EOF) + 1 if _EOF in lines else len(lines)
        known, longest = self._old.keys, self._limits.max_line_bytes
        for line in lines[:end]:
            # Where a series ends that is known; with an exemplar this finds none.
            cut = line.rfind(b"}") + 1 or line.find(b" ") + 1
            key = line[:cut]
            slot = known.get(key)
            if slot is not None and len(line) <= longest:
                value = _value(line[cut:])
                if value is not None:
                    self.found[slot] = value
                    self._starts.append(key)
                    self._slots.append(slot)
                    continue
            self._meet(line)
        for line in lines[end:]:
            if line.strip(_BLANK):
                self._drop("malformed")
            else:
                self._note(_NEVER, -1)

    def memory(self, lines: list[bytes]) -> _Memory:
        """Return what is to be remembered of the page."""
        old, found, slots = self._old, self.found, self._slots
        self._settle_duplicates()
        if not self._new_ids and len(found) == len(old.values) and self._types == old.shape.types:
            shape, ids = old.shape, old.ids
            values = tuple(map(found.__getitem__, range(len(found))))
        else:
            place = {slot: position for position, slot in enumerate(found)}
            shape = PageShape(tuple(map(self._series.__getitem__, place)), self._types)
            known = chain(old.ids.items(), self._new_ids.items())
            ids = {identity: place[slot] for identity, slot in known if slot in place}
            values = tuple(found.values())
            slots = [place.get(slot, -1) for slot in slots]
        memory = _Memory(shape, values, self._dropped, ids)
        memory.keep(lines, self._starts, slots)
        return memory

    def _settle_duplicates(self) -> None:
        """Count the lines that a later one overrides; a change of them needs a study."""
        number = len(self._slots) - self._slots.count(-1) - len(self.found)
        if not number:
            return
        self._dropped["duplicate"] = number
        seen = {-1}
        for i in reversed(range(len(self._slots))):
            if self._slots[i] in seen:
                self._starts[i] = _NEVER
            seen.add(self._slots[i])

    def _meet(self, line: bytes) -> None:
        """Read a line that does not simply tell of a known series."""
        name = _NAME.match(line)
        if name is not None:
            if self._is_wanted(_text(name[0])):
                self._sample(line)
            else:
                end = name.end() + 1  # with what ends the name
                self._note(line[:end] if end <= len(line) else _NEVER, -1)
        elif line[:1] == b"#":
            self._comment(line)
        elif line[:1] not in _BLANK:
            self._sample(line)
        elif bare := line.lstrip(_BLANK):
            self._meet(bare)
        else:
            self._note(_NEVER, -1)

    def _is_wanted(self, name: str) -> bool:
        verdict = self._verdicts.get(name)
        if verdict is None:
            verdict = self._verdicts[name] = name.startswith(self._wanted)
        return verdict

    def _comment(self, line: bytes) -> None:
        match = _TYPE.fullmatch(line)
        if match is not None:
            bare, quoted, kind = match.groups()
            self._types[_text(bare if bare is not None else _unescaped(quoted))] = _text(kind)
        self._note(_NEVER, -1)

    def _sample(self, line: bytes) -> None:
        if len(line) > self._limits.max_line_bytes:
            self._drop("cap")
            return
        try:
            parsed = _parse(line, self._limits.max_labels)
        except _TooManyLabelsError:
            self._drop("labels")
            return
        value = None if parsed is None else _value(line[parsed.end :])
        if parsed is None or value is None:
            self._drop("malformed")
        elif not self._is_wanted(parsed.series.name):
            self._note(_NEVER, -1)
        elif parsed.longest > self._limits.max_label_bytes:
            self._drop("labels")
        else:
            key = line[: parsed.end]
            slot = self._old.keys.get(key)
            if slot is None:
                slot = self._slot(parsed.series)
            self.found[slot] = value
            self._note(key, slot)

    def _slot(self, series: Series) -> int:
        """Return the slot of a series that was not printed in this way the last time."""
        # No NUL is in a name or a value. (A text remembers its hash, a tuple does not.)
        identity = "\0".join((series.name, *chain.from_iterable(sorted(series.labels))))
        slot = self._old.ids.get(identity)
        if slot is None:
            slot = self._new_ids.setdefault(identity, len(self._series))
            if slot == len(self._series):
                self._series.append(series)
        return slot

    def _drop(self, reason: str) -> None:
        self._dropped[reason] = self._dropped.get(reason, 0) + 1
        self._note(_NEVER, -1)

    def _note(self, start: bytes, slot: int) -> None:
        self._starts.append(start)
        self._slots.append(slot)


class _Parsed(NamedTuple):
    """A line's series, where it ends, and the length of its longest label value in bytes."""

    series: Series
    end: int
    longest: int


class _TooManyLabelsError(Exception):
    """A line has more labels than are looked at."""


_LOSSES = frozenset(("malformed", "labels", "cap"))
_EOF = b"# EOF"
_BLANK = b" \t"
_NEVER = b"\n"  # no line begins with it
_PLAIN = b"0123456789.eE+- \t"
_WORDS = frozenset(
    sign + word for sign in (b"", b"+", b"-") for word in (b"nan", b"inf", b"infinity")
)

# No quantifier here can take what the one beside it takes: the work is linear in the line.
_STRING = rb'"([^"\\]*(?:\\.[^"\\]*)*)"'
_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(
    rb"(?:(?:([a-zA-Z_][a-zA-Z0-9_]*)|%b)[ \t]*=[ \t]*)?%b[ \t]*(,?)[ \t]*" % (_STRING, _STRING),
    re.DOTALL,
)
_VALUE = re.compile(
    rb"[ \t]*([-+.0-9A-Za-z]+)"
    rb"(?:[ \t]+([-+.0-9eE]+))?[ \t]*"  # a timestamp: milliseconds, in OpenMetrics seconds
    rb"(?:(?<=[ \t])#[^\0]*)?"  # an exemplar
)
_ESCAPE = re.compile(rb'\\([\\"n])')
_TYPE = re.compile(rb'#[ \t]*TYPE[ \t]+(?:([^ \t"]+)|%b)[ \t]+([^ \t]+)[ \t]*' % _STRING)
_METADATA = re.compile(rb"#[ \t]*(?:(?:HELP|TYPE|UNIT)[ \t]|EOF)")


def _parse(line: bytes, max_labels: int) -> _Parsed | None:
    """Take a line's series apart; `None` if it is malformed.

    It ends behind the brace, or behind the first blank after a bare name. Raises
    `_TooManyLabelsError` without looking at the rest.
    """
    match = _NAME.match(line)
    name = b"" if match is None else match[0]
    brace = _skip_blanks(line, len(name))
    if line[brace : brace + 1] != b"{":
        if not name or brace == len(name):
            return None
        return _Parsed(Series(_text(name), ()), len(name) + 1, 0)
    labels: list[tuple[str, str]] = []
    longest = 0
    at = _skip_blanks(line, brace + 1)
    while line[at : at + 1] != b"}":
        match = _LABEL.match(line, at)
        if match is None:
            return None
        bare, quoted, value, comma = match.groups()
        at = match.end()
        if not comma and line[at : at + 1] != b"}":
            return None
        if bare is not None or quoted is not None:
            if len(labels) == max_labels:
                raise _TooManyLabelsError
            key = _text(bare if bare is not None else _unescaped(quoted))
            labels.append((key, _text(_unescaped(value))))
            longest = max(longest, len(value))
        elif name:
            return None
        else:
            name = _unescaped(value)
    if not name or len(dict(labels)) != len(labels) or b"\0" in line[:at]:
        return None
    return _Parsed(Series(_text(name), tuple(labels)), at + 1, longest)


def _skip_blanks(line: bytes, at: int) -> int:
    if line[at : at + 1] not in (b" ", b"\t"):
        return at
    return len(line) - len(line[at:].lstrip(_BLANK))


def _value(text: bytes) -> float | None:
    """Return the value in what follows a series; `None` if that is malformed.

    Python reads `1_000` as a number, Prometheus does not.
    """
    try:
        if not text.translate(None, _PLAIN):
            return float(text)
    except ValueError:
        pass
    match = _VALUE.fullmatch(text)
    if match is None:
        return None
    word, timestamp = match.groups()
    try:
        if timestamp is not None:
            float(timestamp)
        if not word.translate(None, _PLAIN) or word.lower() in _WORDS:
            return float(word)
    except ValueError:
        pass
    return None


def _values(texts: list[bytes], max_bytes: int) -> list[float] | None:
    """Return the same as `_value` of each, quickly; `None` if one is malformed or too long."""
    joined = b"".join(texts)
    if len(joined) > max_bytes and max(map(len, texts)) > max_bytes:
        return None
    if not joined.translate(None, _PLAIN):
        try:
            return list(map(float, texts))
        except ValueError:
            pass
    values = [value for value in map(_value, texts) if value is not None]
    return values if len(values) == len(texts) else None


def _unescaped(text: bytes) -> bytes:
    if b"\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: b"\n" if match[1] == b"n" else match[1], text)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _begin(lines: Iterable[bytes], starts: Iterable[bytes]) -> Iterator[bool]:
    return map(bytes.startswith, lines, starts)


def _getter(positions: list[int]) -> Callable[[Sequence[_T]], tuple[_T, ...]]:
    """Return what picks the items at some positions out of a list."""
    if len(positions) > 1:
        return itemgetter(*positions)
    return lambda items: tuple(items[i] for i in positions)


def _expect_exposition(lines: Iterable[bytes], *, found: bool) -> None:
    """Raise `Malformed` if there are lines but not one that belongs on a page of metrics.

    `found` says that there is one. A page of markup is none even if a line of it looks so.
    """
    wrong = 0, b""
    for number, line in enumerate(lines, 1):
        bare = line.strip(_BLANK)
        if bare.startswith(b"<") and not wrong[0]:
            raise _not_metrics(number, bare)
        if bare and (found or _METADATA.match(bare) or _is_sample(bare)):
            return
        if bare and not wrong[0] and not bare.startswith(b"#"):
            wrong = number, bare
    if wrong[0]:
        raise _not_metrics(*wrong)


def _is_sample(line: bytes) -> bool:
    try:
        parsed = _parse(line, Limits().max_labels)
    except _TooManyLabelsError:
        return True
    return parsed is not None and _value(line[parsed.end :]) is not None


def _not_metrics(number: int, line: bytes) -> Malformed:
    return Malformed(f"not a page of metrics: line {number} begins {_text(line[:60])!r}")
