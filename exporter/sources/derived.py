"""A source whose input is the board: it runs one derivation.

So what is derived gets timing, health and a status row like everything else that is read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from exporter.clock import Clock
from exporter.derive import Derivation, Memory
from exporter.samples import Batch, Brought, View, in_columns


class DerivedSource:
    """The samples of one derivation. `view` returns the board at a moment of the monotonic clock.

    Its name is that of the derivation, `derive:hardware`. A reading is seen once if this source is
    read at least as often as the one that took it; where two fell between rounds, the later one
    stands for both.

        gpu_peak_flops{gpu="0",uuid="GPU-5a1c...",precision="bf16"} 989400000000000
    """

    def __init__(self, derivation: Derivation, view: Callable[[float], View], clock: Clock) -> None:
        self.name = f"derive:{derivation.name}"
        self.group = derivation.group
        self._function = derivation.function
        self._view = view
        self._clock = clock
        self._memory = Memory()
        self._inputs = frozenset(derivation.inputs)
        self._steady = derivation.steady
        self._seen: list[Batch] = []
        self._said = Batch()

    def read(self) -> Brought:
        """Derive once from what is fresh now; nothing where an input is missing."""
        now = self._clock.monotonic()
        view = self._view(now)
        if not self._steady or self._moved(view):
            self._memory.begin(now)
            said = list(self._function(view, self._memory, now))
            self._said = in_columns(said, self._said.shape)
        return Brought(self._said)

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
        """Hold nothing, so release nothing."""
