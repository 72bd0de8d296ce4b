"""NCCL's settings: the variables that are looked at, from an environment or from `nccl.conf`.

An environment holds tokens and passwords. So only the names in `PATTERNS` are ever kept, and of a
value that does not look as it should nothing but that it does not (`STRANGE`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from exporter.client.nccl import PATTERNS, STRANGE

_COMPILED = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in PATTERNS.items()}
_LONGEST_NAME = 32

Settings = Mapping[str, str]
"""Values by variable; `STRANGE` for one that is there and makes no sense."""


class File(NamedTuple):
    """What an `nccl.conf` sets, and whether a line of it sets nothing that NCCL would find."""

    settings: Settings
    odd: bool


def kept(name: str, value: str) -> tuple[str, str] | None:
    """Return a variable as it may be kept; nothing if it is not one that is looked at."""
    pattern = _COMPILED.get(name)
    if pattern is None:
        return None
    return name, value if pattern.fullmatch(value) else STRANGE


def from_environment(environment: bytes) -> dict[str, str]:
    """Return what an environment sets, as `/proc/PID/environ` has it."""
    found: dict[str, str] = {}
    for line in environment.split(b"\0"):
        if not line.startswith(b"NCCL_"):
            continue
        name, equals, value = line.partition(b"=")
        if equals and len(name) <= _LONGEST_NAME:
            one = kept(name.decode("ascii", "replace"), value[:1024].decode("utf-8", "replace"))
            if one is not None:
                found.setdefault(*one)
    return found


def from_file(text: bytes) -> File:
    """Return what an `nccl.conf` sets.

    NCCL takes what stands before `=` for the name as it is: `export NCCL_NET=IB`, a blank before
    `=` or a quote make a variable that nobody asks for.
    """
    found: dict[str, str] = {}
    odd = False
    for line in text.split(b"\n"):
        if line.lstrip().startswith(b"#") or b"=" not in line:
            continue
        name, _, value = line.partition(b"=")
        odd = odd or (b"NCCL_" in name and re.fullmatch(rb"NCCL_[A-Z0-9_]+", name) is None)
        one = kept(name.decode("ascii", "replace"), value[:1024].decode("utf-8", "replace"))
        if one is not None:
            found.setdefault(*one)
    return File(found, odd)


def from_mapping(told: Mapping[str, object]) -> dict[str, str]:
    """Return what a job tells of itself: names and values that may be anything."""
    found = (kept(name, str(value)[:1024]) for name, value in told.items())
    return dict(one for one in found if one is not None)
