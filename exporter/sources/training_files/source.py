"""The source: looks through a directory each round and has its readers read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any, Protocol

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.samples import Fault, Malformed, Remembered, SourceError
from exporter.sources.training_files.dropped import DroppedReader
from exporter.sources.training_files.found import Budget, Limits, look
from exporter.sources.training_files.history import HistoryReader
from exporter.sources.training_files.offline import OfflineReader
from exporter.sources.training_files.reading import Names, Nonsense, Reader, Scene
from exporter.sources.training_files.store import StoreReader
from exporter.sources.training_files.tensorboard import TensorBoardReader
from exporter.training.records import Record

KINDS: dict[str, Callable[[Names], Reader]] = {
    "tensorboard": TensorBoardReader,
    "trainer_state": HistoryReader,
    "mlflow": StoreReader,
    "wandb": OfflineReader,
    "textfile": DroppedReader,
}
"""What reads each kind of file."""

_MOST_FAULTS = 20

# The system is asked only about files that a reader may want: checkpoints have thousands of others.
_PATTERN = re.compile(
    r"(?:.*/)?(?:[^/]*tfevents\.[^/]*|trainer_state\.json|meta\.yaml|[^/]*\.wandb|[^/]*\.prom)"
    r"|.*/metrics/.*"
)


def _wanted(path: str) -> bool:
    return _PATTERN.fullmatch(path) is not None


class Ledger(Protocol):
    """Who is told of training runs."""

    def tell(self, reader: str, records: Iterable[Record], now: float) -> int:
        """Take records of a reader; raise `ValueError` for one that makes no sense."""

    def refuse(self, reader: str, reason: str, number: int = 1) -> None:
        """Count records that could not be kept."""


class TrainingFilesSource:
    """Files of training jobs below `root`, of one kind or (`auto`) of all; yields faults only.

    `run` names the run, where the files do not hold several. `memories` keeps where reading has
    come to, by the source's name, every `keep_every` seconds and at the end; `recall` brings what
    an earlier process has left. Without a memory what is in the files already is history: of files
    that somebody writes to the last hundred steps are told, of others nothing.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        ledger: Ledger,
        clock: Clock,
        *,
        kind: str = "auto",
        run: str | None = None,
        limits: Limits | None = None,
        memories: MutableMapping[str, Any] | None = None,
        recall: Callable[[], None] = lambda: None,
        keep_every: float = math.inf,
    ) -> None:
        self.name = f"training_files:{name}"
        self.group = c.TRAINING
        self._root = root
        self._ledger = ledger
        self._clock = clock
        self._limits = limits if limits is not None else Limits()
        names = Names(root, run)
        self._readers = {one: make(names) for one, make in KINDS.items() if kind in ("auto", one)}
        self._memories = {} if memories is None else memories
        self._recall = recall
        self._keep_every = keep_every
        self._round: float | None = None
        self._kept = 0.0
        self._first = True

    def read(self) -> list[Fault]:
        """Look for what is new. Raises `OSError` if the directory cannot be listed."""
        now = self._clock.monotonic()
        faults = self._take_over(now) if self._round is None else []
        try:
            found = list(look(self._root, self._limits, faults, _wanted))
        except FileNotFoundError:
            self._first, self._round = False, now  # what will be there is new
            raise
        limits, clock = self._limits, self._clock
        budget = Budget(limits.bytes, lambda: clock.monotonic() - now > limits.seconds)
        scene = Scene(self._root, now, clock.time(), self._first, budget)
        for reader in self._readers.values():
            for one in reader.read(list(reader.wants(found)), scene):
                if isinstance(one, Fault):
                    # Which file it is may be nobody's business: a detail, as the place in it.
                    faults.append(one._replace(part=reader.name))
                elif isinstance(one, Nonsense):
                    self._ledger.refuse(reader.name, "nonsense")
                    faults.append(Fault.of(reader.name, Malformed(one.detail)))
                else:
                    self._tell(reader.name, one, now, faults)
        self._first, self._round = False, now
        if now - self._kept >= self._keep_every:
            self._keep()
        return faults[:_MOST_FAULTS]

    def _tell(self, reader: str, record: Record, now: float, faults: list[Fault]) -> None:
        try:
            self._ledger.tell(reader, (record,), now)
        except ValueError as error:
            self._ledger.refuse(reader, "nonsense")
            detail = f"{record.run}: step {getattr(record, 'step', None)}: {error}"
            faults.append(Fault.of(reader, Malformed(detail)))

    def _take_over(self, now: float) -> list[Fault]:
        """Go on where a predecessor was; return what hindered it."""
        self._kept = now
        try:
            self._recall()
        except (OSError, SourceError, Malformed) as error:
            return [Fault.of("memory", error)]
        former = self._memories.get(self.name)
        if not isinstance(former, Remembered) or not isinstance(former.plain, dict):
            return []
        self._first = False
        faults = []
        for kind, reader in self._readers.items():
            try:
                if (plain := former.plain.get(kind)) is not None:
                    reader.restore(plain)
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                self._first = True
                detail = f"{kind}: not what was left there: {error}"
                faults.append(Fault.of("memory", Malformed(detail)))
        return faults

    def _keep(self, *, final: bool = False) -> None:
        if self._round is not None:
            plain = {kind: reader.plain() for kind, reader in self._readers.items()}
            self._memories[self.name] = Remembered(plain, self._round, final)
            self._kept = self._round

    def close(self) -> None:
        """Leave where reading has come to for the successor."""
        self._keep(final=True)
