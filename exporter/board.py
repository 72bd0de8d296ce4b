"""The board keeps the latest snapshot of each source, and how reading it has gone.

Sources' runners write through a `Slot`; everybody else sees a `View`, built for one moment, in
which a snapshot past its age limit has already lost its samples. So a hung source leaves the page
by itself, whatever its thread is doing. A retired slot accepts writes and ignores them: the late
reply of a source that has been replaced goes nowhere.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from exporter.samples import Batch, Fault, Health, Snapshot, SourceView, State, View


@dataclass(slots=True)
class Slot:
    """The place of one source on the board. `deadline` and `max_age` are seconds.

    Written by one thread, the source's own; each write replaces whole values, so that a view
    built at the same time sees either the old or the new ones.
    """

    name: str
    group: str
    deadline: float
    max_age: float
    enrolled: float
    serial: int = 0
    snapshot: Snapshot | None = None
    last: Snapshot | None = None
    health: Health = field(default_factory=Health)
    failed: bool = False
    version: int = 0

    def begin(self, now: float) -> None:
        """Note that a read begins; `now` is monotonic seconds."""
        self.health = replace(self.health, attempts=self.health.attempts + 1, busy_since=now)

    def publish(self, snapshot: Snapshot, drops: Mapping[str, int]) -> None:
        """Replace the snapshot after a read that succeeded, at least in part."""
        health = self.health
        self.snapshot, self.last, self.failed = snapshot, snapshot, False
        self.health = replace(
            health,
            failures=_add(health.failures, _by_reason(snapshot.faults)),
            drops=_add(health.drops, drops),
            last_success=snapshot.wall,
            last_duration=snapshot.duration,
            busy_since=None,
        )
        self.version += 1

    def hold(self, now: float) -> None:
        """Note that a read is due and that a former reader, which hangs, is in its way."""
        if self.health.busy_since is None:
            self.health = replace(self.health, busy_since=now)

    def fail(self, snapshot: Snapshot, *, counts: bool = True) -> None:
        """Replace the snapshot after a read that failed: it holds the fault and no samples.

        A read that was refused on request does not count as a failure.
        """
        health = self.health
        self.snapshot, self.failed = snapshot, True
        more = _by_reason(snapshot.faults) if counts else {}
        self.health = replace(
            health,
            failures=_add(health.failures, more),
            last_duration=snapshot.duration,
            busy_since=None,
        )
        self.version += 1

    def see(self, now: float) -> SourceView:
        """Return what this source is worth at `now`, monotonic seconds."""
        snapshot, health, failed = self.snapshot, self.health, self.failed
        busy = None if health.busy_since is None else max(0.0, now - health.busy_since)
        age = None if snapshot is None else max(0.0, now - snapshot.taken)
        fresh = age is not None and age <= self.max_age and not failed
        return SourceView(
            name=self.name,
            group=self.group,
            state=self._state(snapshot, busy, fresh=fresh, failed=failed),
            health=health,
            faults=() if snapshot is None else snapshot.faults,
            batch=snapshot.batch if snapshot is not None and fresh else Batch(),
            age=age,
            busy=busy,
            last=self.last,
        )

    def _state(
        self, snapshot: Snapshot | None, busy: float | None, *, fresh: bool, failed: bool
    ) -> State:
        if busy is not None and busy > self.deadline:
            return "stuck"
        if snapshot is None:
            return "waiting"
        if failed:
            return "failed"
        if not fresh:
            return "stale"
        return "degraded" if snapshot.faults else "up"


class Board:
    """All slots, and the view that consumers get."""

    def __init__(self) -> None:
        self._slots: dict[str, Slot] = {}
        self._serials = 0
        self._lock = threading.Lock()

    def enroll(
        self,
        name: str,
        group: str,
        deadline: float,
        max_age: float,
        now: float,
        *,
        former: Slot | None = None,
    ) -> Slot:
        """Give a source its place; `former` is the one of its predecessor, if that still reads.

        The counts carry on: they are counters, and the name is theirs. So does a read that has not
        returned: the device is stuck, whatever is configured for it now.
        """
        with self._lock:
            former = self._slots.get(name, former)
            self._serials += 1
            slot = Slot(name, group, deadline, max_age, enrolled=now, serial=self._serials)
            if former is not None:
                slot.health = former.health
            self._slots = {**self._slots, name: slot}
        return slot

    def retire(self, name: str) -> None:
        """Forget a source and all that it published."""
        with self._lock:
            self._slots = {n: s for n, s in self._slots.items() if n != name}

    def view(self, now: float) -> View:
        """Return all sources as they are at `now`, monotonic seconds.

        The token changes when a source publishes, fails, ages out, or changes its state; and once
        a second while a read is under way past its deadline, for the sake of its busy time.
        """
        slots = self._slots.values()
        sources = tuple(slot.see(now) for slot in slots)
        token = tuple(
            (slot.serial, slot.version, view.state, view.state == "stuck" and int(now))
            for slot, view in zip(slots, sources, strict=True)
        )
        return View(sources, token)

    def settled(self, now: float) -> bool:
        """Tell whether each source has produced something or passed its first deadline."""
        return all(
            slot.snapshot is not None or now - slot.enrolled > slot.deadline
            for slot in self._slots.values()
        )


def _by_reason(faults: tuple[Fault, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for fault in faults:
        found[fault.reason] = found.get(fault.reason, 0) + 1
    return found


def _add(old: Mapping[str, int], more: Mapping[str, int]) -> Mapping[str, int]:
    if not more:
        return old
    return {k: old.get(k, 0) + more.get(k, 0) for k in {**old, **more}}
