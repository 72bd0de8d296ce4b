"""From a fault to a message: daemon on the demo's node, real Prometheus, real Alertmanager.

The shipped rules and routes are used, and time runs fifteen times as fast for the rules: windows,
`for`, `keep_firing_for` and intervals of groups are divided by `FASTER`, Alertmanager's waits by
`SOONER`, and are a second at least; repeats stay. Figures in expressions stay too: thresholds on
increases are fifteen times as hard to reach, so no injected fault rests on one. The rules on
promises are what `flopwatch alerts` writes for the daemon's own configuration. Receivers become one
webhook here.

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
FASTER, SOONER = 15, 60
PROMISED = 'inference_sla: {latency: {ttft_p95: "< 5s"}}\n'
STRAGGLER = {"straggler": 1, "slower": 1.3}
"""It shows after half a dozen slow steps, and is gone after as many others."""
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def shortened(duration: str, times: int = FASTER) -> str:
    """Return a duration for time that runs so much faster."""
    seconds = sum(int(n) * _SECONDS[unit] for n, unit in re.findall(r"(\d+)([smhd])", duration))
    return f"{max(1, round(seconds / times))}s"


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
            route[key] = shortened(route[key], SOONER)
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


class Node(Daemon):
    """The demo's node, with an open standard input."""

    def __init__(self, config: Path, scenario: str = "sound") -> None:
        self.port = free_port()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.alerts.node", str(self.port), str(config), scenario],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def inject(self, **faults: object) -> float:
        """Let it have these faults and no others; return when."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(faults) + "\n")
        self.process.stdin.flush()
        return time.monotonic()


class Lab(NamedTuple):
    """All parts, running."""

    inbox: Inbox
    daemon: Node
    prometheus: str
    alertmanager: str
    targets: Path
    began: float

    def inject(self, **faults: object) -> float:
        """Let the node have these faults and no others; return when."""
        return self.daemon.inject(**faults)

    def go(self) -> float:
        """Let the node be gone, as when its cloud has taken it; return when."""
        self.daemon.process.kill()
        return time.monotonic()

    def forget(self) -> None:
        """Let service discovery notice that the node is gone."""
        write_targets(self.targets)

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(path, timeout=10) as answer:
            return json.load(answer)

    def inhibited(self, alert: str) -> bool:
        """Tell whether Alertmanager has the alert and keeps it quiet."""
        found = self.ask(f"{self.alertmanager}/api/v2/alerts")
        states = [one["status"] for one in found if one["labels"]["alertname"] == alert]
        return bool(states) and all(one["inhibitedBy"] for one in states)

    def fires(self, alert: str) -> bool:
        """Tell whether the alert fires in Prometheus."""
        found = self.ask(f"{self.prometheus}/api/v1/alerts")["data"]["alerts"]
        return any(
            one["labels"]["alertname"] == alert and one["state"] == "firing" for one in found
        )


def until(condition: Callable[[], bool], seconds: float, otherwise: str) -> None:
    """Wait for something; fail if it does not come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, otherwise
        threading.Event().wait(0.2)


def write_targets(path: Path, *ports: int) -> None:
    """Write what service discovery finds, at once."""
    targets = [f"127.0.0.1:{port}" for port in ports]
    found = [{"targets": targets, "labels": {"instance": "node-1"}}] if targets else []
    path.with_suffix(".new").write_text(json.dumps(found), "utf-8")
    path.with_suffix(".new").replace(path)


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
        "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}],
    }
    write_targets(folder / "targets.json", node)
    targets = [{"static_configs": [{"targets": [f"127.0.0.1:{alertmanager}"]}]}]
    prometheus = {
        # one scrape that comes too late ends each alert on a gauge
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s"},
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
        began = node.inject(**STRAGGLER)
        node.wait_for("/-/ready", ready, 60)
        running += [subprocess.Popen(command, stderr=subprocess.DEVNULL) for command in commands]
        urls = [f"http://127.0.0.1:{port}" for port in (prometheus, alertmanager)]
        yield Lab(inbox, node, *urls, tmp_path / "targets.json", began)
    finally:
        for process in (*running, node.process):
            process.kill()
            process.wait(30)
        assert node.process.stdin is not None
        node.process.stdin.close()
        inbox.server.shutdown()
        inbox.server.server_close()


LABELS = {
    "SlaBudgetBurnsFast": {
        "severity": "page", "component": "serving", "burnrate_tier": "fast",
        "sla": "inference_sla", "objective": "ttft_p95",
    },
    "GpuLost": {"severity": "page", "component": "gpu", "instance": "node-1"},
    "RdmaPortDown": {"severity": "page", "component": "fabric", "instance": "node-1"},
    "TrainingStraggler": {
        "severity": "ticket", "component": "training", "instance": "node-1",
        "run": "llama2-13b", "rank": "1",
    },
    "SpotInterruption": {"severity": "ticket", "component": "spot", "instance": "node-1"},
}  # fmt: skip
"""Each injected fault's alert with all its labels, in the order of the table."""


def test_faults_page_once_inhibit_and_resolve(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    """Slow first tokens, a GPU off the bus, a cut cable, a straggler, a spot node that goes.

    Each is told once and resolved once. The cut cable keeps the straggler of its node quiet, and
    the notice that the node is down, once its cloud has taken it.
    """
    inbox = lab.inbox
    begun, cured = {"TrainingStraggler": lab.began}, {}
    inbox.wait("Watchdog", seconds=60)

    begun["GpuLost"] = begun["SlaBudgetBurnsFast"] = lab.inject(**STRAGGLER, held=9.0, lost=3)
    lost = inbox.wait("GpuLost")
    cured["GpuLost"] = lab.inject(**STRAGGLER, held=9.0)
    inbox.wait("SlaBudgetBurnsFast")
    begun["RdmaPortDown"] = cured["SlaBudgetBurnsFast"] = lab.inject(**STRAGGLER, cut=2)
    down = inbox.wait("RdmaPortDown")
    until(
        lambda: lab.inhibited("TrainingStraggler"), 90,
        "the straggler on a node without a port is not inhibited",
    )  # fmt: skip
    assert inbox.of("TrainingStraggler") == []
    cured["RdmaPortDown"] = lab.inject(**STRAGGLER)
    for alert in ("SlaBudgetBurnsFast", "GpuLost", "RdmaPortDown"):
        inbox.wait(alert, "resolved")
    begun["SpotInterruption"] = lab.inject(**STRAGGLER, notice=1.0)
    inbox.wait("TrainingStraggler")
    cured["TrainingStraggler"] = lab.inject(notice=1.0)
    inbox.wait("SpotInterruption")
    until(
        lambda: not lab.fires("TrainingStraggler"), 90, "the cured straggler still holds others up"
    )
    errors = [
        (rule["name"], rule["lastError"])
        for group in lab.ask(f"{lab.prometheus}/api/v1/rules")["data"]["groups"]
        for rule in group["rules"]
        if rule["health"] == "err"
    ]
    cured["SpotInterruption"] = lab.go()
    until(
        lambda: lab.inhibited("ExporterDown"), 60,
        "that a node is down which the cloud has taken is not inhibited",
    )  # fmt: skip
    lab.forget()
    inbox.wait("SpotInterruption", "resolved")
    inbox.wait("TrainingStraggler", "resolved")

    begin = begun["TrainingStraggler"]
    course = [
        f"{one.at - begin:6.1f} {one.status:8} {one.labels['alertname']} {one.labels['severity']}"
        for one in inbox.messages
        if one.labels["alertname"] != "Watchdog"
    ]
    print("\n".join(course))  # shown when something below fails
    for alert, labels in LABELS.items():
        (told,), (resolved,) = inbox.of(alert), inbox.of(alert, "resolved")
        assert told.labels == resolved.labels == {"alertname": alert, **labels}
        assert told.receiver == resolved.receiver == labels["severity"]
    assert "GPU 3" in lost.annotations["description"]
    assert "mlx5_2 port 1" in down.annotations["description"]
    others = {"ExporterDown", "ExporterGone", "TrainingStalled", "RdmaRateDegraded"}
    assert [one for alert in others for one in inbox.of(alert)] == []
    assert inbox.of("GpuXidCritical") == [], "the lost GPU explains it"
    assert [one for one in inbox.messages if "SlaBudget" in one.labels["alertname"]
            and one.labels["burnrate_tier"] != "fast"] == []  # fmt: skip
    assert errors == []
    texts = [text for one in inbox.messages for text in one.annotations.values()]
    assert [text for text in texts if "error expanding" in text] == []
    with capsys.disabled():
        print(
            f"\n  with time {FASTER} times as fast for rules, {SOONER} times for Alertmanager's"
            " waits; the straggler waits for the cable:"
            "\n                          to   fault to message   cure to resolved"
        )
        for alert, labels in LABELS.items():
            told, resolved = inbox.wait(alert), inbox.wait(alert, "resolved")
            print(
                f"  {alert:20} {labels['severity']:>7} {told.at - begun[alert]:14.1f} s"
                f" {resolved.at - cured[alert]:16.1f} s"
            )
