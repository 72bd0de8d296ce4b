"""A real daemon and mock metadata services: what reaches its page, and whom it speaks to."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.metadata import GUARD, PATHS, TOKEN, hang, metadata
from tests.sources.test_spot import NOTICES
from tests.test_daemon import Daemon, free_port, ready

CONFIG = """
root: {root}
state_directory: {folder}/state
state_interval: 1s
push: {{socket: null}}
sources:
  host: {{enabled: false}}
  network: {{enabled: false}}
  process: {{enabled: false}}
  inference: {{enabled: false}}
  kmsg: {{enabled: false}}
  spot: {{{spot}}}
"""
DMI = {
    "aws": {"sys_vendor": "Amazon EC2", "product_name": "p5.48xlarge"},
    "gcp": {"sys_vendor": "Google", "product_name": "Google Compute Engine"},
    "azure": {
        "sys_vendor": "Microsoft Corporation",
        "product_name": "Virtual Machine",
        "chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77",
    },
    "alibaba": {"sys_vendor": "Alibaba Cloud", "product_name": "Alibaba Cloud ECS"},
    "tencent": {"sys_vendor": "Tencent Cloud", "product_name": "CVM"},
    "oci": {"sys_vendor": "QEMU", "chassis_asset_tag": "OracleCloud.com"},
}

Launch = Callable[..., Daemon]


def firmware(root: Path, fields: dict[str, str]) -> Path:
    """Make a root whose firmware says so."""
    folder = root / "sys/class/dmi/id"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in fields.items():
        (folder / name).write_text(f"{text}\n")
    return root


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Start daemons that can connect to this machine alone, with proxies in their environment."""
    guard = tmp_path / "guard"
    guard.mkdir()
    (guard / "sitecustomize.py").write_text(GUARD)
    tried = tmp_path / "connections"
    environment = {
        **os.environ, "PYTHONPATH": str(guard), "CONNECTIONS": str(tried),
        "http_proxy": "http://192.0.2.9:3128", "ALL_PROXY": "http://192.0.2.9:3128",
    }  # fmt: skip
    started: list[Daemon] = []

    def run(spot: str, *, root: Path = tmp_path, more: str = "") -> Daemon:
        file, port = tmp_path / "flopwatch.yaml", free_port()
        file.write_text(CONFIG.format(root=root, folder=tmp_path, spot=spot) + more)
        command = [sys.executable, "-m", "exporter", "run", "--listen", f"127.0.0.1:{port}"]
        started.append(Daemon([*command, "--config", str(file)], port, environment))
        return started[-1]

    yield run
    for daemon in started:
        daemon.process.kill()
        daemon.process.communicate()
    assert not tried.exists(), tried.read_text()


def has(line: str) -> Callable[[int, str], bool]:
    return lambda _, page: f"\n{line}\n" in page


@pytest.mark.parametrize("provider", list(PATHS))
def test_a_notice_is_on_the_page_within_one_poll(
    launch: Launch, tmp_path: Path, provider: str
) -> None:
    """The provider is found by the firmware below the root; nobody else is spoken to."""
    firmware(tmp_path, DMI[provider])
    with metadata(provider) as mock:
        daemon = launch(f"endpoint: {mock.url}")
        daemon.wait_for("/metrics", has(f'spot_interruption_notice{{provider="{provider}"}} 0'))
        mock.say(PATHS[provider], NOTICES[provider])
        began = time.monotonic()
        daemon.wait_for("/metrics", has(f'spot_interruption_notice{{provider="{provider}"}} 1'))
        # The slowest beat is 5 s; the page is looked at 20 times a second.
        assert time.monotonic() - began < {"aws": 3.5, "gcp": 2.5, "azure": 2.5}.get(provider, 6.5)
        assert daemon.stop()[0] == 0


def test_nth_732_a_machine_of_no_cloud_asks_nobody(launch: Launch, tmp_path: Path) -> None:
    """Not even a source is started."""
    firmware(tmp_path, {"sys_vendor": "Dell Inc.", "product_name": "PowerEdge XE9680"})
    daemon = launch("enabled: auto")
    daemon.wait_for("/-/ready", ready)
    page = daemon.get("/metrics")[1]
    assert "spot_" not in page
    assert 'source="spot"' not in page


def test_oracle_is_known_and_asked_for_no_notice(launch: Launch, tmp_path: Path) -> None:
    firmware(tmp_path, DMI["oci"])
    with metadata("oci") as mock:
        daemon = launch(f"endpoint: {mock.url}")
        page = daemon.wait_for("/metrics", has('spot_notice_supported{provider="oci"} 0'))
        assert "spot_interruption_notice" not in page
        assert {one.path for one in mock.requests} == {"/opc/v2/instance/"}


def test_a_notice_outlives_a_restart_of_the_daemon(launch: Launch, tmp_path: Path) -> None:
    """By the state file, though the service has forgotten it."""
    with metadata("aws") as mock:
        spot = f"provider: aws, endpoint: {mock.url}"
        mock.say(PATHS["aws"], NOTICES["aws"])
        daemon = launch(spot)
        daemon.wait_for("/metrics", has('spot_interruption_notice{provider="aws"} 1'))
        assert daemon.stop()[0] == 0
        mock.unsay(PATHS["aws"])
        again = launch(spot)
        page = again.wait_for("/metrics", has('spot_interruption_notice{provider="aws"} 1'))
        assert '\nspot_interruptions_total{provider="aws"} 1\n' in page


def test_a_service_that_hangs_holds_up_no_scrape(launch: Launch) -> None:
    """The hop limit: told by name, while the page stays fast and the daemon ends in time."""
    with metadata("aws") as mock:
        mock.fail(TOKEN, hang)
        daemon = launch(f"provider: aws, endpoint: {mock.url}")
        daemon.wait_for(
            "/metrics", lambda _, page: 'result="token_timeout"} 0' not in page
            and 'result="token_timeout"}' in page
        )  # fmt: skip
        slowest = 0.0
        for _ in range(40):
            began = time.monotonic()
            daemon.get("/metrics")
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < 0.5
        assert "hop limit" in daemon.get("/api/v1/status")[1]
        code, seconds = daemon.stop()
        assert (code, seconds < 4) == (0, True)
