"""Published matrices, judged: which node is well, and which GPUs have a NIC that is too far."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.derive.fabric.distance import links_of
from exporter.derive.fabric.rails import best_nics, judged, linked, natural, shared
from exporter.formats.topo import Matrix, read_matrix

SAMPLES = Path(__file__).parent.parent / "data/topology"


def matrix(name: str) -> Matrix:
    return read_matrix((SAMPLES / f"{name}.txt").read_text())


def rows(told: Matrix) -> dict[str, dict[str, str]]:
    return {
        gpu: {nic: word for nic in told.nics if (word := told.between(gpu, nic))}
        for gpu in told.gpus
    }


@pytest.mark.parametrize(
    ("name", "compute", "far"),
    [
        # Two of each six are for storage.
        ("dgx-h100-8gpu-12nic", [0, 3, 4, 5, 6, 9, 10, 11], []),
        ("a100-8gpu-10nic-niclegend", [0, 1, 2, 3, 4, 5, 8, 9], []),
        ("a100-8gpu-4nic-half-remote", [0, 1, 2, 3], ["GPU4", "GPU5", "GPU6", "GPU7"]),
        # sglang 13973: four NUMA nodes, each GPU with its own NIC; the last rows are missing.
        ("h200-4numa-8gpu-9nic-excerpt", [0, 1, 2, 4, 5, 6], []),
    ],
)
def test_what_is_said_of_published_nodes(name: str, compute: list[int], far: list[str]) -> None:
    told = matrix(name)
    nics = [f"NIC{n}" for n in compute]
    best = best_nics(rows(told), nics)
    fine = judged(best, len(nics), len(told.gpus))
    assert [gpu for gpu, good in fine.items() if not good] == far
    if not far:
        assert len({one.device for one in best.values()}) == len(best)  # a rail of one's own
        assert not any(shared(best, nics, len(best)).values())


def test_old_names_of_devices_and_a_switch_for_two() -> None:
    """DGX A100: two GPUs and two NICs on each switch, and four NICs for storage."""
    told = matrix("dgx-a100-8gpu-12nic-mlx5names")
    compute = [f"mlx5_{n}" for n in (0, 1, 2, 3, 6, 7, 8, 9)]
    best = best_nics(rows(told), compute)
    assert [best[f"GPU{n}"].device for n in range(8)] == [
        "mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_6", "mlx5_7", "mlx5_8", "mlx5_9",
    ]  # fmt: skip
    assert [best[f"GPU{n}"].rail for n in range(8)] == list(range(8))
    assert all(judged(best, 8, 8).values())


def test_a_dgx_1_has_a_nic_for_two_gpus() -> None:
    told = matrix("dgx1-v100-topo-mp")
    best = best_nics(rows(told), told.nics)
    assert [best[f"GPU{n}"].rail for n in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert all(judged(best, 4, 8).values())
    assert shared(best, told.nics, 8) == {}


def test_on_grace_far_is_by_design() -> None:
    """sglang 11208. Not knowing of Grace this would be a fault of every GPU; knowing, of none."""
    told = matrix("gb200-4gpu-6nic-excerpt")
    best = best_nics(rows(told), told.nics)
    assert not any(judged(best, 6, 4).values())
    assert all(judged(best, 6, 4, "SYS").values())
    assert [one.rail for one in best.values()] == [0, 1, 2]  # the row of GPU3 is missing


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("b200-gpu2-lost-nvlink-excerpt", {"GPU2"}),
        ("dgx-h100-8gpu-12nic", set()),
        ("partial-nvlink-4gpu-old-legend", set()),
        ("rtx3090-2gpu-nv4", set()),
        ("pcie-8gpu-all-sys-no-nic", set()),
        ("single-gpu-cloud", set()),
    ],
)
def test_who_lost_its_nvlinks(name: str, lost: set[str]) -> None:
    told = matrix(name)
    links = {
        gpu: max((links_of(told.between(gpu, peer) or "") for peer in told.gpus), default=0)
        for gpu in told.gpus
    }
    assert {gpu for gpu, good in linked(links).items() if not good} == lost


def test_nodes_without_nics_are_not_judged() -> None:
    for name in ("pcie-8gpu-all-sys-no-nic", "pcie-4gpu-phb-single-numa", "single-gpu-cloud"):
        told = matrix(name)
        assert best_nics(rows(told), told.nics) == {}
        assert judged({}, 0, len(told.gpus)) == {}


def test_names_are_in_the_order_of_their_numbers() -> None:
    names = ["mlx5_10", "mlx5_9", "rdmap113s0", "rdmap79s0", "mlx5_bond_0"]
    assert sorted(names, key=natural) == [
        "mlx5_9", "mlx5_10", "mlx5_bond_0", "rdmap79s0", "rdmap113s0",
    ]  # fmt: skip
