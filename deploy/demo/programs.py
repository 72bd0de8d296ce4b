"""Programs beside the demo: found, started out of the reach of Ctrl-C, and stopped."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

_PATIENCE = 10.0


def find(*names: str) -> str | None:
    """Return the path of the first program that is installed."""
    return next((path for name in names if (path := shutil.which(name)) is not None), None)


def port(wanted: int) -> int:
    """Return a port on loopback: the wanted one, or any where somebody has that."""
    for number in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", number))
                return int(probe.getsockname()[1])
    raise OSError("no port is free on 127.0.0.1")


def ready(number: int) -> bool:
    """Tell whether what listens on a port says that it is ready."""
    connection = http.client.HTTPConnection("127.0.0.1", number, timeout=2)
    try:
        connection.request("GET", "/-/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that writes to `log`; afterwards it is stopped, by force if need be.

    It is in a session of its own: Ctrl-C reaches whoever started it, not it.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - what this repository says
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask a program to end; end it with what it has started after some seconds."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def last_words(log: Path) -> str:
    """Return the last line that a program has written."""
    lines = log.read_text("utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
