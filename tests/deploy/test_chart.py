"""The Helm chart: Helm takes it, and it makes the same as kustomize."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import helm_python
import jsonschema
import pytest
import yaml

from deploy import build
from exporter import __version__, config
from tests.deploy.charts import CHART, plain, template
from tests.deploy.manifests import VERSIONS, Manifest, of_kind, one, pod, render, validate
from tests.deploy.rights import rights

LEVELS = {
    "base": "base", "basic": "overlays/basic", "fabric": "overlays/fabric", "deep": "overlays/deep",
}  # fmt: skip
PARTS: dict[str, dict[str, Any]] = {
    "components/claims": {"claims": True},
    "components/dashboards": {"dashboards": {"enabled": True}},
    "components/gke-cos": {"gpus": "gke-cos"},
    "components/gpus-by-mount": {"gpus": "mount"},
    "components/pod-discovery": {"podDiscovery": True},
    "components/pod-logs": {"podLogs": True},
    "components/pod-monitor": {"podMonitor": {"enabled": True}},
    "components/push-socket": {"pushSocket": True},
    "components/rules": {"rules": {"enabled": True}},
    "components/runtime-class": {"runtimeClassName": "nvidia"},
    "components/state": {"hostState": True},
    "components/web-config": {"web": {"secretName": "flopwatch-web"}},
}
"""What a component is called in the values."""
OF_LEVELS = {"host-network", "kernel-log", "pod-resources", "processes"}


def compared(manifests: tuple[Manifest, ...]) -> dict[tuple[str, str], Manifest]:
    """Return the objects by kind and name; configurations as what they mean."""
    found = {}
    for manifest in map(plain, manifests):
        if manifest["kind"] == "ConfigMap" and "config.yaml" in manifest["data"]:
            manifest["data"]["config.yaml"] = yaml.safe_load(manifest["data"]["config.yaml"])
        if manifest["kind"] != "Namespace":  # a chart goes into one that is there
            found[manifest["kind"], manifest["metadata"]["name"]] = manifest
    return found


def test_helm_has_nothing_to_say() -> None:
    """Helm's own lint, strict, finds nothing but the missing icon."""
    told = helm_python.lint(CHART, strict=True)
    assert told["errors"] == []
    assert [one["error"] for one in told["messages"]] == ["icon is recommended"]


@pytest.mark.parametrize("level", list(LEVELS))
def test_a_level_is_that_of_kustomize(level: str) -> None:
    """Every object of a level, to the last key."""
    assert compared(template({"level": level})) == compared(render(LEVELS[level]))


@pytest.mark.parametrize("component", list(PARTS))
def test_a_part_is_that_of_kustomize(component: str) -> None:
    """Every object of each part, on the base and on the deepest level."""
    for level in ("base", "deep"):
        values = {"level": level, **PARTS[component]}
        assert compared(template(values)) == compared(render(LEVELS[level], component))


def test_prometheus_comes_by_https_where_there_is_tls() -> None:
    """The monitor of both knows of the certificate."""
    parts = ["components/pod-monitor", "components/web-config"]
    values = PARTS[parts[0]] | PARTS[parts[1]] | {"level": "fabric"}
    made = compared(template(values))
    assert made == compared(render("overlays/fabric", *parts))
    (endpoint,) = made["PodMonitor", "flopwatch"]["spec"]["podMetricsEndpoints"]
    assert endpoint["scheme"] == "https"
    assert validate(template(values), VERSIONS[-1])


def test_no_component_is_forgotten() -> None:
    """What kustomize can add, the chart can."""
    from tests.deploy.manifests import components

    assert set(components()) == set(PARTS) | {f"components/{name}" for name in OF_LEVELS}


def test_the_kernel_log_is_all_that_is_privileged() -> None:
    """Without it the deepest level has one capability."""
    told = rights(template({"level": "deep", "kernelLog": False}))
    assert (told.privileged, told.capabilities) == ("no", "SYS_PTRACE")
    assert "/dev/kmsg" not in told.paths


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_a_cluster_takes_the_chart(version: str) -> None:
    """With every value that adds something, for the oldest and the newest Kubernetes."""
    values = yaml.safe_load(EVERYTHING)
    assert validate(template(values, "gpus"), version) >= 15


EVERYTHING = """
level: deep
image: {digest: "sha256:%s", pullPolicy: Always}
imagePullSecrets: [{name: registry}]
podDiscovery: true
claims: true
pushSocket: true
podLogs: true
hostState: true
runtimeClassName: nvidia
gpus: mount
kubeletDirectory: /var/snap/microk8s/common/var/lib/kubelet
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
  {matchExpressions: [{key: nvidia.com/gpu.present, operator: Exists}]}]}}}
podAnnotations: {team: gpus}
podLabels: {team: gpus}
seLinuxOptions: {type: spc_t}
extraEnv: [{name: FLOPWATCH_LOG_LEVEL, value: debug}]
extraVolumes: [{name: data, hostPath: {path: /data}}]
extraVolumeMounts: [{name: data, mountPath: /data, readOnly: true}]
networkPolicy: {from: [{podSelector: {matchLabels: {app: prometheus}}}]}
web: {secretName: web}
podMonitor:
  enabled: true
  labels: {release: stack}
  tlsConfig: {insecureSkipVerify: true}
  basicAuth: {username: {name: scrape, key: username}, password: {name: scrape, key: password}}
rules: {enabled: true, labels: {release: stack}, runbooks: "https://wiki.example.com/runbooks"}
dashboards: {enabled: true}
""" % ("0" * 64)


def test_names_are_those_of_the_release() -> None:
    """Two releases in one cluster do not meet."""
    manifests = template(yaml.safe_load(EVERYTHING), "gpus")
    names = {manifest["metadata"]["name"] for manifest in manifests}
    assert all(name.startswith("gpus-flopwatch") for name in names)
    roles = of_kind(manifests, "ClusterRoleBinding")
    assert {role["roleRef"]["name"] for role in roles} == {
        "gpus-flopwatch",
        "gpus-flopwatch-claims",
    }
    assert {role["subjects"][0]["name"] for role in roles} == {"gpus-flopwatch"}
    spec = pod(manifests)
    assert spec["priorityClassName"] == "gpus-flopwatch"
    assert spec["containers"][0]["image"] == "flopwatch@sha256:" + "0" * 64
    links = {
        rule["annotations"]["runbook_url"].partition("/gpu.md")[0]
        for made in of_kind(manifests, "PrometheusRule")
        if made["metadata"]["name"].endswith("-gpu")
        for group in made["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    assert links == {"https://wiki.example.com/runbooks"}


def test_rules_of_ones_own_take_the_place_of_ours() -> None:
    """A topic that is excluded is left out, and no other."""
    names = {
        made["metadata"]["name"]
        for made in of_kind(
            template({"rules": {"enabled": True, "exclude": ["sla-alerts"]}}), "PrometheusRule"
        )
    }
    assert names == {f"flopwatch-{topic}" for topic in build.topics()} - {"flopwatch-sla-alerts"}


def test_keys_of_ones_own_are_laid_over_the_levels() -> None:
    """`config` changes single keys and leaves the others."""
    own = {"sources": {"network": {"enabled": True}}, "compat": ["dcgm"]}
    manifests = template({"level": "basic", "config": own})
    (made,) = of_kind(manifests, "ConfigMap")
    settings = config.parse(made["data"]["config.yaml"], "config.yaml")
    assert settings.sources.network.enabled is True
    assert settings.sources.ethtool.enabled is False
    assert settings.compat == ("dcgm",)


def test_annotations_and_labels_of_ones_own_are_no_second_key() -> None:
    """`prometheus.io/scrape: "false"` stood beside ours; that is not YAML to all who read it."""
    manifests = template({
        "podAnnotations": {"prometheus.io/scrape": "false", "a": "b"},
        "podLabels": {"app.kubernetes.io/name": "other", "c": "d"},
        "podMonitor": {"enabled": True, "labels": {"app.kubernetes.io/name": "other"}},
        "rules": {"enabled": True, "labels": {"app.kubernetes.io/name": "other"}},
        "web": {"secretName": "123"}, "runtimeClassName": "1",
    })  # fmt: skip
    template_of = one(manifests, "DaemonSet")["spec"]["template"]
    assert template_of["metadata"]["annotations"]["prometheus.io/scrape"] == "false"
    assert template_of["metadata"]["annotations"]["a"] == "b"
    assert template_of["metadata"]["labels"]["app.kubernetes.io/name"] == "flopwatch"
    assert template_of["metadata"]["labels"]["c"] == "d"
    assert one(manifests, "PodMonitor")["metadata"]["labels"]["app.kubernetes.io/name"] == "other"
    assert validate(manifests, VERSIONS[-1]) >= 5


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"level": "deeper"}, "level"),
        ({"levle": "deep"}, "levle"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"kubeletDirectory": "var/lib/kubelet"}, "kubeletDirectory"),
        ({"podMonitor": {"interval": 15}}, "interval"),
        ({"config": {"listen": ":9811"}}, "listen"),
        ({"config": {"listen": "127.0.0.1:9810"}}, "listen"),
        ({"rules": {"runbooks": 'https://wiki/"x"'}}, "runbooks"),
    ],
)
def test_a_wrong_value_is_refused(values: dict[str, Any], said: str) -> None:
    """Helm refuses what the schema does not know, and names it."""
    told = helm_python.lint(CHART, values)
    assert any(said in error for error in told["errors"]), told


def test_the_values_are_those_of_the_schema() -> None:
    """Each key of values.yaml stands in the schema and the other way round."""
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    jsonschema.validate(values, schema)
    assert set(schema["properties"]) - {"global"} == set(values)
    for key, value in values.items():
        inner = schema["properties"][key]
        if inner.get("additionalProperties") is False:
            assert set(inner["properties"]) == set(value), key


def test_versions_agree() -> None:
    """The chart, the image of the manifests and the package are one version."""
    said = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert said["appVersion"] == __version__
    assert pod(render("base"))["containers"][0]["image"] == f"flopwatch:{__version__}"
    dockerfile = (CHART.parent.parent.parent / "Dockerfile").read_text("utf-8")
    assert f"ARG VERSION={__version__}\n" in dockerfile


def test_a_release_has_room(tmp_path: Path) -> None:
    """A packed chart with rules and boards fits the Secret in which Helm keeps a release."""
    packed = Path(str(helm_python.package(CHART, destination=tmp_path)))
    assert packed.stat().st_size < 500_000
