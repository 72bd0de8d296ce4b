"""URLs that may be asked."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit


class Target:
    """A URL, taken apart and checked."""

    def __init__(self, url: str) -> None:
        try:
            parts: SplitResult = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ValueError(f"not a URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("an http:// or https:// URL is wanted")
        if "@" in parts.netloc:
            raise ValueError("user and password do not belong into a URL: use token_file")
        if re.fullmatch(r"[\x21-\x7e]+", url) is None:
            raise ValueError("a URL has neither spaces nor characters beyond ASCII")
        self.url = url
        self.scheme = parts.scheme
        self.host = parts.hostname
        self.port = port if port is not None else 443 if parts.scheme == "https" else 80
        self.netloc = parts.netloc
        self.path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.shown = f"{parts.scheme}://{parts.netloc}{parts.path}"

    def same(self, other: Target) -> bool:
        """Tell whether both are the same server."""
        return (self.scheme, self.host, self.port) == (other.scheme, other.host, other.port)

    @property
    def loopback(self) -> bool:
        """Whether the host is this machine: then compression only costs."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost" or self.host.endswith(".localhost")
