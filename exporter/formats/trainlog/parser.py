"""Puts together what a training log tells over several lines, and numbers its attempts.

A `Course` is where a run stands: which attempt, which step. All logs of a run share it, for a job
that is started again mostly writes another file. A `LogParser` belongs to one log.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from exporter.formats.trainlog.lines import (
    Argument,
    Arguments,
    Bar,
    Evaluated,
    Extreme,
    Found,
    Heading,
    Note,
    StepLine,
    Summary,
    Timer,
    Told,
    ranks,
    read_bar,
    read_line,
)
from exporter.formats.trainlog.text import Stamp, plain, rank_prefix, stamp
from exporter.training.records import Facts, Moment, Record, Step

_WRITERS = 256
"""Of how many writers (files and ranks in them) it is remembered which step they told last."""

_MOST_STEPS = 100_000
"""No line stands for more steps than this: a number that is further on is a misprint, or another
job's."""

_FINE = 20.0
"""So many times the resolution of its stamps a span must be for a step's time to be taken from it:
an error of 5 %."""

_AGREE = 0.05
"""Megatron-Bridge's own line belongs to Megatron's if their times differ by no more than this."""


class Place(NamedTuple):
    """Where a step belongs: its attempt, how many steps it stands for, whether one was lost."""

    attempt: str
    steps: int
    recovered: bool


@dataclass(slots=True)
class Course:
    """Where a run stands: what all its logs have told of attempts and steps.

    A step that is no higher than the last one of the same writer begins another attempt, unless it
    is the same line again. The ranks of a job do not print in step: what another rank in the same
    log says must be lower by more than the usual distance of two lines, and another log is
    listened to only once it is ahead, or after the end of the former attempt was seen.
    """

    attempt: int = 1
    last: int = -1
    gap: int = 0
    base: int | None = None
    over: str = ""
    missed: bool = False
    recovering: bool = False
    saved: int = -1
    told: set[str] = field(default_factory=set)
    writers: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The attempt as records name it: "" is the first one that was seen."""
        return "" if self.attempt == 1 else str(self.attempt)

    def place(self, log: str, rank: str, step: int, content: int) -> Place | None:
        """Return where a step belongs; `None` if it has been told already.

        `log` and `rank` say who tells it, `content` is a hash of what was said of it.
        """
        writer = log, rank
        told = self.writers.get(writer)
        if told == (step, content):
            return None
        if told is not None:
            again = step <= told[0]
        else:
            known = any(former == log for former, _ in self.writers)
            again = known and step < self.last - self.gap
        if self.last >= 0 and (again or self.over):
            self.begin_again()
        elif step <= self.last:
            self._remember(writer, step, content)
            return None
        before = self.last if self.last >= 0 else self.base
        steps = step - before if before is not None and before < step else 1
        if self.missed or steps > _MOST_STEPS:
            steps = min(steps, self.gap or 1)
        elif self.last >= 0:
            self.gap = min(self.gap or steps, steps)
        self.last, self.base, self.missed = step, None, False
        self._remember(writer, step, content)
        recovered, self.recovering = self.recovering, False
        return Place(self.name, steps, recovered)

    def begin_again(self) -> None:
        """Begin another attempt; what was loaded for it stays known."""
        self.attempt += 1
        self.recovering = self.over != "ended"
        self.last, self.saved, self.over = -1, -1, ""
        self.told.clear()
        self.writers.clear()

    def interrupt(self) -> None:
        """Note that lines were missed: the next step stands for as many as are usual at most."""
        self.missed = True
        self.writers.clear()

    def once(self, kind: str, step: int | None) -> bool:
        """Tell whether something is news: each rank of a job says so."""
        if kind.startswith("checkpoint"):
            news = step is None or kind != "checkpoint_saved" or step != self.saved
            if news and kind == "checkpoint_saved" and step is not None:
                self.saved = step
            return news
        news = kind not in self.told
        self.told.add(kind)
        return news

    def _remember(self, writer: tuple[str, str], step: int, content: int) -> None:
        self.writers.pop(writer, None)
        if len(self.writers) >= _WRITERS:
            del self.writers[next(iter(self.writers))]
        self.writers[writer] = (step, content)

    def plain(self) -> list[Any]:
        """Return what a later process has to know, as JSON can hold it."""
        return [self.attempt, self.last, self.gap, self.over]

    @classmethod
    def restored(cls, told: object) -> Course:
        """Return the course that `plain` described; a new one if it makes no sense."""
        match told:
            case [int(attempt), int(last), int(gap), str(over)] if attempt > 0 <= gap:
                return cls(attempt, last, gap, None, over, missed=True)
        return cls()


@dataclass(slots=True)
class _Draft:
    """A step that later lines may complete."""

    step: int
    place: Place
    values: dict[str, float]
    said: set[str] = field(default_factory=set)
    phases: dict[str, float] = field(default_factory=dict)
    when: Stamp | None = None
    family: str = ""


_MOST_ARGUMENTS = 200


@dataclass(slots=True)
class _Block:
    """What Composer has told of a step so far: one value a line."""

    step: int | None
    values: dict[str, float] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    when: Stamp | None = None


_SLOWEST = {
    "forward-compute": "forward", "backward-compute": "backward", "optimizer": "optimizer",
    "batch-generator": "data",
}  # fmt: skip
_FASTEST = frozenset({
    "forward-recv", "forward-send", "backward-recv", "backward-send",
    "forward-send-forward-recv", "backward-send-backward-recv", "forward-send-backward-recv",
    "backward-send-forward-recv", "forward-backward-send-forward-backward-recv",
    "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "all-grads-sync",
    "backward-params-all-reduce", "backward-embedding-all-reduce", "grads-all-reduce",
    "grads-reduce-scatter", "params-all-gather",
})  # fmt: skip
"""Megatron's timers in which ranks wait for each other: what even the fastest rank spent there was
communication, the rest was waiting for the slowest. Of timers that compute, the slowest counts."""

_LOW_VOICES = frozenset({"deepspeed", "transformers"})
"""Libraries below a framework: where that tells of steps itself, they are not listened to."""


class LogParser:
    """Turns the lines of one log into records of a run.

    `writer` tells the log apart from others of the run, with which it shares `course`; the logs of
    one container, which has been started again, have the same. `rank` is
    the process that writes it, `None` where its numbers are the run's. `family` is one of
    `FRAMEWORKS` or `auto`. `steps_per_line` is the trainer's `logging_steps`: Transformers prints
    no step numbers, and progress bars, by which they are found otherwise, can be switched off.
    `tokens_of` says whose tokens a plain `tokens/s` counts, where the framework is not known: those
    of the `run` or of one `gpu`; without it they count as unknown.

    `nonsense` holds what was left out, `unnumbered` counts steps without a number, until taken.
    `extremes` are the fastest and the slowest rank of the run and their time of a step, as named
    last. `bars` is false where progress bars cannot be trusted to stand beside what they belong to.
    """

    def __init__(
        self,
        run: str,
        *,
        course: Course | None = None,
        writer: str = "",
        rank: int | None = None,
        family: str = "auto",
        steps_per_line: int | None = None,
        tokens_of: str | None = None,
    ) -> None:
        self.run = run
        self.course = Course() if course is None else course
        self.facts = Facts(run=run)
        self.nonsense: list[str] = []
        self.unnumbered = 0
        self.matched = 0
        self.extremes: dict[str, tuple[int, float]] = {}
        self._writer = writer
        self._rank = rank
        self._family = family
        self._steps_per_line = steps_per_line
        self._tokens_of = tokens_of
        self._lines = 0
        self._draft: _Draft | None = None
        self._note: Moment | None = None
        self._saving: Note | None = None
        self._block: _Block | None = None
        self._bridge: StepLine | None = None
        self._unnumbered: tuple[StepLine, Stamp | None] | None = None
        self.bars = True
        self._arguments: dict[str, str] | None = None
        self._voice = ""
        self._sums: dict[str, float] = {}
        self._sums_step = -1
        self._evaluated = 0.0
        self._when: tuple[int, Stamp] | None = None
        self._counted = False
        self._expected = False

    @property
    def wants_next(self) -> bool:
        """Whether the next line matters, whatever it holds: it may tell a step's number."""
        return self._unnumbered is not None

    def feed(self, line: str, wall: float | None = None) -> list[Record]:
        """Return what a line completes. `wall` is when it was written, where that is known."""
        text = plain(line)
        known = self.facts
        records: list[Record] = []
        if (waiting := self._unnumbered) is not None and (bar := read_bar(text)) is not None:
            self._unnumbered = None
            records += self._numbered(*waiting, bar)
        found = read_line(text, self._family)
        if found:
            self.matched += 1
            when = Stamp(wall, 1e-6, zoned=True) if wall is not None else stamp(text)
            for one in found:
                records += self._take(one, text, when)
        return records if self.facts == known else [self.facts, *records]

    def rest(self) -> list[Record]:
        """Return what waits for lines that have not come; called when the log is silent."""
        known = self.facts
        records = self._release_block()
        if self._unnumbered is not None:
            self._give_up_number()
        records += self._release()
        return records if self.facts == known else [self.facts, *records]

    def interrupt(self) -> None:
        """Forget what the next lines would have continued: some are missing."""
        self._block = self._bridge = self._unnumbered = self._when = None
        self._arguments = None
        self._sums, self._counted = {}, False
        self.course.interrupt()

    def take_flaws(self) -> tuple[list[str], int]:
        """Return what made no sense since the last call, and how many steps had no number."""
        flaws = self.nonsense, self.unnumbered
        self.nonsense, self.unnumbered = [], 0
        return flaws

    # ------------------------------------------------------------ what a line says

    def _take(self, found: Found, text: str, when: Stamp | None) -> list[Record]:
        match found:
            case StepLine():
                self.nonsense += found.nonsense
                return self._step_line(found, text, when)
            case Heading():
                records = self._release_block()
                self._block = _Block(found.step, when=when)
                return records
            case Timer():
                return self._timer(found, when)
            case Extreme():
                self.extremes["slowest" if found.slowest else "fastest"] = found.rank, found.seconds
            case Note():
                return self._noted(found, when)
            case Told():
                self._state(found.facts, found.family)
            case Argument():
                if self._arguments is not None and len(self._arguments) < _MOST_ARGUMENTS:
                    self._arguments[found.name] = found.value
            case Arguments():
                self._list(ends=found.ends)
            case Evaluated():
                self._evaluated += found.seconds
            case Summary():
                return self._summary(found, when)
        return []

    def _list(self, *, ends: bool) -> None:
        """Take Megatron's arguments for the model's config once all are there.

        Some alone would be worse than none: what is missing has a default.
        """
        if not ends:
            self._arguments = {}
            return
        listed, self._arguments = self._arguments, None
        if listed and "num_layers" in listed:
            self.facts = dataclasses.replace(self.facts, config=listed)

    def _step_line(self, line: StepLine, text: str, when: Stamp | None) -> list[Record]:
        if line.family == "composer":
            return self._in_block(line)
        if line.family in _LOW_VOICES and self._voice not in ("", "deepspeed", line.family):
            return []
        if line.step is None:
            if line.family == "transformers":
                return self._without_number(line, when)
            self._bridge = line  # Megatron-Bridge's own line stands before Megatron's
            return []
        if line.step > line.facts.get("last_step", line.step):
            self.nonsense.append(f"step {line.step} of {line.facts['last_step']}")
            return []
        if line.family == "deepspeed":
            return self._deepspeed(line, line.step, text, when)
        if self._voice == "deepspeed":
            self._withdraw(line.step)
        self._voice = line.family
        values, framework = self._with_bridge(line)
        self._state(line.facts, framework)
        if line.family == "plain" and (rate := line.rates.get("tokens")) is not None:
            if self._tokens_of == "gpu":
                values["tgs"] = rate
            elif self._tokens_of == "run" and "seconds" in values:
                values["tokens"] = rate * values["seconds"]
        return self._placed(line.family, line.step, values, text, when)

    def _withdraw(self, step: int | None = None) -> None:
        """Take DeepSpeed's step back where the framework above it tells of the same one."""
        draft = self._draft
        if draft is not None and draft.family == "deepspeed" and step in (None, draft.step):
            self._draft = None
            self.course.last = draft.step - draft.place.steps
            self.course.writers.clear()

    def _with_bridge(self, line: StepLine) -> tuple[dict[str, float], str]:
        """Return a step's values and framework, with what Megatron-Bridge said just before it."""
        values, beside = dict(line.values), self._bridge
        self._bridge = None
        if beside is None or line.family != "megatron":
            return values, line.framework
        told, seconds = beside.values.get("seconds"), values.get("seconds")
        if told and seconds and abs(told - seconds) > _AGREE * seconds:
            return values, line.framework  # of another step
        return {**beside.values, **values}, beside.framework

    def _placed(
        self,
        family: str,
        step: int,
        values: dict[str, float],
        text: str,
        when: Stamp | None,
    ) -> list[Record]:
        """Make a step's draft, if it is a new one; return what stood before it."""
        content = hash(tuple(sorted(values.items())))
        records = self._release()
        first = self.course.attempt == 1 and self.course.last < 0
        place = self.course.place(self._writer, rank_prefix(text), step, content)
        if place is None:
            return records
        if self._saving is not None:
            self._note = self._moment(self._saving, when)
            self._saving = None
            records += self._release()
        if place.recovered:
            self._when = None
            records.append(self._moment(Note("recovered", step), when))
        elif first and (self._expected or step <= 1):
            records.append(self._moment(Note("first_step", step), when))
        if "seconds" not in values:
            self._time_by_stamps(step, place, values, when)
        if when is not None:
            self._when = (step, when)
        self._draft = _Draft(step, place, values, when=when, family=family)
        if family not in ("megatron", "deepspeed"):
            records += self._release()
        return records

    def _time_by_stamps(
        self, step: int, place: Place, values: dict[str, float], when: Stamp | None
    ) -> None:
        """Take a step's time from the stamps of two lines, if those are fine enough."""
        if when is None or self._when is None:
            return
        before, then = self._when
        passed = when.seconds - then.seconds
        if (
            step - before == place.steps
            and when.zoned == then.zoned
            and passed >= _FINE * max(when.resolution, then.resolution)
            and passed / place.steps < 1e6
        ):
            values["seconds"] = passed / place.steps

    # ------------------------------------------------------------ DeepSpeed

    def _deepspeed(self, line: StepLine, step: int, text: str, when: Stamp | None) -> list[Record]:
        """Take one of the two lines that DeepSpeed prints of a step."""
        records: list[Record] = []
        self._voice = "deepspeed"
        draft = self._draft
        said = "rate" if line.rates else "step"
        if (
            draft is None
            or (draft.family, draft.step) != ("deepspeed", step)
            or (said in draft.said)
        ):
            self._state({}, line.framework)
            records = self._placed("deepspeed", step, dict(line.values), text, when)
            draft = self._draft
            if draft is None:
                return records
        draft.said.add(said)
        draft.values.update(line.values)
        if "skipped" in line.sums:
            skipped = line.sums["skipped"]
            if "skipped" in self._sums and skipped >= self._sums["skipped"]:
                draft.values["skipped"] = skipped - self._sums["skipped"]
            self._sums["skipped"] = skipped
        if (rate := line.rates.get("samples")) is not None:
            self._by_rate(draft, rate)
        return records

    def _by_rate(self, draft: _Draft, rate: float) -> None:
        """Fill in time and samples of a step from its rate and the one that is known."""
        batch = self.facts.global_batch
        if batch:
            draft.values["samples"] = batch
            draft.values["seconds"] = batch / rate
        elif "seconds" in draft.values:
            draft.values["samples"] = rate * draft.values["seconds"]

    # ------------------------------------------------------------ Transformers

    def _without_number(self, line: StepLine, when: Stamp | None) -> list[Record]:
        if self._unnumbered is not None:
            # Two of them with no bar between: the output is buffered, and no bar can be trusted.
            self.bars = False
            self._give_up_number()
        self._lines += 1
        self._state({}, line.framework)
        if self._steps_per_line is not None:
            return self._trainer_step(self._lines * self._steps_per_line, line, when)
        if self.bars:
            self._unnumbered = (line, when)
        else:
            self.unnumbered += 1
        return []

    def _give_up_number(self) -> None:
        self._unnumbered = None
        self.unnumbered += 1

    def _numbered(self, line: StepLine, when: Stamp | None, bar: Bar) -> list[Record]:
        """Take the number of the step that waits from the bar that is drawn again after it."""
        self._state({"last_step": bar.total}, line.framework)
        return self._trainer_step(bar.done, line, when)

    def _trainer_step(self, step: int, line: StepLine, when: Stamp | None) -> list[Record]:
        """Make a step of a numbered line: its sums less those of the line before it."""
        values = dict(line.values)
        steps = step - self._sums_step
        if self._sums and steps > 0:
            tokens, seconds = (
                line.sums[name] - self._sums[name]
                if name in line.sums and name in self._sums
                else 0.0
                for name in ("tokens", "seconds")
            )
            if tokens > 0:
                values["tokens"] = tokens / steps
            if seconds - self._evaluated > 0:
                values["seconds"] = (seconds - self._evaluated) / steps
        elif self._sums_step < 0 and self._steps_per_line == step and "seconds" in line.sums:
            values["seconds"] = line.sums["seconds"] / step
            if "tokens" in line.sums:
                values["tokens"] = line.sums["tokens"] / step
        self._sums, self._sums_step = dict(line.sums), step
        if self._evaluated and "seconds" not in values:
            self._when = None  # an evaluation lies between the stamps
        self._evaluated = 0.0
        if self._steps_per_line is not None and self.course.last < 0 and self.course.base is None:
            self.course.base = step - self._steps_per_line
        self._counted = True
        if self._voice == "deepspeed":
            self._withdraw()
        self._voice = "transformers"
        return self._placed("transformers", step, values, "", when)

    def _summary(self, about: Summary, when: Stamp | None) -> list[Record]:
        """Take the end of a training; its mean of all steps counts if none was told by itself."""
        records = self.rest()
        if about.steps and about.seconds and not self._counted and self._voice == "":
            values = {"seconds": about.seconds / about.steps}
            if about.samples:
                values["samples"] = about.samples
            if self.course.last < 0:
                self.course.base = 0
            self._state({}, about.framework)
            records += self._placed("transformers", about.steps, values, "", when)
        self._sums, self._sums_step, self._lines = {}, -1, 0
        self._counted = False
        return records + self._noted(Note("ended", about.steps), when)

    # ------------------------------------------------------------ Composer

    def _in_block(self, line: StepLine) -> list[Record]:
        records: list[Record] = []
        block = self._block
        if block is not None and (
            line.values.keys() & block.values
            or line.sums.keys() & block.sums
            or line.rates.keys() & block.rates
        ):  # said twice: another block has begun, whose heading is missing
            records = self._release_block()
        if self._block is None:
            self._block = _Block(None)
        self._block.values.update(line.values)
        self._block.sums.update(line.sums)
        self._block.rates.update(line.rates)
        return records

    def _release_block(self) -> list[Record]:
        """Make a step of a block that has ended."""
        block, self._block = self._block, None
        if block is None:
            return []
        done = block.sums.get("steps")
        # Composer counts those that were done before; the heading counts from 1.
        step = block.step if done is None else int(done) + 1
        if step is None:
            if block.rates or block.values:
                self.unnumbered += 1
            return []
        values = dict(block.values)
        samples, rate = block.sums.get("samples"), block.rates.get("samples")
        if samples and done:
            values["samples"] = samples / done
            if rate:
                values["seconds"] = values["samples"] / rate
        elif (often := block.rates.get("steps", 0.0)) >= 0.1:  # of four decimals
            values["seconds"] = 1 / often
        before = self._sums_step
        tokens = block.sums.get("tokens", 0.0) - self._sums.get("tokens", 0.0)
        if "tokens" in self._sums and tokens > 0 and step > before >= 0:
            values["tokens"] = tokens / (step - before)
        self._sums, self._sums_step = dict(block.sums), step
        if not values:
            return []
        self._voice = "composer"
        world = ranks(block.rates.get("tokens"), values.get("tgs"), 1e-4)
        self._state({} if world is None else {"world_size": world}, "composer")
        return self._placed("composer", step, values, "", block.when)

    # ------------------------------------------------------------ beside steps

    def _timer(self, timer: Timer, when: Stamp | None) -> list[Record]:
        if timer.name in ("save-checkpoint", "load-checkpoint"):
            kind = "checkpoint_saved" if timer.name[0] == "s" else "checkpoint_loaded"
            note = self._note
            if note is not None and note.kind == kind and note.seconds is None:
                self._note = dataclasses.replace(note, seconds=timer.high)
                return []
            return self._noted(Note(kind, seconds=timer.high), when)  # type: ignore[arg-type]
        draft = self._draft
        if draft is None or draft.family != "megatron":
            return []
        if timer.name in _SLOWEST:
            draft.phases[_SLOWEST[timer.name]] = timer.high
        elif timer.name in _FASTEST:
            draft.phases["communication"] = draft.phases.get("communication", 0.0) + timer.low
        return []

    def _noted(self, note: Note, when: Stamp | None) -> list[Record]:
        if note.pending:
            self._saving = note
            return []
        records = self._release()
        course = self.course
        self._when = None  # what happened here is no part of a step
        if note.kind == "started":
            if course.over:
                course.begin_again()
            self._expected = course.last < 0
            if note.step is not None and course.last < 0:
                course.base = max(0, note.step - 1)
        elif note.kind == "checkpoint_loaded" and note.step is not None:
            if course.over:
                course.begin_again()
            if course.last < 0:
                course.base = note.step
        elif note.kind in ("failed", "ended"):
            if course.over:
                return records  # each rank says so, and the launcher
            course.over = note.kind
        if note.kind == "checkpoint_saved" and note.step is None and course.last >= 0:
            note = note._replace(step=course.last)
        if not course.once(note.kind, note.step):
            return records
        self._note = self._moment(note, when)
        if not note.kind.startswith("checkpoint") or note.seconds is not None:
            records += self._release()
        return records

    def _moment(self, note: Note, when: Stamp | None) -> Moment:
        return Moment(
            run=self.run, kind=note.kind, rank=self._rank, attempt=self.course.name,
            wall=when.seconds if when is not None and when.zoned else None,
            step=note.step, seconds=note.seconds, detail=note.detail,
        )  # fmt: skip

    def _state(self, facts: Mapping[str, int | str], framework: str) -> None:
        """Add to what is known of the run."""
        added: dict[str, Any] = {name: value for name, value in facts.items() if value}
        if framework and self.facts.framework != framework:
            added["framework"] = framework
        if added:
            self.facts = dataclasses.replace(self.facts, **added)

    def _release(self) -> list[Record]:
        """Return the step and the moment that waited for more to be said of them."""
        records: list[Record] = []
        if (draft := self._draft) is not None:
            self._draft = None
            records.append(self._step(
                draft.step, draft.place.attempt, draft.place.steps, draft.values,
                rank=self._rank, when=draft.when, phases=_exclusive(draft.phases),
            ))  # fmt: skip
        if self._note is not None:
            records.append(self._note)
            self._note = None
        return records

    def _step(
        self,
        step: int,
        attempt: str,
        steps: int,
        values: Mapping[str, float],
        *,
        rank: int | None,
        when: Stamp | None,
        phases: Mapping[str, float] | None = None,
    ) -> Step:
        about: dict[str, Any] = {name: value for name, value in values.items() if name != "skipped"}
        return Step(
            run=self.run, step=step, rank=rank, attempt=attempt, steps=steps,
            wall=when.seconds if when is not None and when.zoned else None,
            skipped=min(steps, int(values.get("skipped", 0))), phases=phases or {}, **about,
        )  # fmt: skip


def _exclusive(phases: Mapping[str, float]) -> dict[str, float]:
    """Return phases that do not overlap: Megatron's forward timer runs while data is fetched."""
    found = dict(phases)
    if "data" in found and "forward" in found:
        found["forward"] = max(0.0, found["forward"] - found["data"])
    return found


def every(parser: LogParser, lines: Iterable[str]) -> list[Record]:
    """Return all that a whole log tells."""
    records = [record for line in lines for record in parser.feed(line)]
    return records + parser.rest()
