"""Makes docs/images/status-*.png of the demo's node: `make pictures`.

The daemon runs for some minutes first, so that there are lines to be seen. With
an address it takes pictures of what runs there instead: `make pictures ARGS=http://127.0.0.1:9810`.
"""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from playwright.sync_api import Browser, sync_playwright

from tests.test_daemon import Daemon, free_port

IMAGES = Path(__file__).parent.parent / "docs" / "images"
GROWING = 480.0
"""Seconds that the daemon runs before it is looked at."""


class Picture(NamedTuple):
    """A picture: its name, the window, and the part of the page that it shows."""

    name: str
    width: int
    height: int
    scheme: Literal["light", "dark"] = "light"
    part: str = ""


PICTURES = (
    Picture("status-light", 1440, 1000),
    Picture("status-dark", 1440, 1000, "dark"),
    Picture("status-training", 1440, 620, "light", "training"),
    Picture("status-serving", 1440, 820, "dark", "promises"),
    Picture("status-phone", 360, 780),
)


@contextmanager
def node() -> Iterator[str]:
    """Run the demo for a while and return its address."""
    port = free_port()
    demo = Daemon([sys.executable, "-m", "exporter", "demo", "--listen", f"127.0.0.1:{port}"], port)
    try:
        demo.wait_for("/-/ready", lambda status, _: status == 200, 60)
        threading.Event().wait(GROWING)
        yield f"http://127.0.0.1:{port}"
    finally:
        demo.stop()
        demo.process.communicate()


def take(browser: Browser, address: str, picture: Picture) -> None:
    """Write one picture."""
    page = browser.new_page(
        viewport={"width": picture.width, "height": picture.height},
        color_scheme=picture.scheme, reduced_motion="reduce",
    )  # fmt: skip
    page.goto(f"{address}/status")
    page.wait_for_selector("#gpu-table .spark")
    page.evaluate("document.getElementById('node').textContent = 'demo-node:9810'")
    if picture.part:
        page.evaluate(f"document.getElementById('{picture.part}').scrollIntoView()")
    page.wait_for_timeout(2500)
    path = IMAGES / f"{picture.name}.png"
    page.screenshot(path=path)
    page.close()
    print(f"{path.relative_to(IMAGES.parent.parent)} {path.stat().st_size >> 10} KiB")


def main(addresses: list[str]) -> None:
    """Take all pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("needs chromium (Debian package chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for picture in PICTURES:
            take(browser, addresses[0], picture)
        browser.close()


if __name__ == "__main__":
    if sys.argv[1:]:
        main(sys.argv[1:])
    else:
        with node() as here:
            main([here])
