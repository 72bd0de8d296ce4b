"""Quantities that no source reads: each is derived from what is on the board.

`DERIVATIONS` is the table: a factory for each, by the name of what it makes. A factory takes what
the derivation needs beside the board (tables, the operator's choices) and returns a `Derivation`;
`sources.derived` makes a source of that, with a deadline and health like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from exporter.derive.derivation import Derivation, Reading, readings
from exporter.derive.hardware import hardware
from exporter.derive.memory import HOUR, Integral, Memory, Window
from exporter.derive.serving import serving

DERIVATIONS: Mapping[str, Callable[..., Derivation]] = MappingProxyType({"hardware": hardware})

__all__ = [
    "DERIVATIONS",
    "HOUR",
    "Derivation",
    "Integral",
    "Memory",
    "Reading",
    "Window",
    "hardware",
    "readings",
    "serving",
]
