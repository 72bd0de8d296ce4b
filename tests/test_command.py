"""The command line as a person or a service manager uses it: one line for each mistake."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.test_daemon import Daemon, free_port, ready

NOT_AN_ADDRESS = "is not an address such as :9810 or 127.0.0.1:9810"
NOT_A_LEVEL = "input should be 'debug', 'info', 'warning' or 'error'"


def flopwatch(
    *arguments: str, stdout: int | IO[Any] = subprocess.PIPE, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "exporter", *arguments],
        stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize("command", ["run", "demo"])
@pytest.mark.parametrize("listen", ["foo", ":99999", "", " :1", "[::1:5", "a..b:1"])
def test_listen_with_what_is_no_address_is_one_line_and_exit_2(command: str, listen: str) -> None:
    """The option is held to the same rules as the key in the file, and is named."""
    result = flopwatch(command, "--listen", listen)

    assert (result.returncode, result.stderr) == (
        2, f"flopwatch: --listen: {listen!r} {NOT_AN_ADDRESS}\n"
    )  # fmt: skip


@pytest.mark.parametrize("command", ["run", "demo", "once"])
def test_a_log_level_of_the_environment_that_is_none_is_named(command: str) -> None:
    """The variable's name: nobody remembers what an image sets."""
    result = flopwatch(command, FLOPWATCH_LOG_LEVEL="verbose")

    assert result.returncode == 2
    assert result.stderr == f"flopwatch: FLOPWATCH_LOG_LEVEL: {NOT_A_LEVEL}, not 'verbose'\n"


def test_an_empty_log_level_of_the_environment_is_none_at_all() -> None:
    """A chart sets variables that it has no value for."""
    assert flopwatch("once", "--stats", FLOPWATCH_LOG_LEVEL="").returncode == 0


@pytest.mark.parametrize(
    "server", ["http://[::1/metrics", "http://x:99999", "vllm=ftp://x/", "x", "", "http:///metrics"]
)
def test_server_with_what_is_no_address_is_one_line_and_exit_2(server: str) -> None:
    """The option and what was given to it."""
    result = flopwatch("run", "--server", server)

    assert result.returncode == 2
    assert result.stderr == (
        f"flopwatch: --server: {server!r} is not an address such as http://127.0.0.1:8000/metrics\n"
    )


def test_a_server_given_twice_is_one_line_and_exit_2() -> None:
    """Their series would be the same."""
    result = flopwatch("run", *["--server", "http://x:1"] * 2)

    assert (result.returncode, result.stderr) == (
        2, "flopwatch: --server: two servers are named 'x:1'\n"
    )  # fmt: skip


@pytest.mark.parametrize("nodes", ["0", "-1", "x", "1" * 400])
def test_a_fleet_has_at_least_one_node(nodes: str) -> None:
    """Refused with the other mistakes of a command line."""
    result = flopwatch("once", "--stats", f"--nodes={nodes}")

    assert result.returncode == 2
    assert "argument --nodes: a whole number from 1" in result.stderr
    assert "Traceback" not in result.stderr


def test_roofline_tells_the_layer_of_the_seeds_table_with_the_right_intensities() -> None:
    """Table 16-9 has 4.0 for a projection, below the ridge point of 295 that it is said to pass."""
    result = flopwatch("roofline", "--json")

    told = json.loads(result.stdout)
    assert told["ridge_point_flops_per_byte"] == pytest.approx(295.3, abs=0.1)
    found = {
        one["operation"]: (one["flops_per_byte"], one["verdict"]) for one in told["operations"]
    }
    assert found["Q, K or V projection"] == (pytest.approx(4096 / 3), "compute_bound")
    assert found["layer norm"] == (1.25, "memory_bound")
    assert "ridge point 295.3 FLOP/byte" in flopwatch("roofline").stdout


def test_roofline_knows_peaks_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "flopwatch.yaml"
    file.write_text(
        "accelerators: [{name: our-node, peak_flops: {fp32: 2T}, memory_bandwidth: 100G}]"
    )
    words = ("--gpu", "our-node", "--precision", "fp32", "--m", "64", "--n", "64", "--k", "64")

    result = flopwatch("roofline", "--config", str(file), "--json", *words)

    told = json.loads(result.stdout)
    assert told["ridge_point_flops_per_byte"] == pytest.approx(20)
    (product,) = told["operations"]
    assert product["flops_per_byte"] == pytest.approx(2 * 64 / (3 * 4))
    assert product["verdict"] == "memory_bound"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpu", "H1000"), "--gpu: 'H1000' is in no table"),
        (("--precision", "bf17"), "--precision: 'bf17' is none of fp64"),
        (("--gpu", "a100-sxm4-80gb", "--precision", "fp8"), "no fp8 peak is known, only fp64"),
        (("--m", "4096"), "--m, --n, --k: one product of matrices needs all three"),
        (("--heads", "7"), "7 heads do not divide 4096"),
        (("--config", "/none.yaml"), "/none.yaml: No such file"),
    ],
)
def test_roofline_refuses_what_it_does_not_know_with_one_line(
    words: tuple[str, ...], said: str
) -> None:
    result = flopwatch("roofline", *words)

    assert result.returncode == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_check_refuses_what_run_refuses(tmp_path: Path) -> None:
    """A source that cannot be built fails the check too, in the words of `run`."""
    file = tmp_path / "flopwatch.yaml"
    file.write_text('sources: {inference: {servers: [{name: a, url: "http://x:1/é"}]}}\n')

    said = {flopwatch(*command, str(file)).stderr for command in (["check"], ["run", "--config"])}
    assert said == {
        (
            f"flopwatch: {file}: source inference:a:"
            " a URL has neither spaces nor characters beyond ASCII\n"
        )
    }


def test_check_hides_no_source_that_another_machine_would_have(tmp_path: Path) -> None:
    """What is `auto` is listed, wherever the file is checked."""
    file = tmp_path / "flopwatch.yaml"
    file.write_text("sources: {derived: {enabled: false}}\n")
    said = flopwatch("check", str(file)).stdout
    assert "nvml (where there is a GPU)" in said
    assert "kmsg (where there is a GPU)" in said
    assert "derive:hardware" not in said
    assert "derive:serving" in said, "a server may be found"
    assert re.search(r" host,", said)

    file.write_text("sources: {nvml: {enabled: true}}\n")
    assert "where there is" not in flopwatch("check", str(file)).stdout


def test_check_says_what_is_judged_by_a_node_and_what_by_all(tmp_path: Path) -> None:
    """The "total system throughput" was read as that of all nodes, and each node was judged."""
    file = tmp_path / "flopwatch.yaml"
    file.write_text('inference_sla: {throughput: {min_tps: "> 10,000 tokens/s"}}\n')
    said = flopwatch("check", str(file)).stdout
    assert "of each node here, alerts add up the tokens of all nodes" in said
    assert "the rules in alerts/ add up all nodes" in said
    file.write_text("")
    assert "rules in alerts" not in flopwatch("check", str(file)).stdout


def test_docs_into_a_missing_directory_is_one_line_and_exit_1(tmp_path: Path) -> None:
    """The file and the reason."""
    file = tmp_path / "missing" / "x"
    result = flopwatch("docs", str(file))

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"flopwatch: {file}: No such file or directory\n"


@pytest.mark.parametrize("command", ["once", "check", "docs"])
def test_a_full_standard_output_is_one_line_and_exit_1(command: str, tmp_path: Path) -> None:
    """What these commands print is what they are for."""
    (tmp_path / "x").touch()
    with open("/dev/full", "w") as full:
        result = flopwatch(command, *([] if command == "once" else [str(tmp_path / "x")]),
                           stdout=full)  # fmt: skip

    assert result.returncode == 1
    assert result.stderr.endswith("flopwatch: standard output: No space left on device\n")
    assert "Traceback" not in result.stderr


def test_a_reader_that_has_seen_enough_is_no_failure() -> None:
    """`flopwatch once | head -1`."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe:
        result = flopwatch("once", stdout=pipe)

    assert result.returncode == 0
    assert "Traceback" not in result.stderr
    assert "Exception ignored" not in result.stderr


def full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def broken() -> int:
    read, write = os.pipe()
    os.close(read)
    return write


@pytest.fixture(params=[full, broken, None], ids=["full", "pipe without reader", "closed"])
def muted(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """A daemon that cannot print what it has to say."""
    port = free_port()
    command = [sys.executable, "-m", "exporter", "run", "--listen", f"127.0.0.1:{port}"]
    if request.param is None:
        command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    daemon = Daemon.__new__(Daemon)
    output = None if request.param is None else request.param()
    daemon.port = port
    daemon.process = subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, text=True)
    yield daemon
    daemon.process.kill()
    daemon.process.wait()
    assert daemon.process.stderr is not None
    daemon.process.stderr.close()
    if output is not None:
        os.close(output)


def test_a_daemon_whose_output_nobody_takes_goes_on(muted: Daemon) -> None:
    """`flopwatch run | true`, `>/dev/full`, `>&-`: the announcement is a courtesy."""
    muted.wait_for("/-/ready", ready)
    muted.wait_for("/metrics", lambda _, page: announced(page))

    code, _ = muted.stop()
    _, errors = muted.process.communicate()
    assert code == 0
    assert "Traceback" not in errors
    assert "Exception ignored" not in errors


def announced(page: str) -> bool:
    """Tell whether the daemon has been up for longer than it takes to announce itself."""
    reads = re.search(r'^flopwatch_source_reads_total\{source="host"\} (\d+)', page, re.MULTILINE)
    return reads is not None and int(reads[1]) >= 2


def test_an_output_that_knows_ascii_only_is_no_failure(tmp_path: Path) -> None:
    """What it cannot show is escaped."""
    file = tmp_path / "é\x1b.yaml"
    file.touch()
    result = flopwatch("check", str(file), PYTHONIOENCODING="ascii")

    assert result.returncode == 0
    assert result.stdout.startswith(f"{tmp_path}/\\xe9\\x1b.yaml: fine; ")


HANGS_UP = """
import os, signal, sys
class HangUp:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pydantic", "yaml", "asyncio", "fastapi", "uvicorn"} or (
            name in {"exporter.config", "exporter.app"}
        ):
            os.kill(os.getpid(), int(sys.argv[1]))
sys.meta_path.insert(0, HangUp())
from exporter.__main__ import main
main(sys.argv[2:])
"""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1])
@pytest.mark.parametrize("command", ["run", "demo"])
def test_a_signal_while_it_starts_does_not_end_the_daemon(
    command: str, number: signal.Signals, tmp_path: Path
) -> None:
    """One that comes early: at each library that is loaded, the first of them included."""
    file = tmp_path / "flopwatch.yaml"
    file.write_text("listen: 1\n")
    result = subprocess.run(
        [sys.executable, "-c", HANGS_UP, str(int(number)), command, "--config", str(file)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    assert result.returncode == 2, (number, result)
    assert f"{file}: listen:" in result.stderr
