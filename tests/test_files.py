"""Files that are opened once and read again and again."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from exporter.files import LARGEST, Files


class Pread:
    """The system call, counted, and failing once for each error that it was given."""

    def __init__(self) -> None:
        self.calls = 0
        self.errors: list[OSError] = []

    def __call__(self, fd: int, size: int, offset: int) -> bytes:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return os.pread(fd, size, offset)


def descriptors() -> int:
    """Return how many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))


def test_a_second_read_sees_what_was_written_since(tmp_path: Path) -> None:
    """A kept descriptor is read from the start each time and shows the file as it is now."""
    path = tmp_path / "counter"
    path.write_text("1\n")
    files = Files()
    assert files.read(str(path)) == b"1\n"
    path.write_text("22\n")
    assert files.read(str(path)) == b"22\n"
    assert len(files) == 1
    files.close()


@pytest.mark.parametrize("code", [errno.ENODEV, errno.ESTALE, errno.ENOENT])
def test_a_descriptor_whose_device_went_is_opened_anew(tmp_path: Path, code: int) -> None:
    """After ENODEV, ESTALE or ENOENT the path is opened again: the device may be back."""
    path = tmp_path / "counter"
    path.write_text("1\n")
    pread = Pread()
    files = Files(pread=pread)
    files.read(str(path))
    path.unlink()
    path.write_text("2\n")
    pread.errors = [OSError(code, "gone")]
    assert files.read(str(path)) == b"2\n"
    assert len(files) == 1
    files.close()


def test_it_is_opened_anew_only_once_for_each_read(tmp_path: Path) -> None:
    """A device that stays away raises its error after one more try, and keeps no descriptor."""
    path = tmp_path / "counter"
    path.write_text("1\n")
    pread = Pread()
    files = Files(pread=pread)
    files.read(str(path))
    pread.errors = [OSError(errno.ENODEV, "gone")] * 2
    with pytest.raises(OSError, match="gone"):
        files.read(str(path))
    assert pread.calls == 3
    assert len(files) == 0


def test_a_removed_device_raises_file_not_found(tmp_path: Path) -> None:
    """A file whose device and path are both gone raises `FileNotFoundError`."""
    path = tmp_path / "counter"
    path.write_text("1\n")
    pread = Pread()
    files = Files(pread=pread)
    files.read(str(path))
    path.unlink()
    pread.errors = [OSError(errno.ENODEV, "gone")]
    with pytest.raises(FileNotFoundError):
        files.read(str(path))
    assert len(files) == 0


def test_other_errors_keep_the_descriptor(tmp_path: Path) -> None:
    """A driver that says EINVAL or EIO now may answer later: nothing is opened again."""
    path = tmp_path / "counter"
    path.write_text("1\n")
    pread = Pread()
    pread.errors = [OSError(errno.EINVAL, "no")]
    files = Files(pread=pread)
    with pytest.raises(OSError, match="no"):
        files.read(str(path))
    assert len(files) == 1
    pread.errors = [OSError(errno.EIO, "broken")]
    with pytest.raises(OSError, match="broken"):
        files.read(str(path))
    assert files.read(str(path)) == b"1\n"
    assert pread.calls == 3
    files.close()


def test_descriptors_are_bounded(tmp_path: Path) -> None:
    """Files beyond the limit are read as well, but no descriptor is kept for them."""
    paths = [tmp_path / str(i) for i in range(5)]
    for path in paths:
        path.write_text(path.name)
    before = descriptors()
    files = Files(limit=2)
    for _ in range(2):
        assert [files.read(str(path)) for path in paths] == [b"0", b"1", b"2", b"3", b"4"]
    assert len(files) == 2
    assert descriptors() == before + 2
    files.close()


def test_close_gives_every_descriptor_back(tmp_path: Path) -> None:
    """After `close` no descriptor is left; a later read opens again."""
    path = tmp_path / "counter"
    path.write_text("1")
    before = descriptors()
    files = Files()
    files.read(str(path))
    files.close()
    assert descriptors() == before
    assert files.read(str(path)) == b"1"
    files.close()


def test_a_missing_file_leaves_nothing_behind(tmp_path: Path) -> None:
    """A file that is not there raises, and is found once it is there."""
    path = tmp_path / "counter"
    files = Files()
    with pytest.raises(FileNotFoundError):
        files.read(str(path))
    path.write_text("1")
    assert files.read(str(path)) == b"1"
    files.close()


def test_a_long_file_comes_from_one_system_call(tmp_path: Path) -> None:
    """The buffer that was large enough is remembered, so the text is of one moment."""
    path = tmp_path / "stat"
    path.write_bytes(b"x" * 10_000)
    pread = Pread()
    files = Files(pread=pread)
    assert len(files.read(str(path))) == 10_000
    first = pread.calls
    assert len(files.read(str(path))) == 10_000
    assert pread.calls == first + 1
    path.write_bytes(b"y" * 50_000)
    assert files.read(str(path)) == b"y" * 50_000
    files.close()


def test_a_file_without_end_is_refused(tmp_path: Path) -> None:
    """A file larger than any kernel text raises instead of filling the memory."""
    path = tmp_path / "huge"
    path.touch()
    os.truncate(path, LARGEST + 1)
    files = Files()
    with pytest.raises(OSError, match="larger than"):
        files.read(str(path))
    files.close()


def test_a_glance_keeps_nothing(tmp_path: Path) -> None:
    """What is read rarely costs no descriptor."""
    path = tmp_path / "fw_ver"
    path.write_text("28.41.1000\n")
    files = Files()
    assert files.glance(str(path)) == b"28.41.1000\n"
    assert len(files) == 0


def test_a_sweep_gives_up_replaced_files(tmp_path: Path) -> None:
    """A regular file that was replaced or removed is opened anew after a sweep."""
    replaced, removed, stays = (tmp_path / name for name in ("replaced", "removed", "stays"))
    files = Files()
    for path in (replaced, removed, stays):
        path.write_text("old")
        files.read(str(path))
    new = tmp_path / "new"
    new.write_text("new")
    new.rename(replaced)
    removed.unlink()
    files.sweep()
    assert len(files) == 1
    assert files.read(str(replaced)) == b"new"
    assert files.read(str(stays)) == b"old"
    with pytest.raises(FileNotFoundError):
        files.read(str(removed))
    files.close()


def test_a_link_is_known_by_its_target(tmp_path: Path) -> None:
    """`target` is the last name of where a link leads, and empty if it is no link."""
    (tmp_path / "driver").symlink_to("../../bus/pci/drivers/mlx5_core/")
    (tmp_path / "file").touch()
    files = Files()
    assert files.target(str(tmp_path / "driver")) == "mlx5_core"
    assert not files.target(str(tmp_path / "file"))
    assert not files.target(str(tmp_path / "missing"))


def test_a_folder_made_anew_is_told_from_the_former_one(tmp_path: Path) -> None:
    """A device that comes back under its old name is another; one that is gone has 0."""
    device = tmp_path / "mlx5_0"
    device.mkdir()
    files = Files()
    first = files.identity(str(device))
    assert files.identity(str(device)) == first != 0
    device.rename(tmp_path / "old")  # kept, so that its number is not given again
    assert files.identity(str(device)) == 0
    device.mkdir()
    assert files.identity(str(device)) not in (0, first)
