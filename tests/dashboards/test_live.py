"""Every query of every board, asked of a real Prometheus that has scraped the demo's node.

The node goes through a timetable of faults (`TIMETABLE`), so that panels about faults have
something to show, and each story is told by its panel: the value before and after.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from dashboards.grafana import QueryError, Series
from tests.dashboards.board_lab import BOARDS, BoardLab, Phase, running_lab

Tool = Callable[[str], str]

# A notice is announced so many seconds after the node was born; the first phase begins at 40.
TIMETABLE = (
    Phase("calm", 65, {}),
    # Rail 3 has a bad cable in this scenario: it goes down by itself after a minute and a quarter,
    # for as long.
    Phase("serving", 105, {"load": 1.8, "agents": 0.6, "notice": 140.0, "fate": "stop",
                           "paused": 0.2, "pausing": 0.05}),
    Phase("mended", 45, {}),
    Phase("training", 100, {"hot": 1, "data": 0.15, "lost": 6}),
    Phase("cut", 95, {"cut": 2}),
)  # fmt: skip
NAMES = [file.stem for file in sorted(BOARDS.glob("*.json"))]

_ABSENT = {
    "no such fault is injected": {
        "flopwatch-cost": ("Announcements B", "Announcements C"),
        "flopwatch-fabric": (
            "NVLinks down A", "NVLink errors A", "Acknowledgements that did not come A",
            "Errors by lane A", "Faults of modules A", "Links that went down B",
            "Marked and lost B", "Marked and lost C", "PCIe behind the ports A",
            "PCIe links below what they could be A",
        ),
        "flopwatch-inference-sla": ("Servers H",),
        "flopwatch-node": ("NVLink errors A",),
        "flopwatch-training": ("Steps that were wasted A", "What withholds MFU A"),
    },
    "nothing fails in the daemon": {
        "flopwatch-exporter": ("Sources that fail A", "Samples left out A"),
        "flopwatch-fleet": ("Nodes I",),
    },
    "the fake driver is in this process, and takes no time": {
        "flopwatch-exporter": ("Memory B", "Processor time B", "Processor time C"),
    },
    "no run is interrupted and goes on": {
        "flopwatch-cost": ("Cost of interruptions A", "Runs F"),
        "flopwatch-training": ("Interruptions A",),
    },
    "thresholds of which burn rates are told are bounds of the buckets": {
        "flopwatch-inference-sla": ("Burn rates over an hour B",),
    },
    "each GPU belongs to a pod": {"flopwatch-cost": ("Cost of an hour by state C",)},
    "a first daemon has no gap before it": {"flopwatch-cost": ("Nodes D",)},
    "the job is neither a pipeline nor hides its communication, and has no baseline": {
        "flopwatch-training": ("Efficiency C", "Efficiency D", "Efficiency E", "Efficiency I"),
    },
    "Megatron prints no MFU": {"flopwatch-training": ("MFU by convention C",)},
    "the job leaves no profile": {
        "flopwatch-training": (
            "Kernels that take most A", "Time by class of kernels A", "What the GPUs did A",
        ),
    },
}  # fmt: skip
EXCEPTIONS = {
    (board, query): reason
    for reason, boards in _ABSENT.items()
    for board, queries in boards.items()
    for query in queries
}
"""Queries that bring nothing, or nothing but zeros, by board and panel with the letter; why."""

BY_CHANCE = {
    # A read is under way when Prometheus comes, or none is.
    ("flopwatch-exporter", "Reads that hang A"),
    # Activity is not known until the first reading, which may come before Prometheus does.
    ("flopwatch-cost", "Cost of an hour by state D"),
    # The job has to have told of its tokens twice, five minutes apart.
    ("flopwatch-cost", "Runs C"),
    ("flopwatch-fleet", "Training cost per million tokens A"),
}
"""Queries of which no run of the lab can say what they bring."""


@pytest.fixture(scope="module")
def lab(tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardLab]:
    with running_lab(tool("prometheus"), tmp_path_factory.mktemp("lab"), TIMETABLE) as running:
        yield running


def flaw(series: list[Series]) -> str | None:
    """Return what is wrong with an answer: nothing in it, or zeros alone."""
    values = [value for _, points in series for _, value in points if not math.isnan(value)]
    if not values:
        return "empty"
    return None if any(values) else "zero"


def odd(lab: BoardLab, board: str) -> dict[tuple[str, str], str]:
    """Return the queries of a board that bring nothing. Fails where Prometheus tells an error."""
    found = {}
    for target in lab.targets(board):
        try:
            wrong = flaw(lab.ask(board, target))
        except QueryError as error:
            pytest.fail(f"{board}: {target.panel} {target.ref}: {error}")
        if wrong:
            found[(board, f"{target.panel} {target.ref}")] = wrong
    return found


@pytest.mark.parametrize("board", NAMES)
def test_each_query_brings_something(lab: BoardLab, board: str) -> None:
    """No error, no empty answer, no constant zero, but for exceptions that are still needed."""
    found = {key: wrong for key, wrong in odd(lab, board).items() if key not in BY_CHANCE}

    expected = {key for key in EXCEPTIONS if key[0] == board}
    news = sorted(f"{query}: {found[(name, query)]}" for name, query in found.keys() - expected)
    assert not news, "\n".join(news)
    assert expected - found.keys() == set(), "no exception any more"


@pytest.mark.parametrize("board", NAMES)
def test_each_variable_offers_something(lab: BoardLab, board: str) -> None:
    """`cluster` alone offers nothing here: nobody has to have such a label."""
    choices = lab.choices(board)

    assert {name for name, choice in choices.items() if not choice.values} <= {"cluster"}
    assert choices["cluster"].raw == ".*"


class Story(NamedTuple):
    """What a panel shows at the end of two phases; `ref` and `labels` choose the series."""

    about: str
    board: str
    panel: str
    before: str
    after: str
    tells: Callable[[float, float], bool]
    labels: Mapping[str, str] = MappingProxyType({})
    ref: str = "A"


def _grows(times: float) -> Callable[[float, float], bool]:
    return lambda before, after: after > times * before


def _appears(before: float, after: float) -> bool:
    return not before > 0 and after > 0


STORIES = [
    Story("kv-cache-full", "flopwatch-inference-sla", "KV cache", "calm", "serving",
          lambda a, b: a < 0.8 and b > 0.95, {"server": "llama-70b"}),
    Story("kv-cache-free-again", "flopwatch-inference-sla", "KV cache", "serving", "training",
          lambda a, b: a > 0.95 and b < 0.8, {"server": "llama-70b"}),
    Story("requests-wait", "flopwatch-inference-sla", "Requests", "calm", "serving",
          lambda a, b: b > a + 10, ref="B"),
    Story("ttft-breaches", "flopwatch-inference-sla", "Time to first token", "calm", "serving",
          _grows(5), ref="B"),
    Story("budget-burns", "flopwatch-inference-sla", "Burn rates over 5 minutes", "calm",
          "serving", _grows(2), {"objective": "ttft_p95"}),
    Story("why-it-breaches", "flopwatch-inference-sla", "Causes now", "calm", "serving",
          _appears, {"cause": "kv_cache_full"}),
    Story("spot-notice", "flopwatch-cost", "Announcements", "calm", "serving", _appears),
    Story("spot-notice-time-left", "flopwatch-cost", "Time left", "calm", "serving",
          lambda a, b: math.isnan(a) and not math.isnan(b)),
    Story("pause-storm", "flopwatch-fabric", "Told to stop", "calm", "serving",
          lambda a, b: a < 0.02 and b > 0.1, {"device": "ens8f0"}),
    Story("pauses-others", "flopwatch-fabric", "Tells others to stop", "calm", "serving",
          _appears, {"device": "ens8f0"}),
    Story("training-stands-still", "flopwatch-training", "Does it go on", "calm", "cut",
          lambda a, b: a == 0 and b > 0),
    Story("cable-breaks", "flopwatch-fabric", "Ports that are up", "training", "cut",
          lambda a, b: b == a - 1),
    Story("cable-breaks-unexpectedly", "flopwatch-fabric", "Ports down that should be up",
          "training", "cut", lambda a, b: (a, b) == (0, 1)),
    Story("others-wait-for-rank-1", "flopwatch-fabric", "Waiting for other ranks", "calm",
          "training", lambda a, b: b > a + 0.05, {"rank": "0"}),
    Story("mfu-falls", "flopwatch-training", "MFU", "calm", "training",
          lambda a, b: b < 0.8 * a),
    Story("rank-1-is-late", "flopwatch-training", "Stragglers", "calm", "training",
          lambda a, b: b > a + 0.1, {"rank": "1"}),
    Story("data-stalls", "flopwatch-training", "Parts of a step", "calm", "training",
          _grows(3), {"phase": "data"}),
    Story("gpu-5-lowers-its-clock", "flopwatch-node", "SM clock", "calm", "training",
          lambda a, b: b < 0.8 * a, {"gpu": "5"}),
    Story("gpu-5-gets-hot", "flopwatch-node", "Core temperature", "calm", "training",
          lambda a, b: b > a + 10, {"gpu": "5"}),
    Story("gpu-6-is-lost", "flopwatch-node", "GPUs that answer", "calm", "training",
          lambda a, b: b < a),
]  # fmt: skip


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.about)
def test_a_panel_tells_the_story(lab: BoardLab, story: Story) -> None:
    """What it shows before the fault and while it lasts, or after it."""
    before, after = (
        lab.shown(story.board, story.panel, phase, story.ref, **story.labels)
        for phase in (story.before, story.after)
    )

    assert story.tells(before, after), f"{story.panel}: {before} before, {after} after"


def test_an_answer_of_nothing_or_zeros_is_a_flaw() -> None:
    """What is not a number is no value."""
    assert flaw([]) == "empty"
    assert flaw([({}, [(1.0, math.nan)])]) == "empty"
    assert flaw([({}, [(1.0, 0.0), (2.0, 0.0)]), ({}, [(1.0, 0.0)])]) == "zero"
    assert flaw([({}, [(1.0, 0.0), (2.0, 0.5)])]) is None
