"""What is needed of a page that was read; reading pages is left to others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class SeriesLike(Protocol):
    """A series of a page: the sample's name and its labels."""

    @property
    def name(self) -> str:
        """The sample's name, suffix included."""

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """Pairs of name and value."""


class ShapeLike(Protocol):
    """The series of a page without values; one object as long as they stay the same."""

    @property
    def series(self) -> Sequence[SeriesLike]:
        """All series, in the order of the values."""

    @property
    def types(self) -> Mapping[str, str]:
        """The declared type by family name."""

    @property
    def index(self) -> Mapping[str, tuple[int, ...]]:
        """The positions of the series by sample name."""


class PageLike(Protocol):
    """A page that was read: a shape and one value for each of its series."""

    @property
    def shape(self) -> ShapeLike:
        """Which series there are."""

    @property
    def values(self) -> Sequence[float]:
        """Their values."""

    @property
    def damaged(self) -> bool:
        """Whether the page lost lines on its way, so that absence says nothing."""


def only_declared(shape: ShapeLike, family: str) -> bool:
    """Tell whether a page declares a family without having a series of it yet."""
    tails = ("", "_bucket", "_sum", "_count")
    return family in shape.types and not any(family + tail in shape.index for tail in tails)
