"""How many nodes one Prometheus carries with all our rules: a simulator, and what it costs.

    .venv/bin/python benchmarks/scale.py --nodes 64 --seconds 150

Serves one page of about 3,000 series as so many targets (counters grow with the time, each node is
another `instance`), lets a real Prometheus scrape them each 15 s with all shipped rules, and prints
the slowest scrape, evaluation time by group, samples a second and memory. On a busy machine times
are upper bounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "tests" / "data" / "alerts" / "demo.txt"
SERIES = 3000
# What does not grow on a healthy node, and what the demo's node has on purpose.
_FAULTS = re.compile(
    rb"error|xid|throttled|fail|drop|timeout|retrans|loss|fallen|replay|carrier|preempt|resets|wait"
)
_SICK = re.compile(rb"^(gpu_recovery_action|gpu_row_remap_pending|diagnosis_cause|nic_saturated)\b")
_COUNTS = re.compile(rb"^([a-z_0-9]+_(?:total|bucket|count|sum)(?:\{.*\})?) ([0-9.e+]+)$")


class Page:
    """The page at a moment: made anew each five seconds, whoever asks."""

    def __init__(self) -> None:
        lines = PAGE.read_bytes().splitlines()
        self.series = sum(not line.startswith(b"#") for line in lines)
        # fill up to the size of a reference node
        for number in range(max(0, SERIES - self.series)):
            lines.append(b'nic_raw_filler_total{number="%d"} 7' % number)
        self.series = max(self.series, SERIES)
        self._parts: list[tuple[bytes, float | None]] = []
        for line in lines:
            match = _COUNTS.match(line)
            if match and not _FAULTS.search(line):
                self._parts.append((match[1], float(match[2])))
            elif _SICK.match(line):
                self._parts.append((line.rpartition(b" ")[0] + b" 0", None))
            else:
                self._parts.append((line, None))
        self._began = time.monotonic()
        self._made = -1
        self._bytes = b""

    def now(self) -> bytes:
        beat = int((time.monotonic() - self._began) / 5)
        if beat != self._made:
            self._made = beat
            self._bytes = (
                b"\n".join(
                    text
                    if value is None
                    else b"%s %.6f" % (text, value + beat * (1 + value / 1000))
                    for text, value in self._parts
                )
                + b"\n"
            )
        return self._bytes


async def _answer(page: Page, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            while (line := await reader.readline()) not in {b"\r\n", b""}:
                pass
            if not line:
                break
            body = page.now()
            head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: "
            writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()


def serve(page: Page, port: int) -> None:
    async def run() -> None:
        server = await asyncio.start_server(lambda r, w: _answer(page, r, w), "127.0.0.1", port)
        await server.serve_forever()

    asyncio.run(run())


def configuration(nodes: int, port: int, rules: list[Path]) -> str:
    relabel = [
        {"source_labels": ["__address__"], "target_label": "instance"},
        {"target_label": "__address__", "replacement": f"127.0.0.1:{port}"},
    ]
    targets = [{"targets": [f"node-{n:04}" for n in range(nodes)]}]
    return yaml.safe_dump({
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [
            {"job_name": "flopwatch", "static_configs": targets, "relabel_configs": relabel}
        ],
    })  # fmt: skip


def ask(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=30) as answer:
        return json.load(answer)["data"]


def value(port: int, expression: str) -> float:
    found = ask(port, f"query?query={urllib.parse.quote(expression)}")["result"]
    return float(found[0]["value"][1]) if found else float("nan")


def report(
    port: int, process: subprocess.Popen[bytes], nodes: int, seconds: float, cpu: float
) -> None:
    status = Path(f"/proc/{process.pid}/status").read_text()
    resident = int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024
    up = value(port, "sum(up)")
    slowest = value(port, "max(max_over_time(scrape_duration_seconds[2m]))")
    head = len(ask(port, "targets?state=active")["activeTargets"])
    samples = value(port, "sum(scrape_samples_scraped)") / 15
    print(f"nodes {nodes}, up {up:.0f} of {head}; slowest scrape {slowest:.2f} s of 15")
    print(f"samples/s {samples:,.0f}; {resident:.0f} MiB at most, {cpu / seconds:.2f} CPUs")
    groups = ask(port, "rules")["groups"]
    for group in sorted(groups, key=lambda one: -one["evaluationTime"]):
        took = 1000 * group["evaluationTime"]
        print(f"  {group['name']:22} {took:9.1f} ms of {group['interval']:.0f} s")
    total = sum(one["evaluationTime"] / one["interval"] for one in groups)
    errors = {rule["lastError"] for one in groups for rule in one["rules"] if rule.get("lastError")}
    print(f"  all rules: {100 * total:.1f} % of one CPU's time; errors: {errors or 'none'}")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=120)
    options = parser.parse_args()
    program = shutil.which("prometheus")
    if program is None:
        print("needs prometheus")
        return
    page = Page()
    threading.Thread(target=serve, args=(page, 9893), daemon=True).start()
    rules = [
        path for path in sorted((ROOT / "alerts").glob("*.yaml")) if path.stem != "alertmanager"
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "prometheus.yml"
        file.write_text(configuration(options.nodes, 9893, rules))
        command = [
            program, f"--config.file={file}", f"--storage.tsdb.path={folder}/data",
            "--web.listen-address=127.0.0.1:9894", "--log.level=error",
        ]  # fmt: skip
        with subprocess.Popen(command) as process:
            try:
                time.sleep(options.seconds)
                report(9894, process, options.nodes, options.seconds, cpu_seconds(process.pid))
            finally:
                process.terminate()


if __name__ == "__main__":
    main()
