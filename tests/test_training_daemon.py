"""Training jobs seen by a real daemon: a job that writes its log while it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_daemon import Daemon, Start, start  # noqa: F401 - a fixture

JOB = Path(__file__).with_name("log_job.py")
LINES = 'train_log_lines_total{run="llama"}'


def configure(folder: Path, extra: str = "") -> Path:
    file = folder / "flopwatch.yaml"
    file.write_text(
        f"""
state_directory: {folder}/state
state_interval: 1s
reload: {{watch: 200ms}}
sources:
  host: {{enabled: false}}
  network: {{enabled: false}}
  inference: {{enabled: false}}
  ranks: {{interval: 200ms}}
  logs:
    interval: 200ms
    files:
      - {{path: "{folder}/logs/*.log", run: llama}}
{extra}
"""
    )
    return file


def job(log: Path, first: int, last: int, *more: str) -> None:
    """Run a job to its end, as rank 3 of 4."""
    environment = {
        "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3", "FLOPWATCH_RUN": "llama",
        "PATH": os.environ["PATH"],
    }  # fmt: skip
    command = [sys.executable, str(JOB), str(log), str(first), str(last), *more]
    subprocess.run(command, env=environment, check=True, timeout=60)


def reached(daemon: Daemon, series: str, value: float) -> str:
    return daemon.wait_for("/metrics", lambda _, page: f"\n{series} {value:g}\n" in page)


def test_a_job_is_followed_through_rotation_reload_and_restart(
    start: Start,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Each line that tells something is taken once, in three lives of the daemon's reader."""
    logs = tmp_path / "logs"
    logs.mkdir()
    file = configure(tmp_path)
    daemon = start("--config", str(file))
    daemon.wait_for("/-/ready", lambda status, _: status == 200)

    (logs / "job.log").touch()
    reached(daemon, "train_log_files", 1)  # new files are looked for each 5 s
    job(logs / "job.log", 1, 300, "--rotate", "100")
    page = reached(daemon, LINES, 300)
    assert 'flopwatch_source_up{source="logs"} 1' in page
    assert 'train_log_lag_bytes{run="llama"} 0' in page
    assert 'train_log_skipped_bytes_total{run="llama"} 0' in page
    reached(daemon, 'train_steps_total{run="llama"}', 300)
    reached(daemon, 'train_step{run="llama"}', 300)
    reached(daemon, 'train_world_size{run="llama"}', 4)  # while it ran its environment was seen
    speed = daemon.value('train_tokens_per_second_per_gpu{run="llama"}')
    assert speed == pytest.approx(7034)
    assert daemon.value('train_repeated_steps_total{run="llama"}') == 0

    # A reload makes another source, which goes on where the former one was.
    configure(tmp_path, "      - {path: /nowhere/*.log}")
    daemon.wait_for("/metrics", lambda _, page: LINES not in page)
    job(logs / "job.log", 301, 310)
    reached(daemon, LINES, 10)
    reached(daemon, 'train_steps_total{run="llama"}', 310)

    code, _ = daemon.stop()
    assert code == 0
    job(logs / "job.log", 311, 325)
    again = start("--config", str(file))
    reached(again, LINES, 15)
    assert again.value('train_log_lag_bytes{run="llama"}') == 0


def test_ranks_are_seen_while_they_run(start: Start, tmp_path: Path) -> None:  # noqa: F811
    """The job says nothing of its size; its environment does."""
    (tmp_path / "logs").mkdir()
    daemon = start("--config", str(configure(tmp_path)))
    environment = {
        "RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "FLOPWATCH_RUN": "llama",
        "PATH": os.environ["PATH"],
    }  # fmt: skip
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as process:
        reached(daemon, 'train_local_ranks{run="llama"}', 1)
        process.communicate(timeout=10)
    daemon.wait_for("/metrics", lambda _, page: 'train_local_ranks{run="llama"}' not in page)
