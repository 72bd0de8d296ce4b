"""A node with training jobs whose steps are told as time goes on, and with GPUs that follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from exporter import catalogue as c
from exporter.derive.derivation import Derivation
from exporter.derive.flops import Work, count
from exporter.derive.memory import Memory
from exporter.derive.training import Stated, training
from exporter.reference.accelerators import Accelerators, Own, extended
from exporter.reference.accelerators import load as load_accelerators
from exporter.reference.models import load as load_models
from exporter.samples import (
    EMPTY_SHAPE,
    Gate,
    Health,
    Histogram,
    Metric,
    Sample,
    SourceView,
    View,
    in_columns,
)
from exporter.training import Facts, Record, Step, TrainingLedger

MODELS = load_models()
PRODUCTS = load_accelerators()
WALL = 1_750_000_000.0
"""Unix time at moment 0 of the monotonic clock."""

H100 = "NVIDIA H100 80GB HBM3"
BF16 = 989.4e12

Found = dict[tuple[str, ...], float | Histogram]


def given_work(causal: float, again: float | None = None) -> Callable[[Facts], Work]:
    """Return what counts every model as so much work."""
    hardware = {} if again is None else {"causal": again}
    return lambda _: Work({"causal": causal}, hardware)


OF_THE_NODE = (c.TRAIN_RUNS_STARTED_TOTAL, c.TRAIN_RUNS_FAILED_TOTAL)
"""What is told whether there is a run or not."""


class Lab:
    """A ledger, a board and the derivation, with a hand on the clock."""

    def __init__(
        self,
        *stated: Stated,
        work: Callable[[Facts], Work] = lambda facts: count(facts, MODELS),
        own: Mapping[str, Mapping[str, float]] | None = None,
        start: float = 1000.0,
    ) -> None:
        self.now = start
        self.ledger = TrainingLedger()
        self.derivation = self.made(stated, work, own or {})
        self._made = lambda: self.made(stated, work, own or {})
        self._memory = Memory()
        self._gate = Gate(10_000)
        self._shape = EMPTY_SHAPE
        self.said: Found = {}

    def made(
        self,
        stated: Sequence[Stated],
        work: Callable[[Facts], Work],
        own: Mapping[str, Mapping[str, float]],
    ) -> Derivation:
        """Return a derivation over the ledger of the moment."""
        products: Accelerators = extended(
            PRODUCTS, [Own(name, dict(peaks), None) for name, peaks in own.items()]
        )
        return training(
            self.ledger, lambda now: WALL + now, work, statements=stated, products=products,
            own=list(own),
        )  # fmt: skip

    def tell(self, reader: str, *records: Record) -> None:
        self.ledger.tell(reader, records, self.now)

    def look(self, *samples: Sample) -> Found:
        """Derive once with these samples on the board; nothing may be said twice, or wrongly."""
        batch, drops = self._gate.admit(samples)
        assert not drops
        view = View((SourceView("nvml", c.GPU, "up", Health(), batch=batch, age=0.0),), ())
        self._memory.begin(self.now)
        told = list(self.derivation.function(view, self._memory, self.now))
        self.said = {}
        for sample in told:
            assert len(sample.labels) == len(sample.metric.labels), sample
            assert sample.metric in self.derivation.outputs, sample
            key = (sample.metric.name, *sample.labels)
            assert key not in self.said, key
            if sample.metric not in OF_THE_NODE:
                self.said[key] = sample.value
        admitted, drops = Gate(100_000).admit(told)
        assert not drops, drops
        self._shape = in_columns(list(admitted), self._shape).shape
        return self.said

    def restart(self, *, down: float = 10.0, final: bool = True) -> None:
        """Begin anew, as a daemon does: what readers told is lost, what was remembered is not."""
        assert self.derivation.memory is not None
        kept = self.derivation.memory()
        self.now += down
        self.ledger = TrainingLedger()
        self.derivation = self._made()
        self._memory = Memory()
        assert self.derivation.restore is not None
        self.derivation.restore(kept, self.now, down, final)

    def run(
        self,
        steps: Iterable[Step],
        *,
        reader: str = "log",
        board: Callable[[float], Iterable[Sample]] = lambda _: (),
        pause: float = 0.0,
    ) -> Found:
        """Tell steps one after the other, each when it ends, and look each time."""
        for step in steps:
            self.now += step.steps * (step.seconds or 0.0) + pause
            self.tell(reader, step)
            self.look(*board(self.now))
        return self.said

    def get(self, metric: Metric, *labels: str) -> float | None:
        """Return one value of what was said last; None if there is none."""
        value = self.said.get((metric.name, *labels))
        assert not isinstance(value, Histogram)
        return value

    def rows(self, metric: Metric) -> dict[tuple[str, ...], float | Histogram]:
        """Return all values of a family of what was said last, by labels."""
        return {key[1:]: value for key, value in self.said.items() if key[0] == metric.name}


def gpu(number: int) -> tuple[str, str]:
    return str(number), f"GPU-{number}"


def h100s(
    count: int,
    t: float,
    *,
    name: str = H100,
    peaks: Mapping[str, float] | None = None,
    clock: float = 1830e6,
    busy: float = 1.0,
    sms: float | None = 0.9,
    tensor: float | None = 0.6,
    dram: float | None = 0.4,
    watts: float = 650.0,
) -> list[Sample]:
    """Return what the board says after t seconds of steady work on so many H100."""
    told: list[Sample] = []
    for at in range(count):
        key = gpu(at)
        info = dict.fromkeys(c.GPU_INFO.labels, "")
        info |= {"gpu": key[0], "uuid": key[1], "name": name, "pci_device_id": "2330"}
        told.append(c.GPU_INFO(1, *info.values()))
        figures = {"bf16": BF16, "fp8": 1978.9e12} if peaks is None else peaks
        told += [c.GPU_PEAK_FLOPS(peak, *key, precision) for precision, peak in figures.items()]
        told += [
            c.GPU_CLOCK_HERTZ(clock, *key, "sm"),
            c.GPU_BUSY_SECONDS_TOTAL(busy * t, *key),
            c.GPU_ENERGY_JOULES_TOTAL(watts * t, *key),
        ]
        for metric, share in (
            (c.GPU_SM_ACTIVE_SECONDS_TOTAL, sms),
            (c.GPU_TENSOR_ACTIVE_SECONDS_TOTAL, tensor),
            (c.GPU_DRAM_ACTIVE_SECONDS_TOTAL, dram),
        ):
            if share is not None:
                told.append(metric(share * t, *key))
    return told
