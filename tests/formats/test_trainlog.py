"""Training logs: what each recorded line says, checked by hand, and what must not be believed."""

from __future__ import annotations

import dataclasses
import itertools
import math
import subprocess
import sys
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.derive.flops import count
from exporter.formats.trainlog import FRAMEWORKS, Course, LogParser, LogStream
from exporter.formats.trainlog.lines import (
    Bar,
    StepLine,
    ranks,
    read_bar,
    read_line,
    sensible,
)
from exporter.formats.trainlog.parser import every
from exporter.formats.trainlog.text import number, plain, rank_prefix, stamp, whole
from exporter.reference.megatron import ARGUMENTS, read_arguments
from exporter.reference.models import load
from exporter.training import TrainingLedger
from exporter.training.records import Facts, Moment, Record, Step

LOGS = Path(__file__).parent.parent / "data" / "training-logs"
T = 1e12
GIB = 1 << 30


def told(name: str, **options: Any) -> list[Record]:
    """Return all records of a recorded log."""
    return every(LogParser("r", **options), (LOGS / name).read_text("utf-8").splitlines())


def steps(records: Iterable[Record]) -> list[Step]:
    return [one for one in records if isinstance(one, Step)]


def facts(records: Iterable[Record]) -> list[Facts]:
    return [one for one in records if isinstance(one, Facts)]


def moments(records: Iterable[Record]) -> list[tuple[str, int | None, float | None]]:
    return [(one.kind, one.step, one.seconds) for one in records if isinstance(one, Moment)]


def about(step: Step) -> dict[str, Any]:
    """Return what a step tells, without what it does not."""
    silent = Step(run="r", step=-1)
    return {
        field.name: value
        for field in dataclasses.fields(step)
        if (value := getattr(step, field.name)) != getattr(silent, field.name)
    }


def near(found: Iterable[Any], expected: Iterable[Any]) -> bool:
    """Tell whether values are the same, numbers but for the last digit of a float."""
    return all(
        (a == pytest.approx(b, rel=1e-9)) if isinstance(b, int | float) else a == b
        for a, b in zip(found, expected, strict=True)
    )


def same(told_: Step, /, **expected: Any) -> None:
    """Fail unless a step tells exactly this; numbers may differ in the last digit of a float."""
    found = about(told_)
    assert found.keys() == expected.keys()
    assert near([found[name] for name in expected], expected.values())


# ---------------------------------------------------------------- each recorded line


def test_megatron_lm() -> None:
    records = told("megatron-lm.log")
    first, second, third, last = steps(records)
    same(
        first, step=5, seconds=15.8, flops=490 * T, learning_rate=4.134e-7, samples=2048,
        loss=13.4424, gradient_norm=2.87,
    )  # fmt: skip
    same(
        second, step=6, seconds=15.639, flops=494.6 * T, learning_rate=4.1808e-7, samples=2048,
        loss=13.42407, gradient_norm=2.867,
    )  # fmt: skip
    same(
        third, step=300, steps=294, seconds=131.0641, tgs=8000.5, flops=412.3 * T,
        learning_rate=1.1e-5, samples=1024, loss=1.50459, gradient_norm=0.623,
    )  # fmt: skip
    same(
        last, step=1, attempt="2", seconds=271.607, flops=40.4 * T, learning_rate=1.5e-6,
        samples=1024, loss=11.92634, gradient_norm=5.96,
    )  # fmt: skip
    assert [(f.framework, f.global_batch, f.last_step) for f in facts(records)] == [
        ("megatron-lm", 2048, 100), ("megatron-lm", 1024, 300), ("megatron-lm", 1024, 24000),
    ]  # fmt: skip


def test_megatrons_straggler_line_names_ranks_anywhere() -> None:
    """They are none of this node's, so they are told apart from its own."""
    parser = LogParser("r")
    every(parser, (LOGS / "megatron-lm.log").read_text("utf-8").splitlines())
    assert parser.extremes == {"fastest": (8, 3.45308), "slowest": (0, 3.4682)}


def test_megatron_lm_timers() -> None:
    records = told("megatron-lm-timers.log")
    loaded, saved = moments(records)
    assert near(loaded, ("checkpoint_loaded", None, 4.5421))
    assert near(saved, ("checkpoint_saved", 50, 24.89513))


def test_megatron_timers_split_the_step_before_them() -> None:
    """The slowest rank's computing, and of waiting what even the fastest rank had of it."""
    parser = LogParser("r")
    lines = [
        "iteration 5/ 10 | elapsed time per iteration (ms): 9000.0 | lm loss: 2.0E+00 |",
        "(min, max) time across ranks (ms):",
        "    forward-backward ...............................: (8000.00, 8100.00)",
        "    forward-compute ................................: (2500.00, 2600.00)",
        "    backward-compute ...............................: (4000.00, 4100.00)",
        "    batch-generator ................................: (50.00, 100.00)",
        "    forward-recv ...................................: (200.00, 900.00)",
        "    all-grads-sync .................................: (300.00, 700.00)",
        "    optimizer ......................................: (400.00, 450.00)",
    ]
    (step,) = steps(every(parser, lines))
    assert step.phases == pytest.approx(
        {"forward": 2.5, "backward": 4.1, "data": 0.1, "communication": 0.5, "optimizer": 0.45}
    )


def test_megatron_deepspeed() -> None:
    records = told("megatron-deepspeed.log")
    found = steps(records)
    assert [(s.step, s.attempt, s.steps) for s in found] == [
        (5, "", 1), (6, "", 1), (199, "", 193), (200, "", 1), (13910, "", 13710), (4, "2", 1),
        (1, "3", 1),
    ]  # fmt: skip
    same(
        found[0], step=5, seconds=344.6561, learning_rate=2.27e-5, samples=1536, loss=11.00078,
        gradient_norm=0, tokens=1536 * 2048, tgs=142.612, flops=153.38 * T,
    )  # fmt: skip
    same(
        found[1], step=6, seconds=347.3192, learning_rate=1.392e-5, samples=1536, loss=11.00214,
        gradient_norm=0, tokens=1536 * 2048, tgs=141.518, flops=152.2 * T,
    )  # fmt: skip
    same(
        found[2], step=199, steps=193, seconds=14.2875, learning_rate=2.407e-4, samples=768,
        loss=5.905366, tokens=768 * 4096, tgs=1146.733, flops=69.85 * T,
    )  # fmt: skip
    same(
        found[3], step=200, seconds=14.5414, learning_rate=2.407e-4, samples=768, loss=5.897035,
        tokens=768 * 4096, tgs=1126.713, flops=68.63 * T,
    )  # fmt: skip
    same(  # this fork tells seconds, and no sequence length
        found[4], step=13910, steps=13710, seconds=11.18, learning_rate=1e-4, samples=1024,
        loss=2.152785, gradient_norm=0.114, flops=40.83 * T,
    )  # fmt: skip
    same(
        found[5], step=4, attempt="2", seconds=15.2328, learning_rate=6e-7, samples=16,
        loss=11.83278, gradient_norm=36.543, tgs=537.788, flops=25.55 * T,
    )  # fmt: skip
    same(  # and this one writes = and underscores, and FLOP/s twice
        found[6], step=1, attempt="3", seconds=29.57, learning_rate=9.4372e-9, samples=768,
        loss=11.16725, gradient_norm=6.363, tokens=768 * 4096, tgs=4432.597, flops=20.3 * T,
    )  # fmt: skip
    assert [f.world_size for f in facts(records)] == [64, 192, 192, 192, 24]
    assert {f.framework for f in facts(records)} == {"megatron-deepspeed"}


@pytest.mark.parametrize(
    ("at", "seconds", "tflops"),
    [(0, 11.65, 1158.1), (1, 8.57, 1574.0), (2, 8.63, 1562.8), (3, 7.47, 1805.6), (4, 9.09, 663.5)],
)
def test_megatron_bridge_says_flops_under_the_name_of_utilization(
    at: int, seconds: float, tflops: float
) -> None:
    line = (LOGS / "megatron-bridge.log").read_text("utf-8").splitlines()[at]
    (found,) = read_line(line)
    assert isinstance(found, StepLine)
    assert (found.framework, found.step) == ("megatron-bridge", None)
    assert found.values == pytest.approx({"seconds": seconds, "flops": tflops * T})


def test_megatron_bridge() -> None:
    """The recorded line stands after another run's own; that one's FLOP/s are not its own."""
    (step,) = steps(told("megatron-bridge.log"))
    same(
        step, step=100, seconds=3.7386, learning_rate=6e-5, samples=32, loss=7.968678,
        gradient_norm=1.04,
    )  # fmt: skip


def test_what_bridge_says_beside_belongs_to_the_same_step() -> None:
    own = "Step Time : 3.74s GPU utilization: 663.5MODEL_TFLOP/s/GPU"
    line = (LOGS / "megatron-bridge.log").read_text("utf-8").splitlines()[5]
    records = every(LogParser("r"), [own, line])
    (step,) = steps(records)
    assert (step.seconds, step.flops) == (3.7386, 663.5 * T)
    assert facts(records)[-1].framework == "megatron-bridge"


@pytest.mark.parametrize(
    ("at", "values"),
    [
        (0, {"tgs": 9640.7}), (1, {"flops": 496.3 * T}), (2, {"tgs": 9640.7}),
        (3, {"flops": 496.3 * T}), (4, {"tgs": 1444.0, "flops": 300.32 * T, "mfu": 0.231}),
    ],
)  # fmt: skip
def test_primus(at: int, values: dict[str, float]) -> None:
    (found,) = read_line((LOGS / "primus.log").read_text("utf-8").splitlines()[at])
    assert isinstance(found, StepLine)
    assert found.values == pytest.approx(values)


def test_primus_in_a_line_of_megatron() -> None:
    line = (
        "iteration 7/ 50 | elapsed time per iteration (ms): 3400.1/3399.0 | tokens/s/GPU"
        " inst/harmonic mean: 9640.7/9629.8 | compute per GPU (TFLOP/s/GPU): 496.3 (avg 496.1) |"
    )
    records = every(LogParser("r"), [line])
    same(steps(records)[0], step=7, seconds=3.4001, tgs=9640.7, flops=496.3 * T)
    assert facts(records)[0].framework == "primus"


def test_nemo() -> None:
    records = told("nemo2.log")
    found = steps(records)
    assert [(s.step, s.attempt, s.steps) for s in found] == [
        (45, "", 1), (46, "", 1), (47, "", 1), (10, "2", 1), (527, "2", 517), (528, "2", 1),
        (529, "2", 1), (28, "3", 1), (29, "3", 1), (49, "3", 20),
    ]  # fmt: skip
    keys = ("learning_rate", "samples", "loss", "seconds", "flops", "tgs", "memory_bytes")
    rows = [
        (6.897e-6, 128, 11.96, 6.08, 1249 * T, None, 115792977920),
        (7.046e-6, 128, 11.96, 6.061, 1252 * T, None, 115792977920),
        (7.196e-6, 128, 11.96, 6.082, 1248 * T, None, 115792977920),
        (1.649e-6, 128, 11.97, 3.684, 1831 * T, None, 107693703168),
        (1.758e-4, 32, 2.792, 2.389, None, 6859, None),
        (1.754e-4, 32, 3.06, 2.443, None, 6706, None),
        (1.749e-4, 32, 3.221, 2.127, None, 7702, None),
        (5.6e-6, 32, 2.778, 0.189, None, None, None),
        (5.8e-6, 32, 2.782, 0.1903, None, None, None),
        (4.491e-6, 256, 12.81, 2.693, None, None, 72972500992),
    ]
    for step, row in zip(found, rows, strict=True):
        assert near([getattr(step, key) for key in keys], list(row))
    # 2025-10-17 11:32:59 at +08:00
    assert [s.wall for s in found[4:7]] == [1760671979, 1760671982, 1760671984]
    assert [f.last_step for f in facts(records)] == [99, 14, 999, 99, 49]


def test_torchtitan() -> None:
    records = told("torchtitan.log")
    found = steps(records)
    assert [(s.step, s.attempt, s.steps) for s in found] == [
        (1, "", 1), (10, "", 9), (20, "", 10), (30, "", 10), (3, "2", 1), (4, "2", 1),
        (20, "2", 16), (100, "2", 80), (10, "3", 1), (1, "4", 1), (2, "4", 1), (3, "4", 1),
        (4, "4", 1),
    ]  # fmt: skip
    keys = ("loss", "gradient_norm", "memory_bytes", "tgs", "flops", "mfu")
    rows = [
        (12.2254, None, 27.34, 375, 21.73, 2.20), (10.7069, None, 30.99, 7034, 407.35, 41.19),
        (8.9196, None, 30.99, 7022, 406.65, 41.12), (8.1423, None, 30.99, 7014, 406.23, 41.08),
        (4.9925, 2.6422, None, 30768, 3.15, 0.32), (7.62585, 26.625, 66.91, 10050, 314.71, 13.99),
        (11.83506, 9.6669, 48.87, 4376, 253.41, 25.62),
        (6.4277, 2.9062, 158.61, 17581, 1018.2, 45.25),
        (9.9256, 9.2181, 161.51, 17441, 1010.08, 44.89),
        (10.8595, 3.2105, 8.44, 149, 1.39, 0.47), (14.4458, 41.788, 8.44, 6697, 62.15, 20.84),
        (15.2005, 66.6053, 8.44, 6562, 60.9, 20.42), (11.3134, 14.0597, 8.44, 6563, 60.9, 20.42),
    ]  # fmt: skip
    for step, (loss, norm, memory, tgs, tflops, mfu) in zip(found, rows, strict=True):
        size = None if memory is None else memory * GIB
        assert near(
            [getattr(step, key) for key in keys], [loss, norm, size, tgs, tflops * T, mfu / 100]
        )
    # Only the stamps tell how long a step took: 08:51:48,074 to 08:51:58,557 for nine.
    assert found[0].seconds is None
    assert [s.seconds for s in found[1:4]] == pytest.approx([10.483 / 9, 1.1667, 1.168])
    assert [s.seconds for s in found[4:9]] == [None] * 5
    assert found[9].seconds is None
    assert [s.seconds for s in found[10:]] == pytest.approx([0.613787, 0.625309, 0.625271])


def test_a_log_that_stalls_tells_three_steps_and_then_nothing() -> None:
    """Stamps of a second are too coarse for a step of four; the watchdog is the launcher's."""
    records = told("torchtitan-stall.log")
    found = steps(records)
    assert [(s.step, s.tgs, s.seconds) for s in found] == [
        (35, 4070, None), (36, 3960, None), (37, 3919, None)
    ]  # fmt: skip
    assert [(s.loss, s.gradient_norm, s.flops, s.mfu) for s in found] == [
        pytest.approx((11.92627, 1.7299, 45.53 * T, 0.1527)),
        pytest.approx((11.86712, 1.7081, 44.31 * T, 0.1486)),
        pytest.approx((11.80276, 1.7319, 43.85 * T, 0.147)),
    ]
    assert moments(records) == []


def test_deepspeed() -> None:
    records = told("deepspeed.log")
    one, two, three, four, five = steps(records)
    assert [(s.step, s.attempt, s.steps) for s in (one, two, three, four, five)] == [
        (20, "", 1), (30, "", 10), (10, "2", 1), (10, "3", 1), (450, "3", 440)
    ]  # fmt: skip
    same(one, step=20, learning_rate=5e-5, memory_bytes=15.06 * GIB)
    # 06:58:56,121 to 06:59:18,633 for ten steps; 227.45 samples a second
    assert two.seconds == pytest.approx(2.2512)
    assert two.samples == pytest.approx(2.2512 * 227.45044884073528)
    assert three.learning_rate == 1e-4
    assert three.memory_bytes == 1.36 * GIB
    assert four.learning_rate == pytest.approx(4.99804827338393e-05)
    # 01:55:23,711 to 02:13:41,417 for 440 steps; 25.812 samples a second
    assert five.seconds == pytest.approx(1097.706 / 440)
    assert five.samples == pytest.approx(1097.706 / 440 * 25.811997512605966)
    assert five.memory_bytes == 38.49 * GIB


def test_deepspeed_with_its_batch_known_tells_the_step_time_outright() -> None:
    """The configuration that DeepSpeed prints at the start has it."""
    lines = [
        "[2023-11-07 01:50:00,000] [INFO] [config.py:972:print]   train_batch_size .... 64",
        *(LOGS / "deepspeed.log").read_text("utf-8").splitlines()[8:9],
    ]
    (step,) = steps(every(LogParser("r"), lines))
    assert step.samples == 64
    assert step.seconds == pytest.approx(64 / 25.704280480541442)


def test_composer() -> None:
    parser = LogParser("r")
    lines = (LOGS / "composer-llm-foundry.log").read_text("utf-8").splitlines()
    records = every(parser, lines)
    one, two, three = steps(records)
    # 4096 samples in 4 batches, 2.733 a second; batches_per_sec has too few digits
    same(
        one, step=5, loss=8.4213, tgs=1255.1776, samples=1024, seconds=1024 / 2.7330
    )  # fmt: skip
    same(two, step=6, tgs=7785.3322)
    same(three, step=40, steps=34, tgs=4884.999)
    assert [f.world_size for f in facts(records)] == [16, 8]
    assert parser.unnumbered == 1  # the second block has lost its heading


def test_nanotron() -> None:
    records = told("nanotron.log")
    found = steps(records)
    assert [(s.step, s.attempt, s.steps) for s in found] == [
        (1, "", 1), (211364, "", 1), (211365, "", 1), (5, "2", 1), (7, "2", 2),
        (91, "2", 84), (91, "3", 1),
    ]  # fmt: skip
    keys = ("seconds", "tgs", "loss", "learning_rate", "flops", "gradient_norm", "memory_bytes")
    rows = [
        (4.71, 109, 5.32, 1.5e-4, 1.87e-5 * T, 2.96, 520e6),
        (8.79, 699, 2.04, 1e-4, 15.4 * T, 0.112, None),
        (8.74, 703, 2.06, 1e-4, 15.5 * T, 0.105, None),
        (0.0203, 12600, 8.35, 1e-5, 0.0843 * T, 1.64, None),
        (0.0198, 12900, 8.15, 3e-4, 0.0863 * T, 4.14e6, None),
        (0.0498, 5140, 9.2, 3.3e-5, 0.712 * T, 144e3, None),
        (0.0904, 5660, 9.2, 3.3e-5, 0.784 * T, 1.4e6, None),
    ]
    for step, row in zip(found, rows, strict=True):
        assert near([getattr(step, key) for key in keys], list(row))
    # 10.3K over 5.14K; three digits of 182K over 699 leave a doubt
    assert [(f.last_step, f.world_size) for f in facts(records)] == [
        (15, 1), (1500000, 1), (5, 1), (7, 1), (100, 2)
    ]  # fmt: skip


def test_maxtext() -> None:
    parser = LogParser("r")
    records = every(parser, (LOGS / "maxtext.log").read_text("utf-8").splitlines())
    found = steps(records)
    assert [(s.step, s.attempt) for s in found] == [
        *((n, "") for n in range(10)), (8, "2"), (9, "2"),
        *((n, "3") for n in (0, 1, 2, 3, 4, 8)), (2, "4"),
    ]  # fmt: skip
    keys = ("seconds", "flops", "tgs", "tokens", "loss")
    rows: list[tuple[float | None, ...]] = [
        (44.923, 17.022, 1094.129, 196608, 12.038), (0.319, 2400.734, 154316.608, 196608, 12.038),
        (5.658, 135.158, 8687.815, 196608, 11.689), (5.402, 141.542, 9098.189, 196608, 11.379),
        (5.669, 134.884, 8670.207, 196608, 11.11), (5.668, 134.909, 8671.794, 196608, 10.879),
        (5.668, 134.914, 8672.153, 196608, 10.688), (5.669, 134.882, 8670.101, 196608, 10.542),
        (5.668, 134.911, 8671.946, 196608, 10.44), (5.667, 134.924, 8672.758, 196608, 10.374),
        (5.67, 134.856, 8668.393, 163259, 9.596), (5.669, 134.884, 8670.184, 155934, 9.58),
        (1.353, 1674.038, 36325.072, 1572864, 10.874), (12.444, 182.028, 3949.842, 1572864, 10.41),
        (None, None, None, 1572864, 10.043), (11.715, 193.354, 4195.595, 1572864, 9.774),
        (11.645, 194.526, 4221.032, 1572864, 9.61), (0.159, 43.43, None, None, 220.774),
        (0.57, 37.633, 7185.042, 5480, 0.693),
    ]  # fmt: skip
    for step, (seconds, tflops, tgs, tokens, loss) in zip(found, rows, strict=True):
        flops = None if tflops is None else tflops * T
        assert near([getattr(step, key) for key in keys], [seconds, flops, tgs, tokens, loss])
    assert parser.nonsense == ["flops 9.17443e+17"]


def test_917442_tflops_are_dropped_with_the_time_they_come_from_and_the_step_is_kept() -> None:
    """Dispatched, not done: MaxText took 2 ms for a step of 12 s."""
    (step,) = [s for s in steps(told("maxtext.log")) if (s.step, s.attempt) == (2, "3")]
    same(step, step=2, attempt="3", tokens=1572864, loss=10.043)


def test_trainer_without_bars_tells_only_its_summary() -> None:
    """Without a number a step cannot be counted; 299.2 s at 0.334 steps a second are 100."""
    parser = LogParser("r")
    records = every(parser, (LOGS / "hf-trainer.log").read_text("utf-8").splitlines())
    one, two, three = steps(records)
    same(one, step=100, steps=100, seconds=2.991983, samples=8.021 * 299.1983 / 100)
    same(two, step=10, attempt="2", seconds=1.24474, samples=154.249 * 12.4474 / 10)
    same(three, step=1, attempt="3", seconds=1.5203, samples=6.578 * 1.5203)
    assert parser.unnumbered == 3
    assert [kind for kind, *_ in moments(records)] == ["ended", "ended", "ended"]


@pytest.mark.parametrize(
    ("name", "at", "values", "sums"),
    [
        ("hf-trainer.log", 0,
         {"loss": 2.6031, "gradient_norm": 1.8801486492156982,
          "learning_rate": 5.000000000000001e-07},
         {"tokens": 19660800, "seconds": 252.007}),
        ("hf-trainer.log", 2,
         {"loss": 2.9934, "gradient_norm": 4.500864028930664, "learning_rate": 1e-5},
         {"tokens": 221184}),
        ("hf-trainer.log", 3,
         {"loss": 2.8064, "gradient_norm": 6.904043197631836, "learning_rate": 5e-6},
         {"tokens": 245760}),
        ("axolotl.log", 0, {"loss": 1.695, "gradient_norm": 7.532}, {}),
        ("axolotl.log", 1, {"loss": 1.105, "gradient_norm": 5.17, "tgs": 3049}, {}),
        ("axolotl.log", 2, {"loss": 0.0004104, "gradient_norm": 0.009908}, {}),
    ],
)  # fmt: skip
def test_a_dictionary_of_trainer_or_axolotl(
    name: str, at: int, values: dict[str, float], sums: dict[str, float]
) -> None:
    (found,) = read_line((LOGS / name).read_text("utf-8").splitlines()[at])
    assert isinstance(found, StepLine)
    assert found.step is None
    assert found.values == values
    assert found.sums == sums
    assert found.framework == name.partition(".")[0].replace("hf-trainer", "transformers")


def test_trainer_with_its_logging_steps_stated() -> None:
    """A real log of Transformers 5.24: ten steps a line, two evaluations between them."""
    found = steps(told("hf-trainer-5.24.log", steps_per_line=10))
    assert [(s.step, s.steps) for s in found] == [(n, 10) for n in range(10, 101, 10)]
    assert [s.tokens for s in found] == [512] * 10
    assert [s.loss for s in found] == [
        5.525, 5.339, 5.104, 4.911, 4.775, 4.633, 4.56, 4.504, 4.474, 4.447
    ]  # fmt: skip
    runtimes = [0, 0.0915, 0.1727, 0.2519, 0.3321, 0.4148, 0.5634, 0.6424, 0.7214, 0.7982, 0.8776]
    spans = [b - a for a, b in itertools.pairwise(runtimes)]
    spans[5] -= 0.0208  # the evaluation
    assert [s.seconds for s in found] == pytest.approx([span / 10 for span in spans])
    assert found[0].gradient_norm == 0.8433
    assert found[0].learning_rate == 0.0009


def test_trainer_with_its_bars() -> None:
    """A real log of Transformers 5.19: seven steps a line, evaluations with bars of their own."""
    log = stream()
    data = (LOGS / "hf-trainer-5.19-bars.log").read_bytes()
    found = steps(log.feed(data) + log.rest())
    assert [s.step for s in found] == list(range(7, 99, 7))
    assert [s.steps for s in found] == [1, *[7] * 13]
    assert {s.tokens for s in found[1:]} == {64.0}  # four samples of 16 tokens
    # From 0.8911 s to 1.763 s; from 4.346 s to 9.947 s with an evaluation of 3.862 s between.
    assert found[1].seconds == pytest.approx((1.763 - 0.8911) / 7)
    assert found[4].seconds == pytest.approx((9.947 - 4.346 - 3.862) / 7)
    assert [s.loss for s in found[:3]] == [4.859, 4.859, 4.856]
    assert log.flaws == []


def test_axolotl_with_its_logging_steps_stated() -> None:
    """The last line's 0 tokens a second are no reading."""
    records = told("axolotl.log", steps_per_line=5)
    one, two, three = steps(records)
    same(one, step=5, steps=5, loss=1.695, gradient_norm=7.532)
    same(two, step=10, steps=5, loss=1.105, gradient_norm=5.17, tgs=3049)
    same(three, step=15, steps=5, loss=0.0004104, gradient_norm=0.009908)
    assert ("ended", 260, None) in moments(records)


def test_a_loop_of_ones_own() -> None:
    """The log of a real run of two ranks; whose tokens it counts it does not say."""
    rows = [
        (0, 6.42, 0.578, 3e-4, 33.7, 30391), (5, 6.3501, 0.583, 2.93e-4, 35.9, 28510),
        (10, 6.2039, 0.57, 2.76e-4, 24.9, 41049), (15, 6.1702, 0.592, 2.5e-4, 25.1, 40803),
        (20, 6.1083, 0.598, 2.18e-4, 26.6, 38449), (25, 6.0195, 0.584, 1.81e-4, 25.4, 40326),
        (30, 5.9718, 0.584, 1.42e-4, 26.5, 38620), (35, 5.9297, 0.563, 1.04e-4, 30.5, 33538),
        (40, 5.904, 0.555, 6.83e-5, 28.4, 36020), (45, 5.8943, 0.562, 3.85e-5, 31.4, 32626),
        (50, 5.8532, 0.57, 1.63e-5, 31.6, 32386), (55, 5.9023, 0.571, 3.28e-6, 25.1, 40749),
    ]  # fmt: skip
    unknown = steps(told("torch-ddp-gloo.log"))
    of_gpu = steps(told("torch-ddp-gloo.log", tokens_of="gpu"))
    of_run = steps(told("torch-ddp-gloo.log", tokens_of="run"))
    for at, (step, loss, norm, rate, span, tokens) in enumerate(rows):
        common = {"loss": loss, "gradient_norm": norm, "learning_rate": rate}
        common |= {"step": step, "seconds": span / 1000}
        if step:
            common["steps"] = 5
        same(unknown[at], **common)
        same(of_gpu[at], **common, tgs=tokens)
        same(of_run[at], **common, tokens=tokens * span / 1000)


# ---------------------------------------------------------------- restarts and several writers


def titan(step: int, tps: int = 100) -> str:
    return f"step: {step:2}  loss:  2.0  memory: 1.00GiB(1.0%)  tps: {tps}  tflops: 1.0  mfu: 1.0%"


def test_a_lower_number_is_another_attempt() -> None:
    parser = LogParser("r")
    records = every(parser, map(titan, (10, 20, 30, 20, 30, 40)))
    assert [(s.step, s.attempt) for s in steps(records)] == [
        (10, ""), (20, ""), (30, ""), (20, "2"), (30, "2"), (40, "2")
    ]  # fmt: skip
    assert ("recovered", 20, None) in moments(records)


def test_the_same_line_again_is_the_same_step() -> None:
    """Many loggers print everything twice."""
    found = steps(every(LogParser("r"), [titan(1), titan(1), titan(2), titan(2)]))
    assert [(s.step, s.attempt) for s in found] == [(1, ""), (2, "")]


def test_ranks_that_print_the_same_steps_are_one_run() -> None:
    """With LOG_RANK=0,1 torchtitan's ranks print in any order."""
    lines = [
        f"[rank{rank}]:{titan(step, 100 + rank)}"
        for step, rank in ((1, 0), (1, 1), (2, 1), (2, 0), (3, 0), (4, 0), (3, 1), (4, 1))
    ]
    found = steps(every(LogParser("r"), lines))
    assert [(s.step, s.attempt) for s in found] == [(1, ""), (2, ""), (3, ""), (4, "")]


def test_a_restarted_container_writes_another_file() -> None:
    """Both files share the course of the run, so that the ledger counts what is repeated."""
    course = Course()
    before = LogParser("r", course=course, writer="pod")
    after = LogParser("r", course=course, writer="pod")
    ledger = TrainingLedger()
    ledger.tell("log", every(before, map(titan, (10, 20, 30))), 0.0)
    ledger.tell("log", every(after, map(titan, (20, 30, 40))), 1.0)
    (track,) = ledger.runs(1.0)[0].tracks.values()
    assert (track.highest, track.duplicates) == (40, 0)
    assert track.attempt == "2"
    assert track.repeated > 0


def test_the_logs_of_two_ranks_are_one_run_however_they_are_read() -> None:
    """At the start one file is read to its end before the other."""
    course = Course()
    one = LogParser("r", course=course, writer="rank0.log")
    two = LogParser("r", course=course, writer="rank1.log")
    found = steps(every(one, map(titan, range(1, 31))) + every(two, map(titan, range(1, 33))))
    assert [(s.step, s.attempt) for s in found] == [(n, "") for n in range(1, 33)]


def test_a_failure_and_a_recovery() -> None:
    lines = [
        "- INFO - Training starts at step 1", titan(1), titan(2),
        "[rank0]:[E1129 12:00:00] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "- INFO - Training starts at step 2", titan(2), titan(3),
        "- INFO - Finished saving the checkpoint in 5.53 seconds.", titan(4),
        "- INFO - Training completed",
    ]  # fmt: skip
    records = every(LogParser("r"), lines)
    assert moments(records) == [
        ("started", 1, None), ("first_step", 1, None), ("failed", None, None),
        ("started", 2, None), ("recovered", 2, None), ("checkpoint_saved", 3, 5.53),
        ("ended", None, None),
    ]  # fmt: skip
    assert [(s.step, s.attempt) for s in steps(records)] == [
        (1, ""), (2, ""), (2, "2"), (3, "2"), (4, "2")
    ]  # fmt: skip


def test_after_lines_were_missed_a_step_stands_for_as_many_as_usual() -> None:
    parser = LogParser("r")
    every(parser, map(titan, (10, 20)))
    parser.interrupt()
    (step,) = steps(parser.feed(titan(500)))
    assert step.steps == 10


def test_a_course_is_kept_and_found_again() -> None:
    course = Course()
    every(LogParser("r", course=course), map(titan, (10, 20, 10)))
    again = Course.restored(course.plain())
    assert (again.name, again.last) == ("2", 10)
    assert Course.restored(["x"]).plain() == Course().plain()


def test_a_step_beyond_the_last_one_is_a_misprint() -> None:
    parser = LogParser("r")
    line = "iteration {}/ 100 | elapsed time per iteration (ms): 10.0 | lm loss: 1.0E+00 |"
    assert steps(every(parser, [line.format(5), line.format(500), line.format(6)])) != []
    assert parser.nonsense == ["step 500 of 100"]


# ---------------------------------------------------------------- facts


def test_megatrons_arguments_tell_the_sizes() -> None:
    lines = [
        (
            "using world size: 64, data-parallel size: 8, context-parallel size: 1, hierarchical"
            " context-parallel sizes: Nonetensor-model-parallel size: 4, pipeline-model-parallel"
            " size: 2"
        ),
        "------------------------ arguments ------------------------",
        "  global_batch_size ............................... 512",
        "  micro_batch_size ................................ 1",
        "[default0]:  seq_length ...................................... 4096",
        "  recompute_granularity ........................... selective",
        "  virtual_pipeline_model_parallel_size ............ None",
        "  train_iters ..................................... 1000",
    ]
    found = facts(every(LogParser("r"), lines))[-1]
    assert found == Facts(
        run="r", framework="megatron", world_size=64, data_parallel=8, context_parallel=1,
        tensor_parallel=4, pipeline_parallel=2, global_batch=512, micro_batch=1,
        sequence_length=4096, recompute="selective", last_step=1000,
    )  # fmt: skip


LISTED = {
    "num_layers": "32", "hidden_size": "4096", "ffn_hidden_size": "14336", "swiglu": "True",
    "num_attention_heads": "32", "group_query_attention": "True", "num_query_groups": "8",
    "normalization": "RMSNorm", "add_bias_linear": "False", "position_embedding_type": "rope",
    "untie_embeddings_and_output_weights": "True", "padded_vocab_size": "128256",
    "hybrid_attention_ratio": "0.0", "hybrid_override_pattern": "None", "num_experts": "None",
    "moe_layer_freq": "1", "recompute_granularity": "None", "window_size": "None",
}  # fmt: skip


def listing(arguments: dict[str, str]) -> list[str]:
    """Return the list of arguments as Megatron prints it, sorted, with some that say nothing."""
    told = {**arguments, "adam_beta1": "0.9", "data_path": "['a b', 'c']", "lr": "0.0003"}
    body = [f"  {name} {'.' * (48 - len(name))} {told[name]}" for name in sorted(told)]
    ends = "-" * 24 + " arguments " + "-" * 24, "-" * 20 + " end of arguments " + "-" * 21
    return [ends[0], *body, ends[1]]


def test_megatrons_arguments_tell_the_model() -> None:
    """A job that prints its arguments needs no config: it is Llama-3.1-8B."""
    (found,) = {one.run: one for one in facts(every(LogParser("r"), listing(LISTED)))}.values()
    assert found.config is not None
    assert dict(found.config) == LISTED
    work = count(found, load())
    assert work.total_parameters == 8_030_261_248
    assert work.hardware["6n"] == work.model["6n"]


def test_a_list_of_arguments_that_was_not_seen_from_its_beginning_tells_no_model() -> None:
    """The file was opened in the middle of it, or cut; what is missing would be a default."""
    whole = listing(LISTED)
    for lines in (whole[5:], whole[:-1], [*whole[:9], *listing({})]):
        assert all(one.config is None for one in facts(every(LogParser("r"), lines)))


def test_experts_in_some_layers_are_told_by_a_list_of_any_length() -> None:
    layers = str([0] * 3 + [1] * 58)
    change = {"num_layers": "61", "num_experts": "8", "moe_layer_freq": layers}
    found = facts(every(LogParser("r"), listing({**LISTED, **change})))[-1]
    assert found.config is not None
    assert read_arguments(found.config).expert_layers == 58


def test_every_argument_that_counting_asks_for_is_read_from_a_log() -> None:
    """Those but the switches of a command line that the list tells under another name."""
    elsewhere = {"disable_bias_linear", "share_embeddings_and_output_weights"}
    told = dict.fromkeys(ARGUMENTS, "1")
    found = facts(every(LogParser("r"), listing(told)))[-1]
    assert found.config is not None
    assert ARGUMENTS - found.config.keys() <= elsewhere


def test_torchtitan_tells_mesh_and_batch() -> None:
    lines = [
        (
            "[titan] Building device mesh with parallelism: pp=2, dp_replicate=1, dp_shard=8, cp=1,"
            " tp=4, ep=1, etp=1"
        ),
        (
            "Trainer is initialized with local batch size 8, global batch size 64, gradient"
            " accumulation steps 1, sequence length 2048, total steps 10 (warmup 2)"
        ),
    ]
    assert facts(every(LogParser("r"), lines))[-1] == Facts(
        run="r", framework="torchtitan", world_size=64, pipeline_parallel=2, data_parallel=8,
        context_parallel=1, tensor_parallel=4, expert_parallel=1, micro_batch=8, global_batch=64,
        sequence_length=2048, last_step=10,
    )  # fmt: skip


def test_trainers_banner() -> None:
    lines = [
        "***** Running training *****",
        "  Num examples = 1,000",
        "  Total train batch size (w. parallel, distributed & accumulation) = 64",
        "  Total optimization steps = 1,875",
    ]
    records = every(LogParser("r"), lines)
    assert facts(records)[-1] == Facts(
        run="r", framework="transformers", global_batch=64, last_step=1875
    )
    assert moments(records) == [("started", None, None)]


# ---------------------------------------------------------------- numbers, stamps, prefixes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("17,581", 17581), ("1,018.20", 1018.2), ("4.71K", 4710), ("480B", 480e9), ("1.6M", 1.6e6),
        ("1.249e+03", 1249), ("  7.0E-06 |", 7e-6), ("41.19%", 41.19), ("27.34GiB(28%)", 27.34),
        ("64.15MiB", 64.15), ("9640.7/9629.8", 9640.7), ("496.3 (avg 496.1)", 496.3),
        (".5", 0.5), ("-3", -3), ("inf", math.inf), ("x", None), ("", None), ("N/A", None),
        ("...", None), ("nano", None), ("1,23", 1),
    ],
)  # fmt: skip
def test_numbers(text: str, value: float | None) -> None:
    assert number(text) == value


def test_whole_numbers_and_colours() -> None:
    assert [whole(t) for t in ("1,875", "2.5", "nan", "1e30", "7")] == [1875, None, None, None, 7]
    assert plain("\x1b[31mstep:  1\x1b[0m \x1b[1;38;5;4mx\x1b[m") == "step:  1 x"
    prefixed = ("3:  [2026-", "[default0]: x", "[rank7]:[titan]", " 0: INFO", "12:30:00 x", "x")
    assert [rank_prefix(text) for text in prefixed] == ["3", "0", "7", "0", "", ""]


def test_colours_of_torchtitan_are_no_part_of_a_number() -> None:
    line = (
        "\x1b[31mstep: 10  \x1b[32mloss:  9.9256  \x1b[38;2;180;60;0mgrad_norm:  9.2181  \x1b[36m"
        "memory: 161.51GiB(90.56%)  \x1b[34mtps: 17,441  \x1b[36mtflops: 1,010.08  \x1b[35mmfu:"
        " N/A\x1b[39m"
    )
    (step,) = steps(every(LogParser("r"), [line]))
    same(
        step, step=10, loss=9.9256, gradient_norm=9.2181, memory_bytes=161.51 * GIB, tgs=17441,
        flops=1010.08 * T,
    )  # fmt: skip


def test_stamps() -> None:
    def seconds(text: str) -> float:
        found = stamp(text)
        assert found is not None
        return found.seconds

    assert seconds("x 2025-06-04 08:51:48,074 - root") - seconds("[2025-06-04 08:51:47]") == (
        pytest.approx(1.074)
    )
    assert seconds("08/31/2024 14:37:31 [INFO|") - seconds("08/31/2024 14:36:31 x") == 60
    assert seconds("I0706 16:50:26.257925 140 m") - seconds("I0706 16:50:25.257925") == 1
    assert seconds("12/21 01:40:00 [INFO") - seconds("12/21 01:39:51 [INFO") == 9
    zoned = stamp("2025-10-17T11:32:59+08:00] x")
    assert zoned is not None
    assert zoned == (1760671979, 1.0, True)
    assert stamp("[2026-13-45 00:00:00]") is None
    assert stamp("nothing") is None


def test_ranks_leave_no_doubt() -> None:
    assert ranks(20082.8418, 1255.1776, 1e-4) == 16
    assert ranks(182e3, 699, 0.01) is None
    assert ranks(None, 5.0, 0.0) is None
    assert ranks(3.0, 2.0, 0.0) is None


def test_what_cannot_be_true_is_named() -> None:
    good, bad = sensible({"seconds": -1.0, "loss": math.nan, "tgs": 5.0, "samples": 8.0})
    assert good.keys() == {"loss", "samples"}
    assert bad == ("seconds -1",)


def test_bars() -> None:
    assert read_bar(" 20%|##        | 20/100 [00:50<03:20,  2.51s/it]") == Bar(20, 100)
    assert read_bar("100%|##########| 100/100 [04:11<00:00,  2.27s/it]") == Bar(100, 100)
    assert read_bar("Map: 100%|####| 20/20 [00:00<00:00, 9.1 examples/s]") is None
    assert read_bar("Loading checkpoint shards: 100%|###| 4/4 [00:01<00:00,  2.3it/s]") is None


def test_a_family_that_was_stated_is_the_only_one_read() -> None:
    line = titan(3)
    assert read_line(line, "torchtitan") != []
    assert read_line(line, "megatron") == []
    assert "auto" not in FRAMEWORKS


# ---------------------------------------------------------------- bytes


def stream(**options: Any) -> LogStream:
    return LogStream(LogParser("r"), **options)


@pytest.mark.parametrize("size", [1, 7, 100, 4096])
@pytest.mark.parametrize("name", ["megatron-lm.log", "nanotron.log", "composer-llm-foundry.log"])
def test_pieces_of_any_size_tell_the_same(name: str, size: int) -> None:
    data = (LOGS / name).read_bytes()
    whole_, pieces = stream(), stream()
    at_once = whole_.feed(data) + whole_.rest()
    bit_by_bit = [
        record for at in range(0, len(data), size) for record in pieces.feed(data[at : at + size])
    ] + pieces.rest()
    assert steps(bit_by_bit) == steps(at_once) != []
    assert facts(bit_by_bit)[-1] == facts(at_once)[-1]
    assert pieces.position == whole_.position == len(data)


def test_a_line_without_its_end_waits() -> None:
    log = stream()
    assert steps(log.feed(titan(1).encode())) == []
    assert log.rest() == []
    assert log.position == 0
    assert [s.step for s in steps(log.feed(b"\n"))] == [1]


def test_ten_megabytes_of_one_line_are_passed_over_in_bounded_memory() -> None:
    log = stream()
    told_ = log.feed(f"{titan(1)}\n".encode())
    for _ in range(160):
        told_ += log.feed(b"tps: " + b"x" * 65_531)
        assert len(log._carry) <= 2 << 20
    told_ += log.feed(f" {titan(2)}\n{titan(3)}\n".encode())
    assert [s.step for s in steps(told_)] == [1, 3]
    assert [(f.reason, f.offset) for f in log.flaws] == [("line", len(titan(1)) + 1)]


def test_what_is_not_utf8_harms_nothing() -> None:
    log = stream()
    data = b"\xff\xfe\x00 tps: \xc3\n" + titan(1).encode() + b" \xe2\x82\r\n\x80\n"
    assert [s.step for s in steps(log.feed(data))] == [1]


CRI = "2026-11-29T12:00:{:02}.500000000Z {} {} {}\n"


def test_kubernetes_format_with_lines_in_parts() -> None:
    """Standard output and error are mixed, and each has a long line in three parts."""
    long = titan(7)
    lines = [
        CRI.format(1, "stdout", "F", titan(6)),
        CRI.format(2, "stdout", "P", long[:20]),
        CRI.format(3, "stderr", "P", "noise "),
        CRI.format(4, "stdout", "P", long[20:50]),
        CRI.format(5, "stderr", "F", "more noise"),
        CRI.format(6, "stdout", "F", long[50:]),
        CRI.format(8, "stderr", "F", titan(8)),
    ]
    data = "".join(lines).encode()
    for size in (len(data), 13):
        log = stream()
        told_ = [r for at in range(0, len(data), size) for r in log.feed(data[at : at + size])]
        found = steps(told_)
        assert [s.step for s in found] == [6, 7, 8]
        assert [s.wall for s in found] == pytest.approx([1795953601.5, 1795953606.5, 1795953608.5])
        assert found[0].seconds is None
        assert [s.seconds for s in found[1:]] == pytest.approx([5, 2])


def test_bars_of_a_container_are_split_where_they_are_drawn_again_and_not_believed() -> None:
    """They come 16 KiB at a time and without a line feed, long after the line they belong to."""
    log = stream()
    told_ = log.feed(CRI.format(0, "stdout", "F", "begin").encode())
    bars = "".join(f"\r {n}%|#   | {n}/100 [00:05<03:20,  2.51s/it]" for n in range(100))
    for at in range(300):
        told_ += log.feed(CRI.format(1, "stderr", "P", bars).encode())
        if at % 10 == 0:
            line = f"{{'loss': {at}.0, 'grad_norm': 1.0, 'epoch': 0.1}}"
            told_ += log.feed(CRI.format(2, "stdout", "F", line).encode())
    assert steps(told_) == []
    assert {flaw.reason for flaw in log.flaws} == {"unnumbered"}
    assert sum(map(len, log._parts.values())) < 100


def test_a_hostile_line_costs_no_more_than_its_beginning() -> None:
    """A megabyte of letters, digits or bars after a word that is looked for."""
    hostile = (
        (" .... ", "a"), ("tps: step: ", "1"), ("iteration 1/ 2 |", "|"), ("{'loss'", "["),
        ("per iteration iteration ", " "), ("MnRtt/Rnk ", "Mn"),
    )  # fmt: skip
    for word, rest in hostile:
        log = stream()
        began = time.process_time()
        log.feed((word + rest * 1_000_000)[:1_000_000].encode() + b"\n")
        assert time.process_time() - began < 1.0, word


def test_parts_that_never_end_are_forgotten() -> None:
    log = stream()
    log.feed(CRI.format(0, "stdout", "F", "begin").encode())
    part = CRI.format(1, "stdout", "P", "x" * 16_000).encode()
    for _ in range(700):
        log.feed(part)
    assert sum(map(len, log._parts.values())) <= 1 << 20
    assert [f.reason for f in log.flaws] == ["line"]
    found = steps(log.feed((
        CRI.format(2, "stdout", "F", "end") + CRI.format(3, "stdout", "F", titan(1))
    ).encode()))  # fmt: skip
    assert [s.step for s in found] == [1]


def trainer(step: int, loss: float) -> str:
    """Return what Transformers' Trainer writes: the bar is wiped, drawn again after the line."""
    bar = f"\r {step}%|##   | {step}/100 [00:05<03:20,  2.51s/it]"
    return f"\r{' ' * 40}\r{{'loss': {loss}, 'grad_norm': 1.0, 'epoch': 0.1}}\n{bar}"


def test_trainer_is_numbered_by_the_bar_that_follows() -> None:
    text = "\r  9%|#   | 9/100 [00:04<03:20,  2.51s/it]" + trainer(10, 2.5) + trainer(20, 2.4)
    log = stream()
    found = steps(log.feed((text + "\r 21%|##  | 21/100 [00:06<03:20,  2.51s/it]").encode()))
    assert [(s.step, s.steps, s.loss) for s in found] == [(10, 1, 2.5), (20, 10, 2.4)]


def test_bars_are_not_believed_where_output_is_buffered() -> None:
    """Eight kilobytes of standard output at once stand beside any bar at all."""
    burst = "".join(f"{{'loss': {n}.0, 'epoch': 0.{n}}}\n" for n in range(1, 5))
    log = stream()
    found = steps(log.feed((burst + trainer(50, 5.0) + trainer(60, 6.0) + "\r").encode()))
    assert found == []
    assert {f.reason for f in log.flaws} == {"unnumbered"}


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_bytes_raise_or_tell_of_nonsense(data: st.DataObject) -> None:
    """Whatever a log holds, recorded lines with bytes exchanged included."""
    recorded = b"".join(path.read_bytes() for path in sorted(LOGS.glob("*.log")))
    at = data.draw(st.integers(0, len(recorded) - 1))
    piece = bytearray(recorded[at : at + data.draw(st.integers(0, 3000))])
    for place in data.draw(st.lists(st.integers(0, max(0, len(piece) - 1)), max_size=40)):
        if piece:
            piece[place] = data.draw(st.integers(0, 255))
    junk = data.draw(st.binary(max_size=300))
    log = stream(longest=1000)
    ledger = TrainingLedger()
    for one in (junk, bytes(piece), junk, b"\n"):
        ledger.tell("log", log.feed(one), 0.0)  # raises for what makes no sense
    ledger.tell("log", log.rest(), 0.0)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200), st.sampled_from([
    "iteration {}/ 9 | elapsed time per iteration (ms): {} | lm loss: {} |",
    "step: {}  loss: {}  tps: {}  tflops: {}  mfu: {}%",
    "completed step: {}, seconds: {}, loss: {}",
    "{{'loss': {}, 'grad_norm': {}, 'epoch': {}}}", "Train throughput/{}: {}",
    "Training epoch 0, iteration {}/{} | train_step_timing in s: {}", "step {} | loss {} | dt {}ms",
    "iteration: {} / {} | time_per_iteration_ms: {}", "{} .....: ({}, {})", "{}-{}-{} {}:{}:{},{}",
    "0/{}, RunningAvgSamplesPerSec={}, CurrSamplesPerSec={}", "[epoch={}][batch={}/{}]:",
]))  # fmt: skip
def test_no_text_in_a_known_shape_raises(text: str, shape: str) -> None:
    """Each hole of each shape may hold anything."""
    holes = [text, "5", "nan", "-1e400", "9" * 400, "1,000", "٣"]
    for at in range(len(holes)):
        filled = shape
        turn = at
        while "{}" in filled:
            filled = filled.replace("{}", holes[turn % len(holes)], 1)
            turn += 1
        ledger = TrainingLedger()
        ledger.tell("log", every(LogParser("r", steps_per_line=5), [filled]), 0.0)


TQDM = """
import sys
from tqdm import tqdm
bar = tqdm(total=60)
for step in range(1, 61):
    bar.update(1)
    if step % 10 == 0:
        bar.write(str({"loss": 7.0 - step / 10, "grad_norm": 1.0, "epoch": step / 60}))
    if step == 30:
        for _ in tqdm(range(8)):  # an evaluation
            pass
bar.close()
"""


def test_what_a_real_bar_and_a_real_print_leave_in_a_log(tmp_path: Path) -> None:
    """Both streams in one file, as `> job.log 2>&1` does it; steps faster than bars are drawn."""
    pytest.importorskip("tqdm")
    path = tmp_path / "job.log"
    with path.open("wb") as file:
        subprocess.run(
            [sys.executable, "-u", "-c", TQDM], stdout=file, stderr=file, check=True, timeout=60
        )
    log = stream()
    found = steps(log.feed(path.read_bytes()) + log.rest())
    assert [(s.step, s.loss) for s in found] == [(n, 7.0 - n / 10) for n in range(10, 61, 10)]
    assert [s.steps for s in found] == [1, 10, 10, 10, 10, 10]
    assert log.flaws == []


@pytest.mark.parametrize("line", [r"{'loss': 2.5, 'note': '\d'}", "{'loss': 2.5, 'eta': 3if 1}"])
def test_what_looks_like_odd_code_in_a_log_is_no_warning_of_the_daemon(line: str) -> None:
    """The compiler's SyntaxWarning went to standard error, once for each such line."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        read_line(line)
    assert not told
