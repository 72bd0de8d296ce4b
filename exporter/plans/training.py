"""Plans for what tells of training runs."""

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


def training_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield the readers of training runs, and what is derived from them."""
    yield from _profiles_plan(settings, estate)
    yield from _nccl_plan(settings, estate)


def _profiles_plan(settings: Settings, estate: Estate) -> Iterator[Plan]:
    wanted = settings.sources.profiles
    if wanted.directories:
        yield Plan(
            "profiles", c.PROFILE, Schedule(wanted.interval, wanted.deadline, wanted.max_series),
            repr(wanted), lambda: _profiles(wanted, estate),
        )  # fmt: skip


def _profiles(wanted: ProfilesSettings, estate: Estate) -> ProfilesSource:
    limits = Limits(wanted.memory, wanted.timeout)

    def begin(options: Mapping[str, Any]) -> Errand:
        return Errand("profile", options, limits, clock=estate.clock)

    return ProfilesSource(
        _folder(wanted.directories), estate.training, begin, estate.clock,
        Bounds(wanted.max_size, wanted.max_expanded, wanted.max_age, wanted.memory),
    )  # fmt: skip


def _nccl_plan(settings: Settings, estate: Estate) -> Iterator[Plan]:
    wanted = settings.sources.nccl
    if wanted.directories:
        yield Plan(
            "nccl", c.NCCL, Schedule(wanted.interval, wanted.deadline, wanted.max_series),
            repr(wanted),
            lambda: NcclSource(
                _folder(wanted.directories), estate.clock, max_age=wanted.max_age
            ),
        )  # fmt: skip


def _folder(directories: Iterable[DirectorySettings]) -> Folder:
    return Folder(Directory(Path(one.path), one.run or "", one.ignore) for one in directories)
