"""The node's pods by an API server's list and watch, and by a kubelet, over real TLS."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from exporter import catalogue as c
from exporter.attribution.pods import PodBoard
from exporter.board import Board
from exporter.clock import SystemClock
from exporter.discovery.api import MOST_PODS, Access, ApiWatch, KubeletPods
from exporter.formats.podlist import Pod
from exporter.runner import Runner, Schedule
from exporter.samples import Fault, Malformed, SourceError
from exporter.sources.pods import PodsSource
from tests.api_server import ApiServer, api_server, pod
from tests.fakes import FakeClock


class Shifted(SystemClock):
    """The real time, and what a test adds to it."""

    shift = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.shift


class Dice(Random):
    """Chance that is none: whatever is waited for is due at once."""

    def uniform(self, a: float, b: float) -> float:
        return a


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with api_server(tmp_path) as made:
        (tmp_path / "token").write_text("first\n")
        yield made


def access(server: ApiServer, folder: Path, *, timeout: float = 5.0) -> Access:
    return Access(server.url, timeout, folder / "token", folder / "cert.pem")


@pytest.fixture
def clock() -> Shifted:
    return Shifted()


@pytest.fixture
def watch(server: ApiServer, tmp_path: Path, clock: Shifted) -> Iterator[ApiWatch]:
    made = ApiWatch(access(server, tmp_path), "node1", clock, Dice())
    yield made
    made.close()


def names(pods: list[Pod] | None) -> list[str]:
    return sorted(one.name for one in pods or [])


def until(reader: ApiWatch | KubeletPods, wanted: Callable[[list[Pod]], bool]) -> list[Pod]:
    """Read on until the pods are as wanted."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        pods = reader.pods()
        if pods is not None and wanted(pods):
            return pods
        threading.Event().wait(0.02)
    raise AssertionError(f"not within 20 s; there are {names(reader.pods())}")


def has(*wanted: str) -> Callable[[list[Pod]], bool]:
    return lambda pods: names(pods) == sorted(wanted)


def kinds(server: ApiServer) -> list[str]:
    return [kind for kind, _ in server.asked]


def test_pods_are_listed_once_and_then_told(server: ApiServer, watch: ApiWatch) -> None:
    """dcgm-exporter 551: a list per scrape. Here one list, one watch, whatever happens."""
    server.put(pod("a"))
    server.put(pod("elsewhere", node="node2"))
    assert names(watch.pods()) == ["a"]
    server.put(pod("b", ready=False))
    server.put(pod("far", node="node2"))
    (_, found) = until(watch, has("a", "b"))
    assert not found.serves
    server.put(pod("b"))
    until(watch, lambda pods: all(one.serves for one in pods))
    server.remove(pod("a")["metadata"]["uid"])
    until(watch, has("b"))
    for _ in range(200):
        watch.pods()
    assert kinds(server) == ["list", "watch"]
    (_, listed), (_, watched) = server.asked
    assert listed == {"fieldSelector": "spec.nodeName=node1", "resourceVersion": "0"}
    assert watched["fieldSelector"] == "spec.nodeName=node1"
    assert watched["allowWatchBookmarks"] == "true"
    assert 240 <= int(watched["timeoutSeconds"]) <= 420
    assert (watch.tally.lists, watch.tally.watches, watch.tally.changes) == (1, 1, 3)


def test_a_watch_that_ends_is_taken_up_where_it_was(
    server: ApiServer, watch: ApiWatch, clock: Shifted
) -> None:
    """After its timeout, and after a bookmark: no list, and nothing that is told twice."""
    server.put(pod("a"))
    watch.pods()
    server.bookmark()
    end = time.monotonic() + 20
    while watch._version != str(server._version) and time.monotonic() < end:
        watch.pods()
    version = watch._version
    clock.shift += 60
    server.end_watches()
    server.put(pod("b"))
    until(watch, has("a", "b"))
    assert kinds(server) == ["list", "watch", "watch"]
    assert server.asked[-1][1]["resourceVersion"] == version


@pytest.mark.parametrize("by_status", [False, True], ids=["event", "status"])
def test_after_a_version_that_is_gone_pods_are_listed_again(
    server: ApiServer, watch: ApiWatch, clock: Shifted, *, by_status: bool
) -> None:
    """410: while nobody was told a pod has gone, which only a new list shows."""
    server.put(pod("a"))
    server.put(pod("b"))
    watch.pods()
    server.compacts_by_status = by_status
    server.remove(pod("a")["metadata"]["uid"])
    watch.pods()
    clock.shift += 60
    server.put(pod("c"))
    server.compact()
    server.end_watches()
    until(watch, has("b", "c"))
    assert kinds(server).count("list") == 2
    server.put(pod("d"))
    until(watch, has("b", "c", "d"))


def test_a_connection_that_is_cut_is_made_again(
    server: ApiServer, watch: ApiWatch, clock: Shifted
) -> None:
    """A load balancer's timeout: from the version that was seen last, without a list."""
    server.put(pod("a"))
    watch.pods()
    clock.shift += 60
    server.cut()
    server.put(pod("b"))
    until(watch, has("a", "b"))
    assert kinds(server) == ["list", "watch", "watch"]


def test_a_watch_that_is_cut_at_once_each_time_is_a_failure(
    server: ApiServer, watch: ApiWatch
) -> None:
    """The runner waits longer and longer then; the pods that were known stay."""
    server.put(pod("a"))
    watch.pods()
    server.cut()
    with pytest.raises(ConnectionError, match="cut at once"):
        until(watch, has("never"))
    assert names(watch.pods()) == ["a"]


@pytest.mark.parametrize("status", [400, 500, 504])
def test_a_version_that_is_refused_again_and_again_is_given_up(
    server: ApiServer, watch: ApiWatch, clock: Shifted, status: int
) -> None:
    """A cluster that was restored from a backup: its pods stayed as they were, for ever."""
    server.put(pod("a"))
    watch.pods()
    clock.shift += 60
    server.unknown = (watch._version, status)
    server.end_watches()
    server.remove(pod("a")["metadata"]["uid"])
    server.put(pod("b"))
    end = time.monotonic() + 20
    found: list[Pod] | None = None
    while names(found) != ["b"] and time.monotonic() < end:
        with suppress(SourceError):
            found = watch.pods()
    assert names(found) == ["b"]
    assert kinds(server).count("list") == 2


def test_a_token_that_has_expired_is_read_anew(
    server: ApiServer, watch: ApiWatch, clock: Shifted, tmp_path: Path
) -> None:
    """401, until the kubelet has written the next one: NTH 229 needed a restart."""
    server.put(pod("a"))
    watch.pods()
    clock.shift += 60
    server.token = "second"
    server.end_watches()
    with pytest.raises(SourceError, match="401 to the watch: the token is not taken") as error:
        until(watch, has("never"))
    assert error.value.reason == "denied"
    (tmp_path / "token").write_text("second\n")
    server.put(pod("b"))
    until(watch, has("a", "b"))
    assert "second" not in str(error.value)


def test_without_the_right_to_list_the_reason_is_said(server: ApiServer, watch: ApiWatch) -> None:
    """403 names the verbs that are missing."""
    server.status = 403
    with pytest.raises(
        SourceError, match="403: may not be read; wanted are list and watch"
    ) as error:
        watch.pods()
    assert error.value.reason == "denied"
    server.status = 429
    with pytest.raises(SourceError, match="429: asked too often"):
        watch.pods()
    server.status = 0
    assert watch.pods() == []


def test_a_server_that_hangs_holds_nobody_for_long(server: ApiServer, tmp_path: Path) -> None:
    """The deadline of one answer, for a list and for a watch."""
    watch = ApiWatch(access(server, tmp_path, timeout=0.5), "node1", SystemClock(), Dice())
    server.delay = 3
    with pytest.raises(TimeoutError):
        watch.pods()
    server.delay = 0
    watch._list()
    server.delay = 3
    with pytest.raises(TimeoutError, match=r"no answer to the watch within 0\.5 s"):
        watch.pods()
    began = time.monotonic()
    watch.close()
    assert time.monotonic() - began < 1


def test_another_certificate_is_not_trusted(server: ApiServer, tmp_path: Path) -> None:
    """And the token is not sent: TLS comes first."""
    other = tmp_path / "other"
    other.mkdir()
    with api_server(other):
        pass
    wrong = Access(server.url, 5.0, tmp_path / "token", other / "cert.pem")
    with pytest.raises(ConnectionError, match="certificate"):
        ApiWatch(wrong, "node1", SystemClock(), Dice()).pods()
    assert server.asked == []


def test_daemons_of_a_cluster_do_not_all_come_at_once() -> None:
    """Two hundred started together, and after an API server's restart: spread over seconds."""
    dice = Random(7)
    clock = FakeClock()
    there = Access("https://127.0.0.1:1", 1.0)
    made = [ApiWatch(there, "n", clock, dice) for _ in range(200)]
    due = sorted(one._due - clock.monotonic() for one in made)
    assert due[0] < 0.5
    assert due[-1] > 4.5
    made[0].pods()  # nothing is asked before it is due
    assert made[0].tally.lists == 0


def test_a_node_of_many_pods_is_bounded(server: ApiServer, watch: ApiWatch) -> None:
    """dcgm-exporter 536: gigabytes. Of a pod neither its variables nor its other notes are kept."""
    for at in range(300):
        server.put(pod(f"p{at}"))
    pods = watch.pods()
    assert pods is not None
    assert len(pods) == 300 < MOST_PODS
    kept = repr(pods[0])
    assert len(kept) < 1000
    assert "never-to-be-kept" not in kept
    assert "xxxx" not in kept


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", ConnectionError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", Malformed),
        (b"SSH-2.0-OpenSSH\r\n\r\n", Malformed),
        (b'HTTP/1.1 200 OK\r\n\r\n{"kind":"PodList","items":[]}', Malformed),
    ],
    ids=["nothing", "text", "ssh", "no-version"],
)
def test_what_is_no_api_server_is_told(answer: bytes, error: type[Exception]) -> None:
    """Another server at the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        there = Access(f"http://127.0.0.1:{listener.getsockname()[1]}", 5.0)
        with pytest.raises(error):
            ApiWatch(there, "node1", SystemClock(), Dice()).pods()
        thread.join(10)


def test_pods_that_are_over_are_known_to_be(server: ApiServer, watch: ApiWatch) -> None:
    """kubernetes 119423: a kubelet goes on listing them with their GPUs; the API knows."""
    for name, phase in (("done", "Succeeded"), ("broken", "Failed"), ("runs", "Running")):
        server.put(pod(name, phase=phase))
    board = PodBoard()
    list(PodsSource(watch, board, FakeClock()).read())
    assert board.finished() == {("serving", "done"), ("serving", "broken")}


def test_who_is_over_is_not_told_for_long_without_being_asked(
    server: ApiServer, watch: ApiWatch
) -> None:
    """Another pod has the name by now; the names of those that are there stay true."""
    server.put(pod("done", phase="Succeeded"))
    board, clock = PodBoard(), FakeClock()
    source = PodsSource(watch, board, clock)
    list(source.read())
    server.status = 503
    server.cut()
    clock.advance(200)
    with suppress(SourceError, OSError):
        list(source.read())
    assert board.finished() == {("serving", "done")}
    clock.advance(200)
    with pytest.raises((SourceError, OSError)):
        list(source.read())
    assert board.finished() == set()
    assert [one.name for one in board.pods] == ["done"]
    server.status = 0
    while not board.finished():
        clock.advance(1)
        list(source.read())


# ---- the kubelet ------------------------------------------------------------------------------


def test_a_kubelet_is_asked_now_and_then(server: ApiServer, tmp_path: Path) -> None:
    """It has no watch; it answers from memory, and for all its pods."""
    server.put(pod("a"))
    clock = FakeClock()
    kubelet = KubeletPods(access(server, tmp_path), "/pods", clock, Dice(), every=15)
    assert names(kubelet.pods()) == ["a"]
    server.put(pod("b"))
    for _ in range(10):
        clock.advance(1)
        assert names(kubelet.pods()) == ["a"]
    clock.advance(10)
    assert names(kubelet.pods()) == ["a", "b"]
    assert kinds(server) == ["kubelet", "kubelet"]
    server.status = 403
    clock.advance(20)
    with pytest.raises(SourceError, match="nodes/pods"):
        kubelet.pods()
    kubelet.close()


# ---- as a source ------------------------------------------------------------------------------


def test_while_the_api_server_is_away_names_and_targets_stay(
    server: ApiServer, watch: ApiWatch, caplog: pytest.LogCaptureFixture
) -> None:
    """dcgm-exporter 342, 428: the last mapping holds, its age is told, and the log has one line."""
    server.put(pod("a"))
    board, pods, clock = Board(), PodBoard(), FakeClock()
    slot = board.enroll("pods", c.EXPORTER, 2, 10, clock.monotonic())
    source = PodsSource(watch, pods, clock)
    runner = Runner(source, Schedule(2, 10), slot, clock)
    runner.step()
    assert names(list(pods.pods)) == ["a"]
    uid = pod("a")["metadata"]["uid"]
    known = pods(uid, "a1" * 32)
    assert known is not None
    assert known == ("serving", "a", "main")
    server.status = 503
    server.cut()
    caplog.set_level(logging.INFO)
    waits = []
    for _ in range(8):
        waits.append(runner.step())
        clock.advance(waits[-1])
    assert waits[-1] > 30
    assert names(list(pods.pods)) == ["a"]
    health = board.view(clock.monotonic()).sources[0].health
    assert health.last_success is not None
    assert clock.time() - health.last_success > 60
    assert len([one for one in caplog.records if "source=pods" in one.message]) <= 2
    server.status = 0
    server.put(pod("b"))
    end = time.monotonic() + 20
    while len(pods.pods) < 2 and time.monotonic() < end:
        runner.step()
    assert names(list(pods.pods)) == ["a", "b"]


def test_a_token_without_the_right_is_no_failure_unless_pods_are_wanted(
    server: ApiServer, watch: ApiWatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every pod may have a token; said once, asked again after ten minutes: rights may come."""
    clock, pods = FakeClock(), PodBoard()
    server.status = 403
    quiet = PodsSource(watch, pods, clock, wanted=False)
    caplog.set_level(logging.INFO)
    for _ in range(50):
        assert [one for one in quiet.read() if isinstance(one, Fault)] == []
        clock.advance(2)
    assert len(server.asked) == len(caplog.records) == 1
    server.status = 0
    server.put(pod("a"))
    clock.advance(600)
    list(quiet.read())
    assert names(list(pods.pods)) == ["a"]
    server.status = 403
    with pytest.raises(SourceError):
        list(PodsSource(watch_of(watch), pods, clock, wanted=True).read())


def watch_of(watch: ApiWatch) -> ApiWatch:
    """Return another watch of the same."""
    return ApiWatch(watch._access, "node1", SystemClock(), Dice())


def test_kubectl_watches_the_same_server(server: ApiServer, tmp_path: Path) -> None:
    """The server of these tests is not made for our reader: the cluster's own client watches it."""
    kubectl = Path(sys.executable).parent / "kubectl"
    server.put(pod("a"))
    server.put(pod("elsewhere", node="node2"))
    command = [
        str(kubectl), "--kubeconfig", "/dev/null", "--server", server.url, "--token", server.token,
        "--certificate-authority", str(tmp_path / "cert.pem"), "--cache-dir", f"{tmp_path}/kube",
        "get", "pods", "-A", "--field-selector", "spec.nodeName=node1", "--watch",
        "-o", "jsonpath={.metadata.name}={.status.phase}{'\\n'}",
    ]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as one:
        try:
            assert one.stdout is not None
            assert one.stdout.readline() == "a=Running\n"
            server.bookmark()
            server.put(pod("b", phase="Pending"))
            assert one.stdout.readline() == "b=Pending\n"
            server.put(pod("b"))
            assert one.stdout.readline() == "b=Running\n"
        finally:
            one.kill()
    assert kinds(server).count("watch") == 1
