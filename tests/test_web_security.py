"""TLS, client certificates and users, with curl and real Prometheus as the clients."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.certificates import Authority
from tests.test_daemon import QUIET, Daemon, Start, free_port, start

__all__ = ["start"]  # the fixture

Tool = Callable[[str], str]
DAVE = "  dave: $2y$10$2UXri9cIDdgeKjBo4Rlpx.U3ZLDV8X1IxKmsfOvhcM5oXQt/mLmXq\n"  # dave123
TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"
MUTUAL = f"{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.crt\n"
USERS = f"basic_auth_users:\n{DAVE}"
REFUSED = "flopwatch_web_refused_total"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tool: Tool) -> Path:
    home = tmp_path_factory.mktemp("certificates")
    authority = Authority(home, openssl=tool("openssl"))
    authority.sign("server", "DNS:localhost", "IP:127.0.0.1")
    authority.sign("client", "DNS:prometheus.example", "URI:spiffe://example/prometheus")
    Authority(home, "other", tool("openssl")).sign("stranger", "DNS:prometheus.example")
    return home


class Reply(NamedTuple):
    """What curl got: the exit code is 0 where there was an answer at all."""

    code: int
    status: int
    body: str
    head: str


class Secured:
    """A daemon with a web config, and curl to ask it."""

    def __init__(self, start: Start, home: Path, curl: str, web: str, more: str = "") -> None:
        scheme = "https" if "tls_server_config" in web else "http"
        self.home = home
        self.curl = curl
        self.web = home / "web.yml"
        self.web.write_text(web)
        file = home / "flopwatch.yaml"
        file.write_text(QUIET + "}\n" + f"push: {{socket: {home / 'push.sock'}}}\n" + more)
        self.daemon: Daemon = start("-c", str(file), "--web.config.file", str(self.web))
        self.until(lambda: self.ask("/-/ready", client="client", scheme=scheme).status == 200)

    def ask(
        self, path: str, *options: str, client: str = "", user: str = "", scheme: str = "https"
    ) -> Reply:
        """Ask the daemon as curl does."""
        command = [self.curl, "-sS", "-i", "--max-time", "20", "--cacert", "ca.crt", *options]
        if client:
            command += ["--cert", f"{client}.crt", "--key", f"{client}.key"]
        if user:
            command += ["-u", user]
        url = f"{scheme}://localhost:{self.daemon.port}{path}"
        done = subprocess.run(
            [*command, url], cwd=self.home, capture_output=True, text=True, timeout=30, check=False
        )
        head, _, body = done.stdout.partition("\n\n")
        status = int(head.split()[1]) if done.stdout else 0
        return Reply(done.returncode, status, body or done.stderr, head.lower())

    def page(self) -> str:
        """Return the page by the unix socket, whose callers are believed."""
        return self.ask("/metrics", "--unix-socket", "push.sock", scheme="http").body

    def until(self, wanted: Callable[[], bool], seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not wanted():
            assert self.daemon.process.poll() is None, self.daemon.process.communicate()
            assert time.monotonic() < end
            threading.Event().wait(0.2)


Secure = Callable[..., Secured]


@pytest.fixture
def secure(start: Start, made: Path, tmp_path: Path, tool: Tool) -> Secure:
    home = tmp_path / "web"
    shutil.copytree(made, home)

    def run(web: str, more: str = "") -> Secured:
        return Secured(start, home, tool("curl"), web, more)

    return run


def test_users_and_tls_with_curl(secure: Secure) -> None:
    """Everything but the health checks wants name and password; http:// gets nowhere."""
    one = secure(TLS + USERS)

    assert one.ask("/metrics").status == 401
    assert "www-authenticate: basic" in one.ask("/metrics").head
    assert one.ask("/metrics", user="dave:dave12").status == 401
    assert one.ask("/metrics", user="mallory:dave123").status == 401
    assert one.ask("/metrics", user="dave:dave123").status == 200
    assert one.ask("/metrics", "-I", user="dave:dave123").status == 200
    for path in ("/status", "/api/v1/status", "/spot", "/nothing"):
        assert one.ask(path).status == 401, path
    assert one.ask("/-/reload", "-X", "POST").status == 401
    assert one.ask("/-/healthy").status == 200
    assert one.ask("/-/ready").status == 200
    assert one.ask("/metrics", scheme="http").status == 0
    assert one.ask("/metrics", "--unix-socket", "push.sock", scheme="http").status == 200
    one.until(lambda: f'{REFUSED}{{reason="handshake"}} 1\n' in one.page())
    assert one.ask("/metrics", "--tls-max", "1.1", user="dave:dave123").code == 35
    assert one.ask("/metrics", "--tlsv1.3", user="dave:dave123").status == 200


def test_a_client_certificate_is_wanted(secure: Secure) -> None:
    """None, or a stranger's: no connection; one of ours: all pages, with details."""
    one = secure(MUTUAL)

    assert one.ask("/metrics").status == 0
    assert one.ask("/-/healthy").status == 0
    assert one.ask("/metrics", client="stranger").status == 0
    assert one.ask("/metrics", client="client").status == 200
    assert json.loads(one.ask("/api/v1/status", client="client").body)["detailed"] is True


def test_a_certificate_needs_one_of_the_names(secure: Secure) -> None:
    one = secure(MUTUAL + "  client_allowed_sans: [spiffe://example/prometheus]\n")
    assert one.ask("/metrics", client="client").status == 200

    one.web.write_text(MUTUAL + "  client_allowed_sans: [prometheus.example.org]\n")

    one.until(lambda: one.ask("/metrics", client="client").status == 0)


def test_a_kubelet_may_probe_without_a_certificate(secure: Secure) -> None:
    """Where that is wished; all else wants one, also on a connection that was let in."""
    one = secure(MUTUAL, "web: {probes_without_certificate: true}\n")

    assert one.ask("/-/healthy").status == 200
    assert one.ask("/-/ready").status == 200
    assert one.ask("/metrics").status == 403
    assert one.ask("/-/healthy", client="stranger").status == 0
    assert one.ask("/metrics", client="client").status == 200


def test_certificates_and_users_change_without_a_restart(secure: Secure, tool: Tool) -> None:
    """A new authority signs; a broken file keeps what was, and the gauge says so."""
    one = secure(TLS + USERS)
    gauge = "flopwatch_web_config_last_reload_successful"

    one.web.write_text(TLS + "  cert_filse: x\n")
    one.until(lambda: f"{gauge} 0\n" in one.page())
    assert one.ask("/metrics", user="dave:dave123").status == 200

    renewed = Authority(one.home / "renewed", "ca", tool("openssl"))
    renewed.sign("server", "DNS:localhost")
    (one.home / "server.crt").write_bytes((renewed.home / "server.crt").read_bytes())
    one.web.write_text(TLS + USERS.replace("dave", "eve"))
    # The certificate has changed, its key has not yet: the former state holds.
    threading.Event().wait(2.5)
    assert one.ask("/metrics", user="dave:dave123").status == 200
    (one.home / "server.key").write_bytes((renewed.home / "server.key").read_bytes())
    one.until(lambda: one.ask("/metrics").code == 60)  # not our authority
    (one.home / "ca.crt").write_bytes(renewed.file.read_bytes())

    assert one.ask("/metrics", user="dave:dave123").status == 401
    assert one.ask("/metrics", user="eve:dave123").status == 200
    one.until(lambda: f"{gauge} 1\n" in one.page())


def test_an_open_connection_does_not_outlive_what_it_was_made_under(secure: Secure) -> None:
    """Plain HTTP, then TLS, then certificates: no kept connection gets in by the old rules."""
    one = secure("")
    plain = http.client.HTTPConnection("127.0.0.1", one.daemon.port, timeout=10)
    assert status_of(plain) == 200
    one.web.write_text(TLS)
    one.until(lambda: one.ask("/metrics").status == 200)
    assert status_of(plain) == 400
    assert plain.sock is None

    trusting = ssl.create_default_context(cafile=one.home / "ca.crt")
    address = ("127.0.0.1", one.daemon.port)
    without = http.client.HTTPSConnection(*address, timeout=10, context=trusting)
    assert status_of(without) == 200
    one.web.write_text(MUTUAL)
    one.until(lambda: one.ask("/metrics").status == 0)
    assert status_of(without) == 403
    assert without.sock is None


def status_of(connection: http.client.HTTPConnection) -> int:
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_headers_are_added_to_every_answer(secure: Secure) -> None:
    headers = "http_server_config: {headers: {X-Frame-Options: deny}}\n"
    one = secure(TLS + USERS + headers)

    for path, user in (("/metrics", ""), ("/metrics", "dave:dave123"), ("/-/healthy", "")):
        assert "x-frame-options: deny" in one.ask(path, user=user).head


def test_a_thousand_wrong_passwords_stop_nobody(secure: Secure) -> None:
    """Whoever has shown its password is served in a blink, and so are health checks."""
    one = secure(TLS + USERS)
    assert one.ask("/metrics", user="dave:dave123").status == 200

    def flood(number: int) -> set[int]:
        config = "".join(
            f'next\nurl = "https://localhost:{one.daemon.port}/metrics"\n'
            f'user = "dave:{number}-{n}"\n'
            'output = "/dev/null"\nwrite-out = "%{http_code}\\n"\ncacert = "ca.crt"\n'
            for n in range(125)
        )
        done = subprocess.run(
            [one.curl, "-s", "--parallel", "--parallel-max", "25", "-K", "-"],
            input=config.removeprefix("next\n"), cwd=one.home, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        return {int(line) for line in done.stdout.split()}

    slowest = 0.0
    with ThreadPoolExecutor(8) as pool:
        floods = [pool.submit(flood, number) for number in range(8)]
        while not all(one_flood.done() for one_flood in floods):
            for path, user in (("/metrics", "dave:dave123"), ("/-/healthy", "")):
                began = time.monotonic()
                assert one.ask(path, user=user).status == 200
                slowest = max(slowest, time.monotonic() - began)
    statuses = set().union(*(one_flood.result() for one_flood in floods))

    assert statuses <= {401, 429}
    assert 401 in statuses
    assert slowest < 5, slowest


def test_hundreds_that_say_nothing_stop_nobody(secure: Secure) -> None:
    """Connections that never shake hands make room for those that do."""
    one = secure(TLS)
    silent = [socket.create_connection(("127.0.0.1", one.daemon.port)) for _ in range(400)]
    try:
        began = time.monotonic()
        assert one.ask("/-/healthy").status == 200
        assert one.ask("/metrics").status == 200
        assert time.monotonic() - began < 5
    finally:
        for each in silent:
            each.close()


def test_check_tells_what_is_wrong_with_the_web_config(tmp_path: Path) -> None:
    """So does the start: a daemon that would serve less safely than was asked does not start."""
    (tmp_path / "web.yml").write_text(TLS)
    (tmp_path / "flopwatch.yaml").write_text(f"web: {{config_file: {tmp_path / 'web.yml'}}}\n")
    missing = f"flopwatch: {tmp_path / 'web.yml'}: tls_server_config.cert_file"
    for arguments in (
        ["check", str(tmp_path / "flopwatch.yaml")],
        ["run", "--listen", "127.0.0.1:0", "--web.config.file", str(tmp_path / "web.yml")],
    ):
        command = [sys.executable, "-m", "exporter", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith(missing), done.stderr
        assert "Traceback" not in done.stderr


def test_users_without_bcrypt_are_an_error(tmp_path: Path) -> None:
    """The message says what to install."""
    (tmp_path / "web.yml").write_text(USERS)
    program = (
        "import sys; sys.modules['bcrypt'] = None; from exporter.__main__ import main;"
        f" main(['run', '--listen', '127.0.0.1:0', '--web.config.file', '{tmp_path / 'web.yml'}'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    said = f"{tmp_path / 'web.yml'}: basic_auth_users: bcrypt is missing: pip install"
    assert (done.returncode, done.stderr) == (2, f"flopwatch: {said} flopwatch[web]\n")


SCRAPES = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: right
    scheme: https
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
    tls_config:
      {{ca_file: {home}/ca.crt, cert_file: {home}/client.crt, key_file: {home}/client.key}}
    basic_auth: {{username: dave, password_file: {home}/password}}
  - job_name: no-certificate
    scheme: https
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
    tls_config: {{ca_file: {home}/ca.crt}}
    basic_auth: {{username: dave, password_file: {home}/password}}
  - job_name: no-password
    scheme: https
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
    tls_config:
      {{ca_file: {home}/ca.crt, cert_file: {home}/client.crt, key_file: {home}/client.key}}
  - job_name: plain
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def test_prometheus_scrapes_with_certificate_and_password(secure: Secure, tool: Tool) -> None:
    """The configuration is that of docs/security.md; without either the target is down."""
    one = secure(MUTUAL + USERS)
    (one.home / "password").write_text("dave123")
    (one.home / "prometheus.yml").write_text(SCRAPES.format(port=one.daemon.port, home=one.home))
    port = free_port()
    process = subprocess.Popen(
        [
            tool("prometheus"), f"--config.file={one.home / 'prometheus.yml'}",
            f"--storage.tsdb.path={one.home / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
        ],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def query(expression: str) -> dict[str, str]:
        url = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(expression)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return {
                row["metric"].get("job", ""): row["value"][1]
                for row in json.load(answer)["data"]["result"]
            }

    def scraped() -> bool:
        try:
            return "right" in query("flopwatch_build_info") and len(query("up")) == 4
        except OSError:
            return False

    try:
        one.until(scraped)
        up = query("up")
    finally:
        process.terminate()
        process.wait(30)
    assert up == {"right": "1", "no-certificate": "0", "no-password": "0", "plain": "0"}
