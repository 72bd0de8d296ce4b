"""The views: what is shown of a frame, as rich draws it.

Each is a function from a frame to things to draw, one under the other. All fit 80 columns; bars and
names take what a wider terminal has more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from exporter.top.cells import (
    UNKNOWN,
    bar,
    dollars,
    duration,
    large,
    number,
    seconds,
    share,
    text,
    words,
)
from exporter.top.rows import Frame, Gpu, Port, Promise, Run, Server

COLUMNS = 80
"""Of the smallest terminal that all is made for."""


class Look(NamedTuple):
    """How to draw: for so many columns, with block characters or plain ones, sorted by what."""

    width: int = COLUMNS
    blocks: bool = True
    sort: str = ""


Row = Any
Order = Callable[[Row], Any]


class View(NamedTuple):
    """A view by name, and by what its first table can be sorted."""

    name: str
    draw: Callable[[Frame, Look], Iterator[RenderableType]]
    orders: Mapping[str, Order]


def _falling(value: float | None) -> float:
    return float("inf") if value is None else -value


_GPU_ORDERS: Mapping[str, Order] = {
    "": lambda _: 0,
    "sm": lambda gpu: _falling(gpu.sm),
    "tensor": lambda gpu: _falling(gpu.tensor),
    "memory": lambda gpu: _falling(gpu.used),
    "power": lambda gpu: _falling(gpu.watts),
    "temperature": lambda gpu: _falling(gpu.celsius),
    "held down": lambda gpu: -len(gpu.held),
}
_RUN_ORDERS: Mapping[str, Order] = {"": lambda _: 0, "mfu": lambda run: run.mfu or 0.0}
_SERVER_ORDERS: Mapping[str, Order] = {
    "": lambda _: 0,
    "ttft": lambda server: _falling(server.latencies.get(("ttft", "p95"))),
    "queue": lambda server: _falling(server.waiting),
    "requests": lambda server: _falling(server.requests),
}
_PORT_ORDERS: Mapping[str, Order] = {
    "": lambda _: 0,
    "receive": lambda port: _falling(port.receive),
    "transmit": lambda port: _falling(port.transmit),
    "down": lambda port: port.up,
}


def _table(*columns: str, **kept: int) -> Table:
    """Return a table; a name that begins with `>` stands right, one with `*` takes what is left."""
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        name = column.lstrip(">*")
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        table.add_column(
            Text(name, no_wrap=True), justify=justify, no_wrap=True, overflow="ellipsis",
            ratio=1 if column.startswith("*") else None, width=kept.get(name),
        )  # fmt: skip
    return table


def _heading(title: str, told: str = "") -> Text:
    return Text.assemble((title, "bold cyan"), ("  " if told else ""), told, no_wrap=True)


def _nothing(told: str) -> Text:
    return words(f"  {told}", "dim")


# ---- GPUs -----------------------------------------------------------------------------------


def _gpu_table(gpus: Sequence[Gpu], look: Look) -> Table:
    wide = max(0, look.width - COLUMNS)
    width = 5 + wide // 5
    table = _table(
        ">gpu", "sm", "tensor", "hbm", "memory", ">watts", ">MHz", ">temp", "*held down by"
    )
    for gpu in sorted(gpus, key=_GPU_ORDERS.get(look.sort, _GPU_ORDERS[""])):
        if not gpu.up:
            lost = words("lost", "bold red")
            table.add_row(text(gpu.number), lost, *[words(UNKNOWN)] * 7)
            continue
        memory = None if not gpu.memory or gpu.used is None else gpu.used / gpu.memory
        busy = gpu.busy if gpu.sm is None else gpu.sm
        table.add_row(
            text(gpu.number),
            bar(busy, width, blocks=look.blocks),
            bar(gpu.tensor, width, blocks=look.blocks, style="magenta"),
            bar(gpu.dram, width, blocks=look.blocks, style="blue"),
            bar(memory, width, blocks=look.blocks, style="cyan"),
            number(gpu.watts),
            number(None if gpu.hertz is None else gpu.hertz / 1e6),
            number(gpu.celsius),
            text(" ".join(gpu.held), "yellow"),
        )
    return table


def _gpus(frame: Frame, look: Look) -> Iterator[RenderableType]:
    names = list(dict.fromkeys(gpu.name for gpu in frame.gpus))
    yield Text.assemble(_heading(f"{len(frame.gpus)} GPUs"), "  ", text(", ".join(names)))
    if not frame.gpus:
        yield _nothing("none is known here")
        return
    yield _gpu_table(frame.gpus, look)
    yield Text()
    table = _table(">gpu", ">used GB", ">of", ">watts", ">limit", ">XIDs", "*works for")
    for gpu in sorted(frame.gpus, key=_GPU_ORDERS.get(look.sort, _GPU_ORDERS[""])):
        table.add_row(
            text(gpu.number), number(_giga(gpu.used), 1), number(_giga(gpu.memory), 1),
            number(gpu.watts), number(gpu.limit), number(gpu.xids), text(gpu.work),
        )  # fmt: skip
    yield table


def _giga(value: float | None) -> float | None:
    return None if value is None else value / 1e9


# ---- training -------------------------------------------------------------------------------


def _run_table(runs: Sequence[Run], look: Look) -> Table:
    table = _table("*run", "mfu", ">tokens/s/GPU", ">step", ">goodput", "limited by", bottleneck=20)
    for run in sorted(runs, key=_RUN_ORDERS.get(look.sort, _RUN_ORDERS[""])):
        table.add_row(
            text(run.name),
            bar(run.mfu, 6, blocks=look.blocks),
            number(run.rate),
            seconds(run.seconds),
            share(run.goodput),
            _limit(run),
        )
    return table


def _limit(run: Run) -> Text:
    if run.stalled:
        return words("stands still", "bold red")
    causes = [cause for cause in run.causes if cause != "tensor_active"]
    worst = [f"rank {run.straggler[0]}"] if run.straggler and run.straggler[1] > 0.1 else []
    return text(" ".join([*worst, *causes]) or run.bottleneck, "yellow" if causes else "")


def _training(frame: Frame, look: Look) -> Iterator[RenderableType]:
    yield _heading(f"{len(frame.runs)} training runs")
    if not frame.runs:
        yield _nothing("none is known here")
        return
    yield _run_table(frame.runs, look)
    for run in sorted(frame.runs, key=_RUN_ORDERS.get(look.sort, _RUN_ORDERS[""])):
        yield Text()
        yield Text.assemble(text(run.name, "bold"), "  ", text(run.model))
        yield from _run_lines(run, look)


def _run_lines(run: Run, look: Look) -> Iterator[RenderableType]:
    step = UNKNOWN if run.step is None else f"{run.step:,.0f}"
    loss = UNKNOWN if run.loss is None else f"{run.loss:.4f}"
    told = words(f"  step {step}   loss {loss}   MFU is ")
    yield told.append_text(text(run.mfu_of or "not known"))
    if run.bottleneck or run.causes:
        sure = {True: "confirmed", False: "contradicted", None: "not confirmed"}[run.confirmed]
        told = Text.assemble("  diagnosis: ", text(run.bottleneck or "open"), f" ({sure}); seen: ")
        yield told.append_text(text(" ".join(run.causes) or "nothing"))
    if run.straggler is not None and run.straggler[1] > 0:
        rank, score = run.straggler
        yield Text.assemble(
            "  slowest rank ", text(rank), f": {100 * score:.0f} % behind the median"
        )
    if run.losses:
        table = _table("what the peak is lost to", ">share", "*")
        for cause, lost in run.losses[:8]:
            drawn = bar(lost, max(10, look.width // 3), blocks=look.blocks, style="red")
            table.add_row(text(f"  {cause}"), share(lost), drawn)
        yield table


# ---- serving --------------------------------------------------------------------------------


def _server_table(servers: Sequence[Server], look: Look) -> Table:
    table = _table(
        "*server", ">ttft p50", ">p95", ">tpot p95", ">req/s", ">in/s", ">out/s", ">run", ">wait",
        "kv",
    )  # fmt: skip
    for one in sorted(servers, key=_SERVER_ORDERS.get(look.sort, _SERVER_ORDERS[""])):
        full = one.kv is not None and one.kv > 0.95
        table.add_row(
            _server_name(one),
            seconds(one.latencies.get(("ttft", "p50"))),
            seconds(one.latencies.get(("ttft", "p95"))),
            seconds(one.latencies.get(("tpot", "p95"))),
            number(one.requests, 1),
            large(one.tokens_in),
            large(one.tokens_out),
            number(one.active),
            number(one.waiting),
            bar(one.kv, 5, blocks=look.blocks, style="red" if full else "cyan"),
        )
    return table


def _server_name(one: Server) -> Text:
    if one.up is False:
        return text(f"{one.name} (down)", "bold red")
    return text(f"{one.name} (stalled)", "bold red") if one.stalled else text(one.name)


_STATES = {"met": "green", "violated": "bold red", "undetermined": "dim"}


def _serving(frame: Frame, look: Look) -> Iterator[RenderableType]:
    yield _heading(f"{len(frame.servers)} models served", "latencies of the last 5 minutes")
    if frame.servers:
        yield _server_table(frame.servers, look)
        for one in frame.servers:
            yield Text.assemble("  ", text(one.name), ": ", text(one.engine or "?"), " ",
                                text(one.model))  # fmt: skip
    else:
        yield _nothing("no server is known here")
    yield Text()
    yield _heading("promises")
    if not frame.promises:
        yield _nothing("nothing is promised")
        return
    table = _table("objective", "promised", ">measured", "state", ">budget", "*cause")
    for promise in frame.promises:
        name = " ".join(filter(None, (promise.name, promise.about)))
        why = ": ".join(filter(None, (promise.cause, promise.evidence)))
        table.add_row(
            text(name),
            text(promise.statement),
            _measured(promise),
            text(promise.state, _STATES.get(promise.state, "")),
            share(promise.budget),
            text(why),
        )
    yield table


def _measured(one: Promise) -> Text:
    if one.measured is None or one.unit == "seconds":
        return seconds(one.measured)
    return number(100 * one.measured, 2, "%") if one.unit == "ratio" else large(one.measured)


# ---- fabric ---------------------------------------------------------------------------------


def _fabric(frame: Frame, look: Look) -> Iterator[RenderableType]:
    yield _heading(f"{len(frame.ports)} network ports", _fabric_words(frame))
    if not frame.ports:
        yield _nothing("none is known here")
        return
    width = 10 + max(0, look.width - COLUMNS) // 3
    table = _table("*port", "role", "state", ">Gb/s", "receive", "transmit")
    for port in sorted(frame.ports, key=_PORT_ORDERS.get(look.sort, _PORT_ORDERS[""])):
        name = f"{port.device}/{port.port}" if port.port else port.device
        table.add_row(
            text(name), text(port.role), _state(port),
            number(None if port.rate is None else port.rate * 8e-9),
            bar(port.receive, width, blocks=look.blocks),
            bar(port.transmit, width, blocks=look.blocks, style="blue"),
        )  # fmt: skip
    yield table


def _state(port: Port) -> Text:
    if port.up:
        return words("up", "green")
    return words("down", "bold red" if port.expected else "dim")


def _fabric_words(frame: Frame) -> str:
    down = sum(not port.up and port.expected for port in frame.ports)
    told = [f"{down} down that ought to be up"] if down else []
    if frame.imbalance is not None:
        told.append(f"rails {100 * frame.imbalance:.0f} % out of balance")
    if frame.far:
        told.append(f"{len(frame.far)} GPUs far from their adapter")
    return ", ".join(told)


# ---- the node -------------------------------------------------------------------------------


def _node(frame: Frame, look: Look) -> Iterator[RenderableType]:
    del look
    yield _heading("cost", _money_words(frame))
    if frame.money.rows:
        table = _table("*what", ">dollars", "for")
        for who, value, of_what in frame.money.rows:
            table.add_row(text(f"  {who}"), dollars(value), text(of_what))
        yield table
    yield Text()
    well = frame.sources - len(frame.trouble)
    yield _heading(f"{frame.sources} sources", f"{well} are well")
    for one in frame.trouble:
        yield Text.assemble("  ", text(one.source, "bold"), " ", text(one.state, "yellow"))
        for part in one.parts:
            yield Text.assemble("    ", text(part), no_wrap=True, overflow="ellipsis")


def _money_words(frame: Frame) -> str:
    money = frame.money
    if money.hour is None:
        return "no price is known"
    told = [f"{money.hour:.2f} $ an hour"]
    if money.idle is not None:
        told.append(f"{money.idle:.2f} $ of it idle")
    if money.spent is not None:
        told.append(f"{money.spent:,.2f} $ so far")
    return ", ".join(told)


# ---- all of it ------------------------------------------------------------------------------


def _overview(frame: Frame, look: Look) -> Iterator[RenderableType]:
    if frame.gpus:
        yield _gpu_table(frame.gpus, look)
    else:
        yield _nothing("no GPU is known here")
    if frame.runs:
        yield _run_table(frame.runs, look._replace(sort=""))
    if frame.servers:
        yield _server_table(frame.servers, look._replace(sort=""))
    if frame.promises:
        yield _promise_line(frame.promises)
    if frame.ports:
        up = sum(port.up for port in frame.ports)
        told = f"{up} of {len(frame.ports)} ports up"
        yield _heading("fabric", ", ".join(filter(None, (told, _fabric_words(frame)))))
    yield _heading("cost", _money_words(frame))
    if frame.trouble:
        names = " ".join(one.source for one in frame.trouble)
        yield Text.assemble(_heading("in trouble"), "  ", text(names, "yellow"))


def _promise_line(promises: Sequence[Promise]) -> Text:
    line = _heading("promises")
    for state, style in _STATES.items():
        those = [one for one in promises if one.state == state]
        if those:
            line.append("  ")
            line.append(f"{len(those)} {state}", style)
        if state == "violated":
            for one in those:
                line.append(" ").append_text(text(one.name))
                if one.cause:
                    line.append(":").append_text(text(one.cause))
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


VIEWS: tuple[View, ...] = (
    View("overview", _overview, _GPU_ORDERS),
    View("gpus", _gpus, _GPU_ORDERS),
    View("training", _training, _RUN_ORDERS),
    View("serving", _serving, _SERVER_ORDERS),
    View("fabric", _fabric, _PORT_ORDERS),
    View("node", _node, {"": lambda _: 0}),
)
"""All views, by the key that shows them: 1 is the first."""


def header(frame: Frame, where: str, clock: str) -> Iterator[RenderableType]:
    """Yield the lines above each view."""
    line = Text.assemble(("flopwatch ", "bold"), text(frame.version), " at ", text(where),
                         f"  up {duration(frame.uptime)}  {clock}")  # fmt: skip
    line.no_wrap, line.overflow = True, "ellipsis"
    yield line
    if frame.notice:
        yield text(frame.notice, "bold red")
    if frame.story:
        yield text(frame.story, "bold yellow")
