"""Reads what a job pushes: JSON with one record, a list of records, or `{"records": [...]}`.

A record that is wrong is refused by its index and field, and the others are read. Records are cut
out of the text one by one, so that no call into the parser, which lets nobody else run meanwhile,
is long; each has a limit of size and depth that is checked before it is parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, get_args

from exporter.formats import nccl_settings
from exporter.samples import Malformed
from exporter.training.reception import Refused
from exporter.training.records import Facts, Moment, MomentKind, Record, Step

MAX_RECORD = 64 * 1024
MAX_DEPTH = 16
MAX_IGNORED = 20
_MAX_STEPS = 1_000_000
_MAX_SECONDS = 1e7
_LATEST = 1e11
"""Unix seconds far in the future; milliseconds of today are above it."""
_MAX_NUMBER = 1e30
_MAX_RANKS = 1024

# A text without end is taken to the end: looking for one from each quote in it takes minutes.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_BLANK = re.compile(r"[ \t\n\r]*")
_LIST = re.compile(r'[ \t\n\r]*(?:\{[ \t\n\r]*"records"[ \t\n\r]*:[ \t\n\r]*)?\[')


class TooMuch(Malformed):
    """There is more in a push than is read at once."""


class _WrongError(ValueError):
    """A field of a record is wrong; without a field, the record."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field


class Pushed(NamedTuple):
    """What a push holds: records with their places, what is wrong, and fields nobody knows."""

    records: tuple[tuple[int, Record], ...]
    refused: tuple[Refused, ...]
    ignored: tuple[str, ...]


def read(body: bytes, most: int) -> Pushed:
    """Return what is in a push of at most `most` records.

    Raises `Malformed` if it is not JSON of this form, `TooMuch` if there are more records.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Malformed(f"not UTF-8 text (byte {error.start})") from None
    records: list[tuple[int, Record]] = []
    refused: list[Refused] = []
    ignored: dict[str, None] = {}
    for index, (piece, depth) in enumerate(_pieces(text)):
        if index >= most:
            raise TooMuch(f"more than {most} records at once (push.max_records)")
        try:
            record, unknown = _record(_parse(piece, depth))
        except _WrongError as error:
            refused.append(Refused(index, error.field, str(error)))
            continue
        records.append((index, record))
        if unknown and len(ignored) < MAX_IGNORED:
            ignored.update(dict.fromkeys(name[:64] for name in unknown))
    return Pushed(tuple(records), tuple(refused), tuple(ignored)[:MAX_IGNORED])


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    """Yield the text of each record, and how deep it is nested."""
    if (start := _LIST.match(text)) is None:
        at = _skip(text, 0)
        if text[at : at + 1] != "{":
            raise Malformed('a record, or {"records": [...]}, is wanted')
        end, depth = _end(text, at)
        yield text[at:end], depth
        _expect_end(text, end)
        return
    at = _skip(text, start.end())
    if text[at : at + 1] != "]":
        while True:
            end, depth = _end(text, at)
            yield text[at:end], depth
            at = _skip(text, end)
            if text[at : at + 1] != ",":
                break
            at = _skip(text, at + 1)
        if text[at : at + 1] != "]":
            raise Malformed(f"a comma or ] is wanted at character {at}")
    at = _skip(text, at + 1)
    if "{" in start[0]:
        if text[at : at + 1] != "}":
            raise Malformed('nothing but "records" is wanted beside the list')
        at += 1
    _expect_end(text, at)


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return at if blank is None else blank.end()


def _expect_end(text: str, at: int) -> None:
    if _skip(text, at) != len(text):
        raise Malformed(f"something follows the end at character {at}")


def _end(text: str, at: int) -> tuple[int, int]:
    """Return where the object that begins at `at` ends, and how deep it is nested."""
    if text[at : at + 1] != "{":
        raise Malformed(f"an object is wanted at character {at}")
    depth = deepest = 0
    for token in _TOKEN.finditer(text, at):
        if token[0] in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif token[0] in "]}":
            depth -= 1
            if depth == 0:
                return token.end(), deepest
    raise Malformed(f"the record at character {at} has no end")


def _parse(piece: str, depth: int) -> dict[str, Any]:
    if len(piece) > MAX_RECORD:
        raise _WrongError("", f"longer than {MAX_RECORD} characters")
    if depth > MAX_DEPTH:
        raise _WrongError("", f"nested deeper than {MAX_DEPTH}")
    try:
        found = json.loads(piece)
    except json.JSONDecodeError as error:
        reason = f"not JSON ({error.msg} at character {error.pos} of it)"
        raise _WrongError("", reason) from None
    except ValueError:
        raise _WrongError("", "a number of more than 4000 digits") from None
    return _mapping(found)


def _record(found: dict[str, Any]) -> tuple[Record, list[str]]:
    """Return a record and the names of fields that nobody knows. Raises `_WrongError`."""
    kind = found.pop("kind", "step")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise _WrongError("kind", f"one of {', '.join(_KINDS)} is wanted")
    make, fields, needed = _KINDS[kind]
    known: dict[str, Any] = {}
    unknown: list[str] = []
    for name, value in found.items():
        reader = fields.get(name)
        if reader is None:
            unknown.append(name)
        elif value is not None:
            try:
                known[name] = reader(value)
            except ValueError as error:
                raise _WrongError(name, str(error)) from None
    for name in needed:
        if name not in known:
            raise _WrongError(name, "this field is needed")
    if kind == "moment":
        known["kind"] = known.pop("moment")
    return make(**known), unknown


def _number(value: object, most: float = _MAX_NUMBER) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a number is wanted")  # noqa: TRY004 - one error for all refusals
    if abs(value) > most and value not in (float("inf"), float("-inf")):
        raise ValueError(f"more than {most:g}")
    return float(value)


def _seconds(value: object) -> float:
    return _number(value, _MAX_SECONDS)


def _wall(value: object) -> float:
    try:
        return _number(value, _LATEST)
    except ValueError as error:
        raise ValueError(f"{error} (Unix seconds are wanted)") from None


def _whole(value: object) -> int:
    number = _number(value, 2**53)
    if not number.is_integer():
        raise ValueError("a whole number is wanted")
    return int(number)


def _steps(value: object) -> int:
    steps = _whole(value)
    if steps > _MAX_STEPS:
        raise ValueError(f"more than {_MAX_STEPS}")
    return steps


def _text(value: object, longest: int = 128) -> str:
    if not isinstance(value, str):
        raise ValueError("a text is wanted")  # noqa: TRY004 - one error for all refusals
    if len(value) > longest:
        raise ValueError(f"longer than {longest} characters")
    if not value.isprintable():
        raise ValueError("has characters that cannot be printed")
    return value


def _detail(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a text is wanted")  # noqa: TRY004 - one error for all refusals
    return "".join(char if char.isprintable() else " " for char in value[:512])


def _one_of(*words: str) -> Callable[[object], str]:
    def choose(value: object) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)} is wanted")
        return str(value)

    return choose


def _phases(value: object) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, seconds in _mapping(value).items():
        try:
            found[name[:64]] = _seconds(seconds)
        except ValueError as error:
            raise ValueError(f"{name[:64]!r}: {error}") from None
    return found


def _by_rank(value: object) -> dict[int, Any]:
    found = _mapping(value)
    if len(found) > _MAX_RANKS:
        raise ValueError(f"more than {_MAX_RANKS} ranks")
    if not all(re.fullmatch("[0-9]{1,7}", rank, re.ASCII) for rank in found):
        raise ValueError("its keys are ranks: whole numbers as text")
    return {int(rank): told for rank, told in found.items()}


def _ranks(value: object) -> dict[int, int]:
    ranks = {rank: _whole(gpu) for rank, gpu in _by_rank(value).items()}
    if any(gpu < 0 for gpu in ranks.values()):
        raise ValueError("its values are GPUs: whole numbers")
    return ranks


def _nccl(value: object) -> dict[str, str]:
    return nccl_settings.from_mapping(_mapping(value))


def _nccl_ranks(value: object) -> dict[int, dict[str, str]]:
    return {rank: _nccl(told) for rank, told in _by_rank(value).items()}


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("an object is wanted")  # noqa: TRY004 - one error for all refusals
    return value


_Fields = Mapping[str, Callable[[Any], Any]]
_STEP: _Fields = {
    "run": _text, "step": _whole, "rank": _whole, "attempt": _text, "steps": _steps,
    "scope": _one_of("run", "rank"), "wall": _wall, "seconds": _seconds, "tokens": _number,
    "tgs": _number, "samples": _number, "loss": _number, "gradient_norm": _number,
    "learning_rate": _number, "phases": _phases, "communication": _seconds, "flops": _number,
    "mfu": _number, "energy": _number, "memory_bytes": _number, "expert_imbalance": _number,
    "dropped_tokens": _number, "skipped": _steps,
}  # fmt: skip
_FACTS: _Fields = {
    "run": _text, "framework": _text, "world_size": _whole, "model": _text, "config": _mapping,
    "flops_per_token": _number, "active_parameters": _number,
    "attention_flops_per_token": _number, "sequence_length": _whole,
    "document_length": _number, "global_batch": _number, "micro_batch": _number,
    "micro_batches": _whole, "data_parallel": _whole, "tensor_parallel": _whole,
    "pipeline_parallel": _whole, "virtual_stages": _whole, "context_parallel": _whole,
    "expert_parallel": _whole, "schedule": _text, "precision": _text,
    "recompute": _one_of("none", "selective", "full"), "trainable": _one_of("all", "adapters"),
    "adapter_parameters": _number,
    "first_trainable": _whole, "local_ranks": _ranks, "submitted": _wall, "last_step": _whole,
    "nccl": _nccl, "nccl_ranks": _nccl_ranks,
}  # fmt: skip
_MOMENT: _Fields = {
    "run": _text, "moment": _one_of(*get_args(MomentKind)), "wall": _wall, "rank": _whole,
    "attempt": _text, "step": _whole, "seconds": _seconds, "detail": _detail,
}  # fmt: skip
_KINDS: Mapping[str, tuple[Callable[..., Record], _Fields, tuple[str, ...]]] = {
    "step": (Step, _STEP, ("run", "step")),
    "facts": (Facts, _FACTS, ("run",)),
    "moment": (Moment, _MOMENT, ("run", "moment")),
}  # fmt: skip
