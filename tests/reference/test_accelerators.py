"""The table of products: published figures, and that nobody gets another product's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exporter.reference import accelerators
from exporter.reference.accelerators import (
    PRECISIONS,
    Accelerator,
    Accelerators,
    Match,
    Observed,
    Own,
    confidence,
    disagreements,
    extended,
    load,
)

MIB = 2**20
TABLE = load()
PRODUCTS = {product.id: product for product in TABLE.products}


def named(name: str) -> Accelerator:
    match = TABLE.resolve(name)
    assert match is not None
    return match.accelerator


# ---------------------------------------------------------------- the figures


@pytest.mark.parametrize(
    ("name", "precision", "tflops"),
    [
        ("Tesla V100-SXM2-16GB", "fp16", 125),
        ("Tesla T4", "fp16", 65),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156),
        ("NVIDIA A100-SXM4-80GB", "fp64_tensor", 19.5),
        ("NVIDIA L40S", "bf16", 362.05),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.4),
        ("NVIDIA H100 80GB HBM3", "fp8", 1978.9),
        ("NVIDIA H100 80GB HBM3", "fp32", 67),
        ("NVIDIA H100 PCIe", "bf16", 756),
        ("NVIDIA H200", "bf16", 989.4),
        ("NVIDIA H200 NVL", "bf16", 835.5),
        ("NVIDIA H20", "bf16", 148),
        ("NVIDIA B200", "bf16", 2250),
        ("NVIDIA B200", "fp8", 4500),
        ("NVIDIA B200", "fp4", 9000),
        ("NVIDIA GB200", "bf16", 2500),
    ],
)
def test_published_dense_peaks(name: str, precision: str, tflops: float) -> None:
    """The peak of a product is its data sheet's, without sparsity, in operations per second."""
    assert named(name).peaks[precision] == round(tflops * 1e12)


@pytest.mark.parametrize(
    ("name", "terabytes"),
    [
        ("Tesla V100-SXM2-16GB", 0.9),
        ("Tesla T4", 0.32),
        ("NVIDIA A100-SXM4-40GB", 1.555),
        ("NVIDIA A100-SXM4-80GB", 2.039),
        ("NVIDIA A100 80GB PCIe", 1.935),
        ("NVIDIA L40S", 0.864),
        ("NVIDIA H100 80GB HBM3", 3.35),
        ("NVIDIA H100 PCIe", 2.0),
        ("NVIDIA H200", 4.8),
        ("NVIDIA B200", 7.7),
        ("NVIDIA GB200", 8.0),
    ],
)
def test_published_memory_bandwidths(name: str, terabytes: float) -> None:
    """The peak memory bandwidth of a product is its data sheet's, in bytes per second."""
    assert named(name).bandwidth == round(terabytes * 1e12)


def test_the_seed_where_it_holds() -> None:
    """Ridge point 295 FLOP/B of an H100; FP8 twice BF16 on an H800; 43.7 % MFU of DeepSeek-V3."""
    h100, h800 = named("NVIDIA H100 80GB HBM3"), named("NVIDIA H800")
    assert h100.bandwidth is not None
    assert h100.peaks["bf16"] / h100.bandwidth == pytest.approx(295, abs=0.5)
    assert h800.peaks["fp8"] / h800.peaks["bf16"] == pytest.approx(2.0, abs=0.001)
    tokens_per_second, flops_per_token = 272.8e9 / 86400, 280.5e9
    mfu = tokens_per_second * flops_per_token / (2048 * h800.peaks["bf16"])
    assert mfu == pytest.approx(0.437, abs=0.001)


def test_the_seed_where_it_does_not_hold() -> None:
    """V100 to B200 is 125 to 2250 like for like, not 4500; an FP8 run is 21.9 % of the FP8 peak."""
    b200, h800 = named("NVIDIA B200"), named("NVIDIA H800")
    assert named("Tesla V100-SXM2-16GB").peaks["fp16"] == 125e12
    assert b200.peaks["bf16"] == 2250e12
    assert b200.peaks["fp8"] == 4500e12, "what the seed took for it"
    mfu = 272.8e9 / 86400 * 280.5e9 / (2048 * h800.peaks["fp8"])
    assert mfu == pytest.approx(0.219, abs=0.001)


def test_miles_2353_a_peak_is_never_the_sparse_one() -> None:
    """Tensor peaks are what the SMs can issue at the peak's clock, which sparsity would double."""
    checked = 0
    text = (Path(accelerators.__file__).parent / "accelerators.json").read_text("utf-8")
    for entry in json.loads(text)["accelerators"]:
        chip, product = entry["chip"], PRODUCTS[entry["id"]]
        clock = chip.get("tensor_clock_mhz", chip.get("boost_clock_mhz"))
        each = chip.get("fp16_flop_per_clock_per_sm")
        if clock is None or each is None or "fp16" not in product.peaks:
            continue
        issued = chip["sm_count"] * each * clock * 1e6
        assert product.peaks["fp16"] == pytest.approx(issued, rel=0.015), product.id
        checked += 1
    assert checked >= 20


def test_precisions_stand_in_their_proportions() -> None:
    """BF16 equals FP16, FP8 is twice that, FP4 four times or more: no column slipped."""
    for product in TABLE.products:
        peaks = product.peaks
        assert set(peaks) <= set(PRECISIONS), product.id
        if "bf16" in peaks:
            assert peaks["bf16"] == peaks["fp16"], product.id
            if "fp8" in peaks:
                assert peaks["fp8"] == pytest.approx(2 * peaks["bf16"], rel=0.02), product.id
            if "fp4" in peaks:
                assert peaks["fp4"] >= 3.9 * peaks["bf16"], product.id


# ---------------------------------------------------------------- who gets them


def test_every_name_finds_its_own_product_only() -> None:
    """Each name in the table resolves to the product that lists it, by name."""
    for product in TABLE.products:
        assert product.names, product.id
        for name in product.names:
            assert TABLE.resolve(name) == Match(product, "name")
    assert len(PRODUCTS) == len(TABLE.products), "ids are unique"


def test_no_h100_gets_another_ones_figures() -> None:
    """SXM, PCIe, NVL and the bare name are four products; PCIe never has the figures of SXM."""
    names = ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H100")
    sxm, pcie, nvl, bare = map(named, names)
    assert len({sxm.id, pcie.id, nvl.id, bare.id}) == 4
    for precision, peak in pcie.peaks.items():
        assert peak < sxm.peaks[precision]
    assert (pcie.bandwidth, sxm.bandwidth) == (2_000_000_000_000, 3_350_000_000_000)
    assert pcie.tensor_clock == 1620e6
    assert not bare.has_figures


@pytest.mark.parametrize(
    "name",
    [
        "nvidia l40s", "NVIDIA L40S ", "NVIDIA L40S-48Q", "L40S", "NVIDIA H100 SXM", "NVIDIA H20X",
        "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA", "",
    ],
)  # fmt: skip
def test_a_name_is_matched_exactly(name: str) -> None:
    """Another case, a longer or shorter name, a virtual GPU's: no match (torchtitan's l40s)."""
    assert TABLE.resolve(name) is None


def test_an_id_finds_what_the_name_does_not() -> None:
    """A name that is not in the table leaves the PCI device id, whatever its case."""
    assert TABLE.resolve("NVIDIA T4", "1eb8") == Match(PRODUCTS["t4"], "pci_device_id")
    assert TABLE.resolve("new name", "2330") == Match(PRODUCTS["h100-sxm5-80gb"], "pci_device_id")
    assert TABLE.resolve("NVIDIA H100 PCIe", "2330") == Match(PRODUCTS["h100-pcie"], "name")


@pytest.mark.parametrize("number", ["20B0", "20B2", "2236F", "233", "", "0x233010DE", "FFFF"])
def test_an_id_that_is_shared_or_unknown_finds_nothing(number: str) -> None:
    """Two products have 20B0, two have 20B2; those ids, and what is no id, identify nothing."""
    assert TABLE.resolve("something else", number) is None


def test_two_products_cannot_have_one_name() -> None:
    """A table in which a name is ambiguous is refused."""
    twin = Accelerator("x", "X", "hopper", ("NVIDIA H100 PCIe",), (), {}, "high")
    with pytest.raises(ValueError, match="'NVIDIA H100 PCIe' is the name of two products"):
        Accelerators([*TABLE.products, twin])


# ---------------------------------------------------------------- how sure it is


RECORDED = {
    # memory, clock and limit of the first three from `nvidia-smi -q` of real boards (captures of
    # utkuozdemir/nvidia_gpu_exporter), of the others from outputs in public issues; the number of
    # cores is NVML's, which is that of the SMs times 64 or 128
    "NVIDIA H100 80GB HBM3": Observed(81559 * MIB, 1980e6, 700, 16896),
    "NVIDIA H200": Observed(143771 * MIB, 1980e6, 700, 16896),
    "NVIDIA L40S": Observed(46068 * MIB, 2520e6, 350, 18176),
    "NVIDIA B200": Observed(183359 * MIB, None, None, 18944),
    "NVIDIA GH200 480GB": Observed(97280 * MIB, None, None, None),
    "NVIDIA GB200": Observed(None, 1965e6, 1200, 19456),
    "NVIDIA GB300": Observed(None, None, 1400, None),
    "NVIDIA A100-SXM4-40GB": Observed(40960 * MIB, 1410e6, 400, 6912),
    "NVIDIA PG509-210": Observed(81920 * MIB, 1410e6, 330, 6912),
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_real_board_is_sure(name: str) -> None:
    """Name and facts of a recorded board agree: 1. GiB are meant, and ECC takes part of GDDR."""
    match = TABLE.resolve(name)
    assert match is not None
    assert disagreements(match.accelerator, RECORDED[name]) == ()
    assert confidence(match, RECORDED[name]) == 1.0


def test_facts_that_differ_lower_the_confidence() -> None:
    """Each fact that the driver tells otherwise halves it; what it does not tell costs nothing."""
    match = TABLE.resolve("NVIDIA H100 80GB HBM3")
    assert match is not None
    for observed, differing in [
        (Observed(), ()),
        (Observed(memory=96 * 2**30), ("memory",)),
        (Observed(max_clock=1755e6), ("max_clock",)),
        (Observed(power=650), ("power",)),
        (Observed(cuda_cores=14592), ("cuda_cores",)),
        (Observed(cuda_cores=16768), ("cuda_cores",)),  # one SM less
        (Observed(power=680), ()),  # within 3 %
        (Observed(memory=80e9, power=350), ("memory", "power")),
    ]:
        assert disagreements(match.accelerator, observed) == differing
        assert confidence(match, observed) == 0.5 ** len(differing)


def test_an_id_alone_is_less_sure() -> None:
    """Known by id: 0.75; and half of that for a fact that differs."""
    match = TABLE.resolve("NVIDIA H100 Something", "2330")
    assert confidence(match, RECORDED["NVIDIA H100 80GB HBM3"]) == 0.75
    assert confidence(match, Observed(memory=64 * 2**30)) == 0.375


def test_what_is_not_in_the_table_has_no_confidence() -> None:
    """An unknown product, and one of which only the name is known, are 0; poor sources halve."""
    assert confidence(None, Observed()) == 0
    assert confidence(TABLE.resolve("NVIDIA H100"), Observed()) == 0
    assert confidence(TABLE.resolve("NVIDIA A100-SXM-64GB"), Observed()) == 0
    assert confidence(TABLE.resolve("NVIDIA A10G"), Observed()) == 0.5


def test_memory_that_the_cpu_shares_is_not_compared() -> None:
    """A GB10 reports what the system left it, or nothing."""
    match = TABLE.resolve("NVIDIA GB10")
    assert confidence(match, Observed(memory=119.7 * 2**30)) == 1.0


def test_nothing_is_guessed() -> None:
    """Figures without a source are absent; the H20's clock cannot be computed from its SMs."""
    assert not PRODUCTS["a10g"].peaks
    assert "int8" not in PRODUCTS["b300"].peaks
    assert "fp64" not in PRODUCTS["h800"].peaks
    assert PRODUCTS["v100s-pcie"].bandwidth is None
    assert PRODUCTS["a800-sxm4-40gb"].bandwidth is None, "not that of the 80 GB board"
    assert PRODUCTS["h20"].tensor_clock is None
    assert "bf16" not in PRODUCTS["t4"].peaks


@pytest.mark.parametrize(
    ("name", "megahertz"),
    [
        ("NVIDIA H100 80GB HBM3", 1830),
        ("NVIDIA H200", 1830),
        ("NVIDIA H100 PCIe", 1620),
        ("NVIDIA A100-SXM4-80GB", 1410),
        ("NVIDIA L40S", 2490),
        ("NVIDIA B200", 1856),
    ],
)
def test_the_clock_that_the_peak_belongs_to(name: str, megahertz: float) -> None:
    """It is 1830 MHz for an H100 SXM, not the highest 1980, which would make 1070 TFLOP/s."""
    clock = named(name).tensor_clock
    assert clock == pytest.approx(megahertz * 1e6, rel=0.001)


# ---------------------------------------------------------------- an operator's own entries


def test_an_own_entry_overrides_what_it_names_and_leaves_the_rest() -> None:
    """A power-limited H100: its BF16 peak is another, its bandwidth and FP8 peak stay."""
    table = load()
    name = "NVIDIA H100 80GB HBM3"
    before = table.find(name)
    after = extended(table, [Own(name, {"bf16": 800e12})]).find(name)
    assert before is not None
    assert after is not None
    assert after.peaks == {**before.peaks, "bf16": 800 * 10**12}
    assert after.bandwidth == before.bandwidth
    assert after.names == before.names
    assert table.find(name) == before, "the table itself stays as it was"


@pytest.mark.parametrize("called", ["h100-sxm5-80gb", "H100 SXM5 80GB", "h100 sxm5 80gb"])
def test_a_product_is_found_by_id_or_title_in_any_case(called: str) -> None:
    found = load().find(called)
    assert found is not None
    assert "NVIDIA H100 80GB HBM3" in found.names
    own = extended(load(), [Own(called, {}, 3e12)])
    match = own.resolve("NVIDIA H100 80GB HBM3")
    assert match is not None
    assert match.accelerator.bandwidth == 3 * 10**12


def test_an_own_entry_of_an_unknown_name_is_a_product_of_its_own() -> None:
    """A machine without GPUs gets a peak only so; the name counts, not one that is like it."""
    table = extended(load(), [Own("our-cpu-node", {"bf16": 4.2e12})])
    found = table.find("our-cpu-node")
    assert found is not None
    assert found.peaks == {"bf16": 4_200_000_000_000}
    assert found.bandwidth is None
    assert confidence(table.resolve("our-cpu-node"), Observed()) == 1.0
    assert load().find("our-cpu-node") is None
    assert table.find("our-cpu-node-2") is None
