"""Pods and their GPUs, as a kubelet tells them: over real gRPC, on a unix socket.

Names of tests are what people saw with other exporters; the issues stand with them.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from exporter import catalogue as c
from exporter.clock import SystemClock
from exporter.derive.allocation import Gpus, Wanted
from exporter.formats.podresources import Claimed
from exporter.kubelet import LARGEST, PodResources
from exporter.samples import (
    EMPTY_SHAPE,
    Fault,
    Health,
    Malformed,
    Remembered,
    Sample,
    SourceError,
    SourceView,
    View,
    in_columns,
)
from exporter.sources.kubernetes import KubernetesSource
from tests.fakes import FakeClock
from tests.kubelet_lab import FakeKubelet, hang, pod

GPU = [f"GPU-{n}0000000-0000-4000-8000-000000000000" for n in range(8)]
MIG = [f"MIG-{n}0000000-1111-5111-8111-111111111111" for n in range(8)]
WANTED = Wanted(("nvidia.com/*gpu*", "nvidia.com/mig-*", "gpu.nvidia.com"))
NOBODY = ("", "", "")


class Row(NamedTuple):
    """A row of gpu_allocation_info without its UUID."""

    gpu: str
    pod: str


def board(number: int = 2, *, split: int = 0, name: str = "NVIDIA H100 80GB HBM3") -> View:
    """Return what NVML tells of a node; GPU 0 is split into `split` instances 5, 6, ..."""
    samples = [
        c.GPU_INFO(1, str(n), GPU[n], name, f"00000000:{n + 1}B:00.0", *[""] * 8)
        for n in range(number)
    ]
    samples += [c.GPU_UP(1, str(n), GPU[n]) for n in range(number)]
    samples += [
        c.GPU_MIG_INFO(1, "0", GPU[0], str(5 + n), "0", MIG[n], "1g.10gb") for n in range(split)
    ]
    batch = in_columns(samples, EMPTY_SHAPE)
    return View((SourceView("nvml", c.GPU, "up", Health(), batch=batch, age=0.0),), ())


class Lab:
    """A kubelet, a node and the source between them; time is made up but for the calls."""

    def __init__(self, folder: Path) -> None:
        self.kubelet = FakeKubelet(folder / "pod-resources").start()
        self.clock = FakeClock()
        self.view = board()
        self.minors: dict[str, str] = {}
        self.finished: list[tuple[str, str]] = []
        self.wanted = WANTED
        self.deadline = 5.0
        self.named: dict[Claimed, str] = {}
        self.unnamed: Exception | None = None
        self.memories: dict[str, Any] = {}
        self.source = self.made()

    def made(self) -> KubernetesSource:
        door = PodResources((self.kubelet.directory,), self.deadline, SystemClock())
        return KubernetesSource(
            door, lambda: Gpus(self.view, lambda: self.minors), self.clock, self.wanted,
            every=10.0, keep=300.0, finished=lambda: self.finished, memories=self.memories,
            claims=self.claims,
        )  # fmt: skip

    def claims(self, wanted: Collection[Claimed], there: Collection[str]) -> dict[Claimed, str]:
        self.there = there
        if self.unnamed is not None:
            raise self.unnamed
        return {one: self.named[one] for one in wanted if one in self.named}

    def read(self, seconds: float = 10.0) -> list[Sample | Fault]:
        self.clock.advance(seconds)
        return list(self.source.read())

    def pods(self, items: list[Sample | Fault] | None = None) -> list[Row]:
        """Return who has which GPU."""
        return sorted(
            Row(labels[0], labels[3])
            for labels in of(c.GPU_ALLOCATION_INFO, self.read() if items is None else items)
        )


def of(metric: object, items: list[Sample | Fault]) -> dict[tuple[str, ...], float]:
    """Return the values of a family by labels; no series comes twice."""
    samples = [one for one in items if isinstance(one, Sample) and one.metric is metric]
    found = {one.labels: one.value for one in samples}
    assert len(found) == len(samples)
    return found  # type: ignore[return-value]


def unresolved(items: list[Sample | Fault]) -> dict[str, float]:
    told = of(c.GPU_ALLOCATION_UNRESOLVED_DEVICES, items)
    return {labels[0]: value for labels, value in told.items()}


def shares(items: list[Sample | Fault]) -> dict[tuple[str, str], float]:
    """Return the shares by GPU and pod."""
    told = of(c.GPU_ALLOCATION_SHARE_RATIO, items)
    return {(labels[0], labels[3]): value for labels, value in told.items()}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    one = Lab(tmp_path)
    yield one
    one.kubelet.stop()


# ---------------------------------------------------------------- whole GPUs


def test_each_gpu_says_who_has_it_and_that_nobody_has_it(lab: Lab) -> None:
    lab.view = board(3)
    lab.kubelet.pods = [pod("train-0", {"nvidia.com/gpu": [GPU[1]]})]
    lab.kubelet.allocatable = {"nvidia.com/gpu": GPU[:2]}
    items = lab.read()
    assert of(c.GPU_ALLOCATION_INFO, items) == {
        ("1", GPU[1], "ml", "train-0", "main"): 1,
        ("0", GPU[0], *NOBODY): 1,
        # The kubelet does not manage GPU 2: it may be anybody's.
    }
    assert of(c.GPU_ALLOCATION_SHARE_RATIO, items) == {("1", GPU[1], "ml", "train-0", "main"): 1.0}
    assert of(c.GPU_ALLOCATION_PART_INFO, items) == {}
    assert [one for one in items if isinstance(one, Fault)] == []


def test_gpus_without_a_pod_keep_their_row(lab: Lab) -> None:
    """dcgm-exporter 554, 570: unallocated GPUs vanished."""
    lab.view = board(8)
    lab.kubelet.allocatable = {"nvidia.com/gpu": GPU}
    assert lab.pods() == [Row(str(n), "") for n in range(8)]


def test_a_kubelet_that_does_not_say_what_it_has_tells_no_free_gpus(lab: Lab) -> None:
    """Before Kubernetes 1.23: who has a GPU is known, who does not is not."""
    lab.kubelet.pods = [pod("a", {"nvidia.com/gpu": [GPU[0]]})]
    lab.kubelet.allocatable = None
    items = lab.read()
    assert lab.pods(items) == [Row("0", "a")]
    (fault,) = (one for one in items if isinstance(one, Fault))
    assert fault.part == "allocatable"
    assert "UNIMPLEMENTED" in fault.detail


def test_a_kubelet_that_once_does_not_say_what_it_has_costs_no_row(lab: Lab) -> None:
    """What it said last holds, as its other answers do."""
    lab.kubelet.allocatable = {"nvidia.com/gpu": GPU[:2]}
    assert lab.pods() == [Row("0", ""), Row("1", "")]
    lab.kubelet.allocatable = None
    items = lab.read()
    assert lab.pods(items) == [Row("0", ""), Row("1", "")]
    assert [one.part for one in items if isinstance(one, Fault)] == ["allocatable"]
    for _ in range(31):
        items = lab.read()
    assert lab.pods(items) == []


def test_a_pod_with_eight_gpus_and_two_containers(lab: Lab) -> None:
    lab.view = board(8)
    one = pod("p", {"nvidia.com/gpu": GPU[:4]}, container="a")
    two = pod("p", {"nvidia.com/gpu": GPU[4:]}, container="b")
    one.containers.extend(two.containers)
    lab.kubelet.pods = [one]
    found = of(c.GPU_ALLOCATION_INFO, lab.read())
    assert [labels[4] for labels in sorted(found)] == ["a"] * 4 + ["b"] * 4


def test_a_gpu_that_is_lost_still_belongs_to_its_pod(lab: Lab) -> None:
    samples = [c.GPU_UP(0, "0", GPU[0])]
    lab.view = View(
        (SourceView("nvml", c.GPU, "up", Health(), batch=in_columns(samples, EMPTY_SHAPE)),), ()
    )
    lab.kubelet.pods = [pod("a", {"nvidia.com/gpu": [GPU[0]]})]
    assert lab.pods() == [Row("0", "a")]


def test_gpus_that_another_exporters_page_tells_of_have_pods_too(lab: Lab) -> None:
    """A page of dcgm-exporter has values of GPUs and not what they are."""
    samples = [
        c.GPU_UTILIZATION_RATIO(0.5, "1", GPU[1]),
        c.GPU_MIG_MEMORY_USED_BYTES(5, "2", GPU[2], "3"),
    ]
    lab.view = View(
        (SourceView("page", c.GPU, "up", Health(), batch=in_columns(samples, EMPTY_SHAPE)),), ()
    )
    lab.kubelet.pods = [pod("a", {"nvidia.com/gpu": GPU[1:3]})]
    assert lab.pods() == [Row("1", "a"), Row("2", "a")]


# ---------------------------------------------------------------- names of resources


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu.shared", "nvidia.com/a100", "example.org/accelerator"]
)
def test_a_renamed_resource_is_recognised_by_the_uuid(lab: Lab, resource: str) -> None:
    """dcgm-exporter 151: a list of names missed the one that was shared."""
    lab.kubelet.pods = [pod("a", {resource: [GPU[0]]})]
    assert lab.pods() == [Row("0", "a")]


def test_resources_that_are_no_gpus_are_no_concern(lab: Lab) -> None:
    lab.kubelet.pods = [
        pod("a", {
            "nvidia.com/hostdev": ["0000:86:00.1"], "rdma/hca": ["7"],
            "amd.com/gpu": ["0000:03:00.0"], "tencent.com/vcuda-core": ["0", "1"],
            "devic.es/kvm": ["kvm-3"],
        })
    ]  # fmt: skip
    items = lab.read()
    assert lab.pods(items) == []
    assert unresolved(items) == {}


def test_numbers_of_other_vendors_plugins_are_told_and_not_guessed(lab: Lab) -> None:
    lab.kubelet.pods = [pod("a", {"example.org/gpu-slot": ["1"]})]
    lab.wanted = Wanted((*WANTED.resources, "example.org/*"))
    lab.source = lab.made()
    items = lab.read()
    assert lab.pods(items) == []
    assert unresolved(items) == {"example.org/gpu-slot": 1}


def test_numbers_are_indices_where_the_configuration_says_so(lab: Lab) -> None:
    lab.kubelet.pods = [pod("a", {"example.org/gpu-slot": ["01"]})]
    lab.wanted = Wanted(WANTED.resources, indexed=("example.org/*",))
    lab.source = lab.made()
    assert lab.pods() == [Row("1", "a")]


def test_while_a_device_is_not_known_no_gpu_is_called_free(lab: Lab) -> None:
    lab.kubelet.allocatable = {"nvidia.com/gpu": GPU[:2]}
    lab.kubelet.pods = [pod("a", {"nvidia.com/gpu": ["card-x"]})]
    items = lab.read()
    assert unresolved(items) == {"nvidia.com/gpu": 1}
    assert lab.pods(items) == []
    (fault,) = (one for one in items if isinstance(one, Fault))
    assert fault == Fault(
        "nvidia.com/gpu", "unavailable", "'card-x' of ml/a: of no GPU that is known here"
    )


def test_a_gpu_that_a_virtual_machine_has_is_found_by_its_address(lab: Lab) -> None:
    lab.kubelet.pods = [pod("vm", {"nvidia.com/GH100_H100_PCIE": ["0000:1b:00.0"]})]
    assert lab.pods() == [Row("0", "vm")]


# ---------------------------------------------------------------- instances


@pytest.mark.parametrize(
    "text", [MIG[1], f"MIG-{GPU[0]}/6/0", "nvidia0/gi6"], ids=["uuid", "old", "gke"]
)
def test_an_instance_belongs_to_its_pod_in_every_form_of_its_id(lab: Lab, text: str) -> None:
    """dcgm-exporter 272, 397, 577: the wrong pod for an instance, or none."""
    lab.view = board(2, split=3)
    lab.minors = {"0": GPU[0]}
    lab.kubelet.pods = [pod("a", {"nvidia.com/mig-1g.10gb": [text]})]
    items = lab.read()
    assert lab.pods(items) == [Row("0", "a")]
    assert of(c.GPU_ALLOCATION_PART_INFO, items) == {("0", GPU[0], "6", "", "ml", "a", "main"): 1}
    assert shares(items) == {("0", "a"): pytest.approx(1 / 7)}


def test_pods_on_instances_of_one_gpu_have_each_their_part(lab: Lab) -> None:
    lab.view = board(2, split=3)
    lab.kubelet.pods = [
        pod("a", {"nvidia.com/mig-1g.10gb": MIG[:2]}),
        pod("b", {"nvidia.com/mig-1g.10gb": [MIG[2]]}),
    ]
    lab.kubelet.allocatable = {"nvidia.com/mig-1g.10gb": MIG[:3], "nvidia.com/gpu": [GPU[1]]}
    items = lab.read()
    assert lab.pods(items) == [Row("0", "a"), Row("0", "b"), Row("1", "")]
    assert shares(items) == {
        ("0", "a"): pytest.approx(2 / 7), ("0", "b"): pytest.approx(1 / 7)
    }  # fmt: skip


def test_a_gpu_none_of_whose_instances_is_taken_is_free(lab: Lab) -> None:
    lab.view = board(2, split=3)
    lab.kubelet.allocatable = {"nvidia.com/mig-1g.10gb": MIG[:3]}
    assert lab.pods() == [Row("0", "")]


def test_an_instance_that_has_just_been_made_is_asked_for_at_once(lab: Lab) -> None:
    """No waiting for the next time, and no asking each time either."""
    lab.read()
    assert lab.kubelet.asked == 1
    for _ in range(4):
        lab.read(2.0)
    assert lab.kubelet.asked == 1
    lab.view = board(2, split=1)
    lab.kubelet.pods = [pod("a", {"nvidia.com/mig-1g.10gb": [MIG[0]]})]
    assert lab.pods(lab.read(1.0)) == [Row("0", "a")]
    lab.read(1.0)
    assert lab.kubelet.asked == 2


def test_an_instance_that_is_gone_is_not_told_to_be_another(lab: Lab) -> None:
    """A MIG layout changes while a pod of the former one is still listed."""
    lab.view = board(2, split=1)
    lab.kubelet.pods = [pod("a", {"nvidia.com/mig-1g.10gb": [MIG[7]]})]
    items = lab.read()
    assert lab.pods(items) == []
    assert unresolved(items) == {"nvidia.com/mig-1g.10gb": 1}


def test_two_compute_instances_of_one_instance_are_no_series_twice(lab: Lab) -> None:
    """gpu-monitoring-tools 41: the second series of the same name was a fault of the source."""
    rest = ("0", GPU[0], "2")
    samples = [
        c.GPU_INFO(1, "0", GPU[0], "NVIDIA H100 80GB HBM3", "00000000:1B:00.0", *[""] * 8),
        *(c.GPU_MIG_INFO(1, *rest, str(n), MIG[n], "1c.2g.20gb") for n in range(2)),
        c.GPU_UP(1, "0", GPU[0]),
    ]
    batch = in_columns(samples, EMPTY_SHAPE)
    lab.view = View((SourceView("nvml", c.GPU, "up", Health(), batch=batch, age=0.0),), ())
    lab.kubelet.pods = [pod("a", {"nvidia.com/mig-1c.2g.20gb": MIG[:2]})]
    items = lab.read()
    assert of(c.GPU_ALLOCATION_PART_INFO, items) == {(*rest, "", "ml", "a", "main"): 1}
    assert shares(items) == {("0", "a"): pytest.approx(2 / 7)}


def test_a_device_under_two_resources_is_one(lab: Lab) -> None:
    some = {name: [f"{GPU[0]}::1"] for name in ("nvidia.com/gpu", "nvidia.com/gpu.shared")}
    lab.kubelet.allocatable = {"nvidia.com/gpu": [f"{GPU[0]}::{n}" for n in range(4)]}
    lab.kubelet.pods = [pod("a", some)]
    items = lab.read()
    assert len(of(c.GPU_ALLOCATION_PART_INFO, items)) == 1
    assert shares(items) == {("0", "a"): 0.25}


def test_of_an_unknown_product_an_instance_has_no_known_share(lab: Lab) -> None:
    lab.view = board(2, split=1, name="NVIDIA X999")
    lab.kubelet.pods = [pod("a", {"nvidia.com/mig-1g.10gb": [MIG[0]]})]
    items = lab.read()
    assert lab.pods(items) == [Row("0", "a")]
    assert shares(items) == {}


# ---------------------------------------------------------------- shared GPUs


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared"])
def test_pods_that_take_turns_on_a_gpu_have_each_their_replicas(lab: Lab, resource: str) -> None:
    """dcgm-exporter 307, 582, 587, 642: each showed the whole GPU, or one of them did.

    MPS (568) tells replicas in the same way.
    """
    lab.kubelet.allocatable = {resource: [f"{GPU[1]}::{n}" for n in range(4)]}
    lab.kubelet.pods = [
        pod("a", {resource: [f"{GPU[1]}::0", f"{GPU[1]}::3"]}),
        pod("b", {resource: [f"{GPU[1]}::1"]}),
    ]
    items = lab.read()
    assert lab.pods(items) == [Row("1", "a"), Row("1", "b")]
    assert shares(items) == {("1", "a"): 0.5, ("1", "b"): 0.25}
    replicas = {(one[3], one[5]) for one in of(c.GPU_ALLOCATION_PART_INFO, items)}
    assert replicas == {("0", "a"), ("3", "a"), ("1", "b")}


def test_replicas_of_instances(lab: Lab) -> None:
    lab.view = board(2, split=1)
    lab.kubelet.allocatable = {"nvidia.com/mig-1g.10gb": [f"{MIG[0]}::{n}" for n in range(2)]}
    lab.kubelet.pods = [pod("a", {"nvidia.com/mig-1g.10gb": [f"{MIG[0]}::1"]})]
    items = lab.read()
    assert shares(items) == {("0", "a"): pytest.approx(1 / 14)}
    (part,) = of(c.GPU_ALLOCATION_PART_INFO, items)
    assert part[2:4] == ("5", "1")


def test_gke_shares_gpus_by_the_number_of_the_device_file(lab: Lab) -> None:
    """The number is that of /dev/nvidia1, which is not the driver's index here."""
    lab.minors = {"1": GPU[0], "0": GPU[1]}
    lab.kubelet.allocatable = {"nvidia.com/gpu": ["nvidia1/vgpu0", "nvidia1/vgpu1"]}
    lab.kubelet.pods = [pod("a", {"nvidia.com/gpu": ["nvidia1/vgpu1"]})]
    items = lab.read()
    assert lab.pods(items) == [Row("0", "a")]
    assert shares(items) == {("0", "a"): 0.5}


def test_without_the_drivers_files_a_device_file_is_not_taken_for_an_index(lab: Lab) -> None:
    lab.kubelet.pods = [pod("a", {"nvidia.com/gpu": ["nvidia1"]})]
    items = lab.read()
    assert lab.pods(items) == []
    assert unresolved(items) == {"nvidia.com/gpu": 1}


def test_a_fraction_of_another_vendors_plugin_has_an_owner_but_no_known_size(lab: Lab) -> None:
    """HAMi: the size is in annotations, which the kubelet does not tell."""
    lab.kubelet.allocatable = {"nvidia.com/gpu": [f"{GPU[0]}-{n}" for n in range(10)]}
    lab.kubelet.pods = [pod("a", {"nvidia.com/gpu": [f"{GPU[0]}-4"]})]
    items = lab.read()
    assert lab.pods(items) == [Row("0", "a")]
    assert shares(items) == {}


# ---------------------------------------------------------------- finished pods


def test_a_finished_pod_does_not_keep_its_gpu(lab: Lab) -> None:
    """kubernetes 119423, 132020; dcgm-exporter 140: the kubelet still lists it."""
    lab.kubelet.pods = [pod("old", {"nvidia.com/gpu": [GPU[0]]})]
    assert lab.pods() == [Row("0", "old")]
    lab.kubelet.pods = [
        pod("new", {"nvidia.com/gpu": [GPU[0]]}), pod("old", {"nvidia.com/gpu": [GPU[0], GPU[1]]})
    ]  # fmt: skip
    items = lab.read()
    assert lab.pods(items) == [Row("0", "new"), Row("1", "old")]
    assert unresolved(items) == {}
    lab.kubelet.pods.reverse()
    assert lab.pods() == [Row("0", "new"), Row("1", "old")]


def test_of_two_pods_the_one_that_is_known_to_be_over_does_not_have_the_gpu(lab: Lab) -> None:
    lab.finished = [("ml", "b")]
    lab.kubelet.pods = [pod(name, {"nvidia.com/gpu": [GPU[0]]}) for name in ("a", "b")]
    assert lab.pods() == [Row("0", "a")]


def test_a_pod_that_is_over_does_not_have_a_gpu_that_nobody_else_wants(lab: Lab) -> None:
    """dcgm-exporter 140: a job that had ended was told, and billed, until it was deleted."""
    lab.kubelet.allocatable = {"nvidia.com/gpu": GPU[:2]}
    lab.kubelet.pods = [pod("done", {"nvidia.com/gpu": [GPU[0]]})]
    assert lab.pods() == [Row("0", "done"), Row("1", "")]
    lab.finished = [("ml", "done")]
    assert lab.pods() == [Row("0", ""), Row("1", "")]
    samples = [
        c.GPU_UP(1, "0", GPU[0]),
        c.GPU_ALLOCATION_PROCESSES(2, "0", GPU[0], "ml", "done", "main", "uid", ""),
    ]
    batch = in_columns(samples, EMPTY_SHAPE)
    lab.view = View((SourceView("jobs", c.GPU, "up", Health(), batch=batch, age=0.0),), ())
    assert lab.pods() == [Row("0", "done")]


def test_a_pod_goes_on_beside_replicas_that_were_made_of_its_gpu(lab: Lab) -> None:
    """The plugin was told to slice: nobody is stopped for that."""
    before = pod("before", {"nvidia.com/gpu": [GPU[0]]})
    lab.kubelet.pods = [before]
    lab.read()
    lab.kubelet.pods = [before, pod("now", {"nvidia.com/gpu": [f"{GPU[0]}::1"]})]
    assert lab.pods() == [Row("0", "before"), Row("0", "now")]


@pytest.mark.parametrize("part", [MIG[0], f"{MIG[0]}::0"])
def test_a_pod_that_had_the_gpu_before_it_was_split_does_not_pay_for_it(
    lab: Lab, part: str
) -> None:
    """It has finished and is listed on; beside it the new ones had one part in eight of a bill."""
    lab.view = board(2, split=2)
    lab.kubelet.allocatable = {"nvidia.com/gpu": [GPU[1], part]}
    before = pod("before", {"nvidia.com/gpu": [GPU[0]]})
    lab.kubelet.pods = [before]
    assert lab.pods() == [Row("0", "before"), Row("1", "")]
    lab.kubelet.pods = [before, pod("now", {"nvidia.com/gpu": [part]})]
    items = lab.read()
    assert lab.pods(items) == [Row("0", "now"), Row("1", "")]
    assert list(shares(items)) == [("0", "now")]
    assert unresolved(items) == {}


def test_a_kubelet_that_begins_with_an_empty_list_does_not_make_all_pods_new(lab: Lab) -> None:
    """After its restart; a pod that has finished was as new as the one that came after it."""
    both = [pod(name, {"nvidia.com/gpu": [GPU[0]]}) for name in ("old", "new")]
    for pods in (both[:1], both):
        lab.kubelet.pods = pods
        lab.read()
    for blanks, wanted in ((1, [Row("0", "new")]), (3, [Row("0", "new")]), (4, [])):
        lab.kubelet.pods = []
        for _ in range(blanks):
            assert lab.pods() == []
        lab.kubelet.pods = both
        assert lab.pods() == wanted


def test_a_pod_with_a_process_on_a_gpu_is_not_over(lab: Lab) -> None:
    """Seen together for the first time; the processes say which of them runs."""
    lab.kubelet.pods = [pod(name, {"nvidia.com/gpu": [GPU[0]]}) for name in ("a", "b")]
    samples = [
        c.GPU_UP(1, "0", GPU[0]),
        c.GPU_ALLOCATION_PROCESSES(2, "0", GPU[0], "ml", "b", "main", "uid", ""),
        c.GPU_ALLOCATION_PROCESSES(1, "0", GPU[0], "", "", "", "", ""),
    ]
    lab.view = View(
        (SourceView("nvml", c.GPU, "up", Health(), batch=in_columns(samples, EMPTY_SHAPE)),), ()
    )
    assert lab.pods() == [Row("0", "b")]


def test_the_next_daemon_knows_which_pod_came_later(lab: Lab) -> None:
    lab.kubelet.pods = [pod("old", {"nvidia.com/gpu": [GPU[0]]})]
    lab.read()
    lab.kubelet.pods.append(pod("new", {"nvidia.com/gpu": [GPU[0]]}))
    lab.read()
    plain = json.loads(json.dumps(lab.memories["kubernetes"].plain))
    lab.memories["kubernetes"] = Remembered(plain, 0.0)
    lab.source = lab.made()
    assert lab.pods() == [Row("0", "new")]


@pytest.mark.parametrize("plain", [None, {}, {"round": "x", "pods": []}, {"round": 1, "pods": [1]}])
def test_a_damaged_memory_costs_nothing_but_itself(lab: Lab, plain: object) -> None:
    lab.memories["kubernetes"] = Remembered(plain, 0.0)
    lab.kubelet.pods = [pod("a", {"nvidia.com/gpu": [GPU[0]]})]
    items = lab.read()
    assert lab.pods(items) == [Row("0", "a")]
    (fault,) = (one for one in items if isinstance(one, Fault))
    assert (fault.part, fault.reason) == ("memory", "malformed")
    assert [one for one in lab.read() if isinstance(one, Fault)] == []


def test_two_pods_at_once_for_one_gpu_are_told_as_such_and_neither_has_it(lab: Lab) -> None:
    """Seen together for the first time: nobody can say which is over. Never two rows."""
    lab.kubelet.allocatable = {"nvidia.com/gpu": GPU[:2]}
    lab.kubelet.pods = [pod(name, {"nvidia.com/gpu": [GPU[0]]}) for name in ("a", "b")]
    items = lab.read()
    assert lab.pods(items) == [Row("1", "")]
    assert unresolved(items) == {"nvidia.com/gpu": 1}
    (fault,) = (one for one in items if isinstance(one, Fault))
    assert fault.detail == f"{GPU[0]}: ml/a, ml/b say that each has it alone"
    lab.kubelet.pods.pop(0)
    assert lab.pods() == [Row("0", "b"), Row("1", "")]


def test_pods_of_one_name_in_two_namespaces_are_two(lab: Lab) -> None:
    lab.kubelet.pods = [
        pod("x", {"nvidia.com/gpu": [GPU[n]]}, namespace=namespace)
        for n, namespace in enumerate(("a", "b"))
    ]
    found = of(c.GPU_ALLOCATION_INFO, lab.read())
    assert {labels[2] for labels in found} == {"a", "b"}


# ---------------------------------------------------------------- what was claimed, as DRA does


def test_a_claimed_gpu_is_found_by_its_device_file(lab: Lab) -> None:
    """dcgm-exporter 718. NVIDIA's driver names a GPU by the number of its device file."""
    lab.minors = {"0": GPU[1]}
    lab.kubelet.pods = [pod("a", claims=[("gpu.nvidia.com", "node-1", "gpu-0")])]
    items = lab.read()
    assert lab.pods(items) == [Row("1", "a")]
    assert shares(items) == {("1", "a"): 1.0}


def test_a_claim_that_pods_share_is_a_row_for_each_and_no_share(lab: Lab) -> None:
    lab.minors = {"0": GPU[0]}
    lab.kubelet.pods = [
        pod(name, claims=[("gpu.nvidia.com", "node-1", "gpu-0")]) for name in ("a", "b")
    ]
    items = lab.read()
    assert lab.pods(items) == [Row("0", "a"), Row("0", "b")]
    assert shares(items) == {}


def test_of_a_claimed_instance_the_gpu_is_known_but_not_which_it_is(lab: Lab) -> None:
    lab.view = board(2, split=2)
    lab.minors = {"0": GPU[0]}
    lab.kubelet.pods = [pod("a", claims=[("gpu.nvidia.com", "node-1", "gpu-0-mig-19-4-1")])]
    items = lab.read()
    assert lab.pods(items) == [Row("0", "a")]
    assert shares(items) == {}


def test_a_claimed_device_is_what_its_driver_published(lab: Lab) -> None:
    """An instance too, which its name does not tell; and a name that is another driver's."""
    lab.view = board(2, split=2)
    lab.minors = {"0": GPU[0]}
    names = ("gpu-0-mig-19-4-1", "accelerator-a")
    lab.named = {Claimed("gpu.nvidia.com", "n", names[0]): MIG[1]}
    lab.named[Claimed("gpu.nvidia.com", "n", names[1])] = GPU[1]
    lab.kubelet.pods = [
        pod(f"p{n}", claims=[("gpu.nvidia.com", "n", name)]) for n, name in enumerate(names)
    ]
    items = lab.read()
    assert lab.pods(items) == [Row("0", "p0"), Row("1", "p1")]
    assert shares(items) == {("0", "p0"): pytest.approx(1 / 7), ("1", "p1"): 1.0}


def test_who_knows_claims_is_told_which_devices_there_are(lab: Lab) -> None:
    lab.view = board(1, split=2)
    lab.kubelet.pods = [pod("a", claims=[("gpu.nvidia.com", "n", "gpu-0")])]
    lab.read()
    assert lab.there == {GPU[0], *MIG[:2]}


def test_without_the_api_server_a_claimed_gpu_is_known_by_its_device_file(lab: Lab) -> None:
    lab.minors = {"0": GPU[0]}
    lab.unnamed = SourceError("denied", "no right")
    lab.kubelet.pods = [pod("a", claims=[("gpu.nvidia.com", "n", "gpu-0")])]
    items = lab.read()
    assert lab.pods(items) == [Row("0", "a")]
    (fault,) = (one for one in items if isinstance(one, Fault))
    assert (fault.part, fault.reason) == ("claims", "denied")


def test_a_claim_that_cannot_be_placed_is_told_and_not_guessed(lab: Lab) -> None:
    lab.kubelet.pods = [
        pod("a", claims=[("gpu.nvidia.com", "node-1", "gpu-0")]),
        pod(
            "b", claims=[("gpu.nvidia.com", "node-1", "gpu-vfio-1"), ("nic.example", "n", "nic-0")]
        ),
    ]
    items = lab.read()
    assert lab.pods(items) == []
    assert unresolved(items) == {"gpu.nvidia.com": 2}


# ---------------------------------------------------------------- the kubelet itself


def test_an_answer_of_more_than_four_megabytes(lab: Lab) -> None:
    """dcgm-exporter 509: gRPC's own limit was reached on nodes with many devices."""
    lab.kubelet.pods = [
        pod(f"p{n}", {"example.org/mem": [f"{GPU[2]}-_-{n}-{k}" for k in range(300)]})
        for n in range(200)
    ]
    lab.kubelet.pods.append(pod("a", {"nvidia.com/gpu": [GPU[0]]}))
    assert sum(one.ByteSize() for one in lab.kubelet.pods) > 4 << 20
    assert lab.pods() == [Row("0", "a")]


def test_an_answer_without_end_is_refused(lab: Lab) -> None:
    lab.kubelet.raw = b"\x00" * (LARGEST + 1)
    with pytest.raises(SourceError, match="RESOURCE_EXHAUSTED") as caught:
        lab.read()
    assert caught.value.reason == "unavailable"


def test_the_request_is_to_a_host_that_a_server_in_go_takes(lab: Lab) -> None:
    """gRPC puts the socket's path there, which the kubelet's HTTP/2 calls malformed."""
    lab.read()
    assert lab.kubelet.authority == "localhost"


def test_a_restart_of_the_kubelet_costs_nothing(lab: Lab) -> None:
    """The socket goes and another one comes; what was said last holds meanwhile, and its age."""
    lab.kubelet.pods = [pod("a", {"nvidia.com/gpu": [GPU[0]]})]
    assert lab.pods() == [Row("0", "a")]
    lab.kubelet.stop()
    for seconds in (10.0, 20.0, 30.0):
        items = lab.read()
        assert lab.pods(items) == [Row("0", "a")]
        assert of(c.GPU_ALLOCATION_AGE_SECONDS, items) == {(): seconds}
        (fault,) = (one for one in items if isinstance(one, Fault))
        assert (fault.part, fault.reason) == ("kubelet", "unavailable")
        assert str(lab.kubelet.socket) in fault.detail
    lab.kubelet.pods = [pod("b", {"nvidia.com/gpu": [GPU[0]]})]
    lab.kubelet.start()
    items = lab.read()
    assert lab.pods(items) == [Row("0", "b")]
    assert of(c.GPU_ALLOCATION_AGE_SECONDS, items) == {(): 0.0}
    assert [one for one in items if isinstance(one, Fault)] == []


def test_a_map_that_is_too_old_is_not_told(lab: Lab) -> None:
    """dcgm-exporter 138, 342, 428: labels flickered, or went at once; and not for ever either."""
    lab.kubelet.pods = [pod("a", {"nvidia.com/gpu": [GPU[0]]})]
    lab.read()
    lab.kubelet.stop()
    assert lab.pods(lab.read(300.0)) == [Row("0", "a")]
    with pytest.raises(FileNotFoundError):
        lab.read(1.0)
    lab.kubelet.start()
    assert lab.pods() == [Row("0", "a")]


def test_a_socket_that_nobody_listens_at_any_more(lab: Lab) -> None:
    """A kubelet that was killed leaves its socket."""
    lab.kubelet.stop()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(lab.kubelet.socket))
    with pytest.raises(ConnectionRefusedError, match=str(lab.kubelet.socket)):
        lab.read()


def test_a_kubelet_that_refuses_is_told_as_denied(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directory and socket belong to root: a daemon that is not root may not connect."""

    def refuse(self: socket.socket, address: object) -> None:
        raise PermissionError(13, "Permission denied")

    if os.geteuid() == 0:  # whom no mode keeps out
        monkeypatch.setattr(socket.socket, "connect", refuse)
    else:
        lab.kubelet.socket.chmod(0)
    with pytest.raises(PermissionError, match=str(lab.kubelet.socket)):
        lab.read()


def test_a_slow_kubelet_is_left_at_the_deadline(lab: Lab) -> None:
    lab.deadline = 0.3
    lab.source = lab.made()
    done = threading.Event()
    lab.kubelet.wait = hang(done)
    began = SystemClock().monotonic()
    try:
        with pytest.raises(SourceError) as caught:
            lab.read()
    finally:
        done.set()
    assert caught.value.reason == "timeout"
    assert SystemClock().monotonic() - began < 3.0


def test_a_kubelet_that_is_asked_too_often_says_so_and_is_asked_less(lab: Lab) -> None:
    import grpc

    lab.kubelet.pods = [pod("a", {"nvidia.com/gpu": [GPU[0]]})]
    lab.read()

    def limited(context: grpc.ServicerContext) -> None:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")

    lab.kubelet.wait = limited
    items = lab.read()
    assert lab.pods(items) == [Row("0", "a")]
    (fault,) = (one for one in items if isinstance(one, Fault))
    assert "rejected by rate limit" in fault.detail
    for _ in range(4):
        lab.read(2.0)
    assert lab.kubelet.asked == 2


def test_an_answer_that_makes_no_sense_is_malformed(lab: Lab) -> None:
    lab.kubelet.raw = b"\x0a\x05abc"
    with pytest.raises(Malformed):
        lab.read()


def test_a_server_that_speaks_no_grpc(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "d/kubelet.sock"))
        server.listen()
        door = PodResources((tmp_path / "d",), 0.5, SystemClock())
        with pytest.raises(SourceError) as caught:
            door.ask()
    assert caught.value.reason in {"timeout", "unavailable"}


def test_without_grpc_it_is_said_what_to_install(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "grpc", None)
    with pytest.raises(SourceError, match=r"pip install 'flopwatch\[kubernetes\]'") as caught:
        lab.read()
    assert caught.value.reason == "unavailable"


def test_without_gpus_on_the_board_nothing_is_said_of_them(lab: Lab) -> None:
    """At the start the kubelet may be asked before NVML."""
    lab.kubelet.pods = [pod("a", {"nvidia.com/gpu": [GPU[0]]})]
    lab.view = board(0)
    items = lab.read()
    assert lab.pods(items) == []
    assert unresolved(items) == {}
    lab.view = board(2)
    assert lab.pods(lab.read(2.0)) == [Row("0", "a")]


def test_the_directory_below_the_root_counts_before_the_one_that_is_mounted_as_it_is(
    lab: Lab, tmp_path: Path
) -> None:
    for directories in (
        (lab.kubelet.directory, tmp_path / "none"), (tmp_path / "none", lab.kubelet.directory)
    ):  # fmt: skip
        assert PodResources(directories, 5.0, SystemClock()).ask().problem is None
    with pytest.raises(FileNotFoundError, match="is it mounted"):
        PodResources((tmp_path / "none",), 5.0, SystemClock()).ask()


def test_the_kubelet_is_not_asked_at_each_read_let_alone_at_each_scrape(lab: Lab) -> None:
    """dcgm-exporter 551, 599: a list for each scrape, and ten cores for thirty instances."""
    lab.view = board(1, split=7)
    lab.kubelet.pods = [pod(f"p{n}", {"nvidia.com/mig-1g.10gb": [MIG[n]]}) for n in range(7)]
    told = [lab.read(2.0) for _ in range(100)]
    assert lab.kubelet.asked == 20
    assert all(len(of(c.GPU_ALLOCATION_INFO, items)) == 7 for items in told)


def test_pods_that_come_and_go_are_forgotten(lab: Lab) -> None:
    """dcgm-exporter 536: memory grew with pods of the past."""
    for n in range(50):
        lab.kubelet.pods = [pod(f"job-{n}", {"nvidia.com/gpu": [GPU[0]]})]
        assert lab.pods() == [Row("0", f"job-{n}")]
    assert len(lab.source._pods.memory()["pods"]) == 1
    assert len(lab.memories["kubernetes"].plain["pods"]) == 1


def test_grpc_is_not_loaded_by_those_who_do_not_ask() -> None:
    code = "import sys, exporter.app, exporter.plans.cluster; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_hundreds_of_askings_leave_nothing_behind(lab: Lab) -> None:
    """Descriptors and threads: also where the kubelet is away half of the time."""
    lab.kubelet.pods = [pod("a", {"nvidia.com/gpu": [GPU[0]]})]

    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    for _ in range(5):
        lab.read()
    before = held()
    for _ in range(3):
        for _ in range(50):
            lab.read()
        lab.kubelet.stop()
        for _ in range(10):
            lab.read()
        lab.kubelet.start()
    lab.read()
    after = held()
    # The kubelet of the test is in this process, with descriptors and threads of its own.
    assert after[0] <= before[0] + 8
    assert after[1] <= before[1] + 4
