"""Serves a running daemon over HTTP: the socket, the server, signals, and housekeeping.

The web room decides what is answered; this one keeps it being answered, and ends in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from exporter import catalogue as c
from exporter import debugging
from exporter.config import ConfigError, address, plain
from exporter.connection import Connection, Crowd
from exporter.foreign import COMPAT
from exporter.intake import Decode, Intake
from exporter.samples import reason_of
from exporter.training.reception import Trouble
from exporter.unixsocket import listening
from exporter.web import PUSHES, Services, create_app
from exporter.websecurity import WebSecurity

if TYPE_CHECKING:
    from exporter.app import App
    from exporter.formats.otlp import Memory
    from exporter.training.records import Record

log = logging.getLogger(__name__)

_SOCKET = "/run/flopwatch/push.sock"
"""Where pushes are taken if the directory is there and ours to write to (`push.socket: auto`)."""
_LAST_RESORT = 4.5
_LOOK = 15
_SWITCH_INTERVAL = 0.0001
_ANNOUNCE_AT = 40
"""Tenths of a second after which the announcement is made, whatever is still missing."""


def listen(where: str) -> socket.socket:
    """Return a bound socket for a `listen` setting.

    Raises `ConfigError` when the address cannot be had.
    """
    host, port = address(where)
    try:
        bound = _bind(host, port)
    except OSError as error:
        # create_server adds the address in brackets to what the system says
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise ConfigError(f"listen: {where}: {reason}") from None
    # Connections inherit it. asyncio sets it only on sockets made with an explicit protocol, and
    # without it a short page waits 40 ms for the acknowledgement of its own header.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


def _bind(host: str, port: int) -> socket.socket:
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=128)
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
            # IPv6 is compiled in and switched off: the plain address below.
    return socket.create_server(("", port), backlog=128)


_GARBAGE = 20_000
"""How many objects more make the collector look for cycles; eight servers bring as many in 8 s."""


class _Server(uvicorn.Server):
    """uvicorn without its ten wake-ups a second and with signals left to us."""

    def __init__(self, config: uvicorn.Config, tick: Callable[[], float]) -> None:
        super().__init__(config)
        self._tick = tick
        self._pause: asyncio.Future[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while not self.should_exit:
            await self.on_tick(0)  # renews the Date header
            # wait_for makes a task and an exception of it each time: half of the idle daemon's CPU.
            self._pause = loop.create_future()
            timer = loop.call_later(self._tick(), self._wake)
            await self._pause
            timer.cancel()

    def _wake(self) -> None:
        if self._pause is not None and not self._pause.done():
            self._pause.set_result(None)

    def finish(self) -> None:
        self.should_exit = True
        self._wake()


async def serve(
    app: App,
    bound: socket.socket,
    announce: Callable[[], None],
    *,
    complete: Callable[[], bool] = lambda: True,
    early: Collection[int] = (),
) -> bool:
    """Serve until SIGTERM or SIGINT; SIGHUP reloads, SIGUSR1 lets go of the drivers.

    `announce` is called once, when the daemon is ready and `complete` says that there is something
    to tell, or else after four seconds. `early` are the signals that came before this was called.

    Returns whether all chores have ended: a reload may hang on a dead disk.
    """
    # A thread that computes (a source with thousands of series) may keep the interpreter for this
    # long before a scrape gets its turn; the default of 5 ms is most of a scrape's p99.
    sys.setswitchinterval(_SWITCH_INTERVAL)
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(2, thread_name_prefix="web")
    # Reloading has a thread of its own: a configuration on a dead disk must not stop the page.
    # Nor must it stop a release, for which an operator waits.
    chores = ThreadPoolExecutor(1, thread_name_prefix="chores")
    releases = ThreadPoolExecutor(1, thread_name_prefix="releases")
    pushes = ThreadPoolExecutor(1, thread_name_prefix="push")
    passwords = ThreadPoolExecutor(1, thread_name_prefix="passwords", initializer=_yield_to_others)
    security = WebSecurity(lambda: app.settings.web, passwords, app.clock.monotonic)
    app.tell_also(security.samples)
    intake = Intake(
        ledger=app.training, reception=app.reception, rules=lambda: app.settings.push,
        now=app.clock.monotonic, executor=pushes, decoders=_otlp_decoders(app),
    )  # fmt: skip
    house = _House(app, chores, releases, announce, complete, look=security.look)
    front = create_app(
        Services(
            groups=(*c.GROUPS, COMPAT),
            at_once=app.exposition.at_once,
            page=app.exposition.page,
            healthy=app.healthy,
            ready=app.ready,
            status=lambda detailed: app.status(detailed=detailed),
            history=app.history,
            notices=lambda detailed: app.notices(detailed=detailed),
            reload=app.reload if app.settings.reload.http else None,
            release=app.release,
            remote_control=lambda: app.settings.web.remote_control,
            scraped=app.scraped,
            push=intake,
            inside=lambda: debugging.document(plain(app.settings)),
            executor=executor,
            chores=chores,
            releases=releases,
        )
    )
    crowd = Crowd()

    def connection(**options: Any) -> asyncio.Protocol:
        return security.door(functools.partial(Connection, crowd=crowd, **options))

    protocol: Any = connection
    server = _Server(
        uvicorn.Config(
            security.protect(front, PUSHES),
            loop="asyncio", http=protocol, ws="none", lifespan="off",
            access_log=False, log_config=None, log_level="error", server_header=False,
            timeout_keep_alive=75, timeout_graceful_shutdown=1,
        ),
        house.tick,
    )  # fmt: skip

    def end() -> None:
        # Whatever hangs, the process is gone in time: Kubernetes and systemd count the seconds.
        last_resort = threading.Timer(_LAST_RESORT, os._exit, (1,))
        last_resort.daemon = True
        last_resort.start()
        server.finish()

    loop.add_signal_handler(signal.SIGTERM, end)
    loop.add_signal_handler(signal.SIGINT, end)
    for number, act in ((signal.SIGHUP, house.reload), (signal.SIGUSR1, house.release)):
        loop.add_signal_handler(number, act)
        if number in early:
            act()
    try:
        with _push_socket(app) as sockets:
            await server.serve(sockets=[bound, *sockets])
    finally:
        for pool in (executor, chores, releases, pushes, passwords):
            pool.shutdown(wait=False, cancel_futures=True)
    return not house.busy()


def _yield_to_others() -> None:
    """Give this thread the lowest priority: guessing passwords must not disturb sampling."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


@contextlib.contextmanager
def _push_socket(app: App) -> Iterator[list[socket.socket]]:
    """Lend the unix socket for pushes, if there is to be one; what is wrong with it is noted."""
    settings = app.settings.push
    where = Path(_SOCKET if settings.socket == "auto" else settings.socket or "")
    wanted = bool(settings.enabled and settings.socket)
    if settings.socket == "auto":
        wanted = wanted and os.access(where.parent, os.W_OK | os.X_OK)
    with contextlib.ExitStack() as stack:
        sockets: list[socket.socket] = []
        if wanted:
            try:
                sockets.append(stack.enter_context(listening(where, settings.socket_group)))
                log.info("pushes are taken at %s", where)
            except OSError as error:
                detail = f"push.socket: {where}: {error.strerror or error}"
                log.warning("%s", detail)
                trouble = Trouble(app.clock.monotonic(), reason_of(error), detail)
                app.reception.note("socket", trouble)
        yield sockets


def _otlp_decoders(app: App) -> Mapping[str, Decode]:
    """Return what reads OTLP metrics, by content type; it remembers what was told before."""
    from exporter.formats.otlp import Memory, decode_json, decode_protobuf

    memory = Memory()  # one thread reads all pushes

    def decode(read: Callable[[bytes, Memory], list[Record]], body: bytes) -> list[Record]:
        records = read(body, memory)
        if memory.nonsense:
            detail = f"OTLP: {'; '.join(memory.nonsense[:3])}"
            app.training.refuse("otlp", "nonsense", len(memory.nonsense))
            app.reception.note("records", Trouble(app.clock.monotonic(), "malformed", detail))
            memory.nonsense.clear()
        return records

    return {
        "application/json": functools.partial(decode, decode_json),
        "application/x-protobuf": functools.partial(decode, decode_protobuf),
    }


class _House:
    """Housekeeping, once a second: the heartbeat, the look at what changed, the announcement."""

    def __init__(
        self,
        app: App,
        chores: ThreadPoolExecutor,
        releases: ThreadPoolExecutor,
        announce: Callable[[], None],
        complete: Callable[[], bool],
        *,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self._app = app
        self._look = look
        self._looking: Future[object] | None = None
        self._chores = chores
        self._releases = releases
        self._announce: Callable[[], None] | None = announce
        self._complete = complete
        self._waited = 0
        self._ticks = 0
        self._age = 0
        self._under_way: Future[object] | None = None
        self._again = False
        self._releasing: Future[object] | None = None
        self._release_again = False

    def tick(self) -> float:
        """Do what is due; return the seconds until the next tick."""
        app = self._app
        app.beat()
        if self._release_again and not _lasts(self._releasing):
            self.release()
        if app.servers_changed() and not _lasts(self._under_way):
            self._under_way = self._chores.submit(app.notice_servers)
        if app.settings.web.config_file is not None and not _lasts(self._looking):
            self._looking = self._chores.submit(self._look)
        if not self._has_announced():
            return 0.1
        self._ticks += 1
        self._age += 1
        watch = app.settings.reload.watch
        if _lasts(self._under_way):
            return 1.0
        if self._again:
            self.reload()
        elif watch and self._ticks >= watch:
            self._ticks = 0
            self._under_way = self._chores.submit(app.reload_if_changed)
        elif self._age % _LOOK == 0:
            self._under_way = self._chores.submit(app.notice_gpus)
        return 1.0

    def _has_announced(self) -> bool:
        """Announce if it is time to; tell whether it has been done, now or before.

        Being ready does not wait for it: averages over time need two readings, and a Service none.
        """
        if self._announce is None:
            return True
        self._waited += 1
        if self._waited <= _ANNOUNCE_AT and not (self._app.ready() and self._complete()):
            return False
        announce, self._announce = self._announce, None
        # A full collection would stop everything for 28 ms; what lives now lives for good. Readings
        # are thousands of small tuples without cycles: looking for some in them is wasted.
        gc.collect()
        gc.freeze()
        gc.set_threshold(_GARBAGE)
        announce()
        return True

    def release(self) -> None:
        """Let go of the drivers now, or once more after the release that is under way."""
        self._release_again = _lasts(self._releasing)
        if not self._release_again:
            self._releasing = self._releases.submit(self._app.release)

    def reload(self) -> None:
        """Reload now, or once after the reload that is under way, however often it is asked."""
        self._again = _lasts(self._under_way)
        if not self._again:
            self._under_way = self._chores.submit(self._app.reload)

    def busy(self) -> bool:
        """Tell whether a reload or a release is under way."""
        return _lasts(self._under_way) or _lasts(self._releasing)


def _lasts(work: Future[object] | None) -> bool:
    return work is not None and not work.done()
