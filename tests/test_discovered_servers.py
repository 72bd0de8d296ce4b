"""Servers that come, restart, change their model and go, under a daemon in a process of its own."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api_server import api_server, pod
from tests.conftest import STRANGER
from tests.discovery.test_local_finder import VLLM, Engine, free_port
from tests.test_daemon import Daemon

FAST = "interval: 200ms, discovery_interval: 200ms"


@pytest.fixture
def cleanup() -> Iterator[Callable[[object], None]]:
    """Yield what takes note of engines and daemons to end."""
    started: list[object] = []
    yield started.append
    for one in started:
        if isinstance(one, Engine):
            one.end()
        if isinstance(one, Daemon):
            one.process.kill()
            one.process.communicate()


@pytest.fixture
def engine(tmp_path: Path, cleanup: Callable[[object], None]) -> Callable[..., Engine]:
    def start(**options: object) -> Engine:
        made = Engine(tmp_path / "bin", **options)  # type: ignore[arg-type]
        cleanup(made)
        return made

    return start


@pytest.fixture
def start(tmp_path: Path, cleanup: Callable[[object], None]) -> Callable[[str], Daemon]:
    """Start a daemon that reads nothing but inference servers; the text is that section."""

    def run(inference: str) -> Daemon:
        write(tmp_path, inference)
        port = free_port()
        made = Daemon(
            [
                sys.executable, "-m", "exporter", "run", "--listen", f"127.0.0.1:{port}",
                "--config", str(tmp_path / "flopwatch.yaml"),
            ],
            port,
        )  # fmt: skip
        cleanup(made)
        return made

    return run


def write(folder: Path, inference: str) -> None:
    (folder / "flopwatch.yaml").write_text(
        "reload: {watch: 1s}\n"
        "sources: {network: {enabled: false}, host: {enabled: false}, process: {enabled: false},"
        " nvml: {enabled: false}, serving: {interval: 200ms},"
        f" inference: {{{FAST}, {inference}}}}}\n"
    )


def has(text: str) -> Callable[[int, str], bool]:
    return lambda _, page: text in page


def lacks(text: str) -> Callable[[int, str], bool]:
    return lambda status, page: status == 200 and text not in page


def series(page: str, server: str) -> list[str]:
    return [line for line in page.splitlines() if f'server="{server}"' in line]


def test_a_server_on_this_machine_comes_restarts_changes_its_model_and_goes(
    start: Callable[[str], Daemon], engine: Callable[..., Engine]
) -> None:
    """Its series come and go with it; nothing of a former model or process is left."""
    port = free_port()
    daemon = start(f"local: auto, ports: [{port}]")
    name = f"local:{port}"
    daemon.wait_for("/metrics", has('flopwatch_source_up{source="discovery"} 1'))
    assert series(daemon.get("/metrics")[1], name) == []

    one = engine(port=port)
    tokens = (
        'llm_tokens_total{direction="output",engine="vllm",model_name="m1",model_version="",'
        f'server="{name}"}} 14939'
    )
    page = daemon.wait_for("/metrics", has(tokens))
    assert f'flopwatch_source_up{{source="inference:{name}"}} 1' in page
    counted = re.search(r'llm_discovered_servers\{origin="local"\} (\d+)', page)
    assert counted is not None and int(counted[1]) >= 1

    one.end()
    page = daemon.wait_for("/metrics", lacks(name))
    assert series(page, name) == []

    two = engine(port=port, model="m2")
    page = daemon.wait_for("/metrics", has(tokens.replace('"m1"', '"m2"')))
    assert 'model_name="m1"' not in page
    assert two.asked[0] == "GET /metrics"

    two.state.write_text("503")
    page = daemon.wait_for("/metrics", lacks('model_name="m2"'))
    assert f'flopwatch_source_up{{source="inference:{name}"}} 0' in page
    two.state.unlink()
    daemon.wait_for("/metrics", has('model_name="m2"'))
    assert daemon.stop()[0] == 0


def test_what_is_not_an_engine_is_never_asked(
    start: Callable[[str], Daemon], engine: Callable[..., Engine]
) -> None:
    """By default whoever else listens on an engine's port is left in peace."""
    stranger = engine(program="webserver")
    known = engine()
    daemon = start(f"local: auto, ports: [{stranger.port}, {known.port}]")
    daemon.wait_for("/metrics", has(f'server="local:{known.port}"'))
    assert stranger.connections == 0
    assert (
        daemon.value('flopwatch_samples_dropped_total{reason="max_servers",source="discovery"}')
        is None
    )


def test_a_server_in_a_file_has_derived_series_and_loses_them(
    start: Callable[[str], Daemon], engine: Callable[..., Engine], tmp_path: Path
) -> None:
    """It comes, has traffic, changes its model, restarts with counters at less, and goes."""
    shown, file = tmp_path / "page", tmp_path / "targets.yml"
    recorded = VLLM.read_text()
    put(shown, recorded)
    file.write_text("[]\n")
    daemon = start(f"local: false, files: ['{file}']")
    daemon.wait_for("/metrics", has('llm_discovered_servers{origin="file"} 0'))
    page = daemon.wait_for("/metrics", has('flopwatch_source_up{source="derive:serving"} 1'))
    assert serving_families(page) == {"llm_discovered_servers"}

    one = engine(page=shown)
    listed = f"- targets: ['127.0.0.1:{one.port}']\n  labels: {{__flopwatch_name: chat}}\n"
    file.write_text(listed)
    page = daemon.wait_for("/metrics", has('llm_window_filled_ratio{server="chat",window="5m"}'))
    assert 'direction="output",engine="vllm",model_name="m1",model_version="",' in page
    assert 'percentile="p50"' not in page, "what was before the first look is nobody's window"

    put(shown, grown(recorded, 3))
    page = daemon.wait_for("/metrics", has('percentile="p50"'))
    assert rates(page, "m1") and min(rates(page, "m1")) > 0
    assert 'percentile="p99"' in page, "450 requests came to their first token"

    put(shown, grown(recorded, 3).replace("mid-llama", "mid-llama-next"))
    daemon.wait_for("/metrics", has('model_name="m1-next"'))
    page = daemon.wait_for("/metrics", lacks('model_name="m1"'))

    one.end()
    daemon.wait_for("/metrics", lacks('model_name="m1-next"'))
    assert 'flopwatch_source_up{source="inference:chat"} 0' in daemon.get("/metrics")[1]
    began = f"process_start_time_seconds {time.time()}"
    later = re.sub(r"(?m)^process_start_time_seconds .*", began, recorded)
    put(shown, later)
    two = engine(page=shown, port=one.port)
    daemon.wait_for("/metrics", has('llm_output_tokens_per_second{engine="vllm",model_name="m1"'))
    put(shown, grown(later, 2))
    page = daemon.wait_for("/metrics", lambda *_: min(rates(daemon.get("/metrics")[1], "m1")) > 0)
    assert negative(page) == []
    assert 'llm_resets_total{server="chat"} 1' in page
    assert "llm_anomalies_total{" not in page
    assert set(two.asked) - {"GET /health"} == {"GET /metrics"}

    file.write_text("[]\n")
    page = daemon.wait_for("/metrics", lacks('server="chat"'))
    page = daemon.wait_for("/metrics", lacks("llm_node_"))
    assert serving_families(page) == {"llm_discovered_servers"}
    assert "inference:chat" not in page
    assert daemon.stop()[0] == 0


def put(file: Path, text: str) -> None:
    """Write a page that is never seen half-written."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def grown(page: str, factor: int) -> str:
    """Return a page of vLLM after so many times the traffic."""

    def line(text: str) -> str:
        name, _, value = text.rpartition(" ")
        if not name.startswith("vllm:") or "_created" in name or "_info" in name:
            return text
        return f"{name} {float(value) * factor}"

    return "".join(line(text) + "\n" for text in page.splitlines())


def rates(page: str, model: str) -> list[float]:
    """Return the output tokens per second of a model, of all windows."""
    found = re.findall(
        rf'^llm_output_tokens_per_second\{{.*model_name="{model}".*\}} (\S+)$', page, re.MULTILINE
    )
    return [float(value) for value in found]


def negative(page: str) -> list[str]:
    return [line for line in page.splitlines() if re.search(r"^llm_.* -[0-9]", line)]


def serving_families(page: str) -> set[str]:
    return set(re.findall(r"^(llm_\w+)", page, re.MULTILINE))


def test_files_are_taken_up_and_a_broken_one_changes_nothing(
    start: Callable[[str], Daemon], engine: Callable[..., Engine], tmp_path: Path
) -> None:
    """A list gets a second server, is broken, is repaired, and goes; others are not disturbed."""
    one, two = engine(program="one"), engine(program="two")
    file = tmp_path / "targets.json"

    def listing(*servers: tuple[str, int]) -> str:
        return json.dumps(
            [
                {"targets": [f"127.0.0.1:{port}"], "labels": {"__flopwatch_name": name}}
                for name, port in servers
            ]
        )

    file.write_text(listing(("a", one.port)))
    daemon = start(f"local: false, files: ['{tmp_path}/*.json']")
    daemon.wait_for("/metrics", has('flopwatch_source_up{source="inference:a"} 1'))

    file.write_text(listing(("a", one.port), ("b", two.port)))
    daemon.wait_for("/metrics", has('flopwatch_source_up{source="inference:b"} 1'))
    reads = daemon.value('flopwatch_source_reads_total{source="inference:b"}')

    file.write_text('[\n{"targets": ["nonsense here"]}]')
    failures = 'flopwatch_source_failures_total{reason="malformed",source="discovery"}'
    page = daemon.wait_for("/metrics", lambda *_: (daemon.value(failures) or 0) >= 2)
    assert series(page, "a") and series(page, "b")
    sources = json.loads(daemon.get("/api/v1/status")[1])["sources"]
    (fault,) = next(one["faults"] for one in sources if one["name"] == "discovery")
    assert fault["part"] == str(file)
    assert "line 2: 'nonsense here' is not an address" in fault["detail"]

    file.write_text(listing(("b", two.port)))
    page = daemon.wait_for("/metrics", lacks('server="a"'))
    assert series(page, "b")
    later = daemon.value('flopwatch_source_reads_total{source="inference:b"}')
    assert reads is not None and later is not None and later > reads
    assert set(two.asked) - {"GET /health"} == {"GET /metrics"}
    file.unlink()
    page = daemon.wait_for("/metrics", lacks('server="b"'))
    assert 'llm_discovered_servers{origin="file"} 0' in page
    assert daemon.stop()[0] == 0


def test_a_reload_keeps_what_was_found_and_a_configured_server_takes_over(
    start: Callable[[str], Daemon], engine: Callable[..., Engine], tmp_path: Path
) -> None:
    """The server found on a port is configured by name: it is read once, under that name."""
    one = engine()
    daemon = start("local: auto")
    local = f"local:{one.port}"
    daemon.wait_for("/metrics", has(f'server="{local}"'))
    probes = len(one.asked)
    assert probes >= 1

    write(tmp_path, f"servers: [{{name: chat, url: 'http://localhost:{one.port}/metrics'}}]")
    page = daemon.wait_for("/metrics", has('flopwatch_source_up{source="inference:chat"} 1'))
    page = daemon.wait_for("/metrics", lacks(local))
    assert series(page, "chat")
    daemon.wait_for("/metrics", has('llm_discovered_servers{origin="static"} 1'))

    write(tmp_path, "local: false")
    page = daemon.wait_for("/metrics", lacks('server="chat"'))
    daemon.wait_for("/metrics", has('llm_discovered_servers{origin="static"} 0'))
    assert local not in daemon.get("/metrics")[1]


def test_the_daemons_own_page_is_not_an_inference_server(start: Callable[[str], Daemon]) -> None:
    """Though everybody on a list of ports is asked, and it shows names of engines."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(30)
        asked = other.getsockname()[1]
        daemon = start(f"local: true, ports: [{asked}]")
        connection, _ = other.accept()
        with connection:
            assert connection.recv(100).startswith(b"GET /metrics HTTP/1.1\r\n")
        write_own = f"local: true, ports: [{asked}, {daemon.port}]"
    daemon.wait_for("/metrics", has('flopwatch_source_up{source="discovery"} 1'))
    write(Path(daemon.process.args[-1]).parent, write_own)  # type: ignore[index,arg-type]
    page = daemon.wait_for(
        "/metrics", lambda *_: (daemon.value("flopwatch_scrapes_total") or 0) > 20
    )
    assert f"local:{daemon.port}" not in page


def test_once_shows_servers_that_it_found(engine: Callable[..., Engine], tmp_path: Path) -> None:
    """A single look at the machine includes them."""
    one = engine()
    write(tmp_path, "local: auto")
    ran = subprocess.run(
        [sys.executable, "-m", "exporter", "once", "--config", str(tmp_path / "flopwatch.yaml")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert f'server="local:{one.port}"' in ran.stdout
    assert f"inference:local:{one.port}" in ran.stderr


def test_a_found_server_is_announced(
    start: Callable[[str], Daemon], engine: Callable[..., Engine]
) -> None:
    """Whoever starts the daemon sees at once what it will read."""
    one = engine(page=VLLM)
    daemon = start("local: auto")
    assert daemon.process.stdout is not None
    lines = []
    while not any(f"inference:local:{one.port}" in line for line in lines):
        line = daemon.process.stdout.readline()
        assert line, lines
        lines.append(line)
    assert not any("no inference server" in line for line in lines)


def test_a_pod_of_this_node_comes_and_goes_by_the_api_server(
    start: Callable[[str], Daemon], engine: Callable[..., Engine], tmp_path: Path
) -> None:
    """One list and one watch, over TLS with a token; the pod's page is read while it is ready."""
    address = own_address()
    one = engine(host=address)
    with api_server(tmp_path) as api:
        (tmp_path / "token").write_text("first")
        daemon = start(
            "local: false, kubernetes: {enabled: true, node: node1, interval: 200ms,"
            f" api_url: '{api.url}', token_file: {tmp_path}/token, ca_file: {tmp_path}/cert.pem}}"
        )
        daemon.wait_for("/metrics", has('flopwatch_pods{state="serving"} 0'))
        where = {"ip": address, "args": ["--port", str(one.port)]}
        served: dict[str, Any] = {"image": "vllm/vllm-openai:v0.32", **where}
        api.put(pod(**served, ready=False))
        page = daemon.wait_for("/metrics", has('flopwatch_pods{state="other"} 1'))
        assert series(page, "serving:vllm-0") == []
        api.put(pod(**served))
        page = daemon.wait_for("/metrics", has('engine="vllm",model_name="m1"'))
        assert 'flopwatch_source_up{source="inference:serving:vllm-0"} 1' in page
        assert 'llm_discovered_servers{origin="kubernetes"} 1' in page
        api.remove(pod()["metadata"]["uid"])
        page = daemon.wait_for("/metrics", lacks('server="serving:vllm-0"'))
        assert 'flopwatch_pod_requests_total{kind="list"} 1' in page
        assert 'flopwatch_pod_requests_total{kind="watch"} 1' in page
        assert [kind for kind, _ in api.asked] == ["list", "watch"]
        assert daemon.stop()[0] == 0


def own_address() -> str:
    """Return an address of this machine that is none of loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((STRANGER, 0))
        except OSError:
            probe.connect(("203.0.113.1", 9))  # sends nothing
        return str(probe.getsockname()[0])
