"""`flopwatch top` in a real terminal, on what the real daemon tells of the demo's node."""

from __future__ import annotations

import re
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator

import pytest
from rich.cells import cell_len

from tests.test_daemon import Daemon, free_port, ready
from tests.top.terminal import Terminal

TOP = [sys.executable, "-m", "exporter", "top"]
VIEWS = {
    "overview": "promises",
    "gpus": "works for",
    "training": "what the peak is lost to",
    "serving": "objective",
    "fabric": "mlx5_7/1",
    "node": "sources",
}
Open = Callable[..., Terminal]


def begin(port: int) -> Daemon:
    command = [sys.executable, "-m", "exporter", "demo", "--listen", f"127.0.0.1:{port}"]
    return Daemon(command, port)


def end(demo: Daemon) -> None:
    """Let it take its files along."""
    demo.process.terminate()
    demo.process.communicate(timeout=30)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """The demo, as far as it knows its run and its servers."""
    demo = begin(free_port())
    demo.wait_for("/-/ready", ready, seconds=90)
    demo.wait_for("/metrics", lambda _, page: "train_mfu_loss_ratio{" in page, seconds=90)
    demo.wait_for("/metrics", lambda _, page: 'signal="ttft"' in page, seconds=90)
    yield demo
    end(demo)


@pytest.fixture
def open_() -> Iterator[Open]:
    opened: list[Terminal] = []

    def run(
        port: int, columns: int = 80, rows: int = 24, *more: str, **environment: str
    ) -> Terminal:
        command = [*TOP, "--url", f"http://127.0.0.1:{port}", "--every", "0.5", *more]
        opened.append(Terminal(command, columns, rows, **environment))
        return opened[-1]

    yield run
    for one in opened:
        one.close()


def fits(frame: list[str], columns: int, rows: int) -> bool:
    return len(frame) == rows and all(cell_len(line) <= columns for line in frame)


def holds(words: str) -> Callable[[list[str]], bool]:
    return lambda frame: words in "\n".join(frame)


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40), (200, 60)])
def test_each_view_fits_the_terminal(daemon: Daemon, open_: Open, columns: int, rows: int) -> None:
    """By number and by tab; what is there is shown."""
    terminal = open_(daemon.port, columns, rows)
    for at, words in enumerate(VIEWS.values()):
        if at < 3:
            terminal.press(str(at + 1))
        else:
            terminal.press("\t")
        frame = terminal.wait_for(holds(words))
        assert fits(frame, columns, rows), "\n".join(frame)
    terminal.press("q")
    assert terminal.end() == 0


def test_the_overview_of_eighty_columns_shows_all_at_once(daemon: Daemon, open_: Open) -> None:
    frame = open_(daemon.port).wait_for(holds("llama-70b"))
    shown = "\n".join(frame)
    for words in ("story 1/9", "llama2-13b", "llama-3b", "promises", "fabric", "cost", "q quit"):
        assert words in shown, shown
    assert len([line for line in frame if re.match(r" +[0-7] .*\d%", line)]) == 8
    assert "more)" not in shown, "nothing is below"


def test_a_resize_is_followed(daemon: Daemon, open_: Open) -> None:
    """Also where the environment states a size, which some shells export."""
    terminal = open_(daemon.port, COLUMNS="80", LINES="24")
    terminal.wait_for(holds("promises"))
    terminal.resize(132, 50)
    assert terminal.wait_for(lambda frame: fits(frame, 132, 50) and len(frame[-1]) > 100)
    terminal.resize(80, 24)
    assert terminal.wait_for(lambda frame: fits(frame, 80, 24))


def test_a_small_terminal_scrolls(daemon: Daemon, open_: Open) -> None:
    terminal = open_(daemon.port, 80, 12)
    frame = terminal.wait_for(holds("more)"))
    assert not holds("promises")(frame)
    terminal.press("j" * 15)
    assert fits(terminal.wait_for(holds("promises")), 80, 12)
    terminal.press("\x1b[A" * 15)
    terminal.wait_for(holds("held down by"))


def test_the_order_of_gpus_is_chosen(daemon: Daemon, open_: Open) -> None:
    terminal = open_(daemon.port, 120, 40, "--view", "gpus")
    terminal.wait_for(holds("works for"))
    terminal.press("sss")
    frame = terminal.wait_for(holds("s sort (memory)"))
    rows = [line for line in frame if re.match(r" +[0-7] .*llama", line)]
    used = [float(line.split()[1]) for line in rows]
    assert used == sorted(used, reverse=True)


def test_values_are_live_until_they_are_paused(daemon: Daemon, open_: Open) -> None:
    def up(frame: list[str]) -> str:
        return next(line for line in frame if " up " in line)

    terminal = open_(daemon.port)
    first = up(terminal.wait_for(holds("promises")))
    terminal.wait_for(lambda frame: holds("promises")(frame) and up(frame) != first)
    terminal.press("p")
    still = up(terminal.wait_for(holds("p go on")))
    terminal.read(3)
    assert up(terminal.frame) == still


@pytest.mark.parametrize("end", ["q", "\x03", "SIGTERM"])
def test_the_terminal_is_as_it_was_afterwards(daemon: Daemon, open_: Open, end: str) -> None:
    """Its modes, its screen and its cursor, after a key, after Ctrl-C, and after a signal."""
    terminal = open_(daemon.port)
    terminal.wait_for(holds("promises"))
    assert termios.tcgetattr(terminal.slave) != terminal.modes
    if end == "SIGTERM":
        terminal.process.terminate()
    else:
        terminal.press(end)
    assert terminal.end() == 0
    assert termios.tcgetattr(terminal.slave) == terminal.modes
    assert terminal.sent.rfind(b"\x1b[?1049l") > terminal.sent.rfind(b"\x1b[?1049h")
    assert terminal.sent.rfind(b"\x1b[?25h") > terminal.sent.rfind(b"\x1b[?25l")


def test_it_goes_on_while_the_daemon_is_away(open_: Open) -> None:
    """It says so, shows nothing old, and goes on when the daemon is back."""
    port = free_port()
    terminal = open_(port)
    terminal.wait_for(holds("does not answer"))
    demo = begin(port)
    try:
        terminal.wait_for(holds("llama-70b"), seconds=90)
        end(demo)
        frame = terminal.wait_for(holds("does not answer"))
        assert not holds("llama-70b")(frame)
        assert fits(frame, 80, 24)
        terminal.press("2")
        terminal.press("q")
        assert terminal.end() == 0
    finally:
        end(demo)


def test_no_colour_is_used_where_none_is_wanted(daemon: Daemon, open_: Open) -> None:
    coloured = open_(daemon.port)
    coloured.wait_for(holds("promises"))
    plain = open_(daemon.port, NO_COLOR="1")
    plain.wait_for(holds("promises"))
    colour = re.compile(rb"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7]|38;5;\d+)m")
    assert colour.search(coloured.sent)
    assert not colour.search(plain.sent)


def test_a_terminal_without_unicode_gets_plain_bars(daemon: Daemon, open_: Open) -> None:
    terminal = open_(daemon.port, PYTHONIOENCODING="ascii")
    frame = terminal.wait_for(holds("promises"))
    assert "##" in "\n".join(frame)
    assert all(line.isascii() for line in frame)


# ---- one frame ------------------------------------------------------------------------------


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    import os

    return subprocess.run(
        [*TOP, *arguments], capture_output=True, timeout=60, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize("view", ["overview", "serving"])
def test_one_frame_goes_to_a_pipe(daemon: Daemon, view: str) -> None:
    """All of it, without a colour or a control character, and the exit code is 0."""
    url = f"http://127.0.0.1:{daemon.port}/metrics"
    done = run("--url", url, "--once", "--view", view, COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, b"")
    shown = done.stdout.decode()
    assert VIEWS[view] in shown
    assert "\x1b" not in shown
    assert all(cell_len(line) <= 80 for line in shown.splitlines())


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [("| head -n 1", 0, b""), (">/dev/full", 2, b"flopwatch: top: standard output: No space left"),
     (">&-", 0, b"")],
)  # fmt: skip
def test_an_output_that_takes_no_more(daemon: Daemon, target: str, code: int, said: bytes) -> None:
    """A reader that has seen enough, a full disk, and none at all."""
    command = f"{' '.join(TOP)} --once --url http://127.0.0.1:{daemon.port} {target}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == code
    assert done.stderr.startswith(said)
    assert done.stderr.count(b"\n") == (1 if said else 0)


def test_one_frame_without_a_daemon_is_an_error_in_one_line() -> None:
    port = free_port()
    done = run("--url", f"http://127.0.0.1:{port}", "--once")
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.decode().startswith(f"flopwatch: top: http://127.0.0.1:{port}: ")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://x", "--url: ftp://x: an http:// or https:// address"),
        ("unix:x", "--url: unix:x: unix:///path is wanted"),
        ("unix:///nowhere", "top: unix:///nowhere: /nowhere: No such file"),
    ],
)
def test_an_address_that_is_none_is_named(url: str, said: str) -> None:
    done = run("--url", url, "--once")
    assert done.returncode == 2
    assert said in done.stderr.decode()
