"""The seed chapter's numbers, each computed by the product: those that hold, and the right ones.

`docs/seed-chapter.md` tells of those that do not hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.dcgm import fields
from exporter.derive import flops, parallel, roofline
from exporter.derive.flops import Task, token_flops
from exporter.derive.money.depreciation import residual_value
from exporter.derive.money.outlays import Electricity, Racks
from exporter.derive.money.plan import Plan, discounted, rented, times
from exporter.derive.money.spot import mixed_price, saving
from exporter.derive.money.tco import read_tco
from exporter.derive.roofline import Roof, gemm, tensor_bytes
from exporter.objectives import read_inference
from exporter.reference import prices
from exporter.reference.accelerators import load as load_accelerators
from exporter.reference.models import load as load_models
from tests.derive.published import DATA

SEED = json.loads((DATA / "seed-numbers.json").read_text("utf-8"))
DOCUMENT = Path(__file__).parent.parent.parent / "docs/seed-chapter.md"
PLAN = Path(__file__).parent.parent.parent / "deploy/tco.example.yaml"
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


def printed() -> Plan:
    """The chapter's plan as it prints it; the example adds what 16.6.3 says to it."""
    return read_tco(yaml.safe_load(PLAN.read_text("utf-8")))


def bought(values: list[float]) -> float:
    """What so many purchases cost together."""
    return read_tco({"capex": {"a": {str(at): v for at, v in enumerate(values)}}}).capex_total


def paid(lines: Mapping[str, float]) -> float:
    """What a category costs a year."""
    return read_tco({"opex_annual": {"a": dict(lines)}}).opex_annual


def five_years(name: str) -> float:
    """A row of table 16-11: the chapter's yearly costs as it states them, in millions."""
    (row,) = [row for row in printed().as_stated().table(5) if row.name == name]
    return row.total / 1e6


def rounded() -> Plan:
    """The three years of 16.6.3, with its figures: 72 M, 15 M left, 8.8 M a year."""
    return read_tco(
        {
            "capex": {"gpu_hardware": 72e6},
            "opex_annual": {"all": 8.8e6},
            "gpus": 2000,
            "utilization": 0.75,
            "depreciation": {"residual": {3: 15e6}},
            "cloud": {"gpus_per_instance": 8, "on_demand": 98.32, "reserved_discount": 0.4},
        }
    )


def rent(pricing: str) -> float:
    """What the hours of those years that are used cost in a cloud."""
    (one,) = [one for one in rounded().rent(3) if one.pricing == pricing]
    return one.used


def per_gpu_in_2024() -> float:
    price = prices.load().find("p5.48xlarge", "on_demand", until=date(2024, 12, 31))
    assert price is not None
    return price.dollars_per_gpu_hour


def month(dollars: float) -> float:
    return rented(1000, dollars, 720)


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
    "capex-servers": lambda i: (
        read_tco({"capex": {"a": {"quantity": i["n"], "unit_price": i["price"]}}}).capex_total
    ),
    "capex-network": lambda i: bought(i["v"]),
    "capex-storage": lambda i: bought(i["v"]),
    "capex-facility": lambda i: bought(i["v"]),
    "capex-total-table": lambda i: bought(i["v"]),
    "facility-power": lambda i: Electricity("", i["it"], i["pue"], 0).facility_kilowatts,
    "energy-kwh": lambda i: Electricity("", i["kw"], 1, 0).kilowatt_hours,
    "electricity-cost": lambda i: Electricity("", i["kwh"], 1, i["price"], hours=1).cost({}),
    "colocation": lambda i: Racks("", i["racks"], i["rate"]).cost({}),
    "staffing": lambda i: paid({"people": i["fte"], "fully_loaded_cost_per_engineer": i["cost"]}),
    "software": lambda i: paid({str(at): v for at, v in enumerate(i["v"])}),
    "misc-opex": lambda i: paid({str(at): v for at, v in enumerate(i["v"])}),
    "tco5-electricity": lambda _: five_years("electricity"),
    "tco5-colocation": lambda _: five_years("colocation"),
    "tco5-staff": lambda _: five_years("staffing"),
    "tco5-software": lambda _: five_years("software_licenses"),
    "tco5-maintenance": lambda _: five_years("hardware_maintenance"),
    # A share of the chapter's own total, which is wrong.
    "tco5-share-gpu": lambda _: (
        100 * read_tco({"capex": {"gpus": 62.5, "rest": 116.09 - 62.5}}).table(5)[0].share
    ),
    "aws-per-gpu": lambda _: per_gpu_in_2024(),
    "onprem-total": lambda _: rounded().net(3) / 1e6,
    "onprem-hour": lambda _: rounded().cost_per_used_gpu_hour(3) or 0,
    "cloud-ondemand": lambda _: rent("on_demand") / 1e6,
    "cloud-multiple": lambda _: times(rent("on_demand"), rounded().net(3)),
    "reserved-hour": lambda _: rounded().clouds["reserved"].dollars,
    "cloud-reserved": lambda _: rent("reserved") / 1e6,
    "reserved-multiple": lambda _: times(rent("reserved"), rounded().net(3)),
    "residual-1": lambda i: residual_value(i["price"], 1, "current"),
    "residual-2": lambda i: residual_value(i["price"], 2, "previous"),
    "residual-3": lambda i: residual_value(i["price"], 3, "two_generations"),
    "spot-ondemand-month": lambda _: month(12.29),
    "spot-month": lambda _: month(round(discounted(12.29, 0.7), 2)),
    "spot-saving": lambda _: month(12.29) - month(round(discounted(12.29, 0.7), 2)),
    "mix-hourly-to-month-ondemand": lambda _: rented(1, 25e3, 720) / 1e6,
    "mix-month": lambda _: rented(1, 9e3, 720) / 1e6,
    "mix-saving": lambda _: 100 * saving(25e3, 9e3),
    "mix-discount": lambda _: mixed_price([(0.2, 1.0), (0.8, discounted(1.0, 0.8))]),
    "three-year-reserved-ratio": lambda _: 1 - saving(388, 233),
    "three-year-spot-ratio": lambda _: 1 - saving(388, 116),
    "three-year-mix": lambda _: mixed_price([(0.8, 116), (0.2, 233)]),
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


NUMBERS, WRONG = SEED["numbers"], SEED["wrong"]


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


def corrected(key: str) -> float:
    """The right value of a sum that the chapter's plan states wrong."""
    (wrong,) = [one for one in printed().wrong if one.key == key]
    return wrong.right


def columns_of_the_table() -> list[float]:
    """OpEx and total of table 16-11: it has no row for the yearly 80,000 of `misc`."""
    rows = [row for row in printed().as_stated().table(5) if row.name != "misc"]
    return [sum(row.opex for row in rows) / 1e6, sum(row.total for row in rows) / 1e6]


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
    "capex-total": lambda _: corrected("capex.total_capex"),
    "maintenance": lambda _: corrected("opex_annual.hardware_maintenance.annual_cost"),
    # Of the lines as they are stated, maintenance among them; with the right one it is 7.989 M.
    "opex-total": lambda _: printed().as_stated().opex_annual,
    "tco5-opex-total": lambda _: columns_of_the_table(),
    "h100-1024-hour": lambda _: rented(1024, 12.29, 1),
    "three-year-ondemand": lambda _: rented(1000, 12.29, 3 * 8760) / 1e6,
}

CLAIMED: Mapping[str, float | list[float]] = {
    "capex-total": 72_184_000,
    "maintenance": 3_138_000,
    "opex-total": 8_825_523,
    "tco5-opex-total": [44.56, 116.09],
    "h100-1024-hour": 25e3,
    "three-year-ondemand": 388,
}
"""What the chapter says of costs, where that is wrong."""

IN_WORDS = ("samples-per-sec", "tfgs-name", "dcgm-203", "rails", "three-year-onprem")
"""Rows whose right value is a sentence; each has a test of its own below."""


@pytest.mark.parametrize(
    "row", [row for row in WRONG if row["id"] not in IN_WORDS], ids=lambda row: row["id"]
)
def test_the_right_value_of_a_wrong_number_is_computed(row: dict[str, Any]) -> None:
    """And it is not what the chapter says."""
    ours, right = CORRECTED[row["id"]](row["inputs"]), row["right_value"]
    assert ours == pytest.approx(right, rel=3e-3, abs=0.006)


@pytest.mark.parametrize("name", CLAIMED)
def test_what_the_chapter_says_of_costs_is_not_what_comes_out(name: str) -> None:
    """Beyond rounding: half a per cent and more."""
    (row,) = [row for row in WRONG if row["id"] == name]
    assert CORRECTED[name](row["inputs"]) != pytest.approx(CLAIMED[name], rel=5e-3)


def test_a_thousand_gpus_cost_half_of_two_thousand() -> None:
    """The chapter's 83 million of 16.7.6 are those of 16.6.3, for twice the GPUs."""
    hour = rounded().cost_per_owned_gpu_hour(3)
    assert hour is not None
    assert rented(1000, hour, 3 * 8760) / 1e6 == pytest.approx(83.4 / 2)


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
    """Computed here; and nothing else is computed."""
    numbers = {row["id"] for row in NUMBERS}
    assert {name for name in numbers if not name.startswith(("delta-", "pct-"))} == set(RIGHT)
    assert {row["id"] for row in WRONG} == {*CORRECTED, *IN_WORDS}
    assert (len(NUMBERS), len(WRONG)) == (94, 35)
    costs = [row["id"] for row in WRONG if row["section"].startswith(("16.6", "16.7"))]
    assert {*CLAIMED, "three-year-onprem"} == set(costs)


def test_every_wrong_number_is_in_the_document() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert [row["id"] for row in SEED["wrong"] if f"`{row['id']}`" not in text] == []
