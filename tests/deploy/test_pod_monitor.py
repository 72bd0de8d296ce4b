"""What a real Prometheus makes of the PodMonitor: whose labels are whose.

The operator writes a scrape configuration from it; ours here is written as the operator does, for
one target that is already found.
"""

from __future__ import annotations

import http.server
import json
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import Manifest, one, render
from tests.test_daemon import free_port

PAGE = b"""\
# TYPE gpu_allocation_info gauge
gpu_allocation_info{gpu="0",uuid="GPU-a",namespace="team-a",pod="train-0",container="main"} 1
gpu_allocation_info{gpu="1",uuid="GPU-b",namespace="",pod="",container=""} 1
# TYPE gpu_power_watts gauge
gpu_power_watts{gpu="0",uuid="GPU-a"} 400
"""
POD = {
    "__meta_kubernetes_namespace": "flopwatch",
    "__meta_kubernetes_pod_name": "flopwatch-x7k2p",
    "__meta_kubernetes_pod_container_name": "flopwatch",
    "__meta_kubernetes_pod_label_app_kubernetes_io_name": "flopwatch",
    "__meta_kubernetes_pod_node_name": "node-17",
}


def scrape_configuration(monitor: Manifest, port: int) -> dict[str, Any]:
    """Return what the operator makes of a PodMonitor, for a pod that listens on a port."""
    spec = monitor["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    job = "__meta_kubernetes_pod_label_" + re.sub(r"[^a-zA-Z0-9]", "_", spec["jobLabel"])
    own = [
        {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
        {"source_labels": ["__meta_kubernetes_pod_container_name"], "target_label": "container"},
        {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
        {"target_label": "job", "replacement": "flopwatch/flopwatch"},
        {"source_labels": [job], "regex": "(.+)", "target_label": "job"},
        {"target_label": "endpoint", "replacement": endpoint["port"]},
    ]
    ours = [
        {re.sub(r"(?<=[a-z])([A-Z])", r"_\1", key).lower(): value for key, value in rule.items()}
        for rule in endpoint["relabelings"]
    ]
    return {
        "job_name": "podMonitor/flopwatch/flopwatch/0",
        "honor_labels": endpoint["honorLabels"],
        "metrics_path": endpoint["path"],
        "scrape_interval": "1s",
        "scrape_timeout": "1s",
        "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": POD}],
        "relabel_configs": own + ours,
    }


class Page(http.server.BaseHTTPRequestHandler):
    """Serves the page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def series(
    tool: Callable[[str], str], tmp_path: Path
) -> Iterator[Callable[[str], list[dict[str, str]]]]:
    """A Prometheus with that configuration; returns the labels of the series of a name."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monitor = one(render("base", "components/pod-monitor"), "PodMonitor")
    file, port = tmp_path / "prometheus.yml", free_port()
    made = scrape_configuration(monitor, server.server_port)
    file.write_text(yaml.safe_dump({"scrape_configs": [made]}), "utf-8")
    process = subprocess.Popen(
        [tool("prometheus"), f"--config.file={file}", f"--storage.tsdb.path={tmp_path / 'data'}",
         f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    )  # fmt: skip

    def ask(name: str) -> list[dict[str, str]]:
        query = urllib.parse.urlencode({"query": name})
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}") as answer:
            return [one["metric"] for one in json.load(answer)["data"]["result"]]

    try:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                if ask("gpu_power_watts"):
                    break
            except OSError:
                pass
            time.sleep(0.1)
        yield ask
    finally:
        process.terminate()
        process.wait(30)
        server.shutdown()
        server.server_close()


def test_a_gpu_that_nobody_has_is_not_the_daemons(
    series: Callable[[str], list[dict[str, str]]],
) -> None:
    """Labels of who has a GPU arrive as they are; the daemon's own pod is on no series."""
    node = {"instance": "node-17", "job": "flopwatch"}
    told = {one.pop("gpu"): one for one in series("gpu_allocation_info")}
    assert told["0"] == node | {
        "__name__": "gpu_allocation_info", "uuid": "GPU-a", "namespace": "team-a",
        "pod": "train-0", "container": "main",
    }  # fmt: skip
    assert told["1"] == node | {"__name__": "gpu_allocation_info", "uuid": "GPU-b"}
    assert series("gpu_power_watts") == [
        node | {"__name__": "gpu_power_watts", "gpu": "0", "uuid": "GPU-a"}
    ]
    assert series("up") == [node | {"__name__": "up"}]
