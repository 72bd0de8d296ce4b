"""What all readers have in common: where reading has come to, how runs are called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from exporter.samples import Fault, Malformed
from exporter.sources.training_files.found import PIECE, Budget, Found, piece
from exporter.training.records import Facts, Record

TAIL = 100
"""Steps of the past that are told when a file is met at the start; the rest is history."""

MOST_FILES = 512
"""Files of one kind in which the place is kept."""

_LONGEST_NAME = 128
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


class Reader(Protocol):
    """Reads the files of one kind in a directory."""

    name: str
    """As the ledger knows it."""

    def wants(self, found: Sequence[Found]) -> Iterable[Found]:
        """Return those files that it reads."""

    def read(self, found: Sequence[Found], scene: Scene) -> Iterator[Record | Fault]:
        """Yield what is new in them, and what is wrong."""

    def plain(self) -> object:
        """Return where reading has come to, as JSON can hold it."""

    def restore(self, plain: Any) -> None:
        """Go on where a predecessor was. Raises `LookupError`, `TypeError`, `ValueError`."""


@dataclass(slots=True)
class Place:
    """Where reading of a growing file has come to.

    `identity` is that of the file; `past` is the size up to which it holds what is not to be told;
    `grown` is when it last grew, in monotonic seconds; `damage` why nothing more can be read.
    `catching_up`: it was met at the start, and not read to its end yet.
    """

    identity: tuple[int, int]
    offset: int = 0
    past: int = 0
    grown: float = 0.0
    size: int = 0
    damage: str = ""
    catching_up: bool = False
    broken: list[int] = field(default_factory=list)

    def follow(self, found: Found, now: float) -> bool:
        """Note what the system says of the file; `False` if it is another one, or was cut off."""
        if found.identity != self.identity or found.size < self.offset:
            return False
        if found.size != self.size:
            self.size, self.grown = found.size, now
        return True

    def plain(self) -> list[object]:
        """Return what is to be remembered."""
        return [list(self.identity), self.offset, self.past, self.damage]

    @classmethod
    def of(cls, plain: Any) -> Place:
        """Return a place that was remembered. Raises `TypeError` or `ValueError`."""
        (device, inode), offset, past, damage = plain
        return cls((int(device), int(inode)), int(offset), int(past), damage=str(damage))


def next_piece(place: Place, found: Found, scene: Scene, most: int = PIECE) -> bytes:
    """Return what follows in a file, as far as the round's budget goes. Raises `OSError`."""
    wanted = scene.budget.take(min(most, found.size - place.offset))
    return piece(scene.root, found.path, place.offset, wanted) if wanted > 0 else b""


def fault(path: str, offset: int | None, detail: str) -> Fault:
    """Return what is wrong at a place in a file."""
    where = "" if offset is None else f" at byte {offset}"
    return Fault.of(path[-_LONGEST_NAME:], Malformed(f"{path}{where}: {detail}"))


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


def latest(records: Sequence[Record], most: int = TAIL) -> Iterator[Record]:
    """Yield all facts, and of the other records the last ones."""
    others = [one for one in records if not isinstance(one, Facts)]
    yield from (one for one in records if isinstance(one, Facts))
    yield from others[-most:]
