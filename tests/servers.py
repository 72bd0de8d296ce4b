"""HTTP servers on loopback that do as they are told, well or badly; shared by the tests."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

Script = Callable[[socket.socket], None] | list[bytes]


class Server:
    """A TCP server. Connection number n gets script n, those after the last get the last.

    A script is a list of replies, one for each request, or a function that does as it likes.
    """

    def __init__(self, *scripts: Script, context: ssl.SSLContext | None = None) -> None:
        self.requests: list[str] = []
        self.connections = 0
        self._scripts = scripts
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def url(self, path: str = "/metrics", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def close(self) -> None:
        # shutdown() ends the accept() that the thread waits in; close() alone does not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts[min(self.connections, len(self._scripts) - 1)]
            self.connections += 1
            threading.Thread(target=self._handle, args=(script, connection), daemon=True).start()

    def _handle(self, script: Script, connection: socket.socket) -> None:
        # The client may leave at any time: that is not the server's business here.
        with contextlib.suppress(OSError), connection:
            if self._context is not None:
                with self._context.wrap_socket(connection, server_side=True) as secure:
                    self._play(script, secure)
            else:
                self._play(script, connection)

    def _play(self, script: Script, connection: socket.socket) -> None:
        if callable(script):
            script(connection)
            return
        for answer in script:
            self.requests.append(request(connection))
            connection.sendall(answer)


def request(connection: socket.socket) -> str:
    """Receive one request and return its head."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = connection.recv(4096)
        if not piece:
            raise ConnectionError("the client left")
        head += piece
    return head.decode()


def reply(body: bytes = b"up 1\n", status: str = "200 OK", **headers: str) -> bytes:
    """Write an answer; `Content_Length` and others may be overridden."""
    fields = {"Content_Type": "text/plain; version=0.0.4", "Content_Length": str(len(body))}
    head = "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in (fields | headers).items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


def chunked(*chunks: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)


@contextlib.contextmanager
def serving(*answers: bytes | Script, context: ssl.SSLContext | None = None) -> Iterator[Server]:
    """Run a server from replies, all to one connection, or from one script a connection."""
    replies = [answer for answer in answers if isinstance(answer, bytes)]
    scripts = [answer for answer in answers if not isinstance(answer, bytes)]
    server = Server(*(scripts or [replies]), context=context)
    try:
        yield server
    finally:
        server.close()
