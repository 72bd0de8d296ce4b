"""What spot instances save once interruptions are paid for, and how often to write checkpoints.

A job runs on all of its instances or not at all: where one is taken away, the job loses what it did
since its last checkpoint and the time until it trains again. Interruptions come at random, at a
steady rate (Poisson). Times are seconds, rates events an hour, prices dollars an hour of a GPU.

Sources: J. W. Young, "A first order approximation to the optimum checkpoint interval",
Communications of the ACM 17 (9), 1974. J. T. Daly, "A higher order estimate of the optimum
checkpoint interval for restart dumps", Future Generation Computer Systems 22 (3), 2006.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

HOUR = 3600.0
INTERRUPTIBLE = "spot"
"""The pricing model whose instances can be taken away."""

_LARGEST_EXPONENT = 700.0

# ---------------------------------------------------------------- checkpoints


def young(checkpoint: float, between: float) -> float:
    """Return the best time between checkpoints, to first order.

    `checkpoint` is what writing one takes, `between` the mean time between interruptions.
    """
    return math.sqrt(2 * checkpoint * between)


def daly(checkpoint: float, between: float) -> float:
    """Return the best time of work between checkpoints, to higher order.

    Where writing one takes twice as long as interruptions are apart, or longer, it is `between`.
    """
    if math.isinf(between):
        return math.inf
    if checkpoint >= 2 * between:
        return between
    part = checkpoint / (2 * between)
    return young(checkpoint, between) * (1 + math.sqrt(part) / 3 + part / 9) - checkpoint


def useful_share(interval: float, checkpoint: float, restart: float, between: float) -> float:
    """Return the share of the time that is work which lasts: expected goodput, 0 to 1.

    Daly's complete cost function: interruptions may come while a checkpoint is written and while
    the job restarts, and more than one in an interval. `interval` is the work between two
    checkpoints; an infinite one means that none are written.
    """
    if math.isinf(between):
        return 1.0 if math.isinf(interval) else interval / (interval + checkpoint)
    lost = (interval + checkpoint + restart) / between
    if lost > _LARGEST_EXPONENT or interval <= 0:
        return 0.0
    stretch = math.exp(restart / between) * math.expm1((interval + checkpoint) / between)
    return interval / (between * stretch)


def announced_share(checkpoint: float, restart: float, between: float) -> float:
    """Return the useful share where each interruption is announced in time to write a checkpoint.

    No work is lost; what is left to pay is the last checkpoint and the restart, which may itself be
    interrupted.
    """
    if math.isinf(between):
        return 1.0
    if restart / between > _LARGEST_EXPONENT:
        return 0.0
    return between / (between + checkpoint + between * math.expm1(restart / between))


def rough_share(rate: float, lost: float) -> float:
    """Return the useful share to first order; `rate` is an hour's, `lost` seconds by each."""
    return max(0.0, 1 - rate * lost / HOUR)


def lost_work(interval: float, restart: float) -> float:
    """Return what one interruption costs: half an interval of work, and the restart."""
    return interval / 2 + restart


def between_interruptions(rate: float, instances: float) -> float:
    """Return seconds between interruptions of a job; infinite where nothing is taken away.

    `rate` is how often one instance is taken away in an hour.
    """
    return HOUR / (rate * instances) if rate * instances > 0 else math.inf


# ---------------------------------------------------------------- prices


class Part(NamedTuple):
    """A share of a job's GPUs that is paid in one way."""

    pricing: str
    share: float
    dollars: float


def mixed_price(parts: Iterable[tuple[float, float]]) -> float:
    """Return the price of a mixture: shares and prices."""
    return sum(share * dollars for share, dollars in parts)


def saving(before: float, after: float) -> float:
    """Return which share of a price is saved; below 0 where it grows."""
    return 1 - after / before


def effective_price(dollars: float, useful: float) -> float:
    """Return what an hour of work that lasts costs; infinite where none lasts."""
    return dollars / useful if useful > 0 else math.inf


def effective_saving(discount: float, lost: float) -> float:
    """Return what a discount saves where a share of the time is lost, against none lost."""
    return saving(1.0, effective_price(1 - discount, 1 - lost))


# ---------------------------------------------------------------- a job


class Job(NamedTuple):
    """A job as it is run, and what stops it.

    `rate` is how often one spot instance is taken away in an hour; `whole`, where stated, how often
    the job is interrupted, if all of it is on spot. `failures` is the mean time between failures of
    any other kind, which nobody announces. A `notice` as long as a checkpoint takes saves the work.
    `interval` None means the best one.
    """

    gpus: float
    gpus_per_instance: float
    checkpoint: float
    restart: float
    rate: float = 0.0
    whole: float | None = None
    failures: float = math.inf
    notice: float = 0.0
    interval: float | None = None

    @property
    def instances(self) -> int:
        """How many instances it needs: whole ones."""
        return math.ceil(self.gpus / self.gpus_per_instance)

    @property
    def announced(self) -> bool:
        """Whether a notice is long enough to write a checkpoint."""
        return self.notice >= self.checkpoint

    def between(self, spot: float) -> float:
        """Return seconds between interruptions, with such a share of its GPUs on spot."""
        if self.whole is None:
            return between_interruptions(self.rate, self.instances * spot)
        return between_interruptions(self.whole, spot)

    def unannounced(self, spot: float) -> float:
        """Return seconds between the events that cost work, with such a share on spot."""
        taken = math.inf if self.announced else self.between(spot)
        rate = 1 / taken + 1 / self.failures
        return 1 / rate if rate else math.inf

    def best_interval(self, spot: float) -> float:
        """Return the best time between checkpoints; infinite where nothing costs work."""
        return daly(self.checkpoint, self.unannounced(spot))


class Way(NamedTuple):
    """One way to pay for a job, and what comes of it.

    `price` is for an hour of a GPU, `effective` for an hour of work that lasts, `saved` the share
    against on-demand that is interrupted by failures alone. `first_order` is Young's interval.
    """

    name: str
    price: float
    between: float
    interval: float
    first_order: float
    useful: float
    effective: float
    saved: float

    def cost(self, gpus: float, hours: float) -> float:
        """Return what the work of so many GPU hours costs, the repeated part included."""
        return self.effective * gpus * hours


def way(name: str, parts: Iterable[Part], job: Job, on_demand: float) -> Way:
    """Return what comes of paying for a job with such a mixture; `on_demand` is compared with."""
    known = tuple(parts)
    spot = sum(part.share for part in known if part.pricing == INTERRUPTIBLE)
    interval = job.best_interval(spot) if job.interval is None else job.interval
    useful = _useful(job, spot, interval)
    price = mixed_price((part.share, part.dollars) for part in known)
    effective = effective_price(price, useful)
    calm = job.best_interval(0.0) if job.interval is None else job.interval
    compared = effective_price(on_demand, _useful(job, 0.0, calm))
    return Way(
        name, price, job.between(spot), interval, young(job.checkpoint, job.unannounced(spot)),
        useful, effective, saving(compared, effective) if math.isfinite(compared) else math.nan,
    )  # fmt: skip


def _useful(job: Job, spot: float, interval: float) -> float:
    share = useful_share(interval, job.checkpoint, job.restart, job.unannounced(spot))
    if job.announced:
        share *= announced_share(job.checkpoint, job.restart, job.between(spot))
    return share
