"""Manifests as a cluster gets them: rendered by a real kustomize, checked by real schemas."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

ROOT = Path(__file__).parent.parent.parent
KUBERNETES = ROOT / "deploy/kubernetes"
SCHEMAS = ROOT / "tests/data/deploy"
KUBECTL = Path(sys.executable).parent / "kubectl"
LEVELS = ("base", "overlays/basic", "overlays/fabric", "overlays/deep")
VERSIONS = sorted(
    {
        version.rpartition(".")[0]
        for version in kubernetes_validate.utils.all_versions()
        if tuple(map(int, version.split("."))) >= (1, 30)
    },
    key=lambda version: int(version.partition(".")[2]),
)
"""Of Kubernetes: from the first that knows `recursiveReadOnly` on."""

Manifest = dict[str, Any]


def components() -> list[str]:
    """Return all components, as the tables of the documents name them."""
    return sorted(
        f"components/{path.parent.name}"
        for path in (KUBERNETES / "components").glob("*/kustomization.yaml")
    )


@cache
def render(base: str, *parts: str) -> tuple[Manifest, ...]:
    """Return what kustomize makes of a level and components beside it."""
    with tempfile.TemporaryDirectory() as folder:
        text = yaml.safe_dump(
            {
                "namespace": "flopwatch",
                "resources": [os.path.relpath(KUBERNETES / base, Path(folder).resolve())],
                "components": [
                    os.path.relpath(KUBERNETES / part, Path(folder).resolve()) for part in parts
                ],
            }
        )
        Path(folder, "kustomization.yaml").write_text(text, "utf-8")
        return parse(kustomize(folder))


def kustomize(folder: str | Path) -> str:
    """Return what `kubectl kustomize` prints; its complaint where it fails, or warns."""
    done = subprocess.run(
        [KUBECTL, "kustomize", str(folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


def parse(text: str) -> tuple[Manifest, ...]:
    """Return the objects in a YAML text of several documents."""
    return tuple(one for one in yaml.load_all(text, Loader=_Strict) if one)


class _Strict(yaml.SafeLoader):
    """One that takes no key twice: neither do kustomize and what installs charts by it."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        made = super().construct_mapping(node, deep)
        assert len(made) == len(node.value), f"a key is given twice: {node.start_mark}"
        return made


def validate(manifests: Iterable[Manifest], version: str) -> int:
    """Return how many objects there were, all of which a version of Kubernetes takes."""
    number = 0
    for number, manifest in enumerate(manifests, 1):  # noqa: B007
        _validate(json.dumps(manifest, sort_keys=True), version)
    return number


@cache  # a look takes 30 ms, and most objects are the same at all levels
def _validate(text: str, version: str) -> None:
    manifest = json.loads(text)
    if manifest["apiVersion"].startswith("monitoring.coreos.com/"):
        jsonschema.validate(manifest, schema(manifest["kind"]))
    else:
        kubernetes_validate.validate(manifest, version, strict=True)


@cache
def schema(kind: str) -> dict[str, Any]:
    """Return the schema of an object of the Prometheus operator."""
    path = SCHEMAS / f"{kind.lower()}.schema.json"
    return dict(json.loads(path.read_text("utf-8")))


def of_kind(manifests: Sequence[Manifest], kind: str) -> list[Manifest]:
    """Return the objects of a kind."""
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def one(manifests: Sequence[Manifest], kind: str) -> Manifest:
    """Return the only object of a kind."""
    (manifest,) = of_kind(manifests, kind)
    return manifest


def pod(manifests: Sequence[Manifest]) -> dict[str, Any]:
    """Return the pod that the DaemonSet makes."""
    return dict(one(manifests, "DaemonSet")["spec"]["template"]["spec"])
