"""Names that frameworks use become quantities in base units; totals and rates become one step's."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.formats import tags
from exporter.formats.tags import TABLES, Sheet, Stream, read
from exporter.training import Facts, Step, TrainingLedger
from exporter.training.records import Record


def only(records: list[Record]) -> Step:
    (step,) = (one for one in records if isinstance(one, Step))
    return step


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ({"iteration-time": 2.5, "lm loss": 3.0, "throughput": 400.0, "batch-size": 512.0},
         {"seconds": 2.5, "loss": 3.0, "flops": 4e14, "samples": 512.0}),
        ({"throughput/tflops/device": 400.0}, {"flops": 4e14}),
        ({"time_metrics/end_to_end(s)": 2.0, "throughput(tps)": 7000.0, "tflops": 407.0,
          "mfu(%)": 41.0, "time_metrics/data_loading(%)": 5.0, "memory/max_reserved(GiB)": 2.0,
          "loss_metrics/global_avg_loss": 1.5, "grad_norm": 0.5, "lr": 0.25},
         {"seconds": 2.0, "tgs": 7000.0, "flops": 4.07e14, "mfu": pytest.approx(0.41),
          "phases": {"data": pytest.approx(0.1)}, "memory_bytes": float(2 << 30), "loss": 1.5,
          "gradient_norm": 0.5, "learning_rate": 0.25}),
        ({"throughput/batches_per_sec": 0.5, "throughput/tokens_per_sec": 1000.0,
          "throughput/samples_per_sec": 4.0, "throughput/device/flops_per_sec": 2e14,
          "throughput/device/mfu": 0.4, "loss/train/total": 2.0},
         {"seconds": 2.0, "tokens": 2000.0, "samples": 8.0, "flops": 2e14, "mfu": 0.4,
          "loss": 2.0}),
        ({"device/mfu": 0.3, "device/flops_per_sec": 1e14, "train_loss": 2.0},
         {"mfu": 0.3, "flops": 1e14, "loss": 2.0}),
        ({"perf/step_time_seconds": 5.6, "perf/per_device_tflops_per_sec": 134.9,
          "perf/per_device_tokens_per_sec": 8672.0, "learning/loss": 10.3},
         {"seconds": 5.6, "flops": pytest.approx(1.349e14), "tgs": 8672.0, "loss": 10.3}),
        ({"time_per_iteration_ms": 50.0, "tokens_per_sec_per_gpu": 5140.0, "lm_loss": 2.0,
          "tokens_per_sec": 20560.0, "model_tflops_per_gpu": 0.5},
         {"seconds": 0.05, "tgs": 5140.0, "tokens": pytest.approx(1028.0), "loss": 2.0,
          "flops": 5e11}),
        ({"train/loss": 2.0, "train/learning_rate": 0.25,
          "train/tokens/train_per_sec_per_gpu": 9.0},
         {"loss": 2.0, "learning_rate": 0.25, "tgs": 9.0}),
        ({"train_step_timing in s": 3.0, "reduced_train_loss": 2.0, "TFLOPS_per_GPU": 600.0},
         {"seconds": 3.0, "loss": 2.0, "flops": 6e14}),
        ({"train/step_time_seconds": 0.5, "train/tokens_per_second": 30.0},
         {"seconds": 0.5, "tokens": 15.0}),
        ({"step_time_ms": 250.0, "forward_time": 0.1, "data_time": 0.0},
         {"seconds": 0.25, "phases": {"forward": 0.1, "data": 0.0}}),
    ],
    ids=["megatron", "bridge", "torchtitan", "composer", "lightning", "maxtext", "nanotron",
         "axolotl", "nemo", "plain", "milliseconds"],
)  # fmt: skip
def test_what_each_framework_writes_is_a_step_in_base_units(
    told: Mapping[str, float], wanted: Mapping[str, object]
) -> None:
    """Milliseconds, TFLOP/s, percent and GiB are converted; what is not told stays unknown."""
    step = only(Stream("r").step(5, told, 1.7e9))
    plain = Step(run="r", step=5, wall=1.7e9)
    for name in Step.__dataclass_fields__:
        assert getattr(step, name) == wanted.get(name, getattr(plain, name)), name


def test_each_name_is_in_the_tables_once() -> None:
    """Two meanings of one name would depend on the order of rows."""
    names = [tag.name for table in TABLES.values() for tag in table]
    assert len(names) == len(set(names))


def test_the_first_row_counts_where_two_names_mean_the_same() -> None:
    """The mean over all of the training is not the loss of the last step."""
    assert only(Stream("r").step(9, {"train/train_loss": 4.8, "train/loss": 4.4}, None)).loss == 4.4
    assert Stream("r").step(9, {"train/train_loss": 4.8}, None) == []
    assert read({"train_loss": 2.0, "loss": 1.0}).values == {"loss": 1.0}


def test_names_of_others_are_no_step() -> None:
    assert Stream("r").step(1, {"gpu/temperature": 50.0, "lm loss vs samples": 2.0}, None) == []
    assert not tags.known("epoch")


def test_totals_give_the_mean_of_the_steps_between() -> None:
    """Tokens seen, and the runtime without the evaluation that lies in it."""
    stream = Stream("r")
    first = only(stream.step(10, {"num_input_tokens_seen": 5000.0, "train_runtime": 20.0}, None))
    assert (first.steps, first.tokens, first.seconds) == (1, None, None)
    stream.step(10, {"eval_runtime": 10.0}, None)
    second = only(stream.step(20, {"num_input_tokens_seen": 9000.0, "train_runtime": 50.0}, None))
    assert (second.steps, second.tokens, second.seconds) == (10, 400.0, 2.0)


def test_a_stream_from_the_beginning_knows_that_totals_began_at_nought() -> None:
    step = only(Stream("r", began=True).step(10, {"num_input_tokens_seen": 5000.0}, None))
    assert (step.steps, step.tokens) == (10, 500.0)


def test_a_total_that_shrinks_says_nothing() -> None:
    """It was set to nought by a restart."""
    stream = Stream("r")
    stream.step(10, {"train_runtime": 50.0}, None)
    assert only(stream.step(20, {"train_runtime": 5.0, "loss": 1.0}, None)).seconds is None


def test_what_no_quantity_can_be_is_left_out_and_said() -> None:
    """MaxText's step that was not waited for: 917442 TFLOP/s."""
    stream = Stream("r")
    step = only(
        stream.step(
            3, {"perf/per_device_tflops_per_sec": 917442.0, "lr": math.inf, "loss": math.nan}, 1.0
        )
    )
    assert (step.flops, step.learning_rate) == (None, None)
    assert math.isnan(step.loss or 0.0)
    assert stream.nonsense == [
        "step 3: perf/per_device_tflops_per_sec = 917442",
        "step 3: lr = inf",
    ]


def test_sizes_become_facts_once() -> None:
    stream = Stream("r")
    told = stream.step(1, {"iteration-time": 1.0, "world-size": 8.0}, None)
    assert Facts(run="r", framework="megatron", world_size=8) in told
    assert len(stream.step(2, {"iteration-time": 1.0, "world-size": 8.0}, None)) == 1


@pytest.mark.parametrize("size", [1e77, 2.5, -8.0, math.nan])
def test_a_size_that_nothing_has_is_no_fact(size: float) -> None:
    stream = Stream("r")
    assert stream.step(1, {"world-size": size}, None) == [Facts(run="r", framework="megatron")]
    assert stream.nonsense == [f"step 1: world-size = {size:g}"]


def test_a_number_that_does_not_grow_is_refused() -> None:
    stream = Stream("r")
    stream.step(5, {"loss": 1.0}, None)
    with pytest.raises(ValueError, match="step 4 after step 5"):
        stream.step(4, {"loss": 1.0}, None)


def test_a_stream_goes_on_where_another_one_was() -> None:
    former = Stream("r", attempt="a")
    former.step(10, {"tokens/total": 1000.0}, None)
    stream = Stream("r")
    stream.restore(former.plain())
    step = only(stream.step(12, {"tokens/total": 1500.0}, None))
    assert (step.attempt, step.steps, step.tokens) == ("a", 2, 250.0)


def test_a_step_is_complete_when_a_higher_one_has_come() -> None:
    sheet = Sheet()
    assert sheet.put(1, "a", 1.0, 10.0)
    assert sheet.put(1, "b", 2.0, 11.0)
    assert list(sheet.take()) == []
    assert sheet.put(2, "a", 3.0, 12.0)
    assert list(sheet.take()) == [(1, {"a": 1.0, "b": 2.0}, 11.0)]
    assert sheet.put(1, "c", 9.0, 13.0), "late, and passed over"
    assert list(sheet.take(last=True)) == [(2, {"a": 3.0}, 12.0)]
    assert not sheet.put(1, "a", 1.0, 14.0), "the name has been further: another attempt"


def test_a_sheet_forgets_the_oldest_beyond_its_limit() -> None:
    sheet = Sheet(most=2)
    for step in (1, 2, 3):
        sheet.put(step, "a", 0.0, None)
    assert [step for step, *_ in sheet.take(last=True)] == [2, 3]


_NAMES = sorted(tag.name for table in TABLES.values() for tag in table)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 50),
            st.dictionaries(st.sampled_from(_NAMES), st.floats(), max_size=6),
        ),
        max_size=8,
    )
)
def test_whatever_numbers_come_the_ledger_can_take_the_steps(
    rows: list[tuple[int, dict[str, float]]],
) -> None:
    """Not a number, infinite, negative, huge: none of it reaches a record where it may not."""
    ledger, stream = TrainingLedger(), Stream("r", began=True)
    for step, values in sorted(rows, key=lambda row: row[0]):
        ledger.tell("tensorboard", stream.step(step, values, None), 0.0)
