"""The drivers of the made-up node's network cards: what they would answer to `ethtool`.

It stands in the place of the door to the kernel (`exporter.ethtool`), below the real reader. Names
are those of mlx5 with PFC on priority 3, and of igb; optics are those of a module that is well.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections.abc import Mapping

from exporter.demo.node import Interface, Node
from exporter.demo.sysfs import address_of, number_of
from exporter.ethtool import Driver, Link, Module

_DRIVERS: Mapping[str, Driver] = {
    "mlx5_core": Driver("mlx5_core", "6.8.0", "32.38.3056 (MT_0000000884)", "0000:9a:00.0"),
    "igb": Driver("igb", "6.8.0", "3.25, 0x800005cf", "0000:05:00.0"),
}
_FRAME, _QUANTUM = 1200, 120
"""Bytes of a packet; microseconds that a pause frame stops a port for, mostly."""
_QUIET: Mapping[str, tuple[str, ...]] = {
    "mlx5_core": (
        "rx_out_of_buffer", "rx_steer_missed_packets", "rx_crc_errors_phy", "rx_symbol_err_phy",
        "rx_discards_phy", "tx_discards_phy", "rx_pcs_symbol_err_phy", "rx_err_lane_0_phy",
        "rx_err_lane_1_phy", "rx_err_lane_2_phy", "rx_err_lane_3_phy", "rx_buffer_passed_thres_phy",
        "rx_pci_signal_integrity", "tx_pci_signal_integrity", "outbound_pci_stalled_rd",
        "outbound_pci_stalled_wr", "outbound_pci_stalled_rd_events",
        "outbound_pci_stalled_wr_events", "link_down_events_phy", "rx_prio3_discards",
        "rx_prio3_buf_discard", "rx_prio3_cong_discard", "rx_prio3_marked",
        "tx_pause_storm_warning_events", "tx_pause_storm_error_events", "module_unplug",
        "module_bus_stuck", "module_high_temp", "module_bad_shorted", "rx0_packets", "tx0_packets",
    ),
    "igb": ("rx_no_buffer_count", "rx_flow_control_xoff", "tx_flow_control_xoff", "tx_timeout"),
}  # fmt: skip


class DemoDrivers:
    """Answers for the cards of a node; others have no interface here. Raises `OSError`."""

    def __init__(self, node: Node, lock: threading.Lock) -> None:
        self._node = node
        self._lock = lock

    def identity(self, interface: str) -> tuple[int, bytes]:
        """Return number and address of an interface."""
        self._card(interface)
        return number_of(interface), address_of(interface)

    def driver(self, interface: str) -> Driver:
        """Return who drives it."""
        return _DRIVERS[self._card(interface).driver]

    def count(self, interface: str) -> int:
        """Return how many statistics it has."""
        return len(self._statistics(interface))

    def names(self, interface: str, count: int) -> tuple[str, ...]:
        """Return their names."""
        del count
        return tuple(self._statistics(interface))

    def values(self, interface: str, count: int) -> tuple[int, ...]:
        """Return their values."""
        del count
        return tuple(self._statistics(interface).values())

    def link(self, interface: str) -> Link:
        """Return the link's settings."""
        card = self._card(interface)
        return Link(
            speed=card.megabits,
            duplex="full",
            autonegotiation=True,
            medium="fibre" if _is_fast(card) else "twisted_pair",
        )

    def pause(self, interface: str) -> tuple[bool, bool]:
        """Tell that there are no global pause frames."""
        self._card(interface)
        return False, False

    def fec(self, interface: str) -> str:
        """Return the forward error correction in use."""
        return "rs" if _is_fast(self._card(interface)) else ""

    def module(self, interface: str) -> Module:
        """Return the memory of a QSFP28 module with four lanes of light, 41 degrees warm."""
        if not _is_fast(self._card(interface)):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), interface)
        memory = bytearray(256)
        memory[0], memory[220] = 0x11, 0x0C
        struct.pack_into(">hxxH", memory, 22, 41 * 256, 33_000)
        struct.pack_into(">4H", memory, 34, 9_800, 10_200, 9_500, 10_000)
        struct.pack_into(">4H", memory, 50, *[11_000] * 4)
        return Module(3, bytes(memory))

    def close(self) -> None:
        """Nothing is held."""

    def _card(self, interface: str) -> Interface:
        with self._lock:
            card = self._node.fabric.interfaces().get(interface)
        if card is None or not card.driver:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), interface)
        return card

    def _statistics(self, interface: str) -> Mapping[str, int]:
        card = self._card(interface)
        told = dict.fromkeys(_QUIET[card.driver], 0)
        if not _is_fast(card):
            return told
        with self._lock:
            pauses = self._node.fabric.pauses()
        for direction, lasted in (("rx", pauses.paused), ("tx", pauses.pausing)):
            told[f"{direction}_prio3_pause"] = lasted // _QUANTUM
            told[f"{direction}_prio3_pause_duration"] = lasted
        return told | {
            "rx_prio3_pause_transition": pauses.paused // (3 * _QUANTUM),
            "rx_packets_phy": card.received // _FRAME,
            "tx_packets_phy": card.sent // _FRAME,
            # eight in a billion: FEC has some work on each link of this speed
            "rx_corrected_bits_phy": card.received * 8 // 125_000_000,
        }


def _is_fast(card: Interface) -> bool:
    return card.driver == "mlx5_core"
