"""`flopwatch alerts`: rules with the figures of a configuration, checked and tested by promtool."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alerts.cases import ALERTS, Wardrobe, cases, needed, promtool_tests
from tests.test_command import flopwatch

Tool = Callable[[str], str]
PROMISED = """
inference_sla:
  latency: {ttft_p50: "< 200ms", ttft_p95: "< 500ms", ttft_p99: "< 1000ms", tpot_p95: "< 50ms"}
  throughput: {min_tps: "> 10,000 tokens/s"}
  availability: {uptime: "> 99.9%", error_rate: "< 0.1%", retry_success_rate: "> 99%"}
training_sla: {job_start_latency_p95: "< 5 minutes", job_failure_rate: "< 5%"}
sla:
  chat:
    per: model
    models: ["llama-*", "q[wx]en?"]
    tiers: {gold: {objectives: {e2e_p99: "< 10s"}}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "flopwatch.yaml"
    path.write_text(PROMISED, "utf-8")
    return path


def written(config: Path, *arguments: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rules of each group that the command writes."""
    result = flopwatch("alerts", "--config", str(config), *arguments)
    assert result.returncode == 0, result.stderr
    return {group["name"]: group["rules"] for group in yaml.safe_load(result.stdout)["groups"]}


def promtool(tool: Tool, folder: Path, *arguments: str) -> None:
    result = subprocess.run(
        [tool("promtool"), *arguments],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


def test_promtool_accepts_what_is_written(tool: Tool, config: Path, tmp_path: Path) -> None:
    """No syntax error, no rule that looks like another."""
    result = flopwatch("alerts", "-c", str(config), "--runbooks", "https://wiki.example.com/x/")
    (tmp_path / "rules.yaml").write_text(result.stdout, "utf-8")
    promtool(tool, tmp_path, "check", "rules", "--lint-fatal", "rules.yaml")
    assert "https://wiki.example.com/x/runbooks/serving.md#slaviolated" in result.stdout


def test_whatever_a_model_is_called_promtool_accepts_it(tool: Tool, tmp_path: Path) -> None:
    """Quotes, braces of a template, ends of lines, and letters beyond sixteen bits."""
    names = [
        'we"ird\\*',
        "{{ bad }}",
        "%d $labels",
        "new\nline\t",
        "\x7f",
        "*a*[!b]",
        "\U0001f600-7b",
    ]
    sla = {"odd": {"per": "model", "models": names, "objectives": {"ttft_p95": "< 1s"}}}
    (tmp_path / "flopwatch.yaml").write_text(yaml.safe_dump({"sla": sla}), "utf-8")
    result = flopwatch("alerts", "-c", str(tmp_path / "flopwatch.yaml"))
    assert result.returncode == 0, result.stderr
    (tmp_path / "rules.yaml").write_text(result.stdout, "utf-8")
    promtool(tool, tmp_path, "check", "rules", "--lint-fatal", "rules.yaml")
    (rules,) = written(tmp_path / "flopwatch.yaml").values()
    burn = rules[0]
    assert '{{ "{{" }} bad }}' in burn["annotations"]["description"]
    assert "\\U0001f600" in burn["expr"]


def test_each_promise_has_the_alerts_that_it_can_have(config: Path) -> None:
    """A median's budget cannot burn fast; the limits are those of the table for 30 days."""
    groups = written(config)
    names = {name: [rule["alert"] for rule in rules] for name, rules in groups.items()}
    always = ["SlaBudgetBurnsSlowly", "SlaViolated", "SlaAbsent", "SlaConfigDiffers"]
    burns = ["SlaBudgetBurnsFast", "SlaBudgetBurns", "SlaBudgetBurnsDaily"]
    assert names["inference_sla/ttft_p50"] == always
    assert names["inference_sla/ttft_p95"] == burns + always
    assert names["training_sla/job_failure_rate"] == ["SlaAbsent", "SlaConfigDiffers"]
    limits = {
        promise: [rule["expr"].split("\n")[0].split()[-1] for rule in groups[promise][:3]]
        for promise in ("inference_sla/ttft_p95", "inference_sla/ttft_p99", "inference_sla/uptime")
    }
    assert limits == {
        "inference_sla/ttft_p95": ["0.72", "0.3", "0.15"],
        "inference_sla/ttft_p99": ["0.144", "0.06", "0.03"],
        "inference_sla/uptime": ["0.0144", "0.006", "0.003"],
    }
    four_weeks = written(config, "--days", "28")["inference_sla/ttft_p99"]
    assert [rule["expr"].split("\n")[0].split()[-1] for rule in four_weeks[:3]] == [
        "0.1344",
        "0.056",
        "0.028",
    ]


def test_models_and_tiers_are_matched(config: Path) -> None:
    rule = written(config)["chat/gold/e2e_p99"][0]
    assert 'model_name=~"llama\\\\-.*|q[wx]en."' in rule["expr"]
    assert rule["labels"]["tier"] == "gold"


def test_what_is_written_does_what_the_shipped_rules_do(
    tool: Tool, config: Path, tmp_path: Path
) -> None:
    """The same cases, with the same labels: fires, silent, recovers, little traffic."""
    own = {rule["alert"]: rule for rule in written(config)["inference_sla/ttft_p95"]}
    tests, records = [], {}
    for case in cases():
        if case.alert in {"SlaBudgetBurnsFast", "SlaViolated"}:
            tests += promtool_tests(Wardrobe(), case)[:: 1 if "Fast" in case.alert else 3]
            records |= {rule["record"]: rule for rule in needed(case.alert) if "record" in rule}
    # in the order of the file
    every = yaml.safe_load((ALERTS / "sla.yaml").read_text("utf-8"))["groups"][0]["rules"]
    used = [rule for rule in every if rule["record"] in records]
    group = {"name": "all", "rules": [*used, *own.values()]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [group]}), "utf-8")
    file = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(file), "utf-8")
    assert len(tests) == 7
    promtool(tool, tmp_path, "test", "rules", "test.yaml")


def test_a_promise_that_nobody_makes_and_one_with_other_figures_are_told(
    tool: Tool, config: Path, tmp_path: Path
) -> None:
    """Absence is no kept promise; nothing is said where there is no daemon at all."""
    rules = [
        rule
        for rule in written(config)["inference_sla/ttft_p95"]
        if rule["alert"] in {"SlaAbsent", "SlaConfigDiffers"}
    ]
    group = {"name": "all", "rules": rules}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [group]}), "utf-8")
    of = 'sla="inference_sla", objective="ttft_p95", tier=""'
    build = {"series": 'flopwatch_build_info{instance="a"}', "values": "1x100"}
    right = {"series": f'sla_target_ratio{{{of}, instance="a"}}', "values": "0.95x100"}
    limit = {"series": f'sla_threshold_seconds{{{of}, instance="a"}}', "values": "0.5x100"}
    wrong = {"series": f'sla_threshold_seconds{{{of}, instance="b"}}', "values": "0.8x100"}

    def test(series: list[dict[str, str]], *fires: str) -> dict[str, Any]:
        labels = 'alertstate="firing", component="serving", severity="ticket", sla="inference_sla"'
        samples = [
            {"labels": f'ALERTS{{alertname="{name}", {labels}, objective="ttft_p95"}}', "value": 1}
            for name in fires
        ]
        check = {"expr": 'ALERTS{alertstate="firing"}', "eval_time": "90m", "exp_samples": samples}
        return {"interval": "1m", "input_series": series, "promql_expr_test": [check]}

    tests = [
        test([build, right, limit]),
        test([build], "SlaAbsent"),
        test([]),
        test([build, right, limit, wrong], "SlaConfigDiffers"),
    ]
    file = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(file), "utf-8")
    promtool(tool, tmp_path, "test", "rules", "test.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no promise: no inference_sla, sla or training_sla"),
        ("inference_sla: {latency: {ttft_p95: fast}}", "inference_sla.latency.ttft_p95"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "flopwatch.yaml"
    path.write_text(text, "utf-8")
    result = flopwatch("alerts", "--config", str(path))
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert f"{path}: {said}" in result.stderr
