"""Reading the page of a dcgm-exporter: old and new names, MIG, pods, and pages that are none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.clock import SystemClock
from exporter.fetch import HttpFetcher, Response
from exporter.formats.exposition import Limits
from exporter.samples import (
    Drop,
    Fault,
    Gate,
    Item,
    Malformed,
    Metric,
    Sample,
    SourceError,
    Value,
    reason_of,
)
from exporter.sources.dcgm_page import DcgmPageSource
from tests.servers import reply, serving

PAGES = Path(__file__).parent.parent / "data" / "dcgm"
OLD = (PAGES / "dcgm-exporter-legacy.prom").read_bytes()
NEW = (PAGES / "dcgm-exporter-4.9.prom").read_bytes()
IDS = [f"GPU-{digit * 8}-{digit * 4}-4{digit * 3}-8{digit * 3}-{digit * 12}" for digit in "012"]
A = 'gpu="0",UUID="GPU-a"'


class FakeFetch:
    """Hands out pages one after the other, the last one for ever."""

    def __init__(self, *bodies: bytes) -> None:
        self._bodies = list(bodies)
        self.gets = 0
        self.closed = False

    def get(self) -> Response:
        self.gets += 1
        body = self._bodies[min(self.gets, len(self._bodies)) - 1]
        return Response(200, "text/plain; version=0.0.4", body)

    def close(self) -> None:
        self.closed = True


def page(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def read(body: bytes) -> list[Sample | Fault | Drop]:
    return DcgmPageSource(FakeFetch(body)).read()


def read_lines(*lines: str) -> list[Sample | Fault | Drop]:
    return read(page(*lines))


def values(items: Iterable[Item], metric: Metric, *labels: str) -> dict[tuple[str, ...], Value]:
    """Return the values of a metric by labels, of the series whose labels begin with these."""
    return {
        item.labels: item.value
        for item in items
        if isinstance(item, Sample)
        and item.metric is metric
        and item.labels[: len(labels)] == labels
    }


def samples(items: Iterable[Item]) -> list[Sample]:
    return [item for item in items if isinstance(item, Sample)]


def others(items: Iterable[Item]) -> list[Item]:
    return [item for item in items if not isinstance(item, Sample)]


# ---------------------------------------------------------------- whole pages


@pytest.mark.parametrize("body", [OLD, NEW], ids=["old", "4.9"])
def test_a_page_is_read_over_http(body: bytes) -> None:
    """What a default exporter shows comes out in our words and units, without a loss."""
    with serving(reply(body)) as server:
        fetch = HttpFetcher(server.url(), timeout=20.0, clock=SystemClock())
        with contextlib.closing(DcgmPageSource(fetch)) as source:
            items = source.read()
    gpu = ("0", IDS[0])
    assert others(items) == []
    assert values(items, c.GPU_CLOCK_HERTZ, *gpu) == {
        (*gpu, "sm"): 1_980_000_000,
        (*gpu, "memory"): 2_619_000_000,
    }
    assert values(items, c.GPU_POWER_WATTS, *gpu) == {(*gpu, "average"): 612.575}
    assert values(items, c.GPU_UTILIZATION_RATIO, *gpu) == {gpu: 0.98}
    assert values(items, c.GPU_MEMORY_USED_BYTES, *gpu) == {gpu: 65_002 * 1_048_576}
    assert values(items, c.GPU_SM_ACTIVE_RATIO, *gpu) == {gpu: 0.912597}
    assert values(items, c.GPU_TENSOR_ACTIVE_RATIO, *gpu) == {gpu: 0.45421}
    assert values(items, c.GPU_DRAM_ACTIVE_RATIO, *gpu) == {gpu: 0.385117}
    assert values(items, c.GPU_THROTTLED_SECONDS_TOTAL, *gpu) == {
        (*gpu, "sw_power_cap"): 240.5,
        (*gpu, "thermal"): 0,
    }
    assert values(items, c.GPU_REMAPPED_ROWS_TOTAL, *gpu) == {
        (*gpu, "uncorrected"): 0,
        (*gpu, "corrected"): 2,
    }


def test_both_pages_say_the_same() -> None:
    """The same node in old and in new names, MHz and hertz: one result."""
    old, new = ({item[:2]: item.value for item in samples(read(body))} for body in (OLD, NEW))
    only_new = {key for key in new if key not in old}
    assert {metric for metric, _ in only_new} == {
        c.GPU_MEMORY_TOTAL_BYTES,
        c.GPU_MIG_MEMORY_TOTAL_BYTES,
    }
    assert set(old) <= set(new)
    for key, value in old.items():
        # Energy is printed in whole joules on the new page.
        slack = 1.0 if key[0] is c.GPU_ENERGY_JOULES_TOTAL else 0.0
        assert new[key] == pytest.approx(value, abs=slack, rel=1e-12), key


@pytest.mark.parametrize("body", [OLD, NEW], ids=["old", "4.9"])
def test_pods_that_share_a_gpu_do_not_double_it(body: bytes) -> None:
    """GPU 0 has a row for each of two pods; without the pods' labels they would be the same twice.

    The gate that each source's samples pass counts what comes twice.
    """
    items = samples(read(body))
    batch, drops = Gate(10_000).admit(items)
    assert (len(batch), drops) == (len(items), {})
    assert not any("train-0" in label or "team" in label for item in items for label in item.labels)


@pytest.mark.parametrize("body", [OLD, NEW], ids=["old", "4.9"])
def test_instances_have_families_of_their_own(body: bytes) -> None:
    """MIG: what an instance does is told of the instance, never as if the GPU did it."""
    items = read(body)
    gpu = ("2", IDS[2])
    assert values(items, c.GPU_MIG_SM_ACTIVE_RATIO) == {(*gpu, "3"): 0.487, (*gpu, "9"): 0}
    assert values(items, c.GPU_MIG_TENSOR_ACTIVE_RATIO) == {(*gpu, "3"): 0.465, (*gpu, "9"): 0}
    assert values(items, c.GPU_MIG_MEMORY_USED_BYTES) == {
        (*gpu, "3"): 10_001 * 1_048_576,
        (*gpu, "9"): 15 * 1_048_576,
    }
    for metric in (c.GPU_SM_ACTIVE_RATIO, c.GPU_MEMORY_USED_BYTES, c.GPU_MEMORY_FREE_BYTES):
        assert values(items, metric, "2") == {}
        assert values(items, metric, "0") != {}


@pytest.mark.parametrize("body", [OLD, NEW], ids=["old", "4.9"])
def test_what_belongs_to_the_board_is_told_once_with_mig(body: bytes) -> None:
    """Each instance's rows repeat clock, power and energy of the GPU: a sum would be too much."""
    items = read(body)
    gpu = ("2", IDS[2])
    assert values(items, c.GPU_POWER_WATTS, "2") == {(*gpu, "average"): 612.575}
    assert values(items, c.GPU_CLOCK_HERTZ, "2") == {
        (*gpu, "sm"): 1_980_000_000,
        (*gpu, "memory"): 2_619_000_000,
    }
    assert list(values(items, c.GPU_ENERGY_JOULES_TOTAL, "2")) == [gpu]


@pytest.mark.parametrize("body", [OLD, NEW], ids=["old", "4.9"])
def test_nvlink_bandwidth_and_the_last_xid_are_no_counters(body: bytes) -> None:
    """dcgm-exporter 417: the page has them, the first even as a counter; neither is counted."""
    assert b"_DEV_NVLINK_" in body
    assert b"_DEV_XID_ERROR" in body
    told = {item.metric.name for item in samples(read(body))}
    assert not [name for name in told if "nvlink" in name or "xid" in name]


@pytest.mark.parametrize("body", [OLD, NEW], ids=["old", "4.9"])
def test_nothing_is_added_up_from_a_page(body: bytes) -> None:
    """The page repeats a measurement for 30 s and does not say when it was made: no integrals."""
    source = DcgmPageSource(FakeFetch(body))
    told = {item.metric for _ in range(3) for item in samples(source.read())}
    assert not [metric.name for metric in told if metric.name.endswith("_active_seconds_total")]
    assert c.GPU_PCIE_RECEIVE_BYTES_PER_SECOND in told
    assert c.GPU_PCIE_RECEIVE_BYTES_TOTAL not in told


@pytest.mark.parametrize("body", [OLD, NEW], ids=["old", "4.9"])
def test_an_idle_gpu_is_zero_and_not_absent(body: bytes) -> None:
    """GPU 1 does nothing, and that is known."""
    items = read(body)
    gpu = ("1", IDS[1])
    assert values(items, c.GPU_UTILIZATION_RATIO, "1") == {gpu: 0}
    assert values(items, c.GPU_SM_ACTIVE_RATIO, "1") == {gpu: 0}
    assert values(items, c.GPU_TENSOR_ACTIVE_RATIO, "1") == {gpu: 0}


def test_a_page_is_read_again_with_new_values() -> None:
    """The same series with other values, then another set of series, then the first again."""
    busy, busier, hot = (
        f"DCGM_FI_DEV_{name}{{{A}}} {value}"
        for name, value in (("GPU_UTIL", 50), ("GPU_UTIL", 60), ("GPU_TEMP", 40))
    )
    bodies = [page(busy, hot), page(busier, hot), page(hot), page(busy, hot)]
    source = DcgmPageSource(FakeFetch(*bodies))
    seen = [values(source.read(), c.GPU_UTILIZATION_RATIO) for _ in bodies]
    labels = ("0", "GPU-a")
    assert seen == [{labels: 0.5}, {labels: 0.6}, {}, {labels: 0.5}]


def test_families_that_somebody_else_reads_are_left_out() -> None:
    """By name, those of instances included."""
    fetch = FakeFetch(OLD)
    source = DcgmPageSource(fetch, leave_out=["gpu_power_watts", "gpu_mig_sm_active_ratio"])
    items = source.read()
    assert values(items, c.GPU_POWER_WATTS) == values(items, c.GPU_MIG_SM_ACTIVE_RATIO) == {}
    assert len(values(items, c.GPU_SM_ACTIVE_RATIO)) == 2


def test_name_group_and_close() -> None:
    """The source is called after what it reads; the connection goes with it."""
    fetch = FakeFetch(OLD)
    source = DcgmPageSource(fetch)
    assert (source.name, source.group) == ("dcgm_page", c.GPU)
    source.close()
    assert fetch.closed


# ---------------------------------------------------------------- single rows


def test_old_and_new_names_side_by_side() -> None:
    """An exporter that is configured so shows both; the finer value counts, and once."""
    items = read_lines(
        f"DCGM_FI_DEV_GPU_UTIL{{{A}}} 97",
        f"DCGM_FI_DEV_FB_USED{{{A}}} 10",
        f"DCGM_FI_DEV_SM_CLOCK{{{A}}} 1980",
        f"DCGM_FI_DEV_GPU_UTIL_RATIO{{{A}}} 0.974",
        f"DCGM_FI_DEV_FB_USED_BYTES{{{A}}} 10485761",
    )
    assert values(items, c.GPU_UTILIZATION_RATIO) == {("0", "GPU-a"): 0.974}
    assert values(items, c.GPU_MEMORY_USED_BYTES) == {("0", "GPU-a"): 10485761}
    assert values(items, c.GPU_CLOCK_HERTZ) == {("0", "GPU-a", "sm"): 1_980_000_000}
    assert len(items) == 3


def test_a_blank_new_value_leaves_the_old_one() -> None:
    """Of two rows for one thing the second counts where the first says nothing."""
    items = read_lines(
        f"DCGM_FI_DEV_FB_USED_BYTES{{{A}}} 9223372036854775794",
        f"DCGM_FI_DEV_FB_USED{{{A}}} 10",
    )
    assert values(items, c.GPU_MEMORY_USED_BYTES) == {("0", "GPU-a"): 10 * 1_048_576}


@pytest.mark.parametrize(
    "labels",
    ['UUID="GPU-a"', 'gpu="",UUID="GPU-a"', 'gpu="0"', 'gpu="0",UUID=""', ""],
)
def test_a_row_that_does_not_say_which_gpu_is_dropped_and_counted(labels: str) -> None:
    """No sample has an empty gpu or uuid."""
    items = read_lines(
        f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} 40",
        f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} 400",
        f"DCGM_FI_DEV_GPU_TEMP{{{A}}} 41",
    )
    assert items == [c.GPU_TEMPERATURE_CELSIUS(41, "0", "GPU-a", "core"), Drop("labels", 2)]


def test_gpu_uuid_is_another_word_for_uuid() -> None:
    """Some configurations of the exporter rename the label."""
    items = read_lines('DCGM_FI_DEV_GPU_TEMP{gpu="0",gpu_uuid="GPU-a"} 40')
    assert items == [c.GPU_TEMPERATURE_CELSIUS(40, "0", "GPU-a", "core")]


@pytest.mark.parametrize("said", ["0.974", "97", "1", "0"])
def test_a_ratio_of_a_page_that_may_mean_percent_is_not_used(said: str) -> None:
    """DCGM 4.6 gave the name GPU_UTIL_RATIO to the percent: without a hint 1 may be 1 % or all."""
    items = read_lines(
        f"DCGM_FI_DEV_GPU_UTIL_RATIO{{{A}}} {said}", f"DCGM_FI_DEV_GPU_TEMP{{{A}}} 40"
    )
    assert items == [c.GPU_TEMPERATURE_CELSIUS(40, "0", "GPU-a", "core"), Drop("unit", 1)]


@pytest.mark.parametrize("blank", ["9223372036854775794", "2147483634", "4294967295", "NaN"])
@pytest.mark.parametrize("name", ["DEV_FB_USED", "DEV_GPU_UTIL", "DEV_GPU_TEMP", "DEV_SM_CLOCK"])
def test_blanks_are_absent(name: str, blank: str) -> None:
    """gpu-monitoring-tools 97: 9.2e18 MiB, 2147483634 degrees; they say that there is no value."""
    assert read_lines(f"DCGM_FI_{name}{{{A}}} {blank}") == []


def test_huge_pcie_rates_with_mig() -> None:
    """slurm-job-exporter 52: an instance has no PCIe of its own; DCGM 88: it says blank."""
    items = read_lines(
        f'DCGM_FI_PROF_PCIE_TX_BYTES{{{A},GPU_I_ID="3"}} 9223372036854775794',
        f'DCGM_FI_PROF_PCIE_RX_BYTES{{{A},GPU_I_ID="3"}} 2147483634',
        f'DCGM_FI_PROF_SM_ACTIVE{{{A},GPU_I_ID="3"}} 140737488355328.000000',
        f'DCGM_FI_PROF_DRAM_ACTIVE{{{A},GPU_I_ID="3"}} 0.25',
    )
    assert items == [c.GPU_MIG_DRAM_ACTIVE_RATIO(0.25, "0", "GPU-a", "3")]


def test_reasons_to_throttle_are_told_one_by_one() -> None:
    """A set of bits on the page, a series for each reason here."""
    items = read_lines(f"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{{{A}}} 68")
    flags = {labels[-1]: flag for labels, flag in values(items, c.GPU_THROTTLE_ACTIVE).items()}
    assert len(flags) == 9
    assert {reason for reason, flag in flags.items() if flag} == {"sw_power_cap", "hw_thermal"}


def test_rows_of_single_links_are_not_the_gpus() -> None:
    """With a label of a link a value is a part of what we mean."""
    items = read_lines(
        f'DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL{{{A},nvlink="0"}} 5',
        f"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL{{{A}}} 7",
    )
    assert items == [c.GPU_NVLINK_ERRORS_TOTAL(7, "0", "GPU-a", "crc_flit")]


def test_other_peoples_metrics_on_the_page_do_not_matter() -> None:
    """Names of DCGM that mean nothing to us, and those that are not DCGM's."""
    items = read_lines(
        "go_goroutines 12",
        f"DCGM_EXP_XID_ERRORS_COUNT{{{A}}} 3",
        f"DCGM_FI_DEV_SOMETHING_NEW{{{A}}} 3",
        f"DCGM_FI_DEV_GPU_TEMP{{{A}}} 40",
    )
    assert items == [c.GPU_TEMPERATURE_CELSIUS(40, "0", "GPU-a", "core")]


# ---------------------------------------------------------------- pages that are none


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the page is empty"),
        (b"\n \n", "the page is empty"),
        (b"up 1\n", "no metrics of DCGM"),
    ],
)
def test_a_page_without_dcgm_is_not_zeros(body: bytes, said: str) -> None:
    """dcgm-exporter shows nothing while its engine starts: that is a failed read that says so."""
    with pytest.raises(SourceError, match=said) as info:
        read(body)
    assert reason_of(info.value) == "unavailable"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html><body>GPU Exporter</body></html>", "/metrics"),
        (b'{"error": "not found"}', "not a page of metrics"),
        (b"\x00\x01\x02\x03\n\xff\xfe\n", "not a page of metrics"),
    ],
)
def test_another_kind_of_page_is_named(body: bytes, said: str) -> None:
    """The exporter's front page among them: the path is wrong then."""
    with pytest.raises(Malformed, match=said):
        read(body)


def test_a_page_that_stops_within_a_line_is_used_as_far_as_it_goes() -> None:
    """The complete lines count; that some are missing is a fault of the page."""
    whole = page(f"DCGM_FI_DEV_GPU_TEMP{{{A}}} 40", f"DCGM_FI_DEV_POWER_USAGE{{{A}}} 412.5")
    items = read(whole[:-4])
    assert samples(items) == [c.GPU_TEMPERATURE_CELSIUS(40, "0", "GPU-a", "core")]
    (fault,) = others(items)
    assert isinstance(fault, Fault)
    assert (fault.part, fault.reason) == ("page", "malformed")


def test_bad_lines_and_too_many_are_counted() -> None:
    """A line that makes no sense is left out, and so are those beyond the limit."""
    body = page(
        f"DCGM_FI_DEV_GPU_TEMP{{{A}}} warm",
        f"DCGM_FI_DEV_GPU_TEMP{{{A}}} 40",
        f"DCGM_FI_DEV_POWER_USAGE{{{A}}} 400",
        f"DCGM_FI_DEV_GPU_UTIL{{{A}}} 40",
    )
    items = DcgmPageSource(FakeFetch(body), limits=Limits(max_series=3)).read()
    assert len(samples(items)) == 2
    assert others(items) == [Drop("malformed", 1), Drop("cap", 1)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply(b"", status="503 Service Unavailable"), "unavailable"),
        (reply(b"", status="403 Forbidden"), "denied"),
    ],
)
def test_what_the_fetcher_says_is_passed_on(answer: bytes, reason: str) -> None:
    """An exporter that is not there or refuses: the reason reaches the runner."""
    with serving(answer) as server:
        fetch = HttpFetcher(server.url(), timeout=20.0, clock=SystemClock())
        with (
            contextlib.closing(DcgmPageSource(fetch)) as source,
            pytest.raises(Exception, match=r"503|403") as info,
        ):
            source.read()
    assert reason_of(info.value) == reason
