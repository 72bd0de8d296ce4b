"""An export of Nsight Systems (`nsys export --type sqlite`), read onto a timeline.

Experimental: written from the schema that NVIDIA documents and tables that others have shown, not
from an export of our own. Tables and columns that a version has not are done without. Times are
nanoseconds since the session began. The database is opened read-only and as immutable: no journal
is looked for, nothing is written beside it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from exporter.profiling.timeline import Gpu, Timeline
from exporter.samples import Malformed

_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
_FILLS = "CUPTI_ACTIVITY_KIND_MEMSET"
_CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
_STRINGS = "StringIds"
_COPY_KINDS = {
    0: "Memcpy", 1: "Memcpy HtoD", 2: "Memcpy DtoH", 3: "Memcpy HtoA", 4: "Memcpy AtoH",
    5: "Memcpy AtoA", 6: "Memcpy AtoD", 7: "Memcpy DtoA", 8: "Memcpy DtoD", 9: "Memcpy HtoH",
    10: "Memcpy PtoP",
}  # fmt: skip
"""CUpti_ActivityMemcpyKind."""
_MOST_STRINGS = 4096


def read_export(uri: str, timeline: Timeline) -> dict[str, Any]:
    """Put kernels, copies and calls onto a timeline; return the GPU's name if it is known.

    Raises `Malformed` for a database that is no such export, or is damaged.
    """
    try:
        with closing(sqlite3.connect(uri, uri=True)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            return _Export(database, timeline).read()
    except sqlite3.Error as error:
        raise Malformed(f"not an export of nsys, or damaged: {error}") from None


class _Export:
    def __init__(self, database: sqlite3.Connection, timeline: Timeline) -> None:
        self._database = database
        self._timeline = timeline
        self._tables = {
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        self._names: dict[int, str] = {}

    def read(self) -> dict[str, Any]:
        if _STRINGS not in self._tables:
            raise Malformed("not an export of nsys: no table StringIds")
        self._kernels()
        self._copies()
        self._calls()
        return {"rank": None, "device": self._device(), "steps": 0}

    def _rows(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Yield columns of a table, 0 for those that it has not."""
        if table not in self._tables:
            return
        there = {row[1] for row in self._database.execute(f"PRAGMA table_info({table})")}
        if not {"start", "end"} <= there:
            raise Malformed(f"table {table} has no times")
        asked = ", ".join(f'COALESCE("{one}", 0)' if one in there else "0" for one in columns)
        for row in self._database.execute(f"SELECT {asked} FROM {table}"):  # noqa: S608 - ours
            if not all(type(value) is int for value in row):
                raise Malformed(f"table {table}: {row!r:.80} is no row of whole numbers")
            yield row

    def _name(self, number: int) -> str:
        name = self._names.get(number)
        if name is None:
            found = self._database.execute(
                "SELECT substr(value, 1, 2048) FROM StringIds WHERE id = ?", (number,)
            ).fetchone()
            name = str(found[0]) if found else ""
            if len(self._names) < _MOST_STRINGS:
                self._names[number] = name
        return name

    def _kernels(self) -> None:
        rows = self._rows(
            _KERNELS, "start", "end", "demangledName", "shortName", "deviceId", "correlationId",
            "globalPid",
        )  # fmt: skip
        for start, end, long, brief, device, link, process in rows:
            name = self._name(long or brief)
            self._timeline.kernel(Gpu(process, device), start, end, name, link)

    def _copies(self) -> None:
        columns = ("start", "end", "bytes", "deviceId", "correlationId", "globalPid")
        for start, end, size, device, link, process, kind in self._rows(
            _COPIES, *columns, "copyKind"
        ):
            operation = _COPY_KINDS.get(kind, "Memcpy")
            self._timeline.copy(Gpu(process, device), start, end, operation, size=size, link=link)
        for start, end, size, device, link, process in self._rows(_FILLS, *columns):
            self._timeline.copy(Gpu(process, device), start, end, "Memset", size=size, link=link)

    def _calls(self) -> None:
        columns = ("start", "end", "nameId", "correlationId", "globalTid")
        for start, end, name, link, thread in self._rows(_CALLS, *columns):
            launch = "Launch" in self._name(name)
            # The process is the upper part of what identifies a thread on all machines.
            process = thread & ~0xFFFFFF
            self._timeline.call(process, link, start, end, launch=launch)

    def _device(self) -> str | None:
        if "TARGET_INFO_GPU" not in self._tables:
            return None
        found = self._database.execute("SELECT name FROM TARGET_INFO_GPU LIMIT 1").fetchone()
        return str(found[0])[:128] if found and found[0] else None
