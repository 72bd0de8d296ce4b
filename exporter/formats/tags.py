"""What the names mean under which training jobs write their numbers for other tools.

TensorBoard tags, keys of MLflow and W&B, of `trainer_state.json`, families on a page of metrics:
the same names turn up in all of them, so there is one table. A row says which quantity a name is,
and by what it is multiplied to be in base units: here, once. A `Stream` makes steps out of what was
told at one step number after the other.

Not in the tables is what cannot be told apart: Megatron's timers (`forward-backward-time`) change
their unit with the version, NeMo's `global_batch_size` its meaning.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from exporter.training.records import PHASES, Facts, Record, Scope, Step


class Tag(NamedTuple):
    """A name, the quantity that it is, and the factor to base units.

    `field` is a field of `Step`, a phase (`phases.data`), or one of those below. An empty one says
    that the name is known, and is not what it looks like.
    """

    name: str
    field: str
    scale: float = 1.0


RATES = {"tokens_per_second": "tokens", "samples_per_second": "samples"}
"""Quantities of the whole run in a second, and what of a step they are, times its seconds."""

TOTALS = {
    "tokens_total": "tokens", "samples_total": "samples", "seconds_total": "seconds",
    "skipped_total": "skipped", "energy_total": "energy",
    **{f"total.{phase}": f"phases.{phase}" for phase in PHASES},
}  # fmt: skip
"""Quantities that grow from step to step, and what of a step their growth is."""

FACTS = ("world_size", "global_batch", "sequence_length", "micro_batch", "micro_batches")
"""Quantities that stay the same over a run: those of `Facts`."""

OTHERS = ("steps_per_second", "data_share", "evaluation")
"""Steps in a second; share of a step spent waiting for data; seconds of evaluation after a step."""

MS, TERA, GIB, PERCENT = 1e-3, 1e12, float(1 << 30), 1e-2

TABLES: Mapping[str, tuple[Tag, ...]] = {
    # arguments of writer.add_scalar in megatron/training/training.py
    "megatron": (
        Tag("iteration-time", "seconds"),
        Tag("lm loss", "loss"),
        Tag("learning-rate", "learning_rate"),
        Tag("grad-norm", "gradient_norm"),
        Tag("throughput", "flops", TERA),
        Tag("batch-size", "samples"),
        Tag("world-size", "world_size"),
        Tag("iter-energy/gpu", "energy"),
        Tag("mem-max-allocated-bytes", "memory_bytes"),
    ),
    "megatron-bridge": (
        Tag("throughput/tflops/device", "flops", TERA),
        Tag("throughput/tflops_per_device", "flops", TERA),
        Tag("consumed_train_samples", "samples_total"),
    ),
    "nemo": (
        Tag("train_step_timing in s", "seconds"),
        Tag("reduced_train_loss", "loss"),
        Tag("TFLOPS_per_GPU", "flops", TERA),
        Tag("tokens_per_sec_per_gpu", "tgs"),
        Tag("consumed_samples", "samples_total"),
    ),
    "torchtitan": (
        Tag("loss_metrics/global_avg_loss", "loss"),
        Tag("time_metrics/end_to_end(s)", "seconds"),
        # Its "(s)" beside it is the mean of one batch, of which a step may have several.
        Tag("time_metrics/data_loading(%)", "data_share", PERCENT),
        Tag("throughput(tps)", "tgs"),
        Tag("tflops", "flops", TERA),
        Tag("mfu(%)", "mfu", PERCENT),
        Tag("memory/max_reserved(GiB)", "memory_bytes", GIB),
        Tag("n_tokens_seen", "tokens_total"),
    ),
    "composer": (
        Tag("loss/train/total", "loss"),
        Tag("throughput/batches_per_sec", "steps_per_second"),
        Tag("throughput/samples_per_sec", "samples_per_second"),
        Tag("throughput/tokens_per_sec", "tokens_per_second"),
        Tag("throughput/device/tokens_per_sec", "tgs"),
        Tag("throughput/device/flops_per_sec", "flops"),
        Tag("throughput/device/mfu", "mfu"),
        Tag("time/token", "tokens_total"),
        Tag("time/sample", "samples_total"),
    ),
    "lightning": (
        Tag("device/mfu", "mfu"),
        Tag("device/flops_per_sec", "flops"),
        Tag("train_loss_step", "loss"),
    ),
    "maxtext": (
        Tag("perf/step_time_seconds", "seconds"),
        Tag("perf/per_device_tflops_per_sec", "flops", TERA),
        Tag("perf/per_device_tokens_per_sec", "tgs"),
        Tag("learning/loss", "loss"),
        Tag("learning/grad_norm", "gradient_norm"),
        Tag("learning/current_learning_rate", "learning_rate"),
    ),
    "nanotron": (
        Tag("time_per_iteration_ms", "seconds", MS),
        Tag("elapsed_time_per_iteration_ms", "seconds", MS),
        Tag("model_tflops_per_gpu", "flops", TERA),
        Tag("lm_loss", "loss"),
        Tag("consumed_tokens", "tokens_total"),
    ),
    "transformers": (
        # The mean over the whole training, at its end.
        Tag("train/train_loss", ""),
        # Set to nought at each start; evaluations lie in it.
        Tag("train_runtime", "seconds_total"),
        Tag("num_input_tokens_seen", "tokens_total"),
        Tag("eval/runtime", "evaluation"),
        Tag("eval_runtime", "evaluation"),
    ),
    "axolotl": (
        Tag("tokens/train_per_sec_per_gpu", "tgs"),
        Tag("tokens/total", "tokens_total"),
        Tag("memory/max_active (GiB)", "memory_bytes", GIB),
    ),
    # Names that many scripts use. A rate without "per GPU" in its name is that of the whole run.
    "": (
        Tag("step_time", "seconds"),
        Tag("step_time_seconds", "seconds"),
        Tag("step_seconds", "seconds"),
        Tag("step_time_s", "seconds"),
        Tag("iteration_time", "seconds"),
        Tag("step_time_ms", "seconds", MS),
        Tag("iteration_time_ms", "seconds", MS),
        Tag("seconds_per_step", "seconds"),
        Tag("steps_per_second", "steps_per_second"),
        Tag("steps_per_sec", "steps_per_second"),
        Tag("loss", "loss"),
        Tag("train_loss", "loss"),
        Tag("grad_norm", "gradient_norm"),
        Tag("gradient_norm", "gradient_norm"),
        Tag("lr", "learning_rate"),
        Tag("learning_rate", "learning_rate"),
        Tag("tokens_per_second_per_gpu", "tgs"),
        Tag("tokens_per_gpu_per_second", "tgs"),
        Tag("tgs", "tgs"),
        Tag("tokens_per_second", "tokens_per_second"),
        Tag("tokens_per_sec", "tokens_per_second"),
        Tag("samples_per_second", "samples_per_second"),
        Tag("samples_per_sec", "samples_per_second"),
        Tag("tokens_per_step", "tokens"),
        Tag("samples_per_step", "samples"),
        Tag("tflops_per_gpu", "flops", TERA),
        Tag("tflops_per_device", "flops", TERA),
        Tag("mfu", "mfu"),
        Tag("data_time", "phases.data"),
        Tag("data_seconds", "phases.data"),
        Tag("forward_time", "phases.forward"),
        Tag("forward_seconds", "phases.forward"),
        Tag("backward_time", "phases.backward"),
        Tag("backward_seconds", "phases.backward"),
        Tag("optimizer_time", "phases.optimizer"),
        Tag("optimizer_seconds", "phases.optimizer"),
        Tag("world_size", "world_size"),
        Tag("sequence_length", "sequence_length"),
        Tag("global_batch_size", "global_batch"),
    ),
}

_KNOWN = {
    tag.name: (rank, framework, tag)
    for rank, (framework, tag) in reversed(
        list(enumerate((framework, tag) for framework, tags in TABLES.items() for tag in tags))
    )
}
_PREFIXES = ("train/", "training/", "train.", "perf/", "metrics/")

_MAY_DIVERGE = frozenset(("loss", "gradient_norm"))
_ANY_SIGN = frozenset(("loss", "learning_rate"))
_MOST_FLOPS = 1e17
"""Ten times what any accelerator can do: MaxText's step that was not waited for says more."""
_LARGEST_FACT = 1e12
_LARGEST = 1e30
"""Beyond any quantity, and small enough for the product of two."""
_MOST_STEPS = 1 << 53


def known(name: str) -> bool:
    """Tell whether a name means something here."""
    found = _find(name)
    return found is not None and found[2].field != ""


def fact(name: str) -> bool:
    """Tell whether a name is that of something that stays the same over a run."""
    found = _find(name)
    return found is not None and found[2].field in FACTS


def _find(name: str) -> tuple[int, str, Tag] | None:
    if (found := _KNOWN.get(name)) is not None:
        return found
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return _KNOWN.get(name[len(prefix) :])
    return None


class Reading(NamedTuple):
    """What names and numbers say together: quantities in base units, and who writes such names.

    `nonsense` are those that no quantity can be, as text for the operator.
    """

    values: Mapping[str, float]
    framework: str
    nonsense: tuple[str, ...]


def read(values: Mapping[str, float]) -> Reading:
    """Return what is known of `values`; of two names for one quantity the first row counts."""
    best: dict[str, tuple[int, float]] = {}
    framework, nonsense = "", []
    for name, value in values.items():
        found = _find(name)
        if found is None or not found[2].field:
            continue
        rank, writer, (_, field, scale) = found
        framework = framework or writer
        number = value * scale
        if not sound(field, number):
            nonsense.append(f"{name} = {value:g}")
        elif field not in best or rank < best[field][0]:
            best[field] = rank, number
    return Reading({field: one for field, (_, one) in best.items()}, framework, tuple(nonsense))


def sound(field: str, number: float) -> bool:
    """Tell whether a quantity can be that."""
    if not math.isfinite(number):
        return field in _MAY_DIVERGE
    if field == "flops" and number > _MOST_FLOPS:
        return False
    if field in FACTS and (number > _LARGEST_FACT or number % 1):
        return False
    return 0 <= number < _LARGEST or field in _ANY_SIGN


class Stream:
    """Makes steps out of what one writer told, one step number after the other.

    `run`, `rank`, `scope` and `attempt` go into each record. A stream that `began` knows that
    nothing was told before its first step, so that totals have grown from nought. Another attempt
    is another stream: a number that does not grow is refused with `ValueError`.
    """

    def __init__(
        self,
        run: str,
        *,
        attempt: str = "",
        rank: int | None = None,
        scope: Scope = "run",
        began: bool = False,
    ) -> None:
        self.run = run
        self.rank = rank
        self.scope: Scope = scope
        self.attempt = attempt
        self.last: int | None = 0 if began else None
        self.nonsense: list[str] = []
        self._totals: dict[str, tuple[int, float]] = (
            dict.fromkeys(TOTALS, (0, 0.0)) if began else {}
        )
        self._evaluation = 0.0
        self._facts: dict[str, Any] = {}
        self._told_facts = False

    def step(self, number: int, values: Mapping[str, float], wall: float | None) -> list[Record]:
        """Return what a step number's names and values say; nothing if no name is known.

        What makes no sense is left out and noted in `nonsense`.
        """
        reading = read(values)
        self.nonsense += (f"step {number}: {one}" for one in reading.nonsense)
        return self.tell(number, reading, wall)

    def facts(self, values: Mapping[str, float]) -> list[Record]:
        """Return what names and values say of the run as a whole, if it is new."""
        reading = read(values)
        return list(self._facts_of(dict(reading.values), reading.framework))

    def tell(self, number: int, reading: Reading, wall: float | None) -> list[Record]:
        """Return a step, and facts where there are new ones."""
        if not 0 <= number <= _MOST_STEPS or (self.last is not None and number < self.last):
            raise ValueError(f"step {number} after step {self.last}")
        told = dict(reading.values)
        records: list[Record] = list(self._facts_of(told, reading.framework))
        evaluation = told.pop("evaluation", None)
        if told:
            steps = max(1, number - self.last) if self.last is not None else 1
            self._resolve(number, told)
            wanted = {k: v for k, v in told.items() if k in _STEP_FIELDS and k != "skipped"}
            phases = {k[7:]: v for k, v in told.items() if k.startswith("phases.")}
            skipped = min(round(told.get("skipped", 0.0) * steps), steps)
            records.append(
                Step(
                    run=self.run, step=number, rank=self.rank, attempt=self.attempt, steps=steps,
                    scope=self.scope, wall=wall, phases=phases,
                    skipped=skipped, **wanted,
                )
            )  # fmt: skip
            self.last = number
            self._evaluation = 0.0
        # Evaluated is after the step that has the same number.
        self._evaluation += evaluation or 0.0
        return records

    def _resolve(self, number: int, told: dict[str, float]) -> None:
        """Turn totals, and rates, into what they are of one step."""
        rates = {one: told.pop(one) for one in RATES if one in told}
        pace = told.pop("steps_per_second", 0.0)
        for total, field in TOTALS.items():
            if (value := told.pop(total, None)) is None:
                continue
            since = self._totals.get(total)
            self._totals[total] = number, value
            if since is None or number <= since[0] or field in told:
                continue
            grown = value - since[1] - (self._evaluation if field == "seconds" else 0.0)
            # Less than before: counted anew from a restart on.
            if grown >= 0 and value >= since[1]:
                told[field] = grown / (number - since[0])
        if pace > 1 / _LARGEST:
            told.setdefault("seconds", 1 / pace)
        share = told.pop("data_share", None)
        if seconds := told.get("seconds"):
            if share is not None and share <= 1:
                told.setdefault("phases.data", share * seconds)
            for rate, field in RATES.items():
                if rate in rates:
                    told.setdefault(field, rates[rate] * seconds)

    def _facts_of(self, told: dict[str, float], framework: str) -> Iterator[Facts]:
        """Yield all facts so far, if there are new ones among the quantities; take those out."""
        new: dict[str, Any] = {"framework": framework} if framework else {}
        for one in FACTS:
            if number := told.pop(one, None):
                new[one] = int(number)
        if not self._facts.items() >= new.items() or (self._facts and not self._told_facts):
            self._facts |= new
            self._told_facts = True
            yield Facts(run=self.run, **self._facts)

    def plain(self) -> list[object]:
        """Return what is to be remembered, as JSON can hold it."""
        totals = {total: list(since) for total, since in self._totals.items()}
        return [self.attempt, self.last, totals, self._facts]

    def restore(self, plain: Any) -> None:
        """Go on where another stream was. Raises `TypeError` or `ValueError` for nonsense."""
        attempt, last, totals, facts = plain
        if not isinstance(attempt, str) or not isinstance(last, int | None):
            raise TypeError("not what a stream has remembered")
        self._totals = {str(k): (int(step), float(v)) for k, (step, v) in totals.items()}
        self._facts = {str(k): v for k, v in facts.items() if k in (*FACTS, "framework")}
        self.attempt, self.last = attempt, last


_STEP_FIELDS = frozenset(one.name for one in dataclasses.fields(Step)) - {
    "run", "step", "rank", "attempt", "steps", "scope", "wall", "phases",
}  # fmt: skip


class Sheet:
    """Collects values that come one by one, until all of a step number are there.

    A number is complete when a higher one was told of. Of values of one name and number the first
    counts: the HF Trainer writes its totals once more at the end. A name that comes with a lower
    number than before is a restart, which `put` tells by `False`; what comes for a number that is
    complete is too late, and passed over. `most` numbers are kept open.
    """

    def __init__(self, most: int = 4096) -> None:
        self._open: dict[int, dict[str, float]] = {}
        self._walls: dict[int, float] = {}
        self._most = most
        self.last: dict[str, int] = {}
        self.taken = -1

    def put(self, number: int, name: str, value: float, wall: float | None) -> bool:
        """Note a value; `False` if it belongs to another attempt, and was not noted."""
        if number < self.last.get(name, -1):
            return False
        self.last[name] = number
        if number <= self.taken:
            return True
        self._open.setdefault(number, {}).setdefault(name, value)
        if wall is not None:
            self._walls[number] = max(wall, self._walls.get(number, wall))
        if len(self._open) > self._most:
            oldest = min(self._open)
            del self._open[oldest]
            self._walls.pop(oldest, None)
        return True

    def take(
        self, below: int | None = None, *, last: bool = False
    ) -> Iterator[tuple[int, Mapping[str, float], float | None]]:
        """Yield number, values and time of what is complete, lowest first, and forget it.

        Without `below` the highest number is not complete, unless it is the `last`.
        """
        limit = self.highest if below is None else below
        for number in sorted(self._open):
            if last or number < limit:
                self.taken = number
                yield number, self._open.pop(number), self._walls.pop(number, None)

    def plain(self) -> list[object]:
        """Return what is to be remembered, as JSON can hold it."""
        # JSON has no word for what is not finite; `float` reads it from text.
        open_ = [
            [
                step,
                {k: v if math.isfinite(v) else str(v) for k, v in values.items()},
                self._walls.get(step),
            ]
            for step, values in self._open.items()
        ]
        return [self.taken, self.last, open_]

    def restore(self, plain: Any) -> None:
        """Go on where another sheet was. Raises `TypeError` or `ValueError` for nonsense."""
        taken, last, open_ = plain
        self.taken = int(taken)
        self.last = {str(name): int(step) for name, step in last.items()}
        for step, values, wall in open_[: self._most]:
            self._open[int(step)] = {str(name): float(value) for name, value in values.items()}
            if wall is not None:
                self._walls[int(step)] = float(wall)

    @property
    def highest(self) -> int:
        """The highest number that is open, -1 if none is."""
        return max(self._open, default=-1)
