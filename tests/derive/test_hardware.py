"""Peaks, memory traffic and the FLOP/s estimate, from what a driver says of real boards."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from exporter import catalogue as c
from exporter.derive import Derivation, Memory, hardware
from exporter.reference.accelerators import load
from exporter.samples import Gate, Health, Sample, SourceView, View

MIB = 2**20
TABLE = load()
NOW = 1000.0

H100 = "NVIDIA H100 80GB HBM3"


def info(
    name: str = H100, gpu: str = "0", pci: str = "2330", cores: str = "16896", guest: str = "none"
) -> Sample:
    """Return who a GPU is."""
    return c.GPU_INFO(
        1, gpu, f"GPU-{gpu}", name, "0000:1b:00.0", pci, "1650", "hopper", "9.0", cores, "96.00",
        "590.48.01", guest,
    )  # fmt: skip


def facts(
    gpu: str = "0", memory: int = 81559, clock: float = 1980, power: float = 700
) -> list[Sample]:
    """Return what a recorded H100's driver says of it: MiB, MHz, watts."""
    key = (gpu, f"GPU-{gpu}")
    return [
        c.GPU_MEMORY_TOTAL_BYTES(memory * MIB, *key),
        c.GPU_CLOCK_MAX_HERTZ(clock * 1e6, *key, "sm"),
        c.GPU_CLOCK_MAX_HERTZ(2619e6, *key, "memory"),
        c.GPU_POWER_LIMIT_WATTS(power, *key, "default"),
        c.GPU_POWER_LIMIT_WATTS(500, *key, "enforced"),
    ]


def activity(
    gpu: str = "0",
    *,
    tensor: float = 0.6,
    half: float = 0.5,
    dram: float = 0.4,
    clock: float = 1755,
) -> list[Sample]:
    """Return how busy a GPU is; the clock in MHz."""
    key = (gpu, f"GPU-{gpu}")
    return [
        c.GPU_CLOCK_HERTZ(clock * 1e6, *key, "sm"),
        c.GPU_CLOCK_HERTZ(2619e6, *key, "memory"),
        c.GPU_TENSOR_ACTIVE_RATIO(tensor, *key),
        c.GPU_DRAM_ACTIVE_RATIO(dram, *key),
        c.GPU_PIPE_ACTIVE_RATIO(half, *key, "tensor_half"),
        c.GPU_PIPE_ACTIVE_RATIO(0.05, *key, "tensor_integer"),
        c.GPU_PIPE_ACTIVE_RATIO(0.01, *key, "fp32"),
    ]


def board(samples: Iterable[Sample], age: float = 0.0) -> View:
    """Return a view of one source that read `samples` so many seconds ago."""
    batch, drops = Gate(1000).admit(list(samples))
    assert not drops
    return View((SourceView("nvml", "gpu", "up", Health(), batch=batch, age=age),), ())


Found = dict[tuple[str, ...], object]


def derive(
    samples: Iterable[Sample], derivation: Derivation | None = None, memory: Memory | None = None
) -> Found:
    """Return what is derived, by name and labels."""
    derivation = hardware(TABLE) if derivation is None else derivation
    made = list(derivation.function(board(samples), memory or Memory(), NOW))
    assert {sample.metric for sample in made} <= set(derivation.outputs)
    batch, drops = Gate(1000).admit(made)
    assert not drops, "well-formed, and no series twice"
    return {(s.metric.name, *s.labels): s.value for s in batch}


def names(found: Found) -> set[str]:
    return {key[0] for key in found}


KEY = ("0", "GPU-0")


# ---------------------------------------------------------------- peaks


def test_an_h100_gets_its_own_figures() -> None:
    """Peaks in operations and bytes per second, sure because name and facts agree."""
    found = derive([info(), *facts()])
    assert found == {
        ("gpu_peak_confidence_ratio", *KEY): 1.0,
        ("gpu_peak_flops", *KEY, "fp32"): 67 * 10**12,
        ("gpu_peak_flops", *KEY, "tf32"): 494_700_000_000_000,
        ("gpu_peak_flops", *KEY, "bf16"): 989_400_000_000_000,
        ("gpu_peak_flops", *KEY, "fp8"): 1_978_900_000_000_000,
        ("gpu_peak_memory_bandwidth_bytes_per_second", *KEY): 3_350_000_000_000,
    }


def test_an_unknown_card_has_no_peaks() -> None:
    """Confidence 0 and nothing else, however busy it is."""
    found = derive([info("NVIDIA GeForce RTX 2080 SUPER", pci="1E81"), *facts(), *activity()])
    assert found == {("gpu_peak_confidence_ratio", *KEY): 0.0}


def test_facts_that_differ_lower_the_confidence() -> None:
    """One fact that is another board's halves it; two take the peaks away."""
    one = derive([info(), *facts(power=500), *activity()])
    assert one["gpu_peak_confidence_ratio", *KEY] == 0.5
    assert one["gpu_peak_flops", *KEY, "bf16"] == 989_400_000_000_000

    two = derive([info(cores="14592"), *facts(power=500), *activity()])
    assert two == {("gpu_peak_confidence_ratio", *KEY): 0.25}


@pytest.mark.parametrize("missing", range(6))
def test_facts_that_are_missing_cost_nothing(missing: int) -> None:
    """A driver that does not tell the default limit, or the cores, leaves the rest to be sure."""
    known = facts()
    if missing < len(known):
        del known[missing]
    found = derive([info(cores="" if missing == len(known) else "16896"), *known])
    assert found["gpu_peak_confidence_ratio", *KEY] == 1.0


def test_an_id_alone_counts_only_where_nothing_differs() -> None:
    """A new name with a known id has the figures at 0.75, until a fact contradicts."""
    found = derive([info("NVIDIA H100 SXM new"), *facts()])
    assert found["gpu_peak_confidence_ratio", *KEY] == 0.75
    assert ("gpu_peak_flops", *KEY, "bf16") in found

    other = derive([info("NVIDIA H100 SXM new"), *facts(memory=65536)])
    assert other == {("gpu_peak_confidence_ratio", *KEY): 0.375}


def test_a_virtual_gpu_does_not_get_the_boards_peaks() -> None:
    """A guest sees the id of the board that it has a part of: that says nothing of the part."""
    found = derive([info("NVIDIA H100-20C", guest="vgpu", cores=""), *activity()])
    assert found == {("gpu_peak_confidence_ratio", *KEY): 0.0}


def test_a_mixed_node_keeps_its_boards_apart() -> None:
    """Two products on one node have each their own peaks; an unknown one between them none."""
    found = derive(
        [
            info(gpu="0"), *facts("0"),
            info("NVIDIA GeForce RTX 2080 SUPER", gpu="1", pci="1E81", cores="3072"),
            info("NVIDIA L40S", gpu="2", pci="26B9", cores="18176"), *facts("2", 46068, 2520, 350),
        ]
    )  # fmt: skip
    confidences = {k[1]: v for k, v in found.items() if k[0] == "gpu_peak_confidence_ratio"}
    assert confidences == {"0": 1.0, "1": 0.0, "2": 1.0}
    assert found["gpu_peak_flops", "2", "GPU-2", "bf16"] == 362_050_000_000_000
    assert not any(key[1] == "1" and key[0] != "gpu_peak_confidence_ratio" for key in found)


def test_the_operator_chooses_the_precisions() -> None:
    """Those that the product has, and FP16 in place of BF16 where there is no BF16."""
    chosen = hardware(TABLE, precisions=("bf16", "fp16", "int8", "fp64"))
    t4 = derive([info("Tesla T4", pci="1EB8", cores="2560")], chosen)
    peaks = {key[3]: v for key, v in t4.items() if key[0] == "gpu_peak_flops"}
    assert peaks == {"fp16": 65 * 10**12, "int8": 130 * 10**12}

    usual = derive([info("Tesla T4", pci="1EB8", cores="2560")])
    peaks = {key[3]: v for key, v in usual.items() if key[0] == "gpu_peak_flops"}
    assert peaks == {"fp16": 65 * 10**12, "fp32": 8_100_000_000_000}


def test_a_precision_that_does_not_exist_is_refused() -> None:
    """Both choices are checked when they are made; FP32 is no tensor precision to hint."""
    with pytest.raises(ValueError, match="'fp12' is none of fp64, "):
        hardware(TABLE, precisions=("fp12",))
    with pytest.raises(ValueError, match="'fp32' is none of tf32, bf16, "):
        hardware(TABLE, precision_hint="fp32")


def test_eight_gpus_stay_in_their_budget() -> None:
    """An 8 x H100 node has 72 series from here, of the 600 that GPUs may have."""
    samples = [s for g in range(8) for s in (info(gpu=str(g)), *facts(str(g)), *activity(str(g)))]
    assert len(derive(samples)) == 72


# ---------------------------------------------------------------- memory traffic


def test_memory_traffic_is_activity_times_bandwidth() -> None:
    """40 % of 3.35 TB/s; a GPU at exactly 0 has a traffic of 0."""
    found = derive([info(), *facts(), *activity(dram=0.4)])
    assert found["gpu_hbm_bandwidth_bytes_per_second", *KEY] == pytest.approx(1.34e12)
    idle = derive([info(), *facts(), *activity(dram=0.0)])
    assert idle["gpu_hbm_bandwidth_bytes_per_second", *KEY] == 0.0


def test_memory_traffic_needs_the_bandwidth() -> None:
    """Where no source tells the peak, activity is not turned into bytes."""
    found = derive([info("Tesla V100S-PCIE-32GB", pci="1DF6", cores="5120"), *activity()])
    assert found["gpu_peak_confidence_ratio", *KEY] == 1.0
    assert not names(found) & {
        "gpu_hbm_bandwidth_bytes_per_second",
        "gpu_peak_memory_bandwidth_bytes_per_second",
    }


# ---------------------------------------------------------------- the estimate


def estimate(found: Found, precision: str = "bf16") -> object:
    return found.get(("gpu_estimated_flops_per_second", *KEY, precision))


def test_the_estimate_is_activity_times_clock_times_peak() -> None:
    """OFU (arXiv 2605.20799) times the dense peak, with the clock of the peak: 1830 MHz."""
    found = derive([info(), *facts(), *activity(half=0.5, clock=1755)])
    assert estimate(found) == pytest.approx(0.5 * 1755 / 1830 * 989.4e12)
    assert found["gpu_estimated_flops_total", *KEY, "bf16"] == 0.0, "a baseline"


def test_the_estimate_is_what_the_sms_can_issue() -> None:
    """Another way to the same number: 132 SMs x 4096 operations per clock x clock x activity."""
    found = derive([info(), *facts(), *activity(half=1.0, clock=1980)])
    assert estimate(found) == pytest.approx(132 * 4096 * 1980e6, rel=0.001)


@pytest.mark.parametrize(
    ("hint", "active", "peak"),
    [
        ("bf16", 0.5, 989.4e12),
        ("tf32", 0.5, 494.7e12),
        ("fp8", 0.6, 1978.9e12),
        ("int8", 0.05, 1978.9e12),
        ("fp64_tensor", 0.6, 67e12),
    ],
)
def test_the_hint_chooses_pipe_and_peak(hint: str, active: float, peak: float) -> None:
    """Hardware does not tell precision; FP8, for one, counts on no pipe of its own."""
    derivation = hardware(TABLE, precision_hint=hint)
    found = derive([info(), *facts(), *activity(tensor=0.6, half=0.5, clock=1830)], derivation)
    assert estimate(found, hint) == pytest.approx(active * peak)


def test_without_pipes_all_tensor_activity_counts() -> None:
    """A source that does not tell the pipes apart still gives an estimate."""
    samples = [
        s for s in activity(tensor=0.6, clock=1830) if s.metric is not c.GPU_PIPE_ACTIVE_RATIO
    ]
    assert estimate(derive([info(), *facts(), *samples])) == pytest.approx(0.6 * 989.4e12)


def test_volta_and_turing_are_estimated_in_fp16() -> None:
    """The default hint is BF16, which they do not have."""
    found = derive([info("Tesla T4", pci="1EB8", cores="2560"), *activity(half=0.5, clock=795)])
    assert estimate(found) is None
    assert estimate(found, "fp16") == pytest.approx(0.25 * 65e12, rel=0.003)


@pytest.mark.parametrize("lost", [c.GPU_CLOCK_HERTZ, c.GPU_TENSOR_ACTIVE_RATIO])
def test_a_missing_input_is_a_missing_estimate(lost: object) -> None:
    """With neither clock nor activity there is no estimate, and the rest stays."""
    samples = [
        s for s in activity() if s.metric is not lost and s.metric is not c.GPU_PIPE_ACTIVE_RATIO
    ]
    found = derive([info(), *facts(), *samples])
    assert estimate(found) is None
    assert ("gpu_estimated_flops_total", *KEY, "bf16") not in found
    assert ("gpu_peak_flops", *KEY, "bf16") in found


def test_a_split_gpu_has_no_estimate_of_its_own() -> None:
    """With MIG on, the driver gives activity by instance: the whole has peaks only."""
    instances = [
        c.GPU_MIG_MODE(1, *KEY),
        c.GPU_CLOCK_HERTZ(1755e6, *KEY, "sm"),
        c.GPU_MIG_TENSOR_ACTIVE_RATIO(0.9, *KEY, "1"),
        c.GPU_MIG_DRAM_ACTIVE_RATIO(0.9, *KEY, "1"),
    ]
    found = derive([info(), *facts(), *instances])
    assert names(found) == {
        "gpu_peak_confidence_ratio",
        "gpu_peak_flops",
        "gpu_peak_memory_bandwidth_bytes_per_second",
    }


def test_without_the_clock_of_the_peak_there_is_no_estimate() -> None:
    """An H20 issues less than its SMs could: activity says nothing of its FLOP/s."""
    samples = [info("NVIDIA H20", pci="2329", cores="9984"), *facts(memory=97871, power=500)]
    found = derive([*samples, *activity()])
    assert found["gpu_peak_flops", *KEY, "bf16"] == 148 * 10**12
    assert estimate(found) is None


def test_more_than_everything_is_not_hidden() -> None:
    """An activity above 1 (NVIDIA/DCGM 152) or a clock above the peak's shows above the peak."""
    found = derive([info(), *facts(), *activity(half=1.2, dram=1.1, clock=1980)])
    assert estimate(found) == pytest.approx(1.2 * 1980 / 1830 * 989.4e12)
    assert found["gpu_hbm_bandwidth_bytes_per_second", *KEY] == pytest.approx(1.1 * 3.35e12)


def test_an_activity_below_zero_is_none() -> None:
    """It is no reading: no estimate, no traffic, and no counter that would fall."""
    found = derive([info(), *facts(), *activity(half=-0.1, dram=-0.1)])
    assert names(found) == {
        "gpu_peak_confidence_ratio",
        "gpu_peak_flops",
        "gpu_peak_memory_bandwidth_bytes_per_second",
    }


def test_what_is_read_twice_counts_once() -> None:
    """Two sources with the same family do not make a series twice."""
    samples = [info(), *facts(), *activity(half=0.5, clock=1830)]
    other = [info(), *activity(half=0.9, clock=1830)]
    view = View((*board(samples).sources, *board(other).sources), ())
    made = list(hardware(TABLE).function(view, Memory(), NOW))
    assert len({(s.metric, s.labels) for s in made}) == len(made)
    (rate,) = [s.value for s in made if s.metric is c.GPU_ESTIMATED_FLOPS_PER_SECOND]
    assert rate == pytest.approx(0.5 * 989.4e12)


def test_the_same_series_with_other_facts_are_judged_anew() -> None:
    """What is kept of a board is kept no longer than what it rests on, and for its own series."""
    derivation, memory, gate = hardware(TABLE), Memory(), Gate(1000)

    def sure(samples: list[Sample]) -> object:
        batch, _ = gate.admit(samples)
        view = View((SourceView("nvml", "gpu", "up", Health(), batch=batch, age=0.0),), ())
        made = derivation.function(view, memory, NOW)
        return {s.value for s in made if s.metric is c.GPU_PEAK_CONFIDENCE_RATIO}

    assert sure([info(), *facts()]) == {1.0}
    assert sure([info(), *facts(power=500)]) == {0.5}
    assert sure([info(), *facts()]) == {1.0}
    assert sure([*facts()[::-1], info()]) == {1.0}, "in another order"
    assert sure([*facts(), info("NVIDIA B1000", pci="0001")]) == {0.0}
    assert sure(facts()) == set()


def test_what_is_not_a_finite_number_is_no_reading() -> None:
    """A NaN or an infinite gauge is passed over for the next that tells the same."""
    for bad in (math.nan, math.inf, -math.inf):
        samples = [info(), *facts(), *activity(tensor=0.6, half=bad, dram=bad, clock=1830)]
        found = derive(samples)
        assert estimate(found) == pytest.approx(0.6 * 989.4e12)
        assert "gpu_hbm_bandwidth_bytes_per_second" not in {name for name, *_ in found}


# ---------------------------------------------------------------- the counter


def test_the_counter_is_exact_under_jitter_and_gaps() -> None:
    """Rounds come when they like: the time between readings counts, and unknown time does not."""
    derivation, memory = hardware(TABLE, longest_gap=5.0), Memory()
    exact, last, total = 0.0, None, None
    for taken, seen, half in [
        (100.0, 100.1, 0.2),
        (101.0, 101.9, 0.4),
        (101.0, 102.0, 0.4),  # the same reading, seen again
        (102.5, 102.6, 0.0),
        (103.1, 103.2, 1.0),
        (120.0, 120.1, 0.5),  # nobody knows what was between
        (121.0, 121.5, 0.5),
    ]:
        rate = half * 989.4e12
        if last is not None and taken - last <= 5.0:
            exact += rate * (taken - last)
        last = taken
        view = board([info(), *facts(), *activity(half=half, clock=1830)], age=seen - taken)
        memory.begin(seen)
        made = {s.metric: s.value for s in derivation.function(view, memory, seen)}
        total = made[c.GPU_ESTIMATED_FLOPS_TOTAL]
    assert total == pytest.approx(exact, rel=1e-9)
    assert exact == pytest.approx((0.4 * 1.0 + 0.0 + 1.0 * 0.6 + 0.5 * 1.0) * 989.4e12)


def test_a_gpu_that_was_lost_goes_on_counting() -> None:
    """While it is away there is no series; when it is back the counter stands where it stood."""
    derivation, memory = hardware(TABLE), Memory()
    present = [info(), *facts(), *activity(half=0.5, clock=1830)]

    def total(samples: Iterable[Sample], now: float) -> object:
        memory.begin(now)
        made = derivation.function(board(samples), memory, now)
        return next((s.value for s in made if s.metric is c.GPU_ESTIMATED_FLOPS_TOTAL), None)

    assert total(present, 100.0) == 0.0
    assert total(present, 101.0) == pytest.approx(0.5 * 989.4e12)
    assert total([], 102.0) is None
    assert total(present, 160.0) == pytest.approx(0.5 * 989.4e12)
    assert total(present, 161.0) == pytest.approx(989.4e12)


# ---------------------------------------------------------------- the roofline


def watched(*readings: tuple[float, list[Sample]], derivation: Derivation | None = None) -> Found:
    """Return what is derived last, of an H100 read at such times."""
    one, memory = derivation or hardware(TABLE), Memory()
    found: Found = {}
    for at, samples in readings:
        memory.begin(at)
        view = board([info(), *facts(), *samples])
        found = {(s.metric.name, *s.labels): s.value for s in one.function(view, memory, at)}
    return found


def verdict_of(found: Found) -> list[str]:
    return [
        key[-1] for key, value in found.items() if key[0] == "gpu_roofline_verdict" and value == 1
    ]


@pytest.mark.parametrize(
    ("half", "dram", "intensity", "verdict"),
    [
        (0.6, 0.3, 0.6 / 0.3 * 989.4 / 3.35, "compute_bound"),
        (0.1, 0.7, 0.1 / 0.7 * 989.4 / 3.35, "memory_bound"),
        (0.01, 0.05, 0.01 / 0.05 * 989.4 / 3.35, None),
        (0.0, 0.7, 0.0, "memory_bound"),
        (0.0, 0.0, None, None),
    ],
)
def test_the_roofline_tells_what_limits_a_gpu(
    half: float, dram: float, intensity: float | None, verdict: str | None
) -> None:
    """At the clock of the peak, shares of both peaks stand as the intensity to the ridge point."""
    busy = activity(half=half, dram=dram, clock=1830)
    found = watched((0.0, busy), (1.0, busy))
    told = found.get(("gpu_arithmetic_intensity_flops_per_byte", *KEY, "bf16"))
    assert told == (None if intensity is None else pytest.approx(intensity, rel=1e-3))
    assert verdict_of(found) == ([] if verdict is None else [verdict])
    assert ("gpu_roofline_verdict", *KEY, "bf16", "memory_bound") in found, "0 is told too"


def test_the_roofline_covers_a_minute_and_no_single_reading() -> None:
    """Twenty seconds of products, then forty of copying: the minute is bound by memory."""
    products = activity(half=0.6, dram=0.1, clock=1830)
    copies = activity(half=0.0, dram=0.9, clock=1830)
    first = watched(*((float(at), products) for at in range(21)))
    assert verdict_of(first) == ["compute_bound"]
    whole = watched(*((float(at), products if at <= 20 else copies) for at in range(61)))
    assert verdict_of(whole) == ["memory_bound"]
    later = watched(*((float(at), products if at <= 20 else copies) for at in range(82)))
    assert later["gpu_arithmetic_intensity_flops_per_byte", *KEY, "bf16"] == 0


def test_one_reading_alone_has_no_place_under_the_roofline() -> None:
    assert not names(watched((0.0, activity()))) & {
        "gpu_arithmetic_intensity_flops_per_byte", "gpu_roofline_verdict",
    }  # fmt: skip


def test_without_memory_traffic_there_is_no_roofline() -> None:
    samples = [s for s in activity() if s.metric is not c.GPU_DRAM_ACTIVE_RATIO]
    assert not verdict_of(watched((0.0, samples), (1.0, samples)))
