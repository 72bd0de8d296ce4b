"""What names of drivers mean: recorded texts, names of rings, names that are no good as labels."""

from __future__ import annotations

import pytest

from exporter.formats import ethtool
from exporter.formats.ethtool import Meaning
from tests.ethtool_lab import TEXTS

PRIORITIES = [str(n) for n in range(8)]


def understood(text: str) -> dict[tuple[str, ...], float]:
    """Return what is known of a recorded text: quantity and labels, and the value."""
    statistics = ethtool.read((TEXTS / text).read_text())
    found = list(statistics.values())
    return {
        (one.quantity, *one.labels): found[place] * one.factor
        for place, one in ethtool.understand(list(statistics)).items()
    }


def test_a_sick_lane_is_told_by_lane_symbols_and_broken_frames() -> None:
    """The recorded cable: 386 lost symbols, 386 broken frames, one lane 600 times the other."""
    told = understood("mlx5-100g-bad-lane3-crc.txt")
    assert told["physical_errors", "checksum"] == told["fec_uncorrected_symbols",] == 386
    assert told["fec_corrections",] == 17_750_739
    assert [told["lane_errors", lane] for lane in "0123"] == [28116, 0, 0, 17_722_623]
    assert told["transmit_pause_frames", "all"] == 2


def test_pauses_on_a_lossless_priority_have_frames_seconds_and_direction() -> None:
    """This host makes the other side stop: 2.9 s against 8 ms."""
    told = understood("mlx5-roce-prio3-pfc-excerpt.txt")
    assert told["receive_pause_frames", "3"] == 41927
    assert told["transmit_pause_frames", "3"] == 1_290_418
    assert told["receive_pause_seconds", "3"] == pytest.approx(0.008134)
    assert told["transmit_pause_seconds", "3"] == pytest.approx(2.914772)
    assert told["receive_pause_episodes", "3"] == 39218
    assert told["priority_marked", "3"] == 9_147_732
    assert told["pause_storms", "error"] == told["pause_storms", "warning"] == 0


@pytest.mark.parametrize("direction", ["receive", "transmit"])
def test_no_frame_is_counted_twice(direction: str) -> None:
    """mlx5 counts pauses of priority 3 again among all of them: that sum is left out."""
    told = understood("mlx5-roce-prio3-pfc-excerpt.txt")
    assert [key for key in told if key[0] == f"{direction}_pause_frames"] == [
        (f"{direction}_pause_frames", "3")
    ]


def test_global_pauses_are_told_as_such() -> None:
    """A port without PFC: 555 s of pauses sent to the whole link."""
    told = understood("mlx5-cx4lx-host-sends-pause-excerpt.txt")
    assert told["transmit_pause_frames", "global"] == 1_266_552
    assert told["transmit_pause_seconds", "global"] == pytest.approx(555.665182)
    assert told["receive_pause_frames", "global"] == 0
    assert told["pcie_errors", "transmit"] == 3
    assert ("transmit_pause_frames", "all") not in told


@pytest.mark.parametrize("kernel", ["5.15", "6.5"])
def test_two_kernels_with_other_sets_of_counters_tell_the_same_quantities(kernel: str) -> None:
    """An overloaded host, whatever the kernel: discards of the port, and pauses sent."""
    text = f"mlx5-kernel{kernel}-global-pause-rx-discards.txt"
    raw = ethtool.read((TEXTS / text).read_text())
    told = understood(text)
    assert told["receive_discards", "port_buffer"] == raw["rx_discards_phy"] > 10**10
    assert told["receive_discards", "no_descriptor"] == raw["rx_out_of_buffer"]
    assert told["transmit_pause_seconds", "global"] == pytest.approx(
        raw["tx_global_pause_duration"] / 1e6
    )
    assert told["priority_discards", "0", "port_buffer"] == raw["rx_prio0_discards"]


def test_intels_names_have_a_dot_and_of_two_frames_the_one_that_stops() -> None:
    """Eight priorities in two directions, and no durations."""
    told = understood("intel-ice-e810-pfc-excerpt.txt")
    assert set(told) == {
        (f"{direction}_pause_frames", n)
        for direction in ("receive", "transmit")
        for n in PRIORITIES
    }


def test_names_with_dots_and_blanks_do_not_collide() -> None:
    """The twin of "duplicate metric" is another counter with another value (node_exporter 2893)."""
    statistics = ethtool.read((TEXTS / "nodeexporter-fixture-eth0-statistics.txt").read_text())
    assert len(statistics) == 16
    shown = dict(zip(ethtool.shown(list(statistics)), statistics.values(), strict=True))
    assert shown["duplicate metric"] == 1
    assert shown["duplicate_metric"] == 2
    assert shown["port.rx_dropped"] == 12028
    assert understood("nodeexporter-fixture-eth0-statistics.txt") == {
        ("receive_discards", "port_buffer"): 12028
    }


@pytest.mark.parametrize("text", ["bond0-statistics", "eth0-driver", "eth0-settings"])
def test_a_text_without_statistics_has_none(text: str) -> None:
    """An error that is printed is no counter called ERROR."""
    assert ethtool.read((TEXTS / f"nodeexporter-fixture-{text}.txt").read_text()) == {}


def test_every_recorded_text_is_tested() -> None:
    """A new text needs a test, and its line in SOURCES."""
    assert len(list(TEXTS.glob("*.txt"))) == 10


def test_labels_are_printable_and_never_the_same_twice() -> None:
    """Whatever a driver writes into its 32 octets."""
    names = ["a", "a", " a ", "b\x01", "b\x02", "x" * 200, "x" * 201, ""]
    shown = ethtool.shown(names)
    assert len(set(shown)) == len(names)
    assert all(name.isprintable() for name in shown)
    assert shown[:3] == ["a", "a#2", "a#3"]


@pytest.mark.parametrize(
    "name",
    [
        "[0]: rx_ucast_packets", "0: rcv_pkts", "rx_bytes[0]", "rx0_packets", "ch12_poll",
        "rx-0.packets", "rx_queue_3_packets", "queue_0_tx_cnt", "rxq0: rx_bytes", "txq#0_pktnum",
        "rvec_0_rx_pkts", "rx_0_packets", "tx-63.bytes", "xdpsq0_xmit", "tx127_cqes",
    ],
)  # fmt: skip
def test_counters_of_single_queues_are_known_as_such(name: str) -> None:
    """They come by the thousand: 674 series for each card (node_exporter 2096)."""
    assert ethtool.is_of_a_ring(name)
    assert ethtool.meaning(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "rx_64_bytes_phy", "rx_1024_to_1518_bytes_phy", "rx_1519_to_2047_bytes_phy",
        "tx_priority_0_xon.nic", "rx_prio0_bytes", "rx_err_lane_0_phy", "port.rx_size_64",
        "rx_pb_0_pxon", "pfc_pri3_rx_duration_us", "rx_pause_prio_3", "queue_stopped",
        "rx_packets", "bw_in_allowance_exceeded", "checksum_bad",
    ],
)  # fmt: skip
def test_other_numbers_in_a_name_make_no_ring(name: str) -> None:
    """Priorities, lanes and sizes of packets are not queues."""
    assert not ethtool.is_of_a_ring(name)


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("rx_pfc_ena_frames_pri3", Meaning("receive_pause_frames", ("3",))),
        ("pfc_pri3_tx_duration_us", Meaning("transmit_pause_seconds", ("3",), 1e-6)),
        ("pfc_pri3_rx_transitions", Meaning("receive_pause_episodes", ("3",))),
        ("rx_pb_4_pxoff", Meaning("receive_pause_frames", ("4",))),
        ("port.tx_priority_5_xoff", Meaning("transmit_pause_frames", ("5",))),
        ("port.rx_priority_5_xon_2_xoff", Meaning("receive_pause_episodes", ("5",))),
        ("rx_flow_control_xoff", Meaning("receive_pause_frames", ("global",))),
        ("tx_pause_prio_2", Meaning("transmit_pause_frames", ("2",))),
        ("mac_rx_pfc_pri1_pkt_num", Meaning("receive_pause_frames", ("1",))),
        ("rx_fec_uncorrectable_blocks", Meaning("fec_blocks", ("uncorrected",))),
        ("bw_out_allowance_exceeded", Meaning("allowance_exceeded", ("bandwidth_out",))),
        ("outbound_pci_stalled_wr", Meaning("pcie_stalled", ("write",), 0.01)),
        ("rx_prio3_cong_discard", Meaning("priority_discards", ("3", "congestion"))),
        ("rx_prio3_pause_extra", None),
        ("rx_prio31_pause", None),
    ],
)
def test_other_drivers_names_mean_the_same_quantities(name: str, meaning: Meaning | None) -> None:
    """bnxt, ixgbe, i40e, igb, mlx4, hns3, ena; and names that only begin like one."""
    assert ethtool.meaning(name) == meaning


def test_pfc_frames_of_all_priorities_count_where_no_priority_is_told() -> None:
    """ionic tells 802.3x and PFC apart, and no priorities."""
    told = ethtool.understand(["frames_rx_pause", "frames_rx_pripause"])
    assert [one.labels for one in told.values()] == [("global",), ("pfc",)]
    bnxt = ethtool.understand(["rx_pause_frames", "rx_pfc_frames", "rx_pfc_ena_frames_pri0"])
    assert [one.labels for one in bnxt.values()] == [("global",), ("0",)]
