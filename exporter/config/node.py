"""Settings of the sources that read the machine and its GPUs."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    field_validator,
)

from exporter.config.values import (
    Detected,
    Duration,
    PathText,
    Section,
    Timed,
    as_list,
    page_url,
    shown,
)


def _port_pattern(value: str) -> str:
    if re.fullmatch(r"!?[^/!\s]{1,64}(/[^/\s]{1,16})?", value) is None:
        raise ValueError(
            f"a port such as mlx5_0, mlx5_*/1 or !mlx5_9 is wanted, not {shown(value)}"
        )
    return value


PortPattern = Annotated[str, AfterValidator(_port_pattern)]
"""A device or `device/port`, in which `*`, `?` and `[...]` may be used; `!` before it denies it."""


class HostSettings(Timed):
    """The machine: CPU, memory, pressure."""


class NetworkSettings(Timed):
    """InfiniBand, RoCE and Ethernet ports."""

    exclude_interfaces: str | None = None
    exclude_devices: str | None = None
    raw: bool = False
    expected_ports: Annotated[tuple[PortPattern, ...], BeforeValidator(as_list)] = ()

    @field_validator("exclude_interfaces", "exclude_devices")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                re.compile(value)
            except (re.error, OverflowError) as error:
                raise ValueError(f"not a regular expression: {error}") from None
            except RecursionError:
                raise ValueError("not a regular expression: nested too deep") from None
        return value


class ProcessSettings(Timed):
    """The daemon's own process."""

    interval: Duration = Field(default="15s", ge=0.1, le=3600)  # type: ignore[assignment]


class NvmlSettings(Detected):
    """GPUs, through the driver's management library."""

    interval: Duration = Field(default="1s", ge=0.1, le=3600)  # type: ignore[assignment]
    deadline: Duration = Field(default="2s", ge=0.2, le=600)  # type: ignore[assignment]
    end_after: Duration = Field(default="5m", ge=10, le=86400)  # type: ignore[assignment]
    expected: int = Field(default=0, ge=0, le=1024)
    detail: bool = False
    links: bool = False
    processes: bool = True


class DcgmSettings(Timed):
    """GPUs, through DCGM's library: a host engine at `address`, or one in our own process."""

    enabled: bool = False
    interval: Duration = Field(default="1s", ge=0.1, le=3600)  # type: ignore[assignment]
    deadline: Duration = Field(default="5s", ge=0.2, le=600)  # type: ignore[assignment]
    address: str | None = None
    library: str = ""
    everything: bool = False
    preferred: bool = False


class DcgmPageSettings(Section):
    """GPUs, through the page of a dcgm-exporter."""

    enabled: bool = False
    interval: Duration = Field(default="15s", ge=0.1, le=3600)  # type: ignore[assignment]
    max_series: int = Field(default=5_000, ge=1, le=1_000_000)
    timeout: Duration = Field(default="5s", ge=0.05, le=600)  # type: ignore[assignment]
    url: str = "http://127.0.0.1:9400/metrics"
    token_file: PathText | None = None
    ca_file: PathText | None = None
    insecure_skip_verify: bool = False
    preferred: bool = False

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        return page_url(value)


class KernelLogSettings(Detected):
    """The kernel log, where the driver reports its errors (XID)."""

    interval: Duration = Field(default="2s", ge=0.1, le=3600)  # type: ignore[assignment]
    device: PathText = "dev/kmsg"


class DerivedSettings(Detected):
    """What is computed from readings: peaks, memory traffic, an estimate of FLOP/s."""

    interval: Duration = Field(default="500ms", ge=0.1, le=3600)  # type: ignore[assignment]
    precision_hint: Literal["bf16", "fp16", "tf32", "fp8", "fp4", "int8", "fp64_tensor"] = "bf16"
