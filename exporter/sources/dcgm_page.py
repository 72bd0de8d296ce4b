"""The page of a dcgm-exporter that runs anyway, read and put into our words.

For nodes where it is there already and nothing else may talk to the GPUs. Old names and those of
exporter 4.9 are understood, side by side too; what a name means and in which unit is the matter of
`dcgm.fields`, how to fetch that of `fetch`, how to read a page that of `formats.exposition`.

The exporter measures every 30 seconds unless told otherwise and shows the same numbers until then.
So ratios are not added up to counters here: what happened between two measurements is not on the
page, nor when they were made. Rows of pods that share a GPU tell of the same GPU and count once.

A scraper will see, among others:

    gpu_utilization_ratio{gpu="0",uuid="GPU-…"} 0.98
    gpu_tensor_active_ratio{gpu="0",uuid="GPU-…"} 0.41
    gpu_memory_used_bytes{gpu="0",uuid="GPU-…"} 68719476736
    gpu_energy_joules_total{gpu="0",uuid="GPU-…"} 1234567.8
    gpu_mig_sm_active_ratio{gpu="1",uuid="GPU-…",mig="3"} 0.5
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from exporter import catalogue as c
from exporter.dcgm.fields import FIELDS, MEBIBYTES, UTILIZATION, Field, Kind, Unit, is_blank, native
from exporter.fetch import Response
from exporter.formats.exposition import Limits, Page, PageShape, Reader
from exporter.samples import Drop, Fault, Malformed, Metric, Sample, SourceError

_PREFIX = "DCGM_"


class Fetch(Protocol):
    """What gets the page."""

    def get(self) -> Response:
        """Return the page, or raise what says why there is none."""

    def close(self) -> None:
        """Release the connection."""


class _Row(NamedTuple):
    """What becomes of one series of the page."""

    position: int
    metric: Metric
    labels: tuple[str, ...]
    kind: Kind
    unit: Unit
    bit: int


class _Plan(NamedTuple):
    """What becomes of a page; `nameless` rows do not say which GPU they are about.

    `ambiguous` rows could be in either of two units.
    """

    shape: PageShape
    rows: tuple[_Row, ...]
    nameless: int
    ambiguous: int


class DcgmPageSource:
    """Reads one dcgm-exporter.

    `leave_out` are names of families that somebody else reads.
    """

    def __init__(
        self,
        fetch: Fetch,
        *,
        leave_out: Sequence[str] = (),
        limits: Limits | None = None,
        table: Sequence[Field] = FIELDS,
    ) -> None:
        self.name = "dcgm_page"
        self.group = c.GPU
        self._fetch = fetch
        self._leave_out = frozenset(leave_out)
        self._reader = Reader([_PREFIX], limits)
        self._names = _by_name(table)
        self._plan = _Plan(PageShape((), {}), (), 0, 0)

    def read(self) -> list[Sample | Fault | Drop]:
        """Fetch the page once and translate it.

        Raises what the fetcher raises; `SourceError` (unavailable) if the server has no metrics of
        DCGM; `Malformed` if the page is none.
        """
        response = self._fetch.get()
        _expect_metrics(response)
        page = self._reader.read(response.body)
        if not page.shape.series:
            raise SourceError("unavailable", "up, but no metrics of DCGM (DCGM_FI_...)")
        if page.shape is not self._plan.shape:
            self._plan = self._planned(page.shape)
        return [*self._samples(page), *self._losses(page)]

    def close(self) -> None:
        """Close the connection."""
        self._fetch.close()

    def _samples(self, page: Page) -> Iterator[Sample | Drop]:
        seen: set[tuple[Metric, tuple[str, ...]]] = set()
        unbelievable = 0
        for row in self._plan.rows:
            raw = page.values[row.position]
            if (row.metric, row.labels) in seen or is_blank(raw, row.kind):
                continue
            value = native(raw, row.unit)
            if value is None:
                unbelievable += 1
                continue
            seen.add((row.metric, row.labels))
            yield row.metric(int(int(value) & row.bit != 0) if row.bit else value, *row.labels)
        if unbelievable:
            yield Drop("value", unbelievable)

    def _losses(self, page: Page) -> Iterator[Fault | Drop]:
        yield from (Drop(reason, number) for reason, number in page.dropped.items() if number)
        if self._plan.nameless:
            yield Drop("labels", self._plan.nameless)
        if self._plan.ambiguous:
            yield Drop("unit", self._plan.ambiguous)
        if page.partial:
            yield Fault.of("page", Malformed("it ends in the middle of a line"))

    def _planned(self, shape: PageShape) -> _Plan:
        """Decide for each series what becomes of it; done again only when the series change."""
        rows: list[_Row] = []
        nameless = ambiguous = 0
        modern = _speaks_base_units(shape)
        for name, (field, unit) in self._names.items():
            for position in shape.index.get(name, ()):
                labels = dict(shape.series[position].labels)
                gpu, uuid = labels.get("gpu", ""), labels.get("UUID") or labels.get("gpu_uuid", "")
                if not gpu or not uuid:
                    nameless += 1
                elif name == UTILIZATION.new_name and not modern:
                    ambiguous += 1
                elif "nvlink" not in labels:  # of one link, where the GPU is meant
                    about = (gpu, uuid), labels.get("GPU_I_ID", "")
                    rows += _rows(position, field, unit, *about)
        kept = tuple(row for row in rows if row.metric.name not in self._leave_out)
        return _Plan(shape, kept, nameless, ambiguous)


def _by_name(table: Sequence[Field]) -> dict[str, tuple[Field, Unit]]:
    """Return fields and units by name, the finer unit first: of two rows the first one counts."""
    new = {row.new_name: (row, row.new_unit) for row in table if row.new_name}
    names = {name: (row, unit) for name, (row, unit) in new.items() if unit is not None}
    names |= {row.name: (row, row.unit) for row in table}
    return {name: pair for name, pair in names.items() if pair[0].metric or pair[0].mig}


def _speaks_base_units(shape: PageShape) -> bool:
    """Tell whether a page is of DCGM 4.7 or newer.

    DCGM 4.6 gave the name GPU_UTIL_RATIO to the old percent, 4.7 to a new ratio. One of the other
    new names in base units, which 4.6 did not have, tells which it is.
    """
    telling = [row.new_name for row in FIELDS if row.unit is MEBIBYTES]
    telling.append("DCGM_FI_DEV_SM_CLOCK_HERTZ")
    return any(name in shape.index for name in telling)


def _rows(
    position: int, field: Field, unit: Unit, gpu: tuple[str, str], mig: str
) -> Iterator[_Row]:
    """Yield what one series becomes, which may be nothing."""
    metric, labels = field.metric, (*gpu, *field.labels)
    if mig and not field.whole:
        metric, labels = field.mig, (*gpu, mig)
    if metric is None:
        return
    if field.bits:
        for word, bit in field.bits:
            yield _Row(position, metric, (*labels, word), field.kind, unit, bit)
    else:
        yield _Row(position, metric, labels, field.kind, unit, 0)


def _expect_metrics(response: Response) -> None:
    """Raise, with a hint, for the pages that come in place of metrics."""
    start = response.body[:64].lstrip()[:1]
    if not start and not response.body.strip():
        raise SourceError("unavailable", "up, but no metrics: the page is empty")
    if start == b"<":
        raise Malformed("a web page, not metrics: the path is another one (/metrics)")
