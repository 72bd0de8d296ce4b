"""What discovery finds: targets. And how those become the servers that are read.

A finder looks in one place (files, this machine's ports, later a cluster's pods), which is the
`origin` of its targets. It knows nothing of sources and plans. What it found lies in the register,
where the composition root picks it up.
"""

from __future__ import annotations

import itertools
import re
import threading
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from exporter.samples import Fault

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._:-]+")
_LONGEST_NAME = 64
_LOOPBACK = re.compile(
    r"localhost(\.localdomain)?|(::ffff:)?127\.[0-9.]+|::1|(::ffff:)?0\.0\.0\.0|0|::"
)


@dataclass(frozen=True, slots=True)
class Target:
    """A server whose page is to be read.

    `identity` changes when another process serves there, whose command line is that of the engine
    `kind`, "" if it is not seen; the page may be told apart more finely. `gpus` are the indices of
    those it works on, where that is known by hand; `pod` namespace and name of its pod.
    """

    name: str
    url: str
    origin: str
    engine: str = "auto"
    model_name: str | None = None
    gpus: tuple[int, ...] | None = None
    allow_destructive_read: bool = False
    identity: str = ""
    kind: str = ""
    pod: tuple[str, str] | None = None

    @property
    def endpoint(self) -> Endpoint:
        """Where it is."""
        return endpoint(self.url)


class Endpoint(NamedTuple):
    """Host ("" for this machine) and port."""

    host: str
    port: int


class Page(NamedTuple):
    """A page of a server: where it is, and its path with the query."""

    place: Endpoint
    path: str


class Static(NamedTuple):
    """A server of the configuration: found elsewhere too, it is still this one."""

    name: str
    endpoint: Endpoint


class Look(NamedTuple):
    """What one look brought: all targets there are now, and what could not be looked at."""

    targets: tuple[Target, ...] = ()
    faults: tuple[Fault, ...] = ()


class Finder(Protocol):
    """Looks for servers in one place."""

    @property
    def origin(self) -> str:
        """A word for the place: file, local."""

    def look(self) -> Look:
        """Look once."""


class Choice(NamedTuple):
    """The targets that are read, and how many are left out because there are too many."""

    taken: tuple[Target, ...] = ()
    beyond: int = 0


@dataclass
class Register:
    """What was found last, for whoever acts on it; `version` grows with each change.

    `verdicts` is what finders remember over a reload, each as long as its `basis` is the same.
    """

    targets: tuple[Target, ...] = ()
    version: int = 0
    _verdicts: dict[str, tuple[Hashable, dict[Any, Any]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def publish(self, targets: Iterable[Target]) -> None:
        """Replace what was found."""
        found = tuple(targets)
        with self._lock:
            if found != self.targets:
                self.targets = found
                self.version += 1

    def verdicts(self, origin: str, basis: Hashable) -> dict[Any, Any]:
        """Return the memory of a finder of this origin that judges by `basis`."""
        with self._lock:
            former, kept = self._verdicts.get(origin, (None, {}))
            if former != basis:
                kept = {}
            self._verdicts[origin] = basis, kept
            return kept


def endpoint(url: str) -> Endpoint:
    """Return where a URL leads; every name of the loopback is this machine."""
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return Endpoint("" if _LOOPBACK.fullmatch(host) else host, port)


def page_of(url: str) -> Page:
    """Return which page a URL means, whatever its host is called."""
    parts = urlsplit(url)
    return Page(endpoint(url), (parts.path or "/") + (f"?{parts.query}" if parts.query else ""))


def name_of(host: str, port: int, path: str = "/metrics") -> str:
    """Return a name for a server at an address; a page at an unusual path is part of it.

    A query is not: it may hold a secret, and names are shown to everybody.
    """
    place = f"{host.strip('[]')}:{port}"
    path = path.partition("?")[0]
    if path != "/metrics":
        place += "-" + path.strip("/")
    return shortened(_NOT_IN_A_NAME.sub("-", place).strip("-"))


def shortened(name: str) -> str:
    """Return a name of at most 64 characters; what is cut off is told apart by a checksum."""
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:55]}-{zlib.crc32(name.encode()):08x}"


def choose(
    static: Sequence[Static],
    targets: Sequence[Target],
    limit: int,
    placed: Callable[[Endpoint], Endpoint] = lambda place: place,
) -> Choice:
    """Return which targets are read beside the configured servers, under names of their own.

    A configured server wins over a target at the same place, a target that stands earlier over
    later ones; `limit` is for all servers together, of which the configured ones are never left
    out. A name that is taken gets a number. `placed` tells that two hosts are the same one.
    """
    places = {placed(one.endpoint) for one in static}
    room = max(0, limit - len(static))
    found = _first_of_each(targets, places, placed, room)
    taken = tuple(_renamed(itertools.islice(found, room), {one.name for one in static}))
    return Choice(taken, sum(1 for _ in found))


def _first_of_each(
    targets: Sequence[Target],
    places: set[Endpoint],
    placed: Callable[[Endpoint], Endpoint],
    room: int,
) -> Iterator[Target]:
    """Yield targets that no configured server is; one of each place, or of each page of a file.

    Beyond `room` nobody is asked whose name a host is: that may take its time, for thousands.
    """
    pages: set[Page] = set()
    held: dict[Endpoint, str] = {}
    for target in targets:
        place, path = page_of(target.url)
        if len(pages) < room:
            place = placed(place)
        page = Page(place, path)
        if place in places or page in pages:
            continue
        if held.get(place, target.origin) != target.origin:
            continue
        held[place] = target.origin
        pages.add(page)
        yield target


def _renamed(targets: Iterable[Target], names: set[str]) -> Iterator[Target]:
    """Yield the targets, with a number where a name is taken."""
    numbers: dict[str, int] = {}
    for target in targets:
        name = target.name
        while name in names:
            number = numbers[target.name] = numbers.get(target.name, 1) + 1
            name = f"{target.name[: _LONGEST_NAME - 5]}-{number}"
        names.add(name)
        yield target if name == target.name else replace(target, name=name)
