"""Four pictures, drawn as the chapter draws them, and what they are called."""

from __future__ import annotations

import pytest

from exporter.profiling.kernels import CLASSES
from exporter.profiling.patterns import pattern_of, pattern_of_sums
from exporter.profiling.timeline import Gpu, Summary, Timeline, Total

US = 1000


def picture(*rows: tuple[str, int, int, int]) -> Summary:
    """Return a timeline of kernels: name, start, end and when it was launched, in microseconds."""
    timeline = Timeline()
    for link, (name, start, end, launched) in enumerate(rows, 1):
        timeline.call(0, link, (launched - 5) * US, launched * US, launch=True)
        timeline.kernel(Gpu(0, 0), start * US, end * US, name, link)
    summary = timeline.summary()
    assert summary is not None
    return summary


def test_dense_kernels_are_normal() -> None:
    """Kernel after kernel, launched long before."""
    rows = [("gemm", at * 100, at * 100 + 98, max(10, at * 100 - 500)) for at in range(100)]
    assert pattern_of(picture(*rows)) == "normal"


def test_long_gaps_between_kernels_are_waiting_for_memory() -> None:
    """A kernel, nothing for milliseconds, a kernel."""
    rows = [("gemm", at * 5000, at * 5000 + 1000, max(10, at * 5000 - 10)) for at in range(50)]
    assert pattern_of(picture(*rows)) == "memory"


def test_copies_that_nothing_hides_are_too() -> None:
    """The GPU waits for what is copied to it."""
    timeline = Timeline()
    for at in range(50):
        begin = at * 1000 * US
        timeline.copy(Gpu(0, 0), begin, begin + 500 * US, "Memcpy HtoD", size=1)
        timeline.kernel(Gpu(0, 0), begin + 500 * US, begin + 1000 * US, "gemm")
    summary = timeline.summary()
    assert summary is not None
    assert pattern_of(summary) == "memory"


def test_communication_between_kernels_is_communication() -> None:
    """A kernel, a long all-reduce, a kernel."""
    rows = []
    for at in range(50):
        begin = at * 1000
        rows += [
            ("gemm", begin, begin + 300, 10),
            ("ncclKernel_AllReduce", begin + 300, begin + 990, 10),
        ]
    assert pattern_of(picture(*rows)) == "communication"


def test_communication_that_is_hidden_is_normal() -> None:
    """The same all-reduce below kernels."""
    rows = []
    for at in range(50):
        begin = at * 1000
        rows += [
            ("gemm", begin, begin + 995, 10),
            ("ncclKernel_AllReduce", begin + 300, begin + 990, 10),
        ]
    assert pattern_of(picture(*rows)) == "normal"


def test_short_kernels_that_come_as_they_are_launched_are_overhead() -> None:
    """Launch, kernel, launch, kernel: the host is the brake."""
    rows = [("gemm", at * 20, at * 20 + 6, max(10, at * 20 - 1)) for at in range(1, 500)]
    assert pattern_of(picture(*rows)) == "software_overhead"


def sums(**seconds: float) -> dict[str, Total]:
    return {name: Total(1, seconds.get(name, 0.0)) for name in CLASSES}


@pytest.mark.parametrize(
    ("classes", "launching", "copies", "pattern"),
    [
        (sums(matmul=1.0), 0.1, 0.0, None),
        (sums(matmul=1.0, communication=0.6), 0.1, 0.0, "communication"),
        (sums(matmul=1.0), 1.5, None, "software_overhead"),
        (sums(matmul=1.0), None, 0.5, "memory"),
        (sums(), 1.0, 1.0, None),
    ],
)
def test_sums_tell_what_they_can(
    classes: dict[str, Total], launching: float | None, copies: float | None, pattern: str | None
) -> None:
    """They know no gaps, so never that all is well."""
    assert pattern_of_sums(classes, launching, copies) == pattern
