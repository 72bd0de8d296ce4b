"""What the demo shows: a tree that the real reader reads, pages that the official parser reads."""

from __future__ import annotations

import http.client
import math
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporter import catalogue as c
from exporter.clock import SystemClock
from exporter.demo import Demo
from exporter.demo.engines import LLAMACPP_TYPE, PageServer, llamacpp_page, vllm_page
from exporter.demo.node import Node
from exporter.demo.sysfs import SysfsTree
from exporter.engines import load_engines
from exporter.fetch import HttpFetcher
from exporter.samples import Drop, Fault, Gate, Histogram, Sample
from exporter.sources.inference import InferenceSource
from exporter.sources.network import NetworkSource
from tests.fakes import FakeClock

DATA = Path(__file__).parent.parent / "data"
BORN = 1.8e9
PORT = "sys/class/infiniband/mlx5_3/ports/1"


@contextmanager
def serving(*servers: PageServer) -> Iterator[None]:
    """Serve in threads, as the daemon does; fail if one does not end."""
    threads = [threading.Thread(target=server.serve_forever) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for server in servers:
            server.shutdown()
        for thread in threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in threads)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    made = Demo(tmp_path, clock=FakeClock())
    yield made
    made.close()


@pytest.fixture(scope="module")
def node() -> Node:
    made = Node(0, BORN)
    made.advance(300)
    return made


# ---------------------------------------------------------------- sysfs


def read(root: Path) -> list[Sample]:
    """Return what the real source reads below a root; it must find nothing amiss."""
    source = NetworkSource(root)
    items = list(source.read())
    source.close()
    assert [item for item in items if isinstance(item, Fault | Drop)] == []
    samples = [item for item in items if isinstance(item, Sample)]
    assert Gate(10_000).admit(samples)[1] == {}
    return samples


def test_the_real_source_reads_the_tree(tmp_path: Path, node: Node) -> None:
    """Every port and interface arrives, with bytes, rates and identity."""
    SysfsTree(tmp_path).write(node)
    samples = read(tmp_path)
    values = {(s.metric, *s.labels): s.value for s in samples}
    ports = node.fabric.ports()
    for name, port in ports.items():
        assert values[c.NIC_TRANSMIT_BYTES_TOTAL, name, "1"] == port.sent // 4 * 4
        assert values[c.NIC_RECEIVE_BYTES_TOTAL, name, "1"] == port.received // 4 * 4
        assert values[c.NIC_UP, name, "1"] == port.up
    assert values[c.NIC_LINK_RATE_BYTES_PER_SECOND, "mlx5_0", "1"] == 50e9
    assert values[c.NIC_ERRORS_TOTAL, "mlx5_5", "1", "symbol"] == ports["mlx5_5"].symbols > 0
    assert values[c.NIC_UP, "bond0", ""] == values[c.NIC_UP, "eno1", ""] == 1
    infos = {s.labels[0]: s.labels[2:] for s in samples if s.metric is c.NIC_INFO}
    assert infos["mlx5_0"][:2] == ("InfiniBand", "mlx5_core")
    assert infos["mlx5_bond_0"][0] == "Ethernet"
    assert infos["mlx5_bond_0"][4] == "bond0"
    assert (infos["bond0"][1], infos["eno1"][1]) == ("", "igb")


def test_the_tree_has_the_files_of_a_real_one(tmp_path: Path, node: Node) -> None:
    """No file of the recorded machine's port folders is missing."""
    SysfsTree(tmp_path).write(node)
    real = DATA / "sysfs/h100-8xndr-bond/sys/class/infiniband"
    for theirs in ("mlx5_0", "mlx5_bond_0"):
        files = {p.relative_to(real) for p in (real / theirs).rglob("*") if p.is_file()}
        assert len(files) > 50
        made = tmp_path / "sys/class/infiniband"
        assert [str(file) for file in files if not (made / file).is_file()] == []
        for file in ("ports/1/rate", "ports/1/state", "ports/1/link_layer", "hca_type", "fw_ver"):
            text = (real / theirs / file).read_text()
            assert (made / theirs / file).read_text().strip() == text.strip()


def test_an_open_file_shows_the_new_value(tmp_path: Path) -> None:
    """Files are written over in place: same file, new text, never empty."""
    node, tree = Node(0, BORN), SysfsTree(tmp_path)
    tree.write(node)
    path = tmp_path / PORT / "counters/port_xmit_data"
    with path.open("rb") as kept:
        first = int(kept.read())
        node.advance(20)
        tree.write(node)
        kept.seek(0)
        second = int(kept.read())
    assert first == 0 < second == int(path.read_bytes())


def test_a_shorter_text_leaves_nothing_of_the_longer_one(tmp_path: Path) -> None:
    """A port that goes down says just that."""
    node, tree = Node(0, BORN), SysfsTree(tmp_path)
    tree.write(node)
    assert (tmp_path / PORT / "state").read_bytes() == b"4: ACTIVE\n"
    while node.fabric.ports()["mlx5_3"].up:
        node.advance(1)
    tree.write(node)
    state = (tmp_path / PORT / "state").read_text()
    assert (state.strip(), len(state)) == ("1: DOWN", len("4: ACTIVE\n"))
    values = {(s.metric, *s.labels): s.value for s in read(tmp_path)}
    assert values[c.NIC_UP, "mlx5_3", "1"] == 0
    assert (c.NIC_LINK_RATE_BYTES_PER_SECOND, "mlx5_3", "1") not in values
    assert values[c.NIC_ERRORS_TOTAL, "mlx5_3", "1", "link_downed"] == 1
    assert values[c.NIC_PORT_PHYSICAL_STATE, "mlx5_3", "1"] == 2  # polling: no other end
    # never seen up by this source, but the seven others of its kind are
    assert values[c.NIC_EXPECTED_UP, "mlx5_3", "1", "peers"] == 1


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    """Writing the same node again opens no file."""
    node, tree = Node(0, BORN), SysfsTree(tmp_path)
    tree.write(node)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    for path in files:
        path.unlink()
    tree.write(node)
    assert [path for path in files if path.exists()] == []


# ---------------------------------------------------------------- pages


def shape(page: str) -> list[str]:
    """Return a page without its numbers and its model: comments, names, labels."""
    page = re.sub(r'model_name="[^"]*"', 'model_name="m"', page)
    return [line if line[0] == "#" else line.rpartition(" ")[0] for line in page.splitlines()]


def test_vllms_page_is_vllms_page(node: Node) -> None:
    """Every vllm: line but the cache's values is one of the recorded page, in its order."""
    recorded = (DATA / "engines/vllm-0.32.0-cpu-underload.prom").read_text()

    def ours(page: str) -> list[str]:
        lines = [line for line in shape(page) if "vllm:" in line]
        assert sum("cache_config_info{" in line for line in lines) == 1
        return [re.sub(r'="[^"]*"', "", x) if "cache_config_info{" in x else x for x in lines]

    made = vllm_page(node).decode()
    assert ours(made) == ours(recorded)
    http_lines = [line for line in shape(recorded) if "# " in line and "http_requests" in line]
    assert [line for line in http_lines if line not in shape(made)] == []


def test_llamacpps_page_is_llamacpps_page(node: Node) -> None:
    """Every line is one of the recorded page, in its order."""
    recorded = (DATA / "engines/llamacpp-b10434-underload.prom").read_text()
    assert shape(llamacpp_page(node).decode()) == shape(recorded)


@pytest.mark.parametrize("age", [0, 300])
def test_the_official_parser_reads_both_pages(age: float) -> None:
    """A page is well formed before the first request and under load; histograms add up."""
    node = Node(0, BORN)
    node.advance(age)
    families = {
        family.name: family
        for page in (vllm_page(node), llamacpp_page(node))
        for family in text_string_to_metric_families(page.decode())
    }
    assert len(families) > 80
    histograms = [family for family in families.values() if family.type == "histogram"]
    assert len(histograms) == len(node.vllm.seen)
    for family in histograms:
        buckets = [s.value for s in family.samples if s.name.endswith("_bucket")]
        (count,) = (s.value for s in family.samples if s.name.endswith("_count"))
        (total,) = (s.value for s in family.samples if s.name.endswith("_sum"))
        assert buckets == sorted(buckets)
        assert buckets[-1] == count
        assert (total > 0) == (count > 0) or family.name == "vllm:request_num_preemptions"


def test_the_same_seed_gives_the_same_pages() -> None:
    """Pages hold nothing but the model's numbers."""
    pages = []
    for _ in range(2):
        node = Node(5, BORN)
        node.advance(40)
        pages.append((vllm_page(node), llamacpp_page(node)))
    assert pages[0] == pages[1]


def test_reading_llamacpps_page_restarts_its_speeds(node: Node) -> None:
    """As in the original, a second reader right after the first sees no throughput."""
    node.advance(60)
    first, second = llamacpp_page(node).decode(), llamacpp_page(node).decode()
    speeds = [
        float(re.findall(r"^llamacpp:predicted_tokens_seconds (\S+)$", page, re.MULTILINE)[0])
        for page in (first, second)
    ]
    assert speeds[0] > 0 == speeds[1]


def test_numbers_are_printed_as_pythons_client_prints_them() -> None:
    """Exponents begin at a million, and those of two digits keep a leading zero."""
    node = Node(0, 1_795_970_205.99)
    node.vllm.prompted, node.vllm.generated, node.vllm.preempted = 10**6, 12_345_678_901, 999_999
    values = dict(line.rsplit(" ", 1) for line in vllm_page(node).decode().splitlines())
    labels = f'{{engine="0",model_name="{node.vllm.spec.name}"}}'
    assert values["process_start_time_seconds"] == "1.79597020599e+09"
    assert values[f"vllm:prompt_tokens_total{labels}"] == "1e+06"
    assert values[f"vllm:generation_tokens_total{labels}"] == "1.2345678901e+010"
    assert values[f"vllm:num_preemptions_total{labels}"] == "999999.0"


# ---------------------------------------------------------------- the page server


def test_a_page_is_served_anew_each_time() -> None:
    """The body is what the function returns at that moment; the type is the engine's."""
    pages = iter([b"one\n", b"two\n"])
    server = PageServer(lambda: next(pages), LLAMACPP_TYPE)
    with serving(server):
        for expected in (b"one\n", b"two\n"):
            with urlopen(server.url) as answer:
                assert answer.read() == expected
                assert answer.headers["Content-Type"] == LLAMACPP_TYPE


def test_other_paths_are_not_there() -> None:
    """Only /metrics is served, with or without a query."""
    server = PageServer(lambda: b"page\n")
    with serving(server):
        with urlopen(f"{server.url}?model=m") as answer:
            assert answer.status == 200
        with pytest.raises(HTTPError) as caught:
            urlopen(server.url.replace("metrics", "other"))
        with caught.value as refused:
            assert refused.code == 404


def test_a_client_that_leaves_costs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """A connection that is reset is neither printed nor the end of serving."""
    server = PageServer(lambda: b"page\n" * 1_000_000)
    with serving(server):
        port = int(server.url.split(":")[2].partition("/")[0])
        with socket.create_connection(("127.0.0.1", port)) as rude:
            rude.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        with urlopen(server.url) as answer:
            assert len(answer.read()) == 5_000_000
    assert capsys.readouterr() == ("", "")


def test_a_server_that_never_served_can_be_shut_down() -> None:
    """Shutting down waits for nobody, and serving afterwards returns at once."""
    server = PageServer(lambda: b"")
    server.shutdown()
    server.serve_forever()
    server.shutdown()


# ---------------------------------------------------------------- the whole


def test_the_demo_is_there_at_once(demo: Demo) -> None:
    """The tree stands and the servers know their engines before the first step."""
    assert len(read(demo.root)) > 200
    assert sorted(one.engine for one in demo.servers.values()) == ["llamacpp", "vllm"]
    assert [one.url for one in demo.servers.values()] == [s.url for s in demo.page_servers]


def test_the_real_source_reads_both_servers(demo: Demo) -> None:
    """Through HTTP, engine mapping and gate: nothing unresolved, nothing dropped."""
    demo.step(30)
    engines = load_engines()
    with serving(*demo.page_servers):
        for name, (engine, url, _) in demo.servers.items():
            fetch = HttpFetcher(url, timeout=10, clock=SystemClock())
            source = InferenceSource(
                name, fetch, engines, engine=engine, model_name="m", clock=SystemClock(),
                allow_destructive_read=True,
            )  # fmt: skip
            items = list(source.read())
            source.close()
            assert [item for item in items if isinstance(item, Fault | Drop)] == []
            samples = [item for item in items if isinstance(item, Sample)]
            assert Gate(2_000).admit(samples)[1] == {}
            found = {sample.metric for sample in samples}
            assert c.LLM_MAPPING_UNRESOLVED not in found
            assert {c.LLM_TOKENS_TOTAL, c.LLM_ACTIVE_REQUESTS} <= found
            if engine == "vllm":
                (ttft,) = (s.value for s in samples if s.metric is c.LLM_TTFT_SECONDS)
                assert isinstance(ttft, Histogram)
                assert ttft.counts[-1] > 0
                assert math.isfinite(ttft.sum)


def test_a_step_moves_files_and_pages(demo: Demo) -> None:
    """Time passes only when the caller says so."""
    path = demo.root / "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data"
    with serving(*demo.page_servers):
        url = demo.servers["llama-70b"].url
        before = path.read_bytes(), urlopen(url).read()
        assert before == (path.read_bytes(), urlopen(url).read())
        demo.step(10)
        assert path.read_bytes() != before[0]
        assert urlopen(url).read() != before[1]


def test_a_long_pause_is_not_made_up_for(demo: Demo) -> None:
    """A machine that slept does not compute for minutes when it wakes."""
    demo.step(1e9)
    born = FakeClock().time() - 30
    with serving(*demo.page_servers), urlopen(demo.servers["llama-70b"].url) as answer:
        page = answer.read().decode()
    assert f"process_start_time_seconds {born / 1e9:.12g}".rstrip("0") in page
    assert demo._node.now == 90


def test_close_leaves_nothing_behind(tmp_path: Path) -> None:
    """Files, ports and descriptors are given back; closing twice is fine."""
    (tmp_path / "mine").write_text("kept")
    made = Demo(tmp_path, clock=FakeClock())
    urls = [one.url for one in made.servers.values()]
    with serving(*made.page_servers):
        made.step(1)
        made.close()
    made.close()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    for url in urls:
        host = url.split("/")[2]
        with pytest.raises(ConnectionRefusedError):
            http.client.HTTPConnection(host, timeout=5).connect()


def test_a_folder_that_is_in_use_is_left_alone(demo: Demo, tmp_path: Path) -> None:
    """A second demo in the same folder is refused and removes nothing of the first."""
    with pytest.raises(FileExistsError):
        Demo(tmp_path)
    assert (demo.root / "sys").is_dir()
