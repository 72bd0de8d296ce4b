"""How fast a server's page is read, beside the official parser on the same pages in the same run.

    .venv/bin/python benchmarks/parse.py [--check]

Two pages take turns; a third of the values differ between them. "wanted" reads the families that
our vLLM mapping uses, the other rows read all. "a series comes and goes" has a line more on every
other page, so that nothing can be followed. "first read" is a new reader each time.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.common import race, table
from exporter.engines import load_engines
from exporter.formats.exposition import Reader

PAGES = Path(__file__).parent.parent / "tests" / "data" / "engines"
VLLM = "vllm-0.32.0-cpu-underload.prom"
DP2 = "vllm-0.32.0-cpu-dp2.prom"
OFFICIAL = "prometheus_client.parser"
STEADY = ("flopwatch, wanted families", "flopwatch, all families")
MUST = 20


def moved(body: bytes, share: float = 1 / 3) -> bytes:
    """Return the page with that share of its values changed."""
    dice = random.Random(3)
    lines = body.split(b"\n")
    for at, line in enumerate(lines):
        if line and not line.startswith(b"#") and dice.random() < share:
            series, _, value = line.rpartition(b" ")
            lines[at] = series + b" " + repr(float(value) + dice.randrange(1, 9)).encode()
    return b"\n".join(lines)


def synthetic(lines: int) -> bytes:
    """Return a page of histograms by engine, as large data-parallel servers have them."""
    dice = random.Random(5)

    def page() -> Iterator[str]:
        for family in range(lines // 1008 + 1):
            name = f"vllm:synthetic_{family}_seconds"
            yield f"# HELP {name} A histogram.\n# TYPE {name} histogram\n"
            for engine in range(42):
                labels = f'engine="{engine}",model_name="meta-llama/Llama-3.3-70B-Instruct"'
                count = 0
                for bound in range(22):
                    count += dice.randrange(1000)
                    yield f'{name}_bucket{{{labels},le="{bound / 8}"}} {float(count)}\n'
                yield f"{name}_count{{{labels}}} {float(count)}\n"
                yield f"{name}_sum{{{labels}}} {dice.random() * count}\n"

    return "".join(list(page())[:lines]).encode()


def theirs(bodies: list[bytes]) -> Callable[[], object]:
    turn = cycle(bodies)
    return lambda: list(text_string_to_metric_families(next(turn).decode()))


def ours(bodies: list[bytes], wanted: tuple[str, ...] | None = None) -> Callable[[], object]:
    reader = Reader(wanted)
    turn = cycle(bodies)
    return lambda: reader.read(next(turn))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="fail when the budget is missed")
    options = parser.parse_args()
    wanted = next(engine.wanted for engine in load_engines() if engine.name == "vllm")
    pages = {
        VLLM: (PAGES / VLLM).read_bytes(),
        DP2: (PAGES / DP2).read_bytes(),
        "synthetic": synthetic(10_000),
    }
    worst = float("inf")
    for title, body in pages.items():
        bodies = [body, moved(body)]
        results = race(
            {
                OFFICIAL: theirs(bodies),
                STEADY[0]: ours(bodies, wanted if title != "synthetic" else ("vllm:",)),
                STEADY[1]: ours(bodies),
                "flopwatch, nothing changed": ours([body]),
                "flopwatch, a series comes and goes": ours([body, bodies[1] + b"new 1\n"]),
                "flopwatch, first read": lambda body=body: Reader().read(body),
            },
            rounds=9,
        )
        lines = body.count(b"\n")
        rows = [
            (name, f"{r.seconds * 1e6:.0f}", f"{r.seconds / lines * 1e6:.3f}", f"{1 / r.ratio:.1f}")
            for name, r in results.items()
        ]
        print(f"\n{title}: {lines} lines, {len(body)} bytes\n")
        print(table(("what", "us per page", "us per line", "times faster"), rows))
        if title == VLLM:
            worst = min(results[name].times_faster for name in STEADY)
    kept = worst >= MUST
    print(f"\n{'kept  ' if kept else 'MISSED'} vLLM page in the steady state: {MUST} times faster")
    return int(options.check and not kept)


if __name__ == "__main__":
    sys.exit(main())
