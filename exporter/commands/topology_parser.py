"""What `flopwatch topology` takes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from exporter.commands import DEFAULT_URL
from exporter.commands.parser import Handler, Said


def add_topology(commands: Any, told: Callable[[Handler], Callable[[Any], int]]) -> None:
    """Add the command to a parser's `add_subparsers`; `told` prints what a handler returns."""
    parser = commands.add_parser(
        "topology", help="print which GPUs and NICs are near to each other, and what is wrong"
    )
    parser.set_defaults(command=told(_topology))
    where = parser.add_mutually_exclusive_group()
    where.add_argument("page", type=Path, metavar="PAGE", nargs="?", help="a saved page")
    where.add_argument(
        "--url", default=DEFAULT_URL, help=f"page of a daemon (default: {DEFAULT_URL})"
    )
    where.add_argument(
        "--sysfs", type=Path, metavar="ROOT", nargs="?", const=Path("/"),
        help="look at this machine itself, without a daemon; its files are below ROOT (/)",
    )  # fmt: skip
    parser.add_argument(
        "--file", type=Path, metavar="FILE",
        help="with --sysfs: an NCCL topology file, or a saved `nvidia-smi topo -m`",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 if something is not as it should be"
    )


def _topology(options: argparse.Namespace) -> Said:
    from exporter.clock import SystemClock
    from exporter.commands.pages import Daemon, read_file
    from exporter.commands.topology import lines, of_machine, of_page
    from exporter.config import ConfigError

    if options.file is not None and options.sysfs is None:
        raise ConfigError("--file: needs --sysfs; a daemon is told by sources.topology.file")
    if options.sysfs is not None:
        found = of_machine(options.sysfs, options.file, SystemClock())
    elif options.page is not None:
        found = of_page(read_file(options.page)[-1])
    else:
        found = of_page(Daemon(options.url, SystemClock()).page())
    said = [json.dumps(found.plain, indent=2)] if options.json else [*lines(found)]
    return said, int(options.check and bool(found.wrong))
