"""The house rules, read from the source text: who may import what, and who may do what.

A room is a module of the package by its dotted name without `exporter.`; a module takes the row of
its own name, else that of the package it lies in. In patterns `x.*` means the package x and all in
it. A module without a row is a violation: a new room states its rights here.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parent.parent / "exporter"


class Room(NamedTuple):
    """What a room may import: rooms of ours, third-party packages, and rooms inside functions."""

    own: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    lazily: tuple[str, ...] = ()


SOURCE = ("samples", "catalogue", "clock", "files", "fetch", "formats.*")

ROOMS = {
    "": Room(),
    "samples": Room(),
    "clock": Room(),
    "catalogue": Room(("samples",)),
    "files": Room(),
    "tail": Room(),
    # The door to drivers' own statistics.
    "ethtool": Room(),
    "fetch": Room(("samples", "clock", "fetch.*")),
    # What a cloud has announced for this machine, and how each cloud is asked.
    # The door to the kubelet of this node.
    "claims": Room(("samples", "clock", "fetch.*", "formats.*")),
    "kubelet": Room(("samples", "clock", "formats.podresources"), ("grpc",)),
    "notices": Room(),
    "clouds": Room(("samples", "clock", "fetch", "notices", "clouds.*")),
    "formats": Room(("samples",)),
    "reference": Room(("reference.*",)),
    # A guest in jobs: no room of ours but itself.
    "client": Room(("client.*",)),
    "client.huggingface": Room(("client.*",), ("transformers",)),
    "client.lightning": Room(("client.*",), ("lightning", "pytorch_lightning")),
    "engines": Room(("samples", "catalogue", "engines.*"), ("yaml",)),
    "derive": Room(("samples", "catalogue", "reference.*", "derive.*")),
    "derive.promise": Room(("samples", "catalogue", "objectives")),
    "derive.serving": Room(("samples", "catalogue", "reference.*", "derive.*", "objectives")),
    "derive.training": Room(
        ("samples", "catalogue", "reference.*", "derive.*", "objectives", "training.*")
    ),
    # What the kubelet lists, held against the GPUs on the board.
    "derive.allocation": Room(
        ("samples", "catalogue", "derive.*", "formats.device_ids", "formats.podresources")
    ),
    "derive.flops": Room(("reference.*", "derive.*", "training.records")),
    "derive.compat": Room(("samples", "catalogue", "foreign", "derive.*")),
    "foreign": Room(("samples",)),
    "xids": Room(("samples", "catalogue", "formats.*", "reference.*")),
    # What readers tell of training runs; it is told the time.
    "training": Room(("samples", "reference.*", "training.*")),
    "workers": Room(("clock",)),
    # What is known of profiles; `reading` and `nsys` work in a child process, `folder` looks for
    # files.
    "profiling": Room(("samples", "formats.*", "profiling.*")),
    # What is known of a driver library; each has one module that opens it.
    "nvml": Room(("samples", "catalogue", "clock", "nvml.*")),
    "nvml.driver": Room(("samples", "clock"), ("pynvml",)),
    "dcgm": Room(("samples", "catalogue", "clock", "dcgm.*")),
    # The table of sources may name every source; a source never another one. Each driver package
    # has its own row: one door for each.
    "sources": Room(SOURCE),
    "sources.__init__": Room((*SOURCE, "engines.*", "sources.*"), lazily=("profiling.*",)),
    "sources.host": Room(SOURCE, ("psutil",)),
    "sources.process": Room(SOURCE, ("psutil", "prometheus_client")),
    "sources.inference": Room((*SOURCE, "engines.*")),
    "sources.nvml": Room((*SOURCE, "nvml.*", "workers")),
    "sources.dcgm": Room((*SOURCE, "dcgm.*")),
    "sources.dcgm_page": Room((*SOURCE, "dcgm.*")),
    "sources.derived": Room((*SOURCE, "derive.*")),
    "sources.profiles": Room((*SOURCE, "profiling.*", "training.*")),
    "sources.network": Room((*SOURCE, "sources.network.*")),
    "sources.nccl": Room((*SOURCE, "profiling.*")),
    "sources.ethtool": Room((*SOURCE, "ethtool")),
    "sources.nccl_environment": Room((*SOURCE, "derive.*", "discovery.*", "training.*")),
    "sources.discovery": Room((*SOURCE, "engines.*", "discovery.*")),
    "sources.training_ranks": Room((*SOURCE, "discovery.*", "training.records")),
    # One list for both: what a job tells, and what is read from its environment.
    "formats.nccl_settings": Room(("client.nccl",)),
    "formats.watchstream": Room(("samples", "formats.podlist")),
    "formats.ranks": Room(("samples", "formats.podlog")),
    "sources.training_logs": Room((*SOURCE, "tail", "training.records")),
    "sources.training_files": Room((*SOURCE, "training.*", "sources.training_files.*")),
    "sources.kubernetes": Room((*SOURCE, "derive.allocation.*", "kubelet")),
    # How far devices are from each other is arithmetic; the source brings the paths.
    "sources.topology": Room((*SOURCE, "derive.fabric.*", "sources.topology.*")),
    "sources.training_page": Room((*SOURCE, "training.*")),
    "sources.placement": Room((*SOURCE, "discovery.*")),
    # Where inference servers are looked for: finders know neither sources nor plans.
    "discovery": Room(("samples", "clock", "formats.*", "discovery.*")),
    "discovery.api": Room(("samples", "clock", "fetch.*", "formats.*")),
    "sources.pods": Room((*SOURCE, "attribution.pods", "discovery.api")),
    # Whose a process is, and whose a GPU.
    "attribution": Room(("samples", "clock", "formats.*", "discovery.machine", "attribution.*")),
    "sources.jobs": Room((*SOURCE, "discovery.machine", "attribution.*")),
    "sources.slurm": Room((*SOURCE, "attribution.*")),
    "formats.pushes": Room(("samples", "training.*", "formats.nccl_settings")),
    "formats.filesd": Room(("samples",), ("yaml",)),
    "formats.trainlog": Room(("samples", "formats.trainlog.*", "training.records")),
    # What jobs write for other tools: turned into records, one encoding and one table of names.
    "formats.tags": Room(("samples", "training.*")),
    "formats.tfevents": Room(("samples", "formats.protobuf")),
    "formats.podresources": Room(("samples", "formats.protobuf")),
    "formats.resourceslices": Room(("samples", "formats.podresources")),
    "formats.wandb": Room(("samples", "formats.protobuf")),
    "formats.mlflow": Room(("samples",)),
    "formats.trainer_state": Room(("samples",)),
    "formats.trainpage": Room(("samples", "training.*", "formats.tags", "formats.exposition")),
    "formats.otlp": Room(("samples", "training.*", "formats.tags", "formats.protobuf")),
    "sources.push": Room((*SOURCE, "training.*")),
    "sources.spot": Room((*SOURCE, "clouds.*", "notices")),
    "sinks": Room(("samples", "catalogue", "clock", "notices")),
    "sinks.history": Room(("samples", "catalogue", "clock", "history")),
    # The last hour in memory; it is told the time.
    "history": Room(("samples", "catalogue")),
    "board": Room(("samples",)),
    "runner": Room(("samples", "clock", "board")),
    "isolate": Room(("samples", "clock", "catalogue", "sources"), ("psutil",)),
    "owners": Room(("samples", "catalogue")),
    "exposition": Room(("samples", "catalogue", "clock", "board", "owners")),
    "status": Room(("samples", "catalogue", "redaction", "status.*")),
    # Takes secrets out of whatever people get to see.
    "redaction": Room(),
    # What a daemon tells of its inside.
    "debugging": Room(("redaction",)),
    "objectives": Room(),
    "config": Room(("objectives", "redaction", "config.*"), ("pydantic", "yaml")),
    # HTTP: what a request is, what jobs push, everything else.
    "requests": Room(),
    "intake": Room(("samples", "formats.*", "requests", "training.*")),
    "web": Room(("samples", "requests"), ("fastapi", "starlette")),
    "unixsocket": Room(),
    "demo": Room(("samples", "clock", "demo.*")),
    "demo.drivers": Room(("samples", "clock", "demo.*", "ethtool")),
    "demo.kubelet": Room(("samples", "demo.*", "kubelet", "formats.podresources")),
    "demo.nvml": Room(("samples", "clock", "demo.*", "nvml.driver")),
    "plans": Room(("*",), ("*",)),
    "connection": Room(("requests",), ("uvicorn",)),
    "websecurity": Room(("samples", "catalogue", "config.*", "requests", "websecurity.*")),
    "websecurity.webconfig": Room(("config.*",), ("pydantic",)),
    "websecurity.passwords": Room((), ("bcrypt",)),
    "serve": Room(
        (
            "web",
            "config",
            "catalogue",
            "connection",
            "debugging",
            "foreign",
            "intake",
            "samples",
            "training.*",
            "unixsocket",
            "websecurity",
        ),
        ("uvicorn",),
        lazily=("app", "formats.otlp"),
    ),
    # Commands that look at pages; they say what is to be printed.
    "commands": Room(
        (
            "samples",
            "clock",
            "config",
            "fetch",
            "formats.*",
            "derive.*",
            "reference.*",
            "commands.*",
        )
    ),
    "commands.debug": Room(("clock", "config", "redaction", "websecurity.webconfig", "commands.*")),
    "commands.alerts": Room(("objectives", "commands.*")),
    # It looks at this machine where no daemon does.
    "commands.topology": Room(
        (
            "samples",
            "catalogue",
            "clock",
            "config",
            "derive.fabric.*",
            "commands.*",
            "nvml.inventory",
            "sources.topology.*",
        )
    ),
    "commands.top_parser": Room(
        ("commands.*", "config"),
        lazily=("clock", "top.*"),
    ),
    # A terminal's view of a daemon's page; only what a page tells.
    "top": Room(
        ("samples", "clock", "config", "fetch", "formats.*", "commands.pages", "top.*"), ("rich",)
    ),
    "app": Room(
        (
            "board",
            "catalogue",
            "clock",
            "config",
            "exposition",
            "history",
            "notices",
            "nvml.inventory",
            "owners",
            "plans",
            "redaction",
            "runner",
            "samples",
            "status",
            "training.*",
        )
    ),
    "__main__": Room(("app", "config"), (), lazily=("*",)),
}

# Things that only some rooms may use, and the rooms that may.
USES = {
    ("time", "time.*", "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.*.today"): (
        "clock",
    ),
    ("subprocess", "subprocess.*", "multiprocessing", "multiprocessing.*", "pty", "pty.*"): (
        "isolate",
    ),
    ("os.system", "os.popen", "os.fork*", "os.exec*", "os.spawn*", "os.posix_spawn*"): ("isolate",),
    ("threading.Thread", "threading.Timer", "_thread*", "concurrent.futures.*PoolExecutor"): (
        "plans.demo",
        "runner",
        "serve",
        "workers",
    ),
    ("importlib.import_module", "__import__"): ("sources.__init__", "isolate"),
    ("sys.exit", "exit", "quit", "SystemExit"): ("__main__",),
    ("print",): ("__main__",),
}

# A guest in jobs has no collaborators: it has its own clock and one thread, and sees
# how a script ends.
GUESTS = ("client.*",)
GUESTS_USE = ("time", "time.*", "threading.Thread", "SystemExit")

# Rooms that turn what they are given into something else: no files, no network, no threads.
PURE = ("formats.*", "derive.*", "status.*")
IMPURE = ("open", "os", "os.*", "pathlib*", "socket*", "http*", "urllib.request*", "threading*")

CATCHES_ALL = ("runner", "isolate", "workers", "client.run", "client.sender", "client.spot")
EVERYTHING = ("Exception", "BaseException", "builtins.Exception", "builtins.BaseException")


class Module(NamedTuple):
    """A module of the package: where it lies, its dotted name without `exporter.`, its text."""

    path: str
    name: str
    text: str


def modules() -> list[Module]:
    """Return every module of the package."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE).with_suffix("")
        name = ".".join(inside.parts)
        found.append(Module(f"exporter/{inside}.py", name, path.read_text("utf-8")))
    return found


def covers(patterns: tuple[str, ...], name: str) -> bool:
    """Tell whether a pattern means `name`; `x.*` means x too, and a package is its __init__."""
    return any(
        fnmatchcase(alias, pattern) or pattern == f"{alias}.*"
        for pattern in patterns
        for alias in (name, name.removesuffix(".__init__"))
    )


def room_of(name: str, rooms: Mapping[str, Room]) -> str | None:
    """Return the row that a module falls under: its own name, else its package's."""
    if name == "__init__":
        return ""
    parts = name.split(".")
    candidates = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return next((candidate for candidate in candidates if candidate in rooms), None)


class Import(NamedTuple):
    """One imported name: the module asked for, the name taken from it if any, and where."""

    line: int
    module: str
    name: str
    bound: str
    lazy: bool

    @property
    def dotted(self) -> str:
        """What the bound name stands for."""
        return f"{self.module}.{self.name}" if self.name else self.module


def imports_of(tree: ast.Module, module: str) -> Iterator[Import]:
    """Yield each imported name; `lazy` where a function, or only a type checker, imports it."""
    inside = {id(n) for f in ast.walk(tree) if is_late(f) for n in ast.walk(f)}
    package = f"exporter.{module}".split(".")[:-1]
    for node in ast.walk(tree):
        lazy = id(node) in inside
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                yield Import(node.lineno, alias.name, "", bound, lazy)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:
                yield Import(node.lineno, source, alias.name, alias.asname or alias.name, lazy)


def is_late(node: ast.AST) -> bool:
    """Tell whether what stands in a node is not executed when the module is imported."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name):
        return node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def import_violations(module: Module, found: list[Import], known: frozenset[str]) -> Iterator[str]:
    """Yield a line for each import that the module's room may not make."""
    name = room_of(module.name, ROOMS)
    if name is None:
        yield f"{module.path}:1 room `{module.name}` has no row in tests/test_architecture.py"
        return
    room = ROOMS[name]
    for item in found:
        top, _, rest = item.module.partition(".")
        if top == "exporter":
            # `from exporter import catalogue` names a module, `from exporter.board import Slot` not
            target = f"{rest}.{item.name}".strip(".")
            if target not in known:
                target = rest
            allowed = (*room.own, *room.lazily) if item.lazy else room.own
            fine = target == "" or covers(allowed, target)
        else:
            target = top
            fine = top in sys.stdlib_module_names or covers(room.packages, top)
        if not fine:
            said = f"{module.path}:{item.line} imports {target}: room `{module.name}` may not"
            yield said + (" (at module level)" if covers(room.lazily, target) else "")


def bindings(found: list[Import]) -> dict[str, str]:
    """Return what each imported name stands for; `import a.b` binds a, which stands for a."""
    plain = {i.bound: i.bound for i in found}
    return plain | {i.bound: i.dotted for i in found if i.dotted.partition(".")[0] != i.bound}


def uses_of(
    tree: ast.Module, found: list[Import], bound: Mapping[str, str]
) -> Iterator[tuple[int, str]]:
    """Yield each thing that is imported, or named through an import or as a builtin."""
    for item in found:
        yield item.line, item.dotted
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and (name := dotted(node, bound)):
            yield node.lineno, name


def dotted(node: ast.expr, bound: Mapping[str, str]) -> str:
    """Return what an expression such as `t.Thread` stands for, or nothing if it is a local name."""
    if isinstance(node, ast.Name):
        return bound.get(node.id, node.id if hasattr(builtins, node.id) else "")
    if isinstance(node, ast.Attribute) and (base := dotted(node.value, bound)):
        return f"{base}.{node.attr}"
    return ""


def use_violations(module: Module, uses: Iterator[tuple[int, str]]) -> Iterator[str]:
    """Yield a line for each use of something that is another room's."""
    for line, name in uses:
        for things, rooms in USES.items():
            if covers(GUESTS, module.name) and matches(GUESTS_USE, name):
                continue
            if matches(things, name) and module.name not in rooms:
                owners = ", ".join(f"`{room}`" for room in rooms)
                yield f"{module.path}:{line} uses {name}: only room {owners} may"
        if covers(PURE, module.name) and matches(IMPURE, name):
            yield f"{module.path}:{line} uses {name}: room `{module.name}` does no I/O"


def matches(patterns: tuple[str, ...], name: str) -> bool:
    """Tell whether a pattern means `name`."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def broad_catches(tree: ast.Module, bound: Mapping[str, str]) -> Iterator[int]:
    """Yield the lines that catch, or suppress, every exception."""

    def is_broad(kind: ast.expr | None) -> bool:
        if isinstance(kind, ast.Tuple):
            return any(map(is_broad, kind.elts))
        return kind is None or dotted(kind, bound) in EVERYTHING

    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and is_broad(node.type):
            yield node.lineno
        if isinstance(node, ast.Call) and dotted(node.func, bound) == "contextlib.suppress":
            yield from (node.lineno for kind in node.args if is_broad(kind))


def catch_violations(module: Module, lines: Iterator[int]) -> Iterator[str]:
    """Yield a line for each handler of everything outside the rooms that may have one."""
    if module.name not in CATCHES_ALL:
        owners = ", ".join(f"`{room}`" for room in CATCHES_ALL)
        for line in lines:
            yield f"{module.path}:{line} catches everything: only room {owners} may"


def violations(module: Module, known: frozenset[str]) -> list[str]:
    """Return a line for each rule that a module breaks, in the order of its text."""
    tree = ast.parse(module.text)
    found = list(imports_of(tree, module.name))
    bound = bindings(found)
    lines = [
        *import_violations(module, found, known),
        *use_violations(module, uses_of(tree, found, bound)),
        *catch_violations(module, broad_catches(tree, bound)),
    ]
    return sorted(set(lines), key=lambda said: int(said.split(":")[1].split()[0]))


def known_rooms(found: list[Module]) -> frozenset[str]:
    """Return the names by which modules and packages can be imported."""
    return frozenset(module.name.removesuffix(".__init__") for module in found)


def test_every_module_keeps_to_its_room() -> None:
    """No module imports or does what its row does not allow."""
    found = modules()
    known = known_rooms(found)
    broken = [line for module in found for line in violations(module, known)]
    if broken:
        pytest.fail("\n".join(broken), pytrace=False)


def test_the_package_is_found() -> None:
    """The check above reads real files."""
    assert {"samples", "catalogue", "clock", "__init__"} <= {module.name for module in modules()}


def test_only_plans_may_import_everything() -> None:
    """There is one composition root; the commands reach others only inside functions."""
    assert [name for name, room in ROOMS.items() if "*" in room.own + room.packages] == ["plans"]
    assert [name for name, room in ROOMS.items() if "*" in room.lazily] == ["__main__"]


KNOWN = frozenset(ROOMS) | {"sources.network", "formats.exposition"}


def check(room: str, text: str) -> list[str]:
    """Return what the checker says of a made-up module."""
    path = f"exporter/{room.replace('.', '/')}.py"
    return violations(Module(path, room, text), KNOWN)


@pytest.mark.parametrize(
    ("room", "text", "said"),
    [
        ("board", "import exporter.config", "1 imports config: room `board` may not"),
        ("board", "from exporter import web", "1 imports web: room `board` may not"),
        ("board", "from exporter.web import create_app", "1 imports web: room `board` may not"),
        ("board", "from . import web", "1 imports web: room `board` may not"),
        ("board", "\nfrom .web import create_app", "2 imports web: room `board` may not"),
        ("board", "def f():\n    import yaml", "2 imports yaml: room `board` may not"),
        ("catalogue", "import prometheus_client as p", "1 imports prometheus_client"),
        ("sources.host", "from exporter.sources import network", "1 imports sources.network"),
        ("sources.host", "from exporter.sources.network import X", "1 imports sources.network"),
        ("sources.host", "from .network import X", "1 imports sources.network"),
        ("sources.host", "from exporter.sources import TABLE", "1 imports sources: room"),
        ("sources.host", "import pynvml", "1 imports pynvml: room `sources.host` may not"),
        ("sources.network", "import psutil", "1 imports psutil: room `sources.network` may not"),
        ("formats.exposition", "import exporter.formats.cgroup", "1 imports formats"),
        ("isolate", "from exporter.sources import host", "1 imports sources.host"),
        ("web", "import uvicorn", "1 imports uvicorn: room `web` may not"),
        ("board", "if TYPE_CHECKING:\n    import yaml", "2 imports yaml: room `board` may not"),
        ("__main__", "from exporter.web import x", "1 imports web: room `__main__` may not (at"),
        ("parlour", "", "1 room `parlour` has no row"),
        ("board", "import time", "1 uses time: only room `clock` may"),
        ("board", "from time import monotonic as m", "1 uses time.monotonic"),
        ("board", "import datetime as d\nd.datetime.now()", "2 uses datetime.datetime.now"),
        ("files", "import subprocess as s", "1 uses subprocess: only room `isolate` may"),
        ("files", "import os\nos.system('ls')", "2 uses os.system"),
        ("files", "import os as o\nrun = o.fork", "2 uses os.fork: only room `isolate` may"),
        ("files", "from os import execvp", "1 uses os.execvp"),
        ("files", "import threading\nthreading.Thread()", "2 uses threading.Thread"),
        ("files", "import threading\nclass T(threading.Thread): pass", "2 uses threading.Thread"),
        ("files", "from concurrent.futures import ThreadPoolExecutor", "1 uses concurrent.futures"),
        ("files", "import threading as t\nt.Timer(1, f)", "2 uses threading.Timer: only room"),
        ("files", "import os.path as p, os\nos.popen(p.sep)", "2 uses os.popen: only"),
        ("files", "import os.path\nos.popen('ls')", "2 uses os.popen: only"),
        (
            "web",
            "import concurrent.futures as c\nc.ThreadPoolExecutor()",
            "2 uses concurrent.futures",
        ),
        ("files", "import importlib\nimportlib.import_module('x')", "2 uses importlib.import_m"),
        ("app", "import sys\nsys.exit(1)", "2 uses sys.exit: only room `__main__` may"),
        ("app", "raise SystemExit(1)", "1 uses SystemExit: only room `__main__` may"),
        ("app", "print('x')", "1 uses print: only room `__main__` may"),
        ("app", "try:\n    f()\nexcept Exception:\n    pass", "3 catches everything"),
        ("app", "try:\n    f()\nexcept:\n    pass", "3 catches everything"),
        ("app", "try:\n    f()\nexcept (OSError, BaseException):\n    pass", "3 catches everythi"),
        ("app", "import contextlib\ncontextlib.suppress(Exception)", "2 catches everything"),
        ("formats.exposition", "from pathlib import Path", "1 uses pathlib.Path: room `formats."),
        ("formats.exposition", "open('x')", "1 uses open: room `formats.exposition` does no I/O"),
    ],
)
def test_a_violation_is_found(room: str, text: str, said: str) -> None:
    """A module that breaks a rule is named with its line, once."""
    lines = check(room, text)
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"exporter/{room.replace('.', '/')}.py:{said}")


@pytest.mark.parametrize(
    ("room", "text"),
    [
        ("catalogue", "from exporter.samples import Metric"),
        ("exposition", "from exporter import __version__, catalogue as c"),
        ("sources.host", "import os, psutil\nfrom exporter import catalogue as c, files"),
        ("sources.network", "from exporter.formats import exposition\nfrom exporter import fetch"),
        ("sources.inference", "from exporter.engines import Mapping"),
        ("sources.__init__", "def f():\n    from exporter.sources.host import HostSource"),
        ("isolate", "import subprocess\ndef f():\n    from exporter.sources import ISOLATED"),
        ("runner", "import threading\nthreading.Thread()\ntry:\n    f()\nexcept Exception:\n    g"),
        ("web", "from concurrent.futures import Executor\ndef f(e: Executor): e.submit(f)"),
        ("clock", "import time\nimport threading\nthreading.Event()"),
        (
            "plans",
            "import uvicorn\nfrom exporter import web, config\nfrom exporter.sources import x",
        ),
        ("__main__", "import sys\nfrom exporter import app\nprint(1)\nsys.exit(2)"),
        ("__main__", "if TYPE_CHECKING:\n    from exporter.clock import Clock"),
        ("__main__", "def docs():\n    from exporter.exposition import reference"),
        ("board", "import threading\nlock = threading.Lock()\nself.time = clock.time()"),
        ("board", "def f(timer):\n    return timer.print()"),
    ],
)
def test_what_is_allowed_passes(room: str, text: str) -> None:
    """The checker says nothing of a module that keeps to its row."""
    assert check(room, text) == []
