"""The PCI tree of the made-up node, read by the real source and held against a real machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.board import Board
from exporter.demo.gpus import ADDRESSES
from exporter.demo.node import MISPLACED, Node
from exporter.demo.pci import cards
from exporter.demo.sysfs import SysfsTree
from exporter.demo.training import SCENARIOS
from exporter.derive import Memory
from exporter.derive.diagnosis import diagnosis
from exporter.derive.diagnosis.advice import PROBLEMS
from exporter.derive.fabric.gpus import Gpu
from exporter.exposition import Exposition
from exporter.formats.topo import read_matrix
from exporter.nvml.inventory import gpus_on_bus
from exporter.samples import (
    EMPTY_SHAPE,
    Gate,
    Health,
    Metric,
    Sample,
    Snapshot,
    SourceView,
    View,
    in_columns,
)
from exporter.sources.topology import Choice, Scanner, TopologySource
from tests.fakes import FakeClock

DATA = Path(__file__).parent.parent / "data"
SOUND = next(name for name, one in SCENARIOS.items() if one.sound)


def told(root: Path, scenario: str) -> list[Sample]:
    """Return what the source tells of the demo's tree."""
    SysfsTree(root).write(Node(0, 0.0, SCENARIOS[scenario]))
    gpus = [
        Gpu(str(at), f"GPU-{at}", address, busy=True, peers={"switch": 18})
        for at, address in enumerate(ADDRESSES)
    ]
    source = TopologySource(Scanner(root), lambda: gpus, FakeClock(), choice=Choice())
    return [one for one in source.read() if isinstance(one, Sample)]


def words(samples: list[Sample], metric: Metric) -> dict[tuple[str, str], str]:
    return {(s.labels[0], s.labels[2]): s.labels[3] for s in samples if s.metric is metric}


def test_the_demo_is_wired_as_a_published_dgx_h100(tmp_path: Path) -> None:
    """Every distance between GPUs, and to compute NICs, as nvidia-smi printed it."""
    real = read_matrix((DATA / "topology/dgx-h100-8gpu-12nic.txt").read_text())
    compute = [f"NIC{n}" for n in (0, 3, 4, 5, 6, 9, 10, 11)]
    samples = told(tmp_path, SOUND)
    made = words(samples, c.TOPOLOGY_GPU_NIC_DISTANCE)
    for gpu in range(8):
        for rail, nic in enumerate(compute):
            assert made[str(gpu), f"mlx5_{rail}"] == real.between(f"GPU{gpu}", nic)
    pairs = words(samples, c.TOPOLOGY_GPU_GPU_DISTANCE)
    assert {pair: real.of_gpus()[pair] for pair in pairs} == pairs
    assert {s.value for s in samples if s.metric is c.TOPOLOGY_GPU_NIC_OK} == {1}
    assert {s.value for s in samples if s.metric is c.TOPOLOGY_PCIE_LINK_DEGRADED} == {0}
    assert gpus_on_bus(tmp_path) == 8


def test_one_nic_of_the_demo_is_in_the_wrong_slot(tmp_path: Path) -> None:
    """Its GPU says so; another GPU's NIC has to do for both."""
    samples = told(tmp_path, "default")
    fine = {s.labels[0]: s.value for s in samples if s.metric is c.TOPOLOGY_GPU_NIC_OK}
    assert [gpu for gpu, good in fine.items() if not good] == [MISPLACED.removeprefix("mlx5_")]
    assert words(samples, c.TOPOLOGY_GPU_NIC_DISTANCE)["6", MISPLACED] == "SYS"
    shared = [s for s in samples if s.metric is c.TOPOLOGY_NIC_SHARED and s.value]
    assert len(shared) == 1
    roles = {s.labels[0]: s.labels[3] for s in samples if s.metric is c.TOPOLOGY_NIC_INFO}
    assert roles["mlx5_bond_0"] == roles["eno1"] == "other"
    assert list(roles.values()).count("compute") == 8


def page(samples: list[Sample]) -> str:
    """Return the page of group `topology`."""
    clock, board = FakeClock(), Board()
    batch, drops = Gate(5000).admit(samples)
    assert not drops
    slot = board.enroll("topology", c.TOPOLOGY, 2.0, 12.0, clock.monotonic())
    slot.publish(
        Snapshot("topology", c.TOPOLOGY, clock.monotonic(), clock.time(), 0.01, batch), drops
    )
    exposition = Exposition(lambda: board.view(clock.monotonic()), lambda: (), clock)
    return exposition.page((frozenset({c.TOPOLOGY}), False, False)).decode()


@pytest.mark.parametrize("name", ["demo", "sample"])
def test_the_page_of_the_topology(name: str, tmp_path: Path, tool: Callable[[str], str]) -> None:
    """To the byte, and as promtool wants it. FLOPWATCH_WRITE_GOLDEN=1 writes the pages anew."""
    samples = told(tmp_path, "default") if name == "demo" else of_sample()
    made, file = page(samples), DATA / f"golden/topology-{name}.txt"
    if os.environ.get("FLOPWATCH_WRITE_GOLDEN") == "1":
        file.write_text(made, "utf-8")
    assert made == file.read_text("utf-8")
    result = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=made, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")


def of_sample() -> list[Sample]:
    """Return what the source tells of the recorded tree with an answer for every distance."""
    addresses = ("0000:18:00.0", "0000:3a:00.0", "0000:9c:00.0", "0000:c1:00.0")
    gpus = [Gpu(str(at), f"GPU-{at}", address) for at, address in enumerate(addresses)]
    scanner = Scanner(DATA / "sysfs/derived-pci-topology")
    source = TopologySource(scanner, lambda: gpus, FakeClock())
    return [one for one in source.read() if isinstance(one, Sample)]


def test_eight_gpus_cost_a_twelfth_of_the_series_that_a_node_may_have(tmp_path: Path) -> None:
    """Three thousand are the budget of a node; more NICs than these are bounded by `max_pairs`."""
    assert len(told(tmp_path, "default")) <= 250


def test_bad_pcie_topology_of_table_16_8_is_named_by_the_diagnosis(tmp_path: Path) -> None:
    """A sound node whose NIC is put into another slot: the finding comes with the next look."""
    node = Node(0, 0.0, SCENARIOS[SOUND])
    SysfsTree(tmp_path).write(node)
    clock = FakeClock()
    gpus = [Gpu(str(at), f"GPU-{at}", address) for at, address in enumerate(ADDRESSES)]
    source = TopologySource(Scanner(tmp_path), lambda: gpus, clock)
    derivation, memory = diagnosis(), Memory()

    def cause() -> float | None:
        """Return whether the cause is seen, once it would have stood for long enough."""
        said: list[Sample] = []
        for _ in range(20):
            clock.advance(10)
            found = [one for one in source.read() if isinstance(one, Sample)]
            found += [c.GPU_UTILIZATION_RATIO(0.99, *gpu.labels) for gpu in gpus]
            found += [c.TRAIN_RUN_GPU(1, "run", gpu.gpu, gpu.uuid) for gpu in gpus]
            batch = in_columns(found, EMPTY_SHAPE)
            view = View((SourceView("all", "gpu", "up", Health(), batch=batch, age=0.0),), ())
            memory.begin(clock.now)
            said = list(derivation.function(view, memory, clock.now))
        return next(
            (float(one.value) for one in said  # type: ignore[arg-type]
             if one.metric is c.DIAGNOSIS_CAUSE and one.labels == ("run", "nic_distance")), None,
        )  # fmt: skip

    assert cause() == 0
    wrong = cards(sound=False)[MISPLACED].path
    folder = tmp_path / "sys/devices" / wrong
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text("0\n")
    link = tmp_path / f"sys/class/infiniband/{MISPLACED}/device"
    link.unlink()
    link.symlink_to(folder)
    assert cause() == 1
    (problem,) = (one for one in PROBLEMS if "nic_distance" in one.causes)
    assert problem.problem == "bad PCIe topology"
