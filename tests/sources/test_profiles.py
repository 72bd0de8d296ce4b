"""Profiles that are dropped into a directory, read by real child processes."""

from __future__ import annotations

import gzip
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from exporter import catalogue as c
from exporter.clock import SystemClock
from exporter.isolate import Errand, Limits
from exporter.profiling.folder import Directory, Folder
from exporter.samples import Fault, Gate, Metric, Sample
from exporter.sources.profiles import Bounds, ProfilesSource
from exporter.training import TrainingLedger
from exporter.training.records import Facts, Profile
from tests.trace_truth import BASE, Truth, events_of, scenario, text_of, truth_of, write

BOUNDS = Bounds()
NSYS = {
    "cuda_gpu_kern_sum": "Time (%),Total Time (ns),Instances,Avg (ns),Name\n"
    '60.0,6000000,3,2000000.0,"void gemm<int, float>(int, float *)"\n'
    "40.0,4000000,1,4000000.0,ncclDevKernel_AllReduce\n",
    "cuda_api_sum": "Time (%),Total Time (ns),Num Calls,Avg (ns),Name\n"
    "60.0,1200000,4,300000.0,cudaLaunchKernel\n40.0,800000,1,800000.0,cudaDeviceSynchronize\n",
    "cuda_gpu_mem_time_sum": "Time (%),Total Time (ns),Count,Avg (ns),Operation\n"
    "100.0,5000,4,1250.0,[CUDA memcpy Host-to-Device]\n",
}
EXCERPT = Path(__file__).parent.parent / "data" / "kineto" / "cpu-rank0-excerpt.pt.trace.json"


class Desk:
    """A source over a directory, with what it has told."""

    def __init__(self, directory: Path, bounds: Bounds = BOUNDS, **options: Any) -> None:
        self.directory = directory
        self.ledger = TrainingLedger()
        self.errands: list[Errand] = []
        self.faults: list[Fault] = []
        self.samples: list[Sample] = []
        self.bounds = bounds
        self.seconds = 60.0
        folder = Folder([Directory(directory, **options)])
        self.source = ProfilesSource(folder, self.ledger, self.begin, SystemClock(), bounds)

    def begin(self, options: Mapping[str, Any]) -> Errand:
        limits = Limits(self.bounds.memory, self.seconds)
        self.errands.append(Errand("profile", options, limits, clock=SystemClock()))
        return self.errands[-1]

    def read(self) -> None:
        if self.source._work is not None:
            threading.Event().wait(0.02)  # the child runs when nobody else wants to
        items = list(self.source.read())
        self.faults += [item for item in items if isinstance(item, Fault)]
        samples = [item for item in items if isinstance(item, Sample)]
        batch, drops = Gate(10_000).admit(samples)
        assert not drops
        self.samples = list(batch)

    def settle(self, *, waiting: int = 0, seconds: float = 120.0) -> None:
        """Read on until nothing more is to be done."""
        self.read()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.read()
            if self.value(c.TRAIN_PROFILE_FILES_WAITING) == waiting and not self.source._work:
                return
        pytest.fail(f"still at work: {self.faults}")

    def value(self, metric: Metric, *labels: str) -> float | None:
        found = [one.value for one in self.samples if one[:2] == (metric, labels)]
        assert len(found) < 2
        return found[0] if found else None  # type: ignore[return-value]

    def outcomes(self) -> tuple[float | None, ...]:
        return tuple(
            self.value(c.TRAIN_PROFILE_FILES_TOTAL, one) for one in ("read", "no_kernels", "failed")
        )

    def profiles(self, run: str) -> Mapping[int | None, Profile]:
        return next(one.profiles for one in self.ledger.runs(time.monotonic()) if one.name == run)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.source.close()


def put(
    path: Path, seed: int = 0, rank: int | None = 0, *, later: int = 0, **options: Any
) -> Truth:
    """Write a trace that was recorded so many seconds later than others; return its truth."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = scenario(seed)
    write(path, events_of(found, **options), rank=rank, base=BASE + later * 10**9)
    return truth_of(found)


def test_a_trace_becomes_a_profile_and_gauges(desk: Desk) -> None:
    """TensorBoard's file names, packed and plain; the run is the folder, the rank the trace's."""
    truths = [
        put(desk.directory / "llama" / "node1_4242.1795972765123.pt.trace.json.gz", 1, 0),
        put(desk.directory / "llama" / "node1_4243.1795972765124.pt.trace.json", 2, 1),
    ]
    desk.settle()
    assert desk.faults == []
    assert desk.outcomes() == (2, 0, 0)
    for rank, truth in enumerate(truths):
        labels = ("llama", str(rank))
        span = truth.span / 1e6
        assert desk.value(c.TRAIN_PROFILE_SPAN_SECONDS, *labels) == pytest.approx(span)
        assert desk.value(c.TRAIN_PROFILE_KERNELS, *labels) == truth.kernels
        ratios = {
            kind: desk.value(c.TRAIN_PROFILE_TIME_RATIO, *labels, kind)
            for kind in ("matmul", "memory_bound", "exposed_communication", "copies", "idle")
        }
        wanted = (truth.matmul, truth.memory_bound, truth.exposed, truth.copies, truth.idle)
        assert list(ratios.values()) == pytest.approx([one / truth.span for one in wanted])
        overlap = desk.value(c.TRAIN_PROFILE_COMMUNICATION_OVERLAP_RATIO, *labels)
        assert overlap == pytest.approx(1 - truth.exposed / truth.communication)
        profile = desk.profiles("llama")[rank]
        parts = [profile.matmul, profile.memory_bound, profile.exposed_communication,
                 profile.copies, profile.idle]  # fmt: skip
        assert sum(parts) == pytest.approx(profile.seconds) == pytest.approx(span)
        assert (profile.launches, profile.starved) == (
            truth.kernels, pytest.approx(truth.starved / 1e6),
        )  # fmt: skip
    run = desk.ledger.runs(time.monotonic())[0]
    assert run.facts["trace"] == Facts(run="llama", world_size=2)


def test_a_trace_of_a_cpu_alone_has_no_kernels_and_no_overlap(desk: Desk) -> None:
    """It is no failure, and no Profile: nothing is known of a GPU."""
    (desk.directory / "rank0.pt.trace.json").write_bytes(EXCERPT.read_bytes())
    desk.settle()
    labels = (desk.directory.name, "0")
    assert desk.outcomes() == (0, 1, 0)
    assert desk.value(c.TRAIN_PROFILE_KERNELS, *labels) == 0
    assert desk.value(c.TRAIN_PROFILE_STEPS, *labels) == 2
    mean = (35_727.477e-6 + 30_604.726e-6) / 2
    assert desk.value(c.TRAIN_PROFILE_STEP_SECONDS, *labels) == pytest.approx(mean)
    told = {sample.metric for sample in desk.samples}
    assert not told & {c.TRAIN_PROFILE_COMMUNICATION_OVERLAP_RATIO, c.TRAIN_PROFILE_TIME_RATIO}
    assert desk.profiles(desk.directory.name) == {}


def test_operators_that_took_memory_are_told(desk: Desk) -> None:
    """A recorded trace with memory; nine products took 491520 bytes."""
    name = "cpu-memory.pt.trace.json.gz"
    (desk.directory / name).write_bytes((EXCERPT.parent / name).read_bytes())
    desk.settle()
    labels = (desk.directory.name, "", "aten::mm", "host")
    assert desk.value(c.TRAIN_PROFILE_OPERATOR_ALLOCATED_BYTES, *labels) == 491520
    told = [one for one in desk.samples if one[0] is c.TRAIN_PROFILE_OPERATOR_ALLOCATED_BYTES]
    assert len(told) == 10


def test_a_half_written_trace_waits_for_its_end(desk: Desk) -> None:
    """The profiler writes for minutes, with pauses."""
    text = text_of(events_of(scenario(1)))
    path = desk.directory / "x.pt.trace.json"
    path.write_text(text[: len(text) // 2])
    desk.settle(waiting=1)
    assert desk.errands == []
    path.write_text(text)
    desk.settle()
    assert desk.outcomes() == (1, 0, 0)


@pytest.mark.parametrize("name", ["x.pt.trace.json", "x.pt.trace.json.gz"])
def test_a_half_that_looks_whole_waits_too(desk: Desk, name: str) -> None:
    """Packed, or cut behind an event's bracket: it is tried, and no failure while it is young."""
    path = desk.directory / name
    write(path, events_of(scenario(1)))
    whole = path.read_bytes()
    half = whole[: whole.rindex(b"}", 0, len(whole) // 2) + 1]
    path.write_bytes(half)
    desk.read()
    desk.read()
    while desk.source._work is not None:
        desk.read()
    desk.settle(waiting=1)
    assert (desk.faults, len(desk.errands)) == ([], 1)
    path.write_bytes(whole)
    desk.settle()
    assert desk.outcomes() == (1, 0, 0)


def test_a_half_that_nobody_goes_on_with_is_told(desk: Desk) -> None:
    """After ten minutes its writer has died."""
    path = desk.directory / "x.pt.trace.json"
    path.write_text(text_of(events_of(scenario(1)))[:5000])
    os.utime(path, (time.time() - 700,) * 2)
    desk.settle()
    assert [fault[:2] for fault in desk.faults] == [(str(path), "malformed")]
    assert "middle" in desk.faults[0].detail


def test_files_that_are_no_traces_are_told_once_and_the_good_one_is_read(desk: Desk) -> None:
    """Cut off, a bomb's packing, nested without end, text, another JSON, an empty database."""
    folder = desk.directory
    whole = gzip.compress(text_of(events_of(scenario(3))).encode())
    bad: dict[str, bytes] = {
        "cut.json.gz": whole[: len(whole) // 2],
        "text.json": b"hello }",
        "packed-text.json.gz": gzip.compress(b"hello"),
        "no-gzip.json.gz": b"\x1f\x8b" + bytes(100),
        "crc.json.gz": whole[:-8] + bytes(8),
        "deep.json": b"[" * 3_000_000 + b"]",
        "deep-object.json": b'{"traceEvents":[' + b'{"a":' * 500_000 + b"}",
        "other.json": b'{"model_type": "llama"}',
        "long.json.gz": gzip.compress(b'{"a": "' + b"x" * 12_000_000 + b'"}'),
        "not-a-database.sqlite": b"SQLite format 3\0" + bytes(4096),
        "text.sqlite": b"hello",
        "table.csv": b"a,b,c\n1,2,3\n",
        "cut.csv": b"Time (%),Total Time (ns),Instances,Name\n3.0,55\n",
    }
    for name, content in bad.items():
        (folder / name).write_bytes(content)
        os.utime(folder / name, (time.time() - 700,) * 2)  # nobody goes on writing
    put(folder / "good.pt.trace.json", 4)
    desk.settle()
    assert sorted(Path(fault.part).name for fault in desk.faults) == sorted(bad)
    assert {fault.reason for fault in desk.faults} == {"malformed"}
    assert all(len(fault.detail) < 300 for fault in desk.faults)
    assert desk.outcomes() == (1, 0, len(bad))
    errands = len(desk.errands)
    desk.read()
    desk.read()
    assert len(desk.errands) == errands, "none is tried again"


def test_a_bomb_costs_what_its_content_may_be(tmp_path: Path) -> None:
    """A gigabyte of spaces packs to a megabyte."""
    with gzip.open(tmp_path / "bomb.json.gz", "wb", 9) as file:
        file.write(b'{"traceEvents": [')
        for _ in range(40):
            file.write(b" " * (1 << 20))
    desk = Desk(tmp_path, Bounds(max_expanded=16 << 20))
    desk.settle()
    assert "more than 16777216 bytes when unpacked" in desk.faults[0].detail


def test_more_kernels_than_the_memory_is_for_are_told_and_the_daemon_goes_on(
    tmp_path: Path,
) -> None:
    """No figure is better than that of a part; the next file is read as ever."""
    events = events_of(scenario(1))
    kernel = next(one for one in events if one["cat"] == "kernel")
    put(tmp_path / "small.pt.trace.json", 4)
    os.utime(tmp_path / "small.pt.trace.json", (time.time() - 60,) * 2)
    text = json.dumps(kernel)
    (tmp_path / "large.pt.trace.json").write_text(f"[{text}{f', {text}' * 60_000}]")
    desk = Desk(tmp_path, Bounds(memory=52 << 20))
    desk.settle()
    assert [Path(fault.part).name for fault in desk.faults] == ["large.pt.trace.json"]
    assert "more than 49152 kernels" in desk.faults[0].detail
    assert desk.outcomes() == (1, 0, 1)


def test_the_limit_of_memory_holds_in_the_child_whatever_is_in_the_file(tmp_path: Path) -> None:
    """Its address space ends there: it is not the pod that runs out."""
    (tmp_path / "x.json").write_text('{"a": "' + "x" * 8_000_000 + '"}')
    desk = Desk(tmp_path, Bounds(memory=28 << 20))
    desk.settle()
    assert desk.outcomes() == (0, 0, 1)
    assert desk.faults[0][1:] == ("unavailable", "needs more than 28 MiB of memory")


def test_a_child_that_is_killed_is_one_fault_and_not_tried_again(desk: Desk) -> None:
    """The kernel may take it when memory is short; it names the file."""
    path = desk.directory / "x.pt.trace.json"
    put(path, 1, cpu=20_000)
    while not desk.errands:
        desk.read()
    os.kill(desk.errands[0].pid, signal.SIGKILL)
    desk.settle()
    assert desk.faults == [
        Fault(str(path), "unavailable", "the child ended without an answer: SIGKILL")
    ]
    assert len(desk.errands) == 1


def test_a_file_that_takes_too_long_is_given_up(desk: Desk) -> None:
    """The clock of the daemon decides."""
    desk.seconds = 0.0
    put(desk.directory / "x.pt.trace.json", 1)
    desk.settle()
    assert [fault.reason for fault in desk.faults] == ["timeout"]


def test_a_file_that_is_written_again_is_read_again(desk: Desk) -> None:
    """A name may be used anew; what was shown is replaced."""
    path = desk.directory / "x.pt.trace.json"
    for seed in (1, 2):
        truth = put(path, seed, later=seed)
        os.utime(path, (time.time() - 100 + seed,) * 2)
        desk.settle()
        labels = (desk.directory.name, "0")
        assert desk.value(c.TRAIN_PROFILE_KERNELS, *labels) == truth.kernels
    assert desk.outcomes() == (2, 0, 0)


def test_a_file_that_changes_while_it_is_read_is_not_believed(tmp_path: Path) -> None:
    """What was read is half of one and half of another."""
    from exporter.profiling import reading

    path = tmp_path / "x.pt.trace.json"
    put(path, 1)
    former = reading._File.check
    try:
        reading._File.check = lambda self, inside: (former(self, inside), touch(path))  # type: ignore[assignment,method-assign,func-returns-value]
        with pytest.raises(OSError, match="changed while it was read"):
            reading.read_profile(str(path), str(tmp_path), 128 << 20, 1 << 30)
    finally:
        reading._File.check = former  # type: ignore[method-assign]


def touch(path: Path) -> None:
    with path.open("a") as file:
        file.write(" ")


def test_links_and_what_is_no_file_are_left_alone(desk: Desk, tmp_path_factory: Any) -> None:
    """A link out of the directory, a FIFO, a directory with a trace's name, hidden files."""
    outside = tmp_path_factory.mktemp("outside")
    put(outside / "x.pt.trace.json", 1)
    (desk.directory / "link.pt.trace.json").symlink_to(outside / "x.pt.trace.json")
    (desk.directory / "folder").symlink_to(outside)
    os.mkfifo(desk.directory / "fifo.json")
    (desk.directory / "directory.json").mkdir()
    put(desk.directory / ".hidden.json", 1)
    desk.settle()
    assert desk.faults == []
    assert desk.errands == []


def test_a_file_outside_is_refused_by_the_child_too(tmp_path: Path, tmp_path_factory: Any) -> None:
    """A folder may be replaced by a link between the look and the reading."""
    from exporter.profiling.reading import read_profile

    outside = tmp_path_factory.mktemp("outside")
    put(outside / "x.pt.trace.json", 1)
    (tmp_path / "folder").symlink_to(outside)
    with pytest.raises(PermissionError, match="outside"):
        read_profile(str(tmp_path / "folder" / "x.pt.trace.json"), str(tmp_path), 1 << 28, 1 << 30)
    (tmp_path / "x.json").symlink_to(outside / "x.pt.trace.json")
    with pytest.raises(OSError, match=r"[Ss]ymbolic|loop|links"):
        read_profile(str(tmp_path / "x.json"), str(tmp_path), 1 << 28, 1 << 30)


def test_ten_thousand_files_cost_one_look_each(desk: Desk) -> None:
    """Only the latest is read first; the others wait; nothing is opened meanwhile."""
    for number in range(10_000):
        (desk.directory / f"{number}.json").write_text("{")
    put(desk.directory / "zz.pt.trace.json", 1)
    os.utime(desk.directory / "zz.pt.trace.json", (time.time() + 5,) * 2)
    desk.read()
    begin = time.process_time()
    desk.read()
    assert time.process_time() - begin < 3
    assert len(desk.errands) == 1
    assert desk.value(c.TRAIN_PROFILE_FILES_WAITING) == 10_001


def test_names_that_are_no_text_are_shown_as_far_as_they_are(tmp_path: Path) -> None:
    """Folders and files may be called anything but the page is UTF-8."""
    folder = os.fsencode(tmp_path) + b"/r\xffun\n1"
    os.mkdir(folder)
    with open(folder + b"/t\xfe.json", "wb") as file:
        file.write(b"nothing }")
    put(Path(os.fsdecode(folder)) / "good.json", 1)
    desk = Desk(tmp_path)
    desk.settle()
    assert desk.value(c.TRAIN_PROFILE_KERNELS, "r_un_1", "0") is not None
    json.dumps([desk.faults], ensure_ascii=False).encode()
    assert desk.faults[0].part.endswith("r_un_1/t_.json")


def test_a_run_and_patterns_can_be_stated(tmp_path: Path) -> None:
    """The name of the run in other readers is known to the operator; and what to leave alone."""
    put(tmp_path / "a" / "rank7.pt.trace.json", 1, rank=None)
    put(tmp_path / "b" / "rank8.pt.trace.json", 1, rank=None)
    put(tmp_path / "tmp.json", 1)
    desk = Desk(tmp_path, run="llama-70b", ignore=("tmp*", "b/*"))
    desk.settle()
    assert desk.outcomes() == (1, 0, 0)
    assert set(desk.profiles("llama-70b")) == {7}


def test_tables_of_nsys_are_looked_at_together(desk: Desk) -> None:
    """One file for each report; what they cannot tell is absent."""
    for name, text in NSYS.items():
        (desk.directory / f"rank4_profile_{name}.csv").write_text(text)
    desk.settle()
    labels = (desk.directory.name, "4")
    assert desk.outcomes() == (3, 0, 0)
    assert desk.value(c.TRAIN_PROFILE_KERNELS, *labels) == 4
    seconds = desk.value(c.TRAIN_PROFILE_CLASS_SECONDS, *labels, "communication")
    assert seconds == pytest.approx(0.004)
    assert desk.value(c.TRAIN_PROFILE_LAUNCH_SECONDS, *labels) == pytest.approx(0.0012)
    copied = desk.value(
        c.TRAIN_PROFILE_MEMORY_OPERATION_SECONDS, *labels, "[CUDA memcpy Host-to-Device]"
    )
    assert copied == pytest.approx(5e-6)
    assert desk.value(c.TRAIN_PROFILE_PATTERN, *labels, "communication") == 1
    assert desk.value(c.TRAIN_PROFILE_SPAN_SECONDS, *labels) is None


def test_of_two_profiles_of_a_rank_the_later_one_is_shown(desk: Desk) -> None:
    """Whichever was read first."""
    later = put(desk.directory / "run" / "b.json", 2, later=1)
    put(desk.directory / "run" / "a.json", 1)
    old = time.time() - 1000
    os.utime(desk.directory / "run" / "a.json", (old, old))
    desk.settle()
    assert desk.outcomes() == (2, 0, 0)
    assert desk.value(c.TRAIN_PROFILE_KERNELS, "run", "0") == later.kernels


def test_old_files_are_left_alone(tmp_path: Path) -> None:
    """A directory of last year's traces is no news."""
    put(tmp_path / "x.json", 1)
    os.utime(tmp_path / "x.json", (time.time() - 1000,) * 2)
    desk = Desk(tmp_path, Bounds(max_age=500.0))
    desk.settle()
    assert desk.outcomes() == (0, 0, 0)


def test_a_directory_that_is_not_there_is_a_fault_and_no_failure(tmp_path: Path) -> None:
    """It may be mounted later."""
    desk = Desk(tmp_path / "later")
    desk.read()
    assert [fault.reason for fault in desk.faults] == ["unavailable"]
    put(tmp_path / "later" / "x.json", 1)
    desk.settle()
    assert desk.outcomes() == (1, 0, 0)


def test_closing_ends_the_child(desk: Desk) -> None:
    """A reload, or the end of the daemon."""
    put(desk.directory / "x.pt.trace.json", 1, cpu=20_000)
    while not desk.errands:
        desk.read()
    desk.source.close()
    with pytest.raises(ProcessLookupError):
        os.kill(desk.errands[0].pid, 0)
