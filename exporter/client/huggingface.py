"""Tells the daemon of a run of Hugging Face's `Trainer`, and of what is built on it (TRL, Axolotl).

    trainer = Trainer(..., callbacks=[FlopwatchCallback()])

A step's time is from the end of the last one to its own, without evaluation and checkpoints; what
passes before its first batch is there counts as `data`. Reading the loss makes the Trainer wait for
the GPU: that time belongs to the step before. Loss, gradient norm and learning rate come with the
step at which the Trainer logs them anyway; nothing more is asked of the GPU. Tokens are told with
`include_num_input_tokens_seen`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from .run import Run, quietly

_clock = time.perf_counter


class FlopwatchCallback(TrainerCallback):  # type: ignore[misc,unused-ignore]
    """A callback of the `Trainer`. `run` is made from its arguments unless it is given.

    Further keywords are those of `Run`, and win over what the Trainer says.
    """

    def __init__(self, run: Run | None = None, **options: Any) -> None:
        self._run = run
        self._options = options
        self._mark = _clock()
        self._began: float | None = None
        self._tokens = 0
        self._number: int | None = None
        self._seconds = self._waited = self._wall = 0.0
        self._numbers: dict[str, Any] = {}

    @quietly
    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Tell what stays the same."""
        if self._run is None:
            self._run = Run(**{**_facts(args, state, more.get("model")), **self._options})
        if state.global_step > 0:
            self._run.resume(state.global_step)
        self._tokens = state.num_input_tokens_seen
        self._mark = _clock()

    @quietly
    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Note when the batches of a step are there."""
        self._tell()
        self._began = _clock()

    @quietly
    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Keep the step until it is known whether something is logged with it."""
        now = _clock()
        if self._began is None:
            return
        self._number = state.global_step
        self._seconds, self._waited = now - self._mark, self._began - self._mark
        self._mark, self._began, self._wall = now, None, time.time()
        seen = state.num_input_tokens_seen
        if seen > self._tokens:
            self._numbers["tokens"] = seen - self._tokens
        self._tokens = seen

    @quietly
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        """Take what is logged of the step that has just ended."""
        now = _clock()
        if self._number is None or not logs or "loss" not in logs:
            return
        self._seconds += now - self._mark
        self._mark = now
        for ours, theirs in _LOGGED:
            if theirs in logs:
                self._numbers[ours] = logs[theirs]

    @quietly
    def on_evaluate(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Leave the time of an evaluation out."""
        self._mark = _clock()

    @quietly
    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Tell a checkpoint, and leave its time out."""
        now = _clock()
        self._tell()
        if self._run is not None:
            self._run.log_checkpoint(seconds=now - self._mark)
        self._mark = now

    @quietly
    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Tell the last step, and the end."""
        self._tell()
        if self._run is not None:
            self._run.end()

    def _tell(self) -> None:
        if self._number is None or self._run is None:
            return
        told, self._numbers = self._numbers, {}
        self._run.log_step(
            self._number,
            seconds=self._seconds,
            phases={"data": self._waited},
            wall=self._wall,
            **told,
        )
        self._number = None


_LOGGED = (("loss", "loss"), ("gradient_norm", "grad_norm"), ("learning_rate", "learning_rate"))


def _facts(args: Any, state: Any, model: Any) -> dict[str, Any]:
    """Return what the Trainer's arguments say of a run."""
    several = args.world_size > 1
    facts: dict[str, Any] = {
        "name": _name(args),
        "rank": args.process_index if several else None,
        "world_size": args.world_size,
        "framework": "transformers",
        "micro_batch": args.train_batch_size,
        "micro_batches": args.gradient_accumulation_steps,
        "global_batch": args.train_batch_size * args.gradient_accumulation_steps * args.world_size,
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else None,
        "recompute": "full" if args.gradient_checkpointing else None,
        "last_step": state.max_steps if state.max_steps > 0 else None,
    }
    if model is not None:
        facts.update(_of_model(model))
    return facts


def _name(args: Any) -> str:
    """Return the run's name: as the environment says, as it was given, else that of its folder."""
    given = getattr(args, "run_name", None)
    if given == args.output_dir:  # so Transformers before 5 fills it in
        given = None
    folder = Path(args.output_dir or "run").name
    return str(os.environ.get("FLOPWATCH_RUN") or given or folder)


def _of_model(model: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    config = getattr(model, "config", None)
    if config is not None:
        facts["config"] = config.to_dict()
        facts["model"] = getattr(config, "name_or_path", "") or None
    sizes = [(_size(one), one.requires_grad) for one in model.parameters()]
    trained = sum(size for size, is_trained in sizes if is_trained)
    if 0 < trained < sum(size for size, _ in sizes):
        facts["trainable"] = "adapters"
        facts["adapter_parameters"] = trained
    return facts


def _size(parameter: Any) -> int:
    # DeepSpeed's ZeRO 3 leaves an empty tensor on each rank, and says how large it was.
    return int(getattr(parameter, "ds_numel", None) or parameter.numel())
