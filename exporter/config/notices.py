"""Settings of what a cloud announces: where it is asked, and who is told."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from exporter.config.values import (
    AbsolutePath,
    Detected,
    Duration,
    Name,
    PathText,
    Rated,
    Section,
    as_list,
    page_url,
    shown,
)

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


class ReceiverSettings(Section):
    """One address that is told of notices. A secret address stands in a file of its own."""

    name: Name
    url: str | None = None
    url_file: PathText | None = None
    token_file: PathText | None = None
    ca_file: PathText | None = None
    insecure_skip_verify: bool = False

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str | None) -> str | None:
        return None if value is None else page_url(value)

    @model_validator(mode="after")
    def _has_one_address(self) -> ReceiverSettings:
        if (self.url is None) == (self.url_file is None):
            raise ValueError("either url or url_file is needed")
        return self


_Receivers = Annotated[tuple[ReceiverSettings, ...], BeforeValidator(as_list)]


def _file(value: object) -> object:
    if value is False or value == "auto" or (isinstance(value, str) and value.startswith("/")):
        return value
    raise ValueError("auto, false or an absolute path is wanted")


class NotifySettings(Rated):
    """Who is told at once what the cloud has announced."""

    interval: Duration = Field(default="1s", ge=0.1, le=60)  # type: ignore[assignment]
    deadline: Duration = Field(default="10s", ge=0.05, le=600)  # type: ignore[assignment]
    max_series: int = Field(default=100, ge=1, le=1_000_000)
    file: Annotated[Literal["auto", False] | AbsolutePath, BeforeValidator(_file)] = "auto"
    alertmanagers: _Receivers = ()
    webhooks: _Receivers = ()
    labels: dict[str, str] = Field(default_factory=dict, max_length=20)
    resend: Duration = Field(default="60s", ge=1, le=3600)  # type: ignore[assignment]
    timeout: Duration = Field(default="3s", ge=0.1, le=60)  # type: ignore[assignment]

    @field_validator("labels")
    @classmethod
    def _are_labels(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name) is None:
                raise ValueError(f"{shown(name)} is no name of a label")
            if not text or len(text) > 256 or not text.isprintable():
                raise ValueError(f"the value of {name} is no text of 1 to 256 characters")
        return value

    @model_validator(mode="after")
    def _have_different_names(self) -> NotifySettings:
        names = ["file", *(one.name for one in (*self.alertmanagers, *self.webhooks))]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two receivers are named {name!r}")
        return self
