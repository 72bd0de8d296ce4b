"""The network part of `/sys` and its PCI devices, written for a made-up node.

Names, texts and units are those of a DGX-class node with ConnectX-7 cards, so that the real reader
reads it: data counters in words of four octets, narrow error counters that stop at their top, the
driver's fallback rate on a port that is down. What else is below the root is written by `kernel`.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from exporter.demo.node import Interface, Node, Port
from exporter.demo.pci import Card, cards

_COUNTERS = (
    "VL15_dropped", "excessive_buffer_overrun_errors", "link_downed", "link_error_recovery",
    "local_link_integrity_errors", "multicast_rcv_packets", "multicast_xmit_packets",
    "port_rcv_constraint_errors", "port_rcv_data", "port_rcv_errors", "port_rcv_packets",
    "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors", "port_xmit_data", "port_xmit_discards", "port_xmit_packets",
    "port_xmit_wait", "symbol_error", "unicast_rcv_packets", "unicast_xmit_packets",
)  # fmt: skip
_DRIVER = (
    "duplicate_request", "implied_nak_seq_err", "lifespan", "local_ack_timeout_err",
    "out_of_buffer", "out_of_sequence", "packet_seq_err", "req_cqe_error", "req_cqe_flush_error",
    "req_remote_access_errors", "req_remote_invalid_request", "resp_cqe_error",
    "resp_cqe_flush_error", "resp_local_length_error", "resp_remote_access_errors",
    "rnr_nak_retry_err", "roce_adp_retrans", "roce_adp_retrans_to", "roce_slow_restart",
    "roce_slow_restart_cnps", "roce_slow_restart_trans", "rx_atomic_requests", "rx_dct_connect",
    "rx_icrc_encapsulated", "rx_read_requests", "rx_write_requests",
)  # fmt: skip
_CONGESTION = ("np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled", "rp_cnp_ignored")
_STATISTICS = (
    "collisions", "multicast", "rx_bytes", "rx_compressed", "rx_crc_errors", "rx_dropped",
    "rx_errors", "rx_fifo_errors", "rx_frame_errors", "rx_length_errors", "rx_missed_errors",
    "rx_nohandler", "rx_over_errors", "rx_packets", "tx_aborted_errors", "tx_bytes",
    "tx_carrier_errors", "tx_compressed", "tx_dropped", "tx_errors", "tx_fifo_errors",
    "tx_heartbeat_errors", "tx_packets", "tx_window_errors",
)  # fmt: skip
_OCTETS, _MTU, _FRAME, _MESSAGE = 4, 4096, 1200, 1 << 20


class SysfsTree:
    """A tree below `root`, which is what a source takes for the machine's root.

    A file that changes is written over in place, with one call: a reader that keeps a descriptor
    sees the new value, and never an empty file. A text that becomes shorter is filled up with line
    feeds.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._written: dict[str, bytes] = {}
        self._cards: Mapping[str, Card] = {}

    def write(self, node: Node) -> None:
        """Bring the tree to where the node is. Raises `OSError`."""
        if not self._cards:
            self._cards = cards(sound=node.job.scenario.sound)
            for card in dict.fromkeys(self._cards.values()):
                self._plug(card)
        for name, port in node.fabric.ports().items():
            device = f"sys/class/infiniband/{name}"
            if f"{device}/fw_ver" not in self._written:
                self._identify(device, port)
            for file, text in _port_files(port):
                self._put(f"{device}/ports/1/{file}", text)
        for name, interface in node.fabric.interfaces().items():
            base = f"sys/class/net/{name}"
            if interface.driver and f"{base}/type" not in self._written:
                self._link(f"{base}/device", f"sys/devices/{self._cards[name].path}")
            for file, text in _interface_files(name, interface):
                self._put(f"{base}/{file}", text)

    def _identify(self, device: str, port: Port) -> None:
        card = ("MT4129", "MT_0000000838", "28.41.1000")
        if not port.infiniband:
            card = ("MT41692", "MT_0000000884", "32.38.3056")
            self._put(f"{device}/ports/1/gid_attrs/ndevs/0", "bond0")
        self._put(f"{device}/node_type", "1: CA")
        for file, text in zip(("hca_type", "board_id", "fw_ver"), card, strict=True):
            self._put(f"{device}/{file}", text)
        name = device.rpartition("/")[2]
        self._link(f"{device}/device", f"sys/devices/{self._cards[name].path}")

    def _plug(self, card: Card) -> None:
        for file, text in card.files():
            self._put(f"sys/devices/{file}", text)
        self._link(f"sys/devices/{card.path}/driver", f"sys/bus/pci/drivers/{card.driver}")
        self._link(f"sys/bus/pci/devices/{card.address}", f"sys/devices/{card.path}")

    def _link(self, file: str, target: str) -> None:
        path = self._root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to("../" * file.count("/") + target)

    def _put(self, file: str, text: str | int) -> None:
        data = f"{text}\n".encode()
        old = self._written.get(file)
        flags = os.O_WRONLY
        if old is None:
            flags |= os.O_CREAT  # only then: a late writer must not fill a tree being removed
            (self._root / file).parent.mkdir(parents=True, exist_ok=True)
        else:
            data = data.ljust(len(old), b"\n")
        if data == old:
            return
        descriptor = os.open(self._root / file, flags, 0o644)
        try:
            os.pwrite(descriptor, data, 0)
        finally:
            os.close(descriptor)
        self._written[file] = data


def _port_files(port: Port) -> Iterator[tuple[str, str | int]]:
    """Yield each file of a port folder with its text."""
    rate = "400 Gb/sec (4X NDR)" if port.infiniband else "200 Gb/sec (2X NDR)"
    yield "state", "4: ACTIVE" if port.up else "1: DOWN"
    yield "phys_state", "5: LinkUp" if port.up else "2: Polling"
    yield "rate", rate if port.up else "10 Gb/sec (4X)"
    yield "link_layer", "InfiniBand" if port.infiniband else "Ethernet"
    sent, received = port.sent // _MTU, port.received // _MTU
    moving = {
        "port_xmit_data": port.sent // _OCTETS,
        "port_rcv_data": port.received // _OCTETS,
        "port_xmit_packets": sent,
        "unicast_xmit_packets": sent,
        "port_rcv_packets": received,
        "unicast_rcv_packets": received,
        "port_xmit_wait": min(port.waits, 2**32 - 1),
        "symbol_error": min(port.symbols, 2**16 - 1),
        "port_rcv_errors": min(port.symbols, 2**16 - 1),
        "link_error_recovery": min(port.recoveries, 2**8 - 1),
        "link_downed": min(port.downs, 2**8 - 1),
        "excessive_buffer_overrun_errors": port.overruns,
    }
    for counter in _COUNTERS:
        yield f"counters/{counter}", moving.get(counter, 0)
    driver = {
        "lifespan": 12,
        "packet_seq_err": port.resent,
        "out_of_sequence": port.resent,
        "rx_write_requests": port.received // _MESSAGE % 2**32,  # 32 bits, and these wrap
        "np_cnp_sent": port.notices,
        "np_ecn_marked_roce_packets": port.notices * 3,
        "rp_cnp_handled": port.notices * 2,
    }
    for counter in _DRIVER if port.infiniband else (*_DRIVER, *_CONGESTION):
        yield f"hw_counters/{counter}", driver.get(counter, 0)


def number_of(interface: str) -> int:
    """Return the number that the kernel has given an interface."""
    return 2 + zlib.crc32(interface.encode()) % 1000


def address_of(interface: str) -> bytes:
    """Return an interface's hardware address, one of those that may be made up."""
    return b"\x02\x00" + zlib.crc32(interface.encode()).to_bytes(4, "big")


def _interface_files(name: str, interface: Interface) -> Iterator[tuple[str, str | int]]:
    """Yield each file of an interface's folder with its text."""
    yield "type", 1
    yield "ifindex", number_of(name)
    yield "address", ":".join(f"{octet:02x}" for octet in address_of(name))
    yield "mtu", 9000 if interface.megabits > 10_000 else 1500
    yield "operstate", "up"
    yield "carrier", 1
    yield "carrier_changes", 2
    yield "speed", interface.megabits
    moving = {
        "rx_bytes": interface.received,
        "tx_bytes": interface.sent,
        "rx_packets": interface.received // _FRAME,
        "tx_packets": interface.sent // _FRAME,
    }
    for counter in _STATISTICS:
        yield f"statistics/{counter}", moving.get(counter, 0)
