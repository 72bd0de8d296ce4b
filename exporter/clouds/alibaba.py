"""Alibaba Cloud ECS: when a preemptible instance is released, five minutes ahead.

Source: ECS documentation, "Query the interruption events of preemptible instances" and "Instance
metadata" (hardened mode wants a token; the normal mode has none).
"""

from __future__ import annotations

from collections.abc import Sequence

from exporter.clouds.question import Question, Refusal, Told
from exporter.clouds.service import Service, Token
from exporter.clouds.times import unix_seconds
from exporter.notices import Instance

_DATA = "/latest/meta-data"
_TERMINATION = f"{_DATA}/instance/spot/termination-time"


class Alibaba:
    """The metadata service of ECS."""

    name = "alibaba"
    lead: float | None = 300.0

    def __init__(self, service: Service) -> None:
        self._token = Token(
            service, "/latest/api/token",
            lifetime_header="X-aliyun-ecs-metadata-token-ttl-seconds",
            header="X-aliyun-ecs-metadata-token",
            optional=frozenset((403, 404, 405)),
        )  # fmt: skip

    def identify(self) -> Instance:
        """Return type, zone and id; how it is paid is not told."""
        return Instance(
            self.name, "", self._text("instance/instance-type"), self._text("zone-id"),
            self._text("instance-id"),
        )  # fmt: skip

    def questions(self, instance: Instance) -> tuple[Question, ...]:  # noqa: ARG002
        """Return the one path there is."""
        return (Question("spot", ("interruption",), 5.0, self._interruption),)

    def _text(self, path: str) -> str:
        got = self._token.get(f"{_DATA}/{path}")
        return "" if got is None else got.text[:128]

    def _interruption(self) -> Sequence[Told]:
        got = self._token.get(_TERMINATION)
        if got is None or not got.text:
            return ()
        try:
            return (Told("interruption", "terminate", unix_seconds(got.text)),)
        except ValueError as error:
            raise Refusal("malformed", f"{_TERMINATION}: {error}") from None
