"""The pages from which tests of alerts take their series, so that no test invents one.

`python -m tests.alerts.pages` runs the demo for a minute and a half and captures its page anew
(`tests/data/alerts/demo.txt`; HELP lines are left out).
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from exporter import catalogue as c
from exporter.samples import Histogram, Sample
from exporter.sources.network import NetworkSource

DATA = Path(__file__).parent.parent / "data"
CAPTURE = DATA / "alerts" / "demo.txt"
TREES = (
    "h100-8xndr-bond",
    "derived-efa",
    "derived-saturated",
    "derived-vf-no-counters",
    "derived-roce-congested/t1",
)

_LINE = re.compile(r"(?P<name>[a-z_0-9]+)(?:\{(?P<labels>.*)\})? (?P<value>.+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Series(NamedTuple):
    """A series of a page."""

    name: str
    labels: Mapping[str, str]
    value: float


def labels_of(text: str) -> dict[str, str]:
    """Return labels as they stand between braces."""
    return {name: value.replace('\\"', '"') for name, value in _LABEL.findall(text)}


def read(text: str) -> Iterator[Series]:
    """Yield the series of a page."""
    for line in text.splitlines():
        if line and line[0] != "#":
            match = _LINE.fullmatch(line)
            assert match, line
            # golden pages do not keep what differs from run to run: "(a time of this machine)"
            value = "1000" if match["value"][0] == "(" else match["value"].split()[0]
            yield Series(match["name"], labels_of(match["labels"] or ""), float(value))


def page(name: str) -> list[Series]:
    """Return the series of a golden page, or those of the demo."""
    path = CAPTURE if name == "demo" else DATA / "golden" / f"{name}.txt"
    return list(read(path.read_text("utf-8")))


def tree(name: str) -> Iterator[Series]:
    """Yield what the reader of ports makes of a published or derived `/sys`."""
    source = NetworkSource(DATA / "sysfs" / name)
    for item in source.read():
        if isinstance(item, Sample) and not isinstance(item.value, Histogram):
            labels = dict(zip(item.metric.labels, item.labels, strict=True))
            yield Series(item.metric.name, labels, float(item.value))
    source.close()


def everything() -> dict[str, list[Series]]:
    """Return all series of all pages by name, the demo's first."""
    found: dict[str, list[Series]] = {}
    golden = sorted(path.stem for path in (DATA / "golden").glob("*.txt"))
    for name in ("demo", *golden):
        for one in page(name):
            found.setdefault(one.name, []).append(one)
    for name in TREES:
        for one in tree(name):
            found.setdefault(one.name, []).append(one)
    return found


def family(name: str) -> str:
    """Return the family that a series belongs to."""
    short = re.sub(r"_(bucket|sum|count)$", "", name)
    return name if name in c.FAMILIES or short not in c.FAMILIES else short


def _capture() -> None:
    daemon = [sys.executable, "-m", "exporter", "demo", "--scenario", "default"]
    command = [*daemon, "--listen", "127.0.0.1:9899"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as demo:
        time.sleep(100)
        with urllib.request.urlopen("http://127.0.0.1:9899/metrics", timeout=10) as answer:
            text = answer.read().decode()
        demo.terminate()
    lines = [line for line in text.splitlines() if not line.startswith("# HELP")]
    CAPTURE.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    _capture()
