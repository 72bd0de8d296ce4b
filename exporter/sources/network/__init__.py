"""The node's network ports as `/sys` shows them: InfiniBand, RoCE, EFA, Omni-Path and Ethernet.

Reads RDMA ports below `sys/class/infiniband` and interfaces below `sys/class/net`, and brings the
drivers' many names to one vocabulary, with the drivers' own beside it where that is wanted. What
needs `ethtool` (pause frames, lanes) and how near GPUs are is left to others.
"""

from exporter.sources.network.source import DEFAULT_EXCLUDE, NetworkSource

__all__ = ["DEFAULT_EXCLUDE", "NetworkSource"]
