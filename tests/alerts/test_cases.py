"""Each alert fires, stays silent, recovers: by promtool, with series that our pages have."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alerts.cases import ALERTS, Case, Wardrobe, cases, needed, promtool_tests, rules

Tool = Callable[[str], str]
FILES = sorted(path.stem for path in (ALERTS / "tests" / "cases").glob("*.yaml"))


@pytest.fixture(scope="module")
def wardrobe() -> Wardrobe:
    return Wardrobe()


def write(folder: Path, alert: str, tests: list[dict[str, Any]]) -> str:
    """Write promtool's file for an alert, with the rules that it needs."""
    group = {"name": alert, "rules": needed(alert)}
    (folder / f"{alert}.rules.yaml").write_text(yaml.safe_dump({"groups": [group]}), "utf-8")
    file = {"rule_files": [f"{alert}.rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (folder / f"{alert}.yaml").write_text(yaml.safe_dump(file), "utf-8")
    return f"{alert}.yaml"


def promtool(tool: Tool, folder: Path, *files: str) -> tuple[int, str]:
    result = subprocess.run(
        [tool("promtool"), "test", "rules", *files],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return result.returncode, result.stdout + result.stderr


def by_alert(topic: str) -> dict[str, list[Case]]:
    """Return the cases of a topic's file."""
    named = yaml.safe_load((ALERTS / "tests" / "cases" / f"{topic}.yaml").read_text("utf-8"))
    return {alert: [case for case in cases() if case.alert == alert] for alert in named}


@pytest.mark.parametrize("topic", FILES)
def test_alerts_fire_stay_silent_and_recover(
    tool: Tool, wardrobe: Wardrobe, topic: str, tmp_path: Path
) -> None:
    """Fires, does not, recovers, nothing known, little traffic, a counter that begins anew."""
    files = [
        write(tmp_path, alert, [test for case in found for test in promtool_tests(wardrobe, case)])
        for alert, found in by_alert(topic).items()
    ]
    code, said = promtool(tool, tmp_path, *files)
    assert code == 0, said


@pytest.mark.parametrize("topic", FILES)
def test_the_texts_of_alerts_are_filled_in(
    tool: Tool, wardrobe: Wardrobe, topic: str, tmp_path: Path
) -> None:
    """promtool is made to show each alert: no template fails, none is left with a gap."""
    named = by_alert(topic)
    files = [
        write(tmp_path, alert, promtool_tests(wardrobe, found[0], texts=True))
        for alert, found in named.items()
    ]
    _, said = promtool(tool, tmp_path, *files)
    shown = {
        re.findall(r"alertname: (\w+)", part)[0]: part.partition("got:")[2]
        for part in said.split("FAILED:")[1:]
    }
    assert set(shown) == set(named)
    for alert, text in shown.items():
        assert all(f"{word}=" in text for word in ("summary", "description")), (alert, text)
        flaws = {"error expanding", "<no value>", "%!", "NaN"}
        if alert == "TrainingLossNan":
            flaws.remove("NaN")
        assert not [flaw for flaw in flaws if flaw in text], (alert, text)


def test_every_alert_has_a_case_for_each_severity() -> None:
    """No rule without a test."""
    tested = {(case.alert, case.body.get("severity")) for case in cases()}
    for rule in rules():
        if "alert" in rule and rule["alert"] != "Watchdog":
            assert {(rule["alert"], None), (rule["alert"], rule["labels"]["severity"])} & tested, (
                rule["alert"], rule["labels"]["severity"],
            )  # fmt: skip
