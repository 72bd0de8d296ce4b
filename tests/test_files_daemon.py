"""The daemon as a process, and a job that writes event files and sends OTLP metrics beside it."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from exporter.formats.tfevents import crc32c, masked
from tests.event_files import NAME, event, write
from tests.test_daemon import Daemon, Start, start

__all__ = ["start"]

OTLP = Path(__file__).parent / "data" / "training" / "otlp"


def configured(tmp_path: Path) -> str:
    """Return the path of a configuration that watches `runs` and keeps what it knows."""
    (tmp_path / "runs").mkdir(exist_ok=True)
    path = tmp_path / "config.yaml"
    path.write_text(
        f"""
state_directory: {tmp_path / "state"}
state_interval: 1s
training: {{interval: 200ms}}
sources:
  host: {{enabled: false}}
  network: {{enabled: false}}
  inference: {{local: false}}
  training_files: [{{path: {tmp_path / "runs"}, interval: 100ms}}]
"""
    )
    return str(path)


def remembered(tmp_path: Path) -> Any:
    """Return what the state file says of the reading of event files, None if there is nothing."""
    try:
        body = (tmp_path / "state" / "state.json").read_text().partition("\n")[2]
    except FileNotFoundError:
        return None
    entry = json.loads(body or "{}").get("training_files:runs")
    return None if entry is None else entry["memory"]["tensorboard"]


def last_step(tmp_path: Path) -> int:
    """Return the last step that was told, as the state file knows it."""
    memory = remembered(tmp_path)
    if not memory or not memory["processes"]:
        return -1
    return int(memory["processes"][0][4][1])


def told_until(daemon: Daemon, tmp_path: Path, step: int) -> None:
    daemon.wait_for("/-/healthy", lambda *_: last_step(tmp_path) == step)


def test_a_growing_event_file_is_followed_over_a_kill(start: Start, tmp_path: Path) -> None:
    """Written while the daemon runs, while it is dead, and after: each step counts once."""
    config = configured(tmp_path)
    path = tmp_path / "runs" / "llama" / NAME
    began = time.time()

    def log(step: int, **values: float) -> None:
        write(path, event(step, began + step / 10, **values))

    first = start("--config", config)
    first.wait_for("/-/ready", lambda status, _: status == 200)
    for step in range(1, 21):
        log(step, step_time=0.1, tokens_per_second=5000.0, loss=float("nan") if step == 20 else 3.0)
    told_until(first, tmp_path, 19)
    page = first.wait_for("/metrics", lambda _, text: 'train_step{run="llama"} 19\n' in text)
    shown = dict(re.findall(r'^(train_\w+)\{run="llama"\} (\S+)$', page, re.MULTILINE))
    assert float(shown["train_steps_total"]) == 19
    assert float(shown["train_tokens_total"]) == pytest.approx(19 * 500, rel=1e-4)
    assert float(shown["train_loss"]) == 3
    assert float(shown["train_step_median_seconds"]) == pytest.approx(0.1, rel=1e-4)
    assert 'train_reader_chosen{reader="tensorboard",run="llama"} 1\n' in page
    assert first.value('flopwatch_source_up{source="training_files:runs"}') == 1
    first.process.send_signal(signal.SIGKILL)
    first.process.wait(10)

    log(20, grad_norm=0.5)
    log(21, step_time=0.1, loss=3.0)
    second = start("--config", config)
    told_until(second, tmp_path, 20)
    log(22, step_time=0.1, loss=3.0)
    told_until(second, tmp_path, 21)
    second.wait_for("/metrics", lambda _, text: 'train_step{run="llama"} 21\n' in text)
    # After a kill counters begin at 0, as a reset: only what was not told is counted.
    assert second.value('train_steps_total{run="llama"}') == 2
    assert second.value('train_repeated_steps_total{run="llama"}') in (None, 0)

    assert second.stop()[0] == 0
    ((_, _, _, run, told, restarts, *_),) = remembered(tmp_path)["processes"]
    assert (run, told[0], restarts) == ("llama", "1700000000.host.7", 0)


def test_a_damaged_event_file_is_told_with_its_place(start: Start, tmp_path: Path) -> None:
    """On the status page: to who asks from here with file and offset; the daemon goes on."""
    daemon = start("--config", configured(tmp_path))
    length = struct.pack("<Q", 1 << 50)
    good = event(1, 1.7e9, loss=3.0)
    write(tmp_path / "runs" / "a" / NAME, good, length, struct.pack("<I", masked(crc32c(length))))

    def source(body: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = json.loads(body)["sources"]
        return next(one for one in found if one["name"] == "training_files:runs")

    body = daemon.wait_for(
        "/api/v1/status", lambda status, text: status == 200 and bool(source(text)["faults"])
    )
    (fault,) = source(body)["faults"]
    assert (source(body)["state"], fault["part"], fault["reason"]) == (
        "degraded", "tensorboard", "malformed",
    )  # fmt: skip
    assert f"a/{NAME} at byte {len(good)}: a record of {1 << 50} bytes" in fault["detail"]


def test_otlp_metrics_that_are_posted_become_steps(start: Start, tmp_path: Path) -> None:
    """Three exports of Megatron's instruments: a record of facts and three of steps, each once."""
    daemon = start("--config", configured(tmp_path))
    daemon.wait_for("/-/ready", lambda status, _: status == 200)

    def post(name: str, kind: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=10)
        connection.request(
            "POST", "/v1/metrics", (OTLP / name).read_bytes(), {"Content-Type": kind}
        )
        with contextlib.closing(connection):
            answer = connection.getresponse()
            return answer.status, answer.read()

    assert post("megatron-1.pb", "application/x-protobuf") == (200, b"")
    assert post("megatron-2.json", "application/json")[0] == 200
    assert post("megatron-2.pb", "application/x-protobuf") == (200, b"")
    assert post("megatron-3.pb", "application/x-protobuf") == (200, b"")
    assert post("megatron-3.pb", "application/json")[0] == 400
    pattern = r'flopwatch_push_records_total\{outcome="(\w+)",reader="otlp"\} (\d+)'
    page = daemon.wait_for("/metrics", lambda _, text: ("new", "4") in re.findall(pattern, text))
    assert ("refused", "0") in re.findall(pattern, page)
