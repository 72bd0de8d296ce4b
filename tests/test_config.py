"""The configuration file: defaults, and the one clear line for each thing that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.app import plan
from exporter.clock import SystemClock
from exporter.config import ConfigError, Settings, address, load, parse

BAD = sorted((Path(__file__).parent / "data/config/bad").glob("*.yaml"))
EXAMPLE = Path(__file__).parent.parent / "deploy/config.example.yaml"


def problems_of(path: Path) -> tuple[str, ...]:
    """Return what `flopwatch check` says of a file."""
    try:
        settings = load(path)
    except ConfigError as error:
        return error.problems
    with pytest.raises(ConfigError) as caught:
        plan(settings, SystemClock())
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


def test_the_example_file_is_valid_and_shows_every_key() -> None:
    """Each field of the settings appears in it, with its default."""
    text = EXAMPLE.read_text()
    load(EXAMPLE)

    def keys(model: type) -> set[str]:
        found: set[str] = set()
        for name, field in model.model_fields.items():  # type: ignore[attr-defined]
            found.add(name)
            if hasattr(field.annotation, "model_fields"):
                found |= keys(field.annotation)
        return found

    from exporter.config import ServerSettings

    missing = {key for key in keys(Settings) | keys(ServerSettings) if f"{key}:" not in text}
    assert missing == set()


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
    [(":9810", ("", 9810)), ("127.0.0.1:1", ("127.0.0.1", 1)), ("[::1]:0", ("::1", 0))],
)
def test_addresses(text: str, expected: tuple[str, int]) -> None:
    """Host and port of a listen setting."""
    assert address(text) == expected


@pytest.mark.parametrize("text", ["9810", ":", ":x", ":70000", "host:-1", "host:１"])
def test_what_is_not_an_address(text: str) -> None:
    """A clear refusal, also of digits that are not ASCII."""
    with pytest.raises(ValueError, match="not an address"):
        address(text)
