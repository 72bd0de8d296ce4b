"""Who listens on which port of this machine, as far as `/proc` tells us.

Which process holds a socket stands in `/proc/PID/fd`, which only its own user and the privileged
may read. Without that right a process is believed to hold a socket if it runs as the user who made
it and lives in a network namespace that has it; whoever asks so has already seen its command line.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from exporter.formats import sockets
from exporter.formats.sockets import Listener, Stat

_ANCESTORS = 32
_LONGEST = 64 << 10
_LONGEST_ENVIRONMENT = 8 << 20  # the kernel takes 6 MiB at most
_TABLES = ("tcp", "tcp6")


class Process(NamedTuple):
    """A process, told apart from a later one with the same number by its start."""

    pid: int
    start: int


class Machine:
    """What can be seen below `root`, the folder with `proc`."""

    def __init__(self, root: Path) -> None:
        self._proc = root / "proc"

    def listeners(self) -> list[Listener]:
        """Return all listening TCP sockets that we could reach. Raises `OSError`.

        These are the ones of our own network namespace, wherever `root` is: `proc/net` leads to
        the reader's own.
        """
        tables = [self._table(self._proc / "net", name) for name in _TABLES]
        if all(table is None for table in tables):
            raise FileNotFoundError(f"{self._proc / 'net' / 'tcp'} cannot be read")
        return [one for table in tables if table for one in sockets.listeners(table)]

    def _table(self, folder: Path, name: str) -> bytes | None:
        try:
            return (folder / name).read_bytes()
        except OSError:
            return None

    def pids(self) -> list[int]:
        """Return the numbers of all processes that are seen."""
        try:
            names = os.listdir(self._proc)  # noqa: PTH208 - names are wanted, not paths
        except OSError:
            return []
        return sorted(int(name) for name in names if name.isascii() and name.isdecimal())

    def arguments(self, pid: int) -> tuple[str, ...]:
        """Return a process's command line, empty if it has none or is gone."""
        return sockets.arguments(self._beginning(self._proc / str(pid) / "cmdline"))

    def environment(self, pid: int) -> bytes:
        """Return a process's variables as they were when it began, empty if that may not be seen.

        Only its own user and the privileged (CAP_SYS_PTRACE) may read them.
        """
        return self._beginning(self._proc / str(pid) / "environ", _LONGEST_ENVIRONMENT)

    def cgroup(self, pid: int) -> str:
        """Return the lines of a process's cgroups, "" if it is gone or that may not be seen."""
        return self._beginning(self._proc / str(pid) / "cgroup").decode("utf-8", "replace")

    def user(self, pid: int) -> int | None:
        """Return whose a process is, by number; `None` if it is gone."""
        found = self._user(pid)
        return None if found < 0 else found

    def shows_all(self) -> bool:
        """Tell whether the numbers of processes here are those of the machine.

        The kernel's own threads are in the first process namespace only, and the second process of
        all makes them. A container without the host's namespace (`hostPID`) has none of them.
        """
        return self._beginning(self._proc / "2" / "comm").strip() == b"kthreadd"

    def stat(self, pid: int) -> Stat | None:
        """Return a process's parent and start, `None` if it is gone."""
        return sockets.stat(self._beginning(self._proc / str(pid) / "stat"))

    def process(self, pid: int) -> Process | None:
        """Return the process that has this number now."""
        found = self.stat(pid)
        return None if found is None else Process(pid, found.start)

    def ancestry(self, pid: int) -> Iterator[Process]:
        """Yield a process and its ancestors, nearest first, without the first of all."""
        for _ in range(_ANCESTORS):
            found = self.stat(pid) if pid > 1 else None
            if found is None:
                return
            yield Process(pid, found.start)
            pid = found.parent

    def holds(self, pid: int, listeners: Iterable[Listener]) -> bool:
        """Tell whether a process holds one of these sockets."""
        inodes = {one.inode: one for one in listeners}
        held = self.inodes(pid)
        if held is not None:
            return not held.isdisjoint(inodes)
        user = self._user(pid)
        mine = {inode for inode, one in inodes.items() if one.uid == user}
        return bool(mine) and not mine.isdisjoint(self._reachable_from(pid))

    def inodes(self, pid: int) -> set[int] | None:
        """Return the sockets that a process holds, `None` if that may not be seen."""
        folder = self._proc / str(pid) / "fd"
        held: set[int] = set()
        try:
            names = os.listdir(folder)  # noqa: PTH208
        except PermissionError:
            return None
        except OSError:
            return held
        for name in names:
            with contextlib.suppress(OSError, ValueError):
                link = os.readlink(folder / name)  # noqa: PTH115 - "socket:[1]" is no path
                if link.startswith("socket:["):
                    held.add(int(link[8:-1]))
        return held

    def own(self) -> set[int]:
        """Return the sockets of our own process and of its children."""
        # Our own number below root is another one than ours where that is the host's.
        real = Machine(Path("/"))
        held = real.inodes(os.getpid()) or set()
        me = os.getpid()
        for pid in real.pids():
            found = real.stat(pid)
            if found is not None and found.parent == me:
                held |= real.inodes(pid) or set()
        return held

    def _reachable_from(self, pid: int) -> set[int]:
        folder = self._proc / str(pid) / "net"
        tables = [self._table(folder, name) for name in _TABLES]
        return {one.inode for table in tables if table for one in sockets.listeners(table)}

    def _user(self, pid: int) -> int:
        try:
            return (self._proc / str(pid)).stat().st_uid
        except OSError:
            return -1

    def _beginning(self, path: Path, longest: int = _LONGEST) -> bytes:
        try:
            with path.open("rb") as file:
                return file.read(longest)
        except OSError:
            return b""


def by_port(listeners: Iterable[Listener]) -> Mapping[int, list[Listener]]:
    """Return listeners by their port."""
    found: dict[int, list[Listener]] = {}
    for one in listeners:
        found.setdefault(one.port, []).append(one)
    return found


def hosts(listeners: Iterable[Listener]) -> list[str]:
    """Return the hosts under which to reach a port from here, best first, as URLs have them.

    A socket on all addresses of IPv6 mostly takes IPv4 too, but need not; that is tried.
    """
    found: dict[str, int] = {}
    for one in listeners:
        address = ipaddress.ip_address(one.address)
        if address.is_unspecified:
            found["127.0.0.1"] = min(found.get("127.0.0.1", 9), address.version - 4)
            if address.version == 6:
                found["[::1]"] = 3
        elif address.is_loopback:
            found[_bracketed(address)] = 1
        elif not address.is_link_local:
            found[_bracketed(address)] = 4
    return sorted(found, key=lambda host: (found[host], host))


def _bracketed(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    return f"[{address}]" if address.version == 6 else str(address)


def is_ours(host: str) -> bool:
    """Tell whether a host is this machine: one of its addresses can be bound here.

    Asks the resolver for names, which may take its time.
    """
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    return any(_binds(family, address) for family, _, _, _, address in found)


def _binds(family: int, address: tuple[object, ...]) -> bool:
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind(address)
        return True
    return False
