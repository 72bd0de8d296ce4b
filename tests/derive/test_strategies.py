"""What-ifs on plans: each changes what it says it changes, and the work stays the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.derive.money.plan import Plan
from exporter.derive.money.strategies import STRATEGIES, Outcome, Values, together, what_if
from exporter.derive.money.tco import read_tco

EXAMPLE = Path(__file__).parent.parent.parent / "deploy/tco.example.yaml"
DOCUMENT: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text("utf-8"))
PLAN = read_tco(DOCUMENT)
PUE = {"target": 1.04}
"""The specification's building is at 1.08 already."""


def outcome(name: str, values: Values | None = None, plan: Plan = PLAN, years: int = 5) -> Outcome:
    return what_if(plan, STRATEGIES[name], values or (PUE if name == "pue" else {}), years)


def test_the_strategies_are_those_of_table_16_12() -> None:
    assert list(STRATEGIES) == ["sharing", "pue", "carbon", "reuse", "open-source", "burst"]


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_keeps_the_work(name: str) -> None:
    """The hours of work are the same after it, or the saving would be of something else."""
    after = outcome(name).after
    assert after.used_gpu_hours(5) == pytest.approx(PLAN.used_gpu_hours(5))


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_says_its_terms(name: str) -> None:
    """Each assumption with its number; and without any of them changed it says the same."""
    found = outcome(name)
    assert len(found.terms) == len(STRATEGIES[name].assumptions)
    assert all(" = " in term and ": " in term for term in found.terms)


def test_shared_gpus_are_fewer_gpus() -> None:
    """Half of the work at two jobs for a GPU: three quarters of GPUs, network, power and racks."""
    found = outcome("sharing")
    before, after = PLAN, found.after
    assert after.gpus == 1500
    for name in ("gpu_servers", "networking"):
        assert after.bought[name] == pytest.approx(0.75 * before.bought[name])
    for name in ("storage", "facility"):
        assert after.bought[name] == before.bought[name]
    for name in ("electricity", "colocation"):
        assert after.yearly[name] == pytest.approx(0.75 * before.yearly[name])
    assert after.yearly["staffing"] == before.yearly["staffing"]
    fewer = 0.25 * (62.5e6 + 1.934e6)
    upkeep = before.yearly["hardware_maintenance"] - after.yearly["hardware_maintenance"]
    assert upkeep == pytest.approx(0.05 * fewer)
    assert 0.20 <= found.share <= 0.40, "as the specification has it"


def test_a_lower_pue_saves_electricity_and_costs_cooling() -> None:
    found = outcome("pue")
    assert found.of_electricity == pytest.approx(1 - 1.04 / 1.08)
    assert found.after.capex_total - PLAN.capex_total == pytest.approx(1360 * 2573)
    saved = 5 * PLAN.yearly["electricity"] * (1 - 1.04 / 1.08) - 1360 * 2573
    assert found.saved == pytest.approx(saved)
    assert found.saved < 0, "at 1.08 another cooling does not pay"


def test_a_building_with_a_poor_pue_gains_as_much_as_the_specification_says() -> None:
    """From 1.2 to 1.1: 8 % of the electricity, of the 5 to 10 % of table 16-12."""
    document = {**DOCUMENT, "opex_annual": {**DOCUMENT["opex_annual"]}}
    document["opex_annual"]["electricity"] = {
        "it_power": 2573, "pue": 1.2, "electricity_rate": 0.2,
    }  # fmt: skip
    found = outcome("pue", {"target": 1.1}, read_tco(document))
    assert found.of_electricity is not None
    assert 0.05 <= found.of_electricity <= 0.10
    assert found.saved == pytest.approx(5 * 257.3 * 8760 * 0.2 - 1360 * 2573)


def test_work_that_waits_saves_electricity_and_carbon() -> None:
    document = {**DOCUMENT, "opex_annual": {**DOCUMENT["opex_annual"]}}
    document["opex_annual"]["electricity"] = {
        "it_power": 100, "pue": 1.1, "electricity_rate": 0.1, "carbon_intensity": 400,
    }  # fmt: skip
    found = outcome("carbon", {"share": 0.5, "price": 0.8, "carbon": 0.4}, read_tco(document))
    assert found.of_electricity == pytest.approx(0.1)
    before, after = found.before.electricity, found.after.electricity
    assert before is not None and after is not None
    assert before.carbon_tonnes is not None and after.carbon_tonnes is not None
    assert after.carbon_tonnes == pytest.approx(0.7 * before.carbon_tonnes)
    assert after.kilowatt_hours == before.kilowatt_hours
    assert found.carbon == pytest.approx(5 * 0.3 * before.carbon_tonnes)
    assert outcome("carbon").carbon is None
    default = outcome("carbon").of_electricity
    assert default is not None
    assert 0.05 <= default <= 0.15, "as the specification has it"


def test_old_gpus_are_cheaper_and_need_more_power() -> None:
    """A fifth of the work at half the speed is two fifths as many, at a fifth of the price."""
    after = outcome("reuse").after
    assert after.bought["gpu_servers"] == pytest.approx((0.8 + 0.4 * 0.2) * 62.5e6)
    assert after.yearly["electricity"] > PLAN.yearly["electricity"]


def test_open_source_saves_licences_and_needs_people() -> None:
    found = outcome("open-source", {"share": 0.5, "engineers": 0.25})
    assert found.saved == pytest.approx(5 * (0.5 * 380_000 - 0.25 * 200_000))


def test_renting_peaks_pays_below_a_price() -> None:
    """70 % of the GPUs, 90 % busy, leave 16 % of the work: at the price of spot that costs more."""
    rented = 2000 * 8760 * (0.75 - 0.7 * 0.9)
    at = {price: outcome("burst", {"price": price}, years=3) for price in (3.0, 3.5, 12.29)}
    assert at[3.0].after.rented_hours == pytest.approx(rented)
    assert at[3.0].after.yearly["cloud burst"] == pytest.approx(3 * rented)
    assert at[3.0].after.utilization == pytest.approx(0.9)
    assert at[3.0].saved > 0 > at[3.5].saved > at[12.29].saved
    assert outcome("burst", years=3).saved == pytest.approx(
        outcome("burst", {"price": 3.687}, years=3).saved
    )


def test_a_base_that_holds_all_the_work_rents_nothing() -> None:
    found = outcome("burst", {"base": 0.9, "utilization": 0.9})
    assert found.after.rented_hours == 0
    assert found.after.utilization == pytest.approx(0.75 / 0.9)


def test_together_they_save_less_than_their_sum() -> None:
    """Each works on what those before it left."""
    names = ("sharing", "carbon", "reuse", "open-source")
    alone = [outcome(name) for name in names]
    both = together(PLAN, alone, {})
    assert both.names == names
    assert max(one.saved for one in alone) < both.saved < sum(one.saved for one in alone)


@pytest.mark.parametrize(
    ("name", "values", "without", "said"),
    [
        ("pue", {"target": 1.1}, "", "pue: PUE is 1.08, no higher than 1.1: nothing to gain"),
        ("carbon", {}, "opex_annual", "carbon: the plan has no electricity"),
        ("open-source", {}, "opex_annual", "open-source: no yearly category is named after"),
        ("burst", {}, "gpus", "burst: gpus and utilization are needed"),
        ("burst", {}, "cloud", "burst: a price of the cloud is needed"),
        ("sharing", {}, "capex", "sharing: no purchase grows with the GPUs"),
        ("reuse", {}, "capex", "reuse: no purchase is named gpu"),
        ("sharing", {"jobs": 99}, "", "sharing: jobs: a number from 1 to 7 is wanted, not 99"),
        ("sharing", {"job": 2}, "", "sharing: 'job' is no assumption; there are share, jobs"),
    ],
)
def test_what_cannot_be_followed_is_said(
    name: str, values: Values, without: str, said: str
) -> None:
    document = {key: value for key, value in DOCUMENT.items() if key != without}
    if without == "capex":
        document = {"opex_annual": {"licenses": 1}, "capex": {"all": 1}}
    with pytest.raises(ValueError, match=f"^{said}"):
        what_if(read_tco(document), STRATEGIES[name], values, 5)
