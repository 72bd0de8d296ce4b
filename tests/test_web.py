"""The web room, driven as the ASGI application it is: no server, no client library."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from exporter.requests import AUTHENTICATED
from exporter.web import PageKey, Services, accepts_gzip, create_app, is_local, negotiate

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; charset=utf-8"
GROUPS = ("host", "nic", "serving", "exporter")

# What the scrapers send, from their sources.
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


class Answer(NamedTuple):
    """A whole HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Header = tuple[str, str]


def ask(
    services: Services,
    path: str,
    *headers: Header,
    method: str = "GET",
    query: str = "",
    client: tuple[str, int] | None = ("192.0.2.7", 40000),
    authenticated: bool = False,
    version: str = "1.1",
) -> Answer:
    """Send one request straight into a new application and return what it sends back."""
    sent: list[Mapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": version,
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
        "client": client,
        "server": ("192.0.2.1", 9810),
        AUTHENTICATED: authenticated,
    }
    asyncio.run(create_app(services)(scope, receive, send))
    start = sent[0]
    return Answer(
        start["status"],
        {name.decode(): value.decode() for name, value in start["headers"]},
        b"".join(message.get("body", b"") for message in sent[1:]),
    )


@dataclass
class Pages:
    """Stands in for the exposition: remembers what it was asked for, and in which thread."""

    asked: list[PageKey] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)
    scrapes: int = 0

    def page(self, key: PageKey) -> bytes:
        self.asked.append(key)
        self.threads.add(threading.get_ident())
        groups, openmetrics, gzipped = key
        body = f"{sorted(groups or GROUPS)} {'# EOF' if openmetrics else ''}\n".encode()
        return gzip.compress(body) if gzipped else body

    def scraped(self) -> None:
        self.scrapes += 1


async def no_push(scope: Any, receive: Any) -> Any:
    raise AssertionError("nothing was pushed")


@pytest.fixture
def pages() -> Pages:
    return Pages()


@pytest.fixture
def services(pages: Pages) -> Iterator[Services]:
    """A healthy and ready daemon with nothing in the cache and no reload over HTTP."""

    def history(since: int | None) -> dict[str, Any]:
        return {"newest": 7, "series": [{"name": str(since)}, {"name": "b"}]}

    with ThreadPoolExecutor(1) as executor:
        yield Services(
            groups=GROUPS,
            at_once=lambda _: None,
            page=pages.page,
            healthy=lambda: True,
            ready=lambda: True,
            status=lambda detailed: {"detailed": detailed},
            history=history,
            notices=lambda detailed: {"detailed": detailed, "notices": []},
            reload=None,
            release=lambda _: {},
            remote_control=lambda: False,
            inside=dict,
            scraped=pages.scraped,
            push=no_push,
            executor=executor,
            chores=executor,
            releases=executor,
        )


# ---------------------------------------------------------------- which format


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        pytest.param(PROMETHEUS_2, OPENMETRICS, id="Prometheus 2.42"),
        pytest.param(PROMETHEUS_3, f"{OPENMETRICS}; escaping=allow-utf-8", id="Prometheus 3"),
        pytest.param(
            PROMETHEUS_3.replace("allow-utf-8", "underscores"),
            f"{OPENMETRICS}; escaping=underscores",
            id="Prometheus 3, legacy names",
        ),
        pytest.param(f"{PROTOBUF};q=0.7,{PROMETHEUS_2}", OPENMETRICS, id="protobuf too"),
        pytest.param(f"{PROTOBUF},text/plain;version=0.0.4;q=0.3", TEXT, id="protobuf first"),
        pytest.param(PROTOBUF, TEXT, id="protobuf only"),
        pytest.param(BROWSER, TEXT, id="browser"),
        pytest.param("", TEXT, id="empty"),
        pytest.param("*/*", TEXT, id="curl"),
        pytest.param("text/*", TEXT, id="any text"),
        pytest.param(",;,; q=,=;=", TEXT, id="garbage"),
        pytest.param("text/plain", TEXT, id="no version"),
        pytest.param("TEXT/PLAIN; Version=0.0.4", TEXT, id="capitals"),
        pytest.param('text/plain; version="0.0.4"', TEXT, id="quotes"),
        pytest.param(
            "text/plain;version=1.0.0;escaping=allow-utf-8",
            "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8",
            id="text 1.0.0",
        ),
        pytest.param("application/openmetrics-text", OPENMETRICS, id="OpenMetrics, no version"),
        pytest.param(
            "application/openmetrics-text;version=0.0.1",
            OPENMETRICS.replace("1.0.0", "0.0.1"),
            id="OpenMetrics 0.0.1",
        ),
        pytest.param("application/openmetrics-text;version=2.0.0", TEXT, id="OpenMetrics 2"),
        pytest.param("application/openmetrics-text;escaping=new\r\nx", OPENMETRICS, id="escaping"),
        pytest.param("application/openmetrics-text;q=0,*/*", TEXT, id="refused by q=0"),
        pytest.param("application/openmetrics-text;q=nan,*/*;q=0.1", TEXT, id="q=nan"),
        pytest.param("application/openmetrics-text;q=7,*/*;q=0.1", TEXT, id="q above 1"),
        pytest.param("text/plain;q=0.2,application/openmetrics-text;q=0.3", OPENMETRICS, id="best"),
        pytest.param("text/plain;q=0.3,application/openmetrics-text;q=0.3", TEXT, id="first"),
    ],
)
def test_format_follows_the_accept_header(accept: str, content_type: str) -> None:
    """The format that the caller likes best is served; text 0.0.4 where none of ours is liked."""
    assert negotiate(accept).content_type == content_type
    assert negotiate(accept).openmetrics is content_type.startswith("application/")


def test_negotiated_format_is_what_is_rendered(services: Services, pages: Pages) -> None:
    """The content type and the page agree, and caches are told what the answer depends on."""
    answer = ask(services, "/metrics", ("Accept", PROMETHEUS_2))
    assert answer.status == 200
    assert answer.headers["content-type"] == OPENMETRICS
    assert answer.headers["vary"] == "Accept, Accept-Encoding"
    assert answer.headers["cache-control"] == "no-store"
    assert pages.asked == [(None, True, False)]


def test_no_accept_header_means_text(services: Services, pages: Pages) -> None:
    """A request without an Accept header gets text 0.0.4."""
    assert ask(services, "/metrics").headers["content-type"] == TEXT
    assert pages.asked == [(None, False, False)]


def test_accept_header_may_be_split(services: Services) -> None:
    """Several Accept headers mean the same as one with commas."""
    answer = ask(
        services, "/metrics",
        ("Accept", "text/plain;q=0.1"), ("Accept", "application/openmetrics-text"),
    )  # fmt: skip
    assert answer.headers["content-type"] == OPENMETRICS


@pytest.mark.parametrize(
    ("query", "content_type"),
    [
        ("format=text", TEXT),
        ("format=openmetrics", OPENMETRICS),
        ("format=text&format=openmetrics", OPENMETRICS),
    ],
)
def test_format_parameter_beats_the_header(
    services: Services, query: str, content_type: str
) -> None:
    """`format=` in the address decides, for people with a browser."""
    answer = ask(services, "/metrics", ("Accept", PROMETHEUS_3), query=query)
    assert answer.headers["content-type"] == content_type


@pytest.mark.parametrize("query", ["format=json", "format="])
def test_unknown_format_is_refused(services: Services, pages: Pages, query: str) -> None:
    """A format that does not exist is an error of the caller, not silently text."""
    answer = ask(services, "/metrics", query=query)
    assert (answer.status, answer.body) == (400, b"format is text or openmetrics\n")
    assert not pages.asked


# ---------------------------------------------------------------- which groups


@pytest.mark.parametrize(
    "query",
    [
        "group=nic&group=host",
        "collect[]=nic&collect[]=host",
        "collect%5B%5D=nic&group=host",
        "group=nic&group=nic&group=host&other=x",
    ],
)
def test_groups_can_be_asked_for_alone(services: Services, pages: Pages, query: str) -> None:
    """`group=` and Prometheus' own `collect[]=` choose groups, in any mixture."""
    assert ask(services, "/metrics", query=query).status == 200
    assert pages.asked == [(frozenset({"host", "nic"}), False, False)]


@pytest.mark.parametrize("query", ["group=gpus", "group=", "group=nic&collect[]=gpus"])
def test_unknown_group_is_refused(services: Services, pages: Pages, query: str) -> None:
    """A group that does not exist is answered with the list of those that do."""
    answer = ask(services, "/metrics", query=query)
    assert answer.status == 400
    assert answer.headers["content-type"] == PLAIN
    assert answer.body.endswith(b"there are host, nic, serving, exporter\n")
    assert not pages.asked
    assert pages.scrapes == 0


@pytest.mark.parametrize("name", ["x" * 10_000, "\ud7ff\n\x00<script>", "%FF%FE"])
def test_unknown_group_is_quoted_harmlessly(services: Services, name: str) -> None:
    """Whatever the name is, the answer is one short printable line of plain text."""
    query = "group=" + (name if name.startswith("%") else quote(name))
    answer = ask(services, "/metrics", query=query)
    assert answer.status == 400
    assert len(answer.body) < 400
    assert answer.body.count(b"\n") == 1


# ---------------------------------------------------------------- compression


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("deflate, gzip;q=0.5, br", True),
        ("GZIP", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0, identity", False),
        ("gzip;q=lots", False),
        ("identity", False),
        ("br, zstd", False),
        ("xgzip", False),
        ("", False),
    ],
)
def test_gzip_is_a_choice_of_the_caller(header: str, accepted: bool) -> None:
    """The page is compressed only for those who say that they can read it."""
    assert accepts_gzip(header) is accepted


def test_compressed_page_says_so(services: Services, pages: Pages) -> None:
    """A compressed page carries its encoding and the length of what is sent."""
    answer = ask(services, "/metrics", ("Accept-Encoding", "gzip"))
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["content-length"] == str(len(answer.body))
    assert gzip.decompress(answer.body).startswith(b"['exporter'")
    assert pages.asked == [(None, False, True)]


def test_uncompressed_page_has_no_encoding(services: Services) -> None:
    """Refusing gzip leaves the page as it is."""
    answer = ask(services, "/metrics", ("Accept-Encoding", "gzip;q=0"))
    assert "content-encoding" not in answer.headers
    assert answer.body.startswith(b"['exporter'")


# ---------------------------------------------------------------- the cache, and threads


def test_cached_page_is_not_rendered(services: Services, pages: Pages) -> None:
    """A page that is still true is served as it is; it counts as a scrape all the same."""
    asked: list[PageKey] = []

    def at_once(key: PageKey) -> bytes:
        asked.append(key)
        return b"kept 1\n"

    answer = ask(replace(services, at_once=at_once), "/metrics", query="group=nic")
    assert answer.body == b"kept 1\n"
    assert asked == [(frozenset({"nic"}), False, False)]
    assert not pages.asked
    assert pages.scrapes == 1


def test_empty_cached_page_is_a_page(services: Services, pages: Pages) -> None:
    """A group without series is an empty page, not a miss."""
    answer = ask(replace(services, at_once=lambda _: b""), "/metrics")
    assert (answer.status, answer.body) == (200, b"")
    assert not pages.asked


def test_rendering_leaves_the_event_loop_free(services: Services, pages: Pages) -> None:
    """A page is rendered in another thread than the one that answers."""
    ask(services, "/metrics")
    assert len(pages.threads) == 1
    assert threading.get_ident() not in pages.threads


# ---------------------------------------------------------------- methods and paths


@pytest.mark.parametrize("path", ["/metrics", "/-/healthy", "/-/ready", "/"])
def test_head_is_get_without_the_body(services: Services, path: str) -> None:
    """HEAD answers with the headers of GET, the length of the page included, and no body."""
    get, head = (ask(services, path, method=method) for method in ("GET", "HEAD"))
    assert (head.status, head.headers, head.body) == (get.status, get.headers, b"")
    assert head.headers["content-length"] == str(len(get.body))


@pytest.mark.parametrize("path", ["/metrics", "/-/healthy", "/-/ready", "/"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_is_written_to_a_page(
    services: Services, pages: Pages, path: str, method: str
) -> None:
    """Other methods are refused, and the answer says which ones there are."""
    answer = ask(services, path, method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    assert not pages.asked


def test_root_leads_to_the_status_page(services: Services) -> None:
    """Whoever types the bare address arrives at the status page."""
    answer = ask(services, "/")
    assert (answer.status, answer.headers["location"]) == (307, "/status")


@pytest.mark.parametrize("path", ["/nothing", "/metrics/", "/docs", "/openapi.json", "/-/quit"])
def test_unknown_path_is_not_found(services: Services, path: str) -> None:
    """There is nothing beyond the pages that are documented."""
    assert ask(services, path).status == 404


@pytest.mark.parametrize("path", ["/status", "/api/v1/status"])
def test_status_is_read_only(services: Services, path: str) -> None:
    """The status can be read, not written."""
    assert ask(services, path, method="POST").status == 405


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
def test_other_protocols_get_no_answer(services: Services, kind: str) -> None:
    """Only HTTP is spoken here."""

    async def receive() -> dict[str, Any]:
        raise AssertionError

    async def send(_: Mapping[str, Any]) -> None:
        raise AssertionError

    asyncio.run(create_app(services)({"type": kind}, receive, send))


# ---------------------------------------------------------------- health


@pytest.mark.parametrize(("well", "status"), [(True, 200), (False, 503)])
@pytest.mark.parametrize("path", ["/-/healthy", "/-/ready"])
def test_health_checks(services: Services, path: str, well: bool, status: int) -> None:
    """Each check asks its own question only, and says the answer in words too."""
    question = path.removeprefix("/-/")
    unwell = replace(services, healthy=lambda: False, ready=lambda: False)
    changed = replace(unwell, **{question: lambda: well})
    answer = ask(changed, path)
    assert answer.status == status
    assert answer.headers["content-type"] == PLAIN
    assert answer.body.endswith(b"\n")
    assert (answer.body == f"{question}\n".encode()) is well


# ---------------------------------------------------------------- who sees what


@pytest.mark.parametrize(
    ("client", "headers", "local"),
    [
        (("127.0.0.1", 1), (), True),
        (("127.8.9.1", 1), (), True),
        (("::1", 1), (), True),
        (("::ffff:127.0.0.1", 1), (), True),
        (("::ffff:192.0.2.7", 1), (), False),
        (("192.0.2.7", 1), (), False),
        (("2001:db8::1", 1), (), False),
        (("fe80::1%eth0", 1), (), False),
        (("testclient", 1), (), False),
        (("", 0), (), False),
        (None, (), False),
        (("127.0.0.1", 1), (("X-Forwarded-For", "127.0.0.1"),), False),
        (("127.0.0.1", 1), (("Forwarded", "for=192.0.2.7"),), False),
        (("::1", 1), (("X-Real-IP", "::1"),), False),
        (("127.0.0.1", 1), (("Host", "localhost:9810"),), True),
        (("::1", 1), (("Host", "[::1]:9810"),), True),
        (("127.0.0.1", 1), (("Host", "node.example"),), False),
    ],
)
def test_details_are_for_callers_on_the_node(
    services: Services,
    client: tuple[str, int] | None,
    headers: Sequence[Header],
    local: bool,
) -> None:
    """Full error texts go to loopback only, and not through a proxy that sits there."""
    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    assert is_local({"client": client, "headers": raw}) is local
    answer = ask(services, "/api/v1/status", *headers, client=client)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.body) == {"detailed": local}


@pytest.mark.parametrize("host", ["192.0.2.1:9810", "[2001:db8::1]", "0.0.0.0", "10.0.0.1"])
def test_who_is_passed_on_by_a_silent_proxy_is_not_on_the_node(host: str) -> None:
    """Envoy, HAProxy and socat leave the address that was asked; loopback it is not."""
    scope = {"client": LOCAL, "headers": [(b"host", host.encode())]}
    assert not is_local(scope)


@pytest.mark.parametrize("path", ["/-/reload", "/-/release", "/-/debug"])
def test_a_proxy_that_speaks_http_1_0_lets_nobody_steer(services: Services, path: str) -> None:
    """nginx, as it is set up by default, says neither that it is one nor for whom it asks."""
    held = replace(services, reload=lambda: ())
    assert ask(held, path, method="POST", client=LOCAL).status == 200
    assert ask(held, path, method="POST", client=LOCAL, version="1.0").status == 403


def test_status_is_not_kept_by_anyone(services: Services) -> None:
    """The state of now is worthless later: caches are told so."""
    assert ask(services, "/api/v1/status").headers["cache-control"] == "no-store"


def test_status_page_may_do_little(services: Services) -> None:
    """The page is HTML; the browser is told to fetch from here only and to show it in no frame.

    Nothing that stands in the page itself is run or styles it: only files of the daemon do.
    """
    answer = ask(services, "/status")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.body.startswith(b"<!doctype html>")
    policy = dict(
        rule.strip().split(" ", 1) for rule in answer.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    for kind in ("connect-src", "script-src", "style-src"):
        assert policy[kind] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["base-uri"] == "'none'"
    assert policy["form-action"] == "'none'"
    assert not any(
        word in rule for rule in policy.values() for word in ("http", "*", "unsafe-eval")
    )
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("name", "kind"), [("page.css", "text/css"), ("main.js", "text/javascript")]
)
def test_files_of_the_page_are_served_by_name(services: Services, name: str, kind: str) -> None:
    """Styles and scripts come from the daemon, under the same guard as the page."""
    answer = ask(services, f"/status/{name}")
    assert answer.status == 200
    assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["nothing.js", "..%2fweb.py", "%2e%2e/web.py", "../web.py", ".."])
def test_other_files_are_not_served(services: Services, name: str) -> None:
    """There are the files of the page and no way out of their directory."""
    assert ask(services, f"/status/{name}").status == 404


@pytest.mark.parametrize(("query", "since"), [("", None), ("since=", None), ("since=12", 12)])
def test_history_is_told_whole_or_from_a_point(
    services: Services, query: str, since: int | None
) -> None:
    """Who has seen a part of it asks for the rest."""
    answer = ask(services, "/api/v1/history", query=query)
    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
    assert json.loads(answer.body) == {
        "newest": 7,
        "series": [{"name": str(since)}, {"name": "b"}],
    }


@pytest.mark.parametrize("since", ["-1", "1.5", "x", "9" * 16])
def test_a_point_is_a_number(services: Services, since: str) -> None:
    """Anything else is refused by name."""
    answer = ask(services, "/api/v1/history", query=f"since={since}")
    assert answer.status == 400
    assert b"since" in answer.body


# ---------------------------------------------------------------- reload

LOCAL = ("127.0.0.1", 50000)


def test_reload_is_off_unless_switched_on(services: Services) -> None:
    """Without the setting nobody can reload over HTTP, not even from this machine."""
    answer = ask(services, "/-/reload", method="POST", client=LOCAL)
    assert answer.status == 403
    assert "reload.http" in json.loads(answer.body)["error"]


@pytest.mark.parametrize("headers", [(), (("X-Forwarded-For", "127.0.0.1"),)])
def test_reload_is_for_callers_on_the_node(services: Services, headers: Sequence[Header]) -> None:
    """Where it is on, calls from elsewhere or through a proxy are refused and do nothing."""

    def reload() -> tuple[str, ...]:
        raise AssertionError

    client = LOCAL if headers else ("192.0.2.7", 40000)
    answer = ask(
        replace(services, reload=reload), "/-/reload", *headers, method="POST", client=client
    )
    assert answer.status == 403


@pytest.mark.parametrize(
    ("problems", "status"), [((), 200), (("listen: no port", "log: unknown level"), 500)]
)
def test_reload_reports_what_is_wrong(
    services: Services, problems: tuple[str, ...], status: int
) -> None:
    """A reload that worked is 200; one that did not is 500 with every problem."""
    answer = ask(
        replace(services, reload=lambda: problems), "/-/reload", method="POST", client=LOCAL
    )
    assert answer.status == status
    assert json.loads(answer.body) == {"problems": list(problems)}


def test_reload_is_not_for_links(services: Services) -> None:
    """GET changes nothing: a link or a crawler cannot reload."""
    answer = ask(replace(services, reload=tuple), "/-/reload", client=LOCAL)
    assert answer.status == 405


@pytest.mark.parametrize("path", ["/-/reload", "/-/release"])
def test_who_has_shown_who_it_is_may_control_from_afar_where_that_is_wished(
    services: Services, path: str
) -> None:
    """Not without the setting, not without a password or certificate, not from a page."""
    allowing = replace(services, reload=tuple, remote_control=lambda: True)

    def status(services: Services, *headers: Header, authenticated: bool = True) -> int:
        return ask(services, path, *headers, method="POST", authenticated=authenticated).status

    assert status(allowing) == 200
    assert status(allowing, authenticated=False) == 403
    assert status(allowing, ("Origin", "https://evil.example")) == 403
    assert status(allowing, ("Sec-Fetch-Site", "cross-site")) == 403
    assert status(replace(allowing, remote_control=lambda: False)) == 403


@pytest.mark.parametrize("path", ["/api/v1/status", "/spot"])
def test_who_has_shown_who_it_is_sees_details(services: Services, path: str) -> None:
    assert json.loads(ask(services, path, authenticated=True).body)["detailed"] is True
    assert json.loads(ask(services, path).body)["detailed"] is False


# ---------------------------------------------------------------- what the cloud announces


@pytest.mark.parametrize(("peer", "detailed"), [("127.0.0.1", True), ("10.1.2.3", False)])
def test_jobs_read_notices_and_only_this_machine_their_details(
    services: Services, peer: str, detailed: bool
) -> None:
    """It is answered from memory, without FastAPI, and kept by nobody."""
    answer = ask(services, "/spot", client=(peer, 4711))
    assert answer.status == 200
    assert json.loads(answer.body) == {"detailed": detailed, "notices": []}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert ask(services, "/spot", method="POST").status == 405
