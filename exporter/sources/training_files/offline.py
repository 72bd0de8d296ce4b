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
from exporter.sources.training_files.found import Found, piece
from exporter.sources.training_files.reading import (
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

_PIECE = 128 * BLOCK
_MOST_STEP = 1 << 53


@dataclass(slots=True)
class _File:
    stream: Stream | None = None
    restarts: int = 0


class OfflineReader:
    """Offline files of W&B below a directory."""

    name = "wandb"

    def __init__(self, names: Names) -> None:
        self._names = names
        self._places = Places("files of W&B")
        self._files: dict[str, _File] = {}

    def wants(self, found: Sequence[Found]) -> Iterable[Found]:
        """Return offline files."""
        return [one for one in found if one.name.endswith(".wandb")]

    def read(self, found: Sequence[Found], scene: Scene) -> Iterator[News]:
        """Yield the rows that are new in each file."""
        self._places.keep(found)
        self._places.age(found, scene)
        for one in found:
            place = self._places.of(one, scene)
            if isinstance(place, Fault):
                yield place
            elif place is not None:
                file = self._files.setdefault(one.path, _File())
                if place.offset == 0:
                    file.stream = None  # another file of that name
                yield from self._grow(one, place, file, scene)
        for path in [path for path in self._files if self._places.get(path) is None]:
            del self._files[path]

    def _grow(self, found: Found, place: Place, file: _File, scene: Scene) -> Iterator[News]:
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
            for at in read.broken:
                place.broke(at)
            for one in read.data:
                try:
                    told = read_record(one)
                except Malformed:
                    place.broke(place.offset)
                    continue
                if told is not None:
                    records += self._told(found, file, told)
            if read.at == place.offset:
                break
            place.offset = read.at
        yield from place.faults(found, scene, "a record is damaged")
        if file.stream is not None:
            yield from left_out(found.path, file.stream)
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
        if told.exit_code is not None:
            yield Moment(
                run=stream.run, kind="failed" if told.exit_code else "ended",
                attempt=stream.attempt, step=stream.last, detail=f"exit code {told.exit_code}",
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
        files = {
            path: [
                one.restarts, None if one.stream is None else [one.stream.run, one.stream.plain()],
            ]
            for path, one in self._files.items()
        }  # fmt: skip
        return {"places": self._places.plain(), "files": files}

    def restore(self, plain: Any) -> None:
        """Go on where a predecessor was."""
        files: dict[str, _File] = {}
        for path, (restarts, told) in plain["files"].items():
            file = files[str(path)] = _File(restarts=int(restarts))
            if told is not None:
                file.stream = Stream(str(told[0]))
                file.stream.restore(told[1])
        self._places.restore(plain["places"])
        self._files = files
