"""Serves a running daemon over HTTP: the socket, the server, signals, and housekeeping.

The web room decides what is answered; this one keeps it being answered, and ends in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import uvicorn

from exporter import catalogue as c
from exporter.config import ConfigError, address
from exporter.web import Services, create_app

if TYPE_CHECKING:
    from exporter.app import App

log = logging.getLogger(__name__)

_LAST_RESORT = 4.5
_SWITCH_INTERVAL = 0.0001


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


class _Server(uvicorn.Server):
    """uvicorn without its ten wake-ups a second and with signals left to us."""

    def __init__(self, config: uvicorn.Config, tick: Callable[[], None]) -> None:
        super().__init__(config)
        self._tick = tick
        self._stopping = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        while not self.should_exit:
            await self.on_tick(0)  # renews the Date header
            self._tick()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 1.0)

    def finish(self) -> None:
        self.should_exit = True
        self._stopping.set()


async def serve(app: App, bound: socket.socket, announce: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT; SIGHUP reloads. `announce` is called once, when ready."""
    # A thread that computes (a source with thousands of series) may keep the interpreter for this
    # long before a scrape gets its turn; the default of 5 ms is most of a scrape's p99.
    sys.setswitchinterval(_SWITCH_INTERVAL)
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(2, thread_name_prefix="web")
    house = _House(app, executor, announce)
    front = create_app(
        Services(
            groups=c.GROUPS,
            cached=app.exposition.cached,
            page=app.exposition.page,
            healthy=app.healthy,
            ready=app.ready,
            status=lambda detailed: app.status(detailed=detailed),
            reload=app.reload if app.settings.reload.http else None,
            scraped=app.scraped,
            executor=executor,
        )
    )
    server = _Server(
        uvicorn.Config(
            front, loop="asyncio", http="httptools", ws="none", lifespan="off",
            access_log=False, log_config=None, log_level="warning", server_header=False,
            limit_concurrency=256, timeout_keep_alive=75, timeout_graceful_shutdown=1,
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
    loop.add_signal_handler(signal.SIGHUP, house.reload)
    try:
        await server.serve(sockets=[bound])
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


class _House:
    """Housekeeping, once a second: the heartbeat, the look at the file, the announcement."""

    def __init__(
        self, app: App, executor: ThreadPoolExecutor, announce: Callable[[], None]
    ) -> None:
        self._app = app
        self._executor = executor
        self._announce: Callable[[], None] | None = announce
        self._ticks = 0
        self._looking = False

    def tick(self) -> None:
        app = self._app
        app.beat()
        if self._announce is not None and app.ready():
            announce, self._announce = self._announce, None
            # A full collection would stop everything for 28 ms; what lives now lives for good.
            gc.collect()
            gc.freeze()
            announce()
        self._ticks += 1
        watch = app.settings.reload.watch
        if watch and self._ticks >= watch and not self._looking:
            self._ticks = 0
            self._submit(app.reload_if_changed)

    def reload(self) -> None:
        self._submit(self._app.reload)

    def _submit(self, task: Callable[[], object]) -> None:
        self._looking = True
        self._executor.submit(task).add_done_callback(self._done)

    def _done(self, future: Future[object]) -> None:
        self._looking = False
        if not future.cancelled() and (error := future.exception()) is not None:
            log.error("reload failed: %r", error)
