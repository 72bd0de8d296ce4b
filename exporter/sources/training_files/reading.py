"""What all readers have in common: where reading has come to, how runs are called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from exporter.formats.tags import Stream
from exporter.samples import Fault, Malformed
from exporter.sources.training_files.found import OLD, PIECE, Budget, Found, piece
from exporter.training.records import Facts, Record

TAIL = 100
"""Steps of the past that are told when a file is met at the start; the rest is history."""

MOST_FILES = 512
"""Files of one kind in which the place is kept."""

_LONGEST_NAME = 128
_SHOWN = 3
"""Damaged records of a file that are told, the last ones."""

_MUTE = frozenset((
    "tb", "tensorboard", "tensorboard_logs", "runs", "logs", "log", "mlruns", "wandb", "output",
    "outputs", "checkpoints", "results", "metrics", "textfile",
))  # fmt: skip
_RANK = re.compile(r"rank[_-]?([0-9]{1,6})")


class Scene(NamedTuple):
    """What a round of reading is given: the root, monotonic and Unix seconds, what may be read.

    At the `first` round files hold the past; later ones are new.
    """

    root: Path
    now: float
    wall: float
    first: bool
    budget: Budget


class Nonsense(NamedTuple):
    """Something that was left out of a record, in words for the operator."""

    detail: str


News = Record | Fault | Nonsense
"""What a reader yields."""


class Reader(Protocol):
    """Reads the files of one kind in a directory."""

    name: str
    """As the ledger knows it."""

    def wants(self, found: Sequence[Found]) -> Iterable[Found]:
        """Return those files that it reads."""

    def read(self, found: Sequence[Found], scene: Scene) -> Iterator[News]:
        """Yield what is new in them, and what is wrong."""

    def plain(self) -> object:
        """Return where reading has come to, as JSON can hold it."""

    def restore(self, plain: Any) -> None:
        """Go on where a predecessor was. Raises `LookupError`, `TypeError`, `ValueError`."""


@dataclass(slots=True)
class Place:
    """Where reading of a growing file has come to.

    `identity` is that of the file; `past` is the size up to which it holds what is not to be told;
    `damage` says why nothing more can be read.
    `catching_up`: it was met at the start, and not read to its end yet.
    """

    identity: tuple[int, int]
    offset: int = 0
    past: int = 0
    damage: str = ""
    catching_up: bool = False
    broken: list[int] = field(default_factory=list)

    def is_in(self, found: Found) -> bool:
        """Tell whether a file is the one that was read, and was not cut off."""
        return found.identity == self.identity and found.size >= self.offset

    def broke(self, at: int) -> None:
        """Note a damaged record, once."""
        if at not in self.broken:
            self.broken.append(at)
            del self.broken[:-_SHOWN]

    def faults(self, found: Found, scene: Scene, what: str) -> Iterator[Fault]:
        """Yield what is wrong with the file, as long as somebody writes to it."""
        if scene.wall - found.modified > OLD:
            return
        if self.damage:
            yield fault(found.path, self.offset, f"{self.damage}: nothing is read behind it")
        for at in self.broken:
            yield fault(found.path, at, f"{what}: it was passed over")

    def plain(self) -> list[object]:
        """Return what is to be remembered."""
        return [list(self.identity), self.offset, self.past, self.damage]

    @classmethod
    def of(cls, plain: Any) -> Place:
        """Return a place that was remembered. Raises `TypeError` or `ValueError`."""
        (device, inode), offset, past, damage = plain
        return cls((int(device), int(inode)), int(offset), int(past), damage=str(damage))


class Places:
    """Where reading has come to in each file of one kind, for at most `most` of them.

    What nobody has written to for long is left aside, and takes no place; if somebody does write to
    it, only what is new is told. Where there is no place left, files that are old make room.
    """

    def __init__(self, kind: str, most: int = MOST_FILES) -> None:
        self._kind = kind
        self._most = most
        self._known: dict[str, Place] = {}
        self._aside: dict[str, int] = {}

    def keep(self, found: Iterable[Found]) -> None:
        """Forget files that are gone."""
        paths = {one.path for one in found}
        for known in (self._known, self._aside):
            for path in known.keys() - paths:
                del known[path]

    def of(self, found: Found, scene: Scene, *, past: bool = False) -> Place | Fault | None:
        """Return the place in a file, None if it is old, a fault if there is no room.

        `past` says that a file that is met at the start holds nothing to be told.
        """
        place = self._known.get(found.path)
        if place is not None and place.is_in(found):
            return place
        replaced = place is not None
        if not replaced:
            if scene.wall - found.modified > OLD:
                self._aside[found.path] = found.size
                return None
            if len(self._known) >= self._most and not self._make_room():
                return fault(found.path, None, f"more than {self._most} {self._kind}: not read")
        aside = self._aside.pop(found.path, 0)
        place = Place(found.identity, past=min(aside, found.size))
        if scene.first and not replaced:
            place.catching_up = True
            place.past = found.size if past else 0
        self._known[found.path] = place
        return place

    def _make_room(self) -> bool:
        """Leave aside the files that were found to be old."""
        old = [path for path in self._known if path in self._aside]
        for path in old:
            del self._known[path]
        return bool(old)

    def age(self, found: Iterable[Found], scene: Scene) -> None:
        """Note which of the files that have a place have become old."""
        for one in found:
            if one.path in self._known:
                if scene.wall - one.modified > OLD:
                    self._aside[one.path] = self._known[one.path].offset
                else:
                    self._aside.pop(one.path, None)

    def get(self, path: str) -> Place | None:
        """Return the place in a file, if it has one."""
        return self._known.get(path)

    def plain(self) -> dict[str, object]:
        """Return what is to be remembered."""
        return {path: place.plain() for path, place in self._known.items()}

    def restore(self, plain: Any) -> None:
        """Go on where others were. Raises `TypeError` or `ValueError`."""
        self._known = {str(path): Place.of(one) for path, one in plain.items()}


def next_piece(place: Place, found: Found, scene: Scene, most: int = PIECE) -> bytes:
    """Return what follows in a file, as far as the round's budget goes. Raises `OSError`."""
    wanted = scene.budget.take(min(most, found.size - place.offset))
    return piece(scene.root, found.path, place.offset, wanted) if wanted > 0 else b""


def fault(path: str, offset: int | None, detail: str) -> Fault:
    """Return what is wrong at a place in a file."""
    where = "" if offset is None else f" at byte {offset}"
    return Fault.of("", Malformed(f"{path or '.'}{where}: {detail}"))


class Names:
    """How runs are called: by the configuration, by the files, or else by their folder."""

    def __init__(self, root: Path, run: str | None) -> None:
        self._run = run
        parts = [part for part in root.parts if part not in ("/", "..", ".")]
        told = [part for part in parts if part.lower() not in _MUTE]
        self._root = clean((told or parts or ["run"])[-1])

    def of(self, directory: str, own: str = "") -> str:
        """Return the name of the run in a folder below the root; `own` is what its files say."""
        return self._run or clean(own) or clean(directory) or self._root


def clean(name: str) -> str:
    """Return a text as a run's name: printable, and of its end what there is room for."""
    return "".join(char for char in name if char.isprintable()).strip()[-_LONGEST_NAME:]


def rank_of(directory: str) -> tuple[str, int | None]:
    """Return a folder without its last part, and the rank, if that part names one (`rank_3`)."""
    head, _, last = directory.rpartition("/")
    match = _RANK.fullmatch(last)
    return (head, int(match[1])) if match is not None else (directory, None)


def left_out(where: str, stream: Stream) -> Iterator[Nonsense]:
    """Yield what a stream has left out, and forget it."""
    yield from (Nonsense(f"{where or '.'}: {one}") for one in stream.nonsense)
    stream.nonsense.clear()


def latest(records: Sequence[Record], most: int = TAIL) -> Iterator[Record]:
    """Yield all facts, and of the other records the last ones."""
    others = [one for one in records if not isinstance(one, Facts)]
    yield from (one for one in records if isinstance(one, Facts))
    yield from others[-most:]
