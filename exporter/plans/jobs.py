"""Plans for whose the processes on GPUs are, and which jobs have which GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from exporter import catalogue as c
from exporter.attribution.owners import Owners
from exporter.attribution.pods import LogFolders, first_of
from exporter.attribution.users import Named, Users, as_number, nobody
from exporter.config import Settings
from exporter.discovery import Machine
from exporter.plans.estate import AFTER_READING, Estate, Plan
from exporter.plans.gpus import reads_gpus
from exporter.runner import Schedule
from exporter.sources.jobs import JobsSource
from exporter.sources.slurm import SlurmSource


def jobs_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield who looks whose the processes on GPUs are, where there are any."""
    wanted, root = settings.sources.jobs, Path(settings.root)
    if not _looks_at_processes(settings, estate):
        return

    def make() -> JobsSource:
        machine, clock = Machine(root), estate.clock
        names = first_of(estate.pods, LogFolders(root, clock))
        owners = Owners(machine, names, _named(settings, estate), clock)
        return JobsSource(
            machine, owners, estate.board.view, clock,
            wanted=wanted.enabled is True, plain=wanted.plain,
        )  # fmt: skip

    yield Plan(
        JobsSource.name, c.ALLOCATION,
        Schedule(wanted.interval, wanted.deadline, wanted.max_series, AFTER_READING),
        f"{root} {wanted!r}", make,
    )  # fmt: skip


def _looks_at_processes(settings: Settings, estate: Estate) -> bool:
    """Tell whether it is looked whose processes are; `auto`: where the driver is asked for them."""
    nvml, wanted = settings.sources.nvml, settings.sources.jobs.enabled
    listed = nvml.enabled is not False and nvml.processes and reads_gpus(settings, estate)
    return listed if wanted == "auto" else wanted


def slurm_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield who tells of the scheduler's jobs: by its directory, and by what processes are of."""
    wanted, root = settings.sources.slurm, Path(settings.root)
    directory = wanted.job_mapping_directory
    told = directory is not None and reads_gpus(settings, estate)
    there = told or _looks_at_processes(settings, estate)
    if not (there if wanted.enabled == "auto" else wanted.enabled):
        return
    folders = () if directory is None else (root / directory.lstrip("/"), Path(directory))
    yield Plan(
        SlurmSource.name, c.ALLOCATION,
        Schedule(wanted.interval, wanted.deadline, wanted.max_series, 2 * AFTER_READING),
        f"{root} {wanted!r} {settings.sources.jobs.user}",
        lambda: SlurmSource(
            folders, root, estate.board.view, estate.clock,
            named=_named(settings, estate), check=wanted.check_jobs,
        ),
    )  # fmt: skip


def _named(settings: Settings, estate: Estate) -> Named:
    """Return what is shown of users."""
    match settings.sources.jobs.user:
        case "none":
            return nobody
        case "uid":
            return as_number
        case "name":
            return Users(Path(settings.root), estate.clock)
