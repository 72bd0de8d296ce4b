"""What the hardware of the node did for its inference servers: peaks, energy, throttling, links.

The book holds what servers say; this holds what is needed beside it. `llm_server_gpu` tells which
GPUs a server works on. Only their counters are followed, and those of the network ports. Several
parts ask the same node; it looks at the board once in a round, however often it is shown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from exporter import catalogue as c
from exporter.derive.derivation import readings
from exporter.derive.memory import HOUR
from exporter.samples import Metric, View

Gpu = tuple[str, str]
"""Index and UUID."""

GRAIN = 5.0
"""Seconds; a meter keeps no more than one value in so long."""

FORGOTTEN = 60.0
"""Seconds after which a counter that is not seen any more says nothing."""

HARMLESS = frozenset({"low_utilization", "sync_boost"})
"""Reasons for low clocks that hold no work back."""

LIMITS = frozenset({"sw_power_cap", "board_limit", "reliability"})
"""Reasons that a busy GPU meets in good health: limits of power and voltage that it is set to."""

LINK_CAUSES = frozenset({
    "symbol", "link_recovery", "link_downed", "link_integrity", "remote_physical", "crc", "icrc",
    "transport_retries_exceeded", "unresponsive_remote", "impaired_remote",
})  # fmt: skip
"""Errors of a network port that speak of a link, a cable or its other end, not of programs."""

COUNTERS = (
    c.GPU_ENERGY_JOULES_TOTAL,
    c.GPU_THROTTLED_SECONDS_TOTAL,
    c.GPU_NVLINK_ERRORS_TOTAL,
    c.GPU_DRAM_ACTIVE_SECONDS_TOTAL,
    c.GPU_ESTIMATED_FLOPS_TOTAL,
)
"""Counters of GPUs that are followed."""

INPUTS: tuple[Metric, ...] = (
    c.LLM_SERVER_GPU,
    c.LLM_SERVER_RANKS,
    c.GPU_PEAK_FLOPS,
    c.GPU_PEAK_MEMORY_BANDWIDTH_BYTES_PER_SECOND,
    c.NIC_ERRORS_TOTAL,
    *COUNTERS,
)


class Meter:
    """A counter of the last hour: how much it rose, and how fast, over the windows that end now.

    A counter that falls began anew (a driver was reloaded): the reading is a new baseline. Values
    that did not change take no room.
    """

    __slots__ = ("_last", "_times", "_totals", "seen")

    def __init__(self, taken: float, value: float) -> None:
        self.seen = taken
        self._last = value
        self._times = [taken]
        self._totals = [0.0]

    def add(self, taken: float, value: float) -> None:
        """Take a reading; one that is no newer than the last is ignored."""
        if taken <= self.seen:
            return
        before, self.seen = self.seen, taken
        rise = value - self._last
        if rise == 0:
            return
        self._last = value
        total = self._totals[-1] + max(0.0, rise)
        if before - self._times[-1] >= GRAIN:  # it stood still until then
            self._keep(before, self._totals[-1])
        if len(self._times) > 1 and self._times[-1] - self._times[-2] < GRAIN:
            self._times[-1], self._totals[-1] = taken, total
        else:
            self._keep(taken, total)

    def rise(self, now: float, window: float) -> float | None:
        """Return by how much it rose within the last `window` seconds; None if it is gone."""
        if now - self.seen > FORGOTTEN:
            return None
        return self._totals[-1] - self._at(now - window)

    def rate(self, now: float, window: float) -> float | None:
        """Return the rise for each second of the window, or of the part of it that was seen."""
        start = max(self._times[0], now - window)
        if now - self.seen > FORGOTTEN or self.seen <= start:
            return None
        return (self._totals[-1] - self._at(start)) / (self.seen - start)

    def _keep(self, taken: float, total: float) -> None:
        self._times.append(taken)
        self._totals.append(total)
        if self._times[0] < taken - HOUR - 2 * FORGOTTEN:
            old = max(0, bisect_right(self._times, taken - HOUR - FORGOTTEN) - 1)
            del self._times[:old], self._totals[:old]

    def _at(self, moment: float) -> float:
        """Return the rise up to a moment; between two values it was even."""
        i = bisect_right(self._times, moment)
        if i in (0, len(self._times)):
            return self._totals[max(0, i - 1)]
        begin, end = self._times[i - 1], self._times[i]
        share = (moment - begin) / (end - begin)
        return self._totals[i - 1] + share * (self._totals[i] - self._totals[i - 1])


class Node:
    """The hardware of this node, as far as it works for inference servers."""

    def __init__(self) -> None:
        self._now: float | None = None
        self._meters: dict[tuple[str, ...], Meter] = {}
        self._gpus: dict[str, tuple[Gpu, ...]] = {}
        self._ranks: dict[str, float] = {}
        self._users: dict[Gpu, int] = {}
        self._flops: dict[Gpu, dict[str, float]] = {}
        self._bandwidth: dict[Gpu, float] = {}
        self._keys: dict[Metric, dict[Gpu, list[tuple[str, ...]]]] = {}
        self._links: list[tuple[str, ...]] = []

    def observe(self, view: View, now: float) -> None:
        """Look at the board; a second look at the same moment sees nothing new."""
        if now == self._now:
            return
        self._now = now
        self._gpus = _servers(view, now)
        self._ranks = {r.labels[1]: r.value for r in readings(view, c.LLM_SERVER_RANKS, now)}
        self._users = {}
        for gpus in self._gpus.values():
            for gpu in gpus:
                self._users[gpu] = self._users.get(gpu, 0) + 1
        self._peaks(view, now)
        self._keys = {metric: {} for metric in COUNTERS}
        for metric in COUNTERS if self._users else ():
            self._follow(view, now, metric)
        self._links = []
        if self._users:
            self._follow_ports(view, now)
        gone = [key for key, meter in self._meters.items() if now - meter.seen > HOUR]
        for key in gone:
            del self._meters[key]

    def gpus(self, server: str) -> tuple[Gpu, ...]:
        """Return the GPUs that a server works on; none if that is not known."""
        return self._gpus.get(server, ())

    def users(self, gpu: Gpu) -> int:
        """Return how many servers work on a GPU."""
        return self._users.get(gpu, 0)

    def ranks(self, server: str) -> float:
        """Return how many data-parallel ranks a server's page adds up; 1 where it does not say."""
        return max(1.0, self._ranks.get(server, 1.0))

    def is_shared(self, server: str) -> bool:
        """Tell whether another server works on one of this server's GPUs."""
        return any(self._users[gpu] > 1 for gpu in self.gpus(server))

    def peak_flops(self, server: str, precision: str) -> float | None:
        """Return the operations per second of all GPUs of a server; None if one is not known."""
        found = [self._flops.get(gpu, {}).get(precision) for gpu in self.gpus(server)]
        return _sum(found)

    def peak_bandwidth(self, server: str) -> float | None:
        """Return the bytes per second of all GPUs of a server; None if one is not known."""
        return _sum([self._bandwidth.get(gpu) for gpu in self.gpus(server)])

    def rate(self, server: str, metric: Metric, window: float, *rest: str) -> float | None:
        """Return the rate of a counter over all GPUs of a server; None if one does not tell.

        `rest` are the labels after the GPU's own.
        """
        now = self._now or 0.0
        found = [self._meters.get((metric.name, *gpu, *rest)) for gpu in self.gpus(server)]
        return _sum([None if meter is None else meter.rate(now, window) for meter in found])

    def throttled(self, server: str, window: float, *, power: bool) -> float | None:
        """Return the largest share of a window in which clocks were held down, over its GPUs.

        By the power limit (`power`), or by heat, a power brake and other emergencies. Reasons
        overlap, so the largest one counts. None if no GPU tells.
        """
        shares = [
            rise / window
            for gpu in self.gpus(server)
            for key, rise in self._rises(c.GPU_THROTTLED_SECONDS_TOTAL, gpu, window)
            if key[-1] not in HARMLESS and (key[-1] in LIMITS) == power
        ]
        return min(1.0, max(shares)) if shares else None

    def nvlink_errors(self, server: str, window: float) -> float:
        """Return the errors on the NVLinks of a server's GPUs within a window."""
        return sum(
            rise
            for gpu in self.gpus(server)
            for _, rise in self._rises(c.GPU_NVLINK_ERRORS_TOTAL, gpu, window)
        )

    def port_errors(self, window: float) -> float:
        """Return the errors of links on all network ports of the node within a window."""
        now = self._now or 0.0
        return sum(self._meters[key].rise(now, window) or 0.0 for key in self._links)

    def _rises(
        self, metric: Metric, gpu: Gpu, window: float
    ) -> Iterable[tuple[tuple[str, ...], float]]:
        now = self._now or 0.0
        for key in self._keys.get(metric, {}).get(gpu, ()):
            rise = self._meters[key].rise(now, window)
            if rise is not None:
                yield key, rise

    def _peaks(self, view: View, now: float) -> None:
        self._flops, self._bandwidth = {}, {}
        for reading in readings(view, c.GPU_PEAK_FLOPS, now):
            gpu, uuid, precision = reading.labels
            self._flops.setdefault((gpu, uuid), {})[precision] = reading.value
        for reading in readings(view, c.GPU_PEAK_MEMORY_BANDWIDTH_BYTES_PER_SECOND, now):
            gpu, uuid = reading.labels
            self._bandwidth[gpu, uuid] = reading.value

    def _follow(self, view: View, now: float, metric: Metric) -> None:
        keys = self._keys[metric]
        for reading in readings(view, metric, now):
            gpu = (reading.labels[0], reading.labels[1])
            if gpu in self._users:
                key = (metric.name, *reading.labels)
                self._meter(key, reading.taken, reading.value)
                keys.setdefault(gpu, []).append(key)

    def _follow_ports(self, view: View, now: float) -> None:
        for reading in readings(view, c.NIC_ERRORS_TOTAL, now):
            if reading.labels[2] in LINK_CAUSES:
                key = ("nic", *reading.labels)
                self._meter(key, reading.taken, reading.value)
                self._links.append(key)

    def _meter(self, key: tuple[str, ...], taken: float, value: float) -> None:
        meter = self._meters.get(key)
        if meter is None:
            self._meters[key] = Meter(taken, value)
        else:
            meter.add(taken, value)


def _servers(view: View, now: float) -> dict[str, tuple[Gpu, ...]]:
    found: dict[str, tuple[Gpu, ...]] = {}
    for reading in readings(view, c.LLM_SERVER_GPU, now):
        server, gpu, uuid = reading.labels
        if reading.value and (gpu, uuid) not in found.get(server, ()):
            found[server] = (*found.get(server, ()), (gpu, uuid))
    return found


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
