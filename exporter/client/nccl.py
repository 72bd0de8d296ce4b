"""What a job has set NCCL to: the variables of a list, and no other, told once with its facts.

A value that does not look like one of its variable is told as "?", whatever it is. The list is the
daemon's as well (`formats/nccl_settings.py`), which holds what it is told against it once more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

STRANGE = "?"
"""What stands for a value that does not look like one of its variable: NCCL ignores most such."""

_NUMBER = r"([+-]?([0-9]{1,10}|0x[0-9a-f]{1,8}))?"
_WORD = r"[A-Za-z0-9_.-]{0,32}"
_PLUGIN = rf"{_WORD}|AWS Libfabric"
_NAMES = r"\^?={0,2}[A-Za-z0-9_.:,@-]{0,512}"
_LIST = r"\^?[A-Za-z0-9_,:;^=@/-]{0,128}"
_LEVEL = r"(LOC|NVL|PIX|PXB|PXN|P2C|PHB|NODE|SYS|[0-9])?"

PATTERNS: Mapping[str, str] = {
    "NCCL_ALGO": _LIST,
    "NCCL_BUFFSIZE": _NUMBER,
    "NCCL_CHECKS_DISABLE": _NUMBER,
    "NCCL_COLLNET_ENABLE": _NUMBER,
    "NCCL_CROSS_NIC": _NUMBER,
    "NCCL_DEBUG": _WORD,
    "NCCL_DEBUG_SUBSYS": _LIST,
    "NCCL_IB_DISABLE": _NUMBER,
    "NCCL_IB_HCA": _NAMES,
    "NCCL_MAX_NCHANNELS": _NUMBER,
    "NCCL_MIN_NCHANNELS": _NUMBER,
    "NCCL_NET": _PLUGIN,
    "NCCL_NET_GDR_LEVEL": _LEVEL,
    "NCCL_NSOCKS_PERTHREAD": _NUMBER,
    "NCCL_NTHREADS": _NUMBER,
    "NCCL_NVLS_ENABLE": _NUMBER,
    "NCCL_P2P_DISABLE": _NUMBER,
    "NCCL_P2P_LEVEL": _LEVEL,
    "NCCL_PROFILE_PRIMS_ENABLE": _NUMBER,
    "NCCL_PROTO": _LIST,
    "NCCL_SHARP_ENABLE": _NUMBER,
    "NCCL_SHM_DISABLE": _NUMBER,
    "NCCL_SOCKET_IFNAME": _NAMES,
    "NCCL_SOCKET_NTHREADS": _NUMBER,
}
"""The variables that are looked at, and what their values look like, in upper or lower case."""


def settings_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what an environment sets of these variables."""
    return {
        name: environment[name]
        if re.fullmatch(pattern, environment[name], re.IGNORECASE)
        else STRANGE
        for name, pattern in PATTERNS.items()
        if name in environment
    }
