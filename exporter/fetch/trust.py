"""Who we are to a server, and whom we take for one: tokens and certificates, read at each use."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

from exporter.samples import SourceError


def bearer(token_file: Path | None) -> dict[str, str]:
    """Return the header with the token of a file, none without a file. Raises `SourceError`."""
    if token_file is None:
        return {}
    try:
        token = token_file.read_text("utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise SourceError("denied", f"token_file {token_file}: {reason}") from None
    if re.fullmatch(r"[\x21-\x7e]+", token) is None:
        raise SourceError("denied", f"token_file {token_file}: not a single token")
    return {"Authorization": f"Bearer {token}"}


def tls(ca_file: Path | None, *, insecure: bool) -> ssl.SSLContext:
    """Return the TLS settings. Made for each connection, so that a new CA file counts.

    Raises `SourceError`.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (ssl.SSLError, OSError) as error:
        raise SourceError("denied", f"ca_file {ca_file}: {error.strerror}") from None
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
