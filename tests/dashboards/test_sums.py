"""What panels say of several nodes, servers and clusters at once, by real Prometheus.

The demo is one node: a sum over what each node tells of the same run looks right there.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dashboards.queries import asked

VALUES = {
    "$cluster": ".*", "$instance": ".*", "$run": "r",
    "$__range": "5m", "$__rate_interval": "2m", "$__interval": "1m",
}  # fmt: skip

# A run on two nodes, whose daemons both read what it tells of itself.
TWO_NODES = {
    f'{name}{{instance="{node}", run="r"{more}}}': value
    for node in ("a", "b")
    for name, more, value in (
        ("train_mfu_loss_ratio", ', cause="framework", evidence="measured"', "0.25x10"),
        ("train_mfu_loss_ratio", ', cause="framework", evidence="counters"', "0.5x10"),
        ("train_lost_seconds_total", ', cause="data"', "0+6x10"),
        ("train_skipped_steps_total", "", "0+1x10"),
        ("train_repeated_steps_total", "", "0+0x10"),
    )
}
TWO_SERVERS = {
    f'llm_tokens_per_joule{{engine="vllm", model_name="m", server="{one}", window="5m"}}': "2x10"
    for one in ("s", "t")
}
# Two clusters that call a node alike: a port is down in one of them.
TWO_CLUSTERS = {
    f'{name}{{cluster="{cluster}", instance="n", device="mlx5_0", port="1"}}': value
    for cluster, up in (("x", "1x10"), ("y", "0x10"))
    for name, value in (("nic_expected_up", "1x10"), ("nic_up", up))
}
CASES = [
    (("training", "What takes the peak away"), TWO_NODES, {'{cause="framework"}': 0.75}),
    (("training", "From peak to MFU over time"), TWO_NODES, {'{cause="framework"}': 0.75}),
    (("training", "How each loss is known"), TWO_NODES,
        {'{cause="framework", evidence="measured"}': 0.25,
         '{cause="framework", evidence="counters"}': 0.5},
    ),
    (("training", "Time that was lost"), TWO_NODES, {'{cause="data"}': 0.1}),
    (("training", "Steps that were wasted"), TWO_NODES, {"{}": 5}),
    (("fleet", "What kernels cost in MFU"), TWO_NODES, {'{cause="framework"}': 0.75}),
    (("fleet", "Models"), TWO_SERVERS, {'{model_name="m"}': 2}),
    (("fleet", "Ports down"), TWO_CLUSTERS, {"{}": 1}),
    (("fabric", "Ports down that should be up"), TWO_CLUSTERS, {"{}": 1}),
    (("fabric", "Ports over time"), {**TWO_CLUSTERS, 'nic_up{instance="o", device="d", port="1"}':
        "1x10", 'nic_expected_up{instance="o", device="d", port="1"}': "1x10"},
        {'{instance="n", device="mlx5_0", port="1"}': 1, '{instance="o", device="d", port="1"}': 1},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("place", "told", "gives"), CASES)
def test_what_several_tell_of_one_thing_is_not_added_up(
    tool: Callable[[str], str],
    tmp_path: Path,
    place: tuple[str, str],
    told: dict[str, str],
    gives: dict[str, float],
) -> None:
    board, panel = place
    families = {series.partition("{")[0] for series in told}
    (query,) = [
        expr
        for title, expr in asked(f"flopwatch-{board}")
        if title == panel and any(f"{family}{{" in expr for family in families)
    ]
    for name, value in VALUES.items():
        query = query.replace(name, value)
    test: dict[str, Any] = {
        "interval": "1m",
        "input_series": [{"series": one, "values": value} for one, value in told.items()],
        "promql_expr_test": [
            {
                "expr": query,
                "eval_time": "5m",
                "exp_samples": [{"labels": one, "value": value} for one, value in gives.items()],
            }
        ],
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({"tests": [test]}), "utf-8")
    done = subprocess.run(
        [tool("promtool"), "test", "rules", str(file)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
