"""What the commands about money take, and who does them: `tco`, `spot`."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exporter.commands.parser import Handler, Said


def add_money_commands(commands: Any, told: Callable[[Handler], Callable[[Any], int]]) -> None:
    """Add the commands to a parser's `add_subparsers`; `told` prints what a handler returns."""
    _tco_parser(
        commands.add_parser("tco", help="what a cluster costs: a plan's total, by the hour"), told
    )
    _spot_parser(
        commands.add_parser("spot", help="what spot instances save, interruptions paid"), told
    )


def _tco_parser(parser: argparse.ArgumentParser, told: Callable[[Handler], Any]) -> None:
    parser.set_defaults(command=told(_tco))
    parser.add_argument("file", type=Path, metavar="FILE", help="a plan (deploy/tco.example.yaml)")
    parser.add_argument(
        "--years",
        type=_years,
        action="append",
        metavar="N",
        help="one view only (default: 3 and 5)",
    )
    parser.add_argument(
        "--what-if", action="append", default=[], metavar="NAME[:KEY=VALUE,...]",
        help="a strategy of table 16-12 (sharing, pue, carbon, reuse, open-source, burst) or all;"
        " may be given several times",
    )  # fmt: skip
    parser.add_argument("--gpus", type=_positive, metavar="N", help="instead of the plan's")
    parser.add_argument(
        "--utilization", type=_share, metavar="SHARE", help="instead of the plan's, such as 0.75"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _spot_parser(parser: argparse.ArgumentParser, told: Callable[[Handler], Any]) -> None:
    parser.set_defaults(command=told(_spot))
    prices = parser.add_argument_group("prices, in dollars for a GPU hour")
    prices.add_argument("--instance", metavar="TYPE", help="take what is not stated from the list")
    for name in ("on-demand", "reserved"):
        prices.add_argument(f"--{name}", type=_positive, metavar="DOLLARS")
    one = prices.add_mutually_exclusive_group()
    one.add_argument("--spot", type=_positive, metavar="DOLLARS")
    one.add_argument("--discount", type=_share, metavar="SHARE", help="spot below on-demand")
    prices.add_argument(
        "--mix", action="append", default=[], metavar="spot=0.8,on_demand=0.2",
        help="a mixture by shares of the GPUs; may be given several times",
    )  # fmt: skip
    job = parser.add_argument_group("the job")
    job.add_argument("--gpus", type=_positive, default=8.0, metavar="N", help="(default: 8)")
    job.add_argument(
        "--gpus-per-instance", type=_positive, metavar="N", help="(default: the list's, else 8)"
    )
    stops = job.add_mutually_exclusive_group()
    stops.add_argument(
        "--interruptions", type=_number, default=0.05, metavar="RATE",
        help="how often one spot instance is taken away in an hour (default: 0.05)",
    )  # fmt: skip
    stops.add_argument(
        "--job-interruptions", type=_number, metavar="RATE",
        help="how often the job is interrupted in an hour, if all of it is on spot",
    )  # fmt: skip
    job.add_argument(
        "--failures-every", type=_positive, default=math.inf, metavar="HOURS",
        help="mean time between failures of other kinds (default: none)",
    )  # fmt: skip
    job.add_argument(
        "--checkpoint", type=_positive, default=60.0, metavar="SECONDS",
        help="that writing one stops the job (default: 60)",
    )  # fmt: skip
    job.add_argument(
        "--restart", type=_number, default=135.0, metavar="SECONDS",
        help="until it trains again (default: 135, the middle of 16.7.2)",
    )  # fmt: skip
    job.add_argument(
        "--notice", type=_number, default=0.0, metavar="SECONDS",
        help="warning that the job heeds by writing a checkpoint (default: 0, it does not)",
    )  # fmt: skip
    job.add_argument(
        "--interval", type=_positive, metavar="SECONDS",
        help="of work between checkpoints (default: the best one)",
    )  # fmt: skip
    job.add_argument("--hours", type=_positive, default=720.0, metavar="N", help="(default: 720)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _number(text: str) -> float:
    return _within(text, 0, 1e12, "a number from 0 on is wanted")


def _positive(text: str) -> float:
    return _within(text, 1e-9, 1e12, "a number above 0 is wanted")


def _share(text: str) -> float:
    return _within(text, 1e-9, 1, "a share above 0, 1 at most, is wanted")


def _years(text: str) -> int:
    if text.isascii() and text.isdecimal() and 0 < int(text[:4]) <= 50 and len(text) < 4:
        return int(text)
    raise argparse.ArgumentTypeError("a whole number of years from 1 to 50 is wanted")


def _within(text: str, least: float, most: float, said: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if least <= value <= most:
        return value
    raise argparse.ArgumentTypeError(said)


def _tco(options: argparse.Namespace) -> Said:
    from exporter.commands.tco import VIEWS, answer, as_json, lines, wish

    # Where a strategy is asked for twice, such as by `all` and with terms, the last one counts.
    wishes = {one.name: one for text in options.what_if for one in wish(text)}
    years = options.years or VIEWS
    found = answer(options.file, years, [*wishes.values()], options.gpus, options.utilization)
    return ([json.dumps(as_json(found), indent=2)] if options.json else [*lines(found)]), 0


def _spot(options: argparse.Namespace) -> Said:
    from exporter.commands.spot import answer, as_json, lines, offer
    from exporter.derive.money.spot import HOUR, Job

    stated = {name: getattr(options, name) for name in ("on_demand", "reserved", "spot")}
    offered = offer(options.instance, stated, options.discount)
    job = Job(
        gpus=options.gpus,
        gpus_per_instance=options.gpus_per_instance or offered.gpus or 8,
        checkpoint=options.checkpoint,
        restart=options.restart,
        rate=options.interruptions,
        whole=options.job_interruptions,
        failures=options.failures_every * HOUR,
        notice=options.notice,
        interval=options.interval,
    )
    found = answer(job, offered, options.mix, options.hours)
    return ([json.dumps(as_json(found), indent=2)] if options.json else [*lines(found)]), 0
