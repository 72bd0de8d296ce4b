"""Takes what jobs push, tells it to the ledger, and counts what became of it.

The way in (HTTP) and the way out (samples and health of the source `push`) meet here. It is told
the time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from exporter.samples import Reason
from exporter.training.ledger import TrainingLedger
from exporter.training.records import Record

OUTCOMES = ("new", "known", "refused")
REASONS_SHOWN = 100


@dataclass(frozen=True, slots=True, order=True)
class Refused:
    """A record that was not taken: its place in the push, the field that is wrong, and why."""

    index: int
    field: str
    reason: str


class Receipt(NamedTuple):
    """What became of a push; of those refused the first hundred."""

    new: int
    known: int
    refused: int
    reasons: tuple[Refused, ...]


class Trouble(NamedTuple):
    """What is wrong with a part of the reception, and since when, in monotonic seconds."""

    since: float
    reason: Reason
    detail: str


class Reception:
    """Any thread may call it; what one reader brings must come from one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[tuple[str, str], int] = {}
        self._answers: dict[str, int] = {}
        self._troubles: dict[str, Trouble] = {}

    def take(
        self,
        ledger: TrainingLedger,
        reader: str,
        records: Iterable[tuple[int, Record]],
        refused: Iterable[Refused],
        now: float,
    ) -> Receipt:
        """Tell a ledger records, given with their places; `refused` are wrong already."""
        wrong = list(refused)
        if wrong:
            ledger.refuse(reader, "nonsense", len(wrong))
        new = known = 0
        for index, record in records:
            full = _left_out(ledger, reader)
            try:
                is_new = ledger.tell(reader, (record,), now)
            except ValueError as error:
                field, _, reason = str(error).partition(": ")
                ledger.refuse(reader, "nonsense")
                wrong.append(Refused(index, field, reason))
                continue
            if is_new:
                new += 1
            elif (beyond := _left_out(ledger, reader)) != full:
                field = "run" if beyond[0] != full[0] else "rank"
                wrong.append(Refused(index, field, f"too many {field}s are known on this node"))
            else:
                known += 1
        receipt = Receipt(new, known, len(wrong), tuple(sorted(wrong)[:REASONS_SHOWN]))
        self._count(reader, receipt, now)
        return receipt

    def answered(self, status: int) -> None:
        """Count an answer."""
        with self._lock:
            self._answers[str(status)] = self._answers.get(str(status), 0) + 1

    def note(self, part: str, trouble: Trouble | None) -> None:
        """Note that something is wrong with a part (socket, token_file), or is well again."""
        with self._lock:
            if trouble is None:
                self._troubles.pop(part, None)
            else:
                self._troubles[part] = trouble

    def records(self) -> Mapping[tuple[str, str], int]:
        """Return how many records there were, by reader and outcome."""
        with self._lock:
            return dict(self._records)

    def answers(self) -> Mapping[str, int]:
        """Return how many requests were answered, by HTTP status."""
        with self._lock:
            return dict(self._answers)

    def troubles(self) -> Mapping[str, Trouble]:
        """Return what is wrong, by part; `records` is the last one that was refused."""
        with self._lock:
            return dict(self._troubles)

    def _count(self, reader: str, receipt: Receipt, now: float) -> None:
        with self._lock:
            for outcome, number in zip(OUTCOMES, receipt[:3], strict=True):
                key = reader, outcome
                self._records[key] = self._records.get(key, 0) + number
            if receipt.reasons:
                first = receipt.reasons[0]
                where = f"record {first.index}" + (f", {first.field}" if first.field else "")
                detail = f"{reader}: {where}: {first.reason}"
                self._troubles["records"] = Trouble(now, "malformed", detail)


def _left_out(ledger: TrainingLedger, reader: str) -> tuple[int, int]:
    """Return how much was beyond the limits of runs and ranks so far."""
    refused = ledger.refused()
    return refused.get((reader, "runs"), 0), refused.get((reader, "ranks"), 0)
