"""docs/migration.md: its queries are PromQL, and what it calls ours is."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import jsonschema
import yaml

from exporter import catalogue as c
from tests.deploy.manifests import ROOT, one, render, schema

PAGE = (ROOT / "docs/migration.md").read_text("utf-8")
OURS = re.compile(r"\b(?:gpu|llm|nic|host)_[a-z0-9_]*[a-z0-9]\b")


def queries() -> list[str]:
    """Return each query of the page; a comment or a line that begins at its edge begins one."""
    found = []
    for block in re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL):
        lines = [line.removeprefix("   ") for line in block.splitlines()]
        text = re.sub(r"(?m)\s+#.*$|^#.*$", "\x00", "\n".join(lines))
        found += [part.strip() for part in text.split("\x00") if part.strip()]
    return found


def test_the_queries_are_queries(tool: Callable[[str], str], tmp_path: Path) -> None:
    """promtool takes each of them."""
    assert len(queries()) == 4
    rules = [{"record": f"page:{number}", "expr": text} for number, text in enumerate(queries())]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "page", "rules": rules}]}), "utf-8")
    done = subprocess.run(
        [tool("promtool"), "check", "rules", str(file)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_called_ours_is_there() -> None:
    """Each metric of ours that the page names is in the catalogue."""
    quoted = re.findall(r"`([^`\n]*)`", PAGE)
    named = {name for text in (*queries(), *quoted) for name in OURS.findall(text)}
    assert len(named) >= 5
    assert named <= set(c.FAMILIES)


def test_the_relabeling_fits_the_monitor() -> None:
    """What keeps names of `compat` out is taken by the operator."""
    (block,) = re.findall(r"```yaml\n(metricRelabelings:.*?)```", PAGE, re.DOTALL)
    monitor = one(render("base", "components/pod-monitor"), "PodMonitor")
    changed = yaml.safe_load(yaml.safe_dump(monitor))
    changed["spec"]["podMetricsEndpoints"][0] |= yaml.safe_load(block)
    jsonschema.validate(changed, schema("PodMonitor"))
