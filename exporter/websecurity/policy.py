"""What is in force: a web config that was read, checked and made ready, and its successor.

Files are looked at again and again. A new state is taken whole or not at all: while certificate and
key do not belong together, or a line is wrong, the former state stays in force.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from exporter.config import ConfigError
from exporter.websecurity import passwords, tls
from exporter.websecurity.webconfig import RateLimit, WebConfig, read

log = logging.getLogger(__name__)

_Seen = tuple[object, ...]


class Policy(NamedTuple):
    """A state that is ready to be used.

    `names` are those of which a certificate must have one; `demand` says that everything but the
    health checks needs a certificate, also on a connection that was made without.
    """

    context: ssl.SSLContext | None = None
    users: Mapping[str, str] = {}
    headers: tuple[tuple[bytes, bytes], ...] = ()
    names: frozenset[str] | None = None
    demand: bool = False
    rate: RateLimit = RateLimit()


def parse(path: Path) -> WebConfig:
    """Return what the web config at `path` says. Raises `ConfigError`."""
    try:
        config = read(tls.read_file(path), str(path))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{path}: {reason}") from None
    if config.basic_auth_users and not passwords.is_available():
        raise ConfigError(
            f"{path}: basic_auth_users: bcrypt is missing: pip install flopwatch[web]"
        )
    return config


def ready(config: WebConfig, path: Path, *, ask: bool) -> Policy:
    """Return the policy that a web config asks for, its files read. Raises `ConfigError`."""
    wanted = config.tls_server_config
    context = names = None
    if wanted is not None:
        context = tls.context_of(wanted, tls.material(wanted, path), path, ask=ask)
        sans = wanted.client_allowed_sans
        names = None if sans is None else frozenset(sans)
    return Policy(
        context=context,
        users=config.basic_auth_users,
        headers=_headers(config),
        names=names,
        demand=wanted is not None and wanted.requires_certificate,
        rate=config.rate_limit,
    )


def _headers(config: WebConfig) -> tuple[tuple[bytes, bytes], ...]:
    given = config.http_server_config.headers
    return tuple((name.lower().encode(), value.encode()) for name, value in given.items() if value)


def _notes(config: WebConfig) -> tuple[str, ...]:
    notes = list(config.notes)
    wanted = config.tls_server_config
    if wanted is not None and len(used := tls.curves_used(wanted)) < len(wanted.curve_preferences):
        notes.append(f"curve_preferences: only {used[0]} is used, this Python cannot set several")
    if config.basic_auth_users and wanted is None:
        notes.append("basic_auth_users without TLS: passwords cross the network unencrypted")
    return tuple(notes)


class Store:
    """Holds the policy in force; `where` tells the path of the file and whether to ask only."""

    def __init__(self, where: Callable[[], tuple[Path | None, bool]]) -> None:
        self._where = where
        self._seen: _Seen = ()
        self._files: tuple[Path, ...] = ()
        self._told = ""
        self.policy = Policy()
        self.successful = True

    @property
    def configured(self) -> bool:
        """Whether there is a file."""
        return self._where()[0] is not None

    def start(self) -> None:
        """Load for the first time. Raises `ConfigError`."""
        self._load(self._look())

    def look(self) -> None:
        """Load again if a file has changed; on any error everything stays as it is."""
        seen = self._look()
        if seen == self._seen:
            return
        try:
            self._load(seen)
        except ConfigError as error:
            self.successful = False
            self._tell(logging.WARNING, f"web config kept: {error}")

    def _load(self, seen: _Seen) -> None:
        path, ask = self._where()
        self._seen = seen
        if path is None:
            self.policy, self._files, self.successful = Policy(), (), True
            return
        config = parse(path)
        files = tls.files_of(config.tls_server_config, path)
        if files != self._files:
            # They have not been looked at yet: the next look loads once more.
            self._files, self._seen = files, ()
        self.policy = ready(config, path, ask=ask)
        self.successful = True
        kind = "TLS" if self.policy.context else "plain HTTP"
        said = f"web config loaded: {path}: {kind}, {len(self.policy.users)} users"
        self._tell(logging.INFO, "; ".join((said, *_notes(config))))

    def _look(self) -> _Seen:
        path, ask = self._where()
        if path is None:
            return (None,)
        return (path, ask, *map(_state, (path, *self._files)))

    def _tell(self, level: int, text: str) -> None:
        """Log a change, not a cycle."""
        if text != self._told:
            self._told = text
            log.log(level, "%s", text)


def _state(path: Path) -> object:
    try:
        about = os.stat(path)  # noqa: PTH116 - five fields of one call
    except OSError as error:
        return error.errno
    return (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
