"""What the inventory found: ports, their files, and the series that these make.

A plan of reading: made once, used for each read. Paths are "" where a port has no such file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from exporter.formats import sysfs
from exporter.samples import Drop, Fault, Metric, Sample
from exporter.sources.network.counters import (
    DRIVER,
    ERRORS,
    INTERFACE,
    TRAFFIC,
    Reading,
    is_setting,
    wraps,
)

MOST_FILES = 1024
"""Counters that one folder may have; Omni-Path has more than any other, some 300."""


class Folder(NamedTuple):
    """A folder of counters: its path, what faults call it, its files, whether it is a port's."""

    path: str
    part: str
    names: Sequence[str]
    of_port: bool = True


class File(NamedTuple):
    """A counter file. `raw` are the labels of its raw series, if that is wanted."""

    path: str
    part: str
    name: str
    wraps: bool = False
    raw: tuple[str, str, str, str] | None = None


class Series(NamedTuple):
    """One series: which files of its set make it, and how. `top` names the file that may stop."""

    reading: Reading
    labels: tuple[str, ...]
    top: tuple[str, str, str]
    at: tuple[int, ...]


class CounterSet(NamedTuple):
    """Counters that the kernel fetches together: refused together as well."""

    key: str
    files: tuple[File, ...]
    series: tuple[Series, ...]


class Port(NamedTuple):
    """An RDMA port, or a network interface.

    `labels` are device and port. `about` are the labels of `nic_device_info` after these, up to
    `role`. `peers` is what ports of the same kind have in common.
    """

    name: str
    labels: tuple[str, str]
    path: str
    info: Sample
    about: tuple[str, ...]
    peers: tuple[str, ...]
    rdma: bool
    physical: bool
    virtual: bool
    model: str = ""
    state: str = ""
    physical_state: str = ""
    rate: str = ""
    operstate: str = ""
    flags: str = ""
    speed: str = ""
    changes: str = ""
    sets: tuple[CounterSet, ...] = ()


class Told(NamedTuple):
    """What one read of a port brought; `up` is None and `disabled` False if that is not known."""

    items: list[Sample | Fault | Drop]
    up: int | None = None
    disabled: bool = False
    restricted: bool = False


_TABLES: Mapping[str, Mapping[str, Reading]] = {
    "traffic": TRAFFIC,
    "errors": ERRORS,
    "driver": DRIVER,
    "device": {},
    "interface": INTERFACE,
}

_OF_DRIVER = ("driver", "device")


class Finder:
    """Plans the counters of one port, each series once: the first file that has it wins.

    `mlx5` says that the driver's counters are that driver's. With `raw` all files are wanted, else
    those in the tables.
    """

    def __init__(self, labels: tuple[str, str], *, mlx5: bool, raw: bool) -> None:
        self._labels = labels
        self._mlx5 = mlx5
        self._raw = raw
        self._taken: set[tuple[Metric, str | None]] = set()

    def find(
        self, kind: str, folder: Folder, twins: Mapping[str, str] = {}
    ) -> Iterator[CounterSet]:
        """Yield the counters of one table that a folder has, as a set; nothing if it has none.

        `twins` are second files of the same counter, elsewhere.
        """
        table = _TABLES[kind]
        files: list[File] = []
        series: dict[tuple[Metric, str | None], Series] = {}
        for name in folder.names:
            # hfi1 writes a width after the name, mlx5 a prefix in switchdev mode
            reading = table.get(name.partition(",")[0].removeprefix("vport_"))
            if is_setting(name) or (reading is None and not self._raw):
                continue
            first = len(files)
            files.append(self._file(kind, folder.path, name, folder))
            if name in twins:
                place, _, twin = twins[name].rpartition("/")
                files.append(self._file(kind, place, twin, folder))
            if reading is not None:
                self._plan(series, reading, name, tuple(range(first, len(files))))
        self._taken |= series.keys()
        if not self._raw:
            files, series = _without_idle(files, series)
        if files:
            yield CounterSet(f"{folder.path} {kind}", tuple(files), tuple(series.values()))

    def _plan(
        self,
        series: dict[tuple[Metric, str | None], Series],
        reading: Reading,
        name: str,
        at: tuple[int, ...],
    ) -> None:
        key = (reading.metric, reading.label)
        known = series.get(key)
        if known is not None and reading.adds:
            series[key] = known._replace(at=known.at + at)
        elif known is None and key not in self._taken:
            labels = self._labels if reading.label is None else (*self._labels, reading.label)
            top = (*self._labels, sysfs.printable(name))
            series[key] = Series(reading, labels, top, at)

    def _file(self, kind: str, place: str, name: str, folder: Folder) -> File:
        shown = sysfs.printable(name)
        device, port = self._labels
        raw = (device, port if folder.of_port else "", shown, place.rpartition("/")[2])
        return File(
            f"{place}/{name}",
            f"{folder.part}/{shown}",
            shown,
            wraps=self._mlx5
            and kind in ("driver", "device")
            and wraps(name.removeprefix("vport_")),
            raw=raw if self._raw else None,
        )


def _without_idle(
    files: list[File], series: dict[tuple[Metric, str | None], Series]
) -> tuple[list[File], dict[tuple[Metric, str | None], Series]]:
    """Leave out files that no series is made of."""
    used = sorted({i for one in series.values() for i in one.at})
    moved = {old: new for new, old in enumerate(used)}
    return [files[i] for i in used], {
        key: one._replace(at=tuple(moved[i] for i in one.at)) for key, one in series.items()
    }
