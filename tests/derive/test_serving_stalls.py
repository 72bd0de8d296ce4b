"""Stalls, Little's law, and requests whose clients went away: by hand and from recorded pages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.derive.serving.book import Entity
from exporter.derive.serving.stalls import Stalls
from exporter.engines import Translator, load_engines
from exporter.formats.exposition import Reader
from exporter.samples import Sample
from tests.derive.serving_lab import Found, Lab, entity, get, observed, told

PAGES = Path(__file__).parent.parent / "data" / "engines"
WHO = entity()


def info(who: Entity) -> Sample:
    return c.LLM_SERVER_INFO(1, who.engine, who.server, "")


def page(
    who: Entity = WHO, *, waiting: float = 0, active: float = 0, output: float = 0, steps: float = 0
) -> list[Sample]:
    return [
        info(who),
        c.LLM_WAITING_REQUESTS(waiting, *who),
        c.LLM_ACTIVE_REQUESTS(active, *who),
        c.LLM_TOKENS_TOTAL(output, *who[:2], "output", *who[2:]),
        c.LLM_TOKENS_TOTAL(100, *who[:2], "input", *who[2:]),
        c.LLM_ENGINE_STEPS_TOTAL(steps, *who),
    ]


# ---------------------------------------------------------------- stalls


def test_a_server_that_hangs_with_a_queue_is_stalled_after_a_minute() -> None:
    """sglang#24140: nothing runs, requests wait, no token comes."""
    part, lab = Stalls(), Lab()
    assert get(lab.run(lambda t: page(waiting=3), [part], 60), c.LLM_STALLED) == 0.0
    lab.now += 5
    assert get(lab.run(lambda t: page(waiting=3), [part], 5), c.LLM_STALLED) == 1.0
    assert part.stalled() == {WHO}
    lab.now += 5
    assert get(lab.run(lambda t: page(waiting=3, output=1), [part], 0), c.LLM_STALLED) == 0.0
    assert part.stalled() == set()


def test_a_server_that_stops_in_mid_load_is_stalled_a_minute_later() -> None:
    """The last token comes at 200 s: at 255 s it is too early to say, at 270 s it is not."""

    def at(t: float) -> list[Sample]:
        return page(waiting=3, output=50 * min(t, 200), steps=20 * min(t, 200))

    assert get(Lab().run(at, [Stalls()], 255), c.LLM_STALLED) == 0.0
    assert get(Lab().run(at, [Stalls()], 270), c.LLM_STALLED) == 1.0


@pytest.mark.parametrize(
    ("waiting", "output", "steps"),
    [
        (0.0, 0.0, 0.0),  # idle
        (3.0, 0.1, 0.0),  # slow, but a token now and then
        (3.0, 0.0, 1.0),  # a long prompt: no token for minutes, but the engine works on it
    ],
)
def test_a_server_that_is_idle_or_moves_is_not_stalled(
    waiting: float, output: float, steps: float
) -> None:
    said = Lab().run(
        lambda t: page(waiting=waiting, output=t // 20 * output, steps=steps * t), [Stalls()], 300
    )
    assert get(said, c.LLM_STALLED) == 0.0


def test_a_queue_that_empties_in_between_is_no_stall() -> None:
    """No single wait of a minute: the queue was empty at 140 s."""
    said = Lab().run(lambda t: page(waiting=0 if t == 140 else 3), [Stalls()], 195)
    assert get(said, c.LLM_STALLED) == 0.0


def test_without_a_queue_or_tokens_nobody_can_tell_of_a_stall() -> None:
    no_queue = [s for s in page(waiting=3) if s.metric is not c.LLM_WAITING_REQUESTS]
    nothing_moves = [info(WHO), c.LLM_WAITING_REQUESTS(3, *WHO)]
    for known in (no_queue, nothing_moves):
        assert get(Lab().run(lambda t, known=known: known, [Stalls()], 200), c.LLM_STALLED) is None


def test_a_server_that_is_gone_is_not_stalled_when_it_comes_back() -> None:
    part, lab = Stalls(), Lab()
    lab.run(lambda t: page(waiting=3), [part], 100)
    lab.now += 5
    assert lab.run(lambda t: [], [part], 0) == {}
    lab.now += 5
    assert get(lab.run(lambda t: page(waiting=3), [part], 0), c.LLM_STALLED) == 0.0


# ---------------------------------------------------------------- Little's law


def load(
    t: float, *, active: float, rate: float = 2.0, e2e: float = 2.0, queue: float | None = 0.5
) -> list[Sample]:
    found = [info(WHO), c.LLM_ACTIVE_REQUESTS(active, *WHO), c.LLM_WAITING_REQUESTS(1, *WHO)]
    found.append(c.LLM_E2E_SECONDS(observed(rate * t, e2e), *WHO))
    if queue is not None:
        found.append(c.LLM_QUEUE_SECONDS(observed(rate * t, queue), *WHO))
    return found


def test_little_s_law_holds_for_gauges_that_are_true() -> None:
    """Two requests a second, 1.5 s each in work: 3 in work on average."""
    said = Lab().run(lambda t: load(t, active=3), [Stalls(("5m",))], 300)
    assert get(said, c.LLM_LITTLE_QUOTIENT, window="5m") == pytest.approx(1.0)


def test_a_gauge_that_stuck_shows_in_little_s_quotient() -> None:
    """sglang#4244: the gauge says 12 in work for ever."""
    said = Lab().run(lambda t: load(t, active=12), [Stalls(("5m",))], 300)
    assert get(said, c.LLM_LITTLE_QUOTIENT) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("rate", "e2e", "queue"),
    [
        (0.05, 2.0, 0.5),  # 15 requests
        (2.0, 45.0, 0.5),  # the window is not ten times as long as a request
        (2.0, 2.0, None),  # some wait, and nobody says for how long
    ],
)
def test_little_s_law_says_nothing_with_too_little_to_go_by(
    rate: float, e2e: float, queue: float | None
) -> None:
    said = Lab().run(
        lambda t: load(t, active=3, rate=rate, e2e=e2e, queue=queue), [Stalls(("5m",))], 300
    )
    assert get(said, c.LLM_LITTLE_QUOTIENT) is None


def test_little_s_law_needs_several_minutes() -> None:
    said = Lab().run(lambda t: load(t, active=3), [Stalls(("1m",))], 300)
    assert get(said, c.LLM_LITTLE_QUOTIENT) is None


# ---------------------------------------------------------------- lost requests


def recorded(name: str) -> list[Sample]:
    """Return what a recorded vLLM page says; the tokens of finished requests by its own name."""
    engine = next(engine for engine in load_engines() if engine.name == "vllm")
    body = (PAGES / name).read_bytes()
    samples = Translator(engine, "a").translate(Reader(engine.wanted).read(body))
    kept = [
        s
        for s in samples
        if isinstance(s, Sample) and s.metric is not c.LLM_FINISHED_OUTPUT_TOKENS_TOTAL
    ]
    (finished,) = (
        float(line.split()[-1])
        for line in body.decode().splitlines()
        if line.startswith("vllm:request_generation_tokens_sum")
    )
    (who,) = (s.labels for s in kept if s.metric is c.LLM_E2E_SECONDS)
    return [*kept, c.LLM_FINISHED_OUTPUT_TOKENS_TOTAL(finished, *who)]


def settle(lab: Lab, part: Stalls, samples: Iterable[Sample], seconds: float = 20) -> Found:
    """Show the same page for a while."""
    known = list(samples)
    lab.now += 5
    return lab.run(lambda t: known, [part], seconds)


def test_clients_that_went_away_are_counted_on_a_recorded_vllm() -> None:
    """225 first tokens, 220 ends: 5 aborts and 93 tokens for nobody, which vLLM tells nowhere."""
    lab, part = Lab(), Stalls()
    cold = settle(lab, part, recorded("vllm-0.32.0-cpu-cold.prom"))
    assert get(cold, c.LLM_ABORTED_REQUESTS_TOTAL) == 0.0
    load = settle(lab, part, recorded("vllm-0.32.0-cpu-underload.prom"))
    assert get(load, c.LLM_ABORTED_REQUESTS_TOTAL) == 0.0  # 97 - 91 - 6 in work
    assert get(load, c.LLM_WASTED_TOKENS_TOTAL) == 0.0  # 160 tokens are of those in work
    rest = settle(lab, part, recorded("vllm-0.32.0-cpu.prom"))
    assert get(rest, c.LLM_ABORTED_REQUESTS_TOTAL) == 5.0
    assert get(rest, c.LLM_WASTED_TOKENS_TOTAL) == 93.0


def lossy(
    firsts: float,
    ends: float,
    *,
    active: float = 0,
    waiting: float = 0,
    preempted: float = 0,
    who: Entity = WHO,
) -> list[Sample]:
    """Return a page of vLLM; each first token came with 10 tokens, each end with all of them."""
    return [
        info(who),
        c.LLM_TTFT_SECONDS(observed(firsts, 0.2), *who),
        c.LLM_E2E_SECONDS(observed(ends, 2.0), *who),
        c.LLM_ACTIVE_REQUESTS(active, *who),
        c.LLM_WAITING_REQUESTS(waiting, *who),
        c.LLM_PREEMPTIONS_TOTAL(preempted, *who),
        c.LLM_TOKENS_TOTAL(10 * firsts, *who[:2], "output", *who[2:]),
        c.LLM_FINISHED_OUTPUT_TOKENS_TOTAL(10 * ends, *who),
    ]


def test_what_was_lost_before_the_first_look_is_not_counted() -> None:
    """A daemon that restarts begins at 0, as a counter may; it never jumps to the engine's past."""
    lab, part = Lab(), Stalls()
    said = settle(lab, part, lossy(1000, 900, active=40))
    assert get(said, c.LLM_ABORTED_REQUESTS_TOTAL) == 0.0
    said = settle(lab, part, lossy(1100, 1000, active=40))
    assert get(said, c.LLM_ABORTED_REQUESTS_TOTAL) == 0.0
    said = settle(lab, part, lossy(1100, 1000))  # 40 were in work, and went away
    assert get(said, c.LLM_ABORTED_REQUESTS_TOTAL) == 0.0
    said = settle(lab, part, lossy(1110, 1003))
    assert get(said, c.LLM_ABORTED_REQUESTS_TOTAL) == 7.0
    assert get(said, c.LLM_WASTED_TOKENS_TOTAL) == 70.0


def test_a_request_that_runs_or_was_thrown_out_of_the_batch_is_not_lost() -> None:
    """Of 20 first tokens without an end 12 run, and 8 that wait may have been preempted."""
    lab, part = Lab(), Stalls()
    settle(lab, part, lossy(0, 0))
    said = settle(lab, part, lossy(100, 80, active=12, waiting=8, preempted=9))
    assert get(said, c.LLM_ABORTED_REQUESTS_TOTAL) == 0.0
    said = settle(lab, part, lossy(100, 80, active=12, waiting=50, preempted=9))
    assert get(said, c.LLM_ABORTED_REQUESTS_TOTAL) == 0.0


def test_those_that_wait_were_never_begun_where_nothing_was_preempted() -> None:
    lab, part = Lab(), Stalls()
    settle(lab, part, lossy(0, 0))
    said = settle(lab, part, lossy(100, 80, active=12, waiting=50))
    assert get(said, c.LLM_ABORTED_REQUESTS_TOTAL) == 8.0


def test_a_page_whose_parts_are_an_iteration_apart_loses_no_request() -> None:
    """For one page a request has left the batch and not yet ended."""
    lab, part = Lab(), Stalls()
    settle(lab, part, lossy(0, 0))
    lab.now += 5
    pages = [lossy(10, 5, active=4), lossy(10, 6, active=4)]
    said = lab.run(lambda t: pages[int(t / 5) % 2], [part], 60)
    assert get(said, c.LLM_ABORTED_REQUESTS_TOTAL) == 0.0


def test_losses_outlive_a_restart_of_the_server() -> None:
    """3 before, 2 after: 5 in all, and never less than before."""
    lab, part = Lab(), Stalls()
    settle(lab, part, lossy(0, 0))
    assert get(settle(lab, part, lossy(10, 7)), c.LLM_ABORTED_REQUESTS_TOTAL) == 3.0
    said = settle(lab, part, lossy(4, 2))
    assert get(said, c.LLM_ABORTED_REQUESTS_TOTAL) == 5.0
    assert get(said, c.LLM_WASTED_TOKENS_TOTAL) == 50.0


def test_losses_never_fall_whatever_the_pages_say() -> None:
    lab, part, before = Lab(), Stalls(), 0.0
    settle(lab, part, lossy(0, 0))
    pages = [(9, 5, 0), (9, 9, 0), (12, 9, 3), (30, 25, 1), (3, 9, 0), (9, 9, 4)]
    for firsts, ends, active in pages:
        said = settle(lab, part, lossy(firsts, ends, active=active))
        now = get(said, c.LLM_ABORTED_REQUESTS_TOTAL)
        assert now is not None
        assert now >= before
        before = now


def test_engines_that_tell_of_aborts_are_left_to_do_so() -> None:
    lab, part, who = Lab(), Stalls(), entity(engine="sglang")
    settle(lab, part, lossy(0, 0, who=who))
    said = settle(lab, part, lossy(10, 5, who=who))
    assert get(said, c.LLM_ABORTED_REQUESTS_TOTAL) is None


def test_a_page_without_ends_tells_nothing_of_losses() -> None:
    lab, part = Lab(), Stalls()
    known = [s for s in lossy(10, 5) if s.metric is not c.LLM_E2E_SECONDS]
    assert get(settle(lab, part, known), c.LLM_ABORTED_REQUESTS_TOTAL) is None


def test_a_server_that_is_gone_for_an_hour_is_forgotten() -> None:
    lab, part = Lab(), Stalls()
    settle(lab, part, lossy(0, 0))
    lab.now += 3700
    lab.show(page(entity("b")))
    told(part(lab.book, lab.view, lab.now))
    assert WHO not in part._hidden
