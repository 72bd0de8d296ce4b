"""Where the FLOPs go: from the peak down to MFU, each loss with its cause.

All losses are shares of the peak over the steps of a window, so they add up: in time that a GPU
spends on something else than computing it loses its whole peak, and while it computes it loses
what it computes below its peak. Taken off in this order:

1.  Time in which nothing is computed, as shares of step time: data, checkpoint, evaluation, bubble,
    communication that nothing hides, and what the host does beside (framework).
2.  Of the time to compute that is left: the GPU has nothing to do (framework where it is known that
    the job did not wait for data, else idle), and kernels that are bound by memory.
3.  Of the time left for products: a clock below that of the peak takes its share of all of it, and
    what kernels do below the peak of that clock is `kernels`.
4.  What was computed twice: recomputation. What is left then is MFU.

For each cause the best evidence wins: what the job measured in phases, then a profile, then
counters of the GPU, then an estimate. What is lost within computing and cannot be told apart, as on
a machine without counters, is `kernels` altogether.

`unexplained` is what is missing to 1. It is told with its sign: below 0 the causes overlap, or the
work is counted for more than it is, and nobody should look for that in a cause. So causes are never
scaled to fit, and a share is only limited by what physics says of it: none is below 0, and a clock
above that of the peak is no loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

from exporter.derive.training.boards import Activity
from exporter.training.records import Profile

Evidence = Literal["measured", "profiled", "counters", "estimated", "remainder"]

COMPUTING = ("forward", "backward", "optimizer")
"""The phases of a step in which a job computes."""

WAITING = ("data", "checkpoint", "evaluation", "bubble", "communication")
"""The phases that are causes of their own; what is `other` counts for the framework."""

QUIET = frozenset({"data", "checkpoint", "bubble", "framework"})
"""Causes during which a GPU has no kernel to run, when they are told as time beside computing."""


class Loss(NamedTuple):
    """A share of the peak, the cause that it is lost to, and how that is known."""

    cause: str
    evidence: Evidence
    share: float


class Observed(NamedTuple):
    """What is known of the steps of a window.

    `mfu` and `hfu` are at the peak of the run's precision; `phases` are shares of step time as the
    job measured them. `bubble` is an estimate of the pipeline's bubble. `alone` is a run of one
    rank, which waits for nobody.
    """

    mfu: float
    hfu: float | None = None
    phases: dict[str, float] = {}  # noqa: RUF012 - nobody changes it
    bubble: float | None = None
    activity: Activity = Activity()
    profile: Profile | None = None
    alone: bool = False


class _Room(NamedTuple):
    """Time to compute, as a share of step time, and what it was found to consist of."""

    products: float
    losses: tuple[Loss, ...]
    evidence: Evidence | None
    """How the time for products is known; None: it holds what else may have taken its place."""


def waterfall(seen: Observed) -> list[Loss]:
    """Return the losses; with `seen.mfu` they add up to 1."""
    losses = list(_waiting(seen))
    room = _room(seen, losses)
    losses += room.losses
    losses += _within(seen, room)
    if seen.hfu is not None:
        losses.append(Loss("recomputation", "estimated", max(0.0, seen.hfu - seen.mfu)))
    explained = math.fsum([seen.mfu, *(loss.share for loss in losses)])
    losses.append(Loss("unexplained", "remainder", 1.0 - explained))
    return losses


def _waiting(seen: Observed) -> Iterator[Loss]:
    """Yield the losses of time in which nothing is computed."""
    for phase in WAITING:
        if phase in seen.phases:
            yield Loss(phase, "measured", seen.phases[phase])
    if "other" in seen.phases:
        yield Loss("framework", "measured", seen.phases["other"])
    profile = seen.profile
    if "communication" not in seen.phases and profile is not None and not seen.alone:
        share = profile.exposed_communication / profile.seconds
        yield Loss("communication", "profiled", share)
    if "bubble" not in seen.phases and seen.bubble:
        yield Loss("bubble", "estimated", seen.bubble)


def _room(seen: Observed, waiting: list[Loss]) -> _Room:
    """Return the time for products, and what is lost between computing and products."""
    taken = math.fsum(loss.share for loss in waiting)
    computing = [seen.phases[phase] for phase in COMPUTING if phase in seen.phases]
    told = math.fsum(computing)
    if computing:
        # An estimated bubble lies in time that no phase holds, as far as there is such time.
        estimated = sum(loss.share for loss in waiting if loss.evidence == "estimated")
        free = max(0.0, 1.0 - told - (taken - estimated))
        room = min(1.0, max(0.0, told - max(0.0, estimated - free)))
    else:
        room = max(0.0, 1.0 - taken)
    quiet = sum(loss.share for loss in waiting if loss.cause in QUIET)
    if seen.profile is not None and (found := _profiled(room, quiet, seen.profile)) is not None:
        return found
    complete = bool(computing) or seen.alone or "communication" in seen.phases
    knows_data = "data" in seen.phases or bool(computing)
    needed = min(room, _work(seen) / _clock(seen)) if _clock(seen) else room
    found = _counted(room, quiet, needed, seen.activity, knows_data=knows_data)
    if found is not None:
        return found if complete else found._replace(evidence=None)
    return _Room(room, (), "measured" if computing else None)


def _profiled(room: float, quiet: float, profile: Profile) -> _Room | None:
    """Split time as a profile saw it; `quiet` is the time in which the GPU is known to idle."""
    idle = max(0.0, profile.idle / profile.seconds - quiet) * profile.seconds
    bound = profile.memory_bound + profile.copies
    total = profile.matmul + bound + idle
    if profile.matmul + bound <= 0:
        return None
    return _Room(
        room * profile.matmul / total,
        (
            Loss("framework", "profiled", room * idle / total),
            Loss("memory", "profiled", room * bound / total),
        ),
        "profiled",
    )


def _counted(
    room: float, quiet: float, needed: float, did: Activity, *, knows_data: bool
) -> _Room | None:
    """Split time by the GPU's counters: what had no kernel, what had no use for tensor cores.

    Kernels that communicate have SMs too, also outside of the time to compute: so what the work
    itself needs at the least is not given to memory, however many SMs were active.
    """
    if did.busy is None or did.sms is None or did.tensor is None:
        return None
    idle = min(room, max(0.0, 1.0 - did.busy - quiet))
    bound = max(0.0, min(room - idle - needed, did.sms - did.tensor))
    return _Room(
        room - idle - bound,
        (
            Loss("framework" if knows_data else "idle", "counters", idle),
            Loss("memory", "counters", bound),
        ),
        "counters",
    )


def _within(seen: Observed, room: _Room) -> Iterator[Loss]:
    """Yield what is lost within the time for products: to a low clock, and to the kernels."""
    work, clock = _work(seen), _clock(seen)
    if room.evidence is None:
        # Of the time that the work itself takes at that clock, at the least; there is only so much.
        if seen.activity.clock is not None and clock > 0:
            spent = min(work / clock, room.products)
            yield Loss("clock", "estimated", spent * (1 - clock))
        return
    if seen.activity.clock is not None:
        yield Loss("clock", "counters", room.products * (1 - clock))
    yield Loss("kernels", room.evidence, max(0.0, room.products * clock - work))


def _work(seen: Observed) -> float:
    """Return what was computed, recomputed work included, as a share of the peak."""
    return seen.mfu if seen.hfu is None else max(seen.mfu, seen.hfu)


def _clock(seen: Observed) -> float:
    """Return the clock over that of the peak; 1 where it is higher, or not known."""
    return 1.0 if seen.activity.clock is None else min(1.0, seen.activity.clock)
