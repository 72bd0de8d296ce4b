"""Plans for inference servers, configured and discovered, and for what is derived from them."""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.config import (
    ConfigError,
    InferenceSettings,
    ServerSettings,
    Settings,
    address,
)
from exporter.derive import serving
from exporter.derive.serving.costs import Policy
from exporter.discovery import (
    FileFinder,
    Finder,
    LocalFinder,
    Machine,
    Page,
    PodFinder,
    Register,
    Static,
    Target,
    choose,
    endpoint,
    is_ours,
    page_of,
)
from exporter.engines import Engine, EngineError
from exporter.fetch import HttpFetcher
from exporter.formats.exposition import Limits
from exporter.plans.estate import AFTER_READING, Estate, Mappings, Plan, remembering
from exporter.plans.gpus import reads_gpus
from exporter.plans.pods import pods_plans, wants_pods
from exporter.reference.models import ModelShape
from exporter.reference.models import load as load_models
from exporter.reference.models import read_file as read_model
from exporter.runner import Schedule
from exporter.samples import Metric, Remembered, Source
from exporter.sources.derived import DerivedSource
from exporter.sources.discovery import DiscoverySource, Prober
from exporter.sources.inference import InferenceSource
from exporter.sources.placement import Placed, PlacementSource
from exporter.sources.probe import Completion, Health, ProbeSource, Question, health_path

_log = logging.getLogger(__name__)


_PROBE_TIMEOUT = 1.0
"""Seconds within which a server that is only suspected has to answer."""


class _Server(NamedTuple):
    """A server that is to be read.

    `identity` tells one process from the next, `kind` is its engine by its command line, `pod` its
    namespace and name.
    """

    server: ServerSettings
    identity: str = ""
    kind: str = ""
    pod: tuple[str, str] | None = None


def inference_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield the readers of servers, configured and discovered, and what goes with them."""
    inference = settings.sources.inference
    _expect_each_page_once(inference)
    engines = _engines(inference, estate.mappings)
    # What is known of engines is a long text, and each server's plan has it in its fingerprint.
    mappings = hashlib.sha256(repr(engines).encode()).hexdigest()
    servers = list(_servers(inference, estate.found, engines))
    for server, identity, kind, _ in servers:
        one = _server_plan(inference, server, engines, estate.clock)
        yield replace(one, fingerprint=f"{one.fingerprint} {identity} {mappings}")
        # A process that restarts is asked on, as long as it is one of the same engine.
        yield from _probe_plans(settings, server, _Look(server, kind, kind or identity, estate))
    yield from pods_plans(inference.kubernetes, estate, settings.start_jitter)
    yield _discovery_plan(settings, estate, engines, mappings)
    machine = Machine(Path(settings.root))
    placed = tuple(
        Placed(one.server.name, _local_port(one.server), one.server.gpus, one.pod)
        for one in servers
    )
    if placed and reads_gpus(settings, estate):
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


def _expect_each_page_once(inference: InferenceSettings) -> None:
    """Raise `ConfigError` for a page that two servers name: sums would hold it twice."""
    seen: dict[Page, int] = {}
    for at, server in enumerate(inference.servers):
        if server.enabled and (first := seen.setdefault(page_of(server.url), at)) != at:
            keys = [f"sources.inference.servers.{one}.url" for one in (first, at)]
            names = [inference.servers[one].name for one in (first, at)]
            raise ConfigError(
                f"{keys[1]}: the same page as {keys[0]} ({names[1]}, {names[0]}):"
                " it would be read, and count, twice"
            )


def _servers(
    inference: InferenceSettings, found: Register, engines: tuple[Engine, ...]
) -> Iterator[_Server]:
    """Yield all servers that are to be read."""
    yield from (_Server(server) for server in inference.servers if server.enabled)
    # What was found before a reload may be more than what is looked for now.
    origins = {origin for origin, wanted in _origins(inference).items() if wanted}
    names = {engine.name for engine in engines} | {"auto"}
    targets = [one for one in found.targets if one.origin in origins and one.engine in names]
    for target in choose(_statics(inference), targets, inference.max_servers).taken:
        yield _Server(_settings_of(target), target.identity, target.kind, target.pod)


def _origins(inference: InferenceSettings) -> dict[str, bool]:
    return {
        "file": bool(inference.files), "local": inference.local is not False,
        "kubernetes": wants_pods(inference.kubernetes),
    }  # fmt: skip


def expects_servers(inference: InferenceSettings) -> bool:
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

    listens = address(settings.listen)[1]
    prober = Prober(
        engines, clock, timeout=min(_PROBE_TIMEOUT, inference.timeout),
        max_bytes=inference.max_body, limits=limits,
        allow_destructive_read=inference.allow_destructive_read,
    )  # fmt: skip

    def finders() -> Iterator[Finder]:
        if inference.files:
            yield FileFinder(inference.files, [engine.name for engine in engines])
        if inference.local is not False:
            yield LocalFinder(
                Machine(Path(settings.root)),
                prober,
                clock,
                ports=inference.ports,
                anyone=inference.local is True,
                excluded=(listens,),
                allow_destructive_read=inference.allow_destructive_read,
                verdicts=estate.found.verdicts("local", basis),
            )  # fmt: skip
        if wants_pods(inference.kubernetes):
            yield PodFinder(
                lambda: estate.pods.pods, prober, clock,
                engines=[engine.name for engine in engines],
                namespaces=inference.kubernetes.namespaces,
                is_own=lambda host, port: port == listens and is_ours(host),
                allow_destructive_read=inference.allow_destructive_read,
                verdicts=estate.found.verdicts("kubernetes", basis),
            )  # fmt: skip

    return Plan(
        "discovery", c.SERVING,
        # A look asks a few servers, of which each may keep it waiting.
        Schedule(inference.discovery_interval, 10.0),
        f"{basis} {inference.files} {inference.discovery_interval} {inference.max_servers}"
        f" {inference.servers} {_origins(inference)}"
        f" {inference.kubernetes.namespaces}",
        lambda: DiscoverySource(
            tuple(finders()), _statics(inference), estate.found, is_ours=is_ours,
            read=sum(server.enabled for server in inference.servers), limit=inference.max_servers,
        ),
    )  # fmt: skip


def _probe_plans(settings: Settings, server: ServerSettings, look: _Look) -> Iterator[Plan]:
    """Yield the probes of one server: of its health, and of a completion where that is wanted."""
    told = settings.sources.inference.probe
    if not (told.enabled if server.probe is None else server.probe):
        return
    door = functools.partial(_door, server, look.estate.clock)
    yield _probe_plan(
        settings, look,
        lambda: Health(
            lambda path: door(_beside(server.url, server.health_url, path), told.timeout),
            look.path,
        ),
        interval=told.interval, timeout=told.timeout,
    )  # fmt: skip
    if told.completion if server.completion is None else server.completion:
        url = _beside(server.url, server.completion_url, "/v1/completions")
        yield _probe_plan(
            settings, look,
            lambda: Completion(door(url, told.completion_timeout), look.model),
            interval=told.completion_interval, timeout=told.completion_timeout,
            suffix=":completion",
        )  # fmt: skip


def _probe_plan(
    settings: Settings,
    look: _Look,
    question: Callable[[], Question],
    *,
    interval: float,
    timeout: float,
    suffix: str = "",
) -> Plan:
    server, estate = look.server, look.estate
    kept = remembering(settings, estate)
    kept.pop("keep_every", None)
    return Plan(
        f"probe:{server.name}{suffix}", c.SERVING, Schedule(interval, timeout + 0.5),
        f"{interval} {timeout} {look.process} {server!r}",
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
    """What is known of a server's engine and its model: by its process, and by its page so far.

    The engine that a page told last is kept while there is no page, by server, address and
    `process`: `/health` of the wrong engine is not there, or costs a completion of each model.
    """

    def __init__(self, server: ServerSettings, kind: str, process: str, estate: Estate) -> None:
        self.server = server
        self.process = process
        self.estate = estate
        self._kind = kind
        self._key = f"engine:{server.name}"
        # The address may hold a secret, and what is remembered is written to a file.
        self._basis = hashlib.sha256(f"{server.url} {process}".encode()).hexdigest()[:16]
        self._last = ""

    def path(self) -> str:
        """Return where the server is asked for its health, "" while that is not known."""
        if self.server.health_url is not None:
            return urlsplit(self.server.health_url).path or "/"
        return health_path(self.engine())

    def engine(self) -> str:
        """Return the engine's name, "" if it is not known yet."""
        if self.server.engine != "auto" or self._kind:
            return self._kind or self.server.engine
        if found := self._label(c.LLM_SERVER_INFO, "engine"):
            self._last = found
            now = self.estate.clock.monotonic()
            self.estate.memories[self._key] = Remembered([self._basis, found], now)
        return self._last or self._remembered()

    def _remembered(self) -> str:
        match self.estate.memories.get(self._key):
            case Remembered([self._basis, str(engine)], _, _):
                self._last = engine
        return self._last

    def model(self) -> str:
        """Return a model's name, "" if none is known yet."""
        families = (c.LLM_REQUESTS_TOTAL, c.LLM_ACTIVE_REQUESTS, c.LLM_TOKENS_TOTAL)
        found = (self._label(family, "model_name") for family in families)
        return self.server.model_name or next(filter(None, found), "")

    def _label(self, metric: Metric, label: str) -> str:
        at, of = metric.labels.index(label), metric.labels.index("server")
        view = self.estate.board.view(self.estate.clock.monotonic())
        found = (s.labels[at] for s in view.samples(metric) if s.labels[of] == self.server.name)
        return next(filter(None, found), "")


def serving_plan(settings: Settings, estate: Estate) -> Plan:
    """Return the derivation; it passes over no reading of a server, however often that is read."""
    told, objectives = settings.sources.serving, settings.serving_objectives
    often = min((told.interval, *_paces(settings.sources.inference)))
    schedule = Schedule(often, told.deadline, told.max_series, AFTER_READING)
    shapes = _shapes(settings.sources.inference)
    policy = Policy(settings.cost.output_weight, settings.cost.servers_without_gpus == "node")
    kept = remembering(settings, estate)
    return Plan(
        "derive:serving", c.SERVING, schedule,
        f"{schedule!r} {told!r} {objectives!r} {shapes!r} {policy}"
        f" {settings.state_directory} {settings.state_interval}",
        lambda: DerivedSource(
            serving(
                told.windows, objectives, _log.warning, load_models(), shapes,
                policy=policy, every=told.refresh,
            ),
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
