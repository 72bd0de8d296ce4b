"""`flopwatch capture FILE`: saves an interval, as pages one after the other."""

from __future__ import annotations

import threading
from pathlib import Path

from exporter.clock import Clock
from exporter.commands.pages import Daemon
from exporter.config import ConfigError


def capture(path: Path, url: str, seconds: float, every: float, clock: Clock) -> int:
    """Write the pages of an interval into a new file; return how many there are.

    The first page is taken at once, the last after `seconds`; what was written stays where a later
    one cannot be had. Raises `ConfigError` for a file that is there already, or cannot be written,
    and for a daemon that does not answer.
    """
    daemon, pause = Daemon(url, clock), threading.Event()
    body = daemon.body()
    number = max(1, round(seconds / every))
    begin = clock.monotonic()
    try:
        with path.open("xb") as file:
            file.write(_whole(body))
            for at in range(1, number + 1):
                clock.wait(pause, max(0.0, begin + at * seconds / number - clock.monotonic()))
                file.write(_whole(daemon.body()))
                file.flush()
    except FileExistsError:
        raise ConfigError(f"{path}: is there already; captures are not overwritten") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    return number + 1


def _whole(body: bytes) -> bytes:
    return body if body.endswith(b"\n") else body + b"\n"
