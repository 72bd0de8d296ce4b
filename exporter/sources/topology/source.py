"""The samples of the topology: distances, rails, NUMA nodes, PCIe links."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.derive.fabric.distance import SYS, rank
from exporter.derive.fabric.gpus import Gpu
from exporter.derive.fabric.links import narrow, slow
from exporter.derive.fabric.rails import (
    COMPUTE,
    VIRTUAL,
    Chosen,
    Nic,
    best_nics,
    judged,
    linked,
    natural,
    rails_of,
    roles,
    shared,
)
from exporter.samples import Drop, Fault, Malformed, Sample
from exporter.sources.topology.account import Account, of_file, of_machine
from exporter.sources.topology.scan import Machine, Scanner

_Rows = Mapping[str, Mapping[str, str]]


class Choice(NamedTuple):
    """What an operator chooses: roles of NICs, which distance is still good, how many pairs.

    `file` is an NCCL topology file, or what `nvidia-smi topo -m` has printed. Without it a virtual
    machine's is looked for where NCCL does.
    """

    roles: Chosen = Chosen()
    worst: str | None = None
    max_pairs: int = 256
    file: Path | None = None


NOTHING_CHOSEN = Choice()


class TopologySource:
    """How far GPUs and NICs are from each other, and whether that is as it should be.

    `gpus` tells which GPUs there are. The machine is looked at every `rescan` seconds, and when
    GPUs or devices have come or gone; in between the same is said again. Distances of virtual
    functions are not told: a host has many of them, and each is where its card is.

        topology_gpu_nic_distance{gpu="0",uuid="GPU-5a1c...",device="mlx5_0",path="PXB"} 2
        topology_gpu_best_nic_info{gpu="0",uuid="GPU-5a1c...",device="mlx5_0",distance="PXB",
          rail="0"} 1
        topology_gpu_nic_ok{gpu="0",uuid="GPU-5a1c..."} 1
        topology_pcie_link_degraded{gpu="0",uuid="GPU-5a1c...",device="",part="width"} 0
    """

    name = "topology"
    group = c.TOPOLOGY

    def __init__(
        self,
        scanner: Scanner,
        gpus: Callable[[], Sequence[Gpu]],
        clock: Clock,
        *,
        choice: Choice = NOTHING_CHOSEN,
        rescan: float = 60.0,
    ) -> None:
        self._scanner = scanner
        self._gpus = gpus
        self._clock = clock
        self._choice = choice
        self._rescan = rescan
        self._look_at = 0.0
        self._seen: object = None
        self._slow: set[str] = set()
        self._said: Iterable[Sample | Fault | Drop] = ()

    def read(self) -> Iterable[Sample | Fault | Drop]:
        """Say how things are; look at them if it is time."""
        now, gpus = self._clock.monotonic(), self._gpus()
        # How busy they are comes and goes, and is no reason to look.
        seen = ([one._replace(busy=None) for one in gpus], self._scanner.names())
        if seen != self._seen or now >= self._look_at:
            self._said = tuple(self._look(gpus))
            self._seen, self._look_at = seen, now + self._rescan
        return self._said

    def close(self) -> None:
        """Nothing is kept open."""

    def _look(self, gpus: Sequence[Gpu]) -> Iterator[Sample | Fault | Drop]:
        machine = self._scanner.look([one.address for one in gpus])
        yield from machine.faults
        account, fault = self._account(machine)
        if fault is not None:
            yield fault
        yield c.TOPOLOGY_INFO(1, account.source, "true" if account.trusted else "false")
        role = roles(machine.nics, self._choice.roles)
        nics = [nic for nic in machine.nics if role[nic.device] != VIRTUAL]
        compute = [nic.device for nic in nics if role[nic.device] == COMPUTE]
        yield from _identities(nics, role, rails_of(compute))
        paired = self._paired(nics, compute, len(gpus))
        left_out = machine.left_out + (len(_able(nics)) - len(paired)) * len(gpus)
        if left_out > 0:
            yield Drop("cap", left_out)
        rows = _rows(account, gpus, paired)
        yield from _distances(gpus, rows)
        yield from self._nearest(account, gpus, rows, compute)
        yield from _pairs(account, gpus)
        yield from _numa(machine, gpus, nics)
        yield from self._links(machine, gpus, nics)

    def _account(self, machine: Machine) -> tuple[Account, Fault | None]:
        """Return by what account distances are told, and why it is not a file's."""
        places = {address: card.place for address, card in machine.cards.items()}
        virtual, fault = self._scanner.is_virtual(), None
        file = self._choice.file or (self._scanner.nccl_file() if virtual else None)
        if file is not None:
            try:
                return of_file(file, places), None
            except (OSError, Malformed) as error:
                fault = Fault.of(f"file {file}", error)
        return of_machine(places, virtual=virtual), fault

    def _paired(self, nics: Sequence[Nic], compute: Sequence[str], gpus: int) -> list[Nic]:
        """Return the NICs whose distances are told: those that can do RDMA, compute NICs first."""
        most = self._choice.max_pairs // max(1, gpus)
        able = sorted(_able(nics), key=lambda nic: nic.device not in compute)[:most]
        return sorted(able, key=lambda nic: natural(nic.device))

    def _nearest(
        self, account: Account, gpus: Sequence[Gpu], rows: _Rows, compute: Sequence[str]
    ) -> Iterator[Sample]:
        best = best_nics(rows, compute)
        for one in gpus:
            if (nic := best.get(one.gpu)) is not None:
                yield c.TOPOLOGY_GPU_BEST_NIC_INFO(
                    1, *one.labels, nic.device, nic.distance, str(nic.rail)
                )
        if not account.trusted:
            return
        worst = self._choice.worst or (SYS if any(one.on_chip for one in gpus) else None)
        fine = judged(best, len(compute), len(gpus), worst)
        for one in gpus:
            if one.gpu in fine:
                yield c.TOPOLOGY_GPU_NIC_OK(int(fine[one.gpu]), *one.labels)
        for device, several in shared(best, compute, len(gpus)).items():
            yield c.TOPOLOGY_NIC_SHARED(int(several), device)

    def _links(
        self, machine: Machine, gpus: Sequence[Gpu], nics: Sequence[Nic]
    ) -> Iterator[Sample]:
        was_slow, self._slow = self._slow, set()
        for one in gpus:
            if (card := machine.cards.get(one.address)) is None:
                continue
            labels = (*one.labels, "")
            if (lacks := narrow(card.chain)) is not None:
                yield c.TOPOLOGY_PCIE_LINK_DEGRADED(int(lacks), *labels, "width")
            late = slow(card.chain)
            if not one.busy or late is None:
                continue
            if late:
                self._slow.add(one.address)
            # Twice in a row: work may have begun, or ended, just between two readings.
            if not late or one.address in was_slow:
                yield c.TOPOLOGY_PCIE_LINK_DEGRADED(int(late), *labels, "speed")
        for nic in nics:
            chain = machine.cards[nic.place.address].chain
            for part, found in (("width", narrow(chain)), ("speed", slow(chain))):
                if found is not None:
                    yield c.TOPOLOGY_PCIE_LINK_DEGRADED(int(found), "", "", nic.device, part)


def _able(nics: Sequence[Nic]) -> list[Nic]:
    """Return the NICs that can do RDMA; where there are none, all."""
    return [nic for nic in nics if nic.rdma] or list(nics)


def _identities(
    nics: Sequence[Nic], role: Mapping[str, str], rails: Mapping[str, int]
) -> Iterator[Sample]:
    for nic in nics:
        netdev = nic.netdevs[0] if nic.netdevs else ""
        rail = str(rails.get(nic.device, ""))
        yield c.TOPOLOGY_NIC_INFO(1, nic.device, netdev, nic.place.address, role[nic.device], rail)


def _rows(account: Account, gpus: Sequence[Gpu], nics: Sequence[Nic]) -> _Rows:
    """Return the distances that are known, by GPU and device."""
    return {
        one.gpu: {nic.device: word for nic in nics if (word := account.nic(one, nic)) is not None}
        for one in gpus
    }


def _distances(gpus: Sequence[Gpu], rows: _Rows) -> Iterator[Sample]:
    for one in gpus:
        for device, word in rows.get(one.gpu, {}).items():
            yield c.TOPOLOGY_GPU_NIC_DISTANCE(rank(word) or 0, *one.labels, device, word)


def _pairs(account: Account, gpus: Sequence[Gpu]) -> Iterator[Sample]:
    for one, other in itertools.combinations(gpus, 2):
        word = account.gpus(one, other)
        if word is not None:
            yield c.TOPOLOGY_GPU_GPU_DISTANCE(rank(word) or 0, *one.labels, other.gpu, word)
    fine = dict(linked(account.links(gpus)))
    # Links that led somewhere and are all down are a fault, also if it is so on all GPUs.
    fine |= {one.gpu: False for one in gpus if one.peers and not any(one.peers.values())}
    for one in gpus:
        if one.gpu in fine:
            yield c.TOPOLOGY_GPU_NVLINK_OK(int(fine[one.gpu]), *one.labels)


def _numa(machine: Machine, gpus: Sequence[Gpu], nics: Sequence[Nic]) -> Iterator[Sample]:
    for one in gpus:
        if (card := machine.cards.get(one.address)) is None:
            continue
        if card.place.numa_node is not None:
            yield c.TOPOLOGY_NUMA_NODE(card.place.numa_node, *one.labels, "")
        if card.cpus:
            yield c.TOPOLOGY_GPU_AFFINITY_INFO(1, *one.labels, card.cpus)
    for nic in nics:
        if nic.place.numa_node is not None:
            yield c.TOPOLOGY_NUMA_NODE(nic.place.numa_node, "", "", nic.device)
