"""Who may push, how much, and what is answered; driven as the ASGI function it is."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from exporter import intake as room
from exporter.intake import METRICS, STEPS, Intake
from exporter.samples import Malformed
from exporter.training import Record, Step, TrainingLedger
from exporter.training.reception import Reception

TOKEN = "a-token-of-sixteen-characters"
JSON = ("content-type", "application/json")
STEP = {"run": "a", "step": 1, "seconds": 2.0}
REMOTE = ("192.0.2.7", 40000)
LOCAL = ("127.0.0.1", 40000)
BEARER = ("authorization", f"Bearer {TOKEN}")


@dataclass
class Rules:
    enabled: bool = True
    loopback: bool = True
    token_file: str | None = None
    max_body: int = 4096
    max_records: int = 10


def decode(body: bytes) -> Sequence[Record]:
    """A test double of the OTLP reader: a number of steps, or nothing it can read."""
    if not body.isdigit():
        raise Malformed("no OTLP")
    return [Step(run="o", step=int(number)) for number in body.decode()]


@dataclass
class Gate:
    """An intake with a ledger of its own, and what was asked of it."""

    rules: Rules = field(default_factory=Rules)
    ledger: TrainingLedger = field(default_factory=TrainingLedger)
    reception: Reception = field(default_factory=Reception)

    def push(
        self,
        body: object = STEP,
        *headers: tuple[str, str],
        path: str = STEPS,
        client: tuple[str, int] | None = LOCAL,
        server: tuple[str, int | None] | None = ("192.0.2.1", 9810),
        method: str = "POST",
        version: str = "1.1",
        pieces: int = 1,
    ) -> tuple[int, Any]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        size = max(1, -(-len(raw) // pieces))
        parts = [raw[at : at + size] for at in range(0, len(raw), size)] or [b""]
        messages = [
            {"type": "http.request", "body": part, "more_body": at + 1 < len(parts)}
            for at, part in enumerate(parts)
        ]
        names = {name for name, _ in headers}
        given = [one for one in (JSON, ("host", "localhost")) if one[0] not in names]
        scope = {
            "type": "http", "method": method, "path": path, "http_version": version,
            "client": client, "server": server,
            "headers": [(n.encode(), v.encode()) for n, v in (*given, *headers) if v],
        }  # fmt: skip

        async def receive() -> dict[str, Any]:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        with ThreadPoolExecutor(1) as executor:
            intake = Intake(
                ledger=self.ledger, reception=self.reception, rules=lambda: self.rules,
                now=lambda: 5.0, executor=executor,
                decoders={"application/json": decode, "application/x-protobuf": decode},
            )  # fmt: skip
            answer = asyncio.run(intake(scope, receive))
            assert (intake._held, intake._waiting) == (0, 0)
        self.headers = {name.decode(): value.decode() for name, value in answer.headers}
        try:
            return answer.status, json.loads(answer.body)
        except ValueError:
            return answer.status, answer.body


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate()


@pytest.fixture
def guarded(tmp_path: Path) -> Gate:
    """One that knows a token."""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\nanother-token-that-is-valid\n")
    return Gate(Rules(token_file=str(file)))


# ---------------------------------------------------------------- what is answered


def test_a_push_sent_again_after_a_lost_answer_is_known(gate: Gate) -> None:
    """The same records change nothing the second time."""
    batch = {"records": [STEP, {**STEP, "step": 2}]}
    assert gate.push(batch) == (200, {"new": 2, "known": 0, "refused": []})
    assert gate.push(batch) == (200, {"new": 0, "known": 2, "refused": []})
    (run,) = gate.ledger.runs(5.0)
    assert run.tracks["push", None].steps == 2
    assert gate.reception.records()["push", "known"] == 2


def test_each_refused_record_is_named(gate: Gate) -> None:
    """By index and field, and the others are kept."""
    status, said = gate.push({"records": [{"run": "a"}, STEP, {**STEP, "step": -4}]})
    assert status == 200
    assert said == {
        "new": 1,
        "known": 0,
        "refused": [
            {"index": 0, "field": "step", "reason": "this field is needed"},
            {"index": 2, "field": "step", "reason": "-4 is below zero"},
        ],
    }
    assert gate.ledger.refused() == {("push", "nonsense"): 2}
    assert (
        gate.reception.troubles()["records"].detail == "push: record 0, step: this field is needed"
    )


def test_where_nothing_could_be_taken_the_push_has_failed(gate: Gate) -> None:
    """`curl --fail` then tells."""
    assert gate.push({"run": "a"})[0] == 400


def test_runs_beyond_the_limit_are_refused_and_not_called_known() -> None:
    """The job learns that nothing of it is kept."""
    gate = Gate(ledger=TrainingLedger(max_runs=1, max_ranks=1))
    records = [STEP, {**STEP, "run": "b"}, {**STEP, "rank": 3}]
    status, said = gate.push({"records": records})
    assert (status, said["new"], said["known"]) == (200, 1, 0)
    assert [one["field"] for one in said["refused"]] == ["run", "rank"]


def test_a_body_in_pieces_and_a_packed_one_are_read(gate: Gate) -> None:
    """As networks and collectors send them."""
    assert gate.push({**STEP, "step": 1}, pieces=7)[1]["new"] == 1
    packed = gzip.compress(json.dumps({**STEP, "step": 2}).encode())
    assert gate.push(packed, ("content-encoding", "gzip"))[1]["new"] == 1


# ---------------------------------------------------------------- how much


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", (), 400),
        (b"{", (), 400),
        (b"[" * 4000, (), 400),
        (b"\xff", (), 400),
        (b" " * 5000, (), 413),
        (b"{}", (("content-length", "5000"),), 413),
        (b"{}", (("content-length", "9" * 5000),), 413),
        (json.dumps([STEP] * 11).encode(), (), 413),
        (b"x", (("content-encoding", "gzip"),), 400),
        (gzip.compress(b"{}", mtime=0)[:-4], (("content-encoding", "gzip"),), 400),
        (gzip.compress(b"{}", mtime=0) + b"x", (("content-encoding", "gzip"),), 400),
        (gzip.compress(b" " * 3_000_000, mtime=0), (("content-encoding", "gzip"),), 413),
        (b"{}", (("content-encoding", "br"),), 415),
        (b"{}", (("content-type", "text/plain"),), 415),
        (b"{}", (("content-type", ""),), 415),
        (b"{}", (("content-type", "application/x-www-form-urlencoded"),), 415),
    ],
)
def test_hostile_bodies_get_one_clear_answer(
    gate: Gate, body: bytes, headers: tuple[tuple[str, str], ...], status: int
) -> None:
    """None of them is taken, and none costs more than its limit."""
    got, said = gate.push(body, *headers)
    assert got == status
    assert isinstance(said["error"], str)
    assert "Traceback" not in said["error"]
    assert gate.ledger.runs(5.0) == []


def test_of_a_gzip_bomb_no_more_than_the_limit_is_unpacked() -> None:
    """Fifty kilobytes may stand for fifty megabytes."""
    gate = Gate(Rules(max_body=100_000))
    bomb = gzip.compress(b" " * 50_000_000, mtime=0)
    tracemalloc.start()
    try:
        assert gate.push(bomb, ("content-encoding", "gzip"))[0] == 413
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_what_is_held_at_once_has_a_limit(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it a push is asked to come again."""
    monkeypatch.setattr(room, "MOST_HELD", 10)
    assert gate.push()[0] == 429
    assert gate.headers["retry-after"] == "1"
    monkeypatch.setattr(room, "MOST_HELD", 1000)
    monkeypatch.setattr(room, "MOST_WAITING", 0)
    assert gate.push()[0] == 429


def test_other_methods_are_refused(gate: Gate) -> None:
    """And say which one is right."""
    assert gate.push(method="GET")[0] == 405
    assert gate.headers["allow"] == "POST"
    assert gate.push(method="OPTIONS")[0] == 405


def test_switched_off_nothing_is_taken() -> None:
    """`push.enabled: false`."""
    assert Gate(Rules(enabled=False)).push()[0] == 403


# ---------------------------------------------------------------- who


@pytest.mark.parametrize(
    ("options", "headers", "status"),
    [
        ({}, (), 200),
        ({"client": ("::1", 1)}, (("host", "[::1]:9810"),), 200),
        ({"client": None, "server": ("/run/flopwatch/push.sock", None)}, (), 200),
        # an address that is not known is not a unix socket
        ({"client": None, "server": None}, (), 403),
        ({"client": None}, (), 403),
        ({"client": REMOTE}, (), 403),
        ({"client": REMOTE}, (BEARER,), 403),
        # a page in a browser on this machine, by its own name or by ours
        ({}, (("host", "evil.example"),), 403),
        ({}, (("origin", "https://evil.example"),), 403),
        ({}, (("origin", "null"),), 403),
        ({}, (("sec-fetch-site", "cross-site"),), 403),
        (
            {"client": None, "server": ("/run/flopwatch/push.sock", None)},
            (("origin", "https://evil.example"),),
            403,
        ),
        # proxies on this machine
        ({}, (("x-forwarded-for", "192.0.2.9"),), 403),
        ({}, (("forwarded", "for=192.0.2.9"),), 403),
        ({}, (("via", "1.1 x"),), 403),
        ({"version": "1.0"}, (), 403),
    ],
)
def test_without_a_token_only_this_machine_may_push(
    gate: Gate, options: dict[str, Any], headers: tuple[tuple[str, str], ...], status: int
) -> None:
    """And nobody who passes others on."""
    got, said = gate.push(STEP, *headers, **options)
    assert got == status, said
    assert bool(gate.ledger.runs(5.0)) == (status == 200)


@pytest.mark.parametrize("client", [LOCAL, REMOTE])
def test_without_loopback_a_token_is_wanted_there_too(guarded: Gate, client: Any) -> None:
    """For machines on which a proxy hides that it is one."""
    guarded.rules.loopback = False
    assert guarded.push(client=client)[0] == 401
    assert guarded.push(STEP, BEARER, client=client)[0] == 200


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer  {TOKEN} ", 200),
        ("Bearer another-token-that-is-valid", 200),
        ("", 401),
        ("Bearer", 401),
        ("Bearer ", 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        (f"Basic {TOKEN}", 401),
        (f"Bearer {TOKEN}\nanother-token-that-is-valid", 401),
        ("Bearer \xe9\xe9", 401),
    ],
)
def test_from_elsewhere_a_token_is_wanted(guarded: Gate, authorization: str, status: int) -> None:
    """One of those in the file."""
    got, said = guarded.push(STEP, ("authorization", authorization), client=REMOTE)
    assert got == status
    if status == 401:
        assert guarded.headers["www-authenticate"].startswith("Bearer")
        assert TOKEN not in json.dumps(said)


def test_a_wrong_token_is_refused_before_the_body_is_read(guarded: Gate) -> None:
    """Whoever may not push holds no memory of ours."""
    assert guarded.push(b"x" * 100_000, client=REMOTE)[0] == 401


def test_a_rotated_token_is_taken_up(guarded: Gate) -> None:
    """The file is looked at each time."""
    Path(str(guarded.rules.token_file)).write_text("a-new-token-of-the-operator\n")
    assert guarded.push(STEP, BEARER, client=REMOTE)[0] == 401
    new = ("authorization", "Bearer a-new-token-of-the-operator")
    assert guarded.push(STEP, new, client=REMOTE)[0] == 200


@pytest.mark.parametrize("content", [None, "", "short", "with blanks in the middle of it"])
def test_a_token_file_that_cannot_be_used_allows_nobody(guarded: Gate, content: str | None) -> None:
    """And it is told, without what it holds."""
    path = Path(str(guarded.rules.token_file))
    path.unlink()
    if content is not None:
        path.write_text(content)
    for offered in ("", f"Bearer {TOKEN}", f"Bearer {content}"):
        assert guarded.push(STEP, ("authorization", offered), client=REMOTE)[0] == 401
    detail = guarded.reception.troubles()["token_file"].detail
    assert str(path) in detail
    assert not content or content not in detail


def test_a_pipe_as_token_file_does_not_hang(guarded: Gate, tmp_path: Path) -> None:
    """Opening it would wait for a writer."""
    os.mkfifo(tmp_path / "pipe")
    guarded.rules.token_file = str(tmp_path / "pipe")
    assert guarded.push(STEP, BEARER, client=REMOTE)[0] == 401
    assert "not a file" in guarded.reception.troubles()["token_file"].detail


# ---------------------------------------------------------------- OTLP


def test_otlp_is_answered_as_it_was_asked(gate: Gate) -> None:
    """JSON with JSON; binary with an empty message, as its specification wants."""
    assert gate.push(b"12", path=METRICS) == (200, {})
    binary = ("content-type", "application/x-protobuf")
    assert gate.push(b"23", binary, path=METRICS) == (200, b"")
    assert gate.reception.records() == {
        ("otlp", "new"): 3, ("otlp", "known"): 1, ("otlp", "refused"): 0,
    }  # fmt: skip


def test_an_error_of_otlp_is_a_status_in_the_same_encoding(gate: Gate) -> None:
    """google.rpc.Status: a code and a message."""
    assert gate.push(b"x", path=METRICS) == (400, {"code": 3, "message": "no OTLP"})
    binary = ("content-type", "application/x-protobuf")
    assert gate.push(b"x", binary, path=METRICS) == (400, b"\x08\x03\x12\x07no OTLP")


def test_data_points_that_make_no_sense_are_told_as_a_partial_success() -> None:
    """So that a collector logs it and does not send them again."""
    gate = Gate(ledger=TrainingLedger(max_runs=0))
    message = "run: too many runs are known on this node"
    told = {"rejectedDataPoints": "2", "errorMessage": message}
    assert gate.push(b"12", path=METRICS) == (200, {"partialSuccess": told})
    binary = ("content-type", "application/x-protobuf")
    inner = b"\x08\x02\x12" + bytes([len(message)]) + message.encode()
    expected = b"\x0a" + bytes([len(inner)]) + inner
    assert gate.push(b"12", binary, path=METRICS) == (200, expected)
