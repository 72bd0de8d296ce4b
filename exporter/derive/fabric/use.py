"""How much of the fabric is used: ports and NVLinks against their rates, rails against each other.

A port's use is its bytes over its signalling rate, in each direction by itself; where there is no
rate (a link that is down, a rate that the driver makes up) there is no ratio. A RoCE port and its
network interface share one link and count different bytes: the use of the link is their sum.

NVLink's rate is what the driver states of each link, where that is read, else what a link of the
GPU's architecture has (`NVLINK`). Counters hold payload, so that the ratio stays below 1.

A rail is the network behind one port of each node. A collective uses all rails alike; one that
carries less than the others is what its ring waits for. Rails of idle GPUs are not compared. Rails
come from the topology: the compute NIC that is nearest to each GPU.

    nic_receive_utilization_ratio{device="mlx5_0",port="1"} 0.71
    gpu_nvlink_peak_bandwidth_bytes_per_second{gpu="0",uuid="GPU-5a1c..."} 450000000000
    nic_rail_traffic_ratio{rail="3"} 0.52
    nic_rail_imbalance_ratio 0.48
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from exporter import catalogue as c
from exporter.derive.derivation import Derivation, readings
from exporter.derive.diagnosis.signals import Window
from exporter.derive.memory import Memory
from exporter.reference.accelerators import Accelerators
from exporter.samples import Metric, Sample, View

NAME = "fabric"

NVLINK: Mapping[str, float] = {
    "volta": 25e9, "ampere": 25e9, "hopper": 25e9, "blackwell": 50e9, "blackwell-ultra": 50e9,
}  # fmt: skip
"""Bytes a second of one NVLink in one direction, by architecture: a V100 has 6, an A100 12, an H100
18 links (450 GB/s), a B200 18 of twice the speed. Ada and consumer boards have none."""

IDLE = 0.05
"""Below this utilization over the window a GPU is in no job."""

_DIRECTIONS = (
    (c.NIC_RECEIVE_BYTES_TOTAL, c.NIC_RECEIVE_UTILIZATION_RATIO),
    (c.NIC_TRANSMIT_BYTES_TOTAL, c.NIC_TRANSMIT_UTILIZATION_RATIO),
)
_NVLINK_DIRECTIONS = (
    (c.GPU_NVLINK_RECEIVE_BYTES_TOTAL, c.GPU_NVLINK_RECEIVE_UTILIZATION_RATIO),
    (c.GPU_NVLINK_TRANSMIT_BYTES_TOTAL, c.GPU_NVLINK_TRANSMIT_UTILIZATION_RATIO),
)

Port = tuple[str, str]
Gpu = tuple[str, str]


class Rail(NamedTuple):
    """A rail: its name, and the devices of this node that are on it."""

    name: str
    devices: frozenset[str]


def use(products: Accelerators, *, window: float = 30.0, floor: float = 1e9) -> Derivation:
    """Return the derivation. Rates are taken over `window` seconds.

    Rails are compared while the middle one carries `floor` bytes a second or more, received and
    sent together: below that it is chance which one is used.
    """

    def derive(view: View, memory: Memory, now: float) -> Iterator[Sample]:
        recent = Window(memory, window, now)
        rates = dict(_port_rates(view, recent))
        yield from _utilization(view, rates, now)
        yield from _nvlink(view, products, recent)
        yield from _rails(rails_of(view, now), _unused(view, recent), rates, floor)

    return Derivation(
        name=NAME,
        group=c.FABRIC,
        inputs=(
            c.NIC_RECEIVE_BYTES_TOTAL, c.NIC_TRANSMIT_BYTES_TOTAL,
            c.NIC_LINK_RATE_BYTES_PER_SECOND, c.TOPOLOGY_GPU_BEST_NIC_INFO, c.TOPOLOGY_NIC_INFO,
            c.GPU_INFO, c.GPU_NVLINK_LINKS_UP, c.GPU_NVLINK_LINK_RATE_BYTES_PER_SECOND,
            c.GPU_NVLINK_LINK_UP, c.GPU_UTILIZATION_RATIO,
            c.GPU_NVLINK_RECEIVE_BYTES_TOTAL, c.GPU_NVLINK_TRANSMIT_BYTES_TOTAL,
        ),
        outputs=(
            c.NIC_RECEIVE_UTILIZATION_RATIO, c.NIC_TRANSMIT_UTILIZATION_RATIO,
            c.GPU_NVLINK_PEAK_BANDWIDTH_BYTES_PER_SECOND,
            c.GPU_NVLINK_RECEIVE_UTILIZATION_RATIO, c.GPU_NVLINK_TRANSMIT_UTILIZATION_RATIO,
            c.NIC_RAIL_BYTES_PER_SECOND, c.NIC_RAIL_TRAFFIC_RATIO,
            c.NIC_RAIL_IMBALANCE_RATIO,
        ),
        function=derive,
    )  # fmt: skip


def rails_of(view: View, now: float) -> list[Rail]:
    """Return the rails of the node, as the topology tells them.

    A NIC in the wrong slot is the nearest of no GPU, and a rail all the same.
    """
    found: dict[str, set[str]] = {}
    for family in (c.TOPOLOGY_GPU_BEST_NIC_INFO, c.TOPOLOGY_NIC_INFO):
        for one in readings(view, family, now):
            said = dict(zip(family.labels, one.labels, strict=True))
            if said["rail"] and said["device"]:
                found.setdefault(said["rail"], set()).add(said["device"])
    return [Rail(name, frozenset(devices)) for name, devices in found.items()]


# ---------------------------------------------------------------- ports


def _port_rates(view: View, recent: Window) -> Iterator[tuple[tuple[Metric, Port], float]]:
    for counter, _ in _DIRECTIONS:
        for one in readings(view, counter, recent.now):
            rate = recent.rate((counter.name, *one.labels), one)
            if rate is not None:
                device, port = one.labels
                yield (counter, (device, port)), rate


def _utilization(
    view: View, rates: Mapping[tuple[Metric, Port], float], now: float
) -> Iterator[Sample]:
    for one in readings(view, c.NIC_LINK_RATE_BYTES_PER_SECOND, now):
        device, port = one.labels
        for counter, ratio in _DIRECTIONS:
            rate = rates.get((counter, (device, port)))
            if rate is not None and one.value > 0:
                yield ratio(rate / one.value, device, port)


# ---------------------------------------------------------------- rails


def _unused(view: View, recent: Window) -> frozenset[str]:
    """Return the rails of GPUs that do nothing: a job on half of the node uses half of its rails.

    The rail of a GPU of which no use is told is not among them, nor that of no GPU.
    """
    busy = {
        one.labels[1]: recent.mean((c.GPU_UTILIZATION_RATIO.name, one.labels[1]), one) >= IDLE
        for one in readings(view, c.GPU_UTILIZATION_RATIO, recent.now)
    }
    users: dict[str, bool] = {}
    for one in readings(view, c.TOPOLOGY_GPU_BEST_NIC_INFO, recent.now):
        said = dict(zip(c.TOPOLOGY_GPU_BEST_NIC_INFO.labels, one.labels, strict=True))
        users[said["rail"]] = users.get(said["rail"], False) or busy.get(said["uuid"], True)
    return frozenset(rail for rail, used in users.items() if not used)


def _rails(
    rails: list[Rail],
    unused: Collection[str],
    rates: Mapping[tuple[Metric, Port], float],
    floor: float,
) -> Iterator[Sample]:
    traffic = {
        rail.name: told for rail in rails if (told := _traffic(rail.devices, rates)) is not None
    }
    for name, told in traffic.items():
        yield c.NIC_RAIL_BYTES_PER_SECOND(told, name)
    if any(rail.name not in traffic for rail in rails if rail.name not in unused):
        return  # of rails that are missing nothing is known
    traffic = {name: told for name, told in traffic.items() if name not in unused}
    if len(traffic) < 2:  # one has nobody to be compared with
        return
    middle = statistics.median(traffic.values())
    if middle < floor or middle <= 0:
        return
    for name, told in traffic.items():
        yield c.NIC_RAIL_TRAFFIC_RATIO(told / middle, name)
    yield c.NIC_RAIL_IMBALANCE_RATIO(1 - min(traffic.values()) / middle)


def _traffic(devices: frozenset[str], rates: Mapping[tuple[Metric, Port], float]) -> float | None:
    """Return what goes over a rail's devices in both directions; None if one is not known."""
    total = 0.0
    for device in devices:
        told = [rate for (_, (name, _)), rate in rates.items() if name == device]
        if not told:
            return None
        total += sum(told)
    return total


# ---------------------------------------------------------------- NVLink


def _nvlink(view: View, products: Accelerators, recent: Window) -> Iterator[Sample]:
    peaks = nvlink_peaks(view, products, recent.now)
    for (gpu, uuid), peak in peaks.items():
        yield c.GPU_NVLINK_PEAK_BANDWIDTH_BYTES_PER_SECOND(peak, gpu, uuid)
    for counter, ratio in _NVLINK_DIRECTIONS:
        for one in readings(view, counter, recent.now):
            rate = recent.rate((counter.name, *one.labels), one)
            gpu, uuid = one.labels
            if rate is not None and (gpu, uuid) in peaks:
                yield ratio(rate / peaks[gpu, uuid], gpu, uuid)


def nvlink_peaks(view: View, products: Accelerators, now: float) -> dict[Gpu, float]:
    """Return what all active NVLinks of each GPU carry in one direction, in bytes a second."""
    stated = _stated_rates(view, now)
    each = dict(_by_architecture(view, products, now))
    found: dict[Gpu, float] = {}
    for one in readings(view, c.GPU_NVLINK_LINKS_UP, now):
        gpu, uuid = one.labels
        peak = stated.get((gpu, uuid), one.value * each.get((gpu, uuid), 0.0))
        if peak > 0:
            found[gpu, uuid] = peak
    return found


def _stated_rates(view: View, now: float) -> dict[Gpu, float]:
    """Return the sum of the rates of active links, where the driver states them."""
    up = {one.labels for one in readings(view, c.GPU_NVLINK_LINK_UP, now) if one.value == 1}
    found: dict[Gpu, float] = {}
    for one in readings(view, c.GPU_NVLINK_LINK_RATE_BYTES_PER_SECOND, now):
        if one.labels in up:
            gpu, uuid, _ = one.labels
            found[gpu, uuid] = found.get((gpu, uuid), 0.0) + one.value
    return found


def _by_architecture(view: View, products: Accelerators, now: float) -> Iterator[tuple[Gpu, float]]:
    for one in readings(view, c.GPU_INFO, now):
        said = dict(zip(c.GPU_INFO.labels, one.labels, strict=True))
        # A virtual GPU has the id of the board that it is a part of, and not its links.
        if said["virtualization"] == "vgpu":
            continue
        match = products.resolve(said["name"], said["pci_device_id"])
        rate = None if match is None else NVLINK.get(match.accelerator.architecture)
        if rate is not None:
            yield (said["gpu"], said["uuid"]), rate
