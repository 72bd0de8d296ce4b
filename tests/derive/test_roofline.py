"""The roofline by hand: intensities of kernels, ridge points of cards, and what holds them up."""

from __future__ import annotations

import pytest

from exporter.derive.roofline import (
    Operation,
    Roof,
    elementwise,
    fused_attention,
    gemm,
    layer,
    passes,
    roof_of,
)
from exporter.reference.accelerators import load

H100 = Roof(989.4e12, 3.35e12)


def test_a_cube_of_4096_has_1365_flops_for_each_byte() -> None:
    """2 n^3 over three matrices of 2 n^2 bytes is n / 3."""
    cube = gemm("cube", 4096, 4096, 4096)
    assert cube.flops == 2 * 4096**3
    assert cube.bytes == 3 * 2 * 4096**2
    assert cube.intensity == pytest.approx(4096 / 3)
    assert H100.bound(cube) == "compute_bound"
    assert H100.attainable(cube) == 989.4e12
    assert H100.seconds(cube) == pytest.approx(cube.flops / 989.4e12)


def test_a_product_with_one_vector_is_held_up_by_memory() -> None:
    """Decoding one token: each weight of two bytes is met once, 1 FLOP for each byte."""
    vector = gemm("decode", 1, 4096, 4096)
    assert vector.intensity == pytest.approx(1.0, rel=1e-3)
    assert H100.bound(vector) == "memory_bound"
    assert H100.attainable(vector) == pytest.approx(3.35e12, rel=1e-3)
    assert H100.seconds(vector) == pytest.approx(vector.bytes / 3.35e12)


def test_the_ridge_point_is_peak_over_bandwidth() -> None:
    product = load().find("NVIDIA H100 80GB HBM3")
    assert product is not None
    assert roof_of(product, "bf16").ridge == pytest.approx(295.3, abs=0.1)
    assert roof_of(product, "fp8").ridge == pytest.approx(590.7, abs=0.1)
    with pytest.raises(ValueError, match="no fp4 peak is known, only"):
        roof_of(product, "fp4")


def test_fusing_attention_moves_it_across_the_ridge() -> None:
    """Scores that are written and read again hold it at 120; in one kernel it is length / 2."""
    parts = {one.name: one for one in layer(1, 4096, 4096, 32)}
    assert parts["Q x K^T"].intensity == pytest.approx(4096 * 128 / (2 * 128 + 4096))
    assert H100.bound(parts["Q x K^T"]) == H100.bound(parts["attention x V"]) == "memory_bound"
    fused = fused_attention("fused", 1, 32, 4096, 128)
    assert fused.intensity == 4096 / 2
    assert H100.bound(fused) == "compute_bound"
    assert fused.flops == parts["Q x K^T"].flops + parts["attention x V"].flops


def test_work_on_single_elements_depends_on_nothing_but_the_element() -> None:
    """An add reads two numbers of two bytes and writes one: a sixth of a FLOP for each byte."""
    assert elementwise("add", 1e6, 1, 2, 1).intensity == pytest.approx(1 / 6)
    assert elementwise("add", 1e6, 1, 2, 1, width=1).intensity == pytest.approx(1 / 3)


def test_the_seeds_table_divides_by_elements_and_not_by_bytes() -> None:
    """Twice what it is in 16 bits: 2.5 for a norm, 3.0 for GELU, 0.33 for a residual."""
    parts = {one.name: one.intensity for one in layer(1, 4096, 4096, 32)}
    assert parts["softmax"] == parts["layer norm"] == 2.5 / 2
    assert parts["GELU"] == 3.0 / 2
    assert parts["residual add"] == pytest.approx(0.333 / 2, rel=1e-2)
    assert parts["dropout"] == 0


def test_the_table_scales_with_the_batch_and_not_its_intensities_of_elements() -> None:
    one, four = layer(1, 4096, 4096, 32), layer(4, 4096, 4096, 32)
    for small, large in zip(one, four, strict=True):
        assert large.flops == 4 * small.flops
        assert large.intensity >= small.intensity
    with pytest.raises(ValueError, match="7 heads do not divide 4096"):
        layer(1, 4096, 4096, 7)


def test_attention_taken_apart_reads_ten_times_and_writes_eight() -> None:
    assert passes() == (10, 8)


@pytest.mark.parametrize(
    ("flops", "moved", "verdict"),
    [(50e12, 0.1e12, "compute_bound"), (50e12, 1e12, "memory_bound"), (5e12, 0.01e12, "idle")],
)
def test_a_card_that_is_far_below_both_roofs_is_idle(
    flops: float, moved: float, verdict: str
) -> None:
    assert Roof(100e12, 1e12).verdict(flops, moved, 1.0) == verdict


def test_an_operation_is_bound_by_arithmetic_at_the_ridge_itself() -> None:
    roof = Roof(100.0, 10.0)
    assert roof.bound(Operation("edge", 10.0, 1.0)) == "compute_bound"
