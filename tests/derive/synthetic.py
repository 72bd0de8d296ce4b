"""Requests whose latencies are known, seen through the buckets of each engine.

    .venv/bin/python -m tests.derive.synthetic

prints the tables of docs/serving.md. For the tests a million requests of each distribution pass;
their level changes every so often, so that each layout meets windows far below its first bound, in
its midst, and beyond its last. For the tables the level is what the signal usually has. A window is
what a reader sees of it: bucket counts, and the difference of two readings of a counter that was
added up request by request.
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

from exporter.derive.serving.increase import Increase, rounding
from exporter.derive.serving.quantiles import Estimate, estimate
from exporter.formats.exposition import Reader

PAGES = Path(__file__).parent.parent / "data" / "engines"
QUANTILES = (0.5, 0.9, 0.95, 0.99)
REQUESTS = 1_000_000


def page_bounds(page: str, family: str) -> tuple[float, ...]:
    """Return the finite bounds of a family on a recorded page."""
    shape = Reader().read((PAGES / page).read_bytes()).shape
    found = {
        float(dict(shape.series[at].labels)["le"]) for at in shape.index[f"{family}_bucket"]
    } - {math.inf}
    return tuple(sorted(found))


def _log_spaced(low: float, high: float, count: int) -> tuple[float, ...]:
    """Return 0 and then bounds in equal ratios up to `high`, in two digits, as Dynamo does."""
    steps = (low * (high / low) ** (i / (count - 1)) for i in range(1, count))
    return (0.0, *(float(f"{step:.1e}") for step in steps))


_VLLM = "vllm-0.32.0-cpu.prom"
_VLLM_V0 = "vllm-0.4.x-v0-cpu-2024-06.prom"
_NIM = "nim-llm-1.x-2024-10.prom"
_SGLANG = "sglang-0.5.23-collector-replay.prom"
_SGLANG_TTFT = page_bounds(_SGLANG, "sglang:time_to_first_token_seconds")
_LITELLM = "litellm-1.108.7-proxy.prom"

LAYOUTS: dict[str, tuple[float, ...]] = {
    # From recorded pages.
    "vLLM TTFT": page_bounds(_VLLM, "vllm:time_to_first_token_seconds"),
    "vLLM ITL": page_bounds(_VLLM, "vllm:inter_token_latency_seconds"),
    "vLLM e2e": page_bounds(_VLLM, "vllm:request_inference_time_seconds"),
    "vLLM queue": page_bounds(_VLLM, "vllm:request_queue_time_seconds"),
    "vLLM V0 TTFT": page_bounds(_VLLM_V0, "vllm:time_to_first_token_seconds"),
    "vLLM V0 TPOT": page_bounds(_VLLM_V0, "vllm:time_per_output_token_seconds"),
    "NIM 1.x TTFT": page_bounds(_NIM, "time_to_first_token_seconds"),
    "NIM 1.x TPOT": page_bounds(_NIM, "time_per_output_token_seconds"),
    "SGLang TTFT": _SGLANG_TTFT,
    "SGLang ITL": page_bounds(_SGLANG, "sglang:inter_token_latency_seconds"),
    "TGI e2e": page_bounds("tgi-3.x-excerpt.prom", "tgi_request_inference_duration"),
    "LiteLLM e2e": page_bounds(_LITELLM, "litellm_request_total_latency_metric"),
    "LiteLLM TPOT": page_bounds(_LITELLM, "litellm_deployment_latency_per_output_token"),
    # From the engines' sources; no recorded page has values of them. Of SGLang's queue bounds only
    # the first and the last are known, those between 3 s and 3000 s are put in.
    "SGLang e2e": (*_SGLANG_TTFT, 600.0, 1200.0, 1800.0, 2400.0),
    "SGLang queue": (
        0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0,
        100.0, 200.0, 400.0, 600.0, 1000.0, 2000.0, 3000.0,
    ),
    "Dynamo TTFT": _log_spaced(0.001, 480.0, 18),
    "Dynamo ITL": _log_spaced(0.001, 2.0, 13),
    "OpenTelemetry TTFT": (
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    ),
    "OpenTelemetry e2e": tuple(0.01 * 2**k for k in range(14)),
    "Triton TTFT": tuple(ms / 1000 for ms in (100, 500, 2000, 5000)),
}  # fmt: skip

_ALL_BOUNDS = sorted({bound for bounds in LAYOUTS.values() for bound in bounds})
_LEVELS = (0.001, 0.02, 0.3, 4.0, 50.0)
USUAL = {"TTFT": 0.2, "ITL": 0.03, "TPOT": 0.03, "e2e": 8.0, "queue": 0.005}
"""Seconds that are nothing special for a signal, the last word of a layout's name."""

OVERLOAD = 100
"""How much longer a first token takes with a long queue before it."""


def _bimodal(dice: Random) -> float:
    """Return short answers of a cached prefix, and long ones of a full prefill."""
    return abs(dice.gauss(0.05, 0.01) if dice.random() < 0.9 else dice.gauss(3.0, 0.5))


def _waits(dice: Random) -> float:
    """Return waits in a queue that is mostly empty."""
    return 0.0 if dice.random() < 0.7 else dice.expovariate(1.0)


DISTRIBUTIONS: dict[str, Callable[[Random], float]] = {
    "lognormal": lambda dice: dice.lognormvariate(0.0, 0.8),
    "gamma": lambda dice: dice.gammavariate(2.0, 0.5),
    "bimodal": _bimodal,
    "heavy tail": lambda dice: dice.paretovariate(1.1),
    "waits": _waits,
    "constant": lambda dice: 1.0,
    "on bounds": lambda dice: dice.choice(_ALL_BOUNDS),
}


class Window(NamedTuple):
    """The latencies of a window in ascending order, and what the sum's counter gained in it."""

    ordered: list[float]
    total: float
    slack: float


def latencies(
    distribution: str, number: int, dice: Random, levels: Sequence[float] = _LEVELS
) -> Iterator[float]:
    """Yield latencies in order of arrival; from time to time their level changes."""
    draw = DISTRIBUTIONS[distribution]
    while number > 0:
        run = min(number, int(10 ** dice.uniform(1, 4)))
        level = 1.0 if distribution == "on bounds" else dice.choice(levels)
        for _ in range(run):
            yield level * draw(dice)
        number -= run


def windows(
    distribution: str, number: int = REQUESTS, levels: Sequence[float] = _LEVELS
) -> Iterator[Window]:
    """Yield windows of random length that hold each request once."""
    dice = Random(distribution)
    arrived = list(latencies(distribution, number, dice, levels))
    counter = list(accumulate(arrived, initial=0.0))
    start = 0
    while start < number:
        end = min(number, start + int(10 ** dice.uniform(1.0, 4.5)))
        slack = rounding(counter[end], end - start)
        yield Window(sorted(arrived[start:end]), counter[end] - counter[start], slack)
        start = end


def seen(window: Window, bounds: tuple[float, ...]) -> Increase:
    """Return a window as an engine with these bounds shows it."""
    upto = [bisect_right(window.ordered, bound) for bound in bounds]
    marks = (0, *upto, len(window.ordered))
    counts = tuple(float(after - before) for before, after in pairwise(marks))
    return Increase(bounds, counts, window.total, window.slack)


def quantile(ordered: list[float], q: float) -> float:
    """Return the true quantile: the smallest value that a share q of all is within."""
    return ordered[math.ceil(Fraction(str(q)) * len(ordered)) - 1]


def interpolated(increase: Increase, q: float) -> float:
    """Return what Prometheus' histogram_quantile says: beyond the last bound, that bound."""
    bounds, counts = increase.bounds, increase.counts
    wanted = q * increase.n
    before = 0.0
    for at, bound in enumerate(bounds):
        if before + counts[at] >= wanted and counts[at]:
            low = bounds[at - 1] if at else 0.0
            return low + (bound - low) * (wanted - before) / counts[at]
        before += counts[at]
    return bounds[-1]


class Case(NamedTuple):
    """What is said of one quantile in one window: truth, its bucket, our interval, Prometheus."""

    true: float
    bucket: float
    estimate: Estimate
    plain: float

    @property
    def width(self) -> float:
        return self.estimate.upper - self.estimate.lower

    @property
    def refuted(self) -> bool:
        """Whether what Prometheus says cannot be."""
        return not self.estimate.lower <= self.plain <= self.estimate.upper


@cache
def _steady(distribution: str, level: float) -> list[Window]:
    return list(windows(distribution, REQUESTS // 10, (level,)))


def cases(layout: str, q: float, level: float) -> Iterator[Case]:
    """Yield the windows that are large enough, over all distributions that people meet."""
    bounds = LAYOUTS[layout]
    for name in ("lognormal", "gamma", "bimodal", "heavy tail", "waits"):
        for window in _steady(name, level):
            increase = seen(window, bounds)
            found = estimate(increase, q)
            if found is not None:
                true = quantile(window.ordered, q)
                at = bisect_left(bounds, true)
                low = bounds[at - 1] if at else 0.0
                high = bounds[at] if at < len(bounds) else math.inf
                yield Case(true, high - low, found, interpolated(increase, q))


def main() -> None:
    """Print the tables of docs/serving.md; times in seconds."""
    head = "P{0} bucket | P{0} interval | P{0} refuted"
    print(f"| buckets | {head.format(50)} | {head.format(99)} |\n|---|{'---:|' * 6}")
    for layout in LAYOUTS:
        cells = []
        for q in (0.5, 0.99):
            found = list(cases(layout, q, USUAL[layout.split()[-1]]))
            cells += [
                f"{statistics.median(case.bucket for case in found):.3g}",
                f"{statistics.median(case.width for case in found):.3g}",
                f"{statistics.mean(case.refuted for case in found):.0%}",
            ]
        print(f"| {layout} | {' | '.join(cells)} |")
    print(f"\n| buckets | beyond | true | Prometheus | lower | upper |\n|---|{'---:|' * 5}")
    for layout in filter(lambda name: name.endswith("TTFT"), LAYOUTS):
        found = list(cases(layout, 0.99, OVERLOAD * USUAL["TTFT"]))
        beyond = [case for case in found if case.bucket == math.inf]
        if beyond:
            columns = (
                [case.true for case in beyond],
                [case.plain for case in beyond],
                [case.estimate.lower for case in beyond],
                [case.estimate.upper for case in beyond],
            )
            cells = [f"{statistics.median(column):,.0f}" for column in columns]
            print(f"| {layout} | {len(beyond) / len(found):.0%} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
