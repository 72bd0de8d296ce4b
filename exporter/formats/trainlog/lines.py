"""What one line of a training log says, for each framework that prints one.

Shapes as printed by Megatron-LM, Megatron-DeepSpeed, Megatron-Bridge, Primus, NeMo 2, torchtitan,
Transformers' Trainer, Axolotl, DeepSpeed, Composer (LLM Foundry), nanotron and MaxText. Units are
converted here, to those of `training.records`. A number that no machine can have reached (MaxText
prints 917442 TFLOP/s where a step was dispatched and not waited for) is left out and named in
`nonsense`; a 0 where only more than 0 makes sense means "not known" and is just left out.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.formats.trainlog.text import number, whole
from exporter.training.records import MomentKind

FRAMEWORKS = (
    "megatron", "nemo", "torchtitan", "transformers", "deepspeed", "composer", "nanotron",
    "maxtext", "plain",
)  # fmt: skip
"""Families of log lines. Forks and children print as their family does: Megatron-DeepSpeed,
Megatron-Bridge and Primus as megatron, Axolotl as transformers, LLM Foundry as composer. `plain` is
what many a loop of one's own prints: `step 5 | loss 6.35 | step_time 35.9 ms | tokens/s 28510`."""

_TERA = 1e12
_GIB = float(1 << 30)


@dataclass(frozen=True, slots=True)
class StepLine:
    """A line about a step. `values` has `Step`'s fields by name, `sums` what the job added up.

    `step` is `None` where the line does not say which one it was. `rates` are per second and for
    all ranks together: samples, tokens.
    """

    family: str
    framework: str
    step: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, int] = field(default_factory=dict)
    sums: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    nonsense: tuple[str, ...] = ()


class Heading(NamedTuple):
    """The first line of a block that tells of a step (Composer): its number if that is sure."""

    step: int | None


class Timer(NamedTuple):
    """A line of Megatron's timers: the fastest and the slowest rank, in seconds."""

    name: str
    low: float
    high: float


class Extreme(NamedTuple):
    """The fastest or the slowest rank that Megatron's straggler detection names, anywhere."""

    slowest: bool
    rank: int
    seconds: float


class Note(NamedTuple):
    """Something that happened; `pending`: it is only known to have happened once a step follows."""

    kind: MomentKind
    step: int | None = None
    seconds: float | None = None
    detail: str = ""
    pending: bool = False


class Told(NamedTuple):
    """Facts that a line states outright, named as in `Facts`."""

    family: str
    facts: Mapping[str, int | str]


class Argument(NamedTuple):
    """An argument of Megatron that says of what shape the model is, as it is printed."""

    name: str
    value: str


class Arguments(NamedTuple):
    """Megatron's list of all arguments begins, or ends."""

    ends: bool


class Evaluated(NamedTuple):
    """An evaluation took so many seconds between two steps (Transformers)."""

    seconds: float


class Summary(NamedTuple):
    """What Transformers says at the end of a training: of all its steps."""

    framework: str
    seconds: float | None
    steps: int | None
    samples: float | None


class Bar(NamedTuple):
    """A progress bar without a description: steps done and in all."""

    done: int
    total: int


Found = (
    StepLine
    | Heading
    | Timer
    | Extreme
    | Note
    | Told
    | Argument
    | Arguments
    | Evaluated
    | Summary
    | Bar
)

# ---------------------------------------------------------------- numbers that make sense

_MOST = {
    "seconds": 1e6, "tokens": 1e13, "tgs": 1e9, "samples": 1e9, "flops": 1e17, "mfu": 10.0,
    "energy": 1e9, "memory_bytes": 1e14, "skipped": 1e9,
}  # fmt: skip
_MEASURED_TOGETHER = ("flops", "seconds", "tgs", "mfu")
"""All of them come from one measurement of time: where one is nonsense, so are the others."""


def sensible(values: Mapping[str, float | None]) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return the values that can be true, and the names of those that cannot."""
    good: dict[str, float] = {}
    bad: list[str] = []
    for name, value in values.items():
        if value is None:
            continue
        if name in ("loss", "gradient_norm"):
            fine = not math.isfinite(value) or abs(value) < 1e30
        elif name == "learning_rate":
            fine = math.isfinite(value) and abs(value) < 1e6
        else:
            if value == 0:
                continue
            fine = 0 < value <= _MOST[name]
        if name == "gradient_norm" and value < 0:
            fine = False
        if fine:
            good[name] = value
        else:
            bad.append(f"{name} {value:g}")
    if any(said.split()[0] in _MEASURED_TOGETHER for said in bad):
        for name in _MEASURED_TOGETHER:
            good.pop(name, None)
    return good, tuple(bad)


def ranks(total: float | None, each: float | None, error: float) -> int | None:
    """Return how many ranks make a total of what each has, if the numbers leave no doubt.

    `error` is the relative error of the quotient.
    """
    if not total or not each or not (math.isfinite(total) and math.isfinite(each)):
        return None
    found = total / each
    if not 0.9 < found < 1e7 or found * error > 0.3:
        return None
    nearest = round(found)
    return nearest if abs(found - nearest) <= max(found * error, 1e-3) else None


# ---------------------------------------------------------------- Megatron and its forks

_MEGATRON = re.compile(r"iteration[= ]\s*(\d{1,15})\s*/\s*(\d{1,15})\s*\|(.*)")
_TGS = (
    "tokens/sec/gpu", "tokens per gpu (tokens/s/gpu)", "tokens/s/gpu inst/harmonic mean",
    "tokens per gpu per second (tgs)", "tokens per gpu per second tgs", "tokens/s/gpu",
)  # fmt: skip
_FLOPS = (
    "throughput per gpu (tflop/s/gpu)", "compute per gpu (tflop/s/gpu)", "[lm]tflops", "tflops",
)  # fmt: skip
_MILLISECONDS = ("elapsed time per iteration (ms)", "elapsed time per iteration ms")
_SECONDS = ("elapsed time per iteration (s)", "elapsed time per iteration s")
_PRIMUS = {"tokens per gpu (tokens/s/gpu)", "tokens/s/gpu inst/harmonic mean"}
_DEEPSPEED_FORK = {"samples per second", "tokens per gpu per second (tgs)", "[lm]tflops"}


def _pairs(text: str) -> dict[str, str]:
    """Return `key: value` or `key=value` pieces between bars; keys in small letters and blanks."""
    found: dict[str, str] = {}
    for piece in text.split("|"):
        at = min((i for i in (piece.find(":"), piece.find("=")) if i >= 0), default=-1)
        if at > 0:
            found[piece[:at].strip().lower().replace("_", " ")] = piece[at + 1 :].strip()
    return found


def _first(pairs: Mapping[str, str], names: tuple[str, ...], scale: float = 1.0) -> float | None:
    """Return the first of these that is a number."""
    for name in names:
        if name in pairs and (value := number(pairs[name])) is not None:
            return value * scale
    return None


def _starting(pairs: Mapping[str, str], beginning: str) -> float | None:
    return next((number(text) for key, text in pairs.items() if key.startswith(beginning)), None)


def _megatron(text: str) -> Iterator[Found]:
    match = _MEGATRON.search(text)
    if match is None:
        return
    pairs = _pairs(match[3])
    if not pairs.keys() & {*_MILLISECONDS, *_SECONDS, "consumed samples", "lm loss"}:
        return
    batch, length = _first(pairs, ("global batch size",)), _first(pairs, ("actual seqlen",))
    tgs, rate = _first(pairs, _TGS), _first(pairs, ("samples per second",))
    seconds = _first(pairs, _MILLISECONDS, 1e-3)
    values, nonsense = sensible(
        {
            "seconds": _first(pairs, _SECONDS) if seconds is None else seconds,
            "samples": batch,
            "tokens": batch * length if batch and length else None,
            "tgs": tgs,
            "flops": _first(pairs, _FLOPS, _TERA),
            "loss": _first(pairs, ("lm loss", "loss")),
            "gradient_norm": _first(pairs, ("grad norm",)),
            "learning_rate": _first(pairs, ("learning rate",)),
            "energy": _starting(pairs, "energy per gpu"),
            "skipped": _first(pairs, ("number of skipped iterations",)),
        }
    )
    facts = {"last_step": int(match[2]), "global_batch": batch, "sequence_length": length}
    if rate and length and tgs:
        facts["world_size"] = ranks(rate * length, tgs, 5e-4 / rate + 5e-4 / tgs)
    yield StepLine(
        "megatron", _dialect(pairs), int(match[1]), values, _counts(facts), nonsense=nonsense,
        sums=_known({"samples": _first(pairs, ("consumed samples",))}),
    )  # fmt: skip


def _dialect(pairs: Mapping[str, str]) -> str:
    if pairs.keys() & _PRIMUS:
        return "primus"
    return "megatron-deepspeed" if pairs.keys() & _DEEPSPEED_FORK else "megatron-lm"


def _counts(facts: Mapping[str, float | None]) -> dict[str, int]:
    """Return those facts that are whole numbers above 0."""
    return {
        name: int(value)
        for name, value in facts.items()
        if value is not None and math.isfinite(value) and 0 < value < 1e15 and value == int(value)
    }


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    return {
        name: value for name, value in values.items() if value is not None and 0 <= value < math.inf
    }


_BRIDGE = re.compile(
    r"Step Time : ([\d.]{1,20})s GPU utilization: ([\d.,]{1,20})\s?(?:MODEL_)?TFLOP/s/GPU"
)


def _bridge(text: str) -> Iterator[Found]:
    """Yield what Megatron-Bridge says beside Megatron's line; its "utilization" is FLOP/s."""
    if (match := _BRIDGE.search(text)) is None:
        return
    flops = number(match[2])
    values, bad = sensible({
        "seconds": number(match[1]), "flops": None if flops is None else flops * _TERA,
    })  # fmt: skip
    yield StepLine("megatron", "megatron-bridge", None, values, nonsense=bad)


def _primus(text: str) -> Iterator[Found]:
    """Yield Primus' own figures where they stand on a line of their own."""
    if "iteration" in text or "tps:" in text:
        return
    pairs = _pairs(text)
    values, bad = sensible({"tgs": _first(pairs, _TGS), "flops": _first(pairs, _FLOPS, _TERA)})
    if values or bad:
        yield StepLine("megatron", "primus", None, values, nonsense=bad)


_TIMER = re.compile(r"([A-Za-z][\w/-]{1,60})\s\.{2,}:\s*\(([\d.]{1,20}),\s*([\d.]{1,20})\)")
_ARGUMENT = re.compile(r"(?:^|\s)([a-z][a-z0-9_]{2,60}) \.{3,} (\S{1,40})\s*$")
_ARGUMENTS: Mapping[str, str] = {
    "seq_length": "sequence_length",
    "global_batch_size": "global_batch",
    "micro_batch_size": "micro_batch",
    "world_size": "world_size",
    "data_parallel_size": "data_parallel",
    "tensor_model_parallel_size": "tensor_parallel",
    "pipeline_model_parallel_size": "pipeline_parallel",
    "virtual_pipeline_model_parallel_size": "virtual_stages",
    "context_parallel_size": "context_parallel",
    "expert_model_parallel_size": "expert_parallel",
    "train_iters": "last_step",
    "train_batch_size": "global_batch",
}


_VALUE = re.compile(r"(?:^|\s)([a-z][a-z0-9_]{2,60}) \.{3,60} ([^\n]{1,2000})$")
_SHAPE_PREFIXES = (
    "hybrid_", "is_hybrid", "mamba_", "linear_attention", "moe_", "num_", "qk_", "recompute_",
    "window_", "heterogeneous_", "experimental_attention", "kv_", "q_lora", "untie_",
)  # fmt: skip
_SHAPE = frozenset((
    "add_bias_linear", "add_qkv_bias", "attention_output_gate", "ffn_hidden_size",
    "gated_linear_unit", "group_query_attention", "hidden_size", "make_vocab_size_divisible_by",
    "max_position_embeddings", "mtp_num_layers", "multi_latent_attention", "normalization",
    "padded_vocab_size", "position_embedding_type", "seq_length", "softmax_type", "swiglu",
    "tensor_model_parallel_size", "use_rotary_position_embeddings", "v_head_dim", "vocab_size",
))  # fmt: skip


def _shape(text: str) -> Iterator[Found]:
    """Yield an argument about the model's shape, within Megatron's list of them or not."""
    match = _VALUE.search(text) if len(text) < _LONGEST_LITERAL else None
    if match is not None and (match[1] in _SHAPE or match[1].startswith(_SHAPE_PREFIXES)):
        yield Argument(match[1], match[2].strip())


def _list(text: str) -> Iterator[Found]:
    if "-- arguments --" in text:
        yield Arguments(ends=False)
    elif "-- end of arguments --" in text:
        yield Arguments(ends=True)


def _timers(text: str) -> Iterator[Found]:
    for match in _TIMER.finditer(text):
        low, high = number(match[2]), number(match[3])
        if low is not None and high is not None and 0 <= low <= high < 1e9:
            yield Timer(match[1], low / 1e3, high / 1e3)


def _argument(text: str) -> Iterator[Found]:
    """Yield an argument as Megatron and DeepSpeed list them at the start: name, dots, value."""
    match = _ARGUMENT.search(text[-200:])
    if match is None:
        return
    name, value = match.groups()
    if name == "recompute_granularity" and value in ("full", "selective"):
        yield Told("", {"recompute": value})
    elif name in _ARGUMENTS and (count := whole(value)) is not None and count > 0:
        yield Told("", {_ARGUMENTS[name]: count})


_SIZES = re.compile(r"using world size: (\d{1,9})(.*)")
_SIZE = re.compile(r"(data-parallel|context-parallel|tensor-model-parallel|pipeline-model-parallel)"
                   r" size: (\d{1,9})")  # fmt: skip
_DIMENSIONS = {
    "data-parallel": "data_parallel", "context-parallel": "context_parallel",
    "tensor-model-parallel": "tensor_parallel", "pipeline-model-parallel": "pipeline_parallel",
}  # fmt: skip


def _sizes(text: str) -> Iterator[Found]:
    if (match := _SIZES.search(text)) is None:
        return
    facts = {"world_size": int(match[1])}
    facts |= {_DIMENSIONS[name]: int(size) for name, size in _SIZE.findall(match[2])}
    yield Told("megatron", {name: size for name, size in facts.items() if size > 0})


_STRAGGLER = re.compile(r"\b(Mn|Mx)Rtt/Rnk: ([\d.]{1,20})ms/(\d{1,7})\b")


def _straggler(text: str) -> Iterator[Found]:
    """Yield the time of a step of the fastest and of the slowest rank."""
    for which, value, rank in _STRAGGLER.findall(text):
        good, _ = sensible({"seconds": (number(value) or 0) / 1e3})
        if good:
            yield Extreme(which == "Mx", int(rank), good["seconds"])


# ---------------------------------------------------------------- NeMo, nanotron, torchtitan

_NEMO = re.compile(r"Training epoch (\d{1,9}), iteration (\d{1,15})/(\d{1,15}) \|(.*)")


def _nemo(text: str) -> Iterator[Found]:
    if (match := _NEMO.search(text)) is None:
        return
    epoch, step, last = int(match[1]), int(match[2]), int(match[3])
    pairs = _pairs(match[4])
    batch = _first(pairs, ("global batch size",))
    values, bad = sensible(
        {
            "seconds": _first(pairs, ("train step timing in s",)),
            "samples": batch,
            "tgs": _first(pairs, ("tokens per sec per gpu",)),
            "flops": _first(pairs, ("tflops per gpu",), _TERA),
            "loss": _first(pairs, ("reduced train loss",)),
            "gradient_norm": _first(pairs, ("grad norm",)),
            "learning_rate": _first(pairs, ("lr",)),
            "memory_bytes": _first(pairs, ("max memory allocated", "peak memory usage")),
        }
    )
    told = whole(pairs.get("global step", ""))
    number_ = told if told is not None else epoch * (last + 1) + step
    facts = _counts({"global_batch": batch, "last_step": last if epoch == 0 else None})
    yield StepLine("nemo", "nemo", number_, values, facts, nonsense=bad)


_NANOTRON = re.compile(r"iteration: (\d{1,15}) / (\d{1,15}) \| (.*)")
_NANOTRON_ERROR = 0.005
"""Three digits are printed."""


def _nanotron(text: str) -> Iterator[Found]:
    if (match := _NANOTRON.search(text)) is None:
        return
    pairs = _pairs(match[3])
    tgs = _first(pairs, ("tokens per sec per gpu",))
    values, bad = sensible(
        {
            "seconds": _first(
                pairs, ("time per iteration ms", "elapsed time per iteration ms"), 1e-3
            ),
            "tgs": tgs,
            "flops": _first(pairs, ("model tflops per gpu",), _TERA),
            "loss": _first(pairs, ("lm loss",)),
            "gradient_norm": _first(pairs, ("grad norm",)),
            "learning_rate": _first(pairs, ("lr",)),
            "memory_bytes": _first(pairs, ("cuda max memory reserved",)),
        }
    )
    world = ranks(_first(pairs, ("tokens per sec",)), tgs, 2 * _NANOTRON_ERROR)
    facts = _counts({"last_step": int(match[2]), "world_size": world})
    yield StepLine("nanotron", "nanotron", int(match[1]), values, facts, nonsense=bad)


_TITAN = re.compile(r"\bstep:\s*(\d{1,15})\b(.*)")
_TITAN_PAIR = re.compile(r"\b(loss|grad_norm|memory|tps|tflops|mfu):\s*(\S{1,40})")


def _torchtitan(text: str) -> Iterator[Found]:
    match = _TITAN.search(text)
    if match is None:
        return
    pairs = dict(_TITAN_PAIR.findall(match[2]))
    if "tps" not in pairs or (number(pairs["tps"]) is None and "tflops" not in pairs):
        return
    memory = pairs.get("memory", "")
    share = number(pairs.get("mfu", ""))
    values, bad = sensible(
        {
            "tgs": number(pairs["tps"]),
            "flops": _first(pairs, ("tflops",), _TERA),
            "mfu": share / 100 if share is not None and "%" in pairs["mfu"] else None,
            "loss": number(pairs.get("loss", "")),
            "gradient_norm": number(pairs.get("grad_norm", "")),
            "memory_bytes": (number(memory) or 0) * _GIB if "GiB" in memory else None,
        }
    )
    yield StepLine("torchtitan", "torchtitan", int(match[1]), values, nonsense=bad)


_TITAN_BATCH = re.compile(
    r"Trainer is initialized with local batch size (\d{1,9}), global batch size (\d{1,9})"
    r"(.{0,200})"
)
_TITAN_MESH = re.compile(r"Building device mesh with parallelism: (.{1,200})")
_TITAN_DIMENSION = re.compile(r"\b(pp|dp_replicate|dp_shard|cp|tp|ep)=(\d{1,9})")


def _titan_start(text: str) -> Iterator[Found]:
    if (match := _TITAN_BATCH.search(text)) is not None:
        facts = {"micro_batch": int(match[1]), "global_batch": int(match[2])}
        for name, words in (("sequence_length", "sequence length"), ("last_step", "total steps")):
            if (size := re.search(rf"{words} (\d{{1,12}})", match[3])) is not None:
                facts[name] = int(size[1])
        yield Told("torchtitan", {name: size for name, size in facts.items() if size > 0})
    if (match := _TITAN_MESH.search(text)) is not None:
        sizes = {name: int(value) for name, value in _TITAN_DIMENSION.findall(match[1])}
        if {"pp", "dp_replicate", "dp_shard", "cp", "tp"} <= sizes.keys() and min(
            sizes.values()
        ) > 0:
            data = sizes["dp_replicate"] * sizes["dp_shard"]
            yield Told("torchtitan", {
                "pipeline_parallel": sizes["pp"], "data_parallel": data,
                "context_parallel": sizes["cp"], "tensor_parallel": sizes["tp"],
                "expert_parallel": sizes.get("ep", 1),
                "world_size": data * sizes["pp"] * sizes["cp"] * sizes["tp"],
            })  # fmt: skip


# ---------------------------------------------------------------- Transformers and Axolotl

_LONGEST_LITERAL = 16 << 10
_BARE = re.compile(r"(?<=: )(-?(?:nan|inf))(?=[,}])")
_UNREADABLE = (ValueError, SyntaxError, MemoryError, RecursionError, TypeError)


def _literal(text: str) -> dict[str, float]:
    """Return the numbers of a Python dictionary in a line; some versions print them as texts."""
    begin, end = text.find("{'"), text.rfind("}")
    if not 0 <= begin < end or end - begin > _LONGEST_LITERAL:
        return {}
    try:
        with warnings.catch_warnings():
            # Of what a job prints as if it were code, the compiler would complain to our own log.
            warnings.simplefilter("ignore")
            plain = ast.literal_eval(_BARE.sub(r"'\1'", text[begin : end + 1]))
    except _UNREADABLE:
        return {}
    if not isinstance(plain, dict):
        return {}
    found: dict[str, float] = {}
    for key, value in plain.items():
        if isinstance(value, str):
            value = number(value)  # noqa: PLW2901
        if isinstance(key, str) and isinstance(value, int | float) and not isinstance(value, bool):
            try:
                found[key] = float(value)
            except OverflowError:
                continue
    return found


def _transformers(text: str) -> Iterator[Found]:
    about = _literal(text)
    if not about:
        return
    axolotl = any(key.startswith(("tokens/", "memory/")) or key == "ppl" for key in about)
    framework = "axolotl" if axolotl else "transformers"
    if "train_loss" in about and "train_runtime" in about:
        yield _summary(framework, about)
    elif "eval_runtime" in about and 0 <= about["eval_runtime"] < 1e6:
        yield Evaluated(about["eval_runtime"])
    elif "loss" in about and about.keys() & {"grad_norm", "learning_rate", "epoch"}:
        memory = about.get("memory/max_allocated (GiB)", about.get("memory/max_active (GiB)"))
        values, bad = sensible(
            {
                "loss": about["loss"],
                "gradient_norm": about.get("grad_norm"),
                "learning_rate": about.get("learning_rate"),
                "tgs": about.get("tokens/train_per_sec_per_gpu"),
                "memory_bytes": None if memory is None else memory * _GIB,
            }
        )
        sums = _known(
            {
                "tokens": about.get("num_input_tokens_seen", about.get("tokens/total")),
                "seconds": about.get("train_runtime"),
            }
        )
        yield StepLine("transformers", framework, None, values, sums=sums, nonsense=bad)


def _summary(framework: str, about: Mapping[str, float]) -> Summary:
    """Return what the last dictionary says; its rates have so few digits that some say nothing."""
    seconds = about["train_runtime"]
    if not 0 < seconds < 1e9:
        return Summary(framework, None, None, None)
    per_second = about.get("train_steps_per_second", 0.0)
    steps = per_second * seconds
    exact = 0 < per_second < 1e9 and steps * max(5e-4 / per_second, 5e-4) < 0.5 <= steps
    samples = about.get("train_samples_per_second", 0.0) * seconds
    count = round(steps) if exact else None
    return Summary(
        framework, seconds, count, samples / count if count and 0 < samples < 1e12 else None
    )


_BAR = re.compile(r"^\s*\d{1,3}%\|[^|]{0,400}\|\s*(\d{1,12})/(\d{1,12}) \[[^\]]{3,80}(?:it/s|s/it)")


def read_bar(text: str) -> Bar | None:
    """Return what a progress bar without a description says, as Transformers prints it."""
    if (match := _BAR.match(text)) is None:
        return None
    done, total = int(match[1]), int(match[2])
    return Bar(done, total) if 0 < done <= total else None


_BANNER = {
    "Total optimization steps": "last_step",
    "Total train batch size (w. parallel, distributed & accumulation)": "global_batch",
}


def _banner(text: str) -> Iterator[Found]:
    """Yield what Trainer says before the first step, where its log level is info."""
    name, _, value = text.rpartition(" = ")
    for ending, fact in _BANNER.items():
        if name.endswith(ending) and (count := whole(value)) is not None and count > 0:
            yield Told("transformers", {fact: count})


# ---------------------------------------------------------------- DeepSpeed, Composer, MaxText

_DEEPSPEED = re.compile(
    r"(?:epoch=\d{1,9}/micro_step=\d{1,15}/global_step=|\b\d{1,9}/)(\d{1,15}), "
    r"RunningAvgSamplesPerSec=([\d.eE+-]{1,40}|nan|inf), "
    r"CurrSamplesPerSec=([\d.eE+-]{1,40}|nan|inf)"
    r"(?:.*?MaxMemAllocated=([\d.]{1,20})GB)?"
)
_DEEPSPEED_STEP = re.compile(r"\bstep=(\d{1,15}), skipped=(\d{1,15}), lr=\[([^\],]{1,40})")


def _deepspeed(text: str) -> Iterator[Found]:
    if (match := _DEEPSPEED.search(text)) is not None:
        rates = _known({"samples": number(match[3]) or number(match[2])})
        rates = {name: rate for name, rate in rates.items() if 0 < rate < 1e9}
        memory = number(match[4]) if match[4] else None
        values, bad = sensible({"memory_bytes": None if memory is None else memory * _GIB})
        yield StepLine(
            "deepspeed", "deepspeed", int(match[1]), values, rates=rates, nonsense=bad
        )  # fmt: skip
    elif (match := _DEEPSPEED_STEP.search(text)) is not None:
        values, bad = sensible({"learning_rate": number(match[3])})
        yield StepLine(
            "deepspeed", "deepspeed", int(match[1]), values,
            sums={"skipped": float(match[2])}, nonsense=bad,
        )  # fmt: skip


_HEADING = re.compile(r"(?:\[epoch=(\d{1,9})(?:/\d{1,9})?\])?\[batch=(\d{1,15})(?:/(\d{1,15}))?\]:")
_TRAIN = re.compile(r"\bTrain ([a-z][\w/-]{2,80}): +(\S{1,40})")
_COMPOSER = {
    "loss/train/total": "loss", "throughput/device/tokens_per_sec": "tgs",
    "throughput/device/mfu": "mfu", "throughput/device/flops_per_sec": "flops",
}  # fmt: skip
_COMPOSER_SUMS = {
    "time/batch": "steps", "time/sample": "samples", "time/token": "tokens",
    "time/train": "hours",
}  # fmt: skip
_COMPOSER_RATES = {
    "throughput/samples_per_sec": "samples", "throughput/tokens_per_sec": "tokens",
    "throughput/batches_per_sec": "steps",
}  # fmt: skip


def _composer(text: str) -> Iterator[Found]:
    if (match := _HEADING.search(text)) is not None:
        epoch, batch = int(match[1] or 1), int(match[2])
        size = int(match[3]) if match[3] else None
        # Within an epoch batches are counted anew.
        sure = match[1] is None or epoch == 1
        yield Heading(batch if sure else None if size is None else (epoch - 1) * size + batch)
    if (match := _TRAIN.search(text)) is not None and (value := number(match[2])) is not None:
        yield from _composer_value(match[1], value)


def _composer_value(name: str, value: float) -> Iterator[Found]:
    values: dict[str, float] = {}
    bad: tuple[str, ...] = ()
    if name in _COMPOSER:
        values, bad = sensible({_COMPOSER[name]: value})
    elif name == "memory/peak_reserved_mem":  # in gigabytes
        values, bad = sensible({"memory_bytes": value * 1e9})
    sums = _known({_COMPOSER_SUMS[name]: value}) if name in _COMPOSER_SUMS else {}
    rates = _known({_COMPOSER_RATES[name]: value}) if name in _COMPOSER_RATES else {}
    if values or bad or sums or rates:
        yield StepLine(
            "composer", "composer", None, values, sums=sums, rates=rates, nonsense=bad
        )  # fmt: skip


_MAXTEXT = re.compile(r"completed step: (\d{1,15}), (.*)")
_MAXTEXT_PAIR = re.compile(r"(?:^|, )(seconds|TFLOP/s/device|Tokens/s/device|total_weights|loss): "
                           r"([^,\s]{1,40})")  # fmt: skip


def _maxtext(text: str) -> Iterator[Found]:
    match = _MAXTEXT.search(text)
    if match is None:
        return
    pairs = dict(_MAXTEXT_PAIR.findall(match[2]))
    if "seconds" not in pairs:
        return
    values, bad = sensible(
        {
            "seconds": _first(pairs, ("seconds",)),
            "flops": _first(pairs, ("TFLOP/s/device",), _TERA),
            "tgs": _first(pairs, ("Tokens/s/device",)),
            # Those that count for the loss: padding is not among them.
            "tokens": _first(pairs, ("total_weights",)),
            "loss": _first(pairs, ("loss",)),
        }
    )
    yield StepLine("maxtext", "maxtext", int(match[1]), values, nonsense=bad)


# ---------------------------------------------------------------- loops of one's own

_PLAIN = re.compile(
    r"^\W{0,4}(?:\[[^\]]{0,60}\]:? ?)?step[ :=]+(\d{1,15})(?:\s*/\s*(\d{1,15}))?\s*\|(.*)"
)
_PLAIN_PAIR = re.compile(r"\s*([A-Za-z][\w/ ]{0,40}?)[ :=]+(\S{1,40}?)\s?(ms|s)?\s*$")
_PLAIN_NAMES = {
    "loss": "loss", "train_loss": "loss", "grad_norm": "gradient_norm", "norm": "gradient_norm",
    "lr": "learning_rate", "learning_rate": "learning_rate", "step_time": "seconds",
    "time": "seconds", "dt": "seconds", "tokens/s": "tokens", "tok/s": "tokens",
    "tokens/sec": "tokens", "tok/sec": "tokens", "tokens_per_second": "tokens",
}  # fmt: skip
_UNITS = {"ms": 1e-3, "s": 1.0}


def _plain(text: str) -> Iterator[Found]:
    """Yield a step of a loop that prints `step N | name value | ...`; times need their unit."""
    if (match := _PLAIN.match(text)) is None:
        return
    told: dict[str, float] = {}
    for piece in match[3].split("|")[:40]:
        pair = _PLAIN_PAIR.match(piece[:120])
        name = None if pair is None else _PLAIN_NAMES.get(pair[1].strip().lower())
        if pair is None or name is None or name in told or (value := number(pair[2])) is None:
            continue
        if name != "seconds" or pair[3] is not None:
            told[name] = value * (_UNITS[pair[3]] if name == "seconds" else 1)
    rates = {"tokens": tokens} if 0 < (tokens := told.pop("tokens", 0.0)) < 1e12 else {}
    values, bad = sensible(told)
    facts = {"last_step": int(match[2])} if match[2] and int(match[2]) > 0 else {}
    if "loss" in told:
        yield StepLine("plain", "", int(match[1]), values, facts, rates=rates, nonsense=bad)


# ---------------------------------------------------------------- what happens to a job


class _Sign(NamedTuple):
    """A line that tells of something that happened: `word` is part of it, groups are named."""

    word: str
    pattern: re.Pattern[str]
    kind: MomentKind
    pending: bool = False


def _sign(word: str, pattern: str, kind: MomentKind, *, pending: bool = False) -> _Sign:
    return _Sign(word, re.compile(pattern), kind, pending)


_STEP, _TIME = r"(?P<step>\d{1,15})", r"(?P<seconds>\d{1,9}\.\d{1,6})"
_SIGNS = (
    _sign("heckpoint", rf"successfully saved checkpoint from iteration\s+{_STEP}",
          "checkpoint_saved"),
    _sign("heckpoint", rf"Finished saving the checkpoint\b.{{0,60}}?in {_TIME}"
          " seconds", "checkpoint_saved"),
    _sign("heckpoint", rf"saved a checkpoint at step {_STEP}", "checkpoint_saved"),
    _sign("heckpoint", rf"checkpoint save for step {_STEP}\b.{{0,300}}finalized"
          " successfully", "checkpoint_saved"),
    _sign("heckpoint", rf"Checkpoint global_step{_STEP} is ready now", "checkpoint_saved"),
    _sign("heckpoint", rf"Saving model checkpoint to \S{{0,400}}checkpoint-{_STEP}\b",
          "checkpoint_saved", pending=True),
    _sign("heckpoint", rf"successfully loaded checkpoint from .{{1,500}} at iteration"
          rf"\s+{_STEP}", "checkpoint_loaded"),
    _sign("heckpoint", rf"Finished loading the checkpoint in {_TIME} seconds",
          "checkpoint_loaded"),
    _sign("raining ", rf"Training starts at step {_STEP}", "started"),
    _sign("raining ", r"before the start of training step", "started"),
    _sign("raining ", r"\*\*\*\*\* Running training \*\*\*\*\*", "started"),
    _sign("raining ", r"\bTraining completed\b", "ended"),
    _sign("raining ", r"after training is done", "ended"),
    _sign("Trainer", r"`Trainer\.fit` stopped: `max_", "ended"),
    _sign("ChildFailedError", r"torch\.distributed\.elastic\.multiprocessing\.errors\."
          r"ChildFailedError", "failed"),
    _sign("(exitcode: ", r"failed \(exitcode: -?(?!0\b)\d{1,3}\) local_rank", "failed"),
    _sign("Watchdog caught", r"Watchdog caught collective operation timeout", "failed"),
    _sign("exit code", r"srun: error: .{1,200} Exited with exit code (?!0\b)\d{1,3}",
          "failed"),
    _sign("CANCELLED", r"slurmstepd: error: \*\*\* (?:JOB|STEP) .{1,80} CANCELLED", "failed"),
)  # fmt: skip


def _notes(text: str) -> Iterator[Found]:
    for sign in _SIGNS:
        if sign.word in text and (match := sign.pattern.search(text)) is not None:
            about = match.groupdict()
            step, seconds = about.get("step"), about.get("seconds")
            yield Note(
                sign.kind, int(step) if step else None, float(seconds) if seconds else None,
                match[0][:80], sign.pending,
            )  # fmt: skip
            return


# ---------------------------------------------------------------- which reader for which line


class Reader(NamedTuple):
    """Who reads lines that hold one of `words`; `family` "" reads those of all frameworks."""

    family: str
    words: tuple[str, ...]
    read: Callable[[str], Iterator[Found]]


READERS = (
    # In this order: a line of NeMo or nanotron looks like one of Megatron too.
    Reader("nemo", ("raining ",), _nemo),
    Reader("nanotron", ("time_per_iteration",), _nanotron),
    Reader("megatron", ("time per iteration", "time_per_iteration"), _megatron),
    Reader("torchtitan", ("tps:",), _torchtitan),
    Reader("torchtitan", ("Trainer", "device mesh"), _titan_start),
    Reader("transformers", ("{'loss'", "_runtime':"), _transformers),
    Reader("transformers", ("Total optimization", "Total train batch"), _banner),
    Reader("maxtext", ("completed step:",), _maxtext),
    Reader("deepspeed", ("SamplesPerSec=", ", skipped="), _deepspeed),
    Reader("composer", ("[batch=", "Train "), _composer),
    Reader("megatron", ("/s/GPU",), _bridge),
    Reader("megatron", ("/s/GPU",), _primus),
    Reader("megatron", ("using world size",), _sizes),
    Reader("megatron", ("MnRtt/Rnk",), _straggler),
    Reader("plain", (" | loss",), _plain),
    Reader("", (" ....",), _argument),
    Reader("megatron", (" ....",), _shape),
    Reader("megatron", ("arguments --",), _list),
    Reader("", tuple(dict.fromkeys(sign.word for sign in _SIGNS)), _notes),
    Reader("megatron", (" ....",), _timers),
)  # fmt: skip


def read_line(text: str, family: str = "auto") -> list[Found]:
    """Return what a line says, nothing for most; `family` is one of `FRAMEWORKS` or `auto`.

    Never raises, whatever the line. A line about a step is read by the first reader that knows it.
    """
    found: list[Found] = []
    stepped = False
    for reader in READERS:
        if family != "auto" and reader.family not in ("", family):
            continue
        if not any(word in text for word in reader.words):
            continue
        if stepped and reader.family not in ("", "megatron"):
            continue
        said = [one for one in reader.read(text) if not (stepped and isinstance(one, StepLine))]
        stepped = stepped or any(isinstance(one, StepLine) for one in said)
        found += said
    return found
