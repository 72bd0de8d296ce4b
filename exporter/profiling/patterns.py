"""Which of four pictures a timeline shows: the one glance at a profile that names the bottleneck.

Dense kernels are `normal`. Where communication that nothing hides takes much of the time it is
`communication`. Where the GPU is idle or only copies, the picture is `software_overhead` if the
host is the brake (many short gaps in which it had launched nothing, or launch calls that fill much
of the span), else `memory`: long gaps in which kernels wait for data. The thresholds are ours; the
pictures are those that people are taught to look for in Nsight Systems.
"""

from __future__ import annotations

from exporter.profiling.timeline import Summary, Total

PATTERNS = ("normal", "memory", "communication", "software_overhead")

COMMUNICATION = 0.3
"""Share of the span that exposed communication takes at least in its pattern."""
WAITING = 0.2
"""Share of the span that is idle, or copies alone, at least in the other two."""
LAUNCHING = 0.5
"""Share of the span that launch calls fill at least where they are the brake."""
SHORT_GAP = 100e-6
"""Gaps of at most so many seconds on average are those of a host that launches too slowly."""


def pattern_of(summary: Summary) -> str:
    """Return the pattern of a timeline."""
    span = summary.seconds
    waiting = summary.idle + summary.copies
    if summary.exposed >= COMMUNICATION * span and summary.exposed >= waiting:
        return "communication"
    if waiting < WAITING * span:
        return "normal"
    launching = summary.launching / summary.devices >= LAUNCHING * span
    short = summary.idle <= SHORT_GAP * max(1, summary.gaps)
    starved = summary.starved is None or summary.starved >= summary.idle / 2
    if summary.idle >= summary.copies and (launching or (short and starved)):
        return "software_overhead"
    return "memory"


def pattern_of_sums(
    classes: dict[str, Total], launching: float | None, copies: float | None
) -> str | None:
    """Return the pattern that sums of durations show, `None` where they cannot tell.

    Sums know no gaps, so that `normal` is never said: an idle GPU has no rows in them.
    """
    communication = classes["communication"].seconds
    kernels = sum(total.seconds for name, total in classes.items() if name != "copy")
    if kernels <= 0:
        return None
    if communication >= COMMUNICATION * kernels:
        return "communication"
    if launching is not None and launching >= kernels:
        return "software_overhead"
    if copies is not None and copies >= WAITING * (kernels + copies):
        return "memory"
    return None
