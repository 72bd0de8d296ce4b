"""How the jobs of this node have set NCCL, and the mistakes in it.

Jobs tell their settings themselves (the client), as they are when the run begins, so also what a
script has set. Of others they are read from `/proc/PID/environ`: of processes that work on a GPU,
by the driver's word or by the devices that they hold open, and only where that may be read (root,
or CAP_SYS_PTRACE, or the same user); whoever may not be looked at is passed over. `nccl.conf`
counts as the process itself sees it. Nothing but the names of mistakes leaves this module
(`derive/fabric/environment.py` has the rules), no value is told or logged.

    nccl_environment_info{run="llama",origin="client"} 1
    nccl_environment_problem{run="llama",kind="ib_disabled"} 1
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.derive.fabric.environment import Node, Port, Process, Settings, problems
from exporter.discovery import Machine
from exporter.formats import nccl_settings
from exporter.formats.ranks import RankProcess, rank_of, run_of
from exporter.samples import Metric, Sample, View
from exporter.training.ledger import SILENT, TrackedRun

_PER_PROCESS = (c.GPU_PROCESS_MEMORY_BYTES, c.GPU_PROCESS_SM_RATIO)
_GPU = re.compile(r"/dev/nvidia\d+")
_MOST_FILES = 4096
_MOST_PROCESSES = 256
_MOST_RUNS = 64
_LONGEST = 64 << 10


class Ledger(Protocol):
    """Who knows what jobs tell of themselves."""

    def runs(self, now: float) -> list[TrackedRun]:
        """Return the runs that are known."""


class Board(Protocol):
    """Where the node's ports are seen, and which process works on which GPU."""

    def __call__(self, now: float) -> View:
        """Return what is known at a moment."""


class _Found(NamedTuple):
    """A process that works on a GPU: its run, its rank if it is one, and what it has set."""

    run: str
    about: RankProcess | None
    process: Process


class NcclEnvironmentSource:
    """Settings of NCCL and the mistakes in them, by run; `names` as the source `ranks` has it.

    Processes that nobody can name the run of are told under `run=""`, and not held against each
    other: they may be of several.
    """

    name = "nccl_environment"
    group = c.FABRIC

    def __init__(
        self,
        root: Path,
        ledger: Ledger,
        view: Board,
        clock: Clock,
        *,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._proc = root / "proc"
        self._machine = Machine(root)
        self._ledger = ledger
        self._view = view
        self._clock = clock
        self._names = dict(names or {})

    def read(self) -> Iterator[Sample]:
        """Look at the processes on GPUs and at what jobs have told; yield mistakes by run."""
        now = self._clock.monotonic()
        view = self._view(now)
        node = _node(view)
        found = _by_run(self._processes(view, node))
        told = dict(self._told(now))
        for run in islice(dict.fromkeys((*told, *found)), _MOST_RUNS):
            sharp = _sharp(view, run)
            seen = [one.process for one in found.get(run, ())]
            if run in told:
                spans, each = told[run]
                # Its own word goes before the environment that it began with.
                there = seen[0].node if seen else node._replace(spans=spans)
                seen = [Process(settings, there) for settings in each]
            yield c.NCCL_ENVIRONMENT_INFO(1, run, "client" if run in told else "process")
            processes = [one._replace(node=one.node._replace(sharp=sharp)) for one in seen]
            for kind, so in problems(processes, together=run != "").items():
                yield c.NCCL_ENVIRONMENT_PROBLEM(int(so), run, kind)

    def close(self) -> None:
        """Hold nothing, so release nothing."""

    # ------------------------------------------------------------ what jobs tell

    def _told(self, now: float) -> Iterator[tuple[str, tuple[bool | None, list[Settings]]]]:
        for run in self._ledger.runs(now):
            facts = run.facts.get("push")
            if facts is None or not _is_alive(run, now):
                continue
            told: list[Settings] = list((facts.nccl_ranks or {}).values())
            if not told and facts.nccl is not None:
                told = [facts.nccl]
            if told:
                local, size = len(facts.local_ranks or ()), facts.world_size
                yield run.name, (None if size is None else size > max(1, local), told)

    # ------------------------------------------------------------ what processes show

    def _processes(self, view: View, node: Node) -> Iterator[_Found]:
        """Yield the processes on GPUs that may be looked at: ranks, and whoever sets NCCL."""
        on_gpus = _pids_on_gpus(view)
        found = (
            self._found(pid, node) for pid in on_gpus or self._machine.pids() if pid != os.getpid()
        )
        seen = (one for pid, one in found if one is not None and (on_gpus or self._holds_gpu(pid)))
        yield from islice(seen, _MOST_PROCESSES)

    def _found(self, pid: int, node: Node) -> tuple[int, _Found | None]:
        environment = self._machine.environment(pid)
        about, settings = rank_of(environment), nccl_settings.from_environment(environment)
        if about is None and not settings:
            return pid, None
        run = (run_of(about, self._names) if about else None) or ""
        file = self._file(pid)
        seen = node._replace(
            interfaces=self._interfaces(pid), odd_file=None if file is None else file.odd
        )
        both = {**({} if file is None else file.settings), **settings}
        return pid, _Found(run, about, Process(both, seen))

    def _holds_gpu(self, pid: int) -> bool:
        folder = self._proc / str(pid) / "fd"
        try:
            with os.scandir(folder) as entries:
                return any(_leads_to_gpu(entry) for entry in islice(entries, _MOST_FILES))
        except OSError:
            return False

    def _interfaces(self, pid: int) -> frozenset[str] | None:
        text = _beginning(self._proc / str(pid) / "net" / "dev")
        if text is None:
            return None
        lines = text.decode("utf-8", "replace").splitlines()[2:]
        return frozenset(line.partition(":")[0].strip() for line in lines if ":" in line)

    def _file(self, pid: int) -> nccl_settings.File | None:
        """Return the machine's settings as a process sees them; `None` if that may not be seen."""
        etc = self._proc / str(pid) / "root" / "etc"
        if etc.is_symlink():  # which would be followed from the host's root
            return None
        text = _beginning(etc / "nccl.conf")
        if text is not None:
            return nccl_settings.from_file(text)
        try:
            missing = "nccl.conf" not in os.listdir(etc)  # noqa: PTH208 - names are wanted
        except OSError:
            return None
        return nccl_settings.File({}, odd=False) if missing else None


def _leads_to_gpu(entry: os.DirEntry[str]) -> bool:
    try:
        return _GPU.fullmatch(os.readlink(entry.path)) is not None  # noqa: PTH115
    except OSError:
        return False


def _beginning(path: Path) -> bytes | None:
    """Return how a file begins. What is in a container's /etc is the container's to choose: no link
    is followed, which might lead to a file of the host, and no FIFO and no device is opened.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return None
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, _LONGEST)
    except OSError:
        return None
    finally:
        os.close(fd)


def _is_alive(run: TrackedRun, now: float) -> bool:
    """Tell whether a run has not told its end, and has told something lately."""
    over = bool(run.moments) and run.moments[-1][1].kind in {"ended", "failed"}
    return not over and now - run.told <= SILENT


def _by_run(found: Iterable[_Found]) -> dict[str, list[_Found]]:
    """Return processes by run; each knows then whether its job has ranks elsewhere."""
    runs: dict[str, list[_Found]] = {}
    for one in found:
        runs.setdefault(one.run, []).append(one)
    return {run: [_placed(one, of_run) for one in of_run] for run, of_run in runs.items()}


def _placed(one: _Found, of_run: list[_Found]) -> _Found:
    if one.about is None:
        return one
    here = len({other.about.rank for other in of_run if other.about is not None})
    node = one.process.node._replace(spans=one.about.world_size > here)
    return one._replace(process=one.process._replace(node=node))


# ---------------------------------------------------------------- what the board knows


def _pids_on_gpus(view: View) -> set[int]:
    found: set[int] = set()
    for metric in _PER_PROCESS:
        at, command = metric.labels.index("pid"), metric.labels.index("command")
        for sample in view.samples(metric):
            # A process without a name is not seen from here: its number is another one's.
            if sample.labels[command] and sample.labels[at].isdecimal():
                found.add(int(sample.labels[at]))
    return found


def _labels(view: View, metric: Metric) -> Iterator[dict[str, str]]:
    for sample in view.samples(metric):
        yield dict(zip(metric.labels, sample.labels, strict=True))


def _node(view: View) -> Node:
    """Return the RDMA ports and the rails of the node, as far as the board knows them."""
    up = {one.labels: one.value == 1 for one in view.samples(c.NIC_UP)}
    told = list(_labels(view, c.NIC_INFO))
    ports = tuple(
        Port(
            one["device"], one["port"], one["link_layer"],
            up.get((one["device"], one["port"])),
        )
        for one in told
        if one["port"]
    )  # fmt: skip
    rails = frozenset(
        one["device"] for one in _labels(view, c.TOPOLOGY_GPU_BEST_NIC_INFO) if one["device"]
    )
    return Node(ports if told else None, rails or None)


def _sharp(view: View, run: str) -> bool | None:
    for one in view.samples(c.NCCL_COLLNET_ACTIVE):
        if one.labels[0] == run:
            return one.value == 1
    return None
