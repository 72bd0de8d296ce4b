"""The page of group `gpu` for each profile, to the byte, and what holds for all of them.

The pages lie in `tests/data/golden`; its SOURCES.md says how they come about and how to write them
anew. They are read by the real pynvml from the C library in a real child process, two seconds
apart on clocks that stand still.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from exporter import catalogue as c
from exporter.board import Board
from exporter.derive import Memory, hardware
from exporter.exposition import Exposition
from exporter.reference.accelerators import load
from exporter.reference.xids import load as load_xids
from exporter.samples import Gate, Sample, Snapshot, Source, View
from exporter.sources.nvml import NvmlSource
from exporter.xids import XidLedger
from tests.fake_nvml import OLD_DRIVER, PROFILES, build, profile
from tests.fakes import FakeClock
from tests.nvml.conftest import Child
from tests.nvml.profile_driver import ProfileDriver
from tests.nvml_lab import Time

GOLDEN = Path(__file__).parent.parent / "data" / "golden"
REWRITE = "FLOPWATCH_WRITE_GOLDEN"
MARKER = "(a time of this machine)"
_TIMED = re.compile(r"^(gpu_busy_seconds_total\{[^}]*\}) .*$", re.MULTILINE)


class Case(NamedTuple):
    """A page: a profile, options of the source, and lines for the control file."""

    profile: str
    detail: bool = False
    lines: tuple[str, ...] = ()


ONE_GPU = ("devices = 1",)
TWO_BY_NAME = ('2 nvmlDeviceGetUUID = "GPU-00000bad-0000-4000-8000-000000000002"',)
CASES = {path.stem: Case(path.stem) for path in sorted(PROFILES.glob("*.profile"))}
CASES["hostile"] = Case("hostile", lines=TWO_BY_NAME)
CASES |= {
    f"{name}-detail": Case(name, detail=True, lines=ONE_GPU)
    for name in ("h100-sxm8", "h100-mig", "b200", "gb200")
}


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory, tool: Callable[[str], str]) -> Path:
    """Return the path of the library as it was before many functions came."""
    tool("gcc")
    return build(tmp_path_factory.mktemp("old-libnvidia-ml"), OLD_DRIVER)


def rendered(samples: Iterable[Sample], cap: int = 100_000) -> str:
    """Return the page of these samples' group `gpu`."""
    clock, board = FakeClock(), Board()
    batch, drops = Gate(cap).admit(list(samples))
    assert not drops, "no series twice, no value that makes no sense"
    slot = board.enroll("nvml", c.GPU, 2.0, 12.0, clock.monotonic())
    slot.publish(Snapshot("nvml", c.GPU, clock.monotonic(), clock.time(), 0.01, batch), drops)
    page = Exposition(lambda: board.view(clock.monotonic()), lambda: (), clock)
    return page.page((frozenset({c.GPU}), False, False)).decode()


def second_read(source: Source, passing: Time) -> list[Sample]:
    """Read twice, two seconds apart; return the samples of the second read."""
    list(source.read())
    passing.forward(2)
    items = list(source.read())
    samples = [item for item in items if isinstance(item, Sample)]
    assert len(samples) == len(items), items
    return samples


@pytest.mark.parametrize("name", CASES)
def test_the_page_is_the_golden_one(
    name: str, child: Child, passing: Time, request: pytest.FixtureRequest
) -> None:
    """Byte for byte, but for the time that passed between the driver's own samples: those bear
    this machine's time of day."""
    case = CASES[name]
    options = {"detail": True, "links": True} if case.detail else {}
    old = request.getfixturevalue("old_library") if name == "old-driver" else None
    source = child(case.profile, case.lines, module="tests.nvml_lab", library=old, **options)
    page = _TIMED.sub(rf"\1 {MARKER}", rendered(second_read(source, passing)))
    file = GOLDEN / f"gpu-{name}.txt"
    if os.environ.get(REWRITE) == "1":
        file.write_text(page, "utf-8")
    assert page == file.read_text("utf-8")


def pages() -> Iterator[tuple[str, str]]:
    """Yield each golden page, with a number where the marker stands."""
    for name in CASES:
        yield name, (GOLDEN / f"gpu-{name}.txt").read_text("utf-8").replace(MARKER, "1.5")


def test_each_golden_page_is_of_a_case() -> None:
    """No page is left over of a profile that is gone."""
    assert {path.name for path in GOLDEN.glob("gpu-*.txt")} == {f"gpu-{n}.txt" for n in CASES}


@pytest.mark.parametrize("name", CASES)
def test_promtool_accepts_the_page(name: str, tool: Callable[[str], str]) -> None:
    """No lint, no syntax error."""
    result = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=dict(pages())[name], capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("name", CASES)
def test_what_holds_for_every_page(name: str) -> None:
    """No series twice, nothing that is not a number, ratios from 0 to 1, counters that say so and
    do not lie below zero, every family of the catalogue's kind."""
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    for family in parse(dict(pages())[name]):
        metric = c.FAMILIES[family.name + ("_total" if family.type == "counter" else "")]
        assert family.type == ("gauge" if metric.kind == "info" else metric.kind)
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in seen, "the same series twice"
            seen.add(key)
            assert math.isfinite(sample.value), sample
            assert "gpu" in metric.labels or not sample.labels.keys() & {"gpu", "uuid"}
            assert set(sample.labels) == set(metric.labels)
            if metric.unit == "ratio":
                assert 0 <= sample.value <= 1, sample
            if metric.kind == "counter":
                assert sample.name.endswith("_total")
                assert sample.value >= 0, sample
            if metric.kind == "info":
                assert sample.value == 1
    assert seen


def test_every_stable_family_that_nvml_fills_is_on_a_golden_page() -> None:
    """A family that no page has is one whose look nobody has seen."""
    shown = {family.name for _, page in pages() for family in parse(page)}
    shown |= {f"{name}_total" for name in shown}
    stable = {n for n, m in c.FAMILIES.items() if m.group == c.GPU and m.stability == "stable"}
    assert stable - shown == set(ELSEWHERE)


ELSEWHERE = {
    "gpu_hbm_bandwidth_bytes_per_second": "derived",
    "gpu_peak_memory_bandwidth_bytes_per_second": "derived",
    "gpu_peak_flops": "derived",
    "gpu_peak_confidence_ratio": "derived",
    "gpu_estimated_flops_per_second": "derived",
    "gpu_estimated_flops_total": "derived",
}
"""Families of the group that no profile shows, and why."""


# ------------------------------------------------------------ how many series


def test_the_reference_node_stays_within_its_series(root: Path) -> None:
    """Eight H100 with what is derived from them: at most 600 series, one is the daemon's own."""
    clock = FakeClock()
    source = NvmlSource(
        driver=ProfileDriver(profile("h100-sxm8"), clock.monotonic), clock=clock, root=str(root),
        budget=60.0,
    )  # fmt: skip
    derivation, memory, board = hardware(load()), Memory(), Board()
    slot = board.enroll("nvml", c.GPU, 2.0, 12.0, clock.monotonic())
    derived: list[Sample] = []
    read: list[Sample] = []
    for _ in range(3):
        clock.advance(1)
        read = [item for item in source.read() if isinstance(item, Sample)]
        now = clock.monotonic()
        batch, drops = Gate(5000).admit(read)
        slot.publish(Snapshot("nvml", c.GPU, now, clock.time(), 0.01, batch), drops)
        memory.begin(now)
        view: View = board.view(now)
        derived = list(derivation.function(view, memory, now))
    source.close()
    gpu = [sample for sample in (*read, *derived) if sample.metric.group == c.GPU]
    assert {sample.metric for sample in derived} == set(derivation.outputs)
    assert len(gpu) <= 600, len(gpu)


def test_the_critical_codes_of_eight_gpus_stay_within_their_series() -> None:
    """Ten XIDs that start at zero for each GPU, what they mean, and the falls: at most 120."""
    gpus = {f"0000:{bus:02x}:00": (str(bus), f"GPU-{bus}") for bus in range(8)}
    found = XidLedger(load_xids()).samples(gpus, 1.8e9)
    assert {item.metric.group for item in found if isinstance(item, Sample)} == {c.XID}
    assert 80 < len(found) <= 120
