"""A made-up GPU node: two inference servers, a training job, the GPUs and ports that both use.

Small enough to read, physical enough to look at: times follow from a roofline, queues from the
times, latencies from the queues, and what the GPUs do from all of it. GPUs 0 to 3 serve a 70B model
with vLLM, the CPU a 3B model with llama.cpp, GPUs 4 to 7 train and use eight InfiniBand rails. The
load is such that the slow requests are now fast enough for `demo.PROMISE` and now not. The physics
of GPUs is in `gpus`; how engines, kernel and driver show all this is left to `engines`, `sysfs`,
`kernel` and `nvml`.

Everything happens at computed moments, never "once per step of the caller": the same seed gives
the same node, however the time is cut into pieces (down to a microsecond). A second costs a few
milliseconds of CPU time.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from exporter.demo.faults import Faults
from exporter.demo.gpus import BANDWIDTH, SLOW, TOP, Done, Gpus, Process
from exporter.demo.story import Story
from exporter.demo.training import SCENARIOS, Job, Parts, Scenario

_TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)
_STEP_TOKENS = (1.0, *(float(2**n) for n in range(3, 15)))
_FIRST = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_GAP = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
)  # fmt: skip
_PHASE = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
BOUNDS: Mapping[str, tuple[float, ...]] = {
    "request_prompt_tokens": _TOKENS,
    "request_generation_tokens": _TOKENS,
    "iteration_tokens_total": _STEP_TOKENS,
    "request_max_num_generation_tokens": _TOKENS,
    "request_params_n": (1.0, 2.0, 5.0, 10.0, 20.0),
    "request_params_max_tokens": _TOKENS,
    "time_to_first_token_seconds": _FIRST,
    "inter_token_latency_seconds": _GAP,
    "request_time_per_output_token_seconds": _GAP,
    "e2e_request_latency_seconds": _PHASE,
    "request_queue_time_seconds": _PHASE,
    "request_inference_time_seconds": _PHASE,
    "request_prefill_time_seconds": _PHASE,
    "request_decode_time_seconds": _PHASE,
    "request_num_preemptions": (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0),
    "request_prefill_kv_computed_tokens": _TOKENS,
}
"""What is observed, by vLLM 0.32's own names without the prefix, with its own buckets."""


class Buckets:
    """A histogram being filled. `counts` are not cumulative; the last one has no bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, several times if it is shared."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


class Spec(NamedTuple):
    """A model on its hardware. Rates are what is reached, all devices of the server together."""

    name: str
    parameters: float
    weights: float
    """Bytes that each step reads."""
    flops: float
    """Operations per second."""
    bandwidth: float
    """Bytes of memory per second."""
    kv_bytes: float
    """Bytes of KV cache for one token."""
    kv_tokens: int
    """Tokens that the KV cache holds."""
    slots: int
    """Requests in one batch."""
    chunk: int
    """Prompt tokens that one step computes at most."""
    overhead: float
    """Seconds of scheduling and sampling in each step."""

    def seconds(self, tokens: int, context: int) -> float:
        """Return how long a step takes: the roofline of computing and reading."""
        computing = 2 * self.parameters * tokens / self.flops
        reading = (self.weights + self.kv_bytes * context) / self.bandwidth
        return max(computing, reading) + self.overhead


BLOCK = 16
"""Tokens in a block of the KV cache."""

# bf16 on four H100 SXM (989 Tflop/s and 3.35 TB/s each); 80 layers, 8 KV heads of 128
_LARGE = Spec(
    "meta-llama/Llama-3.1-70B-Instruct", 70.6e9, 141.2e9, 4 * 989e12 * 0.5, 4 * 3.35e12 * 0.7,
    80 * 8 * 128 * 2 * 2, 25_376 * BLOCK, 128, 1024, 0.003,
)  # fmt: skip
# four-bit weights on the cores of one socket; 28 layers, 8 KV heads of 128
_SMALL = Spec("", 3.2e9, 2.0e9, 3e12, 0.18e12, 28 * 8 * 128 * 2 * 2, 4 * 8192, 4, 512, 0.0005)


@dataclass(slots=True, eq=False)
class Request:
    """One request. `todo` is prompt tokens still to compute; times are seconds of the model.

    It ends after `output` tokens, at its limit `max_tokens`, or after `leaves` tokens because its
    client goes away (0: it stays).
    """

    arrival: float
    prompt: int
    cached: int
    output: int
    max_tokens: int
    leaves: int
    todo: int = 0
    produced: int = 0
    preemptions: int = 0
    scheduled: float | None = None
    first: float = 0.0
    last: float = 0.0

    @property
    def context(self) -> int:
        """Tokens that it keeps in the KV cache while it runs."""
        return self.prompt + self.produced


class Work(NamedTuple):
    """What a server has had computed so far: seconds, operations, bytes read, tokens."""

    seconds: float = 0.0
    flops: float = 0.0
    read: float = 0.0
    tokens: float = 0.0


class Traffic:
    """When requests arrive, and what they want.

    The rate has a wave over the day, one over two minutes, and bursts; all begin with the node, so
    that there is the same to see at whatever hour it is born; `calm` ones have no bursts. `agents`
    is the share of requests with long prompts, most of which was seen before.
    """

    def __init__(
        self, dice: Random, *, rate: float, agents: float, longest: int, calm: bool = False
    ) -> None:
        self._dice = dice
        self._rate = rate
        self._agents = self._usual = agents
        self._longest = longest
        self._load = 1.0
        self._burst = (math.inf if calm else dice.uniform(30, 90), 0.0)

    def press(self, load: float, agents: float | None) -> None:
        """Let `load` times as many requests come as usual, such a share of them with long prompts.

        It counts from the next request but one on.
        """
        self._load = load
        self._agents = self._usual if agents is None else agents

    def next(self, now: float) -> float:
        """Return when the next request arrives."""
        begin, end = self._burst
        if now > end >= begin:
            begin, end = self._burst = (now + self._dice.uniform(120, 360), 0.0)
        if now >= begin > end:
            self._burst = (begin, now + self._dice.uniform(10, 25))
        day = 1 + 0.2 * math.sin(2 * math.pi * now / 86_400)
        minutes = 1 + 0.3 * math.sin(2 * math.pi * now / 120)
        burst = 2.5 if begin <= now else 1.0
        return now + self._dice.expovariate(self._rate * self._load * day * minutes * burst)

    def request(self, now: float) -> Request:
        """Return a request that arrives now."""
        dice = self._dice
        agent = dice.random() < self._agents
        median, spread = (9000, 0.5) if agent else (350, 0.8)
        prompt = min(self._longest, 8 + int(median * dice.lognormvariate(0, spread)))
        seen = dice.uniform(0.6, 0.95) if agent else dice.choice((0.0, 0.0, 0.4))
        cached = int(prompt * seen) // BLOCK * BLOCK
        output = 1 + int(180 * dice.lognormvariate(0, 0.8))
        leaves = dice.randint(1, output) if dice.random() < 0.02 else 0
        return Request(now, prompt, cached, output, dice.choice((256, 512, 1024, 2048)), leaves)


class Server:
    """An inference server: continuous batching over a KV cache.

    In each step the running requests compute prompts, `chunk` tokens together, and those that are
    through get one token each. When the KV cache overflows the youngest ones go back to the queue.
    """

    def __init__(self, spec: Spec, traffic: Traffic, dice: Random) -> None:
        self.spec = spec
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.held = 0
        self.seen = {name: Buckets(bounds) for name, bounds in BOUNDS.items()}
        self.finished = {"stop": 0, "length": 0}
        self.aborted = self.refused = self.preempted = self.steps = self.busy_slots = 0
        self.prompted = self.generated = self.queried = self.hits = 0
        # what llama.cpp counts, when a request has its first token and when it ends
        self.prompt_seconds = self.decode_seconds = 0.0
        self.prompt_hits = self.ended_tokens = self.longest = 0
        self._window = (0, 0.0, 0, 0.0)
        self.traffic = traffic
        self._dice = dice
        self._plan: list[tuple[Request, int]] = []
        self._began = 0.0
        self._ends = math.inf
        self._done = self._doing = Work()
        self.held_up = 0.0
        """Seconds for which a request has been underway when it comes here."""
        self._arrives = traffic.next(0.0)

    def advance(self, until: float) -> None:
        """Let everything happen up to a moment."""
        while (now := min(self._ends, self._arrives)) <= until:
            if now == self._arrives:
                self._arrive(now)
            else:
                self._finish(now)
            if self._ends == math.inf:
                self._begin(now)

    def work(self, now: float) -> Work:
        """Return the work done by a moment up to which all has happened: of a step its share."""
        if self._ends == math.inf:
            return self._done
        share = (now - self._began) / (self._ends - self._began)
        return Work._make([a + share * b for a, b in zip(self._done, self._doing, strict=True)])

    def speeds(self) -> tuple[float, float]:
        """Return prompt and output tokens per second since the last call, 0 if there were none."""
        now = (self.prompted, self.prompt_seconds, self.ended_tokens, self.decode_seconds)
        prompted, prompting, ended, decoding = (
            a - b for a, b in zip(now, self._window, strict=True)
        )
        self._window = now
        return prompted / prompting if prompting else 0.0, ended / decoding if decoding else 0.0

    def _arrive(self, now: float) -> None:
        self._arrives = self.traffic.next(now)
        if self._dice.random() < 0.004:
            self.refused += 1  # a bad request: an answer 400, and no trace in the engine
        else:
            self.waiting.append(self.traffic.request(now - self.held_up))

    def _admit(self, now: float) -> None:
        while self.waiting and len(self.running) < self.spec.slots:
            request = self.waiting[0]
            if self.held + request.context > self.spec.kv_tokens:
                return
            self.running.append(self.waiting.popleft())
            self.held += request.context
            request.todo = request.context - request.cached
            if request.scheduled is None:
                request.scheduled = now
                self.queried += request.prompt
                self.hits += request.cached

    def _begin(self, now: float) -> None:
        self._admit(now)
        if not self.running:
            return
        room = self.spec.chunk
        self._plan.clear()
        for request in self.running:
            if request.todo and room:
                share = min(room, request.todo)
                room -= share
                self._plan.append((request, share))
        computed = self.spec.chunk - room
        decoding = sum(not request.todo for request in self.running)
        self.steps += 1
        self.busy_slots += decoding
        spec, tokens = self.spec, computed + decoding
        took = spec.seconds(tokens, self.held) * self._dice.uniform(0.97, 1.06)
        self._began, self._ends = now, now + took
        read = spec.weights + spec.kv_bytes * self.held
        self._doing = Work(took - spec.overhead, 2 * spec.parameters * tokens, read, tokens)

    def _finish(self, now: float) -> None:
        began, self._ends = self._began, math.inf
        self._done = Work._make([a + b for a, b in zip(self._done, self._doing, strict=True)])
        tokens = 0
        for request, share in self._plan:
            request.todo -= share
            tokens += share
        ready = [request for request in self.running if not request.todo]
        gaps = self.seen["inter_token_latency_seconds"]
        steady = 0
        for request in ready:
            request.produced += 1
            if request.produced == 1:
                self._first(request, now)
            elif request.last == began:
                steady += 1
            else:
                gaps.observe(now - request.last)
            request.last = now
        gaps.observe(now - began, steady)
        self.held += len(ready)
        self.generated += len(ready)
        self.seen["iteration_tokens_total"].observe(tokens + len(ready))
        for request in ready:
            if request.produced in (request.output, request.max_tokens, request.leaves):
                self._end(request)
        self._make_room()

    def _first(self, request: Request, now: float) -> None:
        request.first = now
        self.prompted += request.prompt
        self.prompt_hits += request.cached
        self.prompt_seconds += now - (request.scheduled or 0.0)
        self.seen["time_to_first_token_seconds"].observe(now - request.arrival)

    def _end(self, request: Request) -> None:
        self.running.remove(request)
        self.held -= request.context
        self.ended_tokens += request.produced
        self.decode_seconds += request.last - request.first
        self.longest = max(self.longest, request.context)
        if request.produced == request.leaves:
            self.aborted += 1  # vLLM forgets these: no outcome, no latency
            return
        self.finished["length" if request.produced == request.max_tokens else "stop"] += 1
        for name, value in _measured(request).items():
            self.seen[name].observe(value)

    def _make_room(self) -> None:
        while self.held > self.spec.kv_tokens:
            request = self.running.pop()
            self.held -= request.context
            request.preemptions += 1
            self.preempted += 1
            self.waiting.appendleft(request)


def _measured(request: Request) -> Mapping[str, float]:
    """Return what vLLM observes of a finished request."""
    scheduled = request.scheduled or 0.0
    decoding = request.last - request.first
    return {
        "request_prompt_tokens": request.prompt,
        "request_generation_tokens": request.produced,
        "request_max_num_generation_tokens": request.produced,
        "request_params_n": 1,
        "request_params_max_tokens": request.max_tokens,
        "request_time_per_output_token_seconds": decoding / max(1, request.produced - 1),
        "e2e_request_latency_seconds": request.last - request.arrival,
        "request_queue_time_seconds": scheduled - request.arrival,
        "request_inference_time_seconds": request.last - scheduled,
        "request_prefill_time_seconds": request.first - scheduled,
        "request_decode_time_seconds": decoding,
        "request_num_preemptions": request.preemptions,
        "request_prefill_kv_computed_tokens": request.prompt - request.cached,
    }


class Port(NamedTuple):
    """An RDMA port: bytes moved, and what went wrong."""

    sent: int
    received: int
    infiniband: bool = True
    up: bool = True
    waits: int = 0
    symbols: int = 0
    recoveries: int = 0
    downs: int = 0
    resent: int = 0
    notices: int = 0
    overruns: int = 0


class Interface(NamedTuple):
    """A network interface: its speed in Mb/s, bytes moved, and the driver of its card, if any."""

    megabits: int
    sent: int
    received: int
    driver: str = ""


class Pauses(NamedTuple):
    """For how long a RoCE port was not allowed to send, and had others wait, in microseconds."""

    paused: int
    pausing: int


BONDED = ("ens8f0", "ens8f1")
RAILS = tuple(f"mlx5_{n}" for n in range(8))
_SLOW, _WEAK, _PEGGED = 5, 3, 6
MISPLACED = RAILS[6]
"""The NIC that is in the wrong slot, unless all is sound (`pci`): its GPU has none of its own."""
# A sharded model: two gathers and one scatter of bf16 weights in each step, for each rail.
_VOLUME = 3 * 2 * 13_000_000_000 // 2
_SAVED = 700e6
"""Bytes of a checkpoint that are written each second."""


_RETRAINED = 2
"""Seconds after a port came up until the job uses it again."""

# A lossless network pauses now and then.
_QUIET = 0.0004


class Fabric:
    """The ports, driven by a training job: compute, then exchange over all rails, then again.

    Rail 5 is slow (a bad cable: symbol errors), and all wait for it. Rail 3 goes down now and then
    and the job stands still, unless all is `sound`; any rail's cable can be `cut`. Data and
    checkpoints go over a RoCE bond of two ports; nothing is computed while a checkpoint is written.
    """

    def __init__(self, dice: Random, job: Job) -> None:
        self.job = job
        self._dice = dice
        self._now = 0.0
        self._sound = job.scenario.sound
        self._outage = math.inf if self._sound else dice.uniform(120, 180)
        self._down = (0.0, 0.0)
        self._cut: int | None = None
        self._talking = 0.0
        self._notices = 0
        self._downs = [0] * 8
        self._sent = [0] * 8
        self._waits, self._symbols, self._resent = [0] * 8, [0] * 8, [0] * 8
        self._pauses = (0.0, Pauses(0, 0), (0.0, 0.0))
        self._begin(0.0)

    @property
    def steps(self) -> int:
        """Steps of the job that are over."""
        return self.job.steps

    def advance(self, until: float) -> None:
        """Let everything happen up to a moment."""
        while (ends := self.job.lap.ends) <= until:
            self._settle()
            self._begin(ends)
        self._now = until

    def phases(self, rank: int | None = None) -> Parts:
        """Return what a rank of this node has spent, or the slowest GPU."""
        return self.job.spent(self._now, rank)

    def ports(self) -> Mapping[str, Port]:
        """Return the RDMA ports as they are now, by device."""
        saved = round(self.phases().checkpoint * _SAVED)
        rails = {name: self._rail(rail) for rail, name in enumerate(RAILS)}
        bond = Port(
            infiniband=False,
            sent=saved + self._flow(2e6),
            received=self._flow(150e6),
            notices=self._notices,
        )
        return {**rails, "mlx5_bond_0": bond}

    def interfaces(self) -> Mapping[str, Interface]:
        """Return the network interfaces as they are now, by name."""
        return {
            "bond0": Interface(200_000, self._flow(4e6), self._flow(1.5e6)),
            "eno1": Interface(1_000, self._flow(40e3), self._flow(25e3), "igb"),
            **{
                name: Interface(100_000, self._flow(2e6), self._flow(0.75e6), "mlx5_core")
                for name in BONDED
            },
        }

    def pauses(self) -> Pauses:
        """Return how long each of the bonded RoCE ports was paused, and paused others, so far."""
        since, base, (paused, pausing) = self._pauses
        passed = round((self._now - since) * 1e6)
        return Pauses(base.paused + int(passed * paused), base.pausing + int(passed * pausing))

    def pause(self, paused: float, pausing: float) -> None:
        """Have the bonded ports be paused, and pause others, such shares of the time from now."""
        self._pauses = (self._now, self.pauses(), (paused, pausing))

    def cut(self, rail: int | None) -> None:
        """Have the cable of a rail be broken from now, or none."""
        if rail == self._cut:
            return
        self._cut = rail
        if rail is not None:
            self._downs[rail] += 1
        elif math.isinf(self.job.lap.ends):
            self.job.resume(max(self._now, self._down[1]) + _RETRAINED)
            self._exchanges = self.job.lap.ends - self._talking

    def moved(self, *rails: int) -> tuple[int, int]:
        """Return the bytes that some rails have sent and received together."""
        ports = [self._rail(rail) for rail in rails]
        return sum(port.sent for port in ports), sum(port.received for port in ports)

    def _rail(self, rail: int) -> Port:
        sent = self._sent[rail] + self._sending(rail)
        weak = rail == _WEAK
        return Port(
            sent=sent,
            received=sent * 499 // 500,
            up=rail != self._cut and not (weak and self._down[0] <= self._now < self._down[1]),
            waits=self._waits[rail],
            symbols=self._symbols[rail],
            recoveries=self._symbols[rail] // 4,
            downs=self._downs[rail],
            resent=self._resent[rail],
            # as far as this counter goes: it has stood there for as long as the port is up
            overruns=15 if rail == _PEGGED and not self._sound else 0,
        )

    def _sending(self, rail: int) -> int:
        """Return the bytes that a rail has sent in this step: behind the work, and after it."""
        lap, now = self.job.lap, self._now
        working = max(0.0, min(now, lap.talks) - lap.computes)
        behind = self._behind * min(1.0, working / lap.slowest.work)
        after = max(0.0, now - self._exchanges) * self._rates[rail]
        return int(behind + min(self._volume - self._behind, after))

    def _flow(self, rate: float) -> int:
        """Return the bytes of a flow that swells and ebbs every ten minutes."""
        angle = 2 * math.pi / 600
        return int(rate * (self._now + 0.4 * math.sin(self._now * angle) / angle))

    def _begin(self, at: float) -> None:
        dice, stage = self._dice, self.job.stage
        if at >= self._outage:
            self._down = (at, at + dice.uniform(60, 120))
            self._outage = at + dice.uniform(1200, 2400)
            self._downs[_WEAK] += 1
        jitter = 1.0 if self._sound else dice.uniform(0.97, 1.05)
        self._rates = [stage.rate * dice.uniform(0.97, 1.0) for _ in RAILS]
        if self._sound:
            self._rates = [stage.rate] * len(RAILS)
            self._behind = stage.hidden * stage.rate
            self._volume = (stage.hidden + (stage.communication or 0.0)) * stage.rate
        else:
            self._rates[_SLOW] *= dice.uniform(0.55, 0.75)
            self._behind, self._volume = 0.0, float(_VOLUME)
        self._talking = (self._volume - self._behind) / min(self._rates)
        ready = self._down[1] + _RETRAINED if self._cut is None else math.inf
        self.job.begin(at, jitter, ready, self._talking)
        self._exchanges = self.job.lap.ends - self._talking

    def _settle(self) -> None:
        """Count a step that is over, and what went wrong in it."""
        dice = self._dice
        saved = self.job.lap.slowest.checkpoint > 0
        self.job.end()
        for rail in range(len(RAILS)):
            self._sent[rail] += int(self._volume)
        if saved:
            self._notices += dice.randint(20, 200)
        if self._sound:
            return
        for rail in range(len(RAILS)):
            self._waits[rail] += dice.randint(300_000, 500_000) if rail == _SLOW else 10_000
        if dice.random() < 0.15:
            self._symbols[_SLOW] += dice.randint(1, 3)
            self._resent[_SLOW] += 1
        if dice.random() < 0.005:
            self._symbols[dice.randrange(len(RAILS))] += 1


SERVING = 4
# What a token costs between four GPUs: two reductions in each of 80 layers, 8192 values of bf16,
# each of which a GPU sends one and a half times.
_REDUCED = 80 * 2 * 8192 * 2 * 1.5
# Bytes beside weights and cache: activations, graphs, contexts.
_WORKSPACE = 10e9
_EXCHANGING = 0.13  # SMs that NCCL takes, also while it waits


class Node:
    """The node. `born` is the Unix time at which it starts; `now` seconds since then.

    GPUs that train do not serve: `serves` tells whether there are any for the 70B model.
    """

    def __init__(
        self, seed: int, born: float = 0.0, scenario: Scenario = SCENARIOS["default"]
    ) -> None:
        self.born = born
        self.now = 0.0
        self.serves = scenario.gpus[0] >= SERVING
        self.gpus = Gpus(
            _dice(seed, "gpus"), _jobs(scenario), watts=scenario.watts, sound=scenario.sound
        )
        self.job = Job(scenario, SLOW, lambda gpu: self.gpus.all[gpu].bearable)
        self.fabric = Fabric(_dice(seed, "fabric"), self.job)
        calm = scenario.calm
        self.vllm = self._server(seed, _LARGE, rate=3.2, agents=0.22, longest=32_000, calm=calm)
        self.llamacpp = self._server(seed, _SMALL, rate=0.2, agents=0.0, longest=4_096, calm=calm)
        self.boots = 1
        """How often the machine has started: one that the cloud stops comes back."""
        self.story = Story(scenario.chapters)
        self.inject(scenario.faults)

    def inject(self, faults: Faults) -> None:
        """Let the node have other faults, the training job from its next step on."""
        self.job.faults = faults
        self.vllm.held_up = faults.held
        self.vllm.traffic.press(faults.load, faults.agents)
        self.gpus.lose(faults.lost, self.now)
        self.fabric.cut(faults.cut)
        self.fabric.pause(_QUIET + faults.paused, faults.pausing)
        for rank, index in enumerate(self.job.scenario.gpus):
            self.gpus.all[index].cap = TOP if faults.clock is None else faults.clock
            self.gpus.all[index].hot = rank == faults.hot

    def advance(self, seconds: float) -> None:
        """Let time pass. Raises `ValueError` if it is to go back."""
        if seconds < 0:
            raise ValueError(f"time does not go back: {seconds} seconds")
        # rounded, so that ten tenths of a second are a second
        self.now = round(self.now + seconds, 6)
        while (moment := min(self.gpus.next, self.story.next)) <= self.now:
            self._pass(moment)
            if moment == self.gpus.next:
                self.gpus.tick(self._done(moment))
            if moment == self.story.next:
                self._turn(moment)
        self._pass(self.now)

    def _turn(self, moment: float) -> None:
        """Let the next chapter begin, with its faults and without those of the one before."""
        if self.job.faults.fate == "stop":
            self.boots += 1
            self.job.restart()
        faults = self.story.turn().faults
        if faults.notice is not None:
            faults = faults._replace(notice=moment + faults.notice)
        self.inject(faults)

    def _pass(self, until: float) -> None:
        if self.serves:
            self.vllm.advance(until)
        self.llamacpp.advance(until)
        self.fabric.advance(until)

    def _done(self, now: float) -> Mapping[int, Done]:
        """Return what each GPU has done by now."""
        done = dict.fromkeys(range(SERVING), _served(self.vllm.work(now)))
        gpus = self.job.scenario.gpus
        rails = len(RAILS) // len(gpus)
        for rank, gpu in enumerate(gpus):
            moved = self.fabric.moved(*range(rails * rank, rails * (rank + 1)))
            done[gpu] = _trained(now, self.fabric.phases(rank), self.job.flops(now, rank), *moved)
        return done

    def _server(
        self, seed: int, spec: Spec, *, rate: float, agents: float, longest: int, calm: bool
    ) -> Server:
        dice = _dice(seed, f"server {spec.name}")
        wishes = _dice(seed, f"traffic {spec.name}")
        traffic = Traffic(wishes, rate=rate, agents=agents, longest=longest, calm=calm)
        return Server(spec, traffic, dice)


def _jobs(scenario: Scenario) -> list[Process]:
    """Return the process on each GPU; the kernel cuts names off after 15 letters."""
    spec = _LARGE
    memory = (spec.weights + spec.kv_bytes * spec.kv_tokens) / SERVING + _WORKSPACE
    jobs = [Process(41_210 + n, "VLLM::Worker_TP", int(memory)) for n in range(SERVING)]
    trainer = int(scenario.course[0][0].peak_memory)
    trainers = [Process(52_304 + n, "pt_main_thread", trainer) for n, _ in enumerate(scenario.gpus)]
    return [*jobs, *trainers][-8:]


def _served(work: Work) -> Done:
    """Return what each GPU has done for a server that is split over `SERVING` of them."""
    return Done(
        flops=work.flops / SERVING,
        memory=work.read / SERVING,
        kernels=work.seconds,
        sms=0.86 * work.seconds,
        warps=0.24 * work.seconds,
        nvlink=_REDUCED * work.tokens,
        sent=2e6 * work.seconds,
        received=4e6 * work.seconds,
    )


def _trained(now: float, parts: Parts, flops: float, sent: float, received: float) -> Done:
    """Return what a GPU has done for the trainer; `sent` and `received` are its rails' bytes.

    What comes in over the rails is handed on to the three others in the node, and each byte that
    comes or goes passes through the memory. A GPU that has nothing to do but wait for others runs
    a kernel that asks whether they are there.
    """
    waiting = parts.bubble + parts.communication  # or exchanging, which looks the same from here
    saved = parts.checkpoint * _SAVED / 4
    return Done(
        flops=flops,
        memory=BANDWIDTH * (0.2 * parts.matmul + 0.8 * parts.memory) + 7 * sent + received,
        kernels=now - parts.idle,
        sms=0.93 * parts.work + _EXCHANGING * waiting,
        warps=0.28 * parts.work + 0.02 * waiting,
        nvlink=3 * sent,
        sent=sent + saved,
        received=received + 20e6 * now,
    )


def _dice(seed: int, purpose: str) -> Random:
    """Return random numbers of their own for each part, so that one part does not move another."""
    return Random(f"{seed} {purpose}")  # noqa: S311 - a model, no secret
