"""The page of groups `nic` and `nic_raw` for each recorded tree, to the byte.

The pages lie in `tests/data/golden`; its SOURCES.md says how to write them anew.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from exporter import catalogue as c
from exporter.board import Board
from exporter.exposition import Exposition
from exporter.samples import Gate, Sample, Snapshot
from exporter.sources.network import NetworkSource
from tests.fakes import FakeClock
from tests.sources.network_lab import TREES

GOLDEN = Path(__file__).parent.parent / "data" / "golden"
REWRITE = "FLOPWATCH_WRITE_GOLDEN"
SINGLE = sorted(path.name for path in TREES.iterdir() if (path / "sys").is_dir())
PAIRS = sorted(path.name for path in TREES.iterdir() if (path / "t0").is_dir())
RAW = ("derived-efa", "derived-qcounter-wrap", "hfi1-hwcounters-excerpt", "nodeexporter")


def page(tree: str, into: Path, *, raw: bool = False) -> str:
    """Return the page of a tree; of one that changes, that of its second read."""
    parts = ["t0", "t1"] if tree in PAIRS else [""]
    shutil.copytree(TREES / tree / parts[0], into, symlinks=True, dirs_exist_ok=True)
    source = NetworkSource(into, raw=raw)
    items = list(source.read())
    for part in parts[1:]:
        shutil.copytree(TREES / tree / part, into, symlinks=True, dirs_exist_ok=True)
        items = list(source.read())
    source.close()
    samples = [item for item in items if isinstance(item, Sample)]
    assert len(samples) == len(items), "nothing of a tree is a fault"
    clock, board = FakeClock(), Board()
    batch, drops = Gate(10_000).admit(samples)
    assert not drops
    slot = board.enroll("network", c.NIC, 2.0, 12.0, clock.monotonic())
    slot.publish(Snapshot("network", c.NIC, clock.monotonic(), clock.time(), 0.01, batch), drops)
    exposition = Exposition(lambda: board.view(clock.monotonic()), lambda: (), clock)
    return exposition.page((frozenset({c.NIC, c.NIC_RAW}), False, False)).decode()


def check(name: str, text: str) -> None:
    """Compare a page with the one that is kept, or keep it."""
    path = GOLDEN / f"nic-{name}.txt"
    if os.environ.get(REWRITE):
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8"), f"read the difference, then {REWRITE}=1"


@pytest.mark.parametrize("tree", [*SINGLE, *PAIRS])
def test_every_tree_has_its_golden_page(tree: str, tmp_path: Path) -> None:
    """Given a tree, then the page that is kept."""
    check(tree, page(tree, tmp_path))


@pytest.mark.parametrize("tree", RAW)
def test_every_kind_of_raw_counters_has_its_golden_page(tree: str, tmp_path: Path) -> None:
    """Given a tree and `raw`, then the page that is kept."""
    check(f"{tree}-raw", page(tree, tmp_path, raw=True))


def test_there_is_a_tree_for_each_golden_page() -> None:
    """A page without its tree would be checked by nobody."""
    kept = {path.name for path in GOLDEN.glob("nic-*.txt")}
    known = {*SINGLE, *PAIRS, *(f"{name}-raw" for name in RAW)}
    assert kept == {f"nic-{name}.txt" for name in known}


@pytest.mark.parametrize("tree", [*SINGLE, *PAIRS])
def test_every_number_of_a_counter_file_is_a_raw_counter(tree: str, tmp_path: Path) -> None:
    """Given `raw`, then each file that holds a number is a series, but for `lifespan`
    (node_exporter 2827, 2023): no list of known names decides."""
    text = page(tree, tmp_path, raw=True)
    files = [
        path
        for path in (tmp_path / "sys/class").glob("*/*/**/*")
        if path.parent.name in ("counters", "hw_counters", "counters_ext", "statistics")
        and path.name != "lifespan"
        and re.fullmatch(r"\s*\d+\s*", path.read_text("utf-8"))
    ]
    # the interfaces that are left out by default
    files = [path for path in files if not re.search(r"/net/(lo|veth|ifb|docker)", str(path))]
    shown = {
        (s.labels["device"], s.labels["port"], s.labels["folder"], s.labels["counter"])
        for family in parse(text)
        if family.name in ("nic_raw", "nic_raw_level")
        for s in family.samples
    }
    wanted = set()
    for path in files:
        parts = path.relative_to(tmp_path / "sys/class").parts
        port = parts[parts.index("ports") + 1] if "ports" in parts else ""
        wanted.add((parts[1], port, path.parent.name, path.name))
    assert shown == wanted
    assert "lifespan" not in text
