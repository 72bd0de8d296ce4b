"""The sources: each module reads one kind of thing and leaves timing and retries to the runner.

`ISOLATED` is the table of those that run in a child process, by name; `ERRANDS` that of work which
a source has done in a child process of its own.
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


def _profile(**options: Any) -> Any:
    from exporter.profiling.reading import read_profile

    return read_profile(**options)


ERRANDS: Mapping[str, Callable[..., Any]] = {"profile": _profile}
"""Work that may take long and much memory, or be cut off: called once in a process of its own."""
