"""Azure: Scheduled Events. A list names all machines that an event is about, ours or not.

The first request switches the feature on, for which it may take two minutes. An eviction
(`Preempt`) comes half a minute ahead and may have started when it is first seen. There is no word
for "done": an event vanishes from the list. Source: Azure documentation, "Scheduled Events for
Linux VMs in Azure", version 2020-07-01.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from exporter.clouds.question import Question, Refusal, Told
from exporter.clouds.service import Service, json_of, text_of
from exporter.clouds.times import time_or_none
from exporter.notices import Instance

_HEADERS = {"Metadata": "true"}
_EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
_COMPUTE = "/metadata/instance/compute?api-version=2021-02-01&format=json"

_ACTIONS = {
    "Freeze": "freeze", "Reboot": "reboot", "Redeploy": "redeploy", "Terminate": "terminate",
}  # fmt: skip
_PRIORITIES = {"spot": "spot", "low": "spot", "regular": "on_demand"}


class Azure:
    """The Azure instance metadata service.

    `acknowledge_after`: approve events that many seconds after they are first seen, which lets them
    begin at once; `None` leaves that to others.
    """

    name = "azure"
    lead: float | None = 30.0

    def __init__(self, service: Service, *, acknowledge_after: float | None = None) -> None:
        self._service = service
        self._after = acknowledge_after
        self._own = ""
        self._evicted = "terminate"
        self._seen: dict[str, float | None] = {}

    def identify(self) -> Instance:
        """Return priority, size, zone and name of the machine."""
        got = self._service.get(_COMPUTE, _HEADERS)
        found = json_of(_COMPUTE, got.text) if got is not None else {}
        if not isinstance(found, dict):
            raise Refusal("malformed", "/metadata/instance/compute: an object is wanted")
        about = {name: str(found.get(name) or "")[:128] for name in (
            "name", "vmSize", "location", "zone", "priority", "evictionPolicy",
        )}  # fmt: skip
        self._own = about["name"]
        self._evicted = "stop" if about["evictionPolicy"].lower() == "deallocate" else "terminate"
        # An empty priority is that of machines without one.
        lifecycle = _PRIORITIES.get(about["priority"].lower() or "regular", "") if found else ""
        zone = "-".join(filter(None, (about["location"], about["zone"])))
        return Instance(self.name, lifecycle, about["vmSize"], zone, self._own)

    def questions(self, instance: Instance) -> tuple[Question, ...]:
        """Return the one list; each second where an eviction is possible."""
        spot = instance.lifecycle in {"", "spot"}
        kinds = ("interruption", "maintenance") if spot else ("maintenance",)
        return (Question("events", kinds, 1.0 if spot else 5.0, self._events),)  # type: ignore[arg-type]

    def _events(self) -> Sequence[Told]:
        if not self._own:
            self.identify()
        if not self._own:
            raise Refusal("malformed", "/metadata/instance/compute: it has no name to compare with")
        got = self._service.always(_EVENTS, _HEADERS)
        document = json_of(_EVENTS, got.text)
        events = document.get("Events") if isinstance(document, dict) else None
        if not isinstance(events, list) or not all(isinstance(one, dict) for one in events):
            raise Refusal("malformed", "/metadata/scheduledevents: no list of events")
        ours = [event for event in events[:256] if self._is_ours(event)]
        told = [self._told(event) for event in ours]
        try:
            self._acknowledge(ours)
        except Refusal as error:
            error.told = told
            raise
        return told

    def _is_ours(self, event: Mapping[str, Any]) -> bool:
        resources = event.get("Resources")
        if not isinstance(resources, list):
            return False
        own = self._own.lower().strip("_")
        return any(str(name).lower().strip("_") == own for name in resources)

    def _told(self, event: Mapping[str, Any]) -> Told:
        kind, about = str(event.get("EventType")), str(event.get("Description") or "")[:256]
        deadline = time_or_none(event.get("NotBefore"))  # empty once it has started
        name = str(event.get("EventId", ""))[:64]
        if kind == "Preempt":
            return Told("interruption", self._evicted, deadline, name, about)
        return Told("maintenance", _ACTIONS.get(kind, "maintenance"), deadline, name, about)

    def _acknowledge(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Approve, once each, what has been announced for long enough."""
        now = self._service.clock.monotonic()
        names = [str(one.get("EventId", "")) for one in events
                 if one.get("EventStatus") == "Scheduled"]  # fmt: skip
        self._seen = {name: self._seen.get(name, now) for name in names if name}
        if self._after is None:
            return
        for name, since in self._seen.items():
            if since is not None and now - since >= self._after:
                body = json.dumps({"StartRequests": [{"EventId": name}]}).encode()
                headers = {**_HEADERS, "Content-Type": "application/json"}
                text_of(_EVENTS, self._service.ask("POST", _EVENTS, headers, body=body))
                self._seen[name] = None
