"""What readers tell about a training run: facts, steps, moments, and what a profile showed.

Every reader (a log, an event file, a push, a page) turns what it finds into these records and hands
them to the ledger. A record says only what was written where it was found: what can be worked out
from several (tokens from a rate and a duration) is left to the derivations. `None` is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.reference.models import Config

PHASES = (
    "data", "forward", "backward", "communication", "optimizer", "checkpoint", "evaluation",
    "bubble", "other",
)  # fmt: skip
"""What a step's time can be split into. `communication` is time in which the loop waited for
other ranks (exposed); what is hidden behind computing is `Step.communication` alone."""

Scope = Literal["run", "rank"]
"""Whether tokens and samples are those of the whole run, or of one rank's share of the data."""

READERS = (
    "push", "otlp", "page", "textfile", "log", "tensorboard", "trainer_state", "mlflow", "wandb",
    "trace",
)  # fmt: skip
"""Who tells, best first: for each quantity of a run the first that knows it is believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One optimizer step that has ended, or the mean of the last `steps` of them.

    `step` is the number as the job counts; `attempt` tells the incarnation of the job apart (a
    process, a log's restart): within one attempt a number counts once. `seconds`, `tokens`,
    `samples`, `phases` (seconds by `PHASES`) and `communication` (all of it, hidden or not, in
    seconds) are of one step. `wall` is when it ended, in Unix seconds. `flops` is FLOP/s for each
    GPU and `mfu` a ratio, both as the framework claims them; `tgs` is tokens each second and GPU.
    `energy` is joules for each GPU and step. `skipped` steps changed no weight (loss scaling, NaN).
    """

    run: str
    step: int
    rank: int | None = None
    attempt: str = ""
    steps: int = 1
    scope: Scope = "run"
    wall: float | None = None
    seconds: float | None = None
    tokens: float | None = None
    tgs: float | None = None
    samples: float | None = None
    loss: float | None = None
    gradient_norm: float | None = None
    learning_rate: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    communication: float | None = None
    flops: float | None = None
    mfu: float | None = None
    energy: float | None = None
    memory_bytes: float | None = None
    expert_imbalance: float | None = None
    dropped_tokens: float | None = None
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What stays the same over a run, as far as a reader knows; sizes are numbers of ranks.

    `model` is a name, `config` the keys of a HF `config.json` or the arguments of Megatron (by
    their names on its command line), `flops_per_token` a figure given outright. Beside
    `active_parameters`, `attention_flops_per_token` is what training on a token costs in attention.
    Layers below `first_trainable` learn nothing and see no backward pass. `sequence_length` is in
    tokens, `global_batch` in samples for each step, `micro_batches` for each step and pipeline.
    `recompute` is "none", "selective" or "full".
    `local_ranks` maps a rank on this node to its GPU's index. `document_length` is the mean length
    that attention sees in packed batches: the sum of squares over the sum. `nccl` are the settings
    of NCCL that are looked at, as `formats/nccl_settings.py` keeps them, and `nccl_ranks` those of
    each rank that tells its own.
    """

    run: str
    framework: str | None = None
    world_size: int | None = None
    model: str | None = None
    config: Config | None = None
    flops_per_token: float | None = None
    active_parameters: float | None = None
    attention_flops_per_token: float | None = None
    sequence_length: int | None = None
    document_length: float | None = None
    global_batch: float | None = None
    micro_batch: float | None = None
    micro_batches: int | None = None
    data_parallel: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    virtual_stages: int | None = None
    context_parallel: int | None = None
    expert_parallel: int | None = None
    schedule: str | None = None
    precision: str | None = None
    recompute: str | None = None
    trainable: Literal["all", "adapters"] | None = None
    adapter_parameters: float | None = None
    first_trainable: int | None = None
    local_ranks: Mapping[int, int] | None = None
    submitted: float | None = None
    last_step: int | None = None
    nccl: Mapping[str, str] | None = None
    nccl_ranks: Mapping[int, Mapping[str, str]] | None = None


MomentKind = Literal[
    "submitted", "started", "first_step", "checkpoint_saved", "checkpoint_loaded", "failed",
    "interrupted", "recovered", "ended",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something that happened to a run at `wall` (Unix seconds).

    `interrupted` is an end that the job knew beforehand (its machine is taken away): it has saved
    what it had, and is to go on elsewhere.

    `seconds` is how long it held the job up, where that was told: for a checkpoint the time for
    which the loop stood still, not the writing behind its back.
    """

    run: str
    kind: MomentKind
    wall: float | None = None
    rank: int | None = None
    attempt: str = ""
    step: int | None = None
    seconds: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a profiler saw on one rank's GPU, as seconds within a span of `seconds`.

    The first five exclude each other and add up to `seconds`: matrix products and attention
    (`matmul`), kernels bound by memory, communication that nothing hid, copies alone, and nothing
    at all. `communication` is all of it, hidden or not; `launches` is the number of kernels;
    `starved` is the part of `idle` in which the host had not launched anything.
    """

    run: str
    rank: int | None
    wall: float
    seconds: float
    matmul: float
    memory_bound: float
    exposed_communication: float
    copies: float
    idle: float
    communication: float
    launches: int
    starved: float | None = None


Record = Step | Facts | Moment | Profile
