"""One training run over time: whom to believe, what holds of it, whether it lives.

The ledger keeps what each reader told; a `Run` makes one truth of it. Parts ask it, and never ask
the readers' records which reader to believe.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from exporter.derive.parallel import world_size
from exporter.derive.training.counts import Counts, told_by
from exporter.derive.training.stated import Stated, merged
from exporter.derive.training.teller import MINUTE, Known, Sums, Teller, batch_of
from exporter.training import READERS, TrackedRun
from exporter.training.records import Facts, Moment

Status = Literal["starting", "live", "stalled", "ended"]

_ENDINGS = frozenset(("ended", "failed", "interrupted"))

LINGERS = 300.0
"""Seconds for which the counters of a run that has ended stay: they are to be scraped once more."""

_RANKED = {reader: at for at, reader in enumerate(READERS)}
_PRECISIONS = {
    "bf16": ("bf16", "bfloat16", "bf16-mixed", "bf16_mixed", "bf16-true", "amp_bf16"),
    "fp16": ("fp16", "float16", "half", "16-mixed", "fp16-mixed", "16-true", "amp_fp16"),
    "fp8": ("fp8", "float8", "amp_fp8", "fp8-delayed", "fp8-hybrid", "fp8_e4m3", "mxfp8",
            "transformer-engine", "bf16_with_fp8_mixed", "bf16-with-fp8-mixed"),
    "fp4": ("fp4", "nvfp4", "mxfp4"),
    "tf32": ("tf32",),
    "fp32": ("fp32", "float32", "32", "32-true"),
}  # fmt: skip


class Run:
    """What is known of a run at the present round.

    `tracked` is what readers told, `facts` what is believed of it, `tellers` its accounts, the best
    first; `status` tells whether it goes on, `age` how long ago its last step ended. `wall` turns a
    monotonic moment into Unix seconds. `gone` says that nothing is to be told of it any more,
    `is_alone` that no other run goes on at this node.
    """

    def __init__(self, tracked: TrackedRun, stated: Stated, wall: Callable[[float], float]) -> None:
        self.name = tracked.name
        self.tracked = tracked
        self.stated = stated
        self.wall = wall
        self.facts = Facts(run=tracked.name)
        self.status: Status = "starting"
        self.age: float | None = None
        self.counts = Counts()
        self.tellers: Sequence[Teller] = ()
        self.world_size: int | None = None
        self.precision: str | None = None
        """What most products are computed in, as peaks are named."""
        self.local_ranks: frozenset[int] = frozenset()
        """The ranks on this node, as far as they are known."""
        self.is_alone = True
        self._by_key: dict[tuple[str, int | None], Teller] = {}
        self._told: tuple[Facts, ...] = ()
        self._ended: float | None = None
        self._ending_seen: tuple[Moment, float] | None = None
        self._lived = False

    def observe(self, tracked: TrackedRun, now: float) -> None:
        """Take what the ledger knows now; the same object again says that it knows nothing new."""
        told = tracked is not self.tracked or not self.tellers
        if told:
            self._take(tracked)
        for teller in self.tellers:
            alive = teller.silence(now) <= teller.patience()
            told, teller.is_alive = told or alive != teller.is_alive, alive
        if told:
            self._settle()
        self.counts.feed(self.tellers)
        self._judge(now)

    def _take(self, tracked: TrackedRun) -> None:
        self.tracked = tracked
        self._learn(tracked.facts)
        for key, track in tracked.tracks.items():
            teller = self._by_key.get(key)
            if teller is None:
                teller = self._by_key[key] = Teller(*key)
            teller.look(track, self.facts, self.world_size)
        known = [teller for teller in self._by_key.values() if teller.known]
        self.tellers = sorted(known, key=_goodness)

    def _settle(self) -> None:
        """Tell ranks that are here from those that were: a restart may deal them out anew."""
        for teller in self.tellers:
            teller.factor = self._factor(teller)
        here = _present(self.tellers)
        gone = {one.rank for one in self.tellers} - {one.rank for one in here}
        pushed = (moment.rank for who, moment in self.tracked.moments if who == "push")
        known = [
            *(self.facts.local_ranks or ()),
            *(rank for _, rank in self.tracked.tracks),
            *pushed,
        ]
        self.local_ranks = frozenset(rank for rank in known if rank is not None) - gone

    def _learn(self, told: Mapping[str, Facts]) -> None:
        """Merge facts: what is stated, then those of readers, the best first, then of others."""
        order = (*READERS, *sorted(told.keys() - set(READERS)))
        pieces = tuple(told[one] for one in order if one in told)
        if pieces == self._told and self._told:
            return
        self._told = pieces
        stated = self.stated.facts
        if stated.config is not None or stated.model is not None:
            # A model that is stated counts more than figures that readers have of another.
            pieces = tuple(
                dataclasses.replace(one, flops_per_token=None, active_parameters=None, config=None)
                for one in pieces
            )
        facts = merged(self.name, (stated, *pieces))
        if facts.sequence_length is None and facts.config is not None:
            length = facts.config.get("seq_length")  # an argument of Megatron
            if type(length) is int and length > 0:
                facts = dataclasses.replace(facts, sequence_length=length)
        self.world_size = _world(facts)
        self.facts = dataclasses.replace(facts, data_parallel=_data_parallel(facts))
        said = (facts.precision or "").lower()
        self.precision = next((name for name, words in _PRECISIONS.items() if said in words), None)

    # ------------------------------------------------------------ whom to believe

    def _factor(self, teller: Teller) -> float | None:
        """Return what makes run's tokens of a teller's.

        A rank's tokens are its share of the data, or the same share as that of the other ranks of
        its tensor, pipeline and context group. The run's are known where all ranks, or one of each
        group, tell; or where the operator says that this node speaks for all.
        """
        if teller.tells_of_run:
            return 1.0
        ranks = _present(
            [one for one in self.tellers if one.reader == teller.reader and one.rank is not None]
        )
        world, shares = self.world_size, self.facts.data_parallel or self.world_size
        if world is None or shares is None:
            return None
        own = teller.latest.step.tokens or teller.latest.step.samples
        if not own:
            return None
        told = [one.latest.step.tokens or one.latest.step.samples or 0.0 for one in ranks]
        total = sum(told) / own
        if len(ranks) == world:
            return total * shares / world
        if len(ranks) == shares:
            return total
        return total / len(ranks) * shares if self.stated.reporter else None

    @property
    def reports(self) -> bool:
        """Tell whether this node speaks for the whole run."""
        if self.stated.reporter is not None:
            return self.stated.reporter
        if not any(teller.factor is not None for teller in self.tellers):
            # Steps are the same for all ranks; the first one's node tells of them.
            return self.world_size in (None, 1) or 0 in self.local_ranks
        local, world = self.local_ranks, self.world_size
        told = [one for one in self.tellers if one.tells_of_run and one.reader in _AT_ONCE]
        if told:  # whoever speaks for the run speaks to one node; the others tell their own times
            return any(one.speaks for one in _present(told))
        # A log on a shared disk tells every node of the run, and one of them may speak: that of
        # the rank that writes. Megatron's is the last, those of the others the first.
        last = (self.facts.framework or "").startswith("megatron")
        return not local or world is None or (world - 1 if last else 0) in local

    @property
    def scope(self) -> str:
        """`run` where this node tells the numbers of the whole run, else `rank`."""
        return "run" if self.reports else "rank"

    def readers(self) -> Mapping[str, bool]:
        """Return all who tell of steps, and whether they are believed for something."""
        believed = set(told_by(self.counts))
        return {teller.reader: teller.reader in believed for teller in self.tellers}

    def lead(self) -> Teller | None:
        """Return who is believed for times; else for steps."""
        return self.counts.times.teller or self.counts.steps.teller

    def window(self) -> Sums:
        """Return the sums of the last minute, of who is believed for times."""
        lead = self.lead()
        return Sums() if lead is None else lead.flow.window()

    def ends(self) -> tuple[Known, Known] | None:
        """Return the first and the last telling of that window."""
        lead = self.lead()
        return None if lead is None else lead.flow.ends()

    def windows(self, wanted: Callable[[Sums], float]) -> Iterator[tuple[Teller, Sums]]:
        """Yield who can tell something of the last minute, and its sums; the best first."""
        for teller in self.tellers:
            sums = teller.flow.window()
            if wanted(sums):
                yield teller, sums

    def last(self, name: str) -> Known | None:
        """Return the last telling that holds one of `VALUES`, of the best reader that tells it."""
        for teller in self.tellers:
            if (known := teller.last(name)) is not None:
                return known
        return None

    @property
    def median(self) -> float | None:
        """The median time of a step."""
        lead = self.lead()
        return None if lead is None else lead.flow.median

    # ------------------------------------------------------------ whether it lives

    def _judge(self, now: float) -> None:
        self.age = min((self._age(teller, now) for teller in self.tellers), default=None)
        over = self._is_over(now)
        if self.age is not None and not over:
            patience = max(teller.patience() for teller in self.tellers)
            self._lived = self._lived or (self.age <= patience and any(map(_grows, self.tellers)))
            # A log that was never seen to grow is one of a job that is no more.
            over = not self._lived
            self.status = "stalled" if self.age > patience else "live"
        elif not over:
            self.status = "starting"
        if over:
            self.status = "ended"
        self._ended = None if not over else now if self._ended is None else self._ended

    def _age(self, teller: Teller, now: float) -> float:
        """Return how long ago a step ended.

        A log that is read late tells of steps that are long past. But stamps may be in a time zone
        that nobody names: while steps keep coming in, they are what is happening.
        """
        silence = teller.silence(now)
        wall = teller.latest.step.wall
        if wall is None:
            return silence
        steady = teller.moments >= _OFTEN and teller.latest.taken - teller.began >= MINUTE
        steady = steady and teller.hurry is not None and teller.hurry < _LATE
        return silence if steady else max(silence, self.wall(now) - wall)

    def _is_over(self, now: float) -> bool:
        """Tell whether it has ended: it said so, or its last step is done."""
        last = self.counts.steps.last
        if last is not None and self.facts.last_step is not None and last >= self.facts.last_step:
            return True
        ending = self._ending()
        if ending is None:
            return False
        if self._ending_seen is None or self._ending_seen[0] is not ending:
            self._ending_seen = ending, now
        return not self._goes_on_after(ending, self._ending_seen[1])

    def _ending(self) -> Moment | None:
        endings = (m for _, m in reversed(self.tracked.moments) if m.kind in _ENDINGS)
        return next(endings, None)

    def _goes_on_after(self, ending: Moment, seen: float) -> bool:
        """Tell whether a start, or a step, came after an end."""
        reader = next(reader for reader, moment in self.tracked.moments if moment is ending)
        later = False
        for _, moment in self.tracked.moments:
            if moment is ending:
                later = False
            elif moment.kind in {"started", "recovered"} and moment.attempt != ending.attempt:
                later = True
        for teller in self.tellers:
            step = teller.latest.step
            if ending.wall is not None and step.wall is not None:
                later = later or step.wall > ending.wall + 1
            elif ending.attempt and teller.reader == reader:
                later = later or step.attempt != ending.attempt
            else:
                later = later or teller.latest.taken > seen
        return later

    def gone(self, now: float) -> bool:
        """Tell whether nothing is to be said of it any more: it ended, or it is long past."""
        if self._ended is not None and (now - self._ended > LINGERS or not self._lived):
            return True
        return self.age is not None and self.age > _PAST

    @property
    def goes_on(self) -> bool:
        """Tell whether gauges of what it does now make sense."""
        return self.status == "live"

    # ------------------------------------------------------------ what it is

    @property
    def batch(self) -> float | None:
        """Samples of a step, over all ranks."""
        return batch_of(self.facts)

    # ------------------------------------------------------------ what outlives the daemon

    def memory(self) -> dict[str, Any]:
        """Return what readers cannot tell again."""
        return {"lived": self._lived, **self.counts.memory()}

    def restore(self, memory: Mapping[str, Any], *, final: bool) -> None:
        """Take that over; it is `final` if nothing was told after it."""
        self.counts.restore(memory, final=final)
        self._lived = bool(memory.get("lived"))


_OFTEN = 5
"""At so many moments, within a minute or more, a job that lives has told of steps."""

_LATE = 3.0
"""Seconds of stamps in one of ours, from which on it is no job that is followed but a past read."""

_PAST = 7200.0
"""Seconds after which a run that tells nothing is no news any more."""

_AT_ONCE = frozenset({"push", "otlp", "page"})
"""Readers to whom a job tells what happens while it happens; others find what was written."""


def _grows(teller: Teller) -> bool:
    """Tell whether a teller tells of what happens now: it has a stamp, or went on before us."""
    known = teller.known
    return (
        teller.reader in _AT_ONCE
        or teller.latest.step.wall is not None
        or known[0].taken < known[-1].taken
    )


def _present(tellers: Sequence[Teller]) -> Sequence[Teller]:
    """Return those that still tell; all where none does: then it is the run that is silent."""
    return [one for one in tellers if one.is_alive] or tellers


def _goodness(teller: Teller) -> tuple[int, bool, bool, int]:
    """Return the place of a teller: by reader, then who tells of the run, then by rank."""
    rank = teller.rank
    return (
        _RANKED.get(teller.reader, len(_RANKED)),
        rank is not None,
        not teller.tells_of_run,
        -1 if rank is None else rank,
    )


def _world(facts: Facts) -> int | None:
    """Return the world size, told or the product of all dimensions."""
    if facts.world_size is not None:
        return facts.world_size
    needed = (facts.data_parallel, facts.tensor_parallel, facts.pipeline_parallel)
    known = [size for size in needed if size is not None]
    if len(known) < len(needed):
        return None
    return world_size(known[0], known[1], known[2], facts.context_parallel or 1)


def _data_parallel(facts: Facts) -> int | None:
    """Return the number of shares that the data is split into."""
    if facts.data_parallel is not None:
        return facts.data_parallel
    sizes = (facts.tensor_parallel, facts.pipeline_parallel, facts.context_parallel)
    if facts.world_size is None or all(size is None for size in sizes):
        return None
    group = 1
    for size in sizes:
        group *= size or 1
    return facts.world_size // group if facts.world_size % group == 0 else None
