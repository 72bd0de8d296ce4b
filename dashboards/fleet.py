"""The whole fleet, in the layers of an AI system: business, service, system, compiler."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import fleet_machines
from dashboards.parts import (
    BAD,
    BLUE,
    FINE,
    GREEN,
    GREY,
    ORANGE,
    VERMILION,
    WARNING,
    Column,
    Query,
    Row,
    alerts_table,
    board,
    cluster,
    datasource,
    gauge,
    stat,
    table,
    timeseries,
    towards,
)

# What is said of a run stands on the one node that speaks for it.
RANKS = "max by (run) (train_world_size{<cluster>})"
MFU = 'max by (run, peak) (train_mfu_ratio{<cluster>, convention="causal"})'
GOODPUT = "max by (run) (train_goodput_ratio{<cluster>})"
STATES = 'max by (sla, objective, tier, model_name, server) (sla_state{<cluster>, state="%s"})'
SERVING = 'engine!="", <cluster>'


def build() -> Dashboard:
    """Return the board."""
    return board(
        "flopwatch-fleet",
        "All nodes at once, in four layers: what it costs and what was promised, how services and"
        " runs fare, what the machines do, how well kernels use them.",
        [datasource(), cluster()],
        [_business(), _service(), _runs(), *fleet_machines.rows()],
        hours=6,
        refresh="1m",
    )


def _business() -> Row:
    return Row(
        "Business: cost, promises, goodput",
        [
            gauge(
                "Training MFU",
                Query(
                    f"sum by (peak) ({MFU} * on (run) group_left () {RANKS})"
                    f" / sum by (peak) (({MFU} > bool -1) * on (run) group_left () {RANKS})",
                    "of the {{peak}} peak",
                ),
                "MFU of all runs (causal convention), each counted by its GPUs; for each peak by"
                " itself, for they must not be compared. 30 to 60 % is usual.",
                base=WARNING,
                steps={0.3: FINE},
            ),
            gauge(
                "Training goodput",
                f"sum({GOODPUT} * on (run) {RANKS}) / sum(({GOODPUT} > bool -1) * on (run)"
                f" {RANKS})",
                "Productive time over wall time, of all runs since they were first seen, each"
                " counted by its GPUs.",
                base=BAD,
                steps={0.8: WARNING, 0.9: FINE},
            ),
            gauge(
                "Promises that are kept",
                f"sum({STATES % 'met'}) / (sum({STATES % 'met'}) + sum({STATES % 'violated'}) > 0)",
                "Objectives of inference SLAs that are met, of those of which there is evidence"
                " either way. Each node judges what it serves.",
                base=BAD,
                steps={0.99: FINE},
            ),
            stat(
                "Error budget that is left, worst",
                "min(sla:error_budget_remaining:ratio30d{<cluster>})"
                ' or min(sla_error_budget_remaining_ratio{<cluster>, window="1h"})',
                "The least that is left of any promise's error budget: of 30 days where the"
                " recording rules are loaded, else of the last hour. Below 0 it is overdrawn.",
                unit="percentunit",
                base=BAD,
                steps={0: WARNING, 0.25: FINE},
                decimals=0,
                height=6,
            ),
            stat(
                "Cost",
                [
                    Query("sum(cost_dollars_per_hour{<cluster>})", "all GPUs"),
                    Query("sum(cost_idle_dollars_per_hour{<cluster>})", "of it idle"),
                ],
                "What all priced GPUs cost an hour, and what of it is idle or unallocated time.",
                unit="currencyUSD",
                height=6,
            ),
            stat(
                "A million tokens",
                Query(
                    "avg by (model_name) (llm_cost_per_million_tokens_dollars"
                    f'{{{SERVING}, direction="blended", window="1h"}})',
                    "{{model_name}}",
                ),
                "What a million tokens cost over the last hour, input and output together, mean of"
                " a model's servers: all dollars of their GPUs, busy or not.",
                unit="currencyUSD",
                height=6,
            ),
            timeseries(
                "Dollars per hour by state",
                Query(
                    "3600 * sum by (state) (rate(cost_dollars_total{<cluster>}[$__rate_interval]))",
                    "{{state}}",
                ),
                "What GPUs cost an hour, by what they do. Unallocated: nobody has them. Unknown:"
                " whether they were busy was not told.",
                unit="currencyUSD",
                colors={"busy": BLUE, "idle": ORANGE, "unallocated": VERMILION, "unknown": GREY},
                stacked=True,
                low=0,
                width=6,
            ),
            timeseries(
                "Training cost per million tokens",
                Query("max by (run) (train_cost_per_million_tokens_dollars{<cluster>})", "{{run}}"),
                "What a million tokens of a whole run cost. GPUs on nodes of which Prometheus does"
                " not hear are taken to cost what those do of which it hears.",
                unit="currencyUSD",
                low=0,
                width=6,
            ),
            alerts_table("<cluster>"),
        ],
    )


def _service() -> Row:
    def quantile(share: float, family: str) -> str:
        return (
            f"histogram_quantile({share}, sum by (model_name, le)"
            f" (rate({family}_bucket{{{SERVING}}}[$__rate_interval])))"
        )

    def rates(family: str, rest: str = "") -> str:
        return f"sum by (model_name) (rate({family}{{{SERVING}{rest}}}[$__rate_interval]))"

    return Row(
        "Service: inference",
        [
            timeseries(
                "Time to first token",
                [
                    Query(quantile(0.95, "llm_ttft_seconds"), "p95 {{model_name}}", VERMILION),
                    Query(quantile(0.5, "llm_ttft_seconds"), "p50 {{model_name}}", BLUE),
                ],
                "Time to first token of all servers of a model, by interpolation between the bounds"
                " of their buckets: the true values may lie elsewhere between these.",
                unit="s",
                low=0,
                width=6,
            ),
            timeseries(
                "Time per output token",
                [
                    Query(quantile(0.95, "llm_tpot_seconds"), "p95 {{model_name}}", VERMILION),
                    Query(quantile(0.5, "llm_tpot_seconds"), "p50 {{model_name}}", BLUE),
                ],
                "Time per output token after the first, of all servers of a model, by interpolation"
                " as above.",
                unit="s",
                low=0,
                width=6,
            ),
            timeseries(
                "Tokens",
                [
                    Query(
                        rates("llm_tokens_total", ', direction="output"'),
                        "generated, {{model_name}}",
                        BLUE,
                    ),
                    Query(
                        rates("llm_tokens_total", ', direction="input"'),
                        "read, {{model_name}}",
                        ORANGE,
                    ),
                ],
                "Tokens in a second: generated, and read from prompts (cached ones included).",
                low=0,
                width=6,
            ),
            timeseries(
                "Requests in work and waiting",
                [
                    Query(
                        f"sum by (model_name) (llm_active_requests{{{SERVING}}})",
                        "in work, {{model_name}}",
                        BLUE,
                    ),
                    Query(
                        f"sum by (model_name) (llm_waiting_requests{{{SERVING}}})",
                        "waiting, {{model_name}}",
                        VERMILION,
                    ),
                ],
                "Requests that engines work on, and those accepted and not yet scheduled.",
                low=0,
                width=6,
            ),
            table(
                "Models",
                {"model_name": "model"},
                [
                    Column(
                        "requests per second",
                        rates("llm_requests_total"),
                        "reqps",
                    ),
                    Column("TTFT p95", quantile(0.95, "llm_ttft_seconds"), "s"),
                    Column("TPOT p95", quantile(0.95, "llm_tpot_seconds"), "s"),
                    Column(
                        "KV cache",
                        f"max by (model_name) (llm_kv_cache_usage_ratio{{{SERVING}}})",
                        "percentunit",
                        steps={0.9: WARNING, 0.98: BAD},
                        decimals=0,
                    ),
                    Column(
                        "decode MBU",
                        f'max by (model_name) (llm_decode_mbu_ratio{{{SERVING}, window="5m"}})',
                        "percentunit",
                        decimals=0,
                    ),
                    Column(
                        "tokens per joule",
                        f'avg by (model_name) (llm_tokens_per_joule{{{SERVING}, window="5m"}})',
                    ),
                ],
                "Each model: load, latencies, KV cache of its fullest server, how much of the"
                " memory bandwidth decoding uses, tokens for the energy of its GPUs (mean of its"
                " servers).",
                sort="requests per second",
                width=24,
                height=6,
                links={"model": towards("flopwatch-inference-sla", "model_name")},
            ),
        ],
    )


def _runs() -> Row:
    return Row(
        "Service: training",
        [
            table(
                "Runs",
                {"run": "run"},
                [
                    Column("GPUs", RANKS, decimals=0),
                    Column(
                        "MFU",
                        'max by (run) (train_mfu_ratio{<cluster>, convention="causal"})',
                        "percentunit",
                        decimals=1,
                    ),
                    Column("goodput", GOODPUT, "percentunit", decimals=1),
                    Column(
                        "tokens/s and GPU",
                        "max by (run) (train_tokens_per_second_per_gpu{<cluster>})",
                    ),
                    Column("step", "max by (run) (train_step_median_seconds{<cluster>})", "s"),
                    Column(
                        "exposed communication",
                        'max by (run) (train_communication_ratio{<cluster>, kind="exposed"})',
                        "percentunit",
                        decimals=1,
                    ),
                    Column(
                        "worst straggler",
                        "max by (run) (train_step_skew_ratio{<cluster>})",
                        "percentunit",
                        steps={0.1: WARNING},
                        decimals=1,
                    ),
                    Column("loss", "max by (run) (train_loss{<cluster>})"),
                    Column(
                        "goes on",
                        "min by (run) (train_stalled{<cluster>})",
                        states={"0": ("yes", FINE), "1": ("stalled", BAD)},
                    ),
                ],
                "Each run: size, MFU, goodput, pace, what holds it up. The name leads to its"
                " board.",
                sort="GPUs",
                width=24,
                height=6,
                links={"run": towards("flopwatch-training", "run")},
            ),
            timeseries(
                "MFU of runs",
                Query(MFU, "{{run}}, {{peak}} peak", BLUE),
                "Model FLOPs utilization of each run by the causal convention. Never compare across"
                " peaks.",
                unit="percentunit",
                low=0,
            ),
            timeseries(
                "Goodput of runs",
                Query(GOODPUT, "{{run}}", GREEN),
                "Productive time over wall time of each run since it was first seen.",
                unit="percentunit",
                low=0,
                high=1,
            ),
            timeseries(
                "Tokens of runs",
                Query("max by (run) (train_tokens_per_second{<cluster>})", "{{run}}", ORANGE),
                "Tokens that each run trains on in a second, all of its nodes together.",
                low=0,
            ),
        ],
    )
