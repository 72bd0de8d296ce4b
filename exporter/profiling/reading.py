"""Reads one profile from a file: what the child process of `sources.profiles` does.

A file comes from anywhere: it may be cut off, change while it is read, unpack to a thousand times
its size, or be no profile at all. Each of these is an error that says so, and no figure.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from exporter.formats.kineto import HOST, Event, Trace, Truncated
from exporter.profiling.memory import Allocations
from exporter.profiling.nsys import read_export
from exporter.profiling.patterns import pattern_of
from exporter.profiling.timeline import Gpu, Summary, Timeline, Total
from exporter.samples import Malformed

_PIECE = 1 << 18
_TOP = 20
BASE = 48 << 20
"""Memory of the child beside the intervals: the interpreter, its modules, a piece of the file."""
PER_INTERVAL = 64


class Kept(NamedTuple):
    """What a trace tells beside its timeline: steps, and of the GPU's memory the most at once.

    `stepping` is the seconds of all steps.
    """

    steps: int
    stepping: float
    allocated: int
    reserved: int
    on_gpu: Allocations
    on_host: Allocations


def read_profile(path: str, inside: str, memory: int, max_expanded: int) -> dict[str, Any]:
    """Return what a file shows, as JSON can hold it; see `_told`.

    It must lie in the directory `inside` (a link that leads out of it is refused). `memory` is what
    this process may use, `max_expanded` how many bytes a compressed file may have unpacked.

    Raises `Malformed`, `OSError`, and `Crowded` for more intervals than there is room for.
    """
    room = max(1000, (memory - BASE) // PER_INTERVAL * 3 // 4)
    with closing(_File(path)) as file:
        file.check(inside)
        if file.head.startswith(b"SQLite format 3\0"):
            timeline = Timeline(room)
            about = read_export(file.uri, timeline)
            told = _told("nsys", timeline.summary(), about)
        else:
            told = _read_trace(lambda: file.pieces(max_expanded), Timeline(room), room // 4)
        file.check_unchanged()
    return told


def _read_trace(
    begin: Callable[[], Iterator[bytes]], timeline: Timeline, allocations_room: int
) -> dict[str, Any]:
    trace = Trace(begin())
    kept = fill(timeline, trace.events(), allocations_room)
    about: dict[str, Any] = {
        "rank": trace.rank, "world_size": trace.world_size, "device": trace.device,
        "steps": kept.steps, "stepping": kept.stepping, "events": trace.number,
        "allocated": kept.allocated, "reserved": kept.reserved, "base": trace.base,
    }  # fmt: skip
    for where, allocations in (("gpu", kept.on_gpu), ("host", kept.on_host)):
        if allocations:
            about["operators"] = _operators(begin(), allocations)
            about["memory"] = where
            break
    return _told("kineto", timeline.summary(), about)


def _operators(pieces: Iterator[bytes], allocations: Allocations) -> dict[str, Total]:
    """Return which operators allocated most; reads the trace a second time."""
    if not allocations.crowded:
        for event in Trace(pieces, operators=True).events():
            allocations.operator(event.thread, event.start, event.end, event.name)
    totals = {name[:96]: total for name, total in allocations.totals().items()}
    ranked = sorted(totals.items(), key=lambda one: -one[1].bytes)
    return dict(ranked[:_TOP])


def fill(timeline: Timeline, events: Iterator[Event], room: int = 1_000_000) -> Kept:
    """Put the events of a trace onto a timeline; return what else they tell."""
    steps, allocated, reserved, stepping = 0, 0, 0, 0
    on_gpu, on_host = Allocations(room), Allocations(room)
    for kind, name, start, end, device, link, size, held, change, thread in events:
        if kind == "kernel":
            timeline.kernel(Gpu(0, device), start, end, name, link)
        elif kind == "call":
            timeline.call(0, link, start, end, launch="Launch" in name)
        elif kind == "copy":
            timeline.copy(Gpu(0, device), start, end, name, size=size, link=link)
        elif kind == "step":
            steps += 1
            stepping += end - start
            timeline.cover(start, end)
        else:
            if device != HOST:
                allocated, reserved = max(allocated, size), max(reserved, held)
            if change > 0:
                (on_host if device == HOST else on_gpu).add(thread, start, change)
    return Kept(steps, stepping / 1e9, allocated, reserved, on_gpu, on_host)


def _told(kind: str, summary: Summary | None, about: dict[str, Any]) -> dict[str, Any]:
    """Return all that is known, as plain values. Without kernels, `summary` is missing."""
    told: dict[str, Any] = {"format": kind, **about}
    if summary is None:
        return told
    told["summary"] = {
        name: getattr(summary, name)
        for name in (
            "devices", "seconds", "matmul", "memory_bound", "exposed", "copies", "idle",
            "communication", "overlap", "starved", "gaps", "kernels", "launching",
        )
    }  # fmt: skip
    told["pattern"] = pattern_of(summary)
    told["end"] = summary.end
    told["classes"] = summary.classes
    told["top_kernels"] = _largest(summary.names)
    told["operations"] = _largest(summary.operations)
    return told


def _largest(totals: dict[str, Total]) -> dict[str, Total]:
    ranked = sorted(totals.items(), key=lambda one: -one[1].seconds)
    return dict(ranked[:_TOP])


class _File:
    """A file that is read once, and must stay what it is meanwhile."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        self._about = os.fstat(self._fd)
        self._link = Path(f"/proc/self/fd/{self._fd}")
        self.uri = f"{self._link.as_uri()}?mode=ro&immutable=1"
        self.head = b""

    def check(self, inside: str) -> None:
        """Raise `Malformed` or `PermissionError` unless this is a file in that directory."""
        if not stat.S_ISREG(self._about.st_mode):
            raise Malformed("not a regular file")
        if not self._link.resolve().is_relative_to(Path(inside).resolve()):
            raise PermissionError(f"it lies outside {inside}")
        self.head = os.pread(self._fd, 64, 0)

    def pieces(self, max_expanded: int) -> Iterator[bytes]:
        """Yield the content, unpacked. Raises `Malformed` for what cannot be, or is too much."""
        os.lseek(self._fd, 0, os.SEEK_SET)
        raw = io.FileIO(self._fd, closefd=False)
        packed = self.head.startswith(b"\x1f\x8b")
        stream: Any = gzip.GzipFile(fileobj=raw, mode="rb") if packed else raw
        size = 0
        try:
            while piece := stream.read(_PIECE):
                size += len(piece)
                if size > max_expanded:
                    raise Malformed(f"more than {max_expanded} bytes when unpacked")
                yield piece
        except EOFError:
            raise Truncated("ends in the middle of what was compressed") from None
        except (zlib.error, gzip.BadGzipFile) as error:
            raise Malformed(f"cannot be unpacked: {error}") from None

    def check_unchanged(self) -> None:
        """Raise `OSError` if somebody has written to the file since it was opened."""
        now = os.fstat(self._fd)
        if (now.st_size, now.st_mtime_ns) != (self._about.st_size, self._about.st_mtime_ns):
            raise OSError("changed while it was read")

    def close(self) -> None:
        os.close(self._fd)
