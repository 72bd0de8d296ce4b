"""States of the HF Trainer, MLflow, W&B, pages of metrics: as recorded, and damaged."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.formats import mlflow, trainer_state, wandb
from exporter.formats.exposition import Reader
from exporter.formats.trainpage import WANTED, TrainingPage
from exporter.samples import Malformed
from exporter.training import Step
from exporter.training.records import Record

DATA = Path(__file__).parent.parent / "data" / "training"
STATE = (DATA / "hf-trainer-5.24" / "trainer_state.json").read_bytes()
OFFLINE = (DATA / "wandb" / "run-abc123.wandb").read_bytes()


def test_the_state_of_a_trainer_is_its_history_by_step() -> None:
    """Evaluations of a step lie beside its loss; the summary at the end adds nothing."""
    state = trainer_state.read_state(STATE)
    assert (state.step, state.last_step, state.batch) == (100, 100, 8.0)
    assert [entry.step for entry in state.entries] == list(range(10, 101, 10))
    middle, last = state.entries[4].values, state.entries[9].values
    assert (middle["train_runtime"], middle["eval_runtime"]) == (0.4148, 0.0208)
    assert (last["num_input_tokens_seen"], last["train_runtime"]) == (51200, 0.8776)
    assert "train_loss" not in last


def test_values_that_are_text_are_numbers() -> None:
    """Axolotl writes them so."""
    text = json.dumps({"log_history": [{"step": 1, "loss": "2.5", "a": "x", "b": "1_0"}]})
    assert trainer_state.read_state(text.encode()).entries[0].values == {"loss": 2.5}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (STATE[: len(STATE) // 2], "not JSON"),
        (b"[]", "no log_history"),
        (b"{}", "no log_history"),
        (b'{"log_history": [{"loss": 1}]}', "log_history.0: no step"),
        (b'{"log_history": [{"step": -1}]}', "log_history.0: no step"),
        (b'{"log_history": [3]}', "log_history.0: no step"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_what_is_no_state_says_why(text: bytes, said: str) -> None:
    with pytest.raises(Malformed, match=said):
        trainer_state.read_state(text)


def test_a_metric_of_mlflow_is_lines_of_time_value_and_step() -> None:
    run = DATA / "mlflow" / "335424757119714184" / "b58aaf083f8046818968e682fd929bde"
    points = [mlflow.read_point(line) for line in (run / "metrics/loss").read_bytes().splitlines()]
    assert [point.step for point in points] == [10, 20, 30, 40, 50]
    assert points[0] == mlflow.Point(1796014177.806, 4.0, 10)
    assert math.isnan(points[3].value)
    meta = mlflow.read_meta((run / "meta.yaml").read_text())
    assert meta == mlflow.Meta("gallant-shark-1", True, 1796014177.787, 1796014177.82, "ended")


@pytest.mark.parametrize("line", [b"", b"x 1 2", b"1 x 2", b"1 1 -2", b"1", b"9" * 400, b"1 1_0 2"])
def test_a_line_that_is_no_point_is_malformed(line: bytes) -> None:
    with pytest.raises(Malformed, match="not a time, a value and a step"):
        mlflow.read_point(line)


def test_a_description_without_a_name_is_malformed() -> None:
    with pytest.raises(Malformed, match="neither run_name nor run_id"):
        mlflow.read_meta("name: Default\n")


def told_of(text: bytes) -> list[wandb.Told]:
    records = wandb.read_records(text[wandb.HEADER :], wandb.HEADER)
    return [told for one in records.data if (told := wandb.read_record(one)) is not None]


def test_an_offline_file_holds_the_run_its_history_and_its_end() -> None:
    wandb.expect_header(OFFLINE)
    run, *rows, end = told_of(OFFLINE)
    assert (run.run, run.project, run.config["world_size"]) == ("tiny-run", "llm", 2.0)
    assert [row.step for row in rows] == [10, 20, 30, 40, 50]
    assert [row.values["step_time"] for row in rows] == [0.6, 0.7, 0.8, 0.9, 1.0]
    assert [row.values["train/lr"] for row in rows][:2] == [0.001, 0.0005]
    assert math.isnan(rows[3].values["train/loss"])
    assert rows[0].wall == pytest.approx(1796014867.0, abs=60)
    assert "note" not in rows[0].values
    assert end.exit_code == 0


@settings(deadline=None)
@given(st.integers(wandb.HEADER, len(OFFLINE)))
def test_a_truncated_offline_file_waits_for_its_rest(length: int) -> None:
    """Wherever it ends, within a frame or between two blocks, nothing is lost or told twice."""
    first = wandb.read_records(OFFLINE[wandb.HEADER : length], wandb.HEADER)
    second = wandb.read_records(OFFLINE[first.at :], first.at)
    whole = wandb.read_records(OFFLINE[wandb.HEADER :], wandb.HEADER)
    assert first.at <= length
    assert (*first.data, *second.data) == whole.data
    assert whole.broken == first.broken == second.broken == ()


def test_a_damaged_record_costs_itself_alone() -> None:
    """The second row: its frame says how long it is, so the third is found."""
    damaged = bytearray(OFFLINE)
    at = OFFLINE.rindex(b"0.0005")
    damaged[at] ^= 1
    records = wandb.read_records(bytes(damaged)[wandb.HEADER :], wandb.HEADER)
    assert len(records.broken) == 1
    assert at - 300 < records.broken[0] < at
    assert [one.step for one in told_of(bytes(damaged)) if one.step] == [10, 30, 40, 50]


def test_a_damaged_length_costs_the_rest_of_its_block() -> None:
    damaged = bytearray(OFFLINE)
    damaged[wandb.HEADER + 4 : wandb.HEADER + 6] = b"\xff\xff"
    records = wandb.read_records(bytes(damaged)[wandb.HEADER :], wandb.HEADER)
    assert records.broken[0] == wandb.HEADER
    assert [one.step for one in told_of(bytes(damaged)) if one.step] == [30, 40, 50]


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_a_file_of_ours_or_malformed(junk: bytes) -> None:
    records = wandb.read_records(junk, wandb.HEADER)
    assert wandb.HEADER <= records.at <= wandb.HEADER + len(junk)
    with contextlib.suppress(Malformed):
        wandb.expect_header(junk)
    for read in (wandb.read_record, trainer_state.read_state, mlflow.read_point):
        with contextlib.suppress(Malformed):
            read(junk)
    with contextlib.suppress(Malformed):
        mlflow.read_meta(junk.decode("latin-1"))


class Job:
    """A job whose page is read again and again."""

    def __init__(self, run: str = "job") -> None:
        self.page = TrainingPage(run)
        self.reader = Reader(WANTED)

    def shows(self, text: str) -> list[Record]:
        return self.page.read(self.reader.read(text.encode()), 1.7e9)

    def step(self, text: str) -> Step:
        (step,) = (one for one in self.shows(text) if isinstance(one, Step))
        return step


def test_plain_names_on_a_page_are_a_step_when_its_number_has_grown() -> None:
    job = Job()
    page = 'train_step{{run="a"}} {}\ntrain_loss{{run="a"}} 2\ntrain_tokens_total{{run="a"}} {}\n'
    first = job.step(page.format(10, 1000))
    assert (first.run, first.step, first.loss, first.tokens) == ("a", 10, 2.0, None)
    assert job.shows(page.format(10, 1000)) == []
    second = job.step(page.format(14, 3000))
    assert (second.steps, second.tokens, second.wall) == (4, 500.0, 1.7e9)


def test_ranks_on_a_page_are_told_apart() -> None:
    steps = Job().shows(
        'train_step{rank="0"} 1\ntrain_step{rank="1"} 1\n'
        'train_step_time_seconds{rank="0"} 2\ntrain_step_time_seconds{rank="1"} 3\n'
    )
    found = {(one.rank, one.scope, one.seconds) for one in steps if isinstance(one, Step)}
    assert found == {(0, "rank", 2.0), (1, "rank", 3.0)}


def test_megatrons_names_behind_a_bridge_are_a_step_for_each_report() -> None:
    """The page has no number of the step: the histogram's count stands for it."""
    page = (
        'megatron_training_step_duration_ms_milliseconds_bucket{{le="+Inf"}} {0}\n'
        'megatron_training_step_duration_ms_milliseconds_sum{{nemo_run_id="x"}} {1}\n'
        'megatron_training_step_duration_ms_milliseconds_count{{nemo_run_id="x"}} {0}\n'
        'megatron_training_loss{{nemo_run_id="x"}} 3.5\n'
        'megatron_training_throughput_tflops{{nemo_run_id="x"}} 400\n'
        'megatron_training_skipped_iters_total{{nemo_run_id="x"}} {2}\n'
    )  # fmt: skip
    job = Job()
    assert job.step(page.format(3, 9000, 1)).seconds is None
    step = job.step(page.format(5, 13000, 2))
    assert (step.run, step.step, step.steps, step.seconds) == ("x", 5, 2, 2.0)
    assert (step.flops, step.loss, step.skipped) == (4e14, 3.5, 1)


def test_phases_of_a_page_are_those_of_one_step() -> None:
    job = Job()
    page = 'train_step {}\ntrain_phase_seconds_total{{phase="data"}} {}\n'
    job.shows(page.format(1, 10))
    assert job.step(page.format(3, 11)).phases == {"data": 0.5}


def test_a_page_that_counts_anew_is_another_attempt() -> None:
    job = Job()
    attempts = [job.step(f"train_step {n}\ntrain_loss 1\n").attempt for n in (5, 6, 2, 3)]
    assert attempts == ["", "", "#1", "#1"]


def test_a_page_without_a_number_of_the_step_tells_of_none() -> None:
    assert Job().shows("train_loss 2\ntrain_mfu_ratio 0.4\n") == []


def test_a_page_cannot_fill_the_memory_with_runs() -> None:
    job = Job()
    text = "".join(f'train_step{{run="r{i}"}} 1\ntrain_loss{{run="r{i}"}} 1\n' for i in range(99))
    assert len({one.run for one in job.shows(text)}) == 64
    assert job.page.beyond == 35


def test_nonsense_on_a_page_is_said_and_the_rest_kept() -> None:
    job = Job()
    step = job.step("train_step 1\ntrain_step_time_seconds -4\ntrain_loss 2\n")
    assert (step.seconds, step.loss) == (None, 2.0)
    assert job.page.nonsense == ["job: step 1: seconds = -4"]
