"""The compose file: what it mounts is there, what it runs is pinned, its programs accept it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.demo import settings
from exporter.__main__ import _parser

FOLDER = settings.COMPOSE
FILE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = FILE["services"]


@pytest.mark.parametrize("path", settings.compose(), ids=lambda path: path.name)
def test_what_is_made_is_up_to_date(path: Path) -> None:
    """`python -m deploy.demo.settings` writes it."""
    assert path.read_text() == settings.compose()[path]


def test_images_are_pinned() -> None:
    for name, service in SERVICES.items():
        if "build" not in service:
            assert re.fullmatch(r"docker\.io/[\w/]+:v?\d+\.\d+\.\d+", service["image"]), name


def test_what_is_mounted_and_built_from_is_there() -> None:
    """A path that is missing would be made by Docker: an empty directory, owned by root."""
    volumes = [volume for service in SERVICES.values() for volume in service.get("volumes", ())]
    for volume in volumes:
        source, target, *mode = volume.split(":")
        assert target.startswith("/")
        if source in FILE["volumes"]:
            continue
        assert mode == ["ro"], volume
        assert (FOLDER / source).exists(), volume
    assert (FOLDER / SERVICES["flopwatch"]["build"]["context"] / "Dockerfile").is_file()


def mounted(service: str, inside: str) -> Path:
    """Return the file of this repository that a service sees at a path."""
    for volume in SERVICES[service]["volumes"]:
        source, target = volume.split(":")[:2]
        if inside == target or inside.startswith(f"{target}/"):
            return FOLDER / source / inside.removeprefix(target).lstrip("/")
    raise AssertionError(f"{service}: nothing is mounted at {inside}")


def test_what_configurations_name_is_mounted_where_they_say() -> None:
    rules = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())["rule_files"]
    assert {mounted("prometheus", one).resolve() for one in rules} == set(settings.rules())
    for service, name in (("prometheus", "prometheus"), ("alertmanager", "alertmanager")):
        flag = next(one for one in SERVICES[service]["command"] if one.startswith("--config.file="))
        assert mounted(service, flag.partition("=")[2]) == FOLDER / f"{name}.yaml"
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert mounted("grafana", home).is_file()
    provider = yaml.safe_load(
        mounted("grafana", "/etc/grafana/provisioning/dashboards/flopwatch.yaml").read_text()
    )["providers"][0]
    folder = provider["options"]["path"]
    boards = {path.resolve() for path in (settings.ROOT / "dashboards").glob("*.json")}
    targets = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    given = [one for one in targets if one.startswith(f"{folder}/")]
    assert {mounted("grafana", one).resolve() for one in given} == boards
    # A folder brought along package.json of the drawings, which Grafana takes for a broken board.
    assert all(mounted("grafana", one).is_file() for one in given)
    assert folder not in targets
    source = yaml.safe_load(
        mounted("grafana", "/etc/grafana/provisioning/datasources/prometheus.yaml").read_text()
    )["datasources"][0]
    assert source["url"] == "http://prometheus:9090"


def test_services_find_each_other_by_name_and_port() -> None:
    told = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    targets = [one["static_configs"][0]["targets"][0] for one in told["scrape_configs"]]
    assert targets == ["flopwatch:9810", "localhost:9090", "alertmanager:9093"]
    for target in targets:
        name, _, port = target.partition(":")
        service = SERVICES["prometheus" if name == "localhost" else name]
        assert f"127.0.0.1:{port}:{port}" in service["ports"]


def test_nothing_is_reached_from_elsewhere() -> None:
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert not service.get("privileged")
    assert SERVICES["flopwatch"]["read_only"]


def test_the_daemon_knows_its_command_line() -> None:
    options = _parser().parse_args(SERVICES["flopwatch"]["command"])
    assert (options.scenario, options.listen) == ("story", ":9810")


def test_prometheus_accepts_its_configuration(tool: Callable[[str], str], tmp_path: Path) -> None:
    """With the rules where they are here."""
    text = (FOLDER / "prometheus.yaml").read_text()
    file = tmp_path / "prometheus.yaml"
    file.write_text(text.replace("/etc/prometheus/rules", str(settings.ALERTS)))
    done = subprocess.run(
        [tool("promtool"), "check", "config", str(file)], capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("rules found") == len(settings.rules())


def test_alertmanager_accepts_its_configuration_and_tells_nobody(
    tool: Callable[[str], str],
) -> None:
    file = FOLDER / "alertmanager.yaml"
    done = subprocess.run(
        [tool("amtool"), "check-config", str(file)], capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told, shipped = yaml.safe_load(file.read_text()), yaml.safe_load(settings.ROUTES.read_text())
    assert [set(one) for one in told["receivers"]] == [{"name"}] * len(shipped["receivers"])
    assert told["inhibit_rules"] == shipped["inhibit_rules"]
