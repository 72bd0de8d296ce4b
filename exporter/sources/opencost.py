"""What OpenCost says an hour of this node's GPUs costs.

OpenCost (and Kubecost) tells prices of all nodes on one page; only the rows of this node are of
interest. A price of 0 is what it tells of nodes without GPUs, so it is no price.

    cost_opencost_gpu_hour_dollars{instance_type="p5.48xlarge",pricing="spot"} 3.69
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

from exporter import catalogue as c
from exporter.fetch import Response
from exporter.formats.exposition import Limits, Page, Reader
from exporter.samples import Drop, Fault, Malformed, Sample, SourceError

PRICE = "node_gpu_hourly_cost"
SPOT = "kubecost_node_is_spot"
_LIMITS = Limits(max_series=200_000)


class Fetch(Protocol):
    """What gets the page."""

    def get(self) -> Response:
        """Return the page, or raise what says why there is none."""

    def close(self) -> None:
        """Release the connection."""


class OpenCostSource:
    """Reads the page for the price of `node`'s GPUs."""

    name = "opencost"
    group = c.COST

    def __init__(self, fetch: Fetch, node: str) -> None:
        self._fetch = fetch
        self._node = node
        self._reader = Reader([PRICE, SPOT], _LIMITS)

    def read(self) -> Iterator[Sample | Fault | Drop]:
        """Fetch the page once and yield the price.

        Raises what the fetcher raises; `SourceError` (unavailable) if the page does not name the
        node; `Malformed` if it is none, or tells no price that could be one.
        """
        page = self._reader.read(self._fetch.get().body)
        prices = dict(_rows(page, PRICE, self._node))
        if not prices:
            known = PRICE in page.shape.index
            hint = f"no row of it has node={self._node!r} (sources.opencost.node)"
            raise SourceError(
                "unavailable", f"{PRICE}: {hint if known else 'not on the page: no OpenCost?'}"
            )
        values = set(prices.values())
        if len(values) > 1:
            raise Malformed(f"{PRICE}: {len(values)} prices of node {self._node!r}")
        (price,) = values
        if not 0 <= price < math.inf:
            raise Malformed(f"{PRICE}: {price} is no price")
        spot = {value for _, value in _rows(page, SPOT, self._node)} == {1.0}
        if price > 0:
            kind = next(iter(prices))
            yield c.COST_OPENCOST_GPU_HOUR_DOLLARS(price, kind, "spot" if spot else "")
        if page.partial:
            yield Fault.of("page", Malformed("it ends in the middle of a line"))
        for reason in ("malformed", "labels", "cap"):
            if number := page.dropped.get(reason):
                yield Drop(reason, number)

    def close(self) -> None:
        """Close the connection."""
        self._fetch.close()


def _rows(page: Page, name: str, node: str) -> Iterator[tuple[str, float]]:
    """Yield instance type and value of a family's rows that are of the node."""
    for at in page.shape.index.get(name, ()):
        labels = dict(page.shape.series[at].labels)
        if (labels.get("node") or labels.get("instance")) == node:
            yield labels.get("instance_type", ""), page.values[at]
