"""Metrics that a job drops: files `*.prom` in the text format, replaced as a whole by renaming.

A file that nobody has written for a while is stale: what it says is no longer so, and that is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from exporter.formats.exposition import Limits, Reader
from exporter.formats.trainpage import WANTED, TrainingPage
from exporter.samples import Fault, Malformed
from exporter.sources.training_files.found import OLD, Found, piece
from exporter.sources.training_files.reading import (
    MOST_FILES,
    Names,
    News,
    Nonsense,
    Scene,
    clean,
    fault,
)

LARGEST = 4 << 20
"""Bytes of a file, at most."""

STALE = 300.0
"""Seconds after which a file says nothing of the present."""


class DroppedReader:
    """Files of metrics below a directory."""

    name = "textfile"

    def __init__(self, names: Names, *, stale: float = STALE) -> None:
        self._names = names
        self._stale = stale
        self._pages: dict[str, tuple[Reader, TrainingPage]] = {}
        self._seen: dict[str, tuple[tuple[int, int], int, float]] = {}
        self._faults: dict[str, list[Fault]] = {}

    def wants(self, found: Sequence[Found]) -> Iterable[Found]:
        """Return files of metrics."""
        return [one for one in found if one.name.endswith(".prom")]

    def read(self, found: Sequence[Found], scene: Scene) -> Iterator[News]:
        """Yield the steps that are new in files that have changed."""
        for path in self._pages.keys() - {one.path for one in found}:
            del self._pages[path]
            self._seen.pop(path, None)
            self._faults.pop(path, None)
        for one in found:
            age = scene.wall - one.modified
            if age > self._stale:
                if age <= OLD and one.path in self._pages:
                    yield fault(one.path, None, f"not written for {age:.0f} s: stale")
                continue
            if one.path not in self._pages and len(self._pages) >= MOST_FILES:
                yield fault(one.path, None, f"more than {MOST_FILES} files: not read")
                continue
            state = one.identity, one.size, one.modified
            if self._seen.get(one.path) != state and not scene.budget.over():
                self._seen[one.path] = state
                yield from self._page(one, scene)
            yield from self._faults.get(one.path, ())

    def _page(self, found: Found, scene: Scene) -> Iterator[News]:
        reader, page = self._pages.setdefault(
            found.path,
            (
                Reader(WANTED, Limits(max_series=10_000)),
                TrainingPage(self._names.of("", clean(found.name.removesuffix(".prom")))),
            ),
        )
        faults = self._faults[found.path] = []
        try:
            if found.size > LARGEST:
                raise Malformed(f"larger than {LARGEST} bytes")  # noqa: TRY301 - as a page's own
            read = reader.read(piece(scene.root, found.path, 0, LARGEST))
        except (Malformed, OSError) as error:
            faults.append(Fault.of(found.path, Malformed(f"{found.path}: {error}")))
            return
        if read.damaged:
            lost = ", ".join(f"{number} {reason}" for reason, number in read.dropped.items())
            detail = "it ends within a line" if read.partial else f"lines that were dropped: {lost}"
            faults.append(fault(found.path, None, detail))
        yield from page.read(read, found.modified)
        yield from (Nonsense(f"{found.path}: {one}") for one in page.nonsense)
        page.nonsense.clear()

    def plain(self) -> object:
        """Return nothing: the files say how things stand."""
        return None

    def restore(self, plain: Any) -> None:
        """Begin with what the files say."""
