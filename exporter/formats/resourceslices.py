"""What drivers publish of devices that can be claimed: a list of `ResourceSlice` objects, as JSON.

A device is known by driver, pool and name; which GPU it is, its attribute `uuid` says. Versions v1
and v1beta2 have attributes at the device, v1beta1 has them in `basic`. Of a pool only the slices of
the highest generation count: a driver replaces them one by one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from exporter.formats.podresources import LONGEST, Claimed
from exporter.samples import Malformed

MOST = 10_000
"""Devices that are taken from one list."""


def uuids(body: bytes) -> dict[Claimed, str]:
    """Return the UUID of each device that has one. Raises `Malformed`."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"no JSON: {error}") from None
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise Malformed("no list of ResourceSlices")
    specs = [spec for one in _maps(items) if isinstance(spec := one.get("spec"), dict)]
    newest: dict[tuple[str, str], int] = {}
    for spec in specs:
        pool, generation = _pool(spec)
        newest[pool] = max(generation, newest.get(pool, generation))
    found: dict[Claimed, str] = {}
    for spec in specs:
        pool, generation = _pool(spec)
        if generation == newest[pool]:
            for name, uuid in _devices(spec, pool[0]):
                found[Claimed(*pool, name)] = uuid
    if len(found) > MOST:
        raise Malformed(f"more than {MOST} devices")
    return found


def _pool(spec: Mapping[str, Any]) -> tuple[tuple[str, str], int]:
    """Return driver and pool of a slice, and its generation."""
    pool = spec.get("pool")
    pool = pool if isinstance(pool, dict) else {}
    generation = pool.get("generation")
    return (_text(spec.get("driver")), _text(pool.get("name"))), (
        generation if type(generation) is int else 0
    )


def _devices(spec: Mapping[str, Any], driver: str) -> Iterator[tuple[str, str]]:
    """Yield name and UUID of the devices of a slice."""
    devices = spec.get("devices")
    for device in _maps(devices if isinstance(devices, list) else []):
        inner = device.get("basic")
        attributes = (inner if isinstance(inner, dict) else device).get("attributes")
        if not isinstance(attributes, dict):
            continue
        # Without a domain a name belongs to the driver's.
        value = attributes.get("uuid", attributes.get(f"{driver}/uuid"))
        name = _text(device.get("name"))
        uuid = _text(value.get("string")) if isinstance(value, dict) else ""
        if name and uuid:
            yield name, uuid


def _maps(some: list[Any]) -> Iterator[dict[str, Any]]:
    return (one for one in some if isinstance(one, dict))


def _text(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= LONGEST else ""
