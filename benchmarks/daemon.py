"""What the running daemon costs: CPU, memory, and the time of a scrape, beside node_exporter.

    .venv/bin/python benchmarks/daemon.py [--seconds 30] [--check]

Real processes on loopback: the daemon as a user runs it (host, network and one inference server,
each once a second; the server is a process that replays a recorded vLLM page with moving values),
the daemon with one source of 5,000 series that all change each second, node_exporter where it is
installed, and a bare asyncio server with as many bytes, which is the limit for Python here. CPU is
read from the processes' own clocks, memory is PSS with children. Scrapes come in pairs: of a pair
the second mostly gets bytes that are ready ("cached").
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import http.server
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "tests/data/engines/vllm-0.32.0-cpu-underload.prom"
PAIRS = 500
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--check", action="store_true", help="fail when a budget is missed")
    parser.add_argument("--part", choices=("server", "wide", "bare"), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part == "server":
        replay(options.port)
    elif options.part == "wide":
        wide(options.port)
    elif options.part == "bare":
        asyncio.run(bare(options.port))
    else:
        return measure(options.seconds, check=options.check)
    return 0


def replay(port: int) -> None:
    """Serve the recorded page; a third of its values move from one answer to the next."""
    template = PAGE.read_text().splitlines()
    answers = 0

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            nonlocal answers
            answers += 1
            lines = [
                re.sub(r" ([0-9.e+]+)$", lambda m: f" {float(m[1]) + answers}", line)
                if i % 3 == 0 and not line.startswith("#") and "_bucket" not in line
                else line
                for i, line in enumerate(template)
            ]
            body = ("\n".join(lines) + "\n").encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()


def wide(port: int) -> None:
    """Run the daemon with one source of 5,000 series, all of which change at each read."""
    from exporter import catalogue as c
    from exporter.app import App
    from exporter.plans import Plan
    from exporter.runner import Schedule
    from exporter.samples import Sample
    from exporter.serve import listen, serve

    labels = [(f"mlx5_{i // 10}", str(i % 10), f"cause_{i}") for i in range(2500)]

    class Wide:
        name, group = "wide", c.NIC
        n = 0

        def read(self) -> Iterable[Sample]:
            self.n += 1
            for at, (device, number, cause) in enumerate(labels):
                yield c.NIC_ERRORS_TOTAL(self.n * 7919 + at, device, number, cause)
                yield c.NIC_RETRANSMITS_TOTAL(self.n * 1.37 + at, device, number, cause)

        def close(self) -> None:
            pass

    app = App(None, plans=lambda *_: [Plan("wide", c.NIC, Schedule(1.0, 2.0), "", Wide)])
    with listen(f"127.0.0.1:{port}") as bound:
        app.start()
        asyncio.run(serve(app, bound, lambda: None))


async def bare(port: int) -> None:
    """Answer every request with the same bytes, with nothing else to do."""
    body = b"x 1\n" * (370_000 // 4)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)

    class Answer(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport: asyncio.Transport = transport  # type: ignore[assignment]

        def data_received(self, _: bytes) -> None:
            self.transport.writelines((head, body))

    loop = asyncio.get_running_loop()
    await (await loop.create_server(Answer, "127.0.0.1", port)).serve_forever()


def measure(seconds: float, *, check: bool) -> int:
    server_port, daemon_port, wide_port, node_port, bare_port = (free_port() for _ in range(5))
    here = [sys.executable, __file__]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "flopwatch.yaml"
        config.write_text(
            "sources: {host: {interval: 1s}, network: {interval: 1s}, process: {interval: 15s},"
            f" inference: {{interval: 1s, servers: [{{name: chat,"
            f" url: 'http://127.0.0.1:{server_port}/metrics'}}]}}}}\n"
        )
        commands = {
            "server": [*here, "--part", "server", "--port", str(server_port)],
            "flopwatch": [
                sys.executable, "-m", "exporter", "run", "-c", str(config),
                "--listen", f"127.0.0.1:{daemon_port}",
            ],
            "flopwatch, 5,000 series": [*here, "--part", "wide", "--port", str(wide_port)],
            "bare server": [*here, "--part", "bare", "--port", str(bare_port)],
        }  # fmt: skip
        node = shutil.which("prometheus-node-exporter") or shutil.which("node_exporter")
        if node is not None:
            commands["node_exporter"] = [node, f"--web.listen-address=127.0.0.1:{node_port}"]
        ports = {
            "flopwatch": daemon_port,
            "flopwatch, 5,000 series": wide_port,
            "bare server": bare_port,
            "node_exporter": node_port,
        }
        processes = {
            name: subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL)
            for name, command in commands.items()
        }  # fmt: skip
        try:
            rows = {
                name: row(processes[name].pid, port, seconds)
                for name, port in ports.items()
                if name in processes and wait(port)
            }
        finally:
            for process in processes.values():
                process.terminate()
            for process in processes.values():
                process.wait()
    return report(rows, check=check)


class Row:
    """One process, measured."""

    def __init__(self, idle: float, pss: float, series: int, size: int) -> None:
        self.idle, self.pss, self.series, self.size = idle, pss, series, size
        self.times: dict[str, list[float]] = {}
        self.per_scrape = 0.0

    def p(self, quantile: float, kind: str) -> float:
        times = sorted(self.times[kind])
        return times[min(len(times) - 1, int(quantile * len(times)))] * 1e3

    def both(self, kind: str) -> str:
        return f"{self.p(0.5, kind):.2f} / {self.p(0.99, kind):.2f}"


def row(pid: int, port: int, seconds: float) -> Row:
    scrape(port, gzipped=False)
    time.sleep(8)  # start-up is not part of it
    before, began = cpu(pid), time.monotonic()
    time.sleep(seconds)
    idle = (cpu(pid) - before) / (time.monotonic() - began)
    body = scrape(port, gzipped=False)
    series = sum(1 for line in body.splitlines() if line and line[0] != ord("#"))
    measured = Row(idle, pss(pid), series, len(body))
    for gzipped in (False, True):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        pairs: tuple[list[float], list[float]] = ([], [])
        before, began = cpu(pid), time.monotonic()
        for _ in range(PAIRS):
            for times in pairs:
                start = time.perf_counter()
                scrape(port, gzipped=gzipped, connection=connection)
                times.append(time.perf_counter() - start)
            time.sleep(0.03)
        spent = cpu(pid) - before - idle * (time.monotonic() - began)
        if gzipped:
            measured.times["gzip"] = pairs[0] + pairs[1]
        else:
            measured.per_scrape = spent / (2 * PAIRS)
            measured.times["plain"], measured.times["cached"] = pairs[0] + pairs[1], pairs[1]
        connection.close()
    return measured


def scrape(
    port: int, *, gzipped: bool, connection: http.client.HTTPConnection | None = None
) -> bytes:
    connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {"Accept": PROMETHEUS, "Accept-Encoding": "gzip" if gzipped else "identity"}
    connection.request("GET", "/metrics", headers=headers)
    return connection.getresponse().read()


def report(rows: dict[str, Row], *, check: bool) -> int:
    print("| process | series | bytes | CPU of a core, not scraped | PSS, MiB | p50 / p99, ms"
          " | cached | gzip | CPU per scrape, us | per series, us |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, r in rows.items():
        print(
            f"| {name} | {r.series} | {r.size} | {r.idle:.2%} | {r.pss:.1f}"
            f" | {r.both('plain')} | {r.both('cached')} | {r.both('gzip')}"
            f" | {r.per_scrape * 1e6:.0f} | {r.per_scrape / r.series * 1e6:.3f} |"
        )
    daemon, five, bare = (
        rows[name] for name in ("flopwatch", "flopwatch, 5,000 series", "bare server")
    )
    budgets = {
        "CPU below 0.7 % of a core": daemon.idle < 0.007,
        "PSS below 60 MiB": daemon.pss < 60,
        # On a machine whose own jitter is beyond that, twice the bare server's p99 is the measure.
        "5,000 series, cached: p99 below 2 ms, or twice the bare server's": five.p(0.99, "cached")
        < max(2, 2 * bare.p(0.99, "cached")),
    }
    if "node_exporter" in rows:
        node = rows["node_exporter"]
        ratio = (five.per_scrape / five.series) / (node.per_scrape / node.series)
        print(f"\nCPU per series and scrape against node_exporter: 1/{1 / max(ratio, 1e-9):.0f}")
        budgets["per series at most 1/30 of node_exporter"] = ratio <= 1 / 30
    print()
    for budget, kept in budgets.items():
        print(f"{'kept  ' if kept else 'MISSED'} {budget}")
    return int(check and not all(budgets.values()))


def cpu(pid: int) -> float:
    """Return the CPU seconds of a process and its live children."""
    total = time.clock_gettime_ns((~pid << 3) | 2) / 1e9  # its own CPU clock, all threads
    return total + sum(cpu(child) for child in children(pid))


def pss(pid: int) -> float:
    """Return the proportional set size of a process and its children, MiB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    own = int(re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)[1]) / 1024  # type: ignore[index]
    return own + sum(pss(child) for child in children(pid))


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait(port: int) -> bool:
    for _ in range(300):
        try:
            scrape(port, gzipped=False)
        except OSError:
            threading.Event().wait(0.1)
        else:
            return True
    raise SystemExit(f"nothing answers on port {port}")


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
