"""What is asked of a metadata service, and the ways in which that fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from exporter.notices import Instance, Kind
from exporter.samples import Reason, SourceError

Result = Literal[
    "none", "notice", "unauthorized", "forbidden", "throttled", "timeout", "token_timeout",
    "unreachable", "redirected", "server_error", "malformed",
]  # fmt: skip
"""What became of asking. `token_timeout`: a connection, but never an answer (hop limit)."""

_REASONS: dict[str, Reason] = {
    "unauthorized": "denied", "forbidden": "denied", "timeout": "timeout",
    "token_timeout": "timeout", "malformed": "malformed",
}  # fmt: skip


class Told(NamedTuple):
    """One thing that a metadata service announces now; see `Notice`."""

    kind: Kind
    action: str
    deadline: float | None = None
    id: str = ""
    detail: str = ""


class Refusal(SourceError):  # noqa: N818 - said of the answer
    """A question has no usable answer; `result` is what it counts as.

    `told` is what was answered all the same, where something else went wrong after that.
    """

    def __init__(self, result: Result, detail: str) -> None:
        super().__init__(_REASONS.get(result, "unavailable"), detail)
        self.result: Result = result
        self.told: Sequence[Told] | None = None


class Question(NamedTuple):
    """What is asked each `every` seconds. `ask` returns all that is announced, nothing if nothing.

    `kinds` are what it can tell of. `ask` raises `Refusal`. `waits` says that it may take longer
    than the others, because the service answers when there is news.
    """

    name: str
    kinds: tuple[Kind, ...]
    every: float
    ask: Callable[[], Sequence[Told]]
    waits: bool = False


class Cloud(Protocol):
    """A provider. `lead` is how long before an interruption it usually tells, in seconds."""

    @property
    def name(self) -> str:
        """The provider's name, as the label `provider` has it."""

    @property
    def lead(self) -> float | None:
        """Seconds of warning that are usual; `None` where nothing is announced."""

    def identify(self) -> Instance:
        """Return what the service says of this machine. Raises `Refusal`."""

    def questions(self, instance: Instance) -> tuple[Question, ...]:
        """Return what is to be asked on such a machine."""
