"""The support bundle: what is in it, what is not, and that it is made of a daemon in any state."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.servers import Server, reply
from tests.test_daemon import QUIET, Daemon, ready

SEEDS = {
    name: f"seed-{name}-0123456789abcdef"
    for name in ("token", "query", "environment", "bearer", "label", "inline", "url")
}
HASH = "$2y$10$2UXri9cIDdgeKjBo4Rlpx.U3ZLDV8X1IxKmsfOvhcM5oXQt/mLmXq"
LABEL = f"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{model_name="https://u:{SEEDS["label"]}@hub/m?token={SEEDS["label"]}"}} 1
"""


def parts_of(content: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        return {
            Path(member.name).name: archive.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in archive.getmembers()
        }


def run_debug(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "exporter", "debug", *arguments]
    return subprocess.run(
        command, capture_output=True, cwd=cwd, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(Path.cwd()), **environment},
    )  # fmt: skip


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A bundle of a daemon that was given secrets in every way that there is."""
    home = tmp_path_factory.mktemp("debug")
    engine, refusing = Server([reply(LABEL.encode())]), Server([reply(status="401 No")])
    (home / "tokens").write_text(SEEDS["token"] + "\n")
    (home / "address").write_text(f"http://127.0.0.1:1/hook/{SEEDS['url']}\n")
    (home / "web.yml").write_text(f"basic_auth_users: {{dave: {HASH}}}\n")
    config = home / "flopwatch.yaml"
    config.write_text(f"""
sources:
  network: {{enabled: false}}
  inference:
    servers:
      - {{name: one, url: "http://127.0.0.1:{engine.port}/metrics?key={SEEDS["query"]}"}}
      - name: two
        url: "http://127.0.0.1:{refusing.port}/metrics?token={SEEDS["query"]}"
        token_file: {home / "tokens"}
  spot: {{enabled: false}}
push: {{socket: {home / "push.sock"}, token_file: {home / "tokens"}}}
notify: {{webhooks: [{{name: hook, url_file: {home / "address"}}}]}}
web: {{config_file: {home / "web.yml"}}}
""")
    from tests.test_daemon import free_port

    port = free_port()
    environment = {**os.environ, "EXAMPLE_API_TOKEN": SEEDS["environment"]}
    daemon = Daemon(
        [sys.executable, "-m", "exporter", "run", "-c", str(config), "--listen",
         f"127.0.0.1:{port}", "--log-level", "debug"], port, environment,
    )  # fmt: skip
    try:
        daemon.wait_for("/-/ready", ready)
        push(port, SEEDS["bearer"])
        result = run_debug(
            "--output", "-", "-c", str(config), "--socket", str(home / "push.sock"),
            cwd=home, EXAMPLE_API_TOKEN=SEEDS["environment"],
        )  # fmt: skip
        assert (result.returncode, result.stderr) == (0, b"")
        return parts_of(result.stdout)
    finally:
        daemon.process.kill()
        daemon.process.communicate()
        engine.close()
        refusing.close()


def push(port: int, token: str) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v1/training/steps",
        json.dumps({"run": f"--api-key {SEEDS['inline']}", "step": 1, "tokens": 1}).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    try:
        urllib.request.urlopen(request, timeout=10).read()
    except urllib.error.HTTPError as error:
        error.read()


def test_it_holds_what_helps(bundle: dict[str, str]) -> None:
    about, inside = json.loads(bundle["about.json"]), json.loads(bundle["daemon.json"])
    status, config = json.loads(bundle["status.json"]), json.loads(bundle["config.json"])
    host = json.loads(bundle["host.json"])

    assert about["missing"] == {}
    assert "flopwatch_build_info" in bundle["metrics.txt"]
    assert status["detailed"] is True
    assert {"one", "two"} <= {server["server"] for server in status["servers"]}
    assert any("source:inference:one" in name for name in inside["threads"])
    assert any("serve.py" in call for calls in inside["threads"].values() for call in calls)
    assert any("two" in line and "denied" in line for line in inside["log"])
    assert inside["settings"]["web"] == config["settings"]["web"]
    assert json.loads(bundle["web-config.json"]) == {"basic_auth_users": "1 users"}
    assert host["uname"][0] == "Linux"
    assert "Max open files" in host["limits"]
    assert any(" / " in line for line in host["mounts"])
    assert host["packages"]["uvicorn"] != "missing"


def test_it_holds_no_secret(bundle: dict[str, str]) -> None:
    """Of tokens, queries, addresses in files, the environment, headers, labels, hashes."""
    for name, text in bundle.items():
        for kind, seed in SEEDS.items():
            assert seed not in text, (name, kind)
        assert HASH not in text, name
        assert "PRIVATE KEY" not in text, name


def test_the_seeds_would_be_found_without_redaction(bundle: dict[str, str]) -> None:
    """What hides them has left its mark where they were: the test above can fail."""
    assert "key=***" in bundle["config.json"]
    assert "https://***@hub/m?token=***" in bundle["metrics.txt"]


def test_no_daemon_is_no_reason_for_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("listen: http://u:hunter2x@h\n")
    result = run_debug(
        "--url", "http://127.0.0.1:1", "-c", "broken.yaml", "--output", "a.tar.gz", cwd=tmp_path
    )

    assert result.returncode == 0, result.stderr
    assert b"wrote a.tar.gz" in result.stdout
    assert (tmp_path / "a.tar.gz").stat().st_mode & 0o777 == 0o600
    parts = parts_of((tmp_path / "a.tar.gz").read_bytes())
    assert set(json.loads(parts["about.json"])["missing"]) == {
        "metrics.txt", "status.json", "daemon.json"
    }  # fmt: skip
    assert "listen" in json.loads(parts["config.json"])["problems"][0]
    assert "hunter2x" not in "".join(parts.values())
    again = run_debug("--url", "http://127.0.0.1:1", "--output", "a.tar.gz", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (
        2, b"flopwatch: --output: a.tar.gz: File exists\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    "web",
    [
        "basic_auth_user: {dave: hunter2x}",
        "basic_auth_users: [{dave: hunter2x}]",
        "basic_auth_users: dave hunter2x",
        "tls_server_config: {kye: hunter2x}",
        "tls_server_config: [{key: hunter2x}]",
        "rate_limit: {interval: 1s, password: hunter2x}",
        "- hunter2x",
    ],
)
def test_a_password_in_a_web_config_that_is_wrong_is_not_told(tmp_path: Path, web: str) -> None:
    """A misspelt key is why a bundle is made; what stands under it was packed as it was."""
    (tmp_path / "web.yml").write_text(web)
    (tmp_path / "a.yaml").write_text(f"web: {{config_file: {tmp_path / 'web.yml'}}}\n")
    url = ("--url", "http://127.0.0.1:1")
    assert run_debug("-c", "a.yaml", *url, "--output", "a.tar.gz", cwd=tmp_path).returncode == 0
    parts = parts_of((tmp_path / "a.tar.gz").read_bytes())
    assert "web-config.json" in parts
    assert "hunter2x" not in "".join(parts.values())


def test_what_is_too_long_is_cut(tmp_path: Path) -> None:
    from exporter.clock import SystemClock
    from exporter.commands.debug import MOST, Door
    from exporter.commands.debug import bundle as make

    endless = Server([reply(b"# x\n" * (MOST // 2))])
    try:
        content = make(Door(endless.url()), None, SystemClock())
    finally:
        endless.close()

    assert len(parts_of(content)["metrics.txt"]) == MOST
    assert len(content) < 1 << 20


@pytest.fixture
def alone(tmp_path: Path) -> Any:
    from tests.test_daemon import free_port

    port = free_port()
    file = tmp_path / "flopwatch.yaml"
    file.write_text(QUIET + "}\n")
    daemon = Daemon(
        [sys.executable, "-m", "exporter", "run", "-c", str(file), "--listen",
         f"127.0.0.1:{port}"], port,
    )  # fmt: skip
    daemon.wait_for("/-/ready", ready)
    yield daemon
    daemon.process.kill()
    daemon.process.communicate()


def test_its_inside_is_for_this_machine_alone(alone: Daemon) -> None:
    """Not for pages in browsers, not through proxies, not by GET; SIGUSR2 works always."""
    url = f"http://127.0.0.1:{alone.port}/-/debug"

    def post(**headers: str) -> int:
        request = urllib.request.Request(url, b"", headers)
        try:
            return int(urllib.request.urlopen(request, timeout=10).status)
        except urllib.error.HTTPError as error:
            return error.code

    assert post() == 200
    assert post(Origin="http://evil.example") == 403
    assert post(**{"X-Forwarded-For": "192.0.2.1"}) == 403
    assert alone.get("/-/debug")[0] == 405

    alone.process.send_signal(signal.SIGUSR2)
    assert alone.get("/-/healthy")[0] == 200
    alone.process.kill()
    assert "most recent call first" in alone.process.communicate()[1]
