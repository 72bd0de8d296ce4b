"""The real training job of `train.py`: started, and what it says of itself afterwards."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

PYTHON = os.environ.get("FLOPWATCH_TORCH_PYTHON", "")
RANKS = 2
CONFIG = Path(__file__).with_name("tiny_config.json")

HIDDEN, HEAD, HEADS, GROUPS, WIDTH, LAYERS, WORDS, SEQUENCE = 256, 32, 8, 4, 704, 2, 1024, 256
"""The model's sizes, as `train.py` has them."""


def flops_per_token() -> int:
    """Count by hand what a token costs: 2 for each multiplication, and 3 passes.

    A token attends to half of the sequence. That the first one's share of the embedding is looked
    up costs nothing, and norms, which multiply no matrices, do not count.
    """
    query_and_out = 2 * HIDDEN * HEADS * HEAD
    key_and_value = 2 * HIDDEN * GROUPS * HEAD
    network = 3 * HIDDEN * WIDTH
    attention = 2 * HEADS * HEAD * SEQUENCE // 2
    layer = query_and_out + key_and_value + network + attention
    return 3 * 2 * (LAYERS * layer + HIDDEN * WORDS)


class Row(NamedTuple):
    """A step by the rank's own account, in seconds."""

    step: int
    seconds: float
    phases: dict[str, float]
    tokens: int
    wall: float


class Truth(NamedTuple):
    """The steps of each rank but for the first, in which memory is allocated; and the folder."""

    ranks: list[list[Row]]
    folder: Path

    def until(self, step: float) -> Truth:
        """Return the same without what comes after a step."""
        return Truth(
            [[row for row in rows if row.step <= step] for rows in self.ranks], self.folder
        )

    @property
    def seconds(self) -> float:
        """The mean time of a step."""
        return statistics.fmean(row.seconds for row in self.ranks[0])

    @property
    def median(self) -> float:
        """The median time of a step."""
        return statistics.median(row.seconds for row in self.ranks[0])

    @property
    def tgs(self) -> float:
        """Tokens in a second for each rank."""
        return self.ranks[0][0].tokens / self.seconds

    @property
    def computing(self) -> float:
        """Operations in a second of each rank while it goes forward and backward."""
        share = self.share("forward") + self.share("backward")
        return flops_per_token() * self.tgs / share

    def share(self, phase: str, rank: int = 0) -> float:
        """The share of its time that a rank spent in a phase."""
        rows = self.ranks[rank]
        spent = sum(row.phases.get(phase, 0.0) for row in rows)
        return spent / sum(row.seconds for row in rows)


def need_torch() -> str:
    """Return the Python that has torch; skip the test where there is none."""
    if not PYTHON:
        pytest.skip("needs FLOPWATCH_TORCH_PYTHON, a Python that has torch and tensorboard")
    return PYTHON


def train(folder: Path, *options: str, steps: int = 60, url: str = "", port: int) -> Truth:
    """Run the job to its end; `port` is for the ranks to meet at. Fail with what it printed."""
    command = [
        need_torch(), "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS),
        "--master-port", str(port), str(Path(__file__).with_name("train.py")),
        "--out", str(folder), "--steps", str(steps), "--hurry", *options,
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FLOPWATCH_URL": url}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    if done.returncode:
        pytest.fail(f"the job ended with {done.returncode}: {done.stderr[-3000:]}", pytrace=False)
    return Truth([_rows(folder / f"truth.{rank}.jsonl") for rank in range(RANKS)], folder)


def _rows(path: Path) -> list[Row]:
    told = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    rows = [
        Row(one["step"], one["seconds"], one["phases"], one["tokens"], one["wall"])
        for one in told
        if one["step"]
    ]
    return rows[1:]
