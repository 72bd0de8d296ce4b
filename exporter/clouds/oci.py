"""Oracle Cloud: what the machine is. Its metadata service documents no key for interruptions.

Preemptible instances are announced by the provider's events service alone, about two minutes
ahead, so nothing is asked here but the machine's kind; the metric says "not supported".
"""

from __future__ import annotations

from exporter.clouds.question import Question, Refusal
from exporter.clouds.service import Service, json_of
from exporter.notices import Instance

_INSTANCE = "/opc/v2/instance/"


class Oci:
    """The metadata service of OCI."""

    name = "oci"
    lead: float | None = None

    def __init__(self, service: Service) -> None:
        self._service = service

    def identify(self) -> Instance:
        """Return shape, availability domain and name."""
        got = self._service.get(_INSTANCE, {"Authorization": "Bearer Oracle"})
        found = {} if got is None else json_of(_INSTANCE, got.text)
        if not isinstance(found, dict):
            raise Refusal("malformed", f"{_INSTANCE}: an object is wanted")
        shape, zone, name = (
            str(found.get(key) or "")[:128] for key in ("shape", "availabilityDomain", "id")
        )
        return Instance(self.name, "", shape, zone, name)

    def questions(self, instance: Instance) -> tuple[Question, ...]:  # noqa: ARG002
        """Return nothing: there is no key to ask for."""
        return ()
