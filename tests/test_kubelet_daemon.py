"""A real daemon beside a kubelet's socket: pods on its page, and a kubelet that comes and goes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from tests.kubelet_lab import FakeKubelet, pod
from tests.servers import Server, reply
from tests.test_cost_daemon import DCGM
from tests.test_daemon import Daemon, Start, start  # noqa: F401 - a fixture
from tests.test_state import end

GPUS = [
    f"GPU-{f'{n}' * 8}-{f'{n}' * 4}-4{f'{n}' * 3}-8{f'{n}' * 3}-{f'{n}' * 12}" for n in range(3)
]


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose name is short enough for what lies below it to be a socket's."""
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as folder:
        yield Path(folder)


def write(file: Path, url: str, directory: Path, *, labels: bool = False) -> Path:
    file.write_text(
        f"""
reload: {{watch: 200ms}}
root: {file.parent / "host"}
sources:
  host: {{enabled: false}}
  network: {{enabled: false}}
  inference: {{enabled: false}}
  dcgm_page: {{enabled: true, url: "{url}", interval: 200ms}}
  kubernetes: {{directory: {directory}, interval: 1s, labels_on_gpu_series: {str(labels).lower()}}}
cost: {{gpu_hour: 36, pricing: owned, interval: 200ms}}
"""
    )
    return file


def owners(page: str, family: str) -> dict[str, str | None]:
    """Return which pod stands on each GPU's series of a family."""
    return {
        one.labels["gpu"]: one.labels.get("pod")
        for found in parse(page)
        for one in found.samples
        if one.name == family
    }


def until(
    daemon: Daemon, wanted: dict[str, str | None], family: str = "gpu_allocation_info"
) -> str:
    return daemon.wait_for("/metrics", lambda _, text: owners(text, family) == wanted)


def test_a_daemon_tells_pods_and_goes_on_without_its_kubelet(
    start: Start,  # noqa: F811 - the fixture
    short: Path,
) -> None:
    """It finds the directory below its root, and starts to read it as the node has GPUs."""
    server = Server([reply(DCGM.read_bytes())] * 5000)
    place = Path("/var/lib/kubelet/pod-resources")
    kubelet = FakeKubelet(short / "host" / place.relative_to("/")).start()
    kubelet.pods = [pod("train-0", {"nvidia.com/gpu": GPUS[:2]})]
    kubelet.allocatable = {"nvidia.com/gpu": GPUS}
    config = write(short / "flopwatch.yaml", server.url(), place)
    try:
        daemon = start("-c", str(config))
        page = until(daemon, {"0": "train-0", "1": "train-0", "2": ""})
        assert set(owners(page, "gpu_utilization_ratio").values()) == {None}
        daemon.wait_for(
            "/metrics",
            lambda _, text: 'cost_tenant_dollars_total{namespace="ml",pricing="owned"}' in text,
        )
        write(config, server.url(), place, labels=True)
        until(daemon, {"0": "train-0", "1": "train-0"}, "gpu_utilization_ratio")

        kubelet.stop()
        page = daemon.wait_for(
            "/metrics",
            lambda _, text: 'flopwatch_source_failing_parts{source="kubernetes"} 1' in text,
        )
        assert owners(page, "gpu_allocation_info")["0"] == "train-0"
        assert owners(page, "gpu_utilization_ratio").keys() == {"0", "1"}

        kubelet.pods = [pod("serve-0", {"nvidia.com/gpu": GPUS[1:]})]
        kubelet.start()
        page = until(daemon, {"0": "", "1": "serve-0", "2": "serve-0"})
        until(daemon, {"0": None, "1": "serve-0"}, "gpu_utilization_ratio")
        end(daemon)
    finally:
        kubelet.stop()
        server.close()


@pytest.mark.parametrize("enabled", ["auto", "false"])
def test_a_node_without_a_kubelet_is_not_asked(
    start: Start,  # noqa: F811 - the fixture
    tmp_path: Path,
    enabled: str,
) -> None:
    server = Server([reply(DCGM.read_bytes())] * 1000)
    config = write(tmp_path / "flopwatch.yaml", server.url(), tmp_path / "none")
    config.write_text(
        config.read_text().replace("kubernetes: {", f"kubernetes: {{enabled: {enabled}, ")
    )
    try:
        daemon = start("-c", str(config))
        page = daemon.wait_for("/metrics", lambda _, text: "gpu_utilization_ratio" in text)
        assert "gpu_allocation" not in page
        assert 'source="kubernetes"' not in page
        end(daemon)
    finally:
        server.close()
