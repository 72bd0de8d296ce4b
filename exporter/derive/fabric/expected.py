"""What bus bandwidth the links allow, beside what NCCL Inspector measured; and whether SHARP works.

For operations of 16 MiB and more, of communicators of one kind: below that latency decides. What is
expected is what the theory of `collectives` makes of the node's links: the rates of its rails, the
NVLinks of its GPUs, and the ranks that the communicator has on each node. All of that must be
known. `reference` is what an operator has measured of an all-reduce over whole nodes (nccl-tests);
it goes before the theory.

SHARP has no counter on the host. Two things tell of it (never silence): NCCL's log, and bus
bandwidth. Beyond what the ports carry an all-reduce over four nodes or more can only be if switches
add up; of two or three nodes a tree may be as fast. Far below the reference it is without.

    nccl_expected_bus_bandwidth_bytes_per_second{run="llama",rank="2",collective="AllReduce",
      size="inf"} 3.6e+11
    nccl_bus_bandwidth_ratio{run="llama",rank="2",collective="AllReduce",size="inf"} 0.94
    nccl_collnet_active{run="llama"} 0
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from exporter import catalogue as c
from exporter.derive.derivation import Derivation, readings
from exporter.derive.fabric.collectives import FACTORS, NAMES, Fabric, Group
from exporter.derive.memory import Memory
from exporter.samples import Sample, View

NAME = "collectives"

BEYOND = 1.05
"""Above this share of what ports carry it is no jitter of the measurement."""
LEAST_NODES = 4
"""From so many nodes on no tree is faster than a ring."""

_Key = tuple[str, ...]
_MESSAGE = 1e9


class Limits(NamedTuple):
    """What the operator says: see `config.FabricSettings`."""

    efficiency: float = 0.9
    reference: float | None = None
    least_ratio: float = 0.7


class _Links(NamedTuple):
    """The node's links: its GPUs, its rails and what they carry, the least NVLink of a GPU."""

    gpus: int
    rails: int
    carried: float | None
    nvlink: float | None


class _Measured(NamedTuple):
    """What was measured of one kind of operation: on which node's ranks, and how fast."""

    key: _Key
    collective: str
    ranks: int
    nodes: int
    bandwidth: float

    @property
    def local(self) -> int:
        """Ranks on each node."""
        return self.ranks // self.nodes


def expected(limits: Limits = Limits()) -> Derivation:  # noqa: B008 - it does not change
    """Return the derivation."""

    def derive(view: View, _memory: Memory, now: float) -> Iterator[Sample]:
        links = _links(view, now)
        sharp = dict(_logged(view, now))
        logged = frozenset(sharp)
        for one in _measured(view, now):
            bandwidth = _expected(one, links, limits)
            if bandwidth is not None:
                yield c.NCCL_EXPECTED_BUS_BANDWIDTH_BYTES_PER_SECOND(bandwidth, *one.key)
                yield c.NCCL_BUS_BANDWIDTH_RATIO(one.bandwidth / bandwidth, *one.key)
            shown = _shows_sharp(one, links, limits)
            run = one.key[0]
            if shown is not None and run not in logged:
                sharp[run] = sharp.get(run, False) or shown
        for run, so in sharp.items():
            yield c.NCCL_COLLNET_ACTIVE(int(so), run)

    return Derivation(
        name=NAME,
        group=c.FABRIC,
        inputs=(
            c.NCCL_BUS_BANDWIDTH_BYTES_PER_SECOND, c.NCCL_COMMUNICATOR_INFO,
            c.NCCL_COLLNET_LOGGED, c.TRAIN_COLLNET_LOGGED,
            c.NIC_LINK_RATE_BYTES_PER_SECOND, c.TOPOLOGY_GPU_BEST_NIC_INFO,
            c.GPU_NVLINK_PEAK_BANDWIDTH_BYTES_PER_SECOND, c.GPU_INFO,
        ),
        outputs=(
            c.NCCL_EXPECTED_BUS_BANDWIDTH_BYTES_PER_SECOND, c.NCCL_BUS_BANDWIDTH_RATIO,
            c.NCCL_COLLNET_ACTIVE,
        ),
        function=derive,
    )  # fmt: skip


def _logged(view: View, now: float) -> Iterator[tuple[str, bool]]:
    """Yield what logs say of SHARP, by run; one that has it is enough."""
    found: dict[str, bool] = {}
    for metric in (c.TRAIN_COLLNET_LOGGED, c.NCCL_COLLNET_LOGGED):
        for one in readings(view, metric, now):
            found[one.labels[0]] = found.get(one.labels[0], False) or one.value == 1
    yield from found.items()


def _links(view: View, now: float) -> _Links:
    nearest: dict[str, str] = {}
    for one in readings(view, c.TOPOLOGY_GPU_BEST_NIC_INFO, now):
        said = dict(zip(c.TOPOLOGY_GPU_BEST_NIC_INFO.labels, one.labels, strict=True))
        nearest[said["gpu"]] = said["device"]
    rates: dict[str, float] = {}
    for one in readings(view, c.NIC_LINK_RATE_BYTES_PER_SECOND, now):
        rates[one.labels[0]] = rates.get(one.labels[0], 0.0) + one.value
    rails = set(nearest.values())
    known = bool(rails) and rails <= rates.keys()
    gpus = {one.labels[0] for one in readings(view, c.GPU_INFO, now)} or nearest.keys()
    peaks = {
        one.labels[0]: one.value
        for one in readings(view, c.GPU_NVLINK_PEAK_BANDWIDTH_BYTES_PER_SECOND, now)
    }
    return _Links(
        gpus=len(gpus),
        rails=len(rails),
        carried=sum(rates[device] for device in rails) if known else None,
        nvlink=min(peaks.values()) if peaks and gpus <= peaks.keys() else None,
    )


def _measured(view: View, now: float) -> Iterator[_Measured]:
    groups: dict[_Key, tuple[int, int]] = {}
    for one in readings(view, c.NCCL_COMMUNICATOR_INFO, now):
        *key, ranks, nodes = one.labels
        if ranks.isdecimal() and nodes.isdecimal():
            groups[tuple(key)] = int(ranks), int(nodes)
    for one in readings(view, c.NCCL_BUS_BANDWIDTH_BYTES_PER_SECOND, now):
        ranks_of, nodes_of = groups.get(one.labels, (0, 0))
        name = NAMES.get(one.labels[2])
        # Nodes that have different numbers of its ranks share its ports unevenly.
        if name is not None and ranks_of > 1 and nodes_of > 0 and ranks_of % nodes_of == 0:
            yield _Measured(one.labels, name, ranks_of, nodes_of, one.value)


def _expected(one: _Measured, links: _Links, limits: Limits) -> float | None:
    if _has_reference(one, links, limits):
        return limits.reference
    group = _group(one, links, limits.efficiency)
    if group is None:
        return None
    return FACTORS[one.collective](one.ranks) * _MESSAGE / group.seconds(one.collective, _MESSAGE)


def _has_reference(one: _Measured, links: _Links, limits: Limits) -> bool:
    """Tell whether it is what the operator has measured: an all-reduce over whole nodes."""
    whole = one.nodes > 1 and one.local == links.gpus
    return limits.reference is not None and one.collective == "all_reduce" and whole


def _group(one: _Measured, links: _Links, efficiency: float) -> Group | None:
    """Return the communicator on the node's links; nothing if one that it needs is not known."""
    needs_nvlink, needs_ports = one.local > 1, one.nodes > 1
    if (needs_nvlink and links.nvlink is None) or (needs_ports and links.carried is None):
        return None
    if not links.gpus or one.local > links.gpus:
        return None
    fabric = Fabric(
        links.gpus, max(1, links.rails), (links.carried or 0.0) / max(1, links.rails),
        links.nvlink or 0.0, efficiency,
    )  # fmt: skip
    return Group(fabric, one.ranks, one.local)


def _shows_sharp(one: _Measured, links: _Links, limits: Limits) -> bool | None:
    """Return what bus bandwidth says of SHARP, if it says anything."""
    if one.collective != "all_reduce" or one.nodes < 2:
        return None
    group = _group(one, links, 1.0)
    if group is not None and one.nodes >= LEAST_NODES and one.bandwidth > BEYOND * group.links:
        return True
    if limits.reference is not None and _has_reference(one, links, limits):
        return False if one.bandwidth < limits.least_ratio * limits.reference else None
    return None
