"""The table of XIDs and SXIDs that comes with the package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exporter.reference import xids

TABLE = xids.load()
SEVERITIES = {"critical", "warning", "info"}


def test_every_row_says_what_it_means() -> None:
    """Each code has a name, one of three severities, and an action in one word."""
    assert len(TABLE.xids) == 173
    for code, meaning in TABLE.xids.items():
        assert meaning.name, code
        assert meaning.severity in SEVERITIES, code
        assert meaning.action.replace("_", "a").isalnum(), code
    assert len(TABLE.sxids) == 92
    assert set(TABLE.sxids.values()) <= SEVERITIES


def test_no_switch_error_stands_in_two_classes() -> None:
    """An SXID has one severity."""
    file = json.loads(Path(xids.__file__).with_name("xids.json").read_text("utf-8"))
    codes = [code for codes in file["sxids"].values() for code in codes]
    assert len(codes) == len(set(codes))


def test_codes_that_operators_page_on_start_at_zero() -> None:
    """The codes of the public alert rules are among those that exist from the start; few more."""
    assert {48, 62, 64, 74, 79, 95, 119, 120} <= set(TABLE.critical)
    assert len(TABLE.critical) <= 10
    assert all(TABLE.meaning(code).severity == "critical" for code in TABLE.critical)


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (79, ("GPU no longer reachable on PCIe", "critical", "reboot_node")),
        (43, ("User channel reset after a software-induced fault", "info", "check_app")),
        (63, ("Row remap or page retirement recorded", "warning", "reset_gpu_when_drained")),
    ],
)
def test_a_code_is_explained(code: int, meaning: tuple[str, str, str]) -> None:
    """The table gives name, severity and action."""
    assert TABLE.meaning(code) == meaning


def test_a_newer_code_is_unknown_and_not_guessed() -> None:
    """A code that the table does not have is called unknown in all respects."""
    assert TABLE.meaning(4711) == ("unknown", "unknown", "unknown")
    assert TABLE.switch_severity(4711) == "unknown"


@pytest.mark.parametrize(
    ("word", "severity"), [("fatal", "critical"), ("nonfatal", "warning"), (None, "warning")]
)
def test_the_word_of_the_line_wins_for_nvlink_5(word: str | None, severity: str) -> None:
    """XID 145 is as severe as its line says (NVSentinel 1357); the table speaks if it says none."""
    assert TABLE.meaning(145, word).severity == severity


def test_a_word_cannot_make_another_code_harmless() -> None:
    """Only codes 144 to 150 carry the word; for others the table stands."""
    assert TABLE.spoken == frozenset(range(144, 151))
    assert TABLE.meaning(79, "nonfatal").severity == "critical"


@pytest.mark.parametrize(
    ("word", "severity"), [("fatal", "critical"), ("nonfatal", "info"), (None, "warning")]
)
def test_the_word_of_the_line_wins_for_switches(word: str | None, severity: str) -> None:
    """SXID 10001 is a notice in the guide; the line may say otherwise."""
    assert TABLE.switch_severity(10001, word) == severity


def test_the_table_cannot_be_changed() -> None:
    """Whoever has the table has the same one as everyone else."""
    with pytest.raises(AttributeError):
        TABLE.critical = ()  # type: ignore[misc]


def test_a_broken_table_is_an_error(tmp_path: Path) -> None:
    """A file that is no such table is refused when it is loaded, not when it is asked."""
    file = tmp_path / "xids.json"
    file.write_text('{"xids": {"1": ["info"]}}')
    with pytest.raises(ValueError, match="unpack"):
        xids.load(file)
