"""An inference server on loopback that counts as vLLM does; the tests say what it went through."""

from __future__ import annotations

import http.server
import threading
import time

BOUNDS = (0.1, 0.5, 1.0, 5.0)
NAMES = ("time_to_first_token", "e2e_request_latency", "request_queue_time")


class Engine:
    """Serves `/metrics`, and `/health` with the status `health`; thread-safe enough for tests.

    `completions` are the bodies that were posted to `/v1/completions`; `asked` are all requests as
    (method, path, headers).
    """

    def __init__(self, model: str = "m") -> None:
        self.model = model
        self.health = 200
        self.completion = (200, b'{"choices": [{"text": "a"}]}')
        self.completions: list[bytes] = []
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.gone = False
        self.hang = threading.Event()
        self.hang.set()
        self.counts = [0] * (len(BOUNDS) + 1)
        self._sum = 0.0
        self._started = 1.7e9
        engine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if engine.gone:  # a process that has ended keeps no connection
                    self.close_connection = True
                    return
                engine.asked.append(("GET", self.path, dict(self.headers)))
                if self.path == "/metrics":
                    self._answer(200, engine.page(), "text/plain; version=0.0.4")
                elif self.path == "/health":
                    engine.hang.wait(60)
                    self._answer(engine.health, b"")
                else:
                    self._answer(404, b"")

            def do_POST(self) -> None:
                engine.asked.append(("POST", self.path, dict(self.headers)))
                engine.completions.append(self.rfile.read(int(self.headers["Content-Length"])))
                engine.hang.wait(60)
                self._answer(*engine.completion, "application/json")

            def _answer(self, status: int, body: bytes, kind: str = "text/plain") -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # a client that leaves early is what some tests are about

        self._server = Server(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def serve(self, requests: int, seconds: float) -> None:
        """Count requests that took so long to their first token, and to their end."""
        at = next((i for i, bound in enumerate(BOUNDS) if seconds <= bound), len(BOUNDS))
        self.counts[at] += requests
        self._sum += requests * seconds

    def restart(self) -> None:
        """Begin anew, as a process that was started again."""
        self.counts, self._sum = [0] * (len(BOUNDS) + 1), 0.0
        self._started = time.time()

    def page(self) -> bytes:
        """Return the metrics page."""
        of = f'engine="0",model_name="{self.model}"'
        counts, total = list(self.counts), self._sum
        lines = [f"process_start_time_seconds {self._started}"]
        for name in NAMES:
            lines.append(f"# TYPE vllm:{name}_seconds histogram")
            for at, bound in enumerate((*BOUNDS, "+Inf")):
                below = sum(counts[: at + 1])
                lines.append(f'vllm:{name}_seconds_bucket{{le="{bound}",{of}}} {below}')
            lines.append(f"vllm:{name}_seconds_count{{{of}}} {sum(counts)}")
            lines.append(f"vllm:{name}_seconds_sum{{{of}}} {total}")
        lines += [
            "# TYPE vllm:request_success_total counter",
            f'vllm:request_success_total{{{of},finished_reason="stop"}} {sum(counts)}',
            "# TYPE vllm:generation_tokens_total counter",
            f"vllm:generation_tokens_total{{{of}}} {sum(counts) * 10}",
        ]
        return ("\n".join(lines) + "\n").encode()

    def close(self) -> None:
        """Stop answering, and refuse connections."""
        self.gone = True
        self.hang.set()
        self._server.shutdown()
        self._server.server_close()
