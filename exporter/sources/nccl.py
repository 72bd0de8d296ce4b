"""Collectives: NCCL Inspector's dumps and NCCL's logs as they grow, and what test tools printed.

All are looked for in the same directories and told apart by how they begin. A dump is a file to
which each process of a job appends a line for each operation; only what is new is read, and at most
`budget` bytes in one read. Series of a process appear when its dump has been read to its end once:
a counter that climbs through the past would look like traffic. Test outputs are read once each.
Where dumps of several ranks tell of the same collective, waiting is told from transmission.

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
from exporter.formats import bandwidth_tests, nccl_inspector, nccl_log
from exporter.profiling.folder import Folder, Found, State, clean
from exporter.profiling.waits import Waits
from exporter.samples import Drop, Fault, Malformed, Sample

SIZES = (
    (64 << 10, "64KiB"), (1 << 20, "1MiB"), (16 << 20, "16MiB"), (256 << 20, "256MiB"),
    (1 << 62, "inf"),
)  # fmt: skip
"""Classes of message sizes: upper bounds (not included), and what they are called."""
LARGE = frozenset({"256MiB", "inf"})
"""Classes from 16 MiB on, of which bandwidth decides and not latency."""
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


class _Measured(NamedTuple):
    """An operation whose bus bandwidth was told, and between how many ranks on how many nodes."""

    seconds: float
    bandwidth: float
    ranks: int
    nodes: int


@dataclass(slots=True)
class _Tally:
    """Sums over operations of one kind and class of sizes, and the last of them."""

    number: int = 0
    seconds: float = 0.0
    bytes: int = 0
    last: deque[_Measured] = field(default_factory=lambda: deque(maxlen=_LAST))


@dataclass(slots=True)
class _File:
    """A file that is followed: how far it was read, and whether to its end once."""

    path: str
    run: str
    position: int = 0
    rest: bytes = b""
    skipping: bool = False
    whole: bool = False


@dataclass(slots=True)
class _Log(_File):
    """NCCL's own log."""

    told: nccl_log.Log = field(default_factory=nccl_log.Log)


@dataclass(slots=True)
class _Dump(_File):
    """A dump, and what it has told."""

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
            tally.last.append(_Measured(one.seconds, one.bandwidth, one.ranks, one.nodes))
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
    """Watches directories for dumps of NCCL Inspector, NCCL's logs, and outputs of test tools.

    nccl_operations_total{run="llama",rank="2",collective="AllReduce",size="inf"} 812
    nccl_bus_bandwidth_bytes_per_second{run="llama",rank="2",collective="AllReduce",
      size="inf"} 4.851e+11
    nccl_communication_upper_bound_ratio{run="llama",rank="2"} 0.41
    nccl_wait_seconds_total{run="llama",rank="2"} 812.4
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
        self._logs: dict[str, _Log] = {}
        self._waits = Waits()
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
        self._logs = {path: log for path, log in self._logs.items() if path in there}
        self._waits.keep(self._dumps)
        self._done = {path: state for path, state in self._done.items() if path in there}
        yield from self._follow_all([found for found, _ in looked])
        for found, settled in looked:
            if self._is_news(found):
                yield from self._look_into(found, settled=settled)
        self._waits.settle()
        if self._malformed:
            yield Drop("malformed", self._malformed)
            self._malformed = 0
        for outcome, number in self._outcomes.items():
            yield c.NCCL_FILES_TOTAL(number, outcome)
        yield from self._operations()
        yield from self._sharp()
        for shown in self._tests.values():
            yield from shown.samples

    def close(self) -> None:
        """Nothing is held open."""

    def _is_news(self, found: Found) -> bool:
        return (
            found.path not in self._dumps
            and found.path not in self._logs
            and self._done.get(found.path) != found.state
            and found.state.size > 0
            and self._clock.time() - found.state.written / 1e9 <= self._max_age
        )

    # ------------------------------------------------------------ dumps

    def _follow_all(self, looked: list[Found]) -> Iterator[Fault]:
        left = self._budget
        for found in looked:
            file = self._dumps.get(found.path) or self._logs.get(found.path)
            if file is None:
                continue
            try:
                left -= self._follow(file, found, left)
            except OSError as error:
                _, reason, detail = Fault.of("", error)
                yield Fault(clean(found.path), reason, clean(detail))
            if left <= 0:
                return

    def _follow(self, file: _File, found: Found, most: int) -> int:
        """Read what is new in a file, at most so many bytes; return how many were."""
        size = found.state.size
        if size < file.position:  # written anew
            file = self._begin(found, type(file))
        most = min(most, size - file.position)
        taken = 0
        if most > 0:
            fd = _open(found.path)
            try:
                while taken < most:
                    chunk = os.pread(fd, min(_CHUNK, most - taken), file.position)
                    if not chunk:
                        break
                    file.position += len(chunk)
                    taken += len(chunk)
                    self._take(file, chunk)
            finally:
                os.close(fd)
        file.whole = file.whole or file.position >= size
        return taken

    def _begin(self, found: Found, kind: type[_File]) -> _File:
        """Follow a file from its beginning."""
        if kind is _Log:
            log = self._logs[found.path] = _Log(found.path, found.run)
            return log
        dump = self._dumps[found.path] = _Dump(found.path, found.run)
        return dump

    def _take(self, file: _File, chunk: bytes) -> None:
        if isinstance(file, _Log):
            file.told.feed(chunk)
            return
        *lines, rest = (file.rest + chunk).split(b"\n")
        if file.skipping and lines:
            del lines[0]
            file.skipping = False
        if len(rest) > _LONGEST_LINE:
            self._malformed += not file.skipping
            rest, file.skipping = b"", True
        file.rest = rest
        for line in lines:
            if line.strip() and isinstance(file, _Dump):
                self._take_line(file, line)

    def _take_line(self, file: _Dump, line: bytes) -> None:
        try:
            if (one := nccl_inspector.read(line)) is not None:
                file.take(one)
                self._waits.take(file.path, one)
        except Malformed:
            self._malformed += 1

    def _sharp(self) -> Iterator[Sample]:
        """Yield what the logs of each run say of SHARP: one that has it is enough."""
        found: dict[str, bool] = {}
        for log in self._logs.values():
            if log.whole and log.told.sharp is not None:
                found[log.run] = found.get(log.run, False) or log.told.sharp
        for run, so in found.items():
            yield c.NCCL_COLLNET_LOGGED(int(so), run)

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
            sums = [self._waits.sums[one.path] for one in dumps if one.path in self._waits.sums]
            if sums:
                yield c.NCCL_WAIT_SECONDS_TOTAL(math.fsum(one.waited for one in sums), *labels)
                yield c.NCCL_TRANSFER_SECONDS_TOTAL(math.fsum(one.moved for one in sums), *labels)
                yield c.NCCL_MATCHED_OPERATIONS_TOTAL(sum(one.number for one in sums), *labels)

    # ------------------------------------------------------------ tests

    def _look_into(self, found: Found, *, settled: bool) -> Iterator[Fault]:
        """Find out what a new file is, and read it if it is a test's output that is finished.

        Dumps and logs are followed at once: those of a busy job never rest between two looks.
        """
        try:
            fd = _open(found.path)
            try:
                first = os.pread(fd, _FIRST, 0)
                kind = _kind(first)
                if kind is not None:
                    if len(self._dumps) + len(self._logs) < _MAX_DUMPS:
                        self._begin(found, kind)
                        return
                    raise Malformed(f"more than {_MAX_DUMPS} dumps and logs")
                if not settled:
                    return
                if found.state.size > _LARGEST_TEST:
                    raise Malformed(f"a test's output of more than {_LARGEST_TEST} bytes")
                text = os.pread(fd, _LARGEST_TEST, 0).decode("utf-8", "replace")
            finally:
                os.close(fd)
            report = bandwidth_tests.read(text, found.name)
        except (OSError, ValueError) as error:
            self._done[found.path] = found.state
            self._outcomes["failed"] += 1
            _, reason, detail = Fault.of("", error)
            yield Fault(clean(found.path), reason, clean(detail))
            return
        self._done[found.path] = found.state
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


def _kind(first: bytes) -> type[_File] | None:
    """Return as what to follow a file that begins like this; tests print a log of NCCL as well."""
    if nccl_inspector.is_dump(first):
        return _Dump
    return _Log if nccl_log.is_log(first) and b"_perf" not in first else None


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _tally_samples(labels: tuple[str, ...], tallies: list[_Tally]) -> Iterator[Sample]:
    yield c.NCCL_OPERATIONS_TOTAL(sum(one.number for one in tallies), *labels)
    yield c.NCCL_OPERATION_SECONDS_TOTAL(math.fsum(one.seconds for one in tallies), *labels)
    yield c.NCCL_OPERATION_BYTES_TOTAL(sum(one.bytes for one in tallies), *labels)
    last = [measured for one in tallies for measured in one.last]
    time = math.fsum(one.seconds for one in last)
    if time > 0:
        mean = math.fsum(one.seconds * one.bandwidth for one in last) / time
        yield c.NCCL_BUS_BANDWIDTH_BYTES_PER_SECOND(mean, *labels)
        groups = {(one.ranks, one.nodes) for one in last}
        # A mean over several kinds of communicators belongs to none of them.
        if labels[-1] in LARGE and len(groups) == 1:
            ranks, nodes = groups.pop()
            yield c.NCCL_COMMUNICATOR_INFO(1, *labels, str(ranks), str(nodes))


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
