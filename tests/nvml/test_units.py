"""Every family that NVML fills: the driver's number and unit, and ours (see `units`)."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.samples import Sample
from exporter.sources.nvml import NvmlSource
from tests.fake_nvml import Profile
from tests.fakes import FakeClock
from tests.nvml.profile_driver import ProfileDriver
from tests.nvml.units import (
    BEGAN,
    COMMANDS,
    DRIVER,
    FACTORS,
    PROFILE,
    SECONDS,
    Key,
    Row,
    expected,
    key_of,
    rows,
    told,
)

NOT_FROM_NVML = {
    "gpu_hbm_bandwidth_bytes_per_second": "derived from DRAM activity and the product's peak",
    "gpu_peak_memory_bandwidth_bytes_per_second": "from the table of products",
    "gpu_peak_flops": "from the table of products",
    "gpu_peak_confidence_ratio": "from the table of products",
    "gpu_estimated_flops_per_second": "derived from tensor activity, clock and the product's peak",
    "gpu_estimated_flops_total": "derived from tensor activity, clock and the product's peak",
    "gpu_arithmetic_intensity_flops_per_byte": "derived from estimated FLOPs and DRAM activity",
    "gpu_roofline_verdict": "derived from estimated FLOPs, DRAM activity and peaks",
}
"""Families of the group that have no number of NVML behind them, and what they have instead."""

TABLE = rows()
NUMBERS = [row for row in TABLE if row.unit != "-"]
FAMILIES = sorted({row.family for row in NUMBERS})


def of(family: str) -> list[Row]:
    return [row for row in NUMBERS if row.family == family]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_driver_has_that_number_at_that_place(family: str) -> None:
    """The profile holds each row's number under the name that NVIDIA's bindings give to its
    function, field, metric or argument."""
    profile = Profile.read(PROFILE)
    for row in of(family):
        assert told(profile, row) == row.numbers, row


@pytest.mark.parametrize("family", FAMILIES)
def test_our_number_is_the_drivers_in_our_unit(family: str) -> None:
    """627320 milliwatts are 627.32 watts: each row's two numbers and its unit fit together."""
    for row in of(family):
        value = expected(row)
        assert value is None or str(float(value)) == str(float(row.value)), row


def test_every_unit_is_one_that_the_table_of_units_knows() -> None:
    """The words beside the arithmetic are few and each has its reason."""
    spelled = {row.unit for row in NUMBERS} - FACTORS.keys()
    assert spelled == {"bit", "faults", "return code"}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> dict[Key, float]:
    """What the source says of the made-up GPUs at its second read; of those for which rows name a
    driver, what it says with that."""
    root = tmp_path_factory.mktemp("root")
    for pid, command in COMMANDS.items():
        place = root / "proc" / str(pid)
        place.mkdir(parents=True)
        (place / "comm").write_text(f"{command}\n", "ascii")
    found = read(root, DRIVER)
    for gpu in sorted({row.gpu for row in TABLE if "@" in row.gpu}):
        again = read(root, gpu.partition("@")[2])
        found |= {key: value for key, value in again.items() if key[0] == gpu}
    return found


def read(root: Path, version: str) -> dict[Key, float]:
    over = root / "over.profile"
    over.write_text(f'system nvmlSystemGetDriverVersion = "{version}"\n', "utf-8")
    clock = FakeClock(BEGAN)
    source = NvmlSource(
        driver=ProfileDriver(Profile.read(PROFILE, over), clock.monotonic), clock=clock,
        root=str(root), budget=60.0, detail=True, links=True,
    )  # fmt: skip
    list(source.read())
    clock.advance(SECONDS)
    items = list(source.read())
    source.close()
    samples = [item for item in items if isinstance(item, Sample) and item.metric.group == c.GPU]
    assert len(items) == len(samples) + 1, "a fault, or more than the driver's seconds beside"
    return {key_of(sample, version): sample.value for sample in samples}  # type: ignore[misc]


def test_the_reader_yields_these_series_and_no_others(page: dict[Key, float]) -> None:
    """No series of the made-up GPUs is without a row, and no row without its series."""
    assert sorted(page) == sorted(row.key for row in TABLE)


@pytest.mark.parametrize("family", sorted({row.family for row in TABLE}))
def test_the_reader_yields_that_value(family: str, page: dict[Key, float]) -> None:
    """Every series of the family has the value that its row states."""
    for row in TABLE:
        if row.family == family:
            assert math.isclose(page[row.key], float(row.value), rel_tol=1e-12), row


def test_every_family_of_the_group_has_a_row_or_a_reason() -> None:
    """A family that is added to the catalogue is added here, or comes from elsewhere."""
    families = {name for name, metric in c.FAMILIES.items() if metric.group == c.GPU}
    stated = {row.family for row in TABLE}
    assert families - stated == NOT_FROM_NVML.keys()
    assert stated <= families


def test_no_two_places_hold_the_same_number() -> None:
    """A reading that asks at the wrong place would otherwise pass. Flags and the like have few
    values; they are told apart by the changes that `mutate` makes."""
    places: dict[tuple[str, object], set[str]] = defaultdict(set)
    for row in NUMBERS:
        if row.unit in FACTORS and row.unit not in {"flag", "number"}:
            for number, source in zip(row.numbers, row.source.split(" + "), strict=True):
                places[row.gpu, number].add(source)
    assert [found for found in places.values() if len(found) > 1] == []


def test_every_family_is_something_else_than_nothing_somewhere() -> None:
    """A zero is what a reading that does nothing gives too."""
    always_zero = {row.family for row in TABLE} - {row.family for row in TABLE if row.value != "0"}
    assert always_zero == {"gpu_losses_total", "gpu_readings_disagree"}  # counted by the source
