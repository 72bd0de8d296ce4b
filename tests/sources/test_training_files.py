"""A directory that training jobs write to: recorded files, growing ones, damage, restarts."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.formats.tfevents import crc32c, masked
from exporter.samples import Fault
from exporter.sources.training_files import Limits, TrainingFilesSource
from exporter.training import Step, Track, TrackedRun, TrainingLedger
from tests.event_files import NAME, event, frame, write
from tests.fakes import FakeClock

DATA = Path(__file__).parent.parent / "data" / "training"
TORCH = DATA / "torch-2.13-ddp-gloo"


class Node:
    """A source over a directory, its ledger, and what it remembers."""

    def __init__(self, root: Path, memories: dict[str, Any] | None = None, **options: Any) -> None:
        self.clock = FakeClock(wall=time.time())
        self.ledger = TrainingLedger()
        self.memories: dict[str, Any] = {} if memories is None else memories
        self.root = root
        self.options = options
        self.source = self.made()

    def made(self) -> TrainingFilesSource:
        return TrainingFilesSource(
            "runs", self.root, self.ledger, self.clock, memories=self.memories, **self.options
        )

    def reads(self, after: float = 5.0) -> list[Fault]:
        self.clock.advance(after)
        return self.source.read()

    def reload(self) -> None:
        """Replace the source by another one, over a JSON file as after a restart."""
        self.source.close()
        for name, one in self.memories.items():
            self.memories[name] = one._replace(plain=json.loads(json.dumps(one.plain)))
        self.source = self.made()

    @property
    def runs(self) -> dict[str, TrackedRun]:
        return {run.name: run for run in self.ledger.runs(self.clock.now)}

    def track(self, run: str, reader: str = "tensorboard", rank: int | None = None) -> Track:
        return self.runs[run].tracks[reader, rank]

    def steps(self, run: str, reader: str = "tensorboard", rank: int | None = None) -> list[Step]:
        return [told.step for told in self.track(run, reader, rank).recent]


def copied(folder: Path, there: Path) -> None:
    """Copy as if written now: what is older than a day is not looked at."""
    shutil.copytree(folder, there, copy_function=shutil.copyfile)


def test_a_recorded_job_is_told_as_it_wrote_itself_down(tmp_path: Path) -> None:
    """All sixty steps of the PyTorch job: the numbers of its own record, and of its stdout."""
    node = Node(tmp_path / "job")
    node.root.mkdir()
    assert node.reads() == []
    copied(TORCH / "tb", node.root / "tb")

    assert node.reads() == []
    assert node.reads(after=31.0) == []

    assert list(node.runs) == ["tb"]
    steps = node.steps("tb")
    rows = [json.loads(line) for line in (TORCH / "steps-rank0.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "step_time_s" in row]
    assert [one.step for one in steps] == [row["step"] for row in rows] == list(range(60))
    for step, row in zip(steps, rows, strict=True):
        assert step.seconds == pytest.approx(row["step_time_s"], rel=1e-6)
        assert step.tokens == pytest.approx(row["tokens"], rel=1e-6)
        assert step.loss == pytest.approx(row["loss"], rel=1e-6)
        assert step.gradient_norm == pytest.approx(row["grad_norm"], rel=1e-6)
        assert step.wall == pytest.approx(row["t"], abs=0.01)
    for line in (TORCH / "stdout-rank0.log").read_text().splitlines():
        if match := re.match(r"step +(\d+) \| loss ([\d.]+) .* step_time ([\d.]+) ms", line):
            step = steps[int(match[1])]
            assert step.loss == pytest.approx(float(match[2]), abs=5.1e-5)
            assert (step.seconds or 0) * 1000 == pytest.approx(float(match[3]), abs=0.051)


def test_the_same_job_of_hf_is_told_alike_by_events_and_state(tmp_path: Path) -> None:
    """Steps, losses and tokens agree; times come from the state's runtime, without evaluations."""
    node = Node(tmp_path)
    node.reads()
    copied(DATA / "hf-trainer-5.24", tmp_path / "out")
    assert node.reads() + node.reads(after=31.0) == []

    assert list(node.runs) == ["out"]
    state, events = node.steps("out", "trainer_state"), node.steps("out")
    printed = [
        line for line in (DATA / "hf-trainer-5.24/stdout.log").read_text().splitlines()
        if line.startswith("{'loss'")
    ]  # fmt: skip
    assert [one.step for one in state] == [one.step for one in events] == list(range(10, 101, 10))
    for one, other, line in zip(state, events, printed, strict=True):
        loss = float(line.split("'")[3])
        assert one.loss == pytest.approx(loss, rel=1e-3)
        assert other.loss == pytest.approx(one.loss, rel=1e-6)
        assert one.tokens == 512.0
    assert [one.tokens for one in events[1:]] == [512.0] * 9
    assert state[0].seconds == pytest.approx(0.0915 / 10)
    assert state[5].seconds == pytest.approx((0.5634 - 0.4148 - 0.0208) / 10)
    assert [one.seconds for one in events[1:]] == pytest.approx(
        [one.seconds for one in state[1:]], rel=1e-4
    )
    facts = node.runs["out"].facts["trainer_state"]
    assert (facts.framework, facts.last_step, facts.micro_batch) == ("transformers", 100, 8.0)


def test_a_growing_file_is_read_from_where_reading_had_come_to(tmp_path: Path) -> None:
    """A step is told once a later one has begun, also if a frame is torn between two reads."""
    node = Node(tmp_path)
    node.reads()
    path = tmp_path / "run" / NAME
    write(path, event(1, 1.0, loss=3.0), event(1, 1.0, step_time=0.5))
    node.reads()
    assert node.runs == {}
    following = event(2, 2.0, loss=2.0)
    write(path, following[:20])
    assert node.reads() == []
    assert node.runs == {}
    write(path, following[20:])
    node.reads()
    (first,) = node.steps("run")
    assert (first.step, first.loss, first.seconds, first.attempt) == (
        1,
        3.0,
        0.5,
        "1700000000.host.7",
    )
    node.reads(after=31.0)
    assert [one.step for one in node.steps("run")] == [1, 2]


def test_a_reload_and_a_restart_tell_no_step_again_and_lose_none(tmp_path: Path) -> None:
    """Half a step that had been read before counts with its other half."""
    node = Node(tmp_path)
    node.reads()
    path = tmp_path / NAME
    write(path, event(1, 1.0, loss=3.0), event(2, 2.0, loss=2.0))
    node.reads()
    node.reload()
    write(path, event(2, 2.0, step_time=0.5), event(3, 3.0, loss=1.0))
    assert node.reads() == []
    (run,) = node.runs.values()
    track = run.tracks["tensorboard", None]
    assert (track.steps, track.duplicates, track.repeated) == (2, 0, 0)
    assert [(s.step.step, s.step.loss, s.step.seconds) for s in track.recent] == [
        (1, 3.0, None), (2, 2.0, 0.5),
    ]  # fmt: skip


def test_the_last_step_is_told_however_often_the_daemon_is_reloaded(tmp_path: Path) -> None:
    """Seen with a job that had ended: each reload began the half minute of silence anew."""
    node = Node(tmp_path)
    node.reads()
    write(tmp_path / "run" / NAME, event(1, 1.0, loss=3.0), event(2, 2.0, loss=2.0))
    for _ in range(8):
        node.reads()
        node.reload()
    assert [one.step for one in node.steps("run")] == [1, 2]


def test_what_is_there_at_the_start_is_history_but_for_its_last_steps(tmp_path: Path) -> None:
    """Counters of a daemon that is started late do not jump by a run's whole past."""
    write(tmp_path / NAME, *(event(i, float(i), loss=1.0) for i in range(500)))
    node = Node(tmp_path)
    node.reads()
    (run,) = node.runs.values()
    assert [t.step.step for t in run.tracks["tensorboard", None].recent] == list(range(399, 499))


def test_files_of_runs_that_have_ended_are_not_told(tmp_path: Path) -> None:
    """Nobody has written to them for more than an hour; if somebody does, only that is told."""
    path = tmp_path / "old" / NAME
    write(path, *(event(i, float(i), loss=1.0) for i in range(50)))
    torn = event(50, 50.0, loss=1.0)
    write(path, torn[:13])
    os.utime(path, (time.time() - 4000,) * 2)
    node = Node(tmp_path)
    assert node.reads() == []
    assert node.runs == {}
    write(path, torn[13:], event(51, 51.0, loss=1.0), event(52, 52.0, loss=1.0))
    assert node.reads() == []
    assert [one.step for one in node.steps("old")] == [50, 51]


def test_a_truncated_tail_waits_and_a_huge_length_stops(tmp_path: Path) -> None:
    """The fault names file and offset, and comes with each read; the good steps are told."""
    node = Node(tmp_path)
    node.reads()
    good = event(1, 1.0, loss=3.0) + event(2, 2.0, loss=2.0)
    length = struct.pack("<Q", 1 << 40)
    write(tmp_path / "run" / NAME, good, length, struct.pack("<I", masked(crc32c(length))))
    for _ in range(2):
        (fault,) = node.reads()
        assert fault.reason == "malformed"
        assert f"run/{NAME} at byte {len(good)}: a record of {1 << 40} bytes" in fault.detail
    assert [one.step for one in node.steps("run")] == [1]


def test_a_flipped_bit_costs_one_record(tmp_path: Path) -> None:
    """It is told with file and offset; what follows is read."""
    node = Node(tmp_path)
    node.reads()
    first, second = event(1, 1.0, loss=3.0), bytearray(event(2, 2.0, loss=2.0))
    second[20] ^= 4
    write(tmp_path / "run" / NAME, first, bytes(second), event(3, 3.0, loss=1.0))
    write(tmp_path / "run" / NAME, event(4, 4.0, loss=1.0))
    (fault,) = node.reads()
    assert f"run/{NAME} at byte {len(first)}: a record is damaged" in fault.detail
    assert [one.step for one in node.steps("run")] == [1, 3]


def test_a_picture_larger_than_a_piece_is_passed_over(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.reads()
    write(tmp_path / "run" / NAME, event(1, 1.0, loss=3.0), frame(bytes(3 << 20)))
    node.reads()
    write(tmp_path / "run" / NAME, event(2, 2.0, loss=2.0))
    assert node.reads() == []
    assert [one.step for one in node.steps("run")] == [1]


def test_a_loss_that_is_not_a_number_is_news(tmp_path: Path) -> None:
    """Other quantities cannot be NaN: they are left out, and the place is named."""
    node = Node(tmp_path)
    node.reads()
    nan = float("nan")
    write(tmp_path / "run" / NAME, event(1, 1.0, loss=nan, step_time=nan), event(2, 2.0, loss=1.0))
    (fault,) = node.reads()
    assert "run: step 1: step_time = nan" in fault.detail
    (step,) = node.steps("run")
    assert step.loss != step.loss
    assert step.seconds is None


def test_a_job_that_was_started_again_is_another_attempt(tmp_path: Path) -> None:
    """From step 3 on it goes over what it had done: these steps count as repeated."""
    node = Node(tmp_path)
    node.reads()
    write(tmp_path / "run" / NAME, *(event(i, 1e9 + i, loss=1.0) for i in range(1, 7)))
    node.reads(after=31.0)
    again = "events.out.tfevents.1700000900.host.9.0"
    write(tmp_path / "run" / again, *(event(i, 1e9 + 900 + i, loss=1.0) for i in range(3, 9)))
    os.utime(tmp_path / "run" / again, (node.clock.time(),) * 2)
    assert node.reads() == []
    track = node.track("run")
    assert (track.attempt, track.last, track.steps) == ("1700000900.host.9", 7, 11)
    assert track.repeated == 4


def test_steps_that_go_back_within_one_file_are_another_attempt(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.reads()
    steps = (1, 2, 3, 2, 3, 4)
    write(tmp_path / NAME, *(event(s, 100.0 + i, loss=1.0) for i, s in enumerate(steps)))
    assert node.reads() == []
    (run,) = node.runs.values()
    told = [t.step for t in run.tracks["tensorboard", None].recent]
    assert [one.step for one in told] == [1, 2, 3, 2, 3]
    assert [one.attempt[-2:] for one in told] == [".7"] * 3 + ["#1"] * 2


def test_a_table_of_hyper_parameters_below_a_run_is_no_run(tmp_path: Path) -> None:
    """PyTorch writes it from the same process; others from another one, and say `hparams`."""
    node = Node(tmp_path)
    node.reads()
    write(tmp_path / "run" / NAME, event(1, 1.0, loss=3.0), event(2, 2.0, loss=2.0))
    same = NAME.replace(".0", ".1")
    write(tmp_path / "run" / "1700000001" / same, event(0, 1.0, loss=3.0), event(1, 2.0, loss=1.0))
    other = NAME.replace("host.7", "host.8")
    write(
        tmp_path / "run" / "table" / other,
        event(0, 1.0, plugin="hparams", x=1.0), event(0, 1.0, loss=3.0), event(9, 1.0, loss=3.0),
    )  # fmt: skip
    node.reads()
    node.reads()
    assert list(node.runs) == ["run"]


def test_two_that_write_into_one_folder_at_once_are_told_and_one_is_read(tmp_path: Path) -> None:
    """The losses of two ranks in one series would be neither's."""
    node = Node(tmp_path)
    node.reads()
    write(tmp_path / "run" / NAME, *(event(i, 100.0 + i, loss=1.0) for i in range(1, 9)))
    other = "events.out.tfevents.1700000001.host.8.0"
    write(tmp_path / "run" / other, *(event(i, 101.0 + i, loss=5.0) for i in range(1, 9)))
    (fault,) = node.reads()
    assert "host.8 writes there besides host.7: it is not read" in fault.detail
    track = node.track("run")
    assert (track.steps, track.repeated) == (7, 0)
    assert {t.step.loss for t in track.recent} == {1.0}


def test_a_folder_for_each_rank_is_one_run(tmp_path: Path) -> None:
    """torchtitan with save_for_all_ranks."""
    node = Node(tmp_path)
    node.reads()
    for rank in (0, 1):
        name = NAME.replace("host.7", f"host.{rank}")
        write(
            tmp_path / "tb" / "20260101-1200" / f"rank_{rank}" / name,
            event(1, 1.0, **{"throughput(tps)": 100.0 + rank}), event(2, 2.0, loss=1.0),
        )  # fmt: skip
    assert node.reads() == []
    assert list(node.runs) == ["tb/20260101-1200"]
    for rank in (0, 1):
        (step,) = node.steps("tb/20260101-1200", rank=rank)
        assert (step.tgs, step.scope) == (100.0 + rank, "rank")


def test_a_file_that_is_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.reads()
    path = tmp_path / "run" / NAME
    write(path, *(event(i, float(i), loss=1.0) for i in range(1, 6)))
    node.reads()
    path.unlink()
    write(path, *(event(i, 50.0 + i, loss=2.0) for i in range(1, 4)))
    node.reads()
    track = node.track("run")
    assert (track.last, track.repeated) == (2, 2)


def test_the_configured_name_is_that_of_the_run(tmp_path: Path) -> None:
    node = Node(tmp_path, run="llama")
    node.reads()
    write(tmp_path / "a" / NAME, event(1, 1.0, loss=3.0), event(2, 2.0, loss=2.0))
    node.reads()
    assert list(node.runs) == ["llama"]


def state(*losses: tuple[int, float], **more: object) -> str:
    entries = [{"step": step, "loss": loss} for step, loss in losses]
    return json.dumps({"global_step": losses[-1][0], "log_history": entries, **more})


def test_a_state_that_is_written_with_each_checkpoint_is_told_once(tmp_path: Path) -> None:
    """Each file holds all of the history; the moment of a checkpoint is that of its file."""
    node = Node(tmp_path)
    node.reads()
    for last in (10, 20, 30):
        folder = tmp_path / "out" / f"checkpoint-{last}"
        folder.mkdir(parents=True)
        text = state(*((step, 5.0 - step / 10) for step in range(10, last + 1, 10)))
        (folder / "trainer_state.json").write_text(text)
        os.utime(folder / "trainer_state.json", (1e9 + last,) * 2)
        assert node.reads() == []
    run = node.runs["out"]
    track = run.tracks["trainer_state", None]
    assert (track.steps, track.duplicates, track.repeated) == (30, 0, 0)
    saved = [(m.step, m.wall) for _, m in run.moments if m.kind == "checkpoint_saved"]
    assert saved == [(10, 1e9 + 10), (20, 1e9 + 20), (30, 1e9 + 30)]


def test_a_half_written_state_is_waited_for_and_then_told(tmp_path: Path) -> None:
    """For ten seconds it may be written just now; after that it is broken, and good again later."""
    node = Node(tmp_path)
    node.reads()
    path = tmp_path / "out" / "trainer_state.json"
    path.parent.mkdir()
    whole = state((10, 5.0), (20, 4.0))
    path.write_text(whole[:40])
    node.clock = FakeClock(node.clock.now, wall=path.stat().st_mtime)
    node.source._clock = node.clock
    assert node.reads(after=1.0) == []
    (fault,) = node.reads(after=20.0)
    assert fault.reason == "malformed"
    assert "out/trainer_state.json: not JSON" in fault.detail
    path.write_text(whole)
    assert node.reads() == []
    assert [one.step for one in node.steps("out", "trainer_state")] == [10, 20]


def test_a_trainer_that_went_back_to_a_checkpoint_is_another_attempt(tmp_path: Path) -> None:
    """Its history branches off: entry 30 has another loss than before."""
    node = Node(tmp_path)
    node.reads()
    path = tmp_path / "out" / "trainer_state.json"
    path.parent.mkdir()
    path.write_text(state((10, 5.0), (20, 4.0), (30, 3.0), (40, 2.5)))
    node.reads()
    node.reload()
    path.write_text(state((10, 5.0), (20, 4.0), (30, 3.5)))
    assert node.reads() == []
    track = node.track("out", "trainer_state")
    assert (track.attempt, track.last) == ("#1", 30)
    assert [t.step.step for t in track.recent] == [10, 20, 30, 40, 30]


def test_the_store_of_mlflow_is_told_by_the_runs_name(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.reads()
    copied(DATA / "mlflow", tmp_path / "mlruns")
    for _ in range(2):
        assert node.reads() == []
    assert node.reads(after=31.0) == []
    assert list(node.runs) == ["gallant-shark-1"]
    steps = node.steps("gallant-shark-1", "mlflow")
    assert [one.step for one in steps] == [10, 20, 30, 40, 50]
    assert [one.seconds for one in steps] == [0.6, 0.7, 0.8, 0.9, 1.0]
    assert [one.flops for one in steps] == [1.01e14, 1.02e14, 1.03e14, 1.04e14, 1.05e14]
    assert steps[0].wall == pytest.approx(1796014177.806)


def test_metrics_of_mlflow_that_grow_one_after_the_other_are_one_step(tmp_path: Path) -> None:
    """The reader may come between two of them: a step waits until a later one was seen before."""
    node = Node(tmp_path)
    node.reads()
    run = tmp_path / "1" / "abc"
    (run / "metrics").mkdir(parents=True)
    (run / "meta.yaml").write_text("run_id: abc\nrun_name: r\n")

    def log(key: str, step: int, value: float) -> None:
        with (run / "metrics" / key).open("a") as file:
            file.write(f"{1_700_000_000_000 + step} {value} {step}\n")

    log("loss", 1, 3.0)
    log("step_time", 1, 0.5)
    log("loss", 2, 2.0)
    assert node.reads() == []
    assert node.runs == {}
    log("step_time", 2, 0.25)
    log("loss", 3, 1.0)
    node.reads()
    node.reload()
    log("step_time", 3, 0.125)
    with (run / "metrics" / "loss").open("a") as file:
        file.write("nonsense\n")
    (fault,) = node.reads()
    assert "1/abc/metrics/loss at byte" in fault.detail
    node.reads(after=31.0)
    told = [(one.step, one.loss, one.seconds) for one in node.steps("r", "mlflow")]
    assert told == [(1, 3.0, 0.5), (2, 2.0, 0.25), (3, 1.0, 0.125)]


def test_an_offline_file_of_wandb_is_told_as_it_grows(tmp_path: Path) -> None:
    """Rows come whole, so none waits; the number of ranks is a fact."""
    node = Node(tmp_path)
    node.reads()
    text = (DATA / "wandb" / "run-abc123.wandb").read_bytes()
    path = tmp_path / "offline-run-1" / "run-abc123.wandb"
    path.parent.mkdir()
    for end in (3, 300, 900, 30_000, 60_000, len(text)):
        path.write_bytes(b"")
        with path.open("r+b") as file:
            file.write(text[:end])
        assert node.reads() == []
    assert list(node.runs) == ["tiny-run"]
    steps = node.steps("tiny-run", "wandb")
    assert [one.step for one in steps] == [10, 20, 30, 40, 50]
    assert [one.seconds for one in steps] == [0.6, 0.7, 0.8, 0.9, 1.0]
    assert [one.tokens for one in steps] == pytest.approx([600.0, 1400.0, 2400.0, 3600.0, 5000.0])
    assert steps[0].learning_rate == 0.001
    assert node.runs["tiny-run"].facts["wandb"].world_size == 2
    assert node.track("tiny-run", "wandb").duplicates == 0


def test_a_file_that_only_looks_like_one_of_wandb_says_so(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.reads()
    (tmp_path / "run-x.wandb").write_bytes(b":W&B\xe1\xbe\x07 and so on")
    (fault,) = node.reads()
    assert "run-x.wandb at byte 0: not a file of W&B in a version that is known" in fault.detail


def drop(path: Path, text: str) -> None:
    """Replace a file as a whole, as jobs should."""
    (path.parent / "new").write_text(text)
    (path.parent / "new").rename(path)


def test_metrics_that_a_job_drops_are_told_until_they_are_stale(tmp_path: Path) -> None:
    """A run that no label names is called like its file."""
    node = Node(tmp_path)
    path = tmp_path / "llama.prom"
    for step in (3, 4):
        drop(path, f"train_step {step}\ntrain_loss 2.5\n")
        assert node.reads() == []
    assert [one.step for one in node.steps("llama", "textfile")] == [3, 4]
    (fault,) = node.reads(after=400.0)
    assert "llama.prom: not written for" in fault.detail
    assert node.reads(after=4000.0) == []


def test_a_dropped_file_that_is_no_page_says_so(tmp_path: Path) -> None:
    node = Node(tmp_path)
    drop(tmp_path / "a.prom", "<html>\n")
    for _ in range(2):
        (fault,) = node.reads()
        assert "a.prom: not a page of metrics" in fault.detail
    drop(tmp_path / "a.prom", "train_step 1\ntrain_loss 2\ntrain_mfu")
    (fault,) = node.reads()
    assert "ends within a line" in fault.detail
    assert [one.step for one in node.steps("a", "textfile")] == [1]


def test_only_files_of_the_configured_kind_are_read(tmp_path: Path) -> None:
    node = Node(tmp_path, kind="tensorboard")
    drop(tmp_path / "a.prom", "train_step 1\ntrain_loss 2\n")
    assert node.reads() == []
    assert node.runs == {}


def test_a_directory_that_is_not_there_yet_is_an_error_and_all_in_it_is_new(tmp_path: Path) -> None:
    """Nothing in it is history when it comes."""
    node = Node(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        node.reads()
    write(tmp_path / "none" / "run" / NAME, *(event(i, float(i), loss=1.0) for i in range(200)))
    assert node.reads() == []
    assert len(node.steps("run")) == 199


def test_a_link_does_not_make_us_quote_what_others_may_not_read(tmp_path: Path) -> None:
    """Whoever may drop files could otherwise see the first line of any file on the status page."""
    (tmp_path / "secret").write_text("root:x:0:0\n")
    (tmp_path / "drop").mkdir()
    node = Node(tmp_path / "drop")
    (tmp_path / "drop" / "a.prom").symlink_to(tmp_path / "secret")
    assert node.reads() == []


def test_a_tree_without_end_is_looked_at_within_limits(tmp_path: Path) -> None:
    """Links to folders lead nowhere, FIFOs are no files; too many names are told."""
    node = Node(tmp_path, limits=Limits(depth=2, names=50))
    (tmp_path / "circle").symlink_to(tmp_path)
    os.mkfifo(tmp_path / NAME)
    (tmp_path / "a/b/c/d").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    for folder in (".git", "a/b/c", "a/b"):
        drop(tmp_path / folder / f"{folder.replace('/', '-')}.prom", "train_step 1\ntrain_loss 2\n")
    assert node.reads() == []
    assert list(node.runs) == ["a-b"]
    for i in range(60):
        (tmp_path / "a" / f"{i}.bin").touch()
    assert any("more than 50 names" in one.detail for one in node.reads())


def test_a_round_reads_no_more_than_its_budget(tmp_path: Path) -> None:
    """The rest comes in the next rounds, and nothing is lost."""
    node = Node(tmp_path, limits=Limits(bytes=2000))
    node.reads()
    write(tmp_path / "run" / NAME, *(event(i, float(i), loss=1.0) for i in range(1, 101)))
    for _ in range(10):
        assert node.reads() == []
    assert [one.step for one in node.steps("run")] == list(range(1, 101))


def test_a_memory_that_makes_no_sense_costs_only_what_was_remembered(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.reads()
    node.source.close()
    for name, one in node.memories.items():
        node.memories[name] = one._replace(plain={"tensorboard": {"places": 3}})
    node.source = node.made()
    (fault,) = node.reads()
    assert fault.part == "memory"
    assert node.reads() == []


def folders(root: Path) -> Iterator[str]:
    return (str(path.relative_to(root)) for path in root.rglob("*"))


def test_reading_leaves_no_trace_in_the_directory(tmp_path: Path) -> None:
    copied(DATA, tmp_path / "data")
    before = sorted(folders(tmp_path))
    node = Node(tmp_path)
    node.reads()
    assert sorted(folders(tmp_path)) == before


def test_at_the_start_only_the_newest_attempt_of_a_run_is_told(tmp_path: Path) -> None:
    """Former ones are history, even where somebody has touched their files."""
    write(tmp_path / "run" / NAME, *(event(i, 1e9 + i, loss=1.0) for i in range(1, 7)))
    again = "events.out.tfevents.1700000900.host.9.0"
    write(tmp_path / "run" / again, *(event(i, 1e9 + 900 + i, loss=1.0) for i in range(3, 6)))
    node = Node(tmp_path)
    assert node.reads() == []
    assert [(one.step, one.attempt) for one in node.steps("run")] == [
        (3, "1700000900.host.9"), (4, "1700000900.host.9"),
    ]  # fmt: skip


def test_what_stays_the_same_is_told_again_after_a_restart(tmp_path: Path) -> None:
    """The ledger of the new daemon is empty, and the world size stood at the file's beginning."""
    node = Node(tmp_path)
    node.reads()
    size = {"world-size": 8.0, "iteration-time": 2.0}
    write(tmp_path / "run" / NAME, event(1, 1.0, **size), event(2, 2.0, loss=1.0))
    copied(DATA / "hf-trainer-5.24", tmp_path / "hf")
    text = (DATA / "wandb" / "run-abc123.wandb").read_bytes()
    (tmp_path / "run-abc123.wandb").write_bytes(text[:30_000])
    node.reads()
    node.ledger = TrainingLedger()
    node.reload()
    write(tmp_path / "run" / NAME, event(3, 3.0, loss=1.0))
    (tmp_path / "run-abc123.wandb").write_bytes(text)
    path = tmp_path / "hf" / "trainer_state.json"
    path.write_text(path.read_text() + "\n")
    assert node.reads() == []
    told = [(run.name, one) for run in node.runs.values() for one in run.facts.values()]
    facts = {(name, one.world_size, one.framework) for name, one in told}
    assert facts == {("run", 8, "megatron"), ("tiny-run", 2, None), ("hf", None, "transformers")}
    assert [one.step for one in node.steps("tiny-run", "wandb")] == [30, 40, 50]


def test_two_runs_of_one_name_at_once_are_told_apart(tmp_path: Path) -> None:
    """MLflow's names need not be unique; one after the other they are attempts of one run."""
    node = Node(tmp_path)
    node.reads()
    for identity in ("aaaaaaaaaa", "bbbbbbbbbb"):
        run = tmp_path / "1" / identity
        (run / "metrics").mkdir(parents=True)
        (run / "meta.yaml").write_text(f"run_id: {identity}\nrun_name: sweep\n")
        (run / "metrics" / "loss").write_text("1000 3.0 1\n2000 2.0 2\n")
    for _ in range(2):
        node.reads()
    assert sorted(node.runs) == ["sweep", "sweep bbbbbbbb"]


def test_an_end_that_mlflow_knows_is_told_once(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.reads()
    copied(DATA / "mlflow", tmp_path / "mlruns")
    for _ in range(3):
        node.reads(after=31.0)
    moments = [(m.kind, m.wall) for _, m in node.runs["gallant-shark-1"].moments]
    assert moments == [("started", 1796014177.787), ("ended", 1796014177.82)]


def test_nonsense_is_counted_by_reader(tmp_path: Path) -> None:
    """MaxText's step that was not waited for costs its TFLOP/s, and is counted."""
    node = Node(tmp_path)
    node.reads()
    silly = {"perf/per_device_tflops_per_sec": 917442.0, "perf/step_time_seconds": 0.002}
    write(tmp_path / "run" / NAME, event(1, 1.0, **silly), event(2, 2.0, loss=1.0))
    (fault,) = node.reads()
    assert "run: step 1: perf/per_device_tflops_per_sec = 917442" in fault.detail
    assert node.ledger.refused() == {("tensorboard", "nonsense"): 1}
    assert node.steps("run")[0].flops is None


FILES = {
    "tb/" + NAME: (TORCH / "tb" / "events.out.tfevents.1795972765.host.21824.0").read_bytes(),
    "hf/trainer_state.json": (DATA / "hf-trainer-5.24" / "trainer_state.json").read_bytes(),
    "run-x.wandb": (DATA / "wandb" / "run-abc123.wandb").read_bytes(),
    "1/a/metrics/loss": b"1796014177806 4.0 10\n1796014177808 3.0 20\n1796014177810 2.0 30\n",
    "1/a/meta.yaml": b"run_id: a\nrun_name: b\n",
    "job.prom": b'train_step{run="p"} 3\ntrain_loss{run="p"} 2\ntrain_tokens_total{run="p"} 5\n',
}


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_whatever_the_files_hold_reading_goes_on(tmp_path: Path, data: st.DataObject) -> None:
    """Cut, with flipped bits, overwritten, grown by junk, read between and after a restart."""
    root = tmp_path / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    node = Node(root)
    node.reads()
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        damaged = bytearray(text)
        for _ in range(data.draw(st.integers(0, 3))):
            damaged[data.draw(st.integers(0, len(text) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(damaged[: data.draw(st.integers(0, len(text)))])
    for _ in range(2):
        assert {one.reason for one in node.reads(after=20.0)} <= {"malformed"}
    node.reload()
    for name in FILES:
        with (root / name).open("ab") as file:
            file.write(data.draw(st.binary(max_size=30)))
    for _ in range(2):
        assert {one.reason for one in node.reads(after=20.0)} <= {"malformed"}


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.integers(1, 4000), max_size=12), st.sets(st.integers(0, 12)))
def test_however_files_grow_and_daemons_restart_each_step_counts_once(
    tmp_path: Path, cuts: list[int], restarts: set[int]
) -> None:
    """All files grow by pieces of any size, with restarts in between: nothing lost or repeated."""
    root = tmp_path / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    node = Node(root)
    node.reads()
    names = [name for name in FILES if name.endswith((".0", ".wandb"))]
    ends = dict.fromkeys(names, 0)
    for at, cut in enumerate([*cuts, 1 << 20]):
        for name in names:
            path = root / name
            path.parent.mkdir(exist_ok=True)
            with path.open("ab") as file:
                file.write(FILES[name][ends[name] : ends[name] + cut])
            ends[name] += cut
        if at in restarts:
            node.reload()
        assert node.reads() == []
    assert node.reads(after=31.0) == []
    for run, reader, steps in (("tb", "tensorboard", 60), ("tiny-run", "wandb", 41)):
        track = node.track(run, reader)
        assert (track.steps, track.repeated, track.duplicates) == (steps, 0, 0)


def test_a_thousand_runs_of_the_past_leave_room_for_the_one_that_goes_on(tmp_path: Path) -> None:
    """Old files take no place; what has a place and has become old makes room."""
    old = time.time() - 4000
    for i in range(600):
        write(tmp_path / f"old{i:03}" / NAME, event(1, 1.0, loss=1.0), event(2, 2.0, loss=1.0))
        os.utime(tmp_path / f"old{i:03}" / NAME, (old, old))
    node = Node(tmp_path)
    node.reads()
    write(tmp_path / "zz" / NAME, event(1, 1.0, loss=1.0), event(2, 2.0, loss=1.0))
    assert node.reads() == []
    assert list(node.runs) == ["zz"]
    for i in range(600):
        write(tmp_path / f"old{i:03}" / NAME, event(3, 3.0, loss=1.0), event(4, 4.0, loss=1.0))
    faults = node.reads()
    assert len(faults) == 20, "of the many that are all alike"
    assert all("more than 512 event files: not read" in one.detail for one in faults)
    assert len(node.runs) == 64, "as many as the ledger keeps"
    assert [one.step for one in node.steps("old000")] == [3]
    for i in range(600):
        os.utime(tmp_path / f"old{i:03}" / NAME, (old, old))
    write(tmp_path / "zz" / NAME, event(3, 3.0, loss=1.0))
    assert node.reads() == []
    assert [one.step for one in node.steps("zz")] == [1, 2]


def test_a_long_metric_of_mlflow_is_read_from_its_last_lines(tmp_path: Path) -> None:
    run = tmp_path / "1" / "abc"
    (run / "metrics").mkdir(parents=True)
    (run / "meta.yaml").write_text("run_id: abc\nrun_name: r\n")
    for key in ("loss", "step_time"):
        lines = (f"{1_700_000_000_000 + i} {i / 7} {i}\n" for i in range(20_000))
        (run / "metrics" / key).write_text("".join(lines))
    node = Node(tmp_path)
    assert node.reads() == []
    assert node.reads(after=31.0) == []
    steps = node.steps("r", "mlflow")
    assert [one.step for one in steps] == list(range(19_900, 20_000))
    assert all(one.loss == one.seconds for one in steps)
