"""What a cloud has announced for this machine, for all who have to act on it.

One reader puts the present outlook onto the board; sinks, the status page and `/spot` look at it.
Values are replaced whole, so nobody needs a lock. Times are Unix seconds.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Kind = Literal["interruption", "rebalance", "maintenance"]
"""The machine is taken away; it may be soon (AWS); its host is worked on."""

KINDS: tuple[Kind, ...] = ("interruption", "rebalance", "maintenance")


class Notice(NamedTuple):
    """One thing that was announced.

    `action` is what will happen (terminate, stop, hibernate, reboot, freeze ...), `seen` when we
    first knew, `deadline` when it happens (`None`: not told), `id` the provider's name for it.
    """

    kind: Kind
    action: str
    seen: float
    deadline: float | None = None
    id: str = ""
    detail: str = ""

    def left(self, now: float) -> float | None:
        """Return the seconds until it happens, 0 if that is past, `None` if it was not told."""
        return None if self.deadline is None else max(0.0, self.deadline - now)


class Instance(NamedTuple):
    """The machine as its cloud knows it; "" is unknown.

    `lifecycle` is on_demand, spot or reserved; `name` is what the provider calls the machine.
    """

    provider: str
    lifecycle: str = ""
    instance_type: str = ""
    zone: str = ""
    name: str = ""


class Outlook(NamedTuple):
    """All that is known of this machine's future.

    `supported` tells whether the provider announces interruptions at all, `checked` when it last
    answered, and `lead` how long before an interruption it usually does, in seconds.
    """

    instance: Instance
    notices: tuple[Notice, ...] = ()
    supported: bool = True
    checked: float | None = None
    lead: float | None = None


class NoticeBoard:
    """Holds the present outlook. `version` grows with what is announced, not with each look."""

    def __init__(self) -> None:
        self.outlook: Outlook | None = None
        self.version = 0

    def put(self, outlook: Outlook | None) -> None:
        """Replace the outlook; without one nobody looks any more."""
        former, self.outlook = self.outlook, outlook
        if _announced(former) != _announced(outlook):
            self.version += 1

    def document(self, now: float, *, detailed: bool = True) -> dict[str, Any]:
        """Return the outlook as JSON values; names and texts only for callers on the machine."""
        outlook = self.outlook
        if outlook is None:
            return {"provider": None, "notices": []}
        instance = outlook.instance._asdict()
        if not detailed:
            del instance["name"]
        return {
            **instance,
            "supported": outlook.supported,
            "checked": outlook.checked,
            "usual_lead_seconds": outlook.lead,
            "interrupted": any(one.kind == "interruption" for one in outlook.notices),
            "notices": [_plain(one, now, detailed=detailed) for one in outlook.notices],
        }


def _announced(outlook: Outlook | None) -> object:
    return None if outlook is None else outlook._replace(checked=None)


def _plain(one: Notice, now: float, *, detailed: bool) -> dict[str, Any]:
    plain = {**one._asdict(), "seconds_left": one.left(now)}
    if not detailed:
        del plain["id"], plain["detail"]
    return plain
