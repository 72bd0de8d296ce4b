"""What is remembered over restarts and reloads, by real daemons that are stopped and killed."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.page_engine import Engine
from tests.test_daemon import Daemon, Start, start  # noqa: F401 - a fixture

OF = 'model_name="",objective="ttft_p95",server="a",sla="chat",tier=""'
EVENTS = f"sla_events_total{{{OF}}}"
GOOD = f"sla_good_events_total{{{OF}}}"
BUDGET = f'sla_error_budget_remaining_ratio{{{OF},window="1h"}}'
VIOLATED = f"sla_state{{{OF}}}".replace("tier", 'state="violated",tier')
FILLED = f'sla_window_filled_ratio{{{OF},window="1h"}}'
PAGE_FILLED = 'llm_window_filled_ratio{server="a",window="1h"}'
TELLING = (EVENTS, GOOD, BUDGET, FILLED)


@pytest.fixture
def engine() -> Iterator[Engine]:
    one = Engine()
    yield one
    one.close()


class Traffic:
    """From `begin` on a hundred requests each tenth of a second, two of them too late."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._flow, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def _flow(self) -> None:
        while not self._end.wait(0.1):
            self._engine.serve(98, 0.3)
            self._engine.serve(2, 2.0)

    def stop(self) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()


@pytest.fixture
def traffic(engine: Engine) -> Iterator[Traffic]:
    one = Traffic(engine)
    yield one
    one.stop()


@pytest.fixture
def flow(traffic: Traffic) -> None:
    traffic.begin()


def write(file: Path, engine: Engine, state: Path | None, extra: str = "") -> Path:
    """Write a configuration that reads a server often, and saves each second."""
    kept = "null" if state is None else state
    file.write_text(
        f"""
state_directory: {kept}
state_interval: 1s
reload: {{watch: 0s}}
sources:
  host: {{enabled: false}}
  network: {{enabled: false}}
  serving: {{interval: 200ms, refresh: 2s}}
  inference:
    interval: 200ms
    servers: [{{name: a, url: "{engine.origin}/metrics"}}]
sla:
  chat: {{per: server, window: 1m, windows: [1m, 1h], objectives: {{ttft_p95: "< 500ms"}}}}
{extra}
"""
    )
    return file


def values(page: str) -> dict[str, float]:
    """Return the series of a page."""
    return {
        key: float(value)
        for key, value in re.findall(r"^([a-z_]+(?:\{.*\})?) (\S+)$", page, re.MULTILINE)
    }


def shown(daemon: Daemon, *series: str) -> dict[str, float]:
    """Return the page once it shows all these series."""
    page = daemon.wait_for(
        "/metrics",
        lambda status, text: status == 200 and all(f"\n{one} " in text for one in series),
    )
    return values(page)


def at_least(daemon: Daemon, series: str, value: float) -> dict[str, float]:
    """Return the page once a series has reached a value."""
    page = daemon.wait_for("/metrics", lambda _, text: values(text).get(series, -1e99) >= value)
    return values(page)


def saved(state: Path, after: float) -> None:
    """Wait until the state file has been written after a moment."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if (state / "state.json").exists() and (state / "state.json").stat().st_mtime > after:
            return
        threading.Event().wait(0.05)
    pytest.fail("no state file")


def kill(daemon: Daemon) -> None:
    daemon.process.kill()
    daemon.process.wait(10)


def end(daemon: Daemon) -> None:
    assert daemon.stop()[0] == 0


@pytest.mark.parametrize("ending", [end, kill])
def test_a_restart_of_the_daemon_resets_no_budget_and_pages_nobody(
    start: Start, ending: Callable[[Daemon], None], engine: Engine, traffic: Traffic,  # noqa: F811
    tmp_path: Path,
) -> None:  # fmt: skip
    """Counters, budget and windows go on, what came meanwhile included; nothing is violated."""
    state = tmp_path / "state"
    config = write(tmp_path / "c.yaml", engine, state)
    daemon = start("--config", str(config))
    shown(daemon, EVENTS)
    traffic.begin()
    at_least(daemon, FILLED, 0.001)
    before = at_least(daemon, EVENTS, 2000)
    saved(state, time.time())
    ending(daemon)
    threading.Event().wait(1.0)

    heir = start("--config", str(config))
    page = heir.wait_for("/metrics", lambda _, text: "\nsla_events_total" in text)
    first = values(page)
    assert first[EVENTS] >= before[EVENTS]
    assert first[GOOD] >= before[GOOD]
    assert first[FILLED] > before[FILLED] / 2 > 0  # at once, though it may be of before the end
    assert shown(heir, PAGE_FILLED)[PAGE_FILLED] >= before[FILLED]
    until = time.monotonic() + 3
    last = first[EVENTS]
    while time.monotonic() < until:
        now = values(heir.get("/metrics")[1])
        assert now.get(VIOLATED, 0) == 0
        assert now[EVENTS] >= last
        # 2 of 100 are late, 5 may be: three fifths of the budget are left
        assert now.get(BUDGET, 0.6) == pytest.approx(0.6, abs=0.05)
        last = now[EVENTS]
    traffic.stop()
    served = sum(engine.counts)
    at_least(heir, EVENTS, served)
    threading.Event().wait(0.5)
    assert heir.value(EVENTS) == served  # none was lost, none was counted twice
    assert heir.value(GOOD) == served * 0.98
    log = heir.process
    end(heir)
    assert log.stderr is not None
    assert "state" not in log.stderr.read()


@pytest.mark.usefixtures("flow")
def test_without_a_state_directory_a_restart_begins_anew(
    start: Start, engine: Engine, tmp_path: Path,  # noqa: F811
) -> None:  # fmt: skip
    """The default: nothing is written to the node, and the windows tell that they are empty."""
    config = write(tmp_path / "c.yaml", engine, None)
    daemon = start("--config", str(config))
    before = at_least(daemon, EVENTS, 8000)
    end(daemon)
    heir = start("--config", str(config))
    first = values(heir.wait_for("/metrics", lambda _, text: "\nsla_events_total" in text))
    assert first[EVENTS] < before[EVENTS]
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


@pytest.mark.usefixtures("flow")
@pytest.mark.parametrize(
    "extra", ["log_level: debug", "training_sla: {job_failure_rate: '< 5%'}", "state_interval: 2s"]
)
def test_a_reload_forgets_nothing(
    start: Start, engine: Engine, extra: str, tmp_path: Path,  # noqa: F811
) -> None:  # fmt: skip
    """Whether or not what changed makes the daemon start the derivation anew."""
    state = tmp_path / "state"
    config = write(tmp_path / "c.yaml", engine, state)
    daemon = start("--config", str(config))
    before = at_least(daemon, EVENTS, 5000)
    loaded = "flopwatch_config_last_reload_success_timestamp_seconds"
    at = daemon.value(loaded)
    text = config.read_text().replace("state_interval: 1s\n", "", "state_interval" in extra)
    config.write_text(text + extra + "\n")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_for("/metrics", lambda _, text: values(text).get(loaded) != at)
    last = before[EVENTS]
    until = time.monotonic() + 6  # objectives are judged each two seconds
    while time.monotonic() < until:
        now = values(daemon.get("/metrics")[1])
        # between the end of one and the start of the other there may be none: never a smaller one
        assert now.get(EVENTS, last) >= last
        assert now.get(VIOLATED, 0) == 0
        last = now.get(EVENTS, last)
    assert shown(daemon, *TELLING)[FILLED] >= before[FILLED]
    assert last > before[EVENTS]


@pytest.mark.usefixtures("flow")
def test_an_engine_that_restarts_while_nobody_looks_gives_no_negative_count(
    start: Start, engine: Engine, tmp_path: Path,  # noqa: F811
) -> None:  # fmt: skip
    """Its counters fell while the daemon was away: a restart, counted as one."""
    state = tmp_path / "state"
    config = write(tmp_path / "c.yaml", engine, state)
    daemon = start("--config", str(config))
    before = at_least(daemon, EVENTS, 3000)
    end(daemon)
    served = sum(engine.counts)
    engine.restart()
    heir = start("--config", str(config))
    first = values(
        heir.wait_for("/metrics", lambda _, text: 'llm_resets_total{server="a"} 1' in text)
    )
    assert before[EVENTS] <= first[EVENTS] <= served + sum(engine.counts)
    assert first[VIOLATED] == 0


def test_a_file_that_is_damaged_or_cannot_be_written_costs_one_line(
    start: Start, engine: Engine, tmp_path: Path,  # noqa: F811
) -> None:  # fmt: skip
    """The daemon says so and runs; the next save replaces the file."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "state.json").write_bytes(b"\x00\xff not ours")
    (state / "state.json").chmod(0o600)
    config = write(tmp_path / "c.yaml", engine, state)
    daemon = start("--config", str(config))
    size = shown(daemon, "flopwatch_state_bytes")["flopwatch_state_bytes"]
    assert size == (state / "state.json").stat().st_size
    end(daemon)
    assert daemon.process.stderr is not None
    lines = [line for line in daemon.process.stderr.read().splitlines() if "reason=" in line]
    assert len([line for line in lines if "recovered" not in line]) == 1, lines
    assert f"{state}/state.json: not used: no state of flopwatch" in lines[0]

    (tmp_path / "file").write_text("")
    config = write(tmp_path / "c.yaml", engine, tmp_path / "file")
    daemon = start("--config", str(config))
    down = daemon.wait_for("/metrics", lambda _, text: 'up{source="state"} 0' in text)
    assert 'flopwatch_source_up{source="inference:a"} 1' in down
    end(daemon)
    assert daemon.process.stderr is not None
    lines = [line for line in daemon.process.stderr.read().splitlines() if "source=state" in line]
    assert len(lines) == 1, lines
    assert str(tmp_path / "file") in lines[0]
