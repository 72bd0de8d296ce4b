"""How much work it is to train on a token: FLOPs by convention, and parameters.

Frameworks count differently and call it by one name, so every figure here carries the name of its
convention. All count three forward passes (one forward, two backward) and two operations for a
multiply-add. They differ in the weights that count and in what attention is taken to see:

    name                weights                                     attention
    causal              matrix products on the token's path         half; windows at their mean
    full                the same                                    all tokens
    palm                all parameters that a token meets           all tokens
    6n                  the same                                    none

Those four are told of runs (`TOLD`); `CONVENTIONS` holds more, each as some framework prints it, so
that its figure can be checked. Products count an LM head even where it is tied to the embedding;
looking a token up costs nothing. What cannot be counted is refused with the reason (`ValueError`).

Recomputed work is told apart (`hardware`, for HFU). Full recomputation repeats the forward pass of
the layers, not of the head; selective the core of attention. Where a convention counts parameters
instead of products, full recomputation is a third more of all, as PaLM and llm-foundry have it.
That flash attention repeats a product in its backward pass is counted by nobody, and not here.

Sources: Chowdhery et al. 2022, appendix B; Narayanan et al. 2021, section 5; Korthikanti et al.
2022, appendix A; `num_floating_point_operations` of Megatron-LM and Megatron-Bridge.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

from exporter.reference.megatron import Arguments, is_megatron, read_arguments
from exporter.reference.models import Config, Models, ModelShape, read_config
from exporter.training.records import Facts

Recompute = Literal["none", "selective", "full"]
RECOMPUTES = ("none", "selective", "full")


class Convention(NamedTuple):
    """A way of counting: which weights, and how much of its context a token attends to.

    `weights` are `active` parameters, those `unembedded` (without an input embedding that is not
    the head too), `multiplied` in matrix products, or those and the `routed`. `attention` is none,
    full, causal, or causal with `windowed` layers honoured. With `depths` the layers that predict a
    token further on count. `total` counts all parameters, whoever meets them.
    """

    weights: Literal["total", "active", "unembedded", "multiplied", "routed"]
    attention: Literal["none", "full", "causal", "windowed"]
    depths: bool = False


TOLD = ("causal", "palm", "full", "6n")
"""The conventions that are told of a run; the first is the headline."""

CONVENTIONS: Mapping[str, Convention] = MappingProxyType(
    {
        "causal": Convention("multiplied", "windowed"),
        "palm": Convention("active", "full"),
        "full": Convention("multiplied", "full"),
        "6n": Convention("active", "none"),
        "6n_total": Convention("total", "none"),
        "palm_total": Convention("total", "full"),  # llm-foundry: 3 x (2N + 4 L h T)
        "torchtitan": Convention("unembedded", "full"),
        "causal_unwindowed": Convention("multiplied", "causal"),
        "causal_router": Convention("routed", "causal"),
        "products": Convention("multiplied", "none"),
        "causal_depths": Convention("multiplied", "windowed", depths=True),
        "full_depths": Convention("multiplied", "full", depths=True),
    }
)
"""All conventions by name. `full` of a GPT is Narayanan's 72 B s l h^2 (1 + s/6h + V/12lh), and
with full recomputation their 96 B s l h^2 (1 + s/6h + V/16lh)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is trained, and how: a model, lengths in tokens, and which part of it learns.

    `document_length` is what attention sees in packed batches: the sum of squares of the lengths
    over their sum. With `frozen` the model's own weights do not learn: no gradient of them is
    computed, and `adapter` parameters do. Layers below `first_trainable` see no backward pass.
    With `depths` the layers that predict a token further on are trained as well.
    """

    shape: ModelShape
    sequence_length: float | None = None
    document_length: float | None = None
    recompute: Recompute | None = None
    frozen: bool = False
    adapter: float = 0.0
    first_trainable: int = 0
    depths: bool = False

    def __post_init__(self) -> None:
        for name in ("sequence_length", "document_length"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}: a number above 0 is needed, not {value}")
        if (self.document_length or 0) > (self.sequence_length or math.inf):
            raise ValueError(f"document_length: {self.document_length} is longer than a sequence")
        if not 0 <= self.first_trainable <= self.shape.layers:
            raise ValueError(
                f"first_trainable: {self.first_trainable} of {self.shape.layers} layers"
            )
        if self.first_trainable and 0 < self.shape.expert_layers < self.shape.layers:
            raise ValueError(
                "first_trainable: layers with and without experts cannot be told apart"
            )

    @property
    def context(self) -> float | None:
        """The length that attention sees, in tokens."""
        return self.document_length or self.sequence_length


class Work(NamedTuple):
    """What a run's tokens cost: training FLOPs per token by convention, and parameters.

    `hardware` counts recomputed work too, and is empty where it is not known whether there is any.
    A convention that needs a length of context is absent where none is known. Parameters that the
    facts do not tell are `None`.
    """

    model: dict[str, float]
    hardware: dict[str, float]
    total_parameters: float | None = None
    active_parameters: float | None = None
    trainable_parameters: float | None = None


def count(facts: Facts, shapes: Models) -> Work:
    """Return the work of a run. Raises `ValueError` with the reason if it cannot be counted.

    The model is `facts.config` (keys of a HF config.json, or arguments of Megatron), else the one
    of the table that has the name `facts.model`. `flops_per_token` stands for the headline, and
    needs no model. Without a model `active_parameters` give `6n`.
    """
    given = facts.flops_per_token
    if given is not None and not 0 < given < math.inf:
        raise ValueError(f"flops_per_token: a number above 0 is needed, not {given}")
    try:
        task = _task(facts, shapes)
    except ValueError:
        if given is None and facts.active_parameters is None:
            raise
        task = None
    work = _plain_work(facts) if task is None else work_of(task)
    if given is None:
        return work
    hardware = {**work.hardware}
    hardware.pop(TOLD[0], None)
    if facts.recompute == "none":
        hardware[TOLD[0]] = given
    elif facts.recompute == "full":
        hardware[TOLD[0]] = given * _FULL
    return work._replace(model={**work.model, TOLD[0]: given}, hardware=hardware)


def work_of(task: Task) -> Work:
    """Return the work of a task in the conventions that are told of runs."""
    told = [name for name in TOLD if task.context is not None or _needs_no_length(name)]
    known = task.recompute is not None
    shape = task.shape
    extra = shape.depths * shape.depth_parameters if task.depths else 0
    own: float | None = task.adapter or None
    if not task.frozen:
        own = task.adapter + shape.parameters + extra if not task.first_trainable else None
    return Work(
        {name: token_flops(task, name) for name in told},
        {name: hardware_flops(task, name) for name in told} if known else {},
        total_parameters=shape.parameters + extra + task.adapter,
        active_parameters=shape.active_parameters + task.adapter,
        trainable_parameters=own,
    )


def token_flops(task: Task, convention: str) -> float:
    """Return the model FLOPs to train on one token. Raises `ValueError` if a length is missing."""
    parts = _parts(task, CONVENTIONS[convention])
    return parts.forward + parts.backward


def hardware_flops(task: Task, convention: str) -> float:
    """Return FLOPs with those that are done again in the backward pass.

    Raises `ValueError` where it is not known what is recomputed.
    """
    if task.recompute is None:
        raise ValueError("recompute: it is not known what is recomputed")
    rule = CONVENTIONS[convention]
    parts = _parts(task, rule)
    again = {"none": 0.0, "selective": parts.core, "full": parts.forward - parts.head}
    return parts.forward + parts.backward + again[task.recompute] * parts.reached


class _Parts(NamedTuple):
    """FLOPs of a token: of the forward pass, in it of the core of attention and of the head.

    And of the backward pass, with the share of layers that it reaches. A head that is not told
    apart counts as none.
    """

    forward: float
    core: float
    head: float
    backward: float
    reached: float


def _parts(task: Task, rule: Convention) -> _Parts:
    shape = task.shape
    products = rule.weights in ("multiplied", "routed")
    depths = shape.depths if rule.depths or task.depths else 0
    weights = _weights(shape, rule) + depths * shape.depth
    head = shape.head * (1 + depths) if products else 0
    core = shape.pair * _seen(task, rule, depths)
    reached = 1 - task.first_trainable / shape.layers
    # Gradients of the data, and of weights that learn; attention's core has no weights.
    gradients = 2 if task.frozen else 4
    backward = gradients * ((weights - head) * reached + head) + 2 * core * reached
    return _Parts(
        forward=2 * (weights + task.adapter) + core,
        core=core,
        head=2 * head,
        backward=backward + 4 * task.adapter,
        reached=reached,
    )


def _weights(shape: ModelShape, rule: Convention) -> float:
    match rule.weights:
        case "total":
            return shape.parameters
        case "active":
            return shape.active_parameters
        case "unembedded":
            return shape.unembedded
        case "multiplied":
            return shape.multiplied
    return shape.active


def _seen(task: Task, rule: Convention, depths: int) -> float:
    """Return the tokens that a token attends to, summed over layers."""
    if rule.attention == "none":
        return 0.0
    length = task.context
    if length is None:
        raise ValueError("sequence_length: without it attention cannot be counted")
    layers = task.shape.layers + depths
    if rule.attention == "full":
        return layers * length
    windowed = task.shape.windowed if rule.attention == "windowed" else 0
    return (layers - windowed) * length / 2 + windowed * mean_window(task.shape.window, length)


def mean_window(window: float, length: float) -> float:
    """Return how many tokens a token sees on average that sees the last `window` of `length`.

    Short of the window it is half the length, as where there is no window.
    """
    if not 0 < window < length:
        return length / 2
    return window - window * (window - 1) / (2 * length)


def _needs_no_length(name: str) -> bool:
    return CONVENTIONS[name].attention == "none"


def _task(facts: Facts, shapes: Models) -> Task | None:
    """Return what a run trains; nothing where no model is named."""
    given = Arguments(facts.config or {})
    shape = _shape(facts, shapes)
    if shape is None:
        if facts.model is None or facts.active_parameters or facts.flops_per_token:
            return None
        raise ValueError(f"model: {facts.model!r} is not in the table; its config is needed")
    megatron = is_megatron(facts.config or {})
    length: float | None = facts.sequence_length
    recompute = facts.recompute
    if megatron:
        length = length if length is not None else given.optional("seq_length")
        # A log tells the word alone; the other arguments tell what it means.
        if recompute in (None, given.get("recompute_granularity")):
            recompute = _recompute(given)
    return Task(
        shape=shape,
        sequence_length=length,
        document_length=facts.document_length,
        recompute=recompute if recompute in RECOMPUTES else None,  # type: ignore[arg-type]
        frozen=facts.trainable == "adapters",
        adapter=facts.adapter_parameters or 0.0,
        first_trainable=facts.first_trainable or 0,
        # A HF config tells of layers that its own trainer leaves out.
        depths=megatron and shape.depths > 0,
    )


def _is_vague(config: Config) -> bool:
    """Tell whether a config is only some sizes, as Megatron's telemetry sends them.

    They do not tell whether the FFN has a gate, or experts: half of the work.
    """
    return "model_type" not in config and not is_megatron(config)


def _shape(facts: Facts, shapes: Models) -> ModelShape | None:
    config: Config | None = facts.config
    if config and not (facts.model and _is_vague(config)):
        name = facts.model or ""
        read = read_arguments if is_megatron(config) else read_config
        return read(config, name)
    if facts.model is None:
        return None
    return shapes.resolve(facts.model)


_FULL = 4 / 3  # a forward pass more than three


def _plain_work(facts: Facts) -> Work:
    """Return the work that plain figures tell: six times the parameters, and attention if known.

    Raises `ValueError` if not even they are known.
    """
    active = facts.active_parameters
    if active is None:
        if facts.flops_per_token is None:
            raise ValueError("model: neither a config nor a name nor flops_per_token is known")
        return Work({}, {})
    frozen = facts.trainable == "adapters"
    adapter = facts.adapter_parameters or 0.0
    model = {"6n": (4 if frozen else 6) * active + 6 * adapter}
    attention = facts.attention_flops_per_token
    if attention is not None:
        model[TOLD[0]] = model["6n"] + attention
    factors = {"none": 1.0, "full": (6 if frozen else 8) / (4 if frozen else 6)}
    again = factors.get(facts.recompute or "")
    hardware = {} if again is None else {name: flops * again for name, flops in model.items()}
    return Work(
        model,
        hardware,
        active_parameters=active + adapter,
        trainable_parameters=(adapter or None) if frozen else None,
    )


def _recompute(given: Arguments) -> Recompute | None:
    """Return what arguments of Megatron say is recomputed; nothing for a part that is not known."""
    match given.get("recompute_granularity"):
        case None:
            return "none"
        case "full":
            layers = given.optional("recompute_num_layers")
            block = given.get("recompute_method") == "block"
            return None if block and layers != given.get("num_layers") else "full"
        case "selective":
            modules = str(given.get("recompute_modules") or "core_attn")
            return "selective" if re.findall(r"\w+", modules) == ["core_attn"] else None
    return None


# ---------------------------------------------------------------- utilization


def utilization(rate: float, work: float, peak: float) -> float:
    """Return MFU or HFU: tokens each second and GPU, times FLOPs per token, over the peak."""
    return rate * work / peak


def at_pace(mfu: float, before: float, after: float) -> float:
    """Return the MFU of the same work when a step that took `before` takes `after`."""
    return mfu * before / after


def on_peak(mfu: float, peak: float, other: float) -> float:
    """Return a utilization of one peak as one of another; the two are no one series."""
    return mfu * peak / other


def remaining(*losses: float) -> float:
    """Return the share of the peak that is left after losses, each a share of the peak."""
    return 1 - sum(losses)
