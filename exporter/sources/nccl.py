"""Collectives: NCCL Inspector's dumps as they grow, and what test tools have printed.

Both are looked for in the same directories and told apart by how they begin. A dump is a file to
which each process of a job appends a line for each operation; only what is new is read, and at most
`budget` bytes in one read. Series of a process appear when its dump has been read to its end once:
a counter that climbs through the past would look like traffic. Test outputs are read once each.

Faults: a file that cannot be read, a test's output that makes no sense (once, until it changes).
Drops: `malformed`, the lines of dumps that make no sense.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.formats import bandwidth_tests, nccl_inspector
from exporter.profiling.folder import Folder, Found, State, clean
from exporter.samples import Drop, Fault, Malformed, Sample

SIZES = (
    (64 << 10, "64KiB"), (1 << 20, "1MiB"), (16 << 20, "16MiB"), (256 << 20, "256MiB"),
    (1 << 62, "inf"),
)  # fmt: skip
"""Classes of message sizes: upper bounds (not included), and what they are called."""
SMALL = 64 << 10
"""Messages of fewer bytes are small: latency, not bandwidth, is what they cost."""

_BOUNDS = [bound - 1 for bound, _ in SIZES]
_WINDOW = 60
_STALE = 120.0
_LAST = 100
_FIRST = 4096
_LARGEST_TEST = 4 << 20
_LONGEST_LINE = 1 << 20
_CHUNK = 1 << 18
_MAX_DUMPS = 512
_MAX_TESTS = 256
_MAX_NAMES = 32
_LARGEST_SIZES = 32
"""So many message sizes of a test are told, the largest."""

_Key = tuple[str, str]


class _Second(NamedTuple):
    """What was written down in one second."""

    at: int
    number: int
    small: int
    seconds: float


@dataclass(slots=True)
class _Tally:
    """Sums over operations of one kind and class of sizes, and the last of them."""

    number: int = 0
    seconds: float = 0.0
    bytes: int = 0
    last: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_LAST))


@dataclass(slots=True)
class _Dump:
    """A dump that is followed: how far it was read, and what it has told."""

    run: str
    position: int = 0
    rest: bytes = b""
    skipping: bool = False
    whole: bool = False
    rank: int = 0
    ranks: int = 0
    tallies: dict[_Key, _Tally] = field(default_factory=dict)
    recent: deque[_Second] = field(default_factory=lambda: deque(maxlen=_WINDOW + 1))

    def take(self, one: nccl_inspector.Operation) -> None:
        """Count an operation."""
        if one.ranks > self.ranks:
            self.rank, self.ranks = one.rank, one.ranks
        size = SIZES[bisect_left(_BOUNDS, one.size)][1]
        key = (one.name, size)
        tally = self.tallies.get(key)
        if tally is None:
            if len(self.tallies) >= _MAX_NAMES * len(SIZES):
                raise Malformed("more kinds of operations than NCCL has")
            tally = self.tallies[key] = _Tally()
        tally.number += 1
        tally.seconds += one.seconds
        tally.bytes += one.size
        if one.bandwidth is not None:
            tally.last.append((one.seconds, one.bandwidth))
        at = int(one.wall)
        former = self.recent[-1] if self.recent else None
        if former is None or at > former.at:
            self.recent.append(_Second(at, 1, int(one.size < SMALL), one.seconds))
        else:
            self.recent[-1] = _Second(
                former.at, former.number + 1, former.small + (one.size < SMALL),
                former.seconds + one.seconds,
            )  # fmt: skip


class _Shown(NamedTuple):
    wall: float
    samples: tuple[Sample, ...]


class NcclSource:
    """Watches directories for dumps of NCCL Inspector and outputs of nccl-tests and perftest.

    nccl_operations_total{run="llama",rank="2",collective="AllReduce",size="inf"} 812
    nccl_bus_bandwidth_bytes_per_second{run="llama",rank="2",collective="AllReduce",
      size="inf"} 4.851e+11
    nccl_communication_upper_bound_ratio{run="llama",rank="2"} 0.41
    nccl_test_bus_bandwidth_bytes_per_second{run="fabric",test="all_reduce",placement="out",
      size_bytes="8589934592"} 4.7e+11
    nic_rdma_test_bandwidth_bytes_per_second{run="fabric",test="rdma_write",device="mlx5_0",
      size_bytes="65536"} 4.88e+10
    """

    name = "nccl"
    group = c.NCCL

    def __init__(
        self,
        folder: Folder,
        clock: Clock,
        *,
        budget: int = 8 << 20,
        max_age: float = 7 * 86400.0,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._budget = budget
        self._max_age = max_age
        self._dumps: dict[str, _Dump] = {}
        self._done: dict[str, State] = {}
        self._tests: dict[tuple[str, ...], _Shown] = {}
        self._outcomes = dict.fromkeys(("read", "failed"), 0)
        self._malformed = 0

    def read(self) -> Iterator[Sample | Fault | Drop]:
        """Read on in all dumps, read new outputs of tests, and yield what is known."""
        looked = self._folder.look()
        for path, error in self._folder.problems.items():
            yield Fault.of(clean(path), error)
        if self._folder.crowded:
            yield Fault("directories", "denied", "more entries than are looked at")
        there = {found.path for found, _ in looked}
        self._dumps = {path: dump for path, dump in self._dumps.items() if path in there}
        self._done = {path: state for path, state in self._done.items() if path in there}
        yield from self._follow_all([found for found, _ in looked])
        for found, settled in looked:
            if settled and self._is_news(found):
                yield from self._look_into(found)
        if self._malformed:
            yield Drop("malformed", self._malformed)
            self._malformed = 0
        for outcome, number in self._outcomes.items():
            yield c.NCCL_FILES_TOTAL(number, outcome)
        yield from self._operations()
        for shown in self._tests.values():
            yield from shown.samples

    def close(self) -> None:
        """Nothing is held open."""

    def _is_news(self, found: Found) -> bool:
        return (
            found.path not in self._dumps
            and self._done.get(found.path) != found.state
            and found.state.size > 0
            and self._clock.time() - found.state.written / 1e9 <= self._max_age
        )

    # ------------------------------------------------------------ dumps

    def _follow_all(self, looked: list[Found]) -> Iterator[Fault]:
        left = self._budget
        for found in looked:
            dump = self._dumps.get(found.path)
            if dump is None:
                continue
            try:
                left -= self._follow(dump, found, left)
            except OSError as error:
                _, reason, detail = Fault.of("", error)
                yield Fault(clean(found.path), reason, clean(detail))
            if left <= 0:
                return

    def _follow(self, dump: _Dump, found: Found, most: int) -> int:
        """Read what is new in a dump, at most so many bytes; return how many were."""
        size = found.state.size
        if size < dump.position:  # written anew
            self._dumps[found.path] = dump = _Dump(dump.run)
        most = min(most, size - dump.position)
        taken = 0
        if most > 0:
            fd = _open(found.path)
            try:
                while taken < most:
                    chunk = os.pread(fd, min(_CHUNK, most - taken), dump.position)
                    if not chunk:
                        break
                    dump.position += len(chunk)
                    taken += len(chunk)
                    self._take(dump, chunk)
            finally:
                os.close(fd)
        dump.whole = dump.whole or dump.position >= size
        return taken

    def _take(self, dump: _Dump, chunk: bytes) -> None:
        *lines, rest = (dump.rest + chunk).split(b"\n")
        if dump.skipping and lines:
            del lines[0]
            dump.skipping = False
        if len(rest) > _LONGEST_LINE:
            self._malformed += not dump.skipping
            rest, dump.skipping = b"", True
        dump.rest = rest
        for line in lines:
            if not line.strip():
                continue
            try:
                if (one := nccl_inspector.read(line)) is not None:
                    dump.take(one)
            except Malformed:
                self._malformed += 1

    def _operations(self) -> Iterator[Sample]:
        """Yield what the dumps tell; those of one run and rank together."""
        now = self._clock.time()
        found: dict[tuple[str, str], list[_Dump]] = {}
        for dump in self._dumps.values():
            if dump.whole and dump.ranks:
                found.setdefault((dump.run, str(dump.rank)), []).append(dump)
        for labels, dumps in found.items():
            for key in dict.fromkeys(key for dump in dumps for key in dump.tallies):
                tallies = [dump.tallies[key] for dump in dumps if key in dump.tallies]
                yield from _tally_samples((*labels, *key), tallies)
            yield from _recent_samples(labels, dumps, now)

    # ------------------------------------------------------------ tests

    def _look_into(self, found: Found) -> Iterator[Fault]:
        """Find out what a new file is, and read it if it is a test's output."""
        self._done[found.path] = found.state
        try:
            fd = _open(found.path)
            try:
                first = os.pread(fd, _FIRST, 0)
                if nccl_inspector.is_dump(first):
                    if len(self._dumps) < _MAX_DUMPS:
                        self._dumps[found.path] = _Dump(found.run)
                        return
                    raise Malformed(f"more than {_MAX_DUMPS} dumps")
                if found.state.size > _LARGEST_TEST:
                    raise Malformed(f"a test's output of more than {_LARGEST_TEST} bytes")
                text = os.pread(fd, _LARGEST_TEST, 0).decode("utf-8", "replace")
            finally:
                os.close(fd)
            report = bandwidth_tests.read(text, found.name)
        except (OSError, ValueError) as error:
            self._outcomes["failed"] += 1
            _, reason, detail = Fault.of("", error)
            yield Fault(clean(found.path), reason, clean(detail))
            return
        self._outcomes["read"] += 1
        self._keep(found, report)

    def _keep(self, found: Found, report: bandwidth_tests.Report) -> None:
        wall = found.state.written / 1e9
        key = (report.tool, found.run, report.test, report.device)
        former = self._tests.get(key)
        if former is not None and former.wall > wall:
            return
        if former is None and len(self._tests) >= _MAX_TESTS:
            self._tests.pop(min(self._tests, key=lambda one: self._tests[one].wall))
        self._tests[key] = _Shown(wall, tuple(_test_samples(found.run, wall, report)))


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _tally_samples(labels: tuple[str, ...], tallies: list[_Tally]) -> Iterator[Sample]:
    yield c.NCCL_OPERATIONS_TOTAL(sum(one.number for one in tallies), *labels)
    yield c.NCCL_OPERATION_SECONDS_TOTAL(math.fsum(one.seconds for one in tallies), *labels)
    yield c.NCCL_OPERATION_BYTES_TOTAL(sum(one.bytes for one in tallies), *labels)
    last = [pair for one in tallies for pair in one.last]
    time = math.fsum(seconds for seconds, _ in last)
    if time > 0:
        mean = math.fsum(seconds * bandwidth for seconds, bandwidth in last) / time
        yield c.NCCL_BUS_BANDWIDTH_BYTES_PER_SECOND(mean, *labels)


def _recent_samples(labels: tuple[str, str], dumps: list[_Dump], now: float) -> Iterator[Sample]:
    """Yield the shares of the last minute that was written down, unless that is long ago."""
    seconds = [one for dump in dumps for one in dump.recent]
    latest = max((one.at for one in seconds), default=0)
    seconds = [one for one in seconds if one.at > latest - _WINDOW]
    if not seconds or now - latest > _STALE:
        return
    number = sum(one.number for one in seconds)
    yield c.NCCL_SMALL_MESSAGE_RATIO(sum(one.small for one in seconds) / number, *labels)
    # A dump holds what has ended since the one before: the first tells of an unknown time.
    first = min(one.at for one in seconds)
    if latest > first:
        busy = math.fsum(one.seconds for one in seconds if one.at > first)
        ratio = min(1.0, busy / (latest - first))
        yield c.NCCL_COMMUNICATION_UPPER_BOUND_RATIO(ratio, *labels)


def _test_samples(run: str, wall: float, report: bandwidth_tests.Report) -> Iterator[Sample]:
    rows: dict[tuple[int, str], Any] = {
        (one.size, one.placement): one.bandwidth for one in report.results
    }
    largest = sorted({size for size, _ in rows})[-_LARGEST_SIZES:]
    told = {key: value for key, value in rows.items() if key[0] >= largest[0]}
    if report.tool == "perftest":
        labels = (run, report.test, report.device)
        for (size, _), value in told.items():
            yield c.NIC_RDMA_TEST_BANDWIDTH_BYTES_PER_SECOND(value, *labels, str(size))
        yield c.NIC_RDMA_TEST_TIMESTAMP_SECONDS(wall, *labels)
        return
    for (size, placement), value in told.items():
        yield c.NCCL_TEST_BUS_BANDWIDTH_BYTES_PER_SECOND(
            value, run, report.test, placement, str(size)
        )
    if report.average is not None:
        yield c.NCCL_TEST_AVERAGE_BUS_BANDWIDTH_BYTES_PER_SECOND(report.average, run, report.test)
    if report.wrong is not None:
        yield c.NCCL_TEST_WRONG_VALUES(report.wrong, run, report.test)
    yield c.NCCL_TEST_TIMESTAMP_SECONDS(wall, run, report.test)
