"""Whose a process is: by its cgroup, and by what pods are called."""

from __future__ import annotations

from typing import NamedTuple

from exporter.attribution.pods import Named, Names
from exporter.attribution.users import Named as UserNamed
from exporter.clock import Clock
from exporter.discovery.machine import Machine, Process
from exporter.formats import cgroup

_AGAIN = 30.0
"""Seconds after which a process is looked at again: it may be moved, a pod may get its name."""

_MOST = 10_000


class Owner(NamedTuple):
    """Whose a process is; all empty: of no pod, container or job."""

    namespace: str = ""
    pod: str = ""
    container: str = ""
    pod_uid: str = ""
    job: str = ""


class Whose(NamedTuple):
    """What is told of one process: its owner, and what goes beyond it.

    `plain`: it is of no pod, container or job.
    """

    owner: Owner
    container_id: str = ""
    step: str = ""
    user: str = ""
    unit: str = ""
    plain: bool = False


class Owners:
    """Looks up whose processes are. `named` is what is shown of a user."""

    def __init__(self, machine: Machine, names: Names, named: UserNamed, clock: Clock) -> None:
        self._machine = machine
        self._names = names
        self._named = named
        self._clock = clock
        self._known: dict[Process, tuple[float, Whose]] = {}

    def __call__(self, pid: int) -> Whose | None:
        """Return whose the process is that has this number now, `None` if it is gone."""
        process = self._machine.process(pid)
        if process is None:
            return None
        now = self._clock.monotonic()
        due, whose = self._known.get(process, (0.0, None))
        if whose is None or now >= due:
            whose = self._asked(pid)
            if whose is None or self._machine.process(pid) != process:
                return None
            # A pod that has no name yet may just be starting.
            wait = 0.0 if whose.owner.pod_uid and not whose.owner.pod else _AGAIN
            if len(self._known) >= _MOST:
                self._known = {}
            self._known[process] = now + wait, whose
        return whose

    def forget(self) -> None:
        """Forget processes that nobody has asked for lately."""
        now = self._clock.monotonic()
        self._known = {key: one for key, one in self._known.items() if one[0] > now - _AGAIN}

    def _asked(self, pid: int) -> Whose | None:
        text = self._machine.cgroup(pid)
        user = self._machine.user(pid)
        if user is None:
            return None
        found = cgroup.read(text)
        names = (self._names(found.pod, found.container) if found.pod else None) or Named()
        # A container of no pod has a name nowhere here; the beginning of its id stands for it.
        owner = Owner(*names, found.pod, found.job)
        if found.container and not found.pod:
            owner = owner._replace(container=found.container[:12])
        return Whose(
            owner, found.container, found.step, self._named(str(user)), found.unit,
            plain=not (found.pod or found.container or found.job),
        )  # fmt: skip
