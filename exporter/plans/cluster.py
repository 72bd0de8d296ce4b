"""Plans for who has which GPU: pods, jobs, processes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from exporter import catalogue as c
from exporter.claims import ResourceSlices
from exporter.config import ConfigError, Settings
from exporter.config.cluster import ClaimsSettings, KubernetesSettings
from exporter.derive.allocation import Gpus, Wanted
from exporter.fetch import HttpFetcher
from exporter.formats.podresources import Claimed
from exporter.kubelet import Kubelet, PodResources
from exporter.nvml.inventory import device_files
from exporter.plans.estate import Estate, Plan, remembering
from exporter.plans.gpus import reads_gpus
from exporter.plans.in_cluster import api_server, node_name
from exporter.plans.jobs import jobs_plans, slurm_plans
from exporter.plans.spread import shared
from exporter.runner import Schedule
from exporter.sources.kubernetes import NAME, KubernetesSource

Claims = Callable[[Collection[Claimed], Collection[str]], Mapping[Claimed, str]]


_BEAT = 2.0
"""Seconds after which a GPU or an instance that has appeared is told with its owner."""


def cluster_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield what tells to whom GPUs were given. One line for each kind of owner."""
    yield from _kubernetes_plans(settings, estate)
    yield from jobs_plans(settings, estate)
    yield from slurm_plans(settings, estate)


def _kubernetes_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield the reader of the kubelet: where there are GPUs and a kubelet, or as is asked for."""
    told, root = settings.sources.kubernetes, Path(settings.root)
    wanted = told.enabled
    if wanted == "auto":
        wanted = reads_gpus(settings, estate) and any(map(_is_there, _directories(told, root)))
    if not wanted:
        return
    yield Plan(
        NAME, c.ALLOCATION,
        # What is left of the deadline is for claims, and for what is done with the answers.
        shared(
            Schedule(
                min(told.interval, _BEAT),
                told.deadline + told.claims.timeout + 1.0,
                told.max_series,
            ),
            NAME, jitter=settings.start_jitter,
        ),
        f"{root} {told.model_copy(update={'labels_on_gpu_series': False})!r}",
        lambda: kubernetes_source(settings, estate),
    )  # fmt: skip


def kubernetes_source(
    settings: Settings, estate: Estate, kubelet: Kubelet | None = None
) -> KubernetesSource:
    """Return the source; `kubelet` stands for the one of this node."""
    told, root, clock = settings.sources.kubernetes, Path(settings.root), estate.clock

    def gpus() -> Gpus:
        return Gpus(estate.board.view(clock.monotonic()), lambda: device_files(root))

    kept = remembering(settings, estate)
    kept.pop("keep_every", None)
    return KubernetesSource(
        kubelet or PodResources(_directories(told, root), told.deadline, clock),
        gpus, clock, Wanted(told.resources, told.indexed_resources),
        every=told.interval, keep=told.keep, claims=_claims(told.claims, estate),
        finished=estate.pods.finished, **kept,
    )  # fmt: skip


def _claims(told: ClaimsSettings, estate: Estate) -> Claims:
    """Return who is asked which GPUs claimed devices are: the API server, or nobody."""
    token = None if told.token_file is None else Path(told.token_file)
    url = told.api_url or api_server()
    asked = told.enabled
    if asked == "auto":
        asked = bool(url) and token is not None and token.is_file()
    if not asked:
        return lambda _wanted, _there: {}
    if not url:
        raise ConfigError(
            "sources.kubernetes.claims.api_url is needed outside of a pod:"
            " KUBERNETES_SERVICE_HOST is not set"
        )
    secure = url.startswith("https:")
    ca = Path(told.ca_file) if told.ca_file is not None and secure else None

    def fetch(path: str) -> HttpFetcher:
        return HttpFetcher(
            url.rstrip("/") + path, timeout=told.timeout, clock=estate.clock,
            token_file=token, ca_file=ca, follow_redirects="none",
        )  # fmt: skip

    return ResourceSlices(fetch, node_name(told.node), estate.clock)


def _directories(told: KubernetesSettings, root: Path) -> tuple[Path, ...]:
    """Return where the kubelet's directory may be: below the root, or mounted at its own place."""
    return (root / told.directory.lstrip("/"), Path(told.directory))


def _is_there(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # it may not be looked at: that is to be told, so it is read
        return True
