"""The page against the official writer and the official parsers, over hostile samples."""

from __future__ import annotations

import gzip
import math
import re
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.core import (
    Metric as OfficialMetric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter import catalogue as c
from exporter.board import Board, Slot
from exporter.exposition import Exposition, bound_text, family_name
from exporter.samples import Batch, Gate, Histogram, Metric, Sample, Snapshot
from tests.fakes import FakeClock

TEXT = (None, False, False)
GZIP = (None, False, True)
OPENMETRICS = (None, True, False)


class Rig:
    """A board with any number of sources, and its page."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.board = Board()
        self.own: list[Sample] = []
        self.exposition = Exposition(
            lambda: self.board.view(self.clock.monotonic()), lambda: self.own, self.clock
        )
        self._slots: dict[str, tuple[Slot, Gate]] = {}

    def publish(self, samples: Iterable[Sample], source: str = "a") -> None:
        if source not in self._slots:
            slot = self.board.enroll(source, "host", 2.0, 12.0, self.clock.monotonic())
            self._slots[source] = (slot, Gate(1_000_000))
        slot, gate = self._slots[source]
        batch, drops = gate.admit(list(samples))
        self.publish_batch(slot, batch, drops)

    def publish_batch(self, slot: Slot, batch: Batch, drops: dict[str, int]) -> None:  # type: ignore[type-arg]
        now = self.clock.monotonic()
        slot.publish(Snapshot(slot.name, "host", now, self.clock.time(), 0.01, batch), drops)

    def text(self, *groups: str) -> str:
        key = (frozenset(groups) or frozenset(("host", "nic", "serving")), False, False)
        return self.exposition.page(key).decode()

    def openmetrics(self) -> str:
        return self.exposition.page((frozenset(("host", "nic", "serving")), True, False)).decode()


FAMILIES = [
    c.HOST_INFO,
    c.HOST_CPU_SECONDS_TOTAL,
    c.HOST_LOAD_AVERAGE,
    c.HOST_CPUS,
    c.NIC_UP,
    c.NIC_ERRORS_TOTAL,
    c.LLM_TTFT_SECONDS,
    c.LLM_TOKENS_TOTAL,
]

numbers = st.one_of(
    st.floats(width=64),
    st.integers(-(10**20), 10**20),
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308]),
    st.sampled_from([1e6, 1e-5, 123456.0, 1234567.0, 1e16, 1e21, 2**53, 10**15 + 1]),
)
amounts = st.one_of(
    st.floats(0, 1.7e308, allow_nan=False, allow_infinity=False), st.integers(0, 10**20)
)
texts = st.one_of(
    st.text(max_size=8),
    st.sampled_from(['"', "\\", "\n", "\\n", '\\"', "}", ",", "=", "# EOF", "é", "\u2028", "\x00"]),
)


@st.composite
def histograms(draw: st.DrawFn) -> Histogram:
    bounds = sorted(draw(st.sets(st.floats(0, 1e9), min_size=1, max_size=6)))
    steps = draw(
        st.lists(st.integers(0, 10**6), min_size=len(bounds) + 1, max_size=len(bounds) + 1)
    )
    counts, total = [], 0
    for step in steps:
        total += step
        counts.append(total)
    return Histogram(tuple(bounds), tuple(counts), draw(st.floats(0, 1e12)))


@st.composite
def samples(draw: st.DrawFn) -> list[Sample]:
    made: dict[tuple[Metric, tuple[str, ...]], Sample] = {}
    for metric in draw(st.lists(st.sampled_from(FAMILIES), max_size=20)):
        labels = tuple(draw(texts) for _ in metric.labels)
        value: object
        if metric.kind == "histogram":
            value = draw(histograms())
        elif metric.kind == "counter":
            value = draw(amounts)
        else:
            value = 1 if metric.kind == "info" else draw(numbers)
        made[metric, labels] = Sample(metric, labels, value)  # type: ignore[arg-type]
    return list(made.values())


def official(samples: Iterable[Sample]) -> list[OfficialMetric]:
    """Return the same samples as the official library's families, in our page's order."""
    families: dict[Metric, OfficialMetric] = {}
    for metric, labels, value in sorted(samples, key=lambda sample: c.ORDER[sample.metric]):
        if metric not in families:
            make = {
                "gauge": GaugeMetricFamily,
                "counter": CounterMetricFamily,
                "info": InfoMetricFamily,
                "histogram": HistogramMetricFamily,
            }[metric.kind]
            families[metric] = make(family_name(metric), metric.help, labels=metric.labels)
        family = families[metric]
        if isinstance(value, Histogram):
            edges = [*map(bound_text, value.bounds), "+Inf"]
            buckets = list(zip(edges, value.counts, strict=True))
            family.add_metric(labels, buckets, value.sum)  # type: ignore[attr-defined]
        elif metric.kind == "info":
            family.add_metric(labels, {})  # type: ignore[attr-defined]
            sample = family.samples[-1]
            named = dict(zip(metric.labels, labels, strict=True))
            family.samples[-1] = sample._replace(labels=named)
        else:
            family.add_metric(labels, value)  # type: ignore[attr-defined]
    return list(families.values())


def registry(families: list[OfficialMetric]) -> CollectorRegistry:
    class Fixed:
        def collect(self) -> Iterator[OfficialMetric]:
            return iter(families)

    made = CollectorRegistry(auto_describe=False)
    made.register(Fixed())  # type: ignore[arg-type]
    return made


def same_number(ours: str, theirs: str) -> bool:
    a, b = float(ours), float(theirs)
    return a == b or (math.isnan(a) and math.isnan(b))


def assert_same_lines(ours: str, theirs: str) -> None:
    """Assert that two pages are equal byte for byte, but for the spelling of numbers."""
    # Not splitlines(): a label value may hold other characters that it splits at.
    left, right = ours.split("\n"), theirs.split("\n")
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        if one == other:
            continue
        (head, number), (their_head, their_number) = one.rsplit(" ", 1), other.rsplit(" ", 1)
        assert head == their_head
        assert same_number(number, their_number)


@settings(max_examples=150, deadline=None)
@given(samples())
def test_the_text_page_is_what_the_official_writer_writes(read: list[Sample]) -> None:
    """Byte for byte, but for the spelling of numbers."""
    rig = Rig()
    rig.publish(read)

    assert_same_lines(rig.text(), generate_latest(registry(official(read))).decode())


@settings(max_examples=150, deadline=None)
@given(samples())
def test_the_openmetrics_page_means_what_the_official_one_means(read: list[Sample]) -> None:
    """The official parser finds the same families, types, labels and values in both."""
    rig = Rig()
    rig.publish(read)
    ours = rig.openmetrics()

    theirs = generate_openmetrics(registry(official(read))).decode()

    plain = "\n".join(line for line in ours.split("\n") if not line.startswith("# UNIT "))
    assert_same_lines(plain, theirs)


@settings(max_examples=100, deadline=None)
@given(samples().filter(lambda read: all("\x00" not in v for s in read for v in s.labels)))
def test_the_official_parsers_read_our_pages(read: list[Sample]) -> None:
    """Each value comes back as it was, through both formats."""
    rig = Rig()
    rig.publish(read)

    for page, parse in ((rig.text(), parse_text), (rig.openmetrics(), parse_openmetrics)):
        found = {
            (s.name, tuple(sorted(s.labels.items()))): s.value
            for family in parse(page)
            for s in family.samples
        }
        for metric, labels, value in read:
            if isinstance(value, Histogram):
                continue
            key = (metric.name, tuple(sorted(zip(metric.labels, labels, strict=True))))
            assert same_number(repr(found[key]), repr(float(value)))


@settings(max_examples=60, deadline=None)
@given(st.lists(samples(), min_size=2, max_size=4))
def test_a_page_after_many_reads_equals_a_fresh_one(reads: list[list[Sample]]) -> None:
    """Kept prefixes and kept texts never show: values, bounds and series change between reads."""
    kept = Rig()
    for read in reads:
        kept.publish(read)
        kept.text()
    fresh = Rig()
    fresh.publish(reads[-1])

    assert_same_lines(kept.text(), fresh.text())
    assert_same_lines(kept.openmetrics(), fresh.openmetrics())


def test_a_family_of_several_sources_stands_together() -> None:
    """Lines of one family must not be split, whoever brought them."""
    rig = Rig()
    for server in ("a", "b"):
        rig.publish(
            [
                c.LLM_ACTIVE_REQUESTS(1, "m", "", "vllm", server),
                c.LLM_WAITING_REQUESTS(2, "m", "", "vllm", server),
            ],
            source=server,
        )

    names = [line.partition("{")[0] for line in rig.text().splitlines() if line[0] != "#"]

    assert names == ["llm_active_requests"] * 2 + ["llm_waiting_requests"] * 2
    assert rig.text().count("# HELP llm_active_requests") == 1


def test_twins_of_two_sources_are_dropped_and_counted() -> None:
    """One duplicate sample would fail every scrape; it is counted once for each read."""
    rig = Rig()
    for _ in range(2):
        for source in ("a", "b"):
            rig.publish([c.HOST_CPUS(4)], source=source)
        rig.clock.advance(0.1)
        rig.text()

    page = rig.exposition.page(TEXT).decode()

    assert page.count("\nhost_cpus ") == 1
    assert 'flopwatch_samples_dropped_total{reason="duplicate",source="b"} 2' in page
    rig.publish([c.HOST_CPUS(5)], source="b")
    page = rig.exposition.page(TEXT).decode()
    assert 'flopwatch_samples_dropped_total{reason="duplicate",source="b"} 3' in page


def test_labels_that_cannot_be_encoded_do_not_cost_the_page() -> None:
    """Lone surrogates (file names, cut text) become question marks."""
    rig = Rig()
    rig.publish([c.HOST_LOAD_AVERAGE(1.0, "\ud800"), c.HOST_LOAD_AVERAGE(2.0, "1m")])

    assert 'host_load_average{window="?"} 1.0' in rig.text()
    assert 'host_load_average{window="1m"} 2.0' in rig.text()


@pytest.mark.parametrize(
    ("bound", "text"),
    [(1, "1.0"), (0.25, "0.25"), (10.0, "10.0"), (1e6, "1e+06"), (2500000.0, "2.5e+06"),
     (1e-4, "0.0001"), (1e-5, "1e-05"), (100000.0, "100000.0"), (1e21, "1e+21")],
)  # fmt: skip
def test_bounds_always_have_a_point_or_an_exponent(bound: float, text: str) -> None:
    """`le="1"` and `le="1.0"` are two series to Prometheus 2."""
    assert bound_text(bound) == text


def test_a_page_is_rendered_once_and_kept_until_the_board_changes() -> None:
    """The second scraper gets the same bytes; a new value makes a new page."""
    rig = Rig()
    rig.publish([c.HOST_CPUS(4)])

    first = rig.exposition.page(TEXT)

    assert rig.exposition.page(TEXT) is first
    assert rig.exposition.at_once(TEXT) is first
    rig.publish([c.HOST_CPUS(5)])
    assert b"\nhost_cpus 5\n" in rig.exposition.page(TEXT)


def test_only_a_short_page_is_rendered_at_once() -> None:
    """Whoever may not wait gets a long page when it is ready, and none while another renders."""
    rig = Rig()
    rig.publish([c.HOST_CPUS(4)])
    assert b"\nhost_cpus 4\n" in (rig.exposition.at_once(TEXT) or b"")
    with rig.exposition._lock:
        assert rig.exposition.at_once(TEXT) is None

    rig.publish([c.HOST_LOAD_AVERAGE(1.0, str(i)) for i in range(1001)])
    assert rig.exposition.at_once(TEXT) is None
    page = rig.exposition.page(TEXT)
    assert rig.exposition.at_once(TEXT) is page
    assert rig.exposition.at_once(GZIP) is None
    rig.publish([c.HOST_CPUS(5)])
    assert b"\nhost_cpus 5\n" in (rig.exposition.at_once(TEXT) or b"")


def test_a_page_of_an_aged_source_is_not_served_again() -> None:
    """Ageing changes the page although nobody published anything."""
    rig = Rig()
    rig.publish([c.HOST_CPUS(4)])
    assert b"\nhost_cpus 4\n" in rig.exposition.page(TEXT)

    rig.clock.advance(60)

    page = rig.exposition.page(TEXT)
    assert b"host_cpus" not in page
    assert b'flopwatch_source_up{source="a"} 0' in page


def test_gzip_holds_the_same_page() -> None:
    """And groups can be asked for alone."""
    rig = Rig()
    rig.publish([c.HOST_CPUS(4), c.NIC_UP(1, "mlx5_0", "1")])

    assert gzip.decompress(rig.exposition.page((None, False, True))) == rig.exposition.page(TEXT)
    assert "nic_up" not in rig.text("host")
    assert "host_cpus" not in rig.text("nic")
    assert rig.exposition.page(OPENMETRICS).endswith(b"# EOF\n")


def test_series_are_counted_by_group() -> None:
    """What a node costs its Prometheus is on the page itself."""
    rig = Rig()
    rig.publish([c.HOST_CPUS(4), c.HOST_LOAD_AVERAGE(1.0, "1m"), c.NIC_UP(1, "mlx5_0", "1")])

    page = rig.exposition.page(TEXT).decode()

    assert 'flopwatch_series{group="host"} 2' in page
    assert 'flopwatch_series{group="nic"} 1' in page
    own = [line for line in page.splitlines() if line.startswith("flopwatch_")]
    assert f'flopwatch_series{{group="exporter"}} {len(own)}' in own


def test_health_tells_what_happened() -> None:
    """Failures and reads are on the page even when a source has no samples."""
    rig = Rig()
    slot = rig.board.enroll("gpu", "host", 2.0, 12.0, rig.clock.monotonic())
    slot.begin(rig.clock.monotonic())
    assert b'flopwatch_source_up{source="gpu"}' not in rig.exposition.page(TEXT)

    rig.clock.advance(7)
    page = rig.exposition.page(TEXT).decode()

    assert 'flopwatch_source_up{source="gpu"} 0' in page
    assert 'flopwatch_source_busy_seconds{source="gpu"} 7.0' in page
    assert 'flopwatch_source_reads_total{source="gpu"} 1' in page


HOSTILE = [
    "",
    "a",
    '"',
    "\\",
    "\n",
    "\\n",
    '"} 1\ngpu_up{gpu="9"',
    "# TYPE gpu_up gauge",
    "é",
    "{},=",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_40_a_page_of_everything_is_valid_whatever_its_labels_say(text: str) -> None:
    """Each family of the catalogue with a hostile text in every label: both official parsers read
    the page and find each family with a legal type, each label's text and each value (all-smi 48
    and 267, docker-prometheus-nvidiasmi 1)."""
    read = [
        metric(Histogram((0.5,), (1, 2), 3.0) if metric.kind == "histogram" else 1,
               *[text] * len(metric.labels))
        for metric in c.FAMILIES.values() if not metric.name.startswith("flopwatch_")
    ]  # fmt: skip
    rig = Rig()
    rig.publish(read)
    for key, parse in ((TEXT, parse_text), (OPENMETRICS, parse_openmetrics)):
        families = {f.name: f for f in parse(rig.exposition.page(key).decode())}
        for metric, labels, _ in read:
            name = family_name(metric)
            if key == TEXT and metric.kind == "info":
                name = metric.name
            family = families[name.removesuffix("_total") if metric.kind == "counter" else name]
            assert family.type in {"gauge", "counter", "histogram", "info"}
            wanted = dict(zip(metric.labels, labels, strict=True))
            assert all(wanted.items() <= s.labels.items() for s in family.samples), metric
            assert family.samples


def test_46_series_that_collide_cost_themselves_and_are_counted() -> None:
    """One GPU told twice by one source: the first stays, the page is whole, the rest is counted
    (node_exporter 2083, 2185)."""
    rig = Rig()
    rig.publish(
        [
            c.GPU_UP(1, "0", "GPU-a"),
            c.GPU_UP(0, "0", "GPU-a"),
            c.GPU_UP(1, "1", "GPU-a"),
            c.GPU_POWER_WATTS(300.5, "0", "GPU-a", "average"),
        ]
    )
    page = rig.exposition.page(TEXT).decode()
    assert [line for line in page.splitlines() if line.startswith("gpu_")] == [
        'gpu_up{gpu="0",uuid="GPU-a"} 1',
        'gpu_up{gpu="1",uuid="GPU-a"} 1',
        'gpu_power_watts{gpu="0",kind="average",uuid="GPU-a"} 300.5',
    ]
    assert 'flopwatch_samples_dropped_total{reason="duplicate",source="a"} 1' in page


NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def test_46_no_family_has_a_name_that_is_invalid_or_collides() -> None:
    """Nor does a suffix that a format adds (`_info`, `_total`, `_bucket`) make one of two
    (node_exporter 2187)."""
    written: list[str] = []
    for metric in c.FAMILIES.values():
        assert all(NAME.fullmatch(name) for name in (metric.name, *metric.labels)), metric
        assert len(set(metric.labels)) == len(metric.labels)
        base = family_name(metric)
        parts = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ()
        written += {metric.name, base, *(f"{metric.name}{part}" for part in parts)}
    assert len(written) == len(set(written))
