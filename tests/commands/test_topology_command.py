"""`flopwatch topology`: the matrix of a page, of a machine and of files, by the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exporter.demo.node import Node
from exporter.demo.sysfs import SysfsTree
from exporter.demo.training import SCENARIOS
from exporter.formats.topo import read_matrix
from tests.pci_tree import PciTree, behind_a_switch
from tests.test_command import flopwatch

DATA = Path(__file__).parent.parent / "data"
SOUND = next(name for name, one in SCENARIOS.items() if one.sound)
PAGE = DATA / "golden/topology-demo.txt"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return the root of a sound DGX H100."""
    SysfsTree(tmp_path).write(Node(0, 0.0, SCENARIOS[SOUND]))
    return tmp_path


def test_a_page_is_printed_as_nvidia_smi_does() -> None:
    """The parser of the real thing reads it: each pair of the page is there, and nothing else."""
    result = flopwatch("topology", str(PAGE))

    assert result.returncode == 0
    found = read_matrix(result.stdout)
    assert found.of_gpus()["6", "0"] == "NV18"
    assert len(found.of_devices()) == 72
    assert found.of_devices()["6", "mlx5_6"] == "SYS"
    assert found.affinity["GPU7"].cpus == "56-111,168-223"
    assert found.affinity["GPU7"].numa_nodes == "1"


def test_what_is_wrong_is_said_and_makes_the_exit_code() -> None:
    result = flopwatch("topology", str(PAGE), "--check")

    assert result.returncode == 1
    wrong = result.stdout.partition("What is wrong:")[2].split("\n")
    assert [line.strip() for line in wrong if line] == [
        "GPU6: its nearest compute NIC is mlx5_7 at NODE: too far",
        "mlx5_6: a compute NIC that is the nearest of no GPU",
        "mlx5_7: the nearest of GPU6, GPU7, though each could have its own",
    ]


def test_this_machine_is_looked_at_without_a_daemon(machine: Path) -> None:
    """The same distances; of NVLinks only the driver knows."""
    result = flopwatch("topology", "--sysfs", str(machine), "--check")

    assert result.returncode == 0, result.stdout
    found = read_matrix(result.stdout)
    assert found.of_devices()["6", "mlx5_6"] == "PXB"
    assert found.of_gpus()["0", "7"] == "SYS"
    assert "NVLinks are not known without the driver" in result.stdout
    assert "Nothing is wrong, as far as can be told (sysfs)." in result.stdout


def test_json(machine: Path) -> None:
    result = flopwatch("topology", "--sysfs", str(machine), "--json")

    found = json.loads(result.stdout)
    assert found["gpus"]["6"]["nic"] == {
        "device": "mlx5_6", "distance": "PXB", "rail": "6", "fine": True,
    }  # fmt: skip
    assert found["gpus"]["6"]["numa_node"] == "1"
    assert found["gpus"]["6"]["to_nics"]["mlx5_0"] == "SYS"
    assert (found["source"], found["trusted"], found["wrong"]) == ("sysfs", True, [])


def test_a_virtual_machine_is_not_judged(tmp_path: Path) -> None:
    """A NIC of which nothing is known has no column."""
    tree = PciTree(tmp_path)
    tree.virtual()
    tree.gpu("pci0001:00/0001:00:00.0", -1)
    tree.rdma("mlx5_0", "pci0101:00/0101:00:00.0", -1)
    tree.rdma("mlx5_1", "pci0001:00/0001:00:01.0", -1)
    result = flopwatch("topology", "--sysfs", str(tmp_path), "--check")

    assert result.returncode == 0
    assert "nothing is judged" in result.stdout
    assert result.stdout.splitlines()[1].split() == ["GPU0", "X", "PHB", "0-47", "N/A"]


def test_a_file_of_nccl_for_a_virtual_machine(tmp_path: Path) -> None:
    tree = PciTree(tmp_path)
    tree.virtual()
    gpu, nic = behind_a_switch(0)
    tree.gpu(gpu, -1)
    tree.rdma("mlx5_0", nic, -1)
    tree.write(
        "topo.xml",
        '<system><cpu numaid="0"><pci busid="ffff:ff:01.0" class="0x060400">'
        '<pci busid="0000:13:00.0"/></pci><pci busid="0000:14:00.0"/></cpu></system>',
    )
    file = str(tmp_path / "topo.xml")
    result = flopwatch("topology", "--sysfs", str(tmp_path), "--file", file, "--check")

    assert "GPU0: mlx5_0, PHB, rail 0" in result.stdout
    assert "(nccl_xml)" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sysfs", "{root}/nowhere"], "nowhere/sys/bus/pci/devices: no NVIDIA GPU is there"),
        (["{root}/no.prom"], "no.prom: No such file or directory"),
        ([str(DATA / "golden/gpu-t4.txt")], "gpu-t4.txt: tells of no GPU's place"),
        (["--file", "x"], "--file: needs --sysfs"),
        (["--sysfs", "{root}", "--file", "{root}/no.xml"], "no.xml: "),
        (["--sysfs", "{root}", "--file", "{root}/bad.xml"], "bad.xml: line 1: no element found"),
        (["--url", "http://127.0.0.1:1/metrics"], "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_told_is_an_error(machine: Path, arguments: list[str], said: str) -> None:
    (machine / "bad.xml").write_text("<system>")
    result = flopwatch("topology", *(one.format(root=machine) for one in arguments))

    assert result.returncode == 2
    assert said in result.stderr
    assert result.stdout == ""
