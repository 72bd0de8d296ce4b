"""The units of everything that is read from NVML, stated by hand: `tests/data/nvml/units.csv`.

Each row says of one series where the driver's number comes from, by the names that NVIDIA's own
bindings give to functions, fields and arguments; its unit; the number, as `units.profile` has it;
and what we make of it. Shared by the test that holds the reader to it and by the one that changes
the reader's tables to see whether that shows.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pynvml

from exporter import catalogue as c
from exporter.nvml.device import identify
from exporter.nvml.driver import NvmlError
from exporter.nvml.gpm import Gpm
from exporter.nvml.gpu import Gpu, House, Options
from exporter.nvml.totals import Totals
from exporter.samples import Sample
from tests.fake_nvml import Profile
from tests.fakes import FakeClock
from tests.nvml.profile_driver import SHAPES, Layout, ProfileDriver

DATA = Path(__file__).parent.parent / "data" / "nvml"
PROFILE = DATA / "units.profile"
BEGAN, SECONDS = 1000.0, 2.0
COMMANDS = {4101: "python", 4102: "vllm", 4103: "Xorg", 4104: "mps", 5101: "train"}

FACTORS: Mapping[str, Fraction] = {
    "percent": Fraction(1, 100),
    "milliwatts": Fraction(1, 1000),
    "millijoules": Fraction(1, 1000),
    "celsius": Fraction(1),
    "megahertz": Fraction(10**6),
    "bytes": Fraction(1),
    "KiB": Fraction(1024),
    "KB per second": Fraction(1000),
    "MB per second": Fraction(10**6),
    "nanoseconds": Fraction(1, 10**9),
    "count": Fraction(1),
    "number": Fraction(1),
    "flag": Fraction(1),
    "percent for 2 s": Fraction(2, 100),
    "MiB per second for 2 s": Fraction(2 * 2**20),
}
"""What one of the driver's units is in ours: seconds, bytes, watts, joules, hertz, ratios."""

Key = tuple[str, str, str]
"""A series: the GPU or "-", the family, the labels after gpu and uuid. A GPU is its number, with
"@580.65.06" after it where it is read with that driver and not with the profile's."""

DRIVER = "590.48.01"


class Row(NamedTuple):
    """A row of the table."""

    gpu: str
    family: str
    labels: str
    source: str
    unit: str
    raw: str
    value: str

    @property
    def key(self) -> Key:
        return self.gpu, self.family, self.labels

    @property
    def number(self) -> int:
        """The GPU's number in the profile."""
        return int(self.gpu.partition("@")[0])

    @property
    def numbers(self) -> list[Fraction]:
        """The driver's numbers; several where they are summed."""
        return [Fraction(int(part, 0)) if "x" in part else Fraction(part)
                for part in self.raw.split(" + ")]  # fmt: skip


def rows() -> list[Row]:
    """Return the table."""
    with (DATA / "units.csv").open(encoding="utf-8", newline="") as file:
        head, *lines = csv.reader(file)
    assert tuple(head) == Row._fields
    return [Row(*line) for line in lines]


def key_of(sample: Sample, driver: str = DRIVER) -> Key:
    """Return the series of a sample as the table writes it."""
    labels = dict(zip(sample.metric.labels, sample.labels, strict=True))
    gpu = labels.pop("gpu", "-")
    labels.pop("uuid", None)
    gpu += "" if driver == DRIVER or gpu == "-" else f"@{driver}"
    return gpu, sample.metric.name, ";".join(f"{name}={value}" for name, value in labels.items())


# ------------------------------------------------------------ where a number comes from

_FUNCTION = re.compile(r"(nvml\w+)(?:\.(\w+)|\[(\d)\])?((?: \w+)*)(?: & (\w+))?")


def _number(name: str) -> int:
    return int(name) if name.isdecimal() else int(getattr(pynvml, name))


def told(profile: Profile, row: Row) -> list[Fraction]:
    """Return the numbers that the profile has where the row says they come from."""
    return [_told(profile, row.number, part) for part in row.source.split(" + ")]


def _told(profile: Profile, gpu: int, source: str) -> Fraction:
    kind, *words = source.split()
    answer: Any
    match kind, words:
        case "field", [number, *scope]:
            answer = profile.field(gpu, _number(number), *map(_number, scope))
        case "gpm", [number, "mig", instance]:
            answer = profile.gpm(gpu, _number(number), int(instance))
        case "gpm", [number]:
            answer = profile.gpm(gpu, _number(number))
        case "samples", [number]:
            answer = profile.function(gpu, f"samples#{_number(number)}")
        case "mig", [instance, what]:
            return Fraction(_of(profile.migs(gpu), "gi", instance)[what])
        case "process", [pid, what]:
            return Fraction(_of(profile.processes(gpu), "pid", pid)[what])
        case _:
            return _function(profile, gpu, source)
    return Fraction(answer.value)


def _of(found: list[dict[str, str]], key: str, value: str) -> dict[str, str]:
    (one,) = [words for words in found if words[key] == value]
    return one


def _function(profile: Profile, gpu: int, source: str) -> Fraction:
    match = _FUNCTION.fullmatch(source)
    assert match is not None, source
    name, field, place, arguments, _ = match.groups()
    answer = profile.function(gpu, name, *map(_number, arguments.split()))
    assert answer is not None, source
    at = int(place or 0) if field is None else _members(name).index(field)
    value = answer.values[at]
    assert isinstance(value, int | float)
    return Fraction(value)


def _members(function: str) -> list[str]:
    """Return the members of a function's structure in order, as the bindings declare them."""
    writes = SHAPES[function].writes
    struct = writes.struct if isinstance(writes, Layout) else "c_nvmlUtilization_t"
    if function.endswith("FabricInfoV"):
        struct = "c_nvmlGpuFabricInfo_v3_t"  # version 2 with one member more
    return [name for name, *_ in getattr(pynvml, struct)._fields_ if name != "version"]


def expected(row: Row) -> Fraction | None:
    """Return what follows from the row's number and unit, `None` if that is no arithmetic."""
    if row.unit == "bit":
        match = _FUNCTION.fullmatch(row.source)
        assert match is not None
        return Fraction(int(row.numbers[0]) & _number(match[5]) != 0)
    return sum(row.numbers) * FACTORS[row.unit] if row.unit in FACTORS else None


# ------------------------------------------------------------ what the reader makes of it


class Bench:
    """The reader over the profile, without the source's threads: reads twice, two seconds apart."""

    def __init__(self) -> None:
        self._clock = FakeClock(BEGAN)
        self.driver = ProfileDriver(PROFILE, self._clock.monotonic)
        self.driver.start()
        self.gpus = sorted({row.gpu for row in rows()} - {"-"})

    def observe(self, gpus: Iterable[str]) -> dict[Key, float]:
        """Return the second read's samples of these GPUs, by series."""
        found: dict[Key, float] = {}
        for gpu in gpus:
            number, _, version = gpu.partition("@")
            for sample in self._read(int(number), version or DRIVER):
                assert not isinstance(sample.value, tuple)
                key = key_of(sample, version or DRIVER)
                assert key not in found, "the same series twice"
                found[key] = sample.value
        return found

    def _read(self, gpu: int, version: str) -> list[Sample]:
        clock, driver, totals = self._clock, self.driver, Totals()
        clock.now = BEGAN
        handle = driver.device(gpu)
        identity = identify(driver, handle, gpu, version)
        house = House(driver, totals, clock.monotonic, clock.time, COMMANDS.get)
        unit = Gpu(house, handle, identity, Options(detail=True, links=True))
        gpm = Gpm(driver, totals, clock, detail=True)
        samples: list[Sample] = []
        for _ in range(2):
            reading = unit.read()
            samples = [c.GPU_INFO(1, *identity.info()), *reading.samples]
            for target in reading.targets:
                try:
                    samples += gpm.read(target)
                except NvmlError:
                    continue
            clock.advance(SECONDS)
        return samples
