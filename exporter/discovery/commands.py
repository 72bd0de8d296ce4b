"""Which inference server a process is, by its command line, and on which port it serves.

A name somewhere in a command line proves nothing (`tail -f vllm.log`): what counts is the program
itself, the script or module that an interpreter runs, or the title that a server gives itself. The
port is the one stated, else the engine's default. Other ports of the same process are left alone:
behind them are protocols of its own, and a stray request can end a training store or a worker.

Routers that repeat their workers' numbers (SGLang's, production-stack's) are not in the table.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_INTERPRETER = re.compile(r"(?:python|pypy)[0-9.]*")
_TAKES_A_WORD = frozenset(("-X", "-W", "--check-hash-based-pycs"))


class Kind(NamedTuple):
    """How an engine's server is recognised, and where its metrics are.

    `programs` are names of programs or scripts, `modules` what `python -m` runs (with all below),
    `titles` beginnings of process titles, `scripts` endings of paths. `options` state the port;
    `defaults` are the ports without them. `destructive`: reading the page changes what others read.
    """

    engine: str
    defaults: tuple[int, ...]
    programs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    options: tuple[str, ...] = ("--port",)
    paths: tuple[str, ...] = ("/metrics",)
    destructive: bool = False


KINDS = (
    Kind("nim", (8000,), modules=("vllm_nvext",), paths=("/v1/metrics", "/metrics")),
    Kind("vllm", (8000,), ("vllm", "vllm-rs"), ("vllm",), ("VLLM::APIServer",)),
    Kind(
        "sglang", (30000,), ("sglang",), ("sglang.launch_server", "sglang.cli"),
        ("sglang::http_server",),
    ),
    Kind(
        "tgi", (3000, 80), ("text-generation-launcher", "text-generation-router"),
        options=("--port", "-p"),
    ),
    Kind(
        "trtllm", (8000,), ("trtllm-serve",), ("tensorrt_llm.commands.serve",),
        paths=("/prometheus/metrics",),
    ),
    Kind("triton", (8002,), ("tritonserver",), options=("--metrics-port",)),
    Kind("llamacpp", (8080,), ("llama-server",), destructive=True),
    Kind(
        "lmdeploy", (23333,), ("lmdeploy",), ("lmdeploy.serve", "lmdeploy"),
        options=("--server-port",),
    ),
    Kind("litellm", (4000,), ("litellm",), ("litellm",), paths=("/metrics/",)),
    Kind(
        "dynamo", (8000, 8081), ("dynamo-run",), ("dynamo",),
        options=("--http-port", "--port"),
    ),
    Kind(
        "ray", (8080,), titles=("ray::DashboardAgent",), scripts=("/ray/dashboard/agent.py",),
        options=("--metrics-export-port",),
    ),
)  # fmt: skip

PORTS = (3000, 4000, 8000, 8002, 8080, 8081, 23333, 30000)
"""The default ports of all engines but for 80, which every web server has."""

DESTRUCTIVE_PORTS = frozenset(port for kind in KINDS if kind.destructive for port in kind.defaults)


class Command(NamedTuple):
    """A command line that is an inference server's, and the ports that it states."""

    kind: Kind
    stated: tuple[int, ...]


def recognise(arguments: tuple[str, ...]) -> Command | None:
    """Return which inference server a command line is, `None` if it is none of the known ones."""
    for kind in KINDS:
        if _is(kind, arguments):
            return Command(kind, stated_ports(kind, arguments))
    return None


def _is(kind: Kind, arguments: tuple[str, ...]) -> bool:
    if not arguments:
        return False
    if arguments[0].startswith(kind.titles):
        return True
    program, module = _started(arguments)
    return (
        program.rpartition("/")[2] in kind.programs
        or (bool(kind.scripts) and program.endswith(kind.scripts))
        or any(module == name or module.startswith(f"{name}.") for name in kind.modules)
    )


def _started(arguments: tuple[str, ...]) -> tuple[str, str]:
    """Return the program or script that runs, and the module, one of them being empty."""
    if _INTERPRETER.fullmatch(arguments[0].rpartition("/")[2]) is None:
        return arguments[0], ""
    words = iter(arguments[1:])
    for word in words:
        if word == "-m":
            return "", next(words, "")
        if word == "-c":
            return "", ""
        if word in _TAKES_A_WORD:
            next(words, None)
        elif not word.startswith("-"):
            return word, ""
    return "", ""


def stated_ports(kind: Kind, arguments: tuple[str, ...]) -> tuple[int, ...]:
    """Return the ports that options state: `--port 9000`, `--port=9000`; none if it is no port."""
    found = []
    for at, word in enumerate(arguments):
        option, equals, value = word.partition("=")
        if option.replace("_", "-") in kind.options:
            text = value if equals else "".join(arguments[at + 1 : at + 2])
            if re.fullmatch(r"[0-9]{1,5}", text) is not None and 0 < int(text) < 65536:
                found.append(int(text))
    return tuple(found)
