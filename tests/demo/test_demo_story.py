"""The guided story: each chapter shows what it says, by our own readers and derivations."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
import yaml

from exporter import catalogue as c
from exporter.commands.story import Narrator, lines
from exporter.commands.top_parser import NAMES
from exporter.config import parse
from exporter.demo import SCENARIOS, Faults
from exporter.demo.node import Node
from exporter.demo.story import CHAPTERS, Chapter, Story
from exporter.plans import Estate
from exporter.plans.demo import demo_plans
from tests.demo.training_lab import Seen, watch
from tests.fakes import FakeClock

ROOT = Path(__file__).parents[2]
WARM_UP, EVERY = 30, 5
ENDS = {
    one.name: end
    for one, end in zip(CHAPTERS, accumulate(c.seconds for c in CHAPTERS), strict=True)
}
LAP = round(sum(one.seconds for one in CHAPTERS))
NEEDED = (
    "demo", "nvml", "network", "inference:", "push", "logs", "spot", "derive:serving",
    "derive:training", "derive:diagnosis", "derive:hardware", "derive:cost", "derive:interruptions",
    "derive:fabric",
)  # fmt: skip


@pytest.fixture(scope="module")
def seen() -> list[Seen]:
    """Return what one lap of the story shows, each five seconds, and a minute of the next."""
    return list(
        watch("story", LAP - WARM_UP + 60, every=EVERY, wanted=lambda name: name.startswith(NEEDED))
    )


def chapter(seen: Sequence[Seen], name: str, skip: float = 0.0) -> list[Seen]:
    """Return what is seen in a chapter, but for so many seconds of its beginning."""
    (one,) = [one for one in CHAPTERS if one.name == name]
    begin = ENDS[name] - one.seconds + skip
    return [look for look in seen if begin + 2 < look.at + WARM_UP <= ENDS[name] - 2]


def mfu(look: Seen) -> float:
    value = look.value(c.TRAIN_MFU_RATIO, convention="causal", peak="bf16")
    assert value is not None
    return value


def causes(look: Seen, run: str = "llama2-13b") -> set[str]:
    return {
        cause for (cause,), so in look.values(c.DIAGNOSIS_CAUSE, "cause", run=run).items() if so
    }


def throttled(look: Seen) -> dict[tuple[str, ...], float]:
    return look.values(c.GPU_THROTTLED_SECONDS_TOTAL, "gpu", reason="sw_thermal")


def violated(look: Seen) -> set[str]:
    told = look.values(c.SLA_STATE, "objective", state="violated")
    return {objective for (objective,), so in told.items() if so}


def breaches(look: Seen) -> dict[str, str]:
    return dict(look.values(c.SLA_BREACH_CAUSE, "objective", "cause").keys())  # type: ignore[arg-type]


# ---- the timetable --------------------------------------------------------------------------


def test_each_fault_is_followed_by_quiet_time() -> None:
    """The lap is whole waves of the demo's traffic, so that each lap shows the same."""
    quiet = [one.faults == Faults() for one in CHAPTERS]
    assert quiet[0]
    assert quiet[-1]
    assert not any(a is b is False for a, b in pairwise(quiet))
    assert LAP % 120 == 0


def panels(board: str) -> set[str]:
    """Return the titles of a dashboard's panels."""
    boards = [json.loads(file.read_text()) for file in (ROOT / "dashboards").glob("*.json")]
    (found,) = [one for one in boards if one["title"] == board]
    rows = [
        *found["panels"],
        *(inner for one in found["panels"] for inner in one.get("panels", ())),
    ]
    return {one.get("title", "") for one in rows if one["type"] != "row"}


def test_each_place_to_look_at_exists() -> None:
    """Series with their labels are in the catalogue, alerts in the rules, panels on dashboards."""
    rules = (ROOT / "alerts").glob("*.yaml")
    groups = [
        group for file in rules for group in yaml.safe_load(file.read_text()).get("groups", ())
    ]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    for one in CHAPTERS:
        for look in one.looks:
            match look.place:
                case "dashboard":
                    board, _, panel = look.where.partition(" / ")
                    assert panel in panels(f"flopwatch / {board}"), look
                case "top":
                    assert look.where in NAMES, look
                case "metric":
                    name, _, labels = look.where.partition("{")
                    metric = c.FAMILIES[name]
                    assert set(re.findall(r"(\w+)=", labels)) <= {*metric.labels}, look
                case "alert":
                    assert look.where in alerts, look


def test_the_story_is_the_same_however_time_is_cut() -> None:
    whole, cut = (Node(0, 0.0, SCENARIOS["story"]) for _ in range(2))
    whole.advance(300)
    while cut.now < 300:
        cut.advance(min(7.3, 300 - cut.now))
    assert whole.story.chapter == cut.story.chapter
    assert whole.job.lap == cut.job.lap
    assert (whole.vllm.held, whole.vllm.generated) == (cut.vllm.held, cut.vllm.generated)
    assert [gpu.energy for gpu in whole.gpus.all] == [gpu.energy for gpu in cut.gpus.all]


def test_the_story_begins_again_after_its_last_chapter() -> None:
    story = Story(CHAPTERS)
    turned = [story.turn() for _ in CHAPTERS]
    assert turned == [*CHAPTERS[1:], CHAPTERS[0]]
    told = story.document(LAP + 1)
    assert told is not None
    assert (told["lap"], told["number"], told["seconds_since"]) == (2, 1, 1)
    assert told["seconds_left"] == CHAPTERS[0].seconds - 1


def test_nothing_is_wrong_with_a_sound_node() -> None:
    """A GPU waited for its reset, and a counter stood at its end, on the node without faults."""
    for scenario in ("sound", "story"):
        node = Node(0, 0.0, SCENARIOS[scenario])
        assert [gpu.index for gpu in node.gpus.all if gpu.remap_pending] == []
        assert {port.overruns for port in node.fabric.ports().values()} == {0}
    default = Node(0, 0.0, SCENARIOS["default"])
    assert default.fabric.ports()["mlx5_6"].overruns == 15


# ---- what is seen ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", [one.name for one in CHAPTERS if one.faults == Faults()])
def test_quiet_time_ends_sound(seen: list[Seen], name: str) -> None:
    """At the end of a quiet chapter nothing is held down, waits, or is lost; training goes on."""
    look = chapter(seen, name)[-1]
    assert mfu(look) == pytest.approx(0.318, abs=0.005)
    assert causes(look) <= {"exposed_communication", "clock", "straggler"}  # they cover a minute
    assert look.values(c.GPU_THROTTLE_ACTIVE, "gpu", reason="sw_thermal")["7",] == 0
    assert set(look.values(c.NIC_UP, "device").values()) == {1}
    assert (look.value(c.LLM_WAITING_REQUESTS, server="llama-70b") or 0) < 5
    assert look.value(c.SPOT_INTERRUPTION_NOTICE) == 0


def test_mfu_falls_because_rank_3_throttles(seen: list[Seen]) -> None:
    before, after = chapter(seen, "well")[-1], chapter(seen, "throttle", skip=90)
    assert all(mfu(look) < 0.8 * mfu(before) for look in after)
    for look in after:
        scores = look.values(c.TRAIN_STRAGGLER_SCORE, "rank")
        assert max(scores, key=scores.__getitem__) == ("3",)
        assert scores["3",] > 0.3
        assert {"clock", "straggler"} <= causes(look)
    assert causes(before) & {"clock", "straggler"} == set()
    grown = {gpu: seconds - throttled(before)[gpu] for gpu, seconds in throttled(after[-1]).items()}
    assert grown.pop(("7",)) > 100
    assert set(grown.values()) == {0}


def test_ttft_breaches_because_the_kv_cache_is_full(seen: list[Seen]) -> None:
    assert violated(chapter(seen, "mended")[-1]) == set()
    for look in chapter(seen, "kv", skip=60):
        assert "ttft_p95" in violated(look)
        assert breaches(look)["ttft_p95"] == "kv_cache_full"
    usage = [look.value(c.LLM_KV_CACHE_USAGE_RATIO) or 0 for look in chapter(seen, "kv")]
    assert max(usage) > 0.95
    assert violated(chapter(seen, "plugged")[-1]) == set(), "five minutes later it is kept again"


def test_training_stands_still_because_a_cable_is_broken(seen: list[Seen]) -> None:
    for look in chapter(seen, "cable", skip=90):
        assert look.values(c.NIC_UP, "device")["mlx5_2",] == 0
        assert look.value(c.TRAIN_STALLED) == 1
        busy = look.values(c.GPU_UTILIZATION_RATIO, "gpu")
        tensor = look.values(c.GPU_TENSOR_ACTIVE_RATIO, "gpu")
        assert all(busy[gpu,] > 0.9 and tensor[gpu,] == 0 for gpu in "4567")
    good = [chapter(seen, name)[-1].value(c.TRAIN_GOODPUT_RATIO) for name in ("drained", "plugged")]
    assert good[0] is not None
    assert good[1] is not None
    assert good[1] < good[0] - 0.1


def test_a_spot_notice_comes_and_is_over_when_the_machine_is_back(seen: list[Seen]) -> None:
    """Another boot has another notice; the run was interrupted, and goes on."""
    for look in chapter(seen, "spot", skip=20):
        assert look.value(c.SPOT_INTERRUPTION_NOTICE) == 1
        deadline = look.value(c.SPOT_INTERRUPTION_DEADLINE_TIMESTAMP_SECONDS, action="stop")
        assert deadline is not None
    assert chapter(seen, "back")[-1].value(c.SPOT_INTERRUPTION_NOTICE) == 0
    after = seen[-1]
    assert after.value(c.SPOT_INTERRUPTIONS_TOTAL) == 1
    assert after.value(c.TRAIN_INTERRUPTIONS_TOTAL) == 1
    assert after.value(c.TRAIN_INTERRUPTION_RECOVERIES_TOTAL) == 1
    assert (after.value(c.COST_INTERRUPTION_DOLLARS_TOTAL) or 0) > 0


# ---- who tells it ---------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["default", "story"])
def test_the_status_document_tells_the_chapter_of_a_story_only(scenario: str) -> None:
    estate = Estate(FakeClock())
    with demo_plans(scenario) as plans:
        plans(parse("", "test"), estate)
        told = estate.story.tell()
    if scenario == "default":
        assert told is None
    else:
        assert told is not None
        assert (told["number"], told["title"]) == (1, CHAPTERS[0].title)


def test_a_chapter_is_told_once_and_the_first_one_after_the_daemons_own_words() -> None:
    said: list[str] = []
    told = Narrator(lambda *texts: said.extend(texts))
    clock, narrated = FakeClock(), []
    estate = Estate(clock)

    def narrate(story: object) -> None:
        narrated.append(story)
        told.narrate(story)  # type: ignore[arg-type]

    with demo_plans("story", narrate=narrate) as plans:
        (plan,) = [one for one in plans(parse("", "test"), estate) if one.name == "demo"]
        driver = plan.make()
        list(driver.read())
        assert said == []
        told.begin()
        for _ in range(60):
            clock.advance(5)
            list(driver.read())
    assert len(narrated) == 3
    titles = [line for line in said if line.startswith("chapter ")]
    assert [title.partition(": ")[2] for title in titles] == [
        "All is well (1 min 30 s)",
        "MFU falls because rank 3 throttles (2 min 30 s)",
        "The fan is replaced (1 min 30 s)",
    ]


def test_lines_fit_a_terminal() -> None:
    story = Story(CHAPTERS)
    for one in CHAPTERS:
        told = story.document(story.began)
        assert told is not None
        assert told["title"] == one.title
        assert max(map(len, lines(told))) <= 100, one.name
        story.turn()


def test_every_chapter_has_a_place_to_look_at() -> None:
    def places(one: Chapter) -> set[str]:
        return {look.place for look in one.looks}

    assert all("metric" in places(one) for one in CHAPTERS if one.faults != Faults())
