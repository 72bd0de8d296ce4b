"""What pods and containers are called, by the numbers that cgroups show.

Whoever watches pods writes them onto the `PodBoard`; where nobody does, the names of the folders
tell that the kubelet keeps logs in. A uid is never given twice, so what was learnt once stays true.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from exporter.clock import Clock
from exporter.formats.podlist import Pod
from exporter.formats.podlog import folder_of, link_of

_MOST = 4096
_OVER = frozenset(("Succeeded", "Failed"))
_LOOK = 5.0
_LOOK_ANYWAY = 60.0


class Named(NamedTuple):
    """A pod's name and namespace, and its container's where that is known."""

    namespace: str = ""
    pod: str = ""
    container: str = ""


class Names(Protocol):
    """Knows what pods are called."""

    def __call__(self, uid: str, container: str) -> Named | None:
        """Return the names of a pod and a container of it, by uid and id; `None`: not known."""


@dataclass
class PodBoard:
    """The pods of this node, as whoever watches them saw them last; empty where nobody does.

    `current`: that was lately. Names stay true without it, phases do not: another pod may have the
    name of one that was over.
    """

    pods: tuple[Pod, ...] = ()
    current: bool = True
    _by_uid: Mapping[str, Pod] = field(default_factory=dict)

    def publish(self, pods: Sequence[Pod]) -> None:
        """Replace the pods. Readers meanwhile see the former ones."""
        self._by_uid = {uid: pod for pod in pods for uid in pod.uids}
        self.pods = tuple(pods)

    def finished(self) -> frozenset[tuple[str, str]]:
        """Return namespace and name of the pods that are over."""
        if not self.current:
            return frozenset()
        return frozenset((one.namespace, one.name) for one in self.pods if one.phase in _OVER)

    def __call__(self, uid: str, container: str) -> Named | None:
        """Return the names of a pod and a container of it; `None` if the pod is not known."""
        pod = self._by_uid.get(uid)
        if pod is None:
            return None
        named = (one.name for one in pod.containers if container and one.id == container)
        return Named(pod.namespace, pod.name, next(named, ""))


class LogFolders:
    """Reads names off the folders with the logs of pods, below `root`.

    They are looked through again for a uid that is not among them, at most every five seconds, and
    once a minute anyway.
    """

    def __init__(self, root: Path, clock: Clock) -> None:
        self._pods = root / "var" / "log" / "pods"
        self._links = root / "var" / "log" / "containers"
        self._clock = clock
        self._by_uid: dict[str, Named] = {}
        self._by_container: dict[str, Named] = {}
        self._looked = -_LOOK_ANYWAY

    def __call__(self, uid: str, container: str) -> Named | None:
        """Return the names of a pod and a container of it; `None` if the pod is not known."""
        age = self._clock.monotonic() - self._looked
        unknown = uid not in self._by_uid or (
            bool(container) and container not in self._by_container
        )
        if age >= (_LOOK if unknown else _LOOK_ANYWAY):
            self._look()
        pod = self._by_uid.get(uid)
        one = self._by_container.get(container)
        if pod is None or one is None or one[:2] != pod[:2]:
            return pod
        return one

    def _look(self) -> None:
        self._looked = self._clock.monotonic()
        folders = filter(None, map(folder_of, _names(self._pods)))
        self._by_uid = {one.uid: Named(one.namespace, one.name) for one in folders}
        links = filter(None, map(link_of, _names(self._links)))
        self._by_container = {
            one.id: Named(one.namespace, one.name, one.container) for one in links
        }


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry, _ in zip(entries, range(_MOST), strict=False)]
    except OSError:
        return []


def first_of(*several: Names) -> Names:
    """Return what asks one after the other; whoever knows the container too wins."""

    def asked(uid: str, container: str) -> Named | None:
        best: Named | None = None
        for names in several:
            found = names(uid, container)
            if found is not None and (not container or found.container):
                return found
            best = best or found
        return best

    return asked
