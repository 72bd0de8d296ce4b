"""Queries of the docs about who has GPUs, by real Prometheus: what each gives on three GPUs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import yaml

DOCS = Path(__file__).parent.parent / "docs"
PAGE, MIGRATION = DOCS / "attribution.md", DOCS / "migration.md"

GPU = 'instance="n", gpu="{0}", uuid="GPU-{0}"'
WHO = 'namespace="{0}", pod="{1}", container="main"'


def series(name: str, gpu: int, who: str = "", more: str = "") -> str:
    return f"{name}{{{', '.join(filter(None, (GPU.format(gpu), who, more)))}}}"


NOBODY = WHO.format("", "").replace('container="main"', 'container=""')
A, B, C = (WHO.format(*one) for one in (("ml", "a"), ("ml", "b"), ("web", "c")))
OF_A = 'namespace="ml", pod="a", container="main", pod_uid="1", cluster_job=""'
OF_JOB = 'namespace="", pod="", container="", pod_uid="", cluster_job="7"'
TOLD: dict[str, float | str] = {
    series("gpu_allocation_info", 0, A): 1,
    series("gpu_allocation_info", 1, B): 1,
    series("gpu_allocation_info", 1, C): 1,
    series("gpu_allocation_info", 2, NOBODY): 1,
    series("gpu_allocation_share_ratio", 0, A): 1,
    series("gpu_allocation_share_ratio", 1, B): 0.25,
    series("gpu_allocation_share_ratio", 1, C): 0.5,
    series("gpu_allocation_part_info", 1, B, 'mig="3", replica=""'): 1,
    series("gpu_utilization_ratio", 0): 0.75,
    series("gpu_utilization_ratio", 1): 0.5,
    series("gpu_utilization_ratio", 2): 0,
    series("gpu_mig_memory_used_bytes", 1, more='mig="3"'): 4096,
    series("gpu_allocation_memory_used_bytes", 0, OF_A): 1024,
    series("gpu_allocation_memory_used_bytes", 0, OF_JOB): 512,
    series("gpu_allocation_sm_seconds_total", 0, OF_A): "0+15",
    series("gpu_allocation_sm_seconds_total", 0, OF_JOB): "0+30",
    series("gpu_job_info", 0, 'mig="", cluster_job="7", user=""'): 1,
    series("gpu_job_info", 1, 'mig="", cluster_job="7", user=""'): 1,
    series("gpu_job_info", 1, 'mig="", cluster_job="8", user=""'): 1,
    series("gpu_job_info", 2, 'mig="", cluster_job="", user=""'): 1,
    **{series("gpu_power_watts", at, 'kind="average"'): 100 * (at + 1) for at in range(3)},
    **{series("gpu_power_watts", at, 'kind="instant"'): 999 for at in range(3)},
}
GIVES: list[dict[str, float]] = [
    {series("", 0, A): 0.75, series("", 1, B): 0.5, series("", 1, C): 0.5},
    {series("", 1, B, 'mig="3"'): 4096},
    {'{namespace="ml"}': 1.25, '{namespace="web"}': 0.5},
    {'{instance="n"}': 1},
    {'{uuid="GPU-0", namespace="ml", pod="a"}': 1024, '{uuid="GPU-0"}': 512},
    {'{uuid="GPU-0", namespace="ml", pod="a"}': 0.25, '{uuid="GPU-0"}': 0.5},
    {'{cluster_job="7"}': 300, '{cluster_job="8"}': 200},
]


def test_the_pages_queries_give_what_it_says(tool: Callable[[str], str], tmp_path: Path) -> None:
    blocks = re.findall(r"```promql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    give(tool("promtool"), tmp_path, "".join(blocks).splitlines(), GIVES)


def test_a_join_of_who_comes_from_dcgm_exporter_stands_shared_gpus(
    tool: Callable[[str], str], tmp_path: Path
) -> None:
    """The page's query was an error as soon as two of its pods had one GPU."""
    pattern = re.compile(r"^100 \* .*gpu_allocation_info.*$", re.MULTILINE)
    (query,) = pattern.findall(MIGRATION.read_text("utf-8"))
    asked = query.replace("train.*", "[bc]")
    assert asked != query
    gives = {series("", 1, B): 50.0, series("", 1, C): 50.0}
    give(tool("promtool"), tmp_path, [asked], [gives])


def give(promtool: str, folder: Path, queries: list[str], gives: list[dict[str, float]]) -> None:
    """Ask Prometheus, and compare."""
    assert len(queries) == len(gives)
    file = {
        "tests": [{
            "interval": "1m",
            "input_series": [
                {"series": one, "values": f"{value}x10"} for one, value in TOLD.items()
            ],
            "promql_expr_test": [
                {
                    "expr": query, "eval_time": "5m",
                    "exp_samples": [
                        {"labels": one, "value": value} for one, value in wanted.items()
                    ],
                }
                for query, wanted in zip(queries, gives, strict=True)
            ],
        }]
    }  # fmt: skip
    (folder / "test.yaml").write_text(yaml.safe_dump(file), "utf-8")
    result = subprocess.run(
        [promtool, "test", "rules", "test.yaml"],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
