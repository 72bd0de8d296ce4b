"""A fake driver library, built once, and real processes that read it through pynvml."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from exporter.catalogue import GPU
from exporter.clock import Clock, SystemClock
from exporter.isolate import Isolated
from exporter.samples import Event
from tests.fake_nvml import Control, build, environment, profile
from tests.nvml_lab import CLOCK, Log, Time
from tests.test_daemon import Daemon, free_port

Child = Callable[..., Isolated]
Drive = Callable[..., None]
Start = Callable[..., Daemon]


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory, tool: Callable[[str], str]) -> Path:
    """Return the path of the fake libnvidia-ml.so.1."""
    tool("gcc")
    return build(tmp_path_factory.mktemp("libnvidia-ml"))


@pytest.fixture
def control(tmp_path: Path) -> Control:
    """Return what changes the driver while it is in use."""
    return Control(tmp_path / "control")


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Return what the library has been asked."""
    return Log(tmp_path / "calls")


@pytest.fixture
def passing(tmp_path: Path, control: Control) -> Time:
    """Return what moves the clocks of children of `tests.nvml_lab` and of their library."""
    return Time(tmp_path / "clock", control)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the files of a machine that has none: no PCI bus, no process to look up."""
    place = tmp_path / "root"
    place.mkdir()
    return place


@pytest.fixture
def drive(
    fake_library: Path, control: Control, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Drive:
    """Return a function that lets children of this process find a library and a profile."""

    def chosen(name: str | Path, lines: Iterable[str], library: Path | None = None) -> None:
        if lines:
            control.add(*lines)
        path = name if isinstance(name, Path) else profile(name)
        wanted = environment(library or fake_library, path, control=control.path, log=log.path)
        wanted[CLOCK] = str(tmp_path / "clock")
        for key, value in wanted.items():
            if os.environ.get(key) != value:
                monkeypatch.setenv(key, value)

    return chosen


@pytest.fixture
def child(drive: Drive, root: Path) -> Iterator[Child]:
    """Return a function that gives a source in a child process over a profile, not yet read.

    Its second argument are lines for the control file. `library` is another library than the usual
    one, `module` the child's program, `clock` the parent's; other options go to the NVML source.
    Budget and deadline are generous.
    """
    made: list[Isolated] = []

    def start(
        name: str | Path,
        lines: Iterable[str] = (),
        *,
        deadline: float = 90.0,
        end_after: float | None = 0.0,
        events: Callable[[Event], None] | None = None,
        library: Path | None = None,
        module: str = "exporter.isolate",
        clock: Clock | None = None,
        **options: object,
    ) -> Isolated:
        drive(name, lines, library)
        source = Isolated(
            "nvml", GPU, {"budget": 60.0, "root": str(root), **options},
            deadline=deadline, clock=clock or SystemClock(), end_after=end_after, events=events,
            module=module,
        )  # fmt: skip
        made.append(source)
        return source

    yield start
    for source in made:
        source.close()


@pytest.fixture
def daemon(drive: Drive, root: Path, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a daemon over a profile, with settings of its NVML source.

    `release` is for how long it lets go. Its only other sources are its own process, which shows
    that the page moves on, and the kernel log, which is not there.
    """
    started: list[Daemon] = []

    def start(
        name: str, lines: Iterable[str] = (), *, release: str = "60s", **settings: object
    ) -> Daemon:
        drive(name, lines)
        nvml = {"enabled": True, "interval": "200ms", "deadline": "2s", **settings}
        file = tmp_path / "flopwatch.yaml"
        file.write_text(
            f"root: {root}\nrelease: {release}\nsources:\n"
            f"  nvml: {{{', '.join(f'{k}: {_yaml(v)}' for k, v in nvml.items())}}}\n"
            "  host: {enabled: false}\n  network: {enabled: false}\n  derived: {enabled: false}\n"
            "  ethtool: {enabled: false}\n"
            "  kmsg: {enabled: true, interval: 200ms}\n  process: {interval: 200ms}\n",
            "utf-8",
        )
        port = free_port()
        command = [sys.executable, "-m", "exporter", "run", "--listen", f"127.0.0.1:{port}"]
        started.append(Daemon([*command, "--config", str(file)], port))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
