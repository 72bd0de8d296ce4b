"""The demo's node as a daemon that takes faults: `tests.alerts.node PORT CONFIG SCENARIO`.

Each line of standard input is a JSON object of `exporter.demo.Faults`; `{}` mends everything.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from pathlib import Path

from exporter.app import App
from exporter.demo import Demo, Faults
from exporter.plans.demo import demo_plans
from exporter.serve import listen, serve


def take(demo: Demo) -> None:
    """Inject what comes in, in a thread of its own."""

    def read() -> None:
        for line in sys.stdin:
            demo.inject(Faults(**json.loads(line)))

    threading.Thread(target=read, daemon=True).start()


def main() -> None:
    with demo_plans(sys.argv[3], take) as plans, listen(f"127.0.0.1:{sys.argv[1]}") as bound:
        app = App(Path(sys.argv[2]), plans=plans)
        app.start()
        asyncio.run(serve(app, bound, lambda: print("ready", flush=True)))
        app.stop()


if __name__ == "__main__":
    main()
