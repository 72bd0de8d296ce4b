"""A daemon with one healthy source and four sick ones; run as `python -m tests.sick_daemon GATE`.

A source that hangs for ever in a child, one that crashes its child with a segmentation fault, one
that raises at each read, and one that hangs in the daemon's own process.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterable

from exporter import catalogue as c
from exporter.app import App
from exporter.config import Settings
from exporter.isolate import Isolated
from exporter.plans import Estate, Plan
from exporter.runner import Schedule
from exporter.samples import Sample, Source
from exporter.serve import listen, serve
from tests.fakes import FakeSource

DEADLINE = 0.5


def plans(settings: Settings, estate: Estate) -> list[Plan]:
    reads = iter(range(1, 1_000_000))

    def healthy() -> Iterable[Sample]:
        return [c.HOST_CPUS(next(reads))]

    def raises() -> Iterable[Sample]:
        raise KeyError("surprise")

    def hangs() -> Iterable[Sample]:
        threading.Event().wait()
        return []

    def child(name: str, **options: object) -> Callable[[], Source]:
        return lambda: Isolated(
            name, "host", options, deadline=DEADLINE, clock=estate.clock, module="tests.children"
        )

    makers: dict[str, Callable[[], Source]] = {
        "healthy": lambda: FakeSource("healthy", act=healthy),
        "raises": lambda: FakeSource("raises", act=raises),
        "stuck": lambda: FakeSource("stuck", act=hangs),
        "crashes": child("crashes"),
        "hangs": child("hangs", gate=sys.argv[1]),
    }
    return [
        Plan(name, "host", Schedule(0.1, DEADLINE), name, make) for name, make in makers.items()
    ]


def main() -> None:
    app = App(None, plans=plans)
    with listen("127.0.0.1:0") as bound:
        print(bound.getsockname()[1], flush=True)
        app.start()
        asyncio.run(serve(app, bound, lambda: print("ready", flush=True)))
    clean = app.stop()
    print(f"clean={clean}", flush=True)
    from exporter.__main__ import _leave

    sys.exit(_leave(clean=clean))


if __name__ == "__main__":
    main()
