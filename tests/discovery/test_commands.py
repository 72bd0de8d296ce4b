"""Which inference server a command line is, and which only mentions one."""

from __future__ import annotations

import pytest

from exporter.config import Settings
from exporter.discovery.commands import KINDS, PORTS, recognise


@pytest.mark.parametrize(
    ("line", "engine", "ports"),
    [
        ("/usr/bin/python3 /usr/local/bin/vllm serve org/m --port 9000", "vllm", (9000,)),
        ("/v/bin/python3.12 -m vllm.entrypoints.openai.api_server --port=8100", "vllm", (8100,)),
        ("python -u -X dev -m vllm.entrypoints.api_server", "vllm", ()),
        ("VLLM::APIServer_1", "vllm", ()),
        ("python3 -m sglang.launch_server --model-path m --port 30001", "sglang", (30001,)),
        ("python3 /usr/bin/sglang serve --port 30001", "sglang", (30001,)),
        ("text-generation-launcher --model-id m -p 8080", "tgi", (8080,)),
        ("text-generation-router --port 80 --json-output", "tgi", (80,)),
        ("/usr/bin/python3 /usr/local/bin/trtllm-serve m", "trtllm", ()),
        ("tritonserver --model-repository=/m --http-port=8010", "triton", ()),
        ("/opt/tritonserver/bin/tritonserver --metrics-port=8012", "triton", (8012,)),
        ("/app/llama-server -m /models/x.gguf --metrics --port 8081", "llamacpp", (8081,)),
        ("python /usr/bin/lmdeploy serve api_server m --server-port 23334", "lmdeploy", (23334,)),
        ("/usr/bin/python3 /usr/bin/litellm --config c.yaml --port 4001", "litellm", (4001,)),
        ("python3 -m dynamo.frontend --http-port 8005", "dynamo", (8005,)),
        ("python -u /x/ray/dashboard/agent.py --metrics-export-port=8088", "ray", (8088,)),
        ("python3 -m vllm_nvext.entrypoints.openai.api_server", "nim", ()),
        ("vllm serve m --port", "vllm", ()),
        ("vllm serve m --port many", "vllm", ()),
        ("vllm serve m --port 99999", "vllm", ()),
    ],
)  # fmt: skip
def test_known_servers(line: str, engine: str, ports: tuple[int, ...]) -> None:
    """Program, script, module or title; and the port that the command line states."""
    found = recognise(tuple(line.split()))
    assert found is not None
    assert (found.kind.engine, found.stated) == (engine, ports)


@pytest.mark.parametrize(
    "line",
    [
        "tail -f /var/log/vllm",
        "vim vllm",
        "python3 -m http.server --directory /srv/vllm 8000",
        "python3 -c import_vllm vllm",
        "python3 train.py --engine vllm",
        "ssh -L 8000:localhost:8000 vllm",
        "/usr/bin/prometheus --config.file=/etc/vllm",
        "python3 -m vllmx.server",
        "python3 -m sglang_router.launch_router --port 30000",
        "VLLM::EngineCore",
        "VLLM::Worker_TP0",
        "sglang::scheduler_TP0",
        "python3",
        "python3 -m",
        "nginx: master process vllm",
        "",
    ],
)
def test_what_only_mentions_an_engine_is_none(line: str) -> None:
    """Nor is a worker that serves nobody, or a router that repeats its workers' numbers."""
    assert recognise(tuple(line.split())) is None


def test_a_process_without_words_is_none() -> None:
    """Kernel threads have no command line."""
    assert recognise(()) is None
    assert recognise(("", "")) is None


def test_the_ports_of_the_settings_are_the_engines() -> None:
    """The configuration's room cannot import them; so they are written twice."""
    assert Settings().sources.inference.ports == PORTS
    assert set(PORTS) == {port for kind in KINDS for port in kind.defaults} - {80}
