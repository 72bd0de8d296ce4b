"""Settings of inference servers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    Field,
    field_validator,
    model_validator,
)

from exporter.config.values import (
    Duration,
    Gpu,
    Name,
    PathText,
    Port,
    Section,
    Size,
    Switch,
    Timed,
    as_list,
    as_list_or_none,
    page_url,
)


class ServerSettings(Section):
    """One inference server whose metrics page is read."""

    name: Name
    url: str
    engine: str = "auto"
    model_name: str | None = None
    # `model_config` itself is what pydantic calls the options of a class.
    model_file: PathText | None = Field(default=None, alias="model_config")
    enabled: bool = True
    interval: Duration | None = Field(default=None, ge=0.1, le=3600)
    timeout: Duration | None = Field(default=None, ge=0.05, le=600)
    max_series: int | None = Field(default=None, ge=1, le=1_000_000)
    allow_destructive_read: bool = False
    gpus: Annotated[tuple[Gpu, ...] | None, BeforeValidator(as_list_or_none)] = None
    token_file: PathText | None = None
    ca_file: PathText | None = None
    insecure_skip_verify: bool = False
    follow_redirects: Literal["same-host", "none", "any"] = "same-host"
    probe: bool | None = None
    health_url: str | None = None
    completion: bool | None = None
    completion_url: str | None = None

    @field_validator("url", "health_url", "completion_url")
    @classmethod
    def _is_http(cls, value: str | None) -> str | None:
        return None if value is None else page_url(value)


class ProbeSettings(Section):
    """Requests of our own, that tell whether servers answer."""

    enabled: bool = True
    interval: Duration = Field(default="10s", ge=0.1, le=3600)  # type: ignore[assignment]
    timeout: Duration = Field(default="5s", ge=0.05, le=600)  # type: ignore[assignment]
    completion: bool = False
    completion_interval: Duration = Field(default="60s", ge=1, le=3600)  # type: ignore[assignment]
    completion_timeout: Duration = Field(default="30s", ge=0.05, le=600)  # type: ignore[assignment]


class PodsSettings(Section):
    """Inference servers among the pods of this node.

    `source` is who is asked for the pods: the API server, which then tells each change, or the
    node's kubelet, each `refresh`. `interval` is how often it is looked what has been told.
    """

    enabled: Switch = "auto"
    source: Literal["api", "kubelet"] = "api"
    node: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    api_url: str | None = None
    kubelet_url: str = "https://127.0.0.1:10250/pods"
    token_file: PathText | None = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105
    ca_file: PathText | None = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
    insecure_skip_verify: bool = False
    interval: Duration = Field(default="2s", ge=0.1, le=60)  # type: ignore[assignment]
    refresh: Duration = Field(default="15s", ge=1, le=3600)  # type: ignore[assignment]
    timeout: Duration = Field(default="10s", ge=0.05, le=600)  # type: ignore[assignment]
    max_body: Size = Field(default="32MiB", ge=1024, le=1 << 30)  # type: ignore[assignment]
    namespaces: Annotated[tuple[str, ...], BeforeValidator(as_list)] = ()

    @field_validator("api_url", "kubelet_url")
    @classmethod
    def _is_http(cls, value: str | None) -> str | None:
        return None if value is None else page_url(value)


class InferenceSettings(Section):
    """Inference servers, and what holds for all of them unless they say otherwise."""

    enabled: bool = True
    interval: Duration = Field(default="5s", ge=0.1, le=3600)  # type: ignore[assignment]
    timeout: Duration = Field(default="2s", ge=0.05, le=600)  # type: ignore[assignment]
    max_series: int = Field(default=5_000, ge=1, le=1_000_000)
    max_body: Size = Field(default="16MiB", ge=1024, le=1 << 30)  # type: ignore[assignment]
    max_line: Size = Field(default="1MiB", ge=256, le=1 << 30)  # type: ignore[assignment]
    max_label: Size = Field(default="1KiB", ge=16, le=1 << 20)  # type: ignore[assignment]
    max_page_series: int = Field(default=20_000, ge=1, le=10_000_000)
    engines_directory: PathText | None = None
    local: Switch = "auto"
    ports: Annotated[tuple[Port, ...], BeforeValidator(as_list)] = (
        3000, 4000, 8000, 8002, 8080, 8081, 23333, 30000,
    )  # fmt: skip
    files: Annotated[tuple[PathText, ...], BeforeValidator(as_list)] = ()
    kubernetes: PodsSettings = PodsSettings()
    discovery_interval: Duration = Field(default="10s", ge=0.1, le=3600)  # type: ignore[assignment]
    max_servers: int = Field(default=64, ge=1, le=1000)
    allow_destructive_read: bool = False
    probe: ProbeSettings = ProbeSettings()
    servers: Annotated[tuple[ServerSettings, ...], BeforeValidator(as_list)] = ()

    @model_validator(mode="after")
    def _one_of_each_name(self) -> InferenceSettings:
        seen: set[str] = set()
        for server in self.servers:
            if server.name in seen:
                raise ValueError(f"two servers are named {server.name!r}")
            seen.add(server.name)
        return self


class ServingSettings(Timed):
    """What is computed from inference servers: percentiles, rates, over rolling windows."""

    # A server with two windows has some 150; a node may have 64 of them.
    max_series: int = Field(default=20_000, ge=1, le=1_000_000)
    windows: Annotated[tuple[Literal["1m", "5m", "30m", "1h"], ...], BeforeValidator(as_list)] = (
        "5m",
        "1h",
    )
    refresh: Duration = Field(default="10s", ge=1.0, le=60.0)  # type: ignore[assignment]
