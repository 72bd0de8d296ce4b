"""What can be found wrong on a node by one look: what conditions are made of.

Each function yields what it holds of, by the names that an operator knows. Thresholds are those of
the alert rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from exporter import catalogue as c
from exporter.samples import Metric
from exporter.status.facts import Fact, Facts

Find = Callable[[Facts, float], Iterator[str]]
"""Finds things in the facts; it is told the time in Unix seconds."""


def about(fact: Fact) -> str:
    """Name what a series is about as an operator would."""
    labels = fact.labels
    if labels.get("gpu"):
        return f"GPU {labels['gpu']}"
    if labels.get("device"):
        return f"{labels['device']}/{labels['port']}" if labels.get("port") else labels["device"]
    words = [labels[name] for name in _NAMES if labels.get(name)]
    return " ".join(words)


_NAMES = ("run", "rank", "server", "model_name", "sla", "objective", "namespace", "source", "rail",
          "kind", "cause", "metric", "action", "reader")  # fmt: skip


def where(metric: Metric, holds: Callable[[float], bool], **labels: str) -> Find:
    """Return what finds series of a family whose value is such."""

    def find(facts: Facts, _: float) -> Iterator[str]:
        yield from (about(fact) for fact in facts.all(metric, **labels) if holds(fact.value))

    return find


def equal(value: float) -> Callable[[float], bool]:
    """Return a test for one value."""
    return lambda found: found == value


def above(value: float) -> Callable[[float], bool]:
    """Return a test for values above a limit."""
    return lambda found: found > value


def with_processes(find: Find) -> Find:
    """Return the same, where something runs on the node's GPUs."""

    def both(facts: Facts, now: float) -> Iterator[str]:
        if sum(fact.value for fact in facts.all(c.GPU_PROCESSES)) > 0:
            yield from find(facts, now)

    return both


def lost_gpus(facts: Facts, _: float) -> Iterator[str]:
    """Yield GPUs that do not answer, and how many of those that ought to be there are not."""
    yield from (about(fact) for fact in facts.all(c.GPU_UP) if fact.value == 0)
    expected = max((fact.value for fact in facts.all(c.GPU_DEVICES_EXPECTED)), default=None)
    present = max((fact.value for fact in facts.all(c.GPU_DEVICES_PRESENT)), default=None)
    if expected is not None and present is not None and expected > present:
        yield f"{expected - present:.0f} of {expected:.0f} GPUs"


def unhealthy_fabric(facts: Facts, _: float) -> Iterator[str]:
    """Yield GPUs that have joined the NVLink fabric and are not healthy in it."""
    joined = facts.by(c.GPU_FABRIC_STATE, "uuid")
    for fact in facts.all(c.GPU_FABRIC_HEALTHY):
        if fact.value == 0 and joined.get(fact.labels["uuid"]) == 3:
            yield about(fact)


def narrow_links(facts: Facts, _: float) -> Iterator[str]:
    """Yield GPUs with too few lanes; too slow counts while the GPU works: idle ones save power."""
    lanes, generations = (
        facts.by(c.GPU_PCIE_LINK_LANES_MAX, "uuid"),
        facts.by(c.GPU_PCIE_LINK_GENERATION_MAX, "uuid"),
    )
    busy = facts.by(c.GPU_UTILIZATION_RATIO, "uuid")
    for fact in facts.all(c.GPU_PCIE_LINK_LANES):
        if fact.value < lanes.get(fact.labels["uuid"], 0):
            yield about(fact)
    for fact in facts.all(c.GPU_PCIE_LINK_GENERATION):
        uuid = fact.labels["uuid"]
        if fact.value < generations.get(uuid, 0) and busy.get(uuid, 0) > 0.5:
            yield about(fact)


def held_memory(facts: Facts, _: float) -> Iterator[str]:
    """Yield GPUs with memory in use and no process."""
    used = facts.by(c.GPU_MEMORY_USED_BYTES, "uuid")
    for fact in facts.all(c.GPU_PROCESSES):
        if fact.value == 0 and used.get(fact.labels["uuid"], 0) > 1073741824:
            yield about(fact)


def nobodys_gpus(facts: Facts, _: float) -> Iterator[str]:
    """Yield GPUs that work and are allocated to nobody."""
    busy = facts.by(c.GPU_UTILIZATION_RATIO, "uuid")
    for fact in facts.all(c.GPU_ALLOCATION_INFO, namespace=""):
        if busy.get(fact.labels["uuid"], 0) > 0.5:
            yield about(fact)


def ports_down(facts: Facts, _: float) -> Iterator[str]:
    """Yield RDMA ports that are down and ought to be up."""
    wanted = {
        (fact.labels["device"], fact.labels["port"])
        for fact in facts.all(c.NIC_EXPECTED_UP)
        if fact.value == 1
    }
    for fact in facts.all(c.NIC_UP):
        port = fact.labels["device"], fact.labels["port"]
        if port[1] and fact.value == 0 and port in wanted:
            yield about(fact)


def saturated(facts: Facts, _: float) -> Iterator[str]:
    """Yield ports of which a counter has reached its end."""
    for fact in facts.all(c.NIC_SATURATED):
        if fact.labels.get("port") and fact.value == 1:
            yield about(fact)


_BAD_SETTINGS = frozenset((
    "ib_disabled", "hca_missing", "socket_interface_rdma", "socket_interface_missing",
    "socket_interface_local",
))  # fmt: skip


def bad_settings(facts: Facts, _: float) -> Iterator[str]:
    """Yield runs whose NCCL settings keep it from the node's adapters."""
    for fact in facts.all(c.NCCL_ENVIRONMENT_PROBLEM):
        if fact.value == 1 and fact.labels["kind"] in _BAD_SETTINGS:
            yield about(fact)


_MODEL = ("model_name", "model_version", "engine", "server")


def full_caches(facts: Facts, _: float) -> Iterator[str]:
    """Yield models whose KV cache is full while requests wait."""
    waiting = {_model(fact): fact.value for fact in facts.all(c.LLM_WAITING_REQUESTS)}
    for fact in facts.all(c.LLM_KV_CACHE_USAGE_RATIO):
        if fact.value > 0.95 and waiting.get(_model(fact), 0) > 0:
            yield about(fact)


def contradictions(facts: Facts, _: float) -> Iterator[str]:
    """Yield models whose requests in flight do not fit their latency (Little's law)."""
    rates = {_model(one): one.value for one in facts.all(c.LLM_REQUESTS_PER_SECOND, window="5m")}
    for fact in facts.all(c.LLM_LITTLE_QUOTIENT, window="5m"):
        if not 0.5 <= fact.value <= 2 and rates.get(_model(fact), 0) > 0.2:
            yield about(fact)


def _model(fact: Fact) -> tuple[str, ...]:
    return tuple([fact.labels[name] for name in _MODEL])


def no_number(facts: Facts, _: float) -> Iterator[str]:
    """Yield runs with a loss that is NaN or infinite."""
    for _metric, (run,), value in facts.view.samples(c.TRAIN_LOSS):
        if isinstance(value, int | float) and not math.isfinite(value):
            yield run


def young_runs(metric: Metric, limit: float, age: float) -> Find:
    """Return what finds runs not older than `age` seconds of which `metric` is above a limit."""

    def find(facts: Facts, _: float) -> Iterator[str]:
        elapsed = facts.by(c.TRAIN_ELAPSED_SECONDS, "run")
        for fact in facts.all(metric):
            if fact.value > limit and elapsed.get(fact.labels["run"], math.inf) < age:
                yield about(fact)

    return find


def old_checkpoints(facts: Facts, now: float) -> Iterator[str]:
    """Yield runs that get on and have saved nothing for two hours."""
    stalled = facts.by(c.TRAIN_STALLED, "run")
    for fact in facts.all(c.TRAIN_LAST_CHECKPOINT_TIMESTAMP_SECONDS):
        if now - fact.value > 7200 and stalled.get(fact.labels["run"]) == 0:
            yield about(fact)


_HARDWARE = frozenset((
    "clock", "link_errors", "congestion", "paused", "pausing", "pcie_errors", "pcie_width",
))  # fmt: skip


def hardware(facts: Facts, _: float) -> Iterator[str]:
    """Yield runs that the diagnosis sees held back by hardware, and by what."""
    for fact in facts.all(c.DIAGNOSIS_CAUSE):
        if fact.value == 1 and fact.labels["run"] and fact.labels["cause"] in _HARDWARE:
            yield about(fact)


def old_prices(facts: Facts, _: float) -> Iterator[str]:
    """Yield sources of prices that have not been renewed."""
    for fact in facts.all(c.COST_PRICE_AGE_SECONDS):
        if fact.value > (3600 if fact.labels["source"] == "opencost" else 15552000):
            yield about(fact)


def maintenance(facts: Facts, now: float) -> Iterator[str]:
    """Yield the cloud's works on this node that begin within a day."""
    for fact in facts.all(c.SPOT_MAINTENANCE_DEADLINE_TIMESTAMP_SECONDS):
        if fact.value - now < 86400:
            yield about(fact)


def unwatched(facts: Facts, now: float) -> Iterator[str]:
    """Yield the node where the cloud has not answered for long, or not since the daemon began."""
    if any(fact.value == 1 for fact in facts.all(c.SPOT_NOTICE_SUPPORTED)):
        last = facts.all(c.SPOT_LAST_SUCCESS_TIMESTAMP_SECONDS)
        times = [fact.value for fact in last or facts.all(c.PROCESS_START_TIME_SECONDS)]
        if times and now - max(times) > 300:
            yield "this node"


def stuck(facts: Facts, _: float) -> Iterator[str]:
    """Yield sources whose read has not returned for five minutes."""
    yield from (one.name for one in facts.view.sources if (one.busy or 0) > 300)


def unreadable(facts: Facts, _: float) -> Iterator[str]:
    """Yield inference servers and probes that bring nothing."""
    for one in facts.view.sources:
        if one.name.startswith(("inference:", "probe:")) and one.state in _DOWN:
            yield one.name


_DOWN = frozenset(("failed", "stale", "stuck"))


def recovery(*, grave: bool) -> Find:
    """Return what finds GPUs for which the driver asks for a reset, or (not grave) to drain."""
    return where(
        c.GPU_RECOVERY_ACTION,
        (lambda a: a > 0 and a not in {3, 4}) if grave else (lambda a: a in {3, 4}),
    )
