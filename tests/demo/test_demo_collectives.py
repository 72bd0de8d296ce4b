"""The made-up job's collectives as the real reader of NCCL Inspector's dumps finds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.clock import SystemClock
from exporter.demo import Demo, Faults
from exporter.demo.collectives import WEIGHTS
from exporter.profiling.folder import Directory, Folder
from exporter.samples import Metric, Sample
from exporter.sources.nccl import NcclSource

STRAGGLER = 2


def read(demo: Demo, seconds: int = 90) -> list[Sample]:
    """Let the job go on for a while, and read what its ranks wrote down."""
    source = NcclSource(Folder([Directory(demo.dumps, run=demo.run)]), SystemClock())
    found: list[Sample] = []
    for _ in range(seconds):
        demo.step(1.0)
        found = [one for one in source.read() if isinstance(one, Sample)]
    return found


def values(found: list[Sample], metric: Metric, **labels: str) -> dict[str, float]:
    """Return values by rank."""
    picked = {}
    for one in found:
        told = dict(zip(one.metric.labels, one.labels, strict=True))
        if one.metric is metric and labels.items() <= told.items():
            assert isinstance(one.value, float | int)
            picked[told["rank"]] = one.value
    return picked


def test_each_rank_gathers_twice_and_scatters_once(tmp_path: Path) -> None:
    """Of each micro-batch, the whole model; bandwidth is the size over the time that is told."""
    demo = Demo(tmp_path, scenario="sound")
    try:
        found = read(demo)
    finally:
        demo.close()

    counted = {
        name: values(found, c.NCCL_OPERATIONS_TOTAL, collective=name)
        for name in ("AllGather", "ReduceScatter", "AllReduce")
    }
    steps = counted["AllReduce"]["0"]
    assert steps > 10
    assert counted["AllGather"] == dict.fromkeys("0123", 4 * steps)
    assert counted["ReduceScatter"] == dict.fromkeys("0123", 2 * steps)
    gathered = values(found, c.NCCL_OPERATION_BYTES_TOTAL, collective="AllGather")
    took = values(found, c.NCCL_OPERATION_SECONDS_TOTAL, collective="AllGather")
    told = values(found, c.NCCL_BUS_BANDWIDTH_BYTES_PER_SECOND, collective="AllGather")
    assert gathered["1"] == 4 * steps * WEIGHTS
    assert told["1"] == pytest.approx(gathered["1"] / took["1"] * 63 / 64, rel=1e-3)


def test_all_but_the_slow_rank_wait_in_collectives(tmp_path: Path) -> None:
    """The straggler comes last, and so waits for nobody."""
    demo = Demo(tmp_path, scenario="sound")
    try:
        demo.inject(Faults(straggler=STRAGGLER, slower=1.4))
        found = read(demo)
    finally:
        demo.close()

    waited = values(found, c.NCCL_WAIT_SECONDS_TOTAL)
    moved = values(found, c.NCCL_TRANSFER_SECONDS_TOTAL)
    assert waited.pop(str(STRAGGLER)) < 0.01 * min(waited.values())
    assert min(waited.values()) > 0.5 * moved["0"]


def test_a_dump_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins anew, and the counters go on from zero, which Prometheus takes for a restart."""
    monkeypatch.setattr("exporter.demo.collectives._LARGEST", 10_000)
    demo = Demo(tmp_path, scenario="sound")
    try:
        read(demo)
        sizes = [path.stat().st_size for path in demo.dumps.iterdir()]
    finally:
        demo.close()

    assert len(sizes) == 4
    assert max(sizes) < 20_000
