"""What a job pushes: good records are read, wrong ones are named, and nothing takes long."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import time
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.formats.pushes import _FACTS, _MOMENT, _STEP, MAX_RECORD, TooMuch, read
from exporter.samples import Malformed
from exporter.training import Facts, Moment, MomentKind, Step, TrainingLedger

STEP = {"run": "a", "step": 7, "seconds": 1.5}


def of(*records: object) -> bytes:
    return json.dumps({"records": records}).encode()


def test_every_field_of_the_records_can_be_pushed() -> None:
    """A field that is added to a record is added here too."""
    for made, fields in ((Step, _STEP), (Facts, _FACTS)):
        assert {field.name for field in dataclasses.fields(made)} == set(fields)
    moment = {field.name for field in dataclasses.fields(Moment)}
    assert moment - {"kind"} | {"moment"} == set(_MOMENT)


def test_one_record_a_list_and_a_batch_are_read() -> None:
    """Whoever writes by hand sends one; clients send many."""
    step = Step(run="a", step=7, seconds=1.5)
    assert read(json.dumps(STEP).encode(), 9).records == ((0, step),)
    assert read(json.dumps([STEP]).encode(), 9).records == ((0, step),)
    assert read(of(STEP, STEP), 9).records == ((0, step), (1, step))
    assert read(b' { "records" : [ ] } ', 9).records == ()


def test_all_kinds_are_read() -> None:
    """Steps, facts and moments, with what JSON has no word for."""
    found = read(
        of(
            {**STEP, "rank": 3, "phases": {"data": 0.2}, "loss": math.nan, "tokens": None},
            {"kind": "facts", "run": "a", "local_ranks": {"8": 0}, "config": {"hidden_size": 8}},
            {"kind": "moment", "run": "a", "moment": "failed", "detail": "a\nb"},
        ),
        9,
    )
    (_, step), (_, facts), (_, moment) = found.records
    assert isinstance(step, Step)
    assert (step.rank, step.phases, step.tokens) == (3, {"data": 0.2}, None)
    assert math.isnan(step.loss or 0)
    assert isinstance(facts, Facts)
    assert facts.local_ranks == {8: 0}
    assert moment == Moment(run="a", kind="failed", detail="a b")
    assert "failed" in get_args(MomentKind)


@pytest.mark.parametrize(
    ("record", "field"),
    [
        ({"run": "a"}, "step"),
        ({"step": 1}, "run"),
        ({**STEP, "run": 5}, "run"),
        ({**STEP, "run": "a\nb"}, "run"),
        ({**STEP, "run": "x" * 200}, "run"),
        ({**STEP, "step": 1.5}, "step"),
        ({**STEP, "step": True}, "step"),
        ({**STEP, "seconds": "2"}, "seconds"),
        ({**STEP, "seconds": 1e9}, "seconds"),
        ({**STEP, "tokens": 10**400}, "tokens"),
        ({**STEP, "steps": 10**9}, "steps"),
        ({**STEP, "wall": 1796014255000}, "wall"),
        ({**STEP, "phases": {"data": "x"}}, "phases"),
        ({**STEP, "phases": []}, "phases"),
        ({**STEP, "scope": "all"}, "scope"),
        ({"kind": "dream", "run": "a"}, "kind"),
        ({"kind": ["step"], "run": "a"}, "kind"),
        ({"kind": "moment", "run": "a", "moment": "lunch"}, "moment"),
        ({"kind": "facts", "run": "a", "local_ranks": {"x": 1}}, "local_ranks"),
        ({"kind": "facts", "run": "a", "local_ranks": {"1": -1}}, "local_ranks"),
        ({"kind": "facts", "run": "a", "config": 5}, "config"),
    ],
)
def test_a_wrong_record_is_named_and_the_others_are_read(record: object, field: str) -> None:
    """By its place and the field."""
    found = read(of(STEP, record, STEP), 9)
    assert [at for at, _ in found.records] == [0, 2]
    assert [(one.index, one.field) for one in found.refused] == [(1, field)]


def test_a_record_that_is_not_json_costs_only_itself() -> None:
    """What is between its braces is left out."""
    found = read(b'{"records": [{"run": "a", "step": 1,}, {"run": "a", "step": 2}]}', 9)
    assert [at for at, _ in found.records] == [1]
    assert "not JSON" in found.refused[0].reason


def test_a_misspelt_field_is_told() -> None:
    """It is not known here; a newer client may know more fields than this daemon."""
    found = read(of({**STEP, "sceonds": 3}), 9)
    assert found.ignored == ("sceonds",)
    assert len(found.records) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"1", b"null", b'"x"', b"{", b"[", b"[1]", b"[{},]", b"[{}", b"[{}] x", b"{} {}",
        b'{"records": [{}]', b'{"records": [{}], "x": 1}', b"\xff\xfe", b'{"a": "', b'{"a": "\\',
        b"[" * 100_000, b'{"a":' * 100_000,
    ],
)  # fmt: skip
def test_what_is_not_a_push_is_malformed(body: bytes) -> None:
    """One clear error, however deep."""
    with pytest.raises(Malformed):
        read(body, 9)


def test_more_records_than_allowed_are_too_much() -> None:
    """The limit is told."""
    with pytest.raises(TooMuch, match="more than 2 records"):
        read(of(STEP, STEP, STEP), 2)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({**STEP, "x": "y" * MAX_RECORD}, "longer than 65536 characters"),
        ({**STEP, "x": json.loads("[" * 16 + "]" * 16)}, "nested deeper than 16"),
    ],
)
def test_a_record_that_is_long_or_deep_costs_only_itself(record: object, reason: str) -> None:
    """It is not even parsed."""
    found = read(of(STEP, record, STEP), 9)
    assert [at for at, _ in found.records] == [0, 2]
    assert found.refused[0].reason == reason


def test_quotes_without_end_take_no_longer_than_other_text() -> None:
    """A pattern that began anew at each quote would take minutes."""
    body = b'{"a": "' + b'\\"' * 500_000
    began = time.perf_counter()
    with pytest.raises(Malformed):
        read(body, 9)
    assert time.perf_counter() - began < 1


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = PLAIN | st.lists(PLAIN, max_size=2) | st.fixed_dictionaries({"data": PLAIN, "0": PLAIN})
NAMES = st.sampled_from(["kind", "moment", *_STEP, *_FACTS, "x"])
RECORDS = st.lists(st.tuples(NAMES, VALUES), max_size=4).map(
    lambda pairs: {"run": "a", "step": 1, **dict(pairs)}
)


@settings(max_examples=150, deadline=None)
@given(st.lists(RECORDS, max_size=3))
def test_any_json_is_read_or_refused(records: list[dict[str, object]]) -> None:
    """Whatever the values: each record is told to the ledger, or named with its field."""
    found = read(of(*records), 9)
    assert len(found.records) + len(found.refused) == len(records)
    ledger = TrainingLedger()
    for _, record in found.records:
        with contextlib.suppress(ValueError):
            ledger.tell("push", [record], 1.0)
    for run in ledger.runs(1.0):
        for track in run.tracks.values():
            assert math.isfinite(track.seconds)
            assert math.isfinite(track.tokens)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200) | st.text(alphabet='{}[]",:\\ 1a', max_size=200).map(str.encode))
def test_any_bytes_are_read_or_malformed(body: bytes) -> None:
    """Nothing else is raised."""
    with contextlib.suppress(Malformed):
        read(body, 9)
