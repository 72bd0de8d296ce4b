"""Google Compute Engine: preemption of Spot VMs, and what happens to the host.

`preempted` is a hanging GET: the answer comes when it changes, or after `timeout_sec`. The time for
which we hang is short, so that the daemon can end at any moment. The warning is about 30 seconds
and nobody promises it. Sources: Compute Engine documentation, "About VM metadata", "Spot VMs",
"Get live migration notices", "Monitor and plan for a host maintenance event".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from exporter.clouds.question import Question, Refusal, Told
from exporter.clouds.service import Got, Service, json_of
from exporter.clouds.times import time_or_none
from exporter.notices import Instance

_HEADERS = {"Metadata-Flavor": "Google"}
_INSTANCE = "/computeMetadata/v1/instance"
_PREEMPTED = f"{_INSTANCE}/preempted"
_HOST = f"{_INSTANCE}/maintenance-event"
_UPCOMING = f"{_INSTANCE}/upcoming-maintenance"

_ACTIONS = {
    "MIGRATE_ON_HOST_MAINTENANCE": "migrate", "TERMINATE_ON_HOST_MAINTENANCE": "terminate",
}  # fmt: skip

_HANG = 2
"""Seconds for which the service is to wait for news; the daemon must be able to end meanwhile."""


class Gcp:
    """Google's metadata server."""

    name = "gcp"
    lead: float | None = 30.0

    def __init__(self, service: Service) -> None:
        self._service = service
        self._etag = ""

    def identify(self) -> Instance:
        """Return whether the machine may be preempted, its type, zone and name."""
        preemptible = self._text("scheduling/preemptible")
        lifecycle = {"TRUE": "spot", "FALSE": "on_demand"}.get(preemptible.upper(), "")
        return Instance(
            self.name, lifecycle, self._text("machine-type").rpartition("/")[2],
            self._text("zone").rpartition("/")[2], self._text("name"),
        )  # fmt: skip

    def questions(self, instance: Instance) -> tuple[Question, ...]:
        """Return what is asked of preemption, of the host now, and of its plans."""
        host = (
            Question("host", ("maintenance",), 5.0, self._host),
            Question("upcoming", ("maintenance",), 60.0, self._upcoming),
        )
        if instance.lifecycle not in {"", "spot"}:
            return host
        return (
            *host, Question("preempted", ("interruption",), 0.0, self._preempted, waits=True)
        )  # fmt: skip

    def _get(self, path: str) -> Got | None:
        return self._service.get(path, _HEADERS)

    def _text(self, path: str) -> str:
        got = self._get(f"{_INSTANCE}/{path}")
        return "" if got is None else got.text[:256]

    def _preempted(self) -> Sequence[Told]:
        path, more = _PREEMPTED, 0.0
        if self._etag:
            path += f"?wait_for_change=true&last_etag={self._etag}&timeout_sec={_HANG}"
            more = float(_HANG)
        etag, self._etag = self._etag, ""
        got = self._service.always(path, _HEADERS, more_time=more)
        self._etag = got.etag if got.etag.isalnum() and len(got.etag) <= 64 else ""
        match got.text.upper():
            case "TRUE":
                return (Told("interruption", "terminate"),)
            case "FALSE":
                return ()
            case _:
                raise Refusal("malformed", f"{_PREEMPTED}: TRUE or FALSE is wanted ({etag!r})")

    def _host(self) -> Sequence[Told]:
        got = self._service.always(_HOST, _HEADERS)
        if got.text.upper() in {"NONE", ""}:
            return ()
        if (action := _ACTIONS.get(got.text.upper())) is None:
            raise Refusal("malformed", f"{_HOST}: no event that is known")
        return (Told("maintenance", action, id=got.text[:64]),)

    def _upcoming(self) -> Sequence[Told]:
        path = f"{_UPCOMING}?alt=json&recursive=true"
        got = self._get(path)
        found = {} if got is None or not got.text else json_of(path, got.text)
        if not isinstance(found, dict):
            raise Refusal("malformed", f"{_UPCOMING}: an object is wanted")
        begins = _either(found, "window_start_time", "windowStartTime")
        if begins is None:
            return ()
        kind = _either(found, "type", "maintenanceType") or ""
        return (
            Told("maintenance", "maintenance", time_or_none(begins), str(begins)[:64],
                 str(kind)[:64]),
        )  # fmt: skip


def _either(found: Mapping[str, Any], one: str, other: str) -> Any:
    return found.get(one, found.get(other))
