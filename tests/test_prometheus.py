"""Real Prometheus and promtool read our page."""

from __future__ import annotations

import json
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.samples import Histogram
from tests.test_daemon import Daemon, Start, free_port, ready, start
from tests.test_exposition import Rig

__all__ = ["start"]  # the fixture

Tool = Callable[[str], str]

SCRAPES = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: openmetrics
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
  - job_name: text
    params: {{format: [text]}}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


@pytest.fixture
def daemon(start: Start) -> Daemon:
    running = start()
    running.wait_for("/-/ready", ready)
    return running


@pytest.fixture
def prometheus(tool: Tool, daemon: Daemon, tmp_path: Path) -> Iterator[Callable[[str], float]]:
    """A Prometheus that scrapes the daemon twice a second; returns a function that queries it."""
    file, port = tmp_path / "prometheus.yml", free_port()
    file.write_text(SCRAPES.format(port=daemon.port))
    command = [
        tool("prometheus"), f"--config.file={file}", f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    def query(expression: str) -> float:
        quoted = urllib.request.quote(expression)  # type: ignore[attr-defined]
        url = f"http://127.0.0.1:{port}/api/v1/query?query={quoted}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            result = json.load(answer)["data"]["result"]
        return float(result[0]["value"][1]) if result else float("nan")

    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            if query("sum(up)") == 2:
                break
        except OSError:
            pass
        threading.Event().wait(0.1)
    yield query
    process.terminate()
    process.communicate(timeout=30)


def test_promtool_accepts_the_page(tool: Tool, daemon: Daemon) -> None:
    """No lint, no syntax error."""
    page = daemon.get("/metrics", Accept="text/plain")[1]

    result = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=page, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert (result.returncode, result.stderr) == (0, "")


def test_promtool_accepts_every_family_of_the_catalogue(tool: Tool) -> None:
    """Also those that a healthy machine does not show: names are promises, so lint them all."""
    rig = Rig()
    histogram = Histogram((0.1, 1.0), (1, 2, 3), 2.5)
    rig.publish(
        metric(histogram if metric.kind == "histogram" else 1, *metric.labels)
        for metric in c.FAMILIES.values()
        if metric.group != c.EXPORTER
    )
    rig.own = [
        metric(1, *metric.labels)
        for metric in c.FAMILIES.values()
        if metric.group == c.EXPORTER and metric is not c.FLOPWATCH_SERIES
    ]
    page = rig.exposition.page((None, False, False)).decode()

    result = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=page, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert all(f"# TYPE {name} " in page for name in c.FAMILIES)
    assert (result.returncode, result.stderr) == (0, "")


def test_prometheus_scrapes_both_formats_without_an_error(
    prometheus: Callable[[str], float],
) -> None:
    """For a while, each scrape of each job succeeds, with no sample refused."""
    threading.Event().wait(12)

    assert prometheus("min_over_time(up{job='openmetrics'}[10s])") == 1
    assert prometheus("min_over_time(up{job='text'}[10s])") == 1
    both = "scrape_samples_post_metric_relabeling{job='openmetrics'} - ignoring(job)"
    both += " scrape_samples_post_metric_relabeling{job='text'}"
    assert abs(prometheus(both)) <= 2, "the same page in both formats"
    assert prometheus("count(host_cpu_seconds_total{job='text'})") >= 4
    assert prometheus("count(host_cpu_seconds_total{job='openmetrics'})") >= 4
