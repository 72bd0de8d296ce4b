"""What sources are given beside their settings, and what a plan is."""

from __future__ import annotations

import functools
import threading
import uuid
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporter import catalogue as c
from exporter.attribution.pods import PodBoard
from exporter.board import Board
from exporter.clock import Clock
from exporter.config import (
    Settings,
)
from exporter.discovery import (
    Register,
)
from exporter.engines import Engine, load_engines
from exporter.history import History
from exporter.notices import NoticeBoard
from exporter.reference.xids import load as load_xids
from exporter.runner import Schedule
from exporter.samples import Source
from exporter.sinks.statefile import this_boot
from exporter.status.conditions import Watch
from exporter.training import TrainingLedger
from exporter.training.reception import Reception
from exporter.xids import XidLedger

AFTER_READING = 0.05
"""How long after the others' beat a derivation has its own, in seconds."""

STATE_DEADLINE = 5.0
"""How long reading and writing the state file should take at most, in seconds."""


class Roster:
    """Index and UUID of each GPU by its PCI address; what has been seen once is remembered.

    The kernel log speaks of GPUs by address, and mostly of those that no longer answer.
    """

    def __init__(self, board: Board, clock: Clock) -> None:
        self._board = board
        self._clock = clock
        self._seen: dict[str, tuple[str, str]] = {}

    def __call__(self) -> Mapping[str, tuple[str, str]]:
        """Return all that have been seen."""
        at = c.GPU_INFO.labels.index("pci_bus_id")
        for sample in self._board.view(self._clock.monotonic()).samples(c.GPU_INFO):
            gpu, uuid = sample.labels[:2]
            if sample.labels[at]:
                self._seen[sample.labels[at]] = (gpu, uuid)
        return self._seen


class Mappings:
    """The mappings of engines; read again only where a file of them has changed.

    Reading them costs a tenth of a second, and servers come and go.
    """

    def __init__(self) -> None:
        self._key: object = None
        self._engines: tuple[Engine, ...] = ()

    def __call__(self, directory: Path | None) -> tuple[Engine, ...]:
        """Return all, those of `directory` included. Raises `EngineError` and `OSError`."""
        files = [] if directory is None else sorted(directory.glob("*.y*ml"))
        key = (directory, [(file, file.read_bytes()) for file in files])
        if self._key != key or (directory is not None and not files):
            self._engines, self._key = load_engines(directory), key
        return self._engines


class Story:
    """Which chapter of its story a made-up machine is in, for the status document."""

    def __init__(self) -> None:
        self.tell: Callable[[], Mapping[str, Any] | None] = lambda: None


@dataclass(frozen=True)
class Estate:
    """What sources are given beside their settings; it outlives a reload.

    `memories` is what sources remember, by name: a successor goes on where its predecessor left
    off; `recalled` is set once what a former daemon has left is among them. `mappings` are those of
    the engines. `found` holds the inference servers that discovery has found, `training` what
    readers tell of training runs, and `reception` what became of what jobs push. `notices` is what
    the cloud has announced for this machine, `pods` are the node's pods as they were seen last.
    `history` is the last hour of what the status page draws, `watch` since when conditions hold.
    `ending` is set when the daemon ends. `boot` names this run of the machine; `story` is what a
    made-up one goes through. `gpus` tells whether the machine has a GPU driver, or a GPU. `life`
    names this run of the daemon: what is remembered from it goes on without a gap.
    """

    clock: Clock
    board: Board = field(default_factory=Board)
    ledger: XidLedger = field(default_factory=lambda: XidLedger(load_xids()))
    memories: MutableMapping[str, Any] = field(default_factory=dict)
    mappings: Mappings = field(default_factory=Mappings)
    found: Register = field(default_factory=Register)
    training: TrainingLedger = field(default_factory=TrainingLedger)
    reception: Reception = field(default_factory=Reception)
    notices: NoticeBoard = field(default_factory=NoticeBoard)
    pods: PodBoard = field(default_factory=PodBoard)
    history: History = field(default_factory=History)
    watch: Watch = field(default_factory=Watch)
    recalled: threading.Event = field(default_factory=threading.Event)
    ending: threading.Event = field(default_factory=threading.Event)
    boot: Callable[[], str] = this_boot
    story: Story = field(default_factory=Story)
    gpus: bool = False
    life: str = field(default_factory=lambda: uuid.uuid4().hex)

    @functools.cached_property
    def roster(self) -> Roster:
        """The GPUs that have been seen."""
        return Roster(self.board, self.clock)


@dataclass(frozen=True, slots=True)
class Plan:
    """A source that the settings ask for. Equal fingerprints: nothing about it has changed.

    At the end of the daemon those of a later `turn` end after the others: what takes in what
    readers told to the end, and after that what writes down all that is remembered.
    """

    name: str
    group: str
    schedule: Schedule
    fingerprint: str
    make: Callable[[], Source]
    turn: int = 0


Planner = Callable[[Settings, Estate], list[Plan]]


def remembering(settings: Settings, estate: Estate) -> dict[str, Any]:
    """Return how a source is to keep what it remembers, over a reload and a restart."""
    if settings.state_directory is None:
        return {"memories": estate.memories}

    def recall() -> None:
        # A disk that hangs costs what was remembered, and nothing else.
        estate.clock.wait(estate.recalled, STATE_DEADLINE)

    return {
        "memories": estate.memories, "recall": recall, "keep_every": settings.state_interval,
    }  # fmt: skip
