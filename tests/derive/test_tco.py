"""Plans of total cost of ownership: the specification's own, and what can be wrong with one."""

from __future__ import annotations

import copy
import random
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.derive.money.depreciation import CHAPTER, Curve, Point, residual_value
from exporter.derive.money.tco import Plan, read_tco
from exporter.reference.prices import ListPrice, Prices

EXAMPLE = Path(__file__).parent.parent.parent / "deploy/tco.example.yaml"
HERE = ("gpus", "utilization", "depreciation", "cloud")


LOADED: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text("utf-8"))


def document() -> dict[str, Any]:
    """Return the example: the specification's plan with what 16.6.3 adds."""
    return copy.deepcopy(LOADED)


def printed() -> dict[str, Any]:
    """Return the plan as the specification prints it, nothing added."""
    return {key: value for key, value in document().items() if key not in HERE}


def test_the_specifications_plan_is_read_as_printed() -> None:
    """With comments, subtotals and totals; and without GPUs there is no price of an hour."""
    plan = read_tco(printed())

    assert plan.capex_total == 71_534_000
    assert plan.opex_annual == pytest.approx(7_989_111, abs=1)
    assert plan.gpus is None
    assert plan.cost_per_owned_gpu_hour(5) is None
    assert plan.cost_per_used_gpu_hour(5) is None
    assert plan.residual(5) == 0
    assert plan.rent(5) == []


def test_sums_that_do_not_add_up_are_named_with_the_right_ones() -> None:
    """Three of the specification's; rounded ones such as 2779 kW are not among them."""
    wrong = {one.key: one for one in read_tco(printed()).wrong}

    assert set(wrong) == {
        "capex.total_capex",
        "opex_annual.hardware_maintenance.annual_cost",
        "opex_annual.total_annual_opex",
    }
    total = wrong["capex.total_capex"]
    assert (total.stated, total.right) == (72_184_000, 71_534_000)
    upkeep = wrong["opex_annual.hardware_maintenance.annual_cost"]
    assert (upkeep.stated, upkeep.right) == (3_138_000, pytest.approx(3_301_700))
    yearly = wrong["opex_annual.total_annual_opex"]
    assert (yearly.stated, yearly.as_stated) == (8_825_523, 7_825_523)
    assert yearly.right == pytest.approx(7_989_111, abs=1)


@pytest.mark.parametrize("key", ["subtotal", "annual_cost"])
def test_each_stated_sum_is_compared(key: str) -> None:
    """Whatever category it belongs to: a sum that is made a tenth larger is found."""
    sections = {"subtotal": "capex", "annual_cost": "opex_annual"}
    names = [
        name for name, value in printed()[sections[key]].items()
        if isinstance(value, dict) and name != "hardware_maintenance"
    ]  # fmt: skip
    assert len(names) >= 4
    for name in names:
        changed = printed()
        changed[sections[key]][name][key] *= 1.1
        found = {one.key for one in read_tco(changed).wrong}
        assert f"{sections[key]}.{name}.{key}" in found


def test_power_and_energy_that_are_stated_wrong_are_named() -> None:
    changed = printed()
    changed["opex_annual"]["electricity"]["total_facility_power"] = 2573
    changed["opex_annual"]["electricity"]["annual_consumption"] = 1e6
    found = {one.key for one in read_tco(changed).wrong}
    assert "opex_annual.electricity.total_facility_power" in found
    assert "opex_annual.electricity.annual_consumption" in found


def test_the_table_adds_up() -> None:
    """Each category once, shares of the whole, and the columns' sums are the plan's."""
    plan = read_tco(document())
    for years in (3, 5):
        rows = plan.table(years)
        assert [row.name for row in rows][:2] == ["gpu_servers", "networking"]
        assert len(rows) == 10
        assert sum(row.capex for row in rows) == pytest.approx(plan.capex_total)
        assert sum(row.opex for row in rows) == pytest.approx(plan.opex_annual * years)
        assert sum(row.total for row in rows) == pytest.approx(plan.total(years))
        assert sum(row.share for row in rows) == pytest.approx(1)


def test_owned_and_used_hours_have_two_prices() -> None:
    """Of the specification's 83.4 million over three years: 1.59 and 2.12."""
    plan = read_tco({
        "capex": {"gpu_hardware": 72e6},
        "opex_annual": {"all": 8.8e6},
        "gpus": 2000,
        "utilization": 0.75,
        "depreciation": {"residual": {3: 15e6}},
    })  # fmt: skip
    assert plan.net(3) == pytest.approx(83.4e6)
    assert plan.cost_per_owned_gpu_hour(3) == pytest.approx(1.587, abs=5e-4)
    assert plan.cost_per_used_gpu_hour(3) == pytest.approx(2.116, abs=5e-4)


def test_a_reservation_is_paid_for_every_hour() -> None:
    """On-demand and spot are paid for the hours that are used."""
    rents = {one.pricing: one for one in read_tco(document()).rent(3)}
    assert rents["on_demand"].paid == pytest.approx(484.47e6, rel=1e-4)
    assert rents["reserved"].paid == pytest.approx(387.58e6, rel=1e-4)
    assert rents["reserved"].used == pytest.approx(290.68e6, rel=1e-4)
    assert rents["spot"].times == pytest.approx(145.34 / 80.50, rel=1e-3)


def test_owning_is_cheaper_from_a_utilization_on() -> None:
    plan = read_tco(document())
    even = plan.even_at(3, 12.29)
    assert even is not None
    at = read_tco({**document(), "utilization": even})
    assert at.cost_per_used_gpu_hour(3) == pytest.approx(12.29)


def test_a_cloud_without_prices_of_its_own_takes_the_list() -> None:
    """And says which row, of which day."""
    row = ListPrice("p5.48xlarge", "spot", 8, 24.0, "", "https://example.com", date(2026, 1, 2))

    def prices(instance_type: str, pricing: str) -> ListPrice | None:
        return row if (instance_type, pricing) == ("p5.48xlarge", "spot") else None

    plan = read_tco({**document(), "cloud": {"instance_type": "p5.48xlarge"}}, prices)
    assert list(plan.clouds) == ["spot"]
    assert plan.clouds["spot"].dollars == 3
    assert plan.clouds["spot"].source == "list price of 2026-01-02: https://example.com"
    with pytest.raises(ValueError, match=r"^cloud: no price is stated.*'p5.48xlarge'"):
        read_tco({**document(), "cloud": {"instance_type": "p5.48xlarge"}}, Prices([]).find)


def test_other_ways_to_write_a_plan() -> None:
    """Plain numbers, lines of quantity and price, a sum without parts, GPUs by server."""
    plan = read_tco({
        "capex": {
            "gpu_servers": {"quantity": 10, "unit_price": 100.0, "gpus_per_server": 8},
            "network": {"switches": {"quantity": 2, "unit_price": 5}, "cables": 3},
            "land": 7,
            "storage": {"subtotal": 11},
        },
        "opex_annual": {
            "maintenance": {"annual_rate": 0.1, "of": ["land"]},
            "rest": {"annual_cost": 2},
        },
    })  # fmt: skip
    assert plan.bought == {"gpu_servers": 1000, "network": 13, "land": 7, "storage": 11}
    assert plan.yearly == {"maintenance": pytest.approx(0.7), "rest": 2}
    assert plan.gpus == 80
    assert plan.wrong == []


@pytest.mark.parametrize("name", ["facility", "infrastructure", "building", "datacenter"])
def test_hardware_maintenance_is_not_of_the_building(name: str) -> None:
    plan = read_tco(
        {"capex": {"gpus": 100, name: 900}, "opex_annual": {"care": {"annual_rate": 0.1}}}
    )
    assert plan.yearly == {"care": pytest.approx(10)}


# ---------------------------------------------------------------- what is left of the price


def test_the_chapters_curve() -> None:
    """16.6.4: 24,000, 15,000 and 9,000 of an H100's 30,000."""
    assert residual_value(30_000, 1, "current") == 24_000
    assert residual_value(30_000, 2, "previous") == 15_000
    assert residual_value(30_000, 3, "two_generations") == 9_000
    assert CHAPTER.generation_at(2.5) == "two_generations"


def test_between_the_curves_points_value_falls_steadily() -> None:
    """New it is worth its price; between two points, what lies between; old, next to nothing."""
    assert CHAPTER.rate(0) == 1
    assert CHAPTER.rate(0.5) == pytest.approx(0.9)
    assert CHAPTER.rate(2.5) == pytest.approx(0.4)
    assert CHAPTER.rate(5) == pytest.approx(0.1)
    assert CHAPTER.rate(9) == CHAPTER.rate(9, "current") == 0.05
    ages = [at / 10 for at in range(80)]
    rates = [CHAPTER.rate(age) for age in ages]
    assert rates == sorted(rates, reverse=True)


def test_a_curve_of_ones_own_does_not_rise_behind_its_end() -> None:
    """A GPU that fetches 1 % after two years was worth 5 % after three."""
    curve = Curve([Point(1, "current", 0.5), Point(2, "old", 0.01)])
    assert [curve.rate(years) for years in (2, 3, 9)] == [0.01, 0.01, 0.01]


def test_a_generation_that_comes_early_takes_the_value_along() -> None:
    """A year old and outdated: half is left, as 16.6.4 says in words (its code says 5 %)."""
    assert CHAPTER.rate(1, "previous") == 0.5
    assert CHAPTER.rate(2, "current") == 0.8
    with pytest.raises(ValueError, match="'ancient' is not a generation"):
        CHAPTER.rate(1, "ancient")
    with pytest.raises(ValueError, match="needs a point"):
        Curve([])
    assert Curve([Point(2, "only", 0.5)]).rate(1) == 0.75


def test_a_plan_says_how_its_hardware_loses_value() -> None:
    plan = read_tco({
        **printed(),
        "depreciation": {
            "of": ["gpu_servers", "networking"],
            "curve": {"new": {1: 0.9}, "old": {4: 0.4}},
            "generation": {2: "old"},
        },
    })  # fmt: skip
    price = 62.5e6 + 1.934e6
    assert plan.residual(1) == pytest.approx(0.9 * price)
    assert plan.residual(3) == pytest.approx(0.4 * price)
    assert plan.residual(6) == pytest.approx(0.05 * price)


def test_a_stated_residual_value_counts_for_its_year_only() -> None:
    plan = read_tco(document())
    assert plan.residual(3) == 15e6
    assert plan.residual(5) == pytest.approx(6.25e6)


# ---------------------------------------------------------------- what can be wrong


GONE = object()
EL, HW = "opex_annual.electricity", "opex_annual.hardware_maintenance"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("capex.gpu_servers.quantity", "1e6", "@: a number is wanted, not '1e6'"),
        ("capex.facility", True, "@: a number is wanted, not True"),
        ("capex.facility", None, "@: a number is wanted, not None"),
        ("capex.facility", float("nan"), "@: a number is wanted, not nan"),
        ("capex.facility", 10**400, "@: a number is wanted"),
        ("capex.facility", -1, "@: a number from 0 on is wanted, not -1"),
        ("capex.facility", {}, "@: has neither lines nor subtotal"),
        ("capex.storage.discs", [1], "@: a number is wanted, not a list"),
        ("capex.storage.discs", {"quantity": 2}, "@.unit_price: this key is needed"),
        ("capex.storage.discs", {}, "@: quantity and unit_price, or a number, are wanted"),
        ("capex.gpu_servers.unit_price", GONE, "@: this key is needed"),
        ("capex", {1: 2}, "1: the name of a category must be a word"),
        ("opex_annual", [], "@: a mapping of keys is wanted, not a list"),
        (f"{EL}.pue", GONE, "@: this key is needed"),
        (f"{EL}.pue", 0.5, "@: a number from 1 on is wanted, not 0.5"),
        (f"{EL}.Pue", 1, "@: unknown key; there are"),
        ("opex_annual.colocation.rack_count", GONE, "@: this key is needed"),
        ("opex_annual.staffing", {"fully_loaded_cost_per_engineer": 1}, "@: says what an engineer"),
        (f"{HW}.of", ["x"], "@: 'x' is not one of gpu_servers,"),
        (f"{HW}.of", ["storage", "storage"], "@: 'storage' is named twice"),
        ("depreciation.of", ["gpu_servers", "gpu_servers"], "@: 'gpu_servers' is named twice"),
        (f"{HW}.annual_rate", 5, "@: a number from 0 on, 1 at most, is wanted, not 5"),
        ("gpus", 0, "@: a number above 0 is wanted, not 0"),
        ("utilization", 75, "@: a number above 0, 1 at most, is wanted, not 75"),
        ("capex.gpu_servers.gpus_per_server", 16, "gpus: 2000, but gpus_per_server and"),
        ("capital", 1, "@: unknown key; there are capex,"),
        ("scales_with_gpus", "gpu_servers", "@: a list of purchases is wanted, not 'gpu_servers'"),
        ("depreciation.residual", {3: 99e6}, "@.3: 99,000,000 is more than the 62,500,000"),
        ("depreciation.residual", {"x": 1}, "@: a number is wanted, not 'x'"),
        ("depreciation.generation", {2: "olden"}, "@.2: one of current, previous"),
        ("depreciation.curve", {}, "@: holds no point"),
        ("cloud", {"spot_discount": 0.7}, "@.spot_discount: there is no on_demand price"),
        ("cloud", {}, "@: no price is stated, and the list has none without an instance_type"),
        (f"{EL}.hours", 0, "@: a number above 0, 8784 at most, is wanted, not 0"),
        ("depreciation.curve", {1: {1: 0.5}}, "@.1: the name of a generation must be a word"),
        ("cloud", {"instance_type": 5}, "@.instance_type: a name is wanted, not 5"),
    ],
)
def test_an_error_names_the_key(path: str, value: object, said: str) -> None:
    """And what is wrong there, in a line."""
    plan = document()
    section, keys = plan, path.split(".")
    for key in keys[:-1]:
        section = section[key]
    if value is GONE:
        del section[keys[-1]]
    else:
        section[keys[-1]] = value

    with pytest.raises(ValueError, match=re.escape(said.replace("@", path))) as error:
        read_tco(plan)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("what", [None, [], "text", 5, {}])
def test_what_is_no_plan_is_said_so(what: object) -> None:
    with pytest.raises(
        ValueError, match=r"^(the document: a mapping|capex, opex_annual: at least)"
    ):
        read_tco(what)


def test_each_of_the_two_printed_parts_is_a_plan() -> None:
    """Yearly costs alone: a share of purchases that are not there is what is stated of it."""
    capex, opex = printed()["capex"], printed()["opex_annual"]
    assert read_tco({"capex": capex}).total(5) == 71_534_000
    alone = read_tco({"opex_annual": opex})
    assert alone.yearly["hardware_maintenance"] == 3_138_000
    assert [one.key for one in alone.wrong] == ["opex_annual.total_annual_opex"]
    del opex["hardware_maintenance"]["annual_cost"]
    with pytest.raises(ValueError, match=r"annual_rate: there are no purchases to take a share"):
        read_tco({"opex_annual": opex})


def spoiled(value: Any, chance: random.Random) -> Any:
    """Return a document with something in it replaced, dropped or renamed."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        name = chance.choice(list(value))
        changed = {key: one for key, one in value.items() if key != name}
        if chance.random() < 0.9:
            changed[chance.choice([name, name, name, 1, "other"])] = spoiled(value[name], chance)
        return changed
    return chance.choice(
        [
            None,
            True,
            "text",
            "",
            -1,
            0,
            1e300,
            float("nan"),
            10**400,
            [],
            [[]],
            {},
            {1: {}},
            {"of": 1},
        ]
    )


def test_whatever_a_document_holds_it_is_a_plan_or_an_error_of_one_line() -> None:
    """Nothing else is raised, and a plan that is read can be computed."""
    chance = random.Random(16)
    read, said = 0, list[str]()
    for _ in range(3000):
        try:
            plan = read_tco(spoiled(document(), chance))
        except ValueError as error:
            said.append(str(error))
            continue
        read += 1
        for years in (1, 3, 5):
            plan.table(years), plan.rent(years), plan.cost_per_used_gpu_hour(years)
        assert all(one.stated != one.right for one in plan.wrong)
    assert read > 100
    assert len(said) > 1000
    assert [one for one in said if "\n" in one or len(one) > 400] == []


def test_a_plan_of_nothing_but_energy() -> None:
    """No purchases: no residual value, no division by nothing."""
    electricity = {"it_power": 10, "pue": 1.5, "electricity_rate": 0.1, "carbon_intensity": 400}
    plan: Plan = read_tco({"opex_annual": {"power": electricity}})
    assert plan.net(1) == pytest.approx(10 * 1.5 * 8760 * 0.1)
    assert plan.electricity is not None
    assert plan.electricity.carbon_tonnes == pytest.approx(52.56)
    assert [row.share for row in plan.table(1)] == [1]
