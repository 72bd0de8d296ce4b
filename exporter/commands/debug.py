"""`flopwatch debug`: one archive that helps to find out what is wrong with a daemon, no secrets.

It asks the daemon on this machine for what it shows and for its inside, looks at the host, and
writes down why what could not be had. Every text goes through `exporter/redaction.py`, and whatever
the files hold that the settings name as secret is taken out besides.
"""

from __future__ import annotations

import gzip
import http.client
import importlib.metadata
import io
import json
import os
import platform
import re
import socket
import ssl
import tarfile
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from exporter import __version__
from exporter.clock import Clock
from exporter.config import ConfigError, Settings, load, load_document, plain
from exporter.redaction import without
from exporter.websecurity.webconfig import HttpConfig, RateLimit, TlsConfig

MOST = 4 << 20
"""Bytes of one part; what is longer is cut."""
_MOST_SECRET = 64 << 10
_PATIENCE = 10.0
_SECRET_NAME = re.compile(r"(?i)(pass|secret|token|key|cred|auth)")
_PACKAGES = (
    "bcrypt", "fastapi", "grpcio", "httptools", "nvidia-ml-py", "prometheus_client", "psutil",
    "pydantic", "pyyaml", "rich", "uvicorn",
)  # fmt: skip
_MOUNTS = ("/sys", "/proc", "/dev", "/run", "/var", "/host", "/etc/flopwatch")
_ENVIRONMENT = (
    "FLOPWATCH_CONFIG", "FLOPWATCH_LOG_LEVEL", "KUBERNETES_SERVICE_HOST", "NODE_NAME",
    "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_VISIBLE_DEVICES",
)  # fmt: skip


class Door(NamedTuple):
    """How the daemon is reached: by its unix socket, or an address with what that asks for."""

    url: str
    socket: Path | None = None
    ca_file: Path | None = None
    user: str = ""
    password: str = ""

    def ask(self, method: str, path: str) -> bytes:
        """Return the body of an answer. Raises `OSError`, `ValueError`, `HTTPException`."""
        connection = self._connect()
        headers = {"Accept": "*/*"}
        if self.user:
            pair = b64encode(f"{self.user}:{self.password}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            body = answer.read(MOST + 1)
        finally:
            connection.close()
        if answer.status != 200:
            raise ValueError(f"{answer.status}: {body[:200].decode('utf-8', 'replace').strip()}")
        return body

    def _connect(self) -> http.client.HTTPConnection:
        if self.socket is not None:
            connection = http.client.HTTPConnection("localhost", timeout=_PATIENCE)
            connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.sock.settimeout(_PATIENCE)
            connection.sock.connect(os.fspath(self.socket))
            return connection
        parts = urlsplit(self.url)
        host, port = parts.hostname or "localhost", parts.port
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self.ca_file)
            return http.client.HTTPSConnection(host, port, timeout=_PATIENCE, context=context)
        return http.client.HTTPConnection(host, port, timeout=_PATIENCE)


class Machine(NamedTuple):
    """Where the host is looked at, and in which environment."""

    root: Path = Path("/")
    environment: Mapping[str, str] = os.environ


def bundle(door: Door, config: Path | None, clock: Clock, machine: Machine | None = None) -> bytes:
    """Return the archive (tar.gz)."""
    machine = machine or Machine()
    settings, problems = _settings(config)
    clean = without(_secrets(settings, machine.environment))
    parts: dict[str, str] = {}
    missing: dict[str, str] = {}
    for name, make in _parts(door, settings, problems, machine):
        try:
            parts[name] = make()
        except (OSError, ValueError, http.client.HTTPException) as error:
            missing[name] = f"{type(error).__name__}: {error}"
    about = {
        "version": __version__,
        "made": clock.time(),
        "missing": missing,
        "parts": list(parts),
    }
    parts["about.json"] = json.dumps(about, indent=1)
    return _archive({name: clean(text[:MOST]) for name, text in parts.items()}, clock.time())


Part = tuple[str, Callable[[], str]]


def _parts(
    door: Door, settings: Settings, problems: tuple[str, ...], machine: Machine
) -> Iterator[Part]:
    def inside() -> str:
        return json.dumps(json.loads(door.ask("POST", "/-/debug")), indent=1)

    def asked(path: str) -> Callable[[], str]:
        return lambda: door.ask("GET", path).decode("utf-8", "replace")

    yield "metrics.txt", asked("/metrics")
    yield "status.json", asked("/api/v1/status")
    yield "daemon.json", inside
    yield "config.json", lambda: _config(settings, problems)
    if settings.web.config_file is not None:
        path = Path(settings.web.config_file)
        yield "web-config.json", lambda: _web_config(path)
    yield "host.json", lambda: json.dumps(_host(machine), indent=1)


def _settings(path: Path | None) -> tuple[Settings, tuple[str, ...]]:
    try:
        return load(path), ()
    except ConfigError as error:
        return Settings(), error.problems


def _config(settings: Settings, problems: tuple[str, ...]) -> str:
    return json.dumps({"problems": problems, "settings": plain(settings)}, indent=1, default=str)


def _web_config(path: Path) -> str:
    """Return what a web config says, but for its key and its users' hashes."""
    try:
        document = load_document(path)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return json.dumps(_hidden(document), indent=1, default=str)


def _hidden(document: Any) -> Any:
    """Return what stands under the keys that a web config may have, and their secrets not.

    A password may stand under a key that is misspelt, or where a mapping should be.
    """
    if not isinstance(document, dict):
        return _kind(document)
    return {str(key): _shown(key, value) for key, value in document.items()}


def _shown(key: object, value: object) -> Any:
    if key == "basic_auth_users" and isinstance(value, dict):
        return f"{len(value)} users"
    known = _SHOWN.get(str(key))
    if known is None or not isinstance(value, dict):
        return _kind(value)
    return {str(one): it if one in known else _kind(it) for one, it in value.items()}


_SHOWN = {
    "tls_server_config": TlsConfig.model_fields.keys() - {"key"},
    "http_server_config": HttpConfig.model_fields.keys(),
    "rate_limit": RateLimit.model_fields.keys(),
}


def _kind(value: object) -> str:
    """Return what kind of value something is, and nothing of the value."""
    return f"({type(value).__name__})"


def _secrets(settings: Settings, environment: Mapping[str, str]) -> Iterator[str]:
    """Yield what must not be in the archive, wherever it may have got to."""
    for path in _secret_files(plain(settings)):
        try:
            with Path(path).open("rb") as file:
                content = file.read(_MOST_SECRET).decode("utf-8", "replace")
        except OSError:
            continue
        yield from (line.strip() for line in content.splitlines())
    for name, value in environment.items():
        if _SECRET_NAME.search(name) and not value.startswith("/"):
            yield value


def _secret_files(document: Any) -> Iterator[str]:
    """Yield the paths under `token_file` and `url_file`, at any depth."""
    if isinstance(document, Mapping):
        for key, value in document.items():
            if key in {"token_file", "url_file"} and isinstance(value, str):
                yield value
            else:
                yield from _secret_files(value)
    elif isinstance(document, list | tuple):
        for value in document:
            yield from _secret_files(value)


def _host(machine: Machine) -> dict[str, Any]:
    root = machine.root
    return {
        "uname": list(os.uname()),
        "python": platform.python_version(),
        "packages": dict(_packages()),
        "uid": [os.getuid(), os.geteuid(), os.getgid()],
        "os": _text(root / "etc/os-release"),
        "driver": _text(root / "proc/driver/nvidia/version"),
        "cgroup": _text(root / "proc/self/cgroup"),
        "limits": _text(root / "proc/self/limits"),
        "capabilities": _lines(root / "proc/self/status", ("Cap", "NoNewPrivs", "Seccomp")),
        "memory": _lines(root / "proc/meminfo", ("MemTotal", "MemAvailable")),
        "mounts": _mounts(root / "proc/self/mountinfo"),
        "container": sorted(_containers(machine)),
        "devices": sorted(_names(root / "dev", ("nvidia", "infiniband", "kmsg"))),
        "infiniband": sorted(_names(root / "sys/class/infiniband", ("",))),
        "environment": {
            name: machine.environment[name] for name in _ENVIRONMENT if name in machine.environment
        },
    }


def _packages() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield name, "missing"


def _text(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_SECRET).decode("utf-8", "replace")
    except OSError:
        return None


def _lines(path: Path, starts: tuple[str, ...]) -> list[str]:
    return [line for line in (_text(path) or "").splitlines() if line.startswith(starts)]


def _mounts(path: Path) -> list[str]:
    """Return the mounts that a reader of drivers and files may stumble over, options included."""
    return [
        line
        for line in (_text(path) or "").splitlines()
        if len(fields := line.split()) > 4 and (fields[4] == "/" or fields[4].startswith(_MOUNTS))
    ][:500]


def _containers(machine: Machine) -> Iterator[str]:
    for name, path in (("docker", ".dockerenv"), ("podman", "run/.containerenv")):
        if (machine.root / path).exists():
            yield name
    if "KUBERNETES_SERVICE_HOST" in machine.environment:
        yield "kubernetes"


def _names(path: Path, starts: tuple[str, ...]) -> list[str]:
    try:
        return [name for name in os.listdir(path) if name.startswith(starts)][:500]  # noqa: PTH208
    except OSError:
        return []


def _archive(parts: Mapping[str, str], when: float) -> bytes:
    written = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=written, mode="wb", mtime=when) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, text in parts.items():
            content = text.encode("utf-8", "replace")
            info = tarfile.TarInfo(f"flopwatch-debug/{name}")
            info.size, info.mtime, info.mode = len(content), int(when), 0o600
            archive.addfile(info, io.BytesIO(content))
    return written.getvalue()


def write(path: str, content: bytes) -> None:
    """Write an archive for its owner alone; `-` is standard output. Raises `ConfigError`."""
    try:
        if path == "-":
            with os.fdopen(1, "wb", closefd=False) as out:
                out.write(content)
            return
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(number, "wb") as out:
            out.write(content)
    except OSError as error:
        raise ConfigError(f"--output: {path}: {error.strerror}") from None
