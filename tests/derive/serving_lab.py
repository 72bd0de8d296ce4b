"""A node with inference servers whose counters are known functions of time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from exporter import catalogue as c
from exporter.derive.serving.book import Book, Entity
from exporter.samples import Batch, Gate, Health, Histogram, Metric, Sample, SourceView, View

Part = Callable[[Book, View, float], Iterable[Sample]]
Found = dict[tuple[str, ...], float]

BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


def entity(
    server: str = "a", model: str = "meta-llama/Llama-3.1-8B", engine: str = "vllm"
) -> Entity:
    return Entity(model, "", engine, server)


def observed(times: float, *seconds: float, bounds: Sequence[float] = BOUNDS) -> Histogram:
    """Return a histogram of each of `seconds`, so many times."""
    counts = [0.0] * (len(bounds) + 1)
    for one in seconds:
        for i in range(bisect_left(bounds, one), len(counts)):
            counts[i] += times
    return Histogram(tuple(bounds), tuple(counts), times * sum(seconds))


def gpu(number: int = 0) -> tuple[str, str]:
    return str(number), f"GPU-{number}"


def h100s(server: str = "a", count: int = 1, first: int = 0) -> list[Sample]:
    """Return that a server works on so many H100, and what their data sheet says."""
    return [
        sample
        for key in map(gpu, range(first, first + count))
        for sample in (
            c.LLM_SERVER_GPU(1, server, *key),
            c.GPU_PEAK_FLOPS(989.4e12, *key, "bf16"),
            c.GPU_PEAK_FLOPS(1978.9e12, *key, "fp8"),
            c.GPU_PEAK_MEMORY_BANDWIDTH_BYTES_PER_SECOND(3.35e12, *key),
        )
    ]


class Lab:
    """A board that is shown to a book and to parts as time goes on."""

    def __init__(self, start: float = 1000.0) -> None:
        self.now = start
        self.book = Book()
        self.view = View((), ())
        self._gates: dict[str, Gate] = {}

    def show(self, samples: Iterable[Sample]) -> View:
        """Put samples on the board as if they were read now, and let the book see them."""
        self.view = self.board(samples)
        self.book.observe(self.view, self.now)
        return self.view

    def board(self, samples: Iterable[Sample]) -> View:
        """Return a board with these samples, read just now: a source for each server."""
        by_source: dict[str, list[Sample]] = {}
        for sample in samples:
            by_source.setdefault(source_of(sample), []).append(sample)
        return View(
            tuple(
                SourceView(name, "x", "up", Health(), batch=self._admit(name, found), age=0.0)
                for name, found in by_source.items()
            ),
            (),
        )

    def run(
        self,
        at: Callable[[float], Iterable[Sample]],
        parts: Sequence[Part],
        seconds: float,
        every: float = 5.0,
    ) -> Found:
        """Show what is so at each moment, from 0 to `seconds`; return what the parts say then."""
        begin, said = self.now, {}
        for tick in range(round(seconds / every) + 1):
            self.now = begin + tick * every
            view = self.show(at(tick * every))
            said = {}
            for part in parts:
                said |= told(part(self.book, view, self.now))
        return said

    def _admit(self, name: str, samples: list[Sample]) -> Batch:
        batch, drops = self._gates.setdefault(name, Gate(10_000)).admit(samples)
        assert not drops
        return batch


def source_of(sample: Sample) -> str:
    metric = sample.metric
    if "server" in metric.labels and metric is not c.LLM_SERVER_GPU:
        return f"inference:{sample.labels[metric.labels.index('server')]}"
    return "node"


def told(samples: Iterable[Sample]) -> Found:
    """Return values by name and labels; nothing may be said twice, nor with labels missing."""
    found: Found = {}
    for metric, labels, value in samples:
        assert len(labels) == len(metric.labels)
        assert not isinstance(value, Histogram)
        key = (metric.name, *labels)
        assert key not in found
        found[key] = value
    return found


def get(found: Found, metric: Metric, **labels: str) -> float | None:
    """Return the one value of a metric that has these labels; None if there is none."""
    matching = [
        value
        for key, value in found.items()
        if key[0] == metric.name
        and labels.items() <= dict(zip(metric.labels, key[1:], strict=True)).items()
    ]
    assert len(matching) <= 1, matching
    return matching[0] if matching else None
