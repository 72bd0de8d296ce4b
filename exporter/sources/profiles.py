"""Profiles that are dropped into directories: Kineto traces, and what Nsight Systems exports.

Each finished file is read once, one at a time, by a child process with a memory limit of its own
that runs when nobody else wants to. The latest come first. What a profile shows is told to the
ledger of training runs, and as gauges. Tables of `nsys stats` are small and are read here.

A file that cannot be read (cut off, no profile, more kernels than the memory is for, more time
than it is given) is a `Fault` of one read that names it, is counted, and is not tried again unless
it changes. A trace that does not end as one should waits: it may be half written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.formats import nsys_stats
from exporter.formats.kineto import Truncated
from exporter.profiling.folder import Folder, Found, State, clean
from exporter.profiling.kernels import CLASSES, class_of, short
from exporter.profiling.patterns import PATTERNS, pattern_of_sums
from exporter.profiling.timeline import Total
from exporter.samples import Fault, Malformed, Sample, SourceError, reason_of
from exporter.training.records import Facts, Profile, Record

READER = "trace"
TOP = 10
"""So many kernels, and memory operations, are told by name."""

_TRACES = (".json", ".json.gz")
_TABLES = (".csv",)
_EXPORTS = (".sqlite", ".db")
_RANK = re.compile(r"rank[_.-]?(\d{1,6})(?!\d)", re.IGNORECASE)
_REPORT = re.compile(
    r"[_.](?:cuda_(?:gpu_(?:kern|mem_time|mem_size)|api)_sum|gpukernsum|gpumemtimesum|cudaapisum)$"
)
_LARGEST_TABLE = 4 << 20
_PATIENCE = 600.0
"""Seconds for which a trace that ends in its middle is waited for, if nobody goes on writing."""
_MAX_RESULTS = 512
_MAX_RANK = 1 << 20


class Errand(Protocol):
    """Work in a child process."""

    def poll(self) -> Any | None:
        """Return the answer, or `None` while there is none; raise what went wrong."""

    def end(self) -> None:
        """End it, whatever it does."""


class Ledger(Protocol):
    """Who keeps what is told of training runs."""

    def tell(self, reader: str, records: Any, now: float) -> int:
        """Take records."""

    def refuse(self, reader: str, reason: str, number: int = 1) -> None:
        """Count records that make no sense."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is read: bytes of a file, and of its content; seconds since it was written; memory."""

    max_size: int = 8 << 30
    max_expanded: int = 32 << 30
    max_age: float = 7 * 86400.0
    memory: int = 160 << 20


class _Work(NamedTuple):
    errand: Errand
    file: Found


class _Shown(NamedTuple):
    """What a profile shows, as samples; when it was taken, and when its file was written."""

    wall: float
    written: float
    samples: tuple[Sample, ...]


class ProfilesSource:
    """Watches directories for profiles.

    `begin` starts the reading of a file in a child process and is given the arguments of
    `profiling.reading.read_profile`. Without the kernels of a GPU there is no `Profile` and no
    overlap: the number of kernels is 0.

        train_profile_time_ratio{run="llama",rank="0",kind="matmul"} 0.58
        train_profile_communication_overlap_ratio{run="llama",rank="0"} 0.81
        train_profile_pattern{run="llama",rank="0",pattern="communication"} 1
        train_profile_kernel_seconds{run="llama",rank="0",kernel="flash_fwd_kernel"} 0.31
    """

    name = "profiles"
    group = c.PROFILE

    def __init__(
        self,
        folder: Folder,
        ledger: Ledger,
        begin: Callable[[Mapping[str, Any]], Errand],
        clock: Clock,
        bounds: Bounds = Bounds(),
    ) -> None:
        self._folder = folder
        self._ledger = ledger
        self._begin = begin
        self._clock = clock
        self._bounds = bounds
        self._work: _Work | None = None
        self._done: dict[str, State] = {}
        self._cut: dict[str, State] = {}
        self._shown: dict[tuple[str, str], _Shown] = {}
        self._sums: dict[str, dict[str, list[nsys_stats.Row]]] = {}
        self._outcomes = dict.fromkeys(("read", "no_kernels", "failed"), 0)

    def read(self) -> Iterator[Sample | Fault]:
        """Look for new files, go on with the one in work, and yield what is known."""
        yield from self._collect()
        looked = self._folder.look()
        for path, error in self._folder.problems.items():
            yield Fault.of(clean(path), error)
        if self._folder.crowded:
            yield Fault("directories", "denied", "more entries than are looked at")
        self._forget({found.path for found, _ in looked})
        waiting = 0
        for found, settled in looked:
            if not self._wanted(found):
                continue
            if not settled or not self._is_whole(found):
                waiting += 1
            elif found.name.lower().endswith(_TABLES):
                yield from self._tabulate(found)
            elif self._work is None and found.state.size <= self._bounds.max_size:
                self._work = _Work(self._begin(self._asked(found)), found)
            elif found.state.size > self._bounds.max_size:
                yield self._failed(found, "denied", f"more than {self._bounds.max_size} bytes")
            else:
                waiting += 1
        yield c.TRAIN_PROFILE_FILES_WAITING(waiting + (self._work is not None))
        for outcome, number in self._outcomes.items():
            yield c.TRAIN_PROFILE_FILES_TOTAL(number, outcome)
        for shown in self._shown.values():
            yield from shown.samples

    def close(self) -> None:
        """End the child. A later read begins the file anew."""
        if self._work is not None:
            self._work.errand.end()
            self._work = None

    # ------------------------------------------------------------ which files

    def _wanted(self, found: Found) -> bool:
        if not found.name.lower().endswith(_TRACES + _TABLES + _EXPORTS):
            return False
        if self._work is not None and self._work.file.path == found.path:
            return False
        if self._done.get(found.path) == found.state:
            return False
        return self._clock.time() - found.state.written / 1e9 <= self._bounds.max_age

    def _is_whole(self, found: Found) -> bool:
        """Tell whether a file may be read: plain JSON ends with a bracket, or is given up on."""
        if found.state.size == 0 or (
            self._cut.get(found.path) == found.state and self._is_young(found)
        ):
            return False
        if not found.name.lower().endswith(".json"):
            return True
        if not self._is_young(found):
            return True
        try:
            fd = os.open(found.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return True  # whoever reads it will say why it cannot be read
        try:
            end = os.pread(fd, 256, max(0, found.state.size - 256))
        except OSError:
            return True
        finally:
            os.close(fd)
        return end.rstrip()[-1:] in (b"}", b"]")

    def _is_young(self, found: Found) -> bool:
        """Tell whether somebody may still be writing, for all that is known."""
        return self._clock.time() - found.state.written / 1e9 <= _PATIENCE

    def _forget(self, there: set[str]) -> None:
        """Forget what was done to files that are gone, and what is too old to be shown."""
        self._done = {path: state for path, state in self._done.items() if path in there}
        self._cut = {path: state for path, state in self._cut.items() if path in there}
        oldest = self._clock.time() - self._bounds.max_age
        self._shown = {key: one for key, one in self._shown.items() if one.written >= oldest}

    # ------------------------------------------------------------ what they hold

    def _asked(self, found: Found) -> dict[str, Any]:
        return {
            "path": found.path, "inside": found.inside, "memory": self._bounds.memory,
            "max_expanded": self._bounds.max_expanded,
        }  # fmt: skip

    def _collect(self) -> Iterator[Fault]:
        """Take the child's answer, if there is one."""
        if self._work is None:
            return
        found = self._work.file
        try:
            told = self._work.errand.poll()
        except (OSError, ValueError, SourceError) as error:
            self._work = None
            if str(error).startswith(f"{Truncated.__name__}:") and self._is_young(found):
                self._cut[found.path] = found.state
                return
            yield self._failed(found, reason_of(error), str(error))
            return
        if told is None:
            return
        self._work = None
        try:
            yield from self._take(found, told)
        except (KeyError, TypeError, AttributeError) as error:
            yield self._failed(found, "malformed", f"the child's answer makes no sense: {error!r}")

    def _failed(self, found: Found, reason: Any, detail: str) -> Fault:
        self._done[found.path] = found.state
        self._outcomes["failed"] += 1
        return Fault(clean(found.path), reason, clean(detail))

    def _take(self, found: Found, told: Mapping[str, Any]) -> Iterator[Fault]:
        """Keep and tell what a profile shows."""
        rank = _rank(told.get("rank"), found.name)
        wall = _wall(told, found)
        labels = (found.run, "" if rank is None else str(rank))
        self._done[found.path] = found.state
        records: list[Record] = []
        if told.get("world_size"):
            records.append(Facts(run=found.run, world_size=told["world_size"]))
        if "summary" in told and told["summary"]["seconds"] > 0:
            records.append(_profile(found.run, rank, wall, told["summary"]))
        samples = tuple(_samples(labels, wall, told))
        former = self._shown.get(labels)
        if former is not None and former.wall > wall:
            records = [one for one in records if isinstance(one, Facts)]
        elif former is not None or len(self._shown) < _MAX_RESULTS:
            self._shown[labels] = _Shown(wall, found.state.written / 1e9, samples)
        try:
            self._ledger.tell(READER, records, self._clock.monotonic())
        except ValueError as error:
            self._ledger.refuse(READER, "nonsense")
            self._shown.pop(labels, None)
            yield self._failed(found, "malformed", str(error))
            return
        self._outcomes["read" if "summary" in told else "no_kernels"] += 1

    def _tabulate(self, found: Found) -> Iterator[Fault]:
        """Read a table of `nsys stats`; those of one report are looked at together."""
        stem = _REPORT.sub("", found.path.removesuffix(found.path[-4:]))
        try:
            rows = nsys_stats.read(_text(found.path))
        except (OSError, ValueError) as error:
            _, reason, detail = Fault.of("", error)
            yield self._failed(found, reason, detail)
            return
        self._done[found.path] = found.state
        self._outcomes["read"] += 1
        if stem not in self._sums and len(self._sums) >= _MAX_RESULTS:
            self._sums.pop(next(iter(self._sums)))
        sums = self._sums.setdefault(stem, {})
        for kind in {row.kind for row in rows}:
            sums[kind] = [row for row in rows if row.kind == kind]
        if not sums.get("kernel"):
            return
        rank = _rank(None, found.name)
        labels = (found.run, "" if rank is None else str(rank))
        wall = found.state.written / 1e9
        former = self._shown.get(labels)
        if former is None or former.wall <= wall:
            self._shown[labels] = _Shown(wall, wall, tuple(_sums_samples(labels, wall, sums)))


def _text(path: str) -> str:
    """Return a small file's text. Raises `Malformed` if it is a large one."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:  # noqa: PTH123 - a descriptor
        data = file.read(_LARGEST_TABLE + 1)
    if len(data) > _LARGEST_TABLE:
        raise Malformed(f"a table of more than {_LARGEST_TABLE} bytes")
    return data.decode("utf-8-sig", "replace")


def _rank(told: object, name: str) -> int | None:
    """Return the rank that a profile tells, else the one in its file's name."""
    if isinstance(told, int) and 0 <= told < _MAX_RANK:
        return told
    match = _RANK.search(name)
    return int(match[1]) if match and int(match[1]) < _MAX_RANK else None


def _wall(told: Mapping[str, Any], found: Found) -> float:
    """Return when the span ended, in Unix seconds; the file's time where it is not told.

    Before PyTorch 2.1 times in a trace were Unix time, since then they count from a base.
    """
    written = found.state.written / 1e9
    if "end" not in told:
        return written
    wall = (told.get("base", 0) + told["end"]) / 1e9
    return float(wall) if 1e9 < wall <= written + 86400 else written


def _profile(run: str, rank: int | None, wall: float, summary: Mapping[str, Any]) -> Profile:
    return Profile(
        run=run, rank=rank, wall=wall, seconds=summary["seconds"], matmul=summary["matmul"],
        memory_bound=summary["memory_bound"], exposed_communication=summary["exposed"],
        copies=summary["copies"], idle=summary["idle"], communication=summary["communication"],
        launches=summary["kernels"], starved=summary["starved"],
    )  # fmt: skip


_KINDS = {
    "matmul": "matmul", "memory_bound": "memory_bound", "exposed_communication": "exposed",
    "copies": "copies", "idle": "idle",
}  # fmt: skip


def _samples(labels: tuple[str, str], wall: float, told: Mapping[str, Any]) -> Iterator[Sample]:
    yield c.TRAIN_PROFILE_INFO(1, *labels, told["format"], told.get("device") or "")
    yield c.TRAIN_PROFILE_TIMESTAMP_SECONDS(wall, *labels)
    if told.get("steps"):
        yield c.TRAIN_PROFILE_STEPS(told["steps"], *labels)
        yield c.TRAIN_PROFILE_STEP_SECONDS(told["stepping"] / told["steps"], *labels)
    for kind in ("allocated", "reserved"):
        if told.get(kind):
            yield c.TRAIN_PROFILE_MEMORY_PEAK_BYTES(told[kind], *labels, kind)
    for operator, (_, _, size) in list(told.get("operators", {}).items())[:TOP]:
        labelled = (*labels, operator, told["memory"])
        yield c.TRAIN_PROFILE_OPERATOR_ALLOCATED_BYTES(size, *labelled)
    summary = told.get("summary")
    yield c.TRAIN_PROFILE_KERNELS(0 if summary is None else summary["kernels"], *labels)
    if summary is None:
        return
    span = summary["seconds"]
    yield c.TRAIN_PROFILE_SPAN_SECONDS(span, *labels)
    yield c.TRAIN_PROFILE_LAUNCH_SECONDS(summary["launching"], *labels)
    if span > 0:
        for kind, key in _KINDS.items():
            yield c.TRAIN_PROFILE_TIME_RATIO(summary[key] / span, *labels, kind)
        yield c.TRAIN_PROFILE_COMMUNICATION_RATIO(summary["communication"] / span, *labels)
        if summary["starved"] is not None:
            yield c.TRAIN_PROFILE_STARVED_RATIO(summary["starved"] / span, *labels)
    if summary["overlap"] is not None:
        yield c.TRAIN_PROFILE_COMMUNICATION_OVERLAP_RATIO(summary["overlap"], *labels)
    classes = {name: Total(*total) for name, total in told["classes"].items()}
    yield from _totals(labels, classes, told["top_kernels"])
    for operation, (_, seconds, size) in list(told["operations"].items())[:TOP]:
        yield c.TRAIN_PROFILE_MEMORY_OPERATION_SECONDS(seconds, *labels, operation)
        yield c.TRAIN_PROFILE_MEMORY_OPERATION_BYTES(size, *labels, operation)
    yield from _pattern(labels, told["pattern"])


def _totals(
    labels: tuple[str, str], classes: Mapping[str, Total], top: Mapping[str, Any]
) -> Iterator[Sample]:
    for name, total in classes.items():
        yield c.TRAIN_PROFILE_CLASS_SECONDS(total.seconds, *labels, name)
        yield c.TRAIN_PROFILE_CLASS_KERNELS(total.number, *labels, name)
    for name, (number, seconds, *_) in list(top.items())[:TOP]:
        yield c.TRAIN_PROFILE_KERNEL_SECONDS(seconds, *labels, name)
        yield c.TRAIN_PROFILE_KERNEL_CALLS(number, *labels, name)


def _pattern(labels: tuple[str, str], pattern: str | None) -> Iterator[Sample]:
    if pattern is not None:
        for one in PATTERNS:
            yield c.TRAIN_PROFILE_PATTERN(int(one == pattern), *labels, one)


def _sums_samples(
    labels: tuple[str, str], wall: float, sums: Mapping[str, list[nsys_stats.Row]]
) -> Iterator[Sample]:
    """Yield what sums show: no shares of time, for they know no gaps."""
    yield c.TRAIN_PROFILE_INFO(1, *labels, "nsys_stats", "")
    yield c.TRAIN_PROFILE_TIMESTAMP_SECONDS(wall, *labels)
    rows = sums["kernel"]
    classes = dict.fromkeys(CLASSES, Total(0, 0.0))
    names: dict[str, Total] = {}
    for row in rows:
        for key, totals in ((class_of(row.name), classes), (short(row.name), names)):
            former = totals.get(key, Total(0, 0.0))
            totals[key] = Total(former.number + row.number, former.seconds + row.seconds)
    copies, launching = None, None
    if "copy" in sums:
        copies = sum(row.seconds for row in sums["copy"])
        number = sum(row.number for row in sums["copy"])
        classes["copy"] = Total(number, copies)
    if "call" in sums:
        launching = sum(row.seconds for row in sums["call"] if "Launch" in row.name)
        yield c.TRAIN_PROFILE_LAUNCH_SECONDS(launching, *labels)
    yield c.TRAIN_PROFILE_KERNELS(sum(row.number for row in rows), *labels)
    top = dict(sorted(names.items(), key=lambda one: -one[1].seconds)[:TOP])
    yield from _totals(labels, classes, top)
    ranked = sorted(sums.get("copy", ()), key=lambda row: -row.seconds)
    for name, seconds in {row.name[:96]: row.seconds for row in ranked[:TOP]}.items():
        yield c.TRAIN_PROFILE_MEMORY_OPERATION_SECONDS(seconds, *labels, name)
    yield from _pattern(labels, pattern_of_sums(classes, launching, copies))
