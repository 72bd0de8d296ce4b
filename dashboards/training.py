"""One training run: how much of the peak becomes progress, and where the rest goes."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import training_course
from dashboards.parts import (
    BAD,
    BLUE,
    BROWN,
    FINE,
    GREEN,
    GREY,
    INDIGO,
    LAVENDER,
    LIME,
    OLIVE,
    ORANGE,
    PURPLE,
    ROSE,
    SKY,
    VERMILION,
    VIOLET,
    WARNING,
    Column,
    Query,
    Row,
    bargauge,
    board,
    cluster,
    datasource,
    gauge,
    mark,
    run,
    stat,
    table,
    timeseries,
)

CAUSES = {
    "data": ORANGE,
    "checkpoint": LIME,
    "evaluation": INDIGO,
    "bubble": VIOLET,
    "communication": VERMILION,
    "idle": GREY,
    "framework": PURPLE,
    "memory": SKY,
    "clock": LAVENDER,
    "kernels": BROWN,
    "recomputation": ROSE,
    "unexplained": OLIVE,
}
MFU = 'max by (peak) (train_mfu_ratio{<training>, convention="causal"})'
# Each node that reads the run tells of all of it: what they tell is not to be added up.
LOSS = "avg by (cause) (sum by (cluster, instance, cause) (train_mfu_loss_ratio{<training>}))"
BOTTLENECKS = {
    "0": ("none of these", GREY),
    "1": ("memory, severe", VERMILION),
    "2": ("software overhead", PURPLE),
    "3": ("communication", ORANGE),
    "4": ("memory bandwidth", SKY),
    "5": ("efficient", BLUE),
    "6": ("mixed", GREY),
}
_NAMES = (
    "memory_bound_severe",
    "software_overhead",
    "communication_bound",
    "memory_bandwidth_bound",
    "efficient",
    "mixed",
)
BOTTLENECK = (
    "max("
    + " or ".join(
        f'{code} * diagnosis_bottleneck{{<training>, bottleneck="{name}"}}'
        for code, name in enumerate(_NAMES, 1)
    )
    + ")"
)


def build() -> Dashboard:
    """Return the board."""
    return board(
        "flopwatch-training",
        "One training run: MFU by convention, the way from the peak down to it, the parts of a"
        " step, stragglers, diagnosis, loss, goodput.",
        [datasource(), cluster(), run(every=False)],
        [_now(), _mfu(), *training_course.rows(BOTTLENECK, BOTTLENECKS)],
        marks=[
            mark(
                "Checkpoints",
                "train_last_checkpoint_timestamp_seconds{<training>} * 1000",
                "checkpoint saved",
                color=GREEN,
            ),
            mark(
                "XIDs on the run's GPUs",
                "gpu_xid_last_timestamp_seconds{<cluster>} * 1000"
                # A GPU that is lost is the run's no more, and the reason why is what is looked for.
                " and on (cluster, instance, gpu) max_over_time(train_run_gpu{<training>}[1h])",
                "XID {{xid}} on {{instance}}, GPU {{gpu}}",
                "instance,gpu,xid",
            ),
        ],
    )


def _now() -> Row:
    return Row(
        "Now",
        [
            gauge(
                "MFU",
                Query(MFU, "of the {{peak}} peak"),
                "Model FLOPs utilization by the causal convention: what the model needs for its"
                " tokens, over the dense peak of the GPUs. 30 to 60 % is usual. Unknown: see what"
                " withholds it below.",
                base=WARNING,
                steps={0.3: FINE},
            ),
            stat(
                "Limited by",
                BOTTLENECK,
                "What the decision tree says limits the run. Unknown while an input is missing or"
                " no answer has stood long enough.",
                states=BOTTLENECKS,
                trend=False,
                height=6,
            ),
            stat(
                "Does it go on",
                "min(train_stalled{<training>})",
                "Stalled: no step for ten times as long as a step takes, and for a minute at"
                " least.",
                states={"0": ("steps are told", FINE), "1": ("stalled", BAD)},
                trend=False,
                height=6,
            ),
            stat(
                "Goodput",
                "max(train_goodput_ratio{<training>})",
                "Productive time over wall time since the run was first seen: steps that were not"
                " repeated, without stalls.",
                unit="percentunit",
                base=BAD,
                steps={0.8: WARNING, 0.9: FINE},
                height=6,
            ),
            stat(
                "Step",
                "max(train_step_median_seconds{<training>})",
                "Median time of an optimizer step, over the last steps that were told.",
                unit="s",
                height=6,
            ),
            stat(
                "Tokens per second and GPU",
                "max(train_tokens_per_second_per_gpu{<training>})",
                "TGS: tokens in a second for each GPU of the run, those on other nodes included.",
                height=6,
            ),
            stat(
                "Model FLOP/s per GPU",
                'max(train_model_flops_per_second_per_gpu{<training>, convention="causal"})',
                "TFGS: model FLOP/s for each GPU; recomputed work does not count. Causal"
                " convention.",
                unit="flops",
            ),
            stat(
                "Loss",
                "max(train_loss{<training>})",
                "Loss of the last step that told one; NaN if that is what it told.",
            ),
            stat(
                "Last step",
                "max(train_step{<training>})",
                "Number of the last step that ended, as the job counts.",
                unit="none",
            ),
            stat(
                "Time left",
                "min(train_remaining_seconds{<training>})",
                "Wall time until the last step at the present pace. Unknown where nobody tells how"
                " many steps there are.",
                unit="s",
                decimals=1,
            ),
            stat(
                "GPUs",
                "max(train_world_size{<training>})",
                "Ranks of the run on all nodes, one GPU each.",
                trend=False,
            ),
            stat(
                "Dollars per hour",
                "3600 * sum(rate(train_cost_dollars_total{<training>}[$__rate_interval]))",
                "What the run's GPUs on the nodes that Prometheus reads cost an hour.",
                unit="currencyUSD",
            ),
        ],
    )


def _mfu() -> Row:
    conventions = {
        "causal": BLUE,
        "palm": ORANGE,
        "full": GREEN,
        "6n": PURPLE,
        "HFU": SKY,
        "as": GREY,
    }
    own = 'max(train_mfu_ratio{<training>, convention="causal"})'
    return Row(
        "From peak to MFU",
        [
            bargauge(
                "What takes the peak away",
                [
                    Query(f"sort_desc({LOSS})", "{{cause}}"),
                    Query(own, "MFU: what is left"),
                ],
                "The waterfall from the dense peak (100 %) to MFU, largest first: the share that"
                " each cause takes, and what is left. Together they are the peak. Unexplained"
                " has a sign: it may be negative.",
                low=None,
                colors=CAUSES | {"MFU": BLUE},
                decimals=1,
                width=8,
                height=12,
            ),
            timeseries(
                "From peak to MFU over time",
                [
                    Query(own, "MFU"),
                    Query(LOSS, "{{cause}}"),
                ],
                "The same over time: MFU at the bottom, on it what each cause takes, up to the"
                " peak. When MFU falls, the band that grew is the cause.",
                unit="percentunit",
                colors=CAUSES | {"MFU": BLUE},
                stacked=True,
                soft_low=0,
                soft_high=1,
                width=16,
                height=12,
            ),
            timeseries(
                "MFU by convention",
                [
                    Query(
                        "max by (convention, peak) (train_mfu_ratio{<training>})",
                        "{{convention}}, {{peak}} peak",
                    ),
                    Query(
                        'max by (peak) (train_hfu_ratio{<training>, convention="causal"})',
                        "HFU causal, {{peak}} peak",
                    ),
                    Query(
                        "max by (reader) (train_reported_mfu_ratio{<training>})",
                        "as {{reader}} prints it",
                    ),
                ],
                "MFU as the conventions count operations; they differ in how attention is"
                " counted. Never compare across conventions or peaks. HFU counts recomputed work"
                " too.",
                unit="percentunit",
                colors=conventions,
                low=0,
                width=12,
            ),
            table(
                "How each loss is known",
                {"cause": "cause", "evidence": "evidence"},
                [
                    Column(
                        "share of the peak",
                        "avg by (cause, evidence) (train_mfu_loss_ratio{<training>})",
                        "percentunit",
                        decimals=1,
                    )
                ],
                "Evidence: measured by the job, profiled, from hardware counters, estimated, or"
                " what remains.",
                sort="share of the peak",
                width=6,
            ),
            table(
                "What withholds MFU",
                {"reason": "reason"},
                [
                    Column(
                        "withheld",
                        "max by (reason) (train_mfu_withheld{<training>}) == 1",
                        states={"1": ("yes", WARNING)},
                    )
                ],
                "Why MFU is not told: what is missing in the configuration or in what the job"
                " tells. Empty: nothing withholds it.",
                width=6,
            ),
        ],
    )
