"""What NCCL Inspector writes down of the made-up job's collectives: a dump for each rank here.

The job shards its weights: of each micro-batch the weights are gathered twice and the gradients
scattered once, and eight bytes in each step tell all ranks how large the gradient was. The seconds
are those of the step. A rank that is done early waits in the last scatter for the slowest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from exporter.demo.training import Lap, Parts

WEIGHTS = 26_000_000_000
"""Bytes of 13 billion weights in bf16."""

_NORM = 8
_ALL_THERE = 40e-6
"""Seconds that a few bytes take."""
_NODE_RANKS = 4
_LARGEST = 4 * 2**20
"""Bytes of a dump; then it begins anew."""


class Dumps:
    """Appends to the dumps in a folder. The node was born then, in Unix seconds."""

    def __init__(self, folder: Path, born: float) -> None:
        self.folder = folder
        self._born = born

    def tell(self, laps: Iterable[Lap]) -> None:
        """Write down what ranks did in steps that are over. Raises `OSError`."""
        told: dict[int, list[str]] = {}
        for lap in laps:
            if lap.stage.tensor_parallel == lap.stage.pipeline_parallel == 1:
                for rank, parts in enumerate(lap.ranks):
                    told.setdefault(rank, []).extend(_lines(lap, rank, parts, self._born))
        for rank, lines in told.items():
            path = self.folder / f"node1-{rank}.log"
            anew = path.exists() and path.stat().st_size > _LARGEST
            with path.open("w" if anew else "a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)


def _lines(lap: Lap, rank: int, parts: Parts, born: float) -> Iterator[str]:
    ranks = lap.stage.world
    ring = (ranks - 1) / ranks
    # What the slowest rank needs, nobody waits for.
    batches = lap.stage.micro_batches
    moving = (lap.slowest.communication + lap.slowest.hidden) / (3 * batches)
    waiting = parts.communication - lap.slowest.communication
    operations = [
        ("AllGather", WEIGHTS, moving, ring),
        ("AllGather", WEIGHTS, moving, ring),
        ("ReduceScatter", WEIGHTS, moving, ring),
    ] * batches
    operations[-1] = ("ReduceScatter", WEIGHTS, moving + waiting, ring)
    operations.append(("AllReduce", _NORM, _ALL_THERE, 2 * ring))
    header = {"id": "0x5eed", "rank": rank, "n_ranks": ranks, "nnodes": ranks // _NODE_RANKS}
    metadata = {
        "inspector_output_format_version": "v4.0",
        "rec_mechanism": "nccl_profiler_interface",
        "dump_timestamp_us": int((born + lap.ends) * 1e6),
        "hostname": "node1", "pid": 52_304 + rank,
    }  # fmt: skip
    for place, (name, size, seconds, passes) in enumerate(operations):
        told: dict[str, Any] = {
            "coll": name,
            "coll_sn": len(operations) * lap.number + place,
            "coll_msg_size_bytes": size,
            "coll_exec_time_us": round(seconds * 1e6),
            "coll_timing_source": "kernel_gpu",
            "coll_algobw_gbs": round(size / seconds / 1e9, 6),
            "coll_busbw_gbs": round(passes * size / seconds / 1e9, 6),
        }
        yield json.dumps({"header": header, "metadata": metadata, "coll_perf": told})
