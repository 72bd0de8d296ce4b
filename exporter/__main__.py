"""The command `flopwatch`: run, demo, once, check, docs.

Parses the command line, prints for people, and turns problems into exit codes: 0 fine, 1 failed,
2 the configuration or the command line is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from exporter import __version__
from exporter.config import ConfigError, ServerSettings, Settings, load

if TYPE_CHECKING:
    from exporter.app import Planner


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    options = _parser().parse_args(arguments)
    try:
        code = options.command(options)
    except ConfigError as error:
        for problem in error.problems:
            print(f"flopwatch: {problem}", file=sys.stderr)
        code = 2
    except BrokenPipeError:  # `flopwatch once | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flopwatch", description="Per-node observability for AI infrastructure."
    )
    parser.add_argument("--version", action="version", version=f"flopwatch {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run the daemon")
    run.set_defaults(command=_run)
    _common(run)
    run.add_argument("--listen", metavar="ADDRESS", help="for example :9810 or 127.0.0.1:9810")

    demo = commands.add_parser("demo", help="run the daemon on a made-up GPU node")
    demo.set_defaults(command=_demo)
    _common(demo)
    demo.add_argument("--listen", metavar="ADDRESS", help="for example :9810 or 127.0.0.1:9810")

    once = commands.add_parser("once", help="read everything once, print the page, exit")
    once.set_defaults(command=_once)
    _common(once)
    once.add_argument("--openmetrics", action="store_true", help="print OpenMetrics")
    once.add_argument(
        "--stats", action="store_true", help="print series, bytes and samples per second instead"
    )
    once.add_argument(
        "--nodes", type=int, default=100, metavar="N", help="with --stats: size of the fleet"
    )

    check = commands.add_parser("check", help="check a configuration file")
    check.set_defaults(command=_check)
    check.add_argument("file", type=Path, metavar="FILE")

    docs = commands.add_parser("docs", help="write the reference of all metrics")
    docs.set_defaults(command=_docs)
    docs.add_argument("file", type=Path, nargs="?", default=Path("docs/METRICS.md"))
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE",
        default=os.environ.get("FLOPWATCH_CONFIG") or None,
        help="configuration file (default: $FLOPWATCH_CONFIG; none: detect what is there)",
    )  # fmt: skip
    parser.add_argument(
        "--server", action="append", default=[], type=_server, metavar="[ENGINE=]URL",
        help="an inference server to read, for example http://127.0.0.1:8000/metrics; may be"
        " given several times. llamacpp=URL also permits reading llama.cpp, whose throughput"
        " gauges restart at each read",
    )  # fmt: skip
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"),
        default=os.environ.get("FLOPWATCH_LOG_LEVEL"),
    )  # fmt: skip


def _server(text: str) -> ServerSettings:
    """Return the settings of a server given on the command line."""
    engine, equals, url = text.partition("=")
    if not equals or "/" in engine:
        engine, url = "auto", text
    parts = urlsplit(url)
    if parts.path in {"", "/"}:
        url = f"{parts.scheme}://{parts.netloc}/metrics"
    try:
        return ServerSettings(
            name=parts.netloc.replace("[", "").replace("]", "") or "?",
            url=url,
            engine=engine,
            allow_destructive_read=engine == "llamacpp",
        )
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an address such as http://127.0.0.1:8000/metrics"
        ) from None


def _adjusted(options: argparse.Namespace, settings: Settings) -> Settings:
    """Return the settings with what the command line says on top."""
    changes: dict[str, object] = {}
    if getattr(options, "listen", None):
        changes["listen"] = options.listen
    if options.server:
        inference = settings.sources.inference
        names = [server.name for server in (*inference.servers, *options.server)]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"--server: two servers are named {name!r}")
        servers = (*inference.servers, *options.server)
        inference = inference.model_copy(update={"servers": servers, "enabled": True})
        changes["sources"] = settings.sources.model_copy(update={"inference": inference})
    return settings.model_copy(update=changes)


def _log_to_stderr(level: str) -> None:
    logging.basicConfig(
        level=level.upper(),
        format="%(asctime)s level=%(levelname)s logger=%(name)s %(message)s",
        stream=sys.stderr,
    )


def _run(options: argparse.Namespace) -> int:
    from exporter.app import plan

    return _leave(clean=_daemon(options, plan))


def _demo(options: argparse.Namespace) -> int:
    from exporter.app import demo_plans

    print("a made-up node: the fabric and the inference servers are not real")
    with demo_plans() as plans:
        clean = _daemon(options, plans)
    return _leave(clean=clean)


def _daemon(options: argparse.Namespace, plans: Planner) -> bool:
    """Run until told to end; tell whether every source ended in time."""
    from exporter.app import App
    from exporter.serve import listen, serve
    from exporter.status import summary

    # Until `serve` takes over: a reload must not end us, and an end must leave nothing behind.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    app = App(options.config, adjust=lambda settings: _adjusted(options, settings), plans=plans)
    # The port first: a second daemon must not read devices before it finds out that it is one.
    settings = _adjusted(options, load(options.config))
    _log_to_stderr(options.log_level or settings.log_level)
    with listen(settings.listen) as bound:
        host, port = bound.getsockname()[:2]
        app.start()

        def announce() -> None:
            shown = "127.0.0.1" if host in {"::", "0.0.0.0"} else host
            where = f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
            print(f"flopwatch {__version__} serves {where}/metrics (to look at: {where}/status)")
            for line in summary(app.status(detailed=True)):
                print(f"  {line}")
            if not any(source.group == "serving" for source in app.view().sources):
                print(
                    "  no inference server: give --server http://127.0.0.1:8000/metrics,"
                    " or list it under sources.inference.servers"
                )
            sys.stdout.flush()

        idle = asyncio.run(serve(app, bound, announce))
    return app.stop() and idle


def _end(*_: object) -> None:
    raise SystemExit(0)


def _leave(*, clean: bool) -> int:
    """Return the exit code; do not wait for threads that hang in a driver or on a dead disk."""
    if not clean:
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)
    return 0


def _once(options: argparse.Namespace) -> int:
    from exporter.app import App
    from exporter.status import summary

    _log_to_stderr(options.log_level or "error")
    app = App(options.config, adjust=lambda settings: _adjusted(options, settings))
    app.start()
    pause = threading.Event()
    while not app.ready():
        pause.wait(0.02)
    page = app.exposition.page((None, options.openmetrics, False))
    for line in summary(app.status(detailed=True)):
        print(line, file=sys.stderr)
    if options.stats:
        _print_stats(app.exposition.series(), page, options.nodes)
    else:
        sys.stdout.write(page.decode())
    return _leave(clean=app.stop())


def _print_stats(series: Mapping[str, int], page: bytes, nodes: int) -> None:
    """Print what this node's page costs, and what a fleet of such nodes would."""
    total = sum(series.values())
    for group, count in series.items():
        print(f"{group:<12} {count:>8} series")
    print(f"{'all':<12} {total:>8} series, {len(page)} bytes")
    for interval in (15, 30, 60):
        rate = total * nodes / interval
        print(f"{nodes} such nodes, scraped every {interval} s: {rate:,.0f} samples/s")


def _check(options: argparse.Namespace) -> int:
    from exporter.app import plan
    from exporter.clock import SystemClock

    settings = load(options.file)
    try:
        plans = plan(settings, SystemClock())
    except ConfigError as error:
        raise ConfigError(*(f"{options.file}: {line}" for line in error.problems)) from None
    names = ", ".join(one.name for one in plans)
    print(f"{options.file}: fine; sources: {names}")
    return 0


def _docs(options: argparse.Namespace) -> int:
    from exporter.exposition import reference

    options.file.write_text(reference(), encoding="utf-8")
    print(f"wrote {options.file}")
    return 0


if __name__ == "__main__":
    main()
