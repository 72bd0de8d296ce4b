"""Configurations of the demo's Prometheus and Alertmanager, from the rules and routes in alerts/.

`python -m deploy.demo.settings` writes those of deploy/compose, where the programs are containers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "alerts"
COMPOSE = ROOT / "deploy/compose"
ROUTES = ALERTS / "alertmanager.yaml"
_FROM = "# From alerts/ by `python -m deploy.demo.settings`.\n"


class Addresses(NamedTuple):
    """Where the programs find each other, as host:port; Alertmanager may be missing."""

    flopwatch: str
    prometheus: str
    alertmanager: str | None


def rules() -> list[Path]:
    """Return the files of rules."""
    return sorted(path for path in ALERTS.glob("*.yaml") if path != ROUTES)


def prometheus(addresses: Addresses, files: Sequence[str]) -> str:
    """Return a configuration that scrapes the demo each five seconds, and Prometheus itself."""
    targets = {"flopwatch": addresses.flopwatch, "prometheus": addresses.prometheus}
    if addresses.alertmanager is not None:
        targets["alertmanager"] = addresses.alertmanager
    told: dict[str, Any] = {
        "global": {
            "scrape_interval": "5s",
            "evaluation_interval": "15s",
            "external_labels": {"cluster": "demo"},
        },
        "rule_files": [*files],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [target]}]}
            for job, target in targets.items()
        ],
    }
    if addresses.alertmanager is not None:
        there = [{"static_configs": [{"targets": [addresses.alertmanager]}]}]
        told["alerting"] = {"alertmanagers": there}
    return yaml.safe_dump(told, sort_keys=False)


def alertmanager() -> str:
    """Return the routes and inhibitions of alerts/, with receivers that tell nobody.

    Groups wait for seconds, so that an alert is seen when the story tells of it.
    """
    shipped = yaml.safe_load(ROUTES.read_text("utf-8"))
    told = {
        "route": _quick(shipped["route"]),
        "receivers": [{"name": one["name"]} for one in shipped["receivers"]],
        "inhibit_rules": shipped["inhibit_rules"],
    }
    return yaml.safe_dump(told, sort_keys=False, width=1000)


def _quick(route: Mapping[str, Any]) -> dict[str, Any]:
    made = {**route}
    if "group_wait" in made:
        made["group_wait"] = "5s"
    if "group_interval" in made:
        made["group_interval"] = "30s"
    if "routes" in made:
        made["routes"] = [_quick(one) for one in made["routes"]]
    return made


def compose() -> Mapping[Path, str]:
    """Return the files of deploy/compose that are made here."""
    addresses = Addresses("flopwatch:9810", "localhost:9090", "alertmanager:9093")
    files = [f"/etc/prometheus/rules/{path.name}" for path in rules()]
    return {
        COMPOSE / "prometheus.yaml": _FROM + prometheus(addresses, files),
        COMPOSE / "alertmanager.yaml": _FROM + alertmanager(),
    }


def main() -> None:
    """Write them."""
    for path, text in compose().items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
