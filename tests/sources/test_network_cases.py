"""What must not break a scrape: one test for each row of the list of known cases.

Each is named after its row. Files that fail are made by the tests: no tree can hold them.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.clock import SystemClock
from exporter.files import Files
from exporter.samples import Fault, Sample
from exporter.sources.network import NetworkSource
from exporter.workers import Crew
from tests.sources.network_lab import (
    CLASS,
    TREES,
    Failing,
    Values,
    active,
    expected,
    port_of,
    read,
    sort,
    told,
    tree,
    values,
)

H100 = TREES / "h100-8xndr-bond"
DOWN = TREES / "derived-port-down"


def about(found: Values, device: str) -> dict[str, str]:
    """Return the labels of a device's `nic_device_info`."""
    names = ("pci_bus_id", "numa_node", "master", "physical", "role", "restricted", "model")
    (labels,) = [k[3:] for k in found if k[0] == "nic_device_info" and k[1] == device]
    return dict(zip(names, labels, strict=True))


def test_no_class_folder(tmp_path: Path) -> None:
    """Without `/sys/class/infiniband` the interfaces are told, and nothing is wrong."""
    tree(tmp_path, {"sys/class/net/eth0/operstate": "up"})
    assert read(tmp_path)["nic_up", "eth0", ""] == 1


@pytest.mark.parametrize(
    ("code", "reasons"),
    [
        (errno.EINVAL, []),
        (errno.EOPNOTSUPP, []),
        (errno.EIO, ["io"]),
        (errno.ENODEV, ["io"]),
        (errno.ENOENT, []),
    ],
)
@pytest.mark.parametrize("folder", ["counters", "hw_counters"])
def test_a_file_that_fails_or_vanishes_is_skipped(
    code: int, reasons: list[str], folder: str
) -> None:
    """All other files of the port, and all other ports, are as before."""
    file = {"counters": "symbol_error", "hw_counters": "packet_seq_err"}[folder]
    series = {
        "counters": ("nic_errors_total", "symbol"),
        "hw_counters": ("nic_retransmits_total", "sequence"),
    }
    whole = read(H100)
    assert about(whole, "mlx5_4")["model"] == "MT4129"
    failing = Failing({f"mlx5_4/ports/1/{folder}/{file}$": code})
    source = NetworkSource(H100, files=lambda _: failing)
    found, faults = sort(source.read())
    source.close()
    assert [fault.reason for fault in faults] == reasons
    family, cause = series[folder]
    assert whole.keys() - found.keys() == {(family, "mlx5_4", "1", cause)}


def test_restricted_functions_are_asked_once() -> None:
    """On B200 and B300 boards each refused read is a line in the kernel log (node_exporter 3434,
    gpud 1164): after one EINVAL nothing more is asked for an hour, and the info metric says so."""
    failing = Failing({"mlx5_4/ports/1/counters/": errno.EINVAL})
    failing.answers["mlx5_4/ports/1/hw_counters/"] = errno.EINVAL
    source = NetworkSource(H100, files=lambda _: failing, backoff=40, relist=7)
    for _ in range(40):
        found = values(source.read())  # no fault
        assert about(found, "mlx5_4")["restricted"] == "true"
        assert about(found, "mlx5_5")["restricted"] == "false"
        assert {key[0] for key in told(found, "mlx5_4")} == {
            "nic_info",
            "nic_up",
            "nic_link_rate_bytes_per_second",
        }
    assert len([path for path in failing.asked if "mlx5_4" in path and "counters" in path]) == 1
    failing.answers = {}
    found = values(source.read())
    source.close()
    assert about(found, "mlx5_4")["restricted"] == "false"
    assert found["nic_errors_total", "mlx5_4", "1", "receive"] == 14


def test_one_set_refused_leaves_what_answers() -> None:
    """A function that may read its queue pairs' counters, but not the port's, is restricted and
    keeps the former."""
    failing = Failing({"mlx5_4/ports/1/counters/": errno.EINVAL})
    source = NetworkSource(H100, files=lambda _: failing)
    for _ in range(3):
        found = values(source.read())
        assert about(found, "mlx5_4")["restricted"] == "true"
        assert found["nic_retransmits_total", "mlx5_4", "1", "adaptive"] == 3
        assert ("nic_receive_bytes_total", "mlx5_4", "1") not in found
    source.close()
    assert len([path for path in failing.asked if "mlx5_4/ports/1/counters" in path]) == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [(b"N/A (no PMA)\n", None), (b"", None), (b"\n", None), (b"14 \n", 14), (b"14 packets", None)],
)
def test_a_text_that_is_no_number(text: bytes, value: int | None) -> None:
    """No sample and no fault; white space around a number does not matter."""
    failing = Failing({"/counters/port_rcv_errors": text})
    source = NetworkSource(DOWN, files=lambda _: failing)
    found = values(source.read())
    source.close()
    assert found.get(("nic_errors_total", "mlx5_0", "1", "receive")) == value


def test_a_denied_file_is_told_with_its_path() -> None:
    """EACCES: the operator learns which file, below which mount, may not be read."""
    failing = Failing({"/counters/port_rcv_errors$": errno.EACCES})
    source = NetworkSource(DOWN, files=lambda _: failing)
    found, faults = sort(source.read())
    source.close()
    assert [(f.part, f.reason) for f in faults] == [("mlx5_0/1/port_rcv_errors", "denied")]
    assert (
        f"{DOWN}/sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_errors" in faults[0].detail
    )
    assert found["nic_errors_total", "mlx5_0", "1", "link_downed"] == 3


def test_a_port_that_is_down_keeps_state_and_counters() -> None:
    """Its rate, a fallback of the driver, is not told."""
    found = read(DOWN)
    assert found["nic_up", "mlx5_0", "1"] == 0
    assert found["nic_port_state", "mlx5_0", "1"] == 1
    assert found["nic_port_physical_state", "mlx5_0", "1"] == 2
    assert found["nic_errors_total", "mlx5_0", "1", "link_downed"] == 3
    assert ("nic_link_rate_bytes_per_second", "mlx5_0", "1") not in found


def test_a_port_that_was_never_up_and_has_no_peers_is_not_cabled() -> None:
    """Not a fault, unless the operator says that it ought to be up."""
    assert expected(read(DOWN), "mlx5_0") == (0, "no_evidence")
    assert expected(read(DOWN, expected=["mlx5_*"]), "mlx5_0") == (1, "stated")
    assert expected(read(DOWN, expected=["mlx5_0/1"]), "mlx5_0") == (1, "stated")
    assert expected(read(DOWN, expected=["mlx5_0/2"]), "mlx5_0") == (0, "no_evidence")


def test_a_virtual_function_without_counters(tmp_path: Path) -> None:
    """It is marked, it counts for nobody, and nobody expects it to be up."""
    shutil.copytree(TREES / "derived-vf-no-counters", tmp_path, dirs_exist_ok=True)
    device = f"{CLASS}/mlx5_2"
    tree(tmp_path, {f"{device}/device/physfn": "->../0000:1b:00.0"})
    (tmp_path / device / "ports/1/state").write_text("1: DOWN\n")
    found = read(tmp_path)
    assert [key[8] for key in found if key[0] == "nic_info"] == ["true"]
    assert about(found, "mlx5_2")["physical"] == "false"
    assert expected(found, "mlx5_2") == (0, "virtual")


def test_a_bond_counts_once(tmp_path: Path) -> None:
    """The sum over physical ports has each byte once: RDMA traffic of the bond's one RDMA device,
    other traffic of its two interfaces, and not the bond's own sum of these."""
    texts = {
        **active(f"{CLASS}/mlx5_bond_0/ports/1", layer="Ethernet"),
        f"{CLASS}/mlx5_bond_0/ports/1/gid_attrs/ndevs/0": "bond0",
        f"{CLASS}/mlx5_bond_0/ports/1/counters/port_rcv_data": "250",
        "sys/class/net/bond0/operstate": "up",
        "sys/class/net/bond0/bonding/mode": "802.3ad 4",
        "sys/class/net/bond0/statistics/rx_bytes": "70",
        "sys/class/net/bond0.7/operstate": "up",
        "sys/class/net/bond0.7/statistics/rx_bytes": "5",
    }
    for n in (0, 1):
        net = f"sys/class/net/ens1f{n}"
        texts |= {
            f"{net}/operstate": "up",
            f"{net}/master": "->../bond0",
            f"{net}/device": f"->../../../devices/0000:1b:00.{n}",
            f"sys/devices/0000:1b:00.{n}/numa_node": "1",
            f"{net}/statistics/rx_bytes": "35",
        }
    found = read(tree(tmp_path, texts))
    physical = {k[1:3] for k in found if k[0] == "nic_device_info" and k[6] == "true"}
    assert physical == {("mlx5_bond_0", "1"), ("ens1f0", ""), ("ens1f1", "")}
    assert sum(found["nic_receive_bytes_total", *port] for port in physical) == 1070  # type: ignore[misc]
    masters = {k[1]: k[5] for k in found if k[0] == "nic_device_info"}
    assert masters == {
        "mlx5_bond_0": "bond0", "bond0": "bond0", "bond0.7": "", "ens1f0": "bond0",
        "ens1f1": "bond0",
    }  # fmt: skip
    assert about(found, "ens1f1")["pci_bus_id"] == "0000:1b:00.1"
    assert about(found, "ens1f1")["numa_node"] == "1"


def test_ipoib_and_representors_count_for_nobody(tmp_path: Path) -> None:
    """What they carry, the RDMA port and the card's own interface have counted."""
    texts = {}
    kinds = {
        "ib0": {"type": "32"},
        "pf0vf1": {"phys_port_name": "pf0vf1"},
        "p0": {"phys_port_name": "p0"},
    }
    for name, more in kinds.items():
        net = f"sys/class/net/{name}"
        texts |= {f"{net}/operstate": "up", f"{net}/device/vendor": "0x15b3"}
        texts |= {f"{net}/{file}": text for file, text in more.items()}
    found = read(tree(tmp_path, texts))
    assert {n: about(found, n)["physical"] for n in ("ib0", "pf0vf1", "p0")} == {
        "ib0": "false", "pf0vf1": "false", "p0": "true",
    }  # fmt: skip


def test_a_bond_without_a_speed() -> None:
    """A speed of -1 is no rate, and nothing is wrong."""
    found = read(TREES / "nodeexporter")
    assert found["nic_up", "bond0", ""] == 1
    assert ("nic_link_rate_bytes_per_second", "bond0", "") not in found


def test_rdma_devices_of_another_namespace(tmp_path: Path) -> None:
    """An empty class folder beside InfiniBand cards with a driver: told, with the remedy."""
    tree(tmp_path, {"sys/class/net/eth0/operstate": "up", "sys/class/net/eth0/device/x": "1"})
    for n in range(8):
        pci = f"sys/bus/pci/devices/0000:{n:02x}:00.0"
        tree(tmp_path, {f"{pci}/class": "0x020700", f"{pci}/driver": "->../../drivers/mlx5_core"})
    found, faults = sort(NetworkSource(tmp_path).read())
    assert [(f.part, f.reason) for f in faults] == [("sys/class/infiniband", "unavailable")]
    assert "8 InfiniBand cards" in faults[0].detail
    assert "namespace" in faults[0].detail
    assert found["nic_up", "eth0", ""] == 1


@pytest.mark.parametrize(
    ("driver", "has_interfaces", "told_so"),
    [("mlx5_core", True, True), ("uio_pci_generic", False, False), ("vfio-pci", True, False)],
)
def test_interfaces_of_another_namespace(
    tmp_path: Path, driver: str, *, has_interfaces: bool, told_so: bool
) -> None:
    """A pod's own interface, and cards whose interfaces are elsewhere: told. Cards that a program
    drives by itself, or a guest, have none."""
    tree(tmp_path, {"sys/class/net/eth0/operstate": "up"})
    pci = "sys/bus/pci/devices/0000:01:00.0"
    tree(tmp_path, {f"{pci}/class": "0x020000", f"{pci}/driver": f"->../../drivers/{driver}"})
    tree(tmp_path, {"proc/1/net/dev": "Inter-|\n face |\n  eth0: 1 2 3 4"})  # of a container
    if has_interfaces:
        (tmp_path / pci / "net").mkdir()
    found, faults = sort(NetworkSource(tmp_path).read())
    assert found["nic_up", "eth0", ""] == 1
    assert [f.part for f in faults] == (["sys/class/net"] if told_so else [])


def test_cards_given_to_a_guest_are_not_missed(tmp_path: Path) -> None:
    """A card that a virtual machine has is of no concern here."""
    tree(tmp_path, {"sys/class/net/eth0/operstate": "up"})
    pci = "sys/bus/pci/devices/0000:01:00.0"
    tree(tmp_path, {f"{pci}/class": "0x020700", f"{pci}/driver": "->../../drivers/vfio-pci"})
    assert read(tmp_path)["nic_up", "eth0", ""] == 1


def test_a_device_that_was_removed(tmp_path: Path) -> None:
    """Its series end, it is told as missing, its inventory outlives a reload, and it comes back."""
    shutil.copytree(H100, tmp_path, dirs_exist_ok=True)
    memories: dict[str, object] = {}
    source = NetworkSource(tmp_path, relist=1, memories=memories, boot="b1")
    assert not any(key[0] == "nic_device_missing" for key in values(source.read()))
    (tmp_path / CLASS / "mlx5_7").rename(tmp_path / "taken-out")
    found, _ = sort(source.read())
    assert [key for key in found if key[1] == "mlx5_7"] == [("nic_device_missing", "mlx5_7")]
    source.close()
    successor = NetworkSource(tmp_path, relist=1, memories=memories, boot="b1")
    assert values(successor.read())["nic_device_missing", "mlx5_7"] == 1
    successor.close()
    # after another start of the machine a card may well have been taken out
    anew = NetworkSource(tmp_path, relist=1, memories=dict(memories), boot="b2")
    assert ("nic_device_missing", "mlx5_7") not in values(anew.read())
    anew.close()
    back = NetworkSource(tmp_path, relist=1, memories=memories, boot="b1")
    (tmp_path / "taken-out").rename(tmp_path / CLASS / "mlx5_7")
    found = values(back.read())
    back.close()
    assert ("nic_device_missing", "mlx5_7") not in found
    assert found["nic_up", "mlx5_7", "1"] == 1


@pytest.mark.parametrize(("folder", "blind"), [("infiniband/", True), ("net/", False)])
def test_a_class_folder_that_cannot_be_listed_makes_nothing_missing(
    tmp_path: Path, folder: str, *, blind: bool
) -> None:
    """What is not seen is not known to have gone."""
    tree(tmp_path, active(port_of("mlx5_0")))
    tree(tmp_path, {"sys/class/net/eth0/operstate": "up"})
    failing = Failing({})
    source = NetworkSource(tmp_path, files=lambda _: failing, relist=1, expected=["mlx5_1"])
    assert values(source.read())["nic_device_missing", "mlx5_1"] == 1
    failing.answers = {folder: errno.EIO}
    found, faults = sort(source.read())
    source.close()
    assert {fault.reason for fault in faults} == {"io"}
    missing = [key[1] for key in found if key[0] == "nic_device_missing"]
    assert missing == ([] if blind else ["mlx5_1"])


def test_a_device_that_was_never_there_is_missing_if_it_is_named(tmp_path: Path) -> None:
    """`expected_ports` that names a device outright is evidence by itself."""
    tree(tmp_path, active(port_of("mlx5_0")))
    found = read(tmp_path, expected=["mlx5_0", "mlx5_1/1", "mlx5_2*", "!mlx5_3"])
    assert [key[1] for key in found if key[0] == "nic_device_missing"] == ["mlx5_1"]


def test_nothing_there_but_what_ought_to_be(tmp_path: Path) -> None:
    """A node without any device says which is missing, and looks again at the next read."""
    source = NetworkSource(tmp_path, expected=["mlx5_0"])
    assert values(source.read()) == {("nic_device_missing", "mlx5_0"): 1}
    tree(tmp_path, active(port_of("mlx5_0")))
    found = values(source.read())
    source.close()
    assert found["nic_up", "mlx5_0", "1"] == 1
    assert ("nic_device_missing", "mlx5_0") not in found


def test_a_device_of_another_name_at_the_same_place_is_not_missing(tmp_path: Path) -> None:
    """udev gives devices their names some seconds after the kernel has."""
    pci = {"sys/devices/0000:1b:00.0/vendor": "0x15b3"}
    link = "->../../../devices/0000:1b:00.0"
    tree(tmp_path, {**active(port_of("mlx5_0")), **pci, f"{CLASS}/mlx5_0/device": link})
    source = NetworkSource(tmp_path, relist=1)
    list(source.read())
    (tmp_path / CLASS / "mlx5_0").rename(tmp_path / CLASS / "ibp27s0")
    assert not any(key[0] == "nic_device_missing" for key in values(source.read()))
    source.close()


@pytest.mark.parametrize(("left_the_bus", "missing"), [(False, []), (True, ["ens1"])])
def test_an_interface_given_to_a_pod_is_not_missing(
    tmp_path: Path, *, left_the_bus: bool, missing: list[str]
) -> None:
    """It is in another network namespace; if its card has left the bus as well, it is."""
    pci = tmp_path / "sys/bus/pci/devices/0000:1b:00.0"
    net = "sys/class/net/ens1"
    tree(tmp_path, {f"{net}/operstate": "up"})
    tree(tmp_path, {f"{net}/device": "->../../../bus/pci/devices/0000:1b:00.0"})
    tree(tmp_path, {"sys/class/net/eth0/operstate": "up", "sys/class/net/eth0/device/x": "1"})
    pci.mkdir(parents=True)
    source = NetworkSource(tmp_path, relist=1)
    list(source.read())
    shutil.rmtree(tmp_path / net)
    if left_the_bus:
        pci.rmdir()
    found = values(source.read())
    source.close()
    assert [key[1] for key in found if key[0] == "nic_device_missing"] == missing


class Hanging(Files):
    """Files of which those of one device do not come back until they are let go."""

    def __init__(self, limit: int, device: str, go: threading.Event) -> None:
        super().__init__(limit)
        self._device, self._go = device, go

    def read(self, path: str) -> bytes:
        """Return the content, late if it is that device's."""
        if f"/{self._device}/" in path:
            self._go.wait(30)
        return super().read(path)


def test_a_read_that_blocks_costs_its_own_device() -> None:
    """Firmware that is dead: the others are told in time, it is named, it is not asked twice, and
    it is back when it answers."""
    go = threading.Event()
    crew = Crew(SystemClock())
    files: Callable[[int], Files] = lambda most: Hanging(most, "mlx5_4", go)  # noqa: E731
    source = NetworkSource(H100, files=files, crew=crew, seconds=1.0)
    for _ in range(3):
        found, faults = sort(source.read())
        assert [(f.part, f.reason) for f in faults] == [("mlx5_4", "timeout")]
        assert not any(key[1] == "mlx5_4" for key in found)
        assert len({key[1] for key in found}) == 8
    assert list(crew.away()) == ["rdma mlx5_4"]
    go.set()
    while crew.away():
        pass
    found = values(source.read())
    source.close()
    assert found["nic_errors_total", "mlx5_4", "1", "receive"] == 14


STATISTICS = ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "rx_errors", "tx_errors")


class HangingLooks(Files):
    """Files whose looks at one path do not come back until they are let go."""

    def __init__(self, limit: int, end: str, go: threading.Event) -> None:
        super().__init__(limit)
        self._end, self._go = end, go

    def glance(self, path: str) -> bytes:
        """Return the content, late if it is that file's."""
        if path.endswith(self._end):
            self._go.wait(30)
        return super().glance(path)


def test_a_look_at_who_a_device_is_that_blocks_costs_no_counters(tmp_path: Path) -> None:
    """`phys_port_name` waits for the lock of all interfaces, which a dead card's driver may hold:
    what was found before is read on, and a new device is found when it is back."""
    shutil.copytree(DOWN, tmp_path, dirs_exist_ok=True)
    tree(tmp_path, {"sys/class/net/eth0/operstate": "up", "sys/class/net/eth0/phys_port_name": ""})
    go = threading.Event()
    go.set()
    crew = Crew(SystemClock())
    files: Callable[[int], Files] = lambda most: HangingLooks(most, "phys_port_name", go)  # noqa: E731
    source = NetworkSource(tmp_path, files=files, crew=crew, seconds=0.4, relist=1)
    before = values(source.read())
    go.clear()
    tree(tmp_path, {"sys/class/net/eth1/operstate": "up"})
    for _ in range(2):
        found, faults = sort(source.read())
        assert [(f.part, f.reason) for f in faults] == [("inventory", "timeout")]
        assert found.keys() == before.keys()
    assert list(crew.away()) == ["inventory"]
    go.set()
    while crew.away():
        pass
    list(source.read())
    assert values(source.read())["nic_up", "eth1", ""] == 1
    source.close()


def test_a_first_look_that_blocks_is_told_and_is_taken_up_when_it_is_back(tmp_path: Path) -> None:
    tree(tmp_path, {"sys/class/net/eth0/operstate": "up", "sys/class/net/eth0/phys_port_name": ""})
    go = threading.Event()
    crew = Crew(SystemClock())
    files: Callable[[int], Files] = lambda most: HangingLooks(most, "phys_port_name", go)  # noqa: E731
    source = NetworkSource(tmp_path, files=files, crew=crew, seconds=0.4)
    with pytest.raises(TimeoutError):
        list(source.read())
    go.set()
    while crew.away():
        pass
    assert values(source.read())["nic_up", "eth0", ""] == 1
    source.close()


def test_descriptors_are_bounded_however_many_devices_come(tmp_path: Path) -> None:
    """A daemon that may have 1,024 and keeps that many serves no page any more."""

    def kept() -> int:
        mine = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
        return sum(os.path.realpath(one).startswith(str(tmp_path)) for one in mine)

    source = NetworkSource(tmp_path, relist=1)
    for most in (16, 64, 256, 700):
        for n in range(most):
            tree(tmp_path, {
                f"sys/class/net/p{n:04}/{name}": "1"
                for name in ("operstate", "flags", *(f"statistics/{s}" for s in STATISTICS))
            })  # fmt: skip
        list(source.read())
        list(source.read())
        assert kept() <= 768
    source.close()
    assert kept() == 0


def test_a_class_folder_of_thousands_is_bounded(tmp_path: Path) -> None:
    """The first 512 are read, and it is told that there are more."""
    (tmp_path / "sys/class/net").mkdir(parents=True)
    for n in range(600):
        tree(tmp_path, {f"sys/class/net/p{n:04}/operstate": "up"})
    items = list(NetworkSource(tmp_path).read())
    faults = [item for item in items if isinstance(item, Fault)]
    assert [f.reason for f in faults] == ["denied"]
    assert "600 devices, only the first 512" in faults[0].detail
    ups = [i for i in items if isinstance(i, Sample) and i.metric.name == "nic_up"]
    assert len(ups) == 512


def test_virtual_functions_take_no_place_of_a_card(tmp_path: Path) -> None:
    """Neither among the devices that are read nor among the series that may be told."""
    (tmp_path / "card").mkdir()
    for kind, own in (("infiniband", "mlx5_9"), ("net", "ens9f0np0")):
        folder = tmp_path / "sys/class" / kind
        for name in (*(f"a{n:03}" for n in range(600)), own):
            part = "ports/1/state" if kind == "infiniband" else "operstate"
            tree(folder / name, {part: "4: ACTIVE" if kind == "infiniband" else "up"})
            if name != own:
                tree(folder / name, {"device/driver": ""})
                (folder / name / "device/physfn").symlink_to(tmp_path / "card")
    samples = [i for i in NetworkSource(tmp_path).read() if isinstance(i, Sample)]
    ups = [one.labels[0] for one in samples if one.metric.name == "nic_up"]
    assert len(ups) == 1024
    assert ups[:2] == ["mlx5_9", "ens9f0np0"]


def test_a_counter_folder_of_thousands_is_bounded(tmp_path: Path) -> None:
    """The first 1,024 files are read, and it is told that there are more."""
    port = port_of("odd_0")
    tree(tmp_path, {f"{port}/hw_counters/c{n:04}": "1" for n in range(1500)})
    items = list(NetworkSource(tmp_path, raw=True).read())
    raw = [i for i in items if isinstance(i, Sample) and i.metric.name == "nic_raw_total"]
    assert len(raw) == 1024
    assert [i.detail for i in items if isinstance(i, Fault)] == [
        "1500 entries, only the first 1024 are read"
    ]
