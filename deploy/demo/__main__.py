"""Starts the demo with all that surrounds it: `make demo`, or `python -m deploy.demo`.

The daemon runs in this terminal. Prometheus and Alertmanager run beside it where they are
installed, with the rules in alerts/ and data in a directory that goes away with them. When the
daemon ends (Ctrl-C), all of it ends. Arguments are those of `flopwatch demo`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from deploy.demo import programs, settings

PROMETHEUS = ("prometheus",)
ALERTMANAGER = ("alertmanager", "prometheus-alertmanager")
_START = 60.0


def say(*lines: str) -> None:
    """Print lines, at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all of it; return the daemon's exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m deploy.demo", description=__doc__.partition("\n")[0],
        epilog="everything else is handed on to `flopwatch demo`",
    )  # fmt: skip
    parser.add_argument("--listen", default=":9810", metavar="ADDRESS", help="of the daemon")
    parser.add_argument("--alone", action="store_true", help="only the daemon")
    options, others = parser.parse_known_args(arguments)
    port = options.listen.rpartition(":")[2]
    # Prometheus is told the port before the daemon has one.
    if not port.isdecimal() or not (0 if options.alone else 1) <= int(port) < 65536:
        parser.error(f"--listen: {options.listen}: HOST:PORT or :PORT is wanted")
    listens = int(port)
    with tempfile.TemporaryDirectory(prefix="flopwatch-beside-") as folder, ExitStack() as ending:
        ending.enter_context(_ended_by_signals())
        announced = [] if options.alone else _surround(Path(folder), listens, ending)
        daemon = [sys.executable, "-m", "exporter", "demo", "--listen", options.listen, *others]
        return _daemon(daemon, announced)


def _surround(
    folder: Path, listens: int, ending: ExitStack
) -> list[Callable[[threading.Event], None]]:
    """Start what is installed; return who waits for it, and says where it is."""
    prometheus, alertmanager = programs.find(*PROMETHEUS), programs.find(*ALERTMANAGER)
    if prometheus is None:
        say("no Prometheus is installed (Debian: apt install prometheus prometheus-alertmanager):"
            " the daemon runs alone")  # fmt: skip
        return []
    notifies = programs.port(9093) if alertmanager is not None else None
    serves = programs.port(9090)
    addresses = settings.Addresses(
        f"127.0.0.1:{listens}", f"127.0.0.1:{serves}",
        None if notifies is None else f"127.0.0.1:{notifies}",
    )  # fmt: skip
    waits = []
    if alertmanager is None or notifies is None:
        say("no Alertmanager is installed: alerts are seen in Prometheus only")
    else:
        config = folder / "alertmanager.yaml"
        config.write_text(settings.alertmanager(), "utf-8")
        command = [
            alertmanager, f"--config.file={config}", f"--storage.path={folder / 'alertmanager'}",
            f"--web.listen-address=127.0.0.1:{notifies}", "--cluster.listen-address=",
        ]  # fmt: skip
        about = "Alertmanager", notifies, "/#/alerts", "nobody is told"
        waits.append(_begin(command, folder / "alertmanager.log", ending, about))
    config = folder / "prometheus.yaml"
    config.write_text(settings.prometheus(addresses, [str(path) for path in settings.rules()]))
    command = [
        prometheus, f"--config.file={config}", f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{serves}",
    ]  # fmt: skip
    about = "Prometheus", serves, "/alerts", "the rules in alerts/, a scrape each five seconds"
    waits.append(_begin(command, folder / "prometheus.log", ending, about))
    return waits


def _begin(
    command: Sequence[str], log: Path, ending: ExitStack, about: tuple[str, int, str, str]
) -> Callable[[threading.Event], None]:
    """Start a program; return what waits until it is ready, and says so."""
    process = ending.enter_context(programs.running(command, log))
    name, number, path, note = about

    def wait(over: threading.Event) -> None:
        for _ in range(round(_START / 0.2)):
            if programs.ready(number):
                say(f"{name}: http://127.0.0.1:{number}{path} ({note})")
                return
            if process.poll() is not None:
                say(f"{name} has ended: {programs.last_words(log)}")
                return
            if over.wait(0.2):
                return
        say(f"{name} is not ready: {programs.last_words(log)}")

    return wait


def _daemon(command: Sequence[str], waits: list[Callable[[threading.Event], None]]) -> int:
    """Run the daemon in this terminal until it ends; Ctrl-C reaches it as it reaches us."""
    over = threading.Event()
    process = subprocess.Popen(command, cwd=settings.ROOT)  # noqa: S603 - our own
    threads = [threading.Thread(target=wait, args=(over,)) for wait in waits]
    for thread in threads:
        thread.start()
    try:
        return process.wait()
    except _Ended:
        process.terminate()
        process.wait()
        return 0
    finally:
        over.set()
        for thread in threads:
            thread.join()
        if process.poll() is None:
            process.kill()


class _Ended(Exception):  # noqa: N818 - what has happened
    """Somebody wants us to end."""


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C be the daemon's to heed; a closed terminal and SIGTERM end it."""

    def end(*_: object) -> None:
        raise _Ended

    former = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, end),
        signal.SIGHUP: signal.signal(signal.SIGHUP, end),
    }
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    os.chdir(settings.ROOT)
    sys.exit(main())
