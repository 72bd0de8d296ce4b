"""Environments of ranks, as launchers make them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.formats.ranks import RankProcess, rank_of


def environment(**variables: str) -> bytes:
    return b"".join(f"{name}={value}\0".encode() for name, value in variables.items())


def test_torchrun() -> None:
    found = rank_of(environment(
        PATH="/bin", RANK="11", WORLD_SIZE="16", LOCAL_RANK="3", LOCAL_WORLD_SIZE="8",
        TORCHELASTIC_RUN_ID="7c1d", SLURM_PROCID="1", SLURM_NTASKS="2", SLURM_JOB_ID="4711",
    ))  # fmt: skip
    assert found == RankProcess("torch", 11, 16, 3, None, ("slurm-4711", "7c1d"), 3, False)


def test_srun() -> None:
    """SLURM_NTASKS is the job's, SLURM_STEP_NUM_TASKS that of the step."""
    found = rank_of(environment(
        SLURM_PROCID="5", SLURM_NTASKS="64", SLURM_STEP_NUM_TASKS="8", SLURM_LOCALID="5",
        SLURM_JOB_ID="4711", CUDA_VISIBLE_DEVICES="0,1,2,3,4,5,6,7",
    ))  # fmt: skip
    assert found == RankProcess("slurm", 5, 8, 5, None, ("slurm-4711",), 5, True)


def test_mpirun() -> None:
    found = rank_of(environment(
        OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_LOCAL_RANK="1",
        WANDB_NAME="llama", FLOPWATCH_RUN="llama-7b", CUDA_VISIBLE_DEVICES="6",
    ))  # fmt: skip
    assert found == RankProcess("mpi", 1, 2, 1, "llama-7b", ("llama",), 6, True)


def test_a_pod_knows_its_job_by_its_name() -> None:
    """As its log does by its path. torchrun's run id is `none` there."""
    found = rank_of(environment(
        KUBERNETES_SERVICE_HOST="10.0.0.1", HOSTNAME="llama-worker-3", RANK="3", WORLD_SIZE="4",
        LOCAL_RANK="0", TORCHELASTIC_RUN_ID="none",
    ))  # fmt: skip
    assert found is not None
    assert found.hints == ("llama",)


@pytest.mark.parametrize(
    ("devices", "container", "gpu"),
    [
        (None, None, 1), ("4,5,6,7", None, 5), ("3", None, 3), ("GPU-5a1c,GPU-77ff", None, None),
        (None, "GPU-5a1c", None), ("4,5", "all", 5), ("", None, None), ("-1", None, None),
        ("4", "GPU-5a1c", None),
    ],
)  # fmt: skip
def test_which_gpu_of_the_machine(
    devices: str | None, container: str | None, gpu: int | None
) -> None:
    """In a container that was given some of them the numbers are not the machine's."""
    variables = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    if devices is not None:
        variables["CUDA_VISIBLE_DEVICES"] = devices
    if container is not None:
        variables["NVIDIA_VISIBLE_DEVICES"] = container
    found = rank_of(environment(**variables))
    assert found is not None
    assert found.gpu == gpu


@pytest.mark.parametrize(
    "variables",
    [
        {}, {"RANK": "1"}, {"RANK": "1", "WORLD_SIZE": "2"},
        {"RANK": "2", "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
        {"RANK": "x", "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
        {"RANK": "-1", "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
        {"RANK": "0", "WORLD_SIZE": "0", "LOCAL_RANK": "0"},
        {"RANK": "0", "WORLD_SIZE": "9" * 400, "LOCAL_RANK": "0"},
        {"SLURM_JOB_ID": "7"},
    ],
)  # fmt: skip
def test_what_is_no_rank(variables: dict[str, str]) -> None:
    assert rank_of(environment(**variables)) is None


@given(st.binary(max_size=500))
def test_no_bytes_raise(data: bytes) -> None:
    rank_of(b"RANK=0\0WORLD_SIZE=2\0LOCAL_RANK=0\0WANDB_NAME=" + data)
    rank_of(data)
