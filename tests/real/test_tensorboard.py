"""Event files against the reader of TensorBoard itself: by hand, with the extra `tensorboard`."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.formats.tfevents import read_event, read_frames

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

FILES = sorted((Path(__file__).parent.parent / "data" / "training").rglob("*tfevents*"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_our_reader_finds_what_tensorboards_own_finds(path: Path) -> None:
    """Every scalar with tag, step, time and value, also those that are tensors."""
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    ).EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    theirs = accumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
    theirs.Reload()
    wanted = {
        (tag, one.step, one.wall_time, repr(one.value))
        for tag in theirs.Tags()["scalars"]
        for one in theirs.Scalars(tag)
    }
    for tag in theirs.Tags()["tensors"]:
        for one in theirs.Tensors(tag):
            array = make_ndarray(one.tensor_proto)
            if array.shape == () and array.dtype.kind in "fi":
                wanted.add((tag, one.step, one.wall_time, repr(float(array))))

    found = {
        (tag, event.step, event.wall, repr(value))
        for event in map(read_event, read_frames(path.read_bytes()).data)
        for tag, value in event.scalars
    }
    assert found == wanted
