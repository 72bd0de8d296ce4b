"""GPU instances (MIG): which there are, and their memory.

A MIG device is a compute instance in a GPU instance. Memory and performance counters belong to the
GPU instance, so series are by that (`mig`), and the MIG devices are told in `gpu_mig_info`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from exporter import catalogue as c
from exporter.nvml import readings as r
from exporter.nvml.device import Identity, converted
from exporter.nvml.driver import GONE, OVER, Driver, Handle, NvmlError, Struct, Text
from exporter.samples import Fault, Sample

_MEMORY = (
    ("nvmlDeviceGetMemoryInfo_v2", Struct("c_nvmlMemory_v2_t", ("total", "used"), "nvmlMemory_v2")),
    ("nvmlDeviceGetMemoryInfo", Struct("c_nvmlMemory_t", ("total", "used"))),
)


@dataclass(frozen=True, slots=True)
class MigDevice:
    """One MIG device: its numbers, UUID and profile such as `1g.10gb`."""

    instance: int
    compute_instance: int
    uuid: str
    profile: str


class Instances:
    """The MIG devices of one GPU. `layout` changes when they do."""

    def __init__(self, driver: Driver, handle: Handle, identity: Identity) -> None:
        self._driver = driver
        self._handle = handle
        self._labels = identity.labels
        self._memory: dict[int, Callable[[], Any]] = {}
        self._broken = False
        self._mode: Callable[[], Any] | None = driver.bind(
            "nvmlDeviceGetMigMode", ("u32", "u32"), handle
        )
        self.layout: tuple[MigDevice, ...] = ()
        self.enabled: bool | None = None

    def look(self) -> list[Fault]:
        """Find out anew which instances there are; return what went wrong.

        Raises `NvmlError` if the GPU is lost.
        """
        try:
            self.enabled = None if self._mode is None else self._mode()[0] == 1
        except NvmlError as error:
            if error.code in GONE | OVER:
                raise
            self.enabled = None
        layout, memory = [], {}
        handles: Sequence[Handle] = ()
        faults = []
        try:
            handles = self._driver.mig_devices(self._handle) if self.enabled else ()
        except NvmlError as error:
            if error.code in GONE | OVER:
                raise
            faults.append(Fault(f"gpu{self._labels[0]}/mig", error.reason, str(error)))
        for handle in handles:
            try:
                device = self._device(handle)
                if device.instance not in memory:
                    memory[device.instance] = self._memory_call(handle)
            except NvmlError as error:
                if error.code in GONE | OVER:
                    raise
                continue  # it went away while we looked
            layout.append(device)
        self.layout = tuple(sorted(layout, key=lambda d: (d.instance, d.compute_instance)))
        self._broken = False
        self._memory = {number: call for number, call in memory.items() if call is not None}
        return faults

    def _device(self, handle: Handle) -> MigDevice:
        def ask(function: str, answer: Any) -> Any:
            return self._driver.bind(function, answer, handle)()

        try:
            # "NVIDIA A100-SXM4-40GB MIG 1g.5gb"; the last word names the profile.
            name = ask("nvmlDeviceGetName", Text())
        except NvmlError as error:
            if error.code in GONE | OVER:
                raise
            name = ""
        return MigDevice(
            ask("nvmlDeviceGetGpuInstanceId", "u32"),
            ask("nvmlDeviceGetComputeInstanceId", "u32"),
            ask("nvmlDeviceGetUUID", Text()),
            name.rpartition(" MIG ")[2] if " MIG " in name else "",
        )

    def _memory_call(self, handle: Handle) -> Callable[[], Any] | None:
        for function, answer in _MEMORY:
            try:
                call = self._driver.bind(function, answer, handle)
                call()
            except NvmlError as error:
                if error.code in GONE | OVER:
                    raise
                continue
            return call
        return None

    def read(self) -> Iterator[Sample]:
        """Yield the instances and their memory; a changed layout is looked at again at once."""
        for device in self.layout:
            yield c.GPU_MIG_INFO(
                1, *self._labels, str(device.instance), str(device.compute_instance), device.uuid,
                device.profile,
            )  # fmt: skip
        for number, call in tuple(self._memory.items()):
            try:
                total, used = call()
            except NvmlError as error:
                if error.code in GONE | OVER:
                    raise
                del self._memory[number]
                self._broken = True
                continue
            labels = (*self._labels, str(number))
            for metric, raw in (
                (c.GPU_MIG_MEMORY_TOTAL_BYTES, total),
                (c.GPU_MIG_MEMORY_USED_BYTES, used),
            ):
                value = converted(raw, r.BYTES)
                if value is not None:
                    yield Sample(metric, labels, value)

    def changed(self) -> bool:
        """Tell whether an instance no longer answers: it is gone, or another one has its place."""
        return self._broken
