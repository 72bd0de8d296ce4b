"""Tells the daemon of a run of Lightning's `Trainer`.

    trainer = Trainer(..., callbacks=[FlopwatchCallback(tokens=lambda batch: batch[0].numel())])

A step's time is that of the batches that were accumulated for it, and of waiting for them (`data`).
Waiting is not known where validation or a checkpoint lies in between. `tokens` and `samples` are
functions of a batch on this rank; they must not ask anything of the GPU.
"""

from __future__ import annotations

import time
from typing import Any, Callable

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:  # the package under its former name
    from pytorch_lightning.callbacks import Callback

from .run import Run, quietly

_clock = time.perf_counter


class FlopwatchCallback(Callback):  # type: ignore[misc,unused-ignore]
    """A callback of the `Trainer`. `run` is made from what the Trainer says unless it is given.

    Further keywords are those of `Run`, and win over what the Trainer says.
    """

    def __init__(
        self,
        run: Run | None = None,
        *,
        tokens: Callable[[Any], int] | None = None,
        samples: Callable[[Any], int] | None = None,
        **options: Any,
    ) -> None:
        self._run = run
        self._options = options
        self._counted = {"tokens": tokens, "samples": samples}
        self._left: float | None = None
        self._came: float | None = None
        self._step = 0
        self._begin()

    def _begin(self) -> None:
        self._seconds = self._waited = 0.0
        self._numbers: dict[str, Any] = {}

    @quietly
    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Tell what stays the same."""
        if self._run is None:
            self._run = Run(**{**_facts(trainer), **self._options})
        self._step = trainer.global_step
        if self._step > 0:
            self._run.resume(self._step)
        self._left = _clock()

    @quietly
    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
        """Note when a batch is there."""
        self._came = _clock()
        if self._left is not None:
            self._waited += self._came - self._left

    @quietly
    def on_train_batch_end(
        self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int
    ) -> None:
        """Tell a step if this batch was the last one of it."""
        now = self._left = _clock()
        if self._came is not None:
            self._seconds += now - self._came
        for name, count in self._counted.items():
            if count is not None:
                self._numbers[name] = self._numbers.get(name, 0) + count(batch)
        if trainer.global_step == self._step or self._run is None:
            return
        self._step = trainer.global_step
        seconds, waited, told = self._seconds, self._waited, self._numbers
        self._begin()
        self._run.log_step(self._step, seconds=seconds + waited, phases={"data": waited}, **told)

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        """Leave validation out of what is waited for."""
        self._left = None

    @quietly
    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
        """Tell a checkpoint; how long writing it takes is not known here."""
        self._left = None
        if self._run is not None:
            self._run.log_checkpoint()

    @quietly
    def on_train_end(self, trainer: Any, module: Any) -> None:
        """Tell the end."""
        if self._run is not None:
            self._run.end()

    @quietly
    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """Tell a failure."""
        if self._run is not None:
            self._run.fail(type(exception).__name__)


def _facts(trainer: Any) -> dict[str, Any]:
    several = trainer.world_size > 1
    precision = str(trainer.precision)
    return {
        "rank": trainer.global_rank if several else None,
        "world_size": trainer.world_size,
        "framework": "lightning",
        # What is counted of a batch is this rank's.
        "scope": "rank" if several else "run",
        "micro_batches": trainer.accumulate_grad_batches,
        "precision": next((one for one in ("bf16", "fp8") if one in precision), None)
        or ("fp16" if precision.startswith("16") else None),
        "last_step": trainer.max_steps if trainer.max_steps > 0 else None,
    }
