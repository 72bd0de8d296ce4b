"""Logs of jobs as a source: files that appear, grow, are rotated, and what must not stop it."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.samples import Drop, Fault, Remembered, Sample
from exporter.sources import training_logs
from exporter.sources.training_logs import TrainingLogsSource, Watched, run_of
from exporter.training import TrainingLedger
from exporter.training.ledger import Track, TrackedRun
from tests.fakes import FakeClock

UID = "7e9a1f3c-5b1e-4b5e-9d55-0a1b2c3d4e5f"


def titan(step: int, tps: int = 100) -> str:
    return (
        f"[titan] - INFO - step: {step:2}  loss:  2.0  memory: 1.00GiB(1.0%)  tps: {tps}"
        "  tflops: 1.0  mfu: 1.0%\n"
    )


class Lab:
    """A source over a folder, with a clock that is moved by hand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = FakeClock(wall=os.stat(root).st_mtime + 10)
        self.ledger = TrainingLedger()
        self.memories: dict[str, Any] = {}
        self.items: list[Sample | Fault | Drop] = []

    def start(self, *watched: Watched, root: str = "", **options: Any) -> TrainingLogsSource:
        files = watched or (Watched("/logs/*.log"),)
        self.source = TrainingLogsSource(
            files, self.ledger, self.clock, root or str(self.root), memories=self.memories,
            **options,
        )  # fmt: skip
        return self.source

    def read(self, seconds: float = 6.0) -> list[Sample | Fault | Drop]:
        self.items = list(self.source.read())
        self.clock.advance(seconds)
        return self.items

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.root / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)
        return path

    def run(self, name: str = "job") -> TrackedRun:
        return next(run for run in self.ledger.runs(self.clock.monotonic()) if run.name == name)

    def track(self, name: str = "job", rank: int | None = None) -> Track:
        return self.run(name).tracks["log", rank]

    @property
    def runs(self) -> set[str]:
        return {run.name for run in self.ledger.runs(self.clock.monotonic())}

    @property
    def faults(self) -> list[Fault]:
        return [item for item in self.items if isinstance(item, Fault)]

    def value(self, name: str, *labels: str) -> float | None:
        for item in self.items:
            if isinstance(item, Sample) and (item.metric.name, item.labels) == (name, labels):
                assert isinstance(item.value, int | float)
                return item.value
        return None


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    (tmp_path / "logs").mkdir()
    lab = Lab(tmp_path)
    yield lab
    lab.source.close()


def test_a_log_that_grows_tells_each_step_once(lab: Lab) -> None:
    lab.start()
    lab.read()
    lab.write("job.log", titan(1) + titan(2))
    lab.read()
    lab.write("job.log", titan(3) + titan(4)[:20])
    lab.read()
    assert (lab.track().steps, lab.track().last, lab.track().duplicates) == (3, 3, 0)
    lab.write("job.log", titan(4)[20:])
    lab.read()
    assert lab.track().last == 4
    assert lab.value("train_log_lines_total", "job") == 4
    assert lab.value("train_log_bytes_total", "job") == len("".join(map(titan, (1, 2, 3, 4))))
    assert lab.value("train_log_lag_bytes", "job") == 0
    assert lab.value("train_log_files") == 1
    assert lab.faults == []


def test_a_file_that_appears_is_read_from_its_beginning(lab: Lab) -> None:
    lab.start()
    lab.read()
    lab.write("late.log", "".join(map(titan, range(1, 6))))
    lab.read()
    assert lab.track("late").steps == 5


def test_of_a_log_that_was_there_before_only_where_it_stands(lab: Lab) -> None:
    """5000 steps of yesterday have not ended in this second."""
    head = "Trainer is initialized with local batch size 8, global batch size 64, gradient"
    head += " accumulation steps 1, sequence length 2048, total steps 90000 (warmup 2)\n"
    lab.write("job.log", head + "".join(map(titan, range(1, 20_001))))
    lab.start()
    lab.read()
    assert (lab.track().steps, lab.track().last) == (1, 20_000)
    facts = lab.run().facts["log"]
    assert (facts.sequence_length, facts.global_batch, facts.last_step) == (2048, 64, 90_000)
    assert (lab.value("train_log_bytes_total", "job") or 0) <= training_logs.BACKLOG
    lab.write("job.log", titan(20_001))
    lab.read()
    assert (lab.track().steps, lab.track().last) == (2, 20_001)


def test_a_log_of_which_nothing_was_written_for_an_hour_is_followed_from_its_end(lab: Lab) -> None:
    path = lab.write("job.log", titan(1) + titan(2))
    os.utime(path, (lab.clock.time() - 3700,) * 2)
    lab.start()
    lab.read()
    assert lab.runs == set()
    lab.write("job.log", titan(3))
    lab.read()
    assert lab.track().last == 3


def test_rotation_loses_nothing(lab: Lab) -> None:
    """Renamed and made anew; cut in place; the old one packed."""
    lab.start()
    lab.read()
    path = lab.write("job.log", titan(1))
    lab.read()
    lab.write("job.log", titan(2))
    path.rename(path.with_name("job.log.1"))
    lab.write("job.log", titan(3))
    lab.read()
    lab.write("job.log", titan(4))
    lab.read()
    os.truncate(path, 0)
    lab.write("job.log", titan(5))
    lab.read()
    (path.parent / "job.log.1.gz").write_bytes(gzip.compress(titan(99).encode()))
    lab.write("job.log", titan(6))
    lab.read()
    assert (lab.track().steps, lab.track().last, lab.track().attempt) == (6, 6, "")


def test_packed_files_are_never_read(lab: Lab) -> None:
    lab.write("job.log.gz", titan(1))
    lab.start(Watched("/logs/*"))
    lab.read()
    assert lab.value("train_log_files") == 0


def test_a_reload_goes_on_where_the_former_source_left_off(lab: Lab) -> None:
    lab.start()
    lab.read()
    lab.write("job.log", titan(1) + titan(2) + titan(3)[:30])
    lab.read()
    lab.source.close()
    lab.start()
    lab.read()
    lab.write("job.log", titan(3)[30:])
    lab.read()
    assert (lab.track().steps, lab.track().duplicates) == (3, 0)


def test_a_restart_goes_on_where_the_former_daemon_left_off(lab: Lab) -> None:
    """By way of JSON, as the state file has it; what was written meanwhile is read."""
    lab.start(keep_every=1.0)
    lab.read()
    lab.write("job.log", "".join(map(titan, (1, 2, 3, 2))))
    lab.read()
    lab.source.close()
    kept = lab.memories["logs"]
    assert isinstance(kept, Remembered)
    lab.memories = {"logs": kept._replace(plain=json.loads(json.dumps(kept.plain)))}
    lab.ledger = TrainingLedger()
    lab.write("job.log", titan(3) + titan(4))
    lab.start()
    lab.read()
    assert (lab.track().steps, lab.track().last, lab.track().attempt) == (2, 4, "2")
    assert lab.run().facts["log"].framework == "torchtitan"


def test_what_was_remembered_of_another_file_is_not_believed(lab: Lab) -> None:
    path = lab.write("job.log", titan(1) + titan(2))
    lab.start()
    lab.read()
    lab.source.close()
    path.write_text(titan(1, 7) + titan(2, 7) + titan(3, 7))
    lab.start()
    lab.read()
    assert lab.track().last == 3


@pytest.mark.parametrize("plain", [None, [], {"files": {"x": [1]}, "runs": {}, "facts": {}},
                                   {"files": {}, "runs": {"r": "x"}, "facts": {"job": {"run": 1,
                                    "config": [], "nonsense": 1}}}])  # fmt: skip
def test_a_memory_that_makes_no_sense_costs_nothing(lab: Lab, plain: object) -> None:
    lab.memories["logs"] = Remembered(plain, 0.0)
    lab.write("job.log", titan(1))
    lab.start()
    lab.read()
    assert lab.track().last == 1


def test_a_file_that_may_not_be_read_is_named_and_the_others_go_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = lab.write("secret.log", titan(1))
    secret.chmod(0)
    if os.geteuid() == 0:  # root may read everything: the kernel says no in its place
        real = os.open

        def refuse(path: Any, *rest: Any, **more: Any) -> int:
            if str(path).endswith("secret.log"):
                raise PermissionError(13, "Permission denied", path)
            return real(path, *rest, **more)

        monkeypatch.setattr(os, "open", refuse)
    lab.write("job.log", titan(1))
    lab.start()
    lab.read()
    assert [(f.part, f.reason) for f in lab.faults] == [(str(secret), "denied")]
    assert lab.track().last == 1


def test_a_named_file_that_is_not_there_is_told_until_it_appears(lab: Lab) -> None:
    lab.start(Watched("/logs/job.log"))
    lab.read()
    assert [(f.part, f.reason) for f in lab.faults] == [
        (str(lab.root / "logs/job.log"), "unavailable")
    ]
    lab.write("job.log", titan(1))
    lab.read()
    assert lab.faults == []
    assert lab.track().last == 1


def test_a_pattern_that_matches_nothing_is_no_fault(lab: Lab) -> None:
    lab.start(Watched("/nowhere/*.log"))
    lab.read()
    assert lab.faults == []
    assert lab.value("train_log_files") == 0


def test_a_vanished_file_is_read_to_its_end_and_then_forgotten(lab: Lab) -> None:
    path = lab.write("job.log", titan(1))
    lab.start()
    lab.read()
    lab.write("job.log", titan(2))
    path.unlink()
    lab.read()
    assert lab.track().last == 2
    for _ in range(12):
        lab.read()
    assert lab.value("train_log_files") == 0
    assert lab.faults == []


def test_a_line_of_ten_megabytes_hides_no_other(lab: Lab) -> None:
    """A reload in its middle does not take its end for a line."""
    lab.start()
    lab.read()
    lab.write("job.log", titan(1) + "x" * 10_000_000)
    for _ in range(3):
        lab.read()
    lab.source.close()
    lab.start()
    lab.write("job.log", titan(77) + titan(2))
    lab.read()
    assert (lab.track().steps, lab.track().last) == (2, 2)


def test_a_long_line_is_a_fault_and_a_drop_once(lab: Lab) -> None:
    lab.start()
    lab.read()
    path = lab.write("job.log", titan(1) + "x" * 3_000_000)
    lab.read()
    assert [f for f in lab.faults if "passed over" in f.detail] == [
        Fault(str(path), "malformed",
              f"byte {len(titan(1))}: a line of more than 1048576 bytes: passed over")
    ]  # fmt: skip
    assert Drop("line", 1) in lab.items
    lab.write("job.log", "x" * 3_000_000)
    lab.read()
    assert not any(isinstance(item, Drop) for item in lab.items)


def test_nonsense_is_counted_and_named_and_the_step_is_kept(lab: Lab) -> None:
    lab.start()
    lab.read()
    path = lab.write(
        "job.log",
        "completed step: 2, seconds: 0.002, TFLOP/s/device: 917442.589, Tokens/s/device:"
        " 19907654.921, total_weights: 1572864, loss: 10.043\n",
    )
    lab.read()
    assert lab.ledger.refused() == {("log", "nonsense"): 1}
    assert [(f.part, f.reason) for f in lab.faults] == [(str(path), "malformed")]
    assert "byte 0" in lab.faults[0].detail
    (told,) = lab.track().recent
    assert (told.step.step, told.step.flops, told.step.loss) == (2, None, 10.043)


def test_steps_without_a_number_are_counted_and_told_once(lab: Lab) -> None:
    lab.start()
    lab.read()
    lab.write("job.log", "{'loss': 1.0, 'epoch': 0.1}\n{'loss': 1.0, 'epoch': 0.2}\n")
    lab.read()
    assert "logging_steps" in lab.faults[0].detail
    assert Drop("unnumbered", 2) in lab.items
    lab.write("job.log", "{'loss': 1.0, 'epoch': 0.3}\n")
    lab.read()
    assert lab.faults == []


def test_logs_of_other_programs_are_no_runs(lab: Lab) -> None:
    """Words such as "Training completed" prove nothing; a step does, and then they count."""
    lab.start()
    lab.read()
    lab.write("web.log", "Training completed\n  seq_length ................ 4096\n")
    lab.write("job.log", "Training starts at step 1\n")
    lab.read()
    assert lab.runs == set()
    lab.write("job.log", titan(1))
    lab.read()
    assert lab.runs == {"job"}
    assert [moment.kind for _, moment in lab.run().moments] == ["started", "first_step"]
    assert lab.value("train_log_bytes_total", "web") is None


def test_what_happened_is_dated_by_when_it_was_read_where_the_log_does_not_say(lab: Lab) -> None:
    lab.start()
    lab.read()
    lab.write("job.log", titan(1))
    lab.read()
    before = lab.clock.time()
    lab.write("job.log", "Finished saving the checkpoint in 5.53 seconds.\n" + titan(2))
    lab.read()
    saved = [m for _, m in lab.run().moments if m.kind == "checkpoint_saved"]
    assert [(m.step, m.seconds, m.wall) for m in saved] == [(1, 5.53, before)]


def test_a_step_that_waits_for_its_timers_is_told_once_the_log_is_silent(lab: Lab) -> None:
    lab.start()
    lab.read()
    lab.write(
        "job.log", "iteration 5/ 10 | elapsed time per iteration (ms): 9000.0 | lm loss: 2.0 |\n"
    )
    lab.read()
    lab.write("job.log", "    optimizer .....................: (400.00, 450.00)\n")
    lab.read()
    assert lab.runs == set()
    lab.read()
    (told,) = lab.track().recent
    assert told.step.phases == {"optimizer": 0.45}


def pod_log(lab: Lab, pod: str, restarts: int, text: str) -> None:
    lines = "".join(
        f"2026-11-29T12:00:{at:02}.5Z stdout F {line}\n"
        for at, line in enumerate(text.splitlines())
    )
    lab.write(f"pods/team_{pod}_{UID}/trainer/{restarts}.log", lines)


def test_a_container_that_is_started_again_is_another_attempt_of_the_same_run(lab: Lab) -> None:
    lab.start(Watched("/logs/pods/*/*/*.log"))
    lab.read()
    pod_log(lab, "llama-worker-0", 0, titan(10) + titan(20) + titan(30))
    lab.read()
    pod_log(lab, "llama-worker-0", 1, titan(20) + titan(30) + titan(40))
    lab.read()
    track = lab.track("llama")
    assert (track.attempt, track.highest, track.duplicates) == ("2", 40, 0)
    assert track.repeated > 0
    assert track.recent[0].step.wall == pytest.approx(1795953600.5)


def test_the_kubelets_links_are_followed_below_the_root(lab: Lab) -> None:
    target = lab.write(f"docker/{UID}.log", titan(1))
    folder = lab.root / f"logs/pods/team_job_{UID}/trainer"
    folder.mkdir(parents=True)
    (folder / "0.log").symlink_to("/" + str(target.relative_to(lab.root)))
    lab.start(Watched("/logs/pods/*/*/*.log"))
    lab.read()
    assert lab.track().last == 1


def test_a_busy_file_keeps_no_other_waiting(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_logs, "SHARE", 10_000)
    monkeypatch.setattr(training_logs, "CHUNK", 5_000)
    lab.start()
    lab.read()
    lab.write("busy.log", "x" * 99 + "\n" + titan(1) + ("x" * 99 + "\n") * 1000)
    lab.write("quiet.log", titan(1))
    lab.read()
    assert lab.track("quiet").last == 1
    lag = lab.value("train_log_lag_bytes", "busy")
    assert lag is not None
    assert 85_000 < lag < 95_000
    for _ in range(12):
        lab.read()
    assert lab.value("train_log_lag_bytes", "busy") == 0


def test_a_log_full_of_steps_keeps_no_other_waiting(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read ends after a second, and the next one begins with those that had no turn."""
    monkeypatch.setattr(training_logs, "CHUNK", 100)
    lab.start()
    lab.read()
    lab.write("a.log", "".join(map(titan, range(1, 100))))
    lab.write("b.log", titan(1))
    real = lab.ledger.tell

    def slow(*told: Any) -> int:
        lab.clock.advance(0.5)
        return real(*told)

    monkeypatch.setattr(lab.ledger, "tell", slow)
    monkeypatch.setattr(training_logs, "SHARE", 1000)
    lab.read()
    assert lab.runs == {"a"}
    lab.read()
    assert lab.track("b").last == 1
    for _ in range(30):
        lab.read()
    assert lab.track("a").last == 99


def test_the_slowest_rank_is_shown_while_it_is_news(lab: Lab) -> None:
    lab.start()
    lab.read()
    lab.write(
        "job.log",
        "iteration 5/ 10 | elapsed time per iteration (ms): 9000.0 | lm loss: 2.0 |\n"
        "| MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: 3468.20ms/0 |\n",
    )
    lab.read()
    lab.read()
    assert lab.value("train_extreme_rank_step_seconds", "job", "8", "fastest") == 3.45308
    assert lab.value("train_extreme_rank_step_seconds", "job", "0", "slowest") == 3.4682
    lab.read(700)
    lab.read()
    assert lab.value("train_extreme_rank_step_seconds", "job", "0", "slowest") is None


def test_one_that_is_too_far_behind_goes_on_near_the_end(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in (("SHARE", 1000), ("BACKLOG", 1000), ("FARTHEST", 50_000)):
        monkeypatch.setattr(training_logs, name, size)
    lab.start()
    lab.read()
    lab.write("job.log", titan(1) + titan(2))
    lab.read()
    lab.write("job.log", ("x" * 99 + "\n") * 1000 + titan(500))
    for _ in range(4):
        lab.read()
        if lab.faults:
            break
    assert "passed over" in lab.faults[0].detail
    lab.read()
    lab.read()
    assert (lab.track().last, lab.track().steps) == (500, 3)
    skipped = lab.value("train_log_skipped_bytes_total", "job")
    assert skipped is not None
    assert skipped > 90_000


def test_too_many_files_are_told(lab: Lab) -> None:
    for number in range(5):
        path = lab.write(f"{number}.log", titan(1))
        os.utime(path, (lab.clock.time() - number,) * 2)
    lab.start(max_files=3)
    lab.read()
    assert lab.value("train_log_files") == 3
    assert lab.runs == {"0", "1", "2"}
    assert Drop("files", 2) in lab.items
    assert "2 are not read" in lab.faults[0].detail


@pytest.mark.parametrize(
    ("path", "template", "name"),
    [
        ("/scratch/me/slurm-123.out", None, "slurm-123"),
        ("/scratch/me/llama/rank0.log", "{folder}", "llama"),
        ("/scratch/me/llama/rank0.log", "big-run", "big-run"),
        ("/scratch/me/llama/rank0.log", "{folder}/{file}", "llama/rank0"),
        (f"/var/log/pods/team_llama-worker-3_{UID}/trainer/0.log", None, "llama"),
        (f"/var/log/pods/team_llama-worker-3_{UID}/trainer/0.log", "{namespace}/{pod}",
         "team/llama-worker-3"),
        ("/x/a\nb.log", None, "a_b"),
        ("/x/" + "n" * 200 + ".log", None, "n" * 128),
    ],
)  # fmt: skip
def test_names_of_runs(path: str, template: str | None, name: str) -> None:
    assert run_of(path, template) == name


def test_a_rank_that_is_stated(lab: Lab) -> None:
    lab.start(Watched("/logs/*.log", run="llama", rank=5))
    lab.read()
    lab.write("rank5.log", titan(1))
    lab.read()
    assert lab.track("llama", 5).last == 1


def test_a_job_that_writes_while_we_read(lab: Lab) -> None:
    """A thread writes, cuts lines anywhere, and rotates; each step is counted once.

    As everywhere it rotates less often than is read.
    """
    lab.start()
    lab.write("job.log", "")
    lab.read()
    done, reads = threading.Event(), [0]
    last = 400

    def job() -> None:
        path = lab.root / "logs/job.log"
        file = path.open("ab", buffering=0)
        for step in range(1, last + 1):
            line = titan(step).encode()
            cut = step % len(line)
            file.write(line[:cut])
            file.write(line[cut:])
            if step % 50 == 0:
                enough = reads[0] + 3
                while reads[0] < enough:
                    done.wait(0.001)
                path.rename(path.with_name(f"job.log.{step}"))
                file.close()
                file = path.open("ab", buffering=0)
        file.close()
        done.set()

    thread = threading.Thread(target=job)
    thread.start()
    while not done.is_set():
        lab.read(0.001)
        reads[0] += 1
    thread.join()
    for _ in range(6):
        lab.read()
    track = lab.track()
    assert (track.steps, track.last, track.attempt, track.duplicates) == (last, last, "", 0)


def test_two_jobs_whose_logs_have_one_name_are_told_and_not_mixed_in_silence(
    tmp_path: Path,
) -> None:
    """`/scratch/*/train.log`: two jobs became one run, `train`, of a thousand steps at once."""
    lab = Lab(tmp_path)
    lab.start(Watched("/logs/*/train.log"))
    lab.read()
    lab.write("a/train.log", titan(1))
    lab.read()
    assert not lab.faults
    lab.write("a/train.log", titan(2))
    lab.write("b/train.log", titan(1001))
    lab.read()
    (fault,) = {fault.detail for fault in lab.faults}
    assert "in 2 folders are taken for one run (train)" in fault
    assert "state run: '{folder}'" in fault


@pytest.mark.parametrize("run", ["{folder}", "one"])
def test_logs_of_one_name_whose_run_is_stated_are_no_fault(run: str, tmp_path: Path) -> None:
    """With the folder's name they are two runs, with a plain name they are meant to be one."""
    lab = Lab(tmp_path)
    lab.start(Watched("/logs/*/train.log", run=run))
    lab.read()
    lab.write("a/train.log", titan(1))
    lab.write("b/train.log", titan(1))
    lab.read()
    assert not lab.faults
    assert lab.runs == ({"a", "b"} if run == "{folder}" else {"one"})


NCCL = (
    "node1:41:60 [0] NCCL INFO comm 0x64 rank 0 nRanks 32 nNodes 4 localRanks 8 localRank 0 MNNVL"
    " 0\n"
    "node1:41:60 [0] NCCL INFO AllReduce: 268435456 Bytes -> Algo {} proto SIMPLE"
    " channel{{Lo..Hi}}={{0..23}} comm 0x64\n"
)


@pytest.mark.parametrize(("algorithm", "said"), [("COLLNET_DIRECT", 1), ("RING", 0)])
@pytest.mark.parametrize("prefix", ["", "2026-11-30T08:00:00.123456789Z stderr F ", "[rank0]: "])
def test_what_nccl_says_of_sharp_in_a_job_s_log_is_told(
    lab: Lab, algorithm: str, said: int, prefix: str
) -> None:
    """Among the steps, as most people have it; in pieces, as it is written."""
    lab.start()
    lab.read()
    lines = NCCL.format(algorithm).splitlines()
    text = titan(1) + "".join(f"{prefix}{line}\n" for line in lines) + titan(2)
    lab.write("job.log", text[:-250])
    lab.read()
    assert lab.value("train_collnet_logged", "job") is None
    lab.write("job.log", text[-250:])
    lab.read()
    assert lab.value("train_collnet_logged", "job") == said
    assert lab.faults == []


def test_of_a_log_that_was_there_before_the_beginning_tells_of_communicators(lab: Lab) -> None:
    """NCCL says them once, when the job starts."""
    first, choice = NCCL.format("RING").splitlines(keepends=True)
    lab.write("job.log", first + titan(1) * 20_000)
    lab.start()
    lab.read()
    lab.write("job.log", choice)
    lab.read()
    assert lab.value("train_collnet_logged", "job") == 0


def test_a_log_without_nccl_says_nothing_of_sharp(lab: Lab) -> None:
    lab.start()
    lab.read()
    lab.write("job.log", titan(1))
    lab.read()
    assert lab.value("train_collnet_logged", "job") is None
