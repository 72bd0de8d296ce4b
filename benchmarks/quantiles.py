"""What percentiles with bounds cost, beside the formula of Prometheus' histogram_quantile.

    .venv/bin/python benchmarks/quantiles.py [--check]

The work of one second on a node with 8 servers: 5 signals in 4 windows each, 4 percentiles of each,
and one share within a threshold. The buckets are those of a recorded vLLM page. The formula is
written out in the same language, without bounds; it may take the cumulative counts as they are.
"""

from __future__ import annotations

import argparse
import random
import sys
from bisect import bisect_left
from itertools import accumulate
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.common import race, table
from exporter.derive.serving.increase import Increase
from exporter.derive.serving.quantiles import estimate, estimates, merge, within
from exporter.formats.exposition import Reader

PAGE = Path(__file__).parent.parent / "tests" / "data" / "engines" / "vllm-0.32.0-cpu.prom"
SIGNALS = (
    "vllm:time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds",
    "vllm:request_time_per_output_token_seconds",
    "vllm:request_inference_time_seconds",
    "vllm:request_queue_time_seconds",
)
SERVERS, WINDOWS = 8, 4
QUANTILES = (0.5, 0.9, 0.95, 0.99)
MUST = 0.01


def increases() -> list[Increase]:
    """Return what each server's signals gained in each window; most buckets are used."""
    dice = random.Random(3)
    shape = Reader().read(PAGE.read_bytes()).shape
    found = []
    for signal in SIGNALS:
        at = shape.index[f"{signal}_bucket"]
        bounds = tuple(sorted(float(dict(shape.series[p].labels)["le"]) for p in at))[:-1]
        for _ in range(SERVERS * WINDOWS):
            counts = (*(float(dice.randrange(200)) for _ in bounds), 0.0)
            total = sum(0.7 * b * n for b, n in zip(bounds, counts, strict=False))
            found.append(Increase(bounds, counts, total))
    return found


def histogram_quantile(bounds: tuple[float, ...], upto: list[float], q: float) -> float:
    wanted = q * upto[-1]
    b = bisect_left(upto, wanted)
    if b == len(bounds):
        return bounds[-1]
    low, before = (bounds[b - 1], upto[b - 1]) if b else (0.0, 0.0)
    return low + (bounds[b] - low) * (wanted - before) / (upto[b] - before)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="fail when the budget is missed")
    options = parser.parse_args()
    work = increases()
    upto = [(increase.bounds, list(accumulate(increase.counts))) for increase in work]
    fleet = work[:SERVERS]
    ours = "flopwatch, four at once"
    shares = "flopwatch, share within a threshold"
    results = race(
        {
            "histogram_quantile": lambda: [
                histogram_quantile(bounds, counts, q) for bounds, counts in upto for q in QUANTILES
            ],
            ours: lambda: [estimates(increase, QUANTILES) for increase in work],
            "flopwatch, one by one": lambda: [
                estimate(increase, q) for increase in work for q in QUANTILES
            ],
            shares: lambda: [within(increase, 0.2) for increase in work],
            "flopwatch, eight servers as one": lambda: merge(fleet),
        }
    )
    pieces = dict.fromkeys(results, len(work) * len(QUANTILES)) | {shares: len(work)}
    rows = [
        (name, f"{r.seconds * 1e3:.2f}", f"{r.seconds / pieces[name] * 1e6:.2f}", f"{r.ratio:.1f}")
        for name, r in results.items()
        if name in pieces and "as one" not in name
    ]
    print(table(("what", "ms each second", "us for each", "times the formula"), rows))
    merged = results["flopwatch, eight servers as one"].seconds
    print(f"\none signal of eight servers merged: {merged * 1e6:.1f} us")
    share = results[ours].seconds + results[shares].seconds
    kept = share <= MUST
    print(f"{'kept  ' if kept else 'MISSED'} {share:.2%} of a core; must be below {MUST:.0%}")
    return int(options.check and not kept)


if __name__ == "__main__":
    sys.exit(main())
