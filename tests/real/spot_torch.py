"""A torch job that a guard watches, for torchrun: spot_torch.py FOLDER STEPS.

Rank 0 leaves the file `going` at step 20. All ranks agree by an all-reduce, and write together.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from exporter.client import Run
from exporter.client.spot import Guard

folder, steps = Path(sys.argv[1]), int(sys.argv[2])
checkpoint = folder / "checkpoint.pt"
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = 0
if checkpoint.exists():
    saved = torch.load(checkpoint)
    step = saved["step"]
    model.module.load_state_dict(saved["model"])


def save(left: float | None) -> None:
    dist.barrier()
    if rank == 0:
        torch.save({"step": step, "model": model.module.state_dict()}, checkpoint)
    dist.barrier()
    print(f"rank {rank} saved {step} left {left}", flush=True)


def agree(mine: bool) -> bool:
    vote = torch.tensor([float(mine)])
    dist.all_reduce(vote, dist.ReduceOp.MAX)
    return bool(vote.item())


with Run("torch-spot", step=step) as run:
    guard = Guard(
        save, run=run, marker=folder / "interrupted.json", agree=agree, every=0.2,
        stop_agent=os.environ.get("STOP_AGENT") == "1",
    )  # fmt: skip
    guard.resumed(step)
    print(f"rank {rank} begins after {step}", flush=True)
    first = step + 1
    for step in range(first, steps + 1):
        with run.step(step, tokens=100):
            loss = model(torch.randn(8, 32)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.05)
        if step == 20 and rank == 0:
            (folder / "going").touch()
        guard.check(step)
dist.destroy_process_group()
