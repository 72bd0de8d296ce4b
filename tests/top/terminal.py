"""A terminal of a given size, with a program in it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable

_SEQUENCE = re.compile(rb"\x1b(\[[0-9;?]*[A-Za-z]|[()][A-Z0-9])")
HOME = b"\x1b[H"


class Terminal:
    """Runs a command in a pseudo-terminal; `frame` is the last whole screen, without colours."""

    def __init__(self, command: list[str], columns: int, rows: int, **environment: str) -> None:
        self.master, slave = pty.openpty()
        self.sent = b""
        self.resize(columns, rows)
        self.modes = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", **environment},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - for Ctrl-C
        )  # fmt: skip
        self.slave = slave

    def resize(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def read(self, seconds: float) -> None:
        """Take what comes within so many seconds."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            poll = select.poll()
            poll.register(self.master, select.POLLIN)
            if not poll.poll(left * 1e3):
                return
            try:
                self.sent += os.read(self.master, 65536)
            except OSError:
                return

    @property
    def frame(self) -> list[str]:
        last = self.sent.rpartition(HOME)[2]
        shown = _SEQUENCE.sub(b"", last).decode("utf-8", "replace").replace("\r", "")
        return shown.rstrip("\n").split("\n")

    def wait_for(self, wanted: Callable[[list[str]], bool], seconds: float = 40) -> list[str]:
        """Read until the screen is as wanted, and still."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.read(0.3)
            if wanted(self.frame):
                return self.frame
        raise AssertionError("\n".join(self.frame))

    def end(self) -> int:
        """Read until it has ended, and return the exit code.

        It waits itself until what it has written is taken, before it gives the terminal back.
        """
        until = time.monotonic() + 20
        try:
            while self.process.poll() is None and time.monotonic() < until:
                self.read(0.2)
            return self.process.wait(0.1)
        finally:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGKILL)
                self.process.wait(10)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        os.close(self.slave)
        os.close(self.master)
