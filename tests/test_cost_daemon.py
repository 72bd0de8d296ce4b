"""Dollars over restarts, by real daemons that are stopped and killed."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.servers import Server, reply
from tests.test_daemon import Daemon, Start, start  # noqa: F401 - a fixture
from tests.test_state import end, kill, saved, values

DCGM = Path(__file__).parent / "data/dcgm/dcgm-exporter-4.9.prom"
PRICE = 36.0
DOLLARS = 'cost_dollars_total{gpu="%d",state="unknown",uuid="GPU-%s"}'
FIRST = DOLLARS % (0, "00000000-0000-4000-8000-000000000000")


def write(file: Path, url: str, price: float = PRICE) -> Path:
    """Write a configuration that reads GPUs from a page and counts often."""
    file.write_text(
        f"""
state_directory: {file.parent / "state"}
state_interval: 1s
reload: {{watch: 200ms}}
sources:
  host: {{enabled: false}}
  network: {{enabled: false}}
  inference: {{enabled: false}}
  dcgm_page: {{enabled: true, url: "{url}", interval: 200ms}}
cost: {{gpu_hour: {price}, pricing: owned, interval: 200ms}}
"""
    )
    return file


def at_least(daemon: Daemon, dollars: float) -> dict[str, float]:
    page = daemon.wait_for("/metrics", lambda _, text: values(text).get(FIRST, -1.0) >= dollars)
    return values(page)


def test_dollars_go_on_after_a_restart_and_begin_anew_after_a_crash(
    start: Start,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    """A cent a second: a reload with another price, SIGTERM, a pause, SIGKILL."""
    server = Server([reply(DCGM.read_bytes())] * 2000)
    config = write(tmp_path / "flopwatch.yaml", server.url())
    try:
        began = time.monotonic()
        daemon = start("-c", str(config))
        before = at_least(daemon, 0.02)
        assert before[FIRST] <= PRICE / 3600 * (time.monotonic() - began)
        assert before["cost_dollars_per_hour"] == pytest.approx(3 * PRICE, rel=0.5)
        write(config, server.url(), price=2 * PRICE)
        daemon.wait_for(
            "/metrics", lambda _, text: f"}} {2 * PRICE}\n" in text.split("cost_price_info")[0]
        )
        told = at_least(daemon, before[FIRST] + 0.02)[FIRST]
        end(daemon)

        threading.Event().wait(2.0)
        daemon = start("-c", str(config))
        page = at_least(daemon, told)
        assert page[FIRST] < told + 2.5 * PRICE / 3600 * 10
        assert 1.5 < page["cost_gap_seconds"] < 20
        saved(tmp_path / "state", time.time())
        last = at_least(daemon, page[FIRST] + 0.02)[FIRST]
        kill(daemon)

        daemon = start("-c", str(config))
        assert at_least(daemon, 0.0)[FIRST] < last / 2
        end(daemon)
    finally:
        server.close()
