"""What a collective costs by theory: its bytes on the wire, and the least time they take.

Two figures belong to a measurement. The algorithm's bandwidth is the message over the time; bus
bandwidth is that times a factor (`FACTORS`, those of nccl-tests), so that it can be held against
the links whatever the number of ranks. The size of a message is that of the whole: for an
all-gather what each rank has at the end, for a reduce-scatter what each has at the beginning.

The time is T = factor x size / bandwidth + steps x latency, the specification's 16.4.2 without
its waiting for others, which no theory knows. By algorithm (`ALGORITHMS`):

- ring: each rank sends 2(n-1)/n of an all-reduce, in 2(n-1) steps, one after another;
- tree (two binary trees, each for half of the data): 2, in 2 log2(n) steps. The specification gives
  this figure for "tree with SHARP"; it is that of a tree without;
- sharp: the switches add up (CollNet), so that each rank sends its data once and receives the sum
  once, at the same time: 1. At most twice as fast as a ring, and only between nodes;
- nvls: the same within a node by NVLink switches: each GPU sends its data and its share of the sum
  to all, (n+1)/n. For 8 GPUs that is 1.56 times as fast as a ring.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from exporter.derive import parallel


def _whole(_ranks: int) -> float:
    return 1.0


def _others(ranks: int) -> float:
    return (ranks - 1) / ranks


def _twice(ranks: int) -> float:
    return 2 * _others(ranks)


FACTORS: Mapping[str, Callable[[int], float]] = {
    "all_reduce": _twice,
    "reduce_scatter": _others,
    "all_gather": _others,
    "all_to_all": _others,
    "gather": _others,
    "scatter": _others,
    "broadcast": _whole,
    "reduce": _whole,
    "send_receive": _whole,
}
"""Bus bandwidth over the algorithm's bandwidth, by collective, of so many ranks."""

NAMES: Mapping[str, str] = {
    "AllReduce": "all_reduce", "ReduceScatter": "reduce_scatter", "AllGather": "all_gather",
    "AlltoAll": "all_to_all", "AllToAll": "all_to_all", "Gather": "gather", "Scatter": "scatter",
    "Broadcast": "broadcast", "Reduce": "reduce", "Send": "send_receive", "Recv": "send_receive",
}  # fmt: skip
"""Our names of collectives, by NCCL's."""


class Algorithm(NamedTuple):
    """A way to do a collective: what each rank sends of the message, and in how many steps."""

    name: str
    collective: str
    factor: Callable[[int], float]
    steps: Callable[[int], float]

    def seconds(self, size: float, ranks: int, bandwidth: float, latency: float = 0.0) -> float:
        """Return the least time of a message of `size` bytes; one rank needs none."""
        if ranks < 2:
            return 0.0
        return self.factor(ranks) * size / bandwidth + self.steps(ranks) * latency

    def bus_bandwidth(self, ranks: int, bandwidth: float) -> float:
        """Return the bus bandwidth that it would show on links of such a bandwidth."""
        return FACTORS[self.collective](ranks) / self.factor(ranks) * bandwidth


def _depth(ranks: int) -> float:
    return 2 * math.ceil(math.log2(ranks))


def _one(_ranks: int) -> float:
    return 1.0


def _around(ranks: int) -> float:
    return ranks - 1


NVLS = Algorithm("nvls", "all_reduce", lambda ranks: (ranks + 1) / ranks, lambda _: 2.0)

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm("ring", "all_reduce", _twice, lambda ranks: 2 * _around(ranks)),
    Algorithm("tree", "all_reduce", lambda _: 2.0, _depth),
    Algorithm("sharp", "all_reduce", _whole, lambda _: 2.0),
    NVLS,
    Algorithm("ring", "reduce_scatter", _others, _around),
    Algorithm("ring", "all_gather", _others, _around),
    Algorithm("pairwise", "all_to_all", _others, _around),
)  # fmt: skip
"""How collectives are done; each is an ideal."""

_DIRECT = Algorithm("direct", "send_receive", _whole, _one)


def algorithm(collective: str) -> Algorithm:
    """Return the plain way to do a collective: a ring, or directly. Raises `KeyError`."""
    return {one.collective: one for one in reversed((*ALGORITHMS, _DIRECT))}[collective]


class Fabric(NamedTuple):
    """A cluster of equal nodes. Bandwidths are bytes a second in one direction.

    `nic` is what one port carries, `nvlink` what all NVLinks of a GPU carry; `efficiency` is the
    share of both that protocols leave. `latency` is that of one step, in seconds.
    """

    gpus_per_node: int = 8
    nics_per_node: int = 8
    nic: float = 50e9
    nvlink: float = 450e9
    efficiency: float = 0.9
    latency: float = 0.0

    @property
    def node(self) -> float:
        """What all ports of a node carry; a ring over several nodes uses all of them."""
        return parallel.bus_bandwidth(self.nics_per_node, self.nic, self.efficiency)

    @property
    def inside(self) -> float:
        """What a GPU's NVLinks carry."""
        return self.nvlink * self.efficiency

    def group(self, ranks: int, stride: int = 1) -> Group:
        """Return a group of ranks of which each is `stride` ranks after the one before it."""
        return Group(self, ranks, min(ranks, max(1, self.gpus_per_node // stride)))


class Group(NamedTuple):
    """Ranks that communicate, of which `local` are on each node.

    The GPUs of a node that are not in it are in others like it, which want their share of the ports
    at the same time.
    """

    fabric: Fabric
    ranks: int
    local: int

    @property
    def within(self) -> bool:
        """Whether all of it is on one node."""
        return self.local >= self.ranks

    @property
    def bandwidth(self) -> float:
        """What a ring over the group reaches: the least of the links on its way."""
        return min(self.links, self.fabric.inside) if self.local > 1 else self.links

    @property
    def links(self) -> float:
        """What the links between the nodes carry for it; NVLink's where it is on one node."""
        fabric = self.fabric
        return fabric.inside if self.within else fabric.node * self.local / fabric.gpus_per_node

    def seconds(self, collective: str, size: float) -> float:
        """Return the least time of a collective by its plain algorithm."""
        how = algorithm(collective)
        if self.ranks < 2:
            return 0.0
        if collective == "all_to_all" and not self.within:
            waits = how.steps(self.ranks) * self.fabric.latency
            return max(self._outwards(size), self._inwards(size)) + waits
        return how.seconds(size, self.ranks, self.rate(collective), self.fabric.latency)

    def rate(self, collective: str) -> float:
        """Return what the slowest link of a collective carries for one rank of the group.

        What goes to another node directly has a GPU's share of the ports; a ring is passed on
        within a node, and so has the ports of all its ranks there.
        """
        if collective in {"all_to_all", "send_receive"} and not self.within:
            return self._own
        return self.bandwidth

    @property
    def _own(self) -> float:
        """A GPU's share of the ports of its node."""
        return self.fabric.node / self.fabric.gpus_per_node

    def _outwards(self, size: float) -> float:
        """Return the time of what a GPU sends to other nodes: no neighbour passes it on."""
        return (self.ranks - self.local) / self.ranks * size / self._own

    def _inwards(self, size: float) -> float:
        return (self.local - 1) / self.ranks * size / self.fabric.inside
