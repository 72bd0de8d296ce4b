"""The main job on a real llama.cpp server: our counters are the client's own counts."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.load import drive
from tests.test_daemon import Daemon, Start, free_port, ready, start

__all__ = ["start"]  # the fixture

VOCABULARY = 1639


@pytest.fixture
def llama(tmp_path: Path) -> Iterator[int]:
    """A real llama.cpp server with a tiny random model; its port."""
    if importlib.util.find_spec("xllamacpp") is None:
        reason = "needs xllamacpp (pip install flopwatch[llamacpp]; x86-64 only)"
        if os.environ.get("FLOPWATCH_REQUIRE_TOOLS") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.llama_server", str(tmp_path), str(port)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    yield port
    process.kill()
    process.communicate()


def series(server: str, name: str, **labels: str) -> str:
    everything = {"model_name": "", "model_version": "", "engine": "llamacpp", "server": server}
    inner = ",".join(f'{k}="{v}"' for k, v in sorted({**everything, **labels}.items()))
    return f"{name}{{{inner}}}"


def settled(daemon: Daemon, wanted: dict[str, float]) -> dict[str, float | None]:
    """Return the series once they have their final values, or as they are after a while."""
    daemon.wait_for(
        "/metrics",
        lambda _, page: all(f"\n{name} {value:g}" in page for name, value in wanted.items()),
        seconds=20,
    )
    return {name: daemon.value(name) for name in wanted}


def test_token_counters_equal_the_clients_own_counts(llama: int, start: Start) -> None:
    """Under streaming load from four clients at once, some prompts shared."""
    name = f"127.0.0.1:{llama}"
    daemon = start("--server", f"llamacpp=http://{name}")
    daemon.wait_for("/-/ready", ready)

    load = drive(llama, "llamacpp", clients=4, requests=6, vocabulary=VOCABULARY)
    again = drive(llama, "llamacpp", clients=2, requests=4, vocabulary=VOCABULARY, seed=1)

    assert {request.status for request in (*load.requests, *again.requests)} == {200}
    wanted = {
        series(name, "llm_tokens_total", direction="input"): float(
            load.total("prompt_tokens") + again.total("prompt_tokens")
        ),
        series(name, "llm_tokens_total", direction="output"): float(
            load.total("output_tokens") + again.total("output_tokens")
        ),
        series(name, "llm_active_requests"): 0.0,
        series(name, "llm_waiting_requests"): 0.0,
    }
    assert settled(daemon, wanted) == wanted
    page = daemon.get("/metrics")[1]
    assert "llm_ttft_seconds" not in page.replace("metric=", ""), "llama.cpp measures no TTFT"
    assert daemon.value(series(name, "llm_decode_seconds_total")) is not None


def test_llamacpp_is_not_read_without_permission(llama: int, start: Start) -> None:
    """Recognised by itself it is left alone after one look, and the operator is told the key."""
    daemon = start("--server", f"http://127.0.0.1:{llama}")

    daemon.wait_for("/api/v1/status", lambda _, body: "allow_destructive_read" in body)

    assert "llm_tokens_total" not in daemon.get("/metrics")[1]
