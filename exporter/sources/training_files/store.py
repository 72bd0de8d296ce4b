"""MLflow's file store: of each run a folder with `meta.yaml`, and a file for each metric.

The files of one run grow one after the other. So a step is told when a higher one had been seen in
the round before: by then all its metrics are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from exporter.formats import tags
from exporter.formats.mlflow import LONGEST, Meta, read_meta, read_point
from exporter.formats.tags import Sheet, Stream
from exporter.samples import Fault, Malformed
from exporter.sources.training_files.found import OLD, PIECE, Found, piece
from exporter.sources.training_files.reading import (
    MOST_FILES,
    Names,
    Place,
    Scene,
    clean,
    fault,
    latest,
    next_piece,
)
from exporter.training.records import Record

QUIET = 30.0
_LARGEST_META = 64 << 10


@dataclass(slots=True)
class _Run:
    stream: Stream
    sheet: Sheet = field(default_factory=Sheet)
    seen: int = -1
    grown: float = 0.0
    restarts: int = 0
    met: bool = False


class StoreReader:
    """Runs of MLflow below a directory."""

    name = "mlflow"

    def __init__(self, names: Names, *, quiet: float = QUIET) -> None:
        self._names = names
        self._quiet = quiet
        self._places: dict[str, Place] = {}
        self._metas: dict[str, tuple[float, Meta | Fault]] = {}
        self._runs: dict[str, _Run] = {}

    def wants(self, found: Sequence[Found]) -> Iterable[Found]:
        """Return the descriptions of runs, and their metrics that mean something here."""
        homes = {one.directory for one in found if one.name == "meta.yaml"}
        chosen = []
        for one in found:
            home, marker, key = one.path.rpartition("/metrics/") if "/metrics/" in one.path else (
                "", "", "")  # fmt: skip
            while marker and home not in homes and "/metrics/" in home:
                home, marker, more = home.rpartition("/metrics/")
                key = f"{more}/metrics/{key}"
            if (one.name == "meta.yaml" and _has_metrics(one, found)) or (
                marker and home in homes and tags.known(key)
            ):
                chosen.append(one)
        return chosen

    def read(self, found: Sequence[Found], scene: Scene) -> Iterator[Record | Fault]:
        """Yield the steps that are complete, run by run."""
        for path in self._places.keys() - {one.path for one in found}:
            del self._places[path]
        metas = {one.directory: one for one in found if one.name == "meta.yaml"}
        for home in self._runs.keys() - metas.keys():
            del self._runs[home]
        for home, described in sorted(metas.items()):
            files = [one for one in found if one.path.startswith(f"{home}/metrics/")]
            meta = self._meta(described, scene)
            if isinstance(meta, Fault):
                yield meta
            elif meta.active:
                yield from self._run(home, meta, files, scene)

    def _meta(self, found: Found, scene: Scene) -> Meta | Fault:
        known = self._metas.get(found.path)
        if known is None or known[0] != found.modified:
            try:
                text = piece(scene.root, found.path, 0, _LARGEST_META)
                meta: Meta | Fault = read_meta(text.decode("utf-8", "replace"))
            except (Malformed, OSError) as error:
                meta = Fault.of(found.path, error)
            if len(self._metas) >= MOST_FILES:
                self._metas.clear()
            known = self._metas[found.path] = found.modified, meta
        return known[1]

    def _run(
        self, home: str, meta: Meta, files: list[Found], scene: Scene
    ) -> Iterator[Record | Fault]:
        past = scene.first and all(scene.wall - one.modified > OLD for one in files)
        points: list[tuple[float, int, str, float]] = []
        for one in files:
            key = one.path[len(home) + len("/metrics/") :]
            yield from self._grow(one, key, scene, points, past=past)
        run = self._runs.get(home)
        if run is None:
            if not points:
                return
            identity = home.rpartition("/")[2]
            stream = Stream(self._names.of(home, clean(meta.name)), attempt=identity[-64:])
            run = self._runs[home] = _Run(stream, met=scene.first)
        if points:
            run.grown = scene.now
        records: list[Record] = []
        for wall, step, key, value in sorted(points):
            if not run.sheet.put(step, key, value, wall):
                records += self._told(run, None, last=True)
                run.restarts += 1
                attempt = f"{run.stream.attempt.partition('#')[0]}#{run.restarts}"
                run.stream, run.sheet = Stream(run.stream.run, attempt=attempt), Sheet()
                run.seen = -1
                run.sheet.put(step, key, value, wall)
        records += self._told(run, run.seen, last=scene.now - run.grown >= self._quiet)
        run.seen = max(run.sheet.highest, run.sheet.taken)
        yield from (fault(home, None, one) for one in run.stream.nonsense)
        run.stream.nonsense.clear()
        behind = any(p.offset < f.size for f in files if (p := self._places.get(f.path)))
        yield from latest(records) if run.met else records
        run.met &= behind or bool(points)

    def _told(self, run: _Run, below: int | None, *, last: bool) -> list[Record]:
        told = run.sheet.take(below, last=last)
        return [one for step, values, wall in told for one in run.stream.step(step, values, wall)]

    def _grow(
        self,
        found: Found,
        key: str,
        scene: Scene,
        points: list[tuple[float, int, str, float]],
        *,
        past: bool,
    ) -> Iterator[Fault]:
        """Add the values that a file has grown by; a line without end waits."""
        place = self._places.get(found.path)
        if place is None or not place.follow(found, scene.now):
            if place is None and len(self._places) >= MOST_FILES:
                yield fault(found.path, None, f"more than {MOST_FILES} metrics: not read")
                return
            place = Place(found.identity, offset=found.size if past else 0)
            place.follow(found, scene.now)
            self._places[found.path] = place
        while place.offset < found.size:
            data = next_piece(place, found, scene)
            end = data.rfind(b"\n") + 1
            if end == 0:
                if len(data) > LONGEST:
                    place.broken.append(place.offset)
                    place.offset += len(data)
                    continue
                break
            for line in data[:end].splitlines():
                try:
                    point = read_point(line)
                    points.append((point.wall, point.step, key, point.value))
                except Malformed:
                    place.broken.append(place.offset)
            place.offset += end
            if len(data) < PIECE:
                break
        for at in place.broken[-3:]:
            yield fault(found.path, at, "a line is no time, value and step: it was passed over")

    def plain(self) -> object:
        """Return where reading has come to in each file, and of each run the last step."""
        return {
            "places": {path: place.plain() for path, place in self._places.items()},
            "runs": {
                home: [one.stream.run, one.stream.plain(), one.sheet.plain(), one.restarts]
                for home, one in self._runs.items()
            },
        }

    def restore(self, plain: Any) -> None:
        """Go on where a predecessor was."""
        places = {str(path): Place.of(one) for path, one in plain["places"].items()}
        runs: dict[str, _Run] = {}
        for home, (name, told, sheet, restarts) in plain["runs"].items():
            run = runs[str(home)] = _Run(Stream(str(name)), restarts=int(restarts))
            run.stream.restore(told)
            run.sheet.restore(sheet)
        self._places, self._runs = places, runs


def _has_metrics(meta: Found, found: Sequence[Found]) -> bool:
    """Tell whether a description is that of a run: experiments have none beside it."""
    return any(one.path.startswith(f"{meta.directory}/metrics/") for one in found)
