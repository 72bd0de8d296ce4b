"""Conditions on the status page are those of the shipped rules, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from exporter import catalogue as c
from exporter.samples import Health, Sample, Shape, SourceView, State, View, in_columns
from exporter.status.conditions import CONDITIONS, Condition, Watch, conditions, holding
from exporter.status.facts import Facts
from tests.alerts.cases import Case, Line, Wardrobe, cases, is_counter, lines, minutes, rules

WARDROBE = Wardrobe()
BEGAN = 3600.0
"""When the fault of a case begins."""


def key(one: Condition) -> tuple[str, str]:
    return one.alert, one.severity


@pytest.mark.parametrize("one", CONDITIONS, ids=lambda one: f"{one.alert}-{one.severity}")
def test_each_condition_is_a_rule(one: Condition) -> None:
    """Its name, its severity, and how long it must hold are those of a rule in alerts/."""
    (rule,) = [
        rule for rule in rules()
        if rule.get("alert") == one.alert and rule["labels"]["severity"] == one.severity
    ]  # fmt: skip
    assert minutes(str(rule.get("for", "0s"))) * 60 == one.wait


def test_no_condition_is_there_twice() -> None:
    """A row for each rule."""
    assert len({key(one) for one in CONDITIONS}) == len(CONDITIONS)


# ---------------------------------------------------------------- promtool's cases


def number(text: str, now: float) -> float | None:
    if text in {"gone", "_"}:
        return None
    return {"now": now, "then": BEGAN}.get(text) or float(text)


def view(found: list[Line], now: float, *, bad: bool) -> View:
    """Return a board with the series of node-1, before the fault or while it lasts."""
    samples: list[Sample] = []
    sources: list[SourceView] = []
    for line in found:
        value = number(line.bad if bad else line.good, now)
        labels = line.series.labels
        if value is None or labels["instance"] != "node-1":
            continue
        if line.series.name == "flopwatch_source_up":
            state: State = "up" if value else "failed"
            sources.append(SourceView(labels["source"], c.SERVING, state, Health()))
        elif line.series.name == "flopwatch_source_busy_seconds":
            sources.append(SourceView(labels["source"], c.GPU, "stuck", Health(), busy=value))
        else:
            metric = c.FAMILIES[line.series.name]
            samples.append(metric(value, *[labels[name] for name in metric.labels]))
    batch = in_columns(samples, Shape((), ()))
    return View((*sources, SourceView("all", c.GPU, "up", Health(), batch=batch)), token=())


def mirrored() -> Iterator[tuple[Condition, Case]]:
    """Yield the cases of the rules that have a condition, but for those of several nodes."""
    severities = {one.alert: [] for one in CONDITIONS}
    for rule in rules():
        if rule.get("alert") in severities:
            severities[rule["alert"]].append(rule["labels"]["severity"])
    for case in cases():
        for one in CONDITIONS:
            asked = case.body.get("severity", severities.get(case.alert, [""])[0])
            if key(one) == (case.alert, asked) and key(one) not in ELSEWHERE:
                yield one, case


ELSEWHERE = {("QuotaExceeded", "info")}
"""Its case is about the sum over nodes; one node that exceeds it alone is below."""


def test_most_conditions_have_a_case() -> None:
    """What has none is tested by hand, below."""
    assert {key(one) for one in CONDITIONS} == {key(one) for one, _ in mirrored()} | ELSEWHERE


@pytest.mark.parametrize(
    ("one", "case"),
    [pytest.param(*pair, id=f"{pair[1].alert}-{pair[1].number}") for pair in mirrored()],
)
def test_condition_holds_when_the_rule_does(one: Condition, case: Case) -> None:
    """On the series of each case the condition says what promtool says of the rule."""
    found = lines(WARDROBE, case.body["series"])
    assert not any(is_counter(line) for line in found), "one look cannot tell"
    now = BEGAN + 60 * case.body.get("within", one.wait / 60 + 10)
    assert key(one) in holding(Facts(view(found, now, bad=True)), now)
    assert key(one) not in holding(Facts(view(found, BEGAN, bad=False)), BEGAN)
    for quiet in [*case.body.get("quiet", ()), *case.body.get("low", ())]:
        if not isinstance(quiet, dict):
            continue
        changed = {**case.body["series"], **quiet}
        calm = view(lines(WARDROBE, changed), now, bad=True)
        if not any("node-" in selector for selector in quiet):
            assert key(one) not in holding(Facts(calm), now), quiet


# ---------------------------------------------------------------- by hand


def board(*samples: Sample) -> View:
    batch = in_columns(samples, Shape((), ()))
    return View((SourceView("all", c.GPU, "up", Health(), batch=batch),), token=())


def test_a_quota_that_one_node_exceeds_alone_is_told() -> None:
    """The rule sums over nodes; so what this node says is a lower bound."""
    found = holding(Facts(board(c.COST_QUOTA_USED_RATIO(1.2, "team-a"))), 0.0)
    assert found == {("QuotaExceeded", "info"): ("team-a",)}


def test_a_loss_that_is_no_number_holds() -> None:
    """NaN is dropped from all that is shown, and is the very thing here."""
    found = holding(Facts(board(c.TRAIN_LOSS(math.nan, "r"))), 0.0)
    assert found == {("TrainingLossNan", "page"): ("r",)}


def test_nothing_known_is_nothing_told() -> None:
    """A node without anything has no condition: absence is for Prometheus to judge."""
    assert holding(Facts(View((), token=())), 1e9) == {}


def test_what_pages_is_not_told_twice() -> None:
    """Of a page and a ticket on the same thing the page is shown, and first."""
    down = board(
        c.NIC_UP(0, "mlx5_3", "1"), c.NIC_EXPECTED_UP(1, "mlx5_3", "1", "seen_up"),
        c.GPU_PROCESSES(1, "0", "GPU-0"), c.TOPOLOGY_GPU_NIC_OK(0, "0", "GPU-0"),
    )  # fmt: skip
    said = conditions(Facts(down), Watch(), 0.0, 0.0)
    assert [(row["alert"], row["severity"], row["about"]) for row in said["holding"]] == [
        ("RdmaPortDown", "page", ["mlx5_3/1"]),
        ("TopologyGpuNicFar", "ticket", ["GPU 0"]),
    ]
    assert said["watched"] == len({one.alert for one in CONDITIONS})


def test_how_long_it_holds_is_told_by_the_beats() -> None:
    """From the first beat that saw it; a beat that did not begins anew."""
    far, watch = board(c.TOPOLOGY_GPU_NIC_OK(0, "0", "GPU-0")), Watch()

    def held(moment: float) -> float | None:
        (row,) = conditions(Facts(far), watch, moment, 0.0)["holding"]
        return row["held_seconds"]  # type: ignore[no-any-return]

    assert held(5.0) is None
    for moment in (10.0, 20.0, 30.0):
        watch.note(far, moment, 0.0)
    assert held(35.0) == 25.0
    watch.note(board(), 40.0, 0.0)
    watch.note(far, 50.0, 0.0)
    assert held(51.0) == 1.0


def test_a_condition_names_so_many_things() -> None:
    """A thousand hostile names do not fill the page; how many there are is told."""
    many = board(*(c.TRAIN_DATA_LOADING_RATIO(0.5, f"run-{i}") for i in range(1000)))
    (row,) = conditions(Facts(many), Watch(), 0.0, 0.0)["holding"]
    assert len(row["about"]) == 24
    assert row["number"] == 1000
