"""What the memory of plugged modules says, by the layouts of the specifications."""

from __future__ import annotations

import struct

import pytest

from exporter.formats import optics


def sfp(*, kind: int = 0x68, cable: int = 0, volts: int = 33_000, light: int = 5_012) -> bytes:
    """Return an SFP: 32.5 degrees, 0.5012 mW each way unless told otherwise."""
    memory = bytearray(512)
    memory[0], memory[8], memory[92] = 3, cable, kind
    struct.pack_into(">hHHHH", memory, 352, 32 * 256 + 128, volts, 3000, light, light)
    return bytes(memory)


def qsfp(*, technology: int = 0x00, volts: int = 33_000, sends: int = 0x0C) -> bytes:
    """Return a QSFP28 at -1.5 degrees with four lanes of light."""
    memory = bytearray(256)
    memory[0], memory[147], memory[220] = 0x11, technology, sends
    struct.pack_into(">hxxH", memory, 22, -384, volts)
    struct.pack_into(">4H", memory, 34, 10_000, 9_000, 0, 1)
    struct.pack_into(">4H", memory, 50, 11_000, 11_000, 11_000, 11_000)
    return bytes(memory)


def test_an_sfp_tells_temperature_and_light() -> None:
    """Units of 1/256 of a degree and of a tenth of a microwatt."""
    told = optics.read(2, sfp())
    assert told.temperature == 32.5
    assert told.received == told.sent == (pytest.approx(0.0005012),)


def test_a_qsfp_tells_each_lane_and_one_without_light_is_at_zero() -> None:
    """No light on a lane of an optical module is a reading, not an unknown."""
    told = optics.read(3, qsfp())
    assert told.temperature == -1.5
    assert told.received == (
        pytest.approx(1e-3), pytest.approx(0.9e-3), 0, pytest.approx(1e-7),
    )  # fmt: skip
    assert told.sent == (pytest.approx(1.1e-3),) * 4
    assert optics.read(3, qsfp(sends=0x08)).sent == ()


@pytest.mark.parametrize(
    ("layout", "memory"),
    [
        (2, sfp(kind=0)), (2, sfp(kind=0x58)), (2, sfp(volts=0)), (2, sfp(volts=0xFFFF)),
        (2, sfp()[:256]), (3, qsfp(volts=0)), (3, qsfp()[:100]), (3, b""), (1, sfp()), (9, qsfp()),
    ],
)  # fmt: skip
def test_what_does_not_measure_tells_nothing(layout: int, memory: bytes) -> None:
    """No monitors, factors of the single module, a passive cable, a memory that is too short."""
    assert optics.read(layout, memory) == optics.Optics()


def test_a_cable_of_copper_has_a_temperature_and_no_light() -> None:
    """Active copper measures its heat; a light of 0 would be a lie."""
    assert optics.read(3, qsfp(technology=0xC0)) == optics.Optics(-1.5)
    assert optics.read(2, sfp(cable=0x08)) == optics.Optics(32.5)


def test_of_a_cmis_module_the_temperature_is_within_reach() -> None:
    """Its lanes stand on a page that the kernel's older call does not read."""
    memory = bytearray(256)
    memory[0] = 0x19
    struct.pack_into(">hH", memory, 14, 48 * 256, 33_000)
    assert optics.read(3, bytes(memory)) == optics.Optics(48.0)
