"""What a pod's annotations say of being read.

Ours win over Prometheus' and KServe's. Ours are meant for us, so a mistake in one is told; a
mistake in somebody else's is passed over, as if it was not there.

    flopwatch.io/scrape: "true"             read it, or ("false") leave it alone
    flopwatch.io/port: "8000"               numbers or names of ports, with commas between them
    flopwatch.io/path: /metrics
    flopwatch.io/scheme: http
    flopwatch.io/engine: vllm
    flopwatch.io/model-name: llama-70b
    flopwatch.io/allow-destructive-read: "true"
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from exporter.formats.podlist import Pod

_OURS = "flopwatch.io/"
_THEIRS = (
    ("prometheus.io/scrape", "prometheus.io/"),
    ("serving.kserve.io/enable-prometheus-scraping", "prometheus.kserve.io/"),
)
_KNOWN = frozenset(
    ("scrape", "port", "path", "scheme", "engine", "model-name", "allow-destructive-read")
)
_NUMBER = re.compile(r"[0-9]{1,5}")
_PORT_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,13}[a-z0-9])?")
_PATH = re.compile(r"/[\x21\x22\x24-\x7e]{0,255}")
_MODEL = re.compile(r"[\x20-\x7e]{1,256}")
_MOST_PORTS = 8


class Misstated(Exception):  # noqa: N818 - said of the pod
    """An annotation of ours says something that cannot be; the text says which, and what."""


class Stated(NamedTuple):
    """What a pod says. `wanted`: it is to be read; `refused`: it is not; neither: it may be asked.

    `suspected`: somebody else's annotations say that it has metrics. "" and () are not stated.
    """

    wanted: bool = False
    refused: bool = False
    suspected: bool = False
    ports: tuple[int, ...] = ()
    path: str = ""
    scheme: str = "http"
    engine: str = "auto"
    model_name: str | None = None
    allow_destructive_read: bool = False


def stated(pod: Pod, engines: Collection[str]) -> Stated:
    """Return what a pod says; `engines` are the names that it may use. Raises `Misstated`."""
    notes = pod.notes
    if unknown := sorted(key for key in notes if key.startswith(_OURS) and key[13:] not in _KNOWN):
        raise Misstated(f"{unknown[0]} is not known; there are {', '.join(sorted(_KNOWN))}")
    wanted = _switch(pod, "scrape")
    told = [prefix for switch, prefix in _THEIRS if notes.get(switch) == "true"]
    denied = any(notes.get(switch) == "false" for switch, _ in _THEIRS) and not told
    engine = notes.get(f"{_OURS}engine", "auto")
    if engine != "auto" and engine not in engines:
        raise Misstated(f"flopwatch.io/engine: {engine!r} is not known")
    model = notes.get(f"{_OURS}model-name")
    if model is not None and _MODEL.fullmatch(model) is None:
        raise Misstated("flopwatch.io/model-name: plain text of at most 256 characters is wanted")
    return Stated(
        wanted is True, wanted is False or (wanted is None and denied), bool(told),
        _our_ports(pod) or next(filter(None, (_port_of(pod, one) for one in told)), ()),
        _ours(pod, "path", _PATH) or next(filter(None, (_path_of(pod, one) for one in told)), ""),
        _scheme(pod, told), engine, model, _switch(pod, "allow-destructive-read") is True,
    )  # fmt: skip


def _switch(pod: Pod, key: str) -> bool | None:
    text = pod.notes.get(_OURS + key)
    if text is None:
        return None
    if text not in {"true", "false"}:
        raise Misstated(f'flopwatch.io/{key}: "true" or "false" is wanted, not {text[:40]!r}')
    return text == "true"


def _ours(pod: Pod, key: str, pattern: re.Pattern[str]) -> str:
    text = pod.notes.get(_OURS + key, "")
    if text and pattern.fullmatch(text) is None:
        raise Misstated(f"flopwatch.io/{key}: {text[:40]!r} is not one")
    return text


def _our_ports(pod: Pod) -> tuple[int, ...]:
    text = pod.notes.get(f"{_OURS}port", "")
    words = [word.strip() for word in text.split(",")] if text else []
    if len(words) > _MOST_PORTS:
        raise Misstated(f"flopwatch.io/port: more than {_MOST_PORTS} ports")
    found = []
    for word in words:
        port = _port(pod, word)
        if port is None:
            raise Misstated(f"flopwatch.io/port: {word[:40]!r} is no port, nor a name of one")
        found.append(port)
    return tuple(dict.fromkeys(found))


def _port_of(pod: Pod, prefix: str) -> tuple[int, ...]:
    port = _port(pod, pod.notes.get(f"{prefix}port", ""))
    return () if port is None else (port,)


def _port(pod: Pod, word: str) -> int | None:
    """Return the port that a word means: a number, or what a container declares by that name."""
    if _NUMBER.fullmatch(word) is not None:
        return int(word) if 0 < int(word) < 65536 else None
    if _PORT_NAME.fullmatch(word) is None:
        return None
    return next((port for port, name in _declared(pod) if name == word), None)


def _declared(pod: Pod) -> Iterator[tuple[int, str]]:
    for container in pod.containers:
        yield from container.ports


def _path_of(pod: Pod, prefix: str) -> str:
    text = pod.notes.get(f"{prefix}path", "")
    return text if _PATH.fullmatch(text) is not None else ""


def _scheme(pod: Pod, told: Collection[str]) -> str:
    if text := _ours(pod, "scheme", re.compile("https?")):
        return text
    schemes = (pod.notes.get(f"{prefix}scheme", "") for prefix in told)
    return next((one for one in schemes if one in {"http", "https"}), "http")
