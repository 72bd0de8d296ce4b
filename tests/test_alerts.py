"""The shipped rules: promtool accepts and tests them, and they name only what the daemon has."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter import catalogue as c

ALERTS = Path(__file__).parent.parent / "alerts"
FILES = sorted(path.name for path in ALERTS.glob("*.yaml"))
Tool = Callable[[str], str]

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_NAME = re.compile(r"\b(?:llm|sla|gpu|nic|host|train|diagnosis|nccl|flopwatch)_\w+")
_SELECTOR = re.compile(r"\b(llm_\w+)(\{[^}]*\})?")


def rules(file: str) -> Iterator[dict[str, Any]]:
    """Yield the rules of a file."""
    for group in yaml.safe_load((ALERTS / file).read_text())["groups"]:
        yield from group["rules"]


def recorded() -> set[str]:
    """Return the names that rules record."""
    return {rule["record"] for file in FILES for rule in rules(file) if "record" in rule}


def bare(expression: str) -> str:
    """Return an expression without the names of recorded series."""
    for name in recorded():
        expression = expression.replace(name, "recorded")
    return expression


def families(expression: str) -> set[str]:
    """Return the families of ours that an expression asks for."""
    words = set(_NAME.findall(_TEXT.sub('""', bare(expression))))
    return {re.sub(r"_(bucket|sum|count)$", "", word) if word not in c.FAMILIES else word
            for word in words}  # fmt: skip


def promtool(tool: Tool, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [tool("promtool"), *arguments]
    return subprocess.run(
        command, cwd=ALERTS, capture_output=True, text=True, timeout=180, check=False
    )


@pytest.mark.parametrize("file", FILES)
def test_promtool_accepts_the_rules(tool: Tool, file: str) -> None:
    """No syntax error, no duplicate."""
    result = promtool(tool, "check", "rules", file)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "duplicate" not in result.stdout


@pytest.mark.parametrize("file", FILES)
def test_the_rules_do_what_their_tests_say(tool: Tool, file: str) -> None:
    """Each file of rules has a file of promtool's tests, and they pass."""
    result = promtool(tool, "test", "rules", f"tests/{file}")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("file", FILES)
def test_the_rules_ask_for_what_there_is(file: str) -> None:
    """Every family and every label that is matched or grouped by is in the catalogue."""
    for rule in rules(file):
        names = families(rule["expr"])
        assert names <= set(c.FAMILIES), rule
        labels = {"le"}.union(*(c.FAMILIES[name].labels for name in names))
        for matcher in re.findall(r"[{,]\s*(\w+)\s*(?:=~|!~|!=|=)", rule["expr"]):
            assert matcher in labels, (matcher, rule)


@pytest.mark.parametrize("file", FILES)
def test_no_rule_counts_an_application_twice(file: str) -> None:
    """What an application may expose itself (llm_...) is only asked for with engine!=""."""
    for rule in rules(file):
        for name, selector in _SELECTOR.findall(bare(rule["expr"])):
            family = re.sub(r"_(bucket|sum|count)$", "", name)
            if "engine" in c.FAMILIES.get(name, c.FAMILIES.get(family)).labels:  # type: ignore[union-attr]
                assert 'engine!=""' in selector, rule


def test_each_alert_is_seen_firing_and_silent() -> None:
    """In promtool's tests, each of them at some time."""
    for file in FILES:
        cases = [
            case
            for test in yaml.safe_load((ALERTS / "tests" / file).read_text())["tests"]
            for case in test.get("alert_rule_test", ())
        ]
        for alert in (rule["alert"] for rule in rules(file) if "alert" in rule):
            fires = [bool(case.get("exp_alerts")) for case in cases if case["alertname"] == alert]
            assert set(fires) == {True, False}, alert


def test_each_recorded_series_is_seen() -> None:
    """Each in a test of its own, or in a rule that has one."""
    for file in FILES:
        tests = (ALERTS / "tests" / file).read_text()
        others = " ".join(rule["expr"] for rule in rules(file))
        for name in (rule["record"] for rule in rules(file) if "record" in rule):
            assert name in tests or name in others, name
