"""How much of the hardware a run makes use of: TGS, FLOP/s, MFU, and where the rest goes.

TGS (tokens in a second for each GPU) is what is measured; FLOP/s and MFU are derived from it with
our own count of FLOPs. What the framework claims of itself is told beside it and never believed. A
figure that would rest on a guess is withheld, and the reason told: MFU above 1 means that the work,
the time or the peak is wrong, so it is no MFU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from exporter import catalogue as c
from exporter.derive.flops import Work
from exporter.derive.parallel import bubble, scaling
from exporter.derive.training.boards import Activity, Boards, Gpu
from exporter.derive.training.run import Run
from exporter.derive.training.teller import MINUTE, Sums, Teller
from exporter.derive.training.waterfall import COMPUTING, Observed, waterfall
from exporter.reference.accelerators import Accelerators
from exporter.samples import Metric, Sample, View
from exporter.training.records import Facts, Profile

HEADLINE = "causal"
ALWAYS = "bf16"
"""The precision whose peak MFU is told against wherever it is known."""

PROFILE_LASTS = 3600.0
"""Seconds for which a profile is taken to tell what a run still does."""

Reason = Literal[
    "above_one", "unknown_accelerator", "mixed_accelerators", "unknown_model",
    "unknown_world_size", "unknown_tokens",
]  # fmt: skip


Counter = Callable[[Facts], Work]
"""Counts the work of a run; raises `ValueError` where it cannot be counted."""

OUTPUTS: tuple[Metric, ...] = (
    c.TRAIN_RUN_GPU,
    c.TRAIN_TOKENS_PER_SECOND,
    c.TRAIN_TOKENS_PER_SECOND_PER_GPU,
    c.TRAIN_SAMPLES_PER_SECOND,
    c.TRAIN_STEPS_PER_SECOND,
    c.TRAIN_STEP_MEDIAN_SECONDS,
    c.TRAIN_PARAMETERS,
    c.TRAIN_FLOPS_PER_TOKEN,
    c.TRAIN_MODEL_FLOPS_PER_SECOND_PER_GPU,
    c.TRAIN_PEAK_FLOPS_PER_GPU,
    c.TRAIN_MFU_RATIO,
    c.TRAIN_HFU_RATIO,
    c.TRAIN_MFU_WITHHELD,
    c.TRAIN_MFU_LOSS_RATIO,
    c.TRAIN_HBM_BANDWIDTH_UTILIZATION_RATIO,
    c.TRAIN_GPU_ACTIVE_RATIO,
    c.TRAIN_COMMUNICATION_RATIO,
    c.TRAIN_COMMUNICATION_OVERLAP_RATIO,
    c.TRAIN_PIPELINE_BUBBLE_RATIO,
    c.TRAIN_SCALING_EFFICIENCY_RATIO,
    c.TRAIN_DATA_LOADING_RATIO,
    c.TRAIN_ENERGY_JOULES_PER_TOKEN,
    c.TRAIN_EXPERT_IMBALANCE_RATIO,
    c.TRAIN_DROPPED_TOKENS_RATIO,
    c.TRAIN_REPORTED_TOKENS_PER_SECOND_PER_GPU,
    c.TRAIN_REPORTED_MODEL_FLOPS_PER_SECOND_PER_GPU,
    c.TRAIN_REPORTED_MFU_RATIO,
    c.TRAIN_REPORT_MISMATCH_RATIO,
)


class _Peaks(NamedTuple):
    """Peaks by precision, or why there are none."""

    flops: Mapping[str, float]
    reason: Reason | None = None


class Pace(NamedTuple):
    """How fast a run goes over the last minute; what is not known is `None`."""

    tgs: float | None = None
    tokens: float | None = None
    samples: float | None = None
    steps: float | None = None
    tokens_of_step: float | None = None
    counted: bool = False
    """Whether tokens were counted; else the tokens rest on the rate that the framework prints."""
    reason: Reason | None = None


class Efficiency:
    """Tells how well a run uses its GPUs. One for all runs.

    `count` counts work. `products` is the table of accelerators; those named in `own` are the
    operator's: where a machine has no GPU and there is one of them, runs are taken to work on that.
    """

    def __init__(
        self, boards: Boards, count: Counter, products: Accelerators, own: Sequence[str]
    ) -> None:
        self._boards = boards
        self._count = count
        self._products = products
        self._own = own
        self._works: dict[str, tuple[Facts, Work | None]] = {}
        self._observed: float | None = None
        self._alone: frozenset[str] = frozenset()

    def forget(self, run: str) -> None:
        """Drop what is kept of a run."""
        self._works.pop(run, None)

    def __call__(self, run: Run, view: View, now: float) -> Iterable[Sample]:
        """Return the samples of one run."""
        if self._observed != now:
            self._observed = now
            self._boards.observe(view, now)
        work = self._work(run)
        told = list(_of_model(run, work)) if run.reports else []
        if not run.goes_on or not run.window().steps:
            return told
        activity = self._activity(run)
        told += [c.TRAIN_RUN_GPU(1, run.name, *gpu) for gpu in self.gpus(run) or ()]
        told += _of_gpus(run, activity)
        if not run.reports:
            return told
        pace = pace_of(run)
        told += _of_pace(run, pace)
        told += self._of_mfu(run, work, pace, activity, now)
        told += _of_time(run, self._profile(run, now))
        told += _of_experts(run)
        if (energy := self._energy(run, pace, activity)) is not None:
            told.append(c.TRAIN_ENERGY_JOULES_PER_TOKEN(energy, run.name))
        return told

    def _work(self, run: Run) -> Work | None:
        """Return the work of a token, counted again only when the facts have changed."""
        known = self._works.get(run.name)
        if known is not None and known[0] is run.facts:
            return known[1]
        try:
            work: Work | None = self._count(run.facts)
        except ValueError:
            work = None
        self._works[run.name] = run.facts, work
        return work

    # ------------------------------------------------------------ hardware

    def gpus(self, run: Run) -> tuple[Gpu, ...] | None:
        """Return the GPUs of this node that work on a run; None if that is not known.

        They are stated, or readers tell which GPU each rank has. A run as large as the node, and
        the only one on it, has all of them.
        """
        indices = run.stated.gpus
        if indices is None and run.facts.local_ranks:
            indices = tuple(run.facts.local_ranks.values())
        if indices is not None:
            return self._boards.at(indices)
        every, world = self._boards.all, run.world_size
        whole = every and world is not None and world % len(every) == 0
        return every if whole and run.is_alone else None

    def _activity(self, run: Run) -> Activity:
        gpus, ends = self.gpus(run), run.ends()
        if not gpus or ends is None:
            return Activity()
        return self._boards.activity(gpus, max(MINUTE, ends[1].taken - ends[0].taken))

    def peaks(self, run: Run) -> _Peaks:
        """Return the peaks of one GPU of a run, or the reason that they are not known."""
        stated = run.stated.accelerator
        gpus = self.gpus(run) or self._boards.all
        if stated is None and not gpus and len(self._own) == 1:
            stated = self._own[0]
        if stated is not None or not gpus:
            product = None if stated is None else self._products.find(stated)
            return _Peaks({}, "unknown_accelerator") if product is None else _Peaks(product.peaks)
        found = self._boards.peaks(gpus)
        if not all(found):
            return _Peaks({}, "unknown_accelerator")
        if any(peaks != found[0] for peaks in found):
            return _Peaks({}, "mixed_accelerators")
        return _Peaks(found[0])

    def _energy(self, run: Run, pace: Pace, did: Activity) -> float | None:
        """Return joules for each token: as told, else of this node's GPUs, taken for all."""
        if pace.tgs is None:
            return None
        if did.watts is not None:
            return did.watts / pace.tgs
        for _, sums in run.windows(lambda sums: sums.energy_steps):
            own = pace.tokens_of_step
            if own is not None and run.world_size is not None:
                return sums.energy / sums.energy_steps * run.world_size / own
        return None

    def _profile(self, run: Run, now: float) -> Profile | None:
        """Return the latest profile that is young enough to tell of what goes on."""
        wall = run.wall(now)
        young = [one for one in run.tracked.profiles.values() if wall - one.wall <= PROFILE_LASTS]
        young = [one for one in young if one.seconds > 0 and one.launches > 0]
        return max(young, key=lambda one: one.wall, default=None)

    # ------------------------------------------------------------ MFU

    def _of_mfu(
        self, run: Run, work: Work | None, pace: Pace, did: Activity, now: float
    ) -> Iterator[Sample]:
        peaks = self.peaks(run)
        wanted = dict.fromkeys([ALWAYS, run.precision or ALWAYS])
        usable = {name: peaks.flops[name] for name in wanted if name in peaks.flops}
        for name, peak in usable.items():
            yield c.TRAIN_PEAK_FLOPS_PER_GPU(peak, run.name, name)
        withheld: list[Reason] = []
        if pace.reason is not None:
            withheld.append(pace.reason)
        if work is None or HEADLINE not in work.model:
            withheld.append("unknown_model")
        if not usable:
            withheld.append(peaks.reason or "unknown_accelerator")
        rates: dict[str, float] = {}
        if work is not None and pace.tgs is not None:
            rates = {name: flops * pace.tgs for name, flops in work.model.items()}
            for name, rate in rates.items():
                yield c.TRAIN_MODEL_FLOPS_PER_SECOND_PER_GPU(rate, run.name, name)
            samples, above = _ratios(run, work, pace.tgs, usable)
            yield from samples
            if above:
                withheld.append("above_one")
            elif HEADLINE in work.model and usable:
                own = usable.get(run.precision or ALWAYS, usable.get(ALWAYS))
                if own is not None:
                    yield from self._losses(run, work, pace.tgs / own, did, now)
        yield from _claims(run, pace, rates, usable)
        for reason in withheld:
            yield c.TRAIN_MFU_WITHHELD(1, run.name, reason)

    def _losses(
        self, run: Run, work: Work, scale: float, did: Activity, now: float
    ) -> Iterator[Sample]:
        """Yield the waterfall; `scale` makes a share of the peak of FLOPs per token."""
        again = work.hardware.get(HEADLINE)
        losses = waterfall(
            Observed(
                mfu=work.model[HEADLINE] * scale,
                hfu=None if again is None else again * scale,
                phases=phases_of(run),
                bubble=bubble_of(run.facts),
                activity=within_steps(run, did),
                profile=self._profile(run, now),
                alone=run.world_size == 1,
            )
        )
        for loss in losses:
            yield c.TRAIN_MFU_LOSS_RATIO(loss.share, run.name, loss.cause, loss.evidence)


def _ratios(
    run: Run, work: Work, tgs: float, peaks: Mapping[str, float]
) -> tuple[list[Sample], bool]:
    """Return MFU and HFU by convention and peak, and whether the run's own is above 1.

    None of a peak is told where one is above 1. That a run in FP8 exceeds the peak of BF16 is
    nothing to wonder at: it is not told, and not a reason to doubt the other.
    """
    told: list[Sample] = []
    doubtful = False
    own = run.precision if run.precision in peaks else ALWAYS
    for name, peak in peaks.items():
        if work.model.get(HEADLINE, 0.0) * tgs > peak:
            doubtful = doubtful or name == own
            continue
        for metric, flops in ((c.TRAIN_MFU_RATIO, work.model), (c.TRAIN_HFU_RATIO, work.hardware)):
            for convention, one in flops.items():
                if one * tgs <= peak:
                    told.append(metric(one * tgs / peak, run.name, convention, name))
    return told, doubtful


def pace_of(run: Run) -> Pace:
    """Return how fast a run goes, by the best reader that can tell."""
    found = Pace(reason="unknown_tokens")
    window = run.window()
    steps = window.timed / window.seconds if window.seconds else None
    world = run.world_size
    for teller in run.tellers:
        sums = teller.flow.window()
        # What lies between two stamps is more than the step: the printed rate knows better.
        printed = sums.tgs if teller.tells_of_run else None
        if teller.factor is not None and sums.token_seconds and sums.tokens:
            tokens = sums.tokens * teller.factor / sums.token_seconds
            step = sums.tokens * teller.factor / sums.token_steps
            if world is not None and not (sums.stamped and printed):
                counted = not sums.rated
                found = Pace(tokens / world, tokens, tokens_of_step=step, counted=counted)
                break
            if found.tokens is None:
                found = Pace(None, tokens, tokens_of_step=step, reason="unknown_world_size")
        if printed is not None:
            tokens_all = found.tokens if world is None else printed * world
            found = Pace(printed, tokens_all, tokens_of_step=found.tokens_of_step)
            break
    return found._replace(steps=steps, samples=_samples(run))


def _samples(run: Run) -> float | None:
    for teller, sums in run.windows(lambda sums: sums.sample_seconds):
        if teller.factor is not None:
            return sums.samples * teller.factor / sums.sample_seconds
    return None


def _of_pace(run: Run, pace: Pace) -> Iterator[Sample]:
    for metric, value in (
        (c.TRAIN_TOKENS_PER_SECOND_PER_GPU, pace.tgs),
        (c.TRAIN_TOKENS_PER_SECOND, pace.tokens),
        (c.TRAIN_SAMPLES_PER_SECOND, pace.samples),
        (c.TRAIN_STEPS_PER_SECOND, pace.steps),
        (c.TRAIN_STEP_MEDIAN_SECONDS, run.median),
    ):
        if value is not None:
            yield metric(value, run.name)
    if (base := run.stated.baseline) is not None and pace.tgs is not None:
        ratio = scaling(pace.tgs, base.tokens_per_second_per_gpu)
        yield c.TRAIN_SCALING_EFFICIENCY_RATIO(ratio, run.name, base.kind)


def _of_model(run: Run, work: Work | None) -> Iterator[Sample]:
    if work is None:
        return
    for convention, flops in work.model.items():
        yield c.TRAIN_FLOPS_PER_TOKEN(flops, run.name, convention)
    for kind, number in (
        ("total", work.total_parameters),
        ("active", work.active_parameters),
        ("trainable", work.trainable_parameters),
    ):
        if number is not None:
            yield c.TRAIN_PARAMETERS(number, run.name, kind)


def within_steps(run: Run, did: Activity) -> Activity:
    """Return what GPUs did in the time of steps, from what they did all the time.

    Between steps (a checkpoint, a restart) they are taken to rest: what they did lies in the steps.
    """
    ends, window = run.ends(), run.window()
    if ends is None or not window.timed:
        return did
    first, last = ends
    passed = last.taken - first.taken
    if first.step.wall is not None and last.step.wall is not None:
        passed = last.step.wall - first.step.wall
    spent = window.seconds - first.step.steps * (first.seconds or 0.0)
    if not 0 < spent < passed:
        return did
    shares = {
        name: min(1.0, value * passed / spent)
        for name in ("busy", "sms", "tensor", "dram")
        if (value := getattr(did, name)) is not None
    }
    return did._replace(**shares)


def _of_gpus(run: Run, did: Activity) -> Iterator[Sample]:
    if did.dram is not None:
        yield c.TRAIN_HBM_BANDWIDTH_UTILIZATION_RATIO(did.dram, run.name)
    if did.sms is not None:
        yield c.TRAIN_GPU_ACTIVE_RATIO(did.sms, run.name)


def _of_experts(run: Run) -> Iterator[Sample]:
    if (known := run.last("expert_imbalance")) is not None:
        yield c.TRAIN_EXPERT_IMBALANCE_RATIO(known.step.expert_imbalance or 0.0, run.name)
    known = run.last("dropped_tokens")
    if known is not None and known.tokens:
        share = (known.step.dropped_tokens or 0.0) / known.tokens
        if share <= 1:
            yield c.TRAIN_DROPPED_TOKENS_RATIO(share, run.name)


# ---------------------------------------------------------------- time


def bubble_of(facts: Facts) -> float | None:
    """Return the share of a step that a pipeline's stages wait, by theory; None if not known.

    One stage has none.
    """
    stages, batches = facts.pipeline_parallel, facts.micro_batches
    if stages == 1:
        return 0.0
    if stages is None or batches is None:
        return None
    return bubble(stages, batches, facts.virtual_stages or 1)


def phases_of(run: Run) -> dict[str, float]:
    """Return the shares of step time by phase, of the best reader that tells them.

    Where several ranks tell how long they wait for others, the one that waits least is taken: the
    others wait for it, so what it does is what the step takes so long for. Stages of a pipeline
    differ in what they do, and of those it is the mean.
    """
    by_reader: dict[str, list[tuple[Teller, Sums]]] = {}
    for teller, sums in run.windows(lambda sums: sums.phase_seconds):
        by_reader.setdefault(teller.reader, []).append((teller, sums))
    ranked = list(by_reader.values())
    # One that only knows the data's share gives way to one that takes the step apart.
    complete = [
        some for some in ranked if any(set(COMPUTING) & one[1].phases.keys() for one in some)
    ]
    if not ranked:
        return {}
    shares = [
        {phase: sums.phases[phase] / sums.phase_seconds for phase in sums.phases}
        for _, sums in (complete or ranked)[0]
    ]
    if len(shares) == 1:
        return shares[0]
    if (run.facts.pipeline_parallel or 1) == 1 and all("communication" in one for one in shares):
        return min(shares, key=lambda one: one["communication"])
    phases = dict.fromkeys(phase for one in shares for phase in one)
    return {phase: sum(one.get(phase, 0.0) for one in shares) / len(shares) for phase in phases}


def _of_time(run: Run, profile: Profile | None) -> Iterator[Sample]:
    phases = phases_of(run)
    if "data" in phases:
        yield c.TRAIN_DATA_LOADING_RATIO(phases["data"], run.name)
    if "bubble" in phases:
        yield c.TRAIN_PIPELINE_BUBBLE_RATIO(phases["bubble"], run.name, "measured")
    if (theory := bubble_of(run.facts)) is not None:
        yield c.TRAIN_PIPELINE_BUBBLE_RATIO(theory, run.name, "theoretical")
    yield from _of_communication(run, phases, profile)


def _of_communication(
    run: Run, phases: Mapping[str, float], profile: Profile | None
) -> Iterator[Sample]:
    total, exposed = _total_communication(run), phases.get("communication")
    if exposed is not None:
        yield c.TRAIN_COMMUNICATION_RATIO(exposed, run.name, "exposed", "measured")
    if total is not None:
        yield c.TRAIN_COMMUNICATION_RATIO(total, run.name, "total", "measured")
    if total and exposed is not None and exposed <= total:
        yield c.TRAIN_COMMUNICATION_OVERLAP_RATIO(1 - exposed / total, run.name, "measured")
    if profile is None:
        return
    exposed, total = profile.exposed_communication, profile.communication
    yield c.TRAIN_COMMUNICATION_RATIO(exposed / profile.seconds, run.name, "exposed", "profiled")
    yield c.TRAIN_COMMUNICATION_RATIO(total / profile.seconds, run.name, "total", "profiled")
    if total > 0 and exposed <= total:
        yield c.TRAIN_COMMUNICATION_OVERLAP_RATIO(1 - exposed / total, run.name, "profiled")


def _total_communication(run: Run) -> float | None:
    """Return the share of all communication, of the rank (or ranks) of which `phases_of` tells.

    What is hidden is the same on all ranks, so the one that waits least communicates least.
    """
    by_reader: dict[str, list[float]] = {}
    for teller, sums in run.windows(lambda sums: sums.communication_seconds):
        share = sums.communication / sums.communication_seconds
        by_reader.setdefault(teller.reader, []).append(share)
    for shares in by_reader.values():
        staged = (run.facts.pipeline_parallel or 1) > 1
        return sum(shares) / len(shares) if staged else min(shares)
    return None


# ---------------------------------------------------------------- what frameworks claim


def _claims(
    run: Run, pace: Pace, rates: Mapping[str, float], peaks: Mapping[str, float]
) -> Iterator[Sample]:
    """Yield what frameworks say of themselves, and how far that is from ours.

    FLOP/s and MFU are compared with that convention (and peak) of ours that comes nearest: each
    framework has its own, and what is left then is a mistake of theirs or ours.
    """
    ours = [rate / peak for rate in rates.values() for peak in peaks.values()]
    seen: set[str] = set()
    for teller in run.tellers:
        if teller.reader in seen or not teller.tells_of_run:
            continue
        sums = teller.flow.window()
        tgs, flops, mfu = sums.tgs, sums.flops, sums.mfu
        if tgs is None and flops is None and mfu is None:
            continue
        seen.add(teller.reader)
        if tgs is not None:
            yield c.TRAIN_REPORTED_TOKENS_PER_SECOND_PER_GPU(tgs, run.name, teller.reader)
            if pace.tgs is not None and pace.counted:
                yield _mismatch(run, teller, "tokens", tgs, [pace.tgs])
        if flops is not None:
            yield c.TRAIN_REPORTED_MODEL_FLOPS_PER_SECOND_PER_GPU(flops, run.name, teller.reader)
            if rates:
                yield _mismatch(run, teller, "flops", flops, list(rates.values()))
        if mfu is not None:
            yield c.TRAIN_REPORTED_MFU_RATIO(mfu, run.name, teller.reader)
            if ours:
                yield _mismatch(run, teller, "mfu", mfu, ours)


def _mismatch(run: Run, teller: Teller, quantity: str, theirs: float, ours: list[float]) -> Sample:
    nearest = min(ours, key=lambda one: abs(theirs - one))
    return c.TRAIN_REPORT_MISMATCH_RATIO(theirs / nearest - 1, run.name, teller.reader, quantity)
