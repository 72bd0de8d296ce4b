"""Which NICs carry what GPUs send to other nodes, and which of them is whose.

A node has more ports than those that training uses: management, storage, virtual functions. A
compute NIC can do RDMA, is a function of a card (no virtual one), is not that of the default route
or of the storage, and has the speed that most of the node's bandwidth has. Its place among them is
its rail: NIC n of every node is on the same switch.

Several GPUs may have the same NICs nearest to them. Each gets one of its own as long as there are
enough of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from exporter.derive.fabric.distance import NODE, PXB, RANKS, Place

COMPUTE, STORAGE, ROUTE, OTHER, VIRTUAL = "compute", "storage", "default_route", "other", "virtual"
ROLES = (COMPUTE, STORAGE, ROUTE, OTHER, VIRTUAL)
"""What a NIC is there for. `other` is what is slower, and what cannot do RDMA."""

_DIGITS = re.compile(r"(\d+)")


class Nic(NamedTuple):
    """A network card's function: its name, where it hangs, what it can do.

    `device` is the RDMA device's name, or the interface's where there is none; `netdevs` are its
    interfaces. `rate` is bytes per second, None while no port is up; `model` tells boards of one
    kind. `routes` says that the default route goes over it.
    """

    device: str
    place: Place
    rdma: bool = True
    virtual: bool = False
    rate: float | None = None
    model: str = ""
    netdevs: tuple[str, ...] = ()
    routes: bool = False


class Chosen(NamedTuple):
    """What an operator says of roles: patterns that names of devices match as a whole."""

    compute: re.Pattern[str] | None = None
    storage: re.Pattern[str] | None = None


NOTHING_CHOSEN = Chosen()


def natural(name: str) -> tuple[object, ...]:
    """Return what to sort names by, such that mlx5_10 comes after mlx5_9."""
    return tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in _DIGITS.split(name)
    )


def roles(nics: Sequence[Nic], chosen: Chosen = NOTHING_CHOSEN) -> Mapping[str, str]:
    """Return the role of each NIC by its device.

    A port that is down has no speed: it counts as fast as a card of the same model, so that rails
    are not numbered anew when a link goes down. Where the default route leaves over the only ones
    that could be, they are compute NICs all the same.
    """
    found = {nic.device: _role(nic, chosen) for nic in nics}
    if chosen.compute is not None:
        return found
    able = [nic for nic in nics if found[nic.device] == COMPUTE]
    if not able:
        able = [nic for nic in nics if nic.rdma and found[nic.device] == ROUTE]
    fast = _fastest(able)
    for nic in able:
        found[nic.device] = COMPUTE if nic.device in fast else OTHER
    return found


def _role(nic: Nic, chosen: Chosen) -> str:
    names = (nic.device, *nic.netdevs)
    if chosen.compute is not None and any(map(chosen.compute.fullmatch, names)):
        return COMPUTE
    if nic.virtual:
        return VIRTUAL
    if chosen.storage is not None and any(map(chosen.storage.fullmatch, names)):
        return STORAGE
    if nic.routes:
        return ROUTE
    return COMPUTE if nic.rdma and chosen.compute is None else OTHER


def _fastest(nics: Sequence[Nic]) -> Collection[str]:
    """Return those of the speed that makes most of the bandwidth, of equal ones the higher."""
    rates = Counter(nic.rate for nic in nics if nic.rate is not None)
    if not rates:
        common = Counter(nic.model for nic in nics).most_common(1)
        return {nic.device for nic in nics if nic.model == common[0][0]} if common else ()
    wanted = max(rates, key=lambda rate: (rates[rate] * rate, rate))
    models = {nic.model for nic in nics if nic.rate == wanted}
    return {
        nic.device
        for nic in nics
        if nic.rate == wanted or (nic.rate is None and nic.model in models)
    }


def rails_of(compute: Iterable[str]) -> Mapping[str, int]:
    """Return the rail of each compute NIC: its place among them."""
    return {device: at for at, device in enumerate(sorted(compute, key=natural))}


class Best(NamedTuple):
    """The compute NIC of a GPU: its device, how far it is, and its rail."""

    device: str
    distance: str
    rail: int


def best_nics(
    distances: Mapping[str, Mapping[str, str]], compute: Iterable[str]
) -> Mapping[str, Best]:
    """Return the nearest compute NIC of each GPU; a GPU of which no distance is known has none.

    `distances` is by GPU and device, in the order of the GPUs.
    """
    rails = rails_of(compute)
    near = {gpu: _nearest(row, rails) for gpu, row in distances.items()}
    return {
        gpu: Best(device, distances[gpu][device], rails[device])
        for gpu, device in _shared_out(near).items()
    }


def _nearest(row: Mapping[str, str], rails: Mapping[str, int]) -> Sequence[str]:
    """Return the nearest devices of a GPU, in the order of the rails."""
    ranks = {device: RANKS[row[device]] for device in rails if row.get(device) in RANKS}
    least = min(ranks.values(), default=0)
    return [device for device, its in ranks.items() if its == least]


def _shared_out(near: Mapping[str, Sequence[str]]) -> Mapping[str, str]:
    """Return one of its nearest devices for each GPU, such that as few as can be share one."""
    held: dict[str, list[str]] = {}

    def settle(gpu: str, most: int, asked: set[str]) -> bool:
        """Give a GPU a device, if need be by moving others to another of theirs."""
        free = next((one for one in near[gpu] if len(held.setdefault(one, [])) < most), None)
        if free is not None:
            held[free].append(gpu)
            return True
        for device in near[gpu]:
            if device not in asked:
                asked.add(device)
                for at, other in enumerate(held[device]):
                    if settle(other, most, asked):
                        held[device][at] = gpu
                        return True
        return False

    waiting = [gpu for gpu in near if near[gpu]]
    for most in range(1, len(waiting) + 1):
        waiting = [gpu for gpu in waiting if not settle(gpu, most, set())]
    found = {gpu: device for device, gpus in held.items() for gpu in gpus}
    return {gpu: found[gpu] for gpu in near if gpu in found}


def shared(best: Mapping[str, Best], compute: Collection[str], gpus: int) -> Mapping[str, bool]:
    """Tell of each compute NIC whether several GPUs have to share it though there are enough."""
    if gpus == 0 or len(compute) < gpus:
        return {}
    users = Counter(one.device for one in best.values())
    return {device: users[device] > 1 for device in sorted(compute, key=natural)}


def judged(
    best: Mapping[str, Best], compute: int, gpus: int, worst: str | None = None
) -> Mapping[str, bool]:
    """Tell of each GPU whether its NIC is as near as the board allows; no answer is no entry.

    `worst` is the distance that is still good. Without it that follows from the board: what the
    best placed GPU has, PXB at least and NODE at most. One NIC for several GPUs cannot be near all
    of them: it is judged by the nearest.
    """
    ranks = {gpu: RANKS[one.distance] for gpu, one in best.items()}
    if not ranks:
        return {}
    nearest = min(ranks.values())
    limit = _limit(nearest) if worst is None else RANKS[worst]
    if compute == 1 and gpus > 1:
        return dict.fromkeys(ranks, nearest <= limit)
    return {gpu: its <= limit for gpu, its in ranks.items()}


def _limit(nearest: int) -> int:
    return max(RANKS[PXB], min(nearest, RANKS[NODE]))


def linked(links: Mapping[str, int]) -> Mapping[str, bool]:
    """Tell of each GPU whether it has the NVLinks that most GPUs of the node have.

    `links` is how many it has that are up. No answer where most have none, or no number is that of
    more than half of them: cards with bridges stand beside such without.
    """
    if len(links) < 2:
        return {}
    usual, often = Counter(links.values()).most_common(1)[0]
    if not usual or often * 2 <= len(links):
        return {}
    return {gpu: number >= usual for gpu, number in links.items()}
