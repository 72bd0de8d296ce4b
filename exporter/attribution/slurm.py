"""Which jobs Slurm runs on this machine, and what its files say of GPUs."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from exporter.formats import cgroup, jobmap
from exporter.formats.jobmap import Device, Entry
from exporter.samples import Fault, Malformed

_MOST_FILES = 2048
_MOST_NAMES = 20_000
_BOOT = re.compile(rb"^btime ([0-9]{1,12})$", re.MULTILINE)


def live_jobs(root: Path) -> frozenset[str] | None:
    """Return the jobs that live on the machine below `root`; `None` if Slurm keeps none there.

    Slurm has a directory for each job: in the unified hierarchy below `slurmstepd.scope`, in each
    older one below `slurm`, by user.
    """
    folders = list(_slurm_folders(root / "sys" / "fs" / "cgroup"))
    names = [name for folder in folders for name in _jobs_of(folder)]
    return frozenset(filter(None, map(cgroup.live_job, names))) if folders else None


def _jobs_of(folder: Path) -> Iterator[str]:
    for name in _names(folder):
        yield name
        if name.startswith("uid_"):
            yield from _names(folder / name)


def _slurm_folders(top: Path) -> Iterator[Path]:
    """Yield where Slurm keeps its jobs: in a hierarchy, or its slice for the system."""
    # Each older hierarchy, and the unified one beside them, is a folder at the top.
    hierarchies = [top, *(top / name for name in _names(top) if "." not in name)]
    for place in (*hierarchies, *(one / "system.slice" for one in hierarchies)):
        yield from (place / name for name in _names(place) if cgroup.is_slurm(name))


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.name
                for entry, _ in zip(entries, range(_MOST_NAMES), strict=False)
                if entry.is_dir(follow_symlinks=False)
            )
    except OSError:
        return []


def boot_time(root: Path) -> float | None:
    """Return when the machine was started, in Unix seconds."""
    try:
        match = _BOOT.search((root / "proc" / "stat").read_bytes())
    except OSError:
        return None
    return None if match is None else float(match[1])


class Told(NamedTuple):
    """What one file says: the device, its jobs, and when it was written, in Unix seconds."""

    device: Device
    entries: tuple[Entry, ...]
    written: float


def mapping(folders: Sequence[Path]) -> tuple[list[Told], list[Fault]]:
    """Return what the files in the first folder that is there say, and what could not be read.

    Raises `OSError` if no folder can be looked into.
    """
    for folder in folders[:-1]:
        if folder.is_dir():
            return _read(folder)
    return _read(folders[-1])


def _read(folder: Path) -> tuple[list[Told], list[Fault]]:
    told: list[Told] = []
    faults: list[Fault] = []
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry, _ in zip(entries, range(_MOST_FILES), strict=False))
    for name in names:
        device = jobmap.device(name)
        if device is None:
            continue
        try:
            if (one := _told(folder / name, device)) is not None:
                told.append(one)
        except FileNotFoundError:
            continue  # an epilog removes it at the end of the job
        except (OSError, Malformed, UnicodeError) as error:
            faults.append(Fault.of(f"file {name}", error))
    return told, faults


def _told(path: Path, device: Device) -> Told | None:
    """Return what a file says; `None` if it is no plain file."""
    # A pipe that somebody put there must not hold us up.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            return None
        data = os.read(descriptor, jobmap.LONGEST + 1)
    finally:
        os.close(descriptor)
    if len(data) > jobmap.LONGEST:
        raise Malformed(f"larger than {jobmap.LONGEST} bytes")
    return Told(device, tuple(jobmap.entries(data.decode("utf-8"))), about.st_mtime)
