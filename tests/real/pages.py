"""The daemon's page, watched while it runs: one for each reading and each round of deriving.

A round may see the reading that the page shows, or, if that came later, the one before. Not all is
worked out in every round. What was, and between which readings, tells by `llm_window_seconds`, the
time between a window's first and last reading: no two are equally far apart to the microsecond.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

from prometheus_client.parser import text_string_to_metric_families

from tests.real.priority import hurry_thread
from tests.real.truth import Cut
from tests.test_daemon import Daemon

PATH = "/metrics?collect[]=serving&collect[]=sla&collect[]=exporter"
Labels = dict[str, str]


class Page:
    """One page of the daemon. `at` is when it was fetched, in Unix seconds.

    `renewed`: the windows and the objectives that the last round before it worked out.
    """

    def __init__(self, at: float, body: str, server: str, renewed: Iterable[str] = ()) -> None:
        self.at = at
        self.body = body
        self.server = server
        self.renewed = frozenset(renewed)

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
        name = re.escape(f'llm_scrape_duration_seconds{{server="{self.server}"}}')
        took = re.search(rf"^{name} (\S+)$", self.body, re.MULTILINE)
        return None if took is None else Cut(self.read, self.read + float(took[1]))

    @cached_property
    def read(self) -> float:
        """When the last reading that succeeded began, though the server may be gone since."""
        source = f"inference:{self.server}"
        return _of_source(self.body, "last_success_timestamp_seconds", source) or 0.0

    @cached_property
    def published(self) -> float:
        """When the reading that the page shows was there for others to see."""
        source = f"inference:{self.server}"
        return self.read + (_of_source(self.body, "read_duration_seconds", source) or 0.0)

    @cached_property
    def derived(self) -> float:
        """When the round of deriving began that the page shows."""
        return _of_source(self.body, "last_success_timestamp_seconds", "derive:serving") or 0.0

    @cached_property
    def rounds(self) -> float:
        """How many rounds of deriving there have been."""
        return _of_source(self.body, "reads_total", "derive:serving") or 0.0


def _of_source(body: str, what: str, source: str) -> float | None:
    name = re.escape(f'flopwatch_source_{what}{{source="{source}"}}')
    found = re.search(rf"^{name} (\S+)$", body, re.MULTILINE)
    return float(found[1]) if found else None


_LENGTHS = re.compile(
    r'^llm_window_seconds\{[^}]*window="(\w+)"\} (\S+)$'
    r'|^sla_window_filled_ratio\{[^}]*objective="(\w+)"[^}]*sla="(\w+)"[^}]*window="1h"\} (\S+)$',
    re.MULTILINE,
)


def lengths(body: str) -> dict[str, str]:
    """Return how long each window is, and the hour of each objective (as `sla/objective`)."""
    return {
        window or f"{sla}/{objective}": seconds or ratio
        for window, seconds, objective, sla, ratio in _LENGTHS.findall(body)
    }


class Watch:
    """Fetches a daemon's page several times a second and keeps those that tell anything new."""

    def __init__(self, daemon: Daemon, server: str) -> None:
        self.pages: list[Page] = []
        self.reads: set[float] = set()
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
        hurry_thread(threading.get_native_id(), "watches")
        former = Page(0.0, "", self._server)
        while not self._ended.wait(0.2):
            try:
                status, body = self._daemon.get(PATH)
            except OSError:
                self.misses += 1
                continue
            page = Page(time.time(), body, self._server)
            if status != 200 or not page.read:
                continue
            self.reads.add(page.read)
            if page.cut is None or (page.cut, page.derived) == (former.cut, former.derived):
                continue
            if page.rounds == former.rounds + 1:
                have, had = lengths(body), lengths(former.body)
                page.renewed = frozenset(key for key in have if have[key] != had.get(key))
            self.pages.append(page)
            former = page


class Window(NamedTuple):
    """A window that was just worked out: its name, first and last reading, and the page."""

    name: str
    first: Cut
    last: Cut
    page: Page


_CLOSE = 0.002, 0.05
"""Seconds before and after the start of a round: a reading that came then it saw, or did not."""

_EXACT, _WORSE = 0.002, 5
"""Seconds by which a window's length may be off, and how much worse any other end must fit."""


def windows(pages: Sequence[Page]) -> Iterator[Window]:
    """Yield all windows that were worked out for these pages and began with a reading of them."""
    for at, page in enumerate(pages):
        ends = list(_ends(pages, at))
        for have, seconds in page.all("llm_window_seconds", server=page.server):
            if have["window"] not in page.renewed:
                continue
            fits = sorted((_fit(pages[: at + 1], end, seconds) for end in ends), key=_error)
            if fits and fits[0].error < _EXACT:
                best = fits[0]
                if len(fits) == 1 or fits[1].error > _WORSE * best.error:
                    yield Window(have["window"], best.first, best.last, page)


class _Fit(NamedTuple):
    """A guess of a window's first and last reading, and by how many seconds it is off."""

    first: Cut
    last: Cut
    error: float


def _error(fit: _Fit) -> float:
    return fit.error


def _fit(pages: Sequence[Page], end: Page, seconds: float) -> _Fit:
    def error(page: Page) -> float:
        return abs(end.published - page.published - seconds)

    first = min((page for page in pages if page.cut is not None), key=error)
    assert first.cut is not None and end.cut is not None
    return _Fit(first.cut, end.cut, error(first))


def _ends(pages: Sequence[Page], at: int) -> Iterator[Page]:
    """Yield the pages whose reading the round of a page may have seen last."""
    derived = pages[at].derived
    former: Cut | None = None
    for one in reversed(pages[max(0, at - 10) : at + 1]):
        if one.cut is None or one.cut == former or one.published > derived + _CLOSE[1]:
            continue
        former = one.cut
        yield one
        if one.published < derived - _CLOSE[0]:
            return


def save(pages: list[Page], path: Path) -> None:
    with gzip.open(path, "wt") as file:
        for page in pages:
            file.write(json.dumps([page.at, page.body, page.server, sorted(page.renewed)]) + "\n")


def restore(path: Path) -> list[Page]:
    with gzip.open(path, "rt") as file:
        return [Page(*told) for told in map(json.loads, file)]
