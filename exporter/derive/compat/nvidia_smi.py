"""How nvidia_gpu_exporter speaks: identity on a family of its own, processes, XIDs, its health."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from exporter import catalogue as c
from exporter import foreign as f
from exporter.derive.compat.plan import (
    Board,
    Combined,
    Dialect,
    Gpu,
    Labels,
    Place,
    Plan,
    Weighted,
)
from exporter.derive.compat.rows import SMI_ROWS, Native
from exporter.samples import Metric, Sample, SourceView

_INFO = f.NVIDIA_SMI["nvidia_smi_gpu_info"]
_INDEX = f.NVIDIA_SMI["nvidia_smi_index"]
_CAPABILITY = f.NVIDIA_SMI["nvidia_smi_compute_cap"]
_MIG_INFO = f.NVIDIA_SMI["nvidia_smi_mig_info"]
_APP_INFO = f.NVIDIA_SMI["nvidia_smi_compute_app_info"]
_APP_MEMORY = f.NVIDIA_SMI["nvidia_smi_compute_app_used_memory_bytes"]
_APPS_SUCCESS = f.NVIDIA_SMI["nvidia_smi_compute_apps_last_collect_success"]
_XIDS = f.NVIDIA_SMI["nvidia_smi_xid_errors_total"]
_XID_LAST = f.NVIDIA_SMI["nvidia_smi_xid_last_timestamp_seconds"]
_SUCCESS = f.NVIDIA_SMI["nvidia_smi_last_collect_success"]
_SUCCESS_TIME = f.NVIDIA_SMI["nvidia_smi_last_collect_success_timestamp_seconds"]
_DURATION = f.NVIDIA_SMI["nvidia_smi_last_collect_duration_seconds"]

_MORE: Mapping[Metric, tuple[str, tuple[Metric, ...]]] = {
    _INFO: ("`gpu_info`, `gpu_driver_info`", (c.GPU_INFO, c.GPU_DRIVER_INFO)),
    _INDEX: ("the label `gpu` of `gpu_info`", (c.GPU_INFO,)),
    _CAPABILITY: ("the label `compute_capability` of `gpu_info`", (c.GPU_INFO,)),
    _MIG_INFO: ("`gpu_mig_info`", (c.GPU_MIG_INFO,)),
    _APP_INFO: (
        "the processes of `gpu_process_memory_bytes` and `gpu_process_sm_ratio`",
        (c.GPU_PROCESS_MEMORY_BYTES, c.GPU_PROCESS_SM_RATIO),
    ),
    _APP_MEMORY: ("`gpu_process_memory_bytes`", (c.GPU_PROCESS_MEMORY_BYTES,)),
    _APPS_SUCCESS: ("whether every GPU has `gpu_processes`", (c.GPU_PROCESSES,)),
    _XIDS: ("`gpu_xid_errors_total` above 0", (c.GPU_XID_ERRORS_TOTAL,)),
    _XID_LAST: ("`gpu_xid_last_timestamp_seconds`", (c.GPU_XID_LAST_TIMESTAMP_SECONDS,)),
    _SUCCESS: ("`flopwatch_source_up` of the source that reads GPUs", ()),
    _SUCCESS_TIME: ("`flopwatch_source_last_success_timestamp_seconds` of it", ()),
    _DURATION: ("`flopwatch_source_read_duration_seconds` of it", ()),
}

_HEALTHY: Mapping[str, int] = {"up": 1, "degraded": 1, "failed": 0, "stale": 0, "stuck": 0}
_READERS = ("nvml", "dcgm", "dcgm_page")
"""The sources that read GPUs, the one whose health is told first."""

_NOBODY = "unknown"
"""The UUID of a GPU that nobody knows, in this exporter's words."""


def dialect() -> Dialect:
    """Return the set."""
    return Dialect("nvidia_smi", SMI_ROWS, _MORE, _labels, _add, _health)


def _labels(family: Metric, gpu: Gpu, mig: str) -> Labels:
    return (_bare(gpu.uuid), mig)[: len(family.labels)]


def _bare(uuid: str) -> str:
    """Return a UUID as this exporter writes it: in small letters, without the type before it."""
    return re.sub(r"^(gpu|mig)-", "", uuid.lower())


def _add(board: Board, plan: Plan) -> None:
    plan.fixed += _identities(board)
    _add_processes(board, plan)
    for family, metric, combine in (
        (_XIDS, c.GPU_XID_ERRORS_TOTAL, sum),
        (_XID_LAST, c.GPU_XID_LAST_TIMESTAMP_SECONDS, max),
    ):
        places: dict[Labels, list[Place]] = {}
        for (_, uuid), xid, place in board.xids(metric):
            places.setdefault((_bare(uuid) or _NOBODY, xid), []).append(place)
        for labels, some in places.items():
            plan.entries.append(Combined(family, labels, tuple(some), combine))


def _identities(board: Board) -> Iterator[Sample]:
    cuda = next((labels[2] for labels, _ in board.series(c.GPU_DRIVER_INFO)), "")
    for (gpu, uuid), info in board.present.items():
        # Driver models are a matter of Windows; elsewhere nvidia-smi says [N/A]. The id of the
        # subsystem is not among our labels.
        yield _INFO(
            1, _bare(uuid), info["name"], "[N/A]", "[N/A]", info["vbios_version"],
            info["driver_version"], info["pci_bus_id"].upper(), info["serial"],
            info["compute_capability"], "", gpu, cuda,
        )  # fmt: skip
        if gpu.isdecimal():
            yield _INDEX(int(gpu), _bare(uuid))
        if re.fullmatch(r"\d+\.\d+", info["compute_capability"]):
            yield _CAPABILITY(float(info["compute_capability"]), _bare(uuid))
    for labels, _ in board.series(c.GPU_MIG_INFO):
        _, uuid, mig, compute, mig_uuid, profile = labels
        yield _MIG_INFO(1, _bare(uuid), _bare(mig_uuid), mig, compute, profile)


def _add_processes(board: Board, plan: Plan) -> None:
    """Add the processes. One that is in two instances of a GPU is one process here."""
    memory: dict[Labels, list[Place]] = {}
    for (_, uuid, _, pid, command), place in board.series(c.GPU_PROCESS_MEMORY_BYTES):
        memory.setdefault((_bare(uuid), pid, command), []).append(place)
    running = dict.fromkeys(memory)
    for (_, uuid, pid, command), _ in board.series(c.GPU_PROCESS_SM_RATIO):
        running.setdefault((_bare(uuid), pid, command))
    plan.fixed += [Sample(_APP_INFO, labels, 1) for labels in running]
    for labels, places in memory.items():
        plan.entries.append(Weighted(_APP_MEMORY, labels, tuple(places), (1,) * len(places)))
    listed = board.of_gpus(Native(c.GPU_PROCESSES))
    if listed:
        plan.fixed.append(_APPS_SUCCESS(int(listed.keys() >= board.present.keys())))


def _health(sources: Sequence[SourceView]) -> Iterable[Sample]:
    """Yield whether, when and how fast the GPUs were read."""
    by_name = {source.name: source for source in sources}
    reader = next((by_name[name] for name in _READERS if name in by_name), None)
    if reader is None or reader.state not in _HEALTHY:
        return
    yield _SUCCESS(_HEALTHY[reader.state])
    if reader.health.last_success is not None:
        yield _SUCCESS_TIME(reader.health.last_success)
    if reader.health.last_duration is not None:
        yield _DURATION(reader.health.last_duration)
