"""What training runs cost: so far, for a million tokens, and at their last step.

The GPUs of a run are those that `train_run_gpu` names; a run that is stalled still has them. Tokens
are counted when the job tells of them, often of many steps at once: so dollars and tokens are held
against each other from one telling to another, at least five minutes later.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from exporter import catalogue as c
from exporter.derive.derivation import readings
from exporter.derive.money.accounts import Booked, amount
from exporter.samples import Metric, Sample, View

Gpu = tuple[str, str]
"""Index and UUID."""

INPUTS: tuple[Metric, ...] = (
    c.TRAIN_RUN_GPU,
    c.TRAIN_STALLED,
    c.TRAIN_LOCAL_RANKS,
    c.TRAIN_TOKENS_TOTAL,
    c.TRAIN_WORLD_SIZE,
    c.TRAIN_REMAINING_SECONDS,
)
OUTPUTS: tuple[Metric, ...] = (
    c.TRAIN_COST_DOLLARS_TOTAL,
    c.TRAIN_COST_PER_MILLION_TOKENS_DOLLARS,
    c.TRAIN_PROJECTED_COST_DOLLARS,
)

LEAST = 300.0
"""Seconds between the two tellings whose tokens are held against dollars, at least."""

_GRAIN = 5.0
_KEPT = 3600.0
_MILLION = 1e6


class _Point(NamedTuple):
    """A telling: when, and what the run had cost and trained on."""

    taken: float
    dollars: float
    tokens: float


class _Run:
    """One run; `gpus` are those that work on it now, `going` whether it makes steps."""

    def __init__(self, now: float) -> None:
        self.gpus: frozenset[Gpu] = frozenset()
        self.going = False
        self.dollars = 0.0
        self.paid = False
        self.seen = now
        self.world: float | None = None
        self.remaining: float | None = None
        self._points: deque[_Point] = deque()

    def pay(self, dollars: float | None) -> None:
        """Add what one of its GPUs cost; without a price no quotient reaches over that time."""
        if dollars is None:
            self._points.clear()
            return
        self.dollars += dollars
        self.paid = True

    def tell(self, now: float, tokens: float) -> None:
        """Take the counter of tokens; the same value again tells nothing."""
        points = self._points
        if points and tokens < points[-1].tokens:
            points.clear()
        if points and tokens == points[-1].tokens:
            return
        if len(points) > 1 and points[-1].taken - points[-2].taken < _GRAIN:
            points.pop()
        points.append(_Point(now, self.dollars, tokens))
        while points[0].taken < now - _KEPT:
            points.popleft()

    def forget_tellings(self) -> None:
        """Begin anew: other GPUs work on it."""
        self._points.clear()

    def per_token(self) -> float | None:
        """Return the dollars of this node for each token of the run."""
        if not self._points:
            return None
        last = self._points[-1]
        first = None
        for point in self._points:
            if last.taken - point.taken < LEAST:
                break
            first = point
        if first is None or not last.tokens > first.tokens:
            return None
        return (last.dollars - first.dollars) / (last.tokens - first.tokens)


class Runs:
    """All runs that GPUs of this node work on, or worked on within the last hour."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}

    def pay(self, gpu: Gpu, booked: Booked) -> None:
        """Divide what was booked of a GPU evenly among the runs that had it."""
        if not booked.nanoseconds:
            return
        of = [run for run in self._runs.values() if gpu in run.gpus]
        for run in of:
            run.pay(None if booked.dollars is None else booked.dollars / len(of))

    def look(self, view: View, now: float) -> None:
        """Look at who works on what, after what was before has been paid."""
        gpus: dict[str, set[Gpu]] = {}
        for sample in view.samples(c.TRAIN_RUN_GPU):
            who, gpu, uuid = sample.labels
            gpus.setdefault(who, set()).add((gpu, uuid))
        # A node that does not speak for the run tells of its processes, and not of a stall.
        lives = {sample.labels[0] for sample in view.samples(c.TRAIN_STALLED)}
        lives |= {r.labels[0] for r in readings(view, c.TRAIN_LOCAL_RANKS, now) if r.value}
        for name in gpus:
            self._runs.setdefault(name, _Run(now))
        for name, run in self._runs.items():
            run.going = name in gpus
            found = frozenset(gpus[name]) if run.going else run.gpus if name in lives else None
            if found and run.gpus and found != run.gpus:
                run.forget_tellings()
            run.gpus = found or frozenset()
            if found is not None:
                run.seen = now
        self._numbers(view, now)
        gone = [name for name, run in self._runs.items() if now - run.seen > _KEPT]
        for name in gone:
            del self._runs[name]

    def _numbers(self, view: View, now: float) -> None:
        world = {r.labels[0]: r.value for r in readings(view, c.TRAIN_WORLD_SIZE, now)}
        left = {r.labels[0]: r.value for r in readings(view, c.TRAIN_REMAINING_SECONDS, now)}
        for name, run in self._runs.items():
            run.world, run.remaining = world.get(name), left.get(name)
        for reading in readings(view, c.TRAIN_TOKENS_TOTAL, now):
            told = self._runs.get(reading.labels[0])
            if told is not None and told.gpus:
                told.tell(reading.taken, reading.value)

    def samples(self, prices: Mapping[Gpu, float]) -> Iterator[Sample]:
        """Yield what is known of each run; `prices` are those of an hour of each GPU now."""
        users = Counter(gpu for run in self._runs.values() for gpu in run.gpus)
        for name, run in self._runs.items():
            priced = bool(run.gpus) and prices.keys() >= run.gpus
            if run.paid or priced:
                yield c.TRAIN_COST_DOLLARS_TOTAL(run.dollars, name)
            if not run.going or run.world is None or not priced:
                continue
            whole = run.world / len(run.gpus)
            if (each := run.per_token()) is not None:
                yield c.TRAIN_COST_PER_MILLION_TOKENS_DOLLARS(each * whole * _MILLION, name)
            if run.remaining is not None and run.paid:
                rate = sum(prices[gpu] / users[gpu] for gpu in run.gpus) / 3600.0
                total = (run.dollars + rate * run.remaining) * whole
                yield c.TRAIN_PROJECTED_COST_DOLLARS(total, name)

    def memory(self) -> dict[str, Any]:
        """Return what is to outlive the daemon."""
        return {
            name: [run.dollars, run.paid, [list(gpu) for gpu in run.gpus]]
            for name, run in self._runs.items()
        }

    def restore(
        self, memory: Mapping[str, Iterable[Any]], now: float, *, same: bool, keep: bool
    ) -> None:
        """Go on where another one was: with its sums if they are to be kept, and in the `same`
        process with what is still to be paid. Raises for what is no such memory."""
        for name, (dollars, paid, gpus) in memory.items():
            run = self._runs[str(name)] = _Run(now)
            run.paid = bool(paid)
            run.dollars = amount(dollars) if keep else 0.0
            if same:
                run.gpus = frozenset((str(gpu), str(uuid)) for gpu, uuid in gpus)
