"""The topology of a machine: recorded and made-up PCI trees."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.derive.fabric.gpus import Gpu
from exporter.derive.fabric.rails import Chosen
from exporter.files import Files
from exporter.samples import Drop, Fault, Gate, Metric, Sample
from exporter.sources.topology import Choice, Scanner, TopologySource
from tests.fakes import FakeClock
from tests.pci_tree import GEN4, PciTree, behind_a_switch

SAMPLE = Path(__file__).parent.parent / "data/sysfs/derived-pci-topology"


class Denied(Files):
    """Files that keep RDMA devices to themselves."""

    def names(self, path: str) -> list[str]:
        if path.endswith("class/infiniband"):
            raise PermissionError(13, "Permission denied", path)
        return super().names(path)


class Bench:
    """A source over a tree, with GPUs at these addresses."""

    def __init__(
        self,
        root: Path,
        *addresses: str,
        choice: Choice | None = None,
        files: Files | None = None,
    ) -> None:
        self.clock = FakeClock()
        self.gpus: Sequence[Gpu] = [
            Gpu(str(at), f"GPU-{at}", address) for at, address in enumerate(addresses)
        ]
        self.source = TopologySource(
            Scanner(root, files), lambda: self.gpus, self.clock, choice=choice or Choice()
        )

    def read(self) -> list[Sample]:
        """Return the samples of one read; all are well-formed, and no series is there twice."""
        items = list(self.source.read())
        batch, drops = Gate(10_000).admit([one for one in items if isinstance(one, Sample)])
        assert not drops
        return list(batch)

    def of(self, metric: Metric) -> list[Sample]:
        return [sample for sample in self.read() if sample.metric is metric]

    def best(self) -> list[tuple[str, str, str, str]]:
        """Return GPU, NIC, distance and rail."""
        return [(one.labels[0], *one.labels[2:]) for one in self.of(c.TOPOLOGY_GPU_BEST_NIC_INFO)]

    def fine(self) -> list[float]:
        return [float(one.value) for one in self.of(c.TOPOLOGY_GPU_NIC_OK)]

    def degraded(self) -> dict[tuple[str, ...], float]:
        return {
            (one.labels[0] or one.labels[2], one.labels[3]): one.value
            for one in self.of(c.TOPOLOGY_PCIE_LINK_DEGRADED)
        }


@pytest.fixture
def tree(tmp_path: Path) -> PciTree:
    made = PciTree(tmp_path)
    made.virtual(said=False)
    return made


def node_of_eight(tree: PciTree) -> list[str]:
    """Make a node of 8 GPUs, each behind a switch with its NIC; return the GPUs' addresses."""
    gpus = []
    for at in range(8):
        gpu, nic = behind_a_switch(at)
        gpus.append(tree.gpu(gpu, at // 4))
        tree.rdma(f"mlx5_{at}", nic, at // 4)
    return gpus


def test_the_answers_of_the_sample_tree() -> None:
    """All six cases, as the file beside the tree has them."""
    expected = [
        line.split()[:5]
        for line in (SAMPLE / "EXPECTED.txt").read_text().splitlines()
        if line.startswith("gpu ")
    ]
    addresses = list(dict.fromkeys(line[1] for line in expected))
    bench = Bench(SAMPLE, *addresses)
    told = {
        (addresses[int(one.labels[0])], one.labels[2]): (one.labels[3], one.value)
        for one in bench.of(c.TOPOLOGY_GPU_NIC_DISTANCE)
    }
    seen = 0
    for _, gpu, nic, word, *rest in expected:
        if nic == "any":
            assert not [key for key in told if key[0] == gpu]
            continue
        order = ["PIX", "PXB", "PHB", "NODE", "SYS"]
        assert told[gpu, nic] == (rest[0], order.index(rest[0]) + 1)
        assert word.startswith("0000:")
        seen += 1
    assert seen == 5
    # A GPU of which nothing is known has no best NIC, and no claim about it.
    assert [row[0] for row in bench.best()] == ["0", "1", "2"]


def test_a_good_node(tree: PciTree) -> None:
    """Eight rails, one for each GPU; nothing is shared, and nothing is wrong."""
    bench = Bench(tree.root, *node_of_eight(tree))
    assert bench.best() == [(str(n), f"mlx5_{n}", "PIX", str(n)) for n in range(8)]
    assert bench.fine() == [1] * 8
    assert [one.value for one in bench.of(c.TOPOLOGY_NIC_SHARED)] == [0] * 8
    assert set(bench.degraded().values()) == {0}
    assert len(bench.of(c.TOPOLOGY_GPU_NIC_DISTANCE)) == 64
    assert len(bench.of(c.TOPOLOGY_GPU_GPU_DISTANCE)) == 28
    assert bench.of(c.TOPOLOGY_INFO) == [c.TOPOLOGY_INFO(1, "sysfs", "true")]
    assert c.TOPOLOGY_NUMA_NODE(1, "7", "GPU-7", "") in bench.read()
    assert c.TOPOLOGY_GPU_AFFINITY_INFO(1, "7", "GPU-7", "48-95") in bench.read()


def test_a_nic_in_the_wrong_slot(tree: PciTree) -> None:
    """Its GPU has to use that of another one, and says so; the others are well."""
    gpus = node_of_eight(tree)
    gpu, nic = behind_a_switch(2)
    del gpu
    (tree.root / f"sys/bus/pci/devices/{nic.rpartition('/')[2]}").unlink()
    tree.rdma("mlx5_2", "pci0009:80/0009:80:01.0/0009:81:00.0", 1)
    bench = Bench(tree.root, *gpus)
    assert bench.fine() == [1, 1, 0, 1, 1, 1, 1, 1]
    assert bench.best()[2][2] == "NODE"
    assert sum(float(one.value) for one in bench.of(c.TOPOLOGY_NIC_SHARED)) == 1


def test_half_of_the_gpus_are_far_from_every_nic(tree: PciTree) -> None:
    """Four NICs, all on the first socket, for eight A100."""
    gpus = []
    for at in range(4):
        gpu, nic = behind_a_switch(at)
        gpus.append(tree.gpu(gpu, 0))
        tree.rdma(f"mlx5_{at}", nic, 0)
    gpus += [tree.gpu(behind_a_switch(at)[0], 1) for at in range(4, 8)]
    bench = Bench(tree.root, *gpus)
    assert bench.fine() == [1, 1, 1, 1, 0, 0, 0, 0]
    assert [row[2] for row in bench.best()] == ["PIX"] * 4 + ["SYS"] * 4
    assert bench.of(c.TOPOLOGY_NIC_SHARED) == []  # fewer NICs than GPUs: that is how it was built


def test_gpus_that_have_the_same_nics_nearest_get_one_each(tree: PciTree) -> None:
    """Two GPUs and two NICs on one switch (DGX A100): four rails, none of them used twice."""
    gpus = []
    for at in range(2):
        top = f"pci{at:04x}:10/{at:04x}:10:01.0/{at:04x}:11:00.0"
        for n in range(2):
            gpus.append(tree.gpu(f"{top}/{at:04x}:12:0{n}.0/{at:04x}:2{n}:00.0", at))
            tree.rdma(f"mlx5_{9 + 2 * at + n}", f"{top}/{at:04x}:12:1{n}.0/{at:04x}:3{n}:00.0", at)
    bench = Bench(tree.root, *gpus)
    assert bench.best() == [
        ("0", "mlx5_9", "PIX", "0"), ("1", "mlx5_10", "PIX", "1"),
        ("2", "mlx5_11", "PIX", "2"), ("3", "mlx5_12", "PIX", "3"),
    ]  # fmt: skip
    assert [one.value for one in bench.of(c.TOPOLOGY_NIC_SHARED)] == [0] * 4


def test_on_grace_every_nic_is_far_by_design(tree: PciTree) -> None:
    """GB200: NICs hang off the CPU, GPUs are tied to it chip to chip (ngc_multinode_perf 129)."""
    gpus = [
        tree.gpu(f"pci{at:04x}:00/{at:04x}:00:00.0/{at:04x}:01:00.0", at // 2) for at in range(4)
    ]
    for n in range(4):
        tree.rdma(f"mlx5_{n}", f"pci001{n}:00/001{n}:00:00.0/001{n}:01:00.0", 9)
    bench = Bench(tree.root, *gpus)
    assert bench.fine() == [0] * 4
    bench = Bench(tree.root, *gpus)
    bench.gpus = [one._replace(on_chip=True) for one in bench.gpus]
    assert bench.fine() == [1] * 4
    assert bench.best() == [(str(n), f"mlx5_{n}", "SYS", str(n)) for n in range(4)]


def test_a_board_without_switches_is_well(tree: PciTree) -> None:
    """The nearest that it can do is the host bridge."""
    gpus = [tree.gpu(f"pci0000:00/0000:00:0{n}.0/0000:0{n}:00.0") for n in range(1, 3)]
    tree.rdma("mlx5_0", "pci0000:00/0000:00:05.0/0000:05:00.0")
    tree.rdma("mlx5_1", "pci0000:00/0000:00:06.0/0000:06:00.0")
    bench = Bench(tree.root, *gpus)
    assert [row[2] for row in bench.best()] == ["PHB", "PHB"]
    assert bench.fine() == [1, 1]


def test_one_nic_cannot_be_near_to_all(tree: PciTree) -> None:
    """It is fine where it is near to one of them, and wrong where it is near to none."""
    gpus = [tree.gpu(behind_a_switch(at)[0], at) for at in range(2)]
    tree.rdma("mlx5_0", behind_a_switch(0)[1], 0)
    assert Bench(tree.root, *gpus).fine() == [1, 1]
    assert Bench(tree.root, gpus[1]).fine() == [0]


def test_an_operator_says_what_is_near(tree: PciTree) -> None:
    gpus = [tree.gpu(f"pci0000:00/0000:00:0{n}.0/0000:0{n}:00.0") for n in range(1, 3)]
    tree.rdma("mlx5_0", "pci0000:00/0000:00:05.0/0000:05:00.0")
    for worst, fine in (("PXB", [0, 0]), ("PHB", [1, 1]), ("SYS", [1, 1])):
        assert Bench(tree.root, *gpus, choice=Choice(worst=worst)).fine() == fine


def test_a_virtual_machine_is_not_judged(tree: PciTree) -> None:
    """A hypervisor shows a tree of its own (NCCL 933, 1505); it is not trusted."""
    gpus = node_of_eight(tree)
    tree.virtual()
    bench = Bench(tree.root, *gpus)
    assert bench.of(c.TOPOLOGY_INFO) == [c.TOPOLOGY_INFO(1, "sysfs", "false")]
    assert len(bench.best()) == 8
    assert bench.fine() == []
    assert bench.of(c.TOPOLOGY_NIC_SHARED) == []


def test_a_virtual_machine_on_arm_is_known_by_its_name(tree: PciTree) -> None:
    tree.write("proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd")
    tree.write("sys/class/dmi/id/product_name", "KVM Virtual Machine")
    assert Scanner(tree.root).is_virtual()
    tree.write("sys/class/dmi/id/product_name", "Grace GB200 NVL")
    assert not Scanner(tree.root).is_virtual()


def test_34_columns_of_virtual_functions_are_no_series(tree: PciTree) -> None:
    """sglang 4572: a host with virtual functions shows them all; each is where its card is."""
    gpus = node_of_eight(tree)
    before = len(Bench(tree.root, *gpus).read())
    gpu, nic = behind_a_switch(0)
    card = nic.rpartition("/")[2]
    for n in range(1, 8):
        path = f"{nic.rpartition('.')[0]}.{n}"
        tree.rdma(f"mlx5_{20 + n}", path)
        tree.link(f"sys/devices/{path}/physfn", f"sys/devices/{nic}")
    bench = Bench(tree.root, *gpus)
    assert len(bench.read()) == before
    assert (gpu[-12:], card) == ("0000:13:00.0", "0000:14:00.0")
    assert len(bench.best()) == 8


def test_hundreds_of_virtual_functions_take_no_place_of_a_card(tree: PciTree) -> None:
    """Of eight cards the last ones' names came after the 256 devices that are kept: two rails."""
    gpus = node_of_eight(tree)
    _, nic = behind_a_switch(0)
    for n in range(300):
        path = f"{nic[:-4]}{n // 8 + 1:02x}.{n % 8}"
        tree.rdma(f"mlx5_0v{n}", path)
        tree.link(f"sys/devices/{path}/physfn", f"sys/devices/{nic}")
    bench = Bench(tree.root, *gpus)
    assert [row[1] for row in bench.best()] == [f"mlx5_{n}" for n in range(8)]
    assert not any(isinstance(one, Drop) for one in bench.source.read())


def test_pairs_are_bounded_and_what_is_left_out_is_counted(tree: PciTree) -> None:
    """Compute NICs come first, so the rails stay."""
    gpus = node_of_eight(tree)
    for n in range(30):
        path = f"pci0020:00/0020:00:01.0/0020:{n + 1:02x}:00.0"
        tree.rdma(f"bnxt_re{n}", path, rate="25 Gb/sec (1X EDR)")
    bench = Bench(tree.root, *gpus, choice=Choice(max_pairs=80))
    assert len(bench.of(c.TOPOLOGY_GPU_NIC_DISTANCE)) == 80
    assert [row[1] for row in bench.best()] == [f"mlx5_{n}" for n in range(8)]
    assert Drop("cap", 28 * 8) in list(bench.source.read())


def test_which_nics_are_for_computing(tree: PciTree) -> None:
    """Not that of the default route, slower ones, storage, software RDMA or plain Ethernet.

    NVIDIA infra-controller 3624: a ninth port, for management, was taken for a bad one.
    """
    gpus = node_of_eight(tree)
    slots = (f"pci0020:00/0020:00:0{n}.0/0020:0{n}:00.0" for n in range(1, 8))
    tree.rdma("mlx5_8", next(slots), rate="200 Gb/sec (4X HDR)", board="old")
    tree.rdma("mlx5_9", next(slots), netdev="ens9")
    tree.rdma("mlx5_10", next(slots), netdev="ens10")
    # The default route leaves over a VLAN on a bond of one card.
    tree.write("sys/class/net/bond0/lower_ens10/type", 1)
    tree.write("sys/class/net/bond0.7/lower_bond0/type", 1)
    tree.routes_over("bond0.7")
    path = next(slots)
    tree.device(path)
    tree.interface("eno1", path)
    tree.write("sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE")
    (tree.root / "sys/class/net/bonding_masters").write_text("bond0\n")
    chosen = Chosen(storage=re.compile("ens9"))
    bench = Bench(tree.root, *gpus, choice=Choice(chosen))
    told = {one.labels[0]: one.labels[1:] for one in bench.of(c.TOPOLOGY_NIC_INFO)}
    assert told["mlx5_3"][3] == "3"
    assert told["mlx5_8"][3] == ""
    assert {device: rest[2] for device, rest in told.items()} == {
        **{f"mlx5_{n}": "compute" for n in range(8)},
        "mlx5_8": "other", "mlx5_9": "storage", "mlx5_10": "default_route", "eno1": "other",
    }  # fmt: skip
    assert told["mlx5_10"][:2] == ("ens10", "0020:03:00.0")


def test_rails_are_not_numbered_anew_when_a_link_goes_down(tree: PciTree) -> None:
    """A port that is down prints the driver's fallback rate."""
    gpus = node_of_eight(tree)
    bench = Bench(tree.root, *gpus)
    before = bench.best()
    tree.write("sys/class/infiniband/mlx5_3/ports/1/state", "1: DOWN")
    tree.write("sys/class/infiniband/mlx5_3/ports/1/rate", "10 Gb/sec (4X)")
    bench.clock.advance(61)
    assert bench.best() == before


def test_the_only_nic_carries_the_default_route_too(tree: PciTree) -> None:
    gpu, nic = behind_a_switch(0)
    address = tree.gpu(gpu)
    tree.rdma("mlx5_0", nic, netdev="ens1")
    tree.routes_over("ens1")
    assert Bench(tree.root, address).best() == [("0", "mlx5_0", "PIX", "0")]


def test_a_machine_without_rdma_tells_of_its_interfaces(tree: PciTree) -> None:
    """Where there is no RDMA, distances to plain cards are worth telling; none is compute."""
    gpu, nic = behind_a_switch(0)
    address = tree.gpu(gpu)
    tree.device(nic)
    tree.interface("ens4", nic)
    bench = Bench(tree.root, address)
    assert [one.labels[2:] for one in bench.of(c.TOPOLOGY_GPU_NIC_DISTANCE)] == [("ens4", "PIX")]
    assert bench.best() == []
    assert bench.fine() == []


def test_a_card_that_lost_lanes(tree: PciTree) -> None:
    """Also on the way up: a switch that trained at half its lanes slows all below it."""
    gpus = node_of_eight(tree)
    gpu, nic = behind_a_switch(0)
    tree.ends(nic, 8, 16)
    far = behind_a_switch(1)[0]
    tree.ends(far.rpartition("/")[0].rpartition("/")[0], 8, 16)
    found = Bench(tree.root, *gpus).degraded()
    assert gpu
    assert {key for key, value in found.items() if value} == {
        ("mlx5_0", "width"), ("1", "width"), ("mlx5_1", "width"),
    }  # fmt: skip


def test_a_fast_card_in_a_slow_slot_is_how_it_was_built(tree: PciTree) -> None:
    gpus = node_of_eight(tree)
    nic = behind_a_switch(0)[1]
    tree.ends(nic, 8, 16, GEN4)
    tree.ends(nic.rpartition("/")[0], 8, 8, GEN4, GEN4)
    assert set(Bench(tree.root, *gpus).degraded().values()) == {0}


def test_the_speed_of_an_idle_gpu_says_nothing(tree: PciTree) -> None:
    """It falls to save power; of a busy one it counts, once it was so twice."""
    gpus = node_of_eight(tree)
    tree.ends(behind_a_switch(0)[0], 16, 16, "2.5 GT/s PCIe")
    tree.ends(behind_a_switch(1)[1], 16, 16, GEN4)
    bench = Bench(tree.root, *gpus)
    assert ("0", "speed") not in bench.degraded()
    assert bench.degraded()["mlx5_1", "speed"] == 1
    bench.gpus = [one._replace(busy=True) for one in bench.gpus]
    bench.clock.advance(61)
    found = bench.degraded()
    assert ("0", "speed") not in found
    assert found["1", "speed"] == 0
    bench.clock.advance(61)
    assert bench.degraded()["0", "speed"] == 1


def test_what_is_no_link_is_not_judged(tree: PciTree) -> None:
    """Two ends of a link agree; bridges inside of a chip show whatever their maker liked."""
    gpu, nic = behind_a_switch(0)
    address = tree.gpu(gpu)
    tree.rdma("mlx5_0", nic)
    tree.ends(gpu, 8, 16, GEN4)
    tree.ends(gpu.rpartition("/")[0], 8, 16, GEN4)
    tree.ends(nic, 8, 16, GEN4)
    tree.ends(nic.rpartition("/")[0], 16, 16)
    bench = Bench(tree.root, address)
    assert bench.degraded() == {("0", "width"): 1}


def test_a_class_folder_that_cannot_be_listed_is_a_fault_once(tree: PciTree) -> None:
    """And is told again in each read, not more and more often."""
    gpus = node_of_eight(tree)
    bench = Bench(tree.root, *gpus, files=Denied())
    for _ in range(3):
        bench.clock.advance(61)
        faults = [one for one in bench.source.read() if isinstance(one, Fault)]
        assert [one.reason for one in faults] == ["denied"]
    assert len(bench.of(c.TOPOLOGY_GPU_GPU_DISTANCE)) == 28


def test_what_links_do_not_tell_is_not_judged(tree: PciTree) -> None:
    """Virtual bridges and links that are down say Unknown, 0 or 255."""
    gpu, nic = behind_a_switch(0)
    address = tree.gpu(gpu)
    tree.rdma("mlx5_0", nic)
    for path in (gpu, nic):
        tree.ends(path, 0, 255, "Unknown", "Unknown speed")
    assert Bench(tree.root, address).degraded() == {}


def test_a_new_device_is_seen_at_once(tree: PciTree) -> None:
    """In between nothing is read again but the names."""
    gpus = node_of_eight(tree)
    bench = Bench(tree.root, *gpus)
    first = bench.source.read()
    assert bench.source.read() is first
    tree.rdma("mlx5_9", "pci0020:00/0020:00:01.0/0020:01:00.0")
    assert len(bench.of(c.TOPOLOGY_NIC_INFO)) == 9
    bench.gpus = bench.gpus[:4]
    assert len(bench.best()) == 4


def test_a_machine_that_has_nothing(tmp_path: Path) -> None:
    """No GPU known yet, no RDMA, no such folders."""
    bench = Bench(tmp_path)
    assert bench.read() == [c.TOPOLOGY_INFO(1, "sysfs", "true")]
    bench = Bench(tmp_path, "0000:1b:00.0", "garbage/../..")
    assert bench.read() == [c.TOPOLOGY_INFO(1, "sysfs", "true")]


# ---------------------------------------------------------------- NVLink


def test_gpus_behind_switches_have_as_many_links_as_both_have_up(tree: PciTree) -> None:
    bench = Bench(tree.root, *node_of_eight(tree))
    bench.gpus = [one._replace(peers={"switch": 18}) for one in bench.gpus]
    assert {one.labels[3] for one in bench.of(c.TOPOLOGY_GPU_GPU_DISTANCE)} == {"NV18"}
    assert {one.value for one in bench.of(c.TOPOLOGY_GPU_GPU_DISTANCE)} == {0}
    assert [one.value for one in bench.of(c.TOPOLOGY_GPU_NVLINK_OK)] == [1] * 8


def test_a_gpu_that_lost_its_nvlinks(tree: PciTree) -> None:
    """vLLM 16336: the others still have theirs; it talks over PCIe. It is seen at once."""
    bench = Bench(tree.root, *node_of_eight(tree))
    bench.gpus = [one._replace(peers={"switch": 18}) for one in bench.gpus]
    bench.read()
    bench.gpus = [
        one._replace(peers={"switch": 0}) if one.gpu == "2" else one for one in bench.gpus
    ]
    words = {(a.labels[0], a.labels[2]): a.labels[3] for a in bench.of(c.TOPOLOGY_GPU_GPU_DISTANCE)}
    assert words["2", "3"] == "NODE"
    assert words["2", "4"] == "SYS"
    assert words["0", "1"] == "NV18"
    assert [one.value for one in bench.of(c.TOPOLOGY_GPU_NVLINK_OK)] == [1, 1, 0, 1, 1, 1, 1, 1]


def test_a_gpu_that_is_gone_does_not_silence_the_others(tree: PciTree) -> None:
    """Of one that fell off the bus nothing is known; the others are compared all the same."""
    bench = Bench(tree.root, *node_of_eight(tree))
    bench.gpus = [
        one._replace(peers=None if at == 7 else {"switch": 18 if at else 17})
        for at, one in enumerate(bench.gpus)
    ]
    assert [one.value for one in bench.of(c.TOPOLOGY_GPU_NVLINK_OK)] == [0, 1, 1, 1, 1, 1, 1]


def test_links_between_two_gpus_are_counted(tree: PciTree) -> None:
    """A DGX-1: one or two links to some, none to others."""
    addresses = node_of_eight(tree)[:3]
    bench = Bench(tree.root, *addresses)
    ends = ({1: 2}, {0: 2, 2: 1}, {1: 1})
    bench.gpus = [
        one._replace(peers={addresses[at]: n for at, n in mine.items()})
        for one, mine in zip(bench.gpus, ends, strict=True)
    ]
    told = [one.labels[3] for one in bench.of(c.TOPOLOGY_GPU_GPU_DISTANCE)]
    assert told == ["NV2", "NODE", "NV1"]


def test_links_that_are_all_down_on_all_gpus(tree: PciTree) -> None:
    """gpud 1085: inactive links were called healthy. The fabric manager may have died."""
    bench = Bench(tree.root, *node_of_eight(tree))
    bench.gpus = [one._replace(peers={"switch": 0}) for one in bench.gpus]
    assert [one.value for one in bench.of(c.TOPOLOGY_GPU_NVLINK_OK)] == [0] * 8


@pytest.mark.parametrize("peers", [None, {}])
def test_cards_without_links_are_no_fault(tree: PciTree, peers: dict[str, int] | None) -> None:
    """NVSentinel 1481: PCIe cards raised the alarm of links that are down."""
    bench = Bench(tree.root, *node_of_eight(tree))
    bench.gpus = [one._replace(peers=peers) for one in bench.gpus]
    assert bench.of(c.TOPOLOGY_GPU_NVLINK_OK) == []


def test_twelve_links_of_an_a100_are_all_it_has(tree: PciTree) -> None:
    """gpud 1227: it was called faulty, for other products have more."""
    bench = Bench(tree.root, *node_of_eight(tree))
    bench.gpus = [one._replace(peers={"switch": 12}) for one in bench.gpus]
    assert [one.value for one in bench.of(c.TOPOLOGY_GPU_NVLINK_OK)] == [1] * 8


def test_bridges_on_some_cards_are_no_fault_of_the_others(tree: PciTree) -> None:
    bench = Bench(tree.root, *node_of_eight(tree)[:4])
    bench.gpus = [
        one._replace(peers={"switch": 4} if at < 2 else {}) for at, one in enumerate(bench.gpus)
    ]
    assert bench.of(c.TOPOLOGY_GPU_NVLINK_OK) == []


# ---------------------------------------------------------------- files


def test_a_virtual_machine_with_a_file_of_nccl(tree: PciTree) -> None:
    """The hypervisor shows flat devices; the file knows the switches (NCCL 1505)."""
    tree.virtual()
    gpus = []
    cpus = ""
    for at in range(2):
        gpus.append(tree.gpu(f"pci000{at}:00/000{at}:00:00.0", -1))
        tree.rdma(f"mlx5_{at}", f"pci010{at}:00/010{at}:00:00.0", -1)
        cpus += (
            f'<cpu numaid="{at}"><pci busid="ffff:ff:0{at}.0" class="0x060400">'
            f'<pci busid="000{at}:00:00.0" class="0x030200"/>'
            f'<pci busid="010{at}:00:00.0" class="0x020700"/></pci></cpu>'
        )
    assert Bench(tree.root, *gpus).best() == []
    tree.write("topo.xml", f'<system version="1">{cpus}</system>')
    bench = Bench(tree.root, *gpus, choice=Choice(file=tree.root / "topo.xml"))
    assert bench.of(c.TOPOLOGY_INFO) == [c.TOPOLOGY_INFO(1, "nccl_xml", "true")]
    assert bench.best() == [("0", "mlx5_0", "PIX", "0"), ("1", "mlx5_1", "PIX", "1")]
    assert bench.fine() == [1, 1]
    words = {one.labels[3] for one in bench.of(c.TOPOLOGY_GPU_NIC_DISTANCE)}
    assert words == {"PIX", "SYS"}


def test_the_file_that_nccl_uses_is_found(tree: PciTree) -> None:
    """Images of clouds name it in /etc/nccl.conf; where nothing is virtual the tree is better."""
    gpu, nic = behind_a_switch(0)
    address = tree.gpu(gpu)
    tree.rdma("mlx5_0", nic)
    tree.write("etc/nccl.conf", "NCCL_TOPO_FILE=/opt/topo.xml")
    tree.write(
        "opt/topo.xml",
        '<system><cpu numaid="0"><pci busid="0000:13:00.0"/><pci busid="0000:14:00.0"/></cpu>'
        "</system>",
    )
    assert Bench(tree.root, address).best() == [("0", "mlx5_0", "PIX", "0")]
    tree.virtual()
    assert Bench(tree.root, address).best() == [("0", "mlx5_0", "PHB", "0")]
    (tree.root / "opt/topo.xml").unlink()
    bench = Bench(tree.root, address)
    assert [one.reason for one in bench.source.read() if isinstance(one, Fault)] == ["unavailable"]
    assert bench.best() == [("0", "mlx5_0", "PIX", "0")]


def test_a_file_of_nccl_tells_all_that_the_tree_does(tree: PciTree) -> None:
    """PXB below cascaded switches, PHB below one CPU."""
    gpu = tree.gpu("pci0000:00/0000:00:01.0", -1)
    for n in (2, 3):
        tree.rdma(f"mlx5_{n}", f"pci0000:00/0000:00:0{n}.0", -1)
    tree.write(
        "topo.xml",
        '<system><cpu numaid="0"><pci busid="a:00:00.0" class="0x0604">'
        '<pci busid="b:00:00.0" class="0x0604"><pci busid="0000:00:01.0"/></pci>'
        '<pci busid="0000:00:02.0"/></pci><pci busid="0000:00:03.0"/></cpu></system>',
    )
    bench = Bench(tree.root, gpu, choice=Choice(file=tree.root / "topo.xml"))
    told = {one.labels[2]: one.labels[3] for one in bench.of(c.TOPOLOGY_GPU_NIC_DISTANCE)}
    assert told == {"mlx5_2": "PXB", "mlx5_3": "PHB"}


def test_a_saved_matrix_is_believed(tree: PciTree) -> None:
    """Rows of NICs that are missing, and cells that are not told, stay unknown."""
    gpus = node_of_eight(tree)
    tree.virtual()
    tree.write(
        "topo.txt",
        "\tGPU0\tGPU1\tNIC0\tNIC1\nGPU0\t X \tNV4\tPIX\tSYS\nGPU1\tNV4\t X \tSYS\n\n"
        "NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n",
    )
    bench = Bench(tree.root, *gpus, choice=Choice(file=tree.root / "topo.txt"))
    assert bench.of(c.TOPOLOGY_INFO) == [c.TOPOLOGY_INFO(1, "matrix", "true")]
    told = {(a.labels[0], a.labels[2]): a.labels[3] for a in bench.of(c.TOPOLOGY_GPU_NIC_DISTANCE)}
    assert told == {("0", "mlx5_0"): "PIX", ("0", "mlx5_1"): "SYS", ("1", "mlx5_0"): "SYS"}
    pairs = {(a.labels[0], a.labels[2]): a.labels[3] for a in bench.of(c.TOPOLOGY_GPU_GPU_DISTANCE)}
    assert pairs["0", "1"] == "NV4"
    assert pairs["6", "7"] == "NODE"  # the matrix does not have it; the machine's own tree does


def test_a_lost_link_is_not_hidden_by_an_old_matrix(tree: PciTree) -> None:
    """The driver knows better than a file what is up now."""
    gpus = node_of_eight(tree)[:2]
    tree.write("topo.txt", "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X ")
    bench = Bench(tree.root, *gpus, choice=Choice(file=tree.root / "topo.txt"))
    bench.gpus = [one._replace(peers={}) for one in bench.gpus]
    assert [one.labels[3] for one in bench.of(c.TOPOLOGY_GPU_GPU_DISTANCE)] == ["NODE"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [(None, "unavailable"), ("nonsense", "malformed"), ("<system>", "malformed")],
)
def test_a_file_that_is_no_good_is_a_fault(tree: PciTree, text: str | None, reason: str) -> None:
    """What the machine itself tells is told all the same."""
    gpus = node_of_eight(tree)
    if text is not None:
        tree.write("topo.xml", text)
    bench = Bench(tree.root, *gpus, choice=Choice(file=tree.root / "topo.xml"))
    items = list(bench.source.read())
    (fault,) = (one for one in items if isinstance(one, Fault))
    assert fault.reason == reason
    assert "topo.xml" in fault.part
    assert len(bench.best()) == 8


@pytest.mark.parametrize("seed", range(12))
def test_whatever_stands_in_the_files_nothing_is_raised(tree: PciTree, seed: int) -> None:
    """Garbage, nothing, a folder or a loop in the place of any file: the rest is told."""
    gpus = node_of_eight(tree)
    tree.routes_over("ens1")
    dice = random.Random(seed)
    files = [path for path in sorted(tree.root.rglob("*")) if path.is_file() or path.is_symlink()]
    for path in dice.sample(files, len(files) // 4):
        path.unlink()
        match dice.randrange(5):
            case 0:
                path.write_bytes(dice.randbytes(dice.randrange(5000)))
            case 1:
                path.write_bytes(b"")
            case 2:
                path.mkdir()
            case 3:
                path.symlink_to(path.name)
            case 4:
                path.write_bytes(b"9" * 10_000)
    (tree.root / "sys/class/net").mkdir(exist_ok=True)
    (tree.root / os.fsdecode(b"sys/class/infiniband/\xff\xfe")).mkdir()
    bench = Bench(tree.root, *gpus)
    for one in bench.read():
        assert one.metric.group == c.TOPOLOGY
        assert all(label.isprintable() for label in one.labels)
