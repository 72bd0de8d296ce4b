"""A stand-in for an inference server as a process of its own; tests copy it to the engine's name.

    python /somewhere/vllm serve MODEL --port 8000 --page FILE [--state FILE] [--log FILE]

It serves the recorded page with another model's name in it. While the file `--state` holds a
number it answers with that status. Each connection and each request is a line in the file `--log`.
"""

import argparse
import http.server
import pathlib
import signal
import socket
import sys

parser = argparse.ArgumentParser()
parser.add_argument("words", nargs="*")
parser.add_argument("--port", type=int, default=8000)
parser.add_argument("--host", default="127.0.0.1")
parser.add_argument("--page", type=pathlib.Path)
parser.add_argument("--state", type=pathlib.Path)
parser.add_argument("--log", type=pathlib.Path)
options = parser.parse_args()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def note(line: str) -> None:
    if options.log is not None:
        with options.log.open("a") as log:
            log.write(f"{line}\n")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        note("connected")
        super().setup()

    def parse_request(self) -> bool:
        note(" ".join(self.raw_requestline.decode("latin-1").split()[:2]))
        return super().parse_request()

    def do_GET(self) -> None:
        status = 200
        if options.state is not None and options.state.exists():
            status = int(options.state.read_text() or 200)
        body = b""
        if status == 200 and self.path == "/metrics" and options.page is not None:
            model = options.words[-1] if options.words else "none"
            body = options.page.read_bytes().replace(b"mid-llama", model.encode())
        elif status == 200:
            status = 404
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    address_family = socket.AF_INET6 if ":" in options.host else socket.AF_INET


Server((options.host, options.port), Handler).serve_forever()
