"""Pages of ours that were saved, or that a daemon gives now.

A file holds one page or several, one after the other, as `flopwatch capture` or repeated
`curl ... >> FILE` write them: where a family is announced again, another page begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from exporter.clock import Clock
from exporter.config import ConfigError, page_url
from exporter.fetch import HttpFetcher
from exporter.formats.exposition import Limits, Reader
from exporter.samples import Malformed, SourceError

LARGEST = 256 << 20
"""Bytes of a file that are read at most."""

PATIENCE = 10.0
"""Seconds that a daemon may take to give its page."""

_LIMITS = Limits(max_series=1_000_000)


class Series(NamedTuple):
    """One line of a page."""

    labels: Mapping[str, str]
    value: float


class Page:
    """What a page of ours says, by the name of the family (`_bucket`, `_sum`, `_count` too).

    With `finite`, what is no finite number is left out.
    Whoever reads page after page of one daemon lends the `reader` of the last one.
    """

    def __init__(
        self, body: bytes, name: str, reader: Reader | None = None, *, finite: bool = False
    ) -> None:
        self.name = name
        try:
            page = (reader or Reader(limits=_LIMITS)).read(body)
        except Malformed as error:
            raise ConfigError(f"{name}: not a metrics page: {error}") from None
        self._series: dict[str, list[Series]] = {}
        for one, value in zip(page.shape.series, page.values, strict=True):
            if not finite or math.isfinite(value):
                self._series.setdefault(one.name, []).append(Series(dict(one.labels), value))

    def all(self, name: str, **labels: str) -> list[Series]:
        """Return the series of a name whose labels have such values."""
        return [
            one
            for one in self._series.get(name, ())
            if all(one.labels.get(label) == value for label, value in labels.items())
        ]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of the first such series; None if there is none."""
        return next((one.value for one in self.all(name, **labels)), None)

    def values_of(self, name: str, label: str) -> list[str]:
        """Return the different values of a label of a family, in the page's order."""
        return list(dict.fromkeys(one.labels.get(label, "") for one in self.all(name)))


def read_file(path: Path) -> list[Page]:
    """Return the pages of a file, at least one. Raises `ConfigError`."""
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if len(text) > LARGEST:
        raise ConfigError(f"{path}: larger than {LARGEST >> 20} MiB")
    bodies = list(_split(text))
    pages = [Page(body, f"{path}" + (f" (page {n})" if len(bodies) > 1 else ""))
             for n, body in enumerate(bodies, 1)]  # fmt: skip
    if not pages:
        raise ConfigError(f"{path}: holds no metrics page")
    return pages


def _split(text: bytes) -> Iterator[bytes]:
    """Yield one page after the other."""
    lines: list[bytes] = []
    seen: set[bytes] = set()
    for line in text.splitlines(keepends=True):
        if line.startswith(b"# HELP "):
            family = line.split(b" ", 3)[2]
            if family in seen:
                yield b"".join(lines)
                lines, seen = [], set()
            seen.add(family)
        lines.append(line)
    if any(line.strip() for line in lines):
        yield b"".join(lines)


class Daemon:
    """A daemon whose page is asked for. Raises `ConfigError` for an address that is none."""

    def __init__(self, url: str, clock: Clock) -> None:
        self._url = url
        try:
            self._fetcher = HttpFetcher(page_url(url), timeout=PATIENCE, clock=clock)
        except ValueError as error:
            raise ConfigError(f"--url: {url}: {error}") from None

    def body(self) -> bytes:
        """Return its page. Raises `ConfigError` if it gives none."""
        try:
            return self._fetcher.get().body
        except (SourceError, Malformed, OSError) as error:
            raise ConfigError(str(error)) from None

    def page(self) -> Page:
        """Return what its page says. Raises `ConfigError`."""
        return Page(self.body(), self._url)
