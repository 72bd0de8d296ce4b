"""Foreign pages against the official parser, and a reader that remembers against one that does not.

The official writer makes pages with hostile labels, the recorded pages are real ones, and both are
mutated. What a reader says of a page must not depend on the pages that it has seen before.
"""

from __future__ import annotations

import gc
import math
import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import FunctionType, ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import ALLOWUTF8
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.formats.exposition import Limits, Page, Reader, Series
from exporter.samples import Malformed

RECORDED = sorted((Path(__file__).parent.parent / "data" / "engines").glob("*.prom"))
VLLM = next(path for path in RECORDED if path.name == "vllm-0.32.0-cpu-underload.prom")

Identity = tuple[str, frozenset[tuple[str, str]]]


def bits(value: float) -> bytes:
    """Return what two equal values have in common; all NaN are equal."""
    return b"nan" if math.isnan(value) else struct.pack("<d", value)


def contents(page: Page) -> dict[Identity, bytes]:
    """Return the values of a page by series, whatever the order."""
    shape = page.shape
    assert len(shape.series) == len(page.values)
    found = {
        (series.name, frozenset(series.labels)): bits(value)
        for series, value in zip(shape.series, page.values, strict=True)
    }
    assert len(found) == len(page.values)
    for name, positions in shape.index.items():
        assert all(shape.series[i].name == name for i in positions)
    assert sorted(i for ps in shape.index.values() for i in ps) == list(range(len(page.values)))
    return found


def as_official(page: Page) -> dict[Identity, bytes]:
    """Return the contents with the names that the official parser of the text format gives.

    It puts `_total` behind the samples of counters that are without.
    """
    types = page.shape.types
    return {
        (f"{name}_total" if types.get(name) == "counter" and name[-6:] != "_total" else name, at): v
        for (name, at), v in contents(page).items()
    }


def official(families: Iterable[Metric]) -> dict[Identity, bytes]:
    return {
        (sample.name, frozenset(sample.labels.items())): bits(float(sample.value))
        for family in families
        for sample in family.samples
    }


def read(*lines: str, wanted: Sequence[str] | None = None) -> Page:
    return Reader(wanted).read("".join(f"{line}\n" for line in lines).encode())


def only(*lines: str) -> tuple[Series, float]:
    page = read(*lines)
    assert page.dropped == {}
    (series,), (value,) = page.shape.series, page.values
    return series, value


# ---------------------------------------------------------------- the official writer and parser

NAMES = ["a", "b:c", "vllm:x_seconds", "_y"]
VALUES = st.floats() | st.integers(-(2**70), 2**70).map(float)
TEXTS = st.text(
    st.sampled_from('\\"{}=,# \n\r\tnaé\u2028\x85\x1c')
    | st.characters(codec="utf-8", exclude_characters="\0"),
    max_size=9,
)
LABELS = st.lists(TEXTS, min_size=2, max_size=2)
ROWS = st.lists(LABELS, min_size=1, max_size=4, unique_by=tuple)


class Families:
    """A collector that gives out what it was given."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self._families)


@st.composite
def families(draw: st.DrawFn, names: Sequence[str] = NAMES) -> list[Metric]:
    """Make some families of all kinds with hostile label values."""
    made: list[Metric] = []
    for name in draw(st.lists(st.sampled_from(names), min_size=1, unique=True)):
        kind = draw(st.sampled_from(("gauge", "counter", "histogram", "summary", "info")))
        rows = draw(ROWS)
        help_text = draw(TEXTS)
        if kind == "gauge":
            gauge = GaugeMetricFamily(name, help_text, labels=("l", "m"))
            for row in rows:
                gauge.add_metric(row, draw(VALUES))
            made.append(gauge)
        elif kind == "counter":
            counter = CounterMetricFamily(name, help_text, labels=("l", "m"))
            for row in rows:
                counter.add_metric(row, draw(st.floats(0, 1e300)), created=draw(st.floats(1, 9e9)))
            made.append(counter)
        elif kind == "histogram":
            histogram = HistogramMetricFamily(name, help_text, labels=("l", "m"))
            for row in rows:
                n = draw(st.integers(0, 10**6))
                histogram.add_metric(row, [("0.1", 0), ("1e+09", n), ("+Inf", n)], draw(VALUES))
            made.append(histogram)
        elif kind == "summary":
            summary = SummaryMetricFamily(name, help_text, labels=("l", "m"))
            for row in rows:
                summary.add_metric(row, draw(st.integers(0, 99)), draw(st.floats(0, 1e9)))
            made.append(summary)
        else:
            info = InfoMetricFamily(name, help_text, labels=("l", "m"))
            for row in rows:
                info.add_metric(row, {"n": draw(TEXTS)})
            made.append(info)
    return made


def registry(families: list[Metric]) -> CollectorRegistry:
    made = CollectorRegistry(auto_describe=False)
    made.register(Families(families))  # type: ignore[arg-type]
    return made


@given(families())
@settings(deadline=None)
def test_text_of_the_official_writer_is_read_as_its_parser_does(made: list[Metric]) -> None:
    """Same series, same bits, nothing dropped: classic text."""
    body = generate_latest(registry(made))
    page = Reader().read(body)
    assert as_official(page) == official(parse_text(body.decode()))
    assert (page.dropped, page.partial) == ({}, False)


@given(families())
@settings(deadline=None)
def test_openmetrics_of_the_official_writer_is_read_without_being_told(made: list[Metric]) -> None:
    """Same series, same bits, nothing dropped: OpenMetrics.

    The official parser refuses counters of several series with creation times ("Clashing name"),
    so the measure is what was written; where it does not refuse, it too.
    """
    body = generate_openmetrics(registry(made), escaping=ALLOWUTF8)
    page = Reader().read(body)
    assert contents(page) == official(made)
    assert (page.dropped, page.partial) == ({}, False)
    try:
        parsed = official(parse_openmetrics(body.decode()))
    except ValueError:
        return
    assert contents(page) == parsed


@given(families(names=["my.name", "température", 'quo"te', "back\\slash", "a b{c}"]))
@settings(deadline=None, max_examples=40)
def test_quoted_names_are_read(made: list[Metric]) -> None:
    """Text 1.0.0: names of any characters stand quoted inside the braces."""
    body = generate_latest(registry(made), escaping=ALLOWUTF8)
    assert contents(Reader().read(body)) == official(made)


@given(families(), families(), st.data())
@settings(deadline=None)
def test_a_second_page_is_read_like_a_first(
    first: list[Metric], second: list[Metric], data: st.DataObject
) -> None:
    """Changed values, added, removed and reordered series: as the official parser reads them."""
    reader = Reader()
    for made in (first, second, data.draw(st.permutations(second))):
        body = generate_latest(registry(made))
        assert as_official(reader.read(body)) == official(parse_text(body.decode()))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_pages_are_read_as_the_official_parser_does(path: Path) -> None:
    """Same series, same bits, nothing dropped, the types as printed."""
    body = path.read_bytes()
    page = Reader().read(body)
    assert as_official(page) == official(parse_text(body.decode()))
    assert (page.dropped, page.partial) == ({}, False)
    printed = [line.split() for line in body.decode().splitlines() if line[:7] == "# TYPE "]
    assert page.shape.types == {name: kind for _, _, name, kind in printed}


# ---------------------------------------------------------------- what lines may look like


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        ("m 1", ()),
        ("m{} 1", ()),
        ('m{a="b",c="d"} 1', (("a", "b"), ("c", "d"))),
        ('m{c="d",a="b"} 1', (("c", "d"), ("a", "b"))),
        ('m{a="b",} 1', (("a", "b"),)),
        ('  m\t{ a = "b"\t,\tc="d" , }\t 1 ', (("a", "b"), ("c", "d"))),
        ('m{a="b"}1', (("a", "b"),)),
        ("m\t1", ()),
        (r'm{a="\"q\" \\ \n"} 1', (("a", '"q" \\ \n'),)),
        (r'm{a="C:\dir\\"} 1', (("a", "C:\\dir\\"),)),
        ('m{a="}",b=",",c="="} 1', (("a", "}"), ("b", ","), ("c", "="))),
        ('m{a=" # {",b="#",c="{"} 1', (("a", " # {"), ("b", "#"), ("c", "{"))),
        ("m{a=\"{'k': \\\"v\\\"}\"} 1", (("a", "{'k': \"v\"}"),)),
        ('m{a=""} 1', (("a", ""),)),
        ('{"m",a="b"} 1', (("a", "b"),)),
        ('{a="b","m"} 1', (("a", "b"),)),
        ('m{"a.b"="c"} 1', (("a.b", "c"),)),
    ],
)  # fmt: skip
def test_labels_are_read_as_printed(line: str, labels: tuple[tuple[str, str], ...]) -> None:
    """Any order, blanks, a trailing comma, escapes, and any character in a value."""
    assert only(line) == (Series("m", labels), 1.0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        ("-0.5e-3", -0.0005),
        ("+1.", 1.0),
        (".5", 0.5),
        ("1e+011", 1e11),
        ("12345678901234567890", 12345678901234567890.0),
        ("Inf", math.inf),
        ("+Inf", math.inf),
        ("-inf", -math.inf),
        ("infinity", math.inf),
        ("NaN", math.nan),
        ("nan", math.nan),
        ("-nan", math.nan),
        ("1\t", 1.0),
        ("1 1700000000000", 1.0),
        ("1 1700000000.123", 1.0),
        ("1 -5", 1.0),
        ('1 # {trace_id="}{"} 0.5', 1.0),
        ('1 1700000000.1 # {t="a # b"} 0.5 1.6e9', 1.0),
    ],
)
def test_values_are_read(text: str, value: float) -> None:
    """What Prometheus reads, and the `-nan` of C++; timestamps and exemplars are left aside."""
    for series in ("m", 'm{a="b"}'):
        assert bits(only(f"{series} {text}")[1]) == bits(value)


@pytest.mark.parametrize(
    "line",
    [
        "m",
        "m ",
        "m{} ",
        "m 1_000",
        "m 1 1_000",
        "m 0x1p3",
        "m 1e",
        "m ١",
        "m one",
        "m 1 2 3",
        "m 1 {} 2",
        "m 1# {} 2",
        "m \x0b1",
        "m 1\0",
        "m 1 # \0",
        'm{a="\0"} 1',
        'm{a="b"',
        'm{a="b} 1',
        'm{a="b\\"} 1',
        "m{a=b} 1",
        "m{a} 1",
        'm{a="b"c="d"} 1',
        'm{,a="b"} 1',
        'm{a="b",,} 1',
        'm{1a="b"} 1',
        'm{a="b",a="c"} 1',
        'm{"n"} 1',
        '{a="b"} 1',
        '{"m","n"} 1',
        '{""} 1',
        "9m 1",
        "m-n 1",
        "mé 1",
        "}",
    ],
)
def test_malformed_lines_are_left_out_and_counted(line: str) -> None:
    """They do not cost their neighbours."""
    page = read("ok 1", line, "fine 2")
    assert [series.name for series in page.shape.series] == ["ok", "fine"]
    assert page.values == (1.0, 2.0)
    assert page.dropped == {"malformed": 1}


def test_other_writers_take_liberties_with_comments() -> None:
    """HELP and TYPE may lack, come twice, come late; a family may come in pieces."""
    page = read(
        "a 1", "", "# TYPE b counter", "# TYPE b gauge", "b 2", "# HELP a", '#\tTYPE\t"c.d"  info ',
        'b{x="1"} 3', "#", "# any words", "# TYPE e", "  # TYPE a gauge", 'a{x="1"} 4',
    )  # fmt: skip
    assert page.shape.types == {"b": "gauge", "c.d": "info", "a": "gauge"}
    assert page.values == (1.0, 2.0, 3.0, 4.0)
    assert page.shape.index == {"a": (0, 3), "b": (1, 2)}
    assert page.dropped == {}


def test_invalid_utf8_is_replaced() -> None:
    """One label in another encoding does not cost the series."""
    page = Reader().read(b'm{a="caf\xe9"} 1\n')
    assert page.shape.series == (Series("m", (("a", "caf\ufffd"),)),)


def test_lines_may_end_as_on_windows() -> None:
    """A carriage return before the newline is no part of the line."""
    page = Reader().read(b'# TYPE m gauge\r\nm{a="b"} 1\r\n\r\nn 2 1700000000000\r\n')
    assert (page.shape.types, page.values, page.dropped) == ({"m": "gauge"}, (1.0, 2.0), {})


def test_nothing_comes_after_the_end_mark() -> None:
    """What stands behind `# EOF` is malformed; the mark needs no newline."""
    page = read("a 1", "# EOF", "", "b 2", "# TYPE a gauge")
    assert (page.values, page.dropped, page.partial) == ((1.0,), {"malformed": 2}, False)
    page = Reader().read(b"a 1\n# EOF")
    assert (page.values, page.dropped, page.partial) == ((1.0,), {}, False)


def test_a_torn_last_line_is_ignored() -> None:
    """`12` may have been `1234`: a page without a newline at its end is partial."""
    page = Reader().read(b"a 1\nb 12")
    assert (page.values, page.dropped, page.partial) == ((1.0,), {}, True)
    page = Reader().read(b"b 12")
    assert (page.values, page.partial) == ((), True)


def test_the_last_of_duplicates_wins() -> None:
    """Also when the labels stand in another order; the others are counted."""
    page = read('a{x="1",y="2"} 1', "b 2", 'a{y="2",x="1"} 3', 'a{x="1",y="2"} 4')
    assert [series.name for series in page.shape.series] == ["a", "b"]
    assert page.values == (4.0, 2.0)
    assert page.dropped == {"duplicate": 2}


def test_the_last_of_duplicates_wins_whichever_changes() -> None:
    """The one that is overridden may change without effect, until the other is gone."""
    reader = Reader()
    for body, value, drop in (
        (b"a 1\na 2\n", 2.0, "duplicate"),
        (b"a 9\na 2\n", 2.0, "duplicate"),
        (b"a 9\na 3\n", 3.0, "duplicate"),
        (b"a 9\na x\n", 9.0, "malformed"),
    ):
        page = reader.read(body)
        assert (page.values, page.dropped) == ((value,), {drop: 1})


# ---------------------------------------------------------------- what is wanted, and how much


def test_only_wanted_families_are_read() -> None:
    """The others are skipped unread, even malformed ones; types are known of all."""
    page = read(
        "# TYPE a_x gauge", "# TYPE z gauge", "a_x 1", "z{ 2", "z", '{"z.y"} 3', ' a_y{l="z"} 4',
        '{"a_z"} 5', "b 6", wanted=["a_", "b"],
    )  # fmt: skip
    assert [series.name for series in page.shape.series] == ["a_x", "a_y", "a_z", "b"]
    assert page.shape.types == {"a_x": "gauge", "z": "gauge"}
    assert page.dropped == {}


@pytest.mark.parametrize("skipped", [b"z 2", b"a 2", b"", b"# TYPE a gauge", b"a"])
def test_a_skipped_line_that_becomes_a_wanted_one_is_seen(skipped: bytes) -> None:
    """The number of lines and all lines that were read are the same as before."""
    reader = Reader(["ab"])
    reader.read(b"abc 1\n" + skipped + b"\n")
    page = reader.read(b"abc 1\nab 2\n")
    assert [series.name for series in page.shape.series] == ["abc", "ab"]


@pytest.mark.parametrize("line", [b"5", b" 5", b"a5", b"", b"ab 5", b'a{x="1"} 5', b'a {x="1"} 5'])
def test_a_line_that_tells_of_something_else_is_not_taken_for_the_old(line: bytes) -> None:
    """Above all a bare number is not the series that stood there."""
    for before in (b"a 1", b"a\t1", b"a{} 1"):
        reader = Reader()
        reader.read(before + b"\nb 1\n")
        body = line + b"\nb 1\n"
        assert contents(reader.read(body)) == contents(Reader().read(body))


def test_pages_without_series_are_looked_at_each_time() -> None:
    """Only the torn line tells this one from the last."""
    reader = Reader()
    reader.read(b"# words\n")
    with pytest.raises(Malformed):
        reader.read(b"# words\nno metrics here")


def test_what_goes_beyond_the_limits_is_dropped_by_reason() -> None:
    """Lines too many or too long are `cap`, a label value too long is `labels`."""
    reader = Reader(limits=Limits(max_line_bytes=30, max_series=6, max_label_bytes=4))
    body = b'# HELP a %s\na 1\na{x="1234"} 2\na{x="12345"} 3\na %s5\nb 6\nc 7\n\nd 8\ne ' % (
        b"x" * 99, b" " * 30,
    )  # fmt: skip
    for _ in range(2):
        page = reader.read(body)
        assert page.values == (1.0, 2.0, 6.0)
        assert page.dropped == {"labels": 1, "cap": 4}
        assert page.partial


def test_what_is_left_of_a_capped_page_may_be_whole() -> None:
    """Dropped lines do not make it partial."""
    page = Reader(limits=Limits(max_series=1)).read(b"a 1\nb 2\nc 3\n")
    assert (page.values, page.dropped, page.partial) == ((1.0,), {"cap": 2}, False)


def test_eighty_thousand_labels_on_a_line_are_not_read() -> None:
    """They cost seconds once: after a few the line is dropped; as many as are allowed are read."""

    def line(number: int) -> bytes:
        return b"a{" + b",".join(b'l%d="x"' % i for i in range(number)) + b"} 1\n"

    page = Reader().read(line(64) + line(65) + line(80_000) * 10)
    assert (len(page.values), page.dropped) == (1, {"labels": 11})
    assert page.damaged
    page = Reader().read(line(65))
    assert (page.values, page.dropped) == ((), {"labels": 1})


def test_a_page_with_losses_is_damaged() -> None:
    """A duplicate is no loss; a malformed line, and what goes beyond the limits, is one."""
    assert not Reader().read(b"a 1\na 2\n").damaged
    assert Reader().read(b"a 1\nb x\n").damaged
    assert Reader().read(b"a 1\nb").damaged
    assert Reader(limits=Limits(max_series=1)).read(b"a 1\nb 2\n").damaged


def test_a_value_that_grows_beyond_the_limit_is_dropped() -> None:
    """The limit holds for known series, too."""
    reader = Reader(limits=Limits(max_line_bytes=10))
    reader.read(b"a 1\nb 2\n")
    page = reader.read(b"a 1.00000000\nb 2\n")
    assert (page.values, page.dropped) == ((2.0,), {"cap": 1})


# ---------------------------------------------------------------- what is no page of metrics


@pytest.mark.parametrize("wanted", [None, ["vllm:"]])
@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"<!DOCTYPE html>\n<body>\nup 1\n</body>\n", "line 1 begins '<!DOCTYPE html>'"),
        (b"\n  <html>", "line 2 begins '<html>'"),
        (b'{"error": "not found"}', "line 1 begins '{\"error\": \"not found\"}'"),
        (b'{\n  "detail": "Not Found"\n}\n', "line 1 begins '{'"),
        (b"[]", "line 1 begins '[]'"),
        (b"\x1f\x8b\x08\x00\x00\n\xff\xff", "line 1 begins '\\x1f"),
        ("a 1\nb 2\n".encode("utf-16"), "line 1 begins '\ufffd\ufffda\\x00"),
        (b"\0" * 99, "line 1 begins '\\x00"),
        (b"404 page not found\n", "line 1 begins '404 page not found'"),
        (b"Service Unavailable", "line 1 begins 'Service Unavailable'"),
        (b"# hello\nno\nno\n", "line 2 begins 'no'"),
        (b"no " * 99 + b"\n", "begins '" + "no " * 20 + "'"),
    ],
)  # fmt: skip
def test_what_is_no_page_of_metrics_is_refused(
    body: bytes, says: str, wanted: list[str] | None
) -> None:
    """The operator is told the line and how it begins; the reader is as good as before."""
    reader = Reader(wanted)
    before = reader.read(b"vllm:x 1\n")
    with pytest.raises(Malformed) as caught:
        reader.read(body)
    assert says in str(caught.value)
    assert reader.read(b"vllm:x 1\n").shape is before.shape


@pytest.mark.parametrize("wanted", [None, ["vllm:"]])
@pytest.mark.parametrize(
    "body", [b"", b"\n", b" \n\n", b"# EOF\n", b"# EOF", b"# words\n", b"# HELP a b\n", b"# HELP a"]
)
def test_an_empty_page_is_a_page(body: bytes, wanted: list[str] | None) -> None:
    """Whether it means anything is for others to say (vllm#8612, TGI#2184)."""
    page = Reader(wanted).read(body)
    assert (page.shape.series, page.values, page.dropped) == ((), (), {})


@pytest.mark.parametrize("body", [b"other 1\n", b"bad\nother 1\n", b"# TYPE other gauge\nbad\n"])
def test_a_page_of_other_families_is_a_page(body: bytes) -> None:
    """Metrics, only none that are wanted."""
    assert Reader(["vllm:"]).read(body).values == ()


# ---------------------------------------------------------------- reading again and again


def test_the_shape_is_the_same_object_while_the_set_of_series_is_the_same() -> None:
    """Whatever happens to values, order, comments and the spelling of labels."""
    reader = Reader()
    first = reader.read(b'# TYPE a gauge\na{x="1",y="2"} 1\na 2\nb 3\n')
    for body, values in (
        (b'# TYPE a gauge\na{x="1",y="2"} 7\na 8\nb 3\n', (7.0, 8.0, 3.0)),
        (b'b 3\n# TYPE a gauge\na 2\na{x="1",y="2"} 1\n', (1.0, 2.0, 3.0)),
        (
            b'# HELP a b\n# TYPE a gauge\na{x="1",y="2"} 1\nb 3\na NaN\na 4 # {} 1\n',
            (1.0, 4.0, 3.0),
        ),
        (b'# TYPE a gauge\na{y="2",x="1",} 5 1700\na 2 1700\nb 3 1700\n', (5.0, 2.0, 3.0)),
    ):
        page = reader.read(body)
        assert page.shape is first.shape
        assert page.values == values
    assert first.values == (1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    "body",
    [b"# TYPE a gauge\na 1\n", b"# TYPE a gauge\na 1\nc 2\n", b"# TYPE a counter\na 1\nb 2\n"],
)
def test_another_set_of_series_or_types_is_another_shape(body: bytes) -> None:
    """A series gone, a series renamed, a type changed."""
    reader = Reader()
    first = reader.read(b"# TYPE a gauge\na 1\nb 2\n")
    again = reader.read(body)
    assert again.shape is not first.shape
    assert contents(again) == contents(Reader().read(body))


SERIES = [
    b"a", b"a{}", b'a{x="1"}', b'a{x="1",}', b'a{ x = "1" }', b'a {x="1"}', b"a\t", b' a{x="1"}',
    b'a{x="2",y="}"}', b'a{y="}",x="2"}', b'ab{x="1"}', b'c_total{t=" # {"}', b'{"a",x="1"}',
    b'{"q.r"}', b'{"z.r"}', b"z", b'z{x="1"}', b'a{x="long value"}', b'a{x="\xff"}', b'a{x="\xfe"}',
    b'a{x="\\""}', b'a{x="1"', b"9",
]  # fmt: skip
TAILS = [
    b" 1", b" 2", b" 2.5", b"\t3", b"  4 ", b" NaN", b" -nan", b" +Inf", b" 1e+011", b" 5 17000",
    b" 5 18000", b' 6 # {t="}"} 0.5 1.2', b' 7 1.5 # {t="x"} 1', b"8", b"", b" ", b" 1_0",
    b" 0x1p3", b" infinity", b" 1 x", b" \x0b1", b" 1\x0c", b'{x="1"} 9', b' {x="1"} 9', b" 1\0",
    b" 1\r", b"}",
    b" 1" + b" " * 20,
]  # fmt: skip
OTHERS = [
    b"", b" ", b"# TYPE a gauge", b"# TYPE a counter", b"# TYPE z gauge", b"# HELP a b", b"#",
    b"# EOF", b" # EOF", b"<html>", b"5", b"}", b"{",
]  # fmt: skip
LINES = st.tuples(st.sampled_from(SERIES), st.sampled_from(TAILS)) | st.tuples(
    st.sampled_from(OTHERS), st.just(b"")
)
EDITS = st.tuples(
    st.sampled_from(("value", "value", "value", "line", "insert", "delete", "swap")),
    st.integers(0, 9),
    LINES,
)
LIMITS = [Limits(), Limits(max_line_bytes=20, max_series=7, max_label_bytes=4)]


def outcome(reader: Reader, body: bytes) -> object:
    """Return all that a reader says of a page, in a form that can be compared."""
    try:
        page = reader.read(body)
    except Malformed as error:
        return str(error)
    return contents(page), page.shape.types, page.dropped, page.partial


def edited(
    lines: list[tuple[bytes, bytes]], edits: list[tuple[str, int, tuple[bytes, bytes]]]
) -> list[tuple[bytes, bytes]]:
    lines = list(lines)
    for what, at, line in edits:
        at %= max(len(lines), 1)  # noqa: PLW2901
        if what == "insert" or not lines:
            lines.insert(at, line)
        elif what == "value":
            lines[at] = (lines[at][0], line[1])
        elif what == "line":
            lines[at] = line
        elif what == "delete":
            del lines[at]
        else:
            lines[at], lines[0] = lines[0], lines[at]
    return lines


@given(
    st.lists(LINES, max_size=8),
    st.lists(st.lists(EDITS, max_size=3), min_size=1, max_size=5),
    st.sampled_from([b"\n", b"\n", b"\r\n", b""]),
    st.sampled_from([None, ["a", "c", "q"]]),
    st.sampled_from(LIMITS),
)
@settings(deadline=None, max_examples=500)
def test_a_reader_that_remembers_says_what_a_new_one_says(
    lines: list[tuple[bytes, bytes]],
    steps: list[list[tuple[str, int, tuple[bytes, bytes]]]],
    end: bytes,
    wanted: list[str] | None,
    limits: Limits,
) -> None:
    """Whatever pages came before: series, values, types, drops, and whether it is a page at all."""
    reader = Reader(wanted, limits)
    shape, before = None, None
    for edits in ([], *steps):
        lines = edited(lines, edits)
        body = (end or b"\n").join(series + tail for series, tail in lines) + end
        now = outcome(Reader(wanted, limits), body)
        assert outcome(reader, body) == now
        if isinstance(now, tuple):
            page = reader.read(body)
            same = before is not None and (set(now[0]), now[1]) == before
            assert (page.shape is shape) == same or not now[0]
            shape, before = page.shape, (set(now[0]), now[1])


def test_a_thousand_pages_leave_no_more_behind_than_ten() -> None:
    """New labels, timestamps, exemplars and orders of labels come and go."""

    def page(n: int) -> bytes:
        both = (b'a="1"', b'b="2"', b'c="%03d"' % n)
        return b"".join(
            (
                b'm{l="%03d"} 1\n' % n,
                b"t{} 1 17%03d\n" % n,
                b't{x="1"} 17%03d\n' % n,
                b'e_total{x="1"} 1 # {trace_id="%03d"} 1\n' % n,
                b'e_total 1 # {trace_id="%03d"} 1\n' % n,
                b"o{%b} 1\n" % b",".join(both[n % 3 :] + both[: n % 3]),
                b"bad %03d 2 3\n" % n,
                b"z%03d 2\n" % n,
            )
        )  # fmt: skip

    reader = Reader(["m", "t", "e", "o", "bad"])
    sizes = []
    for n in range(1000):
        reader.read(page(n))
        if n in (9, 999):
            sizes.append(footprint(reader))
    assert sizes[1] <= sizes[0]


def footprint(root: object) -> int:
    """Return the bytes of everything that can be reached from an object, code left out."""
    seen = {id(root): root}
    queue = [root]
    while queue:
        for item in gc.get_referents(queue.pop()):
            if id(item) not in seen and not isinstance(item, (type, ModuleType, FunctionType)):
                seen[id(item)] = item
                queue.append(item)
    return sum(map(sys.getsizeof, seen.values()))


@given(st.sampled_from(RECORDED), st.data())
@settings(deadline=None, max_examples=60)
def test_no_damage_to_a_page_brings_anything_but_malformed(path: Path, data: st.DataObject) -> None:
    """Bytes changed, cut out, doubled: the rest is read, and read alike by old and new readers."""
    original = path.read_bytes()
    damaged = bytearray(original)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(damaged)))
        size = data.draw(st.integers(0, 40))
        what = data.draw(st.sampled_from(("overwrite", "cut", "double")))
        if what == "double":
            damaged[at:at] = damaged[at : at + size]
        else:
            damaged[at : at + size] = (
                data.draw(st.binary(max_size=3)) if what == "overwrite" else b""
            )
    reader = Reader()
    reader.read(original)
    body = bytes(damaged)
    assert outcome(reader, body) == outcome(Reader(), body)
    assert outcome(reader, original) == outcome(Reader(), original)


def test_bad_lines_in_masses_cost_no_more_than_good_ones() -> None:
    """Lines are tried once and in one direction; what is too much is only counted."""
    bad = b'm{a="' + b'\\"' * 200_000 + b"\n" + b"m{" + b'a="b",' * 100_000 + b"\n"
    page = Reader().read(b"ok 1\n" + bad + b"x\n" * 400_000 + b'm{a="b} 1\n' * 50_000)
    assert page.values == (1.0,)
    assert page.dropped == {"malformed": 49_998, "labels": 1, "cap": 400_003}


def test_an_unchanged_page_of_a_server_is_followed() -> None:
    """Half of the values of a real page change: the same as the official parser reads."""
    reader = Reader()
    body = VLLM.read_bytes()
    first = reader.read(body)
    changed = body.replace(b"1.0\n", b"17.5\n")
    second = reader.read(changed)
    assert second.shape is first.shape
    assert as_official(second) == official(parse_text(changed.decode()))
    assert as_official(first) == official(parse_text(body.decode()))
