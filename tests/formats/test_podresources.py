"""The kubelet's messages: what we read is what Google's library has written."""

from __future__ import annotations

from random import Random

import pytest

from exporter.formats import podresources
from exporter.formats.podresources import Claimed, Container, Device, Reader
from exporter.samples import Malformed
from tests import kubelet_lab


def containers(answer: bytes) -> tuple[Container, ...]:
    return Reader().containers(answer)


def listed(*pods: object) -> bytes:
    return kubelet_lab.messages().ListPodResourcesResponse(pod_resources=pods).SerializeToString()


def test_an_answer_is_read_as_the_official_library_wrote_it() -> None:
    """Any number of pods, containers, resources and claims, next to what is of no use here."""
    dice = Random(7)
    pb = kubelet_lab.messages()
    for _ in range(200):
        pods, wanted = [], []
        for p in range(dice.randrange(4)):
            inside = []
            for n in range(dice.randrange(4)):
                ids = [f"id-{dice.randrange(10)}é" for _ in range(dice.randrange(3))]
                claims = [("gpu.nvidia.com", "node", f"gpu-{k}") for k in range(dice.randrange(3))]
                inside.append(
                    pb.ContainerResources(
                        name=f"c{n}",
                        devices=kubelet_lab.devices({"nvidia.com/gpu": ids}),
                        cpu_ids=[dice.randrange(2**40) for _ in range(3)],
                        memory=[pb.ContainerMemory(memory_type="memory", size=2**63)],
                        dynamic_resources=[
                            pb.DynamicResource(
                                claim_name="x",
                                claim_resources=[
                                    pb.ClaimResource(
                                        cdi_devices=[pb.CDIDevice(name="k8s/x=y")],
                                        driver_name=driver, pool_name=pool, device_name=device,
                                    )
                                ],
                            )
                            for driver, pool, device in claims
                        ],
                    )
                )  # fmt: skip
                if ids or claims:
                    devices = tuple(Device("nvidia.com/gpu", one) for one in ids)
                    claimed = tuple(Claimed(*one) for one in claims)
                    wanted.append(Container("ml", f"p{p}", f"c{n}", devices, claimed))
            pods.append(pb.PodResources(name=f"p{p}", namespace="ml", containers=inside))
        assert containers(listed(*pods)) == tuple(wanted)


def test_what_can_be_handed_out_is_read() -> None:
    pb = kubelet_lab.messages()
    told = pb.AllocatableResourcesResponse(
        devices=kubelet_lab.devices({"nvidia.com/gpu": ["a", "b"], "cpu.example/x": ["c"]}),
        cpu_ids=[1, 2, 3],
    )
    assert Reader().allocatable(told.SerializeToString()) == (
        Device("cpu.example/x", "c"), Device("nvidia.com/gpu", "a"), Device("nvidia.com/gpu", "b"),
    )  # fmt: skip


def test_a_kubelet_of_the_time_before_claims_had_names_for_devices() -> None:
    """Kubernetes 1.27 to 1.30: a claim has a class and CDI names, and no device by name."""
    old = b"\x0a\x03gpu\x12\x01x\x22\x0b\x0a\x09\x0a\x07k8s/x=y"
    container = b"\x0a\x01c\x2a" + bytes([len(old)]) + old
    pod = b"\x0a\x01p\x12\x01n\x1a" + bytes([len(container)]) + container
    assert containers(b"\x0a" + bytes([len(pod)]) + pod) == ()


def test_damaged_answers_are_malformed_and_nothing_else() -> None:
    whole = listed(*(kubelet_lab.pod(f"p{n}", {"nvidia.com/gpu": ["x"]}) for n in range(3)))
    dice = Random(3)
    read = refused = 0
    for _ in range(3000):
        body = bytearray(whole[: dice.randrange(len(whole) + 1)])
        for _ in range(dice.randrange(4)):
            if body:
                body[dice.randrange(len(body))] = dice.randrange(256)
        try:
            containers(bytes(body))
            read += 1
        except Malformed:
            refused += 1
    assert read > 10
    assert refused > 100


def test_an_answer_out_of_all_proportion_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podresources, "MOST_DEVICES", 10)
    with pytest.raises(Malformed, match="more than 10 devices"):
        containers(listed(kubelet_lab.pod("p", {"x": map(str, range(11))})))
    monkeypatch.setattr(podresources, "MOST_PODS", 2)
    with pytest.raises(Malformed, match="2 pods"):
        containers(listed(*(kubelet_lab.pod(f"p{n}", {"x": ["1"]}) for n in range(3))))
    with pytest.raises(Malformed, match="a name of 513 characters"):
        containers(listed(kubelet_lab.pod("p" * 513, {"x": ["1"]})))


def test_an_answer_of_nothing_over_and_over_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen million empty pods fit into what may be received; reading them took minutes."""
    monkeypatch.setattr(podresources, "MOST_PODS", 100)
    with pytest.raises(Malformed, match="100 pods"):
        containers(b"\x0a\x00" * 101)
    monkeypatch.setattr(podresources, "MOST_FIELDS", 1000)
    for piece in (b"\x38\x01", b"\x1a\x00", b"\x12\x00"):
        many = piece * 1001
        pod = b"\x0a\xd2\x0f" + many
        assert len(many) == 2002
        for answer in (many, pod):
            with pytest.raises(Malformed, match="more than 1000 fields"):
                containers(answer)
    with pytest.raises(Malformed, match="more than 1000 fields"):
        Reader().allocatable(b"\x0a\x00" * 1001)


def test_what_was_said_before_is_not_taken_apart_again() -> None:
    """In whatever order it comes: the kubelet keeps its pods in a map."""
    pods = [kubelet_lab.pod(f"p{n}", {"nvidia.com/gpu": [f"x{n}"]}) for n in range(5)]
    reader = Reader()
    first = reader.containers(listed(*pods))
    again = reader.containers(listed(*reversed(pods)))
    assert again == first
    assert all(one is other for one, other in zip(first, again, strict=True))
    pods[2].containers[1].devices[0].device_ids[0] = "y"
    third = reader.containers(listed(*pods))
    assert third[2].devices == (Device("nvidia.com/gpu", "y"),)
    assert [one is other for one, other in zip(first, third, strict=True)].count(False) == 1
