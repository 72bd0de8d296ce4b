"""The guided story of the made-up node: faults on a timetable, with quiet time between them.

`CHAPTERS` is the timetable as data. Each chapter says what happens, with which faults, and where
that can be seen: on a panel, in a view, in a series, by an alert. After the last one the first
comes again. `Story` knows which chapter is on; the node turns the pages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from exporter.demo.faults import Faults

Place = Literal["dashboard", "status", "top", "metric", "alert"]


class Look(NamedTuple):
    """Where something can be seen, and what it will look like.

    `where` within the place: "Board / panel", a heading of the status page, a view of
    `flopwatch top`, a series as PromQL has it, an alert by name.
    """

    place: Place
    where: str
    sees: str


class Chapter(NamedTuple):
    """A part of the story: so many seconds long, with these faults (none: quiet).

    `notice` of its faults counts from its beginning.
    """

    name: str
    title: str
    seconds: float
    told: str
    looks: tuple[Look, ...]
    faults: Faults = Faults()


CHAPTERS: tuple[Chapter, ...] = (
    Chapter(
        "well", "All is well", 120.0,
        "A 13B model trains on GPUs 4 to 7, one node of sixteen; GPUs 0 to 3 serve a 70B model with"
        " vLLM, the CPU a small one with llama.cpp. Look round: this is what healthy looks like.",
        (
            Look("status", "Training", "MFU a third; a quarter of the peak waits for the network"),
            Look("top", "overview", "no promise is violated"),
            Look("dashboard", "Training / MFU", "a flat line"),
        ),
    ),
    Chapter(
        "throttle", "MFU falls because rank 3 throttles", 150.0,
        "The fan before GPU 7 has failed. It gets hot and lowers its clock; all ranks wait for"
        " rank 3 in each step, and each pays for it.",
        (
            Look("metric", "train_mfu_ratio", "falls by a fifth within a minute"),
            Look("metric", 'gpu_throttled_seconds_total{gpu="7",reason="sw_thermal"}', "grows"),
            Look("metric", "train_straggler_score", "rank 3 sticks out"),
            Look("metric", "diagnosis_cause", "`clock` and `straggler` hold"),
            Look("dashboard", "Node / Throttling", "GPU 7 alone, from heat"),
            Look("dashboard", "Training / Stragglers", "the row of rank 3 stands out"),
            Look("top", "gpus", "GPU 7 is hot, its clock is low: sw_thermal"),
        ),
        Faults(hot=3),
    ),
    Chapter(
        "mended", "The fan is replaced", 90.0,
        "GPU 7 cools down within half a minute, and MFU comes back.",
        (
            Look("metric", "train_mfu_ratio", "what it was"),
            Look("metric", "train_straggler_score", "nobody sticks out"),
        ),
    ),
    Chapter(
        "kv", "TTFT breaches because the KV cache is full", 120.0,
        "A batch of agents with long contexts comes to the 70B model. Their prompts fill the KV"
        " cache; whoever comes now waits for its first token until others have gone.",
        (
            Look("metric", "llm_kv_cache_usage_ratio", "close to 1, while requests wait"),
            Look("metric", "llm_waiting_requests", "grows"),
            Look("metric", 'sla_state{objective="ttft_p95",state="violated"}', "becomes 1"),
            Look("metric", "sla_breach_cause", "`kv_cache_full`"),
            Look("dashboard", "Inference SLA / KV cache", "full"),
            Look("alert", "SlaBudgetBurnsFast", "pages some minutes later"),
            Look("top", "serving", "KV 100 %, a queue, and ttft_p95 violated"),
        ),
        Faults(load=1.8, agents=0.6),
    ),
    Chapter(
        "drained", "The batch is over", 150.0,
        "The queue drains. The promise is judged over five minutes, so it stays broken until the"
        " slow requests have left the window: that is no delay, it is what was promised.",
        (
            Look("metric", "llm_waiting_requests", "0 again"),
            Look("metric", "sla_error_budget_remaining_ratio", "what was lost stays lost"),
        ),
    ),
    Chapter(
        "cable", "Training stands still because a cable is broken", 180.0,
        "The cable of rail 2 breaks. NCCL cannot go round it: all sixteen nodes wait in the same"
        " collective, and the GPUs look busy while they do.",
        (
            Look("metric", 'nic_up{device="mlx5_2"}', "0"),
            Look("metric", "gpu_utilization_ratio", "high: waiting looks like work"),
            Look("metric", "gpu_tensor_active_ratio", "0 on GPUs 4 to 7"),
            Look("dashboard", "Fabric / Ports over time", "mlx5_2 is red"),
            Look("alert", "RdmaPortDown", "pending, and after two minutes it pages"),
            Look("top", "fabric", "mlx5_2 is down"),
        ),
        Faults(cut=2),
    ),
    Chapter(
        "plugged", "The cable is replaced", 100.0,
        "The port comes up, the collective ends, and training goes on where it was.",
        (
            Look("metric", 'nic_up{device="mlx5_2"}', "1"),
            Look("metric", "train_goodput_ratio", "lower than before: three minutes were lost"),
        ),
    ),
    Chapter(
        "spot", "A spot notice comes", 130.0,
        "The cloud announces that it stops this machine in two minutes. That is time enough for a"
        " checkpoint: jobs can ask `GET /spot`.",
        (
            Look("metric", "spot_interruption_notice", "1"),
            Look("metric", "spot_interruption_deadline_timestamp_seconds", "two minutes from now"),
            Look("alert", "SpotInterruption", "fires at once"),
            Look("dashboard", "Cost / Announcements", "what comes, and when"),
            Look("status", "Overview", "what the cloud announces, and the time that is left"),
        ),
        Faults(notice=10.0, fate="stop"),
    ),
    Chapter(
        "back", "The machine is back", 160.0,
        "It has been started again, which the story does not wait for: another boot, so the notice"
        " is over. Training goes on from its checkpoint.",
        (
            Look("metric", "spot_interruption_notice", "0"),
            Look("metric", "train_interruptions_total", "one more than before"),
            Look("metric", "cost_interruption_dollars_total", "what it cost"),
        ),
    ),
)  # fmt: skip


class Story:
    """Which chapter is on; times are seconds since the node was born. Empty: nothing ever is."""

    def __init__(self, chapters: tuple[Chapter, ...]) -> None:
        self.chapters = chapters
        self.began = 0.0
        self.next = chapters[0].seconds if chapters else math.inf
        self._at = 0

    @property
    def chapter(self) -> Chapter | None:
        """The chapter that is on."""
        return self.chapters[self._at % len(self.chapters)] if self.chapters else None

    def turn(self) -> Chapter:
        """Begin the next chapter, and return it."""
        self._at += 1
        chapter = self.chapters[self._at % len(self.chapters)]
        self.began, self.next = self.next, self.next + chapter.seconds
        return chapter

    def document(self, now: float) -> Mapping[str, Any] | None:
        """Return what is on, as JSON values."""
        chapter = self.chapter
        if chapter is None:
            return None
        at = self._at % len(self.chapters)
        return {
            "lap": self._at // len(self.chapters) + 1,
            "number": at + 1,
            "chapters": len(self.chapters),
            "name": chapter.name,
            "title": chapter.title,
            "told": chapter.told,
            "quiet": chapter.faults == Faults(),
            "faults": [
                name
                for name, value in chapter.faults._asdict().items()
                if value != Faults._field_defaults[name]
            ],
            "seconds_since": now - self.began,
            "seconds_left": self.next - now,
            "looks": [look._asdict() for look in chapter.looks],
            "next": self.chapters[(at + 1) % len(self.chapters)].title,
        }
