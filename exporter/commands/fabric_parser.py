"""What the commands about the fabric take, and who does them: `comm`."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exporter.commands.parser import Handler, Said

_SCALES = {
    "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30,
}  # fmt: skip
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?(?:e\d{1,2})?)\s*((?:[kMGT]|[KMG]i)?)(B|bit|b)(?:/s)?")
_COUNT = re.compile(r"(\d+(?:\.\d+)?(?:e\d{1,2})?)([MBT]?)")


def add_fabric_commands(commands: Any, told: Callable[[Handler], Callable[[Any], int]]) -> None:
    """Add the commands to a parser's `add_subparsers`; `told` prints what a handler returns."""
    comm = commands.add_parser(
        "comm", help="tell what collectives cost by theory, and what a training step sends"
    )
    comm.set_defaults(command=told(_comm))
    _fabric(comm.add_argument_group("the cluster"))
    _message(comm.add_argument_group("one message"))
    _job(comm.add_argument_group("a training step"))
    comm.add_argument("--json", action="store_true", help="print JSON")


def _fabric(group: Any) -> None:
    sizes = (("gpus", 512, "in all"), ("gpus-per-node", 8, ""), ("nics-per-node", 8, "for them"))
    for name, default, what in sizes:
        group.add_argument(
            f"--{name}", type=_size, default=default, metavar="N",
            help=f"{what} (default: %(default)s)".strip(),
        )  # fmt: skip
    for name, rate, what in (
        ("nic", "400Gbit", "what a port carries in one direction: 400Gbit, 50GB"),
        ("nvlink", "450GB", "what a GPU's NVLinks carry in one direction"),
    ):
        group.add_argument(
            f"--{name}", type=_quantity, default=rate, metavar="RATE",
            help=f"{what} (default: {rate})",
        )  # fmt: skip
    group.add_argument(
        "--efficiency", type=_share, default=0.9, metavar="SHARE",
        help="what protocols leave of both (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--latency", type=_microseconds, default=0.0, metavar="US",
        help="microseconds of one step of an algorithm (default: 0, bandwidth alone)",
    )  # fmt: skip


def _message(group: Any) -> None:
    group.add_argument(
        "--size", type=_quantity, metavar="BYTES",
        help="time of one message by collective and algorithm: 140GB, 64MiB (default: the"
        " gradients of the model)",
    )  # fmt: skip


def _job(group: Any) -> None:
    group.add_argument("--model", metavar="NAME", help="a model by its name: Llama-2-70b")
    group.add_argument("--model-config", type=Path, metavar="FILE", help="its config.json")
    group.add_argument(
        "--parameters", type=_count, metavar="N", help="or so many weights: 70B, 7e9"
    )
    group.add_argument(
        "--strategy", metavar="NAMES",
        help="of ddp, fsdp, hsdp, tp, pp, ep, with commas between (default: all that there are"
        " ranks for)",
    )  # fmt: skip
    for name, default, what in (
        ("tensor", 1, "ranks of tensor parallelism"),
        ("pipeline", 1, "stages"),
        ("expert", 1, "ranks that experts are spread over"),
        ("micro-batch", 1, "samples"),
        ("micro-batches", 1, "of a step, for each pipeline"),
        ("sequence-length", 4096, "tokens"),
        ("virtual-stages", 1, "on each rank"),
    ):
        group.add_argument(
            f"--{name}", type=_size, default=default, metavar="N",
            help=f"{what} (default: %(default)s)",
        )  # fmt: skip
    group.add_argument(
        "--shard", type=_size, default=0, metavar="N",
        help="ranks of a group of hsdp (default: those of a node)",
    )  # fmt: skip
    for name, what in (("parameter", "gathered"), ("gradient", "reduced"), ("activation", "sent")):
        group.add_argument(
            f"--{name}-bytes", type=_width, default=2.0, metavar="B",
            help=f"bytes of a number that is {what} (default: 2)",
        )  # fmt: skip
    group.add_argument(
        "--step-seconds", type=_positive, metavar="S", help="a step's time, to tell shares of it"
    )


def _size(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 9 and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError("a whole number from 1 to 99999999 is wanted")


def _quantity(text: str) -> float:
    """Return bytes, or bytes a second, of a text with a unit."""
    found = _QUANTITY.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}: a number with a unit is wanted: 50GB, 400Gbit")
    return float(found[1]) * _SCALES[found[2]] / (1 if found[3] == "B" else 8)


def _count(text: str) -> float:
    found = _COUNT.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r}: a number such as 70B or 7e9 is wanted")
    return float(found[1]) * {"": 1.0, "M": 1e6, "B": 1e9, "T": 1e12}[found[2]]


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if 0 < value < 1e9:
        return value
    raise argparse.ArgumentTypeError("a number above 0 is wanted")


def _width(text: str) -> float:
    value = _positive(text)
    if value <= 16:
        return value
    raise argparse.ArgumentTypeError("bytes of one number are wanted: 2 for bf16, 4 for fp32")


def _share(text: str) -> float:
    value = _positive(text)
    if value <= 1:
        return value
    raise argparse.ArgumentTypeError("a share from 0 to 1 is wanted")


def _microseconds(text: str) -> float:
    return 0.0 if text == "0" else _positive(text) / 1e6


def _comm(options: argparse.Namespace) -> Said:
    from exporter.commands.comm import ask, lines, plain
    from exporter.config import ConfigError

    try:
        found = ask(options)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return ([json.dumps(plain(found), indent=1)] if options.json else [*lines(found)]), 0
