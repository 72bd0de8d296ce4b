"""Use of ports and NVLinks, and the balance of rails, on boards whose counters move."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from exporter import catalogue as c
from exporter.derive import Derivation
from exporter.derive.fabric.use import NVLINK, use
from exporter.reference.accelerators import Accelerators, load
from exporter.samples import Sample
from tests.derive.fabric_lab import h100, rails, rounds

NDR = 50e9
"""400 Gbit/s in bytes."""


def derivation(**options: float) -> Derivation:
    return use(load(), **options)


def ports(
    speeds: Mapping[str, float], rate: float | None = NDR
) -> Callable[[float], Iterator[Sample]]:
    """Return ports that receive at such speeds and send half as much."""

    def samples(now: float) -> Iterator[Sample]:
        yield from rails(len(speeds))
        for device, speed in speeds.items():
            yield c.NIC_RECEIVE_BYTES_TOTAL(int(speed * now), device, "1")
            yield c.NIC_TRANSMIT_BYTES_TOTAL(int(speed * now / 2), device, "1")
            if rate is not None:
                yield c.NIC_LINK_RATE_BYTES_PER_SECOND(rate, device, "1")

    return samples


def eight(**other: float) -> dict[str, float]:
    return {**{f"mlx5_{at}": 20e9 for at in range(8)}, **other}


def test_a_port_is_used_as_far_as_its_rate_goes_in_each_direction() -> None:
    told = rounds(derivation(), ports({"mlx5_0": 40e9}), 100, 105, 110)
    assert told[c.NIC_RECEIVE_UTILIZATION_RATIO, ("mlx5_0", "1")] == pytest.approx(0.8)
    assert told[c.NIC_TRANSMIT_UTILIZATION_RATIO, ("mlx5_0", "1")] == pytest.approx(0.4)


def test_a_port_without_a_rate_has_no_ratio() -> None:
    """One that is down: never a share of nothing, never 0."""
    told = rounds(derivation(), ports({"mlx5_0": 40e9}, rate=None), 100, 105)
    assert c.NIC_RECEIVE_UTILIZATION_RATIO not in {metric for metric, _ in told}


def test_one_reading_is_no_rate() -> None:
    assert not rounds(derivation(), ports({"mlx5_0": 40e9}), 100)


def test_a_counter_that_was_set_back_is_no_negative_use() -> None:
    def samples(now: float) -> Iterator[Sample]:
        yield c.NIC_RECEIVE_BYTES_TOTAL(
            int(1e12 if now < 110 else (now - 110) * 5e9), "mlx5_0", "1"
        )
        yield c.NIC_LINK_RATE_BYTES_PER_SECOND(NDR, "mlx5_0", "1")

    told = rounds(derivation(), samples, 100, 105, 110, 115, 120)
    assert told[c.NIC_RECEIVE_UTILIZATION_RATIO, ("mlx5_0", "1")] == pytest.approx(0.1)


def test_rails_that_carry_the_same_are_in_balance() -> None:
    told = rounds(derivation(), ports(eight()), 100, 110)
    assert told[c.NIC_RAIL_IMBALANCE_RATIO, ()] == pytest.approx(0)
    assert told[c.NIC_RAIL_BYTES_PER_SECOND, ("3",)] == pytest.approx(30e9)


def test_a_nic_in_the_wrong_slot_is_a_rail_all_the_same() -> None:
    """It is the nearest of no GPU, and carries its share, or less."""

    def samples(now: float) -> Iterator[Sample]:
        for one in ports(eight(mlx5_6=5e9))(now):
            if one.metric is not c.TOPOLOGY_GPU_BEST_NIC_INFO:
                yield one
        for at in range(8):
            near = 7 if at == 6 else at
            yield c.TOPOLOGY_GPU_BEST_NIC_INFO(
                1, f"{at}", f"GPU-{at}", f"mlx5_{near}", "NODE", f"{near}"
            )
            yield c.TOPOLOGY_NIC_INFO(1, f"mlx5_{at}", "", "", "compute", f"{at}")
        yield c.TOPOLOGY_NIC_INFO(1, "mlx5_bond_0", "bond0", "", "other", "")

    told = rounds(derivation(), samples, 100, 110)
    assert told[c.NIC_RAIL_TRAFFIC_RATIO, ("6",)] == pytest.approx(0.25)
    assert sum(metric is c.NIC_RAIL_TRAFFIC_RATIO for metric, _ in told) == 8


def test_the_rail_that_carries_less_is_told() -> None:
    """It is what a ring over all rails waits for."""
    told = rounds(derivation(), ports(eight(mlx5_3=10e9)), 100, 110)
    assert told[c.NIC_RAIL_TRAFFIC_RATIO, ("3",)] == pytest.approx(0.5)
    assert told[c.NIC_RAIL_TRAFFIC_RATIO, ("4",)] == pytest.approx(1)
    assert told[c.NIC_RAIL_IMBALANCE_RATIO, ()] == pytest.approx(0.5)


@pytest.mark.parametrize("used", [2, 4, 5, 8])
def test_a_job_on_some_of_the_gpus_is_no_imbalance(used: int) -> None:
    """The rails of GPUs that do nothing carry nothing; among the others it shows as ever."""

    def samples(now: float, *, slow: float = 3e10) -> Iterator[Sample]:
        each = {f"mlx5_{at}": 3e10 if at < used else 0.0 for at in range(8)}
        yield from ports(each | {"mlx5_1": slow})(now)
        for at in range(8):
            yield c.GPU_UTILIZATION_RATIO(0.98 if at < used else 0, f"{at}", f"GPU-{at}")

    told = rounds(derivation(), samples, 100, 110)
    assert told[c.NIC_RAIL_IMBALANCE_RATIO, ()] == pytest.approx(0)
    assert sum(metric is c.NIC_RAIL_TRAFFIC_RATIO for metric, _ in told) == used
    assert sum(metric is c.NIC_RAIL_BYTES_PER_SECOND for metric, _ in told) == 8
    if used > 2:  # of two none is the usual one
        told = rounds(derivation(), lambda now: samples(now, slow=1e10), 100, 110)
        assert told[c.NIC_RAIL_IMBALANCE_RATIO, ()] == pytest.approx(2 / 3)


def test_a_rail_whose_link_is_down_carries_nothing() -> None:
    told = rounds(derivation(), ports(eight(mlx5_3=0)), 100, 110)
    assert told[c.NIC_RAIL_IMBALANCE_RATIO, ()] == 1


def test_rails_of_an_idle_node_are_not_compared() -> None:
    """A little traffic of one port, 50 MB/s, is no imbalance."""
    told = rounds(derivation(), ports({f"mlx5_{at}": 5e7 * at for at in range(8)}), 100, 110)
    assert c.NIC_RAIL_IMBALANCE_RATIO not in {metric for metric, _ in told}


def test_a_rail_whose_device_is_gone_leaves_no_balance() -> None:
    """It is missing, not slow; its traffic is not known."""

    def samples(now: float) -> Iterator[Sample]:
        for one in ports(eight())(now):
            if one.metric is c.TOPOLOGY_GPU_BEST_NIC_INFO or one.labels[0] != "mlx5_3":
                yield one

    told = rounds(derivation(), samples, 100, 110)
    assert (c.NIC_RAIL_BYTES_PER_SECOND, ("2",)) in told
    assert (c.NIC_RAIL_BYTES_PER_SECOND, ("3",)) not in told
    assert (c.NIC_RAIL_IMBALANCE_RATIO, ()) not in told


def test_a_device_that_serves_two_gpus_is_one_rail() -> None:
    def samples(now: float) -> Iterator[Sample]:
        for gpu in range(4):
            device, rail = f"mlx5_{gpu // 2}", str(gpu // 2)
            yield c.TOPOLOGY_GPU_BEST_NIC_INFO(1, str(gpu), f"GPU-{gpu}", device, "PXB", rail)
        for at in range(2):
            yield c.NIC_RECEIVE_BYTES_TOTAL(int(2e10 * now), f"mlx5_{at}", "1")

    told = rounds(derivation(), samples, 100, 110)
    assert told[c.NIC_RAIL_BYTES_PER_SECOND, ("1",)] == pytest.approx(2e10)
    assert told[c.NIC_RAIL_IMBALANCE_RATIO, ()] == pytest.approx(0)


def nvlink(*links: Sample, name: str = "NVIDIA H100 80GB HBM3", number: int = 18
           ) -> Callable[[float], Iterator[Sample]]:  # fmt: skip
    def samples(now: float) -> Iterator[Sample]:
        yield h100(name=name)
        yield c.GPU_NVLINK_LINKS_UP(number, "0", "GPU-0")
        yield c.GPU_NVLINK_RECEIVE_BYTES_TOTAL(int(9e10 * now), "0", "GPU-0")
        yield from links

    return samples


@pytest.mark.parametrize(
    ("name", "links", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 18, 450e9),
        ("NVIDIA H100 80GB HBM3", 17, 425e9),  # one is down
        ("NVIDIA A100-SXM4-80GB", 12, 300e9),
        ("Tesla V100-SXM2-16GB", 6, 150e9),
        ("NVIDIA B200", 18, 900e9),
    ],
)
def test_nvlinks_carry_what_data_sheets_say(name: str, links: int, peak: float) -> None:
    """They give both directions together: 900 GB/s for an H100, 1.8 TB/s for a B200."""
    told = rounds(derivation(), nvlink(name=name, number=links), 100, 110)
    assert told[c.GPU_NVLINK_PEAK_BANDWIDTH_BYTES_PER_SECOND, ("0", "GPU-0")] == peak
    ratio = told[c.GPU_NVLINK_RECEIVE_UTILIZATION_RATIO, ("0", "GPU-0")]
    assert ratio == pytest.approx(9e10 / peak)


def test_what_the_driver_states_of_links_goes_before_the_table() -> None:
    links = [
        sample
        for link in ("0", "1")
        for sample in (
            c.GPU_NVLINK_LINK_UP(1, "0", "GPU-0", link),
            c.GPU_NVLINK_LINK_RATE_BYTES_PER_SECOND(26.5e9, "0", "GPU-0", link),
        )
    ]
    told = rounds(derivation(), nvlink(*links, number=2), 100, 110)
    assert told[c.GPU_NVLINK_PEAK_BANDWIDTH_BYTES_PER_SECOND, ("0", "GPU-0")] == 53e9


def test_a_board_that_no_table_knows_has_no_peak() -> None:
    told = rounds(derivation(), nvlink(name="NVIDIA Z900"), 100, 110)
    assert not told


def test_every_architecture_with_nvlink_is_one_of_the_table_of_products() -> None:
    known: Accelerators = load()
    assert set(NVLINK) <= {one.architecture for one in known.products}
