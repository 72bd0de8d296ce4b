"""A page of metrics that a training job itself shows, over HTTP.

How to fetch is `fetch`'s matter, how to read a page that of `formats.exposition`, what the names
mean that of `formats.trainpage`. What is found goes to the ledger of training runs; the source
itself yields faults only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.fetch import Response
from exporter.formats.exposition import Limits, Reader
from exporter.formats.trainpage import WANTED, TrainingPage
from exporter.samples import Drop, Fault, Malformed, SourceError
from exporter.training.records import Record

READER = "page"


class Fetch(Protocol):
    """What gets the page."""

    def get(self) -> Response:
        """Return the page, or raise what says why there is none."""

    def close(self) -> None:
        """Release the connection."""


class Ledger(Protocol):
    """Who is told of training runs."""

    def tell(self, reader: str, records: Iterable[Record], now: float) -> int:
        """Take records of a reader; raise `ValueError` for one that makes no sense."""

    def refuse(self, reader: str, reason: str, number: int = 1) -> None:
        """Count records that could not be kept."""


class TrainingPageSource:
    """Reads one job's page. A run that no label names is called `run`, or like the source."""

    def __init__(
        self, name: str, fetch: Fetch, ledger: Ledger, clock: Clock, *, run: str | None = None
    ) -> None:
        self.name = f"training_page:{name}"
        self.group = c.TRAINING
        self._fetch = fetch
        self._ledger = ledger
        self._clock = clock
        self._reader = Reader(WANTED, Limits(max_series=10_000))
        self._page = TrainingPage(run or name)

    def read(self) -> list[Fault | Drop]:
        """Fetch the page once and tell what is new on it.

        Raises what the fetcher raises; `SourceError` (unavailable) if there is no number of a run
        on the page; `Malformed` if it is none.
        """
        response = self._fetch.get()
        page = self._reader.read(response.body)
        if not page.values:
            raise SourceError(
                "unavailable", "up, but no metrics of a training run (docs/training.md)"
            )
        now, out = self._clock.monotonic(), list[Fault | Drop]()
        for record in self._page.read(page, self._clock.time()):
            try:
                self._ledger.tell(READER, (record,), now)
            except ValueError as error:
                self._ledger.refuse(READER, "nonsense")
                out.append(Fault.of("page", Malformed(f"{record.run}: {error}")))
        if self._page.nonsense:
            self._ledger.refuse(READER, "nonsense", len(self._page.nonsense))
            out.append(Fault.of("page", Malformed("; ".join(self._page.nonsense[:3]))))
            self._page.nonsense.clear()
        if self._page.beyond:
            out.append(Drop("runs", self._page.beyond))
            self._page.beyond = 0
        out += (Drop(reason, number) for reason, number in page.dropped.items() if number)
        if page.damaged:
            out.append(
                Fault.of("page", Malformed("lines of the page make no sense or are missing"))
            )
        return out

    def close(self) -> None:
        """Close the connection."""
        self._fetch.close()
