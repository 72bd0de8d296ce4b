"""The lower part of the board of a run: steps, ranks, diagnosis, loss, goodput, profile."""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.parts import (
    BLUE,
    BROWN,
    GREEN,
    GREY,
    LIME,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    VIOLET,
    WARNING,
    Query,
    Row,
    alerts_table,
    bargauge,
    heatmap,
    stat,
    timeline,
    timeseries,
)

PHASES = {
    "data": ORANGE,
    "forward": BLUE,
    "backward": SKY,
    "communication": VERMILION,
    "optimizer": GREEN,
    "bubble": VIOLET,
    "checkpoint": LIME,
    "evaluation": BROWN,
    "other": GREY,
}
LOST = {
    "start": BLUE,
    "data": ORANGE,
    "checkpoint": LIME,
    "repeated": PURPLE,
    "restart": VERMILION,
    "stalled": SKY,
    "evaluation": BROWN,
    "unknown": GREY,
}


def rows(bottleneck: str, bottlenecks: Mapping[str, tuple[str, str]]) -> list[Row]:
    """Return the rows; `bottleneck` asks for the code of the diagnosis, which has these texts."""
    return [
        _steps(),
        _ranks(),
        _diagnosis(bottleneck, bottlenecks),
        _learning(),
        _goodput(),
        _profile(),
    ]


def _steps() -> Row:
    phases = "avg by (phase) (rate(train_phase_seconds_total{<training>}[$__rate_interval]))"
    steps = "max(rate(train_steps_total{<training>}[$__rate_interval]))"
    return Row(
        "Steps",
        [
            timeseries(
                "Parts of a step",
                Query(f"{phases} / on () group_left () {steps}", "{{phase}}"),
                "What the time of a step goes into, mean of the ranks that Prometheus knows."
                " Communication is waiting for other ranks.",
                unit="s",
                colors=PHASES,
                stacked=True,
                low=0,
                width=12,
            ),
            heatmap(
                "Time of steps",
                Query(
                    "sum by (le)"
                    " (increase(train_step_seconds_bucket{<training>}[$__rate_interval]))",
                    "{{le}}",
                ),
                "How many steps took how long: the brighter, the more of them.",
                unit="s",
                axis="time of a step",
                buckets=True,
                width=12,
            ),
            bargauge(
                "Efficiency",
                [
                    Query(
                        'max(train_communication_ratio{<training>, kind="exposed"})',
                        "communication, exposed",
                        VERMILION,
                    ),
                    Query(
                        'max(train_communication_ratio{<training>, kind="total"})',
                        "communication, all of it",
                        ORANGE,
                    ),
                    Query(
                        "max(train_communication_overlap_ratio{<training>})",
                        "of it hidden behind computing",
                        GREEN,
                    ),
                    Query(
                        'max(train_pipeline_bubble_ratio{<training>, kind="measured"})',
                        "pipeline bubble, measured",
                        PURPLE,
                    ),
                    Query(
                        'max(train_pipeline_bubble_ratio{<training>, kind="theoretical"})',
                        "pipeline bubble, in theory",
                        PURPLE,
                    ),
                    Query("max(train_data_loading_ratio{<training>})", "waiting for data", LIME),
                    Query(
                        "avg(train_hbm_bandwidth_utilization_ratio{<training>})",
                        "HBM bandwidth (MBFU)",
                        SKY,
                    ),
                    Query("avg(train_gpu_active_ratio{<training>})", "SMs have work", BLUE),
                    Query(
                        "max by (kind) (train_scaling_efficiency_ratio{<training>})",
                        "scaling, {{kind}}",
                        GREEN,
                    ),
                ],
                "Shares of the step, and of what the hardware can do. Scaling is told only where a"
                " baseline is configured.",
                decimals=1,
                width=8,
                height=9,
            ),
            timeseries(
                "Throughput",
                Query("max(train_tokens_per_second{<training>})", "tokens per second", BLUE),
                "Tokens that the whole run trains on in a second, all nodes together.",
                low=0,
                height=9,
            ),
            timeseries(
                "Energy per token",
                Query("max(train_energy_joules_per_token{<training>})", "joules per token", ORANGE),
                "Energy of the GPUs for each token.",
                unit="joule",
                low=0,
                height=9,
            ),
        ],
    )


def _ranks() -> Row:
    return Row(
        "Ranks",
        [
            heatmap(
                "Stragglers",
                Query(
                    "max by (rank) (run_rank_instance:train_straggler:ratio{<training>})"
                    " or max by (rank) (train_straggler_score{<training>})",
                    "{{rank}}",
                ),
                "How much slower each rank's own work (the step less waiting) is than the median:"
                " one line for each rank, bright is slow. Over all nodes where the recording rules"
                " are loaded, else within each node. At least four ranks.",
                unit="percentunit",
                axis="rank",
                low=0,
                width=12,
                height=9,
            ),
            timeseries(
                "Own work of ranks",
                Query(
                    "max by (rank) (train_rank_step_seconds{<training>}"
                    " * (1 - train_rank_wait_ratio{<training>}))",
                    "rank {{rank}}",
                ),
                "Time of a step less waiting in collectives. All ranks take the same time for a"
                " step; the straggler is the one that waits least.",
                unit="s",
                height=9,
                width=6,
            ),
            timeseries(
                "Waiting of ranks",
                Query("max by (rank) (train_rank_wait_ratio{<training>})", "rank {{rank}}"),
                "Share of its step time that each rank waits in collectives.",
                unit="percentunit",
                low=0,
                height=9,
                width=6,
            ),
        ],
    )


def _diagnosis(bottleneck: str, bottlenecks: Mapping[str, tuple[str, str]]) -> Row:
    return Row(
        "Diagnosis",
        [
            timeline(
                "Limited by",
                Query(bottleneck, "limited by"),
                "What the decision tree has said limits the run. A gap: an input is missing, or no"
                " answer stood long enough.",
                states=bottlenecks,
                width=24,
                height=4,
            ),
            timeline(
                "What is seen",
                Query("max by (cause) (diagnosis_cause{<training>})", "{{cause}}"),
                "Each thing that is measured directly, and whether it is so. What is not in the"
                " list cannot be measured here.",
                states={"0": ("no", GREY), "1": ("yes", VERMILION)},
                width=12,
                height=14,
            ),
            heatmap(
                "Shares that the diagnosis rests on",
                Query("max by (signal) (diagnosis_signal_ratio{<training>})", "{{signal}}"),
                "Means over the last minute (checkpoints: hour), from dark (0) to bright (1). What"
                " they are held against is diagnosis_threshold_ratio.",
                unit="percentunit",
                low=0,
                high=1,
                width=12,
                height=14,
            ),
        ],
    )


def _learning() -> Row:
    return Row(
        "Loss",
        [
            timeseries(
                "Loss",
                Query("max(train_loss{<training>})", "loss", BLUE),
                "Loss of the last step that told one. A gap may be a loss that is not a number.",
            ),
            timeseries(
                "Gradient norm",
                Query("max(train_gradient_norm{<training>})", "norm", ORANGE),
                "Norm of the gradient at the last step that told one.",
                low=0,
            ),
            timeseries(
                "Learning rate",
                Query("max(train_learning_rate{<training>})", "learning rate", GREEN),
                "Learning rate of the last step that told one.",
                unit="sci",
                low=0,
            ),
        ],
    )


def _goodput() -> Row:
    hour = "rate(train_%s{<training>}[1h])"
    productive = f"sum({hour % 'productive_seconds_total'})"
    lost = f"sum({hour % 'lost_seconds_total'})"
    return Row(
        "Goodput",
        [
            timeseries(
                "Goodput",
                [
                    Query("max(train_goodput_ratio{<training>})", "since it was first seen", BLUE),
                    Query(f"{productive} / ({productive} + {lost} > 0)", "last hour", ORANGE),
                ],
                "Share of wall time in which steps brought the run on.",
                unit="percentunit",
                low=0,
                high=1,
                width=12,
            ),
            timeseries(
                "Time that was lost",
                Query(
                    "avg by (cause) (rate(train_lost_seconds_total{<training>}[$__rate_interval]))",
                    "{{cause}}",
                ),
                "Share of wall time that brought the run nowhere, by cause.",
                unit="percentunit",
                colors=LOST,
                stacked=True,
                low=0,
                width=12,
            ),
            stat(
                "Age of the checkpoint",
                "time() - max(train_last_checkpoint_timestamp_seconds{<training>})",
                "Time since the last checkpoint was saved: what a failure would cost. Unknown:"
                " nobody has told of one.",
                unit="s",
                width=6,
            ),
            stat(
                "Steps that were wasted",
                "max(increase(train_skipped_steps_total{<training>}[$__range]))"
                " + max(increase(train_repeated_steps_total{<training>}[$__range]))",
                "Steps within the time shown that changed no weight or had to be done again.",
                steps={1: WARNING},
                decimals=0,
                width=6,
            ),
            stat(
                "Interruptions",
                "sum(increase(train_interruptions_total{<training>}[$__range]))",
                "Times within the time shown that the run was interrupted and knew it beforehand.",
                steps={1: WARNING},
                decimals=0,
                width=6,
            ),
            stat(
                "Nodes that tell",
                "count(train_step{<training>})",
                "Nodes from whose daemons Prometheus hears of the run.",
                width=6,
            ),
            alerts_table("<training>", width=24, height=7),
        ],
    )


def _profile() -> Row:
    return Row(
        "Profile",
        [
            bargauge(
                "What the GPUs did",
                Query("avg by (kind) (train_profile_time_ratio{<training>})", "{{kind}}"),
                "Shares of the span that was profiled, mean of the ranks with a profile. Unknown:"
                " no profile was read.",
                decimals=1,
            ),
            bargauge(
                "Time by class of kernels",
                Query("avg by (class) (train_profile_class_seconds{<training>})", "{{class}}"),
                "Sum of the durations of all kernels of a class, in the latest profile.",
                unit="s",
                high=None,
            ),
            bargauge(
                "Kernels that take most",
                Query(
                    "topk(10, max by (kernel) (train_profile_kernel_seconds{<training>}))",
                    "{{kernel}}",
                ),
                "Sum of durations of the kernels that took most, in the latest profile.",
                unit="s",
                high=None,
            ),
        ],
        collapsed=True,
    )
