"""Whether a job has set NCCL as it should: the well-known mistakes, as rules.

`RULES` holds the specification's mistakes (16.4.3, 16.8.3) and those that people report. A rule
looks at the settings of one process and at what its node has; it says yes, no, or nothing where it
lacks something (no port is known, say). Values stay here: what comes out is the name of a mistake.

A job sets NCCL by its environment, and the machine by `/etc/nccl.conf`, which the environment goes
before. Names of interfaces and HCAs are prefixes, exact after `=`, excluded after `^`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

STRANGE = "?"
"""A value that is there and does not look like one of its variable."""

Settings = Mapping[str, str]

LARGE_BUFFER = 16 << 20
"""Bytes of NCCL_BUFFSIZE above which buffers are called large (default: 4 MiB): each channel to
each neighbour has its own, so that 64 MiB take gigabytes of the GPU's memory."""
MOST_SOCKETS = 64
"""NCCL_SOCKET_NTHREADS times NCCL_NSOCKS_PERTHREAD must not exceed this."""

_RDMA = re.compile(r"mlx[45]_\d+|bnxt_re\d*|(rdmap|rocep)\w+|hfi1_\d+|irdma\d*|hns_\d+|efa_\d+")
_LOCAL = re.compile(r"lo|docker.*|br-.*|veth.*|virbr.*|cni.*|cali.*|flannel.*")
_GONE = ("NCCL_SHARP_ENABLE", "NCCL_CHECKS_DISABLE", "NCCL_PROFILE_PRIMS_ENABLE")
_SAME = (
    "NCCL_ALGO", "NCCL_BUFFSIZE", "NCCL_COLLNET_ENABLE", "NCCL_CROSS_NIC", "NCCL_IB_DISABLE",
    "NCCL_MAX_NCHANNELS", "NCCL_MIN_NCHANNELS", "NCCL_NET", "NCCL_NTHREADS", "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_PROTO", "NCCL_SHM_DISABLE",
)  # fmt: skip


class Port(NamedTuple):
    """An RDMA port of the node."""

    device: str
    port: str
    link_layer: str
    active: bool


class Node(NamedTuple):
    """What a rule may know beside the settings. `None` is unknown.

    `rails` are the devices nearest to the GPUs, `interfaces` those of the process's own network
    namespace. `spans` tells whether the job has ranks on other nodes, `sharp` whether SHARP was
    seen to be in use (`nccl_collnet_active`), `odd_file` whether `nccl.conf` has odd lines.
    """

    ports: tuple[Port, ...] | None = None
    rails: frozenset[str] | None = None
    interfaces: frozenset[str] | None = None
    spans: bool | None = None
    sharp: bool | None = None
    odd_file: bool | None = None


class Names(NamedTuple):
    """A list of interfaces or HCAs as NCCL reads it."""

    names: tuple[str, ...]
    exact: bool
    excluded: bool

    def fits(self, name: str, port: str = "") -> bool:
        """Tell whether the list leaves a device in."""
        hit = any(self._hits(one, name, port) for one in self.names)
        return hit is not self.excluded

    def _hits(self, one: str, name: str, port: str) -> bool:
        wanted, _, number = one.partition(":")
        if number and port and number != port:
            return False
        return wanted == name if self.exact else name.startswith(wanted)


def names(settings: Settings, variable: str) -> Names | None:
    """Return a list of names; `None` where it is not set, empty or strange."""
    text = settings.get(variable, "")
    if text in ("", STRANGE):
        return None
    excluded = text.startswith("^")
    text = text.removeprefix("^")
    exact = text.startswith("=")
    told = tuple(one for one in text.lstrip("=").split(",") if one)
    return Names(told, exact, excluded) if told else None


def number(settings: Settings, variable: str) -> int | None:
    """Return a whole number; `None` where it is not set or strange."""
    try:
        return int(settings.get(variable, ""))
    except ValueError:
        return None


Rule = Callable[[Settings, Node], bool | None]


def _ib_disabled(settings: Settings, node: Node) -> bool | None:
    off = bool(number(settings, "NCCL_IB_DISABLE"))
    if not off and settings.get("NCCL_NET", "").lower() != "socket":
        return False
    if node.ports is None:
        return None
    rails = node.rails or frozenset()
    return any(
        one.active and (one.link_layer == "InfiniBand" or one.device in rails) for one in node.ports
    )


def _hca_missing(settings: Settings, node: Node) -> bool | None:
    """Something is listed that is not there, or is down."""
    listed = names(settings, "NCCL_IB_HCA")
    if listed is None or listed.excluded:
        return False
    if node.ports is None:
        return None
    each = [listed._replace(names=(one,)) for one in listed.names]
    return not all(
        any(port.active and one.fits(port.device, port.port) for port in node.ports) for one in each
    )


def _chosen(listed: Names, ports: Sequence[Port]) -> set[str]:
    return {one.device for one in ports if one.active and listed.fits(one.device, one.port)}


def _hca_incomplete(settings: Settings, node: Node) -> bool | None:
    """A rail is left out."""
    listed = names(settings, "NCCL_IB_HCA")
    if listed is None:
        return False
    if not node.ports or not node.rails:
        return None
    there = {one.device for one in node.ports if one.active}
    return not node.rails & there <= _chosen(listed, node.ports)


def _hca_beyond_rails(settings: Settings, node: Node) -> bool | None:
    """A port is listed that is no rail: storage, management."""
    listed = names(settings, "NCCL_IB_HCA")
    if listed is None or listed.excluded:
        return False
    if not node.ports or not node.rails:
        return None
    return not _chosen(listed, node.ports) <= node.rails


def _hca_prefix(settings: Settings, node: Node) -> bool | None:
    """A name without `=` that is a device's own is the beginning of others as well."""
    listed = names(settings, "NCCL_IB_HCA")
    if listed is None or listed.exact:
        return False
    if node.ports is None:
        return None
    devices = {one.device for one in node.ports}
    wanted = {one.partition(":")[0] for one in listed.names}
    return any(
        name in devices and any(
            other != name and other.startswith(name) and other not in wanted for other in devices
        )
        for name in wanted
    )  # fmt: skip


def _interface_is_rdma(settings: Settings, node: Node) -> bool | None:
    """The specification's own mistake: an HCA belongs into NCCL_IB_HCA."""
    listed = names(settings, "NCCL_SOCKET_IFNAME")
    if listed is None or listed.excluded:
        return False
    devices = {one.device for one in node.ports or ()}
    interfaces = node.interfaces or frozenset()
    return any(
        one not in interfaces and (one in devices or _RDMA.fullmatch(one) is not None)
        for one in listed.names
    )


def _interface_missing(settings: Settings, node: Node) -> bool | None:
    """NCCL fails without a word of why (NVIDIA/nccl 1837)."""
    listed = names(settings, "NCCL_SOCKET_IFNAME")
    if listed is None:
        return False
    if node.interfaces is None:
        return None
    return not any(listed.fits(one) for one in node.interfaces)


def _interface_is_local(settings: Settings, node: Node) -> bool | None:
    """The loopback or a bridge of containers reaches no other node (NVIDIA/nccl 286)."""
    listed = names(settings, "NCCL_SOCKET_IFNAME")
    if listed is None or listed.excluded or node.spans is False:
        return False
    if node.spans is None:
        return None
    if node.interfaces is None:
        chosen = set(listed.names)
    else:
        chosen = {one for one in node.interfaces if listed.fits(one)}
    return bool(chosen) and all(_LOCAL.fullmatch(one) for one in chosen)


def _sharp_unused(settings: Settings, node: Node) -> bool | None:
    if not number(settings, "NCCL_COLLNET_ENABLE"):
        return False
    return None if node.sharp is None else not node.sharp


def _without_effect(settings: Settings, _node: Node) -> bool | None:
    return any(one in settings for one in _GONE)


def _switch(variable: str, level: str = "") -> Rule:
    """Return a rule: the variable is on, or the level says never."""

    def rule(settings: Settings, _node: Node) -> bool | None:
        return bool(number(settings, variable)) or settings.get(level, "").upper() in {"LOC", "0"}

    return rule


def _level(variable: str) -> Rule:
    return _switch("", variable)


def _nvls_disabled(settings: Settings, _node: Node) -> bool | None:
    return number(settings, "NCCL_NVLS_ENABLE") == 0


def _debug_left_on(settings: Settings, _node: Node) -> bool | None:
    """A line for each call, or more."""
    said = settings.get("NCCL_DEBUG", "").upper()
    parts = set(settings.get("NCCL_DEBUG_SUBSYS", "").upper().split(","))
    return said == "TRACE" or (said == "INFO" and bool(parts & {"ALL", "COLL", "P2P", "CALL"}))


def _is_set(variable: str) -> Rule:
    def rule(settings: Settings, _node: Node) -> bool | None:
        return settings.get(variable, "") not in ("", STRANGE)

    return rule


def _large_buffers(settings: Settings, _node: Node) -> bool | None:
    return (number(settings, "NCCL_BUFFSIZE") or 0) > LARGE_BUFFER


def _too_many_sockets(settings: Settings, _node: Node) -> bool | None:
    threads = number(settings, "NCCL_SOCKET_NTHREADS")
    each = number(settings, "NCCL_NSOCKS_PERTHREAD")
    return threads is not None and each is not None and threads * each > MOST_SOCKETS


def _cross_nic(settings: Settings, node: Node) -> bool | None:
    """A ring that changes rails goes over the spine."""
    if number(settings, "NCCL_CROSS_NIC") != 1:
        return False
    return None if node.rails is None else len(node.rails) > 1


def _strange_value(settings: Settings, _node: Node) -> bool | None:
    return STRANGE in settings.values()


def _odd_file(_settings: Settings, node: Node) -> bool | None:
    return node.odd_file


RULES: Mapping[str, Rule] = {
    "ib_disabled": _ib_disabled,
    "hca_missing": _hca_missing,
    "hca_incomplete": _hca_incomplete,
    "hca_beyond_rails": _hca_beyond_rails,
    "hca_prefix": _hca_prefix,
    "socket_interface_rdma": _interface_is_rdma,
    "socket_interface_missing": _interface_missing,
    "socket_interface_local": _interface_is_local,
    "sharp_unused": _sharp_unused,
    "variable_without_effect": _without_effect,
    "p2p_disabled": _switch("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"),
    "shm_disabled": _switch("NCCL_SHM_DISABLE"),
    "gdr_disabled": _level("NCCL_NET_GDR_LEVEL"),
    "nvls_disabled": _nvls_disabled,
    "debug_left_on": _debug_left_on,
    "algorithm_pinned": _is_set("NCCL_ALGO"),
    "protocol_pinned": _is_set("NCCL_PROTO"),
    "large_buffers": _large_buffers,
    "too_many_sockets": _too_many_sockets,
    "cross_nic": _cross_nic,
    "strange_value": _strange_value,
    "odd_file": _odd_file,
}
"""The mistakes of one process, by kind."""

SERIOUS = frozenset({
    "ib_disabled", "hca_missing", "hca_incomplete", "socket_interface_rdma",
    "socket_interface_missing", "socket_interface_local", "p2p_disabled", "shm_disabled",
    "gdr_disabled", "debug_left_on", "cross_nic", "ranks_differ",
})  # fmt: skip
"""Mistakes that cost bandwidth or the run; the others are bad habits, or tell of themselves."""

DIFFER = "ranks_differ"
KINDS = (*RULES, DIFFER)
"""All kinds of mistakes."""


class Process(NamedTuple):
    """A process of a job: its settings and its node as it sees it."""

    settings: Settings
    node: Node


def problems(processes: Sequence[Process]) -> dict[str, bool]:
    """Return which mistakes a job's processes have made; of what is not known nothing.

    A mistake of one is the job's.
    """
    found: dict[str, bool] = {}
    for kind, rule in RULES.items():
        so = _any(rule(one.settings, one.node) for one in processes)
        if so is not None:
            found[kind] = so
    if len(processes) > 1:
        found[DIFFER] = any(
            len({one.settings.get(variable) for one in processes}) > 1 for variable in _SAME
        )
    return found


def _any(told: Iterable[bool | None]) -> bool | None:
    known = [one for one in told if one is not None]
    return any(known) if known else None
