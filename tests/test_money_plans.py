"""What the settings of prices make of the daemon's plans."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.config import LARGEST_DOCUMENT, ConfigError, parse
from exporter.plans import Estate, Plan, plan
from exporter.runner import Runner, Schedule
from exporter.samples import Source
from tests.derive.cost_lab import Driver
from tests.fakes import FakeClock

EXAMPLE = Path(__file__).parent.parent / "deploy/tco.example.yaml"


def plans(text: str, *, gpus: bool = True) -> dict[str, Plan]:
    found = plan(parse(text, "test"), Estate(FakeClock(), gpus=gpus))
    return {one.name: one for one in found}


def test_dollars_are_counted_where_there_are_gpus() -> None:
    assert "derive:cost" in plans("")
    assert "derive:cost" not in plans("", gpus=False)
    assert "derive:cost" in plans("cost: {enabled: true}", gpus=False)
    assert "derive:cost" not in plans("cost: {enabled: false}")


def test_opencost_is_asked_only_where_that_is_wanted() -> None:
    """Nothing goes out over the network unasked."""
    assert "opencost" not in plans("")
    assert "opencost" in plans("sources: {opencost: {enabled: true}}")


def test_the_node_is_called_as_the_cluster_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pod the host name is that of the pod; the node's is in the environment."""
    text = "sources: {opencost: {enabled: true%s}}"
    monkeypatch.setenv("NODE_NAME", "gpu-7")
    assert plans(text % "")["opencost"].fingerprint.endswith(" gpu-7")
    assert plans(text % ", node: other")["opencost"].fingerprint.endswith(" other")


def test_a_changed_price_starts_only_what_uses_it_anew() -> None:
    """No reader is disturbed by a contract."""
    before, after = plans("cost: {gpu_hour: 2}"), plans("cost: {gpu_hour: 3}")
    anew = [name for name in before if before[name].fingerprint != after[name].fingerprint]
    assert anew == ["derive:cost"]
    after = plans("cost: {gpu_hour: 2, output_weight: 3}")
    anew = [name for name in before if before[name].fingerprint != after[name].fingerprint]
    assert sorted(anew) == ["derive:cost", "derive:serving"]


def read(text: str) -> list[tuple[str, ...]]:
    """Return what is told of the price of a GPU, by a daemon with these settings."""
    clock = FakeClock()
    estate = Estate(clock, gpus=True)
    (one,) = [p for p in plan(parse(text, "test"), estate) if p.name == "derive:cost"]

    def step(source: Source) -> None:
        slot = estate.board.enroll(source.name, source.group, 2.0, 10.0, clock.now)
        Runner(source, Schedule(5.0, 2.0), slot, clock).step()

    step(Driver(clock, {0: 0.5}))
    step(one.make())
    view = estate.board.view(clock.now)
    return [
        (f"{hour.value:.2f}", *info.labels[2:])
        for hour, info in zip(
            view.samples(c.COST_GPU_HOUR_DOLLARS), view.samples(c.COST_PRICE_INFO), strict=True
        )
    ]


def test_the_cost_of_an_owned_hour_is_that_of_the_plan() -> None:
    """The specification has 1.59 (83.4 M / 52.56 M hours), with a total of 8.8 M a year whose parts
    add up to 7.8 M."""
    text = f"cost: {{tco: {{file: {EXAMPLE}, years: 3}}}}"
    assert read(text) == [("1.53", "tco", "owned", "", "")]


def test_an_instance_that_is_named_has_its_list_price() -> None:
    """With its day; the contract has to be stated."""
    text = "cost: {instance_type: p5.48xlarge%s}"
    assert read(text % "") == []
    ((price, source, pricing, instance, day),) = read(text % ", pricing: on_demand")
    assert (source, pricing, instance) == ("listed", "on_demand", "p5.48xlarge")
    assert float(price) > 0
    assert day >= "2024-01-01"


def test_a_stated_price_goes_by_the_name_of_the_product() -> None:
    text = "cost: {pricing: reserved, as_of: 2026-11-01, gpu_hour: {'*a100*': 1.2, '*h100*': 2.1}}"
    assert read(text) == [("2.10", "config", "reserved", "", "2026-11-01")]


def test_a_plan_that_cannot_be_used_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    """With the file, and the key in it."""
    file = tmp_path / "tco.yaml"
    for text, said in (
        ("capex: {gpu_servers: 1000}", "it does not say how many GPUs there are"),
        ("capex: {gpu_servers: many}", "capex.gpu_servers"),
        ("capex: [", "expected"),
        ("gpus: 8\ncapex: {gpu: 1, gpu: 2}", "key 'gpu' is given twice"),
        ("gpus: 8\ncapex: {gpu: 1}\ndepreciation: {of: [gpu, gpu]}", "'gpu' is named twice"),
        ("capex: {gpu: 1}\n" + "#" * LARGEST_DOCUMENT, f"larger than {LARGEST_DOCUMENT} bytes"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=r"cost\.tco\.file") as caught:
            plans(f"cost: {{tco: {{file: {file}}}}}")
        assert said in str(caught.value)


def test_a_plan_that_is_a_pipe_does_not_hold_up_the_daemon(tmp_path: Path) -> None:
    """Nobody writes to it: reading would wait for ever, and with it the start or a reload."""
    os.mkfifo(tmp_path / "tco.yaml")
    with pytest.raises(ConfigError, match=r"cost\.tco\.file: .*: no plain file"):
        plans(f"cost: {{tco: {{file: {tmp_path / 'tco.yaml'}}}}}")
