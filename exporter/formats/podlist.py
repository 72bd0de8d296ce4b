"""Reads pods as the Kubernetes API writes them in JSON, and keeps little of each.

A pod is some ten thousand bytes of JSON, of which a few hundred are wanted here: who it is, whether
it serves, where, and what its containers are. A list is read one pod after the other, so that it is
never whole in memory as objects.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from exporter.samples import Malformed

_MOST_CONTAINERS = 64
_MOST_PORTS = 64
_MOST_WORDS = 256
_LONGEST_WORD = 512
_LONGEST_NOTE = 512

_ABOUT_SCRAPING = ("prometheus.io/", "flopwatch.io/", "prometheus.kserve.io/",
                   "serving.kserve.io/enable-")  # fmt: skip
_MIRROR = ("kubernetes.io/config.mirror", "kubernetes.io/config.hash")
"""A static pod's own uid, in the annotations of the pod that stands for it in the API."""

_LABELS = (
    "app", "app.kubernetes.io/name", "app.kubernetes.io/component", "engine",
    "flopwatch.io/engine", "llm-d.ai/inferenceServing", "serving.kserve.io/inferenceservice",
)  # fmt: skip
_GPU = re.compile(r"(?:nvidia|amd)\.com/.+|gpu\..+")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_UID = re.compile(r"[0-9A-Za-z-]{1,64}")
_SPACE = re.compile(r"[ \t\r\n]*")


class Port(NamedTuple):
    """A TCP port that a container declares; the name may be empty."""

    number: int
    name: str


class Container(NamedTuple):
    """A container: `id` without the runtime's scheme, `words` of its command and arguments."""

    name: str
    id: str = ""
    image: str = ""
    words: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    restarts: int = 0
    gpus: bool = False


class Pod(NamedTuple):
    """A pod. `uids` are its own, and the one that the kubelet gave a static pod.

    `serves`: it runs, is ready, is not being deleted and has an address. `notes` are its
    annotations about scraping, `labels` those that may tell an engine.
    """

    uids: tuple[str, ...]
    namespace: str
    name: str
    phase: str = ""
    serves: bool = False
    ip: str = ""
    notes: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    containers: tuple[Container, ...] = ()


class Listed(NamedTuple):
    """A list of pods, and the version of the cluster that it shows, "" if it does not say."""

    pods: tuple[Pod, ...]
    version: str


def listed(body: bytes) -> Listed:
    """Return the pods of a list; whatever in it is no pod is left out. Raises `Malformed`."""
    try:
        text = body.decode("utf-8")
        version = ""
        pods: list[Pod] = []
        for key, value in _top(text):
            if key == "items" and isinstance(value, dict):
                pod = pod_of(value)
                if pod is not None:
                    pods.append(pod)
            elif key == "metadata":
                version = version_of(value)
    except (ValueError, RecursionError) as error:
        kind = type(error).__name__
        raise Malformed(f"not a list of pods: {kind}: {str(error)[:120]}") from None
    return Listed(tuple(pods), version)


def _top(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the keys of an object with their values; those of `items` one by one."""
    decoder = json.JSONDecoder()
    at = _after(text, 0, "{")
    while True:
        key, at = decoder.raw_decode(text, _spaces(text, at))
        at = _after(text, at, ":")
        if key == "items" and text.startswith("[", _spaces(text, at)):
            at = _after(text, at, "[")
            while not text.startswith("]", _spaces(text, at)):
                value, at = decoder.raw_decode(text, _spaces(text, at))
                yield "items", value
                at = _spaces(text, at)
                if not text.startswith("]", at):
                    at = _after(text, at, ",")
            at = _after(text, at, "]")
        else:
            value, at = decoder.raw_decode(text, _spaces(text, at))
            yield str(key), value
        if text.startswith("}", _spaces(text, at)):
            return
        at = _after(text, at, ",")


def _spaces(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _after(text: str, at: int, sign: str) -> int:
    at = _spaces(text, at)
    if not text.startswith(sign, at):
        raise ValueError(f"{sign} is missing at character {at}")
    return at + 1


def version_of(metadata: object) -> str:
    """Return the resource version in an object's metadata, "" if there is none."""
    version = _map(metadata).get("resourceVersion")
    return version if isinstance(version, str) and len(version) <= 64 else ""


def pod_of(document: object) -> Pod | None:
    """Return the pod that a document describes, `None` if it is none."""
    whole = _map(document)
    metadata, spec, status = (_map(whole.get(key)) for key in ("metadata", "spec", "status"))
    uid, namespace, name = (_text(metadata.get(key)) for key in ("uid", "namespace", "name"))
    named = _NAME.fullmatch(namespace) and _NAME.fullmatch(name)
    if not named or _UID.fullmatch(uid) is None:
        return None
    notes = _texts(metadata.get("annotations"))
    phase, ip = _text(status.get("phase")), _address(status.get("podIP"))
    ready = any(
        one.get("type") == "Ready" and one.get("status") == "True"
        for one in _maps(status.get("conditions"))
    )
    going = metadata.get("deletionTimestamp") is not None
    mirrored = [notes[key] for key in _MIRROR if _UID.fullmatch(notes.get(key, ""))]
    return Pod(
        tuple(dict.fromkeys((uid, *mirrored))), namespace, name, phase,
        phase == "Running" and ready and not going and ip != "", ip,
        {key: value for key, value in notes.items() if key.startswith(_ABOUT_SCRAPING)},
        {key: one for key, one in _texts(metadata.get("labels")).items() if key in _LABELS},
        tuple(_containers(spec, status)),
    )  # fmt: skip


def _containers(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[Container]:
    """Yield the containers; those that go on beside the others may be listed as initial ones."""
    lists = (("containers", "containerStatuses"), ("initContainers", "initContainerStatuses"))
    for key, statuses in lists:
        states = {_text(one.get("name")): one for one in _maps(status.get(statuses))}
        for one in _maps(spec.get(key))[:_MOST_CONTAINERS]:
            name = _text(one.get("name"))
            state = states.get(name, {})
            restarts = state.get("restartCount")
            words = (*_words(one.get("command")), *_words(one.get("args")))
            yield Container(
                name, _text(state.get("containerID")).rpartition("//")[2],
                _text(one.get("image")), words[:_MOST_WORDS], tuple(_ports(one.get("ports"))),
                restarts if isinstance(restarts, int) else 0,
                any(map(_GPU.fullmatch, _texts(_map(one.get("resources")).get("limits")))),
            )  # fmt: skip


def _ports(document: object) -> Iterator[Port]:
    for one in _maps(document)[:_MOST_PORTS]:
        number = one.get("containerPort")
        fits = isinstance(number, int) and not isinstance(number, bool) and 0 < number < 65536
        if fits and one.get("protocol", "TCP") == "TCP":
            yield Port(int(number), _text(one.get("name")))  # type: ignore[arg-type]


def _words(document: object) -> list[str]:
    words = document if isinstance(document, list) else []
    return [one[:_LONGEST_WORD] for one in words[:_MOST_WORDS] if isinstance(one, str)]


def _address(value: object) -> str:
    """Return an address at which a pod may be asked; one of the machine's own link is none."""
    try:
        address = ipaddress.ip_address(_text(value))
    except ValueError:
        return ""
    address = getattr(address, "ipv4_mapped", None) or address
    own = address.is_loopback or address.is_link_local or address.is_unspecified
    return "" if own or address.is_multicast else str(address)


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _maps(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value[:_LONGEST_NOTE] if isinstance(value, str) else ""


def _texts(value: object) -> dict[str, str]:
    """Return what is text in an object; a number, as limits have them, is its digits."""
    return {
        key: one[:_LONGEST_NOTE] if isinstance(one, str) else str(one)
        for key, one in _map(value).items()
        if isinstance(one, str | int)
    }
