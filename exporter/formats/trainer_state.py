"""Reads `trainer_state.json`, which the HF Trainer writes with each checkpoint.

`log_history` holds all that was ever logged, one object for each time: those of training have a
`loss`, evaluations `eval_...`, and the last one sums up (`train_loss`). The file is written in one
go, not renamed: a half-written one is not JSON. Values may be text (Axolotl).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from exporter.samples import Malformed

LARGEST = 32 << 20
"""Bytes of the file, at most."""

_MOST_STEP = 1 << 53
_LONGEST_NUMBER = 64


class Entry(NamedTuple):
    """What was logged at one step: numbers by key. `mark` tells two contents apart."""

    step: int
    values: Mapping[str, float]
    mark: int


class State(NamedTuple):
    """The state of a trainer: last step, planned last step, batch of a device, what was logged."""

    step: int
    last_step: int | None
    batch: float | None
    entries: tuple[Entry, ...]


def read_state(text: bytes) -> State:
    """Return what the file says, by step. Raises `Malformed`.

    Entries of one step are one: of a key that comes twice the first value counts, for the summary
    at the end says the totals once more.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("log_history"), list):
        raise Malformed("no log_history: not the state of a trainer")
    merged: dict[int, dict[str, float]] = {}
    for at, one in enumerate(document["log_history"]):
        if not isinstance(one, dict) or (step := _step(one.get("step"))) is None:
            raise Malformed(f"log_history.{at}: no step")
        values = {str(key): _number(value) for key, value in one.items() if key != "step"}
        entry = merged.setdefault(step, {})
        for key, number in values.items():
            if number is not None and "train_loss" not in one:
                entry.setdefault(key, number)
    return State(
        _step(document.get("global_step")) or 0,
        _step(document.get("max_steps")) or None,
        _number(document.get("train_batch_size")),
        tuple(
            Entry(step, values, zlib.crc32(repr(sorted(values.items())).encode()))
            for step, values in merged.items()
        ),
    )


def _step(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_STEP:
        return None
    return value


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, str) and (len(value) > _LONGEST_NUMBER or "_" in value):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
