"""The chart as Helm renders it, and what of it is Helm's alone."""

from __future__ import annotations

import copy
from typing import Any

import helm_python

from tests.deploy.manifests import ROOT, Manifest, parse

CHART = ROOT / "deploy/helm/flopwatch"
OURS = ("app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version",
        "helm.sh/chart")  # fmt: skip
"""Labels that Helm's objects have beside those of kustomize."""


def template(values: dict[str, Any] | None = None, name: str = "flopwatch") -> tuple[Manifest, ...]:
    """Return the objects of a release. Raises `helm_python.HelmError` for what Helm refuses."""
    with helm_python.Chart.load(CHART) as chart:
        files = chart.render(values or {}, name=name, namespace="flopwatch")
    return tuple(
        manifest
        for path, text in files.items()
        if not path.endswith("NOTES.txt")
        for manifest in parse(text)
    )


def plain(manifest: Manifest) -> Manifest:
    """Return an object without Helm's labels, and volumes in the order of their names."""
    manifest = copy.deepcopy(manifest)
    _forget(manifest)
    if manifest["kind"] == "DaemonSet":
        spec = manifest["spec"]["template"]["spec"]
        spec["volumes"].sort(key=_name)
        for container in spec["containers"]:
            container["volumeMounts"].sort(key=_name)
            container["env"].sort(key=_name)
    return manifest


def _name(one: dict[str, Any]) -> str:
    return str(one["name"])


def _forget(node: Any) -> None:
    if isinstance(node, dict):
        for label in OURS:
            node.pop(label, None)
        node = list(node.values())
    if isinstance(node, list):
        for one in node:
            _forget(one)
