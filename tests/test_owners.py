"""Pods' labels on series of GPUs, for who asks for them: `labels_on_gpu_series`."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from exporter import catalogue as c
from exporter import foreign
from exporter.board import Board
from exporter.exposition import Exposition
from exporter.owners import Owned, sole_owners
from exporter.samples import Gate, Sample, Snapshot, View
from tests.fakes import FakeClock

A, B = "GPU-a", "GPU-b"
DCGM = foreign.DCGM["DCGM_FI_DEV_GPU_UTIL"]
GPUS = (
    c.GPU_MEMORY_TOTAL_BYTES(100.0, "0", A),
    c.GPU_MEMORY_TOTAL_BYTES(200.0, "1", B),
    c.GPU_MIG_MEMORY_USED_BYTES(5, "0", A, "3"),
    c.GPU_MIG_MEMORY_USED_BYTES(6, "0", A, "4"),
    c.GPU_XID_ERRORS_TOTAL(1, "1", B, "0000:1b:00.0", "79", ""),
    DCGM(7.0, "0", A, "", "nvidia0", "H100", "", "", "node", "570"),
    DCGM(8.0, "0", A, "", "nvidia0", "H100", "1g.10gb", "3", "node", "570"),
    c.HOST_CPUS(9),
    c.COST_GPU_HOUR_DOLLARS(2.0, "1", B),
)


class Rig:
    """A board and its page, with the labels or without."""

    def __init__(self) -> None:
        self.on = True
        self.clock = FakeClock()
        self.board = Board()
        self.slots = {
            name: self.board.enroll(name, "gpu", 2.0, 12.0, self.clock.now) for name in ("g", "k")
        }
        self.gates = {name: Gate(1000) for name in self.slots}
        self.exposition = Exposition(
            lambda: self.board.view(self.clock.now), tuple, self.clock, owners=self.owners
        )

    def owners(self, view: View) -> Owned:
        return sole_owners(view) if self.on else {}

    def publish(self, name: str, samples: Iterable[Sample]) -> None:
        batch, drops = self.gates[name].admit(list(samples))
        assert not drops
        now = self.clock.now
        self.slots[name].publish(Snapshot(name, "gpu", now, now, 0.1, batch), drops)

    def pods(self, gpus: Iterable[Sample], allocation: Iterable[Sample]) -> dict[float, str | None]:
        """Return which pod stands on each series, by its value."""
        self.publish("g", gpus)
        self.publish("k", allocation)
        text = self.exposition.page((None, False, False)).decode()
        return {
            one.value: one.labels.get("pod")
            for family in parse(text)
            for one in family.samples
            if not one.name.startswith(("flopwatch", "gpu_allocation"))
        }


@pytest.fixture
def rig() -> Rig:
    return Rig()


def info(uuid: str, pod: str, container: str = "main") -> Sample:
    names = ("ml", pod, container) if pod else ("", "", "")
    return c.GPU_ALLOCATION_INFO(1, "0" if uuid == A else "1", uuid, *names)


def alone(uuid: str, pod: str) -> list[Sample]:
    """Return what is told of a container that has all of a GPU."""
    one = info(uuid, pod)
    return [one, c.GPU_ALLOCATION_SHARE_RATIO(1, *one.labels)]


def part(mig: str, replica: str, pod: str) -> Sample:
    return c.GPU_ALLOCATION_PART_INFO(1, "0", A, mig, replica, "ml", pod, "main")


def test_series_of_a_gpu_that_one_container_has_bear_its_names(rig: Rig) -> None:
    """Ours and dcgm-exporter's; the host's and the money's do not."""
    told = rig.pods(GPUS[1:2] + GPUS[4:], alone(B, "b") + alone(A, "a"))
    assert told == {200: "b", 1: "b", 7: "a", 8: None, 9: None, 2: None}
    line = next(
        line for line in rig.exposition.page((None, False, False)).decode().splitlines()
        if line.startswith("gpu_memory_total_bytes{")
    )  # fmt: skip
    assert line == (
        'gpu_memory_total_bytes{container="main",gpu="1",namespace="ml",pod="b",uuid="GPU-b"} 200.0'
    )


def test_nothing_is_said_of_gpus_that_several_have_or_nobody(rig: Rig) -> None:
    told = rig.pods(GPUS[:2], [info(A, "a"), info(A, "b"), info(B, "")])
    assert told == {100: None, 200: None}


def test_two_containers_of_one_pod_are_two(rig: Rig) -> None:
    assert rig.pods(GPUS[:1], [info(A, "a", "x"), info(A, "a", "y")]) == {100: None}


def test_an_instance_has_an_owner_of_its_own_and_its_gpu_has_none(rig: Rig) -> None:
    some = (*GPUS[:1], *GPUS[2:4], *GPUS[5:7])
    told = rig.pods(some, [info(A, "a"), part("3", "", "a")])
    assert told == {100: None, 5: "a", 6: None, 7: None, 8: "a"}


def test_who_has_a_replica_has_no_gpu_alone(rig: Rig) -> None:
    assert rig.pods(GPUS[:1], [info(A, "a"), part("", "0", "a")]) == {100: None}
    told = rig.pods(GPUS[2:3], [info(A, "a"), part("3", "1", "a")])
    assert told == {5: None}


def test_who_has_a_part_that_is_not_known_has_no_gpu_alone(rig: Rig) -> None:
    """A claimed instance without what its driver published: the GPU is known, and no more."""
    assert rig.pods(GPUS[:1], [info(A, "a")]) == {100: None}


def test_another_pod_changes_the_labels_while_values_stand_still(rig: Rig) -> None:
    first = rig.pods(GPUS[:1], alone(A, "a"))
    assert (first, rig.pods(GPUS[:1], alone(A, "b"))) == ({100: "a"}, {100: "b"})
    assert rig.pods(GPUS[:1], []) == {100: None}


def test_it_is_off_unless_asked_for(rig: Rig) -> None:
    rig.on = False
    assert rig.pods(GPUS[:1], alone(A, "a")) == {100: None}
