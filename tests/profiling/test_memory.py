"""Which operator took memory: as PyTorch's own table has it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

from exporter.formats.kineto import Trace
from exporter.profiling.memory import Allocations

DATA = Path(__file__).parent.parent / "data" / "kineto"


def test_each_operator_has_what_pytorch_says_of_it() -> None:
    """Taken less returned, of all rows of `key_averages` of a recorded run."""
    trace = gzip.decompress((DATA / "cpu-memory.pt.trace.json.gz").read_bytes())
    taken, returned = Allocations(10_000), Allocations(10_000)
    for event in Trace(iter([trace])).events():
        if event.kind == "memory":
            (taken if event.change > 0 else returned).add(
                event.thread, event.start, abs(event.change)
            )
    net: Counter[str] = Counter()
    for sign, allocations in ((1, taken), (-1, returned)):
        for event in Trace(iter([trace]), operators=True).events():
            allocations.operator(event.thread, event.start, event.end, event.name)
        for name, total in allocations.totals().items():
            net[name] += sign * total.bytes
    wanted = json.loads((DATA / "cpu-memory.key_averages.json").read_bytes())
    # PyTorch calls it after the event.
    wanted["(no operator)"] = wanted.pop("[memory]")
    assert {name: net.get(name, 0) for name in wanted} == wanted
    assert set(net) <= set(wanted)


def test_the_innermost_operator_has_it_whatever_the_order() -> None:
    """Operators within others, told before or after them, on two threads."""
    operators = [("a", 0, 100, "outer"), ("a", 10, 20, "inner"), ("b", 0, 100, "other")]
    for told in (operators, operators[::-1]):
        allocations = Allocations(100)
        for when, size in ((15, 1), (30, 2), (200, 4), (5, 8)):
            allocations.add("a", when, size)
        allocations.add("b", 15, 16)
        for operator in told:
            allocations.operator(*operator)
        found = {name: total.bytes for name, total in allocations.totals().items()}
        assert found == {"inner": 1, "outer": 10, "(no operator)": 4, "other": 16}


def test_too_many_allocations_are_not_told_of() -> None:
    """A part would name the wrong ones."""
    allocations = Allocations(10)
    for at in range(11):
        allocations.add("a", at, 1)
    assert allocations
    assert allocations.crowded
    assert allocations.totals() == {}
