"""What was promised: the specification's sentences, the precise form, and what follows."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from exporter.config import ConfigError, parse
from exporter.objectives import Objective, SlaError, read_inference, read_slas, read_training

SEED = """
inference_sla:
  latency:
    ttft_p50: "< 200ms"      # 50% requests first token latency < 200ms
    ttft_p95: "< 500ms"
    ttft_p99: "< 1000ms"
    tpot_p95: "< 50ms"
  throughput:
    min_tps: "> 10,000 tokens/s"
  availability:
    uptime: "> 99.9%"
    error_rate: "< 0.1%"
    retry_success_rate: "> 99%"
training_sla:
  job_start_latency_p95: "< 5 minutes"
  job_failure_rate: "< 5%"
  checkpoint_recovery_time: "< 2 minutes"
"""


def chat(**entries: Any) -> tuple[Objective, ...]:
    """Return the objectives of an SLA named chat in the precise form."""
    return read_slas({"chat": entries})


def test_the_specifications_sla_is_taken_as_it_stands() -> None:
    """Strings, thousands separators, words for units: share of good events and threshold."""
    found = parse(SEED, "f").objectives

    assert [(o.sla, o.name, o.kind, o.signal, o.target, o.threshold) for o in found] == [
        ("inference_sla", "ttft_p50", "latency", "ttft", 0.5, 0.2),
        ("inference_sla", "ttft_p95", "latency", "ttft", 0.95, 0.5),
        ("inference_sla", "ttft_p99", "latency", "ttft", 0.99, 1.0),
        ("inference_sla", "tpot_p95", "latency", "tpot", 0.95, 0.05),
        ("inference_sla", "min_tps", "throughput", "output_tokens", 0.99, 10_000.0),
        ("inference_sla", "uptime", "availability", "uptime", 0.999, None),
        ("inference_sla", "error_rate", "error_rate", "error_rate", 0.999, None),
        ("inference_sla", "retry_success_rate", "retry_success", "retry_success_rate", 0.99, None),
        ("training_sla", "job_start_latency_p95", "training", "job_start_latency", 0.95, 300.0),
        ("training_sla", "job_failure_rate", "training", "job_failure_rate", 0.95, None),
        (
            "training_sla", "checkpoint_recovery_time", "training", "checkpoint_recovery_time",
            0.95, 120.0,
        ),
    ]  # fmt: skip
    assert [o.statement for o in found][4:6] == ["> 10,000 tokens/s", "> 99.9%"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("< 500ms", 0.5), ("<500 ms", 0.5), (" <=  0.5 s ", 0.5), ("≤ 2 seconds", 2.0),
        ("< 1,500ms", 1.5), ("< 1,000,000 us", 1.0), ("< 2 min", 120.0), ("< 2m", 120.0),
        ("< 1 hour", 3600.0), ("< 0.1ms", 0.0001),
        ("< 500\u00b5s", 0.0005), ("< 500\u03bcs", 0.0005),
    ],
)  # fmt: skip
def test_thresholds(text: str, seconds: float) -> None:
    """Operator, number and unit, with or without blanks."""
    assert read_inference({"latency": {"e2e_p95": text}})[0].threshold == seconds


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        ({"signal": "error_rate", "target": "0.1%"}, "write '99.9%'"),
        ({"signal": "error_rate", "target": "< 0.1%"}, "write '99.9%'"),
        ({"signal": "uptime", "target": "0.95%"}, "write '99.05%' or '95%'"),
        ({"signal": "uptime", "target": "= 99.9%"}, "write '99.9%'"),
        ({"signal": "ttft", "target": "< 95%", "threshold": "1s"}, "write '95%'"),
        ({"signal": "ttft", "target": "5%", "threshold": "1s"}, "write '95%'"),
        ({"signal": "ttft", "target": "<", "threshold": "1s"}, "least share of good"),
        ({"signal": "ttft", "target": "95%", "threshold": "> 1s"}, "write '< 1s'"),
        ({"signal": "output_tokens", "target": "95%", "threshold": "< 9 tokens/s"}, "write '> 9"),
    ],
)
def test_an_objective_that_means_the_opposite_is_refused(
    objective: dict[str, str], said: str
) -> None:
    """An error rate of 0.1 % became "0.1 % do not fail", and "< 95%" became "at least 95 %"."""
    with pytest.raises(SlaError, match=re.escape(said)):
        chat(objectives={"mine": objective})


@pytest.mark.parametrize(
    ("name", "statement", "said"),
    [
        ("error_rate", "< 99.9%", "write '< 0.1%'"),
        ("uptime", "> 0.1%", "write '> 99.9%'"),
        ("retry_success_rate", "> 0.99%", "write '> 99.01%' or '> 99%'"),
    ],
)
def test_a_sentence_that_means_the_opposite_is_refused(
    name: str, statement: str, said: str
) -> None:
    """Success and failure are easily mistaken for one another."""
    with pytest.raises(SlaError, match=re.escape(said)):
        chat(objectives={name: statement})


def test_a_name_that_promises_something_else_is_refused() -> None:
    """On a page only the name is seen: a ttft_p99 that is a p95, or of tpot."""
    own = {"signal": "ttft", "target": "95%", "threshold": "1s"}
    for name, said in (("ttft_p99", "its name says 99 %"), ("tpot_p95", "its name says tpot")):
        with pytest.raises(SlaError, match=said):
            chat(objectives={name: own})
    assert chat(objectives={"ttft_p95": own, "ttft_paid": {**own, "threshold": "2s"}})


def test_the_chapters_text_without_its_indentation_says_where_keys_belong() -> None:
    """As it is pasted from the book; `latency` was taken for a misspelt `listen`."""
    lines = (line.strip() for line in SEED.splitlines() if "training_sla" not in line)
    with pytest.raises(ConfigError) as caught:
        parse("\n".join(lines), "f")

    text = str(caught.value)
    assert "latency: unknown key at the top; it belongs into inference_sla: indent" in text
    assert "ttft_p95: unknown key at the top; it belongs into inference_sla.latency" in text
    assert "uptime: unknown key at the top; it belongs into inference_sla.availability" in text
    assert "job_failure_rate: unknown key at the top; it belongs into training_sla" in text


@pytest.mark.parametrize(
    ("name", "target"), [("p50", 0.5), ("p99.5", 0.995), ("p99_9", 0.999), ("p5", 0.05)]
)
def test_a_percentile_is_a_share_of_requests(name: str, target: float) -> None:
    """The p99.5 below a threshold: 99.5 % of requests below it."""
    assert read_inference({"latency": {f"ttft_{name}": "< 1s"}})[0].target == target


def test_so_many_events_are_needed_that_one_bad_one_does_not_break_the_promise() -> None:
    """A p99 says nothing about twenty requests; a failed probe of twenty says something."""
    needed = {o.name: o.minimum_events for o in parse(SEED, "f").objectives}

    assert needed["ttft_p50"] == needed["ttft_p95"] == needed["uptime"] == 20
    assert needed["ttft_p99"] == 100
    assert needed["error_rate"] == 1000


def test_a_p50_has_no_burn_rate_and_a_p95_has_one() -> None:
    """The burn rate of a p50 is 2 at most: no alert can rest on it."""
    by_name = {o.name: o.burn_alerts for o in parse(SEED, "f").objectives}

    assert not by_name["ttft_p50"]
    assert by_name["ttft_p95"]


def test_options_of_an_sla_a_tier_and_an_objective_the_innermost_wins() -> None:
    """What is common is said once; a tier's own objective takes the place of the common one."""
    own = {"signal": "ttft", "target": "95%", "threshold": "300ms", "minimum_events": 40}
    fast = {"signal": "itl", "target": "> 99%", "threshold": "50ms"}
    found = chat(
        models=["llama-*"],
        per="model",
        minimum_events=50,
        objectives={"ttft_p95": "< 2s"},
        tiers={
            "paid": {"servers": ["paid-*"], "minimum_events": 30, "objectives": {"ttft_p95": own}},
            "free": {"servers": ["free-*"], "per": "all", "objectives": {"fast": fast}},
        },
    )

    paid, free, free_fast = sorted(found, key=lambda o: (o.tier != "paid", o.name != "ttft_p95"))
    assert (paid.tier, paid.threshold, paid.minimum_events, paid.per) == ("paid", 0.3, 40, "model")
    assert paid.models == ("llama-*",)
    assert paid.servers == ("paid-*",)
    assert (free.tier, free.threshold, free.minimum_events, free.per) == ("free", 2.0, 50, "all")
    assert (free_fast.signal, free_fast.target, free_fast.threshold) == ("itl", 0.99, 0.05)


def test_an_sla_with_two_tiers_has_the_common_objective_in_each() -> None:
    """One sentence for all, one tier that is promised more."""
    found = chat(
        objectives={"ttft_p95": "< 2s", "error_rate": "< 1%"},
        tiers={"paid": {"objectives": {"ttft_p95": "< 300ms"}}, "free": {}},
    )

    assert sorted((o.tier, o.name, o.threshold) for o in found if o.name == "ttft_p95") == [
        ("free", "ttft_p95", 2.0),
        ("paid", "ttft_p95", 0.3),
    ]
    assert sorted(o.tier for o in found if o.name == "error_rate") == ["free", "paid"]


def test_selectors_are_patterns_and_their_absence_means_all() -> None:
    """As a shell would match names."""
    some, every = (
        chat(models=["llama-*", "qwen"], servers=["gpu-?"], objectives={"ttft_p95": "< 1s"})[0],
        chat(objectives={"ttft_p95": "< 1s"})[0],
    )

    assert some.selects("llama-8b", "gpu-1")
    assert not some.selects("llama-8b", "gpu-10")
    assert not some.selects("Qwen", "gpu-1")
    assert every.selects("", "anything")


def test_a_class_of_status_codes_covers_the_class_and_each_code_in_it() -> None:
    """Engines give either; a number in YAML is a code too."""
    one = chat(excluded_codes=["4xx", 503], objectives={"error_rate": "< 1%"})[0]

    assert one.excluded_codes == ("4??", "503")


def test_the_window_of_the_state_is_told_too() -> None:
    """A state whose compliance nobody can see would be hard to believe."""
    one = chat(window="30m", windows=["1h"], objectives={"ttft_p95": "< 1s"})[0]

    assert one.windows == ("30m", "1h")


def test_all_mistakes_are_told_at_once() -> None:
    """Each with its key, those of a common objective once although two tiers have it."""
    with pytest.raises(SlaError) as caught:
        read_slas(
            {
                "a": {"objectives": {"ttft_p95": "< 1"}, "tiers": {"x": {}, "y": {"per": 3}}},
                "b": {"objectives": {"tpot_p95": "> 1s"}},
            }
        )

    assert [".".join(path) for path, _ in caught.value.problems] == [
        "a.tiers.y.per", "a.objectives.ttft_p95", "b.objectives.tpot_p95",
    ]  # fmt: skip


@pytest.mark.parametrize("read", [read_inference, read_training, read_slas])
@pytest.mark.parametrize(
    "document",
    [
        "[1]", "text", "1", "{1: 2}", "{latency: [1]}", "{latency: {ttft_p95: {a: b}}}",
        "{latency: {ttft_p95: [1]}}", "{latency: {ttft_p95: 1e400}}", "{latency: {ttft_p95: ''}}",
        "{job_failure_rate: {}}", "{a: {objectives: {x: {signal: [ttft]}}}}",
        "{a: {objectives: {x: {signal: ttft, target: '', threshold: ''}}}}",
        "{a: {objectives: 3, tiers: 4}}", "{a: {tiers: {b: {tiers: {}}}}}",
        "{a: {objectives: {ttft_p95: '< 99999999999999999999999999999999999999s'}}}",
        "{a: {objectives: {uptime: '> 99.99999999999999999999999%'}}}",
        "{a: {objectives: {ttft_p: '< 1s'}}}", "{a: {objectives: {_p95: '< 1s'}}}",
        "{latency: {ttft_p00: '< 1s'}}", "{latency: {ttft_p٣: '< 1s'}}",
        "{latency: {ttft_p95: '< ٣s'}}",
    ],
)  # fmt: skip
def test_whatever_stands_there_is_refused_with_a_key(read: Any, document: str) -> None:
    """No crash, no objective out of nonsense."""
    with pytest.raises(SlaError) as caught:
        read(yaml.safe_load(document))

    assert all(reason for _, reason in caught.value.problems)


@pytest.mark.parametrize("text", ["", "inference_sla:", "sla: {}", "inference_sla: {latency: }"])
def test_nothing_is_promised_where_nothing_stands(text: str) -> None:
    """Helm leaves such keys when a value is empty."""
    assert parse(text, "f").objectives == ()


def test_every_objective_can_be_put_in_words() -> None:
    """What `flopwatch check` prints: how each is evaluated."""
    words = [o.describe() for o in parse(SEED, "f").objectives]
    some = {"models": ["a*"], "per": "server", "objectives": {"ttft_p99": "< 1s"}}
    words += [o.describe() for o in chat(**some, tiers={"paid": {}})]

    assert words[1] == "inference_sla/ttft_p95: 95 % of ttft at most 0.5 s; from 20 events on"
    assert words[4].startswith(
        "inference_sla/min_tps: 99 % of seconds with demand: output_tokens at least 10000 tokens/s"
        "; of each node here, alerts add up the tokens of all nodes; from 100"
    )
    assert words[6] == (
        "inference_sla/error_rate: 99.9 % of requests do not fail; from 1000 events on"
    )
    assert words[-1] == (
        "chat/paid/ttft_p99: 99 % of ttft at most 1 s; models a*; for each server;"
        " from 100 events on"
    )
    assert not any("THRESHOLD" in one for one in words)


def test_promises_about_jobs_are_told_as_they_are_judged() -> None:
    """A handful of jobs in an hour: each counts, and none burns a budget."""
    found = read_training(yaml.safe_load(SEED)["training_sla"])

    assert [one.describe() for one in found] == [
        (
            "training_sla/job_start_latency_p95: 95 % of jobs: from submission to the first step"
            " at most 300 s; from 1 events on"
        ),
        "training_sla/job_failure_rate: 95 % of jobs end without failing; from 1 events on",
        (
            "training_sla/checkpoint_recovery_time: 95 % of failures: until the first step after it"
            " at most 120 s; from 1 events on"
        ),
    ]
    assert {(one.window, one.windows, one.burn_alerts) for one in found} == {("1h", ("1h",), False)}
