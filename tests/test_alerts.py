"""The shipped rules: promtool accepts and tests them, and they name only what the daemon has."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import yaml

from exporter import catalogue as c
from tests.alerts.cases import _NAMES, ALERTS, FOREIGN, TOPICS, UNSEEN
from tests.alerts.pages import everything, family

FILES = [f"{topic}.yaml" for topic in TOPICS]
WITH_TESTS = sorted(path.name for path in (ALERTS / "tests").glob("*.yaml"))
Tool = Callable[[str], str]

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_NAME = re.compile(
    r"\b(?:cost|diagnosis|flopwatch|gpu|host|llm|nccl|nic|process|sla|spot|topology|train)_\w+"
    r"|\bup\b|\bscrape_\w+|\bprometheus_\w+"
)
_SELECTOR = re.compile(r"\b(\w+)\{((?:[^}\"]|\"(?:[^\"\\]|\\.)*\")*)\}")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_BUCKET_EDGE = re.compile(r"\d+\(\\\\\.0\)\?|\d+\\\\\.\d*[1-9]\d*")
_CALL = re.compile(r"\b([a-z_0-9]+)\s*\(")
_WORDS = {
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "and",
    "or",
    "unless",
    "bool",
    "offset",
}
_OPERATORS = {
    "sum", "min", "max", "avg", "count", "quantile", "topk", "bottomk", "stddev", "stdvar", "group",
    "count_values",
}  # fmt: skip
# Those of Prometheus 2.42 that need no feature flag.
_FUNCTIONS = {
    "abs", "absent", "absent_over_time", "avg_over_time", "ceil", "changes", "clamp", "clamp_max",
    "clamp_min", "count_over_time", "day_of_week", "delta", "deriv", "exp", "floor",
    "histogram_quantile", "hour", "idelta", "increase", "irate", "label_join", "label_replace",
    "last_over_time", "ln", "max_over_time", "min_over_time", "minute", "predict_linear",
    "present_over_time", "quantile_over_time", "rate", "resets", "round", "scalar", "sgn", "sort",
    "sqrt", "stddev_over_time", "sum_over_time", "time", "timestamp", "vector",
}  # fmt: skip


@cache
def groups(file: str) -> list[dict[str, Any]]:
    """Return the groups of a file."""
    return list(yaml.safe_load((ALERTS / file).read_text("utf-8"))["groups"])


def rules(file: str) -> Iterator[dict[str, Any]]:
    """Yield the rules of a file."""
    for group in groups(file):
        yield from group["rules"]


def alerts() -> list[dict[str, Any]]:
    """Return all alerts."""
    return [rule for file in FILES for rule in rules(file) if "alert" in rule]


@cache
def recorded() -> set[str]:
    """Return the names that rules record."""
    return {rule["record"] for file in FILES for rule in rules(file) if "record" in rule}


def bare(expression: str) -> str:
    """Return an expression without the names of recorded series."""
    return re.sub(r"\b[a-zA-Z_0-9]+(?::[a-zA-Z_0-9]+)+", "recorded", expression)


def families(expression: str) -> set[str]:
    """Return the families that an expression asks for."""
    return {family(word) for word in _NAME.findall(_TEXT.sub('""', bare(expression)))}


def asked(rule: dict[str, Any]) -> list[str]:
    """Return the expressions of a rule: its own, and those in its texts."""
    queries = re.findall(
        r'(?:range|with) query (?:\(printf )?"((?:[^"\\]|\\.)*)"',
        " ".join(rule.get("annotations", {}).values()),
    )
    return [rule["expr"], *(query.replace('\\"', '"').replace("%q", '"x"') for query in queries)]


def promtool(tool: Tool, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [tool("promtool"), *arguments]
    return subprocess.run(
        command, cwd=ALERTS, capture_output=True, text=True, timeout=180, check=False
    )


def test_every_file_of_rules_is_looked_at() -> None:
    """A new file has to be named in the tests."""
    assert {path.name for path in ALERTS.glob("*.yaml")} == {*FILES, "alertmanager.yaml"}


def test_promtool_accepts_the_rules(tool: Tool) -> None:
    """No syntax error, no duplicate."""
    result = promtool(tool, "check", "rules", *FILES)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "duplicate" not in result.stdout


@pytest.mark.parametrize("file", WITH_TESTS)
def test_the_rules_do_what_their_tests_say(tool: Tool, file: str) -> None:
    """promtool's tests by hand pass; those of each alert are in tests/alerts."""
    result = promtool(tool, "test", "rules", f"tests/{file}")
    assert result.returncode == 0, result.stdout + result.stderr


def test_recorded_names_are_recorded() -> None:
    """What rules ask of each other has not been renamed."""
    for file in FILES:
        for rule in rules(file):
            for query in asked(rule):
                names = re.findall(r"\b[a-zA-Z_0-9]+(?::[a-zA-Z_0-9]+)+", _TEXT.sub('""', query))
                assert set(names) <= recorded(), (names, rule)


@pytest.mark.parametrize("file", FILES)
def test_the_rules_ask_for_what_there_is(file: str) -> None:
    """Every family and every label that is matched or grouped by is in the catalogue."""
    for rule in rules(file):
        for query in asked(rule):
            names = families(query)
            assert names <= {*c.FAMILIES, *FOREIGN}, (names, rule)
            for name, inside in _SELECTOR.findall(bare(query)):
                labels = {"le", "instance", "job"}
                if name != "recorded":
                    labels |= {*(FOREIGN.get(name) or c.FAMILIES[family(name)].labels)}
                    used = {label for label, _, _ in _MATCHER.findall(inside)}
                    assert used <= labels, (name, used, rule)


def test_the_values_that_rules_match_are_on_pages() -> None:
    """reason="hw_thermal" is how the daemon spells it, or the rule would never fire."""
    pages = everything()
    for file in FILES:
        for rule in rules(file):
            for query in asked(rule):
                for name, inside in _SELECTOR.findall(bare(query)):
                    shown = pages.get(name, ())
                    for label, sign, text in _MATCHER.findall(inside):
                        if label in {*_NAMES, "le", "instance", "engine"} or not text:
                            continue
                        if name in FOREIGN or name == "recorded":
                            continue
                        known = {one.labels.get(label, "") for one in shown}
                        known |= {value for n, at, value in UNSEEN if (n, at) == (name, label)}
                        words = text.split("|") if "~" in sign else [text]
                        assert set(words) <= known, (name, label, set(words) - known, rule["expr"])


@pytest.mark.parametrize("file", FILES)
def test_no_rule_counts_an_application_twice(file: str) -> None:
    """What an application may expose itself (llm_...) is only asked for with engine!=""."""
    for rule in rules(file):
        for name in families(rule["expr"]):
            if name.startswith("llm_") and "engine" in c.FAMILIES[name].labels:
                found = re.findall(
                    rf"\b{name}(?:_bucket|_sum|_count)?\b(\{{[^}}]*\}})?", bare(rule["expr"])
                )
                ours = name not in {"llm_server_info", "llm_mapping_unresolved"}
                assert not ours or all('engine!=""' in selector for selector in found), rule


@pytest.mark.parametrize("file", FILES)
def test_rules_use_what_prometheus_2_42_has(file: str) -> None:
    """No newer function, none behind a feature flag."""
    for rule in rules(file):
        for query in asked(rule):
            called = set(_CALL.findall(_TEXT.sub('""', bare(query)))) - _WORDS
            assert called <= _FUNCTIONS | _OPERATORS, (called - _FUNCTIONS - _OPERATORS, rule)


@pytest.mark.parametrize("file", FILES)
def test_bucket_edges_are_matched_as_both_versions_write_them(file: str) -> None:
    """Prometheus 3 writes le="1.0" for what 2 leaves as le="1"."""
    for rule in rules(file):
        for query in asked(rule):
            for label, sign, text in _MATCHER.findall(query):
                if label == "le":
                    assert sign == "=~", rule
                    assert _BUCKET_EDGE.fullmatch(text), f"{text}: write 1(\\\\.0)?"


def test_alerts_say_what_is_wrong_and_what_to_do() -> None:
    """Severity, component, summary, description with cause, first action, a runbook that exists."""
    headings = {
        path.name: re.findall(r"^## (\w+)$", path.read_text("utf-8"), re.MULTILINE)
        for path in (ALERTS / "runbooks").glob("*.md")
    }
    for rule in alerts():
        name, texts = rule["alert"], rule["annotations"]
        assert rule["labels"]["severity"] in {"page", "ticket", "info", "none"}, name
        assert rule["labels"]["component"] in {
            "gpu", "fabric", "serving", "training", "cost", "spot", "exporter",
        }  # fmt: skip
        assert set(texts) == {"summary", "description", "action", "runbook_url"}, name
        assert len(texts["summary"]) < 200, name
        path, anchor = texts["runbook_url"].removeprefix("runbooks/").split("#")
        assert anchor == name.lower(), name
        assert name in headings[path], f"{path} has no ## {name}"


def test_runbooks_are_about_alerts_that_there_are() -> None:
    """A heading whose alert is gone would mislead. Two are of what `flopwatch alerts` writes."""
    names = {rule["alert"] for rule in alerts()} | {"SlaAbsent", "SlaConfigDiffers"}
    for path in (ALERTS / "runbooks").glob("*.md"):
        assert set(re.findall(r"^## (\w+)$", path.read_text("utf-8"), re.MULTILINE)) <= names


def test_an_alert_outlives_two_scrapes_before_it_fires() -> None:
    """`for` is at least a minute, or the expression itself looks back over several scrapes."""
    for rule in alerts():
        if rule["alert"] != "Watchdog" and "for" not in rule:
            looks_back = re.search(r"\[\w+\]|:increase5m", rule["expr"])
            once = {
                "GpuRowRemapFailed",
                "SpotInterruption",
                "TrainingRecoverySlow",
                "TrainingStartSlow",
            }
            assert looks_back or rule["alert"] in once, rule["alert"]


def test_each_recorded_series_is_seen() -> None:
    """Each in a test, or in a rule that has one."""
    tests = " ".join(path.read_text("utf-8") for path in (ALERTS / "tests").rglob("*.yaml"))
    others = " ".join(query for file in FILES for rule in rules(file) for query in asked(rule))
    for name in recorded():
        assert re.search(rf"(?<![\w:]){name}(?![\w:])", f"{tests} {others}"), name


def test_remote_write_carries_what_rules_of_all_nodes_ask_for() -> None:
    """docs/scale.md: rulers above the shards have no other series than those it lists."""
    page = (ALERTS.parent / "docs" / "scale.md").read_text("utf-8")
    part = page.partition("**What is of all nodes**")[2].partition("- **Federation**")[0]
    there, _, carried = part.partition("Remote write need only carry")
    files = [f"{name}.yaml" for name in re.findall(r"`([a-z-]+)`", there)]
    assert (
        {"sla.yaml", "serving.yaml", "training.yaml", "cost-spot.yaml"} <= set(files) <= set(FILES)
    )
    listed = re.compile("|".join(re.findall(r"`([^`]+)`", carried)))
    here = {rule["record"] for file in files for rule in rules(file) if "record" in rule}
    for file in files:
        for rule in rules(file):
            for query in asked(rule):
                text = _TEXT.sub('""', query)
                names = set(re.findall(r"\b[a-zA-Z_0-9]+(?::[a-zA-Z_0-9]+)+", text)) - here
                for name in names | families(query):
                    assert listed.fullmatch(name), (file, name)
