"""A training job as somebody writes one: steps, a checkpoint, and a guard. Run as a process.

    spot_job.py FOLDER STEPS SECONDS    FLOPWATCH_URL, FLOPWATCH_NOTICES in the environment

It "trains" a number by a rule of its own, so that a step that is lost or done twice shows in the
result. What it does goes to FOLDER/log, a line for each step. With RANK and WORLD_SIZE in the
environment its ranks agree after each step, by files: what an all-reduce is elsewhere.
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
        new = checkpoint.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(state))
        new.replace(checkpoint)
        log(f"saved {state['step']} left {left}")

    def log(text: str) -> None:
        with (folder / "log").open("a") as file:
            file.write(f"{os.getpid()} {text}\n")

    world, rank = int(os.environ.get("WORLD_SIZE", "1")), os.environ.get("RANK", "0")

    def agree(mine: bool) -> bool:
        vote = folder / f"vote.{state['step']}.{rank}"
        new = folder / f"new.{rank}"
        new.write_text(str(int(mine)))
        new.rename(vote)
        votes = [folder / f"vote.{state['step']}.{one}" for one in range(world)]
        while not all(one.exists() for one in votes):
            time.sleep(0.005)
        return any(one.read_text() == "1" for one in votes)

    with Run("spot-run", step=state["step"], world_size=world) as run:
        guard = Guard(
            save, run=run, marker=folder / "interrupted.json", every=0.1,
            agree=agree if world > 1 else None,
        )  # fmt: skip
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
