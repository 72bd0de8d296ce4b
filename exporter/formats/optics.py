"""The memory of a plugged optical module: its temperature, and the light that it sends and gets.

Layouts are those of SFF-8472 (SFP), SFF-8636 (QSFP) and CMIS (QSFP-DD, OSFP); of the last only the
part that the kernel's older calls can reach, which has no light in it. A module that does not
measure says 0 or all ones: then nothing is told. Pure functions over bytes.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_SFP, _QSFP = (2,), (3, 4)  # ETH_MODULE_SFF_8472; ETH_MODULE_SFF_8636, ETH_MODULE_SFF_8436
_CMIS = frozenset((0x18, 0x19, 0x1E))
_TENTH_OF_A_MICROWATT = 1e-7
_COPPER = 10
"""From this technology on (SFF-8636, upper half of octet 147) a module is a cable of copper."""


class Optics(NamedTuple):
    """What a module measures: Celsius, and watts by lane; None and nothing where it does not."""

    temperature: float | None = None
    received: tuple[float, ...] = ()
    sent: tuple[float, ...] = ()


def read(layout: int, memory: bytes) -> Optics:
    """Return what the memory of a module tells; nothing for a layout that is not known."""
    if layout in _SFP and len(memory) >= 512:
        return _sfp(memory)
    if layout in _QSFP and len(memory) >= 128:
        return _cmis(memory) if memory[0] in _CMIS else _qsfp(memory)
    return Optics()


def _sfp(memory: bytes) -> Optics:
    # bit 6: it measures; bit 5: in units that need no factors of the single module
    if memory[92] & 0x60 != 0x60:
        return Optics()
    temperature, volts, _, sent, received = struct.unpack_from(">hHHHH", memory, 256 + 96)
    if volts in (0, 0xFFFF):
        return Optics()
    light = memory[8] & 0x0C == 0  # neither a passive nor an active cable of copper
    return Optics(
        temperature / 256, _watts([received]) if light else (), _watts([sent]) if light else ()
    )


def _qsfp(memory: bytes) -> Optics:
    temperature, volts = struct.unpack_from(">hxxH", memory, 22)
    if volts in (0, 0xFFFF):
        return Optics()
    if len(memory) < 221 or memory[147] >> 4 >= _COPPER:
        return Optics(temperature / 256)
    sends = bool(memory[220] & 0x04)
    return Optics(
        temperature / 256,
        _watts(struct.unpack_from(">4H", memory, 34)),
        _watts(struct.unpack_from(">4H", memory, 50)) if sends else (),
    )


def _cmis(memory: bytes) -> Optics:
    temperature, volts = struct.unpack_from(">hH", memory, 14)
    return Optics() if volts in (0, 0xFFFF) else Optics(temperature / 256)


def _watts(raw: tuple[int, ...] | list[int]) -> tuple[float, ...]:
    return tuple(value * _TENTH_OF_A_MICROWATT for value in raw)
