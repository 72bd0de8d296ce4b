"""A Kubernetes API server as far as pods go: list, watch with bookmarks, versions that are gone.

It speaks TLS with a certificate that openssl makes, takes one token, and can be told to be slow, to
cut what is open, or to forget its history as a compaction does. It answers `/pods` as a kubelet.
"""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Document = dict[str, Any]

_DISCOVERY: dict[str, Document] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList", "groupVersion": "v1",
        "resources": [{"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod",
                       "verbs": ["get", "list", "watch"]}],
    },
}  # fmt: skip
"""What kubectl asks before it asks for pods."""


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for this machine's loopback, and its key."""
    program = shutil.which("openssl")
    assert program is not None
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", str(key), "-out", str(cert), "-days", "1", "-subj", "/CN=kubernetes",
         "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return cert, key


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        with suppress(OSError):  # the client may leave at any time
            self.server.api.answer(self, parts.path, query)

    def log_message(self, *_: object) -> None:
        pass

    def reply(self, status: int, document: Document) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def line(self, document: Document) -> None:
        data = json.dumps(document).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def finish_watch(self) -> None:
        self.wfile.write(b"0\r\n\r\n")


class ApiServer:
    """Pods by uid, and every change of them. `asked` is the kind and query of each request."""

    def __init__(self, cert: Path, key: Path) -> None:
        self.token = "first"
        self.delay = 0.0
        self.status = 0
        self.compacts_by_status = False
        self.unknown: tuple[str, int] | None = None
        """A version from which nothing is watched, and the status that says so."""
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.sockets: list[socket.socket] = []
        self._pods: dict[str, Document] = {}
        self._changes: list[tuple[int, str, Document]] = []
        self._version = 100
        self._oldest = 0
        self._changed = threading.Condition()
        self._ended = False
        self._round = 0
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.api = self  # type: ignore[attr-defined]
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    # ---- what happens in the cluster

    def put(self, pod: Document) -> None:
        """Create a pod, or change it."""
        uid = pod["metadata"]["uid"]
        self._change("MODIFIED" if uid in self._pods else "ADDED", pod)

    def remove(self, uid: str) -> None:
        """Delete a pod."""
        self._change("DELETED", self._pods[uid])

    def bookmark(self) -> None:
        """Let watchers know the version, changed by others than their pods."""
        with self._changed:
            self._version += 50
        self._change("BOOKMARK", {"kind": "Pod", "metadata": {}})

    def compact(self) -> None:
        """Forget all changes so far."""
        with self._changed:
            self._version += 1
            self._oldest = self._version
            self._changes.clear()

    def cut(self) -> None:
        """Let all connections drop, without a goodbye."""
        for one in self.sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self.sockets.clear()

    def end_watches(self) -> None:
        """End all watches, as after their timeout."""
        with self._changed:
            self._round += 1
            self._changed.notify_all()

    def _change(self, kind: str, pod: Document) -> None:
        with self._changed:
            self._version += 1
            metadata = {**pod["metadata"], "resourceVersion": str(self._version)}
            pod = {**pod, "metadata": metadata}
            if kind == "DELETED":
                del self._pods[metadata["uid"]]
            elif kind != "BOOKMARK":
                self._pods[metadata["uid"]] = pod
            self._changes.append((self._version, kind, pod))
            self._changed.notify_all()

    # ---- what is answered

    def answer(self, request: Handler, path: str, query: dict[str, str]) -> None:
        self.sockets.append(request.connection)
        kind = {"/pods": "kubelet", "/api/v1/pods": "list"}.get(path, "other")
        kind = "watch" if "watch" in query else kind
        self.asked.append((kind, query))
        threading.Event().wait(self.delay)
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            request.reply(401, {"kind": "Status", "code": 401})
        elif self.status:
            request.reply(self.status, {"kind": "Status", "code": self.status})
        elif path in _DISCOVERY:
            request.reply(200, _DISCOVERY[path])
        elif path not in {"/api/v1/pods", "/pods"}:
            request.reply(404, {})
        elif kind == "watch":
            self._watch(request, query)
        else:
            node = query.get("fieldSelector", "").removeprefix("spec.nodeName=")
            with self._changed:
                items = [one for one in self._pods.values()
                         if kind == "kubelet" or one["spec"]["nodeName"] == node]  # fmt: skip
                metadata = {} if kind == "kubelet" else {"resourceVersion": str(self._version)}
            request.reply(200, {"kind": "PodList", "apiVersion": "v1", "metadata": metadata,
                                "items": items})  # fmt: skip

    def _watch(self, request: Handler, query: dict[str, str]) -> None:
        seen, node = int(query["resourceVersion"]), query["fieldSelector"].partition("=")[2]
        gone = {"kind": "Status", "code": 410, "reason": "Expired"}
        if seen < self._oldest and self.compacts_by_status:
            request.reply(410, gone)
            return
        if self.unknown is not None and query["resourceVersion"] == self.unknown[0]:
            request.reply(self.unknown[1], {"kind": "Status", "code": self.unknown[1]})
            return
        request.begin()
        if seen < self._oldest:
            request.line({"type": "ERROR", "object": gone})
            request.finish_watch()
            return
        turn = self._round
        while True:
            with self._changed:
                news = [one for one in self._changes if one[0] > seen]
                if not news:
                    self._changed.wait(0.2)
                    over = self._ended or self._round != turn
            if not news and over:
                request.finish_watch()
                return
            for version, kind, pod in news:
                seen = version
                marks = kind == "BOOKMARK" and query.get("allowWatchBookmarks") == "true"
                if marks or pod.get("spec", {}).get("nodeName") == node:
                    request.line({"type": kind, "object": pod})


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """Serve until the end of the block. The certificate is `cert.pem` in the folder."""
    server = ApiServer(*certificate(folder))
    try:
        yield server
    finally:
        server.cut()
        server.close()


def pod(
    name: str = "vllm-0", *, namespace: str = "serving", uid: str = "", node: str = "node1",
    ip: str = "10.0.0.7", phase: str = "Running", ready: bool = True,
    annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None,
    image: str = "nginx:1", command: list[str] | None = None, args: list[str] | None = None,
    ports: list[Document] | None = None, container: str = "a1" * 32, gpus: int = 0,
) -> Document:  # fmt: skip
    """Return a pod as the API server writes it, with what makes it large."""
    number = f"{namespace}/{name}".encode()
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "2"}
    main: Document = {
        "name": "main", "image": image, "ports": ports or [], "resources": {"limits": limits},
        "env": [{"name": "TOKEN", "value": "never-to-be-kept"}],
    }  # fmt: skip
    if command is not None:
        main["command"] = command
    if args is not None:
        main["args"] = args
    return {
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "name": name, "namespace": namespace,
            "uid": uid or f"00000000-0000-4000-8000-{zlib.crc32(number):012d}",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x" * 5000}
            | (annotations or {}),
            "labels": {"pod-template-hash": "6d5f7c9b4"} | (labels or {}),
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {"f:ip": {}}}}] * 20,
        },
        "spec": {"nodeName": node, "containers": [main]},
        "status": {
            "phase": phase, "podIP": ip,
            "conditions": [{"type": "Initialized", "status": "True"},
                           {"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [{"name": "main", "restartCount": 0,
                                   "containerID": f"containerd://{container}"}],
        },
    }  # fmt: skip
