"""An application with names of ours is scraped by us and by Prometheus: rules count it once.

All of it is real: the application is written with prometheus_client as the specification has it,
the daemon reads it, Prometheus reads both and evaluates the rules that we ship, over seconds.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import prometheus_client as pc
import pytest

from tests.test_daemon import Start, free_port, start

__all__ = ["start"]  # the fixture

Tool = Callable[[str], str]
Query = Callable[[str], dict[str, float]]

ALERTS = Path(__file__).parent.parent / "alerts"
SCRAPE = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: ["{folder}/*.yaml"]
scrape_configs:
  - job_name: flopwatch
    static_configs: [{{targets: ["127.0.0.1:{ours}"]}}]
  - job_name: application
    static_configs: [{{targets: ["127.0.0.1:{theirs}"]}}]
"""
DAEMON = """
sources:
  host: {{enabled: false}}
  network: {{enabled: false}}
  serving: {{interval: 1s, refresh: 1s}}
  inference:
    interval: 1s
    servers: [{{name: app, url: "http://127.0.0.1:{port}/metrics"}}]
inference_sla:
  latency: {{ttft_p95: "< 500ms"}}
"""


class Application:
    """A server of the specification's section 16.1: ten requests and 400 tokens a second."""

    def __init__(self, registry: pc.CollectorRegistry) -> None:
        self._first = pc.Histogram(
            "llm_ttft_seconds", "Time to first token", ["model_name", "model_version"],
            buckets=[0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0], registry=registry,
        ).labels("m", "v1")  # fmt: skip
        self._tokens = pc.Counter(
            "llm_tokens_total", "Total tokens", ["model_name", "direction"], registry=registry
        )
        active = pc.Gauge(
            "llm_active_requests", "Active requests", ["model_name"], registry=registry
        )
        active.labels("m").set(7)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while not self._ended.wait(0.1):
            self._first.observe(0.3)
            self._tokens.labels("m", "output").inc(40)
            self._tokens.labels("m", "input").inc(10)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()


@pytest.fixture
def application() -> Iterator[int]:
    """Return the port of an application at work."""
    registry, port = pc.CollectorRegistry(), free_port()
    server, thread = pc.start_http_server(port, "127.0.0.1", registry)
    work = Application(registry)
    yield port
    work.close()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def query(tool: Tool, application: int, start: Start, tmp_path: Path) -> Iterator[Query]:
    """A Prometheus that reads the daemon and the application."""
    config = tmp_path / "flopwatch.yaml"
    config.write_text(DAEMON.format(port=application))
    daemon = start("-c", str(config))
    folder = tmp_path / "rules"
    folder.mkdir()
    for file in (ALERTS / "serving.yaml", ALERTS / "sla.yaml"):
        # The rates are over minutes: too long for a test.
        text = re.sub(r"\[([35]|30)m\]|\[[16]h\]|\[3d\]", "[10s]", file.read_text("utf-8"))
        text = text.replace("interval: 1m", "interval: 1s")
        (folder / file.name).write_text(text)
    port, file = free_port(), tmp_path / "prometheus.yml"
    file.write_text(SCRAPE.format(folder=folder, ours=daemon.port, theirs=application))
    command = [
        tool("prometheus"), f"--config.file={file}", f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    yield lambda expression: ask(port, expression)
    process.terminate()
    process.wait(30)


def ask(port: int, expression: str) -> dict[str, float]:
    """Return the values of a query, by the labels that the rules keep."""
    url = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(expression)}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
    except OSError:
        return {}
    return {
        "/".join(v for k, v in sorted(one["metric"].items()) if k != "__name__"): float(
            one["value"][1]
        )
        for one in found
    }


def settled(query: Query, expression: str, seconds: float = 60) -> dict[str, float]:
    """Return what is answered once there is an answer and the rates have come in."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if query(expression):
            threading.Event().wait(15)
            return query(expression)
        threading.Event().wait(0.5)
    raise AssertionError(f"nothing: {expression}")


def test_an_application_that_both_scrape_is_counted_once(query: Query) -> None:
    """Requests, tokens and percentiles of the rules are the application's own, not twice that."""
    tokens = settled(query, "model_name:llm_output_tokens:rate5m")

    # It is there twice, as told: once from each. Rates over seconds are rough, but not by twice.
    both = query('count by (job) (llm_tokens_total{direction="output"})')
    assert both == {"application": 1, "flopwatch": 1}
    truth = query('rate(llm_tokens_total{job="application",direction="output"}[10s])')
    assert tokens == {"m": pytest.approx(*truth.values(), rel=0.45)}
    assert query("model_name:llm_input_tokens:rate5m") == {"m": pytest.approx(100, rel=0.45)}
    assert query("model_name:llm_active_requests:sum") == {"m": 7}
    buckets = query('model_name_le:llm_ttft_seconds_bucket:rate5m{le="+Inf"}')
    assert buckets == {"+Inf/m": pytest.approx(10, rel=0.45)}
    seconds = query("model_name:llm_ttft_seconds:p95_rate5m")
    assert seconds == {"m": pytest.approx(0.485, abs=0.02)}
    events = query("sla:events:rate5m")
    assert [*events.values()] == [pytest.approx(10, rel=0.45)]
    assert query("prometheus_rule_evaluation_failures_total > 0") == {}
