"""The status page in a real browser: what it shows, and what nobody can make it do.

Chromium loads the page from the real application and prints the document as it stands after some
seconds of virtual time, which does not depend on the speed of the machine. A script put into the
page by a test acts as the user or the network would. With a real daemon: test_status_views.py.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser

from exporter.web import Services, create_app
from tests.browser import chromium, opened, pass_time
from tests.test_web import no_push

__all__ = ["chromium"]

FILES = Path(__file__).parent.parent / "exporter" / "page"
PAGE, STYLE = FILES / "index.html", FILES / "page.css"
MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
OVERRIDE = "\u202egnp.live\u202c"


# ---------------------------------------------------------------- the document


def source(name: str, group: str, state: str = "up", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "group": group,
        "state": state,
        "age_seconds": 1.2,
        "busy_seconds": None,
        "series": 40,
        "reads": 7,
        "read_duration_seconds": 0.0012,
        "last_success": 1795976003.0,
        "failures": {},
        "drops": {},
        "found": [],
        "faults": [],
        **more,
    }


def server(name: str, *models: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "server": name,
        "state": "up",
        "age_seconds": 0.5,
        "engine": "vllm",
        "version": "0.11.0",
        "models": list(models),
        "unresolved": [],
        **more,
    }


def status(
    *sources: Any, servers: Any = (), diagnoses: Any = (), uptime: float = 7500.0, **more: Any
) -> dict[str, Any]:
    config = {
        "file": "/etc/flopwatch/config.yaml",
        "from_file": True,
        "last_reload_successful": True,
        "loaded": 1795976000.1,
    }
    return {
        "flopwatch": {
            "version": "0.1.0",
            "uptime_seconds": uptime,
            "ready": True,
            "config": config,
            "series": {"host": 60, "nic": 1040},
            **more,
        },
        "detailed": True,
        "sources": list(sources),
        "servers": list(servers),
        "diagnoses": list(diagnoses),
    }


def part(name: str, detail: str) -> dict[str, str]:
    return {"part": name, "reason": "io", "detail": detail}


BUSY_NODE = status(
    source("host", "host", found=["6.8.0"], series=60),
    source(
        "network", "nic", "degraded", series=1040, failures={"io": 2312, "timeout": 4},
        found=["mlx5_0", MARKUP],
        faults=[part(f"mlx5_{i}/1", f"OSError: {MARKUP}") for i in range(11)],
    ),
    source("gpu", "gpu", "stuck", busy_seconds=95.2, age_seconds=97.1, series=0),
    source("topology", "topology", "stale", age_seconds=600.0, series=0),
    source(
        "inference:down", "serving", "failed", last_success=None, series=0,
        faults=[{"part": "", "reason": "timeout", "detail": "TimeoutError: no answer"}],
    ),
    source(
        "slurm", "slurm", "waiting", age_seconds=None, read_duration_seconds=None,
        last_success=None, series=0,
    ),
    source(MARKUP, "constructor", "__proto__", drops={"malformed": 1}),
    servers=[
        server(
            "chat",
            {
                "model_name": MARKUP, "active_requests": 3, "waiting_requests": 0,
                "kv_cache_usage_ratio": 0.41, "input_tokens_per_second": 60937.4,
                "requests_per_second": 1.25, "dollars_per_million_output_tokens": 3.2,
                "latency": {"ttft": {
                    "p50": {"seconds": 0.06}, "p99": {"seconds": 1.2},
                    "p95": {"seconds": 0.485, "lower": 0.25, "upper": 0.5},
                }},
            },
            {"model_name": OVERRIDE, "active_requests": 0, "kv_cache_usage_ratio": 0.0},
            unresolved=["llm_ttft_seconds"],
        ),
        server("down", state="failed", engine="", version=""),
    ],
    diagnoses=[
        {
            "run": MARKUP, "bottleneck": "communication_bound", "confirmed": False,
            "causes": ["exposed_communication", "link_errors"],
            "signals": {"gpu_utilization": 0.987, "memory_used": 0.914, "communication": 0.345},
        },
        {"run": "", "bottleneck": None, "confirmed": None, "causes": [], "signals": {}},
    ],
    ready=False,
    config={
        "file": "/etc/flopwatch/config.yaml", "from_file": True, "last_reload_successful": False,
        "loaded": 1795976000.1,
    },
)  # fmt: skip


# ---------------------------------------------------------------- serving it

Message = MutableMapping[str, Any]


@dataclass
class Site:
    """The real application; `reply` gives the status document of the nth question, from 0.

    A reply of `None` becomes HTTP 503. `script` is run in the page before its own, and `measure`
    in the end; what it returns is in `measured`. The page is `width` pixels wide.
    """

    reply: Callable[[int], Any]
    script: str = ""
    width: int = 1280
    measure: str = ""
    measured: Any = None
    history: Mapping[str, Any] = field(default_factory=lambda: {"series": []})
    paths: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    origin: str = ""
    asked: int = 0
    document: Any = None

    async def __call__(self, app: Any, scope: Message, receive: Any, send: Any) -> None:
        path = scope["path"]
        self.paths.append(path)
        if path == "/api/v1/status":
            self.document = self.reply(self.asked)
            self.asked += 1
        if path == "/api/v1/status" and self.document is None:
            await respond(send, 503, b"")
        else:
            await app(scope, receive, send)


async def respond(send: Any, code: int, body: bytes) -> None:
    headers = [(b"content-type", b"text/html; charset=utf-8")]
    await send({"type": "http.response.start", "status": code, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def served(site: Site) -> Iterator[Site]:
    """Serve the application on a free port of the loopback interface."""
    bound = socket.create_server(("127.0.0.1", 0), backlog=32)
    site.origin = f"http://127.0.0.1:{bound.getsockname()[1]}"
    with ThreadPoolExecutor(1) as executor:
        app = create_app(
            Services(
                groups=("host", "nic"),
                at_once=lambda _: b"",
                page=lambda _: b"",
                healthy=lambda: True,
                ready=lambda: True,
                status=lambda _: site.document,
                history=lambda _: site.history,
                notices=lambda _: {},
                reload=None,
                release=lambda _: {},
                remote_control=lambda: False,
                inside=dict,
                scraped=lambda: None,
                push=no_push,
                executor=executor,
                chores=executor,
                releases=executor,
            )
        )

        async def front(scope: Message, receive: Any, send: Any) -> None:
            await site(app, scope, receive, send)

        daemon = uvicorn.Server(
            uvicorn.Config(front, ws="none", lifespan="off", log_config=None, access_log=False)
        )
        thread = threading.Thread(target=daemon.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield site
        finally:
            daemon.should_exit = True
            thread.join()


# ---------------------------------------------------------------- looking at it


@dataclass
class Node:
    """An element of a printed document."""

    tag: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    children: list[Node | str] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            if isinstance(child, Node):
                yield from child.walk()

    def all(self, tag: str = "", **attributes: str) -> list[Node]:
        """Return the elements inside with this tag and these attributes (`data_x` is data-x)."""
        wanted = {name.rstrip("_").replace("_", "-"): v for name, v in attributes.items()}
        return [
            node
            for node in self.walk()
            if tag in {"", node.tag} and wanted.items() <= node.attributes.items()
        ]

    def one(self, tag: str = "", **attributes: str) -> Node:
        (node,) = self.all(tag, **attributes)
        return node

    @property
    def hidden(self) -> bool:
        return "hidden" in self.attributes

    @property
    def text(self) -> str:
        """All text inside that is not hidden, blanks made single and plain."""
        if self.hidden:
            return ""
        parts = (c if isinstance(c, str) else f" {c.text}" for c in self.children)
        return " ".join("".join(parts).split())


class Reader(HTMLParser):
    """Builds the tree of a serialized document."""

    VOID = frozenset(("br", "img", "input", "link", "meta"))

    def __init__(self) -> None:
        super().__init__()
        self.root = Node("")
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(node)
        if tag not in self.VOID:
            self._open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._open[-1].tag == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


def parse(html: str) -> Node:
    reader = Reader()
    reader.feed(html)
    return reader.root


Browse = Callable[..., Node]


@pytest.fixture(scope="module")
def browse(chromium: Browser) -> Browse:
    """Return a function from a site to its page as it stands after so many virtual milliseconds."""

    def look(site: Site, *, after: int = 5000) -> Node:
        with opened(
            chromium, f"{site.origin}/status", width=site.width, script=site.script, virtual=True
        ) as (page, log):
            pass_time(page, log, after)
            site.measured = page.evaluate(site.measure) if site.measure else None
            site.requests, site.console = log.requests, log.console
            return parse(page.content())

    return look


@dataclass
class Visit:
    """One look at a page, kept for several tests."""

    page: Node
    site: Site


@pytest.fixture(scope="module")
def busy_node(browse: Browse) -> Visit:
    """A node in every kind of trouble, with names chosen by someone hostile."""
    with served(Site(lambda _: BUSY_NODE)) as site:
        return Visit(browse(site), site)


def rows(page: Node, table: str) -> list[Node]:
    """Return the groups of rows of a table that belong to one source or server each."""
    return page.one("table", id=table).all("tbody")


def cells(row: Node) -> dict[str, str]:
    """Return the text of a row's cells by column."""
    return {
        cell.attributes["data-label"].strip(): cell.text
        for cell in row.walk()
        if "data-label" in cell.attributes
    }


# ---------------------------------------------------------------- what it shows


def test_daemon_is_summed_up(busy_node: Visit) -> None:
    """The head of the page says how many sources are up, what is wrong, and the daemon's facts."""
    page = busy_node.page
    assert page.one(id="lead").text.startswith(
        "1 of 7 sources is up: network is degraded, gpu is stuck, topology is stale,"
        " inference:down has failed, slurm is waiting, 1 more"
    )
    assert page.one(id="version").text == "0.1.0"
    assert page.one(id="uptime").text == "2 h 5 min"
    assert page.one(id="ready").text == "not yet"
    assert page.one(id="total").text == "1,100"
    assert page.one(id="config").text == "/etc/flopwatch/config.yaml"
    assert page.one(id="loaded").text.startswith("loaded 2026-11-29 18:13:20")
    assert not page.one(id="unready").hidden
    assert page.one("head").one("title").text == f"(6) flopwatch {busy_node.site.origin[7:]}"


def test_failed_reload_is_prominent(busy_node: Visit) -> None:
    """A failed reload has a notice that says what is in force and how to see the reason."""
    notice = busy_node.page.one(id="reload")
    assert "The last reload of the configuration failed." in notice.text
    assert "2026-11-29 18:13:20 is still in force" in notice.text
    assert "flopwatch check /etc/flopwatch/config.yaml" in notice.text


def test_every_source_has_its_row(busy_node: Visit) -> None:
    """A source is shown with its state, times and counts."""
    host, network, *_ = rows(busy_node.page, "sources")
    assert cells(host) == {
        "State": "up", "Source": "host", "Series": "60", "Age": "1.2 s", "Read time": "1.2 ms",
        "Found": "6.8.0", "Failures": "0", "Dropped": "0",
    }  # fmt: skip
    assert cells(network)["Source"] == "network nic"
    assert cells(network)["Failures"] == "2,312 io 4 timeout"
    assert cells(rows(busy_node.page, "sources")[-1])["Dropped"] == "1 malformed"


def test_state_is_a_word_and_a_shape(busy_node: Visit) -> None:
    """Each state has a shape of its own, so that nothing hangs on colour; so have new states."""
    states = [body.all("span", class_="state")[0] for body in rows(busy_node.page, "sources")]
    assert [state.text for state in states] == [
        "up", "degraded", "stuck", "stale", "failed", "waiting", "__proto__",
    ]  # fmt: skip
    shapes = [state.one("svg") for state in states]
    drawn = [repr(shape.children) for shape in shapes]
    assert len(set(drawn)) == len(drawn)
    assert shapes[-1].attributes["data-shape"] == "other"
    assert all(shape.attributes["aria-hidden"] == "true" for shape in shapes)


def test_trouble_is_dated(busy_node: Visit) -> None:
    """A stuck read says for how long, a stale or failed source when it was last read."""
    told = [cells(body)["State"] for body in rows(busy_node.page, "sources")]
    assert told[2] == "stuck reading for 1 min 35 s"
    assert told[3].startswith("stale last read ")
    assert told[4] == "failed never read"
    assert told[5] == "waiting"


def test_unknown_is_a_dash(busy_node: Visit) -> None:
    """What is not known is a dash that says so, never a zero."""
    waiting = rows(busy_node.page, "sources")[5]
    assert cells(waiting)["Age"] == cells(waiting)["Read time"] == "\u2013"
    assert all(dash.attributes["title"] == "not known" for dash in waiting.all(class_="unknown"))
    model = rows(busy_node.page, "servers")[0].all("tr")[-1]
    assert cells(model)["Waiting"] == cells(model)["Input tokens/s"] == "\u2013"
    assert cells(model)["Running"] == "0"


def test_problems_are_listed(busy_node: Visit) -> None:
    """Each part that failed is named with its error; of many the rest is folded away."""
    host, network, *_ = rows(busy_node.page, "sources")
    assert host.one(class_="problems").hidden
    problems = network.all("li")
    assert problems[0].text == f"mlx5_0/1 io OSError: {MARKUP}"
    assert len(problems) == 11
    folded = network.one("details")
    assert len(folded.all("li")) == 3
    assert folded.one("summary").text == "3 more problems"
    failed = rows(busy_node.page, "sources")[4]
    assert failed.one("li").text == "nothing read timeout TimeoutError: no answer"


def test_every_server_has_its_rows(busy_node: Visit) -> None:
    """A server is shown with its engine and what is missing; its models have their figures."""
    chat, down = rows(busy_node.page, "servers")
    head, note, model, _ = chat.all("tr")
    assert head.text == "up chat vllm 0.11.0"
    assert note.text.startswith("Not on its page: llm_ttft_seconds.")
    assert cells(model) == {
        "Model": MARKUP, "First token": "485 ms p50 60 ms, p99 1.20 s", "Each token": "\u2013",
        "Whole answer": "\u2013", "Requests/s": "1.25", "Input tokens/s": "60,937",
        "Output tokens/s": "\u2013", "Running": "3", "Waiting": "0", "KV cache": "41 %",
        "$/M tokens": "$3.20",
    }  # fmt: skip
    assert model.all("td")[0].attributes["title"].split() == (
        ["p95", "lies", "between", "250", "ms", "and", "500", "ms"]
    )
    assert [row.text for row in down.all("tr")] == [
        "failed down engine not known",
        "No figures now.",
    ]


def test_every_diagnosis_has_its_row(busy_node: Visit) -> None:
    """What limits a run, what is seen, and the tree's three signals; what is open is a dash."""
    one, rest = rows(busy_node.page, "diagnoses")
    assert cells(one) == {
        "Run": MARKUP,
        "Bottleneck": "communication bound not borne out by what is measured",
        "Seen": "exposed communication, link errors",
        "GPU utilization": "99 %", "Memory": "91 %", "Communication": "35 %",
    }  # fmt: skip
    assert cells(rest)["Run"] == "GPUs without a run"
    assert cells(rest)["Bottleneck"] == cells(rest)["Memory"] == "\u2013"


def test_without_a_diagnosis_there_is_no_section(browse: Browse) -> None:
    """A node that trains nothing; a daemon that does not know of it."""
    with served(Site(lambda _: status(source("host", "host")))) as site:
        page = browse(site)
    assert page.one(id="diagnosis").hidden


def notice(kind: str, action: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "action": action, "deadline": None, "detail": "", **more}


def test_what_the_cloud_announces_stands_at_the_top(browse: Browse) -> None:
    """What comes, when, and how long that is; what is called off later is a milder notice."""
    document = status(source("host", "host"))
    document["spot"] = {
        "provider": "aws",
        "notices": [
            notice("interruption", "terminate", deadline=4_000_000_000.0),
            notice("rebalance", "replace", deadline=1_000_000_000.0),
            notice("maintenance", "reboot", detail=MARKUP),
        ],
    }
    with served(Site(lambda _: document)) as site:
        page = browse(site)
    first, second, third = page.one(id="announced").all("li")
    assert first.text.startswith("The cloud takes this node away: terminate, at 2096-10-02 ")
    assert re.search(r", in [0-9]+\sd ", first.text)
    assert "mild" not in first.attributes["class"]
    assert second.text.endswith("which is past.")
    assert third.text == (
        f"The cloud announces work on this node: reboot, the time is not told ({MARKUP})."
    )
    assert "mild" in third.attributes["class"]


@pytest.mark.parametrize("spot", [None, [], {"notices": 7}, {"notices": [None, 3, {}]}])
def test_a_status_without_announcements_or_with_odd_ones_is_shown(
    browse: Browse, spot: Any
) -> None:
    """An older or newer daemon may answer a page that is open."""
    document = {**status(source("host", "host")), "spot": spot}
    with served(Site(lambda _: document)) as site:
        page = browse(site)
    assert page.one(id="announced").hidden == (not (spot and isinstance(spot["notices"], list)))
    assert page.one(id="sources").all("tr")


def test_the_demos_chapter_stands_at_the_top(browse: Browse) -> None:
    """What happens, and what comes next; names are text here as well."""
    document = status(source("host", "host"))
    document["story"] = {
        "number": 2, "chapters": 9, "title": MARKUP, "told": "It gets hot.", "seconds_left": 90.2,
        "next": "The fan is replaced",
    }  # fmt: skip
    with served(Site(lambda _: document)) as site:
        page = browse(site)
    told = page.one(id="story")
    assert not told.hidden
    assert re.sub(r"\s", " ", told.text) == (
        f"Demo, chapter 2 of 9: {MARKUP}. It gets hot. Next, in 1 min 30 s: The fan is replaced."
    )


def test_bytes_of_a_bond_are_counted_once(browse: Browse) -> None:
    """The tile summed the bond and its two ports: twice what came."""
    document = status(source("network", "nic")) | {"fabric": {"ports": [
        {"device": device, "port": "", "up": 1, "errors": {}, "physical": device != "bond0",
         "receive_bytes": 5e12}
        for device in ("bond0", "eth0", "eth1")
    ]}}  # fmt: skip
    received = {"bond0": 4e9, "eth0": 2e9, "eth1": 2e9}
    lines = [
        {"name": "nic_receive_bytes_per_second", "labels": {"device": device, "port": ""},
         "values": [rate, rate]}
        for device, rate in received.items()
    ]  # fmt: skip
    told = {"interval_seconds": 10, "points": 360, "first": 7, "newest": 8, "series": lines}
    with served(Site(lambda _: document, history=told)) as site:
        page = browse(site)
    assert tile(page, "Network").startswith("Network 4.00 GB/s ")


def test_a_sum_over_more_ports_than_have_lines_is_not_told(browse: Browse) -> None:
    """The daemon keeps lines of 24 ports: of thirty the tile told the sum of those."""
    document = status(source("network", "nic")) | {"fabric": {"ports": [
        {"device": device, "port": "", "up": 1, "errors": {}, "receive_bytes": 5e12}
        for device in ("eth0", "eth1")
    ]}}  # fmt: skip
    lines = [{"name": "nic_receive_bytes_per_second", "labels": {"device": "eth0", "port": ""},
              "values": [2e9, 2e9]}]  # fmt: skip
    told = {"interval_seconds": 10, "points": 360, "first": 7, "newest": 8, "series": lines}
    with served(Site(lambda _: document, history=told)) as site:
        page = browse(site)
    assert tile(page, "Network").startswith("Network \u2013")


def test_dollars_of_which_nothing_is_known_are_not_called_idle(browse: Browse) -> None:
    """Half of what was spent has an unknown state: the tile said 50 % of it not busy."""
    spent = {"busy": 2.0, "idle": 0.0, "unallocated": 0.0, "unknown": 2.0}
    document = status(source("derive:cost", "cost")) | {
        "cost": {"dollars_per_hour": 24, "idle_dollars_per_hour": 0.5, "dollars": spent}
    }
    with served(Site(lambda _: document)) as site:
        page = browse(site)
    assert "$0.5000 of it idle" in tile(page, "Cost")
    assert "unknown" in page.one(id="spent").text


def tile(page: Any, name: str) -> str:
    (found,) = [
        one for one in page.one(id="tiles").all("li") if one.attributes["data-tile"] == name
    ]
    return str(found.text)


@pytest.mark.parametrize("story", [None, [], {"title": 5}, "x"])
def test_a_node_without_a_story_has_no_chapter(browse: Browse, story: Any) -> None:
    document = {**status(source("host", "host")), "story": story}
    with served(Site(lambda _: document)) as site:
        page = browse(site)
    assert page.one(id="story").hidden
    assert page.one(id="sources").all("tr")


def test_every_page_is_linked(busy_node: Visit) -> None:
    """All pages of the daemon and each group's page are one click away, by relative address."""
    links = {link.attributes["href"] for link in busy_node.page.one(id="pages").all("a")}
    assert links >= {
        "metrics", "metrics?format=openmetrics", "metrics?group=host", "metrics?group=nic",
        "-/healthy", "-/ready", "api/v1/status",
    }  # fmt: skip
    groups = {tr.text for tr in busy_node.page.one(id="groups").all("tr")}
    assert {"/metrics?group=nic 1,040", "/metrics?group=gpu \u2013", "/metrics 1,100"} <= groups


def test_callers_from_elsewhere_are_told_what_they_miss(browse: Browse) -> None:
    """Without details the page says so, and explains each class of error in words."""
    fault = {"part": "mlx5_3/1", "reason": "denied"}
    document = status(source("network", "nic", "degraded", faults=[fault]))
    with served(Site(lambda _: document | {"detailed": False})) as site:
        page = browse(site)
    assert page.one(id="undetailed").text == (
        "Full error texts are shown to callers on the node itself."
    )
    assert rows(page, "sources")[0].one("li").text == "mlx5_3/1 denied permission was refused"


def test_node_without_anything_says_so(browse: Browse) -> None:
    """No sources, no servers and fields that are missing or strange leave a readable page."""
    document = {"flopwatch": {"uptime_seconds": "soon", "config": None}, "sources": [], "new": 1}
    with served(Site(lambda _: document)) as site:
        page = browse(site)
    assert page.one(id="connection").text == "Live"
    assert page.one(id="lead").text == "No source is enabled."
    assert page.one(id="no-sources").text == "No source is enabled."
    assert page.one(id="no-servers").text == "No inference server is configured."
    for fact in ("version", "uptime", "ready", "total", "config", "loaded"):
        assert page.one(id=fact).text == "\u2013"


# ---------------------------------------------------------------- what nobody can make it do


def test_names_are_never_markup(busy_node: Visit) -> None:
    """A name that is HTML is shown as it is written and does nothing."""
    page = busy_node.page
    assert not page.all("img")
    assert len(page.all("script")) == 1
    assert "owned" not in page.one("head").one("title").text
    assert rows(page, "sources")[6].attributes["data-source"] == MARKUP
    assert cells(rows(page, "sources")[6])["Source"] == f"{MARKUP} constructor"
    assert MARKUP in cells(rows(page, "sources")[1])["Found"]


def test_names_cannot_turn_the_text_around(busy_node: Visit) -> None:
    """A name with a right-to-left override stays within itself: its cell is isolated."""
    cell = rows(busy_node.page, "servers")[0].all("th")[-1]
    assert cell.text == OVERRIDE
    assert "text" in cell.attributes["class"].split()
    assert re.search(r"\.text \{[^}]*unicode-bidi: isolate", STYLE.read_text("utf-8"))


def test_page_asks_nobody_else(busy_node: Visit) -> None:
    """The page makes no request but for the status, and none to any other host."""
    site = busy_node.site
    assert {
        url for url in site.requests if not url.startswith((f"{site.origin}/", "data:"))
    } == set()
    files = {f"/status/{file.name}" for file in FILES.iterdir() if file != PAGE}
    assert set(site.paths) == {"/status", *files, "/api/v1/status", "/api/v1/history"}


def test_page_complains_of_nothing(busy_node: Visit) -> None:
    """No error and no warning on the console, whatever the names are; the policy is kept."""
    assert busy_node.site.console == []


def test_file_holds_no_address_and_no_dangerous_call() -> None:
    """The files name no other host and know no way from text to markup or code."""
    for file in FILES.iterdir():
        text = file.read_text("utf-8")
        for word in ("://", "@import", "url(", "innerHTML", "outerHTML", "insertAdjacentHTML",
                     "document.write", "eval(", "Function(", "setHTML", "srcdoc"):  # fmt: skip
            assert word not in text, (file.name, word)
    addresses = re.findall(r'(?:src|href)="([^"]*)"', PAGE.read_text("utf-8"))
    assert addresses
    assert not [one for one in addresses if one.startswith("/") or (":" in one and one != "data:,")]


# ---------------------------------------------------------------- what changes with time


def last_of(*documents: Any) -> Callable[[int], Any]:
    """Return the replies in turn, and the last one for good."""
    return lambda n: documents[min(n, len(documents) - 1)]


def test_lost_daemon_is_told(browse: Browse) -> None:
    """Without an answer the page says since when and why, and how old its figures are."""
    good = status(source("host", "host"))
    with served(Site(lambda n: good if n < 2 else None)) as site:
        page = browse(site, after=9000)
    said = page.one(id="connection")
    assert re.fullmatch(r"No status since \d\d:\d\d:\d\d: the answer is HTTP 503\.", said.text)
    assert said.attributes["data-state"] == "lost"
    assert re.fullmatch(
        r"What is shown here is from \d\d:\d\d:\d\d, \d+ s ago\.", page.one(id="asof").text
    )
    assert page.one("head").one("title").text.startswith("(no answer) ")
    assert page.one("body").attributes["data-connection"] == "lost"
    assert cells(rows(page, "sources")[0])["Source"] == "host"


def test_lost_daemon_comes_back(browse: Browse) -> None:
    """The page asks on, and is live again with the first answer."""
    good = status(source("host", "host"))
    with served(Site(lambda n: None if n == 0 else good, script=FIRST_WORDS)) as site:
        page = browse(site, after=9000)
    assert page.one("html").attributes["data-first"].startswith("No status since")
    assert page.one(id="connection").text == "Live"
    assert page.one(id="asof").text.startswith("as of ")


FIRST_WORDS = """
  setTimeout(() => {
    document.documentElement.dataset.first = document.getElementById("connection").textContent;
  }, 1000);
"""


def never(outcome: str) -> str:
    """Return a script in which no question is ever answered."""
    return f"""
      window.fetch = (_, {{signal}}) => new Promise((_, fail) => {{ {outcome} }});
    """


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (
            never("signal.addEventListener('abort', () => fail(signal.reason))"),
            "no answer within 4 s",
        ),
        (never("fail(new TypeError('Failed to fetch'))"), "no connection"),
    ],
)
def test_unreachable_daemon_is_told(browse: Browse, script: str, why: str) -> None:
    """A daemon that hangs or is gone is told apart; nothing is shown that is not known."""
    with served(Site(lambda _: status(), script=script)) as site:
        page = browse(site, after=9000)
    assert re.fullmatch(
        rf"The daemon cannot be reached since \d\d:\d\d:\d\d: {why}\.",
        page.one(id="connection").text,
    )
    assert page.one(id="lead").text == "Waiting for the first answer."
    assert all(part.hidden for part in page.all(data_answer=""))


HIDE_FOR_A_WHILE = """
  let hidden = false;
  const moments = [], ask = window.fetch;
  Object.defineProperty(document, "hidden", {get: () => hidden});
  const turn = (to, at) => setTimeout(() => {
    hidden = to;
    document.dispatchEvent(new Event("visibilitychange"));
    if (to) document.documentElement.dataset.said =
      document.getElementById("connection").textContent;
  }, at);
  turn(true, 5000);
  turn(false, 60000);
  window.fetch = (...all) => {
    moments.push(Math.round(performance.now()));
    document.documentElement.dataset.moments = moments.join(" ");
    return ask(...all);
  };
"""


def test_hidden_page_asks_nothing(browse: Browse) -> None:
    """While nobody looks nothing is asked; the first look brings an answer at once."""
    with served(Site(lambda _: status(), script=HIDE_FOR_A_WHILE)) as site:
        page = browse(site, after=65_000)
    html = page.one("html")
    moments = [int(moment) for moment in html.attributes["data-moments"].split()]
    assert html.attributes["data-said"] == "Paused while hidden"
    assert [moment for moment in moments if moment < 5000]
    assert not [moment for moment in moments if 5000 <= moment < 60_000]
    assert [moment for moment in moments if moment >= 60_000]
    assert page.one(id="connection").text == "Live"


OPEN_AT_ONCE = """
  setTimeout(() => {
    const fold = document.querySelector("details");
    fold.open = true;
    window.kept = fold.closest("tbody");
    window.unchanged = document.querySelector("[data-source=gpu] li").firstChild;
  }, 1000);
  setTimeout(() => {
    document.documentElement.dataset.same =
      window.kept === document.querySelector("[data-source=network]")
      && window.unchanged.isConnected;
  }, 7000);
"""


def test_what_is_open_stays_open(browse: Browse) -> None:
    """An opened list stays open while the figures change; what does not change is not touched."""

    def reply(n: int) -> Any:
        faults = [part(f"mlx5_{i}/1", f"error {n}") for i in range(11)]
        network = source("network", "nic", "degraded", faults=faults)
        gpu = source("gpu", "gpu", "degraded", faults=[part("3", "lost")], age_seconds=n)
        return status(*([source("host", "host")] if n else []), network, gpu)

    with served(Site(reply, script=OPEN_AT_ONCE)) as site:
        page = browse(site, after=8000)
    assert page.one("html").attributes["data-same"] == "true"
    assert "open" in page.one("details").attributes
    assert [body.attributes["data-source"] for body in rows(page, "sources")] == [
        "host",
        "network",
        "gpu",
    ]
    assert "error 0" not in page.one("details").text


def test_rows_go_with_their_sources(browse: Browse) -> None:
    """After a reload without a source its row is gone, and the order is the daemon's."""
    names = ["a", "b", "c"], ["c", "d", "a"]
    first, then = (status(*(source(name, "host") for name in each)) for each in names)
    with served(Site(last_of(first, then))) as site:
        page = browse(site)
    assert [body.attributes["data-source"] for body in rows(page, "sources")] == ["c", "d", "a"]


# ---------------------------------------------------------------- for everyone

MEASURE = """() => ({
  scroll: document.documentElement.scrollWidth,
  client: document.documentElement.clientWidth,
  stops: [...document.querySelectorAll(".scroll[tabindex] table")].map(table => table.id),
})"""


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_page_fits_every_screen(browse: Browse, width: int) -> None:
    """The page itself never scrolls sideways, not even with names that do not end."""
    endless = "x" * 300
    faults = [part(endless, endless)]
    document = status(
        *BUSY_NODE["sources"],
        source(endless, "nic", "degraded", found=[endless], faults=faults),
        servers=[*BUSY_NODE["servers"], server(endless, {"model_name": endless})],
        diagnoses=[
            *BUSY_NODE["diagnoses"],
            {"run": endless, "bottleneck": endless, "causes": [endless], "signals": {}},
        ],
    )
    with served(Site(lambda _: document, measure=MEASURE, width=width)) as site:
        browse(site)
    assert site.measured["client"] == width
    assert site.measured["scroll"] <= width
    assert site.measured["stops"] == []


def test_what_is_wrong_with_the_fabric_stands_above_its_ports(browse: Browse) -> None:
    """Devices that are gone, GPUs far from their NIC, settings; paths that differ are a table."""
    paths = [("0", "1", "NV18"), ("0", "2", "SYS"), ("1", "2", "NV18")]
    document = status(source("network", "nic")) | {"fabric": {
        "ports": [
            {"device": "mlx5_0", "port": "1", "up": 0, "expected_up": 1, "errors": {"symbol": 3}},
            {"device": "eno1", "port": "", "up": 0, "expected_up": 0, "errors": {}},
        ],
        "missing": ["mlx5_7"],
        "nccl": [{"run": "llama", "kind": "ib_disabled"}],
        "topology": {
            "gpus": [{"gpu": one, "peer": other, "path": path} for one, other, path in paths],
            "nearest": [{"gpu": "0", "device": "mlx5_0", "path": "PXB", "rail": "0"}],
            "faults": [{"about": "GPU 6", "what": "its NIC is far"}],
        },
    }}  # fmt: skip
    with served(Site(lambda _: document)) as site:
        page = browse(site)
    assert [li.text for li in page.one(id="fabric-faults").all("li")] == [
        "mlx5_7 is missing: it was there since the boot",
        "GPU 6 its NIC is far",
        "llama NCCL's settings: ib disabled",
    ]
    down, unused = rows(page, "port-table")
    assert (cells(down)["State"], cells(down)["Errors"]) == ("down", "3 symbol")
    assert cells(unused)["State"] == "down, as expected"
    matrix = page.one("table", class_="matrix")
    assert [row.text for row in matrix.all("tr")][1:] == [
        "0 · NV18 SYS", "1 NV18 · NV18", "2 SYS NV18 ·",
    ]  # fmt: skip
    assert [row.text for row in page.one(id="nearest").all("tr")][1:] == ["0 mlx5_0 PXB 0 \u2013"]


def card(index: int, **more: Any) -> dict[str, Any]:
    """Return a GPU with wide figures in every cell."""
    return {
        "gpu": str(index), "uuid": f"GPU-{index}", "name": "NVIDIA H200 NVL 141GB HBM3e", "up": 1,
        "sm_active_ratio": 0.999, "tensor_active_ratio": 0.888, "dram_active_ratio": 0.777,
        "hbm_bytes_per_second": 4.44e12, "memory_used_bytes": 140e9, "memory_total_bytes": 151e9,
        "power_watts": 987.6, "power_limit_watts": 1000, "clock_hertz": 1.98e9,
        "clock_max_hertz": 1.98e9, "temperature_celsius": 101, "memory_temperature_celsius": 105,
        "throttled_by": ["sw_power_cap", "hw_thermal"], "throttled_seconds": {"hw_thermal": 5},
        "xids": [], "runs": ["a-run-with-a-long-name-of-its-own"], "servers": [], "mig": [],
        "owners": [{"namespace": "team-with-a-name", "pod": "trainer-7f9c6b9d5-x2x2x"}], **more,
    }  # fmt: skip


XID = {"xid": "79", "count": 1, "severity": "critical", "name": "fell off", "action": "reset_gpu"}
LOST = {"up": 0, "recovery_action": 2, "xids": [XID]}


@pytest.mark.parametrize("width", [360, 1024, 1280, 1920])
def test_twenty_gpus_fit_without_scrolling_sideways(browse: Browse, width: int) -> None:
    """On a wide screen each is a row, and nothing of it is cut off; on a narrow one a sheet."""
    gpus = [card(i, **(LOST if i == 3 else {})) for i in range(20)]
    values = [0.5, 0.7, None, 0.9, 0.8]
    lines = [
        {"name": name, "labels": {"gpu": str(i), "uuid": f"GPU-{i}"}, "values": values}
        for i in range(20)
        for name in ("gpu_sm_active_ratio", "gpu_tensor_active_ratio", "gpu_power_watts")
    ]
    history = {"interval_seconds": 10, "points": 360, "first": 7, "newest": 11, "series": lines}
    document = status(source("nvml", "gpu")) | {"gpus": gpus}
    with served(Site(lambda _: document, measure=MEASURE, width=width, history=history)) as site:
        page = browse(site)
    assert site.measured["scroll"] <= width
    assert site.measured["stops"] == []
    table = rows(page, "gpu-table")
    assert [row.attributes["data-gpu"] for row in table] == [str(i) for i in range(20)]
    assert cells(table[0])["Power"].startswith("988 W")
    assert cells(table[0])["Throttled"] == "sw power cap, hw thermal"
    assert cells(table[3])["Health"] == "lost XID 79 reboot the node"
    assert len(table[0].all("svg", class_="spark")) == 3
    assert "M" in table[0].all("path", class_="stroke")[0].attributes["d"][1:]  # a gap


def test_page_has_landmarks_and_real_tables(busy_node: Visit) -> None:
    """A screen reader finds the language, the regions, and tables with captions and headings."""
    page = busy_node.page
    assert page.one("html").attributes["lang"] == "en"
    for landmark in ("header", "main"):
        page.one(landmark)
    for nav in page.all("nav"):
        assert {"aria-label", "aria-labelledby"} & set(nav.attributes)
    assert len(page.all("h1")) == 1
    names = {node.attributes["id"] for node in page.walk() if "id" in node.attributes}
    for node in page.walk():
        assert node.attributes.get("aria-labelledby", "sources-title") in names
    for table in page.all("table"):
        table.one("caption")
        assert all("scope" in head.attributes for head in table.all("th"))
        for row in table.all("tr"):
            assert row.all("th") or {"problems", "note"} & set(row.attributes["class"].split())


def test_only_the_connection_is_announced(busy_node: Visit) -> None:
    """Figures that change every two seconds are not read aloud; a lost connection is."""
    live = [n for n in busy_node.page.walk() if n.attributes.get("role") in {"status", "alert"}]
    assert [node.attributes["id"] for node in live] == ["connection"]
    assert live[0].text == "Live"
    assert not [n for n in busy_node.page.walk() if "aria-live" in n.attributes]


def test_page_without_scripts_leads_to_the_metrics() -> None:
    """Where scripts are off the page says so and links to what works without."""
    note = parse(PAGE.read_text("utf-8")).one("noscript")
    assert "metrics" in {link.attributes["href"] for link in note.all("a")}


def luminance(colour: str) -> float:
    """Return the relative luminance of `#rrggbb` (WCAG 2.2)."""
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(scheme: str) -> None:
    """Every colour of text stands out from every ground it is set on (WCAG AA, 4.5 to 1)."""
    schemes = re.findall(r":root \{(.*?)\}", STYLE.read_text("utf-8"), re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", schemes[scheme == "dark"]))
    for text in ("text", "muted", "link", "up", "warn", "bad"):
        assert contrast(colours[text], colours["back"]) >= 4.5, text
    for ground in ("bad-back", "warn-back"):
        assert contrast(colours["text"], colours[ground]) >= 4.5, ground
    assert contrast(colours["bar"], colours["trough"]) >= 2
    assert contrast(colours["bar"], colours["back"]) >= 3
