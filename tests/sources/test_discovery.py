"""Discovery as a source: what it counts, what it hands on, and what it says is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from exporter import catalogue as c
from exporter.discovery import (
    Choice,
    Endpoint,
    FileFinder,
    Look,
    Register,
    Static,
    Target,
    choose,
    is_ours,
)
from exporter.samples import Drop, Fault, Sample
from exporter.sources.discovery import DiscoverySource


@dataclass
class Fixed:
    """A finder that finds what it is given."""

    origin: str
    targets: list[Target] = field(default_factory=list)
    faults: tuple[Fault, ...] = ()

    def look(self) -> Look:
        return Look(tuple(self.targets), self.faults)


def target(url: str, origin: str) -> Target:
    return Target(url.removeprefix("http://").partition("/")[0], url, origin)


def source(
    *finders: Fixed,
    static: tuple[Static, ...] = (),
    limit: int = 64,
    ours: tuple[str, ...] = (),
    asked: list[str] | None = None,
) -> tuple[DiscoverySource, Register]:
    register = Register()

    def mine(host: str) -> bool:
        if asked is not None:
            asked.append(host)
        return host in ours

    made = DiscoverySource(finders, static, register, read=len(static), limit=limit, is_ours=mine)
    return made, register


def counts(items: list[Sample | Fault | Drop]) -> dict[str, float]:
    return {
        item.labels[0]: item.value  # type: ignore[misc]
        for item in items
        if isinstance(item, Sample) and item.metric is c.LLM_DISCOVERED_SERVERS
    }


def test_servers_are_counted_by_how_they_became_known() -> None:
    """Places that are looked at count with 0, others not at all."""
    files = Fixed("file", [target("http://a:1/metrics", "file"), target("http://b:1/m", "file")])
    discovery, register = source(files, Fixed("local"), static=(Static("s", Endpoint("s", 1)),))
    assert counts(list(discovery.read())) == {"static": 1, "file": 2, "local": 0}
    assert list(register.targets) == files.targets
    files.targets.pop()
    assert counts(list(discovery.read())) == {"static": 1, "file": 1, "local": 0}
    assert register.version == 2


def test_another_finder_needs_only_an_origin_of_its_own() -> None:
    """A cluster's pods will be one."""
    discovery, _ = source(Fixed("kubernetes", [target("http://a:1/metrics", "kubernetes")]))
    assert counts(list(discovery.read())) == {"static": 0, "kubernetes": 1}


def test_what_is_wrong_in_one_place_costs_no_other() -> None:
    """It is a fault of that part."""
    wrong = Fault("/etc/t.json", "malformed", "line 3")
    local = Fixed("local", [target("http://127.0.0.1:1/metrics", "local")])
    discovery, register = source(Fixed("file", [], (wrong,)), local)
    assert wrong in list(discovery.read())
    assert len(register.targets) == 1


def test_servers_beyond_the_limit_are_told_and_counted() -> None:
    """The first ones are read."""
    many = Fixed("file", [target(f"http://a:{n}/metrics", "file") for n in range(1, 70)])
    discovery, register = source(many)
    items = list(discovery.read())
    assert counts(items)["file"] == len(register.targets) == 64
    assert Drop("max_servers", 5) in items
    (fault,) = [item for item in items if isinstance(item, Fault)]
    assert (fault.part, fault.reason) == ("max_servers", "denied")
    assert fault.detail == "5 servers beyond max_servers (64) are not read"


def test_a_server_configured_by_this_machines_name_is_not_found_again_on_its_port() -> None:
    """Names are looked up where a local port has the same number, and only once."""
    asked: list[str] = []
    local = Fixed("local", [target("http://127.0.0.1:8000/metrics", "local")])
    static = (
        Static("chat", Endpoint("node-7", 8000)),
        Static("far", Endpoint("node-8", 8000)),
        Static("other", Endpoint("node-9", 9000)),
    )
    discovery, register = source(local, static=static, ours=("node-7",), asked=asked)
    for _ in range(3):
        assert counts(list(discovery.read()))["local"] == 0
    assert register.targets == ()
    assert sorted(asked) == ["node-7", "node-8"]

    discovery, register = source(local, static=static[1:], ours=("node-7",))
    list(discovery.read())
    assert register.targets == tuple(local.targets)


def test_this_machine_is_known_by_its_addresses() -> None:
    """By what can be bound here; a name that nobody knows is none of ours."""
    assert is_ours("127.0.0.1")
    assert is_ours("localhost")
    assert not is_ours("192.0.2.1")
    assert not is_ours("no-such-host.invalid")


def test_a_secret_in_a_query_is_no_label(tmp_path: Path) -> None:
    """`__param_token` of a file became the label `server`; a number tells equal names apart."""
    file = tmp_path / "t.yml"
    file.write_text(
        "- targets: ['a:1']\n  labels: {__param_token: s3cret-1}\n"
        "- targets: ['a:1']\n  labels: {__param_token: s3cret-2}\n"
    )
    finder = FileFinder([str(file)], ["vllm"])
    register = Register()
    made = DiscoverySource([finder], (), register, read=0, limit=64, is_ours=is_ours)
    items = list(made.read())
    assert [one.name for one in register.targets] == ["a:1", "a:1-2"]
    assert [one.url[-9:] for one in register.targets] == ["=s3cret-1", "=s3cret-2"]
    assert "s3cret" not in repr(items)


def test_targets_are_gone_through_again_only_when_they_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or when names of hosts are to be looked up again."""
    calls = []

    def counted(*args: Any) -> Choice:
        calls.append(args)
        return choose(*args)

    monkeypatch.setattr("exporter.sources.discovery.choose", counted)
    files = Fixed("file", [target("http://a:1/metrics", "file")])
    discovery, register = source(files)
    for _ in range(5):
        assert counts(list(discovery.read())) == {"static": 0, "file": 1}
    assert len(calls) == 1
    files.targets.append(target("http://b:1/metrics", "file"))
    assert counts(list(discovery.read())) == {"static": 0, "file": 2}
    assert (len(calls), len(register.targets)) == (2, 2)
    for _ in range(30):
        list(discovery.read())
    assert len(calls) == 3


def test_a_file_that_lists_a_configured_server_by_this_machines_name_is_that_server() -> None:
    """The configuration has it as 127.0.0.1."""
    listed = target("http://gpu-7:8000/metrics", "file")
    discovery, register = source(
        Fixed("file", [listed]), static=(Static("a", Endpoint("", 8000)),), ours=("gpu-7",)
    )
    list(discovery.read())
    assert register.targets == ()
