"""Which NICs are near to which GPUs, by the machine's PCI tree."""

from __future__ import annotations

from exporter.sources.topology.scan import Scanner
from exporter.sources.topology.source import Choice, TopologySource

__all__ = ["Choice", "Scanner", "TopologySource"]
