"""Boards drawn with Grafana's own libraries, from a real Prometheus that scraped the demo.

Needs Node.js and 670 MB of packages: `make test-grafana` installs them. What the libraries lack
(gauge, heatmap, state timeline) is drawn by hand, and no Grafana imports a board: see
docs/dashboards.md.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from dashboards.grafana import Dashboard
from dashboards.render.answers import answers
from dashboards.render.pictures import CHROMIUM, MODULES, bundle, draw
from tests.dashboards.board_lab import BOARDS, BoardLab, Phase, running_lab

pytestmark = pytest.mark.real

Tool = Callable[[str], str]
NAMES = [file.stem for file in sorted(BOARDS.glob("*.json"))]
MODES = ("dark", "light")


@pytest.fixture(scope="module")
def lab(tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardLab]:
    story = (Phase("fault", 75, {"hot": 3, "paused": 0.2, "cut": 2}),)
    with running_lab(tool("prometheus"), tmp_path_factory.mktemp("lab"), story) as running:
        yield running


@pytest.fixture(scope="module")
def page(tool: Tool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    tool("chromium")
    modules = Path(os.environ.get("FLOPWATCH_GRAFANA_MODULES", MODULES))
    if not (modules / ".bin" / "esbuild").exists():
        pytest.skip("needs Grafana's libraries (make test-grafana)")
    folder = tmp_path_factory.mktemp("page")
    bundle(folder, modules)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = browser.new_page()
        opened.goto(f"file://{folder}/index.html")
        yield opened
        browser.close()


def drawn(board: Dashboard, found: dict[int, list[Any]], kind: str) -> list[str]:
    """Return the titles of open panels of a kind that have something to show."""
    return [
        panel["title"]
        for panel in board.document["panels"]
        if panel["type"] == kind and any(each["series"] for each in found.get(panel["id"], ()))
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_a_board_is_drawn(lab: BoardLab, page: Page, name: str, mode: str) -> None:
    """Each panel has its title and its picture; the browser tells no error."""
    board, span = lab.boards[name], lab.span()
    found = answers(board, lab.prometheus, span)

    draw(page, board, lab.prometheus, span, mode)

    titles = [panel["title"] for panel in board.document["panels"] if panel["type"] != "text"]
    shown = page.inner_text("#board")
    assert [title for title in titles if title not in shown] == []
    assert page.locator(".uplot").count() >= len(drawn(board, found, "timeseries"))
    assert page.locator("[role=grid]").count() == len(drawn(board, found, "table"))
    canvas = page.locator("#board").evaluate("e => getComputedStyle(e).backgroundColor")
    red, green, blue = map(int, re.findall(r"\d+", canvas))
    assert (red + green + blue > 3 * 128) == (mode == "light"), canvas


def test_numbers_are_those_of_prometheus(lab: BoardLab, page: Page) -> None:
    """What a stat says is what the query brings, with its unit and decimals."""
    board = lab.boards["flopwatch-cost"]
    (hour,) = lab.prometheus.at("sum(cost_dollars_per_hour)", lab.span().end)

    draw(page, board, lab.prometheus, lab.span(), "dark")

    panel = page.locator("section", has_text="Cost of an hour").first
    assert f"${hour[1][0][1]:.2f}" in panel.inner_text()


def test_a_wrong_board_is_told(lab: BoardLab, page: Page) -> None:
    """A panel that no library knows is no empty picture."""
    board = json.loads(json.dumps(lab.boards["flopwatch-cost"].document))
    board["panels"][1]["type"] = "singlestat"

    draw(page, Dashboard(board), lab.prometheus, lab.span(), "dark")

    assert "singlestat is not drawn here" in page.inner_text("#board")
