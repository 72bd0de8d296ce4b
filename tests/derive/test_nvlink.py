"""NVLink traffic against the peak of the product."""

from __future__ import annotations

import pytest

from exporter import catalogue as c
from exporter.derive import Memory
from exporter.derive.fabric.nvlink import nvlink
from exporter.reference.accelerators import load
from exporter.samples import EMPTY_SHAPE, Health, Sample, SourceView, View, in_columns

KEY = ("0", "GPU-0")
H100 = "NVIDIA H100 80GB HBM3"


def info(name: str = H100, virtualization: str = "") -> Sample:
    said = dict.fromkeys(c.GPU_INFO.labels, "") | {
        "gpu": KEY[0], "uuid": KEY[1], "name": name, "virtualization": virtualization,
    }  # fmt: skip
    return c.GPU_INFO(1, *said.values())


class Lab:
    """The derivation over a board that is shown again and again."""

    def __init__(self, board: Sample | None = None, sure: float = 1.0) -> None:
        self._memory = Memory()
        self._derivation = nvlink(load())
        self._board = [board or info(), c.GPU_PEAK_CONFIDENCE_RATIO(sure, *KEY)]
        self.now = 1000.0

    def show(self, received: float, sent: float, after: float = 1.0) -> dict[str, float]:
        self.now += after
        samples = [
            *self._board,
            c.GPU_NVLINK_RECEIVE_BYTES_TOTAL(received, *KEY),
            c.GPU_NVLINK_TRANSMIT_BYTES_TOTAL(sent, *KEY),
        ]
        view = View(
            (SourceView("all", "gpu", "up", Health(), batch=in_columns(samples, EMPTY_SHAPE),
                        age=0.0),), (),
        )  # fmt: skip
        self._memory.begin(self.now)
        told = self._derivation.function(view, self._memory, self.now)
        return {one.metric.name: one.value for one in told}  # type: ignore[misc]


def test_half_of_what_an_h100_can_send() -> None:
    """900 GB/s are both directions together."""
    lab = Lab()
    first = lab.show(0, 0)
    assert first == {"gpu_peak_nvlink_bytes_per_second": 450e9}
    for second in range(1, 15):
        told = lab.show(45e9 * second, 225e9 * second)
    assert told["gpu_nvlink_receive_utilization_ratio"] == pytest.approx(0.1)
    assert told["gpu_nvlink_transmit_utilization_ratio"] == pytest.approx(0.5)


def test_only_the_last_ten_seconds_count() -> None:
    lab = Lab()
    for second in range(20):
        lab.show(450e9 * second, 0)
    for second in range(20, 31):
        told = lab.show(450e9 * 19, 0, after=1.0)
        assert told["gpu_nvlink_receive_utilization_ratio"] < (1 if second > 20 else 2)
    assert told["gpu_nvlink_receive_utilization_ratio"] == 0


def test_rare_readings_are_enough() -> None:
    """A dcgm-exporter is read every 15 seconds."""
    lab = Lab()
    lab.show(0, 0)
    told = lab.show(45e9 * 15, 0, after=15.0)
    assert told["gpu_nvlink_receive_utilization_ratio"] == pytest.approx(0.1)


def test_a_counter_that_was_set_back_is_no_negative_share() -> None:
    lab = Lab()
    lab.show(900e9, 900e9)
    lab.show(950e9, 950e9)
    assert "gpu_nvlink_receive_utilization_ratio" not in lab.show(0, 1000e9)
    assert lab.show(45e9, 1000e9)["gpu_nvlink_receive_utilization_ratio"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("board", "sure"),
    [
        (info("NVIDIA GeForce GTX 1"), 1.0),  # not in the table
        (info("NVIDIA L4"), 1.0),  # has no NVLink
        (info(), 0.25),  # not sure enough which product it is
        (info(virtualization="vgpu"), 1.0),
    ],
)
def test_without_a_peak_there_is_no_share(board: Sample, sure: float) -> None:
    lab = Lab(board, sure)
    lab.show(0, 0)
    assert lab.show(1e9, 1e9) == {}


def test_both_directions_of_the_data_sheets() -> None:
    """Generations 3, 4 and 5; the A800 and H800 were cut down to 400."""
    table = load()
    told = {one.id: one.nvlink for one in table.products if one.nvlink is not None}
    assert told["a100-sxm4-80gb"] == 300e9
    assert told["h100-sxm5-80gb"] == 450e9
    assert told["b200"] == 900e9
    assert told["h800"] == told["a800-sxm4-80gb"] == 200e9
    assert "l40s" not in told
