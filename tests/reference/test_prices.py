"""The table of list prices that comes with the package."""

from __future__ import annotations

from collections import Counter
from datetime import date

import pytest

from exporter.reference import prices
from exporter.reference.prices import PRICINGS, Prices

ROW = {
    "instance_type": "p5.48xlarge", "pricing": "on_demand", "gpus": 8, "dollars_per_hour": 98.32,
    "region": "us-east-1", "source": "https://example.com/prices", "as_of": "2024-01-01",
}  # fmt: skip
DAY = 86_400


def test_every_row_has_a_source_that_can_be_looked_up_and_a_day() -> None:
    """An address, or a place in the seed chapter; and no day is stated twice."""
    rows = prices.load().rows
    assert len(rows) >= 20
    for row in rows:
        assert row.source.startswith(("https://", "seed chapter 16.")), row
        assert date(2024, 1, 1) <= row.as_of <= date(2026, 11, 30), row
        assert row.pricing in PRICINGS
        assert 0.5 < row.dollars_per_gpu_hour < 15, row
    keys = Counter((row.instance_type, row.pricing, row.as_of) for row in rows)
    assert max(keys.values()) == 1


def test_no_gpu_of_a_larger_instance_costs_more_than_of_a_smaller_one() -> None:
    """Such a row is a mistake of its source: it holds another system's licence, or another GPU."""
    one, two = (
        prices.listed("a2-highgpu-1g", "on_demand"),
        prices.listed("a2-highgpu-2g", "on_demand"),
    )
    small, whole = prices.listed("a3-highgpu-1g", "spot"), prices.listed("a3-highgpu-8g", "spot")
    assert one is not None and two is not None and small is not None and whole is not None
    assert two.dollars_per_gpu_hour == pytest.approx(one.dollars_per_gpu_hour)
    assert whole.dollars_per_gpu_hour == pytest.approx(small.dollars_per_gpu_hour, rel=1e-3)


def test_spot_and_reserved_are_below_on_demand() -> None:
    """For every instance that has both, of the same day."""
    table = prices.load()
    compared = 0
    for row in table.rows:
        full = table.find(row.instance_type, "on_demand", until=row.as_of)
        if row.pricing != "on_demand" and full is not None and full.as_of == row.as_of:
            assert row.dollars_per_hour < full.dollars_per_hour, row
            compared += 1
    assert compared >= 8


def test_the_newest_price_counts_and_an_older_one_can_be_asked_for() -> None:
    """The seed chapter's 98.32 of 2024 is no longer the price; calculations of then rest on it."""
    now = prices.listed("P5.48XLARGE", "on_demand")
    then = prices.load().find("p5.48xlarge", "on_demand", until=date(2025, 1, 1))
    assert now is not None and then is not None
    assert now.dollars_per_hour == 55.04
    assert then.dollars_per_gpu_hour == pytest.approx(12.29)
    assert prices.load().find("p5.48xlarge", "on_demand", until=date(2023, 1, 1)) is None


def test_what_is_not_in_the_table_has_no_price() -> None:
    assert prices.listed("p5.48xlarge", "reserved") is None
    assert prices.listed("made-up.large", "spot") is None


def test_a_price_tells_its_age() -> None:
    """In seconds since the beginning of its day, UTC."""
    (row,) = Prices([ROW]).rows
    assert row.as_of_seconds == 1_704_067_200
    assert row.age(1_704_067_200 + 10 * DAY) == 10 * DAY


def test_an_empty_table_runs() -> None:
    empty = Prices([])
    assert empty.find("p5.48xlarge", "on_demand") is None
    assert empty.as_of is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"source": ""}, r"prices\[0\]: source"),
        ({"as_of": None}, r"prices\[0\]: as_of"),
        ({"pricing": "cheap"}, "pricing: one of on_demand, reserved, spot, not 'cheap'"),
        ({"dollars_per_hour": 0}, "above 0"),
        ({"as_of": "yesterday"}, "yesterday"),
    ],
)
def test_no_source_no_row(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Prices([{**ROW, **change}])
