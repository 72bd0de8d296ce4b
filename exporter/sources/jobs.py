"""Whose the processes on GPUs are, and how owners split a GPU that they share.

The driver's list of processes (on the board, by the readers of GPUs) is joined with the cgroup of
each process. A GPU that several pods or jobs share has one utilization and one memory; here both
are told by owner, as far as the driver tells them by process. Names of pods are those of whoever
watches them, else of the folders of their logs; a pod without a known name has its uid.

    gpu_process_info{gpu="0",pid="4711",namespace="team",pod="train-0",container="main",...} 1
    gpu_allocation_memory_used_bytes{gpu="0",namespace="team",pod="train-0",...} 4.1e+10
    gpu_allocation_sm_seconds_total{gpu="0",namespace="team",pod="train-0",...} 1201.5
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from exporter import catalogue as c
from exporter.attribution.owners import Owner, Owners, Whose
from exporter.clock import Clock
from exporter.discovery.machine import Machine
from exporter.samples import Fault, Sample, View

log = logging.getLogger(__name__)

_Gpu = tuple[str, str]

_NOT_THE_MACHINES = (
    "the processes seen here are not the machine's: the host's process namespace (hostPID: true),"
    " or its /proc below root, is needed to tell whose they are"
)

_PATIENCE = 15.0
"""Seconds between two readings beyond which nobody knows what was between them."""

_LASTS = 300.0
"""Seconds for which an owner's counter is told after its last process has gone."""

_FORGET = 60.0


@dataclass(slots=True)
class _Use:
    """One process on one GPU, as the driver tells it."""

    pid: str
    seen: bool
    mig: str = ""
    memory: int | None = None
    share: float = 0.0


@dataclass(slots=True)
class _Split:
    """What the processes of one owner have of one GPU."""

    processes: set[str] = field(default_factory=set)
    memory: int | None = None
    share: float = 0.0


@dataclass(slots=True)
class _Count:
    seconds: float = 0.0
    seen: float = 0.0


class JobsSource:
    """Tells whose processes are. With `plain`, also of those that are of no pod, container or job.

    `view` is the board at a moment of the monotonic clock. Where processes cannot be looked up,
    that is a fault if the driver lists some or they are `wanted`; else it is said once in the log.
    """

    name = "jobs"
    group = c.ALLOCATION

    def __init__(
        self,
        machine: Machine,
        owners: Owners,
        view: Callable[[float], View],
        clock: Clock,
        *,
        wanted: bool = False,
        plain: bool = False,
    ) -> None:
        self._machine = machine
        self._owners = owners
        self._view = view
        self._clock = clock
        self._wanted = wanted
        self._plain = plain
        self._said = False
        self._counts: dict[tuple[_Gpu, Owner], _Count] = {}
        self._told: set[_Gpu] = set()
        self._last: float | None = None
        self._forget_at = 0.0

    def read(self) -> Iterator[Sample | Fault]:
        """Yield who has which processes, and what they have of each GPU."""
        now = self._clock.monotonic()
        uses = self._uses(self._view(now))
        listed = {use.pid: use.seen for found in uses.values() for use in found.values()}
        if (fault := self._blindness(listed)) is not None:
            if self._wanted or listed:
                yield fault
            elif not self._said:
                log.info("source=%s tells nothing: %s", self.name, fault.detail)
            self._said = True
            return
        splits: dict[tuple[_Gpu, Owner], _Split] = {}
        for gpu, found in uses.items():
            for use in found.values():
                whose = self._owners(int(use.pid)) if use.seen else None
                if whose is not None:
                    yield from self._info(gpu, use, whose)
                    _add(splits.setdefault((gpu, whose.owner), _Split()), use)
        yield from self._shares(splits, now)

    def close(self) -> None:
        """Hold nothing, so release nothing."""

    def _uses(self, view: View) -> dict[_Gpu, dict[tuple[str, str], _Use]]:
        """Return the processes of each GPU by instance and number."""
        found: dict[_Gpu, dict[tuple[str, str], _Use]] = {}
        for sample in view.samples(c.GPU_PROCESS_MEMORY_BYTES):
            gpu, uuid, mig, pid, command = sample.labels
            use = found.setdefault((gpu, uuid), {}).setdefault(
                (mig, pid), _Use(pid, bool(command), mig)
            )
            use.memory = int(sample.value)  # type: ignore[arg-type]
        told: set[_Gpu] = set()
        for sample in view.samples(c.GPU_PROCESS_SM_RATIO):
            gpu, uuid, pid, command = sample.labels
            told.add((gpu, uuid))
            mine = found.setdefault((gpu, uuid), {})
            key = next((key for key in mine if key[1] == pid), ("", pid))
            mine.setdefault(key, _Use(pid, bool(command))).share = float(sample.value)  # type: ignore[arg-type]
        # The driver tells none once the GPU is split: that is not known, and not 0.
        split = {gpu for gpu, uses in found.items() if any(use.mig for use in uses.values())}
        self._told = (self._told - split) | told
        return {
            gpu: {key: use for key, use in uses.items() if use.pid.isdecimal()}
            for gpu, uses in found.items()
        }

    def _blindness(self, listed: Mapping[str, bool]) -> Fault | None:
        """Return why processes cannot be looked up, `None` if they can, or nobody misses it."""
        if not self._machine.shows_all():
            return Fault("processes", "unavailable", _NOT_THE_MACHINES)
        if listed and not any(listed.values()):
            return Fault(
                "processes", "denied",
                f"none of the {len(listed)} processes that the driver lists can be seen below"
                " root: another process namespace, or /proc is mounted with hidepid",
            )  # fmt: skip
        return None

    def _info(self, gpu: _Gpu, use: _Use, whose: Whose) -> Iterator[Sample]:
        if whose.plain and not self._plain:
            return
        # A unit may bear its user's number.
        unit = whose.unit if whose.plain else ""
        yield c.GPU_PROCESS_INFO(
            1, *gpu, use.mig, use.pid, *whose.owner, whose.container_id[:12], whose.step,
            whose.user, unit,
        )  # fmt: skip

    def _shares(self, splits: dict[tuple[_Gpu, Owner], _Split], now: float) -> Iterator[Sample]:
        """Yield what each owner has, and has had, of each GPU."""
        passed = 0.0 if self._last is None else now - self._last
        self._last = now
        for (gpu, owner), split in splits.items():
            yield c.GPU_ALLOCATION_PROCESSES(len(split.processes), *gpu, *owner)
            if split.memory is not None:
                yield c.GPU_ALLOCATION_MEMORY_USED_BYTES(split.memory, *gpu, *owner)
            if gpu in self._told:
                share = min(1.0, split.share)
                yield c.GPU_ALLOCATION_SM_RATIO(share, *gpu, *owner)
                count = self._counts.setdefault((gpu, owner), _Count())
                count.seen = now
                if passed <= _PATIENCE:
                    count.seconds += share * passed
        for key, count in list(self._counts.items()):
            if now - count.seen > _LASTS:
                del self._counts[key]
            else:
                yield c.GPU_ALLOCATION_SM_SECONDS_TOTAL(count.seconds, *key[0], *key[1])
        if now >= self._forget_at:
            self._owners.forget()
            self._forget_at = now + _FORGET


def _add(split: _Split, use: _Use) -> None:
    split.processes.add(use.pid)
    split.share += use.share
    if use.memory is not None:
        split.memory = use.memory + (split.memory or 0)
