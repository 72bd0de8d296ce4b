"""Interfaces as their drivers tell of them: recorded texts, and trouble of all kinds."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.ethtool import Driver, Module
from exporter.samples import Drop, Fault, Gate, Sample
from exporter.sources.ethtool import EthtoolSource
from tests.ethtool_lab import TEXTS, Card, Drivers, card, show, values
from tests.formats.test_optics import qsfp

LANES = "mlx5-100g-bad-lane3-crc.txt"
PFC = "mlx5-roce-prio3-pfc-excerpt.txt"


def source(root: Path, drivers: Drivers, **options: object) -> EthtoolSource:
    """Return a source for the interfaces of some drivers, which `/sys` below `root` shows."""
    show(root, *drivers.cards)
    return EthtoolSource(root, drivers, **options)  # type: ignore[arg-type]


def sort(items: object) -> tuple[dict[tuple[str, ...], object], list[Fault]]:
    """Return the samples of a read, and its faults."""
    everything = list(items)  # type: ignore[call-overload]
    faults = [one for one in everything if isinstance(one, Fault)]
    return values(one for one in everything if isinstance(one, Sample)), faults


@pytest.mark.parametrize(
    "text", sorted(one.name for one in TEXTS.glob("*.txt") if "fixture" not in one.name)
)
def test_every_recorded_interface_reads_whole_and_within_its_budget(
    tmp_path: Path, text: str
) -> None:
    """Some forty series for an interface; nothing is dropped, and the next read brings the same."""
    reader = source(tmp_path, Drivers({"eth2": card(text)}))
    first, second = list(reader.read()), list(reader.read())
    told = values(first)
    assert 4 < len(told) <= 45
    assert values(second).keys() == told.keys()
    batch, drops = Gate(5000).admit([one for one in first if isinstance(one, Sample)])
    assert len(batch) == len(told)
    assert not drops


def test_the_sick_cable_is_seen(tmp_path: Path) -> None:
    """The recorded card, by the names of the catalogue."""
    told = values(source(tmp_path, Drivers({"eth2": card(LANES)})).read())
    assert told["lane_errors_total", "eth2", "", "3"] == 17_722_623
    assert told["physical_errors_total", "eth2", "", "checksum"] == 386
    assert told["fec_uncorrected_symbols_total", "eth2", ""] == 386
    assert told["ethernet_info", "eth2", "", *("mlx5_core", MLX5_FIRMWARE, "rs", "none", "fibre")]


MLX5_FIRMWARE = "22.36.1010 (MT_0000000359)"


def test_who_pauses_whom_is_told(tmp_path: Path) -> None:
    """Sent means that this host is the slow one, received that others are."""
    told = values(source(tmp_path, Drivers({"eth2": card(PFC)})).read())
    assert told["receive_pause_seconds_total", "eth2", "", "3"] == pytest.approx(0.008134)
    assert told["transmit_pause_seconds_total", "eth2", "", "3"] == pytest.approx(2.914772)
    assert told["transmit_pause_frames_total", "eth2", "", "3"] == 1_290_418
    assert told["pause_storm_events_total", "eth2", "", "error"] == 0
    assert told["receive_priority_discards_total", "eth2", "", "3", "congestion"] == 0


def test_a_priority_without_pfc_is_told_of_once_it_has_lost_something(tmp_path: Path) -> None:
    """Eight priorities at zero are no news; what was told once goes on being told."""
    drivers = Drivers({"eth2": Card({f"rx_prio{n}_discards": 0 for n in range(8)})})
    reader = source(tmp_path, drivers)

    def priorities() -> set[str]:
        told = values(reader.read())
        return {key[3] for key in told if key[0] == "receive_priority_discards_total"}

    assert priorities() == set()
    drivers.cards["eth2"].statistics["rx_prio5_discards"] = 7
    assert priorities() == {"5"}
    drivers.cards["eth2"].statistics["rx_prio5_discards"] = 0
    assert priorities() == {"5"}


def test_one_interface_in_trouble_costs_no_other(tmp_path: Path) -> None:
    """Whatever fails, and at whatever call (node_exporter 2125)."""
    for call in ("driver", "count", "names", "values"):
        for failure in (errno.EIO, errno.EPERM, errno.ETIMEDOUT):
            drivers = Drivers({"eth1": card(PFC), "eth2": card(PFC), "eth3": card(PFC)})
            drivers.cards["eth2"].fails[call] = failure
            told, faults = sort(source(tmp_path / f"{call}{failure}", drivers).read())
            assert {key[1] for key in told if key[0] != "ethernet_info"} == {"eth1", "eth3"}
            (fault,) = faults
            assert fault.part == "eth2"
            expected = {errno.EPERM: "denied", errno.ETIMEDOUT: "timeout"}.get(failure, "io")
            assert fault.reason == expected


@pytest.mark.parametrize("call", ["driver", "count", "names", "values", "link", "fec", "pause"])
def test_what_a_driver_does_not_support_is_no_failure(tmp_path: Path, call: str) -> None:
    """ENA and others answer EOPNOTSUPP to some calls (node_exporter 1908, 3200)."""
    drivers = Drivers({"eth1": card(PFC), "eth2": card(PFC)})
    drivers.cards["eth2"].fails[call] = errno.EOPNOTSUPP
    told, faults = sort(source(tmp_path, drivers).read())
    assert not faults
    assert ("receive_pause_frames_total", "eth1", "", "3") in told
    statistics = ("receive_pause_frames_total", "eth2", "", "3") in told
    assert statistics == (call not in {"count", "names", "values"})


def test_an_interface_that_left_is_no_fault_and_looked_for_again(tmp_path: Path) -> None:
    """ENODEV between two reads: its series end, and come back with it."""
    drivers = Drivers({"eth1": card(PFC), "eth2": card(PFC)})
    reader = source(tmp_path, drivers)
    values(reader.read())
    gone = drivers.cards.pop("eth2")
    assert {key[1] for key in values(reader.read()) if key[0] != "ethernet_info"} == {"eth1"}
    assert {key[1] for key in values(reader.read())} == {"eth1"}
    drivers.cards["eth2"] = gone
    for _ in range(8):
        told = values(reader.read())
    assert {key[1] for key in told} == {"eth1", "eth2"}


def test_a_changed_set_of_statistics_is_noticed_at_once(tmp_path: Path) -> None:
    """PFC is switched on: the same read tells the new counters, by their right names."""
    drivers = Drivers({"eth2": card(LANES)})
    reader = source(tmp_path, drivers)
    values(reader.read())
    asked = len(drivers.asked)
    values(reader.read())
    assert drivers.asked[asked:] == [("eth2", "module"), ("eth2", "values")][-1:]
    former = drivers.cards["eth2"].statistics
    drivers.cards["eth2"].statistics = {"rx_prio3_pause": 12, **former}
    told = values(reader.read())
    assert told["receive_pause_frames_total", "eth2", "", "3"] == 12
    assert told["lane_errors_total", "eth2", "", "3"] == 17_722_623


def test_names_that_do_not_fit_the_values_are_not_believed(tmp_path: Path) -> None:
    """A driver with fewer names than values: a fault that says so, and no wrong series."""
    drivers = Drivers({"eth1": card(PFC), "eth2": card(PFC, names=("rx_prio3_pause",))})
    told, faults = sort(source(tmp_path, drivers).read())
    assert {key[1] for key in told if key[0] != "ethernet_info"} == {"eth1"}
    assert [(one.part, one.reason, one.detail) for one in faults] == [
        ("eth2", "malformed", "Malformed: 1 names for 17 statistics")
    ]


def test_drivers_names_are_told_by_pattern_and_rings_never_by_accident(tmp_path: Path) -> None:
    """The whole name has to match; single queues only where they are asked for."""

    def counters(root: str, **options: object) -> set[str]:
        drivers = Drivers({"eth2": card(LANES)})
        told = values(source(tmp_path / root, drivers, most=999, **options).read())
        return {key[3] for key in told if key[0] == "ethtool_total"}

    short = counters("short")
    assert "rx_steer_missed_packets" in short
    assert len(short) <= 10
    everything = counters("all", counters=(".*",))
    assert "rx_cache_reuse" in everything
    assert not {name for name in everything if name.startswith(("rx0_", "ch0_", "tx0_"))}
    assert "outbound_pci_stalled_rd" not in everything  # a level, and told as one
    assert "rx_crc_errors_phy" not in everything  # has a family
    rings = counters("rings", counters=(".*",), rings=True)
    assert "ch0_poll" in rings
    assert everything < rings
    assert counters("none", counters=()) == set()
    assert counters("without", counters=("rx_xdp_.*",), without=(".*_err",)) == {
        name for name in everything if name.startswith("rx_xdp_") and not name.endswith("_err")
    }


def test_there_is_a_bound_to_what_patterns_bring_and_what_is_cut_off_is_counted(
    tmp_path: Path,
) -> None:
    """A pattern that asks for all gets the first `most` of each interface."""
    drivers = Drivers({"eth2": card(LANES)})
    reader = source(tmp_path, drivers, counters=(".*",), most=10)
    items = list(reader.read())
    raw = [one for one in items if isinstance(one, Sample) and one.metric is c.NIC_ETHTOOL_TOTAL]
    (drop,) = [one for one in items if isinstance(one, Drop)]
    assert len(raw) == 10
    assert drop.reason == "cap"
    assert drop.number > 100


def test_counters_that_differ_only_in_a_blank_stay_two(tmp_path: Path) -> None:
    """One help for all of them, and both values (node_exporter 2893)."""
    drivers = Drivers({"eth0": card("nodeexporter-fixture-eth0-statistics.txt")})
    told = values(source(tmp_path, drivers, counters=("duplicate.metric",)).read())
    assert told["ethtool_total", "eth0", "", "duplicate metric"] == 1
    assert told["ethtool_total", "eth0", "", "duplicate_metric"] == 2


def test_only_hardware_is_asked(tmp_path: Path) -> None:
    """Bonds and bridges count their members' frames again; bond0 has no statistics anyway."""
    drivers = Drivers({"eth2": card(PFC), "bond0": Card({}), "vethabc": Card({"a": 1})})
    show(tmp_path, "eth2")
    show(tmp_path, "bond0", "vethabc", hardware=False)
    values(EthtoolSource(tmp_path, drivers).read())
    assert {name for name, _ in drivers.asked} == {"eth2"}


def test_excluded_interfaces_are_not_asked(tmp_path: Path) -> None:
    """A pattern at the start of the name."""
    drivers = Drivers({"eth2": card(PFC), "storage0": card(PFC)})
    values(source(tmp_path, drivers, exclude="storage").read())
    assert {name for name, _ in drivers.asked} == {"eth2"}


def test_an_interface_of_another_network_namespace_is_never_taken_for_the_hosts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The files show the host's eth0, the calls would ask the pod's: said once, nothing told."""
    caplog.set_level("INFO")
    show(tmp_path, "eth0")
    drivers = Drivers({"eth0": card(PFC)}, foreign={"eth0"})
    reader = EthtoolSource(tmp_path, drivers, relist=1)
    assert [values(reader.read()) for _ in range(3)] == [{}, {}, {}]
    said = [one.message for one in caplog.records]
    assert len(said) == 1
    assert "not in our network namespace" in said[0]
    with pytest.raises(FileNotFoundError, match="run with the host's network"):
        list(EthtoolSource(tmp_path, drivers, required=True).read())


def test_a_machine_without_hardware_interfaces_is_no_failure_unless_one_was_demanded(
    tmp_path: Path,
) -> None:
    """A container, or no `/sys` at all."""
    assert values(EthtoolSource(tmp_path, Drivers({})).read()) == {}
    with pytest.raises(FileNotFoundError, match="no hardware interface below"):
        list(EthtoolSource(tmp_path, Drivers({}), required=True).read())


def test_modules_are_looked_at_now_and_then_and_shown_all_the_time(tmp_path: Path) -> None:
    """Four lanes of light, a temperature; the slow bus is asked once in four reads."""
    drivers = Drivers({"eth2": card(PFC, module=Module(3, qsfp()))})
    reader = source(tmp_path, drivers)
    for _ in range(4):
        told = values(reader.read())
        assert told["module_temperature_celsius", "eth2", ""] == -1.5
        assert told["module_receive_power_watts", "eth2", "", "0"] == pytest.approx(1e-3)
        assert told["module_receive_power_watts", "eth2", "", "2"] == 0
        assert told["module_transmit_power_watts", "eth2", "", "3"] == pytest.approx(1.1e-3)
    assert drivers.asked.count(("eth2", "module")) == 1
    drivers.cards["eth2"].module = None
    told = values(reader.read())
    assert not [key for key in told if key[0].startswith("module_t")]


@pytest.mark.parametrize("failure", [errno.EPERM, errno.EIO, errno.EOPNOTSUPP, errno.ENODEV])
def test_modules_that_may_not_be_read_are_missing_and_nothing_else(
    tmp_path: Path, failure: int
) -> None:
    """Without CAP_NET_ADMIN it is refused: a fault only where modules were demanded."""
    for optics, expected in ((None, 0), (False, 0), (True, failure in {errno.EPERM, errno.EIO})):
        drivers = Drivers({"eth2": card(PFC)})
        drivers.cards["eth2"].fails["module"] = failure
        told, faults = sort(source(tmp_path / str(optics), drivers, optics=optics).read())
        assert ("receive_pause_frames_total", "eth2", "", "3") in told
        assert [one.part for one in faults] == ["eth2/module"] * expected
        assert (("eth2", "module") in drivers.asked) is (optics is not False)


def test_a_driver_that_writes_nonsense_about_itself_breaks_no_label(tmp_path: Path) -> None:
    """Control characters in the firmware's text; a driver that knows nothing of itself."""
    odd = Driver("odd\x01", "", " 1.2\n", "")
    told = values(source(tmp_path, Drivers({"eth2": card(PFC, driver=odd)})).read())
    (info,) = [key for key in told if key[0] == "ethernet_info"]
    assert all(label.isprintable() for label in info)
    assert info[4] == "1.2"


def test_more_interfaces_than_anyone_has_are_cut_off_and_said(tmp_path: Path) -> None:
    """Sixty-four are asked; the rest is a fault that says so."""
    drivers = Drivers({f"eth{n:03}": Card({"rx_prio3_pause": n}) for n in range(70)})
    told, faults = sort(source(tmp_path, drivers).read())
    frames = [key for key in told if key[0] == "receive_pause_frames_total"]
    assert len(frames) == 64
    assert [one.detail for one in faults] == ["OSError: [Errno 7] only the first 64 of 70 asked"]


def test_an_interface_that_cannot_be_listed_costs_no_other(tmp_path: Path) -> None:
    reader = source(tmp_path, Drivers({"eth0": Card({"rx_prio3_pause": 7})}))
    (tmp_path / "sys/class/net/eth1").symlink_to("eth1")
    told, faults = sort(reader.read())
    assert told["receive_pause_frames_total", "eth0", "", "3"] == 7
    assert [(one.part, one.reason) for one in faults] == [("eth1", "io")]


def test_many_interfaces_are_not_looked_up_at_each_read(tmp_path: Path) -> None:
    """That there are too many does not go away by looking again."""
    drivers = Drivers({f"eth{n:03}": Card({"rx_prio3_pause": n}) for n in range(70)})
    reader = source(tmp_path, drivers)
    list(reader.read())
    drivers.asked.clear()
    _, faults = sort(reader.read())
    assert len(faults) == 1
    assert {call for _, call in drivers.asked} <= {"values", "module"}


def test_virtual_functions_take_no_place_of_a_card(tmp_path: Path) -> None:
    """They come first by name: 70 of `ens1f0` and then the port of the second card."""
    functions = [f"ens1f0v{n}" for n in range(70)]
    drivers = Drivers({n: Card({"rx_prio3_pause": 1}) for n in (*functions, "ens2f0np0")})
    reader = source(tmp_path, drivers)
    (tmp_path / "virtual").mkdir()
    (tmp_path / "virtual/physfn").symlink_to("../0000:3b:00.0")
    for name in functions:
        device = tmp_path / "sys/class/net" / name / "device"
        device.unlink()
        device.symlink_to(tmp_path / "virtual")
    told, _ = sort(reader.read())
    frames = [key[1] for key in told if key[0] == "receive_pause_frames_total"]
    assert len(frames) == 64
    assert "ens2f0np0" in frames


@pytest.mark.usefixtures("machine_network")
def test_the_real_door_reads_this_machine(tmp_path: Path) -> None:
    """No stand-in: this machine's hardware interfaces, by their own drivers."""
    reader = EthtoolSource(counters=(".*",), rings=True, most=4096)
    told, faults = sort(reader.read())
    reader.close()
    assert not faults
    hardware = [one.name for one in Path("/sys/class/net").glob("*") if (one / "device").exists()]
    if not hardware:
        pytest.skip("no hardware interface on this machine")
    assert {key[1] for key in told if key[0] == "ethernet_info"} <= set(hardware)
    assert told
