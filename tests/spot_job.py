"""A training job as somebody writes one: steps, a checkpoint, and a guard. Run as a process.

    spot_job.py FOLDER STEPS SECONDS    FLOPWATCH_URL, FLOPWATCH_NOTICES in the environment

It "trains" a number by a rule of its own, so that a step that is lost or done twice shows in the
result. What it does goes to FOLDER/log, a line for each step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from exporter.client import Run
from exporter.client.spot import Guard


def main(folder: Path, steps: int, seconds: float) -> None:
    checkpoint = folder / "checkpoint.json"
    state = {"step": 0, "weight": 1}
    began = time.perf_counter()
    if checkpoint.exists():
        state = json.loads(checkpoint.read_text())

    def save(left: float | None) -> None:
        time.sleep(0.2)  # what writing a checkpoint takes
        new = checkpoint.with_suffix(".new")
        new.write_text(json.dumps(state))
        new.replace(checkpoint)
        log(f"saved {state['step']} left {left}")

    def log(text: str) -> None:
        with (folder / "log").open("a") as file:
            file.write(f"{os.getpid()} {text}\n")

    with Run("spot-run", step=state["step"], world_size=1) as run:
        guard = Guard(save, run=run, marker=folder / "interrupted.json", every=0.1)
        guard.resumed(state["step"], seconds=time.perf_counter() - began)
        log(f"begins after {state['step']}")
        for step in range(state["step"] + 1, steps + 1):
            with run.step(step, tokens=100):
                time.sleep(seconds)
                state = {"step": step, "weight": (state["weight"] * 31 + step) % 1_000_003}
            log(f"step {step} {state['weight']}")
            guard.check(step)
        save(None)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
