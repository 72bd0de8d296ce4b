"""Which of two pods has a device that only one can have.

Until Kubernetes 1.34 the kubelet goes on listing pods that have finished, with the devices that
they had (kubernetes 119423, 132020). It tells neither phase nor age, so the one that came later has
it: the device can only have been given away again. Better evidence counts before that: a pod that
is known to be over does not have it, and one that has a process on a GPU is not over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

Pod = tuple[str, str]
"""Namespace and name."""

MOST = 10_000
"""Pods that are remembered."""

_BLANKS = 3
"""Empty lists, one after the other, that are not believed: a kubelet that has just been started
may not know its pods yet, and those that it names then are not new."""


class Pods:
    """The pods that are listed, by the round in which each was listed first.

    `memory` and `restore` are for the next daemon, which sees all of them for the first time.
    """

    def __init__(self) -> None:
        self._since: dict[Pod, int] = {}
        self._round = 0
        self._blanks = 0

    def look(self, listed: Iterable[Pod]) -> None:
        """Note which pods are listed now; those that are not are forgotten."""
        self._round += 1
        known, pods = self._since, list(dict.fromkeys(listed))[:MOST]
        self._blanks = 0 if pods else self._blanks + 1
        if pods or self._blanks > _BLANKS:
            self._since = {pod: known.get(pod, self._round) for pod in pods}

    def owner(
        self, claims: Collection[Pod], *, finished: Collection[Pod], working: Collection[Pod]
    ) -> Pod | None:
        """Return which of several pods has what all of them claim; None if that is not known.

        `finished` are known to be over, `working` have processes on GPUs.
        """
        left = [pod for pod in claims if pod not in finished] or list(claims)
        left = [pod for pod in left if pod in working] or left
        latest = max(self._since.get(pod, 0) for pod in left)
        newest = [pod for pod in left if self._since.get(pod, 0) == latest]
        return newest[0] if len(newest) == 1 else None

    def memory(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"round": self._round, "pods": [[*pod, at] for pod, at in self._since.items()]}

    def restore(self, memory: Any) -> None:
        """Go on where another one was. Raises for what is no such memory."""
        since = {(str(namespace), str(pod)): int(at) for namespace, pod, at in memory["pods"]}
        self._round = int(memory["round"])
        self._since = dict(list(since.items())[:MOST])
