"""Settings of what is told of the fabric beside the counters of its ports."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from exporter.config.values import AbsolutePath, Detected, Duration, Rate


def _compiles(value: str) -> str:
    try:
        re.compile(value)
    except (re.error, OverflowError) as error:
        raise ValueError(f"not a regular expression: {error}") from None
    except RecursionError:
        raise ValueError("not a regular expression: nested too deep") from None
    return value


Pattern = Annotated[str, Field(min_length=1, max_length=1024), AfterValidator(_compiles)]
"""A regular expression that the whole of a name must match."""


class TopologySettings(Detected):
    """Which NICs are near to which GPUs, where there are GPUs.

    `file` is an NCCL topology file, or a saved `nvidia-smi topo -m`, below the root.
    """

    interval: Duration = Field(default="10s", ge=0.1, le=3600)  # type: ignore[assignment]
    file: AbsolutePath | None = None
    rescan: Duration = Field(default="60s", ge=1, le=86400)  # type: ignore[assignment]
    compute_nics: Pattern | None = None
    storage_nics: Pattern | None = None
    worst_distance: Literal["PIX", "PXB", "PHB", "NODE", "SYS"] | None = None
    max_pairs: int = Field(default=256, ge=1, le=65536)


Efficiency = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
"""A share of 1 that is not nothing."""


class FabricSettings(Detected):
    """Use and balance of the fabric, and what collectives could reach on it."""

    window: Duration = Field(default="30s", ge=5, le=3600)  # type: ignore[assignment]
    rail_floor: Rate = 1e9
    efficiency: Efficiency = 0.9
    reference_bandwidth: Rate | None = None
    least_ratio: Efficiency = 0.7


class NcclEnvironmentSettings(Detected):
    """How jobs have set NCCL."""

    interval: Duration = Field(default="60s", ge=1, le=3600)  # type: ignore[assignment]
    deadline: Duration = Field(default="5s", ge=0.2, le=600)  # type: ignore[assignment]
