"""What a pod is told of its cluster, by its environment."""

from __future__ import annotations

import os
import socket


def api_server() -> str | None:
    """Return the URL of the API server, `None` outside of a pod."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    if not host:
        return None
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def node_name(stated: str | None) -> str:
    """Return the node's name: as it is stated, as the pod is told, or the host's."""
    return stated or os.environ.get("NODE_NAME") or socket.gethostname()
