"""Tells others at once what the cloud has announced: a file, webhooks, Alertmanagers.

A warning of half a minute and a scrape every minute do not go together, so each sink here looks
once a second. What cannot be delivered is tried again within five seconds, counts, and is a fault;
it is never a reason to forget.

    flopwatch_notifications_total{receiver="oncall",result="sent"} 1
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.notices import Notice, NoticeBoard, Outlook
from exporter.samples import Fault, Malformed, Sample, SourceError

_LONGEST_PAUSE = 5.0
_HEARTBEAT = 10.0
"""Seconds after which the file is written anew, so that its readers see that we live."""

_TROUBLE = (OSError, SourceError, Malformed)

Post = Callable[[bytes], None]
"""Sends a body of JSON to one receiver; raises what `HttpFetcher.post` does."""


class NoticeFile:
    """A file for jobs on this machine: what is announced, and when that was written.

    It is replaced whole, and readable by all. `boot` names this run of the machine.
    """

    group = c.EXPORTER
    name = "notify:file"

    def __init__(self, path: Path, notices: NoticeBoard, clock: Clock, *, boot: str = "") -> None:
        self._path = path
        self._notices = notices
        self._clock = clock
        self._boot = boot
        self._written: int | None = None
        self._due = -math.inf
        self._fault: Fault | None = None

    def read(self) -> Iterator[Fault]:
        """Write if there is news, or it is time; what cannot be written is tried again at once."""
        now, version = self._clock.monotonic(), self._notices.version
        if self._notices.outlook is not None and (version != self._written or now >= self._due):
            wall = self._clock.time()
            document = {"written": wall, "boot": self._boot, **self._notices.document(wall)}
            try:
                _replace(self._path, json.dumps(document).encode() + b"\n")
            except OSError as error:
                self._fault = Fault.of("delivery", error)
            else:
                self._written, self._due, self._fault = version, now + _HEARTBEAT, None
        if self._fault is not None:
            yield self._fault

    def close(self) -> None:
        """Leave the file: what it says still holds."""


def _replace(path: Path, data: bytes) -> None:
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(new, flags, 0o644), "wb") as file:
        os.fchmod(file.fileno(), 0o644)  # whatever the umask says: jobs run as somebody else
        file.write(data)
    new.replace(path)


class _Sink:
    """What sinks that send have in common: when they try, and what became of it."""

    group = c.EXPORTER

    def __init__(self, name: str, post: Post, clock: Clock) -> None:
        self.name = f"notify:{name}"
        self._receiver = name
        self._post = post
        self.clock = clock
        self._counts = {"sent": 0, "failed": 0}
        self._failures = 0
        self._not_before = -math.inf
        self._fault: Fault | None = None

    def ready(self) -> bool:
        """Tell whether it may be tried now."""
        return self.clock.monotonic() >= self._not_before

    def send(self, plain: object) -> bool:
        """Send; tell whether it was taken."""
        try:
            self._post(json.dumps(plain).encode())
        except _TROUBLE as error:
            self._counts["failed"] += 1
            self._failures += 1
            pause = min(_LONGEST_PAUSE, 2.0 ** min(self._failures - 1, 8))
            self._not_before = self.clock.monotonic() + pause
            self._fault = Fault.of("", error)
            return False
        self._counts["sent"] += 1
        self._failures, self._fault = 0, None
        return True

    def told(self) -> Iterator[Sample | Fault]:
        """Yield how it has gone."""
        for result, number in self._counts.items():
            yield c.FLOPWATCH_NOTIFICATIONS_TOTAL(number, self._receiver, result)
        if self._fault is not None:
            yield self._fault._replace(part="delivery")

    def close(self) -> None:
        """Nothing is left behind: what was sent stays said."""


class Webhook(_Sink):
    """Posts the whole outlook each time that it changes.

    Without a notice from the beginning, nothing is sent until there is one.
    """

    def __init__(
        self, name: str, post: Post, notices: NoticeBoard, clock: Clock, *, node: str
    ) -> None:
        super().__init__(name, post, clock)
        self._notices = notices
        self._node = node
        self._sent: tuple[Notice, ...] = ()

    def read(self) -> Iterator[Sample | Fault]:
        """Send what has changed."""
        outlook = self._notices.outlook
        if outlook is not None and outlook.notices != self._sent and self.ready():
            plain = {"node": self._node, **self._notices.document(self.clock.time())}
            if self.send(plain):
                self._sent = outlook.notices
        yield from self.told()


class _Kind(NamedTuple):
    """How a kind of notice is alerted: severities are those of `alerts/cost-spot.yaml`."""

    alertname: str
    severity: str
    summary: str


_ALERTS: Mapping[str, _Kind] = {
    "interruption": _Kind("SpotInterruption", "ticket", "{node} is taken away"),
    "rebalance": _Kind("SpotRebalance", "info", "{node} will probably be taken away"),
    "maintenance": _Kind("HostMaintenance", "ticket", "work on {node} is announced"),
}


class AlertmanagerSink(_Sink):
    """Posts alerts to one Alertmanager (API v2): repeated while they hold, resolved when withdrawn.

    An alert ends by itself three repetitions after the last one: with the node, then.
    """

    def __init__(
        self,
        name: str,
        post: Post,
        notices: NoticeBoard,
        clock: Clock,
        *,
        node: str,
        labels: Mapping[str, str],
        resend: float = 60.0,
    ) -> None:
        super().__init__(name, post, clock)
        self._notices = notices
        self._node = node
        self._labels = labels
        self._resend = resend
        self._firing: dict[tuple[str, str], dict[str, Any]] = {}
        self._last = -math.inf

    def read(self) -> Iterator[Sample | Fault]:
        """Send what has changed, and from time to time what holds."""
        outlook = self._notices.outlook
        if outlook is not None and self.ready():
            self._tell(outlook)
        yield from self.told()

    def _tell(self, outlook: Outlook) -> None:
        now, wall = self.clock.monotonic(), self.clock.time()
        firing: dict[tuple[str, str], dict[str, Any]] = {
            (one.kind, one.id if one.kind == "maintenance" else ""): self._alert(one, outlook)
            for one in outlook.notices
        }
        over = [alert for key, alert in self._firing.items() if key not in firing]
        if firing == self._firing and (not firing or now - self._last < self._resend):
            return
        lasting = {"endsAt": _rfc3339(wall + 3 * self._resend)}
        alerts = [
            *(_begun({**alert, **lasting}, wall) for alert in firing.values()),
            *(_begun({**alert, "endsAt": _rfc3339(wall)}, wall) for alert in over),
        ]
        if self.send(alerts):
            self._firing, self._last = firing, now

    def _alert(self, one: Notice, outlook: Outlook) -> dict[str, Any]:
        kind = _ALERTS[one.kind]
        instance = outlook.instance
        own = {
            "alertname": kind.alertname, "severity": kind.severity, "component": "spot",
            "node": self._node, "provider": instance.provider,
            **({"event": one.id} if one.kind == "maintenance" and one.id else {}),
        }  # fmt: skip
        when = "" if one.deadline is None else f" at {_rfc3339(one.deadline)}"
        about = f"{instance.instance_type} {instance.zone} {instance.name}".strip()
        said = f" {one.detail}" if one.detail else ""
        return {
            "labels": {**self._labels, **own},
            "annotations": {
                "summary": kind.summary.format(node=self._node),
                "description": f"{one.action}{when}: {about}.{said}",
            },
            "startsAt": _rfc3339(one.seen),
        }


def _begun(alert: dict[str, Any], wall: float) -> dict[str, Any]:
    """Return an alert that has begun by now: one that ends before it begins is refused for ever.

    The clock may have been set back since the notice was seen.
    """
    return {**alert, "startsAt": min(alert["startsAt"], _rfc3339(wall))}


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
