"""What became of the pushes of jobs, and what is wrong with the ways in.

The records themselves are in the ledger as soon as they are taken; reading this source costs a look
at a few numbers.

    flopwatch_push_records_total{reader="push",outcome="new"} 1200
    flopwatch_push_answers_total{status="200"} 300
"""

from __future__ import annotations

from collections.abc import Iterable

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.samples import Fault, Sample
from exporter.training.reception import OUTCOMES, Reception

SECONDS_SHOWN = 60.0
"""For how long a record that was refused is told as a fault."""


class PushSource:
    """The reception of pushes, as a source."""

    name = "push"
    group = c.EXPORTER

    def __init__(self, reception: Reception, clock: Clock) -> None:
        self._reception = reception
        self._clock = clock

    def read(self) -> Iterable[Sample | Fault]:
        """Yield the counts, and a fault for each part that is in trouble."""
        records = self._reception.records()
        for reader in ("push", "otlp"):
            for outcome in OUTCOMES:
                number = records.get((reader, outcome), 0)
                yield c.FLOPWATCH_PUSH_RECORDS_TOTAL(number, reader, outcome)
        for status, number in sorted(self._reception.answers().items()):
            yield c.FLOPWATCH_PUSH_ANSWERS_TOTAL(number, status)
        now = self._clock.monotonic()
        for part, trouble in self._reception.troubles().items():
            if part != "records" or now - trouble.since < SECONDS_SHOWN:
                yield Fault(part, trouble.reason, trouble.detail)

    def close(self) -> None:
        """Nothing is held."""
