"""Network ports as sysfs shows them: published trees, derived trees, and files that fail."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from exporter.files import Files
from exporter.samples import Gate, Sample
from exporter.sources.network import NetworkSource
from tests.sources.network_lab import (
    CLASS,
    PORT,
    TREES,
    Failing,
    active,
    read,
    sort,
    told,
    tree,
    values,
)

COMPLETE = (
    "h100-8xndr-bond",
    "nodeexporter",
    "procfs",
    "hfi1-hwcounters-excerpt",
    "virtio-net",
    "derived-port-down",
    "derived-vf-no-counters",
    "derived-saturated",
    "derived-qcounter-wrap/t0",
    "derived-roce-congested/t1",
    "derived-efa",
)


# ---------------------------------------------------------------- published trees


def test_h100_node_has_eight_ndr_ports_and_a_roce_bond() -> None:
    """Eight ports of 400 Gb/s, which is 50e9 bytes/s, and a RoCE device of 200 Gb/s."""
    found = read(TREES / "h100-8xndr-bond")
    rates = {key[1]: v for key, v in found.items() if key[0] == "nic_link_rate_bytes_per_second"}
    ndr = {f"mlx5_{i}": 50e9 for i in (0, 1, 4, 5, 6, 7, 8, 9)}
    assert rates == {**ndr, "mlx5_bond_0": 25e9}
    layers = {key[1]: key[3] for key in found if key[0] == "nic_info"}
    assert layers == {**dict.fromkeys(ndr, "InfiniBand"), "mlx5_bond_0": "Ethernet"}
    assert all(v == 1 for key, v in found.items() if key[0] == "nic_up")


def test_h100_port_golden() -> None:
    """Every series of one port of the published H100 node, compared by eye with its files."""
    found = read(TREES / "h100-8xndr-bond")
    one = told(found, "mlx5_4")
    p = ("mlx5_4", "1")
    assert one == {
        ("nic_info", *p, "InfiniBand", "", "28.41.1000", "MT_0000000838", "", "false"): 1,
        ("nic_up", *p): 1,
        ("nic_link_rate_bytes_per_second", *p): 50e9,
        ("nic_receive_bytes_total", *p): 4 * 230539874932483,
        ("nic_transmit_bytes_total", *p): 4 * 230442669431839,
        ("nic_receive_packets_total", *p): 317548853677,
        ("nic_transmit_packets_total", *p): 315487941081,
        ("nic_transmit_drops_total", *p): 0,
        ("nic_transmit_wait_ticks_total", *p): 2489603687,
        ("nic_errors_total", *p, "symbol"): 0,
        ("nic_errors_total", *p, "link_recovery"): 0,
        ("nic_errors_total", *p, "link_downed"): 0,
        ("nic_errors_total", *p, "receive"): 14,
        ("nic_errors_total", *p, "remote_physical"): 0,
        ("nic_errors_total", *p, "link_integrity"): 0,
        ("nic_errors_total", *p, "buffer_overrun"): 15,
        ("nic_errors_total", *p, "vl15_dropped"): 0,
        ("nic_errors_total", *p, "receive_constraint"): 0,
        ("nic_errors_total", *p, "transmit_constraint"): 0,
        ("nic_saturated", *p, "excessive_buffer_overrun_errors"): 1,
        ("nic_retransmits_total", *p, "sequence"): 0,
        ("nic_retransmits_total", *p, "implied_nak"): 0,
        ("nic_retransmits_total", *p, "adaptive"): 3,
        ("nic_retransmits_total", *p, "adaptive_timeout"): 0,
        ("nic_timeouts_total", *p): 0,
        ("nic_errors_total", *p, "receiver_not_ready"): 0,
        ("nic_errors_total", *p, "out_of_buffer"): 0,
        ("nic_errors_total", *p, "icrc"): 0,
    }


def test_a_driver_without_counters_has_only_its_state() -> None:
    """`N/A (no PMA)` in every counter file is no sample and no fault."""
    found = read(TREES / "nodeexporter")
    assert told(found, "i40iw0") == {
        ("nic_info", "i40iw0", "1", "InfiniBand", "", "0.2", "I40IW Board ID", "", "false"): 1,
        ("nic_up", "i40iw0", "1"): 1,
        ("nic_link_rate_bytes_per_second", "i40iw0", "1"): 1.25e9,
    }


def test_mlx4_takes_the_greater_of_narrow_and_wide_counters() -> None:
    """Old kernels have 64-bit twins in `counters_ext`; the one that is not kept shows 0."""
    found = read(TREES / "nodeexporter")
    assert found["nic_receive_bytes_total", "mlx4_0", "2"] == 4 * 4631917  # narrow: 0
    assert found["nic_transmit_bytes_total", "mlx4_0", "2"] == 4 * 3733440  # narrow: 0
    assert found["nic_receive_packets_total", "mlx4_0", "1"] == 6825908347  # wide: 0
    assert found["nic_transmit_drops_total", "mlx4_0", "1"] == 5
    assert found["nic_saturated", "mlx4_0", "1", "port_xmit_wait"] == 1


def test_omni_path_and_connect_x4_golden() -> None:
    """hfi1 has no driver counters; a `phys_state` that says ACTIVE does not matter."""
    found = read(TREES / "procfs")
    assert found["nic_receive_bytes_total", "hfi1_0", "1"] == 4 * 345091702026
    assert found["nic_transmit_bytes_total", "hfi1_0", "1"] == 4 * 273558326543
    assert found["nic_link_rate_bytes_per_second", "hfi1_0", "1"] == 12.5e9
    assert found["nic_up", "mlx5_0", "1"] == 1
    assert found["nic_link_rate_bytes_per_second", "mlx5_0", "1"] == 3.125e9
    assert found["nic_timeouts_total", "mlx5_0", "1"] == 131
    assert found["nic_retransmits_total", "mlx5_0", "1", "sequence"] == 1
    assert found["nic_retransmits_total", "mlx5_0", "1", "adaptive"] == 99
    assert found["nic_receive_packets_total", "mlx4_0", "2"] == 89332064


def test_hfi1_driver_counters() -> None:
    """Mixed-case names are understood; without a state file there is no state."""
    assert told(read(TREES / "hfi1-hwcounters-excerpt")) == {
        ("nic_info", "hfi1_0", "1", "", "", "", "", "", "false"): 1,
        ("nic_receive_drops_total", "hfi1_0", "1"): 134,
        ("nic_retransmits_total", "hfi1_0", "1", "any"): 2079,
        ("nic_timeouts_total", "hfi1_0", "1"): 0,
    }


@pytest.mark.parametrize("name", COMPLETE)
def test_every_tree_gives_well_formed_samples(name: str) -> None:
    """No series twice, no wrong label count, no odd value, no fault."""
    source = NetworkSource(TREES / name)
    samples = list(source.read())
    batch, drops = Gate(10_000).admit([s for s in samples if isinstance(s, Sample)])
    source.close()
    assert drops == {}
    assert len(batch) == len(samples)


# ---------------------------------------------------------------- derived trees


def test_a_port_that_is_down_has_no_rate_but_keeps_counting() -> None:
    """The fallback rate of a driver is not published; counters stay, for finding flaps."""
    found = read(TREES / "derived-port-down")
    assert found["nic_up", "mlx5_0", "1"] == 0
    assert ("nic_link_rate_bytes_per_second", "mlx5_0", "1") not in found
    assert found["nic_errors_total", "mlx5_0", "1", "link_downed"] == 3
    assert found["nic_receive_bytes_total", "mlx5_0", "1"] == 922159499729932


def test_a_virtual_function_without_counters_is_normal() -> None:
    """Missing counter folders are neither samples nor faults."""
    assert told(read(TREES / "derived-vf-no-counters")) == {
        (
            "nic_info", "mlx5_2", "1", "InfiniBand", "", "28.41.1000", "MT_0000000838", "", "false",
        ): 1,
        ("nic_up", "mlx5_2", "1"): 1,
        ("nic_link_rate_bytes_per_second", "mlx5_2", "1"): 50e9,
    }  # fmt: skip


def test_saturated_counters_are_named() -> None:
    """Each narrow counter at its top is named; others are not; the values stay."""
    found = read(TREES / "derived-saturated")
    stuck = {key[3] for key in found if key[0] == "nic_saturated"}
    assert stuck == {
        "symbol_error",
        "link_error_recovery",
        "link_downed",
        "port_rcv_errors",
        "port_rcv_constraint_errors",
        "local_link_integrity_errors",
        "excessive_buffer_overrun_errors",
        "port_xmit_wait",
    }
    assert found["nic_errors_total", "mlx5_0", "1", "symbol"] == 65535
    assert found["nic_errors_total", "mlx5_0", "1", "link_downed"] == 255


def test_roce_congestion_grows_between_two_reads(tmp_path: Path) -> None:
    """Kept descriptors see the new values: notices, marks, timeouts and retransmissions."""
    shutil.copytree(TREES / "derived-roce-congested/t0", tmp_path, dirs_exist_ok=True)
    source = NetworkSource(tmp_path)
    before = values(source.read())
    shutil.copytree(TREES / "derived-roce-congested/t1", tmp_path, dirs_exist_ok=True)
    after = values(source.read())
    source.close()
    grown = {key[0:1] + key[3:]: after[key] - before[key] for key in before}  # type: ignore[operator]
    assert {key: value for key, value in grown.items() if value} == {
        ("nic_congestion_notices_total", "sent"): 60_000,
        ("nic_congestion_notices_total", "handled"): 40_000,
        ("nic_ecn_marked_packets_total",): 60_000,
        ("nic_timeouts_total",): 120,
        ("nic_retransmits_total", "sequence"): 60,
    }
    assert after["nic_congestion_notices_total", "mlx5_0", "1", "ignored"] == 0
    assert after["nic_errors_total", "mlx5_0", "1", "transport_retries_exceeded"] == 0


def test_a_wrapping_request_counter_is_not_published() -> None:
    """`rx_write_requests` wraps within minutes and has no family; the rest is as before."""
    before, after = (read(TREES / "derived-qcounter-wrap" / t) for t in ("t0", "t1"))
    assert before == after
    assert 4294967000 not in before.values()


def test_efa_golden() -> None:
    """EFA counts plain bytes, per port and per device; its rate is made up and left out."""
    p = ("rdmap79s0", "1")
    assert told(read(TREES / "derived-efa")) == {
        ("nic_info", *p, "EFA", "", "0.0.0.0", "", "enp80s0", "false"): 1,
        ("nic_up", *p): 1,
        ("nic_receive_bytes_total", *p): 123456789026,
        ("nic_transmit_bytes_total", *p): 123456789012,
        ("nic_receive_packets_total", *p): 98765453,
        ("nic_transmit_packets_total", *p): 98765439,
        ("nic_receive_drops_total", *p): 0,
        ("nic_retransmits_total", *p, "any"): 98765558,
        ("nic_timeouts_total", *p): 0,
        ("nic_errors_total", *p, "unresponsive_remote"): 0,
        ("nic_errors_total", *p, "impaired_remote"): 0,
        ("nic_errors_total", *p, "command"): 0,
        ("nic_errors_total", *p, "command_no_completion"): 0,
        ("nic_errors_total", *p, "rdma_read"): 0,
        ("nic_errors_total", *p, "rdma_write"): 0,
        ("nic_errors_total", *p, "resource"): 0,
        ("nic_keep_alives_total", *p): 88410,
    }


# ---------------------------------------------------------------- identity


@pytest.mark.parametrize(
    "texts",
    [
        {"efa_0/device/driver": "->../../bus/pci/drivers/efa"},
        {"efa_0/device/vendor": "0x1d0f"},
        {"rdmap0s31/fw_ver": "0.0.0.0"},
    ],
)
def test_efa_is_known_by_driver_vendor_or_name(tmp_path: Path, texts: dict[str, str]) -> None:
    """Any of the three marks says EFA, so that no rate is published."""
    device = next(iter(texts)).partition("/")[0]
    port = f"{CLASS}/{device}/ports/1"
    tree(tmp_path, {f"{CLASS}/{name}": text for name, text in texts.items()})
    tree(tmp_path, active(port, layer="Unspecified", rate="100 Gb/sec (4X EDR)"))
    found = read(tmp_path)
    assert [key[3] for key in found if key[0] == "nic_info"] == ["EFA"]
    assert ("nic_link_rate_bytes_per_second", device, "1") not in found


def test_a_name_like_efa_with_a_driver_is_that_drivers(tmp_path: Path) -> None:
    """The driver link decides where there is one."""
    tree(tmp_path, {f"{CLASS}/rdmap1s0/device/driver": "->../../bus/pci/drivers/ionic"})
    tree(tmp_path, active(f"{CLASS}/rdmap1s0/ports/1", layer="Ethernet"))
    found = read(tmp_path)
    assert found["nic_info", "rdmap1s0", "1", "Ethernet", "ionic", "", "", "", "false"] == 1
    assert found["nic_link_rate_bytes_per_second", "rdmap1s0", "1"] == 50e9


def test_a_virtual_function_is_marked(tmp_path: Path) -> None:
    """A device that links to its physical function is virtual, as RDMA device and interface."""
    tree(
        tmp_path,
        {
            f"{CLASS}/mlx5_2/device/physfn": "->../0000:1b:00.0",
            f"{CLASS}/mlx5_2/device/driver": "->../../bus/pci/drivers/mlx5_core",
            "sys/class/net/ens1v0/operstate": "up",
            "sys/class/net/ens1v0/type": "1",
            "sys/class/net/ens1v0/device/physfn": "->../0000:1b:00.0",
            **active(f"{CLASS}/mlx5_2/ports/1"),
        },
    )
    found = read(tmp_path)
    assert found["nic_info", "mlx5_2", "1", "InfiniBand", "mlx5_core", "", "", "", "true"] == 1
    assert found["nic_info", "ens1v0", "", "Ethernet", "", "", "", "ens1v0", "true"] == 1


def test_the_gid_table_names_the_interface_of_a_bond(tmp_path: Path) -> None:
    """The RDMA device of a bond lists a member as its own; the GID table knows the bond."""
    device = f"{CLASS}/mlx5_bond_0"
    tree(
        tmp_path,
        {
            f"{device}/device/net/ens1f0/dev_port": "0",
            f"{device}/ports/1/gid_attrs/ndevs/0": "bond0",
            **active(f"{device}/ports/1", layer="Ethernet"),
        },
    )
    assert [key[7] for key in read(tmp_path) if key[0] == "nic_info"] == ["bond0"]


def test_a_device_with_two_ports_has_an_interface_for_each(tmp_path: Path) -> None:
    """`dev_port` tells which interface belongs to which port; it counts from 0."""
    device = f"{CLASS}/mlx4_0"
    tree(
        tmp_path,
        {
            f"{device}/device/net/ib0/dev_port": "0",
            f"{device}/device/net/ib1/dev_port": "1",
            **active(f"{device}/ports/1"),
            **active(f"{device}/ports/2"),
        },
    )
    found = [key for key in read(tmp_path) if key[0] == "nic_info"]
    assert {key[2]: key[7] for key in found} == {"1": "ib0", "2": "ib1"}


# ---------------------------------------------------------------- names


def test_the_width_in_an_hfi1_file_name_is_no_part_of_the_name(tmp_path: Path) -> None:
    """`RcResend,32` is RcResend; of two files of one name the first counts."""
    hw = f"{CLASS}/hfi1_0/ports/1/hw_counters"
    tree(tmp_path, {f"{hw}/RcResend,32": "7", f"{hw}/RcTimeOut": "2", f"{hw}/RcTimeOut,32": "9"})
    found = read(tmp_path)
    assert found["nic_retransmits_total", "hfi1_0", "1", "any"] == 7
    assert found["nic_timeouts_total", "hfi1_0", "1"] == 2


def test_the_prefix_of_switchdev_mode_is_no_part_of_the_name(tmp_path: Path) -> None:
    """`vport_packet_seq_err` counts the same; where both names exist there is one series."""
    hw = f"{PORT}/hw_counters"
    tree(
        tmp_path,
        {
            f"{hw}/packet_seq_err": "1",
            f"{hw}/vport_packet_seq_err": "2",
            f"{hw}/vport_local_ack_timeout_err": "3",
        },
    )
    found = read(tmp_path)
    assert found["nic_retransmits_total", "mlx5_0", "1", "sequence"] == 1
    assert found["nic_timeouts_total", "mlx5_0", "1"] == 3


def test_broadcom_names(tmp_path: Path) -> None:
    """bnxt_re: plain bytes, retransmissions on its timer; gauges and a false name left out."""
    texts = {
        "rx_bytes": "1000", "tx_bytes": "2000", "rx_pkts": "10", "tx_pkts": "20",
        "to_retransmits": "3", "seq_err_naks_rcvd": "4", "max_retry_exceeded": "5",
        "rnr_naks_rcvd": "6", "rx_out_of_buffer": "7", "rx_roce_errors": "8",
        "tx_roce_errors": "9", "rx_roce_discards": "11", "tx_roce_discards": "12",
        "tx_cnp_pkts": "13", "rx_cnp_pkts": "14", "rx_ecn_marked_pkts": "15",
        "recoverable_errors": "16", "active_qps": "17", "missing_resp": "18",
        "oos_drop_count": "19", "unrecoverable_err": "20",
    }  # fmt: skip
    hw = f"{CLASS}/bnxt_re0/ports/1/hw_counters"
    tree(tmp_path, {f"{hw}/{name}": text for name, text in texts.items()})
    p = ("bnxt_re0", "1")
    assert told(read(tmp_path)) == {
        ("nic_info", *p, "", "", "", "", "", "false"): 1,
        ("nic_receive_bytes_total", *p): 1000,
        ("nic_transmit_bytes_total", *p): 2000,
        ("nic_receive_packets_total", *p): 10,
        ("nic_transmit_packets_total", *p): 20,
        ("nic_retransmits_total", *p, "timeout"): 3,
        ("nic_timeouts_total", *p): 3,
        ("nic_retransmits_total", *p, "sequence"): 4,
        ("nic_errors_total", *p, "transport_retries_exceeded"): 5,
        ("nic_retransmits_total", *p, "implied_nak"): 18,
        ("nic_errors_total", *p, "out_of_order"): 19,
        ("nic_errors_total", *p, "unrecoverable"): 20,
        ("nic_errors_total", *p, "receiver_not_ready"): 6,
        ("nic_errors_total", *p, "out_of_buffer"): 7,
        ("nic_errors_total", *p, "receive"): 8,
        ("nic_errors_total", *p, "transmit"): 9,
        ("nic_receive_drops_total", *p): 11,
        ("nic_transmit_drops_total", *p): 12,
        ("nic_congestion_notices_total", *p, "sent"): 13,
        ("nic_congestion_notices_total", *p, "handled"): 14,
        ("nic_ecn_marked_packets_total", *p): 15,
    }


def test_narrow_traffic_counters_that_are_full_are_left_out(tmp_path: Path) -> None:
    """Bytes that stand at 32 bits are no reading at today's speeds, only a saturated counter."""
    tree(
        tmp_path,
        {
            f"{PORT}/counters/port_rcv_data": "4294967295",
            f"{PORT}/counters/port_xmit_data": "4294967294",
        },
    )
    found = read(tmp_path)
    assert ("nic_receive_bytes_total", "mlx5_0", "1") not in found
    assert found["nic_saturated", "mlx5_0", "1", "port_rcv_data"] == 1
    assert found["nic_transmit_bytes_total", "mlx5_0", "1"] == 4 * 4294967294


def test_a_full_narrow_counter_with_a_wide_twin_goes_on(tmp_path: Path) -> None:
    """The 64-bit twin counts on where the 32-bit counter stopped."""
    tree(
        tmp_path,
        {
            f"{PORT}/counters/port_rcv_data": "4294967295",
            f"{PORT}/counters_ext/port_rcv_data_64": "5000000000",
        },
    )
    found = read(tmp_path)
    assert found["nic_receive_bytes_total", "mlx5_0", "1"] == 20_000_000_000
    assert not any(key[0] == "nic_saturated" for key in found)


# ---------------------------------------------------------------- files that fail


@pytest.mark.parametrize(("code", "tried"), [(errno.EINVAL, 1), (errno.EOPNOTSUPP, 3)])
def test_refused_counters_are_left_alone(code: int, tried: int) -> None:
    """Refused counters are asked for once in a back-off; after EINVAL none of the port's others."""
    files = Failing({"mlx5_4/ports/1/counters/": code, "mlx5_4/ports/1/hw_counters/": code})
    source = NetworkSource(TREES / "h100-8xndr-bond", files=lambda _: files, backoff=50, relist=10)
    for _ in range(50):
        found, faults = sort(source.read())
        assert not faults
        assert {key[0] for key in told(found, "mlx5_4")} == {
            "nic_info", "nic_up", "nic_link_rate_bytes_per_second",
        }  # fmt: skip
        assert found["nic_errors_total", "mlx5_5", "1", "receive"] == 14
    tries = [path for path in files.asked if "mlx5_4" in path and "counters/" in path]
    assert len(tries) == tried  # of the sets: driver, traffic, errors
    list(source.read())
    tries = [path for path in files.asked if "mlx5_4" in path and "counters/" in path]
    assert len(tries) == 2 * tried
    source.close()


def test_a_device_in_the_middle_of_a_reset_is_asked_again_soon() -> None:
    """What answered before rests for 12 reads, then 24, then 48, not for the whole back-off."""
    files = Failing({})
    source = NetworkSource(TREES / "derived-port-down", files=lambda _: files, relist=1000)
    series = ("nic_receive_bytes_total", "mlx5_0", "1")
    assert series in values(source.read())
    files.answers = {"/counters/": errno.EINVAL, "/hw_counters/": errno.EINVAL}
    seen = []
    for _ in range(40):
        files.asked.clear()
        assert series not in values(source.read())
        seen.append(any("port_rcv_data" in path for path in files.asked))
    assert [i for i, asked in enumerate(seen) if asked] == [0, 12, 36]
    files.answers = {}
    back = [series in values(source.read()) for _ in range(50)]
    assert back.index(True) == 44
    assert all(back[44:])
    source.close()


def test_one_refused_file_costs_only_itself() -> None:
    """A file that says EINVAL among others that answer is left out, and asked rarely."""
    files = Failing({"symbol_error$": errno.EINVAL})
    source = NetworkSource(TREES / "derived-port-down", files=lambda _: files)
    for _ in range(12):
        found = values(source.read())
        assert ("nic_errors_total", "mlx5_0", "1", "symbol") not in found
        assert found["nic_errors_total", "mlx5_0", "1", "receive"] == 14
    assert sum("symbol_error" in path for path in files.asked) == 1
    source.close()


@pytest.mark.parametrize(
    ("code", "reason"), [(errno.EIO, "io"), (errno.EACCES, "denied"), (errno.ENODEV, "io")]
)
def test_a_broken_file_is_a_fault_and_costs_nothing_else(code: int, reason: str) -> None:
    """Real errors name the device, the port and the file; all other series stay."""
    whole = read(TREES / "derived-port-down")
    files = Failing({"ports/1/counters/VL15_dropped$": code})
    source = NetworkSource(TREES / "derived-port-down", files=lambda _: files)
    found, faults = sort(source.read())
    source.close()
    assert [(fault.part, fault.reason) for fault in faults] == [("mlx5_0/1/VL15_dropped", reason)]
    assert whole.keys() - found.keys() == {("nic_errors_total", "mlx5_0", "1", "vl15_dropped")}


@pytest.mark.parametrize("text", [b"", b"N/A (no PMA)\n", b"-1\n", b"12 of 15\n"])
def test_a_counter_that_is_no_number_is_absent(text: bytes) -> None:
    """Odd texts are neither samples nor faults."""
    source = NetworkSource(
        TREES / "derived-port-down", files=lambda _: Failing({"/counters/symbol_error": text})
    )
    found = values(source.read())
    source.close()
    assert ("nic_errors_total", "mlx5_0", "1", "symbol") not in found
    assert found["nic_errors_total", "mlx5_0", "1", "receive"] == 14


def test_a_state_that_cannot_be_read_costs_only_state_and_rate() -> None:
    """Without a state there is no rate either; the counters stay."""
    whole = read(TREES / "derived-saturated")
    source = NetworkSource(
        TREES / "derived-saturated", files=lambda _: Failing({"/state$": errno.EIO})
    )
    found, faults = sort(source.read())
    source.close()
    assert [fault.part for fault in faults] == ["mlx5_0/1/state"]
    assert whole.keys() - found.keys() == {
        ("nic_up", "mlx5_0", "1"),
        ("nic_port_physical_state", "mlx5_0", "1"),
        ("nic_port_state", "mlx5_0", "1"),
        ("nic_state_changes_total", "mlx5_0", "1"),
        ("nic_expected_up", "mlx5_0", "1", "seen_up"),
        ("nic_link_rate_bytes_per_second", "mlx5_0", "1"),
    }


def test_a_counter_that_vanishes_is_looked_for_in_the_next_read(tmp_path: Path) -> None:
    """A file that left since the inventory is no fault, and its loss brings a new inventory."""
    shutil.copytree(TREES / "derived-port-down", tmp_path, dirs_exist_ok=True)
    files = Failing({})
    source = NetworkSource(tmp_path, files=lambda _: files, relist=1000)
    list(source.read())
    (tmp_path / PORT / "counters/symbol_error").unlink()
    files.forget(str(tmp_path / PORT / "counters/symbol_error"))
    (tmp_path / PORT / "hw_counters/np_cnp_sent").write_text("5\n")
    assert ("nic_errors_total", "mlx5_0", "1", "symbol") not in values(source.read())
    files.asked.clear()
    found = values(source.read())
    assert found["nic_congestion_notices_total", "mlx5_0", "1", "sent"] == 5
    assert not any("symbol_error" in path for path in files.asked)
    source.close()


def test_a_device_that_is_pulled_ends_and_others_stay(tmp_path: Path) -> None:
    """The read in which a device goes says so; from the next one on its series are gone."""
    shutil.copytree(TREES / "h100-8xndr-bond", tmp_path, dirs_exist_ok=True)
    files = Failing({})
    source = NetworkSource(tmp_path, files=lambda _: files, relist=1000)
    list(source.read())
    shutil.rmtree(tmp_path / CLASS / "mlx5_7")
    files.answers = {"/mlx5_7/": errno.ENOENT}
    found, faults = sort(source.read())
    assert [fault.part for fault in faults] == ["mlx5_7/1/state"]
    assert found["nic_up", "mlx5_8", "1"] == 1
    found, faults = sort(source.read())
    assert not faults
    assert [key for key in found if key[1] == "mlx5_7"] == [("nic_device_missing", "mlx5_7")]
    assert len({key[1] for key in found}) == 9
    source.close()


def test_a_new_device_is_found_at_the_next_inventory(tmp_path: Path) -> None:
    """Which devices there are is looked up every `relist` reads."""
    tree(tmp_path, active(PORT))
    source = NetworkSource(tmp_path, relist=3)
    list(source.read())
    tree(tmp_path, active(f"{CLASS}/mlx5_1/ports/1"))
    seen = [("nic_up", "mlx5_1", "1") in values(source.read()) for _ in range(3)]
    source.close()
    assert seen == [False, False, True]


def test_a_port_that_cannot_be_listed_costs_no_other() -> None:
    """A folder without permission is a fault in every read, for its port alone."""
    files = Failing({"hw_counters/": errno.EACCES})
    source = NetworkSource(TREES / "derived-roce-congested/t0", files=lambda _: files)
    for _ in range(2):
        found, faults = sort(source.read())
        assert [(f.part, f.reason) for f in faults] == [
            ("mlx5_0/1/hw_counters", "denied"),
            ("mlx5_0/hw_counters", "denied"),
        ]
        assert found["nic_errors_total", "mlx5_0", "1", "receive"] == 14
    source.close()


# ---------------------------------------------------------------- nothing there


def test_no_device_and_no_interface_fails_with_the_places(tmp_path: Path) -> None:
    """A node without any network says where it was looked for, and is looked at again."""
    source = NetworkSource(tmp_path, relist=1000)
    with pytest.raises(FileNotFoundError, match=r"class/infiniband.*class/net"):
        list(source.read())
    tree(tmp_path, active(PORT))
    assert ("nic_up", "mlx5_0", "1") in values(source.read())
    source.close()


def test_everything_excluded_is_nothing() -> None:
    """An exclusion that matches all leaves nothing to read, which is an error."""
    source = NetworkSource(TREES / "derived-port-down", exclude="mlx5_")
    with pytest.raises(FileNotFoundError):
        list(source.read())


def test_a_denied_sys_is_denied() -> None:
    """If nothing can be listed for want of permission, that is what is raised."""
    files = Failing({"infiniband/": errno.EACCES, "net/": errno.EACCES})
    source = NetworkSource(TREES / "derived-port-down", files=lambda _: files)
    with pytest.raises(PermissionError):
        list(source.read())


# ---------------------------------------------------------------- interfaces


def test_virtio_interface_golden() -> None:
    """A recorded virtual machine: loopback and ifb are left out, an unknown speed is absent."""
    p = ("eth0", "")
    assert told(read(TREES / "virtio-net")) == {
        ("nic_info", *p, "Ethernet", "virtio_net", "", "", "eth0", "false"): 1,
        ("nic_up", *p): 1,
        ("nic_carrier_changes_total", *p): 2,
        ("nic_receive_bytes_total", *p): 1511549216,
        ("nic_transmit_bytes_total", *p): 1938144,
        ("nic_receive_packets_total", *p): 34247,
        ("nic_transmit_packets_total", *p): 21904,
        ("nic_receive_drops_total", *p): 0,
        ("nic_transmit_drops_total", *p): 0,
        ("nic_errors_total", *p, "receive"): 0,
        ("nic_errors_total", *p, "transmit"): 0,
        ("nic_errors_total", *p, "crc"): 0,
        ("nic_errors_total", *p, "fifo"): 0,
        ("nic_errors_total", *p, "over"): 0,
    }


def test_bonds_are_interfaces_and_bonding_masters_is_not() -> None:
    """1000 Mb/s is 125e6 bytes/s, a speed of -1 is absent, a plain file is no interface."""
    found = read(TREES / "nodeexporter")
    rates = {
        key[1]: value
        for key, value in found.items()
        if key[0] == "nic_link_rate_bytes_per_second" and not key[2]
    }
    assert rates == {"dmz": 125e6, "int": 125e6, "eth0": 125e6}
    assert found["nic_up", "bond0", ""] == 1
    assert not any(key[1] == "bonding_masters" for key in found)


@pytest.mark.parametrize(
    "name",
    [
        "lo", "veth1a2b3c4", "docker0", "br-0123456789ab", "br0", "cni0", "flannel.1", "cali12345",
        "cilium_host", "lxc1234", "virbr0", "vnet3", "tap0", "tun0", "tunl0", "kube-ipvs0",
        "dummy0", "ifb1", "sit0", "ip6tnl0", "gre0", "gretap0", "nodelocaldns", "wg0",
        "eni0123456789a", "vxlan.calico",
    ],
)  # fmt: skip
def test_interfaces_of_containers_and_tunnels_are_left_out(tmp_path: Path, name: str) -> None:
    """The usual names are excluded without configuration."""
    tree(tmp_path, {f"sys/class/net/{name}/operstate": "up", "sys/class/net/eth0/operstate": "up"})
    assert {key[1] for key in read(tmp_path)} == {"eth0"}


@pytest.mark.parametrize(
    "name",
    ["eth0", "ens3f0np0", "enp80s0", "eno1", "ib0", "ibp12s0", "bond0", "bond0.100", "local0",
     "team0", "hsn0", "rdma0", "eni"],
)  # fmt: skip
def test_interfaces_of_the_node_stay(tmp_path: Path, name: str) -> None:
    """Physical interfaces, bonds and VLANs are read, whatever naming scheme is in use."""
    tree(tmp_path, {f"sys/class/net/{name}/operstate": "up"})
    assert read(tmp_path)["nic_up", name, ""] == 1


def test_exclusion_is_the_operators(tmp_path: Path) -> None:
    """The pattern is matched at the start of the names of interfaces and RDMA devices alike."""
    tree(tmp_path, {f"sys/class/net/{n}/operstate": "up" for n in ("eth0", "eth1", "lo")})
    tree(tmp_path, active(PORT))
    assert {key[1] for key in read(tmp_path, exclude=r"eth1|mlx5_0$")} == {"eth0", "lo"}


@pytest.mark.parametrize(
    ("text", "up"),
    [("up", 1), ("down", 0), ("lowerlayerdown", 0), ("dormant", 0), ("unknown", None)],
)
def test_operstate_is_up_down_or_unknown(tmp_path: Path, text: str, up: int | None) -> None:
    """`unknown` is absent; only an interface that is up has a rate."""
    tree(tmp_path, {"sys/class/net/eth0/operstate": text, "sys/class/net/eth0/speed": "100000"})
    found = read(tmp_path)
    assert found.get(("nic_up", "eth0", "")) == up
    assert found.get(("nic_link_rate_bytes_per_second", "eth0", "")) == (12.5e9 if up else None)


def test_missed_packets_are_dropped_packets(tmp_path: Path) -> None:
    """What the card threw away for want of buffers adds to what the kernel threw away."""
    tree(
        tmp_path,
        {
            "sys/class/net/eth0/operstate": "up",
            "sys/class/net/eth0/statistics/rx_dropped": "3",
            "sys/class/net/eth0/statistics/rx_missed_errors": "40",
        },
    )
    assert read(tmp_path)["nic_receive_drops_total", "eth0", ""] == 43


def test_infiniband_interface_is_said_to_be_one(tmp_path: Path) -> None:
    """Type 32 is an IPoIB interface."""
    tree(tmp_path, {"sys/class/net/ib0/operstate": "up", "sys/class/net/ib0/type": "32"})
    assert read(tmp_path)["nic_info", "ib0", "", "InfiniBand", "", "", "", "ib0", "false"] == 1


def test_speed_is_asked_for_after_a_link_change_only(tmp_path: Path) -> None:
    """Reading a speed takes a lock of the whole network stack; a link change renews it."""
    base = "sys/class/net/eth0"
    tree(tmp_path, {f"{base}/operstate": "up", f"{base}/speed": "100000"})
    tree(tmp_path, {f"{base}/carrier_changes": "2"})
    files = Failing({})
    source = NetworkSource(tmp_path, files=lambda _: files, relist=1000)
    series = ("nic_link_rate_bytes_per_second", "eth0", "")
    assert [values(source.read())[series] for _ in range(3)] == [12.5e9] * 3
    assert sum(path.endswith("speed") for path in files.asked) == 1
    tree(tmp_path, {f"{base}/carrier_changes": "4", f"{base}/speed": "25000"})
    assert values(source.read())[series] == 3.125e9
    source.close()


@pytest.mark.parametrize(("code", "parts"), [(errno.EINVAL, []), (errno.EIO, ["eth0/speed"])])
def test_a_speed_that_cannot_be_read_is_absent(code: int, parts: list[str]) -> None:
    """EINVAL is how many drivers say "no link speed"; a real error is a fault in every read."""
    source = NetworkSource(TREES / "virtio-net", files=lambda _: Failing({"/speed$": code}))
    for _ in range(2):
        found, faults = sort(source.read())
        assert [fault.part for fault in faults] == parts
        assert ("nic_link_rate_bytes_per_second", "eth0", "") not in found
        assert found["nic_up", "eth0", ""] == 1
    source.close()


def test_an_operstate_that_cannot_be_read_costs_only_itself() -> None:
    """Carrier changes and statistics stay."""
    source = NetworkSource(
        TREES / "virtio-net", files=lambda _: Failing({"/operstate$": errno.EIO})
    )
    found, faults = sort(source.read())
    source.close()
    assert [fault.part for fault in faults] == ["eth0/operstate"]
    assert ("nic_up", "eth0", "") not in found
    assert found["nic_carrier_changes_total", "eth0", ""] == 2
    assert found["nic_receive_bytes_total", "eth0", ""] == 1511549216


def test_close_gives_the_descriptors_back() -> None:
    """A closed source holds no file."""
    made: list[Files] = []

    def files(most: int) -> Files:
        made.append(Files(most))
        return made[-1]

    source = NetworkSource(TREES / "h100-8xndr-bond", files=files)
    list(source.read())
    assert sum(map(len, made)) > 200
    source.close()
    assert sum(map(len, made)) == 0


def test_names_that_are_not_text_can_be_printed(tmp_path: Path) -> None:
    """A device and an interface named by nobody's rules are read, and shown replaced."""
    port = os.fsencode(tmp_path) + b"/sys/class/infiniband/ml\xff/ports/1"
    net = os.fsencode(tmp_path) + b"/sys/class/net/e\x1bth\xff"
    os.makedirs(port)
    os.makedirs(net)
    Path(os.fsdecode(port), "state").write_text("4: ACTIVE\n")
    Path(os.fsdecode(net), "operstate").write_text("up\n")
    source = NetworkSource(tmp_path)
    items = list(source.read())
    source.close()
    assert "nic_up" in str(items)
    devices = {item.labels[0] for item in items if isinstance(item, Sample)}
    assert devices == {"ml\ufffd", "e\ufffdth\ufffd"}
    for item in items:
        str(item).encode()
        assert not isinstance(item, Sample) or all(map(str.isprintable, item.labels))
