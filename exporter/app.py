"""The composition root: builds the daemon from its settings, starts, reloads and stops it.

The only room that knows all the others. Everything that can fail is done before anything is
changed: a configuration is first turned into plans, and only then into running sources, so that a
reload either happens whole or not at all. A source whose section did not change is left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import platform
import re
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter import __version__
from exporter import catalogue as c
from exporter import status as status_room
from exporter.board import Board
from exporter.clock import Clock, SystemClock
from exporter.config import (
    ConfigError,
    InferenceSettings,
    ServerSettings,
    Settings,
    load,
)
from exporter.engines import Engine, EngineError, load_engines
from exporter.exposition import Exposition
from exporter.fetch import HttpFetcher
from exporter.formats.exposition import Limits
from exporter.runner import Runner, Schedule
from exporter.samples import Sample, Source, View
from exporter.sources.host import HostSource
from exporter.sources.inference import InferenceSource
from exporter.sources.network import NetworkSource
from exporter.sources.process import ProcessSource

if TYPE_CHECKING:
    from exporter.demo import Demo

log = logging.getLogger(__name__)

_HEARTBEAT_LIMIT = 30.0
_STOP_LIMIT = 3.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A source that the settings ask for. Equal fingerprints: nothing about it has changed."""

    name: str
    group: str
    schedule: Schedule
    fingerprint: str
    make: Callable[[], Source]


Planner = Callable[[Settings, Clock], list[Plan]]


def plan(settings: Settings, clock: Clock) -> list[Plan]:
    """Return what the settings ask for; touches no device.

    Raises `ConfigError`.
    """
    return list(_plans(settings, clock))


def _plans(settings: Settings, clock: Clock) -> Iterator[Plan]:
    sources, root = settings.sources, Path(settings.root)
    shared = settings.root
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
        yield from _server_plans(sources.inference, clock)


def _server_plans(inference: InferenceSettings, clock: Clock) -> Iterator[Plan]:
    directory = inference.engines_directory
    try:
        engines = load_engines(None if directory is None else Path(directory))
    except (EngineError, OSError) as error:
        raise ConfigError(f"sources.inference.engines_directory: {error}") from None
    names = {engine.name for engine in engines} | {"auto"}
    common = repr(inference.model_copy(update={"servers": ()})) + repr(engines)
    for at, server in enumerate(inference.servers):
        if server.engine not in names:
            known = ", ".join(sorted(names))
            raise ConfigError(
                f"sources.inference.servers.{at}.engine: {server.engine!r} is not known;"
                f" there are {known}"
            )
        if not server.enabled:
            continue
        timeout = server.timeout or inference.timeout
        yield Plan(
            f"inference:{server.name}", c.SERVING,
            Schedule(
                server.interval or inference.interval,
                timeout + 0.5,
                server.max_series or inference.max_series,
            ),
            common + repr(server),
            _server_maker(inference, at, engines, clock),
        )  # fmt: skip


def _server_maker(
    inference: InferenceSettings, at: int, engines: tuple[Engine, ...], clock: Clock
) -> Callable[[], Source]:
    server = inference.servers[at]

    def make() -> Source:
        fetcher = HttpFetcher(
            server.url,
            timeout=server.timeout or inference.timeout,
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
            limits=Limits(
                max_line_bytes=inference.max_line,
                max_series=inference.max_page_series,
                max_label_bytes=inference.max_label,
            ),
            clock=clock,
        )

    return make


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


@contextlib.contextmanager
def demo_plans() -> Iterator[Planner]:
    """Give plans for a made-up node: real readers over a fake fabric and fake servers.

    The host is the real one; the network and the inference servers are made up.
    """
    from exporter.demo import Demo

    with tempfile.TemporaryDirectory(prefix="flopwatch-demo-") as folder:
        demo = Demo(Path(folder))
        for server in demo.page_servers:
            threading.Thread(target=server.serve_forever, name="demo", daemon=True).start()
        servers = tuple(
            ServerSettings(
                name=name, url=url, engine=engine, allow_destructive_read=engine == "llamacpp"
            )
            for name, (engine, url) in demo.servers.items()
        )

        def plans(settings: Settings, clock: Clock) -> list[Plan]:
            inference = settings.sources.inference
            if taken := demo.servers.keys() & {server.name for server in inference.servers}:
                raise ConfigError(f"sources.inference.servers: the demo has a {min(taken)!r} too")
            inference = inference.model_copy(update={"servers": (*inference.servers, *servers)})
            sources = settings.sources.model_copy(update={"inference": inference})
            made = settings.model_copy(update={"root": str(demo.root), "sources": sources})
            real = [one for one in plan(settings, clock) if one.name == "host"]
            fake = [one for one in plan(made, clock) if one.name != "host"]
            driver = Plan(
                "demo", c.EXPORTER, Schedule(1.0, 2.0), "demo", lambda: _DemoDriver(demo, clock)
            )
            return [*real, *fake, driver]

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


def _tell_what_waits(old: Settings, new: Settings) -> None:
    """Name the keys whose new values only count at the next start."""
    waits = {
        "listen": old.listen != new.listen,
        "log_level": old.log_level != new.log_level,
        "gzip_level": old.gzip_level != new.gzip_level,
        "reload.http": old.reload.http != new.reload.http,
    }
    for key, changed in waits.items():
        if changed:
            log.warning("%s: the new value takes effect at the next start", key)


class App:
    """The daemon. `adjust` is applied to settings each time they are loaded (command line)."""

    def __init__(
        self,
        path: Path | None,
        clock: Clock | None = None,
        *,
        adjust: Callable[[Settings], Settings] = lambda settings: settings,
        plans: Planner = plan,
    ) -> None:
        self._path = path
        self._clock: Clock = clock or SystemClock()
        self._adjust = adjust
        self._plan = plans
        self._reloading = threading.Lock()
        self._lock = threading.Lock()
        self._running: dict[str, tuple[Plan, Runner]] = {}
        self._leaving: dict[str, Runner] = {}
        self._stopped = False
        self._digest = b""
        self._seen = b""
        self._loads = 0
        self._loaded = False
        self._loaded_at = 0.0
        self._scrapes = 0
        self._beat = self._clock.monotonic()
        self._born = self._beat
        self._settled = False
        self.settings = Settings()
        self.board = Board()
        self.exposition = Exposition(self.view, self._own, self._clock)

    def view(self) -> View:
        """Return the board as it is now; a reload changes the page as well."""
        view = self.board.view(self._clock.monotonic())
        return replace(view, token=(*view.token, self._loads))

    def start(self) -> None:
        """Load the configuration and start all sources. Raises `ConfigError`."""
        with self._reloading:
            self._digest = self._fingerprint()
            settings, plans, fresh = self._prepare()
            self.exposition = Exposition(
                self.view, self._own, self._clock, gzip_level=settings.gzip_level
            )
            self._apply(settings, plans, fresh)

    def reload(self) -> tuple[str, ...]:
        """Load the configuration again; return the problems that kept the old one in force."""
        with self._reloading:
            self._digest = self._seen = self._fingerprint()
            loaded = False
            try:
                settings, plans, fresh = self._prepare()
                _tell_what_waits(self.settings, settings)
                self._apply(settings, plans, fresh)
                loaded = True
            except ConfigError as error:
                for problem in error.problems:
                    log.warning("config kept: %s", problem)
                return error.problems
            finally:
                # Whatever was raised, the gauge says that the former configuration is in force.
                self._loaded = loaded
                self._loads += 1
            log.info("config loaded: %s", self._path)
            return ()

    def reload_if_changed(self) -> None:
        """Reload when the file's content differs from what was last loaded, or tried.

        Content, not times: a mounted ConfigMap swaps a symbolic link. It must have been the same at
        two looks: an editor that empties the file and then writes it is not believed half-way.
        """
        if self._path is None:
            return
        seen, self._seen = self._seen, self._fingerprint()
        if self._seen == seen and seen != self._digest:
            self.reload()

    def _fingerprint(self) -> bytes:
        if self._path is None:
            return b""
        try:
            return hashlib.sha256(self._path.read_bytes()).digest()
        except OSError as error:
            return str(error.errno).encode()

    def _prepare(self) -> tuple[Settings, list[Plan], dict[str, Source]]:
        """Do everything that can fail: read, check, plan, and build the sources that are new."""
        settings = self._adjust(load(self._path))
        try:
            plans = self._plan(settings, self._clock)
            return settings, plans, {one.name: build(one) for one in plans if self._is_new(one)}
        except ConfigError as error:
            prefix = "" if self._path is None else f"{self._path}: "
            raise ConfigError(*(prefix + problem for problem in error.problems)) from None

    def _is_new(self, one: Plan) -> bool:
        former = self._running.get(one.name)
        return former is None or former[0].fingerprint != one.fingerprint

    def _apply(self, settings: Settings, plans: list[Plan], fresh: Mapping[str, Source]) -> None:
        """Put the plans into force. Nothing here can fail."""
        with self._lock:
            if self._stopped:
                return
            wanted = {one.name for one in plans}
            self._leaving = {n: r for n, r in self._leaving.items() if not r.join(0)}
            for name in [name for name in self._running if name not in wanted or name in fresh]:
                runner = self._running.pop(name)[1]
                runner.stop()
                self._leaving[name] = runner
                if name not in wanted:
                    self.board.retire(name)
            for one in plans:
                if one.name in fresh:
                    self._run(one, fresh[one.name])
            self.settings = settings
            self._loaded, self._loaded_at = True, self._clock.time()

    def _run(self, one: Plan, source: Source) -> None:
        """Start reading a source, after whoever still reads the same thing."""
        former = self._leaving.pop(one.name, None)
        slot = self.board.enroll(
            one.name, one.group, one.schedule.deadline, one.schedule.max_age,
            self._clock.monotonic(), former=None if former is None else former.slot,
        )  # fmt: skip
        runner = Runner(source, one.schedule, slot, self._clock)
        self._running[one.name] = (one, runner)
        runner.start(former)

    def stop(self) -> bool:
        """Stop all sources; tell whether all of them ended in time."""
        with self._lock:
            self._stopped = True
            runners = [*self._leaving.values(), *(runner for _, runner in self._running.values())]
            self._running.clear()
        for runner in runners:
            runner.stop()
        until = self._clock.monotonic() + _STOP_LIMIT
        ended = [runner.join(max(0.0, until - self._clock.monotonic())) for runner in runners]
        return all(ended)

    def ready(self) -> bool:
        """Tell whether each source has produced something or passed its first deadline.

        Once true it stays true: a sick source must not take the node's metrics out of a Service.
        """
        self._settled = self._settled or self.board.settled(self._clock.monotonic())
        return self._settled

    def healthy(self) -> bool:
        """Tell whether our own housekeeping runs; no source has a say in it."""
        return self._clock.monotonic() - self._beat < _HEARTBEAT_LIMIT

    def beat(self) -> None:
        """Note that housekeeping runs."""
        self._beat = self._clock.monotonic()

    def scraped(self) -> None:
        """Note that the page was served."""
        self._scrapes += 1

    def _own(self) -> Iterable[Sample]:
        yield c.FLOPWATCH_BUILD_INFO(1, __version__, platform.python_version())
        yield c.FLOPWATCH_SCRAPES_TOTAL(self._scrapes)
        yield c.FLOPWATCH_RENDER_SECONDS_TOTAL(self.exposition.render_seconds)
        yield c.FLOPWATCH_CONFIG_LAST_RELOAD_SUCCESSFUL(int(self._loaded))
        yield c.FLOPWATCH_CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP_SECONDS(self._loaded_at)

    def status(self, *, detailed: bool) -> Mapping[str, Any]:
        """Return the status document; `detailed` only for callers on this machine."""
        series = self.exposition.series()
        about = {
            "version": __version__,
            "uptime_seconds": self._clock.monotonic() - self._born,
            "ready": self.ready(),
            "series": series,
            "config": {
                "file": str(self._path) if detailed and self._path is not None else None,
                "from_file": self._path is not None,
                "last_reload_successful": self._loaded,
                "loaded": self._loaded_at,
            },
        }
        return status_room.document(self.view(), about, detailed=detailed)
