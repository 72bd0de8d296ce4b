"""The door to drivers, on this machine's own interfaces: no stand-in answers here."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.ethtool import Ethtool

NET = Path("/sys/class/net")

pytestmark = pytest.mark.usefixtures("machine_network")


@pytest.fixture
def door() -> Iterator[Ethtool]:
    door = Ethtool()
    yield door
    door.close()


def interfaces() -> list[str]:
    """Return this machine's interfaces."""
    return sorted(one.name for one in NET.iterdir() if (one / "ifindex").exists())


def refusal(call: Callable[[str], object], name: str) -> int | None:
    """Return why a call was refused; None if it was not."""
    try:
        call(name)
    except OSError as error:
        return error.errno
    return None


def test_loopback_has_no_statistics_and_says_so(door: Ethtool) -> None:
    """EOPNOTSUPP is an answer: nothing was wrong."""
    for call in (door.driver, door.count, door.link, door.pause, door.fec, door.module):
        assert refusal(call, "lo") == errno.EOPNOTSUPP, call


@pytest.mark.parametrize("name", ["nosuchdevice0", "a-name-longer-than-15", "", "a\0b"])
def test_an_interface_that_is_not_there_is_told_apart(door: Ethtool, name: str) -> None:
    """ENODEV, whatever is asked, and for names that the kernel could not even take."""
    for call in (door.identity, door.driver, door.count):
        assert refusal(call, name) == errno.ENODEV


def test_the_number_and_address_are_those_of_sysfs(door: Ethtool) -> None:
    """So it is known whether our calls go where the files come from."""
    for name in interfaces():
        index, address = door.identity(name)
        assert index == int((NET / name / "ifindex").read_text())
        written = (NET / name / "address").read_text().strip().split(":")[:6]
        assert [f"{octet:02x}" for octet in address] == written


def test_each_statistic_of_a_real_driver_has_a_name(door: Ethtool) -> None:
    """Names and values of every interface that has any; two reads never go backwards."""
    seen = 0
    for name in interfaces():
        try:
            count = door.count(name)
        except OSError as error:
            assert error.errno == errno.EOPNOTSUPP  # noqa: PT017 - one of many
            continue
        seen += 1
        names, before = door.names(name, count), door.values(name, count)
        after = door.values(name, count)
        assert len(names) == len(before) == len(after) == count
        assert all(text and len(text) <= 32 for text in names)
        assert all(a <= b for a, b in zip(before, after, strict=True)), name
    if not seen:
        pytest.skip("no interface of this machine has statistics of its driver")


def test_the_driver_is_the_one_that_sysfs_links_to(door: Ethtool) -> None:
    """Of hardware interfaces; a machine in a container may have none."""
    seen = 0
    for name in interfaces():
        link = NET / name / "device" / "driver"
        if link.exists():
            seen += 1
            told = door.driver(name)
            assert told.name == link.resolve().name
            # a virtual card's device lies below the PCI function that the driver names
            assert told.bus in {"", *(NET / name / "device").resolve().parts}
    if not seen:
        pytest.skip("no hardware interface on this machine")


def test_other_users_may_ask_as_well(door: Ethtool) -> None:
    """Statistics need no rights, and the daemon has none: a child process gives up its own."""
    name = next((one for one in interfaces() if _has_statistics(door, one)), None)
    if name is None or os.geteuid() != 0:
        pytest.skip("needs root and an interface with statistics")
    code = (
        "import os, sys; from exporter.ethtool import Ethtool;"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); door = Ethtool();"
        "print(len(door.values(sys.argv[1], door.count(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", code, name]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert int(told.stdout) == door.count(name)


def test_closing_twice_does_no_harm_and_a_later_call_opens_again() -> None:
    """As for kept files: the source may be read again."""
    door = Ethtool()
    door.close()
    first = door.identity("lo")
    door.close()
    door.close()
    assert door.identity("lo") == first
    door.close()


def _has_statistics(door: Ethtool, name: str) -> bool:
    try:
        return door.count(name) > 0
    except OSError:
        return False
