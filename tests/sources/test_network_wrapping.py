"""Counters of 32 bits that begin again at 0: what is told of them does not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.samples import Fault, Remembered
from exporter.sources.network import NetworkSource
from exporter.sources.network.wrapping import Laps
from tests.sources.network_lab import CLASS, TREES, port_of, read, sort, tree, values

LAP = 2**32
HW = f"{port_of('mlx5_0')}/hw_counters"
SERIES = ("nic_timeouts_total", "mlx5_0", "1")
RAW = ("nic_raw_total", "mlx5_0", "1", "local_ack_timeout_err", "hw_counters")


@given(st.lists(st.integers(0, LAP // 2 - 1), max_size=60))
def test_laps_add_up_to_what_was_counted(steps: list[int]) -> None:
    """Whatever is counted in steps of less than half a lap comes out whole."""
    laps, true = Laps(), 0
    for step in steps:
        true += step
        assert laps.unwrap("a", true % LAP) == true


def test_the_published_wrap_between_two_reads(tmp_path: Path) -> None:
    """From 4,294,967,000 to 512: 808 more, where Prometheus would see a reset."""
    shutil.copytree(TREES / "derived-qcounter-wrap/t0", tmp_path, dirs_exist_ok=True)
    source = NetworkSource(tmp_path, raw=True)
    key = ("nic_raw_total", "mlx5_0", "1", "rx_write_requests", "hw_counters")
    before = values(source.read())[key]
    shutil.copytree(TREES / "derived-qcounter-wrap/t1", tmp_path, dirs_exist_ok=True)
    after = values(source.read())[key]
    source.close()
    assert (before, after) == (4294967000, 4294967000 + 808)


def test_it_goes_on_lap_after_lap(tmp_path: Path) -> None:
    """A canonical counter and its raw one, over three laps."""
    seen = []
    tree(tmp_path, {f"{HW}/local_ack_timeout_err": "0"})
    source = NetworkSource(tmp_path, raw=True)
    for true in range(0, 3 * LAP, LAP // 3):
        (tmp_path / HW / "local_ack_timeout_err").write_text(f"{true % LAP}\n")
        found = values(source.read())
        assert found[SERIES] == found[RAW]
        seen.append(found[SERIES] == true)
    source.close()
    assert all(seen)


def test_a_driver_that_was_loaded_anew_is_a_reset(tmp_path: Path) -> None:
    """A device made anew counts from 0, also where the step back looks like a wrap."""
    tree(tmp_path, {f"{HW}/local_ack_timeout_err": "4294967000"})
    source = NetworkSource(tmp_path, relist=1000)
    assert values(source.read())[SERIES] == 4294967000
    (tmp_path / HW / "local_ack_timeout_err").write_text("100\n")
    assert values(source.read())[SERIES] == LAP + 100
    old = tmp_path / "old"  # kept, so that its number is not given again
    (tmp_path / CLASS / "mlx5_0").rename(old)
    tree(tmp_path, {f"{HW}/local_ack_timeout_err": "50"})
    assert values(source.read())[SERIES] == 50
    source.close()


def test_a_step_back_of_more_than_half_a_lap_is_a_reset(tmp_path: Path) -> None:
    """A counter that an operator cleared has not run through a lap."""
    tree(tmp_path, {f"{HW}/local_ack_timeout_err": "1000000"})
    source = NetworkSource(tmp_path)
    list(source.read())
    (tmp_path / HW / "local_ack_timeout_err").write_text("3\n")
    assert values(source.read())[SERIES] == 3
    source.close()


@pytest.mark.parametrize("name", ["np_cnp_sent", "rx_icrc_encapsulated"])
def test_counters_of_64_bits_do_not_wrap(tmp_path: Path, name: str) -> None:
    """A step back from near 32 bits is a reset for these."""
    tree(tmp_path, {f"{HW}/{name}": "4294967000"})
    source = NetworkSource(tmp_path, raw=True)
    list(source.read())
    (tmp_path / HW / name).write_text("5\n")
    found = values(source.read())
    source.close()
    assert found["nic_raw_total", "mlx5_0", "1", name, "hw_counters"] == 5


def test_counters_of_a_port_stop_and_do_not_wrap(tmp_path: Path) -> None:
    """`port_xmit_wait` from its top to 4: an operator has cleared it."""
    file = f"{port_of('mlx5_0')}/counters/port_xmit_wait"
    tree(tmp_path, {file: str(LAP - 1)})
    source = NetworkSource(tmp_path)
    found = values(source.read())
    assert found["nic_saturated", "mlx5_0", "1", "port_xmit_wait"] == 1
    (tmp_path / file).write_text("4\n")
    found = values(source.read())
    source.close()
    assert found["nic_transmit_wait_ticks_total", "mlx5_0", "1"] == 4
    assert not any(key[0] == "nic_saturated" for key in found)


def test_laps_outlive_a_reload(tmp_path: Path) -> None:
    """A successor goes on with the laps, and with a wrap that came in between; what is remembered
    may have gone through a file."""
    memories: dict[str, object] = {}
    tree(tmp_path, {f"{HW}/local_ack_timeout_err": "4294967000"})
    source = NetworkSource(tmp_path, memories=memories)
    list(source.read())
    for true in (LAP + 7, 2 * LAP - 9):
        (tmp_path / HW / "local_ack_timeout_err").write_text(f"{true % LAP}\n")
        list(source.read())
    source.close()
    (tmp_path / HW / "local_ack_timeout_err").write_text("20\n")
    left = memories["network"]
    assert isinstance(left, Remembered)
    memories["network"] = left._replace(plain=json.loads(json.dumps(left.plain)))
    successor = NetworkSource(tmp_path, memories=memories)
    assert values(successor.read())[SERIES] == 2 * LAP + 20
    successor.close()


def test_a_first_wrap_that_came_between_two_daemons_is_one(tmp_path: Path) -> None:
    """It was taken for a reset where no lap had been run through before."""
    memories: dict[str, object] = {}
    tree(tmp_path, {f"{HW}/local_ack_timeout_err": "4294967000"})
    source = NetworkSource(tmp_path, memories=memories)
    assert values(source.read())[SERIES] == 4294967000
    source.close()
    (tmp_path / HW / "local_ack_timeout_err").write_text("20\n")
    successor = NetworkSource(tmp_path, memories=memories)
    assert values(successor.read())[SERIES] == LAP + 20
    successor.close()


class Silent:
    """A crew whose readers of devices never come back."""

    def run(self, jobs: dict[str, Callable[[], Any]], seconds: float) -> dict[str, Any]:
        """Do what is no device's."""
        late = TimeoutError(f"not back after {seconds} s")
        return {name: late if name.startswith("rdma ") else job() for name, job in jobs.items()}

    def away(self) -> dict[str, float]:
        """Return nobody."""
        return {}

    def dismiss(self) -> None:
        """Do nothing."""


def test_laps_outlive_a_restart_while_the_device_does_not_answer(tmp_path: Path) -> None:
    """Firmware that hung when the daemon ended: what is on the page later has not fallen."""
    memories: dict[str, object] = {}
    tree(tmp_path, {f"{HW}/local_ack_timeout_err": "4294967000"})
    source = NetworkSource(tmp_path, memories=memories)
    list(source.read())
    (tmp_path / HW / "local_ack_timeout_err").write_text("7\n")
    list(source.read())
    source.close()
    for _ in range(2):
        hung = NetworkSource(tmp_path, memories=memories, crew=Silent())
        found, faults = sort(hung.read())
        assert SERIES not in found
        assert [f.reason for f in faults] == ["timeout"]
        hung.close()
    (tmp_path / HW / "local_ack_timeout_err").write_text("20\n")
    successor = NetworkSource(tmp_path, memories=memories)
    assert values(successor.read())[SERIES] == LAP + 20
    successor.close()


@pytest.mark.parametrize(
    "plain",
    [
        None, 5, {}, {"boot": ""}, {"boot": "", "ports": 3, "laps": {}},
        {"boot": "", "ports": {"devices": 1}, "laps": []},
    ],
)  # fmt: skip
def test_a_memory_that_makes_no_sense_is_told_and_costs_nothing(plain: object) -> None:
    """A state file of another version, or one that somebody has edited."""
    memories: dict[str, object] = {"network": Remembered(plain, 0.0)}
    items = list(NetworkSource(TREES / "derived-port-down", memories=memories).read())
    faults = [item for item in items if isinstance(item, Fault)]
    assert [(f.part, f.reason) for f in faults] == [("memory", "malformed")]
    whole = read(TREES / "derived-port-down")
    assert len(items) == len(whole) + 1
