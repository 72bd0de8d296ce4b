"""Notices of clouds, from mock metadata services with each provider's own paths and failures."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from exporter import catalogue as c
from exporter.clouds import CLOUDS, Cloud, Service
from exporter.clouds.aws import Aws
from exporter.clouds.azure import Azure
from exporter.notices import NoticeBoard
from exporter.samples import Fault, Metric, Remembered, Sample
from exporter.sources.spot import SpotSource
from tests.fakes import FakeClock
from tests.metadata import (
    PATHS,
    TOKEN,
    Metadata,
    endless,
    half,
    hang,
    metadata,
    nonsense,
    only_this_machine,
    redirect,
)

NOTICES = {
    "aws": '{"action":"terminate","time":"2027-01-15T08:02:00Z"}',
    "gcp": "TRUE",
    "azure": json.dumps({"DocumentIncarnation": 2, "Events": [{
        "EventId": "602d9444-d2cd-49c7-8624-8643e7171297", "EventType": "Preempt",
        "ResourceType": "VirtualMachine", "Resources": ["gpu_3"], "EventStatus": "Scheduled",
        "NotBefore": "Fri, 15 Jan 2027 08:02:00 GMT", "Description": "", "EventSource": "Platform",
        "DurationInSeconds": -1}]}),
    "alibaba": "2027-01-15T08:02:00Z",
    "tencent": "2027-01-15 16:02:00",
}  # fmt: skip
DEADLINE = 1_800_000_120.0
"""What all of them say, in Unix seconds: two minutes after the fake clock's beginning."""


class Bench:
    """A source in front of a mock, and what it read last."""

    def __init__(
        self,
        mock: Metadata,
        *,
        make: Callable[[Service], Cloud] | None = None,
        memories: dict[str, Any] | None = None,
        boot: str = "boot-1",
        clock: FakeClock | None = None,
        url: str = "",
    ) -> None:
        self.mock = mock
        self.clock = clock or FakeClock()
        self.memories: dict[str, Any] = {} if memories is None else memories
        self.notices = NoticeBoard()
        service = Service(url or mock.url, self.clock, timeout=0.3)
        cloud = (make or CLOUDS[mock.provider])(service)
        self.source = SpotSource(
            cloud, self.notices, self.clock, boot=boot, memories=self.memories
        )  # fmt: skip
        self.items: list[Any] = []

    def poll(self, seconds: float = 11.0) -> Bench:
        """Let time pass until everything is due, and read."""
        self.clock.advance(seconds)
        self.items = list(self.source.read())
        return self

    def value(self, metric: Metric, *labels: str) -> float | None:
        provider = self.mock.provider
        return next(
            (float(one.value) for one in self.items  # type: ignore[arg-type]
             if isinstance(one, Sample) and one.metric is metric
             and one.labels == (provider, *labels)), None
        )  # fmt: skip

    @property
    def notice(self) -> float | None:
        return self.value(c.SPOT_INTERRUPTION_NOTICE)

    def polls(self, result: str) -> float | None:
        return self.value(c.SPOT_POLLS_TOTAL, result)

    @property
    def faults(self) -> dict[str, Fault]:
        return {one.part: one for one in self.items if isinstance(one, Fault)}


@pytest.fixture(autouse=True)
def _nobody_else() -> Iterator[None]:
    """No test here may speak to any other machine."""
    with only_this_machine() as tried:
        yield
    assert tried == []


@pytest.fixture
def mock(request: pytest.FixtureRequest) -> Iterator[Metadata]:
    with metadata(request.param) as running:
        yield running


each = pytest.mark.parametrize("mock", list(PATHS), indirect=True)
on_aws = pytest.mark.parametrize("mock", ["aws"], indirect=True)


@each
def test_a_notice_is_seen_at_the_next_poll(mock: Metadata) -> None:
    """404, FALSE and an empty list are the healthy answers; the notice has its time in Unix s."""
    bench = Bench(mock).poll()
    assert bench.notice == 0
    assert bench.faults == {}

    mock.say(PATHS[mock.provider], NOTICES[mock.provider])
    bench.poll()
    assert bench.notice == 1
    assert bench.value(c.SPOT_INTERRUPTIONS_TOTAL) == 1
    action = "stop" if mock.provider == "azure" else "terminate"
    deadline = bench.value(c.SPOT_INTERRUPTION_DEADLINE_TIMESTAMP_SECONDS, action)
    if mock.provider == "gcp":
        assert deadline is None  # Google gives no time, and none is made up
        assert bench.value(c.SPOT_NOTICE_LEAD_SECONDS) is None
    else:
        assert deadline == DEADLINE
        assert bench.value(c.SPOT_NOTICE_LEAD_SECONDS) == pytest.approx(DEADLINE - 1_800_000_022)


@pytest.mark.parametrize(
    ("mock", "lifecycle", "kind", "zone"),
    [
        ("aws", "spot", "p5.48xlarge", "us-east-1a"),
        ("gcp", "spot", "a3-highgpu-8g", "us-central1-a"),
        ("azure", "spot", "Standard_ND96isr_H100_v5", "eastus-2"),
        ("alibaba", "", "ecs.gn8v.48xlarge", "cn-beijing-i"),
        ("tencent", "spot", "HCCPNV5.48XLARGE", "ap-beijing-6"),
        ("oci", "", "BM.GPU.H100.8", "Uocm:PHX-AD-1"),
    ],
    indirect=["mock"],
)
def test_the_machine_is_told(mock: Metadata, lifecycle: str, kind: str, zone: str) -> None:
    assert Bench(mock).poll().value(c.SPOT_INSTANCE_INFO, lifecycle, kind, zone) == 1


@pytest.mark.parametrize("mock", ["oci"], indirect=True)
def test_oracle_documents_no_notice_and_that_is_said(mock: Metadata) -> None:
    """No value of the notice: 0 would say that none is coming."""
    bench = Bench(mock).poll()
    assert bench.value(c.SPOT_NOTICE_SUPPORTED) == 0
    assert bench.notice is None
    assert bench.value(c.SPOT_INTERRUPTIONS_TOTAL) is None


# ---------------------------------------------------------------- what goes wrong


@each
@pytest.mark.parametrize(
    ("fault", "result", "reason"),
    [
        (401, "unauthorized", "denied"),
        (403, "forbidden", "denied"),
        (429, "throttled", "unavailable"),
        (500, "server_error", "unavailable"),
        (503, "server_error", "unavailable"),
        (418, "malformed", "malformed"),
        (hang, "timeout", "timeout"),
        (half, "unreachable", "unavailable"),
        (endless, "malformed", "malformed"),
        (nonsense, "malformed", "malformed"),
        (redirect("http://192.0.2.1/latest"), "redirected", "unavailable"),
    ],
)
def test_a_bad_answer_is_counted_and_takes_no_notice_away(
    mock: Metadata, fault: Any, result: str, reason: str
) -> None:
    """It is a fault with its reason; what was announced stays announced, and it recovers."""
    path = PATHS[mock.provider]
    bench = Bench(mock).poll()
    mock.say(path, NOTICES[mock.provider])
    assert bench.poll().notice == 1

    mock.fail(path, fault)
    before = bench.polls(result)
    bench.poll()
    assert bench.notice == 1
    assert bench.polls(result) == (before or 0) + 1
    assert [fault.reason for fault in bench.faults.values()] == [reason]

    mock.fail(path, None)
    assert bench.poll().faults == {}
    assert bench.value(c.SPOT_INTERRUPTIONS_TOTAL) == 1


@each
def test_without_an_answer_nothing_is_said_to_be_well(mock: Metadata) -> None:
    """0 means that the service has just said so; a broken service says nothing."""
    bench = Bench(mock).poll()
    assert bench.notice == 0
    mock.fail("", 500)
    assert bench.poll(6).notice == 0  # a single failure within a quarter of a minute
    for _ in range(3):
        bench.poll(6)
    assert bench.notice is None
    assert bench.polls("server_error") >= 3  # type: ignore[operator]


@each
def test_a_refused_connection_is_no_crash(mock: Metadata) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    bench = Bench(mock, url=f"http://127.0.0.1:{port}").poll()
    assert bench.notice is None
    assert bench.polls("unreachable") >= 1  # type: ignore[operator]


@on_aws
def test_nth_74_packets_that_a_firewall_drops_are_a_timeout_with_a_fault(mock: Metadata) -> None:
    """No connection comes about: that is told, by another name than the hop limit."""
    with socket.socket() as full, socket.socket() as first:
        full.bind(("127.0.0.1", 0))
        full.listen(0)  # room for one; the kernel drops what comes after it
        first.connect(full.getsockname())
        bench = Bench(mock, url=f"http://127.0.0.1:{full.getsockname()[1]}").poll()
        assert bench.polls("timeout") >= 1  # type: ignore[operator]
        assert bench.polls("token_timeout") == 0
        assert bench.faults["spot"].reason == "timeout"
        assert "no connection within" in bench.faults["spot"].detail


@each
def test_a_proxy_in_the_environment_is_not_asked(
    mock: Metadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://192.0.2.9:3128")
    assert Bench(mock).poll().notice == 0


@each
def test_a_notice_outlives_later_answers_and_failures(mock: Metadata) -> None:
    """NTH 146: visible until the machine is gone, though the service forgets it."""
    path = PATHS[mock.provider]
    healthy = mock.pages.get(path)
    bench = Bench(mock)
    mock.say(path, NOTICES[mock.provider])
    assert bench.poll().notice == 1
    if healthy is None:
        mock.unsay(path)
    else:
        mock.say(path, healthy)
    for _ in range(10):
        assert bench.poll(60).notice == 1
    assert bench.value(c.SPOT_INTERRUPTIONS_TOTAL) == 1


@on_aws
def test_a_notice_is_to_be_remembered_at_once(mock: Metadata) -> None:
    """Not with the next save, which may be a minute away; other news may wait."""
    bench = Bench(mock).poll()
    mock.say(PATHS["aws"], NOTICES["aws"])
    bench.poll()
    assert bench.memories["spot"].urgent
    bench.source.close()
    assert not bench.memories["spot"].urgent


@each
def test_a_notice_outlives_the_daemon_but_not_the_boot(mock: Metadata) -> None:
    path = PATHS[mock.provider]
    healthy = mock.pages.get(path)
    bench = Bench(mock)
    mock.say(path, NOTICES[mock.provider])
    bench.poll()
    bench.source.close()
    mock.pages.pop(path)
    if healthy is not None:
        mock.say(path, healthy)
    remembered = bench.memories["spot"]
    assert isinstance(remembered, Remembered)
    kept = remembered._replace(plain=json.loads(json.dumps(remembered.plain)))

    again = Bench(mock, memories={"spot": kept}, clock=bench.clock).poll()
    assert again.notice == 1
    assert again.value(c.SPOT_INTERRUPTIONS_TOTAL) == 1

    other = Bench(mock, memories={"spot": kept}, clock=bench.clock, boot="boot-2").poll()
    assert other.notice == 0
    assert other.value(c.SPOT_INTERRUPTIONS_TOTAL) == 1  # it has been, and is not forgotten


@on_aws
@pytest.mark.parametrize(
    "plain",
    [None, [], {}, {"provider": "aws", "boot": "boot-1", "polls": {}, "book": {}},
     {"provider": "aws", "boot": "boot-1", "polls": {},
      "book": {"interruptions": -1, "notices": []}},
     {"provider": "aws", "boot": "boot-1", "polls": {},
      "book": {"interruptions": 1, "notices": [["spot", "interruption", "x", "soon"]]}},
     {"provider": "aws", "boot": "boot-1", "polls": {"none": "many"}, "book": {}}],
)  # fmt: skip
def test_a_memory_that_makes_no_sense_is_told_and_costs_nothing(mock: Metadata, plain: Any) -> None:
    memories = {"spot": Remembered(plain, 1000.0, final=True)}
    bench = Bench(mock, memories=memories).poll()
    assert bench.faults["memory"].reason == "malformed"
    assert bench.notice == 0
    assert bench.poll().faults == {}


# ---------------------------------------------------------------- AWS


@on_aws
def test_nth_229_a_token_that_is_not_accepted_is_replaced(mock: Metadata) -> None:
    """All tokens are void: one new one, one retry, and no token is sent twice in a request."""
    bench = Bench(mock).poll()
    assert mock.issued == 1
    mock.tokens.clear()
    bench.poll()
    assert bench.faults == {}
    assert bench.notice == 0
    assert mock.issued == 2


@on_aws
def test_nth_668_tokens_that_are_never_accepted_end_nothing(mock: Metadata) -> None:
    """Each read is tried with one new token and no more; the daemon goes on."""
    path = PATHS["aws"]
    bench = Bench(mock).poll()
    mock.fail(path, 401)
    asked = len(mock.asked(path))
    bench.poll()
    assert len(mock.asked(path)) == asked + 2
    assert bench.polls("unauthorized") == 1
    assert bench.faults["spot"].reason == "denied"
    for _ in range(5):
        bench.poll()
    mock.fail(path, None)
    mock.say(path, NOTICES["aws"])
    assert bench.poll().notice == 1


@on_aws
def test_a_token_is_asked_for_once_an_hour(mock: Metadata) -> None:
    """And before it expires, not after."""
    bench = Bench(mock).poll()
    for _ in range(59):
        bench.poll(60)
    assert mock.issued == 1
    bench.poll(60)
    assert mock.issued == 2
    assert bench.polls("unauthorized") == 0
    lifetimes = {one.headers["x-aws-ec2-metadata-token-ttl-seconds"] for one in mock.asked(TOKEN)}
    assert lifetimes == {"3600"}


@on_aws
def test_the_hop_limit_is_named(mock: Metadata) -> None:
    """A connection, and never a token: the answer's packets end at the bridge."""
    mock.fail(TOKEN, hang)
    bench = Bench(mock).poll()
    assert bench.notice is None
    assert bench.polls("token_timeout") >= 1  # type: ignore[operator]
    assert bench.polls("timeout") == 0
    assert "hop limit" in bench.faults["instance"].detail
    mock.fail(TOKEN, None)
    assert bench.poll(40).notice == 0


@on_aws
def test_a_metadata_service_that_is_switched_off_says_so(mock: Metadata) -> None:
    mock.fail(TOKEN, 403)
    bench = Bench(mock).poll()
    assert bench.polls("forbidden") >= 1  # type: ignore[operator]
    assert "switched off" in bench.faults["spot"].detail


@on_aws
def test_an_overloaded_service_is_not_stormed_for_tokens(mock: Metadata) -> None:
    """After 503 the pause grows to five seconds, whoever wants a token."""
    mock.fail(TOKEN, 503)
    bench = Bench(mock)
    for _ in range(60):
        bench.poll(1)
    assert 10 <= len(mock.asked(TOKEN)) <= 20


@on_aws
def test_without_tokens_nothing_is_read_unless_it_is_allowed(mock: Metadata) -> None:
    """A 404 for the token means an old service; reading without one is the operator's choice."""
    mock.fail(TOKEN, 404)
    assert Bench(mock).poll().notice is None
    assert {one.path for one in mock.requests} == {TOKEN}

    bench = Bench(mock, make=lambda service: Aws(service, tokenless=True)).poll()
    assert bench.polls("unauthorized") >= 1  # type: ignore[operator] - this mock wants tokens
    assert any(one.path == PATHS["aws"] for one in mock.requests)


@on_aws
def test_a_notice_in_the_past_still_holds(mock: Metadata) -> None:
    mock.say(PATHS["aws"], '{"action":"stop","time":"2027-01-15T07:00:00Z"}')
    bench = Bench(mock).poll()
    assert bench.notice == 1
    assert bench.value(c.SPOT_NOTICE_LEAD_SECONDS) == 0
    (told,) = bench.notices.document(bench.clock.time())["notices"]
    assert (told["action"], told["seconds_left"]) == ("stop", 0)


@on_aws
@pytest.mark.parametrize("time", ["soon", "", None, 17, "0001-01-01T00:00:00Z", "9" * 500])
def test_a_notice_without_a_usable_time_is_a_notice(mock: Metadata, time: Any) -> None:
    mock.say(PATHS["aws"], json.dumps({"action": "terminate", "time": time}))
    bench = Bench(mock).poll()
    assert bench.notice == 1
    assert bench.value(c.SPOT_INTERRUPTION_DEADLINE_TIMESTAMP_SECONDS, "terminate") is None


@on_aws
def test_the_older_path_alone_is_enough(mock: Metadata) -> None:
    """And what is no time there is no notice."""
    path = "/latest/meta-data/spot/termination-time"
    bench = Bench(mock)
    mock.say(path, "shutting down?")
    assert bench.poll().notice == 0
    mock.say(path, "2027-01-15T08:02:00Z")
    assert bench.poll().notice == 1


@on_aws
def test_a_rebalance_recommendation_comes_alone(mock: Metadata) -> None:
    bench = Bench(mock).poll()
    assert bench.value(c.SPOT_REBALANCE_NOTICE) == 0
    path = "/latest/meta-data/events/recommendations/rebalance"
    mock.say(path, '{"noticeTime":"2027-01-15T08:00:00Z"}')
    bench.poll()
    assert bench.value(c.SPOT_REBALANCE_NOTICE) == 1
    assert bench.notice == 0


def scheduled(state: str) -> str:
    return json.dumps([{
        "NotBefore": "21 Jan 2027 09:00:43 GMT", "NotAfter": "21 Jan 2027 09:17:23 GMT",
        "Code": "system-reboot", "Description": "scheduled reboot",
        "EventId": "instance-event-0d59937288b749b32", "State": state}])  # fmt: skip


@on_aws
@pytest.mark.parametrize("state", ["canceled", "completed", None])
def test_scheduled_work_is_withdrawn(mock: Metadata, state: str | None) -> None:
    """By its state, or because it is told no more; a failed poll withdraws nothing."""
    path = "/latest/meta-data/events/maintenance/scheduled"
    mock.say(path, scheduled("active"))
    bench = Bench(mock).poll()
    deadline = c.SPOT_MAINTENANCE_DEADLINE_TIMESTAMP_SECONDS
    assert bench.value(c.SPOT_MAINTENANCE_NOTICE) == 1
    assert bench.value(deadline, "reboot") == 1_800_522_043
    mock.fail(path, 500)
    assert bench.poll().value(c.SPOT_MAINTENANCE_NOTICE) == 1
    mock.fail(path, None)
    mock.say(path, "[]" if state is None else scheduled(state))
    bench.poll()
    assert bench.value(c.SPOT_MAINTENANCE_NOTICE) == 0
    assert bench.value(deadline, "reboot") is None


@on_aws
def test_a_machine_on_demand_is_not_asked_for_interruptions(mock: Metadata) -> None:
    """Nor is said that none is announced: nobody has asked."""
    mock.say("/latest/meta-data/instance-life-cycle", "on-demand")
    bench = Bench(mock).poll()
    assert mock.asked(PATHS["aws"]) == []
    assert bench.notice is None
    assert bench.value(c.SPOT_MAINTENANCE_NOTICE) == 0


@on_aws
def test_a_machine_that_slept_has_been_hibernated(mock: Metadata) -> None:
    """It wakes with the same boot id; what was announced is over then, and only then."""
    mock.say(PATHS["aws"], '{"action":"hibernate","time":"2027-01-15T08:02:00Z"}')
    bench = Bench(mock).poll()
    mock.unsay(PATHS["aws"])
    assert bench.poll(60).notice == 1
    assert bench.poll(3600).notice == 0


# ---------------------------------------------------------------- Google


@pytest.mark.parametrize("mock", ["gcp"], indirect=True)
def test_the_hanging_question_returns_at_once_when_there_is_news(mock: Metadata) -> None:
    """After the first answer the service is asked to wait for a change, with the tag it gave."""
    import threading
    import time

    bench = Bench(mock).poll()
    threading.Timer(0.3, mock.say, (PATHS["gcp"], "TRUE")).start()
    began = time.monotonic()
    bench.poll(1)
    assert bench.notice == 1
    assert 0.2 < time.monotonic() - began < 1.5
    query = mock.asked(PATHS["gcp"])[-1].query
    assert query.startswith("wait_for_change=true&last_etag=")


@pytest.mark.parametrize("mock", ["gcp"], indirect=True)
def test_maintenance_of_the_host_ends(mock: Metadata) -> None:
    path = "/computeMetadata/v1/instance/maintenance-event"
    mock.say(path, "TERMINATE_ON_HOST_MAINTENANCE")
    bench = Bench(mock).poll()
    assert bench.value(c.SPOT_MAINTENANCE_NOTICE) == 1
    (told,) = bench.notices.document(0)["notices"]
    assert told["action"] == "terminate"
    mock.say(path, "NONE")
    assert bench.poll().value(c.SPOT_MAINTENANCE_NOTICE) == 0


@pytest.mark.parametrize("mock", ["gcp"], indirect=True)
def test_planned_maintenance_has_its_window(mock: Metadata) -> None:
    path = "/computeMetadata/v1/instance/upcoming-maintenance"
    mock.say(path, json.dumps({
        "can_reschedule": "TRUE", "maintenance_status": "PENDING", "type": "SCHEDULED",
        "window_start_time": "2027-01-20T05:00:00-08:00",
        "window_end_time": "2027-01-20T09:00:00-08:00",
    }))  # fmt: skip
    bench = Bench(mock).poll()
    deadline = bench.value(c.SPOT_MAINTENANCE_DEADLINE_TIMESTAMP_SECONDS, "maintenance")
    assert deadline == 1_800_450_000


# ---------------------------------------------------------------- Azure

on_azure = pytest.mark.parametrize("mock", ["azure"], indirect=True)


def events(*entries: dict[str, Any]) -> str:
    return json.dumps({"DocumentIncarnation": 7, "Events": entries})


def event(kind: str, *names: str, status: str = "Scheduled") -> dict[str, Any]:
    started = status == "Started"
    return {"EventId": f"{kind}-1", "EventType": kind, "ResourceType": "VirtualMachine",
            "Resources": list(names), "EventStatus": status,
            "NotBefore": "" if started else "Fri, 15 Jan 2027 08:10:00 GMT",
            "Description": "Host server is undergoing maintenance."}  # fmt: skip


@on_azure
def test_a_neighbours_event_is_not_ours(mock: Metadata) -> None:
    """The list names all machines of the scale set that are affected."""
    bench = Bench(mock)
    mock.say(PATHS["azure"], events(event("Preempt", "gpu_2", "gpu_33"), event("Reboot", "gpu_1")))
    assert bench.poll().notice == 0
    assert bench.value(c.SPOT_MAINTENANCE_NOTICE) == 0
    mock.say(PATHS["azure"], events(event("Preempt", "gpu_2", "_GPU_3")))
    assert bench.poll().notice == 1


@on_azure
def test_aks_3528_an_event_that_has_started_when_it_is_first_seen(mock: Metadata) -> None:
    """It has no time any more, and is a notice all the same."""
    mock.say(PATHS["azure"], events(event("Preempt", "gpu_3", status="Started")))
    bench = Bench(mock).poll()
    assert bench.notice == 1
    assert bench.value(c.SPOT_INTERRUPTION_DEADLINE_TIMESTAMP_SECONDS, "stop") is None


@on_azure
def test_an_event_that_vanishes_is_over_unless_it_is_an_eviction(mock: Metadata) -> None:
    bench = Bench(mock)
    mock.say(PATHS["azure"], events(event("Freeze", "gpu_3"), event("Preempt", "gpu_3")))
    bench.poll()
    assert bench.value(c.SPOT_MAINTENANCE_NOTICE) == 1
    mock.say(PATHS["azure"], events())
    bench.poll()
    assert bench.value(c.SPOT_MAINTENANCE_NOTICE) == 0
    assert bench.notice == 1


@on_azure
def test_aks_4757_a_machine_without_a_name_cries_for_nobody(mock: Metadata) -> None:
    """Which events are ours is not known while its name is not: that is a fault, and it heals."""
    mock.fail("/metadata/instance/compute", 500)
    mock.say(PATHS["azure"], NOTICES["azure"])
    bench = Bench(mock).poll()
    assert bench.notice is None
    assert bench.faults["events"].reason == "unavailable"
    mock.fail("/metadata/instance/compute", None)
    assert bench.poll().notice == 1


@on_azure
@pytest.mark.parametrize("after", [None, 30.0])
def test_events_are_approved_only_if_that_is_wanted(mock: Metadata, after: float | None) -> None:
    """Once each: an approval lets the event begin."""
    mock.say(PATHS["azure"], events(event("Redeploy", "gpu_3"), event("Reboot", "gpu_2")))
    bench = Bench(mock, make=lambda service: Azure(service, acknowledge_after=after))
    for _ in range(10):
        bench.poll(10)
    posted = [json.loads(one.body) for one in mock.requests if one.method == "POST"]
    assert posted == ([] if after is None else [{"StartRequests": [{"EventId": "Redeploy-1"}]}])


@on_azure
def test_an_eviction_is_told_though_its_approval_fails(mock: Metadata) -> None:
    """Who may approve nothing, or asks too late, still knows that the machine goes."""

    def approves_nothing(handler: Any) -> None:
        handler.reply(500 if handler.command == "POST" else 200, NOTICES["azure"])

    bench = Bench(mock, make=lambda service: Azure(service, acknowledge_after=0.0)).poll()
    assert bench.notice == 0
    mock.fail(PATHS["azure"], approves_nothing)
    assert bench.poll().notice == 1
    assert bench.polls("server_error") == 1
    assert bench.faults["events"].detail.startswith("server_error")


@pytest.mark.parametrize(
    ("mock", "path"),
    [("azure", PATHS["azure"]), ("gcp", PATHS["gcp"]),
     ("gcp", "/computeMetadata/v1/instance/maintenance-event")],
    indirect=["mock"],
)  # fmt: skip
def test_who_does_not_know_a_path_that_is_always_there_says_nothing(
    mock: Metadata, path: str
) -> None:
    """404 is the healthy answer on AWS; from Google and Azure it is that of somebody else."""
    mock.unsay(path)
    bench = Bench(mock).poll()
    metric = c.SPOT_MAINTENANCE_NOTICE if path.endswith("event") else c.SPOT_INTERRUPTION_NOTICE
    assert bench.value(metric) is None
    assert bench.polls("malformed") == 1


# ---------------------------------------------------------------- who is asked


@pytest.mark.parametrize("host", ["192.0.2.7", "10.0.0.1", "[2001:db8::1]"])
def test_nobody_is_asked_who_is_not_on_this_link(host: str) -> None:
    """Not even a connection is tried."""
    from exporter.clouds import Refusal

    with pytest.raises(Refusal, match="no address that may be asked"):
        Service(f"http://{host}", FakeClock()).get("/")
