"""The pods of this node, as the API server tells their changes.

One list, then one watch that goes on: no list per scrape (dcgm-exporter 551 throttled an API server
so), no other node's pods, and of each pod only what is wanted. Both are answered from the API
server's memory (`resourceVersion=0`), as the kubelet's are. A watch that ends is taken up where it
was; after a version that is gone, or that is refused again and again (an API server that was set
up anew, or restored, knows others), the pods are listed again. Whatever fails is raised: the runner
waits longer and longer then. A reconnection waits a little that is different on each node.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal
from urllib.parse import urlencode

from exporter.clock import Clock
from exporter.fetch import HttpFetcher, Refused
from exporter.fetch.stream import Stream
from exporter.formats.podlist import Pod, listed, pod_of
from exporter.formats.watchstream import Event, WatchStream
from exporter.samples import Malformed, SourceError

MOST_PODS = 2_000
"""Pods that are kept: a kubelet runs some hundreds at most."""

_GONE = 410
_JSON = "application/json"
_FIRST = 5.0
_AGAIN = 2.0
_LEAST, _MOST = 240.0, 420.0
"""Seconds that the API server is asked to keep a watch open: different ones, as its clients do."""

_LATE = 60.0
_BRIEF = 5.0
"""A watch that was cut sooner than this, in seconds, failed."""

_LONGEST = 60.0
_PATIENT = 3
"""Watches, one after the other, that may be refused before the pods are listed anew."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where pods are asked for, and what goes with it. `timeout` is seconds for one answer."""

    url: str
    timeout: float
    token_file: Path | None = None
    ca_file: Path | None = None
    insecure_skip_verify: bool = False
    max_bytes: int = 32 << 20

    def fetcher(self, path: str, clock: Clock) -> HttpFetcher:
        """Return what asks for a path once and again."""
        return HttpFetcher(
            self.url + path, timeout=self.timeout, clock=clock, max_bytes=self.max_bytes,
            token_file=self.token_file, ca_file=self.ca_file, follow_redirects="none",
            insecure_skip_verify=self.insecure_skip_verify,
        )  # fmt: skip


@dataclass(slots=True)
class Tally:
    """What was asked for and told so far."""

    lists: int = 0
    watches: int = 0
    changes: int = 0
    kubelet: int = 0


class ApiWatch:
    """Keeps the pods of `node` by listing and watching them; `dice` decides how long is waited."""

    def __init__(self, access: Access, node: str, clock: Clock, dice: Random) -> None:
        self._access = access
        self._node = node
        self._clock = clock
        self._dice = dice
        self._pods: dict[str, Pod] = {}
        self._version = ""
        self._stream: Stream | None = None
        self._answer = WatchStream()
        self._began = self._until = 0.0
        self._brief = self._refused = 0
        # The daemons of a cluster may all have been started at once.
        self._due = clock.monotonic() + dice.uniform(0.0, _FIRST)
        self.tally = Tally()

    def pods(self) -> list[Pod] | None:
        """Return the pods as they are now; `None` before they have been listed.

        Raises what keeps them from being known: `Refused`, `SourceError`, `OSError`, `Malformed`.
        """
        now = self._clock.monotonic()
        try:
            if self._stream is not None:
                self._take(self._stream)
            elif now >= self._due:
                if not self._version:
                    self._list()
                self._watch(now)
        except (OSError, Malformed, SourceError) as error:
            self.close()
            self._refused += not isinstance(error, OSError)
            if self._refused >= _PATIENT:
                self._refused, self._version = 0, ""
            raise
        return list(self._pods.values()) if self._version else None

    def close(self) -> None:
        """End the watch."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _path(self, **options: str) -> str:
        selector = {"fieldSelector": f"spec.nodeName={self._node}"}
        return "/api/v1/pods?" + urlencode(selector | options)

    def _list(self) -> None:
        fetcher = self._access.fetcher(self._path(resourceVersion="0"), self._clock)
        self.tally.lists += 1
        try:
            found = listed(fetcher.get().body)
        except Refused as error:
            raise _explained(error) from None
        finally:
            fetcher.close()
        if not found.version:
            raise Malformed("a list of pods without a version")
        self._pods = {pod.uids[0]: pod for pod in found.pods[:MOST_PODS]}
        self._version = found.version

    def _watch(self, now: float) -> None:
        seconds = self._dice.uniform(_LEAST, _MOST)
        path = self._path(
            watch="true", resourceVersion=self._version, allowWatchBookmarks="true",
            timeoutSeconds=f"{seconds:.0f}",
        )  # fmt: skip
        access = self._access
        self.tally.watches += 1
        self._stream = Stream(
            access.url + path, timeout=access.timeout, clock=self._clock, accept=_JSON,
            token_file=access.token_file, ca_file=access.ca_file,
            insecure_skip_verify=access.insecure_skip_verify,
        )  # fmt: skip
        self._answer = WatchStream()
        self._began, self._until = now, now + seconds + _LATE
        self._await(self._stream, self._clock.monotonic() + access.timeout)

    def _await(self, stream: Stream, until: float) -> None:
        """Wait for the answer to begin: a refusal is a failure of this read, not of the next."""
        while self._answer.status is None:
            left = until - self._clock.monotonic()
            if left <= 0:
                raise TimeoutError(f"no answer to the watch within {self._access.timeout:g} s")
            stream.wait(left)
            self._take(stream)
            if self._stream is None:
                return

    def _take(self, stream: Stream) -> None:
        """Take in what the watch has told since the last time."""
        now = self._clock.monotonic()
        data = stream.take()
        gone = False
        for event in self._answer.feed(data or b""):
            gone = gone or not self._apply(event)
        if (status := self._answer.status) not in {None, 200, _GONE}:
            said = f"{self._access.url}: HTTP {status} to the watch"
            raise SourceError(*_meaning(status or 0, said))
        if gone or self._answer.status == _GONE:
            self._end(now, anew=True)
        elif data is None or self._answer.ended or now > self._until:
            self._end(now)

    def _end(self, now: float, *, anew: bool = False) -> None:
        """Let the watch go, to take it up again soon; `anew`: from a new list.

        Raises `ConnectionError` for one that was cut at once; the next one is waited for longer.
        """
        self.close()
        self._brief = self._brief + 1 if now - self._began < _BRIEF else 0
        longest = min(_LONGEST, (_FIRST if anew else _AGAIN) * 2.0 ** min(self._brief, 10))
        self._due = now + self._dice.uniform(0.0, longest)
        if anew:
            self._version = ""
        elif self._brief:
            raise ConnectionError(f"{self._access.url}: the watch was cut at once")

    def _apply(self, event: Event) -> bool:
        """Take in one change; tell whether the watch may go on from where it is."""
        if event.kind == "ERROR":
            if event.code == _GONE:
                return False
            raise SourceError(
                *_meaning(event.code, f"{self._access.url}: the watch ended, status {event.code}")
            )
        pod = None if event.kind == "BOOKMARK" else pod_of(event.document)
        if pod is not None:
            self.tally.changes += 1
            if event.kind == "DELETED":
                self._pods.pop(pod.uids[0], None)
            elif pod.uids[0] in self._pods or len(self._pods) < MOST_PODS:
                self._pods[pod.uids[0]] = pod
        self._version = event.version or self._version
        self._refused = 0
        return True


class KubeletPods:
    """Keeps the pods of this node by asking its kubelet each `every` seconds: it has no watch."""

    def __init__(
        self, access: Access, path: str, clock: Clock, dice: Random, *, every: float
    ) -> None:
        self._fetcher = access.fetcher(path, clock)
        self._clock = clock
        self._dice = dice
        self._every = every
        self._due = clock.monotonic() + dice.uniform(0.0, _FIRST)
        self._pods: list[Pod] | None = None
        self.tally = Tally()

    def pods(self) -> list[Pod] | None:
        """Return the pods as they were told last; `None` before that. Raises as `ApiWatch` does."""
        now = self._clock.monotonic()
        if now >= self._due:
            self.tally.kubelet += 1
            try:
                self._pods = list(listed(self._fetcher.get().body).pods[:MOST_PODS])
            except Refused as error:
                raise _explained(error) from None
            self._due = now + self._every * self._dice.uniform(0.9, 1.1)
        return self._pods

    def close(self) -> None:
        """Close the connection."""
        self._fetcher.close()


def _explained(error: Refused) -> SourceError:
    """Return a refusal with what it means of pods, and not of a page of metrics."""
    shown = str(error).partition(": HTTP ")[0]
    return SourceError(*_meaning(error.status, f"{shown}: HTTP {error.status}"))


def _meaning(status: int, said: str) -> tuple[Literal["denied", "unavailable"], str]:
    match status:
        case 401:
            return "denied", f"{said}: the token is not taken; it is read anew at each try"
        case 403:
            return "denied", (
                f"{said}: may not be read; wanted are list and watch of pods at the API server, or"
                " get of nodes/pods (nodes/proxy before Kubernetes 1.33) at the kubelet"
            )
        case 429:
            return "unavailable", f"{said}: asked too often"
        case _:
            return "unavailable", said
