"""The manifests: valid for several Kubernetes, no more rights than documented, up to date."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from deploy import build
from exporter import config
from exporter.__main__ import main
from tests.deploy.manifests import (
    KUBERNETES,
    LEVELS,
    VERSIONS,
    components,
    of_kind,
    one,
    parse,
    pod,
    render,
    validate,
)
from tests.deploy.rights import documented, rights

PRIVILEGED = {"overlays/deep", "components/kernel-log", "components/gke-cos"}
"""All that may be privileged, so that a further one is a decision."""
WRITABLE = {"components/push-socket": "/run/flopwatch", "components/state": "/var/lib/flopwatch"}
"""All that may write to the host."""


def rendered(name: str) -> tuple[dict[str, Any], ...]:
    """Return a level, or the base with one component."""
    return render(name) if name in LEVELS else render("base", name)


def test_versions_are_several() -> None:
    """Schemas of several versions of Kubernetes are there."""
    assert len(VERSIONS) >= 5
    assert VERSIONS[0] == "1.30"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cluster_takes_the_manifests(version: str) -> None:
    """Each level, and the deepest with every component, is valid for a version of Kubernetes."""
    for level in LEVELS:
        assert validate(render(level), version) >= 5
    assert validate(render("overlays/deep", *components()), version) >= 5


@pytest.mark.parametrize("name", components())
def test_a_component_stands_alone(name: str) -> None:
    """Each component is valid on the base and on the deepest level."""
    for level in (LEVELS[0], LEVELS[-1]):
        assert validate(render(level, name), VERSIONS[-1]) >= 5


def test_a_mistake_is_found() -> None:
    """What the schemas are for: a misspelt key, a wrong type, a word that is none of a list."""
    manifests = copy.deepcopy(render("base", "components/pod-monitor"))
    pod(manifests)["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readinesProbe"):
        validate(manifests, VERSIONS[-1])
    manifests = copy.deepcopy(render("base", "components/pod-monitor", "components/rules"))
    monitor = one(manifests, "PodMonitor")
    monitor["spec"]["podMetricsEndpoints"][0]["relabelings"][0]["action"] = "erase"
    with pytest.raises(jsonschema.ValidationError, match="erase"):
        validate([monitor], VERSIONS[-1])
    rule = of_kind(manifests, "PrometheusRule")[0]
    rule["spec"]["groups"][0]["rules"][0]["for"] = "5 minutes"
    with pytest.raises(jsonschema.ValidationError, match="5 minutes"):
        validate([rule], VERSIONS[-1])


def test_rights_are_documented() -> None:
    """docs/kubernetes.md has a row for each level and component, and the manifests keep to it."""
    told = {name: rights(rendered(name)) for name in (*LEVELS, *components())}
    assert documented() == told


@pytest.mark.parametrize("name", [*LEVELS, *components()])
def test_nothing_is_asked_for_beyond_need(name: str) -> None:
    """Whatever a level asks for, all else stays closed."""
    manifests = rendered(name)
    spec = pod(manifests)
    (container,) = spec["containers"]
    context = container["securityContext"]
    assert context["capabilities"]["drop"] == ["ALL"]
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is (name in PRIVILEGED)
    assert context.get("privileged", False) is (name in PRIVILEGED)
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not spec.get("hostIPC", False)
    assert spec["securityContext"]["runAsGroup"] == 65532
    assert spec["securityContext"]["runAsNonRoot"] is (spec["securityContext"]["runAsUser"] != 0)
    for volume in spec["volumes"]:
        mounts = [one for one in container["volumeMounts"] if one["name"] == volume["name"]]
        path = volume.get("hostPath", {}).get("path")
        assert mounts, f"{volume['name']} is mounted nowhere"
        assert not path or path == WRITABLE.get(name) or all(one["readOnly"] for one in mounts)


@pytest.mark.parametrize("name", [*LEVELS, *components()])
def test_the_namespace_admits_its_pods(name: str) -> None:
    """The policy of the namespace is the strictest that its pods pass."""
    manifests = rendered(name)
    spec = pod(manifests)
    (container,) = spec["containers"]
    beyond_baseline = (
        any("hostPath" in volume for volume in spec["volumes"])
        or any(spec.get(key, False) for key in ("hostNetwork", "hostPID"))
        or container["securityContext"].get("privileged", False)
    )
    label = one(manifests, "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert label == ("privileged" if beyond_baseline else "restricted")


def checked(manifests: Sequence[dict[str, Any]], folder: Path) -> None:
    """Fail unless `flopwatch check` takes the configuration in a ConfigMap."""
    (text,) = [
        found["data"]["config.yaml"]
        for found in of_kind(manifests, "ConfigMap")
        if found["metadata"]["name"] == "flopwatch"
    ]
    file = folder / "config.yaml"
    file.write_text(text, "utf-8")
    with pytest.raises(SystemExit) as end:
        main(["check", str(file)])
    assert end.value.code == 0


@pytest.mark.parametrize("name", [*LEVELS, *components()])
def test_a_shipped_configuration_is_accepted(name: str, tmp_path: Path) -> None:
    """`flopwatch check` has nothing to say about what the ConfigMap holds."""
    checked(rendered(name), tmp_path)


def test_probes_ask_the_port_that_is_listened_on() -> None:
    """Port, probes, annotations and the configuration name the same port."""
    for level in LEVELS:
        manifests = render(level)
        (container,) = pod(manifests)["containers"]
        (port,) = container["ports"]
        settings = config.parse(one(manifests, "ConfigMap")["data"]["config.yaml"], "config.yaml")
        _, listens = config.address(settings.listen)
        noted = one(manifests, "DaemonSet")["spec"]["template"]["metadata"]["annotations"]
        assert str(port["containerPort"]) == str(listens) == noted["prometheus.io/port"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["port"] == port["name"]


def test_the_state_has_a_place() -> None:
    """The directory for the state is below a mount that may be written to."""
    for level in LEVELS:
        manifests = render(level)
        settings = config.parse(one(manifests, "ConfigMap")["data"]["config.yaml"], "config.yaml")
        (mount,) = [
            mount
            for mount in pod(manifests)["containers"][0]["volumeMounts"]
            if mount["name"] == "state"
        ]
        assert Path(str(settings.state_directory)).parent == Path(mount["mountPath"])
        assert not mount.get("readOnly", False)


def test_the_rules_are_those_of_the_alerts() -> None:
    """The operator's objects hold each rule as alerts/ has it; `make manifests` writes them."""
    for path, text in build.files():
        assert path.read_text("utf-8") == text, f"{path} is out of date: run `make manifests`"
    made = {
        one["metadata"]["name"]: one["spec"]
        for one in of_kind(render("base", "components/rules"), "PrometheusRule")
    }
    assert made == {
        f"flopwatch-{topic}": yaml.safe_load((build.ALERTS / f"{topic}.yaml").read_text("utf-8"))
        for topic in build.topics()
    }


def test_boards_fit_into_their_maps() -> None:
    """Each board has a ConfigMap with the sidecar's label, below the limit of one."""
    maps = {
        name: text
        for found in of_kind(render("base", "components/dashboards"), "ConfigMap")
        if found["metadata"]["labels"].get("grafana_dashboard") == "1"
        for name, text in found["data"].items()
    }
    boards = {path.name: path.read_text("utf-8") for path in build.BOARDS.glob("*.json")}
    assert boards
    assert maps == boards
    assert max(len(text.encode()) for text in maps.values()) < 1_000_000


def test_runbooks_get_an_address() -> None:
    """Runbooks are linked to where the operator has put them."""
    (made,) = parse(build.rule("gpu", "https://wiki.example.com/flopwatch/"))
    addresses = {
        rule["annotations"]["runbook_url"]
        for group in made["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    assert addresses
    assert all(one.startswith("https://wiki.example.com/flopwatch/gpu.md#") for one in addresses)


def test_no_manifest_is_left_over() -> None:
    """Each file below deploy/kubernetes is used by a kustomization beside it."""
    for path in KUBERNETES.rglob("*.yaml"):
        if path.name != "kustomization.yaml":
            text = (path.parent / "kustomization.yaml").read_text("utf-8")
            assert path.name in text, path
