"""The ranks of training jobs that run on this machine, by the environment of their processes.

Tells how many ranks a run has in all and which of them are here, on which GPU; so each node knows
its part of a run, also the nodes whose logs say nothing. What other users' processes have in their
environment may be read by root only, or with CAP_SYS_PTRACE: one that may not be read is passed
over, for most processes of a machine are none of ours.

    train_local_ranks{run="llama"} 8
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.discovery import Machine
from exporter.formats.ranks import RankProcess, rank_of, run_of
from exporter.samples import Fault, Sample, View
from exporter.training.records import Facts

READER = "environment"

_LOOK_AGAIN = 12
"""Every how many looks all processes are looked at again: one that has just been forked still shows
its parent's environment."""
_PER_PROCESS = (c.GPU_PROCESS_MEMORY_BYTES, c.GPU_PROCESS_SM_RATIO)


class Ledger(Protocol):
    """Who keeps what is told of runs."""

    def tell(self, reader: str, records: tuple[Facts, ...], now: float) -> int:
        """Take records; raise `ValueError` for one that makes no sense."""

    def refuse(self, reader: str, reason: str, number: int = 1) -> None:
        """Count records that could not be kept."""


class Board(Protocol):
    """Where the GPUs of processes are seen."""

    def __call__(self, now: float) -> View:
        """Return what is known at a moment."""


class _Seen(NamedTuple):
    """A process that is a rank, and of which run; `start` tells it from a later one."""

    start: int
    about: RankProcess
    run: str


class TrainingRanksSource:
    """World size and local ranks of the runs of this machine, told to `ledger`.

    `names` are patterns and the run's name: the first that fits what the environment says of the
    run (the pod's job, `slurm-ID`, WANDB_NAME, TORCHELASTIC_RUN_ID) gives it. Without one the first
    of these is its name; FLOPWATCH_RUN is before all. `view` is the board at a moment of the
    monotonic clock: the driver knows best which process works on which GPU.
    """

    name = "ranks"
    group = c.TRAINING

    def __init__(
        self,
        ledger: Ledger,
        machine: Machine,
        view: Board,
        clock: Clock,
        *,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._ledger = ledger
        self._machine = machine
        self._view = view
        self._clock = clock
        self._names = dict(names or {})
        self._known: set[int] = set()
        self._seen: dict[int, _Seen] = {}
        self._looks = 0

    def read(self) -> Iterator[Sample | Fault]:
        """Look at what processes are new, tell of all runs, yield how many ranks are here."""
        now = self._clock.monotonic()
        self._look()
        gpus = self._gpus(now)
        for run, processes in sorted(self._by_run(gpus).items()):
            facts = _facts(run, processes, gpus)
            if facts is None:
                yield Fault(run, "malformed", "its ranks do not agree on their number")
                continue
            try:
                self._ledger.tell(READER, (facts,), now)
            except ValueError as error:
                self._ledger.refuse(READER, "nonsense")
                yield Fault(run, "malformed", str(error))
                continue
            yield c.TRAIN_LOCAL_RANKS(len({one.about.rank for one in processes.values()}), run)

    def close(self) -> None:
        """Hold nothing, so release nothing."""

    def _look(self) -> None:
        pids = set(self._machine.pids())
        if self._looks % _LOOK_AGAIN == 0:
            self._known = set()
        self._looks += 1
        self._seen = {
            pid: seen
            for pid, seen in self._seen.items()
            if pid in pids and self._still(pid, seen) and pid in self._known
        }
        for pid in pids - self._known:
            about = rank_of(self._machine.environment(pid))
            run = None if about is None else run_of(about, self._names)
            process = None if run is None else self._machine.process(pid)
            if about is not None and run is not None and process is not None:
                self._seen[pid] = _Seen(process.start, about, run)
        self._known = pids

    def _still(self, pid: int, seen: _Seen) -> bool:
        process = self._machine.process(pid)
        return process is not None and process.start == seen.start

    def _by_run(self, gpus: Mapping[int, set[int]]) -> dict[str, dict[int, _Seen]]:
        """Return the rank processes of each run.

        What only Slurm or MPI counts is a rank where it works on a GPU: they start much else.
        """
        found: dict[str, dict[int, _Seen]] = {}
        for pid, seen in self._seen.items():
            if seen.about.launcher == "torch" or seen.about.with_gpu or pid in gpus:
                found.setdefault(seen.run, {})[pid] = seen
        for run, processes in found.items():
            torch = {p: one for p, one in processes.items() if one.about.launcher == "torch"}
            found[run] = torch or processes
        return found

    def _gpus(self, now: float) -> dict[int, set[int]]:
        """Return the GPUs that each process works on, as the driver says."""
        if not self._seen:
            return {}
        found: dict[int, set[int]] = {}
        view = self._view(now)
        for metric in _PER_PROCESS:
            at, command = metric.labels.index("pid"), metric.labels.index("command")
            for sample in view.samples(metric):
                pid, gpu = sample.labels[at], sample.labels[0]
                # A process without a name is not seen from here: its number is another one's.
                if sample.labels[command] and pid.isdecimal() and gpu.isdecimal():
                    found.setdefault(int(pid), set()).add(int(gpu))
        return found


def _facts(run: str, processes: Mapping[int, _Seen], gpus: Mapping[int, set[int]]) -> Facts | None:
    """Return what the ranks of a run say; `None` if they contradict each other."""
    sizes = {one.about.world_size for one in processes.values()}
    if len(sizes) != 1:
        return None
    driven: dict[int, set[int]] = {}
    stated: dict[int, set[int]] = {}
    for pid, one in processes.items():
        driven.setdefault(one.about.rank, set()).update(gpus.get(pid, ()))
        if one.about.gpu is not None and one.about.with_gpu:
            stated.setdefault(one.about.rank, set()).add(one.about.gpu)
    chosen = driven if any(driven.values()) else stated
    local = {rank: next(iter(found)) for rank, found in sorted(chosen.items()) if len(found) == 1}
    return Facts(run=run, world_size=sizes.pop(), local_ranks=local or None)
