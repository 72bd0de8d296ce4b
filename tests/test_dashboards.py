"""Public dashboards of other exporters work unchanged: real Prometheus answers their queries.

The node has eight H100s under load in the real driver bindings' hands, one of them split into
instances; a real child process reads them, `compat` gives other exporters' names, Prometheus
scrapes the daemon, and each query of the dashboards has to return something.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.dashboard_queries import expressions, substituted
from tests.fake_nvml import Control, build, environment, profile
from tests.test_daemon import Daemon, free_port, ready

QUERIES = Path(__file__).parent / "data" / "dashboards"
PLAIN, SPLIT = 0, 7
UUIDS = {index: f"01000100-0000-4000-8000-00000000000{index}" for index in (PLAIN, SPLIT)}


def mig(gi: int, name: str, total: int, used: int) -> str:
    """Return the line of a MIG device of GPU 7."""
    uuid = f"MIG-0000000b-0000-4000-8000-00000000000{gi}"
    return (
        f'mig 7 {gi} 0 profile "{name}" uuid "{uuid}" memory {total} reserved 0 used {used}'
        f" free {total - used}"
    )


# GPU 7 has two instances, with a process in one of them.
LINES = (
    "7 nvmlDeviceGetMigMode = 1 1",
    mig(1, "3g.40gb", 42412802048, 11629756416),
    mig(9, "1g.10gb", 10468982784, 9437184),
    *(f"7 gpm {number} mig {gi} = {value}" for gi in (1, 9) for number, value in
      ((1, 98.5), (2, 94.25), (3, 40.5), (5, 61.25), (10, 35.5))),
    "event 1 0 8 79",
)  # fmt: skip

# What an SXM board cannot answer. The panels that ask for it show the other half of an `or`.
UNANSWERED = {
    'nvidia_smi_fan_speed_ratio{uuid="$gpu", instance="$node", job="$job"}':
        "an SXM board has no fans: the driver answers Not Supported",
    '(nvidia_smi_fan_speed_ratio{uuid=~"$gpu", instance="$node", job="$job"})'
    " * on(uuid) group_left(index, name)"
    ' nvidia_smi_gpu_info{uuid=~"$gpu", instance="$node", job="$job"}':
        "an SXM board has no fans: the driver answers Not Supported",
}  # fmt: skip

FILES = {
    "dcgm-exporter-12239": {"gpu": "0"},
    "nvidia-gpu-exporter-14574": {},
    "nvidia-gpu-exporter-overview": {"gpu": f"{UUIDS[PLAIN]}|{UUIDS[SPLIT]}"},
}


class Scraper:
    """A real Prometheus that scrapes one address each second."""

    def __init__(self, program: str, target: str, folder: Path) -> None:
        port = free_port()
        file = folder / "prometheus.yml"
        file.write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
            "scrape_configs: [{job_name: gpu, honor_labels: false,"
            f" static_configs: [{{targets: ['{target}']}}]}}]\n"
        )
        self._url = f"http://127.0.0.1:{port}/api/v1/query?query="
        self.process = subprocess.Popen(
            [
                program, f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
            ],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, expression: str) -> list[object]:
        """Return the series that an expression gives."""
        with urllib.request.urlopen(self._url + urllib.parse.quote(expression), timeout=20) as got:
            return list(json.load(got)["data"]["result"])

    def wait(self, expression: str, seconds: float = 60.0) -> None:
        """Wait until an expression gives something."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                if self.ask(expression):
                    return
            except OSError:
                pass
            time.sleep(0.2)
        pytest.fail(f"Prometheus has nothing for {expression}")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, tool: Callable[[str], str]) -> Iterator[Daemon]:
    """Return a daemon over the fake driver, with all foreign names on."""
    tool("gcc")
    folder = tmp_path_factory.mktemp("node")
    control = Control(folder / "control")
    control.add(*LINES)
    root = folder / "root"
    root.mkdir()
    config = folder / "flopwatch.yaml"
    config.write_text(
        f"root: {root}\ncompat: [dcgm, dcgm-4.9, nvidia_smi]\nsources:\n"
        "  nvml: {enabled: true}\n  kmsg: {enabled: true}\n  derived: {enabled: true}\n"
        "  host: {enabled: false}\n  network: {enabled: false}\n  ethtool: {enabled: false}\n"
    )
    port = free_port()
    daemon = Daemon(
        [
            sys.executable, "-m", "exporter", "run", "--config", str(config),
            "--listen", f"127.0.0.1:{port}",
        ],
        port,
        environment(build(folder / "lib"), profile("h100-sxm8"), control=control.path),
    )  # fmt: skip
    try:
        daemon.wait_for("/-/ready", ready)
        yield daemon
    finally:
        daemon.process.kill()
        daemon.process.communicate()


@pytest.fixture(scope="module")
def prometheus(
    node: Daemon, tool: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scraper]:
    scraper = Scraper(
        tool("prometheus"), f"127.0.0.1:{node.port}", tmp_path_factory.mktemp("prometheus")
    )
    try:
        scraper.wait("nvidia_smi_mig_sm_activity_ratio")
        scraper.wait("nvidia_smi_xid_last_timestamp_seconds")
        scraper.wait("count_over_time(nvidia_smi_energy_joules_total[1m]) > 5")
        yield scraper
    finally:
        scraper.process.terminate()
        scraper.process.communicate(timeout=30)


@pytest.mark.parametrize("name", FILES)
def test_every_query_of_a_public_dashboard_is_answered(
    name: str, node: Daemon, prometheus: Scraper
) -> None:
    """No panel is empty, but those whose question the board itself does not answer."""
    address = f"127.0.0.1:{node.port}"
    common = {"node": address, "instance": address, "job": "gpu", "__rate_interval": "10s"}
    found = expressions((QUERIES / f"{name}.queries.txt").read_text("utf-8").splitlines())
    empty = []
    for expression in found:
        # A dashboard of one GPU is looked at for the plain one and for the one with instances.
        choices = [FILES[name]] if FILES[name] else [{"gpu": uuid} for uuid in UUIDS.values()]
        asked = [substituted(expression, {**common, **choice}) for choice in choices]
        if not any(prometheus.ask(one) for one in asked):
            empty.append(expression)
    assert len(found) >= 9
    assert [one for one in empty if one not in UNANSWERED] == []


def test_the_exceptions_are_real(prometheus: Scraper, node: Daemon) -> None:
    """What is listed as unanswered is asked by a dashboard, and is indeed not answered."""
    asked = {
        one
        for name in FILES
        for one in expressions((QUERIES / f"{name}.queries.txt").read_text("utf-8").splitlines())
    }
    assert set(UNANSWERED) <= asked
    assert prometheus.ask("nvidia_smi_fan_speed_ratio") == []


def test_promtool_minds_only_that_the_names_are_foreign(
    node: Daemon, tool: Callable[[str], str]
) -> None:
    """With foreign names on there is no finding about ours, and none that is not about a name."""
    page = node.get("/metrics", Accept="text/plain")[1]
    result = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=page, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    findings = [line for line in result.stderr.splitlines() if line]
    assert findings
    foreign = ("DCGM_", "nvidia_smi_")
    other = [line for line in findings if not line.split()[0].startswith(foreign)]
    assert other == []
