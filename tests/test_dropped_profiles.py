"""A real daemon: a profile is dropped into its directory, and its metrics appear."""

from __future__ import annotations

import gzip
import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.test_daemon import Daemon, Start, start
from tests.trace_truth import events_of, scenario, truth_of, write

__all__ = ["start"]  # the fixture

QUIET = "network: {enabled: false}, process: {enabled: false}, inference: {enabled: false}"


@pytest.fixture
def daemon(start: Start, tmp_path: Path) -> Daemon:
    (tmp_path / "drop").mkdir()
    file = tmp_path / "flopwatch.yaml"
    watched = f"{{interval: 200ms, directories: [{{path: {tmp_path}/drop}}]}}"
    file.write_text(f"sources: {{{QUIET}, profiles: {watched}, nccl: {watched}}}\n")
    return start("--config", str(file))


def child_of(daemon: Daemon) -> psutil.Process:
    """Return the daemon's child, once there is one."""
    parent = psutil.Process(daemon.process.pid)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if children := parent.children():
            return children[0]
        threading.Event().wait(0.005)
    pytest.fail("no child was started")


def test_a_file_is_dropped_and_metrics_appear(daemon: Daemon, tmp_path: Path) -> None:
    """First a broken one: it is told, and the daemon goes on with the good one."""
    daemon.wait_for("/-/ready", lambda status, _: status == 200)
    run = tmp_path / "drop" / "llama"
    run.mkdir()
    (run / "bad.json.gz").write_bytes(gzip.compress(b"no trace"))
    failed = 'train_profile_files_total{outcome="failed"}'
    daemon.wait_for("/metrics", lambda _, page: f"{failed} 1" in page)
    found = scenario(1)
    write(run / "node1_42.1795972765123.pt.trace.json.gz", events_of(found), rank=3)
    labels = 'rank="3",run="llama"'
    page = daemon.wait_for("/metrics", lambda _, page: f"train_profile_kernels{{{labels}}}" in page)
    truth = truth_of(found)
    assert f"train_profile_kernels{{{labels}}} {truth.kernels}\n" in page
    share = daemon.value(f'train_profile_time_ratio{{kind="exposed_communication",{labels}}}')
    assert share == pytest.approx(truth.exposed / truth.span)
    assert daemon.value(failed) == 1
    # what the other source does not know is no news to it either
    assert daemon.value('flopwatch_source_failures_total{reason="bug",source="nccl"}') in (0, None)
    assert daemon.get("/-/healthy") == (200, "healthy\n")
    assert daemon.stop()[0] == 0


def test_a_child_that_is_killed_leaves_the_daemon_alone(daemon: Daemon, tmp_path: Path) -> None:
    """As the kernel does it when memory is short; the next file is read."""
    large = tmp_path / "drop" / "large.json"
    write(large, events_of(scenario(1), cpu=50_000))
    os.kill(child_of(daemon).pid, signal.SIGKILL)
    failed = 'train_profile_files_total{outcome="failed"}'
    daemon.wait_for("/metrics", lambda _, page: f"{failed} 1" in page)
    write(tmp_path / "drop" / "small.json", events_of(scenario(2)), rank=5)
    daemon.wait_for("/metrics", lambda _, page: 'train_profile_kernels{rank="5"' in page)
    assert daemon.value(failed) == 1


def test_the_end_of_the_daemon_is_the_end_of_its_child(daemon: Daemon, tmp_path: Path) -> None:
    """It is not waited for, and does not go on alone."""
    write(tmp_path / "drop" / "large.json", events_of(scenario(1), cpu=50_000))
    child = child_of(daemon)
    code, seconds = daemon.stop()
    assert code == 0
    assert seconds < 5
    assert not child.is_running()
