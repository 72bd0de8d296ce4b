"""Which rank of this node holds the others up.

In a synchronous step all ranks take the same time: whoever is slow at its own work keeps the others
waiting in the collectives, and waits least itself. So ranks are compared by their own work, which
is the step less waiting (communication that nothing hides, and the pipeline's bubble), over the
same steps. A rank that has told of few of these, or of none, is left out: the others are compared
without it. Below four ranks there is no median that one of them does not make itself.

    train_rank_step_seconds{run="llama-7b",rank="3"} 2.41
    train_rank_wait_ratio{run="llama-7b",rank="3"} 0.04
    train_straggler_score{run="llama-7b",rank="3"} 0.31
    train_step_skew_ratio{run="llama-7b"} 0.31
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import NamedTuple

from exporter import catalogue as c
from exporter.derive.training.run import Run
from exporter.samples import Metric, Sample, View
from exporter.training import READERS, Step, Track, TrackedRun

OUTPUTS: tuple[Metric, ...] = (
    c.TRAIN_RANK_STEP_SECONDS, c.TRAIN_RANK_WAIT_RATIO, c.TRAIN_STRAGGLER_SCORE,
    c.TRAIN_STEP_SKEW_RATIO,
)  # fmt: skip
"""What comes of it."""

LEAST_RANKS = 4
STEPS = 10
"""Steps that ranks are compared over: the last ones that any of them has told of."""

RECENT = 60.0
"""Seconds that count where more than `STEPS` steps lie in them."""

LONGEST = 1800.0
"""Seconds after which a step says nothing of a rank any more."""

LATE, LATE_STEPS = 30.0, 3
"""A rank is there if it told its last step not more than so many seconds, or so many of its steps,
after the others."""

WAITING = ("communication", "bubble")
"""Phases in which a rank waits for others."""


class Pace(NamedTuple):
    """Mean of a rank's steps, in seconds: all of it, waiting in collectives, and own work.

    `None` is what the rank does not tell.
    """

    seconds: float
    waiting: float | None
    own: float | None


def of_run(run: Run, _view: View, now: float) -> Iterator[Sample]:
    """Yield how ranks of this node get on, while the run does: the part of training."""
    return stragglers(run.tracked, now) if run.goes_on else iter(())


def stragglers(run: TrackedRun, now: float) -> Iterator[Sample]:
    """Yield how ranks of this node get on, as of `now` in monotonic seconds."""
    paces = paces_of(run, now)
    for rank, pace in sorted(paces.items()):
        yield c.TRAIN_RANK_STEP_SECONDS(pace.seconds, run.name, str(rank))
        if pace.waiting is not None and pace.seconds > 0:
            share = min(1.0, pace.waiting / pace.seconds)
            yield c.TRAIN_RANK_WAIT_RATIO(share, run.name, str(rank))
    scores = scores_of(paces)
    for rank, score in sorted(scores.items()):
        yield c.TRAIN_STRAGGLER_SCORE(score, run.name, str(rank))
    if scores:
        yield c.TRAIN_STEP_SKEW_RATIO(max(0.0, *scores.values()), run.name)


def scores_of(paces: Mapping[int, Pace]) -> dict[int, float]:
    """Return how much slower each rank is than the median of them; nothing of too few ranks."""
    own = {rank: pace.own for rank, pace in paces.items() if pace.own is not None}
    if len(own) < LEAST_RANKS:
        return {}
    middle = median(own.values())
    return {rank: work / middle - 1 for rank, work in own.items()} if middle > 0 else {}


def paces_of(run: TrackedRun, now: float) -> dict[int, Pace]:
    """Return the pace of each rank, by the first reader that tells of ranks one by one."""
    for reader in READERS:
        tracks = {
            rank: track
            for (who, rank), track in run.tracks.items()
            if who == reader and rank is not None
        }
        told = {rank: steps for rank, track in tracks.items() if (steps := _recent(track, now))}
        if told:
            return _compared(_present(told, tracks))
    return {}


def _recent(track: Track, now: float) -> list[Step]:
    """Return the timed steps of the last minute, or the last ten, of the present attempt."""
    found: list[Step] = []
    for taken, step in reversed(track.recent):
        old = now - taken > RECENT and _number(found) >= STEPS
        if old or now - taken > LONGEST or step.attempt != track.attempt:
            break
        if step.seconds is not None:
            found.append(step)
    return found


def _present(
    told: Mapping[int, list[Step]], tracks: Mapping[int, Track]
) -> Mapping[int, list[Step]]:
    """Return the ranks that tell of as much as the others do, and still do.

    One that hangs or was lost tells no more; one that has only begun knows of a step or two.
    """
    last = {rank: tracks[rank].recent[-1] for rank in told}
    newest = max(one.taken for one in last.values())
    longest = max(map(_number, told.values()))
    return {
        rank: steps
        for rank, steps in told.items()
        if 2 * _number(steps) >= longest
        and newest - last[rank].taken
        <= max(LATE, LATE_STEPS * (steps[0].seconds or 0.0) * steps[0].steps)
    }


def _compared(present: Mapping[int, list[Step]]) -> dict[int, Pace]:
    """Return paces over the steps that all of these ranks know."""
    first = max((steps[-1].step - steps[-1].steps + 1 for steps in present.values()), default=0)
    end = min((steps[0].step for steps in present.values()), default=0)
    common = {
        rank: [one for one in steps if first <= one.step - one.steps + 1 and one.step <= end]
        for rank, steps in present.items()
    }
    if not all(common.values()):  # means of stretches that do not match
        common = dict(present)
    return {rank: _mean(steps) for rank, steps in common.items()}


def _number(steps: list[Step]) -> int:
    return sum(step.steps for step in steps)


def _mean(steps: list[Step]) -> Pace:
    number = _number(steps)
    seconds = sum(step.steps * (step.seconds or 0.0) for step in steps) / number
    return Pace(seconds, _share(steps, WAITING[:1], number), _own(steps, seconds, number))


def _share(steps: list[Step], phases: tuple[str, ...], number: int) -> float | None:
    """Return mean seconds of some phases; None unless each step tells of communication."""
    if any("communication" not in step.phases for step in steps):
        return None
    return sum(
        step.steps * step.phases.get(phase, 0.0) for step in steps for phase in phases
    ) / number  # fmt: skip


def _own(steps: list[Step], seconds: float, number: int) -> float | None:
    waiting = _share(steps, WAITING, number)
    return None if waiting is None else max(0.0, seconds - waiting)
