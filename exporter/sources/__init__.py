"""The sources: each module reads one kind of thing and leaves timing and retries to the runner.

`ISOLATED` is the table of those that run in a child process, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from exporter.samples import Source


def _nvml(**options: Any) -> Source:
    from exporter.sources.nvml import NvmlSource

    return NvmlSource(**options)


def _dcgm(**options: Any) -> Source:
    from exporter.sources.dcgm import DcgmSource

    return DcgmSource(**options)


ISOLATED: Mapping[str, Callable[..., Source]] = {"nvml": _nvml, "dcgm": _dcgm}
"""Driver readers. Each takes its options as keywords; values are what JSON can hold. What one
needs is imported in its own process only."""
