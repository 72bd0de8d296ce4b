"""Reads `/proc/PID/cgroup`: the container, pod, Slurm job or systemd unit that a process is in.

There is one line for each hierarchy of version 1 and one for version 2. Runtimes and their drivers
write paths in many ways, so no controller, prefix or depth is relied on: each part of each path is
looked at, and the line that tells most counts. A reader in a cgroup namespace of its own (a
container's default with version 2) sees paths from its own place, beginning with `/..`: what both
have in common is left out, the rest is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_MOST_LINES = 64
_LONGEST_LINE = 8192
_LONGEST_PART = 255

_LINE = re.compile(r"[0-9]+:[^:]*:(/.*)")
_UID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_POD = re.compile(rf"(?:(?P<parent>\S*kubepods(?:-\S+?)?)-)?pod(?P<uid>{_UID})(?:\.slice)?")
_CONTAINER = re.compile(
    r"(?:(?P<runtime>[a-z][a-z-]*?)-)?(?P<monitor>conmon-)?(?P<id>[0-9a-f]{64})(?:\.scope)?"
)
_QOS = re.compile(r"(?:\S*kubepods-)?(besteffort|burstable)(?:\.slice)?")
_SLURM = re.compile(r"slurm(?:_(?P<v1>\S+))?|(?:(?P<v2>\S+)_)?slurmstepd\.scope")
_USER = re.compile(r"uid_([0-9]{1,10})|user-([0-9]{1,10})\.slice")
_JOB = re.compile(r"job_([0-9]{1,10})")
_STEP = re.compile(r"step_([0-9a-z]{1,32})")
_TASK = re.compile(r"task_([0-9]{1,10})")
_UNIT = re.compile(r".+\.(?:service|scope)")

_RUNTIMES = {
    "cri-containerd": "containerd", "nerdctl": "containerd", "crio": "cri-o", "libpod": "podman",
    "libpod-payload": "podman",
}  # fmt: skip


class Cgroup(NamedTuple):
    """What a process belongs to; "" is what its cgroup does not tell.

    `container` is the id of the innermost container, `runtime` who runs it (containerd, cri-o,
    docker, podman, or the word in the path), `pod` the uid of the outermost pod as the API writes
    it (32 digits without dashes: a static pod), `qos` guaranteed, burstable or besteffort. `job`,
    `step`, `task` and `node` are Slurm's, `uid` is the user that a path names. `unit` is the
    systemd unit of a process that is in none of these. `relative`: the path is told from the
    reader's own cgroup, so that what both have in common is missing.
    """

    container: str = ""
    runtime: str = ""
    pod: str = ""
    qos: str = ""
    job: str = ""
    step: str = ""
    task: str = ""
    node: str = ""
    uid: str = ""
    unit: str = ""
    relative: bool = False


def read(text: str) -> Cgroup:
    """Return what the lines of a process tell; lines that make no sense are left out."""
    found = [(_of_path(path), len(path)) for path in _paths(text)]
    return max(found, key=lambda one: (_telling(one[0]), one[1]))[0] if found else Cgroup()


def live_job(name: str) -> str:
    """Return the id of the job whose cgroup directory this is, "" if it is no job's."""
    match = _JOB.fullmatch(name)
    return "" if match is None else match[1]


def is_slurm(name: str) -> bool:
    """Tell whether a directory of this name is the one below which Slurm keeps its jobs."""
    return _SLURM.fullmatch(name) is not None


def _paths(text: str) -> Iterator[str]:
    for line in text.split("\n")[:_MOST_LINES]:
        if len(line) <= _LONGEST_LINE and (match := _LINE.fullmatch(line)) is not None:
            yield match[1].removesuffix(" (deleted)")


def _telling(one: Cgroup) -> tuple[int, int]:
    """Return how much is known: what it belongs to first."""
    return sum(map(bool, (one.pod, one.container, one.job, one.unit))), sum(map(bool, one))


def _of_path(path: str) -> Cgroup:
    parts = [part for part in path.split("/") if part and len(part) <= _LONGEST_PART]
    told = dict(_container(parts)) | dict(_pod(path, parts)) | dict(_slurm(parts))
    if "uid" not in told:
        told |= _user(parts)
    if not {"container", "pod", "job"} & told.keys():
        told |= _unit(parts)
    return Cgroup()._replace(relative=path.startswith("/..") or path == "/", **told)


def _container(parts: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the innermost container. A monitor's cgroup (conmon) bears its id, and is not it."""
    for at in range(len(parts) - 1, -1, -1):
        match, runtime = _container_of(parts[at])
        if match is None:
            continue
        if not runtime and at > 0 and parts[at - 1] == "docker":
            runtime = "docker"
        if match["monitor"] is None:
            yield "container", match["id"]
        yield "runtime", _RUNTIMES.get(runtime, runtime)
        return


def _container_of(part: str) -> tuple[re.Match[str] | None, str]:
    # containerd's own form has colons: `...-podUID.slice:cri-containerd:ID`.
    slice_, colon, rest = part.partition(".slice:")
    if colon:
        runtime, _, number = rest.partition(":")
        return _CONTAINER.fullmatch(number), runtime
    match = _CONTAINER.fullmatch(slice_)
    return match, "" if match is None else match["runtime"] or ""


def _pod(path: str, parts: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the outermost pod, and its class as far as the path shows it."""
    for at, part in enumerate(parts):
        match = _POD.fullmatch(part.partition(":")[0])
        if match is None:
            continue
        yield "pod", match["uid"].replace("_", "-")
        above = [*parts[:at], match["parent"] or ""]
        told = [found[1] for found in map(_QOS.fullmatch, above) if found is not None]
        if told:
            yield "qos", told[-1]
        elif "kubepods" in path:
            yield "qos", "guaranteed"
        return


def _slurm(parts: list[str]) -> Iterator[tuple[str, str]]:
    """Yield Slurm's job, and the step, task, user and node as far as they are told."""
    for at, part in enumerate(parts):
        if part == "user.slice":
            return  # users may call their own groups what they like
        match = _SLURM.fullmatch(part)
        below = parts[at + 1 :]
        user = _USER.fullmatch(below[0]) if below else None
        if user is not None:
            below = below[1:]
        job = _JOB.fullmatch(below[0]) if below else None
        if match is None or job is None:
            continue
        yield "job", job[1]
        if user is not None and user[1]:
            yield "uid", user[1]
        if node := match["v1"] or match["v2"]:
            yield "node", node
        for name, pattern in (("step", _STEP), ("task", _TASK)):
            told = next(filter(None, map(pattern.fullmatch, below)), None)
            if told is not None:
                yield name, told[1]
        return


def _user(parts: list[str]) -> dict[str, str]:
    found = next(filter(None, map(_USER.fullmatch, parts)), None)
    return {} if found is None else {"uid": found[1] or found[2]}


def _unit(parts: list[str]) -> dict[str, str]:
    for part in reversed(parts):
        if _UNIT.fullmatch(part) and _CONTAINER.fullmatch(part) is None:
            return {"unit": part}
    return {}
