"""The source: when the inventory is taken, who reads what, and what is told of all ports together.

Each device is read as a job of its own, so that one whose firmware is dead costs the others
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from exporter import catalogue as c
from exporter.clock import Clock, SystemClock
from exporter.files import Files
from exporter.samples import Drop, Fault, Malformed, Remembered, Sample
from exporter.sources.network.expectations import Seen, devices_stated, judge
from exporter.sources.network.inventory import Device, Found, Inventory
from exporter.sources.network.layout import Port, Told
from exporter.sources.network.reading import DeviceReader
from exporter.sources.network.remembered import MOST_REMEMBERED, Remembrance
from exporter.sources.network.surroundings import Surroundings

DEFAULT_EXCLUDE = (
    r"lo$|veth|docker|br-|br\d|cni|flannel|cali|cilium|lxc|lxd|virbr|vnet|tap|tun|kube|dummy|ifb"
    r"|sit\d|ip6tnl|ip6gre|ip_vti|ip6_vti|gre|erspan|vxlan|geneve|nodelocaldns|wg|weave|antrea"
    r"|ovs-|azv|eni[0-9a-f]{11}$|gke[0-9a-f]{11}$|nerdctl|podman"
)
"""Loopback, and what containers, bridges and tunnels create; matched at the start of the name."""

_KEPT_FILES, _FEWEST_KEPT = 768, 24
"""Descriptors that are kept, of all devices together: many a daemon may have 1024 at most."""
_LOOK = "inventory"
_OF_LOOK = 0.5
"""The share of the time that the inventory may take; the devices have what is left."""


class Crew(Protocol):
    """Does named jobs; one that hangs costs itself only (`exporter.workers`)."""

    def run(self, jobs: dict[str, Callable[[], Any]], seconds: float) -> dict[str, Any]:
        """Return what each job returned or raised within so many seconds."""

    def away(self) -> dict[str, float]:
        """Return the jobs that are not back, and for how many seconds."""

    def dismiss(self) -> None:
        """End all threads."""


class _Alone:
    """Does jobs in the thread of who asks: nothing bounds them."""

    def run(self, jobs: dict[str, Callable[[], Any]], seconds: float) -> dict[str, Any]:
        """Do each job."""
        del seconds
        return {name: job() for name, job in jobs.items()}

    def away(self) -> dict[str, float]:
        """Return nothing: all are back."""
        return {}

    def dismiss(self) -> None:
        """Do nothing."""


class NetworkSource:
    """Counters, state and rate of every RDMA port and network interface.

    `root` is where the machine's `/sys` and `/proc` hang; `exclude` leaves out devices and
    interfaces whose name it matches at the start, `exclude_devices` RDMA devices. `raw` adds every
    number of every counter file. `expected` are patterns of ports that ought to be up. Which
    devices, ports and files there are is looked up anew every `relist` reads, and on the read after
    a file vanished. Counters that a driver refuses (EINVAL, EOPNOTSUPP) are left alone for
    `backoff` reads: on the restricted functions of B200 and B300 boards each attempt writes a line
    to the kernel log (node_exporter 3434, gpud 1164). `crew` reads the devices, within `seconds`.
    What was seen stands in `memories`; it is worth something in the same `boot` of the machine.

    Raises `FileNotFoundError` if there is neither an RDMA device nor an interface; `OSError` if
    nothing could be listed. A part that fails is a `Fault` and costs nothing else.

        nic_info{device="mlx5_0",port="1",link_layer="InfiniBand",driver="mlx5_core",
          firmware="28.41.1000",board="MT_0000000838",netdev="ib0",virtual="false"} 1
        nic_device_info{device="mlx5_0",port="1",pci_bus_id="0000:1a:00.0",numa_node="0",
          master="",physical="true",role="fabric",restricted="false",model="MT4129"} 1
        nic_up{device="mlx5_0",port="1"} 1
        nic_expected_up{device="mlx5_0",port="1",reason="seen_up"} 1
        nic_port_state{device="mlx5_0",port="1"} 4
        nic_port_physical_state{device="mlx5_0",port="1"} 5
        nic_state_changes_total{device="mlx5_0",port="1"} 0
        nic_link_rate_bytes_per_second{device="mlx5_0",port="1"} 50000000000
        nic_receive_bytes_total{device="mlx5_0",port="1"} 922159499729932
        nic_errors_total{device="mlx5_0",port="1",cause="buffer_overrun"} 15
        nic_saturated{device="mlx5_0",port="1",
          counter="excessive_buffer_overrun_errors"} 1
        nic_raw_total{device="mlx5_0",port="1",counter="out_of_sequence",folder="hw_counters"} 7
        nic_device_missing{device="mlx5_7"} 1
        nic_up{device="eth0",port=""} 1
    """

    name = "network"
    group = c.NIC

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        exclude: re.Pattern[str] | str = DEFAULT_EXCLUDE,
        exclude_devices: re.Pattern[str] | str | None = None,
        raw: bool = False,
        expected: Sequence[str] = (),
        files: Callable[[int], Files] = Files,
        crew: Crew | None = None,
        seconds: float = 2.0,
        relist: int = 12,
        backoff: int = 720,
        memories: MutableMapping[str, Any] | None = None,
        recall: Callable[[], None] = lambda: None,
        boot: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._files = files
        self._glances = files(_FEWEST_KEPT)
        base = "" if str(root) == "/" else str(root)
        self._inventory = Inventory(
            self._glances,
            base,
            re.compile(exclude),
            None if exclude_devices is None else re.compile(exclude_devices),
            raw=raw,
        )
        self._surroundings = Surroundings(self._glances, base)
        self._expected = tuple(expected)
        self._stated = devices_stated(expected)
        self._crew: Crew = _Alone() if crew is None else crew
        self._seconds = seconds
        self._every = relist
        self._backoff = backoff
        self._memories = {} if memories is None else memories
        self._recall = recall
        self._boot = boot
        self._clock = SystemClock() if clock is None else clock
        self._reads = 0
        self._relist_at = 0
        self._readers: dict[str, DeviceReader] = {}
        self._devices: tuple[Device, ...] = ()
        self._looked: Any = None
        self._troubles: tuple[Fault, ...] = ()
        self._unseen: frozenset[str] = frozenset()
        self._remembered = Remembrance()
        self._laps: dict[str, Any] = {}  # by device; of one that is not back, what was known last

    def read(self) -> Iterator[Sample | Fault | Drop]:
        """Read every port once; see the class for what is raised."""
        self._reads += 1
        if self._reads == 1:
            yield from self._take_over()
        began = self._clock.monotonic()
        if self._reads >= self._relist_at:
            self._take_inventory()
        yield from self._troubles
        jobs = {device.key: self._readers[device.key].read for device in self._devices}
        results = self._crew.run(jobs, self._seconds - (self._clock.monotonic() - began))
        seen: list[Seen] = []
        for device in self._devices:
            yield from self._tell(device, results[device.key], seen)
        for labels, (ought, reason) in judge(seen, self._expected).items():
            yield Sample(c.NIC_EXPECTED_UP, (*labels, reason), ought)
        for name in self._missing():
            yield Sample(c.NIC_DEVICE_MISSING, (name,), 1)
        self._keep({key for key, result in results.items() if isinstance(result, list)})

    def close(self) -> None:
        """Close the kept files."""
        away = self._crew.away()
        self._crew.dismiss()
        for key, reader in self._readers.items():
            reader.close(away=key in away)
        self._glances.close()

    # ------------------------------------------------------------ telling

    def _tell(
        self, device: Device, result: list[Told] | BaseException, seen: list[Seen]
    ) -> Iterator[Sample | Fault | Drop]:
        if isinstance(result, Exception):
            yield Fault.of(device.name, result)
            return
        if isinstance(result, BaseException):
            raise result
        reader = self._readers[device.key]
        if reader.vanished:
            self._relist_at = 0
        for port, told in zip(reader.ports, result, strict=True):
            restricted = "true" if told.restricted else "false"
            yield port.info
            yield Sample(c.NIC_DEVICE_INFO, (*port.labels, *port.about, restricted, port.model), 1)
            yield from told.items
            if told.up is not None:
                yield from self._note(port, told.up)
            before = self._remembered.been_up(port.name)
            seen.append(Seen(port, told.up, told.disabled, before))

    def _note(self, port: Port, up: int) -> Iterator[Sample]:
        """Note a port's state; the kernel itself counts how often an interface's changes."""
        changes = self._remembered.see(port.name, up)
        if port.state:
            yield Sample(c.NIC_STATE_CHANGES_TOTAL, port.labels, changes)

    def _missing(self) -> list[str]:
        """Return who has gone: of a class folder that cannot be listed, nobody is known to have."""
        there = {device.name for device in self._devices}
        gone = self._remembered.missing(
            self._devices,
            unseen=self._unseen,
            excluded=lambda name, rdma: self._inventory.excludes(name, rdma=rdma),
            on_bus=self._surroundings.on_bus,
        )
        if "rdma" not in self._unseen:
            gone += [name for name in self._stated if name not in there]
        return sorted(set(gone))

    # ------------------------------------------------------------ inventory

    def _take_inventory(self) -> None:
        """Look up which devices, ports and files there are; if that hangs, go on with the former.

        What says who a device is, is the driver's to answer as well.
        """
        looked, self._looked = self._looked, None
        late = looked is not None  # the answer to the last read's question
        if looked is None:
            looked = self._crew.run({_LOOK: self._look}, self._seconds * _OF_LOOK)[_LOOK]
        if isinstance(looked, BaseException):
            if not isinstance(looked, TimeoutError) or not self._devices:
                raise looked
            self._troubles = (Fault.of(_LOOK, looked),)
            return
        self._looked = None
        self._relist_at = self._reads + (1 if late else self._every)
        found, strangers = looked
        # what is beyond the most series that may be told is that of virtual functions
        self._devices = tuple(sorted((*found.rdma, *found.interfaces), key=_is_virtual))
        parts = {part for part, _ in found.errors}
        classes = {"rdma": self._inventory.rdma, "net": self._inventory.net}
        self._unseen = frozenset(kind for kind, path in classes.items() if path in parts)
        self._remembered.notice(self._devices)
        self._prepare()
        if not self._devices:
            self._relist_at = 0
            if found.errors:
                raise found.errors[0][1]
            if not self._stated:
                raise FileNotFoundError(
                    f"no RDMA device below {self._inventory.rdma} and no network interface below"
                    f" {self._inventory.net} (that is not excluded)"
                    + "".join(f"; {fault.part}: {fault.detail}" for fault in strangers)
                )
        self._troubles = (
            *(Fault.of(part, error) for part, error in found.errors),
            *found.faults,
            *strangers,
        )

    def _look(self) -> tuple[Found, tuple[Fault, ...]]:
        found = self._inventory.take(self._surroundings.gateways())
        looked = found, tuple(self._strangers(found.rdma, found.interfaces))
        self._looked = looked
        return looked

    def _strangers(self, rdma: Sequence[Device], interfaces: Sequence[Device]) -> Iterator[Fault]:
        try:
            names = self._glances.names(self._inventory.net)
        except OSError:
            names = []
        hardware = any(device.pci or device.ports[0].physical for device in interfaces)
        return self._surroundings.strangers(names, rdma=bool(rdma), hardware=hardware)

    def _prepare(self) -> None:
        """Have a reader for each device, and none for what has gone."""
        keys, away = {device.key for device in self._devices}, self._crew.away()
        for key in [key for key in self._readers if key not in keys]:
            self._readers.pop(key).close(away=key in away)
        most = _KEPT_FILES // max(1, len(keys))
        for device in self._devices:
            if device.key not in self._readers:
                reader = DeviceReader(self._files(most), self._backoff)
                reader.restore(self._laps.get(device.key))
                self._readers[device.key] = reader
            if device.key not in away:
                self._readers[device.key].prepare(device.ports, most)

    # ------------------------------------------------------------ memory

    def _take_over(self) -> Iterator[Fault]:
        """Go on where a predecessor was."""
        self._recall()
        former = self._memories.get(self.name)
        if not isinstance(former, Remembered):
            return
        try:
            plain: Any = former.plain
            if plain["boot"] == self._boot:
                self._remembered.restore(plain["ports"])
                self._laps = dict(plain["laps"])
        except (LookupError, TypeError, ValueError, Malformed) as error:
            yield Fault("memory", "malformed", f"{type(error).__name__}: {error}")

    def _keep(self, back: Collection[str]) -> None:
        for key in back:
            known = self._readers[key].memory()
            if known is None:
                self._laps.pop(key, None)
            elif key in self._laps or len(self._laps) < MOST_REMEMBERED:
                self._laps[key] = known
        plain = {"boot": self._boot, "ports": self._remembered.memory(), "laps": dict(self._laps)}
        self._memories[self.name] = Remembered(plain, self._clock.monotonic())


def _is_virtual(device: Device) -> bool:
    return any(port.virtual for port in device.ports)
