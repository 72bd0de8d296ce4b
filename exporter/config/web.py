"""Settings of the web door: TLS, users, and what callers over the network may do."""

from __future__ import annotations

from pydantic import Field

from exporter.config.values import PathText, Section


class WebSettings(Section):
    """Who may ask, how often, and what they may cause.

    `config_file` has the format of Prometheus' exporters; `probes_without_certificate` answers the
    two health checks where a client's certificate is required else; `remote_control` lets
    authenticated callers reload and release from another machine.
    """

    config_file: PathText | None = None
    probes_without_certificate: bool = False
    remote_control: bool = False
    requests_per_second: float = Field(default=50.0, ge=0, le=100_000, allow_inf_nan=False)
    burst: int = Field(default=200, ge=1, le=1_000_000)
