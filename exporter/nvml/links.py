"""The wires of a GPU: NVLink, chip-to-chip links, PCIe traffic.

Counters differ by generation; which there are is found out once, by asking. Sums over links are
made here, from the last value of each link: a link that no longer answers keeps its share, so that
a sum does not fall. There is no sum before every active link has answered once (a part of it would
look like a counter that was set back), and none while no link answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from exporter import catalogue as c
from exporter.nvml import readings as r
from exporter.nvml.device import Page, Place, Want, believable, converted, supported_fields
from exporter.nvml.driver import (
    ALL_LINKS,
    GONE,
    OVER,
    UNSUPPORTED,
    Driver,
    FieldAnswer,
    Handle,
    NvmlError,
)
from exporter.nvml.peers import Peers
from exporter.samples import Metric

_MOST_LINKS = 72
_RECEIVE = (c.GPU_NVLINK_RECEIVE_BYTES_TOTAL, c.GPU_NVLINK_LINK_RECEIVE_BYTES_TOTAL)
_TRANSMIT = (c.GPU_NVLINK_TRANSMIT_BYTES_TOTAL, c.GPU_NVLINK_LINK_TRANSMIT_BYTES_TOTAL)


class _Counter:
    """A counter that each link has: their sum, and if asked for a series of each.

    `active` are the links without which there is no sum.
    """

    def __init__(
        self,
        total: Place | None,
        of_links: Sequence[Place],
        unit: r.Unit,
        links: int,
        active: frozenset[int],
    ) -> None:
        self._total = total
        self._of_links = of_links
        self._unit = unit
        self._active = active
        self._last: list[float | None] = [None] * links
        self._late: float = 0
        self._begun = False

    def take(self, raws: list[float | None]) -> None:
        """Note what the links have answered now, in the driver's unit."""
        for place, raw in zip(self._of_links, raws, strict=False):
            place.set(raw, self._unit)
        if self._total is None:
            return
        now = believable(raws, self._unit)
        if None in now or None in self._last:
            self._take_some(now)
        else:
            self._last = now
        known = {link for link in self._active if self._last[link] is not None}
        if known == self._active and now.count(None) < len(now):
            self._begun = True
            total = sum(filter(None, self._last)) - self._late
            self._total.put(total * self._unit.times)
        else:
            self._total.put(None)

    def _take_some(self, now: list[float | None]) -> None:
        for link, raw in enumerate(now):
            if raw is not None:
                if self._last[link] is None and self._begun:
                    self._late += raw  # what it counted before was never in the sum
                self._last[link] = raw


class Links:
    """The NVLinks of one GPU. `each` asks for series of each link beside the sums."""

    def __init__(self, driver: Driver, handle: Handle, page: Page, *, each: bool) -> None:
        self._driver = driver
        self._handle = handle
        self._page = page
        self._each = each
        self._states = self._active_calls()
        self._error_calls: list[tuple[_Counter, list[Callable[[], Any] | None]]] = []
        self.count = len(self._states)
        self._active = frozenset(n for n, call in enumerate(self._states) if self._asked(call) == 1)
        self._peers = Peers(driver, handle, page)
        self.counts_bytes = False

    def wants(self) -> Iterator[tuple[int, Want]]:
        """Yield the fields to ask for, each with its beat."""
        if not self.count:
            return
        self._page.put(c.GPU_NVLINK_LINKS, (), self.count)
        yield from self._bytes()
        yield from self._errors()
        if self._each and self._any_link_has(r.LINK_RATE[0]):
            number, unit = r.LINK_RATE
            for link in range(self.count):
                place = self._page.place(c.GPU_NVLINK_LINK_RATE_BYTES_PER_SECOND, (str(link),))
                yield r.SLOW, place.want(number, unit, link)

    def read(self) -> None:
        """Ask for the state of each link, and count errors where they are no fields."""
        up: list[int] = []
        known = False
        (gives,) = r.LINK_STATE.gives
        for link, call in enumerate(self._states):
            state = self._asked(call)
            known = known or state is not None
            if state == 1:
                up.append(link)
            if self._each:
                self._page.set(gives.metric, (str(link),), state, gives.unit)
        # A link that answers an error while others answer is not up; if none answers, who knows.
        self._page.set(c.GPU_NVLINK_LINKS_UP, (), len(up) if known else None, r.FEW)
        if known:
            self._peers.tell(up)
        for counter, calls in self._error_calls:
            counter.take([None if call is None else self._asked(call) for call in calls])

    def _active_calls(self) -> list[Callable[[], Any]]:
        """Return a call for the state of each link that the GPU has."""
        count = self._told_count()
        calls = []
        row = r.LINK_STATE
        for link in range(_MOST_LINKS if count is None else count):
            try:
                call = self._driver.bind(row.function, row.answer, self._handle, link)
                exists = call() in {0, 1}
            except NvmlError as error:
                if error.code in OVER | GONE:
                    raise
                # Not told how many there are: the first that does not exist ends the search.
                if count is None or error.code in UNSUPPORTED - {3}:
                    break
                exists = True
            if count is None and not exists:
                break
            calls.append(call)
        return calls

    def _told_count(self) -> int | None:
        if not self._supports([(r.LINK_COUNT, 0)]):
            return None
        (answer,) = self._driver.fields(self._handle, [(r.LINK_COUNT, 0)])()
        return None if answer.code or answer.value > _MOST_LINKS else int(answer.value)

    def _bytes(self) -> Iterator[tuple[int, Want]]:
        for receive, transmit, unit in r.LINK_BYTES:
            sides = ((receive, _RECEIVE), (transmit, _TRANSMIT))
            together = self._supports([(receive, ALL_LINKS), (transmit, ALL_LINKS)])
            apart = self._any_link_has(receive) and self._any_link_has(transmit)
            if not together and not apart:
                continue
            self.counts_bytes = True
            for number, (total, of_link) in sides:
                if together:
                    yield r.FAST, self._page.place(total).want(number, unit, ALL_LINKS)
                if apart and (self._each or not together):
                    counter = self._counter(None if together else total, of_link, (), unit)
                    yield r.FAST, self._want(number, counter)
            return

    def _errors(self) -> Iterator[tuple[int, Want]]:
        for generation in r.LINK_ERRORS:
            some = [one for one in generation if self._any_link_has(one.number)]
            for number, cause in some:
                if not self._each and self._supports([(number, ALL_LINKS)]):
                    place = self._page.place(c.GPU_NVLINK_ERRORS_TOTAL, (cause,))
                    yield r.SLOW, place.want(number, r.TIMES, ALL_LINKS)
                else:
                    yield r.SLOW, self._want(number, self._errors_of(cause))
            if some:
                return
        for number, cause in r.LINK_ERROR_CALLS:
            calls = [self._error_call(link, number) for link in range(self.count)]
            if any(calls):
                self._error_calls.append((self._errors_of(cause), calls))

    def _error_call(self, link: int, number: int) -> Callable[[], Any] | None:
        """Return a call for a counter of errors, if the link has it."""
        try:
            call = self._driver.bind(
                "nvmlDeviceGetNvLinkErrorCounter", "u64", self._handle, link, number
            )
            call()
        except NvmlError as error:
            if error.code in OVER | GONE:
                raise
            return None
        return call

    def _any_link_has(self, number: int) -> bool:
        """Tell whether a link answers this; one that is down when we start may not."""
        numbers = [(number, link) for link in range(self.count)]
        return bool(supported_fields(self._driver, self._handle, numbers))

    def _supports(self, numbers: Sequence[tuple[int, int]]) -> bool:
        return len(supported_fields(self._driver, self._handle, numbers)) == len(numbers)

    def _want(self, number: int, counter: _Counter) -> Want:
        """Return a field that each link has."""

        def take(answers: Sequence[FieldAnswer]) -> None:
            counter.take([None if code else raw for code, raw, _ in answers])

        return Want(number, tuple(range(self.count)), take)

    def _errors_of(self, cause: str) -> _Counter:
        return self._counter(
            c.GPU_NVLINK_ERRORS_TOTAL, c.GPU_NVLINK_LINK_ERRORS_TOTAL, (cause,), r.TIMES
        )

    def _counter(
        self, total: Metric | None, of_link: Metric, labels: tuple[str, ...], unit: r.Unit
    ) -> _Counter:
        page = self._page
        each = range(self.count if self._each else 0)
        return _Counter(
            None if total is None else page.place(total, labels),
            [page.place(of_link, (str(link), *labels)) for link in each],
            unit, self.count, self._active,
        )  # fmt: skip

    def _asked(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except NvmlError as error:
            if error.code in OVER | GONE:
                raise
            return None


class ChipToChip:
    """The links between GPU and CPU of a superchip."""

    def __init__(self, driver: Driver, handle: Handle, page: Page) -> None:
        self._page = page
        self._up: dict[int, float] = {}
        self._bandwidth: dict[int, float] = {}
        self._errors: dict[str, dict[int, float]] = {}
        self.count = 0
        if supported_fields(driver, handle, [(170, 0)]):
            (answer,) = driver.fields(handle, [(170, 0)])()
            self.count = 0 if answer.code else min(int(answer.value), _MOST_LINKS)
        asked = (r.C2C_STATUS, r.C2C_BANDWIDTH[0], *(number for number, _ in r.C2C_ERRORS))
        pairs = [(number, link) for number in asked for link in range(self.count)]
        self._supported = {number for number, _ in supported_fields(driver, handle, pairs)}

    def wants(self) -> Iterator[tuple[int, Want]]:
        """Yield the fields to ask for, each with its beat."""
        for link in range(self.count):
            if r.C2C_STATUS in self._supported:
                yield r.SLOW, self._noted(r.C2C_STATUS, link, self._up, r.FLAG)
            if r.C2C_BANDWIDTH[0] in self._supported:
                yield (
                    r.SLOW,
                    self._noted(r.C2C_BANDWIDTH[0], link, self._bandwidth, r.C2C_BANDWIDTH[1]),
                )
            for number, cause in r.C2C_ERRORS:
                if number in self._supported:
                    kept = self._errors.setdefault(cause, {})
                    yield r.SLOW, self._noted(number, link, kept, r.TIMES)

    def finish(self) -> None:
        """Make the sums of what has been read."""
        up = sum(self._up.values()) if self._up else None
        self._page.set(c.GPU_C2C_LINKS_UP, (), up, r.FEW)
        active = [n for n in range(self.count) if self._up.get(n, 1)]
        known = active and self._bandwidth.keys() >= set(active)
        bandwidth = sum(self._bandwidth[n] for n in active) if known else None
        self._page.set(c.GPU_C2C_BANDWIDTH_BYTES_PER_SECOND, (), bandwidth, r.TIMES)
        for cause, by_link in self._errors.items():
            # A part of the sum would look like a counter that was set back.
            whole = len(by_link) == self.count
            total = sum(by_link.values()) if whole else None
            self._page.set(c.GPU_C2C_ERRORS_TOTAL, (cause,), total, r.TIMES)

    def _noted(self, number: int, link: int, kept: dict[int, float], unit: r.Unit) -> Want:
        def take(answers: Sequence[FieldAnswer]) -> None:
            ((code, raw, _),) = answers
            value = None if code else converted(raw, unit)
            if value is not None:
                kept[link] = value
            else:
                kept.pop(link, None)

        return Want(number, (link,), take)


class Pcie:
    """PCIe traffic: counters of bytes where there are any, else samples of the rate.

    `gpm` tells that the traffic is measured there, which spares the calls that block.
    """

    def __init__(self, driver: Driver, handle: Handle, page: Page, *, gpm: bool) -> None:
        self._page = page
        numbers = [(number, 0) for number, _ in r.PCIE_BYTES]
        self._fields = len(supported_fields(driver, handle, numbers)) == len(numbers) and all(
            answer.wide for answer in driver.fields(handle, numbers)()
        )
        self.counts_bytes = self._fields
        self._calls: list[tuple[Metric, Callable[[], Any]]] = []
        if not self._fields and not gpm:
            for number, metric in r.PCIE_RATES:
                try:
                    call = driver.bind("nvmlDeviceGetPcieThroughput", "u32", handle, number)
                    call()
                except NvmlError as error:
                    if error.code in OVER | GONE:
                        raise
                    continue
                self._calls.append((metric, call))

    def wants(self) -> Iterator[tuple[int, Want]]:
        """Yield the fields to ask for, each with its beat."""
        if self._fields:
            for number, metric in r.PCIE_BYTES:
                yield r.FAST, self._page.place(metric).want(number, r.BYTES_COUNTED)

    def read(self) -> None:
        """Sample the rates, if that is all there is. Blocks for 20 ms for each direction."""
        for metric, call in self._calls:
            try:
                raw = call()
            except NvmlError as error:
                if error.code in OVER | GONE:
                    raise
                raw = None
            self._page.set(metric, (), raw, r.KILOBYTES_PER_SECOND)
