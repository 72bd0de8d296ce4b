"""What the made-up training job says of itself: a log as Megatron-LM prints it, and pushes.

Both come from the same steps. The log holds what its framework prints on the last rank: arguments,
a line for each iteration, how long a checkpoint took. Pushed is what each rank of this node knows:
the phases of its steps.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from exporter.demo.training import Lap, Parts, Scenario, Stage

_DOTS = 48
_RATE = 1.5e-4
_QUEUED = 95.0
"""Seconds for which the job waited before it began."""
_BOOTED = 2.0
"""Seconds from an interruption until the job starts again."""
_MOST = 256
"""Records that a client sends in one push."""
_KEPT = 4096
"""Records that wait for somebody to take them."""
_LARGEST = 4 * 2**20
"""Bytes of a log; then it is moved aside, in place of the one before."""


def arguments(stage: Stage) -> Iterator[str]:
    """Yield the lines in which Megatron-LM prints its arguments."""
    config = stage.config
    told = {
        "bf16": True,
        "data_parallel_size": stage.data_parallel,
        "ffn_hidden_size": config["intermediate_size"],
        "fp8": "hybrid" if stage.precision == "fp8" else None,
        "global_batch_size": stage.batch,
        "group_query_attention": config["num_key_value_heads"] != config["num_attention_heads"],
        "hidden_size": config["hidden_size"],
        "micro_batch_size": stage.micro_batch,
        "num_attention_heads": config["num_attention_heads"],
        "num_layers": config["num_hidden_layers"],
        "num_query_groups": config["num_key_value_heads"],
        "padded_vocab_size": config["vocab_size"],
        "pipeline_model_parallel_size": stage.pipeline_parallel,
        "seq_length": stage.sequence,
        "swiglu": True,
        "tensor_model_parallel_size": stage.tensor_parallel,
        "untie_embeddings_and_output_weights": True,
        "world_size": stage.world,
    }
    yield f"using world size: {stage.world}, data-parallel size: {stage.data_parallel}"
    yield "------------------------ arguments ------------------------"
    for name, value in told.items():
        yield f"  {name} {'.' * (_DOTS - len(name))} {value}"
    yield "-------------------- end of arguments ---------------------"


def lines(lap: Lap, born: float) -> Iterator[str]:
    """Yield what is printed of a step of a node that was born then, in Unix seconds."""
    stage, number = lap.stage, lap.number
    if (saved := lap.slowest.checkpoint) > 0:
        yield (
            f"  successfully saved checkpoint from iteration {number - 1:7d} to /checkpoints"
            " [ t 1/1, p 1/1 ]"
        )
        yield "(min, max) time across ranks (ms):"
        yield (
            f"    save-checkpoint ................................:"
            f" ({saved * 995:.2f}, {saved * 1000:.2f})"
        )
    at = datetime.fromtimestamp(born + lap.ends)  # noqa: DTZ006 - a program prints its local time
    flops = stage.flops_per_token * stage.tokens / lap.seconds
    yield (
        f" [{at:%Y-%m-%d %H:%M:%S}] iteration {number:8d}/{100_000:8d} |"
        f" consumed samples: {number * stage.batch:12d} |"
        f" elapsed time per iteration (ms): {1000 * lap.seconds:.1f} |"
        f" throughput per GPU (TFLOP/s/GPU): {flops / 1e12:.1f} |"
        f" learning rate: {_RATE:.6E} | global batch size: {stage.batch:5d} |"
        f" lm loss: {lap.loss:.6E} | loss scale: 1.0 | grad norm: {lap.loss / 4:.3f} |"
        " number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def records(lap: Lap, scenario: Scenario, born: float, *, anew: bool) -> Iterator[dict[str, Any]]:
    """Yield what the ranks of this node push of a step; `anew`: it is the first of its attempt."""
    stage = lap.stage
    common = {"run": stage.run, "attempt": str(lap.attempt)}
    if anew:
        yield _facts(stage, scenario)
        if lap.attempt == 1:
            wall = born + lap.began - _QUEUED
            yield {**common, "kind": "moment", "moment": "submitted", "wall": wall}
        if lap.interrupted:
            former = {"run": stage.run, "attempt": str(lap.attempt - 1), "step": lap.number - 1}
            yield {
                **former, "kind": "moment", "moment": "interrupted", "wall": born + lap.began,
            }  # fmt: skip
        started = born + lap.began + _BOOTED * lap.interrupted
        yield {**common, "kind": "moment", "moment": "started", "wall": started}
    if lap.slowest.checkpoint > 0:
        yield {
            **common, "kind": "moment", "moment": "checkpoint_saved", "step": lap.number - 1,
            "seconds": lap.slowest.checkpoint, "wall": born + lap.began + lap.slowest.checkpoint,
        }  # fmt: skip
    for rank, parts in enumerate(lap.ranks):
        said: dict[str, Any] = {
            **common, "kind": "step", "step": lap.number, "rank": rank, "wall": born + lap.ends,
            "seconds": lap.seconds, "phases": phases(parts),
            "communication": parts.communication + parts.hidden,
            "memory_bytes": stage.peak_memory,
        }  # fmt: skip
        if rank == 0:
            said |= {
                "scope": "run", "tokens": stage.batch * stage.sequence, "samples": stage.batch,
                "loss": lap.loss, "learning_rate": _RATE,
            }  # fmt: skip
        yield said


def phases(parts: Parts) -> dict[str, float]:
    """Return the seconds of a rank's step as a job sees them; it cannot tell kernels apart."""
    optimizer = 0.04 * parts.memory
    forward = (parts.work - optimizer) / 3
    return {
        "data": parts.data,
        "forward": forward,
        "backward": 2 * forward,
        "communication": parts.communication,
        "optimizer": optimizer,
        "bubble": parts.bubble,
        "other": parts.framework,
    }


def _facts(stage: Stage, scenario: Scenario) -> dict[str, Any]:
    return {
        "kind": "facts", "run": stage.run, "framework": "megatron-lm", "model": stage.model,
        "config": dict(stage.config), "world_size": stage.world, "sequence_length": stage.sequence,
        "global_batch": stage.batch, "micro_batch": stage.micro_batch,
        "micro_batches": stage.micro_batches, "data_parallel": stage.data_parallel,
        "tensor_parallel": stage.tensor_parallel, "pipeline_parallel": stage.pipeline_parallel,
        "virtual_stages": 1, "schedule": "1f1b" if stage.pipeline_parallel > 1 else None,
        "precision": stage.precision, "recompute": "none",
        "local_ranks": {str(rank): gpu for rank, gpu in enumerate(scenario.gpus)},
        "nccl": dict(stage.nccl) or None,
    }  # fmt: skip


class Teller:
    """Appends to the log, and keeps what is to be pushed until it is taken."""

    def __init__(self, log: Path, scenario: Scenario, born: float) -> None:
        self.log = log
        self._scenario = scenario
        self._born = born
        self._attempt = 0
        self._waiting: deque[dict[str, Any]] = deque(maxlen=_KEPT)

    def tell(self, laps: Iterable[Lap]) -> None:
        """Tell of steps that are over. Raises `OSError`."""
        printed: list[str] = []
        for lap in laps:
            anew = lap.attempt != self._attempt
            self._attempt = lap.attempt
            if anew:
                printed += arguments(lap.stage)
            printed += lines(lap, self._born)
            self._waiting += records(lap, self._scenario, self._born, anew=anew)
        if printed:
            with self.log.open("a", encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in printed))
                large = file.tell() > _LARGEST
            if large:
                self.log.replace(self.log.with_name(f"{self.log.name}.1"))

    def pushes(self) -> list[bytes]:
        """Return what is to be pushed, as bodies of requests, and forget it."""
        waiting = list(self._waiting)
        self._waiting.clear()
        pieces = (waiting[at : at + _MOST] for at in range(0, len(waiting), _MOST))
        return [json.dumps({"records": piece}).encode() for piece in pieces]
