"""A job that tells a real daemon of itself: MFU by hand, and counters that outlive the daemon."""

from __future__ import annotations

import http.client
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.test_daemon import Daemon, Start, start  # noqa: F401 - a fixture

CONFIG = """
state_directory: {folder}/state
state_interval: 1s
accelerators: [{{name: cpu, peak_flops: {{bf16: 1T}}}}]
push: {{socket: null}}
training: {{interval: 200ms, runs: [{{name: "ll*", flops_per_token: 50M, recompute: full}}]}}
sources:
  host: {{enabled: false}}
  network: {{enabled: false}}
  inference: {{enabled: false}}
"""


def push(daemon: Daemon, *records: dict[str, Any]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=10)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/api/v1/training/steps", json.dumps(records), headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()


def train(daemon: Daemon, first: int, last: int) -> None:
    """Tell of steps of 50 ms, of which 5 ms wait for data, on two ranks."""
    for n in range(first, last + 1):
        time.sleep(0.05)
        push(daemon, *[
            {"run": "llama", "step": n, "rank": rank, "scope": "rank", "attempt": "1",
             "seconds": 0.05, "tokens": 400, "wall": time.time(),
             "phases": {"data": 0.005, "forward": 0.015, "backward": 0.025,
                        "communication": 0.004}}
            for rank in range(2)
        ])  # fmt: skip


def reached(daemon: Daemon, series: str, value: str) -> str:
    return daemon.wait_for("/metrics", lambda _, page: f"\n{series} {value}\n" in page)


def test_a_job_that_pushes_has_mfu_and_counters_that_outlive_the_daemon(
    start: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    """400 tokens in 50 ms and rank, 50 MFLOPs each: 0.4 of the stated 1 TFLOP/s."""
    file = tmp_path / "flopwatch.yaml"
    file.write_text(CONFIG.format(folder=tmp_path))
    daemon = start("--config", str(file))
    daemon.wait_for("/-/ready", lambda status, _: status == 200)
    push(daemon, {"kind": "facts", "run": "llama", "world_size": 2})
    train(daemon, 1, 40)
    reached(daemon, 'train_steps_total{run="llama"}', "40")
    found = daemon.value('train_mfu_ratio{convention="causal",peak="bf16",run="llama"}')
    assert found == pytest.approx(0.4)
    hfu = daemon.value('train_hfu_ratio{convention="causal",peak="bf16",run="llama"}')
    assert hfu == pytest.approx(0.4 * 4 / 3)
    for cause, evidence, share in (
        ("data", "measured", 0.1),
        ("communication", "measured", 0.08),
        ("kernels", "measured", 0.8 - 0.4 * 4 / 3),
        ("recomputation", "estimated", 0.4 / 3),
        ("unexplained", "remainder", 0.02),
    ):
        series = f'train_mfu_loss_ratio{{cause="{cause}",evidence="{evidence}",run="llama"}}'
        assert daemon.value(series) == pytest.approx(share), cause

    code, _ = daemon.stop()
    assert code == 0
    again = start("--config", str(file))
    again.wait_for("/-/ready", lambda status, _: status == 200)
    push(again, {"kind": "facts", "run": "llama", "world_size": 2})
    train(again, 31, 60)  # the last ten are told once more
    reached(again, 'train_steps_total{run="llama"}', "60")
    assert again.value('train_tokens_total{run="llama"}') == 60 * 800
    assert again.value('train_repeated_steps_total{run="llama"}') == 0


def test_steps_that_were_answered_just_before_a_restart_are_counted(
    start: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    """The job does not send them again, so the daemon takes them in before it ends."""
    file = tmp_path / "flopwatch.yaml"
    config = CONFIG.format(folder=tmp_path)
    file.write_text(config.replace("interval: 200ms, runs", "interval: 60s, runs"))
    daemon = start("--config", str(file))
    daemon.wait_for("/-/ready", lambda status, _: status == 200)
    train(daemon, 1, 20)
    assert daemon.stop()[0] == 0
    file.write_text(config)
    again = start("--config", str(file))
    again.wait_for("/-/ready", lambda status, _: status == 200)
    train(again, 21, 30)
    reached(again, 'train_steps_total{run="llama"}', "30")
