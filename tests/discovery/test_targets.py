"""How what was found becomes the servers that are read: names, places, and who wins."""

from __future__ import annotations

import time

import pytest

from exporter.config import ServerSettings
from exporter.discovery.target import (
    Endpoint,
    Register,
    Static,
    Target,
    choose,
    endpoint,
    name_of,
)


def target(name: str, url: str, origin: str = "file") -> Target:
    return Target(name, url, origin)


def names(static: list[Static], *targets: Target, limit: int = 64) -> list[str]:
    return [one.name for one in choose(static, targets, limit).taken]


@pytest.mark.parametrize(
    ("host", "path", "name"),
    [
        ("10.0.0.5", "/metrics", "10.0.0.5:8000"),
        ("gpu-7.rack", "/v1/metrics", "gpu-7.rack:8000-v1-metrics"),
        ("gpu-7", "/metrics/", "gpu-7:8000-metrics"),
        ("gpu-7", "/metrics?model=a+b%2Fc", "gpu-7:8000"),
        ("gpu-7", "/v1/metrics?token=s3cret", "gpu-7:8000-v1-metrics"),
        ("[fd00::1]", "/metrics", "fd00::1:8000"),
        ("h" * 60, "/metrics", "h" * 55 + "-59e19bde"),
    ],
)
def test_names_are_readable_and_allowed(host: str, path: str, name: str) -> None:
    """Host and port; of a page at an unusual path that too; never more than a name may be."""
    found = name_of(host, 8000, path)
    assert ServerSettings(name=found, url="http://h:1/metrics").name == found
    if len(host) < 60:
        assert found == name
    else:
        assert found.startswith("h" * 55) and len(found) == 64
        assert found != name_of(host + "h", 8000, path)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://127.0.0.1:8000/metrics", ("", 8000)),
        ("http://localhost:8000/metrics", ("", 8000)),
        ("http://LOCALHOST:8000", ("", 8000)),
        ("http://[::1]:8000/metrics", ("", 8000)),
        ("http://127.1.2.3/metrics", ("", 80)),
        ("https://gpu-7/metrics", ("gpu-7", 443)),
        ("http://gpu-7.:1/metrics", ("gpu-7", 1)),
        ("http://localhost.localdomain:1/metrics", ("", 1)),
        ("http://[::ffff:127.0.0.1]:1/metrics", ("", 1)),
        ("http://0:1/metrics", ("", 1)),
    ],
)
def test_every_name_of_the_loopback_is_one_place(url: str, place: tuple[str, int]) -> None:
    """So that a configured server is known again where it listens."""
    assert endpoint(url) == place


def test_a_configured_server_wins_over_one_found_at_its_place() -> None:
    """Whatever path either of them has."""
    static = [Static("chat", Endpoint("", 8000)), Static("far", Endpoint("gpu-7", 8000))]
    assert names(
        static,
        target("a", "http://localhost:8000/v1/metrics"),
        target("b", "http://gpu-7:8000/metrics"),
        target("c", "http://gpu-7:8001/metrics"),
        target("local:8000", "http://127.0.0.1:8000/metrics", "local"),
    ) == ["c"]


def test_a_file_wins_over_a_port() -> None:
    """It knows more of the server: its name, its engine."""
    assert names(
        [],
        target("chat", "http://localhost:8000/metrics"),
        target("local:8000", "http://127.0.0.1:8000/metrics", "local"),
        target("local:8001", "http://127.0.0.1:8001/metrics", "local"),
    ) == ["chat", "local:8001"]


def test_two_names_of_one_host_are_one_place_where_that_is_known() -> None:
    """Who asks the resolver says so."""
    static = [Static("chat", Endpoint("gpu-7", 8000))]
    found = [target("local:8000", "http://127.0.0.1:8000/metrics", "local")]
    assert choose(static, found, 64).taken == tuple(found)
    assert choose(static, found, 64, lambda place: Endpoint("", place.port)).taken == ()


def test_a_file_may_list_two_pages_of_one_server() -> None:
    """A gateway shows one for each model; the same page twice is one."""
    assert names(
        [],
        target("a", "http://h:1/metrics?model=a"),
        target("b", "http://h:1/metrics?model=b"),
        target("c", "http://h:1/metrics?model=b"),
    ) == ["a", "b"]


def test_one_page_under_two_names_of_this_machine_is_read_once() -> None:
    """Both in one file: read twice, each sum would hold it twice."""
    assert names(
        [],
        target("a", "http://localhost:18700/metrics"),
        target("b", "http://127.0.0.1:18700/metrics"),
        target("c", "http://127.0.0.1:18700/metrics?model=b"),
        target("d", "http://[::1]:18700/metrics?model=b"),
    ) == ["a", "c"]


def test_a_list_of_ten_thousand_equal_names_is_no_busy_loop() -> None:
    """It took 35 s at each look; names are made for those that are read, and counted."""
    found = [target("x" * 64, f"http://h:1/metrics?n={n}") for n in range(10_000)]
    begun = time.process_time()
    choice = choose([], found, 1000)
    assert time.process_time() - begun < 3
    assert (len({one.name for one in choice.taken}), choice.beyond) == (1000, 9000)


def test_beyond_the_limit_no_name_of_a_host_is_looked_up() -> None:
    """A resolver may take seconds for each."""
    asked = []

    def placed(place: Endpoint) -> Endpoint:
        asked.append(place.host)
        return place

    found = [target(f"t{n}", f"http://h{n}:1/metrics") for n in range(9)]
    assert choose([], found, 3, placed).beyond == 6
    assert asked == ["h0", "h1", "h2"]


def test_a_name_that_is_taken_gets_a_number() -> None:
    """A configured name is never taken away, and the first target keeps its own."""
    static = [Static("local:8000", Endpoint("elsewhere", 1))]
    assert names(
        static,
        target("local:8000", "http://a:1/metrics"),
        target("x" * 64, "http://b:1/metrics"),
        target("x" * 64, "http://c:1/metrics"),
    ) == ["local:8000-2", "x" * 64, "x" * 59 + "-2"]


def test_there_is_a_limit_that_configured_servers_do_not_feel() -> None:
    """What is beyond is counted."""
    static = [Static(f"s{n}", Endpoint("s", n)) for n in range(3)]
    found = [target(f"t{n}", f"http://t:{n + 1}/metrics") for n in range(5)]
    choice = choose(static, found, 5)
    assert [one.name for one in choice.taken] == ["t0", "t1"]
    assert choice.beyond == 3
    assert choose(static, found, 1).taken == ()


def test_the_register_tells_changes_only() -> None:
    """Another process at the same address is a change."""
    register = Register()
    one = target("a", "http://a:1/metrics")
    register.publish([one])
    register.publish([one])
    assert register.version == 1
    register.publish([Target("a", "http://a:1/metrics", "file", identity="7@99")])
    assert register.version == 2
    register.publish([])
    assert (register.version, register.targets) == (3, ())


def test_what_was_learnt_counts_as_long_as_it_would_be_learnt_again() -> None:
    """A reload keeps it; other engine mappings do not."""
    register = Register()
    register.verdicts("local", "basis")["x"] = 1
    assert register.verdicts("kubernetes", "basis") == {}
    assert register.verdicts("local", "basis") == {"x": 1}
    assert register.verdicts("local", "another") == {}
    assert register.verdicts("local", "basis") == {}
