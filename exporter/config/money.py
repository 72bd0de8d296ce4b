"""Settings of prices, and of the notices of clouds."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from exporter.config.values import Detected, Duration

_METADATA = frozenset(("100.100.100.200", "fd00:ec2::254", "fd20:ce::254"))


def _near(value: str) -> str:
    """Return the address of a metadata service. Raises `ValueError` for one that is elsewhere."""
    wanted = (
        f"{value!r} is no address on this machine or its link, such as http://127.0.0.1:1338:"
        " nothing else is asked for notices"
    )
    try:
        parts = urlsplit(value)
        host, plain = parts.hostname or "", parts.port != 0 and parts.path in {"", "/"}
        bare = parts.scheme == "http" and plain and not (parts.query or parts.fragment)
        found = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise ValueError(wanted) from None
    near = found.is_loopback or found.is_link_local or str(found) in _METADATA
    if not (bare and near and "@" not in parts.netloc):
        raise ValueError(wanted)
    return value.rstrip("/")


Provider = Literal["auto", "aws", "gcp", "azure", "alibaba", "tencent", "oci"]


class SpotSettings(Detected):
    """What the cloud announces for this machine."""

    interval: Duration = Field(default="1s", ge=0.1, le=60)  # type: ignore[assignment]
    deadline: Duration = Field(default="15s", ge=1, le=600)  # type: ignore[assignment]
    max_series: int = Field(default=200, ge=1, le=1_000_000)
    provider: Provider = "auto"
    endpoint: Annotated[str, AfterValidator(_near)] | None = None
    timeout: Duration = Field(default="1s", ge=0.1, le=5)  # type: ignore[assignment]
    tokenless: bool = False
    acknowledge_after: Duration | None = Field(default=None, ge=0, le=3600)

    @model_validator(mode="after")
    def _is_known(self) -> SpotSettings:
        if self.enabled is True and self.provider == "auto" and self.endpoint is not None:
            raise ValueError("provider is needed where there is an endpoint")
        return self
