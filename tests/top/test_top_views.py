"""What is shown of pages that a test has written: names that lie, things that are missing."""

from __future__ import annotations

import io
import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.cells import cell_len

from exporter.__main__ import main
from exporter.clock import SystemClock
from exporter.config import ConfigError
from exporter.top.daemon import Away, Daemon
from exporter.top.screen import State, console, keys, once, pressed
from exporter.top.views import VIEWS
from tests.servers import reply, serving

STATUS = {"flopwatch": {"version": "0.1.0", "uptime_seconds": 5.0}, "sources": [], "diagnoses": []}

HOSTILE = {
    "an escape": ("\x1b[31mred\x1b[0m\x07", r"\x1b[31mred\x1b[0m\x07"),
    "markup": ("[bold red]loud[/bold red] :smile:", "[bold red]loud[/bold red] :smile:"),
    "a script": ("<script>alert(1)</script>", "<script>alert(1)</script>"),
    "a new line": ("one\ntwo\r\tthree", r"one\ntwo\r\tthree"),
    "an override": ("abc\u202etxt.exe", r"abc\u202etxt.exe"),
    "hebrew": ("שלום", "\u2068שלום\u2069"),
    "wide characters": ("模型名称", "模型名称"),
    "quotes": ('it\'s "so" \\ said', 'it\'s "so" \\ said'),
}


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def page_of(name: str) -> bytes:
    """Return a page in which everything is called so."""
    n = escaped(name)
    run, who = f'run="{n}"', f'engine="{n}",model_name="{n}",model_version="",server="{n}"'
    sla = f'sla="{n}",objective="{n}",tier="",model_name="",server=""'
    lines = [
        f'gpu_info{{gpu="0",uuid="u",name="{n}"}} 1',
        'gpu_sm_active_ratio{gpu="0",uuid="u"} 0.5',
        f'gpu_throttle_active{{gpu="0",uuid="u",reason="{n}"}} 1',
        f'gpu_process_memory_bytes{{gpu="0",uuid="u",pid="1",command="{n}"}} 5',
        f'train_run_info{{{run},model_name="{n}"}} 1',
        f'train_mfu_ratio{{{run},convention="causal",peak="{n}"}} 0.4',
        f'train_mfu_loss_ratio{{{run},cause="{n}",evidence="measured"}} 0.4',
        f'train_straggler_score{{{run},rank="{n}"}} 0.4',
        f"train_step{{{run}}} 7",
        f"train_cost_dollars_total{{{run}}} 7",
        f"llm_active_requests{{{who}}} 3",
        f"llm_kv_cache_usage_ratio{{{who}}} 0.99",
        f'sla_objective_info{{sla="{n}",objective="{n}",tier="",signal="x",statement="{n}"}} 1',
        f'sla_state{{{sla},state="violated"}} 1',
        f'sla_breach_cause{{{sla},cause="{n}",evidence="{n}"}} 1',
        f'nic_up{{device="{n}",port="1"}} 1',
        f'nic_device_info{{device="{n}",port="1",role="{n}"}} 1',
    ]
    return ("\n".join(lines) + "\n").encode()


def status_of(name: str) -> dict[str, object]:
    fault = {"part": name, "reason": "io", "detail": name}
    return {
        "flopwatch": {"version": name, "uptime_seconds": 5.0},
        "sources": [{"name": name, "state": "degraded", "faults": [fault]}],
        "diagnoses": [{"run": name, "bottleneck": name, "causes": [name], "confirmed": True}],
        "story": {"number": 1, "chapters": 2, "title": name, "seconds_left": 3},
    }


@contextmanager
def daemon(page: bytes, status: object) -> Iterator[Daemon]:
    """Serve one page and one status document: the page is asked for first."""
    body = status if isinstance(status, bytes) else json.dumps(status).encode()
    done = threading.Event()

    def script(connection: object) -> None:
        head = connection.recv(65536).decode()  # type: ignore[attr-defined]
        answer = page if head.startswith("GET /metrics ") else body
        connection.sendall(reply(answer, Connection="close"))  # type: ignore[attr-defined]
        done.set()

    with serving(script) as server:
        yield Daemon(server.url(path=""), SystemClock())


def shown(asked: Daemon, width: int = 80) -> str:
    """Return all views, as a pipe gets them."""
    out = console(io.StringIO(), width)
    return "".join(once(asked, view, out, SystemClock()) for view in VIEWS)


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("width", [80, 160])
def test_names_that_lie_are_shown_as_text(kind: str, width: int) -> None:
    name, wanted = HOSTILE[kind]
    with daemon(page_of(name), status_of(name)) as asked:
        text = shown(asked, width)
    assert wanted in text
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "\r" not in text
    assert all(cell_len(line) <= width for line in text.splitlines())


def test_a_name_of_a_thousand_characters_takes_one_cell() -> None:
    name = "x" * 1000
    with daemon(page_of(name), status_of(name)) as asked:
        text = shown(asked)
    assert all(cell_len(line) <= 80 for line in text.splitlines())
    assert "xx…" in text


def test_what_is_not_told_is_a_dash_and_no_zero() -> None:
    """A GPU of which only the name is known, a server that only lives."""
    page = b'gpu_info{gpu="0",uuid="u",name="X"} 1\nllm_server_info{server="s",engine="e"} 1\n'
    with daemon(page, STATUS) as asked:
        text = shown(asked)
    rows = [line.split() for line in text.splitlines() if line.startswith(("  0 ", "s "))]
    assert rows
    for row in rows:
        assert set(row[1:]) <= {"-"}, row


def test_a_page_without_anything_says_so() -> None:
    with daemon(b"up 1\n", STATUS) as asked:
        text = shown(asked)
    for words in ("no GPU is known here", "nothing is promised", "no price is known"):
        assert words in text


def test_a_lost_gpu_is_called_so() -> None:
    page = b'gpu_info{gpu="0",uuid="u",name="X"} 1\ngpu_up{gpu="0",uuid="u"} 0\n'
    with daemon(page, STATUS) as asked:
        assert "lost" in shown(asked)


def test_a_gpu_that_pods_share_is_not_told_to_be_the_last_ones() -> None:
    lines = ['gpu_info{gpu="0",uuid="u",name="X"} 1']
    who = ("a", "b", "b")
    lines += [
        f'gpu_allocation_info{{gpu="0",uuid="u",namespace="n",pod="{pod}",container="{at}"}} 1'
        for at, pod in enumerate(who)
    ]
    with daemon("\n".join((*lines, "")).encode(), STATUS) as asked:
        assert "n/a +1" in shown(asked)


def test_a_notice_of_the_cloud_stands_above_each_view() -> None:
    deadline = SystemClock().time() + 100
    page = b'spot_interruption_notice{provider="aws"} 1\n'
    page += b'spot_interruption_deadline_timestamp_seconds{provider="aws",action="stop"} '
    with daemon(page + f"{deadline}\n".encode(), STATUS) as asked:
        lines = [line for line in shown(asked).splitlines() if "takes this machine away" in line]
    assert len(lines) == len(VIEWS)
    assert "(stop) in" in lines[0]


@pytest.mark.parametrize(
    ("page", "status", "said"),
    [
        (b"<html>", STATUS, "not a metrics page"),
        (b"up 1\n", b"<html>", "the status document is no JSON"),
        (b"up 1\n", [1], "the status document is none"),
        (b"up 1\n", b"[" * 200_000, "the status document is no JSON"),
    ],
)
def test_what_is_no_daemon_is_told_as_such(page: bytes, status: object, said: str) -> None:
    with daemon(page, status) as asked, pytest.raises(Away, match=said):
        asked.ask()


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"flopwatch": 5, "sources": {}, "diagnoses": "x", "story": []},
        {"sources": [1, {"name": 5, "state": None, "faults": [3]}], "diagnoses": [{"run": {}}]},
        {"flopwatch": {"uptime_seconds": True}, "story": {"seconds_left": "x"}},
    ],
)
def test_a_status_document_of_another_shape_breaks_nothing(status: object) -> None:
    with daemon(page_of("x"), status) as asked:
        assert "50%" in shown(asked)


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"9" * 400])
def test_a_status_document_with_numbers_that_are_none_breaks_nothing(number: bytes) -> None:
    status = b'{"flopwatch":{"uptime_seconds":%b},"story":{"number":%b,"seconds_left":%b}}'
    with daemon(page_of("x"), status % ((number,) * 3)) as asked:
        assert "50%" in shown(asked)


NUMBERS = (
    "gpu_xid_errors_total",
    "gpu_sm_active_ratio",
    "gpu_temperature_celsius",
    "cost_dollars_per_hour",
    "spot_interruption_deadline_timestamp_seconds",
)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_a_value_that_is_no_number_is_a_dash(value: str) -> None:
    """`top` fell over NaN of an XID counter and of a deadline; `inf $ an hour` was shown."""
    page = re.sub(rb" [0-9.]+$", b" " + value.encode(), page_of("x"), flags=re.MULTILINE)
    page += b'gpu_info{gpu="0",uuid="u",name="X"} 1\nspot_interruption_notice{provider="a"} 1\n'
    for name in NUMBERS:
        page += f'{name}{{gpu="0",sensor="core"}} {value}\n'.encode()
    with daemon(page, STATUS) as asked:
        text = shown(asked)
    assert "takes this machine away" in text
    assert "nan" not in text
    assert "inf " not in text


def test_a_server_that_makes_less_than_a_token_a_second_is_told_in_tokens() -> None:
    """0.5 tokens a second were shown as 50 %."""
    who = 'sla="s",objective="min_tps",tier="",model_name="",server=""'
    page = f'sla_state{{{who},state="violated"}} 1\nsla_measured_tokens_per_second{{{who}}} 0.5\n'
    with daemon(page.encode(), STATUS) as asked:
        (line,) = [line for line in shown(asked).splitlines() if line.startswith("min_tps")]
    assert "%" not in line
    assert " 0.5 " in line


def test_where_no_rank_is_behind_none_is_called_the_slowest() -> None:
    page = b'train_run_info{run="r"} 1\ntrain_straggler_score{run="r",rank="0"} 0\n'
    with daemon(page, STATUS) as asked:
        assert "slowest" not in shown(asked)


def test_keys_are_taken_apart() -> None:
    assert [*keys(b"q\x1b[A\x1b[Zs\x1bOB")] == ["q", "\x1b[A", "\x1b[Z", "s", "\x1b[B"]
    assert [*keys(b"\x1b")] == ["\x1b"]


def test_keys_choose() -> None:
    state = State()
    assert pressed(state, "3").view == 2
    assert pressed(State(len(VIEWS) - 1), "\t").view == 0
    assert pressed(state, "\x1b[Z").view == len(VIEWS) - 1
    assert pressed(state, "s").order == 1
    assert pressed(state, "x") == state
    assert pressed(state, "7") == state
    assert pressed(state, "q").ended


def test_without_rich_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name == "rich" else real(name, *more),
    )
    with pytest.raises(SystemExit) as ended:
        main(["top", "--once"])
    assert ended.value.code == 2
    assert "pip install 'flopwatch[top]'" in capsys.readouterr().err


def test_nothing_of_rich_is_loaded_by_the_other_commands() -> None:
    import subprocess

    code = (
        "import sys; from exporter.__main__ import _parser; _parser(); print('rich' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_socket_is_asked_as_well(tmp_path: Path) -> None:
    """`unix:///path`: the socket of a daemon that listens there too."""
    import socket

    path = tmp_path / "push.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            head = connection.recv(65536)
            body = json.dumps(STATUS).encode() if b"/api/v1/status" in head else page_of("x")
            connection.sendall(reply(body))
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        frame = Daemon(f"unix://{path}", SystemClock()).ask()
        assert [gpu.name for gpu in frame.gpus] == ["x"]
    finally:
        thread.join(5)
        listener.close()


def test_an_address_with_a_password_is_refused() -> None:
    with pytest.raises(ConfigError, match="without user name or password"):
        Daemon("http://user:secret@host", SystemClock())
