"""Numbers that the driver gave to something else later: the wrong one must not be asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.nvml.device import Identity
from exporter.samples import Sample
from exporter.sources.nvml import NvmlSource
from tests.fake_nvml import Profile, profile
from tests.nvml.profile_driver import ProfileDriver


def throttled(version: str, folder: Path) -> dict[str, float]:
    """Return the throttled seconds by reason of a GPU whose driver has this version.

    Fields 251 to 253 answer 1, 2 and 3 s, 269 to 271 answer 7, 8 and 9 s, the old sum of heat 5 s.
    """
    lines = [f'system nvmlSystemGetDriverVersion = "{version}"', "devices = 1"]
    lines += [f"* field {251 + n} = u64 {1_000_000_000 * (1 + n)}" for n in range(3)]
    lines += [f"* field {269 + n} = u64 {1_000_000_000 * (7 + n)}" for n in range(3)]
    lines += ["* field 75 = u64 5000000000"]
    control = folder / "control"
    control.write_text("\n".join(lines) + "\n")
    source = NvmlSource(
        driver=ProfileDriver(Profile.read(profile("h100-sxm8"), control)), root=str(folder)
    )
    try:
        return {
            item.labels[2]: item.value
            for item in source.read()
            if isinstance(item, Sample) and item.metric is c.GPU_THROTTLED_SECONDS_TOTAL
        }  # type: ignore[return-value]
    finally:
        source.close()


@pytest.mark.parametrize("version", ["580.82.07", "580.126.09", "590.48.01", "615.71"])
def test_late_drivers_are_asked_by_the_late_numbers(version: str, tmp_path: Path) -> None:
    """From 580.82 on 251 to 253 are settings of power smoothing."""
    seen = throttled(version, tmp_path)
    assert (seen["sw_thermal"], seen["hw_thermal"], seen["power_brake"]) == (7, 8, 9)
    assert "thermal" not in seen


@pytest.mark.parametrize("version", ["575.51.03", "580.65.06"])
def test_early_drivers_are_asked_by_the_early_numbers(version: str, tmp_path: Path) -> None:
    """In R575 and the first R580, 269 to 271 are settings of power smoothing."""
    seen = throttled(version, tmp_path)
    assert (seen["sw_thermal"], seen["hw_thermal"], seen["power_brake"]) == (1, 2, 3)


@pytest.mark.parametrize("version", ["470.256.02", "550.163.01", "570.172.08", "580.76.05", "?"])
def test_other_drivers_are_asked_by_neither(version: str, tmp_path: Path) -> None:
    """Before R575 there were no such numbers; between the two it is not known which ones hold."""
    seen = throttled(version, tmp_path)
    assert seen["thermal"] == 5
    assert not {"sw_thermal", "hw_thermal", "power_brake"} & set(seen)


def test_a_version_that_cannot_be_read_is_no_version() -> None:
    """What is not a number is older than everything."""
    assert Identity("0", "GPU-a", driver_version="rel-580").version == (0, 0)
    assert Identity("0", "GPU-a", driver_version="580.65.06").version == (580, 65)
