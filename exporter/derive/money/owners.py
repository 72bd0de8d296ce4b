"""Who has a GPU, and which part of its time and dollars is whose."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from exporter import catalogue as c
from exporter.samples import Histogram, Metric, View

INPUTS: tuple[Metric, ...] = (c.GPU_ALLOCATION_INFO, c.GPU_ALLOCATION_SHARE_RATIO)


class Owner(NamedTuple):
    """A pod that has a GPU, or a part of it (`share`); None where that part is not known."""

    namespace: str
    pod: str
    share: float | None = None


Owners = tuple[Owner, ...]
"""Who has a GPU; nobody where it is empty."""


def owners_of(view: View) -> dict[str, Owners] | None:
    """Return who has each GPU, by UUID; None if nobody tells of any.

    Containers of one pod are added up; the part of one of them unknown is that of the pod unknown.
    """
    told: dict[tuple[str, ...], float] = {}
    for sample in view.samples(c.GPU_ALLOCATION_SHARE_RATIO):
        if not isinstance(sample.value, Histogram):
            told[sample.labels] = sample.value
    found: dict[str, dict[tuple[str, str], float | None]] = {}
    for labels in dict.fromkeys(one.labels for one in view.samples(c.GPU_ALLOCATION_INFO)):
        _, uuid, namespace, pod, _ = labels
        owners = found.setdefault(uuid, {})
        if not (namespace or pod):
            continue
        share, before = told.get(labels), owners.get((namespace, pod), 0.0)
        known = share is not None and before is not None and 0 < share < math.inf
        owners[namespace, pod] = before + share if known else None  # type: ignore[operator]
    if not found:
        return None
    return {
        uuid: tuple(Owner(*pod, share) for pod, share in sorted(owners.items()))
        for uuid, owners in found.items()
    }


def shares_of(owners: Owners) -> tuple[float, ...]:
    """Return the part that each is to pay.

    What they have if that is known of all, and even parts otherwise. More than all of it is not
    given away: then it goes by what they have in proportion.
    """
    known = [one.share for one in owners if one.share is not None]
    if len(known) < len(owners):
        return (1 / len(owners),) * len(owners)
    return tuple(share / max(1.0, math.fsum(known)) for share in known)


def parts(whole: int, shares: tuple[float, ...]) -> Iterator[int]:
    """Yield a whole number in parts; those of shares that are 1 together add up to it."""
    before = 0
    for at in range(1, len(shares) + 1):
        cut = min(whole, round(whole * math.fsum(shares[:at])))
        yield cut - before
        before = cut
