"""What the servers counted, over rolling windows: the one memory that all of serving draws on.

Engines tell totals since their start. The book turns them into increases: within the last minute,
five minutes, half hour and hour, and since the last `turn`. It takes the page's counters and
histograms as they come, and keeps for each source the totals since it was first seen, in slots of
five seconds, beyond five minutes of half a minute, for an hour.

What a page may do to us, and what becomes of it (notes of the engines' users are the source of
most): the first sight of a server is a baseline, and so is that of a model on its page; of what is
known already a new series (another outcome, another family) counts from zero. A restart counts from
zero. Where a page has a start time it is one that began after the last reading, and nothing else:
several servers behind one address give start times that are older, or that go back. Elsewhere each
model, and the page's own counters, begin anew if nearly all that had counted fell to half or less.

A counter that falls otherwise, buckets that shrink, a sum that falls (a clock was set back during
a request), other bucket bounds, a data-parallel rank that came, went or was replaced, a start time
that is no restart's: that increase is left out and counted as an anomaly, and the new value is the
baseline. A sum that its buckets contradict otherwise is counted too. Nothing is ever negative, and
no history is taken for news: a few events may be lost where it is one or the other.

A gap is bridged by windows that are at least half as long: what came meanwhile did happen. Shorter
ones begin anew after it. Models that are gone for an hour leave no places behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from exporter import catalogue as c
from exporter.derive.serving.increase import Increase
from exporter.derive.serving.track import KEPT, STEP, WINDOWS, Entity, Spot, Track
from exporter.samples import Batch, Metric, Snapshot, View

__all__ = ["INPUTS", "STEP", "WINDOWS", "Anomaly", "Book", "Entity", "Stats"]

INPUTS: tuple[Metric, ...] = (
    c.LLM_SERVER_INFO,
    c.LLM_SERVER_START_TIME_SECONDS,
    c.LLM_SERVER_RANKS,
    c.LLM_RANK_CHANGES_TOTAL,
    c.LLM_TTFT_SECONDS,
    c.LLM_TPOT_SECONDS,
    c.LLM_ITL_SECONDS,
    c.LLM_E2E_SECONDS,
    c.LLM_QUEUE_SECONDS,
    c.LLM_PREFILL_SECONDS_TOTAL,
    c.LLM_DECODE_SECONDS_TOTAL,
    c.LLM_REQUEST_DURATION_SECONDS_TOTAL,
    c.LLM_REQUEST_QUEUEING_SECONDS_TOTAL,
    c.LLM_TOKENS_TOTAL,
    c.LLM_PREFILL_TOKENS_TOTAL,
    c.LLM_FINISHED_INPUT_TOKENS_TOTAL,
    c.LLM_FINISHED_OUTPUT_TOKENS_TOTAL,
    c.LLM_ENGINE_STEPS_TOTAL,
    c.LLM_DRAFT_TOKENS_TOTAL,
    c.LLM_ACCEPTED_DRAFT_TOKENS_TOTAL,
    c.LLM_ACTIVE_REQUESTS,
    c.LLM_WAITING_REQUESTS,
    c.LLM_KV_CACHE_USAGE_RATIO,
    c.LLM_KV_CACHE_CAPACITY_TOKENS,
    c.LLM_CONCURRENCY_LIMIT,
    c.LLM_REQUESTS_TOTAL,
    c.LLM_HTTP_RESPONSES_TOTAL,
    c.LLM_RETRIES_TOTAL,
    c.LLM_PREEMPTIONS_TOTAL,
    c.LLM_PREFIX_CACHE_QUERIED_TOKENS_TOTAL,
    c.LLM_PREFIX_CACHE_HIT_TOKENS_TOTAL,
    c.LLM_ESTIMATED_GPU_FLOPS_TOTAL,
    c.LLM_ESTIMATED_GPU_READ_BYTES_TOTAL,
    c.LLM_ESTIMATED_GPU_WRITTEN_BYTES_TOTAL,
    c.LLM_PROBES_TOTAL,
)
"""What the book reads."""

_WANTED = frozenset(INPUTS)


class Stats(NamedTuple):
    """What a gauge was over a window: its mean over time, and the most that was seen."""

    mean: float
    maximum: float


class Anomaly(NamedTuple):
    """An increase that was left out: of which server, and of what kind."""

    server: str
    kind: str


class Book:
    """Increases of all servers' counters and histograms over windows; see the module's text.

    `resets` are the restarts of each server that it knows of; `told` are those that it may tell
    (`doubt`), and so are the `anomalies`.
    """

    def __init__(self) -> None:
        self._tracks: dict[str, Track] = {}
        self._fresh: dict[str, Batch] = {}
        self._homes: dict[str, Track] = {}
        self._spots: dict[_Series, tuple[Track, Spot]] = {}
        self._rows: dict[tuple[_Series, str], list[_Row]] = {}
        self._left: dict[Entity, list[tuple[Track, int]]] | None = None
        self._now = 0.0
        self.resets: dict[str, int] = {}
        self.told: dict[str, int] = {}
        self.anomalies: dict[Anomaly, int] = {}

    # ------------------------------------------------------------ taking readings

    def observe(self, view: View, now: float) -> None:
        """Take what is new on the board; `now` is the view's moment in monotonic seconds."""
        self._now = now
        self._fresh = {}
        for source in view.sources:
            if not _WANTED.isdisjoint(source.batch.shape.families):
                self._fresh[source.name] = source.batch
                track = self._track(source.name)
                if source.batch is not track.batch:
                    partial, last = bool(source.faults), source.last
                    wall = last.wall if last is not None and last.batch is source.batch else None
                    taken = now - (source.age or 0.0)
                    self._take(track, source.batch, taken, wall, partial=partial)
            elif source.last is not None:
                self._catch_up(source.name, source.last)
        gone = [name for name, track in self._tracks.items() if now - track.taken > KEPT]
        if gone:
            self._forget(gone)

    def turn(self) -> None:
        """Begin the window `STEP` anew; there is one for all who ask."""
        for track in self._tracks.values():
            track.turn()

    def _forget(self, names: Iterable[str]) -> None:
        """Forget servers that come no more, and what is counted of them."""
        for name in names:
            del self._tracks[name]
        self._index()
        self.resets = {s: n for s, n in self.resets.items() if s in self._homes}
        self.told = {s: n for s, n in self.told.items() if s in self._homes}
        self.anomalies = {k: n for k, n in self.anomalies.items() if k.server in self._homes}

    def _catch_up(self, name: str, last: Snapshot) -> None:
        """Take what a server told before it failed, if no round has seen that."""
        track = self._tracks.get(name)
        if track is not None and track.batch is not last.batch and track.taken < last.taken:
            self._take(track, last.batch, last.taken, last.wall, partial=bool(last.faults))

    def _track(self, name: str) -> Track:
        track = self._tracks.get(name)
        if track is None or track.full:
            if track is not None:
                self._note(track.server, "crowd")
            track = self._tracks[name] = Track(_WANTED)
        return track

    def _note(self, server: str, kind: str) -> None:
        key = Anomaly(server, kind)
        self.anomalies[key] = self.anomalies.get(key, 0) + 1

    def _take(
        self, track: Track, batch: Batch, taken: float, wall: float | None, *, partial: bool
    ) -> None:
        grown = track.read(batch, taken, partial=partial, wall=wall)
        server = track.server
        if track.restarted:
            self.resets[server] = self.resets.get(server, 0) + 1
            self.told[server] = self.told.get(server, 0) + 1
        for kind in track.anomalies:
            self._note(server, kind)
        if grown:
            self._index()

    def _index(self) -> None:
        """Note where each series is kept, and who the entities are."""
        self._spots, self._homes, self._rows, self._left = {}, {}, {}, None
        for track in self._tracks.values():
            for series, spot in track.spots.items():
                self._spots[series] = track, spot
            if track.server:
                self._homes[track.server] = track

    # ------------------------------------------------------------ who there is

    def servers(self) -> list[str]:
        """Return the servers whose page is fresh."""
        return [t.server for n, t in self._tracks.items() if t.server and n in self._fresh]

    def entities(self) -> list[Entity]:
        """Return who serves, by the pages that are fresh."""
        return self._entities_of(n for n in self._tracks if n in self._fresh)

    def known(self) -> list[Entity]:
        """Return who has served within the last hour, whether or not there is a page now."""
        return self._entities_of(self._tracks)

    def former(self) -> list[Entity]:
        """Return who is on its server's page no more, and did something within the last hour."""
        if self._left is None:
            self._left, here = {}, set(self.known())
            for (metric, labels), (track, spot) in self._spots.items():
                if metric.kind == "gauge" or "model_name" not in metric.labels:
                    continue
                who = Entity(*(labels[metric.labels.index(name)] for name in _WHO))
                if who not in here:
                    count = spot.at + len(spot.bounds)
                    self._left.setdefault(who, []).append((track, count))
        return [who for who, places in self._left.items() if self._has_grown(places)]

    def _has_grown(self, places: Iterable[tuple[Track, int]]) -> bool:
        rows = ((track.grown("1h", self._now), at) for track, at in places)
        return any(grown is not None and grown[at] > 0 for grown, at in rows)

    def listed(self, view: View) -> set[str]:
        """Return the servers whose source is on the board, even if it fails."""
        names = {source.name for source in view.sources}
        return {track.server for name, track in self._tracks.items() if name in names}

    def _entities_of(self, names: Iterable[str]) -> list[Entity]:
        return [entity for name in names for entity in self._tracks[name].entities]

    # ------------------------------------------------------------ what has been

    def increase(self, metric: Metric, entity: Entity, window: str, **labels: str) -> float | None:
        """Return how much a counter has risen over a window; nothing if it is not known."""
        found = self._spots.get((metric, _labels(metric, entity, labels)))
        if found is None:
            return None
        track, spot = found
        grown = track.grown(window, self._now)
        return None if grown is None else grown[spot.at]

    def by(
        self, metric: Metric, entity: Entity, label: str, window: str, **labels: str
    ) -> dict[str, float]:
        """Return how much a counter has risen over a window, for each value of one label."""
        series = metric, _labels(metric, entity, {**labels, label: ""})
        rows = self._rows.get((series, label))
        if rows is None:
            rows = self._rows[series, label] = list(self._matching(series, label, entity))
        found: dict[str, float] = {}
        for value, track, at in rows:
            grown = track.grown(window, self._now)
            if grown is not None:
                found[value] = grown[at]
        return found

    def _matching(self, series: _Series, label: str, entity: Entity) -> Iterator[_Row]:
        """Yield where a family is kept whose other labels are these, with the value of `label`."""
        metric, pattern = series
        place = metric.labels.index(label)
        for track in self._tracks_of(metric, entity):
            for values, spot in track.families[metric]:
                if (*values[:place], "", *values[place + 1 :]) == pattern:
                    yield values[place], track, spot.at

    def histogram(self, metric: Metric, entity: Entity, window: str) -> Increase | None:
        """Return the observations of a window; nothing if the engine has no such histogram."""
        found = self._spots.get((metric, _labels(metric, entity, {})))
        if found is None:
            return None
        track, spot = found
        return track.histogram(spot, window, self._now)

    def gauge(self, metric: Metric, entity: Entity, window: str, **labels: str) -> Stats | None:
        """Return mean and maximum of a gauge over a window."""
        found = self._spots.get((metric, _labels(metric, entity, labels)))
        if found is None:
            return None
        track, spot = found
        grown = track.grown(window, self._now)
        if grown is None or not grown[spot.at + 1] > 0:
            return None
        maximum = track.highest(spot.gauge, window, self._now)
        return Stats(grown[spot.at] / grown[spot.at + 1], maximum)

    def latest(self, metric: Metric, entity: Entity, **labels: str) -> float | None:
        """Return the value of a gauge on a page that is fresh."""
        series = (metric, _labels(metric, entity, labels))
        found = self._spots.get(series)
        if found is None or not self._is_fresh(found[0]):
            return None
        return found[0].present.get(series)

    # ------------------------------------------------------------ how much is known

    def seconds(self, server: str, window: str) -> float:
        """Return the time between the first and the last reading of a window, gaps and all."""
        track = self._homes.get(server)
        return 0.0 if track is None else track.span(window, self._now)

    def filled(self, server: str, window: str) -> float:
        """Return for which share of a window there are readings, 0 to 1. A gap has none."""
        track = self._homes.get(server)
        covered = 0.0 if track is None else track.covered(window, self._now)
        return min(1.0, covered / WINDOWS[window])

    def _is_fresh(self, track: Track) -> bool:
        return any(self._tracks.get(name) is track for name in self._fresh)

    def _tracks_of(self, metric: Metric, entity: Entity) -> list[Track]:
        home = self._homes.get(entity.server)
        if home is not None and metric in home.families:
            return [home]
        return [track for track in self._tracks.values() if metric in track.families]

    # ------------------------------------------------------------ beyond our own end

    def memory(self) -> dict[str, Any]:
        """Return all that is remembered, as plain values; times are ages in seconds."""
        return {
            "tracks": {name: track.memory(self._now) for name, track in self._tracks.items()},
            "resets": dict(self.resets),
            "told": dict(self.told),
            "anomalies": [[*key, number] for key, number in self.anomalies.items()],
        }

    def restore(self, memory: Mapping[str, Any], now: float, age: float) -> None:
        """Take over what another book remembered `age` seconds ago, before the first round.

        Raises `KeyError`, `TypeError` or `ValueError` if it is not what `memory` returns.
        """
        tracks = {n: Track.restored(_WANTED, m, now - age) for n, m in memory["tracks"].items()}
        resets, told = ({str(s): int(n) for s, n in memory[k].items()} for k in ("resets", "told"))
        anomalies = {Anomaly(str(s), str(k)): int(n) for s, k, n in memory["anomalies"]}
        self._tracks, self.resets, self.told, self.anomalies = tracks, resets, told, anomalies
        self._now = now
        self._index()

    def doubt(self) -> None:
        """Take what was restored for older than what was told last: a daemon was killed.

        Restarts and anomalies since then are not known: their counters begin at zero rather than
        fall back a little, which Prometheus would take for all of them anew.
        """
        self.told, self.anomalies = {}, {}


_Series = tuple[Metric, tuple[str, ...]]
_Row = tuple[str, Track, int]  # the value of a label, whose series, its place
_WHO = Entity._fields


def _labels(metric: Metric, entity: Entity, given: Mapping[str, str]) -> tuple[str, ...]:
    if given:
        of = {**entity._asdict(), **given}
        return tuple([of[name] for name in metric.labels])
    return entity if metric.labels == _WHO else tuple([getattr(entity, n) for n in metric.labels])
