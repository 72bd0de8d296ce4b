"""Who is told of which alert, and what keeps quiet: Alertmanager's own tools, and our pairs."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alerts.cases import ALERTS, cases, rule_of, rules

Tool = Callable[[str], str]
FILE = ALERTS / "alertmanager.yaml"
RECEIVERS = {"page": "page", "ticket": "ticket", "info": "info", "none": "deadman"}
_MATCHER = re.compile(r'\s*(\w+)\s*(=~|!~|!=|=)\s*"(.*)"\s*')


def amtool(tool: Tool, *arguments: str) -> str:
    result = subprocess.run(
        [tool("amtool"), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def known() -> list[dict[str, str]]:
    """Return the labels that each alert has when it fires, by the cases that promtool confirms."""
    found = []
    for case in cases():
        labels = {**rule_of(case)["labels"], **case.body.get("labels", {})}
        found.append({"alertname": case.alert, **{n: str(v) for n, v in labels.items()}})
    return found


def test_amtool_accepts_the_configuration(tool: Tool) -> None:
    """As it is shipped, but for the addresses."""
    assert "SUCCESS" in amtool(tool, "check-config", str(FILE))


def test_each_alert_goes_to_the_receiver_of_its_severity(tool: Tool) -> None:
    """By amtool's own test of routes; the deadman's signal goes outside."""
    told = {
        (r["labels"]["severity"], r["labels"]["component"], r["alert"])
        for r in rules()
        if "alert" in r
    }
    assert len(told) > 60
    for severity, component, alert in told:
        labels = (
            f"alertname={alert}",
            f"severity={severity}",
            f"component={component}",
            "instance=a",
        )
        amtool(
            tool, "config", "routes", "test", f"--config.file={FILE}",
            f"--verify.receivers={RECEIVERS[severity]}", *labels,
        )  # fmt: skip


def test_secrets_stand_in_files() -> None:
    """No key, token or password in the configuration itself."""
    text = FILE.read_text("utf-8")
    assert text.count("_file:") >= 4
    assert not re.search(r"(routing_key|service_key|api_url|password|credentials|token):", text)


def matches(labels: dict[str, str], matchers: list[str]) -> bool:
    for matcher in matchers:
        found = _MATCHER.fullmatch(matcher)
        assert found, matcher
        name, sign, text = found.groups()
        value = labels.get(name, "")
        same = re.fullmatch(text, value) is not None if "~" in sign else value == text
        if same == sign.startswith("!"):
            return False
    return True


def pairs(rule: dict[str, Any]) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Yield each source and target that a rule is about."""
    for source in known():
        if matches(source, rule["source_matchers"]):
            for target in known():
                same = source["alertname"] == target["alertname"]
                if matches(target, rule["target_matchers"]) and (
                    same or "alertname" not in rule["equal"]
                ):
                    yield source, target


def test_inhibitions_compare_labels_that_both_sides_have() -> None:
    """A label that one side lacks inhibits nothing; one that both lack inhibits everything."""
    for rule in yaml.safe_load(FILE.read_text("utf-8"))["inhibit_rules"]:
        found = list(pairs(rule))
        assert found, rule
        for source, target in found:
            for label in rule["equal"]:
                assert (label in source) == (label in target), (label, source, target)
        assert "cluster" in rule["equal"], rule


def test_inhibitions_name_alerts_that_there_are() -> None:
    """A renamed alert would inhibit nobody, silently."""
    names = {rule["alert"] for rule in rules() if "alert" in rule}
    for rule in yaml.safe_load(FILE.read_text("utf-8"))["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            found = _MATCHER.fullmatch(matcher)
            assert found, matcher
            if found[1] == "alertname":
                assert set(found[3].split("|")) <= names, matcher


def test_no_page_is_about_the_promise_of_one_node() -> None:
    """Promises are judged over all replicas: no page of serving carries a node."""
    for labels in known():
        if labels["severity"] == "page" and labels["component"] == "serving":
            assert not {"instance", "server"} & set(labels), labels


def texts_of(value: Any) -> Iterator[str]:
    """Yield all templates in a receiver."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from texts_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts_of(inner)
    elif isinstance(value, str) and "{{" in value:
        yield value


@pytest.mark.parametrize("status", ["firing", "resolved"])
def test_two_nodes_with_one_fault_are_told_with_a_text(
    tool: Tool, tmp_path: Path, status: str
) -> None:
    """PagerDuty refuses a page whose summary is empty: two nodes have none in common."""
    (tmp_path / "none.tmpl").write_text("", "utf-8")
    labels = {"alertname": "RdmaPortDown", "severity": "page", "component": "fabric"}
    found = [
        {
            "status": status, "labels": {**labels, "instance": node},
            "annotations": {
                "summary": f"{node}: RDMA ports are down", "description": f"at {node}",
                "action": f"drain {node}", "runbook_url": "runbooks/fabric.md#rdmaportdown",
            },
        }
        for node in ("node-1", "node-2")
    ]  # fmt: skip
    data = {"status": status, "alerts": found, "commonLabels": labels, "commonAnnotations": {}}
    (tmp_path / "data.json").write_text(json.dumps(data), "utf-8")
    receivers = yaml.safe_load(FILE.read_text("utf-8"))["receivers"]
    templates = list(texts_of(receivers))
    assert len(templates) >= 6
    for template in templates:
        if status == "resolved" and ".Firing" in template:
            continue
        shown = amtool(
            tool, "template", "render", f"--template.glob={tmp_path / 'none.tmpl'}",
            f"--template.data={tmp_path / 'data.json'}", f"--template.text={template}",
        )  # fmt: skip
        assert shown.strip(), template
        if "summary" in template:
            assert "node-1: RDMA ports are down" in shown, template
            assert "node-2: RDMA ports are down" in shown, template
