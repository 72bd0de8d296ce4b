"""Pods as the Kubernetes API writes them: what is kept, and what of garbage."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.formats.podlist import Container, Pod, Port, listed, pod_of
from exporter.samples import Malformed
from tests.api_server import pod

UID = "0d9c2f54-9a63-4c1c-8a3b-6b1d5f0e7c42"


def test_what_is_wanted_of_a_pod_is_kept() -> None:
    """Who it is, whether it serves, where, and its containers; no environment, no other notes."""
    document = pod(
        "vllm-0", uid=UID, ip="10.0.0.9", gpus=2, image="vllm/vllm-openai:v0.32",
        annotations={"prometheus.io/scrape": "true", "flopwatch.io/port": "8000"},
        labels={"app": "vllm", "team": "x"}, command=["vllm", "serve"], args=["m", "--port=9000"],
        ports=[{"containerPort": 9000, "name": "http"}, {"containerPort": 53, "protocol": "UDP"}],
    )  # fmt: skip
    main = Container(
        "main", "a1" * 32, "vllm/vllm-openai:v0.32", ("vllm", "serve", "m", "--port=9000"),
        (Port(9000, "http"),), 0, gpus=True,
    )  # fmt: skip
    assert pod_of(document) == Pod(
        (UID,), "serving", "vllm-0", "Running", True, "10.0.0.9",
        {"prometheus.io/scrape": "true", "flopwatch.io/port": "8000"}, {"app": "vllm"}, (main,),
    )  # fmt: skip


def changed(**changes: Any) -> Pod:
    """Return a pod with other keys of its metadata and status."""
    document = pod("a", uid=UID)
    for key in ("metadata", "status"):
        document[key] |= changes.get(key, {})
    found = pod_of(document)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("status", {"phase": "Succeeded"}),
        ("status", {"phase": "Pending"}),
        ("status", {"conditions": [{"type": "Ready", "status": "False"}]}),
        ("status", {"conditions": None}),
        ("status", {"podIP": ""}),
        ("status", {"podIP": "169.254.169.254"}),
        ("status", {"podIP": "127.0.0.1"}),
        ("status", {"podIP": "::ffff:127.0.0.1"}),
        ("status", {"podIP": "::ffff:169.254.169.254"}),
        ("status", {"podIP": "::1"}),
        ("status", {"podIP": "evil.example"}),
        ("metadata", {"deletionTimestamp": "2026-11-30T10:00:00Z"}),
    ],
    ids=[
        "finished", "pending", "not-ready", "unknown", "no-address", "cloud-metadata", "loopback",
        "loopback-mapped", "cloud-metadata-mapped", "loopback-6", "name", "going",
    ],
)  # fmt: skip
def test_only_pods_that_run_and_are_ready_serve(part: str, change: dict[str, Any]) -> None:
    """And only at an address of their own: ours, or the cloud's, is not a pod's."""
    assert changed().serves
    assert not changed(**{part: change}).serves


def test_a_mirror_has_the_uid_of_the_static_pod_too() -> None:
    """The cgroup and the log folder have the kubelet's, the API one of its own."""
    found = changed(
        metadata={"annotations": {"kubernetes.io/config.hash": "e4e6004e827fdf45941cf777618f60ce"}}
    )
    assert found.uids == (UID, "e4e6004e827fdf45941cf777618f60ce")


def test_a_sidecar_that_goes_on_is_a_container() -> None:
    """Since Kubernetes 1.29 they are listed as initial ones."""
    document = pod("a")
    document["spec"]["initContainers"] = [{"name": "side", "ports": [{"containerPort": 1}]}]
    found = pod_of(document)
    assert found is not None
    assert [one.name for one in found.containers] == ["main", "side"]


@pytest.mark.parametrize("name", ["", "../x", "A", "a_b", "a" * 300, 7, None])
def test_a_name_that_no_pod_can_have_is_no_pod(name: object) -> None:
    """Names become labels, and names of servers."""
    document = pod("a")
    document["metadata"]["name"] = name
    assert pod_of(document) is None


def test_a_list_is_read_with_its_version() -> None:
    """Whatever the order of its keys; what in it is no pod is left out."""
    items = [pod("a"), {"kind": "Node"}, 7, pod("b")]
    for document in (
        {"kind": "PodList", "metadata": {"resourceVersion": "42"}, "items": items},
        {"items": items, "x": [1, {"items": 2}], "metadata": {"resourceVersion": "42"}},
    ):
        for indent in (None, 2):
            found = listed(json.dumps(document, indent=indent).encode())
            assert [one.name for one in found.pods] == ["a", "b"]
            assert found.version == "42"
    assert listed(b'{"items": [], "metadata": {}}').pods == ()
    assert listed(b'{"items": null}').pods == ()


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"items": [', b'{"items": [{}', b"null", b"\xff", b"{} {}"[:1],
     b'{"items": [{"a": ' + b"[" * 100_000],
    ids=["empty", "list", "open", "open-items", "open-item", "null", "latin", "brace", "deep"],
)  # fmt: skip
def test_what_is_no_list_is_told(body: bytes) -> None:
    with pytest.raises(Malformed, match="not a list of pods"):
        listed(body)


def test_a_list_of_a_full_node_takes_little_memory() -> None:
    """dcgm-exporter 536: tens of gigabytes. 500 pods of 20 kB: the text, twice, and little else."""
    big = {"kubectl.kubernetes.io/last-applied-configuration": "y" * 18_000}
    pods = [pod(f"p{at}", annotations=big) for at in range(500)]
    body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": pods}).encode()
    assert len(body) > 9_000_000
    del pods
    tracemalloc.start()
    try:
        found = listed(body)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.pods) == 500
    assert kept < 3_000_000
    assert peak < len(body) * 1.5


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.sampled_from(["metadata", "spec", "status"]), st.data())
def test_whatever_stands_in_a_document_nothing_is_raised(part: str, data: st.DataObject) -> None:
    """The API server checks objects; whoever stands in between may not."""
    document = pod("a", ports=[{"containerPort": 1}])
    key = data.draw(st.sampled_from([*document[part], ""]))
    if key:
        document[part][key] = data.draw(_JSON)
    else:
        document[part] = data.draw(_JSON)
    found = pod_of(document)
    if found is not None:
        assert all(isinstance(one, Container) for one in found.containers)
        assert len(found.name) < 254
    assert listed(json.dumps({"items": [document]}).encode()).version == ""


@given(st.binary(max_size=200))
def test_any_bytes_are_a_list_or_malformed(body: bytes) -> None:
    with contextlib.suppress(Malformed):
        listed(body)
