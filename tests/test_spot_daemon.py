"""A real daemon and mock metadata services: what reaches its page, and whom it speaks to."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.metadata import GUARD, PATHS, TOKEN, hang, metadata
from tests.sinks.test_notices import alertmanager, alerts  # noqa: F401 - a fixture
from tests.sources.test_cloud_notices import NOTICES
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

ROOT = Path(__file__).parent.parent
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

    def run(spot: str, *, node: str = "node", more: str = "") -> Daemon:
        file, port = tmp_path / f"{node}.yaml", free_port()
        state = tmp_path / node
        state.mkdir(exist_ok=True)
        file.write_text(CONFIG.format(root=tmp_path, folder=state, spot=spot) + more)
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


def test_a_real_alertmanager_hears_of_it_from_the_daemon(
    launch: Launch,
    alertmanager: str,  # noqa: F811
) -> None:
    """Within seconds, and once the work on the host is called off it is resolved there."""
    scheduled = "/latest/meta-data/events/maintenance/scheduled"
    with metadata("aws") as mock:
        mock.say(scheduled, json.dumps([{
            "NotBefore": "21 Jan 2030 09:00:43 GMT", "Code": "system-reboot", "State": "active",
            "EventId": "instance-event-1", "Description": "scheduled reboot"}]))  # fmt: skip
        receivers = f"notify: {{file: false, alertmanagers: [{{name: am, url: '{alertmanager}'}}]}}"
        launch(f"provider: aws, endpoint: {mock.url}", more=receivers)
        until(lambda: set(alerts(alertmanager)) == {"HostMaintenance"})
        mock.say(PATHS["aws"], NOTICES["aws"])
        began = time.monotonic()
        until(lambda: "SpotInterruption" in alerts(alertmanager))
        assert time.monotonic() - began < 6
        mock.say(scheduled, "[]")
        until(lambda: set(alerts(alertmanager)) == {"SpotInterruption"})


# ---------------------------------------------------------------- a job that is interrupted

STEPS = 60
TRAINING = """
notify: {{file: {file}, interval: 100ms}}
training: {{interval: 200ms}}
training_sla: {{checkpoint_recovery_time: "{promise}"}}
"""


def final_weight(steps: int) -> int:
    weight = 1
    for step in range(1, steps + 1):
        weight = (weight * 31 + step) % 1_000_003
    return weight


def train(folder: Path, daemon: Daemon, notices: Path, **more: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ, **more, "FLOPWATCH_URL": f"http://127.0.0.1:{daemon.port}",
        "FLOPWATCH_NOTICES": str(notices), "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    command = [sys.executable, str(ROOT / "tests/spot_job.py"), str(folder), str(STEPS), "0.05"]
    return subprocess.Popen(command, env=environment)


def steps_in(log: Path) -> list[tuple[str, int, int]]:
    """Return process, step and weight of each step in the job's log."""
    lines = [line.split() for line in log.read_text().splitlines()]
    return [(pid, int(rest[0]), int(rest[1])) for pid, word, *rest in lines if word == "step"]


def reached(log: Path, step: int) -> bool:
    return log.exists() and any(number >= step for _, number, _ in steps_in(log))


@pytest.mark.parametrize(
    ("promise", "elsewhere", "kept"),
    [("< 2 minutes", False, 1), ("< 500 ms", False, 0), ("< 2 minutes", True, 1)],
)
def test_a_real_job_saves_leaves_and_goes_on_where_it_was(
    launch: Launch, tmp_path: Path, promise: str, elsewhere: bool, kept: int
) -> None:
    """From the cloud's word to the resumed step: nothing lost, nothing twice, recovery timed.

    Here, and at another node, whose daemon hears of the interruption from the job.
    """
    notices, log = tmp_path / "notices.json", tmp_path / "log"
    more = TRAINING.format(file=notices, promise=promise)
    with metadata("aws") as mock:
        spot = f"provider: aws, endpoint: {mock.url}"
        daemon = launch(spot, more=more)
        daemon.wait_for("/metrics", has('spot_interruption_notice{provider="aws"} 0'))
        job = train(tmp_path, daemon, notices)
        until(lambda: reached(log, 5))
        soon = datetime.fromtimestamp(time.time() + 120, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        mock.say(PATHS["aws"], f'{{"action":"terminate","time":"{soon}"}}')
        assert job.wait(30) == 143
        interrupted = time.time()
        assert "left 11" in log.read_text()  # of two minutes, less the margin
        saved = json.loads((tmp_path / "checkpoint.json").read_text())["step"]
        assert saved == steps_in(log)[-1][1] < STEPS
        daemon.wait_for("/metrics", has('train_interruptions_total{run="spot-run"} 1'))

        if elsewhere:
            with metadata("aws") as calm:
                more = TRAINING.format(file=tmp_path / "other.json", promise=promise)
                other = launch(f"provider: aws, endpoint: {calm.url}", node="other", more=more)
                other.wait_for("/-/ready", ready)
                went_on_at = finish(tmp_path, other, tmp_path / "other.json")
                seconds = check_recovery(other, promise, kept)
        else:
            # The next run of this machine: the job knows that the notice is not meant for it.
            gone = tmp_path / "nothing.json"
            gone.write_text("{}")
            went_on_at = finish(tmp_path, daemon, gone)
            seconds = check_recovery(daemon, promise, kept)
    assert seconds == pytest.approx(went_on_at - interrupted, abs=1.0)

    done = steps_in(log)
    assert [step for _, step, _ in done] == list(range(1, STEPS + 1))
    assert done[saved - 1][0] != done[saved][0]  # another process, from the very next step
    assert done[-1][2] == final_weight(STEPS)
    assert not (tmp_path / "interrupted.json").exists()


def test_ranks_leave_at_the_same_step_though_one_machine_alone_is_taken_away(
    launch: Launch, tmp_path: Path
) -> None:
    """Rank 1 hears of it and rank 0 does not: both save after the same step, and go on together."""
    notices, calm = tmp_path / "notices.json", tmp_path / "calm.json"
    calm.write_text("{}")
    with metadata("aws") as mock:
        daemon = launch(
            f"provider: aws, endpoint: {mock.url}",
            more=TRAINING.format(file=notices, promise="< 2 minutes"),
        )
        daemon.wait_for("/metrics", has('spot_interruption_notice{provider="aws"} 0'))

        def start_all(heard: Path) -> list[subprocess.Popen[bytes]]:
            return [
                train(tmp_path, daemon, heard if rank else calm, RANK=str(rank), WORLD_SIZE="2")
                for rank in range(2)
            ]

        jobs = start_all(notices)
        until(lambda: reached(tmp_path / "log", 5))
        mock.say(PATHS["aws"], NOTICES["aws"])
        assert [job.wait(30) for job in jobs] == [143, 143]
        done = steps_in(tmp_path / "log")
        last = {str(job.pid): max(n for pid, n, _ in done if pid == str(job.pid)) for job in jobs}
        assert len(set(last.values())) == 1
        daemon.wait_for("/metrics", has('train_interruptions_total{run="spot-run"} 1'))
        for vote in tmp_path.glob("vote.*"):
            vote.unlink()
        again = start_all(calm)
        assert [job.wait(60) for job in again] == [0, 0]
        recoveries = 'train_interruption_recoveries_total{run="spot-run"} 1'
        page = daemon.wait_for("/metrics", has(recoveries))
        assert "\ntrain_runs_failed_total 0\n" in page
        assert '\ntrain_interruptions_total{run="spot-run"} 1\n' in page


def finish(folder: Path, daemon: Daemon, notices: Path) -> float:
    """Start the job again after a second and let it end; return when its first step ended."""
    time.sleep(1.0)
    before = len(steps_in(folder / "log"))
    job = train(folder, daemon, notices)
    until(lambda: len(steps_in(folder / "log")) > before)
    first = time.time()
    assert job.wait(60) == 0
    return first


def check_recovery(daemon: Daemon, promise: str, kept: int) -> float:
    """Return the recovery that the daemon has timed, after a look at the promise."""
    recoveries = 'train_interruption_recoveries_total{run="spot-run"} 1'
    page = daemon.wait_for("/metrics", has(recoveries))
    assert "\ntrain_runs_failed_total 0\n" in page
    seconds = daemon.value('train_interruption_seconds_total{run="spot-run"}')
    assert seconds is not None
    assert daemon.value('train_recovery_seconds{run="spot-run"}') == seconds
    limit = 120 if "minutes" in promise else 0.5
    assert (seconds <= limit) == bool(kept)
    found = re.search(
        r'^sla_compliance_ratio\{[^}]*objective="checkpoint_recovery_time[^}]*window="1h"\} (\S+)$',
        page, re.MULTILINE,
    )  # fmt: skip
    assert found is not None, page
    assert float(found[1]) == kept
    return seconds


def until(true: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)
