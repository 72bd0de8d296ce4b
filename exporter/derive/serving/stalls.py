"""Servers that hang, gauges that lie, and requests whose clients went away.

A server is stalled while requests wait and nothing of it moves for a minute: no token in or out, no
forward pass (sglang#24140: nothing runs while the queue is high). Little's law ties three things
that an engine tells apart: requests in work, their rate, and their time in work; a quotient far
from 1 means a gauge that is stale (sglang#4244) or observations that are lost.

vLLM tells nowhere that a client went away (vllm#31503, #55634): such requests have a first token
and no end. Their number is

    first tokens - ends - in work

Of those in work nobody knows how many have had their first token, so all are taken off, and those
that were thrown out of the batch as well: the number is never too high, and exact when the server
rests. It counts from the first look on, and what was in work then is never counted. Tokens that
were generated for nobody can only be told at rest.

    llm_stalled{model_name="...",engine="vllm",server="a"} 0
    llm_little_quotient{...,window="5m"} 1.02
    llm_aborted_requests_total{...} 5
    llm_wasted_tokens_total{...} 93
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from exporter import catalogue as c
from exporter.derive.memory import HOUR
from exporter.derive.serving.book import WINDOWS, Book, Entity
from exporter.samples import Histogram, Metric, Sample, View

PATIENCE = "1m"
"""The window without progress that makes a stall."""

LEAST_SEEN = 50.0
"""Seconds of that window that must have been seen: its readings are five or ten seconds apart."""

SETTLED = 10.0
"""Seconds for which a number of aborted requests must hold: the parts of a page may be one
iteration apart, and then a request that has just ended looks aborted."""

LEAST_REQUESTS = 20
LEAST_TURNOVERS = 10.0
"""Little's law is about averages: a window needs so many requests, and must be so many times as
long as one takes."""

HIDING = frozenset({"vllm"})
"""Engines that do not tell of requests whose client went away."""

_SIGNS: tuple[tuple[Metric, Mapping[str, str]], ...] = (
    (c.LLM_TOKENS_TOTAL, {"direction": "output"}),
    (c.LLM_TOKENS_TOTAL, {"direction": "input"}),
    (c.LLM_PREFILL_TOKENS_TOTAL, {}),
    (c.LLM_ENGINE_STEPS_TOTAL, {}),
)
"""What moves while an engine works."""

_COUNTED: tuple[Metric, ...] = (
    c.LLM_TTFT_SECONDS,
    c.LLM_E2E_SECONDS,
    c.LLM_ACTIVE_REQUESTS,
    c.LLM_WAITING_REQUESTS,
    c.LLM_PREEMPTIONS_TOTAL,
    c.LLM_TOKENS_TOTAL,
    c.LLM_FINISHED_OUTPUT_TOKENS_TOTAL,
)

OUTPUTS = (
    c.LLM_STALLED,
    c.LLM_LITTLE_QUOTIENT,
    c.LLM_ABORTED_REQUESTS_TOTAL,
    c.LLM_WASTED_TOKENS_TOTAL,
)


class Stalls:
    """The part that says which servers hang, and what engines do not say of their requests."""

    def __init__(self, windows: Sequence[str] = ("5m", "1h")) -> None:
        self._windows = tuple(windows)
        self._queued: dict[Entity, float] = {}
        self._stalled: frozenset[Entity] = frozenset()
        self._hidden: dict[Entity, _Hidden] = {}

    def stalled(self) -> frozenset[Entity]:
        """Return what was stalled at the last look."""
        return self._stalled

    def __call__(self, book: Book, view: View, now: float) -> Iterator[Sample]:
        """Yield what is so at `now`, in monotonic seconds."""
        entities = book.entities()
        waits = {entity: self._stands(book, entity, now) for entity in entities}
        self._queued = {entity: at for entity, at in self._queued.items() if entity in waits}
        self._stalled = frozenset(entity for entity, stands in waits.items() if stands)
        for entity, stands in waits.items():
            if stands is not None:
                yield c.LLM_STALLED(float(stands), *entity)
            for window in self._windows:
                quotient = _little(book, entity, window)
                if quotient is not None:
                    yield c.LLM_LITTLE_QUOTIENT(quotient, *entity, window)
        yield from self._lost([e for e in entities if e.engine in HIDING], view, now)

    def _stands(self, book: Book, entity: Entity, now: float) -> bool | None:
        """Tell whether requests have waited for a minute without progress; None if unknown."""
        waiting = book.latest(c.LLM_WAITING_REQUESTS, entity)
        rises = [book.increase(metric, entity, PATIENCE, **labels) for metric, labels in _SIGNS]
        if waiting is None or all(rise is None for rise in rises):
            self._queued.pop(entity, None)
            return None
        if waiting <= 0:
            self._queued[entity] = now
        queued = now - self._queued.setdefault(entity, now)
        seen = book.seconds(entity.server, PATIENCE)
        return queued >= WINDOWS[PATIENCE] and seen >= LEAST_SEEN and not any(rises)

    def _lost(self, entities: Sequence[Entity], view: View, now: float) -> Iterator[Sample]:
        found = _pages(view) if entities else {}
        for entity in entities:
            page = found.get(entity, {})
            hidden = self._hidden.setdefault(entity, _Hidden())
            hidden.look(page, now)
            if hidden.aborted is not None:
                yield c.LLM_ABORTED_REQUESTS_TOTAL(hidden.aborted, *entity)
            if hidden.wasted is not None:
                yield c.LLM_WASTED_TOKENS_TOTAL(hidden.wasted, *entity)
        gone = [e for e, hidden in self._hidden.items() if now - hidden.seen > HOUR]
        for entity in gone:
            del self._hidden[entity]


_Page = dict[str, float]


class _Hidden:
    """What one engine lost: requests and tokens, counted from the first look on."""

    def __init__(self) -> None:
        self.seen = 0.0
        self.aborted: float | None = None
        self.wasted: float | None = None
        self._firsts = 0.0
        self._requests = _Rising()
        self._tokens = _Rising()

    def look(self, page: _Page, now: float) -> None:
        """Take one page of the engine; what it lacks is not counted from it."""
        self.seen = now
        firsts, ends, active = (page.get(key) for key in ("firsts", "ends", "active"))
        if firsts is None or ends is None or active is None:
            return
        if firsts < self._firsts:
            self._requests.restart()
            self._tokens.restart()
        self._firsts = firsts
        waiting = page.get("waiting", 0.0)
        # Those that wait have had a first token only if they were thrown out of the batch.
        began = active + (waiting if page.get("preempted", 1.0) else 0.0)
        self.aborted = self._requests.take(now, firsts - ends - began, firsts - ends)
        generated, finished = page.get("generated"), page.get("finished")
        if generated is not None and finished is not None:
            lost = generated - finished
            sure = lost if active == waiting == 0 else None
            self.wasted = self._tokens.take(now, sure, lost)


class _Rising:
    """A counter that never falls, of a number that is known to be at least so much.

    Nothing is counted of what the number may have been at the first look. A number counts once it
    has held for `SETTLED` seconds.
    """

    def __init__(self) -> None:
        self._base: float | None = None
        self._before = 0.0
        self._risen = 0.0
        self._since: float | None = None
        self._low = 0.0

    def restart(self) -> None:
        """Begin anew: the server was restarted, and all it tells came after the last look."""
        self._before += self._risen
        self._base, self._risen, self._since = 0.0, 0.0, None

    def take(self, now: float, least: float | None, most: float) -> float:
        """Take what the number is at least (None: not known now) and at most; return the count."""
        if self._base is None:
            self._base = max(0.0, most)
        if least is None:
            self._since = None
        elif self._since is None:
            self._since, self._low = now, least
        else:
            self._low = min(self._low, least)
            if now - self._since >= SETTLED:
                self._risen = max(self._risen, self._low - self._base)
                self._since, self._low = now, least
        return self._before + self._risen


def _pages(view: View) -> dict[Entity, _Page]:
    """Return, for each entity, the numbers that lost requests are told by, of one reading each."""
    found: dict[Entity, _Page] = {}
    for source in view.sources:
        batch = source.batch
        for metric in _COUNTED:
            for i in batch.shape.families.get(metric, ()):
                labels = dict(zip(metric.labels, batch.shape.labels[i], strict=True))
                key = _key(metric, labels)
                if key:
                    value = batch.values[i]
                    number = value.counts[-1] if isinstance(value, Histogram) else value
                    entity = Entity(*(labels[name] for name in Entity._fields))
                    found.setdefault(entity, {})[key] = number
    return found


def _key(metric: Metric, labels: Mapping[str, str]) -> str:
    if metric is c.LLM_TOKENS_TOTAL and labels["direction"] != "output":
        return ""
    return _KEYS[metric]


_KEYS: Mapping[Metric, str] = dict(
    zip(
        _COUNTED,
        ("firsts", "ends", "active", "waiting", "preempted", "generated", "finished"),
        strict=True,
    )
)


def _little(book: Book, entity: Entity, window: str) -> float | None:
    """Return the mean of the requests in work over what rate and time in work make of it."""
    seconds = book.seconds(entity.server, window)
    active = book.gauge(c.LLM_ACTIVE_REQUESTS, entity, window)
    ended = book.histogram(c.LLM_E2E_SECONDS, entity, window)
    if WINDOWS[window] < 300 or active is None or ended is None or ended.n < LEAST_REQUESTS:
        return None
    worked = _worked(book, entity, window, ended.total)
    if worked is None or worked <= 0 or seconds < LEAST_TURNOVERS * worked / ended.n:
        return None
    return active.mean * seconds / worked


def _worked(book: Book, entity: Entity, window: str, total: float) -> float | None:
    """Return the time that ended requests were in work, waiting left out, summed over them."""
    queued = book.histogram(c.LLM_QUEUE_SECONDS, entity, window)
    waiting = book.gauge(c.LLM_WAITING_REQUESTS, entity, window)
    if queued is not None:
        return total - queued.total
    return total if waiting is not None and waiting.maximum == 0 else None
