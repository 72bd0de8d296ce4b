"""A source whose input is the board: it runs one derivation.

So what is derived gets timing, health and a status row like everything else that is read.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

from exporter.clock import Clock
from exporter.derive import Derivation, Memory
from exporter.samples import (
    Batch,
    Brought,
    Fault,
    Malformed,
    Remembered,
    Sample,
    SourceError,
    View,
    in_columns,
)


class DerivedSource:
    """The samples of one derivation. `view` returns the board at a moment of the monotonic clock.

    Its name is that of the derivation, `derive:hardware`. A reading is seen once if this source is
    read at least as often as the one that took it; where two fell between rounds, the later one
    stands for both.

    `memories` keeps what the derivation remembers, by name: a successor goes on where this one
    leaves off. It is put there at the end, and before that every `keep_every` seconds. `recall` is
    called before the first round, to bring what an earlier process has left; what it raises is told
    and costs nothing but that. With `last_round` it derives once more at its end: what was told
    since the last round is told to nobody again.

        gpu_peak_flops{gpu="0",uuid="GPU-5a1c...",precision="bf16"} 989400000000000
    """

    def __init__(
        self,
        derivation: Derivation,
        view: Callable[[float], View],
        clock: Clock,
        *,
        memories: MutableMapping[str, Any] | None = None,
        recall: Callable[[], None] = lambda: None,
        keep_every: float = math.inf,
        last_round: bool = False,
    ) -> None:
        self.name = f"derive:{derivation.name}"
        self.group = derivation.group
        self._function = derivation.function
        self._view = view
        self._clock = clock
        self._memory = Memory()
        self._inputs = frozenset(derivation.inputs)
        self._steady = derivation.steady
        self._seen: list[Batch] = []
        self._told: Iterable[Sample] | None = None
        self._said = Batch()
        self._derivation = derivation
        self._memories = {} if memories is None else memories
        self._recall = recall
        self._keep_every = keep_every
        self._last_round = last_round
        self._round: float | None = None
        self._kept = 0.0

    def read(self) -> Brought:
        """Derive once from what is fresh now; nothing where an input is missing."""
        now = self._clock.monotonic()
        view = self._view(now)
        if self._steady and not self._moved(view):
            return Brought(self._said)
        self._memory.begin(now)
        faults = self._take_over(now) if self._round is None else []
        self._round = now
        told = self._function(view, self._memory, now)
        if told is not self._told:
            self._told = told
            self._said = in_columns(list(told), self._said.shape)
        if now - self._kept >= self._keep_every:
            self._keep()
        return Brought(self._said, faults)

    def _take_over(self, now: float) -> list[Fault]:
        """Go on where a predecessor was; return what hindered it."""
        self._kept = now
        restore = self._derivation.restore
        if restore is None:
            return []
        try:
            self._recall()
            former = self._memories.get(self.name)
            if isinstance(former, Remembered):
                self._memories[self.name] = former._replace(final=False)
                restore(former.plain, now, now - former.taken, former.final)
        except (OSError, SourceError, Malformed) as error:
            return [Fault.of("memory", error)]
        return []

    def _keep(self, *, final: bool = False) -> None:
        if self._derivation.memory is not None and self._round is not None:
            self._memories[self.name] = Remembered(self._derivation.memory(), self._round, final)
            self._kept = self._round

    def _moved(self, view: View) -> bool:
        """Tell whether there is a new reading among the inputs, or one has become too old."""
        seen = [
            source.batch
            for source in view.sources
            if not self._inputs.isdisjoint(source.batch.shape.families)
        ]
        former, self._seen = self._seen, seen
        return len(seen) != len(former) or any(map(operator.is_not, seen, former))

    def close(self) -> None:
        """Leave what is remembered to the successor."""
        try:
            if self._last_round and self._round is not None:
                self.read()
        finally:
            self._keep(final=True)
