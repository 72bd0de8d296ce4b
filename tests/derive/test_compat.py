"""What other exporters would say, in their names, labels, types and units."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter import catalogue as c
from exporter import foreign as f
from exporter.derive import Memory
from exporter.derive.compat import derivations, reference
from exporter.fetch import Response
from exporter.samples import Batch, Gate, Health, Sample, SourceView, State, View
from exporter.sources.dcgm_page import DcgmPageSource
from tests.dashboard_queries import expressions, names
from tests.test_exposition import Rig

DATA = Path(__file__).parent.parent / "data"
UUID, BARE = "GPU-7B1C9F2A-0001-4B1C-9F2A-7B1C9F2A0001", "7b1c9f2a-0001-4b1c-9f2a-7b1c9f2a0001"
GIVEN: list[list[Any]] = yaml.safe_load((DATA / "compat" / "given.yaml").read_text("utf-8"))
SAID: dict[str, list[list[Any]]] = yaml.safe_load(
    (DATA / "compat" / "said.yaml").read_text("utf-8")
)
START = 1000.0


def info(gpu: str = "0", uuid: str = UUID, **other: str) -> Sample:
    """Return what a GPU says it is."""
    told = {
        "gpu": gpu, "uuid": uuid, "name": "NVIDIA H100 80GB HBM3",
        "pci_bus_id": f"00000000:{24 + int(gpu):02x}:00.0", "pci_device_id": "2330",
        "serial": "1650923000001", "architecture": "hopper", "compute_capability": "9.0",
        "cuda_cores": "16896", "vbios_version": "96.00.a5.00.01", "driver_version": "590.48.01",
        "virtualization": "none",
    } | other  # fmt: skip
    return c.GPU_INFO(1, *(told[name] for name in c.GPU_INFO.labels))


def given(gpu: str = "0", uuid: str = UUID, *, later: bool = False) -> list[Sample]:
    """Return everything that one GPU tells, XIDs included."""
    rows = [(c.FAMILIES[family], labels, values) for family, labels, *values in GIVEN]
    return [
        info(gpu, uuid),
        *(
            metric(values[-1 if later else 0], gpu, uuid, *labels)
            for metric, labels, values in rows
        ),
        c.GPU_XID_INFO(1, "31", "GPU memory page fault", "warning", "restart_app"),
        c.GPU_XID_INFO(1, "145", "NVLink error", "critical", "reset_gpu"),
        c.GPU_DRIVER_INFO(1, "590.48.01", "13.590.48.01", "13.1"),
    ]


class Node:
    """A board on which one source reads GPUs, and the derivations of it."""

    def __init__(self, *sets: str, hostname: str = "node7") -> None:
        self.derivations = derivations(sets, hostname)
        self.memories = [Memory() for _ in sets]
        self.gates: dict[str, Gate] = {}
        self.state: State = "up"
        self.health = Health(last_success=1764412346.5, last_duration=0.25)

    def batch(self, samples: Iterable[Sample], source: str = "nvml") -> Batch:
        gate = self.gates.setdefault(source, Gate(100_000))
        batch, drops = gate.admit(list(samples))
        assert not drops
        return batch

    def tell(
        self, *sources: Iterable[Sample], now: float = START, age: float = 0.25
    ) -> list[Sample]:
        """Return what is said when each source has read these samples."""
        named = [("nvml" if i == 0 else f"s{i}", samples) for i, samples in enumerate(sources)]
        view = View(
            tuple(
                SourceView(
                    name, c.GPU, self.state, self.health, batch=self.batch(some, name), age=age
                )
                for name, some in named
            ),
            (),
        )
        told: list[Sample] = []
        for derivation, memory in zip(self.derivations, self.memories, strict=True):
            memory.begin(now)
            told += derivation.function(view, memory, now)
        return told


def by_name(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """Return samples by family; no series is there twice."""
    found: dict[str, list[Sample]] = {}
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for sample in samples:
        key = (sample.metric.name, sample.labels)
        assert key not in seen, key
        seen.add(key)
        found.setdefault(sample.metric.name, []).append(sample)
    return found


def labels_of(sample: Sample) -> dict[str, str]:
    """Return the labels of a sample that are not empty: to Prometheus an empty one is none."""
    pairs = zip(sample.metric.labels, sample.labels, strict=True)
    return {name: value for name, value in pairs if value}


def told_after_two_seconds(*sets: str, **options: Any) -> dict[str, list[Sample]]:
    """Return what is said of one complete GPU at its second reading."""
    node = Node(*sets, **options)
    node.tell(given())
    return by_name(node.tell(given(later=True), now=START + 2))


# ---------------------------------------------------------------- units, types, names


@pytest.mark.parametrize(
    ("exporter", "row"), [(name, row) for name, rows in SAID.items() for row in rows]
)
def test_a_family_has_their_value_type_and_unit(
    exporter: str, row: list[Any], cache: dict[str, dict[str, list[Sample]]]
) -> None:
    """What we give and what they would say are stated by hand, in two files of data."""
    family, kind, unit, said = row
    told = cache.setdefault(exporter, {}) or told_after_two_seconds(exporter)
    cache[exporter] = told

    (sample,) = told[family]

    assert (sample.metric.kind, sample.metric.unit) == (kind, unit)
    assert sample.value == pytest.approx(said, rel=1e-12)


@pytest.fixture(scope="module")
def cache() -> dict[str, dict[str, list[Sample]]]:
    """Return what was told, by set: each test of a line of data needs the same."""
    return {}


OTHER = {
    "dcgm": {"DCGM_FI_DEV_XID_ERRORS"},
    "dcgm-4.9": {"DCGM_FI_DEV_XID_ERROR"},
    "nvidia_smi": {
        name for name, metric in f.NVIDIA_SMI.items() if metric.labels != ("uuid",)
    },
}  # fmt: skip
"""Families with labels of their own; each has a test further down."""


@pytest.mark.parametrize("exporter", f.SETS)
def test_every_family_is_stated(exporter: str) -> None:
    """No family of a set is without a line of data, but those that have a test of their own."""
    assert {row[0] for row in SAID[exporter]} == set(f.SETS[exporter]) - OTHER[exporter]


@pytest.mark.parametrize("exporter", f.SETS)
def test_everything_is_told_of_a_complete_gpu(exporter: str) -> None:
    """But for instances, which a GPU that is not split has none of; and nothing else is told."""
    told = told_after_two_seconds(exporter)
    expected = {name for name in f.SETS[exporter] if "_mig_" not in name or "_mode_" in name}
    assert set(told) == expected


@pytest.mark.parametrize("exporter", f.SETS)
def test_a_derivation_says_what_it_reads_and_makes(exporter: str) -> None:
    """Inputs are rows of the catalogue, outputs the families of the set, in their own group."""
    (derivation,) = derivations([exporter], "node7")

    assert derivation.name == f"compat:{exporter}"
    assert derivation.group == f.COMPAT
    assert set(derivation.outputs) == set(f.SETS[exporter].values())
    assert all(c.FAMILIES[metric.name] is metric for metric in derivation.inputs)
    assert {metric.group for metric in derivation.outputs} == {f.COMPAT}


@pytest.mark.parametrize("exporter", f.SETS)
def test_an_empty_board_gives_nothing(exporter: str) -> None:
    """No input, no output: also no zero, and no health of a reader that is not there."""
    (derivation,) = derivations([exporter], "node7")
    assert list(derivation.function(View((), ()), Memory(), START)) == []


@pytest.mark.parametrize("exporter", f.SETS)
def test_what_a_gpu_does_not_tell_is_absent(exporter: str) -> None:
    """Each series of ours, left out alone, takes with it what is made of it and nothing else."""
    everything = set(told_after_two_seconds(exporter))
    for left_out in {sample.metric for sample in given()} - {c.GPU_INFO, c.GPU_XID_INFO}:
        node = Node(exporter)
        node.tell(s for s in given() if s.metric is not left_out)
        told = by_name(
            node.tell((s for s in given(later=True) if s.metric is not left_out), now=START + 2)
        )
        (derivation,) = node.derivations
        lost = everything - set(told)
        assert bool(lost) == (left_out in derivation.inputs) or left_out in FALLBACKS, left_out


FALLBACKS = {c.GPU_DRIVER_INFO, c.GPU_PROCESS_SM_RATIO, c.GPU_XID_LAST_TIMESTAMP_SECONDS,
             c.GPU_XID_ERRORS_TOTAL}  # fmt: skip
"""Without these something is said less well, or not of every error, but no family is gone."""


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_a_number_is_not_told(value: float) -> None:
    """A reading without a value is no reading, and does not cost the others theirs."""
    node = Node("dcgm")
    told = by_name(
        node.tell(
            [
                info(),
                c.GPU_UTILIZATION_RATIO(value, "0", UUID),
                c.GPU_MEMORY_BUSY_RATIO(0.5, "0", UUID),
            ]
        )
    )
    assert set(told) == {"DCGM_FI_DEV_MEM_COPY_UTIL"}


def test_zero_is_a_reading() -> None:
    """An idle GPU is at 0 percent; it is not absent."""
    node = Node("dcgm", "nvidia_smi")
    told = by_name(node.tell([info(), c.GPU_UTILIZATION_RATIO(0.0, "0", UUID)]))
    assert told["DCGM_FI_DEV_GPU_UTIL"][0].value == 0
    assert told["nvidia_smi_utilization_gpu_ratio"][0].value == 0


def test_an_unknown_set_is_refused() -> None:
    """A typing error in the configuration is no empty page."""
    with pytest.raises(ValueError, match="'dcmg' is none of dcgm, "):
        derivations(["dcmg"], "node7")


# ---------------------------------------------------------------- labels


def test_the_labels_are_those_of_dcgm_exporter() -> None:
    """Index, UUID, address, device, model, host and driver, spelled as there."""
    (sample,) = told_after_two_seconds("dcgm")["DCGM_FI_DEV_GPU_TEMP"]
    assert labels_of(sample) == {
        "gpu": "0", "UUID": UUID, "pci_bus_id": "00000000:18:00.0", "device": "nvidia0",
        "modelName": "NVIDIA H100 80GB HBM3", "Hostname": "node7",
        "DCGM_FI_DRIVER_VERSION": "590.48.01",
    }  # fmt: skip


def test_the_labels_are_those_of_dcgm_exporter_4_9() -> None:
    """The host in small letters, the driver's version under its new name."""
    told = told_after_two_seconds("dcgm-4.9")
    for family in ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", "DCGM_FI_PROF_PCIE_TX_BYTES"):
        (sample,) = told[family]
        assert labels_of(sample) == {
            "gpu": "0", "UUID": UUID, "pci_bus_id": "00000000:18:00.0", "device": "nvidia0",
            "modelName": "NVIDIA H100 80GB HBM3", "hostname": "node7",
            "DCGM_FI_SYSTEM_DRIVER_VERSION": "590.48.01",
        }  # fmt: skip


def test_letters_of_a_pci_address_are_capitals() -> None:
    """As DCGM and nvidia-smi write them; ours are small."""
    node = Node("dcgm", "nvidia_smi")
    told = by_name(
        node.tell([info(pci_bus_id="00000000:af:00.0"), c.GPU_UTILIZATION_RATIO(1, "0", UUID)])
    )
    assert labels_of(told["DCGM_FI_DEV_GPU_UTIL"][0])["pci_bus_id"] == "00000000:AF:00.0"
    assert labels_of(told["nvidia_smi_gpu_info"][0])["pci_bus_id"] == "00000000:AF:00.0"


def test_names_that_both_sets_of_dcgm_have_are_told_once() -> None:
    """With the labels of both, so that queries for either find them."""
    told = told_after_two_seconds("dcgm", "dcgm-4.9", "nvidia_smi")
    both = set(f.DCGM) & set(f.DCGM_49)
    assert len(both) == 7
    for family in both:
        (sample,) = told[family]
        labels = labels_of(sample)
        assert labels["Hostname"] == labels["hostname"] == "node7"
        assert labels["DCGM_FI_DRIVER_VERSION"] == labels["DCGM_FI_SYSTEM_DRIVER_VERSION"]
    assert "hostname" not in labels_of(told["DCGM_FI_DEV_GPU_TEMP"][0])


def test_a_name_means_one_family() -> None:
    """Two families of one name would be two heads on a page, which no scraper reads."""
    rows = {metric for families in f.SETS.values() for metric in families.values()}
    assert len({metric.name for metric in rows}) == len(rows)
    assert not {metric.name for metric in rows} & set(c.FAMILIES)


@pytest.mark.parametrize(
    ("old", "new", "factor"),
    [
        ("DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_SM_CLOCK_HERTZ", 1e6),
        ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS", 1),
        ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_BOARD_POWER_WATTS", 1),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 1e-3),
        ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO", 0.01),
        ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED_BYTES", 1 << 20),
        ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO", 1),
        ("DCGM_FI_DEV_GPU_UTIL", "nvidia_smi_utilization_gpu_ratio", 0.01),
    ],
)
def test_36_a_rename_breaks_no_dashboard(old: str, new: str, factor: float) -> None:
    """The old name and the new one are told side by side, each with its own unit and spelling of
    the host (dcgm-exporter 655, nvidia_gpu_exporter 123)."""
    told = told_after_two_seconds("dcgm", "dcgm-4.9", "nvidia_smi")
    (before,), (after,) = told[old], told[new]
    # 1e-4: memory in MiB is rounded, as there
    assert after.value == pytest.approx(before.value * factor, rel=1e-4)  # type: ignore[operator]
    assert labels_of(before)["Hostname"] == "node7"
    assert labels_of(after).get("hostname", "node7") == "node7"


def test_46_two_boards_with_one_uuid_are_no_twins() -> None:
    """Series that have the UUID for their only label would be on the page twice, and no scraper
    reads that: the first board keeps them (node_exporter 2083 and 2185)."""
    rig = Rig()
    node = Node("nvidia_smi", "dcgm")
    rig.publish(
        node.tell(
            [
                sample
                for gpu in "01"
                for sample in (info(gpu), c.GPU_UTILIZATION_RATIO(0.5, gpu, UUID))
            ]
        )
    )
    text = rig.exposition.page((None, False, False)).decode()
    assert text.count("\nnvidia_smi_utilization_gpu_ratio{") == 1
    assert text.count("\nDCGM_FI_DEV_GPU_UTIL{") == 2


def test_identity_of_nvidia_gpu_exporter_is_on_gpu_info() -> None:
    """The other series have the UUID only, in small letters and without `GPU-`."""
    told = told_after_two_seconds("nvidia_smi")
    (sample,) = told["nvidia_smi_gpu_info"]
    assert sample.value == 1
    assert labels_of(sample) == {
        "uuid": BARE, "name": "NVIDIA H100 80GB HBM3", "driver_model_current": "[N/A]",
        "driver_model_pending": "[N/A]", "vbios_version": "96.00.a5.00.01",
        "driver_version": "590.48.01", "pci_bus_id": "00000000:18:00.0",
        "serial": "1650923000001", "compute_cap": "9.0", "index": "0", "cuda_version": "13.1",
    }  # fmt: skip
    assert sample.metric.labels == (
        "uuid", "name", "driver_model_current", "driver_model_pending", "vbios_version",
        "driver_version", "pci_bus_id", "serial", "compute_cap", "pci_sub_device_id", "index",
        "cuda_version",
    )  # fmt: skip
    assert labels_of(told["nvidia_smi_utilization_gpu_ratio"][0]) == {"uuid": BARE}


# ---------------------------------------------------------------- instances


def split() -> list[Sample]:
    """Return what a GPU tells that is split into two instances, one of which is shared."""
    gpu = ("0", UUID)
    return [
        info(),
        c.GPU_MIG_MODE(1, *gpu),
        c.GPU_MIG_INFO(1, *gpu, "2", "0", "MIG-AA-1", "1c.3g.71gb"),
        c.GPU_MIG_INFO(1, *gpu, "2", "1", "MIG-AA-2", "1c.3g.71gb"),
        c.GPU_MIG_INFO(1, *gpu, "7", "0", "MIG-AA-3", "1g.18gb"),
        c.GPU_MEMORY_TOTAL_BYTES(150 << 30, *gpu),
        c.GPU_MEMORY_USED_BYTES(40 << 30, *gpu),
        c.GPU_MEMORY_FREE_BYTES(110 << 30, *gpu),
        c.GPU_SM_ACTIVE_RATIO(0.4, *gpu),
        c.GPU_POWER_WATTS(500.5, *gpu, "average"),
        *(
            metric(value, *gpu, mig)
            for mig, some in (("2", (71 << 30, 30 << 30, 0.9, 0.8, 0.7, 0.6, 0.5)),
                              ("7", (18 << 30, 9 << 30, 0.09, 0.08, 0.07, 0.06, 0.05)))
            for metric, value in zip(
                (c.GPU_MIG_MEMORY_TOTAL_BYTES, c.GPU_MIG_MEMORY_USED_BYTES,
                 c.GPU_MIG_GRAPHICS_ACTIVE_RATIO, c.GPU_MIG_SM_ACTIVE_RATIO,
                 c.GPU_MIG_SM_OCCUPANCY_RATIO, c.GPU_MIG_TENSOR_ACTIVE_RATIO,
                 c.GPU_MIG_DRAM_ACTIVE_RATIO), some, strict=True,
            )
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "values"),
    [
        ("DCGM_FI_DEV_FB_TOTAL", [71 << 10, 18 << 10]),
        ("DCGM_FI_DEV_FB_USED", [30 << 10, 9 << 10]),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", [0.9, 0.09]),
        ("DCGM_FI_PROF_SM_ACTIVE", [0.8, 0.08]),
        ("DCGM_FI_PROF_SM_OCCUPANCY", [0.7, 0.07]),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", [0.6, 0.06]),
        ("DCGM_FI_PROF_DRAM_ACTIVE", [0.5, 0.05]),
    ],
)
def test_instances_have_rows_instead_of_their_gpu(family: str, values: list[float]) -> None:
    """A sum over all rows counts nothing twice; profile and number stand on each."""
    told = by_name(Node("dcgm").tell(split()))[family]
    assert [sample.value for sample in told] == values
    assert [
        (labels_of(s)["GPU_I_ID"], labels_of(s)["GPU_I_PROFILE"], labels_of(s)["UUID"])
        for s in told
    ] == [("2", "3g.71gb", UUID), ("7", "1g.18gb", UUID)]


def test_what_is_not_measured_by_instance_has_one_row_for_the_gpu() -> None:
    """dcgm-exporter repeats such values for each instance, so that sums are too high."""
    (power,) = by_name(Node("dcgm").tell(split()))["DCGM_FI_DEV_POWER_USAGE"]
    assert power.value == 500.5
    assert "GPU_I_ID" not in labels_of(power)


def test_instances_have_families_of_their_own_in_nvidia_gpu_exporter() -> None:
    """Named by GPU and number; a device's UUID without `MIG-`, its profile as it is."""
    told = by_name(Node("nvidia_smi").tell(split()))
    assert [labels_of(s) for s in told["nvidia_smi_mig_info"]] == [
        {"uuid": BARE, "mig_uuid": "aa-1", "gpu_instance_id": "2", "compute_instance_id": "0",
         "profile": "1c.3g.71gb"},
        {"uuid": BARE, "mig_uuid": "aa-2", "gpu_instance_id": "2", "compute_instance_id": "1",
         "profile": "1c.3g.71gb"},
        {"uuid": BARE, "mig_uuid": "aa-3", "gpu_instance_id": "7", "compute_instance_id": "0",
         "profile": "1g.18gb"},
    ]  # fmt: skip
    for family, values in (
        ("memory_total_bytes", [71 << 30, 18 << 30]),
        ("memory_used_bytes", [30 << 30, 9 << 30]),
        ("graphics_activity_ratio", [0.9, 0.09]),
        ("sm_activity_ratio", [0.8, 0.08]),
        ("sm_occupancy_ratio", [0.7, 0.07]),
        ("tensor_activity_ratio", [0.6, 0.06]),
    ):
        some = told[f"nvidia_smi_mig_{family}"]
        assert [s.value for s in some] == values
        assert [labels_of(s) for s in some] == [
            {"uuid": BARE, "gpu_instance_id": "2"}, {"uuid": BARE, "gpu_instance_id": "7"},
        ]  # fmt: skip
    assert [s.value for s in told["nvidia_smi_memory_used_bytes"]] == [40 << 30]


def test_a_changed_layout_is_followed_at_once() -> None:
    """The rows of instances that are gone are gone too."""
    node = Node("dcgm")
    node.tell(split())
    told = by_name(node.tell(given(), now=START + 1))
    assert [labels_of(s).get("GPU_I_ID") for s in told["DCGM_FI_PROF_SM_ACTIVE"]] == [None]


# ---------------------------------------------------------------- XIDs


def test_the_last_xid_is_a_value_with_its_meaning() -> None:
    """The code that was seen last, not the highest one, with number and text as labels."""
    for exporter, family in (
        ("dcgm", "DCGM_FI_DEV_XID_ERRORS"),
        ("dcgm-4.9", "DCGM_FI_DEV_XID_ERROR"),
    ):
        (sample,) = told_after_two_seconds(exporter)[family]
        assert (sample.value, sample.metric.kind) == (31, "gauge")
        labels = labels_of(sample)
        assert (labels["err_code"], labels["err_msg"]) == ("31", "GPU memory page fault")
        assert (labels["UUID"], labels["device"]) == (UUID, "nvidia0")


def test_no_xid_is_told_apart_from_not_knowing() -> None:
    """Codes that are watched and never came: 0. Nobody watches: no row (dcgm-exporter 700)."""
    watched = c.GPU_XID_ERRORS_TOTAL(0, "0", UUID, "00000000:18:00.0", "79", "critical")
    (sample,) = by_name(Node("dcgm").tell([info(), watched]))["DCGM_FI_DEV_XID_ERRORS"]
    assert sample.value == 0
    assert labels_of(sample)["err_msg"] == "No Error"
    assert by_name(Node("dcgm").tell([info()])) == {}


def test_a_newer_xid_takes_the_place_of_the_last() -> None:
    """One row for each GPU, whose labels change with its value."""
    at = ("0", UUID, "00000000:18:00.0")
    old = [info(), c.GPU_XID_LAST_TIMESTAMP_SECONDS(100, *at, "63")]
    node = Node("dcgm")
    (first,) = by_name(node.tell(old))["DCGM_FI_DEV_XID_ERRORS"]
    new = [*old, c.GPU_XID_LAST_TIMESTAMP_SECONDS(101, *at, "13")]
    (second,) = by_name(node.tell(new, now=START + 1))["DCGM_FI_DEV_XID_ERRORS"]
    again = [*old, c.GPU_XID_LAST_TIMESTAMP_SECONDS(99, *at, "13")]
    (third,) = by_name(node.tell(again, now=START + 2))["DCGM_FI_DEV_XID_ERRORS"]
    assert [first.value, second.value, third.value] == [63, 13, 63]
    assert labels_of(second)["err_msg"] == "Unknown Error"


def test_the_xid_of_a_lost_gpu_keeps_its_name() -> None:
    """A GPU that is off the bus no longer says what it is; its XID needs that most."""
    xid = c.GPU_XID_LAST_TIMESTAMP_SECONDS(100, "0", UUID, "00000000:18:00.0", "79")
    node = Node("dcgm")
    node.tell([info(), xid])
    told = by_name(node.tell([xid], now=START + 1))
    (sample,) = told["DCGM_FI_DEV_XID_ERRORS"]
    assert labels_of(sample)["modelName"] == "NVIDIA H100 80GB HBM3"


def test_xids_are_counted_by_code_in_nvidia_gpu_exporter() -> None:
    """Severities are added up; a code that never came has no series there."""
    told = told_after_two_seconds("nvidia_smi")
    counts = {labels_of(s)["xid"]: s.value for s in told["nvidia_smi_xid_errors_total"]}
    lasts = {labels_of(s)["xid"]: s.value for s in told["nvidia_smi_xid_last_timestamp_seconds"]}
    assert counts == {"31": 3, "145": 7}
    assert lasts == {"31": 1764412345.5, "145": 1764412300.25}
    assert f.NVIDIA_SMI["nvidia_smi_xid_errors_total"].kind == "counter"


def test_an_xid_of_nobody_is_counted_as_unknown() -> None:
    """An address at which no GPU is known; dcgm-exporter would have no row to put it in."""
    some = [
        c.GPU_XID_ERRORS_TOTAL(1, "", "", f"00000000:{bus}:00.0", "79", "critical")
        for bus in ("3b", "5e")
    ]
    told = by_name(Node("dcgm", "nvidia_smi").tell([info(), *some]))
    (sample,) = told["nvidia_smi_xid_errors_total"]
    assert (sample.value, labels_of(sample)) == (2, {"uuid": "unknown", "xid": "79"})
    assert "DCGM_FI_DEV_XID_ERRORS" not in told


# ---------------------------------------------------------------- processes, health


def test_processes_have_an_info_and_their_memory() -> None:
    """Also one whose memory is not told has the info; the dashboards fall back to it."""
    samples = [
        info(),
        c.GPU_PROCESSES(2, "0", UUID),
        c.GPU_PROCESS_MEMORY_BYTES(5 << 30, "0", UUID, "", "10309", "gpu_burn"),
        c.GPU_PROCESS_SM_RATIO(0.5, "0", UUID, "10291", "memhog"),
    ]
    told = by_name(Node("nvidia_smi").tell(samples))
    assert [labels_of(s) for s in told["nvidia_smi_compute_app_info"]] == [
        {"uuid": BARE, "pid": "10309", "process_name": "gpu_burn"},
        {"uuid": BARE, "pid": "10291", "process_name": "memhog"},
    ]
    (memory,) = told["nvidia_smi_compute_app_used_memory_bytes"]
    assert memory.value == 5 << 30
    assert told["nvidia_smi_compute_apps"][0].value == 2


def test_a_process_in_two_instances_is_one_process() -> None:
    """Its memory is added up: by the labels there are, two rows would be the same series."""
    samples = [
        info(),
        c.GPU_PROCESS_MEMORY_BYTES(1 << 30, "0", UUID, "1", "77", "train"),
        c.GPU_PROCESS_MEMORY_BYTES(2 << 30, "0", UUID, "2", "77", "train"),
    ]
    told = by_name(Node("nvidia_smi").tell(samples))
    assert [s.value for s in told["nvidia_smi_compute_app_used_memory_bytes"]] == [3 << 30]
    assert len(told["nvidia_smi_compute_app_info"]) == 1


@pytest.mark.parametrize(("listed", "said"), [((), None), (("0",), 0), (("0", "1"), 1)])
def test_listing_processes_succeeds_for_all_gpus_or_not(
    listed: tuple[str, ...], said: int | None
) -> None:
    """Absent where nobody lists them, 0 where a GPU is missing from the list."""
    gpus = {"0": "GPU-A", "1": "GPU-B"}
    samples = [
        *(info(gpu, uuid) for gpu, uuid in gpus.items()),
        *(c.GPU_PROCESSES(0, gpu, gpus[gpu]) for gpu in listed),
    ]
    told = by_name(Node("nvidia_smi").tell(samples))
    found = told.get("nvidia_smi_compute_apps_last_collect_success")
    assert (None if found is None else found[0].value) == said


@pytest.mark.parametrize(
    ("state", "said"), [("up", 1), ("degraded", 1), ("failed", 0), ("stale", 0), ("stuck", 0)]
)
def test_the_health_of_the_reader_is_told(state: State, said: int) -> None:
    """Also while it reads nothing at all: that is when it is needed."""
    node = Node("nvidia_smi")
    node.state = state
    told = by_name(node.tell([]))
    assert told["nvidia_smi_last_collect_success"][0].value == said
    assert told["nvidia_smi_last_collect_success_timestamp_seconds"][0].value == 1764412346.5
    assert told["nvidia_smi_last_collect_duration_seconds"][0].value == 0.25


def test_a_reader_that_has_not_read_yet_has_no_health() -> None:
    """Neither success nor failure: nobody knows."""
    node = Node("nvidia_smi")
    node.state, node.health = "waiting", Health()
    assert node.tell([]) == []


# ---------------------------------------------------------------- rates


def traffic(total: float) -> list[Sample]:
    return [info(), c.GPU_PCIE_TRANSMIT_BYTES_TOTAL(total, "0", UUID)]


def rate_of(told: list[Sample]) -> float | None:
    found = by_name(told).get("nvidia_smi_pcie_throughput_tx_bytes_per_second")
    return None if found is None else float(found[0].value)  # type: ignore[arg-type]


def test_a_rate_is_measured_where_there_is_one() -> None:
    """The driver's own sample wins over the growth of a counter."""
    node = Node("nvidia_smi")
    sampled = c.GPU_PCIE_TRANSMIT_BYTES_PER_SECOND(5e9, "0", UUID)
    node.tell([*traffic(0), sampled])
    assert rate_of(node.tell([*traffic(100), sampled], now=START + 1)) == 5e9


def test_a_counter_becomes_a_rate_from_its_second_reading_on() -> None:
    """One reading has no growth, and a time that nobody has seen is not guessed."""
    node = Node("nvidia_smi")
    assert rate_of(node.tell(traffic(1000))) is None
    assert rate_of(node.tell(traffic(3000), now=START + 2)) == 1000
    assert rate_of(node.tell(traffic(3000), now=START + 3)) == 0, "zero is measured"


def test_a_reading_that_is_seen_twice_is_one_reading() -> None:
    """Rounds are more frequent than readings; the age of one is a float that wobbles."""
    node = Node("nvidia_smi")
    node.tell(traffic(1000), now=START, age=0.1)
    assert rate_of(node.tell(traffic(3000), now=START + 2, age=0.1)) == pytest.approx(1000)
    again = node.tell(traffic(3000), now=START + 2.5, age=0.6 - 1e-9)
    assert rate_of(again) == pytest.approx(1000)


def test_a_counter_that_was_reset_has_no_rate_until_it_grows_again() -> None:
    """A new driver counts from zero; the difference means nothing."""
    node = Node("nvidia_smi")
    node.tell(traffic(9000))
    assert rate_of(node.tell(traffic(10), now=START + 1)) is None
    assert rate_of(node.tell(traffic(110), now=START + 2)) == 100


def test_a_rate_is_not_measured_over_a_blink() -> None:
    """Ten readings a second: a counter that moves once a second would seem to jump."""
    node = Node("nvidia_smi")
    rates = []
    for tick in range(40):
        seconds = tick / 10
        rates.append(rate_of(node.tell(traffic(int(seconds) * 1000), now=START + seconds)))
    assert all(rate == pytest.approx(1000, rel=0.12) for rate in rates[20:])


def test_nvlink_bandwidth_is_a_rate_and_a_gauge() -> None:
    """dcgm-exporter 417: it is called a counter there, and rate() over it made nonsense."""
    assert f.DCGM["DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"].kind == "gauge"
    node = Node("dcgm")
    one_way = [c.GPU_NVLINK_RECEIVE_BYTES_TOTAL(1e12, "0", UUID)]
    node.tell([info(), *one_way])
    assert by_name(node.tell([info(), *one_way], now=START + 1)) == {}, "one direction is not both"


# ---------------------------------------------------------------- several GPUs, several sources


def test_every_gpu_has_its_own_rows() -> None:
    """Eight GPUs, and each value stands under the labels of its own GPU."""
    node = Node("dcgm")
    samples = [
        sample
        for gpu in range(8)
        for sample in (
            info(str(gpu), f"GPU-{gpu}"),
            c.GPU_POWER_WATTS(100 + gpu, str(gpu), f"GPU-{gpu}", "average"),
        )
    ]
    told = by_name(node.tell(samples))["DCGM_FI_DEV_POWER_USAGE"]
    assert {(labels_of(s)["gpu"], labels_of(s)["device"], s.value) for s in told} == {
        (str(gpu), f"nvidia{gpu}", 100 + gpu) for gpu in range(8)
    }


def test_a_board_whose_power_is_of_the_moment_has_power() -> None:
    """GA100 and older have no average; the other exporters call that power draw as well."""
    told = by_name(
        Node("dcgm", "nvidia_smi").tell([info(), c.GPU_POWER_WATTS(55.5, "0", UUID, "instant")])
    )
    assert told["DCGM_FI_DEV_POWER_USAGE"][0].value == 55.5
    assert told["nvidia_smi_power_draw_watts"][0].value == 55.5
    assert "nvidia_smi_power_draw_average_watts" not in told


def test_what_two_sources_read_is_told_once() -> None:
    """NVML and DCGM tell of the same board; the first one counts."""
    told = by_name(
        Node("dcgm").tell(
            [info(), c.GPU_UTILIZATION_RATIO(0.5, "0", UUID)],
            [
                info(),
                c.GPU_UTILIZATION_RATIO(0.6, "0", UUID),
                c.GPU_SM_ACTIVE_RATIO(0.7, "0", UUID),
            ],
        )
    )
    assert [s.value for s in told["DCGM_FI_DEV_GPU_UTIL"]] == [50]
    assert [s.value for s in told["DCGM_FI_PROF_SM_ACTIVE"]] == [0.7]


def test_a_source_that_falls_silent_leaves_nothing_behind() -> None:
    """Its last values are not told again, nor is there a hole in what others told."""
    node = Node("dcgm")
    node.tell([info()], [c.GPU_UTILIZATION_RATIO(0.6, "0", UUID)])
    told = node.tell([info(), c.GPU_MEMORY_BUSY_RATIO(0.1, "0", UUID)], [], now=START + 1)
    assert set(by_name(told)) == {"DCGM_FI_DEV_MEM_COPY_UTIL"}


def test_values_are_those_of_the_round() -> None:
    """The plan is kept, the values are not."""
    node = Node("dcgm")
    for tick in range(5):
        told = by_name(node.tell([info(), c.GPU_UTILIZATION_RATIO(tick / 10, "0", UUID)]))
        assert told["DCGM_FI_DEV_GPU_UTIL"][0].value == 10 * tick


def test_gpus_that_were_there_once_are_not_remembered_for_ever() -> None:
    """Virtual machines come and go with their boards."""
    node = Node("dcgm")
    for number in range(200):
        node.tell([info("0", f"GPU-{number}")])
    assert len(node.derivations[0].function._known) <= 64  # type: ignore[attr-defined]


# ---------------------------------------------------------------- the page


def page(*sets: str, samples: Callable[[], list[Sample]] = given) -> str:
    """Return the page of a node whose only samples are what the sets say, and what is ours."""
    rig = Rig()
    rig.publish(samples(), "nvml")
    rig.publish((s for some in told_after_two_seconds(*sets).values() for s in some), "compat")
    return rig.exposition.page((None, False, False)).decode()


def families(text: str) -> set[str]:
    """Return the families of a page by their heads."""
    return set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))


def test_a_page_without_compat_has_none_of_the_names() -> None:
    """They are there for those who ask."""
    foreign = {name for some in f.SETS.values() for name in some}
    assert not families(page()) & foreign
    assert families(page("dcgm")) & foreign


def test_promtool_reads_the_page_and_dislikes_foreign_names_only(
    tool: Callable[[str], str],
) -> None:
    """No syntax error, no family twice; what lint finds is about names and units of others."""
    result = subprocess.run(
        [tool("promtool"), "check", "metrics"], input=page(*f.SETS), capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    foreign = {name for some in f.SETS.values() for name in some}
    findings = [line.split(" ", 1) for line in result.stderr.splitlines()]
    assert result.returncode in {0, 3}, result.stderr
    assert {name for name, _ in findings} <= foreign
    assert {text for _, text in findings} <= LINT


LINT = {
    "metric name should not include type 'counter'",
    "metric name should not include type 'histogram'",
    'non-histogram and non-summary metrics should not have "_count" suffix',
    'counter metrics should have "_total" suffix',
    'non-counter metrics should not have "_total" suffix',
    "metric names should be written in 'snake_case' not 'camelCase'",
    "label names should be written in 'snake_case' not 'camelCase'",
    "no help text",
}


def test_a_reader_of_dcgm_exporter_gets_our_readings_back() -> None:
    """Our own source for pages of dcgm-exporter, written apart from this, agrees on each unit."""
    for exporter in ("dcgm", "dcgm-4.9"):
        rig = Rig()
        rig.publish(s for some in told_after_two_seconds(exporter).values() for s in some)
        body = rig.exposition.page((None, False, False))

        class Fetch:
            def get(self, body: bytes = body) -> Response:
                return Response(200, "text/plain", body)

            def close(self) -> None:
                pass

        ours = {(s.metric, s.labels): s.value for s in given(later=True)}
        back = [s for s in DcgmPageSource(Fetch()).read() if isinstance(s, Sample)]
        known = [s for s in back if (s.metric, s.labels) in ours]
        assert len(known) > 35
        for sample in known:
            expected = ours[sample.metric, sample.labels]
            whole = 1 << 20 if "memory" in sample.metric.name else 1e-9 * abs(expected)  # type: ignore[arg-type]
            assert abs(sample.value - expected) < max(whole, 1e-12), sample  # type: ignore[operator]


# ---------------------------------------------------------------- dashboards


NOT_ANSWERED = {
    # Each of these is the second choice of an `or`, for drivers before 535.
    f"nvidia_smi_clocks_throttle_reasons_{reason}"
    for reason in (
        "gpu_idle", "applications_clocks_setting", "sw_power_cap", "sw_thermal_slowdown",
        "hw_thermal_slowdown", "hw_power_brake_slowdown", "sync_boost",
    )
}  # fmt: skip


def asked(pattern: str) -> Iterator[str]:
    """Yield every expression of the dashboards whose file name fits."""
    for file in sorted((DATA / "dashboards").glob(pattern)):
        yield from expressions(file.read_text("utf-8").splitlines())


@pytest.mark.parametrize(
    ("files", "exporter"), [("dcgm-*.txt", "dcgm"), ("nvidia-*.txt", "nvidia_smi")]
)
def test_every_name_that_a_dashboard_asks_for_is_told(files: str, exporter: str) -> None:
    """Of a complete GPU, and of one that is split into instances; exceptions have a reason."""
    told = set(told_after_two_seconds(exporter)) | set(by_name(Node(exporter).tell(split())))
    wanted: set[str] = set()
    for expression in asked(files):
        found, patterns = names(expression)
        wanted |= found
        for pattern in patterns:
            assert any(re.fullmatch(pattern, name) for name in told), pattern
    assert wanted - told == (NOT_ANSWERED if exporter == "nvidia_smi" else set())
    assert len(wanted) > 5


def test_exceptions_are_listed_for_people_too() -> None:
    """What is not answered is said so, with the reason, in the tables of the document."""
    listed = f.UNANSWERED["nvidia_smi"]["nvidia_smi_clocks_throttle_reasons_*"]
    assert "before 535" in listed


@pytest.mark.parametrize("exporter", f.SETS)
def test_nothing_is_both_told_and_listed_as_not_answered(exporter: str) -> None:
    """The list is short and true."""
    for entry in f.UNANSWERED[exporter]:
        pattern = re.escape(entry).replace(r"\*", ".+")
        pattern = re.sub(r"\\{(.+?)\\}", lambda m: f"({m[1].replace(',', '|')})", pattern)
        told = [name for name in f.SETS[exporter] if re.fullmatch(pattern, name)]
        assert set(told) <= PENDING, entry


PENDING = {"nvidia_smi_retired_pages_pending", "nvidia_smi_remapped_rows_pending"}
"""The list excludes these two in words."""


def test_the_document_has_the_tables_of_the_code() -> None:
    """To renew them: see the last lines of docs/compatibility.md."""
    text = (DATA.parent.parent / "docs" / "compatibility.md").read_text("utf-8")
    begin, end = "<!-- tables: begin -->\n", "<!-- tables: end -->"
    assert text.split(begin)[1].split(end)[0].strip() == reference().strip()


# ---------------------------------------------------------------- cost


def test_a_round_does_no_work_for_series_that_stayed() -> None:
    """Eight GPUs: the plan is made once, and each round has the same series in the same order."""
    node = Node(*f.SETS)
    samples = [s for gpu in range(8) for s in given(str(gpu), f"GPU-{gpu}")]
    samples = list({(s.metric, s.labels): s for s in samples}.values())
    node.tell(samples)
    first = [(s.metric, s.labels) for s in node.tell(samples, now=START + 1)]
    plans = [d.function._plan for d in node.derivations]  # type: ignore[attr-defined]
    second = [(s.metric, s.labels) for s in node.tell(samples, now=START + 2)]
    assert first == second
    assert all(d.function._plan is plan for d, plan in zip(node.derivations, plans, strict=True))  # type: ignore[attr-defined]
