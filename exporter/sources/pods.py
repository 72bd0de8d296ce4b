"""The pods of this node: kept up to date for whoever looks for servers among them, or for names.

A reader (the API server's watch, or the kubelet) is asked for what it knows; that goes onto the
board of pods, where it stays while the reader fails: names stay true, and a server that is there is
read on. How old it is then, this source's last success tells.

    flopwatch_pods{state="serving"} 11
    flopwatch_pod_requests_total{kind="list"} 1
    flopwatch_pod_requests_total{kind="watch"} 12
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Protocol

from exporter import catalogue as c
from exporter.attribution.pods import PodBoard
from exporter.clock import Clock
from exporter.discovery.api import MOST_PODS, Tally
from exporter.formats.podlist import Pod
from exporter.samples import Fault, Sample, SourceError

log = logging.getLogger(__name__)


class Reader(Protocol):
    """Knows the pods of this node."""

    @property
    def tally(self) -> Tally:
        """What it has asked for so far."""

    def pods(self) -> list[Pod] | None:
        """Return the pods, `None` while they are not known. Raises what keeps them from it."""

    def close(self) -> None:
        """Release what it holds."""


_LATELY = 300.0
"""Seconds after which it is no longer known which pods are over, where nobody could be asked."""

_REST = 600.0
"""Seconds for which nobody is asked who has refused, where that is not asked for."""


class PodsSource:
    """Brings what `reader` knows onto the board.

    Where pods are not `wanted` outright, the lack of the right to read them is no failure: a pod
    may have a token for other reasons. It is said once, and tried again now and then.
    """

    name = "pods"
    group = c.EXPORTER

    def __init__(
        self, reader: Reader, board: PodBoard, clock: Clock, *, wanted: bool = True
    ) -> None:
        self._reader = reader
        self._board = board
        self._clock = clock
        self._wanted = wanted
        self._last: list[Pod] = []
        self._seen = clock.monotonic()
        self._resting = 0.0

    def read(self) -> Iterator[Sample | Fault]:
        """Yield how many pods there are, and what was asked for to know it."""
        try:
            if (pods := self._asked()) is not None:
                self._seen = self._clock.monotonic()
        finally:
            self._board.current = self._clock.monotonic() - self._seen <= _LATELY
        if pods is not None:
            if pods != self._last or not self._board.pods:
                self._board.publish(pods)
                self._last = pods
            serving = sum(pod.serves for pod in pods)
            yield c.FLOPWATCH_PODS(serving, "serving")
            yield c.FLOPWATCH_PODS(len(pods) - serving, "other")
            if len(pods) >= MOST_PODS:
                yield Fault(
                    "pods", "denied", f"more than {MOST_PODS} pods; the others are left out"
                )
        tally = self._reader.tally
        counts = (("list", tally.lists), ("watch", tally.watches), ("kubelet", tally.kubelet))
        for kind, number in counts:
            if number:
                yield c.FLOPWATCH_POD_REQUESTS_TOTAL(number, kind)
        if tally.watches:
            yield c.FLOPWATCH_POD_CHANGES_TOTAL(tally.changes)

    def _asked(self) -> list[Pod] | None:
        if self._clock.monotonic() < self._resting:
            return None
        try:
            return self._reader.pods()
        except SourceError as error:
            if self._wanted or self._last or error.reason != "denied":
                raise
            if not self._resting:
                log.info("source=%s tells nothing: %s", self.name, error)
            self._resting = self._clock.monotonic() + _REST
            return None

    def close(self) -> None:
        """Release what the reader holds."""
        self._reader.close()
