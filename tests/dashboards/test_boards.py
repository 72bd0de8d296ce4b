"""The boards: committed as built, in Grafana's schema, and asking only for what there is."""

from __future__ import annotations

import copy
import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dashboards.build import BUILDERS, drift, rendered
from dashboards.parts import ABOUT_ONE, BOARDS, COLORS
from exporter import catalogue as c
from tests.dashboards.queries import FOLDER, ROOT, asked, board, flaws, names, selectors, series
from tests.dashboards.schema import flaws as schema_flaws
from tests.dashboards.schema import panels

BOARD = pytest.mark.parametrize("name", names())
# Panel types that Grafana 10 to 13 all have, and that need no plugin to be installed.
TYPES = {"stat", "gauge", "bargauge", "timeseries", "table", "heatmap", "state-timeline", "text",
    "row", "histogram", "barchart", "piechart", "status-history"}  # fmt: skip
# Their values are texts for states, each with its words.
WORDED = {"state-timeline", "text"}


def test_the_committed_boards_are_what_the_builders_make() -> None:
    """Nobody edits the JSON; nobody changes a builder and forgets to write it."""
    assert drift(FOLDER) == []


def test_the_command_tells_of_drift(tmp_path: Path) -> None:
    """A file that was edited, is missing or is too many makes `--check` fail and is named."""

    def check() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dashboards.build", "--check", "--folder", str(tmp_path)]
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )

    for name, text in rendered().items():
        (tmp_path / name).write_text(text, "utf-8")
    assert check().returncode == 0
    edited = tmp_path / "flopwatch-exporter.json"
    edited.write_text(edited.read_text("utf-8").replace("Daemons", "Dæmons"), "utf-8")
    (tmp_path / "old.json").write_text("{}", "utf-8")
    result = check()
    assert result.returncode == 1
    assert [line.partition(":")[0] for line in result.stdout.splitlines()] == [
        "flopwatch-exporter.json",
        "old.json",
    ]


@BOARD
def test_a_board_is_in_the_schema(name: str) -> None:
    """Each key is one of the schema, each value of the type that the schema states."""
    assert schema_flaws(board(name)) == []


def _changed(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(board("flopwatch-exporter"))
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("panelz",), [], "/panelz: no such key"),
        (("panels", 1, "descripton"), "x", "descripton: no such key"),
        (("panels", 1, "title"), 7, "7 is no str"),
        (("panels", 1, "type"), "singlestat", "no panel of type 'singlestat'"),
        (("panels", 1, "gridPos", "w"), "4", "'4' is no int"),
        (("panels", 1, "options", "colourMode"), "none", "colourMode: no such key"),
        (("panels", 1, "options", "graphMode"), "areas", "no 'areas'"),
        (("panels", 1, "targets", 0, "expression"), "up", "expression: no such key"),
        (("panels", 1, "fieldConfig", "defaults", "units"), "s", "units: no such key"),
        (("panels", 1, "fieldConfig", "defaults", "thresholds", "mode"), "abs", "no 'abs'"),
        (("panels", 1, "transformations"), [{"id": "merg", "options": {}}], "no transformation"),
        (("templating", "list", 0, "type"), "source", "no 'source'"),
        (("time", "til"), "now", "til: no such key"),
        (
            ("panels", 1, "fieldConfig", "overrides"),
            [{"matcher": {"id": "byName"}, "properties": [{"id": "custom.wdth", "value": 3}]}],
            "wdth: no such key",
        ),
        (
            ("panels", 1, "fieldConfig", "overrides"),
            [{"matcher": {"id": "byName"}, "properties": [{"id": "colour", "value": "red"}]}],
            "no such property",
        ),
        (
            ("panels", 1, "fieldConfig", "overrides"),
            [
                {
                    "matcher": {"id": "byName"},
                    "properties": [{"id": "color", "value": {"mode": "bright"}}],
                }
            ],
            "no 'bright'",
        ),
    ],
    ids=lambda value: "/".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_the_check_of_the_schema_sees_a_wrong_key(
    path: tuple[str | int, ...], value: object, told: str
) -> None:
    """A check that passes everything would be none."""
    assert any(told in line for line in schema_flaws(_changed(path, value)))


@BOARD
def test_queries_ask_for_what_there_is(name: str) -> None:
    """Names and labels are in the catalogue, are recorded by our rules, or are Prometheus' own."""
    for where, expr in asked(name):
        assert flaws(expr) == [], (where, expr)
        assert series(expr), (where, expr)
        assert "<" not in re.sub(r"<=?\s", "", expr), f"{where}: a scope that does not exist"


@pytest.mark.parametrize(
    ("expr", "told"),
    [
        ("gpu_powr_watts", "nobody exports gpu_powr_watts"),
        ('rate(gpu_power_watts{gpuu="0"}[5m])', "gpu_power_watts has no label gpuu"),
        ("sum by (device) (gpu_power_watts)", "by (device): no series here has it"),
        ("fleet:gpu:count", "nobody exports fleet:gpu:count"),
        ("llm_ttft_seconds_bucke", "nobody exports llm_ttft_seconds_bucke"),
        ("gpu_power_watts * on (uuid, rank) group_left (name) gpu_info", "on (rank)"),
    ],
)
def test_the_check_of_queries_sees_a_wrong_name(expr: str, told: str) -> None:
    """A renamed metric, a mistyped label: each is told."""
    assert any(told in line for line in flaws(expr))


@BOARD
def test_queries_select_what_the_variables_say(name: str) -> None:
    """A board with a variable uses it; each series is of the chosen cluster."""
    variables = {each["name"] for each in board(name)["templating"]["list"]}
    used = " ".join(expr for _, expr in asked(name))
    for variable in variables - {"datasource"}:
        assert f"${variable}" in used, f"${variable} changes nothing"
    for where, expr in asked(name):
        for word in re.findall(r"\$\{?(\w+)", expr):
            assert word in {*variables, "__rate_interval", "__interval", "__range"}, (where, word)
        for metric, matchers in selectors(expr):
            if where != "$cluster":
                assert matchers.get("cluster") == '=~"$cluster"', (where, metric, expr)


@BOARD
def test_no_panel_counts_an_application_twice(name: str) -> None:
    """What an application may expose itself (llm_...) is only asked for with engine!=""."""
    for where, expr in asked(name):
        for metric, matchers in selectors(expr):
            row = c.FAMILIES.get(re.sub(r"_(bucket|sum|count)$", "", metric))
            if row is not None and metric.startswith("llm_") and "engine" in row.labels:
                assert matchers.get("engine", "").startswith(('!=""', '="')), (where, expr)


@BOARD
def test_rates_span_what_the_scrapes_allow(name: str) -> None:
    """A rate over a fixed window is empty where Prometheus scrapes more rarely."""
    for where, expr in asked(name):
        for function, window in re.findall(r"\b(\w+)\([^()[\]]*\[([^\]]+)\]", expr):
            if function in {"rate", "irate"}:
                assert window.startswith("$__rate_interval") or window.endswith("h"), (where, expr)


@BOARD
def test_panels_say_what_they_show(name: str) -> None:
    """Title, description in sentences, unit, the chosen data source, something that is asked."""
    for panel in panels(board(name)):
        assert panel["type"] in TYPES, panel["type"]
        if panel["type"] == "text":
            continue
        title = panel["title"]
        assert title
        assert len(panel["description"]) > 30, title
        assert panel["description"].endswith("."), title
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, title
        assert panel["targets"], title
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters), title
        assert panel["type"] in WORDED or _units(panel), title


def _units(panel: dict[str, Any]) -> bool:
    """Say whether each number of the panel has a unit."""
    config = panel["fieldConfig"]
    if panel["type"] != "table":
        return bool(config["defaults"].get("unit"))
    named = {
        override["matcher"]["options"]
        for override in config["overrides"]
        if any(each["id"] == "unit" for each in override["properties"])
    }
    if panel["transformations"][0]["id"] == "groupingToMatrix":
        return bool(config["defaults"].get("unit"))
    renamed = panel["transformations"][-1]["options"]["renameByName"]
    return {new for old, new in renamed.items() if old.startswith("Value")} <= named


@BOARD
def test_lines_have_names(name: str) -> None:
    """A legend is words, with the labels that tell series apart; not the text of the query."""
    for panel in panels(board(name)):
        if panel["type"] in {"timeseries", "state-timeline", "heatmap", "bargauge"}:
            for target in panel["targets"]:
                assert target["legendFormat"] not in {"", "__auto"}, (panel["title"], target)


@BOARD
def test_each_board_tells_the_state_of_alerts(name: str) -> None:
    """Alerts are shown where one looks: those of the board's own things."""
    assert any("ALERTS" in expr for _, expr in asked(name))


@BOARD
def test_states_are_told_in_words_too(name: str) -> None:
    """Whoever does not see the colour reads the state."""
    for panel in panels(board(name)):
        if panel["type"] == "state-timeline":
            (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
            assert all(each["text"] for each in mapping["options"].values()), panel["title"]


def _colors(value: object) -> set[str]:
    if isinstance(value, dict):
        inner = set().union(*map(_colors, value.values())) if value else set()
        for key in ("color", "fixedColor", "iconColor"):
            if isinstance(value.get(key), str):
                inner.add(value[key])
        if isinstance(value.get("mode"), str):
            inner.add(f"mode:{value['mode']}")
        return inner
    return set().union(*map(_colors, value)) if isinstance(value, list) and value else set()


@BOARD
def test_colours_can_be_told_apart_by_everyone(name: str) -> None:
    """Colours are those of the palette; no scale runs from red to green."""
    allowed = {*COLORS, "text", "transparent"}
    used = _colors(board(name))
    assert {color for color in used if not color.startswith("mode:")} <= allowed
    assert not {mode for mode in used if "palette" in mode or "Gr" in mode}


@BOARD
def test_panels_do_not_lie_on_each_other(name: str) -> None:
    """Each has its place within the width of the board, and a number of its own."""
    placed = board(name)["panels"]
    for first, second in itertools.combinations(placed, 2):
        a, b = first["gridPos"], second["gridPos"]
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, (first["title"], second["title"])
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in placed)
    assert all(p["gridPos"]["h"] > 0 and p["gridPos"]["w"] > 0 for p in placed)
    numbers = [p["id"] for p in placed] + [p["id"] for row in placed for p in row.get("panels", ())]
    assert len(set(numbers)) == len(numbers)


def test_links_lead_to_boards() -> None:
    """Each board links to all others by their uid, and takes along the time and what is chosen."""
    uids = {board(name)["uid"] for name in names()}
    assert uids == set(names()) == set(BOARDS)
    assert len(BUILDERS) == len(uids)
    for name in names():
        links = board(name)["links"]
        towards = {link["url"].partition("?")[0].removeprefix("/d/"): link for link in links}
        assert set(towards) == uids - {name}
        several = {v["name"] for v in board(name)["templating"]["list"] if v.get("multi")}
        own = {v["name"] for v in board(name)["templating"]["list"]}
        for uid, link in towards.items():
            taken = set(re.findall(r"\$\{(\w+):queryparam\}", link["url"]))
            assert taken == own - (several & ABOUT_ONE.get(uid, set())), (name, uid)
            assert link["keepTime"]
        for found in re.findall(r"/d/([\w-]+)", str(board(name)["panels"])):
            assert found in uids, found


def test_boards_about_one_thing_choose_one() -> None:
    """They select by `=`, which an address with "all of them" would leave empty."""
    for uid, variables in ABOUT_ONE.items():
        for variable in board(uid)["templating"]["list"]:
            if variable["name"] in variables:
                assert not variable.get("includeAll"), uid
                assert not variable.get("multi"), uid
        for where, expr in asked(uid):
            for name in variables:
                assert f'{name}=~"${name}"' not in expr, where


@BOARD
def test_a_board_begins_with_its_variables(name: str) -> None:
    """The data source first; what can be chosen is looked up when the time range changes."""
    read = board(name)
    assert [each["name"] for each in read["templating"]["list"]][:2] == ["datasource", "cluster"]
    for variable in read["templating"]["list"]:
        assert variable.get("label"), variable["name"]
        if variable.get("includeAll"):
            assert variable["allValue"] == ".*", "a label that is absent has to match as well"
    assert read["title"].startswith("flopwatch / ")
    assert read["tags"] == ["flopwatch"]
    assert "style" not in read, "light or dark is for whoever looks"
