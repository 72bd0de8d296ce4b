"""What the tokens and requests of each server cost.

Numerator and denominator are of the same service and window: all dollars of the GPUs that the
server works on, busy or not, since they are there for it; over the tokens that the book counted in
the same time. Several models on a server share its dollars by their tokens, several servers on a GPU
share that evenly. Where the GPUs are not known there is no cost, unless the operator wants the
server charged with those of the node that nobody else uses; the label `basis` says which it is.

An output token takes longer than an input token by far. How much dearer it is is policy: a weight.
So a million input tokens cost `dollars / (input + weight * output)`, output tokens `weight` times as
much, and both together are all dollars.

    llm_cost_per_million_tokens_dollars{...,server="a",direction="output",window="5m",basis="gpus"} 1.9
    llm_tokens_per_dollar{...,server="a",window="5m",basis="gpus"} 540000.0
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from exporter import catalogue as c
from exporter.derive.derivation import readings
from exporter.derive.serving.book import WINDOWS, Book, Entity
from exporter.derive.serving.node import Gpu, Meter, Node
from exporter.derive.serving.windows import served
from exporter.samples import Metric, Sample, View

LEAST = 300.0
"""Seconds of the shortest window that is told: in less, a long request is many tokens or none."""

_NEARLY = 0.95
"""A window covers this share of the shortest one: readings do not come at its very ends."""

_LATE = 15.0
"""Seconds by which the first dollar may have been counted after the window began."""

_MILLION = 1e6

INPUTS: tuple[Metric, ...] = (
    c.COST_DOLLARS_TOTAL,
    c.COST_GPU_HOUR_DOLLARS,
    c.TRAIN_RUN_GPU,
    c.GPU_INFO,
)
OUTPUTS: tuple[Metric, ...] = (
    c.LLM_COST_PER_MILLION_TOKENS_DOLLARS,
    c.LLM_TOKENS_PER_DOLLAR,
    c.LLM_QUERIES_PER_DOLLAR,
)


class Policy(NamedTuple):
    """What the operator decides: input tokens that an output token counts as, and whether servers
    whose GPUs are not known are charged with those of the `node` that are left."""

    output_weight: float = 4.0
    node: bool = False


class _Used(NamedTuple):
    """The tokens of a model on a server, of a window."""

    entity: Entity
    entered: float
    generated: float

    def weighed(self, weight: float) -> float:
        return self.entered + weight * self.generated


class _Purse:
    """What one server pays of a GPU's dollars over the last hour, and since when that is known."""

    __slots__ = ("_last", "_share", "meter", "since")

    def __init__(self, taken: float, value: float) -> None:
        self._begin(taken, value)

    def _begin(self, taken: float, value: float) -> None:
        self.since, self._last, self._share = taken, value, 0.0
        self.meter = Meter(taken, 0.0)

    def add(self, taken: float, value: float, users: int) -> None:
        """Take all dollars so far; so many servers share those that are new.

        Fewer than before: counted anew, with a time that is lost.
        """
        if value < self._last:
            self._begin(taken, value)
        self._share += (value - self._last) / max(1, users)
        self._last = value
        self.meter.add(taken, self._share)

    def spent(self, now: float, seconds: float) -> float | None:
        """Return the dollars of the last so many seconds; None if not all of them were seen."""
        if self.since > now - seconds + _LATE:
            return None
        rate = self.meter.rate(now, seconds)
        return None if rate is None else rate * seconds


class Costs:
    """The part that says what servers cost. `windows` are those that are published."""

    def __init__(
        self, node: Node, policy: Policy | None = None, windows: Sequence[str] = ("5m", "1h")
    ) -> None:
        self._node = node
        self._policy = policy or Policy()
        self._windows = [one for one in windows if WINDOWS[one] >= LEAST]
        self._purses: dict[Gpu, _Purse] = {}

    def __call__(self, book: Book, view: View, now: float) -> Iterator[Sample]:
        """Yield what is known of each model on each server at `now`, in monotonic seconds."""
        self._node.observe(view, now)
        unplaced = [one for one in book.servers() if not self._node.gpus(one)]
        left = self._left(view, now) if self._policy.node and unplaced else []
        self._look(view, now, dict.fromkeys(left, len(unplaced)))
        if not self._purses:
            return
        for server in book.servers():
            gpus = self._node.gpus(server)
            basis = "gpus" if gpus else "node"
            for window in self._windows:
                yield from self._of(book, server, window, now, gpus=gpus or left, basis=basis)

    def _look(self, view: View, now: float, shared: Mapping[Gpu, int]) -> None:
        """Take the dollars of each GPU that has a price. Where it was lost they are counted anew:
        a counter that stands still for want of a price is no time that was free."""
        priced = {reading.labels for reading in readings(view, c.COST_GPU_HOUR_DOLLARS, now)}
        sums: dict[Gpu, tuple[float, float]] = {}
        for reading in readings(view, c.COST_DOLLARS_TOTAL, now):
            gpu, uuid, _ = reading.labels
            if (gpu, uuid) in priced:
                taken, total = sums.get((gpu, uuid), (reading.taken, 0.0))
                sums[gpu, uuid] = taken, total + reading.value
        for key, (taken, total) in sums.items():
            purse = self._purses.get(key)
            if purse is None:
                self._purses[key] = _Purse(taken, total)
            else:
                purse.add(taken, total, self._node.users(key) or shared.get(key, 1))
        self._purses = {gpu: one for gpu, one in self._purses.items() if gpu in sums}

    def _left(self, view: View, now: float) -> list[Gpu]:
        """Return the GPUs that no server and no run is known to use."""
        known = dict.fromkeys(
            reading.labels[:2]
            for metric in (c.GPU_INFO, c.COST_DOLLARS_TOTAL)
            for reading in readings(view, metric, now)
        )
        taken = {(s.labels[1], s.labels[2]) for s in view.samples(c.TRAIN_RUN_GPU)}
        return [
            (gpu, uuid)
            for gpu, uuid in known
            if (gpu, uuid) not in taken and not self._node.users((gpu, uuid))
        ]

    def _of(
        self,
        book: Book,
        server: str,
        window: str,
        now: float,
        *,
        gpus: Sequence[Gpu],
        basis: str,
    ) -> Iterator[Sample]:
        seconds = book.seconds(server, window)
        if seconds < _NEARLY * LEAST:
            return
        dollars = self._spent(gpus, now, seconds)
        used = _used(book, server, window)
        weight = self._policy.output_weight
        tokens = sum(one.weighed(weight) for one in used or ())
        if dollars is None or not tokens > 0:
            return
        for one in used or ():
            labels = (window, basis)
            yield from _prices(one, dollars / tokens, weight, labels)
            paid = dollars * one.weighed(weight) / tokens
            if paid > 0:
                yield c.LLM_TOKENS_PER_DOLLAR(one.generated / paid, *one.entity, *labels)
                requests = served(book, one.entity, window)
                if requests is not None:
                    yield c.LLM_QUERIES_PER_DOLLAR(requests / paid, *one.entity, *labels)

    def _spent(self, gpus: Sequence[Gpu], now: float, seconds: float) -> float | None:
        """Return a server's part of the dollars of GPUs; None where one of them is not told."""
        total = 0.0
        for gpu in gpus:
            purse = self._purses.get(gpu)
            spent = None if purse is None else purse.spent(now, seconds)
            if spent is None:
                return None
            total += spent
        return total if gpus else None


def _used(book: Book, server: str, window: str) -> list[_Used] | None:
    """Return the tokens of each model on a server; None if one of them does not tell."""
    found: list[_Used] = []
    for entity in book.entities():
        if entity.server != server:
            continue
        entered, generated = (
            book.increase(c.LLM_TOKENS_TOTAL, entity, window, direction=direction)
            for direction in ("input", "output")
        )
        if entered is None or generated is None:
            return None
        found.append(_Used(entity, entered, generated))
    return found


def _prices(one: _Used, each: float, weight: float, labels: tuple[str, str]) -> Iterator[Sample]:
    """Yield what a million tokens cost; `each` is the price of an input token."""
    both = one.entered + one.generated
    prices = {
        "input": each if one.entered else None,
        "output": each * weight if one.generated else None,
        "blended": each * one.weighed(weight) / both if both else None,
    }
    for direction, price in prices.items():
        if price is not None:
            yield c.LLM_COST_PER_MILLION_TOKENS_DOLLARS(
                price * _MILLION, *one.entity, direction, *labels
            )
