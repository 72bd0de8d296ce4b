"""`flopwatch comm` as people call it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.test_command import flopwatch


def told(*words: str) -> dict[str, Any]:
    result = flopwatch("comm", "--json", *words)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def by_algorithm(found: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["collective"], one["algorithm"]): one for one in found["messages"]}


def test_the_seed_s_example_is_told_as_it_is_printed() -> None:
    """One port for each node: 12 ms for the shard, 6.2 s for the gradient."""
    for size, seconds in (("274MB", 0.0122), ("140GB", 6.21)):
        found = by_algorithm(told("--size", size, "--nics-per-node", "1"))
        assert found["all_reduce", "ring"]["seconds"] == pytest.approx(seconds, rel=5e-3)


def test_all_ports_of_a_node_count_unless_one_says_otherwise() -> None:
    found = told("--size", "140GB")
    assert found["fabric"]["ring_bytes_per_second"] == pytest.approx(360e9)
    messages = by_algorithm(found)
    assert messages["all_reduce", "ring"]["seconds"] == pytest.approx(0.776, abs=1e-3)
    assert messages["all_reduce", "sharp"]["seconds"] == pytest.approx(0.389, abs=1e-3)
    assert {collective for collective, _ in messages} == {
        "all_reduce", "reduce_scatter", "all_gather", "all_to_all",
    }  # fmt: skip


def test_one_node_has_no_switches_between_nodes() -> None:
    messages = by_algorithm(told("--gpus", "8", "--size", "1GB", "--efficiency", "1"))
    assert ("all_reduce", "sharp") not in messages
    ring = messages["all_reduce", "ring"]
    assert ring["seconds"] == pytest.approx(1.75e9 / 450e9)
    assert ring["bus_bandwidth_bytes_per_second"] == pytest.approx(450e9)
    assert messages["all_reduce", "nvls"]["seconds"] == pytest.approx(1.125e9 / 450e9)


def test_a_step_of_fsdp_is_three_times_the_model() -> None:
    found = told("--gpus", "1024", "--parameters", "70B", "--strategy", "fsdp", "--efficiency", "1")
    (total,) = found["totals"]
    assert total["sent_bytes_per_rank"] == pytest.approx(3 * 140e9, rel=2e-3)
    assert total["seconds"] == pytest.approx(1.05, abs=0.01)


def test_a_job_of_four_dimensions_is_told_by_strategy_with_its_sum() -> None:
    found = told(
        "--gpus", "1024", "--model", "DeepSeek-V3", "--tensor", "4", "--pipeline", "4",
        "--expert", "8", "--micro-batches", "8", "--step-seconds", "20",
    )  # fmt: skip
    assert {one["strategy"] for one in found["step"]} == {"ddp", "fsdp", "hsdp", "tp", "pp", "ep"}
    total = {one["strategies"]: one for one in found["totals"]}["fsdp + tp + pp + ep"]
    parts = [one for one in found["step"] if one["strategy"] not in {"ddp", "hsdp"}]
    assert total["seconds"] == pytest.approx(sum(one["seconds"] for one in parts))
    assert total["share_of_step"] == pytest.approx(total["seconds"] / 20)


def test_a_config_json_tells_the_model(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "intermediate_size": 11008, "vocab_size": 32000,
    }))  # fmt: skip
    found = told("--gpus", "8", "--tensor", "8", "--model-config", str(file), "--strategy", "tp")
    (one,) = found["step"]
    assert (one["messages"], one["message_bytes"]) == (128, 4096 * 4096 * 2)


def test_people_get_tables() -> None:
    text = flopwatch("comm", "--model", "Llama-2-70b", "--step-seconds", "8.2").stdout
    assert "a ring over all has 360.0 GB/s (all ports of each node, 8)" in text
    assert "fsdp: 413.1 GB a rank" in text
    assert "of a step of 8.2 s" in text
    assert "2.00 x at most" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--size, --model, --model-config or --parameters: one is needed"),
        (("--model", "nobody-knows-me"), "--model: 'nobody-knows-me' is in no table"),
        (("--model-config", "/none.json"), "/none.json: No such file"),
        (("--model", "Llama-2-70b", "--parameters", "7B"), "only one of them"),
        (("--size", "140"), "argument --size: '140': a number with a unit is wanted"),
        (("--size", "1GB", "--nic", "400Gb/h"), "argument --nic"),
        (("--size", "1GB", "--efficiency", "1.2"), "argument --efficiency: a share"),
        (("--size", "1GB", "--gpus", "0"), "argument --gpus: a whole number"),
        (("--parameters", "7B", "--tensor", "3"), "--gpus: 512 is no multiple of tensor x"),
        (("--parameters", "7B", "--strategy", "tp"), "--strategy: tp needs --model"),
        (("--parameters", "7B", "--strategy", "zero"), "--strategy: 'zero' is none of ddp"),
        (("--model", "Llama-2-70b", "--expert", "2"), "--expert: Llama-2-70b has no experts"),
        (("--parameters", "7B", "--strategy", "hsdp", "--shard", "7"), "--shard: 7 does not"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_one_line(words: tuple[str, ...], said: str) -> None:
    result = flopwatch("comm", *words)
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_ranks_that_make_no_whole_nodes_are_told_all_but_the_strategy_that_needs_them() -> None:
    """`--gpus 12` was refused for a group of eight that nobody had asked for."""
    result = flopwatch("comm", "--gpus", "12", "--parameters", "7B", "--json")
    assert result.returncode == 0, result.stderr
    told = {one["strategy"] for one in json.loads(result.stdout)["step"]}
    assert told == {"ddp", "fsdp"}
    for words in (("--strategy", "hsdp"), ("--shard", "8")):
        result = flopwatch("comm", "--gpus", "12", "--parameters", "7B", *words)
        assert (result.returncode, "--shard: 8 does not divide" in result.stderr) == (2, True)
