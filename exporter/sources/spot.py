"""What the cloud announces for this machine: interruptions, and work on its host.

The metadata service is asked here and nowhere else, never by a scrape. Each question has its own
beat; one that fails is asked again after at most five seconds, counts by what went wrong, and takes
nothing away that was announced before. A machine that loses its metadata service keeps everything
else: this source does not fail, it has faults.

    spot_interruption_notice{provider="aws"} 1
    spot_interruption_deadline_timestamp_seconds{provider="aws",action="terminate"} 1796000120
    spot_polls_total{provider="aws",result="none"} 1312
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any, get_args

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.clouds import Cloud, Question, Refusal, Told
from exporter.clouds.book import Book
from exporter.clouds.question import Result
from exporter.notices import Instance, Notice, NoticeBoard, Outlook
from exporter.samples import Fault, Item, Metric, Remembered, Sample, SourceError

_LONGEST_PAUSE = 5.0
_FRESH = 15.0
"""Seconds for which "nothing is announced" is believed."""
_IDENTIFY = 30.0
_RESULTS: tuple[Result, ...] = get_args(Result)


class SpotSource:
    """Asks one cloud, and puts what it announces on `notices`.

    `boot` names this run of the machine: what was announced for another one is over. `memories`,
    `recall` and `keep_every` are those of `DerivedSource`.
    """

    name = "spot"
    group = c.SPOT

    def __init__(
        self,
        cloud: Cloud,
        notices: NoticeBoard,
        clock: Clock,
        *,
        boot: str = "",
        memories: MutableMapping[str, Any] | None = None,
        recall: Callable[[], None] = lambda: None,
        keep_every: float = math.inf,
    ) -> None:
        self._cloud = cloud
        self._notices = notices
        self._clock = clock
        self._boot = boot
        self._memories = {} if memories is None else memories
        self._recall = recall
        self._keep_every = keep_every
        self._book = Book()
        self._instance: Instance | None = None
        self._beats: dict[str, _Beat] = {}
        self._about = _Beat()
        self._counts = dict.fromkeys(_RESULTS, 0)
        self._checked: float | None = None
        self._began = False
        self._kept = -math.inf

    def read(self) -> Iterable[Item]:
        """Ask what is due, and tell what holds."""
        items: list[Item] = [] if self._began else list(self._take_over())
        self._identify()
        before = self._book.notices, self._book.interruptions
        self._ask_all()
        now = self._clock.monotonic()
        changed = before != (self._book.notices, self._book.interruptions)
        if changed or now - self._kept >= self._keep_every:
            self._keep(urgent=changed)
        self._notices.put(self._outlook())
        return [*items, *self._samples(now), *self._faults()]

    def close(self) -> None:
        """Leave what is known to a successor."""
        if self._began:
            self._keep(final=True)

    # ------------------------------------------------------------ asking

    def _identify(self) -> None:
        """Ask what this machine is, until that is known."""
        if self._instance is None and self._about.due <= self._clock.monotonic():
            try:
                self._instance = self._cloud.identify()
            except Refusal as error:
                self._refused(self._about, error, 1.0, longest=_IDENTIFY)
            else:
                self._about.refusal = None

    def _ask_all(self) -> None:
        for question in self._questions():
            beat = self._beats.setdefault(question.name, _Beat())
            now = self._clock.monotonic()
            if beat.due > now:
                continue
            try:
                told = question.ask()
            except Refusal as error:
                if error.told is not None:
                    self._answered(beat, question, error.told)
                self._refused(beat, error, question.every)
                if error.reason == "timeout":
                    return  # the others would wait as long, one after the other
            else:
                self._answered(beat, question, told)
                beat.due = now + question.every

    def _questions(self) -> Sequence[Question]:
        """Return what to ask; of a machine that is not known yet, all there is."""
        return self._cloud.questions(self._instance or Instance(self._cloud.name))

    def _answered(self, beat: _Beat, question: Question, told: Sequence[Told]) -> None:
        wall = self._clock.time()
        self._counts["notice" if told else "none"] += 1
        beat.failures, beat.refusal = 0, None
        beat.success = self._clock.monotonic()
        self._checked = wall
        self._book.take(question.name, told, wall)

    def _refused(
        self, beat: _Beat, error: Refusal, every: float, longest: float = _LONGEST_PAUSE
    ) -> None:
        self._counts[error.result] += 1
        beat.failures += 1
        beat.refusal = error
        pause = max(every, 0.5) * 2.0 ** min(beat.failures - 1, 8)
        beat.due = self._clock.monotonic() + max(every, min(pause, longest))

    # ------------------------------------------------------------ telling

    def _outlook(self) -> Outlook:
        instance = self._instance or Instance(self._cloud.name)
        return Outlook(
            instance, self._book.notices, self._cloud.lead is not None, self._checked,
            self._cloud.lead,
        )  # fmt: skip

    def _samples(self, now: float) -> Iterator[Sample]:
        provider = self._cloud.name
        if self._instance is not None:
            yield c.SPOT_INSTANCE_INFO(1, *self._instance[:4])
        yield c.SPOT_NOTICE_SUPPORTED(int(self._cloud.lead is not None), provider)
        for result, number in self._counts.items():
            yield c.SPOT_POLLS_TOTAL(number, provider, result)
        if self._checked is not None:
            yield c.SPOT_LAST_SUCCESS_TIMESTAMP_SECONDS(self._checked, provider)
        if self._cloud.lead is not None:
            yield c.SPOT_INTERRUPTIONS_TOTAL(self._book.interruptions, provider)
        yield from self._announced(provider, now)

    def _announced(self, provider: str, now: float) -> Iterator[Sample]:
        known = self._known(now)
        by_kind: dict[str, list[Notice]] = {}
        for notice in self._book.notices:
            by_kind.setdefault(notice.kind, []).append(notice)
        for kind, metric in (
            ("interruption", c.SPOT_INTERRUPTION_NOTICE),
            ("rebalance", c.SPOT_REBALANCE_NOTICE),
            ("maintenance", c.SPOT_MAINTENANCE_NOTICE),
        ):
            if kind in by_kind or kind in known:
                yield metric(int(kind in by_kind), provider)
        yield from _deadlines(
            c.SPOT_INTERRUPTION_DEADLINE_TIMESTAMP_SECONDS, provider, by_kind.get("interruption")
        )
        yield from _deadlines(
            c.SPOT_MAINTENANCE_DEADLINE_TIMESTAMP_SECONDS, provider, by_kind.get("maintenance")
        )
        for first in by_kind.get("interruption", ())[:1]:
            if first.deadline is not None:
                yield c.SPOT_NOTICE_LEAD_SECONDS(max(0.0, first.deadline - first.seen), provider)

    def _known(self, now: float) -> set[str]:
        """Return of which kinds each question about them was answered just now."""
        known: set[str] = set()
        unknown: set[str] = set()
        for question in self._questions():
            beat = self._beats.get(question.name, _NEVER)
            fresh = now - beat.success <= max(_FRESH, 2 * question.every)
            (known if fresh else unknown).update(question.kinds)
        return known - unknown

    def _faults(self) -> Iterator[Fault]:
        for name, beat in (("instance", self._about), *self._beats.items()):
            if beat.refusal is not None:
                yield Fault(name, beat.refusal.reason, f"{beat.refusal.result}: {beat.refusal}")

    # ------------------------------------------------------------ remembering

    def _take_over(self) -> Iterator[Fault]:
        self._began = True
        try:
            self._recall()
            former = self._memories.get(self.name)
            if isinstance(former, Remembered):
                self._restore(former.plain)
        except (OSError, SourceError, ValueError, TypeError, LookupError) as error:
            yield Fault("memory", "malformed", f"{type(error).__name__}: {error}")

    def _restore(self, plain: Any) -> None:
        if plain["provider"] != self._cloud.name:
            return
        same = self._boot != "" and plain["boot"] == self._boot
        counts = {name: int(plain["polls"].get(name, 0)) for name in _RESULTS}
        self._book.restore(plain["book"], same_boot=same)
        self._counts = {name: max(0, number) for name, number in counts.items()}

    def _keep(self, *, final: bool = False, urgent: bool = False) -> None:
        now = self._clock.monotonic()
        plain = {
            "provider": self._cloud.name, "boot": self._boot, "polls": dict(self._counts),
            "book": self._book.memory(),
        }  # fmt: skip
        self._memories[self.name] = Remembered(plain, now, final, urgent)
        self._kept = now


class _Beat:
    """When a question is due, and how it has gone."""

    def __init__(self) -> None:
        self.due = -math.inf
        self.success = -math.inf
        self.failures = 0
        self.refusal: Refusal | None = None


_NEVER = _Beat()


def _deadlines(metric: Metric, provider: str, notices: Sequence[Notice] | None) -> Iterator[Sample]:
    """Yield the earliest deadline by action."""
    earliest: dict[str, float] = {}
    for notice in notices or ():
        if notice.deadline is not None:
            earliest.setdefault(notice.action, notice.deadline)
    for action, deadline in earliest.items():
        yield metric(deadline, provider, action)
