"""Whether an optimization holds: speed, loss and memory of two intervals of training.

The specification's `verify_optimization`: the speed-up is above 1, the losses differ by less than
0.01, peak memory has grown by less than 20 %. A step takes a little longer or shorter each time, so
a speed-up has a noise; one that lies within it is told as such.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Noise = Literal["slices", "buckets"]

CONFIDENCE = 1.96
"""Standard errors on either side that hold 19 of 20 times."""

LEAST_SLICES = 5
"""Stretches of an interval from which its noise is taken; with fewer the histogram gives it."""

ALIKE = 0.01
"""Relative difference from which on tokens for each step, or step numbers, are not the same."""


class Slice(NamedTuple):
    """Steps between two pages: how many, and how long they took together."""

    steps: float
    seconds: float


class Times(NamedTuple):
    """Steps of an interval: how many, mean seconds, the mean's standard error, whence that is."""

    steps: float
    mean: float
    error: float
    noise: Noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """What was captured of a run. `loss` is the mean of `losses` readings, at step `step`.

    `tokens` are those of a step. `peak` is in bytes, of the family `peak_of`.
    """

    name: str
    run: str
    times: Times
    step: float | None = None
    tokens: float | None = None
    loss: float | None = None
    losses: int = 0
    loss_error: float | None = None
    peak: float | None = None
    peak_of: str = ""


class Check(NamedTuple):
    """One of the three questions: whether it is passed, by which figure, and in words."""

    name: Literal["speed", "loss", "memory"]
    passed: bool
    figure: float
    limit: float
    said: str


class Comparison(NamedTuple):
    """The answers, and what an honest reader should know beside them."""

    checks: tuple[Check, ...]
    noise: float
    beyond_noise: bool
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether all checks are."""
        return all(check.passed for check in self.checks)


def times_of(slices: Sequence[Slice], bounds: Sequence[float], counts: Sequence[float]) -> Times:
    """Return the times of an interval.

    `counts` are the observations at or below each bound, then all. Raises `ValueError` if there is
    no step.
    """
    steps = sum(one.steps for one in slices)
    if steps <= 0:
        raise ValueError("no step")
    mean = sum(one.seconds for one in slices) / steps
    told = [one for one in slices if one.steps > 0]
    if len(told) >= LEAST_SLICES:
        spread = sum(one.steps * (one.seconds / one.steps - mean) ** 2 for one in told)
        variance, noise = spread / (len(told) - 1), "slices"
    else:
        variance, noise = _variance(mean, bounds, counts), "buckets"
    return Times(steps, mean, math.sqrt(variance / steps), noise)  # type: ignore[arg-type]


def _variance(mean: float, bounds: Sequence[float], counts: Sequence[float]) -> float:
    """Return what buckets say of the variance: each as if spread evenly over its width.

    That is more than there is where buckets are wide, and so errs to the careful side.
    """
    total, before, low = 0.0, 0.0, 0.0
    for high, count in zip((*bounds, max(2 * bounds[-1], 2 * mean)), counts, strict=True):
        total += (count - before) * (((low + high) / 2 - mean) ** 2 + (high - low) ** 2 / 12)
        before, low = count, high
    return total / before if before else 0.0


def compare(
    before: Interval, after: Interval, *, tolerance: float = 0.01, growth: float = 0.20
) -> Comparison:
    """Return whether what was done between two intervals holds.

    What is not known of both is not checked: whoever calls decides whether that may be.
    """
    speed, notes = _speed(before, after)
    noise = CONFIDENCE * math.hypot(
        before.times.error / before.times.mean, after.times.error / after.times.mean
    )
    beyond = abs(speed.figure - 1) > noise * speed.figure
    checks = [speed]
    if not beyond:
        notes.append(
            f"the difference in speed lies within the noise (±{noise:.1%}): capture for longer"
        )
    if before.loss is not None and after.loss is not None:
        checks.append(_loss(before.loss, after.loss, tolerance))
        notes += _about_losses(before, after, tolerance)
    if before.peak and after.peak is not None and before.peak_of == after.peak_of:
        checks.append(_memory(before.peak, after.peak, growth))
    return Comparison(tuple(checks), noise, beyond, tuple(notes))


def _speed(before: Interval, after: Interval) -> tuple[Check, list[str]]:
    old, new = before.times.mean, after.times.mean
    said, notes = f"{_seconds(old)} -> {_seconds(new)} a step", []
    if before.tokens and after.tokens and abs(after.tokens / before.tokens - 1) > ALIKE:
        notes.append(
            f"a step had {before.tokens:,.0f} tokens and has {after.tokens:,.0f}: speed is by"
            " tokens, not by steps"
        )
        old, new = old / before.tokens, new / after.tokens
        said = f"{1 / old:,.0f} -> {1 / new:,.0f} tokens/s"
    speedup = old / new
    return Check("speed", speedup > 1, speedup, 1.0, f"{speedup:.3f} times as fast ({said})"), notes


def _loss(old: float, new: float, tolerance: float) -> Check:
    difference = abs(new - old)
    good = difference < tolerance  # not where either is not a number
    said = f"{old:.4f} -> {new:.4f}, differs by {difference:.4f} (below {tolerance:g} is wanted)"
    return Check("loss", good, difference, tolerance, said)


def _memory(old: float, new: float, growth: float) -> Check:
    grown = new / old - 1
    said = f"{_bytes(old)} -> {_bytes(new)}, {grown:+.1%} (below {growth:+.0%} is wanted)"
    return Check("memory", grown < growth, grown, growth, said)


def _about_losses(before: Interval, after: Interval, tolerance: float) -> list[str]:
    notes = []
    if before.step is not None and after.step is not None:
        far = max(before.step, after.step, 1.0)
        if abs(after.step - before.step) / far > ALIKE:
            notes.append(
                f"the losses are of steps {before.step:,.0f} and {after.step:,.0f}: training itself"
                " changes them"
            )
    if before.loss_error is not None and after.loss_error is not None:
        noise = CONFIDENCE * math.hypot(before.loss_error, after.loss_error)
        if noise > tolerance:
            notes.append(
                f"the losses fluctuate by ±{noise:.4f} within the intervals: too much for a"
                f" tolerance of {tolerance:g}"
            )
    return notes


def _seconds(value: float) -> str:
    return f"{value:.3f} s" if value >= 1 else f"{1000 * value:.1f} ms"


def _bytes(value: float) -> str:
    return f"{value / 2**30:.2f} GiB"
