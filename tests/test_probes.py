"""Availability by real daemons that probe real servers: outages, hangs, restarts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.page_engine import Engine
from tests.test_daemon import Daemon, Start, start  # noqa: F401 - a fixture
from tests.test_state import at_least, end, kill, saved, shown, values

OF = 'model_name="",objective="uptime",server="a",sla="chat"'
EVENTS = f'sla_events_total{{{OF},tier=""}}'
GOOD = f'sla_good_events_total{{{OF},tier=""}}'


def state_of(name: str) -> str:
    return f'sla_state{{{OF},state="{name}",tier=""}}'


def probes(outcome: str, kind: str = "health", server: str = "a") -> str:
    return f'llm_probes_total{{kind="{kind}",outcome="{outcome}",server="{server}"}}'


@pytest.fixture
def engine() -> Iterator[Engine]:
    one = Engine()
    yield one
    one.close()


def write(file: Path, engine: Engine, state: Path | None = None, **more: str) -> Path:
    """Write a configuration that probes each 200 ms; `more` are servers beside `a`."""
    servers = {"a": engine.origin, **more}
    listed = ", ".join(f'{{name: {name}, url: "{url}/metrics"}}' for name, url in servers.items())
    file.write_text(
        f"""
state_directory: {"null" if state is None else state}
state_interval: 1s
sources:
  host: {{enabled: false}}
  network: {{enabled: false}}
  serving: {{interval: 200ms}}
  inference:
    interval: 200ms
    probe: {{interval: 200ms, timeout: 500ms}}
    servers: [{listed}]
sla:
  chat:
    {{per: server, servers: [a], window: 1m, windows: [1m], minimum_events: 10,
      objectives: {{uptime: "> 90%"}}}}
"""
    )
    return file


def test_an_outage_is_told_and_forgiven(start: Start, engine: Engine, tmp_path: Path) -> None:  # noqa: F811
    """Met while the server answers, violated while it says it cannot, met again after that."""
    daemon = start("--config", str(write(tmp_path / "c.yaml", engine)))
    at_least(daemon, state_of("met"), 1)
    engine.health = 503
    down = at_least(daemon, state_of("violated"), 1)
    assert down['llm_probe_up{kind="health",server="a"}'] == 0
    assert down['flopwatch_source_up{source="inference:a"}'] == 1
    assert down[EVENTS] - down[GOOD] >= 2
    engine.health = 200
    at_least(daemon, 'llm_probe_up{kind="health",server="a"}', 1)
    page = at_least(daemon, EVENTS, 60)
    # What was asked is what was counted; its own log agrees.
    assert page[EVENTS] <= page[probes("success")] + page[probes("failure")]
    assert page[probes("success")] + page[probes("failure")] <= len(
        [path for _, path, _ in engine.asked if path == "/health"]
    )


def test_a_server_that_is_gone_altogether_is_still_judged(
    start: Start, engine: Engine, tmp_path: Path,  # noqa: F811
) -> None:  # fmt: skip
    """No page, no health: that is what an availability objective is for."""
    daemon = start("--config", str(write(tmp_path / "c.yaml", engine)))
    at_least(daemon, state_of("met"), 1)
    engine.close()
    down = at_least(daemon, state_of("violated"), 1)
    assert down['flopwatch_source_up{source="inference:a"}'] == 0


def test_a_server_that_hangs_costs_no_other_anything(
    start: Start, engine: Engine, tmp_path: Path,  # noqa: F811
) -> None:  # fmt: skip
    """Its health hangs: its own page and the probes of another server go on at their beat."""
    other = Engine()
    try:
        daemon = start("--config", str(write(tmp_path / "c.yaml", engine, b=other.origin)))
        shown(daemon, probes("success"), probes("success", server="b"))
        engine.hang.clear()
        before = at_least(daemon, probes("failure"), 1)
        begun = time.monotonic()
        after = at_least(daemon, probes("failure"), 4)
        passed = time.monotonic() - begun
        assert passed > 1.0  # one after the other, never two at once
        more = after[probes("success", server="b")] - before[probes("success", server="b")]
        assert more >= passed / 0.2 / 2
        assert after[probes("failure", server="b")] == 0
        reads = 'flopwatch_source_reads_total{source="inference:a"}'
        assert after[reads] - before[reads] >= passed / 0.2 / 2
    finally:
        other.close()


@pytest.mark.parametrize("ending", [end, kill])
def test_a_restart_of_the_daemon_is_no_outage(
    start: Start, ending: Callable[[Daemon], None], engine: Engine, tmp_path: Path,  # noqa: F811
) -> None:  # fmt: skip
    """The window goes on, and no counter falls but to begin anew."""
    state = tmp_path / "state"
    config = write(tmp_path / "c.yaml", engine, state)
    daemon = start("--config", str(config))
    at_least(daemon, state_of("met"), 1)
    at_least(daemon, EVENTS, 30)
    saved(state, time.time() + 0.1)
    before = values(daemon.get("/metrics")[1])
    ending(daemon)
    engine.asked.clear()

    heir = start("--config", str(config))
    page = heir.wait_for("/metrics", lambda _, text: f"\n{EVENTS} " in text)
    first = values(page)
    begun = time.monotonic()
    last = first[EVENTS]
    assert last >= before[EVENTS] or last <= len(engine.asked)
    assert (last >= before[EVENTS]) is (ending is end)
    while time.monotonic() - begun < 3:
        now = values(heir.get("/metrics")[1])
        assert now.get(state_of("violated"), 0) == 0
        assert now[EVENTS] >= last
        last = now[EVENTS]
        threading.Event().wait(0.05)
    assert now[GOOD] == now[EVENTS]
    assert now[probes("failure")] == 0
    # fifteen probes since the start are not thirty: the window knows of those before
    assert now[state_of("met")] == 1


def test_completions_are_asked_for_where_that_is_wanted(
    start: Start, engine: Engine, tmp_path: Path,  # noqa: F811
) -> None:  # fmt: skip
    """With the model that the page names; uptime then rests on them; by default there are none."""
    config = write(tmp_path / "c.yaml", engine)
    text = config.read_text().replace(
        "timeout: 500ms}", "timeout: 500ms, completion: true, completion_interval: 1s}"
    )
    engine.serve(5, 0.2)
    config.write_text(text)
    engine.completion = (500, b"")
    daemon = start("--config", str(config))
    page = at_least(daemon, probes("failure", "completion"), 2)
    assert page[probes("failure")] == 0
    assert b'"model": "m"' in engine.completions[0]
    judged = at_least(daemon, EVENTS, 1)
    assert judged[GOOD] == 0


def test_by_default_no_completion_is_asked_for(
    start: Start, engine: Engine, tmp_path: Path,  # noqa: F811
) -> None:  # fmt: skip
    """A probe is no traffic."""
    daemon = start("--config", str(write(tmp_path / "c.yaml", engine)))
    at_least(daemon, probes("success"), 5)
    assert {(method, path) for method, path, _ in engine.asked} == {
        ("GET", "/metrics"), ("GET", "/health"),
    }  # fmt: skip
