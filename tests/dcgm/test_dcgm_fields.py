"""Each field's unit, proved: what DCGM says and what we say, from a list written by hand."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from exporter import catalogue as c
from exporter.clock import SystemClock
from exporter.dcgm import driver as d
from exporter.dcgm.fields import DEVICE, FIELDS, PROFILING, Field, is_blank
from exporter.fetch import Response
from exporter.samples import Metric, Sample
from exporter.sources.dcgm import DcgmSource
from exporter.sources.dcgm_page import DcgmPageSource
from tests.fake_dcgm import Control

UNITS = Path(__file__).parent.parent / "data" / "dcgm" / "units.csv"
NOW = 1_790_000_000_000_000
UUID = "GPU-a"
Series = tuple[Metric, tuple[str, ...]]


class Row(NamedTuple):
    """A row of the list."""

    field: int
    type: str
    name: str
    said: str
    new_name: str
    new_said: str
    series: Series
    ours: float


def listed() -> list[Row]:
    lines = [line for line in UNITS.read_text("utf-8").splitlines() if line[:1] != "#"]
    rows = []
    for row in csv.DictReader(lines):
        metric = c.FAMILIES[row["family"]]
        told = dict(pair.split("=") for pair in row["labels"].split())
        labels = {"gpu": "0", "uuid": UUID, **told}
        series = (metric, tuple(labels[label] for label in metric.labels))
        rows.append(Row(
            int(row["field"]), row["type"], row["name"], row["said"], row["new_name"],
            row["new_said"], series, float(row["ours"]),
        ))  # fmt: skip
    return rows


ROWS = listed()
IDS = [f"{row.field}" for row in ROWS]


def in_batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Split so that no series is told by two rows of a batch."""
    batches: list[dict[Series, Row]] = []
    for row in rows:
        batch = next((b for b in batches if row.series not in b), None)
        if batch is None:
            batches.append(batch := {})
        batch[row.series] = row
    return (list(batch.values()) for batch in batches)


def told(items: Iterable[object]) -> dict[Series, float]:
    return {i[:2]: i.value for i in items if isinstance(i, Sample)}  # type: ignore[misc]


class Fake:
    """A driver in Python that answers these rows, and watches whatever is asked for."""

    seconds = 0.0

    def __init__(self, rows: Sequence[Row]) -> None:
        self._values: dict[int, float | str] = {
            row.field: int(row.said) if row.type == "i" else float(row.said) for row in rows
        }
        self._values |= {52: 0, 54: UUID}

    def open(self, address: str | None, *, timeout: float, manual: bool) -> None: ...

    def close(self) -> None: ...

    def gpus(self) -> list[int]:
        return [7]

    def instances(self) -> list[d.Instance]:
        return []

    def create_group(self, name: str, entities: Sequence[d.Entity]) -> int:
        return 1

    def destroy_group(self, group: int) -> None: ...

    def create_fields(self, name: str, fields: Sequence[int]) -> int:
        return 1

    def destroy_fields(self, fields: int) -> None: ...

    def watch(self, group: int, fields: int, *, every: float, keep: float) -> None: ...

    def unwatch(self, group: int, fields: int) -> None: ...

    def update(self) -> None: ...

    def ask(
        self, entities: Sequence[d.Entity], fields: Sequence[int], *, live: bool = False
    ) -> Callable[[], list[d.Value]]:
        return lambda: [
            d.Value(entity, n, 0, NOW, self._values[n])
            if n in self._values
            else d.Value(entity, n, d.NO_DATA, NOW, None)
            for entity in entities
            for n in fields
        ]


class Page:
    """Hands out one page."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._body = "".join(f"{line}\n" for line in lines).encode()

    def get(self) -> Response:
        return Response(200, "text/plain", self._body)

    def close(self) -> None: ...


def from_library(rows: Sequence[Row], table: Sequence[Field] = FIELDS) -> dict[Series, float]:
    source = DcgmSource("x", everything=True, load=lambda *_: Fake(rows), table=table)
    return told(source.read())


def from_old_page(rows: Sequence[Row], table: Sequence[Field] = FIELDS) -> dict[Series, float]:
    lines = [f'{row.name}{{gpu="0",UUID="{UUID}"}} {row.said}' for row in rows]
    return told(DcgmPageSource(Page(lines), table=table).read())


def from_new_page(rows: Sequence[Row], table: Sequence[Field] = FIELDS) -> dict[Series, float]:
    # A new page always has memory in bytes, which tells that it is new; here of another GPU.
    lines = ['DCGM_FI_DEV_FB_USED_BYTES{gpu="9",UUID="GPU-z"} 1']
    lines += [
        f'{row.new_name}{{gpu="0",UUID="{UUID}"}} {row.new_said}' for row in rows if row.new_name
    ]
    return told(DcgmPageSource(Page(lines), table=table).read())


def wrong(rows: Sequence[Row], table: Sequence[Field]) -> bool:
    """Tell whether a table disagrees with the list anywhere."""
    for batch in in_batches(rows):
        for read in (from_library, from_old_page, from_new_page):
            found = read(batch, table)
            for row in batch:
                if read is from_new_page and not row.new_name:
                    continue
                if not math.isclose(found.get(row.series, math.nan), row.ours, rel_tol=1e-12):
                    return True
    return False


@pytest.fixture(scope="module")
def measured(
    libdcgm: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, dict[Series, float]]:
    """Read all rows through ctypes from the fake library; return what came, by field."""
    control = Control(tmp_path_factory.mktemp("units") / "dcgm.txt")
    found: dict[int, dict[Series, float]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_DCGM", str(control.path))
        for batch in in_batches(ROWS):
            answers = [f"value gpu 7 {row.field} {row.type} {row.said}" for row in batch]
            control.unset("value")
            control.set(f"gpu 7 0 {UUID}", f"time {NOW}", *answers)
            source = DcgmSource("localhost", libdcgm, everything=True, clock=SystemClock())
            series = told(source.read())
            source.close()
            found |= {row.field: series for row in batch}
    return found


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_the_library_is_understood(row: Row, measured: dict[int, dict[Series, float]]) -> None:
    """A field's value in the library's unit becomes this value of this family in ours."""
    assert measured[row.field][row.series] == pytest.approx(row.ours, rel=1e-12)


@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_the_old_page_is_understood(row: Row) -> None:
    """So does the same value under the name that exporters before 4.9 print."""
    assert from_old_page([row]) == {row.series: pytest.approx(row.ours, rel=1e-12)}


@pytest.mark.parametrize("row", [r for r in ROWS if r.new_name], ids=lambda r: str(r.field))
def test_the_page_of_exporter_4_9_is_understood(row: Row) -> None:
    """So does the value in base units under the new name."""
    assert from_new_page([row])[row.series] == pytest.approx(row.ours, rel=1e-12)


def test_the_list_has_each_field_that_becomes_something() -> None:
    """No row of the table is without a check, but for the two below and the bits of 112."""
    unchecked = {row.number for row in FIELDS if row.metric is not None} - {r.field for r in ROWS}
    assert unchecked == {112}


def test_fields_without_a_family() -> None:
    """The last XID is no counter; NVLink traffic has no family for a rate, only counters."""
    assert {row.number for row in FIELDS if row.metric is None} == {230, 449, 1011, 1012}


def test_numbers_and_names_are_used_once() -> None:
    """No field stands in the table twice."""
    numbers = [row.number for row in FIELDS]
    names = [name for row in FIELDS for name in (row.name, row.new_name) if name]
    assert len(set(numbers)) == len(numbers)
    assert len(set(names)) == len(names)


def test_203_is_utilization_and_1005_is_memory_activity() -> None:
    """Field 203 has been taken for the activity of device memory, which is 1005."""
    by_number = {row.number: row for row in FIELDS}
    assert by_number[203].metric is c.GPU_UTILIZATION_RATIO
    assert by_number[1005].metric is c.GPU_DRAM_ACTIVE_RATIO


MUTATIONS: dict[str, Callable[[Field], Field]] = {
    "number": lambda row: row._replace(number=row.number + 2000),
    "neighbour": lambda row: row._replace(number=row.number + 1),
    "times": lambda row: row._replace(unit=row.unit._replace(times=row.unit.times * 10)),
    "over": lambda row: row._replace(unit=row.unit._replace(over=row.unit.over * 1000)),
    "new times": lambda row: row._replace(
        new_unit=None if row.new_unit is None else row.new_unit._replace(times=1024)
    ),
    "new over": lambda row: row._replace(
        new_unit=None if row.new_unit is None else row.new_unit._replace(over=100)
    ),
    "name": lambda row: row._replace(name=f"{row.name}_"),
    "new name": lambda row: row._replace(new_name=f"{row.new_name}_"),
}  # fmt: skip


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_wrong_number_name_or_scale_in_any_row_is_found(mutation: str) -> None:
    """Change one thing in one row of the table: the list tells, for each row and each thing."""
    assert not wrong(ROWS, FIELDS)
    missed = []
    for at, row in enumerate(FIELDS):
        checked = [r for r in ROWS if r.field == row.number]
        changed = MUTATIONS[mutation](row)
        has_new = checked and checked[0].new_name
        if not checked or changed == row or (mutation.startswith("new") and not has_new):
            continue
        # The neighbour's row moves out of the way, as if it had never been there.
        table = [r for r in FIELDS[:at] + FIELDS[at + 1 :] if r.number != changed.number]
        if not wrong(checked, [*table, changed]):
            missed.append(row.number)
    # Under their new names these are what they were, so there is nothing to mistake.
    assert missed == ([1009, 1010] if mutation == "new name" else [])


# ---------------------------------------------------------------- blanks


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 0x7FFFFFFFFFFFFFF0), ("int", 0x7FFFFFFFFFFFFFF1), ("int", 9223372036854775794),
        ("int", 0x7FFFFFFFFFFFFFF3), ("int", 0x7FFFFFFFFFFFFFFF), ("int", 9.223372036854775794e18),
        ("int", 0x7FFFFFF0), ("int", 2147483634), ("int", 0x7FFFFFFF),
        ("int", 4294967295), ("double", 140737488355328.0), ("double", 140737488355330.0),
        ("double", 1e15), ("double", math.nan),
        ("double", 9.2e18),
    ],
)  # fmt: skip
def test_blanks_are_no_values(kind: str, value: float) -> None:
    """9.2e18, 1.4e14 and 2147483632 say that there is no value (gpu-monitoring-tools 97)."""
    assert is_blank(value, kind)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 0), ("int", 1), ("int", 0x7FFFFFEF), ("int", 0x80000000), ("int", 140737488355328),
        ("int", 2**62), ("double", 0.0), ("double", 700.0), ("double", 140737488355327.0),
    ],
)  # fmt: skip
def test_a_measured_zero_and_large_counts_are_values(kind: str, value: float) -> None:
    """Zero is a measured zero, and a counter may pass what would be a blank of another type."""
    assert not is_blank(value, kind)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", "101"), ("DCGM_FI_DEV_GPU_UTIL", "-1"),
        ("DCGM_FI_PROF_SM_ACTIVE", "98.1"), ("DCGM_FI_DEV_GPU_TEMP", "65535"),
        ("DCGM_FI_DEV_POWER_USAGE", "-1"), ("DCGM_FI_PROF_PCIE_TX_BYTES", "1.4e13"),
        ("DCGM_FI_DEV_SM_CLOCK", "4294967"),
    ],
)  # fmt: skip
def test_what_no_board_can_have_is_absent(name: str, value: str) -> None:
    """A value that cannot be is left out and counted, never shown."""
    items = DcgmPageSource(Page([f'{name}{{gpu="0",UUID="GPU-a"}} {value}'])).read()
    assert told(items) == {}
    assert [tuple(item) for item in items] == [("value", 1)]


def test_profiling_fields_are_told_apart() -> None:
    """Only what hardware counters measure is read unless more is asked for."""
    assert all(row.profiling for row in PROFILING)
    assert not any(row.profiling for row in DEVICE)
    assert {row.number // 100 for row in PROFILING} == {10}
