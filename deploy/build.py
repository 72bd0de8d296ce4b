"""Writes what the manifests have from elsewhere in this repository: `python -m deploy.build`.

Alerts become objects of the Prometheus operator, a file each, comments and all; boards become the
list of them in dashboards/kustomization.yaml. kustomize reads no file outside its folder and knows
no patterns, so all this is committed; a test says when it is out of date.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
ALERTS = ROOT / "alerts"
RULES = ROOT / "deploy/kubernetes/components/rules"
BOARDS = ROOT / "dashboards"
NOT_RULES = {"alertmanager"}
_RULE = """\
# From alerts/{topic}.yaml by `make manifests`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: flopwatch-{topic}
spec:
"""


def topics() -> list[str]:
    """Return the names of the files of rules."""
    return sorted(path.stem for path in ALERTS.glob("*.yaml") if path.stem not in NOT_RULES)


def rule(topic: str, runbooks: str = "runbooks") -> str:
    """Return an object of the operator with all rules of a topic.

    `runbooks` is the address under which the runbooks are found.
    """
    text = (ALERTS / f"{topic}.yaml").read_text("utf-8")
    text = text.replace('"runbooks/', f'"{runbooks.rstrip("/")}/')
    return _RULE.format(topic=topic) + textwrap.indent(text, "  ")


def kustomization() -> str:
    """Return the component that has all of them."""
    resources = "".join(f"  - {topic}.yaml\n" for topic in topics())
    return (
        "# All alerts and recording rules (docs/alerts.md), by `make manifests`.\n"
        "apiVersion: kustomize.config.k8s.io/v1alpha1\n"
        f"kind: Component\nresources:\n{resources}"
        "labels:\n  - pairs: {app.kubernetes.io/name: flopwatch}\n"
    )


def boards() -> str:
    """Return the component that has a ConfigMap for each board, as Grafana's sidecar wants it."""
    maps = "".join(
        f"  - name: {board.stem}\n    files: [{board.name}]\n"
        for board in sorted(BOARDS.glob("*.json"))
    )
    return (
        "# A ConfigMap for each board, with the label that Grafana's sidecar looks for, by"
        " `make manifests`.\n"
        "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"
        f"configMapGenerator:\n{maps}"
        "generatorOptions:\n"
        "  disableNameSuffixHash: true\n"
        '  labels: {app.kubernetes.io/name: flopwatch, grafana_dashboard: "1"}\n'
        "  annotations: {grafana_folder: flopwatch}\n"
    )


def files(runbooks: str = "runbooks") -> Iterator[tuple[Path, str]]:
    """Yield what is written, by path."""
    yield BOARDS / "kustomization.yaml", boards()
    yield RULES / "kustomization.yaml", kustomization()
    for topic in topics():
        yield RULES / f"{topic}.yaml", rule(topic, runbooks)


def main() -> None:
    """Write all of it."""
    parser = argparse.ArgumentParser(prog="python -m deploy.build", description=main.__doc__)
    parser.add_argument("--runbooks", default="runbooks", help="address of the runbooks")
    wanted = dict(files(parser.parse_args().runbooks))
    RULES.mkdir(exist_ok=True)
    for path in RULES.glob("*.yaml"):
        if path not in wanted:
            path.unlink()
    for path, text in wanted.items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
