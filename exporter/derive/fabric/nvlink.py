"""NVLink traffic against what the product's links can carry.

The counters are payload, the peak is the maker's figure, of which packets take some percent for
themselves: about 0.9 is what a transfer of large blocks reaches. The peak belongs to the product,
not to the links that are up: a GPU that lost some of them stays below it, which
`topology_gpu_nvlink_ok` tells. There is none while it is not sure enough which product a board is,
or where no source tells its figure.

    gpu_peak_nvlink_bytes_per_second{gpu="0",uuid="GPU-5a1c..."} 450000000000
    gpu_nvlink_transmit_utilization_ratio{gpu="0",uuid="GPU-5a1c..."} 0.31
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from exporter import catalogue as c
from exporter.derive.derivation import Derivation, readings
from exporter.derive.hardware import LEAST_CONFIDENCE
from exporter.derive.memory import Memory
from exporter.reference.accelerators import Accelerators
from exporter.samples import Metric, Sample, View

NAME = "nvlink"

SECONDS = 10.0
"""Over how long traffic is averaged."""

_KEPT = 60.0

_SIDES: Mapping[Metric, Metric] = {
    c.GPU_NVLINK_RECEIVE_BYTES_TOTAL: c.GPU_NVLINK_RECEIVE_UTILIZATION_RATIO,
    c.GPU_NVLINK_TRANSMIT_BYTES_TOTAL: c.GPU_NVLINK_TRANSMIT_UTILIZATION_RATIO,
}


def nvlink(accelerators: Accelerators) -> Derivation:
    """Return the derivation over a table of products."""
    return Derivation(
        name=NAME,
        group=c.FABRIC,
        inputs=(c.GPU_INFO, c.GPU_PEAK_CONFIDENCE_RATIO, *_SIDES),
        outputs=(c.GPU_PEAK_NVLINK_BYTES_PER_SECOND, *_SIDES.values()),
        function=lambda view, memory, now: _told(accelerators, view, memory, now),
        steady=True,
    )


def _told(accelerators: Accelerators, view: View, memory: Memory, now: float) -> Iterator[Sample]:
    peaks = _peaks(accelerators, view, now)
    counted = set()
    for counter, ratio in _SIDES.items():
        for one in readings(view, counter, now):
            peak = peaks.get(one.labels)
            if peak is None:
                continue
            if one.labels not in counted:
                counted.add(one.labels)
                yield c.GPU_PEAK_NVLINK_BYTES_PER_SECOND(peak, *one.labels)
            ring = memory.window(counter.name, *one.labels, seconds=_KEPT, most=256)
            ring.add(one.taken, one.value)
            rate = _rate(ring.since(now))
            if rate is not None:
                yield ratio(min(1.0, rate / peak), *one.labels)


def _peaks(accelerators: Accelerators, view: View, now: float) -> dict[tuple[str, ...], int]:
    """Return bytes a second in one direction, by index and UUID, of boards that are known."""
    sure = {
        one.labels
        for one in readings(view, c.GPU_PEAK_CONFIDENCE_RATIO, now)
        if one.value >= LEAST_CONFIDENCE
    }
    found: dict[tuple[str, ...], int] = {}
    for one in readings(view, c.GPU_INFO, now):
        said = dict(zip(c.GPU_INFO.labels, one.labels, strict=True))
        key = (said["gpu"], said["uuid"])
        # A virtual GPU has the id of the board that it is a part of, and none of its links.
        if key not in sure or said["virtualization"] == "vgpu":
            continue
        match = accelerators.resolve(said["name"], said["pci_device_id"])
        if match is not None and match.accelerator.nvlink is not None:
            found[key] = match.accelerator.nvlink
    return found


def _rate(told: Sequence[tuple[float, float]]) -> float | None:
    """Return the increase in a second over `SECONDS`, or over one interval where that is longer.

    What was before a counter was set back is left out.
    """
    reset = max((at for at in range(1, len(told)) if told[at][1] < told[at - 1][1]), default=0)
    told = told[reset:]
    if len(told) < 2:
        return None
    ended, last = told[-1]
    began, first = max((one for one in told[:-1] if one[0] <= ended - SECONDS), default=told[0])
    return (last - first) / (ended - began)
