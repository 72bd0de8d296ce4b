"""One reader's account of one rank (or of the run as a whole), step by step.

A `Teller` follows a track of the ledger. To each telling it adds what follows from the facts: the
time of a step, its tokens. Its `flow` holds the sums of the last minute, without what would mislead
there: the first step of an attempt (it compiles), and times that no step can have taken.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections import deque
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from exporter.derive.parallel import global_batch
from exporter.training.ledger import KEPT_STEPS, Told, Track
from exporter.training.records import Facts, Step

MINUTE = 60.0
LEAST_STEPS = 10
_CHUNK = 10.0
_SHORTEST = 0.1
"""A step that took less than this share of the median was not timed: a loop that hands work over
and does not wait for it measures the handing over (MaxText prints 0.002 s between 12 s)."""

_TIMES = 128

_LONGEST_USUAL = 600.0
"""Seconds of silence that are taken for usual at most, where steps themselves are short."""

VALUES = ("loss", "gradient_norm", "learning_rate", "expert_imbalance", "dropped_tokens")
"""What is told of the last step that has it, since not every one does."""

OF_THE_RUN = ("tokens", "samples", "tgs", *VALUES)
"""Numbers that one rank tells for all, where a step's scope is the run."""

_LOOKED_BACK = 20
"""Tellings among which such a value is looked for."""


class Known(NamedTuple):
    """A telling with what follows from the facts; all of one step, tokens of the teller's scope.

    `stamped` tells that `seconds` is the time between two stamps, with all that lies between;
    `rated` that `tokens` are from a rate that was told.
    """

    taken: float
    step: Step
    first: bool
    seconds: float | None
    tokens: float | None
    samples: float | None
    stamped: bool = False
    rated: bool = False


@dataclasses.dataclass(slots=True)
class Sums:
    """Sums over some steps. A mean needs the steps, or seconds, for which the quantity was told."""

    steps: int = 0
    timed: int = 0
    seconds: float = 0.0
    tokens: float = 0.0
    token_steps: int = 0
    token_seconds: float = 0.0
    samples: float = 0.0
    sample_seconds: float = 0.0
    inverse_tgs: float = 0.0
    tgs_steps: int = 0
    inverse_flops: float = 0.0
    flops_steps: int = 0
    inverse_mfu: float = 0.0
    mfu_steps: int = 0
    energy: float = 0.0
    energy_steps: int = 0
    communication: float = 0.0
    communication_seconds: float = 0.0
    phases: dict[str, float] = dataclasses.field(default_factory=dict)
    phase_seconds: float = 0.0
    rated: int = 0
    stamped: int = 0

    def add(self, known: Known) -> None:
        """Add a telling: each of its steps."""
        step, n = known.step, known.step.steps
        self.steps += n
        seconds = known.seconds
        if seconds is not None:
            self.timed += n
            self.seconds += n * seconds
            self.stamped += known.stamped
            if known.tokens is not None:
                self.tokens += n * known.tokens
                self.token_steps += n
                self.rated += known.rated
                self.token_seconds += n * seconds
            if known.samples is not None:
                self.samples += n * known.samples
                self.sample_seconds += n * seconds
            if step.communication is not None:
                self.communication += n * step.communication
                self.communication_seconds += n * seconds
            if step.phases:
                self.phase_seconds += n * seconds
                for phase, share in step.phases.items():
                    self.phases[phase] = self.phases.get(phase, 0.0) + n * share
        # Rates: summed up is what each is inverse to, the time of a step.
        if step.tgs:
            self.inverse_tgs += n / step.tgs
            self.tgs_steps += n
        if step.flops:
            self.inverse_flops += n / step.flops
            self.flops_steps += n
        if step.mfu:
            self.inverse_mfu += n / step.mfu
            self.mfu_steps += n
        if step.energy is not None:
            self.energy += n * step.energy
            self.energy_steps += n

    def join(self, other: Sums) -> None:
        """Add what another one has; written out, since it is done most often of all."""
        self.steps += other.steps
        self.timed += other.timed
        self.seconds += other.seconds
        self.tokens += other.tokens
        self.token_steps += other.token_steps
        self.token_seconds += other.token_seconds
        self.samples += other.samples
        self.sample_seconds += other.sample_seconds
        self.inverse_tgs += other.inverse_tgs
        self.tgs_steps += other.tgs_steps
        self.inverse_flops += other.inverse_flops
        self.flops_steps += other.flops_steps
        self.inverse_mfu += other.inverse_mfu
        self.mfu_steps += other.mfu_steps
        self.energy += other.energy
        self.energy_steps += other.energy_steps
        self.communication += other.communication
        self.communication_seconds += other.communication_seconds
        self.phase_seconds += other.phase_seconds
        self.rated += other.rated
        self.stamped += other.stamped
        for phase, seconds in other.phases.items():
            self.phases[phase] = self.phases.get(phase, 0.0) + seconds

    @property
    def tgs(self) -> float | None:
        """Tokens in a second for each GPU, as told."""
        return self.tgs_steps / self.inverse_tgs if self.tgs_steps else None

    @property
    def flops(self) -> float | None:
        """FLOP/s for each GPU, as told."""
        return self.flops_steps / self.inverse_flops if self.flops_steps else None

    @property
    def mfu(self) -> float | None:
        """MFU, as told."""
        return self.mfu_steps / self.inverse_mfu if self.mfu_steps else None

    def share(self, phase: str) -> float | None:
        """Return a phase's share of step time; None where the teller does not know the phase."""
        seconds = self.phases.get(phase)
        return None if seconds is None or not self.phase_seconds else seconds / self.phase_seconds


class Flow:
    """The steps of the last minute, or the last ten where those take longer, as sums.

    Steps are summed up in pieces of ten seconds, so that looking costs little. A step whose time
    differs much from that of its neighbours is a piece of its own; what is far too short is left
    out when the pieces are put together, since only then it is known what is usual.
    """

    def __init__(self) -> None:
        self._pieces: deque[tuple[Sums, Known, Known]] = deque(maxlen=256)
        self._times: deque[float] = deque(maxlen=_TIMES)
        self._median: float | None = None
        self._window: Sums | None = None
        self._ends: tuple[Known, Known] | None = None

    def clear(self) -> None:
        """Begin anew."""
        self.__init__()  # type: ignore[misc]

    def add(self, known: Known) -> None:
        """Add a telling."""
        self._window = self._ends = self._median = None
        if known.seconds is not None:
            self._times.append(known.seconds)
        if self._pieces and self._fits(known):
            piece, first, _ = self._pieces[-1]
            piece.add(known)
            self._pieces[-1] = piece, first, known
        else:
            piece = Sums()
            piece.add(known)
            self._pieces.append((piece, known, known))

    def _fits(self, known: Known) -> bool:
        piece, first, _ = self._pieces[-1]
        if known.seconds is None or not piece.timed:
            return piece.timed == 0 and known.seconds is None and known.taken - first.taken < _CHUNK
        mean = piece.seconds / piece.timed
        alike = known.stamped or mean / 4 <= known.seconds <= mean * 4
        return alike and piece.seconds < _CHUNK

    @property
    def median(self) -> float | None:
        """The median time of a step."""
        if self._median is None and self._times:
            self._median = statistics.median(self._times)
        return self._median

    def window(self) -> Sums:
        """Return the sums of the last minute, or of the last ten steps."""
        if self._window is None:
            self._window, self._ends = self._look()
        return self._window

    def ends(self) -> tuple[Known, Known] | None:
        """Return the first and the last telling of that window."""
        self.window()
        return self._ends

    def _look(self) -> tuple[Sums, tuple[Known, Known] | None]:
        found = Sums()
        ends: tuple[Known, Known] | None = None
        least = _SHORTEST * (self.median or 0.0)
        for piece, first, last in reversed(self._pieces):
            long = found.seconds if found.timed else (ends[1].taken - ends[0].taken if ends else 0)
            if found.steps >= LEAST_STEPS and long >= MINUTE:
                break
            stamped = first.stamped or last.stamped
            if piece.timed and not stamped and piece.seconds < least * piece.timed:
                continue
            found.join(piece)
            ends = first, (ends[1] if ends else last)
        return found, ends


class Teller:
    """A reader, and the rank that it tells of (None: the run)."""

    def __init__(self, reader: str, rank: int | None) -> None:
        self.reader = reader
        self.rank = rank
        self.key = reader, rank
        self.flow = Flow()
        self.known: deque[Known] = deque(maxlen=KEPT_STEPS + 1)
        self.serial = 0
        self.began = 0.0
        self.moments = 0
        """At how many different moments it told something, since `began`."""
        self.hurry: float | None = None
        """Seconds of stamps that went by in a second, lately: far above 1 where it is read late."""
        self._marked: tuple[float, float] | None = None
        self._gaps: deque[float] = deque(maxlen=5)
        self._rhythm = 0.0
        self.is_alive = True
        """Whether it told something lately, as of the present round."""
        self.factor: float | None = None
        """What makes tokens of the run of its own, by multiplication; None: that is unknown."""
        self.speaks = rank in (None, 0)
        """Whether it is told for the whole run: others than rank 0 may tell their times alone."""
        self._values: dict[str, tuple[int, Known]] = {}
        self._last: Told | None = None
        self._steps = 0

    @property
    def latest(self) -> Known:
        """The last telling; there is one as soon as it has looked."""
        return self.known[-1]

    @property
    def tells_of_run(self) -> bool:
        """Tell whether its tokens are those of the whole run."""
        return self.latest.step.scope == "run"

    def after(self, serial: int) -> Iterable[Known]:
        """Return what was told after so many tellings, as far as it is kept."""
        number = min(self.serial - serial, len(self.known))
        return list(self.known)[-number:] if number > 0 else ()

    def look(self, track: Track, facts: Facts, world: int | None) -> None:
        """Take what is new in a track."""
        if not track.recent or track.recent[-1] is self._last:
            return
        if not self.known:
            self.began = track.recent[0].taken
        fresh: list[Told] = []
        for told in reversed(track.recent):
            if told is self._last:
                break
            fresh.append(told)
        fresh.reverse()
        missed = self._fill(track, fresh, facts, world)
        before = None if missed or not self.known else self.known[-1]
        for told, between in zip(fresh, _between(fresh, before), strict=True):
            self._take(told, facts, world, between)
        self._last, self._steps = track.recent[-1], track.steps

    def _fill(self, track: Track, fresh: list[Told], facts: Facts, world: int | None) -> bool:
        """Put one telling in the place of those that came and went between two looks."""
        before = self._steps if track.steps >= self._steps else 0
        missed = track.steps - before - sum(told.step.steps for told in fresh)
        if missed <= 0:
            return False
        example = fresh[0].step
        self._take(
            Told(
                fresh[0].taken,
                dataclasses.replace(
                    example, steps=missed, step=max(0, example.step - example.steps), skipped=0,
                    wall=None,
                ),
            ),
            facts, world, None, flows=False,
        )  # fmt: skip
        return True

    def _take(
        self,
        told: Told,
        facts: Facts,
        world: int | None,
        between: float | None,
        *,
        flows: bool = True,
    ) -> None:
        taken, step = told
        before = self.known[-1] if self.known else None
        former = None if before is None else before.step
        again = former is not None and former.attempt == step.attempt
        if former is not None and not again:
            self.flow.clear()
        # Steps are counted from 0 or from 1; of a mean over more the first is a part.
        first = not again if former is not None else step.step <= step.steps
        seconds = _seconds(step, facts, world)
        stamped = seconds is None and between is not None
        if stamped:
            seconds = between
        tokens, rated = _tokens(step, seconds, facts, world, stamped=stamped)
        known = Known(
            taken, step, first, seconds, tokens,
            step.samples if step.samples is not None or step.scope != "run" else batch_of(facts),
            stamped, rated,
        )  # fmt: skip
        if before is None or taken > before.taken:
            self.moments += 1
        if before is not None and taken > before.taken:
            self._gaps.append(taken - before.taken)
            self._rhythm = statistics.median(self._gaps)
        self._mark(taken, step.wall)
        self.known.append(known)
        self.serial += 1
        for name in VALUES:
            if getattr(step, name) is not None:
                self._values[name] = self.serial, known
        self.speaks = self.speaks or any(getattr(step, name) is not None for name in OF_THE_RUN)
        if flows and not first:
            self.flow.add(known)

    def _mark(self, taken: float, wall: float | None) -> None:
        if wall is None:
            return
        then, stamp = self._marked or (taken, wall)
        if taken - then >= MINUTE:
            self.hurry = (wall - stamp) / (taken - then)
            then, stamp = taken, wall
        self._marked = then, stamp

    def last(self, name: str) -> Known | None:
        """Return the last telling that held one of `VALUES`, if that is not too many ago."""
        serial, known = self._values.get(name, (-_LOOKED_BACK, None))
        return known if self.serial - serial < _LOOKED_BACK else None

    def silence(self, now: float) -> float:
        """Return for how long it has told nothing, in seconds."""
        return now - self.latest.taken

    def patience(self) -> float:
        """Return after how many seconds of silence something is wrong with it.

        Ten steps, but a minute at least; where a line tells of many steps, the time of three. So
        too after the first line, of which nobody knows how much of it is compilation. A reader may
        learn of many steps at once, as of TensorBoard's each 120 s: twice what is usual.
        """
        median = self.flow.median or 0.0
        pace = median or self.latest.seconds or 0.0
        usual = min(2 * self._rhythm, _LONGEST_USUAL)
        return max(MINUTE, 10 * median, 3 * pace * self.latest.step.steps, usual)


def batch_of(facts: Facts) -> float | None:
    """Return the samples of a step, all ranks and all accumulated gradients together."""
    if facts.global_batch is not None:
        return facts.global_batch
    parts = (facts.micro_batch, facts.micro_batches, facts.data_parallel)
    known = [part for part in parts if part is not None]
    return global_batch(known[0], known[1], int(known[2])) if len(known) == len(parts) else None


def _seconds(step: Step, facts: Facts, world: int | None) -> float | None:
    """Return the time of a step, as told or from its rate."""
    if step.seconds is not None:
        return step.seconds
    if step.tgs and world is not None and step.scope == "run":
        tokens = step.tokens if step.tokens is not None else _batch_tokens(facts)
        if tokens is not None:
            return tokens / (step.tgs * world)
    return None


def _between(fresh: list[Told], before: Known | None) -> list[float | None]:
    """Return the time of each step by the stamps of the job, or else by when it was told.

    Stamps may be coarser than steps are long, and a reader takes several lines at once: steps of
    one stamp have equal shares of the time since the stamp before.
    """
    found: list[float | None] = []
    former = None if before is None else Told(before.taken, before.step)
    timed = before is not None and before.seconds is not None
    for _, group in groupby(fresh, key=_stamp):
        some = list(group)
        each = None if former is None else _share(former, some[-1])
        if each == 0 and not timed:
            each = None  # nothing is known yet of how long steps are
        timed = each is not None
        found += [each] * len(some)
        former = some[-1]
    return found


def _stamp(told: Told) -> tuple[str, float]:
    wall = told.step.wall
    return told.step.attempt, told.taken if wall is None else wall


def _share(former: Told, last: Told) -> float | None:
    number = last.step.step - former.step.step
    if former.step.attempt != last.step.attempt or number <= 0:
        return None
    if former.step.wall is not None and last.step.wall is not None:
        between = last.step.wall - former.step.wall
    else:
        between = last.taken - former.taken
    return between / number if between >= 0 else None


def _tokens(
    step: Step, seconds: float | None, facts: Facts, world: int | None, *, stamped: bool
) -> tuple[float | None, bool]:
    """Return the tokens of a step, and whether they are worked out from a rate.

    They are those of the run, or of the rank's share, as the step has it.
    """
    if step.tokens is not None:
        return step.tokens, False
    length = facts.sequence_length
    if step.samples is not None and length is not None:
        return step.samples * length, False
    if step.scope != "run":
        return None, False
    rated = None
    if step.tgs and seconds is not None and world is not None:
        rated = step.tgs * seconds * world
    if rated is not None and not stamped:
        return rated, True
    batch = _batch_tokens(facts)
    return (rated, rated is not None) if batch is None else (batch, False)


def _batch_tokens(facts: Facts) -> float | None:
    samples = batch_of(facts)
    known = samples is not None and facts.sequence_length is not None
    return samples * facts.sequence_length if known else None  # type: ignore[operator]
