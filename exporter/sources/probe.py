"""Whether an inference server answers: a request of our own, again and again, for availability.

Metrics pages tell of requests that reached the engine; a server that is down tells nothing. So each
server is asked `/health`, and where that is wanted for a completion of one token, which goes the
whole way through model and GPU. Each kind is a source of its own: a server that hangs keeps nobody
else waiting, and no request begins before the one before it has ended.

What says nothing about the server is not counted: a token that cannot be read or is not accepted, a
redirect to somewhere else, a machine of ours without a free port, a path that has never answered.
Nothing is asked while it is not known whose server it is.
That is a failed read of this source, with its reason.

    llm_probes_total{server="a",kind="health",outcome="success"} 360
    llm_probes_total{server="a",kind="health",outcome="failure"} 2
    llm_probe_up{server="a",kind="health"} 1
    llm_probe_duration_seconds{server="a",kind="health"} 0.0011
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, Literal, Protocol

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.fetch import Refused, Response
from exporter.samples import Fault, Malformed, Remembered, Sample, SourceError

Kind = Literal["health", "completion"]

HEALTH_PATHS: Mapping[str, str] = {
    # Its /health asks every model behind it for a completion, at somebody's cost.
    "litellm": "/health/liveliness",
    "nim": "/v1/health/ready",
    "ray": "/-/healthz",
    "triton": "/v2/health/ready",
}
"""Where engines tell that they can serve, if not at `/health`."""


def health_path(engine: str) -> str:
    """Return the path at which an engine is asked; "" if it is not known which one it is."""
    return HEALTH_PATHS.get(engine, "/health") if engine else ""


_HELD_UP = 2.0
"""Seconds beyond the timeout after which a failure says more of this machine than of the server."""

_OURS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL))
"""Errors of a machine that cannot open a connection at all."""

_BUSY = (408, 429)
"""The statuses from 400 to 499 that say something of the server."""


class Asks(Protocol):
    """What sends requests to one address."""

    def get(self) -> Response:
        """Return the answer, or raise what says why there is none."""

    def post(self, body: bytes) -> Response:
        """Send JSON and return the answer, or raise what says why there is none."""

    def close(self) -> None:
        """Release the connection."""


class Question(Protocol):
    """One kind of probe."""

    kind: Kind

    @property
    def place(self) -> str:
        """Where it was asked last."""

    def ask(self) -> None:
        """Return if the server answers as it should; raise what says why not."""

    def close(self) -> None:
        """Release the connection."""


class Health:
    """Asks whether the server can serve. `connect` takes a path; `path` is "" if not known yet.

    Then nothing is asked: at the wrong path one engine is not there, and another one works.
    """

    kind: Kind = "health"

    def __init__(self, connect: Callable[[str], Asks], path: Callable[[], str]) -> None:
        self._connect = connect
        self._path = path
        self._door: Asks | None = None
        self.place = ""

    def ask(self) -> None:
        """Ask once. Raises `SourceError` if it is not known where, and what the door raises."""
        path = self._path()
        if not path:
            raise SourceError("unavailable", "not asked: the engine is not known yet (engine)")
        if self._door is None or path != self.place:
            self.close()
            self.place, self._door = path, self._connect(path)
        self._door.get()

    def close(self) -> None:
        """Close the connection."""
        if self._door is not None:
            self._door.close()
            self._door = None


class Completion:
    """Asks for one token. `model` is the model's name, "" while it is not known."""

    kind: Kind = "completion"
    place = ""

    def __init__(self, door: Asks, model: Callable[[], str]) -> None:
        self._door = door
        self._model = model

    def ask(self) -> None:
        """Ask once. Raises what the door raises, and `Malformed` for an answer that is none."""
        model = self._model()
        if not model:
            raise SourceError("unavailable", "no model is known to ask for (model_name)")
        wanted = {"model": model, "prompt": "1", "max_tokens": 1, "temperature": 0}
        answer = self._door.post(json.dumps({**wanted, "user": "flopwatch"}).encode())
        try:
            told: Any = json.loads(answer.body)
            complete = bool(told["choices"])
        except (LookupError, TypeError, ValueError, RecursionError):
            complete = False
        if not complete:
            raise Malformed(f"status {answer.status}, but no completion")

    def close(self) -> None:
        """Close the connection."""
        self._door.close()


class ProbeSource:
    """Asks one question of one server at each read but the first, and counts the answers.

    The first read is the baseline that a counter needs; by the next one the server's page has told
    whose it is. `timeout` is that of the question. `memories` keeps the counts by name for a
    successor; what a daemon that was killed has left may be less than it told, so then they begin
    at zero. `recall` is called before the first read, to bring what an earlier process has left.
    """

    def __init__(
        self,
        server: str,
        question: Question,
        *,
        clock: Clock,
        timeout: float,
        memories: MutableMapping[str, Any] | None = None,
        recall: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = f"probe:{server}" + (":completion" if question.kind == "completion" else "")
        self.group = c.SERVING
        self._server = server
        self._question = question
        self._clock = clock
        self._timeout = timeout
        self._memories = {} if memories is None else memories
        self._recall = recall
        self._began = False
        self._answered: str | None = None
        self._good = self._bad = 0

    def read(self) -> Iterator[Sample | Fault]:
        """Ask once, and tell how often it has gone well and badly.

        Raises, without counting, what says nothing about the server.
        """
        if not self._began:
            self._began = True
            self._take_over()
            yield from self._counts()
            return
        begun = self._clock.monotonic()
        fault = self._ask(begun)
        taken = self._clock.monotonic() - begun
        self._good += fault is None
        self._bad += fault is not None
        self._keep()
        yield from self._counts()
        kind = self._question.kind
        yield c.LLM_PROBE_UP(int(fault is None), self._server, kind)
        yield c.LLM_PROBE_DURATION_SECONDS(taken, self._server, kind)
        if fault is not None:
            yield fault

    def close(self) -> None:
        """Close the connection, and leave the counts to the successor."""
        self._question.close()
        if self._began:
            self._keep(final=True)

    def _ask(self, begun: float) -> Fault | None:
        """Return what a failure of the server is; raise what is none of it."""
        try:
            self._question.ask()
        except (OSError, SourceError, Malformed) as error:
            if self._says_nothing(error):
                raise
            passed = self._clock.monotonic() - begun
            if passed > self._timeout + _HELD_UP:
                raise SourceError(
                    "timeout", f"not counted: it took {passed:.1f} s to give up ({error})"
                ) from error
            return Fault.of(self._question.kind, error)
        self._answered = self._question.place
        return None

    def _says_nothing(self, error: Exception) -> bool:
        """Tell whether a failure is a matter of our own settings, or of this machine."""
        if isinstance(error, Refused):
            if error.status in (401, 403):
                return True
            odd = 400 <= error.status < 500 and error.status not in _BUSY
            answers = self._answered == self._question.place
            return (odd or error.status == 501) and not answers
        if isinstance(error, SourceError):
            return True
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        return getattr(cause, "errno", None) in _OURS

    def _counts(self) -> Iterator[Sample]:
        for outcome, number in (("success", self._good), ("failure", self._bad)):
            yield c.LLM_PROBES_TOTAL(number, self._server, self._question.kind, outcome)

    def _take_over(self) -> None:
        self._recall()
        match self._memories.get(self.name):
            case Remembered([int(good), int(bad)], _, True) if good >= 0 and bad >= 0:
                self._good, self._bad = good, bad

    def _keep(self, *, final: bool = False) -> None:
        now = self._clock.monotonic()
        self._memories[self.name] = Remembered([self._good, self._bad], now, final)
