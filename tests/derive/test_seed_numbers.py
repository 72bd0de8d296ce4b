"""The seed chapter's numbers, each computed by the product: those that hold, and the right ones.

`docs/seed-chapter.md` tells of those that do not hold. Costs (16.6, 16.7) have no functions yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from exporter.dcgm import fields
from exporter.derive import flops, parallel, roofline
from exporter.derive.flops import Task, token_flops
from exporter.derive.roofline import Roof, gemm, tensor_bytes
from exporter.objectives import read_inference
from exporter.reference.accelerators import load as load_accelerators
from exporter.reference.models import load as load_models
from tests.derive.published import DATA

SEED = json.loads((DATA / "seed-numbers.json").read_text("utf-8"))
DOCUMENT = Path(__file__).parent.parent.parent / "docs/seed-chapter.md"
COSTS = ("16.6", "16.7")
Inputs = Mapping[str, Any]

HOUR, DAY, YEAR = 3600, 86400, 8760 * 3600
GB, MB, MIB, TERA = 1e9, 1e6, 2**20, 1e12
PLAIN = 70e9
"""What the chapter takes for a 70B model: N parameters, two bytes each on the wire."""


def uptime(share: str, span: float) -> float:
    (objective,) = read_inference({"availability": {"uptime": share}})
    return objective.allowance(span)


def peak(name: str, precision: str) -> float:
    product = load_accelerators().find(name)
    assert product is not None
    return product.peaks[precision]


def ridge(peak: float, bw: float) -> float:
    return Roof(peak, bw).ridge


def work(model: str, convention: str, length: int) -> float:
    shape = load_models().resolve(model)
    assert shape is not None
    return token_flops(Task(shape=shape, sequence_length=length), convention)


def deepseek(convention: str, over: float) -> float:
    """MFU of the published 272.8 G tokens a day on 2048 GPUs, in per cent."""
    rate = 272.8e9 / DAY / 2048
    return 100 * flops.utilization(rate, work("DeepSeek-V3", convention, 4096), over)


def step(before: float, after: float) -> float:
    return 100 * parallel.change(before, after)


def seventy(convention: str) -> float:
    """The baseline's MFU by convention: Llama-2-70B at 4096, 950 tokens a second, in per cent."""
    return 100 * flops.utilization(950, work("Llama-2-70b", convention, 4096), 989.5e12)


RIGHT: dict[str, Callable[[Inputs], float]] = {
    "uptime-99.9-year-hours": lambda _: uptime("> 99.9%", YEAR) / HOUR,
    "uptime-99.9-month-minutes": lambda _: uptime("> 99.9%", 30 * DAY) / 60,
    "mfu-waterfall": lambda i: 100 * flops.remaining(*(loss / 100 for loss in i["losses"])),
    "bubble-16-64": lambda i: 100 * parallel.bubble_over_work(i["p"], i["m"]),
    "fsdp-shard-mb": lambda i: parallel.shard_bytes(i["params"] * i["bytes"], i["world"]) / MB,
    # Twice a shard over one link: an all-reduce of it by a ring without end.
    "fsdp-shard-time-ms": lambda i: (
        1000 * parallel.ring_seconds(i["shard_gb"] * GB, 10**9, i["bw_gbs"] * GB)
    ),
    "fsdp-share-of-step": lambda i: 100 * parallel.share(i["t_s"], i["step_s"]),
    "dsv3-nominal-mfu": lambda _: deepseek("full", 989e12),
    "h800-fp8-ratio": lambda _: peak("h800", "fp8") / peak("h800", "bf16"),
    "allreduce-shard-mb": lambda i: parallel.shard_bytes(i["params"] * i["bytes"], i["n"]) / MB,
    "ib-gbps": lambda i: parallel.bits(i["gbps"]),
    "ib-effective": lambda i: parallel.bus_bandwidth(1, i["bw"], 0.9),
    "allreduce-shard-ms": lambda i: (
        1000 * parallel.ring_seconds(i["size_gb"] * GB, i["n"], i["bw_gbs"] * GB)
    ),
    "allreduce-ddp-s": lambda i: parallel.ring_seconds(i["size_gb"] * GB, i["n"], i["bw_gbs"] * GB),
    "ridge-h100": lambda i: ridge(i["peak"], i["bw"]),
    "fp8-activation-mib": lambda i: tensor_bytes(i["seq"], i["hidden"], width=i["bytes"]) / MIB,
    "fp8-activation-half": lambda i: tensor_bytes(i["seq"], i["hidden"], width=i["bytes"]) / MIB,
    "attention-passes-reads": lambda _: roofline.passes()[0],
    "attention-passes-writes": lambda _: roofline.passes()[1],
    "tgs-total": lambda _: parallel.tokens_in_all(950, 1024),
    "nodes": lambda _: parallel.nodes(1024, 8),
    "parallel-product": lambda i: parallel.world_size(i["dp"], i["tp"], i["pp"]),
    "parallel-product-phase1": lambda i: parallel.world_size(i["dp"], i["tp"], i["pp"]),
    "phase1-mfu": lambda _: flops.at_pace(38.5, 8.2, 6.8),
    "phase2-mfu": lambda _: flops.at_pace(46.4, 6.8, 6.1),
    "speedup": lambda _: parallel.speedup(8.2, 3.3),
    # So much faster is what is gained in steps, not what is saved in time.
    "speedup-pct": lambda _: step(3.3, 8.2),
    "mfu-gain": lambda _: 100 * parallel.gain(0.385, 0.628),
    "exposed-share": lambda _: 100 * parallel.share(0.44, 4.4),
    "wallclock-days-before": lambda _: parallel.wall_seconds(2.5e6, 8.2) / DAY,
    "wallclock-days-after": lambda _: parallel.wall_seconds(2.5e6, 3.3) / DAY,
    "days-saved": lambda _: -parallel.gain(237, 96),
}


def reproduced(row: Mapping[str, Any]) -> float:
    """Return what the product makes of a row."""
    name, inputs = row["id"], row["inputs"]
    if name.startswith("delta-"):
        before, after = map(float, name.removeprefix("delta-").split("-"))
        return 100 * parallel.gain(before / 100, after / 100)
    if name.startswith("pct-"):
        return step(inputs["a"], inputs["b"])
    return RIGHT[name](inputs)


NUMBERS = [row for row in SEED["numbers"] if not row["section"].startswith(COSTS)]
WRONG = [row for row in SEED["wrong"] if not row["section"].startswith(COSTS)]


@pytest.mark.parametrize("row", NUMBERS, ids=[row["id"] for row in NUMBERS])
def test_a_number_of_the_seed_is_reproduced(row: dict[str, Any]) -> None:
    """As the chapter prints it, within the tolerance of the row, and as its formula gives it."""
    ours = reproduced(row)
    assert ours == pytest.approx(row["expected"], abs=max(row["tolerance"], 1e-9))
    assert ours == pytest.approx(row["computed"], rel=3e-3, abs=1e-9)


# ---------------------------------------------------------------- those that do not hold


def pair(function: Callable[..., float], *sets: tuple[Any, ...]) -> list[float]:
    return [function(*one) for one in sets]


def fsdp(i: Inputs) -> list[float]:
    size, world = i["params"] * i["bytes"], i["world"]
    own = i["bw_gbs"] * GB
    shared = parallel.bus_bandwidth(i["nics_per_node"], own)
    return [parallel.sharded_seconds(size, world, bandwidth) for bandwidth in (own, shared)]


CORRECTED: dict[str, Callable[[Inputs], Any]] = {
    "bubble-definition": lambda i: 100 * parallel.bubble(i["p"], i["m"]),
    "fsdp-traffic": fsdp,
    "allreduce-bandwidth": lambda i: parallel.bus_bandwidth(i["nics"], i["bw"]),
    "dsv3-fp8-mfu": lambda i: [
        deepseek("full", i["peak_bf16"]),
        deepseek("causal", i["peak_bf16"]),
        deepseek("full", i["peak_fp8"]),
    ],
    "dualpipe-zero-bubble": lambda i: 100 * parallel.share(i["bubble_s"], i["step_s"]),
    "superpod-gpus": lambda i: parallel.gpus(i["nodes"], i["gpus"]),
    "table-16-9": lambda i: gemm("", i["M"], i["N"], i["K"], width=i["bytes"]).intensity,
    "step-time-shares": lambda _: 100 * (1 - flops.remaining(0.12, 0.08, 0.05, 0.05)),
    "v100-to-b200": lambda _: peak("b200", "bf16") / TERA,
    "baseline-tgs-vs-step": lambda i: parallel.tokens_per_gpu(
        parallel.global_batch(i["mbs"], i["ga"], i["dp"]), i["seq"], i["step"], i["gpus"]
    ),
    "baseline-mfu": lambda i: {
        "6 x 70e9": 100
        * flops.utilization(
            i["tgs"],
            flops.count(flops.Facts(run="a", active_parameters=PLAIN), load_models()).model["6n"],
            i["peak"],
        ),
        "6N exact": seventy("6n"),
        "PaLM with attention": seventy("palm"),
        "Megatron causal": seventy("causal"),
    },
    "baseline-bubble": lambda i: [
        100 * parallel.bubble_over_work(i["p"], i["m"]),
        100 * parallel.bubble(i["p"], i["m"]),
    ],
    "phase1-global-batch": lambda i: pair(
        parallel.global_batch, tuple(i["before"]), tuple(i["after"])
    ),
    "phase1-bubble": lambda i: [
        100 * parallel.bubble_over_work(i["p"], i["m"]),
        100 * parallel.bubble(i["p"], i["m"]),
    ],
    "phase3-mfu": lambda i: [
        on_bf16 := flops.at_pace(i["mfu2"], i["t2"], i["t3"]),
        flops.on_peak(on_bf16, peak("h100-sxm5-80gb", "bf16"), peak("h100-sxm5-80gb", "fp8")),
    ],
    "phase4-mfu": lambda _: flops.at_pace(55.2, 4.4, 4.0),
    "phase5-mfu": lambda _: flops.at_pace(58.4, 4.0, 3.5),
    "phase6-mfu": lambda _: flops.at_pace(61.5, 3.5, 3.3),
    "fp8-2.1x": lambda _: parallel.speedup(6.1, 4.4),
    "final-mfu-from-speedup": lambda _: flops.at_pace(38.5, 8.2, 3.3),
    "overlap-vs-exposed": lambda _: parallel.exposed(parallel.total_of(0.44, 0.35), 0.72),
    "gpu-years": lambda i: parallel.gpu_hours(i["steps"], i["t"], i["gpus"]) / 8760,
    "savings-usd": lambda _: (
        8 * (parallel.gpu_hours(2.5e6, 8.2, 1024) - parallel.gpu_hours(2.5e6, 3.3, 1024))
    ),
    "steps-for-10t": lambda _: parallel.steps_for(10e12, parallel.global_batch(1, 8, 256), 4096),
}

IN_WORDS = ("samples-per-sec", "tfgs-name", "dcgm-203", "rails")
"""Rows whose right value is a sentence; each has a test of its own below."""


@pytest.mark.parametrize(
    "row", [row for row in WRONG if row["id"] not in IN_WORDS], ids=lambda row: row["id"]
)
def test_the_right_value_of_a_wrong_number_is_computed(row: dict[str, Any]) -> None:
    """And it is not what the chapter says."""
    ours, right = CORRECTED[row["id"]](row["inputs"]), row["right_value"]
    assert ours == pytest.approx(right, rel=3e-3, abs=0.006)


def test_samples_a_second_follow_from_the_global_batch() -> None:
    """The chapter multiplies a batch by GPUs: with 4 stages it counts each sample four times."""
    right = parallel.samples_per_second(parallel.global_batch(1, 8, 256), 8.2)
    wrong = parallel.samples_per_second(parallel.global_batch(1, 8, 1024), 8.2)
    assert right == pytest.approx(2048 / 8.2)
    assert wrong == pytest.approx(4 * right)


def test_tfgs_is_flops_of_a_token_times_tokens_of_a_gpu() -> None:
    """A rate for each GPU: the name says per second twice, and the formula lacks the 1e12."""
    tflops = 950 * work("Llama-2-70b", "causal", 4096) / TERA
    assert tflops == pytest.approx(407, abs=1)


def test_field_203_is_utilization_and_1005_the_activity_of_memory() -> None:
    assert fields.UTILIZATION.number == 203
    (memory,) = [one for one in fields.FIELDS if one.number == 1005]
    assert memory.name.endswith("DRAM_ACTIVE")


def test_eight_rails_of_1024_gpus_have_128_nodes_each() -> None:
    """Each node has one port on each rail; 8 rails of 32 nodes are 256 GPUs."""
    assert parallel.nodes(1024, 8) == 128
    assert parallel.gpus(32, 8) == 256


# ---------------------------------------------------------------- nothing is left out


def test_every_number_of_the_seed_is_somewhere() -> None:
    """Computed here, or of the sections on costs; and nothing else is computed."""
    numbers = {row["id"] for row in NUMBERS}
    assert {name for name in numbers if not name.startswith(("delta-", "pct-"))} == set(RIGHT)
    assert {row["id"] for row in WRONG} == {*CORRECTED, *IN_WORDS}
    assert (len(NUMBERS), len(SEED["numbers"]) - len(NUMBERS)) == (55, 39), "39 are costs"
    assert (len(WRONG), len(SEED["wrong"]) - len(WRONG)) == (28, 7), "7 are costs"


def test_every_wrong_number_is_in_the_document() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert [row["id"] for row in SEED["wrong"] if f"`{row['id']}`" not in text] == []
