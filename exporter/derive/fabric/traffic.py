"""What the ranks of a training job send each other in one step, by how it is spread over them.

All of it is what an ideal schedule sends and the least time on ideal links, with nothing hidden
behind computing: real jobs hide much of it, and pay for latency, waiting and congestion.

- ddp: an all-reduce of all gradients, once a step.
- fsdp: each rank holds a shard. Parameters are gathered for the forward and again for the backward
  pass, and gradients are reduced: two all-gathers and a reduce-scatter, for each micro-batch. So a
  step's traffic is three times the model and not a shard of it, as the specification has it.
- hsdp: the same within groups of `shard` ranks, and once a step an all-reduce of a shard's
  gradients between them.
- tp: two all-reduces of activations in each layer's forward pass, and two in its backward pass.
  With sequence parallelism each is a reduce-scatter and an all-gather: the same bytes.
- pp: activations to the next stage and gradients back, for each micro-batch and virtual stage.
- ep: tokens to their experts and back, forward and backward: four all-to-alls in each such layer.

Ranks are laid out as Megatron does: tensor parallel ones are neighbours, then data parallel (with
experts inside), then stages. Experts are spread over `expert` ranks, and so are their gradients.
Left out: recomputation (it repeats a forward pass), embeddings, context parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from exporter.derive.fabric.collectives import FACTORS, Fabric, Group
from exporter.reference.models import ModelShape

DATA_PARALLEL = ("ddp", "fsdp", "hsdp")
STRATEGIES = (*DATA_PARALLEL, "tp", "pp", "ep")


class Model(NamedTuple):
    """What of a model is sent: weights outside of experts and in them, layers, widths."""

    name: str
    dense: float
    experts: float = 0.0
    layers: int = 0
    expert_layers: int = 0
    hidden: int = 0
    chosen: int = 0
    number_of_experts: int = 0

    @staticmethod
    def of(shape: ModelShape) -> Model:
        """Return what of a shape is sent."""
        experts = float(shape.experts * shape.expert * shape.expert_layers)
        return Model(
            shape.name, shape.parameters - experts, experts, shape.layers, shape.expert_layers,
            shape.hidden, shape.chosen, shape.experts,
        )  # fmt: skip


class Job(NamedTuple):
    """How a model is trained: ranks by dimension, what one rank sees in a step, bytes of a number.

    `data` counts all ranks that see different samples. `shard` is the size of HSDP's groups.
    """

    model: Model
    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    shard: int = 0
    micro_batch: int = 1
    micro_batches: int = 1
    sequence_length: int = 4096
    virtual_stages: int = 1
    parameter_bytes: float = 2.0
    gradient_bytes: float = 2.0
    activation_bytes: float = 2.0

    @property
    def activation(self) -> float:
        """Bytes between two layers, of a micro-batch."""
        tokens = self.micro_batch * self.sequence_length
        return tokens * self.model.hidden * self.activation_bytes

    def check(self) -> None:
        """Raise `ValueError` naming the option for sizes that do not fit together."""
        if self.data % self.expert:
            raise ValueError(f"expert: {self.expert} does not divide the {self.data} data ranks")
        if self.shard and self.data % self.shard:
            raise ValueError(f"shard: {self.shard} does not divide the {self.data} data ranks")
        if self.expert > 1 and not self.model.experts:
            raise ValueError(f"expert: {self.model.name} has no experts")
        if self.expert > max(1, self.model.number_of_experts):
            raise ValueError(f"expert: the model has {self.model.number_of_experts} experts")
        layers = self.model.layers
        if layers and self.pipeline * self.virtual_stages > layers:
            raise ValueError(f"pipeline: {layers} layers are not enough for so many stages")


class Transfer(NamedTuple):
    """What a rank sends in a step by one collective: `times` messages of `size` bytes."""

    strategy: str
    collective: str
    what: str
    times: float
    size: float
    group: Group

    @property
    def sent(self) -> float:
        """Bytes that each rank of the group sends in a step."""
        return self.times * self.size * FACTORS[self.collective](self.group.ranks)

    @property
    def seconds(self) -> float:
        """The least time of all of it, one after another."""
        return self.times * self.group.seconds(self.collective, self.size)


def step(job: Job, fabric: Fabric, strategy: str) -> list[Transfer]:
    """Return what one strategy sends in a step; nothing where it has a single rank.

    Raises `ValueError` for an unknown one, and for sizes that do not fit together.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy: {strategy!r} is none of {', '.join(STRATEGIES)}")
    job.check()
    transfers = {
        "ddp": _ddp, "fsdp": _fsdp, "hsdp": _hsdp, "tp": _tp, "pp": _pp, "ep": _ep,
    }[strategy](job, fabric)  # fmt: skip
    return [one for one in transfers if one.group.ranks > 1 and one.size > 0 and one.times > 0]


class _Part(NamedTuple):
    """Weights that are the same on `ranks` data ranks, each `stride` ranks after the last."""

    name: str
    weights: float
    ranks: int
    stride: int


def _parts(job: Job) -> Iterator[_Part]:
    """Yield the weights that one rank computes with, by how many ranks have the same."""
    stage = job.tensor * job.pipeline
    yield _Part("", job.model.dense / stage, job.data, job.tensor)
    if job.model.experts:
        ranks, stride = job.data // job.expert, job.tensor * job.expert
        yield _Part(" of experts", job.model.experts / stage / job.expert, ranks, stride)


def _ddp(job: Job, fabric: Fabric) -> Iterator[Transfer]:
    for part in _parts(job):
        size = part.weights * job.gradient_bytes
        group = fabric.group(part.ranks, part.stride)
        yield Transfer("ddp", "all_reduce", f"gradients{part.name}", 1, size, group)


def _fsdp(job: Job, fabric: Fabric) -> Iterator[Transfer]:
    for part in _parts(job):
        yield from _sharded("fsdp", job, part, fabric.group(part.ranks, part.stride))


def _sharded(strategy: str, job: Job, part: _Part, group: Group) -> Iterator[Transfer]:
    each, name = job.micro_batches, part.name
    gathered, reduced = part.weights * job.parameter_bytes, part.weights * job.gradient_bytes
    yield Transfer(strategy, "all_gather", f"parameters{name}", 2 * each, gathered, group)
    yield Transfer(strategy, "reduce_scatter", f"gradients{name}", each, reduced, group)


def _hsdp(job: Job, fabric: Fabric) -> Iterator[Transfer]:
    shard = job.shard or min(job.data, max(1, fabric.gpus_per_node // job.tensor))
    for part in _parts(job):
        size = min(shard, part.ranks)
        if part.ranks % size:
            raise ValueError(f"shard: {size} does not divide {part.ranks} ranks{part.name}")
        yield from _sharded("hsdp", job, part, fabric.group(size, part.stride))
        between = fabric.group(part.ranks // size, part.stride * size)
        gradients = part.weights * job.gradient_bytes / size
        yield Transfer("hsdp", "all_reduce", f"shards{part.name}", 1, gradients, between)


def _tp(job: Job, fabric: Fabric) -> Iterator[Transfer]:
    times = 4 * job.model.layers / job.pipeline * job.micro_batches
    group = fabric.group(job.tensor)
    yield Transfer("tp", "all_reduce", "activations", times, job.activation, group)


def _pp(job: Job, fabric: Fabric) -> Iterator[Transfer]:
    times = 2 * job.micro_batches * job.virtual_stages
    group = fabric.group(job.pipeline, job.tensor * job.data)
    yield Transfer("pp", "send_receive", "activations", times, job.activation, group)


def _ep(job: Job, fabric: Fabric) -> Iterator[Transfer]:
    times = 4 * job.model.expert_layers / job.pipeline * job.micro_batches
    size = job.activation * job.model.chosen / job.tensor
    group = fabric.group(job.expert, job.tensor)
    yield Transfer("ep", "all_to_all", "tokens", times, size, group)


def plain(one: Transfer) -> dict[str, Any]:
    """Return a transfer for programs, in base units."""
    return {
        "strategy": one.strategy,
        "collective": one.collective,
        "what": one.what,
        "ranks": one.group.ranks,
        "ranks_per_node": one.group.local,
        "messages": one.times,
        "message_bytes": one.size,
        "sent_bytes_per_rank": one.sent,
        "bandwidth_bytes_per_second": one.group.rate(one.collective),
        "seconds": one.seconds,
    }
