"""Inference SLA: whether promises are kept, what requests wait for, and what the servers do."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from dashboards.parts import (
    BAD,
    BLUE,
    FINE,
    GREEN,
    GREY,
    LIME,
    ORANGE,
    PURPLE,
    SKY,
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
    heatmap,
    mark,
    model,
    server,
    stat,
    table,
    timeline,
    timeseries,
)

STATES = {"0": ("too little to say", GREY), "1": ("met", FINE), "2": ("violated", BAD)}
OBJECTIVE = {"sla": "SLA", "objective": "objective", "tier": "tier"}
# Names as flopwatch gives them to objectives that a configuration states; others have one colour.
OBJECTIVES = {
    "ttft_p50": SKY,
    "ttft_p95": BLUE,
    "ttft_p99": PURPLE,
    "tpot_p95": GREEN,
    "min_tps": ORANGE,
    "uptime": LIME,
    "error_rate": VERMILION,
    "retry_success_rate": GREY,
}
PERCENTILES = {"p50": GREEN, "p95": BLUE, "p99": PURPLE}
_BY = "max by (sla, objective, tier)"
_WORST = "min by (sla, objective, tier)"
_STATE = (
    f'{_BY} (2 * sla_state{{<promise>, state="violated"}}'
    ' or (sla_state{<promise>, state="met"} == 1)'
    ' or 0 * sla_state{<promise>, state="undetermined"})'
)


def build() -> Dashboard:
    """Return the board."""
    return board(
        "flopwatch-inference-sla",
        "Whether what was promised of inference servers is kept: latencies with their bounds,"
        " error budgets, what a breach comes from, and what the engines do.",
        [datasource(), cluster(), model(), server()],
        [_promises(), _budgets(), _latencies(), _load(), _goodput(), _servers(), _meaning()],
        marks=[
            mark(
                "Server restarts",
                'llm_server_start_time_seconds{engine!="", cluster=~"$cluster",'
                ' server=~"$server"} * 1000',
                "{{server}} was started",
                "engine",
                ORANGE,
            )
        ],
    )


def _promises() -> Row:
    return Row(
        "Promises",
        [
            stat(
                "Objectives violated",
                f"count({_STATE} == 2) or 0 * count(sla_state{{<promise>}})",
                "Objectives that are violated on one node at least. The table names them.",
                steps={1: BAD},
            ),
            stat(
                "Objectives met",
                f"count({_STATE} == 1) or 0 * count(sla_state{{<promise>}})",
                "Objectives that are met wherever there were enough events to say so.",
            ),
            stat(
                "Least error budget left",
                'min(sla_error_budget_remaining_ratio{<promise>, window="1h"})',
                "Of the bad events that the targets allow within an hour, the share that is left"
                " of the objective that is worst off: 0 is used up, below 0 overdrawn.",
                unit="percentunit",
                base=BAD,
                steps={0.0: WARNING, 0.5: FINE},
            ),
            stat(
                "Fastest burn",
                'max(sla_burn_rate{<promise>, window="5m"})',
                "Bad events over allowed ones within five minutes, of the worst objective. At 1"
                " the budget lasts just as long as it should; from 14.4 on somebody is called.",
                steps={1.0: WARNING, 14.4: BAD},
                decimals=1,
            ),
            stat(
                "Requests served",
                'sum(rate(llm_requests_total{<serving>, outcome!="rejected"}[$__rate_interval]))',
                "Requests that ended in a second, on all chosen servers of which the engine counts"
                " them.",
                unit="reqps",
                decimals=1,
            ),
            gauge(
                "Goodput",
                'min(sla_goodput_lower_ratio{<promise>, window="5m"})',
                "Share of requests that have met all latency objectives for certain, over five"
                " minutes. Histograms do not tell which request was slow in what: this is the"
                " lower bound.",
                base=BAD,
                steps={0.9: WARNING, 0.99: FINE},
                height=4,
            ),
            _objectives(),
            timeline(
                "Objectives over time",
                Query(_STATE, "{{objective}}"),
                "Whether each objective was met. Violated: on one node at least. Too little to"
                " say: too few events, or the bounds of the engine's buckets leave it open.",
                states=STATES,
                width=14,
            ),
            timeline(
                "What breaches come from",
                Query(
                    "max by (objective, cause) (sla_breach_cause{<promise>})",
                    "{{objective}}: {{cause}}",
                ),
                "While an objective is violated: the top contributor that can be seen. Nothing is"
                " drawn while all are met.",
                states={"1": ("seen", VERMILION)},
                width=10,
            ),
        ],
    )


def _objectives() -> Panel:
    """Return the table of what was promised beside what is."""
    said = "sla_objective_info{<cluster>}"
    return table(
        "Objectives",
        OBJECTIVE | {"statement": "promised"},
        [
            Column(
                "state",
                f"({_STATE}) * on (sla, objective, tier) group_left (statement)"
                f" max by (sla, objective, tier, statement) ({said})",
                states=STATES,
            ),
            Column(
                "time",
                f'{_BY} (sla_measured_seconds{{<promise>, window="5m"}})',
                "s",
            ),
            Column(
                "share",
                f'{_BY} (sla_measured_ratio{{<promise>, window="5m"}})',
                "percentunit",
                decimals=2,
            ),
            Column(
                "good events",
                f'{_WORST} (sla_compliance_ratio{{<promise>, window="5m"}})',
                "percentunit",
                decimals=2,
            ),
            Column("wanted", f"{_BY} (sla_target_ratio{{<cluster>}})", "percentunit", decimals=2),
            Column(
                "budget left (1 h)",
                f'{_WORST} (sla_error_budget_remaining_ratio{{<promise>, window="1h"}})',
                "percentunit",
                decimals=0,
            ),
            Column(
                "violated for",
                f"{_BY} (increase(sla_breach_seconds_total{{<promise>}}[$__range]))",
                "s",
                decimals=0,
            ),
        ],
        "What was promised, what is measured over five minutes (of times the quantile that the"
        " objective names), and what is left of the error budget. Of several nodes the worst.",
        sort="state",
        width=24,
        height=10,
    )


def _budgets() -> Row:
    return Row(
        "Error budget",
        [
            timeseries(
                "Burn rates over 5 minutes",
                Query(f'{_BY} (sla_burn_rate{{<promise>, window="5m"}})', "{{objective}}"),
                "Bad events over allowed ones, the certainly bad ones. At 14.4 a budget of 30 days"
                " is gone in two days: the alert SlaBudgetBurnsFast fires where an hour says so"
                " too.",
                low=0,
                colors=OBJECTIVES,
                steps={14.4: BAD},
            ),
            timeseries(
                "Burn rates over an hour",
                [
                    Query(f'{_BY} (sla_burn_rate{{<promise>, window="1h"}})', "{{objective}}"),
                    Query(
                        f'{_BY} (sla_burn_rate_upper{{<promise>, window="1h"}}'
                        ' > sla_burn_rate{<promise>, window="1h"})',
                        "at most: {{objective}}",
                    ),
                ],
                "The same over an hour. At most: if all events were bad of which the engine's"
                " buckets do not tell whether they were.",
                low=0,
                steps={1: WARNING},
                colors={**OBJECTIVES, "at most": GREY},
            ),
            timeseries(
                "Error budget left",
                Query(
                    f'{_WORST} (sla:error_budget_remaining:ratio30d{{cluster=~"$cluster"}})'
                    f' or {_WORST} (sla_error_budget_remaining_ratio{{<promise>, window="1h"}})',
                    "{{objective}}",
                ),
                "Share of the allowed bad events that is left: 1 untouched, 0 used up, below 0"
                " overdrawn. Over 30 days and all nodes; without the recording rules over the last"
                " hour of the node that is worst off.",
                unit="percentunit",
                steps={0: BAD},
                colors=OBJECTIVES,
            ),
            timeseries(
                "Good events",
                [
                    Query(
                        f'{_WORST} (sla_compliance_ratio{{<promise>, window="5m"}})',
                        "{{objective}}",
                    ),
                    Query(
                        f'{_WORST} (sla_compliance_lower_ratio{{<promise>, window="5m"}}'
                        ' < sla_compliance_upper_ratio{<promise>, window="5m"})',
                        "at least: {{objective}}",
                    ),
                    Query(
                        f'{_BY} (sla_compliance_upper_ratio{{<promise>, window="5m"}}'
                        ' > sla_compliance_lower_ratio{<promise>, window="5m"})',
                        "at most: {{objective}}",
                    ),
                ],
                "Share of events that were good over five minutes. Where a threshold lies between"
                " two of the engine's buckets the truth lies between at least and at most.",
                unit="percentunit",
                high=1,
                colors={**OBJECTIVES, "at": GREY},
            ),
            table(
                "Causes now",
                {"objective": "objective", "cause": "cause", "evidence": "evidence"},
                [
                    Column(
                        "nodes",
                        "count by (objective, cause, evidence) (sla_breach_cause{<promise>} == 1)",
                    )
                ],
                "What the present breaches come from, and what shows it. Empty while all objectives"
                " are met.",
                width=16,
            ),
        ],
    )


def _latencies() -> Row:
    return Row(
        "Latencies",
        [
            _percentiles("Time to first token", "ttft", "the time that a request waits, included"),
            _percentiles("Time per output token", "tpot", "a request's mean after the first"),
            _percentiles("Inter-token latency", "itl", "each gap between two outputs counts"),
            _percentiles("End to end", "e2e", "of requests that have finished"),
            heatmap(
                "Time to first token, all requests",
                Query(
                    "sum by (le) (increase(llm_ttft_seconds_bucket{<serving>}[$__rate_interval]))",
                    "{{le}}",
                ),
                "How many requests had their first token within which bounds: two clouds are two"
                " kinds of requests, which a percentile mixes.",
                unit="s",
                buckets=True,
            ),
            heatmap(
                "End to end, all requests",
                Query(
                    "sum by (le) (increase(llm_e2e_seconds_bucket{<serving>}[$__rate_interval]))",
                    "{{le}}",
                ),
                "How many requests took how long altogether; only those that have finished.",
                unit="s",
                buckets=True,
            ),
        ],
    )


def _percentiles(title: str, signal: str, note: str) -> Panel:
    """Return percentiles of a latency over five minutes, with bounds, and what was promised."""

    def of(percentile: str, kind: str = "") -> str:
        return (
            f"max(llm_latency_quantile{kind}_seconds{{<serving>,"
            f' signal="{signal}", percentile="{percentile}", window="5m"}})'
        )

    promised = (
        "max by (objective) (sla_threshold_seconds{<cluster>} * on (sla, objective, tier)"
        f' group_left () max by (sla, objective, tier) (sla_objective_info{{signal="{signal}",'
        " <cluster>}))"
    )
    queries = [
        Query(of("p99"), "p99", PURPLE),
        Query(of("p95"), "p95", BLUE),
        Query(of("p50"), "p50", GREEN),
        Query(of("p95", "_lower"), "p95 at least", GREY),
        Query(of("p95", "_upper"), "p95 at most", GREY),
    ]
    if signal in ("ttft", "tpot"):
        queries.append(Query(promised, "promised: {{objective}}", VERMILION))
    return timeseries(
        title,
        queries,
        f"Percentiles over five minutes, the worst of the chosen servers; {note}. At least and at"
        " most: what the engine's buckets leave open of p95. Promised are the thresholds of"
        " objectives, where there are any.",
        unit="s",
        low=0,
        width=12,
    )


def _load() -> Row:
    return Row(
        "Queue and KV cache",
        [
            timeseries(
                "Requests",
                [
                    Query("sum(llm_active_requests{<serving>})", "in work", BLUE),
                    Query("sum(llm_waiting_requests{<serving>})", "waiting", ORANGE),
                ],
                "Requests that the engines work on, and those that they have accepted and not yet"
                " begun.",
                low=0,
            ),
            timeseries(
                "KV cache",
                Query("max by (server) (llm_kv_cache_usage_ratio{<serving>})", "{{server}}"),
                "Share of the KV cache that is in use. Near 1 requests wait for it, or are thrown"
                " out of the batch and computed again. The alert InferenceKvCacheFull watches it.",
                unit="percentunit",
                low=0,
                high=1,
                steps={0.95: BAD},
            ),
            timeseries(
                "Preemptions",
                Query(
                    "sum by (server) (rate(llm_preemptions_total{<serving>}[$__rate_interval]))",
                    "{{server}}",
                ),
                "Running requests that were thrown out of the batch for want of KV cache, in a"
                " second. What was computed of them is lost.",
                unit="cps",
                low=0,
            ),
            timeseries(
                "Time in the queue",
                [
                    Query(
                        "max by (percentile) (llm_latency_quantile_seconds{<serving>,"
                        ' signal="queue", window="5m", percentile=~"p50|p95|p99"})',
                        "{{percentile}}",
                    ),
                ],
                "How long requests waited before the engine first had them in a batch, over five"
                " minutes.",
                unit="s",
                low=0,
                colors=PERCENTILES,
            ),
            timeseries(
                "Waiting, of the time that requests take",
                Query(
                    'max by (server) (llm_queue_time_ratio{<serving>, window="5m"})', "{{server}}"
                ),
                "Share of the end-to-end time of requests that they spent waiting, over five"
                " minutes. More servers help against this, faster ones against the rest.",
                unit="percentunit",
                low=0,
            ),
            timeseries(
                "Tokens",
                [
                    Query(
                        "sum by (direction) (rate(llm_tokens_total{<serving>}[$__rate_interval]))",
                        "{{direction}}",
                        BLUE,
                    ),
                    Query(
                        "sum(rate(llm_prefill_tokens_total{<serving>}[$__rate_interval]))",
                        "input computed",
                        ORANGE,
                    ),
                ],
                "Tokens in a second: read from prompts, generated, and those of the prompts that"
                " had to be computed because no cache had them.",
                low=0,
                colors={"input": ORANGE, "output": BLUE, "input computed": PURPLE},
            ),
            timeseries(
                "Requests by outcome",
                Query(
                    "sum by (outcome) (rate(llm_requests_total{<serving>}[$__rate_interval]))",
                    "{{outcome}}",
                ),
                "How requests ended, in a second: stop and length are ends as they should be."
                " Errors and rejections cost the promises.",
                unit="reqps",
                low=0,
                colors={
                    "stop": BLUE,
                    "length": SKY,
                    "success": GREEN,
                    "cancelled": GREY,
                    "abort": PURPLE,
                    "rejected": ORANGE,
                    "error": VERMILION,
                },
            ),
            timeseries(
                "HTTP responses",
                Query(
                    'sum by (code) (rate(llm_http_responses_total{engine!="",'
                    ' cluster=~"$cluster", server=~"$server"}[$__rate_interval]))',
                    "{{code}}",
                ),
                "Responses of the servers' inference routes by status. Requests that were refused"
                " show here, and with some engines nowhere else.",
                unit="reqps",
                low=0,
                colors={"2..": BLUE, "4..": ORANGE, "5..": VERMILION},
            ),
            timeseries(
                "Found in the prefix cache",
                Query(
                    'max by (server) (llm_prefix_cache_hit_ratio{<serving>, window="5m"})',
                    "{{server}}",
                ),
                "Share of the prompt tokens that were found in the prefix cache, over five"
                " minutes; they cost next to nothing.",
                unit="percentunit",
                low=0,
                high=1,
            ),
        ],
    )


def _goodput() -> Row:
    return Row(
        "Goodput and use of the hardware",
        [
            timeseries(
                "Requests that met all latency objectives",
                [
                    Query(
                        'sum(sla_goodput_lower_requests_per_second{<promise>, window="5m"})',
                        "at least",
                        BLUE,
                    ),
                    Query(
                        'sum(sla_goodput_upper_requests_per_second{<promise>, window="5m"})',
                        "at most",
                        GREY,
                    ),
                ],
                "Goodput in requests a second over five minutes. Between the bounds, because"
                " histograms do not tell which request was slow in what.",
                unit="reqps",
                low=0,
            ),
            timeseries(
                "Share of peak while computing prompts",
                Query(
                    'max by (server, method, peak) (llm_prefill_mfu_ratio{<serving>, window="5m"})',
                    "{{server}} ({{method}}, {{peak}})",
                ),
                "MFU of prefill: operations of the prompts over what the server's GPUs can do in"
                " the time that prefill took.",
                unit="percentunit",
                low=0,
            ),
            timeseries(
                "Share of memory bandwidth while generating",
                Query(
                    'max by (server, method, peak) (llm_decode_mbu_ratio{<serving>, window="5m"})',
                    "{{server}} ({{method}}, {{peak}})",
                ),
                "MBU of decode: weights and KV cache that were read over what the memory of the"
                " server's GPUs can deliver.",
                unit="percentunit",
                low=0,
            ),
            timeseries(
                "Tokens for each GPU",
                Query(
                    "max by (server)"
                    ' (llm_output_tokens_per_second_per_gpu{<serving>, window="5m"})',
                    "{{server}}",
                ),
                "Generated tokens for each second and GPU, over five minutes. Servers whose GPUs"
                " are not known are not drawn.",
                low=0,
            ),
            timeseries(
                "Tokens for each joule",
                Query(
                    'max by (server) (llm_tokens_per_joule{<serving>, window="5m"})', "{{server}}"
                ),
                "Generated tokens for each joule that the server's GPUs used, over five minutes.",
                low=0,
            ),
            timeseries(
                "Time spent on prompts and on generating",
                [
                    Query(
                        "sum(rate(llm_prefill_seconds_total{<serving>}[$__rate_interval]))",
                        "prompts",
                        ORANGE,
                    ),
                    Query(
                        "sum(rate(llm_decode_seconds_total{<serving>}[$__rate_interval]))",
                        "generating",
                        BLUE,
                    ),
                ],
                "Seconds in a second that requests spent in each phase, summed over requests: so"
                " many were in it on average.",
                stacked=True,
                low=0,
            ),
        ],
    )


def _servers() -> Row:
    each = 'engine!="", cluster=~"$cluster", server=~"$server"'
    return Row(
        "Engines and servers",
        [
            table(
                "Servers",
                {"instance": "node", "server": "server", "engine": "engine", "version": "version"},
                [
                    Column(
                        "page",
                        f"max by (instance, server, engine, version) (llm_server_info{{{each}}})",
                        states={"1": ("read", FINE)},
                    ),
                    Column(
                        "probe",
                        "min by (instance, server)"
                        ' (llm_probe_up{cluster=~"$cluster", server=~"$server"})',
                        states={"0": ("fails", BAD), "1": ("answers", FINE)},
                    ),
                    Column("in work", "sum by (instance, server) (llm_active_requests{<serving>})"),
                    Column(
                        "waiting",
                        "sum by (instance, server) (llm_waiting_requests{<serving>})",
                        steps={1: WARNING},
                    ),
                    Column(
                        "KV cache",
                        "max by (instance, server) (llm_kv_cache_usage_ratio{<serving>})",
                        "percentunit",
                        steps={0.95: BAD},
                        decimals=0,
                    ),
                    Column(
                        "tokens/s",
                        "sum by (instance, server) (rate(llm_tokens_total{<serving>,"
                        ' direction="output"}[$__rate_interval]))',
                        decimals=0,
                    ),
                    Column(
                        "GPUs",
                        "count by (instance, server)"
                        ' (llm_server_gpu{cluster=~"$cluster", server=~"$server"})',
                    ),
                    Column(
                        "restarts",
                        "sum by (instance, server) (increase(llm_resets_total"
                        '{cluster=~"$cluster", server=~"$server"}[$__range]))',
                        steps={1: WARNING},
                        decimals=0,
                    ),
                    Column(
                        "reading takes",
                        "max by (instance, server) (llm_scrape_duration_seconds"
                        '{cluster=~"$cluster", server=~"$server"})',
                        "s",
                    ),
                ],
                "Each server that is read: engine and version, whether our probe is answered, what"
                " it does, how often its counters began anew within the time shown. A server whose"
                " page cannot be read is missing: see the board Exporter health.",
                width=24,
            ),
            alerts_table('cluster=~"$cluster", component="serving"', width=24),
        ],
    )


def _meaning() -> Row:
    each = 'engine!="", cluster=~"$cluster", server=~"$server"'
    return Row(
        "How the numbers come about",
        [
            table(
                "How far numbers can be trusted",
                {
                    "engine": "engine",
                    "metric": "metric",
                    "quality": "quality",
                    "semantics": "what is measured",
                    "source": "the engine's name",
                },
                [
                    Column(
                        "servers",
                        "count by (engine, metric, quality, semantics, source)"
                        f" (llm_source_info{{{each}}})",
                    )
                ],
                "How each metric of an engine comes about: exact, derived from others, a mean"
                " only, bounded, or biased; and what precisely is measured.",
                sort="metric",
                descending=False,
                width=24,
                height=12,
            ),
        ],
        collapsed=True,
    )
