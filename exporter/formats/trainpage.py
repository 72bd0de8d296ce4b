"""Finds training runs on a page of metrics: a job's own, or a file that it drops for us.

The names are ours (`train_step`, `train_tokens_total` ...), plain ones with or without `train_` or
`training_` before them, and those that Megatron Core's OpenTelemetry metrics have behind a bridge
to Prometheus, whatever unit that bridge appends. A page shows how things stand, so a step is what
the page says when its number has grown since the page before; what grows with it (`..._total`, sum
and count of a histogram) gives means over the steps between. The label `run` (or one like it) names
the run, `rank` the rank. A page without any number for the step tells of no step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from exporter.formats.exposition import Page
from exporter.formats.tags import MS, TABLES, TERA, Reading, Stream, sound
from exporter.training.records import PHASES, Record, Scope

RUN_LABELS = ("run", "run_name", "run_id", "nemo_run_id", "training_run")
MAX_RUNS = 64
_MOST_RANK = 1 << 20


class _Row(NamedTuple):
    field: str
    scale: float = 1.0


def _rows() -> dict[str, _Row]:
    """Return what each name of a sample means; `a+b` are sum and count of a histogram."""
    rows: dict[str, _Row] = {}
    for prefix in ("train_", "training_", ""):
        rows |= {f"{prefix}{tag.name}": _Row(tag.field, tag.scale) for tag in TABLES[""]}
        rows |= {f"{prefix}{name}": row for name, row in _OURS.items()}
    for name, (quantity, scale) in _MEGATRON.items():
        for unit in ("", "_milliseconds", "_seconds", "_gigabytes", "_ratio"):
            rows[f"megatron_training_{name}{unit}"] = _Row(
                quantity, 1.0 if unit == "_seconds" else scale
            )
    for name in ("step_duration_ms", "step_duration_ms_milliseconds"):
        rows[f"megatron_training_{name}_sum"] = _Row("step.sum", MS)
        rows[f"megatron_training_{name}_count"] = _Row("step.count")
    rows["megatron_training_step_duration_seconds_sum"] = _Row("step.sum")
    rows["megatron_training_step_duration_seconds_count"] = _Row("step.count")
    rows["megatron_training_skipped_iters_total"] = _Row("skipped_total")
    return rows


_OURS = {
    "step": _Row("step"),
    "global_step": _Row("step"),
    "iteration": _Row("step"),
    "steps_total": _Row("steps_total"),
    "tokens_total": _Row("tokens_total"),
    "samples_total": _Row("samples_total"),
    "skipped_steps_total": _Row("skipped_total"),
    "step_seconds_sum": _Row("step.sum"),
    "step_seconds_count": _Row("step.count"),
    "step_seconds_total": _Row("seconds_total"),
    "phase_seconds_total": _Row("phase"),
    "model_flops_per_second_per_gpu": _Row("flops"),
    "mfu_ratio": _Row("mfu"),
    "memory_peak_bytes": _Row("memory_bytes"),
}
_MEGATRON = {
    "loss": _Row("loss"),
    "throughput_tflops": _Row("flops", TERA),
    "tokens_per_sec": _Row("tokens_per_second"),
    "grad_norm": _Row("gradient_norm"),
    "learning_rate": _Row("learning_rate"),
    "memory_allocated_gb": _Row("memory_bytes", 1e9),
}
_ROWS = _rows()

WANTED = tuple(sorted(_ROWS))
"""Beginnings of the names that are looked for."""

_MOST_STEP = 1 << 53


@dataclass(slots=True)
class _Run:
    stream: Stream
    restarts: int = 0
    histogram: tuple[float, float] | None = None


class TrainingPage:
    """Turns the pages of one job, one after the other, into records.

    `run` is what a run is called that no label names. `nonsense` holds what made none, as text for
    the operator; whoever tells it empties it. Runs and ranks beyond a limit are not looked at:
    `beyond` counts them.
    """

    def __init__(self, run: str, *, most: int = MAX_RUNS) -> None:
        self.nonsense: list[str] = []
        self.beyond = 0
        self._run = run
        self._most = most
        self._runs: dict[tuple[str, int | None], _Run] = {}

    def read(self, page: Page, wall: float | None = None) -> list[Record]:
        """Return what is new on a page; `wall` is when it was written, in Unix seconds."""
        records: list[Record] = []
        for (name, rank), values in self._by_run(page).items():
            run = self._runs.get((name, rank))
            if run is None:
                if len(self._runs) >= self._most:
                    self.beyond += 1
                    continue
                scope: Scope = "run" if rank is None else "rank"
                run = self._runs[name, rank] = _Run(Stream(name, rank=rank, scope=scope))
            records += self._told(run, values, wall)
        return records

    def _by_run(self, page: Page) -> Mapping[tuple[str, int | None], dict[str, float]]:
        found: dict[tuple[str, int | None], dict[str, float]] = {}
        for series, value in zip(page.shape.series, page.values, strict=True):
            row = _ROWS.get(series.name)
            if row is None:
                continue
            labels = dict(series.labels)
            name = next((labels[one] for one in RUN_LABELS if labels.get(one)), self._run)
            quantity = row.field
            if quantity == "phase":
                if labels.get("phase") not in PHASES:
                    continue
                quantity = f"total.{labels['phase']}"
            rank = _rank(labels.get("rank", ""))
            values = found.setdefault((name, rank), {})
            values.setdefault(quantity, value * row.scale)
        return found

    def _told(self, run: _Run, values: dict[str, float], wall: float | None) -> Iterator[Record]:
        """Yield a step if its number has grown; a lower one is another attempt."""
        count, total = values.pop("step.count", None), values.pop("step.sum", None)
        number = values.pop("step", None)
        steps_total = values.pop("steps_total", None)
        if number is None:
            number = steps_total if steps_total is not None else count
        if number is None or not 0 <= number <= _MOST_STEP or not values.keys() - {"world_size"}:
            return
        stream, at = run.stream, int(number)
        if stream.last is not None and at < stream.last:
            run.restarts += 1
            stream = Stream(
                stream.run, attempt=f"#{run.restarts}", rank=stream.rank, scope=stream.scope
            )
            run.stream, run.histogram = stream, None
        if at == stream.last:
            return
        if count is not None and total is not None:
            former, run.histogram = run.histogram, (count, total)
            if former is not None and count > former[0] and total >= former[1]:
                values.setdefault("seconds", (total - former[1]) / (count - former[0]))
        good = {one: value for one, value in values.items() if sound(one, value)}
        for one in values.keys() - good.keys():
            self.nonsense.append(f"{stream.run}: step {at}: {one} = {values[one]:g}")
        yield from stream.tell(at, Reading(good, "", ()), wall)


def _rank(label: str) -> int | None:
    if label.isascii() and label.isdigit() and len(label) < 8 and int(label) < _MOST_RANK:
        return int(label)
    return None
