"""Settings of what is told of the fabric beside the counters of its ports."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from exporter.config.values import Detected, Duration, Rate

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
