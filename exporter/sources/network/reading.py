"""One device's files, read: states, rates and counters, each file for itself.

A file that fails costs its own series. A driver that refuses is left alone for a while.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from typing import Any

from exporter import catalogue as c
from exporter.files import Files
from exporter.formats import sysfs
from exporter.samples import Drop, Fault, Sample
from exporter.sources.network.layout import CounterSet, Port, Told
from exporter.sources.network.patience import Patience
from exporter.sources.network.telling import Known
from exporter.sources.network.wrapping import Laps

Item = Sample | Fault | Drop

_ACTIVE = 4
_DISABLED = 3
_OPERSTATES = {
    "up": 1, "down": 0, "lowerlayerdown": 0, "dormant": 0, "testing": 0, "notpresent": 0,
}  # fmt: skip
_UNSUPPORTED = frozenset((errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY))


class DeviceReader:
    """Reads the ports of one device, `files` being for it alone.

    `backoff` is for how many reads refused counters are left alone. `vanished` says that a file or
    the device itself is not what the inventory found.
    """

    def __init__(self, files: Files, backoff: int) -> None:
        self._files = files
        self._backoff = backoff
        self._patience: dict[str, Patience] = {}
        self._known: dict[str, Known] = {}
        self._instances: dict[str, int] = {}
        self._restricted: set[str] = set()
        self._speeds: dict[str, tuple[int, float | None]] = {}
        self._reads = 0
        self._closed = False
        self.ports: tuple[Port, ...] = ()
        self._laps = Laps()
        self.vanished = False

    def prepare(self, ports: Sequence[Port], most: int) -> None:
        """Take what the inventory has found; keep so many descriptors at most."""
        self._files.keep(most)
        self._files.sweep()
        self._speeds.clear()
        self._known.clear()
        self.ports = tuple(ports)
        self.vanished = False

    def read(self) -> list[Told]:
        """Read each port once."""
        self._reads += 1
        told = [self._read_port(port) for port in self.ports]
        if self._closed:
            self._files.close()
        return told

    def close(self, *, away: bool = False) -> None:
        """Close the kept files; while a read is `away`, at its end."""
        self._closed = True
        if not away:
            self._files.close()

    def memory(self) -> list[Any] | None:
        """Return, as JSON can hold it, what a successor has to know; nothing if there is no lap."""
        laps = self._laps.memory()
        return [self._instances, laps] if laps else None

    def restore(self, plain: Any) -> None:
        """Go on where a predecessor was; anything but what one has left is not taken."""
        match plain:
            case [dict(instances), dict(laps)]:
                self._instances = dict(instances)
                self._laps.restore(laps)

    def _read_port(self, port: Port) -> Told:
        self._recognise(port)
        items: list[Item] = []
        up = self._read_state(port, items) if port.state else self._read_operstate(port, items)
        disabled = up == 0 and self._disabled(port, items)
        if port.physical_state and up is not None:
            state = sysfs.state(self._text(port.physical_state, f"{port.name}/phys_state", items))
            if state is not None:
                items.append(Sample(c.NIC_PORT_PHYSICAL_STATE, port.labels, state))
                # for Ethernet the number means no more than that the link is down
                disabled = state == _DISABLED and port.info.labels[2] == "InfiniBand"
        for counters in port.sets:
            self._read_set(port, counters, items)
        return Told(items, up, disabled, port.path in self._restricted)

    def _recognise(self, port: Port) -> None:
        """Forget what is known of a port's counters if it is not the port of the last read."""
        instance = self._files.identity(port.path)
        known = self._instances.get(port.path, instance)
        self._instances[port.path] = instance
        if instance != known:
            self._files.sweep()
            self._known.clear()
            self._laps.forget(port.path.partition("/ports/")[0])
            self._patience.pop(port.path, None)
            self._restricted.discard(port.path)
            self.vanished = True

    # ------------------------------------------------------------ states

    def _read_state(self, port: Port, items: list[Item]) -> int | None:
        state = sysfs.state(self._text(port.state, f"{port.name}/state", items))
        if state is None:
            return None
        up = int(state == _ACTIVE)
        items.append(Sample(c.NIC_UP, port.labels, up))
        items.append(Sample(c.NIC_PORT_STATE, port.labels, state))
        # a port that is down still prints a rate, which is a fallback of the driver
        if up and port.rate:
            rate = sysfs.rate(self._text(port.rate, f"{port.name}/rate", items))
            if rate is not None:
                items.append(Sample(c.NIC_LINK_RATE_BYTES_PER_SECOND, port.labels, rate))
        return up

    def _read_operstate(self, port: Port, items: list[Item]) -> int | None:
        # "unknown" is what drivers without carrier detection say: then we do not know either
        up = _OPERSTATES.get(
            sysfs.word(self._text(port.operstate, f"{port.name}/operstate", items))
        )
        if up is not None:
            items.append(Sample(c.NIC_UP, port.labels, up))
        changes = sysfs.number(self._text(port.changes, f"{port.name}/carrier_changes", items))
        if changes is not None:
            items.append(Sample(c.NIC_CARRIER_CHANGES_TOTAL, port.labels, changes))
        if up == 1 and port.speed:
            speed = self._speed(port, changes, items)
            if speed is not None:
                items.append(Sample(c.NIC_LINK_RATE_BYTES_PER_SECOND, port.labels, speed))
        return up

    def _speed(self, port: Port, changes: int | None, items: list[Item]) -> float | None:
        """Return the rate; ask the driver after a link change only: it needs a global lock."""
        known = self._speeds.get(port.name)
        if known is not None and known[0] == changes:
            return known[1]
        failed = len(items)
        speed = sysfs.speed(self._text(port.speed, f"{port.name}/speed", items))
        if changes is not None and len(items) == failed:
            self._speeds[port.name] = (changes, speed)
        return speed

    def _disabled(self, port: Port, items: list[Item]) -> bool:
        """Tell whether the operator has switched the interface off."""
        flags = sysfs.hexadecimal(self._text(port.flags, f"{port.name}/flags", items))
        return flags is not None and not flags & 1  # IFF_UP

    def _text(self, path: str, part: str, items: list[Item]) -> bytes:
        """Return a file's content; nothing if there is no such file or it cannot be read."""
        if not path:
            return b""
        try:
            return self._files.read(path)
        except FileNotFoundError as error:  # the device was pulled, or reset
            self.vanished = True
            items.append(Fault.of(part, error))
        except OSError as error:
            items.extend(self._blame(part, error))
        return b""

    def _blame(self, part: str, error: OSError) -> Iterator[Fault]:
        """Yield the fault that an error is; "not supported" and a file that left are none."""
        if error.errno in _UNSUPPORTED:
            return
        if error.errno in (errno.ENOENT, errno.ENODEV):
            self.vanished = True
        if error.errno != errno.ENOENT:
            yield Fault.of(part, error)

    # ------------------------------------------------------------ counters

    def _read_set(self, port: Port, counters: CounterSet, items: list[Item]) -> None:
        """Read a set's counters; if the driver refuses the first one, leave the set alone."""
        known = self._known.get(counters.key)
        if known is not None:
            try:
                items.extend(known.tell(list(map(self._files.read, known.paths)), self._laps))
            except OSError:  # the careful way tells which file, and what it means
                del self._known[counters.key]
            else:
                return
        patience = self._patience.setdefault(port.path, Patience(self._backoff))
        if patience.rests(counters.key, self._reads):
            return
        texts = self._texts(port, counters, patience, items)
        if texts is not None:
            known = Known(counters)
            items.extend(known.tell(texts, self._laps))
            if None not in texts:
                self._known[counters.key] = known

    def _texts(
        self, port: Port, counters: CounterSet, patience: Patience, items: list[Item]
    ) -> list[bytes | None] | None:
        """Return what each file says; nothing at all if the set is refused."""
        reads, read = self._reads, self._files.read
        texts: list[bytes | None] = []
        answered = False
        for file in counters.files:
            text = None
            if not patience.rests(file.path, reads):
                try:
                    text = read(file.path)
                    answered = True
                except OSError as error:
                    items.extend(self._blame(file.part, error))
                    if error.errno in _UNSUPPORTED:
                        if not answered:
                            self._refuse(port, counters.key, patience, error)
                            return None
                        patience.refused(file.path, reads, short=True)
            texts.append(text)
        if answered:
            patience.answered(counters.key)
            if self._restricted and not any(patience.rests(s.key, reads) for s in port.sets):
                self._restricted.discard(port.path)
        return texts

    def _refuse(self, port: Port, key: str, patience: Patience, error: OSError) -> None:
        """Leave alone what was refused. EINVAL from a set that never answered says: restricted.

        Then all sets of the port that never answered rest with it: a line in the kernel log is
        what each further attempt would bring.
        """
        new = not patience.has_answered(key)
        patience.refused(key, self._reads)
        if new and error.errno == errno.EINVAL:
            self._restricted.add(port.path)
            for counters in port.sets:
                if not patience.has_answered(counters.key):
                    patience.refused(counters.key, self._reads)
