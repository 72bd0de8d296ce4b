"""One GPU: what it is, and reading it by the tables.

At first everything in the tables is asked once; what the GPU does not support is left out from
then on. `Reader.read` fills the GPU's page; the driver's errors for a
single reading are collected as faults, the loss of the GPU is raised.
"""

from __future__ import annotations

import itertools
import logging
import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from exporter.nvml import readings as r
from exporter.nvml.driver import (
    GONE,
    INVALID_ARGUMENT,
    NO_PERMISSION,
    OVER,
    RESET_REQUIRED,
    UNKNOWN,
    UNSUPPORTED,
    Driver,
    FieldAnswer,
    Handle,
    NvmlError,
    Struct,
    Text,
)
from exporter.samples import Fault, Metric, Sample

log = logging.getLogger(__name__)

Labels = tuple[str, ...]
_RELEASE = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a GPU is: everything that does not change while the driver runs."""

    gpu: str
    uuid: str
    name: str = ""
    pci_bus_id: str = ""
    pci_device_id: str = ""
    serial: str = ""
    architecture: str = ""
    compute_capability: tuple[int, int] | None = None
    cuda_cores: str = ""
    vbios_version: str = ""
    virtualization: str = ""
    driver_version: str = ""

    @property
    def version(self) -> r.Version:
        """Branch and release of the driver; zeros where it does not tell."""
        match = _RELEASE.match(self.driver_version)
        return (0, 0) if match is None else (int(match[1]), int(match[2]))

    @property
    def labels(self) -> Labels:
        """The labels that each of its series begins with."""
        return (self.gpu, self.uuid)

    def info(self) -> Labels:
        """Return the label values of `gpu_info`."""
        capability = self.compute_capability
        return (
            self.gpu, self.uuid, self.name, self.pci_bus_id, self.pci_device_id, self.serial,
            self.architecture, "" if capability is None else "{}.{}".format(*capability),
            self.cuda_cores, self.vbios_version, self.driver_version, self.virtualization,
        )  # fmt: skip


def identify(driver: Driver, handle: Handle, index: int, driver_version: str) -> Identity:
    """Ask a GPU what it is. Only the UUID is needed; what else is not told stays empty.

    Raises `NvmlError`.
    """

    def ask(function: str, answer: Any, *arguments: int) -> Any:
        try:
            return driver.bind(function, answer, handle, *arguments)()
        except NvmlError as error:
            if error.code in GONE | OVER:
                raise
            return None

    uuid = driver.bind("nvmlDeviceGetUUID", Text(), handle)()
    if not uuid:
        raise NvmlError(UNKNOWN, "nvmlDeviceGetUUID", "an empty UUID")
    pci = ask("nvmlDeviceGetPciInfo_v3", Struct("nvmlPciInfo_t", ("busId", "pciDeviceId")))
    bus, device = ("", "") if pci is None else (pci_address(pci[0]), f"{pci[1] >> 16:04X}")
    cores = ask("nvmlDeviceGetNumGpuCores", "u32")
    capability = ask("nvmlDeviceGetCudaComputeCapability", ("i32", "i32"))
    return Identity(
        gpu=str(index),
        uuid=uuid,
        name=_said(ask("nvmlDeviceGetName", Text())),
        pci_bus_id=bus,
        pci_device_id=device,
        serial=_said(ask("nvmlDeviceGetSerial", Text(30))),
        architecture=r.ARCHITECTURES.get(ask("nvmlDeviceGetArchitecture", "u32"), ""),
        compute_capability=capability if capability is not None and min(capability) >= 0 else None,
        cuda_cores="" if cores is None or cores in r.BLANKS else str(cores),
        vbios_version=_said(ask("nvmlDeviceGetVbiosVersion", Text(32))),
        virtualization=r.VIRTUALIZATION.get(ask("nvmlDeviceGetVirtualizationMode", "u32"), ""),
        driver_version=driver_version,
    )


def pci_address(value: bytes | str) -> str:
    """Return an address of the driver's as `gpu_info` has it."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return text.lower()


def _said(text: str | None) -> str:
    """Return a text, empty where it stands for none ("[N/A]": nvidia_gpu_exporter 68)."""
    return "" if text is None or text in r.BLANK_TEXTS else text


class Want(NamedTuple):
    """A field to ask for together with others, in one scope or several; who takes the answers."""

    number: int
    scopes: tuple[int, ...]
    take: Callable[[Sequence[FieldAnswer]], None]


class Place:
    """One series of a GPU: what was read of it last, until that is not true any more."""

    __slots__ = ("_labels", "_metric", "_raw", "sample")

    def __init__(self, metric: Metric, labels: Labels) -> None:
        self._metric = metric
        self._labels = labels
        self._raw: float | None = None
        self.sample: Sample | None = None

    def put(self, value: float | None) -> None:
        """Note a value, or that there is none."""
        self._raw = None
        self.sample = None if value is None else Sample(self._metric, self._labels, value)

    def set(self, raw: float | None, unit: r.Unit) -> None:
        """Note a driver's number in our unit; forget what was there if there is none to believe."""
        if raw is None or raw != self._raw:
            self.put(None if raw is None else converted(raw, unit))
            self._raw = raw

    def want(self, number: int, unit: r.Unit, scope: int = 0) -> Want:
        """Return a field whose value belongs here."""

        def take(answers: Sequence[FieldAnswer]) -> None:
            ((code, raw, _),) = answers
            self.set(None if code else raw, unit)

        return Want(number, (scope,), take)


class Page:
    """What is known of one GPU: a place for each series, in a fixed order."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._places: dict[tuple[Metric, Labels], Place] = {}

    def place(self, metric: Metric, labels: Labels = ()) -> Place:
        """Return the place of a series; `labels` come after gpu and uuid."""
        key = (metric, labels)
        if key not in self._places:
            self._places[key] = Place(metric, self._labels + labels)
        return self._places[key]

    def put(self, metric: Metric, labels: Labels, value: float | None) -> None:
        """Note a value in its place."""
        self.place(metric, labels).put(value)

    def set(self, metric: Metric, labels: Labels, raw: float | None, unit: r.Unit) -> None:
        """Note a driver's number in its place."""
        self.place(metric, labels).set(raw, unit)

    def get(self, metric: Metric) -> float | None:
        """Return the value of a series that has no further labels."""
        sample = self.place(metric).sample
        return None if sample is None else cast("float", sample.value)

    def samples(self) -> list[Sample]:
        """Return everything."""
        return [place.sample for place in self._places.values() if place.sample is not None]


def converted(raw: float, unit: r.Unit) -> float | None:
    """Return a driver's number in our unit, or `None` if it is a blank or cannot be true."""
    times, over, most, least = unit
    if not least <= raw <= most or raw in r.BLANKS:  # the first also for NaN
        return None
    value = raw * times
    return value if over == 1 else value / over


def believable(raws: list[float | None], unit: r.Unit) -> list[float | None]:
    """Return a driver's numbers, with `None` for those that `converted` would not take.

    Nearly always all are good, which is told cheaply: none is above their sum, as none is negative.
    """
    if None not in raws:
        known = cast("list[float]", raws)
        if min(known) >= unit.least >= 0 and sum(known) <= unit.most and r.BLANKS.isdisjoint(known):
            return raws
    return [None if raw is None or converted(raw, unit) is None else raw for raw in raws]


class Reader:
    """Reads everything in the tables from one GPU, by the beat of each row."""

    def __init__(
        self,
        driver: Driver,
        handle: Handle,
        identity: Identity,
        page: Page,
        *,
        detail: bool,
        more: Sequence[tuple[int, Want]] = (),
    ) -> None:
        self._driver = driver
        self._handle = handle
        self._identity = identity
        self._page = page
        self._faults: list[Fault] = []
        self._calls: dict[int, list[_BoundCall]] = {r.FAST: [], r.SLOW: []}
        self._fields: dict[int, _BoundFields] = {}
        wants: dict[int, list[Want]] = {r.FAST: [], r.SLOW: []}
        for beat, want in more:
            wants[beat].append(want)
        self.refused = tuple(self._plan(wants, detail=detail))
        for beat, some in wants.items():
            if some:
                self._fields[beat] = _BoundFields(driver, handle, some)

    def _plan(self, wants: dict[int, list[Want]], *, detail: bool) -> list[str]:
        """Choose a rung of each ladder; return what the GPU does not support."""
        ladders = [*r.LADDERS, *(r.DETAILS if detail else ())]
        if detail and self._identity.virtualization != "vgpu":
            ladders.append((r.BANKS,))
        version = self._identity.version
        numbers = [
            (rung.number, rung.scope)
            for ladder in ladders for rung in ladder
            if isinstance(rung, r.Field) and rung.drivers[0] <= version < rung.drivers[1]
        ]  # fmt: skip
        supported = supported_fields(self._driver, self._handle, numbers)
        liar = r.LIARS.get(self._identity.name, frozenset())
        refused: list[str] = []
        for ladder in ladders:
            for rung in ladder:
                if isinstance(rung, r.Field):
                    if (rung.number, rung.scope) in supported:
                        wants[rung.beat].append(self._want(rung))
                        break
                    refused.append(f"field {rung.number}")
                elif not r.is_true_of(rung, self._identity.compute_capability):
                    continue
                elif rung.function not in liar and self._answers(rung):
                    break
                else:
                    refused.append(rung.function)
        return refused

    def _want(self, rung: r.Field) -> Want:
        metric, unit, labels, _, _ = rung.gives
        return self._page.place(metric, labels).want(rung.number, unit, rung.scope)

    def _answers(self, rung: r.Call) -> bool:
        """Bind a call and make it once; tell whether the GPU supports it."""
        try:
            bound = _BoundCall(self._driver, self._handle, rung, self._page)
            bound.make()
        except NvmlError as error:
            if error.code in GONE | OVER:
                raise
            # An old driver calls an argument that it does not know an invalid one.
            if error.code in UNSUPPORTED | {INVALID_ARGUMENT}:
                return False
            if error.code == NO_PERMISSION:
                log.warning("gpu %s: %s", self._identity.gpu, error)
                return False
        self._calls[rung.beat].append(bound)
        return True

    def read(self, beats: Iterable[int]) -> list[Fault]:
        """Ask for everything that is due; return what went wrong with single readings.

        Raises `NvmlError` if the GPU is lost or the library has to be started anew.
        """
        self._faults = []
        asked, waiting = 0, None
        for beat in beats:
            calls = self._calls[beat]
            asked += len(calls)
            for call in tuple(calls):
                try:
                    call.make()
                except NvmlError as error:
                    if error.code == RESET_REQUIRED:
                        asked, waiting = asked - 1, error
                    if self._cannot_go_on(error):
                        calls.remove(call)
            if (fields := self._fields.get(beat)) is not None:
                try:
                    for failed in fields.make():
                        self._cannot_go_on(failed)
                except NvmlError as error:
                    if self._cannot_go_on(error):
                        del self._fields[beat]
        if waiting is not None and asked == 0:
            raise waiting  # not one call was answered with anything else
        return self._faults

    def _cannot_go_on(self, error: NvmlError) -> bool:
        """Note an error; tell whether to stop asking."""
        if error.code in GONE | OVER:
            raise error
        if error.code in UNSUPPORTED:
            log.info("gpu %s: no longer supported: %s", self._identity.gpu, error.function)
            return True
        self._faults.append(Fault(f"gpu{self._identity.gpu}", error.reason, str(error)))
        return False


def supported_fields(
    driver: Driver, handle: Handle, numbers: Sequence[tuple[int, int]]
) -> frozenset[tuple[int, int]]:
    """Return those of the fields (number, scope) that the GPU knows.

    An old driver calls a number that it does not know an invalid argument. Any other error may
    pass, so such a field is kept.
    """
    if not numbers:
        return frozenset()
    try:
        answers = driver.fields(handle, numbers)()
    except NvmlError as error:
        if error.code in UNSUPPORTED | {INVALID_ARGUMENT}:
            return frozenset()
        raise
    return frozenset(
        number for number, answer in zip(numbers, answers, strict=True) if answer.code not in _NEVER
    )


_CODE = operator.itemgetter(0)
_NEVER = UNSUPPORTED | {INVALID_ARGUMENT, NO_PERMISSION}
"""What a driver says to a field that it does not know, or will not tell."""


class _BoundCall:
    """A row of the table on one GPU."""

    def __init__(self, driver: Driver, handle: Handle, row: r.Call, page: Page) -> None:
        self._call = driver.bind(row.function, row.answer, handle, *row.arguments)
        self._single = isinstance(row.answer, str)
        self._gives = [
            (page.place(metric, labels), unit, at, bit)
            for metric, unit, labels, at, bit in row.gives
        ]

    def make(self) -> None:
        """Ask, and put the values in their places. What is not answered is not there."""
        try:
            answer = self._call()
        except NvmlError:
            for place, _, _, _ in self._gives:
                place.put(None)
            raise
        for place, unit, at, bit in self._gives:
            raw = answer if self._single else answer[at]
            if bit:
                raw = None if raw in r.BLANKS else int(raw & bit != 0)
            place.set(raw, unit)


class _BoundFields:
    """The fields of one beat: one call for all."""

    def __init__(self, driver: Driver, handle: Handle, wants: Sequence[Want]) -> None:
        asked = [(want.number, scope) for want in wants for scope in want.scopes]
        self._call = driver.fields(handle, asked)
        self._numbers = [number for number, _ in asked]
        ends = itertools.accumulate(len(want.scopes) for want in wants)
        self._takes = [
            (want.take, slice(end - len(want.scopes), end))
            for want, end in zip(wants, ends, strict=True)
        ]

    def make(self) -> list[NvmlError]:
        """Ask, and hand the values to who wants them; on failure hand on that there are none.

        Returns what went wrong with single fields, once for each code.
        """
        try:
            answers = self._call()
        except NvmlError as error:
            self._hand_on([FieldAnswer(error.code, math.nan, wide=False)] * len(self._numbers))
            raise
        self._hand_on(answers)
        failed: dict[int, dict[int, None]] = {}
        if any(map(_CODE, answers)):
            for number, (code, _, _) in zip(self._numbers, answers, strict=True):
                if code and code not in _NEVER:
                    failed.setdefault(code, {})[number] = None
        return [
            NvmlError(code, f"field {', '.join(map(str, numbers))}")
            for code, numbers in failed.items()
        ]

    def _hand_on(self, answers: Sequence[FieldAnswer]) -> None:
        for take, part in self._takes:
            take(answers[part])
