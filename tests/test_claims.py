"""Claimed devices (DRA) and the API server that tells which GPUs they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from exporter.claims import AGAIN, ResourceSlices
from exporter.clock import SystemClock
from exporter.fetch import HttpFetcher
from exporter.formats.podresources import Claimed
from exporter.formats.resourceslices import uuids
from exporter.samples import Malformed, SourceError
from tests.fakes import FakeClock
from tests.servers import Server, reply

DRIVER = "gpu.nvidia.com"
GPU0, GPU1, MIG = Claimed(DRIVER, "n", "gpu-0"), Claimed(DRIVER, "n", "gpu-1"), "MIG-1"


def device(name: str, uuid: str | None, version: str = "v1") -> dict[str, Any]:
    attributes = {"productName": {"string": "H100"}, "minor": {"int": 0}}
    attributes |= {} if uuid is None else {"uuid": {"string": uuid}}
    inner = {"attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}}
    return {"name": name, "basic": inner} if version == "v1beta1" else {"name": name, **inner}


def slices(*devices: dict[str, Any], generation: int = 1, more: Any = ()) -> bytes:
    spec = {
        "driver": DRIVER, "nodeName": "n", "devices": list(devices),
        "pool": {"name": "n", "generation": generation, "resourceSliceCount": 1},
    }  # fmt: skip
    return json.dumps({"kind": "ResourceSliceList", "items": [{"spec": spec}, *more]}).encode()


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_devices_have_the_uuid_that_their_driver_published(version: str) -> None:
    body = slices(device("gpu-0", "GPU-a", version), device("gpu-0-mig-19-0-1", MIG, version))
    assert uuids(body) == {GPU0: "GPU-a", Claimed(DRIVER, "n", "gpu-0-mig-19-0-1"): MIG}


def test_devices_without_a_uuid_are_left_out() -> None:
    """Network cards, counters, and what makes no sense."""
    odd = [{"spec": {"driver": "x", "sharedCounters": []}}, {"spec": None}, 3, {}]
    assert uuids(slices(device("gpu-0", None), {"name": 7}, {}, more=odd)) == {}


def test_of_a_pool_the_newest_generation_counts() -> None:
    old = json.loads(slices(device("gpu-0", "GPU-old"), device("gpu-1", "GPU-gone")))["items"]
    body = slices(device("gpu-0", "GPU-new"), generation=2, more=old)
    assert uuids(body) == {GPU0: "GPU-new"}


def test_damaged_lists_are_malformed_and_nothing_else() -> None:
    whole, dice = slices(device("gpu-0", "GPU-a")), Random(5)
    for _ in range(2000):
        body = bytearray(whole)
        for _ in range(dice.randrange(1, 4)):
            body[dice.randrange(len(body))] = dice.randrange(256)
        try:
            uuids(bytes(body))
        except Malformed:
            continue
    for text in (b"", b"[]", b"{}", b'{"items": 3}', b"[" * 100_000):
        with pytest.raises(Malformed):
            uuids(text)


# ---------------------------------------------------------------- who is asked


HERE = ("GPU-a",)


class Lab:
    """An API server and what asks it."""

    def __init__(self, token: Path, *answers: bytes) -> None:
        self.clock = FakeClock()
        self.server = Server([*answers])
        self.asks = ResourceSlices(
            lambda path: HttpFetcher(
                self.server.url(path), timeout=5, clock=SystemClock(), token_file=token
            ),
            "node-1", self.clock,
        )  # fmt: skip

    @property
    def requests(self) -> list[str]:
        return [one.split()[1].partition("?")[0].split("/")[3] for one in self.server.requests]


Made = Callable[..., Lab]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Made]:
    made: list[Lab] = []
    token = tmp_path / "token"
    token.write_text("secret")

    def make(*answers: bytes) -> Lab:
        # A server answers what it was told to on each connection: one for each request here.
        one = Lab(token, answers[0])
        one.server._scripts = tuple([answer] for answer in answers)
        made.append(one)
        return one

    yield make
    for one in made:
        one.server.close()


def test_the_slices_of_this_node_are_asked_for_once_and_with_the_token(lab: Made) -> None:
    one = lab(reply(slices(device("gpu-0", "GPU-a"))))
    assert one.asks({GPU0}, HERE) == {GPU0: "GPU-a"}
    assert one.asks({GPU0}, HERE) == {GPU0: "GPU-a"}
    (request,) = one.server.requests
    assert request.startswith(
        "GET /apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName%3Dnode-1 "
    )
    assert "Authorization: Bearer secret" in request


def test_a_name_that_nobody_knows_is_not_asked_for_again_and_again(lab: Made) -> None:
    """dcgm-exporter 599: ten cores were burnt on what was not to be found."""
    one = lab(reply(slices(device("gpu-0", "GPU-a"))))
    for _ in range(50):
        assert GPU1 not in one.asks({GPU0, GPU1}, HERE)
        one.clock.advance(AGAIN / 51)
    assert len(one.requests) == 1
    one.clock.advance(AGAIN)
    one.asks({GPU0, GPU1}, HERE)
    assert len(one.requests) == 2


def test_instances_that_were_made_anew_under_their_former_names_are_asked_for(lab: Made) -> None:
    """After a new layout of MIG the former UUIDs stayed until the daemon was started again."""
    told = [slices(device("gpu-0-mig-19-0-1", uuid)) for uuid in ("MIG-a", "MIG-b")]
    one, name = lab(*map(reply, told)), Claimed(*GPU0[:2], "gpu-0-mig-19-0-1")
    assert one.asks({name}, {"MIG-a"}) == {name: "MIG-a"}
    one.clock.advance(AGAIN)
    assert one.asks({name}, {"MIG-b"}) == {name: "MIG-b"}
    assert len(one.requests) == 2


def test_an_older_cluster_has_an_older_version(lab: Made) -> None:
    gone = reply(b"404 page not found", "404 Not Found")
    one = lab(gone, gone, reply(slices(device("gpu-0", "GPU-a", "v1beta1"))))
    assert one.asks({GPU0}, HERE) == {GPU0: "GPU-a"}
    assert one.requests == ["v1", "v1beta2", "v1beta1"]


def test_a_cluster_without_claims(lab: Made) -> None:
    one = lab(reply(b"404 page not found", "404 Not Found"))
    with pytest.raises(SourceError, match="knows no ResourceSlices"):
        one.asks({GPU0}, HERE)


def test_a_missing_right_is_named(lab: Made) -> None:
    one = lab(reply(b'{"kind":"Status"}', "403 Forbidden"))
    for _ in range(3):
        with pytest.raises(SourceError, match="the right to list resourceslices") as caught:
            one.asks({GPU0}, HERE)
    assert caught.value.reason == "denied"
    assert len(one.requests) == 1


def test_what_was_known_stays_known_while_the_api_server_is_away(lab: Made) -> None:
    one = lab(reply(slices(device("gpu-0", "GPU-a"))))
    one.asks({GPU0}, HERE)
    one.server.close()
    one.clock.advance(10 * AGAIN)
    assert one.asks({GPU0}, HERE) == {GPU0: "GPU-a"}
    with pytest.raises(ConnectionError):
        one.asks({GPU1}, HERE)
