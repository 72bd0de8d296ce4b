"""Reads the files in which a scheduler's prolog and epilog say which job has which GPU.

The directory is dcgm-exporter's: a file for each GPU, named by its index, or by index and GPU
instance (`0.3`, where it is split by MIG); in it the id of a job on each line, none when nobody has
the GPU. Files named by UUID are read too: an index is the scheduler's own, and need not be the
driver's. A second word on a line is the job's user by number, as jobstats writes it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from exporter.samples import Malformed

LONGEST = 64 << 10
"""Bytes of one file."""

_MOST_JOBS = 256
_INDEX = re.compile(r"([0-9]{1,4})(?:\.([0-9]{1,3}))?")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z-]{1,64}")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+\[\]-]{0,63}")
_NUMBER = re.compile(r"[0-9]{1,10}")


class Device(NamedTuple):
    """What a file is about: the index of a GPU and a GPU instance of it, or a UUID."""

    gpu: str = ""
    instance: str = ""
    uuid: str = ""


class Entry(NamedTuple):
    """A job that has the device, and its user by number, "" if that is not told."""

    job: str
    uid: str = ""


def device(name: str) -> Device | None:
    """Return which device a file of this name is about, `None` if it is another kind of file."""
    if (match := _INDEX.fullmatch(name)) is not None:
        return Device(str(int(match[1])), "" if match[2] is None else str(int(match[2])))
    return Device(uuid=name) if _UUID.fullmatch(name) is not None else None


def entries(text: str) -> list[Entry]:
    """Return the jobs of a file, each once; none: nobody has the device.

    Raises `Malformed` for a line that is no job's id, and for more lines than a GPU has jobs.
    """
    found: dict[str, Entry] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        numbered = len(words) == 1 or (len(words) == 2 and _NUMBER.fullmatch(words[1]) is not None)
        if _ID.fullmatch(words[0]) is None:
            raise Malformed(f"line {number}: {words[0][:40]!r} is no job's id")
        if not numbered:  # it may be a name, which is not ours to tell
            raise Malformed(f"line {number}: behind a job's id stands more than its user's number")
        found.setdefault(words[0], Entry(*words))
        if len(found) > _MOST_JOBS:
            raise Malformed(f"more than {_MOST_JOBS} jobs")
    return list(found.values())


def number_of(job: str) -> str:
    """Return the number under which Slurm's cgroups know a job, "" if it is not such an id."""
    return job if _NUMBER.fullmatch(job) is not None else ""
