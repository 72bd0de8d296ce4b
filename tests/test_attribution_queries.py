"""The queries of docs/attribution.md, by real Prometheus: what each gives on three GPUs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import yaml

PAGE = Path(__file__).parent.parent / "docs/attribution.md"

GPU = 'instance="n", gpu="{0}", uuid="GPU-{0}"'
WHO = 'namespace="{0}", pod="{1}", container="main"'


def series(name: str, gpu: int, who: str = "", more: str = "") -> str:
    return f"{name}{{{', '.join(filter(None, (GPU.format(gpu), who, more)))}}}"


NOBODY = WHO.format("", "").replace('container="main"', 'container=""')
A, B, C = (WHO.format(*one) for one in (("ml", "a"), ("ml", "b"), ("web", "c")))
TOLD = {
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
}
GIVES: list[dict[str, float]] = [
    {series("", 0, A): 0.75, series("", 1, B): 0.5, series("", 1, C): 0.5},
    {series("", 1, B, 'mig="3"'): 4096},
    {'{namespace="ml"}': 1.25, '{namespace="web"}': 0.5},
    {'{instance="n"}': 1},
]


def test_the_pages_queries_give_what_it_says(tool: Callable[[str], str], tmp_path: Path) -> None:
    (block,) = re.findall(r"```promql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    queries = block.splitlines()
    assert len(queries) == len(GIVES)
    file = {
        "tests": [{
            "interval": "1m",
            "input_series": [{"series": one, "values": f"{value}"} for one, value in TOLD.items()],
            "promql_expr_test": [
                {
                    "expr": query, "eval_time": "0m",
                    "exp_samples": [
                        {"labels": one, "value": value} for one, value in gives.items()
                    ],
                }
                for query, gives in zip(queries, GIVES, strict=True)
            ],
        }]
    }  # fmt: skip
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(file), "utf-8")
    result = subprocess.run(
        [tool("promtool"), "test", "rules", "test.yaml"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
