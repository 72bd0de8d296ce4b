"""flopwatch: the node's observability daemon for AI infrastructure."""

__version__ = "0.1.0"
