"""How fast the page is written, beside the official writer on the same series in the same run.

    .venv/bin/python benchmarks/render.py [--check]

Families of eight series (one for each GPU) with four labels and mixed values, as a node has them.
Rendering is the way from values in place to the bytes of the page: a snapshot that has just been
put on the board for ours, a custom collector (its fastest way) or its usual registry for theirs.
"with the gate" adds the check of each sample that happens once for each read.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.common import race
from exporter.board import Board
from exporter.clock import SystemClock
from exporter.exposition import Exposition
from exporter.samples import Gate, Metric, Sample, Snapshot

LABELS = ("gpu", "uuid", "model", "node")
DICE = random.Random(7)
GPUS = [
    (str(i), f"GPU-{DICE.getrandbits(32):08x}-1234-5678-9abc-{DICE.getrandbits(48):012x}",
     "NVIDIA H100 80GB HBM3", "node-0417")
    for i in range(8)
]  # fmt: skip
KEY = (frozenset(("bench",)), False, False)


def values(n: int) -> list[float]:
    """Four tenths small whole numbers, three large ones, two with decimals, one full float."""
    made: list[float] = []
    for i in range(n):
        kind = i % 10
        if kind < 4:
            made.append(DICE.randrange(101))
        elif kind < 7:
            made.append(DICE.randrange(10**6, 10**13))
        else:
            made.append(round(DICE.random() * 700, 3) if kind < 9 else DICE.random())
    return made


def families(n: int) -> list[Metric]:
    return [
        Metric(f"gpu_metric_number_{f:04d}_seconds", "gauge",
               f"Help text of metric number {f}, as long as usual.", LABELS, "bench")
        for f in range((n + 7) // 8)
    ]  # fmt: skip


def ours(
    n: int, changing: float, *, openmetrics: bool = False, gated: bool = False
) -> Callable[[], bytes]:
    """Return a function that publishes a read with a share of new values, and renders."""
    rows, board, clock = families(n), Board(), SystemClock()
    slot = board.enroll("bench", "bench", 2.0, 1e9, clock.monotonic())
    exposition = Exposition(lambda: board.view(clock.monotonic()), list, clock)
    gate, first = Gate(10 * n), values(n)
    reads = []
    for _ in range(2):
        second = [v + 1 if DICE.random() < changing else v for v in first]
        first = second
        reads.append([Sample(rows[i // 8], GPUS[i % 8], v) for i, v in enumerate(second)])
    batches = [gate.admit(read)[0] for read in reads]
    turn = 0

    def act() -> bytes:
        nonlocal turn
        turn += 1
        batch = gate.admit(reads[turn % 2])[0] if gated else batches[turn % 2]
        slot.publish(Snapshot("bench", "bench", clock.monotonic(), 0.0, 0.0, batch), {})
        return exposition.page((KEY[0], openmetrics, False))

    return act


def theirs_collector(n: int) -> Callable[[], bytes]:
    rows, numbers = families(n), values(n)

    class Collector:
        def collect(self) -> Iterator[GaugeMetricFamily]:
            for at, row in enumerate(rows):
                family = GaugeMetricFamily(row.name, row.help, labels=LABELS)
                for labels, value in zip(GPUS, numbers[8 * at : 8 * at + 8], strict=False):
                    family.add_metric(labels, value)
                yield family

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())  # type: ignore[arg-type]
    return lambda: generate_latest(registry)


def theirs_registry(n: int) -> Callable[[], bytes]:
    registry = CollectorRegistry()
    for at, row in enumerate(families(n)):
        gauge = Gauge(row.name, row.help, LABELS, registry=registry)
        for labels, value in zip(GPUS, values(n)[8 * at : 8 * at + 8], strict=False):
            gauge.labels(*labels).set(value)
    return lambda: generate_latest(registry)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="fail when a budget is missed")
    options = parser.parse_args()
    worst = 0.0
    for n in (1000, 5000, 20000):
        base = "generate_latest, custom collector"
        results = race(
            {
                base: theirs_collector(n),
                "generate_latest, registry": theirs_registry(n),
                "flopwatch, all values new": ours(n, 1.0),
                "flopwatch, all values new, OpenMetrics": ours(n, 1.0, openmetrics=True),
                "flopwatch, all values new, with the gate": ours(n, 1.0, gated=True),
                "flopwatch, a third new": ours(n, 1 / 3),
                "flopwatch, a tenth new": ours(n, 0.1),
            },
            rounds=9,
            baseline=base,
        )
        print(f"\n{n} series:\n\n| what | us per series | against the first |\n|---|---|---|")
        for name, result in results.items():
            print(f"| {name} | {result.seconds / n * 1e6:.3f} | 1/{1 / result.ratio:.1f} |")
        if n == 5000:
            worst = results["flopwatch, all values new"].ratio
    kept = worst <= 1 / 20
    print(f"\n{'kept  ' if kept else 'MISSED'} 5,000 series, all new: at least 20 times faster")
    return int(options.check and not kept)


if __name__ == "__main__":
    sys.exit(main())
