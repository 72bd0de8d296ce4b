"""What drivers tell of their Ethernet interfaces beyond `/sys`: pauses, discards, FEC, optics.

Only hardware is asked: an interface with a device behind it. Names are brought to one vocabulary
(`formats.ethtool`); patterns choose which others are told beside that, by the driver's name.
Traffic, state and rate of the interface are left to `network`.
"""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from exporter import catalogue as c
from exporter.ethtool import Driver, Ethtool, Link, Module
from exporter.files import Files
from exporter.formats import ethtool as names
from exporter.formats import optics, sysfs
from exporter.samples import Drop, Fault, Malformed, Metric, Sample

DEFAULT_COUNTERS = (
    r"(rx|tx)_(cqe|wqe)_err", r"rx_buff_alloc_err", r"rx_steer_missed_packets",
    r"tx_queue_stopped", r"(tx_)?tx_timeouts?", r".*_resets?", r"continuous_(roce_)?pause_events",
    r"pci_bw_.*", r"wd_expired", r"suspend",
)  # fmt: skip
"""Names that are told beside the canonical ones: signs of trouble that have no family."""

# A statistic that goes up and down is no counter, whatever pattern asks for it.
_LEVELS = re.compile(r"peer_ifindex|outbound_pci_stalled_(rd|wr)|.*(_cur|_current|_active)")
_UNSUPPORTED = frozenset((errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENOTTY))
_GONE = frozenset((errno.ENODEV, errno.ENXIO, errno.ENOENT))
_MOST_INTERFACES = 64
_PAUSE: Mapping[tuple[bool, bool], str] = {
    (False, False): "none", (True, False): "receive", (False, True): "transmit",
    (True, True): "both",
}  # fmt: skip

_FAMILIES: Mapping[str, Metric] = {
    "receive_pause_frames": c.NIC_RECEIVE_PAUSE_FRAMES_TOTAL,
    "transmit_pause_frames": c.NIC_TRANSMIT_PAUSE_FRAMES_TOTAL,
    "receive_pause_seconds": c.NIC_RECEIVE_PAUSE_SECONDS_TOTAL,
    "transmit_pause_seconds": c.NIC_TRANSMIT_PAUSE_SECONDS_TOTAL,
    "receive_pause_episodes": c.NIC_RECEIVE_PAUSE_EPISODES_TOTAL,
    "transmit_pause_episodes": c.NIC_TRANSMIT_PAUSE_EPISODES_TOTAL,
    "pause_storms": c.NIC_PAUSE_STORM_EVENTS_TOTAL,
    "receive_discards": c.NIC_RECEIVE_DISCARDS_TOTAL,
    "transmit_discards": c.NIC_TRANSMIT_DISCARDS_TOTAL,
    "priority_discards": c.NIC_RECEIVE_PRIORITY_DISCARDS_TOTAL,
    "priority_marked": c.NIC_PRIORITY_ECN_MARKED_PACKETS_TOTAL,
    "ecn_marked": c.NIC_ECN_MARKED_PACKETS_TOTAL,
    "physical_errors": c.NIC_PHYSICAL_ERRORS_TOTAL,
    "link_downs": c.NIC_LINK_DOWNS_TOTAL,
    "fec_blocks": c.NIC_FEC_BLOCKS_TOTAL,
    "fec_uncorrected_symbols": c.NIC_FEC_UNCORRECTED_SYMBOLS_TOTAL,
    "fec_corrections": c.NIC_FEC_CORRECTIONS_TOTAL,
    "received_bytes": c.NIC_PHYSICAL_RECEIVE_BYTES_TOTAL,
    "lane_errors": c.NIC_LANE_ERRORS_TOTAL,
    "module_faults": c.NIC_MODULE_FAULTS_TOTAL,
    "receive_buffer_high": c.NIC_RECEIVE_BUFFER_HIGH_TOTAL,
    "pcie_errors": c.NIC_PCIE_ERRORS_TOTAL,
    "pcie_stalled": c.NIC_PCIE_STALLED_RATIO,
    "pcie_stalled_seconds": c.NIC_PCIE_STALLED_SECONDS_TOTAL,
    "allowance_exceeded": c.NIC_ALLOWANCE_EXCEEDED_PACKETS_TOTAL,
}
_OF_PRIORITIES = frozenset(("priority_discards", "priority_marked"))


class Door(Protocol):
    """What is asked of drivers, as `exporter.ethtool.Ethtool` does. Each call raises `OSError`."""

    def identity(self, interface: str) -> tuple[int, bytes]:
        """Return number and address of an interface of this network namespace."""

    def driver(self, interface: str) -> Driver:
        """Return who drives it."""

    def count(self, interface: str) -> int:
        """Return how many statistics it has."""

    def names(self, interface: str, count: int) -> Sequence[str]:
        """Return their names."""

    def values(self, interface: str, count: int) -> Sequence[int]:
        """Return their values."""

    def link(self, interface: str) -> Link:
        """Return the link's settings."""

    def pause(self, interface: str) -> tuple[bool, bool]:
        """Tell whether global pause frames are heeded, and sent."""

    def fec(self, interface: str) -> str:
        """Return the forward error correction in use."""

    def module(self, interface: str) -> Module:
        """Return the memory of the plugged module."""

    def close(self) -> None:
        """Let go of everything."""


class _Statistic(NamedTuple):
    """One that is told. `lossy`: only once it is not 0, being of a priority without PFC."""

    place: int
    metric: Metric
    labels: tuple[str, ...]
    factor: float
    lossy: bool = False


class _Table(NamedTuple):
    """What an interface's statistics are, as long as their number and driver stay the same."""

    key: tuple[object, ...]
    size: int
    told: tuple[_Statistic, ...]
    left_out: int


class _Interface(NamedTuple):
    """A hardware interface as the inventory found it. `info` is None where nothing is known."""

    name: str
    shown: str
    info: Sample | None
    table: _Table | None


class EthtoolSource:
    """Statistics and settings that drivers tell of hardware interfaces.

    `root` is where the machine's `/sys` hangs; `door` asks the drivers, in our own network
    namespace: an interface is read if it is the same in both. `exclude` leaves out interfaces whose
    name it matches at the start. `counters` are patterns of drivers' names that are told as
    `nic_ethtool_total` besides, unless one of `without` matches too; those of single queues only
    with `rings`, and at most `most` for each interface. `optics`: read the plugged modules, every
    `slow` reads; None: where the driver and our rights allow it. Interfaces, drivers and names are
    looked up anew every `relist` reads, and when the number of statistics has changed.

    An interface that is not supported or has gone is no fault; any other trouble is a `Fault` of
    that interface alone. Raises `FileNotFoundError` if `required` and there is nothing to ask.

        nic_ethernet_info{device="eth2",port="",driver="mlx5_core",firmware="22.36.1010",fec="rs",
          global_pause="none",medium="fibre"} 1
        nic_receive_pause_seconds_total{device="eth2",port="",priority="3"} 0.008134
        nic_transmit_pause_frames_total{device="eth2",port="",priority="3"} 1290418
        nic_receive_discards_total{device="eth2",port="",cause="port_buffer"} 0
        nic_lane_errors_total{device="eth2",port="",lane="3"} 17722623
        nic_module_temperature_celsius{device="eth2",port=""} 41.5
        nic_ethtool_total{device="eth2",port="",counter="rx_steer_missed_packets"} 194
    """

    name = "ethtool"
    group = c.NIC

    def __init__(
        self,
        root: Path = Path("/"),
        door: Door | None = None,
        *,
        exclude: re.Pattern[str] | str = "",
        counters: Sequence[str] = DEFAULT_COUNTERS,
        without: Sequence[str] = (),
        rings: bool = False,
        most: int = 64,
        optics: bool | None = None,
        required: bool = False,
        relist: int = 8,
        slow: int = 4,
        files: Files | None = None,
    ) -> None:
        self._net = str(root / "sys/class/net")
        self._door: Door = Ethtool() if door is None else door
        self._exclude = re.compile(exclude or r"(?!)")
        self._wanted = _any_of(counters)
        self._unwanted = _any_of(without)
        self._rings = rings
        self._most = most
        self._optics = optics
        self._required = required
        self._relist, self._slow = relist, slow
        self._files = Files() if files is None else files
        self._reads = self._relist_at = 0
        self._interfaces: tuple[_Interface, ...] = ()
        self._troubles: list[Fault] = []
        self._modules: dict[str, tuple[Sample, ...]] = {}
        self._lost: set[tuple[Metric, tuple[str, ...]]] = set()
        self._complained = False

    def read(self) -> Iterator[Sample | Fault | Drop]:
        """Ask every interface once; see the class for what is raised."""
        self._reads += 1
        if self._reads >= self._relist_at:
            self._take_inventory()
        yield from self._troubles
        if self._optics is not False and (self._reads - 1) % self._slow == 0:
            yield from self._look_at_modules()
        for interface in self._interfaces:
            if interface.info is not None:
                yield interface.info
            yield from self._statistics(interface)
            yield from self._modules.get(interface.name, ())

    def close(self) -> None:
        """Close the door."""
        self._door.close()
        self._files.close()

    # ------------------------------------------------------------ reading

    def _statistics(self, interface: _Interface) -> Iterator[Sample | Fault | Drop]:
        table = interface.table
        if table is None:
            return
        try:
            values = self._door.values(interface.name, table.size)
            if len(values) != table.size:  # queues were added, or PFC was switched on
                table = self._table(interface.name, interface.shown, None)
                values = () if table is None else self._door.values(interface.name, table.size)
                self._relist_at = 0
        except OSError as error:
            yield from self._blame(interface.shown, error)
            return
        if table is None:
            return
        if len(values) != table.size:
            flaw = Malformed(f"{table.size} names for {len(values)} statistics")
            yield Fault.of(interface.shown, flaw)
            return
        if table.left_out:
            yield Drop("cap", table.left_out)
        for one in table.told:
            value = values[one.place]
            if one.lossy:
                if value:
                    self._lost.add((one.metric, one.labels))
                elif (one.metric, one.labels) not in self._lost:
                    continue
            yield Sample(one.metric, one.labels, value if one.factor == 1 else value * one.factor)

    def _blame(self, part: str, error: OSError) -> Iterator[Fault]:
        """Yield the fault that an error is; "not supported" and an interface that left are none."""
        if error.errno in _GONE:
            self._relist_at = 0
        elif error.errno not in _UNSUPPORTED:
            yield Fault.of(part, error)

    def _look_at_modules(self) -> Iterator[Fault]:
        """Read the plugged modules: some milliseconds each, over a slow bus."""
        self._modules = {}
        for interface in self._interfaces:
            try:
                module = self._door.module(interface.name)
            except PermissionError as error:
                if self._optics is True:
                    yield Fault.of(f"{interface.shown}/module", error)
            except OSError as error:
                if self._optics is True:  # EIO and such: also what an empty cage says
                    yield from self._blame(f"{interface.shown}/module", error)
            else:
                told = optics.read(module.layout, module.memory)
                self._modules[interface.name] = tuple(_light(interface.shown, told))

    # ------------------------------------------------------------ inventory

    def _take_inventory(self) -> None:
        """Look up which interfaces there are, who drives them, and what they have to tell."""
        self._relist_at = self._reads + self._relist
        self._troubles = []
        former = {one.name: one for one in self._interfaces}
        there = self._hardware()
        # of hundreds of virtual functions none takes the place of a card's own interface
        here = sorted((name for name in there if self._is_ours(name)), key=self._is_virtual)
        self._interfaces = tuple(
            found
            for name in here[:_MOST_INTERFACES]
            if (found := self._interface(name, former.get(name))) is not None
        )
        if self._troubles:
            self._relist_at = 0
        if len(here) > _MOST_INTERFACES:
            error = OSError(errno.E2BIG, f"only the first {_MOST_INTERFACES} of {len(here)} asked")
            self._troubles.append(Fault.of("", error))
        if not here:
            self._complain(there)

    def _complain(self, there: Sequence[str]) -> None:
        """Say why there is nothing to ask; raise if that was demanded."""
        if there:
            say = (
                f"interfaces below {self._net} ({', '.join(there[:3])}) are not in our network"
                " namespace: run with the host's network to have their drivers' statistics"
            )
        else:
            say = f"no hardware interface below {self._net} (that is not excluded)"
        if self._required:
            self._relist_at = 0
            raise FileNotFoundError(say)
        if there and not self._complained:
            self._complained = True
            logging.getLogger(__name__).info("ethtool: %s", say)

    def _hardware(self) -> list[str]:
        """Return the interfaces with a device behind them."""
        return [
            name
            for name in self._names(self._net)
            if not self._exclude.match(name) and self._has_device(name)
        ]

    def _has_device(self, name: str) -> bool:
        try:
            return "device" in self._names(f"{self._net}/{name}")
        except OSError as error:
            self._troubles.append(Fault.of(sysfs.printable(name), error))
            return False

    def _is_virtual(self, name: str) -> bool:
        """Tell an SR-IOV virtual function, whose device links to the physical one."""
        return self._files.target(f"{self._net}/{name}/device/physfn") != ""

    def _names(self, folder: str) -> list[str]:
        """Return what is in a folder; nothing if it is not there, or none."""
        try:
            return self._files.names(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _is_ours(self, name: str) -> bool:
        """Tell whether an interface of `/sys` is the one of that name where our calls go."""
        try:
            index, address = self._door.identity(name)
            told = sysfs.number(self._files.glance(f"{self._net}/{name}/ifindex"))
            written = sysfs.word(self._files.glance(f"{self._net}/{name}/address"))
        except OSError:
            return False
        return told == index and written.lower().split(":")[:6] == [f"{o:02x}" for o in address]

    def _interface(self, name: str, former: _Interface | None) -> _Interface | None:
        """Return an interface with what its driver tells; None if it is gone already."""
        shown = sysfs.printable(name)
        try:
            info = self._info(name, shown)
            table = self._table(name, shown, former)
        except OSError as error:
            self._troubles.extend(self._blame(shown, error))
            return None
        return _Interface(name, shown, info, table)

    def _info(self, name: str, shown: str) -> Sample | None:
        """Return how the driver describes an interface; what it does not know is empty."""
        try:
            driver = self._door.driver(name)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return None
            raise
        fec, medium, pause = "", "", ""
        with suppress(OSError):
            medium = self._door.link(name).medium
        with suppress(OSError):
            fec = self._door.fec(name)
        with suppress(OSError):
            pause = _PAUSE[self._door.pause(name)]
        known = (sysfs.printable(text.strip()) for text in (driver.name, driver.firmware))
        return c.NIC_ETHERNET_INFO(1, shown, "", *known, fec, pause, medium)

    def _table(self, name: str, shown: str, former: _Interface | None) -> _Table | None:
        """Return what an interface's statistics mean; None if it has none. Raises `OSError`."""
        try:
            count = self._door.count(name)
            told = self._door.names(name, count)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return None
            raise
        key = (count, *told)
        if former is not None and former.table is not None and former.table.key == key:
            return former.table
        return self._plan(shown, tuple(told), key)

    def _plan(self, shown: str, told: tuple[str, ...], key: tuple[object, ...]) -> _Table:
        """Decide which statistics are told, and as what."""
        known = names.understand(told)
        lossless = {
            one.labels[0] for one in known.values()
            if one.quantity.endswith("_pause_frames") and one.labels[0].isdigit()
        }  # fmt: skip
        found = [
            _Statistic(
                place, _FAMILIES[one.quantity], (shown, "", *one.labels), one.factor,
                one.quantity in _OF_PRIORITIES and one.labels[0] not in lossless,
            )
            for place, one in known.items()
        ]  # fmt: skip
        labels = names.shown(told)
        raw = [
            _Statistic(place, c.NIC_ETHTOOL_TOTAL, (shown, "", labels[place]), 1)
            for place, name in enumerate(told)
            if place not in known and self._is_wanted(name.strip())
        ]
        left_out = max(0, len(raw) - self._most)
        return _Table(key, len(told), (*found, *raw[: self._most]), left_out)

    def _is_wanted(self, name: str) -> bool:
        if self._wanted is None or self._wanted.fullmatch(name) is None:
            return False
        if self._unwanted is not None and self._unwanted.fullmatch(name) is not None:
            return False
        if not self._rings and names.is_of_a_ring(name):
            return False
        return _LEVELS.fullmatch(name) is None


def _any_of(patterns: Sequence[str]) -> re.Pattern[str] | None:
    """Return one expression for several; None for none. Raises `re.error`."""
    return re.compile("|".join(f"(?:{one})" for one in patterns)) if patterns else None


def _light(shown: str, told: optics.Optics) -> Iterator[Sample]:
    """Yield what a module measures of itself."""
    if told.temperature is not None:
        yield c.NIC_MODULE_TEMPERATURE_CELSIUS(told.temperature, shown, "")
    for lane, watts in enumerate(told.received):
        yield c.NIC_MODULE_RECEIVE_POWER_WATTS(watts, shown, "", str(lane))
    for lane, watts in enumerate(told.sent):
        yield c.NIC_MODULE_TRANSMIT_POWER_WATTS(watts, shown, "", str(lane))


__all__ = ["DEFAULT_COUNTERS", "Door", "EthtoolSource"]
