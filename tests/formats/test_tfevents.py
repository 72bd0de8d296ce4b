"""Event files as jobs wrote them are read to the last number; damaged ones say where and what."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.formats.tfevents import (
    Event,
    Writer,
    crc32c,
    masked,
    read_event,
    read_frames,
    writer_of,
)
from exporter.samples import Malformed
from tests.event_files import frame

DATA = Path(__file__).parent.parent / "data" / "training"
TORCH = DATA / "torch-2.13-ddp-gloo"
EVENTS = next((TORCH / "tb").glob("events*"))


def events_of(path: Path) -> list[Event]:
    frames = read_frames(path.read_bytes())
    assert (frames.at, frames.damage, frames.broken) == (path.stat().st_size, "", ())
    return [read_event(data) for data in frames.data]


def scalars_of(path: Path) -> dict[tuple[str, int], float]:
    return {(tag, event.step): value for event in events_of(path) for tag, value in event.scalars}


def test_the_checksum_is_that_of_the_standard() -> None:
    """RFC 3720, B.4: 32 bytes of zeros, and of ones; the nine digits as everywhere."""
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(b"123456789") == 0xE3069283


def test_a_recorded_file_holds_what_the_job_itself_wrote_down() -> None:
    """Sixty steps of five numbers; TensorBoard keeps them in single precision."""
    found = scalars_of(EVENTS)
    lines = (TORCH / "steps-rank0.jsonl").read_text().splitlines()
    rows = [row for line in lines if "step_time_s" in (row := json.loads(line))]
    assert len(rows) == 60
    names = {
        "train/loss": "loss", "train/tokens_per_second": "tokens_per_s", "train/lr": "lr",
        "train/step_time_seconds": "step_time_s", "train/grad_norm": "grad_norm",
    }  # fmt: skip
    assert len(found) == len(rows) * len(names)
    for row in rows:
        for tag, key in names.items():
            assert found[tag, row["step"]] == pytest.approx(row[key], rel=1e-6, abs=1e-12)


def test_scalars_as_tensors_are_read_in_all_their_forms() -> None:
    """PyTorch's new style, single and double precision; histogram and text are no scalars."""
    found = scalars_of(next((DATA / "tensors").glob("events*")))
    assert {key for key, _ in found} == {"loss", "step_time", "grad_norm"}
    assert [found["loss", step] for step in (1, 2, 3, 4)] == [3.0, 2.0, 1.0, 0.5]
    assert [found["step_time", step] for step in (1, 2, 3)] == [0.125, 0.25, 0.375]
    assert math.isnan(found["grad_norm", 2])


def tensor(*fields: bytes, kind: int = 1) -> bytes:
    """Return a summary event with one tensor of some fields, without any metadata."""
    body = b"\x08" + bytes([kind]) + b"".join(fields)
    value = b"\x0a\x04loss" + b"\x42" + bytes([len(body)]) + body
    summary = b"\x0a" + bytes([len(value)]) + value
    return b"\x10\x07" + b"\x2a" + bytes([len(summary)]) + summary


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (tensor(b"\x22\x04" + struct.pack("<f", 2.5)), 2.5),  # tensor_content
        (tensor(b"\x22\x08" + struct.pack("<d", 2.5), kind=2), 2.5),
        (tensor(b"\x2a\x04" + struct.pack("<f", 2.5)), 2.5),  # float_val, packed
        (tensor(b"\x2d" + struct.pack("<f", 2.5)), 2.5),  # float_val, not packed
        (tensor(b"\x32\x08" + struct.pack("<d", 2.5), kind=2), 2.5),  # double_val
        (tensor(b"\x22\x08" + struct.pack("<q", -3), kind=9), -3.0),
        (tensor(b"\x22\x08" + struct.pack("<ff", 1, 2)), None),  # two numbers
        (tensor(b"\x12\x04\x12\x02\x08\x02", b"\x2a\x04" + struct.pack("<f", 2.5)), None),
        (tensor(), None),
    ],
)
def test_a_tensor_with_one_number_is_a_scalar(data: bytes, value: float | None) -> None:
    event = read_event(data)
    assert event.step == 7
    assert event.scalars == (() if value is None else (("loss", value),))


def test_a_table_of_hyper_parameters_says_that_it_is_one() -> None:
    (path,) = (TORCH / "tb" / "hparams").glob("events*")
    assert any("hparams" in event.plugins for event in events_of(path))
    assert not any("hparams" in event.plugins for event in events_of(EVENTS))


@settings(deadline=None)
@given(st.integers(0, EVENTS.stat().st_size))
def test_a_truncated_file_waits_for_its_rest(length: int) -> None:
    """What is whole is read; with the rest the other frames come."""
    text = EVENTS.read_bytes()
    first = read_frames(text[:length])
    second = read_frames(text[first.at :])
    assert first.damage == second.damage == ""
    assert first.broken == second.broken == ()
    assert first.at <= length
    assert (*first.data, *second.data) == read_frames(text).data


def test_a_length_that_no_record_has_is_damage() -> None:
    """Its checksum is right: somebody has written it."""
    length = struct.pack("<Q", 1 << 60)
    huge = length + struct.pack("<I", masked(crc32c(length)))
    frames = read_frames(frame(b"a") + huge + bytes(100))
    assert (frames.data, frames.at) == ((b"a",), 17)
    assert frames.damage == f"a record of {1 << 60} bytes"


def test_a_length_with_a_flipped_bit_is_damage() -> None:
    text = bytearray(frame(b"a") + frame(b"b"))
    text[17] ^= 1
    frames = read_frames(bytes(text))
    assert (frames.data, frames.at) == ((b"a",), 17)
    assert frames.damage == "the checksum of a length is wrong"


def test_a_record_with_a_flipped_bit_is_passed_over() -> None:
    """Its length is good, so the next one is found."""
    text = bytearray(frame(b"a") + frame(b"b") + frame(b"c"))
    text[17 + 12] ^= 1
    frames = read_frames(bytes(text))
    assert frames.data == (b"a", b"c")
    assert frames.broken == (17,)
    assert (frames.damage, frames.at) == ("", 51)


def test_a_picture_is_not_looked_at() -> None:
    """Checksums of megabytes cost too much, and there is no scalar in them."""
    frames = read_frames(frame(bytes(70_000)) + frame(b"a"))
    assert frames.data == (b"a",)


def test_an_unfinished_record_says_how_long_it_will_be() -> None:
    assert read_frames(frame(bytes(1000))[:500]).wanted == 1016


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_file_of_frames(junk: bytes) -> None:
    frames = read_frames(junk)
    assert frames.at <= len(junk)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_an_arbitrary_event_is_one_or_malformed(junk: bytes) -> None:
    with contextlib.suppress(Malformed):
        read_event(junk)


@pytest.mark.parametrize("wall", [math.nan, math.inf, -1.0, 1e300])
def test_an_event_at_no_time_is_malformed(wall: float) -> None:
    with pytest.raises(Malformed, match="is no time"):
        read_event(b"\x09" + struct.pack("<d", wall))


@pytest.mark.parametrize(
    ("name", "writer"),
    [
        ("events.out.tfevents.1795972765.host.21824.0", Writer(1795972765, "host.21824")),
        ("events.out.tfevents.1600000000.a.b.c", Writer(1600000000, "a.b.c")),
        ("events.out.tfevents.1600000000.n1.77.2.v2", Writer(1600000000, "n1.77")),
        ("my.tfevents.x", Writer(0, "x")),
        ("events.out.tfevents.1.h.profile-empty", None),
        ("tfevents", None),
        ("notfevents.1", None),
        ("metrics.json", None),
    ],
)
def test_the_name_of_a_file_says_who_wrote_it(name: str, writer: Writer | None) -> None:
    assert writer_of(name) == writer
