"""The made-up node's training job: what its steps are made of, what goes wrong, and what it says.

A `Stage` is a way to train: a model, how it is spread over ranks, and the seconds that each part of
a step takes. A `Scenario` is a course of stages with faults. `Job` goes through the course step by
step; `node` lets the GPUs and ports do what the steps ask for, so that what the job says of itself
and what the hardware shows come from the same seconds.

The default job is a 13B model on GPUs 4 to 7, which wait long for their network. `case-study` is
chapter 16.8 of the specification: Llama 2 70B on 1024 H100, eight of them here, from a step of 8.2
seconds to one of 3.3. Published there are the time of a step, the share of communication and of the
bubble, exposed and overlapped communication, the time to load data, and how many fewer kernels and
passes over memory fusion brought. The rest is assumed so that the sums hold:

- communication's share is that of what nothing hides (0.44 s of the 4.4 s of phase 3 are 10 %, as
  of phase 2), and before phase 3 as much is hidden as in phase 3;
- data takes 0.12 s before phase 6, and the bubble keeps its share after phase 1;
- the batch stays at 8192 tokens for each GPU: the text says so, its figures say a quarter of it;
- nothing is recomputed, though the text says that all is: then the GPUs would have to sustain 95 %
  of their peak while they compute in the baseline, and none does.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from exporter.demo.faults import Faults
from exporter.demo.story import CHAPTERS, Chapter


class Parts(NamedTuple):
    """Seconds of a step, or of many; also how many steps that were.

    A step goes through them in this order, but for what is hidden behind the work.
    """

    restart: float = 0.0
    checkpoint: float = 0.0
    data: float = 0.0
    framework: float = 0.0
    """The host has not launched anything."""
    matmul: float = 0.0
    memory: float = 0.0
    """Kernels bound by memory; they and the products take turns."""
    bubble: float = 0.0
    communication: float = 0.0
    """Waiting for other ranks, and exchanging with them: what nothing hides."""
    hidden: float = 0.0
    """Communication behind the work; no time of its own."""
    steps: float = 0.0

    @property
    def seconds(self) -> float:
        """How long all of it takes."""
        return sum(self[:8])

    @property
    def saving(self) -> float:
        """Seconds in which a checkpoint is written."""
        return self.checkpoint

    @property
    def idle(self) -> float:
        """Seconds in which no kernel runs."""
        return self.restart + self.checkpoint + self.data + self.framework

    @property
    def work(self) -> float:
        """Seconds in which something is computed."""
        return self.matmul + self.memory

    def plus(self, other: Parts) -> Parts:
        """Return the sums."""
        return Parts._make([a + b for a, b in zip(self, other, strict=True)])


class Stage(NamedTuple):
    """A way to train. Sizes are numbers of ranks; seconds are those of one step.

    `matmul` holds at `clock` megahertz, which the GPUs then have. `communication` is the exposed
    part in seconds; None leaves it to the rails. `flops` are operations for each token as the
    tensor cores see them, in those of bf16: one of fp8 is half.
    """

    run: str
    model: str
    config: Mapping[str, Any]
    world: int
    data_parallel: int
    tensor_parallel: int
    pipeline_parallel: int
    sequence: int
    micro_batch: int
    micro_batches: int
    precision: str
    flops: float
    data: float
    framework: float
    matmul: float
    memory: float
    bubble: float = 0.0
    communication: float | None = None
    hidden: float = 0.0
    rate: float = 28e9
    """Bytes that a rail moves each second."""
    clock: int = 1720
    checkpoint_steps: int = 0
    checkpoint: float = 4.0
    peak_memory: float = 71.4e9
    nccl: Mapping[str, str] = MappingProxyType({})
    """What the job has set NCCL to."""

    @property
    def batch(self) -> int:
        """Sequences in a step, all ranks together."""
        return self.data_parallel * self.micro_batch * self.micro_batches

    @property
    def flops_per_token(self) -> float:
        """Operations that the model needs for a token, of whatever precision."""
        return self.flops * (2 if self.precision == "fp8" else 1)

    @property
    def tokens(self) -> int:
        """Tokens of a step for each GPU."""
        return self.batch * self.sequence // self.world


class Scenario(NamedTuple):
    """A course of stages, each with how many steps it lasts (the last one never ends).

    `gpus` are those of this node, rank 0 first. `sound`: no cable, fan or memory is bad. Tensor
    cores draw `watts` at full speed. `calm`: requests come without bursts. Of the `chapters` each
    brings its own faults, one after the other, again and again.
    """

    course: tuple[tuple[Stage, int], ...]
    gpus: tuple[int, ...]
    faults: Faults = Faults()
    sound: bool = False
    watts: float = 1250.0
    calm: bool = False
    chapters: tuple[Chapter, ...] = ()


_FASTER = 1.08
"""The badly cooled GPU is slower than the others by so much, and they wait for it in each step."""
_RESTART = 8.0
_HIDDEN_BEFORE = 0.35


class Lap(NamedTuple):
    """One step of the job: when it began, its parts on the slowest GPU, and each rank's.

    Times are seconds of the model. `number` is the job's own, `attempt` counts its restarts.
    """

    number: int
    attempt: int
    stage: Stage
    began: float
    slowest: Parts
    ranks: tuple[Parts, ...]
    interrupted: bool = False
    """Whether its machine was taken away before it, which the job knew."""

    @property
    def ends(self) -> float:
        """When it is over."""
        return self.began + self.slowest.seconds

    @property
    def computes(self) -> float:
        """When the GPUs begin to work."""
        return self.began + self.slowest.idle

    @property
    def talks(self) -> float:
        """When the slowest rank has nothing to do any more but to communicate."""
        return self.computes + self.slowest.work + self.slowest.bubble

    @property
    def seconds(self) -> float:
        """How long the step takes; restart and checkpoint are told apart from it."""
        return self.slowest.seconds - self.slowest.restart - self.slowest.checkpoint

    @property
    def loss(self) -> float:
        """What the loss has come down to."""
        return 1.7 + 9.3 / math.pow(1 + self.number, 0.45)


class Job:
    """Goes through a course. Whoever moves it on says how long the ranks talk: `begin`."""

    def __init__(
        self, scenario: Scenario, slow: int, clock: Callable[[int], float] = lambda _: math.inf
    ) -> None:
        self.scenario = scenario
        self.faults = scenario.faults
        self.done: deque[Lap] = deque(maxlen=512)
        """Steps that are over and were not taken yet."""
        self.steps = 0
        self._past = [Parts()] * (len(scenario.gpus) + 1)
        self._flops = 0.0
        self._slow = slow
        self._clock = clock
        self._attempt = 0
        self._interrupted = self._warned = False
        self._talking = 0.0
        self.lap: Lap

    @property
    def stage(self) -> Stage:
        """The way to train that the next step takes."""
        return self._at(self.steps)[0]

    def begin(self, at: float, jitter: float, ready: float, talking: float) -> None:
        """Begin a step. The work takes `jitter` times as long as it should.

        Nobody talks before `ready` (the fabric is down until then; infinite: until `resume`), and
        then so long as `talking`, unless the stage knows better.
        """
        stage, anew = self._at(self.steps)
        interrupted, self._interrupted = self._interrupted, False
        anew = anew or interrupted
        self._attempt += anew
        notice = self.faults.notice
        warned, self._warned = self._warned, notice is not None and at >= notice
        parts = self._parts(
            stage, jitter, anew=anew and self.steps > 0, warned=self._warned and not warned
        )
        works = [self._work(rank, parts) for rank in range(len(self.scenario.gpus))]
        slowest = max(works, key=lambda one: one.work)
        # Ranks of other nodes keep this one waiting, whatever its own pace.
        talking = talking if stage.communication is None else stage.communication
        slowest = _injected(slowest._replace(communication=talking), self.faults)
        self._talking = slowest.communication
        waiting = max(0.0, ready + talking - at - slowest.seconds)
        slowest = slowest._replace(communication=slowest.communication + waiting)
        ranks = tuple(_waiting(one, slowest) for one in works)
        self.lap = Lap(self.steps + 1, self._attempt, stage, at, slowest, ranks, interrupted)

    def resume(self, ready: float) -> None:
        """Let a step that waits for the fabric talk from `ready` on."""
        lap = self.lap
        talking = max(0.0, ready - lap.talks) + self._talking
        ranks = tuple(
            one._replace(communication=talking + lap.slowest.work - one.work) for one in lap.ranks
        )
        slowest = lap.slowest._replace(communication=talking)
        self.lap = lap._replace(slowest=slowest, ranks=ranks)

    def restart(self) -> None:
        """Let the job's next step be the first of another attempt: its machine was away."""
        self._interrupted = True

    def end(self) -> None:
        """Count the step that is over."""
        self.steps += 1
        each = (self.lap.slowest, *self.lap.ranks)
        self._past = [past.plus(parts) for past, parts in zip(self._past, each, strict=True)]
        self._flops += self.lap.stage.flops * self.lap.stage.tokens
        self.done.append(self.lap)

    def take(self) -> list[Lap]:
        """Return the steps that are over and were not taken yet."""
        laps = [*self.done]
        self.done.clear()
        return laps

    def flops(self, now: float, rank: int) -> float:
        """Return the operations that a rank's tensor cores have done up to a moment."""
        share = _part_of(self.lap.ranks[rank], now - self.lap.began).steps
        return self._flops + share * (self.lap.stage.flops * self.lap.stage.tokens)

    def spent(self, now: float, rank: int | None = None) -> Parts:
        """Return what a rank of this node, or the slowest GPU, has spent up to a moment."""
        at = 0 if rank is None else rank + 1
        parts = (self.lap.slowest, *self.lap.ranks)[at]
        return self._past[at].plus(_part_of(parts, now - self.lap.began))

    def _at(self, step: int) -> tuple[Stage, bool]:
        """Return the stage of a step, and whether it is its first one."""
        begins = 0
        for stage, steps in self.scenario.course[:-1]:
            if step < begins + steps:
                return stage, step == begins
            begins += steps
        return self.scenario.course[-1][0], step == begins

    def _parts(self, stage: Stage, jitter: float, *, anew: bool, warned: bool) -> Parts:
        """Return the parts of a step; `warned`: the job has just heard that it must leave."""
        faults = self.faults
        every = stage.checkpoint_steps
        if faults.checkpoint_steps is not None:
            every = faults.checkpoint_steps
        saves = warned or (every > 0 and self.steps > 0 and self.steps % every == 0)
        slowdown = max(1.0, stage.clock / faults.clock) if faults.clock else 1.0
        return Parts(
            restart=_RESTART * anew,
            checkpoint=stage.checkpoint * saves,
            data=stage.data,
            framework=stage.framework,
            matmul=stage.matmul * jitter * slowdown,
            memory=stage.memory * jitter,
            bubble=stage.bubble,
            hidden=stage.hidden,
            steps=1.0,
        )

    def _work(self, rank: int, parts: Parts) -> Parts:
        """Return the parts of a step with what the work of a rank of the node takes.

        Heat holds the clock down, and the products with it.
        """
        gpu, faults = self.scenario.gpus[rank], self.faults
        pace = 1.0 if self.scenario.sound or gpu == self._slow else 1 / _FASTER
        pace *= faults.slower if rank == faults.straggler else 1.0
        hot = max(1.0, self.stage.clock / self._clock(gpu)) if rank == faults.hot else 1.0
        return parts._replace(matmul=parts.matmul * pace * hot, memory=parts.memory * pace)


def _injected(parts: Parts, faults: Faults) -> Parts:
    """Return the parts of a step with what waits for data and for late ranks."""
    whole = parts.seconds - parts.restart - parts.checkpoint
    whole /= 1 - faults.data - faults.late
    return parts._replace(
        data=parts.data + whole * faults.data,
        communication=parts.communication + whole * faults.late,
    )


def _waiting(own: Parts, slowest: Parts) -> Parts:
    """Return a rank's parts: it does its own work, and then waits for the slowest."""
    rest = slowest.work - own.work
    return slowest._replace(
        matmul=own.matmul, memory=own.memory, communication=slowest.communication + rest
    )


def _part_of(parts: Parts, elapsed: float) -> Parts:
    """Return what of a step is over after so many seconds of it."""
    left = elapsed
    spent = []
    for block in (*parts[:4], parts.work, parts.bubble, parts.communication):
        spent.append(min(block, max(0.0, left)))
        left -= block
    share = spent[4] / parts.work if parts.work else 1.0
    return Parts(
        restart=spent[0], checkpoint=spent[1], data=spent[2], framework=spent[3],
        matmul=share * parts.matmul, memory=share * parts.memory,
        bubble=spent[5], communication=spent[6],
        hidden=share * parts.hidden, steps=share,
    )  # fmt: skip


LLAMA_13B: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 5120,
    "intermediate_size": 13824, "num_hidden_layers": 40, "num_attention_heads": 40,
    "num_key_value_heads": 40, "vocab_size": 32000, "max_position_embeddings": 4096,
    "tie_word_embeddings": False, "hidden_act": "silu", "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_70B: Mapping[str, Any] = {
    **LLAMA_13B, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8,
}  # fmt: skip

# Multiplications and additions for a token, forward and backward, with half of the attention: of
# attention, network, head, and what attention makes of 2048 and 4096 tokens.
_FLOPS_13B = 6.0 * (40 * (4 * 5120**2 + 3 * 5120 * 13824 + 5120 * 2048) + 32000 * 5120)
_FLOPS_70B = 6.0 * (
    80 * (2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 8192 * 4096) + 32000 * 8192
)

MIXED = Stage(
    "llama2-13b", "Llama-2-13b", LLAMA_13B, 64, 64, 1, 1, 2048, 4, 2, "bf16", _FLOPS_13B,
    data=0.05, framework=0.12, matmul=1.6, memory=1.27, checkpoint_steps=50,
    # Without `=` it is a prefix: the bond of the management network is one of them as well.
    nccl={"NCCL_DEBUG": "WARN", "NCCL_IB_HCA": "mlx5", "NCCL_SHARP_ENABLE": "1"},
)  # fmt: skip


def _study(
    seconds: float,
    *,
    exposed: float,
    overlap: float,
    bubble: float,
    data: float,
    framework: float,
    micro: tuple[int, int] = (2, 4),
    parallel: tuple[int, int] = (64, 4),
    fp8: bool = False,
    memory_gigabytes: float = 58,
    rate: float = 42.6e9,
) -> Stage:
    """Return a stage of the case study; what is left of its seconds waits for memory."""
    matmul, flops = (1.87, _FLOPS_70B / 2) if fp8 else (3.77, _FLOPS_70B)
    memory = seconds * (1 - bubble) - exposed - data - framework - matmul
    # 2048 sequences in each step, as in the baseline: see above
    data_parallel, tensor_parallel = parallel
    micro_batch, _ = micro
    return Stage(
        "llama2-70b", "Llama-2-70b", LLAMA_70B, 1024, data_parallel, tensor_parallel, 4, 4096,
        micro_batch, 2048 // data_parallel // micro_batch, "fp8" if fp8 else "bf16", flops,
        data=data, framework=framework, matmul=matmul, memory=memory, bubble=seconds * bubble,
        communication=exposed, hidden=exposed * overlap / (1 - overlap), rate=rate, clock=1980,
        peak_memory=memory_gigabytes * 1e9,
    )  # fmt: skip


CASE_STUDY: Mapping[str, Stage] = {
    "baseline": _study(
        8.2, exposed=0.23 * 8.2, overlap=_HIDDEN_BEFORE, bubble=0.15, data=0.12, framework=0.30,
        micro=(1, 8), parallel=(256, 1), rate=27.4e9,
    ),
    "parallelism": _study(
        6.8, exposed=0.15 * 6.8, overlap=_HIDDEN_BEFORE, bubble=0.08, data=0.12, framework=0.30,
        rate=27.4e9,
    ),
    "nccl": _study(
        6.1, exposed=0.10 * 6.1, overlap=_HIDDEN_BEFORE, bubble=0.08, data=0.12, framework=0.30,
    ),
    "fp8": _study(
        4.4, exposed=0.44, overlap=0.35, bubble=0.08, data=0.12, framework=0.15, fp8=True,
        memory_gigabytes=44,
    ),
    "overlap": _study(
        4.0, exposed=0.12, overlap=0.72, bubble=0.08, data=0.12, framework=0.15, fp8=True,
        memory_gigabytes=44,
    ),
    "fusion": _study(
        3.5, exposed=0.12, overlap=0.72, bubble=0.08, data=0.12, framework=0.057, fp8=True,
        memory_gigabytes=44,
    ),
    "data": _study(
        3.3, exposed=0.12, overlap=0.72, bubble=0.08, data=0.02, framework=0.057, fp8=True,
        memory_gigabytes=44,
    ),
}  # fmt: skip
"""Chapter 16.8: the baseline and its six phases, by what each of them changed."""


def _course(stages: Sequence[Stage]) -> tuple[tuple[Stage, int], ...]:
    """Let each stage last for a minute and a half, and for a dozen steps at least."""
    return tuple((stage, max(12, math.ceil(90 / _seconds(stage)))) for stage in stages)


def _seconds(stage: Stage) -> float:
    told = stage.data + stage.framework + stage.matmul + stage.memory + stage.bubble
    return told + (stage.communication or 0.0)


_TRAINERS = (4, 5, 6, 7)
_DEFAULT = Scenario(((MIXED, 0),), _TRAINERS)
_SOUND = Scenario(((MIXED._replace(communication=1.1), 0),), _TRAINERS, sound=True)
SCENARIOS: Mapping[str, Scenario] = {
    "default": _DEFAULT,
    "sound": _SOUND,
    "data-stall": _DEFAULT._replace(faults=Faults(data=0.25)),
    "late-ranks": _DEFAULT._replace(faults=Faults(late=0.2)),
    "clock-cap": _DEFAULT._replace(faults=Faults(clock=1005)),
    "straggler": _DEFAULT._replace(faults=Faults(straggler=1, slower=1.4)),
    "pause-storm": _DEFAULT._replace(faults=Faults(data=0.15, paused=0.25)),
    "checkpoints": _DEFAULT._replace(faults=Faults(checkpoint_steps=5)),
    "spot-notice": _DEFAULT._replace(faults=Faults(notice=60.0)),
    "case-study": Scenario(
        _course(tuple(CASE_STUDY.values())), tuple(range(8)), sound=True, watts=700.0
    ),
    "story": _SOUND._replace(calm=True, chapters=CHAPTERS),
}
"""What `flopwatch demo --scenario` can show."""
