"""`flopwatch comm`: what collectives cost by theory, and what a step of a training job sends."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from exporter.derive.fabric.collectives import (
    ALGORITHMS,
    FACTORS,
    NVLS,
    Algorithm,
    Fabric,
    Group,
)
from exporter.derive.fabric.traffic import (
    DATA_PARALLEL,
    STRATEGIES,
    Job,
    Model,
    Transfer,
    step,
)
from exporter.derive.fabric.traffic import plain as plain_transfer
from exporter.reference.models import load, read_file


class Message(NamedTuple):
    """One message by one algorithm, on the links that the group has."""

    how: Algorithm
    size: float
    group: Group

    @property
    def seconds(self) -> float:
        """The least time of it: that of the slower part, where it has one in nodes and between."""
        group, latency = self.group, self.group.fabric.latency
        if self.how.collective == "all_to_all":
            return group.seconds("all_to_all", self.size)
        if self.how.name == "nvls":
            return self.how.seconds(self.size, group.local, group.fabric.inside, latency)
        between = self.how.seconds(self.size, group.ranks, group.links, latency)
        if self.how.name == "sharp" and group.local > 1:
            return max(between, Message(NVLS, self.size, group).seconds)
        return between

    @property
    def bus_bandwidth(self) -> float:
        """What nccl-tests would call the bus bandwidth of that time."""
        return FACTORS[self.how.collective](self.ranks) * self.size / self.seconds

    @property
    def ranks(self) -> int:
        """Who takes part: with nvls, those of one node."""
        return self.group.local if self.how.name == "nvls" else self.group.ranks


class Asked(NamedTuple):
    """What the options ask for: messages of one size, and what a step sends by strategy."""

    fabric: Fabric
    gpus: int
    messages: tuple[Message, ...]
    job: Job | None
    transfers: tuple[Transfer, ...]
    step_seconds: float | None


def ask(options: argparse.Namespace) -> Asked:
    """Return what the options ask for. Raises `ValueError` naming the option that is wrong."""
    fabric = Fabric(
        options.gpus_per_node, options.nics_per_node, options.nic, options.nvlink,
        options.efficiency, options.latency,
    )  # fmt: skip
    model = _model(options)
    job = None if model is None else _job(options, model)
    transfers = () if job is None else tuple(_transfers(options, job, fabric))
    size = options.size
    if size is None and job is not None:
        whole = job.model.dense + job.model.experts
        size = whole * job.gradient_bytes
    if size is None:
        raise ValueError("--size, --model, --model-config or --parameters: one is needed")
    group = fabric.group(options.gpus)
    return Asked(
        fabric, options.gpus, tuple(_messages(size, group)), job, transfers, options.step_seconds
    )


def _messages(size: float, group: Group) -> Iterator[Message]:
    for how in ALGORITHMS:
        # One node has no network whose switches could add up; a single GPU no neighbours.
        if not (how.name == "sharp" and group.within) and not (
            how.name == "nvls" and group.local < 2
        ):
            yield Message(how, size, group)


def _model(options: argparse.Namespace) -> Model | None:
    given = [options.model, options.model_config, options.parameters]
    if sum(one is not None for one in given) > 1:
        raise ValueError("--model, --model-config, --parameters: only one of them")
    if options.model is not None:
        shape = load().resolve(options.model)
        if shape is None:
            raise ValueError(f"--model: {options.model!r} is in no table; give --model-config")
        return Model.of(shape)
    if options.model_config is not None:
        return Model.of(read_file(options.model_config))
    if options.parameters is not None:
        return Model(f"{options.parameters:g} weights", options.parameters)
    return None


def _job(options: argparse.Namespace, model: Model) -> Job:
    stage = options.tensor * options.pipeline
    if options.gpus % stage:
        raise ValueError(f"--gpus: {options.gpus} is no multiple of tensor x pipeline = {stage}")
    job = Job(
        model, options.gpus // stage, options.tensor, options.pipeline, options.expert,
        options.shard, options.micro_batch, options.micro_batches, options.sequence_length,
        options.virtual_stages, options.parameter_bytes, options.gradient_bytes,
        options.activation_bytes,
    )  # fmt: skip
    try:
        job.check()
    except ValueError as error:
        raise ValueError(f"--{error}") from None
    return job


def _transfers(options: argparse.Namespace, job: Job, fabric: Fabric) -> Iterator[Transfer]:
    chosen = STRATEGIES if options.strategy is None else _chosen(options.strategy)
    for name in chosen:
        if name in {"tp", "pp", "ep"} and not job.model.layers:
            if options.strategy is None:
                continue
            raise ValueError(f"--strategy: {name} needs --model or --model-config, for its layers")
        try:
            yield from step(job, fabric, name)
        except ValueError as error:
            # a group of so many ranks is our own choice, where nobody has asked for it
            if options.strategy is None and name == "hsdp" and not options.shard:
                continue
            raise ValueError(f"--{error}") from None


def _chosen(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(one.strip() for one in text.split(",")))
    for name in names:
        if name not in STRATEGIES:
            raise ValueError(f"--strategy: {name!r} is none of {', '.join(STRATEGIES)}")
    return names


def totals(transfers: Sequence[Transfer]) -> dict[str, tuple[float, float]]:
    """Return bytes that a rank sends and seconds, of each strategy with all that goes with it.

    Of the ways to be data parallel a job has one; tensor, pipeline and expert parallelism come on
    top of it.
    """
    each: dict[str, tuple[float, float]] = {}
    for one in transfers:
        sent, seconds = each.get(one.strategy, (0.0, 0.0))
        each[one.strategy] = (sent + one.sent, seconds + one.seconds)
    beside = [name for name in each if name not in DATA_PARALLEL]
    ways = [name for name in each if name in DATA_PARALLEL]
    return {
        " + ".join(names): (sum(each[n][0] for n in names), sum(each[n][1] for n in names))
        for names in ([[way, *beside] for way in ways] or ([beside] if beside else []))
    }


# ---------------------------------------------------------------- for programs


def plain(found: Asked) -> dict[str, Any]:
    """Return all of it for programs, in base units."""
    fabric = found.fabric
    whole = fabric.group(found.gpus)
    return {
        "gpus": found.gpus,
        "fabric": {
            "gpus_per_node": fabric.gpus_per_node,
            "nics_per_node": fabric.nics_per_node,
            "nic_bytes_per_second": fabric.nic,
            "nvlink_bytes_per_second": fabric.nvlink,
            "efficiency": fabric.efficiency,
            "latency_seconds": fabric.latency,
            "node_bytes_per_second": fabric.node,
            "ring_bytes_per_second": whole.bandwidth,
        },
        "messages": [
            {
                "collective": one.how.collective,
                "algorithm": one.how.name,
                "bytes": one.size,
                "ranks": one.ranks,
                "seconds": one.seconds,
                "bus_bandwidth_bytes_per_second": one.bus_bandwidth,
            }
            for one in found.messages
            if one.ranks > 1
        ],
        "step": [plain_transfer(one) for one in found.transfers],
        "totals": [
            {"strategies": name, "sent_bytes_per_rank": sent, "seconds": seconds,
             **_share_of(seconds, found.step_seconds)}
            for name, (sent, seconds) in totals(found.transfers).items()
        ],
    }  # fmt: skip


def _share_of(seconds: float, step_seconds: float | None) -> dict[str, float]:
    return {} if step_seconds is None else {"share_of_step": seconds / step_seconds}


# ---------------------------------------------------------------- for people


def lines(found: Asked) -> Iterator[str]:
    """Yield all of it for people, line by line."""
    fabric, whole = found.fabric, found.fabric.group(found.gpus)
    yield (
        f"{found.gpus} GPUs, on each node {fabric.gpus_per_node} of them and"
        f" {fabric.nics_per_node} ports of {fabric.nic / 1e9:g} GB/s; NVLink"
        f" {fabric.nvlink / 1e9:g} GB/s; {fabric.efficiency:.0%} of both is used"
    )
    where = "NVLink" if whole.within else f"all ports of each node, {fabric.nics_per_node}"
    yield f"a ring over all has {whole.bandwidth / 1e9:,.1f} GB/s ({where})"
    yield ""
    yield from _message_lines(found)
    if found.transfers and found.job is not None:
        yield ""
        yield from _step_lines(found, found.job)


def _message_lines(found: Asked) -> Iterator[str]:
    size = found.messages[0].size
    yield f"one message of {_bytes(size)}"
    yield f"  {'collective':<16}{'algorithm':<11}{'ranks':>8}{'least time':>14}{'bus GB/s':>12}"
    for one in found.messages:
        if one.ranks > 1:
            yield (
                f"  {one.how.collective:<16}{one.how.name:<11}{one.ranks:>8}"
                f"{_time(one.seconds):>14}{one.bus_bandwidth / 1e9:>12,.1f}"
            )
    yield from _switch_lines(found.messages[0].group)


def _switch_lines(group: Group) -> Iterator[str]:
    """Yield what switches that add up can bring."""
    if not group.within:
        gain = FACTORS["all_reduce"](group.ranks)
        yield f"  sharp: switches between nodes add up, NVLink's within; {gain:.2f} x at most"
    if group.local > 1:
        gain = NVLS.bus_bandwidth(group.local, 1)
        yield f"  nvls: NVLink switches add up for a node's {group.local} GPUs; {gain:.2f} x a ring"


def _step_lines(found: Asked, job: Job) -> Iterator[str]:
    yield (
        f"a step of {job.model.name}: data {job.data}, tensor {job.tensor}, pipeline"
        f" {job.pipeline}, expert {job.expert}; {job.micro_batches} micro-batches of"
        f" {job.micro_batch} x {job.sequence_length} tokens"
    )
    yield (
        f"  {'':<6}{'collective':<16}{'of':<24}{'ranks':>7}{'times':>8}{'each':>12}"
        f"{'sent/rank':>12}{'GB/s':>8}{'least time':>13}"
    )
    for one in found.transfers:
        yield (
            f"  {one.strategy:<6}{one.collective:<16}{one.what:<24}{one.group.ranks:>7}"
            f"{one.times:>8g}{_bytes(one.size):>12}{_bytes(one.sent):>12}"
            f"{one.group.rate(one.collective) / 1e9:>8,.1f}{_time(one.seconds):>13}"
        )
    for name, (sent, seconds) in totals(found.transfers).items():
        share = found.step_seconds
        of_step = "" if share is None else f", {seconds / share:.0%} of a step of {share:g} s"
        yield f"  {name}: {_bytes(sent)} a rank, {_time(seconds)} with nothing hidden{of_step}"


def _bytes(size: float) -> str:
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:,.4g} {unit}"
    return f"{size:g} B"


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:,.4g} {unit}"
    return f"{seconds * 1e6:,.4g} us"
