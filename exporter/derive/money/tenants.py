"""Whose GPU time it was: by namespace, which is what is billed, and by pod.

A GPU that several pods share is divided by the parts that were handed to them (instances,
replicas); what was handed to nobody is nobody's. Where parts are not known it is divided evenly,
and the parts add up to the whole, to the nanosecond. Pods go, and their counters with them a little
later; those of namespaces stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from exporter import catalogue as c
from exporter.derive.money.accounts import Booked, amount
from exporter.derive.money.owners import Owners, parts, shares_of
from exporter.samples import Metric, Sample

OUTPUTS: tuple[Metric, ...] = (
    c.COST_TENANT_GPU_SECONDS_TOTAL,
    c.COST_TENANT_UNUSED_GPU_SECONDS_TOTAL,
    c.COST_TENANT_DOLLARS_TOTAL,
    c.COST_POD_GPU_SECONDS_TOTAL,
    c.COST_POD_UNUSED_GPU_SECONDS_TOTAL,
    c.COST_ALLOCATED_GPUS,
    c.COST_QUOTA_GPUS,
    c.COST_QUOTA_USED_RATIO,
)

LINGERS = 300.0
"""Seconds for which the counters of a pod that is gone stay: they are to be scraped once more."""

MOST = 1_000
"""Namespaces, and pods, that are kept."""

_OF_TENANTS = (c.COST_TENANT_GPU_SECONDS_TOTAL, c.COST_TENANT_UNUSED_GPU_SECONDS_TOTAL)
_OF_PODS = (c.COST_POD_GPU_SECONDS_TOTAL, c.COST_POD_UNUSED_GPU_SECONDS_TOTAL)


class Sum:
    """What one tenant had: nanoseconds, those unused, dollars; `paid` if there was a price."""

    __slots__ = ("dollars", "nanoseconds", "paid", "seen", "unused")

    def __init__(self, now: float) -> None:
        self.nanoseconds = 0
        self.unused = 0
        self.dollars = 0.0
        self.paid = False
        self.seen = now

    def add(self, nanoseconds: int, unused: int, dollars: float | None, now: float) -> None:
        """Book more."""
        self.nanoseconds += nanoseconds
        self.unused += unused
        self.seen = now
        if dollars is not None:
            self.dollars += dollars
            self.paid = True

    def memory(self) -> list[Any]:
        """Return it as plain values."""
        return [self.nanoseconds, self.unused, self.dollars, self.paid]

    @classmethod
    def restored(cls, memory: Iterable[Any], now: float, *, keep: bool) -> Sum:
        """Return what was remembered, with its figures if they are to be kept."""
        one = cls(now)
        nanoseconds, unused, dollars, paid = memory
        if keep:
            one.nanoseconds, one.unused = int(amount(nanoseconds)), int(amount(unused))
            one.dollars = amount(dollars)
        one.paid = bool(paid)
        return one


class Tenants:
    """All who have, or had, GPUs of this node. `quotas` are GPUs on all nodes by namespace."""

    def __init__(self, quotas: Mapping[str, float]) -> None:
        self._quotas = dict(quotas)
        self._tenants: dict[tuple[str, str], Sum] = {}
        self._pods: dict[tuple[str, str, str], Sum] = {}
        self._has: dict[str, float] | None = None

    def begin(self, owners: Iterable[tuple[Owners | None, str]], now: float) -> None:
        """Note who has what at present, and by which contract; nothing where that is not known.

        Counters begin at 0: what a series shows first is no increase to Prometheus.
        """
        has: dict[str, float] | None = None
        for some, contract in owners:
            if some is None:
                continue
            has = {} if has is None else has
            for (namespace, pod, _), share in zip(some, shares_of(some), strict=True):
                has[namespace] = has.get(namespace, 0.0) + share
                self._tenants.setdefault((namespace, contract), Sum(now)).seen = now
                self._pods.setdefault((namespace, pod, contract), Sum(now)).seen = now
        self._has = has

    def book(self, owners: Owners | None, pricing: str, booked: Booked, now: float) -> None:
        """Divide what was booked of a GPU among those who had it."""
        if not owners:
            return
        shares = shares_of(owners)
        times = parts(booked.nanoseconds, shares), parts(booked.idle, shares)
        for (namespace, pod, _), share, nanoseconds, idle in zip(
            owners, shares, *times, strict=True
        ):
            unused = min(idle, nanoseconds)
            dollars = None if booked.dollars is None else booked.dollars * share
            tenant = self._tenants.setdefault((namespace, pricing), Sum(now))
            tenant.add(nanoseconds, unused, dollars, now)
            one = self._pods.setdefault((namespace, pod, pricing), Sum(now))
            one.add(nanoseconds, unused, dollars, now)

    def samples(self, now: float) -> Iterator[Sample]:
        """Yield all counters, and what of the quotas is used."""
        self._forget(now)
        for tenant, one in self._tenants.items():
            yield from times(_OF_TENANTS, one, tenant)
            if one.paid:
                yield c.COST_TENANT_DOLLARS_TOTAL(one.dollars, *tenant)
        for pod, one in self._pods.items():
            yield from times(_OF_PODS, one, pod)
        for namespace, quota in self._quotas.items():
            yield c.COST_QUOTA_GPUS(quota, namespace)
        if self._has is None:
            return
        for namespace, gpus in self._has.items():
            yield c.COST_ALLOCATED_GPUS(gpus, namespace)
        for namespace, quota in self._quotas.items():
            if quota > 0:
                yield c.COST_QUOTA_USED_RATIO(self._has.get(namespace, 0.0) / quota, namespace)

    def _forget(self, now: float) -> None:
        gone = [pod for pod, one in self._pods.items() if now - one.seen > LINGERS]
        for pod in gone:
            del self._pods[pod]
        cut(self._pods)
        cut(self._tenants)

    def memory(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "tenants": [[*key, one.memory()] for key, one in self._tenants.items()],
            "pods": [[*key, one.memory()] for key, one in self._pods.items()],
        }

    def restore(self, memory: Mapping[str, Any], now: float, *, keep: bool) -> None:
        """Go on where another one was, with its sums if they are to be kept.

        Raises for what is no such memory.
        """
        for namespace, pricing, one in memory["tenants"]:
            key = str(namespace), str(pricing)
            self._tenants[key] = Sum.restored(one, now, keep=keep)
        for namespace, pod, pricing, one in memory["pods"]:
            place = str(namespace), str(pod), str(pricing)
            self._pods[place] = Sum.restored(one, now, keep=keep)


def times(metrics: tuple[Metric, Metric], one: Sum, labels: tuple[str, ...]) -> Iterator[Sample]:
    """Yield the time that was had, and what of it was not used."""
    for metric, nanoseconds in zip(metrics, (one.nanoseconds, one.unused), strict=True):
        yield Sample(metric, labels, nanoseconds / 1e9)


def cut(sums: dict[Any, Sum]) -> None:
    """Keep only so many: those that were seen last."""
    if len(sums) > MOST:
        for key in sorted(sums, key=lambda key: sums[key].seen)[: len(sums) - MOST]:
            del sums[key]
