"""Timing for the benchmarks: alternatives run in turn, and what they cost as a Markdown table.

Neighbours on a shared machine disturb a measurement more than most changes improve it. So time is
the CPU time of this process, alternatives are timed in turn round by round, and they are compared
by the median of the ratios inside each round, never by two medians taken at different moments.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple


class Result(NamedTuple):
    """What one call of an alternative costs.

    `seconds` is the median CPU time of a call, `low` and `high` the 10th and 90th percentile over
    the rounds; `ratio` is the median over the rounds of its time divided by the baseline's.
    """

    seconds: float
    low: float
    high: float
    ratio: float

    @property
    def times_faster(self) -> float:
        """How many times faster than the baseline: above 1 is better."""
        return 1 / self.ratio


def race(
    alternatives: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 15,
    baseline: str | None = None,
    seconds: float = 0.03,
) -> dict[str, Result]:
    """Time all alternatives in turn, `rounds` times, each for about `seconds` of CPU time.

    The baseline is the first alternative unless named. Each is called twice beforehand: caches
    are warm, and an alternative that keeps state has seen its input.
    """
    calls = {name: _calls_in(seconds, call) for name, call in alternatives.items()}
    times: dict[str, list[float]] = {name: [] for name in alternatives}
    for _ in range(rounds):
        for name, call in alternatives.items():
            times[name].append(_time(call, calls[name]))
    base = times[baseline if baseline is not None else next(iter(alternatives))]
    return {name: _result(own, base) for name, own in times.items()}


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; columns after the first are aligned right."""
    marks = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (header, marks, *rows))


def _calls_in(seconds: float, call: Callable[[], object]) -> int:
    call()
    return max(1, int(seconds / max(_time(call, 1), 1e-9)))


def _time(call: Callable[[], object], calls: int) -> float:
    start = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - start) / calls


def _result(own: Sequence[float], base: Sequence[float]) -> Result:
    ordered = sorted(own)
    tenth = len(ordered) // 10
    ratio = statistics.median(a / b for a, b in zip(own, base, strict=True))
    return Result(statistics.median(own), ordered[tenth], ordered[-1 - tenth], ratio)
