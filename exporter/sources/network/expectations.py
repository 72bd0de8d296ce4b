"""Whether a port ought to be up: a port that is down is a fault only if something speaks for it.

Never the product's name: which ports are cabled differs between nodes of one product (gpud pull
requests 200, 295, 482). Evidence is what the operator says, what the port has been, and what other
ports of its kind are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from exporter.sources.network.layout import Port


class Seen(NamedTuple):
    """A port as it is: up (1, 0, unknown), switched off, and whether it has been up before."""

    port: Port
    up: int | None
    disabled: bool
    before: bool


def judge(seen: Iterable[Seen], stated: Sequence[str]) -> Mapping[tuple[str, str], tuple[int, str]]:
    """Return, by device and port, whether each ought to be up (1, 0), and the reason.

    `stated` are patterns of the operator: `device` or `device/port`; `!` before one says that the
    port may be down. The last one that fits counts. Ports whose state is not known are left out.
    """
    ports = [one for one in seen if one.up is not None and (one.port.rdma or one.port.physical)]
    up: dict[tuple[str, ...], int] = {}
    there: dict[tuple[str, ...], int] = {}
    for one in ports:
        key = one.port.peers
        there[key] = there.get(key, 0) + 1
        up[key] = up.get(key, 0) + (one.up or 0)
    return {
        one.port.labels: _judge(one, stated, up[one.port.peers], there[one.port.peers])
        for one in ports
    }


def _judge(one: Seen, stated: Sequence[str], up: int, there: int) -> tuple[int, str]:
    said = _stated(one.port, stated)
    if said is not None:
        return said, "stated"
    if one.port.virtual:
        return 0, "virtual"
    if one.disabled:
        return 0, "disabled"
    if one.up or one.before:
        return 1, "seen_up"
    # Two that are up and the majority of the kind: else two cables in eight ports would be a rule.
    if one.port.rdma and up >= 2 and up * 2 > there:
        return 1, "peers"
    return 0, "no_evidence"


def _stated(port: Port, patterns: Sequence[str]) -> int | None:
    said = None
    for pattern in patterns:
        bare = pattern.removeprefix("!")
        if fnmatchcase(port.name, bare) or fnmatchcase(port.labels[0], bare):
            said = int(bare == pattern)
    return said


def devices_stated(patterns: Sequence[str]) -> list[str]:
    """Return the devices that the operator names outright: these have to be there."""
    names = {
        pattern.partition("/")[0]: None
        for pattern in patterns
        if not pattern.startswith("!") and not any(ch in pattern.partition("/")[0] for ch in "*?[")
    }
    return list(names)
