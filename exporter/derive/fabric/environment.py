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
    """An RDMA port of the node; `active` is `None` where its state is not known."""

    device: str
    port: str
    link_layer: str
    active: bool | None


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


class Unclear(ValueError):  # noqa: N818 - said of the value
    """A rule has asked for a value that makes no sense to us; NCCL may understand it."""


def said(settings: Settings, variable: str) -> str:
    """Return a value, "" where it is not set. Raises `Unclear`."""
    text = settings.get(variable, "")
    if text == STRANGE:
        raise Unclear(variable)
    return text


def names(settings: Settings, variable: str) -> Names | None:
    """Return a list of names; `None` where it is not set or empty. Raises `Unclear`."""
    text = said(settings, variable)
    excluded = text.startswith("^")
    text = text.removeprefix("^")
    exact = text.startswith("=")
    told = tuple(one for one in text.lstrip("=").split(",") if one)
    return Names(told, exact, excluded) if told else None


def number(settings: Settings, variable: str) -> int | None:
    """Return a whole number; `None` where it is not set or empty. Raises `Unclear`."""
    text = said(settings, variable)
    return int(text, 16 if "x" in text.lower() else 10) if text else None


Rule = Callable[[Settings, Node], bool | None]


def _ib_disabled(settings: Settings, node: Node) -> bool | None:
    off = bool(number(settings, "NCCL_IB_DISABLE"))
    if not off and said(settings, "NCCL_NET").lower() != "socket":
        return False
    if node.ports is None:
        return None
    rails = node.rails or frozenset()
    return _any(
        one.active for one in node.ports if one.link_layer == "InfiniBand" or one.device in rails
    )


def _hca_missing(settings: Settings, node: Node) -> bool | None:
    """Something is listed that is not there, or is down."""
    listed = names(settings, "NCCL_IB_HCA")
    if listed is None or listed.excluded:
        return False
    if node.ports is None:
        return None
    each = [listed._replace(names=(one,)) for one in listed.names]
    found = [
        _any(port.active for port in node.ports if one.fits(port.device, port.port)) for one in each
    ]
    return _any(None if one is None else not one for one in found)


def _chosen(listed: Names, ports: Sequence[Port]) -> set[str]:
    return {one.device for one in ports if one.active and listed.fits(one.device, one.port)}


def _uncertain(listed: Names, ports: Sequence[Port], *, fits: bool) -> set[str]:
    """Return who is in the list, or is not, and may be active or not."""
    return {
        one.device
        for one in ports
        if one.active is None and listed.fits(one.device, one.port) is fits
    }


def _hca_incomplete(settings: Settings, node: Node) -> bool | None:
    """A rail is left out."""
    listed = names(settings, "NCCL_IB_HCA")
    if listed is None:
        return False
    if not node.ports or not node.rails:
        return None
    there = {one.device for one in node.ports if one.active}
    if not node.rails & there <= _chosen(listed, node.ports):
        return True
    return None if node.rails & _uncertain(listed, node.ports, fits=False) else False


def _hca_beyond_rails(settings: Settings, node: Node) -> bool | None:
    """A port is listed that is no rail: storage, management."""
    listed = names(settings, "NCCL_IB_HCA")
    if listed is None or listed.excluded:
        return False
    if not node.ports or not node.rails:
        return None
    if not _chosen(listed, node.ports) <= node.rails:
        return True
    return False if _uncertain(listed, node.ports, fits=True) <= node.rails else None


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
        return bool(number(settings, variable)) or said(settings, level).upper() in {"LOC", "0"}

    return rule


def _level(variable: str) -> Rule:
    return _switch("", variable)


def _nvls_disabled(settings: Settings, _node: Node) -> bool | None:
    return number(settings, "NCCL_NVLS_ENABLE") == 0


def _debug_left_on(settings: Settings, _node: Node) -> bool | None:
    """A line for each call, or more."""
    level = said(settings, "NCCL_DEBUG").upper()
    if level != "INFO":
        return level == "TRACE"
    listed = said(settings, "NCCL_DEBUG_SUBSYS").upper()
    parts = set(listed.removeprefix("^").split(","))
    if listed.startswith("^"):  # all but these
        return not {"COLL", "P2P", "CALL"} <= parts and "ALL" not in parts
    return bool(parts & {"ALL", "COLL", "P2P", "CALL"})


def _is_set(variable: str) -> Rule:
    def rule(settings: Settings, _node: Node) -> bool | None:
        return said(settings, variable) != ""

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


def problems(processes: Sequence[Process], *, together: bool = True) -> dict[str, bool]:
    """Return which mistakes a job's processes have made; of what is not known nothing.

    A mistake of one is the job's. `together` says that they are of one job indeed: of processes
    that nobody can name the job of it is not known whether they ought to be alike.
    """
    found: dict[str, bool] = {}
    for kind, rule in RULES.items():
        so = _any(_asked(rule, one) for one in processes)
        if so is not None:
            found[kind] = so
    if together and len(processes) > 1:
        found[DIFFER] = any(
            len({one.settings.get(variable, "") for one in processes}) > 1 for variable in _SAME
        )
    return found


def _asked(rule: Rule, one: Process) -> bool | None:
    try:
        return rule(one.settings, one.node)
    except Unclear:
        return None


def _any(told: Iterable[bool | None]) -> bool | None:
    """Tell whether one of them is so; `None` where one that is not known may be."""
    each = list(told)
    return True if True in each else None if None in each else False
