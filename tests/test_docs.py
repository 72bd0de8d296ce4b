"""The documents say what the code does, and the catalogue keeps the rules for names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exporter import catalogue
from exporter.samples import Metric

ROOT = Path(__file__).parent.parent

DOMAINS = (
    "gpu", "nic", "host", "train", "llm", "sla", "cost", "spot", "nccl", "topology", "diagnosis",
    "flopwatch", "process",
)  # fmt: skip
BASE_UNITS = (
    "seconds", "bytes", "joules", "watts", "volts", "amperes", "hertz", "celsius", "ratio",
    "dollars",
)  # fmt: skip
OTHER_UNITS = (
    "ms", "milliseconds", "us", "microseconds", "ns", "nanoseconds", "minutes", "hours", "days",
    "bits", "kb", "mb", "gb", "kib", "mib", "gib", "kilobytes", "megabytes", "gigabytes",
    "milliwatts", "kilowatts", "kwh", "mhz", "ghz", "megahertz", "fahrenheit", "kelvin",
    "percent", "percentage", "pct", "cents", "usd",
)  # fmt: skip
# Endings that the exposition formats give to the series of a histogram or a counter.
RESERVED_ENDINGS = ("_bucket", "_count", "_sum", "_created")
# Prometheus, its scrape configuration or the histogram format own these.
FORBIDDEN_LABELS = {"job", "instance", "service", "cluster", "env", "region", "le"}
SNAKE_CASE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def rows() -> dict[str, Metric]:
    """Return every row of the catalogue by the name of its constant."""
    return {name: row for name, row in vars(catalogue).items() if isinstance(row, Metric)}


def flaws(constant: str, row: Metric) -> list[str]:
    """Return what is wrong with a row, one line for each rule that it breaks."""
    stem = row.name.removesuffix("_total")
    unit = next((u for u in BASE_UNITS if stem.endswith(f"_{u}")), "")
    words = row.name.split("_")
    labels = set(row.labels)
    rules = {
        f"its constant should be {row.name.upper()}": constant == row.name.upper(),
        "the name is not snake_case": SNAKE_CASE.fullmatch(row.name),
        f"the name does not begin with one of {', '.join(DOMAINS)}": words[0] in DOMAINS,
        "counters, and only they, end in _total": (row.kind == "counter")
        == row.name.endswith("_total"),
        "info rows, and only they, end in _info": (row.kind == "info")
        == row.name.endswith("_info"),
        "the name ends as the series of a histogram do": not row.name.endswith(RESERVED_ENDINGS),
        f"unit {row.unit!r} is not the one in the name, {unit!r}": row.unit == unit,
        "the name has a unit that is not a base unit": not set(words) & set(OTHER_UNITS),
        "a ratio is told in percent": unit != "ratio" or not re.search(r"percent|%", row.help),
        "the help does not end with a full stop": row.help.endswith("."),
        "the help is not one line, or has blanks to spare": row.help == " ".join(row.help.split()),
        f"labels that others own: {sorted(labels & FORBIDDEN_LABELS)}": not labels
        & FORBIDDEN_LABELS,
        "a label is not snake_case": all(map(SNAKE_CASE.fullmatch, row.labels)),
        "a label is named twice": len(labels) == len(row.labels),
        "it has no group": row.group,
    }
    return [f"{constant} ({row.name}): {said}" for said, kept in rules.items() if not kept]


def test_every_row_keeps_the_rules_for_names() -> None:
    """Names, labels, units and helps follow one set of rules."""
    broken = [flaw for constant, row in rows().items() for flaw in flaws(constant, row)]
    if broken:
        pytest.fail("\n".join(broken), pytrace=False)


def test_every_row_is_in_the_table_once() -> None:
    """No family name is used by two rows, and the table has them all."""
    names = [row.name for row in rows().values()]
    assert len(names) > 1
    assert sorted(names) == sorted(catalogue.FAMILIES)


@pytest.mark.parametrize(
    ("name", "kind", "unit", "labels", "said"),
    [
        ("host_load", "counter", "", (), "counters, and only they, end in _total"),
        ("host_load_total", "gauge", "", (), "counters, and only they, end in _total"),
        ("host_details", "info", "", (), "info rows, and only they, end in _info"),
        ("host_info", "gauge", "", (), "info rows, and only they, end in _info"),
        ("host_wait_count", "gauge", "", (), "the name ends as the series of a histogram do"),
        ("host_wait_ms", "gauge", "", (), "the name has a unit that is not a base unit"),
        ("host_busy_percent", "gauge", "", (), "the name has a unit that is not a base unit"),
        ("host_wait_seconds", "gauge", "", (), "unit '' is not the one in the name, 'seconds'"),
        ("host_wait", "gauge", "seconds", (), "unit 'seconds' is not the one in the name, ''"),
        ("host_Wait", "gauge", "", (), "the name is not snake_case"),
        ("ai_gpus", "gauge", "", (), "the name does not begin with one of gpu, nic"),
        ("host_load", "gauge", "", ("job",), "labels that others own: ['job']"),
        ("host_load", "gauge", "", ("a", "a"), "a label is named twice"),
        ("host_load", "gauge", "", ("Mode",), "a label is not snake_case"),
    ],
)
def test_a_bad_row_is_found(
    name: str, kind: str, unit: str, labels: tuple[str, ...], said: str
) -> None:
    """A row that breaks one rule is named with that rule."""
    row = Metric(name, kind, "Something.", labels, "host", unit)  # type: ignore[arg-type]
    (flaw,) = flaws(name.upper(), row)
    assert flaw.startswith(f"{name.upper()} ({name}): {said}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Something", "the help does not end with a full stop"),
        ("Some\nthing.", "the help is not one line, or has blanks to spare"),
        ("Something in percent.", "a ratio is told in percent"),
    ],
)
def test_a_bad_help_is_found(text: str, said: str) -> None:
    """A help that breaks one rule is named with that rule."""
    row = Metric("host_load_ratio", "gauge", text, (), "host", "ratio")
    assert flaws("HOST_LOAD_RATIO", row) == [f"HOST_LOAD_RATIO (host_load_ratio): {said}"]


def test_a_constant_with_another_name_is_found() -> None:
    """A row stands under its own name in capitals."""
    row = Metric("host_load", "gauge", "Something.", (), "host")
    assert flaws("HOST_LOADS", row) == ["HOST_LOADS (host_load): its constant should be HOST_LOAD"]


def test_the_reference_is_generated() -> None:
    """docs/METRICS.md is what the catalogue says today; `make docs` writes it."""
    from exporter.exposition import reference

    written = (ROOT / "docs" / "METRICS.md").read_text("utf-8")
    assert written == reference(), "docs/METRICS.md is out of date: run `make docs`"


def test_the_changelog_is_open() -> None:
    """The changelog has a section for what is not released yet, above all releases."""
    changelogs = sorted(ROOT.glob("CHANGELOG*.md"))
    assert changelogs
    for changelog in changelogs:
        headings = re.findall(r"^## (.*)$", changelog.read_text("utf-8"), re.MULTILINE)
        assert headings[:1] == ["[Unreleased]"], changelog.name
