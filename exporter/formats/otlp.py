"""Metrics that a job sends over OTLP (OpenTelemetry), turned into records of training runs.

`decode_json` and `decode_protobuf` read the body of an ExportMetricsServiceRequest
(opentelemetry-proto 1.x). Gauges and sums are taken as they are, of histograms count and sum:
`megatron.training.step_duration_ms` holds one entry for each report, which is a step where the job
reports each step (`--log-interval 1`). What is cumulative says something of the last steps only
together with the request before: a `Memory` that is handed in with each request keeps that. Without
one, or at a first request, such a histogram gives the number of the step and no time, unless it
holds a single entry.

Resource attributes give the run's name and facts. Megatron Core wrote `megatron.training.*` and, in
the resource, `dl.*` first; its resource has said `nv.dl.*` since 0.20, and its losses travel in
traces, which are not read here. Numbers are those of the whole run, whichever rank sends them. The
step's number may be sent as a metric (`train.step`, `training.step`, `train.iteration`), or as an
attribute of a data point (`step`, `iteration`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from exporter.formats import protobuf, tags
from exporter.formats.tags import MS, TERA, Reading, Stream, Tag
from exporter.samples import Malformed
from exporter.training.records import Facts, Record

_MOST_POINTS = 10_000
_MOST_ATTRIBUTES = 256
_MOST_RUNS = 256
_LONGEST_NAME = 128
_MOST_NONSENSE = 100
_WHOLE = re.compile(r"-?[0-9]{1,19}")

METRICS = {
    tag.name: tag
    for tag in (
        # Megatron Core, megatron/core/telemetry/training_metrics.py.
        Tag("megatron.training.step_duration_ms", "seconds", MS),
        Tag("megatron.training.loss", "loss"),
        Tag("megatron.training.throughput_tflops", "flops", TERA),
        Tag("megatron.training.tokens_per_sec", "tokens_per_second"),
        Tag("megatron.training.throughput_tps", "tokens_per_second"),
        Tag("megatron.training.grad_norm", "gradient_norm"),
        Tag("megatron.training.skipped_iters", "skipped_total"),
        Tag("megatron.training.learning_rate", "learning_rate"),
        Tag("megatron.training.memory_allocated_gb", "memory_bytes", 1e9),
        # For any job: seconds, tokens and so on as the name says.
        Tag("train.step", "step"),
        Tag("train.iteration", "step"),
        Tag("training.step", "step"),
        Tag("train.step.duration", "seconds"),
        Tag("train.step_time", "seconds"),
        Tag("train.loss", "loss"),
        Tag("train.grad_norm", "gradient_norm"),
        Tag("train.learning_rate", "learning_rate"),
        Tag("train.tokens", "tokens_total"),
        Tag("train.samples", "samples_total"),
        Tag("train.skipped_steps", "skipped_total"),
        Tag("train.tokens_per_second", "tokens_per_second"),
        Tag("train.tokens_per_second_per_gpu", "tgs"),
        Tag("train.samples_per_second", "samples_per_second"),
        Tag("train.flops_per_second_per_gpu", "flops"),
        Tag("train.mfu", "mfu"),
        Tag("train.data.duration", "phases.data"),
    )
}
"""What a metric is, by name; where its unit says `ms`, or `s` for a name in ms, the unit wins."""

_RUN = (
    "flopwatch.run", "train.run", "nemo.run.id", "nv.dl.run.uuid", "wandb.run_id", "mlflow.run_id",
    "slurm.job.name", "k8s.job.name", "service.name",
)  # fmt: skip
_RANK = ("nv.dl.rank", "dl.rank", "rank", "process.rank")
_ATTEMPT = ("service.instance.id", "process.pid", "nv.dl.run.uuid")
_STEP = ("step", "iteration", "train.step", "dl.iteration", "megatron.iteration")

_FACTS = {
    "world_size": ("nv.dl.world_size", "dl.world_size", "world_size"),
    "data_parallel": ("nv.dl.topology.size.dp", "dl.data_parallel.size"),
    "tensor_parallel": ("nv.dl.topology.size.tp", "dl.tensor_parallel.size"),
    "pipeline_parallel": ("nv.dl.topology.size.pp", "dl.pipeline_parallel.size"),
    "virtual_stages": ("dl.virtual_pipeline_parallel.size",),
    "context_parallel": ("nv.dl.topology.size.cp", "dl.context_parallel.size"),
    "expert_parallel": ("nv.dl.topology.size.ep", "dl.expert_parallel.size"),
    "sequence_length": (
        "nv.dl.training.config.sequence_length", "dl.sequence_length", "megatron.seq_length",
    ),
    "global_batch": (
        "nv.dl.training.config.global_batch_size", "dl.batch_size", "megatron.global_batch_size",
    ),
    "micro_batch": ("nv.dl.training.config.micro_batch_size", "megatron.micro_batch_size"),
    "last_step": ("nv.dl.training.target.train_iters", "megatron.train_iters"),
}  # fmt: skip
"""Whole numbers of `Facts` by the resource attributes that tell them, best first."""

_TEXTS = {
    "precision": ("nemo.precision", "megatron.precision"),
    "model": ("rl.model", "megatron.model", "model.name"),
    "recompute": ("nv.dl.training.config.recompute_granularity", "megatron.recompute_granularity"),
}

_SHAPE = {
    "megatron.num_layers": "num_hidden_layers",
    "megatron.hidden_size": "hidden_size",
    "megatron.ffn_hidden_size": "intermediate_size",
    "megatron.num_attention_heads": "num_attention_heads",
    "megatron.num_query_groups": "num_key_value_heads",
    "megatron.vocab_size": "vocab_size",
    "megatron.padded_vocab_size": "vocab_size",
}
"""The model's shape by resource attributes, as keys of a `config.json`."""

_WHOLE_SHAPE = frozenset(_SHAPE.values()) - {"num_key_value_heads"}
"""Without all of these there is nothing to count."""

_RECOMPUTE = ("none", "selective", "full")

Value = str | bool | int | float


class Point(NamedTuple):
    """One data point: a number, or entries of a histogram and their sum; `delta` since the last."""

    attributes: Mapping[str, Value]
    wall: float | None
    value: float | None = None
    entries: int = 0
    sum: float | None = None
    delta: bool = False


class Metric(NamedTuple):
    """A metric with its points."""

    name: str
    unit: str
    points: tuple[Point, ...]


class Resource(NamedTuple):
    """Who sends, and what."""

    attributes: Mapping[str, Value]
    metrics: tuple[Metric, ...]


@dataclass(slots=True)
class _Known:
    """What was told of one process before."""

    stream: Stream
    counts: dict[str, tuple[int, float]] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    restarts: int = 0
    facts: Facts | None = None
    request: bytes = b""


class Memory:
    """What former requests told, by run, rank and process; at most 256 of them.

    `nonsense` holds what made none, as text for the operator; whoever tells it empties it. Not for
    two threads at once.
    """

    def __init__(self) -> None:
        self.nonsense: list[str] = []
        self._known: dict[tuple[str, int | None, str], _Known] = {}

    def of(self, run: str, rank: int | None, attempt: str) -> _Known:
        """Return what is known of one process; the one least lately asked for makes room."""
        key = run, rank, attempt
        found = self._known.pop(key, None)
        if found is None:
            found = _Known(Stream(run, attempt=attempt, rank=rank))
            if len(self._known) >= _MOST_RUNS:
                del self._known[next(iter(self._known))]
        self._known[key] = found
        return found


def decode_json(body: bytes, memory: Memory | None = None) -> list[Record]:
    """Return what a request in JSON tells of runs. Raises `Malformed`."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {error}") from None
    return _records(_from_json(document), memory if memory is not None else Memory(), body)


def decode_protobuf(body: bytes, memory: Memory | None = None) -> list[Record]:
    """Return what a request in protobuf tells of runs. Raises `Malformed`."""
    return _records(_from_protobuf(body), memory if memory is not None else Memory(), body)


def _records(resources: Iterable[Resource], memory: Memory, body: bytes) -> list[Record]:
    found = list(resources)
    if sum(len(metric.points) for one in found for metric in one.metrics) > _MOST_POINTS:
        raise Malformed(f"more than {_MOST_POINTS} data points")
    request = hashlib.blake2b(body, digest_size=16).digest()
    fresh: set[int] = set()
    return [record for one in found for record in _told(one, memory, request, fresh)]


def _told(resource: Resource, memory: Memory, request: bytes, fresh: set[int]) -> Iterator[Record]:
    """Yield facts and steps of one resource; nothing where no metric is known here.

    Nothing, too, if the last request of the same process was this one, times and all: an exporter
    that got no answer sends it again, and a difference must count once. `fresh` are those that this
    request has told of already.
    """
    metrics = [metric for metric in resource.metrics if metric.name in METRICS]
    if not metrics:
        return
    attributes = resource.attributes
    run = _text(attributes, _RUN) or "otlp"
    known = memory.of(run, _number(attributes, _RANK), _text(attributes, _ATTEMPT))
    timed = any(point.wall is not None for one in metrics for point in one.points)
    if timed and known.request == request and id(known) not in fresh:
        return
    known.request = request
    fresh.add(id(known))
    facts = _facts(run, attributes, megatron=metrics[0].name.startswith("megatron."))
    if facts not in (known.facts, Facts(run=run)):
        known.facts = facts
        yield facts
    for number, wall, values in _steps(metrics, known):
        stream = known.stream
        if stream.last is not None and number < stream.last:  # the process counts anew
            known.restarts += 1
            attempt = f"{_text(attributes, _ATTEMPT)}#{known.restarts}"
            stream = known.stream = Stream(run, attempt=attempt, rank=stream.rank)
        if number == stream.last:
            continue
        sound = {one: value for one, value in values.items() if tags.sound(one, value)}
        for one in values.keys() - sound.keys():
            if len(memory.nonsense) < _MOST_NONSENSE:
                memory.nonsense.append(f"{run}: step {number}: {one} = {values[one]:g}")
        yield from stream.tell(number, Reading(sound, "", ()), wall)


def _steps(
    metrics: Iterable[Metric], known: _Known
) -> Iterator[tuple[int, float | None, dict[str, float]]]:
    """Yield number, time and quantities of each step that the points tell of, lowest first."""
    numbered: dict[int, tuple[float | None, dict[str, float]]] = {}
    values: dict[str, float] = {}
    wall, entries = None, 0
    for metric in metrics:
        tag = METRICS[metric.name]
        scale = _scale(tag, metric.unit)
        for point in metric.points:
            number = _number(point.attributes, _STEP)
            wall = max(filter(None, (wall, point.wall)), default=None)
            if point.value is not None and number is not None:
                at, told = numbered.get(number, (None, {}))
                told[tag.field] = point.value * scale
                numbered[number] = point.wall or at, told
            elif point.value is not None and point.delta and tag.field in tags.TOTALS:
                total = known.sums.get(tag.field, 0.0) + point.value * scale
                values[tag.field] = known.sums[tag.field] = total
            elif point.value is not None:
                values[tag.field] = point.value * scale
            elif point.sum is not None:
                count, total = _since(known, metric.name, point)
                if count:
                    values[tag.field] = total * scale / count
                entries = max(entries, known.counts[metric.name][0])
    for number in sorted(numbered):
        at, told = numbered[number]
        yield number, at, told
    told_number = values.pop("step", None)
    if told_number is not None and 0 <= told_number < 1 << 53:
        yield int(told_number), wall, values
    elif values and entries:
        # The counter is made when there is something to count.
        values.setdefault("skipped_total", known.sums.get("skipped_total", 0.0))
        yield entries, wall, values


def _since(known: _Known, name: str, point: Point) -> tuple[int, float]:
    """Return count and sum of what has come since the last request; 0 where that is not known."""
    total = point.sum or 0.0
    former = known.counts.get(name)
    if point.delta:
        known.counts[name] = (former[0] if former else 0) + point.entries, total
        return point.entries, total
    known.counts[name] = point.entries, total
    if former is None or point.entries < former[0]:
        return (1, total) if point.entries == 1 else (0, 0.0)
    return point.entries - former[0], total - former[1]


def _scale(tag: Tag, unit: str) -> float:
    """Return the factor to base units; the unit that was sent wins over the name's."""
    if tag.field == "seconds" or tag.field.startswith("phases."):
        return {"ms": MS, "s": 1.0, "us": 1e-6, "ns": 1e-9}.get(unit, tag.scale)
    if tag.field == "mfu" and unit == "%":
        return 0.01
    if tag.field == "memory_bytes":
        return {"By": 1.0, "bytes": 1.0, "MiBy": float(1 << 20)}.get(unit, tag.scale)
    return tag.scale


def _facts(run: str, attributes: Mapping[str, Value], *, megatron: bool) -> Facts:
    told: dict[str, Any] = {}
    for name, keys in _FACTS.items():
        if number := _number(attributes, keys):
            told[name] = number
    for name, keys in _TEXTS.items():
        if text := _text(attributes, keys):
            told[name] = text
    if told.get("recompute", "none") not in _RECOMPUTE:
        del told["recompute"]
    shape = {key: n for name, key in _SHAPE.items() if (n := _number(attributes, (name,)))}
    if shape.keys() >= _WHOLE_SHAPE:
        told["config"] = shape
    if megatron or any(one.startswith("megatron.") for one in attributes):
        told["framework"] = "megatron"
    return Facts(run=run, **told)


def _text(attributes: Mapping[str, Value], keys: Iterable[str]) -> str:
    """Return the first of some attributes that is there, as one printable line, "" if none is."""
    for key in keys:
        if (value := attributes.get(key)) is not None and str(value).strip():
            text = str(value).strip()
            return text[:_LONGEST_NAME] if text.isprintable() else ""
    return ""


def _number(attributes: Mapping[str, Value], keys: Iterable[str]) -> int | None:
    """Return the first of some attributes that is a whole number, also where it came as text."""
    for key in keys:
        value = attributes.get(key)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53:
            return value
    return None


# --- JSON: lowerCamelCase names, 64-bit numbers as text, enums as numbers ---


def _from_json(document: Any) -> Iterator[Resource]:
    for resource in _list(_mapping(document, "the body"), "resourceMetrics"):
        attributes = _attributes(_mapping(resource.get("resource", {}), "resource"))
        scopes = _list(resource, "scopeMetrics")
        yield Resource(
            attributes,
            tuple(_metric(one) for scope in scopes for one in _list(scope, "metrics")),
        )


def _metric(metric: Mapping[str, Any]) -> Metric:
    name, unit = metric.get("name", ""), metric.get("unit", "")
    if not isinstance(name, str) or not isinstance(unit, str):
        raise Malformed("a metric's name and unit are not text")
    points: list[Point] = []
    for kind in ("gauge", "sum", "histogram", "exponentialHistogram"):
        data = _mapping(metric.get(kind, {}), kind)
        delta = data.get("aggregationTemporality") in (1, "AGGREGATION_TEMPORALITY_DELTA")
        points += (_point(one, delta=delta) for one in _list(data, "dataPoints"))
    return Metric(name, unit, tuple(points))


def _point(point: Mapping[str, Any], *, delta: bool) -> Point:
    wall = _real(point.get("timeUnixNano"), "timeUnixNano")
    value = _real(point.get("asDouble", point.get("asInt")), "asDouble")
    count, total = _real(point.get("count"), "count"), _real(point.get("sum"), "sum")
    if count is not None and not 0 <= count < 1 << 53:
        raise Malformed(f"count: {count:g} is no count")
    return Point(_attributes(point), _moment(wall), value, int(count or 0), total, delta)


def _moment(nanoseconds: float | None) -> float | None:
    """Return Unix seconds; none for what is no time."""
    if nanoseconds is None or not 0 < nanoseconds < 1 << 63:
        return None
    return nanoseconds / 1e9


def _real(value: object, key: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Malformed(f"{key}: a number is wanted")
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise Malformed(f"{key}: {str(value)[:40]!r} is not a number") from None


def _mapping(value: object, key: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"{key}: an object is wanted")
    return value


def _list(holder: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = holder.get(key, [])
    if not isinstance(value, list):
        raise Malformed(f"{key}: a list is wanted")
    return [_mapping(one, key) for one in value]


def _attributes(holder: Mapping[str, Any]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for one in _list(holder, "attributes")[:_MOST_ATTRIBUTES]:
        key, value = one.get("key"), _mapping(one.get("value", {}), "value")
        if not isinstance(key, str):
            raise Malformed("an attribute's key is not text")
        for kind in ("stringValue", "boolValue", "doubleValue", "intValue", "bytesValue"):
            if kind in value and isinstance(value[kind], str | bool | int | float):
                found[key] = _plain(kind, value[kind])
    return found


def _plain(kind: str, value: Value) -> Value:
    """Return an attribute's value as it was meant: whole numbers come as text."""
    if kind == "intValue":
        digits = str(value)
        if _WHOLE.fullmatch(digits) is None:
            raise Malformed(f"intValue: {digits[:40]!r} is not a whole number")
        return int(digits)
    if kind == "bytesValue":
        try:
            return base64.b64decode(str(value), validate=True).hex()
        except (binascii.Error, ValueError):
            raise Malformed("bytesValue: not base64") from None
    return value


# --- protobuf: opentelemetry/proto/metrics/v1/metrics.proto ---


def _from_protobuf(body: bytes) -> Iterator[Resource]:
    for one in protobuf.fields(body):
        if one.number == 1:
            yield _pb_resource(one.message)


def _pb_resource(message: bytes) -> Resource:
    attributes: dict[str, Value] = {}
    metrics: list[Metric] = []
    for one in protobuf.fields(message):
        if one.number == 1:
            attributes = _pb_attributes(protobuf.fields(one.message), 1)
        elif one.number == 2:
            scope = protobuf.fields(one.message)
            metrics += (_pb_metric(part.message) for part in scope if part.number == 2)
    return Resource(attributes, tuple(metrics))


def _pb_metric(message: bytes) -> Metric:
    name = unit = ""
    points: list[Point] = []
    for one in protobuf.fields(message):
        if one.number == 1:
            name = one.text
        elif one.number == 3:
            unit = one.text
        elif one.number in (5, 7, 9, 10):  # gauge, sum, histogram, exponential histogram
            parts = list(protobuf.fields(one.message))
            delta = any(part.number == 2 and part.integer == 1 for part in parts)
            read = _pb_number if one.number in (5, 7) else _pb_histogram
            points += (read(part.message, delta=delta) for part in parts if part.number == 1)
    return Metric(name, unit, tuple(points))


def _pb_number(message: bytes, *, delta: bool) -> Point:
    parts = list(protobuf.fields(message))
    wall, value = None, None
    for one in parts:
        if one.number == 3:
            wall = _moment(one.integer)
        elif one.number == 4:
            value = one.real
        elif one.number == 6:
            value = float(one.integer)
    return Point(_pb_attributes(parts, 7), wall, value, delta=delta)


def _pb_histogram(message: bytes, *, delta: bool) -> Point:
    """Return count and sum: the same numbers in both kinds of histogram, but for attributes."""
    parts = list(protobuf.fields(message))
    wall, count, total = None, 0, None
    for one in parts:
        if one.number == 3:
            wall = _moment(one.integer)
        elif one.number == 4 and one.wire == protobuf.FIXED64:
            count = one.integer
        elif one.number == 5 and one.wire == protobuf.FIXED64:
            total = one.real
    if count < 0:
        raise Malformed(f"count: {count} is no count")
    place = 1 if any(one.number == 1 for one in parts) else 9
    return Point(_pb_attributes(parts, place), wall, None, count, total, delta)


def _pb_attributes(parts: Iterable[protobuf.Field], number: int) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for part in parts:
        if part.number != number or len(found) >= _MOST_ATTRIBUTES:
            continue
        key, value = "", None
        for one in protobuf.fields(part.message):
            if one.number == 1:
                key = one.text
            elif one.number == 2:
                value = _pb_value(one.message)
        if value is not None:
            found[key] = value
    return found


def _pb_value(message: bytes) -> Value | None:
    value: Value | None = None
    for one in protobuf.fields(message):
        if one.number == 1:
            value = one.text
        elif one.number == 2:
            value = bool(one.integer)
        elif one.number == 3:
            value = one.integer
        elif one.number == 4:
            value = one.real
        elif one.number == 7:
            value = one.message.hex()
    return value
