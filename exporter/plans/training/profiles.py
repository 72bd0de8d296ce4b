"""Plans for profiles and for what is known of collectives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from exporter import catalogue as c
from exporter.config import DirectorySettings, ProfilesSettings, Settings
from exporter.isolate import Errand, Limits
from exporter.plans.estate import Estate, Plan
from exporter.profiling.folder import Directory, Folder
from exporter.runner import Schedule
from exporter.sources.nccl import NcclSource
from exporter.sources.profiles import Bounds, ProfilesSource


def profile_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield who reads profiles, where directories are named."""
    wanted = settings.sources.profiles
    if wanted.directories:
        yield Plan(
            "profiles", c.PROFILE, Schedule(wanted.interval, wanted.deadline, wanted.max_series),
            repr(wanted), lambda: _profiles(wanted, estate),
        )  # fmt: skip


def nccl_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield who reads dumps of NCCL Inspector and outputs of tests, where directories are named."""
    wanted = settings.sources.nccl
    if wanted.directories:
        yield Plan(
            "nccl", c.NCCL, Schedule(wanted.interval, wanted.deadline, wanted.max_series),
            repr(wanted),
            lambda: NcclSource(
                _folder(wanted.directories), estate.clock, max_age=wanted.max_age
            ),
        )  # fmt: skip


def _profiles(wanted: ProfilesSettings, estate: Estate) -> ProfilesSource:
    limits = Limits(wanted.memory, wanted.timeout)

    def begin(options: Mapping[str, Any]) -> Errand:
        return Errand("profile", options, limits, clock=estate.clock)

    return ProfilesSource(
        _folder(wanted.directories), estate.training, begin, estate.clock,
        Bounds(wanted.max_size, wanted.max_expanded, wanted.max_age, wanted.memory),
    )  # fmt: skip


def _folder(directories: Iterable[DirectorySettings]) -> Folder:
    return Folder(Directory(Path(one.path), one.run or "", one.ignore) for one in directories)
