"""What a job sends over OTLP becomes steps and facts, in both encodings; junk is `Malformed`."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.formats.otlp import Memory, decode_json, decode_protobuf
from exporter.samples import Malformed
from exporter.training import Facts, Step, TrainingLedger
from exporter.training.records import Record

DATA = Path(__file__).parent.parent / "data" / "training" / "otlp"


def steps(records: list[Record]) -> list[Step]:
    return [one for one in records if isinstance(one, Step)]


def recorded(kind: str) -> list[list[Record]]:
    """Return what three exports of one process tell, one after the other."""
    memory = Memory()
    decode = decode_json if kind == "json" else decode_protobuf
    return [decode((DATA / f"megatron-{i}.{kind}").read_bytes(), memory) for i in (1, 2, 3)]


@pytest.mark.parametrize("kind", ["pb", "json"])
def test_the_reports_of_megatron_become_steps(kind: str) -> None:
    """Cumulative histograms are taken apart: each export gives the mean since the one before."""
    first, second, third = (steps(told)[0] for told in recorded(kind))
    assert (first.run, first.step, first.steps, first.rank) == ("llama3-pretrain", 1, 1, 7)
    assert (first.seconds, first.loss) == (2.5, 8.5)
    assert first.tokens == pytest.approx(64 * 4096)
    assert (second.step, second.steps, second.skipped) == (3, 2, 1)
    assert second.seconds == pytest.approx(2.1)
    assert (third.step, third.steps, third.seconds) == (4, 1, pytest.approx(2.1))
    assert third.flops == pytest.approx(412.5e12)
    assert (third.gradient_norm, third.learning_rate) == (1.25, 3e-4)
    assert third.memory_bytes == pytest.approx(61.5e9)
    assert third.scope == "run"
    assert third.wall is not None


def report(at: int, sums: float) -> bytes:
    """A report of one step, as an exporter sends it that is set to differences."""
    point = {"count": "1", "sum": sums, "timeUnixNano": str(at)}
    histogram = {"aggregationTemporality": 1, "dataPoints": [point]}
    metric = {"name": "megatron.training.step_duration_ms", "histogram": histogram}
    return json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}).encode()


def test_an_export_that_is_sent_again_after_a_lost_answer_counts_once() -> None:
    """Differences have no number of a step: each time that one came it was another step."""
    memory = Memory()
    told = [decode_json(report(at, 2000.0), memory) for at in (1, 2, 2, 3)]
    assert [[step.step for step in steps(one)] for one in told] == [[1], [2], [], [3]]


@pytest.mark.parametrize("kind", ["pb", "json"])
def test_the_resource_of_megatron_becomes_facts_once(kind: str) -> None:
    """What stays the same is told with the first export and not again."""
    told = [[one for one in records if isinstance(one, Facts)] for records in recorded(kind)]
    assert told == [
        [
            Facts(
                run="llama3-pretrain", framework="megatron", world_size=8, data_parallel=2,
                tensor_parallel=2, pipeline_parallel=2, sequence_length=4096, global_batch=64,
                micro_batch=2, precision="bf16", recompute="selective", last_step=1000,
            )
        ], [], [],
    ]  # fmt: skip


def test_both_encodings_say_the_same() -> None:
    assert recorded("json") == recorded("pb")


def test_the_ledger_takes_them() -> None:
    """All that is told is sound: four steps in three records."""
    ledger = TrainingLedger()
    for records in recorded("pb"):
        ledger.tell("otlp", records, 0.0)
    (run,) = ledger.runs(0.0)
    track = run.tracks["otlp", 7]
    assert (track.steps, track.timed, track.skipped) == (4, 4, 1)
    assert track.seconds == pytest.approx(8.8)


def test_a_process_that_counts_anew_is_another_attempt() -> None:
    """The first export after the third is that of a job that was started again."""
    memory = Memory()
    told = [
        steps(decode_protobuf((DATA / f"megatron-{i}.pb").read_bytes(), memory))[0]
        for i in (1, 2, 3, 1, 2)
    ]
    assert [one.step for one in told] == [1, 3, 4, 1, 3]
    assert [one.attempt == told[0].attempt for one in told] == [True, True, True, False, False]
    assert told[4].seconds == pytest.approx(2.1)


def test_what_counts_from_export_to_export_is_divided_among_its_steps() -> None:
    """Delta temporality: three requests of two reports each, with one skipped step in the last."""
    memory, told = Memory(), []
    for skipped in (0, 0, 1):
        duration = {"count": "2", "sum": 3000.0}
        told += decode_json(
            body(
                {
                    "name": "megatron.training.step_duration_ms",
                    "histogram": {"aggregationTemporality": 1, "dataPoints": [duration]},
                },
                {
                    "name": "megatron.training.skipped_iters",
                    "sum": {"aggregationTemporality": 1, "dataPoints": [{"asInt": skipped}]},
                },
                {
                    "name": "train.tokens",
                    "sum": {"aggregationTemporality": 1, "dataPoints": [{"asInt": "800"}]},
                },
            ),
            memory,
        )
    assert [(one.step, one.seconds, one.tokens, one.skipped) for one in steps(told)] == [
        (2, 1.5, None, 0), (4, 1.5, 400.0, 0), (6, 1.5, 400.0, 1),
    ]  # fmt: skip


def test_without_a_memory_a_mean_since_the_start_is_not_the_last_steps_time() -> None:
    """The second export alone says which step it is, and not how long that took."""
    (step,) = steps(decode_protobuf((DATA / "megatron-2.pb").read_bytes()))
    assert (step.step, step.seconds, step.loss) == (3, None, 7.5)


def body(*metrics: object, attributes: object = ()) -> bytes:
    resource = {"attributes": list(attributes)}  # type: ignore[call-overload]
    scope = {"metrics": list(metrics)}
    return json.dumps(
        {"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]}
    ).encode()


def gauge(name: str, value: object, **more: object) -> dict[str, object]:
    return {"name": name, "gauge": {"dataPoints": [{"asDouble": value, **more}]}}


def test_a_job_that_sends_its_step_is_counted_by_it() -> None:
    memory = Memory()
    told = []
    for step, tokens in ((10, 1000), (12, 3000)):
        told += decode_json(
            body(
                gauge("train.step", step, timeUnixNano="1700000000500000000"),
                gauge("train.step.duration", 0.5),
                {"name": "train.tokens", "sum": {"dataPoints": [{"asInt": str(tokens)}]}},
                attributes=[{"key": "train.run", "value": {"stringValue": "mine"}}],
            ),
            memory,
        )
    first, second = steps(told)
    assert (first.run, first.step, first.tokens) == ("mine", 10, None)
    assert first.wall == pytest.approx(1700000000.5)
    assert (second.step, second.steps, second.seconds, second.tokens) == (12, 2, 0.5, 1000.0)


def test_points_with_a_step_of_their_own_are_steps() -> None:
    def of(step: int) -> list[dict[str, object]]:
        return [{"key": "step", "value": {"intValue": str(step)}}]

    told = decode_json(
        body(
            {
                "name": "train.loss",
                "gauge": {
                    "dataPoints": [
                        {"asDouble": 2.0, "attributes": of(8)},
                        {"asDouble": 3.0, "attributes": of(7)},
                    ]
                },
            }
        )
    )
    assert [(one.step, one.loss) for one in steps(told)] == [(7, 3.0), (8, 2.0)]


def test_a_unit_that_was_sent_wins_over_the_names() -> None:
    duration = {**gauge("train.step.duration", 250), "unit": "ms"}
    (step,) = steps(decode_json(body(gauge("train.step", 1), duration)))
    assert step.seconds == 0.25


def test_a_negative_duration_is_left_out_and_said() -> None:
    memory = Memory()
    told = decode_json(
        body(gauge("train.step", 3), gauge("train.step.duration", -1), gauge("train.loss", 2)),
        memory,
    )
    assert [(one.seconds, one.loss) for one in steps(told)] == [(None, 2.0)]
    assert memory.nonsense == ["otlp: step 3: seconds = -1"]


def test_metrics_of_others_tell_of_no_run() -> None:
    assert decode_json(body(gauge("http.server.duration", 3))) == []
    assert decode_json(b"{}") == decode_protobuf(b"") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "not JSON"),
        (b"[]", "the body: an object is wanted"),
        (b'{"resourceMetrics": 3}', "resourceMetrics: a list is wanted"),
        (b"[" * 100_000, "not JSON"),
        (body(gauge("train.loss", "much")), "asDouble: 'much' is not a number"),
        (body(gauge("train.loss", [1])), "asDouble: a number is wanted"),
        (
            body(attributes=[{"key": "a", "value": {"intValue": "--5"}}]),
            "intValue: '--5' is not a whole number",
        ),
        (body({"name": 3}), "name and unit are not text"),
        (body({"name": "x", "gauge": {"dataPoints": [{}] * 10_001}}), "more than 10000 data"),
        (
            body({"name": "x", "histogram": {"dataPoints": [{"count": "1e400"}]}}),
            "count: inf is no count",
        ),
    ],
)
def test_what_is_no_request_says_why(text: bytes, said: str) -> None:
    with pytest.raises(Malformed, match=said):
        decode_json(text)


@pytest.mark.parametrize("length", [1, 2, 700, 1396])
def test_a_message_that_breaks_off_is_malformed(length: int) -> None:
    """Every cut but those between two resources loses something, and is refused."""
    with pytest.raises(Malformed):
        decode_protobuf((DATA / "megatron-1.pb").read_bytes()[:length])


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_a_request_or_malformed(junk: bytes) -> None:
    for decode in (decode_json, decode_protobuf):
        with contextlib.suppress(Malformed):
            decode(junk)


@settings(deadline=None)
@given(st.integers(0, 1466), st.integers(0, 7))
def test_a_flipped_bit_is_told_or_gives_sound_records(at: int, bit: int) -> None:
    """Whatever becomes of a damaged message, the ledger can judge it."""
    damaged = bytearray((DATA / "megatron-2.pb").read_bytes())
    damaged[at] ^= 1 << bit
    try:
        records = decode_protobuf(bytes(damaged))
        TrainingLedger().tell("otlp", records, 0.0)
    except Malformed:
        return
    except ValueError as error:
        assert str(error).startswith("run: ")  # noqa: PT017 - a name may become unprintable


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from((
                "resourceMetrics", "resource", "attributes", "scopeMetrics", "metrics", "name",
                "unit", "gauge", "sum", "histogram", "dataPoints", "asDouble", "asInt", "count",
                "timeUnixNano", "key", "value", "intValue", "stringValue", "bytesValue",
            )),
            inner, max_size=4,
        )
    ),
    max_leaves=30,
)  # fmt: skip


@settings(deadline=None)
@given(_JSON)
def test_arbitrary_json_is_a_request_or_malformed(document: object) -> None:
    with contextlib.suppress(Malformed):
        decode_json(json.dumps(document).encode())


def test_a_number_without_end_is_malformed() -> None:
    with pytest.raises(Malformed, match="a number without end"):
        decode_protobuf(b"\xff" * 20)


def test_an_infinite_time_is_no_time() -> None:
    (step,) = steps(
        decode_json(body(gauge("train.step", 1, timeUnixNano=1e300), gauge("train.loss", 1)))
    )
    assert step.wall is None
    assert math.isfinite(step.loss or math.nan)


def test_a_field_longer_than_its_message_is_malformed() -> None:
    with pytest.raises(Malformed, match="longer than its message"):
        decode_protobuf(b"\x0a\x7f" + struct.pack("<d", 1.0))
