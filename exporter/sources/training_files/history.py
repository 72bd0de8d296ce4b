"""`trainer_state.json` of the HF Trainer: in the folder of a run, or in one for each checkpoint.

The file holds the whole history and is written anew each time, so it is read whenever it has
changed. Told is what follows the last entry that was told; where an entry that was told has another
content now, the run has gone back to a checkpoint, and what follows is another attempt. Entries
have no time: steps are told without one, and a checkpoint with that of its file.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from exporter.formats.tags import Stream
from exporter.formats.trainer_state import LARGEST, State, read_state
from exporter.samples import Fault, Malformed
from exporter.sources.training_files.found import OLD, Found, piece
from exporter.sources.training_files.reading import (
    MOST_FILES,
    TAIL,
    Names,
    News,
    Scene,
    fault,
    latest,
    left_out,
)
from exporter.training.records import Facts, Moment, Record

_CHECKPOINT = re.compile(r"checkpoint-([0-9]{1,15})")
_WRITING = 10.0
"""Seconds after its last change for which a file may be half-written."""

_KEPT = 64
"""Entries of a run of which the content is remembered."""


@dataclass(slots=True)
class _Run:
    stream: Stream
    marks: OrderedDict[int, int] = field(default_factory=OrderedDict)
    restarts: int = 0
    modified: float = 0.0
    checkpoint: int = -1
    facts: Facts | None = None


class HistoryReader:
    """States of trainers below a directory."""

    name = "trainer_state"

    def __init__(self, names: Names) -> None:
        self._names = names
        self._seen: dict[str, tuple[tuple[int, int], int, float]] = {}
        self._faults: dict[str, Fault] = {}
        self._runs: dict[str, _Run] = {}

    def wants(self, found: Sequence[Found]) -> Iterable[Found]:
        """Return states of trainers."""
        return [one for one in found if one.name == "trainer_state.json"]

    def read(self, found: Sequence[Found], scene: Scene) -> Iterator[News]:
        """Yield what is new in those that have changed, in the order in which they were written."""
        paths = {one.path for one in found}
        for path in self._seen.keys() - paths:
            del self._seen[path]
            self._faults.pop(path, None)
        for folder in self._runs.keys() - {_home(path)[0] for path in paths}:
            del self._runs[folder]
        for one in sorted(found, key=lambda one: one.modified):
            state = one.identity, one.size, one.modified
            if self._seen.get(one.path) == state:
                continue
            if one.path not in self._seen and len(self._seen) >= MOST_FILES:
                yield fault(one.path, None, f"more than {MOST_FILES} states: not read")
                continue
            if scene.first and scene.wall - one.modified > OLD:
                self._seen[one.path] = state
                continue
            if scene.budget.over():
                break  # in the next round
            self._seen[one.path] = state
            self._faults.pop(one.path, None)
            try:
                yield from self._news(one, scene)
            except (Malformed, OSError) as error:
                if scene.wall - one.modified < _WRITING:
                    del self._seen[one.path]  # perhaps it is being written just now
                else:
                    self._faults[one.path] = Fault.of(one.path, error)
        for one in found:
            if one.path in self._faults and scene.wall - one.modified <= OLD:
                yield self._faults[one.path]

    def _news(self, found: Found, scene: Scene) -> Iterator[News]:
        if found.size > LARGEST:
            raise Malformed(f"{found.path}: larger than {LARGEST} bytes")
        text = piece(scene.root, found.path, 0, LARGEST)
        try:
            state = read_state(text)
        except Malformed as error:
            raise Malformed(f"{found.path}: {error}") from None
        folder, checkpoint = _home(found.path)
        run = self._runs.get(folder)
        if run is None:
            run = self._runs[folder] = _Run(Stream(self._names.of(folder), began=True))
        if found.modified < run.modified:
            return  # an older checkpoint that was copied here
        run.modified = found.modified
        yield from self._facts(run, state)
        records = list(self._steps(run, state))
        yield from left_out(folder, run.stream)
        yield from latest(records, TAIL) if scene.first else records
        if checkpoint and state.step != run.checkpoint:
            run.checkpoint = state.step
            yield Moment(
                run=run.stream.run, kind="checkpoint_saved", wall=found.modified,
                attempt=run.stream.attempt, step=state.step,
            )  # fmt: skip

    def _facts(self, run: _Run, state: State) -> Iterator[Facts]:
        facts = Facts(
            run=run.stream.run, framework="transformers", last_step=state.last_step,
            micro_batch=state.batch or None,
        )  # fmt: skip
        if facts != run.facts:
            run.facts = facts
            yield facts

    def _steps(self, run: _Run, state: State) -> Iterator[Record]:
        """Yield the steps that were not told; a changed one, and those behind it, are new."""
        marks = run.marks
        oldest = next(iter(marks), 0)
        changed = next(
            (e.step for e in state.entries if e.step >= oldest and marks.get(e.step) != e.mark),
            None,
        )
        if changed is None:
            return
        last = next(reversed(marks), -1)
        if changed <= last and not self._completed(run, state, changed):
            run.restarts += 1
            run.stream = Stream(run.stream.run, attempt=f"#{run.restarts}")
            for step in [step for step in marks if step >= changed]:
                del marks[step]
        for entry in state.entries:
            if entry.step >= changed:
                marks[entry.step] = entry.mark
                if len(marks) > _KEPT:
                    marks.popitem(last=False)
                if run.stream.last is None or entry.step > run.stream.last:
                    yield from run.stream.step(entry.step, entry.values, None)

    def _completed(self, run: _Run, state: State, changed: int) -> bool:
        """Tell whether it is only the last entry, which an evaluation was added to."""
        return changed == next(reversed(run.marks)) and state.step >= changed

    def plain(self) -> object:
        """Return which files were read, and of each run what was told."""
        return {
            "seen": {path: [list(i), size, at] for path, (i, size, at) in self._seen.items()},
            "runs": {
                folder: [
                    one.stream.run, one.stream.plain(), list(one.marks.items()), one.restarts,
                    one.modified, one.checkpoint,
                ]
                for folder, one in self._runs.items()
            },
        }  # fmt: skip

    def restore(self, plain: Any) -> None:
        """Go on where a predecessor was."""
        seen = {
            str(path): ((int(device), int(inode)), int(size), float(at))
            for path, ((device, inode), size, at) in plain["seen"].items()
        }
        runs: dict[str, _Run] = {}
        for folder, (run, told, marks, restarts, modified, checkpoint) in plain["runs"].items():
            stream = Stream(str(run))
            stream.restore(told)
            runs[str(folder)] = _Run(
                stream, OrderedDict((int(step), int(mark)) for step, mark in marks),
                int(restarts), float(modified), int(checkpoint),
            )  # fmt: skip
        self._seen, self._runs = seen, runs


def _home(path: str) -> tuple[str, bool]:
    """Return the folder of the run that a state belongs to, and whether it is of a checkpoint."""
    directory = path.rpartition("/")[0]
    folder, _, last = directory.rpartition("/")
    return (folder, True) if _CHECKPOINT.fullmatch(last) else (directory, False)
