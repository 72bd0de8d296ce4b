"""Side by side with node_exporter, the real program, on the same trees of `/sys`.

Each of its series that comes from these files must be among ours with the same value, or stand in a
short list of reasons. What it loses and we keep stands in docs/fabric.md, and is checked here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from tests.sources.network_lab import TREES, Values, read

ALL = (
    "h100-8xndr-bond", "nodeexporter", "procfs", "hfi1-hwcounters-excerpt", "virtio-net",
    "derived-port-down", "derived-vf-no-counters", "derived-saturated", "derived-qcounter-wrap/t0",
    "derived-qcounter-wrap/t1", "derived-roce-congested/t0", "derived-roce-congested/t1",
    "derived-efa", "derived-pci-topology",
)  # fmt: skip
GONE = ("hfi1-hwcounters-excerpt", "derived-efa", "derived-vf-no-counters", "derived-pci-topology")
"""Trees of which node_exporter 1.5 tells nothing at all."""

_ERRORS: Mapping[str, str] = {
    "symbol_error_total": "symbol",
    "link_error_recovery_total": "link_recovery",
    "link_downed_total": "link_downed",
    "port_errors_received_total": "receive",
    "port_receive_remote_physical_errors_total": "remote_physical",
    "local_link_integrity_errors_total": "link_integrity",
    "excessive_buffer_overrun_errors_total": "buffer_overrun",
    "vl15_dropped_total": "vl15_dropped",
    "port_constraint_errors_received_total": "receive_constraint",
    "port_constraint_errors_transmitted_total": "transmit_constraint",
}
_PLAIN: Mapping[str, str] = {
    "port_data_received_bytes_total": "nic_receive_bytes_total",
    "port_data_transmitted_bytes_total": "nic_transmit_bytes_total",
    "port_packets_received_total": "nic_receive_packets_total",
    "port_packets_transmitted_total": "nic_transmit_packets_total",
    "port_discards_transmitted_total": "nic_transmit_drops_total",
    "port_transmit_wait_total": "nic_transmit_wait_ticks_total",
    "state_id": "nic_port_state",
    "physical_state_id": "nic_port_physical_state",
    "rate_bytes_per_second": "nic_link_rate_bytes_per_second",
}
_RAW: Mapping[str, tuple[str, str, int]] = {
    "unicast_packets_received_total": ("unicast_rcv_packets", "counters", 1),
    "unicast_packets_transmitted_total": ("unicast_xmit_packets", "counters", 1),
    "multicast_packets_received_total": ("multicast_rcv_packets", "counters", 1),
    "multicast_packets_transmitted_total": ("multicast_xmit_packets", "counters", 1),
    "port_receive_switch_relay_errors_total": ("port_rcv_switch_relay_errors", "counters", 1),
    "port_discards_received_total": ("port_rcv_discards", "counters", 1),
    "legacy_data_received_bytes_total": ("port_rcv_data_64", "counters_ext", 4),
    "legacy_data_transmitted_bytes_total": ("port_xmit_data_64", "counters_ext", 4),
    "legacy_packets_received_total": ("port_rcv_packets_64", "counters_ext", 1),
    "legacy_packets_transmitted_total": ("port_xmit_packets_64", "counters_ext", 1),
    "legacy_unicast_packets_received_total": ("port_unicast_rcv_packets", "counters_ext", 1),
    "legacy_unicast_packets_transmitted_total": ("port_unicast_xmit_packets", "counters_ext", 1),
    "legacy_multicast_packets_received_total": ("port_multicast_rcv_packets", "counters_ext", 1),
    "legacy_multicast_packets_transmitted_total": (
        "port_multicast_xmit_packets", "counters_ext", 1,
    ),
}  # fmt: skip
_NET: Mapping[str, str] = {
    "up": "nic_up",
    "speed_bytes": "nic_link_rate_bytes_per_second",
    "carrier_changes_total": "nic_carrier_changes_total",
}


class Theirs(NamedTuple):
    """A series of node_exporter: its name without `node_infiniband_` or `node_network_`."""

    rdma: bool
    name: str
    device: str
    port: str
    value: float


@pytest.fixture(scope="module")
def scrape(tool: Callable[[str], str]) -> Callable[[Path], str]:
    """Return a function from a root to the page of a node_exporter that looks below it."""
    program = tool("node_exporter")

    def page(root: Path) -> str:
        command = [
            program, "--web.listen-address=127.0.0.1:0", f"--path.sysfs={root}/sys",
            "--web.disable-exporter-metrics", "--collector.disable-defaults",
            "--collector.infiniband", "--collector.netclass",
        ]  # fmt: skip
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                for line in process.stderr:
                    if (
                        at := re.search(r"Listening on.*address=(127\.0\.0\.1:\d+)", line)
                    ) is not None:
                        with urllib.request.urlopen(
                            f"http://{at[1]}/metrics", timeout=10
                        ) as answer:
                            return str(answer.read().decode())
                raise AssertionError("node_exporter did not come up")
            finally:
                process.kill()

    return page


def theirs(page: str) -> list[Theirs]:
    """Return what node_exporter tells of ports, in numbers."""
    found = []
    for family in parse(page):
        for sample in family.samples:
            match = re.fullmatch(r"node_(infiniband|network)_(\w+)", sample.name)
            if match is not None and match[2] != "info":
                labels = sample.labels
                rdma = match[1] == "infiniband"
                found.append(
                    Theirs(rdma, match[2], labels["device"], labels.get("port", ""), sample.value)
                )
    return found


def ours(found: Values, one: Theirs) -> object:
    """Return our value of the same quantity; `None` if we have none, `...` if it is not of ours."""
    at = (one.device, one.port)
    if not one.rdma:
        return found.get((_NET[one.name], *at)) if one.name in _NET else ...
    if one.name in _ERRORS:
        return found.get(("nic_errors_total", *at, _ERRORS[one.name]))
    if one.name in _PLAIN:
        return found.get((_PLAIN[one.name], *at))
    name, folder, factor = _RAW[one.name]  # KeyError: it has learnt something new
    value = found.get(("nic_raw_total", *at, name, folder))
    return value if value is None else value * factor  # type: ignore[operator]


def reason(found: Values, one: Theirs) -> str:
    """Return why a value may differ from node_exporter's, "" if nothing speaks for it."""
    at = (one.device, one.port)
    if one.name == "rate_bytes_per_second" and found["nic_up", *at] == 0:
        return "the rate of a port that is down is made up by the driver"
    if one.name == "speed_bytes" and (one.value <= 0 or found.get(("nic_up", *at)) != 1):
        return "a speed of -1 is none, nor is that of an interface that is not up"
    if one.name == "up" and ("nic_up", *at) not in found:
        return "an operstate of `unknown` is not known, and not down"
    twin = {
        "port_data_received_bytes_total": ("port_rcv_data_64", 4),
        "port_data_transmitted_bytes_total": ("port_xmit_data_64", 4),
        "port_packets_received_total": ("port_rcv_packets_64", 1),
        "port_packets_transmitted_total": ("port_xmit_packets_64", 1),
    }.get(one.name)
    if twin is not None:
        wide = found.get(("nic_raw_total", *at, twin[0], "counters_ext"))
        if wide is not None and ours(found, one) == max(one.value, wide * twin[1]):  # type: ignore[operator]
            return "old kernels count in the 64-bit twin"
    return ""


@pytest.mark.parametrize("tree", ALL)
def test_the_same_counters_have_the_same_values(tree: str, scrape: Callable[[Path], str]) -> None:
    """Given a tree, then each number that node_exporter tells of ports is one of ours."""
    page = scrape(TREES / tree)
    found = read(TREES / tree, raw=True, exclude="(?!)")
    compared, differing = 0, []
    for one in theirs(page):
        value = ours(found, one)
        compared += value is not ...
        if value is not ... and value != one.value and not reason(found, one):
            differing.append((one, value))
    assert differing == []
    assert (compared == 0) == (tree in GONE), f"{compared} compared"


def test_what_it_loses_is_kept(scrape: Callable[[Path], str]) -> None:
    """The list in docs/fabric.md: of each row node_exporter has nothing, and we have a number."""
    kept = {
        "derived-efa": ("rdmap79s0", ("nic_receive_bytes_total", "rdmap79s0", "1")),
        "hfi1-hwcounters-excerpt": ("hfi1_0", ("nic_retransmits_total", "hfi1_0", "1", "any")),
        "derived-vf-no-counters": ("mlx5_2", ("nic_up", "mlx5_2", "1")),
    }
    for tree, (device, series) in kept.items():
        assert device not in scrape(TREES / tree)
        assert series in read(TREES / tree)


def test_one_odd_file_costs_it_all_ports_and_us_that_file(
    scrape: Callable[[Path], str], tmp_path: Path
) -> None:
    """Given a counter whose text is no number, then node_exporter tells of no port, and we lack
    one series (the same way as with EINVAL: node_exporter 3265)."""
    shutil.copytree(TREES / "h100-8xndr-bond", tmp_path, dirs_exist_ok=True)
    whole = read(tmp_path)
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    (port / "counters/VL15_dropped").write_text("unknown\n")
    assert "node_infiniband_" not in scrape(tmp_path)
    lost = whole.keys() - read(tmp_path).keys()
    assert lost == {("nic_errors_total", "mlx5_0", "1", "vl15_dropped")}
