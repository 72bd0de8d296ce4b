"""The demo's driver library, kernel log and devices, through the readers of the real ones."""

from __future__ import annotations

import itertools
import math
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.demo import Demo
from exporter.demo.gpus import ADDRESSES, FAULTY, MENDING, Gpu
from exporter.demo.node import Node
from exporter.demo.nvml import DemoNvml
from exporter.formats import xid
from exporter.nvml import readings as r
from exporter.nvml.driver import (
    ALL_LINKS,
    FUNCTION_NOT_FOUND,
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    UNINITIALIZED,
    Driver,
    NvmlError,
    Struct,
)
from exporter.reference import accelerators, xids
from exporter.samples import Event, Gate, Metric, Sample, Value
from exporter.sources.kmsg import KernelLogSource
from exporter.sources.nvml import NvmlSource
from exporter.xids import XidLedger
from tests.fakes import FakeClock

Series = tuple[Metric, tuple[str, ...]]


class Rig:
    """A demo, its clock, and the real source over its driver."""

    def __init__(self, folder: Path, *, detail: bool = False) -> None:
        self.clock = FakeClock()
        self.demo = Demo(folder, clock=self.clock)
        self.source = self.another(detail=detail)

    def another(self, *, detail: bool = False) -> NvmlSource:
        # the budget is of real seconds, for threads: more than any machine takes
        return NvmlSource(
            driver=self.demo.gpu_driver(), root=str(self.demo.root), clock=self.clock,
            detail=detail, links=detail, budget=120,
        )  # fmt: skip

    @property
    def node(self) -> Node:
        return self.demo._node

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return self.node.gpus.all

    def step(self, seconds: float = 1.0) -> None:
        self.demo.step(seconds)
        self.clock.advance(seconds)

    def read(self) -> list[Event]:
        """Read; everything must be well. Return the events; the samples are in `values`."""
        items = list(self.source.read())
        samples = [item for item in items if isinstance(item, Sample)]
        events = [item for item in items if isinstance(item, Event)]
        assert len(samples) + len(events) == len(items), items
        assert Gate(5_000).admit(samples)[1] == {}
        self.values: dict[Series, Value] = {(s.metric, s.labels): s.value for s in samples}
        return events

    def of(self, metric: Metric, gpu: int, *labels: str) -> float:
        value = self.values[metric, (str(gpu), self.gpus[gpu].uuid, *labels)]
        assert isinstance(value, int | float)
        return value


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path, detail=True)
    yield made
    made.source.close()
    made.demo.close()


@pytest.fixture
def driver() -> DemoNvml:
    """Return a started driver of a node that has lived for ten seconds."""
    node = Node(0, 1.8e9)
    node.advance(10)
    made = DemoNvml(node, threading.Lock())
    made.start()
    return made


def counters(values: Mapping[Series, Value]) -> dict[Series, float]:
    return {
        key: value
        for key, value in values.items()
        if key[0].kind == "counter" and isinstance(value, int | float)
    }


# ---------------------------------------------------------------- through the real source


def test_the_real_source_reads_eight_gpus(tmp_path: Path) -> None:
    """No fault, nothing dropped, all GPUs up and expected, within the budget of series."""
    rig = Rig(tmp_path)
    for _ in range(3):
        rig.read()
        rig.step()
    rig.read()
    assert rig.values[c.GPU_DEVICES_PRESENT, ()] == rig.values[c.GPU_DEVICES_EXPECTED, ()] == 8
    assert [rig.of(c.GPU_UP, n) for n in range(8)] == [1] * 8
    assert 300 < len(rig.values) <= 600
    infos = [labels for metric, labels in rig.values if metric is c.GPU_INFO]
    assert {labels[2] for labels in infos} == {"NVIDIA H100 80GB HBM3"}
    assert [labels[3] for labels in infos] == [f"0000{address}" for address in ADDRESSES]
    assert (c.GPU_DRIVER_INFO, ("590.48.01", "13.590.48.01", "13.1")) in rig.values
    rig.source.close()
    rig.demo.close()


def test_the_source_needs_no_library_of_nvidias(rig: Rig) -> None:
    """The fake has all that the protocol asks for, and no time is spent in a driver."""
    driver: Driver = rig.demo.gpu_driver()
    assert driver.seconds == 0
    rig.read()
    assert rig.values[c.FLOPWATCH_DRIVER_SECONDS_TOTAL, ("nvml",)] == 0


def test_values_are_the_models_in_base_units(rig: Rig) -> None:
    """Watts, joules, bytes, hertz, degrees and ratios arrive as the model has them."""
    for _ in range(25):
        rig.step()
    rig.read()
    for gpu in rig.gpus:
        n = gpu.index
        assert rig.of(c.GPU_POWER_WATTS, n, "instant") == pytest.approx(gpu.power, abs=1e-3)
        assert rig.of(c.GPU_POWER_WATTS, n, "average") == pytest.approx(gpu.average_power, abs=1e-3)
        assert rig.of(c.GPU_POWER_LIMIT_WATTS, n, "enforced") == 700
        assert rig.of(c.GPU_ENERGY_JOULES_TOTAL, n) == pytest.approx(gpu.energy, abs=1e-3)
        assert rig.of(c.GPU_CLOCK_HERTZ, n, "sm") == gpu.clock * 1e6
        assert rig.of(c.GPU_TEMPERATURE_CELSIUS, n, "core") == round(gpu.temperature)
        assert rig.of(c.GPU_MEMORY_USED_BYTES, n) == gpu.used
        assert rig.of(c.GPU_UTILIZATION_RATIO, n) == pytest.approx(gpu.rates.kernels, abs=0.005)
        assert rig.of(c.GPU_MEMORY_BUSY_RATIO, n) == pytest.approx(gpu.rates.memory, abs=0.005)
        assert rig.of(c.GPU_THROTTLED_SECONDS_TOTAL, n, "sw_power_cap") == pytest.approx(gpu.capped)
        assert rig.of(c.GPU_THROTTLED_SECONDS_TOTAL, n, "sw_thermal") == pytest.approx(gpu.too_hot)
        assert rig.of(c.GPU_PCIE_TRANSMIT_BYTES_TOTAL, n) == int(gpu.sums.sent)
        assert rig.of(c.GPU_NVLINK_TRANSMIT_BYTES_TOTAL, n) == pytest.approx(
            gpu.sums.nvlink, abs=18 * 1024 + 1
        )


def test_values_are_plausible(rig: Rig) -> None:
    """Ratios within 0 and 1, power within its limit, memory adds up, for a minute."""
    rig.read()
    for _ in range(60):
        rig.step()
        rig.read()
        for (metric, labels), value in rig.values.items():
            assert isinstance(value, int | float)
            assert math.isfinite(value)
            if metric.unit == "ratio":
                assert 0 <= value <= 1.0001, (metric.name, labels)
        for n in range(8):
            assert 100 < rig.of(c.GPU_POWER_WATTS, n, "average") < 705
            assert 30 < rig.of(c.GPU_TEMPERATURE_CELSIUS, n, "core") < 90
            assert rig.of(c.GPU_MEMORY_TOTAL_BYTES, n) == (
                rig.of(c.GPU_MEMORY_USED_BYTES, n)
                + rig.of(c.GPU_MEMORY_RESERVED_BYTES, n)
                + rig.of(c.GPU_MEMORY_FREE_BYTES, n)
            )
            assert rig.of(c.GPU_READINGS_DISAGREE, n) == 0


def test_counters_never_fall_and_energy_is_power_over_time(rig: Rig) -> None:
    """Over a minute no counter falls, and energy grows by what power was read."""
    rig.read()
    first = before = counters(rig.values)
    joules = dict.fromkeys(range(8), 0.0)
    for _ in range(60):
        rig.step()
        rig.read()
        after = counters(rig.values)
        assert [key for key, value in before.items() if after[key] < value] == []
        for n in joules:
            joules[n] += rig.of(c.GPU_POWER_WATTS, n, "average")
        before = after
    for n, summed in joules.items():
        key = (c.GPU_ENERGY_JOULES_TOTAL, (str(n), rig.gpus[n].uuid))
        assert before[key] - first[key] == pytest.approx(summed, rel=0.01)


def test_measured_integrals_are_the_models_own(rig: Rig) -> None:
    """However the reads are spaced, the counters made of averages are the model's sums."""
    rig.read()
    begin = [gpu.sums for gpu in rig.gpus]
    for seconds in itertools.islice(itertools.cycle((1, 2, 0.5, 3.5)), 24):
        rig.step(seconds)
        rig.read()
    for gpu, old in zip(rig.gpus, begin, strict=True):
        for metric, name in (
            (c.GPU_SM_ACTIVE_SECONDS_TOTAL, "sms"),
            (c.GPU_TENSOR_ACTIVE_SECONDS_TOTAL, "tensor"),
            (c.GPU_DRAM_ACTIVE_SECONDS_TOTAL, "memory"),
        ):
            grown = getattr(gpu.sums, name) - getattr(old, name)
            assert rig.of(metric, gpu.index) == pytest.approx(grown, rel=1e-6)
        busy = gpu.sums.kernels - old.kernels
        assert rig.of(c.GPU_BUSY_SECONDS_TOTAL, gpu.index) == pytest.approx(busy, rel=0.01)


def test_only_what_an_h100_refuses_is_refused(driver: DemoNvml) -> None:
    """Every row of the reading tables has an answer, but those that this board has none for."""
    refused = set()
    gpu = driver.device(0)
    for rung in itertools.chain(*r.LADDERS, *r.DETAILS, [r.BANKS, r.LINK_STATE]):
        if isinstance(rung, r.Field):
            (answer,) = driver.fields(gpu, [(rung.number, rung.scope)])()
            refused |= {(rung.number, rung.scope)} if answer.code else set()
            continue
        arguments = (0,) if rung is r.LINK_STATE else rung.arguments
        try:
            driver.bind(rung.function, rung.answer, gpu, *arguments)()
        except NvmlError as error:
            refused.add((rung.function, error.code, *rung.arguments[2:]))
    errors_at = "nvmlDeviceGetMemoryErrorCounter"
    assert refused == {
        *((number, 0) for number in (29, 30, 31)),  # retired pages: before Ampere
        *((number, 0) for number in (251, 252, 253)),  # times of throttling in older drivers
        (170, 0),  # links to a CPU
        (185, 1), (186, 1), (186, 2),  # power of a module, and of the memory at this instant
        *((errors_at, NOT_SUPPORTED, place) for place in (0, 1, 3, 4, 6)),  # but DRAM, SRAM
    }  # fmt: skip


def test_the_board_is_the_one_it_is_called(rig: Rig) -> None:
    """Memory, clock, power and cores agree with the table of products."""
    rig.read()
    (info,) = {
        labels[2:] for metric, labels in rig.values if metric is c.GPU_INFO and labels[0] == "0"
    }
    match = accelerators.load().resolve(info[0], info[2])
    seen = accelerators.Observed(
        memory=rig.of(c.GPU_MEMORY_TOTAL_BYTES, 0),
        max_clock=rig.of(c.GPU_CLOCK_MAX_HERTZ, 0, "sm"),
        power=rig.of(c.GPU_POWER_LIMIT_WATTS, 0, "default"),
        cuda_cores=int(info[6]),
    )
    assert accelerators.confidence(match, seen) == 1


def test_processes_have_names(rig: Rig) -> None:
    """The processes on the GPUs are found in the demo's own /proc."""
    rig.step()
    rig.read()
    named = {
        (labels[0], labels[4])
        for metric, labels in rig.values
        if metric is c.GPU_PROCESS_MEMORY_BYTES
    }
    assert named == {
        *((str(n), "VLLM::Worker_TP") for n in range(4)),
        *((str(n), "pt_main_thread") for n in range(4, 8)),
        (str(FAULTY), "text-embeddings"),
    }
    shares = [v for (metric, _), v in rig.values.items() if metric is c.GPU_PROCESS_SM_RATIO]
    assert len(shares) == 9


def test_what_is_wrong_is_seen(rig: Rig) -> None:
    """A pending row, and after a contained error the recovery that the driver asks for."""
    rig.read()
    assert [rig.of(c.GPU_ROW_REMAP_PENDING, n) for n in range(8)] == [
        n == MENDING for n in range(8)
    ]
    while not rig.node.gpus.xids:
        rig.step(5)
    for _ in range(r.SLOW):
        rig.step()
        rig.read()
    assert rig.of(c.GPU_ROW_REMAP_PENDING, FAULTY) == 1
    assert rig.of(c.GPU_ECC_ERRORS_TOTAL, FAULTY, "uncorrected", "volatile") == 1
    assert rig.of(c.GPU_ECC_ERRORS_TOTAL, FAULTY, "corrected", "volatile") == (
        rig.gpus[FAULTY].corrected
    )
    actions = [rig.of(c.GPU_RECOVERY_ACTION, n) for n in range(8)]
    assert actions == [4 if n in (FAULTY, MENDING) else 0 for n in range(8)]


def test_reading_while_the_node_moves(rig: Rig) -> None:
    """Steps in one thread and reads in others never meet half a tick."""
    enough = threading.Event()

    def move() -> None:
        while not enough.is_set():
            rig.demo.step(0.25)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        for _ in range(15):
            rig.clock.advance(1)
            rig.read()
            for n in range(8):
                assert rig.of(c.GPU_POWER_WATTS, n, "average") < 705
    finally:
        enough.set()
        mover.join(60)
    assert not mover.is_alive()


# ---------------------------------------------------------------- errors, through both doors


def test_an_xid_is_told_twice_and_counted_once(rig: Rig) -> None:
    """The driver's event and the line of the kernel log are one error, with a name to it."""
    ledger = XidLedger(xids.load())
    devices = {f"0000{gpu.address}": (str(gpu.index), gpu.uuid) for gpu in rig.gpus}
    log = KernelLogSource(ledger, lambda: devices, rig.clock, rig.demo.root)
    assert rig.demo.kernel_log == rig.demo.root / "dev/kmsg"
    rig.read()
    while not rig.node.gpus.xids:
        rig.step()
        list(log.read())
    told = rig.read()
    for event in told:
        ledger.from_driver(event)
    samples = [item for item in log.read() if isinstance(item, Sample)]
    log.close()
    (event,) = told
    assert (event.kind, event.about, event.code) == ("xid", f"0000{ADDRESSES[FAULTY]}", 94)
    counted = {
        s.labels[0]: s.value
        for s in samples
        if s.metric is c.GPU_XID_ERRORS_TOTAL and s.labels[3] == "94"
    }
    assert counted == {str(FAULTY): 1}
    (seen,) = (s.value for s in samples if s.metric is c.GPU_XID_LAST_TIMESTAMP_SECONDS)
    (made,) = rig.node.gpus.xids
    assert seen == pytest.approx(rig.node.born + made.at, abs=2)


def test_the_kernel_log_is_one(rig: Rig) -> None:
    """Every line is a record of /dev/kmsg, numbered, in order of time; errors can be read."""
    while not rig.node.gpus.xids:
        rig.step(5)
    lines = rig.demo.kernel_log.read_bytes().splitlines()
    assert all(re.fullmatch(rb"\d,\d+,\d+,-;[ -~]+", line) for line in lines)
    records = [xid.entry(line) for line in lines]
    numbers = [record.sequence or 0 for record in records]
    assert numbers == list(range(numbers[0], numbers[0] + len(lines)))
    times = [record.microseconds or 0 for record in records]
    assert times == sorted(times)
    (found,) = filter(None, map(xid.parse, records))
    assert found == xid.XidLine(f"0000{ADDRESSES[FAULTY]}", 94, "", numbers[-1])


def test_events_are_told_once_to_each_who_asked(rig: Rig) -> None:
    """From the registration on, of the GPU that was named, as many at once as wanted."""
    driver = rig.demo.gpu_driver()
    driver.start()
    early, again, other = (driver.watch_xids(rig.gpus[n]) for n in (FAULTY, FAULTY, FAULTY - 1))
    while len(rig.node.gpus.xids) < 2:
        rig.step(20)
    late = driver.watch_xids(rig.gpus[FAULTY])
    assert early(0) == []
    assert early(1) == [94]
    assert early(10) == [94]
    assert again(10) == [94, 94]
    assert early(10) == late(10) == other(10) == []


def test_the_kernel_has_the_devices_on_its_bus(rig: Rig) -> None:
    """Vendor, class and device id of each GPU stand where the kernel puts them."""
    bus = rig.demo.root / "sys/bus/pci/devices"
    told = {
        path.name: [(path / name).read_text().strip() for name in ("vendor", "class", "device")]
        for path in bus.iterdir()
    }
    gpus = [name for name, (vendor, *_) in told.items() if vendor == "0x10de"]
    assert sorted(gpus) == sorted(ADDRESSES)
    assert all(told[gpu] == ["0x10de", "0x030200", "0x2330"] for gpu in gpus)


# ---------------------------------------------------------------- the library itself


def code_of(caught: pytest.ExceptionInfo[NvmlError]) -> int:
    return caught.value.code


def test_nothing_is_answered_before_start_and_after_stop(driver: DemoNvml) -> None:
    """As often as it was started it must be stopped; then every call says so."""
    name = driver.bind("nvmlDeviceGetName", "u32", driver.device(0))
    fields = driver.fields(driver.device(0), [(83, 0)])
    driver.start()
    driver.stop()
    assert name() == "NVIDIA H100 80GB HBM3"
    driver.stop()
    for call in (name, fields, driver.gpm_sample, driver.stop):
        with pytest.raises(NvmlError) as caught:
            call()
        assert code_of(caught) == UNINITIALIZED


def test_what_is_not_there_is_refused_with_the_librarys_codes(driver: DemoNvml) -> None:
    """A function that does not exist, one that the board lacks, a link too many, a field."""
    gpu = driver.device(0)
    with pytest.raises(NvmlError) as caught:
        driver.bind("nvmlDeviceGetSomething", "u32", gpu)
    assert code_of(caught) == FUNCTION_NOT_FOUND
    with pytest.raises(NvmlError) as caught:
        driver.bind("nvmlDeviceGetNumFans", "u32", gpu)()
    assert code_of(caught) == NOT_SUPPORTED
    with pytest.raises(NvmlError) as caught:
        driver.bind("nvmlDeviceGetNvLinkState", "u32", gpu, 18)()
    assert code_of(caught) == INVALID_ARGUMENT
    answers = driver.fields(gpu, [(29, 0), (139, 18), (185, 1), (91, 0)])()
    assert [a.code for a in answers] == [NOT_SUPPORTED, INVALID_ARGUMENT, NOT_SUPPORTED, 0]


def test_answers_come_in_the_shape_that_was_asked_for(driver: DemoNvml) -> None:
    """A structure gives the fields that were named, in that order."""
    gpu = driver.device(0)
    memory = Struct("c_nvmlMemory_v2_t", ("used", "total"), "nvmlMemory_v2")
    used, total = driver.bind("nvmlDeviceGetMemoryInfo_v2", memory, gpu)()
    assert 0 < used < total == 81_559 * 2**20
    assert driver.bind("nvmlDeviceGetUtilizationRates", ("u32", "u32"), gpu)()[0] > 0
    both = driver.fields(gpu, [(139, link) for link in (*range(18), ALL_LINKS)])()
    assert sum(answer.value for answer in both[:18]) == both[18].value > 0
    assert all(answer.wide for answer in both)


def test_older_functions_agree(driver: DemoNvml) -> None:
    """What stands in for newer functions says the same, the reserve counted as used."""
    gpu = driver.device(3)
    v2 = Struct("c_nvmlMemory_v2_t", ("total", "reserved", "used"), "nvmlMemory_v2")
    total, reserved, used = driver.bind("nvmlDeviceGetMemoryInfo_v2", v2, gpu)()
    v1 = Struct("c_nvmlMemory_t", ("total", "used"))
    assert driver.bind("nvmlDeviceGetMemoryInfo", v1, gpu)() == (total, used + reserved)
    (energy,) = driver.fields(gpu, [(83, 0)])()
    assert driver.bind("nvmlDeviceGetTotalEnergyConsumption", "u64", gpu)() == energy.value
    (power,) = driver.fields(gpu, [(185, 0)])()
    assert driver.bind("nvmlDeviceGetPowerUsage", "u32", gpu)() == power.value
    sent = driver.bind("nvmlDeviceGetPcieThroughput", "u32", driver.device(5), 0)()
    assert sent >= 0


def test_utilization_is_sampled_six_times_a_second(driver: DemoNvml) -> None:
    """The driver keeps some seconds of samples and gives those that are newer."""
    gpu = driver.device(0)
    rows = driver.utilization_samples(gpu, 0)
    assert len(rows) == 61
    stamps = [stamp for stamp, _ in rows]
    assert {round(b - a, -1) for a, b in itertools.pairwise(stamps)} == {166_670}
    assert driver.utilization_samples(gpu, stamps[-3]) == rows[-2:]
    assert driver.process_shares(gpu, stamps[-1]) == []
    assert [row[:2] for row in driver.process_shares(gpu, 0)] == [(41_210, stamps[-1])]


def test_a_window_without_time_shows_the_last_tick(driver: DemoNvml) -> None:
    """Two samples of one moment give what is being done, never a division by nothing."""
    gpu = driver.device(0)
    first, second = driver.gpm_sample(), driver.gpm_sample()
    driver.gpm_take(gpu, first, None)
    driver.gpm_take(gpu, second, None)
    answers = driver.gpm_metrics(first, second, [2, 10, 999])
    assert answers[:2] == [(0, 100 * gpu.rates.sms), (0, 100 * gpu.rates.memory)]
    assert answers[2][0] == NOT_SUPPORTED


def test_samples_of_counters_are_checked(driver: DemoNvml) -> None:
    """Of different GPUs, not filled, in the wrong order, or freed: an invalid argument."""
    one, other = driver.device(0), driver.device(1)
    first, second, empty = (driver.gpm_sample() for _ in range(3))
    driver.gpm_take(one, first, None)
    driver.gpm_take(other, second, None)
    pairs = [(first, second), (first, empty)]
    driver._node.advance(1)
    later = driver.gpm_sample()
    driver.gpm_take(one, later, None)
    pairs.append((later, first))
    driver.gpm_free(second)
    pairs.append((second, second))
    for earlier, newer in pairs:
        with pytest.raises(NvmlError) as caught:
            driver.gpm_metrics(earlier, newer, [2])
        assert code_of(caught) == INVALID_ARGUMENT
    with pytest.raises(NvmlError) as caught:
        driver.gpm_take(one, first, 3)
    assert code_of(caught) == NOT_SUPPORTED
