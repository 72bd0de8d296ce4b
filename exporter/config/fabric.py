"""Settings of what is told of the fabric beside the counters of its ports."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from exporter.config.values import AbsolutePath, Detected, Duration


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
