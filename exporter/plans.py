"""What the settings ask for, as plans: each says how a source is made, and how often it is read.

The composition root: the only room that knows all the others. `app` runs what is planned here.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import re
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit, urlunsplit

from exporter import catalogue as c
from exporter.board import Board
from exporter.clock import Clock
from exporter.config import (
    ConfigError,
    DcgmPageSettings,
    InferenceSettings,
    ServerSettings,
    Settings,
    address,
)
from exporter.derive import Derivation, hardware, serving
from exporter.discovery import (
    FileFinder,
    Finder,
    LocalFinder,
    Machine,
    Register,
    Static,
    Target,
    choose,
    endpoint,
    is_ours,
)
from exporter.engines import Engine, EngineError, load_engines
from exporter.fetch import HttpFetcher
from exporter.formats.exposition import Limits
from exporter.isolate import Isolated, Remembers
from exporter.objectives import read_inference
from exporter.reference.accelerators import load as load_accelerators
from exporter.reference.models import ModelShape
from exporter.reference.models import load as load_models
from exporter.reference.models import read_file as read_model
from exporter.reference.xids import load as load_xids
from exporter.runner import Schedule
from exporter.samples import Item, Metric, Released, Remembered, Sample, Source
from exporter.sinks.statefile import OLDEST, StateFile, this_boot
from exporter.sources.dcgm_page import DcgmPageSource
from exporter.sources.derived import DerivedSource
from exporter.sources.discovery import DiscoverySource, Prober
from exporter.sources.fallback import Fallback
from exporter.sources.host import HostSource
from exporter.sources.inference import InferenceSource
from exporter.sources.kmsg import KernelLogSource
from exporter.sources.network import NetworkSource
from exporter.sources.placement import Placed, PlacementSource
from exporter.sources.probe import Completion, Health, ProbeSource, Question
from exporter.sources.process import ProcessSource
from exporter.xids import XidLedger

if TYPE_CHECKING:
    from exporter.demo import Demo

_log = logging.getLogger(__name__)


_STATE_LOOK, _STATE_DEADLINE = 5.0, 5.0
"""How often it is looked whether there is news to write, and how long writing should take at most,
in seconds."""


class Roster:
    """Index and UUID of each GPU by its PCI address; what has been seen once is remembered.

    The kernel log speaks of GPUs by address, and mostly of those that no longer answer.
    """

    def __init__(self, board: Board, clock: Clock) -> None:
        self._board = board
        self._clock = clock
        self._seen: dict[str, tuple[str, str]] = {}

    def __call__(self) -> Mapping[str, tuple[str, str]]:
        """Return all that have been seen."""
        at = c.GPU_INFO.labels.index("pci_bus_id")
        for sample in self._board.view(self._clock.monotonic()).samples(c.GPU_INFO):
            gpu, uuid = sample.labels[:2]
            if sample.labels[at]:
                self._seen[sample.labels[at]] = (gpu, uuid)
        return self._seen


class Mappings:
    """The mappings of engines; read again only where a file of them has changed.

    Reading them costs a tenth of a second, and servers come and go.
    """

    def __init__(self) -> None:
        self._key: object = None
        self._engines: tuple[Engine, ...] = ()

    def __call__(self, directory: Path | None) -> tuple[Engine, ...]:
        """Return all, those of `directory` included. Raises `EngineError` and `OSError`."""
        files = [] if directory is None else sorted(directory.glob("*.y*ml"))
        key = (directory, [(file, file.read_bytes()) for file in files])
        if self._key != key or (directory is not None and not files):
            self._engines, self._key = load_engines(directory), key
        return self._engines


@dataclass(frozen=True)
class Estate:
    """What sources are given beside their settings; it outlives a reload.

    `memories` is what sources remember, by name: a successor goes on where its predecessor left
    off; `recalled` is set once what a former daemon has left is among them. `mappings` are those of
    the engines. `found` holds the inference servers that discovery has found. `ending` is set when
    the daemon ends. `gpus` tells whether the machine has a GPU driver, or a GPU.
    """

    clock: Clock
    board: Board = field(default_factory=Board)
    ledger: XidLedger = field(default_factory=lambda: XidLedger(load_xids()))
    memories: MutableMapping[str, Any] = field(default_factory=dict)
    mappings: Mappings = field(default_factory=Mappings)
    found: Register = field(default_factory=Register)
    recalled: threading.Event = field(default_factory=threading.Event)
    ending: threading.Event = field(default_factory=threading.Event)
    gpus: bool = False

    @functools.cached_property
    def roster(self) -> Roster:
        """The GPUs that have been seen."""
        return Roster(self.board, self.clock)


@dataclass(frozen=True, slots=True)
class Plan:
    """A source that the settings ask for. Equal fingerprints: nothing about it has changed.

    At the end of the daemon one that is `last` ends after all others.
    """

    name: str
    group: str
    schedule: Schedule
    fingerprint: str
    make: Callable[[], Source]
    last: bool = False


Planner = Callable[[Settings, Estate], list[Plan]]


def plan(settings: Settings, estate: Estate) -> list[Plan]:
    """Return what the settings ask for; touches no device.

    Raises `ConfigError`.
    """
    return list(_plans(settings, estate))


def _plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    _forget(estate)
    sources, root = settings.sources, Path(settings.root)
    shared = settings.root
    if settings.state_directory is not None:
        yield _state_plan(settings, Path(settings.state_directory), estate)
    yield from _gpu_plans(settings, estate)
    if (host := sources.host).enabled:
        yield Plan(
            "host", c.HOST, Schedule(host.interval, host.deadline, host.max_series),
            f"{shared} {host!r}", lambda: HostSource(root),
        )  # fmt: skip
    if (network := sources.network).enabled:
        extra: dict[str, Any] = {}
        if network.exclude_interfaces is not None:
            extra["exclude"] = re.compile(network.exclude_interfaces)
        yield Plan(
            "network", c.NIC, Schedule(network.interval, network.deadline, network.max_series),
            f"{shared} {network!r}", lambda: NetworkSource(root, **extra),
        )  # fmt: skip
    if (process := sources.process).enabled:
        yield Plan(
            "process", c.EXPORTER,
            Schedule(process.interval, process.deadline, process.max_series),
            repr(process), ProcessSource,
        )  # fmt: skip
    if sources.inference.enabled:
        yield from _inference_plans(settings, estate)
    if sources.serving.enabled and (settings.objectives or _expects_servers(sources.inference)):
        yield _serving_plan(settings, estate)


def _gpu_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield the readers of GPUs; where two know the same, one of them only fills gaps."""
    readers = {one.name: one for one in _gpu_readers(settings, estate)}
    doors = settings.sources
    preferred = {"dcgm": doors.dcgm.preferred, "dcgm_page": doors.dcgm_page.preferred}
    order = [name for name in ("dcgm", "dcgm_page") if preferred[name]]
    order += [name for name in ("nvml", "dcgm", "dcgm_page") if name not in order]
    ranked = [readers[name] for name in order if name in readers]
    gpus = _reads_gpus(settings, estate)
    for at, one in enumerate(ranked):
        yield functools.reduce(lambda plan, best: _behind(plan, best, estate), ranked[:at], one)
    kmsg = settings.sources.kmsg
    if _wanted(kmsg.enabled, gpus):
        yield Plan(
            "kmsg", c.XID, Schedule(kmsg.interval, kmsg.deadline, kmsg.max_series),
            f"{settings.root} {kmsg!r}",
            lambda: KernelLogSource(
                estate.ledger, estate.roster, estate.clock, Path(settings.root), device=kmsg.device
            ),
        )  # fmt: skip
    if _wanted(settings.sources.derived.enabled, gpus):
        yield from _derived_plans(settings, estate)


def _reads_gpus(settings: Settings, estate: Estate) -> bool:
    """Tell whether there are GPUs: whoever asked for them to be read wants to know more of them."""
    doors = settings.sources
    return (
        estate.gpus or doors.nvml.enabled is True or doors.dcgm.enabled or doors.dcgm_page.enabled
    )


def _behind(one: Plan, better: Plan, estate: Estate) -> Plan:
    """Let a reader only fill what the better one leaves."""
    return replace(
        one,
        fingerprint=f"{one.fingerprint} behind {better.name}",
        make=lambda: Fallback(one.make(), better.name, estate.board.view, estate.clock),
    )


def _gpu_readers(settings: Settings, estate: Estate) -> Iterator[Plan]:
    clock, ledger = estate.clock, estate.ledger
    if _wanted((nvml := settings.sources.nvml).enabled, estate.gpus):
        options = {
            # What is left of the deadline is for the way to the child and back.
            "budget": nvml.deadline * 0.75, "expected": nvml.expected,
            "detail": nvml.detail or bool(settings.compat), "links": nvml.links,
            "processes": nvml.processes, "root": settings.root,
        }  # fmt: skip
        yield Plan(
            "nvml", c.GPU, Schedule(nvml.interval, nvml.deadline, nvml.max_series),
            f"{options!r} {nvml!r}",
            lambda: Isolated(
                "nvml", c.GPU, options, deadline=nvml.deadline, clock=clock,
                end_after=nvml.end_after, events=ledger.from_driver,
                memories=estate.memories, ending=estate.ending,
            ),
        )  # fmt: skip
    if (dcgm := settings.sources.dcgm).enabled:
        asked = {
            "address": dcgm.address, "library": dcgm.library, "interval": dcgm.interval,
            "everything": dcgm.everything,
        }  # fmt: skip
        yield Plan(
            "dcgm", c.GPU, Schedule(dcgm.interval, dcgm.deadline, dcgm.max_series), repr(dcgm),
            # Never ended by force: it may hold a profiling session (dcgm-exporter 84).
            lambda: Isolated(
                "dcgm", c.GPU, asked, deadline=dcgm.deadline, clock=clock, end_after=None,
                memories=estate.memories, ending=estate.ending,
            ),
        )  # fmt: skip
    if (page := settings.sources.dcgm_page).enabled:
        yield Plan(
            "dcgm_page", c.GPU, Schedule(page.interval, page.timeout + 0.5, page.max_series),
            repr(page), lambda: DcgmPageSource(_fetcher(page, clock)),
        )  # fmt: skip


def _fetcher(page: DcgmPageSettings, clock: Clock) -> HttpFetcher:
    return HttpFetcher(
        page.url,
        timeout=page.timeout,
        token_file=None if page.token_file is None else Path(page.token_file),
        ca_file=None if page.ca_file is None else Path(page.ca_file),
        insecure_skip_verify=page.insecure_skip_verify,
        clock=clock,
    )


def _derived_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    derived, board = settings.sources.derived, estate.board
    schedule = Schedule(derived.interval, derived.deadline, derived.max_series)
    nvml = settings.sources.nvml
    gap = Schedule(nvml.interval, nvml.deadline).max_age
    for one in (
        hardware(load_accelerators(), precision_hint=derived.precision_hint, longest_gap=gap),
        *_foreign_names(settings.compat),
    ):
        yield Plan(
            f"derive:{one.name}", one.group, schedule, f"{derived!r} {gap} {settings.compat}",
            functools.partial(DerivedSource, one, board.view, estate.clock),
        )  # fmt: skip


def _foreign_names(sets: tuple[str, ...]) -> tuple[Derivation, ...]:
    """Return what translates into other exporters' names; loaded by those who want it."""
    if not sets:
        return ()
    from exporter.derive.compat import derivations

    return derivations(sets, socket.gethostname())


def _wanted(enabled: bool | Literal["auto"], gpus: bool) -> bool:  # noqa: FBT001
    return gpus if enabled == "auto" else enabled


_PROBE_TIMEOUT = 1.0
"""Seconds within which a server that is only suspected has to answer."""


def _inference_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield the readers of servers, configured and discovered, and what goes with them."""
    inference = settings.sources.inference
    engines = _engines(inference, estate.mappings)
    # What is known of engines is a long text, and each server's plan has it in its fingerprint.
    mappings = hashlib.sha256(repr(engines).encode()).hexdigest()
    servers = list(_servers(inference, estate.found, engines))
    for server, identity in servers:
        one = _server_plan(inference, server, engines, estate.clock)
        yield replace(one, fingerprint=f"{one.fingerprint} {identity} {mappings}")
        yield from _probe_plans(settings, server, estate)
    yield _discovery_plan(settings, estate, engines, mappings)
    machine = Machine(Path(settings.root))
    placed = tuple(Placed(one.name, _local_port(one), one.gpus) for one, _ in servers)
    if placed and _reads_gpus(settings, estate):
        schedule = Schedule(inference.discovery_interval, 2.0, inference.max_series)
        yield Plan(
            "placement", c.SERVING, schedule, f"{settings.root} {schedule} {placed}",
            lambda: PlacementSource(placed, machine, estate.board.view, estate.clock),
        )  # fmt: skip


def _engines(inference: InferenceSettings, mappings: Mappings) -> tuple[Engine, ...]:
    """Return the mappings. Raises `ConfigError` for a broken one, and for one that is not there."""
    directory = inference.engines_directory
    try:
        engines = mappings(None if directory is None else Path(directory))
    except (EngineError, OSError) as error:
        raise ConfigError(f"sources.inference.engines_directory: {error}") from None
    names = {engine.name for engine in engines} | {"auto"}
    for at, server in enumerate(inference.servers):
        if server.engine not in names:
            known = ", ".join(sorted(names))
            raise ConfigError(
                f"sources.inference.servers.{at}.engine: {server.engine!r} is not known;"
                f" there are {known}"
            )
    return engines


def _servers(
    inference: InferenceSettings, found: Register, engines: tuple[Engine, ...]
) -> Iterator[tuple[ServerSettings, str]]:
    """Yield all servers that are to be read, each with what tells one process from the next."""
    yield from ((server, "") for server in inference.servers if server.enabled)
    # What was found before a reload may be more than what is looked for now.
    origins = {origin for origin, wanted in _origins(inference).items() if wanted}
    names = {engine.name for engine in engines} | {"auto"}
    targets = [one for one in found.targets if one.origin in origins and one.engine in names]
    for target in choose(_statics(inference), targets, inference.max_servers).taken:
        yield _settings_of(target), target.identity


def _origins(inference: InferenceSettings) -> dict[str, bool]:
    return {"file": bool(inference.files), "local": inference.local is not False}


def _expects_servers(inference: InferenceSettings) -> bool:
    """Tell whether there may be a server to read, now or once it is found."""
    configured = any(server.enabled for server in inference.servers)
    return inference.enabled and (configured or any(_origins(inference).values()))


def _paces(inference: InferenceSettings) -> Iterator[float]:
    """Yield how often servers are read, those included that may be found."""
    for server in inference.servers:
        if server.enabled:
            yield inference.interval if server.interval is None else server.interval
    if any(_origins(inference).values()):
        yield inference.interval


def _statics(inference: InferenceSettings) -> tuple[Static, ...]:
    """Return the configured servers; one that is switched off is not to be discovered either."""
    return tuple(Static(one.name, endpoint(one.url)) for one in inference.servers)


def _settings_of(target: Target) -> ServerSettings:
    return ServerSettings(
        name=target.name,
        url=target.url,
        engine=target.engine,
        model_name=target.model_name,
        gpus=target.gpus,
        completion=False,  # work is only given to servers that somebody named
        allow_destructive_read=target.allow_destructive_read,
    )


def _local_port(server: ServerSettings) -> int | None:
    place = endpoint(server.url)
    return place.port if place.host == "" else None


def _discovery_plan(
    settings: Settings, estate: Estate, engines: tuple[Engine, ...], mappings: str
) -> Plan:
    """Return the look-out for servers. What it found wrong is asked anew where the question is."""
    inference, clock = settings.sources.inference, estate.clock
    limits = _limits(inference)
    basis = (
        inference.local, inference.ports, inference.allow_destructive_read, inference.max_body,
        limits, settings.listen, settings.root, mappings,
    )  # fmt: skip

    def finders() -> Iterator[Finder]:
        if inference.files:
            yield FileFinder(inference.files, [engine.name for engine in engines])
        if inference.local is not False:
            yield LocalFinder(
                Machine(Path(settings.root)),
                Prober(
                    engines, clock, timeout=min(_PROBE_TIMEOUT, inference.timeout),
                    max_bytes=inference.max_body, limits=limits,
                    allow_destructive_read=inference.allow_destructive_read,
                ),
                clock,
                ports=inference.ports,
                anyone=inference.local is True,
                excluded=(address(settings.listen)[1],),
                allow_destructive_read=inference.allow_destructive_read,
                verdicts=estate.found.verdicts(basis),
            )  # fmt: skip

    return Plan(
        "discovery", c.SERVING,
        # A look asks a few servers, of which each may keep it waiting.
        Schedule(inference.discovery_interval, 10.0),
        f"{basis} {inference.files} {inference.discovery_interval} {inference.max_servers}"
        f" {inference.servers}",
        lambda: DiscoverySource(
            tuple(finders()), _statics(inference), estate.found, is_ours=is_ours,
            read=sum(server.enabled for server in inference.servers), limit=inference.max_servers,
        ),
    )  # fmt: skip


def _probe_plans(settings: Settings, server: ServerSettings, estate: Estate) -> Iterator[Plan]:
    """Yield the probes of one server: of its health, and of a completion where that is wanted."""
    told = settings.sources.inference.probe
    if not (told.enabled if server.probe is None else server.probe):
        return
    look = _Look(server, estate)
    door = functools.partial(_door, server, estate.clock)
    yield _probe_plan(
        settings, server, estate,
        lambda: Health(
            lambda path: door(_beside(server.url, server.health_url, path), told.timeout),
            look.engine,
        ),
        interval=told.interval, timeout=told.timeout,
    )  # fmt: skip
    if told.completion if server.completion is None else server.completion:
        url = _beside(server.url, server.completion_url, "/v1/completions")
        yield _probe_plan(
            settings, server, estate,
            lambda: Completion(door(url, told.completion_timeout), look.model),
            interval=told.completion_interval, timeout=told.completion_timeout,
            suffix=":completion",
        )  # fmt: skip


def _probe_plan(
    settings: Settings,
    server: ServerSettings,
    estate: Estate,
    question: Callable[[], Question],
    *,
    interval: float,
    timeout: float,
    suffix: str = "",
) -> Plan:
    kept = _remembering(settings, estate)
    kept.pop("keep_every", None)
    return Plan(
        f"probe:{server.name}{suffix}", c.SERVING, Schedule(interval, timeout + 0.5),
        f"{interval} {timeout} {server!r}",
        lambda: ProbeSource(
            server.name, question(), clock=estate.clock, timeout=timeout, **kept
        ),
    )  # fmt: skip


def _door(server: ServerSettings, clock: Clock, url: str, timeout: float) -> HttpFetcher:
    """Return what asks a server at another address of its own; its token is for its host only."""
    page, there = urlsplit(server.url), urlsplit(url)
    trusted = page.hostname == there.hostname and (page.scheme, there.scheme) != ("https", "http")
    token_file = server.token_file if trusted else None
    return HttpFetcher(
        url,
        timeout=timeout,
        max_bytes=1 << 20,
        token_file=None if token_file is None else Path(token_file),
        ca_file=None if server.ca_file is None else Path(server.ca_file),
        insecure_skip_verify=server.insecure_skip_verify,
        clock=clock,
    )


def _beside(page: str, url: str | None, path: str) -> str:
    """Return an address: the one that was given, or a path on the server of the page."""
    return url or urlunsplit((*urlsplit(page)[:2], path, "", ""))


class _Look:
    """What the page of a server has told so far of its engine and its model."""

    def __init__(self, server: ServerSettings, estate: Estate) -> None:
        self._server = server
        self._estate = estate

    def engine(self) -> str:
        """Return the engine's name, "" if it is not known yet."""
        if self._server.engine != "auto":
            return self._server.engine
        return self._label(c.LLM_SERVER_INFO, "engine")

    def model(self) -> str:
        """Return a model's name, "" if none is known yet."""
        families = (c.LLM_REQUESTS_TOTAL, c.LLM_ACTIVE_REQUESTS, c.LLM_TOKENS_TOTAL)
        found = (self._label(family, "model_name") for family in families)
        return self._server.model_name or next(filter(None, found), "")

    def _label(self, metric: Metric, label: str) -> str:
        at, of = metric.labels.index(label), metric.labels.index("server")
        view = self._estate.board.view(self._estate.clock.monotonic())
        found = (s.labels[at] for s in view.samples(metric) if s.labels[of] == self._server.name)
        return next(filter(None, found), "")


def _serving_plan(settings: Settings, estate: Estate) -> Plan:
    """Return the derivation; it passes over no reading of a server, however often that is read."""
    told, objectives = settings.sources.serving, settings.objectives
    often = min((told.interval, *_paces(settings.sources.inference)))
    schedule = Schedule(often, told.deadline, told.max_series)
    shapes = _shapes(settings.sources.inference)
    kept = _remembering(settings, estate)
    return Plan(
        "derive:serving", c.SERVING, schedule,
        f"{schedule!r} {told!r} {objectives!r} {shapes!r}"
        f" {settings.state_directory} {settings.state_interval}",
        lambda: DerivedSource(
            serving(told.windows, objectives, _log.warning, load_models(), shapes),
            estate.board.view, estate.clock, **kept,
        ),
    )  # fmt: skip


def _shapes(inference: InferenceSettings) -> dict[str, ModelShape]:
    """Return the shapes of the models whose configuration was given, by server."""
    found: dict[str, ModelShape] = {}
    for at, server in enumerate(inference.servers):
        if server.enabled and server.model_file is not None:
            try:
                found[server.name] = read_model(Path(server.model_file), server.name)
            except ValueError as error:
                where = f"sources.inference.servers.{at}.model_config"
                raise ConfigError(f"{where}: {error}") from None
    return found


def _remembering(settings: Settings, estate: Estate) -> dict[str, Any]:
    """Return how a source is to keep what it remembers, over a reload and a restart."""
    if settings.state_directory is None:
        return {"memories": estate.memories}

    def recall() -> None:
        # A disk that hangs costs what was remembered, and nothing else.
        estate.clock.wait(estate.recalled, _STATE_DEADLINE)

    return {
        "memories": estate.memories, "recall": recall, "keep_every": settings.state_interval,
    }  # fmt: skip


def _forget(estate: Estate) -> None:
    """Drop what servers that have gone for good have left."""
    oldest = estate.clock.monotonic() - OLDEST
    for name, one in list(estate.memories.items()):
        if isinstance(one, Remembered) and one.taken < oldest:
            estate.memories.pop(name, None)


def _state_plan(settings: Settings, directory: Path, estate: Estate) -> Plan:
    every = settings.state_interval
    return Plan(
        StateFile.name, c.EXPORTER, Schedule(min(every, _STATE_LOOK), _STATE_DEADLINE),
        f"{directory} {every}",
        lambda: StateFile(
            directory, estate.memories, estate.recalled, estate.clock,
            # A little less: what is remembered comes on its own beat.
            every=every * 0.9, boot=this_boot(),
        ),
        last=True,
    )  # fmt: skip


def _limits(inference: InferenceSettings) -> Limits:
    return Limits(
        max_line_bytes=inference.max_line,
        max_series=inference.max_page_series,
        max_label_bytes=inference.max_label,
    )


def _server_plan(
    inference: InferenceSettings,
    server: ServerSettings,
    engines: tuple[Engine, ...],
    clock: Clock,
) -> Plan:
    timeout = server.timeout or inference.timeout
    interval = server.interval or inference.interval
    max_series = server.max_series or inference.max_series

    def make() -> Source:
        fetcher = HttpFetcher(
            server.url,
            timeout=timeout,
            max_bytes=inference.max_body,
            token_file=None if server.token_file is None else Path(server.token_file),
            ca_file=None if server.ca_file is None else Path(server.ca_file),
            insecure_skip_verify=server.insecure_skip_verify,
            follow_redirects=server.follow_redirects,
            clock=clock,
        )
        return InferenceSource(
            server.name,
            fetcher,
            engines,
            engine=server.engine,
            model_name=server.model_name,
            allow_destructive_read=server.allow_destructive_read,
            limits=_limits(inference),
            clock=clock,
        )

    return Plan(
        f"inference:{server.name}", c.SERVING, Schedule(interval, timeout + 0.5, max_series),
        # Where the GPUs are stated makes no difference to reading the page.
        f"{interval} {timeout} {max_series} {inference.max_body} {_limits(inference)}"
        f" {server.model_copy(update={'gpus': None})!r}",
        make,
    )  # fmt: skip


class _DemoDriver:
    """Moves the demo's model along with time: a source that brings no samples."""

    name = "demo"
    group = c.EXPORTER

    def __init__(self, demo: Demo, clock: Clock) -> None:
        self._demo = demo
        self._clock = clock
        self._last = clock.monotonic()

    def read(self) -> Iterable[Sample]:
        now = self._clock.monotonic()
        self._demo.step(now - self._last)
        self._last = now
        return ()

    def close(self) -> None:
        pass


class Lent:
    """A source in this process that can let go of its driver, as one in a child can.

    `make` takes what a predecessor remembered; `memories` keeps that by name. `release` may be
    called from any thread.
    """

    def __init__(
        self,
        name: str,
        group: str,
        make: Callable[[object], Source],
        clock: Clock,
        memories: MutableMapping[str, Any],
    ) -> None:
        self.name = name
        self.group = group
        self._make = make
        self._clock = clock
        self._memories = memories
        self._turn = threading.Lock()
        self._source: Source | None = None
        self._released_until = 0.0

    def read(self) -> Iterable[Item]:
        """Read the source, making it if need be. Raises `Released`, and what the source raises."""
        with self._turn:
            left = self._released_until - self._clock.monotonic()
            if left > 0:
                raise Released(left)
            if self._source is None:
                self._source = self._make(self._memories.get(self.name))
            return list(self._source.read())

    def release(self, seconds: float) -> bool:
        """Close the source, and read nothing for so long; another one goes on where it was."""
        with self._turn:
            self._released_until = self._clock.monotonic() + seconds
            self._close()
        return True

    def close(self) -> None:
        """Close the source."""
        with self._turn:
            self._close()

    def _close(self) -> None:
        source, self._source = self._source, None
        if source is None:
            return
        if isinstance(source, Remembers):
            self._memories[self.name] = source.memory()
        source.close()


def _on_fake_driver(one: Plan, settings: Settings, demo: Demo, estate: Estate) -> Plan:
    """Let the NVML source read the demo's GPUs, in this process: no library, no child."""
    if one.name != "nvml":
        return one
    nvml = settings.sources.nvml

    def make(memory: object) -> Source:
        from exporter.sources.nvml import NvmlSource

        return NvmlSource(
            budget=nvml.deadline, expected=nvml.expected,
            detail=nvml.detail or bool(settings.compat), links=nvml.links,
            processes=nvml.processes, root=settings.root, memory=memory,
            driver=demo.gpu_driver(), clock=estate.clock,
        )  # fmt: skip

    return replace(one, make=lambda: Lent("nvml", c.GPU, make, estate.clock, estate.memories))


@contextlib.contextmanager
def demo_plans() -> Iterator[Planner]:
    """Give plans for a made-up node: real readers over a fake fabric and fake servers.

    The host is the real one; GPUs, network and inference servers are made up, and so is what was
    promised, unless the settings have an objective.
    """
    from exporter.demo import PROMISE, Demo

    with tempfile.TemporaryDirectory(prefix="flopwatch-demo-") as folder:
        demo = Demo(Path(folder))
        for server in demo.page_servers:
            threading.Thread(target=server.serve_forever, name="demo", daemon=True).start()
        servers = tuple(
            ServerSettings(
                name=name,
                url=one.url,
                engine=one.engine,
                gpus=one.gpus,
                allow_destructive_read=one.engine == "llamacpp",
            )
            for name, one in demo.servers.items()
        )
        promised = read_inference(PROMISE)

        def plans(settings: Settings, estate: Estate) -> list[Plan]:
            inference = settings.sources.inference
            if taken := demo.servers.keys() & {server.name for server in inference.servers}:
                raise ConfigError(f"sources.inference.servers: the demo has a {min(taken)!r} too")
            inference = inference.model_copy(
                # Whatever real server runs on this machine is not the made-up node's.
                update={"servers": (*inference.servers, *servers), "local": False}
            )
            sources = settings.sources.model_copy(update={"inference": inference})
            made = settings.model_copy(
                update={
                    "root": str(demo.root), "sources": sources,
                    # A real node's state is not the demo's to overwrite.
                    "state_directory": None,
                    "inference_sla": settings.inference_sla if settings.objectives else promised,
                }
            )  # fmt: skip
            clock = estate.clock
            real = [one for one in plan(settings, estate) if one.name == "host"]
            fake = [one for one in plan(made, replace(estate, gpus=True)) if one.name != "host"]
            driver = Plan(
                "demo", c.EXPORTER, Schedule(1.0, 2.0), "demo", lambda: _DemoDriver(demo, clock)
            )
            return [*real, *(_on_fake_driver(one, made, demo, estate) for one in fake), driver]

        try:
            yield plans
        finally:
            demo.close()


def build(one: Plan) -> Source:
    """Return the source of a plan, not yet read. Raises `ConfigError`."""
    try:
        return one.make()
    except (OSError, ValueError) as error:
        raise ConfigError(f"source {one.name}: {error}") from None
