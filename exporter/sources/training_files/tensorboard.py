"""TensorBoard event files, of which each folder holds those of one run.

One process may write several files, and tables of hyper-parameters into folders below: these are
no runs of their own. A process that comes later is another attempt. Where two write at once, the
one that was first is read, and the other told as a fault: the losses of two ranks in one series are
neither's. A folder `rank_3` belongs to the run above it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from exporter.formats import tags
from exporter.formats.tags import Sheet, Stream
from exporter.formats.tfevents import Event, Writer, read_event, read_frames, writer_of
from exporter.samples import Fault, Malformed
from exporter.sources.training_files.found import PIECE, Found
from exporter.sources.training_files.reading import (
    MOST_FILES,
    Names,
    News,
    Place,
    Places,
    Scene,
    fault,
    latest,
    left_out,
    next_piece,
    rank_of,
)
from exporter.training.records import Record

QUIET = 30.0
"""Seconds without growth after which the last step of a file is taken for complete."""

_TAIL = 1 << 20
"""Bytes at the end of a file that are looked at where it was there before us."""

_MOST_STEP = 1 << 53


@dataclass(slots=True)
class _Process:
    """What one process has written into one folder."""

    writer: Writer
    stream: Stream
    sheet: Sheet = field(default_factory=Sheet)
    restarts: int = 0
    wall: float = 0.0


class TensorBoardReader:
    """Event files below a directory."""

    name = "tensorboard"

    def __init__(self, names: Names, *, quiet: float = QUIET) -> None:
        self._names = names
        self._quiet = quiet
        self._places = Places("event files")
        self._tables: set[str] = set()
        self._processes: dict[tuple[str, str], _Process] = {}
        self._owners: dict[str, str] = {}

    def wants(self, found: Sequence[Found]) -> Iterable[Found]:
        """Return event files."""
        return [one for one in found if writer_of(one.name) is not None]

    def read(self, found: Sequence[Found], scene: Scene) -> Iterator[News]:
        """Yield the steps that are complete, folder by folder."""
        self._places.keep(found)
        self._places.age(found, scene)
        writers: dict[str, set[str]] = {}
        for one in found:
            if (writer := writer_of(one.name)) is not None:
                writers.setdefault(one.directory, set()).add(writer.process)
        by_folder: dict[str, list[Found]] = {}
        for one in found:
            if not self._is_part(one, writers):
                by_folder.setdefault(one.directory, []).append(one)
        for folder, files in sorted(by_folder.items()):
            yield from self._folder(folder, files, writers, scene)
        alive = {(one.directory, _process(one)) for one in found}
        for key in self._processes.keys() - alive:
            del self._processes[key]

    def _is_part(self, one: Found, writers: dict[str, set[str]]) -> bool:
        """Tell whether a file belongs to the run of a folder above."""
        writer = writer_of(one.name)
        above = one.directory
        while above:
            above = above.rpartition("/")[0]
            if above in writers and (
                one.path in self._tables or (writer and writer.process in writers[above])
            ):
                return True
        return False

    def _folder(
        self, folder: str, found: list[Found], writers: dict[str, set[str]], scene: Scene
    ) -> Iterator[News]:
        """Yield what is new in one folder; at the first round only its newest process counts."""
        newest = max(found, key=_started)
        for process in sorted({w.process for one in found if (w := writer_of(one.name))}):
            files = [one for one in found if _process(one) == process]
            events: list[Event] = []
            behind = met = False
            for one in sorted(files, key=_started):
                past = process != _process(newest)
                yield from self._grow(one, scene, events, past=past)
                if (place := self._places.get(one.path)) is not None:
                    behind |= not place.damage and place.offset < one.size
                    met |= place.catching_up
                    place.catching_up &= place.offset < one.size
            # That a file is a table is known only now that it was read.
            if not any(self._places.get(one.path) for one in files) or any(
                self._is_part(one, writers) for one in files
            ):
                continue
            written = max(one.modified for one in files)
            quiet = not behind and scene.wall - written >= self._quiet
            records = list(self._steps(folder, process, files, events, quiet=quiet))
            yield from self._owned(folder, process, list(latest(records)) if met else records)

    def _grow(
        self, found: Found, scene: Scene, events: list[Event], *, past: bool
    ) -> Iterator[Fault]:
        """Add the events that a file has grown by; what was there before `past` is passed over."""
        place = self._places.of(found, scene, past=past)
        if not isinstance(place, Place):
            yield from [place] if place is not None else []
            return
        if place.catching_up and not place.past:
            place.past = max(0, found.size - _TAIL)
        while max(place.offset, place.past) < found.size and not place.damage:
            old = place.offset < place.past
            most = min(PIECE, place.past - place.offset) if old else PIECE
            data = next_piece(place, found, scene, most)
            frames = read_frames(data, skip=old)
            for one in frames.data:
                self._event(one, found, place, events)
            for at in frames.broken:
                place.broke(place.offset + at)
            place.damage = frames.damage
            place.offset += frames.at
            if frames.at == 0 and not frames.damage:
                if old and len(data) == most < PIECE:
                    place.past = place.offset  # it ended within a frame
                elif len(data) < frames.wanted <= found.size - place.offset and data:
                    place.offset += frames.wanted  # larger than a piece: a picture
                else:
                    break
        yield from place.faults(found, scene, "a record is damaged")

    def _event(self, data: bytes, found: Found, place: Place, events: list[Event]) -> None:
        try:
            event = read_event(data)
        except Malformed:
            place.broke(place.offset)
            return
        if "hparams" in event.plugins and len(self._tables) < MOST_FILES:
            self._tables.add(found.path)
        if not 0 <= event.step <= _MOST_STEP:
            place.broke(place.offset)
        elif event.scalars:
            events.append(event)

    def _steps(
        self, folder: str, process: str, files: list[Found], events: list[Event], *, quiet: bool
    ) -> Iterator[Record]:
        """Yield the steps that are complete, in the order of their time."""
        known = self._processes.get((folder, process))
        for event in sorted(events, key=lambda event: event.wall):
            for tag, value in event.scalars:
                if not tags.known(tag):
                    continue
                if known is None:
                    known = self._begin(folder, process, files)
                if not known.sheet.put(event.step, tag, value, event.wall):
                    yield from self._told(known, last=True)
                    known = self._again(folder, process, known)
                    known.sheet.put(event.step, tag, value, event.wall)
        if known is not None:
            yield from self._told(known, last=quiet)

    def _begin(self, folder: str, process: str, files: list[Found]) -> _Process:
        writer = min(w for one in files if (w := writer_of(one.name)) is not None)
        home, rank = rank_of(folder)
        stream = Stream(
            self._names.of(home),
            attempt=f"{writer.started}.{process}"[-64:],
            rank=rank,
            scope="run" if rank is None else "rank",
        )
        known = self._processes[folder, process] = _Process(writer, stream)
        return known

    def _again(self, folder: str, process: str, former: _Process) -> _Process:
        """Return the process as if it had begun anew: its steps went back."""
        old, number = former.stream, former.restarts + 1
        attempt = f"{old.attempt.partition('#')[0]}#{number}"
        stream = Stream(old.run, attempt=attempt, rank=old.rank, scope=old.scope)
        known = _Process(former.writer, stream, restarts=number, wall=former.wall)
        self._processes[folder, process] = known
        return known

    def _told(self, known: _Process, *, last: bool) -> Iterator[Record]:
        for step, values, wall in known.sheet.take(last=last):
            yield from known.stream.step(step, values, wall)

    def _owned(self, folder: str, process: str, records: list[Record]) -> Iterator[News]:
        """Yield records of the process that the folder belongs to; one that came later takes it."""
        known = self._processes.get((folder, process))
        if known is None or not records:
            return
        yield from left_out(folder, known.stream)
        walls = [wall for one in records if (wall := getattr(one, "wall", None)) is not None]
        owner = self._processes.get((folder, self._owners.get(folder, process)))
        if owner is not None and owner is not known:
            later = known.writer.started > owner.writer.started
            if not (later and walls and walls[0] >= owner.wall):
                yield fault(
                    folder, None,
                    f"{process} writes there besides {owner.writer.process}: it is not read",
                )  # fmt: skip
                return
        self._owners[folder] = process
        known.wall = max((known.wall, *walls))
        yield from records

    def plain(self) -> object:
        """Return where reading has come to in each file, and of each process the last step."""
        return {
            "places": self._places.plain(),
            "tables": sorted(self._tables),
            "owners": self._owners,
            "processes": [
                [
                    folder, process, list(one.writer), one.stream.run, one.stream.plain(),
                    one.restarts, one.wall, one.sheet.plain(),
                ]
                for (folder, process), one in self._processes.items()
            ],
        }  # fmt: skip

    def restore(self, plain: Any) -> None:
        """Go on where a predecessor was."""
        processes: dict[tuple[str, str], _Process] = {}
        for folder, process, writer, run, told, restarts, wall, sheet in plain["processes"]:
            _, rank = rank_of(str(folder))
            stream = Stream(str(run), rank=rank, scope="run" if rank is None else "rank")
            stream.restore(told)
            one = _Process(
                Writer(int(writer[0]), str(writer[1])), stream,
                restarts=int(restarts), wall=float(wall),
            )  # fmt: skip
            one.sheet.restore(sheet)
            processes[str(folder), str(process)] = one
        self._places.restore(plain["places"])
        self._processes = processes
        self._tables = {str(path) for path in plain["tables"]}
        self._owners = {str(folder): str(one) for folder, one in plain["owners"].items()}


def _process(found: Found) -> str:
    writer = writer_of(found.name)
    return "" if writer is None else writer.process


def _started(found: Found) -> tuple[int, str]:
    writer = writer_of(found.name)
    return (0 if writer is None else writer.started, found.name)
