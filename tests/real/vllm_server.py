"""A real vLLM on the CPU with a small random model: started, killed, started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from tests.real.priority import hurry

PYTHON = os.environ.get("FLOPWATCH_VLLM_PYTHON", "")
MODEL = "tiny-llama"
ENVIRONMENT = {
    **os.environ,
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}  # fmt: skip


def make_model(folder: Path, **sizes: int) -> Path:
    """Write a model into a folder; skip the test where there is no Python with vLLM."""
    if not PYTHON:
        pytest.skip("needs FLOPWATCH_VLLM_PYTHON, a Python that has vLLM")
    maker = Path(__file__).with_name("make_tiny_llama.py")
    options = [f"--{name}={size}" for name, size in sizes.items()]
    command = [PYTHON, str(maker), str(folder / "model"), *options]
    subprocess.run(command, check=True, env=ENVIRONMENT, capture_output=True)
    return folder / "model"


class Vllm:
    """A vLLM server on one port, in a process group of its own; not started yet."""

    def __init__(self, model: Path, port: int) -> None:
        self.port = port
        self.name = f"127.0.0.1:{port}"
        self.url = f"http://{self.name}"
        self._log = model.with_name("log")
        # The module and not the command `vllm`: vllm-cpu registers under its own name, and the
        # command asks for the other one.
        self._command = [
            PYTHON, "-m", "vllm.entrypoints.openai.api_server",
            "--model", str(model), "--served-model-name", MODEL, "--host", "127.0.0.1",
            "--port", str(port), "--dtype", "bfloat16", "--max-model-len", "1024",
            "--max-num-seqs", "8", "--enforce-eager",
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server; return at once."""
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command, env=ENVIRONMENT, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self, seconds: float = 240) -> None:
        """Wait until the server is healthy; fail with its log."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self._process and self._process.poll() is None:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/health") as got:
                if got.status == 200:
                    self._hurry(self._process.pid)
                    return
            time.sleep(0.2)
        self.kill()
        pytest.fail(f"vLLM does not start: {self._log.read_text()[-4000:]}")

    def _hurry(self, pid: int) -> None:
        """Let the server go before others, so that a token that is made is sent at once.

        On busy cores what the client sees would else be later than what the server measures, by
        any time. The load is the same however fast it is worked off.
        """
        hurry(pid, "talks")
        for engine in psutil.Process(pid).children(recursive=True):
            hurry(engine.pid, "computes")

    def page(self) -> str:
        """Return the server's own metrics page."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def kill(self) -> None:
        """End the server and its children at once, as the kernel does that is out of memory."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
