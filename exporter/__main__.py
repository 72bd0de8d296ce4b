"""The command `flopwatch`: run, demo, once, check, roofline, docs, and those of `commands`.

Parses the command line, prints for people, and turns problems into exit codes: 0 fine, 1 failed,
2 the configuration or the command line is wrong. Loads nothing heavy before a command needs it: a
daemon must heed signals from its first milliseconds on.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from exporter import __version__

if TYPE_CHECKING:
    import logging
    import socket

    from exporter.commands.parser import Handler
    from exporter.config import ServerSettings, Settings
    from exporter.plans import Planner
    from exporter.samples import View

_ONCE_PATIENCE = 60
"""Tenths of a second that `once` waits for averages."""


class _FailedError(Exception):
    """The command has failed; the text is the line that says why."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    early: set[int] = set()
    if words[:1] in (["run"], ["demo"]):
        # Neither a reload nor a release may end a daemon that has only begun: `serve` does later
        # what was asked for early.
        for number in (signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, lambda number, _: early.add(number))
        # SIGUSR2: where all threads are, also when nothing answers any more.
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # standard error is closed
            faulthandler.register(signal.SIGUSR2, all_threads=True)
    options = _parser().parse_args(words, argparse.Namespace(early=early))
    from exporter.config import ConfigError, printable
    from exporter.redaction import redacted

    try:
        code = options.command(options)
    except ConfigError as error:
        for problem in error.problems:
            print(f"flopwatch: {problem}", file=sys.stderr)
        code = 2
    except _FailedError as error:
        print(f"flopwatch: {printable(redacted(str(error)))}", file=sys.stderr)
        code = 1
    sys.exit(code)


def _print(*texts: str) -> None:
    """Print lines for people; what the terminal should not or cannot show is escaped.

    Raises `_FailedError`.
    """
    from exporter.config import printable

    lines = (printable(line) for text in texts for line in text.split("\n"))
    encoding = "utf-8" if sys.stdout is None else sys.stdout.encoding
    _write("".join(f"{line}\n" for line in lines).encode(encoding, "backslashreplace"))


def _write(data: bytes) -> None:
    """Write to standard output, all of it, now.

    A reader that has seen enough (`| head`) and an output that was closed before we began are no
    failure. Raises `_FailedError` for one that is full.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except (OSError, ValueError) as error:
        # The rest lies in a buffer, which Python would try to write once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            reason = getattr(error, "strerror", None) or error
            raise _FailedError(f"standard output: {reason}") from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flopwatch", description="Per-node observability for AI infrastructure."
    )
    parser.add_argument("--version", action="version", version=f"flopwatch {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run the daemon")
    run.set_defaults(command=_run)
    _common(run)
    _serving(run)

    demo = commands.add_parser("demo", help="run the daemon on a made-up GPU node")
    demo.set_defaults(command=_demo)
    _common(demo)
    _serving(demo)
    demo.add_argument(
        "--scenario", metavar="NAME", default="story",
        help="what it goes through: story (faults on a timetable, told as they come), default,"
        " sound, data-stall, late-ranks, clock-cap, straggler, pause-storm, checkpoints,"
        " spot-notice, case-study (default: %(default)s)",
    )  # fmt: skip

    once = commands.add_parser("once", help="read everything once, print the page, exit")
    once.set_defaults(command=_once)
    _common(once)
    once.add_argument("--openmetrics", action="store_true", help="print OpenMetrics")
    once.add_argument(
        "--stats", action="store_true", help="print series, bytes and samples per second instead"
    )
    once.add_argument(
        "--nodes", type=_size, default=100, metavar="N", help="with --stats: size of the fleet"
    )

    check = commands.add_parser("check", help="check a configuration file")
    check.set_defaults(command=_check)
    check.add_argument("file", type=Path, metavar="FILE")

    _roofline_parser(commands.add_parser(
        "roofline", help="tell what holds up the operations of a layer, or one product"
    ))  # fmt: skip

    docs = commands.add_parser("docs", help="write the reference of all metrics")
    docs.set_defaults(command=_docs)
    docs.add_argument("file", type=Path, nargs="?", default=Path("docs/METRICS.md"))

    from exporter.commands.parser import add_commands
    from exporter.commands.top_parser import add_top
    from exporter.commands.topology_parser import add_topology

    add_commands(commands, _told)
    add_topology(commands, _told)
    add_top(commands, _told)
    return parser


def _told(handler: Handler) -> Callable[[argparse.Namespace], int]:
    """Return a command that prints the lines of a handler, and returns its exit code."""

    def command(options: argparse.Namespace) -> int:
        lines, code = handler(options)
        _print(*lines)
        return code

    return command


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE",
        default=os.environ.get("FLOPWATCH_CONFIG") or None,
        help="configuration file (default: $FLOPWATCH_CONFIG; none: detect what is there)",
    )  # fmt: skip
    parser.add_argument(
        "--server", action="append", default=[], metavar="[ENGINE=]URL",
        help="an inference server to read, for example http://127.0.0.1:8000/metrics; may be"
        " given several times. llamacpp=URL also permits reading llama.cpp, whose throughput"
        " gauges restart at each read",
    )  # fmt: skip
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"),
        help="default: $FLOPWATCH_LOG_LEVEL, else the file's log_level",
    )  # fmt: skip


def _serving(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--listen", metavar="ADDRESS", help="for example :9810 or 127.0.0.1:9810")
    parser.add_argument(
        "--web.config.file", dest="web_config_file", metavar="FILE",
        help="TLS and users, in the format of Prometheus' exporters",
    )  # fmt: skip


def _roofline_parser(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=_roofline)
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE",
        default=os.environ.get("FLOPWATCH_CONFIG") or None,
        help="configuration file, for its `accelerators` (default: $FLOPWATCH_CONFIG)",
    )  # fmt: skip
    parser.add_argument(
        "--gpu", default="h100-sxm5-80gb", metavar="NAME",
        help="a product by the driver's name, id or title, or an entry of `accelerators`"
        " (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--precision", default="bf16", help="of the peak (default: %(default)s)")
    for name, told in (("m", "rows"), ("n", "columns"), ("k", "length of the sums")):
        parser.add_argument(f"--{name}", type=_size, help=f"one product of matrices: {told}")
    for name, size in (("batch", 1), ("sequence", 4096), ("hidden", 4096), ("heads", 32)):
        parser.add_argument(
            f"--{name}", type=_size, default=size, help="of the layer (default: %(default)s)"
        )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _size(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 10 and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError("a whole number from 1 to 999999999 is wanted")


def _server(text: str) -> ServerSettings:
    """Return the settings of a server given on the command line. Raises `ConfigError`."""
    from urllib.parse import urlsplit

    from exporter.config import ConfigError, ServerSettings

    engine, equals, url = text.partition("=")
    if not equals or "/" in engine:
        engine, url = "auto", text
    try:
        parts = urlsplit(url)
        if parts.path in {"", "/"}:
            url = f"{parts.scheme}://{parts.netloc}/metrics"
        return ServerSettings(
            name=parts.netloc.replace("[", "").replace("]", "") or "?",
            url=url,
            engine=engine,
            allow_destructive_read=engine == "llamacpp",
        )
    except ValueError:
        raise ConfigError(
            f"--server: {text!r} is not an address such as http://127.0.0.1:8000/metrics"
        ) from None


def _adjusted(options: argparse.Namespace, settings: Settings) -> Settings:
    """Return the settings with what the command line says on top. Raises `ConfigError`.

    `model_copy` checks nothing, so each value has gone through its own model before.
    """
    from exporter.config import ConfigError, setting

    changes: dict[str, object] = {}
    if getattr(options, "listen", None) is not None:
        changes["listen"] = setting("listen", options.listen, "--listen")
    if getattr(options, "web_config_file", None):  # others' units pass it empty
        web = settings.web.model_dump() | {"config_file": options.web_config_file}
        changes["web"] = setting("web", web, "--web.config.file")
    if options.server:
        inference = settings.sources.inference
        servers = (*inference.servers, *map(_server, options.server))
        names = [server.name for server in servers]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"--server: two servers are named {name!r}")
        inference = inference.model_copy(update={"servers": servers, "enabled": True})
        changes["sources"] = settings.sources.model_copy(update={"inference": inference})
    return settings.model_copy(update=changes)


def _log_level(options: argparse.Namespace) -> str | None:
    """Return the level that the command line wants, else the environment. Raises `ConfigError`."""
    from exporter.config import setting

    if options.log_level is not None:
        return str(options.log_level)
    level = os.environ.get("FLOPWATCH_LOG_LEVEL") or None
    return None if level is None else str(setting("log_level", level, "FLOPWATCH_LOG_LEVEL"))


def log_formatter() -> logging.Formatter:
    """Return what writes lines of the log; no secret gets into one."""
    import logging

    from exporter.redaction import redacted

    class Redacting(logging.Formatter):
        """Takes secrets out of a whole record, its traceback included."""

        def format(self, record: logging.LogRecord) -> str:
            return redacted(super().format(record))

    return Redacting("%(asctime)s level=%(levelname)s logger=%(name)s %(message)s")


def _log_to_stderr(level: str) -> None:
    import logging

    from exporter.debugging import LogTail

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(log_formatter())
    tail = LogTail(log_formatter())
    logging.basicConfig(level=level.upper(), handlers=[handler, tail])


def _run(options: argparse.Namespace) -> int:
    from exporter.plans import plan

    return _leave(clean=_daemon(options, plan))


def _demo(options: argparse.Namespace) -> int:
    from exporter.commands.story import Narrator
    from exporter.config import ConfigError
    from exporter.demo import SCENARIOS
    from exporter.plans.demo import demo_plans

    if options.scenario not in SCENARIOS:
        known = ", ".join(SCENARIOS)
        raise ConfigError(f"--scenario: {options.scenario!r} is not known; there are {known}")
    _courtesy("a made-up node: GPUs, fabric, inference servers and training jobs are not real")
    told = Narrator(_courtesy)
    with demo_plans(options.scenario, narrate=told.narrate) as plans:
        clean = _daemon(options, plans, announced=told.begin)
    return _leave(clean=clean)


def _courtesy(*texts: str) -> None:
    """Print what a daemon has to say, where it can: `run | true` and `run >/dev/full` go on."""
    import logging

    try:
        _print(*texts)
    except _FailedError as error:
        logging.getLogger("exporter").warning("not announced: %s", error)


def _bound(options: argparse.Namespace, settings: Settings) -> socket.socket:
    """Return the daemon's socket; a problem names what asked for the address."""
    from exporter.config import ConfigError
    from exporter.serve import listen

    try:
        return listen(settings.listen)
    except ConfigError as error:
        origin = "listen" if options.config is None else f"{options.config}: listen"
        if options.listen is not None:
            origin = "--listen"
        problems = (problem.removeprefix("listen: ") for problem in error.problems)
        raise ConfigError(*(f"{origin}: {problem}" for problem in problems)) from None


def _daemon(
    options: argparse.Namespace, plans: Planner, announced: Callable[[], None] = lambda: None
) -> bool:
    """Run until told to end; tell whether every source ended in time.

    `announced` is called after what was found has been printed.
    """
    import asyncio

    from exporter.app import App
    from exporter.config import load
    from exporter.serve import serve
    from exporter.status import summary
    from exporter.websecurity import check

    # Until `serve` takes over: an end must leave nothing behind.
    signal.signal(signal.SIGTERM, _end)
    level = _log_level(options)
    app = App(options.config, adjust=lambda settings: _adjusted(options, settings), plans=plans)
    # The port first: a second daemon must not read devices before it finds out that it is one.
    settings = _adjusted(options, load(options.config))
    scheme = "https" if check(settings.web) else "http"
    _log_to_stderr(level or settings.log_level)
    with _bound(options, settings) as bound:
        host, port = bound.getsockname()[:2]
        if signal.SIGUSR1 in options.early:
            options.early.discard(signal.SIGUSR1)
            app.release(settings.release)  # before anything is opened
        app.start()

        def announce() -> None:
            shown = "127.0.0.1" if host in {"::", "0.0.0.0"} else host
            where = f"{scheme}://" + (f"[{shown}]:{port}" if ":" in shown else f"{shown}:{port}")
            lines = [
                f"flopwatch {__version__} serves {where}/metrics (to look at: {where}/status)",
                *(f"  {line}" for line in summary(app.status(detailed=True))),
            ]
            if not any(one.name.startswith("inference:") for one in app.view().sources):
                lines.append(
                    "  no inference server: give --server http://127.0.0.1:8000/metrics,"
                    " or list it under sources.inference.servers"
                )
            _courtesy(*lines)
            announced()

        idle = asyncio.run(
            serve(
                app,
                bound,
                announce,
                complete=lambda: app.settled() and _has_windows(app.view()),
                early=options.early,
            )
        )
        # The event loop has put back what it found at the beginning: dying of these.
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    return app.stop() and idle


def _end(*_: object) -> None:
    raise SystemExit(0)


def _leave(*, clean: bool) -> int:
    """Return the exit code; do not wait for threads that hang in a driver or on a dead disk."""
    import logging

    if not clean:
        logging.shutdown()
        os._exit(0)
    return 0


def _once(options: argparse.Namespace) -> int:
    import threading

    from exporter.app import App
    from exporter.config import printable
    from exporter.status import summary

    _log_to_stderr(_log_level(options) or "error")

    def adjusted(settings: Settings) -> Settings:
        # What a daemon remembers, and tells others, is not ours to overwrite; nobody waits five
        # seconds for a round.
        made = _adjusted(options, settings)
        serving = made.sources.serving.model_copy(update={"interval": 0.2})
        topology = made.sources.topology.model_copy(update={"interval": 0.2})
        sources = made.sources.model_copy(update={"serving": serving, "topology": topology})
        quiet = made.notify.model_copy(update={"file": False, "alertmanagers": (), "webhooks": ()})
        return made.model_copy(
            update={
                "state_directory": None,
                "start_jitter": 0.0,
                "sources": sources,
                "notify": quiet,
            }
        )

    app = App(options.config, adjust=adjusted)
    app.start()
    pause = threading.Event()
    while not app.settled():
        app.notice_servers()
        pause.wait(0.02)
    # Averages over time need two readings, and what is derived of others' readings a round of its
    # own: one that began now has ended when the next but one begins.
    rounds = _rounds(app.view())
    for _ in range(_ONCE_PATIENCE):
        view = app.view()
        done = _rounds(view)
        if _has_windows(view) and all(done.get(n, 0) >= before + 2 for n, before in rounds.items()):
            break
        pause.wait(0.1)
    page = app.exposition.page((None, options.openmetrics, False))
    for text in summary(app.status(detailed=True)):
        for line in text.split("\n"):
            print(printable(line), file=sys.stderr)
    if options.stats:
        _print_stats(app.exposition.series(), page, options.nodes)
    else:
        _write(page)
    return _leave(clean=app.stop())


def _rounds(view: View) -> dict[str, int]:
    """Return how often those have been read that take up what other sources tell."""
    late = ("derive:serving", "topology")
    return {s.name: s.health.attempts for s in view.sources if s.name in late}


def _has_windows(view: View) -> bool:
    """Tell whether the drivers of GPUs have been read often enough, and all has been derived.

    The kernel log's source knows the GPUs by what the drivers' have published. What is said of
    training takes a minute, and mostly there is nothing to say.
    """
    gpus = [source for source in view.sources if source.name in {"nvml", "dcgm"}]
    slow = {"derive:training", "derive:diagnosis"}
    derived = [
        source
        for source in view.sources
        if source.name.startswith("derive:") and source.name not in slow
    ]
    logs = [source for source in view.sources if source.name == "kmsg"]
    alive = [source for source in gpus if source.state in {"up", "degraded"}]
    return all(source.health.attempts > 2 for source in alive) and (
        not alive
        or (
            all(source.batch or source.health.attempts > 8 for source in derived)
            and all(source.batch or source.health.attempts > 3 for source in logs)
        )
    )


def _print_stats(series: Mapping[str, int], page: bytes, nodes: int) -> None:
    """Print what this node's page costs, and what a fleet of such nodes would."""
    total = sum(series.values())
    _print(
        *(f"{group:<12} {count:>8} series" for group, count in series.items()),
        f"{'all':<12} {total:>8} series, {len(page)} bytes",
        *(
            f"{nodes} such nodes, scraped every {interval} s:"
            f" {total * nodes / interval:,.0f} samples/s"
            for interval in (15, 30, 60)
        ),
    )


_FLEET = "  a node judges what it reads; before they page, the rules in alerts/ add up all nodes"


def _check(options: argparse.Namespace) -> int:
    from exporter.clock import SystemClock
    from exporter.config import ConfigError, load
    from exporter.plans import Estate, build, plan
    from exporter.websecurity import check

    settings = load(options.file)
    check(settings.web)
    try:
        here = {one.name for one in plan(settings, Estate(SystemClock()))}
        # The file may be meant for another machine than the one on which it is checked.
        plans = plan(settings, Estate(SystemClock(), gpus=True))
        for one in plans:
            build(one).close()
    except ConfigError as error:
        raise ConfigError(*(f"{options.file}: {line}" for line in error.problems)) from None
    names = ", ".join(
        one.name if one.name in here else f"{one.name} (where there is a GPU)" for one in plans
    )
    promised = (f"  {objective.describe()}" for objective in settings.objectives)
    note = (_FLEET,) if settings.objectives else ()
    _print(f"{options.file}: fine; sources: {names}", *promised, *note)
    return 0


def _roofline(options: argparse.Namespace) -> int:
    from exporter.config import ConfigError, load
    from exporter.derive.roofline import WIDTHS, gemm, layer, report, roof_of, table
    from exporter.plans.gpus import accelerators

    product = accelerators(load(options.config)).find(options.gpu)
    if product is None:
        raise ConfigError(f"--gpu: {options.gpu!r} is in no table; `accelerators` may name it")
    precision, sizes = options.precision, (options.m, options.n, options.k)
    if precision not in WIDTHS:
        raise ConfigError(f"--precision: {precision!r} is none of {', '.join(WIDTHS)}")
    if any(sizes) and not all(sizes):
        raise ConfigError("--m, --n, --k: one product of matrices needs all three")
    width = WIDTHS[precision]
    try:
        roof = roof_of(product, precision)
        operations = (
            (gemm("product", *sizes, width=width),)
            if all(sizes)
            else layer(options.batch, options.sequence, options.hidden, options.heads, width=width)
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if options.json:
        import json

        _print(json.dumps(report(product.title, precision, roof, operations), indent=1))
    else:
        _print(*table(product.title, precision, roof, operations))
    return 0


def _docs(options: argparse.Namespace) -> int:
    from exporter.exposition import reference

    try:
        options.file.write_text(reference(), encoding="utf-8")
    except OSError as error:
        raise _FailedError(f"{options.file}: {error.strerror}") from None
    _print(f"wrote {options.file}")
    return 0


if __name__ == "__main__":
    main()
