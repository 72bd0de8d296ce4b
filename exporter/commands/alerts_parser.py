"""What the command about alerts takes, and who does it: `alerts`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exporter.commands.parser import Handler, Said


def add_alerts_command(commands: Any, told: Callable[[Handler], Callable[[Any], int]]) -> None:
    """Add the command to a parser's `add_subparsers`; `told` prints what a handler returns."""
    parser = commands.add_parser(
        "alerts", help="write Prometheus' rules on what a configuration promises"
    )
    parser.set_defaults(command=told(_alerts))
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE",
        default=os.environ.get("FLOPWATCH_CONFIG") or None,
        help="the daemons' configuration (default: $FLOPWATCH_CONFIG)",
    )  # fmt: skip
    parser.add_argument(
        "--days", type=int, choices=(28, 30), default=30,
        help="for how long an error budget is meant (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--runbooks", default="", metavar="URL",
        help="where the runbooks are: put before runbooks/serving.md",
    )  # fmt: skip


def _alerts(options: argparse.Namespace) -> Said:
    from exporter.commands.alerts import write
    from exporter.config import ConfigError, load

    if options.config is None:
        raise ConfigError("--config: the file with inference_sla, sla or training_sla is needed")
    objectives = load(options.config).objectives
    if not objectives:
        raise ConfigError(f"{options.config}: no promise: no inference_sla, sla or training_sla")
    base = options.runbooks.rstrip("/")
    return write(objectives, options.config.name, options.days, f"{base}/" if base else ""), 0
