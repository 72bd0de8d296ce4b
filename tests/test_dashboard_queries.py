"""Queries of dashboards are made into what Prometheus can be asked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.dashboard_queries import expressions, names, substituted

FILES = sorted((Path(__file__).parent / "data" / "dashboards").glob("*.queries.txt"))


def test_variables_are_replaced_and_groups_are_not() -> None:
    """`$gpu`, `${node}` and `${job:regex}` get values; `$1` and the end of a pattern stay."""
    text = 'label_replace(up{gpu=~"$gpu", n="${node}", j=~"${job:regex}"}, "a", "$1", "b", "(.*)$")'
    said = 'label_replace(up{gpu=~".*", n="n1", j=~"j"}, "a", "$1", "b", "(.*)$")'
    assert substituted(text, {"gpu": ".*", "node": "n1", "job": "j"}) == said


def test_a_longer_variable_is_not_taken_for_a_shorter_one() -> None:
    """`$__rate_interval` has its own value, and so has `$gpu` beside `$gpus`."""
    assert substituted("rate(x[$__rate_interval])", {"__rate_interval": "5m"}) == "rate(x[5m])"
    assert substituted("$gpus $gpu", {"gpu": "1", "gpus": "2"}) == "2 1"


def test_a_variable_without_a_value_is_an_error() -> None:
    """It would otherwise be a query that matches nothing."""
    with pytest.raises(KeyError, match="job"):
        substituted("up{job='$job'}", {"gpu": "0"})


def test_functions_of_grafana_become_their_query() -> None:
    """What fills a variable is asked for too; data sources and empty lines are not queries."""
    lines = [
        "prometheus", "", "up", 'label_values(a_b{job="$job"},instance)', "label_values(job)",
        'query_result(label_join(a, "x", " #", "y"))', "up",
    ]  # fmt: skip
    assert expressions(lines) == ["up", 'a_b{job="$job"}', 'label_join(a, "x", " #", "y")']


def test_families_and_patterns_are_told_apart() -> None:
    """A name in a text is no family; a pattern of names is told as such."""
    text = 'label_replace({__name__=~"nvidia_smi_ecc_.+"}, "k", "$1", "n", "nvidia_smi_(.+)") + '
    assert names(text + 'DCGM_FI_DEV_GPU_TEMP{gpu="$gpu"}') == (
        {"DCGM_FI_DEV_GPU_TEMP"},
        {"nvidia_smi_ecc_.+"},
    )


def test_the_files_hold_queries() -> None:
    """Three dashboards, and each of their queries needs no other variables than these."""
    found = {file.name: expressions(file.read_text("utf-8").splitlines()) for file in FILES}
    assert [len(some) for some in found.values()] == [9, 49, 33]
    variables = dict.fromkeys(("gpu", "node", "job", "instance", "__rate_interval"), "x")
    for expression in (one for some in found.values() for one in some):
        assert not re.search(r"\$[A-Za-z_{]", substituted(expression, variables))
