"""Inference servers among the pods of this node.

A pod that says of itself that it is to be read (`flopwatch.io/scrape: "true"`) is. One that only
may be a server is asked once for its page, as a port of this machine is: because of its annotations
for Prometheus, of the engine that its command, image or labels name, or because it has a GPU and a
port for metrics. Only pods that run and are ready are looked at, at their own address and no other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, MutableMapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from exporter.clock import Clock
from exporter.discovery.annotations import Misstated, Stated, stated
from exporter.discovery.commands import Kind, stated_ports
from exporter.discovery.images import command_of, kind_of
from exporter.discovery.local import Answer, Probe, Verdict
from exporter.discovery.target import Look, Target, shortened
from exporter.formats.podlist import Pod
from exporter.samples import Fault

log = logging.getLogger(__name__)

_METRICS = ("metrics", "http-metrics", "metrics-http", "prom-metrics")
"""Names that ports for metrics have."""

_SERVING = ("http", "http1", "h2c", "api", "server")

_PROBES = 4
"""At most so many pods are asked in one look: each may keep us waiting."""

_MOST_PORTS = 3
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_PAUSE_UNKNOWN = 5.0, 60.0, 600.0


class Candidate(NamedTuple):
    """A pod that is a server, or may be one. `urls` are where its page may be, likeliest first.

    `instance` tells one life of its containers from the next.
    """

    pod: Pod
    instance: str
    says: Stated
    urls: tuple[str, ...]
    kind: Kind | None

    @property
    def name(self) -> str:
        """What its target is called."""
        return f"{self.pod.namespace}:{self.pod.name}"


class PodFinder:
    """Looks at the pods that `pods()` knows; `engines` are the names that an annotation may use.

    With `namespaces`, only in those. Where `is_own` (of host and port) we serve ourselves.
    `verdicts` is memory that outlives this object.
    """

    origin = "kubernetes"

    def __init__(
        self,
        pods: Callable[[], Sequence[Pod]],
        probe: Probe,
        clock: Clock,
        *,
        engines: Collection[str],
        namespaces: Collection[str] = (),
        is_own: Callable[[str, int], bool] = lambda _host, _port: False,
        allow_destructive_read: bool = False,
        verdicts: MutableMapping[str, Verdict] | None = None,
    ) -> None:
        self._pods = pods
        self._probe = probe
        self._clock = clock
        self._engines = frozenset(engines)
        self._namespaces = frozenset(namespaces)
        self._is_own = is_own
        self._may_destroy = allow_destructive_read
        self._verdicts: MutableMapping[str, Verdict] = {} if verdicts is None else verdicts

    def look(self) -> Look:
        """Return the servers among the pods, and a fault for each whose annotations are wrong."""
        candidates: list[Candidate] = []
        faults: list[Fault] = []
        for pod in self._pods():
            if not pod.serves or (self._namespaces and pod.namespace not in self._namespaces):
                continue
            try:
                one = candidate(pod, self._engines)
            except Misstated as error:
                faults.append(Fault(f"pod {pod.namespace}/{pod.name}", "malformed", str(error)))
                continue
            urls = () if one is None else tuple(url for url in one.urls if not self._ours(url))
            if one is not None and urls:
                candidates.append(one._replace(urls=urls))
        for gone in self._verdicts.keys() - {one.instance for one in candidates}:
            del self._verdicts[gone]
        self._ask([one for one in candidates if not one.says.wanted])
        return Look(tuple(self._targets(candidates)), tuple(faults))

    def _ours(self, url: str) -> bool:
        parts = urlsplit(url)
        return self._is_own(parts.hostname or "", parts.port or 0)

    def _ask(self, candidates: Sequence[Candidate]) -> None:
        """Ask those that are due, the longest waiting first."""
        now = self._clock.monotonic()
        due = [one for one in candidates if self._due(one, now)]
        due.sort(key=lambda one: getattr(self._verdicts.get(one.instance), "due", 0.0))
        for one in due[:_PROBES]:
            former = self._verdicts.get(one.instance)
            verdict = self._judged(one, former, now)
            self._verdicts[one.instance] = verdict
            if verdict.said and (former is None or former.said != verdict.said):
                log.info("pod %s is not read: %s", one.name, verdict.said)

    def _due(self, one: Candidate, now: float) -> bool:
        verdict = self._verdicts.get(one.instance)
        return verdict is None or (verdict.state == "later" and verdict.due <= now)

    def _judged(self, one: Candidate, former: Verdict | None, now: float) -> Verdict:
        if one.kind is not None and one.kind.destructive and not self._may_read(one):
            return Verdict(
                "never", said=f"{one.kind.engine}: reading its page resets averages that others may"
                " read; sources.inference.allow_destructive_read: true permits it",
            )  # fmt: skip
        later: Answer | None = None
        said = ""
        for url in one.urls:
            answer = self._probe(url, one.kind is not None)
            if answer.state == "server":
                return Verdict("server", url)
            said = answer.detail
            if answer.state != "never":
                later = later or answer
        if later is None:
            return Verdict("never", said=said)
        longest = _LONGEST_PAUSE if one.kind is not None else _LONGEST_PAUSE_UNKNOWN
        pause = _FIRST_PAUSE if former is None else min(2 * former.pause, longest)
        return Verdict("later", due=now + pause, pause=pause, said=later.detail)

    def _may_read(self, one: Candidate) -> bool:
        return self._may_destroy or one.says.allow_destructive_read

    def _targets(self, candidates: Sequence[Candidate]) -> Iterator[Target]:
        for one in candidates:
            verdict = self._verdicts.get(one.instance)
            if one.says.wanted:
                urls: tuple[str, ...] = one.urls
            else:
                urls = (verdict.url,) if verdict is not None and verdict.state == "server" else ()
            for url in urls:
                yield Target(
                    shortened(one.name + (f":{urlsplit(url).port}" if len(urls) > 1 else "")), url,
                    self.origin, one.says.engine, one.says.model_name,
                    allow_destructive_read=self._may_read(one), identity=one.instance,
                    kind="" if one.kind is None else one.kind.engine,
                    pod=(one.pod.namespace, one.pod.name),
                )  # fmt: skip


def candidate(pod: Pod, engines: Collection[str]) -> Candidate | None:
    """Return the pod as one that is or may be a server, `None` if nothing speaks for it.

    Raises `Misstated`.
    """
    says = stated(pod, engines)
    if says.refused:
        return None
    kind, by_command = _engine(pod)
    if not (says.wanted or says.suspected or kind or _has_gpu_and_metrics(pod)):
        return None
    ports = says.ports or _likely(pod, kind, by_command)[:_MOST_PORTS]
    if not ports and says.wanted:
        raise Misstated("flopwatch.io/port is needed: it is not clear at which port it serves")
    paths = (says.path,) if says.path else ("/metrics",) if kind is None else kind.paths
    if says.wanted:
        # What is to be read is not tried out: each port that is stated, or the likeliest one.
        ports, paths = ports if says.ports else ports[:1], paths[:1]
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    urls = tuple(f"{says.scheme}://{host}:{port}{path}" for port in ports for path in paths)
    instance = f"{pod.uids[0]}@{'.'.join(one.id[:12] for one in pod.containers)}"
    return Candidate(pod, instance, says, urls, kind)


def _engine(pod: Pod) -> tuple[Kind | None, tuple[int, ...]]:
    """Return the engine of a pod's container, and the ports that its command states."""
    for container in pod.containers:
        command = command_of(container)
        if command is not None:
            return command.kind, command.stated
    for container in pod.containers:
        kind = kind_of(container, pod.labels)
        if kind is not None:
            return kind, stated_ports(kind, container.words)
    return None, ()


def _has_gpu_and_metrics(pod: Pod) -> bool:
    ports = [port for container in pod.containers for port in container.ports]
    return any(one.gpus for one in pod.containers) and any(one.name in _METRICS for one in ports)


def _likely(pod: Pod, kind: Kind | None, by_command: Sequence[int]) -> Sequence[int]:
    """Return the ports at which the page may be, likeliest first: by the best word on it alone.

    Behind other ports are protocols of their own, which a stray request may harm.
    """
    declared = [port for container in pod.containers for port in container.ports]
    by_name = [
        one.number for names in (_METRICS, _SERVING) for one in declared if one.name in names
    ]
    only = [declared[0].number] if len(declared) == 1 else []
    defaults = () if kind is None else kind.defaults
    words = (by_command, by_name, only, defaults)
    return tuple(dict.fromkeys(next(filter(None, words), ())))
