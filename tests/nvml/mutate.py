"""Changes the reader's tables one entry at a time and sees whether the stated units notice.

    python -m tests.nvml.mutate

Each scale, field number, scope, GPM number, function, argument, place, bit, member of a structure,
label and family of `exporter/nvml/readings.py`, and of the few tables elsewhere in that package, is
made wrong, alone. A change is caught if what is then read of `units.profile` is not what is stated
in `units.csv`. Tables that cannot matter to the change are left empty meanwhile, for speed: without
the change, what remains is checked to be the stated values as well.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from exporter import catalogue as c
from exporter.nvml import gpu, mig
from exporter.nvml import readings as r
from exporter.nvml.driver import Block, Struct
from exporter.samples import Metric
from tests.nvml.profile_driver import LATER, SHAPES, Layout
from tests.nvml.units import Bench, Key, rows

Change = tuple[str, Any]
"""What was changed, in words, and the changed value."""

N = TypeVar("N", bound=NamedTuple)

# ------------------------------------------------------------ one change at a time


def changes(value: object, name: str) -> Iterator[Change]:
    """Yield everything that can be wrong about a value, one thing at a time."""
    match value:
        case r.Unit():
            yield f"{name}.times", value._replace(times=value.times * 10)
            yield f"{name}.over", value._replace(over=value.over * 10)
        case r.Call():
            yield from _call(value, name)
        case r.Field():
            yield from _fields(value, name, "number", "scope")
            yield from _inside(value, name, "drivers", _drivers)
            yield from _inside(value, name, "gives", lambda g, n: _gives(g, n, places=1))
        case r.Gives():
            yield from _gives(value, name, places=1)
        case Struct():
            yield from _struct(value, name)
        case Metric():
            yield f"{name} family", _other(value)
        case bool() | float() | None:
            return
        case int():
            yield f"{name} + 1", value + 1
            if value > 0:
                yield f"{name} - 1", value - 1
        case str():
            yield f"{name} renamed", value + "_"
        case Mapping():
            yield from _mapping(value, name)
        case tuple() if hasattr(value, "_fields"):
            yield from _fields(value, name, *value._fields)
        case tuple():
            yield from _items(value, name)
        case _:
            raise TypeError(f"{name}: {value!r}")


def _other(metric: Metric) -> Metric:
    """Return another family with the same labels, or at least another one."""
    same = [m for m in c.FAMILIES.values() if m.labels == metric.labels and m.group == c.GPU]
    return same[(same.index(metric) + 1) % len(same)] if len(same) > 1 else c.GPU_INFO


def _inside(
    whole: N, name: str, field: str, of: Callable[[Any, str], Iterator[Change]]
) -> Iterator[Change]:
    for what, new in of(getattr(whole, field), f"{name}.{field}"):
        yield what, whole._replace(**{field: new})


def _fields(whole: Any, name: str, *fields: str) -> Iterator[Change]:
    for field in fields:
        yield from _inside(whole, name, field, changes)


def _items(
    whole: tuple[Any, ...], name: str, of: Callable[[Any, str], Iterator[Change]] = changes
) -> Iterator[Change]:
    """Change each item, and leave each out that is not a plain word or number."""
    for at, item in enumerate(whole):
        for what, new in of(item, f"{name}[{at}]"):
            yield what, (*whole[:at], new, *whole[at + 1 :])
        if isinstance(item, tuple):
            yield f"{name}[{at}] left out", (*whole[:at], *whole[at + 1 :])


def _mapping(whole: Mapping[Any, Any], name: str) -> Iterator[Change]:
    for key, item in whole.items():
        for what, new in changes(item, f"{name}[{key}]"):
            yield what, {**whole, key: new}
        if key + 1 not in whole:
            rest = {k: v for k, v in whole.items() if k != key}
            yield f"{name}[{key} + 1]", {**rest, key + 1: item}


def _drivers(drivers: tuple[r.Version, r.Version], name: str) -> Iterator[Change]:
    """Change the bounds that a row states."""
    for at, bound in enumerate(drivers):
        if bound != r.ANY_DRIVER[at]:
            for what, new in _items(bound, f"{name}[{at}]"):
                yield what, (*drivers[:at], new, *drivers[at + 1 :])


def _gives(gives: r.Gives, name: str, places: int) -> Iterator[Change]:
    yield from _fields(gives, name, "metric", "unit", "labels")
    for place in range(places):
        if place != gives.at and places > 1:
            yield f"{name}.at = {place}", gives._replace(at=place)
    if gives.bit:
        yield f"{name}.bit << 1", gives._replace(bit=gives.bit << 1)
        yield f"{name}.bit >> 1", gives._replace(bit=gives.bit >> 1 or 0x200)


def _call(call: r.Call, name: str) -> Iterator[Change]:
    """Change a call; its function into each other one that is called alike."""
    name = f"{name} {call.function}"
    shape = SHAPES[call.function]
    for other, its in SHAPES.items():
        if other != call.function and its[:2] == shape[:2] and its.system == shape.system:
            yield f"{name} -> {other}", call._replace(function=other)
    if isinstance(call.answer, Struct):
        yield from _inside(call, name, "answer", _struct)
    yield from _fields(call, name, "arguments")
    places = 1 if isinstance(call.answer, str) else _places(call.answer)
    yield from _inside(
        call, name, "gives", lambda all_, n: _items(all_, n, lambda g, m: _gives(g, m, places))
    )


def _places(answer: object) -> int:
    if isinstance(answer, Block):
        return answer.size
    return len(answer.fields) if isinstance(answer, Struct) else len(answer)  # type: ignore[arg-type]


def _struct(struct: Struct, name: str) -> Iterator[Change]:
    """Change a structure: each member into each other one of it, its version, its inputs."""
    layouts = [s.writes for s in SHAPES.values() if isinstance(s.writes, Layout)]
    layouts += LATER.values()
    (members,) = {tuple(layout.places) for layout in layouts if layout.struct == struct.name}
    for at, field in enumerate(struct.fields):
        for other in members:
            if other != field:
                fields = (*struct.fields[:at], other, *struct.fields[at + 1 :])
                yield f"{name}.{field} -> {other}", struct._replace(fields=fields)
    yield f"{name}.version", struct._replace(version=f"{struct.version}_")
    for at, (field, number) in enumerate(struct.inputs):
        changed = (*struct.inputs[:at], (field, number + 1), *struct.inputs[at + 1 :])
        yield f"{name}.{field} + 1", struct._replace(inputs=changed)


# ------------------------------------------------------------ which tables, and beside what


class Place(NamedTuple):
    """Something to change: a name in a module or class, its value, and what else is in force."""

    owner: Any
    name: str
    value: Any
    beside: Mapping[str, Any]


_NOTHING = r.Call("none", "u32", ())
EMPTY: Mapping[str, Any] = {
    "LADDERS": (), "DETAILS": (), "BANKS": _NOTHING,
    "LINK_STATE": r.LINK_STATE._replace(function="none"), "LINK_BYTES": (),
    "LINK_ERRORS": (), "LINK_ERROR_CALLS": (), "PCIE_BYTES": ((0, c.GPU_INFO),), "PCIE_RATES": (),
    "C2C_ERRORS": (), "FABRIC": (), "GPM": (), "GPM_DETAILS": (), "GPM_BYTES": (),
}  # fmt: skip
"""The tables without a row."""

_WIRES = (
    "LINK_STATE", "LINK_COUNT", "LINK_RATE", "LINK_BYTES", "LINK_ERRORS", "LINK_ERROR_CALLS",
    "PCIE_BYTES", "PCIE_RATES", "GPM_BYTES", "C2C_STATUS", "C2C_BANDWIDTH", "C2C_ERRORS",
    "GPM_MEBIBYTES_PER_SECOND", "KILOBYTES_PER_SECOND", "BYTES_COUNTED",
)  # fmt: skip
_ROOMS: tuple[tuple[str, ...], ...] = (
    ("BANKS",), ("FABRIC", "FABRIC_STATE"), ("GPM",), ("GPM_DETAILS",), ("ARCHITECTURES",),
    ("VIRTUALIZATION",),
)  # fmt: skip


def places() -> Iterator[Place]:
    """Yield everything that is changed."""
    for table in ("LADDERS", "DETAILS"):
        for ladder in getattr(r, table):
            yield Place(r, table, (ladder,), EMPTY)
    beside = {name: value for name, value in EMPTY.items() if name not in _WIRES}
    for name in _WIRES:
        yield Place(r, name, getattr(r, name), beside)
    for room in _ROOMS:
        beside = {name: value for name, value in EMPTY.items() if name not in room}
        for name in room:
            yield Place(r, name, getattr(r, name), beside)
    power = tuple(ladder for ladder in r.LADDERS if _calls(ladder, r.POWER_USAGE))
    for name in ("POWER_USAGE", "LAST_INSTANT"):
        yield Place(r, name, getattr(r, name), {**EMPTY, "LADDERS": power})
    fabric = {name: value for name, value in EMPTY.items() if name != "FABRIC"}
    yield Place(gpu.Fabric, "_HEALTH", gpu.Fabric._HEALTH, fabric)
    yield Place(gpu.Fabric, "_CONFIGURATION", gpu.Fabric._CONFIGURATION, fabric)
    yield Place(mig, "_MEMORY", mig._MEMORY, EMPTY)
    yield Place(r, "FAN_PERCENT", r.FAN_PERCENT, EMPTY)  # used by name


def _calls(ladder: r.Ladder, function: str) -> bool:
    return any(isinstance(rung, r.Call) and rung.function == function for rung in ladder)


@contextlib.contextmanager
def replaced(values: Mapping[tuple[Any, str], Any]) -> Iterator[None]:
    """Give attributes other values for a while."""
    former = {(owner, name): getattr(owner, name) for owner, name in values}
    for (owner, name), value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for (owner, name), value in former.items():
            setattr(owner, name, value)


class Report(NamedTuple):
    """How many changes were made, and the names of those that nothing noticed."""

    made: int
    survivors: list[str]


def run() -> Report:
    """Make every change; see which of them nobody notices.

    Raises `AssertionError` if the units do not fit as it is, or a table has nothing stated for it.
    """
    bench, stated = Bench(), {row.key: float(row.value) for row in rows()}
    _holds(bench.observe(bench.gpus), stated)
    made, survivors = 0, []
    for place in places():
        whole = {(r, name): value for name, value in place.beside.items()}
        with replaced({**whole, (place.owner, place.name): place.value}):
            right = bench.observe(bench.gpus)
        _holds(right, stated)
        mine = _own(right, place)
        assert mine, f"{place.name}: nothing is stated for {place.value}"
        gpus = sorted({key[0] for key in mine})
        for what, changed in changes(place.value, place.name):
            made += 1
            with replaced({**whole, (place.owner, place.name): changed}):
                if not _noticed(bench, right, gpus):
                    survivors.append(what)
    return Report(made, survivors)


def _own(right: Mapping[Key, float], place: Place) -> list[Key]:
    """Return the series that a change may show in: of readings, or else of who a GPU is."""
    if place.name in {"ARCHITECTURES", "VIRTUALIZATION"}:
        return [key for key in right if key[1] == "gpu_info"]
    return [key for key in right if key[1] not in {"gpu_info", "gpu_processes"}]


def _noticed(bench: Bench, right: Mapping[Key, float], gpus: list[str]) -> bool:
    """Tell whether something else is read now: of the GPUs that it is about, else of any."""
    for some in (gpus, bench.gpus):
        try:
            found = bench.observe(some)
        except Exception:  # noqa: BLE001 - a table that cannot even be read has been noticed
            return True
        if found != {key: value for key, value in right.items() if key[0] in some}:
            return True
    return False


def _holds(found: Mapping[Key, float], stated: Mapping[Key, float]) -> None:
    for key, value in found.items():
        assert abs(value - stated[key]) <= 1e-12 * abs(stated[key]), (key, value, stated[key])


if __name__ == "__main__":
    report = run()
    for survivor in report.survivors:
        print(f"not noticed: {survivor}")
    print(f"{report.made} changes, {len(report.survivors)} not noticed")
    sys.exit(bool(report.survivors))
