"""Which GPUs claimed devices are (dynamic resource allocation), as the API server tells.

The kubelet names a claimed device as its driver does (`gpu-0`); the driver has published its UUID
in a `ResourceSlice`. Those of this node are asked for when a name comes up that is not known, or
that of a device that is not there any more, and then not again for a minute.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol
from urllib.parse import urlencode

from exporter.clock import Clock
from exporter.fetch import Refused, Response
from exporter.formats.podresources import Claimed
from exporter.formats.resourceslices import uuids
from exporter.samples import SourceError

VERSIONS = ("v1", "v1beta2", "v1beta1")
"""Of the API, newest first: Kubernetes 1.34, 1.33, 1.32."""

AGAIN = 60.0
"""Seconds between two askings for what is not known."""

_NOT_THERE = 404
_FORBIDDEN = 403
_RIGHT = "the right to list resourceslices (resource.k8s.io) is missing"


class Fetch(Protocol):
    """What gets one address."""

    def get(self) -> Response:
        """Return the answer, or raise what says why there is none."""

    def close(self) -> None:
        """Release the connection."""


class ResourceSlices:
    """Knows the devices of a node. `fetch` returns what gets a path of the API server."""

    def __init__(self, fetch: Callable[[str], Fetch], node: str, clock: Clock) -> None:
        self._fetch = fetch
        self._node = node
        self._clock = clock
        self._known: Mapping[Claimed, str] = {}
        self._asked: float | None = None
        self._problem: Exception | None = None

    def __call__(
        self, wanted: Collection[Claimed], there: Collection[str]
    ) -> Mapping[Claimed, str]:
        """Return the UUIDs of devices, those of `wanted` among them if that can be.

        One that is not among those that are `there` is not known: instances that are made anew
        have their former names, and other UUIDs. Raises what hindered it, for as long as something
        is wanted that is not known: `OSError`, `SourceError`, `Malformed`.
        """
        missing = any(self._known.get(one) not in there for one in wanted)
        if missing and self._is_time():
            self._asked = self._clock.monotonic()
            self._problem = None
            try:
                self._known = self._ask()
            except (OSError, SourceError, ValueError) as error:
                self._problem = error
        if missing and self._problem is not None:
            raise self._problem
        return self._known

    def _is_time(self) -> bool:
        return self._asked is None or self._clock.monotonic() - self._asked >= AGAIN

    def _ask(self) -> Mapping[Claimed, str]:
        query = urlencode({"fieldSelector": f"spec.nodeName={self._node}"})
        for version in VERSIONS:
            fetcher = self._fetch(f"/apis/resource.k8s.io/{version}/resourceslices?{query}")
            try:
                return uuids(fetcher.get().body)
            except Refused as error:
                if error.status == _FORBIDDEN:
                    raise SourceError("denied", f"{_RIGHT}: {error}") from None
                if error.status != _NOT_THERE:
                    raise
            finally:
                fetcher.close()
        raise SourceError("unavailable", "the API server knows no ResourceSlices")
