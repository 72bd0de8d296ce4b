"""Web security as Prometheus' exporters have it: TLS, client certificates, users, limits.

It stands in front of `web` and knows nothing of pages. What it takes from the settings is asked
for at each request, so that a reload counts at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from pathlib import Path
from typing import Protocol

from exporter import catalogue as c
from exporter.samples import Sample
from exporter.websecurity.doorway import Doorways, Make
from exporter.websecurity.front import Application, Front, Rules, may_come
from exporter.websecurity.limits import Callers
from exporter.websecurity.passwords import Passwords
from exporter.websecurity.policy import Store, parse, ready

REFUSED = ("certificate", "handshake", "password", "rate", "size")


class WebRules(Rules, Protocol):
    """What the settings say of the web door."""

    @property
    def config_file(self) -> str | None:
        """The file in the exporter toolkit's format."""

    @property
    def probes_without_certificate(self) -> bool:
        """Whether health checks are answered where a certificate is required."""


def check(rules: WebRules) -> bool:
    """Tell whether the rules ask for TLS. Raises `ConfigError` if their file cannot be used."""
    if rules.config_file is None:
        return False
    path = Path(rules.config_file)
    return ready(parse(path), path, ask=False).context is not None


class WebSecurity:
    """Protects an application, and tells how it fares.

    `executor` lends the threads in which passwords are compared; `now` is monotonic seconds.
    Raises `ConfigError` if the file that the rules name cannot be used.
    """

    def __init__(
        self, rules: Callable[[], WebRules], executor: Executor, now: Callable[[], float]
    ) -> None:
        self._rules = rules
        self._now = now
        self._passwords = Passwords(executor)
        self._counts: Counter[str] = Counter(dict.fromkeys(REFUSED, 0))
        self._store = Store(self._where)
        self._store.start()
        shaking = Callers()
        self._doorways = Doorways(
            lambda: self._store.policy,
            lambda address: may_come(shaking, address, rules(), now()),
            self._refuse,
        )

    def _where(self) -> tuple[Path | None, bool]:
        rules = self._rules()
        path = None if rules.config_file is None else Path(rules.config_file)
        return path, rules.probes_without_certificate

    def look(self) -> None:
        """Take what has changed in the files. May wait for a disk."""
        self._store.look()

    def door(self, make: Make) -> asyncio.Protocol:
        """Return the protocol of a new connection; `make` makes the one that speaks HTTP."""
        return self._doorways.door(make)

    def protect(self, application: Application, guarded_elsewhere: Iterable[str]) -> Application:
        """Return an application that lets through who may ask.

        Paths that are `guarded_elsewhere` want no name and password here.
        """
        return Front(
            application,
            lambda: self._store.policy,
            self._rules,
            passwords=self._passwords,
            now=self._now,
            refused=self._refuse,
            guarded_elsewhere=frozenset(guarded_elsewhere),
        )

    def _refuse(self, reason: str) -> None:
        self._counts[reason] += 1

    def samples(self) -> Iterable[Sample]:
        """Yield what there is to tell."""
        for reason, number in self._counts.items():
            yield c.FLOPWATCH_WEB_REFUSED_TOTAL(number, reason)
        if self._store.configured:
            successful = int(self._store.successful)
            yield c.FLOPWATCH_WEB_CONFIG_LAST_RELOAD_SUCCESSFUL(successful)
