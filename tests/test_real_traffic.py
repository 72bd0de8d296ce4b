"""Counters against what was sent, on real interfaces in a network namespace.

Where the machine does not permit it this is skipped aloud; what the sources make of recorded trees
is tested everywhere (`tests/sources/test_network.py`, `tests/sources/test_ethtool_source.py`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.traffic_lab import BACK, FRAMES, RECEIVER, SENDER, UNWANTED

ROOT = Path(__file__).parent.parent
INSTEAD = "the recorded trees of tests/sources stand in for it"
Frames = tuple[tuple[int, int], ...]
NAMESPACES = ("unshare", "--net", "--mount", "--")


def namespace_or_skip() -> None:
    """Skip where a process may not have network and mounts of its own."""
    if shutil.which("unshare") is None:
        pytest.skip(f"needs unshare (Debian package util-linux); {INSTEAD}")
    tried = subprocess.run(
        [*NAMESPACES, "true"], check=False, capture_output=True, text=True, timeout=30
    )
    if tried.returncode != 0:
        pytest.skip(
            f"network namespaces are not permitted here ({tried.stderr.strip()}); {INSTEAD}"
        )


def in_namespace(*command: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run something in network and mounts of its own."""
    return subprocess.run(
        [*NAMESPACES, *command],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
    )


@pytest.fixture(scope="module")
def told(tool: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the laboratory has read."""
    namespace_or_skip()
    ip = tool("ip")
    tried = in_namespace(ip, "link", "add", SENDER, "type", "veth", "peer", "name", RECEIVER)
    if tried.returncode != 0:
        pytest.skip(f"the kernel has no veth interfaces ({tried.stderr.strip()}); {INSTEAD}")
    folder = tmp_path_factory.mktemp("traffic")
    done = in_namespace(sys.executable, "-m", "tests.traffic_lab", ip, str(folder))
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def moved(told: dict[str, Any], before: str, after: str, device: str) -> dict[str, float]:
    """Return by how much each family of an interface has grown between two reads."""

    def values(read: str) -> dict[str, float]:
        return {
            name: value
            for name, labels, value in told["reads"][read]
            if labels[0] == device and len(labels) == 2
        }

    first, second = values(before), values(after)
    return {name: second[name] - first[name] for name in first.keys() & second.keys()}


@pytest.mark.parametrize(
    ("device", "sent", "received"), [(SENDER, FRAMES, BACK), (RECEIVER, BACK, FRAMES)]
)
def test_bytes_and_packets_are_those_that_were_sent(
    told: dict[str, Any], device: str, sent: Frames, received: Frames
) -> None:
    """To the octet and the frame, in both directions, at both ends."""
    grown = moved(told, "before", "sent", device)
    for direction, frames in (("transmit", sent), ("receive", received)):
        assert grown[f"nic_{direction}_packets_total"] == sum(n for _, n in frames)
        assert grown[f"nic_{direction}_bytes_total"] == sum(s * n for s, n in frames)
        assert grown[f"nic_{direction}_drops_total"] == 0


def test_frames_that_nobody_takes_are_drops(told: dict[str, Any]) -> None:
    """They are counted as received, and as dropped by the end that got them."""
    number = sum(n for _, n in UNWANTED)
    grown = moved(told, "sent", "unwanted", RECEIVER)
    assert grown["nic_receive_packets_total"] == grown["nic_receive_drops_total"] == number
    assert moved(told, "sent", "unwanted", SENDER)["nic_transmit_drops_total"] == 0


def test_a_link_that_goes_and_comes_is_counted(told: dict[str, Any]) -> None:
    """One end is taken down: both ends lose their carrier once, and have it back."""

    def up(read: str) -> dict[str, float]:
        return {labels[0]: value for name, labels, value in told["reads"][read] if name == "nic_up"}

    assert up("sent") == up("up") == {SENDER: 1, RECEIVER: 1}
    assert up("down") == {SENDER: 0, RECEIVER: 0}
    for device in (SENDER, RECEIVER):
        assert moved(told, "sent", "down", device)["nic_carrier_changes_total"] == 1
        assert moved(told, "sent", "up", device)["nic_carrier_changes_total"] == 2


def test_the_rate_is_told_while_the_link_is_up(told: dict[str, Any]) -> None:
    """veth says 10 Gb/s; the driver says the same by ethtool."""

    def rates(read: str) -> dict[str, float]:
        return {
            labels[0]: value
            for name, labels, value in told["reads"][read]
            if name == "nic_link_rate_bytes_per_second"
        }

    assert rates("up") == {SENDER: 1.25e9, RECEIVER: 1.25e9}
    assert rates("down") == {}
    assert told["megabits"] == 10_000


def test_the_drivers_own_statistics_are_read_of_a_virtual_interface(told: dict[str, Any]) -> None:
    """Its driver knows its peer; the source leaves virtual interfaces alone."""
    assert told["driver"] == "veth"
    assert told["statistics"]["peer_ifindex"] == told["peer"]
    assert told["ethtool"] == 0


@pytest.mark.parametrize("kind", ["rxe", "siw"])
def test_a_software_rdma_device_is_read(
    tool: Callable[[str], str], tmp_path: Path, kind: str
) -> None:
    """A port of the kernel's own RDMA over Ethernet or TCP, where the kernel has it."""
    if shutil.which("rdma") is None or os.geteuid() != 0:
        pytest.skip(f"needs root and rdma (Debian package iproute2); {INSTEAD}")
    namespace_or_skip()
    name = f"fw{kind}0"
    script = (
        f"{tool('ip')} link add fwa type veth peer name fwb && {tool('ip')} link set fwa up"
        f" && rdma link add {name} type {kind} netdev fwa 2>&1"
        f" && mkdir -p sys && mount -t sysfs none sys"
        f' && PYTHONPATH={ROOT} {sys.executable} -c "'
        "from pathlib import Path; from exporter.sources.network import NetworkSource;"
        "print(*[i for i in NetworkSource(Path('.')).read()], sep='\\n')\""
    )
    tried = in_namespace("sh", "-c", script, folder=tmp_path)
    if tried.returncode != 0 and "Sample" not in tried.stdout:
        pytest.skip(f"the kernel gives no {kind} device ({tried.stdout.strip()[:60]}); {INSTEAD}")
    assert tried.returncode == 0, tried.stderr
    assert f"labels=('{name}', '1')" in tried.stdout
    assert "Fault" not in tried.stdout
