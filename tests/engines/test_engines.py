"""The engines' files and the translation of recorded pages."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.board import Board
from exporter.engines import (
    MAX_MODELS,
    MAX_VALUES,
    Engine,
    EngineError,
    Translator,
    detect,
    load_engines,
)
from exporter.exposition import Exposition
from exporter.formats.exposition import Page, Reader
from exporter.samples import Drop, Gate, Histogram, Metric, Sample, Snapshot, Value
from tests.fakes import FakeClock

PAGES = Path(__file__).parent.parent / "data" / "engines"

COMPLETE = [
    "vllm-0.32.0-cpu.prom",
    "vllm-0.32.0-cpu-cold.prom",
    "vllm-0.32.0-cpu-underload.prom",
    "vllm-0.32.0-cpu-dp2.prom",
    "vllm-0.32.0-cpu-apiservers2.prom",
    "vllm-0.4.x-v0-cpu-2024-06.prom",
    "llamacpp-b10434.prom",
    "llamacpp-b10434-cold.prom",
    "llamacpp-b10434-underload.prom",
    "llamacpp-b11549-xllamacpp.prom",
    "ik_llamacpp-2025-08.prom",
]


SHIPPED = load_engines()


def engine(name: str) -> Engine:
    return next(engine for engine in SHIPPED if engine.name == name)


def parse(text: str) -> Page:
    return Reader().read(text.encode())


def recorded(name: str) -> list[Sample | Drop]:
    """Translate a recorded page as the source does: recognised, then read with what is wanted."""
    body = (PAGES / name).read_bytes()
    wide = Reader().read(body).shape
    found = detect(SHIPPED, wide)
    assert found is not None
    return list(Translator(found, "a").translate(Reader(found.wanted).read(body)))


def translate(text: str, name: str = "vllm", model: str | None = None) -> list[Sample | Drop]:
    return list(Translator(engine(name), "a", model).translate(parse(text)))


def value(samples: Iterable[Sample | Drop], metric: Metric, **labels: str) -> Value:
    """Return the one sample of a metric that has these labels."""
    (found,) = values(samples, metric, **labels)
    return found


def values(samples: Iterable[Sample | Drop], metric: Metric, **labels: str) -> list[Value]:
    return [
        s.value
        for s in samples
        if isinstance(s, Sample)
        and s.metric is metric
        and labels.items() <= dict(zip(metric.labels, s.labels, strict=True)).items()
    ]


def histogram(samples: Iterable[Sample | Drop], metric: Metric, **labels: str) -> Histogram:
    found = value(samples, metric, **labels)
    assert isinstance(found, Histogram)
    return found


def names(samples: Iterable[Sample | Drop], metric: Metric, label: str) -> list[str]:
    at = metric.labels.index(label)
    return [s.labels[at] for s in samples if isinstance(s, Sample) and s.metric is metric]


def quality(samples: Iterable[Sample | Drop], metric: Metric) -> list[str]:
    return [
        s.labels[3]
        for s in samples
        if isinstance(s, Sample) and s.metric is c.LLM_SOURCE_INFO and s.labels[2] == metric.name
    ]


def unresolved(samples: Iterable[Sample | Drop]) -> list[str]:
    return names(samples, c.LLM_MAPPING_UNRESOLVED, "metric")


def made(samples: Iterable[Sample | Drop]) -> set[str]:
    """Return the names of what was translated, notes left out."""
    notes = (
        c.LLM_SERVER_INFO, c.LLM_SOURCE_INFO, c.LLM_MAPPING_UNRESOLVED, c.LLM_SERVER_RANKS,
        c.LLM_RANK_CHANGES_TOTAL,
    )  # fmt: skip
    return {s.metric.name for s in samples if isinstance(s, Sample) and s.metric not in notes}


# ---------------------------------------------------------------- recorded pages


def test_vllm_histograms_are_the_engines_own() -> None:
    """Counts of the run are found again, as whole numbers, with the engine's bounds and sum."""
    samples = recorded("vllm-0.32.0-cpu.prom")
    counts = {
        metric.name: histogram(samples, metric).counts[-1]
        for metric in (c.LLM_TTFT_SECONDS, c.LLM_ITL_SECONDS, c.LLM_TPOT_SECONDS)
    }
    assert counts == {"llm_ttft_seconds": 225, "llm_itl_seconds": 14714, "llm_tpot_seconds": 220}
    e2e = histogram(samples, c.LLM_E2E_SECONDS, model_name="mid-llama", model_version="")
    assert e2e.counts[-1] == 220
    assert e2e.sum == 1036.0585157871246
    assert e2e.bounds[:4] == (0.3, 0.5, 0.8, 1.0)
    assert e2e.bounds[-1] == 7680
    assert {type(count) for count in e2e.counts} == {int}


def test_vllm_bucket_counts_are_cumulative() -> None:
    """The share within a bound is that of the clients' own clocks (156 of 225 within 2.5 s)."""
    ttft = histogram(recorded("vllm-0.32.0-cpu.prom"), c.LLM_TTFT_SECONDS)
    within = dict(zip(ttft.bounds, ttft.counts, strict=False))
    assert (within[0.25], within[1.0], within[2.5], within[10.0]) == (126, 154, 156, 209)


def test_vllm_counters_and_gauges() -> None:
    """Tokens, outcomes, HTTP classes, prefix cache and busy seconds of the recorded run."""
    samples = recorded("vllm-0.32.0-cpu.prom")
    assert value(samples, c.LLM_TOKENS_TOTAL, direction="input") == 80905
    assert value(samples, c.LLM_TOKENS_TOTAL, direction="output") == 14939
    assert value(samples, c.LLM_REQUESTS_TOTAL, outcome="length") == 213
    assert value(samples, c.LLM_REQUESTS_TOTAL, outcome="abort") == 0
    assert value(samples, c.LLM_REQUESTS_TOTAL, outcome="rejected") == 0
    assert value(samples, c.LLM_HTTP_RESPONSES_TOTAL, code="2xx") == 225
    assert value(samples, c.LLM_HTTP_RESPONSES_TOTAL, code="4xx") == 11
    assert value(samples, c.LLM_PREFIX_CACHE_QUERIED_TOKENS_TOTAL) == 80905
    assert value(samples, c.LLM_PREFIX_CACHE_HIT_TOKENS_TOTAL) == 19968
    assert value(samples, c.LLM_PREFILL_SECONDS_TOTAL) == 52.17777339299573
    assert value(samples, c.LLM_DECODE_SECONDS_TOTAL) == 481.0829682830031
    assert value(samples, c.LLM_KV_CACHE_USAGE_RATIO) == 0
    assert value(samples, c.LLM_PREEMPTIONS_TOTAL) == 0


def test_a_loaded_vllm_shows_what_is_going_on() -> None:
    """Under load the requests in the batch and the share of the KV cache are above zero."""
    samples = recorded("vllm-0.32.0-cpu-underload.prom")
    assert value(samples, c.LLM_ACTIVE_REQUESTS, model_name="mid-llama") > 0  # type: ignore[operator]
    assert 0 < value(samples, c.LLM_KV_CACHE_USAGE_RATIO) < 1  # type: ignore[operator]


def test_data_parallel_ranks_are_added_up() -> None:
    """Two engines of one server make one series: counters and every bucket are summed."""
    samples = recorded("vllm-0.32.0-cpu-dp2.prom")
    assert value(samples, c.LLM_TOKENS_TOTAL, direction="output") == 2239 + 2091
    assert value(samples, c.LLM_REQUESTS_TOTAL, outcome="length") == 56 + 53
    ttft = histogram(samples, c.LLM_TTFT_SECONDS)
    assert ttft.counts[-1] == 56 + 53
    assert ttft.sum == 2.815563678741455 + 2.5088868141174316
    tpot = histogram(samples, c.LLM_TPOT_SECONDS)
    assert (tpot.bounds[0], tpot.counts[0]) == (0.01, 54 + 51)


def test_v0_names_are_alternatives() -> None:
    """The V0 page has its per-step interval under the name of a TPOT, and other KV names."""
    samples = recorded("vllm-0.4.x-v0-cpu-2024-06.prom")
    assert histogram(samples, c.LLM_ITL_SECONDS, model_name="facebook/opt-125m").counts[-1] == 6
    assert histogram(samples, c.LLM_TTFT_SECONDS).counts[-1] == 1
    assert value(samples, c.LLM_KV_CACHE_USAGE_RATIO) == 0
    assert value(samples, c.LLM_WAITING_REQUESTS) == 0
    assert quality(samples, c.LLM_WAITING_REQUESTS) == ["derived"]
    assert c.LLM_TPOT_SECONDS.name not in made(samples)


def test_llamacpp_counters() -> None:
    """Input is processed and cached tokens; there are no latencies and no throughput gauges."""
    samples = recorded("llamacpp-b10434.prom")
    assert value(samples, c.LLM_TOKENS_TOTAL, direction="input") == 67682 + 12288
    assert value(samples, c.LLM_TOKENS_TOTAL, direction="output") == 20006
    assert value(samples, c.LLM_PREFILL_SECONDS_TOTAL) == 88.8366
    assert value(samples, c.LLM_DECODE_SECONDS_TOTAL) == 343.431
    assert value(samples, c.LLM_PREFIX_CACHE_HIT_TOKENS_TOTAL) == 12288
    assert quality(samples, c.LLM_TOKENS_TOTAL) == ["derived"]
    assert made(samples) == {
        "llm_tokens_total",
        "llm_prefill_seconds_total",
        "llm_decode_seconds_total",
        "llm_active_requests",
        "llm_waiting_requests",
        "llm_prefix_cache_queried_tokens_total",
        "llm_prefix_cache_hit_tokens_total",
        "llm_prefill_tokens_total",
        "llm_engine_steps_total",
        "llm_draft_tokens_total",
        "llm_accepted_draft_tokens_total",
    }


def test_an_older_llamacpp_is_used_as_far_as_it_goes() -> None:
    """Without a count of cached tokens the input is biased; the fork's KV gauge is read."""
    samples = recorded("ik_llamacpp-2025-08.prom")
    assert value(samples, c.LLM_TOKENS_TOTAL, direction="input") == 6886
    assert quality(samples, c.LLM_TOKENS_TOTAL) == ["biased"]
    assert value(samples, c.LLM_KV_CACHE_USAGE_RATIO) == 0.491063
    assert c.LLM_PREFIX_CACHE_HIT_TOKENS_TOTAL.name not in made(samples)


@pytest.mark.parametrize("name", COMPLETE)
def test_required_rows_resolve_on_complete_pages(name: str) -> None:
    """Every complete recording of an engine offers all that is required of it."""
    assert unresolved(recorded(name)) == []


@pytest.mark.parametrize("name", COMPLETE)
def test_samples_are_well_formed(name: str) -> None:
    """Nothing that is translated is dropped later: labels, values, cumulation, duplicates."""
    samples = [s for s in recorded(name) if isinstance(s, Sample)]
    batch, drops = Gate(10_000).admit(samples)
    assert (len(batch), dict(drops)) == (len(samples), {})
    assert len(samples) == len(recorded(name))


@pytest.mark.parametrize("name", COMPLETE)
def test_wanted_names_are_enough(name: str) -> None:
    """A reader that keeps only the wanted names gives the same samples as one that keeps all."""
    body = (PAGES / name).read_bytes()
    found = detect(SHIPPED, Reader().read(body).shape)
    assert found is not None
    assert list(Translator(found, "a").translate(Reader().read(body))) == recorded(name)


def test_each_metric_says_where_it_comes_from() -> None:
    """There is one note for each metric that was made, with the names as the page spells them."""
    samples = recorded("ray-2.32-vllm-v0-excerpt.prom")
    assert sorted(names(samples, c.LLM_SOURCE_INFO, "metric")) == sorted(made(samples))
    sources = names(samples, c.LLM_SOURCE_INFO, "source")
    assert "ray_vllm:prompt_tokens_total, ray_vllm:generation_tokens_total" in sources
    assert quality(recorded("vllm-0.32.0-cpu.prom"), c.LLM_REQUESTS_TOTAL) == ["biased"]


def test_the_server_is_introduced() -> None:
    """Each page gives the engine's name; its version is on no page and stays empty."""
    (info,) = [s for s in recorded("vllm-0.32.0-cpu.prom") if s[0] is c.LLM_SERVER_INFO]
    assert info == c.LLM_SERVER_INFO(1, "vllm", "a", "")


# ---------------------------------------------------------------- traps


def bucketed(name: str, counts: Iterable[float], total: float, labels: str = "") -> str:
    """Write a histogram with the bounds 1, 2, ... and +Inf from cumulative counts."""
    cumulative = list(counts)
    bounds = [*map(str, range(1, len(cumulative))), "+Inf"]
    lines = [
        f'{name}_bucket{{{labels}le="{le}"}} {n}\n'
        for le, n in zip(bounds, cumulative, strict=True)
    ]
    tail = f"{{{labels}}}" if labels else ""
    return f"{''.join(lines)}{name}_sum{tail} {total}\n{name}_count{tail} {cumulative[-1]}\n"


TTFT = "vllm:time_to_first_token_seconds"
TPOT = "vllm:request_time_per_output_token_seconds"


@pytest.mark.parametrize(
    "name", ["vllm:prompt_tokens_total", "vllm:prompt_tokens", "ray_vllm_prompt_tokens_total"]
)
def test_a_counter_is_found_with_and_without_its_suffix(name: str) -> None:
    """Simulators leave out `_total`, Ray writes an underscore for the colon."""
    samples = translate(f'{name}{{model_name="m"}} 7\n')
    assert value(samples, c.LLM_TOKENS_TOTAL, direction="input", model_name="m") == 7


def test_a_histogram_whose_name_ends_like_a_counter(tmp_path: Path) -> None:
    """`iteration_tokens_total` is a histogram: its buckets are found, it is no counter."""
    (tmp_path / "x.yaml").write_text(
        """
engine: x
prefixes: ["x:"]
rows:
  - metric: llm_itl_seconds
    sources: [{name: iteration_tokens_total, quality: exact, semantics: steps}]
  - metric: llm_preemptions_total
    sources: [{name: iteration_tokens_total, quality: exact, semantics: steps}]
"""
    )
    found = next(e for e in load_engines(tmp_path) if e.name == "x")
    page = parse(bucketed("x:iteration_tokens_total", [3, 4], 9.0))
    samples = list(Translator(found, "a").translate(page))
    assert histogram(samples, c.LLM_ITL_SECONDS) == Histogram((1.0,), (3, 4), 9.0)
    assert made(samples) == {"llm_itl_seconds"}


@pytest.mark.parametrize("text", ["NaN", "-nan", "nan", "-1", "-1.0"])
def test_an_unknown_gauge_is_absent(text: str) -> None:
    """NaN and the sentinel -1 mean "not measured": no sample, no note, no drop."""
    samples = translate(f'vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {text}\n')
    assert made(samples) == set()
    assert quality(samples, c.LLM_KV_CACHE_USAGE_RATIO) == []
    assert not any(isinstance(s, Drop) for s in samples)


def test_one_unknown_rank_makes_the_sum_unknown() -> None:
    """The requests of two ranks are not known if one rank's are not."""
    text = 'vllm:num_requests_running{{engine="{0}"}} {1}\n'
    assert made(translate(text.format(0, 3) + text.format(1, "NaN"))) == set()


@pytest.mark.parametrize("text", ["-5", "+Inf"])
def test_a_counter_that_makes_no_sense_is_dropped_and_counted(text: str) -> None:
    """Counters cannot be negative or infinite (vllm#10430); the rest of the page stays."""
    samples = translate(f"vllm:prompt_tokens_total {text}\nvllm:generation_tokens_total 3\n")
    assert values(samples, c.LLM_TOKENS_TOTAL) == [3]
    assert samples[-1] == Drop("value", 1)


def test_observations_that_are_all_zero_were_never_taken() -> None:
    """vllm#6337: a full histogram with sum 0 is left out, without a claim to be exact."""
    samples = translate(bucketed(TTFT, [208, 208, 208], 0.0))
    assert made(samples) == set()
    assert quality(samples, c.LLM_TTFT_SECONDS) == []


def test_a_histogram_without_observations_is_kept() -> None:
    """Before the first request all counts are zero: that is known, and a baseline."""
    samples = translate(bucketed(TTFT, [0, 0, 0], 0.0))
    assert histogram(samples, c.LLM_TTFT_SECONDS) == Histogram((1.0, 2.0), (0, 0, 0), 0.0)


@pytest.mark.parametrize("missing", ['le="+Inf"', "_sum"])
def test_an_incomplete_histogram_is_not_used(missing: str) -> None:
    """Without its last bucket or its sum a histogram gives nothing and counts as missing."""
    text = bucketed(TTFT, [1, 2, 3], 4.0)
    cut = "".join(line for line in text.splitlines(keepends=True) if missing not in line)
    samples = translate(cut)
    assert made(samples) == set()
    assert "llm_ttft_seconds" in unresolved(samples)


def test_buckets_that_disagree_with_the_count_are_dropped() -> None:
    """A histogram that contradicts itself is left out and counted."""
    text = bucketed(TTFT, [1, 2, 3], 4.0).replace("_count 3", "_count 4")
    samples = translate(text)
    assert made(samples) == set()
    assert samples[-1] == Drop("value", 1)


def test_nan_in_a_histogram() -> None:
    """A bucket that is NaN is nonsense; a sum that is NaN (Rust front end) is unknown."""
    nan_bucket = bucketed(TTFT, ["NaN", 2, 3], 4.0)  # type: ignore[list-item]
    assert translate(nan_bucket)[-1] == Drop("value", 1)
    nan_sum = translate(bucketed(TTFT, [1, 2, 3], math.nan))
    assert made(nan_sum) == set()
    assert not any(isinstance(s, Drop) for s in nan_sum)


def test_single_token_requests_are_taken_out_of_tpot() -> None:
    """vLLM observes 0 where there is no second token: as many as requests of one token."""
    page = bucketed(TPOT, [5, 8, 9], 7.5) + bucketed("vllm:request_generation_tokens", [2, 9], 99.0)
    samples = translate(page)
    assert histogram(samples, c.LLM_TPOT_SECONDS) == Histogram((1.0, 2.0), (3, 6, 7), 7.5)
    assert quality(samples, c.LLM_TPOT_SECONDS) == ["exact"]


def test_only_single_token_requests_leave_no_tpot() -> None:
    """A server that scores has no time per token: its histogram is empty, not full of zeros."""
    page = bucketed(TPOT, [9, 9], 0.0) + bucketed("vllm:request_generation_tokens", [9, 9], 9.0)
    assert histogram(translate(page), c.LLM_TPOT_SECONDS) == Histogram((1.0,), (0, 0), 0.0)


def test_tpot_without_a_count_of_single_tokens_is_biased() -> None:
    """Where the bucket for one token is configured away, the zeros stay and that is said."""
    samples = translate(bucketed(TPOT, [5, 8, 9], 7.5))
    assert histogram(samples, c.LLM_TPOT_SECONDS).counts == (5, 8, 9)
    assert quality(samples, c.LLM_TPOT_SECONDS) == ["biased"]


def test_more_zeros_than_observations_are_nonsense() -> None:
    """Zeros that the first bucket does not hold cannot be taken out of it."""
    page = bucketed(TPOT, [1, 9], 7.5) + bucketed("vllm:request_generation_tokens", [2, 9], 99.0)
    samples = translate(page)
    assert c.LLM_TPOT_SECONDS.name not in made(samples)
    assert samples[-1] == Drop("value", 1)


def test_ranks_with_other_bounds_meet_on_the_common_ones() -> None:
    """Buckets can be added up only where both ranks have them."""
    first = bucketed(TTFT, [1, 2, 4], 5.0, 'engine="0",')
    second = bucketed(TTFT, [10, 40], 50.0, 'engine="1",')
    found = histogram(translate(first + second), c.LLM_TTFT_SECONDS)
    assert found == Histogram((1.0,), (11, 44), 55.0)


def test_bounds_are_numbers_however_they_are_written() -> None:
    """`1`, `1.0` and `1e+00` are the same bound; the order of lines does not matter."""
    text = (
        f'{TTFT}_count 4\n{TTFT}_sum 5.5\n{TTFT}_bucket{{le="+Inf"}} 4\n'
        f'{TTFT}_bucket{{le="1e+01"}} 3\n{TTFT}_bucket{{le="2"}} 2\n'
    )
    found = histogram(translate(text), c.LLM_TTFT_SECONDS)
    assert found == Histogram((2.0, 10.0), (2, 3, 4), 5.5)


KV = 'vllm:kv_cache_usage_perc{engine="0"} 0.2\nvllm:kv_cache_usage_perc{engine="1"} 0.8\n'
BLOCKS = 'vllm:cache_config_info{{engine="{0}",num_gpu_blocks="{1}"}} 1\n'


def test_kv_usage_is_weighted_by_capacity() -> None:
    """A rank with three times the blocks counts three times."""
    text = KV + BLOCKS.format(0, 300) + BLOCKS.format(1, 100)
    assert value(translate(text), c.LLM_KV_CACHE_USAGE_RATIO) == pytest.approx(0.35)


@pytest.mark.parametrize("blocks", ["", BLOCKS.format(0, 300) + BLOCKS.format(1, "None")])
def test_kv_usage_is_a_plain_mean_where_capacity_is_unknown(blocks: str) -> None:
    """Early versions and the Rust front end do not tell the number of blocks."""
    assert value(translate(KV + blocks), c.LLM_KV_CACHE_USAGE_RATIO) == pytest.approx(0.5)


def test_the_type_of_the_kv_cache_is_told() -> None:
    """Once for all ranks; the page names no model there, so it is the page's only one."""
    running = 'vllm:num_requests_running{engine="0",model_name="m"} 1\n'
    config = 'vllm:cache_config_info{{cache_dtype="fp8_e4m3",engine="{0}"}} 1.0\n'
    samples = translate(running + config.format(0) + config.format(1))
    assert value(samples, c.LLM_KV_CACHE_INFO, model_name="m", dtype="fp8_e4m3") == 1


def test_a_kv_cache_of_untold_type_is_not_told() -> None:
    """Pages that leave the type out say nothing of it."""
    assert not names(translate(KV + BLOCKS.format(0, 300)), c.LLM_KV_CACHE_INFO, "dtype")


def test_models_of_one_server_are_kept_apart() -> None:
    """Series with different model names do not mix."""
    text = 'vllm:num_requests_running{{engine="0",model_name="{0}"}} {1}\n'
    samples = translate(text.format("a", 1) + text.format("b", 2))
    assert value(samples, c.LLM_ACTIVE_REQUESTS, model_name="a") == 1
    assert value(samples, c.LLM_ACTIVE_REQUESTS, model_name="b") == 2


def test_models_beyond_the_cap_are_summed_as_other() -> None:
    """No page can make more than a fixed number of models; nothing of it is lost."""
    lines = [f'vllm:generation_tokens_total{{model_name="m{i}"}} 1\n' for i in range(100)]
    samples = translate("".join(lines))
    models = names(samples, c.LLM_TOKENS_TOTAL, "model_name")
    assert len(models) == MAX_MODELS + 1
    assert value(samples, c.LLM_TOKENS_TOTAL, model_name="other") == 100 - MAX_MODELS


def test_models_that_were_kept_stay_kept() -> None:
    """A new model that comes first on the page does not push a known one into `other`."""
    line = 'vllm:generation_tokens_total{{model_name="{0}"}} 1\n'.format
    known = "".join(line(f"m{i}") for i in range(MAX_MODELS))
    translator = Translator(engine("vllm"), "a")
    translator.translate(parse(known))
    samples = list(translator.translate(parse(line("new") + known)))
    models = names(samples, c.LLM_TOKENS_TOTAL, "model_name")
    assert "m63" in models
    assert "new" not in models
    assert value(samples, c.LLM_TOKENS_TOTAL, model_name="other") == 1


def test_a_model_in_other_stays_there_when_another_leaves() -> None:
    """Taking its place made it look new, with all its past, and `other` fell by as much."""
    line = 'vllm:generation_tokens_total{{model_name="m{0}"}} 1000\n'.format
    translator = Translator(engine("vllm"), "a")
    every = range(MAX_MODELS + 3)
    translator.translate(parse("".join(map(line, every))))
    samples = list(translator.translate(parse("".join(map(line, every[5:])))))
    assert value(samples, c.LLM_TOKENS_TOTAL, model_name="other") == 3000
    # One that has left the page altogether is like any other when it comes back.
    translator.translate(parse("".join(map(line, every[5:-1]))))
    samples = list(translator.translate(parse("".join(map(line, every[5:])))))
    assert value(samples, c.LLM_TOKENS_TOTAL, model_name=f"m{every[-1]}") == 1000


@pytest.mark.parametrize("label", ["", '{model_name=""}', '{model_name="undefined"}'])
def test_a_page_without_a_model_takes_the_configured_name(label: str) -> None:
    """Configuration stands in where the page says nothing."""
    samples = translate(f"vllm:num_requests_running{label} 1\n", model="mine")
    assert value(samples, c.LLM_ACTIVE_REQUESTS, model_name="mine") == 1


def test_a_series_without_a_model_belongs_to_the_pages_only_one() -> None:
    """vLLM's capacity names no model: it is that of the server's only one, else of none."""
    line = 'vllm:num_requests_waiting{{model_name="{0}"}} 2\n'.format
    bare = "vllm:num_requests_running 1\n"
    only = translate(bare + line("m"), model="mine")
    assert value(only, c.LLM_ACTIVE_REQUESTS, model_name="m") == 1
    assert value(only, c.LLM_WAITING_REQUESTS, model_name="m") == 2
    several = translate(bare + line("m") + line("n"), model="mine")
    assert value(several, c.LLM_ACTIVE_REQUESTS, model_name="mine") == 1


def test_repeated_numbers_of_other_servers_are_not_counted() -> None:
    """The production-stack router repeats its engines' gauges with a label `server`."""
    text = 'vllm:num_requests_running{server="http://10.0.0.1:8000"} 5\n'
    assert made(translate(text)) == set()


def test_only_inference_routes_count_as_responses() -> None:
    """Health checks and scrapes are no requests; what is no status is left out."""
    text = (
        'http_requests_total{handler="/health",status="2xx"} 900\n'
        'http_requests_total{handler="none",status="4xx"} 50\n'
        'http_requests_total{handler="/v1/completions",method="POST",status="404"} 3\n'
        'http_requests_total{handler="/v1/responses",method="POST",status="4xx"} 4\n'
        'http_requests_total{handler="/v1/responses",method="GET",status="weird"} 4\n'
    )
    samples = translate(text + "vllm:num_requests_running 0\n")
    assert names(samples, c.LLM_HTTP_RESPONSES_TOTAL, "code") == ["404", "4xx"]
    assert value(samples, c.LLM_HTTP_RESPONSES_TOTAL, code="404") == 3
    assert value(samples, c.LLM_HTTP_RESPONSES_TOTAL, code="4xx") == 4


def test_one_prefix_serves_the_whole_page() -> None:
    """Where a page passes on the same families under two prefixes the preferred one is used."""
    text = (
        "ray_vllm_num_requests_running 5\nvllm:num_requests_running 3\n"
        "ray_vllm_num_requests_waiting 1\n"
    )
    samples = translate(text)
    assert value(samples, c.LLM_ACTIVE_REQUESTS) == 3
    assert "llm_waiting_requests" in unresolved(samples)


def test_a_missing_required_metric_is_named_once() -> None:
    """A rename upstream shows on the day it lands, one series for each metric."""
    body = (PAGES / "vllm-0.32.0-cpu.prom").read_text()
    renamed = body.replace("vllm:time_to_first_token", "vllm:ttft").replace("_tokens_total", "_t")
    assert unresolved(translate(renamed)) == ["llm_ttft_seconds", "llm_tokens_total"]


def test_a_metric_of_newer_versions_is_missed_where_the_version_is_new() -> None:
    """TPOT is required beside a family that came later than it, and not on older pages."""
    body = (PAGES / "vllm-0.32.0-cpu.prom").read_text()
    assert unresolved(translate(body.replace(TPOT, "vllm:tpot"))) == ["llm_tpot_seconds"]


def test_a_declared_family_without_series_is_not_missing() -> None:
    """Front ends that make series at first use declare them before."""
    body = (PAGES / "vllm-0.32.0-cpu.prom").read_text()
    lines = body.splitlines(keepends=True)
    cold = "".join(line for line in lines if line.startswith("#") or TTFT not in line)
    assert "llm_ttft_seconds" not in made(translate(cold))
    assert unresolved(translate(cold)) == []


def test_absence_says_nothing_on_a_page_that_broke_off() -> None:
    """Of a truncated page what is there is used, and nothing is reported as missing."""
    body = (PAGES / "vllm-0.32.0-cpu.prom").read_bytes()
    reader, translator = Reader(), Translator(engine("vllm"), "a")
    translator.translate(reader.read(body))
    page = reader.read(body[: len(body) // 2])
    assert page.partial
    samples = list(translator.translate(page))
    assert value(samples, c.LLM_TOKENS_TOTAL, direction="output") == 14939
    assert unresolved(samples) == []


def test_a_first_page_that_is_damaged_shows_no_rank_alone() -> None:
    """Whether there were others is not known: the sum may be a part of the sum."""
    one = b'vllm:generation_tokens_total{engine="0",model_name="m"} 3\nvllm:prompt'
    alone = b'vllm:generation_tokens_total{model_name="m"} 3\nvllm:prompt'
    ranked = list(Translator(engine("vllm"), "a").translate(Reader().read(one)))
    plain = list(Translator(engine("vllm"), "a").translate(Reader().read(alone)))
    assert values(ranked, c.LLM_TOKENS_TOTAL) == []
    assert value(plain, c.LLM_TOKENS_TOTAL, direction="output") == 3


# ---------------------------------------------------------------- from read to read


def test_values_follow_the_page() -> None:
    """The plan is made for the series, not for their values."""
    reader, translator = Reader(), Translator(engine("vllm"), "a")
    first = list(translator.translate(reader.read(b"vllm:generation_tokens_total 3\n")))
    second = list(translator.translate(reader.read(b"vllm:generation_tokens_total 8\n")))
    assert value(first, c.LLM_TOKENS_TOTAL) == 3
    assert value(second, c.LLM_TOKENS_TOTAL) == 8


def test_new_series_make_a_new_plan() -> None:
    """A family that appears later is found then."""
    reader, translator = Reader(), Translator(engine("vllm"), "a")
    translator.translate(reader.read(b"vllm:generation_tokens_total 3\n"))
    text = b"vllm:generation_tokens_total 3\nvllm:num_requests_running 1\n"
    assert value(list(translator.translate(reader.read(text))), c.LLM_ACTIVE_REQUESTS) == 1


def test_the_same_series_give_the_same_shape() -> None:
    """What comes after the translation may compare by identity while nothing changes."""
    body = (PAGES / "vllm-0.32.0-cpu.prom").read_bytes()
    reader, translator, gate = Reader(), Translator(engine("vllm"), "a"), Gate(10_000)
    shapes = set()
    for _ in range(2):
        samples = list(translator.translate(reader.read(body)))
        batch, _ = gate.admit([s for s in samples if isinstance(s, Sample)])
        shapes.add(id(batch.shape))
    assert len(shapes) == 1


# ---------------------------------------------------------------- recognising


ENGINES = [
    "app", "dynamo", "litellm", "llamacpp", "lmdeploy", "mindie", "nim", "opentelemetry", "ray",
    "sglang", "tgi", "triton", "trtllm", "vllm",
]  # fmt: skip


def detected(text: str) -> str | None:
    found = detect(SHIPPED, parse(text).shape)
    return None if found is None else found.name


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("vllm:x", "vllm"),
        ("ray_vllm:x", "vllm"),
        ("ray_vllm_x", "vllm"),
        ("kserve_vllm:x", "vllm"),
        ("llamacpp:x", "llamacpp"),
        ("sglang:x", "sglang"),
        ("trtllm_x", "trtllm"),
        ("trtllm:x", "trtllm"),
        ("tgi_x", "tgi"),
        ("nv_inference_count", "triton"),
        ("nv_trt_llm_x", "triton"),
        ("nv_gpu_utilization", None),
        ("dynamo_frontend_x", "dynamo"),
        ("lmdeploy:x", "lmdeploy"),
        ("ray_serve_x", "ray"),
        ("ray_x", None),
        ("litellm_x", "litellm"),
        ("gen_ai_server_x", "opentelemetry"),
        ("llm_active_requests", "app"),
        ("llm_x", None),
        ('num_request_max{model_name="m"}', "nim"),
        ("num_request_max", None),
        ('request_received_total{model_name="m"}', "mindie"),
        ("request_received_total", None),
        ('num_requests_running{model_name="m",engine_type="PyTorch"}', "trtllm"),
        ('num_requests_running{model_name="m"}', None),
        ("http_requests_total", None),
        ("process_start_time_seconds", None),
    ],
)
def test_engines_are_recognised_by_their_names(name: str, owner: str | None) -> None:
    """A prefix gives an engine away; bare names need a name or a label that only one has."""
    assert detected(f"up 1\n{name} 1\n") == owner


def test_a_declared_family_gives_its_engine_away() -> None:
    """SGLang's series come with the first request, the declarations may be there before."""
    assert detected("# TYPE sglang:num_running_reqs gauge\n") == "sglang"


@pytest.mark.parametrize(
    ("around", "engine_name"),
    [
        ("dynamo_frontend_requests_total 1\n", "vllm:num_requests_running 1\n"),
        ("nv_inference_count 1\n", "vllm:num_requests_running 1\n"),
        ("ray_serve_num_http_requests_total 1\n", "ray_vllm_num_requests_running 1\n"),
        ("gen_ai_client_token_usage_sum 1\n", "vllm:num_requests_running 1\n"),
        ("llm_active_requests 1\n", "vllm:num_requests_running 1\n"),
    ],
)
def test_the_engines_own_word_is_preferred(around: str, engine_name: str) -> None:
    """What stands around an engine passes its page on: the engine's names are read, once."""
    assert detected(around + engine_name) == "vllm"
    assert detected(engine_name + around) == "vllm"


@pytest.mark.parametrize(
    "text",
    [
        'vllm:num_requests_running{server="http://10.0.0.1:8000"} 5\n',
        '# TYPE sglang_x gauge\nsglang_x{worker_addr="grpc://worker:8001"} 1\n',
        'sglang_x{source="http://10.0.0.1:30000"} 1\n',
    ],
)
def test_a_page_that_only_repeats_others_is_no_engines(text: str) -> None:
    """Routers show their workers' series with one label more: counted at the workers."""
    assert detected(text) is None


def test_our_own_page_is_no_application() -> None:
    """A server that is read is not counted again through the page that we make of it."""
    clock, board = FakeClock(), Board()
    slot = board.enroll("a", c.SERVING, 2.0, 12.0, clock.monotonic())
    samples = [s for s in recorded("vllm-0.32.0-cpu.prom") if isinstance(s, Sample)]
    batch, drops = Gate(10_000).admit(samples)
    slot.publish(Snapshot("a", c.SERVING, clock.monotonic(), clock.time(), 0.01, batch), drops)
    exposition = Exposition(lambda: board.view(clock.monotonic()), list, clock)
    page = exposition.page((frozenset((c.SERVING,)), False, False)).decode()
    assert 'engine="vllm"' in page
    assert "llm_ttft_seconds_bucket{" in page
    assert detected(page) is None
    assert made(translate(page, "app")) == set()


def test_only_llamacpp_is_destructive() -> None:
    """Reading vLLM's page changes nothing; reading llama.cpp's does."""
    assert [e.name for e in SHIPPED if e.destructive] == ["llamacpp"]


def test_wanted_includes_what_has_no_prefix() -> None:
    """HTTP responses and the start stand outside vLLM's prefixes; nothing else is of use."""
    wanted = engine("vllm").wanted
    assert "http_requests_total" in wanted
    assert "process_start_time_seconds" in wanted
    assert "process_cpu_seconds" not in {name.removesuffix("_total") for name in wanted}


# ---------------------------------------------------------------- the language


def mine(
    tmp_path: Path, rows: str, page: str, top: str = "", **options: str
) -> list[Sample | Drop]:
    """Translate a page by an engine with these rows; `top` are more of its keys."""
    text = f'engine: mine\nprefixes: ["mine:"]\n{top}\nrows:\n{rows}'
    (tmp_path / "mine.yaml").write_text(text)
    found = load_engines(tmp_path)[-1]
    return list(Translator(found, "a", **options).translate(parse(page)))


GAUGE = """
  - metric: llm_active_requests
    sources:
      - {{name: running, quality: exact, semantics: x, {0}}}
      - {{name: other, quality: exact, semantics: x}}
""".format
COUNTER = """
  - metric: llm_preemptions_total
    sources:
      - {{name: number_total, quality: exact, semantics: x, {0}}}
""".format
OUTCOME = """
  - metric: llm_requests_total
    sources:
      - {{name: done_total, quality: exact, semantics: x, labels: {{outcome: {{from: why, {0}}}}}}}
""".format


def test_a_condition_may_want_a_label_to_be_absent(tmp_path: Path) -> None:
    """SGLang's total has an empty priority, or none; its parts have one."""
    page = 'mine:running{p=""} 3\nmine:running{p="1"} 2\nmine:running{p="2"} 1\n'
    assert value(mine(tmp_path, GAUGE('where: {p: ""}'), page), c.LLM_ACTIVE_REQUESTS) == 3
    bare = "mine:running 3\n"
    assert value(mine(tmp_path, GAUGE('where: {p: [x, ""]}'), bare), c.LLM_ACTIVE_REQUESTS) == 3
    whole = mine(tmp_path, GAUGE("scale: 1"), page, 'where: {p: ""}')
    assert value(whole, c.LLM_ACTIVE_REQUESTS) == 3


def test_copies_are_not_added_up(tmp_path: Path) -> None:
    """Of tensor-parallel ranks the lowest counts, 2 before 10; data-parallel ones are summed."""
    page = (
        'mine:running{dp="0",tp="10"} 7\nmine:running{dp="0",tp="2"} 5\n'
        'mine:running{dp="1",tp="11"} 3\n'
    )
    samples = mine(tmp_path, GAUGE("scale: 1"), page, "copy_labels: [tp]\nrank_labels: [dp]")
    assert value(samples, c.LLM_ACTIVE_REQUESTS) == 5 + 3
    assert value(samples, c.LLM_SERVER_RANKS) == 2


def test_histograms_of_copies_are_not_added_up(tmp_path: Path) -> None:
    """A scheduler's histogram is on the page once per rank."""
    rows = "\n  - metric: llm_queue_seconds\n    sources: [{name: q, quality: exact, semantics: x}]"
    page = "".join(bucketed("mine:q", [1, 2], 3.0, f'tp="{tp}",') for tp in range(4))
    samples = mine(tmp_path, rows, page, "copy_labels: [tp]")
    assert histogram(samples, c.LLM_QUEUE_SECONDS) == Histogram((1.0,), (1, 2), 3.0)


def test_the_number_of_ranks_follows_the_page() -> None:
    """A rank that came or went is told; a damaged page tells nothing of it."""
    line = 'vllm:generation_tokens_total{{engine="{0}",model_name="m"}} 3\n'.format
    reader, translator = Reader(), Translator(engine("vllm"), "a")

    def ranks(body: str) -> list[Value]:
        return values(list(translator.translate(reader.read(body.encode()))), c.LLM_SERVER_RANKS)

    assert ranks(line(0)) == [1]
    assert ranks(line(0) + line(1) + line(2)) == [3]
    assert ranks(line(0) + line(1) + "vllm:prompt") == []
    assert ranks(line(0) + line(1)) == [2]
    assert ranks("vllm:generation_tokens_total 3\n") == [1]


def test_a_rank_that_is_replaced_is_a_change_of_ranks() -> None:
    """Ray names the worker: with another one in its place there are still as many."""
    line = 'ray_vllm:generation_tokens_total{{WorkerId="{0}",model_name="m"}} 3\n'.format
    reader, translator = Reader(), Translator(engine("vllm"), "a")

    def changes(body: str) -> list[Value]:
        samples = list(translator.translate(reader.read(body.encode())))
        return values(samples, c.LLM_RANK_CHANGES_TOTAL)

    assert changes(line("w1") + line("w2")) == [0]
    assert changes(line("w1") + line("w2")) == [0]
    assert changes(line("w1") + line("w3")) == [1]
    assert changes(line("w1") + "ray_vllm:prompt") == []
    assert changes(line("w1") + line("w3")) == [1]
    # All of them are others: a restart, and the counters say so themselves.
    assert changes(line("w4") + line("w5")) == [1]


def test_words_become_ours(tmp_path: Path) -> None:
    """Two words of theirs may be one of ours; what is not listed is `other` or stays."""
    line = 'mine:done_total{{why="{0}"}} {1}\n'.format
    page = line("gone", 1) + line("left", 2) + line("odd", 4) + "mine:done_total 8\n"
    rows = OUTCOME('words: {gone: abort, left: abort, "": success}, other: error')
    samples = mine(tmp_path, rows, page)
    assert value(samples, c.LLM_REQUESTS_TOTAL, outcome="abort") == 3
    assert value(samples, c.LLM_REQUESTS_TOTAL, outcome="error") == 4
    assert value(samples, c.LLM_REQUESTS_TOTAL, outcome="success") == 8
    kept = mine(tmp_path, OUTCOME("words: {gone: abort}"), page)
    assert names(kept, c.LLM_REQUESTS_TOTAL, "outcome") == ["abort", "left", "odd"]


def test_thousands_of_reasons_starve_nothing_else() -> None:
    """8,000 of them filled all series that a server may have; the rest is summed as `other`."""
    line = 'vllm:request_success_total{{model_name="m",finished_reason="{0}"}} {1}\n'.format
    rest = 'vllm:kv_cache_usage_perc{model_name="m"} 0.5\n'
    reader, translator = Reader(), Translator(engine("vllm"), "a")

    def read(body: str) -> list[Sample | Drop]:
        return list(translator.translate(reader.read(body.encode())))

    many = "".join(line(f"r{n}", 1) for n in range(8000)) + line("stop", 5)
    samples = read(many + rest)
    assert value(samples, c.LLM_KV_CACHE_USAGE_RATIO) == 0.5
    outcomes = names(samples, c.LLM_REQUESTS_TOTAL, "outcome")
    assert len(outcomes) == MAX_VALUES + 2
    assert value(samples, c.LLM_REQUESTS_TOTAL, outcome="other") == 8000 - MAX_VALUES
    # what has a meaning is never among them, and what was summed never falls
    assert value(samples, c.LLM_REQUESTS_TOTAL, outcome="stop") == 5
    samples = read(many.replace('="r0"', '="new"') + rest)
    assert value(samples, c.LLM_REQUESTS_TOTAL, outcome="other") == 8000 - MAX_VALUES + 1


@pytest.mark.parametrize("engine_name", ["vllm", "app"])
def test_a_share_in_percent_is_dropped(engine_name: str) -> None:
    """85 of a KV cache is no ratio; the rounding of a sum is none either, but shows 1."""
    name = {"vllm": "vllm:kv_cache_usage_perc", "app": "llm_kv_cache_usage_ratio"}[engine_name]
    line = (name + '{{model_name="m"}} {0}\n').format
    for text, shown in (("1", [1]), ("1.0000000002", [1]), ("0.85", [0.85]), ("85", [])):
        samples = translate(line(text), engine_name)
        assert values(samples, c.LLM_KV_CACHE_USAGE_RATIO) == shown
        drops = [s for s in samples if isinstance(s, Drop)]
        assert drops == ([] if shown else [Drop("value", 1)])


@pytest.mark.parametrize(
    ("theirs", "ours"), [("ResponseType.CANCEL", "abort"), ("CANCEL", "abort"), ("X.NEW", "new")]
)
def test_a_printed_member_of_an_enumeration(tmp_path: Path, theirs: str, ours: str) -> None:
    """LMDeploy's reasons are what Python prints of an enumeration."""
    rows = OUTCOME("as: member, words: {cancel: abort}")
    samples = mine(tmp_path, rows, f'mine:done_total{{why="{theirs}"}} 1\n')
    assert names(samples, c.LLM_REQUESTS_TOTAL, "outcome") == [ours]


def test_a_status_class_may_become_a_word(tmp_path: Path) -> None:
    """The class is made first, then it is put into words."""
    page = 'mine:done_total{why="404"} 1\nmine:done_total{why="503"} 2\n'
    samples = mine(tmp_path, OUTCOME("as: status_class, words: {4xx: invalid}, other: error"), page)
    assert value(samples, c.LLM_REQUESTS_TOTAL, outcome="invalid") == 1
    assert value(samples, c.LLM_REQUESTS_TOTAL, outcome="error") == 2


def test_a_status_code_itself_may_have_a_word(tmp_path: Path) -> None:
    """A 429 is our refusal, any other 4xx the client's mistake."""
    page = 'mine:done_total{why="429"} 1\nmine:done_total{why="404"} 2\n'
    rows = OUTCOME('as: status_class, words: {"429": rejected, 4xx: invalid}, other: error')
    samples = mine(tmp_path, rows, page)
    assert value(samples, c.LLM_REQUESTS_TOTAL, outcome="rejected") == 1
    assert value(samples, c.LLM_REQUESTS_TOTAL, outcome="invalid") == 2


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("429", ["429"]), ("4xx", ["4xx"]), ("4XX", ["4xx"]), ("600", []), ("4x9", []), ("", []),
     ("42\u0669", []), ("429 ", []), ("1000", [])],
)  # fmt: skip
def test_a_status_is_kept_as_the_page_tells_it(
    tmp_path: Path, theirs: str, ours: list[str]
) -> None:
    """A code where there is one, else the class; nothing that only looks like one."""
    samples = mine(tmp_path, OUTCOME("as: status"), f'mine:done_total{{why="{theirs}"}} 1\n')
    assert names(samples, c.LLM_REQUESTS_TOTAL, "outcome") == ours


def test_one_number_over_another(tmp_path: Path) -> None:
    """Sums over sums: of two ranks the larger one counts more. Nothing over nothing is unknown."""
    page = (
        'mine:running{k="used",r="0"} 30\nmine:running{k="used",r="1"} 10\n'
        'mine:running{k="max",r="0"} 60\nmine:running{k="max",r="1"} 20\n'
    )
    rows = GAUGE("where: {k: used}, over: {name: running, where: {k: max}}")
    assert value(mine(tmp_path, rows, page), c.LLM_ACTIVE_REQUESTS) == 0.5
    nothing = 'mine:running{k="used"} 0\nmine:running{k="max"} 0\n'
    assert values(mine(tmp_path, rows, nothing), c.LLM_ACTIVE_REQUESTS) == []
    alone = 'mine:running{k="used"} 5\nmine:other 9\n'
    assert value(mine(tmp_path, rows, alone), c.LLM_ACTIVE_REQUESTS) == 9


def test_one_number_times_another(tmp_path: Path) -> None:
    """The size of a block is the same for all ranks and is not added up."""
    page = (
        'mine:running{r="0"} 100\nmine:running{r="1"} 50\n'
        'mine:size{r="0"} 16\nmine:size{r="1"} 16\n'
    )
    samples = mine(tmp_path, GAUGE("times: {name: size}"), page)
    assert value(samples, c.LLM_ACTIVE_REQUESTS) == 150 * 16


def test_one_number_less_another(tmp_path: Path) -> None:
    """Open less queued requests; two numbers that are not of one moment give no negative one."""
    rows = GAUGE("less: {name: queued}")
    assert (
        value(mine(tmp_path, rows, "mine:running 7\nmine:queued 2\n"), c.LLM_ACTIVE_REQUESTS) == 5
    )
    assert (
        value(mine(tmp_path, rows, "mine:running 1\nmine:queued 2\n"), c.LLM_ACTIVE_REQUESTS) == 0
    )
    unknown = mine(tmp_path, rows, "mine:running 7\nmine:queued NaN\n")
    assert values(unknown, c.LLM_ACTIVE_REQUESTS) == []


def test_a_number_that_stands_in_labels(tmp_path: Path) -> None:
    """Products over labels are summed over ranks; a word in one of them asks for the next way."""
    line = 'mine:running{{r="{0}",blocks="{1}",size="16"}} 1\n'.format
    rows = GAUGE("numbers: [blocks, size]")
    samples = mine(tmp_path, rows, line(0, 100) + line(1, 50))
    assert value(samples, c.LLM_ACTIVE_REQUESTS) == 150 * 16
    unknown = mine(tmp_path, rows, line(0, 100) + line(1, "None") + "mine:other 5\n")
    assert value(unknown, c.LLM_ACTIVE_REQUESTS) == 5


def test_a_counter_that_is_zero_when_off_is_absent(tmp_path: Path) -> None:
    """vLLM's estimates stay 0 without a flag: no work and not known look alike there."""
    rows = COUNTER("zero_is_off: true")
    off = mine(tmp_path, rows, "mine:number_total 0\n")
    assert made(off) == set()
    assert not any(isinstance(s, Drop) for s in off)
    assert value(mine(tmp_path, rows, "mine:number_total 5\n"), c.LLM_PREEMPTIONS_TOTAL) == 5


def test_a_counter_may_be_a_mean_over_ranks(tmp_path: Path) -> None:
    """What each rank says of one of its GPUs is not what all GPUs did."""
    page = 'mine:number_total{r="0"} 4\nmine:number_total{r="1"} 2\n'
    assert value(mine(tmp_path, COUNTER("combine: mean"), page), c.LLM_PREEMPTIONS_TOTAL) == 3


def test_a_way_may_depend_on_another_name(tmp_path: Path) -> None:
    """A counter that comes late must not take over from another in mid-run."""
    rows = COUNTER("unless: live_total")
    page = "mine:number_total 5\n"
    assert value(mine(tmp_path, rows, page), c.LLM_PREEMPTIONS_TOTAL) == 5
    for late in ("mine:live_total 1\n", "# TYPE mine:live_total counter\n"):
        assert values(mine(tmp_path, rows, page + late), c.LLM_PREEMPTIONS_TOTAL) == []
    beside = COUNTER("only_with: live_total")
    assert values(mine(tmp_path, beside, page), c.LLM_PREEMPTIONS_TOTAL) == []
    with_it = mine(tmp_path, beside, page + "mine:live_total 1\n")
    assert value(with_it, c.LLM_PREEMPTIONS_TOTAL) == 5


def test_sglangs_counters_do_not_change_places() -> None:
    """Short requests end before the scheduler's first log: the output is awaited, not borrowed."""
    ended = 'sglang:generation_tokens_total{model_name="m"} 500\n'
    begun = 'sglang:realtime_tokens_total{mode="prefill_compute",model_name="m"} 80\n'
    decoding = 'sglang:realtime_tokens_total{mode="decode",model_name="m"} 40\n'
    output = {"direction": "output"}
    assert value(translate(ended, "sglang"), c.LLM_TOKENS_TOTAL, **output) == 500
    assert values(translate(ended + begun, "sglang"), c.LLM_TOKENS_TOTAL, **output) == []
    both = translate(ended + begun + decoding, "sglang")
    assert value(both, c.LLM_TOKENS_TOTAL, **output) == 40
    assert value(both, c.LLM_FINISHED_OUTPUT_TOKENS_TOTAL) == 500


def test_models_that_differ_in_case_are_one(tmp_path: Path) -> None:
    """Dynamo lowers the model's name in its families of requests only."""
    page = 'mine:running{model_name="org/big-7b"} 3\nmine:other{model_name="Org/Big-7B"} 1\n'
    folded = mine(tmp_path, GAUGE("scale: 1"), page, "fold_case: true")
    assert value(folded, c.LLM_ACTIVE_REQUESTS, model_name="Org/Big-7B") == 3
    plain = mine(tmp_path, GAUGE("scale: 1"), page)
    assert value(plain, c.LLM_ACTIVE_REQUESTS, model_name="org/big-7b") == 3


def test_a_damaged_page_does_not_lower_a_models_name() -> None:
    """The families that spell it out may be on the part that was lost."""
    whole = (PAGES / "composed-dynamo-frontend-1.6.prom").read_bytes()
    reader, translator = Reader(), Translator(engine("dynamo"), "a")
    translator.translate(reader.read(whole))
    cut = reader.read(whole[: whole.index(b"# HELP dynamo_frontend_model")] + b"dynamo_frontend_mo")
    assert cut.partial
    samples = list(translator.translate(cut))
    model = "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"
    assert value(samples, c.LLM_TOKENS_TOTAL, direction="output", model_name=model) == 6400


def test_versions_of_a_model_are_kept_apart(tmp_path: Path) -> None:
    """Where an engine has versions they are told, and count as models do against the cap."""
    line = 'mine:running{{model_name="m",v="{0}"}} 1\n'.format
    page = "".join(map(line, range(MAX_MODELS + 5)))
    samples = mine(tmp_path, GAUGE("scale: 1"), page, "version_labels: [v]")
    assert value(samples, c.LLM_ACTIVE_REQUESTS, model_name="m", model_version="7") == 1
    assert value(samples, c.LLM_ACTIVE_REQUESTS, model_name="other", model_version="") == 5


def test_bounds_that_differ_in_noise_are_the_same(tmp_path: Path) -> None:
    """Two ranks whose bounds were made by other arithmetic are added up bucket by bucket."""
    rows = "\n  - metric: llm_queue_seconds\n    sources: [{name: q, quality: exact, semantics: x}]"

    def rank(name: str, first: str, counts: tuple[int, int]) -> str:
        at = f'mine:q_bucket{{r="{name}",le='
        return (
            f'{at}"{first}"}} {counts[0]}\n{at}"0.3"}} {counts[1]}\n{at}"+Inf"}} {counts[1]}\n'
            f'mine:q_sum{{r="{name}"}} 0.5\nmine:q_count{{r="{name}"}} {counts[1]}\n'
        )

    page = rank("0", "0.15000000000000002", (1, 2)) + rank("1", "0.15", (10, 20))
    found = histogram(mine(tmp_path, rows, page), c.LLM_QUEUE_SECONDS)
    assert found == Histogram((0.15000000000000002, 0.3), (11, 22, 22), 1.0)
    apart = rank("0", "0.1501", (1, 2)) + rank("1", "0.15", (10, 20))
    assert histogram(mine(tmp_path, rows, apart), c.LLM_QUEUE_SECONDS).bounds == (0.3,)


def test_a_number_in_another_unit_keeps_its_digits(tmp_path: Path) -> None:
    """1327965 microseconds are 1.327965 s, not 1.3279649999999998."""
    rows = """
  - metric: llm_request_duration_seconds_total
    sources: [{name: took_us, scale: 0.000001, quality: exact, semantics: x}]
"""
    samples = mine(tmp_path, rows, "mine:took_us 1327965\n")
    assert value(samples, c.LLM_REQUEST_DURATION_SECONDS_TOTAL) == 1.327965


def test_a_gauge_that_only_rises_is_a_counter() -> None:
    """LMDeploy counts finished requests in gauges: what the page declares does not matter."""
    page = (
        "# TYPE lmdeploy:num_requests_failed gauge\n"
        'lmdeploy:num_requests_failed{engine="0",model_name="m"} 3\n'
        'lmdeploy:num_requests_failed{engine="1",model_name="m"} 4\n'
    )
    assert value(translate(page, "lmdeploy"), c.LLM_REQUESTS_TOTAL, outcome="error") == 7


def test_lmdeploys_first_versions_counted_output_twice() -> None:
    """Before they counted finished requests: then the tokens of the requests are taken."""
    early = (
        'lmdeploy:generation_tokens_total{engine="0"} 200\n'
        'lmdeploy:request_generation_tokens_sum{engine="0"} 100\n'
    )
    later = 'lmdeploy:request_success_total{engine="0",finished_reason="ResponseType.FINISH"} 1\n'
    for page, tokens in ((early, 100), (early + later, 200)):
        samples = translate(page, "lmdeploy")
        assert value(samples, c.LLM_TOKENS_TOTAL, direction="output") == tokens


def test_a_summary_is_no_histogram() -> None:
    """TGI documents a histogram and shows a summary: no buckets, nothing to add up."""
    page = (
        "# TYPE tgi_request_duration summary\n"
        'tgi_request_duration{quantile="0.5"} 1\ntgi_request_duration_sum 9\n'
        "tgi_request_duration_count 9\n"
    )
    assert made(translate(page, "tgi")) == set()


def test_sglangs_read_bytes_are_never_used() -> None:
    """They charge the weights once per token instead of once per step."""
    wanted = engine("sglang").wanted
    assert not any("read_bytes".startswith(w) or "read_bytes" in w for w in wanted)


def test_an_engines_start_is_told_and_not_guessed() -> None:
    """From process_start_time_seconds only: `_created` is there exactly where that is."""
    page = "process_start_time_seconds 1.7e9\nvllm:num_requests_running 1\n"
    assert value(translate(page), c.LLM_SERVER_START_TIME_SECONDS) == 1.7e9
    created = 'vllm:prompt_tokens_created{engine="0"} 1.7e9\nvllm:num_requests_running 1\n'
    assert values(translate(created), c.LLM_SERVER_START_TIME_SECONDS) == []


# ---------------------------------------------------------------- the files

MINIMAL = """
engine: mine
prefixes: ["mine:"]
rows:
  - metric: llm_active_requests
    sources:
      - {name: running, quality: exact, semantics: in the batch}
"""


def test_a_user_adds_an_engine(tmp_path: Path) -> None:
    """A file in the user's directory comes after those of the package."""
    (tmp_path / "mine.yaml").write_text(MINIMAL)
    engines = load_engines(tmp_path)
    assert [e.name for e in engines] == [*ENGINES, "mine"]
    samples = list(Translator(engines[-1], "a").translate(parse("mine:running 4\n")))
    assert value(samples, c.LLM_ACTIVE_REQUESTS, engine="mine") == 4


def test_a_user_replaces_an_engine(tmp_path: Path) -> None:
    """An engine of the same name takes the place of ours."""
    (tmp_path / "any.yml").write_text(MINIMAL.replace("mine", "vllm"))
    engines = load_engines(tmp_path)
    assert [e.name for e in engines] == ENGINES
    assert len(engines[ENGINES.index("vllm")].rows) == 1


def test_scale_and_max(tmp_path: Path) -> None:
    """Milliseconds become seconds, bounds included; copies of one number are not added up."""
    (tmp_path / "mine.yaml").write_text(
        """
engine: mine
prefixes: ["mine:"]
rows:
  - metric: llm_ttft_seconds
    sources: [{name: ttft_ms, scale: 0.001, quality: exact, semantics: x}]
  - metric: llm_active_requests
    sources: [{name: running, combine: max, where: {kind: [a, b]}, quality: exact, semantics: x}]
  - metric: llm_decode_seconds_total
    sources: [{name: decode_ms, scale: 0.001, quality: exact, semantics: x}]
"""
    )
    page = parse(
        bucketed("mine:ttft_ms", [1, 2], 500.0) + "mine:decode_ms 1500\n"
        'mine:running{kind="a",rank="0"} 3\nmine:running{kind="b",rank="1"} 4\n'
        'mine:running{kind="c",rank="1"} 40\n'
    )
    samples = list(Translator(load_engines(tmp_path)[-1], "a").translate(page))
    assert histogram(samples, c.LLM_TTFT_SECONDS) == Histogram((0.001,), (1, 2), 0.5)
    assert value(samples, c.LLM_ACTIVE_REQUESTS) == 4
    assert value(samples, c.LLM_DECODE_SECONDS_TOTAL) == 1.5


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("engine: mine", "engine: mine\ncolour: red", "'colour' is not a key here (known: engine,"),
        ("engine: mine\n", "", "'engine' is missing"),
        ("engine: mine", "engine: 7", "engine: text is wanted, not 7"),
        ('["mine:"]', "[]", "prefixes: a list with at least one entry is wanted"),
        ('["mine:"]', '["vllm:"]', "mine: prefixes: 'vllm:' belongs to vllm (an engine called"),
        ("engine: mine", "engine: mine\nengine: mine", "line 3: key 'engine' is written twice"),
        ("engine: mine", "engine: mine\n3: x", "key 3 is not text"),
        ("engine: mine", "engine: [mine", "line 3: "),
        ("engine: mine", "engine: mine\ndestructive: 1", "destructive: true or false is wanted"),
        ("llm_active_requests", "llm_active", "rows[0].metric: 'llm_active' is not a metric of a"),
        ("llm_active_requests", "llm_server_info", "rows[0].metric: 'llm_server_info' is not a"),
        ("llm_active_requests", "host_cpus", "rows[0].metric: 'host_cpus' is not a metric of a se"),
        ("llm_active_requests", "llm_tokens_total", "rows[0].sources[0]: labels: llm_tokens_total"),
        ("quality: exact", "quality: good", "rows[0].sources[0].quality: 'good' is not one of exa"),
        ("name: running,", "", "rows[0].sources[0]: either name or sum is wanted"),
        ("name: running,", "name: a, sum: [b],", "rows[0].sources[0]: either name or sum is want"),
        ("name: running,", "name: a, scale: 0,", "scale: a positive number is wanted, not 0"),
        ("name: running,", "name: a, scale: yes,", "scale: a number is wanted, not True"),
        ("name: running,", "name: a, zeros: {name: b, le: 1},", "zeros: only for a histogram"),
        ("name: running,", "name: a, combine: mode,", "'mode' is not one of sum, mean, max"),
        (
            "name: running,",
            "name: a, weight: {name: b, label: c, by: d},",
            "weight: only with combine: mean",
        ),
        ("name: running,", "name: a, labels: [b],", "labels: a mapping is wanted"),
        ("name: running,", "name: a, where: {b: 3},", "where.b: text is wanted, not 3"),
        ("name: running,", "name: a, where: {b: []},", "where.b: a list with at least one entry"),
        ("name: running,", "name: a, over: b,", "over: a mapping is wanted"),
        ("name: running,", "name: a, over: {where: {b: c}},", "over: 'name' is missing"),
        ("name: running,", "name: a, numbers: [b], less: {name: c},", "numbers: stands alone"),
        ("name: running,", "name: a, numbers: b,", "numbers: a list with at least one entry is w"),
        ("name: running,", "name: a, zero_is_off: 1,", "zero_is_off: true or false is wanted"),
        ("name: running,", "name: a, unless: [b],", "unless: text is wanted, not ['b']"),
        ("name: running,", "name: a, only_with: 3,", "only_with: text is wanted, not 3"),
        ('["mine:"]', '[""]', 'prefixes: with "" marks or mark_labels are wanted'),
        ("engine: mine", "engine: mine\nlayer: top", "layer: 'top' is not one of engine, front,"),
        ("engine: mine", "engine: mine\nexperimental: 1", "experimental: true or false is wanted"),
        ("engine: mine", "engine: mine\nfold_case: 1", "fold_case: true or false is wanted"),
        ("engine: mine", "engine: mine\nwhere: [a]", "where: a mapping is wanted"),
        ("engine: mine", "engine: mine\nmarks: a", "marks: a list with at least one entry"),
        ("engine: mine", "engine: mine\ncopy_labels: []", "copy_labels: a list with at least one"),
        (
            "llm_active_requests\n",
            "llm_active_requests\n    required: true\n    required_with: x\n",
            "rows[0]: required and required_with exclude each other",
        ),
    ],
)
def test_a_wrong_file_is_explained(tmp_path: Path, old: str, new: str, said: str) -> None:
    """One line names the file, the key and the reason."""
    assert old in MINIMAL
    (tmp_path / "mine.yaml").write_text(MINIMAL.replace(old, new, 1))
    with pytest.raises(EngineError) as caught:
        load_engines(tmp_path)
    message = str(caught.value)
    assert said in message
    assert "\n" not in message
    assert message.startswith(("mine: ", f"{tmp_path / 'mine.yaml'}: "))


@pytest.mark.parametrize(
    ("metric", "key", "said"),
    [
        ("llm_preemptions_total", "over: {name: b}", "over: only for a gauge"),
        ("llm_preemptions_total", "times: {name: b}", "times: only for a gauge"),
        ("llm_preemptions_total", "less: {name: b}", "less: only for a gauge"),
        ("llm_preemptions_total", "numbers: [b]", "numbers: only for a gauge"),
        ("llm_ttft_seconds", "combine: max", "combine: not for a histogram"),
        ("llm_ttft_seconds", "zero_is_off: true", "zero_is_off: not for a histogram"),
        (
            "llm_requests_total",
            "labels: {outcome: {from: a, as: upper}}",
            "labels.outcome.as: 'upper' is not one of status, status_class, member",
        ),
        (
            "llm_requests_total",
            "labels: {outcome: {from: a, words: {b: 3}}}",
            "labels.outcome.words.b: text is wanted, not 3",
        ),
        (
            "llm_requests_total",
            "labels: {outcome: {from: a, other: b}}",
            "labels.outcome.other: only with words",
        ),
    ],
)
def test_a_key_that_makes_no_sense_there_is_explained(
    tmp_path: Path, metric: str, key: str, said: str
) -> None:
    """What a key can mean depends on the kind of the metric and on the other keys."""
    text = MINIMAL.replace("llm_active_requests", metric).replace("running,", f"running, {key},")
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(EngineError) as caught:
        load_engines(tmp_path)
    assert said in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"- a\n"])
def test_a_file_that_is_no_mapping_is_explained(tmp_path: Path, content: bytes) -> None:
    """Empty, binary and list files are refused with their name."""
    (tmp_path / "mine.yaml").write_bytes(content)
    with pytest.raises(EngineError, match=r"mine\.yaml: (a mapping is wanted|cannot be read)"):
        load_engines(tmp_path)


def test_a_missing_directory_is_explained(tmp_path: Path) -> None:
    """A directory that is not there is an error, not an empty one."""
    with pytest.raises(EngineError, match="not a directory"):
        load_engines(tmp_path / "none")


def test_an_engine_in_two_files_is_refused(tmp_path: Path) -> None:
    """Which of two files counts would be chance."""
    (tmp_path / "a.yaml").write_text(MINIMAL)
    (tmp_path / "b.yaml").write_text(MINIMAL)
    with pytest.raises(EngineError, match=r"b\.yaml: engine: 'mine' is in another file too"):
        load_engines(tmp_path)
