"""When the kubelet and the API server are asked at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.config import ConfigError, parse
from exporter.formats.podlist import Pod
from exporter.formats.podresources import Container, Device
from exporter.kubelet import Answer
from exporter.plans import Estate, Plan, build, plan
from exporter.plans.cluster import kubernetes_source
from exporter.samples import EMPTY_SHAPE, Sample, Snapshot, in_columns
from exporter.sources.kubernetes import KubernetesSource
from tests.fakes import FakeClock

PLACE = "var/lib/kubelet/pod-resources"


def planned(root: Path, text: str = "{}", *, gpus: bool = True) -> Plan | None:
    settings = parse(f"root: {root}\nsources: {{kubernetes: {text}}}", "test")
    plans = plan(settings, Estate(FakeClock(), gpus=gpus))
    return next((one for one in plans if one.name == "kubernetes"), None)


@pytest.mark.parametrize(
    ("there", "gpus", "text", "asked"),
    [
        (True, True, "{}", True),
        (False, True, "{}", False),
        (True, False, "{}", False),
        (True, True, "{enabled: false}", False),
        (False, False, "{enabled: true}", True),
        (True, True, "{directory: /elsewhere}", False),
    ],
)
def test_the_kubelet_is_asked_where_there_is_one_and_a_gpu(
    tmp_path: Path, there: bool, gpus: bool, text: str, asked: bool
) -> None:
    if there:
        (tmp_path / PLACE).mkdir(parents=True)
    assert (planned(tmp_path, text, gpus=gpus) is not None) == asked


def test_a_directory_that_is_mounted_at_its_own_place_is_one(tmp_path: Path) -> None:
    """A container with the machine below /host, and the kubelet's directory where it always is."""
    (tmp_path / "mounted").mkdir()
    assert planned(tmp_path / "host", f"{{directory: {tmp_path / 'mounted'}}}") is not None


def test_claims_need_to_know_where_the_api_server_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    one = planned(tmp_path, "{enabled: true, claims: {enabled: true}}")
    assert one is not None
    with pytest.raises(ConfigError, match=r"sources.kubernetes.claims.api_url is needed outside"):
        build(one)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    assert isinstance(build(one), KubernetesSource)


def test_the_setting_of_labels_does_not_restart_the_source(tmp_path: Path) -> None:
    """They are a matter of the page."""
    one, other = (
        planned(tmp_path, f"{{enabled: true, labels_on_gpu_series: {text}}}")
        for text in ("true", "false")
    )
    assert one is not None
    assert other is not None
    assert one.fingerprint == other.fingerprint


def test_a_pod_that_the_watch_saw_ending_does_not_keep_its_gpu(tmp_path: Path) -> None:
    """Both are seen for the first time; the phase says which is over."""
    estate = Estate(FakeClock())
    uuid = "GPU-00000000-0000-4000-8000-000000000000"
    slot = estate.board.enroll("nvml", c.GPU, 1.0, 60.0, estate.clock.monotonic())
    batch = in_columns([c.GPU_UP(1, "0", uuid)], EMPTY_SHAPE)
    slot.publish(Snapshot("nvml", c.GPU, estate.clock.monotonic(), 0.0, 0.0, batch), {})
    estate.pods.publish([Pod(("u1",), "ml", "a", "Succeeded"), Pod(("u2",), "ml", "b", "Running")])
    held = [Container("ml", pod, "main", (Device("nvidia.com/gpu", uuid),)) for pod in ("a", "b")]

    class Kubelet:
        def ask(self) -> Answer:
            return Answer(tuple(held), ())

    source = kubernetes_source(parse("{}", "test"), estate, kubelet=Kubelet())
    rows = [one for one in source.read() if isinstance(one, Sample)]
    (row,) = (one for one in rows if one.metric is c.GPU_ALLOCATION_INFO)
    assert row.labels[3] == "b"
