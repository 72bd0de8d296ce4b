"""What `flopwatch top` takes, and how it begins."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from exporter.commands.parser import Handler, Said
from exporter.config import ConfigError

NAMES = ("overview", "gpus", "training", "serving", "fabric", "node")


def add_top(commands: Any, told: Callable[[Handler], Callable[[Any], int]]) -> None:
    """Add the command to a parser's `add_subparsers`; `told` prints what a handler returns."""
    parser = commands.add_parser("top", help="show in the terminal what a daemon tells")
    parser.set_defaults(command=told(_top))
    parser.add_argument(
        "--url",
        help="a daemon: http://host:9810, or unix:///path (default: the one on this machine)",
    )
    parser.add_argument(
        "--view", choices=NAMES, default=NAMES[0], help="what to begin with (default: %(default)s)"
    )
    parser.add_argument(
        "--every", type=_seconds, default=2.0, metavar="S", help="ask each so many seconds (2)"
    )
    parser.add_argument("--once", action="store_true", help="print one frame and end")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="holds a bearer token")
    parser.add_argument("--ca-file", type=Path, metavar="FILE", help="whom to trust for https")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if 0.5 <= value <= 3600:
        return value
    raise argparse.ArgumentTypeError("seconds from 0.5 to 3600 are wanted")


def _top(options: argparse.Namespace) -> Said:
    from importlib.util import find_spec

    from exporter.clock import SystemClock

    if find_spec("rich") is None:
        raise ConfigError(
            "top: the package rich is missing: pip install 'flopwatch[top]', or pip install rich"
        )
    from exporter.top.daemon import Away, Daemon
    from exporter.top.screen import console, once, watch
    from exporter.top.views import VIEWS

    clock = SystemClock()
    daemon = Daemon(options.url, clock, token_file=options.token_file, ca_file=options.ca_file)
    at = NAMES.index(options.view)
    if options.once or sys.stdout is None or not sys.stdout.isatty():
        try:
            _write(once(daemon, VIEWS[at], console(sys.stdout), clock))
        except Away as error:
            raise ConfigError(f"top: {daemon.where}: {error}") from None
        return (), 0
    with suppress(KeyboardInterrupt):
        watch(daemon, at, options.every, clock)
    return (), 0


def _write(text: str) -> None:
    """Write to standard output; a reader that has seen enough is no failure."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # The rest lies in a buffer, which Python would try to write once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if not isinstance(error, BrokenPipeError):
            raise ConfigError(f"top: standard output: {error.strerror}") from None
