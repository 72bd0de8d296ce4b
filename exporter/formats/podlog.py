"""What the path of a container's log says, and which job a pod belongs to by its name.

The kubelet keeps logs as `NAMESPACE_POD_UID/CONTAINER/RESTARTS.log` below `/var/log/pods`, and
links to them as `POD_NAMESPACE_CONTAINER-ID.log` in `/var/log/containers`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_POD = re.compile(r"/([^/_]+)_([^/_]+)_([0-9A-Za-z.-]+)/([^/]+)/(\d+)\.log$")
_LINK = re.compile(r"/([^/_]+)_([^/_]+)_([^/]+)-[0-9a-f]{64}\.log$")

# The alphabet of generated names (apimachinery, util/rand) has no vowels and no 0, 1 and 3.
_GENERATED = re.compile(r"-(?=[a-z0-9]*[a-z])[bcdfghjklmnpqrstvwxz2456789]{5}$")
_INDEX = re.compile(r"(?:-\d{1,5})+$")
_ROLE = re.compile(r"-(?:master|workers?|launcher|chief|leader|nodes?|ps)$")


_FOLDER = re.compile(r"([^/_]+)_([^/_]+)_([0-9A-Za-z.-]+)")
_CONTAINER = re.compile(r"([^/_]+)_([^/_]+)_([^/]+)-([0-9a-f]{64})\.log")


class Folder(NamedTuple):
    """Whose logs a folder of `/var/log/pods` holds."""

    namespace: str
    name: str
    uid: str


class Link(NamedTuple):
    """Whose log a link of `/var/log/containers` leads to; `id` is the container's."""

    namespace: str
    name: str
    container: str
    id: str


def folder_of(name: str) -> Folder | None:
    """Return which pod a folder of this name belongs to, `None` if it is no pod's."""
    match = _FOLDER.fullmatch(name)
    return None if match is None else Folder(match[1], match[2], match[3])


def link_of(name: str) -> Link | None:
    """Return which container a link of this name belongs to, `None` if it is no container's."""
    match = _CONTAINER.fullmatch(name)
    return None if match is None else Link(match[2], match[1], match[3], match[4])


class Pod(NamedTuple):
    """A container of a pod; `restarts` is how often it was started again, where the path tells."""

    namespace: str
    name: str
    container: str
    restarts: int | None


def pod_of(path: str) -> Pod | None:
    """Return whose log a file is, `None` if its path is no container's."""
    if (match := _POD.search(path)) is not None:
        return Pod(match[1], match[2], match[4], int(match[5]))
    if (match := _LINK.search(path)) is not None:
        return Pod(match[2], match[1], match[3], None)
    return None


def job_of(pod: str) -> str:
    """Return what the pods of a job have in common: `llama` of `llama-worker-3`, `llama-master-0`.

    Left out are a generated ending, indices, and the role, as Kubeflow's operators, JobSet and
    indexed jobs append them.
    """
    name = pod
    for pattern in (_GENERATED, _INDEX, _ROLE):
        shorter = pattern.sub("", name)
        name = shorter or name
    return name
