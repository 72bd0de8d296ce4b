"""Spreads over time what many nodes ask one service.

A fleet starts together: a rollout, a changed ConfigMap, power that comes back. Sources that read
their own machine may beat together; those that ask something shared (a metadata service, an API
server, a page that all nodes read) begin at a moment of their own, the same one each time.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace

from exporter.runner import Schedule


def node_name() -> str:
    """Return what the node is called: in Kubernetes as it says, else by the host's name."""
    return os.environ.get("NODE_NAME") or os.uname().nodename


def share(node: str, source: str) -> float:
    """Return where between 0 and 1 a node's turn is: always the same, and evenly over nodes."""
    digest = hashlib.sha256(f"{node}\0{source}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def shared(schedule: Schedule, source: str, *, jitter: float, node: str = "") -> Schedule:
    """Return the schedule of a source that asks a shared service.

    The first read, the beats, and what is tried again after a failure come up to one interval
    later, `jitter` seconds at most (`start_jitter`).
    """
    later = share(node or node_name(), source) * min(jitter, schedule.interval)
    return replace(schedule, after=later, first=later)
