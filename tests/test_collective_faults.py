"""Rows of the specification's table 16-8 that collectives tell of, from their files to the cause.

Real files of a job in a directory, its settings as it pushes them, and a node with eight GPUs and
ports: what the sources read goes on a board, what is derived goes there too, and the diagnosis must
name the fault, and not name it where the fault is not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.clock import SystemClock
from exporter.derive import Memory
from exporter.derive.diagnosis import diagnosis
from exporter.derive.fabric.expected import Limits, expected
from exporter.derive.fabric.use import use
from exporter.profiling.folder import Directory, Folder
from exporter.reference.accelerators import load
from exporter.samples import Sample
from exporter.sources.nccl import NcclSource
from exporter.sources.nccl_environment import NcclEnvironmentSource
from exporter.training import TrainingLedger
from exporter.training.records import Facts
from tests.derive.fabric_lab import board, h100, rails
from tests.fakes import FakeClock

GPUS = 8


class Cluster:
    """A job of 32 ranks on four nodes, as the node of the first eight sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.speeds = {f"mlx5_{at}": 20e9 for at in range(GPUS)}
        self.ledger = TrainingLedger()
        self.source = NcclSource(Folder([Directory(folder, run="llama")]), SystemClock())
        self.node: list[Sample] = []
        self.number = 0

    def set(self, **settings: str) -> None:
        """Let the job tell its settings."""
        variables = {f"NCCL_{name}": value for name, value in settings.items()}
        self.ledger.tell("push", [Facts(run="llama", world_size=32, nccl=variables)], 1000.0)

    def log(self, *lines: str) -> None:
        """Let NCCL log lines, after the one about its communicator."""
        first = "comm 0xa1 rank 0 nRanks 32 nNodes 4 localRanks 8 localRank 0 MNNVL 0"
        text = "".join(f"n1:7:9 [0] NCCL INFO {line}\n" for line in (first, *lines))
        (self.folder / "nccl.n1.7").write_text(text)

    def reduce(self, size: int, bandwidth: float, late: float = 0.0) -> None:
        """Do an all-reduce; the last rank comes `late` seconds after the others."""
        self.number += 1
        moved = size * 2 * 31 / 32 / bandwidth
        for rank in range(GPUS):
            took = moved + (late if rank != GPUS - 1 else 0.0)
            record = {
                "header": {"id": "0xa1", "rank": rank, "n_ranks": 32, "nnodes": 4},
                "metadata": {"dump_timestamp_us": int(time.time() * 1e6), "hostname": "n1",
                             "pid": rank},
                "coll_perf": {
                    "coll": "AllReduce", "coll_sn": self.number, "coll_msg_size_bytes": size,
                    "coll_exec_time_us": round(took * 1e6), "coll_timing_source": "kernel_gpu",
                    "coll_busbw_gbs": size * 2 * 31 / 32 / took / 1e9,
                },
            }  # fmt: skip
            with (self.folder / f"rank{rank}.log").open("a") as file:
                file.write(json.dumps(record) + "\n")

    def hardware(self, now: float) -> Iterator[Sample]:
        yield from rails()
        yield c.TRAIN_STALLED(0, "llama")
        for gpu in range(GPUS):
            device = f"mlx5_{gpu}"
            yield h100(str(gpu))
            yield c.GPU_NVLINK_LINKS_UP(18, str(gpu), f"GPU-{gpu}")
            yield c.NIC_LINK_RATE_BYTES_PER_SECOND(50e9, device, "1")
            yield c.NIC_UP(1, device, "1")
            said = {"device": device, "port": "1", "link_layer": "InfiniBand"}
            yield c.NIC_INFO(1, *(said.get(label, "") for label in c.NIC_INFO.labels))
            yield c.NIC_RECEIVE_BYTES_TOTAL(int(self.speeds[device] * now), device, "1")
            yield c.NIC_TRANSMIT_BYTES_TOTAL(int(self.speeds[device] * now), device, "1")

    def causes(self, size: int, bandwidth: float, late: float = 0.0) -> dict[str, bool]:
        """Go on for a minute with such all-reduces; return what the diagnosis says then."""
        derivations = [use(load()), expected(Limits()), diagnosis(hold=0)]
        memories = [Memory() for _ in derivations]
        clock, found = FakeClock(), dict[str, bool]()
        shown: list[Sample] = []
        for now in range(1000, 1060, 5):
            clock.now = float(now)
            self.reduce(size, bandwidth, late)
            read = [one for one in self.source.read() if isinstance(one, Sample)]
            told = [*self.hardware(now), *read]
            # Each sees what the others said a round ago, as on the daemon's board.
            view = board([*told, *shown])
            shown = list(NcclEnvironmentSource(Path("/none"), self.ledger, lambda _, v=view: v,  # type: ignore[misc]
                                               clock).read())  # fmt: skip
            for derivation, memory in zip(derivations, memories, strict=True):
                memory.begin(now)
                shown += derivation.function(view, memory, float(now))
            found = {
                one.labels[1]: bool(one.value) for one in shown if one.metric is c.DIAGNOSIS_CAUSE
            }
            shown = [one for one in shown if one.metric.group == c.FABRIC]
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


RING = "AllReduce: 268435456 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23} comm 0xa1"
SHARP = RING.replace("RING", "COLLNET_DIRECT")
LARGE = 1 << 30


def test_a_healthy_job_has_none_of_these_faults(cluster: Cluster) -> None:
    cluster.set(COLLNET_ENABLE="1")
    cluster.log(SHARP)
    told = cluster.causes(LARGE, 340e9)
    for cause in (
        "slow_collectives", "late_ranks", "sharp_unused", "nccl_settings", "rail_imbalance",
        "small_messages",
    ):  # fmt: skip
        assert told[cause] is False, cause


def test_row_4_sharp_that_is_not_in_effect(cluster: Cluster) -> None:
    """The job asks for it; NCCL's log says that a large all-reduce over nodes goes by a ring."""
    cluster.set(COLLNET_ENABLE="1")
    cluster.log(RING)
    told = cluster.causes(LARGE, 340e9)
    assert told["sharp_unused"] is True
    assert told["nccl_settings"] is False


def test_row_4_is_not_told_of_a_job_that_never_asked(cluster: Cluster) -> None:
    cluster.set(DEBUG="WARN")
    cluster.log(RING)
    assert cluster.causes(LARGE, 340e9)["sharp_unused"] is False


def test_row_5_a_rank_that_comes_late_is_waited_for(cluster: Cluster) -> None:
    """By 20 ms where the transmission takes 6: bandwidth looks poor, and it is not the fabric."""
    told = cluster.causes(LARGE, 340e9, late=0.02)
    assert told["late_ranks"] is True
    assert told["slow_collectives"] is True


def test_a_slow_fabric_is_no_late_rank(cluster: Cluster) -> None:
    told = cluster.causes(LARGE, 90e9)
    assert told["slow_collectives"] is True
    assert told["late_ranks"] is False


def test_row_6_small_messages(cluster: Cluster) -> None:
    told = cluster.causes(16 << 10, 5e9)
    assert told["small_messages"] is True
    assert "slow_collectives" not in told  # of small ones latency decides


def test_a_rail_that_carries_half_is_told(cluster: Cluster) -> None:
    cluster.speeds["mlx5_5"] = 10e9
    assert cluster.causes(LARGE, 200e9)["rail_imbalance"] is True


def test_a_setting_that_takes_the_fabric_away_is_told(cluster: Cluster) -> None:
    cluster.set(IB_DISABLE="1")
    assert cluster.causes(LARGE, 8e9)["nccl_settings"] is True
