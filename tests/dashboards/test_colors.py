"""The colours of the boards can be told apart with any kind of colour vision, on light and dark."""

from __future__ import annotations

import itertools
import math

import pytest

from dashboards.style import COLORS

# What is left of linear red, green and blue without one kind of cones: Machado, Oliveira and
# Fernandes 2009, severity 1.
VISION = {
    "all": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "no red": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "no green": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "no blue": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
# Backgrounds of panels in Grafana's themes.
LIGHT, DARK = "#FFFFFF", "#181B1F"


def linear(color: str) -> list[float]:
    """Return red, green and blue of a colour, 0 to 1, in proportion to light."""
    parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def lab(light: list[float]) -> tuple[float, float, float]:
    """Return a colour in CIE L*a*b*, in which distances are about what the eye sees (D65)."""
    r, g, b = (min(1.0, max(0.0, part)) for part in light)
    white = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in white)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def seen(color: str, vision: str) -> tuple[float, float, float]:
    """Return what somebody sees of a colour."""
    light = linear(color)
    mixed = [sum(a * b for a, b in zip(row, light, strict=True)) for row in VISION[vision]]
    return lab(mixed)


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours as WCAG counts it, 1 to 21."""
    weights = (0.2126, 0.7152, 0.0722)
    bright, dim = sorted(
        (sum(a * b for a, b in zip(weights, linear(c), strict=True)) for c in (one, other)),
        reverse=True,
    )
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("vision", VISION)
def test_any_two_colours_differ(vision: str) -> None:
    """A distance of 2 is just visible side by side; these are in different corners of a panel."""
    for one, other in itertools.combinations(COLORS, 2):
        assert math.dist(seen(one, vision), seen(other, vision)) > 15, (one, other)


@pytest.mark.parametrize("background", [LIGHT, DARK])
def test_colours_are_seen_on_both_backgrounds(background: str) -> None:
    """None vanishes in the light theme or in the dark one."""
    for color in COLORS:
        assert contrast(color, background) > 1.6, color


def test_colours_that_are_too_near_would_be_found() -> None:
    """The check itself: who has no red cones takes this orange and this green for the same."""
    assert math.dist(seen("#E69F00", "all"), seen("#B5A900", "all")) > 15
    assert math.dist(seen("#E69F00", "no red"), seen("#B5A900", "no red")) < 2
