"""The daemon as a whole: starts, reloads and stops the sources that its settings ask for.

Everything that can fail is done before anything is changed: a configuration is first turned into
plans (see `plans`), and only then into running sources, so that a reload either happens whole or
not at all. A source whose section did not change is left alone.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter import __version__
from exporter import catalogue as c
from exporter import status as status_room
from exporter.board import Board
from exporter.clock import Clock, SystemClock
from exporter.config import ConfigError, Settings, load
from exporter.exposition import Exposition
from exporter.history import INTERVAL, POINTS
from exporter.notices import NoticeBoard
from exporter.nvml.inventory import has_gpus
from exporter.owners import Owned, sole_owners
from exporter.plans import Estate, Plan, Planner, build, plan
from exporter.redaction import redacted_document
from exporter.runner import Runner
from exporter.samples import Releasable, Sample, Source, View
from exporter.training.ledger import TrainingLedger
from exporter.training.reception import Reception

log = logging.getLogger(__name__)

_HEARTBEAT_LIMIT = 30.0
_STOP_LIMIT = 3.0
_LATER_LIMIT = 0.8
"""Of these, the seconds for those of each later turn."""


def _tell_what_waits(old: Settings, new: Settings) -> None:
    """Name the keys whose new values only count at the next start."""
    waits = {
        "listen": old.listen != new.listen,
        "log_level": old.log_level != new.log_level,
        "gzip_level": old.gzip_level != new.gzip_level,
        "reload.http": old.reload.http != new.reload.http,
        "push.socket": old.push.socket != new.push.socket,
        "push.socket_group": old.push.socket_group != new.push.socket_group,
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
        self._planned = 0
        self._released_until = 0.0
        self._beat = self._clock.monotonic()
        self._born = self._beat
        self._settled = False
        self._others: tuple[Callable[[], Iterable[Sample]], ...] = ()
        self.settings = Settings()
        self.board = Board()
        self._estate = Estate(self._clock, self.board)
        self.exposition = Exposition(self.view, self._own, self._clock)

    @property
    def reception(self) -> Reception:
        """What takes the pushes of jobs."""
        return self._estate.reception

    @property
    def training(self) -> TrainingLedger:
        """What readers tell of training runs."""
        return self._estate.training

    @property
    def clock(self) -> Clock:
        """The daemon's clock."""
        return self._clock

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
                self.view, self._own, self._clock,
                gzip_level=settings.gzip_level, owners=self._owners,
            )  # fmt: skip
            self._apply(settings, plans, fresh)
            self._loaded, self._loaded_at = True, self._clock.time()

    def reload(self) -> tuple[str, ...]:
        """Load the configuration again; return the problems that kept the old one in force."""
        with self._reloading:
            self._digest = self._seen = self._fingerprint()
            loaded = False
            try:
                settings, plans, fresh = self._prepare()
                _tell_what_waits(self.settings, settings)
                self._apply(settings, plans, fresh)
                self._loaded_at = self._clock.time()
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
            self._look(settings)
            return (settings, *self._planned_for(settings))
        except ConfigError as error:
            prefix = "" if self._path is None else f"{self._path}: "
            raise ConfigError(*(prefix + problem for problem in error.problems)) from None

    def _look(self, settings: Settings) -> bool:
        """Look whether the machine has GPUs; tell if that is news. What was there once stays."""
        if self._estate.gpus or not has_gpus(Path(settings.root)):
            return False
        self._estate = replace(self._estate, gpus=True)
        return True

    def notice_gpus(self) -> None:
        """Start the GPU sources if a driver or a GPU has appeared since the start."""
        with self._reloading:
            if not self._look(self.settings):
                return
            log.info("a GPU or its driver has appeared")
            self._apply(self.settings, *self._planned_for(self.settings))

    def servers_changed(self) -> bool:
        """Tell whether discovery has found other servers than those that are read."""
        return self._planned != self._estate.found.version

    def notice_servers(self) -> None:
        """Start and stop reading servers as discovery has found them; others go on undisturbed."""
        with self._reloading:
            if not self.servers_changed():
                return
            try:
                self._apply(self.settings, *self._planned_for(self.settings))
            except ConfigError as error:
                # The engine mappings are read anew each time and may be broken by now.
                self._planned = self._estate.found.version
                for problem in error.problems:
                    log.warning("servers kept: %s", problem)

    def _planned_for(self, settings: Settings) -> tuple[list[Plan], dict[str, Source]]:
        """Return what is wanted now, and the sources of it that are new. Raises `ConfigError`."""
        # The version before the servers: one that is found meanwhile is noticed next time.
        version = self._estate.found.version
        plans = self._plan(settings, self._estate)
        fresh = {one.name: build(one) for one in plans if self._is_new(one)}
        self._planned = version
        return plans, fresh

    def release(self, seconds: float | None = None) -> Mapping[str, bool]:
        """Let go of all drivers, for so many seconds or as long as the settings say.

        Returns for each source that has a driver whether its handles are closed: a GPU can be
        reset, a driver unloaded, a MIG layout changed (dcgm-exporter 706). Those that a reload has
        replaced or taken away are asked as well, as long as they have not ended.
        """
        with self._lock:
            seconds = self.settings.release if seconds is None else seconds
            self._released_until = self._clock.monotonic() + seconds
            runners = [runner for runner in self._leaving.values() if not runner.join(0)]
            runners += [runner for _, runner in self._running.values()]
            sources = [source for runner in runners for source in runner.sources()]
        released: dict[str, bool] = {}
        for source in sources:
            if isinstance(source, Releasable):
                closed = source.release(seconds)
                released[source.name] = closed and released.get(source.name, True)
        for name, closed in released.items():
            log.info("source=%s %s", name, "released" if closed else "hangs, cannot be released")
        return released

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

    def _run(self, one: Plan, source: Source) -> None:
        """Start reading a source, after whoever still reads the same thing."""
        former = self._leaving.pop(one.name, None)
        slot = self.board.enroll(
            one.name, one.group, one.schedule.deadline, one.schedule.max_age,
            self._clock.monotonic(), former=None if former is None else former.slot,
        )  # fmt: skip
        left = self._released_until - self._clock.monotonic()
        if left > 0 and isinstance(source, Releasable):
            # A reload, or the start, must not open what was asked to be closed.
            source.release(left)
            log.info("source=%s stays released for another %.0f s", one.name, left)
        runner = Runner(source, one.schedule, slot, self._clock)
        self._running[one.name] = (one, runner)
        runner.start(former)

    def stop(self) -> bool:
        """Stop all sources; tell whether all of them ended in time."""
        with self._lock:
            self._stopped = True
            self._estate.ending.set()
            turns: dict[int, list[Runner]] = {0: list(self._leaving.values())}
            for one, runner in self._running.values():
                turns.setdefault(one.turn, []).append(runner)
            self._running.clear()
        until = self._clock.monotonic() + _STOP_LIMIT - _LATER_LIMIT * (len(turns) - 1)
        ended = True
        for turn in sorted(turns):
            ended = self._end(turns[turn], until) and ended
            until += _LATER_LIMIT
        return ended

    def _end(self, runners: Iterable[Runner], until: float) -> bool:
        """Stop runners; tell whether all of them ended in time."""
        runners = list(runners)
        for runner in runners:
            runner.stop()
        ended = [runner.join(max(0.0, until - self._clock.monotonic())) for runner in runners]
        return all(ended)

    def ready(self) -> bool:
        """Tell whether each source has produced something or passed its first deadline.

        Once true it stays true: a sick source must not take the node's metrics out of a Service.
        """
        self._settled = self._settled or self.board.settled(self._clock.monotonic())
        return self._settled

    def settled(self) -> bool:
        """Tell the same of the sources that there are now, those of servers just found included."""
        return not self.servers_changed() and self.board.settled(self._clock.monotonic())

    def healthy(self) -> bool:
        """Tell whether our own housekeeping runs; no source has a say in it."""
        return self._clock.monotonic() - self._beat < _HEARTBEAT_LIMIT

    def beat(self) -> None:
        """Note that housekeeping runs."""
        self._beat = self._clock.monotonic()

    def scraped(self) -> None:
        """Note that the page was served."""
        self._scrapes += 1

    def tell_also(self, samples: Callable[[], Iterable[Sample]]) -> None:
        """Have others tell of themselves beside the daemon's own samples."""
        self._others = (*self._others, samples)

    def _own(self) -> Iterable[Sample]:
        for samples in self._others:
            yield from samples()
        yield c.FLOPWATCH_BUILD_INFO(1, __version__, platform.python_version())
        yield c.FLOPWATCH_SCRAPES_TOTAL(self._scrapes)
        yield c.FLOPWATCH_RENDER_SECONDS_TOTAL(self.exposition.render_seconds)
        for name, (_, runner) in self._running.copy().items():
            if runner.releasable:
                yield c.FLOPWATCH_SOURCE_RELEASED(int(runner.released), name)
        yield c.FLOPWATCH_CONFIG_LAST_RELOAD_SUCCESSFUL(int(self._loaded))
        yield c.FLOPWATCH_CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP_SECONDS(self._loaded_at)

    def _owners(self, view: View) -> Owned:
        """Return whose labels are to stand on series of GPUs."""
        wanted = self.settings.sources.kubernetes.labels_on_gpu_series
        return sole_owners(view) if wanted else {}

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
        document = status_room.document(
            self.view(), about, self.notices(detailed=detailed), self._estate.watch,
            status_room.Moment(self._clock.monotonic(), self._clock.time()), detailed=detailed,
        )  # fmt: skip
        story = self._estate.story.tell()
        return document if story is None else {**document, "story": story}

    def history(self, since: int | None) -> Mapping[str, Any]:
        """Return the last hour of the status page's series, or what came after a point of it."""
        first, kept = self._estate.history.since(since)
        return {
            "interval_seconds": INTERVAL,
            "points": POINTS,
            "first": first,
            "newest": self._estate.history.beat,
            "series": [one._asdict() for one in kept],
        }

    def notices(self, *, detailed: bool) -> Mapping[str, Any]:
        """Return what the cloud has announced; nothing where nobody asks it (any more)."""
        board = self._estate.notices if "spot" in self._running else NoticeBoard()
        document = board.document(self._clock.time(), detailed=detailed)
        return dict(redacted_document(document))
