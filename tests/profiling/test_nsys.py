"""Exports of Nsight Systems, composed from the documented schema: no real one is at hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.profiling.reading import read_profile
from exporter.samples import Malformed
from tests.trace_truth import CLASS, COPY, FILL, Interval, Truth, scenario, truth_of

PROCESS = 0x0123_4567_0000_0000 & ~0xFFFFFF
KERNELS = """
    CREATE TABLE StringIds(id, value);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL({});
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({});
"""
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(
        found: list[Interval], *, demangled: str = "demangledName", device: bool = True
    ) -> Path:
        path = tmp_path / "profile.sqlite"
        database = sqlite3.connect(path)
        database.executescript(f"""
            CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT NOT NULL);
            CREATE TABLE TARGET_INFO_GPU(id INTEGER, name TEXT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, deviceId INTEGER,
              contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
              {demangled} INTEGER NOT NULL, shortName INTEGER NOT NULL);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INTEGER, end INTEGER, deviceId INTEGER,
              streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER,
              copyKind INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET(start INTEGER, end INTEGER, deviceId INTEGER,
              streamId INTEGER, correlationId INTEGER, globalPid INTEGER, value INTEGER,
              bytes INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER, end INTEGER,
              globalTid INTEGER, correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
            INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000');
            INSERT INTO StringIds VALUES (2, 'cudaMemcpyAsync_v3020');
        """)  # fmt: skip
        if device:
            database.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100 80GB HBM3')")
        names = {name: at for at, name in enumerate(CLASS, 3)}
        database.executemany(
            "INSERT INTO StringIds VALUES (?, ?)", [(at, name) for name, at in names.items()]
        )
        for at, one in enumerate(found, 1):
            start, end, launched = one.start * 1000, one.end * 1000, one.launched * 1000
            where = (start, end, 0, one.stream, at, PROCESS)
            if one.name == COPY:
                row = "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,?,?,?,?,?,1)"
                database.execute(row, (*where, one.size))
            elif one.name == FILL:
                row = "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (?,?,?,?,?,?,0,?)"
                database.execute(row, (*where, one.size))
            else:
                row = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,1,?,?,?,?,?)"
                name = names[one.name]
                database.execute(row, (start, end, 0, one.stream, at, PROCESS, name, name))
            row = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?,0)"
            call = 2 if CLASS[one.name] == "copy" else 1
            database.execute(row, (launched - 1000, launched, PROCESS | 77, at, call))
        database.commit()
        database.close()
        return path

    return make


def told(path: Path) -> dict[str, object]:
    before = set(path.parent.iterdir())
    result = read_profile(str(path), str(path.parent), 1 << 28, 1 << 30)
    assert set(path.parent.iterdir()) == before, "nothing is written beside it"
    return result


def compare(result: dict[str, object], truth: Truth) -> None:
    summary = result["summary"]
    assert isinstance(summary, dict)
    names = ("matmul", "memory_bound", "exposed", "copies", "idle", "communication", "starved")
    wanted = {name: getattr(truth, name) / 1e6 for name in names}
    assert {name: summary[name] for name in names} == pytest.approx(wanted, rel=0.001)
    assert summary["kernels"] == truth.kernels


@pytest.mark.parametrize("seed", range(4))
def test_an_export_tells_the_same_as_a_trace(write: Write, seed: int) -> None:
    """The same intervals, the same truth."""
    found = scenario(seed)
    result = told(write(found))
    compare(result, truth_of(found))
    assert (result["format"], result["device"]) == ("nsys", "NVIDIA H100 80GB HBM3")


def test_an_older_schema_without_long_names_does(write: Write) -> None:
    """Columns that are not there are done without."""
    found = scenario(1)
    result = told(write(found, demangled="mangledName", device=False))
    compare(result, truth_of(found))
    assert result["device"] is None


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("CREATE TABLE x(a)", "no table StringIds"),
        (KERNELS.format("a", "1"), "no times"),
        (KERNELS.format("start, end", "'soon', 3"), "no row of whole numbers"),
        (KERNELS.format("start, end", "5, 3"), "ends 2 ns before"),
    ],
)  # fmt: skip
def test_a_database_that_is_no_export_is_said_to_be_none(
    tmp_path: Path, script: str, said: str
) -> None:
    """Any program writes SQLite."""
    database = sqlite3.connect(tmp_path / "x.sqlite")
    database.executescript(script)
    database.close()
    with pytest.raises(ValueError, match=said):
        told(tmp_path / "x.sqlite")


def test_a_view_in_the_place_of_a_table_is_not_run(tmp_path: Path) -> None:
    """A view may count to the end of time."""
    database = sqlite3.connect(tmp_path / "x.sqlite")
    database.executescript("""
        CREATE TABLE StringIds(id, value);
        CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS
          WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n)
          SELECT start, start + 1 AS end FROM n;
    """)
    database.close()
    assert "summary" not in told(tmp_path / "x.sqlite")


def test_a_damaged_database_is_malformed(write: Write) -> None:
    """Pages overwritten in the middle."""
    path = write(scenario(1))
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xaa" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(Malformed, match="damaged"):
        told(path)
