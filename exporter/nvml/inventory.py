"""What can be seen of GPUs without their driver: the PCI bus, and the driver's own files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_TRACES = (
    "proc/driver/nvidia/version", "sys/module/nvidia", "dev/nvidiactl", "dev/nvidia0", "dev/dxg",
    "dev/nvmap",
)  # fmt: skip
"""What a driver leaves: on servers, under WSL (dxg), on boards with the GPU on no bus (nvmap)."""


def has_gpus(root: Path) -> bool:
    """Tell whether the machine has an NVIDIA GPU or a driver for one."""
    here = Path("/")
    return (
        any(_is_there(root / trace) for trace in _TRACES)
        or any(_is_there(here / trace) for trace in _TRACES if trace.startswith("dev/"))
        or gpus_on_bus(root) > 0
    )


def _is_there(path: Path) -> bool:
    """Tell whether a path exists; what may not be looked at is not there for us."""
    try:
        return path.exists()
    except OSError:
        return False


def gpus_on_bus(root: Path) -> int:
    """Return how many NVIDIA GPUs the kernel has on its PCI buses for the NVIDIA driver."""
    return len(addresses_on_bus(root))


def addresses_on_bus(root: Path) -> list[str]:
    """Return the addresses of the NVIDIA GPUs that the kernel has for the NVIDIA driver, sorted.

    A GPU that has fallen off the bus is still listed here, which is how it is missed; so is one
    that the driver gave up, which no driver holds. One that another driver holds was given away (to
    a virtual machine: vfio-pci). Virtual functions of a GPU (for vGPU) are no GPUs of their own.
    """
    found = []
    for device in (root / "sys/bus/pci/devices").glob("*"):
        try:
            vendor = (device / "vendor").read_text(encoding="ascii").strip()
            kind = (device / "class").read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        holder = device / "driver"
        given_away = _is_there(holder) and holder.resolve().name != "nvidia"
        if given_away or _is_there(device / "physfn"):
            continue
        if vendor == "0x10de" and kind.startswith(("0x0300", "0x0302")):
            found.append(device.name)
    return sorted(found)


_UUID = re.compile(r"^GPU UUID:\s*(GPU-[0-9a-fA-F-]{36})\s*$", re.MULTILINE)
_MINOR = re.compile(r"^Device Minor:\s*(\d{1,4})\s*$", re.MULTILINE)


def device_files(root: Path) -> Mapping[str, str]:
    """Return the UUID of each GPU by the number of its device file: `/dev/nvidia3` is 3.

    By the driver's own files, below `root` or as a container has them, where `/proc` is the
    machine's in this respect. The number is not the index that the library counts by.
    """
    found: dict[str, str] = {}
    for base in dict.fromkeys((root, Path("/"))):
        for file in sorted((base / "proc/driver/nvidia/gpus").glob("*/information"))[:256]:
            try:
                with file.open("rb") as opened:
                    text = opened.read(4096).decode("ascii", "replace")
            except OSError:
                continue
            uuid, minor = _UUID.search(text), _MINOR.search(text)
            if uuid is not None and minor is not None:
                found.setdefault(minor[1], uuid[1])
        if found:
            break
    return found
