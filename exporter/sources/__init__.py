"""The sources: each module reads one kind of thing and leaves timing and retries to the runner.

`ISOLATED` is the table of those that run in a child process, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from exporter.samples import Source

ISOLATED: Mapping[str, Callable[..., Source]] = {}
"""Driver readers. Each takes its options as keywords; values are what JSON can hold."""
