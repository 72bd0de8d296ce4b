"""The unit for systemd: accepted without a word, and as closed as a reader of drivers can be."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.manifests import ROOT

UNIT = ROOT / "deploy/systemd/flopwatch.service"
DROP_IN = ROOT / "deploy/systemd/jobs.conf"
MOST = {"": 2.6, "jobs.conf": 2.8}
"""Exposure by systemd's own count (0 safe to 10): what the unit has, so that it only sinks."""

Analyze = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def analyze(tool: Callable[[str], str]) -> Analyze:
    program = tool("systemd-analyze")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *words], capture_output=True, text=True, timeout=60, check=False
        )

    return run


def installed(folder: Path, drop_in: str = "") -> Path:
    """Return the unit as it is where the program is installed."""
    program = folder / "flopwatch"
    program.write_text("#!/bin/sh\n", "utf-8")
    program.chmod(0o755)
    unit = folder / UNIT.name
    unit.write_text(
        UNIT.read_text("utf-8").replace("/opt/flopwatch/bin/flopwatch", str(program)), "utf-8"
    )
    if drop_in:
        beside = folder / f"{UNIT.name}.d"
        beside.mkdir()
        (beside / drop_in).write_text(DROP_IN.read_text("utf-8"), "utf-8")
    return unit


@pytest.mark.parametrize("drop_in", list(MOST))
def test_systemd_takes_the_unit(analyze: Analyze, tmp_path: Path, drop_in: str) -> None:
    """`systemd-analyze verify` has nothing to say."""
    done = analyze("verify", str(installed(tmp_path, drop_in)))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_mistake_is_found(analyze: Analyze, tmp_path: Path) -> None:
    """What verifying is for: a key that systemd does not know."""
    unit = installed(tmp_path)
    unit.write_text(unit.read_text("utf-8").replace("NoNewPrivileges", "NoNewPrivilege"), "utf-8")
    assert "NoNewPrivilege" in analyze("verify", str(unit)).stderr


@pytest.mark.parametrize("drop_in", list(MOST))
def test_the_unit_is_closed(analyze: Analyze, tmp_path: Path, drop_in: str) -> None:
    """The exposure that systemd counts is printed, and not above what was reached once."""
    unit = installed(tmp_path, drop_in)
    done = analyze("security", "--offline=yes", "--no-pager", str(unit))
    (told,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    print(f"\n{UNIT.name} {drop_in}: exposure {told}")
    assert float(told) <= MOST[drop_in]
    most = f"--threshold={MOST[drop_in] * 10:.0f}"
    assert analyze("security", "--offline=yes", most, str(unit)).returncode == 0


def test_what_would_blind_the_daemon_is_off(analyze: Analyze, tmp_path: Path) -> None:
    """GPUs, the kernel log and processes of jobs are hidden by options that must not be set."""
    done = analyze("security", "--offline=yes", "--json=short", str(installed(tmp_path)))
    found = {row["json_field"]: row["set"] for row in json.loads(done.stdout)}
    for option in ("PrivateDevices", "ProtectClock", "ProtectKernelLogs", "DeviceAllow"):
        assert found[option] is False, option
    for option in ("NoNewPrivileges", "ProtectSystem", "MemoryDenyWriteExecute"):
        assert found[option] is True, option


def test_directories_are_those_of_the_daemon() -> None:
    """The socket and the notices lie where clients look, the state where the documents say."""
    from exporter.client import address, spot

    unit = UNIT.read_text("utf-8")
    assert "RuntimeDirectory=flopwatch\n" in unit
    assert "StateDirectory=flopwatch\n" in unit
    assert "\nRuntimeDirectoryPreserve" not in unit
    assert {str(Path(one).parent) for one in (address.SOCKET, spot.FILE)} == {"/run/flopwatch"}
