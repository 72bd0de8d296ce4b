"""Settings of who has which GPU: pods, jobs, processes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from exporter.config.values import (
    AbsolutePath,
    Detected,
    Duration,
    PathText,
    Section,
    Switch,
    as_list,
    page_url,
)

Resources = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=256)], ...],
    Field(max_length=64),
    BeforeValidator(as_list),
]
"""Names of resources, or of DRA drivers, in which `*`, `?` and `[...]` may be used."""


class ClaimsSettings(Section):
    """Which GPUs claimed devices are, by the API server; `auto`: in a pod that has a token."""

    enabled: Switch = "auto"
    api_url: str | None = None
    node: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    token_file: PathText | None = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105
    ca_file: PathText | None = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
    timeout: Duration = Field(default="2s", ge=0.05, le=60)  # type: ignore[assignment]

    @field_validator("api_url")
    @classmethod
    def _is_http(cls, value: str | None) -> str | None:
        return None if value is None else page_url(value)


class KubernetesSettings(Detected):
    """Which pods have which GPUs, by the kubelet of this node.

    `interval` is how often it is asked, `deadline` how long its answers may take, `keep` how long
    an answer holds without another one.
    """

    interval: Duration = Field(default="10s", ge=1, le=3600)  # type: ignore[assignment]
    deadline: Duration = Field(default="3s", ge=0.05, le=60)  # type: ignore[assignment]
    keep: Duration = Field(default="5m", ge=0, le=86400)  # type: ignore[assignment]
    directory: AbsolutePath = "/var/lib/kubelet/pod-resources"
    resources: Resources = ("nvidia.com/*gpu*", "nvidia.com/mig-*", "gpu.nvidia.com")
    indexed_resources: Resources = ()
    labels_on_gpu_series: bool = False
    claims: ClaimsSettings = ClaimsSettings()


class JobsSettings(Detected):
    """Whose the processes on GPUs are, by their cgroups.

    `plain`: also those of no pod, container or job. `user`: what is shown of a process's user.
    """

    interval: Duration = Field(default="1s", ge=0.1, le=3600)  # type: ignore[assignment]
    plain: bool = False
    user: Literal["none", "uid", "name"] = "none"


class SlurmSettings(Detected):
    """Which job of Slurm has which GPU, by the directory of its prolog and by processes.

    `check_jobs`: a job in the directory must live.
    """

    job_mapping_directory: AbsolutePath | None = None
    check_jobs: bool = True
