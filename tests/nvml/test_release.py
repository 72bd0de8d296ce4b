"""Letting go of the driver, so that a GPU can be reset, a driver unloaded, a MIG layout changed.

An exporter that holds its handles for ever blocks all of that (dcgm-exporter 706).
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from exporter import catalogue as c
from exporter import isolate
from exporter.isolate import Isolated
from exporter.samples import SourceError
from tests.fake_nvml import Control
from tests.fakes import FakeClock
from tests.nvml_lab import Log, read, until
from tests.test_daemon import Daemon, free_port

Child = Callable[..., Isolated]
Start = Callable[..., Daemon]


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


# ---- the source -------------------------------------------------------------------------------


def test_releasing_gives_everything_back_and_reading_resumes(child: Child, log: Log) -> None:
    """The process is gone, the library was shut down, and later the counters go on."""
    clock = FakeClock()
    source = child("h100-sxm8", clock=clock)
    before = until(source, lambda page: len(page.of(c.GPU_SM_ACTIVE_SECONDS_TOTAL)) == 8)
    pid = source.pid
    assert pid is not None

    assert source.release(60) is True
    assert not alive(pid)
    counts = log.counts()
    assert counts["nvmlShutdown"] == counts["nvmlInitWithFlags"] == 1
    assert counts["nvmlGpmSampleFree"] == counts["nvmlGpmSampleAlloc"] > 0
    log.forget()
    for _ in range(3):
        with pytest.raises(SourceError, match="released on request") as caught:
            source.read()
        assert caught.value.reason == "unavailable"
    assert source.pid is None
    assert log.lines() == [], "nothing opens the driver meanwhile"

    clock.advance(60)
    after = until(source, lambda page: len(page.of(c.GPU_SM_ACTIVE_SECONDS_TOTAL)) == 8)
    for counter in (c.GPU_SM_ACTIVE_SECONDS_TOTAL, c.GPU_BUSY_SECONDS_TOTAL):
        was, is_now = before.by_gpu(counter), after.by_gpu(counter)
        assert all(is_now[gpu] >= was[gpu] for gpu in range(8))
    assert set(after.by_gpu(c.GPU_LOSSES_TOTAL).values()) == {0}


def test_releasing_again_makes_it_longer_or_shorter(child: Child) -> None:
    """The last word counts; releasing what is not there is fine."""
    clock = FakeClock()
    source = child("h200", clock=clock)
    assert source.release(60) is True
    assert source.release(600) is True
    clock.advance(61)
    with pytest.raises(SourceError):
        source.read()

    assert source.release(1) is True
    clock.advance(1)

    assert read(source).by_gpu(c.GPU_UP) == {0: 1}


def test_a_hung_gpu_does_not_keep_the_others_handles(child: Child, control: Control) -> None:
    """A call that hangs and can be ended ends with the process."""
    source = child("h100-sxm8", budget=1.0)
    until(source, lambda page: sum(page.by_gpu(c.GPU_UP).values()) == 8)
    control.add("3 * = hang")
    until(source, lambda page: page.one(c.GPU_UP, "3") == 0)
    pid = source.pid
    assert pid is not None

    assert source.release(60) is True
    assert not alive(pid)


def test_a_process_that_cannot_end_is_not_called_released(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call in the kernel that never returns (here: a stopped process) keeps its handles.

    No second child is started beside it, and when it can end it does.
    """
    monkeypatch.setattr(isolate, "_PARTING", 0.2)
    clock = FakeClock()
    source = child("h200", clock=clock, end_after=None)
    read(source)
    pid = source.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        assert source.release(60) is False
        assert source.pid == pid
        with pytest.raises(TimeoutError, match="does not end"):
            source.read()
        clock.advance(61)
        source._deadline = 0.2
        with pytest.raises(TimeoutError):
            source.read()
        assert source.pid == pid, "no second child beside it"
    finally:
        os.kill(pid, signal.SIGCONT)

    source._deadline = 60.0
    page = until(source, lambda page: page.by_gpu(c.GPU_UP) == {0: 1})
    assert page.faults == []
    assert source.pid != pid
    assert not alive(pid)


# ---- the daemon -------------------------------------------------------------------------------


def post(daemon: Daemon, path: str, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30)
    try:
        connection.request("POST", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def total(page: str, family: str) -> float:
    return sum(float(x.split()[1]) for x in page.splitlines() if x.startswith(family + "{"))


def counting(status: int, page: str) -> bool:
    return total(page, "gpu_sm_active_seconds_total") > 0


def children(daemon: Daemon) -> list[psutil.Process]:
    return [p for p in psutil.Process(daemon.process.pid).children() if alive(p.pid)]


def gone(_: int, page: str) -> bool:
    return not any(f"\n{family}{{" in page for family in ("gpu_up", "gpu_info", "gpu_power_watts"))


UP = 'flopwatch_source_up{source="nvml"}'


@pytest.mark.parametrize("how", ["POST", "SIGUSR1"])
def test_a_daemon_lets_go_and_takes_up_again(how: str, daemon: Start, log: Log) -> None:
    """No process holds the driver, the page says so and goes on, and the counters go on later.

    How long is said by the request or the settings; it is the same for the signal.
    """
    one = daemon("h100-sxm8", release="10m")
    before = one.wait_for("/metrics", counting)
    assert len(children(one)) == 1

    if how == "POST":
        assert post(one, "/-/release") == (200, {"released": {"nvml": True}})
    else:
        one.process.send_signal(signal.SIGUSR1)
    page = one.wait_for("/metrics", gone)
    assert f"\n{UP} 0\n" in page
    assert 'flopwatch_source_up{source="process"} 1' in page
    assert children(one) == []
    counts = log.counts()
    assert counts["nvmlShutdown"] == counts["nvmlInitWithFlags"] == 1
    assert one.get("/-/healthy")[0] == 200
    assert one.get("/-/ready")[0] == 200

    if how == "SIGUSR1":
        return
    # Ten minutes are too long for a test; the last word counts.
    assert post(one, "/-/release?seconds=1")[0] == 200

    after = one.wait_for("/metrics", counting, seconds=60)
    for counter in ("gpu_sm_active_seconds_total", "gpu_busy_seconds_total"):
        assert total(after, counter) >= total(before, counter)
    assert f"\n{UP} 1\n" in after


def test_only_this_machine_may_ask_for_it(daemon: Start, log: Log) -> None:
    """Not through a proxy, not from a page in a browser, not by a name, not with GET."""
    one = daemon("h200")
    one.wait_for("/metrics", lambda _, page: "\ngpu_up{" in page)

    for headers in (
        {"X-Forwarded-For": "10.0.0.1"},
        {"Forwarded": "for=10.0.0.1"},
        {"Origin": "http://example.org"},
        {"Host": "example.org"},
    ):
        assert post(one, "/-/release", **headers)[0] == 403, headers
    assert one.get("/-/release")[0] == 405
    for seconds in ("abc", "0", "-5", "nan", "86401", ""):
        status, body = post(one, f"/-/release?seconds={seconds}")
        assert status == 400, seconds
        assert "1 to 86400" in body["error"]
    assert len(children(one)) == 1
    assert log.counts()["nvmlShutdown"] == 0


def test_a_driver_that_holds_on_is_told_honestly(daemon: Start) -> None:
    """503: the process that has the handles cannot end, and nobody can make it."""
    one = daemon("h200")
    one.wait_for("/metrics", lambda _, page: "\ngpu_up{" in page)
    (holder,) = children(one)
    holder.suspend()
    try:
        assert post(one, "/-/release?seconds=60") == (503, {"released": {"nvml": False}})
        assert one.get("/metrics")[0] == 200
        assert len(children(one)) == 1
    finally:
        holder.resume()


def change(daemon: Daemon, file: Path, old: str, new: str) -> None:
    """Let the daemon take up another text of its configuration."""
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")
    daemon.process.send_signal(signal.SIGHUP)


def settled(_: int, page: str) -> bool:
    return total(page, "gpu_up") == 1


RELEASED = 'flopwatch_source_released{source="nvml"}'


def test_a_reload_beside_a_stuck_child_starts_no_second_one(daemon: Start, tmp_path: Path) -> None:
    """The stuck one has its handles still: the page and the answer to a release say so."""
    one = daemon("h200")
    one.wait_for("/metrics", settled)
    (holder,) = children(one)
    holder.suspend()
    try:
        one.wait_for("/metrics", lambda _, page: f"\n{UP} 0\n" in page)

        change(one, tmp_path / "flopwatch.yaml", "deadline: 2s", "deadline: 2s, detail: true")
        busy = 'flopwatch_source_busy_seconds{source="nvml"}'
        one.wait_for("/metrics", lambda *_: (one.value(busy) or 0) > 2.0)

        assert one.value(UP) == 0
        assert [child.pid for child in children(one)] == [holder.pid]
        assert post(one, "/-/release?seconds=1") == (503, {"released": {"nvml": False}})
        assert one.value(RELEASED) == 0
        assert [child.pid for child in children(one)] == [holder.pid]
    finally:
        holder.resume()

    one.wait_for("/metrics", settled)
    (child,) = children(one)
    assert child.pid != holder.pid


def test_a_source_that_is_gone_by_a_reload_is_not_called_released_while_it_hangs(
    daemon: Start, tmp_path: Path
) -> None:
    """Nobody is configured to read GPUs any more, and its child still has its handles."""
    one = daemon("h200")
    one.wait_for("/metrics", settled)
    (holder,) = children(one)
    holder.suspend()
    try:
        change(one, tmp_path / "flopwatch.yaml", "nvml: {enabled: true", "nvml: {enabled: false")
        one.wait_for("/metrics", lambda _, page: UP not in page)

        assert post(one, "/-/release?seconds=1") == (503, {"released": {"nvml": False}})
    finally:
        holder.resume()
    one.wait_for("/metrics", lambda *_: not children(one))


def test_a_stuck_child_after_a_reload_does_not_hold_up_the_end(
    daemon: Start, tmp_path: Path
) -> None:
    """SIGTERM while a successor waits for it."""
    one = daemon("h200")
    one.wait_for("/metrics", settled)
    (holder,) = children(one)
    holder.suspend()
    try:
        change(one, tmp_path / "flopwatch.yaml", "deadline: 2s", "deadline: 2s, detail: true")
        one.wait_for("/metrics", lambda *_: (one.value(UP) or 0) == 0)

        code, seconds = one.stop()
    finally:
        if alive(holder.pid):
            holder.resume()

    assert code == 0
    assert seconds < 5


def test_a_reload_forgets_neither_lost_gpus_nor_counters(
    daemon: Start, control: Control, tmp_path: Path
) -> None:
    """An alert must not resolve itself because somebody asked for more detail."""
    one = daemon("h100-sxm8")
    one.wait_for("/metrics", counting)
    control.set("gone = 3")
    lost = one.wait_for(
        "/metrics", lambda _, page: total(page, "gpu_losses_total") == 1 and counting(200, page)
    )
    assert one.value("gpu_devices_expected") == 8
    (former,) = children(one)

    change(one, tmp_path / "flopwatch.yaml", "deadline: 2s", "deadline: 2s, detail: true")
    one.wait_for("/metrics", lambda *_: [x.pid for x in children(one)] not in ([], [former.pid]))
    after = one.wait_for("/metrics", counting)

    assert one.value("gpu_devices_expected") == 8
    assert one.value("gpu_devices_present") == 7
    assert total(after, "gpu_losses_total") == 1
    for counter in ("gpu_sm_active_seconds_total", "gpu_busy_seconds_total"):
        assert total(after, counter) >= total(lost, counter) > 0


def test_a_release_is_no_failure_and_has_a_gauge_of_its_own(daemon: Start) -> None:
    """An operator can tell it from an outage."""
    one = daemon("h200")
    one.wait_for("/metrics", settled)
    assert one.value(RELEASED) == 0

    assert post(one, "/-/release?seconds=600")[0] == 200
    one.wait_for("/metrics", lambda *_: one.value(RELEASED) == 1)
    reads = 'flopwatch_source_reads_total{source="nvml"}'
    before = one.value(reads)
    assert before is not None
    one.wait_for("/metrics", lambda *_: (one.value(reads) or 0) > before + 3)

    page = one.get("/metrics")[1]
    assert f"\n{UP} 0\n" in page
    assert 'failures_total{reason="unavailable",source="nvml"}' not in page
    assert 'released{source="process"}' not in page
    assert "released on request" in one.get("/api/v1/status")[1]
    assert post(one, "/-/release?seconds=1")[0] == 200
    one.wait_for("/metrics", lambda *_: one.value(RELEASED) == 0 and one.value(UP) == 1)


def test_a_release_does_not_wait_for_a_reload_that_hangs(daemon: Start, tmp_path: Path) -> None:
    """The configuration lies on a dead disk (here: a pipe that nobody writes to)."""
    one = daemon("h200")
    one.wait_for("/metrics", settled)
    file = tmp_path / "flopwatch.yaml"
    file.unlink()
    os.mkfifo(file)
    one.process.send_signal(signal.SIGHUP)
    threading.Event().wait(0.5)

    assert post(one, "/-/release?seconds=60") == (200, {"released": {"nvml": True}})
    assert children(one) == []


EARLY = """
import os, signal, sys
class Early:
    def find_spec(self, name, path=None, target=None):
        if name == "exporter.app":
            os.kill(os.getpid(), signal.SIGUSR1)
sys.meta_path.insert(0, Early())
from exporter.__main__ import main
main(sys.argv[1:])
"""


def test_a_release_that_is_asked_for_while_it_starts_is_heeded(
    daemon: Start, log: Log, tmp_path: Path
) -> None:
    """It had ended the daemon; now the driver is not opened at all."""
    usual = daemon("h200")  # writes the file, and shows that the driver can be opened
    usual.wait_for("/metrics", settled)
    assert usual.stop()[0] == 0
    log.forget()
    port = free_port()
    one = Daemon(
        [
            sys.executable, "-c", EARLY, "run", "--listen", f"127.0.0.1:{port}",
            "--config", str(tmp_path / "flopwatch.yaml"),
        ],
        port,
    )  # fmt: skip
    try:
        one.wait_for("/metrics", lambda *_: one.value(RELEASED) == 1)
        assert children(one) == []
        assert log.lines() == []
        assert one.stop()[0] == 0
    finally:
        one.process.kill()
        one.process.communicate()
