"""The forms in which device plugins name GPUs."""

from __future__ import annotations

import pytest

from exporter.formats.device_ids import DeviceId, claimed_device, device_id

U = "12345678-9abc-def0-1234-56789abcdef0"

FORMS = {
    f"GPU-{U}": DeviceId(f"GPU-{U}"),
    f"MIG-{U}": DeviceId(f"MIG-{U}"),
    f"MIG-GPU-{U}/5/0": DeviceId(f"GPU-{U}", instance="5", compute="0"),
    f"GPU-{U}::3": DeviceId(f"GPU-{U}", replica="3", alike=True),
    f"MIG-{U}::0": DeviceId(f"MIG-{U}", replica="0", alike=True),
    f"MIG-GPU-{U}/5/0::1": DeviceId(f"GPU-{U}", instance="5", compute="0", replica="1", alike=True),
    f"GPU-{U}-7": DeviceId(f"GPU-{U}", replica="7"),
    f"GPU-{U}-_-12": DeviceId(f"GPU-{U}", replica="12"),
    "nvidia0": DeviceId(minor="0"),
    "nvidia12/gi1": DeviceId(minor="12", instance="1"),
    "nvidia0/vgpu1": DeviceId(minor="0", replica="1", alike=True),
    "nvidia0/gi3/vgpu0": DeviceId(minor="0", instance="3", replica="0", alike=True),
    "00000000:1B:00.0": DeviceId(address="00000000:1B:00.0"),
    "0": DeviceId(number="0"),
}


@pytest.mark.parametrize("text", FORMS)
def test_each_form_is_understood(text: str) -> None:
    assert device_id(text) == FORMS[text]


@pytest.mark.parametrize(
    "text",
    [
        "", "GPU-", f"GPU-{U}x", f"GPU-{U}::", f"gpu-{U}", f"GPU-{U}::1::2", "nvidia", "nvidia0/",
        "nvidia0/gi", "nvidiactl", "12345", "-1", "card0-renderD128", f"MIG-GPU-{U}/5", "1.5",
        "0000:1b:00.8", "\u0663",
    ],
)  # fmt: skip
def test_what_is_no_form_is_nothing(text: str) -> None:
    assert device_id(text) is None


def test_names_of_claimed_devices() -> None:
    assert claimed_device("gpu-3") == DeviceId(minor="3")
    assert claimed_device("gpu-0-mig-19-4-1") == DeviceId(minor="0", part=True)
    assert claimed_device("gpu-vfio-0") is None
    assert claimed_device("channel-7") is None
