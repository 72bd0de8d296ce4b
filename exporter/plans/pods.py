"""Plans for who knows the pods of this node."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from exporter import catalogue as c
from exporter.config import ConfigError
from exporter.config.serving import PodsSettings
from exporter.discovery.api import Access, ApiWatch, KubeletPods
from exporter.plans.estate import Estate, Plan
from exporter.plans.in_cluster import api_server, node_name
from exporter.plans.spread import shared
from exporter.runner import Schedule
from exporter.sources.pods import PodsSource, Reader


def pods_plans(told: PodsSettings, estate: Estate, jitter: float) -> Iterator[Plan]:
    """Yield who knows the pods of this node, where that is asked for. Raises `ConfigError`."""
    if not wants_pods(told):
        return
    node = node_name(told.node)
    url = _api_url(told) if told.source == "api" else told.kubelet_url
    yield Plan(
        PodsSource.name, c.EXPORTER,
        shared(Schedule(told.interval, 2 * told.timeout + 1.0), PodsSource.name, jitter=jitter),
        f"{told!r} {node} {url}",
        lambda: PodsSource(
            _reader(told, url, node, estate), estate.pods, estate.clock,
            wanted=told.enabled is True,
        ),
    )  # fmt: skip


def wants_pods(told: PodsSettings) -> bool:
    """Tell whether pods are to be known: as is said, else where there is a token to ask with."""
    if told.enabled != "auto":
        return told.enabled
    there = told.api_url is not None or api_server() is not None
    return there and told.token_file is not None and os.access(told.token_file, os.R_OK)


def _reader(told: PodsSettings, url: str, node: str, estate: Estate) -> Reader:
    parts = urlsplit(url)
    access = Access(
        f"{parts.scheme}://{parts.netloc}", told.timeout,
        None if told.token_file is None else Path(told.token_file),
        # A file that is not there may come with the next start of the pod; the system's then.
        None if told.ca_file is None or parts.scheme == "http" else Path(told.ca_file),
        told.insecure_skip_verify, told.max_body,
    )  # fmt: skip
    if told.source == "api":
        return ApiWatch(access, node, estate.clock, Random())  # noqa: S311 - spreads load
    path = (parts.path or "/pods") + (f"?{parts.query}" if parts.query else "")
    return KubeletPods(access, path, estate.clock, Random(), every=told.refresh)  # noqa: S311


def _api_url(told: PodsSettings) -> str:
    """Return where the API server is: as it is stated, or as each pod is told."""
    url = told.api_url or api_server()
    if url is None:
        raise ConfigError(
            "sources.inference.kubernetes.api_url is needed outside of a pod:"
            " KUBERNETES_SERVICE_HOST is not set"
        )
    return url
