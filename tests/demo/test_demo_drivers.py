"""The made-up node's network cards, as the real source reads them through the demo's drivers."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from exporter.demo import SCENARIOS, Faults
from exporter.demo.drivers import DemoDrivers
from exporter.demo.node import BONDED, Node
from exporter.demo.sysfs import SysfsTree
from exporter.sources.ethtool import EthtoolSource
from tests.ethtool_lab import values


def made(root: Path, scenario: str = "default") -> tuple[Node, EthtoolSource, SysfsTree]:
    """Return a node, its cards' source, and what writes its `/sys`."""
    node = Node(0, 1.8e9, SCENARIOS[scenario])
    node.advance(60)
    tree = SysfsTree(root)
    tree.write(node)
    return node, EthtoolSource(root, DemoDrivers(node, threading.Lock())), tree


def test_the_cards_are_asked_and_the_bond_is_not(tmp_path: Path) -> None:
    """Two ports of mlx5 with PFC and optics, one of igb; some forty series for each."""
    _, source, _ = made(tmp_path)
    told = values(source.read())
    drivers = {key[1]: key[3] for key in told if key[0] == "ethernet_info"}
    assert drivers == {"eno1": "igb", "ens8f0": "mlx5_core", "ens8f1": "mlx5_core"}
    for name in BONDED:
        assert told["module_temperature_celsius", name, ""] == 41
        assert 30 < len([key for key in told if key[1] == name]) <= 45


@pytest.mark.parametrize(
    ("scenario", "paused"), [("default", 0.0004), ("pause-storm", 0.2504)]
)  # fmt: skip
def test_a_storm_is_the_share_of_time_in_which_the_ports_may_not_send(
    tmp_path: Path, scenario: str, paused: float
) -> None:
    """A quiet lossless network pauses a little; this node pauses nobody."""
    node, source, _ = made(tmp_path, scenario)
    before = values(source.read())
    node.advance(100)
    after = values(source.read())
    for name in BONDED:
        for direction, share in (("receive", paused), ("transmit", 0.0)):
            key = (f"{direction}_pause_seconds_total", name, "", "3")
            assert (after[key] - before[key]) / 100 == pytest.approx(share, abs=1e-6)  # type: ignore[operator]


def test_a_storm_that_begins_and_ends_is_counted_for_its_time_alone(tmp_path: Path) -> None:
    """Injected while the node runs, however the time is cut; this node pauses others too."""
    node, source, _ = made(tmp_path)
    key = ("transmit_pause_seconds_total", "ens8f0", "", "3")
    assert values(source.read())[key] == 0
    node.inject(Faults(pausing=0.5))
    for _ in range(7):
        node.advance(10 / 7)
    node.inject(Faults())
    node.advance(1000)
    assert values(source.read())[key] == pytest.approx(5, abs=1e-4)
