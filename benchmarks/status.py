"""What the status page costs the daemon: a beat of the history, the documents, their size.

    .venv/bin/python benchmarks/status.py [--seconds 30]

On the demo's node, whose sources run for some seconds first; the history is then filled with an
hour. Times are CPU time of the calling thread. Nothing of it runs on the event loop.
"""

from __future__ import annotations

import argparse
import functools
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from exporter.app import App
from exporter.history import INTERVAL, POINTS, History
from exporter.plans.demo import demo_plans
from exporter.status.conditions import Watch
from exporter.web import _history_text, _json


def milliseconds(work: Callable[[], object], times: int) -> float:
    """Return the CPU time of a call, the least of five rounds."""
    rounds = []
    for _ in range(5):
        began = time.thread_time()
        for _ in range(times):
            work()
        rounds.append((time.thread_time() - began) / times * 1000)
    return min(rounds)


class Told:
    """Stands in for the services of the web room: an hour that stands still."""

    def __init__(self, history: History) -> None:
        self.kept = history

    def history(self, since: int | None) -> dict[str, object]:
        first, kept = self.kept.since(since)
        series = [one._asdict() for one in kept]
        return {"first": first, "newest": self.kept.beat, "series": series}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30)
    asked = parser.parse_args()
    with demo_plans("default") as plans:
        app = App(None, plans=plans)
        app.start()
        threading.Event().wait(asked.seconds)
        view, history, watch = app.view(), History(), Watch()
        moment = 1000.0
        for _ in range(POINTS):
            history.note(view, moment)
            moment += INTERVAL
        told, newest = Told(history), history.beat or 0
        look = milliseconds(lambda: watch.note(view, moment, 0.0), 20)
        rows = [
            ("a beat of the history", milliseconds(lambda: history.note(view, moment), 50), 0),
            ("a look at the conditions", look, 0),
        ]
        asks: Any = told
        for name, since in (("the history, an hour", None), ("the history, one point", newest - 1)):
            cost = milliseconds(functools.partial(_history_text, asks, since), 3)
            rows.append((name, cost, len(_history_text(asks, since))))
        status = milliseconds(lambda: _json(app.status(detailed=True)), 10)
        rows.append(("the status document", status, len(_json(app.status(detailed=True)))))
        series = len(history.since(newest)[1])
        app.stop()
    print(f"{series} series, {series * POINTS * 4 / 1e6:.2f} MB of points\n")
    print("| what | ms | bytes |\n|---|---:|---:|")
    for name, cost, size in rows:
        print(f"| {name} | {cost:.2f} | {size or ''} |")


if __name__ == "__main__":
    main()
