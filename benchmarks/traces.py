"""How fast a Kineto trace is read, and in how much memory, beside other ways of reading JSON.

    .venv/bin/python benchmarks/traces.py [--size 100] [--check]

The trace is made up as large ones are: nine events of ten are operators with shapes and stacks.
`json.load` holds all of it in memory; ijson (if it is installed) reads events as we do. Times are
CPU seconds of a process for each reader, memory is the most that was resident in it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

MOST_WHOLE = 300
"""MB of a trace that `json.load` is asked to hold: it takes seven times as much memory."""
MUST_SPEED = 40.0
"""MB/s of CPU time at least."""
MUST_MEMORY = 64 << 20
"""Resident bytes at most, for a trace of any size with so few kernels."""


def write(path: Path, size: int) -> None:
    """Write a trace of about so many bytes."""
    from tests.trace_truth import event_text, events_of, scenario, text_of

    head, _, rest = text_of([]).partition('"traceEvents": [')
    with path.open("w") as file:
        file.write(head + '"traceEvents": [')
        comma, number = "", 0
        while file.tell() < size:
            found = scenario(number, 40_000)
            for one in found:
                one.start, one.end = one.start + number * 50_000, one.end + number * 50_000
                one.launched += number * 50_000
            for event in events_of(found, seed=number, cpu=6_000):
                if "correlation" in event["args"]:
                    event["args"]["correlation"] += number * 1000
                file.write(f"{comma}\n  {event_text(event)}")
                comma = ","
            number += 1
        file.write("\n" + rest.lstrip())


def ours(path: str) -> object:
    from exporter.profiling.reading import read_profile

    return read_profile(path, str(Path(path).parent), 160 << 20, 1 << 40)["summary"]["kernels"]


def whole(path: str) -> object:
    with Path(path).open("rb") as file:
        return sum(event.get("cat") == "kernel" for event in json.load(file)["traceEvents"])


def streamed(path: str) -> object:
    import ijson

    with Path(path).open("rb") as file:
        events = ijson.items(file, "traceEvents.item", use_float=True)
        return sum(event.get("cat") == "kernel" for event in events)


READERS: dict[str, Callable[[str], object]] = {
    "flopwatch (times and classes too)": ours,
    "json.load, counting kernels": whole,
    "ijson (yajl2_c), counting kernels": streamed,
}


def measure(name: str, path: Path) -> Iterator[float]:
    """Yield CPU seconds and resident bytes of a reader in a process of its own."""
    command = [sys.executable, __file__, "--reader", name, str(path)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    yield from map(float, output.split())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=100, help="MB of the trace")
    parser.add_argument("--check", action="store_true", help="fail where a limit is not kept")
    parser.add_argument("--reader", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reader:
        name, path = options.reader
        begin = time.process_time()
        number = READERS[name](path)
        used = time.process_time() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(used, peak, number)
        return 0
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.pt.trace.json"
        write(path, options.size * 1_000_000)
        size = path.stat().st_size
        print(
            f"{size / 1e6:.0f} MB\n\n| reader | MB/s | resident MB | kernels |\n|---|---|---|---|"
        )
        for name, reader in READERS.items():
            if reader is whole and options.size > MOST_WHOLE:
                continue
            try:
                seconds, peak, number = measure(name, path)
            except subprocess.CalledProcessError:
                print(f"| {name} | not installed | | |")
                continue
            print(f"| {name} | {size / 1e6 / seconds:.0f} | {peak / 1e6:.0f} | {number:.0f} |")
            if reader is ours:
                failed = size / 1e6 / seconds < MUST_SPEED or peak > MUST_MEMORY
    return int(options.check and failed)


if __name__ == "__main__":
    sys.exit(main())
