"""What the kernel says of sockets and processes."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from exporter.formats.sockets import Listener, Stat, arguments, listeners, stat

# From proc(5)'s layout: one that listens, one that is connected, a torn line.
TCP = b"""\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0
   1: 0100007F:1F40 0100007F:C001 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0
   2: 00000000:1F41 00000000:0000 0A 000
"""
TCP6 = b"""\
  sl  local_address                         remote_address                        st
   0: 00000000000000000000000000000000:7530 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 1
   1: 00000000000000000000000001000000:7531 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 2
   2: 0000000000000000FFFF00000100007F:7532 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 3
"""


def test_listening_sockets_are_found() -> None:
    """Only those; a line that is torn is left out."""
    assert list(listeners(TCP)) == [Listener("127.0.0.1", 8000, 4711, 1000)]
    assert [(one.address, one.port) for one in listeners(TCP6)] == [
        ("::", 30000), ("::1", 30001), ("127.0.0.1", 30002),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]
)
def test_a_real_socket_is_found(family: socket.AddressFamily, host: str) -> None:
    """In the tables of the kernel that runs this test."""
    with socket.create_server((host, 0), family=family) as server:
        port = server.getsockname()[1]
        name = "tcp" if family == socket.AF_INET else "tcp6"
        found = [one for one in listeners(Path("/proc/net", name).read_bytes()) if one.port == port]
        inode = os.fstat(server.fileno()).st_ino
        assert found == [Listener(host, port, inode, os.getuid())]


@pytest.mark.parametrize("table", [b"", b"\xff\xfe 0A \n", b" 0A 0A 0A 0A 0A 0A 0A 0A 0A 0A\n"])
def test_a_table_that_makes_no_sense_is_empty(table: bytes) -> None:
    """Nothing is raised."""
    assert list(listeners(table)) == []


def test_a_process_may_be_called_anything() -> None:
    """Brackets and blanks in its name do not shift the fields."""
    rest = " S 17" + " 0" * 17 + " 99 0 0\n"
    assert stat(f"5 (a) b (c){rest}".encode()) == Stat(17, 99)
    assert stat(b"") is None
    assert stat(b"5 (a) S x") is None


def test_our_own_stat_names_our_parent() -> None:
    """The real file."""
    found = stat(Path("/proc/self/stat").read_bytes())
    assert found is not None
    assert found.parent == os.getppid()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", ()),
        (b"\0\0", ()),
        (b"python3\0-m\0vllm\0", ("python3", "-m", "vllm")),
        (b"VLLM::EngineCore\0\0\0\0", ("VLLM::EngineCore",)),
        (b"a\0\0b\0", ("a", "", "b")),
        (b"\xff\0", ("\ufffd",)),
    ],
)
def test_command_lines(text: bytes, words: tuple[str, ...]) -> None:
    """Words, or a title with what is left of the words it was written over."""
    assert arguments(text) == words
