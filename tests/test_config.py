"""The configuration file: defaults, and the one clear line for each thing that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from exporter.clock import SystemClock
from exporter.config import ConfigError, Settings, address, load, parse
from exporter.objectives import OPTIONS, Objective
from exporter.plans import Estate, plan

BAD = sorted((Path(__file__).parent / "data/config/bad").glob("*.yaml"))
EXAMPLE = Path(__file__).parent.parent / "deploy/config.example.yaml"


def problems_of(path: Path) -> tuple[str, ...]:
    """Return what `flopwatch check` says of a file."""
    try:
        settings = load(path)
    except ConfigError as error:
        return error.problems
    with pytest.raises(ConfigError) as caught:
        plan(settings, Estate(SystemClock()))
    return tuple(f"{path}: {problem}" for problem in caught.value.problems)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_each_broken_file_gets_its_one_line(path: Path) -> None:
    """The first comment of the file is the message, FILE standing for its path."""
    expected = path.read_text().splitlines()[0].removeprefix("# ").replace("FILE", str(path), 1)

    assert problems_of(path) == (expected,)


def test_all_problems_of_a_file_are_told_at_once() -> None:
    """An operator should not have to run the check once for each mistake."""
    with pytest.raises(ConfigError) as caught:
        parse("listen: 12\nlog_level: loud\nsources: {host: {interval: 5}}", "f")

    assert len(caught.value.problems) == 3


def test_an_empty_file_and_no_file_run_with_the_defaults(tmp_path: Path) -> None:
    """Every key has a default."""
    empty = tmp_path / "empty.yaml"
    empty.write_text("# nothing yet\n")

    assert load(empty) == load(None) == Settings()


@pytest.mark.parametrize("depth", [300, 3000])
@pytest.mark.parametrize("pair", ["[]", "{}"])
def test_a_file_nested_three_thousand_deep_is_refused_in_one_line(depth: int, pair: str) -> None:
    """YAML is read by recursion: the depth of a file must not end the daemon."""
    with pytest.raises(ConfigError) as caught:
        parse("a: " + pair[0] * depth + pair[1] * depth, "f")

    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith("f")


def test_a_regular_expression_nested_too_deep_is_refused_with_its_key() -> None:
    """It too is compiled by recursion."""
    with pytest.raises(ConfigError, match=r"^f: sources.network.exclude_interfaces: not a regular"):
        parse(f"sources: {{network: {{exclude_interfaces: '{'(' * 5000}{')' * 5000}'}}}}", "f")


@pytest.mark.parametrize(
    "text",
    [
        "sources:", "sources:\n  inference:", "sources:\n  inference:\n    servers:", "reload:",
        "listen:", "sources: {host: {interval: , enabled: }}",
    ],
)  # fmt: skip
def test_a_key_with_nothing_after_its_colon_means_the_default(text: str) -> None:
    """Helm leaves such keys when a value is empty; in a list of servers too."""
    assert parse(text, "f") == Settings()


def test_a_server_may_leave_keys_empty() -> None:
    """They mean the same as keys that are not there."""
    full = "{name: a, url: 'http://x:1/metrics', engine: , interval: , follow_redirects: }"
    lean = "{name: a, url: 'http://x:1/metrics'}"

    both = [parse(f"sources: {{inference: {{servers: [{one}]}}}}", "f") for one in (full, lean)]
    assert both[0] == both[1]


def test_names_with_control_characters_do_not_reach_the_terminal() -> None:
    """A file name with a line break or a colour code is told escaped, in one line."""
    with pytest.raises(ConfigError) as caught:
        parse("a: 1", "\x1b[31m\n\udc80é.yaml")

    assert caught.value.problems == ("\\x1b[31m\\n\\udc80é.yaml: a: unknown key",)


def test_the_example_file_is_valid_and_shows_every_key() -> None:
    """Each field of the settings appears in it, with its default."""
    text = EXAMPLE.read_text()
    assert load(EXAMPLE) == Settings()

    def keys(model: type) -> set[str]:
        found: set[str] = set()
        for name, field in model.model_fields.items():  # type: ignore[attr-defined]
            found.add(field.alias or name)
            if hasattr(field.annotation, "model_fields"):
                found |= keys(field.annotation)
        return found

    from exporter.config import (
        AcceleratorSettings,
        BaselineSettings,
        ReceiverSettings,
        ServerSettings,
        TrainingFilesSettings,
        TrainingPageSettings,
        TrainingRunSettings,
    )
    from exporter.config.money import HoursSettings, TcoSettings

    listed = (
        AcceleratorSettings, BaselineSettings, HoursSettings, ReceiverSettings, ServerSettings,
        TcoSettings,
        TrainingFilesSettings, TrainingPageSettings, TrainingRunSettings,
    )  # fmt: skip
    known = keys(Settings).union(OPTIONS, *map(keys, listed))
    missing = {key for key in known if f"{key}:" not in text}
    assert missing == set()


def test_peaks_of_ones_own_may_be_written_as_people_do() -> None:
    """YAML takes 989e12 for text; it is a number all the same."""
    text = "accelerators: [{name: a, memory_bandwidth: %s, peak_flops: {bf16: %s}}]"
    for bandwidth, peak in (("3.35T", "989T"), ("3.35e12", "989e12"), ("3350 G", "0.989P")):
        (one,) = parse(text % (bandwidth, peak), "f").accelerators
        assert one.memory_bandwidth == pytest.approx(3.35e12)
        assert one.peak_flops == {"bf16": pytest.approx(989e12)}
    for wrong in ("-1T", ".inf", ".nan", "1e99", "fast", "true", "989 TB", "0"):
        with pytest.raises(ConfigError, match=r"f: accelerators\.0\.memory_bandwidth: "):
            parse(text % (wrong, "989T"), "f")


def test_precisions_of_the_configuration_are_those_of_the_table() -> None:
    from exporter.config import Precision
    from exporter.reference.accelerators import PRECISIONS

    assert get_args(Precision) == PRECISIONS


def test_the_objectives_that_the_example_file_shows_can_be_used() -> None:
    """They stand there as comments; taken out of them, they are what is shown beside them."""
    lines = EXAMPLE.read_text().split("\n")
    start = next(i for i, line in enumerate(lines) if line == "# inference_sla:")
    shown = "\n".join(line.removeprefix("# ") for line in lines[start:] if line.startswith("# "))

    found = parse(shown, "f").objectives

    assert {o.sla for o in found} == {"inference_sla", "training_sla", "chat"}
    assert {o.tier for o in found if o.sla == "chat"} == {"paid", "free"}
    plain = Objective("", "", "latency", "ttft", 0.95)
    free = next(o for o in found if o.tier == "free" and o.name == "ttft_p95")
    for option in set(OPTIONS) - {"models", "servers"}:
        assert getattr(free, option) == getattr(plain, option), option


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"a: \x00"])
def test_a_binary_file_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    """Somebody will mount the wrong file."""
    path = tmp_path / "binary.yaml"
    path.write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        load(path)

    assert len(caught.value.problems) == 1
    assert str(path) in caught.value.problems[0]
    assert "\n" not in caught.value.problems[0]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file and a directory in its place."""
    for path in (tmp_path / "missing.yaml", tmp_path):
        with pytest.raises(ConfigError, match=str(path)):
            load(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":9810", ("", 9810)),
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        ("[::1]:0", ("::1", 0)),
        ("[fe80::1%eth0]:1", ("fe80::1%eth0", 1)),
        ("gpu-7.rack_2.example.:1", ("gpu-7.rack_2.example.", 1)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    """Host and port of a listen setting."""
    assert address(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "9810", ":", ":x", ":70000", "host:-1", "host:１", " :1", ":1 ", ":1\n", "a b:1", "[::1:5",
        "::1]:5", "[]:1", "[x]:1", "::1:5", "a..b:9810", ".:1", "\0:1", "a\n:1", "a" * 64 + ":1",
        ":" + "1" * 5000, "http://x:1",
    ],
)  # fmt: skip
def test_what_is_not_an_address(text: str) -> None:
    """A clear refusal, also of digits that are not ASCII and of what the resolver trips over."""
    with pytest.raises(ValueError, match="not an address"):
        address(text)
