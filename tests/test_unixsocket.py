"""The unix socket: it goes with its daemon and costs nobody else a file."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from exporter.unixsocket import listening


def connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_it_listens_for_its_owner_and_a_group_and_is_gone_at_the_end(tmp_path: Path) -> None:
    """Mode 0660 whatever the umask says, and the group that was asked for."""
    path = tmp_path / "s"
    with listening(path, os.getgid()):
        connect(path)
        about = path.stat()
        assert stat.S_IMODE(about.st_mode) == 0o660
        assert about.st_gid == os.getgid()
    assert not path.exists()


def test_one_that_a_killed_daemon_left_is_replaced(tmp_path: Path) -> None:
    """Nobody listens on it any more."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    with listening(path):
        connect(path)


def test_one_on_which_somebody_listens_is_left_alone(tmp_path: Path) -> None:
    """A second daemon does not take the first one's jobs away."""
    path = tmp_path / "s"
    with listening(path):
        with pytest.raises(OSError, match="another process listens"), listening(path):
            pass
        connect(path)


def test_one_whose_owner_is_too_busy_to_answer_is_left_alone(tmp_path: Path) -> None:
    """A full queue of connections is not a dead socket."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(path))
        busy.listen(0)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(str(path))
        with pytest.raises(OSError, match="another process listens"), listening(path):
            pass
        for one in waiting:
            one.close()


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_is_not_a_socket_is_left_alone(tmp_path: Path, kind: str) -> None:
    """A mistyped path must not cost a file."""
    path, other = tmp_path / "s", tmp_path / "other"
    other.write_text("precious")
    match kind:
        case "file":
            path.write_text("precious")
        case "directory":
            path.mkdir()
        case _:
            path.symlink_to(other)
    with pytest.raises(OSError, match="not a socket"), listening(path):
        pass
    assert path.exists()
    assert other.read_text() == "precious"


def test_one_that_took_its_place_is_not_removed_at_the_end(tmp_path: Path) -> None:
    """Somebody has deleted ours, and made another."""
    path = tmp_path / "s"
    with listening(path):
        path.unlink()
        path.write_text("another's")
    assert path.read_text() == "another's"


def test_a_directory_where_anybody_may_replace_files_is_refused(tmp_path: Path) -> None:
    """Jobs would talk to whoever came first."""
    tmp_path.chmod(0o777)
    with pytest.raises(OSError, match="anybody may replace"), listening(tmp_path / "s"):
        pass


@pytest.mark.parametrize(
    ("name", "group", "said"),
    [
        ("x" * 120, None, "longer than"),
        ("missing/s", None, "No such file"),
        ("s", "no-such-group", "there is no group"),
    ],
)
def test_what_cannot_be_had_is_told(
    tmp_path: Path, name: str, group: str | None, said: str
) -> None:
    """In words for people."""
    with pytest.raises(OSError, match=said), listening(tmp_path / name, group):
        pass
