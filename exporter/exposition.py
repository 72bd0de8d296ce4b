"""The exposition writes the board out: classic text 0.0.4, OpenMetrics 1.0, and the reference page.

Rendering is ours, because it is what an exporter is: each series keeps its text up to the value,
only values that changed are formatted, and blocks are joined. A page is rendered once for each
state of the board and served as bytes to everyone. The official writer is the oracle in the tests:
what we write equals what it writes, but for the spelling of numbers (`5` for `5.0`).
"""

from __future__ import annotations

import gzip
import math
import operator
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, compress
from typing import Any

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.owners import Owned, labels_of
from exporter.samples import (
    Batch,
    Gate,
    Histogram,
    Metric,
    Sample,
    SourceView,
    Value,
    View,
)

_CHUNK = 1024
_SHORT = 1000
_OF_A_HISTOGRAM = 30
"""Lines: at most so many make a page that is rendered sooner than a thread is woken for it, and so
many one histogram is taken for."""
_SPECIAL = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
_UP = {"up": 1, "degraded": 1, "failed": 0, "stale": 0, "stuck": 0}


class Exposition:
    """The page of one board.

    `view` returns the board as it is now, `own` the daemon's own samples beside the sources'
    health, `owners` whose labels are to stand on series of GPUs. Any thread may ask for a page; one
    renders, the others wait for it.
    """

    def __init__(
        self,
        view: Callable[[], View],
        own: Callable[[], Iterable[Sample]],
        clock: Clock,
        *,
        gzip_level: int = 1,
        owners: Callable[[View], Owned] = lambda _: {},
    ) -> None:
        self._view = view
        self._owners = owners
        self._own = own
        self._clock = clock
        self._gzip_level = gzip_level
        self._lock = threading.Lock()
        self._blocks: dict[str, _Block] = {}
        self._duplicates: dict[str, int] = {}
        self._gate = Gate(100_000)
        self._token: tuple[object, ...] | None = None
        self._pages: dict[_PageKey, bytes] = {}
        self.render_seconds = 0.0

    def at_once(self, key: _PageKey) -> bytes | None:
        """Return the page for `key` if that takes about a millisecond: it is ready, or short."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            view = self._view()
            ready = view.token == self._token and key in self._pages
            if ready or sum(_length(source.batch) for source in view.sources) <= _SHORT:
                return self._page(view, key)
            return None
        finally:
            self._lock.release()

    def page(self, key: _PageKey) -> bytes:
        """Return the page for `key`, rendering what is missing."""
        with self._lock:
            return self._page(self._view(), key)

    def _page(self, view: View, key: _PageKey) -> bytes:
        if view.token != self._token:
            self._refresh(view)
        if (body := self._pages.get(key)) is None:
            began = self._clock.monotonic()
            body = self._pages[key] = self._assemble(key)
            self.render_seconds += self._clock.monotonic() - began
        return body

    def series(self) -> Mapping[str, int]:
        """Return how many series each group of the page holds now."""
        self.page((frozenset(), False, False))
        return self._counts()

    def _counts(self) -> Mapping[str, int]:
        blocks = self._blocks.copy()  # another thread may be adding to it
        return {name: block.series for name, block in blocks.items() if block.series}

    def _refresh(self, view: View) -> None:
        began = self._clock.monotonic()
        # Groups that have fallen silent too: what they said is no longer true.
        inputs: dict[str, list[tuple[str, Batch]]] = {
            group: [] for group in (*c.GROUPS, *self._blocks)
        }
        for source in view.sources:
            for group in source.batch.shape.groups:
                inputs.setdefault(group, []).append((source.name, source.batch))
        exporter = inputs.pop(c.EXPORTER)
        owned = self._owners(view)
        for group, batches in inputs.items():
            self._block(group).update(batches, self._duplicates, owned)
        # The daemon's own group comes last: it tells of the others, and of itself.
        told = [*health(view.sources, self._duplicates), *self._own()]
        counts = {g: n for g, n in self._counts().items() if g != c.EXPORTER}
        brought = sum(len(batch.shape.groups[c.EXPORTER]) for _, batch in exporter)
        counts[c.EXPORTER] = brought + len(told) + len(counts) + 1
        own, _ = self._gate.admit(
            [*told, *(c.FLOPWATCH_SERIES(n, group) for group, n in counts.items())]
        )
        self._block(c.EXPORTER).update([*exporter, ("", own)], self._duplicates)
        self._pages = {}
        self._token = view.token
        self.render_seconds += self._clock.monotonic() - began

    def _block(self, group: str) -> _Block:
        return self._blocks.setdefault(group, _Block(group))

    def _assemble(self, key: _PageKey) -> bytes:
        groups, openmetrics, gzipped = key
        if gzipped:
            plain = self._pages.get((groups, openmetrics, False))
            if plain is None:
                plain = self._assemble((groups, openmetrics, False))
                self._pages[groups, openmetrics, False] = plain
            return gzip.compress(plain, self._gzip_level, mtime=0)
        parts = [
            chunk
            for name, block in self._blocks.items()
            if groups is None or name in groups
            for chunk in block.chunks(openmetrics=openmetrics)
        ]
        if openmetrics:
            parts.append(b"# EOF\n")
        return b"".join(parts)


_PageKey = tuple[frozenset[str] | None, bool, bool]
"""What a page is asked for: which groups (`None`: all), in OpenMetrics?, with gzip?"""


class _Block:
    """One group of the page. Keeps each series' text up to the value, and each value's text."""

    def __init__(self, group: str) -> None:
        self.series = 0
        self._group = group
        self._inputs: Sequence[tuple[str, Batch]] = ()
        self._positions: tuple[int, ...] = ()
        self._pick: Callable[[Sequence[Value]], tuple[Value, ...]] = tuple
        self._histograms: tuple[int, ...] = ()
        self._bounds: tuple[tuple[float, ...], ...] = ()
        self._keys: tuple[tuple[Metric, tuple[str, ...]], ...] = ()
        self._duplicates: tuple[int, ...] = ()
        self._flat: list[float] = []
        self._texts: list[str] = []
        self._prefixes: dict[bool, list[str]] = {}
        self._chunks: dict[bool, list[bytes]] = {}
        self._owned: Owned = {}

    def update(
        self,
        inputs: Sequence[tuple[str, Batch]],
        duplicates: dict[str, int],
        owned: Owned | None = None,
    ) -> None:
        """Take the batches of this group's sources; count series met twice into `duplicates`.

        Series of a GPU in `owned` get the labels of its owner.
        """
        if owned is not None and owned != self._owned:
            self._owned, self._prefixes, self._chunks = owned, {}, {}
        former, self._inputs = self._inputs, inputs
        if len(former) == len(inputs) and all(
            a[1] is b[1] and a[0] == b[0] for a, b in zip(former, inputs, strict=True)
        ):
            return
        batches = [batch for _, batch in inputs]
        same = [b.shape for _, b in former] == [b.shape for b in batches]
        if not same:
            self._plan(batches)
        values = self._pick(tuple(chain.from_iterable(b.values for b in batches)))
        bounds = tuple(values[i].bounds for i in self._histograms)  # type: ignore[union-attr]
        if not same or bounds != self._bounds:
            self._bounds = bounds
            self._prefixes = {}
            same = False
        self._write(values, same=same)
        for at, n in enumerate(self._duplicates):
            if n and (at >= len(former) or former[at][1] is not inputs[at][1]):
                name = inputs[at][0]
                duplicates[name] = duplicates.get(name, 0) + n

    def _plan(self, batches: Sequence[Batch]) -> None:
        """Decide the order of series: families in catalogue order, the first of twins only."""
        entries: list[tuple[int, int, int]] = []
        first_seen: dict[Metric, int] = {}
        known: set[tuple[Metric, tuple[str, ...]]] = set()
        duplicates = [0] * len(batches)
        keys: dict[int, tuple[Metric, tuple[str, ...]]] = {}
        offset = 0
        for at, batch in enumerate(batches):
            shape = batch.shape
            for i in shape.groups.get(self._group, ()):
                metric = shape.metrics[i]
                key = (metric, tuple(map(_clean, shape.labels[i])))
                if key in known:
                    duplicates[at] += 1
                    continue
                known.add(key)
                keys[offset + i] = key
                seen = first_seen.setdefault(metric, len(first_seen))
                entries.append((c.ORDER.get(metric, len(c.ORDER)), seen, offset + i))
            offset += len(shape)
        entries.sort()
        positions = tuple(position for _, _, position in entries)
        self._keys = tuple(keys[position] for position in positions)
        self._pick = _picker(positions)
        self._histograms = tuple(
            i for i, (metric, _) in enumerate(self._keys) if metric.kind == "histogram"
        )
        self._duplicates = tuple(duplicates)

    def _write(self, values: tuple[Value, ...], *, same: bool) -> None:
        """Format the values that changed."""
        flat = self._flatten(values)
        # Formatting all at once beats picking when more than half is new; a sample tells which.
        if not same or 2 * sum(map(operator.ne, flat[::16], self._flat[::16])) > len(flat) / 16:
            self._texts = _format_all(flat)
        else:
            texts = self._texts
            for i in compress(range(len(flat)), map(operator.ne, flat, self._flat)):
                texts[i] = _format(flat[i])
        self._flat = flat
        self.series = len(flat)
        self._chunks = {}

    def _flatten(self, values: tuple[Value, ...]) -> list[float]:
        flat: list[Any] = []
        start = 0
        for i in self._histograms:
            flat += values[start:i]
            h: Histogram = values[i]  # type: ignore[assignment]
            flat += h.counts
            flat.append(h.counts[-1])
            flat.append(h.sum)
            start = i + 1
        flat += values[start:]
        return flat

    def chunks(self, *, openmetrics: bool) -> list[bytes]:
        """Return the group's lines, in pieces to be joined.

        Pieces of some 100 KiB come from memory that is at hand; one of a megabyte is fetched from
        the kernel page by page each time, which cost more than all the rest of the joining.
        """
        if not self._texts:
            return []
        if (chunks := self._chunks.get(openmetrics)) is None:
            prefixes = self._prefixes.get(openmetrics)
            if prefixes is None:
                prefixes = self._prefixes[openmetrics] = self._lines(openmetrics=openmetrics)
            pieces = [""] * (2 * len(prefixes) + 1)
            pieces[0:-1:2] = prefixes
            pieces[1::2] = self._texts
            pieces[-1] = "\n"
            chunks = self._chunks[openmetrics] = [
                "".join(pieces[start : start + _CHUNK]).encode()
                for start in range(0, len(pieces), _CHUNK)
            ]
        return chunks

    def _lines(self, *, openmetrics: bool) -> list[str]:
        """Return the text before each value, with the family's head before its first series."""
        lines: list[str] = []
        family: Metric | None = None
        bounds = iter(self._bounds)
        for metric, labels in self._keys:
            start = "\n" if lines else ""
            if metric is not family:
                family = metric
                start += _head(metric, openmetrics=openmetrics)
            pairs = [
                *zip(metric.labels, labels, strict=True), *labels_of(metric, labels, self._owned)
            ]  # fmt: skip
            series = (
                _histogram_series(metric, pairs, next(bounds))
                if metric.kind == "histogram"
                else [_series(metric.name, pairs)]
            )
            lines.append(f"{start}{series[0]} ")
            lines.extend(f"\n{one} " for one in series[1:])
        return lines


def _length(batch: Batch) -> int:
    return len(batch) + _OF_A_HISTOGRAM * len(batch.shape.histograms)


def _picker(positions: tuple[int, ...]) -> Callable[[Sequence[Value]], tuple[Value, ...]]:
    if positions == tuple(range(len(positions))):
        end = len(positions)
        return lambda values: tuple(values[:end])
    if len(positions) == 1:
        (only,) = positions
        return lambda values: (values[only],)
    return operator.itemgetter(*positions)


def _clean(value: str) -> str:
    """Return a label value that can be encoded: lone surrogates become question marks."""
    return value.encode("utf-8", "replace").decode() if not value.isascii() else value


def _format(value: float) -> str:
    text = repr(value)
    return _SPECIAL.get(text, text) if text[-1] in "nf" else text


def _format_all(values: list[float]) -> list[str]:
    texts = list(map(repr, values))
    try:
        finite = math.isfinite(sum(values))
    except OverflowError:
        finite = False
    return texts if finite else [_SPECIAL.get(text, text) for text in texts]


def _head(metric: Metric, *, openmetrics: bool) -> str:
    if not openmetrics:
        text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
        kind = "gauge" if metric.kind == "info" else metric.kind
        return f"# HELP {metric.name} {text}\n# TYPE {metric.name} {kind}\n"
    name = family_name(metric)
    said: str = metric.kind
    if said == "counter" and name == metric.name:
        said = "unknown"  # another exporter's name, which OpenMetrics does not allow a counter
    head = f"# HELP {name} {_escape(metric.help)}\n# TYPE {name} {said}\n"
    # The specification wants the unit to be the end of the family's name.
    if metric.unit and name.endswith("_" + metric.unit):
        head += f"# UNIT {name} {metric.unit}\n"
    return head


def family_name(metric: Metric) -> str:
    """Return the family's name in OpenMetrics, where the type's suffix belongs to the sample."""
    if metric.kind == "counter":
        return metric.name.removesuffix("_total")
    return metric.name.removesuffix("_info") if metric.kind == "info" else metric.name


def _series(name: str, labels: Iterable[tuple[str, str]]) -> str:
    inner = ",".join(f'{label}="{_escape(value)}"' for label, value in sorted(labels))
    return f"{name}{{{inner}}}" if inner else name


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _histogram_series(
    metric: Metric, pairs: list[tuple[str, str]], bounds: tuple[float, ...]
) -> list[str]:
    edges = [*map(bound_text, bounds), "+Inf"]
    return [
        *(_series(f"{metric.name}_bucket", [*pairs, ("le", edge)]) for edge in edges),
        _series(f"{metric.name}_count", pairs),
        _series(f"{metric.name}_sum", pairs),
    ]


def bound_text(bound: float) -> str:
    """Return a bucket's bound as Prometheus writes it: `1.0`, `0.25`, `1e+06`.

    Always with a point or an exponent: 2.x took `le="1"` and `le="1.0"` for two series.
    """
    text = repr(float(bound))
    point = text.find(".")
    if bound > 0 and point > 6:
        mantissa = f"{text[0]}.{text[1:point]}{text[point + 1 :]}".rstrip("0.")
        return f"{mantissa}e+{point - 1:02d}"
    return text


def health(sources: Iterable[SourceView], duplicates: Mapping[str, int]) -> Iterable[Sample]:
    """Return the samples that say how each source is doing."""
    for source in sources:
        name, state = source.name, source.health
        if source.state != "waiting":
            yield c.FLOPWATCH_SOURCE_UP(_UP[source.state], name)
        yield c.FLOPWATCH_SOURCE_BUSY_SECONDS(source.busy or 0, name)
        yield c.FLOPWATCH_SOURCE_READS_TOTAL(state.attempts, name)
        yield c.FLOPWATCH_SOURCE_FAILING_PARTS(sum(1 for f in source.faults if f.part), name)
        if state.last_duration is not None:
            yield c.FLOPWATCH_SOURCE_READ_DURATION_SECONDS(state.last_duration, name)
        if state.last_success is not None:
            yield c.FLOPWATCH_SOURCE_LAST_SUCCESS_TIMESTAMP_SECONDS(state.last_success, name)
        for reason, n in state.failures.items():
            yield c.FLOPWATCH_SOURCE_FAILURES_TOTAL(n, name, reason)
        drops = dict(state.drops)
        if name in duplicates:
            drops["duplicate"] = drops.get("duplicate", 0) + duplicates[name]
        for reason, n in drops.items():
            yield c.FLOPWATCH_SAMPLES_DROPPED_TOTAL(n, name, reason)


def reference() -> str:
    """Return `docs/METRICS.md`: the catalogue as a page for people."""
    lines = [
        "# Metrics",
        "",
        "Generated from `exporter/catalogue.py` by `flopwatch docs`; do not edit.",
        "",
        "Unknown is absent: a series that is not there means that the value is not known.",
    ]
    for group in c.GROUPS:
        lines += ["", f"## {group}", "", "| name | type | labels | unit | meaning |"]
        lines.append("|---|---|---|---|---|")
        for metric in c.FAMILIES.values():
            if metric.group == group:
                labels = ", ".join(f"`{label}`" for label in metric.labels)
                note = " *(experimental)*" if metric.stability == "experimental" else ""
                lines.append(
                    f"| `{metric.name}` | {metric.kind} | {labels} | {metric.unit} |"
                    f" {metric.help}{note} |"
                )
    return "\n".join(lines) + "\n"
