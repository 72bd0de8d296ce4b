"""Run in namespaces of its own (network and mounts): real interfaces, real frames, real counters.

`unshare --net --mount python -m tests.traffic_lab IP FOLDER` makes a pair of virtual Ethernet
interfaces, mounts this namespace's `/sys` below FOLDER, and reads it with the daemon's own source
before and after frames were sent and the link was taken away. What was read is printed as JSON.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from exporter.ethtool import Ethtool
from exporter.samples import Sample
from exporter.sources.ethtool import EthtoolSource
from exporter.sources.network import NetworkSource

SENDER, RECEIVER = "fwa", "fwb"
FRAMES = ((64, 1000), (1514, 250), (700, 77))
"""Sizes of frames and how many are sent of each: from `SENDER` to `RECEIVER`."""
BACK = ((128, 33),)
"""What goes the other way."""
UNWANTED = ((64, 7),)
"""What is sent to `RECEIVER` when nobody there takes such frames."""
KIND = 0x88B5
"""The type of our frames: one that the standard leaves for experiments."""


def send(interface: str, frames: tuple[tuple[int, int], ...]) -> None:
    """Send raw frames, of a kind that nobody answers."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind((interface, 0))
        for size, number in frames:
            frame = (b"\xff" * 6 + b"\x02\0\0\0\0\x01" + KIND.to_bytes(2, "big")).ljust(size, b"\0")
            for _ in range(number):
                assert wire.send(frame) == size


def main() -> None:
    """Do all of it."""
    ip, folder = sys.argv[1], Path(sys.argv[2])

    def link(*words: str) -> None:
        subprocess.run([ip, "link", *words], check=True, timeout=30)

    # No neighbour discovery: nobody but us sends anything.
    for kind in ("all", "default"):
        switch = Path("/proc/sys/net/ipv6/conf", kind, "disable_ipv6")
        if switch.exists():
            switch.write_text("1")
    link("add", SENDER, "type", "veth", "peer", "name", RECEIVER)
    for name in (SENDER, RECEIVER):
        link("set", name, "arp", "off")
        link("set", name, "up")
    (folder / "sys").mkdir()
    subprocess.run(["mount", "-t", "sysfs", "none", folder / "sys"], check=True, timeout=30)

    source = NetworkSource(folder, exclude="lo$")

    def read() -> list[tuple[str, tuple[str, ...], float]]:
        items = list(source.read())
        assert all(isinstance(one, Sample) for one in items), items
        return [(one.metric.name, one.labels, one.value) for one in items]

    told = {"before": read()}
    with ExitStack() as takers:
        for name in (SENDER, RECEIVER):
            taker = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(KIND))
            takers.enter_context(taker).bind((name, KIND))
        send(SENDER, FRAMES)
        send(RECEIVER, BACK)
        told["sent"] = read()
    send(SENDER, UNWANTED)
    told["unwanted"] = read()
    link("set", SENDER, "down")
    told["down"] = read()
    link("set", SENDER, "up")
    told["up"] = read()
    door = Ethtool()
    count = door.count(SENDER)
    statistics = dict(zip(door.names(SENDER, count), door.values(SENDER, count), strict=True))
    print(
        json.dumps(
            {
                "reads": told,
                "statistics": statistics,
                "driver": door.driver(SENDER).name,
                "megabits": door.link(SENDER).speed,
                "peer": door.identity(RECEIVER)[0],
                # no device behind it: virtual interfaces are not asked
                "ethtool": len(list(EthtoolSource(folder, counters=(".*",)).read())),
            }
        )
    )


if __name__ == "__main__":
    main()
