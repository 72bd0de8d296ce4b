"""What nccl-tests and perftest print: the measured bandwidth of a fabric, by message size.

nccl-tests: tables whose header names the columns (there is no column `root` in old ones, and one
half where only one placement was asked for); GB are 1e9 bytes. perftest (`ib_write_bw` and its
kin): the unit stands in the header; Gb are 1e9 bits, and MB are MiB, whatever they are called:
the label was corrected years after the figure (1024 bytes at 5.677 million a second were printed
as 5544 MB/sec, linux-rdma/perftest 65). A line may begin with the rank that mpirun puts there.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from exporter.samples import Malformed

_PREFIX = re.compile(r"^\s*\[\d+,\d+\]<std\w+>:")
_PERF = re.compile(r"\b((?:all|reduce|broad|send|gather|scatter|hyper)\w*?)_perf(?![a-z])")
_NCCL_HEADER = re.compile(r"^#\s+size\s+count\b.*\bbusbw\b")
_NCCL_AVERAGE = re.compile(r"^#\s*Avg bus bandwidth\s*:\s*(\S+)")
_NCCL_WRONG = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d+)")
_PERFTEST_TITLE = re.compile(r"^\s*(Send|RDMA_Write|RDMA_Read|Atomic\w*|Raw\w*)\b.*\bBW Test")
_PERFTEST_HEADER = re.compile(r"#bytes\s+#iterations\s.*BW average\[(\w+)/sec\]")
_PERFTEST_DEVICE = re.compile(r"\bDevice\s*:\s*(\S+)")
_BYTES = {"MB": float(1 << 20), "MiB": float(1 << 20), "Gb": 1e9 / 8}
_LONGEST = 64
MAX_ROWS = 4096


class Result(NamedTuple):
    """One measurement: bytes of the message, and bytes per second.

    `placement` is out, in, or "" where the tool knows none.
    """

    size: int
    placement: str
    bandwidth: float


class Report(NamedTuple):
    """What a test found. `tool` is nccl or perftest; `test` which, "" if the text does not tell.

    `average` is bytes per second over all rows as nccl-tests prints it; `wrong` how many values
    were wrong; `device` the RDMA device.
    """

    tool: str
    test: str
    device: str
    results: tuple[Result, ...]
    average: float | None = None
    wrong: int | None = None


def read(text: str, name: str = "") -> Report:
    """Return what a text tells; `name` is its file's, which often says which test it was.

    Raises `Malformed` if it is the output of neither, ends before there is a result, or holds
    results that make no sense.
    """
    lines = [_PREFIX.sub("", line) for line in text.splitlines()]
    if any(_NCCL_HEADER.match(line.strip()) for line in lines):
        return _nccl(lines, name)
    if any(_PERFTEST_HEADER.search(line) for line in lines):
        return _perftest(lines)
    raise Malformed("neither the output of nccl-tests nor of perftest, or cut off before a result")


def _nccl(lines: list[str], name: str) -> Report:
    columns: list[str] = []
    results: list[Result] = []
    test, average, wrong = "", None, None
    for line in map(str.strip, lines):
        if not test and (named := _PERF.search(line)) is not None:
            test = named[1]
        if _NCCL_HEADER.match(line):
            columns = line.lstrip("#").split()
        elif (found := _NCCL_AVERAGE.match(line)) is not None:
            average = _number(found[1], line) * 1e9
        elif (found := _NCCL_WRONG.match(line)) is not None:
            wrong = int(found[1])
        elif columns and line[:1].isdigit():
            results += _nccl_row(columns, line)
        if len(results) > MAX_ROWS:
            raise Malformed(f"more than {MAX_ROWS} results")
    if not results:
        raise Malformed("a table of nccl-tests without rows")
    if not test and (named := _PERF.search(name)) is not None:
        test = named[1]
    return Report("nccl", test[:_LONGEST], "", tuple(results), average, wrong)


def _nccl_row(columns: list[str], line: str) -> list[Result]:
    fields = line.split()
    if len(fields) == len(columns) - 1 and not fields[3].isalpha():
        fields.insert(3, "")  # the reduction, which tests that reduce nothing leave blank
    if len(fields) != len(columns):
        raise Malformed(f"{len(fields)} fields under {len(columns)} columns: {line[:80]!r}")
    size = int(_number(fields[0], line))
    places = [at for at, column in enumerate(columns) if column == "busbw"]
    return [
        Result(size, placement, _number(fields[at], line) * 1e9)
        for placement, at in zip(("out", "in"), places, strict=False)
    ]


def _perftest(lines: list[str]) -> Report:
    test, device, unit = "", "", 0.0
    results: dict[int, Result] = {}
    for line in lines:
        if (found := _PERFTEST_TITLE.match(line)) is not None:
            test = found[1].lower()
        if (found := _PERFTEST_DEVICE.search(line)) is not None:
            device = found[1]
        if (found := _PERFTEST_HEADER.search(line)) is not None:
            if found[1] not in _BYTES:
                raise Malformed(f"bandwidth in {found[1]} per second")
            unit = _BYTES[found[1]]
        elif unit and re.match(r"\s*\d+\s+\d+\s+[\d.]+\s+[\d.]+", line):
            size, _, _, average = line.split()[:4]
            # Said by both ends, or once for each direction: the same message, once.
            results[int(size)] = Result(int(size), "", _number(average, line) * unit)
        if len(results) > MAX_ROWS:
            raise Malformed(f"more than {MAX_ROWS} results")
    if not results:
        raise Malformed("a table of perftest without rows")
    return Report("perftest", test[:_LONGEST], device[:_LONGEST], tuple(results.values()))


def _number(text: str, line: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e15:
        raise Malformed(f"{text[:40]!r} is no figure: {line[:80]!r}")
    return value
