"""A connection to DCGM: which GPUs there are, what is watched on each, and the latest values.

A watch is all or nothing: one field that a GPU does not have refuses the whole list, and one GPU of
another kind the whole group (dcgm-exporter 581, KempnerPulse 13). So each GPU has groups of its
own, and where a list is refused its fields are tried one by one. What a GPU refuses is known for
this GPU only, and asked for again from time to time: privileges, modules and other profilers come
and go. What the values mean is left to `sources.dcgm`.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.clock import Clock
from exporter.dcgm import driver as d
from exporter.dcgm.fields import NVML_INDEX, UUID
from exporter.samples import Fault, SourceError

LOOK_EVERY = 10.0
"""Seconds between looks at which GPUs and instances there are."""

TRY_AGAIN = 300.0
"""Seconds until what was refused is asked for again."""

_WHOLE = frozenset({
    d.TIMEOUT, d.NO_PERMISSION, d.GPU_IS_LOST, d.RESET_REQUIRED, d.GPU_NOT_SUPPORTED,
    d.REQUIRES_ROOT, d.MODULE_NOT_LOADED, d.IN_USE, d.PROFILING_NOT_SUPPORTED,
    d.PROFILING_LIBRARY_ERROR, d.PAUSED, d.NVML_NOT_LOADED, d.NVML_DRIVER_TIMEOUT,
})  # fmt: skip
"""Refusals that are not about one field: trying the others one by one is of no use."""

_UNSUPPORTED = frozenset({
    d.BAD_PARAMETER, d.NOT_SUPPORTED, d.UNKNOWN_FIELD, d.FIELD_UNSUPPORTED_BY_API,
})  # fmt: skip
"""Refusals that say that a field is not to be had here, which is nobody's fault."""


class Target(NamedTuple):
    """What values are about: a GPU by NVML's index and its identity, or a GPU instance of it.

    `mig` is "" for the whole GPU.
    """

    entity: d.Entity
    gpu: str
    uuid: str
    mig: str = ""

    @property
    def part(self) -> str:
        """Return what an operator calls it."""
        return f"gpu {self.gpu} instance {self.mig}" if self.mig else f"gpu {self.gpu}"


class Reading(NamedTuple):
    """A value and what it is about."""

    target: Target
    value: d.Value


@dataclass(slots=True)
class Watch:
    """Fields of one GPU, or of the instances of one GPU, that DCGM measures for us.

    `wanted` are all that were asked for, `refused` those that it did not take, and why; `since` is
    monotonic seconds.
    """

    targets: tuple[Target, ...]
    label: str
    wanted: tuple[int, ...]
    since: float
    group: int
    taken: tuple[int, ...] = ()
    refused: dict[int, d.DcgmError] = field(default_factory=dict)

    @property
    def part(self) -> str:
        """Return what an operator calls it."""
        return f"gpu {self.targets[0].gpu} {self.label}".rstrip()


class Wanted(NamedTuple):
    """A list of fields to be watched together: on GPUs, or on instances.

    `label` names it in faults, "" if it is what a GPU has anyway.
    """

    label: str
    kind: int
    fields: tuple[int, ...]


class Session:
    """Reads the fields of `wanted` from all GPUs over an opened driver.

    `every` is seconds between two measurements. `update` asks DCGM to measure at each read
    (embedded in manual mode); otherwise it measures by itself.
    """

    def __init__(
        self,
        driver: d.Driver,
        wanted: Sequence[Wanted],
        *,
        every: float,
        clock: Clock,
        update: bool = False,
    ) -> None:
        self._driver = driver
        self._wanted = tuple(wanted)
        self._every = every
        self._clock = clock
        self._update = update
        self._token = secrets.token_hex(4)
        self._names = 0
        self._layout: tuple[object, ...] | None = None
        self._looked = 0.0
        self._field_groups: dict[tuple[int, ...], int] = {}
        self._asks: list[tuple[tuple[Target, ...], tuple[int, ...], Callable[[], list[d.Value]]]]
        self._asks = []
        self._nameless: list[Fault] = []
        self.watches: list[Watch] = []

    def read(self) -> tuple[list[Reading], list[Fault]]:
        """Return the latest values, and what could not be had.

        Raises `DcgmLost` when the host engine is gone.
        """
        self._look()
        self._retry()
        if self._update:
            self._driver.update()
        faults = [*self._nameless, *_refusals(self.watches)]
        return list(self._values(faults)), faults

    def close(self) -> None:
        """Stop watching, as far as the other side is still there."""
        with contextlib.suppress(SourceError, ConnectionError):
            self._clear()

    def again(self, watch: Watch) -> None:
        """Ask for a watch anew, if it is time: it was refused, or stays silent."""
        if self._clock.monotonic() - watch.since < TRY_AGAIN:
            return
        if watch.taken:
            _undo(self._driver.unwatch, watch.group, self._field_group(watch.taken))
        watch.since = self._clock.monotonic()
        self._take(watch)
        self._prepare()

    def _look(self) -> None:
        """Find out what there is; when that has changed, begin anew with it."""
        now = self._clock.monotonic()
        if self._layout is not None and now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        numbers = tuple(sorted(set(self._driver.gpus())))
        instances = tuple(sorted(self._driver.instances()))
        if (numbers, instances) != self._layout:
            self._clear()
            self._build(numbers, instances)
            self._layout = (numbers, instances)

    def _build(self, numbers: Sequence[int], instances: Sequence[d.Instance]) -> None:
        gpus = self._identified(numbers)
        slices = {
            number: tuple(
                Target(one.entity, gpu.gpu, gpu.uuid, str(one.number))
                for one in instances
                if one.gpu == number
            )
            for number, gpu in gpus.items()
        }
        for number, gpu in gpus.items():
            for kind, targets in ((d.GPU, (gpu,)), (d.INSTANCE, slices[number])):
                if targets:
                    self._begin(kind, targets)
        self._prepare()
        if self.watches:
            self._driver.update()  # so that there are values at once

    def _identified(self, numbers: Sequence[int]) -> dict[int, Target]:
        """Return the GPUs that say who they are, by DCGM's number."""
        found: dict[int, Target] = {}
        self._nameless = []
        for number in numbers:
            entity = d.Entity(d.GPU, number)
            try:
                values = self._driver.ask([entity], [NVML_INDEX, UUID], live=True)()
            except d.DcgmError as error:
                self._nameless.append(Fault.of(f"gpu {number}", error))
                continue
            told = {value.field: value.value for value in values if value.status == 0}
            index, uuid = told.get(NVML_INDEX), told.get(UUID)
            if not isinstance(uuid, str) or not uuid or uuid.startswith("<<<"):
                self._nameless.append(
                    Fault(f"gpu {number}", "unavailable", "DCGM does not say which board it is")
                )
                continue
            # DCGM counts GPUs as it found them; where it does not tell NVML's index, that is it.
            known = isinstance(index, int) and 0 <= index < 1000
            found[number] = Target(entity, str(index if known else number), uuid)
        return found

    def _begin(self, kind: int, targets: tuple[Target, ...]) -> None:
        group = self._driver.create_group(self._name(), [target.entity for target in targets])
        for wanted in self._wanted:
            if wanted.kind == kind and wanted.fields:
                now = self._clock.monotonic()
                watch = Watch(targets, wanted.label, wanted.fields, now, group)
                self._take(watch)
                self.watches.append(watch)

    def _take(self, watch: Watch) -> None:
        """Watch all fields, or those that can be watched."""
        watch.taken, watch.refused = (), {}
        fields = watch.wanted
        error = self._start(watch.group, fields)
        if error is not None and error.code not in _WHOLE:
            fields = self._possible(watch)
            while fields and (error := self._start(watch.group, fields)) is not None:
                # Each can be measured, but not all at the same time: the first ones matter most.
                watch.refused[fields[-1]] = error
                fields = fields[:-1]
        if error is None:
            watch.taken = fields
        else:
            watch.refused |= dict.fromkeys(fields, error)

    def _possible(self, watch: Watch) -> tuple[int, ...]:
        """Return the fields that are accepted one by one; note why the others are not."""
        good = []
        for number in watch.wanted:
            group = self._driver.create_fields(self._name(), [number])
            try:
                self._driver.watch(watch.group, group, every=self._every, keep=self._keep)
                self._driver.unwatch(watch.group, group)
                good.append(number)
            except d.DcgmError as error:
                watch.refused[number] = error
            finally:
                self._driver.destroy_fields(group)
        return tuple(good)

    def _start(self, group: int, fields: tuple[int, ...]) -> d.DcgmError | None:
        try:
            self._driver.watch(group, self._field_group(fields), every=self._every, keep=self._keep)
        except d.DcgmError as error:
            return error
        return None

    @property
    def _keep(self) -> float:
        return max(30.0, 3 * self._every)

    def _field_group(self, fields: tuple[int, ...]) -> int:
        """Return a group of fields; GPUs share them, there may be 64 in a host engine."""
        if fields not in self._field_groups:
            self._field_groups[fields] = self._driver.create_fields(self._name(), fields)
        return self._field_groups[fields]

    def _name(self) -> str:
        self._names += 1
        return f"flopwatch-{self._token}-{self._names}"

    def _prepare(self) -> None:
        """Make ready to ask: one request for all targets that have the same fields."""
        fields: dict[Target, tuple[int, ...]] = {}
        for watch in self.watches:
            for target in watch.targets:
                fields[target] = (*fields.get(target, ()), *watch.taken)
        together: dict[tuple[int, ...], list[Target]] = {}
        for target, numbers in fields.items():
            if numbers:
                together.setdefault(numbers, []).append(target)
        self._asks = [
            (tuple(targets), numbers, self._driver.ask([t.entity for t in targets], numbers))
            for numbers, targets in together.items()
        ]

    def _retry(self) -> None:
        """Ask again for what was refused; what a GPU does not have it will not have later."""
        for watch in self.watches:
            passing = any(error.code not in _UNSUPPORTED for error in watch.refused.values())
            if passing or not watch.taken:
                self.again(watch)

    def _values(self, faults: list[Fault]) -> Iterator[Reading]:
        for targets, numbers, ask in self._asks:
            try:
                values = ask()
            except d.DcgmError as error:
                values = self._one_by_one(targets, numbers, error, faults)
            about = {target.entity: target for target in targets}
            yield from (Reading(about[v.entity], v) for v in values if v.entity in about)
            if any(value.status == d.INSTANCE_NOT_FOUND for value in values):
                self._layout = None  # MIG was laid out anew: look at the next read

    def _one_by_one(
        self,
        targets: Sequence[Target],
        numbers: Sequence[int],
        error: d.DcgmError,
        faults: list[Fault],
    ) -> list[d.Value]:
        """Ask each for itself, after they failed together."""
        if len(targets) == 1:
            faults.append(Fault.of(targets[0].part, error))
            return []
        values: list[d.Value] = []
        for target in targets:
            try:
                values += self._driver.ask([target.entity], numbers)()
            except d.DcgmError as own:
                faults.append(Fault.of(target.part, own))
        return values

    def _clear(self) -> None:
        """Undo all watches and groups."""
        watches, self.watches, self._asks = self.watches, [], []
        field_groups, self._field_groups = self._field_groups, {}
        self._layout = None
        for watch in watches:
            if watch.taken:
                _undo(self._driver.unwatch, watch.group, field_groups[watch.taken])
        for group in dict.fromkeys(watch.group for watch in watches):
            _undo(self._driver.destroy_group, group)
        for number in field_groups.values():
            _undo(self._driver.destroy_fields, number)


def _undo(function: Callable[..., None], *arguments: int) -> None:
    """Take something back; what is not there any more is as good as taken back."""
    with contextlib.suppress(d.DcgmError):
        function(*arguments)


def _refusals(watches: Sequence[Watch]) -> list[Fault]:
    """Say what is not watched and should be: once for each watch and reason."""
    faults = []
    for watch in watches:
        reasons: dict[str, tuple[d.DcgmError, list[int]]] = {}
        for number, error in watch.refused.items():
            if error.code not in _UNSUPPORTED or not watch.taken:
                reasons.setdefault(str(error), (error, []))[1].append(number)
        for error, numbers in reasons.values():
            what = ", ".join(map(str, sorted(numbers)))
            faults.append(Fault(watch.part, error.reason, f"{error}; fields {what}"))
    return faults


def statuses(readings: Sequence[Reading], names: Mapping[int, str]) -> list[Fault]:
    """Say which values failed in a way that an operator should know, once for target and status.

    A field that is not supported, not watched yet or without data is absent, which is no fault.
    """
    quiet = (0, d.NOT_SUPPORTED, d.NO_DATA, d.STALE_DATA, d.NOT_WATCHED, d.INSTANCE_NOT_FOUND,
             d.UNKNOWN_FIELD, d.FIELD_UNSUPPORTED_BY_API)  # fmt: skip
    failed: dict[tuple[Target, int], list[str]] = {}
    for target, value in readings:
        if value.status not in quiet:
            name = names.get(value.field, str(value.field))
            failed.setdefault((target, value.status), []).append(name)
    return [
        Fault(target.part, d.reason_of_code(status), d.said(status, _list(fields)))
        for (target, status), fields in failed.items()
    ]


def _list(names: Sequence[str]) -> str:
    rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + rest
