"""The decision tree on boards built by hand: each row, each cause, patience, what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from exporter import catalogue as c
from exporter.derive import Memory
from exporter.derive.diagnosis import Thresholds, diagnosis
from exporter.derive.diagnosis.advice import ADVICE, PROBLEMS
from exporter.derive.diagnosis.tree import CAUSES, ROWS, Row, decide, seen
from exporter.samples import Gate, Health, Metric, Sample, SourceView, View

RUN = "llama"
GIB = 2**30


def specification(utilization: float, mem_util: float, comm_time_ratio: float) -> str:
    """Return what the specification's `diagnose_bottleneck` says; its numbers are percent."""
    if utilization < 70:
        if mem_util > 90:
            return "Memory-bound (severe)"
        return "Software overhead / data loading"
    if utilization > 95 and comm_time_ratio > 30:
        return "Communication-bound"
    if utilization > 95 and comm_time_ratio < 10:
        return "Memory-bandwidth-bound"
    if utilization > 95:
        return "Efficient (near peak)"
    return "Mixed bottleneck (needs detailed profile)"


def test_the_table_says_what_the_specification_says() -> None:
    """Everywhere, the thresholds themselves included."""
    told: set[str] = set()
    for utilization in (0, 50, 69.9, 70, 80, 95, 95.1, 100):
        for memory in (0, 90, 90.1, 100):
            for communication in (0, 9.9, 10, 20, 30, 30.1, 80):
                signals = {
                    "gpu_utilization": utilization / 100, "memory_used": memory / 100,
                    "communication": communication / 100,
                }  # fmt: skip
                verdict = decide(signals, Thresholds())
                assert verdict is not None
                told.add(verdict.row.words)
                assert verdict.row.words == specification(utilization, memory, communication)
    assert told == {row.words for row in ROWS}


@pytest.mark.parametrize(
    ("signals", "answer"),
    [
        ({}, None),
        ({"communication": 0.5}, None),
        ({"gpu_utilization": 0.5}, None),  # severe or not: memory decides
        ({"gpu_utilization": 0.5, "memory_used": 0.5}, "software_overhead"),
        ({"gpu_utilization": 0.97}, None),  # communication decides
        ({"gpu_utilization": 0.8}, "mixed"),  # whatever the others are
        ({"memory_used": 0.5, "communication": 0.2}, None),
    ],
)
def test_what_is_not_known_is_no_answer_where_it_matters(
    signals: Mapping[str, float], answer: str | None
) -> None:
    """A row whose condition cannot be asked may be the one."""
    verdict = decide(signals, Thresholds())

    assert (verdict and verdict.row.bottleneck) == answer


def test_each_finding_has_advice_and_each_problem_knows_its_causes() -> None:
    """What is told by name can be looked up; table 16-8 has its six rows."""
    causes = {cause.name for cause in CAUSES}
    assert set(ADVICE) == {row.bottleneck for row in ROWS} | causes
    assert {cause for row in ROWS for cause in row.borne_out} <= causes
    assert {cause for problem in PROBLEMS for cause in problem.causes} <= causes
    assert len(PROBLEMS) == 6
    assert {one.threshold for cause in CAUSES for one in cause.conditions} <= set(
        Thresholds._fields
    )


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_each_cause_is_seen_is_not_seen_and_is_not_known(cause: Any) -> None:
    """By each of its signals on either side of the threshold."""
    limits = Thresholds()
    for one in cause.conditions:
        limit = getattr(limits, one.threshold)
        beyond, within = (limit * 1.5, limit * 0.5) if one.side == ">" else (limit / 2, 1.0)
        assert seen({one.signal: beyond}, limits)[cause.name] is True
        assert seen({one.signal: within}, limits)[cause.name] is False
    assert cause.name not in seen({}, limits)


# ---------------------------------------------------------------- boards


def gpu(index: int, busy: float, memory: float = 0.8, *, moment: float = 0.0) -> list[Sample]:
    """Return the readings of a GPU that has been busy for such a share of all time so far."""
    key = (str(index), f"GPU-{index}")
    return [
        c.GPU_BUSY_SECONDS_TOTAL(busy * moment, *key),
        c.GPU_UTILIZATION_RATIO(0.5, *key),  # whatever it is at the moment
        c.GPU_MEMORY_USED_BYTES(memory * 80 * GIB, *key),
        c.GPU_MEMORY_TOTAL_BYTES(80 * GIB, *key),
    ]


def of_run(**shares: float) -> list[Sample]:
    """Return what is derived of the run."""
    rows = {
        "communication": lambda v: c.TRAIN_COMMUNICATION_RATIO(v, RUN, "total", "measured"),
        "exposed": lambda v: c.TRAIN_COMMUNICATION_RATIO(v, RUN, "exposed", "measured"),
        "data": lambda v: c.TRAIN_DATA_LOADING_RATIO(v, RUN),
        "bubble": lambda v: c.TRAIN_PIPELINE_BUBBLE_RATIO(v, RUN, "measured"),
        "theory": lambda v: c.TRAIN_PIPELINE_BUBBLE_RATIO(v, RUN, "theoretical"),
        "skew": lambda v: c.TRAIN_STEP_SKEW_RATIO(v, RUN),
        "hbm": lambda v: c.TRAIN_HBM_BANDWIDTH_UTILIZATION_RATIO(v, RUN),
        "clock": lambda v: c.TRAIN_MFU_LOSS_RATIO(v, RUN, "clock", "counters"),
        "framework": lambda v: c.TRAIN_MFU_LOSS_RATIO(v, RUN, "framework", "estimated"),
        "launches": lambda v: c.TRAIN_MFU_LOSS_RATIO(v, RUN, "framework", "counters"),
    }
    lives = c.TRAIN_STALLED(0, RUN)
    return [lives, *(rows[name](value) for name, value in shares.items())]


WORKS = [c.TRAIN_RUN_GPU(1, RUN, str(n), f"GPU-{n}") for n in (0, 1)]
"""What says that the run works on GPUs 0 and 1."""


class Lab:
    """A derivation and the boards that it is shown, one each five seconds."""

    def __init__(self, **options: Any) -> None:
        self.works = WORKS
        self.derivation = diagnosis(**options)
        self.memory = Memory()
        self.now = 1000.0
        self.found: dict[tuple[str, ...], float] = {}

    def show(self, samples: Iterable[Sample]) -> None:
        """Show one board, and go on five seconds."""
        # It sees what it says it reads, and nothing else.
        inputs = [one for one in (*self.works, *samples) if one.metric in self.derivation.inputs]
        batch, drops = Gate(10_000).admit(inputs)
        assert not drops
        view = View((SourceView("all", "gpu", "up", Health(), batch=batch, age=0.0),), ())
        self.memory.begin(self.now)
        made = list(self.derivation.function(view, self.memory, self.now))
        told, drops = Gate(10_000).admit(made)
        assert not drops, "well-formed, and no series twice"
        assert {sample.metric for sample in told} <= set(self.derivation.outputs)
        self.found = {(s.metric.name, *s.labels): s.value for s in told}  # type: ignore[misc]
        self.now += 5

    def stand(self, seconds: float, busy: float, memory: float = 0.8, **shares: float) -> None:
        """Show the same for a while: two busy GPUs of the run."""
        for _ in range(int(seconds / 5)):
            moment = self.now
            both = (gpu(n, busy, memory, moment=moment) for n in (0, 1))
            self.show([*(one for rows in both for one in rows), *of_run(**shares)])

    def answer(self, run: str = RUN) -> str | None:
        """Return the bottleneck that is 1; the others must be there as 0."""
        told = {
            key[2]: value
            for key, value in self.found.items()
            if key[:2] == ("diagnosis_bottleneck", run)
        }
        if not told:
            return None
        assert set(told) == {row.bottleneck for row in ROWS}
        assert sorted(told.values()) == [0, 0, 0, 0, 0, 1]
        return next(name for name, value in told.items() if value)

    def cause(self, name: str, run: str = RUN) -> float | None:
        return self.found.get(("diagnosis_cause", run, name))


BOARDS: dict[str, dict[str, float]] = {
    "memory_bound_severe": {"busy": 0.5, "memory": 0.95},
    "software_overhead": {"busy": 0.5, "memory": 0.6},
    "communication_bound": {"busy": 0.99, "communication": 0.4},
    "memory_bandwidth_bound": {"busy": 0.99, "communication": 0.05},
    "efficient": {"busy": 0.99, "communication": 0.2},
    "mixed": {"busy": 0.8},
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.bottleneck)
def test_each_row_of_the_tree_is_told_of_a_board(row: Row) -> None:
    """By utilization over the window, used memory and the share of communication."""
    lab = Lab()
    lab.stand(60, **BOARDS[row.bottleneck])

    assert lab.answer() == row.bottleneck
    assert lab.found["diagnosis_signal_ratio", RUN, "gpu_utilization"] == pytest.approx(
        BOARDS[row.bottleneck]["busy"]
    )


def test_thresholds_are_the_operators() -> None:
    """The same board, another answer; what it is held against is told."""
    lab = Lab(thresholds=Thresholds(low_utilization=0.4, high_utilization=0.45))
    lab.stand(60, busy=0.5, communication=0.2)

    assert lab.answer() == "efficient"
    assert lab.found["diagnosis_threshold_ratio", "low_utilization"] == 0.4
    assert lab.found["diagnosis_threshold_per_second", "link_error_rate"] == 0.01


def test_an_answer_counts_once_it_has_stood_and_does_not_flap() -> None:
    """Half a minute by default; a short spell of something else turns nothing."""
    lab = Lab(window=5.0)
    lab.stand(30, busy=0.8)
    assert lab.answer() is None
    lab.stand(15, busy=0.8)
    assert lab.answer() == "mixed"
    lab.stand(20, busy=0.3)
    assert lab.answer() == "mixed"
    lab.stand(10, busy=0.8)
    lab.stand(25, busy=0.3)
    assert lab.answer() == "mixed"
    lab.stand(20, busy=0.3)
    assert lab.answer() == "software_overhead"


def test_nothing_is_said_while_an_input_is_missing() -> None:
    """Neither the last answer nor another; it goes on when the input is back soon."""
    lab = Lab()
    lab.stand(60, busy=0.99, communication=0.4)
    assert lab.answer() == "communication_bound"
    lab.stand(5, busy=0.99)
    assert lab.answer() is None
    lab.stand(5, busy=0.99, communication=0.4)
    assert lab.answer() == "communication_bound"
    lab.stand(60, busy=0.99)
    lab.stand(5, busy=0.99, communication=0.4)
    assert lab.answer() is None


def test_one_gpu_that_does_not_tell_leaves_the_mean_open() -> None:
    """A mean of some is none of all: no utilization, hence no answer."""
    lab = Lab()
    for _ in range(12):
        lab.show([*gpu(0, 0.8, moment=lab.now), c.GPU_MEMORY_USED_BYTES(1, "1", "GPU-1"),
                  *of_run()])  # fmt: skip
    assert lab.answer() is None
    for _ in range(12):
        lab.show([*gpu(0, 0.8, moment=lab.now), *of_run()])
    assert lab.answer() is None, "the other one is lost"


def test_what_is_measured_contradicts_the_tree() -> None:
    """Memory is full in any job with a caching allocator; here the loop waits for data."""
    lab = Lab()
    pressure = c.HOST_PRESSURE_STALLED_SECONDS_TOTAL(0.0, "memory", "some")
    for _ in range(12):
        both = [*gpu(0, 0.5, 0.95, moment=lab.now), *gpu(1, 0.5, 0.95, moment=lab.now)]
        lab.show([*both, *of_run(data=0.3), pressure])

    assert lab.answer() == "memory_bound_severe"
    assert lab.cause("memory_stalled") == 0
    assert lab.cause("data_loading") == 1
    assert lab.found["diagnosis_confirmed", RUN] == 0


def test_what_is_measured_confirms_the_tree() -> None:
    """HBM counters say what the utilization cannot."""
    lab = Lab()
    lab.stand(60, busy=0.99, communication=0.05, hbm=0.8)
    assert (lab.answer(), lab.found["diagnosis_confirmed", RUN]) == ("memory_bandwidth_bound", 1)
    lab.stand(60, busy=0.99, communication=0.05, hbm=0.3)
    assert (lab.answer(), lab.found["diagnosis_confirmed", RUN]) == ("memory_bandwidth_bound", 0)
    lab.stand(60, busy=0.99, communication=0.05)
    assert ("diagnosis_confirmed", RUN) not in lab.found


def test_a_measured_bubble_counts_before_a_theoretical_one() -> None:
    """And what is exposed stands in for all communication only where that is not known."""
    lab = Lab()
    lab.stand(60, busy=0.99, theory=0.27, bubble=0.05, exposed=0.4)
    assert lab.cause("bubble") == 0
    assert lab.found["diagnosis_signal_ratio", RUN, "communication"] == 0.4
    lab.stand(60, busy=0.99, theory=0.27, exposed=0.05, communication=0.5)
    assert lab.cause("bubble") == 1
    assert lab.found["diagnosis_signal_ratio", RUN, "communication"] == 0.5


def test_a_loss_that_is_known_in_parts_is_seen_as_a_whole() -> None:
    """What the job calls `other` hid the time in which the GPU had nothing to do."""
    lab = Lab()
    lab.stand(60, busy=0.5, memory=0.6, framework=0.1, launches=0.1)
    assert lab.found["diagnosis_signal_ratio", RUN, "framework"] == pytest.approx(0.2)
    assert lab.cause("framework") == 1


def test_counters_of_the_node_become_rates() -> None:
    """Errors of links, marks of congestion, replays, heat; what is at rest says 0."""
    lab = Lab()
    began = lab.now
    for _ in range(13):
        passed = lab.now - began
        key = ("0", "GPU-0")
        lab.show([
            *gpu(0, 0.8, moment=lab.now), *gpu(1, 0.8, moment=lab.now), *of_run(),
            c.NIC_ERRORS_TOTAL(passed * 0.2, "mlx5_0", "1", "symbol"),
            c.NIC_ERRORS_TOTAL(passed * 500, "mlx5_0", "1", "vl15_dropped"),
            c.NIC_CONGESTION_NOTICES_TOTAL(passed * 300, "mlx5_0", "1", "sent"),
            c.GPU_PCIE_REPLAYS_TOTAL(7, *key),
            c.GPU_THROTTLED_SECONDS_TOTAL(passed * 0.25, *key, "hw_thermal"),
            c.GPU_THROTTLED_SECONDS_TOTAL(passed, *key, "sw_power_cap"),
            c.GPU_PCIE_LINK_LANES(8, *key), c.GPU_PCIE_LINK_LANES_MAX(16, *key),
        ])  # fmt: skip

    assert lab.found["diagnosis_signal_per_second", RUN, "link_error_rate"] == pytest.approx(0.2)
    assert lab.found["diagnosis_signal_per_second", RUN, "congestion_rate"] == pytest.approx(300)
    assert lab.found["diagnosis_signal_ratio", RUN, "throttled"] == pytest.approx(0.25)
    assert [
        lab.cause(name)
        for name in ("link_errors", "congestion", "clock", "pcie_width", "pcie_errors")
    ] == [1, 1, 1, 1, 0]


@pytest.mark.parametrize(
    ("cause", "other", "seconds", "frames"),
    [
        (
            "paused", "pausing",
            c.NIC_RECEIVE_PAUSE_SECONDS_TOTAL, c.NIC_RECEIVE_PAUSE_FRAMES_TOTAL,
        ),
        (
            "pausing", "paused",
            c.NIC_TRANSMIT_PAUSE_SECONDS_TOTAL, c.NIC_TRANSMIT_PAUSE_FRAMES_TOTAL,
        ),
    ],
)  # fmt: skip
def test_who_waits_for_whom_is_told_by_the_time_of_the_worst_port(
    cause: str, other: str, seconds: Metric, frames: Metric
) -> None:
    """Read each 15 s; frames say nothing where times are known, and stand in where they are not."""

    def shown(share: float, rate: float, unknown: float = 0.0) -> Lab:
        lab = Lab()
        began = lab.now
        for _ in range(19):
            passed = (lab.now - began) // 15 * 15
            lab.show([
                *of_run(),
                seconds(passed * share, "eth2", "", "3"), seconds(0, "eth3", "", "3"),
                frames(passed * rate, "eth2", "", "3"), frames(passed * unknown, "ens1", "", "0"),
            ])  # fmt: skip
        return lab

    stormy = shown(0.2, 10)
    assert stormy.found["diagnosis_signal_ratio", RUN, cause] == pytest.approx(0.2, rel=0.4)
    assert stormy.cause(cause) == 1
    assert ("diagnosis_cause", RUN, other) not in stormy.found
    assert shown(0.001, 900_000).cause(cause) == 0
    assert shown(0.0, 0.0, 2000).cause(cause) == 1
    assert shown(0.0, 0.0, 20).cause(cause) == 0


def test_a_card_that_has_given_up_pausing_is_seen_at_the_first_event() -> None:
    """Its watchdog's warnings are none."""
    for severity, expected in (("error", 1), ("warning", None)):
        lab = Lab()
        for at in range(13):
            lab.show(
                [*of_run(), c.NIC_PAUSE_STORM_EVENTS_TOTAL(7 + (at > 3), "eth2", "", severity)]
            )
        told = lab.found.get(("diagnosis_cause", RUN, "pausing"))
        assert told == expected


def test_a_gpu_whose_nic_is_too_far_is_told() -> None:
    """The share of the run's GPUs; where it is not known of one of them, nothing is said."""
    lab = Lab()
    both = [*gpu(0, 0.8, moment=lab.now), *gpu(1, 0.8, moment=lab.now), *of_run()]
    near, far = c.TOPOLOGY_GPU_NIC_OK(1, "0", "GPU-0"), c.TOPOLOGY_GPU_NIC_OK(0, "1", "GPU-1")
    lab.show([*both, near])
    assert ("diagnosis_signal_ratio", RUN, "far_nics") not in lab.found
    lab.show([*both, near, far])
    assert lab.found["diagnosis_signal_ratio", RUN, "far_nics"] == 0.5
    for _ in range(8):
        lab.show([*both, near, far])
    assert lab.cause("nic_distance") == 1


def test_a_counter_that_was_set_back_is_no_negative_rate() -> None:
    """A driver reload: what came before is left out."""
    lab = Lab()
    values = [900.0, 901.0, 0.0, 0.5, 1.0]
    for value in values:
        lab.show([*of_run(), c.NIC_ERRORS_TOTAL(value, "mlx5_0", "1", "crc")])

    assert lab.found["diagnosis_signal_per_second", RUN, "link_error_rate"] == pytest.approx(0.1)


def test_small_messages_are_those_of_all_ranks() -> None:
    """The mean of what NCCL Inspector tells of each; of another run they say nothing."""
    lab = Lab()
    for _ in range(8):
        lab.show([
            *of_run(), c.NCCL_SMALL_MESSAGE_RATIO(0.9, RUN, "0"),
            c.NCCL_SMALL_MESSAGE_RATIO(0.5, RUN, "1"),
            c.NCCL_SMALL_MESSAGE_RATIO(0.1, "other", "0"),
        ])  # fmt: skip

    assert lab.found["diagnosis_signal_ratio", RUN, "small_messages"] == pytest.approx(0.7)
    assert lab.cause("small_messages") == 1


def test_checkpoints_count_over_an_hour() -> None:
    """One that took half a minute just now is no share of a minute."""
    lab = Lab()
    began = lab.now
    for _ in range(240):
        saved = 60.0 if lab.now - began > 600 else 0.0
        lab.show([*of_run(), c.TRAIN_CHECKPOINT_SECONDS_TOTAL(saved, RUN)])
        told = lab.found.get(("diagnosis_signal_ratio", RUN, "checkpoint"))
        assert (told is not None) == (lab.now - 5 - began >= 600)
    assert told == pytest.approx(60 / 1195)
    assert lab.cause("checkpoint") == 1


def test_gpus_without_a_run_are_judged_together_while_they_work() -> None:
    """Servers' GPUs are not among them, and neither is a node at rest."""
    lab = Lab()
    lab.works = []
    for _ in range(12):
        lab.show([
            *gpu(0, 0.5, 0.5, moment=lab.now), *gpu(1, 0.02, 0.1, moment=lab.now),
            c.LLM_SERVER_GPU(1, "vllm", "1", "GPU-1"),
        ])  # fmt: skip
    assert lab.answer("") == "software_overhead"

    idle = Lab()
    idle.works = []
    for _ in range(12):
        idle.show(gpu(0, 0.02, 0.5, moment=idle.now))
    assert idle.found == {}


def test_a_run_that_hangs_has_no_bottleneck() -> None:
    """Its GPUs spin in a collective at 100 %: that is no work."""
    lab = Lab()
    lab.stand(60, busy=0.99, communication=0.2)
    assert lab.answer() == "efficient"
    both = [*gpu(0, 1, moment=lab.now), *gpu(1, 1, moment=lab.now)]
    lab.show([*both, *of_run(communication=0.2)[1:], c.TRAIN_STALLED(1, RUN)])
    assert lab.answer() is None


def test_a_run_that_has_ended_has_no_bottleneck() -> None:
    """Its row stays for some minutes, so that it can be scraped; its GPUs idle."""
    lab = Lab()
    lab.stand(60, busy=0.99, communication=0.2)
    lab.works = []
    lab.show([c.TRAIN_RUN_INFO(1, RUN, "0", "megatron", "llama", "bf16", "1f1b", "8", "run")])
    assert lab.found == {}


def test_a_node_that_does_not_speak_for_a_run_diagnoses_its_own_part() -> None:
    """It has GPUs of the run, and no row on whether that goes on."""
    lab = Lab()
    for _ in range(12):
        lab.show([*gpu(0, 0.8, moment=lab.now), *gpu(1, 0.8, moment=lab.now)])
    assert lab.answer() == "mixed"


def test_gpus_of_a_run_that_nobody_knows_are_not_given_to_nobody() -> None:
    """The GPUs that are left may be the run's: they are judged under no name."""
    lab = Lab()
    lab.works = []
    lab.stand(60, busy=0.5)
    assert lab.answer() is None
    assert lab.answer("") is None
