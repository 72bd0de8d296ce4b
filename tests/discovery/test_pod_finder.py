"""Inference servers among the node's pods: who is read, who is asked, at which port."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.discovery import Answer, PodFinder, Target
from exporter.discovery.annotations import Misstated, stated
from exporter.discovery.pods import candidate
from exporter.formats.podlist import Pod, pod_of
from tests.api_server import pod
from tests.fakes import FakeClock

ENGINES = ("vllm", "sglang", "llamacpp")
SHELL = ["/bin/bash", "-c", "exec vllm serve meta-llama/Llama --port 9100"]


def made(name: str = "vllm-0", **options: Any) -> Pod:
    found = pod_of(pod(name, **options))
    assert found is not None
    return found


def notes(**options: str) -> dict[str, str]:
    """Return annotations: `ours_port` is `flopwatch.io/port`, `port` Prometheus'."""
    return {
        ("flopwatch.io/" if key.startswith("ours_") else "prometheus.io/")
        + key.removeprefix("ours_").replace("_", "-"): value
        for key, value in options.items()
    }


class Probe:
    """Asks nobody; answers as it is told, and keeps what was asked."""

    def __init__(self, **answers: Answer) -> None:
        self.asked: list[str] = []
        self.answer = Answer("server")
        self.by_url: dict[str, Answer] = {}

    def __call__(self, url: str, known: bool) -> Answer:
        self.asked.append(url)
        return self.by_url.get(url, self.answer)


class Node:
    """The pods of a node, and a finder that looks at them."""

    def __init__(self, *pods: Pod, **options: Any) -> None:
        self.pods = list(pods)
        self.clock = FakeClock()
        self.probe = Probe()
        self.finder = PodFinder(
            lambda: self.pods, self.probe, self.clock, engines=ENGINES, **options
        )

    def urls(self) -> list[str]:
        return [one.url for one in self.finder.look().targets]


# ---- that say so themselves -------------------------------------------------------------------


def test_a_pod_that_says_so_is_read_without_a_question() -> None:
    """By our annotations: what is a server needs no proof."""
    one = made(
        annotations=notes(
            ours_scrape="true", ours_port="8000", ours_path="/m", ours_engine="vllm",
            ours_model_name="llama", port="1", path="/other",
        )
    )  # fmt: skip
    node = Node(one)
    assert node.finder.look().targets == (
        Target(
            "serving:vllm-0", "http://10.0.0.7:8000/m", "kubernetes", "vllm", "llama",
            identity=f"{one.uids[0]}@{'a1' * 6}", pod=("serving", "vllm-0"),
        ),
    )  # fmt: skip
    assert node.probe.asked == []


def test_several_ports_are_several_servers() -> None:
    """Each under a name of its own; a name of a port is its number."""
    ports = [{"containerPort": 8001, "name": "two"}]
    one = made(annotations=notes(ours_scrape="true", ours_port="8000, two"), ports=ports)
    assert [(t.name, t.url) for t in Node(one).finder.look().targets] == [
        ("serving:vllm-0:8000", "http://10.0.0.7:8000/metrics"),
        ("serving:vllm-0:8001", "http://10.0.0.7:8001/metrics"),
    ]


def test_a_pod_of_version_six_is_asked_in_brackets() -> None:
    one = made(ip="fd00::7", annotations=notes(ours_scrape="true", ours_port="1"))
    assert Node(one).urls() == ["http://[fd00::7]:1/metrics"]


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        (notes(ours_scrape="yes"), '"true" or "false" is wanted, not \'yes\''),
        (notes(ours_scrape="true", ours_port="99999"), "'99999' is no port"),
        (notes(ours_scrape="true", ours_port="web"), "'web' is no port, nor a name of one"),
        (notes(ours_scrape="true", ours_port=",".join("123456789")), "more than 8 ports"),
        (notes(ours_scrape="true"), "port is needed"),
        (notes(ours_scrape="true", ours_port="1", ours_path="x y"), "path: 'x y'"),
        (notes(ours_scrape="true", ours_port="1", ours_scheme="gopher"), "scheme"),
        (notes(ours_scrape="true", ours_port="1", ours_engine="vlm"), "'vlm' is not known"),
        (notes(ours_scrape="true", ours_port="1", ours_model_name="\n"), "model-name"),
        (notes(ours_scrap="true"), "flopwatch.io/scrap is not known; there are"),
    ],
    ids=["switch", "port", "name", "ports", "none", "path", "scheme", "engine", "model", "key"],
)
def test_a_mistake_in_our_annotations_is_told(annotations: dict[str, str], said: str) -> None:
    """device-metrics-exporter 250: ignored silently. With the pod's name; others are read on."""
    sound = made("sound", annotations=notes(ours_scrape="true", ours_port="1"))
    look = Node(made("wrong", annotations=annotations), sound).finder.look()
    assert [one.name for one in look.targets] == ["serving:sound"]
    (fault,) = look.faults
    assert (fault.part, fault.reason) == ("pod serving/wrong", "malformed")
    assert said in fault.detail


def test_a_mistake_in_somebody_elses_annotations_is_passed_over() -> None:
    """It is not meant for us; the port is then what else speaks for one."""
    told = stated(made(annotations=notes(scrape="true", port="x", path="m", scheme="ftp")), ENGINES)
    assert (told.suspected, told.ports, told.path, told.scheme) == (True, (), "", "http")


# ---- that may be servers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "urls"),
    [
        ({"annotations": notes(scrape="true", port="8000")}, ["http://10.0.0.7:8000/metrics"]),
        ({"annotations": notes(scrape="true", port="8443", scheme="https", path="/p")},
         ["https://10.0.0.7:8443/p"]),
        ({"annotations": {"serving.kserve.io/enable-prometheus-scraping": "true",
                          "prometheus.kserve.io/port": "8080", "prometheus.kserve.io/path": "/k"}},
         ["http://10.0.0.7:8080/k"]),
        ({"command": SHELL}, ["http://10.0.0.7:9100/metrics"]),
        ({"command": ["python3", "-m", "sglang.launch_server"], "args": ["--port=31000"]},
         ["http://10.0.0.7:31000/metrics"]),
        ({"image": "vllm/vllm-openai:v0.32", "args": ["--model", "m", "--port", "8123"]},
         ["http://10.0.0.7:8123/metrics"]),
        ({"image": "registry.example:5000/mirror/vllm/vllm-openai@sha256:abc"},
         ["http://10.0.0.7:8000/metrics"]),
        ({"image": "nvcr.io/nvidia/tritonserver:26.01-py3"}, ["http://10.0.0.7:8002/metrics"]),
        ({"image": "nvcr.io/nim/meta/llama:1"},
         ["http://10.0.0.7:8000/v1/metrics", "http://10.0.0.7:8000/metrics"]),
        ({"labels": {"app.kubernetes.io/name": "sglang"}}, ["http://10.0.0.7:30000/metrics"]),
        ({"labels": {"llm-d.ai/inferenceServing": "true"},
          "ports": [{"containerPort": 8200, "name": "metrics"}]}, ["http://10.0.0.7:8200/metrics"]),
        ({"gpus": 1, "ports": [{"containerPort": 7000, "name": "http"},
                               {"containerPort": 7001, "name": "metrics"}]},
         ["http://10.0.0.7:7001/metrics", "http://10.0.0.7:7000/metrics"]),
    ],
    ids=["prometheus", "prometheus-all", "kserve", "shell", "module", "image", "mirror", "triton",
         "nim", "label", "llm-d", "gpu-and-port"],
)  # fmt: skip
def test_what_speaks_for_a_server_says_where_to_ask(
    options: dict[str, Any], urls: list[str]
) -> None:
    """Annotations, command, image, labels, names of ports: likeliest first."""
    node = Node(made(**options))
    node.probe.answer = Answer("never")
    assert node.urls() == []
    assert node.probe.asked == urls
    node = Node(made(**options))
    assert node.urls() == urls[:1]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gpus": 1},
        {"ports": [{"containerPort": 9100, "name": "metrics"}]},
        {"image": "grafana/grafana:12"},
        {"image": "vllm/vllm-openai:v1", "annotations": notes(ours_scrape="false")},
        {"image": "vllm/vllm-openai:v1", "annotations": notes(scrape="false")},
        {"command": ["tail", "-f", "vllm.log"]},
    ],
    ids=["plain", "gpu", "port", "image", "not-ours", "not-theirs", "tail"],
)
def test_nobody_is_asked_without_a_reason(options: dict[str, Any]) -> None:
    """A pod with a port for metrics is anybody's; and who says no means it."""
    node = Node(made(**options))
    assert (node.urls(), node.probe.asked) == ([], [])


def test_ours_wins_over_theirs() -> None:
    """Prometheus leaves it alone, and we are to read it."""
    one = made(annotations=notes(scrape="false", ours_scrape="true", ours_port="1"))
    assert Node(one).urls() == ["http://10.0.0.7:1/metrics"]


def test_a_pod_is_asked_once_in_its_life() -> None:
    """One GET, however often we look; a container that began anew is another server."""
    one = made(image="vllm/vllm-openai:v1")
    node = Node(one)
    first, *_ = (node.finder.look().targets[0] for _ in range(5))
    assert node.probe.asked == ["http://10.0.0.7:8000/metrics"]
    node.pods = [made(image="vllm/vllm-openai:v1", container="b2" * 32)]
    (second,) = node.finder.look().targets
    assert len(node.probe.asked) == 2
    assert first.identity != second.identity
    assert first.kind == second.kind == "vllm"


def test_one_that_is_loading_is_asked_again_less_and_less_often() -> None:
    node = Node(made(image="vllm/vllm-openai:v1"))
    node.probe.answer = Answer("later", "503")
    for _ in range(600):
        node.finder.look()
        node.clock.advance(1)
    assert 10 <= len(node.probe.asked) <= 15
    node.probe.answer = Answer("server")
    node.clock.advance(60)
    assert node.urls() == ["http://10.0.0.7:8000/metrics"]


def test_a_pod_that_is_no_longer_ready_is_no_longer_read() -> None:
    """And one that is gone leaves nothing behind."""
    sound = made(image="vllm/vllm-openai:v1")
    verdicts: dict[str, Any] = {}
    node = Node(sound, verdicts=verdicts)
    assert node.urls() != []
    node.pods = [made(image="vllm/vllm-openai:v1", ready=False)]
    assert (node.urls(), verdicts) == ([], {})
    node.pods = [made(image="vllm/vllm-openai:v1", phase="Succeeded")]
    assert node.urls() == []


def test_only_a_few_are_asked_at_once() -> None:
    """A node full of pods that do not answer: a look takes four times the patience."""
    pods = [made(f"p{at}", image="vllm/vllm-openai:v1", ip=f"10.0.1.{at}") for at in range(10)]
    node = Node(*pods)
    assert [len(node.urls()) for _ in range(4)] == [4, 8, 10, 10]


def test_llamacpp_is_not_asked_unless_that_is_permitted() -> None:
    """The question resets what others read."""
    one = made(image="ghcr.io/ggml-org/llama.cpp:server")
    node = Node(one)
    assert (node.urls(), node.probe.asked) == ([], [])
    (target,) = Node(one, allow_destructive_read=True).finder.look().targets
    assert target.allow_destructive_read
    noted = made(
        image="ghcr.io/ggml-org/llama.cpp:server",
        annotations={"flopwatch.io/allow-destructive-read": "true"},
    )
    assert Node(noted).urls() == ["http://10.0.0.7:8080/metrics"]


def test_other_namespaces_are_left_alone_where_some_are_named() -> None:
    one, other = (made(namespace=name, image="vllm/vllm-openai:v1") for name in ("a", "b"))
    assert [t.name for t in Node(one, other, namespaces=["b"]).finder.look().targets] == [
        "b:vllm-0"
    ]


def test_our_own_page_is_not_a_servers() -> None:
    """The daemon's pod is annotated for Prometheus, and its page has the names of servers."""
    one = made(annotations=notes(scrape="true", port="9810"))
    node = Node(one, is_own=lambda host, port: (host, port) == ("10.0.0.7", 9810))
    assert (node.urls(), node.probe.asked) == ([], [])


def test_a_candidate_is_not_made_of_every_port() -> None:
    """A pod that declares fifty: three are tried."""
    ports = [{"containerPort": 9000 + at, "name": "http"} for at in range(50)]
    one = candidate(made(image="vllm/vllm-openai:v1", ports=ports), ENGINES)
    assert one is not None
    assert len(one.urls) == 3


def test_engines_of_ones_own_may_be_named() -> None:
    """A mapping of the operator's is as good as ours."""
    one = made(annotations=notes(ours_scrape="true", ours_port="1", ours_engine="mine"))
    with pytest.raises(Misstated):
        stated(one, ENGINES)
    assert stated(one, (*ENGINES, "mine")).engine == "mine"
