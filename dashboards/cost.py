"""Cost: what the GPUs cost, what of it is used, and what tokens and runs cost."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.parts import (
    BAD,
    BLUE,
    FINE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    WARNING,
    Column,
    Query,
    Row,
    alerts_table,
    bargauge,
    board,
    cluster,
    datasource,
    mark,
    model,
    node,
    run,
    server,
    stat,
    table,
    text,
    timeline,
    timeseries,
)

NOTICES = {"0": ("nothing announced", FINE), "1": ("announced", BAD)}
_HOURLY = "3600 * sum by (state) (rate(cost_dollars_total{<node>}[$__rate_interval]))"
_SPENT = "sum(increase(cost_dollars_total{<node>}[$__range]))"
_USED = 'sum(increase(cost_dollars_total{<node>, state="busy"}[$__range]))'
_STATES = (("busy", BLUE), ("idle", VERMILION), ("unallocated", ORANGE), ("unknown", GREY))
# Dollars of a million tokens are told over windows that are full, from five minutes on.
_MILLION = 'llm_cost_per_million_tokens_dollars{<serving>, window="5m"'


def build() -> Dashboard:
    """Return the board."""
    return board(
        "flopwatch-cost",
        "What the GPUs cost and what of it is used; what tokens, runs and tenants cost; energy,"
        " carbon, and what the cloud has announced.",
        [datasource(), cluster(), node(), model(), server(), run()],
        [_now(), _states(), _serving(), _training(), _energy(), _tenants(), _spot()],
        marks=[
            mark(
                "Interruptions",
                "spot_interruption_deadline_timestamp_seconds{<node>} * 1000",
                "{{instance}} is taken away ({{action}})",
                "provider,action",
            )
        ],
        hours=24,
    )


def _now() -> Row:
    return Row(
        "Now",
        [
            stat(
                "Cost of an hour",
                "sum(cost_dollars_per_hour{<node>})",
                "What all GPUs with a price cost an hour, now. GPUs without a price are not in it.",
                unit="currencyUSD",
                decimals=2,
            ),
            stat(
                "Idle, of it",
                "sum(cost_idle_dollars_per_hour{<node>})",
                "What idle and unallocated time of the GPUs costs an hour, over the last five"
                " minutes.",
                unit="currencyUSD",
                decimals=2,
            ),
            stat(
                "Spent",
                _SPENT,
                "Price times time within the time shown, as far as daemons ran.",
                unit="currencyUSD",
                decimals=2,
            ),
            stat(
                "Used, of what was spent",
                f"{_USED} / ({_SPENT} > 0)",
                "Share of the dollars within the time shown for which an SM of the GPU had work."
                " It says nothing of how well: see MFU.",
                unit="percentunit",
                base=BAD,
                steps={0.5: WARNING, 0.8: FINE},
                decimals=0,
            ),
            stat(
                "A million tokens served",
                f'avg({_MILLION}, direction="blended"}})',
                "Dollars of the servers' GPUs, busy or not, over the tokens of the last five"
                " minutes, read and generated ones together; mean of the chosen servers.",
                unit="currencyUSD",
                decimals=2,
            ),
            stat(
                "Electricity",
                "3600 * sum(rate(cost_energy_dollars_total{<node>}[$__rate_interval]))",
                "What the GPUs' energy costs an hour at present. Where the price of a GPU includes"
                " electricity this is a part of it.",
                unit="currencyUSD",
                decimals=2,
            ),
        ],
    )


def _states() -> Row:
    return Row(
        "Where the money goes",
        [
            timeseries(
                "Cost of an hour by state",
                [
                    Query(
                        "3600 * sum(rate(cost_dollars_total{<node>,"
                        f' state="{state}"}}[$__rate_interval]))',
                        state,
                        color,
                    )
                    for state, color in _STATES
                ],
                "Busy: an SM had work. Idle: none had. Unallocated: idle, and nobody has the GPU,"
                " where allocation is known. Unknown: activity was not told.",
                unit="currencyUSD",
                low=0,
                stacked=True,
                width=12,
            ),
            bargauge(
                "Spent by state",
                Query(
                    "sum by (state) (increase(cost_dollars_total{<node>}[$__range]))",
                    "{{state}}",
                ),
                "Dollars within the time shown, by what the GPUs did for them.",
                unit="currencyUSD",
                high=None,
                decimals=2,
                width=5,
            ),
            table(
                "Nodes",
                {"instance": "node"},
                [
                    Column(
                        "an hour",
                        "sum by (instance) (cost_dollars_per_hour{<node>})",
                        "currencyUSD",
                        decimals=2,
                    ),
                    Column(
                        "idle, an hour",
                        "sum by (instance) (cost_idle_dollars_per_hour{<node>})",
                        "currencyUSD",
                        decimals=2,
                    ),
                    Column(
                        "spent",
                        "sum by (instance) (increase(cost_dollars_total{<node>}[$__range]))",
                        "currencyUSD",
                        decimals=2,
                    ),
                    Column(
                        "not counted",
                        "sum by (instance) (cost_gap_seconds{<node>})",
                        "s",
                        decimals=0,
                    ),
                ],
                "What each node costs. Not counted: the time before its daemon began, as far as"
                " that is known.",
                sort="idle, an hour",
                width=7,
            ),
            table(
                "Prices",
                {
                    "source": "source",
                    "pricing": "pricing",
                    "instance_type": "instance type",
                    "as_of": "as of",
                },
                [
                    Column(
                        "GPUs",
                        "count by (source, pricing, instance_type, as_of)"
                        " (cost_price_info{<node>})",
                    ),
                    Column(
                        "GPU hour",
                        "avg by (source, pricing, instance_type, as_of)"
                        " (cost_gpu_hour_dollars{<node>} * on (cluster, instance, gpu, uuid)"
                        " group_left (source, pricing, instance_type, as_of)"
                        " cost_price_info{<node>})",
                        "currencyUSD",
                        decimals=2,
                    ),
                ],
                "Whose word the prices are: config, tco (your own plan), opencost, or listed; and"
                " of which day they are.",
                width=12,
            ),
            timeseries(
                "Price of a GPU hour",
                [
                    Query("max(cost_gpu_hour_dollars{<node>})", "dearest", BLUE),
                    Query("min(cost_gpu_hour_dollars{<node>})", "cheapest", ORANGE),
                ],
                "The price that holds now, with the hours of the day that a schedule makes dearer"
                " or cheaper.",
                unit="currencyUSD",
                low=0,
                width=6,
            ),
            timeseries(
                "Age of prices",
                Query("max by (source) (cost_price_age_seconds{<node>})", "{{source}}"),
                "Age of the oldest price in use, by who told it. The alert PriceStale watches it.",
                unit="s",
                low=0,
                width=6,
            ),
        ],
    )


def _serving() -> Row:
    return Row(
        "What tokens cost",
        [
            timeseries(
                "A million tokens",
                [
                    Query(
                        f'max by (server) ({_MILLION}, direction="output"}})',
                        "{{server}}: generated",
                        BLUE,
                    ),
                    Query(
                        f'max by (server) ({_MILLION}, direction="input"}})',
                        "{{server}}: read",
                        ORANGE,
                    ),
                    Query(
                        f'max by (server) ({_MILLION}, direction="blended"}})',
                        "{{server}}: both",
                        GREEN,
                    ),
                ],
                "All dollars of a server's GPUs over its tokens of the last five minutes; how much"
                " dearer a generated token is, is configured. Little traffic makes it dear.",
                unit="currencyUSD",
                low=0,
            ),
            timeseries(
                "Tokens for a dollar",
                Query(
                    'max by (server) (llm_tokens_per_dollar{<serving>, window="5m"})', "{{server}}"
                ),
                "Generated tokens for each dollar of the server's GPUs, over five minutes.",
                low=0,
            ),
            timeseries(
                "Requests for a dollar",
                Query(
                    'max by (server) (llm_queries_per_dollar{<serving>, window="5m"})',
                    "{{server}}",
                ),
                "Requests that were served for each dollar of the server's GPUs, over five"
                " minutes.",
                low=0,
            ),
        ],
    )


def _training() -> Row:
    return Row(
        "What runs cost",
        [
            table(
                "Runs",
                {"run": "run"},
                [
                    Column(
                        "so far",
                        "sum by (run) (train_cost_dollars_total{<run>})",
                        "currencyUSD",
                        decimals=2,
                    ),
                    Column(
                        "at its end",
                        "max by (run) (train_projected_cost_dollars{<run>})",
                        "currencyUSD",
                        decimals=0,
                    ),
                    Column(
                        "million tokens",
                        "max by (run) (train_cost_per_million_tokens_dollars{<run>})",
                        "currencyUSD",
                        decimals=2,
                    ),
                    Column("step", "max by (run) (train_step{<run>})", "none"),
                    Column("left", "max by (run) (train_remaining_seconds{<run>})", "s"),
                    Column(
                        "interruptions",
                        "sum by (run) (cost_interruption_dollars_total{<run>})",
                        "currencyUSD",
                        decimals=2,
                    ),
                ],
                "What the GPUs of runs have cost since they were first seen, and what they will"
                " have at the present pace. Projections take other nodes to cost as much as this.",
                width=12,
            ),
            timeseries(
                "Cost of an hour by run",
                Query(
                    "3600 * sum by (run) (rate(train_cost_dollars_total{<run>}[$__rate_interval]))",
                    "{{run}}",
                ),
                "What the GPUs of each run cost an hour, stalls included.",
                unit="currencyUSD",
                low=0,
                width=6,
            ),
            timeseries(
                "Projected cost",
                Query("max by (run) (train_projected_cost_dollars{<run>})", "{{run}}"),
                "What each run will have cost at its last step. It rises when steps become slower"
                " or GPUs dearer.",
                unit="currencyUSD",
                low=0,
                width=6,
            ),
        ],
    )


def _energy() -> Row:
    return Row(
        "Energy and carbon",
        [
            timeseries(
                "Power",
                Query(
                    "sum by (instance) (max by (instance, gpu) (gpu_power_watts{<node>}))",
                    "{{instance}}",
                ),
                "Power that the GPUs draw, by node. What the rest of the machine and its cooling"
                " need is not in it.",
                unit="watt",
                low=0,
            ),
            timeseries(
                "Electricity",
                Query(
                    "3600 * sum by (instance)"
                    " (rate(cost_energy_dollars_total{<node>}[$__rate_interval]))",
                    "{{instance}}",
                ),
                "Dollars an hour for the GPUs' energy: joules times PUE times the price of"
                " electricity.",
                unit="currencyUSD",
                low=0,
            ),
            timeseries(
                "Carbon",
                Query(
                    "3600 * sum by (instance)"
                    " (rate(cost_carbon_grams_total{<node>}[$__rate_interval]))",
                    "{{instance}}",
                ),
                "Grams of CO2 equivalent an hour for the GPUs' energy: joules times PUE times the"
                " intensity of the grid, as configured.",
                unit="massg",
                low=0,
            ),
            timeseries(
                "Energy of a token",
                [
                    Query(
                        "max by (run) (train_energy_joules_per_token{<run>})",
                        "trained: {{run}}",
                        PURPLE,
                    ),
                    Query(
                        'max by (server) (1 / (llm_tokens_per_joule{<serving>, window="5m"} > 0))',
                        "generated: {{server}}",
                        BLUE,
                    ),
                ],
                "Joules of the GPUs for a token that was trained on, and for one that was"
                " generated.",
                unit="joule",
                low=0,
            ),
            stat(
                "Carbon within the time shown",
                "sum(increase(cost_carbon_grams_total{<node>}[$__range]))",
                "Grams of CO2 equivalent for the energy of the chosen nodes' GPUs.",
                unit="massg",
                width=8,
                height=8,
            ),
            text(
                "**What a node of your own costs** is no series but a plan: `flopwatch tco PLAN`"
                " computes purchase, power, staff and depreciation, compares renting with owning,"
                " and its price of a GPU hour can be the one that this board counts with"
                " (`cost.plan`; then *Prices* says `tco`). docs/cost.md has the formulas.",
                width=8,
                height=8,
            ),
        ],
    )


def _tenants() -> Row:
    return Row(
        "Tenants",
        [
            timeseries(
                "Cost of an hour by namespace",
                Query(
                    "3600 * sum by (namespace)"
                    " (rate(cost_tenant_dollars_total{<node>}[$__rate_interval]))",
                    "{{namespace}}",
                ),
                "Price of the GPU time that each namespace has. Only where the kubelet tells who"
                " has which GPU.",
                unit="currencyUSD",
                low=0,
                stacked=True,
            ),
            timeseries(
                "Held and not used",
                Query(
                    "sum by (namespace)"
                    " (rate(cost_tenant_unused_gpu_seconds_total{<node>}[$__rate_interval]))",
                    "{{namespace}}",
                ),
                "GPUs that each namespace has and that are idle, on average. The alert GpuHeldIdle"
                " watches it.",
                low=0,
            ),
            table(
                "Namespaces",
                {"namespace": "namespace"},
                [
                    Column("GPUs", "sum by (namespace) (cost_allocated_gpus{<node>})"),
                    Column("quota", "max by (namespace) (cost_quota_gpus{<node>})"),
                    Column(
                        "of its quota",
                        "sum by (namespace) (cost_quota_used_ratio{<node>})",
                        "percentunit",
                        steps={1.0001: BAD},
                        decimals=0,
                    ),
                    Column(
                        "spent",
                        "sum by (namespace)"
                        " (increase(cost_tenant_dollars_total{<node>}[$__range]))",
                        "currencyUSD",
                        decimals=2,
                    ),
                    Column(
                        "GPU hours",
                        "sum by (namespace)"
                        " (increase(cost_tenant_gpu_seconds_total{<node>}[$__range])) / 3600",
                        decimals=2,
                    ),
                    Column(
                        "unused",
                        "sum by (namespace)"
                        " (increase(cost_tenant_unused_gpu_seconds_total{<node>}[$__range])) /"
                        " 3600",
                        decimals=2,
                    ),
                ],
                "What each namespace has and spends within the time shown. A GPU that several pods"
                " share is divided evenly.",
                sort="spent",
                width=8,
            ),
        ],
    )


def _spot() -> Row:
    return Row(
        "Spot and maintenance",
        [
            timeline(
                "Announcements",
                [
                    Query(
                        "max by (instance) (spot_interruption_notice{<node>})",
                        "{{instance}}: taken away",
                    ),
                    Query(
                        "max by (instance) (spot_rebalance_notice{<node>})",
                        "{{instance}}: interruption likely",
                    ),
                    Query(
                        "max by (instance) (spot_maintenance_notice{<node>})",
                        "{{instance}}: maintenance",
                    ),
                ],
                "What the cloud has announced for each node. A gap: it was not known.",
                states=NOTICES,
                width=12,
            ),
            stat(
                "Time left",
                "min(spot_interruption_deadline_timestamp_seconds{<node>}) - time() > 0",
                "Seconds until the first of the chosen nodes is taken away.",
                unit="s",
                base=BAD,
                steps={60: WARNING},
                nothing="nothing announced",
                trend=False,
                width=4,
                height=8,
            ),
            table(
                "Machines",
                {
                    "instance": "node",
                    "provider": "cloud",
                    "lifecycle": "bought as",
                    "instance_type": "instance type",
                    "zone": "zone",
                },
                [
                    Column(
                        "interruptions",
                        "max by (instance, provider, lifecycle, instance_type, zone)"
                        " (spot_instance_info{<node>} * on (cluster, instance, provider)"
                        " group_left () spot_interruptions_total{<node>})",
                    )
                ],
                "The cloud's instances, how they are bought, and how many interruptions of them"
                " were announced since their daemon was started.",
                width=8,
            ),
            timeseries(
                "Questions to the cloud",
                Query(
                    "sum by (result) (rate(spot_polls_total{<node>}[$__rate_interval])) > 0",
                    "{{result}}",
                ),
                "Questions to the metadata service in a second, by result. Anything but none and"
                " notice is no answer: see the alert SpotWatchBroken.",
                unit="reqps",
                low=0,
                width=8,
            ),
            timeseries(
                "Cost of interruptions",
                [
                    Query(
                        "sum by (run) (cost_interruption_dollars_total{<run>})",
                        "{{run}}",
                        SKY,
                    )
                ],
                "What interruptions of runs have cost: the time until the first step after them,"
                " on all their GPUs.",
                unit="currencyUSD",
                low=0,
                width=8,
            ),
            alerts_table('cluster=~"$cluster", component=~"cost|spot"', width=8),
        ],
    )
