"""Tencent Cloud CVM: when a spot instance is taken back, about two minutes ahead.

The time is that of China (UTC+8), and no zone is written. Source: CVM documentation, "Spot
Instances" and "Viewing Instance Metadata".
"""

from __future__ import annotations

from collections.abc import Sequence

from exporter.clouds.question import Question, Refusal, Told
from exporter.clouds.service import Service
from exporter.clouds.times import unix_seconds
from exporter.notices import Instance

_DATA = "/latest/meta-data"
_TERMINATION = f"{_DATA}/spot/termination-time"
_CHINA = 8
_PAID = {"SPOTPAID": "spot", "POSTPAID_BY_HOUR": "on_demand", "PREPAID": "reserved"}


class Tencent:
    """The metadata service of CVM."""

    name = "tencent"
    lead: float | None = 120.0

    def __init__(self, service: Service) -> None:
        self._service = service

    def identify(self) -> Instance:
        """Return how it is paid, its type, zone and id."""
        return Instance(
            self.name, _PAID.get(self._text("payment/charge-type"), ""),
            self._text("instance/instance-type"), self._text("placement/zone"),
            self._text("instance-id"),
        )  # fmt: skip

    def questions(self, instance: Instance) -> tuple[Question, ...]:
        """Return the one path there is, unless the instance is known to be no spot instance."""
        if instance.lifecycle not in {"", "spot"}:
            return ()
        return (Question("spot", ("interruption",), 5.0, self._interruption),)

    def _text(self, path: str) -> str:
        got = self._service.get(f"{_DATA}/{path}")
        return "" if got is None else got.text[:128]

    def _interruption(self) -> Sequence[Told]:
        got = self._service.get(_TERMINATION)
        if got is None or not got.text:
            return ()
        try:
            return (Told("interruption", "terminate", unix_seconds(got.text, hours=_CHINA)),)
        except ValueError as error:
            raise Refusal("malformed", f"{_TERMINATION}: {error}") from None
