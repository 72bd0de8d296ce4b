"""What a process knows of its place in a job from its environment: torchrun, Slurm, MPI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Place(NamedTuple):
    """Rank, number of ranks, rank on this node; each `None` where the environment does not say."""

    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None


# A launcher is believed as a whole. Slurm's names are there in a batch script too, where one
# process speaks for itself; only `srun` tells the number of tasks of a step.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)


def find_place(environment: Mapping[str, str]) -> Place:
    """Return what the first launcher says that tells rank and number of ranks."""
    for rank_name, size_name, local_name in _LAUNCHERS:
        rank = whole(environment.get(rank_name))
        size = whole(environment.get(size_name))
        if rank is not None and size is not None and rank < size:
            return Place(rank, size, whole(environment.get(local_name)))
    return Place()


_HALF_THERE = (AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a module raises that is of another version, or not imported to its end."""


def find_group(modules: Mapping[str, Any]) -> Place:
    """Return what `torch.distributed` knows where a script has set it up: processes that a script
    starts itself (`torch.multiprocessing.spawn`) have nothing in their environment.
    """
    try:
        group = modules["torch.distributed"]
        if group.is_available() and group.is_initialized():
            return Place(int(group.get_rank()), int(group.get_world_size()))
    except _HALF_THERE:
        return Place()
    return Place()


def find_gpu(environment: Mapping[str, str], local_rank: int | None) -> int | None:
    """Return the index of the GPU that a rank uses by custom: the one of its local rank."""
    if local_rank is None:
        return None
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return local_rank
    listed = [whole(one.strip()) for one in visible.split(",")]
    if len(listed) == 1:
        return listed[0]
    return listed[local_rank] if local_rank < len(listed) else None


def whole(text: str | None) -> int | None:
    """Return a whole number that is not negative, `None` for anything else."""
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
