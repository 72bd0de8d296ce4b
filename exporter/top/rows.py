"""What is shown: the rows of a frame. None is what is not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Gpu(NamedTuple):
    """A GPU by its number. Shares are of 1, sizes in bytes; `work` is who uses it, if known."""

    number: str
    name: str
    up: bool
    sm: float | None
    tensor: float | None
    dram: float | None
    busy: float | None
    used: float | None
    memory: float | None
    watts: float | None
    limit: float | None
    hertz: float | None
    celsius: float | None
    held: tuple[str, ...]
    xids: int | None
    work: str


class Run(NamedTuple):
    """A training run. `losses` are shares of the peak by cause, the largest first."""

    name: str
    model: str
    stalled: bool
    step: float | None
    seconds: float | None
    rate: float | None
    mfu: float | None
    mfu_of: str
    losses: tuple[tuple[str, float], ...]
    goodput: float | None
    loss: float | None
    straggler: tuple[str, float] | None
    bottleneck: str
    confirmed: bool | None
    causes: tuple[str, ...]


class Server(NamedTuple):
    """A model on an inference server; latencies in seconds by (signal, percentile)."""

    name: str
    engine: str
    model: str
    up: bool | None
    stalled: bool
    latencies: Mapping[tuple[str, str], float]
    requests: float | None
    tokens_in: float | None
    tokens_out: float | None
    active: float | None
    waiting: float | None
    kv: float | None


class Promise(NamedTuple):
    """An objective; `about` says for whom where it is not for all.

    `unit` is of what is measured: seconds, ratio, tokens_per_second.
    """

    sla: str
    name: str
    statement: str
    about: str
    state: str
    measured: float | None
    unit: str
    budget: float | None
    cause: str
    evidence: str


class Port(NamedTuple):
    """A network port; use is a share of what the link can do."""

    device: str
    port: str
    role: str
    up: bool
    expected: bool
    rate: float | None
    receive: float | None
    transmit: float | None


class Money(NamedTuple):
    """Dollars: an hour, of which idle, and what is paid for by name."""

    hour: float | None
    idle: float | None
    spent: float | None
    rows: tuple[tuple[str, float, str], ...]


class Trouble(NamedTuple):
    """A source that is not well: its state, and what could not be read."""

    source: str
    state: str
    parts: tuple[str, ...]


class Frame(NamedTuple):
    """Everything that is shown at once."""

    version: str
    uptime: float | None
    gpus: tuple[Gpu, ...]
    runs: tuple[Run, ...]
    servers: tuple[Server, ...]
    promises: tuple[Promise, ...]
    ports: tuple[Port, ...]
    imbalance: float | None
    far: tuple[str, ...]
    money: Money
    sources: int
    trouble: tuple[Trouble, ...]
    notice: str
    story: str
