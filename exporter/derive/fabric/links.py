"""Whether a PCIe link is what card and slot can do.

Lanes that are missing are a fault at any time (dirt, a bad riser, a card that is not seated). The
speed of a GPU's link falls while it has nothing to do, so it says something of a busy GPU only. A
fast card in a slow slot is how the machine was built and no fault: the slot's own maximum counts.
Both ends of a link are at the same width and speed. Where they say otherwise (bridges that exist
only inside of a chip) it is no link, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class End(NamedTuple):
    """What one end of links says: lanes and transfers a second, now and at most; None if it does
    not say.
    """

    lanes: int | None = None
    most_lanes: int | None = None
    speed: float | None = None
    most_speed: float | None = None


def narrow(chain: Sequence[End]) -> bool | None:
    """Tell whether a link between a device and the CPU has fewer lanes than both its ends can do.

    `chain` is the device first, then each bridge above it. None if no link has fewer, and the
    device's own does not tell.
    """
    told = [_lacks(lower, upper) for lower, upper in zip(chain, (*chain[1:], End()), strict=True)]
    return True if True in told else next(iter(told), None)


def _lacks(lower: End, upper: End) -> bool | None:
    if lower.lanes is None or upper.lanes not in (None, lower.lanes):
        return None
    most = _least(lower.most_lanes, upper.most_lanes)
    return None if most is None else lower.lanes < most


def slow(chain: Sequence[End]) -> bool | None:
    """Tell whether the device's own link is slower than both its ends can do; None if untold."""
    if not chain or chain[0].speed is None:
        return None
    above = chain[1] if len(chain) > 1 else End()
    if above.speed not in (None, chain[0].speed):
        return None
    most = _least(chain[0].most_speed, above.most_speed)
    return None if most is None else chain[0].speed < most


def _least(own: float | None, its: float | None) -> float | None:
    """Return the smaller of two maxima, of which the device's own must be known."""
    if own is None or its is None:
        return own
    return min(own, its)
