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
from exporter.sources.training_files.found import PIECE, Found, piece
from exporter.sources.training_files.reading import (
    MOST_FILES,
    Names,
    News,
    Place,
    Places,
    Scene,
    clean,
    latest,
    left_out,
    next_piece,
)
from exporter.training.records import Moment, Record

QUIET = 30.0
_AT_ONCE = 60.0
"""Seconds within which two runs of one name have grown that are not one after the other."""

_LARGEST_META = 64 << 10
_TAIL = 1 << 16
"""Bytes at the end of a file that are looked at where it was there before us."""


@dataclass(slots=True)
class _Run:
    stream: Stream
    sheet: Sheet = field(default_factory=Sheet)
    seen: int = -1
    grown: float = 0.0
    restarts: int = 0
    met: bool = False
    began: bool = False
    end: str = ""


class StoreReader:
    """Runs of MLflow below a directory."""

    name = "mlflow"

    def __init__(self, names: Names, *, quiet: float = QUIET) -> None:
        self._names = names
        self._quiet = quiet
        self._places = Places("metrics")
        self._metas: dict[str, tuple[float, Meta | Fault]] = {}
        self._runs: dict[str, _Run] = {}

    def wants(self, found: Sequence[Found]) -> Iterable[Found]:
        """Return the descriptions of runs, and their metrics that mean something here."""
        described = {one.directory for one in found if one.name == "meta.yaml"}
        metrics = [one for one in found if (home := home_of(one.path)) and home in described]
        homes = {home_of(one.path) for one in metrics}
        yield from (one for one in found if one.name == "meta.yaml" and one.directory in homes)
        for one in metrics:
            if tags.known(key_of(one.path)):
                yield one

    def read(self, found: Sequence[Found], scene: Scene) -> Iterator[News]:
        """Yield the steps that are complete, run by run."""
        self._places.keep(found)
        self._places.age(found, scene)
        metas = {one.directory: one for one in found if one.name == "meta.yaml"}
        for home in self._runs.keys() - metas.keys():
            del self._runs[home]
        files: dict[str, list[Found]] = {}
        for one in found:
            files.setdefault(home_of(one.path), []).append(one)
        for home, described in sorted(metas.items()):
            meta = self._meta(described, scene)
            if isinstance(meta, Fault):
                yield meta
            elif meta.active:
                yield from self._run(home, meta, files.get(home, []), scene)

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

    def _run(self, home: str, meta: Meta, files: list[Found], scene: Scene) -> Iterator[News]:
        points: list[tuple[float, int, str, float]] = []
        for one in files:
            yield from self._grow(one, key_of(one.path), scene, points)
        run = self._runs.get(home)
        if run is None:
            if not points:
                return
            identity = home.rpartition("/")[2]
            name = self._names.of(home, clean(meta.name))
            if any(
                one.stream.run == name and scene.now - one.grown < _AT_ONCE
                for one in self._runs.values()
            ):
                name = clean(f"{name} {identity[:8]}")
            stream = Stream(name, attempt=identity[-64:])
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
        written = max((one.modified for one in files), default=0.0)
        behind = any(p.offset < f.size for f in files if (p := self._places.get(f.path)))
        if not behind:  # else one metric may be further than another
            records += self._told(run, run.seen, last=scene.wall - written >= self._quiet)
        run.seen = max(run.sheet.highest, run.sheet.taken)
        yield from left_out(home, run.stream)
        yield from latest(records) if run.met else records
        run.met &= behind or bool(points)
        yield from self._life(run, meta)

    def _life(self, run: _Run, meta: Meta) -> Iterator[Moment]:
        """Yield when the run began and ended, each once."""
        name, attempt = run.stream.run, run.stream.attempt
        if meta.started is not None and not run.began:
            run.began = True
            yield Moment(run=name, kind="started", wall=meta.started, attempt=attempt)
        if meta.end and run.end != meta.end:
            run.end = meta.end
            yield Moment(run=name, kind=meta.end, wall=meta.ended, attempt=attempt)

    def _told(self, run: _Run, below: int | None, *, last: bool) -> list[Record]:
        told = run.sheet.take(below, last=last)
        return [one for step, values, wall in told for one in run.stream.step(step, values, wall)]

    def _grow(
        self, found: Found, key: str, scene: Scene, points: list[tuple[float, int, str, float]]
    ) -> Iterator[Fault]:
        """Add the values that a file has grown by; a line without end waits."""
        place = self._places.of(found, scene)
        if not isinstance(place, Place):
            yield from [place] if place is not None else []
            return
        if place.offset == 0:
            history = max(0, found.size - _TAIL) if place.catching_up else place.past
            self._begin(place, found, history, scene)
        while place.offset < found.size:
            data = next_piece(place, found, scene)
            end = data.rfind(b"\n") + 1
            if end == 0:
                if len(data) > LONGEST:
                    place.broke(place.offset)
                    place.offset += len(data)
                    continue
                break
            for line in data[:end].splitlines():
                try:
                    point = read_point(line)
                    points.append((point.wall, point.step, key, point.value))
                except Malformed:
                    place.broke(place.offset)
            place.offset += end
            if len(data) < PIECE:
                break
        yield from place.faults(found, scene, "a line is no time, value and step")

    def _begin(self, place: Place, found: Found, history: int, scene: Scene) -> None:
        """Begin behind what is history, with a whole line."""
        if history > 0:
            before = piece(scene.root, found.path, history - 1, LONGEST)
            place.offset = history - 1 + max(1, before.find(b"\n") + 1)

    def plain(self) -> object:
        """Return where reading has come to in each file, and of each run the last step."""
        return {
            "places": self._places.plain(),
            "runs": {
                home: [
                    one.stream.run, one.stream.plain(), one.sheet.plain(), one.restarts, one.end,
                ]
                for home, one in self._runs.items()
            },
        }  # fmt: skip

    def restore(self, plain: Any) -> None:
        """Go on where a predecessor was."""
        runs: dict[str, _Run] = {}
        for home, (name, told, sheet, restarts, end) in plain["runs"].items():
            run = runs[str(home)] = _Run(Stream(str(name)), restarts=int(restarts), began=True)
            run.end = str(end)
            run.stream.restore(told)
            run.sheet.restore(sheet)
        self._places.restore(plain["places"])
        self._runs = runs


def home_of(path: str) -> str:
    """Return the folder of the run that a metric's file belongs to, "" if it is no such file."""
    return path.partition("/metrics/")[0] if "/metrics/" in path else ""


def key_of(path: str) -> str:
    """Return the name of the metric that a file holds."""
    return path.partition("/metrics/")[2]
