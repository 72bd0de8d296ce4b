"""Arithmetic of a job that is spread over many GPUs: sizes, bubbles, traffic, pace, scaling.

Everything is an ideal: what a schedule or a ring would cost on its own, with nothing hidden behind
computing. Bytes are bytes, bandwidth is bytes per second of one direction, time is in seconds.
"""

from __future__ import annotations

import math

# ---------------------------------------------------------------- sizes


def world_size(data: int, tensor: int = 1, pipeline: int = 1, context: int = 1) -> int:
    """Return the ranks of a job; experts are spread over those of the other dimensions."""
    return data * tensor * pipeline * context


def gpus(nodes: int, each: int) -> int:
    """Return the GPUs of so many nodes. Rails of the network are no further factor."""
    return nodes * each


def nodes(gpus: int, each: int) -> int:
    """Return the nodes that so many GPUs fill."""
    return math.ceil(gpus / each)


def global_batch(micro_batch: float, micro_batches: float, data: int) -> float:
    """Return the samples of a step: a micro-batch, those of a pipeline, and all pipelines."""
    return micro_batch * micro_batches * data


# ---------------------------------------------------------------- pace


def samples_per_second(batch: float, seconds: float) -> float:
    """Return samples in a second. Batch and GPUs multiplied would count each replica's GPUs."""
    return batch / seconds


def tokens_per_gpu(batch: float, length: float, seconds: float, gpus: int) -> float:
    """Return TGS: tokens each second and GPU, of a step's batch of samples of such a length."""
    return batch * length / seconds / gpus


def tokens_in_all(each: float, gpus: int) -> float:
    """Return tokens each second of all GPUs."""
    return each * gpus


def steps_for(tokens: float, batch: float, length: float) -> float:
    """Return the steps that so many tokens take."""
    return tokens / (batch * length)


def wall_seconds(steps: float, seconds: float) -> float:
    """Return the time by the clock on the wall of so many steps."""
    return steps * seconds


def gpu_hours(steps: float, seconds: float, gpus: int) -> float:
    """Return the hours of all GPUs together that so many steps take."""
    return wall_seconds(steps, seconds) * gpus / 3600


def speedup(before: float, after: float) -> float:
    """Return how many times as fast what took `before` is when it takes `after`."""
    return before / after


def change(before: float, after: float) -> float:
    """Return the relative change: -0.17 is 17 % less."""
    return after / before - 1


def gain(before: float, after: float) -> float:
    """Return what was gained: the difference of two shares, to be told in points, not per cent."""
    return after - before


def share(part: float, whole: float) -> float:
    """Return a part of a step over the step."""
    return part / whole


def scaling(tgs: float, baseline: float) -> float:
    """Return weak scaling: TGS over that of a smaller job in which each GPU has the same work."""
    return tgs / baseline


def strong_scaling(seconds: float, gpus: int, baseline: float, fewer: int) -> float:
    """Return strong scaling: the speed-up over a job on `fewer` GPUs, over how many times as many.

    The global batch is the same; `seconds` and `baseline` are of a step.
    """
    return speedup(baseline, seconds) / (gpus / fewer)


# ---------------------------------------------------------------- pipelines


def bubble(stages: int, micro_batches: int, virtual: int = 1) -> float:
    """Return the share of a step in which a pipeline's GPUs wait: (p - 1) / (v m + p - 1).

    For 1F1B, and interleaved with `virtual` stages on each rank. Schedules that split the backward
    pass (zero bubble, DualPipe) have less; how much depends on times that nobody tells.
    """
    return (stages - 1) / (virtual * micro_batches + stages - 1)


def bubble_over_work(stages: int, micro_batches: int, virtual: int = 1) -> float:
    """Return the bubble over the time of work alone, (p - 1) / (v m); no share of the step."""
    return (stages - 1) / (virtual * micro_batches)


# ---------------------------------------------------------------- communication


def shard_bytes(size: float, ranks: int) -> float:
    """Return the part of something that one rank holds."""
    return size / ranks


def ring_gather_seconds(size: float, ranks: int, bandwidth: float) -> float:
    """Return the time of an all-gather, or a reduce-scatter, of `size` bytes in all by a ring."""
    return (ranks - 1) / ranks * size / bandwidth


def ring_seconds(size: float, ranks: int, bandwidth: float) -> float:
    """Return the time of an all-reduce of `size` bytes on each rank by a ring: both of those."""
    return 2 * ring_gather_seconds(size, ranks, bandwidth)


def sharded_seconds(size: float, ranks: int, bandwidth: float) -> float:
    """Return the time of a step's traffic where parameters are sharded (FSDP, ZeRO 3).

    Each rank gathers all parameters for the forward and again for the backward pass, and reduces
    all gradients: three times the model. Sharding saves memory, not traffic.
    """
    return 3 * ring_gather_seconds(size, ranks, bandwidth)


def bus_bandwidth(links: int, each: float, efficiency: float = 1.0) -> float:
    """Return the bandwidth of a node whose ring uses all its links."""
    return links * each * efficiency


def bits(rate: float) -> float:
    """Return bytes a second of a rate in bits, as ports are sold."""
    return rate / 8


def exposed(total: float, overlap: float) -> float:
    """Return the communication that computing does not hide; `overlap` is the hidden share."""
    return total * (1 - overlap)


def total_of(exposed: float, overlap: float) -> float:
    """Return all communication, of what is exposed and the share that is hidden."""
    return exposed / (1 - overlap)
