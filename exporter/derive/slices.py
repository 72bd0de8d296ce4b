"""Into how many parts the SMs of a GPU are split, and how many of them an instance has (MIG)."""

from __future__ import annotations

import re

from exporter import catalogue as c
from exporter.samples import View

_PROFILE = re.compile(r"(?:(\d+)c\.)?(\d+)g\.")

_WHOLES = {
    4: re.compile(r"A30\b|RTX PRO 6000", re.IGNORECASE),
    7: re.compile(r"\b(?:[AH]100|[AH]800|H200|H20|B[23]00|G[HB]\d00)\b", re.IGNORECASE),
}
"""Parts that the SMs of a product are split into, by its name. Of others nobody knows."""


def wholes(view: View) -> dict[str, int]:
    """Return the number of parts of each GPU whose product is known, by UUID."""
    at = c.GPU_INFO.labels.index("name")
    return {
        sample.labels[1]: number
        for sample in view.samples(c.GPU_INFO)
        for number, pattern in _WHOLES.items()
        if pattern.search(sample.labels[at])
    }


def of_instance(profile: str) -> int:
    """Return how many parts a GPU instance has by a profile such as `3g.40gb`; 0 if untold."""
    match = _PROFILE.match(profile)
    return 0 if match is None else int(match[2])


def of_device(profile: str) -> int:
    """Return how many parts a MIG device has, of which an instance may hold several; 0 if untold.

    `1c.3g.40gb` is one part of an instance that has three.
    """
    match = _PROFILE.match(profile)
    return 0 if match is None else int(match[1] or match[2])
