"""What all tests share: finding the programs that some need, and saying aloud what was skipped.

Processes of tests that run beside each other (`-n`) have a network each: daemons look for servers
on this machine, and would find those of another test.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS, SIOCSIFADDR, IFF_UP = 0x8914, 0x8916, 0x1
MACHINE: dict[str, int] = {}
"""The machine's own network, for a process that has left it."""
STRANGER = "198.51.100.7"
"""Of a range for documentation (RFC 5737)."""
TABLE = Path(__file__).parent.parent / ".ci" / "apt"


def pytest_configure(config: pytest.Config) -> None:
    """Give a process of its own, started by `-n`, a network of its own."""
    if hasattr(config, "workerinput"):
        leave_network()


@pytest.fixture
def machine_network() -> Iterator[None]:
    """Have the machine's own network for a test that asks its cards."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = MACHINE.get("network", own)
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        assert libc.setns(there, CLONE_NEWNET) == 0 or there == own
        yield
    finally:
        assert libc.setns(own, CLONE_NEWNET) == 0 or there == own
        os.close(own)


def leave_network() -> None:
    """Have loopback alone, and on it one address that is none of loopback's.

    Raises `OSError` where that is not permitted: run without `-n`.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    MACHINE["network"] = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    if libc.unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "tests beside each other need a network each (root)")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))
        address = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(STRANGER))
        fcntl.ioctl(any_socket, SIOCSIFADDR, struct.pack("16s16s8x", b"lo:1", address))


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """Return a function from a program's name in .ci/apt to its path.

    Where the program is missing the test is skipped; it fails where FLOPWATCH_REQUIRE_TOOLS=1.
    """
    rows = [line.split() for line in TABLE.read_text("utf-8").splitlines() if line[:1] != "#"]
    programs = {name: (package, [name, *others]) for name, package, *others in rows}

    def find(name: str) -> str:
        package, commands = programs[name]
        for command in commands:
            if (path := shutil.which(command)) is not None:
                return path
        reason = f"needs {name} (Debian package {package})"
        if os.environ.get("FLOPWATCH_REQUIRE_TOOLS") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)

    return find


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the skipped tests by reason: a skip is a check that nobody made."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", ())
        if isinstance(report.longrepr, tuple)
    )
    if not reasons:
        return
    terminalreporter.section(f"{reasons.total()} NOT CHECKED", sep="-")
    for reason, number in reasons.most_common():
        terminalreporter.write_line(f"{number:5}  {reason}")
