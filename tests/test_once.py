"""The commands beside `run`: once, docs and demo, as an operator starts them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from exporter import catalogue as c
from exporter.__main__ import _has_windows
from exporter.exposition import reference
from exporter.samples import EMPTY_SHAPE, Health, Sample, SourceView, View, in_columns
from tests.servers import reply, serving
from tests.test_daemon import Daemon, free_port, ready

PAGE = Path(__file__).parent / "data" / "engines" / "vllm-0.32.0-cpu.prom"


def flopwatch(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "exporter", *arguments],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture
def url() -> Iterator[str]:
    """The address of a server that gives a recorded page, and then again."""
    with serving(*[reply(PAGE.read_bytes())] * 4) as server:
        yield server.url()


def test_once_prints_a_page_that_promtool_accepts(tool: Callable[[str], str], url: str) -> None:
    """The page is all of standard output; what was found is told beside it."""
    result = flopwatch("once", "--server", f"vllm={url}")

    assert result.returncode == 0
    names = {family.name for family in text_string_to_metric_families(result.stdout)}
    assert {"host_load_average", "llm_ttft_seconds", "flopwatch_source_up"} <= names
    assert re.search(r"^host +up", result.stderr, re.MULTILINE)
    assert "Traceback" not in result.stderr
    checked = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=result.stdout, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (checked.returncode, checked.stderr) == (0, "")


def test_once_prints_openmetrics(url: str) -> None:
    """The official parser, which is strict, reads it; the end mark is the last line, once."""
    result = flopwatch("once", "--openmetrics", "--server", f"vllm={url}")

    assert result.returncode == 0
    names = {family.name for family in openmetrics_families(result.stdout)}  # type: ignore[no-untyped-call]
    assert {"host_load_average", "llm_ttft_seconds", "flopwatch_source_up"} <= names
    assert result.stdout.endswith("\n# EOF\n")
    assert result.stdout.count("# EOF") == 1


def test_once_without_a_server_that_answers_is_still_a_page() -> None:
    """One source that fails costs the page only its own series; the command has not failed."""
    result = flopwatch("once", "--server", f"vllm=http://127.0.0.1:{free_port()}/metrics")

    assert result.returncode == 0
    assert "\nhost_load_average" in result.stdout
    assert 'flopwatch_source_up{source="inference:127.0.0.1:' in result.stdout
    assert "llm_ttft_seconds" not in result.stdout


def test_once_stats_add_up(url: str) -> None:
    """Series by group sum to the total, which times nodes over interval is the rate."""
    page = flopwatch("once", "--server", f"vllm={url}").stdout
    result = flopwatch("once", "--stats", "--nodes", "1000", "--server", f"vllm={url}")

    assert result.returncode == 0
    stats = result.stdout
    series = {
        group: int(number)
        for group, number in re.findall(r"^(\w+) +(\d+) series(?:,.*)?$", stats, re.MULTILINE)
    }
    total = series.pop("all")
    assert sum(series.values()) == total
    assert set(series) >= {"host", "serving", "exporter"}
    line = re.compile(r"^1000 such nodes, .* every (\d+) s: ([\d,]+) samples/s$", re.MULTILINE)
    rates = line.findall(stats)
    assert [int(interval) for interval, _ in rates] == [15, 30, 60]
    for interval, rate in rates:
        assert abs(int(rate.replace(",", "")) - total * 1000 / int(interval)) <= 0.5
    # Another read of the same node: the same series but for children that come and go.
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    assert abs(len(lines) - total) <= 5
    assert any(line.startswith("llm_window_seconds{") for line in lines), "and what is derived"
    serving_lines = [line for line in lines if line.startswith("llm_")]
    assert series["serving"] == len(serving_lines)
    assert f'flopwatch_series{{group="serving"}} {series["serving"]}' in lines
    (size,) = re.findall(r"^all .* series, (\d+) bytes$", stats, re.MULTILINE)
    assert abs(int(size) - len(page.encode())) < 0.05 * len(page.encode())


def test_docs_writes_the_reference(tmp_path: Path) -> None:
    """Into the file that is named, which may be there already."""
    file = tmp_path / "METRICS.md"
    file.write_text("old")

    result = flopwatch("docs", str(file))

    assert (result.returncode, result.stdout, result.stderr) == (0, f"wrote {file}\n", "")
    assert file.read_text("utf-8") == reference()


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """A running demo whose temporary files are below `tmp_path`."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    port = free_port()
    command = [sys.executable, "-m", "exporter", "demo", "--listen", f"127.0.0.1:{port}"]
    daemon = Daemon(command, port)
    yield daemon
    daemon.process.kill()
    daemon.process.communicate()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_demo_shows_a_node_and_cleans_up(demo: Daemon, tmp_path: Path, end: int) -> None:
    """A made-up fabric and server on the page; ended, it leaves no file behind."""
    demo.wait_for("/-/ready", ready)
    page = demo.wait_for("/metrics", lambda _, text: "\nllm_ttft_seconds_count{" in text)

    assert re.search(r'^nic_up\{device="mlx5_0",port="1"\} 1$', page, re.MULTILINE)
    assert re.search(r"^llm_ttft_seconds_count\{.*\} [1-9]", page, re.MULTILINE)
    assert 'engine="llamacpp"' in page
    assert "\nhost_load_average" in page
    assert len(list(tmp_path.glob("flopwatch-demo-*"))) == 1
    demo.process.send_signal(end)
    assert demo.process.wait(30) == 0
    assert list(tmp_path.iterdir()) == []
    out, errors = demo.process.communicate()
    assert "not real" in out
    assert "Traceback" not in errors


def test_once_does_not_wait_for_what_is_said_of_training() -> None:
    """On a node with GPUs that trains nothing there is nothing to say, however long one waits."""
    clock = c.GPU_CLOCK_HERTZ(1e9, "0", "GPU-0", "sm")

    def source(name: str, group: str, attempts: int, *samples: Sample) -> SourceView:
        batch = in_columns(samples, EMPTY_SHAPE)
        return SourceView(name, group, "up", Health(attempts=attempts), batch=batch)

    def view(hardware: int) -> View:
        return View(
            (
                source("nvml", c.GPU, 3, clock),
                source("derive:hardware", c.GPU, hardware),
                source("derive:training", c.TRAINING, 1),
                source("derive:diagnosis", c.DIAGNOSIS, 1),
            ),
            (),
        )

    assert _has_windows(view(hardware=9))
    assert not _has_windows(view(hardware=1)), "that comes at once, and is waited for"
