"""W&B's offline files: one for each run, `run-ID.wandb`, with its history row by row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from exporter.formats import tags
from exporter.formats.tags import Stream
from exporter.formats.wandb import (
    BLOCK,
    HEADER,
    Told,
    expect_header,
    read_record,
    read_records,
)
from exporter.samples import Fault, Malformed
from exporter.sources.training_files.found import OLD, Found, piece
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
from exporter.training.records import Moment, Record

_PIECE = 128 * BLOCK
_MOST_STEP = 1 << 53


@dataclass(slots=True)
class _File:
    place: Place
    stream: Stream | None = None
    restarts: int = 0


class OfflineReader:
    """Offline files of W&B below a directory."""

    name = "wandb"

    def __init__(self, names: Names) -> None:
        self._names = names
        self._files: dict[str, _File] = {}

    def wants(self, found: Sequence[Found]) -> Iterable[Found]:
        """Return offline files."""
        return [one for one in found if one.name.endswith(".wandb")]

    def read(self, found: Sequence[Found], scene: Scene) -> Iterator[Record | Fault]:
        """Yield the rows that are new in each file."""
        for path in self._files.keys() - {one.path for one in found}:
            del self._files[path]
        for one in found:
            file = self._files.get(one.path)
            if file is None or not file.place.follow(one, scene.now):
                if file is None and len(self._files) >= MOST_FILES:
                    yield fault(one.path, None, f"more than {MOST_FILES} files: not read")
                    continue
                past = scene.first and scene.wall - one.modified > OLD
                place = Place(one.identity, past=one.size if past else 0, catching_up=scene.first)
                place.follow(one, scene.now)
                file = self._files[one.path] = _File(place)
            yield from self._grow(one, file, scene)

    def _grow(self, found: Found, file: _File, scene: Scene) -> Iterator[Record | Fault]:
        place = file.place
        records: list[Record] = []
        try:
            if place.offset < HEADER <= found.size and not place.damage:
                expect_header(piece(scene.root, found.path, 0, HEADER))
                place.offset = HEADER
        except Malformed as error:
            place.damage = str(error)
        while HEADER <= place.offset < found.size > place.past and not place.damage:
            data = next_piece(place, found, scene, _PIECE)
            read = read_records(data, place.offset)
            place.broken += (at for at in read.broken if at not in place.broken)
            for one in read.data:
                try:
                    told = read_record(one)
                except Malformed:
                    place.broken.append(place.offset)
                    continue
                if told is not None:
                    records += self._told(found, file, told)
            if read.at == place.offset:
                break
            place.offset = read.at
        if place.damage:
            yield fault(found.path, 0, place.damage)
        for at in place.broken[-3:]:
            yield fault(found.path, at, "a record is damaged: it was passed over")
        if file.stream is not None:
            yield from (fault(found.path, None, one) for one in file.stream.nonsense)
            file.stream.nonsense.clear()
        if place.past:  # what was written before the start is history but for its last steps
            place.past, records = 0, list(latest(records))
        yield from latest(records) if place.catching_up else records
        place.catching_up &= place.offset < found.size

    def _told(self, found: Found, file: _File, told: Told) -> Iterator[Record]:
        """Yield what one record tells."""
        if told.run or file.stream is None:
            name = self._names.of(found.directory, clean(told.run))
            if file.stream is None or file.stream.run != name:
                file.stream = Stream(name, attempt=found.name[-64:])
            facts = {k: v for k, v in told.config.items() if tags.fact(k)}
            yield from file.stream.facts(facts)
        stream = file.stream
        if told.exit_code:
            yield Moment(
                run=stream.run, kind="failed", attempt=stream.attempt, step=stream.last,
                detail=f"exit code {told.exit_code}",
            )  # fmt: skip
        step = told.step
        if step is None or not 0 <= step <= _MOST_STEP or not any(map(tags.known, told.values)):
            return
        if stream.last is not None and step <= stream.last:
            if step == stream.last:
                return
            file.restarts += 1
            attempt = f"{stream.attempt.partition('#')[0]}#{file.restarts}"
            stream = file.stream = Stream(stream.run, attempt=attempt)
        yield from stream.step(step, told.values, told.wall)

    def plain(self) -> object:
        """Return where reading has come to in each file, and the last step."""
        return {
            path: [
                one.place.plain(), one.restarts,
                None if one.stream is None else [one.stream.run, one.stream.plain()],
            ]
            for path, one in self._files.items()
        }  # fmt: skip

    def restore(self, plain: Any) -> None:
        """Go on where a predecessor was."""
        files: dict[str, _File] = {}
        for path, (place, restarts, told) in plain.items():
            file = files[str(path)] = _File(Place.of(place), restarts=int(restarts))
            if told is not None:
                file.stream = Stream(str(told[0]))
                file.stream.restore(told[1])
        self._files = files
