"""Which job of Slurm, or of another scheduler, has which GPU.

Two tell it: the directory in which prologs write a file for each GPU, and the cgroups of the
processes on a GPU, which the source `jobs` has looked at. What the directory says of a job that
lives no more is left out: nobody ran the epilog. No GPU's own series depends on any of this.

    gpu_job_info{gpu="0",uuid="GPU-5a1c...",mig="",cluster_job="840392",user=""} 1
    gpu_job_info{gpu="1",uuid="GPU-77e0...",mig="",cluster_job="",user=""} 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from exporter import catalogue as c
from exporter.attribution.slurm import Told, boot_time, live_jobs, mapping
from exporter.attribution.users import Named
from exporter.clock import Clock
from exporter.formats.jobmap import Device, number_of
from exporter.samples import Fault, Sample, View

_GRACE = 120.0
"""Seconds that a job may be in the directory before it has a cgroup: its prolog still runs."""

_SKEW = 60.0
"""Seconds by which the time of day may be wrong when the machine starts."""


class _Part(NamedTuple):
    """A GPU, or an instance of it."""

    gpu: str
    uuid: str
    mig: str = ""


class SlurmSource:
    """Puts together what the directory (the first of `folders` that is there) and cgroups say.

    `view` is the board at a moment of the monotonic clock, `named` what is shown of a user. With
    `check` a job of the directory must live, as far as that is seen below `root`.
    """

    name = "slurm"
    group = c.ALLOCATION

    def __init__(
        self,
        folders: Sequence[Path],
        root: Path,
        view: Callable[[float], View],
        clock: Clock,
        *,
        named: Named,
        check: bool = True,
    ) -> None:
        self._folders = tuple(folders)
        self._root = root
        self._view = view
        self._clock = clock
        self._named = named
        self._check = check
        self._gpus: dict[str, str] = {}
        self._instances: dict[str, _Part] = {}

    def read(self) -> Iterator[Sample | Fault]:
        """Yield a sample for each job of each GPU; the directory's faults are of parts."""
        view = self._view(self._clock.monotonic())
        self._learn(view)
        running = _running(view)
        mapped: dict[_Part, dict[str, str]] = {}
        if self._folders:
            try:
                told, faults = mapping(self._folders)
            except OSError as error:
                yield Fault.of("job_mapping_directory", error)
            else:
                yield from faults
                told, stale = self._without_stale(told)
                yield c.GPU_JOB_STALE_ENTRIES(stale)
                yield from self._placed(told, mapped)
                yield from _contradictions(mapped, running)
        yield from _rows(mapped, running)

    def close(self) -> None:
        """Hold nothing, so release nothing."""

    def _learn(self, view: View) -> None:
        """Remember the GPUs: one that is lost is still the one that its job has."""
        for sample in view.samples(c.GPU_INFO):
            self._gpus[sample.labels[0]] = sample.labels[1]
        instances = view.samples(c.GPU_MIG_INFO)
        if instances:
            self._instances = {one.labels[4]: _Part(*one.labels[:3]) for one in instances}

    def _placed(self, told: Sequence[Told], mapped: dict[_Part, dict[str, str]]) -> Iterator[Fault]:
        """Put the jobs of each file to its GPU; yield a fault for a file of no GPU."""
        for one in told:
            part = self._part(one.device)
            if part is not None:
                jobs = mapped.setdefault(part, {})
                jobs.update({e.job: self._named(e.uid) if e.uid else "" for e in one.entries})
            elif self._gpus:
                name = one.device.uuid or ".".join(filter(None, one.device[:2]))
                yield Fault(f"file {name}", "unavailable", "there is no such GPU")

    def _part(self, device: Device) -> _Part | None:
        if device.uuid in self._instances:
            return self._instances[device.uuid]
        for gpu, uuid in self._gpus.items():
            if device.uuid == uuid or (not device.uuid and device.gpu == gpu):
                return _Part(gpu, uuid, device.instance)
        return None

    def _without_stale(self, told: Sequence[Told]) -> tuple[list[Told], int]:
        """Return the files without jobs that live no more, and how many those were."""
        if not self._check:
            return list(told), 0
        live, boot = live_jobs(self._root), boot_time(self._root)
        kept: list[Told] = []
        stale = 0
        for one in told:
            alive = tuple(
                e for e in one.entries if self._lives(number_of(e.job), one.written, live, boot)
            )
            stale += len(one.entries) - len(alive)
            kept.append(one._replace(entries=alive))
        return kept, stale

    def _lives(
        self, number: str, written: float, live: frozenset[str] | None, boot: float | None
    ) -> bool:
        """Tell whether a job may live; one that no cgroup is known by number for is believed."""
        if live is not None and number in live:
            return True
        if boot is not None and written < boot - _SKEW:
            return False
        if not number or live is None:
            return True
        # A time to come was written by a clock that was wrong.
        return abs(self._clock.time() - written) < _GRACE


def _running(view: View) -> dict[_Part, dict[str, str]]:
    """Return the jobs whose processes use a GPU, with the user."""
    labels = c.GPU_PROCESS_INFO.labels
    job, user = labels.index("cluster_job"), labels.index("user")
    found: dict[_Part, dict[str, str]] = {}
    for sample in view.samples(c.GPU_PROCESS_INFO):
        if sample.labels[job]:
            users = found.setdefault(_Part(*sample.labels[:3]), {})
            users[sample.labels[job]] = sample.labels[user]
    return found


def _contradictions(
    mapped: dict[_Part, dict[str, str]], running: dict[_Part, dict[str, str]]
) -> Iterator[Fault]:
    """Yield a fault where a job works on another GPU than the directory says.

    An index is the scheduler's own (Slurm's order of devices); files named by UUID cannot err.
    """
    known = {job for jobs in mapped.values() for job in jobs}
    for part, jobs in running.items():
        there = {job for other, has in mapped.items() if other.uuid == part.uuid for job in has}
        for job in sorted((known & jobs.keys()) - there):
            yield Fault(
                f"gpu{part.gpu}", "malformed",
                f"job {job} works here, and the directory gives it other GPUs: is an index"
                " there another one than the driver's? Files may be named by UUID",
            )  # fmt: skip


def _rows(
    mapped: dict[_Part, dict[str, str]], running: dict[_Part, dict[str, str]]
) -> Iterator[Sample]:
    """Yield each job of each part once; an empty job for a part that nobody has."""
    split = {part.uuid for part in (*mapped, *running) if part.mig}
    for part in sorted({*mapped, *running}):
        jobs = dict(mapped.get(part, {}))
        for job, user in running.get(part, {}).items():
            jobs[job] = user or jobs.get(job, "")
        for job in sorted(jobs):
            yield c.GPU_JOB_INFO(1, *part, job, jobs[job])
        if not jobs and (part.mig or part.uuid not in split):
            yield c.GPU_JOB_INFO(1, *part, "", "")
