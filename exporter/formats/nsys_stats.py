"""Tables of `nsys stats` as CSV: sums of kernels, of calls to CUDA, and of copies.

One file holds one report, or several one after the other with headings between them. Reports are
told apart by their columns, for their names have changed (`gpukernsum`, `cudaapisum`,
`gpumemtimesum` until 2023, `cuda_gpu_kern_sum`, `cuda_api_sum`, `cuda_gpu_mem_time_sum` since) and
files can be called anything. Times are converted from the unit that the column names.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import NamedTuple

from exporter.samples import Malformed

_UNITS = {"ns": 1e-9, "us": 1e-6, "usec": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0, "sec": 1.0}
_TOTAL = re.compile(r"Total Time(?: \((\w+)\)|:(?:dur_)?(\w+))?")
_COUNTS = {"Instances": "kernel", "Num Calls": "call", "Calls": "call"}
_HEADER = re.compile(r"(?:Time ?\(%\)|Total Time|Total \(|Row#)")
_CALL = re.compile(r"cu|hip")
_HEADING = re.compile(r"\s*(?:\*\*|Processing|Generating|SKIPPED|Exporting|Using|$)")


class Row(NamedTuple):
    """A line of a report: how often something ran, and for how many seconds in sum.

    `kind` is kernel, call or copy.
    """

    kind: str
    name: str
    number: int
    seconds: float


def read(text: str) -> list[Row]:
    """Return the rows of all reports in a text that are of interest here.

    Raises `Malformed` where a row does not fit its columns, or nothing is a report.
    """
    rows: list[Row] = []
    layout: _Layout | None = None
    known = False
    for number, line in _lines(text):
        if _HEADER.match(line[0].strip() if line else ""):
            layout = _layout(line)
            known = True
        elif _HEADING.match(",".join(line)):
            layout = None if not line else layout
        elif layout is not None:
            rows.append(layout.row(line, number))
    if not known:
        raise Malformed("no report of nsys stats")
    # Calls to the system come in the same columns as those to CUDA.
    return [row for row in rows if row.kind != "call" or _CALL.match(row.name)]


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(text.splitlines(keepends=True))
    try:
        for line in reader:
            yield reader.line_num, line
    except csv.Error as error:
        raise Malformed(f"line {reader.line_num}: {error}") from None


class _Layout(NamedTuple):
    kind: str
    name: int
    number: int
    total: int
    unit: float
    width: int

    def row(self, line: list[str], at: int) -> Row:
        """Return a line as a row. Raises `Malformed`."""
        if len(line) != self.width:
            raise Malformed(f"line {at}: {len(line)} columns, not {self.width}")
        try:
            number = int(line[self.number].replace(",", ""))
            total = float(line[self.total].replace(",", ""))
        except ValueError:
            raise Malformed(f"line {at}: {line[self.total][:40]!r} is not a time") from None
        if number < 0 or not 0 <= total < 1e18:
            raise Malformed(f"line {at}: {total} makes no sense")
        return Row(self.kind, line[self.name].strip(), number, total * self.unit)


def _layout(line: list[str]) -> _Layout | None:
    """Return where the columns are if this line is the header of a report that is known."""
    columns = [column.strip() for column in line]
    kind = next((_COUNTS[column] for column in columns if column in _COUNTS), None)
    if kind is None and "Operation" in columns and "Count" in columns:
        kind = "copy"
    name = next((at for at, column in enumerate(columns) if column in ("Name", "Operation")), None)
    total = next((at for at, column in enumerate(columns) if _TOTAL.fullmatch(column)), None)
    if kind is None or name is None or total is None:
        return None
    if kind == "call" and "Instances" in columns:
        return None
    match = _TOTAL.fullmatch(columns[total])
    unit = _UNITS.get((match[1] or match[2] or "ns") if match else "")
    if unit is None:
        raise Malformed(f"the times are in {columns[total]!r}")
    number = next(at for at, column in enumerate(columns) if column in (*_COUNTS, "Count"))
    return _Layout(kind, name, number, total, unit, len(columns))
