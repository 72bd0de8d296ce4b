"""How device plugins and drivers name GPUs and parts of them, by the text alone.

GPU-<uuid>                 a GPU
MIG-<uuid>                 an instance (a MIG device)
MIG-GPU-<uuid>/<gi>/<ci>   the same, as drivers until R470 named it
...::<n>                   a replica of one of these: time slicing or MPS, all replicas alike
GPU-<uuid>-<n>             a share by other vendors' plugins, of which only they know how much
nvidia0, nvidia0/gi1, nvidia0/vgpu1, nvidia0/gi1/vgpu0
                           GKE's plugin: device file, instance, replica
0000:17:00.0               a GPU that was given to a virtual machine
3                          a number; whose, only the plugin knows
gpu-0, gpu-0-mig-9-4-4     NVIDIA's driver for claims: device file; its own name of an instance
"""

from __future__ import annotations

import re
from typing import NamedTuple


class DeviceId(NamedTuple):
    """What an id says: which GPU, in one of four ways; which instance of it; which replica.

    `uuid` is that of a GPU or of a MIG device; `minor` is the number of the device file, `number`
    one that means whatever the plugin means by it. `instance` and `compute` are numbers of a GPU
    instance and of a compute instance in it. Replicas that are not `alike` are parts of unknown
    size. `part` says that it is a part of the GPU, if not which.
    """

    uuid: str = ""
    minor: str = ""
    number: str = ""
    address: str = ""
    instance: str = ""
    compute: str = ""
    replica: str = ""
    alike: bool = False
    part: bool = False


_HEX = r"[0-9a-fA-F]"
_UUID = rf"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}"
_REPLICA = r"(?:::(?P<alike>[0-9]+)|(?:-(?:_-)?|_)(?P<share>[0-9]+))?"
_BY_UUID = re.compile(
    rf"(?:MIG-(?P<old>GPU-{_UUID})/(?P<gi>[0-9]+)/(?P<ci>[0-9]+)|(?P<uuid>(?:GPU|MIG)-{_UUID})){_REPLICA}"
)
_BY_FILE = re.compile(r"nvidia(?P<minor>[0-9]+)(?:/gi(?P<gi>[0-9]+))?(?:/vgpu(?P<vgpu>[0-9]+))?")
_BY_ADDRESS = re.compile(rf"(?:{_HEX}{{4}}|{_HEX}{{8}}):{_HEX}{{2}}:{_HEX}{{2}}\.[0-7]")
_CLAIMED = re.compile(r"gpu-(?P<minor>[0-9]+)(?P<part>-mig-.+)?")
_NUMBER = re.compile(r"[0-9]{1,4}")


def device_id(text: str) -> DeviceId | None:
    """Return what the id of a plugin's device says; None if nothing that is known here."""
    if (found := _BY_UUID.fullmatch(text)) is not None:
        alike, share = found["alike"] or "", found["share"] or ""
        return DeviceId(
            found["uuid"] or found["old"],
            instance=found["gi"] or "",
            compute=found["ci"] or "",
            replica=alike or share,
            alike=bool(alike),
        )
    if (found := _BY_FILE.fullmatch(text)) is not None:
        vgpu = found["vgpu"] or ""
        return DeviceId(
            minor=found["minor"], instance=found["gi"] or "", replica=vgpu, alike=bool(vgpu)
        )
    if _BY_ADDRESS.fullmatch(text) is not None:
        return DeviceId(address=text)
    return DeviceId(number=text) if _NUMBER.fullmatch(text) is not None else None


def claimed_device(name: str) -> DeviceId | None:
    """Return what the name of a claimed device says; None if nothing that is known here.

    How NVIDIA's driver names an instance (profile, place, size) does not say which number NVML
    knows it by.
    """
    if (found := _CLAIMED.fullmatch(name)) is not None:
        return DeviceId(minor=found["minor"], part=found["part"] is not None)
    return None
