"""The last hour in memory: what is kept of a series, what is a gap, and what it costs."""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Sequence

import pytest

from exporter import catalogue as c
from exporter.history import INTERVAL, POINTS, TRACKS, History, Kept
from exporter.samples import Health, Histogram, Sample, Shape, SourceView, View, in_columns
from exporter.sinks.history import HistorySink
from tests.fakes import FakeClock

CARD = ("0", "GPU-0")
EMPTY = Shape((), ())


def view(*samples: Sample, age: float = 0.0) -> View:
    batch = in_columns(samples, EMPTY)
    return View((SourceView("nvml", c.GPU, "up", Health(), batch=batch, age=age),), token=())


def noted(*beats: Sequence[Sample], start: float = 1000.0) -> History:
    """Return a history that saw these samples at one beat after the other."""
    history = History()
    for number, samples in enumerate(beats):
        history.note(view(*samples), start + number * INTERVAL)
    return history


def told(history: History, name: str, since: int | None = None) -> list[Kept]:
    return [one for one in history.since(since)[1] if one.name == name]


def hot(celsius: float, uuid: str = "GPU-0") -> Sample:
    return c.GPU_TEMPERATURE_CELSIUS(celsius, "0", uuid, "core")


def test_a_level_is_kept_at_each_beat() -> None:
    """What a gauge said at each beat, from the oldest to the newest, by its labels."""
    history = noted([hot(55)], [hot(60)])
    assert history.since(None)[0] == 100
    assert history.beat == 101
    (one,) = told(history, "gpu_temperature_celsius")
    assert one.labels == {"gpu": "0", "uuid": "GPU-0"}
    assert one.values == (55, 60)


def test_only_the_wanted_labels_are_kept() -> None:
    """Of the sensors it is the core that is drawn."""
    memory = c.GPU_TEMPERATURE_CELSIUS(90, *CARD, "memory")
    (one,) = told(noted([memory, hot(55)]), "gpu_temperature_celsius")
    assert one.values == (55,)


def test_a_counter_is_kept_as_its_rate() -> None:
    """A point is the mean over the beat, whatever happened in between; the first has none."""
    beats = [[c.GPU_SM_ACTIVE_SECONDS_TOTAL(total, *CARD)] for total in (100, 108, 110.5)]
    (one,) = told(noted(*beats), "gpu_sm_active_ratio")
    assert one.values == (None, 0.8, 0.25)


def test_a_counter_that_fell_is_a_gap() -> None:
    """After a reset the rate is not known, and the next one is."""
    beats = [[c.GPU_SM_ACTIVE_SECONDS_TOTAL(total, *CARD)] for total in (100, 105, 1, 6)]
    (one,) = told(noted(*beats), "gpu_sm_active_ratio")
    assert one.values == (None, 0.5, None, 0.5)


def test_a_rate_is_taken_between_readings_not_between_looks() -> None:
    """A source that is read each 30 s says the same rate until it is read again."""
    history = History()
    for beat, (total, age) in enumerate([(0, 0), (0, 10), (0, 20), (15, 0), (15, 10)]):
        history.note(view(c.GPU_SM_ACTIVE_SECONDS_TOTAL(total, *CARD), age=age), 1000.0 + beat * 10)
    (one,) = told(history, "gpu_sm_active_ratio")
    assert one.values == (None, None, None, 0.5, 0.5)


def test_what_is_absent_is_a_gap() -> None:
    """A GPU that was lost for a beat has no point there: never the last value."""
    (one,) = told(noted([hot(55)], [], [hot(57)]), "gpu_temperature_celsius")
    assert one.values == (55, None, 57)


def test_beats_that_were_missed_are_gaps() -> None:
    """A daemon that was suspended for a minute does not draw a line over it."""
    history = noted([hot(55)])
    history.note(view(hot(57)), 1000.0 + 4 * INTERVAL)
    assert told(history, "gpu_temperature_celsius")[0].values == (55, None, None, None, 57)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300])
def test_what_is_no_number_is_a_gap(value: float) -> None:
    """A loss that is NaN, and what a point cannot hold: JSON has no word for it."""
    (one,) = told(noted([c.TRAIN_LOSS(value, "run")]), "train_loss")
    assert one.values == (None,)


def test_a_histogram_is_not_drawn() -> None:
    """A family that changes its kind costs nothing but its line."""
    odd = Sample(c.TRAIN_LOSS, ("run",), Histogram((1.0,), (0, 0), 0.0))
    assert told(noted([odd]), "train_loss") == []


def test_an_hour_is_kept() -> None:
    """The oldest point goes when a new one comes."""
    history = noted(*([hot(degrees)] for degrees in range(POINTS + 5)))
    first, kept = history.since(None)
    assert history.beat is not None
    assert first == history.beat - POINTS + 1
    assert kept[0].values == tuple(range(5, POINTS + 5))


def test_what_has_gone_for_an_hour_is_forgotten() -> None:
    """A run of yesterday is not among the series of today."""
    history = noted([hot(50)], *([] for _ in range(POINTS)))
    assert history.since(None)[1] == []


def test_only_what_is_new_is_told() -> None:
    """Who has seen points up to a number is told those after it; who is far behind, all."""
    history = noted([hot(1)], [hot(2)], [hot(3)])
    assert history.since(101) == (102, told(history, "gpu_temperature_celsius", 101))
    assert told(history, "gpu_temperature_celsius", 101)[0].values == (3,)
    assert told(history, "gpu_temperature_celsius", 102)[0].values == ()
    for stranger in (0, 5, 103, 10**15 - 1):
        assert history.since(stranger) == history.since(None)


def test_an_empty_history_says_so() -> None:
    """A daemon that has just begun has no points, and no number of one."""
    assert History().beat is None
    assert History().since(None) == (0, [])


def runs(number: int) -> list[Sample]:
    return [c.TRAIN_LOSS(1.0, f"run-{i}") for i in range(number)]


def test_names_that_others_choose_find_no_more_room_than_there_is() -> None:
    """A thousand runs get eight lines; the rest is counted, and takes nothing from the GPUs."""
    history = noted([*runs(1000), hot(50)])
    assert len(told(history, "train_loss")) == 8
    assert len(told(history, "gpu_temperature_celsius")) == 1
    assert history.refused == 992


def test_who_has_left_makes_room() -> None:
    """A run that has ended gives its place to one that begins; nobody else loses a point."""
    full = runs(8)
    history = noted(full, full, full[1:], [*full[1:], c.TRAIN_LOSS(2.0, "new")])
    names = [one.labels["run"] for one in told(history, "train_loss")]
    assert "new" in names
    assert "run-0" not in names
    assert len(names) == 8


def test_memory_is_fixed() -> None:
    """All series that there can be take what the module says, for hours on end."""
    history = History()
    samples = [
        track.metric(1.0, *labels(track.metric.labels, dict(track.where), i))
        for track in TRACKS
        for i in range(track.most if track.keys else 1)
    ]
    tracemalloc.start()
    try:
        seen = view(*samples)
        before = tracemalloc.get_traced_memory()[0]
        for beat in range(10):
            history.note(seen, beat * INTERVAL)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    kept = history.since(None)[1]
    assert len(kept) == sum(track.most for track in TRACKS) == 473
    assert 473 * POINTS * 4 < taken < 1.2e6


def labels(names: Sequence[str], where: dict[str, str], number: int) -> list[str]:
    return [where.get(name, f"{name}{number}") for name in names]


def test_what_is_told_is_json() -> None:
    """Strict JSON with four digits: what is drawn is not wider than a hundred dots."""
    (one,) = told(noted([c.TRAIN_LOSS(2.718281828, "run")]), "train_loss")
    assert json.loads(json.dumps(one._asdict(), allow_nan=False))["values"] == [2.718]


def test_sink_notes_what_the_board_holds() -> None:
    """The sink looks at the board each time it is stepped; what found no room it has dropped."""
    history, clock = History(), FakeClock()
    sink = HistorySink(history, lambda _: view(*runs(9)), clock)
    (drop,) = sink.read()
    assert (drop.reason, drop.number) == ("history", 1)
    assert len(told(history, "train_loss")) == 8
    assert (sink.name, sink.group) == ("history", c.EXPORTER)
    sink.close()
