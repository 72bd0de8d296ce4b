"""Discovery of inference servers, as a source: how many are read, by how they became known.

The finders look; this gives them a beat, and writes what they found into the register, from which
the composition root starts and stops the sources that read those servers.

    llm_discovered_servers{origin="static"} 1
    llm_discovered_servers{origin="file"} 4
    llm_discovered_servers{origin="local"} 2
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.discovery import (
    Answer,
    Choice,
    Endpoint,
    Finder,
    Register,
    Static,
    Target,
    choose,
)
from exporter.engines import Engine, detect
from exporter.fetch import HttpFetcher, Refused
from exporter.formats.exposition import Limits, Reader
from exporter.samples import Drop, Fault, Malformed, Sample, SourceError

STATIC = "static"
_RESOLVED_ANEW = 30
"""Every how many looks the names of configured servers are looked up again."""


class DiscoverySource:
    """Looks for servers with all finders.

    `static` are the configured servers, `read` how many of them are read; of all servers at most
    `limit` are. `is_ours` tells whether a host is this machine.
    """

    name = "discovery"
    group = c.SERVING

    def __init__(
        self,
        finders: Sequence[Finder],
        static: Sequence[Static],
        register: Register,
        *,
        read: int,
        limit: int,
        is_ours: Callable[[str], bool],
    ) -> None:
        self._finders = tuple(finders)
        self._static = tuple(static)
        self._register = register
        self._read = read
        self._limit = limit
        self._is_ours = is_ours
        self._ours: dict[str, bool] = {}
        self._looks = 0
        self._targets: list[Target] = []
        self._choice = Choice()

    def read(self) -> Iterator[Sample | Fault | Drop]:
        """Look once everywhere; yield the counts, and a fault for each place that is not sound."""
        targets: list[Target] = []
        faults: list[Fault] = []
        for finder in self._finders:
            look = finder.look()
            targets += look.targets
            faults += look.faults
        choice = self._chosen(targets)
        yield from self._counts(choice.taken)
        yield from faults
        if choice.beyond:
            reason = f"{choice.beyond} servers beyond max_servers ({self._limit}) are not read"
            yield Fault("max_servers", "denied", reason)
            yield Drop("max_servers", choice.beyond)

    def close(self) -> None:
        """Hold nothing, so release nothing."""

    def _chosen(self, targets: list[Target]) -> Choice:
        """Return what is read of the targets; thousands are only gone through where one is new."""
        anew = self._looks % _RESOLVED_ANEW == 0
        self._looks += 1
        if anew:
            self._ours.clear()
        if anew or targets != self._targets:
            self._targets = targets
            places = [*(t.endpoint for t in targets), *(one.endpoint for one in self._static)]
            here = {place.port for place in places if place.host == ""}
            self._choice = choose(
                self._static, targets, self._limit, lambda place: self._placed(place, here)
            )
            self._register.publish(self._choice.taken)
        return self._choice

    def _placed(self, place: Endpoint, here: set[int]) -> Endpoint:
        """Return an endpoint with the host "" if it is this machine under another name.

        Names are only looked up where a port of this machine has the same number.
        """
        if place.host == "" or place.port not in here:
            return place
        if place.host not in self._ours:
            self._ours[place.host] = self._is_ours(place.host)
        return place._replace(host="") if self._ours[place.host] else place

    def _counts(self, taken: Iterable[Target]) -> Iterator[Sample]:
        counts = {STATIC: self._read} | dict.fromkeys((f.origin for f in self._finders), 0)
        for target in taken:
            counts[target.origin] += 1
        for origin, number in counts.items():
            yield c.LLM_DISCOVERED_SERVERS(number, origin)


class Prober:
    """Asks a URL once whether a server is there that one of `engines` can read.

    Only the metrics page is asked for, within `timeout` seconds, and no other server is gone to.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        clock: Clock,
        *,
        timeout: float,
        max_bytes: int,
        limits: Limits,
        allow_destructive_read: bool = False,
    ) -> None:
        self._engines = tuple(engines)
        self._clock = clock
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._limits = limits
        self._may_destroy = allow_destructive_read

    def __call__(self, url: str, known: bool) -> Answer:  # noqa: FBT001 - the finder's interface
        """Ask; `known` says that the process is seen to be an engine's."""
        fetcher = HttpFetcher(
            url, timeout=self._timeout, clock=self._clock, max_bytes=self._max_bytes
        )
        try:
            return self._judged(fetcher.get().body, known=known)
        except Refused as error:
            # 404: metrics are switched off, or it is something else. llama.cpp says 501 and 400.
            loading = error.status >= 500 and error.status != 501
            return Answer("later" if loading else "never", str(error))
        except ConnectionError as error:
            refused = isinstance(error.__cause__, ConnectionRefusedError)
            return Answer("absent" if refused else "later", str(error))
        except TimeoutError as error:
            return Answer("later", str(error))
        except (SourceError, Malformed) as error:
            return Answer("never", str(error))
        finally:
            fetcher.close()

    def _judged(self, body: bytes, *, known: bool) -> Answer:
        telling = [name for engine in self._engines for name in engine.telling]
        engine = detect(self._engines, Reader(telling, self._limits).read(body).shape)
        if engine is None:
            # Some engines show their metrics after the first request only.
            return Answer("later" if known else "never", "no metrics of an engine that is known")
        if engine.destructive and not self._may_destroy:
            return Answer(
                "never",
                f"{engine.name}: reading its page resets averages that others may read;"
                " sources.inference.allow_destructive_read: true permits it",
            )
        return Answer("server")
