"""`flopwatch spot`: what spot instances save once interruptions are paid for.

Compares ways to pay for one job, and says how often it should write checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from exporter.commands.money import columns, millions, percent, plain, price
from exporter.config import ConfigError
from exporter.derive.money.spot import HOUR, Job, Part, Way, saving, way
from exporter.reference.prices import PRICINGS, ListPrice, listed


class Offer(NamedTuple):
    """What a GPU costs an hour, by pricing model, and who says so."""

    dollars: dict[str, float]
    sources: dict[str, str]
    gpus: int | None


class Answer(NamedTuple):
    """What is to be shown: the job, the ways to pay for it, and over how many hours of work."""

    job: Job
    offer: Offer
    ways: tuple[Way, ...]
    hours: float


def offer(
    instance_type: str | None, stated: dict[str, float | None], discount: float | None
) -> Offer:
    """Return prices: stated ones, else those of the list. Raises `ConfigError` without on-demand.

    `discount` is what spot is cheaper than on-demand by.
    """
    rows = {} if instance_type is None else _rows(instance_type)
    dollars = {pricing: row.dollars_per_gpu_hour for pricing, row in rows.items()}
    sources = {pricing: f"list price of {row.as_of}: {row.source}" for pricing, row in rows.items()}
    for pricing, value in stated.items():
        if value is not None:
            dollars[pricing], sources[pricing] = value, "stated"
    if "on_demand" not in dollars:
        missing = "" if instance_type is None else f"the list has none of {instance_type!r}: "
        raise ConfigError(f"--on-demand: {missing}a price to compare with is needed")
    if discount is not None:
        dollars["spot"] = dollars["on_demand"] * (1 - discount)
        sources["spot"] = f"{100 * discount:g} % off on_demand"
    ordered = {pricing: dollars[pricing] for pricing in PRICINGS if pricing in dollars}
    return Offer(ordered, sources, next((row.gpus for row in rows.values()), None))


def _rows(instance_type: str) -> dict[str, ListPrice]:
    found = {pricing: listed(instance_type, pricing) for pricing in PRICINGS}
    return {pricing: row for pricing, row in found.items() if row is not None}


def mix(text: str, offer: Offer) -> tuple[Part, ...]:
    """Return the parts of `spot=0.8,on_demand=0.2`. Raises `ConfigError`."""
    parts = []
    for piece in text.split(","):
        pricing, _, number = piece.partition("=")
        try:
            share = float(number)
        except ValueError:
            share = math.nan
        if not 0 <= share <= 1:
            raise ConfigError(f"--mix: {piece!r} is not such as spot=0.8")
        if pricing not in offer.dollars:
            known = ", ".join(offer.dollars)
            raise ConfigError(f"--mix: {pricing!r} has no price; there are {known}")
        parts.append(Part(pricing, share, offer.dollars[pricing]))
    whole = sum(part.share for part in parts)
    if abs(whole - 1) > 1e-6:
        raise ConfigError(f"--mix: the shares of {text!r} make {whole:g}, not 1")
    return tuple(parts)


def answer(job: Job, offer: Offer, mixes: Sequence[str], hours: float) -> Answer:
    """Return each price model alone, then the mixtures. Raises `ConfigError`."""
    parts: dict[str, tuple[Part, ...]] = {
        name: (Part(name, 1.0, dollars),) for name, dollars in offer.dollars.items()
    }
    parts |= {text: mix(text, offer) for text in mixes}
    ways = tuple(way(name, one, job, offer.dollars["on_demand"]) for name, one in parts.items())
    return Answer(job, offer, ways, hours)


# ---------------------------------------------------------------- for people


def lines(answer: Answer) -> Iterator[str]:
    """Yield what is printed for people."""
    yield from _terms(answer)
    yield ""
    gpus, hours = answer.job.gpus, answer.hours
    rows = [(
        "", "GPU hour", "interrupted", "checkpoint", "(Young)", "useful", "useful hour",
        f"{hours:,.0f} h, M$", "saves",
    )]  # fmt: skip
    rows += [
        (
            one.name, price(one.price), _every(one.between), _every(one.interval),
            _every(one.first_order), percent(one.useful), price(one.effective),
            millions(one.cost(gpus, hours)) if math.isfinite(one.effective) else "-",
            percent(one.saved),
        )
        for one in answer.ways
    ]  # fmt: skip
    yield from columns(rows)
    yield ""
    yield "useful: share of the time that is work which lasts; useful hour: what one costs"
    yield "cost: of as much work as all GPUs do in these hours if nothing interrupts them"
    yield from _remarks(answer)


def _terms(answer: Answer) -> Iterator[str]:
    job = answer.job
    size = f"{job.gpus:,.0f} GPUs ({job.instances:,} instances)"
    yield f"A job on {size} that runs on all of them or not at all"
    for pricing, dollars in answer.offer.dollars.items():
        yield f"  {pricing}: {price(dollars)} dollars a GPU hour ({answer.offer.sources[pricing]})"
    taken = (
        f"one spot instance is taken away {job.rate:g} times an hour"
        if job.whole is None
        else f"all on spot it is interrupted {job.whole:g} times an hour"
    )
    yield f"  {taken}; other failures: {_every(job.failures)}"
    yield (
        f"  a checkpoint takes {job.checkpoint:g} s, a restart {job.restart:g} s;"
        f" notice {job.notice:g} s"
        + (", enough to write a checkpoint" if job.announced else ", too short for a checkpoint")
    )


def _every(seconds: float) -> str:
    if math.isinf(seconds):
        return "never"
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 2 * HOUR else f"{seconds / HOUR:.3g} h"


def _remarks(answer: Answer) -> Iterator[str]:
    for one in answer.ways:
        plain_saving = saving(answer.offer.dollars["on_demand"], one.price)
        if one.useful < 0.5 and not math.isinf(one.between):
            yield (
                f"{one.name}: more than half of the time is lost; a job that goes on with fewer"
                " instances, fewer instances, or a pool that is taken away less would help"
            )
        elif plain_saving > 0 and one.saved <= 0:
            yield f"{one.name}: cheaper by the hour, dearer by the work"


# ---------------------------------------------------------------- for programs


def as_json(answer: Answer) -> dict[str, Any]:
    """Return the same for programs: dollars, seconds, shares; what is infinite is absent."""
    return {
        "job": {name: plain(value) for name, value in answer.job._asdict().items()},
        "hours": answer.hours,
        "prices": {
            pricing: {"dollars_per_gpu_hour": dollars, "source": answer.offer.sources[pricing]}
            for pricing, dollars in answer.offer.dollars.items()
        },
        "ways": [
            {
                "name": one.name,
                "dollars_per_gpu_hour": one.price,
                "seconds_between_interruptions": plain(one.between),
                "checkpoint_interval_seconds": plain(one.interval),
                "checkpoint_interval_first_order_seconds": plain(one.first_order),
                "useful_ratio": one.useful,
                "dollars_per_useful_gpu_hour": plain(one.effective),
                "dollars": plain(one.cost(answer.job.gpus, answer.hours)),
                "saving_ratio": plain(one.saved),
            }
            for one in answer.ways
        ],
    }
