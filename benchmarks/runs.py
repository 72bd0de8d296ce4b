"""What deriving training runs costs: a round over four runs of eight ranks, on the same eight GPUs.

    .venv/bin/python benchmarks/runs.py [--check]

"told" is a round after every rank has told of so many steps with five phases, "nothing new" one
after nobody has. CPU time of the thread; the median of the rounds, and the best tenth of them,
which is what it costs where nobody else works on the machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.common import table
from exporter import catalogue as c
from exporter.derive.memory import Memory
from exporter.samples import Gate, Health, SourceView, View
from exporter.training import Facts, Step
from tests.derive.training_lab import Lab, h100s

RUNS, RANKS, ROUNDS, MUST = 4, 8, 80, 5.0
PHASES = {"data": 0.05, "forward": 0.3, "backward": 0.5, "communication": 0.1, "optimizer": 0.05}


def tell(lab: Lab, step: int, seconds: float) -> None:
    for run in range(RUNS):
        phases = {phase: share * seconds for phase, share in PHASES.items()}
        lab.tell("push", *[
            Step(run=f"run{run}", step=step, rank=rank, scope="rank", seconds=seconds, loss=2.0,
                 tokens=4096, phases=phases, memory_bytes=60e9, gradient_norm=1.0)
            for rank in range(RANKS)
        ])  # fmt: skip


def measure(steps: int, seconds: float) -> tuple[list[float], list[float]]:
    """Return milliseconds of rounds after so many steps of every rank, and after none."""
    lab, memory, gate = Lab(), Memory(), Gate(100_000)
    for run in range(RUNS):
        lab.tell("push", Facts(
            run=f"run{run}", world_size=RANKS, model="meta-llama/Llama-3.1-8B", data_parallel=RANKS,
            sequence_length=4096, precision="bf16", recompute="full",
            local_ranks={rank: rank for rank in range(RANKS)},
        ))  # fmt: skip
    told: list[float] = []
    quiet: list[float] = []
    for at in range(ROUNDS):
        for n in range(steps):
            tell(lab, at * steps + n + 1, seconds)
            lab.now += seconds
        batch, _ = gate.admit(h100s(RANKS, lab.now))
        view = View((SourceView("nvml", c.GPU, "up", Health(), batch=batch, age=0.0),), ())
        for into in (told, quiet):
            lab.now += 0.001
            before = time.thread_time()
            list(lab.derivation.function(view, memory, lab.now))
            into.append((time.thread_time() - before) * 1000)
    return told[ROUNDS // 4 :], quiet[ROUNDS // 4 :]


def best(values: list[float]) -> float:
    """Return the bound of the best tenth."""
    return statistics.quantiles(values, n=10)[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help=f"fail above {MUST:g} ms a round")
    arguments = parser.parse_args()
    rows, worst = [], 0.0
    for steps, seconds in ((1, 5.0), (5, 1.0), (50, 0.1)):
        told, quiet = measure(steps, seconds)
        if steps == 1:
            worst = best(told)
        for name, values in (("told", told), ("nothing new", quiet)):
            rows.append((
                f"{steps} steps of {seconds:g} s", name,
                f"{statistics.median(values):.2f}", f"{best(values):.2f}",
            ))  # fmt: skip
    print(table(("each rank, each round", "round", "ms, median", "ms, best tenth"), rows))
    return int(arguments.check and worst > MUST)


if __name__ == "__main__":
    sys.exit(main())
