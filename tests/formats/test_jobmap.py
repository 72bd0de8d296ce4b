"""Files in which a scheduler says which job has which GPU."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.formats.jobmap import Device, Entry, device, entries, number_of
from exporter.samples import Malformed

GPU = "GPU-5a1c4f2e-0000-1111-2222-333344445555"
MIG = "MIG-265a219d-a49f-578a-825d-222c72699c16"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("0", Device("0")),
        ("07", Device("7")),
        ("3.1", Device("3", "1")),
        (GPU, Device(uuid=GPU)),
        (MIG, Device(uuid=MIG)),
        ("0.tmp", None),
        (".0.swp", None),
        ("README", None),
        ("-1", None),
        ("1.2.3", None),
        ("٣", None),
    ],
)  # fmt: skip
def test_a_file_is_known_by_its_name(name: str, expected: Device | None) -> None:
    """An index, an index with an instance, a UUID; whatever else lies there is passed over."""
    assert device(name) == expected


def test_a_line_is_a_job() -> None:
    """Each once, blank lines and spaces do not count, an empty file is an idle GPU."""
    assert entries("12\n  13_7 \n\n12\n99.server\r\n") == [
        Entry("12"), Entry("13_7"), Entry("99.server")
    ]  # fmt: skip
    assert entries("") == entries("\n \n") == []


def test_jobstats_writes_the_user_behind_the_job() -> None:
    """Princeton's prolog: two numbers on a line."""
    assert entries("45916256 262563\n") == [Entry("45916256", "262563")]


@pytest.mark.parametrize("text", ["a b", "12 x", "1 2 3", "\x00", "é", "x" * 65, "{}"])
def test_a_line_that_is_no_job_is_told(text: str) -> None:
    """Instead of a label that nobody understands."""
    with pytest.raises(Malformed, match=r"line 1: .*job's id"):
        entries(text)


def test_a_name_behind_a_job_gets_into_no_message() -> None:
    """Users are shown where that is asked for, and the log is no such place."""
    with pytest.raises(Malformed, match="more than its user's number") as caught:
        entries("840392 alice\n")
    assert "alice" not in str(caught.value)


def test_a_file_of_a_million_jobs_is_no_file_of_jobs() -> None:
    """Labels are bounded."""
    with pytest.raises(Malformed, match="more than 256 jobs"):
        entries("\n".join(map(str, range(300))))


def test_ids_of_other_schedulers_are_not_numbers_of_slurm() -> None:
    """Only what Slurm's cgroups could bear can be looked for there."""
    assert [number_of(one) for one in ("12", "12_3", "12.server", "")] == ["12", "", "", ""]


@given(st.text(max_size=300))
def test_hostile_text_is_refused_or_short_words(text: str) -> None:
    """Nothing else is raised; labels are short and of plain characters."""
    try:
        found = entries(text)
    except Malformed:
        return
    assert all(len(one.job) <= 64 and one.job.isascii() for one in found)
    assert all(one.uid == "" or one.uid.isdecimal() for one in found)
