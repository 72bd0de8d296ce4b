"""What the tests of NVML share: pages and logs to look things up in, and clocks that stand still.

Run as `python -m tests.nvml_lab` it is a child process like `exporter.isolate`, but the clocks of
its source and of the fake library are set by the test: nothing depends on how fast a machine is.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from exporter.isolate import Isolated, main
from exporter.samples import Fault, Item, Metric, Sample, SourceError
from exporter.sources.nvml import NvmlSource
from tests.fake_nvml import Control

CLOCK = "FAKE_CLOCK"


class StandingClock:
    """A clock that shows what its file says, in seconds; it never moves by itself."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def monotonic(self) -> float:
        return float(self._path.read_text("ascii"))

    def time(self) -> float:
        return self.monotonic() + 1.8e9

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(seconds)


class Time:
    """Sets the child's clock and the fake library's, both to the same second."""

    def __init__(self, path: Path, control: Control) -> None:
        self._path = path
        self._control = control
        self.now = 1000.0
        self._set()

    def forward(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self._control.lines.remove(f"clock = {self.now!r}")
        self.now += seconds
        self._set()

    def _set(self) -> None:
        self._control.add(f"clock = {self.now!r}")
        parts = self._path.with_suffix(".tmp")
        parts.write_text(repr(self.now), "ascii")
        parts.replace(self._path)


class Page:
    """What one read brought, to look things up in. Two samples of one series are a failure."""

    def __init__(self, items: Iterable[Item]) -> None:
        found = list(items)
        self.samples = [item for item in found if isinstance(item, Sample)]
        self.faults = [item for item in found if isinstance(item, Fault)]
        self._values = {sample[:2]: sample.value for sample in self.samples}
        assert len(self._values) == len(self.samples), "the same series twice"

    def of(self, metric: Metric) -> dict[tuple[str, ...], float]:
        """Return a family's values by their labels."""
        return {
            labels: value  # type: ignore[misc]
            for (one, labels), value in self._values.items()
            if one is metric
        }

    def by_gpu(self, metric: Metric) -> dict[int, float]:
        """Return a family's values by the GPU's number."""
        found = self.of(metric)
        numbers = {int(labels[0]): value for labels, value in found.items()}
        assert len(numbers) == len(found), found
        return numbers

    def one(self, metric: Metric, *labels: str) -> float | None:
        """Return the only value of a family whose labels begin so, or `None`."""
        found = [v for given, v in self.of(metric).items() if given[: len(labels)] == labels]
        assert len(found) < 2, found
        return found[0] if found else None

    def said(self, part: str) -> list[Fault]:
        """Return the faults of a part."""
        return [fault for fault in self.faults if fault.part == part]

    def families(self, gpu: int) -> set[str]:
        """Return the names of all families that a GPU has a series of."""
        return {sample.metric.name for sample in self.samples if sample.labels[:1] == (str(gpu),)}


class Log:
    """What has been called, as the fake library wrote it down: function, device, arguments."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, function: str = "", device: str = "") -> list[str]:
        """Return the calls of a function, about a device ("3", or "0/2/0" for an instance)."""
        text = self.path.read_text("utf-8") if self.path.exists() else ""
        return [
            line
            for line in text.splitlines()
            if function in {"", line.split()[0]} and device in {"", line.split()[1]}
        ]

    def counts(self) -> Counter[str]:
        """Return how often each function was called."""
        return Counter(line.split()[0] for line in self.lines())

    def forget(self) -> None:
        """Begin anew; the library appends, so that it may go on writing."""
        if self.path.exists():
            os.truncate(self.path, 0)


def read(source: Isolated) -> Page:
    """Read once."""
    return Page(source.read())


def until(
    source: Isolated, wanted: Callable[[Page], bool], *, seconds: float = 30.0, pause: float = 0.02
) -> Page:
    """Read again and again until the page is as wanted; failed reads are passed over."""
    last: object = None
    wait = threading.Event()
    for _ in range(int(seconds / max(pause, 0.01))):
        try:
            page = read(source)
        except (OSError, SourceError) as error:
            last = error
        else:
            last = page.samples, page.faults
            if wanted(page):
                return page
        wait.wait(pause)
    raise AssertionError(f"never as wanted; last: {last!r}")


def _standing(**options: object) -> NvmlSource:
    clock = StandingClock(Path(os.environ[CLOCK]))
    return NvmlSource(**options, clock=clock)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1:], {"nvml": _standing})
