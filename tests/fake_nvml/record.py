"""Records a machine with a real driver as a profile, which the fake library then plays for ever.

    python -m tests.fake_nvml.record > my.profile
    python -m tests.fake_nvml.record --check my.profile

What to ask is not listed here: the exporter's own reader is run over the driver and its questions
are noted, then those rows of its tables are added that this driver gave it no reason to ask. A
child process asks, and says each question before it asks it, so that the parent knows which one
hung or crashed: that is written down too, and another child goes on without it. GPUs come one after
the other, each written when it is done. `SOURCES.md` says what is recorded and what cannot be.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import platform
import re
import select
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple, TextIO

import pynvml

from exporter.clock import Clock, SystemClock
from exporter.nvml import readings as r
from exporter.nvml.driver import (
    ALL_LINKS,
    ARGUMENT_VERSION_MISMATCH,
    FUNCTION_NOT_FOUND,
    GONE,
    NOT_FOUND,
    NOT_SUPPORTED,
    OVER,
    FieldAnswer,
    Nvml,
    NvmlError,
    Struct,
    Text,
)
from exporter.nvml.driver import Answer as Form
from exporter.samples import Fault, SourceError
from exporter.sources.nvml import NvmlSource
from tests.fake_nvml import KINDS, Answer, Profile
from tests.nvml.profile_driver import ALL_ONES, NO_INSTANCE, SHAPES

NOWHERE = "/dev/null/nowhere"
"""Where a machine's files are not: neither names of processes nor a PCI bus."""

FAULTS = 3
"""So many hung or crashed calls, and the GPU is left as it is."""


class Question(NamedTuple):
    """What is asked of a GPU: a function and its arguments, or `field` and its number and scope."""

    name: str
    arguments: tuple[int, ...] = ()

    def of(self, who: str) -> str:
        """Return the left side of its line in a profile."""
        return " ".join(map(str, (who, self.name, *self.arguments)))

    def counter(self, at: int) -> tuple[str, int]:
        """Return what `counters` calls the value at this place."""
        return self.name, self.arguments[0] if self.name == "field" else at


Questions = dict[Question, dict[Form | None, None]]
"""What is asked, each with the forms that the answer may have, newest first."""

EVENT_TYPES = Question("nvmlDeviceGetSupportedEventTypes")
"""The reader only registers for events; the fake library decides by this whether it may."""

LINK_ERRORS = "nvmlDeviceGetNvLinkErrorCounter"
PCI = ("busId", "pciDeviceId", "pciSubSystemId")
"""What a profile has of this structure; of others it has everything, in their own order."""

_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_NAMES = {
    "nvmlInit": "nvmlInit_v2",
    "nvmlInitWithFlags": "nvmlInit_v2",
    "nvmlDeviceGetHandleByIndex": "nvmlDeviceGetHandleByIndex_v2",
}
_PASSING = frozenset({"nvmlEventSetWait_v2", "nvmlGpmMetricsGet"})
"""Whose errors are no line: that no event has come, and that one of several windows is refused."""
_ARGUMENTLESS = frozenset({*_NAMES, "nvmlDeviceGetProcessUtilization"})


def question_of(function: str, form: Form, arguments: Sequence[int]) -> tuple[Question, Form]:
    """Return a question, and its form: of a structure all members, whichever are wanted."""
    if isinstance(form, Struct):
        arguments = (*arguments, *(number for _, number in form.inputs))
        form = form._replace(fields=())
    return Question(function, tuple(arguments)), form


class Channel:
    """What a child tells its parent, a JSON list in each line: `?` asks, `=` is a line, `-`
    takes it back, `+` is a row, `#` a comment. `skip` is not asked again."""

    def __init__(self, out: TextIO, skip: Iterable[str]) -> None:
        self._out = out
        self._skip = frozenset(skip)

    def send(self, *message: str) -> None:
        """Say it at once."""
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def asking(self, left: str) -> None:
        """Say that this is asked now; raise `NvmlError` instead if it must not be."""
        if left in self._skip:
            raise NvmlError(NOT_SUPPORTED, left, "left out")
        self.send("?", left)

    def told(self, left: str, right: str) -> None:
        """Say what was answered."""
        if left not in self._skip:
            self.send("=", left, right)


class Spy(Nvml):
    """NVML of which only one GPU can be seen, as GPU 0. It says each question before it is asked,
    and notes those about that GPU."""

    def __init__(self, clock: Clock, say: Channel, index: int) -> None:
        super().__init__(clock)
        self._say = say
        self._index = index
        self._who = str(index)
        self._at = 0
        self.asked: Questions = {}

    def device(self, index: int) -> Any:
        """Return the handle of the GPU."""
        handle = super().device(self._index)
        self._at = self.address(handle)
        return handle

    def bind(self, function: str, answer: Form, *arguments: Any) -> Callable[[], Any]:
        """Bind a call that says what it asks. Of an instance of the GPU nothing is noted."""
        if function == "nvmlDeviceGetCount_v2":
            return lambda: 1
        question, form = question_of(function, answer, arguments[1:])
        if arguments and self.address(arguments[0]) == self._at:
            self.asked.setdefault(question, {})[form] = None
        call, left = super().bind(function, answer, *arguments), question.of(self._about(function))

        def bound() -> Any:
            self._say.asking(left)
            return call()

        return bound

    def fields(
        self, device: Any, wanted: Sequence[tuple[int, int]]
    ) -> Callable[[], Sequence[FieldAnswer]]:
        """Ask for each field in a call of its own: of many in one nobody knows which one hung."""
        questions = [Question("field", one) for one in wanted]
        for question in questions:
            self.asked[question] = {None: None}
        calls = [Nvml.fields(self, device, [one]) for one in wanted]

        def single(question: Question, call: Callable[[], Sequence[FieldAnswer]]) -> FieldAnswer:
            try:
                self._say.asking(question.of(self._who))
                return call()[0]
            except NvmlError as error:
                if error.code in GONE | OVER:
                    raise
                return FieldAnswer(error.code, math.nan, wide=False)

        return lambda: [single(*pair) for pair in zip(questions, calls, strict=True)]

    def utilization_samples(self, device: Any, since: int) -> Sequence[tuple[int, int]]:
        """Say that they are asked for."""
        self._say.asking(f"{self._who} samples 1")
        return super().utilization_samples(device, since)

    def _about(self, function: str) -> str:
        return self._who if function.startswith(("nvmlDevice", "nvmlGpm")) else "system"

    def _own(self, function: str, *arguments: Any) -> Any:
        """Say what is asked, and the code of what fails."""
        numbers = tuple(number for number in arguments if isinstance(number, int))
        question = Question(
            _NAMES.get(function, function), () if function in _ARGUMENTLESS else numbers
        )
        left = question.of(self._about(function))
        self._say.asking(left)
        try:
            return super()._own(function, *arguments)
        except NvmlError as error:
            if function not in _PASSING:
                self._say.told(left, f"!{error.code}")
            raise


# ------------------------------------------------------------ what to ask


def rungs() -> Iterator[r.Rung]:
    """Yield every row of the tables that is asked of a GPU as such."""
    for ladder in (*r.LADDERS, *r.DETAILS):
        yield from ladder


def unasked(links: int) -> Iterator[tuple[Question, Form | None]]:
    """Yield what the reader would ask of a GPU with so many NVLinks, whatever it had answered.

    Not the histogram of remapped rows, which a vGPU must not be asked.
    """

    def field(number: int, scope: int = 0) -> tuple[Question, None]:
        return Question("field", (number, scope)), None

    for rung in rungs():
        if isinstance(rung, r.Field):
            yield field(rung.number, rung.scope)
        else:
            yield question_of(rung.function, rung.answer, rung.arguments)
    yield from (question_of(function, form, ()) for function, form in r.FABRIC)
    yield from (field(number) for number, _ in r.PCIE_BYTES)
    yield from (question_of("nvmlDeviceGetPcieThroughput", "u32", [n]) for n, _ in r.PCIE_RATES)
    for link in range(links):
        yield from (field(number, link) for number in (*link_counters(), r.LINK_RATE[0]))
        yield from (question_of(LINK_ERRORS, "u64", (link, n)) for n, _ in r.LINK_ERROR_CALLS)
    yield from (field(number, ALL_LINKS) for number in link_counters() if links)


def link_counters() -> list[int]:
    """Return the fields that count bytes and errors of a link, of all generations."""
    sides = [number for receive, transmit, _ in r.LINK_BYTES for number in (receive, transmit)]
    return sides + [one.number for generation in r.LINK_ERRORS for one in generation]


@cache
def counters() -> frozenset[tuple[str, int]]:
    """Return what only grows: functions with the place among their values, fields by number."""
    found = {(LINK_ERRORS, 0)}
    for rung in rungs():
        for gives in rung.gives if isinstance(rung, r.Call) else (rung.gives,):
            if gives.metric.kind == "counter":
                name, place = ("field", rung.number) if isinstance(rung, r.Field) else (
                    rung.function, gives.at
                )  # fmt: skip
                found.add((name, place))
    fields = [number for number, _ in (*r.PCIE_BYTES, *r.C2C_ERRORS)]
    return frozenset(found | {("field", number) for number in (*fields, *link_counters())})


def gpm_numbers() -> list[int]:
    """Return the numbers of all GPM metrics that the reader knows."""
    return [metric.number for metric in (*r.GPM, *r.GPM_DETAILS)] + [n for n, _ in r.GPM_BYTES]


# ------------------------------------------------------------ answers, and how they are written


def written(answer: Answer) -> str:
    """Return the right side of a line: what `Profile` reads as this answer."""
    if answer.fault:
        return answer.fault
    found = [answer.kind] if answer.kind else []
    rates = answer.rates or (0.0,) * len(answer.values)
    for value, rate in zip(answer.values, rates, strict=True):
        assert not isinstance(value, tuple), "no driver answers a wave"
        found.append(quoted(value) if isinstance(value, bytes) else repr(value))
        found += [f"+{rate:.9g}/s"] if rate else []
    return " ".join(found)


def quoted(text: bytes) -> str:
    """Return a text as the grammar has it."""
    signs = {0x22: '\\"', 0x5C: "\\\\", 0x0A: "\\n"}
    return '"' + "".join(
        signs.get(byte, chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}") for byte in text
    ) + '"'  # fmt: skip


def grown(question: Question, first: Answer, second: Answer, seconds: float) -> Answer:
    """Return the first answer with its counters' growth per second; one that fell has none."""
    counts = counters()

    def rate(at: int, before: Any, after: Any) -> float:
        known = question.counter(at) in counts and not {before, after} & r.BLANKS
        return (after - before) / seconds if known and after > before else 0.0

    pairs = enumerate(zip(first.values, second.values, strict=True))
    return Answer(first.values, first.kind, "", tuple(rate(at, *pair) for at, pair in pairs))


def ask(spy: Spy, question: Question, form: Form | None, *handle: Any) -> Answer:
    """Ask, and return all values of the answer in the grammar's order. Raises `NvmlError`."""
    name, arguments = question
    match form:
        case None:
            return _field(spy, handle[0], arguments)
        case Struct():
            return _struct(spy, name, form, handle[0])
        case Text():
            # Not through `bind`: what is no UTF-8 must stay as it is.
            room = ctypes.create_string_buffer(form.size)
            spy._checked(name)(*handle, room, ctypes.c_uint32(form.size))
            return Answer((room.value,))
        case _:
            told = Nvml.bind(spy, name, form, *handle, *arguments)()
            return Answer((told,) if isinstance(form, str) else told)


def _field(spy: Spy, handle: Any, key: tuple[int, ...]) -> Answer:
    (told,) = Nvml._own(spy, "nvmlDeviceGetFieldValues", handle, [key])
    if told.nvmlReturn:
        raise NvmlError(told.nvmlReturn, f"field {key[0]}")
    if told.valueType >= len(KINDS):
        return Answer((math.nan,), "f64")
    return Answer((getattr(told.value, _VALUES[told.valueType]),), KINDS[told.valueType])


def _struct(spy: Spy, name: str, form: Struct, handle: Any) -> Answer:
    members = [member for member, *_ in getattr(pynvml, form.name)._fields_]
    given = {"version", *(member for member, _ in form.inputs)}
    wanted = PCI if "busId" in members else tuple(m for m in members if m not in given)
    whole = form._replace(fields=wanted)
    (room,), values = Nvml._struct(spy, whole)
    spy._checked(name)(handle, room)
    return Answer(tuple(_plain(value) for value in values()))


def _plain(value: Any) -> Any:
    """Return a member as a profile has it: bytes for a text, and 16 numbers are a UUID."""
    if isinstance(value, ctypes.Array):
        return str(uuid.UUID(bytes=bytes(value))).encode()
    return value.encode() if isinstance(value, str) else value


# ------------------------------------------------------------ one GPU


class Card:
    """One GPU, recorded by a child. `seconds` lie between the two readings of its counters."""

    def __init__(
        self, say: Channel, clock: Clock, index: int, *, seconds: float, identity: bool
    ) -> None:
        self._spy = Spy(clock, say, index)
        self._say = say
        self._clock = clock
        self._who = str(index)
        self._seconds = seconds
        self._identity = identity
        self._handle: Any = None
        self._questions: Questions = {}
        self._refused: dict[Question, str] = {}
        self._first: dict[Question, tuple[float, Answer]] = {}

    def record(self) -> None:
        """Say everything that there is to say of it. Raises `NvmlError` if nothing can be had."""
        self._spy.start()
        self._handle = self._spy.device(0)
        self._read_as_the_exporter()
        questions = self._questions = self._spy.asked.copy()
        for question in tuple(questions):
            self._note(question)
        links = sum(question.name == r.LINK_STATE.function for question in self._first)
        for question, form in ((EVENT_TYPES, "u64"), *unasked(links)):
            if question not in questions:
                questions[question] = {form: None}
                self._note(question)
        instances = self._instances()
        newest, usual = self._samples(0)
        windows = self._open(instances)
        self._clock.wait(threading.Event(), self._seconds)
        self._note_growth()
        self._measure(windows)
        _, lately = self._samples(newest)
        self._say_samples(usual if lately is None else lately)
        self._processes()
        self._spy.stop()

    def _read_as_the_exporter(self) -> None:
        """Run the exporter's source, for its questions; what goes wrong for it is a comment.

        Its threads have the machine's clock, and all the time there is: it is the parent that
        notices a call that hangs.
        """
        source = NvmlSource(
            driver=self._spy, clock=SystemClock(), root=NOWHERE, budget=1e6, detail=True, links=True
        )
        try:
            faults = [item.detail for item in source.read() if isinstance(item, Fault)]
            source.close()
        except (OSError, SourceError) as error:
            faults = [str(error)]
        for fault in faults:
            self._say.send("#", f"told by the exporter: {fault}")

    def _asked(self, question: Question) -> Answer | None:
        """Ask this GPU; an error becomes the answer. `None` for what must not be asked again."""
        left = question.of(self._who)
        try:
            self._say.asking(left)
        except NvmlError:
            return None
        refusal = Answer(fault=f"!{NOT_SUPPORTED}")
        for form in self._questions[question]:
            try:
                answer = ask(self._spy, question, form, self._handle)
            except NvmlError as error:
                refusal = Answer(fault=f"!{error.code}")
                if error.code not in {ARGUMENT_VERSION_MISMATCH, FUNCTION_NOT_FOUND}:
                    break
            else:
                self._say_version(question, form)
                return answer
        return refusal

    def _say_version(self, question: Question, form: Form | None) -> None:
        """Say which structure is the newest that the driver knows, if we know a newer one."""
        newest = next(iter(self._questions[question]))
        if isinstance(form, Struct) and form is not newest and "FabricInfoV" in question.name:
            version = getattr(pynvml, form.version) >> 24
            self._say.told(f"{self._who} fabric_version", str(version))

    def _note(self, question: Question) -> None:
        """Ask, say the answer, and keep it with its time."""
        answer, now = self._asked(question), self._clock.monotonic()
        if answer is None:
            return
        if answer.fault:
            self._refused[question] = answer.fault
        else:
            self._first[question] = (now, answer)
        self._say.told(question.of(self._who), written(answer))

    def _note_growth(self) -> None:
        """Ask for the counters again, and say them anew with their growth."""
        for question, (began, first) in self._first.items():
            if not any(question.counter(at) in counters() for at in range(len(first.values))):
                continue
            answer, now = self._asked(question), self._clock.monotonic()
            if answer is not None and not answer.fault and now > began:
                last = grown(question, first, answer, now - began)
                self._say.told(question.of(self._who), written(last))

    # ---- instances and GPM

    def _instances(self) -> list[int]:
        """Say the rows of the MIG devices; return the numbers of the GPU instances."""
        most = self._first.get(Question("nvmlDeviceGetMaxMigDeviceCount"))
        found: dict[int, None] = {}
        for index in range(0 if most is None else int(most[1].value)):  # type: ignore[arg-type]
            try:
                handle = self._spy._own("nvmlDeviceGetMigDeviceHandleByIndex", self._handle, index)
                row, instance = self._instance(handle, index)
            except NvmlError as error:
                if error.code != NOT_FOUND:
                    self._say.send("#", f"GPU {self._who}: MIG device {index}: {error}")
                continue
            self._say.send("+", row)
            found[instance] = None
        return list(found)

    def _instance(self, handle: Any, index: int) -> tuple[str, int]:
        def told(name: str, form: Form) -> Any:
            return self._of_instance(Question(name), form, handle).value

        gi, ci = (told(f"nvmlDeviceGet{kind}InstanceId", "u32") for kind in ("Gpu", "Compute"))
        row = f"mig {self._who} {gi} {ci} index {index}"
        with suppress(NvmlError):
            _, parted, last = told("nvmlDeviceGetName", Text()).rpartition(b" MIG ")
            row += f" profile {quoted(last)}" if parted else ""
        row += f" uuid {quoted(told('nvmlDeviceGetUUID', Text()))}"
        with suppress(NvmlError):
            total, reserved, free, used = self._memory(handle)
            row += f" memory {total} reserved {reserved} used {used} free {free}"
        with suppress(NvmlError):
            told_of = self._spy._own("nvmlDeviceGetAttributes_v2", handle)
            numbers = [getattr(told_of, member) for member, _ in told_of._fields_]
            row += f" attributes {' '.join(map(str, numbers))}"
        return row, gi

    def _memory(self, handle: Any) -> tuple[Any, ...]:
        """Return total, reserved, free and used; the older function counts the reserve as used."""
        newer, older = Question("nvmlDeviceGetMemoryInfo_v2"), Question("nvmlDeviceGetMemoryInfo")
        try:
            (form,) = self._questions[newer]
            return self._of_instance(newer, form, handle).values
        except NvmlError:
            (form,) = self._questions[older]
            total, *rest = self._of_instance(older, form, handle).values
            return (total, 0, *rest)

    def _of_instance(self, question: Question, form: Form | None, handle: Any) -> Answer:
        """Ask an instance. In a profile its GPU's refusal would hold for it too: no line for that,
        which for all but NOT_SUPPORTED is a loss."""
        left = question.of(self._who)
        self._say.asking(left)
        answer = ask(self._spy, question, form, handle)
        refusal = self._refused.pop(question, "")
        if refusal:
            self._say.send("-", left)
        if refusal not in {"", f"!{NOT_SUPPORTED}"}:
            self._say.send("#", f"{left} = {refusal}, but its instances answer")
        return answer

    def _open(self, instances: Sequence[int]) -> dict[int | None, Any]:
        """Take the first sample of the counters: of the GPU (`None`) and of each instance."""
        try:
            told = self._spy._own("nvmlGpmQueryDeviceSupport", self._handle)
        except NvmlError:
            return {}
        self._say.told(f"{self._who} nvmlGpmQueryDeviceSupport", str(told.isSupportedDevice))
        opened: dict[int | None, Any] = {}
        for instance in (None, *instances) if told.isSupportedDevice else ():
            with suppress(NvmlError):
                opened[instance] = self._sample(instance)
        return opened

    def _sample(self, instance: int | None) -> Any:
        sample = self._spy.gpm_sample()
        try:
            self._spy.gpm_take(self._handle, sample, instance)
        except NvmlError:
            self._spy.gpm_free(sample)
            raise
        return sample

    def _measure(self, windows: dict[int | None, Any]) -> None:
        """Say each window's averages. One that cannot be had at all is refused metric by metric:
        a line for the whole call would hold for all windows."""
        numbers = gpm_numbers()
        for instance, earlier in windows.items():
            where = "" if instance is None else f" mig {instance}"
            with suppress(NvmlError):
                later = self._sample(instance)
                try:
                    answers = self._metrics(earlier, later, numbers)
                finally:
                    self._spy.gpm_free(later)
                for number, (code, value) in zip(numbers, answers, strict=True):
                    right = f"!{code}" if code else repr(value)
                    self._say.told(f"{self._who} gpm {number}{where}", right)
            self._spy.gpm_free(earlier)

    def _metrics(
        self, earlier: Any, later: Any, numbers: Sequence[int]
    ) -> Sequence[tuple[int, float]]:
        try:
            return self._spy.gpm_metrics(earlier, later, numbers)
        except NvmlError as error:
            return [(error.code, 0.0)] * len(numbers)

    # ---- what the driver keeps of the past

    def _samples(self, since: int) -> tuple[int, Answer | None]:
        """Return when the newest sample of utilization was taken, and the average of those since;
        that is `None` if there are none."""
        left = f"{self._who} samples 1"
        try:
            self._say.asking(left)
            kind, rows = Nvml._own(self._spy, "nvmlDeviceGetSamples", self._handle, 1, since)
        except NvmlError as error:
            return 0, None if since else Answer(fault=f"!{error.code}")
        values = [getattr(row.sampleValue, _VALUES[kind]) for row in rows if row.timeStamp > since]
        if not values:
            return since, None
        average = math.fsum(values) / len(values)
        value = average if KINDS[kind] == "f64" else round(average)
        return max(row.timeStamp for row in rows), Answer((value,), KINDS[kind])

    def _say_samples(self, answer: Answer | None) -> None:
        if answer is not None:
            self._say.told(f"{self._who} samples 1", written(answer))

    def _processes(self) -> None:
        """Say the rows of the processes, each with its newest shares.

        A list that the reader does not touch is not looked at here either.
        """
        try:
            self._spy.processes(self._handle)
        except NvmlError as error:
            self._say.told(f"{self._who} nvmlDeviceGetComputeRunningProcesses_v3", f"!{error.code}")
            return
        shares = self._shares()
        pids: dict[int, None] = {}
        for kind, letter in (("Compute", "C"), ("Graphics", "G"), ("MPSCompute", "M")):
            for row in self._running(f"nvmlDeviceGet{kind}RunningProcesses"):
                memory = ALL_ONES if row.usedGpuMemory is None else row.usedGpuMemory
                text = f"process {self._who} pid {row.pid} memory {memory}"
                for key, number in (("gi", row.gpuInstanceId), ("ci", row.computeInstanceId)):
                    text += "" if number == NO_INSTANCE else f" {key} {number}"
                text += "" if letter == "C" else f" type {letter}"
                self._say.send("+", text + shares.pop(row.pid, ""))
                pids[row.pid] = None
        for pid in pids if self._identity else ():
            with suppress(NvmlError):
                name: str = self._spy._own("nvmlSystemGetProcessName", pid)
                self._say.told(f"system nvmlSystemGetProcessName {pid}", quoted(name.encode()))

    def _running(self, function: str) -> Sequence[Any]:
        """Return what the newest function says that there is; an older one must be told to stand
        on its own, or the newer one's refusal would hold for it."""
        for version in ("_v3", "_v2"):
            if not hasattr(pynvml, function + version):
                continue
            with suppress(NvmlError):
                rows: Sequence[Any] = self._spy._own(function + version, self._handle)
                if version != "_v3":
                    self._say.told(f"{self._who} {function}{version}", "0")
                return rows
        return ()

    def _shares(self) -> dict[int, str]:
        """Say whether the driver tells of shares; return the end of a process's row by its PID."""
        left = f"{self._who} nvmlDeviceGetProcessUtilization"
        try:
            rows = self._spy._own("nvmlDeviceGetProcessUtilization", self._handle, 0)
        except NvmlError as error:
            # Nothing has run, which reaches us as success without room for a sample (0) as well.
            if error.code in {0, NOT_FOUND}:
                self._say.told(left, "1")
            return {}
        self._say.told(left, "1")
        newest: dict[int, Any] = {}
        for row in rows:
            if row.pid not in newest or row.timeStamp > newest[row.pid].timeStamp:
                newest[row.pid] = row
        return {
            pid: f" sm {row.smUtil} mem {row.memUtil} enc {row.encUtil} dec {row.decUtil}"
            for pid, row in newest.items()
        }


def ask_all(options: argparse.Namespace, clock: Clock, out: TextIO) -> int:
    """Be the child: say what the machine is (`options.begin` -1), then each GPU from there on."""
    say = Channel(out, options.skip)
    say.send("ready")
    driver = Spy(clock, say, 0)
    try:
        driver.start()
        say.asking("system nvmlDeviceGetCount_v2")
        count = Nvml.bind(driver, "nvmlDeviceGetCount_v2", "u32")()
    except NvmlError as error:
        print(f"the driver cannot be asked: {error}", file=sys.stderr)
        return 1
    if options.begin < 0:
        say.told("devices", str(count))
        _ask_the_system(driver, say)
        say.send("done")
    for index in range(max(options.begin, 0), count):
        with suppress(NvmlError):  # the reason has been told
            Card(say, clock, index, seconds=options.seconds, identity=options.identity).record()
        say.send("done")
    with suppress(NvmlError):
        driver.stop()
    return 0


def _ask_the_system(driver: Spy, say: Channel) -> None:
    """Say the versions."""
    for name, shape in SHAPES.items():
        if not shape.system or name == "nvmlDeviceGetCount_v2":
            continue
        left = f"system {name}"
        say.asking(left)
        try:
            answer = ask(driver, Question(name), shape.writes)  # type: ignore[arg-type]
        except NvmlError as error:
            answer = Answer(fault=f"!{error.code}")
        say.told(left, written(answer))


# ------------------------------------------------------------ the parent


class Masks:
    """Stand-ins for what tells one machine from another: the same text has the same one
    everywhere. What stands for no text stays."""

    _STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
    _UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")

    def __init__(self) -> None:
        self._given: dict[str, int] = {}

    def line(self, left: str, right: str) -> str:
        """Return the right side of a line as it may be told."""
        _, _, function = left.rpartition(" ")
        if function == "nvmlDeviceGetSerial":
            return self._STRING.sub(lambda text: f'"{self._serial(text[1])}"', right)
        if function == "nvmlDeviceGetUUID" or "GpuFabricInfo" in function:
            return self._STRING.sub(lambda text: f'"{self._uuid(text[1])}"', right)
        return right

    def row(self, row: str) -> str:
        """Return the row of an instance or a process as it may be told."""
        before, key, after = row.partition(" uuid ")
        return before + key + self._STRING.sub(lambda text: f'"{self._uuid(text[1])}"', after)

    def _number(self, text: str) -> int:
        return self._given.setdefault(text, len(self._given) + 1)

    def _serial(self, text: str) -> str:
        return text if _is_blank(text) else str(self._number(text)).zfill(len(text))

    def _uuid(self, text: str) -> str:
        if _is_blank(text):
            return text
        if self._UUID.search(text) is not None:
            return self._UUID.sub(lambda found: self._one(found[0]), text)
        return (text[:4] if text[:4] in {"GPU-", "MIG-"} else "") + self._one(text)

    def _one(self, text: str) -> str:
        return f"00000000-0000-4000-8000-{self._number(text):012d}"


def _is_blank(text: str) -> bool:
    return text in r.BLANK_TEXTS or not text.strip("0-")


class Block:
    """The lines of one GPU, or those of the machine, as they come in."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}
        self.rows: list[str] = []
        self.comments: list[str] = []

    def take(self, kind: str, said: Sequence[str]) -> None:
        """Take in what the child says. Of a line that is said twice the later one counts."""
        match kind, said:
            case "=", [left, right]:
                self.lines[left] = right
            case "-", [left]:
                self.lines.pop(left, None)
            case "+", [row]:
                self.rows.append(row)
            case "#", [comment]:
                self.comments.append(comment)

    def again(self) -> None:
        """Be ready for another child, which says everything that it can anew."""
        self.rows.clear()
        self.comments.clear()

    def text(self, masks: Masks | None) -> Iterator[str]:
        """Yield the lines: a function's beside each other, by their arguments."""
        order: dict[str, int] = {}
        found = []
        for left, right in self.lines.items():
            _, name, *arguments = left.split() if " " in left else ("", left)
            place = order.setdefault(name, len(order))
            numbers = [int(one) if one.isdecimal() else -1 for one in arguments]
            shown = right if masks is None else masks.line(left, right)
            found.append(((place, numbers), left, shown))
        yield from (f"# {comment}" for comment in self.comments)
        yield from joined((left, right) for _, left, right in sorted(found))
        yield from (row if masks is None else masks.row(row) for row in self.rows)


def joined(lines: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield lines; neighbours that differ in their last argument alone, by one, become one."""
    runs: list[tuple[str, int | None, int | None, str]] = []
    for left, right in lines:
        start, last = _without_last(left)
        if runs and last is not None and runs[-1][0] == start and runs[-1][3] == right:
            _, low, high, _ = runs[-1]
            if high is not None and high + 1 == last:
                runs[-1] = (start, low, last, right)
                continue
        runs.append((start, last, last, right))
    for start, low, high, right in runs:
        span = "" if low is None else f" {low}" if low == high else f" {low}-{high}"
        yield f"{start}{span} = {right}"


def _without_last(left: str) -> tuple[str, int | None]:
    """Split off the last argument, if the grammar lets a range stand there."""
    parts = left.split()
    if parts[1:2] == ["field"] or (parts[-1].isdecimal() and parts[1].startswith("nvml")):
        return " ".join(parts[:-1]), int(parts[-1])
    return left, None


class UnreachableError(Exception):
    """The driver says nothing at all, or no longer: the rest cannot be recorded."""


class Recording:
    """What becomes the profile. `module` is the child's program."""

    def __init__(
        self, options: argparse.Namespace, clock: Clock, module: str = "tests.fake_nvml.record"
    ) -> None:
        self._options = options
        self._clock = clock
        self._module = module
        self._masks = None if options.identity else Masks()
        self._number, self._total = -1, 0
        self._begin()

    def _begin(self) -> None:
        self._block, self._skip, self._faults = Block(), list[str](), 0

    def lines(self) -> Iterator[str]:
        """Yield the lines, those of each GPU when it is done. Raises `UnreachableError`."""
        while self._number < self._total:
            asking = ""
            for kind, *said in self._child():
                if kind == "?":
                    (asking,) = said
                elif kind == "done":
                    asking = ""
                    yield from self._finished()
                elif kind == "failed":
                    yield from self._failed(asking, *said)
                else:
                    self._block.take(kind, said)

    def _finished(self) -> Iterator[str]:
        """Yield the block that is complete, or as complete as it will be, and begin the next."""
        if self._number < 0:
            self._total = int(self._block.lines["devices"])
            yield from self._header(
                self._block.lines["system nvmlSystemGetDriverVersion"].strip('"')
            )
        else:
            yield from ("", f"# GPU {self._number}")
        yield from self._block.text(self._masks)
        self._number += 1
        self._begin()

    def _failed(self, asking: str, how: str) -> Iterator[str]:
        """Note what a child hung at or died of; another one leaves that out, up to a limit."""
        if self._number == self._total:
            return  # it only had to give the library back
        at = asking or "the start"
        if self._number < 0 or asking.startswith("system "):
            if self._number >= 0:
                self._block.comments.append(f"not complete: {how} at {at}")
                yield from self._finished()
            raise UnreachableError(f"{how} at {at}")
        self._faults += 1
        if how in {"hang", "crash"} and asking:
            self._block.lines[asking] = how
            self._block.again()
            self._skip.append(asking)
        if how not in {"hang", "crash"} or self._faults == FAULTS:
            self._block.comments.append(f"not complete: {how} at {at}")
            yield from self._finished()

    def _header(self, driver: str) -> Iterator[str]:
        seconds, now = self._options.seconds, datetime.fromtimestamp(self._clock.time(), UTC)
        yield f"# Recorded by tests/fake_nvml/record.py on {now:%Y-%m-%d}: driver {driver},"
        yield f"# kernel {platform.release()}. Counters with their growth over {seconds:g} s, GPM"
        yield f"# and samples of utilization as their averages over {seconds:g} s."
        if self._masks is not None:
            yield "# Masked: UUIDs, serial numbers, ids of NVLink fabrics. Left out: names of"
            yield "# processes. PCI addresses and PIDs are as they were."

    def _child(self) -> Iterator[list[str]]:
        """Yield what a child says, and at last `failed` if it hung or did not end well."""
        options, begin = self._options, self._number
        command = [sys.executable, "-m", self._module, "--begin", str(begin)]
        command += ["--seconds", repr(options.seconds)]
        command += [part for left in self._skip for part in ("--skip", left)]
        command += ["--identity"] if options.identity else []
        child = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert child.stdout is not None
        try:
            for line in lines_of(child.stdout, options.patience + options.seconds):
                if line.startswith(b"["):  # a driver may have something to say there too
                    yield json.loads(line)
            code = child.wait()
        except TimeoutError:
            yield ["failed", "hang"]
        else:
            if code:
                yield ["failed", "crash" if code < 0 else f"exit code {code}"]
        finally:
            child.kill()
            child.stdout.close()
            # One that hangs in the driver stays until that lets it go.
            with suppress(subprocess.TimeoutExpired):
                child.wait(1)


def lines_of(pipe: IO[bytes], patience: float) -> Iterator[bytes]:
    """Yield lines. After the first, which may take its time, raise `TimeoutError` if none comes for
    so many seconds."""
    rest, limit = b"", None
    while True:
        if not select.select([pipe], [], [], limit)[0]:
            raise TimeoutError
        more = os.read(pipe.fileno(), 65536)
        if not more:
            return
        *lines, rest = (rest + more).split(b"\n")
        yield from lines
        limit = patience if lines else limit


def check(path: Path) -> int:
    """Read a profile back and say how much there is in it."""
    try:
        profile = Profile.read(path)
    except (OSError, ValueError) as error:
        print(f"cannot be read: {error}", file=sys.stderr)
        return 1
    print(f"{profile.devices} GPUs, {len(profile.lines) + len(profile.rows)} lines")
    return 0


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("must be more than 0")
    return value


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    hidden, parser = argparse.SUPPRESS, argparse.ArgumentParser(
        prog="python -m tests.fake_nvml.record",
        description="Write what this machine's NVIDIA driver answers as a profile.",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=_seconds, default=2.0, help="between the two readings (%(default)s)"
    )
    parser.add_argument(
        "--patience", type=_seconds, default=30.0,
        help="seconds after which a call is taken to hang (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--identity", action="store_true", help="keep UUIDs, serial numbers, names of processes"
    )
    parser.add_argument("--check", type=Path, metavar="FILE", help="read a profile, record nothing")
    parser.add_argument("--begin", type=int, help=hidden)
    parser.add_argument("--skip", action="append", default=[], help=hidden)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str], clock: Clock, module: str = "tests.fake_nvml.record") -> int:
    """Write the profile to stdout; return the exit status. `module` is the child's program."""
    options = parsed(arguments)
    if options.check is not None:
        return check(options.check)
    if options.begin is not None:
        return ask_all(options, clock, sys.stdout)
    try:
        for line in Recording(options, clock, module).lines():
            print(line, flush=True)
    except UnreachableError as error:
        print(f"the rest could not be recorded: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], SystemClock()))
