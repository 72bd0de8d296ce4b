"""The demo's node, scraped by a real Prometheus with the shipped rules, through a timetable.

The node begins as the default scenario has it, and faults come and go by the timetable. Rules run
fifteen times as fast, as in `tests.alerts.test_end_to_end`; panels have the windows that they ship
with. `cluster` is no label here: nobody has to have one.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import NamedTuple

import yaml

from dashboards.grafana import Choice, Dashboard, Prometheus, QueryError, Series, Span, Target
from tests.alerts.cases import ALERTS, TOPICS
from tests.alerts.test_end_to_end import Node, faster_rules, until
from tests.test_daemon import free_port, ready

SCRAPE = 5.0
"""Seconds between two scrapes, as the boards are told. There are more of them, for the rules."""
LAST = 30.0
BOARDS = Path(__file__).parents[2] / "dashboards"


class Phase(NamedTuple):
    """A part of the timetable: its faults, and how long it lasts."""

    name: str
    seconds: float
    faults: Mapping[str, object]


class BoardLab:
    """A running Prometheus, the timetable that it has seen, and the boards."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.prometheus = Prometheus(url)
        self.began = time.time()
        self.ends: dict[str, float] = {}
        self._choices: dict[str, dict[str, Choice]] = {}
        self.boards = {
            file.stem: Dashboard(json.loads(file.read_text("utf-8")))
            for file in sorted(BOARDS.glob("*.json"))
        }

    def span(self) -> Span:
        """Return the time since Prometheus began."""
        return Span(self.began, max(self.ends.values(), default=time.time()), scrape=SCRAPE)

    def choices(self, board: str) -> dict[str, Choice]:
        """Return what the board's variables are."""
        if board not in self._choices:
            chosen = self.boards[board].choose(self.prometheus, self.span())
            self._choices[board] = chosen
        return self._choices[board]

    def targets(self, board: str) -> list[Target]:
        """Return all queries of a board, of annotations too."""
        found = self.boards[board]
        return [*found.targets(self.choices(board)), *found.annotations()]

    def ask(self, board: str, target: Target) -> list[Series]:
        """Return what a query brings: over the whole time, or at the end of each phase."""
        if not target.instant:
            return target.ask(self.prometheus, self.choices(board), self.span())
        sent = target.sent(self.choices(board), self.span())
        return [one for end in self.ends.values() for one in self.prometheus.at(sent, end)]

    def shown(self, board: str, panel: str, when: str, ref: str = "A", /, **labels: str) -> float:
        """Return what a panel showed in the last half minute of a phase, on average.

        That is the sum of the series with the labels; not a number where it showed nothing.
        """
        target = next(one for one in self.targets(board) if one.panel == panel and one.ref == ref)
        end = self.ends[when]
        span = self.span()._replace(start=end - LAST, end=end)
        sent = target.sent(self.choices(board), self.span())
        moments: dict[float, float] = {}
        for found, points in self.prometheus.over(sent, span, span.interval()):
            if labels.items() <= found.items():
                for at, value in points:
                    moments[at] = moments.get(at, 0.0) + value
        return math.fsum(moments.values()) / len(moments) if moments else math.nan


def write_files(folder: Path, daemon: int, own: int, every: int) -> None:
    """Write the configuration of Prometheus, and the rules."""
    for topic in TOPICS:
        text = (ALERTS / f"{topic}.yaml").read_text("utf-8")
        (folder / f"{topic}.rules.yaml").write_text(faster_rules(text), "utf-8")
    node = {"targets": [f"127.0.0.1:{daemon}"], "labels": {"instance": "node-1"}}
    prometheus = {
        "global": {
            "scrape_interval": f"{every}s",
            "scrape_timeout": f"{every}s",
            "evaluation_interval": "2s",
        },
        "rule_files": ["*.rules.yaml"],
        "scrape_configs": [
            {"job_name": "flopwatch", "static_configs": [node]},
            {
                "job_name": "prometheus",
                "static_configs": [{"targets": [f"127.0.0.1:{own}"]}],
            },
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(prometheus), "utf-8")


@contextmanager
def running_lab(
    program: str,
    folder: Path,
    timetable: tuple[Phase, ...],
    scenario: str = "default",
    every: int = 2,
) -> Iterator[BoardLab]:
    """Run node and Prometheus through the timetable; both are there until the end.

    Prometheus scrapes `every` so many seconds: rules that run fast need it often.
    """
    port = free_port()
    (folder / "flopwatch.yaml").write_text("", "utf-8")
    node = Node(folder / "flopwatch.yaml", scenario)
    write_files(folder, node.port, port, every)
    command = [
        program, f"--config.file={folder / 'prometheus.yml'}", "--log.level=error",
        f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    processes = [node.process]
    try:
        node.inject(**timetable[0].faults)
        node.wait_for("/-/ready", ready, 60)
        processes.append(subprocess.Popen(command, stdout=sys.stderr))
        lab = BoardLab(f"http://127.0.0.1:{port}")
        until(lambda: _scraped(lab), 60, "Prometheus has not scraped the node")
        lab.began = time.time()
        for phase in timetable:
            node.inject(**phase.faults)
            Event().wait(phase.seconds)
            lab.ends[phase.name] = time.time()
        yield lab
    finally:
        for process in processes:
            process.kill()
            process.wait(30)
        assert node.process.stdin is not None
        node.process.stdin.close()


def _scraped(lab: BoardLab) -> bool:
    try:
        return bool(lab.prometheus.at('up{job="flopwatch"} == 1', time.time()))
    except (OSError, QueryError):  # it is starting
        return False
