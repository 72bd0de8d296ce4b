"""What the commands about training take, and who does them: `capture`, `verify`, `diagnose`.

Each is handed the options and returns the lines to print and the exit code.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from exporter.commands import DEFAULT_URL
from exporter.commands.alerts_parser import add_alerts_command
from exporter.commands.debug_parser import add_debug_command
from exporter.commands.fabric_parser import add_fabric_commands
from exporter.commands.money_parser import add_money_commands

Said = tuple[Sequence[str], int]
Handler = Callable[[argparse.Namespace], Said]


def add_commands(commands: Any, told: Callable[[Handler], Callable[[Any], int]]) -> None:
    """Add the commands to a parser's `add_subparsers`; `told` prints what a handler returns."""
    capture = commands.add_parser("capture", help="save an interval of pages, for verify")
    capture.set_defaults(command=told(_capture))
    capture.add_argument("file", type=Path, metavar="FILE", help="a new file")
    _url(capture)
    capture.add_argument(
        "--seconds", type=_seconds, default=60.0, metavar="S", help="how long (default: 60)"
    )
    capture.add_argument(
        "--every", type=_seconds, default=5.0, metavar="S", help="a page each so often (5)"
    )

    verify = commands.add_parser(
        "verify", help="compare two captures: speed, loss, memory; exit code 1 if it does not hold"
    )
    verify.set_defaults(command=told(_verify))
    verify.add_argument("before", type=Path, metavar="BEFORE", help="a file of two pages or more")
    verify.add_argument("after", type=Path, metavar="AFTER")
    verify.add_argument("--run", default="", help="a run by name, where a file tells of several")
    verify.add_argument(
        "--tolerance", type=_number, default=0.01, metavar="X",
        help="by how much losses may differ (default: 0.01)",
    )  # fmt: skip
    verify.add_argument(
        "--growth", type=_number, default=0.2, metavar="SHARE",
        help="by how much peak memory may grow (default: 0.2)",
    )  # fmt: skip
    verify.add_argument(
        "--without", action="append", choices=("loss", "memory"), default=[],
        help="what need not be known",
    )  # fmt: skip
    verify.add_argument(
        "--beyond-noise", action="store_true", help="a speed-up within the noise is none"
    )
    _json(verify)

    diagnose = commands.add_parser(
        "diagnose", help="say what limits a run, why, and what to measure next"
    )
    diagnose.set_defaults(command=told(_diagnose))
    diagnose.add_argument("page", type=Path, metavar="PAGE", nargs="?", help="a saved page")
    _url(diagnose)
    diagnose.add_argument("--run", help="only this one; '' is the GPUs without a run")
    _json(diagnose)
    add_money_commands(commands, told)
    add_alerts_command(commands, told)
    add_debug_command(commands, told)
    add_fabric_commands(commands, told)


def _url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", default=DEFAULT_URL, help=f"page of a daemon (default: {DEFAULT_URL})"
    )


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _seconds(text: str) -> float:
    value = _number(text)
    if 0 < value <= 86_400:
        return value
    raise argparse.ArgumentTypeError("seconds above 0, a day at most, are wanted")


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if 0 <= value < math.inf:
        return value
    raise argparse.ArgumentTypeError("a number from 0 on is wanted")


def _capture(options: argparse.Namespace) -> Said:
    from exporter.clock import SystemClock
    from exporter.commands.capture import capture

    number = capture(options.file, options.url, options.seconds, options.every, SystemClock())
    return [f"wrote {number} pages to {options.file}"], 0


def _verify(options: argparse.Namespace) -> Said:
    from exporter.commands.verify import Wanted, verify

    wanted = Wanted(
        options.run, options.tolerance, options.growth, frozenset(options.without),
        options.beyond_noise,
    )  # fmt: skip
    found = verify(options.before, options.after, wanted)
    lines = [json.dumps(found.plain, indent=2)] if options.json else found.lines
    return lines, 0 if found.passed else 1


def _diagnose(options: argparse.Namespace) -> Said:
    from exporter.clock import SystemClock
    from exporter.commands.diagnose import diagnoses, lines, plain
    from exporter.commands.pages import Daemon, read_file

    page = (
        Daemon(options.url, SystemClock()).page() if options.page is None
        else read_file(options.page)[-1]
    )  # fmt: skip
    found = diagnoses(page, options.run)
    if options.json:
        return [json.dumps([plain(one) for one in found], indent=2)], 0
    return [
        line for at, one in enumerate(found) for line in ([""] if at else []) + [*lines(one)]
    ], 0
