"""`make demo`: the daemon with a real Prometheus and Alertmanager beside it, and the end of all."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.demo import settings
from tests.test_daemon import free_port

Begin = Callable[..., "Demo"]


class Demo:
    """The starter in a process group, as a terminal has it; `said` is what it has printed."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.port = free_port()
        self.said = ""
        listen = ["--listen", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "deploy.demo", *listen, *arguments], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd=settings.ROOT,
            env={**os.environ, **environment},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self.said += line

    def wait_for(self, pattern: str, seconds: float = 90) -> str:
        """Return what a line with such a pattern says in its group."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if (match := re.search(pattern, self.said)) is not None:
                return match[match.lastindex or 0]
            assert self.process.poll() is None, self.said
            time.sleep(0.1)
        raise AssertionError(self.said)

    def end(self, number: int, *, group: bool) -> int:
        """Send a signal to the group, as Ctrl-C does, or to the starter alone."""
        (os.killpg if group else os.kill)(self.process.pid, number)
        return self.wait()

    def wait(self) -> int:
        code = self.process.wait(30)
        self._reader.join(10)
        return code


@pytest.fixture
def begin() -> Iterator[Begin]:
    begun: list[Demo] = []

    def start(*arguments: str, **environment: str) -> Demo:
        begun.append(Demo(*arguments, **environment))
        return begun[-1]

    yield start
    for one in begun:
        if one.process.poll() is None:
            one.process.terminate()
        one.wait()


def asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def found(url: str, wanted: Callable[[Any], bool], seconds: float = 60) -> Any:
    """Ask until the answer is as wanted."""
    until = time.monotonic() + seconds
    while True:
        told = asked(url)
        if wanted(told) or time.monotonic() > until:
            return told
        time.sleep(0.5)


def healthy(groups: list[Any]) -> set[str]:
    """Return the rules that have been evaluated, by name."""
    return {rule["name"] for one in groups for rule in one["rules"] if rule["health"] == "ok"}


def is_gone(address: str) -> bool:
    try:
        urllib.request.urlopen(f"{address}/-/ready", timeout=2).close()
    except OSError:
        return True
    return False


def folders() -> set[Path]:
    import tempfile

    return {*Path(tempfile.gettempdir()).glob("flopwatch-beside-*")}


def test_all_of_it_runs_and_all_of_it_ends(begin: Begin, tool: Callable[[str], str]) -> None:
    """The rules are in force, an alert arrives, and Ctrl-C leaves neither a process nor a file."""
    tool("prometheus")
    tool("alertmanager")
    before = folders()
    demo = begin()
    prometheus = demo.wait_for(r"Prometheus: (http://127\.0\.0\.1:\d+)/alerts")
    alertmanager = demo.wait_for(r"Alertmanager: (http://127\.0\.0\.1:\d+)/#/alerts")
    demo.wait_for(r"chapter 1 of \d+: All is well")

    targets = found(
        f"{prometheus}/api/v1/targets",
        lambda told: [one["health"] for one in told["data"]["activeTargets"]] == ["up"] * 3,
    )["data"]["activeTargets"]
    assert {one["labels"]["job"]: one["lastError"] for one in targets} == {
        "flopwatch": "", "prometheus": "", "alertmanager": "",
    }  # fmt: skip
    groups = found(
        f"{prometheus}/api/v1/rules", lambda told: "Watchdog" in healthy(told["data"]["groups"]), 60
    )["data"]["groups"]
    assert {Path(one["file"]) for one in groups} == set(settings.rules())
    failed = [rule for one in groups for rule in one["rules"] if rule["health"] == "err"]
    assert failed == []
    alerts = found(f"{alertmanager}/api/v2/alerts", bool, 90)
    assert "Watchdog" in {one["labels"]["alertname"] for one in alerts}

    assert demo.end(signal.SIGINT, group=True) == 0
    assert is_gone(prometheus)
    assert is_gone(alertmanager)
    assert is_gone(f"http://127.0.0.1:{demo.port}")
    assert folders() <= before


def test_a_port_that_somebody_has_is_left_to_him(begin: Begin, tool: Callable[[str], str]) -> None:
    import socket

    tool("prometheus")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 9090))
            taken.listen()
        except OSError:
            pass  # somebody has it indeed
        demo = begin()
        address = demo.wait_for(r"Prometheus: (http://127\.0\.0\.1:\d+)/alerts")
        assert not address.endswith(":9090")
        assert demo.end(signal.SIGTERM, group=False) == 0
        assert is_gone(address)


def test_without_prometheus_the_daemon_runs_alone(begin: Begin, tmp_path: Path) -> None:
    demo = begin(PATH=str(tmp_path))
    demo.wait_for("no Prometheus is installed")
    demo.wait_for("chapter 1 of")
    assert demo.end(signal.SIGINT, group=True) == 0
    assert "Alertmanager:" not in demo.said


def test_without_alertmanager_that_is_said(
    begin: Begin, tool: Callable[[str], str], tmp_path: Path
) -> None:
    (tmp_path / "prometheus").symlink_to(tool("prometheus"))
    demo = begin(PATH=str(tmp_path))
    demo.wait_for("no Alertmanager is installed")
    demo.wait_for("Prometheus: http")
    assert demo.end(signal.SIGHUP, group=False) == 0


def test_a_program_that_does_not_start_is_named(begin: Begin, tmp_path: Path) -> None:
    """The daemon runs on without it."""
    broken = tmp_path / "prometheus"
    broken.write_text(f"#!{shutil.which('sh')}\necho 'the disk is full'\nexit 1\n")
    broken.chmod(0o755)
    demo = begin(PATH=str(tmp_path))
    demo.wait_for("Prometheus has ended: the disk is full")
    demo.wait_for("chapter 1 of")
    assert demo.end(signal.SIGINT, group=True) == 0


@pytest.mark.parametrize("listen", ["here", "127.0.0.1:", ":99999", ":0"])
def test_an_address_that_is_none_is_told_as_such(begin: Begin, listen: str) -> None:
    """It was a traceback; with port 0 Prometheus scraped nothing."""
    demo = begin("--listen", listen)
    assert demo.wait() == 2
    assert "HOST:PORT or :PORT is wanted" in demo.said
    assert "Traceback" not in demo.said


def test_arguments_are_handed_on(begin: Begin) -> None:
    demo = begin("--alone", "--scenario", "coffee")
    assert demo.wait() == 2
    assert "--scenario: 'coffee' is not known" in demo.said
