"""Plans for what training jobs write, and show, for other tools."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from exporter import catalogue as c
from exporter.config import (
    ConfigError,
    Settings,
    TrainingFilesSettings,
    TrainingPageSettings,
)
from exporter.fetch import HttpFetcher
from exporter.plans.estate import Estate, Plan, remembering
from exporter.runner import Schedule
from exporter.sources.training_files import TrainingFilesSource
from exporter.sources.training_page import TrainingPageSource

_MAX_PAGE = 4 << 20


def files_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield a source for each directory that jobs write to."""
    told = settings.sources.training_files
    names = _names("training_files", ((one.name, PurePosixPath(one.path).name) for one in told))
    for name, one in zip(names, told, strict=True):
        if one.enabled:
            yield _files_plan(settings, estate, name, one)


def _files_plan(settings: Settings, estate: Estate, name: str, one: TrainingFilesSettings) -> Plan:
    kept = remembering(settings, estate)
    return Plan(
        f"training_files:{name}", c.TRAINING,
        Schedule(one.interval, one.deadline, one.max_series),
        f"{one!r} {settings.state_directory} {settings.state_interval}",
        lambda: TrainingFilesSource(
            name, Path(one.path), estate.training, estate.clock,
            kind=one.kind, run=one.run, **kept,
        ),
    )  # fmt: skip


def page_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield a source for each page that a job shows."""
    told = settings.sources.training_pages
    names = _names("training_pages", ((one.name, urlsplit(one.url).netloc) for one in told))
    for name, one in zip(names, told, strict=True):
        if one.enabled:
            yield _page_plan(estate, name, one)


def _page_plan(estate: Estate, name: str, one: TrainingPageSettings) -> Plan:
    def make() -> TrainingPageSource:
        fetcher = HttpFetcher(
            one.url,
            timeout=one.timeout,
            clock=estate.clock,
            max_bytes=_MAX_PAGE,
            token_file=None if one.token_file is None else Path(one.token_file),
            ca_file=None if one.ca_file is None else Path(one.ca_file),
            insecure_skip_verify=one.insecure_skip_verify,
        )
        return TrainingPageSource(name, fetcher, estate.training, estate.clock, run=one.run)

    return Plan(
        f"training_page:{name}", c.TRAINING, Schedule(one.interval, one.timeout + 0.5),
        repr(one), make,
    )  # fmt: skip


def _names(key: str, told: Iterable[tuple[str | None, str]]) -> Iterator[str]:
    """Yield a name for each of several sources: what was given, or what it is about.

    Raises `ConfigError` if one was given twice.
    """
    wanted = [(given, given or re.sub(r"[^A-Za-z0-9._:-]+", "-", about)[-64:] or "run")
              for given, about in told]  # fmt: skip
    seen: dict[str, int] = {}
    taken = {given for given, _ in wanted if given is not None}
    for at, (given, name) in enumerate(wanted):
        if given is not None:
            if (first := seen.setdefault(given, at)) != at:
                raise ConfigError(
                    f"sources.{key}.{at}.name: {given!r} is the name of sources.{key}.{first} too"
                )
            yield given
            continue
        unique, number = name, 2
        while unique in taken:
            unique, number = f"{name}-{number}", number + 1
        taken.add(unique)
        yield unique
