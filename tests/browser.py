"""A real browser for tests: Debian's Chromium, driven by Playwright.

One browser serves all tests of a module; each look has a context of its own, with nothing kept from
the one before. What the page asks for, logs and throws is written down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, sync_playwright


@pytest.fixture(scope="module")
def chromium(tool: Callable[[str], str]) -> Iterator[Browser]:
    """Return the browser, or skip where it is missing."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=tool("chromium"), args=["--no-sandbox"]
        )
        yield browser
        browser.close()


MOMENT = 1_796_000_000
"""When virtual time stands still, in Unix seconds."""

COUNTS = """
  window.pending = 0;
  const ask = window.fetch;
  window.fetch = async (...all) => {
    window.pending += 1;
    try {
      const answer = await ask(...all);
      return new Response(await answer.text(), {status: answer.status, headers: answer.headers});
    } finally {
      window.pending -= 1;
    }
  };
"""
"""Has the page count questions whose answers it has not read."""

TURN = """async () => {
  for (let turn = 0; turn < 4; turn += 1)
    await new Promise(done => {
      const channel = new MessageChannel();
      channel.port1.onmessage = done;
      channel.port2.postMessage(0);
    });
  return window.pending ?? 0;
}"""


@dataclass
class Log:
    """What a page has asked for, what it said on the console, and what went wrong in it."""

    requests: list[str] = field(default_factory=list)
    console: list[str] = field(default_factory=list)
    under_way: set[Request] = field(default_factory=set)

    def begun(self, request: Request) -> None:
        """Note what the page asks for."""
        self.requests.append(request.url)
        self.under_way.add(request)

    def ended(self, request: Request) -> None:
        """Note that a question has been answered, or given up."""
        self.under_way.discard(request)

    def settle(self, page: Page) -> None:
        """Wait until every question of the page has been answered."""
        while self.under_way or page.evaluate(TURN):
            page.wait_for_timeout(2)


@contextmanager
def opened(
    chromium: Browser, url: str, *, width: int = 1280, height: int = 800, script: str = "",
    virtual: bool = False, **more: Any,
) -> Iterator[tuple[Page, Log]]:  # fmt: skip
    """Open a page; `script` runs in it before its own. `virtual` time stands still until moved."""
    context = chromium.new_context(
        viewport={"width": width, "height": height}, timezone_id="UTC", locale="en-US", **more
    )
    page, log = context.new_page(), Log()
    page.on("request", log.begun)
    page.on("requestfinished", log.ended)
    page.on("requestfailed", log.ended)
    page.on("console", lambda one: log.console.append(f"{one.type}: {one.text}"))
    page.on("pageerror", lambda error: log.console.append(f"error: {error}"))
    if virtual:
        page.clock.install(time=MOMENT)
        page.clock.pause_at(MOMENT + 1)
        page.add_init_script(COUNTS)
    if script:
        page.add_init_script(script)
    try:
        page.goto(url)
        yield page, log
    finally:
        context.close()


def pass_time(page: Page, log: Log, milliseconds: int, step: int = 500) -> None:
    """Let virtual time pass, and every question be answered when it is asked."""
    log.settle(page)
    for _ in range(0, milliseconds, step):
        page.clock.run_for(step)
        log.settle(page)
