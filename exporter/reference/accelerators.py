"""What a product can do by its data sheet, and how sure it is that a board is that product.

`load` reads `accelerators.json`; its first lines say what the figures mean. A product is found by
the exact name that the driver gives it, else by its PCI device id if only one product has that id,
else not at all. What an operator states adds to the table or overrides it (`extended`). There is no
guessing by similar names: an H100 PCIe is not a slower H100, and all
well-known tables that match by prefix hold such a mistake. What no source tells is absent.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

PRECISIONS = ("fp64", "fp64_tensor", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")
"""What peaks may be given for. All but fp64 and fp32 are rates of the tensor cores; int8 counts
integer operations."""

TOLERANCE = 0.03
"""How far, in proportion, a fact may be from the table's and still agree."""

ID_ONLY = 0.75
"""Confidence in a product that is known by its PCI device id alone."""

POOR_SOURCES = 0.5
"""Factor on the confidence in an entry whose own sources are poor (`"confidence": "low"`)."""

DISAGREEMENT = 0.5
"""Factor on the confidence for each fact that the driver tells otherwise."""

_GIB = 2**30
_MHZ = 1_000_000
_ECC_SHARE = 15 / 16  # inline ECC keeps a sixteenth of GDDR: a 48 GiB L40S reports 46068 MiB


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A product, in base units; `None` where no source was found.

    `peaks` are operations per second by precision, dense (without 2:4 sparsity); `bandwidth` is
    bytes per second of device memory; `max_clock` the highest SM clock that the driver tells and
    `tensor_clock` the SM clock that the peaks belong to, in hertz; `power` the default limit in
    watts. `confidence` is how good the sources are.
    """

    id: str
    title: str
    architecture: str
    names: tuple[str, ...]
    pci_device_ids: tuple[str, ...]
    peaks: Mapping[str, int]
    confidence: Literal["high", "medium", "low"]
    memory: int | None = None
    memory_type: str = ""
    bandwidth: int | None = None
    sm_count: int | None = None
    cuda_cores: int | None = None
    max_clock: float | None = None
    tensor_clock: float | None = None
    power: float | None = None

    @property
    def has_figures(self) -> bool:
        """Tell whether anything is known of it but its name."""
        return bool(self.peaks) or self.bandwidth is not None


class Match(NamedTuple):
    """A product that a board was found to be, and by what."""

    accelerator: Accelerator
    by: Literal["name", "pci_device_id"]


class Observed(NamedTuple):
    """What the driver says of a board: bytes, hertz, watts, cores; `None` where it says nothing."""

    memory: float | None = None
    max_clock: float | None = None
    power: float | None = None
    cuda_cores: int | None = None


class Accelerators:
    """The table of products. Raises `ValueError` if two products have one name."""

    def __init__(self, products: Iterable[Accelerator]) -> None:
        self.products = tuple(products)
        self._by_name: dict[str, Accelerator] = {}
        self._by_id: dict[str, Accelerator | None] = {}
        for product in self.products:
            for name in product.names:
                if self._by_name.setdefault(name, product) is not product:
                    raise ValueError(f"{name!r} is the name of two products")
            for number in product.pci_device_ids:
                self._by_id[number] = None if number in self._by_id else product

    def find(self, name: str) -> Accelerator | None:
        """Return the product that an operator calls so: by NVML's name, else by its id or title.

        Case does not matter for id and title, such as `h100-sxm5-80gb` or `H100 SXM5 80GB`.
        """
        named = self._by_name.get(name)
        if named is not None:
            return named
        small = name.lower()
        return next((one for one in self.products if small in (one.id, one.title.lower())), None)

    def resolve(self, name: str, pci_device_id: str = "") -> Match | None:
        """Return the product with this very name, else the only one with this id, else nothing.

        `name` is NVML's, in its upper and lower case; `pci_device_id` the four hexadecimal digits
        that vendor 10de gave the device, such as `2330`.
        """
        named = self._by_name.get(name)
        if named is not None:
            return Match(named, "name")
        known = self._by_id.get(pci_device_id.upper())
        return None if known is None else Match(known, "pci_device_id")


class Own(NamedTuple):
    """What an operator states of a product: dense peaks by precision, and bytes per second."""

    name: str
    peaks: Mapping[str, float]
    bandwidth: float | None = None


def load() -> Accelerators:
    """Return the table that comes with the package."""
    text = Path(__file__).with_name("accelerators.json").read_text("utf-8")
    return Accelerators(map(_accelerator, json.loads(text)["accelerators"]))


def extended(table: Accelerators, own: Iterable[Own]) -> Accelerators:
    """Return a table with an operator's own entries: figures of known products are overridden.

    An entry whose name `find` does not know is a product of its own, known by that very name; it
    may be a machine without GPUs.
    """
    for entry in own:
        known = table.find(entry.name)
        others = [product for product in table.products if product is not known]
        table = Accelerators([*others, _owned(known, entry)])
    return table


def _owned(known: Accelerator | None, entry: Own) -> Accelerator:
    peaks = {precision: round(peak) for precision, peak in entry.peaks.items()}
    bandwidth = None if entry.bandwidth is None else round(entry.bandwidth)
    if known is None:
        name = entry.name
        return Accelerator(
            id=name.lower(), title=name, architecture="", names=(name,), pci_device_ids=(),
            peaks=MappingProxyType(peaks), confidence="high", bandwidth=bandwidth,
        )  # fmt: skip
    return dataclasses.replace(
        known,
        peaks=MappingProxyType({**known.peaks, **peaks}),
        bandwidth=known.bandwidth if bandwidth is None else bandwidth,
        confidence="high",
    )


def confidence(match: Match | None, observed: Observed) -> float:
    """Return how sure it is that the figures of `match` are the board's: 1 is sure, 0 is unknown.

    1 for a name in the table, `ID_ONLY` for a PCI device id; times `POOR_SOURCES` if the entry's
    sources are poor; times `DISAGREEMENT` for each fact that differs. 0 without a match, or if the
    table holds no figures for the product. Facts that one side does not know count for nothing.
    """
    if match is None or not match.accelerator.has_figures:
        return 0.0
    sure = 1.0 if match.by == "name" else ID_ONLY
    if match.accelerator.confidence == "low":
        sure *= POOR_SOURCES
    return sure * DISAGREEMENT ** len(disagreements(match.accelerator, observed))


def disagreements(known: Accelerator, seen: Observed) -> tuple[str, ...]:
    """Return the facts that the driver tells otherwise than the table, by name.

    Compared are memory, max_clock, power (the default limit) and cuda_cores; the last exactly, the
    others within `TOLERANCE`.
    """
    facts: tuple[tuple[str, float | None, tuple[float, ...], float], ...] = (
        ("memory", seen.memory, _sizes(known), TOLERANCE),
        ("max_clock", seen.max_clock, _known(known.max_clock), TOLERANCE),
        ("power", seen.power, _known(known.power), TOLERANCE),
        ("cuda_cores", seen.cuda_cores, _known(known.cuda_cores), 0.0),
    )
    return tuple(
        name
        for name, value, expected, tolerance in facts
        if value is not None
        and expected
        and not any(abs(value - right) <= tolerance * right for right in expected)
    )


def _known(value: float | None) -> tuple[float, ...]:
    return () if value is None else (value,)


def _sizes(known: Accelerator) -> tuple[float, ...]:
    """Return the sizes of memory in bytes that a driver may report for a product."""
    if known.memory is None or "shared" in known.memory_type:
        return ()  # memory that the CPU shares is as large as the system left it
    if known.memory_type.startswith("GDDR"):
        return (known.memory, known.memory * _ECC_SHARE)
    return (known.memory,)


def _accelerator(entry: Mapping[str, Any]) -> Accelerator:
    memory, chip = entry["memory"], entry["chip"]
    sms = chip.get("sm_count")
    return Accelerator(
        id=entry["id"],
        title=entry["title"],
        architecture=entry["architecture"],
        names=tuple(entry["nvml_names"]),
        pci_device_ids=tuple(entry["pci_device_ids"]),
        peaks=MappingProxyType({p: round(v * 1e12) for p, v in entry["dense_peak_tflops"].items()}),
        confidence=entry["confidence"],
        memory=_scaled(memory.get("gib"), _GIB),
        memory_type=memory.get("type", ""),
        bandwidth=_scaled(memory.get("gb_per_second"), 1_000_000_000),
        sm_count=sms,
        cuda_cores=None if sms is None else sms * chip["cuda_cores_per_sm"],
        max_clock=_scaled(chip.get("max_sm_clock_mhz"), _MHZ),
        tensor_clock=_tensor_clock(entry["dense_peak_tflops"], chip),
        power=chip.get("tdp_watts"),
    )


def _scaled(value: float | None, unit: int) -> int | None:
    return None if value is None else round(value * unit)


def _tensor_clock(peaks: Mapping[str, float], chip: Mapping[str, float]) -> float | None:
    """Return the clock that the peaks belong to: as given, else as the peak itself implies.

    The SMs, what each does per clock, and the peak leave one clock. For an H100 SXM that is
    1830 MHz; its highest clock of 1980 MHz would make 989 TFLOP/s into 1070.
    """
    if "tensor_clock_mhz" in chip:
        return chip["tensor_clock_mhz"] * _MHZ
    peak, sms = peaks.get("fp16"), chip.get("sm_count")
    each = chip.get("fp16_flop_per_clock_per_sm")
    if peak is None or sms is None or each is None:
        return None
    return peak * 1e12 / (sms * each)
