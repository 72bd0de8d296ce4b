"""Who is told what the cloud announces: a file, webhooks, and a real Alertmanager."""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter import catalogue as c
from exporter.clock import SystemClock
from exporter.config.notices import NotifySettings
from exporter.notices import Instance, Notice, NoticeBoard, Outlook
from exporter.plans.estate import Estate
from exporter.plans.spot import _notify_plans
from exporter.samples import Fault, Sample
from exporter.sinks.notices import AlertmanagerSink, NoticeFile, Webhook
from tests.fakes import FakeClock
from tests.servers import Server, reply
from tests.test_daemon import free_port

HERE = Instance("aws", "spot", "p5.48xlarge", "us-east-1a", "i-0123")
SOON = Notice("interruption", "terminate", 1_800_000_000.0, 1_800_000_120.0)
WORK = Notice("maintenance", "reboot", 1_800_000_000.0, 1_800_500_000.0, "event-7", "new firmware")


class Receiver:
    """Takes posts, or fails as long as it is to."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.failing: Exception | None = None
        self.tries = 0

    def __call__(self, body: bytes) -> None:
        self.tries += 1
        if self.failing is not None:
            raise self.failing
        self.bodies.append(json.loads(body))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def board() -> NoticeBoard:
    board = NoticeBoard()
    board.put(Outlook(HERE, lead=120.0, checked=1.8e9))
    return board


def announce(board: NoticeBoard, *notices: Notice) -> None:
    board.put(Outlook(HERE, notices, lead=120.0, checked=1.8e9))


def told(sink: Any) -> tuple[dict[str, float], list[Fault]]:
    """Read once; return the counts by result, and the faults."""
    items = list(sink.read())
    counts = {
        one.labels[1]: one.value
        for one in items
        if isinstance(one, Sample) and one.metric is c.FLOPWATCH_NOTIFICATIONS_TOTAL
    }
    return counts, [one for one in items if isinstance(one, Fault)]


# ---------------------------------------------------------------- the file


def test_the_file_says_what_holds_and_that_we_live(
    board: NoticeBoard, clock: FakeClock, tmp_path: Path
) -> None:
    """Readable by jobs of other users, replaced whole, written at once and each ten seconds."""
    path = tmp_path / "notices.json"
    sink = NoticeFile(path, board, clock, boot="b-1")
    list(sink.read())
    found = json.loads(path.read_text())
    assert (found["boot"], found["interrupted"], found["notices"]) == ("b-1", False, [])
    assert stat.S_IMODE(path.stat().st_mode) == 0o644

    announce(board, SOON)
    clock.advance(1)
    list(sink.read())
    found = json.loads(path.read_text())
    assert found["interrupted"] is True
    (one,) = found["notices"]
    assert (one["deadline"], one["action"], one["seconds_left"]) == (
        1_800_000_120.0, "terminate", 119.0
    )  # fmt: skip
    assert found["instance_type"] == "p5.48xlarge"

    written, before = found["written"], path.stat().st_ino
    clock.advance(9)
    list(sink.read())
    assert path.stat().st_ino == before
    clock.advance(1)
    list(sink.read())
    assert json.loads(path.read_text())["written"] == written + 10
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["notices.json"]


def test_a_file_is_not_written_through_a_link(
    board: NoticeBoard, clock: FakeClock, tmp_path: Path
) -> None:
    """Nobody who may write to the directory makes us write elsewhere."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".notices.json.new").symlink_to(victim)
    (tmp_path / "notices.json").symlink_to(victim)
    list(NoticeFile(tmp_path / "notices.json", board, clock).read())
    assert victim.read_text() == "precious"
    assert not (tmp_path / "notices.json").is_symlink()


def test_a_file_that_could_not_be_written_is_written_at_the_next_look(
    board: NoticeBoard, clock: FakeClock, tmp_path: Path
) -> None:
    """A failed source would wait up to a minute, and the warning is half of that."""
    path = tmp_path / "later" / "notices.json"
    sink = NoticeFile(path, board, clock)
    announce(board, SOON)
    for _ in range(3):
        (fault,) = sink.read()
        assert "No such file" in fault.detail
        clock.advance(1)
    path.parent.mkdir()
    assert list(sink.read()) == []
    assert json.loads(path.read_text())["interrupted"] is True


def test_before_the_cloud_was_asked_no_file_says_that_all_is_well(
    clock: FakeClock, tmp_path: Path
) -> None:
    path = tmp_path / "notices.json"
    list(NoticeFile(path, NoticeBoard(), clock).read())
    assert not path.exists()


# ---------------------------------------------------------------- webhooks


def test_a_webhook_is_told_of_changes_only(board: NoticeBoard, clock: FakeClock) -> None:
    receiver = Receiver()
    sink = Webhook("hook", receiver, board, clock, node="n7")
    for _ in range(3):
        told(sink)
    assert receiver.bodies == []
    announce(board, SOON, WORK)
    for _ in range(3):
        told(sink)
    announce(board, SOON)
    told(sink)
    assert [len(body["notices"]) for body in receiver.bodies] == [2, 1]
    assert receiver.bodies[0]["node"] == "n7"
    assert receiver.bodies[0]["notices"][0]["kind"] == "interruption"


def test_a_webhook_that_fails_is_tried_again_within_five_seconds(
    board: NoticeBoard, clock: FakeClock
) -> None:
    """The failure counts and is a fault; nothing is lost, and nobody is stormed."""
    receiver = Receiver()
    receiver.failing = ConnectionError("down")
    sink = Webhook("hook", receiver, board, clock, node="n7")
    announce(board, SOON)
    for _ in range(31):
        counts, faults = told(sink)
        clock.advance(1)
    assert 6 <= receiver.tries <= 9
    assert (counts["failed"], counts["sent"]) == (receiver.tries, 0)
    assert [fault.reason for fault in faults] == ["unavailable"]
    receiver.failing = None
    clock.advance(5)
    assert told(sink) == ({"sent": 1, "failed": receiver.tries - 1}, [])
    assert receiver.bodies[0]["interrupted"] is True


# ---------------------------------------------------------------- Alertmanager


def test_alerts_are_repeated_while_they_hold_and_resolved_when_withdrawn(
    board: NoticeBoard, clock: FakeClock
) -> None:
    receiver = Receiver()
    sink = AlertmanagerSink(
        "am", receiver, board, clock, node="n7", labels={"team": "ml"}, resend=60.0
    )
    told(sink)
    assert receiver.bodies == []
    announce(board, SOON, WORK)
    for _ in range(61):
        told(sink)
        clock.advance(1)
    assert len(receiver.bodies) == 2
    first, again = receiver.bodies
    assert [alert["labels"]["alertname"] for alert in first] == [
        "SpotInterruption", "HostMaintenance"
    ]  # fmt: skip
    assert first[0]["labels"] == {
        "alertname": "SpotInterruption", "severity": "ticket", "component": "spot",
        "node": "n7", "provider": "aws",
        "team": "ml",
    }  # fmt: skip
    assert first[0]["startsAt"] == "2027-01-15T08:00:00.000+00:00"
    assert first[0]["endsAt"] == "2027-01-15T08:03:00.000+00:00"
    assert again[0]["endsAt"] > first[0]["endsAt"]

    announce(board, SOON)
    told(sink)
    ends = {a["labels"]["alertname"]: a["endsAt"] for a in receiver.bodies[-1]}
    assert ends["HostMaintenance"] < ends["SpotInterruption"]
    clock.advance(60)
    told(sink)
    assert [a["labels"]["alertname"] for a in receiver.bodies[-1]] == ["SpotInterruption"]


def test_a_notice_that_comes_while_the_receiver_is_away_comes_through(
    board: NoticeBoard, clock: FakeClock
) -> None:
    """Down for two hours, then an interruption: told within five seconds of its return."""
    receiver = Receiver()
    receiver.failing = TimeoutError("no answer")
    sink = AlertmanagerSink("am", receiver, board, clock, node="n7", labels={})
    announce(board, WORK)
    for _ in range(1200):
        told(sink)
        clock.advance(6)
    announce(board, WORK, SOON)
    receiver.failing = None
    clock.advance(5)
    told(sink)
    assert len(receiver.bodies[-1]) == 2


def test_a_clock_that_was_set_back_makes_no_alert_that_begins_after_its_end(
    board: NoticeBoard,
) -> None:
    """Alertmanager refuses such a one, and would at each try until the clock has caught up."""
    receiver, clock = Receiver(), FakeClock(wall=SOON.seen - 7200)
    sink = AlertmanagerSink("am", receiver, board, clock, node="n7", labels={}, resend=60.0)
    announce(board, SOON, WORK)
    told(sink)
    announce(board, SOON)
    told(sink)
    sent = [alert for body in receiver.bodies for alert in body]
    assert len(sent) == 4
    assert all(alert["startsAt"] <= alert["endsAt"] for alert in sent)


CONFIG = """
route: {receiver: none, group_wait: 0s}
receivers: [{name: none}]
"""


@pytest.fixture
def alertmanager(tool: Callable[[str], str], tmp_path: Path) -> Iterator[str]:
    """A real Alertmanager on loopback; its address."""
    file, port = tmp_path / "alertmanager.yml", free_port()
    file.write_text(CONFIG)
    command = [
        tool("alertmanager"), f"--config.file={file}", f"--storage.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
        "--log.level=error",
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{port}"
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(f"{url}/-/ready", timeout=5).close()
            break
        except OSError:
            threading.Event().wait(0.1)
    yield url
    process.terminate()
    process.communicate(timeout=30)


def alerts(url: str) -> dict[str, dict[str, Any]]:
    """Return what is firing, by name."""
    with urllib.request.urlopen(f"{url}/api/v2/alerts?active=true", timeout=10) as answer:
        return {one["labels"]["alertname"]: one for one in json.load(answer)}


def test_a_real_alertmanager_fires_and_resolves(alertmanager: str) -> None:
    """Through the plan that the settings make: v2 API, labels, start, and the end."""
    clock = SystemClock()
    estate = Estate(clock)
    settings = NotifySettings.model_validate(
        {"file": False, "alertmanagers": [{"name": "am", "url": alertmanager}],
         "labels": {"team": "ml"}}
    )  # fmt: skip
    (plan,) = _notify_plans(settings, estate)
    sink = plan.make()
    now = clock.time()
    soon = SOON._replace(seen=now, deadline=now + 120)
    announce(estate.notices, soon, WORK._replace(seen=now))
    counts, faults = told(sink)
    assert (counts, faults) == ({"sent": 1, "failed": 0}, [])
    found = alerts(alertmanager)
    assert set(found) == {"SpotInterruption", "HostMaintenance"}
    assert found["SpotInterruption"]["labels"]["team"] == "ml"
    assert found["SpotInterruption"]["status"]["state"] in {"active", "unprocessed"}
    assert found["HostMaintenance"]["labels"]["event"] == "event-7"

    announce(estate.notices, soon)
    told(sink)
    assert set(alerts(alertmanager)) == {"SpotInterruption"}


# ---------------------------------------------------------------- secrets


def test_an_address_in_a_file_is_in_no_message(tmp_path: Path) -> None:
    """It is read at each use, and a receiver that refuses does not bring it to the light."""
    asked: list[bytes] = []

    def refuse(connection: socket.socket) -> None:
        asked.append(connection.recv(65536))
        connection.sendall(reply(status="500 Oops"))

    server = Server(refuse)
    secret = tmp_path / "hook"
    secret.write_text(server.url("/services/T000/B000/hushhush") + "\n")
    settings = NotifySettings.model_validate(
        {"file": False, "webhooks": [{"name": "chat", "url_file": str(secret)}]}
    )
    estate = Estate(FakeClock())
    (plan,) = _notify_plans(settings, estate)
    sink = plan.make()
    announce(estate.notices, SOON)
    _, faults = told(sink)
    assert "HTTP 500" in faults[0].detail
    assert "hushhush" not in faults[0].detail
    assert asked[0].startswith(b"POST /services/T000/B000/hushhush ")
    server.close()
    estate.clock.wait(threading.Event(), 10)
    _, faults = told(sink)
    assert "hushhush" not in faults[0].detail + repr(plan)
    secret.unlink()
    estate.clock.wait(threading.Event(), 10)
    _, faults = told(sink)
    assert "No such file" in faults[0].detail


def test_the_query_of_an_address_is_in_no_message() -> None:
    """Not in that of a receiver that refuses, either."""

    def refuse(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(reply(status="500 Oops"))

    server = Server(refuse)
    settings = NotifySettings.model_validate(
        {"file": False, "webhooks": [{"name": "chat", "url": server.url("/hook?key=hushhush")}]}
    )
    estate = Estate(FakeClock())
    (plan,) = _notify_plans(settings, estate)
    announce(estate.notices, SOON)
    _, faults = told(plan.make())
    server.close()
    assert faults[0].detail.endswith("/hook: HTTP 500")
