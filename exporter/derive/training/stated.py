"""What the operator says of runs.

Runs are known by their names; a statement names them by a pattern. What is stated is believed
before anything that a reader finds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from exporter.training.records import Facts


class Baseline(NamedTuple):
    """A throughput to compare with: tokens in a second for each GPU, on so many GPUs.

    `weak`: each GPU had the same batch as now; `strong`: the whole run had.
    """

    tokens_per_second_per_gpu: float
    gpus: int
    kind: Literal["weak", "strong"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What is stated of the runs whose name fits `pattern` (as in file names: `*`, `?`, `[abc]`).

    `facts` are believed before all others; their `run` counts for nothing. `reporter` tells whether
    this node speaks for the whole run, `None` leaves that to what is found. `gpus` are the indices
    of this node's GPUs that work on the run, `accelerator` the name of the
    product that they are, where that is not to be left to the driver.
    """

    pattern: str = "*"
    facts: Facts = Facts(run="*")  # noqa: RUF009 - it does not change
    baseline: Baseline | None = None
    reporter: bool | None = None
    gpus: tuple[int, ...] | None = None
    accelerator: str | None = None


def stated_of(run: str, statements: Sequence[Stated]) -> Stated:
    """Return what is stated of a run: the first pattern that fits; nothing if none does."""
    return next((one for one in statements if fnmatchcase(run, one.pattern)), Stated())


def merged(run: str, sources: Sequence[Facts]) -> Facts:
    """Return the facts of several sources, best first: of each fact the first that is known."""
    known: dict[str, object] = {}
    for facts in sources:
        for field in dataclasses.fields(facts):
            value = getattr(facts, field.name)
            if value is not None:
                known.setdefault(field.name, value)
    return Facts(**{**known, "run": run})  # type: ignore[arg-type]
