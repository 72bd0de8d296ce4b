"""docs/kubernetes.md: its examples are rendered as they stand there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from tests.deploy.charts import template
from tests.deploy.manifests import (
    KUBERNETES,
    ROOT,
    VERSIONS,
    kustomize,
    of_kind,
    parse,
    pod,
    validate,
)
from tests.deploy.test_manifests import checked

PAGE = (ROOT / "docs/kubernetes.md").read_text("utf-8")


def example(first: str) -> str:
    """Return the block of YAML that begins with a line."""
    (found,) = [
        block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if first in block
    ]
    return str(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the configuration of its own that the page speaks of."""
    (tmp_path / "config.yaml").write_text("listen: ':9810'\ncompat: [dcgm]\n", "utf-8")
    return tmp_path


def rendered(folder: Path, text: str) -> str:
    beside = os.path.relpath(KUBERNETES, folder.resolve())
    (folder / "kustomization.yaml").write_text(
        text.replace("flopwatch/deploy/kubernetes", beside), "utf-8"
    )
    return kustomize(folder)


def test_the_kustomization_of_the_page(folder: Path) -> None:
    """Level, components, image, configuration and labels come out as it says."""
    manifests = parse(rendered(folder, example("# kustomization.yaml")))
    assert validate(manifests, VERSIONS[-1]) > 15
    assert pod(manifests)["containers"][0]["image"] == "registry.example.com/flopwatch:0.1.0"
    monitors = of_kind(manifests, "PodMonitor") + of_kind(manifests, "PrometheusRule")
    assert len(monitors) > 5
    assert all(one["metadata"]["labels"]["release"] == "kube-prometheus-stack" for one in monitors)
    (text,) = [
        one["data"]["config.yaml"]
        for one in of_kind(manifests, "ConfigMap")
        if one["metadata"]["name"] == "flopwatch"
    ]
    assert "compat: [dcgm]" in text


def test_the_patch_of_the_page(folder: Path) -> None:
    """The kubelet's folder and SELinux's type get into the pod."""
    base = "resources: [flopwatch/deploy/kubernetes/overlays/basic]\n"
    manifests = parse(rendered(folder, base + example("# The kubelet's folder")))
    validate(manifests, VERSIONS[-1])
    spec = pod(manifests)
    assert spec["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    assert spec["securityContext"]["runAsUser"] == 0
    (path,) = [
        volume["hostPath"]["path"]
        for volume in spec["volumes"]
        if volume["name"] == "pod-resources"
    ]
    assert path == "/var/snap/microk8s/common/var/lib/kubelet/pod-resources"


def test_a_rule_of_the_page_is_left_out(folder: Path) -> None:
    """Where rules of one's own take its place."""
    base = (
        "resources: [flopwatch/deploy/kubernetes/base]\n"
        "components: [flopwatch/deploy/kubernetes/components/rules]\n"
    )
    manifests = parse(rendered(folder, base + example("# A rule of ours")))
    names = {made["metadata"]["name"] for made in of_kind(manifests, "PrometheusRule")}
    assert "flopwatch-sla" in names
    assert "flopwatch-sla-alerts" not in names


def test_the_password_of_the_page(folder: Path) -> None:
    """Prometheus comes by HTTPS and with a password."""
    base = (
        "resources: [flopwatch/deploy/kubernetes/base]\n"
        "components:\n"
        "  - flopwatch/deploy/kubernetes/components/pod-monitor\n"
        "  - flopwatch/deploy/kubernetes/components/web-config\n"
    )
    manifests = parse(rendered(folder, base + example("# The password")))
    validate(manifests, VERSIONS[-1])
    (monitor,) = of_kind(manifests, "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["scheme"], set(endpoint["basicAuth"])) == ("https", {"username", "password"})


def test_the_values_of_the_page(tmp_path: Path) -> None:
    """Helm takes them, and the configuration in them is one."""
    manifests = template(yaml.safe_load(example("# values.yaml")))
    validate(manifests, VERSIONS[-1])
    checked(manifests, tmp_path)


def test_a_training_pod_of_the_page() -> None:
    """What is said of a job's pod is valid in one."""
    spec = yaml.safe_load(example("supplementalGroups"))
    env = yaml.safe_load(example("NODE_IP"))
    spec["containers"][0] |= {"image": "trainer", **env}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}
    assert validate([manifest], VERSIONS[-1]) == 1
    assert spec["securityContext"]["supplementalGroups"] == [65532]
