"""Interfaces for tests: what `/sys` shows of them, and drivers that answer as texts say."""

from __future__ import annotations

import errno
import os
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exporter.ethtool import Driver, Link, Module
from exporter.formats import ethtool
from exporter.samples import Drop, Fault, Sample

TEXTS = Path(__file__).parent / "data" / "ethtool"
MLX5 = Driver("mlx5_core", "6.8.0", "22.36.1010 (MT_0000000359)", "0000:3b:00.0")


@dataclass
class Card:
    """What a driver answers; an errno in `fails`, by the name of the call, is what it says."""

    statistics: dict[str, int]
    driver: Driver = MLX5
    link: Link = Link(100_000, "full", True, "fibre")  # noqa: RUF009 - frozen
    pause: tuple[bool, bool] = (False, False)
    fec: str = "rs"
    module: Module | None = None
    names: tuple[str, ...] | None = None
    fails: dict[str, int] = field(default_factory=dict)


class Drivers:
    """A door behind which there are cards. `asked` is what was asked of whom, in order."""

    def __init__(self, cards: Mapping[str, Card], foreign: Iterable[str] = ()) -> None:
        self.cards = dict(cards)
        self.foreign = frozenset(foreign)
        self.asked: list[tuple[str, str]] = []

    def identity(self, interface: str) -> tuple[int, bytes]:
        if interface in self.foreign:
            return 1, bytes(6)
        self._card(interface, "identity")
        return number_of(interface), address_of(interface)

    def driver(self, interface: str) -> Driver:
        return self._card(interface, "driver").driver

    def count(self, interface: str) -> int:
        card = self._card(interface, "count")
        if not card.statistics:
            raise OSError(errno.EOPNOTSUPP, "made by the test")
        return len(card.statistics)

    def names(self, interface: str, count: int) -> tuple[str, ...]:
        card = self._card(interface, "names")
        return tuple(card.statistics) if card.names is None else card.names

    def values(self, interface: str, count: int) -> array[int]:
        return array("Q", self._card(interface, "values").statistics.values())

    def link(self, interface: str) -> Link:
        return self._card(interface, "link").link

    def pause(self, interface: str) -> tuple[bool, bool]:
        return self._card(interface, "pause").pause

    def fec(self, interface: str) -> str:
        return self._card(interface, "fec").fec

    def module(self, interface: str) -> Module:
        module = self._card(interface, "module").module
        if module is None:
            raise OSError(errno.EOPNOTSUPP, "made by the test")
        return module

    def close(self) -> None:
        pass

    def _card(self, interface: str, call: str) -> Card:
        self.asked.append((interface, call))
        card = self.cards.get(interface)
        if card is None:
            raise OSError(errno.ENODEV, "made by the test")
        if (failure := card.fails.get(call)) is not None:
            raise OSError(failure, os.strerror(failure), interface)
        return card


def number_of(interface: str) -> int:
    return 2 + sum(interface.encode())


def address_of(interface: str) -> bytes:
    return bytes((2, *interface.encode()))[:6].ljust(6, b"\0")


def show(root: Path, *interfaces: str, hardware: bool = True) -> Path:
    """Have `/sys` below `root` show interfaces; return `root`."""
    for name in interfaces:
        base = root / "sys/class/net" / name
        base.mkdir(parents=True)
        (base / "ifindex").write_text(f"{number_of(name)}\n")
        (base / "address").write_text(":".join(f"{o:02x}" for o in address_of(name)) + "\n")
        if hardware:
            (base / "device").symlink_to("../../../0000:3b:00.0")
    return root


def card(text: str, **options: object) -> Card:
    """Return a card that has the statistics of a recorded text."""
    return Card(ethtool.read((TEXTS / text).read_text()), **options)  # type: ignore[arg-type]


def values(items: Iterable[Sample | Fault | Drop]) -> dict[tuple[str, ...], object]:
    """Return the samples by name and labels; there must be nothing else among the items."""
    found: dict[tuple[str, ...], object] = {}
    for item in items:
        assert isinstance(item, Sample), item
        key = (item.metric.name.removeprefix("nic_"), *item.labels)
        assert key not in found, key
        found[key] = item.value
    return found
