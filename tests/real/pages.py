"""The daemon's page, watched while it runs: one for each reading of a server, with what it says.

A page is *settled* when the derivation has seen the reading that the page shows: then a window that
ends now ends with that reading. Which reading it began with follows from `llm_window_seconds`.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

from prometheus_client.parser import text_string_to_metric_families

from tests.real.truth import Cut
from tests.test_daemon import Daemon

PATH = "/metrics?collect[]=serving&collect[]=sla&collect[]=exporter"
Labels = dict[str, str]


class Page:
    """One page of the daemon. `at` is when it was fetched, in Unix seconds."""

    def __init__(self, at: float, body: str, server: str) -> None:
        self.at = at
        self.body = body
        self.server = server

    @cached_property
    def series(self) -> dict[str, list[tuple[Labels, float]]]:
        """All values by name of the sample."""
        found: dict[str, list[tuple[Labels, float]]] = {}
        for family in text_string_to_metric_families(self.body):
            for sample in family.samples:
                found.setdefault(sample.name, []).append((sample.labels, sample.value))
        return found

    def all(self, name: str, **labels: str) -> Iterator[tuple[Labels, float]]:
        """Yield the values of a family that has these labels."""
        for have, value in self.series.get(name, ()):
            if all(have.get(label) == wanted for label, wanted in labels.items()):
                yield have, value

    def value(self, name: str, **labels: str) -> float | None:
        """Return the one value of a family with these labels; None if it is not there."""
        found = [value for _, value in self.all(name, **labels)]
        assert len(found) <= 1, f"{name} {labels}: {len(found)} series"
        return found[0] if found else None

    def total(self, name: str, **labels: str) -> float:
        """Return the sum over all values of a counter; nothing is 0."""
        return sum(value for _, value in self.all(name, server=self.server, **labels))

    def buckets(self, signal: str) -> dict[float, float]:
        """Return the cumulative counts of a signal since the server's start."""
        name = f"llm_{signal}_seconds_bucket"
        return {
            float(have["le"].replace("Inf", "inf")): value
            for have, value in self.all(name, server=self.server)
        }

    @cached_property
    def cut(self) -> Cut | None:
        """When the server's page was read; None while it cannot be."""
        began = _success(self.body, f"inference:{self.server}")
        took = self.value("llm_scrape_duration_seconds", server=self.server)
        return None if began is None or took is None else Cut(began, began + took)


def _success(body: str, source: str) -> float | None:
    name = re.escape(f'flopwatch_source_last_success_timestamp_seconds{{source="{source}"}}')
    found = re.search(rf"^{name} (\S+)$", body, re.MULTILINE)
    return float(found[1]) if found else None


def settled(body: str, server: str) -> tuple[float, float] | None:
    """Return which reading a page shows, and which round of deriving, if that has seen it."""
    read = _success(body, f"inference:{server}")
    derived = _success(body, "derive:serving")
    if read is None or derived is None:
        return None
    name = re.escape(f'flopwatch_source_read_duration_seconds{{source="inference:{server}"}}')
    took = re.search(rf"^{name} (\S+)$", body, re.MULTILINE)
    return (read, derived) if took and derived > read + float(took[1]) + 0.001 else None


class Watch:
    """Fetches a daemon's page several times a second and keeps one for each reading."""

    def __init__(self, daemon: Daemon, server: str) -> None:
        self.pages: list[Page] = []
        self.misses = 0
        self._daemon = daemon
        self._server = server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def wait_for(self, wanted: Callable[[Page], bool], seconds: float) -> None:
        """Wait for a page that is as wanted; fail after so many seconds."""
        until = time.monotonic() + seconds
        while not (self.pages and wanted(self.pages[-1])):
            assert time.monotonic() < until, "no such page came"
            time.sleep(0.1)

    def _run(self) -> None:
        last = None
        while not self._ended.wait(0.2):
            try:
                status, body = self._daemon.get(PATH)
            except OSError:
                self.misses += 1
                continue
            reading = settled(body, self._server)
            if status == 200 and reading is not None and reading[0] != last:
                last = reading[0]
                self.pages.append(Page(time.time(), body, self._server))


class Window(NamedTuple):
    """A published window: its name, and the pages of its first and last reading."""

    name: str
    first: Page
    last: Page


def windows(pages: list[Page]) -> Iterator[Window]:
    """Yield all windows that these pages publish, and whose first reading is among the pages."""
    cuts = [(page.cut, page) for page in pages]
    for last in pages:
        if last.cut is None:
            continue
        for have, seconds in last.all("llm_window_seconds", server=last.server):
            began = last.cut.latest - seconds
            first = min(
                (page for cut, page in cuts if cut is not None),
                key=lambda page: abs(page.cut.latest - began) if page.cut else 0.0,
            )
            assert first.cut is not None
            if abs(first.cut.latest - began) < 0.4:
                yield Window(have["window"], first, last)


def save(pages: list[Page], path: Path) -> None:
    with gzip.open(path, "wt") as file:
        for page in pages:
            file.write(json.dumps([page.at, page.server, page.body]) + "\n")


def restore(path: Path) -> list[Page]:
    with gzip.open(path, "rt") as file:
        return [Page(at, body, server) for at, server, body in map(json.loads, file)]
