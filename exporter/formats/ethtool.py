"""What drivers call the statistics of a network interface, and what each of them means.

Names are free text of the driver (at most 31 letters; dots, blanks and brackets occur), and each
family of cards has its own. `understand` finds what is known among the names of one interface,
`is_of_a_ring` what is told for each queue: thousands of counters on a large machine (node_exporter
2096). `read` takes the text that `ethtool -S` prints. Nothing here touches a device.

Sources: the kernel's description of mlx5's counters, the tables of names in the drivers i40e, ice,
ixgbe, bnxt, ena, hns3 and mlx4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

_LONGEST = 64
_HEADING = "NIC statistics:"
_LINE = re.compile(r"\s*(?P<name>\S.*?)\s*:\s*(?P<value>[0-9]{1,20})\s*")


class Meaning(NamedTuple):
    """What a statistic counts: a quantity of ours, the values of its labels, the factor to it.

    Pauses have the label of a priority: its number, `global` (802.3x frames, which stop all),
    `pfc` (of any priority) or `all` (the driver does not tell kinds apart).
    """

    quantity: str
    labels: tuple[str, ...] = ()
    factor: float = 1


MICROSECONDS = 1e-6
GLOBAL, PFC, ALL = "global", "pfc", "all"

_RECEIVED, _SENT = "receive_pause_frames", "transmit_pause_frames"
_DIRECTIONS: Mapping[str, str] = {"rx": "receive", "tx": "transmit"}

_KNOWN: Mapping[str, Meaning] = {
    # mlx5: all frames that pause, and those of 802.3x while that is on
    "rx_pause_ctrl_phy": Meaning(_RECEIVED, (ALL,)),
    "tx_pause_ctrl_phy": Meaning(_SENT, (ALL,)),
    "rx_global_pause": Meaning(_RECEIVED, (GLOBAL,)),
    "tx_global_pause": Meaning(_SENT, (GLOBAL,)),
    "rx_global_pause_duration": Meaning("receive_pause_seconds", (GLOBAL,), MICROSECONDS),
    "tx_global_pause_duration": Meaning("transmit_pause_seconds", (GLOBAL,), MICROSECONDS),
    "rx_global_pause_transition": Meaning("receive_pause_episodes", (GLOBAL,)),
    "tx_global_pause_transition": Meaning("transmit_pause_episodes", (GLOBAL,)),
    # its watchdog: it has paused others for too long; on an error it stops that, and drops
    "tx_pause_storm_warning_events": Meaning("pause_storms", ("warning",)),
    "tx_pause_storm_error_events": Meaning("pause_storms", ("error",)),
    "rx_discards_phy": Meaning("receive_discards", ("port_buffer",)),
    "rx_out_of_buffer": Meaning("receive_discards", ("no_descriptor",)),
    "dev_internal_queue_oob": Meaning("receive_discards", ("device_queue",)),
    "outbound_pci_buffer_overflow": Meaning("receive_discards", ("pcie_overflow",)),
    "tx_discards_phy": Meaning("transmit_discards", ("port",)),
    "tx_queue_dropped": Meaning("transmit_discards", ("queue",)),
    "rx_ecn_mark": Meaning("ecn_marked"),
    "rx_crc_errors_phy": Meaning("physical_errors", ("checksum",)),
    "rx_symbol_err_phy": Meaning("physical_errors", ("symbol",)),
    "link_down_events_phy": Meaning("link_downs"),
    "rx_pcs_symbol_err_phy": Meaning("fec_uncorrected_symbols"),
    "rx_corrected_bits_phy": Meaning("fec_corrections"),
    "rx_bits_phy": Meaning("received_bytes", (), 0.125),
    "rx_buffer_passed_thres_phy": Meaning("receive_buffer_high"),
    "module_unplug": Meaning("module_faults", ("unplugged",)),
    "module_bus_stuck": Meaning("module_faults", ("bus_stuck",)),
    "module_high_temp": Meaning("module_faults", ("high_temperature",)),
    "module_bad_shorted": Meaning("module_faults", ("shorted",)),
    "rx_pci_signal_integrity": Meaning("pcie_errors", ("receive",)),
    "tx_pci_signal_integrity": Meaning("pcie_errors", ("transmit",)),
    # per cent of the last second, and seconds in which that was more than 30
    "outbound_pci_stalled_rd": Meaning("pcie_stalled", ("read",), 0.01),
    "outbound_pci_stalled_wr": Meaning("pcie_stalled", ("write",), 0.01),
    "outbound_pci_stalled_rd_events": Meaning("pcie_stalled_seconds", ("read",)),
    "outbound_pci_stalled_wr_events": Meaning("pcie_stalled_seconds", ("write",)),
    # bnxt
    "rx_pfc_frames": Meaning(_RECEIVED, (PFC,)),
    "tx_pfc_frames": Meaning(_SENT, (PFC,)),
    "rx_pause_frames": Meaning(_RECEIVED, (GLOBAL,)),
    "tx_pause_frames": Meaning(_SENT, (GLOBAL,)),
    "rx_fcs_err_frames": Meaning("physical_errors", ("checksum",)),
    "link_down_events": Meaning("link_downs"),
    "rx_pcs_symbol_err": Meaning("fec_uncorrected_symbols"),
    "rx_corrected_bits": Meaning("fec_corrections"),
    "rx_bits": Meaning("received_bytes", (), 0.125),
    "rx_buffer_passed_threshold": Meaning("receive_buffer_high"),
    "rx_fec_corrected_blocks": Meaning("fec_blocks", ("corrected",)),
    "rx_fec_uncorrectable_blocks": Meaning("fec_blocks", ("uncorrected",)),
    "rx_total_ring_discards": Meaning("receive_discards", ("no_descriptor",)),
    "tx_total_ring_discards": Meaning("transmit_discards", ("queue",)),
    # i40e ("port.rx_dropped") and ice ("rx_dropped.nic"); without either it is the interface's
    "port.rx_dropped": Meaning("receive_discards", ("port_buffer",)),
    "rx_dropped.nic": Meaning("receive_discards", ("port_buffer",)),
    "port.rx_crc_errors": Meaning("physical_errors", ("checksum",)),
    "rx_crc_errors.nic": Meaning("physical_errors", ("checksum",)),
    "port.mac_local_faults": Meaning("physical_errors", ("local_fault",)),
    "mac_local_faults.nic": Meaning("physical_errors", ("local_fault",)),
    "port.mac_remote_faults": Meaning("physical_errors", ("remote_fault",)),
    "mac_remote_faults.nic": Meaning("physical_errors", ("remote_fault",)),
    "port.tx_dropped_link_down": Meaning("transmit_discards", ("link_down",)),
    "tx_dropped_link_down.nic": Meaning("transmit_discards", ("link_down",)),
    "port.link_xoff_rx": Meaning(_RECEIVED, (GLOBAL,)),
    "link_xoff_rx.nic": Meaning(_RECEIVED, (GLOBAL,)),
    "port.link_xoff_tx": Meaning(_SENT, (GLOBAL,)),
    "link_xoff_tx.nic": Meaning(_SENT, (GLOBAL,)),
    # e1000e, igb, ixgbe
    "rx_flow_control_xoff": Meaning(_RECEIVED, (GLOBAL,)),
    "tx_flow_control_xoff": Meaning(_SENT, (GLOBAL,)),
    "rx_no_buffer_count": Meaning("receive_discards", ("no_descriptor",)),
    "rx_no_dma_resources": Meaning("receive_discards", ("no_descriptor",)),
    # mlx4, cxgb4
    "rx_pause": Meaning(_RECEIVED, (GLOBAL,)),
    "tx_pause": Meaning(_SENT, (GLOBAL,)),
    "rx_pause_duration": Meaning("receive_pause_seconds", (GLOBAL,), MICROSECONDS),
    "tx_pause_duration": Meaning("transmit_pause_seconds", (GLOBAL,), MICROSECONDS),
    "rx_pause_transition": Meaning("receive_pause_episodes", (GLOBAL,)),
    "tx_pause_transition": Meaning("transmit_pause_episodes", (GLOBAL,)),
    # hns3
    "mac_rx_mac_pause_num": Meaning(_RECEIVED, (GLOBAL,)),
    "mac_tx_mac_pause_num": Meaning(_SENT, (GLOBAL,)),
    "mac_rx_fcs_err_pkt_num": Meaning("physical_errors", ("checksum",)),
    # ionic
    "frames_rx_pause": Meaning(_RECEIVED, (GLOBAL,)),
    "frames_tx_pause": Meaning(_SENT, (GLOBAL,)),
    "frames_rx_pripause": Meaning(_RECEIVED, (PFC,)),
    "frames_tx_pripause": Meaning(_SENT, (PFC,)),
    "frames_rx_bad_fcs": Meaning("physical_errors", ("checksum",)),
    # ena: what the cloud lets an instance have was exceeded
    "bw_in_allowance_exceeded": Meaning("allowance_exceeded", ("bandwidth_in",)),
    "bw_out_allowance_exceeded": Meaning("allowance_exceeded", ("bandwidth_out",)),
    "pps_allowance_exceeded": Meaning("allowance_exceeded", ("packets",)),
    "conntrack_allowance_exceeded": Meaning("allowance_exceeded", ("connections",)),
    "linklocal_allowance_exceeded": Meaning("allowance_exceeded", ("link_local",)),
}


class _Pattern(NamedTuple):
    """Names with a number in them; `{d}` is receive or transmit, `n` the number.

    `quantity` and `labels` are filled in from what the expression has found.
    """

    expression: re.Pattern[str]
    quantity: str
    labels: tuple[str, ...]
    factor: float = 1


def _row(expression: str, quantity: str, *labels: str, factor: float = 1) -> _Pattern:
    return _Pattern(re.compile(expression), quantity, labels or ("{n}",), factor)


_FRAMES, _SECONDS, _EPISODES = "{d}_pause_frames", "{d}_pause_seconds", "{d}_pause_episodes"
_NUMBERED: Sequence[_Pattern] = (
    # mlx5
    _row(r"(?P<d>[rt]x)_prio(?P<n>\d)_pause", _FRAMES),
    _row(r"(?P<d>[rt]x)_prio(?P<n>\d)_pause_duration", _SECONDS, factor=MICROSECONDS),
    _row(r"(?P<d>[rt]x)_prio(?P<n>\d)_pause_transition", _EPISODES),
    _row(r"rx_prio(?P<n>\d)_discards", "priority_discards", "{n}", "port_buffer"),
    _row(r"rx_prio(?P<n>\d)_buf_discard", "priority_discards", "{n}", "host_buffer"),
    _row(r"rx_prio(?P<n>\d)_cong_discard", "priority_discards", "{n}", "congestion"),
    _row(r"rx_prio(?P<n>\d)_marked", "priority_marked"),
    _row(r"rx_err_lane_(?P<n>\d{1,2})_phy", "lane_errors"),
    # ice, i40e, ixgbe: of frames that stop and frames that let go on, the former
    _row(r"(?:port\.)?(?P<d>[rt]x)_priority_(?P<n>\d)_xoff(?:\.nic)?", _FRAMES),
    _row(r"(?:port\.)?(?P<d>[rt]x)_priority_(?P<n>\d)_xon_2_xoff(?:\.nic)?", _EPISODES),
    _row(r"(?P<d>[rt]x)_pb_(?P<n>\d)_pxoff", _FRAMES),
    # bnxt
    _row(r"(?P<d>[rt]x)_pfc_ena_frames_pri(?P<n>\d)", _FRAMES),
    _row(r"pfc_pri(?P<n>\d)_(?P<d>[rt]x)_duration_us", _SECONDS, factor=MICROSECONDS),
    _row(r"pfc_pri(?P<n>\d)_(?P<d>[rt]x)_transitions", _EPISODES),
    # mlx4, cxgb4, hns3
    _row(r"(?P<d>[rt]x)_pause_prio_(?P<n>\d)", _FRAMES),
    _row(r"(?P<d>[rt]x)_pause_duration_prio_(?P<n>\d)", _SECONDS, factor=MICROSECONDS),
    _row(r"(?P<d>[rt]x)_pause_transition_prio_(?P<n>\d)", _EPISODES),
    _row(r"(?P<d>[rt]x)_ppp(?P<n>\d)_frames", _FRAMES),
    _row(r"mac_(?P<d>[rt]x)_pfc_pri(?P<n>\d)_pkt_num", _FRAMES),
)

_RING = re.compile(
    r"\[?\d+\]?:|.*\[\d+\]"  # qede "0: rcv_pkts", bnxt "[0]: rx_discards", gve "rx_bytes[0]"
    r"|(?:[rt]xq?|ch|xdp(?:sq)?|xsk|ptp|qos|rvec|vec|queue|ring|[rt]x_queue|[scr]q)[-_ #.]*\d+"
    r"(?:[-_:. ]|$)"
)
_BY_SIZE = re.compile(r"[rt]x_(?:\d+_to_|64_bytes?(?:_|$)|\d{4}_)")
"""Not rings but sizes of packets: "rx_64_bytes_phy", "rx_1024_to_1518_bytes_phy"."""


def is_of_a_ring(name: str) -> bool:
    """Tell whether a statistic is that of one queue, or one channel, among many."""
    return _RING.match(name) is not None and _BY_SIZE.match(name) is None


def meaning(name: str) -> Meaning | None:
    """Return what a statistic counts, by its name; None if that is not known."""
    if (known := _KNOWN.get(name)) is not None:
        return known
    for row in _NUMBERED:
        if (found := row.expression.fullmatch(name)) is not None:
            filled = found.groupdict()
            direction = _DIRECTIONS.get(filled.get("d") or "", "")
            labels = tuple(label.format(n=filled["n"]) for label in row.labels)
            return Meaning(row.quantity.format(d=direction), labels, row.factor)
    return None


def understand(names: Sequence[str]) -> dict[int, Meaning]:
    """Return what is known of an interface's statistics, by their place among the names.

    Of two names for one quantity the first counts; sums are left out where their parts are told.
    """
    found: dict[tuple[str, tuple[str, ...]], int] = {}
    known: dict[int, Meaning] = {}
    for place, name in enumerate(names):
        one = meaning(name.strip())
        if one is not None and (one.quantity, one.labels) not in found:
            found[one.quantity, one.labels] = place
            known[place] = one
    return {place: one for place, one in known.items() if not _is_a_sum(one, found)}


def _is_a_sum(one: Meaning, found: Iterable[tuple[str, tuple[str, ...]]]) -> bool:
    """Tell whether others of the interface's statistics together count the same frames."""
    if one.quantity not in (_RECEIVED, _SENT):
        return False
    others = {labels[0] for quantity, labels in found if quantity == one.quantity}
    if one.labels == (PFC,):
        return any(other.isdigit() for other in others)
    return one.labels == (ALL,) and others != {ALL}


def shown(names: Sequence[str]) -> list[str]:
    """Return names that can be told apart when they are labels: printable, none of them twice.

    Dots and blanks stay, so that "duplicate metric" and "duplicate_metric" remain two counters.
    """
    told: dict[str, int] = {}
    result = []
    for name in names:
        plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
        plain = plain.strip()[:_LONGEST]
        told[plain] = told.get(plain, 0) + 1
        result.append(plain if told[plain] == 1 else f"{plain}#{told[plain]}")
    return result


def read(text: str) -> dict[str, int]:
    """Return the statistics that `ethtool -S` has printed, by name; of twins the first.

    Those stand below the heading: an interface without any has an error printed instead.
    """
    found: dict[str, int] = {}
    for line in text.partition(_HEADING)[2].splitlines():
        one = _LINE.fullmatch(line)
        if one is not None:
            found.setdefault(one["name"], int(one["value"]))
    return found
