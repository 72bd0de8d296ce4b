"""The status page as it comes from a daemon: every view of the demo's node, in a real browser.

One daemon and one browser for all. Among the demo's own there are an inference server and a run
whose names somebody hostile has chosen.
"""

from __future__ import annotations

import json
import re
import struct
import sys
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.browser import Log, chromium, opened
from tests.page_engine import Engine
from tests.test_daemon import Daemon, free_port

__all__ = ["chromium"]

MARKUP = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\"'&"
OVERRIDE = "\u202eevil\u202c \u05e9\u05dc\u05d5\u05dd"
ENDLESS = "m" * 1000
RUN = f"{MARKUP} \u05e9\u05dc\u05d5\u05dd"  # an override of direction is refused at the door


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """The demo, a minute of it: what is drawn needs some beats."""
    engines = [Engine(escaped(model)) for model in (MARKUP, OVERRIDE, ENDLESS)]
    port = free_port()
    servers = [
        word
        for engine in engines
        for word in ("--server", f"vllm={engine.origin}/metrics")
    ]  # fmt: skip
    node = [sys.executable, "-m", "exporter", "demo", "--scenario", "default"]
    demo = Daemon([*node, "--listen", f"127.0.0.1:{port}", *servers], port)
    try:
        demo.wait_for("/-/ready", lambda status, _: status == 200, 60)
        for step in range(1, 4):
            push(demo, {"run": RUN, "step": step, "seconds": 1.5, "tokens": 4096, "loss": 2.0})
        demo.wait_for("/api/v1/history", lambda _, body: drawn(json.loads(body)), 90)
        yield demo
    finally:
        demo.stop()
        demo.process.communicate()
        for engine in engines:
            engine.close()


def escaped(label: str) -> str:
    """Return a label's value as a page of metrics has it."""
    return label.replace("\\", "\\\\").replace('"', '\\"')


def drawn(history: dict[str, Any]) -> bool:
    """Tell whether there is enough for lines."""
    return any(
        one["name"] == "gpu_clock_hertz" and sum(v is not None for v in one["values"]) >= 2
        for one in history["series"]
    )


def push(daemon: Daemon, record: dict[str, Any]) -> None:
    """Tell the daemon of a step of a job, as the job would."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{daemon.port}/api/v1/training/steps",
        json.dumps(record).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert json.load(answer)["new"] == 1


@pytest.fixture(scope="module")
def desk(chromium: Browser, daemon: Daemon) -> Iterator[tuple[Page, Log]]:
    """The page on a desk, open for all tests that only look."""
    url = f"http://127.0.0.1:{daemon.port}/status"
    with opened(chromium, url, width=1440, height=900, reduced_motion="reduce") as both:
        both[0].wait_for_selector("#gpu-table .spark", timeout=20_000)
        yield both


# ---------------------------------------------------------------- what changes


def test_live_values_change(desk: tuple[Page, Log]) -> None:
    """Without anybody doing anything the figures of now replace those of before."""
    page, _ = desk
    read = "() => document.querySelector('#gpu-table').innerText"
    before, asof = page.evaluate(read), page.inner_text("#asof")
    page.wait_for_function(
        "before => document.querySelector('#gpu-table').innerText !== before",
        arg=before, timeout=15_000,
    )  # fmt: skip
    page.wait_for_function(
        "asof => document.querySelector('#asof').innerText !== asof", arg=asof, timeout=15_000
    )
    assert page.inner_text("#connection") == "Live"


def test_lines_grow(desk: tuple[Page, Log]) -> None:
    """The page asks for what is new of the last hour, and only for that, and draws it."""
    page, log = desk
    read = "() => document.querySelector('[data-gpu=\"0\"] .spark .stroke').getAttribute('d')"
    before = page.evaluate(read)
    page.wait_for_function(f"before => ({read})() !== before", arg=before, timeout=25_000)
    asked = [
        url.partition("/api/v1/history")[2] for url in log.requests if "/api/v1/history" in url
    ]
    assert asked[0] == ""
    assert all(re.fullmatch(r"\?since=\d+", query) for query in asked[1:])


# ---------------------------------------------------------------- each view

VIEWS = {
    "overview": [
        "sources are up", "GPU activity", "GPU power", "MFU", "SLA", "Output tokens", "Network",
        "Cost", "Alerts to be",
    ],
    "gpus": ["8 × NVIDIA H100 80GB HBM3", "llama-70b", "llama2-13b", "of 700 W", "GHz", "°C"],
    "training": [
        "llama2-13b", "megatron-lm", "64 ranks", "GPUs 4–7 here", "causal, of 989 TFLOP/s (bf16)",
        "communication", "MFU", "peak", "100.0 %", "Step time", "Loss", "Goodput",
    ],
    "promises": ["ttft p95", "< 500ms", "inference_sla", "of at least", "wanted"],
    "serving": ["llama-70b", "vllm", "GPUs 0–3", "meta-llama/Llama-3.1-70B-Instruct", "p50",
                "prefix hits", "llama-3b", "llamacpp"],
    "fabric": ["mlx5_0/1", "400 Gb/s", "InfiniBand",
               "Each two of the GPUs 0–7 are joined by NV18.", "PXB"],
    "cost": ["$24.00 an hour", "reserved p5.48xlarge as configured", "busy", "idle"],
    "daemon": ["nvml", "8 x NVIDIA H100 80GB HBM3", "built-in defaults", "history"],
}  # fmt: skip
"""What each view must say of the demo's node."""


@pytest.mark.parametrize("view", VIEWS)
def test_each_view_shows_its_part_of_the_node(
    desk: tuple[Page, Log], view: str, tmp_path: Path
) -> None:
    """The way there leads into the window; the words are there, and the picture is no blank."""
    page, _ = desk
    page.click(f'#jump a[href="#{view}"]')
    page.wait_for_function(
        f"() => {{ const top = document.querySelector('#{view}').getBoundingClientRect().top;"
        " const end = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;"
        " return top >= -2 && (top < innerHeight / 3 || end) && top < innerHeight; }",
        timeout=10_000,
    )
    text = page.inner_text(f"#{view}")
    for words in VIEWS[view]:
        assert words in text.replace("\u00a0", " "), words
    for bad in ("NaN", "undefined", "null", "Infinity", "[object"):
        assert bad not in text.replace(MARKUP, ""), bad
    picture = page.screenshot(path=tmp_path / f"{view}.png")
    assert colours(picture) > 20


def colours(png: bytes) -> int:
    """Return how many different pixels a picture has (of the 8 bits and 3 or 4 bytes of ours)."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert (depth, kind) in {(8, 2), (8, 6)}
    size = 3 if kind == 2 else 4
    data, at = b"", 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += 12 + length
    rows = zlib.decompress(data)
    assert len(rows) == height * (1 + width * size)
    return len({rows[i : i + size] for i in range(1, len(rows), 7 * size)})


def test_what_holds_is_listed_by_the_names_of_the_rules(
    desk: tuple[Page, Log], daemon: Daemon
) -> None:
    """Each condition of the document is on the page, with what it is about and for how long."""
    page, _ = desk
    told = json.loads(daemon.get("/api/v1/status")[1])["conditions"]["holding"]
    assert told
    for one in told:
        row = page.locator(f'#condition-list [data-alert="{one["alert"]}"]').first
        row.wait_for(timeout=10_000)
        text = row.inner_text()
        assert one["severity"] in text
        assert one["about"][0] in text
        if one["held_seconds"] is not None:
            assert re.search(r"holds for \d+", text)


def test_the_waterfall_ends_at_mfu(desk: tuple[Page, Log]) -> None:
    """What is lost and MFU add up to the peak, on the page as in the document."""
    page, _ = desk
    rows = page.eval_on_selector_all(
        '[data-run="llama2-13b"] .waterfall tr',
        "rows => rows.map(row => [row.cells[0].innerText, row.cells[2].innerText])",
    )
    shares = [float(text.replace("\u2212", "-").split()[0]) for _, text in rows]
    assert rows[0][0] == "peak"
    assert rows[-1][0] == "MFU"
    assert shares[0] == 100
    assert sum(shares[:-1]) == pytest.approx(shares[-1], abs=0.6)
    dial = page.text_content('[data-run="llama2-13b"] .dial text')
    assert dial is not None
    assert float(dial.split()[0]) == pytest.approx(shares[-1], abs=0.11)


def test_each_line_has_words(desk: tuple[Page, Log]) -> None:
    """Who does not see a line is told its period, and the lowest and highest value."""
    page, _ = desk
    page.wait_for_function(
        "() => document.querySelectorAll('main .spark').length > 50", timeout=30_000
    )
    titles = page.eval_on_selector_all(
        "main .spark", "all => all.map(one => one.querySelector('title').textContent)"
    )
    for title in titles:
        assert re.fullmatch(r"last (hour|minute|\d+ minutes): .+ to .+", title), title


# ---------------------------------------------------------------- what nobody can make it do


def test_the_browser_asks_the_daemon_and_nobody_else(
    desk: tuple[Page, Log], daemon: Daemon
) -> None:
    """All requests of the page, from its start on, go to where it came from."""
    origin = f"http://127.0.0.1:{daemon.port}/"
    _, log = desk
    assert len(log.requests) > 10
    assert not [url for url in log.requests if not url.startswith((origin, "data:,"))]


def test_nothing_goes_wrong_in_the_page(desk: tuple[Page, Log]) -> None:
    """The console has no error and no warning; the policy was not broken."""
    _, log = desk
    assert log.console == []


@pytest.mark.parametrize("name", [MARKUP, OVERRIDE, ENDLESS], ids=["markup", "override", "endless"])
def test_names_of_models_are_text(desk: tuple[Page, Log], name: str) -> None:
    """A model's name is shown as it is, whatever it looks like, and does nothing."""
    page, _ = desk
    names = page.eval_on_selector_all(
        "#servers th.text[scope=row]", "all => all.map(one => one.firstChild.textContent)"
    )
    assert name in names
    assert "owned" not in page.title()
    assert page.locator("main img, main script").count() == 0


def test_names_of_runs_are_text(desk: tuple[Page, Log]) -> None:
    """So is the name of a run that any job on the node can choose."""
    page, _ = desk
    assert RUN in page.eval_on_selector_all(".run h3", "all => all.map(one => one.textContent)")
    direction = page.eval_on_selector(
        ".run h3", "one => getComputedStyle(one).unicodeBidi + getComputedStyle(one).overflowWrap"
    )
    assert direction == "isolateanywhere"


def test_the_network_is_told_no_more_than_the_metrics(daemon: Daemon) -> None:
    """Every name in the documents stands on /metrics too; error texts and paths do not."""
    page = daemon.get("/metrics")[1]
    known = {
        json.loads(f'"{value}"') for value in re.findall(r'="((?:[^"\\]|\\.)*)"', page)
    }  # fmt: skip
    through_proxy = {"X-Forwarded-For": "198.51.100.9"}
    document = json.loads(daemon.get("/api/v1/status", **through_proxy)[1])
    assert document["detailed"] is False
    assert document["flopwatch"]["config"]["file"] is None
    parts = ("gpus", "runs", "promises", "servers", "diagnoses", "cost")
    said = {text for part in parts for text in texts(document[part])}
    assert len(said) > 30
    assert said - known - STATES == set()
    ports = {text for port in document["fabric"]["ports"] for text in texts(port)}
    assert ports - known == set()
    assert all("detail" not in fault for s in document["sources"] for fault in s["faults"])
    history = json.loads(daemon.get("/api/v1/history", **through_proxy)[1])
    drawn_of = {text for one in history["series"] for text in texts(one["labels"])}
    assert drawn_of - known == set()


STATES = {"up", "degraded", "failed", "stale", "stuck", "waiting", ""}


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts(one)


# ---------------------------------------------------------------- for everyone

SCREENS = {"desk": (1440, 900), "phone": (360, 740)}


@pytest.fixture(scope="module")
def audited(chromium: Browser, daemon: Daemon) -> Iterator[Page]:
    """The page for axe, which brings a script of its own."""
    url = f"http://127.0.0.1:{daemon.port}/status"
    with opened(chromium, url, bypass_csp=True) as (page, _):
        page.wait_for_selector("#gpu-table .spark", timeout=20_000)
        yield page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing_serious(
    audited: Page, screen: str, scheme: Literal["light", "dark"]
) -> None:
    """The rules of axe-core (WCAG 2, best practices) on every screen and in both schemes.

    On a phone nothing scrolls sideways either.
    """
    width, height = SCREENS[screen]
    audited.set_viewport_size({"width": width, "height": height})
    audited.emulate_media(color_scheme=scheme)
    wide = audited.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1] == width
    found = Axe().run(audited, options={"resultTypes": ["violations"]}).response["violations"]
    grave = [one for one in found if one["impact"] in {"serious", "critical"}]
    assert not grave, [(one["id"], [node["html"] for node in one["nodes"][:3]]) for one in grave]
    assert audited.evaluate("() => getComputedStyle(document.body).backgroundColor") == {
        "light": "rgb(251, 251, 250)", "dark": "rgb(18, 21, 23)",
    }[scheme]  # fmt: skip


def test_every_part_is_reached_by_keyboard(desk: tuple[Page, Log]) -> None:
    """Tab goes through the ways and the tiles in their order; Enter leads to the part."""
    page, _ = desk
    page.evaluate("() => { document.activeElement.blur(); scrollTo(0, 0); }")
    page.click("h1")
    stops = []
    for _ in range(16):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("() => document.activeElement.getAttribute('href')"))
    assert stops[:8] == [f"#{view}" for view in VIEWS]
    assert stops[8] == "#gpus"
    page.focus('#jump a[href="#fabric"]')
    page.keyboard.press("Enter")
    page.wait_for_function("() => location.hash === '#fabric'")
