"""`flopwatch diagnose` and `capture`, through the command line, on pages of our own daemon."""

from __future__ import annotations

import json
import random
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

import pytest

from exporter.derive import Memory
from exporter.derive.diagnosis import diagnosis
from exporter.samples import EMPTY_SHAPE, Health, Sample, SourceView, View, in_columns
from tests.commands.captures import page
from tests.derive.test_diagnosis import BOARDS, RUN, WORKS, gpu, of_run
from tests.test_command import flopwatch
from tests.test_daemon import Daemon, free_port, ready


def diagnosed(busy: float, memory: float = 0.8, **shares: float) -> list[Sample]:
    """Return what the derivation says once an answer has stood."""
    derivation = diagnosis()
    kept, said = Memory(), []
    for now in range(1000, 1065, 5):
        board = [*gpu(0, busy, memory, moment=now), *gpu(1, busy, memory, moment=now)]
        batch = in_columns([*WORKS, *board, *of_run(**shares)], EMPTY_SHAPE)
        view = View((SourceView("all", "gpu", "up", Health(), batch=batch, age=0.0),), ())
        kept.begin(now)
        said = list(derivation.function(view, kept, float(now)))
    return said


def saved(path: Path, samples: list[Sample]) -> Path:
    path.write_bytes(page(samples))
    return path


WORDS = {
    "memory_bound_severe": "Memory-bound (severe)",
    "software_overhead": "Software overhead / data loading",
    "communication_bound": "Communication-bound",
    "memory_bandwidth_bound": "Memory-bandwidth-bound",
    "efficient": "Efficient (near peak)",
    "mixed": "Mixed bottleneck (needs detailed profile)",
}


@pytest.mark.parametrize("bottleneck", WORDS)
def test_each_bottleneck_is_told_in_the_five_steps(tmp_path: Path, bottleneck: str) -> None:
    """With the specification's words, what decided, and a command to run."""
    file = saved(tmp_path / "page.prom", diagnosed(**BOARDS[bottleneck]))

    result = flopwatch("diagnose", str(file))

    assert (result.returncode, result.stderr) == (0, "")
    text = result.stdout
    steps = [text.index(f"\n{n}. ") for n in range(1, 6)]
    assert steps == sorted(steps)
    assert f"2. Hypothesize: {WORDS[bottleneck]}" in text
    assert "gpu_utilization" in text[steps[1] : steps[2]]
    assert "torch.profiler.profile(" in text[steps[2] :] or "nsys profile" in text[steps[2] :]
    (plain,) = json.loads(flopwatch("diagnose", str(file), "--json").stdout)
    assert (plain["run"], plain["bottleneck"]) == (RUN, bottleneck)


def test_what_decided_is_told_with_the_operators_thresholds(tmp_path: Path) -> None:
    """They stand on the page."""
    file = saved(tmp_path / "page.prom", diagnosed(busy=0.5, memory=0.6, data=0.3))
    text, series = file.read_text(), 'threshold="data_loading"}'
    file.write_text(text.replace(f"{series} 0.1", f"{series} 0.2"))

    text = flopwatch("diagnose", str(file)).stdout

    assert "gpu_utilization 50.0% is < 70.0% (low_utilization)" in text
    assert "memory_used 60.0% is not > 90.0% (full_memory)" in text
    assert "seen: data_loading (data_loading 30.0% is > 20.0% (data_loading))" in text
    assert "what is measured bears it out" in text
    assert "prefetch_factor" in text


def test_problems_of_communication_are_listed_with_what_is_known_of_them(tmp_path: Path) -> None:
    """The six rows of table 16-8, where communication is what limits."""
    file = saved(tmp_path / "page.prom", diagnosed(busy=0.99, communication=0.4, skew=0.3))

    text = flopwatch("diagnose", str(file)).stdout

    assert text.count("\n   - ") == 6
    assert "- slow node (straggler) (seen)" in text
    assert "- PFC storm (RoCEv2) (not known)" in text
    other = saved(tmp_path / "other.prom", diagnosed(busy=0.5, memory=0.6))
    assert "PFC storm" not in flopwatch("diagnose", str(other)).stdout


def test_an_open_question_says_what_is_missing(tmp_path: Path) -> None:
    """Which signal, and which answer hangs on it."""
    file = saved(tmp_path / "page.prom", diagnosed(busy=0.99))

    text = flopwatch("diagnose", str(file)).stdout

    assert "2. Hypothesize: open" in text
    assert "communication is not known, so that it may be Communication-bound" in text


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"# HELP up Up.\n# TYPE up gauge\nup 1\n", "has no diagnosis_signal_ratio"),
        (b"<html>", "not a metrics page"),
        (None, "No such file or directory"),
    ],
)
def test_a_page_that_tells_nothing_is_named(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    """One line, exit code 2."""
    file = tmp_path / "page.prom"
    if content is not None:
        file.write_bytes(content)

    result = flopwatch("diagnose", str(file))

    assert result.returncode == 2
    assert result.stderr.startswith(f"flopwatch: {file}: ")
    assert reason in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_run_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    """No traceback, no empty answer."""
    file = saved(tmp_path / "page.prom", diagnosed(busy=0.8))
    result = flopwatch("diagnose", str(file), "--run", "other")
    assert result.returncode == 2
    assert "nothing is said of run 'other'; there are 'llama'" in result.stderr


@pytest.mark.parametrize("command", [["diagnose"], ["capture", "FILE", "--seconds", "1"]])
def test_a_daemon_that_does_not_answer_is_named(tmp_path: Path, command: list[str]) -> None:
    """With its address; no file is left behind."""
    file = tmp_path / "a.prom"
    url = f"http://127.0.0.1:{free_port()}/metrics"
    words = [str(file) if word == "FILE" else word for word in command]

    result = flopwatch(*words, "--url", url)

    assert result.returncode == 2
    assert result.stderr.startswith(f"flopwatch: {url}: ")
    assert not file.exists()
    assert "--url: no address: " in flopwatch("diagnose", "--url", "no address").stderr


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """The demo's daemon, whose GPUs train; it looks at runs and judges more often than usual."""
    port = free_port()
    config = tmp_path_factory.mktemp("demo") / "flopwatch.yaml"
    config.write_text(
        "training: {interval: 500ms}\ndiagnosis: {interval: 500ms, hold: 1s, window: 15s}\n"
    )

    one = Daemon(
        [
            sys.executable,
            "-m",
            "exporter",
            "demo",
            "-c",
            str(config),
            "--listen",
            f"127.0.0.1:{port}",
        ],
        port,
    )
    try:
        one.wait_for("/-/ready", ready)
        yield one
        assert one.stop()[0] == 0
    finally:
        one.process.kill()
        one.process.communicate()


def test_the_demo_is_captured_and_diagnosed(demo: Daemon, tmp_path: Path) -> None:
    """Over HTTP, and from the file that was captured: the same signals."""
    demo.wait_for(
        "/metrics?group=diagnosis",
        lambda _, body: 'signal="gpu_utilization"' in body,
        seconds=60,
    )
    url, file = f"http://127.0.0.1:{demo.port}/metrics", tmp_path / "a.prom"

    result = flopwatch("capture", str(file), "--url", url, "--seconds", "2", "--every", "1")
    assert (result.returncode, result.stdout) == (0, f"wrote 3 pages to {file}\n")
    again = flopwatch("capture", str(file), "--url", url, "--seconds", "1")
    assert (again.returncode, again.stderr) == (
        2, f"flopwatch: {file}: is there already; captures are not overwritten\n"
    )  # fmt: skip

    (live,) = json.loads(flopwatch("diagnose", "--url", url, "--run", "", "--json").stdout)
    (then,) = json.loads(flopwatch("diagnose", str(file), "--run", "", "--json").stdout)
    assert set(then["signals"]) <= set(live["signals"])
    assert 0 < then["signals"]["gpu_utilization"] <= 1
    assert then["signals"]["memory_used"] == pytest.approx(live["signals"]["memory_used"], rel=0.2)


def push(demo: Daemon, records: list[dict[str, Any]]) -> None:
    """Push records as a job does."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{demo.port}/api/v1/training/steps",
        data=json.dumps(records).encode(), headers={"Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert json.load(answer)["refused"] == []


def train(demo: Daemon, first: int, seconds: float, loss: float, capture: Popen[str]) -> int:
    """Push steps of four ranks, the third of which waits least, while a capture runs."""
    dice, step = random.Random(first), first
    while capture.poll() is None:
        time = max(0.1, dice.gauss(seconds, 0.02))
        push(demo, [
            {
                "run": "real", "step": step, "rank": rank, "seconds": time, "tokens": 1000,
                "scope": "rank", "loss": loss, "memory_bytes": 60e9, "attempt": "a",
                "phases": {"data": time / 4, "communication": time * (0.15 if rank == 2 else 0.35)},
            }
            for rank in range(4)
        ])  # fmt: skip
        step += 1
        threading.Event().wait(0.1)
    assert capture.returncode == 0, capture.communicate()
    return step


def test_a_job_that_pushes_is_captured_twice_verified_and_diagnosed(
    demo: Daemon, tmp_path: Path
) -> None:
    """From the job's own words to the verdict, all of it real but the job."""
    facts = {"kind": "facts", "run": "real", "world_size": 4,
             "local_ranks": {"0": 4, "1": 5, "2": 6, "3": 7}}  # fmt: skip
    push(demo, [facts])
    url, step = f"http://127.0.0.1:{demo.port}/metrics", 1
    files = [tmp_path / "before.prom", tmp_path / "after.prom"]
    for file, seconds, loss in zip(files, (2.0, 1.6), (2.0, 2.004), strict=True):
        words = ["capture", str(file), "--url", url, "--seconds", "8", "--every", "1"]
        command = [sys.executable, "-m", "exporter", *words]
        step = train(demo, step, seconds, loss, Popen(command, text=True, stdout=DEVNULL))

    result = flopwatch("verify", *map(str, files), "--run", "real", "--json")
    assert result.returncode == 0, result
    found = json.loads(result.stdout)
    assert found["speedup"] == pytest.approx(1.25, rel=0.02)
    assert found["beyond_noise"] is True

    (plain,) = json.loads(flopwatch("diagnose", str(files[1]), "--run", "real", "--json").stdout)
    assert plain["signals"]["data_loading"] == pytest.approx(0.25)
    assert plain["signals"]["skew"] == pytest.approx(0.85 / 0.65 - 1, rel=0.01)
    assert plain["causes"]["data_loading"] and plain["causes"]["straggler"]
    # Communication lies between the two thresholds; the demo's GPUs pause to save a checkpoint.
    assert plain["bottleneck"] in {"efficient", "mixed"}
