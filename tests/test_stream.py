"""An answer that goes on: what is not about API servers."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from exporter.clock import SystemClock
from exporter.fetch.stream import Stream

SELECTABLE = 1024
"""Descriptors that `select` can name."""


@pytest.fixture
def descriptors() -> Iterator[None]:
    """All descriptors that `select` can name are in use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * SELECTABLE:
        pytest.skip(f"this machine permits {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * SELECTABLE), hard))
    with ExitStack() as stack:
        while (taken := os.open(os.devnull, os.O_RDONLY)) < SELECTABLE:
            stack.callback(os.close, taken)
        stack.callback(os.close, taken)
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("descriptors")
def test_a_daemon_of_many_kept_files_still_waits_for_pods() -> None:
    """Seen in a process with more than 1,024 files: "filedescriptor out of range in select()"."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(4096)
                time.sleep(0.3)
                peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        stream = Stream(f"http://127.0.0.1:{port}/", timeout=5.0, clock=SystemClock(), accept="*/*")
        began = time.monotonic()
        stream.wait(20.0)
        assert time.monotonic() - began < 10
        assert stream.take() == b"HTTP/1.1 200 OK\r\n\r\n"
        stream.close()
