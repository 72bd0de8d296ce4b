"""The tables of readings: a wrong entry shows, blanks are refused, and the Python driver that
other tests read profiles with says what the C library says."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from exporter.nvml import readings as r
from exporter.nvml.device import converted
from exporter.nvml.readings import Unit
from exporter.samples import Fault, Sample, Source
from exporter.sources.nvml import NvmlSource
from tests.fake_nvml import Control, Profile, profile
from tests.fakes import FakeClock
from tests.nvml import mutate
from tests.nvml.conftest import Child
from tests.nvml.profile_driver import ProfileDriver
from tests.nvml.test_golden import TWO_BY_NAME
from tests.nvml.units import PROFILE
from tests.nvml_lab import Time

EVERYTHING = {"detail": True, "links": True}


def told(source: Source) -> tuple[dict[str, object], list[tuple[str, str]]]:
    """Read once; return samples by name and labels, and faults by part and reason."""
    items = list(source.read())
    samples = {f"{i.metric.name}{i.labels}": i.value for i in items if isinstance(i, Sample)}
    return samples, [item[:2] for item in items if isinstance(item, Fault)]


@pytest.mark.parametrize(
    "name", ["h100-sxm8", "a100", "b200", "gb200", "t4", "h100-mig", "hostile", "units"]
)
def test_the_reader_yields_the_same_over_the_python_driver_and_over_the_c_library(
    name: str, child: Child, control: Control, passing: Time, root: Path
) -> None:
    """Each series and its value, with detail and links, at two moments two seconds apart."""
    file = PROFILE if name == "units" else profile(name)
    lines = TWO_BY_NAME if name == "hostile" else ()
    real = child(file, lines, module="tests.nvml_lab", **EVERYTHING)
    clock = FakeClock(passing.now)
    told_of = Profile.read(file, control.path)
    quick = NvmlSource(
        driver=ProfileDriver(told_of, clock.monotonic), clock=clock,
        root=str(root), budget=60.0, **EVERYTHING,
    )  # fmt: skip
    for _ in range(2):
        told_quickly, told_really = told(quick), told(real)
        assert set(told_quickly[0]) ^ set(told_really[0]) == set()
        assert told_quickly[0] == pytest.approx(told_really[0])
        assert told_quickly[1] == told_really[1]
        clock.advance(2)
        passing.forward(2)
    quick.close()


def test_every_wrong_entry_of_the_tables_is_noticed() -> None:
    """Each scale, number, scope, argument, place, bit and label, changed alone, makes the reader
    say something else than the stated units (see `mutate`)."""
    report = mutate.run()
    assert report.survivors == []
    assert report.made > 2000


def units() -> dict[str, Unit]:
    """Return every unit of the tables by what it is for."""
    found = {}
    calls = [rung for ladder in (*r.LADDERS, *r.DETAILS) for rung in ladder]
    for rung in (*calls, r.BANKS, r.LINK_STATE):
        for gives in rung.gives if isinstance(rung, r.Call) else (rung.gives,):
            found[f"{gives.metric.name}{gives.labels}"] = gives.unit
    found |= {f"gpm {m.number}": m.unit for m in (*r.GPM, *r.GPM_DETAILS)}
    found |= {name: value for name, value in vars(r).items() if isinstance(value, Unit)}
    return found


@pytest.mark.parametrize("name", sorted(units()))
def test_no_unit_takes_a_blank_for_a_number(name: str) -> None:
    """All ones, the blanks of DCGM for integers and doubles, and what is not a number."""
    blanks = [
        2**32 - 1, 2**64 - 1, *range(2**31 - 16, 2**31 - 12), *range(2**63 - 16, 2**63 - 12),
        *(float(2**47 + step) for step in range(4)), math.nan, math.inf, -math.inf,
    ]  # fmt: skip
    assert [blank for blank in blanks if converted(blank, units()[name]) is not None] == []
