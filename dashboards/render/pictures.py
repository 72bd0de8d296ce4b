"""Draw boards to pictures: `python -m dashboards.render.pictures --prometheus URL`.

Needs Node.js with the packages of `package.json` (`npm install --legacy-peer-deps` beside it, or
elsewhere and `--modules`), Chromium, and a Prometheus that has scraped something. Grafana's own
libraries draw; no Grafana server is asked, none imports the board.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from dashboards.grafana import Dashboard, Prometheus, Span
from dashboards.render.answers import answers

HERE = Path(__file__).parent
BOARDS = HERE.parent
MODULES = HERE / "node_modules"
CHROMIUM = "/usr/bin/chromium"
WIDTH, ROW = 1464, 30
_PAGE = """<!doctype html><meta charset="utf-8"><title>board</title>
<link rel="stylesheet" href="app.css"><body style="margin:0"><div id="root"></div>
<div id="grafana-portal-container"></div><script src="app.js"></script>"""


class DrawingError(Exception):
    """A board that could not be drawn, and what the browser said."""


def bundle(folder: Path, modules: Path) -> None:
    """Write a page with all that draws into the folder. Raises `DrawingError`."""
    loaders = [f"--loader:.{kind}=dataurl" for kind in ("svg", "ttf", "woff", "woff2", "png")]
    command = [
        str(modules / ".bin" / "esbuild"), str(HERE / "app.jsx"), "--bundle", "--minify",
        f"--outfile={folder / 'app.js'}", "--log-level=error", "--define:global=window",
        '--define:process.env.NODE_ENV="production"', *loaders,
    ]  # fmt: skip
    environment = {**os.environ, "NODE_PATH": str(modules)}
    done = subprocess.run(  # noqa: S603 - our own arguments
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode:
        raise DrawingError(done.stderr)
    (folder / "app.css").touch()
    (folder / "index.html").write_text(_PAGE, "utf-8")


def draw(page: Page, board: Dashboard, prometheus: Prometheus, span: Span, mode: str) -> None:
    """Let the page show the board, in `dark` or `light`. Raises `DrawingError`."""
    found = answers(board, prometheus, span)
    step = span.interval()
    about = {"start": span.start, "end": span.end, "step": step}
    rows = max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in board.document["panels"])
    # All of it is in sight: tables do not draw what is not.
    page.set_viewport_size({"width": WIDTH, "height": rows * ROW + 80})
    page.reload()
    page.evaluate(
        "([board, answers, span, mode]) => window.draw(board, answers, span, mode)",
        [
            json.loads(json.dumps(board.document)),
            {str(k): v for k, v in found.items()},
            about,
            mode,
        ],
    )
    page.wait_for_selector("#board", timeout=20_000)
    page.wait_for_timeout(1500)  # canvases are drawn in the next frames
    if faults := page.evaluate("window.faults"):
        raise DrawingError(f"{board.uid}: {'; '.join(faults)}")


def pictures(
    boards: Sequence[Path],
    prometheus: Prometheus,
    span: Span,
    out: Path,
    *,
    modes: Sequence[str] = ("dark",),
    modules: Path = MODULES,
    height: int | None = None,
) -> list[Path]:
    """Draw boards, and return their pictures; `height`: so much of each, from its top."""
    made = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        bundle(Path(folder), modules)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 1000})
        page.goto(f"file://{folder}/index.html")
        for file in boards:
            board = Dashboard(json.loads(file.read_text("utf-8")))
            for mode in modes:
                draw(page, board, prometheus, span, mode)
                path = out / f"{file.stem}{'-light' if mode == 'light' else ''}.png"
                whole = page.locator("#board").bounding_box()
                clip = {**whole, "height": min(whole["height"], height or whole["height"])}
                page.screenshot(path=path, clip=clip)
                made.append(path)
        browser.close()
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw what is asked for; return 1 if it cannot be drawn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prometheus", required=True, help="its address")
    parser.add_argument("--minutes", type=float, default=15, help="the time that is shown")
    parser.add_argument("--scrape", type=float, default=15, help="seconds between two scrapes")
    parser.add_argument("--board", action="append", help="a board's name; default: all")
    parser.add_argument("--mode", action="append", choices=["dark", "light"])
    parser.add_argument("--modules", type=Path, default=MODULES, help="node_modules")
    parser.add_argument("--height", type=int, help="pixels of each board, from its top")
    parser.add_argument("--out", type=Path, default=Path.cwd())
    told = parser.parse_args(arguments)
    files = [BOARDS / f"{name}.json" for name in told.board or ()] or sorted(BOARDS.glob("*.json"))
    now = time.time()
    span = Span(now - told.minutes * 60, now, told.scrape)
    try:
        made = pictures(
            files, Prometheus(told.prometheus), span, told.out, modes=told.mode or ["dark"],
            modules=told.modules, height=told.height,
        )  # fmt: skip
    except DrawingError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.writelines(f"{path}\n" for path in made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
