"""The terminal: one frame for a pipe, or a screen that is drawn again and again, with keys."""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import NamedTuple, TextIO

from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.live import Live
from rich.segment import Segment, Segments
from rich.text import Text

from exporter.clock import Clock
from exporter.top.cells import duration, text, words
from exporter.top.daemon import Away, Daemon
from exporter.top.rows import Frame
from exporter.top.views import VIEWS, Look, View, header

_SLICE = 0.2
"""Seconds after which the size of the terminal is looked at again."""


class State(NamedTuple):
    """What the keys have chosen: the view, its order, the first line that is shown."""

    view: int = 0
    order: int = 0
    line: int = 0
    paused: bool = False
    ended: bool = False


def pressed(state: State, key: str) -> State:
    """Return what follows from a key; one without a meaning changes nothing."""
    match key:
        case "q" | "Q" | "\x03" | "\x04":
            return state._replace(ended=True)
        case "\t" | "\x1b[C":
            return State((state.view + 1) % len(VIEWS), paused=state.paused)
        case "\x1b[Z" | "\x1b[D":
            return State((state.view - 1) % len(VIEWS), paused=state.paused)
        case "s":
            orders = len(VIEWS[state.view].orders)
            return state._replace(order=(state.order + 1) % orders, line=0)
        case "p" | " ":
            return state._replace(paused=not state.paused)
        case "\x1b[B" | "j":
            return state._replace(line=state.line + 1)
        case "\x1b[A" | "k":
            return state._replace(line=max(0, state.line - 1))
        case _ if key.isdecimal() and key.isascii() and 1 <= int(key) <= len(VIEWS):
            return State(int(key) - 1, paused=state.paused)
    return state


def keys(data: bytes) -> Iterator[str]:
    """Yield the keys of what a terminal sent: single characters, and sequences of cursor keys."""
    shown = data.decode("latin-1")
    at = 0
    while at < len(shown):
        length = 3 if shown.startswith(("\x1b[", "\x1bO"), at) and at + 2 < len(shown) else 1
        key = shown[at : at + length]
        yield key.replace("\x1bO", "\x1b[")
        at += length


def console(file: TextIO | None, width: int | None = None) -> Console:
    """Return a console that knows no markup and colours nothing that is no colour terminal.

    What its encoding lacks is shown as `?`.
    """
    file = io.StringIO() if file is None else file
    if isinstance(file, io.TextIOWrapper):
        file.reconfigure(errors="replace")
    made = Console(file=file, markup=False, emoji=False, highlight=False, width=width)
    if not made.is_terminal and width is None and "COLUMNS" not in os.environ:
        made = Console(file=file, markup=False, emoji=False, highlight=False, width=100)
    return made


def fit(out: Console) -> tuple[int, int]:
    """Give a console the size that its terminal has now, whatever the environment states."""
    with suppress(OSError):
        out.size = ConsoleDimensions(*os.get_terminal_size(out.file.fileno()))
    return out.size


def once(daemon: Daemon, view: View, out: Console, clock: Clock) -> str:
    """Return one frame, all of it, as it is to be written. Raises `Away`."""
    seen = daemon.ask()
    look = Look(out.width, _has_blocks(out))
    written = io.StringIO()
    page = Console(
        file=written, width=out.width, markup=False, emoji=False, highlight=False,
        force_terminal=out.is_terminal, no_color=out.no_color,
    )  # fmt: skip
    for one in (*header(seen, daemon.where, _clock(clock)), *view.draw(seen, look)):
        page.print(one, no_wrap=True, overflow="ellipsis", crop=True)
    return written.getvalue()


def _has_blocks(out: Console) -> bool:
    return out.encoding.lower().replace("-", "").startswith("utf")


def _clock(clock: Clock) -> str:
    return f"{datetime.fromtimestamp(clock.time()):%H:%M:%S}"  # noqa: DTZ006 - of the viewer


class Screen:
    """The screen: asks the daemon each `every` seconds, and draws what the keys have chosen."""

    def __init__(self, daemon: Daemon, out: Console, clock: Clock, every: float, view: int) -> None:
        self._daemon = daemon
        self._out = out
        self._clock = clock
        self._every = every
        self.state = State(view)
        self._seen: Frame | None = None
        self._away = ""
        self._told = clock.monotonic()
        self._at = ""

    def run(self, fetch: Callable[[float], bytes]) -> None:
        """Go on until a key ends it; `fetch` waits so long for keys, and returns them."""
        due = self._clock.monotonic()
        with Live(console=self._out, screen=True, auto_refresh=False) as live:
            while not self.state.ended:
                if self._clock.monotonic() >= due:
                    if not self.state.paused or self._seen is None:
                        self._ask()
                    due = self._clock.monotonic() + self._every
                size = fit(self._out)
                live.update(self.drawn(), refresh=True)
                while (left := due - self._clock.monotonic()) > 0 and size == fit(self._out):
                    if data := fetch(min(_SLICE, left)):
                        for key in keys(data):
                            self.state = pressed(self.state, key)
                        break

    def _ask(self) -> None:
        try:
            self._seen = self._daemon.ask()
            self._away, self._told = "", self._clock.monotonic()
            self._at = _clock(self._clock)
        except Away as error:
            # What it told last is not what is.
            self._seen, self._away = None, str(error)

    def drawn(self) -> RenderableType:
        """Return the whole screen as it is now."""
        out, view = self._out, VIEWS[self.state.view]
        order = [*view.orders][self.state.order % len(view.orders)]
        look = Look(out.width, _has_blocks(out), order)
        top: list[RenderableType] = []
        body: list[RenderableType]
        if self._seen is None:
            top.append(Text.assemble(("flopwatch ", "bold"), "at ", text(self._daemon.where)))
            body = self._absence()
        else:
            top += header(self._seen, self._daemon.where, self._at)
            body = [*view.draw(self._seen, look)]
        top.append(self._tabs())
        room = max(1, out.height - len(top) - 1)
        lines, more = self._cut(body, room)
        return Group(*top, lines, self._footer(order, more))

    def _absence(self) -> list[RenderableType]:
        since = duration(self._clock.monotonic() - self._told)
        told = f"  The daemon does not answer (for {since}); it is asked again and again."
        return [Text(), words(told, "bold red"), Text.assemble("  ", text(self._away))]

    def _cut(self, body: Iterable[RenderableType], room: int) -> tuple[Segments, int]:
        """Return so many lines of the body, from the chosen one on, and how many are below."""
        options = self._out.options.update(height=None, no_wrap=True, overflow="ellipsis")
        lines = self._out.render_lines(Group(*body), options, pad=True)
        first = max(0, min(self.state.line, len(lines) - room))
        if first != self.state.line:
            self.state = self.state._replace(line=first)
        shown = lines[first : first + room]
        shown += [[Segment(" " * self._out.width)]] * (room - len(shown))
        flat: list[Segment] = []
        for line in shown:
            flat += [*line, Segment.line()]
        return Segments(flat), len(lines) - first - room

    def _tabs(self) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis")
        for at, view in enumerate(VIEWS):
            line.append(f"{at + 1} {view.name}", "reverse" if at == self.state.view else "dim")
            line.append(" ")
        return line

    def _footer(self, order: str, more: int) -> Text:
        told = "q quit  1-6 tab views  s sort"
        told += f" ({order})" if order else ""
        told += "  p go on" if self.state.paused else "  p pause"
        told += f"  j k scroll ({more} more)" if more > 0 else ""
        return Text(
            f"{told:<{self._out.width - 1}}"[: self._out.width - 1], "reverse", no_wrap=True
        )


@contextmanager
def keyboard(file: TextIO | None) -> Iterator[Callable[[float], bytes]]:
    """Lend the keys of a terminal as they are pressed; of anything else none ever comes."""
    if file is None or not file.isatty():
        yield _nobody
        return
    descriptor = file.fileno()
    former = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)

    def fetch(seconds: float) -> bytes:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        return os.read(descriptor, 64) if ready else b""

    try:
        yield fetch
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, former)


def _nobody(seconds: float) -> bytes:
    select.select([], [], [], seconds)
    return b""


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def watch(daemon: Daemon, view: int, every: float, clock: Clock) -> None:
    """Show a screen in this terminal until a key ends it.

    Raises `KeyboardInterrupt` if a signal does. A shell cannot stop it: it would leave the terminal
    as it is.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    out = console(sys.stdout)
    with keyboard(sys.stdin) as fetch:
        Screen(daemon, out, clock, every, view).run(fetch)
