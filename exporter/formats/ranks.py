"""Which rank of which job a process is, by its environment.

Launchers say so in variables: torchrun (RANK, WORLD_SIZE, LOCAL_RANK), Slurm's srun (SLURM_PROCID),
OpenMPI's mpirun (OMPI_COMM_WORLD_RANK). torchrun under srun has both: there a process that only
Slurm counts is a launcher, no rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from exporter.formats.podlog import job_of

_WANTED = frozenset({
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS",
    "SLURM_LOCALID", "SLURM_JOB_ID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK", "TORCHELASTIC_RUN_ID", "WANDB_NAME", "FLOPWATCH_RUN", "HOSTNAME",
    "KUBERNETES_SERVICE_HOST", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
})  # fmt: skip
_LAUNCHERS: tuple[tuple[Literal["torch", "mpi", "slurm"], str, tuple[str, ...], str], ...] = (
    ("torch", "RANK", ("WORLD_SIZE",), "LOCAL_RANK"),
    ("mpi", "OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("slurm", "SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), "SLURM_LOCALID"),
)
_MOST = 10_000_000
_LONGEST = 128


class RankProcess(NamedTuple):
    """A process that is a rank: whose, and what it says of its run and its GPU.

    `run` is the name that the job was given outright (FLOPWATCH_RUN). `hints` are other names, best
    first. `gpu` is an index on this machine where the environment leaves no doubt about it;
    `with_gpu` tells whether it was given any.
    """

    launcher: Literal["torch", "mpi", "slurm"]
    rank: int
    world_size: int
    local_rank: int | None
    run: str | None
    hints: tuple[str, ...]
    gpu: int | None
    with_gpu: bool


def rank_of(environment: bytes) -> RankProcess | None:
    """Return which rank a process is, `None` if it is none; `environment` as `/proc` has it."""
    about = _variables(environment)
    for launcher, rank_name, size_names, local_name in _LAUNCHERS:
        rank = _count(about.get(rank_name))
        size = next((n for name in size_names if (n := _count(about.get(name)))), None)
        if rank is None or size is None or rank >= size:
            continue
        local = _count(about.get(local_name))
        if launcher == "torch" and local is None:
            continue  # a scheduler's own RANK
        devices = about.get("CUDA_VISIBLE_DEVICES")
        return RankProcess(
            launcher, rank, size, local, _name(about.get("FLOPWATCH_RUN")), _hints(about),
            _gpu(about, local), bool(devices) and devices != "-1",
        )  # fmt: skip
    return None


def run_of(about: RankProcess, names: Mapping[str, str]) -> str | None:
    """Return the name of a process's run; `names` are patterns of hints, and what they stand for.

    A name that was given outright goes first, then the first pattern that fits, then a hint.
    """
    if about.run is not None:
        return about.run
    for pattern, name in names.items():
        if any(fnmatchcase(hint, pattern) for hint in about.hints or ("",)):
            return name
    return about.hints[0] if about.hints else None


def _variables(environment: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in environment.split(b"\0"):
        name, equals, value = line.partition(b"=")
        if equals and len(name) < 32 and (text := name.decode("ascii", "replace")) in _WANTED:
            found[text] = value[: 4 * _LONGEST].decode("utf-8", "replace")
    return found


def _count(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > 8:
        return None
    value = int(text)
    return value if value < _MOST else None


def _name(text: str | None) -> str | None:
    """Return a name if it can be that of a run."""
    return text if text and len(text) <= _LONGEST and text.isprintable() else None


def _hints(about: Mapping[str, str]) -> tuple[str, ...]:
    """Return names of the run, best first: such that logs of the same job would have by default."""
    found: list[str | None] = []
    if "KUBERNETES_SERVICE_HOST" in about and "HOSTNAME" in about:
        found.append(job_of(about["HOSTNAME"]))
    if _count(about.get("SLURM_JOB_ID")) is not None:
        found.append(f"slurm-{about['SLURM_JOB_ID']}")
    found.append(about.get("WANDB_NAME"))
    if about.get("TORCHELASTIC_RUN_ID") != "none":
        found.append(about.get("TORCHELASTIC_RUN_ID"))
    return tuple(name for one in found if (name := _name(one)) is not None)


def _gpu(about: Mapping[str, str], local: int | None) -> int | None:
    """Return the index of the GPU that a rank takes, if it is known to be the machine's own.

    A container runtime that gives a container some GPUs numbers them anew.
    """
    if local is None or about.get("NVIDIA_VISIBLE_DEVICES", "all") not in ("all", ""):
        return None
    visible = about.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return local
    listed = [_count(part.strip()) for part in visible.split(",")]
    # One that sees a single GPU takes that, whatever its number among its neighbours.
    at = 0 if len(listed) == 1 else local
    return listed[at] if at < len(listed) else None
