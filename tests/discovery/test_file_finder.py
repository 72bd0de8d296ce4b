"""Servers that files list: taken up by content, and kept while a file is broken."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from exporter.discovery import FileFinder, Look
from exporter.discovery.files import MAX_BYTES


def urls(look: Look) -> list[str]:
    return [one.url for one in look.targets]


def listing(*addresses: str, **labels: str) -> str:
    return json.dumps([{"targets": list(addresses), "labels": labels}])


def finder(*patterns: Path) -> FileFinder:
    return FileFinder([str(pattern) for pattern in patterns], ["vllm"])


def settled(files: FileFinder) -> Look:
    """Look twice: what is new counts when it is still the same."""
    files.look()
    return files.look()


def test_files_are_found_by_pattern_and_read_by_ending(tmp_path: Path) -> None:
    """JSON and YAML; one that comes later is found, one that goes takes its targets along."""
    (tmp_path / "b.json").write_text(listing("b:1"))
    (tmp_path / "a.yml").write_text("- targets: [a:1]")
    (tmp_path / "notes.txt").write_text("none")
    files = finder(tmp_path / "*.json", tmp_path / "*.yml", tmp_path / "b.*")
    assert files.look().targets[0].name == "b:1"
    assert urls(files.look()) == ["http://b:1/metrics", "http://a:1/metrics"]

    (tmp_path / "c.json").write_text(listing("c:1"))
    (tmp_path / "b.json").unlink()
    look = settled(files)
    assert urls(look) == ["http://c:1/metrics", "http://a:1/metrics"]
    assert look.faults == ()


def test_labels_say_more_of_a_server(tmp_path: Path) -> None:
    """Its name, engine, model, and GPUs."""
    file = tmp_path / "a.json"
    file.write_text(
        listing("a:1", flopwatch_name="chat", flopwatch_engine="vllm",
                flopwatch_model_name="m", flopwatch_gpus="0,1")
    )  # fmt: skip
    (one,) = finder(file).look().targets
    assert (one.name, one.engine, one.model_name, one.gpus) == ("chat", "vllm", "m", (0, 1))


@pytest.mark.parametrize(
    ("content", "reason", "said"),
    [
        (b'[\n{"targets": ["a:1"]},\n{"targets": ["x y"]}]', "malformed", "line 3: 'x y'"),
        (b'[{"targets": ["a:1"]', "malformed", "line 1: not JSON"),
        (b"", "malformed", "line 1: not JSON"),
        (b"\xff\xfe", "malformed", "not UTF-8 text (byte 0)"),
        (b" " * (MAX_BYTES + 1), "malformed", "larger than"),
        (b'[{"targets": ["a:1"], "labels": {"flopwatch_engine": "vlm"}}]', "malformed",
         "line 1: engine 'vlm' is not known; there are auto, vllm"),
    ],
)  # fmt: skip
def test_a_broken_file_keeps_its_targets_and_says_why(
    tmp_path: Path, content: bytes, reason: str, said: str
) -> None:
    """With file, line and reason, as long as it is broken; repaired, it counts again."""
    file = tmp_path / "a.json"
    file.write_text(listing("a:1", "b:1"))
    files = finder(file)
    before = files.look().targets
    file.write_bytes(content)
    assert files.look() == Look(before)
    for _ in range(2):
        look = files.look()
        assert look.targets == before
        (fault,) = look.faults
        assert (fault.part, fault.reason) == (str(file), reason)
        assert said in fault.detail

    file.write_text(listing("c:1"))
    look = settled(files)
    assert urls(look) == ["http://c:1/metrics"]
    assert look.faults == ()


def test_a_file_that_cannot_be_read_keeps_its_targets(tmp_path: Path) -> None:
    """A folder that somebody put in its place, or a pipe: nothing waits for it."""
    file = tmp_path / "a.json"
    file.write_text(listing("a:1"))
    files = finder(file)
    before = files.look().targets
    for put in (file.mkdir, lambda: os.mkfifo(file)):
        if file.is_dir():
            file.rmdir()
        else:
            file.unlink()
        put()
        look = settled(files)
        assert look.targets == before
        assert [fault.part for fault in look.faults] == [str(file)]
    file.unlink()
    file.write_text(listing("a:1"))
    assert settled(files) == Look(before)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """A pattern that means nothing is not: its files may come later."""
    look = finder(tmp_path / "a.json", tmp_path / "*.yaml").look()
    assert look.targets == ()
    assert [(fault.part, fault.reason) for fault in look.faults] == [
        (str(tmp_path / "a.json"), "unavailable")
    ]


def test_a_swapped_link_is_noticed(tmp_path: Path) -> None:
    """So a ConfigMap changes: its files are links through a link."""
    for version, address in (("1", "a:1"), ("2", "b:1")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "t.json").write_text(listing(address))
    (tmp_path / "data").symlink_to("1")
    files = finder(tmp_path / "data" / "t.json")
    assert urls(files.look()) == ["http://a:1/metrics"]
    (tmp_path / "new").symlink_to("2")
    (tmp_path / "new").rename(tmp_path / "data")
    assert urls(settled(files)) == ["http://b:1/metrics"]


YAML = """\
- targets: ["a:8000", "b:8000"]
  labels: {flopwatch_engine: vllm}
- targets:
  - c:8001
- targets:
  - d:8002
"""


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("t.yml", YAML, YAML.replace("d:8002", "e:9000")),
        ("t.json", listing("a:1", "b:8000"), listing("a:2", "c:8000")),
    ],
)
def test_a_half_written_file_keeps_the_former_list(
    name: str, old: str, new: str, tmp_path: Path
) -> None:
    """Wherever the writer was when we looked; the first lines of a YAML list are a list too."""
    file = tmp_path / name
    for end in range(len(new)):
        file.write_text(old)
        files = finder(tmp_path / "t.*")
        before = files.look()
        file.write_text(new[:end])
        assert files.look() == before, new[:end]
        file.write_text(new)
        files.look()
        after = files.look()
        assert after.faults == ()
        assert urls(after) == urls(finder(file).look()) != urls(before)


def test_a_file_that_is_being_replaced_keeps_its_targets(tmp_path: Path) -> None:
    """Editors move the old one away first; the order of files, hence of names, stays."""
    for name in "ab":
        (tmp_path / f"{name}.json").write_text(listing(f"{name}:1", flopwatch_name="chat"))
    files = finder(tmp_path / "*.json")
    before = files.look()
    (tmp_path / "a.json").rename(tmp_path / "a.json~")
    assert files.look() == before
    (tmp_path / "a.json~").rename(tmp_path / "a.json")
    assert files.look() == before
    assert files.look() == before


def test_a_file_that_changes_at_each_look_is_taken_up_all_the_same(tmp_path: Path) -> None:
    """Some write the time into it."""
    file = tmp_path / "a.yml"
    file.write_text("- targets: [a:1]")
    files = finder(file)
    files.look()
    seen = []
    for number in range(7):
        file.write_text(f"- targets: [b:{number + 1}]")
        (one,) = files.look().targets
        seen.append(one.name)
    assert seen == ["a:1", "a:1", "b:3", "b:3", "b:3", "b:6", "b:6"]


def test_a_bad_file_costs_no_other(tmp_path: Path) -> None:
    """Those that are sound count; the fault names the one that is not, and where."""
    (tmp_path / "a.json").write_text(listing("a:1"))
    (tmp_path / "b.yml").write_text("- targets: [b:1]\n- targets: ['b 2']\n")
    (tmp_path / "c.yml").write_text("- targets: [c:1]\n")
    look = finder(tmp_path / "*.json", tmp_path / "*.yml").look()
    assert urls(look) == ["http://a:1/metrics", "http://c:1/metrics"]
    (fault,) = look.faults
    assert fault.part == str(tmp_path / "b.yml")
    assert "line 2: 'b 2' is not an address" in fault.detail
