"""Dollars of the node's GPUs, live: busy, idle, of nobody; by tenant, by run; and their energy.

All rests on the accounts of GPUs: time between two readings, times the price that held. What is
told is told of the time in which the daemon ran; what was before, or between two daemons, is in
nobody's books here, and `cost_gap_seconds` says how long that was.

    cost_gpu_hour_dollars{gpu="0",uuid="GPU-5a1c..."} 2.1
    cost_price_info{gpu="0",uuid="GPU-5a1c...",source="config",pricing="reserved",...} 1
    cost_dollars_total{gpu="0",uuid="GPU-5a1c...",state="busy"} 31.5
    cost_idle_dollars_per_hour 4.2
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from exporter import catalogue as c
from exporter.derive.derivation import Derivation, readings
from exporter.derive.memory import Memory
from exporter.derive.money import activity, energy, jobs, owners, runs, tenants
from exporter.derive.money.accounts import (
    PATIENCE,
    STATES,
    Account,
    Booked,
    amount,
)
from exporter.derive.money.activity import activities
from exporter.derive.money.energy import Energy, Meters
from exporter.derive.money.jobs import Jobs, jobs_of
from exporter.derive.money.owners import owners_of
from exporter.derive.money.pricing import Instance, Offer, Pricing, instance_of
from exporter.derive.money.runs import Runs
from exporter.derive.money.tenants import Tenants
from exporter.samples import Malformed, Metric, Sample, View

NAME = "cost"

_PRESENT = (
    c.GPU_UP,
    c.GPU_SM_ACTIVE_SECONDS_TOTAL,
    c.GPU_BUSY_SECONDS_TOTAL,
    c.GPU_UTILIZATION_RATIO,
    c.GPU_MEMORY_USED_BYTES,
)
"""What is told of a GPU that is there, by whichever reader; one that is lost is there too."""

INPUTS: tuple[Metric, ...] = (
    c.GPU_INFO,
    *_PRESENT,
    *activity.INPUTS,
    *owners.INPUTS,
    *jobs.INPUTS,
    c.SPOT_INSTANCE_INFO,
    c.COST_OPENCOST_GPU_HOUR_DOLLARS,
    *energy.INPUTS,
    *runs.INPUTS,
)
OUTPUTS: tuple[Metric, ...] = (
    c.COST_GPU_HOUR_DOLLARS,
    c.COST_PRICE_INFO,
    c.COST_PRICE_AGE_SECONDS,
    c.COST_PRICE_TABLE_AGE_SECONDS,
    c.COST_DOLLARS_TOTAL,
    c.COST_COUNTED_SECONDS_TOTAL,
    c.COST_GAP_SECONDS,
    c.COST_DOLLARS_PER_HOUR,
    c.COST_IDLE_DOLLARS_PER_HOUR,
    *energy.OUTPUTS,
    *tenants.OUTPUTS,
    *jobs.OUTPUTS,
    *runs.OUTPUTS,
)

LASTS = 3600.0
"""Seconds for which a price that was read, and an instance that was told, hold on without news; a
GPU that is not seen any more is paid for as long: it may be stuck, and is not given back."""

_WINDOW = 300.0
_LEAST = 60.0
_GRAIN = 5.0
_DAMAGED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def cost(
    pricing: Pricing,
    wall: Callable[[float], float],
    life: str,
    *,
    energy: Energy = Energy(),  # noqa: B008 - it does not change
    quotas: Mapping[str, float] | None = None,
    newest: float | None = None,
    longest_gap: float = PATIENCE,
) -> Derivation:
    """Return the derivation.

    `wall` turns a monotonic moment into Unix seconds. `life` names this process: a memory of the
    same goes on without a gap. `quotas` are GPUs by namespace, `newest` is when the newest row of
    the table of list prices is of; readings of activity that lie more than `longest_gap` seconds
    apart (`PATIENCE` at least) may leave work out.
    """
    whole = _Cost(
        pricing,
        wall,
        life,
        meters=Meters(energy),
        shares=Tenants(quotas or {}),
        newest=newest,
        longest_gap=max(PATIENCE, longest_gap),
    )
    return Derivation(
        name=NAME,
        group=c.COST,
        inputs=INPUTS,
        outputs=OUTPUTS,
        function=whole,
        memory=whole.memory,
        restore=whole.restore,
    )


class _Waste:
    """What idle time costs an hour, over the last five minutes."""

    def __init__(self) -> None:
        self._total = 0.0
        self._points: deque[tuple[float, float]] = deque()

    def add(self, now: float, dollars: float) -> None:
        self._total += dollars
        points = self._points
        if len(points) > 1 and now - points[-2][0] < _GRAIN:
            points.pop()
        points.append((now, self._total))
        while len(points) > 2 and points[1][0] <= now - _WINDOW:
            points.popleft()

    def rate(self, now: float) -> float | None:
        if not self._points or now - self._points[-1][0] > PATIENCE:
            return None
        (begin, before), (end, after) = self._points[0], self._points[-1]
        return None if end - begin < _LEAST else (after - before) / (end - begin) * 3600.0


class _Cost:
    """Keeps the accounts of all GPUs, by UUID."""

    def __init__(
        self,
        pricing: Pricing,
        wall: Callable[[float], float],
        life: str,
        *,
        meters: Meters,
        shares: Tenants,
        newest: float | None,
        longest_gap: float,
    ) -> None:
        self._pricing = pricing
        self._wall = wall
        self._life = life
        self._meters = meters
        self._tenants = shares
        self._newest = newest
        self._longest_gap = longest_gap
        self._jobs = Jobs()
        self._runs = Runs()
        self._waste = _Waste()
        self._accounts: dict[str, Account] = {}
        self._offer: Offer | None = None
        self._instance = Instance()
        self._instance_seen = -math.inf
        self._round: float | None = None
        self._counted = 0.0
        self._gap: float | None = None

    def __call__(self, view: View, _memory: Memory, now: float) -> list[Sample]:
        offset = self._wall(now) - now
        self._look(view, now, offset)
        paid = self._round is not None and any(
            self._dollars(one, self._round + offset) is not None for one in self._accounts.values()
        )
        self._find(view, now)
        told = activities(view, now)
        holders, working = owners_of(view), jobs_of(view)
        waste: list[float] = []
        for uuid, account in self._accounts.items():
            booked = account.book(
                now, told.get(uuid), self._pricing.schedule, offset, self._longest_gap
            )
            self._share(account, booked, now)
            if booked.waste is not None:
                waste.append(booked.waste)
            price = self._pricing.price(account.name, self._instance, self._offer)
            account.price = price
            account.contract = (
                self._pricing.contract(self._instance) if price is None else price.pricing
            )
            account.owners = None if holders is None else holders.get(uuid)
            if account.owners is None and working.get(uuid) == ():
                account.owners = ()  # a scheduler that gives whole GPUs says that nobody has it
            account.shared = account.shared or account.owners is not None
            account.counts = account.counts or self._dollars(account, now + offset) is not None
        if waste:
            self._waste.add(now, math.fsum(waste))
        if self._round is not None and paid:
            self._counted += now - self._round
        self._round = now
        self._meters.look(readings(view, c.GPU_ENERGY_JOULES_TOTAL, now))
        self._meters.forget((one.gpu, one.uuid) for one in self._accounts.values())
        self._tenants.begin(((one.owners, one.contract) for one in self._accounts.values()), now)
        self._jobs.begin(
            working, ((uuid, one.contract) for uuid, one in self._accounts.items()), now
        )
        self._runs.look(view, now)
        return list(self._samples(now, now + offset))

    def _share(self, account: Account, booked: Booked, now: float) -> None:
        if not booked.nanoseconds:
            return
        self._tenants.book(account.owners, account.contract, booked, now)
        self._jobs.book(account.uuid, account.contract, booked, now)
        self._runs.pay((account.gpu, account.uuid), booked)

    # ------------------------------------------------------------ what is on the board

    def _look(self, view: View, now: float, offset: float) -> None:
        """Learn what OpenCost offers, and what instance the node is; both hold for a while."""
        for reading in readings(view, c.COST_OPENCOST_GPU_HOUR_DOLLARS, now):
            kind, contract = reading.labels
            self._offer = Offer(reading.value, contract, kind, reading.taken + offset)
        if self._offer is not None and now + offset - self._offer.read > LASTS:
            self._offer = None
        rows = [
            dict(zip(c.SPOT_INSTANCE_INFO.labels, sample.labels, strict=True))
            for sample in view.samples(c.SPOT_INSTANCE_INFO)
        ]
        if rows:
            self._instance, self._instance_seen = instance_of(rows), now
        elif now - self._instance_seen > LASTS:
            self._instance = Instance()

    def _find(self, view: View, now: float) -> None:
        """Open an account for each GPU that is new; close those not seen for long."""
        at = c.GPU_INFO.labels.index("name")
        found: dict[str, tuple[str, str]] = {}
        for sample in view.samples(c.GPU_INFO):
            found.setdefault(sample.labels[1], (sample.labels[0], sample.labels[at]))
        for metric in _PRESENT:
            for sample in view.samples(metric):
                found.setdefault(sample.labels[1], (sample.labels[0], ""))
        for uuid, (gpu, name) in found.items():
            account = self._accounts.get(uuid)
            if account is None:
                account = self._accounts[uuid] = Account(now)
            account.gpu, account.uuid, account.seen = gpu, uuid, now
            account.name = name or account.name
        gone = [uuid for uuid, one in self._accounts.items() if now - one.seen > LASTS]
        for uuid in gone:
            del self._accounts[uuid]

    # ------------------------------------------------------------ what is told

    def _samples(self, now: float, wall: float) -> Iterator[Sample]:
        prices = dict(self._prices(wall))
        yield from self._of_prices(prices, wall)
        for account in self._accounts.values():
            yield from _of_account(account)
        if any(account.counts for account in self._accounts.values()):
            yield c.COST_COUNTED_SECONDS_TOTAL(self._counted)
            if self._gap is not None:
                yield c.COST_GAP_SECONDS(self._gap)
        if prices:
            yield c.COST_DOLLARS_PER_HOUR(math.fsum(prices.values()))
            if (rate := self._waste.rate(now)) is not None:
                yield c.COST_IDLE_DOLLARS_PER_HOUR(rate)
        yield from self._meters.samples()
        yield from self._runs.samples(prices)
        yield from self._tenants.samples(now)
        yield from self._jobs.samples(now)

    def _prices(self, wall: float) -> Iterator[tuple[tuple[str, str], float]]:
        for account in self._accounts.values():
            dollars = self._dollars(account, wall)
            if dollars is not None:
                yield (account.gpu, account.uuid), dollars

    def _dollars(self, account: Account, wall: float) -> float | None:
        """Return the price of a GPU's hour at a moment."""
        base = None if account.price is None else account.price.dollars
        return self._pricing.schedule.at(wall, base)

    def _of_prices(self, prices: Mapping[tuple[str, str], float], wall: float) -> Iterator[Sample]:
        oldest: dict[str, float] = {}
        stated = self._pricing.schedule.states(wall)
        for account in self._accounts.values():
            gpu = account.gpu, account.uuid
            if gpu not in prices:
                continue
            price = account.price
            if price is None or stated:
                kind = "" if price is None else price.instance_type
                price = self._pricing.of_hours(prices[gpu], account.contract, kind)
            yield c.COST_GPU_HOUR_DOLLARS(prices[gpu], *gpu)
            yield c.COST_PRICE_INFO(
                1, *gpu, price.source, price.pricing, price.instance_type, price.as_of
            )
            if price.since is not None:
                oldest[price.source] = min(price.since, oldest.get(price.source, math.inf))
        for source, since in oldest.items():
            yield c.COST_PRICE_AGE_SECONDS(max(0.0, wall - since), source)
        if self._newest is not None:
            yield c.COST_PRICE_TABLE_AGE_SECONDS(max(0.0, wall - self._newest))

    # ------------------------------------------------------------ what outlives it

    def memory(self) -> dict[str, Any]:
        """Return all books, as plain values."""
        return {
            "life": self._life,
            "accounts": {uuid: one.memory() for uuid, one in self._accounts.items()},
            "counted": self._counted,
            "round": self._round,
            "gap": self._gap,
            "offer": None if self._offer is None else list(self._offer),
            "energy": self._meters.memory(),
            "tenants": self._tenants.memory(),
            "jobs": self._jobs.memory(),
            "runs": self._runs.memory(),
        }

    def restore(self, memory: object, now: float, age: float, final: bool) -> None:  # noqa: FBT001
        """Go on where another one was. Raises `Malformed` if that is no such memory."""
        try:
            self._restore(memory, now, age, final=final)
        except _DAMAGED as error:
            self._accounts, self._counted = {}, 0.0
            raise Malformed(f"not taken over: {type(error).__name__}: {error}") from None

    def _restore(self, memory: Any, now: float, age: float, *, final: bool) -> None:
        same = memory["life"] == self._life and age <= self._longest_gap
        keep = same or final
        accounts = {str(uuid): Account.restored(one) for uuid, one in memory["accounts"].items()}
        self._meters.restore(memory["energy"], same=same, final=final)
        self._tenants.restore(memory["tenants"], now, keep=keep)
        self._jobs.restore(memory.get("jobs", ()), now, keep=keep)
        self._runs.restore(memory["runs"], now, same=same, keep=keep)
        self._counted = amount(memory["counted"]) if keep else 0.0
        if same:
            self._round = None if memory["round"] is None else float(memory["round"])
            self._gap = None if memory["gap"] is None else amount(memory["gap"])
            self._offer = None if memory["offer"] is None else Offer(*memory["offer"])
        else:
            self._gap = age
            for one in accounts.values():
                one.begin_anew(now, final=final)
        self._accounts = accounts


def _of_account(account: Account) -> Iterator[Sample]:
    if not account.counts:
        return
    for state in STATES:
        if state != "unallocated" or account.shared:
            yield c.COST_DOLLARS_TOTAL(account.dollars[state], account.gpu, account.uuid, state)


__all__ = ["NAME", "Energy", "Pricing", "cost"]
