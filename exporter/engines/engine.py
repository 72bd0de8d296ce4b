"""What is known of an engine: how its page is recognised, and what is read from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from exporter.samples import Metric

QUALITIES = ("exact", "derived", "bounded", "mean_only", "biased")
"""How good a value is, best first: native with this meaning; a formula of exact parts; an interval;
only a mean; native with another meaning."""

Combine = Literal["sum", "mean", "max"]


@dataclass(frozen=True, slots=True)
class LabelRule:
    """Where the value of one of our labels comes from: a constant, or a label of theirs."""

    constant: str | None = None
    origin: str = ""
    status_class: bool = False


@dataclass(frozen=True, slots=True)
class Weight:
    """A number that stands in `label` of the family `name`, found by the label `by`."""

    name: str
    label: str
    by: str


@dataclass(frozen=True, slots=True)
class Zeros:
    """The bucket `le` of the histogram `name` counts observations to take out as zeros."""

    name: str
    le: float


@dataclass(frozen=True, slots=True)
class Origin:
    """One way in which an engine offers a metric."""

    names: tuple[str, ...]
    quality: str
    semantics: str
    labels: Mapping[str, LabelRule]
    where: Mapping[str, frozenset[str]]
    scale: float = 1.0
    combine: Combine = "sum"
    weight: Weight | None = None
    zeros: Zeros | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Every name that is needed, the helping ones included."""
        helpers = (self.weight, self.zeros)
        return (*self.names, *(helper.name for helper in helpers if helper is not None))


@dataclass(frozen=True, slots=True)
class Row:
    """A canonical metric (or one part of it, such as one direction) and its ways, best first."""

    metric: Metric
    sources: tuple[Origin, ...]
    required: bool = False
    required_with: str = ""


@dataclass(frozen=True, slots=True)
class Engine:
    """One inference engine: how its page is recognised and what is read from it."""

    name: str
    prefixes: tuple[str, ...]
    rows: tuple[Row, ...]
    destructive: bool = False
    bare: tuple[str, ...] = ()
    model_labels: tuple[str, ...] = ("model_name",)
    foreign_labels: frozenset[str] = frozenset()
    hint: str = ""

    @property
    def wanted(self) -> tuple[str, ...]:
        """Beginnings of all sample names that are of use: what a page's reader should keep."""
        names = dict.fromkeys(n for row in self.rows for o in row.sources for n in o.reads)
        names |= dict.fromkeys(row.required_with for row in self.rows if row.required_with)
        stems = dict.fromkeys(n.removesuffix("_total") for n in names if n not in self.bare)
        return (*self.bare, *(prefix + stem for prefix in self.prefixes for stem in stems))

    def offers(self, names: Iterable[str]) -> bool:
        """Tell whether any of these sample names is this engine's."""
        return any(name.startswith(self.prefixes) for name in names)


def detect(engines: Iterable[Engine], names: Iterable[str]) -> Engine | None:
    """Return the first engine that one of the sample names belongs to.

    Where a page passes on another's metrics the order of `engines` decides.
    """
    found = list(names)
    return next((engine for engine in engines if engine.offers(found)), None)
