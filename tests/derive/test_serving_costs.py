"""What tokens and requests cost: dollars and tokens of the same service and the same window."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import pytest

from exporter import catalogue as c
from exporter.derive.serving.book import Entity
from exporter.derive.serving.costs import Costs, Policy
from exporter.derive.serving.node import Node
from exporter.samples import Sample
from tests.derive.cost_lab import info
from tests.derive.serving_lab import Found, Lab, entity, get, gpu, observed

COST = c.LLM_COST_PER_MILLION_TOKENS_DOLLARS


def page(
    who: Entity, t: float, rate: float = 2.0, into: int = 1000, out: int = 100
) -> list[Sample]:
    """Return an engine's page after t seconds of so many requests a second."""
    return [
        c.LLM_SERVER_INFO(1, who.engine, who.server, ""),
        c.LLM_TOKENS_TOTAL(rate * t * into, *who[:2], "input", *who[2:]),
        c.LLM_TOKENS_TOTAL(rate * t * out, *who[:2], "output", *who[2:]),
        c.LLM_E2E_SECONDS(observed(rate * t, 1.0), *who),
    ]


def paid(t: float, number: int, price: float = 3.6, busy: float = 0.25) -> list[Sample]:
    """Return the dollars of a GPU after t seconds, 3.6 dollars an hour being 0.001 a second."""
    total = price * t / 3600
    return [
        c.COST_GPU_HOUR_DOLLARS(price, *gpu(number)),
        c.COST_DOLLARS_TOTAL(total * busy, *gpu(number), "busy"),
        c.COST_DOLLARS_TOTAL(total * (1 - busy), *gpu(number), "idle"),
    ]


def on(server: str, *numbers: int) -> list[Sample]:
    return [c.LLM_SERVER_GPU(1, server, *gpu(number)) for number in numbers]


def run(
    at: Callable[[float], Iterable[Sample]],
    seconds: float = 300.0,
    policy: Policy | None = None,
    windows: tuple[str, ...] = ("5m",),
) -> Found:
    return Lab().run(at, [Costs(Node(), policy, windows)], seconds)


def test_the_cost_of_tokens_by_hand() -> None:
    """Two GPUs at 0.001 dollars a second each; 2,000 tokens in and 200 out, of weight 4."""
    who = entity()
    said = run(lambda t: [*page(who, t), *paid(t, 0), *paid(t, 1), *on("a", 0, 1)])

    each = 0.002 / (2000 + 4 * 200) * 1e6
    assert get(said, COST, direction="input") == pytest.approx(each)
    assert get(said, COST, direction="output") == pytest.approx(4 * each)
    assert get(said, COST, direction="blended") == pytest.approx(0.002 / 2200 * 1e6)
    assert get(said, c.LLM_TOKENS_PER_DOLLAR) == pytest.approx(200 / 0.002)
    assert get(said, c.LLM_QUERIES_PER_DOLLAR) == pytest.approx(2 / 0.002)
    assert all("gpus" in key for key in said)


def test_the_parts_are_all_of_the_dollars() -> None:
    """Input at its price and output at its own make what the GPUs cost, at any weight."""
    who = entity()
    for weight in (1.0, 3.0, 5.0):
        said = run(lambda t: [*page(who, t), *paid(t, 0), *on("a", 0)], policy=Policy(weight))
        prices = {d: get(said, COST, direction=d) or math.nan for d in ("input", "output")}
        assert (prices["input"] * 2000 + prices["output"] * 200) / 1e6 == pytest.approx(0.001)


def test_two_models_of_a_server_share_its_dollars_by_their_tokens() -> None:
    """None of them pays for all of it."""
    one, other = entity(model="m"), entity(model="n")
    said = run(lambda t: [*page(one, t), *page(other, t, rate=6.0)[1:], *paid(t, 0), *on("a", 0)])
    total = sum(
        (get(said, COST, direction="blended", model_name=name) or math.nan) * tokens / 1e6
        for name, tokens in (("m", 2200), ("n", 6600))
    )
    assert total == pytest.approx(0.001)


def test_two_servers_on_a_gpu_share_it() -> None:
    """What a GPU costs is counted once."""
    one, other = entity("a"), entity("b")
    said = run(lambda t: [*page(one, t), *page(other, t), *paid(t, 0), *on("a", 0), *on("b", 0)])
    assert get(said, COST, direction="blended", server="a") == pytest.approx(0.0005 / 2200 * 1e6)


def test_without_tokens_there_is_no_cost_of_them() -> None:
    """An idle server costs dollars, and not infinitely many a token."""
    who = entity()
    assert run(lambda t: [*page(who, t, rate=0.0), *paid(t, 0), *on("a", 0)]) == {}


def test_without_known_gpus_there_is_no_cost() -> None:
    who = entity()
    assert run(lambda t: [*page(who, t), *paid(t, 0)]) == {}


def test_a_gpu_without_dollars_makes_no_cheap_tokens() -> None:
    """One of two GPUs has no price: half of the cost would be wrong."""
    who = entity()
    assert run(lambda t: [*page(who, t), *paid(t, 0), *on("a", 0, 1)]) == {}


@pytest.mark.parametrize("policy", [Policy(), Policy(node=True)])
def test_tokens_do_not_become_free_when_the_price_is_lost(policy: Policy) -> None:
    """The counter of dollars stays where it was: tokens cost less and less, then 0.00."""
    who = entity()

    def at(t: float) -> list[Sample]:
        dollars = paid(min(t, 400), 0)
        gpus = [] if policy.node else on("a", 0)
        return [*page(who, t), *(dollars if t <= 400 else dollars[1:]), *gpus]

    assert run(at, 400, policy)
    for later in (410, 600, 900):
        assert run(at, later, policy) == {}


def test_a_server_that_shares_all_gpus_is_not_cheap_by_one_without_a_price() -> None:
    who = entity()

    def at(t: float) -> list[Sample]:
        return [*page(who, t), *paid(t, 0), info(0), info(1)]

    assert run(at, policy=Policy(node=True)) == {}


def test_a_second_server_does_not_pay_for_the_time_before_it_came() -> None:
    """One server had the GPU for 55 minutes alone: it owes those, and half of the last five."""
    one, other = entity("a"), entity("b")

    def at(t: float) -> list[Sample]:
        both = [*page(other, t - 3300), *on("b", 0)] if t >= 3300 else []
        return [*page(one, t), *both, *paid(t, 0), *on("a", 0)]

    said = run(at, 3600, windows=("1h",))
    assert get(said, COST, direction="blended", server="a") == pytest.approx(
        0.001 * (3300 + 150) / 3600 / 2200 * 1e6, rel=2e-3
    )


def test_servers_that_nobody_placed_share_what_is_left_where_that_is_wanted() -> None:
    """By configuration, and said: neither GPUs of another server nor those of a run."""
    who, placed, third = entity("a"), entity("b"), entity("c")

    def at(t: float) -> list[Sample]:
        pages = [*page(who, t), *page(placed, t), *page(third, t)]
        gpus = [sample for number in range(4) for sample in paid(t, number)]
        return [*pages, *gpus, *on("b", 0), c.TRAIN_RUN_GPU(1, "run", *gpu(1))]

    said = run(at, policy=Policy(node=True))
    blended = {
        server: get(said, COST, direction="blended", server=server, basis=basis)
        for server, basis in (("a", "node"), ("b", "gpus"), ("c", "node"))
    }
    assert blended == {name: pytest.approx(0.001 / 2200 * 1e6) for name in "abc"}


def test_nothing_is_said_of_less_than_five_minutes() -> None:
    """In a minute a long request is many tokens or none."""
    who = entity()

    def at(t: float) -> list[Sample]:
        return [*page(who, t), *paid(t, 0), *on("a", 0)]

    assert run(at, 240) == {}
    assert run(at, 300, windows=("1m",)) == {}


def test_a_changed_price_is_that_of_the_window() -> None:
    """The price doubled an hour ago, and tokens came as before: the hour knows both halves."""
    who = entity()

    def at(t: float) -> list[Sample]:
        late = max(0.0, t - 3600)
        return [*page(who, t), *_sum(paid(t, 0), paid(late, 0)), *on("a", 0)]

    said = run(at, 3600 + 1800, windows=("5m", "1h"))
    assert get(said, COST, direction="blended", window="5m") == pytest.approx(0.002 / 2200 * 1e6)
    assert get(said, COST, direction="blended", window="1h") == pytest.approx(
        0.0015 / 2200 * 1e6, rel=2e-3
    )


def _sum(some: list[Sample], others: list[Sample]) -> list[Sample]:
    return [
        Sample(one.metric, one.labels, one.value + other.value)  # type: ignore[operator]
        for one, other in zip(some, others, strict=True)
    ]


def test_dollars_that_began_in_the_middle_of_a_window_are_not_held_against_all_its_tokens() -> None:
    """The price became known two minutes ago, the tokens are of five: nothing is said yet."""
    who = entity()

    def at(t: float) -> list[Sample]:
        dollars = paid(t - 180, 0) if t >= 180 else []
        return [*page(who, t), *dollars, *on("a", 0)]

    assert run(at, 300) == {}
    assert run(at, 600)


def test_counters_that_begin_anew_make_no_cheap_tokens() -> None:
    """After a crash dollars begin at 0: the window is whole again five minutes later."""
    who = entity()

    def at(t: float) -> list[Sample]:
        return [*page(who, t), *paid(t if t < 400 else t - 400, 0), *on("a", 0)]

    assert run(at, 395)
    assert run(at, 500) == {}
    assert get(run(at, 800), COST, direction="blended") == pytest.approx(0.001 / 2200 * 1e6)
