"""Published matrices are read cell by cell, and nothing is guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.formats.topo import Affinity, Matrix, read_links, read_matrix
from exporter.samples import Malformed

SAMPLES = Path(__file__).parent.parent / "data/topology"
MATRICES = sorted(SAMPLES.glob("*[!s].txt"))
WORDS = {"X", "PIX", "PXB", "PHB", "NODE", "SYS"}


def matrix(name: str) -> Matrix:
    return read_matrix((SAMPLES / f"{name}.txt").read_text())


@pytest.mark.parametrize("path", [p for p in MATRICES if "nvlink-status" not in p.name],
                         ids=lambda path: path.stem)  # fmt: skip
def test_every_cell_that_is_printed_is_read(path: Path) -> None:
    """Cell by cell, against nothing but the words of each line."""
    found = read_matrix(path.read_text())
    printed = 0
    for line in path.read_text().splitlines():
        name, *words = line.split() or [""]
        if words and (words[0] in WORDS or words[0].startswith("NV")) and name in found.gpus:
            printed += len(found.gpus)
            cells = [found.cells[name, gpu] for gpu in found.gpus]
            assert cells == words[: len(cells)]
    assert printed == len(
        [key for key in found.cells if key[0] in found.gpus and key[1] in found.gpus]
    )
    # What is there in both rows is the same in both.
    for (one, other), word in found.cells.items():
        assert found.cells.get((other, one), word) == word


@pytest.mark.parametrize(
    ("name", "gpus", "nics"),
    [
        ("dgx-h100-8gpu-12nic", 8, 12), ("dgx-a100-8gpu-12nic-mlx5names", 8, 12),
        ("dgx1-v100-topo-mp", 8, 4), ("a100-8gpu-10nic-niclegend", 8, 10),
        ("a100-8gpu-4nic-half-remote", 8, 4), ("pcie-8gpu-all-sys-no-nic", 8, 0),
        ("gb200-4gpu-6nic-excerpt", 4, 6), ("h200-4numa-8gpu-9nic-excerpt", 8, 9),
        ("partial-nvlink-4gpu-old-legend", 4, 0), ("single-gpu-cloud", 1, 0),
        ("pcie-4gpu-phb-single-numa", 4, 0), ("pcie-4gpu-node-no-nic", 4, 0),
        ("rtx3090-2gpu-nv4", 2, 0),
    ],
)  # fmt: skip
def test_devices_are_found(name: str, gpus: int, nics: int) -> None:
    found = matrix(name)
    assert (len(found.gpus), len(found.nics)) == (gpus, nics)


def test_rows_that_are_missing_are_known_from_the_others_or_not_at_all() -> None:
    """The report ends after NIC5, and has no legend: NIC numbers are no names."""
    found = matrix("dgx-h100-8gpu-12nic")
    assert found.between("NIC11", "GPU7") == "PXB"
    assert found.between("NIC10", "NIC11") is None
    assert found.names == {}
    assert found.of_devices() == {}
    assert found.affinity["GPU7"] == Affinity("56-111,168-223", "1", "")


def test_a_legend_gives_names() -> None:
    found = matrix("a100-8gpu-10nic-niclegend").of_devices()
    assert found["0", "mlx5_2"] == found["7", "mlx5_5"] == "PXB"
    assert found["0", "mlx5_0"] == "SYS"
    assert len(found) == 80


def test_columns_may_be_names_themselves() -> None:
    found = matrix("dgx-a100-8gpu-12nic-mlx5names")
    assert found.of_devices()["4", "mlx5_6"] == "PXB"
    assert found.between("mlx5_10", "mlx5_11") == "PIX"
    assert found.affinity["GPU0"] == Affinity("48-63,176-191", "3", "")


def test_lists_of_numa_nodes_on_grace() -> None:
    found = matrix("gb200-4gpu-6nic-excerpt")
    assert found.affinity["GPU1"] == Affinity("0-71", "0,3-9,11-17", "10")
    assert {found.cells["GPU0", nic] for nic in found.nics} == {"SYS"}
    assert found.between("GPU2", "GPU3") == "NV18"  # from the row of GPU2: that of GPU3 is missing


def test_a_matrix_without_a_head_has_the_columns_of_its_diagonal() -> None:
    """vLLM 16336. GPU6, GPU7 and the NICs are not named anywhere, so they are not there."""
    found = matrix("b200-gpu2-lost-nvlink-excerpt")
    assert found.gpus == tuple(f"GPU{n}" for n in range(6))
    assert found.nics == ()
    assert [found.between("GPU2", gpu) for gpu in found.gpus] == [
        "NODE", "NODE", None, "NODE", "SYS", "SYS",
    ]  # fmt: skip
    assert found.between("GPU0", "GPU5") == "NV18"
    assert found.affinity == {}


def test_a_legend_of_ones_own_is_no_row() -> None:
    found = matrix("partial-nvlink-4gpu-old-legend")
    assert found.of_gpus()["0", "1"] == "NV1"
    assert found.of_gpus()["1", "2"] == "SYS"
    assert found.affinity == {"GPU0": Affinity("0-7"), "GPU1": Affinity("0-7"),
                              "GPU2": Affinity("8-15"), "GPU3": Affinity("8-15")}  # fmt: skip


def test_colours_old_words_and_rows_that_are_cut_off() -> None:
    """A terminal's underlined head; SOC is what SYS was called; half a word is none."""
    text = (
        "\x1b[4m\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\x1b[0m\n"
        "GPU0\t X \tSOC\tPHB\t0-7\n"
        "GPU1\tSOC\t X \tPX"
    )
    found = read_matrix(text)
    assert found.between("GPU1", "GPU0") == "SYS"
    assert found.between("GPU0", "mlx5_0") == "PHB"
    assert found.between("GPU1", "mlx5_0") is None
    assert found.affinity == {"GPU0": Affinity("0-7")}


def test_34_columns_of_virtual_functions() -> None:
    """sglang 4572."""
    nics = [f"NIC{n}" for n in range(34)]
    text = "\t".join(["", "GPU0", *nics]) + "\n" + "\t".join(["GPU0", "X", *["NODE"] * 34]) + "\n"
    text += "NIC Legend:\n" + "\n".join(f"  {nic}: mlx5_{n}" for n, nic in enumerate(nics))
    assert len(read_matrix(text).of_devices()) == 34


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "no matrix", "GPU0", "GPU0\tGPU1\n", "NVIDIA-SMI has failed because it couldn't"],
)
def test_a_text_without_a_matrix_is_an_error(text: str) -> None:
    with pytest.raises(Malformed, match="no row of a topology matrix"):
        read_matrix(text)


def test_a_text_without_an_end_is_an_error() -> None:
    with pytest.raises(Malformed, match="longer than 1 MiB"):
        read_matrix("GPU0 X\n" * 200_000)


@pytest.mark.parametrize("cut", range(0, 900, 11))
@pytest.mark.parametrize("name", ["dgx-h100-8gpu-12nic", "a100-8gpu-10nic-niclegend"])
def test_a_text_that_is_cut_off_anywhere_says_nothing_wrong(name: str, cut: int) -> None:
    whole = matrix(name)
    try:
        found = read_matrix((SAMPLES / f"{name}.txt").read_text()[: 3 * cut])
    except Malformed:
        return
    for key, word in found.cells.items():
        assert whole.cells[key] == word


def test_the_status_of_links() -> None:
    found = read_links((SAMPLES / "nvlink-status-a100-8gpu.txt").read_text())
    assert [one.gpu for one in found] == list(range(8))
    assert {one.up for one in found} == {12}
    assert found[0].name == "NVIDIA A100-SXM4-80GB"
    assert found[0].uuid == "GPU-5269b708-678a-b1a8-60f0-c90406537486"
    assert found[7].links[11] == 25e9


def test_links_that_are_inactive() -> None:
    (bad,) = read_links((SAMPLES / "nvlink-status-a100-bad.txt").read_text())
    assert (bad.gpu, bad.up, bad.links) == (6, 0, {})
    (some,) = read_links("GPU 0: X (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n")
    assert some.links == {0: 26.562e9, 1: None}
    assert some.up == 1
    with pytest.raises(Malformed, match="holds no GPU"):
        read_links("nothing")
