"""Traces with known truth: a generator, and the truth found another way than the product finds it.

The truth is counted microsecond by microsecond on an integer timeline: for each, what runs. No
union of intervals, no sorting, nothing of what is tested.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BASE = 1_790_857_026_000_000_000
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>"
FLASH = (
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false>, true>(Flash_fwd_params)"
)
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>,"
    " std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ODD = "void my_own_thing(int)"
COPY = "Memcpy HtoD (Pinned -> Device)"
FILL = "Memset (Device)"
CLASS = {
    GEMM: "matmul", FLASH: "attention", NORM: "norm", ADD: "elementwise", ODD: "other",
    NCCL: "communication", GATHER: "communication", COPY: "copy", FILL: "copy",
}  # fmt: skip
LEVEL = {"matmul": 1, "attention": 1, "communication": 4, "copy": 8}


@dataclass
class Truth:
    """What a trace holds, in microseconds; `spent` as a profile splits the span."""

    span: int = 0
    matmul: int = 0
    memory_bound: int = 0
    exposed: int = 0
    copies: int = 0
    idle: int = 0
    communication: int = 0
    computing: int = 0
    starved: int = 0
    kernels: int = 0
    classes: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass
class Interval:
    """Something on the GPU, in whole microseconds, and when the call that launched it returned."""

    name: str
    start: int
    end: int
    stream: int
    launched: int
    size: int = 0


def scenario(seed: int, length: int = 40_000, steps: int = 4) -> list[Interval]:
    """Return a made-up step sequence: four streams, kernels within and across others, gaps."""
    random_ = random.Random(seed)
    found: list[Interval] = []

    def put(name: str, start: int, end: int, stream: int, ahead: int | None = None) -> None:
        ahead = random_.choice((0, 3, 40, 900)) if ahead is None else ahead
        found.append(Interval(name, start, end, stream, max(1, start - ahead), (end - start) * 64))

    each = length // steps
    for step in range(steps):
        at = 10 + step * each + random_.randrange(20)
        stop = (step + 1) * each - random_.randrange(each // 8, each // 4)
        while at < stop:
            took = random_.choice((1, 7, 60, 333))
            put(random_.choice((GEMM, FLASH, NORM, ADD, ADD, ODD)), at, min(stop, at + took), 7)
            at += took + random_.choice((0, 0, 0, 1, 5, 80))
        # Communication: within computing, across its end, and in the gap behind it alone.
        for _ in range(random_.randrange(2, 6)):
            begin = random_.randrange(step * each + 20, (step + 1) * each - 200)
            put(random_.choice((NCCL, GATHER)), begin, begin + random_.randrange(50, 1500), 20)
        put(NCCL, stop - 50, stop + random_.randrange(60, each // 10), 21)
        for _ in range(random_.randrange(1, 5)):
            begin = random_.randrange(step * each + 20, (step + 1) * each - 200)
            name = random_.choice((COPY, FILL))
            put(name, begin, begin + random_.randrange(5, 150), 22)
            put(ADD, begin + 1, begin + 3, 23)  # nested in the copy
    return found


def truth_of(found: list[Interval], cover: tuple[int, int] | None = None) -> Truth:
    """Return the truth of intervals; the span is theirs, and holds `cover` where it is given."""
    first, last = min(i.start for i in found), max(i.end for i in found)
    if cover is not None:
        first, last = min(first, cover[0]), max(last, cover[1])
    truth = Truth(span=last - first)
    running = [0] * (last - first)
    pending = [0] * (last - first + 1)
    for one in found:
        kind = CLASS[one.name]
        number, micros = truth.classes.get(kind, (0, 0))
        truth.classes[kind] = (number + 1, micros + one.end - one.start)
        truth.kernels += kind != "copy"
        for at in range(one.start - first, one.end - first):
            running[at] |= LEVEL.get(kind, 2)
        for at in range(max(0, min(one.launched, one.start) - first), one.start - first):
            pending[at] = 1
    for at, levels in enumerate(running):
        truth.matmul += bool(levels & 1)
        truth.memory_bound += levels & 3 == 2
        truth.communication += bool(levels & 4)
        truth.computing += bool(levels & 3)
        truth.exposed += levels & 7 == 4
        truth.copies += levels == 8
        truth.idle += levels == 0
        truth.starved += levels == 0 and not pending[at]
    return truth


def events_of(
    found: list[Interval],
    steps: Sequence[tuple[int, int]] = (),
    *,
    seed: int = 0,
    cpu: int = 0,
) -> list[dict[str, Any]]:
    """Return intervals as Kineto writes them: calls, then the GPU, not sorted by time.

    `cpu` operators of no interest are put among them.
    """
    events: list[dict[str, Any]] = []
    random_ = random.Random(seed)

    def add(cat: str, name: str, start: float, end: float, tid: int, **args: Any) -> None:
        pid = 0 if "kernel" in cat or cat.startswith("gpu") else 4242
        events.append({
            "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid,
            "ts": start, "dur": end - start, "args": args,
        })  # fmt: skip

    for number, (start, end) in enumerate(steps):
        add("user_annotation", f"ProfilerStep#{number + 2}", start, end, 4242)
    for at in range(cpu):
        start = random_.randrange(1000)
        shape = [[4096, 4096]] * random_.randrange(1, 9)
        args = {"External id": at, "Input Dims": shape, "Call stack": "a.py(3): f\n" * 4}
        add("cpu_op", f"aten::op{at % 50}", start, start + 3, 4242, **args)
    for number, one in enumerate(found):
        call = "cudaMemcpyAsync" if CLASS[one.name] == "copy" else "cudaLaunchKernel"
        add("cuda_runtime", call, one.launched - 1, one.launched, 4242,
            **{"External id": number, "cbid": 211, "correlation": number + 1})  # fmt: skip
    order = list(enumerate(found))
    random_.shuffle(order)
    for number, one in order:
        cat = {COPY: "gpu_memcpy", FILL: "gpu_memset"}.get(one.name, "kernel")
        extra = {"bytes": one.size} if cat != "kernel" else {"registers per thread": 32}
        add(cat, one.name, one.start, one.end, one.stream, device=0, context=1, stream=one.stream,
            correlation=number + 1, **{"External id": number}, **extra)  # fmt: skip
    return events


def write(
    path: Path, events: list[dict[str, Any]], *, rank: int | None = 0, base: int = BASE
) -> None:
    """Write a trace as Kineto lays it out; packed if the name says so."""
    document = text_of(events, rank=rank, base=base).encode()
    path.write_bytes(gzip.compress(document) if path.suffix == ".gz" else document)


def text_of(events: list[dict[str, Any]], *, rank: int | None = 0, base: int = BASE) -> str:
    """Return a trace of one of two ranks as text, laid out as Kineto does."""
    distributed = {"backend": "nccl", "rank": rank, "world_size": 2}
    lines = ["{", '  "schemaVersion": 1,', '  "deviceProperties": [']
    lines += ['    {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}', "  ],"]
    if rank is not None:
        lines.append(f'  "distributedInfo": {json.dumps(distributed)},')
    lines += [f'  "baseTimeNanoseconds": {base},', '  "traceEvents": [']
    lines.append(",\n".join("  " + event_text(event) for event in events))
    lines += ["  ],", '  "traceName": "x.pt.trace.json"', "}"]
    return "\n".join(lines)


def event_text(event: dict[str, Any]) -> str:
    """Return one event in Kineto's layout."""
    args = json.dumps(event["args"])[1:-1]
    lines = (
        f'    "ph": "{event["ph"]}", "cat": "{event["cat"]}", "name": {json.dumps(event["name"])},',
        f'    "pid": {event["pid"]}, "tid": {event["tid"]},',
        f'    "ts": {event["ts"]:.3f}, "dur": {event["dur"]:.3f},',
        f'    "args": {{\n      {args}\n    }}',
    )
    return "{\n" + "\n".join(lines) + "\n  }"
