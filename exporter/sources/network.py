"""The node's network ports as `/sys` shows them: InfiniBand, RoCE, EFA and plain Ethernet.

Reads RDMA ports below `sys/class/infiniband` and interfaces below `sys/class/net`, and brings the
drivers' many names to one vocabulary. What needs `ethtool` (pause frames, lanes) is left to others.

A note on widths. The classic counters of an InfiniBand port are 4 to 32 bits wide and stop at
their top until an operator clears them (IBTA specification, PortCounters); rules on them are blind
from then on, which `nic_saturated` says. The Q counters of mlx5 are 32 bits wide and wrap,
which Prometheus sees as a reset.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple

from exporter import catalogue as c
from exporter.files import Files
from exporter.formats import sysfs
from exporter.samples import Drop, Fault, Metric, Sample

DEFAULT_EXCLUDE = (
    r"lo$|veth|docker|br-|br\d|cni|flannel|cali|cilium|lxc|lxd|virbr|vnet|tap|tun|kube|dummy|ifb"
    r"|sit\d|ip6tnl|ip6gre|ip_vti|ip6_vti|gre|erspan|vxlan|geneve|nodelocaldns|wg|weave|antrea"
    r"|ovs-|azv|eni[0-9a-f]{11}$|gke[0-9a-f]{11}$|nerdctl|podman"
)
"""Loopback, and what containers, bridges and tunnels create; matched at the start of the name."""

_ACTIVE = 4
_TOP4, _TOP8, _TOP16, _TOP32 = 2**4 - 1, 2**8 - 1, 2**16 - 1, 2**32 - 1
_UNSUPPORTED = frozenset((errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY))


class Reading(NamedTuple):
    """What one counter file means: its family, the value of the family's last label, its unit.

    `top` is where a narrow field stops (0: it does not). A `fast` field, when only 32 bits wide,
    is full within a second at today's link speeds: at its top it is left out altogether. `also`
    is a second family, without a last label, that the same file counts for.
    """

    metric: Metric
    label: str | None = None
    scale: int = 1
    top: int = 0
    fast: bool = False
    also: Metric | None = None


# The kernel asks the card for these two sets separately (mlx5: by virtual port, and by a register
# that restricted functions may not read), so one may be refused while the other works.
_TRAFFIC: Mapping[str, Reading] = {
    # units of 4 octets by specification, whatever the link's width
    "port_rcv_data": Reading(c.NIC_RECEIVE_BYTES_TOTAL, None, 4, _TOP32, fast=True),
    "port_xmit_data": Reading(c.NIC_TRANSMIT_BYTES_TOTAL, None, 4, _TOP32, fast=True),
    "port_rcv_packets": Reading(c.NIC_RECEIVE_PACKETS_TOTAL, None, 1, _TOP32, fast=True),
    "port_xmit_packets": Reading(c.NIC_TRANSMIT_PACKETS_TOTAL, None, 1, _TOP32, fast=True),
}
_ERRORS: Mapping[str, Reading] = {
    "port_xmit_discards": Reading(c.NIC_TRANSMIT_DROPS_TOTAL, top=_TOP16),
    "port_xmit_wait": Reading(c.NIC_TRANSMIT_WAIT_TICKS_TOTAL, top=_TOP32),
    "symbol_error": Reading(c.NIC_ERRORS_TOTAL, "symbol", top=_TOP16),
    "link_error_recovery": Reading(c.NIC_ERRORS_TOTAL, "link_recovery", top=_TOP8),
    "link_downed": Reading(c.NIC_ERRORS_TOTAL, "link_downed", top=_TOP8),
    "port_rcv_errors": Reading(c.NIC_ERRORS_TOTAL, "receive", top=_TOP16),
    # already marked bad on arrival: another link, upstream, is sick
    "port_rcv_remote_physical_errors": Reading(c.NIC_ERRORS_TOTAL, "remote_physical", top=_TOP16),
    "local_link_integrity_errors": Reading(c.NIC_ERRORS_TOTAL, "link_integrity", top=_TOP4),
    "excessive_buffer_overrun_errors": Reading(c.NIC_ERRORS_TOTAL, "buffer_overrun", top=_TOP4),
    "VL15_dropped": Reading(c.NIC_ERRORS_TOTAL, "vl15_dropped", top=_TOP16),
    "port_rcv_constraint_errors": Reading(c.NIC_ERRORS_TOTAL, "receive_constraint", top=_TOP8),
    "port_xmit_constraint_errors": Reading(c.NIC_ERRORS_TOTAL, "transmit_constraint", top=_TOP8),
    # port_rcv_switch_relay_errors means something on switches only
}
# 64-bit twins of kernels before 4.5 (mlx4); a driver that has only one of the two shows 0 in the
# other, and both count the same, so the greater one is right
_WIDE: Mapping[str, str] = {
    "port_rcv_data": "port_rcv_data_64",
    "port_xmit_data": "port_xmit_data_64",
    "port_rcv_packets": "port_rcv_packets_64",
    "port_xmit_packets": "port_xmit_packets_64",
}
_DRIVER: Mapping[str, Reading] = {
    # mlx5, Q counters
    "packet_seq_err": Reading(c.NIC_RETRANSMITS_TOTAL, "sequence"),
    "implied_nak_seq_err": Reading(c.NIC_RETRANSMITS_TOTAL, "implied_nak"),
    "roce_adp_retrans": Reading(c.NIC_RETRANSMITS_TOTAL, "adaptive"),
    "local_ack_timeout_err": Reading(c.NIC_TIMEOUTS_TOTAL),
    "rnr_nak_retry_err": Reading(c.NIC_ERRORS_TOTAL, "receiver_not_ready"),
    "req_rnr_retries_exceeded": Reading(c.NIC_ERRORS_TOTAL, "rnr_retries_exceeded"),
    "req_transport_retries_exceeded": Reading(c.NIC_ERRORS_TOTAL, "transport_retries_exceeded"),
    "out_of_buffer": Reading(c.NIC_ERRORS_TOTAL, "out_of_buffer"),
    "rx_icrc_encapsulated": Reading(c.NIC_ERRORS_TOTAL, "icrc"),
    # mlx5, congestion counters
    "np_cnp_sent": Reading(c.NIC_CONGESTION_NOTICES_TOTAL, "sent"),
    "rp_cnp_handled": Reading(c.NIC_CONGESTION_NOTICES_TOTAL, "handled"),
    "rp_cnp_ignored": Reading(c.NIC_CONGESTION_NOTICES_TOTAL, "ignored"),
    "np_ecn_marked_roce_packets": Reading(c.NIC_ECN_MARKED_PACKETS_TOTAL),
    # efa and bnxt_re: plain bytes
    "rx_bytes": Reading(c.NIC_RECEIVE_BYTES_TOTAL),
    "tx_bytes": Reading(c.NIC_TRANSMIT_BYTES_TOTAL),
    "rx_pkts": Reading(c.NIC_RECEIVE_PACKETS_TOTAL),
    "tx_pkts": Reading(c.NIC_TRANSMIT_PACKETS_TOTAL),
    # efa
    "rx_drops": Reading(c.NIC_RECEIVE_DROPS_TOTAL),
    "retrans_pkts": Reading(c.NIC_RETRANSMITS_TOTAL, "any"),
    "retrans_timeout_events": Reading(c.NIC_TIMEOUTS_TOTAL),
    "unresponsive_remote_events": Reading(c.NIC_ERRORS_TOTAL, "unresponsive_remote"),
    "impaired_remote_conn_events": Reading(c.NIC_ERRORS_TOTAL, "impaired_remote"),
    "cmds_err": Reading(c.NIC_ERRORS_TOTAL, "command"),
    "no_completion_cmds": Reading(c.NIC_ERRORS_TOTAL, "command_no_completion"),
    # bnxt_re; its `recoverable_errors` is fed from a broadcast counter and left alone
    "to_retransmits": Reading(c.NIC_RETRANSMITS_TOTAL, "timeout", also=c.NIC_TIMEOUTS_TOTAL),
    "seq_err_naks_rcvd": Reading(c.NIC_RETRANSMITS_TOTAL, "sequence"),
    "max_retry_exceeded": Reading(c.NIC_ERRORS_TOTAL, "transport_retries_exceeded"),
    "rnr_naks_rcvd": Reading(c.NIC_ERRORS_TOTAL, "receiver_not_ready"),
    "rx_out_of_buffer": Reading(c.NIC_ERRORS_TOTAL, "out_of_buffer"),
    "rx_roce_errors": Reading(c.NIC_ERRORS_TOTAL, "receive"),
    "tx_roce_errors": Reading(c.NIC_ERRORS_TOTAL, "transmit"),
    "rx_roce_discards": Reading(c.NIC_RECEIVE_DROPS_TOTAL),
    "tx_roce_discards": Reading(c.NIC_TRANSMIT_DROPS_TOTAL),
    "tx_cnp_pkts": Reading(c.NIC_CONGESTION_NOTICES_TOTAL, "sent"),
    "rx_cnp_pkts": Reading(c.NIC_CONGESTION_NOTICES_TOTAL, "handled"),
    "rx_ecn_marked_pkts": Reading(c.NIC_ECN_MARKED_PACKETS_TOTAL),
    # irdma
    "RetransSegs": Reading(c.NIC_RETRANSMITS_TOTAL, "any"),
    "tcpRetransSegs": Reading(c.NIC_RETRANSMITS_TOTAL, "any"),
    "cnpSent": Reading(c.NIC_CONGESTION_NOTICES_TOTAL, "sent"),
    "cnpHandled": Reading(c.NIC_CONGESTION_NOTICES_TOTAL, "handled"),
    "cnpIgnored": Reading(c.NIC_CONGESTION_NOTICES_TOTAL, "ignored"),
    "RxECNMrkd": Reading(c.NIC_ECN_MARKED_PACKETS_TOTAL),
    # hfi1
    "RcResend": Reading(c.NIC_RETRANSMITS_TOTAL, "any"),
    "RcTimeOut": Reading(c.NIC_TIMEOUTS_TOTAL),
    "PktDrop": Reading(c.NIC_RECEIVE_DROPS_TOTAL),
}
_INTERFACE: Mapping[str, Reading] = {
    "rx_bytes": Reading(c.NIC_RECEIVE_BYTES_TOTAL),
    "tx_bytes": Reading(c.NIC_TRANSMIT_BYTES_TOTAL),
    "rx_packets": Reading(c.NIC_RECEIVE_PACKETS_TOTAL),
    "tx_packets": Reading(c.NIC_TRANSMIT_PACKETS_TOTAL),
    "rx_dropped": Reading(c.NIC_RECEIVE_DROPS_TOTAL),
    "tx_dropped": Reading(c.NIC_TRANSMIT_DROPS_TOTAL),
    "rx_errors": Reading(c.NIC_ERRORS_TOTAL, "receive"),
    "tx_errors": Reading(c.NIC_ERRORS_TOTAL, "transmit"),
    "rx_crc_errors": Reading(c.NIC_ERRORS_TOTAL, "crc"),
    "rx_fifo_errors": Reading(c.NIC_ERRORS_TOTAL, "fifo"),
    "rx_over_errors": Reading(c.NIC_ERRORS_TOTAL, "over"),
}
_TABLES: Mapping[str, Mapping[str, Reading]] = {
    "traffic": _TRAFFIC,
    "errors": _ERRORS,
    "driver": _DRIVER,
    "interface": _INTERFACE,
}
# what the card threw away for want of host buffers; /proc/net/dev adds the two as well
_ALSO_DROPPED: Mapping[str, str] = {"rx_dropped": "rx_missed_errors"}
_LINK_LAYERS: Mapping[str, str] = {"1": "Ethernet", "32": "InfiniBand"}  # ARPHRD_*
_OPERSTATES: Mapping[str, int] = {
    "up": 1, "down": 0, "lowerlayerdown": 0, "dormant": 0, "testing": 0, "notpresent": 0,
}  # fmt: skip


class _Counter(NamedTuple):
    """One series: where it is read, and how. `twin` is a second file of the same quantity."""

    reading: Reading
    labels: tuple[str, ...]
    saturated: tuple[str, str, str]
    part: str
    path: str
    twin: str = ""


class _Set(NamedTuple):
    """Counters that the kernel fetches together: refused together as well."""

    key: str
    counters: tuple[_Counter, ...]


class _Port(NamedTuple):
    """An RDMA port as the inventory found it. `state` and `rate` are "" where there is no use."""

    name: str
    labels: tuple[str, str]
    info: Sample
    state: str
    rate: str
    sets: tuple[_Set, ...]


class _Interface(NamedTuple):
    """A network interface as the inventory found it."""

    name: str
    labels: tuple[str, str]
    info: Sample
    operstate: str
    speed: str
    changes: str
    sets: tuple[_Set, ...]


class _Device(NamedTuple):
    """What all ports of an RDMA device share."""

    name: str
    path: str
    driver: str
    firmware: str
    board: str
    virtual: str
    efa: bool


class NetworkSource:
    """Counters, state and rate of every RDMA port and network interface.

    `root` is where the machine's `/sys` hangs; `exclude` leaves out devices and interfaces whose
    name it matches at the start. Which devices, ports and files there are is looked up anew every
    `relist` reads, and on the read after a file vanished. Counters that a driver refuses (EINVAL,
    EOPNOTSUPP) are left alone for `backoff` reads: on the restricted functions of B200 and B300
    boards each attempt writes a line to the kernel log (node_exporter 3434, gpud 1164).

    Raises `FileNotFoundError` if there is neither an RDMA device nor an interface; `OSError` if
    nothing could be listed. A part that fails is a `Fault` and costs nothing else.

    An interface is hardware if `driver` is not empty: bonds and VLANs count their members' bytes
    again. `nic_receive_drops_total` of an interface includes what the card missed.

        nic_info{device="mlx5_0",port="1",link_layer="InfiniBand",driver="mlx5_core",
          firmware="28.41.1000",board="MT_0000000838",netdev="ib0",virtual="false"} 1
        nic_up{device="mlx5_0",port="1"} 1
        nic_link_rate_bytes_per_second{device="mlx5_0",port="1"} 50000000000
        nic_receive_bytes_total{device="mlx5_0",port="1"} 922159499729932
        nic_errors_total{device="mlx5_0",port="1",cause="buffer_overrun"} 15
        nic_saturated{device="mlx5_0",port="1",counter="excessive_buffer_overrun_errors"} 1
        nic_up{device="eth0",port=""} 1
    """

    name = "network"
    group = c.NIC

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        exclude: re.Pattern[str] | str = DEFAULT_EXCLUDE,
        files: Files | None = None,
        relist: int = 12,
        backoff: int = 720,
    ) -> None:
        self._rdma = str(root / "sys/class/infiniband")
        self._net = str(root / "sys/class/net")
        self._exclude = re.compile(exclude)
        self._files = Files() if files is None else files
        self._every = relist
        self._patience = _Patience(backoff)
        self._reads = 0
        self._relist_at = 0
        self._ports: tuple[_Port, ...] = ()
        self._interfaces: tuple[_Interface, ...] = ()
        self._troubles: tuple[Fault, ...] = ()
        self._speeds: dict[str, tuple[int, float | None]] = {}

    def read(self) -> Iterator[Sample | Fault | Drop]:
        """Read every port once; see the class for what is raised."""
        self._reads += 1
        if self._reads >= self._relist_at:
            self._take_inventory()
        yield from self._troubles
        for port in self._ports:
            yield from self._read_port(port)
        for interface in self._interfaces:
            yield from self._read_interface(interface)

    def close(self) -> None:
        """Close the kept files."""
        self._files.close()

    # ------------------------------------------------------------ reading

    def _read_port(self, port: _Port) -> Iterator[Sample | Fault]:
        yield port.info
        faults: list[Fault] = []
        state = sysfs.state(self._text(port.state, f"{port.name}/state", faults))
        if state is not None:
            yield Sample(c.NIC_UP, port.labels, int(state == _ACTIVE))
        # a port that is down still prints a rate, which is a fallback of the driver
        if state == _ACTIVE:
            rate = sysfs.rate(self._text(port.rate, f"{port.name}/rate", faults))
            if rate is not None:
                yield Sample(c.NIC_LINK_RATE_BYTES_PER_SECOND, port.labels, rate)
        yield from faults
        for counters in port.sets:
            yield from self._read_set(counters)

    def _read_interface(self, interface: _Interface) -> Iterator[Sample | Fault]:
        yield interface.info
        name, labels = interface.name, interface.labels
        faults: list[Fault] = []
        # "unknown" is what drivers without carrier detection say: then we do not know either
        state = sysfs.word(self._text(interface.operstate, f"{name}/operstate", faults))
        up = _OPERSTATES.get(state)
        if up is not None:
            yield Sample(c.NIC_UP, labels, up)
        changes = sysfs.number(self._text(interface.changes, f"{name}/carrier_changes", faults))
        if changes is not None:
            yield Sample(c.NIC_CARRIER_CHANGES_TOTAL, labels, changes)
        if up == 1:
            speed = self._speed(interface, changes, faults)
            if speed is not None:
                yield Sample(c.NIC_LINK_RATE_BYTES_PER_SECOND, labels, speed)
        yield from faults
        for counters in interface.sets:
            yield from self._read_set(counters)

    def _speed(
        self, interface: _Interface, changes: int | None, faults: list[Fault]
    ) -> float | None:
        """Return the rate; ask the driver after a link change only: it needs a global lock."""
        known = self._speeds.get(interface.name)
        if known is not None and known[0] == changes:
            return known[1]
        failed = len(faults)
        speed = sysfs.speed(self._text(interface.speed, f"{interface.name}/speed", faults))
        if changes is not None and len(faults) == failed:
            self._speeds[interface.name] = (changes, speed)
        return speed

    def _text(self, path: str, part: str, faults: list[Fault]) -> bytes:
        """Return a file's content; nothing if there is no such file or it cannot be read."""
        if not path:
            return b""
        try:
            return self._files.read(path)
        except FileNotFoundError as error:  # the device was pulled, or reset
            self._relist_at = 0
            faults.append(Fault.of(part, error))
        except OSError as error:
            faults.extend(self._blame(part, error))
        return b""

    def _read_set(self, counters: _Set) -> Iterator[Sample | Fault]:
        """Yield a set's counters; if the first one is refused, leave the set alone for a while."""
        reads, patience, read = self._reads, self._patience, self._files.read
        if patience.rests(counters.key, reads):
            return
        answered = False
        for counter in counters.counters:
            if patience.rests(counter.path, reads):
                continue
            try:
                value = sysfs.number(read(counter.path))
                if counter.twin:
                    value = self._with_twin(counter, value)
            except OSError as error:
                yield from self._blame(counter.part, error)
                if error.errno in _UNSUPPORTED:
                    if not answered:
                        patience.refused(counters.key, reads)
                        return
                    patience.refused(counter.path, reads, short=True)
                continue
            answered = True
            if value is not None:
                yield from _samples(counter, value)
        if answered:
            patience.answered(counters.key)

    def _with_twin(self, counter: _Counter, value: int | None) -> int | None:
        """Return the counter together with its twin: the greater of the two, or their sum."""
        try:
            twin = sysfs.number(self._files.read(counter.twin))
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            twin = None
        if counter.reading.top:
            return max((v for v in (value, twin) if v is not None), default=None)
        return None if value is None or twin is None else value + twin

    def _blame(self, part: str, error: OSError) -> Iterator[Fault]:
        """Yield the fault that an error is; "not supported" and a file that left are none."""
        if error.errno in _UNSUPPORTED:
            return
        if error.errno in (errno.ENOENT, errno.ENODEV):
            self._relist_at = 0
        if error.errno != errno.ENOENT:
            yield Fault.of(part, error)

    # ------------------------------------------------------------ inventory

    def _take_inventory(self) -> None:
        """Look up which devices, ports and files there are."""
        self._relist_at = self._reads + self._every
        self._files.sweep()
        self._speeds.clear()
        errors: list[tuple[str, OSError]] = []
        self._ports = tuple(
            port
            for name in self._listed(self._rdma, errors)
            for port in self._ports_of(name, errors)
        )
        self._interfaces = tuple(
            interface
            for name in self._listed(self._net, errors)
            for interface in self._interface_of(name, errors)
        )
        self._troubles = tuple(Fault.of(part, error) for part, error in errors)
        sets = [found for port in self._ports for found in port.sets]
        sets += [found for interface in self._interfaces for found in interface.sets]
        self._patience.keep_only(
            {found.key for found in sets} | {n.path for found in sets for n in found.counters}
        )
        if not self._ports and not self._interfaces:
            self._relist_at = 0
            if errors:
                raise errors[0][1]
            raise FileNotFoundError(
                f"no RDMA device below {self._rdma} and no network interface below {self._net}"
                " (that is not excluded)"
            )

    def _listed(self, path: str, errors: list[tuple[str, OSError]]) -> list[str]:
        """Return the names below a class folder that are not excluded."""
        return [n for n in self._names(path, path, errors) if not self._exclude.match(n)]

    def _names(self, path: str, part: str, errors: list[tuple[str, OSError]]) -> list[str]:
        """Return the names in a folder; a folder that is not there, or is none, holds nothing."""
        try:
            return self._files.names(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            errors.append((part, error))
            return []

    def _ports_of(self, name: str, errors: list[tuple[str, OSError]]) -> Iterator[_Port]:
        path = f"{self._rdma}/{name}"
        driver = self._driver(path)
        shown = sysfs.printable(name)
        device = _Device(
            shown,
            path,
            driver,
            firmware=self._word(f"{path}/fw_ver"),
            board=self._word(f"{path}/board_id"),
            virtual=self._virtual(path),
            efa=driver == "efa" or (not driver and self._looks_like_efa(name, path)),
        )
        ports = self._names(f"{path}/ports", f"{shown}/ports", errors)
        for port in ports:
            if port.isdecimal():
                yield self._port(device, port, errors, alone=len(ports) == 1)

    def _port(
        self, device: _Device, port: str, errors: list[tuple[str, OSError]], *, alone: bool
    ) -> _Port:
        base, name = f"{device.path}/ports/{port}", f"{device.name}/{port}"
        labels = (device.name, port)
        there = self._names(base, name, errors)
        layer = "EFA" if device.efa else self._word(f"{base}/link_layer")
        netdev = self._netdev(device, port, alone=alone)
        info = c.NIC_INFO(
            1, *labels, layer, device.driver, device.firmware, device.board, netdev, device.virtual
        )
        state = f"{base}/state" if "state" in there else ""
        # the EFA driver says ACTIVE and 100 Gb/sec whatever happens
        rate = f"{base}/rate" if "rate" in there and not device.efa else ""
        sets = tuple(self._sets_of(device, port, errors, alone=alone))
        return _Port(name, labels, info, state, rate, sets)

    def _sets_of(
        self, device: _Device, port: str, errors: list[tuple[str, OSError]], *, alone: bool
    ) -> Iterator[_Set]:
        base, name = f"{device.path}/ports/{port}", f"{device.name}/{port}"
        find = _Finder((device.name, port)).find
        folder = f"{base}/counters"
        names = self._names(folder, f"{name}/counters", errors)
        wide = self._names(f"{base}/counters_ext", f"{name}/counters_ext", errors)
        twins = {n: f"{base}/counters_ext/{w}" for n, w in _WIDE.items() if w in wide}
        yield from find("traffic", folder, name, names, twins)
        yield from find("errors", folder, name, names)
        folder = f"{base}/hw_counters"
        names = self._names(folder, f"{name}/hw_counters", errors)
        yield from find("driver", folder, name, names)
        if alone:
            # counters of the whole device are those of its only port
            folder = f"{device.path}/hw_counters"
            names = self._names(folder, f"{device.name}/hw_counters", errors)
            yield from find("driver", folder, device.name, names)

    def _interface_of(self, name: str, errors: list[tuple[str, OSError]]) -> Iterator[_Interface]:
        base, name = f"{self._net}/{name}", sysfs.printable(name)
        there = self._names(base, name, errors)
        if "operstate" not in there:
            return  # /sys/class/net holds files as well: bonding_masters
        labels = (name, "")
        layer = _LINK_LAYERS.get(self._word(f"{base}/type"), "")
        driver = self._driver(base)
        info = c.NIC_INFO(1, *labels, layer, driver, "", "", name, self._virtual(base))
        names = self._names(f"{base}/statistics", f"{name}/statistics", errors)
        twins = {n: f"{base}/statistics/{t}" for n, t in _ALSO_DROPPED.items() if t in names}
        find = _Finder(labels).find
        yield _Interface(
            name,
            labels,
            info,
            f"{base}/operstate",
            f"{base}/speed" if "speed" in there else "",
            f"{base}/carrier_changes" if "carrier_changes" in there else "",
            tuple(find("interface", f"{base}/statistics", name, names, twins)),
        )

    def _word(self, path: str) -> str:
        """Return a short text, "" if it cannot be read: identity is often missing."""
        try:
            return sysfs.word(self._files.glance(path))
        except OSError:
            return ""

    def _driver(self, path: str) -> str:
        return sysfs.printable(self._files.target(f"{path}/device/driver"))

    def _virtual(self, path: str) -> str:
        """Return "true" for an SR-IOV virtual function: its device links to the physical one."""
        return "true" if self._files.target(f"{path}/device/physfn") else "false"

    def _looks_like_efa(self, name: str, path: str) -> bool:
        """Tell an EFA device whose driver link is missing: by PCI vendor (Amazon), or by name."""
        vendor = self._word(f"{path}/device/vendor")
        # udev names RDMA devices of no known fabric "rdmap<bus>s<slot>"
        return vendor == "0x1d0f" or (not vendor and bool(re.match(r"rdmap\d+s\d+|efa_\d", name)))

    def _netdev(self, device: _Device, port: str, *, alone: bool) -> str:
        """Return the interface of an RDMA port, "" if it has none or more than one could be it."""
        # the GID table knows best (a bond's RDMA device lists one member below device/net)
        bound = self._word(f"{device.path}/ports/{port}/gid_attrs/ndevs/0")
        if bound:
            return bound
        names = self._names(f"{device.path}/device/net", device.name, [])
        if not alone:
            number = str(int(port) - 1)
            names = [
                n for n in names
                if self._word(f"{device.path}/device/net/{n}/dev_port") == number
            ]  # fmt: skip
        # sub-interfaces and representors are named after the first one
        return sysfs.printable(min(names, key=lambda n: (len(n), n), default=""))


class _Patience:
    """Knows which counters were refused, and at which read to ask for them again.

    A set that never answered rests for the longest time at once. One that did may only be in the
    middle of a reset, which looks the same: it rests for a short time, then for twice as long.
    """

    def __init__(self, longest: int, shortest: int = 12) -> None:
        self._longest, self._shortest = longest, shortest
        self._resting: dict[str, tuple[int, int]] = {}
        self._answered: set[str] = set()

    def rests(self, key: str, now: int) -> bool:
        """Tell whether to leave this alone at read number `now`."""
        return bool(self._resting) and now < self._resting.get(key, (0, 0))[0]

    def refused(self, key: str, now: int, *, short: bool = False) -> None:
        """Note that the driver refused; `short` for one file of a set that answers otherwise."""
        wait = self._longest
        if short or key in self._answered:
            last = self._resting.get(key, (0, 0))[1]
            wait = min(last * 2 or self._shortest, self._longest)
        self._resting[key] = (now + wait, wait)

    def answered(self, key: str) -> None:
        """Note that the driver answered."""
        self._answered.add(key)
        self._resting.pop(key, None)

    def keep_only(self, keys: AbstractSet[str]) -> None:
        """Forget everything else: a device that comes back is a new one."""
        self._answered &= keys
        self._resting = {k: v for k, v in self._resting.items() if k in keys}


class _Finder:
    """Plans the counters of one port, each series once: the first file that has it wins."""

    def __init__(self, labels: tuple[str, str]) -> None:
        self._labels = labels
        self._taken: set[tuple[Metric, str | None]] = set()

    def find(
        self,
        kind: str,
        folder: str,
        part: str,
        names: Sequence[str],
        twins: Mapping[str, str] = {},
    ) -> Iterator[_Set]:
        """Yield the counters of one table that a folder has, as a set; nothing if it has none."""
        table = _TABLES[kind]
        counters = []
        for name in names:
            # hfi1 writes a width after the name, mlx5 a prefix in switchdev mode
            reading = table.get(name.partition(",")[0].removeprefix("vport_"))
            if reading is None or (reading.metric, reading.label) in self._taken:
                continue
            self._taken.add((reading.metric, reading.label))
            shown = sysfs.printable(name)
            own = (*self._labels, shown)
            labels = self._labels if reading.label is None else (*self._labels, reading.label)
            path = f"{folder}/{name}"
            counters.append(
                _Counter(reading, labels, own, f"{part}/{shown}", path, twins.get(name, ""))
            )
        if counters:
            yield _Set(f"{folder} {kind}", tuple(counters))


def _samples(counter: _Counter, value: int) -> Iterator[Sample]:
    """Yield a counter, and that it stands at its top if it does."""
    reading = counter.reading
    if value == reading.top and reading.top:
        yield Sample(c.NIC_SATURATED, counter.saturated, 1)
        if reading.fast:
            return
    yield Sample(reading.metric, counter.labels, value * reading.scale)
    if reading.also is not None:
        yield Sample(reading.also, counter.labels[:2], value)
