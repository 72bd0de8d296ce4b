"""What GPUs are still worth: a share of their price, by age and by how many generations came after.

The curve that comes with the module is the one of the seed chapter (16.6.4). It gives five points;
what lies between them, and between generations, is said here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

FLOOR = 0.05
"""Share that is left of a product older than the curve."""


class Point(NamedTuple):
    """A share of the price that is left after so many years, for one generation."""

    years: float
    generation: str
    rate: float


class Curve:
    """Shares of the price by age in years. Raises `ValueError` for a curve without points.

    A new product is worth its price, whether the curve says so or not.
    """

    def __init__(self, points: Iterable[Point], floor: float = FLOOR) -> None:
        self.points = tuple(sorted(points))
        if not self.points:
            raise ValueError("a curve needs a point")
        self.floor = floor

    @property
    def generations(self) -> tuple[str, ...]:
        """The generations that it knows, youngest first."""
        return tuple(dict.fromkeys(point.generation for point in self.points))

    def generation_at(self, years: float) -> str:
        """Return the generation that a product usually belongs to at an age."""
        known = [point.generation for point in self.points if point.years >= years]
        return known[0] if known else self.points[-1].generation

    def rate(self, years: float, generation: str | None = None) -> float:
        """Return the share of the price that is left.

        Without a generation: along the points, straight in between, `floor` beyond the last, or
        what the last one leaves if that is less. With one: along its own points and level outside
        them, so that a product that was outdated early falls to what outdated ones fetch. Raises
        `ValueError` for an unknown generation.
        """
        if years > self.points[-1].years:
            return min(self.floor, self.points[-1].rate)
        if generation is None:
            return _between([Point(0.0, "", 1.0), *self.points], years)
        own = [point for point in self.points if point.generation == generation]
        if not own:
            known = ", ".join(self.generations)
            raise ValueError(f"{generation!r} is not a generation of the curve: {known}")
        return _between(own, years)


def _between(points: list[Point], years: float) -> float:
    """Return what lies on the line through points, level before the first and after the last."""
    before = [point for point in points if point.years <= years]
    after = [point for point in points if point.years > years]
    if not before or not after:
        return (before[-1] if before else after[0]).rate
    left, right = before[-1], after[0]
    part = (years - left.years) / (right.years - left.years)
    return left.rate + part * (right.rate - left.rate)


CHAPTER = Curve((
    Point(1, "current", 0.80),
    Point(2, "previous", 0.50),
    Point(3, "two_generations", 0.30),
    Point(4, "two_generations", 0.20),
    Point(5, "obsolete", 0.10),
))  # fmt: skip
"""The seed chapter's curve (16.6.4)."""


class Depreciation(NamedTuple):
    """Which categories of a plan lose value so, and which shares an operator states by year.

    `generations` says what the product is at an age, where that differs from the curve's own.
    """

    of: tuple[str, ...]
    curve: Curve = CHAPTER
    generations: Mapping[float, str] = {}
    stated: Mapping[float, float] = {}

    def rate(self, years: float) -> float:
        """Return the share of the price that is left after so many years."""
        if years in self.stated:
            return self.stated[years]
        return self.curve.rate(years, self._stated_generation(years))

    def generation(self, years: float) -> str:
        """Return what the product is after so many years."""
        return self._stated_generation(years) or self.curve.generation_at(years)

    def _stated_generation(self, years: float) -> str | None:
        past = [age for age in self.generations if age <= years]
        return self.generations[max(past)] if past else None


def residual_value(price: float, years: float, generation: str | None = None) -> float:
    """Return what a product of such a price is worth after so many years, by the chapter's curve.

    Raises `ValueError` for a generation that the curve does not know.
    """
    return price * CHAPTER.rate(years, generation)
