"""Inference servers that listen on this machine.

Asked is only where there is reason to: the process that listens is a known engine's by its
command line, and the port the one it states or the engine's default. Whoever serves there is asked
once, for the metrics page and nothing else. One that is loading is asked again, less and less
often; one that answers anything else never again, until another process serves there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from exporter.clock import Clock
from exporter.discovery.commands import DESTRUCTIVE_PORTS, Command, recognise
from exporter.discovery.machine import Machine, Process, by_port, hosts
from exporter.discovery.target import Look, Target
from exporter.formats.sockets import Listener
from exporter.samples import Fault

log = logging.getLogger(__name__)

_PROBES = 8
"""At most so many servers are asked in one look: each may keep us waiting."""

_LOOK_ANYWAY = 12
"""Every how many looks all processes are gone through though no socket has come or gone."""

_FIRST_PAUSE = 5.0
_LONGEST_PAUSE = 60.0
_LONGEST_PAUSE_UNKNOWN = 600.0
"""Seconds between two questions to one that does not answer, and is not seen to be an engine."""


class Answer(NamedTuple):
    """What a probe found: a server that we can read, one that may become it, or anything else.

    `absent`: nobody answers at this address.
    """

    state: Literal["server", "later", "absent", "never"]
    detail: str = ""


Probe = Callable[[str, bool], Answer]
"""Asks one URL. The flag says that the process is known to be an engine's."""


class Identity(NamedTuple):
    """Who serves on a port: the process, or the socket where the process is not seen."""

    port: int
    process: Process | None
    socket: int


class Candidate(NamedTuple):
    """A port that is worth a question. `command` is `None` where only the port speaks for it."""

    identity: Identity
    hosts: tuple[str, ...]
    command: Command | None

    @property
    def paths(self) -> tuple[str, ...]:
        """Where the page may be, most likely place first."""
        return ("/metrics",) if self.command is None else self.command.kind.paths


@dataclass
class Verdict:
    """What became of asking; `due` is monotonic seconds, for one that is asked again."""

    state: Literal["server", "later", "never"]
    url: str = ""
    due: float = 0.0
    pause: float = _FIRST_PAUSE
    said: str = ""


class LocalFinder:
    """Looks at the listening ports of a machine.

    `ports` are looked at beside what command lines say; with `anyone`, whoever listens there.
    Ports in `excluded` (our own) are left alone, and so are sockets in `own()`. `wanted` means a
    fault if this machine's sockets cannot be seen. `verdicts` is memory that outlives this object.
    """

    origin = "local"

    def __init__(
        self,
        machine: Machine,
        probe: Probe,
        clock: Clock,
        *,
        ports: Collection[int],
        anyone: bool = False,
        excluded: Collection[int] = (),
        own: Callable[[], Collection[int]] | None = None,
        allow_destructive_read: bool = False,
        verdicts: MutableMapping[Identity, Verdict] | None = None,
    ) -> None:
        self._machine = machine
        self._probe = probe
        self._clock = clock
        self._ports = frozenset(ports)
        self._anyone = anyone
        self._excluded = frozenset(excluded)
        self._own = machine.own if own is None else own
        self._may_destroy = allow_destructive_read
        self._verdicts: MutableMapping[Identity, Verdict] = {} if verdicts is None else verdicts
        self._seen: frozenset[Listener] = frozenset()
        self._candidates: list[Candidate] = []
        self._looks = 0

    def look(self) -> Look:
        """Return the servers that answer with a page we can read."""
        try:
            listeners = self._machine.listeners()
        except OSError as error:
            # On `auto` a machine without /proc has nothing to look at.
            return Look(faults=(Fault.of("local", error),) if self._anyone else ())
        candidates = self._current(listeners)
        for gone in self._verdicts.keys() - {one.identity for one in candidates}:
            del self._verdicts[gone]
        self._ask(candidates)
        return Look(tuple(self._targets(candidates)))

    def _current(self, listeners: Sequence[Listener]) -> list[Candidate]:
        """Return the candidates; going through all processes is left out where nothing moved."""
        seen = frozenset(listeners)
        again = self._looks % _LOOK_ANYWAY == 0
        self._looks += 1
        if again or seen != self._seen or not all(map(self._lives, self._candidates)):
            self._seen = seen
            self._candidates = list(self._found(listeners))
        return self._candidates

    def _lives(self, candidate: Candidate) -> bool:
        process = candidate.identity.process
        return process is None or self._machine.process(process.pid) == process

    def _found(self, listeners: Sequence[Listener]) -> Iterator[Candidate]:
        own = self._own()
        ports = by_port(
            one for one in listeners if one.inode not in own and one.port not in self._excluded
        )
        known = dict(self._recognised(ports))
        for port, sockets in sorted(ports.items()):
            process, command = known.get(port, (None, None))
            if command is not None or (self._anyone and port in self._ports):
                socket = 0 if process is not None else min(one.inode for one in sockets)
                yield Candidate(Identity(port, process, socket), tuple(hosts(sockets)), command)

    def _recognised(
        self, ports: Mapping[int, list[Listener]]
    ) -> Iterator[tuple[int, tuple[Process, Command]]]:
        """Yield the ports that an engine's process holds, the youngest process first."""
        machine = self._machine
        servers = []
        for pid in machine.pids() if ports else ():
            command = recognise(machine.arguments(pid))
            process = None if command is None else machine.process(pid)
            if command is not None and process is not None:
                servers.append((process, command))
        # The oldest comes last and stays: workers come and go behind one socket.
        for process, command in sorted(servers, key=lambda one: one[0].start, reverse=True):
            plausible = stated(machine, process.pid, command)
            for port in (plausible or {*command.kind.defaults, *self._ports}) & ports.keys():
                if machine.holds(process.pid, ports[port]):
                    yield port, (process, command)

    def _ask(self, candidates: Sequence[Candidate]) -> None:
        """Ask those that are due, the longest waiting first."""
        now = self._clock.monotonic()
        due = [one for one in candidates if self._due(one, now)]
        due.sort(key=lambda one: getattr(self._verdicts.get(one.identity), "due", 0.0))
        for candidate in due[:_PROBES]:
            former = self._verdicts.get(candidate.identity)
            verdict = self._judged(candidate, former)
            self._verdicts[candidate.identity] = verdict
            if verdict.said and (former is None or former.said != verdict.said):
                log.info("port %d is not read: %s", candidate.identity.port, verdict.said)

    def _due(self, candidate: Candidate, now: float) -> bool:
        verdict = self._verdicts.get(candidate.identity)
        return verdict is None or (verdict.state == "later" and verdict.due <= now)

    def _judged(self, candidate: Candidate, former: Verdict | None) -> Verdict:
        refusal = self._refusal(candidate)
        if refusal:
            return Verdict("never", said=refusal)
        for path in candidate.paths:
            url, answer = self._answer(candidate, path)
            if answer.state == "server":
                return Verdict("server", url)
            if answer.state != "never":
                return self._later(candidate, former, answer)
        return Verdict("never", said=answer.detail)

    def _answer(self, candidate: Candidate, path: str) -> tuple[str, Answer]:
        """Ask for a path, at the first address where somebody answers."""
        url, answer = "", Answer("never", "there is no address at which to ask")
        for host in candidate.hosts:
            url = f"http://{host}:{candidate.identity.port}{path}"
            answer = self._probe(url, candidate.command is not None)
            if answer.state != "absent":
                break
        return url, answer

    def _later(self, candidate: Candidate, former: Verdict | None, answer: Answer) -> Verdict:
        longest = _LONGEST_PAUSE if candidate.command is not None else _LONGEST_PAUSE_UNKNOWN
        pause = _FIRST_PAUSE if former is None else min(2 * former.pause, longest)
        due = self._clock.monotonic() + pause
        return Verdict("later", due=due, pause=pause, said=answer.detail)

    def _refusal(self, candidate: Candidate) -> str:
        """Return why a port is not even asked: with llama.cpp the question does the harm."""
        command = candidate.command
        if self._may_destroy:
            return ""
        if command is not None:
            engine = command.kind.engine
            harms = command.kind.destructive
        else:
            engine, harms = "perhaps llama.cpp", candidate.identity.port in DESTRUCTIVE_PORTS
        if not harms:
            return ""
        return (
            f"{engine}: reading its page resets averages that others may read;"
            " sources.inference.allow_destructive_read: true permits it"
        )

    def _targets(self, candidates: Sequence[Candidate]) -> Iterator[Target]:
        for candidate in candidates:
            verdict = self._verdicts.get(candidate.identity)
            if verdict is not None and verdict.state == "server":
                port, process, inode = candidate.identity
                yield Target(
                    f"local:{port}", verdict.url, self.origin,
                    allow_destructive_read=self._may_destroy,
                    identity=str(inode) if process is None else f"{process.pid}@{process.start}",
                    kind="" if candidate.command is None else candidate.command.kind.engine,
                )  # fmt: skip


def stated(machine: Machine, pid: int, command: Command) -> set[int]:
    """Return the ports that a server's command line states, or that of an ancestor of its kind.

    A worker with a title of its own has the options of its parent.
    """
    found = set(command.stated)
    for ancestor in () if found else machine.ancestry(pid):
        parent = recognise(machine.arguments(ancestor.pid))
        if parent is not None and parent.kind is command.kind:
            found |= set(parent.stated)
    return found


def serves(machine: Machine, pid: int, port: int, listeners: Collection[Listener]) -> bool:
    """Tell whether a process holds the sockets of a port.

    Where its sockets may not be seen, only an engine's process can be believed to.
    """
    if machine.inodes(pid) is None:
        command = recognise(machine.arguments(pid))
        if command is None:
            return False
        ports = stated(machine, pid, command)
        if ports and port not in ports:
            return False
    return machine.holds(pid, listeners)
