"""What network ports cost: reading and telling them, beside node_exporter on the same tree.

    .venv/bin/python benchmarks/fabric.py [--cycles 60] [--check]

The tree is that of an H100 node, 8 InfiniBand ports and a RoCE bond, of which 72 counters move in
each cycle. The daemon with nothing but its network source reads it once in a cycle and is scraped
once; node_exporter, with nothing but its InfiniBand collector, reads it when it is scraped. All CPU
time of both processes counts, also what the daemon does besides. `raw` is the daemon with all
counters of the ports. By default the daemon reads each 5 s and Prometheus scrapes each 15 s: the
last column is three reads and a scrape against one scrape.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import table  # noqa: E402
from benchmarks.daemon import cpu, free_port, scrape, wait  # noqa: E402

TREE = ROOT / "tests/data/sysfs/h100-8xndr-bond"
CYCLE = 0.5
MOVING = (
    "port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets",
    "unicast_rcv_packets", "unicast_xmit_packets", "port_xmit_wait", "symbol_error",
)  # fmt: skip
QUIET = """
listen: 127.0.0.1:{port}
root: {root}
push: {{enabled: false}}
training: {{enabled: false}}
diagnosis: {{enabled: false}}
sources:
  nvml: {{enabled: false}}
  kmsg: {{enabled: false}}
  derived: {{enabled: false}}
  host: {{enabled: false}}
  process: {{enabled: false}}
  inference: {{enabled: false}}
  serving: {{enabled: false}}
  ranks: {{enabled: false}}
  network: {{interval: 500ms, raw: {raw}}}
"""


class Row(NamedTuple):
    """CPU seconds of one cycle with a scrape, and of one without; series of ports on the page."""

    scraped: float
    unscraped: float
    series: int


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cycles", type=int, default=60)
    parser.add_argument("--check", action="store_true", help="fail when a budget is missed")
    options = parser.parse_args()
    node = shutil.which("prometheus-node-exporter") or shutil.which("node_exporter")
    if node is None:
        print("needs node_exporter (Debian package prometheus-node-exporter)")
        return int(options.check)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        shutil.copytree(TREE, root)
        ports = {name: free_port() for name in ("flopwatch", "flopwatch, raw", "node_exporter")}
        commands = {
            name: daemon(Path(folder) / f"{port}.yaml", root, port, raw=name.endswith("raw"))
            for name, port in ports.items()
            if name != "node_exporter"
        }
        commands["node_exporter"] = [
            node, f"--web.listen-address=127.0.0.1:{ports['node_exporter']}",
            "--web.disable-exporter-metrics", "--collector.disable-defaults",
            "--collector.infiniband", f"--path.sysfs={root}/sys",
        ]  # fmt: skip
        rows = run(commands, ports, root, options.cycles)
    return report(rows, check=options.check)


def daemon(config: Path, root: Path, port: int, *, raw: bool) -> list[str]:
    """Write the configuration of a daemon with one source; return how it is started."""
    config.write_text(QUIET.format(port=port, root=root, raw=str(raw).lower()))
    return [sys.executable, "-m", "exporter", "run", "-c", str(config)]


def run(
    commands: dict[str, list[str]], ports: dict[str, int], root: Path, cycles: int
) -> dict[str, Row]:
    """Start all, let them pass through cycles with and without scrapes, and measure."""
    quiet = subprocess.DEVNULL
    processes = {
        name: subprocess.Popen(command, cwd=ROOT, stdout=quiet, stderr=quiet)
        for name, command in commands.items()
    }
    try:
        for name, port in ports.items():
            if not wait(port):
                raise SystemExit(f"{name} does not answer")
        time.sleep(5)  # start-up is not part of it
        pids = {name: process.pid for name, process in processes.items()}
        scraped = pass_through(pids, ports, root, cycles)
        unscraped = pass_through(pids, {}, root, cycles)
        return {
            name: Row(scraped[name], unscraped[name], series(scrape(port, gzipped=False)))
            for name, port in ports.items()
        }
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            process.wait()


def pass_through(
    pids: dict[str, int], ports: dict[str, int], root: Path, cycles: int
) -> dict[str, float]:
    """Return the CPU seconds of a cycle, by process."""
    files = [
        root / "sys/class/infiniband" / device.name / "ports/1/counters" / counter
        for device in sorted((root / "sys/class/infiniband").iterdir())
        for counter in MOVING
    ]
    values = [int(file.read_text()) for file in files]
    before = {name: cpu(pid) for name, pid in pids.items()}
    for cycle in range(1, cycles + 1):
        end = time.monotonic() + CYCLE
        for file, value in zip(files, values, strict=True):
            overwrite(file, value + cycle * 997)
        time.sleep(CYCLE / 2)
        for port in ports.values():
            scrape(port, gzipped=False)
        time.sleep(max(0.0, end - time.monotonic()))
    for file, value in zip(files, values, strict=True):
        overwrite(file, value)
    return {name: (cpu(pid) - before[name]) / cycles for name, pid in pids.items()}


def overwrite(file: Path, value: int) -> None:
    """Change a counter in one call, so that nobody reads an empty file."""
    descriptor = os.open(file, os.O_WRONLY)
    try:
        size = os.fstat(descriptor).st_size
        os.pwrite(descriptor, f"{value}\n".encode().ljust(size, b"\n"), 0)
    finally:
        os.close(descriptor)


def series(page: bytes) -> int:
    """Return how many series of ports a page has."""
    return sum(line.startswith((b"nic_", b"node_infiniband_")) for line in page.splitlines())


def report(rows: dict[str, Row], *, check: bool) -> int:
    node = rows["node_exporter"]
    budgets: dict[str, bool] = {}
    lines = []
    for name, row in rows.items():
        per_scrape = row.scraped / node.scraped
        per_series = per_scrape * node.series / row.series
        default = (3 * row.unscraped + row.scraped - row.unscraped) / node.scraped
        mine = name != "node_exporter"
        lines.append(
            (
                name,
                row.series,
                f"{row.unscraped * 1e3:.2f}",
                f"{row.scraped * 1e3:.2f}",
                f"{row.scraped / row.series * 1e6:.2f}",
                f"{per_scrape:.2f}",
                f"{per_series:.2f}",
                f"{default:.2f}" if mine else "1",
            )
        )
        if mine:
            if not name.endswith("raw"):  # which tells three times as much
                budgets[f"{name}: CPU per read and scrape not above node_exporter's"] = (
                    per_scrape <= 1
                )
            budgets[f"{name}: CPU per series not above node_exporter's"] = per_series <= 1
    print(
        table(
            (
                "", "series", "a cycle without a scrape, ms", "with one, ms", "by series, us",
                "against node_exporter", "by series", "3 reads and a scrape",
            ),
            lines,
        )
    )  # fmt: skip
    print()
    for budget, kept in budgets.items():
        print(f"{'kept  ' if kept else 'MISSED'} {budget}")
    return int(check and not all(budgets.values()))


if __name__ == "__main__":
    sys.exit(main())
