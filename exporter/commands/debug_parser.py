"""What `flopwatch debug` takes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.commands import DEFAULT_URL

if TYPE_CHECKING:
    from exporter.commands.parser import Handler, Said

_SOCKET = Path("/run/flopwatch/push.sock")


def add_debug_command(commands: Any, told: Callable[[Handler], Callable[[Any], int]]) -> None:
    """Add the command to a parser's `add_subparsers`; `told` prints what a handler returns."""
    debug = commands.add_parser(
        "debug", help="write an archive that helps to find out what is wrong; without secrets"
    )
    debug.set_defaults(command=told(_debug))
    debug.add_argument(
        "--output", metavar="FILE",
        help="a new file; -: standard output (default: flopwatch-debug-NODE-TIME.tar.gz)",
    )  # fmt: skip
    debug.add_argument(
        "-c", "--config", type=Path, metavar="FILE",
        default=os.environ.get("FLOPWATCH_CONFIG") or None,
        help="the daemon's configuration (default: $FLOPWATCH_CONFIG)",
    )  # fmt: skip
    debug.add_argument(
        "--socket", type=Path, metavar="PATH",
        help=f"the daemon's unix socket (default: {_SOCKET} where it is, and no --url)",
    )  # fmt: skip
    debug.add_argument(
        "--url", metavar="URL", help=f"the daemon's address (default: {DEFAULT_URL})"
    )
    debug.add_argument("--ca-file", type=Path, metavar="FILE", help="whom to believe with https")
    debug.add_argument("--user", default="", help="a name of the daemon's web config")
    debug.add_argument("--password-file", type=Path, metavar="FILE", help="its password")


def _debug(options: argparse.Namespace) -> Said:
    from exporter.clock import SystemClock
    from exporter.commands.debug import Door, bundle, write
    from exporter.config import ConfigError

    clock = SystemClock()
    where = options.socket
    if where is None and options.url is None and _SOCKET.is_socket():
        where = _SOCKET
    try:
        password = "" if options.password_file is None else options.password_file.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"--password-file: {options.password_file}: {error}") from None
    door = Door(
        options.url or DEFAULT_URL, where, options.ca_file, options.user, password.rstrip("\r\n")
    )
    content = bundle(door, options.config, clock)
    path = options.output or f"flopwatch-debug-{os.uname().nodename}-{int(clock.time())}.tar.gz"
    write(path, content)
    if path == "-":
        return [], 0
    return [f"wrote {path} ({len(content)} bytes); look into it before you pass it on"], 0
