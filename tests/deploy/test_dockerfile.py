"""What the Dockerfile promises, as far as it can be read: pins, hashes, no root. `make test-image`
builds and runs it.
"""

from __future__ import annotations

import fnmatch
import json
import re
import ssl
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy import lock
from tests.certificates import Authority
from tests.deploy.manifests import ROOT, pod, render

DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
LOCKS = ("requirements", "build")


def locked(name: str) -> dict[str, str]:
    """Return versions by package. Fails for a line that is no version with hashes."""
    text = (ROOT / f"deploy/{name}.lock").read_text("utf-8")
    joined = re.sub(r" *\\\n +", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    found = {}
    for line in joined.splitlines():
        requirement, *hashes = line.split(" --hash=")
        name, _, version = requirement.partition(";")[0].strip().partition("==")
        assert version, line
        assert hashes, line
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes)
        found[canonicalize_name(name)] = version
    return found


def test_all_that_is_needed_is_locked() -> None:
    """Each dependency of pyproject.toml is in the lock, in a version that it permits."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(one for extra in lock.EXTRAS for one in extras[extra])]
    versions = locked("requirements")
    assert len(versions) > len(wanted)
    for requirement in map(Requirement, wanted):
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement} is not locked: run `make lock`"
        assert requirement.specifier.contains(version), f"{requirement}: {version}"


def test_the_build_is_locked() -> None:
    """What builds the wheel is pinned too."""
    assert "setuptools" in locked("build")
    for name in LOCKS:
        assert f"--requirement deploy/{name}.lock" in DOCKERFILE
    assert DOCKERFILE.count("--require-hashes") == len(LOCKS)
    assert "--no-build-isolation" in DOCKERFILE


def test_the_base_is_pinned() -> None:
    """Both stages stand on one base, by version, and by digest where one is given."""
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert bases[0].endswith("python:${PYTHON_VERSION}-slim-${DEBIAN_VERSION}${PYTHON_DIGEST}")
    assert re.search(r"^ARG PYTHON_VERSION=3\.\d+", DOCKERFILE, re.MULTILINE)
    assert not re.search(r"^FROM .*latest", DOCKERFILE, re.MULTILINE)


def test_nobody_runs_it() -> None:
    """The last user is that of the manifests, by number, so that `runAsNonRoot` can be checked."""
    context = pod(render("base"))["securityContext"]
    assert re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE)[-1] == (
        f"{context['runAsUser']}:{context['runAsGroup']}"
    )


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("status", [200, 503])
def test_a_container_is_healthy_with_tls_too(
    tmp_path: Path, tool: Callable[[str], str], status: int, *, secure: bool
) -> None:
    """With a web config each container was unhealthy, for its own check spoke plain HTTP."""

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/-/healthy" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Health)
    if secure:
        Authority(tmp_path, openssl=tool("openssl")).sign("server", "DNS:elsewhere")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        check = re.search(r"^HEALTHCHECK .*\\\n +CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
        assert check is not None
        _, *words = json.loads(check[1].replace("9810", str(server.server_port)))
        done = subprocess.run([sys.executable, *words], timeout=30, check=False)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert done.returncode == (status != 200)


def test_what_is_copied_is_let_in() -> None:
    """.dockerignore keeps all away but what the Dockerfile copies."""
    rules = [
        line
        for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
        if line and line[0] != "#"
    ]
    assert rules[0] == "*"
    let_in = {rule[1:] for rule in rules if rule[0] == "!"}
    copied = {
        word
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
        for word in line.split()
    }
    assert copied == let_in
    assert all((ROOT / one).exists() for one in let_in)


@pytest.mark.parametrize("secret", ["my.token", ".git", "deploy/tls.key", ".venv"])
def test_nothing_else_gets_into_a_build(secret: str) -> None:
    """What lies about in a checkout is not sent to whoever builds."""
    rules = [
        line[1:]
        for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
        if line.startswith("!")
    ]
    assert not any(fnmatch.fnmatch(secret, rule) or secret.startswith(f"{rule}/") for rule in rules)
