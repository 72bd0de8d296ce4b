"""The last hour of a few dozen series, in memory: what the status page draws.

A ring of single-precision numbers for each series, fed from the board on a beat. What was not
known at a beat is a gap. Counters are kept as rates between readings, so that a point is the mean
over its ten seconds and not a glance at one of them. Nothing is written to disk: a daemon that
starts has an empty history, and whoever wants more than an hour asks Prometheus.

A series takes 1,440 bytes for its points; the tracks below allow 473 series, 0.7 MB. A node of
eight GPUs with two servers and a run has about 120, 0.2 MB.
"""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from exporter import catalogue as c
from exporter.samples import Metric, Shape, SourceView, View

INTERVAL = 10.0
"""Seconds from one point to the next."""

POINTS = 360
"""Points of a series: an hour."""


class Track(NamedTuple):
    """Which series are kept under a name: those of `metric` that have the labels `where`.

    They are told apart by the labels `keys`. A `level` is kept as it is, of a counter its `rate` in
    units a second. At most `most` series are kept: names are chosen by others.
    """

    name: str
    metric: Metric
    kind: Literal["level", "rate"]
    keys: tuple[str, ...]
    most: int
    where: tuple[tuple[str, str], ...] = ()


def _gpu(name: str, metric: Metric, kind: Literal["level", "rate"], **where: str) -> Track:
    return Track(name, metric, kind, ("gpu", "uuid"), 32, tuple(where.items()))


def _run(metric: Metric, **where: str) -> Track:
    return Track(metric.name, metric, "level", ("run",), 8, tuple(where.items()))


def _model(
    name: str, metric: Metric, kind: Literal["level", "rate"] = "level", **where: str
) -> Track:
    keys = ("server", "model_name", "model_version")
    return Track(name, metric, kind, keys, 16, tuple(where.items()))


def _quantile(signal: str) -> Track:
    return _model(
        f"llm_{signal}_p95_seconds", c.LLM_LATENCY_QUANTILE_SECONDS,
        signal=signal, percentile="p95", window="5m",
    )  # fmt: skip


TRACKS = (
    _gpu("gpu_busy_ratio", c.GPU_BUSY_SECONDS_TOTAL, "rate"),
    _gpu("gpu_sm_active_ratio", c.GPU_SM_ACTIVE_SECONDS_TOTAL, "rate"),
    _gpu("gpu_tensor_active_ratio", c.GPU_TENSOR_ACTIVE_SECONDS_TOTAL, "rate"),
    _gpu("gpu_dram_active_ratio", c.GPU_DRAM_ACTIVE_SECONDS_TOTAL, "rate"),
    _gpu("gpu_power_watts", c.GPU_ENERGY_JOULES_TOTAL, "rate"),
    _gpu("gpu_memory_used_bytes", c.GPU_MEMORY_USED_BYTES, "level"),
    _gpu("gpu_temperature_celsius", c.GPU_TEMPERATURE_CELSIUS, "level", sensor="core"),
    _gpu("gpu_clock_hertz", c.GPU_CLOCK_HERTZ, "level", domain="sm"),
    Track("train_mfu_ratio", c.TRAIN_MFU_RATIO, "level", ("run", "convention", "peak"), 32),
    _run(c.TRAIN_TOKENS_PER_SECOND),
    _run(c.TRAIN_STEP_MEDIAN_SECONDS),
    _run(c.TRAIN_LOSS),
    _quantile("ttft"),
    _quantile("tpot"),
    _model("llm_output_tokens_per_second", c.LLM_TOKENS_TOTAL, "rate", direction="output"),
    _model("llm_active_requests", c.LLM_ACTIVE_REQUESTS),
    _model("llm_waiting_requests", c.LLM_WAITING_REQUESTS),
    _model("llm_kv_cache_usage_ratio", c.LLM_KV_CACHE_USAGE_RATIO),
    Track(
        "nic_receive_bytes_per_second", c.NIC_RECEIVE_BYTES_TOTAL, "rate", ("device", "port"), 24
    ),
    Track(
        "nic_transmit_bytes_per_second", c.NIC_TRANSMIT_BYTES_TOTAL, "rate", ("device", "port"), 24
    ),
    Track(
        "sla_compliance_ratio", c.SLA_COMPLIANCE_RATIO, "level",
        ("sla", "objective", "tier", "model_name", "server"), 16, (("window", "5m"),),
    ),
    Track("cost_dollars_per_hour", c.COST_DOLLARS_PER_HOUR, "level", (), 1),
)  # fmt: skip

Labels = tuple[str, ...]


@dataclass(slots=True)
class Line:
    """One series: a ring of points, and for a rate the reading that the next one is held against.

    `beat` is the last one with a point, `taken` monotonic seconds.
    """

    points: array[float] = field(default_factory=lambda: array("f", [math.nan]) * POINTS)
    beat: int = 0
    taken: float = math.nan
    total: float = math.nan
    rate: float = math.nan

    def note(self, beat: int, value: float) -> None:
        """Keep the point of a beat."""
        self.points[beat % POINTS] = value
        self.beat = beat

    def rated(self, taken: float, total: float) -> float:
        """Return the rate up to a reading; NaN for the first one and after a reset.

        A reading that was seen before says the same again: sources may be slower than the beat.
        """
        if taken != self.taken:
            fell = not total >= self.total
            self.rate = math.nan if fell else (total - self.total) / (taken - self.taken)
            self.taken, self.total = taken, total
        return self.rate


class Kept(NamedTuple):
    """A series as it is told: its points from the oldest to the newest, `None` where not known."""

    name: str
    labels: dict[str, str]
    values: tuple[float | None, ...]


class History:
    """The rings of all tracks. One thread notes, any may look."""

    def __init__(self, tracks: tuple[Track, ...] = TRACKS) -> None:
        self._tracks = tracks
        self._lines: tuple[dict[Labels, Line], ...] = tuple({} for _ in tracks)
        self._plans: dict[Shape, tuple[tuple[int, int, Labels], ...]] = {}
        self._lock = threading.Lock()
        self._beat: int | None = None
        self._first = 0
        self._refused = 0

    @property
    def beat(self) -> int | None:
        """The number of the newest point, counted on the machine's clock; `None` before it."""
        return self._beat

    @property
    def refused(self) -> int:
        """Series that found no room at the newest beat."""
        return self._refused

    def note(self, view: View, now: float) -> None:
        """Keep a point of each series in `view`, which is of `now` in monotonic seconds."""
        beat = int(now // INTERVAL)
        with self._lock:
            self._turn(beat)
            self._refused = 0
            plans: dict[Shape, tuple[tuple[int, int, Labels], ...]] = {}
            for source in view.sources:
                shape = source.batch.shape
                plans[shape] = plan = self._plans.get(shape) or tuple(self._plan(shape))
                if plan:
                    self._note(source, plan, beat, now)
            self._plans = plans

    def _turn(self, beat: int) -> None:
        """Empty the points since the last beat, and forget what has had none for an hour."""
        former = beat if self._beat is None else self._beat
        if self._beat is None or beat < former:
            self._first = beat
        self._beat = beat
        passed = range(former + 1, min(beat, former + POINTS) + 1)
        for lines in self._lines:
            for labels in [k for k, line in lines.items() if not 0 <= beat - line.beat < POINTS]:
                del lines[labels]
            for line in lines.values():
                for at in passed:
                    line.points[at % POINTS] = math.nan

    def _plan(self, shape: Shape) -> Iterator[tuple[int, int, Labels]]:
        """Yield track, index in the shape, and labels of each series that is kept."""
        for number, track in enumerate(self._tracks):
            names = track.metric.labels
            where = [(names.index(name), value) for name, value in track.where]
            keys = [names.index(name) for name in track.keys]
            for index in shape.families.get(track.metric, ()):
                labels = shape.labels[index]
                if all(labels[at] == value for at, value in where):
                    yield number, index, tuple([labels[at] for at in keys])

    def _note(
        self, source: SourceView, plan: tuple[tuple[int, int, Labels], ...], beat: int, now: float
    ) -> None:
        taken = now - (source.age or 0.0)
        values = source.batch.values
        for number, index, labels in plan:
            value = values[index]
            if not isinstance(value, int | float):
                continue
            line = self._line(number, labels, beat)
            if line is None:
                self._refused += 1
                continue
            rates = self._tracks[number].kind == "rate"
            line.note(beat, line.rated(taken, value) if rates else value)

    def _line(self, number: int, labels: Labels, beat: int) -> Line | None:
        """Return the ring of a series; `None` where there is no room for another."""
        lines = self._lines[number]
        line = lines.get(labels)
        if line is None:
            most = self._tracks[number].most
            if len(lines) >= most:
                gone = min(lines, key=lambda one: lines[one].beat)
                if lines[gone].beat >= beat - 1:
                    return None
                del lines[gone]
            line = lines[labels] = Line(beat=beat)
        return line

    def since(self, beat: int | None) -> tuple[int, list[Kept]]:
        """Return the number of the first point told, and the points of all series after `beat`.

        Without a beat, and with one that was never or long ago, that is all there is.
        """
        with self._lock:
            newest = self._beat
            if newest is None:
                return 0, []
            first = max(self._first, newest - POINTS + 1)
            if beat is not None and first <= beat <= newest:
                first = beat + 1
            rings = [
                (track, labels, line.points[:])
                for track, lines in zip(self._tracks, self._lines, strict=True)
                for labels, line in lines.items()
            ]
        spots = [at % POINTS for at in range(first, newest + 1)]
        return first, [
            Kept(track.name, dict(zip(track.keys, labels, strict=True)), _told(ring, spots))
            for track, labels, ring in rings
        ]


def _told(ring: array[float], spots: list[int]) -> tuple[float | None, ...]:
    return tuple([_number(ring[at]) for at in spots])


def _number(value: float) -> float | None:
    return float(f"{value:.4g}") if math.isfinite(value) else None
