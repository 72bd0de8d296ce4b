"""From the texts of a set's files to its samples; what has not changed is not made anew.

Most counters of most ports stand still: their texts are compared, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from exporter import catalogue as c
from exporter.formats import sysfs
from exporter.samples import Sample
from exporter.sources.network.counters import is_level
from exporter.sources.network.layout import CounterSet, File, Series
from exporter.sources.network.wrapping import Laps


class Known:
    """What a set's files said the last time, and the samples of that. A text of None is unknown."""

    def __init__(self, counters: CounterSet) -> None:
        self.paths = [file.path for file in counters.files]
        self._files = counters.files
        self._series = counters.series
        self._texts: list[bytes | None] = [None] * len(self.paths)
        self._values: list[int | None] = [None] * len(self.paths)
        self._raw: list[list[Sample]] = [[] for _ in self.paths]
        self._made: list[list[Sample]] = [[] for _ in counters.series]
        self._samples: list[Sample] = []
        self._made_of = [
            [number for number, series in enumerate(counters.series) if at in series.at]
            for at in range(len(self.paths))
        ]

    def tell(self, texts: Sequence[bytes | None], laps: Laps) -> list[Sample]:
        """Return the samples of what the files say now."""
        if texts == self._texts:
            return self._samples
        changed: set[int] = set()
        known = self._texts
        for at, text in enumerate(texts):
            if text != known[at]:
                self._take(at, text, laps)
                changed.update(self._made_of[at])
        self._texts = list(texts)
        values = self._values
        for number in changed:
            series = self._series[number]
            self._made[number] = _samples(series, [values[i] for i in series.at])
        self._samples = list(chain(*self._raw, *self._made))
        return self._samples

    def _take(self, at: int, text: bytes | None, laps: Laps) -> None:
        file = self._files[at]
        value = None if text is None else sysfs.number(text)
        if value is not None and file.wraps:
            value = laps.unwrap(file.path, value)
        self._values[at] = value
        if file.raw is not None:
            self._raw[at] = [] if value is None else [_raw(file, file.raw, value)]


def _raw(file: File, labels: tuple[str, ...], value: int) -> Sample:
    return Sample(c.NIC_RAW_LEVEL if is_level(file.name) else c.NIC_RAW_TOTAL, labels, value)


def _samples(series: Series, found: Sequence[int | None]) -> list[Sample]:
    """Return a counter, and that it stands at its top if it does."""
    value = found[0] if len(found) == 1 else _together(series, found)
    if value is None:
        return []
    reading = series.reading
    samples = []
    if value == reading.top and reading.top:
        samples.append(Sample(c.NIC_SATURATED, series.top, 1))
        if reading.fast:
            return samples
    samples.append(Sample(reading.metric, series.labels, value * reading.scale))
    if reading.also is not None:
        samples.append(Sample(reading.also, series.labels[:2], value))
    return samples


def _together(series: Series, found: Sequence[int | None]) -> int | None:
    """Return the sum of parts, all of which must be known; of twins the greater one."""
    known = [value for value in found if value is not None]
    if series.reading.adds:
        return sum(known) if len(known) == len(found) else None
    return max(known, default=None)
