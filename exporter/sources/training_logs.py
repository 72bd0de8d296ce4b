"""Training jobs by their logs: files that are followed as they grow, and records of runs from them.

What lines mean is left to `formats.trainlog`, how a file is followed to `tail`, whom to believe to
the derivations. Every file gets its share of each read, so that one that writes much delays no
other; `train_log_lag_bytes` tells what has not been read yet.

    train_log_bytes_total{run="llama"} 183204
    train_log_lines_total{run="llama"} 412
    train_log_lag_bytes{run="llama"} 0
    train_log_skipped_bytes_total{run="llama"} 0
    train_log_files 3
    train_collnet_logged{run="llama"} 1
    train_extreme_rank_step_seconds{run="llama",rank="8",extreme="fastest"} 3.45308
"""

from __future__ import annotations

import dataclasses
import glob
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.formats.nccl_log import Log as NcclLog
from exporter.formats.podlog import job_of, pod_of
from exporter.formats.trainlog import Course, Flaw, LogParser, LogStream
from exporter.samples import Drop, Fault, Malformed, Remembered, Sample, SourceError
from exporter.tail import Mark, Tail
from exporter.training.records import Facts, Moment, Record, Step

READER = "log"

BACKLOG = 1 << 20
"""Bytes at the end of a log that are read to learn of a run that began before us."""
HEAD = 256 << 10
"""Bytes at its beginning that are read for the facts which jobs state there."""
OLDEST = 3600.0
"""Seconds after its last line for which a log that was there before us is of interest."""
CHUNK = 256 << 10
SHARE = 4 << 20
"""Bytes of one file in one read."""
BUDGET = 1.0
"""Seconds of one read, after which the files that are left come first in the next one."""
FARTHEST = 256 << 20
"""Bytes that a file may be behind; beyond them its middle is passed over, and told."""

_LOOK = 5.0
_ABSENT = 60.0
"""Seconds for which a file whose name is gone is still read."""
_RETELL = 600.0
_HELD = 32
_FAULTS = 20
_RUNS = 64
_PACKED = (".gz", ".zst", ".xz", ".bz2", ".lz4", ".zip")
_LONGEST_NAME = 128


class Watched(NamedTuple):
    """Files to follow: a pattern below the root, and what is known of them beforehand.

    `run` is a name in which {file}, {folder}, {job}, {pod}, {namespace} and {container} stand for
    parts of the path; `None` is {job} of a container's log, {file} of others.
    """

    path: str
    run: str | None = None
    family: str = "auto"
    rank: int | None = None
    logging_steps: int | None = None
    tokens_of: str | None = None

    @property
    def certain(self) -> bool:
        """Whether the operator has said that these are a training job's."""
        return self.family != "auto" or (self.run is not None and "{" not in self.run)


class Ledger(Protocol):
    """Who keeps what is told of runs."""

    def tell(self, reader: str, records: Iterable[Record], now: float) -> int:
        """Take records; raise `ValueError` for one that makes no sense."""

    def refuse(self, reader: str, reason: str, number: int = 1) -> None:
        """Count records that could not be kept."""


@dataclass(slots=True)
class _Run:
    """What the logs of one run have in common."""

    course: Course = field(default_factory=Course)
    steps: int = 0
    read: int = 0
    lines: int = 0
    skipped: int = 0
    facts: Facts | None = None
    used: float = 0.0
    folders: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Followed:
    """A file that is followed. `catching_up`: what is read was written before we came."""

    run: str
    tail: Tail
    stream: LogStream
    certain: bool
    catching_up: bool = False
    live: bool = False
    held: list[Record] = field(default_factory=list)
    facts_told: float = -math.inf
    changed: float = 0.0
    unnumbered: bool = False
    lines: int = 0
    folder: str = ""
    nccl: NcclLog = field(default_factory=NcclLog)


class TrainingLogsSource:
    """Steps, facts and moments of runs from log files below `root`, told to `ledger`.

    A log that was there before us is read from its last mebibyte on, and told is only where it
    stands; one that was last written more than an hour ago is followed from its end. Where a former
    daemon or settings left off stands in `memories`, in which the places are kept each
    `keep_every` seconds; `recall` brings what another process has left.

    Yields a `Fault` for each file that cannot be read, and for lines that make no sense, naming
    file and offset; the good records are kept. Drops: `line` (longer than a mebibyte),
    `unnumbered` (steps that do not say which), `files` (more files than `max_files`).
    """

    name = "logs"
    group = c.TRAINING

    def __init__(
        self,
        watched: Sequence[Watched],
        ledger: Ledger,
        clock: Clock,
        root: str = "/",
        *,
        max_files: int = 256,
        memories: MutableMapping[str, Any] | None = None,
        recall: Callable[[], None] = lambda: None,
        keep_every: float = math.inf,
    ) -> None:
        self._watched = tuple(watched)
        self._ledger = ledger
        self._clock = clock
        self._root = root.rstrip("/")
        self._max_files = max_files
        self._memories = {} if memories is None else memories
        self._recall = recall
        self._keep_every = keep_every
        self._files: dict[str, _Followed] = {}
        self._runs: dict[str, _Run] = {}
        self._kept: Mapping[str, Any] = {}
        self._kept_facts: Mapping[str, Any] = {}
        self._extremes: dict[str, tuple[float, dict[str, tuple[int, float]]]] = {}
        self._round: float | None = None
        self._kept_at = 0.0
        self._look_at = -math.inf
        self._turn = 0
        self._refused: dict[str, Fault] = {}
        self._unread: list[Fault | Drop] = []
        self._items: list[Fault | Drop] = []

    def read(self) -> Iterator[Sample | Fault | Drop]:
        """Read on in all files once, tell what was found, and yield what became of it."""
        now = self._clock.monotonic()
        self._items = []
        first = self._round is None
        if first:
            self._take_over(now)
        self._round = now
        if now >= self._look_at:
            self._look(now, first=first)
            self._look_at = now + _LOOK
        self._follow_all(now)
        if now - self._kept_at >= self._keep_every:
            self._keep()
        yield from self._limited([*self._refused.values(), *self._unread, *self._items])
        yield from self._samples(now)

    def look_again(self) -> None:
        """Have the next read look for files, however short a time ago that was done."""
        self._look_at = -math.inf

    def close(self) -> None:
        """Tell what waits, leave the places to a successor, and close all files."""
        now = self._clock.monotonic()
        for one in self._files.values():
            self._tell(one, one.stream.rest(), now)
        self._keep(final=True)
        for one in self._files.values():
            one.tail.close()

    # ------------------------------------------------------------ what is remembered

    def _take_over(self, now: float) -> None:
        self._kept_at = now
        try:
            self._recall()
        except (OSError, SourceError, Malformed) as error:
            self._items.append(Fault.of("memory", error))
        match self._memories.get(self.name):
            case Remembered({"files": dict(files), "runs": dict(runs), "facts": dict(facts)}):
                self._kept, self._kept_facts = files, facts
                for name, told in list(runs.items())[-_RUNS:]:
                    self._runs[str(name)] = _Run(Course.restored(told), used=now)

    def _keep(self, *, final: bool = False) -> None:
        """Put the places into the memories: of each file where its first untaken line begins."""
        if self._round is None:
            return
        files: dict[str, Any] = dict(self._kept)
        for path, one in self._files.items():
            if (mark := one.tail.mark(one.stream.position)) is not None:
                files[path] = [*mark, one.stream.skipping]
        plain = {
            "files": files,
            "runs": {name: run.course.plain() for name, run in self._runs.items()},
            "facts": {
                name: _known(run.facts) for name, run in self._runs.items() if run.facts is not None
            },
        }
        self._memories[self.name] = Remembered(plain, self._round, final)
        self._kept_at = self._round

    # ------------------------------------------------------------ which files

    def _look(self, now: float, *, first: bool) -> None:
        """Find out which files there are now."""
        self._unread = []
        self._refused = {}
        found = self._matching()
        for path in [path for path in self._files if path not in found]:
            # What lost its name may have been rotated away: it is still read to its end.
            one = self._files[path]
            if now - one.changed > _ABSENT or os.path.lexists(path):
                one.tail.close()
                del self._files[path]
        for path, watched in found.items():
            if path not in self._files:
                self._begin(path, watched, now, first=first)
        if first:
            self._kept = {}

    def _matching(self) -> dict[str, Watched]:
        """Return the files that match, by path; those written last where they are too many."""
        found: dict[str, tuple[float, Watched]] = {}
        for watched in self._watched:
            pattern = self._root + watched.path
            paths = glob.glob(pattern) if glob.has_magic(pattern) else [pattern]  # noqa: PTH207
            for path in paths:
                if path not in found and not path.endswith(_PACKED):
                    written = self._written(path, literal=path == pattern)
                    if written is not None:
                        found[path] = (written, watched)
        kept = sorted(found, key=lambda path: -found[path][0])
        if (beyond := kept[self._max_files :]) and beyond[0] not in self._files:
            self._unread.append(Drop("files", len(beyond)))
            self._unread.append(Fault(
                "files", "malformed",
                f"{len(found)} files match, {len(beyond)} are not read: {beyond[0]} ...",
            ))  # fmt: skip
        # In the order of their names: a container's second log comes after its first.
        return {path: found[path][1] for path in sorted(kept[: self._max_files], key=_natural)}

    def _written(self, path: str, *, literal: bool) -> float | None:
        try:
            return os.stat(path).st_mtime  # noqa: PTH116
        except FileNotFoundError as error:
            if os.path.islink(path):  # noqa: PTH114 - it may lead somewhere below the root
                return 0.0
            if literal:
                self._unread.append(Fault.of(path, error))
        except OSError as error:
            self._unread.append(Fault.of(path, error))
        return None

    def _begin(self, path: str, watched: Watched, now: float, *, first: bool) -> None:
        """Begin to follow a file."""
        tail = Tail(path, self._root or "/")
        try:
            tail.open()
            name = run_of(path, watched.run)
            run = self._run(name, now)
            parser = LogParser(
                name, course=run.course, writer=_writer(path), rank=watched.rank,
                family=watched.family, steps_per_line=watched.logging_steps,
                tokens_of=watched.tokens_of,
            )  # fmt: skip
            parser.facts = _facts(name, self._kept_facts.get(name))
            one = _Followed(
                name, tail, LogStream(parser, family=watched.family), watched.certain, changed=now
            )
            if watched.run is None and pod_of(path) is None:
                one.folder = path.rpartition("/")[0]
            self._place(one, path, watched, first=first)
        except OSError as error:
            tail.close()
            self._refused[path] = Fault.of(path, error)
            return
        self._files[path] = one

    def _place(self, one: _Followed, path: str, watched: Watched, *, first: bool) -> None:
        """Decide where reading begins. Raises `OSError`."""
        tail = one.tail
        skipping = False
        match self._kept.get(path):
            case [int(a), int(b), int(c_), str(d), int(e), bool(skipping)]:
                if tail.resume(Mark(a, b, c_, d, e)):
                    one.stream.restart(tail.offset, aligned=not skipping)
                return
        old = self._clock.time() - tail.written > OLDEST
        if not first and not old:
            one.live = True  # it appeared while we were looking
            return
        tail.offset = tail.size if old else max(0, tail.size - BACKLOG)
        one.catching_up = True
        if tail.offset and not old:
            before = LogParser(one.run, family=watched.family)
            head = tail.head(min(HEAD, tail.offset)) + b"\n"
            LogStream(before, family=watched.family).feed(head)
            one.nccl.feed(head)
            one.stream.parser.facts = before.facts
        one.stream.restart(tail.offset, aligned=tail.begins_line())

    def _run(self, name: str, now: float) -> _Run:
        run = self._runs.get(name)
        if run is None:
            if len(self._runs) >= 4 * _RUNS:
                used = {one.run for one in self._files.values()}
                idle = sorted(self._runs.keys() - used, key=lambda n: self._runs[n].used)
                for former in idle[: len(self._runs) - 2 * _RUNS]:
                    del self._runs[former]
                    self._extremes.pop(former, None)
            run = self._runs[name] = _Run()
        run.used = now
        return run

    # ------------------------------------------------------------ reading

    def _follow_all(self, now: float) -> None:
        """Give each file its share, beginning with another one each time."""
        paths = list(self._files)
        self._turn %= max(1, len(paths))
        until = now + BUDGET
        for at, path in enumerate(paths[self._turn :] + paths[: self._turn]):
            if at and self._clock.monotonic() >= until:
                self._turn += at
                break
            one = self._files[path]
            try:
                self._follow(one, until, now)
            except OSError as error:
                self._items.append(Fault.of(path, error))
                one.tail.close()

    def _follow(self, one: _Followed, until: float, now: float) -> None:
        """Read on in one file until its share is read, or it is late. Raises `OSError`."""
        tail, stream = one.tail, one.stream
        records: list[Record] = []
        taken = 0
        if tail.behind > FARTHEST:
            self._jump(one)
        while taken < SHARE and (not taken or self._clock.monotonic() < until):
            data = tail.read(min(CHUNK, SHARE - taken))
            if tail.turned:
                records += stream.rest()
                stream.restart()
                one.nccl.restart()
                one.catching_up = False
            if not data:
                break
            taken += len(data)
            records += stream.feed(data)
            one.nccl.feed(data)
        if taken:
            one.changed = now
        else:
            records += stream.rest()
        self._tell(one, records, now)
        self._count(one, taken)
        one.live = tail.behind == 0
        one.catching_up = one.catching_up and not one.live

    def _jump(self, one: _Followed) -> None:
        """Pass over the middle of a file that grows faster than it is read."""
        to = one.tail.size - BACKLOG
        missed = to - one.tail.offset
        one.tail.offset = to
        one.stream.restart(to, aligned=one.tail.begins_line())
        one.nccl.restart()
        self._runs[one.run].skipped += missed
        self._items.append(Fault(
            one.tail.path, "io", f"too far behind: {missed} bytes before byte {to} are passed over"
        ))  # fmt: skip

    def _count(self, one: _Followed, taken: int) -> None:
        matched = one.stream.parser.matched
        run = self._runs[one.run]
        if not run.steps:
            run = self._run("", one.changed)
        run.read += taken
        run.lines += matched - one.lines
        one.lines = matched

    # ------------------------------------------------------------ telling

    def _tell(self, one: _Followed, records: list[Record], now: float) -> None:
        run = self._runs[one.run]
        run.used = now
        self._blame(one)
        stepped = any(isinstance(record, Step) for record in records)
        if stepped and one.folder:
            self._expect_alone(one, run, now)
        if one.catching_up:
            records = _where_it_stands(records)
        elif one.live:
            wall = self._clock.time()
            records = [
                dataclasses.replace(record, wall=wall)
                if isinstance(record, Moment) and record.wall is None
                else record
                for record in records
            ]
        if extremes := one.stream.parser.extremes:
            one.stream.parser.extremes = {}
            self._extremes[one.run] = now, extremes
        if stepped:
            run.steps += 1
        elif not (run.steps or one.certain):
            # Words such as "Training completed" stand in many a log: a step proves that it is one.
            one.held = [*one.held, *records][-_HELD:]
            return
        records, one.held = [*one.held, *records], []
        facts = one.stream.parser.facts
        run.facts = facts
        if stepped and now - one.facts_told > _RETELL:
            one.facts_told = now
            records.insert(0, facts)
        for record in records:
            try:
                self._ledger.tell(READER, (record,), now)
            except ValueError as error:
                self._ledger.refuse(READER, "nonsense")
                self._items.append(Fault(
                    one.tail.path, "malformed", f"before byte {one.stream.position}: {error}"
                ))  # fmt: skip

    def _expect_alone(self, one: _Followed, run: _Run, now: float) -> None:
        """Tell it where files of one name in several folders, which nobody named, tell of steps.

        They may be of one job (a folder for each rank), or of several, which are then one run.
        """
        run.folders[one.folder] = now
        if len(run.folders) > _RUNS:
            del run.folders[min(run.folders, key=run.folders.__getitem__)]
        lately = [folder for folder, when in run.folders.items() if now - when < _RETELL]
        if len(lately) > 1:
            self._items.append(Fault(
                one.tail.path, "malformed",
                f"logs of this name in {len(lately)} folders are taken for one run"
                f" ({one.run}): if they are of several jobs, state run: '{{folder}}', else a name",
            ))  # fmt: skip

    def _blame(self, one: _Followed) -> None:
        """Tell what of a file could not be taken."""
        flaws, one.stream.flaws = one.stream.flaws, []
        for flaw in flaws:
            if flaw.reason == "nonsense":
                self._ledger.refuse(READER, "nonsense", flaw.number)
            else:
                self._items.append(Drop(flaw.reason, flaw.number))
            if flaw.reason == "unnumbered":
                if one.unnumbered:
                    continue
                one.unnumbered = True
            self._items.append(_fault(one.tail.path, flaw))

    def _limited(self, items: list[Fault | Drop]) -> Iterator[Fault | Drop]:
        """Yield all drops, and faults up to a limit: a storm of them says no more."""
        faults = 0
        for item in items:
            faults += isinstance(item, Fault)
            if not isinstance(item, Fault) or faults <= _FAULTS:
                yield item

    def _samples(self, now: float) -> Iterator[Sample]:
        behind: dict[str, int] = {}
        for one in self._files.values():
            name = one.run if self._runs[one.run].steps else ""
            lag = one.tail.size - one.stream.position
            behind[name] = behind.get(name, 0) + max(0, lag)
        followed = {one.run for one in self._files.values()}
        shown = [
            name
            for name, run in self._runs.items()
            if name == "" or (run.steps and (name in followed or now - run.used < OLDEST))
        ]
        for name, (told, extremes) in self._extremes.items():
            if name in shown and now - told < _RETELL:
                for extreme, (rank, seconds) in extremes.items():
                    yield c.TRAIN_EXTREME_RANK_STEP_SECONDS(seconds, name, str(rank), extreme)
        for name in shown[: _RUNS + 1]:
            run = self._runs[name]
            yield c.TRAIN_LOG_BYTES_TOTAL(run.read, name)
            yield c.TRAIN_LOG_LINES_TOTAL(run.lines, name)
            yield c.TRAIN_LOG_SKIPPED_BYTES_TOTAL(run.skipped, name)
            yield c.TRAIN_LOG_LAG_BYTES(behind.get(name, 0), name)
        yield c.TRAIN_LOG_FILES(len(self._files))
        yield from self._sharp(shown)

    def _sharp(self, shown: Iterable[str]) -> Iterator[Sample]:
        """Yield what NCCL says of SHARP in the logs of each run: one that has it is enough."""
        found: dict[str, bool] = {}
        for one in self._files.values():
            if one.nccl.sharp is not None and one.run:
                found[one.run] = found.get(one.run, False) or one.nccl.sharp
        for name in shown:
            if name in found:
                yield c.TRAIN_COLLNET_LOGGED(int(found[name]), name)


def run_of(path: str, template: str | None = None) -> str:
    """Return the name of the run that a log belongs to."""
    pod = pod_of(path)
    folder, _, file = path.rpartition("/")
    stem = file.rpartition(".")[0] or file
    known = {
        "file": stem,
        "folder": folder.rpartition("/")[2],
        "pod": pod.name if pod else stem,
        "job": job_of(pod.name) if pod else stem,
        "namespace": pod.namespace if pod else "",
        "container": pod.container if pod else "",
    }
    name = (template or ("{job}" if pod else "{file}")).format_map(known)
    name = "".join(char if char.isprintable() else "_" for char in name)[:_LONGEST_NAME]
    return name or "unnamed"


def _writer(path: str) -> str:
    """Return what tells the writer of a log: a container writes another file at each start."""
    pod = pod_of(path)
    return path if pod is None or pod.restarts is None else path.rpartition("/")[0]


def _natural(path: str) -> tuple[str, int, str]:
    """Return a key by which 10.log comes after 9.log."""
    folder, _, file = path.rpartition("/")
    stem = file.partition(".")[0]
    return folder, int(stem) if stem.isascii() and stem.isdecimal() else -1, file


def _where_it_stands(records: list[Record]) -> list[Record]:
    """Return of what was written before we came what is true now: facts, and the last step.

    Steps that ended in the past would count as if they had ended at once. What happened is told
    where the log says when.
    """
    kept: list[Record] = []
    last: Step | None = None
    for record in records:
        if isinstance(record, Step):
            last = record
        elif isinstance(record, Facts) or (isinstance(record, Moment) and record.wall is not None):
            kept.append(record)
    if last is not None:
        kept.append(dataclasses.replace(last, steps=1, skipped=min(1, last.skipped)))
    return kept


def _fault(path: str, flaw: Flaw) -> Fault:
    return Fault(path, "malformed", f"byte {flaw.offset}: {flaw.detail}")


def _known(facts: Facts) -> dict[str, Any]:
    """Return what is known, as JSON can hold it."""
    return {
        one.name: value
        for one in dataclasses.fields(facts)
        if isinstance(value := getattr(facts, one.name), int | float | str) and one.name != "run"
    }


def _facts(run: str, told: object) -> Facts:
    """Return facts that were kept; those that make no sense are left out."""
    known = {one.name for one in dataclasses.fields(Facts)} - {"run"}
    plain: dict[str, Any] = {
        name: value
        for name, value in (told.items() if isinstance(told, dict) else ())
        if name in known and isinstance(value, int | float | str)
    }
    return Facts(run=run, **plain)
