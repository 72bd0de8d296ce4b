"""From a fault to a message: daemon on the demo's node, real Prometheus, real Alertmanager.

The shipped rules and routes are used, and time runs fifteen times as fast for them: windows,
`for`, `keep_firing_for`, intervals of groups and Alertmanager's waits are divided by `FASTER` and
are a second at least; repeats stay. Figures in expressions stay too: thresholds on increases are
fifteen times as hard to reach, so no injected fault rests on one. The rules on promises are what
`flopwatch alerts` writes for the daemon's own configuration. Receivers become one webhook here.

Prometheus sends an alert again after a minute, and may lose the first messages while it does not
know Alertmanager yet: `--rules.alert.resend-delay` is shorter.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.alerts.cases import ALERTS, TOPICS
from tests.test_command import flopwatch
from tests.test_daemon import Daemon, free_port, ready

Tool = Callable[[str], str]
FASTER = 15
PROMISED = 'inference_sla: {latency: {ttft_p95: "< 5s"}}\n'
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def shortened(duration: str) -> str:
    """Return a duration for time that runs so much faster."""
    seconds = sum(int(n) * _SECONDS[unit] for n, unit in re.findall(r"(\d+)([smhd])", duration))
    return f"{max(1, round(seconds / FASTER))}s"


def faster(expression: str) -> str:
    """Return an expression whose windows and offsets are shorter."""
    windows = re.sub(r"\[(\w+)\]", lambda m: f"[{shortened(m[1])}]", expression)
    return re.sub(r"offset (\w+)", lambda m: f"offset {shortened(m[1])}", windows)


def faster_rules(text: str) -> str:
    """Return a file of rules for time that runs faster."""
    document = yaml.safe_load(text)
    for group in document["groups"]:
        if "interval" in group:
            group["interval"] = shortened(group["interval"])
        for rule in group["rules"]:
            rule["expr"] = faster(rule["expr"])
            for key in ("for", "keep_firing_for"):
                if key in rule:
                    rule[key] = shortened(rule[key])
            for name, said in rule.get("annotations", {}).items():
                rule["annotations"][name] = faster(said)
    return yaml.safe_dump(document)


def faster_routes(route: dict[str, Any]) -> None:
    for key in ("group_wait", "group_interval"):
        if key in route:
            route[key] = shortened(route[key])
    for one in route.get("routes", ()):
        faster_routes(one)


class Message(NamedTuple):
    """One alert in a message of Alertmanager to a receiver."""

    at: float
    receiver: str
    status: str
    labels: dict[str, str]
    annotations: dict[str, str]


class Inbox:
    """A webhook that keeps what it is told."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                now = time.monotonic()
                inbox.messages += [
                    Message(now, self.path[1:], one["status"], one["labels"], one["annotations"])
                    for one in body["alerts"]
                ]
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def of(self, alert: str, status: str = "firing") -> list[Message]:
        return [
            one
            for one in list(self.messages)
            if one.labels["alertname"] == alert and one.status == status
        ]

    def wait(self, alert: str, status: str = "firing", seconds: float = 150) -> Message:
        """Return the first message of an alert; fail if it does not come."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if found := self.of(alert, status):
                return found[0]
            threading.Event().wait(0.1)
        told = sorted({(one.labels["alertname"], one.status) for one in self.messages})
        pytest.fail(f"{alert} {status} did not come within {seconds} s; told: {told}")


class Lab(NamedTuple):
    """All parts, running."""

    inbox: Inbox
    daemon: Daemon
    prometheus: str
    alertmanager: str

    def inject(self, **faults: object) -> float:
        """Let the node have these faults and no others; return when."""
        assert self.daemon.process.stdin is not None
        self.daemon.process.stdin.write(json.dumps(faults) + "\n")
        self.daemon.process.stdin.flush()
        return time.monotonic()

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(path, timeout=10) as answer:
            return json.load(answer)

    def inhibited(self, alert: str) -> bool:
        """Tell whether Alertmanager has the alert and keeps it quiet."""
        found = self.ask(f"{self.alertmanager}/api/v2/alerts")
        states = [one["status"] for one in found if one["labels"]["alertname"] == alert]
        return bool(states) and all(one["inhibitedBy"] for one in states)


class Node(Daemon):
    """The demo's node, with an open standard input."""

    def __init__(self, config: Path) -> None:
        self.port = free_port()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.alerts.node", str(self.port), str(config)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip


def write_files(folder: Path, node: int, alertmanager: int, inbox: int) -> None:
    """Write configuration and rules for Prometheus and Alertmanager."""
    for topic in TOPICS:
        if topic != "sla-alerts":
            text = (ALERTS / f"{topic}.yaml").read_text("utf-8")
            (folder / f"{topic}.rules.yaml").write_text(faster_rules(text), "utf-8")
    own = flopwatch("alerts", "--config", str(folder / "flopwatch.yaml"))
    assert own.returncode == 0, own.stderr
    (folder / "own.rules.yaml").write_text(faster_rules(own.stdout), "utf-8")
    scrape = {
        "job_name": "flopwatch",
        "static_configs": [{"targets": [f"127.0.0.1:{node}"], "labels": {"instance": "node-1"}}],
    }
    targets = [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]
    prometheus = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "2s"},
        "rule_files": ["*.rules.yaml"],
        "scrape_configs": [scrape],
        "alerting": {"alertmanagers": targets},
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(prometheus), "utf-8")
    routes = yaml.safe_load((ALERTS / "alertmanager.yaml").read_text("utf-8"))
    routes["global"].pop("slack_api_url_file")
    faster_routes(routes["route"])
    routes["receivers"] = [
        {
            "name": one["name"],
            "webhook_configs": [{"url": f"http://127.0.0.1:{inbox}/{one['name']}"}],
        }
        for one in routes["receivers"]
    ]
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(routes), "utf-8")


@pytest.fixture
def lab(tool: Tool, tmp_path: Path) -> Iterator[Lab]:
    prometheus, alertmanager, inbox = free_port(), free_port(), Inbox()
    (tmp_path / "flopwatch.yaml").write_text(PROMISED, "utf-8")
    node = Node(tmp_path / "flopwatch.yaml")
    write_files(tmp_path, node.port, alertmanager, inbox.server.server_port)
    commands = [
        [
            tool("alertmanager"), f"--config.file={tmp_path / 'alertmanager.yml'}",
            f"--storage.path={tmp_path / 'am'}", f"--web.listen-address=127.0.0.1:{alertmanager}",
            "--cluster.listen-address=", "--log.level=error",
        ],
        [
            tool("prometheus"), f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}", "--log.level=error",
            f"--web.listen-address=127.0.0.1:{prometheus}", "--rules.alert.resend-delay=4s",
        ],
    ]  # fmt: skip
    running = []
    try:
        node.wait_for("/-/ready", ready, 60)
        running += [subprocess.Popen(command, stderr=subprocess.DEVNULL) for command in commands]
        yield Lab(inbox, node, f"http://127.0.0.1:{prometheus}", f"http://127.0.0.1:{alertmanager}")
    finally:
        for process in (*running, node.process):
            process.kill()
            process.wait(30)
        assert node.process.stdin is not None
        node.process.stdin.close()
        inbox.server.shutdown()
        inbox.server.server_close()


def test_faults_page_once_inhibit_and_resolve(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """Slow first tokens, a straggler, a GPU off the bus, a spot notice: each told once."""
    inbox = lab.inbox
    inbox.wait("Watchdog", seconds=60)

    slow = lab.inject(held=9.0, straggler=1, slower=1.6)
    burn = inbox.wait("SlaBudgetBurnsFast")
    straggler = inbox.wait("TrainingStraggler")
    gone = lab.inject(held=9.0, straggler=1, slower=1.6, lost=3)
    lost = inbox.wait("GpuLost")
    until = time.monotonic() + 40
    while not lab.inhibited("TrainingStraggler"):
        assert time.monotonic() < until, "the straggler on a node without a GPU is not inhibited"
        threading.Event().wait(0.2)
    mended = lab.inject()
    ends = {alert: inbox.wait(alert, "resolved") for alert in ("GpuLost", "SlaBudgetBurnsFast")}
    announced = lab.inject(notice=1.0)
    spot = inbox.wait("SpotInterruption")

    assert (burn.receiver, lost.receiver, straggler.receiver) == ("page", "page", "ticket")
    assert burn.labels == {
        "alertname": "SlaBudgetBurnsFast", "severity": "page", "component": "serving",
        "burnrate_tier": "fast", "sla": "inference_sla", "objective": "ttft_p95",
    }  # fmt: skip
    assert lost.labels == {
        "alertname": "GpuLost", "severity": "page", "component": "gpu", "instance": "node-1",
    }  # fmt: skip
    wanted = {"run": "llama2-13b", "rank": "1", "instance": "node-1", "severity": "ticket"}
    assert wanted.items() <= straggler.labels.items()
    assert spot.labels == {
        "alertname": "SpotInterruption", "severity": "ticket", "component": "spot",
        "instance": "node-1",
    }  # fmt: skip
    assert "GPU 3" in lost.annotations["description"]
    for alert in ("SlaBudgetBurnsFast", "GpuLost", "TrainingStraggler", "SpotInterruption"):
        assert len(inbox.of(alert)) == 1, alert
    assert inbox.of("GpuXidCritical") == [], "the lost GPU explains it"
    assert [one for one in inbox.messages if "SlaBudget" in one.labels["alertname"]
            and one.labels["burnrate_tier"] != "fast"] == []  # fmt: skip
    errors = [
        (rule["name"], rule["lastError"])
        for group in lab.ask(f"{lab.prometheus}/api/v1/rules")["data"]["groups"]
        for rule in group["rules"]
        if rule["health"] == "err"
    ]
    assert errors == []
    texts = [text for one in inbox.messages for text in one.annotations.values()]
    assert [text for text in texts if "error expanding" in text] == []
    with capsys.disabled():
        print(f"\n  fault to message, with time {FASTER} times as fast for rules and routes:")
        for name, begin, message in (
            ("slow first tokens", slow, burn), ("straggler", slow, straggler),
            ("GPU off the bus", gone, lost), ("spot notice", announced, spot),
            ("mended, GPU", mended, ends["GpuLost"]),
            ("mended, first tokens", mended, ends["SlaBudgetBurnsFast"]),
        ):  # fmt: skip
            print(f"  {name:22} {message.at - begin:6.1f} s  {message.receiver}")
