"""Amazon EC2: spot interruptions, rebalance recommendations, scheduled events.

By IMDSv2: each read carries a token. 404 is the healthy answer of the spot paths. Sources: the EC2
user guide, "Spot Instance interruption notices" and "Scheduled events for your instances".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from exporter.clouds.question import Question, Refusal, Told
from exporter.clouds.service import Service, Token, json_of
from exporter.clouds.times import time_or_none, unix_seconds
from exporter.notices import Instance

_DATA = "/latest/meta-data"
_ACTION = f"{_DATA}/spot/instance-action"
_TERMINATION = f"{_DATA}/spot/termination-time"
_REBALANCE = f"{_DATA}/events/recommendations/rebalance"
_SCHEDULED = f"{_DATA}/events/maintenance/scheduled"

_LIFECYCLES = {
    "on-demand": "on_demand", "spot": "spot", "scheduled": "reserved", "capacity-block": "reserved",
}  # fmt: skip
_ACTIONS = frozenset(("terminate", "stop", "hibernate"))
_CODES = {
    "instance-stop": "stop", "instance-reboot": "reboot", "system-reboot": "reboot",
    "system-maintenance": "maintenance", "instance-retirement": "retire",
}  # fmt: skip

OFTEN = 2.0
"""Seconds between two looks; AWS advises five, and a notice comes two minutes ahead."""
_REBALANCE_EVERY, _SCHEDULED_EVERY = 4.0, 10.0


class Aws:
    """The EC2 instance metadata service. `tokenless`: read without a token where there are none."""

    name = "aws"
    lead: float | None = 120.0

    def __init__(self, service: Service, *, tokenless: bool = False) -> None:
        self._token = Token(
            service, "/latest/api/token",
            lifetime_header="X-aws-ec2-metadata-token-ttl-seconds",
            header="X-aws-ec2-metadata-token",
            optional=frozenset((404, 405)) if tokenless else frozenset(),
        )  # fmt: skip

    def identify(self) -> Instance:
        """Return life cycle, type, zone and instance id."""
        lifecycle = _LIFECYCLES.get(self._text("instance-life-cycle"), "")
        return Instance(
            self.name, lifecycle, self._text("instance-type"),
            self._text("placement/availability-zone"), self._text("instance-id"),
        )  # fmt: skip

    def questions(self, instance: Instance) -> tuple[Question, ...]:
        """Return spot paths unless the instance is known to be none, and scheduled events."""
        scheduled = Question("maintenance", ("maintenance",), _SCHEDULED_EVERY, self._scheduled)
        if instance.lifecycle not in {"", "spot"}:
            return (scheduled,)
        return (
            Question("spot", ("interruption",), OFTEN, self._interruption),
            Question("rebalance", ("rebalance",), _REBALANCE_EVERY, self._rebalance),
            scheduled,
        )

    def _text(self, path: str) -> str:
        got = self._token.get(f"{_DATA}/{path}")
        return "" if got is None else got.text[:128]

    def _interruption(self) -> Sequence[Told]:
        got = self._token.get(_ACTION)
        if got is None:
            return self._termination()
        found = _object(_ACTION, json_of(_ACTION, got.text))
        action = str(found.get("action", ""))
        return (
            Told(
                "interruption", action if action in _ACTIONS else "terminate",
                time_or_none(found.get("time")),
            ),
        )  # fmt: skip

    def _termination(self) -> Sequence[Told]:
        """Look at the older path; without a time in it nothing is announced."""
        got = self._token.get(_TERMINATION)
        try:
            deadline = unix_seconds("" if got is None else got.text)
        except ValueError:
            return ()
        return (Told("interruption", "terminate", deadline),)

    def _rebalance(self) -> Sequence[Told]:
        got = self._token.get(_REBALANCE)
        if got is None:
            return ()
        found = _object(_REBALANCE, json_of(_REBALANCE, got.text))
        return (Told("rebalance", "replace", id=str(found.get("noticeTime", ""))[:64]),)

    def _scheduled(self) -> Sequence[Told]:
        got = self._token.get(_SCHEDULED)
        if got is None:
            return ()
        events = json_of(_SCHEDULED, got.text or "[]")
        if not isinstance(events, list):
            raise Refusal("malformed", f"{_SCHEDULED}: a list is wanted")
        found = [_object(_SCHEDULED, event) for event in events[:32]]
        return [_event(event) for event in found if event.get("State", "active") == "active"]


def _event(event: Mapping[str, Any]) -> Told:
    return Told(
        "maintenance", _CODES.get(str(event.get("Code")), "maintenance"),
        time_or_none(event.get("NotBefore")),
        str(event.get("EventId", ""))[:64], str(event.get("Description", ""))[:256],
    )  # fmt: skip


def _object(path: str, found: object) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise Refusal("malformed", f"{path}: an object is wanted")
    return found
