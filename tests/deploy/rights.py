"""What a pod may do, as one row of the table in docs/kubernetes.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.deploy.manifests import ROOT, Manifest, of_kind, pod

TABLE = ROOT / "docs/kubernetes.md"
HEADER = "| manifests | user | capabilities | privileged | host namespaces | paths of the host |"
"""How the table begins; the last column is the API server."""


class Rights(NamedTuple):
    """A row: each column as the table has it."""

    user: str
    capabilities: str
    privileged: str
    namespaces: str
    paths: str
    api_server: str


def rights(manifests: Sequence[Manifest]) -> Rights:
    """Return what the DaemonSet's pod may do."""
    spec = pod(manifests)
    (container,) = spec["containers"]
    assert "initContainers" not in spec
    context = spec["securityContext"] | container["securityContext"]
    added = context["capabilities"].get("add", [])
    return Rights(
        user=str(context["runAsUser"]),
        capabilities=_listed(added),
        privileged="yes" if context.get("privileged", False) else "no",
        namespaces=_listed(
            name.removeprefix("host").lower()
            for name in ("hostNetwork", "hostPID", "hostIPC")
            if spec.get(name, False)
        ),
        paths=_listed(_paths(spec, container)),
        api_server=_listed(_asked(manifests)),
    )


def _listed(words: Any) -> str:
    return ", ".join(sorted(words)) or "none"


def _paths(spec: dict[str, Any], container: dict[str, Any]) -> list[str]:
    mounts: dict[str, list[dict[str, Any]]] = {}
    for mount in container["volumeMounts"]:
        mounts.setdefault(mount["name"], []).append(mount)
    return [
        f"`{volume['hostPath']['path']}`"
        + ("" if all(mount.get("readOnly", False) for mount in mounts[volume["name"]]) else " rw")
        for volume in spec["volumes"]
        if "hostPath" in volume
    ]


def _asked(manifests: Sequence[Manifest]) -> list[str]:
    """Return what the roles permit, whoever they are bound to."""
    return [
        f"{resource}: {' '.join(rule['verbs'])}"
        for kind in ("ClusterRole", "Role")
        for role in of_kind(manifests, kind)
        for rule in role["rules"]
        for resource in rule["resources"]
    ]


def documented() -> dict[str, Rights]:
    """Return the table of docs/kubernetes.md, by manifests."""
    lines = iter(TABLE.read_text("utf-8").splitlines())
    for line in lines:
        if line.startswith(HEADER):
            break
    next(lines)
    table = {}
    for line in lines:
        if not line.startswith("|"):
            break
        name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        table[re.sub("`", "", name)] = Rights(*cells)
    return table
