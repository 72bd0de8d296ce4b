"""The status document: what the status page and `flopwatch once` tell of a view."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from exporter import catalogue as c
from exporter.samples import (
    Batch,
    Fault,
    Gate,
    Health,
    Histogram,
    Sample,
    SourceView,
    State,
    View,
)
from exporter.status import Moment, document, summary
from exporter.status.conditions import CONDITIONS, Watch

NOTICES = {"provider": None, "notices": []}
ABOUT: Mapping[str, Any] = {"version": "1.2.3", "ready": True}
LLAMA = ("llama-3.1-8b", "", "vllm", "chat")
QWEN = ("qwen3", "v2", "vllm", "chat")


def batch(samples: Iterable[Sample]) -> Batch:
    """Return the samples as the runner would put them on the board; all must be sound."""
    good, drops = Gate(1000).admit(list(samples))
    assert not drops
    return good


def source(name: str, group: str, state: State = "up", *samples: Sample, **more: Any) -> SourceView:
    """Return a source as the board would show it."""
    settings = {"health": Health(), **more}
    return SourceView(name=name, group=group, state=state, batch=batch(samples), **settings)


def told(*sources: SourceView, detailed: bool = True) -> dict[str, Any]:
    """Return the document of these sources, after a trip through strict JSON."""
    view = View(sources, token=())
    said = document(view, ABOUT, NOTICES, Watch(), Moment(100.0, 1.8e9), detailed=detailed)
    read: dict[str, Any] = json.loads(json.dumps(said, allow_nan=False))
    return read


def nic(device: str, port: str = "1") -> Sample:
    return c.NIC_INFO(1, device, port, "InfiniBand", "mlx5_core", "28.39", "MT_0838", "", "0")


# ---------------------------------------------------------------- sources


def test_document_is_headed_by_the_daemon() -> None:
    """What is known of the daemon itself is handed through, and so is who may see details."""
    assert told(detailed=False) == {
        "flopwatch": {"version": "1.2.3", "ready": True},
        "detailed": False,
        "spot": NOTICES,
        "conditions": {"watched": len({one.alert for one in CONDITIONS}), "holding": []},
        "sources": [],
        "gpus": [],
        "runs": [],
        "promises": [],
        "servers": [],
        "diagnoses": [],
        "fabric": {
            "ports": [], "missing": [], "rails": [], "nccl": [],
            "topology": {"gpus": [], "nearest": [], "faults": []},
        },
        "cost": {"dollars": {}, "prices": [], "tenants": []},
    }  # fmt: skip


def test_source_row_tells_state_and_health() -> None:
    """A row carries the state, the times, and the counts since the start."""
    health = Health(
        attempts=7,
        failures={"io": 2},
        drops={"cap": 3},
        last_success=1795976003.0,
        last_duration=0.0012,
        busy_since=99.0,
    )
    row = told(
        source("network", c.NIC, "stuck", c.NIC_UP(1, "eth0", ""), health=health, age=1.2, busy=9.5)
    )["sources"][0]
    assert row == {
        "name": "network",
        "group": "nic",
        "state": "stuck",
        "age_seconds": 1.2,
        "busy_seconds": 9.5,
        "series": 1,
        "reads": 7,
        "read_duration_seconds": 0.0012,
        "last_success": 1795976003.0,
        "failures": {"io": 2},
        "drops": {"cap": 3},
        "found": [],
        "faults": [],
    }


def test_what_is_not_known_is_null() -> None:
    """Before its first read a source has no age, no read time and no success: not zeros."""
    row = told(source("network", c.NIC, "waiting"))["sources"][0]
    for key in ("age_seconds", "busy_seconds", "read_duration_seconds", "last_success"):
        assert row[key] is None
    assert row["series"] == row["reads"] == 0


def test_times_of_exactly_zero_are_known() -> None:
    """A reading that was taken this very moment has an age: zero."""
    row = told(source("network", c.NIC, age=0.0, busy=0.0))["sources"][0]
    assert (row["age_seconds"], row["busy_seconds"]) == (0.0, 0.0)


def test_series_are_counted_as_they_are_written() -> None:
    """A histogram counts with all its buckets, its sum and its count."""
    ttft = Histogram((0.1, 1.0), (1, 2, 3), 1.5)
    row = told(
        source("inference:chat", c.SERVING, "up",
               c.LLM_TTFT_SECONDS(ttft, *LLAMA), c.LLM_ACTIVE_REQUESTS(3, *LLAMA))
    )["sources"][0]  # fmt: skip
    assert row["series"] == 5 + 1


def test_gpus_found_are_counted_by_product() -> None:
    """Eight boards of a kind are one entry, a ninth of another kind a second one."""
    at = c.GPU_INFO.labels.index("name")

    def gpu(index: int, name: str) -> Sample:
        labels = [str(index), f"GPU-{index}", *[""] * (len(c.GPU_INFO.labels) - 2)]
        labels[at] = name
        return c.GPU_INFO(1, *labels)

    boards = [*(gpu(i, "NVIDIA H100 80GB HBM3") for i in range(8)), gpu(8, "Tesla T4")]
    assert told(source("nvml", c.GPU, "up", *boards))["sources"][0]["found"] == [
        "8 x NVIDIA H100 80GB HBM3",
        "Tesla T4",
    ]


def test_devices_found_are_named_once() -> None:
    """Every device is named once, in the order of the page, however many ports it has."""
    samples = (nic("mlx5_0"), nic("mlx5_0", "2"), c.NIC_UP(1, "mlx5_9", "1"), nic("eth0", ""))
    assert told(source("network", c.NIC, "up", *samples))["sources"][0]["found"] == [
        "mlx5_0",
        "eth0",
    ]


def test_host_and_engine_are_found_too() -> None:
    """A host is known by its kernel, an inference server by its engine."""
    rows = told(
        source("host", c.HOST, "up", c.HOST_INFO(1, "6.8.0", "x86_64")),
        source("inference:chat", c.SERVING, "up", c.LLM_SERVER_INFO(1, "vllm", "chat", "")),
    )["sources"]
    assert [row["found"] for row in rows] == [["6.8.0"], ["vllm"]]


@pytest.mark.parametrize("detailed", [True, False])
def test_error_texts_are_for_callers_on_the_node(detailed: bool) -> None:
    """The class of an error is for all; its text, with paths and addresses, is not."""
    fault = Fault("mlx5_3/1", "io", "OSError: [Errno 5] Input/output error: '/sys/secret'")
    said = told(source("network", c.NIC, "degraded", faults=(fault,)), detailed=detailed)
    assert said["sources"][0]["faults"] == [
        {"part": "mlx5_3/1", "reason": "io", **({"detail": fault.detail} if detailed else {})}
    ]
    assert ("secret" in json.dumps(said)) is detailed


# ---------------------------------------------------------------- inference servers


def serving(*samples: Sample, name: str = "chat", state: State = "up", **more: Any) -> SourceView:
    return source(f"inference:{name}", c.SERVING, state, *samples, **more)


def test_server_row_has_models_with_their_figures() -> None:
    """Each model of a server is one row; its tokens are told apart by direction."""
    said = told(
        serving(
            c.LLM_SERVER_INFO(1, "vllm", "chat", "0.11.0"),
            c.LLM_ACTIVE_REQUESTS(3, *LLAMA),
            c.LLM_WAITING_REQUESTS(0, *LLAMA),
            c.LLM_KV_CACHE_USAGE_RATIO(0.41, *LLAMA),
            c.LLM_TOKENS_TOTAL(60937, "llama-3.1-8b", "", "input", "vllm", "chat"),
            c.LLM_TOKENS_TOTAL(14939, "llama-3.1-8b", "", "output", "vllm", "chat"),
            c.LLM_ACTIVE_REQUESTS(1, *QWEN),
            age=0.4,
        )
    )
    assert said["servers"] == [
        {
            "server": "chat",
            "state": "up",
            "age_seconds": 0.4,
            "engine": "vllm",
            "version": "0.11.0",
            "models": [
                {
                    "model_name": "llama-3.1-8b",
                    "model_version": "",
                    "active_requests": 3,
                    "waiting_requests": 0,
                    "kv_cache_usage_ratio": 0.41,
                    "input_tokens": 60937,
                    "output_tokens": 14939,
                },
                {"model_name": "qwen3", "model_version": "v2", "active_requests": 1},
            ],
            "unresolved": [],
            "gpus": [],
            "probes": {},
        }
    ]


def test_values_that_are_no_number_are_left_out() -> None:
    """A gauge that is NaN or infinite is not known; JSON has no word for it."""
    said = told(
        serving(
            c.LLM_ACTIVE_REQUESTS(2, *LLAMA),
            c.LLM_WAITING_REQUESTS(math.inf, *LLAMA),
            c.LLM_KV_CACHE_USAGE_RATIO(math.nan, *LLAMA),
        )
    )
    assert said["servers"][0]["models"] == [
        {"model_name": "llama-3.1-8b", "model_version": "", "active_requests": 2}
    ]


def test_other_metrics_make_no_model() -> None:
    """A server of which only histograms are known has no row with nothing in it."""
    said = told(serving(c.LLM_TTFT_SECONDS(Histogram((1.0,), (0, 0), 0.0), *LLAMA)))
    assert said["servers"][0]["models"] == []


def test_unresolved_rows_are_named() -> None:
    """Metrics that the engine should offer and does not are listed by name."""
    said = told(
        serving(
            c.LLM_SERVER_INFO(1, "vllm", "chat", ""),
            c.LLM_MAPPING_UNRESOLVED(1, "vllm", "chat", "llm_ttft_seconds"),
            c.LLM_MAPPING_UNRESOLVED(1, "vllm", "chat", "llm_kv_cache_usage_ratio"),
        )
    )
    assert said["servers"][0]["unresolved"] == ["llm_ttft_seconds", "llm_kv_cache_usage_ratio"]


def test_failing_server_keeps_its_row() -> None:
    """A server that does not answer is listed under its configured name, engine not known."""
    fault = Fault("", "timeout", "TimeoutError: no answer")
    said = told(serving(name="eu:west", state="failed", faults=(fault,), age=3.0))
    assert said["servers"] == [
        {
            "server": "eu:west",
            "state": "failed",
            "age_seconds": 3.0,
            "engine": "",
            "version": "",
            "models": [],
            "unresolved": [],
            "gpus": [],
            "probes": {},
        }
    ]


def test_sources_that_serve_nothing_are_no_servers() -> None:
    """Only inference servers are listed as such."""
    assert told(source("network", c.NIC, "up", nic("mlx5_0")))["servers"] == []


# ---------------------------------------------------------------- the summary for a terminal


def test_summary_has_one_line_for_each_source() -> None:
    """A line tells the name, the state, the number of series and what was found."""
    said = told(
        source("network", c.NIC, "up", nic("mlx5_0"), nic("eth0", "")),
        source("process", c.EXPORTER, "waiting"),
    )
    assert [line.split() for line in summary(said)] == [
        ["network", "up", "2", "series", "mlx5_0,", "eth0"],
        ["process", "waiting", "0", "series"],
    ]


def test_summary_says_why_something_is_missing() -> None:
    """Faults follow their source, with the text where there is one, else with the class."""
    faults = (Fault("mlx5_3/1", "io", "OSError: broken"), Fault("", "denied", "PermissionError"))
    network = source("network", c.NIC, "degraded", faults=faults)
    (line,) = summary(told(network))
    assert line.splitlines()[1:] == [
        "    mlx5_3/1: OSError: broken",
        "    not read: PermissionError",
    ]
    (line,) = summary(told(network, detailed=False))
    assert line.splitlines()[1:] == ["    mlx5_3/1: io", "    not read: denied"]


def test_summary_stays_short() -> None:
    """Of many faults the first five are told, and how many more there are."""
    faults = tuple(Fault(f"mlx5_{i}", "io", "OSError") for i in range(12))
    (line,) = summary(told(source("network", c.NIC, "degraded", faults=faults)))
    assert len(line.splitlines()) == 1 + 5 + 1
    assert line.endswith("and 7 more parts")


# ---------------------------------------------------------------- diagnosis


def test_diagnosis_tells_what_limits_each_run_and_what_is_seen() -> None:
    """The one bottleneck, whether it is borne out, the causes that are so, the signals."""
    samples = [
        c.DIAGNOSIS_BOTTLENECK(0, "llama", "efficient"),
        c.DIAGNOSIS_BOTTLENECK(1, "llama", "communication_bound"),
        c.DIAGNOSIS_CONFIRMED(1, "llama"),
        c.DIAGNOSIS_CAUSE(1, "llama", "exposed_communication"),
        c.DIAGNOSIS_CAUSE(0, "llama", "bubble"),
        c.DIAGNOSIS_SIGNAL_RATIO(0.97, "llama", "gpu_utilization"),
        c.DIAGNOSIS_SIGNAL_PER_SECOND(0.0, "llama", "link_error_rate"),
        c.DIAGNOSIS_SIGNAL_RATIO(0.98, "", "gpu_utilization"),
    ]

    said = told(source("derive:diagnosis", c.DIAGNOSIS, "up", *samples))

    assert said["diagnoses"] == [
        {
            "run": "llama",
            "bottleneck": "communication_bound",
            "confirmed": True,
            "causes": ["exposed_communication"],
            "signals": {"gpu_utilization": 0.97, "link_error_rate": 0.0},
        },
        {
            "run": "",
            "bottleneck": None,
            "confirmed": None,
            "causes": [],
            "signals": {"gpu_utilization": 0.98},
        },
    ]
