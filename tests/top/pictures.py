"""Pictures of `flopwatch top` for the documentation: `python -m tests.top.pictures [FOLDER]`.

The demo's story is told on a clock of its own, so that this takes seconds; what is drawn is what
the command draws of the page that the daemon would give then. Chromium makes PNG of rich's SVG.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

from playwright.sync_api import sync_playwright
from rich.console import Console

from exporter.clock import SystemClock
from exporter.commands.pages import Page
from exporter.config import parse
from exporter.exposition import Exposition
from exporter.plans import Estate
from exporter.plans.demo import demo_plans
from exporter.runner import Runner
from exporter.status import Moment, document
from exporter.top.daemon import Daemon
from exporter.top.reading import frame
from exporter.top.rows import Frame
from exporter.top.screen import Screen, State
from tests.fakes import FakeClock

SLOW = ("ethtool", "process", "discovery", "nccl_environment", "placement")


class Picture(NamedTuple):
    """A picture: at which second of the story, of which view, how large."""

    name: str
    second: int
    view: int
    columns: int = 100
    rows: int = 25


PICTURES = (Picture("top-gpus", 220, 1), Picture("top-overview", 400, 0))


class Told(NamedTuple):
    """What a daemon gives."""

    page: bytes
    status: Mapping[str, Any]
    now: float


def story(seconds: set[int]) -> Mapping[int, Told]:
    """Return what a daemon on the story's node gives after so many seconds."""
    clock = FakeClock(wall=time.time())
    estate, found = Estate(clock), {}
    with demo_plans("story") as plans, ExitStack() as ending:
        runners = []
        for one in sorted(plans(parse("", "test"), estate), key=lambda one: _order(one.name)):
            if one.name.startswith(SLOW):
                continue
            source, pace = one.make(), one.schedule
            ending.enter_context(closing(source))
            slot = estate.board.enroll(one.name, one.group, pace.deadline, pace.max_age, clock.now)
            runners.append((Runner(source, pace, slot, clock), max(1, round(pace.interval))))
        exposition = Exposition(lambda: estate.board.view(clock.now), tuple, clock)
        for second in range(1, max(seconds) + 1):
            for runner, interval in runners:
                if second % interval == 0:
                    runner.step()
            if second in seconds:
                about = {"version": "0.1.0", "uptime_seconds": float(second)}
                moment = Moment(clock.now, clock.time())
                told = document(
                    estate.board.view(clock.now), about, {}, estate.watch, moment, detailed=True
                )
                status = json.loads(json.dumps({**told, "story": estate.story.tell()}))
                page = exposition.page((None, False, False))
                found[second] = Told(page, status, clock.time())
            clock.advance(1)
    return found


def _order(name: str) -> int:
    return 0 if name == "demo" else 2 if name.startswith("derive") else 1


class _Known(Daemon):
    """A daemon that always tells the same."""

    def __init__(self, seen: Frame) -> None:
        self.where = "http://127.0.0.1:9810"
        self._seen = seen

    def ask(self) -> Frame:
        return self._seen


def svg(told: Told, picture: Picture) -> str:
    """Return the screen as rich draws it, without the fonts that it would have from elsewhere."""
    out = Console(
        record=True, width=picture.columns, height=picture.rows, force_terminal=True,
        file=io.StringIO(), color_system="truecolor", markup=False, highlight=False,
        legacy_windows=False,
    )  # fmt: skip
    seen = frame(Page(told.page, "page"), told.status, told.now)
    screen = Screen(_Known(seen), out, SystemClock(), 2.0, picture.view)
    screen.state = State(picture.view)
    screen._ask()
    out.print(screen.drawn())
    drawn = out.export_svg(title="flopwatch top")
    return re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)


def png(drawn: str, path: Path) -> None:
    """Write a PNG of an SVG."""
    width, height = (
        float(size) for size in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)[0]
    )
    chromium = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    )
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": round(width), "height": round(height)})
        page.set_content(f"<body style='margin:0'>{drawn}</body>")
        page.locator("svg").screenshot(path=path, omit_background=True)
        browser.close()


def main() -> None:
    """Write all pictures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/images")
    folder.mkdir(parents=True, exist_ok=True)
    told = story({one.second for one in PICTURES})
    for one in PICTURES:
        png(svg(told[one.second], one), folder / f"{one.name}.png")


if __name__ == "__main__":
    main()
