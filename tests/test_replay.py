"""Recorded vLLM pages over HTTP through the real daemon: what it publishes is what they say.

Which name becomes which is written out here by hand, apart from the engines' files, and the pages
on both sides are read by the official client's parser: an independent check of the whole way.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.servers import reply, request, serving
from tests.test_daemon import Daemon, Start, free_port, ready, start

__all__ = ["start"]  # the fixture

PAGES = Path(__file__).parent / "data" / "engines"
V1 = (
    "0.32.0-cpu",
    "0.32.0-cpu-cold",
    "0.32.0-cpu-underload",
    "0.32.0-cpu-dp2",
    "0.32.0-cpu-apiservers2",
)
V0 = ("0.4.x-v0-cpu-2024-06",)

# Ours: vLLM's. Several of vLLM's are added up.
HISTOGRAMS_V1 = {
    "llm_ttft_seconds": "vllm:time_to_first_token_seconds",
    "llm_itl_seconds": "vllm:inter_token_latency_seconds",
    "llm_tpot_seconds": "vllm:request_time_per_output_token_seconds",
    "llm_e2e_seconds": "vllm:e2e_request_latency_seconds",
    "llm_queue_seconds": "vllm:request_queue_time_seconds",
}
# V0 called the time between tokens a time per token; it measured no queue and no TPOT.
HISTOGRAMS_V0 = {
    "llm_ttft_seconds": "vllm:time_to_first_token_seconds",
    "llm_itl_seconds": "vllm:time_per_output_token_seconds",
    "llm_e2e_seconds": "vllm:e2e_request_latency_seconds",
}
VALUES_V0 = {
    ("llm_tokens_total", "input"): ["vllm:prompt_tokens_total"],
    ("llm_tokens_total", "output"): ["vllm:generation_tokens_total"],
    ("llm_active_requests", ""): ["vllm:num_requests_running"],
    ("llm_waiting_requests", ""): ["vllm:num_requests_waiting", "vllm:num_requests_swapped"],
    ("llm_preemptions_total", ""): ["vllm:num_preemptions_total"],
}
VALUES_V1 = VALUES_V0 | {
    ("llm_waiting_requests", ""): ["vllm:num_requests_waiting"],
    ("llm_prefix_cache_queried_tokens_total", ""): ["vllm:prefix_cache_queries_total"],
    ("llm_prefix_cache_hit_tokens_total", ""): ["vllm:prefix_cache_hits_total"],
    ("llm_prefill_seconds_total", ""): ["vllm:request_prefill_time_seconds_sum"],
    ("llm_decode_seconds_total", ""): ["vllm:request_decode_time_seconds_sum"],
    ("llm_requests_total", "rejected"): ["vllm:admission_rejections_total"],
}
NOT_IN_V0 = {name for name, _ in VALUES_V1.keys() - VALUES_V0.keys()} - {"llm_requests_total"}


class Read:
    """A page as the official parser reads it, of one server where `server` is given."""

    def __init__(self, text: str, server: str = "") -> None:
        self._samples = [
            sample
            for family in families(text)
            for sample in family.samples
            if not server or sample.labels.get("server") == server
        ]

    def names(self) -> set[str]:
        return {sample.name for sample in self._samples}

    def models(self, name: str = "") -> set[str]:
        """Return the models of one family, or of all."""
        found = {
            sample.labels.get("model_name") for sample in self._samples if name in ("", sample.name)
        }
        return {model for model in found if model is not None}

    def total(self, name: str, **labels: str) -> float:
        """Return the sum over all series of that name with these labels, at least one."""
        values = [
            sample.value
            for sample in self._samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert values, (name, labels)
        return sum(values)

    def by(self, name: str, label: str) -> dict[str, float]:
        """Return the sums over all series of that name, for each value of a label."""
        sums: dict[str, float] = defaultdict(float)
        for sample in self._samples:
            if sample.name == name:
                sums[sample.labels[label]] += sample.value
        return dict(sums)

    def histogram(self, name: str) -> dict[str, float]:
        """Return count, sum, and each bucket under its bound, over all series of that name."""
        buckets = {
            str(float(bound)): value for bound, value in self.by(f"{name}_bucket", "le").items()
        }
        rest = {suffix: self.total(f"{name}_{suffix}") for suffix in ("count", "sum")}
        assert len(buckets) > 5
        return buckets | rest


def families(text: str) -> Iterator[Metric]:
    return iter(text_string_to_metric_families(text))


def recorded(version: str) -> str:
    return (PAGES / f"vllm-{version}.prom").read_text("utf-8")


@contextlib.contextmanager
def replaying(pages: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Serve each page below its name; yield the server's addresses by name.

    What `pages` holds at the moment of a request counts.
    """

    def answers(connection: socket.socket) -> None:
        while True:
            name = request(connection).split()[1].removeprefix("/")
            connection.sendall(reply(pages[name].encode()))

    with serving(answers) as server:
        yield {name: server.url(f"/{name}") for name in pages}


def configured(file: Path, urls: Mapping[str, str]) -> str:
    """Write a configuration with these servers and nothing else; return its path."""
    servers = "".join(f'      - {{name: {name}, url: "{url}"}}\n' for name, url in urls.items())
    file.write_text(
        "sources:\n"
        "  host: {enabled: false}\n"
        "  network: {enabled: false}\n"
        "  process: {enabled: false}\n"
        "  inference:\n    interval: 1s\n    local: false\n    probe: {enabled: false}\n"
        f"    servers:\n{servers}"
    )
    return str(file)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The daemon's page while it reads all recorded pages, one server for each."""
    file = tmp_path_factory.mktemp("replay") / "flopwatch.yaml"
    with replaying({version: recorded(version) for version in V1 + V0}) as urls:
        port = free_port()
        command = [sys.executable, "-m", "exporter", "run", "--listen", f"127.0.0.1:{port}"]
        daemon = Daemon([*command, "--config", configured(file, urls)], port)
        try:
            daemon.wait_for("/-/ready", ready)
            yield daemon.get("/metrics", Accept="text/plain")[1]
        finally:
            daemon.process.kill()
            daemon.process.communicate()


@pytest.mark.parametrize("version", V1 + V0)
def test_histograms_are_the_servers_own(published: str, version: str) -> None:
    """Count, sum and each bucket, added up over the engines of a server."""
    theirs, ours = Read(recorded(version)), Read(published, version)
    names = HISTOGRAMS_V0 if version in V0 else HISTOGRAMS_V1

    for our, their in names.items():
        wanted = theirs.histogram(their)
        if our == "llm_tpot_seconds":
            # Requests of one token have no time per further token; vLLM observes 0 for them.
            single = theirs.total("vllm:request_generation_tokens_bucket", le="1.0")
            wanted = {k: v if k == "sum" else v - single for k, v in wanted.items()}
        assert ours.histogram(our) == wanted, our
    for absent in HISTOGRAMS_V1.keys() - names.keys():
        assert f"{absent}_count" not in ours.names()


@pytest.mark.parametrize("version", V1 + V0)
def test_counters_and_gauges_are_the_servers_own(published: str, version: str) -> None:
    """Tokens, requests at work and waiting, preemptions, prefix cache, and how requests ended."""
    theirs, ours = Read(recorded(version)), Read(published, version)

    for (our, which), their in (VALUES_V0 if version in V0 else VALUES_V1).items():
        label = {"llm_tokens_total": "direction", "llm_requests_total": "outcome"}.get(our)
        found = ours.total(our, **({} if label is None else {label: which}))
        assert found == sum(map(theirs.total, their)), (our, which)
    ended = ours.by("llm_requests_total", "outcome")
    ended.pop("rejected", None)
    assert ended == theirs.by("vllm:request_success_total", "finished_reason")
    answered = theirs.by("http_requests_total", "status")
    assert ours.by("llm_http_responses_total", "code") == answered
    if version in V0:
        assert not NOT_IN_V0 & ours.names()


def test_each_model_keeps_its_name(published: str) -> None:
    """A server's series carry the model that its page names, and no other server's."""
    for version in V1 + V0:
        assert Read(published, version).models() == Read(recorded(version)).models()


def test_the_recordings_are_worth_comparing() -> None:
    """What is compared is not all zeros: there is load, waiting, two engines, a warm cache."""
    loaded = Read(recorded("0.32.0-cpu-underload"))
    assert loaded.total("vllm:num_requests_running") == 6
    assert loaded.total("vllm:num_requests_waiting") == 16
    assert Read(recorded("0.32.0-cpu")).total("vllm:prefix_cache_hits_total") == 19968
    engines = Read(recorded("0.32.0-cpu-dp2")).by("vllm:generation_tokens_total", "engine")
    assert engines == {"0": 2239, "1": 2091}


def test_promtool_accepts_the_published_page(published: str, tool: Callable[[str], str]) -> None:
    """No lint, no syntax error, with six servers on the page."""
    result = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=published, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert (result.returncode, result.stderr) == (0, "")


def test_a_server_that_changes_takes_its_old_series_along(start: Start, tmp_path: Path) -> None:
    """Restarted, with another model, of another release: what the page says now, and only that."""
    counted = Read(recorded("0.32.0-cpu"))
    assert counted.total("vllm:time_to_first_token_seconds_count") == 225
    pages = {"swapped": recorded("0.32.0-cpu")}
    later = {
        "restarted": recorded("0.32.0-cpu-cold"),
        "other model": recorded("0.32.0-cpu").replace("mid-llama", "other-llama"),
        "other deployment": recorded("0.32.0-cpu-apiservers2"),
        "other release": recorded("0.4.x-v0-cpu-2024-06"),
    }
    with replaying(pages) as urls:
        daemon = start("--config", configured(tmp_path / "flopwatch.yaml", urls))
        settled(daemon, pages["swapped"])
        before = Read(daemon.get("/metrics")[1], "swapped").names()
        for page in later.values():
            pages["swapped"] = page
            ours = settled(daemon, page)
            assert ours.models() == Read(page).models(), "and the former model is gone"
            assert ours.total("llm_tokens_total") == tokens(Read(page))
    assert "llm_queue_seconds_count" in before
    assert "llm_queue_seconds_count" not in ours.names(), "this release does not measure it"


def tokens(theirs: Read) -> float:
    return theirs.total("vllm:prompt_tokens_total") + theirs.total("vllm:generation_tokens_total")


def settled(daemon: Daemon, page: str) -> Read:
    """Return our page once it has the recorded page's model and number of first tokens.

    On the way there it never has two models: one read is shown whole. What is derived follows.
    """
    theirs = Read(page)
    (model,) = theirs.models()
    count = theirs.total("vllm:time_to_first_token_seconds_count")

    def arrived(_: int, text: str) -> bool:
        ours = Read(text, "swapped")
        assert len(ours.models("llm_tokens_total")) <= 1
        return ours.models() == {model} and ours.total("llm_ttft_seconds_count") == count

    return Read(daemon.wait_for("/metrics", arrived), "swapped")
