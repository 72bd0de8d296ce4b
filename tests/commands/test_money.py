"""`flopwatch tco` and `flopwatch spot`, through the command line, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from exporter.__main__ import main

EXAMPLE = Path(__file__).parent.parent.parent / "deploy/tco.example.yaml"


class Result(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command line."""

    def one(*arguments: str) -> Result:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert isinstance(ended.value.code, int)
        return Result(ended.value.code, *capfd.readouterr())

    return one


def said(run: Run, *arguments: str) -> str:
    result = run(*arguments)
    assert (result.code, result.err) == (0, "")
    return result.out


def told(run: Run, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said(run, *arguments, "--json"))
    return found


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


# ---------------------------------------------------------------- tco


def test_the_specifications_plan_as_a_table(run: Run) -> None:
    """Table 16-11 with right sums, both views, both prices of an hour, and what does not hold."""
    text = said(run, "tco", str(EXAMPLE))
    lines = words(text)
    assert ["gpu_servers", "62.50", "-", "62.50", "56.1", "%"] in lines
    assert ["electricity", "-", "9.74", "9.74", "8.7", "%"] in lines
    assert ["hardware_maintenance", "-", "16.51", "16.51", "14.8", "%"] in lines
    assert ["total", "71.53", "39.95", "111.48", "100.0", "%"] in lines
    assert ["total", "71.53", "23.97", "95.50", "100.0", "%"] in lines
    assert "1.53 dollars per owned GPU hour" in text
    assert "2.04 dollars per used GPU hour (utilization 75.0 %)" in text
    assert "capex.total_capex: 72,184,000 is stated, 71,534,000 is right (650,000 too much)" in text
    assert "its parts as they are stated make 7,825,523" in text
    assert ["on_demand", "12.29", "484.47", "645.96", "used", "hours", "6.0"] in lines
    assert ["reserved", "7.37", "290.68", "387.58", "all", "hours", "4.8"] in lines


def test_a_reservation_has_no_utilization_from_which_it_pays(run: Run) -> None:
    """It is paid for all hours: where it is dearer than owning, it is so at any utilization."""
    text = said(run, "tco", str(EXAMPLE))
    assert "reserved: 40 % off on_demand; owning is cheaper at any utilization" in text
    assert "on_demand: stated; owning is cheaper from a utilization of 12.5 % on" in text


def test_one_view_can_be_asked_for(run: Run) -> None:
    (view,) = told(run, "tco", str(EXAMPLE), "--years", "4")["views"]
    assert view["years"] == 4
    assert view["residual"] == pytest.approx(0.2 * 62.5e6)
    assert view["net"] == pytest.approx(71_534_000 + 4 * 7_989_111.072 - 12.5e6)


def test_a_file_as_printed_has_no_price_of_an_hour_until_gpus_are_stated(
    run: Run, tmp_path: Path
) -> None:
    """Neither a 0 nor a guess. GPUs and utilization can be given on the command line."""
    file = tmp_path / "plan.yaml"
    file.write_text(EXAMPLE.read_text("utf-8").partition("# What 16.6.3")[0], "utf-8")

    bare = said(run, "tco", str(file))
    assert "no cost of a GPU hour: the plan does not say how many GPUs" in bare
    assert "cloud" not in bare
    assert "fetch" not in bare
    half = said(run, "tco", str(file), "--gpus", "2000")
    assert "1.82 dollars per owned GPU hour" in half
    assert "utilization is not stated" in half
    full = told(run, "tco", str(file), "--gpus", "2000", "--utilization", "0.5")
    for view in full["views"]:
        owned, used = view["dollars_per_owned_gpu_hour"], view["dollars_per_used_gpu_hour"]
        assert used == pytest.approx(2 * owned)
    assert full["wrong"][1]["right"] == 71_534_000


def test_json_says_the_same_as_the_table(run: Run) -> None:
    found = told(run, "tco", str(EXAMPLE), "--what-if", "all")
    assert [view["years"] for view in found["views"]] == [3, 5]
    three, five = found["views"]
    assert three["dollars_per_used_gpu_hour"] == pytest.approx(2.042, abs=5e-4)
    assert sum(row["share"] for row in five["categories"]) == pytest.approx(1)
    assert [one["pricing"] for one in three["cloud"]] == ["on_demand", "reserved", "spot"]
    names = [one["strategies"] for one in found["what_if"]]
    assert names[:-1] == [["sharing"], ["carbon"], ["reuse"], ["open-source"], ["burst"]]
    assert len(names[-1]) == 5
    assert found["refused"] == ["pue: PUE is 1.08, no higher than 1.1: nothing to gain"]


def test_a_what_if_prints_what_it_assumes(run: Run) -> None:
    """With the numbers that were stated, and beside what the specification promises."""
    text = said(run, "tco", str(EXAMPLE), "--what-if", "sharing:share=0.8,jobs=4", "--years", "3")
    assert "sharing: GPUs are shared (MIG, MPS)" in text
    assert "the specification says: 20-40 %" in text
    assert "share = 0.8: share of the work that runs on shared GPUs" in text
    assert "jobs = 4:" in text
    assert "million, 50.8 % of the cost" in text
    assert "all of these together" not in text


def test_the_last_wish_for_a_strategy_counts(run: Run) -> None:
    """`all`, and one of them with terms of its own."""
    found = told(run, "tco", str(EXAMPLE), "--what-if", "all", "--what-if", "burst:price=1")
    bursts = [one for one in found["what_if"] if one["strategies"] == ["burst"]]
    assert len(bursts) == 1
    assert bursts[0]["saved"] > 0


def test_what_the_hardware_still_fetches_is_told_by_year(run: Run) -> None:
    text = said(run, "tco", str(EXAMPLE))
    assert ["2", "previous", "50.0", "%", "31.25"] in words(text)
    assert ["3", "two_generations", "24.0", "%", "15.00"] in words(text), "stated in the plan"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("capex: {a: [1]}", "capex.a: a number is wanted, not a list"),
        ("capex: {a: 1}\nfleet: 3", "fleet: unknown key; there are capex, cloud,"),
        ("capex: {a: 1, a: 2}", ":1:15: key 'a' is given twice"),
        ("capex: [", ":1:9: "),
        ("", "the document: a mapping of keys is wanted, not None"),
        ("[" * 5000, "nested too deep"),
    ],
)
def test_a_mistake_in_a_plan_is_named_with_file_and_key(
    run: Run, tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(text, "utf-8")
    result = run("tco", str(file))
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith(f"flopwatch: {file}")
    assert message in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("/nowhere.yaml",), "/nowhere.yaml: No such file or directory"),
        ((str(EXAMPLE.parent),), "Is a directory"),
        ((str(EXAMPLE), "--what-if", "magic"), "--what-if: 'magic' is not known; there are shar"),
        ((str(EXAMPLE), "--what-if", "burst:price"), "--what-if: burst: 'price' is not key=number"),
        ((str(EXAMPLE), "--what-if", "burst:cost=1"), "--what-if: burst: 'cost' is no assumption"),
        ((str(EXAMPLE), "--what-if", "burst:price=nan"), "--what-if: burst: price: a number from"),
        ((str(EXAMPLE), "--years", "0"), "--years: a whole number of years from 1 to 50"),
        ((str(EXAMPLE), "--years", "999999999999"), "--years: a whole number of years"),
        ((str(EXAMPLE), "--utilization", "75"), "--utilization: a share above 0, 1 at most"),
        ((str(EXAMPLE), "--gpus", "0"), "--gpus: a number above 0"),
    ],
)  # fmt: skip
def test_a_mistake_on_the_command_line_is_named(
    run: Run, arguments: tuple[str, ...], message: str
) -> None:
    result = run("tco", *arguments)
    assert result.code == 2
    assert message in result.err


def test_a_plan_that_is_not_text_is_refused(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_bytes(b"capex: \xff")
    result = run("tco", str(file))
    assert result.code == 2
    assert "not UTF-8 text" in result.err


# ---------------------------------------------------------------- spot

CHAPTER = ("--on-demand", "12.29", "--discount", "0.7", "--gpus", "1000")


def test_what_spot_saves_after_interruptions(run: Run) -> None:
    """16.7.2: 70 % off is 60 to 65 % in the end, for a job that is interrupted each hour."""
    found = told(
        run, "spot", *CHAPTER, "--job-interruptions", "1", "--mix", "spot=0.8,on_demand=0.2"
    )
    ways = {one["name"]: one for one in found["ways"]}
    assert list(ways) == ["on_demand", "spot", "spot=0.8,on_demand=0.2"]
    assert ways["on_demand"]["dollars"] == pytest.approx(8_848_800)
    assert 0.60 < ways["spot"]["saving_ratio"] < 0.65
    assert ways["on_demand"]["checkpoint_interval_seconds"] is None, "nothing interrupts it"
    assert ways["spot"]["seconds_between_interruptions"] == 3600


def test_prices_can_come_from_the_list(run: Run) -> None:
    """With their day and source; what the list does not have is not shown."""
    text = said(run, "spot", "--instance", "p5en.48xlarge", "--gpus", "64")
    assert "on_demand: 7.91 dollars a GPU hour (list price of 2026-08-06: https://" in text
    assert "64 GPUs (8 instances)" in text
    assert "reserved" not in text


def test_a_job_that_needs_a_part_of_an_instance_is_taken_away_with_all_of_it(run: Run) -> None:
    """One GPU of eight was said to be interrupted an eighth as often as its instance."""
    price = ("--on-demand", "4", "--discount", "0.7", "--interruptions", "0.05")
    for gpus, instances, hours in (("1", 1, 20.0), ("8", 1, 20.0), ("12", 2, 10.0)):
        found = told(run, "spot", *price, "--gpus", gpus)
        assert found["ways"][1]["seconds_between_interruptions"] == pytest.approx(hours * 3600)
        assert f"({instances} instances)" in said(run, "spot", *price, "--gpus", gpus)


def test_a_job_that_loses_most_of_its_time_is_told_so(run: Run) -> None:
    text = said(run, "spot", *CHAPTER, "--interruptions", "0.1")
    assert "spot: more than half of the time is lost" in text
    assert "spot: more than half" not in said(run, "spot", *CHAPTER, "--interruptions", "0.001")
    dear = said(run, "spot", "--on-demand", "4", "--spot", "3.9", "--job-interruptions", "1")
    assert "spot: cheaper by the hour, dearer by the work" in dear


def test_a_notice_that_is_heeded_is_said(run: Run) -> None:
    assert "notice 120 s, enough to write a checkpoint" in said(
        run, "spot", *CHAPTER, "--notice", "120"
    )
    assert "too short for a checkpoint" in said(run, "spot", *CHAPTER, "--notice", "30")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--on-demand: a price to compare with is needed"),
        (("--instance", "x"), "--on-demand: the list has none of 'x': a price to compare with"),
        ((*CHAPTER, "--mix", "spot=0.8"), "--mix: the shares of 'spot=0.8' make 0.8, not 1"),
        ((*CHAPTER, "--mix", "reserved=1"), "--mix: 'reserved' has no price; there are on_demand"),
        ((*CHAPTER, "--mix", "spot"), "--mix: 'spot' is not such as spot=0.8"),
        ((*CHAPTER, "--mix", "spot=nan"), "--mix: 'spot=nan' is not such as"),
        ((*CHAPTER, "--checkpoint", "0"), "--checkpoint: a number above 0"),
        ((*CHAPTER, "--interruptions", "-1"), "--interruptions: a number from 0 on"),
        ((*CHAPTER, "--spot", "5"), "--spot: not allowed with argument --discount"),
        (
            (*CHAPTER, "--interruptions", "1", "--job-interruptions", "1"),
            "not allowed with argument",
        ),
    ],
)
def test_a_mistake_about_spot_is_named(run: Run, arguments: tuple[str, ...], message: str) -> None:
    result = run("spot", *arguments)
    assert result.code == 2
    assert message in result.err


def test_extremes_do_not_break_the_table(run: Run) -> None:
    """Interruptions without end, or none: dashes and JSON without infinities."""
    text = said(run, "spot", *CHAPTER, "--job-interruptions", "1e9")
    (spot,) = [line for line in words(text) if line[:1] == ["spot"]]
    assert spot[-5:] == ["0.0", "%", "-", "-", "-"]
    for rate in ("0", "1e9"):
        found = said(run, "spot", *CHAPTER, "--job-interruptions", rate, "--json")
        assert not {"Infinity", "NaN"} & {*found.replace(",", " ").split()}
