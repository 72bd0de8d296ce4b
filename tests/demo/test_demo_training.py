"""The demo's training job: its steps, its faults, what it prints and pushes, and its hardware."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from exporter.demo import SCENARIOS, TRAINING_LOG, Demo, Faults
from exporter.demo.node import Node
from exporter.demo.training import CASE_STUDY, Lap, Parts
from exporter.demo.trainlog import Teller, lines, phases, records

BORN = 1.8e9
PEAK = 989.4e12
STEPS = {"baseline": 8.2, "parallelism": 6.8, "nccl": 6.1, "fp8": 4.4, "overlap": 4.0,
         "fusion": 3.5, "data": 3.3}  # fmt: skip
"""Tables 16-15 to 16-20."""


def laps(scenario: str, seconds: float, faults: Faults | None = None) -> list[Lap]:
    """Return the steps of the job in so many seconds."""
    node = Node(0, BORN, SCENARIOS[scenario])
    if faults is not None:
        node.inject(faults)
    node.advance(seconds)
    return node.job.take()


def mean(laps: list[Lap], rank: int = 0) -> Parts:
    """Return the mean parts of a rank's steps, without the first one."""
    return Parts._make(map(fmean, zip(*(lap.ranks[rank] for lap in laps[1:]), strict=True)))


@pytest.fixture(scope="module")
def usual() -> list[Lap]:
    return laps("default", 110)


def test_a_step_is_the_sum_of_its_parts_on_every_rank(usual: list[Lap]) -> None:
    """Whoever is faster waits longer; all ranks end a step together."""
    assert len(usual) > 15
    for before, lap in pairwise(usual):
        assert lap.began == pytest.approx(before.ends)
        for parts in lap.ranks:
            assert parts.seconds == pytest.approx(lap.slowest.seconds)
        assert lap.ranks[0].communication > lap.ranks[3].communication, "GPU 7 is the slow one"


@pytest.mark.parametrize(("name", "rank"), [("default", 0), ("case-study", 5)])
def test_gpus_do_the_flops_that_the_job_claims(name: str, rank: int) -> None:
    """Tensor activity times clock is what the job's tokens cost, by its own account."""
    node = Node(0, BORN, SCENARIOS[name])
    gpu = node.gpus.all[node.job.scenario.gpus[rank]]
    done = 0.0
    for _ in range(60 * 6):
        node.advance(1 / 6)
        done += gpu.rates.tensor * gpu.clock / 1830 * PEAK / 6
    assert done == pytest.approx(node.job.flops(node.now, rank), rel=0.02)


def test_all_eight_gpus_train_in_the_case_study_and_nobody_serves() -> None:
    node = Node(0, BORN, SCENARIOS["case-study"])
    node.advance(20)
    assert not node.serves
    assert {gpu.processes[0].name for gpu in node.gpus.all} == {"pt_main_thread"}
    assert all(gpu.sums.tensor > 1 for gpu in node.gpus.all)
    moved = [port.sent for port in node.fabric.ports().values() if port.infiniband]
    assert min(moved) == max(moved) > 50e9


def test_a_stall_of_the_loader_is_the_share_of_the_step_that_was_asked_for() -> None:
    stalled = laps("default", 110, Faults(data=0.25))
    share = mean(stalled).data / mean(stalled).seconds
    assert share == pytest.approx(0.25 + 0.05 / mean(stalled).seconds, abs=0.001)
    assert mean(stalled).communication == pytest.approx(mean(laps("default", 80)).communication,
                                                        rel=0.05)  # fmt: skip


def test_late_ranks_are_waited_for_in_the_collective(usual: list[Lap]) -> None:
    late, before = mean(laps("default", 140, Faults(late=0.2))), mean(usual)
    assert late.communication - before.communication == pytest.approx(0.2 * late.seconds, rel=0.1)
    assert late.data == pytest.approx(before.data)


def test_a_capped_clock_slows_products_and_nothing_else(usual: list[Lap]) -> None:
    node = Node(0, BORN, SCENARIOS["default"])
    node.inject(Faults(clock=1005))
    node.advance(110)
    capped, before = mean(node.job.take()), mean(usual)
    assert capped.matmul == pytest.approx(before.matmul * 1720 / 1005, rel=0.03)
    assert capped.memory == pytest.approx(before.memory, rel=0.03)
    assert [gpu.clock for gpu in node.gpus.all[4:]] == [1005] * 4
    assert {gpu.holding for gpu in node.gpus.all[4:]} == {"cap"}
    assert node.gpus.all[0].cap > 1005


def test_a_straggler_waits_least_and_the_others_wait_for_it() -> None:
    slow = laps("default", 110, Faults(straggler=1, slower=1.4))
    waits = [mean(slow, rank).communication for rank in range(4)]
    works = [mean(slow, rank).work for rank in range(4)]
    assert min(range(4), key=waits.__getitem__) == 1
    assert works[1] == pytest.approx(1.4 * works[0])


def test_checkpoints_come_as_often_as_they_are_asked_for() -> None:
    saved = [lap.number for lap in laps("default", 120, Faults(checkpoint_steps=5))
             if lap.slowest.checkpoint]  # fmt: skip
    assert saved[:3] == [6, 11, 16]


def test_each_phase_of_the_case_study_takes_as_long_as_published() -> None:
    for name, stage in CASE_STUDY.items():
        told = stage.data + stage.framework + stage.matmul + stage.memory + stage.bubble
        assert told + (stage.communication or 0) == pytest.approx(STEPS[name])
        assert stage.memory > 0.5
        assert (stage.tokens, stage.batch, stage.world) == (8192, 2048, 1024)
        ranks = stage.data_parallel * stage.tensor_parallel * stage.pipeline_parallel
        assert ranks == stage.world


def test_the_case_study_goes_through_all_its_phases() -> None:
    """Each is an attempt of its own, and the time of its steps is that of the table."""
    node = Node(0, BORN, SCENARIOS["case-study"])
    found: dict[int, list[float]] = {}
    while len(found.get(7, ())) < 5:
        node.advance(20)
        for lap in node.job.take():
            found.setdefault(lap.attempt, []).append(lap.seconds)
        assert node.now < 900
    for attempt, seconds in enumerate(STEPS.values(), 1):
        assert found[attempt] == pytest.approx([seconds] * len(found[attempt]))
        assert len(found[attempt]) >= 12 or attempt == 7
    assert sum(sum(one) for one in found.values()) + 6 * 8 == pytest.approx(node.now, abs=5)


def test_what_is_printed_is_what_was_done(usual: list[Lap]) -> None:
    """Megatron-LM's line: milliseconds, the batch of the run, FLOP/s for each GPU."""
    lap = usual[2]
    (text,) = lines(lap, BORN)
    fields = dict(part.split(": ") for part in (one.strip() for one in text.split("|")[1:-1]))
    assert float(fields["elapsed time per iteration (ms)"]) == pytest.approx(1000 * lap.seconds,
                                                                             abs=0.1)  # fmt: skip
    assert int(fields["consumed samples"]) == 3 * 512
    flops = float(fields["throughput per GPU (TFLOP/s/GPU)"]) * 1e12
    assert flops == pytest.approx(79.626e9 * 16_384 / lap.seconds, rel=0.001)


def test_what_ranks_push_adds_up(usual: list[Lap]) -> None:
    told = list(records(usual[3], SCENARIOS["default"], BORN, anew=True))
    facts, submitted, started, *steps = told
    assert facts["local_ranks"] == {"0": 4, "1": 5, "2": 6, "3": 7}
    assert submitted["wall"] == started["wall"] - 95
    assert (started["moment"], started["wall"]) == ("started", BORN + usual[3].began)
    assert [step["rank"] for step in steps] == [0, 1, 2, 3]
    assert [step.get("tokens") for step in steps] == [512 * 2048, None, None, None]
    for step in steps:
        assert math.fsum(step["phases"].values()) == pytest.approx(step["seconds"])
        assert step["communication"] >= step["phases"]["communication"]


def test_a_checkpoint_is_told_apart_from_the_step() -> None:
    lap = next(one for one in laps("checkpoints", 60) if one.slowest.checkpoint)
    assert sum(phases(lap.ranks[0]).values()) == pytest.approx(lap.seconds)
    assert lap.slowest.seconds == pytest.approx(lap.seconds + 4.0)
    printed = list(lines(lap, BORN))
    assert "saved checkpoint from iteration       5 " in printed[0]
    (moment,) = [one for one in records(lap, SCENARIOS["default"], BORN, anew=False)
                 if one.get("kind") == "moment"]  # fmt: skip
    assert (moment["step"], moment["seconds"]) == (5, 4.0)


def pushed(demo: Demo) -> list[dict[str, Any]]:
    return [record for body in demo.pushes() for record in json.loads(body)["records"]]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path, scenario="default")
    yield demo
    demo.close()


def test_the_demo_prints_and_pushes_the_same_steps_once(demo: Demo) -> None:
    """Also those of the time before anybody looked."""
    demo.step(30)
    log = demo.root / TRAINING_LOG.lstrip("/")
    printed = log.read_text("utf-8").count("] iteration ")
    steps = [one["step"] for one in pushed(demo) if one.get("rank") == 0]
    assert steps == list(range(1, printed + 1))
    assert pushed(demo) == []
    demo.step(10)
    assert {one["step"] for one in pushed(demo)} <= {printed + 1, printed + 2, printed + 3}


def test_faults_can_begin_while_the_demo_runs(demo: Demo) -> None:
    demo.inject(Faults(data=0.5))
    demo.step(60)
    last = [one for one in pushed(demo) if one.get("rank") == 0][-1]
    assert last["phases"]["data"] > 0.5 * last["seconds"]


def test_a_large_log_is_moved_aside(tmp_path: Path, usual: list[Lap]) -> None:
    teller = Teller(tmp_path / "train.log", SCENARIOS["default"], BORN)
    for _ in range(700):
        teller.tell(usual)
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) < 4.1 * 2**20


def test_an_unknown_scenario_names_those_that_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    from exporter.__main__ import main

    with pytest.raises(SystemExit) as ended:
        main(["demo", "--scenario", "coffee"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "--scenario: 'coffee' is not known; there are default" in said
    assert all(name in said for name in SCENARIOS)
