"""Every published row that can be counted comes out as it was printed."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.derive.flops import Task, hardware_flops
from tests.derive.published import ROUNDING, ROWS, published, shape_of, unreproduced

DEV = "mfu-tables-dev.json"
COUNTED = [row for row in ROWS if unreproduced(row) is None]
READ = [row for row in ROWS if unreproduced(row) is not None]


@pytest.mark.parametrize("row", COUNTED, ids=[row["id"] for row in COUNTED])
def test_a_published_row_is_reproduced(row: dict[str, Any]) -> None:
    """MFU, HFU, TFLOP/s are within the row's tolerance; what was rounded, within the rounding."""
    ours, printed = published(row), row["published"]
    compared = 0
    for key, value in (
        ("tflops_per_gpu", ours.tflops), ("mfu_pct", ours.mfu), ("hfu_pct", ours.hfu),
    ):  # fmt: skip
        if (said := printed.get(key)) is None:
            continue
        slack = ROUNDING if float(said).is_integer() else 0.005
        slack = 0.0 if key == "tflops_per_gpu" else slack
        assert value == pytest.approx(said, rel=row["tolerance_pct"] / 100, abs=slack), key
        compared += 1
    assert compared


def test_rows_for_reading_only_say_why() -> None:
    """24 rows of torchtitan publish tokens alone; PaLM's figure for GPT-3 does not add up."""
    told = {row["id"]: unreproduced(row) for row in READ if row["file"] == DEV}
    assert all(told.values())
    by_reason = [reason for reason in told.values() if reason and "neither MFU" in reason]
    assert (len(by_reason), len(told) - len(by_reason)) == (24, 1)
    assert sum(row["file"] == DEV for row in COUNTED) == 150


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row["group"] == "torchtitan" and "mfu_pct_on_bf16_basis" in row],
    ids=lambda row: row["id"],
)
def test_tables_without_mfu_agree_with_what_others_computed(row: dict[str, Any]) -> None:
    for formula, said in row["mfu_pct_on_bf16_basis"].items():
        ours = published({**row, "best_formula": formula, "peak_tflops_denominator": 989.4})
        assert ours.mfu == pytest.approx(said, abs=0.0051)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row["group"] == "megatron-sc21"], ids=lambda row: row["id"]
)
def test_narayanan_parameters_and_step_times(row: dict[str, Any]) -> None:
    """Their formula for parameters leaves the last norm out; 96-form over TFLOP/s is the time."""
    shape, arch = shape_of(row), row["arch"]
    assert shape.parameters - 2 * arch["hidden"] == round(arch["params_formula"])
    task = Task(shape=shape, sequence_length=row["seq_len"], recompute="full")
    tokens = row["global_batch_sequences"] * row["seq_len"]
    rate = row["num_gpus"] * row["published"]["tflops_per_gpu"] * 1e12
    seconds = hardware_flops(task, "full") * tokens / rate
    assert seconds == pytest.approx(row["derived_step_time_s"], rel=0.01)
