"""Public bug reports of other tools that read the same files: each is a test here, named after what
its users saw. Those about `ethtool` and topology are tested with their sources.
"""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from exporter import catalogue as c
from exporter.board import Board
from exporter.config import ConfigError
from exporter.config import parse as configure
from exporter.exposition import Exposition
from exporter.runner import Runner, Schedule
from exporter.sources.network import NetworkSource
from tests.fakes import FakeClock
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
KEY = (frozenset({c.NIC}), False, False)


def down(port: str, *, layer: str = "InfiniBand") -> dict[str, str]:
    """Return the texts of a port without another end."""
    return {
        f"{port}/state": "1: DOWN",
        f"{port}/phys_state": "2: Polling",
        f"{port}/rate": "10 Gb/sec (4X)",
        f"{port}/link_layer": layer,
    }


def ports(states: dict[str, bool], board: str = "MT_0000000838") -> dict[str, str]:
    """Return the texts of devices of one board, by name, up or down."""
    texts: dict[str, str] = {}
    for device, up in states.items():
        texts |= active(port_of(device)) if up else down(port_of(device))
        texts[f"{CLASS}/{device}/board_id"] = board
    return texts


# ---------------------------------------------------------------- one bad file, all gone


def test_a_counter_without_a_pma_made_the_collector_fail() -> None:
    """`N/A (no PMA)` of i40iw cost all ports (node_exporter 966)."""
    found = read(TREES / "nodeexporter")
    assert found["nic_up", "i40iw0", "1"] == 1
    assert found["nic_transmit_drops_total", "mlx4_0", "1"] == 5


def test_one_port_that_answers_einval_removed_all_others() -> None:
    """A port in switching mode refused each counter, and no port was told any more
    (node_exporter 3265, procfs 704)."""
    whole = read(H100)
    failing = Failing({"mlx5_0/ports/1/counters/": errno.EINVAL})
    source = NetworkSource(H100, files=lambda _: failing)
    found = values(source.read())
    source.close()
    lost = whole.keys() - found.keys()
    assert {key[1] for key in lost} == {"mlx5_0"}
    assert {k for k in found if k[1] != "mlx5_0"} == {k for k in whole if k[1] != "mlx5_0"}


def test_an_error_line_each_scrape_on_hosts_without_the_class_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No InfiniBand is no error: nothing is logged, read after read (node_exporter 1511)."""
    tree(tmp_path, {"sys/class/net/eth0/operstate": "up"})
    clock, board = FakeClock(), Board()
    slot = board.enroll("network", c.NIC, 2.0, 12.0, clock.monotonic())
    runner = Runner(NetworkSource(tmp_path), Schedule(5.0, 2.0), slot, clock)
    for _ in range(30):
        runner.step()
    assert caplog.messages == []
    assert board.view(clock.monotonic()).sources[0].state == "up"


def test_omni_path_counters_were_ignored(tmp_path: Path) -> None:
    """Mixed-case names with a width behind them count as well (node_exporter 2023); two that
    are one name without it are two raw counters."""
    found = read(TREES / "hfi1-hwcounters-excerpt", raw=True)
    assert found["nic_retransmits_total", "hfi1_0", "1", "any"] == 2079
    assert ("nic_raw_total", "hfi1_0", "1", "RxTIDFullEr,32", "hw_counters") in found
    hw = f"{port_of('hfi1_0')}/hw_counters"
    device = f"{CLASS}/hfi1_0/hw_counters"
    tree(tmp_path, {f"{hw}/CceMiscInt": "1", f"{hw}/CceMiscInt,32": "2"})
    tree(tmp_path, {f"{device}/Pio Reserved 30": "3"})
    found = read(tmp_path, raw=True)
    raw = {key[2:]: value for key, value in found.items() if key[0] == "nic_raw_total"}
    assert raw == {
        ("1", "CceMiscInt", "hw_counters"): 1,
        ("1", "CceMiscInt,32", "hw_counters"): 2,
        ("", "Pio Reserved 30", "hw_counters"): 3,
    }


def test_all_series_gone_when_the_irdma_module_is_loaded(tmp_path: Path) -> None:
    """A device of another driver, with other files, must not affect mlx5 (node_exporter 2769)."""
    whole = read(H100)
    shutil.copytree(H100, tmp_path, dirs_exist_ok=True)
    hw = f"{port_of('irdma0')}/hw_counters"
    names = {
        "ip4InOctets": 1000, "ip6InOctets": 24, "ip4OutOctets": 2000, "ip6OutOctets": 48,
        "ip4InPkts": 10, "ip6InPkts": 1, "ip4OutPkts": 20, "ip6OutPkts": 2, "ip4InDiscards": 3,
        "ip6InDiscards": 4, "RetransSegs": 5, "InProtoErrors": 6, "cnpSent": 7, "cnpHandled": 8,
        "cnpIgnored": 9, "RxECNMrkd": 11, "lifespan": 10,
    }  # fmt: skip
    tree(tmp_path, {f"{hw}/{name}": str(value) for name, value in names.items()})
    tree(tmp_path, active(port_of("irdma0"), layer="Ethernet", rate="100 Gb/sec (4X EDR)"))
    failing = Failing({"irdma0/ports/1/counters/": errno.EINVAL})
    source = NetworkSource(tmp_path, files=lambda _: failing)
    found = values(source.read())
    source.close()
    assert {k: v for k, v in found.items() if k[1] != "irdma0"} == whole
    p = ("irdma0", "1")
    assert told(found, "irdma0") == {
        ("nic_info", *p, "Ethernet", "", "", "", "", "false"): 1,
        ("nic_up", *p): 1,
        ("nic_link_rate_bytes_per_second", *p): 12.5e9,
        ("nic_receive_bytes_total", *p): 1024,
        ("nic_transmit_bytes_total", *p): 2048,
        ("nic_receive_packets_total", *p): 11,
        ("nic_transmit_packets_total", *p): 22,
        ("nic_receive_drops_total", *p): 7,
        ("nic_retransmits_total", *p, "any"): 5,
        ("nic_errors_total", *p, "protocol"): 6,
        ("nic_congestion_notices_total", *p, "sent"): 7,
        ("nic_congestion_notices_total", *p, "handled"): 8,
        ("nic_congestion_notices_total", *p, "ignored"): 9,
        ("nic_ecn_marked_packets_total", *p): 11,
    }


def test_a_sum_of_which_a_part_is_unknown_is_unknown(tmp_path: Path) -> None:
    """IPv4 bytes alone would be a step back of the sum."""
    hw = f"{port_of('irdma0')}/hw_counters"
    tree(tmp_path, {f"{hw}/ip4InOctets": "1000", f"{hw}/ip6InOctets": "24"})
    failing = Failing({"ip6InOctets$": errno.EIO})
    source = NetworkSource(tmp_path, files=lambda _: failing)
    found, faults = sort(source.read())
    source.close()
    assert [fault.part for fault in faults] == ["irdma0/1/ip6InOctets"]
    assert ("nic_receive_bytes_total", "irdma0", "1") not in found


def test_hns_counters(tmp_path: Path) -> None:
    """The names of HiSilicon's driver mean what those of the others do."""
    hw = f"{port_of('hns_0')}/hw_counters"
    names = ("rx_pkt", "tx_pkt", "rx_err_pkt", "tx_err_pkt", "rx_cnp_pkt", "tx_cnp_pkt")
    tree(tmp_path, {f"{hw}/{name}": str(n) for n, name in enumerate(names, 1)})
    p = ("hns_0", "1")
    found = told(read(tmp_path))
    del found["nic_info", *p, "", "", "", "", "", "false"]
    assert found == {
        ("nic_receive_packets_total", *p): 1,
        ("nic_transmit_packets_total", *p): 2,
        ("nic_errors_total", *p, "receive"): 3,
        ("nic_errors_total", *p, "transmit"): 4,
        ("nic_congestion_notices_total", *p, "handled"): 5,
        ("nic_congestion_notices_total", *p, "sent"): 6,
    }


@pytest.mark.parametrize(
    ("theirs", "told_so"),
    [("eth0 ens1f0 ens1f1 bond0", True), ("eth0", False), ("eth0 cni0", False), ("", False)],
)
def test_statistics_not_found_inside_a_container(
    tmp_path: Path, theirs: str, *, told_so: bool
) -> None:
    """The class folder of another network namespace was read, and nobody said so (node_exporter
    2846, 2427): here it is compared with the interfaces of process 1."""
    tree(tmp_path, {"sys/class/net/eth0/operstate": "up", "sys/class/net/lo/operstate": "unknown"})
    if theirs:
        head = "Inter-|   Receive  |  Transmit\n face |bytes packets |bytes packets\n"
        lines = "\n".join(f"{name:>6}: 1 2 3 4" for name in ["lo", *theirs.split()])
        tree(tmp_path, {"proc/1/net/dev": head + lines})
    found, faults = sort(NetworkSource(tmp_path).read())
    assert found["nic_up", "eth0", ""] == 1
    assert [(f.part, "namespace" in f.detail) for f in faults] == (
        [("sys/class/net", True)] if told_so else []
    )


def test_the_sys_of_another_namespace_is_told_by_the_kernel_itself(tmp_path: Path) -> None:
    """A real network namespace, its own `/sys`, and the host's `/proc`: nothing but loopback is
    there, and the reason is told. Where that is not permitted, trees stand for it.
    """
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        pytest.skip("needs unshare and mount (Debian packages util-linux, mount)")
    for name in ("sys", "proc"):
        (tmp_path / name).mkdir()
    program = (
        "import sys; from pathlib import Path; from exporter.sources.network import NetworkSource\n"
        "try: list(NetworkSource(Path(sys.argv[1])).read())\n"
        "except FileNotFoundError as error: print(error)"
    )
    script = (
        'mount -t sysfs none "$1/sys" && mount --bind /proc "$1/proc" || exit 77;'
        ' exec "$2" -c "$3" "$1"'
    )
    command = ["unshare", "--net", "--mount", "--", "sh", "-c", script, "sh"]
    done = subprocess.run(
        [*command, str(tmp_path), sys.executable, program],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode == 77 or "Operation not permitted" in done.stderr:
        pytest.skip("the right to make network namespaces is not given here; a tree stands for it")
    assert done.returncode == 0, done.stderr
    assert "the interfaces of another network namespace than that of process 1" in done.stdout


def test_hw_counters_were_missing_for_years() -> None:
    """Every numeric file is a counter where that is wanted, of any driver (node_exporter 2827)."""
    found = read(TREES / "derived-roce-congested/t1", raw=True)
    raw = {key[3] for key in found if key[0] == "nic_raw_total" and key[4] == "hw_counters"}
    folder = TREES / "derived-roce-congested/t1" / port_of("mlx5_0") / "hw_counters"
    assert raw == {path.name for path in folder.iterdir()} - {"lifespan"}
    assert {"out_of_sequence", "rx_write_requests", "resp_cqe_flush_error"} <= raw


def test_the_same_metric_with_two_help_texts(tmp_path: Path) -> None:
    """Ports of different drivers made a page that no scraper took (node_exporter 2893)."""
    shutil.copytree(TREES / "nodeexporter", tmp_path, symlinks=True, dirs_exist_ok=True)
    for name in ("derived-efa", "hfi1-hwcounters-excerpt", "h100-8xndr-bond"):
        shutil.copytree(TREES / name, tmp_path, symlinks=True, dirs_exist_ok=True)
    clock, board = FakeClock(), Board()
    slot = board.enroll("network", c.NIC, 2.0, 12.0, clock.monotonic())
    Runner(NetworkSource(tmp_path, raw=True), Schedule(5.0, 2.0), slot, clock).step()
    exposition = Exposition(lambda: board.view(clock.monotonic()), lambda: (), clock)
    page = exposition.page((frozenset({c.NIC, c.NIC_RAW}), False, False)).decode()
    heads = [line.split(" ", 3)[:3] for line in page.splitlines() if line.startswith("#")]
    assert len({tuple(head) for head in heads}) == len(heads)
    assert {s.labels["device"] for f in parse(page) for s in f.samples} >= {
        "i40iw0", "mlx4_0", "rdmap79s0", "hfi1_0", "mlx5_bond_0", "bond0",
    }  # fmt: skip


def test_two_scrapes_at_once_crashed_the_collector(tmp_path: Path) -> None:
    """A scrape reads no file (node_exporter 2288): eight at once, while ports are read, get whole
    pages, and the files are asked no more often than the beat says."""
    shutil.copytree(H100, tmp_path, dirs_exist_ok=True)
    failing = Failing({})
    clock, board = FakeClock(), Board()
    slot = board.enroll("network", c.NIC, 2.0, 1e6, clock.monotonic())
    source = NetworkSource(tmp_path, files=lambda _: failing)
    runner = Runner(source, Schedule(5.0, 2.0), slot, clock)
    runner.step()
    asked = len(failing.asked)
    exposition = Exposition(lambda: board.view(clock.monotonic()), lambda: (), clock)
    pages: list[bytes] = []

    def scrape() -> None:
        pages.extend(exposition.page(KEY) for _ in range(50))

    threads = [threading.Thread(target=scrape) for _ in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        runner.step()
    for thread in threads:
        thread.join()
    source.close()
    assert len(failing.asked) == 21 * asked
    assert len(pages) == 400
    assert {page.count(b"nic_up{") for page in pages} == {9}


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY])
def test_what_a_driver_does_not_support_was_taken_for_a_failure(code: int) -> None:
    """ENA and others answer "not supported" (node_exporter 1908, 3200): the source is well."""
    failing = Failing({"/speed$": code, "/carrier_changes$": code, "/statistics/": code})
    source = NetworkSource(TREES / "virtio-net", files=lambda _: failing)
    found = values(source.read())  # no fault
    source.close()
    assert found["nic_up", "eth0", ""] == 1


# ---------------------------------------------------------------- which ports ought to be up


def test_expected_port_counts_by_product_were_wrong(tmp_path: Path) -> None:
    """Ports that were never cabled stood as down, for the product has more of them (gpud pull
    requests 200, 295, 482): here eight are up, four of another card poll, and none of these is
    expected; a ninth of the first kind that polls is."""
    tree(tmp_path, ports({f"mlx5_{n}": True for n in range(8)}))
    tree(tmp_path, ports({f"mlx5_{n}": False for n in range(8, 12)}, board="MT_0000000891"))
    tree(tmp_path, ports({"mlx5_12": False}))
    found = read(tmp_path)
    assert {expected(found, f"mlx5_{n}") for n in range(8)} == {(1, "seen_up")}
    assert {expected(found, f"mlx5_{n}") for n in range(8, 12)} == {(0, "no_evidence")}
    assert expected(found, "mlx5_12") == (1, "peers")


def test_two_cables_in_eight_ports_are_no_rule(tmp_path: Path) -> None:
    """Most ports of a kind must be up for the others to be expected."""
    tree(tmp_path, ports({f"mlx5_{n}": n < 2 for n in range(8)}))
    found = read(tmp_path)
    assert {expected(found, f"mlx5_{n}") for n in range(2, 8)} == {(0, "no_evidence")}


def test_second_ports_that_are_never_cabled(tmp_path: Path) -> None:
    """Of cards with two functions the second ones are a kind of their own."""
    for n in range(8):
        card = f"0000:{0x10 + n:02x}:00"
        tree(tmp_path, ports({f"mlx5_{2 * n}": True, f"mlx5_{2 * n + 1}": False}))
        for function in (0, 1):
            address = f"{card}.{function}"
            tree(tmp_path, {
                f"{CLASS}/mlx5_{2 * n + function}/device": f"->../../../devices/{address}",
                f"sys/devices/{address}/numa_node": "0",
            })  # fmt: skip
    found = read(tmp_path)
    assert {expected(found, f"mlx5_{2 * n}") for n in range(8)} == {(1, "seen_up")}
    assert {expected(found, f"mlx5_{2 * n + 1}") for n in range(8)} == {(0, "no_evidence")}


def test_a_port_that_was_up_and_is_down_is_a_fault(tmp_path: Path) -> None:
    """What has been up is expected to be, over a reload of the daemon too; changes are counted."""
    tree(tmp_path, ports({"mlx5_0": True}))
    memories: dict[str, object] = {}
    source = NetworkSource(tmp_path, memories=memories, boot="b")
    state = tmp_path / port_of("mlx5_0") / "state"
    seen: list[object] = []
    for text in ("4: ACTIVE", "1: DOWN", "1: DOWN", "4: ACTIVE", "2: INIT"):
        state.write_text(f"{text}\n")
        found = values(source.read())
        seen.append(found["nic_state_changes_total", "mlx5_0", "1"])
        assert expected(found, "mlx5_0") == (1, "seen_up")
    source.close()
    assert seen == [0, 1, 1, 2, 3]
    successor = NetworkSource(tmp_path, memories=memories, boot="b")
    found = values(successor.read())
    successor.close()
    assert found["nic_up", "mlx5_0", "1"] == 0
    assert expected(found, "mlx5_0") == (1, "seen_up")
    assert found["nic_state_changes_total", "mlx5_0", "1"] == 3


def test_a_ninth_port_for_management_was_judged_as_a_bad_fabric_port(tmp_path: Path) -> None:
    """It is told by its role, and what it does says nothing of the fabric's ports (NVIDIA
    infra-controller 3624)."""
    tree(tmp_path, ports({f"mlx5_{n}": True for n in range(8)}))
    tree(tmp_path, ports({"mlx5_8": True}, board="MT_0000000884"))
    route = (
        "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
        "bond0 00000000 0100A8C0 0003 0 0 100 00000000 0 0 0\n"
        "ens9 0000A8C0 00000000 0001 0 0 100 00FFFFFF 0 0 0"
    )
    tree(tmp_path, {
        f"{port_of('mlx5_8')}/gid_attrs/ndevs/0": "ens9f0",
        "sys/class/net/ens9f0/master": "->../bond0",
        "sys/class/net/ens9f0/operstate": "up",
        "sys/class/net/bond0/operstate": "up",
        "proc/1/net/route": route,
    })  # fmt: skip
    roles = {k[1]: k[7] for k in read(tmp_path) if k[0] == "nic_device_info"}
    assert roles == {
        **{f"mlx5_{n}": "fabric" for n in range(8)},
        "mlx5_8": "management", "ens9f0": "management", "bond0": "management",
    }  # fmt: skip


def test_the_default_route_over_one_of_many_efa_cards_makes_none_of_them_management(
    tmp_path: Path,
) -> None:
    """Where cards of one kind carry the fabric, that one of them leads out as well says nothing."""
    ipv6 = f"{'0' * 32} 00 {'0' * 32} 00 fe80{'0' * 28} 00000400 1 0 00000003 enp0"
    refused = f"{'0' * 32} 00 {'0' * 32} 00 {'0' * 32} ffffffff 1 0 00200200 enp1"
    for n in range(4):
        device = f"rdmap{n}s0"
        tree(tmp_path, active(port_of(device), layer="Unspecified"))
        tree(tmp_path, {f"{CLASS}/{device}/device/net/enp{n}/operstate": "up"})
    tree(tmp_path, {"proc/1/net/ipv6_route": f"{refused}\n{ipv6}"})
    roles = {k[1]: k[7] for k in read(tmp_path) if k[0] == "nic_device_info"}
    assert roles == {f"rdmap{n}s0": "fabric" for n in range(4)}


def test_ports_that_are_down_by_design_raised_alarms(tmp_path: Path) -> None:
    """Switched off by the operator, or said to be unused (NVSentinel 1529, pull requests 1528 and
    1462): down, and nobody expects otherwise."""
    tree(tmp_path, ports({f"mlx5_{n}": n < 6 for n in range(9)}))
    (tmp_path / port_of("mlx5_6") / "phys_state").write_text("3: Disabled\n")
    tree(tmp_path, {
        "sys/class/net/ens7/operstate": "down",
        "sys/class/net/ens7/flags": "0x1002",
        "sys/class/net/ens7/device/vendor": "0x15b3",
    })  # fmt: skip
    found = read(tmp_path, expected=["!mlx5_7"])
    assert expected(found, "mlx5_6") == (0, "disabled")
    assert expected(found, "mlx5_7") == (0, "stated")
    assert expected(found, "mlx5_8") == (1, "peers")
    assert expected(found, "ens7", "") == (0, "disabled")


def test_what_was_told_of_a_removed_device_stayed_for_ever(tmp_path: Path) -> None:
    """A device taken out for good is forgotten as soon as it is left out (NVSentinel pull request
    1462): nothing has to be restarted but the daemon's settings."""
    tree(tmp_path, ports({"mlx5_0": True, "mlx5_1": True}))
    memories: dict[str, object] = {}
    source = NetworkSource(tmp_path, relist=1, memories=memories)
    list(source.read())
    shutil.rmtree(tmp_path / CLASS / "mlx5_1")
    assert values(source.read())["nic_device_missing", "mlx5_1"] == 1
    source.close()
    for options in ({"exclude_devices": "mlx5_1$"}, {}):
        successor = NetworkSource(tmp_path, memories=memories, **options)  # type: ignore[arg-type]
        assert not any(key[1] == "mlx5_1" for key in values(successor.read()))
        successor.close()


@pytest.mark.parametrize(
    "setting", ["exclude_devices: '('", "expected_ports: [a/b/c]", "expected_ports: mlx5_0"]
)
def test_a_bad_setting_was_silently_replaced(setting: str) -> None:
    """It is an error that names the key (NVSentinel 1529)."""
    key = setting.partition(":")[0]
    with pytest.raises(ConfigError, match=rf"sources\.network\.{key}"):
        configure(f"sources: {{network: {{{setting}}}}}", "f")


# ---------------------------------------------------------------- EFA


def efa(tmp_path: Path, operstate: str | None) -> Values:
    """Return what is told of an EFA device whose interface has this state."""
    shutil.copytree(TREES / "derived-efa", tmp_path, dirs_exist_ok=True)
    net = tmp_path / CLASS / "rdmap79s0/device/net"
    if operstate is None:
        shutil.rmtree(net)
    else:
        (net / "enp80s0/operstate").write_text(f"{operstate}\n")
    return read(tmp_path)


@pytest.mark.parametrize(
    ("operstate", "up"), [("up", 1), ("down", 0), ("unknown", None), (None, None)]
)
def test_an_efa_device_is_as_its_interface_is(
    tmp_path: Path, operstate: str | None, up: int | None
) -> None:
    """Its driver says ACTIVE, LinkUp and 100 Gb/s whatever happens: none of that is told."""
    found = efa(tmp_path, operstate)
    assert found.get(("nic_up", "rdmap79s0", "1")) == up
    assert {key[0] for key in found}.isdisjoint(
        {"nic_port_state", "nic_port_physical_state", "nic_link_rate_bytes_per_second"}
    )


def test_efa_resource_errors_are_one_series(tmp_path: Path) -> None:
    """Objects that could not be made, of any kind, add up; commands are counted apart."""
    shutil.copytree(TREES / "derived-efa", tmp_path, dirs_exist_ok=True)
    for name, text in {"create_qp_err": "3", "reg_mr_err": "4", "cmds_err": "9"}.items():
        (tmp_path / CLASS / "rdmap79s0/hw_counters" / name).write_text(text)
    found = read(tmp_path)
    assert found["nic_errors_total", "rdmap79s0", "1", "resource"] == 7
    assert found["nic_errors_total", "rdmap79s0", "1", "command"] == 9
    assert found["nic_keep_alives_total", "rdmap79s0", "1"] == 88410


# ---------------------------------------------------------------- raw counters


def test_what_goes_up_and_down_is_no_counter(tmp_path: Path) -> None:
    """Open queue pairs of bnxt_re are a level; `recoverable_errors`, which is fed from a broadcast
    counter, is a raw counter and nothing else; `lifespan` is a setting."""
    hw = f"{port_of('bnxt_re0')}/hw_counters"
    tree(tmp_path, {f"{hw}/active_qps": "5", f"{hw}/recoverable_errors": "6"})
    tree(tmp_path, {f"{hw}/lifespan": "10", f"{hw}/unrecoverable_err": "7"})
    found = read(tmp_path, raw=True)
    p, folder = ("bnxt_re0", "1"), "hw_counters"
    assert {k: v for k, v in told(found).items() if k[0] != "nic_info"} == {
        ("nic_raw_level", *p, "active_qps", folder): 5,
        ("nic_raw_total", *p, "recoverable_errors", folder): 6,
        ("nic_raw_total", *p, "unrecoverable_err", folder): 7,
        ("nic_errors_total", *p, "unrecoverable"): 7,
    }


def test_raw_counters_are_off_unless_they_are_wanted() -> None:
    """Some 50 series for each port are nobody's default (node_exporter 2096)."""
    assert not any(key[0].startswith("nic_raw") for key in read(H100))
    assert len(read(H100, raw=True)) - len(read(H100)) == 9 * (21 + 25)


def test_a_wide_counter_without_its_narrow_twin(tmp_path: Path) -> None:
    """An old card that has the 64-bit file only."""
    tree(tmp_path, {f"{port_of('mlx4_0')}/counters_ext/port_rcv_data_64": "25"})
    assert read(tmp_path)["nic_receive_bytes_total", "mlx4_0", "1"] == 100
