"""How panels look: colours, thresholds, texts for values."""

from __future__ import annotations

from collections.abc import Mapping

from grafana_foundation_sdk.builders import common as looks
from grafana_foundation_sdk.builders import dashboard as boards
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as models

# Six of Okabe and Ito's colours, and eight that lie as far as can be from them and each other for
# any kind of colour vision, and are seen on white and on black (tests/dashboards/test_colors.py).
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, VERMILION, GREY, VIOLET = "#56B4E9", "#D55E00", "#666666", "#AA44FF"
LIME, BROWN, ROSE, INDIGO = "#AACC77", "#774422", "#EEBBBB", "#5522BB"
LAVENDER, OLIVE = "#9988FF", "#889955"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, LIME, VIOLET, BROWN, ROSE)
COLORS = (*PALETTE, GREY, INDIGO, LAVENDER, OLIVE)
FINE, WARNING, BAD = BLUE, ORANGE, VERMILION


def steps_of(steps: Mapping[float, str] | None, base: str) -> boards.ThresholdsConfig:
    """Return thresholds: `base`, and from each value on another colour."""
    rows = [models.Threshold(value=None, color=base)]
    rows += [models.Threshold(value=value, color=color) for value, color in (steps or {}).items()]
    return boards.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(rows)


def mappings_of(states: Mapping[str, tuple[str, str]]) -> list[models.ValueMapping]:
    """Return how values are written: each gets a text and a colour, so none is told by colour."""
    options = {
        value: models.ValueMappingResult(text=text, color=color, index=index)
        for index, (value, (text, color)) in enumerate(states.items())
    }
    return [models.ValueMap(options=options)]


def coloured(mode: models.FieldColorModeId, fixed: str = "") -> boards.FieldColor:
    """Return how series are coloured."""
    color = boards.FieldColor().mode(mode)
    return color.fixed_color(fixed) if fixed else color


def latest() -> looks.ReduceDataOptions:
    """Return how a course becomes one number: by its latest value."""
    return looks.ReduceDataOptions().calcs(["lastNotNull"]).values(values=False)


def painted(color: str, mode: str = "fixed") -> models.DynamicConfigValue:
    """Return what gives series a colour of their own."""
    return models.DynamicConfigValue("color", {"mode": mode, "fixedColor": color})


def sized(panel: Builder[models.Panel], width: int, height: int) -> models.Panel:
    """Return the panel with its size and no place."""
    built = panel.build()
    built.grid_pos = models.GridPos(w=width, h=height)
    return built
