"""Plans for what the cloud announces: who asks, and who is told."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.clouds import CLOUDS, ENDPOINTS, Cloud, Service, find_provider
from exporter.clouds.aws import Aws
from exporter.clouds.azure import Azure
from exporter.config import ConfigError, Settings, page_url
from exporter.config.notices import NotifySettings, ReceiverSettings, SpotSettings
from exporter.derive.money.interruptions import interruptions
from exporter.fetch import HttpFetcher, Refused
from exporter.plans.estate import Estate, Plan, remembering
from exporter.plans.spread import node_name, shared
from exporter.runner import Schedule
from exporter.samples import Malformed, Source, SourceError, reason_of
from exporter.sinks.notices import AlertmanagerSink, NoticeFile, Webhook
from exporter.sources.derived import DerivedSource
from exporter.sources.spot import SpotSource

_FILE = Path("/run/flopwatch/notices.json")
"""Where jobs look; `exporter.client.spot` knows it too."""

_MOST_ANSWER = 64 << 10


def interruption_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield what interruptions of runs cost; `money` asks for it where there are prices."""
    told, clock = settings.cost, estate.clock
    yield Plan(
        "derive:interruptions", c.SPOT, Schedule(told.interval, told.deadline, told.max_series),
        f"{told.interval} {told.deadline} {told.max_series}",
        lambda: DerivedSource(interruptions(), estate.board.view, clock),
    )  # fmt: skip


def spot_plans(settings: Settings, estate: Estate) -> Iterator[Plan]:
    """Yield who asks the cloud, where there is one. Raises `ConfigError`."""
    spot = settings.sources.spot
    if spot.enabled is False or (provider := _provider(settings)) is None:
        return

    def make() -> SpotSource:
        return SpotSource(
            _cloud(provider, spot, estate), estate.notices, estate.clock, boot=estate.boot(),
            **remembering(settings, estate),
        )  # fmt: skip

    yield Plan(
        "spot", c.SPOT,
        shared(
            Schedule(spot.interval, spot.deadline, spot.max_series), "spot",
            jitter=settings.start_jitter,
        ),
        f"{provider} {spot!r} {settings.state_directory} {settings.state_interval}",
        make,
        turn=1,
    )  # fmt: skip
    yield from _notify_plans(settings.notify, estate)


def _notify_plans(notify: NotifySettings, estate: Estate) -> Iterator[Plan]:
    """Yield who is told what is announced."""
    schedule = Schedule(notify.interval, notify.deadline, notify.max_series)
    notices, clock, node = estate.notices, estate.clock, node_name()

    def planned(name: str, told: object, make: Callable[[], Source]) -> Plan:
        return Plan(f"notify:{name}", c.EXPORTER, schedule, f"{schedule} {told!r}", make)

    if (path := _file(notify)) is not None:
        yield planned(
            "file", path, lambda: NoticeFile(path, notices, clock, boot=estate.boot())
        )  # fmt: skip
    for one in notify.webhooks:
        post = _Post(one, "", notify.timeout, clock)
        yield planned(
            one.name, (one, notify.timeout),
            functools.partial(Webhook, one.name, post, notices, clock, node=node),
        )  # fmt: skip
    for one in notify.alertmanagers:
        post = _Post(one, "/api/v2/alerts", notify.timeout, clock)
        yield planned(
            one.name, (one, notify.timeout, notify.labels, notify.resend),
            functools.partial(
                AlertmanagerSink, one.name, post, notices, clock, node=node,
                labels=notify.labels, resend=notify.resend,
            ),
        )  # fmt: skip


def _file(notify: NotifySettings) -> Path | None:
    """Return where jobs on this machine look; `auto`: where that directory is ours to write to."""
    if notify.file is False:
        return None
    if notify.file != "auto":
        return Path(notify.file)
    return _FILE if os.access(_FILE.parent, os.W_OK | os.X_OK) else None


class _Post:
    """Posts JSON to one receiver. What an address in a file holds is in no message."""

    def __init__(self, one: ReceiverSettings, path: str, timeout: float, clock: Clock) -> None:
        self._one = one
        self._path = path
        self._timeout = timeout
        self._clock = clock

    def __call__(self, body: bytes) -> None:
        one, url = self._one, self._url()
        fetcher = HttpFetcher(
            url.rstrip("/") + self._path, timeout=self._timeout, clock=self._clock,
            max_bytes=_MOST_ANSWER, token_file=_path(one.token_file), ca_file=_path(one.ca_file),
            insecure_skip_verify=one.insecure_skip_verify, follow_redirects="none",
        )  # fmt: skip
        try:
            fetcher.post(body)
        except Refused as error:
            shown = one.name if one.url is None else one.url.partition("?")[0]
            raise SourceError(error.reason, f"{shown}: HTTP {error.status}") from None
        except (OSError, SourceError, Malformed) as error:
            if one.url is not None:
                raise
            said = f"{one.name}: {type(error).__name__} (the address is in url_file)"
            raise SourceError(reason_of(error), said) from None

    def _url(self) -> str:
        """Return the address. Raises `SourceError`."""
        one = self._one
        if one.url_file is None:
            return one.url or ""
        try:
            text = Path(one.url_file).read_text("utf-8").strip()
            return page_url(text)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "holds no address"
            raise SourceError("denied", f"url_file {one.url_file}: {reason}") from None


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _provider(settings: Settings) -> str | None:
    """Return the cloud to ask; without one in the settings, that which the firmware names."""
    spot = settings.sources.spot
    if spot.provider != "auto":
        return spot.provider
    found = find_provider(Path(settings.root))
    if found is None and spot.enabled is True:
        raise ConfigError(
            "sources.spot.provider: the firmware names no cloud that is known: name it, or set"
            " enabled: auto"
        )
    return found


def _cloud(provider: str, spot: SpotSettings, estate: Estate) -> Cloud:
    service = Service(spot.endpoint or ENDPOINTS[provider], estate.clock, timeout=spot.timeout)
    if provider == "aws":
        return Aws(service, tokenless=spot.tokenless)
    if provider == "azure":
        return Azure(service, acknowledge_after=spot.acknowledge_after)
    return CLOUDS[provider](service)
