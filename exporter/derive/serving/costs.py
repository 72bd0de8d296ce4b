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

INPUTS: tuple[Metric, ...] = (c.COST_DOLLARS_TOTAL, c.TRAIN_RUN_GPU)
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
    """The dollars of one GPU over the last hour, and since when they are counted."""

    __slots__ = ("_last", "meter", "since")

    def __init__(self, taken: float, value: float) -> None:
        self._begin(taken, value)

    def _begin(self, taken: float, value: float) -> None:
        self.since, self._last, self.meter = taken, value, Meter(taken, value)

    def add(self, taken: float, value: float) -> None:
        """Take all dollars so far. Fewer than before: counted anew, with a time that is lost."""
        if value < self._last:
            self._begin(taken, value)
        self._last = value
        self.meter.add(taken, value)

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
        self._look(view, now)
        if not self._purses:
            return
        left = self._left(book, view) if self._policy.node else {}
        for server in book.servers():
            gpus = {gpu: self._node.users(gpu) for gpu in self._node.gpus(server)}
            basis = "gpus" if gpus else "node"
            for window in self._windows:
                yield from self._of(book, server, window, now, gpus=gpus or left, basis=basis)

    def _look(self, view: View, now: float) -> None:
        sums: dict[Gpu, tuple[float, float]] = {}
        for reading in readings(view, c.COST_DOLLARS_TOTAL, now):
            gpu, uuid, _ = reading.labels
            taken, total = sums.get((gpu, uuid), (reading.taken, 0.0))
            sums[gpu, uuid] = taken, total + reading.value
        for key, (taken, total) in sums.items():
            purse = self._purses.get(key)
            if purse is None:
                self._purses[key] = _Purse(taken, total)
            else:
                purse.add(taken, total)
        self._purses = {gpu: one for gpu, one in self._purses.items() if gpu in sums}

    def _left(self, book: Book, view: View) -> dict[Gpu, int]:
        """Return the GPUs that no server and no run is known to use, and how many share them."""
        servers = [one for one in book.servers() if not self._node.gpus(one)]
        taken = {(s.labels[1], s.labels[2]) for s in view.samples(c.TRAIN_RUN_GPU)}
        free = [gpu for gpu in self._purses if gpu not in taken and not self._node.users(gpu)]
        return dict.fromkeys(free, len(servers))

    def _of(
        self,
        book: Book,
        server: str,
        window: str,
        now: float,
        *,
        gpus: Mapping[Gpu, int],
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

    def _spent(self, gpus: Mapping[Gpu, int], now: float, seconds: float) -> float | None:
        """Return the dollars of GPUs, of each its part; None where one of them is not told."""
        total = 0.0
        for gpu, users in gpus.items():
            purse = self._purses.get(gpu)
            spent = None if purse is None else purse.spent(now, seconds)
            if spent is None:
                return None
            total += spent / users
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
