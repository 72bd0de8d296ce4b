"""What outlives a read: which devices were there, which ports were up, how often they changed.

Kept for this run of the machine. After the next start of it cards may have been taken out, and
cables too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from exporter.formats import sysfs
from exporter.samples import Malformed
from exporter.sources.network.inventory import Device

MOST_REMEMBERED = 1024
"""Devices and ports that are remembered."""


class Remembrance:
    """Devices by class and name with their PCI address, and ports with what they have been."""

    def __init__(self) -> None:
        self._devices: dict[str, str] = {}
        self._up: dict[str, int] = {}
        self._been_up: set[str] = set()
        self._changes: dict[str, int] = {}

    def notice(self, devices: Iterable[Device]) -> None:
        """Note which devices are there."""
        for device in devices:
            if device.lasting and (
                device.key in self._devices or len(self._devices) < MOST_REMEMBERED
            ):
                self._devices[device.key] = device.pci

    def missing(
        self,
        devices: Iterable[Device],
        *,
        unseen: Collection[str],
        excluded: Callable[[str, bool], bool],
        on_bus: Callable[[str], bool],
    ) -> list[str]:
        """Return the names of devices that were there and are not.

        Of the classes `unseen` (rdma, net) it is not known what is there. One that has another name
        now, at the same place on the bus, is not missing; and what is now left out is forgotten. An
        interface may have gone to another network namespace: it is missing only if its card has
        left the bus.
        """
        there = [(device.key, device.pci) for device in devices]
        keys = {key for key, _ in there}
        places = {(key.partition(" ")[0], pci) for key, pci in there if pci}
        gone = []
        for key, pci in list(self._devices.items()):
            kind, _, name = key.partition(" ")
            if excluded(name, kind == "rdma") or ((kind, pci) in places and key not in keys):
                del self._devices[key]
            elif kind not in unseen and key not in keys and (kind == "rdma" or not on_bus(pci)):
                gone.append(sysfs.printable(name))
        return gone

    def been_up(self, port: str) -> bool:
        """Tell whether a port has been seen up."""
        return port in self._been_up

    def see(self, port: str, up: int) -> int:
        """Note a port's state; return how often it was seen to change."""
        former = self._up.get(port)
        if former is None and len(self._up) >= MOST_REMEMBERED:
            return 0
        self._up[port] = up
        if up:
            self._been_up.add(port)
        if former is not None and former != up:
            self._changes[port] = self._changes.get(port, 0) + 1
        return self._changes.get(port, 0)

    def memory(self) -> dict[str, Any]:
        """Return all of it, as JSON can hold it."""
        return {
            "devices": dict(self._devices),
            "up": dict(self._up),
            "been_up": sorted(self._been_up),
            "changes": dict(self._changes),
        }

    def restore(self, plain: Any) -> None:
        """Take over what a predecessor knew. Raises `Malformed`."""
        try:
            devices = {str(k): str(v) for k, v in plain["devices"].items()}
            up = _numbers(plain["up"])
            been_up = {str(port) for port in plain["been_up"]}
            changes = _numbers(plain["changes"])
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise Malformed(f"memory of ports: {type(error).__name__}: {error}") from None
        self._devices, self._up, self._been_up, self._changes = devices, up, been_up, changes


def _numbers(plain: Mapping[Any, Any]) -> dict[str, int]:
    return {str(key): int(value) for key, value in plain.items()}
