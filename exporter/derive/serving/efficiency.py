"""How much of what the GPUs can do serving uses: MFU, MBU, and tokens for each joule.

Work is counted from the model's shape and the engine's counters (`method="model"`), or taken from
the engine's own estimate where it makes one (`method="engine"`: vLLM; SGLang's operations, for
dense models only, never its bytes, which charge the weights to each token). What the GPUs
themselves measured stands beside it (`method="gpu"`), where no other server works on them.

Operations: the computed prompt tokens, not those from a cache, each with the context before it;
then each token that was generated or checked as a draft. Bytes: the weights once for each forward
pass, of experts those that the step's tokens are expected to meet; the KV cache before each token;
and what is written to it. Which steps had prompts in them no engine tells: each prompt is taken to
have one to itself, a long one several. Contexts are means of the window, so long-tailed lengths are
counted low.

    llm_mfu_ratio{model_name="...",engine="vllm",server="a",window="5m",method="model",peak="bf16"} 0.31
    llm_decode_mbu_ratio{...,window="5m",method="model",peak="memory_bandwidth"} 0.62
    llm_tokens_per_joule{...,window="5m"} 1.9
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

from exporter import catalogue as c
from exporter.derive.derivation import readings
from exporter.derive.serving.book import WINDOWS, Book, Entity
from exporter.derive.serving.increase import Increase
from exporter.derive.serving.node import Meter, Node
from exporter.reference.models import Models, ModelShape, cached
from exporter.samples import Metric, Sample, View

MOST = 1.05
"""A utilization above this is no reading: the shape, the GPUs or the peak are not what they seem.
A little above 1 is possible, since boards run above the clock that the peak belongs to."""

LEAST_SECONDS = 30.0
"""A window must cover so much: engines count some things as they happen and others at the end."""

CHUNK = 8192.0
"""Prompt tokens that a step computes at most: what engines take by default on large GPUs."""

BANDWIDTH = "memory_bandwidth"
"""The label `peak` of what is measured against the memory's bandwidth."""

STANDS_IN = {"fp16": ("bf16",), "fp8": ("bf16",), "fp4": ("fp8", "bf16"), "fp32": ("tf32",)}
"""What products are computed in where a GPU has no peak for the model's type: on a GPU without FP8
engines compute FP8 weights in 16 bits; FP16 is as fast as BF16 wherever both exist."""

COUNTS_FLOPS = ("vllm", "sglang")
COUNTS_BYTES = ("vllm",)
"""Engines whose estimates can be used."""

INPUTS = (c.LLM_KV_CACHE_INFO,)
OUTPUTS = (
    c.LLM_MFU_RATIO,
    c.LLM_MBU_RATIO,
    c.LLM_PREFILL_MFU_RATIO,
    c.LLM_DECODE_MBU_RATIO,
    c.LLM_TOKENS_PER_JOULE,
    c.LLM_ANOMALIES_TOTAL,
)


class Efficiency:
    """The part that says how well the GPUs of each server are used.

    `shapes` are those that the operator gave, by server; other models are looked up in `models` by
    the name that they are served under. Without a shape there is only what engine and GPU tell.
    """

    def __init__(
        self,
        node: Node,
        models: Models,
        shapes: Mapping[str, ModelShape] | None = None,
        windows: Sequence[str] = ("5m", "1h"),
    ) -> None:
        self._node = node
        self._models = models
        self._given = shapes or {}
        self._windows = tuple(windows)
        self._known: dict[str, ModelShape | None] = {}
        self._caches: dict[tuple[str, str], str] = {}
        self._busy: dict[Entity, _Busy] = {}
        self._invalid: set[tuple[str, ...]] = set()
        self._anomalies: dict[str, int] = {}

    def __call__(self, book: Book, view: View, now: float) -> Iterator[Sample]:
        """Yield what is known of each model on each server at `now`, in monotonic seconds."""
        self._node.observe(view, now)
        self._caches = {
            (r.labels[0], r.labels[3]): r.labels[4]
            for r in readings(view, c.LLM_KV_CACHE_INFO, now)
        }
        entities = book.entities()
        models_on: dict[str, int] = {}
        for entity in entities:
            models_on[entity.server] = models_on.get(entity.server, 0) + 1
        self._busy = {entity: self._note(book, entity, now) for entity in entities}
        seen: set[tuple[str, ...]] = set()
        for entity in entities:
            if not self._node.gpus(entity.server):
                continue
            alone = models_on[entity.server] == 1 and not self._node.is_shared(entity.server)
            for window in self._windows:
                for sample in self._of(book, entity, window, now, alone=alone):
                    if self._holds(sample, entity.server, seen):
                        yield sample
        self._invalid &= seen
        for server, number in self._anomalies.items():
            yield c.LLM_ANOMALIES_TOTAL(number, server, "utilization")

    def _of(
        self, book: Book, entity: Entity, window: str, now: float, *, alone: bool
    ) -> Iterator[Sample]:
        seconds = book.seconds(entity.server, window)
        if seconds < LEAST_SECONDS:
            return
        shape = self._shape(entity)
        peaks = self._peaks(entity.server, shape)
        # As a share: the book may remember more of the window than this daemon has seen.
        busy = seconds * (self._busy[entity].meter.rate(now, WINDOWS[window]) or 0.0)
        page = _Page(book, entity, window)
        work = _read(page, seconds, self._node.ranks(entity.server), busy)
        if shape is not None:
            labels = page.labels
            if peaks.flops:
                told = (*labels, "model", peaks.precision)
                yield from _operations(work, shape, peaks.flops, told)
            stored = self._stored(shape, entity)
            if peaks.bandwidth and stored is not None:
                yield from _traffic(work, stored, peaks.bandwidth, (*labels, "model", BANDWIDTH))
        yield from _by_engine(page, work, shape, peaks)
        if alone:
            yield from self._by_gpu(work, peaks, page)

    def _shape(self, entity: Entity) -> ModelShape | None:
        given = self._given.get(entity.server)
        if given is not None:
            return given
        name = entity.model_name
        if name not in self._known:
            if len(self._known) > 1000:
                self._known.clear()
            self._known[name] = self._models.resolve(name)
        return self._known[name]

    def _stored(self, shape: ModelShape, entity: Entity) -> ModelShape | None:
        """Return the shape with the KV cache that the engine tells of; None if its type is strange.

        An engine that does not tell has one of the model's own type.
        """
        server = entity.server
        dtype = self._caches.get((entity.model_name, server)) or self._caches.get(("", server))
        try:
            return cached(shape, dtype or "auto")
        except ValueError:
            return None

    def _peaks(self, server: str, shape: ModelShape | None) -> _Peaks:
        wanted = "bf16" if shape is None else shape.precision
        bandwidth = self._node.peak_bandwidth(server)
        number = len(self._node.gpus(server))
        for precision in (wanted, *STANDS_IN.get(wanted, ())):
            flops = self._node.peak_flops(server, precision)
            if flops is not None:
                return _Peaks(number, flops, precision, bandwidth)
        return _Peaks(number, None, wanted, bandwidth)

    def _note(self, book: Book, entity: Entity, now: float) -> _Busy:
        """Note how long an engine has had requests in work: one step of the clock at a time."""
        busy = self._busy.get(entity)
        if busy is None:
            return _Busy(now)
        if (book.latest(c.LLM_ACTIVE_REQUESTS, entity) or 0.0) > 0:
            busy.total += now - busy.last
        busy.last = now
        busy.meter.add(now, busy.total)
        return busy

    def _by_gpu(self, work: _Work, peaks: _Peaks, page: _Page) -> Iterator[Sample]:
        server, seconds, labels = page.entity.server, WINDOWS[page.window], page.labels
        rate = self._node.rate
        flops = rate(server, c.GPU_ESTIMATED_FLOPS_TOTAL, seconds, peaks.precision)
        if flops is not None and peaks.flops:
            yield c.LLM_MFU_RATIO(flops / peaks.flops, *labels, "gpu", peaks.precision)
        active = rate(server, c.GPU_DRAM_ACTIVE_SECONDS_TOTAL, seconds)
        if active is not None:
            yield c.LLM_MBU_RATIO(active / peaks.gpus, *labels, "gpu", BANDWIDTH)
        power = rate(server, c.GPU_ENERGY_JOULES_TOTAL, seconds)
        if power and work.output is not None:
            yield c.LLM_TOKENS_PER_JOULE(work.output / work.seconds / power, *labels)

    def _holds(self, sample: Sample, server: str, seen: set[tuple[str, ...]]) -> bool:
        """Tell whether a ratio can be true; count when one stops being so."""
        if sample.metric is c.LLM_TOKENS_PER_JOULE or sample.value <= MOST:  # type: ignore[operator]
            return True
        key = (sample.metric.name, *sample.labels)
        seen.add(key)
        if key not in self._invalid:
            self._invalid.add(key)
            self._anomalies[server] = self._anomalies.get(server, 0) + 1
        return False


class _Busy:
    """How long an engine has had work, and when that was last looked at."""

    __slots__ = ("last", "meter", "total")

    def __init__(self, now: float) -> None:
        self.last = now
        self.total = 0.0
        self.meter = Meter(now, 0.0)


class _Peaks(NamedTuple):
    """What a server's GPUs can do together; None where it is not known."""

    gpus: int
    flops: float | None
    precision: str
    bandwidth: float | None


@dataclass(frozen=True, slots=True)
class _Work:
    """What an engine did within a window; None where it does not tell.

    `computed` are prompt tokens without those from a cache, `started` first tokens of requests,
    `generated` the tokens after these, `checked` all that were computed to get them (drafts that
    were refused included) and `turns` how often a request took part in a step. `prompt` and
    `context` are the mean lengths of a prompt and of what a generated token had before it. `pace`
    is the mean time between two outputs of a request, `filling` the time spent on prompts.
    """

    seconds: float
    ranks: float
    output: float | None
    computed: float | None
    started: float | None
    prompt: float | None
    generated: float | None
    checked: float | None
    turns: float | None
    context: float | None
    pace: float | None
    steps: float | None
    filling: float | None


class _Page(NamedTuple):
    """One entity's part of the book, over one window."""

    book: Book
    entity: Entity
    window: str

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.entity, self.window)

    def rise(self, metric: Metric, **labels: str) -> float | None:
        return self.book.increase(metric, self.entity, self.window, **labels)

    def histogram(self, metric: Metric) -> Increase | None:
        return self.book.histogram(metric, self.entity, self.window)

    def mean(self, metric: Metric) -> float | None:
        found = self.book.gauge(metric, self.entity, self.window)
        return None if found is None else found.mean

    def latest(self, metric: Metric) -> float | None:
        return self.book.latest(metric, self.entity)


def _read(page: _Page, seconds: float, ranks: float, busy: float) -> _Work:
    rise = page.rise
    entered = rise(c.LLM_TOKENS_TOTAL, direction="input")
    output = rise(c.LLM_TOKENS_TOTAL, direction="output")
    first, ended = page.histogram(c.LLM_TTFT_SECONDS), page.histogram(c.LLM_E2E_SECONDS)
    started = first.n if first is not None else None if ended is None else ended.n
    generated = None if output is None or started is None else max(0.0, output - started)
    drafted = rise(c.LLM_DRAFT_TOKENS_TOTAL) or 0.0
    accepted = rise(c.LLM_ACCEPTED_DRAFT_TOKENS_TOTAL) or 0.0
    pace = _pace(page, generated)
    steps = rise(c.LLM_ENGINE_STEPS_TOTAL)
    if steps is None and pace:
        steps = ranks * busy / pace
    finished = 0.0 if ended is None else ended.n
    return _Work(
        seconds=seconds,
        ranks=ranks,
        output=output,
        computed=_computed(page, entered),
        started=started,
        prompt=_over(entered, started),
        generated=generated,
        checked=None if generated is None else max(0.0, generated - accepted) + drafted,
        turns=None if generated is None else max(0.0, generated - accepted),
        context=_context(page, entered, output, started, finished),
        pace=pace,
        steps=steps,
        filling=_filling(rise(c.LLM_PREFILL_SECONDS_TOTAL), started, finished, seconds),
    )


def _computed(page: _Page, entered: float | None) -> float | None:
    """Return the prompt tokens that were computed; None if those from a cache cannot be told."""
    computed = page.rise(c.LLM_PREFILL_TOKENS_TOTAL)
    hits = page.rise(c.LLM_PREFIX_CACHE_HIT_TOKENS_TOTAL)
    if computed is not None or entered is None or hits is None:
        return computed
    return max(0.0, entered - hits)


def _pace(page: _Page, generated: float | None) -> float | None:
    """Return the mean time between two outputs of a request, in seconds."""
    for metric in (c.LLM_ITL_SECONDS, c.LLM_TPOT_SECONDS):
        gaps = page.histogram(metric)
        if gaps is not None and gaps.n > 0 and gaps.total > 0:
            return gaps.total / gaps.n
    return _over(page.rise(c.LLM_DECODE_SECONDS_TOTAL), generated)


def _context(
    page: _Page,
    entered: float | None,
    output: float | None,
    started: float | None,
    finished: float,
) -> float | None:
    """Return what a generated token had before it: the prompt and half of the output, on average.

    By the requests that finished; else by those that started; else by what the KV cache held for
    those in work.
    """
    inputs = page.rise(c.LLM_FINISHED_INPUT_TOKENS_TOTAL)
    outputs = page.rise(c.LLM_FINISHED_OUTPUT_TOKENS_TOTAL)
    if finished and inputs is not None and outputs is not None:
        return (inputs + outputs / 2) / finished
    if started and entered is not None and output is not None:
        return (entered + output / 2) / started
    usage = page.mean(c.LLM_KV_CACHE_USAGE_RATIO)
    capacity = page.latest(c.LLM_KV_CACHE_CAPACITY_TOKENS)
    if usage is None or capacity is None:
        return None
    return _over(usage * capacity, page.mean(c.LLM_ACTIVE_REQUESTS))


def _filling(
    spent: float | None, started: float | None, finished: float, seconds: float
) -> float | None:
    """Return the time spent on prompts. Engines sum it over requests, most of them at their end.

    So it is scaled to the requests that started. Prompts that are worked on together each count,
    but there was no more time than the window has: it is a long estimate.
    """
    if spent is None or spent <= 0:
        return None
    if started is not None and finished:
        spent *= started / finished
    return min(spent, seconds)


def _operations(
    work: _Work, shape: ModelShape, peak: float, labels: tuple[str, ...]
) -> Iterator[Sample]:
    prefill = _prefill_flops(work, shape)
    decode = None
    if work.checked == 0:
        decode = 0.0
    elif work.checked is not None and work.context is not None:
        decode = work.checked * shape.token_flops(work.context)
    if prefill is not None and decode is not None:
        yield c.LLM_MFU_RATIO((prefill + decode) / (work.seconds * peak), *labels)
    if prefill and work.filling:
        yield c.LLM_PREFILL_MFU_RATIO(prefill / (work.filling * peak), *labels)


def _prefill_flops(work: _Work, shape: ModelShape) -> float | None:
    if work.computed is None or work.started is None:
        return None
    if work.computed == 0 or not work.started or work.prompt is None:
        return 0.0 if work.computed == 0 else None
    each = min(work.computed / work.started, work.prompt)
    return work.started * (shape.prompt_flops(each, work.prompt) + 2 * shape.head)


def _traffic(
    work: _Work, shape: ModelShape, peak: float, labels: tuple[str, ...]
) -> Iterator[Sample]:
    steps, turns, context = work.steps, work.turns, work.context
    if steps is None or turns is None or work.generated is None or work.computed is None:
        return
    if not steps:
        if turns == 0:
            yield c.LLM_MBU_RATIO(0.0, *labels)
        return
    if context is None:
        return
    batch = max(1.0, turns / steps)
    weights = shape.weight_bytes(batch)
    written = (work.computed + work.generated) * shape.cache_bytes
    read = _weights_read(shape, steps, batch, work.started or 0.0, work.computed)
    moved = read + turns * shape.cache_read_bytes(context) + written
    yield c.LLM_MBU_RATIO(moved / (work.seconds * peak), *labels)
    if turns and work.pace:
        each = weights + batch * (shape.cache_read_bytes(context) + shape.cache_bytes)
        yield c.LLM_DECODE_MBU_RATIO(work.ranks * each / (work.pace * peak), *labels)


def _weights_read(
    shape: ModelShape, steps: float, batch: float, prompts: float, computed: float
) -> float:
    """Return the bytes of weights that steps read, of which some have prompts in them.

    A step over a prompt meets nearly all experts, one that generates for a few requests only some:
    with the mean of both, each step would seem to read what only the first ones do. So they are
    counted apart: each prompt has a step to itself as long as there are so many steps, and one
    longer than `CHUNK` several. A request in work generates in those steps as well.
    """
    filling = min(steps, max(prompts, computed / CHUNK))
    if not filling:
        return steps * shape.weight_bytes(batch)
    full = shape.weight_bytes(batch + computed / filling)
    return filling * full + (steps - filling) * shape.weight_bytes(batch)


def _by_engine(
    page: _Page, work: _Work, shape: ModelShape | None, peaks: _Peaks
) -> Iterator[Sample]:
    """Yield what the engine's own estimates say of one GPU: the mean over data-parallel ranks."""
    engine, labels = page.entity.engine, (*page.labels, "engine")
    share = peaks.gpus / work.seconds
    if engine in COUNTS_FLOPS and peaks.flops:
        known = engine == "vllm" or (shape is not None and shape.is_dense)
        flops = page.rise(c.LLM_ESTIMATED_GPU_FLOPS_TOTAL)
        if known and _is_on(flops, work):
            yield c.LLM_MFU_RATIO(flops * share / peaks.flops, *labels, peaks.precision)
    if engine in COUNTS_BYTES and peaks.bandwidth:
        read = page.rise(c.LLM_ESTIMATED_GPU_READ_BYTES_TOTAL)
        written = page.rise(c.LLM_ESTIMATED_GPU_WRITTEN_BYTES_TOTAL)
        if _is_on(read, work) and written is not None:
            yield c.LLM_MBU_RATIO((read + written) * share / peaks.bandwidth, *labels, BANDWIDTH)


def _is_on(counted: float | None, work: _Work) -> TypeGuard[float]:
    """Tell whether an estimate is switched on: if off, it stands at 0 while tokens go on."""
    return counted is not None and (counted > 0 or (work.computed == 0 and work.output == 0))


def _over(amount: float | None, number: float | None) -> float | None:
    return amount / number if amount is not None and number else None
